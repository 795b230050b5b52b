# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes for the tests of the Python package, and arrays of the kind under test.

TEST_ARRAYS says which: numpy (the default; host device), torch (tensors in host memory), cuda (on GPUs).
"""

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
import unittest

import numpy as np

LIMIT_S = 90
KIND = os.environ.get("TEST_ARRAYS", "numpy")
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "plugin", "python")
sys.path.insert(0, PACKAGE)
if KIND == "cuda":
    os.environ.setdefault("ARFUSION_DEVICE", "cuda")
else:
    os.environ["ARFUSION_DEVICE"] = "host"
os.environ.setdefault("ARFUSION_INIT_TIMEOUT", "30")
os.environ.setdefault("ARFUSION_TIMEOUT", "30")


# ---------------------------------------------------------------- arrays


def bits_of_bf16(values):
    """float32 to bfloat16's bits, to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Arrays:
    """Makes arrays of the kind under test from numpy's, and reads them back."""

    def __init__(self, rank):
        self.torch = None
        if KIND != "numpy":
            import torch

            self.torch = torch
            self.device = (
                torch.device("cuda", rank % torch.cuda.device_count()) if KIND == "cuda" else torch.device("cpu")
            )
            if KIND == "cuda":
                torch.cuda.set_device(self.device)

    def type(self, name):
        """What callers pass as a dtype."""
        if self.torch:
            return getattr(self.torch, name)
        return {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8}.get(name) or getattr(np, name)

    def make(self, values, name="float32"):
        """An array of type `name` with (about) these values."""
        if self.torch:
            return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device).to(self.type(name))
        return bits_of_bf16(values) if name == "bfloat16" else np.ascontiguousarray(values).astype(self.type(name))

    def empty(self, shape, name="float32"):
        """An array whose bytes are all 0x5a."""
        if self.torch:
            dtype = self.type(name)
            bytes_ = self.torch.full(
                (int(np.prod(shape)) * dtype.itemsize,), 0x5A, dtype=self.torch.uint8, device=self.device
            )
            return bytes_.view(dtype).view(shape)
        dtype = np.dtype(self.type(name))
        return np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8).view(dtype).reshape(shape)

    def bytes(self, array):
        """The bytes of an array, in row-major order."""
        if self.torch and not isinstance(array, np.ndarray):
            flat = array.contiguous().view(-1)
            return flat.view(self.torch.uint8).cpu().numpy().tobytes()
        return array.tobytes()

    def floats(self, array):
        """The values of an array, as float32."""
        if self.torch:
            return array.float().cpu().numpy()
        return from_bf16(array) if array.dtype == np.uint16 else array.astype(np.float32)


# ---------------------------------------------------------------- processes


class FileBackend:
    """What FlashInfer calls a communication backend, over files in a folder."""

    def __init__(self, folder, rank, size):
        self.folder, self.rank, self.size, self.calls = folder, rank, size, 0

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def allgather(self, value):
        self.calls += 1
        mine = os.path.join(self.folder, f"{self.calls}.{self.rank}")
        with open(mine + ".new", "wb") as file:
            pickle.dump(value, file)
        os.rename(mine + ".new", mine)
        return tuple(self._read(rank) for rank in range(self.size))

    def _read(self, rank):
        path, end = os.path.join(self.folder, f"{self.calls}.{rank}"), time.monotonic() + LIMIT_S
        while not os.path.exists(path):
            if time.monotonic() > end:
                raise TimeoutError(f"rank {self.rank} waited for {path}")
            time.sleep(0.002)
        with open(path, "rb") as file:
            return pickle.load(file)

    def barrier(self):
        self.allgather(None)


class Rank:
    """What a test's function gets: who it is, arrays, and a place to keep things from one function to the next."""

    def __init__(self, rank, size, folder):
        self.rank, self.size, self.folder, self.arrays, self.kept, self.backends = (
            rank,
            size,
            folder,
            Arrays(rank),
            {},
            0,
        )

    def backend(self):
        """A fresh backend; all ranks make theirs together."""
        self.backends += 1
        folder = os.path.join(self.folder, str(self.backends))
        os.makedirs(folder, exist_ok=True)
        return FileBackend(folder, self.rank, self.size)

    def group(self):
        """torch.distributed's group of all ranks, made at first use."""
        import torch.distributed as dist

        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if KIND == "cuda" else "gloo"
            store = f"file://{self.folder}/store"
            dist.init_process_group(backend, init_method=store, rank=self.rank, world_size=self.size)
        return dist.group.WORLD


def _work(rank, size, folder, pipe):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(0 if KIND == "cuda" and os.environ.get("ARFUSION_SHARED_GPU") == "1" else rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(20000 + os.getppid() % 20000),
        TORCHELASTIC_RUN_ID=os.path.basename(folder),
    )
    own = Rank(rank, size, folder)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, function(own, *arguments)))
        except Exception:  # whatever it is, the test reports it
            pipe.send((False, traceback.format_exc()))


class Ranks:
    """`size` processes that run functions of test modules, all at the same time."""

    def __init__(self, size):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="arfusion-test-")
        self._processes, self._pipes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, size, self._folder.name, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, function, *arguments):
        """Every rank's result of function(Rank, *arguments); an error of a rank, or silence, is an AssertionError."""
        for pipe in self._pipes:
            pipe.send((function, arguments))
        results, errors, end = [], [], time.monotonic() + LIMIT_S
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(max(0, end - time.monotonic())):
                self.close()
                raise AssertionError(f"rank {rank} did not answer within {LIMIT_S} s" + "".join(errors))
            try:
                fine, result = pipe.recv()
            except EOFError:
                fine, result = False, f"it died with exit code {self._processes[rank].exitcode}"
            results.append(result)
            if not fine:
                errors.append(f"\nrank {rank}: {result}")
        if errors:
            raise AssertionError("".join(errors))
        return results

    def close(self):
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(20)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()


class TeamTest(unittest.TestCase):
    """Tests that share `team`, SIZE ranks on which START(Rank) has run."""

    SIZE, START = 2, None

    @classmethod
    def setUpClass(cls):
        cls.team = Ranks(cls.SIZE)
        cls.addClassCleanup(cls.team.close)
        if cls.START:
            cls.team.run(cls.START)
