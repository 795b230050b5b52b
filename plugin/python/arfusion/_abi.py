# SPDX-License-Identifier: Apache-2.0
"""What the headers arfusion_plugin.h and arfusion.h declare, for ctypes: values and structs, version 1."""

import ctypes
from enum import IntEnum, IntFlag

MAX_RANKS = 16
MAX_HIDDEN = 65536
MAX_INIT_ALL = 4096  # ranks that arfusionCommInitAll makes


class Result(IntEnum):
    """arfusionResult_t."""

    SUCCESS = 0
    CUDA_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7


class DataType(IntEnum):
    """arfusionDataType_t: the types of inputs and outputs."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9


class Pattern(IntEnum):
    """arfusionPattern_t."""

    ALL_REDUCE = 0
    RESIDUAL_RMSNORM = 1


class Quantization(IntEnum):
    """arfusionQuant_t: what is made of norm_out's values."""

    NONE = 0
    FP8 = 1
    FP8_TOKEN = 2
    FP8_GROUP = 3
    NVFP4 = 4


# The same as plain ints, for what every call goes through: Python 3.11 takes 0.1 µs to look up an enum's member.
NO_QUANT, FP8, FP8_TOKEN, FP8_GROUP, NVFP4 = (int(kind) for kind in Quantization)


class ScaleLayout(IntEnum):
    """arfusionScaleLayout_t: where nvfp4's scales are."""

    LINEAR = 0
    SWIZZLED_128X4 = 1


class Algorithm(IntEnum):
    """arfusionAlgorithm_t. As a route, NONE is "turned down by the plugin, and completed by the library"."""

    AUTO = 0
    NONE = 1
    EMPTY = 2
    ONESHOT_LAMPORT = 3
    ONESHOT_SYNC = 4
    TWOSHOT = 5


class Flag(IntFlag):
    """ARFUSION_FLAG_*."""

    DEPENDENT_LAUNCH = 1
    EARLY_TRIGGER = 2


class _Sized(ctypes.Structure):
    """A struct of the ABI: it begins with its own size."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Properties(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char * 64),
        ("pciBusId", ctypes.c_char * 20),
        ("isHost", ctypes.c_int),
        ("deviceOrdinal", ctypes.c_int),
        ("computeMajor", ctypes.c_int),
        ("computeMinor", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("memoryBytes", ctypes.c_size_t),
    ]


class Config(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("maxTokens", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("dataType", ctypes.c_int),
        ("reserved", ctypes.c_int),
    ]


class Request(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("pattern", ctypes.c_int),
        ("operation", ctypes.c_int),
        ("dataType", ctypes.c_int),
        ("gammaDataType", ctypes.c_int),
        ("quantization", ctypes.c_int),
        ("scaleLayout", ctypes.c_int),
        ("algorithmHint", ctypes.c_int),
        ("groupSize", ctypes.c_int),
        ("tokens", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("eps", ctypes.c_float),
        ("weightBias", ctypes.c_float),
        ("reserved", ctypes.c_uint32),
        ("inputStride", ctypes.c_int64),
        ("residualInStride", ctypes.c_int64),
        ("residualOutStride", ctypes.c_int64),
        ("normOutStride", ctypes.c_int64),
        ("input", ctypes.c_void_p),
        ("residualIn", ctypes.c_void_p),
        ("gamma", ctypes.c_void_p),
        ("fp8Scale", ctypes.c_void_p),
        ("nvfp4GlobalScale", ctypes.c_void_p),
        ("allreduceOut", ctypes.c_void_p),
        ("residualOut", ctypes.c_void_p),
        ("normOut", ctypes.c_void_p),
        ("quantOut", ctypes.c_void_p),
        ("scaleOut", ctypes.c_void_p),
    ]


_EMPTY_REQUEST = bytes(Request())


def new_request() -> Request:
    """Request(), in a fraction of the time: a copy."""
    return Request.from_buffer_copy(_EMPTY_REQUEST)


class RouteStruct(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("algorithm", ctypes.c_int),
        ("reason", ctypes.c_int),
        ("value", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("launches", ctypes.c_int),
        ("reserved", ctypes.c_int),
    ]


class Capacity(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("maxRequestBytes", ctypes.c_int64),
        ("maxLaunchBytes", ctypes.c_int64),
        ("workspaceBytes", ctypes.c_int64),
        ("maxRowBytes", ctypes.c_int64),
    ]


class Workspace(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("nranks", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("bytes", ctypes.c_int64),
        ("flagsOffset", ctypes.c_int64),
        ("lamportOffset", ctypes.c_int64),
        ("stageOffset", ctypes.c_int64),
        ("address", ctypes.c_void_p * MAX_RANKS),
    ]


class Stats(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("requests", ctypes.c_uint64),
        ("byAlgorithm", ctypes.c_uint64 * 16),
        ("byReason", ctypes.c_uint64 * 64),
        ("launches", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("errors", ctypes.c_uint64),
        ("nanInputs", ctypes.c_uint64),
        ("nanResiduals", ctypes.c_uint64),
        ("nanOutputs", ctypes.c_uint64),
    ]


class WorkspaceMetadata(_Sized):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("tp_rank", ctypes.c_int64),
        ("tp_size", ctypes.c_int64),
        ("max_token_num", ctypes.c_int64),
        ("hidden_dim", ctypes.c_int64),
        ("use_fp32_lamport", ctypes.c_int64),
        ("buffer_size", ctypes.c_int64),
        ("flag_size", ctypes.c_int64),
        ("lamport_comm_size", ctypes.c_int64),
        ("lamport_buffer_size", ctypes.c_int64),
    ]


def quant_out_bytes(quantization: int, tokens: int, hidden: int) -> int:
    """Bytes that a request writes to quant_out: arfusionQuantOutBytes."""
    if quantization == NO_QUANT:
        return 0
    return tokens * hidden // 2 if quantization == NVFP4 else tokens * hidden


def scale_out_bytes(quantization: int, tokens: int, hidden: int, group_size: int = 0, layout: int = 0) -> int:
    """Bytes that a request writes to scale_out: arfusionScaleOutBytes."""
    if tokens <= 0:
        return 0
    if quantization == FP8_TOKEN:
        return tokens * 4
    if quantization == FP8_GROUP and group_size > 0:
        words = (hidden // group_size + 3) // 4
        return ((words - 1) * ((tokens + 3) // 4 * 4) + tokens) * 4
    if quantization == NVFP4:
        blocks = hidden // 16
        if layout == ScaleLayout.LINEAR:
            return tokens * blocks
        return (tokens + 127) // 128 * ((blocks + 3) // 4) * 512
    return 0
