#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama-architecture decoder with tensor parallelism and random weights that generates tokens, in four ways:

    torch      torch.distributed's all_reduce, then torch's own add and rms_norm
    unfused    torch.distributed's all_reduce, then arfusion's epilogue (residual and RMSNorm with the contract's bits)
    preloaded  unfused, with libarfusion-nccl.so in front of NCCL
    fused      arfusion's operation

    python3 test/bench/llama.py --json llama.json                       Llama 3.1 8B's size on two GPUs
    python3 test/bench/llama.py --size small --device host --batch 1,8  on the host device, with gloo for NCCL

With two ranks the last three must give the same tokens and logits, bit for bit. Then a decode step is measured: on GPUs
the median of 40 replays of its CUDA graph, the ways taking turns; of the ranks' times the smallest counts. The share of
communication is what of that is gone when each rank leaves out the sum. NCCL's multicast is off.

PYTHONPATH must hold the package arfusion. Exit code: 0; 1 if what must be equal is not; 2 for an error.
"""

import argparse
import os
import sys

from bench_ranks import NO_MULTICAST, SPAWN, fail, free_port, number_list, percentile, repository_commit
from bench_ranks import run_ranks, too_few_gpus, write_document

TOGETHER = ("torch", "unfused", "fused")
EQUAL = ("unfused", "preloaded", "fused")
LIMIT_S = 300  # for one batch of one set of processes
# By how many per cent a decode step is to be shorter than torch's, by batch: Llama 3.1 8B on two H200s.
GOALS = {1: 22, 8: 21, 32: 19, 128: 12}


# ---------------------------------------------------------------- running ranks


def run_variants(arguments, names, attention, take):
    """The named ways in processes of their own, with these forms of attention by batch, or if there are none the faster
    one of each. None, or what went wrong."""
    from llama_rank import run_rank

    ranks, on_host = arguments.ranks, arguments.device == "host"
    given = (ranks, free_port(), SPAWN.Barrier(ranks), arguments.size, arguments.batch, names, attention, on_host)
    return run_ranks(run_rank, ranks, given, take, LIMIT_S)


def run_all(arguments, results):
    error = run_variants(arguments, TOGETHER, {}, results.take)
    if error or not arguments.preload:
        return error
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = arguments.preload if not before else f"{arguments.preload}:{before}"
    try:
        return run_variants(arguments, ("preloaded",), results.attention, results.take)  # the same bits need one form
    finally:
        os.environ.pop("LD_PRELOAD")
        if before is not None:
            os.environ["LD_PRELOAD"] = before


# ---------------------------------------------------------------- what came of it


class Results:
    """What all ranks of all sets of processes sent, by batch."""

    def __init__(self):
        self.machine = {}
        self.attention, self.tokens, self.logits, self.ms = {}, {}, {}, {}

    def take(self, rank, message):
        if "machine" in message:
            self.machine = message["machine"]
            return
        batch = message["batch"]
        for name in message["tokens"]:
            self.tokens[batch, name, rank] = message["tokens"][name]
            self.logits[batch, name, rank] = message["logits"][name]
        if rank == 0:
            self.attention.setdefault(batch, message["attention"])
            self.ms.update({(batch, *key): times for key, times in message["ms"].items()})

    def check(self, batch, ranks):
        """What must be equal: the tokens on all ranks, and tokens and logits of EQUAL. A list of what is not."""
        names = [name for name in EQUAL if (batch, name, 0) in self.tokens]
        wrong = []
        for name in sorted({key[1] for key in self.tokens if key[0] == batch}):
            if any(self.tokens[batch, name, r] != self.tokens[batch, name, 0] for r in range(ranks)):
                wrong.append(f"batch {batch}: the ranks' tokens differ with {name}")
        # With more ranks NCCL adds in another order.
        for name in names if ranks == 2 else ():
            for what, values in (("tokens", self.tokens), ("logits", self.logits)):
                if any(values[batch, name, r] != values[batch, "fused", r] for r in range(ranks)):
                    wrong.append(f"batch {batch}: the {what} of {name} are not those of fused")
        return wrong

    def measurement(self, batch, name):
        whole, without = (percentile(self.ms[batch, name, form], 0.5) for form in ("whole", "without"))
        return {
            "batch": batch, "variant": name, "attention": self.attention[batch], "ms_per_token": whole,
            "p10_ms": percentile(self.ms[batch, name, "whole"], 0.1),
            "p90_ms": percentile(self.ms[batch, name, "whole"], 0.9),
            "without_communication_ms": without, "communication_percent": 100 * (1 - without / whole),
        }  # fmt: skip


def document_of(arguments, results, wrong):
    measurements = [
        results.measurement(batch, name)
        for batch in arguments.batch
        for name in ("torch", "unfused", "preloaded", "fused")
        if (batch, name, "whole") in results.ms
    ]
    ms = {(m["batch"], m["variant"]): m["ms_per_token"] for m in measurements}
    has_goals = arguments.size == "8b" and arguments.device == "cuda" and arguments.ranks == 2
    comparison = []
    for batch in arguments.batch:
        row = {"batch": batch, "fewer_ms_than_torch_percent": 100 * (1 - ms[batch, "fused"] / ms[batch, "torch"])}
        if has_goals and batch in GOALS:
            row["goal_percent"] = GOALS[batch]
            row["goal_met"] = row["fewer_ms_than_torch_percent"] >= GOALS[batch]
        comparison.append(row)
    return {
        "machine": results.machine, "model": arguments.size, "ranks": arguments.ranks, "dtype": "bf16",
        "commit": repository_commit(), "equal": not wrong, "measurements": measurements, "comparison": comparison,
    }  # fmt: skip


def print_table(document):
    names = list(dict.fromkeys(m["variant"] for m in document["measurements"]))
    cell = {(m["batch"], m["variant"]): m for m in document["measurements"]}
    print("ms per token (per cent of it communication)")
    print("| batch | " + " | ".join(names) + " | fused against torch |")
    print("|---" * (len(names) + 2) + "|")
    for row in document["comparison"]:
        parts = []
        for name in names:
            m = cell[row["batch"], name]
            parts.append(f"{m['ms_per_token']:.2f} ({m['communication_percent']:.0f} %)")
        goal = f" (goal {row['goal_percent']} %)" if "goal_percent" in row else ""
        print(
            f"| {row['batch']} | " + " | ".join(parts) + f" | {row['fewer_ms_than_torch_percent']:.1f} % less{goal} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("8b", "small"), default="8b", help="default: 8b")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda", help="default: cuda")
    parser.add_argument("--ranks", type=int, choices=(2, 4), default=2, help="default: 2")
    parser.add_argument(
        "--batch", type=number_list, default=[1, 8, 32, 128], metavar="N,N,...", help="default: 1,8,32,128"
    )
    parser.add_argument(
        "--preload", metavar="libarfusion-nccl.so", help="measure the way `preloaded` too, with this file"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    arguments = parser.parse_args()
    os.environ.update(NO_MULTICAST)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits on every stream
    if arguments.device == "host":
        os.environ["ARFUSION_DEVICE"] = "host"
        if arguments.preload:
            return fail("--preload: there is no NCCL on the host device")
    try:
        import torch

        import arfusion  # noqa: F401
    except ImportError as error:
        return fail(error)
    lacking = too_few_gpus(torch, arguments.ranks) if arguments.device == "cuda" else None
    if lacking:
        return fail(lacking)
    if arguments.preload and not os.path.exists(arguments.preload):
        return fail(f"--preload {arguments.preload}: there is no such file")
    results = Results()
    error = run_all(arguments, results)
    if error:
        return fail(error)
    wrong = [line for batch in arguments.batch for line in results.check(batch, arguments.ranks)]
    document = document_of(arguments, results, wrong)
    print_table(document)
    if arguments.json:
        try:
            with open(arguments.json, "w", encoding="utf-8") as output:
                write_document(document, output)
        except OSError as problem:
            return fail(f"{arguments.json}: {problem.strerror}")
    print("\n".join(wrong) if wrong else "Tokens and logits are equal where they must be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
