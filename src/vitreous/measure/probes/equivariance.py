"""Shift equivariance of the features after each unit.

The image is shifted around its edges by s pixels, down and to the right, and passes again. If T
shifts and m is the map after a unit, then

    value = ‖m(T x) - T m(x)‖ / sqrt(‖m(T x) - its mean‖² + ‖m(x) - its mean‖²),   mean over images
    still = the same with m(x) where it was

means taken over positions, so that an offset does not flatter. 0: the map moves along exactly; 1:
the two maps are as far apart as unrelated ones. Convolutions that wrap around are exact, padding
breaks it at the edges, and position embeddings break it everywhere. Once positions are gone
(pooling, class token, output) nothing can move along: both are then how far the output changes,
deviations taken from the mean over channels, and 0 is invariance.

A unit with a grid of h x w on an image of H x W moves s h / H positions. Where that is no whole
number the unit has no exact answer and no row. By default s is the smallest shift that is whole for
all of a model's units: one patch of a ViT, 32 pixels of a ResNet.

Few images answer this (`images`, the first of the set), because they have to pass once more for
every shift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.measure.per_image import mean_over_images, sum_over_images
from vitreous.measure.probe import Batch, Probe, Sums, sum_key, where
from vitreous.measure.probes.variance import variance
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, depth_view, estimate, tabulate
from vitreous.results.comparing import bold, mean_by_model, pair_models, rank_models
from vitreous.results.words import format_estimate, join_words
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.observe import Feature, Sites

__all__ = ["Equivariance"]

TOGETHER = 16
"""Images, shifted ones included, that pass at a time."""


def apart(one: Tensor, other: Tensor) -> Tensor:
    """(b,) distance of maps (b, c, h, w) as a share of that of unrelated ones; NaN where both are
    constant."""
    exact = torch.promote_types(one.dtype, torch.float32)
    one, other = one.to(exact), other.to(exact)
    freedom = (one.shape[2] * one.shape[3] - 1) * one.shape[1]
    spread = freedom * (variance(one) + variance(other))
    between = (one - other).square().sum((1, 2, 3))
    return (between / spread).sqrt().where(spread > 0, torch.nan)


def cells(grid: Grid, image: Grid, shift: int) -> Grid | None:
    """By how many positions a map moves when the image moves by `shift` pixels; None if by no whole
    number."""
    moved = [shift * places / side for places, side in zip(grid, image, strict=True)]
    return (int(moved[0]), int(moved[1])) if all(each.is_integer() for each in moved) else None


def whole_shift(grids: Sequence[Grid], image: Grid) -> int:
    """The smallest shift that moves every grid by whole positions; grids that only the whole image
    moves stay out."""
    steps = {
        side // math.gcd(side, places)
        for grid in grids
        for places, side in zip(grid, image, strict=True)
    }
    steps = {step for step in steps if step < min(image)}
    together = math.lcm(*steps)
    return together if together < min(image) else max(steps)


@dataclass
class Equivariance(Probe):
    """Shift equivariance of features."""

    name = "equivariance"
    ids = ("A4.35",)
    section = Section(
        "output",
        "What happens when the image is shifted?",
        "The image is shifted, and the features should shift with it; the output should not "
        "change at all.",
        order=4,
    )
    columns = (
        *UNIT_COLUMNS,
        Column("shift", "order", "Shift of the image, down and to the right.", "pixels"),
        Column(
            "moved",
            "quantity",
            "Positions that the map has to move; empty for units without a map.",
        ),
        Column("still", "quantity", "Error against the map of the unshifted image, left in place."),
        Column("still_low", "quantity", "Lower end of the 95 % interval of `still`."),
        Column("still_high", "quantity", "Upper end of the 95 % interval of `still`."),
        *estimate(
            "Error of the shifted map: 0 moves along exactly, 1 is as far as unrelated maps.",
            label="equivariance error",
        ),
    )
    views = (
        depth_view(
            facet="shift",
            references=(Reference(1.0, "unrelated maps"),),
            title="Do features move along with the image?",
            how_to_read="The image is shifted cyclically. Each point is the distance between the "
            "map of the shifted image and the shifted map of the image. At 0 features move along "
            "exactly, at 1 the two maps are unrelated.",
        ),
        depth_view(
            "still",
            facet="shift",
            references=(Reference(1.0, "unrelated maps"),),
            title="Do features stay where they are?",
            how_to_read="The same, with the map compared as it is. Near zero a unit ignores "
            "where in the image something is, as the output should.",
        ),
    )
    images: int = 8
    """Number of images to shift, from the first."""
    shifts: tuple[int, ...] = ()
    """Shifts in pixels (default: the smallest that moves all grids of a model by whole
    positions)."""

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        maps = result.table.dropna(subset=["moved", "value"])
        if maps["shift"].nunique() == 1:
            yield rank_models(
                mean_by_model(maps),
                "Features of {model} follow the image least exactly, with an error of {}, mean "
                "over units",
                "those of {model} most exactly, {}",
                "{models} are tied on how exactly features follow the image, with errors of {} to "
                "{}",
                alone="Features of {model} follow the image with an error of {}, mean over units",
                paired=pair_models(result, maps),
            )
            return
        errors = [
            f"{format_estimate(*mean)} in {bold(model)} after {shift} pixels"
            for shift, rows in maps.groupby("shift", sort=True, observed=True)
            for model, mean in mean_by_model(rows).items()
        ]
        if errors:
            yield (
                "Features follow the image with these errors, mean over units: "
                f"{join_words(errors)}."
            )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.grid is None or any(
            self._cells(subject, unit.grid, shift) for shift in self._shifts(subject)
        ):
            return ""
        size = "x".join(map(str, subject.specimen.anatomy.image[1:]))
        shifts = ", ".join(map(str, self._shifts(subject)))
        grid = f"{unit.grid[0]} x {unit.grid[1]}"
        return (
            f"A shift of {shifts} pixels of {size} moves its grid of {grid} by no whole number of "
            "positions."
        )

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        """Here, because shifted images have to pass through one model at a time."""
        chosen = (batch.rows < self.images).nonzero().flatten()
        shifts = self._shifts(subject)
        found: dict[str, list[Tensor]] = {}
        for part in chosen.split(max(TOGETHER // (1 + len(shifts)), 1)) if len(chosen) else ():
            images = batch.prepared(subject)[part]
            moved = [images, *(images.roll((shift, shift), (2, 3)) for shift in shifts)]

            def each(unit: Unit, sites: Sites) -> None:
                assert sites.out is not None
                for name, value in self._compare(subject, unit, sites.out).items():
                    found.setdefault(name, []).append(value)

            subject.specimen.observe(torch.cat(moved), ("out",), each=each)
        few = Batch(
            batch.rows[chosen],
            batch.images[chosen],
            batch.labels[chosen],
            batch.seed,
            batch.full_shard,
        )
        return sum_over_images(few, {name: torch.cat(parts) for name, parts in found.items()})

    def _compare(self, subject: Subject, unit: Unit, after: Feature) -> dict[str, Tensor]:
        """Errors of a unit for each shift that suits it; its features are of images as they are,
        then shifted."""
        shifts = self._shifts(subject)
        if (
            after.grid is None and after.raw[0].numel() != unit.channels
        ):  # positions that could not be told apart
            return {}
        maps = after.map if after.grid is not None else after.raw.flatten(1)[:, None, None]
        plain, *shifted = maps.chunk(1 + len(shifts))
        found = {}
        for shift, there in zip(shifts, shifted, strict=True):
            by = self._cells(subject, after.grid, shift) if after.grid is not None else (0, 0)
            if by is not None:
                name = sum_key(subject, unit, str(shift))
                found[f"{name}/still"] = apart(there, plain)
                found[f"{name}/along"] = (
                    apart(there, plain.roll(by, (2, 3))) if any(by) else found[f"{name}/still"]
                )
        return found

    def _shifts(self, subject: Subject) -> tuple[int, ...]:
        grids = [unit.grid for unit in subject.specimen.units if unit.grid is not None]
        _, height, width = subject.specimen.anatomy.image
        return tuple(self.shifts) or (whole_shift(grids, (height, width)),)

    def _cells(self, subject: Subject, grid: Grid, shift: int) -> Grid | None:
        _, height, width = subject.specimen.anatomy.image
        return cells(grid, (height, width), shift)

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows = [
            row
            for subject in subjects
            for unit in subject.specimen.units
            for shift in self._shifts(subject)
            for row in self._rows(subject, unit, shift, sums)
        ]
        table, replicates = tabulate(rows, self.columns)
        return Result(self.name, table, self.columns, self.views, replicates=replicates)

    def _rows(
        self, subject: Subject, unit: Unit, shift: int, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        name = sum_key(subject, unit, str(shift))
        if f"{name}/along/sum" not in sums:
            return
        along, count = mean_over_images(sums, f"{name}/along")
        still, _ = mean_over_images(sums, f"{name}/still")
        by = self._cells(subject, unit.grid, shift) if unit.grid is not None else None
        yield {
            **where(subject, unit),
            "shift": shift, "moved": math.nan if by is None else float(by[0]),
            "still": still, "value": along, "n": int(count),
        }  # fmt: skip
