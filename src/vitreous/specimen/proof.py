"""Prove that a specimen, and its attention weights, compute what the model computes.

A graph holds what happened on one example. A branch on data, a number drawn outside torch or a
wrong entry of the cache would all give a specimen that runs, and answers for another model. One
forward pass of both on the same two images shows it. In the same pass a tap at every attention
product checks that weights times values are what the model itself computed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from vitreous.errors import NotExportable
from vitreous.specimen.attention import AttentionSite, fused_probabilities
from vitreous.specimen.export import ADVICE
from vitreous.specimen.graph import copy_graph
from vitreous.specimen.inputs import EXAMPLE_BATCH, accepts, does_not_run
from vitreous.specimen.observe import fused_arguments, fused_options
from vitreous.specimen.specimen import Specimen
from vitreous.specimen.state import undisturbed
from vitreous.unit_kinds import Weights

SEED = 20260
INFINITE = float("inf")
REASONS: dict[Weights, str] = {
    "probabilities": "",
    "mixed": "Its heads are mixed after the softmax: the weights applied are not the "
    "probabilities.",
    "positive": "Its weights do not sum to one; where probabilities are needed they are divided by "
    "their sum.",
    "signed": "Its weights can be negative, so they are no probabilities.",
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How a specimen and its model differ."""

    difference: float
    """Largest difference relative to the largest value; infinite for other shapes or types."""
    where: str = ""
    """Which output, as an index or key."""
    error: str = ""
    """What the graph raised instead of an output."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one pass showed of one attention product."""

    difference: float
    """Largest difference of weights times values, relative to the largest value."""
    tolerance: float
    weights: Weights

    @property
    def passed(self) -> bool:
        """Whether weights times values are the product."""
        return self.difference <= self.tolerance


Findings = dict[str, Finding]
"""By the name of the attention product."""


@torch.no_grad()
def find_mismatch(
    specimen: Specimen, model: nn.Module, like: Tensor, findings: Findings
) -> Mismatch | None:
    """What differs between the outputs of both on two random images; None if equal.

    The specimen's pass also fills `findings`.
    """
    images = _random_images(like)
    checked = with_checks(specimen.module, specimen.attention_sites, findings)
    with undisturbed(model) as saving:
        theirs = _run(model, images, saving.run)
        worst = _largest_mismatch(_run(checked, images), theirs)
        if worst is None:
            return None
        # rounding alone may throw a deep model off as far
        nearby = images * (1 + 4 * torch.finfo(images.dtype).eps)
        steady = _largest_mismatch(_run(model, images, saving.run), theirs) is None
        rounding = _largest_mismatch(_run(model, nearby, saving.run), theirs)
    if steady and rounding is not None and worst.difference <= 10 * rounding.difference < INFINITE:
        return None
    return worst


def _random_images(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(EXAMPLE_BATCH, *like.shape[1:], generator=generator).to(like)


def _run(model: nn.Module, images: Tensor, run: Any = None) -> Any:
    """The output with random numbers that are the same each time, in torch, numpy and Python."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    return run(model, images.clone()) if run is not None else model(images.clone())


def _largest_mismatch(ours: Any, theirs: Any) -> Mismatch | None:
    mismatches = [Mismatch(apart, where) for where, apart in _differences(ours, theirs, "")]
    return max(mismatches, key=lambda each: each.difference, default=None)


def _differences(ours: Any, theirs: Any, where: str) -> Iterator[tuple[str, float]]:
    """Outputs that differ by more than rounding, in any nesting of containers."""
    parts, others = _parts(ours), _parts(theirs)
    if parts is not None and others is not None:
        if parts.keys() != others.keys():
            yield where, INFINITE
            return
        for name in parts:
            yield from _differences(parts[name], others[name], f"{where}.{name}".lstrip("."))
    elif isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        difference = _difference(ours, theirs)
        if not difference <= _tolerance(theirs.dtype):
            yield where, difference
    elif isinstance(ours, Tensor) or isinstance(theirs, Tensor) or not _equal(ours, theirs):
        yield where, INFINITE


def _parts(value: Any) -> dict[Any, Any] | None:
    """The contents of a container or plain object by key; None for anything else."""
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


def _difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference relative to the largest value; for integers, the share that differs."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return INFINITE
    if not ours.numel():
        return 0.0
    if not theirs.is_floating_point() and not theirs.is_complex():
        return float((ours != theirs).double().mean())
    exact = torch.complex128 if theirs.is_complex() else torch.float64
    one, other = (value.detach().cpu().to(exact) for value in (ours, theirs))
    finite = other.isfinite()
    same_nan = torch.equal(one[~finite].isnan(), other[~finite].isnan())
    if not torch.equal(one.isfinite(), finite) or not same_nan:
        return INFINITE
    gap, size = (value[finite].abs() for value in (one - other, other))
    if not gap.numel() or float(gap.max()) == 0:
        return 0.0
    return float(gap.max() / size.max().clamp(min=1e-30))


def _tolerance(dtype: torch.dtype) -> float:
    """Three quarters of a type's digits (6e-6 in float32).

    Nearly all graphs agree to the bit. Some operations are spelled out (attention that a fused
    kernel would hide) and round otherwise; a model in which something is missing is off by far
    more.
    """
    inexact = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype).eps ** 0.75) if inexact else 0.0


def refusal(
    specimen: Specimen, model: nn.Module, like: Tensor, mismatch: Mismatch
) -> NotExportable:
    """The exception that says what differs, and from which unit on."""
    name = specimen.anatomy.model
    shape = (like.shape[1], like.shape[2], like.shape[3])
    if (error := accepts(model, shape, fake=False)) is not None:
        return does_not_run(model, shape, error)
    with torch.no_grad(), undisturbed(model) as saving:
        images = _random_images(like)
        outputs = [_run(model, images, saving.run) for _ in range(2)]
        steady = _largest_mismatch(*outputs) is None
        unit = _first_differing_unit(specimen, model, images) if steady else ""
    if not steady:
        return NotExportable(
            f"{name} gives other outputs for the same images and the same seed, so its graph "
            f"cannot be checked; make it deterministic in evaluation mode, or {ADVICE}."
        )
    if mismatch.error:
        return NotExportable(
            f"The graph of {name} does not run where the model does ({mismatch.error}); {ADVICE}."
        )
    size = "in form"
    if mismatch.difference < INFINITE:
        size = f"by {mismatch.difference:.1e} of its largest value"
    output = f" {mismatch.where!r}" if mismatch.where else ""
    first = f", first in unit {unit!r}" if unit else ""
    return NotExportable(
        f"The graph of {name} does not compute what the model computes: output{output} differs "
        f"{size}{first}. Its forward pass depends on something that no graph holds (a branch on "
        f"data, a number from outside torch); {ADVICE}."
    )


def _first_differing_unit(specimen: Specimen, model: nn.Module, images: Tensor) -> str:
    """The first unit that differs from what the module of its name returns; '' if none."""
    returned: dict[str, Any] = {}

    def note(path: str) -> Any:
        return lambda module, args, output: returned.setdefault(path, output)

    modules = dict(model.named_modules())
    for unit in specimen.units:  # hooks are gone when the state is put back
        if unit.name in modules:
            modules[unit.name].register_forward_hook(note(unit.name))
    _run(model, images)
    try:
        _run(specimen.module, images)
        torch.manual_seed(SEED)
        observed = specimen.observe(images, ("branch", "after", "out"))
    except Exception:
        return ""
    for unit in specimen.units:
        theirs, sites = returned.get(unit.name), observed.get(unit.name)
        if not isinstance(theirs, Tensor) or sites is None:
            continue
        ours = [f.raw for f in (sites.branch, sites.after, sites.out) if f is not None]
        if ours and all(_difference(each, theirs) > _tolerance(theirs.dtype) for each in ours):
            return unit.name
    return ""


def with_checks(
    module: fx.GraphModule, sites: Iterable[AttentionSite], findings: Findings
) -> fx.GraphModule:
    """A copy of the graph that fills `findings` when it runs; itself without sites."""
    visible = [site for site in sites if site.visible]
    if not visible:
        return module
    copy, nodes = copy_graph(module)
    for number, site in enumerate(visible):
        product = nodes[site.product]
        tensors: list[Any] = [nodes[name] for name in site.operands]
        if site.fused:
            given = fused_arguments(product)
            if given.get("dropout_p"):
                continue  # its dropout is drawn inside the kernel, where nobody can follow
            tensors = [given["value"], *fused_options(product)]
        elif site.softmax is not None:
            tensors.append(nodes[site.softmax])
        name = f"check_{number}"
        copy.add_module(name, _Check(site, findings))
        with copy.graph.inserting_after(product):
            copy.graph.call_module(name, (product, *tensors))
    copy.recompile()
    return copy


def proved(site: AttentionSite, findings: Findings) -> AttentionSite:
    """The site with what the pass showed of its weights; one that failed becomes invisible."""
    finding = findings.get(site.product)
    if finding is None or not site.visible:
        return site
    if not finding.passed:
        difference = f"{finding.difference:.1g}"
        reason = f"Its weights times its values differ from its own product by {difference}."
        return replace(site, reach="unknown", places=None, reason=reason)
    return replace(site, kind=finding.weights, reason=REASONS[finding.weights])


class _Check(nn.Module):
    """Compares weights times values with the product."""

    def __init__(self, site: AttentionSite, findings: Findings) -> None:
        super().__init__()
        self.site, self.findings = site, findings

    def forward(self, product: Tensor, *tensors: Any) -> None:
        site = self.site
        kind: Weights = "probabilities"
        if site.fused:
            value, query, key, *options = tensors
            probabilities = fused_probabilities(query, key, *options)
            if options[-1]:  # grouped queries
                value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
            computed = probabilities @ value.to(probabilities.dtype)
        else:
            operands, softmax = tensors[: len(site.operands)], tensors[len(site.operands) :]
            computed = torch.einsum(site.equation, *operands).reshape(product.shape)
            kind = _kind(site, operands[site.operands.index(str(site.weights))], softmax)
        same_nan = torch.equal(computed.isnan(), product.isnan())
        gap = (computed - product).abs().nan_to_num(0 if same_nan else torch.inf).amax()
        scale = product.nan_to_num(0).abs().amax().clamp_min(torch.finfo(product.dtype).tiny)
        finding = Finding(float(gap / scale), _product_tolerance(product), kind)
        self.findings[site.product] = finding


def _product_tolerance(product: Tensor) -> float:
    """The root of the rounding error: orders of summing differ by less than that.

    A GPU may multiply float32 with ten bits.
    """
    tf32 = torch.backends.cuda.matmul.allow_tf32
    rounded = product.is_cuda and product.dtype == torch.float32 and tf32
    return float(torch.finfo(torch.float16 if rounded else product.dtype).eps ** 0.5)


def _kind(site: AttentionSite, weights: Tensor, softmax: tuple[Tensor, ...]) -> Weights:
    """What weights are; `softmax` holds the output of the model's softmax, if there is one."""
    assert site.arrangement is not None
    if _sums_to_one(site.arrangement.matrix(weights)):
        return "probabilities"
    same_shape = bool(softmax) and softmax[0].shape == weights.shape
    if same_shape and _sums_to_one(site.arrangement.matrix(softmax[0])):
        return "mixed"
    return "signed" if bool((weights < 0).any()) else "positive"


def _sums_to_one(matrix: Tensor) -> bool:
    """Whether rows are probabilities; those that are all masked are zero or NaN."""
    wide = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    sums = wide.sum(-1)
    off = (sums - 1).abs().where((sums != 0) & ~sums.isnan(), torch.zeros(()))
    return bool((off <= torch.finfo(matrix.dtype).eps ** 0.5).all()) and not bool((wide < 0).any())
