"""From facts to a training: what a claim says of a model becomes options of network, recipe and images.

    realise({"model": "vit", "pool": "gap", "fraction": 0.1}, scale_named("small"), "tv:CIFAR10")

Only what weights depend on counts. When a model is looked at, on which images and beside which other one is a matter of
measuring; so is a resolution that it was not tuned for. A fact that a model cannot have is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vitreous.claims.facts import Facts, check_facts, describe_facts
from vitreous.config import Recipe
from vitreous.errors import VitreousError
from vitreous.models.convit import TABLE_3
from vitreous.studies.scales import TASKS, Build, Scale
from vitreous.studies.training import Images, Training

Options = dict[str, Any]

MEASURING = ("moment", "measured", "beside")
"""Facts of looking at weights, not of making them."""
RESIZING = ("resolution", "embedding")
"""The same, unless the model is fine-tuned at that resolution."""
TENTH = 0.1
"""Share of the images for fine-tuning; the others are seen before."""
TARGETS = {"mean": "colour", "small": "patch_colours", "full": "pixels"}
ONLY_THE_HEAD = ("[!h]*",)
"""Frozen: all parameters of a ViT whose names do not begin as those of its head do."""

EVERY = (
    "size",
    "sam",
    "rate",
    "augment",
    "optimiser",
    "epochs",
    "fraction",
    "schedule",
    "held_out",
    "data",
    "seed",
)
"""Facts of the training, which any model can have."""
TUNING = ("pretrained", "target", "corrupted", "unlabelled", "steps", "tuned", "head")
OWN = {
    "vit": ("pool", "kernel", "patch", "heads", "head_dim", "width", "positions", "injection", "mixer", "skipless",
            *TUNING),
    "deit": ("pool", "positions", "injection", "skipless", "distilled"),
    "convit": ("positions", "gpsa", "strength", "ablation", "psa", "cls"),
    "alternet": ("blur", "msas", "placement", "order"),
    "hybrid": ("pool", "positions", "injection"),
    "window": ("positions", "injection"),
}  # fmt: skip
"""Facts of the network, by model."""
NEEDS = {
    "width": "heads",
    "embedding": "resolution",
    **dict.fromkeys(("target", "corrupted", "unlabelled", "steps", "head"), "pretrained"),
}
"""Facts that say nothing without another."""
ALONE = ("sam", "rate", "augment", "optimiser", "epochs", "fraction", "schedule")
"""Facts that have no meaning where a model is trained twice, because they could be those of either training."""


def realise(
    facts: Facts, scale: Scale, data: str = "", image: int | None = None, *, short: bool = False
) -> Training:
    """The training that makes a model of which these facts are true.

    `data` are the study's images, by a name that `vitreous.data.load` knows or as `SYN-B`; facts may name others.
    `image` is their side, where it is not the scale's. `short` ends right after the warm-up, with the weights that the
    whole training has then, bit by bit.
    """
    said = causes(facts)
    _check(said)
    build = scale.build(said["model"], said.get("size", ""))
    name = str(said.get("data", data))
    images = replace(scale.images, name=TASKS.get(name, name), image=image or scale.images.image)
    images = replace(images, held_out=float(said.get("held_out", 0.0)))
    options = {**build.options, **_network(said, build, images)}
    if "pretrained" in said or "tuned" in said:
        training = _tuned(said, scale, build.name, options, images)
    else:
        training = _once(said, scale, build.name, options, images)
        if said.get("distilled"):
            training = replace(training, teacher=_teacher(said, scale, name, image))
    return replace(training, recipe=shortened(training.recipe)) if short else training


def causes(facts: Facts) -> dict[str, Any]:
    """The facts that weights depend on, in the order of the vocabulary."""
    known = check_facts(
        str(facts["model"]), {name: value for name, value in facts.items() if name != "model"}
    )
    left_out = MEASURING if "tuned" in known else (*MEASURING, *RESIZING)
    return {name: value for name, value in known.items() if name not in left_out}


def shortened(recipe: Recipe) -> Recipe:
    """The same up to the end of its warm-up, which has to be that of an epoch; of a recipe in steps, all of it."""
    if recipe.steps is not None or recipe.warmup_steps is not None:
        return recipe
    if recipe.warmup < 1 or recipe.warmup != int(recipe.warmup):
        raise VitreousError(
            f"The recipe {recipe.name!r} warms up for {recipe.warmup:g} epochs and can be ended after that only if "
            "they are whole ones, at least one."
        )
    return recipe.but(epochs=int(recipe.warmup), warmup_extra=False, cooldown=0)


def describe(facts: Facts) -> str:
    """A title for people: `ViT, mean pooling, 10 % of the images, end of warm-up`."""
    names = {
        "vit": "ViT",
        "deit": "DeiT",
        "convit": "ConViT",
        "pit": "PiT",
        "resnet": "ResNet",
        "resnext": "ResNeXt",
    }
    names |= {
        "alternet": "AlterNet",
        "mixer": "MLP-Mixer",
        "window": "ViT in windows",
        "hybrid": "hybrid ViT",
    }
    model = str(facts["model"])
    said = [WORDS[name](value) for name, value in facts.items() if name in WORDS]
    return ", ".join([names.get(model, model.capitalize()), *filter(None, said)])


def _check(said: Facts) -> None:
    """Refuse what this model cannot be, and facts that do not go together."""
    model = said["model"]
    for fact in said:
        if (
            fact == "model"
            or fact in EVERY
            or fact in OWN.get(model, ())
            or (fact in RESIZING and "tuned" in said)
        ):
            continue
        having = [each for each, facts in OWN.items() if fact in facts]
        raise VitreousError(
            f"A {model} cannot have {fact}={said[fact]!r}; these can: {', '.join(having) or 'none'}."
        )
    for fact, needed in NEEDS.items():
        if fact in said and needed not in said:
            raise VitreousError(
                f"{describe_facts(said)}: {fact} says nothing without {needed}; say that too."
            )
    if "embedding" in said:
        raise VitreousError(
            f"{describe_facts(said)} is fine-tuned from interpolated positions: leave out embedding or tuned."
        )
    twice = [fact for fact in ALONE if fact in said]
    if twice and ("pretrained" in said or "tuned" in said):
        raise VitreousError(
            f"{describe_facts(said)} is trained twice, and {twice[0]} does not say which time: leave it out."
        )
    for one, other in (
        ("kernel", "mixer"),
        ("ablation", "gpsa"),
        ("head_dim", "width"),
        ("ablation", "psa"),
    ):
        if one in said and other in said:
            raise VitreousError(
                f"{describe_facts(said)}: {one} and {other} both choose the same thing; say one of them."
            )


def _network(said: Facts, build: Build, images: Images) -> Options:
    """Options of the network."""
    made: Options = {}
    for fact, option in (
        ("patch", "patch"),
        ("positions", "pos"),
        ("injection", "inject"),
        ("pool", "pool"),
    ):
        if fact in said:
            made[option] = said[fact]
    if "skipless" in said:
        made["skipless"] = (said["skipless"] - 1,)
    if "distilled" in said:
        made["distilled"] = bool(said["distilled"])
    if "heads" in said or "head_dim" in said:
        made |= _heads(said, build)
    if "mixer" in said:
        made |= {
            "mixer": said["mixer"],
            **({"learn_pattern": True} if said["mixer"] == "mean" else {}),
        }
    if "kernel" in said:
        made |= _kernel(said, images.image, made.get("patch", build.options["patch"]))
    return made | _convit(said) | _alternet(said, build)


def _heads(said: Facts, build: Build) -> Options:
    """Of half the depth, as the papers' sweeps are (A3.19, A3.20). Without a `head_dim`, heads divide the width."""
    made: Options = {"depth": _own(build, "depth") // 2}
    for fact in ("heads", "head_dim"):
        if fact in said:
            made[fact] = said[fact]
    return made


def _kernel(said: Facts, image: int | None, patch: int) -> Options:
    """Neighbourhoods (A1.13); one that holds the whole grid from any place is attention to everything."""
    side = (image or 32) // patch
    kernel = side if said["kernel"] >= 2 * side - 1 else said["kernel"]
    if kernel % 2 == 0 and kernel != side:
        raise VitreousError(
            f"A {said['model']} cannot have kernel={kernel}, which has no centre and is not its grid of {side} x "
            f"{side}: take an odd one."
        )
    return {"mixer": "neighbourhood", "kernel": kernel, "pool": "gap"}


def _convit(said: Facts) -> Options:
    made: Options = dict(TABLE_3[said["ablation"]]) if "ablation" in said else {}
    if "gpsa" in said:
        made["gpsa"] = said["gpsa"]
    if "strength" in said:
        made["locality"] = said["strength"]
    if said.get("psa"):
        made["kind"] = "psa"
    if "cls" in said:
        made["class_at"] = {"inside": "start"}[said["cls"]]
    return made


def _alternet(said: Facts, build: Build) -> Options:
    made: Options = {}
    if "msas" in said:
        made["msa"] = tuple(int(count) for count in str(said["msas"]).split(","))
    if "placement" in said:
        made["place"] = said["placement"]
    if "order" in said:
        rising = tuple(_own(build, "heads"))
        constant = (round(sum(rising) / len(rising)),) * len(rising)
        made["heads"] = {"falling": rising[::-1], "constant": constant}[said["order"]]
    if "blur" in said:
        made |= {"smooth": "tanh", "smooth_place": said["blur"]}
    return made


def _own(build: Build, option: str) -> Any:
    """What a network has if nothing is said, from its options or from the table of sizes."""
    from vitreous.models import options
    from vitreous.models.vit import SIZES

    if (value := build.options.get(option, options(build.name).get(option))) is not None:
        return value
    return getattr(SIZES[build.name.partition("_")[2]], option)


def _once(said: Facts, scale: Scale, name: str, options: Options, images: Images) -> Training:
    share = float(said.get("fraction", 1.0))
    recipe = lengthened(_followed(said, scale), scale.patience.get(images.name, 1.0))
    if said.get("schedule") == "samples":
        recipe = lengthened(recipe, 1 / share, warmup=True)
    recipe = _built(recipe, options)
    if said.get("distilled"):
        recipe = recipe.but(objective="distil_hard")
    return Training(name, recipe, replace(images, fraction=share), int(said.get("seed", 0)))


def _followed(said: Facts, scale: Scale) -> Recipe:
    """The recipe, with what is said of it."""
    recipe = scale.recipe
    if "optimiser" in said:
        recipe = recipe.but(**scale.sgd)
    if "rate" in said:
        recipe = recipe.but(lr=recipe.lr * said["rate"])
    if "sam" in said:
        recipe = recipe.but(sam=said["sam"])
    if "augment" in said:
        recipe = recipe.but(augment=scale.plain)
    return lengthened(recipe, float(said.get("epochs", 1)))


def lengthened(recipe: Recipe, times: float, warmup: bool = False) -> Recipe:
    """As many times as long, in whole epochs. With its warm-up, it is tested as often as before."""
    if times == 1:
        return recipe
    changes: Options = {"epochs": max(1, round(recipe.epochs * times))}
    if warmup:
        changes |= {
            "warmup": float(max(1, round(recipe.warmup * times))),
            "test_every": max(1, round(times)),
        }
    return recipe.but(**changes)


def _built(recipe: Recipe, options: Options) -> Recipe:
    return recipe.but(**{f"model.{name}": value for name, value in options.items()})


def _teacher(said: Facts, scale: Scale, data: str, image: int | None) -> Training:
    """The study's ResNet, on the same images (A3.14)."""
    shared = {name: said[name] for name in ("fraction", "schedule", "data", "seed") if name in said}
    return realise({"model": "resnet", **shared}, scale, data, image)


def _tuned(said: Facts, scale: Scale, name: str, options: Options, images: Images) -> Training:
    """Two trainings: after pre-training a new head and a tenth of the images, otherwise its own head and all images."""
    seed, tuning = int(said.get("seed", 0)), _built(scale.finetune, options)
    if "pretrained" not in said:
        before = _once(said, scale, name, options, images)
        larger = replace(images, image=said.get("resolution", images.image))
        return Training(name, tuning.but(head="keep"), larger, seed, start=before)
    before = Training(name, _before(said, scale, options), _others(said, images), seed)
    head = "last" if said.get("head") == "last" else "zero"
    freeze = ONLY_THE_HEAD if said.get("tuned") == "head" else ()
    return Training(
        name,
        tuning.but(head=head, freeze=freeze),
        replace(images, fraction=TENTH),
        seed,
        start=before,
    )


def _before(said: Facts, scale: Scale, options: Options) -> Recipe:
    """Pre-training: as many steps whatever the share of images, unless fewer are asked for.

    With labels the head has a hidden layer (A3.03). Masked patches (A3.07) see images neither mixed nor recoloured.
    """
    recipe = _built(scale.recipe, options)
    if said["pretrained"] == "labels":
        recipe = recipe.but(**{"model.head": "tanh"})
    else:
        target, share = TARGETS[said.get("target", "mean")], said.get("corrupted", 0.5)
        recipe = recipe.but(
            objective="masked",
            masked_target=target,
            masked_share=share,
            weight_decay=0.0,
            augment=scale.plain,
        )
    recipe = lengthened(recipe, 1 / said.get("unlabelled", 1), warmup=True)
    return lengthened(recipe, said.get("steps", 1), warmup=True)


def _others(said: Facts, images: Images) -> Images:
    """The images that are not fine-tuned on, or a share of them; shares contain smaller ones, so these never meet."""
    return replace(
        images, fraction=round(1 - (1 - TENTH) * said.get("unlabelled", 1), 10), rest=True
    )


Say = Callable[[Any], str]
POSITIONS = {
    "none": "no positions",
    "1d": "1-d positions",
    "2d": "2-d positions",
    "relative": "relative positions",
}
MIXERS = {
    "pool": "pooling for attention",
    "identity": "no mixing",
    "mean": "attention that knows no image",
}
MOMENTS = {
    "start": "before training",
    "warmup": "end of warm-up",
    "33": "a third of training",
    "66": "two thirds",
}
WORDS: Mapping[str, Say] = {
    "size": lambda v: "larger" if v == "s" else "twice as wide",
    "pool": lambda v: "mean pooling",
    "kernel": lambda v: f"{v} x {v} neighbourhoods",
    "patch": lambda v: f"patches of {v} pixels",
    "heads": lambda v: f"{v} head{'s' * (v != 1)}",
    "head_dim": lambda v: f"heads {v} wide",
    "width": lambda v: "width fixed",
    "positions": lambda v: POSITIONS[v],
    "injection": lambda v: (
        "positions in every block" if v == "every" else "the same positions in every block"
    ),
    "mixer": lambda v: MIXERS[v],
    "sam": lambda v: f"SAM {v:g}",
    "rate": lambda v: f"{v:g} times the rate",
    "augment": lambda v: "no augmentation",
    "optimiser": lambda v: str(v).upper(),
    "epochs": lambda v: f"{v:g} times as long",
    "blur": lambda v: f"blur at the {v} of stages",
    "msas": lambda v: f"attention {v}",
    "placement": lambda v: "attention at the start of stages",
    "order": lambda v: f"{v} heads",
    "gpsa": lambda v: f"{v} gated layers",
    "strength": lambda v: f"locality {v:g}",
    "ablation": lambda v: f"row {v} of Table 3",
    "psa": lambda v: "without gates" if v else "",
    "distilled": lambda v: "distilled" if v else "",
    "cls": lambda v: "class token in all layers",
    "skipless": lambda v: f"no skips in block {v}",
    "pretrained": lambda v: f"pre-trained on {'labels' if v == 'labels' else 'masked patches'}",
    "target": lambda v: {"mean": "mean colours", "small": "4 x 4 colours", "full": "all pixels"}[v],
    "corrupted": lambda v: f"{v:.0%} masked".replace("%", " %"),
    "unlabelled": lambda v: f"{100 * v:g} % of the images before",
    "steps": lambda v: f"{100 * v:g} % of the steps before",
    "tuned": lambda v: "only the head tuned" if v == "head" else "fine-tuned",
    "resolution": lambda v: f"at {v} pixels",
    "embedding": lambda v: f"{v} positions",
    "head": lambda v: "new last layer",
    "fraction": lambda v: f"{100 * v:g} % of the images",
    "schedule": lambda v: "as many samples",
    "held_out": lambda v: f"{100 * v:g} % held out",
    "measured": lambda v: "on clean images" if v == "clean" else "on those held out",
    "beside": lambda v: f"beside {v}",
    "moment": lambda v: MOMENTS[v],
    "data": lambda v: str(v),
    "seed": lambda v: f"seed {v}" if v else "",
}
"""What each fact is called in a title."""
