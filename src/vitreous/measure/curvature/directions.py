"""Directions in parameter space, and the plane that two of them span.

    random      d[i] = g[i] · |w[i]| / |g[i]|                       per filter i, an output row
    official    d[…, j] = g[…, j] · |w[…, j]| / (|g[…, j]| + 1e-7)  per column j, norms over axis 0

with Gaussian g. The first is filter-wise normalisation as Li et al. 2018 define it; the second is
what the code of Park & Kim 2022 computes, to reproduce its figures. Biases, norms, positions and
tokens have no filters and do not move; the official variant moves tokens, and tables of positions
that are not called `pos_embed` or `relative_position`, as its code does. Eigenvectors of the
Hessian have length one and move all parameters: the loss is curved most along them, at the centre
by the eigenvalue.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.measure.curvature.lanczos import extreme
from vitreous.measure.curvature.loss import (
    PREFIX,
    Hessian,
    Weights,
    check_second_derivatives,
)
from vitreous.random_numbers import torch_generator
from vitreous.specimen.specimen import Specimen
from vitreous.training.optim import undecayed

Kind = Literal["random", "official", "eigenvectors"]
SPARED = ("pos_embed", "relative_position")
"""Words in the names of parameters that the official variant does not move."""


def parameters_without_filters(model: nn.Module) -> set[str]:
    """Return the names of one-dimensional parameters, tables of positions, and tokens."""
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    tables = {name for name, shape in shapes.items() if len(shape) == 3 and shape[0] == 1}
    fixed = undecayed(model) | tables
    if isinstance(model, Specimen):
        return {name.removeprefix(PREFIX) for name in fixed} | model.undecayed
    return fixed


def random_direction(
    kind: Kind, given: Weights, fixed: Collection[str], seed: int, axis: int
) -> dict[str, Tensor]:
    """Draw a `random` or `official` direction: the parameters that move, and by how much.

    Numbers depend on the seed, the axis and a parameter's name only, so two checkpoints of one
    training move along the same direction, each at its own scale. `random` leaves out `fixed` ones.
    """
    direction = {}
    for name, weight in given.items():
        if kind == "official" and (weight.ndim < 2 or any(word in name for word in SPARED)):
            continue
        if kind == "random" and name in fixed:
            continue
        generator = torch_generator(seed, "direction", axis, name)
        drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        normalise = _by_filter if kind == "random" else _by_column
        direction[name] = normalise(drawn.to(weight.device), weight.double()).to(weight.dtype)
    return direction


def eigenvectors(
    specimen: Specimen,
    given: Weights,
    images: Tensor,
    targets: Tensor,
    at_once: int,
    count: int,
    seed: int,
) -> tuple[dict[str, Tensor], ...]:
    """Return the `count` leading eigenvectors of the Hessian of the loss on these images.

    Leading means of largest |eigenvalue|. The sign of an eigenvector is arbitrary: the largest
    entry is made positive.
    """
    check_second_derivatives(specimen, given, images[None], targets[None])
    hessian = Hessian(specimen, given, images[None], targets[None], at_once)
    generator = torch_generator(seed, "eigenvectors")
    start = torch.randn(1, sum(hessian.sizes), generator=generator).to(images)
    axes = []
    for vector in extreme(hessian, start, count, vectors=True)[0].vectors:
        vector = vector * vector[vector.abs().argmax()].sign() / vector.norm()
        parts = zip(given.items(), vector.split(hessian.sizes), strict=True)
        axes.append({name: part.view_as(value).detach() for (name, value), part in parts})
    return tuple(axes)


def _by_filter(drawn: Tensor, weight: Tensor) -> Tensor:
    """Scale every output row to the norm of the weight's; a vector is one filter."""
    rows = drawn.reshape(1, -1) if drawn.ndim < 2 else drawn.flatten(1)
    length = weight.reshape_as(rows).norm(dim=1, keepdim=True)
    return (rows * (length / rows.norm(dim=1, keepdim=True))).reshape_as(drawn)


def _by_column(drawn: Tensor, weight: Tensor) -> Tensor:
    """Scale as the official code does: norms over the outputs, per input and kernel position."""
    return drawn * (weight.norm(dim=0, keepdim=True) / (drawn.norm(dim=0, keepdim=True) + 1e-7))


@dataclass(frozen=True, eq=False)
class Plane:
    """The line or plane through some weights along one or two directions."""

    origin: Weights
    axes: tuple[Weights, ...]

    @cached_property
    def moving(self) -> tuple[str, ...]:
        return tuple(name for name in self.origin if any(name in axis for axis in self.axes))

    def at(self, where: Tensor) -> dict[str, Tensor]:
        """Return the moving parameters at a point (axes,); at zero they are exactly the model's.

        At several points (p, axes) they are stacked, (p, …).
        """
        moved = {}
        points: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        for name in self.moving:
            value = self.origin[name]
            device_and_dtype = value.device, value.dtype
            if device_and_dtype not in points:  # sent only once: every transfer makes a GPU wait
                points[device_and_dtype] = where.to(*device_and_dtype)
            steps = points[device_and_dtype].reshape(*where.shape, *(1,) * value.ndim)
            for i, axis in enumerate(self.axes):
                if name in axis:
                    value = torch.addcmul(value, steps.select(where.ndim - 1, i), axis[name])
            moved[name] = value
        return moved

    def squares(self, where: Tensor) -> Tensor:
        """Return the squared norms of parameters at points (p, axes), (p, parameters)."""
        ones = torch.ones(len(where), 1, dtype=torch.float64)
        factors = torch.cat([ones, where.double().cpu()], 1)
        return torch.einsum("pi,nij,pj->pn", factors, self._products, factors)

    @cached_property
    def _products(self) -> Tensor:
        """Products of each parameter and its directions, (parameters, 1 + axes, 1 + axes)."""
        products = []
        for name, weight in self.origin.items():
            zeros = torch.zeros_like(weight)
            vectors = torch.stack([weight, *(axis.get(name, zeros) for axis in self.axes)])
            flat = vectors.flatten(1).double()
            products.append(flat @ flat.T)
        return torch.stack(products).cpu()
