"""What is trained and measured in each slice of the reproduction."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import claims
from vitreous.claims.facts import describe_facts
from vitreous.studies.plan import Cell, PlannedItem, plan
from vitreous.studies.scales import Scale


@dataclass(frozen=True)
class Slice:
    """Which claims, at which scale, and which networks are trained in which part."""

    claims: str
    scale: str
    parts: dict[int, tuple[str, ...]]
    seeds: tuple[int, ...] = (0, 1, 2)


SLICES = {
    1: Slice(
        "HDV-01 HDV-02 HDV-05 HDV-06 HDV-09 HDV-10 HDV-11 HDV-13 HDV-19 HDV-21 HDV-22 HDV-26 "
        "HDV-27 HDV-28 HDV-29 HDV-30 HDV-31 HDV-32 HDV-34 HDV-35 HDV-36 HDV-37 HDV-38 HDV-39 "
        "HDV-40 HDV-41 HDV-42 HDV-49 HDV-50 HDV-51 HDV-54 "
        "SLC-03 SLC-04 SLC-05 SLC-06 SLC-07 SLC-08 SLC-14 SLC-15 SLC-16 SLC-19 SLC-20 "
        "SLC-21 SLC-22 SLC-23 SLC-24 SLC-25 SLC-31 VIT-04 VIT-13 VIT-14",
        "reproduction",
        {
            1: ("vit",),
            2: ("resnet",),
            3: ("vit pool=gap",),
            4: ("swin",),
            5: ("pit",),
            6: ("mixer",),
        },
    ),
    2: Slice(
        "CVT-02 CVT-03 CVT-07 CVT-08 CVT-09 CVT-10 CVT-11 CVT-12 CVT-13 CVT-14 CVT-15 CVT-16 "
        "CVT-29 CVT-30 CVT-31 CVT-34",
        "reproduction",
        {1: ("convit",), 2: ("deit",), 3: ("convit size=s",), 4: ("deit distilled=True",)},
    ),
    3: Slice(
        "HDV-07 HDV-08 HDV-16 HDV-20 HDV-23 HDV-24",
        "reproduction",
        {
            1: ("vit", "vit patch=2", "vit patch=8"),
            2: tuple(f"vit kernel={kernel}" for kernel in (3, 5, 8)),
            3: tuple(f"vit heads={heads} head_dim=64" for heads in (1, 2, 4, 8, 16)),
            4: tuple(f"vit heads={heads} width=fixed" for heads in (1, 2, 4, 8, 16)),
            5: tuple(f"vit heads=3 head_dim={width}" for width in (16, 32, 64, 128)),
            6: (
                "resnet",
                "resnet fraction=0.06",
                "vit fraction=0.06",
                "vit fraction=0.06 schedule=samples",
            ),
        },
        seeds=(0, 1, 2, 3, 4),
    ),
}
MORE = ("fourier", "attention_entropy", "head_diversity", "nonlocality", "filters", "cost")
"""Further probes, which cost little in the same pass."""


def cells_of(which: Slice, part: str, scale: Scale, data: str) -> list[Cell]:
    """The cells of the networks of a part such as `2` or `2:0,1`, with the additional probes.

    Teachers come first; they are trained and not measured.
    """
    number, _, seeds = part.partition(":")
    networks = set(which.parts[int(number)])
    chosen = [int(seed) for seed in seeds.split(",")] if seeds else which.seeds
    about = [claim for claim in claims.every_claim() if claim.id in which.claims.split()]
    cells = [cell for cell in plan(about, scale, data, chosen) if cell.training is not None]
    own = [cell for cell in cells if cell.items and set(map(network_of, cell.items)) <= networks]
    if missing := networks - {network_of(item) for cell in own for item in cell.items}:
        raise SystemExit(f"No claim of this slice reads {', '.join(sorted(missing))}.")
    teachers = {key for cell in own for key in cell.follows} - {cell.key for cell in own}
    return [
        *(replace(cell, items=()) for cell in cells if cell.key in teachers),
        *(replace(cell, items=tuple(map(_extended, cell.items))) for cell in own),
    ]


def network_of(item: PlannedItem) -> str:
    """The facts that tell networks apart: without checkpoint, images and seed."""
    left_out = ("checkpoint", "measured", "beside", "data", "seed")
    return describe_facts(
        {name: value for name, value in item.facts.items() if name not in left_out}
    )


def _extended(item: PlannedItem) -> PlannedItem:
    """A trained network at its end, and before training, is measured by more than claims read."""
    if item.checkpoint not in ("initial", "final") or "measured" in item.facts:
        return item
    return replace(item, results=tuple(sorted({*item.results, *MORE})))
