"""Shift equivariance of the features after each unit.

The image is shifted cyclically by s pixels, down and to the right, and runs through the model
again. With the shift T and the map m after a unit,

    value = ‖m(T x) - T m(x)‖ / sqrt(‖m(T x) - its mean‖² + ‖m(x) - its mean‖²),   mean over images
    still = the same with m(x) not shifted

Means are over positions, so that a common offset does not lower the value. At 0 the map moves
exactly with the image; at 1 the two maps are as different as unrelated ones. Circular convolutions
are exact; padding breaks equivariance at the edges, and position embeddings break it everywhere.
Without positions (after pooling, class token, output) nothing can move. Then both numbers are the
change of the output, relative to its deviation from the mean over channels, and 0 is invariance.

On an image of H x W, a unit with a grid of h x w moves by s h / H positions. Units for which that
is not an integer have no row. By default s is the smallest shift that is an integer for all units
of a model: one patch of a ViT, 32 pixels of a ResNet.

Only the first `images` images are used, because they run once more for every shift.
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
from vitreous.results.comparing import list_by_model, mean_by_model, pair_models, rank_models
from vitreous.results.words import format_estimate, plural
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.observe import Feature, Sites

__all__ = ["Equivariance"]

BATCH = 16
"""Number of images per pass, including shifted ones."""


def relative_distance(first: Tensor, second: Tensor) -> Tensor:
    """Distance (b,) of maps (b, c, h, w), relative to that of unrelated maps.

    NaN if both maps are constant.
    """
    dtype = torch.promote_types(first.dtype, torch.float32)
    first, second = first.to(dtype), second.to(dtype)
    freedom = (first.shape[2] * first.shape[3] - 1) * first.shape[1]
    spread = freedom * (variance(first) + variance(second))
    squared = (first - second).square().sum((1, 2, 3))
    return (squared / spread).sqrt().where(spread > 0, torch.nan)


def shift_in_cells(grid: Grid, image: Grid, shift: int) -> Grid | None:
    """Rows and columns by which a map moves if the image moves by `shift` pixels.

    None if they are not integers.
    """
    moved = [shift * cells / side for cells, side in zip(grid, image, strict=True)]
    return (int(moved[0]), int(moved[1])) if all(n.is_integer() for n in moved) else None


def smallest_shift(grids: Sequence[Grid], image: Grid) -> int:
    """The smallest shift in pixels that moves every grid by an integer number of cells.

    Grids that only a shift by the whole image would move so are ignored.
    """
    steps = {
        side // math.gcd(side, cells)
        for grid in grids
        for cells, side in zip(grid, image, strict=True)
    }
    steps = {step for step in steps if step < min(image)}
    shift = math.lcm(*steps)
    return shift if shift < min(image) else max(steps)


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
        errors: dict[str, float] = {}
        texts: dict[str, str] = {}
        for shift, rows in maps.groupby("shift", sort=True, observed=True):
            for model, mean in mean_by_model(rows).items():
                error = f"{format_estimate(*mean)} after {plural(int(str(shift)), 'pixel')}"
                errors[model] = max(mean.mean, errors.get(model, 0.0))
                texts[model] = f"{texts[model]}, {error}" if model in texts else error
        if errors:
            yield (
                "Features follow the image with these errors, mean over units: "
                f"{list_by_model(texts, errors)}."
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
        """Run the shifted images through the model and compare the features of all units."""
        chosen = (batch.rows < self.images).nonzero().flatten()
        shifts = self._shifts(subject)
        errors: dict[str, list[Tensor]] = {}
        for part in chosen.split(max(BATCH // (1 + len(shifts)), 1)) if len(chosen) else ():
            images = batch.prepared(subject)[part]
            moved = [images, *(images.roll((shift, shift), (2, 3)) for shift in shifts)]

            def compare(unit: Unit, sites: Sites) -> None:
                assert sites.out is not None
                for name, value in self._compare(subject, unit, sites.out).items():
                    errors.setdefault(name, []).append(value)

            subject.specimen.observe(torch.cat(moved), ("out",), each=compare)
        chosen_batch = Batch(
            batch.rows[chosen],
            batch.images[chosen],
            batch.labels[chosen],
            batch.seed,
            batch.full_shard,
        )
        joined = {name: torch.cat(parts) for name, parts in errors.items()}
        return sum_over_images(chosen_batch, joined)

    def _compare(self, subject: Subject, unit: Unit, after: Feature) -> dict[str, Tensor]:
        """Errors of a unit for each shift that moves it by an integer number of cells.

        `after` is the feature of the original images, then of those with each shift.
        """
        shifts = self._shifts(subject)
        if after.grid is None and after.raw[0].numel() != unit.channels:
            return {}  # there are positions, but they are unknown
        maps = after.map if after.grid is not None else after.raw.flatten(1)[:, None, None]
        original, *shifted = maps.chunk(1 + len(shifts))
        errors = {}
        for shift, moved in zip(shifts, shifted, strict=True):
            by = self._cells(subject, after.grid, shift) if after.grid is not None else (0, 0)
            if by is None:
                continue
            name = sum_key(subject, unit, str(shift))
            still = relative_distance(moved, original)
            errors[f"{name}/still"] = errors[f"{name}/along"] = still
            if any(by):
                errors[f"{name}/along"] = relative_distance(moved, original.roll(by, (2, 3)))
        return errors

    def _shifts(self, subject: Subject) -> tuple[int, ...]:
        grids = [unit.grid for unit in subject.specimen.units if unit.grid is not None]
        _, height, width = subject.specimen.anatomy.image
        return tuple(self.shifts) or (smallest_shift(grids, (height, width)),)

    def _cells(self, subject: Subject, grid: Grid, shift: int) -> Grid | None:
        _, height, width = subject.specimen.anatomy.image
        return shift_in_cells(grid, (height, width), shift)

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
