"""Shape against texture, with models that are known to go by one of them, and images that do not
say what they show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.analyses.shifted import chosen, noise, shapes
from vitreous.data.dataset import Dataset
from vitreous.measure.analyses.cue_conflict import CueConflict
from vitreous.models.loading import load_model

QUICK: dict[str, Any] = {}


class Reader(nn.Module):
    """Answers with a number that is written into the first pixel of an image, one for each
    channel."""

    def __init__(self, channel: int) -> None:
        super().__init__()
        self.image_size = 32
        self.channel = channel
        self.mean = nn.Parameter(torch.tensor([0.485, 0.456, 0.406]))
        self.std = nn.Parameter(torch.tensor([0.229, 0.224, 0.225]))
        self.trained_with = {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def forward(self, images: Tensor) -> Tensor:
        level = 255 * (
            images[:, self.channel, 0, 0] * self.std[self.channel] + self.mean[self.channel]
        )
        return -(level[:, None] - torch.arange(10.0)).abs()


def written(data: Dataset) -> Dataset:
    """With shape, texture, and now the one and now the other, in the first pixel."""
    images, truth = data.images.clone(), data.truth
    images[:, 0, 0, 0], images[:, 1, 0, 0] = truth["shape"].byte(), truth["texture"].byte()
    mixed = truth["texture"].clone()
    mixed[::2] = truth["shape"][::2]
    images[:, 2, 0, 0] = mixed.byte()
    return replace(data, images=images)


def test_shape_and_texture_classifiers_have_shares_of_one_and_zero() -> None:
    data = written(vitreous.data.load("world:conflict", split="test", size=40))
    found = CueConflict()({"shape": Reader(0), "texture": Reader(1), "both": Reader(2)}, data)
    share = found.table[found.table["overall"]]
    assert dict(zip(share["model"], share["value"], strict=True)) == {
        "shape": 1,
        "texture": 0,
        "both": 0.5,
    }
    assert (
        share["high"] - share["low"] > 0.05
    ).all()  # Wilson's interval has a width where all are alike
    assert found.about["conflicting"] == 40
    answered = found.table[found.table["answered"]].pivot(
        index="model", columns="measure", values="value"
    )
    assert answered.loc["both"].to_dict() == {"shape": 0.5, "texture": 0.5, "neither": 0}
    by_class = found.table[found.table["by_class"] & (found.table["model"] == "both")]
    assert by_class["n"].sum() == 40


def test_only_images_in_which_they_disagree_count() -> None:
    data = written(shapes(200))
    found = CueConflict()(Reader(0), data)
    apart = int((data.truth["shape"] != data.truth["texture"]).sum())
    assert 150 < apart < 200
    assert found.about["conflicting"] == apart
    assert found.table[found.table["overall"]]["n"].tolist() == [apart]


def test_answers_against_a_loop() -> None:
    data = chosen(shapes(60))
    found = CueConflict()("nano:vit@warmup", data)
    model = load_model("nano:vit@warmup").eval()
    shape = texture = 0
    for image, its_shape, its_texture in zip(
        data.images, data.truth["shape"], data.truth["texture"], strict=True
    ):
        with torch.no_grad():
            answer = int(model(data.normalise(image[None])).argmax())
        if its_shape != its_texture:
            shape, texture = shape + (answer == its_shape), texture + (answer == its_texture)
    row = found.table[found.table["overall"]].iloc[0]
    assert row["n"] == shape + texture
    assert row["value"] == pytest.approx(float(shape / (shape + texture)))


def test_images_without_conflicting_cues_are_refused() -> None:
    agree = vitreous.data.load("world:cues", split="test", size=10)
    colours = vitreous.data.load("world:colours", split="test", size=10)
    for data, words in (
        (agree, "agree on all images"),
        (noise(10, 32, 10), "do not say which shape"),
        (replace(colours, classes=tuple("abcdefghij")), "neither shapes nor textures"),
        (shapes(10).take(range(5)), ""),
    ):
        found = vitreous.analyse(Reader(0), data, ["cue_conflict"])
        assert words in found.left_out.get("cue_conflict", {}).get("Reader", "")
        assert bool(words) == ("cue_conflict" in found.left_out)


def test_models_with_other_classes_are_left_out() -> None:
    conflict = vitreous.data.load("world:conflict", split="test", size=10)
    found = vitreous.analyse("nano:vit", conflict, ["cue_conflict"])
    assert "are not among them" in found.left_out["cue_conflict"]["nano:vit"]
