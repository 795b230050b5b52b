# SPDX-License-Identifier: Apache-2.0
"""Communicators: one a rank, made by all ranks at the same time, used by one thread at a time."""

import ctypes
import sys
from ctypes import byref, c_int, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from . import _abi, _library, _numbers, _rendezvous, arrays, requests
from ._abi import Algorithm, DataType
from ._library import check, library


class Route(NamedTuple):
    """Where an operation went. Algorithm.NONE: the plugin turned it down for `reason`, and the library completed it. An
    algorithm that is none of Algorithm's is a later plugin's: its number."""

    algorithm: Union[Algorithm, int]
    reason: int
    value: int
    limit: int
    launches: int

    @property
    def reason_text(self) -> str:
        return _library.reason_text(self.reason)


_ALGORITHMS = {int(algorithm): algorithm for algorithm in Algorithm}


def _config(max_tokens: int, hidden: int, dtype: Any) -> Optional[_abi.Config]:
    if not max_tokens and not hidden:
        return None
    sizes = (_numbers.signed(max_tokens, "max_tokens", 64), _numbers.signed(hidden, "hidden", 64))
    return _abi.Config(maxTokens=sizes[0], hidden=sizes[1], dataType=arrays.data_type(dtype))


def _stream(stream: int) -> int:
    return _numbers.unsigned(stream, "stream", 64)


def _pointer(config: Optional[_abi.Config]) -> Any:
    return None if config is None else byref(config)


class Communicator:
    """What every call needs. Make one with a class method: `from_environment` (torchrun), `from_process_group`,
    `from_backend`, `from_nccl`, `from_unique_id`, or `all_ranks` for all of them in one process.

    `max_tokens` * `hidden` elements of `dtype` is the largest request that the plugin serves, whatever its own shape;
    left out, 16384 x 8192 of bfloat16. `destroy` frees it; a communicator is a context manager too.
    """

    def __init__(self, handle: c_void_p):
        self._handle: Optional[c_void_p] = handle
        self._route = _abi.RouteStruct()
        self._route_ref = byref(self._route)
        number = c_int()
        check(library.arfusionCommCount(handle, byref(number)))
        self.size: int = number.value
        check(library.arfusionCommUserRank(handle, byref(number)))
        self.rank: int = number.value
        check(library.arfusionCommDevice(handle, byref(number)))
        self.is_host: bool = _library.is_host()
        #: a CUDA ordinal, or arrays.HOST
        self.device: int = arrays.HOST if self.is_host else number.value

    # ------------------------------------------------------------ making one

    @classmethod
    def from_environment(cls, max_tokens: int = 0, hidden: int = 0, dtype: Any = DataType.BFLOAT16) -> "Communicator":
        """From torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, on GPU LOCAL_RANK."""
        handle, config = c_void_p(), _config(max_tokens, hidden, dtype)
        check(library.arfusionCommInitEnvironment(byref(handle), _pointer(config)))
        return cls(handle)

    @classmethod
    def from_unique_id(
        cls,
        unique_id: bytes,
        size: int,
        rank: int,
        device: Optional[int] = None,
        max_tokens: int = 0,
        hidden: int = 0,
        dtype: Any = DataType.BFLOAT16,
    ) -> "Communicator":
        """From an id that `unique_id()` made on one rank and that all have. device None: torch's current GPU, or 0."""
        if len(unique_id) != ctypes.sizeof(_abi.UniqueId):
            raise ValueError(f"unique_id has {len(unique_id)} bytes, {ctypes.sizeof(_abi.UniqueId)} are needed")
        own = _abi.UniqueId.from_buffer_copy(unique_id)
        if device is None:
            torch = sys.modules.get("torch")
            device = torch.cuda.current_device() if torch is not None and not _library.is_host() else 0
        size, rank = _numbers.signed(size, "size"), _numbers.signed(rank, "rank")
        device = _numbers.signed(device, "device")
        handle, config = c_void_p(), _config(max_tokens, hidden, dtype)
        check(library.arfusionCommInitRank(byref(handle), size, byref(own), rank, device, _pointer(config)))
        return cls(handle)

    @classmethod
    def from_process_group(
        cls,
        group: Any = None,
        device: Optional[int] = None,
        max_tokens: int = 0,
        hidden: int = 0,
        dtype: Any = DataType.BFLOAT16,
    ) -> "Communicator":
        """The ranks of a torch.distributed process group (None: all), on torch's current GPU unless `device` says."""
        return cls._of_team(_rendezvous.team_of_group(group), device, max_tokens, hidden, dtype)

    @classmethod
    def from_backend(
        cls,
        backend: Any,
        device: Optional[int] = None,
        max_tokens: int = 0,
        hidden: int = 0,
        dtype: Any = DataType.BFLOAT16,
    ) -> "Communicator":
        """The ranks of an object with Get_rank, Get_size and allgather, as mpi4py's communicators have them."""
        return cls._of_team(_rendezvous.team_of_backend(backend), device, max_tokens, hidden, dtype)

    @classmethod
    def _of_team(
        cls, team: _rendezvous.Team, device: Optional[int], max_tokens: int, hidden: int, dtype: Any
    ) -> "Communicator":
        terms = [("max_tokens", max_tokens), ("hidden", hidden), ("dtype", int(arrays.data_type(dtype)))]
        identifier = _rendezvous.agree(team, terms, unique_id)
        return cls.from_unique_id(identifier, team.size, team.rank, device, max_tokens, hidden, dtype)

    @classmethod
    def from_nccl(
        cls, nccl_comm: int, max_tokens: int = 0, hidden: int = 0, dtype: Any = DataType.BFLOAT16
    ) -> "Communicator":
        """From an ncclComm_t, as an address, on its GPU. It stays the caller's and must outlive the communicator."""
        address = c_void_p(_numbers.unsigned(nccl_comm, "nccl_comm", 64))
        handle, config = c_void_p(), _config(max_tokens, hidden, dtype)
        check(library.arfusionCommInitNccl(byref(handle), address, _pointer(config)))
        return cls(handle)

    @classmethod
    def all_ranks(
        cls,
        size: int,
        devices: Optional[Sequence[int]] = None,
        max_tokens: int = 0,
        hidden: int = 0,
        dtype: Any = DataType.BFLOAT16,
    ) -> List["Communicator"]:
        """All ranks in this process, on `devices` (None: rank modulo the number of devices). On the host device each
        needs a thread of its own."""
        size = _numbers.signed(size, "size")
        if devices is not None and len(devices) != size:
            raise ValueError(f"devices has {len(devices)} entries, size is {size}")
        handles, config = (c_void_p * min(max(size, 1), _abi.MAX_INIT_ALL))(), _config(max_tokens, hidden, dtype)
        own = None if devices is None else (c_int * size)(*(_numbers.signed(device, "devices") for device in devices))
        check(library.arfusionCommInitAll(handles, size, own, _pointer(config)))
        return [cls(c_void_p(handle)) for handle in handles[:size]]

    # ------------------------------------------------------------ its life

    @property
    def handle(self) -> c_void_p:
        """The arfusionComm_t; RuntimeError once the communicator has been destroyed."""
        if self._handle is None:
            raise RuntimeError("the communicator has been destroyed")
        return self._handle

    def destroy(self) -> None:
        """Frees it once this rank's enqueued work has ended. Waits for no other rank; may be called again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            check(library.arfusionCommDestroy(handle))

    def abort(self) -> None:
        """Ends running operations, here and on the ranks that wait for this one; from any thread."""
        check(library.arfusionCommAbort(self.handle))

    def async_error(self) -> str:
        """Why the communicator has failed; "" if it has not. From any thread."""
        result, text = c_int(), ctypes.create_string_buffer(1024)
        check(library.arfusionCommGetAsyncError(self.handle, byref(result), text, len(text)))
        return text.value.decode(errors="replace") if result.value else ""

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.destroy()

    def __del__(self) -> None:
        # When the interpreter ends the devices may be gone already, and the process frees everything anyway.
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.destroy()

    # ------------------------------------------------------------ what is known of it

    def _read(self, function: Any, struct: ctypes.Structure) -> Dict[str, Any]:
        check(function(self.handle, byref(struct)))
        return {name: getattr(struct, name) for name, *_ in struct._fields_ if name not in ("size", "reserved")}

    def capacity(self) -> Dict[str, int]:
        """arfusionCapacity_t: what it serves, in bytes."""
        return self._read(library.arfusionCommGetCapacity, _abi.Capacity())

    def stats(self) -> Dict[str, Any]:
        """arfusionStats_t: what it has done so far. byAlgorithm is by Algorithm, byReason by reason."""
        stats = self._read(library.arfusionCommGetStats, _abi.Stats())
        return {name: list(value) if isinstance(value, ctypes.Array) else value for name, value in stats.items()}

    def workspace(self) -> _abi.Workspace:
        """Where every rank's workspace is mapped; nranks 0: nowhere, the plugin turns everything down."""
        workspace = _abi.Workspace()
        check(library.arfusionCommGetWorkspace(self.handle, byref(workspace)))
        return workspace

    @property
    def route(self) -> Route:
        """Where this communicator's last operation went."""
        route = self._route
        algorithm = route.algorithm
        fields = (_ALGORITHMS.get(algorithm, algorithm), route.reason, route.value, route.limit, route.launches)
        return tuple.__new__(Route, fields)  # Route(...) would be a Python function more, in every call

    # ------------------------------------------------------------ operations

    def run(self, request: _abi.Request, stream: int = 0) -> None:
        """Does a request as it is, on a cudaStream_t: for callers that fill in the pointers themselves."""
        handle = self._handle or self.handle
        result = library.arfusionAllReduce(handle, byref(request), stream, self._route_ref)
        if result:
            check(result)

    def run_epilogue(self, request: _abi.Request, stream: int = 0) -> None:
        """The same for what follows the sum alone."""
        result = library.arfusionEpilogue(self._handle or self.handle, byref(request), stream)
        if result:
            check(result)

    def all_reduce(
        self,
        input: Any,
        output: Any = None,
        *,
        algorithm: Union[str, int] = Algorithm.AUTO,
        stream: Optional[int] = None,
    ) -> Any:
        """The sum over all ranks, into `output` (None: into `input`), which it returns."""
        self.handle
        target = input if output is None else output
        request = requests.all_reduce(self.device, input, target, algorithm)
        self.run(request, arrays.current_stream(self.device) if stream is None else _stream(stream))
        return target

    def allreduce_rmsnorm(
        self, input: Any, gamma: Any, residual: Any = None, *, stream: Optional[int] = None, **options: Any
    ) -> Route:
        """The sum over all ranks, plus `residual`, normalised: see requests.rmsnorm for what else there is. Outputs are
        `residual_out` (may be `residual`), `norm_out` (may be `input`), `quant_out` and `scale_out`; those that are
        None are not written."""
        self.handle
        request = requests.rmsnorm(self.device, input, gamma, residual, **options)
        self.run(request, arrays.current_stream(self.device) if stream is None else _stream(stream))
        return self.route

    def epilogue(
        self, input: Any, gamma: Any, residual: Any = None, *, stream: Optional[int] = None, **options: Any
    ) -> None:
        """The same when `input` holds the sum already. Other ranks have no part in it."""
        self.handle
        request = requests.rmsnorm(self.device, input, gamma, residual, **options)
        self.run_epilogue(request, arrays.current_stream(self.device) if stream is None else _stream(stream))


def unique_id() -> bytes:
    """A fresh id for Communicator.from_unique_id. It holds a secret."""
    identifier = _abi.UniqueId()
    check(library.arfusionGetUniqueId(byref(identifier)))
    return ctypes.string_at(byref(identifier), ctypes.sizeof(identifier))
