"""From facts to a training: facts become options of network, recipe and images.

    realise({"model": "vit", "pool": "gap", "fraction": 0.1}, scale_named("small"), "tv:CIFAR10")

Only facts that weights depend on count; the checkpoint, the images that are measured and a second
network do not, nor does a resolution without fine-tuning. A fact that a network cannot have is an
error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vitreous.claims.facts import Facts, check_possible, weight_facts
from vitreous.config import Recipe
from vitreous.errors import VitreousError
from vitreous.models import options as options_of
from vitreous.models.convit import TABLE_3
from vitreous.models.vit import SIZES
from vitreous.studies.book_networks import change_recipe, extend_build
from vitreous.studies.scales import TASKS, Build, Scale
from vitreous.studies.training import Images, Training

Options = dict[str, Any]

TENTH = 0.1
"""Share of the images for fine-tuning; the others are for pre-training."""
CIFAR_SIDE = 32
"""Pixels a side of images to pre-train on, where the study's own have their usual size."""
TARGETS = {"mean": "colour", "small": "patch_colours", "full": "pixels"}
ONLY_THE_HEAD = ("[!h]*",)
"""Pattern of frozen parameters: all names of a ViT but those that begin as its head's do."""


def realise(
    facts: Facts, scale: Scale, data: str = "", image: int | None = None, *, short: bool = False
) -> Training:
    """Return the training of the network that has these facts.

    Parameters
    ----------
    data
        The study's images: a name that `vitreous.data.load` takes, or a task as `SYN-B`. Facts may
        name others.
    image
        Their side in pixels, where it is not the scale's.
    short
        Whether to end after the warm-up, with the very bits that the full training has then.
    """
    facts = weight_facts(facts)
    check_possible(facts)
    build = scale.build(facts["model"], facts.get("size", ""))
    common, scale = scale, replace(scale, recipe=change_recipe(scale.recipe, build.recipe))
    name = str(facts.get("data", data))
    images = replace(scale.images, name=TASKS.get(name, name), image=image or scale.images.image)
    images = replace(images, held_out=float(facts.get("held_out", 0.0)))
    options = {**build.options, **_network(facts, build, images)}
    build = extend_build(replace(build, options=options), facts)
    options = dict(build.options)
    if "pretrained" in facts or "tuned" in facts:
        training = _tuned(facts, scale, build.name, options, images)
    else:
        training = _once(facts, scale, build.name, options, images)
        if facts.get("distilled"):
            training = replace(training, teacher=_teacher(facts, common, name, image))
    return replace(training, recipe=shortened(training.recipe)) if short else training


def shortened(recipe: Recipe) -> Recipe:
    """The recipe up to the end of its warm-up; a recipe in steps is not shortened."""
    if recipe.steps is not None or recipe.warmup_steps is not None:
        return recipe
    if recipe.warmup < 1 or recipe.warmup != int(recipe.warmup):
        raise VitreousError(
            f"The recipe {recipe.name!r} warms up for {recipe.warmup:g} epochs and can be ended "
            "after that only if they are whole ones, at least one."
        )
    return recipe.but(epochs=int(recipe.warmup), warmup_extra=False, cooldown=0)


def _network(facts: Facts, build: Build, images: Images) -> Options:
    """Options of the network."""
    plain = {"patch": "patch", "positions": "pos", "injection": "inject", "pool": "pool"}
    made: Options = {option: facts[fact] for fact, option in plain.items() if fact in facts}
    if "skipless" in facts:
        made["skipless"] = (facts["skipless"] - 1,)
    if "distilled" in facts:
        made["distilled"] = bool(facts["distilled"])
    if "heads" in facts or "head_dim" in facts:
        made |= _heads(facts, build)
    if "mixer" in facts:
        made["mixer"] = facts["mixer"]
        if facts["mixer"] == "mean":
            made["learn_pattern"] = True
    if "kernel" in facts:
        made |= _kernel(facts, images.image, made.get("patch", build.options["patch"]))
    return made | _convit(facts) | _alternet(facts, build)


def _heads(facts: Facts, build: Build) -> Options:
    """Half the depth, as in the papers' sweeps; without a `head_dim`, heads divide the width."""
    heads = {fact: facts[fact] for fact in ("heads", "head_dim") if fact in facts}
    return {"depth": _default(build, "depth") // 2, **heads}


def _kernel(facts: Facts, image: int | None, patch: int) -> Options:
    """Attention in neighbourhoods; one that holds the grid from any token is global attention."""
    side = (image or 32) // patch
    kernel = side if facts["kernel"] >= 2 * side - 1 else facts["kernel"]
    if kernel % 2 == 0 and kernel != side:
        raise VitreousError(
            f"A {facts['model']} cannot have kernel={kernel}, which has no centre and is not its "
            f"grid of {side} x {side}: take an odd one."
        )
    return {"mixer": "neighbourhood", "kernel": kernel, "pool": "gap"}


def _convit(facts: Facts) -> Options:
    made: Options = dict(TABLE_3[facts["ablation"]]) if "ablation" in facts else {}
    if "gpsa" in facts:
        made["gpsa"] = facts["gpsa"]
    if "strength" in facts:
        made["locality"] = facts["strength"]
    if facts.get("psa"):
        made["kind"] = "psa"
    if "cls" in facts:
        made["class_at"] = {"inside": "start"}[facts["cls"]]
    return made


def _alternet(facts: Facts, build: Build) -> Options:
    made: Options = {}
    if "msas" in facts:
        made["msa"] = tuple(int(count) for count in str(facts["msas"]).split(","))
    if "placement" in facts:
        made["place"] = facts["placement"]
    if "order" in facts:
        rising = tuple(_default(build, "heads"))
        constant = (round(sum(rising) / len(rising)),) * len(rising)
        made["heads"] = {"falling": rising[::-1], "constant": constant}[facts["order"]]
    if "blur" in facts:
        made |= {"smooth": "tanh", "smooth_place": facts["blur"]}
    return made


def _default(build: Build, option: str) -> Any:
    """The default of an option, from the network's options or from the table of sizes."""
    if (value := build.options.get(option, options_of(build.name).get(option))) is not None:
        return value
    return getattr(SIZES[build.name.partition("_")[2]], option)


def _once(facts: Facts, scale: Scale, name: str, options: Options, images: Images) -> Training:
    """A single training."""
    share = float(facts.get("fraction", 1.0))
    recipe = lengthened(_recipe(facts, scale), scale.patience.get(images.name, 1.0))
    if facts.get("schedule") == "samples":
        recipe = lengthened(recipe, 1 / share, warmup=True)
    recipe = _with_network(recipe, options)
    if facts.get("distilled"):
        recipe = recipe.but(objective="distil_hard")
    return Training(name, recipe, replace(images, fraction=share), int(facts.get("seed", 0)))


def _recipe(facts: Facts, scale: Scale) -> Recipe:
    """The recipe of a scale, changed as facts say."""
    recipe = scale.recipe
    if "optimiser" in facts:
        recipe = recipe.but(**scale.sgd)
    if "rate" in facts:
        recipe = recipe.but(lr=recipe.lr * facts["rate"])
    if "sam" in facts:
        recipe = recipe.but(sam=facts["sam"])
    if "augment" in facts:
        recipe = recipe.but(augment=scale.plain)
    return lengthened(recipe, float(facts.get("epochs", 1)))


def lengthened(recipe: Recipe, times: float, warmup: bool = False) -> Recipe:
    """The recipe with so many times the epochs; with `warmup`, the warm-up and the time between
    tests are longer in proportion."""
    if times == 1:
        return recipe
    changes: Options = {"epochs": max(1, round(recipe.epochs * times))}
    if warmup:
        changes |= {
            "warmup": float(max(1, round(recipe.warmup * times))),
            "test_every": max(1, round(times)),
        }
    return recipe.but(**changes)


def _with_network(recipe: Recipe, options: Options) -> Recipe:
    return recipe.but(**{f"model.{name}": value for name, value in options.items()})


def _teacher(facts: Facts, scale: Scale, data: str, image: int | None) -> Training:
    """The training of the teacher: the study's ResNet, on the same images."""
    shared = {
        name: facts[name] for name in ("fraction", "schedule", "data", "seed") if name in facts
    }
    return realise({"model": "resnet", **shared}, scale, data, image)


def _tuned(facts: Facts, scale: Scale, name: str, options: Options, images: Images) -> Training:
    """A fine-tuning and the training it starts from: after pre-training with a new head on a tenth
    of the images, otherwise with its own head on all images."""
    seed, tuning = int(facts.get("seed", 0)), _with_network(scale.finetune, options)
    if "pretrained" not in facts:
        before = _once(facts, scale, name, options, images)
        larger = replace(images, image=facts.get("resolution", images.image))
        return Training(name, tuning.but(head="keep"), larger, seed, start=before)
    before = Training(
        name, _pretraining(facts, scale, options), _pretraining_images(facts, images), seed
    )
    head = "last" if facts.get("head") == "last" else "zero"
    freeze = ONLY_THE_HEAD if facts.get("tuned") == "head" else ()
    return Training(
        name,
        tuning.but(head=head, freeze=freeze),
        replace(images, fraction=TENTH),
        seed,
        start=before,
    )


def _pretraining(facts: Facts, scale: Scale, options: Options) -> Recipe:
    """The recipe of pre-training: as many steps whatever the share of images, or fewer by facts.

    With labels, the head has a hidden layer. With masked patches, images are not augmented.
    """
    recipe = _with_network(scale.recipe, options)
    if facts["pretrained"] == "labels":
        recipe = recipe.but(**{"model.head": "tanh"})
    else:
        target, share = TARGETS[facts.get("target", "mean")], facts.get("corrupted", 0.5)
        recipe = recipe.but(
            objective="masked",
            masked_target=target,
            masked_share=share,
            weight_decay=0.0,
            augment=scale.plain,
        )
    recipe = lengthened(recipe, 1 / facts.get("unlabelled", 1), warmup=True)
    return lengthened(recipe, facts.get("steps", 1), warmup=True)


def _beside(data: str, name: str) -> str:
    """A task of the embedded world, or the data of that name beside the study's: with
    `npz:data/cifar10`, tiny100 is `npz:data/tiny100`."""
    if name in TASKS:
        return TASKS[name]
    kind, colon, path = data.rpartition(":")
    folder, slash, _ = path.rpartition("/")
    return f"{kind}{colon}{folder}{slash}{name}"


def _pretraining_images(facts: Facts, images: Images) -> Images:
    """The images of pre-training: those that are not for fine-tuning, or a share of them. A larger
    share contains a smaller one, so that the two never overlap. With `source`, all of that data."""
    if "source" in facts:
        return replace(
            images,
            name=_beside(images.name, str(facts["source"])),
            image=images.image or CIFAR_SIDE,
            held_out=0.0,
        )
    return replace(
        images, fraction=round(1 - (1 - TENTH) * facts.get("unlabelled", 1), 10), rest=True
    )
