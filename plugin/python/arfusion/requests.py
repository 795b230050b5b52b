# SPDX-License-Identifier: Apache-2.0
"""Requests from arrays: every array is checked against the others before the library sees a pointer.

`device` is the communicator's: a CUDA ordinal, or arrays.HOST.
"""

from typing import Any, Dict, Tuple, Union

from . import _abi, arrays
from ._abi import DataType, Pattern, Quantization, ScaleLayout

_SUPPORTED = "bfloat16, float16, float32"
_FLOATS = (DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT32)


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


def _rows(array: Any, name: str, like: arrays.View, device: int, writable: bool) -> arrays.View:
    """An array of the input's type and shape."""
    view = _on(array, name, device, writable)
    if view.dtype != like.dtype:
        raise ValueError(f"{name}: its dtype {array.dtype} is not the input's")
    if view.shape != like.shape:
        raise ValueError(f"{name}: its shape is {list(view.shape)}, the input's {list(like.shape)}")
    return view


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
    if view.dtype != DataType.FLOAT32 or view.count != 1:
        raise ValueError(f"{name}: an array of one float32 is needed")
    return view.pointer


def _input(array: Any, device: int) -> arrays.View:
    view = _on(array, "input", device)
    if view.dtype is None:
        raise ValueError(f"input: its dtype {array.dtype} is none of {_SUPPORTED}")
    return view


def all_reduce(device: int, input: Any, output: Any, algorithm: Union[str, int] = _abi.Algorithm.AUTO) -> _abi.Request:
    """A flat sum: `output` (may be the input) has the input's type, and as many elements. Both are contiguous."""
    source = _input(input, device)
    target = _on(output, "output", device, writable=True)
    if target.dtype != source.dtype:
        raise ValueError("output: its dtype is not the input's")
    if target.count != source.count:
        raise ValueError(f"output has {target.count} elements, the input {source.count}")
    for view, name in ((source, "input"), (target, "output")):
        if view.strides is not None:
            raise ValueError(f"{name} is not contiguous")
    return _abi.Request(
        pattern=Pattern.ALL_REDUCE,
        dataType=source.dtype,
        algorithmHint=_choice(_abi.Algorithm, algorithm, "algorithm"),
        tokens=1 if source.count else 0,
        hidden=source.count or 1,
        input=source.pointer,
        allreduceOut=target.pointer,
    )


def _input_rows(array: Any, device: int) -> arrays.View:
    source = _input(array, device)
    if source.dtype not in _FLOATS:
        raise ValueError(f"input: its dtype {array.dtype} is none of {_SUPPORTED}")
    if len(source.shape) != 2:
        raise ValueError(f"input: its shape is {list(source.shape)}, [tokens, hidden] is needed")
    return source


def _gamma(array: Any, like: arrays.View, device: int) -> Tuple[int, int]:
    """gamma and its type: the input's, or float32."""
    view, hidden = _on(array, "gamma", device), like.shape[1]
    if view.dtype not in (like.dtype, DataType.FLOAT32):
        raise ValueError(f"gamma: its dtype {array.dtype} is neither the input's nor float32")
    if view.shape != (hidden,) or view.strides is not None:
        raise ValueError(f"gamma: its shape is {list(view.shape)}, a contiguous [{hidden}] is needed")
    return view.pointer, view.dtype


def _quantized(
    device: int,
    source: arrays.View,
    quant: int,
    sizes: Tuple[int, int, int, int],
    quant_out: Any,
    scale_out: Any,
    scale: Any,
) -> Dict[str, int]:
    """The request's fields of a quantization; sizes: tokens, hidden, group size, scale layout."""
    if quant_out is None:
        raise ValueError("quant_out is None: a quantization needs it")
    if quant == Quantization.NVFP4 and source.dtype == DataType.FLOAT32:
        raise ValueError("quantization is nvfp4, which is not made from an input of float32")
    fields = {"quantOut": dense_bytes(quant_out, "quant_out", _abi.quant_out_bytes(quant, *sizes[:2]), device)}
    if quant != Quantization.FP8:
        if scale_out is None:
            raise ValueError("scale_out is None: this quantization needs it")
        fields["scaleOut"] = dense_bytes(scale_out, "scale_out", _abi.scale_out_bytes(quant, *sizes), device)
    if quant in (Quantization.FP8, Quantization.NVFP4):
        if scale is None:
            raise ValueError("scale is None: this quantization needs it")
        fields["fp8Scale" if quant == Quantization.FP8 else "nvfp4GlobalScale"] = _scale(scale, "scale", device)
    return fields


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
    quantization: Union[str, int] = Quantization.NONE,
    quant_out: Any = None,
    scale_out: Any = None,
    scale: Any = None,
    group_size: int = 0,
    scale_layout: Union[str, int] = ScaleLayout.LINEAR,
    algorithm: Union[str, int] = _abi.Algorithm.AUTO,
    flags: int = 0,
) -> _abi.Request:
    """Sum, residual, RMSNorm, quantization. Arrays of [tokens, hidden] have the input's type and contiguous rows;
    `gamma` is of that type or float32; quantized outputs are contiguous and of any type with enough bytes; `scale` is
    an array of one float32 (which divides with fp8, and multiplies with nvfp4)."""
    source = _input_rows(input, device)
    tokens, hidden = source.shape
    quant = _choice(Quantization, quantization, "quantization")
    layout = _choice(ScaleLayout, scale_layout, "scale_layout")
    fields = {"gammaDataType": source.dtype}
    if gamma is not None:
        fields["gamma"], fields["gammaDataType"] = _gamma(gamma, source, device)
    for name, field, stride, array, writable in (
        ("residual", "residualIn", "residualInStride", residual, False),
        ("residual_out", "residualOut", "residualOutStride", residual_out, True),
        ("norm_out", "normOut", "normOutStride", norm_out, True),
    ):
        if array is not None:
            rows = _rows(array, name, source, device, writable)
            fields[field] = rows.pointer
            fields[stride] = _stride(rows, name)
    if quant != Quantization.NONE:
        sizes = (tokens, hidden, group_size, layout)
        fields.update(_quantized(device, source, quant, sizes, quant_out, scale_out, scale))
    return _abi.Request(
        pattern=Pattern.RESIDUAL_RMSNORM,
        dataType=source.dtype,
        quantization=quant,
        scaleLayout=layout,
        groupSize=group_size if quant == Quantization.FP8_GROUP else 0,
        algorithmHint=_choice(_abi.Algorithm, algorithm, "algorithm"),
        tokens=tokens,
        hidden=hidden,
        flags=int(flags),
        eps=eps,
        weightBias=weight_bias,
        input=source.pointer,
        inputStride=_stride(source, "input"),
        **fields,
    )
