"""Stacked seeds: each ends where its single run ends, and leaves the folder that it would leave."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from vitreous import recipes
from vitreous.config import Augment, Recipe
from vitreous.data import load
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.storage.run_folder import Run
from vitreous.training.loop import train
from vitreous.training.seeds import StackedTrainer, train_seeds

SEEDS = (3, 0, 7)


def recipe(**changes: Any) -> Recipe:
    """Everything that a seed draws by itself: order, crops, RandAugment, mixing, drop path; and
    clipping."""
    augment = Augment(randaugment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8, smoothing=0.1)
    short = {"epochs": 2, "batch": 16, "warmup": 1, "lr": 2e-4, "clip": 0.5, "augment": augment}
    return recipes.named("hdv_cifar").but(**(short | changes))


@pytest.fixture(scope="module")
def data() -> tuple[Dataset, Dataset]:
    return load("world:shapes", size=64, image=16), load(
        "world:shapes", split="test", size=32, image=16
    )


def options(**more: Any) -> dict[str, Any]:
    return {"device": "cpu", "show": False, **more}


def same_numbers(ours: dict[str, Any], single: dict[str, Any]) -> None:
    for key in ("train_nll", "test_nll", "test_error", "gradient_norm"):
        if key in single:
            torch.testing.assert_close(ours[key], single[key], rtol=1e-5, atol=1e-5, msg=key)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit_nano", {"decay": "matrices"}),
        ("convit_nano", {}),
        ("swin_nano", {"model.depths": (2, 1, 1, 1)}),
    ],
    ids=["vit", "convit", "swin"],
)
def test_each_seed_is_its_single_run(
    name: str, changes: dict[str, Any], data: tuple[Dataset, Dataset], tmp_path: Path
) -> None:
    how = recipe(**changes)
    stacked = train_seeds(name, data[0], how, test=data[1], seeds=SEEDS, out=tmp_path, **options())
    for seed, ours in zip(SEEDS, stacked, strict=True):
        single = train(
            name,
            data[0],
            how,
            test=data[1],
            seed=seed,
            out=tmp_path / f"single-{seed}",
            **options(),
        )
        assert ours.run.identity == single.run.identity
        assert [r["step"] for r in ours.run.records()] == [r["step"] for r in single.run.records()]
        for mine, theirs in zip(ours.records, single.records, strict=True):
            same_numbers(mine, theirs)
        outputs = [each.model(data[1].normalise(data[1].images)) for each in (ours, single)]
        torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    first, second = (each.records[-1]["test_nll"] for each in stacked[:2])
    assert abs(first - second) > 1e-3


def test_a_stopped_stack_resumes_and_a_seed_of_it_can_go_on_alone(
    data: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_seeds(
        "vit_nano",
        data[0],
        recipe(),
        test=data[1],
        seeds=SEEDS,
        out=tmp_path / "whole",
        **options(),
    )
    advance = StackedTrainer._advance

    def interrupt(self: StackedTrainer, done: int, seconds: float) -> None:
        advance(self, done, seconds)
        if done == 6:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StackedTrainer, "_advance", interrupt)
    given: dict[str, Any] = {"test": data[1], "seeds": SEEDS, "out": tmp_path / "stopped"}
    with pytest.raises(KeyboardInterrupt, match="after step 6"):
        train_seeds("vit_nano", data[0], recipe(), **given, **options())
    monkeypatch.undo()
    alone = train(
        "vit_nano",
        data[0],
        recipe(),
        test=data[1],
        seed=7,
        out=tmp_path / "stopped/seed-7",
        **options(),
    )
    rest = train_seeds("vit_nano", data[0], recipe(), **given, **options())
    for ours, expected in zip(rest, whole, strict=True):
        for mine, theirs in zip(ours.records, expected.records, strict=True):
            same_numbers(mine, theirs)
    same_numbers(alone.records[-1], whole[-1].records[-1])


def test_a_stop_between_two_checks_waits_for_the_next_which_is_saved(
    data: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where checking every step would cost time."""
    advance = StackedTrainer._advance

    def interrupt(self: StackedTrainer, done: int, seconds: float) -> None:
        self.check_every = 4
        advance(self, done, seconds)
        if done == 6:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StackedTrainer, "_advance", interrupt)
    with pytest.raises(KeyboardInterrupt, match="after step 8"):
        train_seeds(
            "vit_nano", data[0], recipe(), test=data[1], seeds=(0, 1), out=tmp_path, **options()
        )
    for seed in (0, 1):
        state = Run(tmp_path / f"seed-{seed}").read_state()
        assert state is not None
        assert state[1]["step"] == 8


def test_what_cannot_be_stacked_is_trained_one_by_one(
    data: tuple[Dataset, Dataset], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    how = recipe(epochs=1, warmup=0, model={"dropout": 0.1})
    with caplog.at_level(logging.WARNING, "vitreous"):
        pair = train_seeds(
            "vit_nano", data[0], how, test=data[1], seeds=(0, 1), out=tmp_path, **options()
        )
    assert "one after the other" in caplog.text
    single = train(
        "vit_nano", data[0], how, test=data[1], seed=1, out=tmp_path / "single", **options()
    )
    assert pair[1].records[-1]["test_nll"] == single.records[-1]["test_nll"]


def test_seeds_have_to_differ(data: tuple[Dataset, Dataset]) -> None:
    for wrong in ((), (1, 1)):
        with pytest.raises(VitreousError, match="different whole numbers"):
            train_seeds("vit_nano", data[0], recipe(), test=data[1], seeds=wrong, **options())
