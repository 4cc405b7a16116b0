"""The vocabulary in which claims and studies describe a trained model.

A claim selects models by facts, and a study trains models with these facts, so neither depends on
the other. Only differences from the default are named: `model="vit"` is the ViT of the study, with
a class token, trained on all data to the end; `model="vit", pool="gap", fraction=0.1` has mean
pooling and was trained on a tenth of the images."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vitreous.errors import UnknownName, VitreousError

MODELS = {
    "resnet": "ResNet-18 or 50",
    "resnext": "ResNeXt",
    "vit": "ViT with a class token",
    "deit": "ViT with the heads and width of the ConViT",
    "convit": "ConViT",
    "pit": "PiT",
    "swin": "Swin",
    "twins": "Twins",
    "mixer": "MLP-Mixer",
    "alternet": "AlterNet",
    "hybrid": "ViT on the maps of a small ResNet",
    "window": "ViT with attention in windows",
    "identities": "no model: exact properties that are computed",
}
"""The models, and their meaning."""

FACTS = {
    "size": "`s` for the next larger size, `wide` for twice the width",
    "pool": "`gap`: mean of all tokens instead of a class token",
    "kernel": "attention within a neighbourhood of this many tokens per side; pooled by the mean",
    "patch": "side of a patch in pixels (default: that of the study)",
    "heads": "number of heads",
    "head_dim": "channels per head",
    "width": "`fixed`: heads divide a constant width",
    "positions": "position embedding: `none`, `1d`, `2d` or `relative`",
    "injection": "where positions are added: `every` block, or `shared` (default: at the stem)",
    "mixer": "replaces attention: `pool`, `identity`, or `mean` (its mean over images)",
    "sam": "radius ρ of sharpness-aware minimisation",
    "rate": "learning rate, as a multiple of that of the recipe",
    "augment": "`none`: trained without augmentation",
    "optimiser": "`sgd` instead of that of the recipe",
    "epochs": "length of training, as a multiple of that of the recipe",
    "blur": "2 x 2 blur at the `start` or `end` of each stage",
    "msas": "attention blocks of an AlterNet by stage (default: `0,1,1,2`)",
    "placement": "`start`: attention at the start of a stage (default: at its end)",
    "order": "heads over stages: `falling` or `constant` (default: rising)",
    "gpsa": "number of gated positional layers of a ConViT",
    "strength": "locality strength α",
    "ablation": "row `a` to `g` of Table 3 of d'Ascoli et al. 2021",
    "psa": "`True`: positional attention without gates",
    "distilled": "`True`: hard distillation from the ResNet",
    "cls": "`inside`: class token in all layers of a ConViT",
    "skipless": "number of a block without skips, from 1",
    "pretrained": "pre-trained on `masked` patches or on `labels`, then fine-tuned on a tenth",
    "source": "data of the pre-training, where it has other classes: a task, or a name beside the "
    "data of the study",
    "target": "what masked patches are predicted as: `mean`, `small` or `full`",
    "corrupted": "share of patches that are masked",
    "unlabelled": "share of the images used in pre-training",
    "steps": "share of the steps of pre-training",
    "tuned": "what is fine-tuned: `head` or `whole`",
    "resolution": "side of the images it is measured on; with `tuned`, fine-tuned on",
    "embedding": "positions at another resolution: `random` or `truncated` (default: interpolated)",
    "head": "`last`: fine-tuning starts with a new, random last layer",
    "fraction": "share of the training images",
    "schedule": "`samples`: the same number of images in total, whatever the share",
    "held_out": "share of the training images held out to choose between models",
    "measured": "curvature on `clean` images, or on those `held_out` (default: augmented images)",
    "beside": "facts of a second model that is measured together with it, as `vit seed=1`",
    "checkpoint": "`start`, `warmup`, `33` or `66` (default: the end of training)",
    "data": "task of the synthetic world (default: the images of the study)",
    "seed": "number of the training",
}
"""The facts about a model, and their meaning."""

BOOK_FACTS: dict[str, tuple[str, ...]] = {}
"""Facts that books of other packages add, and the models that can have each."""

OLDER_WORDS = {"moment": "checkpoint"}
"""Renamed facts: the word in files of older versions, and today's."""

Facts = Mapping[str, Any]
LEFT_OPEN = ("seed", "data")
"""Facts that a claim usually does not specify."""


def check_facts(model: str, facts: Facts) -> dict[str, Any]:
    """Facts with the model first, in the order of the vocabulary; an unknown word is an error."""
    if model not in MODELS:
        raise UnknownName("model among the facts", model, MODELS)
    for name in facts:
        if name not in FACTS and name in OLDER_WORDS:
            raise UnknownName("fact", name, (), f"It is called {OLDER_WORDS[name]!r} now.")
        if name not in FACTS:
            raise UnknownName("fact", name, FACTS)
    return {"model": model, **{name: facts[name] for name in FACTS if facts.get(name) is not None}}


def same_facts(facts: Facts, wanted: Facts, ignore: Collection[str] = LEFT_OPEN) -> bool:
    """Whether facts are those wanted; facts in `ignore` may be additional."""
    for name, value in wanted.items():
        if name not in facts or facts[name] != value:
            return False
    return all(name in wanted or name in ignore for name in facts)


def describe_facts(facts: Facts) -> str:
    """Facts as text, `vit pool=gap fraction=0.1`; `parse_facts` reads it."""
    others = " ".join(f"{name}={value}" for name, value in facts.items() if name != "model")
    return f"{facts['model']} {others}".strip()


def parse_facts(text: str) -> dict[str, Any]:
    """Facts from text, `vit pool=gap fraction=0.1`."""
    model, *others = text.split()
    pairs = (each.partition("=")[::2] for each in others)
    return {"model": model, **{name: _parse_value(value) for name, value in pairs}}


def read_older_words(text: str) -> str:
    """Replace the older words in facts as text by today's."""
    return re.sub(rf"\b({'|'.join(OLDER_WORDS)})=", lambda found: f"{OLDER_WORDS[found[1]]}=", text)


def write_older_words(text: str) -> str:
    """Replace today's words in facts as text by the older ones, for file names that must not
    change."""
    older = {today: before for before, today in OLDER_WORDS.items()}
    return re.sub(rf"\b({'|'.join(older)})=", lambda found: f"{older[found[1]]}=", text)


def read_older_facts(facts: Facts) -> dict[str, Any]:
    """Replace the older words in facts by today's."""
    return {
        OLDER_WORDS.get(name, name): read_older_words(value) if name == "beside" else value
        for name, value in facts.items()
    }


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False}.get(text, text)


def parse_roles(roles: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=vit pool=gap` to roles by model; raises for words outside the vocabulary."""
    parsed = {}
    for each in roles:
        name, _, role = (part.strip() for part in each.partition("="))
        if not name or not role:
            raise VitreousError(
                f"--role takes NAME=FACTS, for example run:mine='vit pool=gap', not {each!r}."
            )
        facts = parse_facts(role)
        check_facts(facts.pop("model"), facts)
        parsed[name] = role
    return parsed


BUILDS = {
    "vit": "vit",
    "deit": "deit",
    "convit": "convit",
    "alternet": "alternet",
    "preresnet": "resnet",
    "resnet": "resnet",
    "resnext": "resnext",
    "swin": "swin",
    "twins": "twins",
    "pit": "pit",
    "mixer": "mixer",
    "hybrid": "hybrid",
}
"""Families of `vitreous.build`, and the models of the vocabulary that they are."""


PLAIN_OPTIONS: Mapping[str, Any] = {
    "pos": "1d",
    "inject": "stem",
    "mixer": "attention",
    "skipless": [],
    "smooth": None,
    "kind": "gpsa",
    "gate": "trained",
    "conv_init": True,
}
"""Options that can make a network a variant of its family, with their values if they do not."""


def role_of_build(build: Mapping[str, Any]) -> str:
    """The role of a network made by `vitreous.build`, from its recorded options; "" if it has none.

    A variant has no automatic role: a ViT without positions, for example, is not the papers' ViT.
    """
    family = str(build.get("name", "")).partition("_")[0].partition("/")[0]
    role = BUILDS.get(family, "")
    if any(build.get(option, plain) != plain for option, plain in PLAIN_OPTIONS.items()):
        return ""
    if role == "resnet" and any(build.get("msa") or ()):  # it has attention
        return ""
    if role != "vit":
        return role
    return {None: "vit", "class": "vit", "gap": "vit pool=gap"}.get(build.get("pool"), "")


CHECKPOINTS = {"start": "initial", "warmup": "warmup", "33": "33", "66": "66", None: "final"}
"""The name in a run's folder of each value of the fact `checkpoint`."""
MEASURING = ("checkpoint", "measured", "beside")
"""Facts about the measurement, on which the weights do not depend."""
RESIZING = ("resolution", "embedding")
"""More facts about the measurement, unless the network is fine-tuned at that resolution."""
ANY_NETWORK = (
    "size", "sam", "rate", "augment", "optimiser", "epochs", "fraction", "schedule", "held_out",
    "data", "seed",
)  # fmt: skip
"""Facts about the training, which any network can have."""
FINE_TUNING = (
    "pretrained",
    "source",
    "target",
    "corrupted",
    "unlabelled",
    "steps",
    "tuned",
    "head",
)
NETWORK = {
    "vit": ("pool", "kernel", "patch", "heads", "head_dim", "width", "positions", "injection",
            "mixer", "skipless", *FINE_TUNING),
    "deit": ("pool", "positions", "injection", "skipless", "distilled"),
    "convit": ("positions", "gpsa", "strength", "ablation", "psa", "cls"),
    "alternet": ("blur", "msas", "placement", "order"),
    "hybrid": ("pool", "positions", "injection"),
    "window": ("positions", "injection"),
}  # fmt: skip
"""Facts that only some networks can have."""
DEPENDENT = {
    "width": "heads",
    "embedding": "resolution",
    **dict.fromkeys(("source", "target", "corrupted", "unlabelled", "steps", "head"), "pretrained"),
}
"""Facts that mean nothing without another."""
EXCLUSIVE = (
    ("kernel", "mixer"), ("ablation", "gpsa"), ("head_dim", "width"), ("ablation", "psa"),
    ("source", "unlabelled"),
)  # fmt: skip
"""Facts that choose the same thing."""
ONE_TRAINING = ("sam", "rate", "augment", "optimiser", "epochs", "fraction", "schedule")
"""Facts that are ambiguous where a network is trained twice."""


def weight_facts(facts: Facts) -> dict[str, Any]:
    """The facts that weights depend on, in the order of the vocabulary."""
    known = check_facts(
        str(facts["model"]), {name: value for name, value in facts.items() if name != "model"}
    )
    left_out = MEASURING if "tuned" in known else (*MEASURING, *RESIZING)
    return {name: value for name, value in known.items() if name not in left_out}


def check_possible(facts: Facts) -> None:
    """Raise for facts that this network cannot have, and for facts that exclude each other."""
    model, twice = facts["model"], "pretrained" in facts or "tuned" in facts
    possible = {"model", *ANY_NETWORK, *_network_facts(model)}
    if "tuned" in facts:
        possible |= set(RESIZING)
    for fact in facts:
        if fact not in possible:
            having = ", ".join(each for each in MODELS if fact in _network_facts(each)) or "none"
            raise VitreousError(
                f"A {model} cannot have {fact}={facts[fact]!r}; these can: {having}."
            )
    for fact, needed in DEPENDENT.items():
        if fact in facts and needed not in facts:
            raise VitreousError(
                f"{describe_facts(facts)}: {fact} says nothing without {needed}; say that too."
            )
    if "embedding" in facts:
        raise VitreousError(
            f"{describe_facts(facts)} is fine-tuned from interpolated positions: leave out "
            "embedding or "
            "tuned."
        )
    for fact in ONE_TRAINING:
        if twice and fact in facts:
            raise VitreousError(
                f"{describe_facts(facts)} is trained twice, and {fact} does not say which time: "
                "leave it out."
            )
    for one, other in EXCLUSIVE:
        if one in facts and other in facts:
            raise VitreousError(
                f"{describe_facts(facts)}: {one} and {other} both choose the same thing; say one "
                "of them."
            )


def _network_facts(model: str) -> tuple[str, ...]:
    """Facts that this network can have, but not every network."""
    of_books = [fact for fact, models in BOOK_FACTS.items() if model in models]
    return (*NETWORK.get(model, ()), *of_books)


MODEL_TITLES = {
    "vit": "ViT", "deit": "DeiT", "convit": "ConViT", "pit": "PiT", "resnet": "ResNet",
    "resnext": "ResNeXt", "alternet": "AlterNet", "mixer": "MLP-Mixer",
    "window": "ViT in windows", "hybrid": "hybrid ViT",
}  # fmt: skip
_POSITIONS = {
    "none": "no positions", "1d": "1-d positions", "2d": "2-d positions",
    "relative": "relative positions",
}  # fmt: skip
_MIXERS = {
    "pool": "pooling for attention",
    "identity": "no mixing",
    "mean": "attention that knows no image",
}
_CHECKPOINTS = {
    "start": "before training",
    "warmup": "end of warm-up",
    "33": "a third of training",
    "66": "two thirds",
}
FACT_TITLES: Mapping[str, Callable[[Any], str]] = {
    "size": lambda v: "larger" if v == "s" else "twice as wide",
    "pool": lambda v: "mean pooling",
    "kernel": lambda v: f"{v} x {v} neighbourhoods",
    "patch": lambda v: f"patches of {v} pixels",
    "heads": lambda v: f"{v} head{'s' * (v != 1)}",
    "head_dim": lambda v: f"heads {v} wide",
    "width": lambda v: "width fixed",
    "positions": lambda v: _POSITIONS[v],
    "injection": lambda v: (
        "positions in every block" if v == "every" else "the same positions in every block"
    ),
    "mixer": lambda v: _MIXERS[v],
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
    "source": lambda v: f"of {v}",
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
    "checkpoint": lambda v: _CHECKPOINTS[v],
    "data": lambda v: str(v),
    "seed": lambda v: f"seed {v}" if v else "",
}
"""Functions that return the words of a fact in a title, from its value."""


def title_of(facts: Facts) -> str:
    """Facts as a readable title: `ViT, mean pooling, 10 % of the images, end of warm-up`."""
    model = str(facts["model"])
    titles = [FACT_TITLES[name](value) for name, value in facts.items() if name in FACT_TITLES]
    titles += [f"{name} {value}" for name, value in facts.items() if name in BOOK_FACTS]
    return ", ".join([MODEL_TITLES.get(model, model.capitalize()), *filter(None, titles)])
