"""What more data, and training on other data first, do to representations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from vitreous.claims.claim import Part, at_least, more, noted
from vitreous.claims.evidence import Look, Rows, reads
from vitreous.claims.facts import told
from vitreous.claims.measure import Array, Measure, beside
from vitreous.claims.raghu_2021.book import claim, few_images, larger
from vitreous.claims.raghu_2021.pairs import ENDS, handed_on
from vitreous.claims.raghu_2021.probes import area, probe
from vitreous.claims.readings import accuracy

QUARTER = 0.25
KEPT = 5 / 12
"""Five of twelve blocks."""


@reads("similarity_to")
def similarity(rows: Rows, low: float, high: float) -> Array:
    """CKA of units with those of the same name in the model beside, mean over units between two depths."""
    table = rows.table
    inner = (table["site"] == handed_on(table)) & ~table["kind"].isin(ENDS) & table["value"].notna()
    chosen = inner & table["depth"].between(low, high)
    return Rows(rows.exhibit, rows.result, table[chosen]).draws().mean(-1)


def _part_of(share: float) -> dict[str, Any]:
    """Trained on a share of the images, seeing as many in all."""
    return {"fraction": share, "schedule": "samples"}


@claim(
    "SLC-26",
    "A ViT learns its lower layers from a tenth of the data and less; upper layers take much more, of a larger model "
    "above all.",
    place="Fig. 12",
    reported="lower blocks are very similar to those of the model with all data even at 3 %, upper ones are not, and "
    "less so for L/16 than for B/32",
    study="data",
    task="SYN-B",
    large=True,
)
def lower_layers_need_little_data(look: Look) -> Iterator[Part]:
    """Compared with a model that was trained on all data from another start, so that nothing is alike because it began
    alike; a further training on all data shows how alike two of them are."""

    def ends(size: dict[str, str], **facts: Any) -> tuple[Measure, Measure]:
        seen = look("vit", **size, **facts, beside=told({"model": "vit", **size, "seed": 1}))
        return similarity(seen, 0, QUARTER), similarity(seen, 1 - QUARTER, 1)

    low, high = ends({}, **_part_of(0.1))
    yield at_least("CKA of the first quarter with the model of all data, trained on 10 %", low, 0.8)
    yield at_least("the same minus that of the last quarter", low - high, 0.2)
    if not look.sanity:
        larger_low, larger_high = ends({"size": "s"}, **_part_of(0.1))
        yield more(
            "fall from first to last quarter, larger minus small ViT",
            (larger_low - larger_high) - (low - high),
        )
    fewest, two = ends({}, **few_images(look))[0], ends({})
    yield noted("CKA of the first quarter with the fewest images", fewest)
    yield noted("CKA of the first quarter of two trainings on all data", two[0])
    yield noted("CKA of the last quarter of two trainings on all data", two[1])


@claim(
    "SLC-27",
    "More data gives far better features in the middle of a ViT, not only at its end.",
    place="Fig. 13a",
    reported="probes in the middle of L/16 and H/14 are about 30 points better with JFT than with ImageNet",
    study="data",
    task="SYN-B",
    large=True,
)
def data_makes_the_middle(look: Look) -> Iterator[Part]:
    def gain(at: str | int) -> Measure:
        few, all_images = (look("vit", **larger(look), **facts) for facts in (few_images(look), {}))
        return probe(all_images, "mean over positions", at) - probe(few, "mean over positions", at)

    yield at_least(
        "accuracy of probes in the middle, all data minus few, in points",
        gain("middle"),
        10,
        paper=30,
    )
    yield at_least(
        "the same minus that after the first block, in points", gain("middle") - gain(1), 5
    )


@claim(
    "SLC-28",
    "Features inside a large ViT tell classes better than those inside a ResNet.",
    place="Fig. 13b",
    reported="probes of ViTs lie above those of ResNets, all trained on JFT",
    study="data",
    large=True,
)
def vit_has_better_features_inside(look: Look) -> Iterator[Part]:
    """To be expected with very much data only: on a small data set the reverse is an effect of its size."""
    ahead = area(look("vit", size="s")) - area(look("resnet"))
    yield more("accuracy of probes, mean over depth, larger ViT minus ResNet, in points", ahead)


@claim(
    "SLC-29",
    "The more data a ViT was trained on, the better classes can be read off its features.",
    place="Fig. 13",
    reported="more data, better transfer",
    study="data",
    task="SYN-B",
)
def more_is_better(look: Look) -> Iterator[Part]:
    """Probes of the class token at the end, 10 images a class."""
    shares = [few_images(look), _part_of(0.1), _part_of(0.3), {}]
    found = [probe(look("vit", **facts), "class token") for facts in shares]
    steps = beside([later - earlier for earlier, later in pairwise(found)])
    yield more(
        "smallest gain of probes from one amount of data to the next, in points", steps.least()
    )
    yield noted("gain from the fewest images to all, in points", found[-1] - found[0])


@claim(
    "SLC-30",
    "Fitting a new head alone is far worse than fine-tuning the whole model.",
    place="Section 5",
    reported="a remark",
    study="masked",
    task="SYN-E",
)
def the_whole_is_tuned(look: Look) -> Iterator[Part]:
    whole, head = (
        accuracy(look("vit", pretrained="labels", tuned=tuned)) for tuned in (None, "head")
    )
    yield at_least(
        "accuracy of fine-tuning everything minus the head only, in points", whole - head, 5
    )


@claim(
    "SLC-32",
    "Fine-tuning changes the upper blocks of a ViT and leaves the first ones as they were.",
    place="App. G",
    reported="the first 4 to 5 blocks are very well preserved",
    study="masked",
)
def first_blocks_stay(look: Look) -> Iterator[Part]:
    """Compared with itself as it was when fine-tuning began. Very well preserved has no number in the paper: 0.9."""
    tuned = look("vit", pretrained="labels", beside="vit pretrained=labels moment=start")
    first, last = similarity(tuned, 0, KEPT), similarity(tuned, 1 - QUARTER, 1)
    yield at_least(
        "CKA of the first five of twelve blocks before and after fine-tuning", first, 0.9
    )
    yield more("the same minus that of the last quarter", first - last)
