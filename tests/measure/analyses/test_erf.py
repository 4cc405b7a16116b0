"""Receptive fields that are known: of plain convolutions, of uniform attention, and by a Jacobian
written out."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure.analyses.erf import ERF, _picture, field_area, grid_position, random_signs
from vitreous.measure.probe import Batch
from vitreous.measure.subject import subjects
from vitreous.results import Result

QUICK: dict[str, Any] = {"positions": ("centre",)}


@cache
def noise(side: int = 33, count: int = 3) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
    return Dataset(images, torch.full((count,), -1), (), "noise", "test")


class Stack(nn.Module):
    """Convolutions of ones, one after the other."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        widths = [3, *([1] * depth)]
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(widths)
        )
        for layer in self.layers:
            nn.init.ones_(layer.weight)  # type: ignore[arg-type]
        self.head = nn.Linear(1, 2)

    def forward(self, images: Tensor) -> Tensor:
        for layer in self.layers:
            images = layer(images)
        return self.head(images.mean((2, 3)))


def test_convolutions_of_ones_have_a_binomial_field() -> None:
    """k of them: the k-fold convolution of three ones with itself, along rows and along columns."""
    result = ERF()({"stack": Stack(4).double()}, noise(), image=33)
    rows = result.table[result.table["position"] == "centre"]
    depth = 0
    for _, row in rows.iterrows():
        depth = 4 if row["unit"] == rows["unit"].iloc[-1] else depth + 1
        line = np.ones(1)
        for _ in range(depth):
            line = np.convolve(line, np.ones(3) / 3)
        field = np.outer(line, line)
        steps = np.arange(len(line)) - len(line) // 2
        assert row["value"] == pytest.approx(
            (field * np.hypot(steps[:, None], steps)).sum(), rel=1e-9
        )
        assert row["area_99"] == pytest.approx(smallest(field, 0.99) / 33**2)
        assert row["area"] == pytest.approx(smallest(field, 0.5) / 33**2)
    assert depth == 4
    others = result.table[(result.table["unit"] == rows["unit"].iloc[-1]) & ~result.table["shown"]]
    assert others["value"].tolist() == pytest.approx(
        [rows["value"].iloc[-1]] * 4
    )  # far enough from the border


def smallest(field: np.ndarray, share: float) -> int:
    found = np.cumsum(np.sort(field.ravel())[::-1])
    return int(np.argmax(found >= share - 1e-9)) + 1


class Attending(nn.Module):
    """Patches of four pixels, one attention layer whose queries are zero, and a skip around it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.value, self.head = nn.Conv2d(3, 5, 4, 4), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        zero = torch.zeros_like(x)[:, None]
        attended = nn.functional.scaled_dot_product_attention(zero, zero, self.value(x)[:, None])[
            :, 0
        ]
        return self.head((x + attended).mean(1))


def test_uniform_attention_covers_everything() -> None:
    branch = ERF(site="branch", positions=("centre",))({"net": Attending()}, noise(32), image=32)
    row = branch.table[branch.table["kind"] == "attention"].iloc[0]
    assert row["relative"] == pytest.approx(1.0, abs=0.03)
    assert row["area_99"] > 0.97
    shown = list(branch.table["kind"]).index("attention")
    patches = (branch.arrays["maps"][shown].astype(np.float64) ** 2).reshape(8, 8, 8, 8).sum((1, 3))
    assert patches == pytest.approx(np.full((8, 8), patches.mean()), rel=1e-4)
    after = ERF(positions=("centre",))({"net": Attending()}, noise(32), image=32).table
    assert (
        after[after["kind"] == "attention"]["relative"].iloc[0] < 0.9
    )  # the skip has a bright centre


def test_gradients_equal_a_jacobian_written_out() -> None:
    """Every channel's derivative with every pixel, in float64."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 2, 2), nn.Tanh(), nn.Conv2d(4, 6, 3, padding=1), nn.Tanh()
    ).double()
    (subject,) = subjects({"net": model}, image=8)
    data = noise(8)
    question = ERF(positions=("upper left",))
    unit = question.units(subject)[-1]
    row, column = grid_position("upper left", (4, 4))
    assert (row, column) == (1, 1)
    batch = Batch(torch.arange(3), data.images, data.labels, 5)
    fields = question._fields(subject, [unit], "upper left", batch)[0]
    images = subject.prepare(data.images)
    signed = random_signs(batch, 6).double()
    for i in range(3):

        def feature(image: Tensor) -> Tensor:
            return model(image[None])[0, :, row, column]

        jacobian: Any = torch.autograd.functional.jacobian(feature, images[i])
        expected = torch.einsum("c,cxhw->xhw", signed[i], jacobian).abs().mean(0)
        assert torch.allclose(fields[i], expected, rtol=1e-9)
    assert {-1, 1} == set(signed.flatten().tolist())
    assert torch.equal(
        random_signs(Batch(torch.tensor([2]), data.images, data.labels, 5), 6)[0], signed[2].long()
    )


def test_radius_is_a_ratio_of_sums_and_has_its_interval() -> None:
    result: Result = ERF()("nano:vit", vitreous.data.load("world:shapes", split="test", size=12))
    table = result.table
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()
    stem, first = (
        table[table["unit"] == name].iloc[0] for name in ("patch_embed", "blocks.0.attn")
    )
    assert first["value"] > 3 * stem["value"]
    assert stem["area"] <= 16 / 32**2
    assert result.arrays["maps"].shape == (13, 64, 64)
    assert result.arrays["maps"].max(axis=(1, 2)).tolist() == [1.0] * 13


def test_areas_and_pictures_do_not_depend_on_scale() -> None:
    field = torch.rand(16, 16, dtype=torch.float64)
    assert (
        field_area(field, 0.5)
        == field_area(field * 1e-12, 0.5)
        == smallest(field.numpy() / field.sum().item(), 0.5) / 256
    )
    assert torch.allclose(_picture(field), _picture(field * 1e12))
    assert field_area(torch.ones(4, 4, dtype=torch.float64), 0.5) == 0.5


def test_bad_input() -> None:
    with pytest.raises(VitreousError, match="position"):
        ERF(positions=("middle",))
    with pytest.raises(VitreousError, match="position"):
        ERF(positions=())
    with pytest.raises(VitreousError, match="site"):
        ERF(site="before")
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    found = vitreous.analyse(flat, noise(8), ["erf"], image=8)
    assert found.left_out["erf"] == {"Sequential": "None of its units has a feature map."}

    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.other = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            nn.init.zeros_(self.other.weight)

        def forward(self, images: Tensor) -> Tensor:
            return self.other(self.conv(images)).relu()

    result = ERF()({"deaf": Deaf()}, noise(8, 1), image=8, batch=64)
    assert (
        list(result.about["left_out"]["deaf"].values())[-1]
        == "It does not depend on the image there."
    )
    assert all(math.isnan(low) for low in result.table["low"])
