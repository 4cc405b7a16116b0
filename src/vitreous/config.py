"""`Recipe`, the settings of a training, and the `Augment` inside it, as plain values without torch.

A recipe is frozen, checks itself, converts to JSON and back, and is changed with
`recipe.but(epochs=20, **{"augment.mixup": 0.8})`. The papers' recipes are functions in
`vitreous.recipes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from vitreous.errors import UnknownName, VitreousError
from vitreous.validation import annotation_in_words, as_tuples, fits_annotation, type_hints

Kept = Literal["none", "checkpoints", "epochs"]
"""Weights to keep: none, those of checkpoints, or those of every epoch."""


@dataclass(frozen=True, kw_only=True)
class Augment:
    """The augmentation of training images, in this order; each image has its own random numbers."""

    # Shifted by up to `padding` pixels, or a crop of random area that is resized.
    crop: Literal["none", "pad", "resized"] = "pad"
    padding: int = 4  # pixels, for crop="pad"; filled with black
    area: tuple[float, float] = (0.08, 1.0)  # share of the image, for crop="resized"
    flip: float = 0.5  # probability of a horizontal flip
    randaugment: str = ""  # timm's spelling, "rand-m9-n2-mstd1.0"; "" for none
    jitter: float = 0.0  # strength of brightness, contrast and saturation
    erasing: float = 0.0  # probability of a rectangle of noise
    mixup: float = 0.0  # alpha; 0 for none
    cutmix: float = 0.0  # alpha; 0 for none
    mix_prob: float = 1.0  # share of batches that are mixed
    switch_prob: float = 0.5  # of those, the share mixed by CutMix, where both are on
    smoothing: float = 0.0  # label smoothing
    # How often each image appears in a batch, augmented anew (repeated augmentation); once less for
    # the last copies if `repeats` does not divide the batch.
    repeats: int = 1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained. Lengths are in epochs unless `steps` or `warmup_steps` is given.

    Examples
    --------
    >>> Recipe(name="short", epochs=10, warmup=1, lr=1e-3).but(batch=64).batch
    64
    """

    name: str = "custom"
    epochs: int = 100
    steps: int | None = None  # length in steps instead of epochs
    batch: int = 512  # images per step, over all processes
    optimiser: Literal["adamw", "sgd"] = "adamw"
    lr: float = 5e-4  # the maximum
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.05
    # Weight decay for all parameters, or not for 1-D ones, positions and tokens.
    decay: Literal["all", "matrices"] = "matrices"
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    # How often the schedule changes lr; the warm-up changes it every step.
    paced: Literal["step", "epoch"] = "step"
    # For schedule="step": epochs after which lr is multiplied by gamma.
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    warmup: float = 5.0  # epochs of linear warm-up
    warmup_steps: int | None = None
    warmup_from: float = 0.0  # lr at the start
    warmup_extra: bool = False  # the warm-up is added to the epochs
    last_lr: float = 0.0  # lr at the end of the schedule
    cooldown: int = 0  # epochs at last_lr, after the epochs
    clip: float | None = None  # maximum norm of the gradient
    ema: float | None = None  # decay of the moving average of the weights, which is then tested
    sam: float | None = None  # radius rho of sharpness-aware minimisation
    objective: Literal["classify", "distil_hard", "distil_soft", "masked"] = "classify"
    tau: float = 3.0  # temperature of soft distillation
    taught: float = 0.5  # weight of the teacher's term
    masked_target: Literal["colour", "patch_colours", "pixels"] = "colour"
    masked_share: float = 0.5  # of the patches
    freeze: tuple[str, ...] = ()  # patterns of names of parameters that are not trained
    # "zero": a new head of zeros; "last": a new, randomly initialised last layer.
    head: Literal["keep", "zero", "last"] = "keep"
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # auto is bf16 on a GPU and fp32 elsewhere
    test_every: int = 1  # epochs between tests; the first and the last epoch are always tested
    # Checkpoints: the start, the end of warm-up, 33, 66 and 100 %; or every epoch.
    keep: Kept = "checkpoints"
    # Options of the model, such as drop_path.
    model: Mapping[str, Any] = field(default_factory=dict)
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self) -> None:
        wrong = [*_field_errors(self)]
        if isinstance(self.augment, Augment):
            wrong += _field_errors(self.augment, "augment.")
        if wrong := wrong or [*_conflicts(self)]:
            raise VitreousError(f"The recipe {self.name!r} cannot be followed: {'; '.join(wrong)}.")

    def but(self, **changes: Any) -> Recipe:
        """A copy with some fields changed; a dot reaches inside.

        Examples
        --------
        >>> Recipe().but(epochs=20, **{"augment.mixup": 0.8, "model.drop_path": 0.1}).epochs
        20
        """
        direct: dict[str, Any] = {}
        inside: dict[str, dict[str, Any]] = {"augment": {}, "model": {}}
        for key, value in changes.items():
            part, _, name = key.partition(".")
            if key in FIELDS:
                direct[key] = as_tuples(value)
            elif key in AUGMENT or (part == "model" and name):
                inside[part][name] = as_tuples(value)
            else:
                raise UnknownName("field of a recipe", key, [*FIELDS, *AUGMENT])
        if inside["augment"]:
            direct["augment"] = replace(direct.get("augment", self.augment), **inside["augment"])
        if inside["model"]:
            direct["model"] = {**direct.get("model", self.model), **inside["model"]}
        return replace(self, **direct)

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain values, for files."""
        values = asdict(self)
        # Files keep this older word: a run is recognised by a checksum of its recipe.
        return values | {"keep": "moments"} if self.keep == "checkpoints" else values

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Recipe:
        """Rebuild a recipe from what `to_json` returned; unknown fields raise."""
        if given.get("keep") == "moments":
            given = {**given, "keep": "checkpoints"}
        inner = {f"augment.{key}": value for key, value in given.get("augment", {}).items()}
        return cls().but(
            **{key: value for key, value in given.items() if key != "augment"}, **inner
        )


FIELDS = tuple(each.name for each in fields(Recipe))
AUGMENT = tuple(f"augment.{each.name}" for each in fields(Augment))


def _field_errors(config: Recipe | Augment, prefix: str = "") -> Iterator[str]:
    """Errors about fields of another type than declared, or out of range."""
    kind: Any = type(config)
    hints = type_hints(kind)
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
    """Errors about fields that contradict each other."""
    in_epochs = not recipe.warmup_extra and recipe.steps is None and recipe.warmup_steps is None
    if in_epochs and recipe.warmup > recipe.epochs:
        yield f"a warm-up of {recipe.warmup:g} epochs does not fit into {recipe.epochs}"
    if recipe.schedule == "step" and not recipe.milestones:
        yield "schedule 'step' needs milestones"


POSITIVE = {"epochs", "steps", "batch", "lr", "eps", "clip", "sam", "tau", "repeats", "test_every"}
NOT_NEGATIVE = {
    "weight_decay", "warmup", "warmup_steps", "warmup_from", "last_lr", "cooldown", "padding",
    "jitter", "mixup", "cutmix", "momentum",
}  # fmt: skip
SHARES = {
    "ema", "taught", "masked_share", "flip", "erasing", "mix_prob", "switch_prob", "smoothing",
}  # fmt: skip


def assignment(text: str) -> tuple[str, Any]:
    """Parse `epochs=20` as name and value; a value that is not valid JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise VitreousError(f"--set takes NAME=VALUE, for example epochs=20, and not {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)
