"""How much of the image each position of a unit depends on: its effective receptive field (A4.26).

    g[x] = mean over images and colours of |∂ (s · f[p]) / ∂ image[x]|,    s = ±1 for each channel, drawn for each image
    share[x] = g[x] / Σ g
    radius = Σ share[x] ‖x − p‖

of the feature f at position p of a unit's map; x runs over pixels. Signs s make it the length of what all channels
depend on, not their plain sum, which a normalisation may hold constant. Shares are taken before any threshold, so
nothing depends on how large gradients are. Area is the smallest share of the pixels that has half (or 99 %) of the
whole. Positions are the centre of the map and four others.

Raghu et al. find that receptive fields of a ViT are larger than a ResNet's from the beginning, global in the middle of
the network, and keep a strong centre, which skips carry (SLC-31).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, interval, where
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject
from vitreous.random_numbers import row_generators
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, estimate
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.observe import Sites

__all__ = ["ERF"]

PLACES = {
    "centre": (0.5, 0.5),
    "upper left": (0.25, 0.25),
    "upper right": (0.25, 0.75),
    "lower left": (0.75, 0.25),
    "lower right": (0.75, 0.75),
}
"""Positions, as shares of the height and width of the map."""
AREAS = (0.5, 0.99)
SIDE = 64
"""Pixels of a picture."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("label", "order", "The unit in short: stage, number and kind."),
    Column(
        "position", "category", "Which position of the map: its centre, or the middle of a quarter."
    ),
    Column(
        "shown", "category", "Whether it is in the pictures: the first of the positions asked for."
    ),
    Column(
        "area",
        "quantity",
        "Smallest share of the pixels that has half of the gradient.",
        label="area of one half",
    ),
    Column(
        "area_99",
        "quantity",
        "Smallest share of the pixels that has 99 % of the gradient.",
        label="area of 99 %",
    ),
    Column(
        "relative",
        "quantity",
        "Radius over that of a field that is the same everywhere in the image.",
    ),
    *estimate("Mean distance of what counts from the position.", label="radius", measure="pixels"),
)


@dataclass
class ERF(Analysis):
    """How much of the image each position of a unit depends on."""

    positions: tuple[str, ...] = tuple(PLACES)
    """Of the feature map, whose field is taken."""
    site: str = "out"
    """What the unit hands on. Or 'branch', what it adds, without what the skip carries; or 'after', their sum."""

    name = "erf"
    ids = ("A4.26", "SLC-31")
    section = Section(
        "representation",
        "How much of the image does a position depend on?",
        "The absolute gradient of one position of a feature map with respect to the pixels: the "
        "effective receptive field.",
        "A ViT's are larger than a ResNet's from the beginning, global by the middle, and keep a "
        "bright centre that skips carry (Raghu et al. 2021, Fig. 6).",
        order=6,
    )
    limit = 32
    marked = False

    def __post_init__(self) -> None:
        given: Any = self.positions
        self.positions = (given,) if isinstance(given, str) else tuple(given)
        if wrong := [each for each in self.positions if each not in PLACES] or [""] * (
            not self.positions
        ):
            raise UnknownName("position", wrong[0], PLACES, f"There are {', '.join(PLACES)}.")
        if self.site not in ("out", "after", "branch"):
            raise UnknownName("site for a receptive field", self.site, ("out", "after", "branch"))

    def units(self, subject: Subject) -> list[Unit]:
        """Those with a map."""
        return [unit for unit in subject.specimen.units if unit.grid is not None]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        return "" if self.units(subject) else "None of its units has a feature map."

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self.positions)

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        size, units = subject.specimen.anatomy.image[1:], self.units(subject)

        def one(piece: str) -> Numbers:
            far = torch.stack([distances(piece, _grid(unit), size) for unit in units]).to(
                subject.device
            )
            whole, total, reach = torch.zeros_like(far), [], []
            for batch in bench.batches():
                fields = self._fields(subject, units, piece, batch)
                whole += fields.sum(1)
                total.append(fields.sum((2, 3)).mT)
                reach.append(torch.einsum("ubhw,uhw->bu", fields, far))
            return {
                "total": torch.cat(total),
                "reach": torch.cat(reach),
                "uniform": far.mean((1, 2)),
                "area": torch.tensor(
                    [[area(each, share) for share in AREAS] for each in whole], dtype=torch.float64
                ),
                "pictures": torch.stack([picture(each) for each in whole]),
            }

        yield one

    def _fields(
        self, subject: Subject, units: Sequence[Unit], position: str, batch: Batch
    ) -> Tensor:
        """(units, b, height, width) |gradient| of each image, mean over colours, in float64: one pass forward, and one
        back for every unit."""
        wanted: dict[str, Tensor] = {}

        def keep(unit: Unit, sites: Sites) -> None:
            feature = getattr(sites, self.site)
            if (
                unit in units
                and feature is not None
                and feature.grid == unit.grid
                and feature.raw.requires_grad
            ):
                row, column = place(position, _grid(unit))
                values = feature.map[:, :, row, column]
                wanted[unit.name] = (values * signs(batch, values.shape[1]).to(values)).sum()

        with torch.enable_grad():
            images = subject.prepare(batch.images).requires_grad_()
            subject.specimen.observe(images, ("branch", "after", "out"), each=keep, grad=True)
            fields = images.new_zeros(
                len(units), len(images), *images.shape[2:], dtype=torch.float64
            )
            for i, unit in enumerate(units):
                if unit.name in wanted:
                    (found,) = torch.autograd.grad(wanted[unit.name], images, retain_graph=True)
                    fields[i] = found.double().abs().mean(1)
        return fields

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        pictures: list[Tensor] = []
        left_out: dict[str, dict[str, str]] = {each.name: {} for each in asked}
        for subject in asked:
            pieces = found[subject.name]
            for unit in subject.specimen.units:
                if unit.grid is None:
                    left_out[subject.name][unit.name] = "It has no feature map: positions are gone."
            for i, unit in enumerate(self.units(subject)):
                if not all(bool(pieces[name]["total"][:, i].sum() > 0) for name in self.positions):
                    left_out[subject.name][unit.name] = "It does not depend on the image there."
                    continue
                rows += [
                    self._row(subject, unit, i, name, pieces[name], bench)
                    for name in self.positions
                ]
                pictures.append(pieces[self.positions[0]]["pictures"][i])
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        arrays = {"maps": torch.stack(pictures).numpy()} if pictures else {}
        views = VIEWS if pictures else VIEWS[:1]
        return Result(self.name, table, COLUMNS, views, arrays, {"left_out": left_out})

    def _row(
        self, subject: Subject, unit: Unit, i: int, name: str, numbers: Numbers, bench: Bench
    ) -> dict[str, Any]:
        data = bench.data
        weights = Batch(torch.arange(len(data)), data.images, data.labels, bench.seed).weights
        total, reach = (weights @ numbers[part][:, i] for part in ("total", "reach"))
        radius, low, high = map(
            float, interval((reach / total).where(total > 0, torch.nan), len(data))
        )
        half, most = numbers["area"][i].tolist()
        label = f"{subject.specimen.anatomy.labels[unit.index]} {unit.kind}"
        return {
            **where(subject, unit), "label": label, "position": name, "shown": name == self.positions[0], "area": half,
            "area_99": most, "relative": radius / float(numbers["uniform"][i]), "value": radius, "low": low,
            "high": high, "n": len(data),
        }  # fmt: skip

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["shown"] & result.table["value"].notna()]
        from_quarter = (rows["depth"] - 0.25).abs()
        early = rows.loc[from_quarter.groupby(rows["model"], sort=False).idxmin()]
        yield rank_models(
            mean_by_model(early),
            "At a quarter of its depth, {model} has the largest receptive field: a position "
            "depends on pixels {} away on average",
            "{model} the smallest, {}",
            "At a quarter of their depth, receptive fields are tied: {} to {} pixels",
        )


def _grid(unit: Unit) -> Grid:
    assert unit.grid is not None
    return unit.grid


def place(name: str, grid: Grid) -> Grid:
    """Row and column of a position on a grid; of two in the middle the lower right."""
    down, across = PLACES[name]
    return int(down * grid[0]), int(across * grid[1])


def distances(name: str, grid: Grid, size: Sequence[int]) -> Tensor:
    """(height, width) how far each pixel lies from the middle of a position, in pixels."""
    steps = [
        torch.arange(pixels, dtype=torch.float64) + 0.5 - (at + 0.5) * pixels / cells
        for at, cells, pixels in zip(place(name, grid), grid, size, strict=True)
    ]
    return torch.hypot(steps[0][:, None], steps[1][None, :])


def signs(batch: Batch, channels: int) -> Tensor:
    """(b, channels) plus and minus one, drawn for each image from its number and the seed."""
    generators = row_generators(batch.seed, batch.rows.tolist())
    drawn = [generator.integers(0, 2, channels) for generator in generators]
    return torch.from_numpy(2 * np.stack(drawn) - 1)


def area(field: Tensor, share: float) -> float:
    """The smallest part of the pixels that has this share of the whole."""
    parts = field.flatten().sort(descending=True).values
    parts = parts / parts.sum().clamp(min=torch.finfo(parts.dtype).tiny)
    return (int((parts.cumsum(0) < share * (1 - 1e-12)).sum()) + 1) / len(parts)


def picture(field: Tensor) -> Tensor:
    """(SIDE, SIDE) from 0 to 1: roots, so that the faint parts are seen too."""
    small = F.interpolate(field[None, None], (SIDE, SIDE), mode="area")[0, 0]
    return (small / small.max().clamp(min=torch.finfo(small.dtype).tiny)).sqrt().float().cpu()


HOW: dict[str, Any] = {"x": "depth", "colour": "model", "bands": True, "where": "shown"}
VIEWS = (
    View(
        "line",
        y="value",
        low="low",
        high="high",
        title="Radius of the effective receptive field",
        how_to_read="Each point is the centre of a unit's feature map: how far away, on average, pixels lie that "
        "change it. Convolutions widen it step by step; attention can reach everything at once.",
        **HOW,
    ),
    View(
        "tiles",
        x="label",
        facet="model",
        where="shown",
        array="maps",
        title="Effective receptive fields",
        how_to_read="Each tile is the whole image; the brighter a pixel, the more the centre of the unit's map depends "
        "on it (roots of gradients, the largest white). A bright spot in the middle is what skips carry.",
    ),
    View(
        "line",
        y="area",
        references=(Reference(0.5, "the same everywhere"),),
        title="Area that has half of the gradient",
        how_to_read="The smallest share of the pixels that makes up half of what the centre of a unit's map depends "
        "on. A small area with a large radius is a bright centre with faint surroundings.",
        **HOW,
    ),
)
