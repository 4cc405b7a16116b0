"""How sharply the loss is curved: the largest eigenvalues of its Hessian, batch by batch (A4.02 to A4.04).

    λ = the `top` eigenvalues of largest size of ∇²(NLL + ½ · weight_decay · |w|²), for each batch of `size` images

    NEP = share of negative ones among those of all batches        APE = mean of the positive ones

Park and Kim read off them that attention flattens the loss (small APE, HDV-09) and makes it less convex (negative ones,
HDV-13), and that both sharpen in training (HDV-10, HDV-11 shows the same as a landscape). They measure on images as
training shows them, augmented, and with the L2 term; Chen et al. (ICLR 2022) measure on clean images and find the
opposite order (HDV-51, X-04). So `stream` says which, and the result records it.

The eigenvalues come from Lanczos' iteration, which stops when every residual |Hx - λx| is at most `tolerance · |λ|`;
power iteration, which is what the paper's tool does, takes seven times as many products and errs where eigenvalues of
opposite sign are close. A second, fresh start looks for eigenvalues that the first has missed, until it finds none;
`about["unconverged"]` counts those that a batch could not settle, or not verify, within `most` products each. The start
is random, so the same products also give the density of the whole spectrum (stochastic Lanczos quadrature).

    trace = Σ λ of the eigenvectors found + mean over `draws` of uᵀHu,   u: random signs, less their part along them

Intervals are over batches, Student's t; of NEP, a share, Wilson's with as many independent eigenvalues as the batches'
spread leaves. Of a single batch only the trace has one, over its draws: it says nothing of other images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.data.random_streams import RandomStreams
from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.curvature.lanczos import BASIS, Spectrum, extreme
from vitreous.measure.curvature.loss import Batches, Hessian, Stream, Weights, weights
from vitreous.measure.curvature.second_derivatives import quick
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import interval, times
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject
from vitreous.results import (
    Column,
    Interval,
    Reference,
    Result,
    View,
    clustered_share,
    estimate,
    mean_of_few,
    ratio_of_few,
)
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.results.words import format_estimate, format_percent
from vitreous.specimen.specimen import Specimen
from vitreous.training.step import is_convolutional

__all__ = ["HessianSpectrum"]

POINTS = 121
"""Of a curve."""
FAINT = 1e-7
"""Densities of the spectrum below this share of the largest are not told from none."""


@dataclass
class HessianSpectrum(Analysis):
    """How sharply the loss is curved."""

    stream: Stream = "augmented"
    """Images as training shows them, as the paper has it, or `clean`."""
    recipe: str = "hdv_cifar"
    """Whose augmentation, where the stream is augmented."""
    weight_decay: float = 0.05
    """Of the L2 term, which adds as much to every eigenvalue; 0 for the NLL alone."""
    top: int = 5
    """Eigenvalues of a batch, the largest by amount, of either sign."""
    size: int = 16
    """Images of a batch."""
    where: str = ""
    """Which parameters: all, or `stage 2`, `attention`, a unit or a pattern of their names."""
    tolerance: float = 1e-3
    """Largest residual |Hx - λx|, of |λ|."""
    most: int = 300
    """Products of a batch, at most, to find eigenvalues; as many again to see that none is missing."""
    draws: int = 8
    """Products of a batch for its trace."""

    name = "hessian"
    ids = ("A4.02", "A4.03", "A4.04", "HDV-09", "HDV-10", "HDV-11", "HDV-13", "HDV-51", "X-04")
    section = Section(
        "curvature",
        "How sharp is the loss?",
        "The largest eigenvalues of the Hessian, for one small batch after the other: how much "
        "the loss curves along its steepest directions. Negative eigenvalues are directions in "
        "which it curves downwards.",
        "A ViT's are smaller than a ResNet's throughout training, and early on many are negative "
        "(Park & Kim 2022, Fig. 1c), on augmented images and with weight decay. On clean images "
        "others find the opposite order (Chen et al. 2022).",
        order=1,
        headline=10,
    )
    split = "train"
    limit = 256

    def __post_init__(self) -> None:
        for option in ("top", "size", "most", "draws"):
            if getattr(self, option) < 1:
                raise VitreousError(
                    f"hessian was asked with {option}={getattr(self, option)}; it is at least 1."
                )
        if not 0 < self.tolerance < 1:
            raise VitreousError(
                f"A residual is a share of its eigenvalue, such as 0.001, and not {self.tolerance}."
            )
        if self.weight_decay < 0:
            raise VitreousError(f"weight_decay is {self.weight_decay}; it is 0 or more.")

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if len(bench.data.classes) == 1:
            return (
                f"{bench.data.name!r} has one class, so the loss is zero whatever the weights are."
            )
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so its loss has no curvature."
        return super().unsuited(subject, bench)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        count = len(bench.data) // self.size
        if not count:
            raise VitreousError(
                f"hessian takes batches of {self.size} images, and {bench.data.name!r} has {len(bench.data)}; give "
                "it more, or a smaller size."
            )
        return [f"batch {number}" for number in range(count)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        given = weights(subject.specimen, self.where)
        specimen = quick(subject.specimen)
        batches = Batches(subject, bench.data, self.stream, self.recipe, bench.seed)
        names = self.pieces(subject, bench)
        ready: dict[str, Spectrum] = {}
        """Of batches that were done beside one that was asked for."""

        def one(piece: str) -> Numbers:
            if piece not in ready:
                first = names.index(piece)
                together = names[first : first + self._together(subject, given, bench)]
                ready.update(
                    zip(
                        together,
                        self._spectra(specimen, given, batches, bench, first, len(together)),
                        strict=True,
                    )
                )
            return _numbers(ready.pop(piece))

        yield one

    def _together(self, subject: Subject, given: Weights, bench: Bench) -> int:
        """Batches at a time: as many as fit with their bases, on a GPU that one of them would leave idle; otherwise
        one. Convolutions of several weights at once are slow anywhere."""
        device = subject.device
        if device.type != "cuda" or is_convolutional(subject.specimen):
            return 1
        basis = BASIS * sum(value.numel() * value.element_size() for value in given.values())
        return max(
            1, min(bench.batch // self.size, torch.cuda.mem_get_info(device)[0] // (2 * basis))
        )

    def _spectra(
        self,
        specimen: Specimen,
        given: Weights,
        batches: Batches,
        bench: Bench,
        first: int,
        count: int,
    ) -> list[Spectrum]:
        rows = torch.arange(first * self.size, (first + count) * self.size).split(self.size)
        images, targets = (torch.stack(each) for each in zip(*map(batches, rows), strict=True))
        hessian = Hessian(specimen, given, images, targets, bench.batch)
        drawn = RandomStreams(f"hessian {bench.seed}", first, count, images.device).uniform(
            sum(hessian.sizes)
        )
        start = torch.where(drawn < 0.5, -1.0, 1.0).to(images.dtype)
        every = 4 if images.is_cuda else 1

        def product(vectors: Tensor) -> Tensor:
            return hessian(vectors).add_(vectors, alpha=self.weight_decay)

        how: dict[str, Any] = {"most": self.most, "every": every, "draws": self.draws}
        found = extreme(product, start, self.top, tolerance=self.tolerance, **how)
        return [
            replace(each, trace=each.trace - self.weight_decay * start.shape[1]) for each in found
        ]

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows = [row for each in asked for row in self._rows(each.name, found[each.name], bench)]
        table = pd.DataFrame(rows)
        for name, measure in SHOWN.items():
            table[name] = table["measure"] == measure
        about = {
            "unconverged": {each.name: self._unsettled(found[each.name].values()) for each in asked}
        }
        return Result(self.name, table, COLUMNS, _views(self), about=about)

    def _unsettled(self, batches: Iterable[Numbers]) -> int:
        """Eigenvalues whose residual is too large, and all of a batch of which some may be missing."""
        far = (each["residuals"] > self.tolerance * each["values"].abs() for each in batches)
        return sum(
            int((each | ~batch["verified"].bool()).sum())
            for each, batch in zip(far, batches, strict=True)
        )

    def _rows(
        self, model: str, pieces: Mapping[str, Numbers], bench: Bench
    ) -> Iterator[dict[str, Any]]:
        numbers = sorted(
            (int(piece.removeprefix("batch ")), found) for piece, found in pieces.items()
        )
        once = np.ones((1, len(numbers)))
        drawn = np.concatenate(
            [once, np.stack([times(number, bench.seed) for number, _ in numbers], 1)]
        )
        blank = dict.fromkeys(("batch", "rank", "residual", "products", *VALUE, *DENSITY), np.nan)
        shared = {"model": model, **blank, "n": len(numbers) * self.size}
        for number, each in numbers:
            own = {"batch": number, "products": float(each["products"]), "n": self.size}
            for rank, (value, residual) in enumerate(
                zip(each["values"], each["residuals"], strict=True), 1
            ):
                found = {"rank": rank, "residual": float(residual), "value": float(value)}
                yield {**shared, "measure": "eigenvalue", **own, **found}
        values = [each["values"].numpy() for _, each in numbers]
        for measure, ends in summaries(
            values, [each["trace"].numpy() for _, each in numbers]
        ).items():
            yield {**shared, "measure": measure, **dict(zip(VALUE, map(float, ends), strict=True))}
        nodes = [(each["nodes"].numpy(), each["weights"].numpy()) for _, each in numbers]
        equal = [(each, np.full(len(each), 1 / len(each))) for each in values]
        for measure, points, wide, least in (
            ("density", equal, None, 0.0),
            ("spectrum", nodes, 0.01, FAINT),
        ):
            at, dense = curve(points, drawn, wide)
            band = np.maximum(np.stack(interval(dense, len(numbers))), 0)
            for row in zip(at, *np.where(band >= least * band[0].max(), band, np.nan), strict=True):
                yield {
                    **shared,
                    "measure": measure,
                    **dict(zip(DENSITY, map(float, row), strict=True)),
                }

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        images = result.about.get("options", {}).get("stream", "")
        for column, what, show in (
            ("positive", "mean positive eigenvalue", format_estimate),
            ("negative", "share of negative eigenvalues", format_percent),
        ):
            rows = result.table[result.table[column]].dropna(subset="value")
            yield rank_models(
                mean_by_model(rows),
                f"On {images} images the {what} is largest in {{model}}, {{}}",
                "smallest in {model}, {}",
                f"On {images} images {what}s are tied: {{}} to {{}}",
                show,
            )


def _numbers(found: Spectrum) -> Numbers:
    arrays = (
        ("values", found.values),
        ("residuals", found.residuals),
        ("nodes", found.nodes),
        ("weights", found.weights),
        ("trace", found.trace),
    )
    kept = {name: torch.from_numpy(np.array(array, dtype=np.float64)) for name, array in arrays}
    about = {"products": float(found.products), "verified": float(found.verified)}
    return kept | {name: torch.tensor(value, dtype=torch.float64) for name, value in about.items()}


def summaries(values: Sequence[np.ndarray], traces: Sequence[np.ndarray]) -> dict[str, Interval]:
    """Statistics of the eigenvalues and the draws of the trace of all batches."""
    positive = [each[each > 0] for each in values]
    ape = ratio_of_few([each.sum() for each in positive], [len(each) for each in positive])
    means = [each.mean() for each in traces]
    return {
        "NEP": clustered_share([(each < 0).mean() for each in values], len(values[0])),
        "APE": Interval(ape.mean, np.maximum(ape.low, 0), ape.high),  # of positive numbers
        "largest": mean_of_few([each.max() for each in values]),
        "trace": mean_of_few(means if len(means) > 1 else traces[0]),
    }


def curve(
    points: Sequence[tuple[np.ndarray, np.ndarray]], drawn: np.ndarray, wide: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where (points,) and how dense (1 + repeats, points) weighted values of all batches lie, smeared by Gaussians.

    These are `wide` as a share of the range, or else as wide as Silverman's rule says.
    """
    pooled = np.concatenate([each for each, _ in points])
    low, high = float(pooled.min()), float(pooled.max())
    reach = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-12)
    spread = min(
        float(pooled.std()), float(np.subtract(*np.quantile(pooled, [0.75, 0.25]))) / 1.34
    ) or float(pooled.std())
    width = reach * wide if wide else max(0.9 * spread * len(pooled) ** -0.2, 0.01 * reach)
    at = np.linspace(low - 3 * width, high + 3 * width, POINTS)
    bells = [np.exp(-0.5 * ((at[:, None] - each) / width) ** 2) @ share for each, share in points]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = drawn @ np.array(bells) / drawn.sum(1, keepdims=True) / (width * np.sqrt(2 * np.pi))
    return at, found


SHOWN = {"pooled": "density", "whole": "spectrum", "negative": "NEP", "positive": "APE"}
"""Columns of yes and no, for the views, and the measures that they single out."""

VALUE, DENSITY = ("value", "low", "high"), ("at", "density", "density_low", "density_high")

COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "measure",
        "category",
        "eigenvalue: one of the largest in size of one batch; NEP, APE: share of negative ones and mean of positive "
        "ones over all batches; largest: mean over batches of the largest one; trace: mean estimate of the sum of "
        "all, without L2 (its interval is over batches; of a single batch over draws); density: of the eigenvalues of "
        "all batches; spectrum: of the whole Hessian.",
    ),
    Column("batch", "quantity", "Number of the batch."),
    Column(
        "rank", "quantity", "Place among the eigenvalues of a batch, 1 for the largest in size."
    ),
    Column("at", "quantity", "Where a density is measured.", label="eigenvalue"),
    Column(
        "density", "quantity", "How many eigenvalues lie there, as a share, per unit of curvature."
    ),
    Column("density_low", "quantity", "Lower end of its 95 % interval."),
    Column("density_high", "quantity", "Upper end of its 95 % interval."),
    Column("residual", "quantity", "|Hx - λx| of an eigenvalue, with x of length one."),
    Column("products", "quantity", "Products of the Hessian with a vector that a batch took."),
    *(
        Column(name, "category", f"Whether the row is of the {measure}.")
        for name, measure in SHOWN.items()
    ),
    *estimate("The eigenvalue, or what the measure says."),
)


def _views(asked: HessianSpectrum) -> tuple[View, ...]:
    zero = Reference(0.0, "flat", axis="x")
    shown = f"{asked.stream} images" + f", {asked.where}" * bool(asked.where)
    bars: dict[str, Any] = {
        "x": "model",
        "y": "value",
        "colour": "model",
        "low": "low",
        "high": "high",
    }
    ends = dict(zip(("x", "y", "low", "high"), DENSITY, strict=True))
    lines: dict[str, Any] = {**ends, "colour": "model", "references": (zero,)}
    return (
        View(
            "line",
            **lines,
            where="pooled",
            title=f"The {asked.top} largest eigenvalues of the Hessian ({shown})",
            how_to_read="How often a curvature occurs among the largest of each batch: the further right, the sharper "
            "the loss. What lies left of zero are directions in which the loss curves downwards, which convex losses "
            "do not have.",
        ),
        View(
            "bar",
            **bars,
            where="negative",
            limits=(0, 1),
            title="Share of negative eigenvalues (NEP)",
            how_to_read="Zero would be a loss that is convex along all these directions. The whiskers are the 95 % "
            "interval over batches.",
        ),
        View(
            "bar",
            **bars,
            where="positive",
            title="Mean positive eigenvalue (APE)",
            how_to_read="The higher the bar, the sharper the loss, and the smaller the steps that training can take. "
            "The whiskers are the 95 % interval over batches.",
        ),
        View(
            "line",
            **lines,
            where="whole",
            log=("y",),
            title="Density of the whole spectrum",
            how_to_read="Nearly all eigenvalues lie in the peak at zero: a network has many directions in which "
            "nothing changes. The few far out are those of the first picture.",
        ),
    )
