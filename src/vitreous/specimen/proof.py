"""Run a specimen beside its model on the same two images: before it is handed out, it has computed the same.

A graph holds what happened on one example. A branch on data, a number drawn outside torch or a wrong entry of the cache
would all give a specimen that runs, and answers for another model. One forward pass finds out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.errors import NotExportable
from vitreous.specimen.graph import EXAMPLE_BATCH
from vitreous.specimen.specimen import Specimen
from vitreous.specimen.state import undisturbed
from vitreous.specimen.verify import Findings, with_checks

SEED = 20260
WAY_OUT = "look at its blocks with units='blocks', or at modules of your choice with units=['path.of.module', …]"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How a specimen and its model differ."""

    difference: float
    """Largest difference relative to the largest value; infinite where outputs have other shapes or types."""
    where: str = ""
    """Which output, as an index or key."""
    error: str = ""
    """What the graph raised instead of an output."""


@torch.no_grad()
def mismatch(
    specimen: Specimen, model: nn.Module, like: Tensor, findings: Findings
) -> Mismatch | None:
    """What differs between the outputs of both on two random images like these; None if nothing does.

    The specimen's pass also fills `findings`: whether its attention weights reproduce its own products.
    """
    images = _pictures(like)
    checked = with_checks(specimen.module, specimen.attention_sites, findings)
    with undisturbed(model) as saving:
        theirs = _run(model, images, saving.run)
        ours = _run(checked, images)
        worst = _worst(ours, theirs)
        if worst is None:
            return None
        nearby = images * (1 + 4 * torch.finfo(images.dtype).eps)
        # rounding alone may throw a deep model off as far
        steady = _worst(_run(model, images, saving.run), theirs) is None
        own = _worst(_run(model, nearby, saving.run), theirs)
    rounding = steady and own is not None and worst.difference <= 10 * own.difference < float("inf")
    return None if rounding else worst


def _pictures(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(EXAMPLE_BATCH, *like.shape[1:], generator=generator).to(like)


def _run(model: nn.Module, images: Tensor, run: Any = None) -> Any:
    """The output with random numbers that are the same each time, in torch, numpy and Python."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    return run(model, images.clone()) if run is not None else model(images.clone())


def _worst(ours: Any, theirs: Any) -> Mismatch | None:
    found = [Mismatch(apart, where) for where, apart in _differences(ours, theirs, "")]
    return max(found, key=lambda each: each.difference, default=None)


def _differences(ours: Any, theirs: Any, where: str) -> Iterator[tuple[str, float]]:
    """Outputs that differ by more than rounding, in any nesting of containers."""
    parts, others = _parts(ours), _parts(theirs)
    if parts is not None and others is not None:
        if parts.keys() != others.keys():
            yield where, float("inf")
            return
        for name in parts:
            yield from _differences(parts[name], others[name], f"{where}.{name}".lstrip("."))
    elif isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        apart = _apart(ours, theirs)
        if not apart <= _tolerance(theirs.dtype):
            yield where, apart
    elif isinstance(ours, Tensor) or isinstance(theirs, Tensor) or not _equal(ours, theirs):
        yield where, float("inf")


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if isinstance(value, (Tensor, type)) or not hasattr(value, "__dict__"):
        return None
    return dict(vars(value))


def _equal(one: Any, other: Any) -> bool:
    same = one == other
    return bool(same) if isinstance(same, bool) else type(one) is type(other)


def _apart(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if not ours.numel():
        return 0.0
    if not theirs.is_floating_point() and not theirs.is_complex():
        return float((ours != theirs).double().mean())
    exact = torch.complex128 if theirs.is_complex() else torch.float64
    one, other = (value.detach().cpu().to(exact) for value in (ours, theirs))
    finite = other.isfinite()
    if not torch.equal(one.isfinite(), finite) or not torch.equal(
        one[~finite].isnan(), other[~finite].isnan()
    ):
        return float("inf")
    gap, size = (value[finite].abs() for value in (one - other, other))
    return (
        float(gap.max() / size.max().clamp(min=1e-30))
        if gap.numel() and float(gap.max()) > 0
        else 0.0
    )


def _tolerance(dtype: torch.dtype) -> float:
    """Three quarters of a type's digits (6e-6 in float32).

    Nearly all graphs agree to the bit. Some operations are spelled out (attention that a fused kernel would hide), and
    round otherwise; a model in which something is missing is off by far more.
    """
    return (
        float(torch.finfo(dtype).eps ** 0.75)
        if dtype.is_floating_point or dtype.is_complex
        else 0.0
    )


def refuse(specimen: Specimen, model: nn.Module, like: Tensor, found: Mismatch) -> NotExportable:
    """The error that says what differs, and from which unit on."""
    name = specimen.anatomy.model
    with torch.no_grad(), undisturbed(model) as saving:
        images = _pictures(like)
        steady = _worst(_run(model, images, saving.run), _run(model, images, saving.run)) is None
        unit = _first_unit(specimen, model, images) if steady else ""
    if not steady:
        return NotExportable(
            f"{name} gives other outputs for the same images and the same seed, so its graph cannot be checked; "
            f"make it deterministic in evaluation mode, or {WAY_OUT}."
        )
    if found.error:
        return NotExportable(
            f"The graph of {name} does not run where the model does ({found.error}); {WAY_OUT}."
        )
    size = (
        f"by {found.difference:.1e} of its largest value"
        if found.difference < float("inf")
        else "in form"
    )
    output = f" {found.where!r}" if found.where else ""
    return NotExportable(
        f"The graph of {name} does not compute what the model computes: output{output} differs {size}"
        f"{f', first in unit {unit!r}' if unit else ''}. Its forward pass depends on something that no graph holds "
        f"(a branch on data, a number from outside torch); {WAY_OUT}."
    )


def _first_unit(specimen: Specimen, model: nn.Module, images: Tensor) -> str:
    """The first unit of which no tensor is what the model's module of that name gives."""
    returned: dict[str, Any] = {}

    def note(path: str) -> Any:
        return lambda module, args, output: returned.setdefault(path, output)

    modules = dict(model.named_modules())
    for unit in specimen.units:
        if unit.name in modules:
            modules[unit.name].register_forward_hook(
                note(unit.name)
            )  # gone again when the state is put back
    _run(model, images)
    try:
        _run(specimen.module, images)
        torch.manual_seed(SEED)
        seen = specimen.observe(images, ("branch", "after", "out"))
    except Exception:
        return ""
    for unit in specimen.units:
        theirs = returned.get(unit.name)
        if isinstance(theirs, Tensor) and unit.name in seen:
            sites = seen[unit.name]
            ours = [
                feature.raw
                for feature in (sites.branch, sites.after, sites.out)
                if feature is not None
            ]
            if ours and all(_apart(each, theirs) > _tolerance(theirs.dtype) for each in ours):
                return unit.name
    return ""
