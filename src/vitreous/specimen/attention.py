"""Find the attention products of a graph, and the image positions of their queries and keys.

Fused attention (`scaled_dot_product_attention`) does not return its probabilities, so they are
recomputed from its arguments, including bias and mask. Attention that is written out is a product
of weights and values (`attention_products.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from vitreous.specimen.attention_geometry import Places
from vitreous.specimen.attention_products import Arrangement, Product, attention_product, is_summary
from vitreous.specimen.contractions import contraction
from vitreous.specimen.flow import Flow
from vitreous.specimen.graph import aten, numel, op, path, shape_of, walk_up
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.trace import PREFIX, SPAN, Trace, constant_along
from vitreous.unit_kinds import Reach, Weights

SOFTMAX = {"softmax", "_softmax", "_safe_softmax"}
SEARCH_LIMIT = 32
"""Maximum number of nodes visited in the search for a softmax."""


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One attention product of the graph; nodes are given by name."""

    product: str
    """The node: `scaled_dot_product_attention`, or the product of weights and values."""
    heads: int | None
    reach: Reach
    places: Places | None = None
    """Positions of its queries and keys; None if unknown, then its weights cannot be observed."""
    fused: bool = False
    weights: str | None = None
    """The node with the weights that multiply the values; None if attention is fused."""
    arrangement: Arrangement | None = None
    """How to turn the weights into matrices of queries by keys."""
    operands: tuple[str, ...] = ()
    equation: str = ""
    """The product of `operands` in the notation of `einsum`."""
    softmax: str | None = None
    """The node of the softmax, if the model changes its output before use (talking heads)."""
    kind: Weights = "probabilities"
    """What the weights are."""
    reason: str = ""
    """Why the weights cannot be observed, or why they are not probabilities."""

    @property
    def visible(self) -> bool:
        """Whether there are weights over image positions to observe."""
        return self.places is not None


def combine_sites(sites: Sequence[AttentionSite]) -> tuple[list[list[int]], Places]:
    """Combine several attention products of one unit into one attention.

    Sites with the same places are heads of one group (a loop over heads). Sites with other places
    are further groups (a loop over windows or queries). Sites whose shape, or groups whose number
    of heads, differ from the first are left out.

    Returns
    -------
    clusters
        For each group, the indices of its sites.
    places
        The places of all groups.
    """
    first = sites[0].places
    assert first is not None
    clusters: list[tuple[Places, list[int]]] = []
    for number, site in enumerate(sites):
        places = site.places
        if places is None or places.queries.shape != first.queries.shape:
            continue
        if places.keys.shape != first.keys.shape:
            continue
        for known, numbers in clusters:
            same_queries = torch.equal(known.queries, places.queries)
            if same_queries and torch.equal(known.keys, places.keys):
                numbers.append(number)
                break
        else:
            clusters.append((places, [number]))
    heads = [sum(sites[n].heads or 1 for n in numbers) for _, numbers in clusters]
    kept = [cluster for cluster, count in zip(clusters, heads, strict=True) if count == heads[0]]
    if len(kept) == 1:
        return [kept[0][1]], first
    queries = torch.cat([places.queries for places, _ in kept])
    keys = torch.cat([places.keys for places, _ in kept])
    return [numbers for _, numbers in kept], replace(first, queries=queries, keys=keys)


def find_attention(flow: Flow, body: list[fx.Node]) -> list[AttentionSite]:
    """The products of weights and values among `body`, in order; not those of queries and keys."""
    products = [n for n in body if flow.role[n] == "attention"]
    sites = [site for node in products if (site := _site(node, flow)) is not None]
    if sites or not products:
        return sites
    summaries = [node for node in products if _sums_over_positions(node, flow)]
    linear = [AttentionSite(n.name, _heads(n), "linear") for n in summaries]
    return linear or [_unplaced_site(products[-1], flow)]


def _site(node: fx.Node, flow: Flow) -> AttentionSite | None:
    """The site of one product; None if it belongs to another product or to linear attention."""
    if op(node) == "scaled_dot_product_attention":
        return _fused(node, flow)
    product = attention_product(flow.positions, node)
    if product is not None:
        return _unfused(node, product, flow)
    if _attends_over_channels(node, flow):
        return AttentionSite(node.name, _heads(node), "channel")
    operands = flow.positions.data_inputs(node)
    if _sums_over_positions(node, flow) or any(
        is_summary(flow.positions, operand) for operand in operands
    ):
        return None
    softmaxes = [_softmax_before(operand, flow) for operand in operands]
    has_weights = sum(name is not None for name in softmaxes) == 1
    return _unplaced_site(node, flow) if has_weights else None


def _heads(node: fx.Node) -> int | None:
    shape = shape_of(node)
    return shape[1] if len(shape) == 4 else None


def _fused(node: fx.Node, flow: Flow) -> AttentionSite:
    query_node: Any = node.args[0]
    query, key = flow.trace(query_node), flow.positions.known(node.args[1])
    site = AttentionSite(node.name, _heads(query_node), "unknown", fused=True)
    if query is not None and not constant_along(query.ids, -1):
        return replace(site, reach="channel")
    if query is None and node in flow.positions.pooled:
        query = flow.trace(node)
    if query is None or key is None or not constant_along(key.ids, -1):
        return replace(_unplaced_site(node, flow), fused=True)
    lead = shape_of(node)[:-1]
    k = key.ids[..., 0]
    k = k.reshape(*[1] * (len(lead) - k.ndim), *k.shape)
    if len(lead) == 3 and 1 < k.shape[1] < lead[1]:  # neighbouring heads share their keys
        k = k.repeat_interleave(lead[1] // k.shape[1], 1)
    k = k.expand(*lead[:-1], k.shape[-1])
    site = _with_places(site, query.like(query.ids[..., 0].expand(lead)), key.like(k))
    masked = site.reach == "global" and _has_fixed_mask(node, flow)
    return replace(site, reach="windowed") if masked else site


def _has_fixed_mask(node: fx.Node, flow: Flow) -> bool:
    """Whether a mask that does not depend on the images hides some keys from some queries."""
    mask: Any = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    if not isinstance(mask, fx.Node) or mask in flow.data:
        return False
    value = flow.positions.constant(mask)
    if value.is_meta:
        return False
    return bool((~value if value.dtype == torch.bool else value == -torch.inf).any())


def _unfused(node: fx.Node, product: Product, flow: Flow) -> AttentionSite:
    site = AttentionSite(
        product=node.name,
        heads=_heads(product.weights),
        reach="unknown",
        weights=product.weights.name,
        arrangement=product.arrangement,
        operands=tuple(operand.name for operand in product.contraction.operands),
        equation=product.contraction.equation,
        softmax=_softmax_before(product.weights, flow),
    )
    return _with_places(site, product.query, product.key)


def _softmax_before(operand: fx.Node, flow: Flow) -> str | None:
    """The name of the nearest softmax that `operand` is computed from, or None.

    The search passes only tensors of the operand's size and stops at other attention products.
    """
    size = operand.meta["val"].numel()

    def follow(node: fx.Node) -> Iterable[fx.Node]:
        if flow.role[node] == "attention":
            return []
        return [p for p in flow.positions.data_inputs(node) if numel(p) == size]

    nodes = walk_up(operand, follow, most=SEARCH_LIMIT)
    return next((node.name for node in nodes if op(node) in SOFTMAX), None)


def _attends_over_channels(node: fx.Node, flow: Flow) -> bool:
    """Whether a softmax over (channels, channels) multiplies the features, as in XCiT."""
    operands = flow.positions.data_inputs(node)
    for operand in operands:
        placed = any(flow.trace(other) is not None for other in operands if other is not operand)
        if flow.trace(operand) is None and placed:
            return _softmax_before(operand, flow) is not None
    return False


def _sums_over_positions(node: fx.Node, flow: Flow) -> bool:
    """Whether a product sums over the positions of both operands, as linear attention does."""
    product = contraction(node)
    if product is None or any(map(flow.positions.from_queries_and_keys, product.operands)):
        return False
    summed_operands = 0
    for number, operand in enumerate(product.operands):
        trace = flow.trace(operand)
        if trace is not None:
            dims = product.summed(number)
            summed_operands += any(not constant_along(trace.ids, dim) for dim in dims)
    return summed_operands > 1


def _unplaced_site(node: fx.Node, flow: Flow) -> AttentionSite:
    """The site of a product with unknown axes; its reason says where positions got unknown."""
    place = ""
    for current in walk_up(node, flow.positions.data_inputs):
        sources = flow.positions.data_inputs(current)
        traced = any(flow.trace(source) is not None for source in sources)
        if current is not node and flow.trace(current) is None and traced:
            place = f" after {op(current)} in {path(current) or 'the model itself'}"
            break
    reason = f"It cannot be told which positions its queries and keys have{place}."
    return AttentionSite(node.name, _heads(node), "unknown", reason=reason)


def _with_places(site: AttentionSite, query: Trace, key: Trace) -> AttentionSite:
    """The site with the places given by position numbers (…, queries) and (…, keys)."""
    places = _places(query, key)
    if places is None:
        reason = "Its queries and keys do not form groups that are alike in all heads."
        return replace(site, reason=reason)
    return replace(site, heads=places.order.shape[1], reach=reach_of(places), places=places)


def _places(query: Trace, key: Trace) -> Places | None:
    batch = BatchAxis.of(torch.cat([query.ids, key.ids], -1))
    if batch is None or batch.dim >= query.ids.ndim - 1:
        return None
    tokens = max(query.prefix, key.prefix, key=len)
    prefix = len(tokens)
    queries = _tokens(batch.split(query.ids)[0].flatten(0, -2), prefix)
    keys = _tokens(batch.split(key.ids)[0].flatten(0, -2), prefix)
    rows, group = torch.unique(torch.cat([queries, keys], 1), dim=0, return_inverse=True)
    if len(group.bincount().unique()) != 1:
        return None
    order = group.argsort(stable=True).reshape(len(rows), -1)
    order = order[order[:, 0].argsort()]  # groups in the order in which they appear
    first = order[:, 0]
    return Places(batch, order, queries[first], keys[first], prefix, query.grid, key.grid, tokens)


def _tokens(ids: Tensor, prefix: int) -> Tensor:
    """Convert position numbers to token numbers: prefix first, then the grid; -1 is padding."""
    position = ids % SPAN
    tokens = torch.where(position >= PREFIX, position - PREFIX, position + prefix)
    return torch.where(ids < 0, -1, tokens)


def reach_of(places: Places) -> Reach:
    """What the queries attend over; 'class' if all queries are prefix tokens."""
    if bool((places.queries < places.prefix).all()):
        return "class"
    cells = places.key_grid[0] * places.key_grid[1]
    covered = places.keys[places.keys >= places.prefix].unique().numel()
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
    """softmax(q kᵀ * scale + bias) in float32 or better; a fully masked row is zero."""
    wide = torch.promote_types(query.dtype, torch.float32)
    if grouped:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = (query.to(wide) * factor) @ key.to(wide).transpose(-1, -2)
    if bias is None and not causal:
        return logits.softmax(-1)  # `_safe_softmax` reads the logits three more times
    if causal:
        keep = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~keep, -torch.inf)
    if bias is not None and bias.dtype == torch.bool:
        logits = logits.masked_fill(~bias, -torch.inf)
    elif bias is not None:
        logits = logits + bias
    return aten._safe_softmax.default(logits, -1)
