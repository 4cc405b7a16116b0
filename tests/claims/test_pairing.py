"""Two models on the same images, each looked at by itself, are compared image by image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vitreous
from vitreous.claims import readings
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.quantity import Quantity
from vitreous.models.loading import load


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a study has of two models that find much the same images hard: an inspection each, written to disk."""
    found = {}
    for name, noise in (("vit", 0.0), ("convit", 0.1)):
        model = load("nano:vit@warmup")
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.data += noise * weight.data.std(correction=0) * torch.randn_like(weight)
        seen = vitreous.inspect(
            {name: model}, "world:shapes", ["accuracy", "calibration"], limit=300, device="cpu"
        )
        found[name] = trainings.save(tmp_path_factory.mktemp(name))
    return found


def looked(folders: dict[str, Path], paired: bool) -> tuple[Quantity, Quantity]:
    """Accuracy and NLL of the one minus those of the other, with or without the resamplings."""
    items = []
    for name, folder in folders.items():
        results = dict(vitreous.Inspection.load(folder))
        if not paired:
            results = {
                question: replace(result, replicates={}) for question, result in results.items()
            }
        items.append(
            EvidenceItem({"model": name, "data": "world:shapes", "seed": 0}, results, name)
        )
    _, look = Evidence(items).models()
    vit, convit = models("vit"), models("convit")
    apart = readings.calibration(vit, "NLL") - readings.calibration(convit, "NLL")
    return readings.accuracy(vit) - readings.accuracy(convit), apart


def test_pairs_say_more_than_two_single_numbers(folders: dict[str, Path]) -> None:
    for pair, single in zip(
        looked(folders, paired=True), looked(folders, paired=False), strict=True
    ):
        (value, low, high), (alike, below, above) = pair.interval(), single.interval()
        assert value == pytest.approx(alike)
        assert low < value < high
        assert high - low < 0.9 * (above - below)
