"""Networks that move along exactly, networks that cannot, and shifts that do not fit a grid."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from specimen.toys import WIDTH, Block, Patches, Transformer, settled
from vitreous.measure.probes.equivariance import relative_distance, shift_in_cells, smallest_shift
from vitreous.measure.subject import subjects
from vitreous.results import Result

Padding = Literal["zeros", "circular"]


class Wrapped(nn.Module):
    """Residual convolutions whose padding goes around, with a stride between."""

    def __init__(self, padding: Padding = "circular", pool: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, 1, 1, padding_mode=padding)
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1, padding_mode=padding)
        self.down = nn.Conv2d(WIDTH, WIDTH, 3, 2, 1, padding_mode=padding)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1, padding_mode=padding)
        self.head = nn.Linear(WIDTH if pool else WIDTH * 64, 5)
        self.pool = pool

    def forward(self, images: Tensor) -> Tensor:
        value = self.stem(images)
        value = value + self.first(value).relu()
        value = self.down(value)
        value = value + self.second(value).relu()
        found: Tensor = self.head(value.mean((2, 3)) if self.pool else value.flatten(1))
        return found


def ask(model: nn.Module, batch: int | None = None, **options: object) -> Result:
    return vitreous.inspect(model, noise(8), {"equivariance": options}, batch=batch, image=16)[
        "equivariance"
    ]


def test_circular_convolutions_are_equivariant() -> None:
    table = ask(Wrapped().eval()).table
    assert table["shift"].unique().tolist() == [2]
    assert table["moved"].dropna().unique().tolist() == [2, 1]
    assert (table["value"] < 1e-5).all()
    assert (table["n"] == 8).all()
    maps = table[table["moved"].notna()]
    assert (
        maps["still"].between(0.5, 1.5).all()
    )  # noise that has moved has nothing to do with noise that has not


def test_padding_breaks_equivariance_of_every_unit() -> None:
    table = ask(Wrapped("zeros").eval()).table
    assert (table["value"] > 0.01).all()


def test_without_pooling_the_output_is_not_invariant() -> None:
    pooled, flat = (ask(Wrapped(pool=pool).eval()).table.iloc[-1] for pool in (True, False))
    assert pooled["kind"] == flat["kind"] == "head"
    assert math.isnan(pooled["moved"])
    assert pooled["value"] < 1e-5 < 0.1 < flat["value"]


def test_a_transformer_is_equivariant_to_patch_shifts_until_it_has_positions() -> None:
    bare = settled(Transformer(Block(), cls=False))

    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body, self.head = Patches(), nn.Sequential(Block()), nn.Linear(WIDTH, 5)
            self.pos_embed = nn.Parameter(torch.randn(1, 16, WIDTH))

        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = self.head(self.body(self.stem(images) + self.pos_embed).mean(1))
            return found

    without, with_ = ask(bare).table, ask(settled(Placed())).table
    assert without["shift"].unique().tolist() == [4]
    assert (without["value"] < 1e-5).all()
    assert (with_["value"] > 0.01).all()


def test_the_error_by_hand() -> None:
    model = Wrapped("zeros").eval()
    specimen = vitreous.open(model, image=16)
    (subject,) = subjects(specimen)
    images = subject.prepare(noise(8).images)
    one, other = (specimen.observe(x, ("after",)) for x in (images, images.roll((2, 2), (2, 3))))
    table = ask(model).table.set_index("unit")
    for unit in specimen.units[:-1]:
        (before, after) = (seen[unit.name].after for seen in (one, other))
        assert before is not None
        assert after is not None
        by = 2 * before.map.shape[2] // 16
        moved, found = before.map.double().roll((by, by), (2, 3)), after.map.double()
        spread = sum(
            ((m - m.mean((2, 3), keepdim=True)) ** 2).sum((1, 2, 3)) for m in (moved, found)
        )
        expected = (((moved - found) ** 2).sum((1, 2, 3)) / spread).sqrt().mean()
        assert table.loc[unit.name, "value"] == pytest.approx(expected.item(), rel=1e-4)


def test_unrelated_maps_have_distance_one_and_offsets_do_not_matter() -> None:
    one, other = torch.randn(2, 4, 64, 14, 14)
    np.testing.assert_allclose(relative_distance(one, other), 1, atol=0.02)
    np.testing.assert_allclose(relative_distance(one + 1e3, other + 1e3), 1, atol=0.02)
    assert relative_distance(one, one).tolist() == [0, 0, 0, 0]
    constant = torch.full((1, 2, 3, 3), 0.1)
    assert relative_distance(constant, constant).isnan().all()


def test_shifts_that_fit_no_grid_are_refused_not_rounded() -> None:
    assert shift_in_cells((14, 14), (224, 224), 16) == (1, 1)
    assert shift_in_cells((14, 14), (224, 224), 8) is None
    assert shift_in_cells((7, 14), (224, 224), 32) == (1, 2)
    assert smallest_shift([(56, 56), (28, 28), (7, 7)], (224, 224)) == 32
    assert (
        smallest_shift([(14, 14), (27, 27)], (224, 224)) == 16
    )  # 27 only moves with the whole image
    result = ask(Wrapped().eval(), shifts=(1,))
    assert result.table["moved"].dropna().tolist() == [1, 1]
    (reasons,) = result.about["left_out"].values()
    assert list(reasons) == ["down", "second"]
    assert (
        reasons["down"]
        == "A shift of 1 pixels of 16x16 moves its grid of 8 x 8 by no whole number of positions."
    )


def test_several_shifts_and_batches() -> None:
    model = Wrapped("zeros").eval()
    whole = ask(model, shifts=(2, 4), images=5).table
    assert whole.groupby("unit")["shift"].apply(list).tolist() == [[2, 4]] * 5
    assert (whole["n"] == 5).all()
    parts = ask(model, batch=2, shifts=(2, 4), images=5).table
    np.testing.assert_allclose(
        whole.select_dtypes("number"), parts.select_dtypes("number"), atol=1e-5
    )
