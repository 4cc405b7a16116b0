"""Which frequencies of noise harm a model.

    x_noise = x + F⁻¹(F(δ) ⊙ ring(f)),      ring(f): frequencies in f ± width / 2
    change(f) = accuracy(x_noise) − accuracy(x)

Frequencies are in π radians per pixel of the model's input, of which 1 is the highest. The
frequency of a wave is the larger of those along the axes, so rings are square. Park & Kim
2022 (Fig. 2b) find that a ViT is vulnerable to low-frequency noise and a ResNet to high-frequency
noise.

The paper does not state the strength of its noise. Here bisection finds the strength at which the
first model loses `drop` in accuracy, on average over all frequencies. Every model gets the same
noise. δ is drawn once per image, the same for all frequencies. Noisy images are not clipped to the
range of pixels, because clipping would spread noise over all frequencies.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.frequency import WIDTHS, Definition, band_noise, ring
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch
from vitreous.measure.report_section import Section
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    ShiftScores,
    channel_statistics,
    check_options,
    evaluate_images,
    rank_by_mean_accuracy,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View, tabulate

__all__ = ["BandNoise"]

log = logging.getLogger("vitreous")
WEAKEST, STRONGEST = 2.0**-8, 2.0
"""Range of strengths to search; pixels go from 0 to 1."""
STEPS = 9
"""Number of bisections, which find the strength to one per cent."""
CLOSE = 0.01
"""The search ends when the mean loss of accuracy is this close to `drop`."""
IMAGES = 256
"""Maximum number of images used in the search."""


@dataclass
class BandNoise(Analysis):
    """Accuracy under noise of one band of frequencies after another."""

    frequencies: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Centres of the bands, in π."""
    drop: float = 0.1
    """Accuracy that the first model should lose, mean over frequencies, where `strength` is 0."""
    strength: float = 0.0
    """Root mean square of the noise δ, for pixels from 0 to 1; 0 searches for the one that costs
    `drop`."""
    width: float = 0.1
    """Width of a band, in π; rounded to whole waves of the image, so that all rings are equally
    thick."""
    definition: Definition = "paper"
    """`paper`: `strength` is that of δ, before filtering; `equal`: that of the filtered noise, the
    same in all bands; `released`: the rings of the published code."""
    _strengths: dict[tuple[str, str, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    name = "band_noise"
    ids = ("A4.08", "HDV-32")
    section = Section(
        "robustness",
        "Which frequencies of noise hurt?",
        "Noise of about one frequency, low on the left and high on the right, so strong that the "
        "first model loses a tenth of the images on average.",
        "On ImageNet a ResNet-50 loses 15.4 points to noise of the highest frequency and a ViT "
        "4.8; to low-frequency noise, at 0.3π, they lose 12.7 and 14.9 (Park & Kim 2022, Fig. 2).",
        order=2,
    )

    def __post_init__(self) -> None:
        check_options("Frequencies of noise, in π,", self.frequencies, 0, 1)
        check_options("The width of a band and the drop", (self.width,), 0, 1)
        check_options("The width of a band and the drop", (self.drop,), 0, 1)
        if not 0 <= self.strength < math.inf:
            raise VitreousError(
                f"The strength of noise is {self.strength:g}; give a number above 0, or 0 to find "
                "one."
            )
        if self.definition not in WIDTHS:
            raise UnknownName("definition of band noise", self.definition, WIDTHS)

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        size = subject.specimen.anatomy.image[1:]
        for frequency in self.frequencies:
            if not bool(self._ring(size, frequency).any()):
                return (
                    f"Its {size[0]}x{size[1]} images have no wave in the band around "
                    f"{frequency:g}π; use a width of at least {2 / max(size):.3g}π."
                )
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [CLEAN, *(f"{frequency:g}" for frequency in self.frequencies)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        strength = self.strength or self._matched_strength(bench)

        def compute(piece: str) -> Numbers:
            if piece == CLEAN:
                numbers = evaluate_images(
                    subject, bench, lambda batch: subject.prepare(batch.images)
                )
            else:
                numbers = self._under_noise(subject, bench, float(piece), strength)
            return {**numbers, "strength": torch.tensor(strength, dtype=torch.float64)}

        yield compute

    def _under_noise(
        self, subject: Subject, bench: Bench, frequency: float, strength: float
    ) -> dict[str, Tensor]:
        return evaluate_images(
            subject, bench, lambda batch: self.add_noise(subject, batch, frequency, strength)
        )

    def add_noise(
        self, subject: Subject, batch: Batch, frequency: float, strength: float
    ) -> Tensor:
        """Return images with noise, prepared for the model."""
        images = subject.prepare(batch.images)
        shape = (len(images), *subject.specimen.anatomy.image)
        noise = band_noise(
            shape,
            frequency * math.pi,
            strength,
            width=self._width(shape[2:]),
            definition=self.definition,
            seed=batch.seed,
            first=int(batch.rows[0]),
            device=images.device,
        )
        _, std = channel_statistics(subject, images)
        return images + (noise / std).to(images.dtype)

    def _matched_strength(self, bench: Bench) -> float:
        """Return the strength at which the first suitable model loses `drop`; cached."""
        first = next(s for s in bench.setting.subjects if not self.unsuited(s, bench))
        key = (first.fingerprint, bench.data.fingerprint, bench.seed)
        if key not in self._strengths:
            self._strengths[key] = self._search(first, bench)
        return self._strengths[key]

    def _search(self, subject: Subject, bench: Bench) -> float:
        data = bench.data.take(range(min(IMAGES, len(bench.data))))
        subset = replace(bench, setting=replace(bench.setting, data=data))

        def accuracy(numbers: dict[str, Tensor]) -> float:
            return float(numbers["right"].double().mean())

        clean = accuracy(
            evaluate_images(subject, subset, lambda batch: subject.prepare(batch.images))
        )
        low, high = WEAKEST, STRONGEST
        loss, strength = 0.0, STRONGEST
        for _ in range(STEPS):
            strength = math.sqrt(low * high)
            noisy = [
                accuracy(self._under_noise(subject, subset, frequency, strength))
                for frequency in self.frequencies
            ]
            loss = clean - float(np.mean(noisy))
            if abs(loss - self.drop) <= CLOSE:
                break
            if loss < self.drop:
                low = strength
            else:
                high = strength
        if abs(loss - self.drop) > max(2 * CLOSE, 1 / len(data)):
            log.warning(
                "%s loses %.3f to noise of strength %.3g, not %.3f.",
                subject.name,
                loss,
                strength,
                self.drop,
            )
        return strength

    def _ring(self, size: Sequence[int], frequency: float) -> Tensor:
        return ring((size[0], size[1]), frequency * math.pi, self._width(size), self.definition)

    def _width(self, size: Sequence[int]) -> float:
        """Return the width in radians, an integer number of waves, so that all rings are equal."""
        if self.definition == "released":
            return math.pi * self.width
        wave = 2 / max(size)
        return math.pi * (max(round(self.width / wave), 1) * wave)

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        names = [f"{frequency:g}" for frequency in self.frequencies]
        rows: list[dict[str, Any]] = []
        for subject in subjects:
            scores = ShiftScores(computed[subject.name], bench)
            row = {"model": subject.name, "noisy": False, "pictured": False, "overall": False}
            rows.append({**row, "frequency": math.nan, **scores.row(CLEAN)})
            overall = {**row, "frequency": math.nan, "overall": True}
            rows.append({**overall, **scores.mean_row(names)})
            row |= {"noisy": True, "pictured": subject is subjects[0]}
            rows += [{**row, "frequency": float(name), **scores.row(name)} for name in names]
        table, replicates = tabulate(rows, COLUMNS)
        size = subjects[0].specimen.anatomy.image[1:]
        rings = [self._ring(size, frequency).numpy() for frequency in self.frequencies]
        about = {
            "strength": float(computed[subjects[0].name][CLEAN]["strength"]),
            "reference": subjects[0].name,
            "mean_drop": -float(table.loc[table["overall"], "change"].iloc[0]),
            "width": self._width(size) / math.pi,
        }
        arrays = {"ring": np.stack(rings) * np.uint8(255)}
        return Result(self.name, table, COLUMNS, VIEWS, arrays, about, replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_by_mean_accuracy(result, "noise in bands of frequency")


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "frequency", "quantity", "Centre of the band; empty for clean images and the mean.", "π"
    ),
    Column("noisy", "category", "Whether the row is about noise of one frequency."),
    Column("pictured", "category", "Whether the ring of the row is among the pictures."),
    Column("overall", "category", "Whether the row is the mean over frequencies."),
    *MEASURES,
)
VIEWS = (
    View(
        "line", x="frequency", y="change", colour="model", low="change_low", high="change_high",
        references=(Reference(0.0, "clean images"),), where="noisy",
        title="Accuracy lost to noise of each frequency",
        how_to_read="Noise gets finer from left to right. A line is lowest at the frequency that "
        "harms the model most; in the paper that is on the left for a ViT and on the right for a "
        "ResNet.",
    ),
    View(
        "line", x="frequency", y="ece", colour="model", low="ece_low", high="ece_high",
        where="noisy",
        title="Calibration under noise of each frequency",
        how_to_read="Mean gap between confidence and accuracy. Where it is large, the model stays "
        "confident although the noise misleads it.",
    ),
    View(
        "tiles", x="frequency", array="ring", where="pictured",
        title="The rings of frequencies in the noise",
        how_to_read="Low frequencies are in the middle, high ones at the rim; noise contains the "
        "white ones. An outer ring holds more frequencies, so the same δ leaves more noise there.",
    ),
)  # fmt: skip
