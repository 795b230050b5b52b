# SPDX-License-Identifier: Apache-2.0
"""Arrays of others, as pointers: torch tensors on GPUs or on the host, numpy arrays on the host. Neither is imported.

numpy has no bfloat16: an array of uint16 stands for its bits.
"""

import math
import sys
from typing import Any, Hashable, NamedTuple, Optional, Sequence, Tuple

from ._abi import DataType

HOST = -1

_NAMES = {
    "int8": DataType.INT8,
    "uint8": DataType.UINT8,
    "int32": DataType.INT32,
    "uint32": DataType.UINT32,
    "int64": DataType.INT64,
    "uint64": DataType.UINT64,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "bfloat16": DataType.BFLOAT16,
    "uint16": DataType.BFLOAT16,
}


class View(NamedTuple):
    """An array as the library sees it. `dtype` is None for types it does not know."""

    pointer: int
    dtype: Optional[int]
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # in elements; None: contiguous, in row-major order
    itemsize: int
    device: int  # a CUDA ordinal, or HOST

    @property
    def count(self) -> int:
        return math.prod(self.shape)


_types: dict = {}  # of numpy and torch, each looked up once
_tensor: Any = ()  # torch.Tensor, once is_torch has seen it; until then of which nothing is an instance


def data_type(dtype: Any, name: str = "dtype") -> DataType:
    """The DataType that a numpy or torch type, or its name, stands for."""
    if isinstance(dtype, DataType):
        return dtype
    code = known_type(dtype) if isinstance(dtype, Hashable) else None
    if code is None:
        raise ValueError(f"{name}: {dtype} is none of {', '.join(_NAMES)}")
    return DataType(code)


def is_torch(array: Any) -> bool:
    global _tensor
    if not _tensor:
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        _tensor = torch.Tensor
    return isinstance(array, _tensor)


def known_type(dtype: Any) -> Optional[int]:
    """The DataType's value for a numpy or torch type, or its name; None if it has none."""
    try:
        return _types[dtype]
    except KeyError:
        code = _NAMES.get(getattr(dtype, "__name__", None) or str(dtype).rsplit(".", 1)[-1])
        _types[dtype] = None if code is None else int(code)
        return _types[dtype]


def _torch_view(tensor: Any, name: str) -> View:
    device = tensor.get_device() if tensor.is_cuda else HOST
    if device == HOST and not tensor.is_cpu:
        raise ValueError(f"{name} is on device {tensor.device}: a GPU's memory or the host's is needed")
    strides = None if tensor.is_contiguous() else tensor.stride()
    fields = (tensor.data_ptr(), known_type(tensor.dtype), tensor.shape, strides, tensor.element_size(), device)
    return tuple.__new__(View, fields)  # View(...) would be a Python function more, in every call


def _numpy_view(array: Any, name: str) -> View:
    size, strides = array.itemsize, None
    if not array.flags.c_contiguous:
        if any(stride % size for stride in array.strides):
            raise ValueError(f"{name}: its strides {array.strides} are not whole elements of {size} bytes")
        strides = tuple(stride // size for stride in array.strides)
    return View(array.ctypes.data, known_type(array.dtype), array.shape, strides, size, HOST)


def dense_tensor(array: Any, dtype: Any, shape: Sequence[int], device: int) -> int:
    """The address of a contiguous torch tensor of this type and shape on that device. 0: it may be right all the same,
    `view` knows more. Nearly all arrays of a call are such tensors, and this is the quicker way to see that they are
    right."""
    if (
        isinstance(array, _tensor)
        and array.dtype is dtype
        and array.shape == shape
        and array.is_contiguous()
        and (array.get_device() if array.is_cuda else HOST if array.is_cpu else None) == device
    ):
        return array.data_ptr()
    return 0


def view(array: Any, name: str, writable: bool = False) -> View:
    """`array` as a View; `name` is what errors call it."""
    if is_torch(array):
        return _torch_view(array, name)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        if writable and not array.flags.writeable:
            raise ValueError(f"{name} is read-only")
        return _numpy_view(array, name)
    raise ValueError(f"{name} is a {type(array).__name__}: a torch tensor or a numpy array is needed")


def elsewhere(found: View, name: str, device: int, owner: str) -> ValueError:
    """The error for an array that is not where its `owner` is."""
    where = ["host memory" if d == HOST else f"GPU {d}" for d in (found.device, device)]
    return ValueError(f"{name} is on {where[0]}, the {owner} on {where[1]}")


def current_stream(device: int) -> int:
    """The cudaStream_t that torch uses now on that device; the host has none."""
    if device == HOST:
        return 0
    torch = sys.modules.get("torch")
    return 0 if torch is None else torch._C._cuda_getCurrentRawStream(device)
