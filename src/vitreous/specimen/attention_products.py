"""Attention products: weights that depend on the image times values, summed over keys.

What makes a product attention is what its axes are, not how it is written. The weights have an axis
of keys, which is summed over and along which the values are at different places, and they belong to
a query, which is at a place of its own (or is learned). Which axis is which is read off the
positions of both operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from math import prod

import torch
from torch import Tensor, fx

from vitreous.specimen.contractions import PRODUCTS, Contraction, contraction
from vitreous.specimen.graph import op, shape_of, walk_up
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
    varying,
)

LEARNED = {"linear", "scaled_dot_product_attention", *PRODUCTS}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How weights have to be turned to be matrices of queries by keys."""

    order: tuple[int, ...]
    """Their dimensions: leading ones, then those of the queries, then those of the keys."""
    queries: int
    """Number of dimensions of the queries."""
    keys: int
    """Number of dimensions of the keys."""

    def matrix(self, weights: Tensor) -> Tensor:
        """Turn weights into (…, queries, keys)."""
        turned = weights.permute(self.order)
        lead = turned.shape[: turned.ndim - self.queries - self.keys]
        queries = turned.shape[len(lead) : len(lead) + self.queries].numel()
        return turned.reshape(*lead, queries, turned.shape[turned.ndim - self.keys :].numel())

    def native(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `matrix`, for weights of this shape, whatever the batch."""
        sizes = [shape[dim] for dim in self.order[len(self.order) - self.queries - self.keys :]]
        turned = matrix.reshape(*matrix.shape[:-2], *sizes)
        return turned.permute([self.order.index(dim) for dim in range(len(self.order))])


@dataclass(frozen=True, slots=True)
class Product:
    """One attention product."""

    contraction: Contraction
    weights: fx.Node
    arrangement: Arrangement
    query: Trace
    """Positions of the queries, (…, queries)."""
    key: Trace
    """Positions of the keys, (…, keys)."""


@dataclass(frozen=True, slots=True)
class _Roles:
    """Which operand of a contraction is what."""

    product: Contraction
    weights: int
    values: int

    @property
    def weight_letters(self) -> str:
        return self.product.letters[self.weights]

    @property
    def value_letters(self) -> str:
        return self.product.letters[self.values]

    def keys(self, values: Trace | None) -> set[str]:
        """The letters summed over along which the values are at different places."""
        if values is None:
            return set()
        shared = set(self.weight_letters) & set(self.value_letters)
        moving = set().union(*(_letters(one, self.value_letters) for one in values.both))
        return (shared - set(self.product.output)) & moving


def attention_product(positions: Positions, node: fx.Node) -> Product | None:
    """The attention product that a node computes, if it computes one and positions are known."""
    product = contraction(node)
    if product is None:
        return None
    among = [number for number, operand in enumerate(product.operands) if operand in positions.data]
    for w, v in permutations(among, 2):
        roles = _Roles(product, w, v)
        weights = positions.known(product.operands[w])
        values = positions.known(product.operands[v])
        keys = roles.keys(values)
        if not keys and weights is not None and positions.weights_among(product) == w:
            keys, values = _single_key(roles, weights, values)
        if weights is None or values is None or not keys:
            continue
        sides = weights.both
        queries = [one for one in sides if not keys & _letters(one, roles.weight_letters)]
        if queries and not (only_prefix(values) and _is_linear(positions, roles, values)):
            other = next((one for one in sides if one is not queries[0]), None)
            return _product(roles, keys, queries[0], values, other)
    return _with_learned_queries(positions, node, product)


def _with_learned_queries(
    positions: Positions, node: fx.Node, product: Contraction
) -> Product | None:
    """A product whose weights belong to queries that are learned."""
    number = positions.weights_among(product) if node in positions.pooled else None
    if number is None or feeds_back(positions, node):
        return None
    roles = _Roles(product, number, 1 - number)
    values = positions.known(product.operands[1 - number])
    keys = roles.keys(values)
    return _product(roles, keys, None, values) if values is not None and keys else None


def _letters(trace: Trace, letters: str) -> set[str]:
    """The letters along which positions differ."""
    return {letters[dim] for dim in varying(trace.ids)}


def _single_key(
    roles: _Roles, weights: Trace, values: Trace | None
) -> tuple[set[str], Trace | None]:
    """Letters and values where each query has a single key.

    If all positions were pooled into it, it lies on a grid of one cell.
    """
    product, letters = roles.product, roles.value_letters
    shape = shape_of(product.operands[roles.values])
    over = [roles.weight_letters[dim] for dim in product.summed(roles.weights)]
    if any(shape[letters.index(c)] > 1 for c in over if c in letters):
        return set(), values
    if values is None and shape[0] == weights.ids.shape[0]:
        lead = weights.ids.reshape(shape[0], -1)[:, 0].reshape(-1, *[1] * (len(shape) - 1))
        values = Trace((lead // SPAN * SPAN).expand(shape), (1, 1))
    return set(over), values


def _product(
    roles: _Roles, keys: set[str], query: Trace | None, values: Trace, other: Trace | None = None
) -> Product | None:
    """The attention product with these letters of keys; None if its axes are not clear.

    `query` is the positions of the weights' queries, None for learned ones; `other` is the weights'
    other positions, those of their keys.
    """
    product, letters = roles.product, roles.weight_letters
    sizes = dict(zip(letters, shape_of(product.operands[roles.weights]), strict=True))
    asking = _query_letters(roles, query)
    along = [c for c in letters if c in keys]
    rest = [c for c in letters if c not in asking and c not in along]
    if any(c not in product.output and sizes[c] > 1 for c in rest):
        return None  # summed over something else as well
    order = tuple(letters.index(c) for c in rest + asking + along)
    arrangement = Arrangement(order, len(asking), len(along))
    key = _key_positions(values, roles.value_letters, rest, along, sizes)
    if key is None and other is not None:  # a weight for several places at once: whole windows, say
        key = other.like(arrangement.matrix(other.ids)[..., 0, :])
    if key is None:
        return None
    if query is not None:
        query = query.like(arrangement.matrix(query.ids)[..., 0])
    else:
        query = _learned_queries(key, prod(sizes[c] for c in asking))
    return Product(product, product.operands[roles.weights], arrangement, query, key)


def _query_letters(roles: _Roles, query: Trace | None) -> list[str]:
    """The letters of queries: those that only weights and output have, and queries differ along."""
    product = roles.product
    exclusive = [c for c in product.exclusive(roles.weights, roles.values) if c in product.output]
    moving = _letters(query, roles.weight_letters) if query is not None else set()
    return [c for c in exclusive if c in moving] or exclusive[-1:]


def _learned_queries(key: Trace, count: int) -> Trace:
    """Positions of learned queries, (…, count): prefix tokens of the image of their keys."""
    image = key.ids.amax(-1, keepdim=True) // SPAN * SPAN
    ids = image + PREFIX + len(key.prefix) + torch.arange(count)
    names = key.prefix + ("query",) * count
    return Trace(ids.expand(*key.ids.shape[:-1], -1), key.grid, names)


def _key_positions(
    values: Trace, letters: str, rest: list[str], keys: list[str], sizes: dict[str, int]
) -> Trace | None:
    """Positions of the keys as (…, keys), along the dimensions that the weights have.

    None if several places share a weight.
    """
    wanted = rest + keys
    ids = compact(values.ids) if values.across is None else values.ids
    for dim in reversed(range(len(letters))):
        if letters[dim] in wanted:
            continue
        if not constant_along(ids, dim):
            return None
        ids = ids.select(dim, 0)
    left = [c for c in letters if c in wanted]
    ids = ids.permute([left.index(c) for c in wanted if c in left])
    remaining = iter(ids.shape)
    ids = ids.reshape([next(remaining) if c in left else 1 for c in wanted])
    for dim, letter in enumerate(wanted):
        if sizes[letter] == 1:
            if not constant_along(ids, dim):
                return None
            ids = ids.narrow(dim, 0, 1)
    return values.like(ids.expand([sizes[c] for c in wanted]).flatten(len(rest)))


def feeds_back(positions: Positions, node: fx.Node) -> bool:
    """Whether a summary over all positions is multiplied with every one of them again.

    That is the second half of linear attention. Where something is learned in between, only a sum
    over the summary's rows by plain features counts.
    """
    queue, visited = [(node, False)], {node}
    while queue:
        current, learned = queue.pop()
        for user in current.users:
            others = [p for p in positions.data_inputs(user) if p not in visited]
            name, spread = op(user), any(on_grid(positions.known(other)) for other in others)
            if spread and learned and _sums_rows(positions, user, current):
                return True
            if spread and not learned and (contraction(user) is not None or name == "mul"):
                return True
            attends = name in {"scaled_dot_product_attention", "softmax"}
            if user in visited or user.op != "call_function" or spread or attends:
                continue
            visited.add(user)
            queue.append((user, learned or name in LEARNED or bool(SPATIAL.search(name))))
    return False


def _sums_rows(positions: Positions, node: fx.Node, summary: fx.Node) -> bool:
    """Whether a product sums over the rows of a summary, without being attention to them."""
    product, trace = contraction(node), positions.known(summary)
    if product is None or trace is None:
        return False
    if summary not in product.operands or len(product.operands) != 2:
        return False
    number = product.operands.index(summary)
    if positions.weights_among(product) == 1 - number:
        return False
    return any(not constant_along(trace.ids, dim) for dim in product.summed(number))


def _is_linear(positions: Positions, roles: _Roles, values: Trace) -> bool:
    """Whether plain features read the rows of a summary, as in linear attention."""
    if is_summary(positions, roles.product.operands[roles.values]):
        return True
    return "query" in values.prefix and positions.weights_among(roles.product) != roles.weights


def is_summary(positions: Positions, node: fx.Node) -> bool:
    """Whether a tensor is the sum of two others over all positions, with nothing learned since."""

    def follow(current: fx.Node) -> Iterable[fx.Node]:
        learned = op(current) in LEARNED or SPATIAL.search(op(current))
        return [] if learned else positions.data_inputs(current)

    for current in walk_up(node, follow, depth_first=True):
        if current in positions.pooled:
            return feeds_back(positions, current)
    return False
