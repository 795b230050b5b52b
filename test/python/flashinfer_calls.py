# SPDX-License-Identifier: Apache-2.0
"""What the tests of FlashInfer's calls share: arguments, calls, and the bytes that the package's own calls give."""

import ctypes

import numpy as np

from ranks import KIND
from test_core import EPS, HIDDEN, TOKENS, values

import arfusion
import arfusion.flashinfer as comm

P, L = comm.AllReduceFusionPattern, comm.QuantizationSFLayout
MOST, NAMES = 64, ("float32", "float16", "bfloat16")
PATTERNS = [value for name, value in vars(P).items() if name.startswith("kAR") or name == "kAllReduce"]


def create(own, fp32=True, **more):
    if "group" not in more:
        more.setdefault("comm_backend", own.backend())
    return comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(own.rank, own.size, MOST, HIDDEN, fp32, **more)


def read_memory(address, count):
    """What is mapped there; a fault, or an error of the driver, if nothing is."""
    if KIND != "cuda":
        return ctypes.string_at(address, count)
    out = ctypes.create_string_buffer(count)
    assert ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(out, ctypes.c_uint64(address), ctypes.c_size_t(count)) == 0
    return out.raw


def check_handles(own, handles, tensor, metadata):
    assert len(handles) == 3 and all(len(addresses) == own.size for addresses in handles)
    assert len({a for addresses in handles for a in addresses}) == 3 * own.size
    for addresses in handles:
        for address in addresses:
            read_memory(address, 4096)
    for address in handles[2]:  # slots in which nothing has arrived
        assert read_memory(address, 8) == b"\0\0\0\x80" * 2
    entries = [int(entry) for entry in tensor]
    assert entries[:-1] == sum(handles, []) and str(tensor.dtype).endswith("int64")
    control = np.frombuffer(read_memory(entries[-1], 20), np.int32)
    assert list(control[[0, 1, 2, 4]]) == [0, 0, 0, 0]
    if metadata:
        assert control[3] == metadata["lamport_comm_size"]
    if own.arrays.torch:
        assert tensor.device.type == own.arrays.device.type


def arguments(own, name="float32", tokens=TOKENS, flat=True):
    """Every argument that some pattern uses, with outputs that are spoiled."""
    arrays, shape = own.arrays, (tokens * HIDDEN,) if flat else (tokens, HIDDEN)
    return {
        "input": arrays.make(values(own.rank, tokens, HIDDEN).reshape(shape), name),
        "residual_in": arrays.make(values(100, tokens, HIDDEN).reshape(shape), name),
        "rms_gamma": arrays.make(values(200, HIDDEN), name),
        "output": arrays.empty(shape, name),
        "residual_out": arrays.empty(shape, name),
        "norm_out": arrays.empty(shape, name),
        "quant_out": arrays.empty(shape, name),  # of any type with enough bytes
        "scale_out": arrays.empty((128 * HIDDEN // 16,), name),
        "scale_factor": arrays.make(np.array([0.25], np.float32)),
    }


def call(own, tensor, pattern, given=None, **more):
    given = dict(given or arguments(own))
    tokens = more.pop("tokens", TOKENS)
    positional = [given.pop("input"), own.size, own.rank, tokens, HIDDEN, tensor]
    keywords = {
        "launch_with_pdl": False,
        "trigger_completion_at_end": True,
        "fp32_acc": False,
        "pattern_code": pattern,
        "use_oneshot": None,
        "allreduce_out": given.pop("output"),
        "rms_eps": EPS,
        "layout_code": None,
        **given,
    }
    if pattern in (8, 9):
        keywords["block_quant_group_size"] = 32
    keywords.update(more)
    assert comm.trtllm_allreduce_fusion(*positional, **keywords) is None


def expected_bytes(own, pattern, layout, name, bias):
    """What the core's own call gives for this pattern: {output: bytes}."""
    kind = comm.constants.PATTERNS[pattern]
    core, arrays, given = own.kept["core"], own.arrays, arguments(own, name, flat=False)
    if not kind.rms:
        core.all_reduce(given["input"], given["output"])
        return {"output": arrays.bytes(given["output"])}
    swizzled = layout in (None, L.SWIZZLED_128x4)
    group = 32 if kind.quant == arfusion.Quantization.FP8_GROUP else 0
    sizes = {
        "quant_out": arfusion.quant_out_bytes(kind.quant, TOKENS, HIDDEN),
        "scale_out": arfusion.scale_out_bytes(kind.quant, TOKENS, HIDDEN, group, int(swizzled)),
    }
    codes, scales = (arrays.empty((max(size, 1),), "uint8") for size in sizes.values())
    core.allreduce_rmsnorm(
        given["input"],
        given["rms_gamma"],
        given["residual_in"],
        residual_out=given["residual_out"],
        norm_out=given["norm_out"],
        eps=EPS,
        weight_bias=bias,
        quantization=kind.quant,
        quant_out=codes,
        scale_out=scales if sizes["scale_out"] else None,
        scale=given["scale_factor"],
        group_size=group,
        scale_layout=int(swizzled and kind.quant == arfusion.Quantization.NVFP4),
    )
    out = {"residual_out": arrays.bytes(given["residual_out"])}
    if kind.norm_out:
        out["norm_out"] = arrays.bytes(given["norm_out"])
    if kind.quant:
        out["quant_out"] = arrays.bytes(codes)[: sizes["quant_out"]]
    if sizes["scale_out"] and not (kind.quant == arfusion.Quantization.NVFP4 and layout == L.SWIZZLED_8x4):
        out["scale_out"] = arrays.bytes(scales)[: sizes["scale_out"]]
    return out


def check_outputs(own, given, expected, what):
    """The expected bytes, and behind them, and where nothing is expected, what was there."""
    for name in ("output", "residual_out", "norm_out", "quant_out", "scale_out"):
        found, wanted = own.arrays.bytes(given[name]), expected.get(name, b"")
        assert found[: len(wanted)] == wanted, (what, name)
        assert set(found[len(wanted) :]) <= {0x5A}, (what, name, "written past its end")


def served(pattern, name):
    return not (name == "float32" and comm.constants.PATTERNS[pattern].quant == arfusion.Quantization.NVFP4)
