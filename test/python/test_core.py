# SPDX-License-Identifier: Apache-2.0
"""The package's core: communicators of every kind, operations, and what wrong arguments are answered with."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import ranks
from ranks import KIND, Arrays, TeamTest

import arfusion
from arfusion import _abi, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS, HIDDEN, EPS = 5, 256, 1e-5
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def values(seed, *shape):
    """Whole numbers and quarters, whose sums every type holds exactly."""
    return np.random.default_rng(seed).integers(-16, 17, shape).astype(np.float32) / 4


def reference(size, tokens=TOKENS, hidden=HIDDEN, bias=0.0, residual=True):
    """residual_out and norm_out, for inputs values(rank), residual values(100), gamma values(200)."""
    y = sum(values(r, tokens, hidden) for r in range(size))
    y = y + values(100, tokens, hidden) if residual else y
    norm = y / np.sqrt((y * y).mean(1, keepdims=True) + EPS) * (bias + values(200, hidden))
    return y, norm


def close(ours, theirs, name):
    return np.allclose(ours, theirs, rtol=TOLERANCE[name], atol=TOLERANCE[name])


def rejected(expected, words, call):
    """Whether `call` raises `expected` with a text that has all the words."""
    try:
        call()
    except expected as error:
        missing = [word for word in words.split("|") if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError(f"no {expected.__name__}: {words}")


# ---------------------------------------------------------------- on every rank


def operation(own, comm, name="float32", gamma_name=None, bias=0.0):
    arrays = own.arrays
    x, residual = arrays.make(values(own.rank, TOKENS, HIDDEN), name), arrays.make(values(100, TOKENS, HIDDEN), name)
    gamma, norm = arrays.make(values(200, HIDDEN), gamma_name or name), arrays.empty((TOKENS, HIDDEN), name)
    route = comm.allreduce_rmsnorm(x, gamma, residual, residual_out=residual, norm_out=norm, eps=EPS, weight_bias=bias)
    assert route.algorithm >= arfusion.Algorithm.ONESHOT_LAMPORT, route
    y, expected = reference(comm.size, bias=bias)
    assert np.array_equal(arrays.floats(residual), y)
    assert close(arrays.floats(norm), expected, name), np.abs(arrays.floats(norm) - expected).max()
    assert np.array_equal(arrays.floats(x), values(own.rank, TOKENS, HIDDEN))


def make(own, kind):
    sizes = {"max_tokens": 64, "hidden": HIDDEN, "dtype": "float32"}
    if kind == "environment":
        return arfusion.Communicator.from_environment(**sizes)
    if kind == "group":
        return arfusion.Communicator.from_process_group(own.group(), **sizes)
    return arfusion.Communicator.from_backend(own.backend(), **sizes)


def made_every_way(own, kind):
    with make(own, kind) as comm:
        assert (comm.rank, comm.size) == (own.rank, own.size)
        assert comm.is_host == (KIND != "cuda") and comm.async_error() == ""
        operation(own, comm)
        assert comm.capacity()["maxRequestBytes"] == 64 * HIDDEN * 4
        assert comm.stats()["requests"] == 1 and sum(comm.stats()["byAlgorithm"][3:]) == 1
        handles = comm.workspace()
        assert handles.nranks == own.size and all(handles.address[: own.size])
    rejected(RuntimeError, "destroyed", lambda: comm.handle)
    comm.destroy()


def operations(own):
    comm = own.kept["comm"] = make(own, "backend")
    for name in TOLERANCE:
        for gamma_name in {name, "float32"}:
            for bias in (0.0, 1.0):
                operation(own, comm, name, gamma_name, bias)
    arrays = own.arrays
    x = arrays.make(values(own.rank, 1003))
    out = arrays.empty((1003,))
    assert comm.all_reduce(x, out) is out
    expected = sum(values(r, 1003) for r in range(own.size))
    assert np.array_equal(arrays.floats(out), expected)
    assert comm.all_reduce(x, algorithm="twoshot") is x and comm.route.algorithm == arfusion.Algorithm.TWOSHOT
    assert np.array_equal(arrays.floats(x), expected)
    # Rows that are apart, no residual, the norm into the input.
    wide = arrays.make(values(own.rank, TOKENS, 2 * HIDDEN))
    x = wide[:, :HIDDEN]
    total = sum(values(r, TOKENS, 2 * HIDDEN)[:, :HIDDEN] for r in range(own.size))
    comm.allreduce_rmsnorm(x, arrays.make(np.ones(HIDDEN, np.float32)), norm_out=x, eps=EPS)
    assert close(arrays.floats(x), total / np.sqrt((total * total).mean(1, keepdims=True) + EPS), "float32")
    assert np.array_equal(arrays.floats(wide)[:, HIDDEN:], values(own.rank, TOKENS, 2 * HIDDEN)[:, HIDDEN:])
    # The epilogue, alone, of a sum.
    sums, residual, norm = arrays.make(total), arrays.make(values(100, TOKENS, HIDDEN)), arrays.empty((TOKENS, HIDDEN))
    comm.epilogue(sums, arrays.make(values(200, HIDDEN)), residual, norm_out=norm, eps=EPS)
    fused = arrays.empty((TOKENS, HIDDEN))
    own_part = arrays.make(values(own.rank, TOKENS, 2 * HIDDEN)[:, :HIDDEN])
    comm.allreduce_rmsnorm(own_part, arrays.make(values(200, HIDDEN)), residual, norm_out=fused, eps=EPS)
    assert arrays.bytes(norm) == arrays.bytes(fused)
    # Nothing to do.
    empty = arrays.make(np.zeros((0, HIDDEN), np.float32))
    assert comm.allreduce_rmsnorm(empty, None, norm_out=empty).algorithm == arfusion.Algorithm.EMPTY
    comm.all_reduce(empty)


def e4m3(codes):
    """The values of float8_e4m3 codes."""
    codes = codes.astype(np.int32)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa / 512.0, (1 + mantissa / 8.0) * 2.0 ** (exponent - 7.0))
    return np.where(codes & 128, -magnitude, magnitude)


def quantized(own):
    """Codes times scales are norm_out, within what a code can hold."""
    comm, arrays = own.kept["comm"], own.arrays
    x, residual = (arrays.make(values(s, TOKENS, HIDDEN), "bfloat16") for s in (own.rank, 100))
    gamma = arrays.make(values(200, HIDDEN), "bfloat16")

    def run(kind, codes, scales, **more):
        norm = arrays.empty((TOKENS, HIDDEN), "bfloat16")
        comm.allreduce_rmsnorm(
            x, gamma, residual, norm_out=norm, eps=EPS, quantization=kind, quant_out=codes, scale_out=scales, **more
        )
        return arrays.floats(norm)

    codes = arrays.empty((TOKENS, HIDDEN), "uint8")
    norm = run("fp8", codes, None, scale=arrays.make(np.array([0.5], np.float32)))
    assert np.allclose(
        e4m3(np.frombuffer(arrays.bytes(codes), np.uint8)).reshape(norm.shape) * 0.5, norm, rtol=0.07, atol=0.001
    )
    scales = arrays.empty((TOKENS, 1))
    norm = run("fp8_token", codes, scales)
    decoded = e4m3(np.frombuffer(arrays.bytes(codes), np.uint8)).reshape(norm.shape)
    assert np.array_equal(arrays.floats(scales)[:, 0], np.abs(norm).max(1) / np.float32(448))
    assert np.allclose(decoded * arrays.floats(scales), norm, rtol=0.07, atol=0.001)
    scales = arrays.empty((arfusion.scale_out_bytes(arfusion.Quantization.FP8_GROUP, TOKENS, HIDDEN, 64),), "uint8")
    norm = run("fp8_group", codes, scales, group_size=64)
    exponents = np.frombuffer(arrays.bytes(scales), np.uint8).reshape(-1, 4)[:TOKENS]
    decoded = e4m3(np.frombuffer(arrays.bytes(codes), np.uint8)).reshape(TOKENS, 4, 64)
    assert np.allclose(
        (decoded * 2.0 ** (exponents[:, :, None] - 127.0)).reshape(norm.shape), norm, rtol=0.07, atol=0.01
    )
    for layout in ("linear", "swizzled_128x4"):
        size = arfusion.scale_out_bytes(
            arfusion.Quantization.NVFP4, TOKENS, HIDDEN, layout=arfusion.ScaleLayout[layout.upper()]
        )
        scales, codes = arrays.empty((size,), "uint8"), arrays.empty((TOKENS, HIDDEN // 2), "uint8")
        norm = run("nvfp4", codes, scales, scale=arrays.make(np.array([8], np.float32)), scale_layout=layout)
        packed = np.frombuffer(arrays.bytes(codes), np.uint8).reshape(TOKENS, -1)
        nibbles = np.stack([packed & 15, packed >> 4], 2).reshape(TOKENS, HIDDEN)
        decoded = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[nibbles & 7] * np.where(nibbles & 8, -1, 1)
        flat, blocks = e4m3(np.frombuffer(arrays.bytes(scales), np.uint8)), HIDDEN // 16
        t, b = np.meshgrid(np.arange(TOKENS), np.arange(blocks), indexing="ij")
        at = t * blocks + b if layout == "linear" else b // 4 * 512 + t % 32 * 16 + t // 32 * 4 + b % 4
        full = decoded.reshape(TOKENS, blocks, 16) * flat[at][:, :, None] / 8
        largest = np.abs(norm).reshape(TOKENS, blocks, 16).max(2, keepdims=True)
        assert (np.abs(full - norm.reshape(full.shape)) <= largest * 0.2 + 0.001).all()


def wrong_shapes(comm, arrays, x, gamma):
    """Calls, and what their errors say."""
    make, rows, out = arrays.make, comm.allreduce_rmsnorm, arrays.empty((TOKENS, HIDDEN))
    bad = [
        ("norm_out|shape", lambda: rows(x, gamma, norm_out=arrays.empty((TOKENS, HIDDEN - 4)))),
        ("norm_out|dtype", lambda: rows(x, gamma, norm_out=arrays.empty((TOKENS, HIDDEN), "float16"))),
        ("residual|shape", lambda: rows(x, gamma, arrays.empty((TOKENS + 1, HIDDEN)), norm_out=out)),
        ("residual_out|contiguous", lambda: rows(x[:, ::2], None, residual_out=arrays.empty((TOKENS, HIDDEN))[:, ::2])),
        ("input|contiguous", lambda: rows(x[:, ::2], None, residual_out=arrays.empty((TOKENS, HIDDEN // 2)))),
        ("input|dtype|float32", lambda: rows(arrays.empty((TOKENS, HIDDEN), "int32"), gamma, norm_out=out)),
        (
            "input|dtype|bfloat16",
            lambda: comm.all_reduce(arrays.empty((HIDDEN,), "bool" if arrays.torch else "complex64")),
        ),
        ("input|shape|[tokens, hidden]", lambda: rows(gamma, gamma, norm_out=out)),
        ("input|list|numpy", lambda: rows([1.0], gamma, norm_out=out)),
        ("gamma|shape", lambda: rows(x, make(np.zeros(HIDDEN + 1, np.float32)), norm_out=out)),
        ("gamma|shape|contiguous", lambda: rows(x, make(np.zeros(2 * HIDDEN, np.float32))[::2], norm_out=out)),
        ("gamma|dtype", lambda: rows(x, make(np.zeros(HIDDEN, np.float32), "float16"), norm_out=out)),
        ("gamma|NULL", lambda: rows(x, None, norm_out=out)),
        ("residualOut|normOut", lambda: rows(x, gamma)),
        ("overlaps", lambda: rows(x, gamma, x, residual_out=out, norm_out=out)),
        ("output|elements", lambda: comm.all_reduce(x, gamma)),
        ("output|dtype", lambda: comm.all_reduce(x, arrays.empty((TOKENS, HIDDEN), "float16"))),
        ("output is not contiguous", lambda: comm.all_reduce(x, arrays.empty((TOKENS, 2 * HIDDEN))[:, ::2])),
        ("algorithm|threeshot", lambda: comm.all_reduce(x, algorithm="threeshot")),
        ("hidden", lambda: rows(x[:, :7], None, residual_out=arrays.empty((TOKENS, 7)))),
    ]
    if arrays.torch:
        torch = arrays.torch
        bad.append(
            ("norm_out|device|meta", lambda: rows(x, gamma, norm_out=torch.empty((TOKENS, HIDDEN), device="meta")))
        )
    else:
        fixed = arrays.empty((TOKENS, HIDDEN))
        fixed.flags.writeable = False
        bad.append(("norm_out|read-only", lambda: rows(x, gamma, norm_out=fixed)))
    if KIND == "cuda":
        bad.append(
            ("norm_out|host memory|GPU", lambda: rows(x, gamma, norm_out=np.zeros((TOKENS, HIDDEN), np.float32)))
        )
    return bad


def wrong_quantizations(comm, arrays, x, gamma):
    rows, scale = comm.allreduce_rmsnorm, arrays.make(np.ones(1, np.float32))
    codes = arrays.empty((TOKENS, HIDDEN), "uint8")
    return [
        ("quantization|fp9|fp8_token", lambda: rows(x, gamma, quantization="fp9")),
        ("quant_out is None", lambda: rows(x, gamma, quantization="fp8", scale=scale)),
        ("quant_out|bytes|1280", lambda: rows(x, gamma, quantization="fp8", scale=scale, quant_out=codes[1:])),
        (
            "quant_out|contiguous",
            lambda: rows(
                x, gamma, quantization="fp8", scale=scale, quant_out=arrays.empty((TOKENS, 2 * HIDDEN), "uint8")[:, ::2]
            ),
        ),
        ("scale is None", lambda: rows(x, gamma, quantization="fp8", quant_out=codes)),
        ("scale|one float32", lambda: rows(x, gamma, quantization="fp8", quant_out=codes, scale=gamma)),
        ("scale_out is None", lambda: rows(x, gamma, quantization="fp8_token", quant_out=codes)),
        ("scale_out|bytes|20", lambda: rows(x, gamma, quantization="fp8_token", quant_out=codes, scale_out=scale)),
        (
            "group",
            lambda: rows(
                x,
                gamma,
                quantization="fp8_group",
                group_size=5,
                quant_out=codes,
                scale_out=arrays.empty((4096,), "uint8"),
            ),
        ),
        (
            "quantization|nvfp4|float32",
            lambda: rows(
                x, gamma, quantization="nvfp4", quant_out=codes, scale=scale, scale_out=arrays.empty((4096,), "uint8")
            ),
        ),
    ]


def wrong_numbers(comm, arrays, x, gamma):
    """What C's fields would cut off, or ctypes turn down without a name."""
    codes, out = arrays.empty((TOKENS, HIDDEN), "uint8"), arrays.empty((TOKENS, HIDDEN))

    def group(size):
        return lambda: comm.epilogue(
            x, gamma, quantization="fp8_group", group_size=size, quant_out=codes, scale_out=codes[:0]
        )

    def rows(**options):
        return lambda: comm.allreduce_rmsnorm(x, gamma, norm_out=out, **options)

    return [
        ("group_size is 4294967304", group(2**32 + 8)),
        ("group_size is 1099511627776", group(2**40)),
        ("group_size is -2147483649", group(-(2**31) - 1)),
        ("group_size is 16.0", group(16.0)),
        ("group_size is '16'", group("16")),
        ("flags is 4294967296", rows(flags=1 << 32)),
        ("flags is -1", rows(flags=-1)),
        ("flags is 'x'", rows(flags="x")),
        ("eps is '1e-6'", rows(eps="1e-6")),
        ("eps is None", rows(eps=None)),
        ("weight_bias is [1]", rows(weight_bias=[1])),
        ("eps is 1", rows(eps=10**400)),
        ("stream is 'x'", rows(stream="x")),
        ("stream is 18446744073709551616", lambda: comm.all_reduce(x, stream=2**64)),
    ]


def wrong_arguments(own):
    """Nothing is enqueued: the operation after it is right, and the counters say so."""
    comm, make = own.kept["comm"], own.arrays.make
    x, gamma = make(np.zeros((TOKENS, HIDDEN), np.float32)), make(np.zeros(HIDDEN, np.float32))
    before = comm.stats()
    for table in (wrong_shapes, wrong_quantizations, wrong_numbers):
        for words, call in table(comm, own.arrays, x, gamma):
            rejected(ValueError, words, call)
    after = comm.stats()
    assert [after[name] for name in ("launches", "bytes")] == [before[name] for name in ("launches", "bytes")]
    operation(own, comm)


def disagreements(own):
    """What one rank asks for differently fails alike on all, at once."""
    backend = own.backend()
    create = arfusion.Communicator.from_backend
    rejected(ValueError, "hidden is 512 on rank 1 and 256 on rank 0", lambda: create(backend, None, 8, 256 << own.rank))
    backend.Get_rank = lambda: 0
    rejected(ValueError, "rank|[0, 0]", lambda: create(backend))
    rejected(ValueError, "comm_backend|int|Get_rank", lambda: create(7))


def comm_fails(own, comm, x):
    """The running operation ends, on GPUs without an error of its own; the next one is an error."""
    try:
        comm.all_reduce(x)
        if KIND == "cuda":
            own.arrays.torch.cuda.synchronize()
        comm.all_reduce(x)
    except arfusion.Error as error:
        assert "commGetAsyncError" in str(error) or "abort" in str(error), error
    else:
        raise AssertionError("operations go on after an abort")


def aborted(own):
    comm = own.kept.pop("comm")
    x = own.arrays.make(np.zeros(64, np.float32))
    if own.rank == 0:
        threading.Timer(0.3, comm.abort).start()
        comm_fails(own, comm, x)
        assert "abort" in comm.async_error()
    comm.destroy()
    rejected(RuntimeError, "destroyed", lambda: comm.all_reduce(x))


class Communicators(TeamTest):
    def test_1_from_torchruns_environment(self):
        self.team.run(made_every_way, "environment")

    def test_1_from_a_backend(self):
        self.team.run(made_every_way, "backend")

    @unittest.skipIf(KIND == "numpy", "needs torch")
    def test_1_from_a_process_group(self):
        self.team.run(made_every_way, "group")

    def test_2_operations(self):
        self.team.run(operations)

    def test_3_quantized(self):
        self.team.run(quantized)

    def test_4_wrong_arguments(self):
        self.team.run(wrong_arguments)

    def test_5_disagreements(self):
        self.team.run(disagreements)

    def test_6_abort(self):
        self.team.run(aborted)


# ---------------------------------------------------------------- in this process


class Here(unittest.TestCase):
    @unittest.skipIf(KIND == "cuda", "threads of one process share torch's current device")
    def test_all_ranks_of_a_process(self):
        comms = arfusion.Communicator.all_ranks(3, max_tokens=8, hidden=64)
        sums = [Arrays(0).make(np.full(64, r + 1, np.float32)) for r in range(3)]
        threads = [threading.Thread(target=comms[r].all_reduce, args=(sums[r],)) for r in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for r in range(3):
            self.assertTrue((Arrays(0).floats(sums[r]) == 6).all())
            self.assertEqual((comms[r].rank, comms[r].size), (r, 3))
            comms[r].destroy()

    @unittest.skipIf(KIND == "cuda", "needs no GPU, and as many threads as ranks")
    def test_more_ranks_than_the_plugin_serves(self):
        comms = arfusion.Communicator.all_ranks(_abi.MAX_RANKS + 4)
        self.assertEqual([comm.rank for comm in comms], list(range(_abi.MAX_RANKS + 4)))
        self.assertEqual(comms[-1].workspace().nranks, 0)

    def test_wrong_ways_to_make_one(self):
        create = arfusion.Communicator
        rejected(ValueError, "unique_id|127|128", lambda: create.from_unique_id(b"x" * 127, 2, 0))
        rejected(ValueError, "rank", lambda: create.from_unique_id(arfusion.unique_id(), 2, 2))
        rejected(ValueError, "devices|1|2", lambda: create.all_ranks(2, [0]))
        rejected(ValueError, "nranks", lambda: create.all_ranks(0))
        rejected(ValueError, "dtype|complex|bfloat16", lambda: create.all_ranks(1, None, 8, 64, "complex"))
        rejected(ValueError, "dtype|[1]", lambda: create.all_ranks(1, None, 8, 64, [1]))
        rejected(ValueError, "hidden", lambda: create.all_ranks(1, None, 8, -64))
        for words, size, devices, tokens, hidden in (
            ("max_tokens is 18446744073709551620", 1, None, 2**64 + 4, 64),
            ("max_tokens is 9223372036854775808", 1, None, 2**63, 64),
            ("max_tokens is 1.5", 1, None, 1.5, 64),
            ("hidden is 18446744073709551680", 1, None, 8, 2**64 + 64),
            ("size is 4294967297", 2**32 + 1, None, 8, 64),
            ("nranks", 2**31 - 1, None, 8, 64),
            ("devices is 4294967296", 1, [2**32], 8, 64),
        ):
            rejected(ValueError, words, lambda: create.all_ranks(size, devices, tokens, hidden))
        identifier = arfusion.unique_id()
        rejected(ValueError, "rank is 4294967296", lambda: create.from_unique_id(identifier, 2, 2**32))
        rejected(ValueError, "device is 4294967296", lambda: create.from_unique_id(identifier, 1, 0, 2**32))
        rejected(ValueError, "nccl_comm is 'x'", lambda: create.from_nccl("x"))
        rejected(ValueError, "device is 4294967296", lambda: arfusion.device_properties(2**32))
        rejected((ValueError, RuntimeError), "nccl", lambda: create.from_nccl(0))
        with self.assertRaises(arfusion.InvalidArgumentError) as caught:
            arfusion.device_properties(99)
        self.assertEqual(caught.exception.result, arfusion.Result.INVALID_ARGUMENT)
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_what_a_later_library_says(self):
        """Algorithms and results that are not known here stay numbers, and their text is kept."""
        with arfusion.Communicator.all_ranks(1)[0] as comm:
            comm._route.algorithm = 15
            self.assertEqual(comm.route.algorithm, 15)
        failure = errors.error_of(99, "why")
        self.assertEqual((failure.result, str(failure), type(failure)), (99, "why", arfusion.Error))

    def test_turned_down_requests_are_completed(self):
        arrays, given = Arrays(0), np.arange(16, dtype=np.float32).reshape(2, 8)
        x, y, residual, gamma = (arrays.make(values) for values in (given, given * 0, given * 2, np.ones(8)))
        with arfusion.Communicator.all_ranks(1)[0] as comm:
            comm.all_reduce(x)
            self.assertEqual(comm.route.algorithm, arfusion.Algorithm.NONE)
            self.assertIn("rank", comm.route.reason_text)
            self.assertEqual(comm.workspace().nranks, 0)
            comm.all_reduce(x, y)
            for array in (x, y):
                self.assertTrue((arrays.floats(array) == given).all())
            comm.allreduce_rmsnorm(x, gamma, residual, residual_out=residual, norm_out=y)
            self.assertTrue((arrays.floats(residual) == given * 3).all())
            scale = np.sqrt(np.mean((given * 3) ** 2, axis=1, keepdims=True) + 1e-6)
            self.assertTrue(np.allclose(arrays.floats(y), given * 3 / scale, rtol=1e-4))

    def test_structs_and_values_are_the_headers(self):
        text = (ROOT / "include/arfusion_plugin.h").read_text() + (ROOT / "include/arfusion.h").read_text()
        sizes = dict(re.findall(r"#define ARFUSION_(\w+)_V1_SIZE (\d+)", text))
        structs = {
            "PROPERTIES": _abi.Properties,
            "CONFIG": _abi.Config,
            "REQUEST": _abi.Request,
            "ROUTE": _abi.RouteStruct,
            "CAPACITY": _abi.Capacity,
            "STATS": _abi.Stats,
            "WORKSPACE": _abi.Workspace,
            "WORKSPACE_METADATA": _abi.WorkspaceMetadata,
        }
        self.assertIn(f"#define ARFUSION_MAX_RANKS {_abi.MAX_RANKS} ", text)
        self.assertIn(f"#define ARFUSION_MAX_INIT_ALL {_abi.MAX_INIT_ALL} ", text)
        for name, struct in structs.items():
            since = 24 if name == "STATS" else 0  # bytes that were appended to version 1's
            self.assertEqual(ctypes.sizeof(struct), int(sizes[name]) + since, name)
        declared = {}
        for body in re.findall(r"typedef struct \{(.*?)\n\} (arfusion\w+);", text, re.S):
            fields = re.sub(r"/\*.*?\*/", "", body[0], flags=re.S)
            declared[body[1]] = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", fields)
        for struct, name in (
            (_abi.Request, "arfusionRequest_t"),
            (_abi.Properties, "arfusionProperties_t"),
            (_abi.Workspace, "arfusionWorkspace_t"),
            (_abi.Stats, "arfusionStats_t"),
            (_abi.WorkspaceMetadata, "arfusionWorkspaceMetadata_t"),
            (_abi.Config, "arfusionConfig_t"),
            (_abi.Capacity, "arfusionCapacity_t"),
            (_abi.RouteStruct, "arfusionRoute_t"),
        ):
            self.assertEqual([field[0] for field in struct._fields_], declared[name])
        constants = {name.lower(): int(value) for name, value in re.findall(r"\barfusion(\w+) = (\d+)", text)}
        for prefix, enum in (
            ("", _abi.DataType),
            ("pattern", _abi.Pattern),
            ("quant", _abi.Quantization),
            ("scale", _abi.ScaleLayout),
            ("algo", _abi.Algorithm),
        ):
            for member in enum:
                self.assertEqual(constants[prefix + member.name.lower().replace("_", "")], member.value, member)

    def test_new_requests_are_empty_and_their_own(self):
        first, second = _abi.new_request(), _abi.new_request()
        self.assertEqual(bytes(first), bytes(_abi.Request()))
        first.tokens = 7
        self.assertEqual(second.tokens, 0)

    def test_without_the_library(self):
        """ImportError with where it looked, from a copy that has no build beside it."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(pathlib.Path(ranks.PACKAGE) / "arfusion", pathlib.Path(folder) / "arfusion")
            done = subprocess.run(
                [sys.executable, "-c", "import arfusion"],
                cwd=folder,
                capture_output=True,
                text=True,
                env={k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PYTHONPATH")},
            )
        if not done.returncode:
            self.skipTest("libarfusion is installed on this machine")
        last = done.stderr.strip().splitlines()[-1]
        for word in (
            "ImportError: libarfusion.so.1 was not found",
            "arfusion/lib/libarfusion.so.1",
            ", libarfusion.so.1 (",
        ):
            self.assertIn(word, last)

    @unittest.skipIf(KIND != "numpy", "torch is loaded")
    def test_neither_torch_nor_numpy_is_needed(self):
        code = "import sys; sys.modules.update(torch=None, numpy=None); import arfusion; print(arfusion.is_host())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": ranks.PACKAGE},
        )
        self.assertEqual(done.stdout.strip(), "True", done.stderr)


if __name__ == "__main__":
    unittest.main()
