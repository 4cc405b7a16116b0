"""Edits of units: which are possible, applying them, and mirroring them in another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.explorer.state import UnitEdit, What
from vitreous.measure.robustness.edits import fix_attention, remove_units
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.hooks import HandSpecimen
from vitreous.specimen.specimen import Specimen

MeanOf = Callable[[str], Tensor]
"""The mean attention of a unit over images, by its name."""
BOX = "uniform 3x3"
ENDS = ("stem", "downsample", "head")
"""Kinds of units between which the blocks of a model lie."""
Possible = Mapping[str, Mapping[What, str]]
"""For each unit and edit a sentence why it is impossible, or "" if it is possible."""


def possible_edits(specimen: Specimen) -> Possible:
    """For each unit and each kind of edit, why it is impossible; "" if it is possible.

    Examples
    --------
    >>> possible_edits(vitreous.open("nano:vit"))["blocks.0.mlp"]["uniform"]
    'It has no attention.'
    """
    removable = remove_units(specimen).impossible
    by_hand = isinstance(specimen, HandSpecimen)
    fixable: dict[str, set[str]] = {}
    why_fixed: Mapping[str, str] = {}
    if not by_hand:
        attention = fix_attention(specimen)
        why_fixed = attention.impossible
        for each in attention.possible:
            fixable.setdefault(each.part, set()).add(each.change)
    possible: dict[str, dict[What, str]] = {}
    for unit in specimen.units:
        reasons: dict[What, str] = {"off": removable.get(unit.name, "")}
        ambiguous = len(specimen.anatomy.find(unit.name)) > 1
        reasons["skip"] = "" if unit.skip else "It has no skip."
        fixed = fixable.get(unit.name, set())
        missing = unit.reason if unit.kind == "attention" else "It has no attention."
        hidden = "" if fixed else why_fixed.get(unit.name, "") or missing or "It is hidden."
        reasons["uniform"] = reasons["mean"] = hidden
        reasons["box"] = "" if BOX in fixed else hidden or why_fixed.get(unit.name, "")
        if ambiguous:
            shared = "Its name is also a label or a kind of other units."
            reasons = {what: why or shared for what, why in reasons.items()}
        possible[unit.name] = reasons
    return possible


def apply_edit(specimen: Specimen, edit: UnitEdit, mean: MeanOf) -> Specimen:
    """The specimen with one more edit.

    Parameters
    ----------
    specimen
        Perhaps edited already.
    edit
        Of a unit that the specimen has.
    mean
        Gives the attention for the edit "mean".
    """
    if edit.what == "off":
        return specimen.without(edit.unit)
    if edit.what == "skip":
        return specimen.without_skip(edit.unit)
    if edit.what == "mean":
        return specimen.with_attention(edit.unit, {edit.unit: mean(edit.unit)})
    return specimen.with_attention(edit.unit, BOX if edit.what == "box" else "uniform")


def unit_at_depth(unit: Unit, others: Sequence[Unit]) -> Unit | None:
    """The unit of another model at the nearest relative depth, of the same kind if there is one.

    Otherwise a stem, downsampling or head corresponds to one of these three kinds, and any other
    unit to one that is none of them.
    """
    candidates = [each for each in others if each.kind == unit.kind]
    at_end = unit.kind in ENDS
    candidates = candidates or [each for each in others if (each.kind in ENDS) == at_end]
    return min(candidates, key=lambda each: abs(each.depth - unit.depth), default=None)


def mirror_edit(
    edit: UnitEdit, unit: Unit, model: int, name: str, anatomy: Anatomy, possible: Possible
) -> UnitEdit:
    """The same edit in another model, at the same relative depth.

    Parameters
    ----------
    edit, unit
        The edit and its unit, in the model that the user has edited.
    model, name, anatomy, possible
        The other model: its number and name, its units, and the edits that they allow.
    """
    units = [each for each in anatomy.units if not possible[each.name][edit.what]]
    if unit.kind in {each.kind for each in anatomy.units}:
        units = [each for each in units if each.kind == unit.kind]
    counterpart = unit_at_depth(unit, units)
    if counterpart is None:
        raise VitreousError(f"{name} has no unit like {unit.name!r} that could be edited so.")
    return UnitEdit(model, counterpart.name, edit.what)


def edit_as_python(edit: UnitEdit) -> str:
    """The edit as a method call, for text that a user copies.

    >>> edit_as_python(UnitEdit(0, "blocks.5.attn", "box"))
    '.with_attention("blocks.5.attn", "uniform 3x3")'
    """
    name = _quoted(edit.unit)
    if edit.what == "off":
        return f".without({name})"
    if edit.what == "skip":
        return f".without_skip({name})"
    if edit.what == "mean":
        return f".with_attention({name}, means)"
    return f".with_attention({name}, {_quoted(BOX if edit.what == 'box' else 'uniform')})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
