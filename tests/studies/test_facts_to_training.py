"""Facts become trainings: each set its own, and nothing changes that no fact names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous
from vitreous import claims
from vitreous.claims.facts import (
    ANY_NETWORK,
    FACT_TITLES,
    FACTS,
    NETWORK,
    Facts,
    describe_facts,
    title_of,
    weight_facts,
)
from vitreous.config import Augment, Recipe
from vitreous.data import load
from vitreous.errors import VitreousError
from vitreous.models import build
from vitreous.storage.run_folder import Run
from vitreous.studies.facts_to_training import shortened, training_for
from vitreous.studies.scales import REPRODUCTION, SANITY, SCALES, SMALL, Scale
from vitreous.studies.training import Training

DATA = "tv:CIFAR10"


def needed(scale: Scale) -> list[dict[str, Any]]:
    """All that claims ask for, the tasks of small versions included."""
    found = {}
    for claim in claims.every_claim():
        if scale.name == "sanity" and not claim.sanity:
            continue
        for thresholds in ("sanity",) if scale.name == "sanity" else ("ten", "hundred"):
            for need in claim.needs(thresholds):  # type: ignore[arg-type]
                task = {"data": claim.task or "SYN-B"} if scale.name == "sanity" else {}
                facts = {**task, **need.facts}
                found[describe_facts(facts)] = facts
    return [facts for facts in found.values() if facts["model"] != "identities"]


NEEDED = {name: needed(scale) for name, scale in SCALES.items()}


def plainly(facts: Facts, gpsa: int) -> str:
    """Facts without defaults (the first row of Table 3, as many samples of all images, the usual
    number of gated layers), and with one of two names for a ConViT without gated layers."""
    said = weight_facts(facts)
    if said.get("schedule") == "samples" and "fraction" not in said:
        del said["schedule"]
    if said.get("ablation") == "a" or said.get("gpsa") == gpsa:
        said = {name: value for name, value in said.items() if name not in ("ablation", "gpsa")}
    if said.get("ablation") == "e":
        said = {**{name: value for name, value in said.items() if name != "ablation"}, "gpsa": 0}
    return " ".join(sorted(f"{name}={value}" for name, value in said.items()))


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_all_that_claims_need_can_be_trained_and_no_two_alike(scale: Scale) -> None:
    gpsa = {"sanity": 3}.get(scale.name, 10)
    keys: dict[str, str] = {}
    for facts in NEEDED[scale.name]:
        key = training_for(facts, scale, DATA).key
        assert keys.setdefault(key, plainly(facts, gpsa)) == plainly(facts, gpsa)
    said = {plainly(facts, gpsa) for facts in NEEDED[scale.name]}
    assert len(keys) == len(said) > 100


def networks(scale: Scale) -> dict[str, Training]:
    found = {}
    for facts in NEEDED[scale.name]:
        training: Training | None = training_for(facts, scale, DATA)
        while training is not None:
            found[repr((training.model, training.recipe.model))] = training
            training = training.start
    return found


def test_every_network_of_the_small_scale_can_be_built() -> None:
    for training in networks(SANITY).values():
        network = build(training.model, image=16, classes=5, **training.recipe.model).eval()
        with torch.no_grad():
            assert network(torch.zeros(2, 3, 16, 16)).shape == (2, 5)


@pytest.mark.parametrize(
    "scale", [scale for scale in SCALES.values() if scale is not SANITY], ids=lambda s: s.name
)
def test_networks_of_the_other_scales_can_be_built(scale: Scale) -> None:
    """Networks with facts that they may have no room for; a ViT is cut to one block."""
    for training in networks(scale).values():
        options = dict(training.recipe.model)
        if training.model.startswith("vit") and not options.get("skipless"):
            options["depth"] = 1
        if training.model.startswith(("vit", "alternet")):
            with torch.device("meta"):
                build(training.model, image=32, classes=5, **options)


def changed(before: Any, after: Any, path: str = "") -> set[str]:
    """Where two trainings differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = before.keys() | after.keys()
        return {
            each
            for key in keys
            for each in changed(before.get(key), after.get(key), f"{path}.{key}".lstrip("."))
        }
    return set() if before == after else {path}


NET = "recipe.model."
ONE_FACT: list[tuple[dict[str, Any], set[str]]] = [
    ({"model": "vit", "pool": "gap"}, {f"{NET}pool"}),
    ({"model": "vit", "kernel": 3}, {f"{NET}pool", f"{NET}mixer", f"{NET}kernel"}),
    ({"model": "vit", "patch": 2}, {f"{NET}patch"}),
    (
        {"model": "vit", "heads": 2, "head_dim": 32},
        {f"{NET}heads", f"{NET}head_dim", f"{NET}depth"},
    ),
    ({"model": "vit", "heads": 2, "width": "fixed"}, {f"{NET}heads", f"{NET}depth"}),
    ({"model": "vit", "positions": "2d"}, {f"{NET}pos"}),
    ({"model": "vit", "injection": "every"}, {f"{NET}inject"}),
    ({"model": "vit", "skipless": 9}, {f"{NET}skipless"}),
    ({"model": "vit", "sam": 0.05}, {"recipe.sam"}),
    ({"model": "vit", "rate": 3}, {"recipe.lr"}),
    ({"model": "vit", "epochs": 4}, {"recipe.epochs"}),
    ({"model": "vit", "fraction": 0.2}, {"images.fraction"}),
    ({"model": "vit", "seed": 1}, {"seed"}),
    ({"model": "vit", "data": "SYN-B"}, {"images.name"}),
    (
        {"model": "resnet", "optimiser": "sgd"},
        {"recipe.optimiser", "recipe.lr", "recipe.weight_decay"},
    ),
    ({"model": "resnet", "size": "s"}, {"model"}),
    ({"model": "alternet", "msas": "0,0,2,2"}, {f"{NET}msa"}),
    ({"model": "alternet", "placement": "start"}, {f"{NET}place"}),
    ({"model": "alternet", "order": "falling"}, {f"{NET}heads"}),
    ({"model": "alternet", "blur": "end"}, {f"{NET}smooth", f"{NET}smooth_place"}),
    ({"model": "convit", "gpsa": 3}, {f"{NET}gpsa"}),
    ({"model": "convit", "strength": 0.1}, {f"{NET}locality"}),
    ({"model": "convit", "psa": True}, {f"{NET}kind"}),
    ({"model": "convit", "cls": "inside"}, {f"{NET}class_at"}),
    (
        {"model": "convit", "ablation": "g"},
        {f"{NET}gate", f"{NET}frozen_attention", f"{NET}conv_init"},
    ),
    ({"model": "deit", "distilled": True}, {f"{NET}distilled", "recipe.objective", "teacher"}),
]


@pytest.mark.parametrize(
    ("facts", "where"), ONE_FACT, ids=lambda v: describe_facts(v) if isinstance(v, dict) else ""
)
def test_a_fact_changes_what_it_says_and_nothing_else(
    facts: dict[str, Any], where: set[str]
) -> None:
    plain = training_for({"model": facts["model"]}, SMALL, DATA)
    assert changed(plain.to_json(), training_for(facts, SMALL, DATA).to_json()) == where


def test_every_fact_is_known_here() -> None:
    """As a cause of weights or as a matter of looking, and with a name for titles."""
    caused = {*ANY_NETWORK, *(fact for facts in NETWORK.values() for fact in facts)}
    measuring = {"checkpoint", "measured", "beside", "resolution", "embedding"}
    assert caused | measuring == set(FACTS)
    assert set(FACT_TITLES) == set(FACTS)


def test_values_that_facts_become() -> None:
    def options(**facts: Any) -> Any:
        return training_for({"model": "vit", **facts}, SMALL, DATA).recipe.model

    assert options(skipless=9)["skipless"] == (8,)
    assert options(heads=2, head_dim=32)["depth"] == 6
    assert options(pool="gap", mixer="mean")["learn_pattern"] is True
    assert options(kernel=8)["kernel"] == 8  # the whole grid of 8 x 8
    small = training_for({"model": "vit", "kernel": 8}, SANITY, "SYN-B")
    assert (
        small.recipe.model["kernel"] == 4
    )  # and that of 4 x 4, of which it holds all from any place
    orders = [
        training_for({"model": "alternet", "order": order}, SMALL, DATA).recipe.model["heads"]
        for order in ("falling", "constant")
    ]
    assert orders == [(24, 12, 6, 3), (11, 11, 11, 11)]
    plain = training_for({"model": "vit", "augment": "none"}, SMALL, DATA)
    assert plain.recipe.augment == Augment()
    assert training_for({"model": "vit", "data": "SYN-C"}, SMALL, DATA).images.name == "world:syn-c"
    assert training_for({"model": "vit"}, SMALL, DATA, image=64).images.image == 64


@pytest.mark.parametrize(
    ("data", "source", "name"),
    [
        ("npz:data/cifar10", "tiny100", "npz:data/tiny100"),
        ("npz:cifar10", "tiny100", "npz:tiny100"),
        ("folder:/images/few/", "tiny100", "folder:/images/few/tiny100"),
        ("SYN-E", "SYN-B", "world:syn-b:four"),
        ("npz:data/cifar10", "SYN-B", "world:syn-b:four"),
    ],
)
def test_pre_trained_on_other_classes(data: str, source: str, name: str) -> None:
    """On all images of the data beside the study's, at the size of the study's; tuned as usual."""
    facts = {"model": "vit", "pretrained": "labels"}
    own = training_for(facts, SMALL, data)
    other = training_for({**facts, "source": source}, SMALL, data)
    assert other.start is not None
    assert own.start is not None
    images = other.start.images
    assert (images.name, images.fraction, images.rest, images.image) == (name, 1.0, False, 32)
    assert replace(other, start=own.start) == own
    assert other.start.recipe == own.start.recipe


def test_the_schedule_samples_keeps_the_number_of_samples() -> None:
    whole = training_for({"model": "vit"}, SMALL, DATA).recipe
    few = training_for({"model": "vit", "fraction": 0.05, "schedule": "samples"}, SMALL, DATA)
    assert few.images.fraction == 0.05
    assert (few.recipe.epochs, few.recipe.warmup, few.recipe.test_every) == (
        20 * whole.epochs,
        20 * whole.warmup,
        20,
    )
    every = training_for({"model": "vit", "schedule": "samples"}, SMALL, DATA)
    assert every == training_for({"model": "vit"}, SMALL, DATA)


def test_some_tasks_take_patience() -> None:
    for model in ("vit", "resnet"):
        usual, patient = (
            training_for({"model": model}, SANITY, data).recipe for data in ("SYN-B", "SYN-C")
        )
        assert patient == usual.but(epochs=25)
        longest = training_for({"model": model, "data": "SYN-C", "epochs": 4}, SANITY, "SYN-B")
        assert longest.recipe.epochs == 100


@pytest.mark.parametrize(
    "facts",
    [{"checkpoint": "warmup"}, {"measured": "clean"}, {"beside": "resnet"}, {"resolution": 48}],
)
def test_facts_of_measuring_do_not_change_the_training(facts: dict[str, Any]) -> None:
    plain = training_for({"model": "vit"}, SMALL, DATA)
    assert training_for({"model": "vit", **facts}, SMALL, DATA) == plain


def test_fine_tuning_follows_what_was_trained_before() -> None:
    plain = training_for({"model": "vit"}, SMALL, DATA)
    larger = training_for({"model": "vit", "tuned": "whole", "resolution": 48}, SMALL, DATA)
    assert larger.start == plain
    assert (larger.images.image, larger.recipe.head, larger.recipe.optimiser) == (48, "keep", "sgd")
    labels = training_for({"model": "vit", "pretrained": "labels"}, SMALL, DATA)
    head = training_for({"model": "vit", "pretrained": "labels", "tuned": "head"}, SMALL, DATA)
    last = training_for({"model": "vit", "pretrained": "labels", "head": "last"}, SMALL, DATA)
    assert labels.start == head.start == last.start
    assert labels.start is not None
    assert labels.start.recipe.model["head"] == "tanh"
    assert (labels.recipe.head, head.recipe.head, last.recipe.head) == ("zero", "zero", "last")
    network = build("vit_ti", image=32, classes=3, depth=1, patch=4)
    from vitreous.training.optim import freeze

    frozen = set(freeze(network, head.recipe.freeze))
    assert {name for name, _ in network.named_parameters()} - frozen == {"head.weight", "head.bias"}


def test_pre_training_and_fine_tuning_use_different_images() -> None:
    """Of the shares that `Images` can name; a fifth of the others has five times the epochs."""
    whole = training_for({"model": "vit", "pretrained": "masked"}, SMALL, DATA)
    fifth = training_for({"model": "vit", "pretrained": "masked", "unlabelled": 0.2}, SMALL, DATA)
    short = training_for({"model": "vit", "pretrained": "masked", "steps": 0.1}, SMALL, DATA)
    assert whole.start is not None
    assert fifth.start is not None
    assert short.start is not None
    assert (whole.images.fraction, whole.images.rest) == (0.1, False)
    assert (whole.start.images.fraction, whole.start.images.rest) == (0.1, True)
    assert (fifth.start.images.fraction, fifth.start.images.rest) == (
        0.82,
        True,
    )  # 18 % are a fifth of 90 %
    assert (
        fifth.start.recipe.epochs == 5 * whole.start.recipe.epochs == 50 * short.start.recipe.epochs
    )
    assert whole.start.recipe.augment.mixup == whole.start.recipe.augment.cutmix == 0
    images = load("world:syn-e", size=400, image=16)
    from vitreous.data.subsets import fraction, split_off

    tenth = fraction(images, 0.1)
    others, _ = split_off(images, 0.82)
    rows = {bytes(image.numpy().tobytes()) for image in others.images}
    assert not rows & {bytes(image.numpy().tobytes()) for image in tenth.images}


def test_the_teacher_is_the_studys_resnet() -> None:
    for scale in (SMALL, REPRODUCTION):  # in the second, DeiT has a recipe of its own
        taught = training_for({"model": "deit", "distilled": True, "seed": 2}, scale, DATA)
        assert taught.teacher == training_for({"model": "resnet", "seed": 2}, scale, DATA)


def test_convit_and_deit_share_a_recipe_that_spares_the_gates() -> None:
    recipes = [
        training_for({"model": model}, REPRODUCTION, DATA).recipe.but(model={})
        for model in ("convit", "deit")
    ]
    assert recipes[0] == recipes[1]
    assert (recipes[0].decay, recipes[0].batch, recipes[0].lr) == ("matrices", 256, 1e-3)
    assert training_for({"model": "vit"}, REPRODUCTION, DATA).recipe.name == "hdv_cifar"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"model": "resnet", "pool": "gap"},
            "A resnet cannot have pool='gap'; these can: vit, deit, hybrid",
        ),
        (
            {"model": "resnet", "blur": "end"},
            "A resnet cannot have blur='end'; these can: alternet",
        ),
        ({"model": "vit", "target": "full"}, "target says nothing without pretrained"),
        ({"model": "vit", "source": "tiny100"}, "source says nothing without pretrained"),
        (
            {"model": "vit", "pretrained": "labels", "rate": 2},
            "trained twice, and rate does not say which time",
        ),
        (
            {"model": "vit", "tuned": "whole", "resolution": 48, "embedding": "random"},
            "leave out embedding or tuned",
        ),
        (
            {"model": "vit", "kernel": 6},
            "kernel=6, which has no centre and is not its grid of 8 x 8",
        ),
        (
            {"model": "vit", "kernel": 3, "mixer": "pool"},
            "kernel and mixer both choose the same thing",
        ),
        ({"model": "pit", "size": "wide"}, "no pit of size 'wide'"),
        ({"model": "identities"}, "no model that could be trained"),
    ],
    ids=lambda v: describe_facts(v) if isinstance(v, dict) else "",
)
def test_what_cannot_be_is_said(facts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(VitreousError, match=sentence):
        training_for(facts, SMALL, DATA)


TINY = replace(
    SANITY,
    images=replace(SANITY.images, size=96, test_size=16),
    recipe=SANITY.recipe.but(epochs=2, batch=32),
)


def test_a_short_training_has_the_weights_of_the_long_one(tmp_path: Path) -> None:
    """After the warm-up, bit by bit, batch norm and augmentation included."""
    weights = {}
    for short in (False, True):
        training = training_for({"model": "resnet"}, TINY, "SYN-B", short=short)
        data, test = (
            load(training.images.name, split=split, size=96, image=16)
            for split in ("train", "test")
        )
        out = tmp_path / str(short)
        trained = vitreous.train(
            training.model, data, training.recipe, test=test, out=out, show=False, device="cpu"
        )
        weights[short] = Run(out).read_weights("warmup")[0]
        assert len(trained.records) == (2 if short else 4)
    assert weights[False].keys() == weights[True].keys()
    assert all(torch.equal(weights[False][name], weights[True][name]) for name in weights[False])


def test_what_cannot_be_shortened() -> None:
    with pytest.raises(VitreousError, match=r"warms up for 0\.5 epochs"):
        shortened(Recipe(warmup=0.5))
    in_steps = Recipe(steps=100, warmup_steps=10)
    assert shortened(in_steps) == in_steps


def test_titles() -> None:
    facts = {"model": "vit", "pool": "gap", "fraction": 0.1, "checkpoint": "warmup"}
    assert title_of(facts) == "ViT, mean pooling, 10 % of the images, end of warm-up"
    assert title_of({"model": "resnet", "seed": 0}) == "ResNet"
    for name, every in NEEDED.items():
        titles = {title_of(facts): facts for facts in every}
        assert len(titles) == len(every), name
