"""How much of the image each position of a unit depends on: its effective receptive field.

    g[x] = mean over images and colours of |∂ (s · f[p]) / ∂ image[x]|,    s = ±1 per channel, image
    share[x] = g[x] / Σ g
    radius = Σ share[x] ‖x − p‖

for the feature f at position p of a unit's map; x runs over pixels. Random signs s measure what all
channels depend on; their plain sum may be constant because of a normalisation. Gradients are
normalised to shares before any threshold, so that their size does not matter. Area is the smallest
share of the pixels that contains half (or 99 %) of the gradient. Positions are the centre of the
map and four others.

Raghu et al. 2021 (Fig. 6) find that receptive fields of a ViT are larger than a ResNet's from the
beginning, global in the middle of the network, and keep a strong centre because of skips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, estimated, where
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import Array, bootstrap_weights
from vitreous.measure.subject import Subject
from vitreous.random_numbers import row_generators
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, estimate, tabulate
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
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
"""Height and width of a picture, in pixels."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("label", "order", "Short name of the unit: stage, number and kind."),
    Column("position", "category", "Position in the map: `centre`, or the middle of a quarter."),
    Column("shown", "category", "Whether the row is drawn: the first of `positions` is."),
    Column(
        "area",
        "quantity",
        "Smallest share of the pixels that holds half of the gradient.",
        label="area of one half",
    ),
    Column(
        "area_99",
        "quantity",
        "Smallest share of the pixels that holds 99 % of the gradient.",
        label="area of 99 %",
    ),
    Column("relative", "quantity", "Radius divided by that of a uniform field."),
    *estimate("Mean distance of the gradient from the position.", label="radius", measure="pixels"),
)


@dataclass
class ERF(Analysis):
    """Radius and area of the effective receptive field of every unit."""

    positions: tuple[str, ...] = tuple(PLACES)
    """Positions of the feature map: its centre, and the middles of its quarters."""
    site: str = "out"
    """`out` (output of the unit), `branch` (what it adds) or `after` (sum of skip and branch)."""

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
        positions: Any = self.positions
        self.positions = (positions,) if isinstance(positions, str) else tuple(positions)
        for position in self.positions or ("",):
            if position not in PLACES:
                raise UnknownName("position", position, PLACES, f"There are {', '.join(PLACES)}.")
        if self.site not in ("out", "after", "branch"):
            raise UnknownName("site for a receptive field", self.site, ("out", "after", "branch"))

    def units(self, subject: Subject) -> list[Unit]:
        """Return the units that have a feature map."""
        return [unit for unit in subject.specimen.units if unit.grid is not None]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        return "" if self.units(subject) else "None of its units has a feature map."

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self.positions)

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        size, units = subject.specimen.anatomy.image[1:], self.units(subject)

        def compute(piece: str) -> Numbers:
            maps = [position_distances(piece, _grid(unit), size) for unit in units]
            distances = torch.stack(maps).to(subject.device)
            field = torch.zeros_like(distances)
            total, reach = [], []
            for batch in bench.batches():
                fields = self._fields(subject, units, piece, batch)
                field += fields.sum(1)
                total.append(fields.sum((2, 3)).mT)
                reach.append(torch.einsum("ubhw,uhw->bu", fields, distances))
            areas = [[field_area(unit_field, share) for share in AREAS] for unit_field in field]
            return {
                "total": torch.cat(total),
                "reach": torch.cat(reach),
                "uniform": distances.mean((1, 2)),
                "area": torch.tensor(areas, dtype=torch.float64),
                "pictures": torch.stack(list(map(_picture, field))),
            }

        yield compute

    def _fields(
        self, subject: Subject, units: Sequence[Unit], position: str, batch: Batch
    ) -> Tensor:
        """Return |gradient| per image, mean over colours, (units, b, height, width) in float64.

        One forward pass, and one backward pass for every unit.
        """
        outputs: dict[str, Tensor] = {}

        def keep(unit: Unit, sites: Sites) -> None:
            feature = getattr(sites, self.site)
            if unit not in units or feature is None or feature.grid != unit.grid:
                return
            if feature.raw.requires_grad:
                row, column = grid_position(position, _grid(unit))
                values = feature.map[:, :, row, column]
                signs = random_signs(batch, values.shape[1]).to(values)
                outputs[unit.name] = (values * signs).sum()

        with torch.enable_grad():
            images = subject.prepare(batch.images).requires_grad_()
            subject.specimen.observe(images, ("branch", "after", "out"), each=keep, grad=True)
            shape = (len(units), len(images), *images.shape[2:])
            fields = images.new_zeros(shape, dtype=torch.float64)
            for i, unit in enumerate(units):
                if unit.name in outputs:
                    (gradient,) = torch.autograd.grad(outputs[unit.name], images, retain_graph=True)
                    fields[i] = gradient.double().abs().mean(1)
        return fields

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        weights = bootstrap_weights(range(len(bench.data)), bench.seed)
        rows: list[dict[str, Any]] = []
        pictures: list[Tensor] = []
        left_out: dict[str, dict[str, str]] = {subject.name: {} for subject in subjects}
        for subject in subjects:
            pieces = computed[subject.name]
            for unit in subject.specimen.units:
                if unit.grid is None:
                    left_out[subject.name][unit.name] = "It has no feature map, so no positions."
            for i, unit in enumerate(self.units(subject)):
                if not all(bool(pieces[name]["total"][:, i].sum() > 0) for name in self.positions):
                    left_out[subject.name][unit.name] = "It does not depend on the image there."
                    continue
                label = f"{subject.specimen.anatomy.labels[unit.index]} {unit.kind}"
                for name in self.positions:
                    row = {"label": label, "position": name, "shown": name == self.positions[0]}
                    values = _statistics(pieces[name], i, weights)
                    rows.append({**where(subject, unit), **row, **values})
                pictures.append(pieces[self.positions[0]]["pictures"][i])
        table, replicates = tabulate(rows, COLUMNS)
        arrays = {"maps": torch.stack(pictures).numpy()} if pictures else {}
        views = VIEWS if pictures else VIEWS[:1]
        about = {"left_out": left_out}
        return Result(self.name, table, COLUMNS, views, arrays, about, replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["shown"] & result.table["value"].notna()]
        from_quarter = (rows["depth"] - 0.25).abs()
        early = rows.loc[from_quarter.groupby(rows["model"], sort=False).idxmin()]
        yield rank_models(
            mean_by_model(early),
            "At a quarter of [its|their] depth, {model} [has|have] the largest receptive "
            "[field|fields]: a position depends on pixels {} away on average",
            "{model} the smallest, {}",
            "At a quarter of their depth, receptive fields are tied: {} to {} pixels",
            alone="At a quarter of its depth, a position of {model} depends on pixels {} away on "
            "average",
            paired=pair_models(result, early),
        )


def _statistics(numbers: Numbers, unit: int, weights: Array) -> dict[str, Any]:
    """Return areas and radius of one unit, for one position."""
    bootstrap = torch.from_numpy(weights)
    total, reach = (bootstrap @ numbers[part][:, unit] for part in ("total", "reach"))
    count = weights.shape[1]
    radius = estimated((reach / total).where(total > 0, torch.nan), count)
    area, area_99 = numbers["area"][unit].tolist()
    relative = float(radius.value) / float(numbers["uniform"][unit])
    return {"area": area, "area_99": area_99, "relative": relative, "value": radius, "n": count}


def _grid(unit: Unit) -> Grid:
    assert unit.grid is not None
    return unit.grid


def grid_position(name: str, grid: Grid) -> Grid:
    """Return row and column of a position on a grid; of two in the middle, the lower right."""
    down, across = PLACES[name]
    return int(down * grid[0]), int(across * grid[1])


def position_distances(name: str, grid: Grid, size: Sequence[int]) -> Tensor:
    """Return the distance of every pixel from a position, (height, width) in pixels."""
    steps = [
        torch.arange(pixels, dtype=torch.float64) + 0.5 - (at + 0.5) * pixels / cells
        for at, cells, pixels in zip(grid_position(name, grid), grid, size, strict=True)
    ]
    return torch.hypot(steps[0][:, None], steps[1][None, :])


def random_signs(batch: Batch, channels: int) -> Tensor:
    """Draw random signs (b, channels), which depend on each image's number and the seed."""
    generators = row_generators(batch.seed, batch.rows.tolist())
    drawn = [generator.integers(0, 2, channels) for generator in generators]
    return torch.from_numpy(2 * np.stack(drawn) - 1)


def field_area(field: Tensor, share: float) -> float:
    """Return the smallest share of the pixels that holds this share of the gradient."""
    parts = field.flatten().sort(descending=True).values
    parts = parts / parts.sum().clamp(min=torch.finfo(parts.dtype).tiny)
    return (int((parts.cumsum(0) < share * (1 - 1e-12)).sum()) + 1) / len(parts)


def _picture(field: Tensor) -> Tensor:
    """Scale a field to (SIDE, SIDE), from 0 to 1; a square root makes faint parts visible."""
    small = F.interpolate(field[None, None], (SIDE, SIDE), mode="area")[0, 0]
    return (small / small.max().clamp(min=torch.finfo(small.dtype).tiny)).sqrt().float().cpu()


LINES: dict[str, Any] = {"x": "depth", "colour": "model", "bands": True, "where": "shown"}
VIEWS = (
    View(
        "line", y="value", low="low", high="high",
        title="Radius of the effective receptive field",
        how_to_read="Each point is the centre of a unit's feature map: the mean distance of the "
        "pixels that it depends on. Convolutions widen it step by step; attention can reach "
        "everything at once.",
        **LINES,
    ),
    View(
        "tiles", x="label", facet="model", where="shown", array="maps",
        title="Effective receptive fields",
        how_to_read="Each tile is the whole image; the brighter a pixel, the more the centre of "
        "the unit's map depends on it (square roots of gradients, the largest white). A bright "
        "spot in the middle is what skips carry.",
    ),
    View(
        "line", y="area", references=(Reference(0.5, "uniform"),),
        title="Area that holds half of the gradient",
        how_to_read="The smallest share of the pixels that holds half of what the centre of a "
        "unit's map depends on. A small area with a large radius is a bright centre with faint "
        "surroundings.",
        **LINES,
    ),
)  # fmt: skip
