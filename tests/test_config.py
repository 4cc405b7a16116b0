"""Recipes as values: they check themselves, go to JSON and back, and change one field at a time."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from vitreous.config import AUGMENT, FIELDS, Augment, Recipe
from vitreous.errors import UnknownName, VitreousError

ODD = Recipe(
    name="odd", epochs=7, betas=(0.8, 0.95), schedule="step", milestones=(2, 4), clip=1.5, sam=0.1,
    freeze=("a.*", "b"),
    model={"drop_path": 0.1, "skipless": (6,)}, augment=Augment(area=(0.2, 0.9), mixup=0.8,
    crop="resized"),
)  # fmt: skip


@pytest.mark.parametrize("recipe", [Recipe(), ODD], ids=["plain", "odd"])
def test_json_and_back(recipe: Recipe) -> None:
    text = json.dumps(recipe.to_json())
    assert Recipe.from_json(json.loads(text)) == recipe
    assert json.loads(text) == json.loads(json.dumps(asdict(recipe) | {"keep": "moments"}))


def test_files_keep_the_first_word_for_checkpoints() -> None:
    """A run is recognised by a checksum of its recipe, so runs from before resume."""
    assert Recipe().keep == "checkpoints"
    assert [Recipe(keep=each).to_json()["keep"] for each in ("none", "epochs")] == [
        "none",
        "epochs",
    ]
    assert Recipe.from_json({"keep": "moments"}) == Recipe.from_json({"keep": "checkpoints"})


def test_an_unknown_field_of_a_recipe_is_an_error() -> None:
    with pytest.raises(
        UnknownName, match=r"There is no field of a recipe 'epoch'\. Did you mean epochs"
    ):
        Recipe.from_json({**Recipe().to_json(), "epoch": 3})
    with pytest.raises(UnknownName, match=r"'augment\.mixupp'\. Did you mean augment\.mixup"):
        Recipe.from_json({"augment": {"mixupp": 1.0}})


def test_but_changes_the_given_fields_only() -> None:
    changed = ODD.but(
        epochs=20, **{"augment.mixup": 0.5, "model.drop_path": 0.3, "betas": [0.7, 0.8]}
    )
    before, after = asdict(ODD), asdict(changed)
    assert {key for key in FIELDS if before[key] != after[key]} == {
        "epochs",
        "betas",
        "augment",
        "model",
    }
    assert (changed.epochs, changed.betas) == (20, (0.7, 0.8))
    assert changed.augment == Augment(area=(0.2, 0.9), mixup=0.5, crop="resized")
    assert changed.model == {"drop_path": 0.3, "skipless": (6,)}
    assert ODD.augment.mixup == 0.8
    assert ODD.but(augment=Augment(), **{"augment.flip": 0.1}).augment == Augment(flip=0.1)
    with pytest.raises(FrozenInstanceError):
        ODD.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": "ten"}, "epochs='ten' is not a whole number"),
        ({"epochs": True}, "epochs=True is not a whole number"),
        ({"epochs": 0}, "epochs 0 is not positive"),
        ({"lr": -1.0}, r"lr -1\.0 is not positive"),
        ({"clip": 0.0}, r"clip 0\.0 is not positive"),
        ({"weight_decay": -0.1}, r"weight_decay -0\.1 is negative"),
        ({"ema": 1.5}, r"ema 1\.5 is not between 0 and 1"),
        ({"optimiser": "adam"}, "optimiser='adam' is not one of 'adamw', 'sgd'"),
        ({"betas": (0.9,)}, r"betas=\(0\.9,\) is not"),
        ({"augment": "none"}, "augment='none' is not Augment"),
        ({"model": 3}, "model=3 is not"),
        ({"augment.flip": 2.0}, r"augment\.flip 2\.0 is not between 0 and 1"),
        ({"augment.crop": "cut"}, r"augment\.crop='cut' is not one of"),
        ({"augment.repeats": 0}, r"augment\.repeats 0 is not positive"),
        ({"epochs": 3, "warmup": 5.5}, r"a warm-up of 5\.5 epochs does not fit into 3"),
        ({"schedule": "step"}, "schedule 'step' needs milestones"),
    ],
)
def test_what_cannot_be_followed(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(VitreousError, match=f"^The recipe 'custom' cannot be followed: {sentence}"):
        Recipe().but(**changes)


def test_all_errors_of_a_recipe_are_reported_at_once() -> None:
    with pytest.raises(
        VitreousError, match=r"epochs 0 is not positive; batch -1 is not positive; augment\.flip"
    ):
        Recipe().but(epochs=0, batch=-1, **{"augment.flip": -1.0})


def test_a_warm_up_before_the_epochs_may_be_longer() -> None:
    assert Recipe(epochs=3, warmup=5.0, warmup_extra=True).epochs == 3


def test_unknown_names() -> None:
    assert "augment.smoothing" in AUGMENT
    with pytest.raises(UnknownName, match="Did you mean optimiser"):
        Recipe().but(optimizer="sgd")
    with pytest.raises(UnknownName, match=r"'model\.'"):
        Recipe().but(**{"model.": 1})
