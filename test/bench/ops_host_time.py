#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of PyTorch's operators costs the host, eagerly, at 1 x 4096 bf16 and two ranks.

    python3 test/bench/ops_host_time.py -o host-time.json          on two GPUs; --device host: on the host device

`call` is the whole call: on GPUs until it is enqueued, on the host device until it is done. `python` is the same
without the library: its function is replaced by one of libm's that does nothing. Microseconds; of 400 stretches of 50
calls the median, and the 10th percentile, which is what an idle machine would say. PYTHONPATH must hold the package
arfusion. Exit code: 0, or 2 for an error.
"""

import argparse
import ctypes
import os
import sys
import time

from bench_ranks import NO_MULTICAST, fail, gpu_of, percentile, repository_commit, run_ranks, write_document

STRETCHES, CALLS, SILENCE_S = 400, 50, 120
TOKENS, HIDDEN, EPS, GROUP = 1, 4096, 1e-5, "ranks"
GOAL_US = 15  # on GPUs, the whole call


def nothing(arguments):
    """A function of libm's that takes so many pointers, looks at none, and returns 0."""
    function = ctypes.CDLL("libm.so.6").fegetround
    function.argtypes = [ctypes.c_void_p] * arguments
    return function


def operators(torch, device):
    """{name: a call}"""
    x, residual = (torch.zeros(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device) for _ in range(2))
    weight = torch.ones(HIDDEN, dtype=torch.bfloat16, device=device)
    ops = torch.ops.arfusion
    return {
        "allreduce_add_rmsnorm": lambda: ops.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP),
        "allreduce_add_rmsnorm_": lambda: ops.allreduce_add_rmsnorm_(x, residual, weight, EPS, GROUP),
        "all_reduce": lambda: ops.all_reduce(x, GROUP),
        "epilogue": lambda: ops.epilogue(x, residual, weight, EPS, GROUP),
    }


def time_call(call, finish):
    """µs a call of every stretch, sorted."""
    times = []
    for _ in range(STRETCHES):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
        finish()
    return sorted(times)


def run_rank(rank, unique_id, on_host, pipe):
    import torch

    import arfusion
    import arfusion.ops
    from arfusion import ops_call

    device = torch.device("cpu") if on_host else gpu_of(torch, rank)
    finish = (lambda: None) if on_host else torch.cuda.synchronize
    if not on_host:
        torch.cuda.set_device(device)
    comm = arfusion.Communicator.from_unique_id(unique_id, 2, rank, device.index or 0, TOKENS, HIDDEN)
    arfusion.ops.register(GROUP, comm)
    results = {}
    with torch.inference_mode():
        calls = operators(torch, device)
        for call in calls.values():
            call()
        finish()
        whole = {name: time_call(call, finish) for name, call in calls.items()}
        ops_call.enqueue, ops_call.epilogue = nothing(4), nothing(3)
        python = {name: time_call(call, finish) for name, call in calls.items()}
    for name in calls:
        results[name] = {
            "call_us": percentile(whole[name], 0.5), "call_p10_us": percentile(whole[name], 0.1),
            "python_us": percentile(python[name], 0.5), "python_p10_us": percentile(python[name], 0.1),
        }  # fmt: skip
    if rank == 0:
        pipe.send(results)
    pipe.send(None)
    comm.destroy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda", help="default: cuda")
    parser.add_argument("-o", "--output", metavar="FILE.json")
    arguments = parser.parse_args()
    on_host = arguments.device == "host"
    os.environ.update(NO_MULTICAST)
    if on_host:
        os.environ["ARFUSION_DEVICE"] = "host"
    import arfusion

    results = {}
    error = run_ranks(
        run_rank, 2, (arfusion.unique_id(), on_host), lambda rank, message: results.update(message), SILENCE_S
    )
    if error:
        return fail(error)
    print(f"{'operator':26} {'call':>8} {'python':>8}   µs")
    for name, result in results.items():
        print(f"{name:26} {result['call_us']:8.2f} {result['python_us']:8.2f}")
    document = {"device": arguments.device, "commit": repository_commit(), "operators": results}
    if not on_host:
        slowest = max(result["call_us"] for result in results.values())
        document.update(goal_us=GOAL_US, goal_met=slowest < GOAL_US)
        print(f"the slowest takes {slowest:.2f} µs, goal: less than {GOAL_US}")
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as output:
            write_document(document, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
