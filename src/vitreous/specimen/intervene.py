"""Change a model by editing a copy of its graph: remove a branch, a skip or a convolution, or replace what attends.

Nothing is patched: the result is a new module over the same weights, so a compiled model cannot miss the change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import VitreousError
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.attention import AttentionSite, Places
from vitreous.specimen.graph import aten
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.observe import Wiring
from vitreous.specimen.positions import shape_of

Nodes = dict[str, fx.Node]


def drop_branch(module: fx.GraphModule, nodes: Nodes, wiring: Wiring) -> None:
    """The lesion (A4.14): what the unit adds is left out. Without a skip its input passes on, or zeros where the shape
    changes."""
    graph = module.graph
    if wiring.total is not None:
        for name in wiring.branches:
            _leave_out(graph, nodes[name], nodes)
        return
    (end,) = (nodes[name] for name in wiring.branches)
    start = nodes[wiring.before] if wiring.before is not None else None
    if start is not None and shape_of(start) == shape_of(end):
        end.replace_all_uses_with(start)
        return
    with graph.inserting_after(end):
        zeros = graph.call_function(aten.zeros_like.default, (end,))
    _meta(zeros, end)
    end.replace_all_uses_with(zeros, delete_user_cb=lambda user: user is not zeros)


def drop_skip(module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit) -> None:
    """Only the branches pass (A2.24, at test time)."""
    if wiring.skip is None:
        raise VitreousError(f"Unit {unit.name!r} has no skip to remove; units with one have unit.skip == True.")
    _leave_out(module.graph, nodes[wiring.skip], nodes, among=_sums_below(nodes[wiring.skip], nodes[str(wiring.total)]))


def _sums_below(start: fx.Node, total: fx.Node) -> set[fx.Node]:
    """The additions through which `start` reaches `total`."""
    found, queue = {total}, [total]
    while queue:
        for parent in queue.pop().all_input_nodes:
            if parent.target in (aten.add.Tensor, aten.add_.Tensor) and start in parent.args and parent not in found:
                found.add(parent)
                queue.append(parent)
    return {node for node in found if start in node.args}


def _leave_out(graph: fx.Graph, summand: fx.Node, nodes: Nodes, among: set[fx.Node] | None = None) -> None:
    """Remove one summand from the addition it enters."""
    sums = [u for u in summand.users if u.target is aten.add.Tensor and (among is None or u in among)]
    for addition in sums[:1] if among is None else sums:
        left, right = addition.args[:2]
        other = right if left is summand else left
        assert isinstance(other, fx.Node)
        addition.replace_all_uses_with(other)


def replace_branch(
    module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit, fn: Callable[..., Tensor], index: int
) -> None:
    """The branch becomes `fn(before)`, or `fn(before, branch)` for a function of two arguments."""
    if wiring.before is None or len(wiring.branches) != 1:
        raise VitreousError(f"The branch of unit {unit.name!r} cannot be replaced: it is a sum of several tensors.")
    before, branch = nodes[wiring.before], nodes[wiring.branches[0]]
    module.add_module(f"branch_{index}", fn if isinstance(fn, nn.Module) else _Function(fn))
    args = (before, branch) if _takes_two(fn) else (before,)
    with module.graph.inserting_after(branch):
        new = module.graph.call_module(f"branch_{index}", args)
    _meta(new, branch)
    branch.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)


class _Function(nn.Module):
    def __init__(self, fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Tensor) -> Tensor:
        return self.fn(*args)


def _takes_two(fn: Callable[..., Tensor]) -> bool:
    target = fn.forward if isinstance(fn, nn.Module) else fn
    required = [
        p
        for p in inspect.signature(target).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 2


def drop_convolution(module: fx.GraphModule, node: fx.Node, name: str) -> None:
    """One convolution becomes the identity (A4.14 for ResNets), sub-sampled where it had a stride."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if shape_of(source)[1] != shape_of(node)[1]:
        channels = f"{shape_of(source)[1]} to {shape_of(node)[1]}"
        raise VitreousError(
            f"Convolution {name!r} cannot become the identity: it changes the channels from {channels}."
        )
    if shape_of(source) == shape_of(node):
        node.replace_all_uses_with(source)
        return
    stride = [-(-a // b) for a, b in zip(shape_of(source)[2:], shape_of(node)[2:], strict=True)]
    with module.graph.inserting_before(node):
        new = module.graph.call_function(_subsample, (source, *stride))
    _meta(new, node)
    node.replace_all_uses_with(new)


def _subsample(value: Tensor, rows: int, columns: int) -> Tensor:
    return value[..., ::rows, ::columns]


def replace_attention(module: fx.GraphModule, nodes: Nodes, site: AttentionSite, matrix: Tensor, index: int) -> None:
    """Attention by fixed probabilities, given per group and head: (groups, heads, queries, keys)."""
    places = site.places
    assert places is not None
    graph, product = module.graph, nodes[site.product]
    target = product if site.fused else nodes[str(site.weights)]
    lead = shape_of(target)[:-2]
    inner = places.batch.split(torch.empty(*lead, 0)).shape[1:-1]
    single = places.scatter(matrix, tuple(inner), 1)  # native layout of one image
    module.register_buffer(f"attention_{index}", single.to(target.meta["val"].dtype))
    images = next(n for n in graph.nodes if n.op == "placeholder")
    axis = places.batch
    with graph.inserting_before(target):
        fixed = graph.get_attr(f"attention_{index}")
        new = graph.call_function(_for_batch, (fixed, images, axis.dim, axis.inner, axis.major))
        if site.fused:
            new = graph.call_function(aten.matmul.default, (new, product.args[2]))
    _meta(new, target)
    target.replace_all_uses_with(new)


def _for_batch(single: Tensor, images: Tensor, dim: int, inner: int, major: bool) -> Tensor:
    """The probabilities of one image, repeated for every image of the batch."""
    axis = BatchAxis(dim, inner, major)
    one = axis.split(single)
    return axis.join(one.expand(images.shape[0], *one.shape[1:]))


def uniform(places: Places, heads: int, box: Grid | None = None) -> Tensor:
    """Equal weights over all keys of the group, or over a k x k neighbourhood of each query; prefix queries attend to
    all keys in both cases."""
    queries, keys = places.queries[:, :, None], places.keys[:, None, :]
    allowed = (keys >= 0).expand(-1, queries.shape[1], -1)
    if box is not None:
        if places.query_grid != places.key_grid:
            raise VitreousError(
                f"A neighbourhood needs queries and keys on one grid, but here they lie on {places.query_grid} and "
                f"{places.key_grid}; use 'uniform'."
            )
        width = places.query_grid[1]
        q, k = queries - places.prefix, keys - places.prefix
        near = ((q // width - k // width).abs() <= box[0] // 2) & ((q % width - k % width).abs() <= box[1] // 2)
        allowed = allowed & (near & (k >= 0) | (q < 0))
    weights = allowed.double()
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return weights.float()[:, None].expand(-1, heads, -1, -1)


def grouped(matrix: Tensor, places: Places, heads: int, unit: Unit) -> Tensor:
    """A user's matrix, (queries, keys) or (heads, queries, keys) over tokens, cut to the groups of the unit; a tensor
    that comes per group already, (groups, heads, queries, keys), is taken as it is."""
    groups = (len(places.queries), heads, places.queries.shape[1], places.keys.shape[1])
    if tuple(matrix.shape) == groups:
        return matrix
    rows, columns = (places.prefix + h * w for h, w in (places.query_grid, places.key_grid))
    full = matrix if matrix.ndim == 3 else matrix[None]
    if matrix.ndim not in (2, 3) or full.shape[-2:] != (rows, columns) or full.shape[0] not in (1, heads):
        raise VitreousError(
            f"Attention of {unit.name!r} takes a matrix of shape ({rows}, {columns}), ({heads}, {rows}, {columns}) or "
            f"{groups}, not {tuple(matrix.shape)}."
        )
    padded = torch.nn.functional.pad(full, (0, 1, 0, 1)).expand(heads, -1, -1)
    cut = padded[:, places.queries[:, :, None], places.keys[:, None, :]]
    return cut.transpose(0, 1)


def _meta(new: fx.Node, old: fx.Node) -> Any:
    """What is known of the replaced node (shape, module) holds for the new one."""
    new.meta = dict(old.meta)
