# SPDX-License-Identifier: Apache-2.0
"""PyTorch operators: torch.ops.arfusion.*

    import arfusion.ops
    arfusion.ops.register(group, communicator)        # a process group of torch.distributed, or any name

    y = torch.ops.arfusion.all_reduce(input, group)
    norm, y = torch.ops.arfusion.allreduce_add_rmsnorm(input, residual, weight, eps, group)

`group` is the process group's name (`group.group_name`), as in torch's functional collectives. All take and give
contiguous tensors of the communicator's device; `input` is [..., hidden], `residual` like it or None, `weight` [hidden]
in the input's type or float32; `weight_bias` is 1 for Gemma's form of RMSNorm. With s the sum over the ranks:

    all_reduce(input, group) -> s
    all_reduce_(input!, group) -> ()                                               s in input
    allreduce_add_rmsnorm(input, residual, weight, eps, group, weight_bias=0) -> (norm, y = s + residual)
    allreduce_add_rmsnorm_(input!, residual!, weight, eps, group, weight_bias=0) -> ()    norm in input, y in residual
    allreduce_add_rmsnorm_fp8(input, residual, weight, scale, eps, group, weight_bias=0) -> (e4m3(norm / scale), y)
    allreduce_add_rmsnorm_nvfp4(input, residual, weight, global_scale, eps, group, weight_bias=0, swizzled=True)
        -> (e2m1 codes, two to a byte, block scales in e4m3, y)     scales [..., hidden / 16], or 128x4 tiles
    epilogue(sum, residual, weight, eps, group, weight_bias=0) -> (norm, y)    what follows a sum, on this rank alone
    flashinfer_trtllm_fused_allreduce_norm(...)                                    as vLLM's graphs call it

They work eagerly, under torch.compile (fullgraph) and in CUDA graphs; they have no backward. What is wrong with an
argument is a ValueError that names it, before anything is enqueued. A communicator serves one thread at a time, and so
do these.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from . import ops_flashinfer
from ._abi import FP8, NVFP4
from .ops_call import check_scale, fill_rows, find, is_registered, launch, launch_flat, launch_quantized, register
from .ops_call import unregister

__all__ = ["register", "unregister", "is_registered"]


# ---------------------------------------------------------------- the operators


def all_reduce(input: Tensor, group: str) -> Tensor:
    output = torch.empty_like(input)
    launch_flat(find(group), input, output)
    return output


def all_reduce_(input: Tensor, group: str) -> None:
    launch_flat(find(group), input, input)


def allreduce_add_rmsnorm(
    input: Tensor, residual: Optional[Tensor], weight: Tensor, eps: float, group: str, weight_bias: float = 0.0
) -> Tuple[Tensor, Tensor]:
    own = find(group)
    fill_rows(own, input, residual, weight, eps, weight_bias)
    norm, y = torch.empty_like(input), torch.empty_like(input)
    launch(own, y, norm)
    return norm, y


def allreduce_add_rmsnorm_(
    input: Tensor, residual: Optional[Tensor], weight: Tensor, eps: float, group: str, weight_bias: float = 0.0
) -> None:
    own = find(group)
    fill_rows(own, input, residual, weight, eps, weight_bias)
    launch(own, residual, input)


def epilogue(
    sum: Tensor, residual: Optional[Tensor], weight: Tensor, eps: float, group: str, weight_bias: float = 0.0
) -> Tuple[Tensor, Tensor]:
    own = find(group)
    fill_rows(own, sum, residual, weight, eps, weight_bias)
    norm, y = torch.empty_like(sum), torch.empty_like(sum)
    launch(own, y, norm, is_summed=True)
    return norm, y


def allreduce_add_rmsnorm_fp8(
    input: Tensor, residual: Optional[Tensor], weight: Tensor, scale: Tensor, eps: float, group: str,
    weight_bias: float = 0.0,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    own = find(group)
    fill_rows(own, input, residual, weight, eps, weight_bias)
    check_scale("scale", scale, own)
    quant, y = _outputs_fp8(input, residual, weight, scale, eps, group)
    launch_quantized(own, FP8, scale, quant.data_ptr(), None, False, y, None)
    return quant, y


def allreduce_add_rmsnorm_nvfp4(
    input: Tensor, residual: Optional[Tensor], weight: Tensor, global_scale: Tensor, eps: float, group: str,
    weight_bias: float = 0.0, swizzled: bool = True,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    own = find(group)
    fill_rows(own, input, residual, weight, eps, weight_bias)
    check_scale("global_scale", global_scale, own)
    quant, scales, y = _outputs_nvfp4(input, residual, weight, global_scale, eps, group, weight_bias, swizzled)
    launch_quantized(own, NVFP4, global_scale, quant.data_ptr(), scales.data_ptr(), swizzled, y, None)
    return quant, scales, y


# ---------------------------------------------------------------- their outputs, as torch.compile sees them


def _output_all_reduce(input: Tensor, group: str) -> Tensor:
    return torch.empty_like(input)


def _outputs_rows(input: Tensor, residual: Optional[Tensor], weight: Tensor, eps: float, group: str,
                  weight_bias: float = 0.0) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(input), torch.empty_like(input)


def _outputs_fp8(input: Tensor, residual: Optional[Tensor], weight: Tensor, scale: Tensor, eps: float, group: str,
                 weight_bias: float = 0.0) -> Tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(input, dtype=torch.float8_e4m3fn), torch.empty_like(input)


def _outputs_nvfp4(
    input: Tensor, residual: Optional[Tensor], weight: Tensor, global_scale: Tensor, eps: float, group: str,
    weight_bias: float = 0.0, swizzled: bool = True,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    *leading, hidden = input.shape
    if hidden % 16:
        raise ValueError(f"input: its rows have {hidden} elements, nvfp4 needs a multiple of 16")
    scales = [*leading, hidden // 16]
    if swizzled:
        tokens = math.prod(leading)
        scales = [(tokens + 127) // 128 * 128, (hidden // 16 + 3) // 4 * 4]
    return (
        input.new_empty([*leading, hidden // 2], dtype=torch.uint8),
        input.new_empty(scales, dtype=torch.float8_e4m3fn),
        torch.empty_like(input),
    )


def _nothing(*unused: Any, **unused_too: Any) -> None:
    return None


# ---------------------------------------------------------------- registration

_ROWS = "Tensor? residual, Tensor weight, "
_REST = "float eps, str group, float weight_bias=0.0"
_OPERATORS = (
    ("all_reduce(Tensor input, str group) -> Tensor", all_reduce, _output_all_reduce),
    ("all_reduce_(Tensor(a!) input, str group) -> ()", all_reduce_, _nothing),
    (f"allreduce_add_rmsnorm(Tensor input, {_ROWS}{_REST}) -> (Tensor, Tensor)", allreduce_add_rmsnorm, _outputs_rows),
    (
        f"allreduce_add_rmsnorm_(Tensor(a!) input, Tensor(b!)? residual, Tensor weight, {_REST}) -> ()",
        allreduce_add_rmsnorm_,
        _nothing,
    ),
    (
        f"allreduce_add_rmsnorm_fp8(Tensor input, {_ROWS}Tensor scale, {_REST}) -> (Tensor, Tensor)",
        allreduce_add_rmsnorm_fp8,
        _outputs_fp8,
    ),
    (
        f"allreduce_add_rmsnorm_nvfp4(Tensor input, {_ROWS}Tensor global_scale, {_REST}, bool swizzled=True) -> "
        "(Tensor, Tensor, Tensor)",
        allreduce_add_rmsnorm_nvfp4,
        _outputs_nvfp4,
    ),
    (f"epilogue(Tensor sum, {_ROWS}{_REST}) -> (Tensor, Tensor)", epilogue, _outputs_rows),
    (ops_flashinfer.SCHEMA, ops_flashinfer.fused_allreduce_norm, _nothing),
)


def _on_one_device(function: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """`fake` for arguments on one device. PyTorch takes it for real ones too, if one of them has no data."""
    names = tuple(inspect.signature(function).parameters)

    def checked(*values: Any, **named: Any) -> Any:
        tensors = {name: t for name, t in (*zip(names, values), *named.items()) if isinstance(t, Tensor)}
        first = next(iter(tensors))
        for name, tensor in tensors.items():
            if tensor.device != tensors[first].device:
                raise ValueError(f"{name} is on {tensor.device}, {first} on {tensors[first].device}")
        return fake(*values, **named)

    return checked


_library = torch.library.Library("arfusion", "DEF")
for _schema, _function, _fake in _OPERATORS:
    _library.define(_schema)
    _operator = _schema.split("(")[0]
    for _key in ("CPU", "CUDA"):
        _library.impl(_operator, _function, _key)
    torch.library.register_fake(f"arfusion::{_operator}", _on_one_device(_function, _fake), lib=_library)
