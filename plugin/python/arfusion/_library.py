# SPDX-License-Identifier: Apache-2.0
"""libarfusion.so.1: where it is, and its functions with their argument types."""

import ctypes
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p

from . import _abi, _numbers
from .errors import error_of

NAME = "libarfusion.so.1"

# What each function takes; all of these return a result code.
_PROTOTYPES = {
    "arfusionGetDeviceCount": [POINTER(c_int)],
    "arfusionGetProperties": [c_int, POINTER(_abi.Properties)],
    "arfusionGetUniqueId": [POINTER(_abi.UniqueId)],
    "arfusionCommInitRank": [POINTER(c_void_p), c_int, POINTER(_abi.UniqueId), c_int, c_int, POINTER(_abi.Config)],
    "arfusionCommInitEnvironment": [POINTER(c_void_p), POINTER(_abi.Config)],
    "arfusionCommInitAll": [POINTER(c_void_p), c_int, POINTER(c_int), POINTER(_abi.Config)],
    "arfusionCommInitNccl": [POINTER(c_void_p), c_void_p, POINTER(_abi.Config)],
    "arfusionCommDestroy": [c_void_p],
    "arfusionCommAbort": [c_void_p],
    "arfusionCommGetAsyncError": [c_void_p, POINTER(c_int), c_char_p, c_size_t],
    "arfusionCommCount": [c_void_p, POINTER(c_int)],
    "arfusionCommUserRank": [c_void_p, POINTER(c_int)],
    "arfusionCommDevice": [c_void_p, POINTER(c_int)],
    "arfusionCommGetCapacity": [c_void_p, POINTER(_abi.Capacity)],
    "arfusionCommGetStats": [c_void_p, POINTER(_abi.Stats)],
    "arfusionCommGetWorkspace": [c_void_p, POINTER(_abi.Workspace)],
    "arfusionCommGetWorkspaceMetadata": [c_void_p, c_int, POINTER(_abi.WorkspaceMetadata)],
    # The two of every step take pointers as they are: ctypes checks nothing, and is faster so.
    "arfusionAllReduce": [c_void_p, c_void_p, c_void_p, c_void_p],
    "arfusionEpilogue": [c_void_p, c_void_p, c_void_p],
}


def _places() -> list:
    """In this order: with this package (a wheel), where the loader looks, what `make` built around this file."""
    here = pathlib.Path(__file__).resolve()
    places = [str(here.parent / "lib" / NAME), NAME]
    if len(here.parents) > 3:
        places.append(str(here.parents[3] / "build" / NAME))
    return places


def _open() -> ctypes.CDLL:
    tried = []
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            tried.append(f"{place} ({error})")
    raise ImportError(f"{NAME} was not found; tried " + ", ".join(tried))


library = _open()
for _name, _types in _PROTOTYPES.items():
    getattr(library, _name).argtypes = _types
for _name, _types in {"arfusionGetLastError": [], "arfusionReasonString": [c_int]}.items():
    getattr(library, _name).argtypes = _types
    getattr(library, _name).restype = c_char_p


def check(result: int) -> None:
    """Raises the exception for a result code that is not success."""
    if result:
        raise error_of(result, library.arfusionGetLastError().decode(errors="replace"))


def reason_text(reason: int) -> str:
    return library.arfusionReasonString(reason).decode()


def device_count() -> int:
    """Number of devices: the GPUs, or 1, the host."""
    count = c_int()
    check(library.arfusionGetDeviceCount(ctypes.byref(count)))
    return count.value


def device_properties(device: int = 0) -> _abi.Properties:
    """What a device is."""
    properties = _abi.Properties()
    check(library.arfusionGetProperties(_numbers.signed(device, "device"), ctypes.byref(properties)))
    return properties


def is_host() -> bool:
    """Whether the device is the host's memory."""
    return bool(device_properties().isHost)
