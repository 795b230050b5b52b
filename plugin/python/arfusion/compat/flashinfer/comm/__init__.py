# SPDX-License-Identifier: Apache-2.0
"""flashinfer.comm where FlashInfer is not installed."""

from arfusion.flashinfer import *  # noqa: F403
