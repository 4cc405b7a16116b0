"""Rewrite a graph to compute only one token where no other is needed.

A model that classifies by its class token computes all other tokens of the last block for nothing:
the queries, MLP and norms of one token suffice, and the gradients of the others are products with
zeros. So the selection of the token is moved up, before all operations that process tokens
independently and whose output is not used otherwise:

    select(f(x), token) = select(f(x[token : token + 1]), 0)

through residual sums, linear layers, norms and activations, the rearrangement of heads, and the
queries of an attention. Shapes come from `torch.export` (`node.meta["val"]`); a node without one,
or an operation that is not listed here, stays as it is.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch
from torch import fx

aten = torch.ops.aten
POINTWISE = {
    aten.add.Tensor, aten.mul.Tensor, aten.gelu.default, aten.dropout.default, aten.clone.default,
    aten.contiguous.default,
}  # fmt: skip
"""Elementwise operations, with broadcasting."""
RESHAPES = {aten.view.default, aten.reshape.default}
Inputs = dict[fx.Node, int]
"""Inputs of which one token suffices, with the axis of tokens in each."""


def one_token(graph: fx.Graph) -> None:
    """Move up every selection of a single token, in place."""
    for last in [node for node in graph.nodes if node.target is aten.select.int]:
        source, axis, index = last.args
        if _shape(source) and isinstance(index, int):
            _move_up(last, source, axis % len(_shape(source)), index % _shape(source)[axis])


def _move_up(last: fx.Node, source: fx.Node, axis: int, index: int) -> None:
    """Move a selection above all operations that only it needs."""
    axes, inputs = {source: axis}, {last: {source: axis}}
    for node in reversed(list(last.graph.nodes)):  # users come before their inputs
        if node not in axes or not node.users:
            continue
        if any(node not in inputs.get(user, {}) for user in node.users):
            continue  # another node uses the other tokens
        needed = _inputs(node, axes[node])
        if needed and all(axes.get(source, at) == at for source, at in needed.items()):
            inputs[node] = needed
            axes |= needed
    if len(inputs) > 1:
        _slice_inputs(last.graph, inputs, axes, index)
        last.update_arg(2, 0)


def _slice_inputs(graph: fx.Graph, inputs: dict[fx.Node, Inputs], axes: Inputs, index: int) -> None:
    """Slice one token from the inputs of `inputs` that come from outside of it."""
    sliced: dict[fx.Node, fx.Node] = {}
    for node in [n for n in graph.nodes if n in inputs]:
        for source, dim in inputs[node].items():
            if source in inputs:
                continue
            if source not in sliced:
                with graph.inserting_before(node):
                    arguments = (source, dim, index, index + 1)
                    sliced[source] = graph.call_function(aten.slice.Tensor, arguments)
            node.args = tuple(sliced[source] if arg is source else arg for arg in node.args)
        if node.target in RESHAPES:
            shape = list(cast("Any", node.args[1]))
            shape[axes[node]] = 1
            node.update_arg(1, shape)


def _inputs(node: fx.Node, axis: int) -> Inputs:
    """Return the inputs of which one token suffices, to compute one token along an axis.

    Empty if the operation needs all tokens, or is not known.
    """
    shape, given = _shape(node), [each for each in node.args if isinstance(each, fx.Node)]
    if not given or not shape or not all(_shape(each) for each in given):
        return {}
    first, args = given[0], cast("Any", node.args)
    last = len(shape) - 1
    if node.target in POINTWISE:
        return _broadcast(given, axis, shape)
    if node.target is aten.transpose.int:
        swapped = [int(each) % len(shape) for each in args[1:3]]
        return {first: sum(swapped) - axis if axis in swapped else axis}
    if node.target is aten.flatten.using_ints or node.target in RESHAPES:
        return _same_axis(first, axis, shape)
    alone = False  # whether every token is computed by itself
    if node.target is aten.linear.default:
        alone = axis < last
    elif node.target is aten.layer_norm.default:
        alone = axis <= last - len(args[1])
    elif node.target is aten.scaled_dot_product_attention.default:
        plain = len(args) == 3 and not set(node.kwargs) - {"scale"} and len(set(given)) == 3
        alone = plain and axis == last - 1
    return {first: axis} if alone else {}


def _broadcast(given: list[fx.Node], axis: int, shape: tuple[int, ...]) -> Inputs:
    """Return the inputs of a pointwise operation that have the tokens, and where."""
    places: Inputs = {}
    for each in given:
        at = axis - len(shape) + len(_shape(each))
        if at >= 0 and _shape(each)[at] == shape[axis] > 1:
            places[each] = at
    return places


def _same_axis(source: fx.Node, axis: int, shape: tuple[int, ...]) -> Inputs:
    """Return the axis of the tokens before a reshape, if exactly one can be it."""
    before = prod(shape[:axis])
    sizes = _shape(source)
    same = [
        at for at, size in enumerate(sizes) if size == shape[axis] and prod(sizes[:at]) == before
    ]
    return {source: same[0]} if len(same) == 1 else {}


def _shape(node: Any) -> tuple[int, ...]:
    """Return the shape of a node's value; empty if it is not known."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
