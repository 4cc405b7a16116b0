"""How sharply the loss is curved: the leading eigenvalues of its Hessian, batch by batch.

    λ = the `top` eigenvalues of largest |λ| of ∇²(NLL + ½ · weight_decay · |w|²), for each batch
    NEP = share of negative ones among those of all batches        APE = mean of the positive ones

Park & Kim 2022 conclude that attention flattens the loss (small APE, Fig. 1c) and makes it less
convex (negative ones, Fig. 6). They use augmented training images and the L2 term; Chen et al.
(ICLR 2022) use clean images and find the opposite order. So `stream` chooses, and the result
records it.

Eigenvalues come from Lanczos iteration, which stops when every residual |Hx - λx| is at most
`tolerance · |λ|`. Power iteration, which the paper's tool uses, takes seven times as many products
and fails if eigenvalues of opposite sign are close. The search is repeated from new random starts
for eigenvalues that were missed, until none is found. `about["unconverged"]` counts eigenvalues
that did not converge, or could not be verified, within `most` products each. As starts are random,
the same products also give the density of the whole spectrum (stochastic Lanczos quadrature).

    trace = Σ λ of the eigenvectors found + mean over `draws` of uᵀHu

where u are random signs, projected off these eigenvectors. Intervals are over batches, Student's t;
for NEP, a share, Wilson's with the effective number of independent eigenvalues. With a single batch
only the trace has an interval, over its draws, which says nothing about other images. Replicates
resample batches.

Second derivatives are rewritten for speed (`curvature/second_derivatives.py`). One product per
model is compared with torch's own before anything is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.random_streams import RandomStreams
from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.curvature.lanczos import BASIS, Spectrum, extreme
from vitreous.measure.curvature.loss import (
    Batches,
    Hessian,
    Stream,
    Weights,
    check_second_derivatives,
    weights,
)
from vitreous.measure.curvature.second_derivatives import with_fast_second_derivatives
from vitreous.measure.curvature.spectra import density, resampled_summaries, summaries
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import interval
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import bootstrap_weights
from vitreous.measure.subject import Subject
from vitreous.results import (
    Column,
    Estimate,
    Reference,
    Result,
    View,
    estimate,
    tabulate,
)
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.results.words import format_estimate, format_percent
from vitreous.training.step import is_convolutional

__all__ = ["HessianSpectrum"]

FAINT = 1e-7
"""Densities of the spectrum below this share of the largest are rounding errors and left out."""


@dataclass
class HessianSpectrum(Analysis):
    """Leading eigenvalues of the loss's Hessian, their statistics, and its spectral density."""

    stream: Stream = "augmented"
    """`augmented` images, as in training and in the paper, or `clean` images."""
    recipe: str = "hdv_cifar"
    """Recipe whose augmentation `stream="augmented"` uses."""
    weight_decay: float = 0.05
    """Factor of the L2 term, which moves every eigenvalue by this number; 0 for the NLL alone."""
    top: int = 5
    """Eigenvalues per batch: those of largest absolute value."""
    size: int = 16
    """Images per batch."""
    where: str = ""
    """Parameters to vary: `stage 2`, a kind (`attention`), a unit, or a pattern of names (default:
    all)."""
    tolerance: float = 1e-3
    """Maximum residual ‖Hx − λx‖, relative to |λ|."""
    most: int = 300
    """Maximum number of Hessian-vector products per batch to find eigenvalues, and again to verify
    them."""
    draws: int = 8
    """Random vectors per batch for the trace."""

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
        key=6,
    )
    split = "train"
    limit = 256

    def __post_init__(self) -> None:
        for option in ("top", "size", "most", "draws"):
            if getattr(self, option) < 1:
                raise VitreousError(
                    f"The option {option} of hessian is {getattr(self, option)}; it is at least 1."
                )
        if not 0 < self.tolerance < 1:
            raise VitreousError(
                f"The tolerance of hessian is {self.tolerance}; it is a share of an eigenvalue, "
                "such as 0.001."
            )
        if self.weight_decay < 0:
            raise VitreousError(f"weight_decay is {self.weight_decay}; it is 0 or more.")

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if len(bench.data.classes) == 1:
            return f"{bench.data.name!r} has one class, so the loss is always zero."
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so its loss has no curvature."
        return super().unsuited(subject, bench)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        count = len(bench.data) // self.size
        if not count:
            raise VitreousError(
                f"hessian takes batches of {self.size} images, and {bench.data.name!r} has "
                f"{len(bench.data)}; give it more, or a smaller size."
            )
        return [f"batch {number}" for number in range(count)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        given = weights(subject.specimen, self.where)
        specimen = with_fast_second_derivatives(subject.specimen)
        batches = Batches(subject, bench.data, self.stream, self.recipe, bench.seed)
        names = self.pieces(subject, bench)
        checked = False
        ready: dict[str, Spectrum] = {}
        """Spectra of further batches that were computed together with a requested one."""

        def compute(piece: str) -> Numbers:
            nonlocal checked
            if piece not in ready:
                first = names.index(piece)
                together = names[first : first + self._batches_at_once(subject, given, bench)]
                rows = torch.arange(first * self.size, (first + len(together)) * self.size)
                prepared = [batches(part) for part in rows.split(self.size)]
                images, targets = map(torch.stack, zip(*prepared, strict=True))
                if not checked:
                    check_second_derivatives(subject.specimen, given, images, targets)
                    checked = True
                hessian = Hessian(specimen, given, images, targets, bench.batch)
                spectra = self._spectra(hessian, images, first, bench.seed)
                ready.update(zip(together, spectra, strict=True))
            return _numbers(ready.pop(piece))

        yield compute

    def _batches_at_once(self, subject: Subject, given: Weights, bench: Bench) -> int:
        """Return the number of batches to run in parallel.

        On a GPU as many as fit with their Lanczos bases. On a CPU one, and also for convolutional
        models, because convolutions with stacked weights are slow.
        """
        device = subject.device
        if device.type != "cuda" or is_convolutional(subject.specimen):
            return 1
        basis = BASIS * sum(value.numel() * value.element_size() for value in given.values())
        fit = torch.cuda.mem_get_info(device)[0] // (2 * basis)
        return max(1, min(bench.batch // self.size, fit))

    def _spectra(self, hessian: Hessian, images: Tensor, first: int, seed: int) -> list[Spectrum]:
        """Run Lanczos on some batches, the first of which has number `first`."""
        count, size = len(images), sum(hessian.sizes)
        uniform = RandomStreams(f"hessian {seed}", first, count, images.device).uniform(size)
        start = torch.where(uniform < 0.5, -1.0, 1.0).to(images.dtype)

        def product(vectors: Tensor) -> Tensor:
            return hessian(vectors).add_(vectors, alpha=self.weight_decay)

        spectra = extreme(
            product,
            start,
            self.top,
            tolerance=self.tolerance,
            most=self.most,
            every=4 if images.is_cuda else 1,
            draws=self.draws,
        )
        return [replace(s, trace=s.trace - self.weight_decay * size) for s in spectra]

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        unconverged: dict[str, int] = {}
        for subject in subjects:
            pieces = computed[subject.name]
            batches = {int(name.removeprefix("batch ")): pieces[name] for name in pieces}
            rows += self._rows(subject.name, dict(sorted(batches.items())), bench)
            unconverged[subject.name] = sum(map(self._unconverged, batches.values()))
        for row in rows:
            row |= {flag: row["measure"] == measure for flag, measure in FLAGS.items()}
        table, replicates = tabulate(rows, COLUMNS)
        about = {"unconverged": unconverged}
        return Result(self.name, table, COLUMNS, _views(self), about=about, replicates=replicates)

    def _unconverged(self, batch: Numbers) -> int:
        """Count eigenvalues with a large residual; all of them if some may be missing."""
        large = batch["residuals"] > self.tolerance * batch["values"].abs()
        return int((large | ~batch["verified"].bool()).sum())

    def _rows(
        self, model: str, batches: Mapping[int, Numbers], bench: Bench
    ) -> Iterator[dict[str, Any]]:
        blank: dict[str, Any] = {"model": model}
        for name in ("batch", "rank", "residual", "products", "at", "density", "value"):
            blank[name] = np.nan
        for number, batch in batches.items():
            row = {**blank, "measure": "eigenvalue", "batch": number, "n": self.size}
            row["products"] = float(batch["products"])
            pairs = zip(batch["values"].tolist(), batch["residuals"].tolist(), strict=True)
            for rank, (value, residual) in enumerate(pairs, 1):
                yield {**row, "rank": rank, "residual": residual, "value": value}

        blank["n"] = len(batches) * self.size
        bootstrap = bootstrap_weights(list(batches), bench.seed)
        values = [batch["values"].numpy() for batch in batches.values()]
        traces = [batch["trace"].numpy() for batch in batches.values()]
        replicates = resampled_summaries(values, traces, bootstrap)
        for measure, ends in summaries(values, traces).items():
            resampled = replicates[measure][1:]
            if len(batches) == 1:  # a single batch cannot be resampled
                resampled = np.full_like(resampled, np.nan)
            yield {**blank, "measure": measure, "value": Estimate(*ends, resampled)}

        equal = [(leading, np.full(len(leading), 1 / len(leading))) for leading in values]
        nodes = [(batch["nodes"].numpy(), batch["weights"].numpy()) for batch in batches.values()]
        for measure, points, width, min_share in (
            ("density", equal, None, 0.0),
            ("spectrum", nodes, 0.01, FAINT),
        ):
            at, dense = density(points, bootstrap, width)
            band = np.maximum(np.stack(interval(dense, len(batches))), 0)
            band = np.where(band >= min_share * band[0].max(), band, np.nan)
            for i, where in enumerate(at.tolist()):
                value, low, high = band[:, i]
                at_point = Estimate(value, low, high, dense[1:, i])
                yield {**blank, "measure": measure, "at": where, "density": at_point}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        images = result.about.get("options", {}).get("stream", "the measured")
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
                alone=f"On {images} images the {what} of {{model}} is {{}}",
            )


def _numbers(spectrum: Spectrum) -> Numbers:
    """Return the numbers to store for a batch."""
    arrays = {
        "values": spectrum.values,
        "residuals": spectrum.residuals,
        "nodes": spectrum.nodes,
        "weights": spectrum.weights,
        "trace": spectrum.trace,
        "products": float(spectrum.products),
        "verified": float(spectrum.verified),
    }
    return {name: torch.tensor(np.array(a, dtype=np.float64)) for name, a in arrays.items()}


FLAGS = {"pooled": "density", "whole": "spectrum", "negative": "NEP", "positive": "APE"}
"""Boolean columns for the views, and the measures that they select."""
COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "measure",
        "category",
        "What the row is: `eigenvalue` (of one batch), `NEP`, `APE`, `largest`, `trace`, `density` "
        "(of leading eigenvalues) or `spectrum` (density of all).",
    ),
    Column("batch", "quantity", "Number of the batch."),
    Column("rank", "quantity", "Rank among the eigenvalues of a batch, 1 for the largest |λ|."),
    Column("at", "quantity", "Eigenvalue at which a density is evaluated.", label="eigenvalue"),
    Column("density", "quantity", "Density of eigenvalues; it integrates to one."),
    Column("density_low", "quantity", "Lower end of its 95 % interval."),
    Column("density_high", "quantity", "Upper end of its 95 % interval."),
    Column("residual", "quantity", "‖Hx − λx‖ of an eigenvalue with its unit eigenvector x."),
    Column("products", "quantity", "Number of Hessian-vector products for the batch."),
    *(
        Column(flag, "category", f"Whether `measure` is `{measure}`.")
        for flag, measure in FLAGS.items()
    ),
    *estimate("The eigenvalue, or the measure."),
)


def _views(analysis: HessianSpectrum) -> tuple[View, ...]:
    images = f"{analysis.stream} images" + f", {analysis.where}" * bool(analysis.where)
    bars: dict[str, Any] = {
        "x": "model", "y": "value", "colour": "model", "low": "low", "high": "high",
    }  # fmt: skip
    lines: dict[str, Any] = {
        "x": "at", "y": "density", "low": "density_low", "high": "density_high", "colour": "model",
        "facet": "model", "free": True, "filled": True,
        "references": (Reference(0.0, "flat", axis="x"),), "tooltip": ("model", "at", "density"),
    }  # fmt: skip
    return (
        View(
            "line", **lines, where="pooled",
            title=f"The {analysis.top} leading eigenvalues of the Hessian ({images})",
            how_to_read="How the leading eigenvalues of all batches are distributed; each panel "
            "has its own axes. The further right, the sharper the loss. Left of zero the loss "
            "curves downwards, which a convex loss never does.",
        ),
        View(
            "bar", **bars, where="negative", limits=(0, 1), label="negative eigenvalues (share)",
            title="Share of negative eigenvalues (NEP)",
            how_to_read="Zero means convex along all these directions. Whiskers are the 95 % "
            "interval over batches.",
        ),
        View(
            "bar", **bars, where="positive", label="mean positive eigenvalue",
            title="Mean positive eigenvalue (APE)",
            how_to_read="The higher the bar, the sharper the loss, and the smaller the steps that "
            "training can take. Whiskers are the 95 % interval over batches.",
        ),
        View(
            "line", **lines, where="whole", log=("y",),
            title="Density of the whole spectrum",
            how_to_read="Nearly all eigenvalues are in the peak at zero: the loss is flat in most "
            "directions. Mind the logarithmic axis: the outliers, which the first chart shows, are "
            "a tiny share of all eigenvalues.",
        ),
    )  # fmt: skip
