# SPDX-License-Identifier: Apache-2.0
"""arfusion: allreduce + residual + RMSNorm, fused, for tensor-parallel inference. ctypes over libarfusion.so.

    comm = arfusion.Communicator.from_environment()  # torchrun's variables; or from_process_group, from_nccl, ...
    comm.allreduce_rmsnorm(x, gamma, residual, residual_out=residual, norm_out=x)

Arrays are torch tensors on GPUs, and torch tensors or numpy arrays on the host device; neither package is needed to
import this one. Errors are exceptions with the library's reason; wrong arguments are ValueErrors that name the
argument, raised before anything is enqueued. arfusion.flashinfer has FlashInfer's calls, arfusion.ops PyTorch's
operators, and arfusion.fx puts those into graphs.
"""

from . import _library  # first: without the library nothing else makes sense
from ._abi import Algorithm, DataType, Flag, Pattern, Quantization, Request, Result, ScaleLayout
from ._abi import quant_out_bytes, scale_out_bytes
from ._library import device_count, device_properties, is_host, reason_text
from .communicator import Communicator, Route, unique_id
from .errors import Error, InvalidArgumentError, RemoteError
from .version import __version__

__all__ = [
    "Algorithm",
    "Communicator",
    "DataType",
    "Error",
    "Flag",
    "InvalidArgumentError",
    "Pattern",
    "Quantization",
    "RemoteError",
    "Request",
    "Result",
    "Route",
    "ScaleLayout",
    "device_count",
    "device_properties",
    "is_host",
    "quant_out_bytes",
    "reason_text",
    "scale_out_bytes",
    "unique_id",
]
