#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `arfusion-bench perf` measures, for PyTorch and FlashInfer, in the same form and by the same protocol.

    python3 test/bench/perf_peers.py -o peers.json
    arfusion-bench plot perf.json peers.json -o all.svg

One process a GPU. Paths: torch_nccl (all_reduce, add, rms_norm), torch_symm_mem (one_shot_all_reduce, add, rms_norm)
and, where FlashInfer can be used, flashinfer_oneshot and flashinfer_twoshot (its fused call, with dependent launch). A
time is the median of 20 replays of a CUDA graph of 20 operations, the paths of a size taking turns; of the ranks'
elapsed times the smallest counts. Multicast is off. Written for PyTorch 2.11. Exit code: 0, or 2 for an error; what was
measured before it is written all the same.
"""
import argparse
import os
import sys

from bench_ranks import NO_MULTICAST, SPAWN, fail, free_port, number_list, percentile, repository_commit
from bench_ranks import run_ranks, write_document

LAUNCHES, REPLAYS, WARM_UP = 20, 20, 2
SILENCE_S = 150  # FlashInfer may have to compile its kernels first
EPS = 1e-5


# ---------------------------------------------------------------- a rank


class TorchPaths:
    """PyTorch's allreduces, then add and rms_norm."""

    pdl = False

    def __init__(self, rank, max_tokens, max_hidden):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.dist, self.group = torch, dist, dist.group.WORLD.group_name
        device, count = torch.device("cuda", rank), max_tokens * max_hidden
        self.input = symm_mem.empty(count, dtype=torch.bfloat16, device=device)
        symm_mem.rendezvous(self.input, group=self.group)
        self.input.normal_()
        self.work = torch.empty(count, dtype=torch.bfloat16, device=device)
        self.residual = torch.empty(count, dtype=torch.bfloat16, device=device)
        self.gamma = torch.ones(max_hidden, dtype=torch.bfloat16, device=device)

    def paths(self, tokens, hidden):
        """For each path a function that enqueues LAUNCHES operations."""
        source, work, residual = (
            t[: tokens * hidden].view(tokens, hidden) for t in (self.input, self.work, self.residual)
        )
        gamma, rms_norm = self.gamma[:hidden], self.torch.nn.functional.rms_norm
        one_shot = self.torch.ops.symm_mem.one_shot_all_reduce
        work.normal_()
        residual.zero_()

        def nccl():
            x = work  # summed in place; then the norm is, which stays near 1
            for _ in range(LAUNCHES):
                self.dist.all_reduce(x)
                residual.add_(x)
                x = rms_norm(residual, (hidden,), gamma, EPS)

        def symm_mem():
            for _ in range(LAUNCHES):
                residual.add_(one_shot(source, "sum", self.group))
                rms_norm(residual, (hidden,), gamma, EPS)

        return {"torch_nccl": nccl, "torch_symm_mem": symm_mem}


class FlashInferPaths:
    """FlashInfer's fused call. Each of its two algorithms has a workspace of its own."""

    pdl = True

    def __init__(self, rank, nranks, max_tokens, max_hidden):
        import flashinfer.comm
        import torch
        import torch.distributed as dist

        self.comm, self.rank, self.nranks = flashinfer.comm, rank, nranks
        self.workspaces = {
            path: flashinfer.comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
                rank, nranks, max_tokens, max_hidden, group=dist.group.WORLD
            )
            for path in ("flashinfer_oneshot", "flashinfer_twoshot")
        }
        device, count = torch.device("cuda", rank), max_tokens * max_hidden
        self.input, self.residual, self.norm = (
            torch.zeros(count, dtype=torch.bfloat16, device=device) for _ in range(3)
        )
        self.input.normal_()
        self.gamma = torch.ones(max_hidden, dtype=torch.bfloat16, device=device)

    def paths(self, tokens, hidden):
        source, residual, norm = (
            t[: tokens * hidden].view(tokens, hidden) for t in (self.input, self.residual, self.norm)
        )
        residual.zero_()

        def fused(path):
            def run():
                for _ in range(LAUNCHES):
                    self.comm.trtllm_allreduce_fusion(
                        allreduce_in=source,
                        world_size=self.nranks,
                        world_rank=self.rank,
                        token_num=tokens,
                        hidden_dim=hidden,
                        workspace_ptrs=self.workspaces[path][1],
                        launch_with_pdl=True,
                        trigger_completion_at_end=True,
                        fp32_acc=True,
                        pattern_code=self.comm.AllReduceFusionPattern.kARResidualRMSNorm,
                        use_oneshot=path == "flashinfer_oneshot",
                        allreduce_out=None,
                        residual_in=residual,
                        residual_out=residual,
                        norm_out=norm,
                        quant_out=None,
                        scale_out=None,
                        rms_gamma=self.gamma[:hidden],
                        rms_eps=EPS,
                        scale_factor=None,
                        layout_code=None,
                    )

            return run

        # Two-shot takes more tokens than ranks.
        return {path: fused(path) for path in self.workspaces if path.endswith("oneshot") or tokens > self.nranks}


def record(torch, run):
    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads of PyTorch's may call CUDA meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def measure_size(torch, dist, barrier, peers, tokens, hidden):
    """{path: (pdl, sorted µs)}, alike on all ranks."""
    graphs, pdl = {}, {}
    for peer in peers:
        for path, run in peer.paths(tokens, hidden).items():
            graphs[path], pdl[path] = record(torch, run), peer.pdl
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    own = {path: [] for path in graphs}
    for _ in range(REPLAYS):
        for path, graph in graphs.items():
            barrier.wait(SILENCE_S)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            own[path].append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    return {path: (pdl[path], sorted(map(min, zip(*(r[path] for r in ranks))))) for path in graphs}


def open_flashinfer(dist, rank, nranks, max_tokens, max_hidden):
    """None where it is not there, or its kernels cannot be built, on any rank."""
    opened, whys = None, [None] * nranks
    try:
        opened, own = FlashInferPaths(rank, nranks, max_tokens, max_hidden), ""
    except Exception as error:  # whatever it is, PyTorch can still be measured
        own = f"{type(error).__name__}: {error}".splitlines()[0]
    dist.all_gather_object(whys, own)
    if not any(whys):
        return opened
    if rank == 0:
        print(f"no FlashInfer: {next(filter(None, whys))}", flush=True)
    return None


def run_rank(rank, nranks, port, barrier, sizes, pipe):
    """What rank 0 sends: the machine as a dict, then (tokens, hidden, times) for each size. All send None at last."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    address, device = f"tcp://127.0.0.1:{port}", torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=nranks, device_id=device)
    largest = max(t for t, _ in sizes), max(h for _, h in sizes)
    peers = [TorchPaths(rank, *largest)]
    flashinfer = open_flashinfer(dist, rank, nranks, *largest)
    if flashinfer:
        peers.append(flashinfer)
    if rank == 0:
        machine = {
            "device": torch.cuda.get_device_name(rank),
            "devices": torch.cuda.device_count(),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "torch": torch.__version__,
            "flashinfer": sys.modules["flashinfer"].__version__ if flashinfer else "",
        }
        pipe.send(machine)
    for tokens, hidden in sizes:
        times = measure_size(torch, dist, barrier, peers, tokens, hidden)
        if rank == 0:
            pipe.send((tokens, hidden, times))
    pipe.send(None)
    barrier.wait(SILENCE_S)
    dist.destroy_process_group()


# ---------------------------------------------------------------- the parent


class Listener:
    """Makes the document of what rank 0 sends."""

    def __init__(self, nranks):
        self.nranks, self.commit, self.document = nranks, repository_commit(), {"machine": {}, "measurements": []}

    def take(self, rank, message):
        if isinstance(message, dict):
            self.document["machine"] = message
            return
        tokens, hidden, times = message
        for path, (pdl, us) in times.items():
            self.document["measurements"].append({
                "tokens": tokens, "hidden": hidden, "ranks": self.nranks, "dtype": "bf16",
                "pattern": "residual_rmsnorm", "quant": "none", "path": path, "launch": "graph", "pdl": pdl,
                "median_us": percentile(us, 0.5), "p10_us": percentile(us, 0.1), "p90_us": percentile(us, 0.9),
                "commit": self.commit,
            })  # fmt: skip
        medians = ", ".join(f"{path} {percentile(us, 0.5):.2f}" for path, (_, us) in times.items())
        print(f"{tokens} x {hidden}: {medians}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.json")
    parser.add_argument("--ranks", type=int, default=2, choices=range(2, 17), metavar="N", help="default: 2")
    parser.add_argument("--tokens", type=number_list, default=[1 << i for i in range(14)], metavar="N,N,...")
    # 2880 comes last: should a peer hang there, the others have been measured.
    parser.add_argument("--hidden", type=number_list, default=[4096, 5120, 7168, 8192, 2880], metavar="N,N,...")
    arguments = parser.parse_args()
    os.environ.update(NO_MULTICAST)
    try:
        import torch
    except ImportError as error:
        return fail(f"PyTorch is needed: {error}")
    if torch.cuda.device_count() < arguments.ranks:
        return fail(f"{arguments.ranks} ranks, but {torch.cuda.device_count()} GPUs")
    try:
        output = open(arguments.output, "a", encoding="utf-8")  # before anything is measured; what is there stays
    except OSError as problem:
        return fail(f"{arguments.output}: {problem.strerror}")
    listener, ranks = Listener(arguments.ranks), arguments.ranks
    sizes = [(t, h) for h in arguments.hidden for t in arguments.tokens]
    error = run_ranks(run_rank, ranks, (ranks, free_port(), SPAWN.Barrier(ranks), sizes), listener.take, SILENCE_S)
    try:
        with output:
            if listener.document["measurements"]:
                output.truncate(0)
                write_document(listener.document, output)
    except OSError as problem:
        return fail(f"{arguments.output}: {problem.strerror}")
    return fail(error) if error else 0


if __name__ == "__main__":
    sys.exit(main())
