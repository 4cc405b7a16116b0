"""Find attention in a graph, whatever its spelling, and say which image position each query and each key is.

Fused attention (`scaled_dot_product_attention`) keeps its probabilities to itself; they are recomputed from its own
arguments, bias and mask included. Unfused attention is a softmax whose result multiplies the values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from vitreous.kinds import Reach
from vitreous.specimen.anatomy import Grid
from vitreous.specimen.graph import aten, op
from vitreous.specimen.joins import LAYOUT, Flow
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.positions import PREFIX, SPAN, Trace, constant_along, shape_of

TRANSPARENT = LAYOUT | {"expand", "where", "masked_fill", "nan_to_num"}
SOFTMAX = {"softmax", "_softmax", "_safe_softmax"}


@dataclass(frozen=True, slots=True)
class Places:
    """Which rows of the probabilities belong together, and where their queries and keys lie.

    Indices count tokens: prefix tokens first, then the grid in raster order; -1 is padding.
    """

    batch: BatchAxis
    order: Tensor
    """(groups, heads): row of the flattened leading dimensions (of one image) for each group and head."""
    queries: Tensor
    """(groups, queries)"""
    keys: Tensor
    """(groups, keys)"""
    prefix: int
    """Prefix tokens among queries and keys together."""
    query_grid: Grid
    key_grid: Grid

    def gather(self, probabilities: Tensor) -> Tensor:
        """Native layout to (b, groups, heads, queries, keys)."""
        rows, order = self.batch.split(probabilities).flatten(1, -3), self.order.flatten()
        in_order = torch.equal(order, torch.arange(rows.shape[1], device=order.device))
        rows = rows if in_order else rows[:, order.to(rows.device)]  # no copy where there is nothing to do
        return rows.unflatten(1, tuple(self.order.shape))

    def scatter(self, matrices: Tensor, like: tuple[int, ...], batch: int) -> Tensor:
        """(groups, heads, queries, keys) for one image to the native layout `like` (without the batch) of `batch`."""
        rows = matrices.flatten(0, 1)[self.order.flatten().argsort().to(matrices.device)]
        value = rows.reshape(1, *like, *rows.shape[-2:]).expand(batch, *like, *rows.shape[-2:])
        return self.batch.join(value)


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One attention product of the graph."""

    product: str
    """The node: `scaled_dot_product_attention`, or the product of probabilities and values."""
    fused: bool
    weights: str | None
    """The node with the probabilities, where attention is not fused."""
    heads: int | None
    reach: Reach
    places: Places | None

    @property
    def visible(self) -> bool:
        """Whether there are probabilities over image positions to look at."""
        return self.places is not None


def find_attention(flow: Flow, body: list[fx.Node]) -> list[AttentionSite]:
    """The attention products among `body`, in order; logits products are not products of their own."""
    products = [n for n in body if flow.role[n] == "attention"]
    sites = []
    for node in products:
        if op(node) == "scaled_dot_product_attention":
            sites.append(_fused(node, flow))
        elif (found := _probabilities(node, flow)) is not None:
            sites.append(_unfused(node, *found, flow))
    if not sites and products:
        sites = [AttentionSite(products[-1].name, False, None, None, "linear", None)]
    return sites


def _fused(node: fx.Node, flow: Flow) -> AttentionSite:
    query, key = (flow.trace(a) for a in node.args[:2])  # type: ignore[arg-type]
    shape = shape_of(node.args[0])  # type: ignore[arg-type]
    if query is not None and not constant_along(query.ids, -1):
        return AttentionSite(node.name, True, None, shape[1] if len(shape) == 4 else None, "channel", None)
    site = _placed(node, None, query, key, shape[:-1])
    return replace(site, reach="windowed") if site.reach == "global" and _masked(node, flow) else site


def _masked(node: fx.Node, flow: Flow) -> bool:
    """Whether a mask that is the same for all images keeps some queries from some keys."""
    mask: Any = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    if not isinstance(mask, fx.Node) or mask in flow.data:
        return False
    value = flow.positions.constant(mask)
    return not value.is_meta and bool((~value if value.dtype == torch.bool else value == -torch.inf).any())


def _unfused(node: fx.Node, weights: fx.Node, values: fx.Node, right: bool, flow: Flow) -> AttentionSite:
    shape = shape_of(weights)
    value = flow.trace(values)
    if value is not None and not right:  # features by keys: turn them round
        value = value.like(value.ids.transpose(-1, -2))
    if value is not None and not constant_along(value.ids, -1):  # positions along the features: channels attend
        return AttentionSite(node.name, False, weights.name, shape[1] if len(shape) == 4 else None, "channel", None)
    return _placed(node, weights, flow.trace(weights), value, shape[:-1])


def _probabilities(product: fx.Node, flow: Flow) -> tuple[fx.Node, fx.Node, bool] | None:
    """The operand that holds attention probabilities, the values, and whether the values stand on the right."""
    operands = [a for a in product.all_input_nodes if a in flow.data][:2]
    if len(operands) < 2 or op(product) == "einsum":
        return None
    for side, operand in enumerate(operands):
        found = _softmax_behind(operand, flow, turned=side == 1)
        if found is not None:
            return found, operands[1 - side], side == 0
    return None


def _softmax_behind(operand: fx.Node, flow: Flow, turned: bool) -> fx.Node | None:
    """The tensor with row sums one: the operand itself if only its layout changed since the softmax (or if it was
    normalised again), else the softmax (heads mixed afterwards, as talking heads do, or rows and columns exchanged)."""
    size = operand.meta["val"].numel()
    queue, changed = [operand], turned
    for _ in range(24):
        if not queue:
            return None
        node = queue.pop(0)
        name = op(node)
        if name in SOFTMAX:
            return node if changed else operand
        if name == "div" and _normalises(node):
            return operand
        if flow.role[node] == "attention":
            continue
        changed = changed or name not in TRANSPARENT
        queue.extend(p for p in node.all_input_nodes if p in flow.data and _numel(p) == size)
    return None


def _normalises(node: fx.Node) -> bool:
    below = node.args[1]
    while isinstance(below, fx.Node) and op(below) in TRANSPARENT | {"clamp", "add"}:
        below = below.args[0]
    return isinstance(below, fx.Node) and op(below) == "sum"


def _numel(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else None


def _placed(
    node: fx.Node, weights: fx.Node | None, query: Trace | None, key: Trace | None, lead: tuple[int, ...]
) -> AttentionSite:
    heads = lead[1] if len(lead) == 3 else None
    source = (node.name, weights is None, weights.name if weights is not None else None)
    if query is not None and not constant_along(query.ids, -1):  # a softmax over all keys for no query in particular
        return AttentionSite(*source, heads, "linear", None)
    places = _places(query, key, lead) if query is not None and key is not None else None
    if places is None:
        return AttentionSite(*source, heads, "unknown", None)
    return AttentionSite(*source, places.order.shape[1], _reach(places), places)


def _places(query: Trace, key: Trace, lead: tuple[int, ...]) -> Places | None:
    q = query.ids[..., 0].expand(lead)
    k = key.ids[..., 0]
    k = k.reshape(*[1] * (len(lead) - k.ndim), *k.shape)
    if len(lead) == 3 and 1 < k.shape[1] < lead[1]:  # grouped queries: neighbouring heads share their keys
        k = k.repeat_interleave(lead[1] // k.shape[1], 1)
    k = k.expand(*lead[:-1], k.shape[-1])
    batch = BatchAxis.of(torch.cat([q, k], -1))
    if batch is None or batch.dim >= len(lead) - 1:
        return None
    names = query.prefix if len(query.prefix) >= len(key.prefix) else key.prefix
    queries = _tokens(batch.split(q)[0].flatten(0, -2), len(names))
    keys = _tokens(batch.split(k)[0].flatten(0, -2), len(names))
    rows, group = torch.unique(torch.cat([queries, keys], 1), dim=0, return_inverse=True)
    counts = group.bincount()
    if len(counts.unique()) != 1:
        return None
    order = group.argsort(stable=True).reshape(len(rows), -1)
    first = order[:, 0].argsort()  # groups in the order in which they appear
    order = order[first]
    return Places(batch, order, queries[order[:, 0]], keys[order[:, 0]], len(names), query.grid, key.grid)


def _tokens(ids: Tensor, prefix: int) -> Tensor:
    position = ids % SPAN
    tokens = torch.where(position >= PREFIX, position - PREFIX, position + prefix)
    return torch.where(ids < 0, -1, tokens)


def _reach(places: Places) -> Reach:
    cells = places.key_grid[0] * places.key_grid[1]
    covered = places.keys[places.keys >= places.prefix].unique().numel()
    if bool((places.queries < places.prefix).all()) and covered:
        return "class"
    if places.key_grid != places.query_grid or covered < cells:
        return "reduced"
    return "windowed" if places.order.shape[0] > 1 else "global"


def fused_probabilities(
    query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float | None, grouped: bool
) -> Tensor:
    """softmax(q k' * scale + bias), in float32 or better; zeros for a query that may look at nothing."""
    wide = torch.promote_types(query.dtype, torch.float32)
    if grouped:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = (query.to(wide) * factor) @ key.to(wide).transpose(-1, -2)
    if bias is None and not causal:
        return logits.softmax(-1)  # nothing is masked; the other one looks at everything three times more
    if causal:
        keep = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~keep, -torch.inf)
    if bias is not None:
        logits = logits.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else logits + bias
    return aten._safe_softmax.default(logits, -1)
