# SPDX-License-Identifier: Apache-2.0
"""flashinfer.utils where FlashInfer is not installed."""

from typing import Any, Tuple


def get_compute_capability(device: Any) -> Tuple[int, int]:
    """Major and minor of a torch.device of a GPU."""
    if device.type != "cuda":
        raise ValueError(f"device is {device}: a GPU is needed")
    import torch

    return torch.cuda.get_device_capability(device)
