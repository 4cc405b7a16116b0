"""Change a model by editing a copy of its graph: remove a branch, a skip or a convolution, or replace what attends.

Nothing is patched: the result is a new module over the same weights, so a compiled model cannot miss the change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import VitreousError
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.attention import AttentionSite, merged
from vitreous.specimen.attention_geometry import Places, offsets
from vitreous.specimen.graph import aten, path
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.observe import Wiring, fused_arguments
from vitreous.specimen.products import Arrangement
from vitreous.specimen.trace import shape_of
from vitreous.unit_kinds import Weights

Nodes = dict[str, fx.Node]


def drop_branch(module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit) -> None:
    """The lesion (A4.14): what the unit adds is left out. Without a skip its input passes on, or zeros where the shape
    changes."""
    if wiring.total is not None:
        for name in wiring.branches:
            _leave_out(name, wiring, nodes, unit)
        return
    end = _present(nodes, wiring.branches[0], unit)
    start = nodes.get(wiring.before) if wiring.before is not None else None
    if start is not None and shape_of(start) == shape_of(end):
        _becomes(end, aten.alias.default, start)
        return
    with module.graph.inserting_before(end):
        original = module.graph.node_copy(end)
    _becomes(end, aten.zeros_like.default, original)


def drop_skip(nodes: Nodes, wiring: Wiring, unit: Unit) -> None:
    """Only the branches pass (A2.24, at test time)."""
    if wiring.skip is None:
        raise VitreousError(
            f"Unit {unit.name!r} has no skip to remove; units with one have unit.skip == True."
        )
    _leave_out(wiring.skip, wiring, nodes, unit)


def _leave_out(summand: str, wiring: Wiring, nodes: Nodes, unit: Unit) -> None:
    """Remove one summand from the unit's sum; with nothing left the sum is zero. It keeps its name, so that it can be
    seen and edited again."""
    for node in _additions(wiring, nodes, unit):
        parts = [a for a in node.args if isinstance(a, fx.Node)]
        rest = [a for a in parts if a.name != summand]
        if len(rest) == len(parts):
            continue
        factor = node.kwargs.get("alpha", 1) if rest and rest[0] is not parts[0] else 1
        if not rest:
            _becomes(node, aten.zeros_like.default, parts[0])
        elif factor != 1:
            _becomes(node, aten.mul.Tensor, rest[0], factor)
        else:
            _becomes(node, aten.alias.default, rest[0])


def _additions(wiring: Wiring, nodes: Nodes, unit: Unit) -> list[fx.Node]:
    """The additions (or what earlier edits left of them) that put skip and branches together."""
    found, queue = [], [_present(nodes, str(wiring.total), unit)]
    while queue:
        node = queue.pop()
        found.append(node)
        inner = [p for p in node.all_input_nodes if p.name not in (wiring.skip, *wiring.branches)]
        queue.extend(p for p in inner if p.target in (aten.add.Tensor, aten.alias.default))
    return found


def _becomes(node: fx.Node, target: Callable[..., Any], *args: Any) -> None:
    """The node computes something else, of the same shape and under the same name."""
    node.target, node.args, node.kwargs = target, args, {}


def _present(nodes: Nodes, name: str, unit: Unit) -> fx.Node:
    if name not in nodes:
        raise VitreousError(
            f"An earlier edit removed what {unit.name!r} computes; make this edit before that one."
        )
    return nodes[name]


def replace_branch(
    module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit, fn: Callable[..., Tensor]
) -> None:
    """The branch becomes `fn(before)`, or `fn(before, branch)` for a function of two arguments."""
    if wiring.before is None or len(wiring.branches) != 1:
        raise VitreousError(
            f"The branch of unit {unit.name!r} cannot be replaced: it is a sum of several tensors."
        )
    before, branch = (_present(nodes, name, unit) for name in (wiring.before, wiring.branches[0]))
    name = _fresh(module, f"branch_{unit.index}")
    module.add_module(name, fn if isinstance(fn, nn.Module) else _Function(fn))
    args = (before, branch) if takes_two(fn) else (before,)
    with module.graph.inserting_after(branch):
        new = module.graph.call_module(name, args)
    _replace(branch, new, nodes)


class _Function(nn.Module):
    def __init__(self, fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Tensor) -> Tensor:
        return self.fn(*args)


def takes_two(fn: Callable[..., Tensor]) -> bool:
    """Whether a function has two arguments that must be given."""
    try:
        parameters = inspect.signature(
            fn.forward if isinstance(fn, nn.Module) else fn
        ).parameters.values()
    except ValueError:  # torch's own functions have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.default is p.empty and p.kind in positional for p in parameters) == 2


def drop_convolution(node: fx.Node) -> None:
    """One convolution becomes the identity (A4.14 for ResNets), sub-sampled where it had a stride."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    old, new = shape_of(source), shape_of(node)
    steps = [-(-a // b) for a, b in zip(old[2:], new[2:], strict=True)]
    thinned = tuple(-(-a // step) for a, step in zip(old[2:], steps, strict=True))
    if (old[1], *thinned) != new[1:]:
        raise VitreousError(
            f"Convolution {path(node)!r} cannot become the identity: it turns (channels, height, width) {old[1:]} into "
            f"{new[1:]}; lesion its whole unit instead."
        )
    _becomes(node, _subsample, source, *steps) if max(steps) > 1 else _becomes(
        node, aten.alias.default, source
    )


def _subsample(value: Tensor, *steps: int) -> Tensor:
    where: tuple[Any, ...] = (..., *(slice(None, None, step) for step in steps))
    return value[where]


def replace_attention(
    module: fx.GraphModule, nodes: Nodes, site: AttentionSite, matrix: Tensor, unit: Unit
) -> AttentionSite:
    """Attention by fixed probabilities, given per group and head: (groups, heads, queries, keys).

    Returns the site as it is now, so that the new probabilities can be seen and replaced in turn.
    """
    places = site.places
    assert places is not None
    graph, product = module.graph, _present(nodes, site.product, unit)
    target = product if site.fused else _present(nodes, str(site.weights), unit)
    shape = shape_of(target)
    turn = site.arrangement or Arrangement(tuple(range(len(shape))), 1, 1)
    lead = tuple(shape[dim] for dim in turn.order[: len(shape) - turn.queries - turn.keys])
    inner = places.batch.split(torch.empty(*lead, 0)).shape[1:-1]
    single = places.scatter(matrix, tuple(inner), 1)  # native layout of one image
    images = next(n for n in graph.nodes if n.op == "placeholder")
    name = _fresh(module, f"attention_{unit.index}")
    module.register_buffer(name, single.to(**_home(module, target, images)))
    axis = places.batch
    with graph.inserting_before(target):
        new = graph.call_function(
            _for_batch, (graph.get_attr(name), images, axis.dim, axis.inner, axis.major)
        )
        if not site.fused:
            new = graph.call_function(turn.native, (new, shape))
    for node in graph.nodes:  # what is put in may lie in memory in another order
        if node.target is aten.view.default:
            node.target = aten.reshape.default
    site = replace(site, arrangement=turn, kind=_kind(matrix), softmax=None)
    if not site.fused:
        _replace(target, new, nodes)
        return site
    new.meta["val"] = torch.empty(
        *lead, *matrix.shape[-2:], dtype=target.meta["val"].dtype, device="meta"
    )
    nodes[new.name] = new
    value, grouped = (
        fused_arguments(product)["value"],
        fused_arguments(product).get("enable_gqa", False),
    )
    with graph.inserting_before(target):
        if grouped:
            value = graph.call_function(
                aten.repeat_interleave.self_int, (value, lead[1] // shape_of(value)[1], 1)
            )
        _replace(target, graph.call_function(aten.matmul.default, (new, value)), nodes)
    return replace(site, fused=False, weights=new.name)


def _kind(matrix: Tensor) -> Weights:
    if bool((matrix < 0).any()):
        return "signed"
    sums = matrix.double().sum(-1)
    return (
        "probabilities"
        if bool(((sums - 1).abs() < 1e-3).where(sums != 0, True).all())
        else "positive"
    )


def share(given: Any, sites: Sequence[AttentionSite], number: int) -> Any:
    """The part of a given tensor that belongs to one of several products of a unit (heads or windows in a loop)."""
    clusters, places = merged(sites)
    if not isinstance(given, Tensor) or len(sites) == 1 or given.ndim < 3:
        return given
    at = next((i for i, numbers in enumerate(clusters) if number in numbers), None)
    if at is None:
        raise VitreousError(
            "The unit has several attentions of different shapes; only 'uniform' can replace them."
        )
    heads = [sites[n].heads or 1 for n in clusters[at]]
    first = sum(heads[: clusters[at].index(number)])
    if given.shape[-3] == sum(heads):
        given = given.narrow(-3, first, sites[number].heads or 1)
    if given.ndim == 4 and len(given) == len(places.queries):
        here = sites[number].places
        assert here is not None
        given = given.narrow(0, at * len(here.queries), len(here.queries))  # clusters are alike
    return given


def _home(module: fx.GraphModule, node: fx.Node, images: fx.Node) -> dict[str, Any]:
    """The device and type a constant needs beside `node`: the model may have been moved since its graph was read."""
    weight = next(module.parameters(), None)
    usual = weight is not None and node.meta["val"].dtype == images.meta["val"].dtype
    return {
        "device": weight.device if weight is not None else None,
        "dtype": weight.dtype if weight is not None and usual else node.meta["val"].dtype,
    }


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
        down, right = offsets(places)
        near = (down.abs() <= box[0] // 2) & (right.abs() <= box[1] // 2)
        allowed = allowed & (near & (keys >= places.prefix) | (queries < places.prefix))
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
    if (
        matrix.ndim not in (2, 3)
        or full.shape[-2:] != (rows, columns)
        or full.shape[0] not in (1, heads)
    ):
        raise VitreousError(
            f"Attention of {unit.name!r} takes a matrix of shape ({rows}, {columns}), ({heads}, {rows}, {columns}) or "
            f"{groups}, not {tuple(matrix.shape)}."
        )
    padded = torch.nn.functional.pad(full, (0, 1, 0, 1)).expand(heads, -1, -1)
    cut = padded[:, places.queries[:, :, None], places.keys[:, None, :]]
    return cut.transpose(0, 1)


def _replace(old: fx.Node, new: fx.Node, nodes: Nodes) -> None:
    """`new` takes the place of `old`, its name included: whoever looks for it later finds what is there now."""
    name = old.name
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    old._rename(f"{name}_before")
    new.name = name
    nodes[name] = new


def _fresh(module: fx.GraphModule, name: str) -> str:
    """A name no part of the module has yet."""
    return name if not hasattr(module, name) else _fresh(module, f"{name}_")
