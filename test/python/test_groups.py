# SPDX-License-Identifier: Apache-2.0
"""Process groups of torch.distributed: the world, and subgroups of it at the same time."""

import unittest

import numpy as np

from ranks import KIND, TeamTest
from test_core import HIDDEN, TOKENS, rejected, values

import arfusion
import arfusion.flashinfer as comm

P = comm.AllReduceFusionPattern
WORLD = 4


def summed(own, run, members, seed):
    """Whether run(input, output) sums over these ranks of the world."""
    x = own.arrays.make(values(seed + own.rank, TOKENS, HIDDEN))
    out = own.arrays.empty((TOKENS, HIDDEN))
    run(x, out)
    expected = sum(values(seed + r, TOKENS, HIDDEN) for r in members)
    assert np.array_equal(own.arrays.floats(out), expected), members


def older_call(tensor, rank, size):
    def run(x, out):
        nothing = [None] * 9
        comm.trtllm_allreduce_fusion(x, size, rank, TOKENS, HIDDEN, tensor, True, True, True, 0, None, out, *nothing)

    return run


def subgroups(own):
    """Pairs of neighbours, and 0 with 3 beside 1 with 2, so that ranks are not those of the world; all work at once."""
    import torch.distributed as dist

    own.group()
    groups = [dist.new_group([first, first + 1]) for first in range(0, WORLD, 2)]
    pair = own.rank // 2
    group, rank, members = groups[pair], own.rank % 2, [2 * pair, 2 * pair + 1]
    float32 = own.arrays.type("float32")
    with arfusion.Communicator.from_process_group(group, None, 64, HIDDEN, float32) as core:
        assert (core.rank, core.size) == (rank, 2)
        handles, tensor = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(rank, 2, 64, HIDDEN, True, group)
        backend = comm.TorchDistBackend(group)
        assert (backend.Get_rank(), backend.Get_size()) == (rank, 2)
        assert backend.bcast(own.rank, 1) == members[1] and backend.allgather(own.rank) == tuple(members)
        backend.barrier()
        unified = comm.create_allreduce_fusion_workspace("auto", 2, rank, 64, HIDDEN, float32, None, backend)
        for turn in range(5):
            summed(own, core.all_reduce, members, turn)
            summed(own, older_call(tensor, rank, 2), members, 10 + turn)
            summed(own, lambda x, out: comm.allreduce_fusion(x, unified, 0, output=out), members, 20 + turn)
        unified.destroy()
        comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles, group)
    other = groups[1 - pair]
    rejected(ValueError, "group: this process is not in it", lambda: arfusion.Communicator.from_process_group(other))
    rejected(
        ValueError,
        "group: this process is not in it",
        lambda: comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(0, 2, 8, 64, group=other),
    )
    members = [0, 3] if own.rank in (0, 3) else [1, 2]
    split = comm.TorchDistBackend().Split(members[0], own.rank)
    assert split.allgather(own.rank) == tuple(members)
    unified = comm.create_allreduce_fusion_workspace("trtllm", 2, pair, 64, HIDDEN, float32, comm_backend=split)
    summed(own, lambda x, out: comm.allreduce_fusion(x, unified, 0, output=out), members, 30)
    unified.destroy()


def world(own):
    """No group, and no backend: torch.distributed's default group."""
    own.group()
    float32 = own.arrays.type("float32")
    handles, tensor = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(own.rank, WORLD, 64, HIDDEN, True)
    unified = comm.create_allreduce_fusion_workspace("trtllm", WORLD, own.rank, 64, HIDDEN, float32)
    summed(own, older_call(tensor, own.rank, WORLD), range(WORLD), 1)
    summed(own, lambda x, out: comm.allreduce_fusion(x, unified, 0, output=out), range(WORLD), 5)
    unified.destroy()
    comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles)


def without_torch_distributed(own):
    """torchrun's environment serves."""
    rejected(ValueError, "group|init_process_group", arfusion.Communicator.from_process_group)
    rejected(RuntimeError, "init_process_group", comm.TorchDistBackend)
    handles, tensor = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(own.rank, WORLD, 64, HIDDEN, True)
    summed(own, older_call(tensor, own.rank, WORLD), range(WORLD), 1)
    comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles)


def of_torchs_nccl(own):
    """From the ncclComm_t that torch has for a group of both GPUs. False: this torch does not give it."""
    import torch.distributed as dist

    own.group()
    pair = dist.new_group([0, 1], backend="nccl")
    if own.rank > 1:
        return True
    dist.all_reduce(own.arrays.make(values(0, 4)), group=pair)  # makes it
    backend = pair._get_backend(own.arrays.device)
    if not hasattr(backend, "_comm_ptr"):
        return False
    with arfusion.Communicator.from_nccl(backend._comm_ptr(), 64, HIDDEN, "float32") as core:
        assert (core.rank, core.size, core.device) == (own.rank, 2, own.arrays.device.index)
        summed(own, core.all_reduce, [0, 1], 40)
    return True


@unittest.skipIf(KIND == "numpy", "needs torch")
class Groups(TeamTest):
    SIZE = WORLD

    @unittest.skipIf(KIND == "cuda", "LOCAL_RANK is beyond the GPUs")
    def test_1_without_torch_distributed(self):
        self.team.run(without_torch_distributed)

    @unittest.skipIf(KIND == "cuda", "several ranks would share a GPU")
    def test_2_world(self):
        self.team.run(world)

    def test_3_subgroups(self):
        self.team.run(subgroups)

    @unittest.skipIf(KIND != "cuda", "NCCL is for GPUs")
    def test_4_of_torchs_nccl(self):
        if not all(self.team.run(of_torchs_nccl)):
            self.skipTest("this torch does not give its ncclComm_t")


if __name__ == "__main__":
    unittest.main()
