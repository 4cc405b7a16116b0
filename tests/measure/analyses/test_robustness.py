"""Every question about robustness, asked of models of many families and on images that are hardly
any."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock

import vitreous
from measure.analyses.shifted import noise, shapes
from specimen import zoo

NAMES = ("corruption", "band_noise", "adversarial", "frequency_pass", "cue_conflict", "occlusion")
SHIFTED = tuple(name for name in NAMES if name != "cue_conflict")
FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "timm vit": zoo.MODELS["vit"],
    "timm swin": zoo.MODELS["swin"],
    "timm convnext": zoo.MODELS["convnext"],
    "torchvision resnet": lambda: torchvision.models.ResNet(
        BasicBlock, [1, 1, 1, 1], num_classes=10
    ),
    "hugging face vit": lambda: zoo.hugging_face(
        "ViTForImageClassification", image_size=32, patch_size=8, num_labels=10
    ),
}
SIDES = {"timm vit": 64, "timm swin": 56}


def quick(name: str) -> dict[str, Any]:
    """The options of the contract's tests."""
    text = (Path(__file__).parent / f"test_{name}.py").read_text(encoding="utf-8")
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign))
    assert found.value is not None
    options: dict[str, Any] = ast.literal_eval(found.value)
    return options | ({"strength": 0.3} if name == "band_noise" else {})


QUICK = {name: quick(name) for name in NAMES}


def asked(model: Any, data: Any, **how: Any) -> vitreous.Inspection:
    return vitreous.analyse({"model": model}, data, QUICK, **how)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_analysis_runs_on_every_family_and_keeps_its_weights(family: str) -> None:
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = asked(model, shapes(4), image=SIDES.get(family, 32))
    assert list(found) == list(NAMES)
    for result in found.values():
        assert result.table["value"].notna().any()
        assert result.table.loc[result.table["n"] > 0, "value"].between(0, 1).all()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Grey(nn.Module):
    """One channel, as for handwritten digits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image_size = 16
        self.head = nn.Linear(256, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert images.shape[1] == 1
        scores: torch.Tensor = self.head(images.flatten(1))
        return scores


def test_grey_models_are_measured() -> None:
    found = asked(vitreous.open(Grey(), image=(1, 16, 16)), shapes(10))
    assert list(found) == list(NAMES)
    pictures = found["frequency_pass"].arrays["image"]
    assert pictures.shape == (4, 16, 16, 3)
    assert (pictures[..., 0] == pictures[..., 2]).all()


def test_one_image_has_no_interval_and_a_batch_may_be_larger_than_the_data() -> None:
    found = asked("nano:resnet", shapes(1), batch=1000)
    for name in SHIFTED:
        row = found[name].table[found[name].table["overall"]].iloc[0]
        assert row["n"] == 1
        assert row[["change_low", "change_high", "ece_low", "ece_high"]].isna().all()


def test_images_of_one_class_will_do_and_a_set_of_one_class_is_refused() -> None:
    data = shapes(60)
    same = data.take(torch.nonzero(data.labels == 3)[:, 0])
    assert list(asked("nano:resnet", same)) == list(NAMES)
    found = asked("nano:resnet", replace(same, labels=same.labels * 0, classes=("comet",)))
    assert all("10 classes" in found.left_out[name]["model"] for name in NAMES)


def test_without_labels_the_analyses_are_left_out() -> None:
    found = asked("nano:resnet", noise(5, 32, 0))
    assert all("no labels" in found.left_out[name]["model"] for name in NAMES)
