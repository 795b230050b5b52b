# SPDX-License-Identifier: Apache-2.0
"""torch.ops.arfusion.flashinfer_trtllm_fused_allreduce_norm: the operator that vLLM's fusion pass puts into its graphs,
with its arguments and what it does with them, all in place:

- norm_out None: the norm goes to allreduce_in, the sum with the residual to residual;
- norm_out given: the norm goes there, and the sum with the residual to allreduce_in;
- with a quantized pattern (quant_out, for nvfp4 scale_out in 128x4 tiles, scale_factor) the norm is written only by
  those patterns that say so.

It has no group: the communicator is the one of world_size ranks that is registered. fp32_acc is ignored, sums are
always in fp32; so is launch_with_pdl where the GPU has no dependent launch.
"""

from __future__ import annotations

from typing import Optional

from torch import Tensor

from . import _abi, requests
from ._abi import FP8, NVFP4
from .ops_call import check_like, check_scale, fill_rows, find_of_size, launch, launch_quantized

SCHEMA = (
    "flashinfer_trtllm_fused_allreduce_norm(Tensor(a!) allreduce_in, Tensor(b!) residual, Tensor rms_gamma, "
    "float rms_eps, int world_size, bool launch_with_pdl, bool fp32_acc, int max_token_num, int pattern_code, "
    "Tensor(c!)? norm_out=None, Tensor(d!)? quant_out=None, Tensor(e!)? scale_out=None, Tensor? scale_factor=None, "
    "float weight_bias=0.0) -> ()"
)

# FlashInfer's pattern codes: the quantization, and whether the norm is written too.
_PATTERNS = {1: (0, True), 2: (FP8, False), 3: (NVFP4, False), 4: (FP8, True), 5: (NVFP4, True)}


def _needed(name: str, tensor: Optional[Tensor], pattern: int) -> Tensor:
    if tensor is None:
        raise ValueError(f"{name} is None: pattern_code {pattern} needs it")
    return tensor


def fused_allreduce_norm(
    allreduce_in: Tensor, residual: Tensor, rms_gamma: Tensor, rms_eps: float, world_size: int, launch_with_pdl: bool,
    fp32_acc: bool, max_token_num: int, pattern_code: int, norm_out: Optional[Tensor] = None,
    quant_out: Optional[Tensor] = None, scale_out: Optional[Tensor] = None, scale_factor: Optional[Tensor] = None,
    weight_bias: float = 0.0,
) -> None:  # fmt: skip
    if pattern_code not in _PATTERNS:
        raise NotImplementedError(
            f"pattern_code is {pattern_code}: one of {', '.join(map(str, _PATTERNS))} is supported"
        )
    quantization, writes_norm = _PATTERNS[pattern_code]
    group = find_of_size(world_size)
    request = group.rows
    fill_rows(group, allreduce_in, residual, rms_gamma, rms_eps, weight_bias, ("allreduce_in", "residual", "rms_gamma"))
    tokens, hidden = request.tokens, request.hidden
    if tokens > max_token_num:
        raise ValueError(f"allreduce_in has {tokens} tokens, max_token_num is {max_token_num}")
    residual_out = residual if norm_out is None else allreduce_in
    if norm_out is None:
        norm_out = allreduce_in
    else:
        check_like("norm_out", norm_out, allreduce_in.dtype, allreduce_in.shape, group)
    if not writes_norm:
        norm_out = None
    request.flags = int(_abi.Flag.DEPENDENT_LAUNCH) if launch_with_pdl else 0
    try:
        if not quantization:
            launch(group, residual_out, norm_out)
            return
        scale = _needed("scale_factor", scale_factor, pattern_code)
        check_scale("scale_factor", scale, group)
        codes = _needed("quant_out", quant_out, pattern_code)
        needed = _abi.quant_out_bytes(quantization, tokens, hidden)
        codes_at, scales_at = requests.dense_bytes(codes, "quant_out", needed, group.device), None
        if quantization == NVFP4:
            scales = _needed("scale_out", scale_out, pattern_code)
            needed = _abi.scale_out_bytes(NVFP4, tokens, hidden, layout=_abi.ScaleLayout.SWIZZLED_128X4)
            scales_at = requests.dense_bytes(scales, "scale_out", needed, group.device)
        launch_quantized(group, quantization, scale, codes_at, scales_at, quantization == NVFP4, residual_out, norm_out)
    finally:
        request.flags = int(_abi.Flag.DEPENDENT_LAUNCH)
