"""The papers' recipes against the numbers of section D, and the folder as registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vitreous
from vitreous import recipes
from vitreous.config import Recipe
from vitreous.errors import UnknownName
from vitreous.training.recipes import dascoli_2021, dosovitskiy_2021, park_2022, raghu_2021

D: dict[str, dict[str, Any]] = {
    "hdv_cifar": {
        "optimiser": "adamw", "lr": 1.25e-4, "weight_decay": 0.05, "decay": "all",
        "schedule": "cosine", "epochs": 300,
        "warmup": 5, "warmup_extra": True, "paced": "epoch", "last_lr": 0, "batch": 96, "clip": 5,
        "model": {"drop_path": 0.1}, "augment.crop": "pad", "augment.padding": 4,
            "augment.flip": 0.5,
        "augment.randaugment": "rand-m9-n2-mstd1.0", "augment.erasing": 0, "augment.jitter": 0,
        "augment.mixup": 1.0,
        "augment.cutmix": 0.8, "augment.mix_prob": 1, "augment.smoothing": 0.1,
        "augment.repeats": 1,
    },
    "hdv_noaug": {
        "lr": 1.25e-4, "epochs": 300, "clip": None, "augment.crop": "pad", "augment.flip": 0.5,
        "augment.randaugment": "", "augment.mixup": 0, "augment.cutmix": 0, "augment.smoothing": 0,
        "model": {"drop_path": 0.1},
    },
    "hdv_general": {
        "optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 5e-4,
        "epochs": 200,
        "warmup": 1, "warmup_extra": True, "milestones": (60, 120, 160), "gamma": 0.2,
        "batch": 128, "clip": None,
        "augment.mixup": 0, "augment.smoothing": 0, "augment.crop": "pad", "model": {},
    },
    "hdv_imagenet": {
        "lr": 1.25e-4, "batch": 128, "epochs": 300, "clip": None, "augment.crop": "resized",
        "augment.erasing": 0.25,
        "augment.randaugment": "rand-m9-n2-mstd0.5", "augment.mixup": 1.0, "augment.cutmix": 0.8,
        "augment.smoothing": 0.1, "model": {"drop_path": 0.1},
    },
    "hdv_imagenet_general": {
        "optimiser": "sgd", "lr": 0.1, "weight_decay": 1e-4, "epochs": 90, "milestones": (30, 60,
        80), "gamma": 0.1,
        "batch": 256,
    },
    "fast": {"batch": 512, "lr": 6.7e-4, "epochs": 100, "warmup": 5, "warmup_extra": True,
        "clip": 5, "decay": "all",
             "model": {"drop_path": 0.1}, "augment.mixup": 1.0, "augment.cutmix": 0.8},
    "ablation": {"batch": 512, "lr": 6.7e-4, "epochs": 30, "warmup": 5},
    "smoothing": {"optimiser": "sgd", "lr": 0.1, "batch": 128, "model": {"smooth": "tanh"}},
    "deit": {
        "epochs": 300, "batch": 1024, "optimiser": "adamw", "lr": 1e-3, "eps": 1e-8,
        "weight_decay": 0.05,
        "decay": "matrices", "schedule": "cosine", "warmup": 5, "warmup_from": 1e-6,
        "warmup_extra": False,
        "last_lr": 1e-5, "clip": None, "ema": None, "model": {"drop_path": 0.1},
        "augment.smoothing": 0.1,
        "augment.repeats": 3, "augment.randaugment": "rand-m9-mstd0.5-inc1",
        "augment.erasing": 0.25,
        "augment.mixup": 0.8, "augment.cutmix": 1.0, "augment.mix_prob": 1.0,
        "augment.switch_prob": 0.5,
    },
    "deit_plus": {"batch": 512, "lr": 4e-4, "epochs": 300},
    "convit_plus": {"batch": 512, "lr": 4e-4, "epochs": 300},
    "convit": {"batch": 1024, "lr": 1e-3, "epochs": 300},
    "convit_cifar": {"epochs": 1000, "lr": 1e-3},
    "convit_frozen": {"freeze": ("blocks.[0-9].attn.*",)},
    "deit_distilled": {"objective": "distil_hard", "taught": 0.5, "model": {"drop_path": 0.1,
        "distilled": True}},
    "deit_distilled_soft": {"objective": "distil_soft", "tau": 3.0, "taught": 0.1},
    "vit_pretrain": {
        "lr": 3e-3, "weight_decay": 0.3, "epochs": 300, "schedule": "cosine", "clip": 1,
        "batch": 4096,
        "betas": (0.9, 0.999), "warmup_steps": 10_000, "model": {"head": "tanh", "dropout": 0.1},
    },
    "vit_pretrain_in21k": {"lr": 1e-3, "weight_decay": 0.03, "epochs": 90, "schedule": "linear",
        "clip": None,
                           "model": {"head": "tanh", "dropout": 0.1}},
    "vit_pretrain_jft": {"lr": 8e-4, "weight_decay": 0.1, "epochs": 7, "schedule": "linear",
        "clip": None,
                         "model": {"head": "tanh", "dropout": 0.0}},
    "masked": {"objective": "masked", "steps": 1_000_000, "batch": 4096, "lr": 2e-4,
        "warmup_steps": 10_000,
               "schedule": "cosine", "masked_target": "colour", "masked_share": 0.5},
    "vit_finetune": {
        "optimiser": "sgd", "momentum": 0.9, "batch": 512, "weight_decay": 0,
        "schedule": "cosine", "clip": 1,
        "steps": 10_000, "lr": 0.03, "warmup_steps": 500, "head": "zero",
    },
    "vit_finetune_imagenet": {"steps": 20_000, "ema": 0.9999, "warmup_steps": 500},
    "vit_finetune_pets": {"steps": 500, "warmup_steps": 100},
    "vit_finetune_vtab": {"steps": 2500, "lr": 0.01, "warmup_steps": 500},
    "vit_gap": {"lr": 3e-4, "epochs": 7, "model": {"head": "tanh", "dropout": 0.0, "pool": "gap"}},
}  # fmt: skip
"""Section D, typed in once more from the catalogue."""

PAPERS = (park_2022, dascoli_2021, dosovitskiy_2021, raghu_2021)


def reach(recipe: Recipe, key: str) -> Any:
    value: Any = recipe
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", D)
def test_numbers_of_the_papers(name: str) -> None:
    recipe = recipes.named(name)
    assert {key: reach(recipe, key) for key in D[name]} == D[name]


def test_every_recipe_of_a_paper_is_checked_above() -> None:
    functions = {name for paper in PAPERS for name in vars(paper) if name in recipes.names()}
    assert functions == set(D)


@pytest.mark.parametrize("name", recipes.names())
def test_contract(name: str) -> None:
    """Named as its function, says what it is, survives JSON."""
    recipe = recipes.named(name)
    assert recipe.name == name
    assert recipes.summary(name).endswith(".")
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_lr_follows_the_batch() -> None:
    assert dascoli_2021.deit(batch=256).lr == 2.5e-4
    assert park_2022.hdv_imagenet(batch=256).lr == 2.5e-4
    assert park_2022.fast().lr == pytest.approx(park_2022.hdv_cifar().lr * 512 / 96, rel=0.01)


def test_arguments_stay_in_the_recipe() -> None:
    assert park_2022.fast(epochs=60).epochs == 60
    assert dosovitskiy_2021.vit_pretrain_jft(lr=4e-4, epochs=14).lr == 4e-4


def test_an_unknown_name_has_neighbours() -> None:
    with pytest.raises(
        UnknownName, match=r"There is no recipe 'hdv_cifr'\. Did you mean hdv_cifar"
    ):
        recipes.named("hdv_cifr")


def test_recipes_need_no_torch() -> None:
    script = "import sys, vitreous.training.recipes as r; r.names(); print('torch' in sys.modules)"
    source = Path(vitreous.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=source, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
