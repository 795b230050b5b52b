# SPDX-License-Identifier: Apache-2.0
"""NCCL as serving engines drive it from Python: ctypes on a library named by its path, all functions bound at start.

  pynccl.py gpu FRONT          two processes with a GPU each, or one for both (ARFUSION_SHARED_GPU=1): calls, eager and
                               under capture, and how many were taken
  pynccl.py abort FRONT        ncclCommAbort while the other rank never comes ends the wait within a second
  pynccl.py host FRONT MOCK    the calls with threads for ranks, on the tests' libnccl for host memory

FRONT is libarfusion-nccl.so. Ends with `N passed, N failed`.
"""
import contextlib
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 2
FLOAT16, FLOAT32, BFLOAT16, SUM, MAX = 6, 7, 9, 0, 2
COUNTS = (1, 7, 4096, 100003)
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


FUNCTIONS = {
    "ncclGetVersion": [ctypes.POINTER(INT)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(POINTER), INT, UniqueId, INT],
    "ncclAllReduce": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclReduce": [POINTER, POINTER, SIZE, INT, INT, INT, POINTER, POINTER],
    "ncclAllGather": [POINTER, POINTER, SIZE, INT, POINTER, POINTER],
    "ncclReduceScatter": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclSend": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclRecv": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclBroadcast": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclCommDestroy": [POINTER],
    "ncclCommAbort": [POINTER],
    "ncclCommGetAsyncError": [POINTER, ctypes.POINTER(INT)],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommWindowRegister": [POINTER, POINTER, SIZE, ctypes.POINTER(POINTER), INT],
    "ncclCommWindowDeregister": [POINTER, POINTER],
}


class Nccl:
    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.error_string = library.ncclGetErrorString
        self.error_string.restype, self.error_string.argtypes = ctypes.c_char_p, [INT]
        self.functions = {}
        for name, arguments in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = INT, arguments
            self.functions[name] = function

    def __call__(self, name, *arguments):
        result = self.functions["nccl" + name](*arguments)
        if result:
            raise RuntimeError(f"nccl{name}: {self.error_string(result).decode()} ({result})")

    def version(self):
        number = INT()
        self("GetVersion", ctypes.byref(number))
        text = str(number.value)
        return f"{text[0]}.{int(text[1:3])}.{int(text[3:])}"


class Torch:
    """Buffers and streams on a GPU."""

    dtypes = {FLOAT16: "float16", FLOAT32: "float32", BFLOAT16: "bfloat16"}

    def __init__(self, rank):
        import torch

        self.torch, self.device = torch, torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        self.side = torch.cuda.Stream()

    def full(self, dtype, count, value):
        return self.torch.full((count,), value, dtype=getattr(self.torch, self.dtypes[dtype]), device=self.device)

    def pointer(self, array):
        return array.data_ptr()

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream

    def wait(self):
        self.torch.cuda.synchronize()

    def is_full(self, array, value):
        return bool(self.torch.all(array == value))

    def captures(self):
        return True


class Host:
    """The same in host memory, float32 alone."""

    def __init__(self, mock):
        self.mock = ctypes.CDLL(mock)
        for name in ("mockStreamCreate", "mockStreamDestroy", "mockStreamWait"):
            getattr(self.mock, name).restype = POINTER
            getattr(self.mock, name).argtypes = [] if name.endswith("Create") else [POINTER]
        self.own = self.mock.mockStreamCreate()

    def full(self, dtype, count, value):
        return (ctypes.c_float * count)(*[value] * count) if dtype == FLOAT32 else None

    def pointer(self, array):
        return ctypes.addressof(array)

    def stream(self):
        return self.own

    def wait(self):
        self.mock.mockStreamWait(self.own)

    def is_full(self, array, value):
        return all(element == value for element in array)

    def captures(self):
        return False


class Driver:
    def __init__(self, nccl, memory, unique_id, rank):
        self.nccl, self.memory, self.rank = nccl, memory, rank
        self.taken = self.left = 0
        self.comm = POINTER()
        nccl("CommInitRank", ctypes.byref(self.comm), RANKS, unique_id, rank)

    def all_reduce(self, dtype, count, operation, taken):
        """In place and not; gives what is to be checked later."""
        checks = []
        for in_place in (True, False):
            source = self.memory.full(dtype, count, self.rank + 1)
            if source is None:
                return []
            target = source if in_place else self.memory.full(dtype, count, 0)
            self.nccl("AllReduce", self.memory.pointer(source), self.memory.pointer(target), count, dtype, operation,
                      self.comm, self.memory.stream())
            checks.append((source, target, 3 if operation == SUM else 2))
            self.taken, self.left = self.taken + taken, self.left + (not taken)
        return checks

    def check(self, checks):
        self.memory.wait()
        for _, target, value in checks:
            if not self.memory.is_full(target, value):
                raise RuntimeError("a result is wrong")

    def eager(self):
        checks = []
        for count in COUNTS:
            for dtype in (FLOAT32, FLOAT16, BFLOAT16):
                checks += self.all_reduce(dtype, count, SUM, True)
            checks += self.all_reduce(FLOAT32, count, MAX, False)
        self.check(checks)

    def others(self):
        """The other functions, on the same communicator, between allreduces."""
        memory, nccl, comm = self.memory, self.nccl, self.comm
        pointer, stream = memory.pointer, memory.stream()
        count = 1000
        own, whole = memory.full(FLOAT32, count, self.rank + 1), memory.full(FLOAT32, count * RANKS, 0)
        nccl("AllGather", pointer(own), pointer(whole), count, FLOAT32, comm, stream)
        checks = self.all_reduce(FLOAT32, count, SUM, True)
        shared = memory.full(FLOAT32, count, self.rank + 5)
        nccl("Broadcast", pointer(shared), pointer(shared), count, FLOAT32, 0, comm, stream)
        part, source = memory.full(FLOAT32, count, 0), memory.full(FLOAT32, count * RANKS, self.rank + 1)
        nccl("ReduceScatter", pointer(source), pointer(part), count, FLOAT32, SUM, comm, stream)
        root = memory.full(FLOAT32, count, 0)
        nccl("Reduce", pointer(own), pointer(root), count, FLOAT32, SUM, 0, comm, stream)
        received = memory.full(FLOAT32, count, 0)
        nccl("GroupStart")
        nccl("Send", pointer(own), count, FLOAT32, 1 - self.rank, comm, stream)
        nccl("Recv", pointer(received), count, FLOAT32, 1 - self.rank, comm, stream)
        checks += self.all_reduce(FLOAT32, count, SUM, False)  # two in one group
        nccl("GroupEnd")
        checks += [(shared, shared, 5), (source, part, 3), (own, received, 2 - self.rank)]
        if self.rank == 0:
            checks.append((own, root, 3))
        self.check(checks)

    def captured(self):
        """A graph of allreduces, replayed; its calls are counted once."""
        if not self.memory.captures():
            return
        torch = self.memory.torch
        tensors = [self.memory.full(BFLOAT16, count, 0) for count in COUNTS]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for tensor in tensors:
                tensor.fill_(self.rank + 1)
                self.nccl("AllReduce", tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), BFLOAT16, SUM, self.comm,
                          self.memory.stream())
                self.taken += 1
        for _ in range(100):
            graph.replay()
        self.check([(tensor, tensor, 3) for tensor in tensors])

    def run(self):
        self.eager()
        self.others()
        self.captured()
        self.nccl("CommDestroy", self.comm)


def unique_id_of(nccl, path, rank):
    """Rank 0 makes it and leaves it in a file."""
    unique_id = UniqueId()
    if rank == 0:
        nccl("GetUniqueId", ctypes.byref(unique_id))
        with open(path + ".new", "wb") as file:
            file.write(bytes(unique_id))
        os.rename(path + ".new", path)
        return unique_id
    end = time.monotonic() + 60
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise RuntimeError("rank 0 has made no id")
        time.sleep(0.01)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())


def rank_main(kind, front, path, rank):
    memory = Torch(rank)
    nccl = Nccl(front)
    print("version", nccl.version(), flush=True)
    driver = Driver(nccl, memory, unique_id_of(nccl, path, rank), rank)
    if kind == "gpu":
        driver.run()
    else:
        abort(driver, memory)
    print("counts", driver.taken, driver.left, flush=True)


def abort(driver, memory):
    """Rank 1 is there, and never calls what rank 0 waits in."""
    driver.eager()
    if driver.rank == 0:
        driver.all_reduce(FLOAT16, 4096, SUM, True)
        time.sleep(1)
        if memory.torch.cuda.current_stream().query():
            raise RuntimeError("the operation ended without its peer")
        start = time.monotonic()
        driver.nccl("CommAbort", driver.comm)
        memory.wait()
        seconds = time.monotonic() - start
        print(f"ended after {seconds:.3f} s", flush=True)
        if seconds > 1:
            raise RuntimeError("the wait did not end within a second")
    else:
        time.sleep(4)
        driver.nccl("CommAbort", driver.comm)


def processes(kind, front):
    """One a rank; each must end well, and its statistics must say what it counted."""
    passed = 0
    environment = dict(os.environ, ARFUSION_STATS="1")
    with tempfile.TemporaryDirectory() as folder:
        children = [
            subprocess.Popen([sys.executable, __file__, "rank", kind, front, os.path.join(folder, "id"), str(rank)],
                             env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in range(RANKS)
        ]
        for child in children:
            try:
                text = child.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                child.kill()
                text = child.communicate()[0] + "(ran past its time limit)\n"
            passed += child.returncode == 0 and counts_agree(text)
            print(text, end="", flush=True)
    return passed, RANKS - passed


def counts_agree(text):
    counted = re.search(r"^counts (\d+) (\d+)$", text, re.M)
    told = re.search(r"ARFUSION_STATS \S+: \d+ ncclAllReduce, (\d+) taken, (\d+) left", text)
    if counted and told and counted.groups() == told.groups():
        return True
    print("the statistics are not what the program did")
    return False


def threads(front, mock):
    nccl, failures = Nccl(front), []
    print("version", nccl.version())
    unique_id = UniqueId()
    nccl("GetUniqueId", ctypes.byref(unique_id))

    def rank_thread(rank):
        try:
            Driver(nccl, Host(mock), unique_id, rank).run()
        except RuntimeError as error:
            failures.append(error)
            print(f"rank {rank}: {error}")

    ranks = [threading.Thread(target=rank_thread, args=(rank,), daemon=True) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(60)
    hanging = sum(each.is_alive() for each in ranks)
    return RANKS - len(failures) - hanging, len(failures) + hanging


def main():
    kind, *arguments = sys.argv[1:] or ["help"]
    if kind == "rank":
        rank_main(*arguments[:3], int(arguments[3]))
        return 0
    if kind in ("gpu", "abort"):
        with contextlib.suppress(ImportError):
            import torch

            if torch.cuda.device_count() >= (1 if os.environ.get("ARFUSION_SHARED_GPU") == "1" else RANKS):
                passed, failed = processes(kind, arguments[0])
                print(f"{passed} passed, {failed} failed")
                return failed > 0
        print("PyTorch and two GPUs are needed")
        return 77
    if kind == "host":
        passed, failed = threads(*arguments)
        print(f"{passed} passed, {failed} failed")
        return failed > 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
