"""Principal components of the filters of the first convolution.

The filters of the first convolution (a ViT's patch embedding, a ResNet's stem) are the columns of
E, with one row for each of the P x P x 3 inputs. E = U S Vᵀ; the columns of U, strongest first, are
shown as P x P pictures.

    value     = s_i² / sum s²                             share of the filters' energy
    frequency = mean of f over the spectrum of u_i, in π  0 is flat, 1 alternates between pixels
    overlap   = ‖Wᵀ u_i‖²                                 W: first k principal components of patches

The frequency of a wave is the larger of its frequencies along the two axes, as everywhere in the
package: stripes of one pixel and a chessboard both have 1. An overlap of 1 means that the component
lies in the space of the first principal components of patches; k is the number of components shown,
but at most a quarter of P x P x 3. A random direction has an overlap of `chance`, k / (P x P x 3).
The sign of a component is arbitrary: its largest entry is made positive.

Patches come from the images as the model gets them, up to 4 x 4 of each image, evenly spaced; their
sums and products are added up, so that no image is kept. The paper shows 28 components of ViT-L/32
and finds them to resemble plausible basis functions for the fine structure of a patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from vitreous.measure.probe import Batch, Probe, Sums, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Result, View
from vitreous.results.comparing import list_by_model
from vitreous.results.words import format_percent
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.graph import args, attribute, op
from vitreous.specimen.observe import Sites

__all__ = ["Filters"]

ACROSS = 4
"""Maximum number of patches of an image in each direction."""
FIRST = 5
"""Number of components whose energy is summed in the report's sentence."""
TILE = 96
"""Pixels of a picture: a multiple of most patch sizes, the same for all models, so that they can be
shown together."""

Array = NDArray[np.float64]


def first_filters(module: fx.GraphModule, channels: int) -> Tensor | None:
    """Weights (d, channels, height, width) of the first convolution, if it takes the image.

    Otherwise None.
    """
    for node in module.graph.nodes:
        if op(node).startswith("conv") and len(args(node)) > 1:
            weight = args(node)[1]
            if not isinstance(weight, fx.Node) or weight.op != "get_attr":
                return None
            values = torch.as_tensor(attribute(module, str(weight.target)))
            return values.detach() if values.ndim == 4 and values.shape[1] == channels else None
    return None


def components(filters: Array) -> tuple[Array, Array]:
    """Principal components of filters (d, channels, height, width).

    Returns
    -------
    Shares of energy (k,), and components (k, channels, height, width), strongest first.
    """
    left, strength, _ = np.linalg.svd(filters.reshape(len(filters), -1).T, full_matrices=False)
    largest = np.take_along_axis(left, np.abs(left).argmax(0)[None], 0)
    shares = strength**2 / max(float((strength**2).sum()), np.finfo(np.float64).tiny)
    return shares, (left * np.sign(largest)).T.reshape(-1, *filters.shape[1:])


def spatial_frequency(pictures: Array) -> Array:
    """Mean frequency (n,) in π of pictures (n, c, h, w), weighted by energy.

    The frequency of a wave is the larger of its frequencies along the axes.
    """
    energy = (np.abs(np.fft.fft2(pictures)) ** 2).sum(1)
    down, across = (np.abs(2 * np.fft.fftfreq(side)) for side in pictures.shape[2:])
    larger = np.maximum(down[:, None], across)
    mean: Array = (energy * larger).sum((1, 2)) / energy.sum((1, 2))
    return mean


def patches(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Evenly spaced patches of images, (b * n, c * h * w), at most `ACROSS` in each direction."""
    windows = images.unfold(2, size[0], 1).unfold(3, size[1], 1)
    starts = []
    for side, extent in zip(images.shape[2:], size, strict=True):
        count = max(min(side // extent, ACROSS), 1)
        starts.append(torch.linspace(0, side - extent, count, device=images.device).round().long())
    return (
        windows[:, :, starts[0]][:, :, :, starts[1]]
        .permute(0, 2, 3, 1, 4, 5)
        .flatten(0, 2)
        .flatten(1)
    )


@dataclass
class Filters(Probe):
    """Principal components of the first filters."""

    name = "filters"
    ids = ("A4.29", "VIT-08")
    section = Section(
        "weights",
        "What does the first layer look for?",
        "The principal components of the first layer's filters, as small pictures.",
        "In a ViT-L/32 they look like a basis of low frequencies, colours and edges (Dosovitskiy "
        "et al. 2021, Fig. 7).",
        order=1,
    )
    sites = ("before",)
    columns = (
        UNIT_COLUMNS[0],
        Column("component", "order", "Number of the component, 1 for the strongest."),
        Column(
            "frequency",
            "quantity",
            "Mean spatial frequency: 0 is flat, 1 alternates from pixel to pixel.",
            "π",
        ),
        Column(
            "overlap",
            "quantity",
            "Share of the component that lies within the principal components of image patches.",
        ),
        Column("chance", "quantity", "Expected overlap of a random direction."),
        Column("value", "quantity", "Share of the energy of all filters.", label="share of energy"),
    )
    views = (
        View(
            "tiles",
            x="component",
            facet="model",
            array="components",
            title="Principal components of the first filters",
            how_to_read="Each tile is a principal component of the filters that see the image, "
            "strongest first; grey is nothing, colours and their opposites are interchangeable. "
            "Smooth waves and blobs are those that patches of photographs consist of; what looks "
            "like noise was hardly learned.",
        ),
        View(
            "line",
            x="component",
            y="value",
            colour="model",
            log=("y",),
            title="Energy of the components of the filters",
            how_to_read="Each point is a component's share of the energy of all filters. A steep "
            "line means few independent filters, a flat one that all are used alike.",
        ),
        View(
            "scatter",
            x="frequency",
            y="overlap",
            colour="model",
            title="Components of filters and of image patches",
            how_to_read="Each point is a component. High up, it lies within the strongest "
            "components of the images' patches; to the right, it is fine-grained.",
        ),
    )
    number: int = 28
    """Number of components."""

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        first = result.table[result.table["component"] <= FIRST].dropna(subset="value")
        energy = first.groupby("model", sort=False, observed=True)["value"].sum()
        shares = {str(model): float(share) for model, share in energy.items()}
        texts = {model: format_percent(share) for model, share in shares.items()}
        if texts:
            yield (
                f"Share of the energy of all filters in the first {FIRST} components: "
                f"{list_by_model(texts, shares)}."
            )

    def unsuited(self, subject: Subject) -> str:
        filters = first_filters(subject.specimen.module, subject.specimen.anatomy.image[0])
        if filters is None:
            return (
                "Its first layer is no plain convolution of the image: it has no filters to show."
            )
        return (
            ""
            if filters.shape[2:].numel() > 1
            else "Its first convolution sees single pixels: filters of 1 x 1."
        )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return None if unit.index == 0 else ""

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        filters = first_filters(subject.specimen.module, subject.specimen.anatomy.image[0])
        if filters is None or sites.before is None or sites.before.raw.shape[1] != filters.shape[1]:
            return {}
        flat = patches(sites.before.raw, (filters.shape[2], filters.shape[3]))
        flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
        sums = {
            "count": torch.tensor(float(len(flat)), dtype=torch.float64),
            "sum": flat.sum(0, dtype=torch.float64),
            "products": (flat.T @ flat).double(),
        }
        return {sum_key(subject, None, what): value for what, value in sums.items()}

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows: list[dict[str, Any]] = []
        pictures: list[NDArray[np.uint8]] = []
        for subject in subjects:
            filters = first_filters(subject.specimen.module, subject.specimen.anatomy.image[0])
            assert filters is not None
            shares, leading = components(filters.double().cpu().numpy())
            shares, leading = shares[: self.number], leading[: self.number]
            rows += self._rows(subject, shares, leading, _span(sums, subject, self.number))
            pictures += [_picture(component) for component in leading]
        table = pd.DataFrame(rows, columns=[column.name for column in self.columns])
        return Result(
            self.name, table, self.columns, self.views, {"components": np.stack(pictures)}
        )

    def _rows(
        self, subject: Subject, shares: Array, leading: Array, span: Array | None
    ) -> Iterator[dict[str, Any]]:
        flat = leading.reshape(len(leading), -1)
        overlap = np.full(len(leading), np.nan) if span is None else ((flat @ span) ** 2).sum(1)
        chance = np.nan if span is None else span.shape[1] / span.shape[0]
        for i, frequency in enumerate(spatial_frequency(leading)):
            yield {
                "model": subject.name,
                "component": i + 1,
                "frequency": frequency,
                "overlap": overlap[i],
                "chance": chance,
                "value": shares[i],
            }


def _span(sums: Mapping[str, Tensor], subject: Subject, number: int) -> Array | None:
    """Leading principal components (P * P * 3, k) of the patches; None if there are too few."""
    if sum_key(subject, None, "count") not in sums:
        return None
    count, total, products = (
        sums[sum_key(subject, None, what)].numpy() for what in ("count", "sum", "products")
    )
    size = min(number, len(total) // 4)
    if count <= size:
        return None
    mean = total / count
    ends = (len(total) - size, len(total) - 1)
    _, vectors = scipy.linalg.eigh(products / count - np.outer(mean, mean), subset_by_index=ends)
    strongest: Array = vectors[:, ::-1]
    return strongest


def _picture(component: Array) -> NDArray[np.uint8]:
    """A component as a picture (TILE, TILE, 3): zero is grey, the largest entry black or white."""
    levels = 127.5 + 127.5 * component / max(
        float(np.abs(component).max()), np.finfo(np.float64).tiny
    )
    rows, columns = (np.arange(TILE) * side // TILE for side in component.shape[1:])
    pixels = np.round(levels).astype(np.uint8)[:, rows][:, :, columns].transpose(1, 2, 0)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
