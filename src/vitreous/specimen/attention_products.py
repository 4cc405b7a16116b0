"""Attention products: weights that depend on the image times values, summed over keys.

A product is recognised by its axes, not by how it is written. The weights have an axis of keys:
the product sums over it, and the values differ in position along it. The other axis belongs to the
queries, which have positions of their own or are learned. The positions of both operands tell which
axis is which.
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
    """The permutation that turns weights into matrices (queries, keys)."""

    order: tuple[int, ...]
    """Dimensions of the weights: leading ones, then those of the queries, then of the keys."""
    queries: int
    """Number of dimensions of the queries."""
    keys: int
    """Number of dimensions of the keys."""

    def matrix(self, weights: Tensor) -> Tensor:
        """Permute and reshape weights to (…, queries, keys)."""
        permuted = weights.permute(self.order)
        lead = permuted.shape[: permuted.ndim - self.queries - self.keys]
        queries = permuted.shape[len(lead) : len(lead) + self.queries].numel()
        return permuted.reshape(*lead, queries, permuted.shape[permuted.ndim - self.keys :].numel())

    def native(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `matrix`; `shape` is that of the weights, for any batch size."""
        sizes = [shape[dim] for dim in self.order[len(self.order) - self.queries - self.keys :]]
        unflattened = matrix.reshape(*matrix.shape[:-2], *sizes)
        return unflattened.permute([self.order.index(dim) for dim in range(len(self.order))])


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
    """Which operand of a contraction holds the weights, and which the values."""

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
        """The summed letters along which the values differ in position."""
        if values is None:
            return set()
        shared = set(self.weight_letters) & set(self.value_letters)
        varying_letters = set().union(*(_letters(one, self.value_letters) for one in values.both))
        return (shared - set(self.product.output)) & varying_letters


def attention_product(positions: Positions, node: fx.Node) -> Product | None:
    """The attention product that a node computes; None if it is not one, or not certainly one."""
    product = contraction(node)
    if product is None:
        return None
    data_operands = [i for i, operand in enumerate(product.operands) if operand in positions.data]
    for w, v in permutations(data_operands, 2):
        roles = _Roles(product, w, v)
        weights = positions.known(product.operands[w])
        values = positions.known(product.operands[v])
        keys = roles.keys(values)
        if not keys and weights is not None and positions.weights_among(product) == w:
            keys, values = _single_key(roles, weights, values)
        if weights is None or values is None or not keys:
            continue
        traces = weights.both
        queries = [trace for trace in traces if not keys & _letters(trace, roles.weight_letters)]
        if queries and not (only_prefix(values) and _is_linear(positions, roles, values)):
            key_trace = next((trace for trace in traces if trace is not queries[0]), None)
            return _product(roles, keys, queries[0], values, key_trace)
    return _with_learned_queries(positions, node, product)


def _with_learned_queries(
    positions: Positions, node: fx.Node, product: Contraction
) -> Product | None:
    """The attention product of learned queries that a node computes, if any."""
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
    """Key letters and positions of the values, if each query has a single key; else no letters.

    A key into which all positions were pooled lies on a grid of one cell.
    """
    product, letters = roles.product, roles.value_letters
    shape = shape_of(product.operands[roles.values])
    summed = [roles.weight_letters[dim] for dim in product.summed(roles.weights)]
    if any(shape[letters.index(c)] > 1 for c in summed if c in letters):
        return set(), values
    if values is None and shape[0] == weights.ids.shape[0]:
        lead = weights.ids.reshape(shape[0], -1)[:, 0].reshape(-1, *[1] * (len(shape) - 1))
        values = Trace((lead // SPAN * SPAN).expand(shape), (1, 1))
    return set(summed), values


def _product(
    roles: _Roles,
    keys: set[str],
    query: Trace | None,
    values: Trace,
    key_trace: Trace | None = None,
) -> Product | None:
    """The attention product with `keys` as letters of the keys; None if its axes are not clear.

    `query` and `key_trace` are the positions of queries and keys that the weights have; `query` is
    None for learned queries.
    """
    product, letters = roles.product, roles.weight_letters
    sizes = dict(zip(letters, shape_of(product.operands[roles.weights]), strict=True))
    query_letters = _query_letters(roles, query)
    key_letters = [c for c in letters if c in keys]
    leading = [c for c in letters if c not in query_letters and c not in key_letters]
    if any(c not in product.output and sizes[c] > 1 for c in leading):
        return None  # summed over something else as well
    order = tuple(letters.index(c) for c in leading + query_letters + key_letters)
    arrangement = Arrangement(order, len(query_letters), len(key_letters))
    key = _key_positions(values, roles.value_letters, leading, key_letters, sizes)
    if key is None and key_trace is not None:  # one weight for several places, such as a window
        key = key_trace.like(arrangement.matrix(key_trace.ids)[..., 0, :])
    if key is None:
        return None
    if query is not None:
        query = query.like(arrangement.matrix(query.ids)[..., 0])
    else:
        query = _learned_queries(key, prod(sizes[c] for c in query_letters))
    return Product(product, product.operands[roles.weights], arrangement, query, key)


def _query_letters(roles: _Roles, query: Trace | None) -> list[str]:
    """Letters of the queries: only weights and output have them, and query positions differ."""
    product = roles.product
    exclusive = [c for c in product.exclusive(roles.weights, roles.values) if c in product.output]
    varying_letters = _letters(query, roles.weight_letters) if query is not None else set()
    return [c for c in exclusive if c in varying_letters] or exclusive[-1:]


def _learned_queries(key: Trace, count: int) -> Trace:
    """Position numbers (…, count) for learned queries: prefix tokens of their keys' image."""
    image = key.ids.amax(-1, keepdim=True) // SPAN * SPAN
    ids = image + PREFIX + len(key.prefix) + torch.arange(count)
    names = key.prefix + ("query",) * count
    return Trace(ids.expand(*key.ids.shape[:-1], -1), key.grid, names)


def _key_positions(
    values: Trace, letters: str, leading: list[str], keys: list[str], sizes: dict[str, int]
) -> Trace | None:
    """Positions (leading …, keys) of the keys, from those of the values.

    None if several places share a weight.
    """
    wanted = leading + keys
    ids = compact(values.ids) if values.across is None else values.ids
    for dim in reversed(range(len(letters))):
        if letters[dim] in wanted:
            continue
        if not constant_along(ids, dim):
            return None
        ids = ids.select(dim, 0)
    kept = [c for c in letters if c in wanted]
    ids = ids.permute([kept.index(c) for c in wanted if c in kept])
    remaining = iter(ids.shape)
    ids = ids.reshape([next(remaining) if c in kept else 1 for c in wanted])
    for dim, letter in enumerate(wanted):
        if sizes[letter] == 1:
            if not constant_along(ids, dim):
                return None
            ids = ids.narrow(dim, 0, 1)
    return values.like(ids.expand([sizes[c] for c in wanted]).flatten(len(leading)))


def feeds_back(positions: Positions, node: fx.Node) -> bool:
    """Whether a summary over all positions is later multiplied with every single position.

    That is the second half of linear attention. After a learned layer only a product that sums
    over the rows of the summary counts.
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
    """Whether a product sums over the rows of a summary and is not attention to these rows."""
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
    """Whether features without a softmax multiply the rows of a summary, as in linear attention."""
    if is_summary(positions, roles.product.operands[roles.values]):
        return True
    return "query" in values.prefix and positions.weights_among(roles.product) != roles.weights


def is_summary(positions: Positions, node: fx.Node) -> bool:
    """Whether a tensor is a product summed over all positions, with no learned layer since."""

    def follow(current: fx.Node) -> Iterable[fx.Node]:
        learned = op(current) in LEARNED or SPATIAL.search(op(current))
        return [] if learned else positions.data_inputs(current)

    for current in walk_up(node, follow, depth_first=True):
        if current in positions.pooled:
            return feeds_back(positions, current)
    return False
