"""Filters that keep what they should, and answers counted one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from measure.analyses.shifted import Linear, answered, chosen, levels
from vitreous.errors import VitreousError
from vitreous.measure.analyses.frequency_pass import FrequencyPass
from vitreous.measure.probe import Batch
from vitreous.measure.subject import subjects

QUICK: dict[str, Any] = {"cutoffs": (0.2, 0.6)}

MODEL = Linear(side=16)


def waves(images: Tensor) -> Tensor:
    """Amplitudes (h, w) of float64 images by sums of sines and cosines, no FFT, and no library's
    idea of frequency."""
    places = torch.arange(16, dtype=torch.float64)
    turn = torch.exp(-2j * torch.pi * places[:, None] * places / 16)
    return (turn @ images.to(torch.complex128) @ turn).abs().amax((0, 1))


def fastest() -> Tensor:
    step = torch.minimum(torch.arange(16), 16 - torch.arange(16)).double() / 8  # in π
    return torch.maximum(step[:, None], step)


def test_low_pass_and_high_pass_sum_to_the_image() -> None:
    (subject,) = subjects(MODEL)
    data = answered(MODEL, 6, 16)
    batch = Batch(torch.arange(6), data.images, data.labels)
    asked = FrequencyPass()
    low, high = (
        asked.shift_images(subject, batch, f"{kind} 0.5") for kind in ("low-pass", "high-pass")
    )
    assert torch.allclose(low + high, subject.prepare(data.images))
    slow = fastest() <= 0.5
    assert float(waves(low)[~slow].max()) < 1e-9 < float(waves(low)[slow].min())
    assert float(waves(high)[slow].max()) < 1e-9 < float(waves(high)[~slow].min())


def test_answers_against_a_loop() -> None:
    data = answered(MODEL, 40, 16)
    table = FrequencyPass((0.25, 0.75))(MODEL, data).table
    data = chosen(data)
    places = torch.arange(16, dtype=torch.float64)
    turn = torch.exp(-2j * torch.pi * places[:, None] * places / 16)
    spectrum = turn @ levels(data.images).to(torch.complex128) @ turn
    for kind, cutoff in (
        ("low-pass", 0.25),
        ("low-pass", 0.75),
        ("high-pass", 0.25),
        ("high-pass", 0.75),
    ):
        kept = (fastest() <= cutoff) == (kind == "low-pass")
        images = (turn.conj() @ (spectrum * kept) @ turn.conj()).real / 256
        with torch.no_grad():
            right = float((MODEL(images).argmax(1) == data.labels).double().mean())
        row = table[(table["filter"] == kind) & (table["cutoff"] == cutoff)].iloc[0]
        assert row["value"] == pytest.approx(right)


def test_everything_passes_the_highest_cutoff() -> None:
    data = answered(MODEL, 20, 16)
    found = FrequencyPass((1.0,))(MODEL, data)
    table = found.table
    assert table[table["filter"] == "low-pass"]["value"].tolist() == pytest.approx([0.8])
    passed = table[table["filter"] == "low-pass"].iloc[0]
    assert passed["change"] == 0
    assert (
        passed["change_low"] < 0 < passed["change_high"]
    )  # of twenty images none has changed: a few of others may
    pictures = found.arrays["image"]
    assert pictures.shape == (2, 16, 16, 3)
    assert (pictures[0] == chosen(data).images[0].permute(1, 2, 0).numpy()).all()


def test_bad_options() -> None:
    with pytest.raises(VitreousError, match=r"1\.5 is not"):
        FrequencyPass((1.5,))
    with pytest.raises(VitreousError, match="one is repeated"):
        FrequencyPass((0.5, 0.5))
