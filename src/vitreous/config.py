"""What a training is made of, as plain values: `Recipe` and the `Augment` inside it. No torch here.

A recipe is frozen, checks itself, goes to JSON and back, and is changed with `recipe.but(epochs=20,
**{"augment.mixup": 0.8})`. The papers' recipes (section D of the catalogue) are functions in
`vitreous.recipes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_type_hints

from vitreous.errors import UnknownName, VitreousError
from vitreous.validation import annotation_in_words, as_tuples, fits_annotation

Moments = Literal["none", "moments", "epochs"]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """What happens to a training image, in this order; every number is drawn for each image on
    its own."""

    crop: Literal["none", "pad", "resized"] = (
        "pad"  # shifted by up to `padding` pixels, or an area cut out and resized
    )
    padding: int = 4  # of crop="pad", filled with black
    area: tuple[float, float] = (0.08, 1.0)  # of crop="resized": share of the image
    flip: float = 0.5  # probability of mirroring left and right
    randaugment: str = ""  # timm's spelling, "rand-m9-n2-mstd1.0"; "" for none
    jitter: float = 0.0  # strength of brightness, contrast and saturation
    erasing: float = 0.0  # probability of a rectangle of noise
    mixup: float = 0.0  # alpha; 0 for none
    cutmix: float = 0.0  # alpha; 0 for none
    mix_prob: float = 1.0  # share of batches that are mixed at all
    switch_prob: float = 0.5  # of those, the share mixed by CutMix, where both are on
    smoothing: float = 0.0  # label smoothing
    # times each image appears in a batch, augmented anew; the last one fewer where they do not
    # divide
    repeats: int = 1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained. Lengths are in epochs unless `steps` or `warmup_steps` is given."""

    name: str = "custom"
    epochs: int = 100
    steps: int | None = None  # the whole length in steps, instead of epochs
    batch: int = 512  # images of one step, over all processes together
    optimiser: Literal["adamw", "sgd"] = "adamw"
    lr: float = 5e-4  # the highest
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.05
    decay: Literal["all", "matrices"] = (
        "matrices"  # every parameter; or none of the 1-D ones, positions and tokens
    )
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    paced: Literal["step", "epoch"] = (
        "step"  # how often the schedule moves; the warm-up moves every step
    )
    milestones: tuple[
        int, ...
    ] = ()  # of schedule="step": epochs after which lr is multiplied by gamma
    gamma: float = 0.1
    warmup: float = 5.0  # epochs of linear growth
    warmup_steps: int | None = None
    warmup_from: float = 0.0  # lr at the very start
    warmup_extra: bool = False  # the warm-up comes before the epochs, not out of them
    last_lr: float = 0.0  # where the schedule ends
    cooldown: int = 0  # epochs at last_lr, after the epochs
    clip: float | None = None  # largest norm of the gradient
    ema: float | None = (
        None  # decay of the running mean of the weights, which is then what is tested
    )
    sam: float | None = None  # radius rho of sharpness-aware minimisation
    objective: Literal["classify", "distil_hard", "distil_soft", "masked"] = "classify"
    tau: float = 3.0  # temperature of soft distillation
    taught: float = 0.5  # weight of the teacher's term
    masked_target: Literal["colour", "patch_colours", "pixels"] = "colour"
    masked_share: float = 0.5  # of the patches that are corrupted
    freeze: tuple[str, ...] = ()  # patterns of parameter names that stay as they are
    head: Literal["keep", "zero", "last"] = (
        "keep"  # "zero": a whole new head of zeros; "last": a new last layer, drawn
    )
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # auto is bf16 on a GPU and fp32 elsewhere
    test_every: int = (
        1  # epochs from one test to the next; the first and the last are always tested
    )
    keep: Moments = (
        "moments"  # weights at the start, end of warm-up, 33, 66 and 100 %; or of every epoch
    )
    model: Mapping[str, Any] = field(
        default_factory=dict
    )  # options the model is built with, drop_path for one
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self) -> None:
        wrong = [*_misfits(self)]
        if isinstance(self.augment, Augment):
            wrong += _misfits(self.augment, "augment.")
        if wrong := wrong or [*_conflicts(self)]:
            raise VitreousError(f"The recipe {self.name!r} cannot be followed: {'; '.join(wrong)}.")

    def but(self, **changes: Any) -> Recipe:
        """The same with some fields changed; a dot reaches inside: `augment.mixup`,
        `model.drop_path`."""
        own: dict[str, Any] = {}
        inside: dict[str, dict[str, Any]] = {"augment": {}, "model": {}}
        for key, value in changes.items():
            room, _, name = key.partition(".")
            if key in FIELDS:
                own[key] = as_tuples(value)
            elif key in AUGMENT or (room == "model" and name):
                inside[room][name] = as_tuples(value)
            else:
                raise UnknownName("field of a recipe", key, [*FIELDS, *AUGMENT])
        if inside["augment"]:
            own["augment"] = replace(own.get("augment", self.augment), **inside["augment"])
        if inside["model"]:
            own["model"] = {**own.get("model", self.model), **inside["model"]}
        return replace(self, **own)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Recipe:
        """What `to_json` gave; fields that this version does not know are an error, because they
        would be ignored."""
        inner = {f"augment.{key}": value for key, value in given.get("augment", {}).items()}
        return cls().but(
            **{key: value for key, value in given.items() if key != "augment"}, **inner
        )


FIELDS = tuple(each.name for each in fields(Recipe))
AUGMENT = tuple(f"augment.{each.name}" for each in fields(Augment))


def _misfits(config: Recipe | Augment, prefix: str = "") -> Iterator[str]:
    """Fields whose value is not of the declared type, or out of the range that its name implies."""
    hints = get_type_hints(type(config))
    for each in fields(config):
        value = getattr(config, each.name)
        if not fits_annotation(value, hints[each.name]):
            yield f"{prefix}{each.name}={value!r} is not {annotation_in_words(hints[each.name])}"
        elif each.name in POSITIVE and value is not None and value <= 0:
            yield f"{prefix}{each.name} {value} is not positive"
        elif each.name in NOT_NEGATIVE and value is not None and value < 0:
            yield f"{prefix}{each.name} {value} is negative"
        elif each.name in SHARES and value is not None and not 0 <= value <= 1:
            yield f"{prefix}{each.name} {value} is not between 0 and 1"


def _conflicts(recipe: Recipe) -> Iterator[str]:
    """Fields that are right alone and wrong together."""
    in_epochs = not recipe.warmup_extra and recipe.steps is None and recipe.warmup_steps is None
    if in_epochs and recipe.warmup > recipe.epochs:
        yield f"a warm-up of {recipe.warmup:g} epochs does not fit into {recipe.epochs}"
    if recipe.schedule == "step" and not recipe.milestones:
        yield "schedule 'step' needs milestones"


POSITIVE = {"epochs", "steps", "batch", "lr", "eps", "clip", "sam", "tau", "repeats", "test_every"}
NOT_NEGATIVE = {
    "weight_decay",
    "warmup",
    "warmup_steps",
    "warmup_from",
    "last_lr",
    "cooldown",
    "padding",
    "jitter",
}
NOT_NEGATIVE |= {"mixup", "cutmix", "momentum"}
SHARES = {
    "ema",
    "taught",
    "masked_share",
    "flip",
    "erasing",
    "mix_prob",
    "switch_prob",
    "smoothing",
}


def assignment(text: str) -> tuple[str, Any]:
    """`epochs=20` as name and value; what JSON does not understand is a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise VitreousError(f"--set takes NAME=VALUE, epochs=20 for one, and not {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)
