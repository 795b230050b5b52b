# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a communicator meet: one unique id, handed to all by the all-gather that the program has.

Everything that could keep a rank from arriving is exchanged with the id, so that all ranks fail alike, at once.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

AllGather = Callable[[Any], Sequence[Any]]


class Team(NamedTuple):
    """Who takes part: `all_gather(x)` gives every rank's x, in rank order."""

    rank: int
    size: int
    all_gather: AllGather


def team_of_group(group: Any = None) -> Team:
    """The ranks of a torch.distributed process group; None: all."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("group: torch.distributed is not initialized; call init_process_group first")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("group: this process is not in it")

    def all_gather(value: Any) -> List[Any]:
        values: List[Any] = [None] * size
        dist.all_gather_object(values, value, group=group)
        return values

    return Team(rank, size, all_gather)


def team_of_backend(backend: Any) -> Team:
    """The ranks of an object with Get_rank, Get_size and allgather, as mpi4py's communicators have them."""
    for method in ("Get_rank", "Get_size", "allgather"):
        if not hasattr(backend, method):
            raise ValueError(f"comm_backend: a {type(backend).__name__} has no {method}")
    return Team(backend.Get_rank(), backend.Get_size(), backend.allgather)


def agree(team: Team, terms: Sequence[Tuple[str, Any]], make_id: Callable[[], bytes], rank_name: str = "rank") -> bytes:
    """Rank 0's id, once every rank is known to ask for the same. `terms` are (name, value), equal on all ranks."""
    identifier: Optional[bytes] = None
    error = ""
    if team.rank == 0:
        try:
            identifier = make_id()
        except RuntimeError as failure:
            error = str(failure)
    records = list(team.all_gather((team.rank, tuple(terms), identifier, error)))
    ranks = [record[0] for record in records]
    if ranks != list(range(team.size)):
        raise ValueError(f"{rank_name}: the group's ranks say {ranks}, 0 to {team.size - 1} in order are needed")
    for rank, record in enumerate(records):
        for (name, value), (_, first) in zip(record[1], records[0][1]):
            if value != first:
                raise ValueError(f"{name} is {value} on rank {rank} and {first} on rank 0")
    if records[0][3]:
        raise RuntimeError(f"rank 0: {records[0][3]}")
    return records[0][2]
