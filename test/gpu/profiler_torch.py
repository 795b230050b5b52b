# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch program under the plugin as NCCL's profiler, and the comparison of the report with what it did.

  run FOLDER              a rank (RANK, WORLD_SIZE, MASTER_PORT): calls, whose counts go to FOLDER/calls-RANK.json
  check REPORT FOLDER     whether the report has the calls of all ranks
  alike REPORT            whether all ranks of each communicator have made the same allreduces, and some were made
  time FILE               a rank: steps of 160 allreduces of 8 KiB; FILE gets rank 0's medians in microseconds
  compare FOLDER          the medians FOLDER/{without,with}-*.json against each other

PyTorch makes allreduces of its own, barriers for instance, so the counts here are odd ones that only the program makes.
"""
import collections
import glob
import json
import os
import statistics
import sys
import time

STEP = 160


def start(round_number):
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    port = int(os.environ["MASTER_PORT"]) + round_number
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=world, device_id=device)
    return torch, dist, device, rank, world


class Program:
    """Makes allreduces, checks their sums and remembers them."""

    def __init__(self, torch, dist, device, world):
        self.torch, self.dist, self.device, self.world = torch, dist, device, world
        self.calls = collections.Counter()

    def tensor(self, dtype, count, captured=False, times=1):
        name = str(dtype).removeprefix("torch.")
        self.calls[(name, count, captured)] += times
        return self.torch.ones(count, dtype=dtype, device=self.device)

    def expect_sum(self, tensor, value=None):
        if not self.torch.all(tensor == (self.world if value is None else value)):
            raise SystemExit(f"a sum is wrong: {tensor.flatten()[:4].tolist()}")

    def eager(self, dtype, count, times, **arguments):
        for _ in range(times):
            tensor = self.tensor(dtype, count)
            work = self.dist.all_reduce(tensor, **arguments)
            if work is not None:
                work.wait()
            self.expect_sum(tensor)

    def maximum(self, count):
        tensor = self.tensor(self.torch.int32, count)
        self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX)
        self.expect_sum(tensor, 1)

    def coalesced(self, counts):
        tensors = [self.tensor(self.torch.bfloat16, count) for count in counts]
        with self.dist._coalescing_manager():
            for tensor in tensors:
                self.dist.all_reduce(tensor)
        for tensor in tensors:
            self.expect_sum(tensor)

    def graph(self, count, calls, replays):
        """Captured calls count once, however often the graph is replayed."""
        tensor = self.tensor(self.torch.float16, count, captured=True, times=calls)
        graph = self.torch.cuda.CUDAGraph()
        self.torch.cuda.synchronize()
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(calls):
                self.dist.all_reduce(tensor)
        for _ in range(replays):
            tensor.fill_(1)
            graph.replay()
            self.torch.cuda.synchronize()
            self.expect_sum(tensor, self.world**calls)


def run(folder):
    calls = collections.Counter()
    for round_number in range(2):  # NCCL closes the plugin in between
        torch, dist, device, rank, world = start(round_number)
        program = Program(torch, dist, device, world)
        group = dist.new_group(list(range(world)))
        odd = 8 * (1009 + round_number)
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            program.eager(dtype, odd, 5)
            program.eager(dtype, odd * 512, 2, async_op=True)
            program.eager(dtype, odd + 3, 1, group=group)
        program.eager(torch.float64, odd, 1)
        program.eager(torch.int64, odd + 1, 2)
        program.maximum(odd + 5)
        program.coalesced([odd + 16, odd + 24, odd + 32])
        program.graph(odd + 40, calls=3, replays=4)
        gathered = torch.empty(world * odd, dtype=torch.bfloat16, device=device)
        dist.all_gather_into_tensor(gathered, torch.ones(odd, dtype=torch.bfloat16, device=device))
        dist.broadcast(gathered, 0)
        torch.cuda.synchronize()
        dist.destroy_process_group()
        calls.update(program.calls)
    with open(f"{folder}/calls-{rank}.json", "w") as out:
        json.dump({"pid": os.getpid(), "calls": [[*key, n] for key, n in sorted(calls.items())]}, out)
    print(f"rank {rank}: {sum(calls.values())} allreduces")


def reports(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def check(path, folder):
    wrong = 0
    programs = [json.load(open(name)) for name in sorted(glob.glob(f"{folder}/calls-*.json"))]
    for program in programs:
        own = [report for report in reports(path) if report["pid"] == program["pid"]]
        counted = collections.Counter()
        for report in own:
            for size in report["sizes"]:
                counted[(size["type"], size["count"], False)] += size["eager_calls"]
                counted[(size["type"], size["count"], True)] += size["captured_calls"]
        for dtype, count, captured, calls in program["calls"]:
            if counted[(dtype, count, captured)] != calls:
                print(f"{dtype} x {count}, captured {captured}: {calls} made, {counted[(dtype, count, captured)]} told")
                wrong += 1
        if sum(report["other_collectives"] for report in own) < 4:
            print("the all-gathers and broadcasts are not reported")
            wrong += 1
    if not programs or wrong:
        raise SystemExit(f"{len(programs)} ranks, {wrong} counts are wrong")
    print(f"{len(programs)} ranks, {sum(len(p['calls']) for p in programs)} counts, all as made")


def alike(path):
    by_communicator = collections.defaultdict(list)
    for report in reports(path):
        sizes = sorted((s["type"], s["count"], s["eager_calls"], s["captured_calls"]) for s in report["sizes"])
        by_communicator[(report["communicator"], report["ranks"])].append(sizes)
    calls = 0
    for (name, ranks), made in by_communicator.items():
        if len(made) != ranks or any(sizes != made[0] for sizes in made):
            raise SystemExit(f"communicator {name}: {len(made)} of {ranks} ranks, not alike")
        calls += sum(size[2] + size[3] for size in made[0])
    if calls == 0:
        raise SystemExit("no allreduce is reported")
    print(f"{len(by_communicator)} communicators, {calls} allreduces, alike on all ranks")


def measure(path):
    torch, dist, device, rank, _ = start(0)
    tensor = torch.zeros(4096, dtype=torch.bfloat16, device=device)
    steps, hosts = [], []
    for step in range(230):
        dist.all_reduce(tensor[:1])  # both begin together
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(STEP):
            dist.all_reduce(tensor)
        enqueued = time.perf_counter_ns()
        torch.cuda.synchronize()
        if step >= 30:
            steps.append((time.perf_counter_ns() - begin) / 1e3)
            hosts.append((enqueued - begin) / 1e3)
    dist.destroy_process_group()
    if rank == 0:
        with open(path, "w") as out:
            json.dump({"step_us": statistics.median(steps), "host_us": statistics.median(hosts)}, out)


def compare(folder):
    medians = {}
    for kind in ("without", "with"):
        runs = [json.load(open(name)) for name in sorted(glob.glob(f"{folder}/{kind}-*.json"))]
        if not runs:
            raise SystemExit(f"no run {kind}")
        medians[kind] = {key: statistics.median(run[key] for run in runs) for key in ("step_us", "host_us")}
        spread = [round(run["step_us"], 1) for run in runs]
        print(f"{kind}: steps of {STEP} allreduces, us: {spread}")
    share = {key: medians["with"][key] / medians["without"][key] - 1 for key in ("step_us", "host_us")}
    with open(f"{folder}/overhead.json", "w") as out:
        json.dump({"medians": medians, "overhead": share}, out, indent=1)
    print(f"step {medians['without']['step_us']:.1f} -> {medians['with']['step_us']:.1f} us ({share['step_us']:+.2%}), "
          f"host {medians['without']['host_us']:.1f} -> {medians['with']['host_us']:.1f} us ({share['host_us']:+.2%})")


if __name__ == "__main__":
    commands = {"run": run, "check": check, "alike": alike, "time": measure, "compare": compare}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
