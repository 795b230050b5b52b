# SPDX-License-Identifier: Apache-2.0
"""Host time of an eager call from Python on two ranks: at most 15 µs each for FlashInfer's calls and the package's own.

LD_LIBRARY_PATH=build TEST_ARRAYS=cuda python3 test/gpu/python_cost.py. Exit 1 if one takes longer.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from ranks import KIND, Ranks  # noqa: E402

import arfusion  # noqa: E402
import arfusion.flashinfer as comm  # noqa: E402

TOKENS, HIDDEN, CALLS, ROUNDS, LIMIT_US = 4, 4096, 50, 40, 15.0


def cost(own):
    """Microseconds of each call: the median of rounds that are short enough not to fill the stream's queue."""
    torch, device = own.arrays.torch, own.arrays.device
    x, residual, norm = (torch.zeros((TOKENS, HIDDEN), dtype=torch.bfloat16, device=device) for _ in range(3))
    gamma, codes = torch.ones(HIDDEN, dtype=torch.bfloat16, device=device), torch.empty_like(x, dtype=torch.uint8)
    scale = torch.ones(1, dtype=torch.float32, device=device)
    core = arfusion.Communicator.from_process_group(own.group(), None, 1024, HIDDEN)
    unified = comm.create_allreduce_fusion_workspace("auto", own.size, own.rank, 1024, HIDDEN, torch.bfloat16)
    tensor, metadata = unified.workspace_tensor, unified.metadata

    def older():
        comm.trtllm_allreduce_fusion(
            x, own.size, own.rank, TOKENS, HIDDEN, tensor, True, True, True, 1, None, None, residual, residual, norm,
            None, None, gamma, 1e-5, None, None, metadata,
        )  # fmt: skip

    calls = {
        "Communicator.all_reduce": lambda: core.all_reduce(x),
        "Communicator.allreduce_rmsnorm": lambda: core.allreduce_rmsnorm(
            x, gamma, residual, residual_out=residual, norm_out=norm
        ),
        "trtllm_allreduce_fusion": older,
        "allreduce_fusion": lambda: comm.allreduce_fusion(
            x, unified, 1, True, residual_out=residual, norm_out=norm, residual_in=residual, rms_gamma=gamma
        ),
        "allreduce_fusion, fp8": lambda: comm.allreduce_fusion(
            x, unified, 2, True, residual_out=residual, quant_out=codes, residual_in=residual, rms_gamma=gamma,
            scale_factor=scale,
        ),  # fmt: skip
    }
    result = {}
    for name, call in calls.items():
        times = []
        for _ in range(ROUNDS):
            if KIND == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times.append((time.perf_counter() - begin) / CALLS * 1e6)
        result[name] = sorted(times)[ROUNDS // 2]
    unified.destroy()
    core.destroy()
    return result


if __name__ == "__main__":
    team = Ranks(2)
    ranks = team.run(cost)
    team.close()
    slow = 0
    for name in ranks[0]:
        most = max(result[name] for result in ranks)
        slow += most > LIMIT_US
        print(f"{name:32} {most:6.1f} us")
    print(f"{len(ranks[0]) - slow} passed, {slow} failed")
    sys.exit(slow > 0)
