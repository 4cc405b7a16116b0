"""Prove attention before anybody looks at it: weights times values must be what the model itself computed.

The check rides along in one pass of the graph: it is a tap at every attention product, and keeps two numbers of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.specimen.attention import AttentionSite, fused_probabilities
from vitreous.specimen.observe import copy_graph, fused_arguments, fused_options
from vitreous.unit_kinds import Weights

REASONS: dict[Weights, str] = {
    "probabilities": "",
    "mixed": "Its heads are mixed after the softmax: the weights applied are not the probabilities.",
    "positive": "Its weights do not sum to one; where probabilities are needed they are divided by their sum.",
    "signed": "Its weights can be negative, so they are no probabilities.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one pass showed of one attention product."""

    difference: float
    """Largest difference between weights times values and the product, relative to its largest value."""
    tolerance: float
    weights: Weights

    @property
    def passed(self) -> bool:
        return self.difference <= self.tolerance


Findings = dict[str, Finding]
"""By the name of the attention product."""


@torch.no_grad()
def verify_attention(
    module: fx.GraphModule, sites: Iterable[AttentionSite], images: Tensor
) -> Findings:
    """Run the graph once and compare at every visible site."""
    findings: Findings = {}
    with_checks(module, sites, findings)(images)
    return findings


def with_checks(
    module: fx.GraphModule, sites: Iterable[AttentionSite], findings: Findings
) -> fx.GraphModule:
    """A copy of the graph that fills `findings` whenever it runs; the graph itself if there is nothing to check."""
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
                continue  # its own dropout is drawn inside, where nobody can follow
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
    """The site as the pass showed it; one that failed is not shown to anybody."""
    found = findings.get(site.product)
    if found is None or not site.visible:
        return site
    if not found.passed:
        reason = (
            f"Its weights times its values differ from its own product by {found.difference:.1g}."
        )
        return replace(site, reach="unknown", places=None, reason=reason)
    return replace(site, kind=found.weights, reason=REASONS[found.weights])


class _Check(nn.Module):
    def __init__(self, site: AttentionSite, findings: Findings) -> None:
        super().__init__()
        self.site, self.findings = site, findings

    def forward(self, product: Tensor, *tensors: Any) -> None:
        site, weights = self.site, "probabilities"
        if site.fused:
            value, query, key, *options = tensors
            probabilities = fused_probabilities(query, key, *options)
            value = (
                value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
                if options[-1]
                else value
            )
            made = probabilities @ value.to(probabilities.dtype)
        else:
            operands = tensors[: len(site.operands)]
            made = torch.einsum(site.equation, *operands).reshape(product.shape)
            matrix = operands[site.operands.index(str(site.weights))]
            weights = _kind(site, matrix, tensors[len(operands) :])
        apart = (
            (made - product).abs().nan_to_num(0 if _same_nan(made, product) else torch.inf).amax()
        )
        scale = product.nan_to_num(0).abs().amax().clamp_min(torch.finfo(product.dtype).tiny)
        self.findings[site.product] = Finding(float(apart / scale), _tolerance(product), weights)  # type: ignore[arg-type]


def _same_nan(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.isnan(), other.isnan())


def _tolerance(product: Tensor) -> float:
    """The root of the rounding error: two orders of summing differ by less, another tensor by far more. A GPU may
    multiply float32 with ten bits."""
    rounded = (
        product.is_cuda and product.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    )
    return float(torch.finfo(torch.float16 if rounded else product.dtype).eps ** 0.5)


def _kind(site: AttentionSite, weights: Tensor, softmax: tuple[Tensor, ...]) -> Weights:
    assert site.arrangement is not None
    if _sums_to_one(site.arrangement.matrix(weights)):
        return "probabilities"
    if (
        softmax
        and softmax[0].shape == weights.shape
        and _sums_to_one(site.arrangement.matrix(softmax[0]))
    ):
        return "mixed"
    return "signed" if bool((weights < 0).any()) else "positive"


def _sums_to_one(matrix: Tensor) -> bool:
    """Rows of a query that may look at nothing are zero, or not a number."""
    wide = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    sums = wide.sum(-1)
    off = (sums - 1).abs().where((sums != 0) & ~sums.isnan(), torch.zeros(()))
    return bool((off <= torch.finfo(matrix.dtype).eps ** 0.5).all()) and not bool((wide < 0).any())
