# SPDX-License-Identifier: Apache-2.0
"""One process a rank: torchrun --nproc-per-node 2 ten_lines.py, on GPUs with torch, without them with numpy.
Without torchrun: see ten_lines.c."""

import arfusion

comm = arfusion.Communicator.from_environment()
if comm.is_host:
    import numpy as xp
else:
    import torch as xp

    xp.set_default_device(f"cuda:{comm.device}")
x, residual = xp.ones((1, 4096), dtype=xp.float32), 2 * xp.ones((1, 4096), dtype=xp.float32)
comm.allreduce_rmsnorm(x, xp.ones(4096, dtype=xp.float32), residual, residual_out=residual, norm_out=x)
print(f"sum + residual = {float(residual[0, 0]):g}, norm = {float(x[0, 0]):g}")
comm.destroy()
