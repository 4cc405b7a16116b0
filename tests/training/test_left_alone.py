"""A training depends on nothing that happened before, and leaves the session as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from training.toy import RECIPE, go, images, lines
from vitreous.config import Augment
from vitreous.models import build
from vitreous.random_numbers import seeded
from vitreous.training.loop import Diverged
from vitreous.training.seeds import train_seeds

PLAIN = RECIPE.but(
    epochs=1, augment=Augment(crop="none", flip=0.0), ema=None, **{"model.drop_path": 0.0}
)


def fresh() -> nn.Module:
    """The same model in every call, with dropout."""
    with seeded(3):
        return build("vit_nano", depth=1, width=16, heads=2, image=16, classes=3, dropout=0.1)


@pytest.mark.parametrize("changes", [{"head": "last"}, {"objective": "masked"}])
def test_a_module_trains_the_same_whatever_was_drawn_before(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """New heads and decoders are drawn from the seed of the training, and from nothing else."""
    kept = torch.get_rng_state()
    runs = []
    for number in range(2):
        torch.rand(number)
        runs.append(go(tmp_path / str(number), PLAIN.but(**changes), fresh()))
    torch.set_rng_state(kept)
    assert lines(runs[0]) == lines(runs[1])
    for one, two in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("ends", ["finishes", "fails"])
def test_a_training_leaves_the_random_state_of_the_session(ends: str, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    if ends == "finishes":
        go(tmp_path, PLAIN)
    else:
        with pytest.raises(Diverged):
            go(tmp_path, PLAIN.but(lr=1e30, optimiser="sgd"))
    assert torch.equal(torch.get_rng_state(), before)
    train_seeds(
        "vit_nano", images(), PLAIN, seeds=(0, 1), test=images(31, "test"),
        out=tmp_path / "seeds", device="cpu", show=False,
    )  # fmt: skip
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_training_froze_learns_in_the_next(tmp_path: Path) -> None:
    """First the head alone, then everything; weights that were frozen before stay frozen."""
    model = fresh()
    model.get_parameter("cls_token").requires_grad_(False)
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    first = go(tmp_path / "head", PLAIN.but(freeze=("blocks.*",)), model)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == flags
    before = model.get_parameter("blocks.0.mlp.fc1.weight").detach().clone()
    go(tmp_path / "all", PLAIN, first.model)
    assert not torch.equal(before, model.get_parameter("blocks.0.mlp.fc1.weight"))
    averaged = go(tmp_path / "mean", PLAIN.but(ema=0.9), fresh()).model
    assert all(p.requires_grad for p in averaged.parameters())


def test_a_teacher_is_left_as_it_was(tmp_path: Path) -> None:
    teacher = fresh().train()
    student = build("vit_nano", depth=1, width=16, heads=2, image=16, classes=3, distilled=True)
    distils = PLAIN.but(objective="distil_hard")
    go(tmp_path, distils, student, teacher=teacher)
    assert teacher.training
    assert all(p.requires_grad for p in teacher.parameters())
    assert vars(student)["distilled_training"] is False
    go(tmp_path / "next", PLAIN, student.train())
