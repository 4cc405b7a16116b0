"""Change a model by editing a copy of its graph: remove parts, or replace attention.

The result is a new module over the same weights. The model itself is not patched, so a compiled
model cannot ignore the change.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import VitreousError
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.attention import AttentionSite, combine_sites
from vitreous.specimen.attention_geometry import Places, offsets
from vitreous.specimen.attention_products import Arrangement
from vitreous.specimen.graph import aten, path, shape_of
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.observe import Wiring, fused_arguments
from vitreous.unit_kinds import Weights

Nodes = dict[str, fx.Node]


def drop_branch(module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit) -> None:
    """Lesion: remove the branches of a unit from its sum.

    The output of a unit without a skip becomes its input, or zeros if the shapes differ.
    """
    if wiring.total is not None:
        for name in wiring.branches:
            _drop_summand(name, wiring, nodes, unit)
        return
    end = _existing(nodes, wiring.branches[0], unit)
    start = nodes.get(wiring.before) if wiring.before is not None else None
    if start is not None and shape_of(start) == shape_of(end):
        _compute(end, aten.alias.default, start)
        return
    with module.graph.inserting_before(end):
        original = module.graph.node_copy(end)
    _compute(end, aten.zeros_like.default, original)


def drop_skip(nodes: Nodes, wiring: Wiring, unit: Unit) -> None:
    """Remove the skip from a unit's sum, so that only the branches are left."""
    if wiring.skip is None:
        raise VitreousError(
            f"Unit {unit.name!r} has no skip to remove; units with one have unit.skip == True."
        )
    _drop_summand(wiring.skip, wiring, nodes, unit)


def _drop_summand(summand: str, wiring: Wiring, nodes: Nodes, unit: Unit) -> None:
    """Remove one summand from the unit's sum; an empty sum becomes zero.

    The sum keeps its name, so that it can be observed and edited again.
    """
    for node in _additions(wiring, nodes, unit):
        parts = [a for a in node.args if isinstance(a, fx.Node)]
        rest = [a for a in parts if a.name != summand]
        if len(rest) == len(parts):
            continue
        factor = node.kwargs.get("alpha", 1) if rest and rest[0] is not parts[0] else 1
        if not rest:
            _compute(node, aten.zeros_like.default, parts[0])
        elif factor != 1:
            _compute(node, aten.mul.Tensor, rest[0], factor)
        else:
            _compute(node, aten.alias.default, rest[0])


def _additions(wiring: Wiring, nodes: Nodes, unit: Unit) -> list[fx.Node]:
    """The nodes that add skip and branches, including those that earlier edits have changed."""
    additions, queue = [], [_existing(nodes, str(wiring.total), unit)]
    while queue:
        node = queue.pop()
        additions.append(node)
        inner = [p for p in node.all_input_nodes if p.name not in (wiring.skip, *wiring.branches)]
        queue.extend(p for p in inner if p.target in (aten.add.Tensor, aten.alias.default))
    return additions


def _compute(node: fx.Node, target: Callable[..., Any], *args: Any) -> None:
    """Change what a node computes; it keeps its name and must keep its shape."""
    node.target, node.args, node.kwargs = target, args, {}


def _existing(nodes: Nodes, name: str, unit: Unit) -> fx.Node:
    if name not in nodes:
        raise VitreousError(
            f"An earlier edit removed what {unit.name!r} computes; make this edit before that one."
        )
    return nodes[name]


def replace_branch(
    module: fx.GraphModule, nodes: Nodes, wiring: Wiring, unit: Unit, fn: Callable[..., Tensor]
) -> None:
    """Replace the branch by `fn(before)`, or by `fn(before, branch)` if `fn` takes both."""
    if wiring.before is None or len(wiring.branches) != 1:
        raise VitreousError(
            f"The branch of unit {unit.name!r} cannot be replaced: it is a sum of several tensors."
        )
    before, branch = (_existing(nodes, name, unit) for name in (wiring.before, wiring.branches[0]))
    name = _free_name(module, f"branch_{unit.index}")
    module.add_module(name, fn if isinstance(fn, nn.Module) else _Function(fn))
    args = (before, branch) if takes_two(fn) else (before,)
    with module.graph.inserting_after(branch):
        new = module.graph.call_module(name, args)
    _replace_node(branch, new, nodes)


class _Function(nn.Module):
    """A function as a module, so that a graph can call it."""

    def __init__(self, fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Tensor) -> Tensor:
        return self.fn(*args)


def takes_two(fn: Callable[..., Tensor]) -> bool:
    """Whether a function has two required arguments."""
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, nn.Module) else fn)
    except ValueError:  # builtin functions of torch have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    return sum(p.default is p.empty and p.kind in positional for p in parameters) == 2


def drop_convolution(node: fx.Node) -> None:
    """Replace one convolution by the identity, subsampled by its stride."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    input_shape, output_shape = shape_of(source), shape_of(node)
    steps = [-(-a // b) for a, b in zip(input_shape[2:], output_shape[2:], strict=True)]
    subsampled = tuple(-(-a // step) for a, step in zip(input_shape[2:], steps, strict=True))
    if (input_shape[1], *subsampled) != output_shape[1:]:
        raise VitreousError(
            f"Convolution {path(node)!r} cannot become the identity: it turns (channels, height, "
            f"width) {input_shape[1:]} into {output_shape[1:]}; lesion its whole unit instead."
        )
    if max(steps) > 1:
        _compute(node, _subsample, source, *steps)
    else:
        _compute(node, aten.alias.default, source)


def _subsample(value: Tensor, *steps: int) -> Tensor:
    index: tuple[Any, ...] = (..., *(slice(None, None, step) for step in steps))
    return value[index]


def replace_attention(
    module: fx.GraphModule, nodes: Nodes, site: AttentionSite, matrix: Tensor, unit: Unit
) -> AttentionSite:
    """Replace attention by fixed probabilities, (groups, heads, queries, keys).

    Returns the changed site, with which the new probabilities can be observed or replaced again.
    """
    places = site.places
    assert places is not None
    graph, product = module.graph, _existing(nodes, site.product, unit)
    target = product if site.fused else _existing(nodes, str(site.weights), unit)
    shape = shape_of(target)
    arrangement = site.arrangement or Arrangement(tuple(range(len(shape))), 1, 1)
    leading = len(shape) - arrangement.queries - arrangement.keys
    lead = tuple(shape[dim] for dim in arrangement.order[:leading])
    inner = places.batch.split(torch.empty(*lead, 0)).shape[1:-1]
    one_image = places.scatter(matrix, tuple(inner), 1)
    images = next(n for n in graph.nodes if n.op == "placeholder")
    name = _free_name(module, f"attention_{unit.index}")
    module.register_buffer(name, one_image.to(**_device_and_dtype(module, target, images)))
    axis = places.batch
    with graph.inserting_before(target):
        args = (graph.get_attr(name), images, axis.dim, axis.inner, axis.major)
        new = graph.call_function(_for_batch, args)
        if not site.fused:
            new = graph.call_function(arrangement.native, (new, shape))
    for node in graph.nodes:
        # the new weights may have other strides, for which `view` fails
        if node.target is aten.view.default:
            node.target = aten.reshape.default
    site = replace(site, arrangement=arrangement, kind=_kind(matrix), softmax=None)
    if not site.fused:
        _replace_node(target, new, nodes)
        return site
    # Named after the product: a name that another unit's edit may take would be found there.
    new._rename(f"{site.product}_weights")
    sizes, dtype = (*lead, *matrix.shape[-2:]), target.meta["val"].dtype
    new.meta["val"] = torch.empty(sizes, dtype=dtype, device="meta")
    nodes[new.name] = new
    arguments = fused_arguments(product)
    value = arguments["value"]
    with graph.inserting_before(target):
        if arguments.get("enable_gqa", False):
            repeats = lead[1] // shape_of(value)[1]
            value = graph.call_function(aten.repeat_interleave.self_int, (value, repeats, 1))
        _replace_node(target, graph.call_function(aten.matmul.default, (new, value)), nodes)
    return replace(site, fused=False, weights=new.name)


def _kind(matrix: Tensor) -> Weights:
    """The kind of fixed weights; rows of zeros belong to padding and are ignored."""
    if bool((matrix < 0).any()):
        return "signed"
    sums = matrix.double().sum(-1)
    sums_to_one = ((sums - 1).abs() < 1e-3).where(sums != 0, True)
    return "probabilities" if bool(sums_to_one.all()) else "positive"


def part_for_site(attention: Any, sites: Sequence[AttentionSite], number: int) -> Any:
    """Cut the part for site `number` out of attention given for a unit with several products."""
    clusters, places = combine_sites(sites)
    if not isinstance(attention, Tensor) or len(sites) == 1 or attention.ndim < 3:
        return attention
    group = next((i for i, numbers in enumerate(clusters) if number in numbers), None)
    if group is None:
        raise VitreousError(
            "The unit has several attentions of different shapes; only 'uniform' can replace them."
        )
    heads = [sites[n].heads or 1 for n in clusters[group]]
    first_head = sum(heads[: clusters[group].index(number)])
    if attention.shape[-3] == sum(heads):
        attention = attention.narrow(-3, first_head, sites[number].heads or 1)
    if attention.ndim == 4 and len(attention) == len(places.queries):
        own_places = sites[number].places
        assert own_places is not None
        size = len(own_places.queries)  # the same in all clusters
        attention = attention.narrow(0, group * size, size)
    return attention


def _device_and_dtype(module: fx.GraphModule, node: fx.Node, images: fx.Node) -> dict[str, Any]:
    """Device and dtype of a constant in place of `node`, since the model may have been moved."""
    dtype = node.meta["val"].dtype
    weight = next(module.parameters(), None)
    if weight is None:
        return {"device": None, "dtype": dtype}
    as_images = dtype == images.meta["val"].dtype
    return {"device": weight.device, "dtype": weight.dtype if as_images else dtype}


def _for_batch(single: Tensor, images: Tensor, dim: int, inner: int, major: bool) -> Tensor:
    """Repeat the probabilities of one image for every image of the batch."""
    axis = BatchAxis(dim, inner, major)
    split = axis.split(single)
    return axis.join(split.expand(images.shape[0], *split.shape[1:]))


def fixed_attention(given: str | Tensor, unit: Unit, places: Places, heads: int) -> Tensor:
    """Convert attention given by the user to (groups, heads, queries, keys).

    `given` is 'uniform', 'uniform 3x3' or a matrix over tokens.
    """
    if isinstance(given, Tensor):
        return _by_groups(given.detach().cpu(), places, heads, unit)
    words = re.fullmatch(r"uniform(?: (\d+)x(\d+))?", given)
    if words is None:
        raise VitreousError(
            "Attention is 'uniform', 'uniform 3x3' (odd sides), a tensor or a mapping, not "
            f"{given!r}."
        )
    box = (int(words[1]), int(words[2])) if words[1] else None
    if box is not None and not (box[0] % 2 and box[1] % 2):
        raise VitreousError(
            f"A neighbourhood has odd sides so that its query is in the middle, not {given!r}."
        )
    return uniform(places, heads, box)


def uniform(places: Places, heads: int, box: Grid | None = None) -> Tensor:
    """Equal weights over all keys of the group, or over a neighbourhood of each query.

    `box` is the height and width of the neighbourhood. Prefix queries attend to all keys in both
    cases.
    """
    queries, keys = places.queries[:, :, None], places.keys[:, None, :]
    allowed = (keys >= 0).expand(-1, queries.shape[1], -1)
    if box is not None:
        if places.query_grid != places.key_grid:
            raise VitreousError(
                "A neighbourhood needs queries and keys on one grid, but here they lie on "
                f"{places.query_grid} and {places.key_grid}; use 'uniform'."
            )
        down, right = offsets(places)
        near = (down.abs() <= box[0] // 2) & (right.abs() <= box[1] // 2)
        allowed = allowed & (near & (keys >= places.prefix) | (queries < places.prefix))
    weights = allowed.double()
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return weights.float()[:, None].expand(-1, heads, -1, -1)


def _by_groups(matrix: Tensor, places: Places, heads: int, unit: Unit) -> Tensor:
    """Divide a matrix (queries, keys) or (heads, queries, keys) over tokens into groups.

    A tensor (groups, heads, queries, keys) is returned as it is.
    """
    groups = (len(places.queries), heads, places.queries.shape[1], places.keys.shape[1])
    if tuple(matrix.shape) == groups:
        return matrix
    rows, columns = (places.prefix + h * w for h, w in (places.query_grid, places.key_grid))
    full = matrix if matrix.ndim == 3 else matrix[None]
    fits = full.shape[-2:] == (rows, columns) and full.shape[0] in (1, heads)
    if matrix.ndim not in (2, 3) or not fits:
        raise VitreousError(
            f"Attention of {unit.name!r} takes a matrix of shape ({rows}, {columns}), ({heads}, "
            f"{rows}, {columns}) or {groups}, not {tuple(matrix.shape)}."
        )
    padded = torch.nn.functional.pad(full, (0, 1, 0, 1)).expand(heads, -1, -1)
    cut = padded[:, places.queries[:, :, None], places.keys[:, None, :]]
    return cut.transpose(0, 1)


def _replace_node(old: fx.Node, new: fx.Node, nodes: Nodes) -> None:
    """Replace node `old` by `new` under the same name, by which later edits and taps find it."""
    name = old.name
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    old._rename(f"{name}_before")
    new.name = name
    nodes[name] = new


def _free_name(module: fx.GraphModule, name: str) -> str:
    """`name`, with underscores appended until no attribute of the module has it."""
    while hasattr(module, name):
        name += "_"
    return name
