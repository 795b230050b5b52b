# SPDX-License-Identifier: Apache-2.0
"""arfusion.flashinfer, the older calls: every argument and every return form, and the answers to wrong ones."""

import unittest

import numpy as np

from ranks import KIND, TeamTest
from test_core import HIDDEN, TOKENS, close, reference, rejected, values
from flashinfer_calls import L, MOST, NAMES, P, PATTERNS, arguments, call, check_handles, check_outputs, create
from flashinfer_calls import expected_bytes, read_memory, served

import arfusion
import arfusion.flashinfer as comm


# ---------------------------------------------------------------- workspaces


def return_forms(own):
    plain = create(own)
    check_handles(own, *plain, None)
    assert len(plain) == 2
    for fp32, element in ((True, 4), (False, 2)):
        handles, tensor, metadata = create(own, fp32, create_metadata=True)
        check_handles(own, handles, tensor, metadata)
        elements = own.size * MOST * HIDDEN
        assert list(metadata.items()) == [
            ("tp_rank", own.rank),
            ("tp_size", own.size),
            ("max_token_num", MOST),
            ("hidden_dim", HIDDEN),
            ("use_fp32_lamport", fp32),
            ("buffer_size", elements * 2),
            ("flag_size", own.size * 256 * 4),
            ("lamport_comm_size", elements * element),
            ("lamport_buffer_size", 3 * elements * element),
        ]
        comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles, None)
    handles, tensor, memory, metadata = create(own, create_metadata=True, use_symm_dev_mem=True)
    check_handles(own, handles, tensor, metadata)
    assert metadata["control_flag_ptr"] == int(tensor[-1]) and len(metadata) == 10 and len(memory) == 3
    for i, part in enumerate(memory):
        assert part.get_buffer_ptrs_host() == handles[i] and part.get_unicast_ptr(1) == handles[i][1]
        assert (part.get_rank(), part.get_world_size(), part.mapped) == (own.rank, own.size, True)
        assert part.get_allocation_size() == part.get_usable_buffer_size() >= 4096 and part.get_multicast_ptr() == 0
        read_memory(handles[i][1] + part.get_allocation_size() - 8, 8)
        pointers = np.frombuffer(read_memory(part.get_buffer_ptrs_dev(), 8 * own.size), np.int64)
        assert list(pointers) == handles[i]
        rejected(ValueError, "rank|2", lambda part=part: part.get_unicast_ptr(own.size))
    rejected(ValueError, "use_symm_dev_mem|create_metadata", lambda: create(own, use_symm_dev_mem=True))
    call(own, plain[1], P.kAllReduce)
    for made in (plain[0], handles, handles, [[1]]):  # twice, and what never was one
        comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(made)
    assert not memory[0].mapped
    rejected(ValueError, "workspace_ptrs|alive", lambda: call(own, plain[1], P.kAllReduce))
    rejected(ValueError, "workspace_ptrs|alive", lambda: call(own, tensor, P.kAllReduce))


def capped_metadata(own):
    """lamport_comm_size stops at 2^31 - 2^21; the workspace itself is as large as it needs to be."""
    made = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
        own.rank, own.size, 1 << 17, 8192, create_metadata=True, comm_backend=own.backend()
    )
    assert made[2]["lamport_comm_size"] == (1 << 31) - (1 << 21) and made[2]["buffer_size"] == own.size << 31
    assert np.frombuffer(read_memory(int(made[1][-1]), 20), np.int32)[3] == (1 << 31) - (1 << 21)
    comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(made[0])


def created_wrongly(own):
    """Alike on all ranks, at once."""
    make, backend = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion, own.backend
    size, other = own.size, own.rank
    rejected(ValueError, "tp_rank|[0, 0]", lambda: make(0, size, 8, 64, comm_backend=backend()))
    rejected(ValueError, "tp_size is 3|2 ranks", lambda: make(own.rank, 3, 8, 64, comm_backend=backend()))
    rejected(
        ValueError, "tp_size is 3 on rank 1 and 2", lambda: make(own.rank, 2 + other, 8, 64, comm_backend=backend())
    )
    rejected(
        ValueError, "hidden_dim is 128 on rank 1", lambda: make(own.rank, size, 8, 64 << other, comm_backend=backend())
    )
    rejected(ValueError, "max_token_num is 0", lambda: make(own.rank, size, 0, 64, comm_backend=backend()))
    rejected(ValueError, "hidden_dim is -1", lambda: make(own.rank, size, 8, -1, comm_backend=backend()))
    rejected(ValueError, "use_fp32_lamport", lambda: make(own.rank, size, 8, 64, bool(other), comm_backend=backend()))
    rejected(ValueError, "comm_backend|str", lambda: make(own.rank, size, 8, 64, comm_backend="nccl"))
    unified = comm.create_allreduce_fusion_workspace
    rejected(NotImplementedError, "mnnvl|multicast", lambda: unified("mnnvl", size, own.rank, 8, 64))
    rejected(NotImplementedError, "mnnvl-cutedsl", lambda: unified("mnnvl-cutedsl", size, own.rank, 8, 64))
    rejected(RuntimeError, "Unknown backend: nvls", lambda: unified("nvls", size, own.rank, 8, 64))
    rejected(ValueError, "world_size is None", lambda: unified(rank=own.rank, max_token_num=8, hidden_dim=64))
    rejected(ValueError, "hidden_dim is None", lambda: unified("auto", size, own.rank, 8))


# ---------------------------------------------------------------- the call


def older_calls(own):
    """Every pattern, type, layout and form: the core's bytes, and nothing else is written."""
    own.kept["core"] = arfusion.Communicator.from_backend(own.backend(), None, MOST, HIDDEN, "float32")
    handles, tensor, metadata = create(own, create_metadata=True)
    for name in NAMES:
        for pattern in PATTERNS:
            if not served(pattern, name):
                continue
            for layout in (None, L.LINEAR, L.SWIZZLED_128x4, L.SWIZZLED_8x4) if pattern in (3, 5) else (None,):
                bias = float(pattern % 2)
                wanted = expected_bytes(own, pattern, layout, name, bias)
                for pdl, at_end, oneshot, acc in ((0, 1, None, 0), (1, 0, True, 1), (1, 1, False, 0)):
                    given = arguments(own, name)
                    call(
                        own,
                        tensor,
                        pattern,
                        given,
                        layout_code=layout,
                        launch_with_pdl=bool(pdl),
                        use_oneshot=oneshot,
                        trigger_completion_at_end=bool(at_end),
                        fp32_acc=bool(acc),
                        weight_bias=bias,
                        metadata=metadata if name == "float32" else None,
                    )
                    check_outputs(own, given, wanted, (name, pattern, layout, pdl, oneshot))
    own.kept["older"] = handles, tensor, metadata


def spared_arguments(own):
    """What a pattern does not use may be anything."""
    handles, tensor, metadata = own.kept["older"]
    nonsense = {
        name: "nonsense"
        for name in ("residual_in", "residual_out", "norm_out", "quant_out", "scale_out", "rms_gamma", "scale_factor")
    }
    given = arguments(own)
    call(
        own,
        tensor,
        P.kAllReduce,
        {**given, **nonsense},
        layout_code="nonsense",
        rms_eps="nonsense",
        block_quant_group_size="nonsense",
        weight_bias="nonsense",
    )
    check_outputs(own, given, expected_bytes(own, P.kAllReduce, None, "float32", 0), "nonsense")
    for pattern, spared in (
        (P.kARResidualRMSNorm, ("output", "quant_out", "scale_out", "scale_factor")),
        (P.kARResidualRMSNormFP8Quant, ("output", "norm_out", "scale_out")),
        (P.kARResidualRMSNormDynamicFP8Quant, ("output", "norm_out", "scale_factor")),
        (P.kARResidualRMSNormOutPerTokenGroupFP8PackedQuant, ("output", "scale_factor")),
    ):
        given = arguments(own)
        call(own, tensor, pattern, {**given, **{name: "nonsense" for name in spared}}, layout_code="nonsense")
        check_outputs(own, given, expected_bytes(own, pattern, None, "float32", 0), ("nonsense", pattern))


def other_forms(own):
    """None and other defaults, more forms of arrays, no tokens."""
    handles, tensor, metadata = own.kept["older"]
    # residual_out need not be there; eps None is 0.
    given = arguments(own)
    call(own, tensor, P.kARResidualRMSNorm, {**given, "residual_out": None}, rms_eps=None, weight_bias=None)
    y = reference(own.size)[0]
    norm = y / np.sqrt((y * y).mean(1, keepdims=True)) * values(200, HIDDEN)
    assert close(own.arrays.floats(given["norm_out"]).reshape(norm.shape), norm, "float32")
    # A number, an array of another type, one of several elements, one of no dimension.
    wanted = expected_bytes(own, P.kARResidualRMSNormFP8Quant, None, "float32", 0)
    for scale in (
        0.25,
        own.arrays.make(np.array([0.25]), "float16"),
        own.arrays.make(np.array([0.25, 9], np.float32)),
        own.arrays.make(np.array([0.25], np.float32)).reshape(()),
    ):
        given = arguments(own)
        call(own, tensor, P.kARResidualRMSNormFP8Quant, {**given, "scale_factor": scale})
        check_outputs(own, given, wanted, "scale")
    # gamma of fp32 beside 16-bit data.
    given = arguments(own, "bfloat16")
    call(own, tensor, P.kARResidualRMSNorm, {**given, "rms_gamma": own.arrays.make(values(200, HIDDEN))})
    assert own.arrays.bytes(given["norm_out"]) == expected_bytes(own, 1, None, "bfloat16", 0)["norm_out"]
    # As vLLM has it: the sum with the residual goes to the input.
    given = arguments(own)
    call(own, tensor, P.kARResidualRMSNorm, {**given, "residual_out": given["input"]})
    assert own.arrays.bytes(given["input"]) == expected_bytes(own, 1, None, "float32", 0)["residual_out"]
    assert own.arrays.bytes(given["norm_out"]) == expected_bytes(own, 1, None, "float32", 0)["norm_out"]
    # In place, a longer buffer than needed, a copy of the workspace tensor, and no tokens.
    given = arguments(own)
    call(own, tensor, P.kARResidualRMSNorm, {**given, "residual_out": given["residual_in"], "norm_out": given["input"]})
    wanted = expected_bytes(own, 1, None, "float32", 0)
    assert own.arrays.bytes(given["residual_in"]) == wanted["residual_out"]
    assert own.arrays.bytes(given["input"]) == wanted["norm_out"]
    given = arguments(own)
    call(own, tensor, P.kAllReduce, {**given, "output": given["input"]}, tokens=TOKENS - 1)
    summed = own.arrays.floats(given["input"]).reshape(TOKENS, HIDDEN)
    assert np.array_equal(summed[:-1], sum(values(r, TOKENS, HIDDEN) for r in range(own.size))[:-1])
    assert np.array_equal(summed[-1], values(own.rank, TOKENS, HIDDEN)[-1])
    given = arguments(own)
    call(own, tensor.clone() if own.arrays.torch else tensor.copy(), P.kARResidualRMSNorm, given)
    assert own.arrays.bytes(given["norm_out"]) == wanted["norm_out"]
    for pattern in PATTERNS:
        given = arguments(own, "bfloat16")
        call(own, tensor, pattern, given, tokens=0)
        check_outputs(own, given, {}, "no tokens")


def recorded(own):
    """In a CUDA graph, with what a call makes for itself: a scale from a number, scales that nobody wants. Elsewhere
    than on GPUs the graph is the call itself."""
    handles, tensor, metadata = own.kept["older"]
    torch = own.arrays.torch
    for pattern, layout in ((0, None), (1, None), (2, None), (5, L.SWIZZLED_8x4), (3, L.LINEAR), (9, None), (11, None)):
        given = {**arguments(own, "bfloat16"), "scale_factor": 0.25}

        def run(given=given, pattern=pattern, layout=layout):
            call(own, tensor, pattern, given, layout_code=layout, launch_with_pdl=True, trigger_completion_at_end=False)

        run()
        if KIND == "cuda":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                run()
            run = graph.replay
        wanted = expected_bytes(own, pattern, layout, "bfloat16", 0)
        for _ in range(3):
            for name in ("output", "residual_out", "norm_out", "quant_out", "scale_out"):
                given[name][:] = own.arrays.empty(tuple(given[name].shape), "bfloat16")
            run()
            check_outputs(own, given, wanted, ("recorded", pattern, layout))


def changed_calls(own):
    """A function that makes calls whose arguments are right but for those it is given."""
    tensor, given = own.kept["older"][1], arguments(own)

    def with_(pattern=P.kARResidualRMSNorm, more=None, **changed):
        return lambda: call(own, tensor, pattern, {**given, **changed}, **(more or {}))

    return with_


def wrong_arrays(own, with_):
    arrays = own.arrays
    short, half = arrays.empty((TOKENS * HIDDEN - 1,)), arrays.empty((TOKENS * HIDDEN,), "float16")
    spread = arrays.empty((2 * TOKENS * HIDDEN,))[::2]
    for argument, name in (("input", "allreduce_in"), ("residual_in",) * 2, ("residual_out",) * 2, ("norm_out",) * 2):
        rejected(ValueError, f"{name} has|elements, {TOKENS * HIDDEN}", with_(**{argument: short}))
        rejected(ValueError, f"{name} must be contiguous", with_(**{argument: spread}))
        rejected(ValueError, f"{name} is a list", with_(**{argument: [1.0]}))
        if argument != "input":  # whose dtype is the others' measure
            rejected(ValueError, f"{name}: its dtype", with_(**{argument: half}))
    rejected(ValueError, "allreduce_out is None", with_(P.kAllReduce, output=None))
    rejected(ValueError, "allreduce_out: its dtype", with_(P.kAllReduce, output=half))
    for name in ("residual_in", "norm_out", "rms_gamma"):
        rejected(ValueError, f"{name} is None", with_(**{name: None}))
    rejected(ValueError, "rms_gamma has", with_(rms_gamma=short[: HIDDEN - 1]))
    rejected(ValueError, "rms_gamma: its dtype", with_(rms_gamma=half[:HIDDEN]))
    rejected(NotImplementedError, "allreduce_in|dtype|bfloat16", with_(input=arrays.empty((TOKENS * HIDDEN,), "int32")))
    rejected(ValueError, "allreduce_in is a list", with_(input=[1.0]))
    if not arrays.torch:
        fixed = arrays.empty((TOKENS * HIDDEN,))
        fixed.flags.writeable = False
        rejected(ValueError, "norm_out is read-only", with_(norm_out=fixed))
    else:
        away = arrays.torch.empty((TOKENS * HIDDEN,), device="meta")
        rejected(ValueError, "norm_out is on device meta" if KIND != "cuda" else "norm_out", with_(norm_out=away))
    if KIND == "cuda":
        rejected(ValueError, "norm_out is on host memory|GPU", with_(norm_out=np.zeros(TOKENS * HIDDEN, np.float32)))


def wrong_quantizations(own, with_):
    short, spread = own.arrays.empty((TOKENS * HIDDEN - 1,)), own.arrays.empty((2 * TOKENS * HIDDEN,))[::2]
    quant = (P.kARResidualRMSNormFP8Quant, P.kARResidualRMSNormOutFP8Quant, 8, 9, 10, 11)
    for pattern in quant:
        rejected(ValueError, "quant_out is None", with_(pattern, quant_out=None))
        rejected(
            ValueError,
            f"quant_out has|bytes, {TOKENS * HIDDEN}",
            with_(pattern, quant_out=short[: TOKENS * HIDDEN // 4 - 1]),
        )
        rejected(ValueError, "quant_out must be contiguous", with_(pattern, quant_out=spread))
    for pattern in (8, 9, 10, 11):
        rejected(ValueError, "scale_out is None", with_(pattern, scale_out=None))
        rejected(ValueError, "scale_out has|bytes", with_(pattern, scale_out=short[:4]))
    for size in (None, 0, -8, 48, 7):
        rejected(ValueError, f"group|{'' if size is None else size}", with_(8, {"block_quant_group_size": size}))
    rejected(ValueError, "scale_factor is None", with_(2, scale_factor=None))
    rejected(ValueError, "scale_factor has 0", with_(2, scale_factor=short[:0]))
    rejected(ValueError, "scale_factor is a str", with_(2, scale_factor="1"))
    fp4 = arguments(own, "bfloat16")
    rejected(ValueError, "kARResidualRMSNormFP4Quant|float32", with_(3))
    rejected(ValueError, "layout_code|7", with_(3, {"layout_code": 7}, **fp4))
    rejected(
        ValueError, "scale_out has", with_(3, {"layout_code": L.LINEAR}, **{**fp4, "scale_out": fp4["scale_out"][:39]})
    )


def wrong_choices(own, with_):
    rejected(ValueError, "pattern_code is 12", with_(12))
    rejected(NotImplementedError, "kMoEReductionARResidualRMSNorm", with_(P.kMoEReductionARResidualRMSNorm))
    rejected(NotImplementedError, "kMoEFinalizeARResidualRMSNorm", with_(P.kMoEFinalizeARResidualRMSNorm))
    rejected(NotImplementedError, "trtllm_moe_allreduce_fusion", lambda: comm.trtllm_moe_allreduce_fusion(1, rank=2))
    rejected(NotImplementedError, "trtllm_moe_finalize", lambda: comm.trtllm_moe_finalize_allreduce_fusion())
    few = {"use_oneshot": False, "tokens": own.size}
    rejected(AssertionError, "use_oneshot|2", with_(more=few))
    rejected(ValueError, "token_num is -1", with_(more={"tokens": -1}))
    metadata = own.kept["older"][2]
    rejected(ValueError, "token_num 999|max_token_num 64", with_(more={"metadata": metadata, "tokens": 999}))
    rejected(ValueError, "use_fp32_lamport", with_(more={"metadata": {**metadata, "use_fp32_lamport": False}}))
    rejected(ValueError, "tp_size|hidden_dim", with_(more={"metadata": {"max_token_num": 1, "use_fp32_lamport": True}}))


def wrong_workspaces(own, given):
    tensor = own.kept["older"][1]
    keywords = dict(
        launch_with_pdl=False,
        trigger_completion_at_end=True,
        fp32_acc=True,
        pattern_code=0,
        use_oneshot=None,
        allreduce_out=given["output"],
        **{
            name: None
            for name in (
                "residual_in",
                "residual_out",
                "norm_out",
                "quant_out",
                "scale_out",
                "rms_gamma",
                "rms_eps",
                "scale_factor",
                "layout_code",
            )
        },
    )
    older = comm.trtllm_allreduce_fusion
    rejected(ValueError, "world_size 3", lambda: older(given["input"], 3, own.rank, 1, HIDDEN, tensor, **keywords))
    rejected(ValueError, "world_rank", lambda: older(given["input"], 2, 1 - own.rank, 1, HIDDEN, tensor, **keywords))
    other = own.arrays.make(np.arange(7), "int64")
    rejected(ValueError, "workspace_ptrs", lambda: older(given["input"], 2, own.rank, 1, HIDDEN, other, **keywords))
    rejected(
        ValueError, "workspace_ptrs is a list", lambda: older(given["input"], 2, own.rank, 1, HIDDEN, [1], **keywords)
    )


def wrong_older_calls(own):
    handles, tensor, metadata = own.kept["older"]
    core, with_ = comm.workspace.comm_of_tensor(tensor), changed_calls(own)
    before = core.stats()["launches"]
    wrong_arrays(own, with_)
    wrong_quantizations(own, with_)
    wrong_choices(own, with_)
    wrong_workspaces(own, arguments(own))
    assert core.stats()["launches"] == before
    call(own, tensor, P.kAllReduce)
    comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(handles)


class Workspaces(TeamTest):
    def test_1_return_forms(self):
        self.team.run(return_forms)

    def test_1_capped_metadata(self):
        self.team.run(capped_metadata)

    def test_1_created_wrongly(self):
        self.team.run(created_wrongly)

    def test_2_older_calls(self):
        self.team.run(older_calls)

    def test_3_spared_arguments(self):
        self.team.run(spared_arguments)

    def test_3_other_forms(self):
        self.team.run(other_forms)

    def test_3_recorded(self):
        self.team.run(recorded)

    def test_4_wrong_older_calls(self):
        self.team.run(wrong_older_calls)

    def test_size_helper(self):
        self.assertEqual(comm.compute_fp4_swizzled_layout_sf_size(1, 1), 512)
        self.assertEqual(comm.compute_fp4_swizzled_layout_sf_size(129, 9), 256 * 12)


if __name__ == "__main__":
    unittest.main()
