"""Interventions of a lesion study: single edits of a model, and why others are impossible.

An edit is the model with one thing changed. It shares the weights; where weights are masked
(positions, gates), the masked ones are copies that are used for the pass alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.curvature.loss import forward_with
from vitreous.measure.probes.gates import PARAMETER
from vitreous.measure.probes.position_similarity import NAMED, RELATIVE
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.attention_geometry import Places, offsets
from vitreous.specimen.graph import op, path
from vitreous.specimen.observe import Sites
from vitreous.specimen.specimen import Specimen

MeanAttention = Callable[[], Mapping[str, Tensor]]
"""Attention averaged over the images, by unit, computed when it is needed."""
Forward = Callable[[Tensor], Any]
CERTAIN = 1e4
"""Logit of a gate whose sigmoid is exactly 1 in any dtype (and 0 for its negative)."""


class Edit(NamedTuple):
    """One change of a model."""

    unit: Unit
    part: str
    """What is changed: the unit, or a part of it, by its path."""
    change: str
    make: Callable[[MeanAttention], Forward]
    """Makes the changed model."""

    @property
    def key(self) -> str:
        return f"{self.part}: {self.change}"


class Edits(NamedTuple):
    """Possible edits, in the order of the units, and reasons for the impossible ones, by name."""

    possible: list[Edit]
    impossible: dict[str, str]


def remove_units(specimen: Specimen) -> Edits:
    """Remove every unit; without a skip, its input replaces it, if that has the same shape."""
    sites = _observe_blank(specimen, ("before", "branch"))
    edits = Edits([], {})
    for unit in specimen.units:
        before, branch = sites[unit.name].before, sites[unit.name].branch
        same = before is not None and branch is not None and before.raw.shape == branch.raw.shape
        if not unit.skip and not same:
            edits.impossible[unit.name] = (
                "It has no skip around it: without it nothing of the image would pass."
            )
        elif len(specimen.anatomy.find(unit.name)) > 1:
            edits.impossible[unit.name] = (
                "Its name is also a label or a kind of other units, so it cannot be removed alone."
            )
        else:
            make = partial(_edited, specimen.without, unit.name)
            edits.possible.append(Edit(unit, unit.name, "taken out", make))
    return edits


def remove_convolutions(specimen: Specimen) -> Edits:
    """Replace every convolution wider than 1 x 1 in a branch by the identity; its norm stays."""
    edits = Edits([], {})
    units = {unit.name for unit in specimen.units}
    wide: dict[str, None] = {}
    for node in specimen.module.graph.nodes:
        if op(node).startswith("conv") and max(node.args[1].meta["val"].shape[2:]) > 1:
            wide[path(node)] = None
    for name in wide:
        unit = _owner(specimen, name)
        if unit is None or unit.kind in ("stem", "downsample", "head") or name in units:
            continue
        try:
            specimen.without(name)
        except VitreousError:
            edits.impossible[name] = (
                "It changes the number of channels, so it cannot be the identity; its unit can go."
            )
        else:
            make = partial(_edited, specimen.without, name)
            edits.possible.append(Edit(unit, name, "identity", make))
    return edits


def remove_skips(specimen: Specimen) -> Edits:
    """Remove every skip connection: only the branch is left."""
    possible = [
        Edit(unit, unit.name, "skip removed", partial(_edited, specimen.without_skip, unit.name))
        for unit in specimen.units
        if unit.skip
    ]
    return Edits(possible, {})


def fix_attention(specimen: Specimen) -> Edits:
    """Replace the attention of every unit by weights that do not depend on the image.

    These are its mean over the images, that mean as a function of the offset alone, and equal
    weights over 3 x 3 neighbours.
    """
    edits = Edits([], {})
    units = [unit for unit in specimen.units if unit.kind == "attention"]
    sites = _observe_blank(specimen, ("attention",), [unit.name for unit in units])
    for unit in units:
        observed = sites[unit.name].attention if unit.name in sites else None
        if observed is None:
            edits.impossible[unit.name] = (
                f"Its attention ({unit.reach}) is no matrix over positions that could be fixed."
            )
            continue
        changes = ["mean over images"]
        if observed.query_grid == observed.key_grid:
            changes += ["offset alone", "uniform 3x3"]
        else:
            edits.impossible[unit.name] = (
                "Its queries and keys lie on different grids, so it has no offsets, only a mean."
            )
        for change in changes:
            make = partial(_with_fixed_attention, specimen, unit.name, observed.places, change)
            edits.possible.append(Edit(unit, unit.name, change, make))
    return edits


def mask_positions(specimen: Specimen) -> Edits:
    """Set each position embedding, and each table of relative positions, to zero."""
    weights = {**dict(specimen.module.named_parameters()), **dict(specimen.module.named_buffers())}
    tables: dict[str, list[str]] = {}
    for name, weight in weights.items():
        if weight.is_floating_point() and (NAMED.search(name) or RELATIVE.search(name)):
            table = name.removesuffix(".rows").removesuffix(".columns")
            tables.setdefault(table, []).append(name)
    possible = []
    for table, names in tables.items():
        unit = _owner(specimen, table) or specimen.units[0]
        zeros = {name: torch.zeros_like(weights[name]) for name in names}
        possible.append(Edit(unit, table, "masked", partial(_with_weights, specimen, zeros)))
    return Edits(sorted(possible, key=lambda edit: edit.unit.index), {})


def force_gates(specimen: Specimen) -> Edits:
    """Force the gates of a ConViT's first n layers to 1 (content masked) or 0, for every n."""
    weights = dict(specimen.module.named_parameters())
    gated = [
        (unit, f"{unit.name}{PARAMETER}")
        for unit in specimen.units
        if f"{unit.name}{PARAMETER}" in weights
    ]
    possible = []
    for n, (unit, name) in enumerate(gated, 1):
        for change, sign in (("content masked up to here", 1), ("position masked up to here", -1)):
            forced = {each: torch.full_like(weights[each], sign * CERTAIN) for _, each in gated[:n]}
            possible.append(Edit(unit, name, change, partial(_with_weights, specimen, forced)))
    return Edits(possible, {})


INTERVENTIONS: dict[str, tuple[Callable[[Specimen], Edits], str]] = {
    "units": (remove_units, "It has no unit with a skip around it."),
    "convolutions": (
        remove_convolutions,
        "It has no convolution wider than 1×1 in a branch that could be the identity.",
    ),
    "skips": (remove_skips, "It has no skip connections."),
    "attention": (fix_attention, "It has no attention that could be replaced."),
    "positions": (mask_positions, "It has no position embedding, or none whose name says so."),
    "gates": (force_gates, "It has no gated positional attention."),
}
"""What can be changed, and the reason where a model has nothing of the kind."""


def by_offset(mean: Tensor, places: Places) -> Tensor:
    """Average attention over all pairs of positions with the same offset, in all windows.

    Parameters
    ----------
    mean
        (groups, heads, queries, keys) attention.

    Returns
    -------
    The same shape, a function of the offset from query to key alone, rows summing to one. Each
    prefix key is an offset of its own; rows of prefix queries stay as they were.
    """
    (height, width), prefix = places.query_grid, places.prefix
    queries, keys = places.queries[:, :, None], places.keys[:, None, :]
    down, right = offsets(places)
    offset = (down + height - 1) * (2 * width - 1) + right + width - 1
    classes = (2 * height - 1) * (2 * width - 1)
    offset = offset.where(keys >= prefix, classes + keys)
    own = classes + prefix + queries * (prefix + height * width) + keys
    offset = offset.where(queries >= prefix, own)
    there = (queries >= 0) & (keys >= 0)
    offset = offset.where(there, 0).expand(there.shape).flatten().to(mean.device)
    weight = there.flatten().to(mean.device, torch.float64)
    size = int(offset.max()) + 1
    flat = mean.double().transpose(0, 1).flatten(1)
    total = flat.new_zeros(len(flat), size).index_add_(1, offset, flat * weight)
    count = flat.new_zeros(size).index_add_(0, offset, weight)
    spread = (total / count.clamp(min=1))[:, offset] * weight
    rows = spread.reshape(len(flat), *there.shape).transpose(0, 1)
    sums = rows.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return (rows / sums).to(mean.dtype)


def _edited(edit: Callable[[str], Specimen], name: str, means: MeanAttention) -> Forward:
    return edit(name)


def _with_fixed_attention(
    specimen: Specimen, name: str, places: Places, change: str, means: MeanAttention
) -> Forward:
    if change == "uniform 3x3":
        return specimen.with_attention(name, change)
    mean = means()[name]
    fixed = by_offset(mean, places) if change == "offset alone" else mean
    return specimen.with_attention(name, {name: fixed})


def _with_weights(
    specimen: Specimen, weights: Mapping[str, Tensor], means: MeanAttention
) -> Forward:
    return partial(forward_with, specimen, weights)


def _owner(specimen: Specimen, name: str) -> Unit | None:
    """Return the unit whose name is the longest prefix of a path."""
    owners = [
        unit for unit in specimen.units if name == unit.name or name.startswith(f"{unit.name}.")
    ]
    return max(owners, key=lambda unit: len(unit.name), default=None)


@torch.no_grad()
def _observe_blank(
    specimen: Specimen, want: Iterable[Any], names: list[str] | None = None
) -> Mapping[str, Sites]:
    """Observe units on one black image, for the shapes of what they compute."""
    if names == []:
        return {}
    weight = next(specimen.parameters(), torch.empty(0))
    image = torch.zeros(1, *specimen.anatomy.image, device=weight.device, dtype=weight.dtype)
    return specimen.observe(image, want, names or "*")
