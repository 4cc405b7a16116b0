"""Base class of probes with one array per image and unit, whose result is the mean over images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.probe import (
    Batch,
    PerImageValues,
    Probe,
    Sums,
    Updates,
    estimated,
    sum_key,
    where,
)
from vitreous.measure.subject import Subject
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Estimate,
    Result,
    View,
    depth_view,
    estimate,
    tabulate,
)
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Site, Sites


class PerImage(Probe):
    """A probe whose `values` are one array per image and unit; NaN if an image has no value."""

    sites: tuple[Site, ...] = ("out",)
    """The sites of a unit that `values` gets (default: its output)."""
    value: ClassVar[tuple[Column, ...]] = estimate("Mean over the images.")
    """The columns value, low, high and n, as `vitreous.results.estimate` makes them."""
    axes: ClassVar[tuple[Column, ...]] = ()
    """One column for each axis of an image's array, such as the head."""
    views: ClassVar[tuple[View, ...]] = ()
    """Default: the value by depth, if there are no axes."""

    @abstractmethod
    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        """Return one array per image, (b, …)."""

    def entries(self, subject: Subject, unit: Unit, axis: int, size: int) -> Sequence[Any]:
        """Entries of the column of an axis (default: 0, 1, 2, …)."""
        return range(size)

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        values = self.values(subject, unit, sites)
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        if len(shape) != 1 + len(self.axes) or shape[0] != len(batch):
            axes = "".join(f", {each.name}" for each in self.axes)
            raise VitreousError(
                f"The probe {self.name!r} returned {shape} as the values of {unit.name!r} for "
                f"{len(batch)} images; it has to be a tensor (images{axes})."
            )
        return {sum_key(subject, unit): PerImageValues(values)}

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        columns = (*UNIT_COLUMNS, *self.axes, *self.value)
        table, replicates = tabulate(self.rows(sums, subjects), columns)
        views = self.views or (() if self.axes else (depth_view(),))
        return Result(self.name, table, columns, views, replicates=replicates)

    def rows(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> list[dict[str, Any]]:
        """One row for every entry of the array of every unit."""
        return [
            row
            for subject in subjects
            for unit in subject.specimen.units
            if sum_key(subject, unit, "sum") in sums
            for row in self._rows(subject, unit, sums)
        ]

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        mean, count = mean_over_images(sums, sum_key(subject, unit))
        shape = mean.value.shape
        entries = [self.entries(subject, unit, axis, size) for axis, size in enumerate(shape)]
        for place in np.ndindex(shape):
            at = {column.name: entries[axis][place[axis]] for axis, column in enumerate(self.axes)}
            yield {**where(subject, unit), **at, "value": mean[place], "n": count[place]}


def sum_over_images(batch: Batch, per_image: Mapping[str, Tensor]) -> Sums:
    """Sum values (b, …) over images: `name/sum` without NaN, and `name/count` of the others.

    Both have the shape (1 + REPEATS, …). All names on a device are summed in two products.
    """
    sums: Sums = {}
    for device in dict.fromkeys(values.device for values in per_image.values()):
        on_device = {name: v for name, v in per_image.items() if v.device == device}
        columns = [v.detach().double().reshape(len(batch), -1) for v in on_device.values()]
        flat, widths = torch.cat(columns, 1), [column.shape[1] for column in columns]
        for what, totals in (
            ("sum", batch.total(flat.nan_to_num(0.0))),
            ("count", batch.total(~flat.isnan())),
        ):
            parts = zip(on_device.items(), totals.split(widths, 1), strict=True)
            sums |= {
                f"{name}/{what}": part.reshape(-1, *values.shape[1:])
                for (name, values), part in parts
            }
    return sums


def mean_over_images(sums: Mapping[str, Tensor], name: str) -> tuple[Estimate, np.ndarray]:
    """Mean over the images that have a value, with its interval, and the number of such images."""
    total, count = (sums[f"{name}/{part}"].numpy() for part in ("sum", "count"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return estimated(total / count, count[0]), count[0].astype(np.int64)
