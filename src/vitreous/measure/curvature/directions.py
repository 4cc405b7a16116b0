"""Directions in the space of weights, and the plane that two of them span (A4.05).

    random      d[i] = g[i] · |w[i]| / |g[i]|                      for every filter i, an output row of a weight
    official    d[…, j] = g[…, j] · |w[…, j]| / (|g[…, j]| + 1e-7)  for every column j, norms over the first axis

of Gaussian numbers g. The first is what filter-wise normalisation is meant to be (Li et al. 2018); the second is what
the code of How Do Vision Transformers Work? computes (X-32), for whoever wants its pictures. Biases, norms, positions
and tokens have no filters and stay where they are; the official variant moves tokens, and tables of positions that are
not called `pos_embed` or `relative_position`, as its code does. Eigenvectors of the Hessian have length one and move
all parameters: along them the loss is curved most, at the centre by the eigenvalue.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.measure.curvature.lanczos import extreme
from vitreous.measure.curvature.loss import PREFIX, Hessian, Weights
from vitreous.random_numbers import torch_generator
from vitreous.specimen.specimen import Specimen
from vitreous.training.optim import undecayed

Kind = Literal["random", "official", "eigenvectors"]
SPARED = ("pos_embed", "relative_position")
"""Words in the names of what the official variant leaves where it is."""


def still(model: nn.Module) -> set[str]:
    """Names of the parameters without filters: one-dimensional ones, tables of positions, tokens."""
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    tables = {name for name, shape in shapes.items() if len(shape) == 3 and shape[0] == 1}
    return {name.removeprefix(PREFIX) for name in undecayed(model) | tables}


def direction(
    kind: Kind, given: Weights, left: Collection[str], seed: int, axis: int
) -> dict[str, Tensor]:
    """The parameters that move, and where to. Numbers depend on seed, axis and a parameter's name alone, so that two
    moments of one training are seen along the same directions, each at its own scale."""
    found = {}
    for name, weight in given.items():
        if kind == "official" and (weight.ndim < 2 or any(word in name for word in SPARED)):
            continue
        if kind == "random" and name in left:
            continue
        generator = torch_generator(seed, "direction", axis, name)
        drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(
            weight.device
        )
        scaled = (
            by_filter(drawn, weight.double())
            if kind == "random"
            else by_column(drawn, weight.double())
        )
        found[name] = scaled.to(weight.dtype)
    return found


def eigenvectors(
    specimen: Specimen,
    given: Weights,
    images: Tensor,
    targets: Tensor,
    at_once: int,
    count: int,
    seed: int,
) -> tuple[dict[str, Tensor], ...]:
    """Of the Hessian of the loss on these images: those of the eigenvalues of largest size, of either sign.

    A sign of its own an eigenvector has not: its largest entry is positive."""
    hessian = Hessian(specimen, given, images[None], targets[None], at_once)
    generator = torch_generator(seed, "eigenvectors")
    start = torch.randn(1, sum(hessian.sizes), generator=generator).to(images)
    axes = []
    for vector in extreme(hessian, start, count, vectors=True)[0].vectors:
        vector = vector * vector[vector.abs().argmax()].sign() / vector.norm()
        parts = zip(given.items(), vector.split(hessian.sizes), strict=True)
        axes.append({name: part.view_as(value).detach() for (name, value), part in parts})
    return tuple(axes)


def by_filter(drawn: Tensor, weight: Tensor) -> Tensor:
    """Every output row at the length of the weight's; a vector is one filter. Rows of zeros do not move."""
    rows = drawn.reshape(1, -1) if drawn.ndim < 2 else drawn.flatten(1)
    length = weight.reshape_as(rows).norm(dim=1, keepdim=True)
    return (rows * (length / rows.norm(dim=1, keepdim=True))).reshape_as(drawn)


def by_column(drawn: Tensor, weight: Tensor) -> Tensor:
    """As the official code has it: norms over the outputs, for every input (and place in a kernel) on its own."""
    return drawn * (weight.norm(dim=0, keepdim=True) / (drawn.norm(dim=0, keepdim=True) + 1e-7))


@dataclass(frozen=True, eq=False)
class Plane:
    """Weights, and the directions in which they are moved, one or two."""

    origin: Weights
    axes: tuple[Weights, ...]

    @cached_property
    def moving(self) -> tuple[str, ...]:
        return tuple(name for name in self.origin if any(name in axis for axis in self.axes))

    def at(self, where: Tensor) -> dict[str, Tensor]:
        """The parameters that have moved, at `where` (axes,); at zero they are the model's to the last bit.

        At several places (p, axes) they are stacked, (p, …)."""
        found = {}
        there: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        for name in self.moving:
            value = self.origin[name]
            home = value.device, value.dtype
            there.setdefault(
                home, there.get(home, where).to(*home)
            )  # a GPU waits for every number that is sent
            steps = there[home].reshape(*where.shape, *(1,) * value.ndim)
            for i, axis in enumerate(self.axes):
                if name in axis:
                    value = torch.addcmul(value, steps.select(where.ndim - 1, i), axis[name])
            found[name] = value
        return found

    def squares(self, where: Tensor) -> Tensor:
        """(p, parameters) squared norms of all parameters at places (p, axes), in float64 from their products."""
        here = torch.cat([torch.ones(len(where), 1, dtype=torch.float64), where.double().cpu()], 1)
        return torch.einsum("pi,nij,pj->pn", here, self._products, here)

    @cached_property
    def _products(self) -> Tensor:
        """(parameters, 1 + axes, 1 + axes) of every parameter and its directions with each other."""
        found = []
        for name, weight in self.origin.items():
            still = torch.zeros_like(weight)
            flat = (
                torch.stack([weight, *(axis.get(name, still) for axis in self.axes)])
                .flatten(1)
                .double()
            )
            found.append(flat @ flat.T)
        return torch.stack(found).cpu()
