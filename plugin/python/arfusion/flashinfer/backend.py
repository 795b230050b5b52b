# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's communication backend over torch.distributed: what its callers hand over as `comm_backend`."""

from typing import Any, Optional, Tuple


class TorchDistBackend:
    """The ranks of a torch.distributed process group (None: all). Needs an initialized torch.distributed."""

    def __init__(self, group: Optional[Any] = None):
        import torch.distributed as dist

        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialized: call init_process_group first")
        self._dist, self._group = dist, group

    def Get_rank(self) -> int:
        return self._dist.get_rank(self._group)

    def Get_size(self) -> int:
        return self._dist.get_world_size(self._group)

    def allgather(self, data: Any) -> Tuple[Any, ...]:
        """Every rank's data, in rank order."""
        gathered = [None] * self.Get_size()
        self._dist.all_gather_object(gathered, data, group=self._group)
        return tuple(gathered)

    def bcast(self, data: Any, root: int) -> Any:
        """The data of `root`, a rank of the group."""
        box = [data]
        source = root if self._group is None else self._dist.get_global_rank(self._group, root)
        self._dist.broadcast_object_list(box, src=source, group=self._group)
        return box[0]

    def barrier(self) -> None:
        self._dist.barrier(group=self._group)

    def Split(self, color: int, key: int) -> "TorchDistBackend":
        """The ranks with the same color. All ranks call it. torch orders a group by rank, so `key` has no effect."""
        members: dict = {}
        for its_color, global_rank in self.allgather((color, self._dist.get_rank())):
            members.setdefault(its_color, []).append(global_rank)
        # Every rank makes every group: torch names groups by a counter that all must share.
        groups = {its_color: self._dist.new_group(ranks) for its_color, ranks in sorted(members.items())}
        return TorchDistBackend(groups[color])
