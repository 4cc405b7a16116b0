"""Check that a specimen, and its attention weights, compute what the model computes.

A graph records what happened on one example. A data-dependent branch, a random number from outside
torch or a wrong cache entry would give a specimen that runs but describes another model. So both
run once on the same two images, and their outputs are compared. In the same pass a tap at every
attention product checks that weights times values equal the model's own product.
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
from vitreous.random_numbers import seed_torch
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
    """Index or key of the output that differs."""
    error: str = ""
    """The exception that the graph raised, as text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of the check of one attention product."""

    difference: float
    """Largest difference of weights times values, relative to the largest value."""
    tolerance: float
    weights: Weights

    @property
    def passed(self) -> bool:
        """Whether weights times values equal the product, within the tolerance."""
        return self.difference <= self.tolerance


Findings = dict[str, Finding]
"""By the name of the attention product."""


@torch.no_grad()
def find_mismatch(
    specimen: Specimen, model: nn.Module, like: Tensor, findings: Findings
) -> Mismatch | None:
    """Compare the outputs of both on two random images; None if they are equal.

    The specimen's pass also fills `findings`.
    """
    images = _random_images(like)
    checked = with_checks(specimen.module, specimen.attention_sites, findings)
    with undisturbed(model) as saving:
        theirs = _run(model, images, saving.run)
        worst = _largest_mismatch(_run(checked, images), theirs)
        if worst is None:
            return None
        # in a deep model rounding alone may cause a difference of this size
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
    """Run the model with the random seeds of torch, numpy and Python reset; return the output."""
    seed_torch(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    return run(model, images.clone()) if run is not None else model(images.clone())


def _largest_mismatch(ours: Any, theirs: Any) -> Mismatch | None:
    mismatches = [
        Mismatch(difference, where) for where, difference in _differences(ours, theirs, "")
    ]
    return max(mismatches, key=lambda mismatch: mismatch.difference, default=None)


def _differences(ours: Any, theirs: Any, where: str) -> Iterator[tuple[str, float]]:
    """Key and difference of the outputs that differ by more than rounding, in nested containers."""
    our_parts, their_parts = _parts(ours), _parts(theirs)
    if our_parts is not None and their_parts is not None:
        if our_parts.keys() != their_parts.keys():
            yield where, INFINITE
            return
        for name, part in our_parts.items():
            yield from _differences(part, their_parts[name], f"{where}.{name}".lstrip("."))
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
    ours, theirs = (value.detach().cpu().to(exact) for value in (ours, theirs))
    finite = theirs.isfinite()
    same_nan = torch.equal(ours[~finite].isnan(), theirs[~finite].isnan())
    if not torch.equal(ours.isfinite(), finite) or not same_nan:
        return INFINITE
    gap, size = (value[finite].abs() for value in (ours - theirs, theirs))
    if not gap.numel() or float(gap.max()) == 0:
        return 0.0
    return float(gap.max() / size.max().clamp(min=1e-30))


def _tolerance(dtype: torch.dtype) -> float:
    """Largest difference that counts as rounding: eps^(3/4), 6e-6 in float32.

    Nearly all graphs agree to the last bit. Some operations are written out (attention that a fused
    kernel would hide) and round differently. A graph that misses something differs by far more.
    """
    inexact = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype).eps ** 0.75) if inexact else 0.0


def refusal(
    specimen: Specimen, model: nn.Module, like: Tensor, mismatch: Mismatch
) -> NotExportable:
    """The exception for a specimen that differs from its model: what differs, and where first."""
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
    """The first unit whose output differs from that of the module of its name; '' if none."""
    returned: dict[str, Any] = {}

    def note(path: str) -> Any:
        return lambda module, args, output: returned.setdefault(path, output)

    modules = dict(model.named_modules())
    for unit in specimen.units:  # `undisturbed` removes the hooks
        if unit.name in modules:
            modules[unit.name].register_forward_hook(note(unit.name))
    _run(model, images)
    try:
        _run(specimen.module, images)
        seed_torch(SEED)
        observed = specimen.observe(images, ("branch", "after", "out"))
    except Exception:
        return ""
    for unit in specimen.units:
        theirs, sites = returned.get(unit.name), observed.get(unit.name)
        if not isinstance(theirs, Tensor) or sites is None:
            continue
        ours = [f.raw for f in (sites.branch, sites.after, sites.out) if f is not None]
        if ours and all(_difference(value, theirs) > _tolerance(theirs.dtype) for value in ours):
            return unit.name
    return ""


def with_checks(
    module: fx.GraphModule, sites: Iterable[AttentionSite], findings: Findings
) -> fx.GraphModule:
    """A copy of the graph that fills `findings` when it runs; the graph itself without sites."""
    visible = [site for site in sites if site.visible]
    if not visible:
        return module
    copy, nodes = copy_graph(module)
    for number, site in enumerate(visible):
        product = nodes[site.product]
        tensors: list[Any] = [nodes[name] for name in site.operands]
        if site.fused:
            arguments = fused_arguments(product)
            if arguments.get("dropout_p"):
                continue  # its dropout is drawn inside the kernel and cannot be repeated
            tensors = [arguments["value"], *fused_options(product)]
        elif site.softmax is not None:
            tensors.append(nodes[site.softmax])
        name = f"check_{number}"
        copy.add_module(name, _Check(site, findings))
        with copy.graph.inserting_after(product):
            copy.graph.call_module(name, (product, *tensors))
    copy.recompile()
    return copy


def with_finding(site: AttentionSite, findings: Findings) -> AttentionSite:
    """The site with the kind of its weights as found; a site that failed becomes invisible."""
    finding = findings.get(site.product)
    if finding is None or not site.visible:
        return site
    if not finding.passed:
        difference = f"{finding.difference:.1g}"
        reason = f"Its weights times its values differ from its own product by {difference}."
        return replace(site, reach="unknown", places=None, reason=reason)
    return replace(site, kind=finding.weights, reason=REASONS[finding.weights])


class _Check(nn.Module):
    """A tap that compares weights times values with the product."""

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
    """The square root of the machine epsilon, which exceeds differences in the order of summing.

    With TF32, a GPU multiplies float32 with the mantissa of float16 (ten bits).
    """
    tf32 = torch.backends.cuda.matmul.allow_tf32
    rounded = product.is_cuda and product.dtype == torch.float32 and tf32
    return float(torch.finfo(torch.float16 if rounded else product.dtype).eps ** 0.5)


def _kind(site: AttentionSite, weights: Tensor, softmax: tuple[Tensor, ...]) -> Weights:
    """The kind of weights; `softmax` holds the output of the model's softmax, if it has one."""
    assert site.arrangement is not None
    if _sums_to_one(site.arrangement.matrix(weights)):
        return "probabilities"
    same_shape = bool(softmax) and softmax[0].shape == weights.shape
    if same_shape and _sums_to_one(site.arrangement.matrix(softmax[0])):
        return "mixed"
    return "signed" if bool((weights < 0).any()) else "positive"


def _sums_to_one(matrix: Tensor) -> bool:
    """Whether rows are probabilities; fully masked rows, all zero or NaN, are ignored."""
    precise = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    sums = precise.sum(-1)
    error = (sums - 1).abs().where((sums != 0) & ~sums.isnan(), torch.zeros(()))
    return bool((error <= torch.finfo(matrix.dtype).eps ** 0.5).all()) and not bool(
        (precise < 0).any()
    )
