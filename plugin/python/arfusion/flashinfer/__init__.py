# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's calls for this operation (flashinfer.comm), served by arfusion.

Use it as `import arfusion.flashinfer as comm` in place of `import flashinfer.comm as comm`, or leave a program as it is
and call `install()` before it imports flashinfer. For programs that spawn workers, PYTHONPATH=.../arfusion/compat does
the same. Beside GPUs, all of it works on the host device, with torch's tensors or numpy's arrays (uint16 stands for
bfloat16).
"""

from .backend import TorchDistBackend
from .constants import AllReduceFusionPattern, QuantizationSFLayout, compute_fp4_swizzled_layout_sf_size
from .fusion import (
    allreduce_fusion,
    trtllm_allreduce_fusion,
    trtllm_moe_allreduce_fusion,
    trtllm_moe_finalize_allreduce_fusion,
)
from .install import install
from .workspace import (
    AllReduceFusionWorkspace,
    SymmDeviceMemory,
    TRTLLMAllReduceFusionWorkspace,
    check_trtllm_allreduce_fusion_workspace_metadata,
    create_allreduce_fusion_workspace,
    trtllm_create_ipc_workspace_for_all_reduce_fusion,
    trtllm_destroy_ipc_workspace_for_all_reduce_fusion,
)

#: what takes the place of flashinfer.comm's
COMM_NAMES = (
    "AllReduceFusionPattern",
    "AllReduceFusionWorkspace",
    "QuantizationSFLayout",
    "TRTLLMAllReduceFusionWorkspace",
    "allreduce_fusion",
    "check_trtllm_allreduce_fusion_workspace_metadata",
    "compute_fp4_swizzled_layout_sf_size",
    "create_allreduce_fusion_workspace",
    "trtllm_allreduce_fusion",
    "trtllm_create_ipc_workspace_for_all_reduce_fusion",
    "trtllm_destroy_ipc_workspace_for_all_reduce_fusion",
    "trtllm_moe_allreduce_fusion",
    "trtllm_moe_finalize_allreduce_fusion",
)
__all__ = [*COMM_NAMES, "COMM_NAMES", "SymmDeviceMemory", "TorchDistBackend", "install"]
