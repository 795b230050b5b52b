# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch program (torch.distributed, NCCL) with libarfusion-nccl.so preloaded: two processes on two
GPUs, or on one (ARFUSION_SHARED_GPU=1; hosts/hosts.c is preloaded, too).

  torch_nccl.py FRONT          FRONT: libarfusion-nccl.so
  torch_nccl.py --dry          the program on two CPUs over gloo, without the library: only that it is right itself

Every result must be what it is without the library, and the statistics at exit must say that of its own calls those
were taken that should be. Ends with `N passed, N failed`; exit 77 without two GPUs.
"""
import os
import re
import socket
import subprocess
import sys
import time

RANKS = 2
COUNTS = (1, 5, 4096, 65536 + 3, 1 << 20)
LIMIT = 300


class Program:
    def __init__(self, dry):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.dry = torch, dist, dry
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cpu") if dry else torch.device("cuda", self.rank % torch.cuda.device_count())
        self.dtypes = (torch.bfloat16, torch.float16, torch.float32)
        self.taken = self.left = self.cases = 0
        self.generator = torch.Generator().manual_seed(1)
        if not dry:
            torch.cuda.set_device(self.device)

    # ------------------------------------------------------------ what is expected

    def inputs(self, dtype, count):
        """Both ranks' values, the same on both."""
        return [self.torch.randn(count, generator=self.generator).to(dtype) for _ in range(self.world)]

    def expected(self, inputs):
        """Two terms have one rounding, whoever adds them."""
        return (inputs[0].float() + inputs[1].float()).to(inputs[0].dtype)

    def own(self, inputs):
        return inputs[self.rank].to(self.device, copy=True)

    def count(self, taken, calls=1):
        self.taken, self.left = self.taken + taken * calls, self.left + (not taken) * calls

    def same(self, tensor, expected, what):
        if not self.torch.equal(tensor.cpu(), expected):
            raise RuntimeError(f"rank {self.rank}: {what}: a result is wrong")

    def case(self, name, function, *arguments):
        function(*arguments)
        self.cases += 1
        if self.rank == 0:
            print("passed", name, flush=True)

    # ------------------------------------------------------------ cases

    def eager(self, group=None, taken=True):
        for dtype in self.dtypes:
            for count in COUNTS:
                inputs = self.inputs(dtype, count)
                tensor = self.own(inputs)
                self.dist.all_reduce(tensor, group=group)
                self.count(taken)
                self.same(tensor, self.expected(inputs), f"eager {dtype} {count}")

    def other_operations(self):
        for operation in (self.dist.ReduceOp.MAX, self.dist.ReduceOp.MIN, self.dist.ReduceOp.PRODUCT):
            tensor = self.torch.full((100,), float(self.rank + 1), device=self.device)
            self.dist.all_reduce(tensor, operation)
            self.count(False)
            value = 1.0 if operation == self.dist.ReduceOp.MIN else 2.0
            self.same(tensor, self.torch.full((100,), value), f"{operation}")
        tensor = self.torch.full((100,), self.rank + 1, dtype=self.torch.int64, device=self.device)
        self.dist.all_reduce(tensor)
        self.count(False)
        self.same(tensor, self.torch.full((100,), 3, dtype=self.torch.int64), "int64")
        if not self.dry:
            pre_mul = self.dist._make_nccl_premul_sum(2.0)
            tensor = self.torch.full((100,), float(self.rank + 1), device=self.device)
            self.dist.all_reduce(tensor, pre_mul)
            self.count(False)
            self.same(tensor, self.torch.full((100,), 6.0), "PreMulSum")

    def asynchronous(self):
        pending = []
        for dtype in self.dtypes:
            inputs = self.inputs(dtype, 8192)
            tensor = self.own(inputs)
            pending.append((self.dist.all_reduce(tensor, async_op=True), tensor, self.expected(inputs)))
            self.count(True)
        for work, tensor, expected in pending:
            work.wait()
            self.same(tensor, expected, "async_op")

    def coalesced(self):
        """Several of one communicator in a group are NCCL's; one alone is not."""
        for number in (1, 4):
            inputs = [self.inputs(self.torch.bfloat16, 4096) for _ in range(number)]
            tensors = [self.own(each) for each in inputs]
            if self.dry:
                for tensor in tensors:
                    self.dist.all_reduce(tensor)
            else:
                with self.dist._coalescing_manager(async_ops=True) as manager:
                    for tensor in tensors:
                        self.dist.all_reduce(tensor)
                manager.wait()
            self.count(number == 1, number)
            for tensor, each in zip(tensors, inputs):
                self.same(tensor, self.expected(each), f"{number} coalesced")

    def interleaved(self):
        """With others on the same communicator."""
        peer = 1 - self.rank
        for _ in range(20):
            inputs = self.inputs(self.torch.float16, 5000)
            tensor = self.own(inputs)
            gathered = [self.torch.empty_like(tensor) for _ in range(self.world)]
            self.dist.all_gather(gathered, tensor)
            for each, source in zip(gathered, inputs):
                self.same(each, source, "all_gather")
            received = self.torch.empty_like(tensor)
            if self.dry:
                works = [self.dist.isend(tensor, peer), self.dist.irecv(received, peer)]
            else:
                works = self.dist.batch_isend_irecv(
                    [self.dist.P2POp(self.dist.isend, tensor, peer), self.dist.P2POp(self.dist.irecv, received, peer)])
            for work in works:
                work.wait()
            self.same(received, inputs[peer], "send and receive")
            self.dist.all_reduce(tensor)
            self.count(True)
            self.same(tensor, self.expected(inputs), "between others")

    def graph(self):
        if self.dry:
            return
        torch = self.torch
        inputs = [self.inputs(dtype, count) for dtype in self.dtypes for count in COUNTS]
        sources = [self.own(each) for each in inputs]
        targets = [torch.empty_like(source) for source in sources]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for source, target in zip(sources, targets):
                target.copy_(source)
                self.dist.all_reduce(target)
                self.count(True)
        for _ in range(50):
            for target in targets:
                target.zero_()
            graph.replay()
        torch.cuda.synchronize()
        for each, target in zip(inputs, targets):
            self.same(target, self.expected(each), "graph")

    def two_groups_at_once(self, first, second):
        """Each on a stream of its own, without waiting for each other."""
        torch, pending = self.torch, []
        streams = [None, None] if self.dry else [torch.cuda.Stream(), torch.cuda.Stream()]
        for _ in range(50):
            for group, stream in zip((first, second), streams):
                inputs = self.inputs(torch.bfloat16, 16384)
                tensor = self.own(inputs)
                if stream is None:
                    self.dist.all_reduce(tensor, group=group)
                else:
                    stream.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(stream):
                        self.dist.all_reduce(tensor, group=group)
                self.count(True)
                pending.append((tensor, self.expected(inputs)))
        if not self.dry:
            torch.cuda.synchronize()
        for tensor, expected in pending:
            self.same(tensor, expected, "two groups at once")

    # ------------------------------------------------------------ all of it

    def start(self, port):
        arguments = {} if self.dry else {"device_id": self.device}
        self.dist.init_process_group("gloo" if self.dry else "nccl", init_method=f"tcp://127.0.0.1:{port}",
                                     rank=self.rank, world_size=self.world, **arguments)

    def run(self, ports):
        for turn, port in enumerate(ports):
            self.start(port)
            sub = self.dist.new_group([0, 1])
            other = self.dist.new_group([1, 0])
            alone = [self.dist.new_group([rank]) for rank in range(self.world)]
            self.case(f"turn {turn}: eager", self.eager)
            self.case("other operations and types", self.other_operations)
            self.case("a sub-group", self.eager, sub)
            self.case("asynchronous", self.asynchronous)
            self.case("coalesced", self.coalesced)
            self.case("interleaved", self.interleaved)
            self.case("graph", self.graph)
            self.case("two groups at once", self.two_groups_at_once, sub, other)
            self.case("a group of one", self.group_of_one, alone[self.rank])
            self.dist.destroy_process_group()
        print(f"counts {self.taken} {self.left} {self.cases}", flush=True)

    def group_of_one(self, group):
        tensor = self.torch.ones(10, device=self.device)
        self.dist.all_reduce(tensor, group=group)
        self.count(False)
        self.same(tensor, self.torch.ones(10), "a group of one")


def judge(text, status, dry):
    """Whether a rank ended well, and its statistics say what it did. PyTorch makes allreduces of its own, barriers for
    instance: there may be a few more than the program made, never fewer."""
    counted = re.search(r"^counts (\d+) (\d+) (\d+)$", text, re.M)
    told = re.search(r"ARFUSION_STATS \S+: \d+ ncclAllReduce, (\d+) taken, (\d+) left", text)
    if status or not counted or (not dry and not told):
        return False, f"exit {status}"
    if dry:
        return True, "dry"
    (taken, left), (said_taken, said_left) = map(int, counted.groups()[:2]), map(int, told.groups())
    extra = (said_taken + said_left) - (taken + left)
    good = said_taken >= taken and said_left >= left and 0 <= extra <= 16
    return good, f"{said_taken} taken of {taken} made to be, {said_left} left of {left}, {extra} of PyTorch's own"


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["rank"]:
        Program(arguments[1] == "dry").run([int(port) for port in arguments[2:]])
        return 0
    if len(arguments) != 1:
        print(__doc__)
        return 2
    dry = arguments[0] == "--dry"
    try:
        import torch
    except ImportError:
        torch = None
    needed = 1 if os.environ.get("ARFUSION_SHARED_GPU") == "1" else RANKS
    if not torch or (not dry and torch.cuda.device_count() < needed):
        print("PyTorch and two GPUs are needed")
        return 77
    environment = dict(os.environ, WORLD_SIZE=str(RANKS), ARFUSION_STATS="1")
    if not dry:
        preloaded = (os.path.realpath(arguments[0]), os.environ.get("LD_PRELOAD"))
        environment["LD_PRELOAD"] = ":".join(filter(None, preloaded))
    ports = [str(port) for port in free_ports(2)]
    children = [
        subprocess.Popen([sys.executable, __file__, "rank", "dry" if dry else "gpu", *ports],
                         env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for rank in range(RANKS)
    ]
    passed, end = 0, time.monotonic() + LIMIT
    for rank, child in enumerate(children):
        try:
            text = child.communicate(timeout=max(1, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            child.kill()
            text = child.communicate()[0]
        good, line = judge(text, child.returncode, dry)
        passed += good
        print(text, end="")
        print(f"{'passed' if good else 'FAILED'} rank {rank}: {line}", flush=True)
    print(f"{passed} passed, {RANKS - passed} failed")
    return passed < RANKS


if __name__ == "__main__":
    sys.exit(main())
