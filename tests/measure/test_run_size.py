"""A run is measured at the size of image that it was trained at, unless you ask for another."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitreous
from vitreous.data import load
from vitreous.models.loading import load_model
from vitreous.training.adapt import adapt
from vitreous.training.loop import Trained

OWN = """
from torch import nn


def make(classes=10):
    body = [nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8, classes))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three classes and of many sizes, and a model of one's own."""
    home = tmp_path_factory.mktemp("home")
    drawn = np.random.default_rng(0)
    for k, name in enumerate(("clay", "moss", "sky")):
        (home / "photos" / name).mkdir(parents=True)
        for i in range(20):
            pixels = drawn.integers(0, 150, (60 + i, 90 - i, 3), dtype=np.uint8)
            pixels[..., k] += np.uint8(drawn.integers(0, 60))
            Image.fromarray(pixels).save(home / "photos" / name / f"{i}.png")
    (home / "mine.py").write_text(OWN)
    return home


def trained(home: Path, model: str, image: Any, out: str) -> Trained:
    train, test = (load(str(home / "photos"), split=s, image=image) for s in ("train", "test"))
    recipe = vitreous.recipes.named("quick").but(epochs=2, batch=16, warmup=0.0)
    return vitreous.train(model, train, recipe, test=test, out=home / out, show=False)


def measured(home: Path, run: str, **how: Any) -> tuple[float, float]:
    """Accuracy and NLL as an inspection measures them."""
    found = vitreous.inspect(
        f"run:{home / run}", str(home / "photos"), ["accuracy", "calibration"],
        split="test", limit="all", **how,
    )  # fmt: skip
    top, rest = found["accuracy"].table, found["calibration"].table
    right = top[top["overall"] & (top["measure"] == "top-1")]["value"].item()
    return right, rest[rest["measure"] == "NLL"]["value"].item()


@pytest.mark.parametrize(
    ("model", "image"),
    [("test_resnet", 40), ("tv:squeezenet1_1", 48), ("mine.py:make", (24, 40)), ("vit_nano", 24)],
)
def test_an_inspection_repeats_the_numbers_of_the_training(
    home: Path, model: str, image: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(home)
    run = f"runs/{model.partition(':')[2] or model}"
    last = trained(home, model, image, run).records[-1]
    size = (image, image) if isinstance(image, int) else image
    assert vitreous.open(f"run:{run}").anatomy.image == (3, *size)
    with caplog.at_level(logging.WARNING, "vitreous"):
        accuracy, nll = measured(home, run)
    assert "trained at" not in caplog.text
    assert accuracy == pytest.approx(1 - last["test_error"])
    assert nll == pytest.approx(last["test_nll"], rel=1e-4)


def test_another_image_size_is_used_and_logged(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(home)
    last = trained(home, "test_resnet", 40, "other").records[-1]
    with caplog.at_level(logging.WARNING, "vitreous"):
        _, nll = measured(home, "other", image=(96, 80))
    assert f"run:{home / 'other'} was trained at 40x40, inspected at 96x80." in caplog.text
    assert nll != pytest.approx(last["test_nll"], rel=1e-3)
    larger = load_model("run:other", image=64)  # the module itself remembers what it was made for
    assert vitreous.open(larger).anatomy.image == (3, 64, 64)
    tuned = adapt(load_model("run:other"), classes=3, image=56, head="keep")
    assert vitreous.open(tuned).anatomy.image == (3, 56, 56)
