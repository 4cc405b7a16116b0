"""Noise that lies in its band, costs what it should, and answers counted one by one."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch

from measure.analyses.shifted import Linear, answered, chosen, levels
from vitreous.data.frequency import band_noise
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analyses.band_noise import BandNoise
from vitreous.measure.probe import Batch
from vitreous.measure.subject import USUAL, subjects

QUICK: dict[str, Any] = {"frequencies": (0.2, 0.8), "drop": 0.25}

BANDS = (0.25, 0.5, 0.75)
MODELS = {"one": Linear(side=16), "two": Linear(side=16, seed=3)}


def test_noise_has_energy_in_its_band_alone_and_the_strength_that_was_asked_for() -> None:
    (subject,) = subjects({"one": MODELS["one"]})
    data = answered(MODELS["one"], 6, 16)
    batch = Batch(torch.arange(6), data.images, data.labels)
    std = torch.tensor(USUAL[1], dtype=torch.float64).view(3, 1, 1)
    for definition, whole in (("paper", None), ("equal", 0.3)):
        asked = BandNoise(BANDS, definition=definition)  # type: ignore[arg-type]
        noise = (asked.add_noise(subject, batch, 0.5, 0.3) - subject.prepare(data.images)) * std
        power = torch.fft.fft2(noise).abs().square().mean((0, 1))
        waves = torch.fft.fftfreq(16, dtype=torch.float64).abs() * 2  # in π
        fastest = torch.maximum(waves[:, None], waves)
        inside = (fastest >= 0.4375) & (fastest < 0.5625)  # 0.1 is rounded to one wave of 2 / 16
        assert float(power[~inside].max()) < 1e-10 * float(power[inside].min())
        if whole:
            assert noise.square().mean((1, 2, 3)).sqrt().tolist() == pytest.approx(
                [whole] * 6, rel=1e-4
            )


def test_answers_against_a_loop() -> None:
    data = answered(MODELS["one"], 40, 16)
    found = BandNoise(BANDS, strength=0.4)(MODELS, data)
    data, std = chosen(data), torch.tensor(USUAL[1], dtype=torch.float64).view(3, 1, 1)
    for name, model in MODELS.items():
        table = found.table[found.table["model"] == name]
        right = {}
        for band in (None, *BANDS):
            images = levels(data.images)
            if band is not None:
                noise = band_noise((40, 3, 16, 16), band * math.pi, 0.4, width=math.pi / 8)
                images = images + noise.double() / std
            right[band] = float((model(images).argmax(1) == data.labels).double().mean())
        for band in BANDS:
            row = table[table["frequency"] == band].iloc[0]
            assert row["value"] == pytest.approx(right[band])
            assert row["change"] == pytest.approx(right[band] - right[None])
        mean = table[table["overall"]].iloc[0]
        assert mean["value"] == pytest.approx(np.mean([right[band] for band in BANDS]))
    assert found.about["strength"] == 0.4


@pytest.mark.parametrize("drop", [0.1, 0.3])
def test_the_first_model_loses_what_it_should_and_all_get_the_same_noise(drop: float) -> None:
    data = answered(MODELS["one"], 60, 16)
    both = BandNoise(BANDS, drop=drop)(MODELS, data)
    assert both.about["mean_drop"] == pytest.approx(drop, abs=0.02)
    strength = both.about["strength"]
    alone = BandNoise(BANDS, strength=strength)({"two": MODELS["two"]}, data).table
    ours = both.table[both.table["model"] == "two"]
    assert ours["value"].tolist() == alone["value"].tolist()
    other = BandNoise(BANDS, drop=drop)({"two": MODELS["two"], "one": MODELS["one"]}, data)
    assert other.about["reference"] == "two"
    assert other.about["strength"] != strength


def test_a_model_that_cannot_lose_so_much_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vitreous"):
        BandNoise((0.5,), drop=1.0)(MODELS["one"], answered(MODELS["one"], 20, 16))
    assert "not 1.000" in caplog.text


def test_rings_are_equally_thick_and_drawn() -> None:
    found = BandNoise(BANDS, strength=0.1)(MODELS, answered(MODELS["one"], 4, 16))
    rings = found.arrays["ring"]
    assert rings.shape == (3, 16, 16)
    assert [int((ring[8] > 0).sum()) for ring in rings] == [2, 2, 2]
    assert [int(np.flatnonzero(ring[8])[-1]) for ring in rings] == [
        10,
        12,
        14,
    ]  # zero frequency is column 8


def test_all_rings_of_small_images_have_two_waves() -> None:
    asked = BandNoise()
    rings = [asked._ring((32, 32), frequency) for frequency in asked.frequencies]
    assert [int(ring[16].sum()) for ring in rings] == [4] * 9  # on either side of zero, in row 16


def test_bad_options() -> None:
    with pytest.raises(VitreousError, match=r"1\.2 is not"):
        BandNoise((0.5, 1.2))
    with pytest.raises(VitreousError, match="none was given"):
        BandNoise(())
    with pytest.raises(VitreousError, match="-1"):
        BandNoise(strength=-1)
    with pytest.raises(VitreousError, match="drop"):
        BandNoise(drop=0)
    with pytest.raises(UnknownName, match="papers"):
        BandNoise(definition="papers")  # type: ignore[arg-type]
