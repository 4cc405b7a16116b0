"""Which frequencies of noise a model cannot stand (A4.08).

    x_noise = x + F⁻¹(F(δ) ⊙ ring(f)),      ring(f): the waves with a frequency of f ± width / 2
    change(f) = accuracy(x_noise) − accuracy(x)

Frequencies are in π radians a pixel of the image as the model takes it, 1 is the fastest that pixels can hold; a wave's
frequency is the larger of its two along the axes, so that rings are square. Park and Kim find that a ViT is vulnerable
to noise of low frequency and a ResNet to noise of high frequency (HDV-32).

How strong the noise was is not published. Here it is made so strong that the first model given loses `drop` in the mean
over all frequencies, found by halving an interval of strengths; every model then gets the same noise. δ is drawn once
for each image, the same for all frequencies. Noise may leave the range of pixels: clipping would spread it over all
frequencies.
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
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    check_shares,
    levels,
    marked,
    marks,
    table,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View

__all__ = ["BandNoise"]

log = logging.getLogger("vitreous")
WEAKEST, STRONGEST = 2.0**-8, 2.0
"""Strengths among which the right one is looked for; pixels go from 0 to 1."""
STEPS = 9
"""Halvings: the strength is then right to one part in a hundred."""
CLOSE = 0.01
"""A mean loss so near to the wanted one will do."""
IMAGES = 256
"""At most so many images for finding the strength."""


@dataclass
class BandNoise(Analysis):
    """Which frequencies of noise a model cannot stand."""

    frequencies: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Centres of the bands, in π."""
    drop: float = 0.1
    """What the first model is to lose in the mean over frequencies."""
    strength: float = 0.0
    """Root mean square of δ, of pixels from 0 to 1; 0 finds the one that costs `drop`."""
    width: float = 0.1
    """Of a band, in π; rounded to whole waves of the image, so that all rings are equally thick."""
    definition: Definition = "paper"
    """What the strength is: of δ, or with "equal" of what the ring leaves of it. See `vitreous.data.frequency`."""
    _known: dict[tuple[str, str, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    name = "band_noise"
    ids = ("A4.08", "HDV-32")

    def __post_init__(self) -> None:
        check_shares("Frequencies of noise, in π,", self.frequencies, 0, 1)
        check_shares("The width of a band and the drop", (self.width,), 0, 1)
        check_shares("The width of a band and the drop", (self.drop,), 0, 1)
        if not 0 <= self.strength < math.inf:
            raise VitreousError(
                f"The strength of noise is {self.strength:g}; give a number above 0, or 0 to find one."
            )
        if self.definition not in WIDTHS:
            raise UnknownName("definition of band noise", self.definition, WIDTHS)

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        size = subject.specimen.anatomy.image[1:]
        for frequency in self.frequencies:
            if not bool(self._ring(size, frequency).any()):
                finest = 2 / max(size)
                return (
                    f"No wave of its {size[0]}x{size[1]} images lies in the band around {frequency:g}π; a width of "
                    f"{finest:.3g}π would do."
                )
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [CLEAN, *(f"{frequency:g}" for frequency in self.frequencies)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        strength = self.strength or self._found(bench)

        def one(piece: str) -> Numbers:
            wanted = 0.0 if piece == CLEAN else strength
            frequency = self.frequencies[0] if piece == CLEAN else float(piece)
            numbers = marked(
                subject, bench, lambda batch: self.noisy(subject, batch, frequency, wanted)
            )
            return {**numbers, "strength": torch.tensor(strength, dtype=torch.float64)}

        yield one

    def noisy(self, subject: Subject, batch: Batch, frequency: float, strength: float) -> Tensor:
        """Images as the model takes them, with noise."""
        images = subject.prepare(batch.images)
        if strength == 0:
            return images
        shape = (len(images), *subject.specimen.anatomy.image)
        noise = band_noise(
            shape, frequency * math.pi, strength, width=self._width(shape[2:]), definition=self.definition,
            seed=batch.seed, first=int(batch.rows[0]), device=images.device,
        )  # fmt: skip
        _, std = levels(subject, images)
        return images + (noise / std).to(images.dtype)

    def _found(self, bench: Bench) -> float:
        """The strength at which the first model that can be asked loses `drop`; the same whenever it is looked for."""
        first = next(each for each in bench.setting.subjects if not self.unsuited(each, bench))
        known = (first.fingerprint, bench.data.fingerprint, bench.seed)
        if known not in self._known:
            self._known[known] = self._search(first, bench)
        return self._known[known]

    def _search(self, subject: Subject, bench: Bench) -> float:
        data = bench.data.take(range(min(IMAGES, len(bench.data))))
        fewer = replace(bench, setting=replace(bench.setting, data=data))

        def accuracy(frequency: float, strength: float) -> float:
            numbers = marked(
                subject, fewer, lambda batch: self.noisy(subject, batch, frequency, strength)
            )
            return float(numbers["right"].double().mean())

        low, high, clean = WEAKEST, STRONGEST, accuracy(self.frequencies[0], 0.0)
        lost, strength = 0.0, STRONGEST
        for _ in range(STEPS):
            strength = math.sqrt(low * high)
            lost = clean - float(
                np.mean([accuracy(frequency, strength) for frequency in self.frequencies])
            )
            if abs(lost - self.drop) <= CLOSE:
                break
            low, high = (strength, high) if lost < self.drop else (low, strength)
        if abs(lost - self.drop) > max(2 * CLOSE, 1 / len(data)):
            log.warning(
                "%s loses %.3f to noise of strength %.3g, not %.3f.",
                subject.name,
                lost,
                strength,
                self.drop,
            )
        return strength

    def _ring(self, size: Sequence[int], frequency: float) -> Tensor:
        return ring((size[0], size[1]), frequency * math.pi, self._width(size), self.definition)

    def _width(self, size: Sequence[int]) -> float:
        """In radians: a band that is no whole number of waves wide would hold now more of them and now fewer."""
        wave = 2 / max(size)
        return math.pi * (
            self.width if self.definition == "released" else max(round(self.width / wave), 1) * wave
        )

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        names = [f"{frequency:g}" for frequency in self.frequencies]
        rows: list[dict[str, Any]] = []
        for subject in asked:
            of, nothing = (
                marks(found, subject, bench),
                {"noisy": False, "pictured": False, "overall": False},
            )
            rows.append({"model": subject.name, "frequency": math.nan, **nothing, **of.row(CLEAN)})
            overall = {**nothing, "overall": True}
            rows.append(
                {"model": subject.name, "frequency": math.nan, **overall, **of.mean_row(names)}
            )
            noisy = {"noisy": True, "pictured": subject is asked[0], "overall": False}
            rows += [
                {"model": subject.name, "frequency": float(each), **noisy, **of.row(each)}
                for each in names
            ]
        size = asked[0].specimen.anatomy.image[1:]
        rings = np.stack(
            [self._ring(size, frequency).numpy() for frequency in self.frequencies]
        ) * np.uint8(255)
        strength = float(found[asked[0].name][CLEAN]["strength"])
        lost = [-row["change"] for row in rows if row["overall"]]
        about = {
            "strength": strength,
            "reference": asked[0].name,
            "mean_drop": lost[0],
            "width": self._width(size) / math.pi,
        }
        return Result(self.name, table(rows, COLUMNS), COLUMNS, VIEWS, {"ring": rings}, about)


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "frequency", "quantity", "Centre of the band; empty for clean images and for the mean.", "π"
    ),
    Column("noisy", "category", "Whether the row is about noise of one frequency."),
    Column("pictured", "category", "Whether the ring of the row is among the pictures."),
    Column("overall", "category", "Whether the row is the mean over frequencies."),
    *MEASURES,
)
VIEWS = (
    View(
        "line",
        x="frequency",
        y="change",
        colour="model",
        low="change_low",
        high="change_high",
        references=(Reference(0.0, "clean images"),),
        where="noisy",
        title="What noise of each frequency costs",
        how_to_read="From left to right the same noise gets finer. The deepest point of a line is the frequency that "
        "the model cannot stand; in the paper it lies left for a ViT and right for a ResNet.",
    ),
    View(
        "line",
        x="frequency",
        y="ece",
        colour="model",
        low="ece_low",
        high="ece_high",
        where="noisy",
        title="Calibration under noise of each frequency",
        how_to_read="The mean gap between confidence and accuracy. Where it is large, the model does not notice that "
        "the noise misleads it.",
    ),
    View(
        "tiles",
        x="frequency",
        array="ring",
        where="pictured",
        title="The rings of frequencies that the noise is made of",
        how_to_read="Each picture has the slowest waves in its middle and the fastest at its rim; noise has the waves "
        "that are lit. A ring farther out holds more waves, so the same δ leaves more noise there.",
    ),
)
