# SPDX-License-Identifier: Apache-2.0
"""flashinfer.comm.mnnvl where FlashInfer is not installed."""

from arfusion.flashinfer import TorchDistBackend

__all__ = ["TorchDistBackend"]
