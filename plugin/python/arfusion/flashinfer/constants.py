# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's constants of this operation, and what each pattern is as a request."""

from typing import Dict, NamedTuple

from .._abi import Quantization


class AllReduceFusionPattern:
    """pattern_code. `Out` in a name: norm_out is written too. The two of MoE are named, and not served."""

    kAllReduce = 0
    kARResidualRMSNorm = 1
    kARResidualRMSNormFP8Quant = 2
    kARResidualRMSNormFP4Quant = 3
    kARResidualRMSNormOutFP8Quant = 4
    kARResidualRMSNormOutFP4Quant = 5
    kMoEReductionARResidualRMSNorm = 6
    kMoEFinalizeARResidualRMSNorm = 7
    kARResidualRMSNormPerTokenGroupFP8PackedQuant = 8
    kARResidualRMSNormOutPerTokenGroupFP8PackedQuant = 9
    kARResidualRMSNormDynamicFP8Quant = 10
    kARResidualRMSNormOutDynamicFP8Quant = 11


class QuantizationSFLayout:
    """layout_code: where the scales of FP4 patterns go. With SWIZZLED_8x4 FlashInfer writes codes and no scales, and so
    does this."""

    SWIZZLED_128x4 = 0
    SWIZZLED_8x4 = 1
    LINEAR = 2


class Pattern(NamedTuple):
    """What a pattern does after the sum."""

    name: str
    rms: bool
    norm_out: bool
    quant: int


_P, _Q = AllReduceFusionPattern, Quantization
PATTERNS: Dict[int, Pattern] = {
    getattr(_P, name): Pattern(name, rms, norm_out, int(quant))
    for name, rms, norm_out, quant in (
        ("kAllReduce", False, False, _Q.NONE),
        ("kARResidualRMSNorm", True, True, _Q.NONE),
        ("kARResidualRMSNormFP8Quant", True, False, _Q.FP8),
        ("kARResidualRMSNormFP4Quant", True, False, _Q.NVFP4),
        ("kARResidualRMSNormOutFP8Quant", True, True, _Q.FP8),
        ("kARResidualRMSNormOutFP4Quant", True, True, _Q.NVFP4),
        ("kARResidualRMSNormPerTokenGroupFP8PackedQuant", True, False, _Q.FP8_GROUP),
        ("kARResidualRMSNormOutPerTokenGroupFP8PackedQuant", True, True, _Q.FP8_GROUP),
        ("kARResidualRMSNormDynamicFP8Quant", True, False, _Q.FP8_TOKEN),
        ("kARResidualRMSNormOutDynamicFP8Quant", True, True, _Q.FP8_TOKEN),
    )
}
_MOE = {
    _P.kMoEReductionARResidualRMSNorm: "kMoEReductionARResidualRMSNorm",
    _P.kMoEFinalizeARResidualRMSNorm: "kMoEFinalizeARResidualRMSNorm",
}


def pattern_of(code: int, name: str) -> Pattern:
    """The pattern with this code; `name` is what the caller's argument is called."""
    pattern = PATTERNS.get(code)
    if pattern is None:
        if code in _MOE:
            raise NotImplementedError(f"{name} is {_MOE[code]}: patterns of MoE are not served")
        raise ValueError(f"{name} is {code!r}: one of AllReduceFusionPattern's is needed")
    return pattern


def compute_fp4_swizzled_layout_sf_size(total_row: int, total_column: int) -> int:
    """Bytes of the scales of `total_row` tokens and `total_column` blocks in the 128x4 layout."""
    return (total_row + 127) // 128 * 128 * ((total_column + 3) // 4 * 4)
