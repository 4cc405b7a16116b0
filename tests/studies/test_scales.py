"""Scales: every network can be built and takes its images, and every option is valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import vitreous
from vitreous import recipes
from vitreous.claims.facts import MODELS
from vitreous.data import load
from vitreous.data.world import TASKS as WORLD
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.models import build
from vitreous.studies.scales import SANITY, SCALES, SMALL, TASKS, Build, Scale, scale_named

EVERY = {
    repr((scale.images.image, made)): (scale, made)
    for scale in SCALES.values()
    for sizes in scale.builds.values()
    for made in sizes.values()
}
"""Every network once, whichever scales have it."""


@pytest.mark.parametrize(("scale", "made"), EVERY.values(), ids=lambda v: v.name)
def test_every_network_accepts_the_images_of_its_scale(scale: Scale, made: Build) -> None:
    """Shapes only, without memory for weights; the networks for two cores are run below."""
    side = scale.images.image
    with torch.device("meta"):
        network = build(made.name, image=side, classes=7, **made.options).eval()
        assert network(torch.zeros(2, 3, side or 0, side or 0)).shape == (2, 7)


@pytest.mark.parametrize("model", SANITY.builds)
def test_small_networks_run_and_are_small(model: str) -> None:
    made = SANITY.build(model)
    torch.manual_seed(0)
    network = build(made.name, image=16, classes=7, **made.options).eval()
    answer = network(torch.randn(2, 3, 16, 16))
    assert answer.shape == (2, 7)
    assert bool(answer.isfinite().all())
    assert sum(p.numel() for p in network.parameters()) < 1_000_000


def test_models_of_the_vocabulary() -> None:
    trained = set(MODELS) - {"identities"}
    assert set(SMALL.builds) == set(SCALES["paper"].builds) == trained
    assert set(SANITY.builds) == trained - {
        "resnext",
        "twins",
    }  # which no small version of a claim asks for


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_networks_that_are_compared_differ_in_nothing_else(scale: Scale) -> None:
    assert (
        scale.recipe.warmup == int(scale.recipe.warmup) >= 1
    )  # weights after it are those of an epoch's end
    deit, convit = (scale.build(model).options for model in ("deit", "convit"))
    shape = (4, 48) if scale.name == "sanity" else (4, 192)
    sizes = [
        build(made.name, image=32, classes=2, **made.options)
        for made in map(scale.build, ("deit", "convit"))
    ]
    for network in sizes:
        heads: Any = network.get_submodule("blocks.0.attn").heads
        assert (heads, network.num_features) == shape
    assert deit["patch"] == convit["patch"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_measurements_accept_the_options_of_a_scale(scale: Scale) -> None:
    known: dict[str, Any] = {
        name: room.named(name) for room in (analyses, probes) for name in room.names()
    }
    assert set(scale.image_counts) <= set(known)
    for name, options in scale.measurement_options.items():
        for each in (
            [{"what": what} for whats in options.values() for what in whats]
            if name == "lesion"
            else [options]
        ):
            known[name](**each)
            assert each.get("recipe", "fast") in recipes.names()


def test_the_last_unit_before_the_head() -> None:
    for scale, models in ((SANITY, ("vit", "resnet")), (SMALL, ("resnet",))):
        for model in models:
            made = scale.build(model)
            network = build(made.name, image=scale.images.image, classes=3, **made.options)
            units = vitreous.open(network).anatomy.units
            body = [unit.name for unit in units if unit.kind != "head"]
            assert body[-1] == scale.last_units[model]


def test_tasks_exist_in_the_world_and_are_never_flipped() -> None:
    assert all(name.removeprefix("world:") in WORLD for name in TASKS.values())
    assert SANITY.recipe.augment.flip == SANITY.plain.flip == SANITY.finetune.augment.flip == 0
    assert SANITY.recipe.augment.mixup == SANITY.recipe.augment.cutmix == 0
    images = load(TASKS["SYN-B"], size=8, image=SANITY.images.image)
    assert images.image == (16, 16)


def test_thresholds_follow_the_number_of_classes() -> None:
    assert SANITY.thresholds("", 100) == "sanity"
    assert SMALL.thresholds("SYN-B", 100) == SMALL.thresholds("world:shapes", 100) == "sanity"
    assert SMALL.thresholds("npz:photos100", 10) == "ten"
    assert SMALL.thresholds("npz:photos", 100) == "hundred"


def test_what_is_not_there() -> None:
    assert scale_named("small") is SMALL
    with pytest.raises(UnknownName, match="scale"):
        scale_named("huge")
    with pytest.raises(VitreousError, match="no resnet of size 'wide'; there is 's'"):
        SMALL.build("resnet", "wide")
    with pytest.raises(VitreousError, match="no model that could be trained"):
        SMALL.build("identities")
    with pytest.raises(UnknownName, match="lenet"):
        SMALL.build("lenet")
    with pytest.raises(VitreousError, match="its own only"):
        replace(SMALL, builds={"vit": {"": SMALL.build("vit")}}).build("vit", "s")
