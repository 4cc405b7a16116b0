"""How much a feature map varies over the image, after every unit (A4.09).

    variance = mean over channels of  Var_{positions} x[position, channel]      (unbiased, prefix tokens left out)

Park and Kim find that attention lowers it and that convolutions and MLPs raise it: attention averages (HDV-29, HDV-30).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vitreous.probes.per_image import PerImage
from vitreous.probes.subject import Subject
from vitreous.results import View, estimate
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["Variance"]


def variance(maps: Tensor) -> Tensor:
    """(b,) of feature maps (b, c, h, w)."""
    return maps.double().flatten(2).var(-1).mean(1)


@dataclass
class Variance(PerImage):
    """How much feature maps vary over the image."""

    name = "variance"
    ids = ("A4.09", "HDV-29", "HDV-30")
    sites = ("after",)
    value = estimate("Variance over positions, mean over channels and images.", label="variance")
    views = (
        View(
            "line",
            x="depth",
            y="value",
            colour="model",
            low="low",
            high="high",
            log=("y",),
            bands=True,
            title="Feature map variance",
            how_to_read="Each point is the stream after a unit. Where the line falls, a unit has averaged over the "
            "image; where it rises, a unit has told positions apart.",
        ),
    )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.grid is None:
            return "It has no feature map: positions are gone." if unit.kind != "head" else ""
        return "Its feature map is a single position." if unit.grid == (1, 1) else None

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.after is not None
        return variance(sites.after.map)
