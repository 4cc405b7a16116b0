"""Find attention in a graph, whatever its spelling, and say which image position each query and each key is.

Fused attention (`scaled_dot_product_attention`) keeps its probabilities to itself; they are recomputed from its own
arguments, bias and mask included. All other attention is a product of weights and values (`products.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from vitreous.specimen.attention_geometry import Places
from vitreous.specimen.contractions import contraction
from vitreous.specimen.graph import aten, op, path
from vitreous.specimen.joins import Flow
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.products import Arrangement, Product, attention_product, is_summary
from vitreous.specimen.trace import PREFIX, SPAN, Trace, constant_along, shape_of
from vitreous.unit_kinds import Reach, Weights

SOFTMAX = {"softmax", "_softmax", "_safe_softmax"}


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One attention product of the graph."""

    product: str
    """The node: `scaled_dot_product_attention`, or the product of weights and values."""
    fused: bool
    weights: str | None
    """The node with the weights that the values are multiplied with, where attention is not fused."""
    heads: int | None
    reach: Reach
    places: Places | None
    arrangement: Arrangement | None = None
    """How to turn the weights into matrices of queries by keys."""
    operands: tuple[str, ...] = ()
    equation: str = ""
    """What the product multiplies, and how, in the letters of `einsum`."""
    softmax: str | None = None
    """The node with rows that sum to one, where the model changes them before it multiplies (talking heads)."""
    kind: Weights = "probabilities"
    """What the weights are."""
    reason: str = ""
    """Why there is nothing to look at, or what the weights are if they are no probabilities."""

    @property
    def visible(self) -> bool:
        """Whether there are weights over image positions to look at."""
        return self.places is not None


def merged(sites: Sequence[AttentionSite]) -> tuple[list[list[int]], Places]:
    """How several products of one unit are one attention: numbers of sites of the same places, whose heads stand side
    by side (heads computed one after the other); clusters of other places are further groups (a loop over windows or
    queries). Only sites of the shape of the first, and as many of each places, are part of it."""
    first = sites[0].places
    assert first is not None
    clusters: list[tuple[Places, list[int]]] = []
    for number, site in enumerate(sites):
        here = site.places
        if here is None or (here.queries.shape, here.keys.shape) != (
            first.queries.shape,
            first.keys.shape,
        ):
            continue
        for there, numbers in clusters:
            if torch.equal(there.queries, here.queries) and torch.equal(there.keys, here.keys):
                numbers.append(number)
                break
        else:
            clusters.append((here, [number]))
    heads = [sum(sites[n].heads or 1 for n in numbers) for _, numbers in clusters]
    kept = [cluster for cluster, count in zip(clusters, heads, strict=True) if count == heads[0]]
    if len(kept) == 1:
        return [kept[0][1]], first
    queries, keys = (
        torch.cat([getattr(places, of) for places, _ in kept]) for of in ("queries", "keys")
    )
    return [numbers for _, numbers in kept], replace(first, queries=queries, keys=keys)


def find_attention(flow: Flow, body: list[fx.Node]) -> list[AttentionSite]:
    """The attention products among `body`, in order; logits products are not products of their own."""
    products = [n for n in body if flow.role[n] == "attention"]
    sites = [site for node in products if (site := _site(node, flow)) is not None]
    if sites or not products:
        return sites
    summaries = [node for node in products if _summarises(node, flow)]
    linear = [
        AttentionSite(n.name, False, None, _heads(shape_of(n)), "linear", None) for n in summaries
    ]
    return linear or [_lost(products[-1], flow)]


def _site(node: fx.Node, flow: Flow) -> AttentionSite | None:
    if op(node) == "scaled_dot_product_attention":
        return _fused(node, flow)
    found = attention_product(flow.positions, node)
    if found is not None:
        return _unfused(node, found, flow)
    if _over_channels(node, flow):
        return AttentionSite(node.name, False, None, _heads(shape_of(node)), "channel", None)
    operands = [a for a in node.all_input_nodes if a in flow.data]
    if _summarises(node, flow) or any(is_summary(flow.positions, operand) for operand in operands):
        return None  # linear attention
    return (
        _lost(node, flow)
        if sum(_softmax_behind(a, flow) is not None for a in operands) == 1
        else None
    )


def _heads(shape: tuple[int, ...]) -> int | None:
    return shape[1] if len(shape) == 4 else None


def _fused(node: fx.Node, flow: Flow) -> AttentionSite:
    query, key = (flow.trace(a) for a in node.args[:2])  # type: ignore[arg-type]
    shape = shape_of(node.args[0])  # type: ignore[arg-type]
    if query is not None and not constant_along(query.ids, -1):
        return AttentionSite(node.name, True, None, _heads(shape), "channel", None)
    if query is None and node in flow.positions.pooled:
        query = flow.trace(node)
    if query is None or key is None or not constant_along(key.ids, -1):
        return replace(_lost(node, flow), fused=True)
    lead = shape_of(node)[:-1]
    k = key.ids[..., 0]
    k = k.reshape(*[1] * (len(lead) - k.ndim), *k.shape)
    if (
        len(lead) == 3 and 1 < k.shape[1] < lead[1]
    ):  # grouped queries: neighbouring heads share their keys
        k = k.repeat_interleave(lead[1] // k.shape[1], 1)
    k = k.expand(*lead[:-1], k.shape[-1])
    site = AttentionSite(node.name, True, None, _heads(shape), "unknown", None)
    site = _placed(site, query.like(query.ids[..., 0].expand(lead)), key.like(k))
    return (
        replace(site, reach="windowed") if site.reach == "global" and _masked(node, flow) else site
    )


def _masked(node: fx.Node, flow: Flow) -> bool:
    """Whether a mask that is the same for all images keeps some queries from some keys."""
    mask: Any = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    if not isinstance(mask, fx.Node) or mask in flow.data:
        return False
    value = flow.positions.constant(mask)
    return not value.is_meta and bool(
        (~value if value.dtype == torch.bool else value == -torch.inf).any()
    )


def _unfused(node: fx.Node, found: Product, flow: Flow) -> AttentionSite:
    site = AttentionSite(
        node.name,
        False,
        found.weights.name,
        _heads(shape_of(found.weights)),
        "unknown",
        None,
        found.arrangement,
        tuple(operand.name for operand in found.contraction.operands),
        found.contraction.equation,
        _softmax_behind(found.weights, flow),
    )
    return _placed(site, found.query, found.key)


def _softmax_behind(operand: fx.Node, flow: Flow) -> str | None:
    """The nearest softmax of the operand's size, before the last product or learned layer over other dimensions."""
    shape, queue, seen = operand.meta["val"].numel(), [operand], {operand}
    while queue and len(seen) < 32:
        node = queue.pop(0)
        if op(node) in SOFTMAX:
            return node.name
        if flow.role[node] == "attention":
            continue
        fresh = [
            p
            for p in node.all_input_nodes
            if p in flow.data and p not in seen and _numel(p) == shape
        ]
        seen.update(fresh)
        queue.extend(fresh)
    return None


def _numel(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else None


def _over_channels(node: fx.Node, flow: Flow) -> bool:
    """Whether weights of channels by channels, made by a sum over positions and a softmax, multiply the features."""
    for operand in (n for n in node.all_input_nodes if n in flow.data):
        others = [n for n in node.all_input_nodes if n in flow.data and n is not operand]
        if flow.trace(operand) is None and any(flow.trace(o) is not None for o in others):
            return _softmax_behind(operand, flow) is not None
    return False


def _summarises(node: fx.Node, flow: Flow) -> bool:
    """Whether a product of two tensors of the image sums over their positions: what linear attention begins with."""
    found = contraction(node)
    if found is None or any(flow.positions.asked(operand) for operand in found.operands):
        return False
    moving = 0
    for number, operand in enumerate(found.operands):
        trace = flow.trace(operand)
        if trace is not None and any(
            not constant_along(trace.ids, dim) for dim in found.summed(number)
        ):
            moving += 1
    return moving > 1


def _lost(node: fx.Node, flow: Flow) -> AttentionSite:
    """A product whose axes cannot be told, and the operation at which positions were lost."""
    queue, seen, where = [n for n in node.all_input_nodes if n in flow.data], {node}, None
    while queue:
        current = queue.pop(0)
        sources = [n for n in current.all_input_nodes if n in flow.data]
        if flow.trace(current) is None and any(
            flow.trace(source) is not None for source in sources
        ):
            where = current
            break
        fresh = [n for n in sources if n not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    at = f" after {op(where)} in {path(where) or 'the model itself'}" if where is not None else ""
    reason = f"It cannot be told which positions its queries and keys have{at}."
    return AttentionSite(
        node.name, False, None, _heads(shape_of(node)), "unknown", None, reason=reason
    )


def _placed(site: AttentionSite, query: Trace, key: Trace) -> AttentionSite:
    """The site with the places of (…, queries) and (…, keys)."""
    places = _places(query, key)
    if places is None:
        return replace(
            site, reason="Its queries and keys do not form groups that are alike in all heads."
        )
    return replace(site, heads=places.order.shape[1], reach=reach_of(places), places=places)


def _places(query: Trace, key: Trace) -> Places | None:
    q, k = query.ids, key.ids
    batch = BatchAxis.of(torch.cat([q, k], -1))
    if batch is None or batch.dim >= q.ndim - 1:
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
    return Places(
        batch, order, queries[order[:, 0]], keys[order[:, 0]], len(names), query.grid, key.grid
    )


def _tokens(ids: Tensor, prefix: int) -> Tensor:
    position = ids % SPAN
    tokens = torch.where(position >= PREFIX, position - PREFIX, position + prefix)
    return torch.where(ids < 0, -1, tokens)


def reach_of(places: Places) -> Reach:
    cells = places.key_grid[0] * places.key_grid[1]
    covered = places.keys[places.keys >= places.prefix].unique().numel()
    if bool((places.queries < places.prefix).all()):
        return "class"
    if places.key_grid != places.query_grid or covered < cells:
        return "reduced"
    everywhere = all(keys[keys >= places.prefix].unique().numel() == cells for keys in places.keys)
    return "global" if len(places.keys) == 1 or everywhere else "windowed"


def fused_probabilities(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Tensor:
    """softmax(q k' * scale + bias), in float32 or better; zeros for a query that may look at nothing."""
    wide = torch.promote_types(query.dtype, torch.float32)
    if grouped:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = (query.to(wide) * factor) @ key.to(wide).transpose(-1, -2)
    if bias is None and not causal:
        return logits.softmax(
            -1
        )  # nothing is masked; the other one looks at everything three times more
    if causal:
        keep = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~keep, -torch.inf)
    if bias is not None:
        logits = (
            logits.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else logits + bias
        )
    return aten._safe_softmax.default(logits, -1)
