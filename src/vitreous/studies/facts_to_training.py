"""Convert the facts that a claim asks for into a training: its network, recipe and images.

    training_for({"model": "vit", "pool": "gap"}, scale_named("small"), "tv:CIFAR10")

Only facts that the weights depend on matter. The checkpoint, the measured images, a second network,
and a resolution without fine-tuning are ignored. A fact that a network cannot have is an error.
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

TUNING_SHARE = 0.1
"""Share of the images used for fine-tuning; the others are for pre-training."""
CIFAR_SIDE = 32
"""Side in pixels of the images of other data to pre-train on, if the study names no size."""
TARGETS = {"mean": "colour", "small": "patch_colours", "full": "pixels"}
ONLY_THE_HEAD = ("[!h]*",)
"""Pattern of the parameters to freeze: all of a ViT but its head, whose names begin with h."""


def training_for(
    facts: Facts, scale: Scale, data: str = "", image: int | None = None, *, short: bool = False
) -> Training:
    """Return the training of the network with these facts.

    Parameters
    ----------
    data
        The study's images: a name that `vitreous.data.load` takes, or a task as `SYN-B`. Facts may
        name others.
    image
        Their side in pixels (default: the scale's).
    short
        Whether to end after the warm-up, with the same bits as the full training has there.
    """
    facts = weight_facts(facts)
    check_possible(facts)
    build = scale.build(facts["model"], facts.get("size", ""))
    common, scale = scale, replace(scale, recipe=change_recipe(scale.recipe, build.recipe))
    name = str(facts.get("data", data))
    images = replace(scale.images, name=TASKS.get(name, name), image=image or scale.images.image)
    images = replace(images, held_out=float(facts.get("held_out", 0.0)))
    options = {**build.options, **_network_options(facts, build, images)}
    build = extend_build(replace(build, options=options), facts)
    options = dict(build.options)
    if "pretrained" in facts or "tuned" in facts:
        training = _fine_tuning(facts, scale, build.name, options, images)
    else:
        training = _single_training(facts, scale, build.name, options, images)
        if facts.get("distilled"):
            training = replace(training, teacher=_teacher(facts, common, name, image))
    return replace(training, recipe=shortened(training.recipe)) if short else training


def shortened(recipe: Recipe) -> Recipe:
    """The recipe cut after its warm-up; a recipe whose length is in steps is not shortened."""
    if recipe.steps is not None or recipe.warmup_steps is not None:
        return recipe
    if recipe.warmup < 1 or recipe.warmup != int(recipe.warmup):
        raise VitreousError(
            f"The recipe {recipe.name!r} warms up for {recipe.warmup:g} epochs and can be ended "
            "after that only if they are whole ones, at least one."
        )
    return recipe.but(epochs=int(recipe.warmup), warmup_extra=False, cooldown=0)


def _network_options(facts: Facts, build: Build, images: Images) -> Options:
    """Options of the network that follow from facts."""
    renamed = {"patch": "patch", "positions": "pos", "injection": "inject", "pool": "pool"}
    options: Options = {option: facts[fact] for fact, option in renamed.items() if fact in facts}
    if "skipless" in facts:
        options["skipless"] = (facts["skipless"] - 1,)
    if "distilled" in facts:
        options["distilled"] = bool(facts["distilled"])
    if "heads" in facts or "head_dim" in facts:
        options |= _heads(facts, build)
    if "mixer" in facts:
        options["mixer"] = facts["mixer"]
        if facts["mixer"] == "mean":
            options["learn_pattern"] = True
    if "kernel" in facts:
        options |= _kernel(facts, images.image, options.get("patch", build.options["patch"]))
    return options | _convit(facts) | _alternet(facts, build)


def _heads(facts: Facts, build: Build) -> Options:
    """Options for other heads, with half the depth, as in the papers' sweeps.

    Without a `head_dim`, the heads divide the width.
    """
    heads = {fact: facts[fact] for fact in ("heads", "head_dim") if fact in facts}
    return {"depth": _default(build, "depth") // 2, **heads}


def _kernel(facts: Facts, image: int | None, patch: int) -> Options:
    """Options for attention within a neighbourhood of each token.

    A neighbourhood that covers the grid from every token is the same as global attention.
    """
    side = (image or 32) // patch
    kernel = side if facts["kernel"] >= 2 * side - 1 else facts["kernel"]
    if kernel % 2 == 0 and kernel != side:
        raise VitreousError(
            f"A {facts['model']} cannot have kernel={kernel}, which has no centre and is not its "
            f"grid of {side} x {side}: take an odd one."
        )
    return {"mixer": "neighbourhood", "kernel": kernel, "pool": "gap"}


def _convit(facts: Facts) -> Options:
    options: Options = dict(TABLE_3[facts["ablation"]]) if "ablation" in facts else {}
    if "gpsa" in facts:
        options["gpsa"] = facts["gpsa"]
    if "strength" in facts:
        options["locality"] = facts["strength"]
    if facts.get("psa"):
        options["kind"] = "psa"
    if "cls" in facts:
        options["class_at"] = {"inside": "start"}[facts["cls"]]
    return options


def _alternet(facts: Facts, build: Build) -> Options:
    options: Options = {}
    if "msas" in facts:
        options["msa"] = tuple(int(count) for count in str(facts["msas"]).split(","))
    if "placement" in facts:
        options["place"] = facts["placement"]
    if "order" in facts:
        rising = tuple(_default(build, "heads"))
        constant = (round(sum(rising) / len(rising)),) * len(rising)
        options["heads"] = {"falling": rising[::-1], "constant": constant}[facts["order"]]
    if "blur" in facts:
        options |= {"smooth": "tanh", "smooth_place": facts["blur"]}
    return options


def _default(build: Build, option: str) -> Any:
    """The default of an option, from the network's options or from the table of sizes."""
    if (value := build.options.get(option, options_of(build.name).get(option))) is not None:
        return value
    return getattr(SIZES[build.name.partition("_")[2]], option)


def _single_training(
    facts: Facts, scale: Scale, name: str, options: Options, images: Images
) -> Training:
    """The training of a network that is trained once, from random weights."""
    share = float(facts.get("fraction", 1.0))
    recipe = lengthened(_recipe(facts, scale), scale.epoch_factors.get(images.name, 1.0))
    if facts.get("schedule") == "samples":
        recipe = lengthened(recipe, 1 / share, warmup=True)
    recipe = _with_model_options(recipe, options)
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
    """The recipe with `times` as many epochs.

    With `warmup`, the warm-up and the epochs between tests are scaled as well.
    """
    if times == 1:
        return recipe
    changes: Options = {"epochs": max(1, round(recipe.epochs * times))}
    if warmup:
        changes |= {
            "warmup": float(max(1, round(recipe.warmup * times))),
            "test_every": max(1, round(times)),
        }
    return recipe.but(**changes)


def _with_model_options(recipe: Recipe, options: Options) -> Recipe:
    return recipe.but(**{f"model.{name}": value for name, value in options.items()})


def _teacher(facts: Facts, scale: Scale, data: str, image: int | None) -> Training:
    """The training of the teacher: the study's ResNet, on the same images."""
    shared = {
        name: facts[name] for name in ("fraction", "schedule", "data", "seed") if name in facts
    }
    return training_for({"model": "resnet", **shared}, scale, data, image)


def _fine_tuning(
    facts: Facts, scale: Scale, name: str, options: Options, images: Images
) -> Training:
    """A fine-tuning, with the training that it starts from.

    A pre-trained network gets a new head and a tenth of the images. A network that is only tuned,
    at another resolution for example, keeps its head and gets all images.
    """
    seed, tuning = int(facts.get("seed", 0)), _with_model_options(scale.finetune, options)
    if "pretrained" not in facts:
        before = _single_training(facts, scale, name, options, images)
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
        replace(images, fraction=TUNING_SHARE),
        seed,
        start=before,
    )


def _pretraining(facts: Facts, scale: Scale, options: Options) -> Recipe:
    """The recipe of pre-training.

    Its number of steps does not depend on the share of images; the fact `steps` reduces it. With
    labels, the head has a hidden layer. With masked patches, images are not augmented.
    """
    recipe = _with_model_options(scale.recipe, options)
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


def _source_data(data: str, name: str) -> str:
    """The data to pre-train on: a task of the embedded world, or a dataset beside the study's own.

    For a study of `npz:data/cifar10`, tiny100 is `npz:data/tiny100`.
    """
    if name in TASKS:
        return TASKS[name]
    kind, colon, path = data.rpartition(":")
    folder, slash, _ = path.rpartition("/")
    return f"{kind}{colon}{folder}{slash}{name}"


def _pretraining_images(facts: Facts, images: Images) -> Images:
    """The images of pre-training: those not used for fine-tuning, or a share of them.

    They are the complement of a share that contains the share for fine-tuning, so the two never
    overlap. With the fact `source`, all images of that data.
    """
    if "source" in facts:
        return replace(
            images,
            name=_source_data(images.name, str(facts["source"])),
            image=images.image or CIFAR_SIDE,
            held_out=0.0,
        )
    return replace(
        images, fraction=round(1 - (1 - TUNING_SHARE) * facts.get("unlabelled", 1), 10), rest=True
    )
