"""What is seen inside a ViT: its filters, how far attention looks, what the output rests on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, more
from vitreous.claims.dosovitskiy_2021.book import claim
from vitreous.claims.evidence import Look, Rows, Unreadable, reads
from vitreous.claims.measure import DRAWS, Array, spearman
from vitreous.claims.readings import head_distances, unit_distances

STRONGEST = 8
"""Components of the filters that are asked about."""


@reads("filters")
def strongest(rows: Rows, column: str) -> Array:
    """A column of the strongest components of the first filters, which stand first (A4.29)."""
    return Rows(rows.exhibit, rows.result, rows.table.head(STRONGEST)).draws(column)


@claim(
    "VIT-08",
    "The main components of a ViT's first filters look like smooth basis functions: few of them, slow waves, and those "
    "that patches of images consist of.",
    place="Fig. 7 left",
    reported="seen in the pictures of the first 28 components of ViT-L/32",
    study="zoo",
    task="SYN-E",
)
def filters_are_smooth(look: Look) -> Iterator[Part]:
    """On two cores with patches of 8, where there is more to see than in 4 x 4 pixels."""
    patch = 8 if look.sanity else None
    vit, untrained = look("vit", patch=patch), look("vit", patch=patch, moment="start")
    energy = strongest(vit, "value").mean() * STRONGEST
    yield at_least("share of the filters' energy in eight components", energy, 0.7)
    slower = 1 - strongest(vit, "frequency").mean() / strongest(untrained, "frequency").mean()
    yield at_least(
        "how much lower their mean frequency is than before training, as a share", slower, 0.3
    )
    yield at_least("share of them that lies within the main components of patches of the images",
                   strongest(vit, "overlap").mean(), 0.6)  # fmt: skip


@claim(
    "VIT-13",
    "The deeper the layer of a ViT, the farther its attention looks.",
    place="Fig. 7 right, Fig. 11",
    reported="128 images, ViT-L/16: heads differ widely in low layers, and most look far in the second half",
    study="zoo",
    task="SYN-B",
)
def attention_looks_farther_with_depth(look: Look) -> Iterator[Part]:
    distances = unit_distances(look("vit"))
    layers = distances.map(lambda row: np.arange(len(row)))
    yield at_least(
        "rank correlation of layer and mean attention distance", spearman(layers, distances), 0.6
    )


@claim(
    "VIT-14",
    "Some heads look at the whole image already in the lowest layer.",
    place="Fig. 7 right",
    reported="seen in the figure",
    study="zoo",
    task="SYN-B",
)
def some_heads_are_global_at_once(look: Look) -> Iterator[Part]:
    farthest = head_distances(look("vit")).most()
    yield at_least(
        "distance of the farthest head in the first layer, relative to uniform attention",
        farthest,
        0.9,
    )


@claim(
    "VIT-15",
    "A ViT on the maps of a ResNet looks less locally in its lowest layer than a plain one.",
    place="Fig. 7 right, Fig. 11",
    reported="seen in the figure of R50+L/16",
    study="masked",
    task="SYN-B",
)
def hybrids_look_far_from_the_start(look: Look) -> Iterator[Part]:
    hybrid, vit = (head_distances(look(model)).mean() for model in ("hybrid", "vit"))
    yield at_least(
        "mean distance in the first layer relative to uniform attention, hybrid minus ViT",
        hybrid - vit,
        0.1,
    )


@reads("rollout")
def on_the_object(rows: Rows) -> Array:
    """What the output rests on, within the box of the object over the share of the image that the box covers; images
    drawn anew for each reading, the same for two models."""
    table = rows.table[rows.table["tile"].astype(bool)]
    table = table.dropna(subset=["inside"]) if "inside" in table else table.iloc[:0]
    if table.empty:
        raise Unreadable(
            f"rollout of {rows.exhibit.name} does not say what lies inside the boxes of objects"
        )
    chosen = np.random.default_rng(len(table)).integers(len(table), size=(DRAWS, len(table)))
    chosen = np.concatenate([np.arange(len(table))[None], chosen])
    inside, box = (
        table[name].to_numpy(dtype=np.float64)[chosen].mean(1) for name in ("inside", "box")
    )
    return np.asarray(inside / box)


@claim(
    "VIT-16",
    "Attention multiplied through the layers leads to what the class is about.",
    place="Fig. 6, Fig. 14",
    reported="seen in the pictures",
    study="zoo",
    task="SYN-B",
)
def rollout_finds_the_object(look: Look) -> Iterator[Part]:
    """On the embedded task of motifs whatever the study's images, because it knows where the object is. Rollout is
    asked of 256 images there (`images=tuple(range(256))`)."""
    trained, untrained = (
        on_the_object(look("vit", data="SYN-B", moment=each)) for each in (None, "start")
    )
    yield at_least(
        "share of rollout within the object's box over the box's share of the image",
        trained,
        1.5,
        versus=1,
    )
    yield more("the same, trained minus untrained", trained - untrained)
