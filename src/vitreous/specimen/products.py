"""Attention products: contractions over the positions of keys, of weights that depend on the image with values.

What makes a product attention is what its axes are, not how it is written. The weights have an axis of keys, which is
summed over and along which the values are at different places, and they belong to a query, which is at a place of its
own (or is learned). Which axis is which is read off the positions of both operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

import torch
from torch import Tensor, fx

from vitreous.specimen.contractions import PRODUCTS, Contraction, contraction
from vitreous.specimen.graph import op
from vitreous.specimen.mixing import SPATIAL
from vitreous.specimen.positions import Positions
from vitreous.specimen.trace import (
    PREFIX,
    SPAN,
    Trace,
    compact,
    constant_along,
    on_grid,
    only_prefix,
    shape_of,
    varying,
)

ATTENTION = {"scaled_dot_product_attention", "softmax"}
LEARNED = {"linear", "scaled_dot_product_attention", *PRODUCTS}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How weights have to be turned to be matrices of queries by keys."""

    order: tuple[int, ...]
    """Their dimensions: what runs along, then the queries', then the keys'."""
    queries: int
    keys: int
    """How many dimensions the queries and the keys have."""

    def matrix(self, weights: Tensor) -> Tensor:
        """(…, queries, keys)."""
        turned = weights.permute(self.order)
        lead = turned.shape[: turned.ndim - self.queries - self.keys]
        middle = turned.shape[len(lead) : len(lead) + self.queries].numel()
        return turned.reshape(*lead, middle, turned.shape[turned.ndim - self.keys :].numel())

    def native(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The inverse, for weights of this shape, whatever the batch."""
        sizes = [shape[dim] for dim in self.order[len(self.order) - self.queries - self.keys :]]
        turned = matrix.reshape(*matrix.shape[:-2], *sizes)
        return turned.permute([self.order.index(dim) for dim in range(len(self.order))])


@dataclass(frozen=True, slots=True)
class Product:
    """One attention product."""

    contraction: Contraction
    weights: fx.Node
    values: fx.Node
    arrangement: Arrangement
    query: Trace
    """Positions of the queries, (…, queries)."""
    key: Trace
    """Positions of the keys, (…, keys)."""


def attention_product(positions: Positions, node: fx.Node) -> Product | None:
    """The attention product that a node computes, if it computes one and positions are known."""
    found = contraction(node)
    if found is None:
        return None
    among = [number for number, operand in enumerate(found.operands) if operand in positions.data]
    for w, v in permutations(among, 2):
        weights = positions.known(found.operands[w])
        values = positions.known(found.operands[v])
        keys = _keys(found, w, v, values)
        if not keys and weights is not None and positions.weights_among(found) == w:
            keys, values = _single(found, w, v, weights, values)
        if weights is None or values is None or not keys:
            continue
        queries = [one for one in weights.both if not keys & _letters(one, found.letters[w])]
        if queries and not (only_prefix(values) and _of_summary(positions, found, w, v)):
            others = [one for one in weights.both if one is not queries[0]]
            return _product(found, w, v, keys, queries[0], values, others)
    number = positions.weights_among(found) if node in positions.pooled else None
    if number is None or feeds_back(positions, node):
        return None
    values = positions.known(found.operands[1 - number])
    keys = _keys(found, number, 1 - number, values)
    return (
        _product(found, number, 1 - number, keys, None, values)
        if values is not None and keys
        else None
    )


def _letters(trace: Trace, letters: str) -> set[str]:
    return {letters[dim] for dim in varying(trace.ids)}


def _single(
    found: Contraction, w: int, v: int, weights: Trace, values: Trace | None
) -> tuple[set[str], Trace | None]:
    """A single key for each query. If all positions were pooled into it, it lies on a grid of one cell."""
    shape, over = shape_of(found.operands[v]), [found.letters[w][dim] for dim in found.summed(w)]
    if any(shape[found.letters[v].index(c)] > 1 for c in over if c in found.letters[v]):
        return set(), values
    if values is None and shape[0] == weights.ids.shape[0]:
        lead = weights.ids.reshape(shape[0], -1)[:, 0].reshape(-1, *[1] * (len(shape) - 1))
        values = Trace((lead // SPAN * SPAN).expand(shape), (1, 1))
    return set(over), values


def _keys(found: Contraction, w: int, v: int, values: Trace | None) -> set[str]:
    """The letters summed over along which the values are at different places."""
    shared = (set(found.letters[w]) & set(found.letters[v])) - set(found.output)
    return (
        shared & set().union(*(_letters(one, found.letters[v]) for one in values.both))
        if values
        else set()
    )


def _product(
    found: Contraction,
    w: int,
    v: int,
    keys: set[str],
    query: Trace | None,
    values: Trace,
    others: Sequence[Trace] = (),
) -> Product | None:
    mine, theirs, shape = found.letters[w], found.letters[v], shape_of(found.operands[w])
    own = [c for c in found.own(w, v) if c in found.output]
    moving = _letters(query, mine) if query is not None else set()
    asking = [c for c in own if c in moving] or own[-1:]
    along = [c for c in mine if c in keys]
    rest = [c for c in mine if c not in asking and c not in along]
    if any(c not in found.output and shape[mine.index(c)] > 1 for c in rest):
        return None  # summed over something else as well
    arrangement = Arrangement(
        tuple(mine.index(c) for c in rest + asking + along), len(asking), len(along)
    )
    key = _along(values, theirs, rest, along, [shape[mine.index(c)] for c in rest + along])
    if key is None and others:  # a weight for several places at once: whole windows, say
        key = others[0].like(arrangement.matrix(others[0].ids)[..., 0, :])
    if key is None:
        return None
    lead = key.ids.shape[:-1]
    if query is None:
        count = prod(shape[mine.index(c)] for c in asking)
        ids = (
            key.ids.amax(-1, keepdim=True) // SPAN * SPAN
            + PREFIX
            + len(key.prefix)
            + torch.arange(count)
        )
        query = Trace(ids.expand(*lead, -1), key.grid, key.prefix + ("query",) * count)
    else:
        query = query.like(arrangement.matrix(query.ids)[..., 0])
    weights, valued = found.operands[w], found.operands[v]
    return Product(found, weights, valued, arrangement, query, key)


def _along(
    values: Trace, letters: str, rest: list[str], keys: list[str], sizes: list[int]
) -> Trace | None:
    """Positions of the keys as (…, keys), along the dimensions that the weights have."""
    ids = compact(values.ids) if values.across is None else values.ids
    for dim in reversed(range(len(letters))):
        if letters[dim] in rest + keys:
            continue
        if not constant_along(ids, dim):
            return None  # several places share a weight
        ids = ids.select(dim, 0)
    left = [c for c in letters if c in rest + keys]
    ids = ids.permute([left.index(c) for c in rest + keys if c in left])
    where = iter(ids.shape)
    ids = ids.reshape([next(where) if c in left else 1 for c in rest + keys])
    for dim, size in enumerate(sizes):
        if size == 1 and not constant_along(ids, dim):
            return None
        ids = ids.narrow(dim, 0, 1) if size == 1 else ids
    return values.like(ids.expand(sizes).flatten(len(rest)))


def feeds_back(positions: Positions, node: fx.Node) -> bool:
    """Whether a summary over all positions is multiplied with every one of them again: the second half of linear
    attention. Where something is learned between, only a sum over the summary's rows by plain features counts."""
    queue, seen = [(node, False)], {node}
    while queue:
        current, learned = queue.pop()
        for user in current.users:
            others = [p for p in user.all_input_nodes if p in positions.data and p not in seen]
            spread = [other for other in others if on_grid(positions.known(other))]
            if spread and (_sums_rows(positions, user, current) if learned else _multiplies(user)):
                return True
            if (
                user in seen
                or user.op != "call_function"
                or len(spread) + (op(user) in ATTENTION) > 0
            ):
                continue
            seen.add(user)
            queue.append((user, learned or op(user) in LEARNED or bool(SPATIAL.search(op(user)))))
    return False


def _multiplies(node: fx.Node) -> bool:
    return contraction(node) is not None or op(node) == "mul"


def _sums_rows(positions: Positions, node: fx.Node, summary: fx.Node) -> bool:
    found, trace = contraction(node), positions.known(summary)
    if found is None or trace is None or summary not in found.operands or len(found.operands) != 2:
        return False
    if positions.weights_among(found) == 1 - found.operands.index(summary):
        return False  # attention to the rows
    return any(
        not constant_along(trace.ids, dim) for dim in found.summed(found.operands.index(summary))
    )


def _of_summary(positions: Positions, found: Contraction, w: int, v: int) -> bool:
    """Whether tokens without a place are rows of a summary that plain features read: linear attention."""
    values = positions.known(found.operands[v])
    learned = values is not None and "query" in values.prefix
    return is_summary(positions, found.operands[v]) or (
        learned and positions.weights_among(found) != w
    )


def is_summary(positions: Positions, node: fx.Node) -> bool:
    """Whether a tensor is the sum of two others over all positions, with nothing learned since."""
    queue, seen = [node], {node}
    while queue:
        current = queue.pop()
        if current in positions.pooled:
            return feeds_back(positions, current)
        if op(current) in LEARNED or SPATIAL.search(op(current)):
            continue
        fresh = [p for p in current.all_input_nodes if p in positions.data and p not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return False
