# SPDX-License-Identifier: Apache-2.0
"""Puts the fused operation into graphs of PyTorch's: allreduce -> add -> rms_norm becomes one node.

    arfusion.ops.register(group, communicator)
    module = torch.export.export(model, inputs).module()
    arfusion.fx.fuse(module)                                                # how many were replaced

    torch._inductor.config.post_grad_custom_post_pass = arfusion.fx.fuse    # the same under torch.compile

What is found: the functional all_reduce of a group that has a communicator (`_c10d_functional.all_reduce` of kind
"sum" with its wait_tensor, or `arfusion.all_reduce`); the add of a residual, in either order, or none; rms_norm as one
node, as torch decomposes it, or as models write it themselves (x * rsqrt(mean(x^2) + eps), in fp32, times the weight
before or after it is rounded). A chain of layers, in which each sum with the residual is the next layer's residual,
becomes a chain of fused operations. Left as it is: an allreduce whose own result is used otherwise, another type than
bf16, fp16 and fp32, rows that are no multiple of 16 bytes, tensors that are not contiguous. Roundings are then those
of the fused operation.
"""

from __future__ import annotations

import operator
from typing import NamedTuple, Optional, Union

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import ops as _ops

__all__ = ["fuse"]

_aten = torch.ops.aten
_c10d = torch.ops._c10d_functional
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_MAX_HIDDEN = 65536


class _Norm(NamedTuple):
    node: fx.Node  # its result
    weight: fx.Node
    eps: float
    inner: list[fx.Node]  # what goes away with it, first to last; `node` is not among them


class _Sum(NamedTuple):
    node: fx.Node  # the allreduce's result
    input: fx.Node
    group: str
    inner: list[fx.Node]


# ---------------------------------------------------------------- nodes


def _is(node: object, *targets: object) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def _value(node: object) -> Optional[torch.Tensor]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _counts(user: fx.Node) -> bool:
    """False: torch.export's checks of a tensor's type, and results that nobody uses."""
    unused = _is(user, operator.getitem) and not user.users
    return not unused and not _is(user, _aten._assert_tensor_metadata.default)


def _users(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if _counts(user)]


def _only_user(node: fx.Node) -> Optional[fx.Node]:
    users = _users(node)
    return users[0] if len(users) == 1 else None


def _other(node: fx.Node, one: fx.Node) -> object:
    """The other operand of a commutative node."""
    return node.args[1] if node.args[0] is one else node.args[0]


def _cast_to(node: object, dtype: torch.dtype) -> bool:
    if _is(node, _aten._to_copy.default):
        # The copy changes the type, and nothing else.
        return node.kwargs.get("dtype") == dtype and not {"memory_format", "pin_memory"} & node.kwargs.keys()
    if _is(node, _aten.to.dtype):
        return len(node.args) == 2 and node.args[1] == dtype and not node.kwargs
    return _is(node, torch.ops.prims.convert_element_type.default) and node.args[1] == dtype


# ---------------------------------------------------------------- what is looked for


def _match_sum(node: fx.Node) -> Optional[_Sum]:
    if _is(node, torch.ops.arfusion.all_reduce.default):
        return _Sum(node, node.args[0], node.args[1], [])
    if not _is(node, _c10d.wait_tensor.default):
        return None
    reduce = node.args[0]
    if not _is(reduce, _c10d.all_reduce.default) or _only_user(reduce) is not node:
        return None
    source, kind, group = reduce.args
    return _Sum(node, source, group, [reduce]) if kind == "sum" else None


def _match_whole_norm(user: fx.Node, y: fx.Node, hidden: int) -> Optional[_Norm]:
    """rms_norm as one node. Without an eps it is the type's."""
    if not _is(user, _aten.rms_norm.default, _aten._fused_rms_norm.default) or user.args[0] is not y:
        return None
    shape, weight, eps = (tuple(user.args) + (None, None))[1:4]
    if list(shape) != [hidden] or not isinstance(weight, fx.Node):
        return None
    eps = torch.finfo(_value(y).dtype).eps if eps is None else eps
    if user.target is _aten.rms_norm.default:
        return _Norm(user, weight, eps, [])
    result = _only_user(user)  # nobody wants the second one, 1 / rms
    return _Norm(result, weight, eps, [user]) if _is(result, operator.getitem) and result.args[1] == 0 else None


def _match_rsqrt(wide: fx.Node, square: fx.Node) -> Optional[tuple[fx.Node, float, list[fx.Node]]]:
    """From x^2 to 1 / rms."""
    mean = _only_user(square)
    if not _is(mean, _aten.mean.dim):
        return None
    dims, keep = (tuple(mean.args) + (False,))[1:3]
    if len(dims) != 1 or dims[0] not in (-1, _value(wide).dim() - 1) or not keep:
        return None
    plus = _only_user(mean)
    if not _is(plus, _aten.add.Tensor, _aten.add.Scalar) or plus.kwargs or len(plus.args) != 2:
        return None
    eps, root = _other(plus, mean), _only_user(plus)
    if not isinstance(eps, (int, float)) or not _is(root, _aten.rsqrt.default):
        return None
    return root, float(eps), [square, mean, plus, root]


def _match_written_norm(wide: fx.Node, dtype: torch.dtype) -> Optional[_Norm]:
    """x * rsqrt(mean(x^2) + eps) * weight, with x in fp32."""
    for square in _users(wide):
        squared = _is(square, _aten.pow.Tensor_Scalar) and square.args == (wide, 2)
        if not squared and not (_is(square, _aten.mul.Tensor) and square.args == (wide, wide)):
            continue
        found = _match_rsqrt(wide, square)
        if not found:
            continue
        root, eps, inner = found
        scaled = _only_user(root)
        if not _is(scaled, _aten.mul.Tensor) or _other(scaled, root) is not wide:
            continue
        step, last = scaled, _only_user(scaled)
        narrowed = _cast_to(last, dtype)
        if narrowed:
            inner = inner + [step]
            step, last = last, _only_user(last)
        if not _is(last, _aten.mul.Tensor):
            continue
        weight, inner = _other(last, step), inner + [step]
        if dtype != torch.float32 and not narrowed:
            inner, last = inner + [last], _only_user(last)
            if not _cast_to(last, dtype):
                continue
        if isinstance(weight, fx.Node):
            return _Norm(last, weight, eps, inner)
    return None


def _match_norm(y: fx.Node, hidden: int) -> Optional[_Norm]:
    """The first norm of y whose result has y's type."""
    dtype = _value(y).dtype
    for user in _users(y):
        norm = _match_whole_norm(user, y, hidden)
        if not norm and _cast_to(user, torch.float32):
            norm = _match_written_norm(user, dtype)
            if norm and all(u in norm.inner for u in _users(user)):
                norm.inner.insert(0, user)
        elif not norm and dtype == torch.float32:
            norm = _match_written_norm(y, dtype)
        if norm and _value(norm.node) is not None and _value(norm.node).dtype == dtype:
            return norm
    return None


# ---------------------------------------------------------------- may it be replaced


def _same_shape(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dim() == b.dim() and all(statically_known_true(m == n) for m, n in zip(a.shape, b.shape))


def _fits(sum_: _Sum, residual: Optional[fx.Node], norm: _Norm) -> bool:
    x, weight = _value(sum_.input), _value(norm.weight)
    if weight is None or weight.dtype not in (x.dtype, torch.float32) or tuple(weight.shape) != (x.shape[-1],):
        return False
    if not weight.is_contiguous() or weight.device != x.device:
        return False
    if residual is None:
        return True
    r = _value(residual)
    return r is not None and r.dtype == x.dtype and _same_shape(r, x) and r.is_contiguous() and r.device == x.device


def _match_residual(sum_: _Sum) -> tuple[fx.Node, Optional[fx.Node]]:
    """What is normalised, and the residual in it."""
    add = _only_user(sum_.node)
    if _is(add, _aten.add.Tensor) and not add.kwargs and len(add.args) == 2:
        residual = _other(add, sum_.node)
        if isinstance(residual, fx.Node) and residual is not sum_.node:
            return add, residual
    return sum_.node, None


def _anchor(graph: fx.Graph, y: fx.Node, norm: _Norm, inputs: list[fx.Node]) -> Optional[fx.Node]:
    """A node before which every input is there and behind which everything stands that uses y or the norm."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    first = min(_users(y), key=order.__getitem__)
    if all(order[i] < order[first] for i in inputs):
        return first
    others = [u for u in _users(y) if u not in norm.inner and u is not norm.node]
    if all(order[u] > order[norm.node] for u in others) and all(order[i] < order[norm.node] for i in inputs):
        return norm.node
    return None


# ---------------------------------------------------------------- replacing


def _replace(
    graph: fx.Graph, sum_: _Sum, y: fx.Node, residual: Optional[fx.Node], norm: _Norm, anchor: fx.Node
) -> None:
    with graph.inserting_before(anchor):
        fused = graph.call_function(
            torch.ops.arfusion.allreduce_add_rmsnorm.default,
            (sum_.input, residual, norm.weight, norm.eps, sum_.group),
        )
        results = [graph.call_function(operator.getitem, (fused, i)) for i in range(2)]
    fused.meta["val"] = (_value(norm.node), _value(y))
    gone = sum_.inner + [sum_.node] + ([y] if y is not sum_.node else []) + norm.inner + [norm.node]
    for node in [user for node in gone for user in node.users if not _counts(user)]:
        graph.erase_node(node)
    for result, old in zip(results, (norm.node, y)):
        result.meta = dict(old.meta)
        old.replace_all_uses_with(result)
    for node in reversed(gone):
        graph.erase_node(node)


def _fuse_one(graph: fx.Graph, node: fx.Node) -> bool:
    sum_ = _match_sum(node)
    x = _value(sum_.input)
    if x is None or x.dim() == 0 or x.dtype not in _FLOATS or not x.is_contiguous():
        return False
    hidden = x.shape[-1]
    if not isinstance(hidden, int) or hidden * x.element_size() % 16 or not 0 < hidden <= _MAX_HIDDEN:
        return False
    if not _ops.is_registered(sum_.group) or _value(node) is None:
        return False
    y, residual = _match_residual(sum_)
    norm = _match_norm(y, hidden) if _value(y) is not None else None
    if not norm or not _fits(sum_, residual, norm):
        return False
    anchor = _anchor(graph, y, norm, [sum_.input, norm.weight] + ([residual] if residual else []))
    if anchor is None:
        return False
    _replace(graph, sum_, y, residual, norm, anchor)
    return True


def fuse(graph: Union[fx.GraphModule, fx.Graph]) -> int:
    """Replaces what it finds, in place, and returns how many. The graph's operations are ATen's, as torch.export and
    torch.compile make them, with the tensors' metadata in its nodes."""
    module = graph if isinstance(graph, fx.GraphModule) else None
    if module:
        graph = module.graph
    if not isinstance(graph, fx.Graph):
        raise TypeError(f"graph is a {type(graph).__name__}, a GraphModule or a Graph of torch.fx is needed")
    replaced = sum(_fuse_one(graph, node) for node in [n for n in graph.nodes if _match_sum(n)])
    if replaced:
        graph.lint()
        if module:
            module.recompile()
    return replaced
