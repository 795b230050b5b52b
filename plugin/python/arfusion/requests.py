# SPDX-License-Identifier: Apache-2.0
"""Requests from arrays: every array is checked against the others before the library sees a pointer.

`device` is the communicator's: a CUDA ordinal, or arrays.HOST.
"""

from typing import Any, Tuple, Union

from . import _abi, _numbers, arrays
from ._abi import FP8, FP8_GROUP, NVFP4, Algorithm, DataType, Pattern, Quantization, ScaleLayout

_SUPPORTED = "bfloat16, float16, float32"
_FLOATS = {int(dtype) for dtype in (DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT32)}
_FLOAT32, _RMSNORM = int(DataType.FLOAT32), int(Pattern.RESIDUAL_RMSNORM)
_AUTO, _NONE, _LINEAR = Algorithm.AUTO, Quantization.NONE, ScaleLayout.LINEAR


def _choice(kind: Any, value: Any, name: str) -> int:
    """The value of an enum, or of the name of one."""
    if type(value) is kind:
        return value
    try:
        return int(kind[value.upper()] if isinstance(value, str) else kind(value))
    except (KeyError, ValueError):
        raise ValueError(f"{name} is {value!r}: one of {', '.join(k.name.lower() for k in kind)}") from None


def _on(array: Any, name: str, device: int, writable: bool = False) -> arrays.View:
    """The view of an array that is where the communicator is."""
    view = arrays.view(array, name, writable)
    if view.device != device:
        raise arrays.elsewhere(view, name, device, "communicator")
    return view


def _rows(array: Any, name: str, like: arrays.View, type_: Any, device: int, writable: bool = False) -> Tuple[int, int]:
    """Pointer and row stride of an array of the input's type and shape; `type_` is torch's or numpy's for it."""
    pointer = arrays.dense_tensor(array, type_, like.shape, device)
    if pointer:
        return pointer, 0
    view = _on(array, name, device, writable)
    if view.dtype != like.dtype:
        raise ValueError(f"{name}: its dtype {array.dtype} is not the input's")
    if view.shape != like.shape:
        raise ValueError(f"{name}: its shape is {list(view.shape)}, the input's {list(like.shape)}")
    return view.pointer, _stride(view, name)


def _stride(view: arrays.View, name: str) -> int:
    """From one row to the next; 0: as many elements as a row has."""
    if view.strides is None:
        return 0
    tokens, hidden = view.shape
    if hidden > 1 and view.strides[1] != 1 or tokens > 1 and view.strides[0] < hidden:
        raise ValueError(f"{name}: its rows are not contiguous (strides {list(view.strides)})")
    return view.strides[0] if tokens > 1 else 0


def dense_bytes(array: Any, name: str, needed: int, device: int) -> int:
    """The pointer of an output of bytes: contiguous, of any type, with at least `needed` bytes."""
    view = _on(array, name, device, writable=True)
    if view.strides is not None:
        raise ValueError(f"{name} is not contiguous")
    if view.count * view.itemsize < needed:
        raise ValueError(f"{name} has {view.count * view.itemsize} bytes, {needed} are needed")
    return view.pointer


def _scale(array: Any, name: str, device: int) -> int:
    view = _on(array, name, device)
    if view.dtype != _FLOAT32 or view.count != 1:
        raise ValueError(f"{name}: an array of one float32 is needed")
    return view.pointer


def _flat_output(output: Any, source: arrays.View, device: int) -> int:
    """The pointer of a flat sum's output. What is wrong with the shape of the input is found here too."""
    target = _on(output, "output", device, writable=True)
    if target.dtype != source.dtype:
        raise ValueError("output: its dtype is not the input's")
    if target.count != source.count:
        raise ValueError(f"output has {target.count} elements, the input {source.count}")
    for view, name in ((source, "input"), (target, "output")):
        if view.strides is not None:
            raise ValueError(f"{name} is not contiguous")
    return target.pointer


def all_reduce(device: int, input: Any, output: Any, algorithm: Union[str, int] = _AUTO) -> _abi.Request:
    """A flat sum: `output` (may be the input) has the input's type, and as many elements. Both are contiguous."""
    source = _on(input, "input", device)
    if source.dtype is None:
        raise ValueError(f"input: its dtype {input.dtype} is none of {_SUPPORTED}")
    target = arrays.dense_tensor(output, input.dtype, source.shape, device) if source.strides is None else 0
    if not target:
        target = _flat_output(output, source, device)
    count, request = source.count, _abi.new_request()
    request.dataType = source.dtype
    if algorithm is not _AUTO:
        request.algorithmHint = _choice(Algorithm, algorithm, "algorithm")
    request.tokens = 1 if count else 0
    request.hidden = count or 1
    request.input = source.pointer
    request.allreduceOut = target
    return request


def _input_rows(array: Any, device: int) -> arrays.View:
    source = _on(array, "input", device)
    if source.dtype not in _FLOATS:
        raise ValueError(f"input: its dtype {array.dtype} is none of {_SUPPORTED}")
    if len(source.shape) != 2:
        raise ValueError(f"input: its shape is {list(source.shape)}, [tokens, hidden] is needed")
    return source


def _gamma(array: Any, like: arrays.View, device: int) -> Tuple[int, int]:
    """gamma and its type: the input's, or float32."""
    hidden, type_ = like.shape[1], getattr(array, "dtype", None)
    pointer = arrays.dense_tensor(array, type_, (hidden,), device)
    if pointer:
        dtype = arrays.known_type(type_)
        if dtype == like.dtype or dtype == _FLOAT32:
            return pointer, dtype
    view = _on(array, "gamma", device)
    if view.dtype not in (like.dtype, _FLOAT32):
        raise ValueError(f"gamma: its dtype {array.dtype} is neither the input's nor float32")
    if view.shape != (hidden,) or view.strides is not None:
        raise ValueError(f"gamma: its shape is {list(view.shape)}, a contiguous [{hidden}] is needed")
    return view.pointer, view.dtype


def _quantize(
    request: _abi.Request,
    device: int,
    source: arrays.View,
    quant: int,
    sizes: Tuple[int, int, int, int],
    quant_out: Any,
    scale_out: Any,
    scale: Any,
) -> None:
    """The request's fields of a quantization; sizes: tokens, hidden, group size, scale layout."""
    if quant_out is None:
        raise ValueError("quant_out is None: a quantization needs it")
    if quant == NVFP4 and source.dtype == _FLOAT32:
        raise ValueError("quantization is nvfp4, which is not made from an input of float32")
    request.quantization = quant
    request.quantOut = dense_bytes(quant_out, "quant_out", _abi.quant_out_bytes(quant, *sizes[:2]), device)
    if quant != FP8:
        if scale_out is None:
            raise ValueError("scale_out is None: this quantization needs it")
        request.scaleOut = dense_bytes(scale_out, "scale_out", _abi.scale_out_bytes(quant, *sizes), device)
    if quant in (FP8, NVFP4):
        if scale is None:
            raise ValueError("scale is None: this quantization needs it")
        field = "fp8Scale" if quant == FP8 else "nvfp4GlobalScale"
        setattr(request, field, _scale(scale, "scale", device))
    if quant == FP8_GROUP:
        request.groupSize = sizes[2]


def rmsnorm(
    device: int,
    input: Any,
    gamma: Any,
    residual: Any = None,
    *,
    residual_out: Any = None,
    norm_out: Any = None,
    eps: float = 1e-6,
    weight_bias: float = 0.0,
    quantization: Union[str, int] = _NONE,
    quant_out: Any = None,
    scale_out: Any = None,
    scale: Any = None,
    group_size: int = 0,
    scale_layout: Union[str, int] = _LINEAR,
    algorithm: Union[str, int] = _AUTO,
    flags: int = 0,
) -> _abi.Request:
    """Sum, residual, RMSNorm, quantization. Arrays of [tokens, hidden] have the input's type and contiguous rows;
    `gamma` is of that type or float32; quantized outputs are contiguous and of any type with enough bytes; `scale` is
    an array of one float32 (which divides with fp8, and multiplies with nvfp4)."""
    source, request = _input_rows(input, device), _abi.new_request()
    type_, (tokens, hidden) = input.dtype, source.shape
    # The defaults, which nearly every call has, are known to be right.
    quant = 0 if quantization is _NONE else _choice(Quantization, quantization, "quantization")
    layout = 0 if scale_layout is _LINEAR else _choice(ScaleLayout, scale_layout, "scale_layout")
    request.pattern = _RMSNORM
    request.scaleLayout = layout
    request.dataType = request.gammaDataType = source.dtype
    request.tokens = tokens
    request.hidden = hidden
    if gamma is not None:
        request.gamma, request.gammaDataType = _gamma(gamma, source, device)
    if residual is not None:
        request.residualIn, request.residualInStride = _rows(residual, "residual", source, type_, device)
    if residual_out is not None:
        rows = _rows(residual_out, "residual_out", source, type_, device, True)
        request.residualOut, request.residualOutStride = rows
    if norm_out is not None:
        request.normOut, request.normOutStride = _rows(norm_out, "norm_out", source, type_, device, True)
    if quant:
        group_size = _numbers.signed(group_size, "group_size")
        sizes = (tokens, hidden, group_size, layout)
        _quantize(request, device, source, quant, sizes, quant_out, scale_out, scale)
    if algorithm is not _AUTO:
        request.algorithmHint = _choice(Algorithm, algorithm, "algorithm")
    if flags:
        request.flags = _numbers.unsigned(flags, "flags")
    request.input = source.pointer
    request.inputStride = _stride(source, "input")
    try:
        request.eps = eps
        request.weightBias = weight_bias
    except (TypeError, OverflowError):
        request.eps, request.weightBias = _numbers.real(eps, "eps"), _numbers.real(weight_bias, "weight_bias")
    return request
