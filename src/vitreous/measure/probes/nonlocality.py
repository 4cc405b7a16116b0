"""Mean attention distance of each layer, in patches (the nonlocality of ConViT).

    D_loc = 1/L Σ_ij A_ij ‖δ_ij‖,   δ_ij in patches of the layer's own grid

for every head, and as the mean over the heads of a layer. Each layer gets its own input; the
published logger gives the patch embedding to all layers. This is the attention distance in another
unit. So tokens without a position are treated in the same way, and keys of a coarser grid have the
position of the centre of their patches. Uniform attention gives 2.01 on 4x4 patches, 3.61 on 7x7,
4.14 on 8x8, 7.28 on 14x14 and 8.33 on 16x16.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.measure.probes.attention_distance import AttentionDistance
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import View, depth_view, estimate
from vitreous.specimen.observe import AttentionMap

__all__ = ["Nonlocality"]


@dataclass
class Nonlocality(AttentionDistance):
    """Mean attention distance of layers, in patches."""

    name = "nonlocality"
    ids = ("A4.19", "CVT-10", "CVT-11", "CVT-12", "X-20")
    section = Section(
        "attention",
        "How far do layers attend?",
        "The same distance in patches, mean over the heads of a layer.",
        "Uniform attention gives 7.28 patches on a grid of 14×14 and 4.14 on 8×8. ConViT begins "
        "at 2.9, rises during training, and ends below DeiT (d'Ascoli et al. 2021, Fig. 5).",
        order=2,
    )
    value = estimate(
        "Attention-weighted distance in patches, mean over queries and images.",
        label="nonlocality",
        measure="patches",
    )
    views = (
        depth_view(
            "mean",
            title="Nonlocality of layers",
            how_to_read="Each point is an attention layer: how many patches away its heads look "
            "on average. A convolution stays low; at the dashed line attention is spread over the "
            "whole image.",
        ),
        View(
            "scatter",
            x="depth",
            y="value",
            colour="model",
            low="low",
            high="high",
            bands=True,
            title="Nonlocality of heads",
            how_to_read="Each point is a head. Where the points of a layer lie far apart, it has "
            "local and global heads side by side.",
        ),
    )

    def extent(self, subject: Subject, attention: AttentionMap) -> tuple[float, float]:
        """Height and width that the grid covers: its own, so distances are in patches."""
        return attention.query_grid
