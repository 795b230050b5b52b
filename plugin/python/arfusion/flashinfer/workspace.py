# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's workspaces: a communicator each, with what callers look at: addresses, a tensor of them, metadata."""

import ctypes
import logging
import os
import sys
import warnings
from typing import Any, Dict, List, Optional, Tuple

from .. import _abi, _rendezvous, arrays
from .._abi import DataType
from .._library import check, library
from ..communicator import Communicator, unique_id

logger = logging.getLogger(__name__)

_FLOAT32 = int(DataType.FLOAT32)


# ---------------------------------------------------------------- metadata


def check_trtllm_allreduce_fusion_workspace_metadata(
    token_num: int, hidden_dim: int, world_size: int, dtype: Any, metadata: dict
) -> None:
    """ValueError, with every reason, unless a workspace with this metadata serves the request."""
    try:
        if (
            world_size == metadata["tp_size"]
            and token_num * hidden_dim <= metadata["max_token_num"] * metadata["hidden_dim"]
            and metadata["use_fp32_lamport"] == (arrays.known_type(dtype) == _FLOAT32)
        ):
            return
    except (KeyError, TypeError):
        pass
    _raise_misfit(token_num, hidden_dim, world_size, dtype, metadata)


def _raise_misfit(token_num: int, hidden_dim: int, world_size: int, dtype: Any, metadata: dict) -> None:
    """What does not fit, once it is known that something does not."""
    missing = [k for k in ("max_token_num", "tp_size", "hidden_dim", "use_fp32_lamport") if k not in metadata]
    if missing:
        raise ValueError(f"metadata: these keys are missing: {', '.join(missing)}")
    errors = []
    if world_size != metadata["tp_size"]:
        errors.append(f"world_size is {world_size}, the workspace was made for tp_size {metadata['tp_size']}")
    most = metadata["max_token_num"] * metadata["hidden_dim"]
    if token_num * hidden_dim > most:
        errors.append(
            f"token_num {token_num} * hidden_dim {hidden_dim} is {token_num * hidden_dim}, the workspace was made for "
            f"max_token_num {metadata['max_token_num']} * hidden_dim {metadata['hidden_dim']}, {most}"
        )
    if metadata["use_fp32_lamport"] != (arrays.known_type(dtype) == _FLOAT32):
        errors.append(f"dtype is {dtype}, the workspace was made with use_fp32_lamport={metadata['use_fp32_lamport']}")
    if errors:
        raise ValueError("the workspace does not fit: " + "; ".join(errors))


def _metadata(comm: Communicator, use_fp32_lamport: bool) -> Dict[str, Any]:
    struct = _abi.WorkspaceMetadata()
    check(library.arfusionCommGetWorkspaceMetadata(comm.handle, int(use_fp32_lamport), ctypes.byref(struct)))
    metadata = {name: getattr(struct, name) for name, *_ in struct._fields_ if name != "size"}
    metadata["use_fp32_lamport"] = bool(use_fp32_lamport)
    return metadata


# ---------------------------------------------------------------- the older calls


class SymmDeviceMemory:
    """One kind of memory of every rank, as mapped here: what mem_handles has. It stays the workspace's."""

    def __init__(self, comm: Communicator, addresses: List[int], buf_size: int, dev_pointers: int):
        self.device_idx = comm.device
        self.group_size, self.group_rank = comm.size, comm.rank
        self.buf_size = self.allocation_size = buf_size
        self.uc_ptrs = addresses
        self.uc_ptrs_dev = dev_pointers
        self.mc_ptr = 0  # no multicast
        self._comm = comm

    @property
    def mapped(self) -> bool:
        return self._comm._handle is not None

    def get_buffer_ptrs_host(self) -> List[int]:
        return self.uc_ptrs

    def get_buffer_ptrs_dev(self) -> int:
        return self.uc_ptrs_dev

    def get_unicast_ptr(self, rank: int) -> int:
        if not 0 <= rank < self.group_size:
            raise ValueError(f"rank is {rank}, 0 to {self.group_size - 1}")
        return self.uc_ptrs[rank]

    def get_multicast_ptr(self) -> int:
        return self.mc_ptr

    def get_rank(self) -> int:
        return self.group_rank

    def get_world_size(self) -> int:
        return self.group_size

    def get_allocation_size(self) -> int:
        return self.allocation_size

    def get_usable_buffer_size(self) -> int:
        return self.buf_size


class _Made:
    """A workspace that is alive."""

    def __init__(self, comm: Communicator, ipc_handles: List[List[int]], tensor: Any, control: Any):
        self.comm, self.ipc_handles, self.tensor, self.control = comm, ipc_handles, tensor, control


_alive: Dict[int, _Made] = {}  # by id(ipc_handles)
_by_tensor: Dict[int, _Made] = {}  # by the address of the workspace tensor
_by_control: Dict[int, _Made] = {}  # by its last entry, for copies of the tensor


def comm_of_tensor(workspace_ptrs: Any) -> Communicator:
    """The communicator behind a workspace tensor, or behind a copy of one (which has to be read: not in a capture)."""
    try:
        return _by_tensor[workspace_ptrs.data_ptr()].comm
    except (AttributeError, KeyError):
        pass
    view = arrays.view(workspace_ptrs, "workspace_ptrs")
    made = _by_tensor.get(view.pointer)
    if made is None and view.dtype == DataType.INT64 and len(view.shape) == 1 and view.count:
        made = _by_control.get(int(workspace_ptrs[-1]))
    if made is None:
        raise ValueError("workspace_ptrs: no workspace that is alive has this tensor")
    return made.comm


def _int_array(values: List[int], comm: Communicator, name: str) -> Any:
    """On the communicator's device: torch's where the program uses torch, else numpy's."""
    torch = sys.modules.get("torch")
    if torch is not None:
        place = "cpu" if comm.is_host else f"cuda:{comm.device}"
        return torch.tensor(values, dtype=getattr(torch, name), device=place)
    import numpy

    return numpy.array(values, dtype=name)


def _communicator(
    tp_rank: int, tp_size: int, max_token_num: int, hidden_dim: int, use_fp32_lamport: bool, group: Any, backend: Any
) -> Communicator:
    """All ranks succeed or fail alike: whatever may be wrong is told to all before any of them waits."""
    dtype = DataType.FLOAT32 if use_fp32_lamport else DataType.BFLOAT16
    sizes = {"max_token_num": max_token_num, "hidden_dim": hidden_dim}
    if backend is not None:
        team = _rendezvous.team_of_backend(backend)
    elif group is not None or _torch_is_initialized():
        team = _rendezvous.team_of_group(group)
    elif "RANK" not in os.environ:
        raise ValueError("group: torch.distributed is not initialized, and torchrun's RANK is not set")
    else:
        comm = Communicator.from_environment(max_token_num, hidden_dim, dtype)
        if (tp_rank, tp_size) != (comm.rank, comm.size):
            raise ValueError(
                f"tp_rank is {tp_rank} of tp_size {tp_size}, RANK is {comm.rank} of WORLD_SIZE {comm.size}"
            )
        return comm
    terms = [("tp_size", tp_size), *sizes.items(), ("use_fp32_lamport", bool(use_fp32_lamport))]
    claimed = _rendezvous.Team(tp_rank, team.size, team.all_gather)
    identifier = _rendezvous.agree(claimed, terms, unique_id, "tp_rank")
    if tp_size != team.size:
        raise ValueError(f"tp_size is {tp_size}, the group has {team.size} ranks")
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} is {value}, at least 1")
    return Communicator.from_unique_id(identifier, tp_size, tp_rank, None, max_token_num, hidden_dim, dtype)


def _torch_is_initialized() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()


def trtllm_create_ipc_workspace_for_all_reduce_fusion(
    tp_rank: int,
    tp_size: int,
    max_token_num: int,
    hidden_dim: int,
    use_fp32_lamport: bool = False,
    group: Optional[Any] = None,
    create_metadata: bool = False,
    comm_backend: Optional[Any] = None,
    use_symm_dev_mem: bool = False,
) -> Tuple[Any, ...]:
    """A workspace of the ranks of `comm_backend`, else of `group`, else of torch.distributed's default group or,
    without one, of torchrun's environment; on torch's current GPU. All ranks call it together.

    Returns (ipc_handles, workspace tensor); with create_metadata (ipc_handles, tensor, metadata); with use_symm_dev_mem
    too (ipc_handles, tensor, mem_handles, metadata). ipc_handles are three lists of tp_size addresses, as mapped here:
    of each rank's staged data, flags, and Lamport slots (zeros where the ranks cannot map each other's memory;
    operations then go through NCCL). The memory is the communicator's, smaller than metadata's formulas say, and not to
    be written.
    """
    if use_symm_dev_mem and not create_metadata:
        raise ValueError("use_symm_dev_mem is only served with create_metadata=True")
    comm = _communicator(tp_rank, tp_size, max_token_num, hidden_dim, use_fp32_lamport, group, comm_backend)
    metadata = _metadata(comm, use_fp32_lamport)
    where = comm.workspace()
    ends = {
        where.flagsOffset: where.lamportOffset,
        where.lamportOffset: where.stageOffset,
        where.stageOffset: where.bytes,
    }
    offsets = (where.stageOffset, where.flagsOffset, where.lamportOffset)
    ipc_handles = [
        [where.address[rank] + offset if where.nranks else 0 for rank in range(tp_size)] for offset in offsets
    ]
    control = _int_array([0, 0, 0, metadata["lamport_comm_size"], 0], comm, "int32")
    control_pointer = arrays.view(control, "control").pointer
    tensor = _int_array([*sum(ipc_handles, []), control_pointer], comm, "int64")
    made = _Made(comm, ipc_handles, tensor, control)
    first = arrays.view(tensor, "tensor").pointer
    _alive[id(ipc_handles)] = _by_tensor[first] = _by_control[control_pointer] = made
    if not create_metadata:
        return ipc_handles, tensor
    if not use_symm_dev_mem:
        return ipc_handles, tensor, metadata
    metadata["control_flag_ptr"] = control_pointer
    mem_handles = [
        SymmDeviceMemory(comm, ipc_handles[i], ends[offset] - offset if where.nranks else 0, first + i * tp_size * 8)
        for i, offset in enumerate(offsets)
    ]
    return ipc_handles, tensor, mem_handles, metadata


def trtllm_destroy_ipc_workspace_for_all_reduce_fusion(workspace: List[List[int]], group: Optional[Any] = None) -> None:
    """Frees the workspace with these ipc_handles, once this rank's work has ended. Of no workspace: nothing happens."""
    made = _alive.pop(id(workspace), None)
    if made is None:
        return
    _by_tensor.pop(arrays.view(made.tensor, "tensor").pointer)
    _by_control.pop(arrays.view(made.control, "control").pointer)
    made.comm.destroy()


# ---------------------------------------------------------------- the unified calls


class AllReduceFusionWorkspace:
    """What allreduce_fusion takes."""

    _destroyed = True  # until it is made

    def __init__(self, world_size: int, rank: int):
        self.world_size, self.rank = world_size, rank
        self._destroyed = False

    def destroy(self) -> None:
        raise NotImplementedError

    def __del__(self) -> None:
        if not self._destroyed and not sys.is_finalizing():
            warnings.warn(f"{type(self).__name__}: destroy() was not called", ResourceWarning, stacklevel=2)
            self.destroy()


class TRTLLMAllReduceFusionWorkspace(AllReduceFusionWorkspace):
    """The one that create_allreduce_fusion_workspace makes; its attributes are what the older call returns."""

    def __init__(
        self,
        tp_size: int,
        tp_rank: int,
        max_token_num: int,
        hidden_dim: int,
        dtype: Any = "float16",
        comm_backend: Optional[Any] = None,
        group: Optional[Any] = None,
    ):
        made = trtllm_create_ipc_workspace_for_all_reduce_fusion(
            tp_rank,
            tp_size,
            max_token_num,
            hidden_dim,
            use_fp32_lamport=arrays.known_type(dtype) == DataType.FLOAT32,
            group=group,
            create_metadata=True,
            comm_backend=comm_backend,
            use_symm_dev_mem=True,
        )
        super().__init__(tp_size, tp_rank)
        self.ipc_handles, self.workspace_tensor, self.mem_handles, self.metadata = made
        self._comm = _alive[id(self.ipc_handles)].comm

    @property
    def backend(self) -> str:
        return "trtllm"

    @property
    def communicator(self) -> Communicator:
        """RuntimeError once the workspace has been destroyed."""
        if self._destroyed:
            raise RuntimeError("workspace has been destroyed")
        return self._comm

    def is_buffer_size_sufficient(
        self, tp_size: int, num_tokens: int, hidden_dim: int, dtype: Any, use_oneshot: Optional[Any] = None
    ) -> bool:
        try:
            check_trtllm_allreduce_fusion_workspace_metadata(num_tokens, hidden_dim, tp_size, dtype, self.metadata)
        except ValueError as error:
            logger.warning("%s", error)
            return False
        return True

    def checkpoint_prepare(self) -> None:
        raise NotImplementedError("checkpoint_prepare: a workspace's memory stays mapped until destroy()")

    def checkpoint_restore(self, comm_backend: Any) -> None:
        raise NotImplementedError("checkpoint_restore: a workspace's memory stays mapped until destroy()")

    def destroy(self) -> None:
        """Frees it once this rank's work has ended; may be called again."""
        if self._destroyed:
            return
        self._destroyed = True
        trtllm_destroy_ipc_workspace_for_all_reduce_fusion(self.ipc_handles)
        del self.ipc_handles, self.workspace_tensor, self.mem_handles, self.metadata


def _given(name: str, value: Optional[int]) -> int:
    if value is None:
        raise ValueError(f"{name} is None")
    return value


def create_allreduce_fusion_workspace(
    backend: str = "auto",
    world_size: Optional[int] = None,
    rank: Optional[int] = None,
    max_token_num: Optional[int] = None,
    hidden_dim: Optional[int] = None,
    dtype: Any = None,
    gpus_per_node: Optional[int] = None,
    comm_backend: Optional[Any] = None,
    force_oneshot_support: bool = False,
    group: Optional[Any] = None,
) -> AllReduceFusionWorkspace:
    """A workspace for allreduce_fusion: any request of up to max_token_num * hidden_dim elements of dtype. "auto" is
    "trtllm"; gpus_per_node and force_oneshot_support have no effect: every algorithm fits every workspace."""
    if backend in ("mnnvl", "mnnvl-cutedsl"):
        raise NotImplementedError(f"backend is {backend!r}, which needs multicast: it is not served, 'trtllm' is")
    if backend not in ("auto", "trtllm"):
        raise RuntimeError(f"Unknown backend: {backend}")
    return TRTLLMAllReduceFusionWorkspace(
        _given("world_size", world_size),
        _given("rank", rank),
        _given("max_token_num", max_token_num),
        _given("hidden_dim", hidden_dim),
        dtype,
        comm_backend,
        group,
    )
