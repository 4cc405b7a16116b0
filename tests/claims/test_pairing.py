"""Two models on the same images, each measured by itself, are compared image by image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vitreous
from vitreous.claims import readings
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.quantity import Quantity
from vitreous.claims.statistics import estimate_effect
from vitreous.models.loading import load_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An inspection each, on disk, of two models that find much the same images hard."""
    found = {}
    for name, noise in (("vit", 0.0), ("convit", 0.1)):
        model = load_model("nano:vit@warmup")
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.data += noise * weight.data.std(correction=0) * torch.randn_like(weight)
        inspection = vitreous.inspect(
            {name: model}, "world:shapes", ["accuracy", "calibration"], limit=300, device="cpu"
        )
        found[name] = inspection.save(tmp_path_factory.mktemp(name))
    return found


def differences(folders: dict[str, Path], paired: bool) -> tuple[Quantity, Quantity]:
    """Accuracy and NLL of the one minus those of the other, with or without replicates."""
    items = []
    for name, folder in folders.items():
        results = dict(vitreous.Inspection.load(folder))
        if not paired:
            results = {name: replace(result, replicates={}) for name, result in results.items()}
        items.append(
            EvidenceItem({"model": name, "data": "world:shapes", "seed": 0}, results, name)
        )
    _, models = Evidence(items).query()
    vit, convit = models("vit"), models("convit")
    apart = readings.calibration(vit, "NLL") - readings.calibration(convit, "NLL")
    return readings.accuracy(vit) - readings.accuracy(convit), apart


def test_pairs_say_more_than_two_single_numbers(folders: dict[str, Path]) -> None:
    for pair, single in zip(
        differences(folders, paired=True), differences(folders, paired=False), strict=True
    ):
        one, other = estimate_effect(pair), estimate_effect(single)
        assert one.value == pytest.approx(other.value)
        assert one.low < one.value < one.high
        assert one.high - one.low < 0.9 * (other.high - other.low)
