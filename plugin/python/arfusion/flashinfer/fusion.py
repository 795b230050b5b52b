# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's fused calls. Arguments that a pattern does not use are not looked at; sums are always in fp32."""

import sys
from typing import Any, NoReturn, Optional, Tuple

from .. import _abi, arrays
from .._abi import FP8, FP8_GROUP, FP8_TOKEN, Algorithm, DataType, Flag, ScaleLayout
from ..communicator import Communicator
from .constants import Pattern, QuantizationSFLayout, pattern_of
from .workspace import TRTLLMAllReduceFusionWorkspace, check_trtllm_allreduce_fusion_workspace_metadata, comm_of_tensor

_FLOATS = {int(dtype) for dtype in (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32)}
_FLOAT32 = int(DataType.FLOAT32)
_ONESHOT, _TWOSHOT = int(Algorithm.ONESHOT_LAMPORT), int(Algorithm.TWOSHOT)
_DEPENDENT_LAUNCH, _EARLY_TRIGGER = int(Flag.DEPENDENT_LAUNCH), int(Flag.EARLY_TRIGGER)


# ---------------------------------------------------------------- arguments


def _explain(array: Any, name: str, device: int, dtype: Any, needed: int, writable: bool) -> NoReturn:
    """What is wrong with an argument: `needed` elements of this type, or bytes where dtype is None."""
    if array is None:
        raise ValueError(f"{name} is None: this pattern needs it")
    view = arrays.view(array, name, writable)
    if view.device != device:
        raise arrays.elsewhere(view, name, device, "workspace")
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"{name}: its dtype is {array.dtype}, the input's {dtype}")
    if view.strides is not None:
        raise ValueError(f"{name} must be contiguous")
    has, unit = (view.count * view.itemsize, "bytes") if dtype is None else (view.count, "elements")
    raise ValueError(f"{name} has {has} {unit}, {needed} are needed")


def _pointer(array: Any, name: str, device: int, dtype: Any, needed: int, writable: bool = True) -> int:
    """The address of an array of the input's type with enough elements, contiguous and on the device; dtype None: of
    any type with enough bytes. Quick for torch's tensors: a call does this some five times."""
    try:
        if array.get_device() == device and array.is_contiguous():
            if array.nbytes >= needed if dtype is None else array.dtype is dtype and array.numel() >= needed:
                pointer = array.data_ptr()
                if pointer or not needed:  # a meta tensor has none
                    return pointer
    except AttributeError:  # numpy's, or no array at all
        if array is not None:
            view = arrays.view(array, name, writable)
            enough = view.count >= needed if dtype is not None else view.count * view.itemsize >= needed
            if view.device == device and view.strides is None and enough:
                if dtype is None or array.dtype == dtype:
                    return view.pointer
    _explain(array, name, device, dtype, needed, writable)


def _gamma(array: Any, device: int, dtype: Any, hidden: int) -> Tuple[int, Optional[int]]:
    """rms_gamma and its type: the input's, or float32."""
    if array is None:
        raise ValueError("rms_gamma is None: this pattern needs it")
    own_type = getattr(array, "dtype", None)
    code = arrays.known_type(own_type)
    return _pointer(array, "rms_gamma", device, own_type if code == _FLOAT32 else dtype, hidden, False), code


def _scale_factor(scale: Any, device: int, like: Any) -> Tuple[Any, int]:
    """An array of one float32 on the device, and its address. A number becomes one on the stream, which can be
    captured."""
    if scale is None:
        raise ValueError("scale_factor is None: this pattern needs it")
    if isinstance(scale, (int, float)):
        if arrays.is_torch(like):
            scale = sys.modules["torch"].full((1,), scale, dtype=sys.modules["torch"].float32, device=like.device)
        else:
            scale = sys.modules["numpy"].array([scale], dtype="float32")
    elif arrays.known_type(getattr(scale, "dtype", None)) != _FLOAT32:
        arrays.view(scale, "scale_factor")
        scale = scale.float() if arrays.is_torch(scale) else scale.astype("float32")
    return scale, _pointer(scale, "scale_factor", device, scale.dtype, 1, False)


def _scratch(count: int, like: Any) -> Any:
    """Bytes that are written and never read."""
    if arrays.is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty((count,), dtype=torch.uint8, device=like.device)
    return sys.modules["numpy"].empty((count,), dtype="uint8")


def _group_size(group_size: Optional[int], hidden: int) -> int:
    if not isinstance(group_size, int) or group_size < 1 or hidden % group_size:
        raise ValueError(f"block_quant_group_size is {group_size}: a divisor of hidden_dim {hidden} is needed")
    return group_size


def _group_scales(scale_out: Any, device: int, tokens: int, words: int, needed: int) -> int:
    """Columns of words, the tokens rounded up to 4 apart; also as one array of bytes."""
    if scale_out is None:
        raise ValueError("scale_out is None: this pattern needs it")
    view = arrays.view(scale_out, "scale_out", writable=True)
    columns = (1, (tokens + 3) // 4 * 4)
    if view.strides is not None and view.shape == (tokens, words) and view.strides == columns and view.itemsize == 4:
        if view.device == device:
            return view.pointer
    return _pointer(scale_out, "scale_out", device, None, needed)


# ---------------------------------------------------------------- the request


# Arguments of the two calls, in FlashInfer's words. Plain tuples: to make named ones of them costs a call 1 µs.
_Launch = Tuple[Any, Any, Any]  # launch_with_pdl, trigger_completion_at_end, use_oneshot
_Norm = Tuple[Any, Any, Any, Any, Any, Any]  # residual_in, residual_out, norm_out, rms_gamma, rms_eps, weight_bias
_Quant = Tuple[Any, Any, Any, Any, Any]  # quant_out, scale_out, scale_factor, layout_code, block_quant_group_size


def _quantize(
    request: _abi.Request, device: int, pattern: Pattern, like: Any, tokens: int, hidden: int, arguments: _Quant
) -> Any:
    """The fields of a quantization; `like` is the input. Returns what must live until the request has been enqueued."""
    quant_out, scale_out, scale_factor, layout_code, group_size = arguments
    quant = request.quantization = pattern.quant
    request.quantOut = _pointer(quant_out, "quant_out", device, None, _abi.quant_out_bytes(quant, tokens, hidden))
    if quant == FP8:
        kept, request.fp8Scale = _scale_factor(scale_factor, device, like)
        return kept
    if quant == FP8_TOKEN:
        request.scaleOut = _pointer(scale_out, "scale_out", device, None, tokens * 4)
        return None
    if quant == FP8_GROUP:
        request.groupSize = group_size = _group_size(group_size, hidden)
        needed = _abi.scale_out_bytes(quant, tokens, hidden, group_size)
        request.scaleOut = _group_scales(scale_out, device, tokens, (hidden // group_size + 3) // 4, needed)
        return None
    if request.dataType == _FLOAT32:
        raise ValueError(f"{pattern.name} is not made from an input of float32")
    kept, request.nvfp4GlobalScale = _scale_factor(scale_factor, device, like)
    layout = QuantizationSFLayout.SWIZZLED_128x4 if layout_code is None else layout_code
    if layout not in (0, 1, 2):
        raise ValueError(f"layout_code is {layout_code!r}: one of QuantizationSFLayout's is needed")
    swizzled = layout == QuantizationSFLayout.SWIZZLED_128x4
    request.scaleLayout = ScaleLayout.SWIZZLED_128X4 if swizzled else ScaleLayout.LINEAR
    needed = _abi.scale_out_bytes(quant, tokens, hidden, 0, request.scaleLayout)
    if layout == QuantizationSFLayout.SWIZZLED_8x4:  # the scales are not wanted
        scale_out = _scratch(needed, like)
    request.scaleOut = _pointer(scale_out, "scale_out", device, None, needed)
    return kept, scale_out


def _normalize(
    request: _abi.Request, device: int, pattern: Pattern, dtype: Any, tokens: int, hidden: int, arguments: _Norm
) -> None:
    """The fields of residual and RMSNorm; `dtype` is the input's."""
    residual_in, residual_out, norm_out, rms_gamma, rms_eps, weight_bias = arguments
    count = tokens * hidden
    request.pattern = 1
    request.tokens = tokens
    request.hidden = hidden
    request.eps = rms_eps or 0.0
    request.weightBias = weight_bias or 0.0
    request.residualIn = _pointer(residual_in, "residual_in", device, dtype, count, False)
    request.gamma, request.gammaDataType = _gamma(rms_gamma, device, dtype, hidden)
    if residual_out is not None:
        request.residualOut = _pointer(residual_out, "residual_out", device, dtype, count)
    if pattern.norm_out:
        request.normOut = _pointer(norm_out, "norm_out", device, dtype, count)


def _run(
    comm: Communicator, names: Tuple[str, str], pattern: Pattern, source: Any, output: Any, token_num: int,
    hidden_dim: int, launch: _Launch, norm: _Norm, quant: _Quant,
) -> None:  # fmt: skip
    """What both calls come to: checks every argument that the pattern uses, then enqueues. `names` are those of the
    input and the output, in errors."""
    device, (launch_with_pdl, trigger_completion_at_end, use_oneshot) = comm.device, launch
    if use_oneshot is not None and not use_oneshot and token_num <= comm.size:
        raise AssertionError(f"use_oneshot is False: token_num {token_num} must be larger than the {comm.size} ranks")
    own_type = getattr(source, "dtype", None)
    dtype = arrays.known_type(own_type)
    if dtype not in _FLOATS:
        arrays.view(source, names[0])
        raise NotImplementedError(f"{names[0]}: dtype {source.dtype} is none of float16, bfloat16, float32")
    if token_num < 0 or hidden_dim < 1:
        raise ValueError(f"token_num is {token_num} and hidden_dim {hidden_dim}: at least 0 and 1 are needed")
    count, kept, request = token_num * hidden_dim, None, _abi.new_request()
    request.dataType = dtype
    request.input = _pointer(source, names[0], device, own_type, count, False)
    if use_oneshot is not None:
        request.algorithmHint = _ONESHOT if use_oneshot else _TWOSHOT
    if launch_with_pdl:
        request.flags = _DEPENDENT_LAUNCH if trigger_completion_at_end else _DEPENDENT_LAUNCH | _EARLY_TRIGGER
    if pattern.rms:
        _normalize(request, device, pattern, own_type, token_num, hidden_dim, norm)
        if pattern.quant:
            kept = _quantize(request, device, pattern, source, token_num, hidden_dim, quant)
    else:
        request.tokens, request.hidden = (1, count) if count else (0, 1)
        request.allreduceOut = _pointer(output, names[1], device, own_type, count)
    comm.run(request, arrays.current_stream(device))
    del kept


# ---------------------------------------------------------------- the calls


def trtllm_allreduce_fusion(
    allreduce_in: Any,
    world_size: int,
    world_rank: int,
    token_num: int,
    hidden_dim: int,
    workspace_ptrs: Any,
    launch_with_pdl: bool,
    trigger_completion_at_end: bool,
    fp32_acc: bool,
    pattern_code: int,
    use_oneshot: Optional[bool],
    allreduce_out: Optional[Any],
    residual_in: Optional[Any],
    residual_out: Optional[Any],
    norm_out: Optional[Any],
    quant_out: Optional[Any],
    scale_out: Optional[Any],
    rms_gamma: Optional[Any],
    rms_eps: Optional[float],
    scale_factor: Optional[Any],
    layout_code: Optional[int],
    metadata: Optional[dict] = None,
    block_quant_group_size: Optional[int] = None,
    weight_bias: Optional[float] = None,
) -> None:
    """The older call: `workspace_ptrs` is the tensor that trtllm_create_ipc_workspace_for_all_reduce_fusion returned,
    and arrays are of any shape with at least token_num * hidden_dim elements. norm_out may be allreduce_in, and
    residual_out residual_in; residual_out None is not written. use_oneshot True and False choose the algorithm, None
    leaves it to the library: the bits are the same. ValueError names the argument that is wrong; nothing has been
    enqueued then."""
    pattern = pattern_of(pattern_code, "pattern_code")
    if metadata is not None:
        check_trtllm_allreduce_fusion_workspace_metadata(
            token_num, hidden_dim, world_size, getattr(allreduce_in, "dtype", None), metadata
        )
    comm = comm_of_tensor(workspace_ptrs)
    if world_size != comm.size or world_rank != comm.rank:
        raise ValueError(
            f"world_rank {world_rank} of world_size {world_size}: workspace_ptrs is of rank {comm.rank} of {comm.size}"
        )
    _run(
        comm,
        ("allreduce_in", "allreduce_out"),
        pattern,
        allreduce_in,
        allreduce_out,
        token_num,
        hidden_dim,
        (launch_with_pdl, trigger_completion_at_end, use_oneshot),
        (residual_in, residual_out, norm_out, rms_gamma, rms_eps, weight_bias),
        (quant_out, scale_out, scale_factor, layout_code, block_quant_group_size),
    )


def _empty_like(array: Any) -> Any:
    return sys.modules["torch" if arrays.is_torch(array) else "numpy"].empty_like(array)


def _check_group_scales(scale_out: Any, tokens: int, hidden: int, group_size: Optional[int]) -> None:
    """FlashInfer's conditions on the arguments of the group patterns."""
    group_size = _group_size(group_size, hidden)
    if scale_out is None:
        raise ValueError("scale_out is None: this pattern needs it")
    view, words = arrays.view(scale_out, "scale_out"), (hidden // group_size + 3) // 4
    if tuple(view.shape) != (tokens, words):
        raise ValueError(f"scale_out shape must be {(tokens, words)}, is {tuple(view.shape)}")
    expected = (1, (tokens + 3) // 4 * 4)
    strides = scale_out.stride() if arrays.is_torch(scale_out) else tuple(s // view.itemsize for s in scale_out.strides)
    if tuple(strides) != expected:
        raise ValueError(f"scale_out stride must be {expected}, is {tuple(strides)}")
    if view.dtype != DataType.INT32:
        raise ValueError(f"scale_out dtype must be int32, is {scale_out.dtype}")


def _check_dynamic(
    source: Any, residual_out: Any, norm_out: Any, quant_out: Any, scale_out: Any, pattern: Pattern
) -> None:
    """FlashInfer's conditions on the arguments of the dynamic FP8 patterns."""
    needed = {"residual_out": residual_out, "quant_out": quant_out, "scale_out": scale_out}
    if pattern.norm_out:
        needed["norm_out"] = norm_out
    for name, array in needed.items():
        if array is None:
            raise ValueError(f"{name} is None: {pattern.name} needs it")
    if tuple(quant_out.shape) != tuple(source.shape):
        raise ValueError(f"quant_out must have shape {list(source.shape)}, has {list(quant_out.shape)}")
    if str(quant_out.dtype) not in ("torch.float8_e4m3fn", "float8_e4m3fn", "uint8"):
        raise ValueError(f"quant_out must have dtype float8_e4m3fn, has {quant_out.dtype}")
    view = arrays.view(scale_out, "scale_out")
    if view.dtype != DataType.FLOAT32 or tuple(view.shape) != (source.shape[0], 1) or view.strides is not None:
        raise ValueError(f"scale_out must be a contiguous float32 array of shape {[source.shape[0], 1]}")


def _check_shape(name: str, array: Any, source: Any, count: int) -> None:
    """An array that the pattern uses has the input's shape, or another with as many elements, which is `count`."""
    if array is None or arrays.is_torch(array) and array.numel() == count:
        return
    if array.shape != source.shape and arrays.view(array, name).count != count:
        raise ValueError(f"{name}: its shape is {list(array.shape)}, the input's {list(source.shape)}")


def _communicator_of(workspace: Any) -> Communicator:
    if not isinstance(workspace, TRTLLMAllReduceFusionWorkspace):
        backend = str(getattr(workspace, "backend", ""))
        if backend.startswith("mnnvl"):
            raise NotImplementedError(f"workspace is of backend {backend!r}, which needs multicast: it is not served")
        raise TypeError(
            f"workspace is a {type(workspace).__name__}: one of create_allreduce_fusion_workspace is needed"
        )
    return workspace.communicator


def _shape_of(source: Any) -> Tuple[int, int]:
    if len(getattr(source, "shape", ())) != 2:
        arrays.view(source, "input")
        raise ValueError(f"input: its shape is {list(source.shape)}, [token_num, hidden_dim] is needed")
    return source.shape


def allreduce_fusion(
    input: Any,
    workspace: TRTLLMAllReduceFusionWorkspace,
    pattern: int,
    launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True,
    output: Optional[Any] = None,
    residual_out: Optional[Any] = None,
    norm_out: Optional[Any] = None,
    quant_out: Optional[Any] = None,
    scale_out: Optional[Any] = None,
    residual_in: Optional[Any] = None,
    rms_gamma: Optional[Any] = None,
    rms_eps: float = 1e-6,
    scale_factor: Optional[Any] = None,
    layout_code: Optional[int] = None,
    use_oneshot: Optional[bool] = None,
    fp32_acc: bool = False,
    moe_reduction_device_num_experts: Optional[int] = None,
    moe_reduction_scale_input: Optional[Any] = None,
    moe_reduction_active_experts_token_input: Optional[Any] = None,
    moe_reduction_token_input: Optional[Any] = None,
    expanded_idx_to_permuted_idx: Optional[Any] = None,
    expert_scale_factor: Optional[Any] = None,
    shared_expert_output: Optional[Any] = None,
    block_quant_group_size: Optional[int] = None,
    weight_bias: float = 0.0,
) -> Any:
    """The unified call, on arrays of [token_num, hidden_dim]. Returns norm_out where the pattern writes it, else
    quant_out, else output; a norm_out or output that the pattern needs and that is None is made. Else as
    trtllm_allreduce_fusion."""
    kind = pattern_of(pattern, "pattern")
    comm = _communicator_of(workspace)
    tokens, hidden = _shape_of(input)
    if kind.quant == FP8_GROUP:
        _check_group_scales(scale_out, tokens, hidden, block_quant_group_size)
    elif kind.quant == FP8_TOKEN:
        _check_dynamic(input, residual_out, norm_out, quant_out, scale_out, kind)
    check_trtllm_allreduce_fusion_workspace_metadata(tokens, hidden, comm.size, input.dtype, workspace.metadata)
    if kind.norm_out and norm_out is None:
        norm_out = _empty_like(input)
    if not kind.rms and output is None:
        output = _empty_like(input)
    if not kind.rms:
        _check_shape("output", output, input, tokens * hidden)
    else:
        _check_shape("residual_in", residual_in, input, tokens * hidden)
        _check_shape("residual_out", residual_out, input, tokens * hidden)
        if kind.norm_out:
            _check_shape("norm_out", norm_out, input, tokens * hidden)
    _run(
        comm,
        ("input", "output"),
        kind,
        input,
        output,
        tokens,
        hidden,
        (launch_with_pdl, trigger_completion_at_end, use_oneshot),
        (residual_in, residual_out, norm_out, rms_gamma, rms_eps, weight_bias),
        (quant_out, scale_out, scale_factor, layout_code, block_quant_group_size),
    )
    if kind.norm_out:
        return norm_out
    return quant_out if kind.quant else output


def trtllm_moe_allreduce_fusion(*arguments: Any, **named: Any) -> NoReturn:
    raise NotImplementedError("trtllm_moe_allreduce_fusion: patterns of MoE are not served")


def trtllm_moe_finalize_allreduce_fusion(*arguments: Any, **named: Any) -> NoReturn:
    raise NotImplementedError("trtllm_moe_finalize_allreduce_fusion: patterns of MoE are not served")
