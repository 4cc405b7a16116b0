"""What a lesion study changes, one thing at a time: the list of edits of a model, and why others are not possible.

An edit is a model like the one asked, except in one place. It shares the weights; where weights themselves are masked
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

Means = Callable[[], Mapping[str, Tensor]]
"""Attention averaged over the images, by unit, when it is needed."""
Model = Callable[[Tensor], Any]


class Edit(NamedTuple):
    """One change of a model."""

    unit: Unit
    """Where it is."""
    part: str
    """What is changed: the unit, or something within it, by its path."""
    change: str
    make: Callable[[Means], Model]
    """The changed model."""

    @property
    def key(self) -> str:
        return f"{self.part}: {self.change}"


class Edits(NamedTuple):
    """What can be changed, in the order of the units, and for the rest why not."""

    can: list[Edit]
    cannot: dict[str, str]


def units(specimen: Specimen) -> Edits:
    """Every unit taken out (A4.14). What has no skip is replaced by its input, where that has the same shape."""
    one = _glance(specimen, ("before", "branch"))
    found = Edits([], {})
    for unit in specimen.units:
        before, branch = one[unit.name].before, one[unit.name].branch
        same = before is not None and branch is not None and before.raw.shape == branch.raw.shape
        if not unit.skip and not same:
            found.cannot[unit.name] = (
                "Nothing goes round it: without it nothing of the image would pass."
            )
        elif len(specimen.anatomy.find(unit.name)) > 1:
            found.cannot[unit.name] = (
                "Its name is also a label or a kind of other units, so it cannot be taken alone."
            )
        else:
            found.can.append(
                Edit(unit, unit.name, "taken out", partial(_edited, specimen.without, unit.name))
            )
    return found


def convolutions(specimen: Specimen) -> Edits:
    """Every convolution wider than 1 x 1 in a branch made the identity, normalisation and activation left (A4.14)."""
    found = Edits([], {})
    named = {unit.name for unit in specimen.units}
    nodes = [node for node in specimen.module.graph.nodes if op(node).startswith("conv")]
    wide = dict.fromkeys(path(n) for n in nodes if max(n.args[1].meta["val"].shape[2:]) > 1)
    for name in wide:
        unit = _owner(specimen, name)
        if unit is None or unit.kind in ("stem", "downsample", "head") or name in named:
            continue
        try:
            specimen.without(name)
        except VitreousError:
            found.cannot[name] = (
                "It changes the number of channels, so it cannot be the identity; its unit can go."
            )
        else:
            found.can.append(Edit(unit, name, "identity", partial(_edited, specimen.without, name)))
    return found


def skips(specimen: Specimen) -> Edits:
    """Every skip connection removed at test time: only the branch passes (A2.24)."""
    can = [
        Edit(unit, unit.name, "skip removed", partial(_edited, specimen.without_skip, unit.name))
        for unit in specimen.units
        if unit.skip
    ]
    return Edits(can, {})


def attention(specimen: Specimen) -> Edits:
    """The attention of every unit replaced by what does not look at the image: its mean over the images (A2.26), that
    mean as a function of the offset alone, and equal weights over 3 x 3 neighbours (A2.25)."""
    found = Edits([], {})
    attending = [unit for unit in specimen.units if unit.kind == "attention"]
    one = _glance(specimen, ("attention",), [unit.name for unit in attending])
    for unit in attending:
        seen = one[unit.name].attention if unit.name in one else None
        if seen is None:
            found.cannot[unit.name] = (
                f"Its attention ({unit.reach}) is no matrix over positions that one could fix."
            )
            continue
        replaced = partial(_attending, specimen, unit.name, seen.places)
        changes = ["mean over images"]
        if seen.query_grid == seen.key_grid:
            changes += ["offset alone", "uniform 3x3"]
        else:
            found.cannot[unit.name] = (
                "Its queries and keys lie on different grids, so it has no offsets, only a mean."
            )
        found.can.extend(
            Edit(unit, unit.name, change, partial(replaced, change)) for change in changes
        )
    return found


def positions(specimen: Specimen) -> Edits:
    """What a model knows of positions set to zero (A4.31): each embedding, and each table of relative positions."""
    weights = {**dict(specimen.module.named_parameters()), **dict(specimen.module.named_buffers())}
    tables: dict[str, list[str]] = {}
    for name, weight in weights.items():
        if weight.is_floating_point() and (NAMED.search(name) or RELATIVE.search(name)):
            tables.setdefault(name.removesuffix(".rows").removesuffix(".columns"), []).append(name)
    can = []
    for name, parts in tables.items():
        unit = _owner(specimen, name) or specimen.units[0]
        zeros = {part: torch.zeros_like(weights[part]) for part in parts}
        can.append(Edit(unit, name, "masked", partial(_masked, specimen, zeros)))
    return Edits(sorted(can, key=lambda edit: edit.unit.index), {})


def gates(specimen: Specimen) -> Edits:
    """The gates of a ConViT's first n layers forced to 1, so that content is masked, or to 0, so that position is
    (A4.31); for every n."""
    weights = dict(specimen.module.named_parameters())
    gated = [
        (unit, f"{unit.name}{PARAMETER}")
        for unit in specimen.units
        if f"{unit.name}{PARAMETER}" in weights
    ]
    can = []
    for n, (unit, name) in enumerate(gated, 1):
        for change, sign in (("content masked up to here", 1), ("position masked up to here", -1)):
            forced = {each: torch.full_like(weights[each], sign * CERTAIN) for _, each in gated[:n]}
            can.append(Edit(unit, name, change, partial(_masked, specimen, forced)))
    return Edits(can, {})


CERTAIN = 1e4
"""A gate's logit whose sigmoid is one, and of whose negative it is zero, to the last bit of any type."""
WHAT: dict[str, tuple[Callable[[Specimen], Edits], str]] = {
    "units": (units, "It has no unit that something goes round."),
    "convolutions": (
        convolutions,
        "It has no convolution wider than 1×1 in a branch that could be the identity.",
    ),
    "skips": (skips, "It has no skip connections."),
    "attention": (attention, "It has no attention that could be replaced."),
    "positions": (positions, "It has no position embedding, or none whose name says so."),
    "gates": (gates, "It has no gated positional attention."),
}
"""What can be changed, and what to say where there is nothing of the kind."""


def by_offset(mean: Tensor, places: Places) -> Tensor:
    """Attention (groups, heads, queries, keys) as a function of the offset from query to key alone: the mean over all
    pairs that lie equally apart, in all windows, and rows made to sum to one again. Prefix keys count as one offset
    each; queries that are prefix tokens keep what they had."""
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
    rows = (
        ((total / count.clamp(min=1))[:, offset] * weight)
        .reshape(flat.shape[0], *there.shape)
        .transpose(0, 1)
    )
    return (rows / rows.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)).to(
        mean.dtype
    )


def _edited(edit: Callable[[str], Specimen], name: str, means: Means) -> Model:
    return edit(name)


def _attending(specimen: Specimen, name: str, places: Places, change: str, means: Means) -> Model:
    if change == "uniform 3x3":
        return specimen.with_attention(name, change)
    mean = means()[name]
    return specimen.with_attention(
        name, {name: by_offset(mean, places) if change == "offset alone" else mean}
    )


def _masked(specimen: Specimen, weights: Mapping[str, Tensor], means: Means) -> Model:
    return partial(forward_with, specimen, weights)


def _owner(specimen: Specimen, name: str) -> Unit | None:
    """The unit with the longest name that the path begins with."""
    within = [
        unit for unit in specimen.units if name == unit.name or name.startswith(f"{unit.name}.")
    ]
    return max(within, key=lambda unit: len(unit.name), default=None)


@torch.no_grad()
def _glance(
    specimen: Specimen, want: Iterable[Any], names: list[str] | None = None
) -> Mapping[str, Sites]:
    """What is where, seen on one black image."""
    if names == []:
        return {}
    weight = next(specimen.parameters(), torch.empty(0))
    image = torch.zeros(1, *specimen.anatomy.image, device=weight.device, dtype=weight.dtype)
    return specimen.observe(image, want, names or "*")
