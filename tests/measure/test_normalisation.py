"""Whose mean and std images get: the model's own if it says, else those that the dataset declares,
else ImageNet's, and it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.measure.analyses.ensemble import Ensemble
from vitreous.measure.analysis import Bench
from vitreous.measure.probe import Setting
from vitreous.measure.subject import USUAL, subjects

OWN = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


class Levels(nn.Module):
    """Tells bright images from dark ones: right only if nobody moves their levels."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.head(self.mix(images).relu().mean((2, 3)))
        return found


def images(**how: object) -> Dataset:
    pixels = torch.randint(
        0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return Dataset(pixels, torch.arange(12) % 2, ("a", "b"), "made up", "test", **how)  # type: ignore[arg-type]


def says(**trained: object) -> nn.Module:
    model = Levels()
    model.trained_with = trained  # type: ignore[assignment]
    return model


def measured(model: object, data: Dataset) -> dict[str, object]:
    result = vitreous.inspect({"m": model}, data, ["accuracy", "calibration"], image=16)[
        "calibration"
    ]
    nll = result.table.set_index("measure").loc["NLL", "value"]
    return {**result.about["models"]["m"], "nll": nll}


def nll(model: nn.Module, shown: Tensor, data: Dataset) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(shown).double(), data.labels))


def test_a_model_without_normalisation_gets_that_of_the_data_set() -> None:
    data, model = images(mean=OWN[0], std=OWN[1]), Levels()
    found = measured(model, data)
    assert (found["mean"], found["std"], found["normalised"]) == (
        list(OWN[0]),
        list(OWN[1]),
        "data set",
    )
    assert found["nll"] == pytest.approx(nll(model, data.normalise(data.images), data), rel=1e-5)
    opened = measured(vitreous.open(model, image=16), data)  # a specimen, and one that was edited
    assert opened["nll"] == pytest.approx(found["nll"], rel=1e-6)
    assert opened["normalised"] == "data set"


def test_the_normalisation_of_the_model_has_priority() -> None:
    data, model = images(mean=(0.5, 0.5, 0.5), std=(0.1, 0.1, 0.1)), says(mean=OWN[0], std=OWN[1])
    found = measured(model, data)
    assert (found["mean"], found["normalised"]) == (list(OWN[0]), "model")
    assert found["nll"] == pytest.approx(
        nll(model, replace(data, mean=OWN[0], std=OWN[1]).normalise(data.images), data)
    )


def test_imagenets_normalisation_is_the_default() -> None:
    found = measured(Levels(), images())
    assert (found["mean"], found["std"], found["normalised"]) == (
        list(USUAL[0]),
        list(USUAL[1]),
        "ImageNet",
    )
    assert str(found["preprocessing"]).endswith(
        "(ImageNet's, as the model declares none; --mean and --std set others)"
    )


def test_the_origin_of_the_normalisation_is_recorded() -> None:
    found = measured(Levels(), images(mean=OWN[0], std=OWN[1]))
    assert str(found["preprocessing"]).endswith(
        "(those of made up, as the model declares none; --mean and --std set others)"
    )
    declared = measured(says(mean=OWN[0], std=OWN[1]), images())
    assert "declares none" not in str(declared["preprocessing"])


@pytest.mark.parametrize("as_name", [True, False])
def test_an_image_is_the_same_input_in_every_data_set(
    as_name: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, among dark photos, by the name of the folder or as a dataset: one prediction."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    for number in range(4):
        folder = tmp_path / "photos" / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (60 * number, 10, 10)).save(folder / f"{number}.png")
    model, name = Levels(), str(tmp_path / "photos")
    data = name if as_name else vitreous.data.load(name, image=16)
    found = vitreous.inspect({"m": model}, data, ["accuracy"], image=16)["accuracy"]
    assert found.about["models"]["m"]["normalised"] == "ImageNet"
    shown = vitreous.show(model, tmp_path / "photos" / "1" / "3.png", image=16)
    words = found.about["models"]["m"]["preprocessing"].partition("mean")[2]
    assert shown.preprocessing.partition("mean")[2] == words
    assert "data" not in words
    expected = (torch.tensor([180, 10, 10]) / 255 - torch.tensor(USUAL[0])) / torch.tensor(USUAL[1])
    with torch.no_grad():
        scores = model(expected.view(1, 3, 1, 1).expand(1, 3, 16, 16)).softmax(1)[0]
    probabilities = shown.predictions.set_index("index")["probability"]
    assert probabilities[0] == pytest.approx(float(scores[0]), abs=1e-6)


def test_every_analysis_gets_those_of_its_own_images() -> None:
    """Of several splits each has its own, and an attack goes by the same levels."""
    sets = {
        "test": images(mean=OWN[0], std=OWN[1]),
        "train": images(mean=(0.3, 0.3, 0.3), std=(0.2, 0.2, 0.2)),
    }
    how = {
        "adversarial": {"epsilons": (1.0,), "steps": 1},
        "hessian": {"size": 4, "top": 1, "stream": "clean"},
    }
    found = vitreous.analyse({"m": Levels()}, sets, how, image=16)
    assert found["adversarial"].about["models"]["m"]["mean"] == list(OWN[0])
    assert found["hessian"].about["models"]["m"]["mean"] == [0.3, 0.3, 0.3]
    model = Levels()
    clean = vitreous.analyse(
        {"m": model}, sets["test"], {"adversarial": how["adversarial"]}, image=16
    )["adversarial"]
    row = clean.table[clean.table["epsilon"] == 0].iloc[0]
    assert row["nll"] == pytest.approx(
        nll(model, sets["test"].normalise(sets["test"].images), sets["test"]), rel=1e-5
    )


def test_a_grey_model_gets_the_mean_over_colours() -> None:
    (subject,) = Setting(subjects(Levels(1), image=16), images(mean=OWN[0], std=OWN[1])).subjects
    assert [*subject.mean, *subject.std] == pytest.approx([0.2, 0.5])
    assert subject.prepare(images().images).shape == (12, 1, 16, 16)


def test_members_that_an_analysis_opens_itself() -> None:
    data = replace(images(mean=OWN[0], std=OWN[1]), labels=torch.full((12,), -1), classes=())
    bench = Bench(Setting(subjects({"m": Levels()}, image=64), data), 4, {})
    assert [each.mean for each in Ensemble("tv:squeezenet1_1").further_models(bench)] == [OWN[0]]


def test_the_users_normalisation_has_priority_over_timms() -> None:
    model = vitreous.build("vit_nano")
    assert subjects(model)[0].mean == USUAL[0]
    model.trained_with = {"mean": OWN[0], "std": OWN[1]}  # type: ignore[assignment]
    assert (subjects(model)[0].mean, subjects(model)[0].std) == OWN


def test_torchvisions_weights_declare_their_normalisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = torchvision.models.get_model
    monkeypatch.setattr(
        torchvision.models,
        "get_model",
        lambda name, weights, **how: plain(name, weights=None, **how),
    )
    (subject,) = Setting(
        subjects("tv:squeezenet1_1", pretrained=True), images(mean=OWN[0], std=OWN[1])
    ).subjects
    assert (subject.mean, subject.normalised) == (USUAL[0], "model")
    (random,) = Setting(subjects("tv:squeezenet1_1"), images(mean=OWN[0], std=OWN[1])).subjects
    assert (random.mean, random.normalised) == (OWN[0], "data set")


def test_bundled_models_declare_their_normalisation() -> None:
    data = vitreous.data.load("world:shapes", split="test", size=20)
    (subject,) = Setting(subjects("nano:vit"), images(mean=OWN[0], std=OWN[1])).subjects
    assert subject.normalised == "model"
    np.testing.assert_allclose(subject.mean, data.mean, atol=1e-6)
