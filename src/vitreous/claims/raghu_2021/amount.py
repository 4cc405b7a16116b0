"""The effect of more data, and of pre-training on other data, on representations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from vitreous.claims.effects import Effect, at_least, more, noted
from vitreous.claims.evidence import Query, Rows, reads
from vitreous.claims.facts import describe_facts
from vitreous.claims.quantity import Array, Quantity, side_by_side
from vitreous.claims.raghu_2021.book import check, few_images, larger
from vitreous.claims.raghu_2021.pairs import ENDS, stream_site
from vitreous.claims.raghu_2021.probes import area, probe
from vitreous.claims.readings import accuracy

QUARTER = 0.25
FIRST_BLOCKS = 5 / 12
"""Depth of the first five of twelve blocks."""


@reads("similarity_to")
def _unit_similarity(rows: Rows, low: float, high: float) -> Array:
    """CKA of units with the unit of the same name in the second model, mean over units between two
    depths."""
    outputs = rows.where(site=stream_site(rows))
    depth, known = outputs.numbers("depth"), ~np.isnan(outputs.numbers())
    for end in ENDS:
        known &= outputs.entries("kind") != end
    return outputs.select(known & (depth >= low) & (depth <= high)).draws().mean(-1)


def _part_of(share: float) -> dict[str, Any]:
    """Facts of a training on a share of the images with the usual number of samples in total."""
    return {"fraction": share, "schedule": "samples"}


@check("SLC-26")
def lower_layers_need_little_data(models: Query) -> Iterator[Effect]:
    """Compared with a model that was trained on all data with another seed, so that nothing is
    similar because of the same initialisation. A second training on all data, which is noted, shows
    how similar two such models are."""

    def ends(size: dict[str, str], **facts: Any) -> tuple[Quantity, Quantity]:
        trainings = models(
            "vit", **size, **facts, beside=describe_facts({"model": "vit", **size, "seed": 1})
        )
        return _unit_similarity(trainings, 0, QUARTER), _unit_similarity(trainings, 1 - QUARTER, 1)

    low, high = ends({}, **_part_of(0.1))
    yield more(
        "CKA with the model of all data, trained on 10 %, first minus last quarter",
        low - high,
        matters=0.2,
    )
    yield at_least("the same CKA of the first quarter", low, 0.8)
    if not models.sanity:
        larger_low, larger_high = ends({"size": "s"}, **_part_of(0.1))
        yield more(
            "fall from first to last quarter, larger minus small ViT",
            (larger_low - larger_high) - (low - high),
        )
    fewest, two = ends({}, **few_images(models))[0], ends({})
    yield noted("CKA of the first quarter with the fewest images", fewest)
    yield noted("CKA of the first quarter of two trainings on all data", two[0])
    yield noted("CKA of the last quarter of two trainings on all data", two[1])


@check("SLC-27")
def data_makes_the_middle(models: Query) -> Iterator[Effect]:
    def gain(at: str | int) -> Quantity:
        few, all_images = (
            models("vit", **larger(models), **facts) for facts in (few_images(models), {})
        )
        return probe(all_images, "mean over positions", at) - probe(few, "mean over positions", at)

    yield more(
        "accuracy of probes in the middle, all data minus few, in points",
        gain("middle"),
        matters=10.0,
    )
    yield more(
        "the same minus that after the first block, in points",
        gain("middle") - gain(1),
        matters=5.0,
    )


@check("SLC-28")
def vit_has_better_features_inside(models: Query) -> Iterator[Effect]:
    """Tested at matched accuracy, because on small data a less accurate ViT has worse features at
    every depth."""
    ahead = area(models("vit", size="s")) - area(models("resnet"))
    yield more("accuracy of probes, mean over depth, larger ViT minus ResNet, in points", ahead)


@check("SLC-29")
def more_is_better(models: Query) -> Iterator[Effect]:
    """Probes of the class token at the end, 10 images a class."""
    shares = [few_images(models), _part_of(0.1), _part_of(0.3), {}]
    probes = [probe(models("vit", **facts), "class token") for facts in shares]
    yield more("gain of probes from the fewest images to all, in points", probes[-1] - probes[0])
    steps = side_by_side([later - earlier for earlier, later in pairwise(probes)])
    yield noted("smallest gain from one amount of data to the next, in points", steps.minimum())


def _pretraining_data(models: Query) -> str:
    """The data, with other classes, on which a ViT is pre-trained before it is fine-tuned."""
    return "SYN-B" if models.sanity else "tiny100"


@check("SLC-30")
def the_whole_is_tuned(models: Query) -> Iterator[Effect]:
    """The ViT is pre-trained on other classes, because on features of the same classes a new head
    alone is as good."""
    before = {"pretrained": "labels", "source": _pretraining_data(models)}
    whole, head = (accuracy(models("vit", **before, tuned=tuned)) for tuned in (None, "head"))
    yield more(
        "accuracy of fine-tuning everything minus the head only, in points",
        whole - head,
        matters=5.0,
    )


@check("SLC-32")
def first_blocks_stay(models: Query) -> Iterator[Effect]:
    """Compared with the same model at the start of fine-tuning on other classes. "Very well
    preserved" has no number in the paper; here it is a CKA of 0.9."""
    source = _pretraining_data(models)
    begun = f"vit pretrained=labels source={source} checkpoint=start"
    tuned = models("vit", pretrained="labels", source=source, beside=begun)
    first, last = _unit_similarity(tuned, 0, FIRST_BLOCKS), _unit_similarity(tuned, 1 - QUARTER, 1)
    yield at_least(
        "CKA of the first five of twelve blocks before and after fine-tuning", first, 0.9
    )
    yield more("the same minus that of the last quarter", first - last)
