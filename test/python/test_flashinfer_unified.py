# SPDX-License-Identifier: Apache-2.0
"""arfusion.flashinfer, the unified calls: every argument and what is returned, and the answers to wrong ones."""

import logging
import unittest
import warnings

import numpy as np

from ranks import TeamTest
from test_core import EPS, HIDDEN, TOKENS, close, reference, rejected, values
from flashinfer_calls import MOST, NAMES, P, PATTERNS, arguments, call, check_handles, check_outputs
from flashinfer_calls import expected_bytes, served

import arfusion
import arfusion.flashinfer as comm


def unified(own, dtype="float32", **more):
    more.setdefault("comm_backend", own.backend())
    return comm.create_allreduce_fusion_workspace(
        "trtllm", own.size, own.rank, MOST, HIDDEN, own.arrays.type(dtype), **more
    )


def shaped(own, pattern, name):
    """arguments() as FlashInfer wants them for this pattern."""
    given = arguments(own, name, flat=False)
    if pattern in (10, 11):
        given.update(
            quant_out=own.arrays.empty((TOKENS, HIDDEN), "float8_e4m3fn"), scale_out=own.arrays.empty((TOKENS, 1))
        )
    if pattern in (8, 9):
        apart = (TOKENS + 3) // 4 * 4
        words = own.arrays.empty((HIDDEN // 32 // 4 * apart,), "int32")
        given["scale_out"] = (
            words.reshape(-1, apart).T[:TOKENS] if not own.arrays.torch else words.view(-1, apart).T[:TOKENS]
        )
        given["block_quant_group_size"] = 32
    return given


def unified_calls(own):
    own.kept["core"] = arfusion.Communicator.from_backend(own.backend(), None, MOST, HIDDEN, "float32")
    workspaces = {name: unified(own, name) for name in NAMES}
    for name, workspace in workspaces.items():
        assert (workspace.backend, workspace.world_size, workspace.rank) == ("trtllm", own.size, own.rank)
        assert len(workspace.mem_handles) == 3 and workspace.metadata["max_token_num"] == MOST
        check_handles(own, workspace.ipc_handles, workspace.workspace_tensor, workspace.metadata)
        for pattern in PATTERNS:
            if not served(pattern, name):
                continue
            kind = comm.constants.PATTERNS[pattern]
            wanted = expected_bytes(own, pattern, None, name, 1.0)
            given = shaped(own, pattern, name)
            result = comm.allreduce_fusion(
                given.pop("input"), workspace, pattern, rms_eps=EPS, weight_bias=1.0, **given
            )
            returned = "norm_out" if kind.norm_out else "quant_out" if kind.quant else "output"
            assert result is given[returned]
            if pattern in (8, 9):  # in the order of memory
                given["scale_out"] = given["scale_out"].T
                columns = np.frombuffer(wanted.pop("scale_out"), np.int32)
                found = np.frombuffer(own.arrays.bytes(given.pop("scale_out")), np.int32).reshape(-1, TOKENS)
                for column, words in enumerate(found):
                    assert np.array_equal(words, columns[column * 8 : column * 8 + TOKENS])
                given["scale_out"] = own.arrays.empty((1,))
            check_outputs(own, given, wanted, (name, pattern))
    own.kept["unified"] = workspaces["float32"]
    for name in ("float16", "bfloat16"):
        workspaces[name].destroy()


def unified_defaults(own):
    """Outputs that are made, arguments in their order, in place, what fits."""
    workspace, given = own.kept["unified"], arguments(own, flat=False)
    summed = comm.allreduce_fusion(given["input"], workspace, P.kAllReduce)
    assert own.arrays.bytes(summed) == expected_bytes(own, 0, None, "float32", 0)["output"]
    assert summed.shape == given["input"].shape and summed is not given["input"]
    norm = comm.allreduce_fusion(
        given["input"],
        workspace,
        1,
        True,
        False,
        None,
        None,
        None,
        None,
        None,
        given["residual_in"],
        given["rms_gamma"],
        EPS,
    )
    assert own.arrays.bytes(norm) == expected_bytes(own, 1, None, "float32", 0)["norm_out"]
    small = comm.allreduce_fusion(
        given["input"], workspace, 1, residual_in=given["residual_in"], rms_gamma=given["rms_gamma"]
    )
    y = reference(own.size)[0]
    assert close(
        own.arrays.floats(small), y / np.sqrt((y * y).mean(1, keepdims=True) + 1e-6) * values(200, HIDDEN), "float32"
    )
    result = comm.allreduce_fusion(
        input=given["input"],
        workspace=workspace,
        pattern=1,
        norm_out=given["input"],
        residual_out=given["residual_in"],
        residual_in=given["residual_in"],
        rms_gamma=given["rms_gamma"],
        rms_eps=EPS,
        use_oneshot=True,
        fp32_acc=True,
    )
    assert result is given["input"]
    wanted = expected_bytes(own, 1, None, "float32", 0)
    assert own.arrays.bytes(given["residual_in"]) == wanted["residual_out"]
    assert own.arrays.bytes(given["input"]) == wanted["norm_out"]
    assert workspace.communicator.route.algorithm == arfusion.Algorithm.ONESHOT_LAMPORT
    x = own.arrays.make(values(own.rank, TOKENS, HIDDEN))
    comm.allreduce_fusion(x, workspace, 0, use_oneshot=False)
    assert workspace.communicator.route.algorithm == arfusion.Algorithm.TWOSHOT
    logging.disable(logging.WARNING)
    dtype, fits = own.arrays.type("float32"), workspace.is_buffer_size_sufficient
    assert fits(own.size, MOST, HIDDEN, dtype) and fits(own.size, 2 * MOST, HIDDEN // 2, dtype, True)
    assert not fits(own.size, MOST + 1, HIDDEN, dtype) and not fits(own.size + 1, 1, HIDDEN, dtype)
    assert not fits(own.size, 1, HIDDEN, own.arrays.type("float16"))
    logging.disable(logging.NOTSET)


def wrong_unified_calls(own):
    workspace, arrays = own.kept["unified"], own.arrays
    before = workspace.communicator.stats()["launches"]

    def with_(pattern, **changed):
        given = {**shaped(own, pattern, "float32"), **changed}
        return lambda: comm.allreduce_fusion(given.pop("input"), given.pop("workspace", workspace), pattern, **given)

    rejected(ValueError, "input|[token_num, hidden_dim]", with_(1, input=arrays.empty((TOKENS * HIDDEN,))))
    rejected(ValueError, "input is a list", with_(1, input=[[1.0]]))
    rejected(ValueError, "input must be contiguous", with_(1, input=arrays.empty((TOKENS, 2 * HIDDEN))[:, ::2]))
    for name in ("residual_in", "residual_out", "norm_out"):
        rejected(ValueError, f"{name}|shape", with_(1, **{name: arrays.empty((TOKENS, HIDDEN // 2))}))
        rejected(ValueError, f"{name}|shape", with_(1, **{name: arrays.empty((TOKENS + 1, HIDDEN))}))
        rejected(
            ValueError, f"{name} must be contiguous", with_(1, **{name: arrays.empty((TOKENS, 2 * HIDDEN))[:, ::2]})
        )
        rejected(ValueError, f"{name}: its dtype", with_(1, **{name: arrays.empty((TOKENS, HIDDEN), "float16")}))
    rejected(ValueError, "output|shape", with_(0, output=arrays.empty((TOKENS, 1))))
    for name in ("residual_out", "quant_out", "scale_out", "residual_in", "rms_gamma", "norm_out"):
        rejected(ValueError, f"{name} is None", with_(11, **{name: None}))
    rejected(ValueError, "quant_out|shape", with_(10, quant_out=arrays.empty((TOKENS, HIDDEN // 2), "float8_e4m3fn")))
    rejected(ValueError, "quant_out|float8_e4m3fn", with_(10, quant_out=arrays.empty((TOKENS, HIDDEN))))
    rejected(ValueError, "scale_out|float32", with_(10, scale_out=arrays.empty((TOKENS, 1), "float16")))
    rejected(ValueError, "scale_out|shape", with_(10, scale_out=arrays.empty((TOKENS,))))
    rejected(ValueError, "block_quant_group_size is None", with_(8, block_quant_group_size=None))
    rejected(ValueError, "block_quant_group_size is 0", with_(8, block_quant_group_size=0))
    rejected(ValueError, "block_quant_group_size is 48", with_(9, block_quant_group_size=48))
    rejected(ValueError, "scale_out is None", with_(8, scale_out=None))
    rejected(ValueError, "scale_out shape", with_(8, scale_out=arrays.empty((TOKENS, 3), "int32")))
    rejected(ValueError, "scale_out stride", with_(8, scale_out=arrays.empty((TOKENS, 2), "int32")))
    turned = arrays.empty((2, 8))
    rejected(ValueError, "scale_out dtype", with_(8, scale_out=turned.T[:TOKENS]))
    rejected(ValueError, "scale_factor is None", with_(2, scale_factor=None))
    rejected(NotImplementedError, "pattern is kMoEFinalizeARResidualRMSNorm", with_(P.kMoEFinalizeARResidualRMSNorm))
    rejected(ValueError, "pattern is 99", with_(99))
    rejected(TypeError, "workspace is a int", with_(1, workspace=7))
    foreign = type("MNNVL", (), {"backend": "mnnvl"})()
    rejected(NotImplementedError, "workspace|mnnvl|multicast", with_(1, workspace=foreign))
    rejected(ValueError, "token_num 65", with_(0, input=arrays.empty((MOST + 1, HIDDEN))))
    rejected(ValueError, "use_fp32_lamport", with_(0, input=arrays.empty((1, HIDDEN), "float16")))
    rejected(NotImplementedError, "checkpoint_prepare", workspace.checkpoint_prepare)
    rejected(NotImplementedError, "checkpoint_restore", lambda: workspace.checkpoint_restore(None))
    assert workspace.communicator.stats()["launches"] == before
    x = arrays.make(values(own.rank, TOKENS, HIDDEN))
    comm.allreduce_fusion(x, workspace, P.kAllReduce, output=x)
    assert np.array_equal(arrays.floats(x), sum(values(r, TOKENS, HIDDEN) for r in range(own.size)))
    tensor = workspace.workspace_tensor
    workspace.destroy()
    workspace.destroy()
    assert not hasattr(workspace, "ipc_handles") and not hasattr(workspace, "metadata")
    rejected(RuntimeError, "workspace has been destroyed", lambda: comm.allreduce_fusion(x, workspace, 0))
    rejected(ValueError, "workspace_ptrs", lambda: call(own, tensor, P.kAllReduce))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unified(own)
    assert [w.category for w in caught] == [ResourceWarning] and "destroy" in str(caught[0].message)


class Unified(TeamTest):
    def test_1_unified_calls(self):
        self.team.run(unified_calls)

    def test_2_unified_defaults(self):
        self.team.run(unified_defaults)

    def test_3_wrong_unified_calls(self):
        self.team.run(wrong_unified_calls)


if __name__ == "__main__":
    unittest.main()
