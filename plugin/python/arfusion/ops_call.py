# SPDX-License-Identifier: Apache-2.0
"""What is under the PyTorch operators: which communicator a group's calls go to, what is checked, and the call itself.

Every step of a model comes through here some hundred times, so a call looks up little: a communicator keeps one
request, of which each call sets what may differ from the last one's, and what is wrong with a tensor is found out only
once it is known that something is.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _abi, arrays
from ._abi import FP8
from ._library import check, library
from .communicator import Communicator

_TYPES = {getattr(torch, t.name.lower()): int(t) for t in _abi.DataType if hasattr(torch, t.name.lower())}
_FLOATS = {dtype: _TYPES[dtype] for dtype in (torch.bfloat16, torch.float16, torch.float32)}
_FLOAT32 = torch.float32
enqueue, epilogue = library.arfusionAllReduce, library.arfusionEpilogue


class Group:
    """A communicator as the operators use it. Its requests are filled in again by every call: one thread at a time."""

    __slots__ = ("communicator", "device", "flat", "flat_pointer", "form", "rows", "rows_pointer", "weight_type")

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        self.device = communicator.device  # a CUDA ordinal; -1: the host, as Tensor.get_device() has it
        # Safe behind and before any kernel: ours waits for its predecessor, and triggers at its end.
        flags = int(_abi.Flag.DEPENDENT_LAUNCH)
        self.flat = _abi.Request(pattern=_abi.Pattern.ALL_REDUCE, flags=flags)
        self.rows = _abi.Request(pattern=_abi.Pattern.RESIDUAL_RMSNORM, flags=flags)
        # The input's type and shape, and the weight's type, that `rows` has now: from one layer to the next they stay
        # the same, and need not be set again.
        self.form: Optional[Tuple[torch.dtype, torch.Size]] = None
        self.weight_type: Optional[torch.dtype] = None
        self.flat_pointer, self.rows_pointer = ctypes.addressof(self.flat), ctypes.addressof(self.rows)


_groups: Dict[str, Group] = {}


def _name(group: Any) -> str:
    name = group if isinstance(group, str) else getattr(group, "group_name", None)
    if not isinstance(name, str):
        raise TypeError(f"group is a {type(group).__name__}: a process group or a name is needed")
    return name


def register(group: Any, communicator: Communicator) -> None:
    """The operators' calls for `group` (a process group of the same ranks, or any name) go to `communicator` from now
    on. It stays the caller's, and is kept alive until unregister."""
    name = _name(group)
    if name is not group and (group.rank(), group.size()) != (communicator.rank, communicator.size):
        raise ValueError(
            f"group: this is rank {group.rank()} of {group.size()}, in the communicator {communicator.rank} of "
            f"{communicator.size}"
        )
    _groups[name] = Group(communicator)


def unregister(group: Any) -> None:
    """Undoes register."""
    find(_name(group))
    del _groups[_name(group)]


def is_registered(group: Any) -> bool:
    return _name(group) in _groups


def find(name: str) -> Group:
    group = _groups.get(name)
    if group is None:
        known = ", ".join(map(repr, _groups)) or "none"
        raise ValueError(f"group: no communicator is registered for {name!r} (registered: {known})")
    return group


def find_of_size(size: int) -> Group:
    """The one communicator of so many ranks."""
    found = [group for group in _groups.values() if group.communicator.size == size]
    if len(found) != 1:
        raise ValueError(f"world_size: {len(found)} communicators of {size} ranks are registered, 1 is needed")
    return found[0]


# ---------------------------------------------------------------- what is wrong, once it is known that something is


def _place(device: int) -> str:
    return "the host" if device < 0 else f"cuda:{device}"


def _bad(name: str, tensor: Tensor, group: Group, dtypes: Any, shape: Any) -> ValueError:
    """Why a tensor is not what it should be."""
    if tensor.get_device() != group.device or tensor.device.type not in ("cuda", "cpu"):
        return ValueError(f"{name} is on {tensor.device}, the communicator on {_place(group.device)}")
    if tensor.dtype not in dtypes:
        return ValueError(f"{name} has dtype {tensor.dtype}, {' or '.join(map(str, dtypes))} is needed")
    if shape is not None and tensor.shape != shape:
        return ValueError(f"{name} has shape {list(tensor.shape)}, {list(shape)} is needed")
    if not tensor.is_contiguous():
        return ValueError(f"{name} is not contiguous (shape {list(tensor.shape)}, strides {list(tensor.stride())})")
    return ValueError(f"{name} has shape {list(tensor.shape)}, [..., hidden] is needed")


# ---------------------------------------------------------------- the calls


def check_like(name: str, tensor: Tensor, dtype: torch.dtype, shape: Sequence[int], group: Group) -> None:
    if (
        tensor.dtype is not dtype
        or tensor.shape != shape
        or not tensor.is_contiguous()
        or tensor.get_device() != group.device
    ):
        raise _bad(name, tensor, group, (dtype,), shape)


def launch_flat(group: Group, input: Tensor, output: Tensor) -> None:
    """The sum of `input` into `output`, which is like it, or it."""
    dtype = _TYPES.get(input.dtype)
    if dtype is None or not input.is_contiguous() or input.get_device() != group.device:
        raise _bad("input", input, group, _TYPES, None)
    request, count = group.flat, input.numel()
    request.dataType = dtype
    request.tokens = 1 if count else 0
    request.hidden = count or 1
    request.input = input.data_ptr()
    request.allreduceOut = output.data_ptr()
    result = enqueue(group.communicator.handle, group.flat_pointer, arrays.current_stream(group.device), None)
    if result:
        check(result)


def fill_rows(
    group: Group, input: Tensor, residual: Optional[Tensor], weight: Tensor, eps: float, weight_bias: float,
    names: Sequence[str] = ("input", "residual", "weight"),
) -> None:  # fmt: skip
    """Checks the inputs, and fills in all of the group's request but the outputs and what belongs to a quantization."""
    device, type_, shape = group.device, input.dtype, input.shape
    form = (type_, shape)
    is_new = form != group.form
    if is_new and (type_ not in _FLOATS or not shape) or not input.is_contiguous() or input.get_device() != device:
        raise _bad(names[0], input, group, _FLOATS, None)
    if residual is not None:
        check_like(names[1], residual, type_, shape, group)
    hidden, weight_type = shape[-1], weight.dtype
    if (
        (weight_type is not type_ and weight_type is not _FLOAT32)
        or weight.numel() != hidden
        or weight.dim() != 1
        or not weight.is_contiguous()
        or weight.get_device() != device
    ):
        raise _bad(names[2], weight, group, (type_, _FLOAT32), (hidden,))
    request = group.rows
    if is_new:
        group.form = None  # an exception in between leaves nothing half set
        request.dataType = _FLOATS[type_]
        request.hidden = hidden
        request.tokens = input.numel() // hidden if hidden else 0
        group.form = form
    if weight_type is not group.weight_type:
        group.weight_type = None
        request.gammaDataType = _FLOATS[weight_type]
        group.weight_type = weight_type
    request.eps = eps
    request.weightBias = weight_bias
    request.input = input.data_ptr()
    request.residualIn = None if residual is None else residual.data_ptr()
    request.gamma = weight.data_ptr()


def check_scale(name: str, scale: Tensor, group: Group) -> None:
    if scale.dtype is not _FLOAT32 or scale.numel() != 1 or scale.get_device() != group.device:
        raise _bad(name, scale, group, (_FLOAT32,), (1,))


def launch(group: Group, residual_out: Optional[Tensor], norm_out: Optional[Tensor], is_summed: bool = False) -> None:
    """What fill_rows has filled in, into these outputs; without the sum where the input is one already."""
    request, handle, stream = group.rows, group.communicator.handle, arrays.current_stream(group.device)
    request.residualOut = None if residual_out is None else residual_out.data_ptr()
    request.normOut = None if norm_out is None else norm_out.data_ptr()
    if is_summed:
        result = epilogue(handle, group.rows_pointer, stream)
    else:
        result = enqueue(handle, group.rows_pointer, stream, None)
    if result:
        check(result)


def launch_quantized(
    group: Group, kind: int, scale: Tensor, quant_out: int, scale_out: Optional[int], swizzled: bool,
    residual_out: Tensor, norm_out: Optional[Tensor],
) -> None:  # fmt: skip
    """The same with a quantization, which stays in the request for this call alone. Its outputs are pointers."""
    request = group.rows
    request.quantization = kind
    request.scaleLayout = int(swizzled)
    if kind == FP8:
        request.fp8Scale = scale.data_ptr()
    else:
        request.nvfp4GlobalScale = scale.data_ptr()
    request.quantOut = quant_out
    request.scaleOut = scale_out
    try:
        launch(group, residual_out, norm_out)
    finally:
        request.quantization = request.scaleLayout = 0
        request.fp8Scale = request.nvfp4GlobalScale = request.quantOut = request.scaleOut = None
