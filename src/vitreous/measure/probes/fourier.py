"""Fourier spectrum of the feature map after each unit.

    amplitude(f) = |sum_{y,x} m[y,x] exp(-2πi (f_y y / h + f_x x / w))|
    log(f)       = mean over channels of ln(amplitude(f) + 1e-6)
    value(f)     = log(f) - log(0), mean over images

for f on the half diagonal from the centre of the spectrum to its corner, without prefix tokens, as
in Park and Kim. Frequencies are true ones: for a map of 14 x 14 the half diagonal ends at 12/14 =
0.857 π, which the paper's axis calls 1.0 π. Attention lowers the last value, MLPs and convolutions
raise it.

The k-th entry of the half diagonal is a wave of k cycles per image on a square map of any
resolution. So the change by a unit (`change`) compares equal numbers of cycles before and after it,
and `common` marks the highest number of cycles that all maps have. This row does not depend on the
resolution of a map.

Only the half diagonal is computed, as one product with a few waves: 8 times faster than `rfft2` and
20 times faster than `fft2`. The mean is subtracted before and added to frequency 0 afterwards, so
that float32 suffices for features far from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from vitreous.measure.per_image import mean_over_images
from vitreous.measure.probe import Batch, PerImageValues, Probe, Updates, sum_key, where
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Reference,
    Result,
    View,
    depth_view,
    estimate,
    tabulate,
)
from vitreous.results.comparing import count_changes
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.layout import Centred
from vitreous.specimen.observe import Feature, Sites

__all__ = ["Fourier"]

Bin = tuple[int, int]
"""Cycles per image in vertical and horizontal direction."""


def half_diagonal(grid: Grid, nyquist: bool = False) -> tuple[Bin, ...]:
    """The bins of the spectrum from frequency 0 towards the corner (π, π).

    The corner itself, which exists for even sides, is included if `nyquist`. On a map that is not
    square, bins nearest to the diagonal are used.
    """
    short = min(grid)
    count = 1 + (short // 2 if nyquist else (short - 1) // 2)
    return tuple((round(k * grid[0] / short), round(k * grid[1] / short)) for k in range(count))


def frequency(bin_: Bin, grid: Grid) -> float:
    """The frequency of a bin in π: the mean of both directions, equal on a square map."""
    return bin_[0] / grid[0] + bin_[1] / grid[1]


@cache
def diagonal_waves(
    grid: Grid, bins: tuple[Bin, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The waves of some bins on a grid, (2 * bins, h*w): cosines, then sines."""
    down, across = (torch.arange(side, dtype=torch.float64) / side for side in grid)
    cycles = torch.tensor(bins, dtype=torch.float64)[:, :, None, None]
    angles = 2 * torch.pi * (cycles[:, 0] * down[:, None] + cycles[:, 1] * across).flatten(1)
    return torch.cat([angles.cos(), angles.sin()]).to(device, dtype)


def log_amplitude(maps: Centred, bins: tuple[Bin, ...]) -> Tensor:
    """Log amplitude (b, bins) of feature maps, mean over channels; NaN for constant maps.

    The first bin has to be frequency 0.
    """
    real, imaginary = (
        diagonal_waves(maps.grid, bins, maps.tokens.dtype, maps.tokens.device) @ maps.tokens
    ).chunk(2, 1)
    real[:, :1] += maps.grid[0] * maps.grid[1] * maps.means
    amplitude = (real.square() + imaginary.square()).sqrt()
    return (amplitude + 1e-6).log().mean(2).masked_fill((maps.variance == 0)[:, None], torch.nan)


@dataclass
class Fourier(Probe):
    """Fourier spectrum of feature maps."""

    name = "fourier"
    ids = ("A4.07", "HDV-26", "HDV-27", "HDV-28", "HDV-29", "HDV-30", "HDV-31", "X-29", "X-30")
    section = Section(
        "frequency",
        "Which units blur, which sharpen?",
        "The amplitude of high frequencies in a feature map, relative to that of its mean, after "
        "each unit. Attention should lower it, convolutions and MLPs raise it.",
        "In a ViT-Ti on ImageNet attention lowers the amplitude at 1.0π in 9 of 12 blocks; the "
        "stream ends at −2.3, below the −1.8 it began with. A ResNet-50 rises from −6.6 to −1.0 "
        "(Park & Kim 2022, Fig. 2 and 8).",
        order=1,
        headline=5,
        key=4,
    )
    sites = ("before", "out")
    columns = (
        *UNIT_COLUMNS,
        Column(
            "cycles", "order", "Cycles per image, along the shorter side.", label="cycles per image"
        ),
        Column("frequency", "quantity", "Frequency on the grid of the unit.", "π"),
        Column("highest", "category", "Whether it is the highest frequency of the map."),
        Column(
            "common",
            "category",
            "Whether it is the highest number of cycles per image that all maps share.",
        ),
        Column(
            "change",
            "quantity",
            "Value after the unit minus that before it, at equal cycles per image.",
        ),
        Column("change_low", "quantity", "Lower end of the 95 % interval of the change."),
        Column("change_high", "quantity", "Upper end of the 95 % interval of the change."),
        *estimate(
            "Log amplitude minus that of frequency 0, mean over channels and images.",
            label="Δ log amplitude",
        ),
    )
    views = (
        depth_view(
            where="highest",
            title="Amplitude at the highest frequency of each map",
            how_to_read="Each point is the finest wave of the map after a unit. Where the line "
            "falls, a unit has smoothed; where maps become coarser, the finest wave is another "
            "one, and a jump says little.",
        ),
        View(
            "scatter",
            x="depth",
            y="change",
            colour="kind",
            facet="model",
            low="change_low",
            high="change_high",
            where="highest",
            references=(Reference(0.0, "no change"),),
            title="What each unit does to the highest frequency",
            how_to_read="Each point is a unit: below zero it has smoothed, above it has "
            "sharpened, at equal cycles per image. In the paper's ViT-Ti on ImageNet, attention "
            "comes to -0.10 and MLPs to +0.11 in blocks 4 to 12.",
        ),
        View(
            "line",
            x="frequency",
            y="value",
            colour="depth",
            facet="model",
            title="Fourier spectrum of feature maps",
            how_to_read="Each line is the map after a unit, coloured by depth: how strong waves of "
            "each frequency are, compared with the mean of the map. The more a line falls, the "
            "smoother the map.",
        ),
        depth_view(
            where="common",
            title="Amplitude at the same frequency at every depth",
            how_to_read="Each point is the amplitude at the highest number of cycles per image "
            "that all maps can hold. Unlike the highest frequency of a map, it means the same on "
            "fine and on coarse maps.",
        ),
    )
    nyquist: bool = False
    """Include the corner of the spectrum, 1.0π, which maps with even sides have and the paper
    leaves out."""

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.grid is None:
            return "It has no feature map: positions are gone." if unit.kind != "head" else ""
        if len(half_diagonal(unit.grid, self.nyquist)) < 2:
            return f"Its feature map of {unit.grid[0]} x {unit.grid[1]} holds no wave."
        return None

    def start_shard(self) -> None:
        self._last: tuple[Tensor, tuple[Bin, ...], Tensor] | None = None
        """The previous unit's map (often this one's input), its bins and log amplitude."""

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        assert unit.grid is not None
        assert sites.out is not None
        bins = half_diagonal(unit.grid, self.nyquist)
        before = self._before(unit, sites.before, bins)
        after = log_amplitude(sites.out.centred, bins)
        self._last = (sites.out.raw, bins, after)
        values = after - after[:, :1]
        change = torch.full_like(values, torch.nan)
        if before is not None:
            shared = before.shape[1]
            change[:, :shared] = values[:, :shared] - (before - before[:, :1])
        name = sum_key(subject, unit)
        return {name: PerImageValues(values), f"{name}/change": PerImageValues(change)}

    def _before(self, unit: Unit, feature: Feature | None, bins: tuple[Bin, ...]) -> Tensor | None:
        """Log amplitude of a unit's input, at the bins that it has too; None for a stem.

        The stem's input is the image, whose channels are colours.
        """
        if feature is None or feature.grid is None or unit.kind == "stem":
            return None
        ends = [(side // 2 if self.nyquist else (side - 1) // 2) for side in feature.grid]
        shared = tuple(bin_ for bin_ in bins if bin_[0] <= ends[0] and bin_[1] <= ends[1])
        if (
            self._last is not None
            and feature.views(self._last[0])
            and self._last[1][: len(shared)] == shared
        ):
            return self._last[2][:, : len(shared)]
        return log_amplitude(feature.centred, shared)

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Updates:
        self._last = None
        return {}

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        measured = [
            (s, u) for s in subjects for u in s.specimen.units if sum_key(s, u, "sum") in sums
        ]
        counts = [
            len(half_diagonal(unit.grid, self.nyquist))
            for _, unit in measured
            if unit.grid is not None
        ]
        common = min(counts, default=1) - 1
        rows = [
            row for subject, unit in measured for row in self._rows(subject, unit, sums, common)
        ]
        table, replicates = tabulate(rows, self.columns)
        return Result(self.name, table, self.columns, self.views, replicates=replicates)

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor], common: int
    ) -> Iterator[dict[str, Any]]:
        assert unit.grid is not None
        value, count = mean_over_images(sums, sum_key(subject, unit))
        change, _ = mean_over_images(sums, sum_key(subject, unit, "change"))
        bins = half_diagonal(unit.grid, self.nyquist)
        for k, bin_ in enumerate(bins):
            yield {
                **where(subject, unit),
                "cycles": min(bin_), "frequency": frequency(bin_, unit.grid),
                "highest": k == len(bins) - 1, "common": k == common,
                "change": change[k], "value": value[k], "n": count[k],
            }  # fmt: skip

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["highest"]]
        yield count_changes(
            rows, "change_low", "change_high", 0.0, "weaken", "high-frequency detail", "strengthen"
        )
