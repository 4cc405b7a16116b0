"""Tokens and patches: against CKA by the book for single pairs, on models that keep or mix places
by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from measure.probes.test_alignment import cka_by_the_book
from specimen.toys import Convolutional, Patches, Residual, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure.probes import localisation
from vitreous.measure.probes.localisation import (
    DRAWN,
    Localisation,
    hit_rate,
    image_patches,
    mean_by_displacement,
    token_contrast,
)
from vitreous.measure.subject import subjects
from vitreous.results import Result


class Keeps(nn.Module):
    """Every token is a function of its own patch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last, self.head = Patches(), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        found: Tensor = self.head((tokens + self.last(tokens).tanh()).mean(1))
        return found


def ask(model: nn.Module, data: Dataset, **options: Any) -> Result:
    how = {name: options.pop(name) for name in ("shard", "batch") if name in options}
    return vitreous.inspect(
        {"m": model}, data, {"localisation": options}, image=16, limit=None, **how
    )["localisation"]


def test_patches_are_where_they_belong() -> None:
    images = torch.arange(2 * 3 * 4 * 6.0).reshape(2, 3, 4, 6)
    found = image_patches(images, (2, 3))
    assert found.shape == (6, 2, 12)
    torch.testing.assert_close(found[4, 1], images[1, :, 2:4, 2:4].flatten())
    assert image_patches(torch.zeros(2, 3, 15, 16), (4, 4)).shape == (
        16,
        2,
        48,
    )  # as if it were 16 pixels high


def test_indices_by_hand() -> None:
    own = np.full((1, 9, 9), 0.1)
    own[0, range(9), range(9)] = 0.6
    assert hit_rate(own, (3, 3)) == 1
    np.testing.assert_allclose(token_contrast(own), 0.5)
    moved = np.roll(own, 1, axis=2)
    assert hit_rate(moved, (3, 3)) == 0
    np.testing.assert_allclose(token_contrast(moved), 0.1 - (0.6 + 7 * 0.1) / 8)
    around = mean_by_displacement(own, (3, 3))[0]
    assert around.shape == (5, 5)
    assert around[2, 2] == pytest.approx(0.6)
    np.testing.assert_allclose(np.delete(around.ravel(), 12), 0.1)
    assert np.isnan(hit_rate(np.zeros((1, 4, 4)), (2, 2))).all()
    own[0, :, 3] = np.nan  # a part of the image that is always the same
    assert hit_rate(own, (3, 3)) == 1
    np.testing.assert_allclose(token_contrast(own), 0.5)
    assert np.isfinite(mean_by_displacement(own, (3, 3))[0, 2, 2])


def test_displacement_of_every_pair() -> None:
    maps = np.random.default_rng(0).random((1, 6, 6))
    want = np.mean(
        [maps[0, 0, 4], maps[0, 1, 5]]
    )  # one down, one to the right, on two rows of three
    assert mean_by_displacement(maps, (2, 3))[0, 2, 3] == pytest.approx(want)


def test_by_the_book() -> None:
    data, model = noise(24), settled(Transformer(nn.Sequential(nn.Linear(8, 8)), cls=True))
    result = ask(model, data)
    (subject,) = subjects(model, image=16)
    images = subject.prepare(data.images)
    unit = [u for u in subject.specimen.units if u.grid][-1]
    assert set(result.table["unit"]) == {unit.name}
    after = subject.specimen.observe(images, ("after",))[unit.name].after
    assert after is not None
    tokens = after.tokens[:, 1:]  # without the class token
    cells = F.unfold(images, 4, stride=4)  # (b, pixels, places)
    for token, place in ((0, 0), (5, 5), (5, 10), (15, 3)):
        want = cka_by_the_book(tokens[:, token], cells[:, :, place])
        found = result.arrays["m"][token // 4, token % 4, place // 4, place % 4]
        assert found == pytest.approx(want, abs=1e-5)


def test_models_that_keep_and_that_mix_positions() -> None:
    """A projection of each patch keeps its place; a convolutional net with large strides says
    little of any."""
    data = noise(64)
    result = ask(settled(Keeps()), data)
    kept = result.table.iloc[0]
    assert kept["chance"] == 1 / 16
    assert kept["hit_rate"] == 1
    assert kept["contrast_low"] > 0.1
    drawn = result.draws("contrast")[1:, 0]
    assert np.isfinite(drawn).sum() == DRAWN  # the others are not computed
    reach = stats.t.ppf(0.975, DRAWN - 1) * np.nanstd(drawn, ddof=1)
    assert kept["contrast_high"] == pytest.approx(kept["contrast"] + reach, rel=1e-3)
    net = ask(settled(Convolutional(Residual(8, 8, 2), Residual(8, 8, 2))), data).table.iloc[0]
    assert net["contrast"] < kept["contrast"]


def test_the_middle_of_the_picture() -> None:
    result = ask(settled(Keeps()), noise(64))
    table = result.table
    middle = table[table["distance"] == 0]
    assert (middle["down"].item(), middle["right"].item()) == ("0", "0")
    assert middle["value"].item() == table["value"].max()
    assert middle["low"].item() > table[table["distance"] > 0]["value"].max()
    assert table["down"].iloc[0] == "3"  # from below upwards
    for view in range(2):
        result.chart(view)


def test_parts_of_a_shard_and_a_coarser_grid() -> None:
    model, data = settled(Keeps()), noise(16)
    whole, parts = ask(model, data), ask(model, data, batch=5)
    np.testing.assert_allclose(whole.arrays["m"], parts.arrays["m"], atol=1e-5)
    assert ask(model, data, grid=2).arrays["m"].shape == (2, 2, 2, 2)
    assert ask(model, data, grid=2).table["hit_rate"].isna().all()  # there is no interior


def test_minibatches_are_the_same_however_images_are_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, model = noise(18), settled(Keeps())
    one = ask(model, data)
    monkeypatch.setattr(localisation, "MINIBATCH", 8)
    two = ask(model, data)
    assert two.about["images_compared"] == 16
    assert one.about["images_compared"] == 18
    assert np.abs(two.arrays["m"] - one.arrays["m"]).max() > 1e-4
    for how in ({"shard": 3}, {"shard": 8}, {"shard": 16, "batch": 5}, {"shard": 500}):
        again = ask(model, data, **how)
        np.testing.assert_allclose(again.arrays["m"], two.arrays["m"], atol=1e-5)
        np.testing.assert_allclose(again.table["high"], two.table["high"], atol=1e-5)


@pytest.mark.parametrize("batch", [30, 7])
def test_duplicate_images_are_left_out(batch: int) -> None:
    data, model = noise(16), settled(Keeps())
    plain, found = ask(model, data), ask(model, data.take([*range(16), *[2] * 9, 5]), batch=batch)
    np.testing.assert_allclose(found.arrays["m"], plain.arrays["m"], atol=1e-5)
    assert found.about["copies_left_out"] == 10
    assert found.about["images_compared"] == 16


def test_unsuited() -> None:
    with pytest.raises(VitreousError, match=r"needs at least 4 images, and there are 3\."):
        ask(settled(Keeps()), noise(3))
    flat = settled(nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU(), nn.Linear(8, 5)))
    with pytest.raises(VitreousError, match="None of its units has positions"):
        ask(flat, noise(8))
    with pytest.raises(VitreousError, match="at least 2 places a side"):
        Localisation(grid=1)


def test_few_replicates_have_students_interval() -> None:
    replicates = np.array([[0.5], [0.4], [0.6], [0.7], [0.3]])
    reach = stats.t.ppf(0.975, 3) * np.std([0.4, 0.6, 0.7, 0.3], ddof=1)
    four = localisation._estimate(replicates, 10)  # four replicates of ten images
    assert [four.low[0], four.high[0]] == pytest.approx([0.5 - reach, 0.5 + reach])
    reach *= stats.t.ppf(0.975, 1) / stats.t.ppf(0.975, 3)
    two = localisation._estimate(replicates, 2)  # and of two
    assert [two.low[0], two.high[0]] == pytest.approx([0.5 - reach, 0.5 + reach])
    assert np.isnan(localisation._estimate(replicates, 1).low).all()
    assert localisation._estimate(replicates, 2, (0, 1)).high == 1
