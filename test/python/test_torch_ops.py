# SPDX-License-Identifier: Apache-2.0
"""torch.ops.arfusion: bits, torch's own checks of operators, torch.compile, CUDA graphs, and wrong arguments."""

import unittest

from ranks import KIND, TeamTest
from reference_cases import GAMMA, INPUT, RESIDUAL, load
from test_core import rejected

if KIND == "numpy":
    raise unittest.SkipTest("the operators are PyTorch's (TEST_ARRAYS is numpy)")

import torch

import arfusion
import arfusion.ops

OPS = torch.ops.arfusion
GROUP, HIDDEN, EPS = "ranks", 256, 1e-5
LARGEST = 600000  # elements of a case


# ---------------------------------------------------------------- on every rank


def start(own):
    own.kept["comm"] = arfusion.Communicator.from_backend(own.backend(), max_tokens=512, hidden=16384, dtype="float32")
    arfusion.ops.register(GROUP, own.kept["comm"])


def tensors(own, tokens=5, dtype=torch.bfloat16, hidden=HIDDEN):
    """input, residual, weight: the residual is the same on all ranks."""
    generator = torch.Generator().manual_seed(own.rank)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    generator.manual_seed(99)
    residual, weight = torch.randn(tokens, hidden, generator=generator), torch.rand(hidden, generator=generator)
    return tuple(t.to(own.arrays.device, dtype) for t in (x, residual, weight))


def number(own, value):
    return torch.tensor([value], dtype=torch.float32, device=own.arrays.device)


def same(a, b):
    """Whether tensors, or tuples of them, have the same bits."""
    if isinstance(a, torch.Tensor):
        a, b = (a,), (b,)
    return len(a) == len(b) and all(
        p.dtype == q.dtype and p.shape == q.shape and torch.equal(p.view(torch.uint8), q.view(torch.uint8))
        for p, q in zip(a, b)
    )


def run_case(own, case):
    """The case by every operator that can do it: what is wrong."""
    x, residual, weight = (
        case.tensor(t, rank, torch, own.arrays.device) for t, rank in ((INPUT, own.rank), (RESIDUAL, 0), (GAMMA, 0))
    )
    residual = residual if case.residual else None
    arguments = (case.eps, GROUP, case.weight_bias)
    read = own.arrays.bytes
    if case.pattern == "allreduce":
        wrong = case.wrong({"allreduce_out": read(OPS.all_reduce(x, GROUP))})
        OPS.all_reduce_(x, GROUP)
        return wrong + case.wrong({"allreduce_out": read(x)})
    if case.quant == "fp8":
        quant, y = OPS.allreduce_add_rmsnorm_fp8(x, residual, weight, number(own, case.scale), *arguments)
        return case.wrong({"quant_out": read(quant), "residual_out": read(y)})
    if case.quant == "nvfp4":
        scale = number(own, case.scale)
        quant, scales, y = OPS.allreduce_add_rmsnorm_nvfp4(x, residual, weight, scale, *arguments, case.swizzled)
        return case.wrong({"quant_out": read(quant), "scale_out": read(scales), "residual_out": read(y)})
    outputs = [OPS.allreduce_add_rmsnorm(x, residual, weight, *arguments)]
    outputs.append(OPS.epilogue(OPS.all_reduce(x, GROUP), residual, weight, *arguments))
    wrong = [w for norm, y in outputs for w in case.wrong({"norm_out": read(norm), "residual_out": read(y)})]
    OPS.allreduce_add_rmsnorm_(x, residual, weight, *arguments)
    wrong += case.wrong({"norm_out": read(x)})
    return wrong + (case.wrong({"residual_out": read(residual)}) if case.residual else [])


def run_cases(own):
    cases = [c for c in load(ranks=2) if c.tokens * c.hidden <= LARGEST and c.quant in ("none", "fp8", "nvfp4")]
    wrong = {case.id: found for case in cases for found in [run_case(own, case)] if found}
    assert not wrong, wrong
    return len(cases)


def calls(own, dtype=torch.bfloat16):
    """Every operator with arguments of its own."""
    x, residual, weight = tensors(own, dtype=dtype)
    half, large = number(own, 0.5), number(own, 96.0)
    return {
        "all_reduce": (x, GROUP),
        "all_reduce_": (x.clone(), GROUP),
        "allreduce_add_rmsnorm": (x, residual, weight, EPS, GROUP),
        "allreduce_add_rmsnorm_": (x.clone(), residual.clone(), weight, EPS, GROUP, 1.0),
        "allreduce_add_rmsnorm_fp8": (x, None, weight, half, EPS, GROUP),
        "allreduce_add_rmsnorm_nvfp4": (x, residual, weight, large, EPS, GROUP, 0.0, False),
        "epilogue": (x, residual, weight, EPS, GROUP),
        "flashinfer_trtllm_fused_allreduce_norm": (
            x.clone(), residual.clone(), weight, EPS, 2, True, True, 64, 2, None,
            torch.empty_like(x, dtype=torch.uint8), None, half,
        ),
    }  # fmt: skip


def torchs_checks(own):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for name, arguments in calls(own).items():
        # The first one multiplies outputs, which torch cannot do with e4m3.
        torch.library.opcheck(
            getattr(OPS, name).default, arguments, test_utils=checks[name.endswith(("_fp8", "_nvfp4")) :]
        )


def compiled(own, backend):
    """Two layers as one graph, of any number of tokens, against the same calls."""

    def layers(x, residual, weight, scale):
        norm, y = OPS.allreduce_add_rmsnorm(x * 2, residual, weight, EPS, GROUP)
        OPS.allreduce_add_rmsnorm_(norm, y, weight, EPS, GROUP)
        codes, total = OPS.allreduce_add_rmsnorm_fp8(norm + 1, y, weight, scale, EPS, GROUP)
        tail = OPS.epilogue(OPS.all_reduce(total, GROUP), None, weight, EPS, GROUP)[0]
        return norm, codes, tail

    torch._dynamo.reset()
    graph = torch.compile(layers, fullgraph=True, backend=backend)
    for tokens in (3, 7):
        arguments = (*tensors(own, tokens), number(own, 0.25))
        assert same(graph(*arguments), layers(*arguments)), tokens


def captured(own):
    """Every operator in one CUDA graph, replayed on new inputs."""
    stream = torch.cuda.Stream()
    x, residual, weight = tensors(own)
    scale, inputs = number(own, 96.0), torch.empty_like(x)

    def everything():
        norm, y = OPS.allreduce_add_rmsnorm(inputs, residual, weight, EPS, GROUP)
        codes, scales, y = OPS.allreduce_add_rmsnorm_nvfp4(norm, y, weight, scale, EPS, GROUP)
        eights, y = OPS.allreduce_add_rmsnorm_fp8(norm, y, weight, scale, EPS, GROUP)
        OPS.all_reduce_(y, GROUP)
        return OPS.epilogue(y, None, weight, EPS, GROUP) + (codes, scales, eights)

    inputs.copy_(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        everything()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        results = everything()
    for i in range(20):
        inputs.copy_(x * (i + 1))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert same(results, everything()), i
        torch.cuda.synchronize()


def no_tokens(own):
    x, residual, weight = tensors(own, 0)
    norm, y = OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP)
    assert norm.shape == y.shape == (0, HIDDEN)
    assert OPS.all_reduce(x, GROUP).shape == (0, HIDDEN)
    assert OPS.epilogue(x, residual, weight, EPS, GROUP)[0].shape == (0, HIDDEN)
    codes, scales, _ = OPS.allreduce_add_rmsnorm_nvfp4(x, residual, weight, number(own, 1.0), EPS, GROUP)
    assert codes.shape == (0, HIDDEN // 2) and scales.shape == (0, HIDDEN // 16)


def more_dimensions(own):
    """[batch, tokens, hidden] is the same as its rows."""
    x, residual, weight = tensors(own, 6)
    wide = OPS.allreduce_add_rmsnorm(x.view(2, 3, -1), residual.view(2, 3, -1), weight, EPS, GROUP)
    flat = OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP)
    assert all(w.shape == (2, 3, HIDDEN) and same(w.view(6, -1), f) for w, f in zip(wide, flat))
    one = OPS.allreduce_add_rmsnorm(x[0], residual[0], weight, EPS, GROUP)
    assert same(one, tuple(f[0] for f in flat))


def as_vllm_calls_it(own):
    fused = OPS.flashinfer_trtllm_fused_allreduce_norm
    x, residual, weight = tensors(own, 6)
    half, large = number(own, 0.5), number(own, 96.0)
    norm, y = OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP, 1.0)
    eights, _ = OPS.allreduce_add_rmsnorm_fp8(x, residual, weight, half, EPS, GROUP, 1.0)
    fours, scales, _ = OPS.allreduce_add_rmsnorm_nvfp4(x, residual, weight, large, EPS, GROUP, 1.0)
    for pattern, writes_norm, expected, scale in (
        (1, True, (), None),
        (2, False, (eights,), half),
        (3, False, (fours, scales), large),
        (4, True, (eights,), half),
        (5, True, (fours, scales), large),
    ):
        for own_norm in (False, True):
            source, sums = x.clone(), residual.clone()
            given = torch.zeros_like(x) if own_norm else None
            outputs = tuple(torch.empty_like(t) for t in expected)
            quant_out, scale_out = (outputs + (None, None))[:2]
            fused(source, sums, weight, EPS, 2, True, True, 6, pattern, given, quant_out, scale_out, scale, 1.0)
            assert same(outputs, expected), pattern
            assert same(source if own_norm else sums, y), pattern
            if own_norm:
                assert same(sums, residual) and same(given, norm if writes_norm else torch.zeros_like(x)), pattern
            else:
                assert same(source, norm if writes_norm else x), pattern
    shaped = x.view(2, 3, -1).clone()
    fused(shaped, residual.view(2, 3, -1).clone(), weight, EPS, 2, False, False, 6, 1, weight_bias=1.0)
    assert same(shaped.view(6, -1), norm)


def as_vllm(x, residual, weight):
    """vLLM's call; its pattern, and what else is to be wrong, come later."""
    vllm = OPS.flashinfer_trtllm_fused_allreduce_norm

    def with_(pattern=1, input=x, residual=residual, weight=weight, size=2, limit=64, **more):
        return lambda: vllm(input, residual, weight, EPS, size, True, True, limit, pattern, **more)

    return with_


def wrong_calls(x, residual, weight, scale, vllm):
    """Calls, and what their errors say."""
    fused, eights = OPS.allreduce_add_rmsnorm, torch.empty_like(x, dtype=torch.float8_e4m3fn)
    small = torch.empty(7, dtype=torch.uint8, device=x.device)
    table = [
        ("group|nobody|'ranks'", lambda: OPS.all_reduce(x, "nobody")),
        ("group|nobody", lambda: fused(x, residual, weight, EPS, "nobody")),
        ("input|not contiguous|[1, 256]", lambda: OPS.all_reduce(x.t(), GROUP)),
        ("input|torch.bool", lambda: OPS.all_reduce(x.bool(), GROUP)),
        ("input|torch.float64", lambda: fused(x.double(), residual, weight, EPS, GROUP)),
        ("input|not contiguous", lambda: fused(x[:, ::2], residual, weight, EPS, GROUP)),
        ("input|[]", lambda: fused(x[0, 0], residual, weight, EPS, GROUP)),
        ("hidden is not a multiple|12, limit 16", lambda: OPS.epilogue(
            x[:, :6].contiguous(), None, weight[:6], EPS, GROUP)),
        ("residual|[4, 256]|[5, 256]", lambda: fused(x, residual[:4], weight, EPS, GROUP)),
        ("residual|torch.float32|torch.bfloat16", lambda: fused(x, residual.float(), weight, EPS, GROUP)),
        ("residual|not contiguous", lambda: fused(x, residual.t().contiguous().t(), weight, EPS, GROUP)),
        ("weight|[255]|[256]", lambda: fused(x, residual, weight[1:], EPS, GROUP)),
        ("weight|torch.float16|torch.float32", lambda: fused(x, residual, weight.half(), EPS, GROUP)),
        ("weight|[1, 256]|[256]", lambda: fused(x, residual, weight[None], EPS, GROUP)),
        ("scale|torch.float64|torch.float32", lambda: OPS.allreduce_add_rmsnorm_fp8(
            x, residual, weight, scale.double(), EPS, GROUP)),
        ("global_scale|[5]|[1]", lambda: OPS.allreduce_add_rmsnorm_nvfp4(
            x, residual, weight, torch.ones(5, device=x.device), EPS, GROUP)),
        ("input|nvfp4|16", lambda: OPS.allreduce_add_rmsnorm_nvfp4(
            x[:, :24].contiguous(), None, weight[:24], scale, EPS, GROUP)),
        ("residual is on meta", lambda: fused(x, residual.to("meta"), weight, EPS, GROUP)),
        ("weight is on meta", lambda: OPS.epilogue(x, residual, weight.to("meta"), EPS, GROUP)),
        ("rms_gamma is on meta", vllm(weight=weight.to("meta"))),
        ("world_size|3 ranks", vllm(size=3)),
        ("allreduce_in|5 tokens|max_token_num is 4", vllm(limit=4)),
        ("allreduce_in|torch.int64", vllm(input=x.long())),
        ("residual|[4, 256]", vllm(residual=residual[:4])),
        ("rms_gamma|[255]", vllm(weight=weight[1:])),
        ("norm_out|torch.float32", vllm(norm_out=x.float())),
        ("scale_factor is None", vllm(2, quant_out=eights)),
        ("quant_out is None", vllm(2, scale_factor=scale)),
        ("quant_out|7 bytes|1280", vllm(2, scale_factor=scale, quant_out=small)),
        ("scale_out is None", vllm(3, scale_factor=scale, quant_out=eights)),
        ("scale_out|7 bytes|2048", vllm(3, scale_factor=scale, quant_out=eights, scale_out=small)),
    ]  # fmt: skip
    if KIND == "cuda":
        table.append(("residual is on cpu|cuda:", lambda: fused(x, residual.cpu(), weight, EPS, GROUP)))
        table.append(("input is on cpu|cuda:", lambda: OPS.all_reduce(x.cpu(), GROUP)))
    return table


def wrong_arguments(own):
    """Each is an error that names the argument, and nothing is enqueued."""
    x, residual, weight = tensors(own)
    vllm = as_vllm(x, residual, weight)
    before = own.kept["comm"].stats()["requests"]
    for words, call in wrong_calls(x, residual, weight, number(own, 1.0), vllm):
        rejected(ValueError, words, call)
    for code in (0, 8, 11, 99):
        rejected(NotImplementedError, f"pattern_code is {code}", vllm(code))
    assert own.kept["comm"].stats()["requests"] == before
    # A request that failed leaves nothing behind for the next one.
    assert same(*(OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP) for _ in range(2)))


def forms_in_turn(own):
    """Types and shapes that change from call to call, with calls between that fail: the bits of the first time."""
    forms, bits = [], []
    for dtype, weight_type in ((torch.bfloat16,) * 2, (torch.bfloat16, torch.float32), (torch.float32,) * 2):
        for tokens, hidden in ((5, HIDDEN), (3, HIDDEN), (5, 2 * HIDDEN)):
            x, residual, weight = tensors(own, tokens, dtype, hidden)
            forms.append((x, residual, weight.to(weight_type)))
    for x, residual, weight in forms:
        arfusion.ops.register(GROUP, own.kept["comm"])  # with nothing remembered
        bits.append(OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP))
    for step in (2, 4, 5, 7):
        for i in range(0, step * len(forms), step):
            (x, residual, weight), expected = forms[i % len(forms)], bits[i % len(forms)]
            rejected(ValueError, "weight", lambda: OPS.epilogue(x[1:], residual[1:], weight[1:], EPS, GROUP))
            assert same(OPS.allreduce_add_rmsnorm(x, residual, weight, EPS, GROUP), expected), (step, i)


def registering(own):
    x, residual, weight = tensors(own)
    with arfusion.Communicator.from_backend(own.backend(), max_tokens=64, hidden=HIDDEN) as comm:
        arfusion.ops.register("second", comm)
        assert arfusion.ops.is_registered("second")
        first = OPS.all_reduce(x, GROUP)
        assert same(OPS.all_reduce(x, "second"), first)
        rejected(ValueError, "world_size: 2 communicators", as_vllm(x, residual, weight)())
    rejected(RuntimeError, "destroyed", lambda: OPS.all_reduce(x, "second"))
    arfusion.ops.unregister("second")
    assert not arfusion.ops.is_registered("second")
    rejected(ValueError, "group", lambda: arfusion.ops.unregister("second"))
    rejected(TypeError, "group", lambda: arfusion.ops.register(7, own.kept["comm"]))


def process_group(own):
    """A process group is known by its name; one of other ranks is refused."""
    group, (x, _, _) = own.group(), tensors(own)
    comm = arfusion.Communicator.from_process_group(group, max_tokens=64, hidden=HIDDEN)
    arfusion.ops.register(group, comm)
    assert same(OPS.all_reduce(x, group.group_name), OPS.all_reduce(x, GROUP))
    alone = arfusion.Communicator.all_ranks(1, [comm.device if KIND == "cuda" else 0], max_tokens=64, hidden=HIDDEN)[0]
    rejected(ValueError, f"rank {own.rank} of 2", lambda: arfusion.ops.register(group, alone))
    arfusion.ops.unregister(group)
    alone.destroy()
    comm.destroy()


# ---------------------------------------------------------------- the tests


class Operators(TeamTest):
    START = start

    def test_bits_are_the_references(self):
        self.assertGreater(min(self.team.run(run_cases)), 90)

    def test_torchs_own_checks(self):
        self.team.run(torchs_checks)

    def test_compiled_as_one_graph(self):
        for backend in ("aot_eager", "inductor"):
            with self.subTest(backend):
                self.team.run(compiled, backend)

    @unittest.skipUnless(KIND == "cuda", "CUDA graphs need GPUs")
    def test_in_cuda_graphs(self):
        self.team.run(captured)

    def test_no_tokens(self):
        self.team.run(no_tokens)

    def test_more_dimensions_than_two(self):
        self.team.run(more_dimensions)

    def test_as_vllm_calls_it(self):
        self.team.run(as_vllm_calls_it)

    def test_wrong_arguments_are_named(self):
        self.team.run(wrong_arguments)

    def test_forms_in_turn(self):
        self.team.run(forms_in_turn)

    def test_registering(self):
        self.team.run(registering)

    def test_process_groups(self):
        self.team.run(process_group)


if __name__ == "__main__":
    unittest.main()
