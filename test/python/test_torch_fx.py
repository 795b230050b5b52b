# SPDX-License-Identifier: Apache-2.0
"""arfusion.fx.fuse: which allreduce -> add -> rms_norm it finds, and that the graph computes what it did."""

import unittest

from ranks import KIND, TeamTest

if KIND == "numpy":
    raise unittest.SkipTest("graphs are PyTorch's (TEST_ARRAYS is numpy)")

import torch
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F

import arfusion
import arfusion.fx
import arfusion.ops

OPS = torch.ops.arfusion
HIDDEN, EPS = 64, 1e-5


def start(own):
    group = own.group()
    own.kept["comm"] = arfusion.Communicator.from_process_group(group, max_tokens=64, hidden=256)
    arfusion.ops.register(group, own.kept["comm"])


# ---------------------------------------------------------------- norms


def whole(y, weight):
    return F.rms_norm(y, (y.shape[-1],), weight, EPS)


def whole_with_rms(y, weight):
    """The node that rms_norm becomes on GPUs, whose second result is not used."""
    return torch.ops.aten._fused_rms_norm(y, [y.shape[-1]], weight, EPS)[0]


def both_results(y, weight):
    norm, rms = torch.ops.aten._fused_rms_norm(y, [y.shape[-1]], weight, EPS)
    return norm + rms.to(norm.dtype)


def written(y, weight):
    """As Llama's reference code does it: rounded before the weight."""
    wide = y.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)).to(y.dtype)


def written_wide(y, weight):
    """The weight in fp32, rounded at the end."""
    wide = y.float()
    return (wide * torch.rsqrt(EPS + (wide * wide).mean(-1, keepdim=True)) * weight).to(y.dtype)


def squares_kept(y, weight):
    """What the norm is made of is wanted elsewhere too."""
    wide = y.float()
    squares = wide.pow(2)
    return weight * (wide * torch.rsqrt(squares.mean(-1, keepdim=True) + EPS)).to(y.dtype) + squares.to(y.dtype)


# ---------------------------------------------------------------- models


def summed(x):
    return collectives.all_reduce(x, "sum", torch.distributed.group.WORLD)


class Layers(torch.nn.Module):
    """Layers whose partial sums, with the residual, are the next one's residual. `norm` and `reduce` say how."""

    def __init__(self, norm, reduce=summed, layers=2, dtype=torch.bfloat16, weight_dtype=None, hidden=HIDDEN):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.norm, self.reduce, self.layers = norm, reduce, layers
        linear = torch.randn(layers, hidden, hidden, generator=generator) / hidden**0.5
        self.linear = torch.nn.Parameter(linear.to(dtype), requires_grad=False)
        weight = torch.rand(layers, hidden, generator=generator).to(weight_dtype or dtype)
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x, residual):
        for i in range(self.layers):
            partial = self.reduce(F.linear(x, self.linear[i]))
            residual = residual + partial if i % 2 else partial + residual
            x = self.norm(residual, self.weight[i])
        return x, residual


class NoResidual(Layers):
    def forward(self, x, residual):
        for i in range(self.layers):
            x = self.norm(self.reduce(F.linear(x, self.linear[i])), self.weight[i])
        return x, residual + x


class SumUsed(Layers):
    """The sum itself is an output."""

    def forward(self, x, residual):
        total = self.reduce(F.linear(x, self.linear[0]))
        return self.norm(total + residual, self.weight[0]), total


class UsedBefore(Layers):
    """The sum with the residual is used before the norm's weight is there."""

    def forward(self, x, residual):
        y = self.reduce(F.linear(x, self.linear[0])) + residual
        doubled = y * 2
        return self.norm(y, self.weight[0] * doubled.amax()), doubled


class LateWeight(Layers):
    """The weight is there only after the sum's first use, which belongs to the norm."""

    def forward(self, x, residual):
        wide = (self.reduce(F.linear(x, self.linear[0])) + residual).float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return (self.weight[0] + 1) * (wide * root).to(x.dtype), residual


class Broadcast(Layers):
    def forward(self, x, residual):
        return self.norm(self.reduce(F.linear(x, self.linear[0])) + residual[:1], self.weight[0]), residual


def maximum(x):
    return collectives.all_reduce(x, "max", torch.distributed.group.WORLD)


def of_this_package(x):
    return OPS.all_reduce(x, torch.distributed.group.WORLD.group_name)


def by_hand(model, x, residual):
    """What Layers computes, with the fused operator."""
    name = torch.distributed.group.WORLD.group_name
    for i in range(model.layers):
        partial = F.linear(x, model.linear[i])
        x, residual = OPS.allreduce_add_rmsnorm(partial, residual, model.weight[i], EPS, name)
    return x, residual


# ---------------------------------------------------------------- on every rank


def inputs(own, dtype, hidden=HIDDEN, tokens=5):
    generator = torch.Generator().manual_seed(7)
    x, residual = (torch.randn(tokens, hidden, generator=generator).to(dtype) for _ in range(2))
    return (x * (1 + own.rank)).to(own.arrays.device), residual.to(own.arrays.device)


def fused_nodes(module):
    return sum(node.target is OPS.allreduce_add_rmsnorm.default for node in module.graph.nodes)


def close(a, b, dtype):
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    return all(torch.allclose(p.float(), q.float(), rtol=limit, atol=limit) for p, q in zip(a, b))


def finds(own, kind, how, expected, options):
    """The exported graph, as it is and decomposed, is fused: as many nodes as expected, and the same results."""
    model, dtype = kind(*how, **options).to(own.arrays.device), options.get("dtype", torch.bfloat16)
    arguments = inputs(own, dtype, options.get("hidden", HIDDEN))
    program, before = torch.export.export(model, arguments), model(*arguments)
    for form in (program, program.run_decompositions()):
        module = form.module()
        assert arfusion.fx.fuse(module) == fused_nodes(module) == expected, module.graph
        assert close(module(*arguments), before, dtype)
        assert arfusion.fx.fuse(module) == 0
        if kind is Layers and expected:
            assert all(torch.equal(a, b) for a, b in zip(module(*arguments), by_hand(model, *arguments)))
            left = {str(node.target) for node in module.graph.nodes if node.op == "call_function"}
            assert not any("all_reduce." in name or "rsqrt" in name or "rms_norm" in name for name in left), left


def finds_nothing_of_strangers(own):
    group = own.group()
    module = torch.export.export(Layers(whole).to(own.arrays.device), inputs(own, torch.bfloat16)).module()
    arfusion.ops.unregister(group)
    found = arfusion.fx.fuse(module)
    arfusion.ops.register(group, own.kept["comm"])
    assert found == 0 and arfusion.fx.fuse(module) == 2


def under_torch_compile(own):
    """Every compiled graph goes through fuse; the number of tokens is not fixed."""
    model, counts = Layers(written).to(own.arrays.device), []
    torch._dynamo.reset()
    torch._inductor.config.post_grad_custom_post_pass = lambda graph: counts.append(arfusion.fx.fuse(graph))
    try:
        graph = torch.compile(model, fullgraph=True)
        for tokens in (3, 8):
            arguments = inputs(own, torch.bfloat16, tokens=tokens)
            for argument in arguments:
                torch._dynamo.mark_dynamic(argument, 0)
            assert close(graph(*arguments), by_hand(model, *arguments), torch.bfloat16)
    finally:
        torch._inductor.config.post_grad_custom_post_pass = None
    assert counts == [2], counts


# ---------------------------------------------------------------- the tests


class Fuse(TeamTest):
    START = start

    def check(self, kind, how, expected, **options):
        with self.subTest(kind.__name__, how=[f.__name__ for f in how], **options):
            self.team.run(finds, kind, how, expected, options)

    def test_chains_of_layers(self):
        for norm in (whole, whole_with_rms, written, written_wide):
            self.check(Layers, (norm,), 2)

    def test_types(self):
        self.check(Layers, (whole,), 2, dtype=torch.float32)
        self.check(Layers, (written,), 2, dtype=torch.float32)
        self.check(Layers, (whole,), 2, dtype=torch.float16)
        self.check(Layers, (written_wide,), 2, weight_dtype=torch.float32)

    def test_other_allreduces(self):
        self.check(Layers, (whole, of_this_package), 2)
        self.check(Layers, (whole, maximum), 0)

    def test_without_residual(self):
        self.check(NoResidual, (whole,), 2)
        self.check(NoResidual, (written,), 2)

    def test_where_the_inputs_are(self):
        self.check(LateWeight, (whole,), 1)
        self.check(UsedBefore, (whole,), 0)

    def test_what_is_left_as_it_is(self):
        self.check(SumUsed, (whole,), 0)
        self.check(Broadcast, (whole,), 0)
        self.check(Layers, (squares_kept,), 0)
        self.check(Layers, (both_results,), 0)
        self.check(Layers, (whole,), 0, dtype=torch.float64)
        self.check(Layers, (whole,), 0, hidden=12)
        self.team.run(finds_nothing_of_strangers)

    def test_under_torch_compile(self):
        self.team.run(under_torch_compile)

    def test_only_graphs(self):
        with self.assertRaisesRegex(TypeError, "graph is a Linear"):
            arfusion.fx.fuse(torch.nn.Linear(2, 2))


if __name__ == "__main__":
    unittest.main()
