"""A graph that computes one token alone from where on no other is read.

A model that reads its answer off its class token has computed all others to the end in vain: in its
last block queries, MLP and norms of one token suffice, and where gradients are taken those of the
others are products with zeros. So the selection at the end is moved up, before everything that does
the same to every token and serves nothing else:

    select(f(x), token) = select(f(x[token : token + 1]), 0)

through residual sums, linear layers, norms and curves, the rearrangement of heads, and the queries
of an attention.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch
from torch import fx

aten = torch.ops.aten
ALIKE = {
    aten.add.Tensor, aten.mul.Tensor, aten.linear.default, aten.gelu.default, aten.layer_norm.default,
    aten.dropout.default, aten.clone.default, aten.contiguous.default,
}  # fmt: skip
"""Operations that do the same to every token, if the tokens are not what they work along."""
RESHAPES = {aten.view.default, aten.reshape.default}
Reads = dict[fx.Node, int]
"""Inputs of which one token suffices, and the axis of the tokens."""


def one_token(graph: fx.Graph) -> None:
    """Move up every selection of a token."""
    for last in [node for node in graph.nodes if node.target is aten.select.int]:
        source, axis, index = last.args
        if _shape(source) and isinstance(index, int):
            _move_up(last, source, axis % len(_shape(source)), index % _shape(source)[axis])


def _move_up(last: fx.Node, source: fx.Node, axis: int, index: int) -> None:
    axes, reads = {source: axis}, {last: {source: axis}}
    for node in reversed(list(last.graph.nodes)):  # users come before what they use
        if (
            node not in axes
            or not node.users
            or any(node not in reads.get(user, {}) for user in node.users)
        ):
            continue
        own = _reads(node, axes[node])
        if own and all(axes.get(given, at) == at for given, at in own.items()):
            reads[node] = own
            axes |= own
    if len(reads) == 1:
        return
    cut: dict[fx.Node, fx.Node] = {}
    for node in [each for each in last.graph.nodes if each in reads]:
        for given, at in reads[node].items():
            if given in reads:
                continue
            if given not in cut:
                with last.graph.inserting_before(node):
                    cut[given] = last.graph.call_function(
                        aten.slice.Tensor, (given, at, index, index + 1)
                    )
            _replace(node, given, cut[given])
        if node.target in RESHAPES:
            shape = list(cast("Any", node.args[1]))
            shape[axes[node]] = 1
            node.update_arg(1, shape)
    last.update_arg(2, 0)


def _reads(node: fx.Node, axis: int) -> Reads:
    """What a node needs one token of, if it is to give one along an axis; nothing if it needs all, or is not known."""
    shape, given = _shape(node), [each for each in node.args if isinstance(each, fx.Node)]
    if not given or not shape or not all(_shape(each) for each in given):
        return {}
    first, tokens = given[0], shape[axis]
    if node.target in ALIKE:
        if node.target is aten.linear.default:
            return {first: axis} if axis < len(shape) - 1 else {}
        if node.target is aten.layer_norm.default:
            return {first: axis} if axis < len(shape) - len(cast("Any", node.args[1])) else {}
        places = {each: axis - len(shape) + len(_shape(each)) for each in given}
        return {
            each: at for each, at in places.items() if at >= 0 and _shape(each)[at] == tokens > 1
        }
    if node.target is aten.scaled_dot_product_attention.default:
        plain = len(node.args) == 3 and not set(node.kwargs) - {"scale"} and len(set(given)) == 3
        return {first: axis} if plain and axis == len(shape) - 2 else {}
    if node.target is aten.transpose.int:
        swapped = [int(cast("Any", each)) % len(shape) for each in node.args[1:3]]
        return {first: sum(swapped) - axis if axis in swapped else axis}
    if node.target in (aten.flatten.using_ints, *RESHAPES):
        before = prod(shape[:axis])
        same = [
            at
            for at, size in enumerate(_shape(first))
            if size == tokens and prod(_shape(first)[:at]) == before
        ]
        return {first: same[0]} if len(same) == 1 else {}
    return {}


def _shape(node: Any) -> tuple[int, ...]:
    """Empty if it is not known."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _replace(node: fx.Node, old: fx.Node, new: fx.Node) -> None:
    node.args = tuple(new if each is old else each for each in node.args)
