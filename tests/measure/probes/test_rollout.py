"""Rollout against products by hand, closed forms, and the faults of other programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import vitreous
from measure.probes.attending import ask, attention_units, look, opened, random_map, seen
from measure.probes.noise import noise
from vitreous.errors import VitreousError
from vitreous.measure.probes.rollout import (
    box_coverage,
    coverage,
    extend_rollout,
    highlight,
    layer,
    unrollable,
)

OPTIONS: list[dict[str, Any]] = [{}, {"identity": False}, {"heads": "max"}]


def by_hand(matrices: list[np.ndarray], identity: bool = True, heads: str = "mean") -> np.ndarray:
    """The product of (heads, n, n), one layer after the other, in float64."""
    product = np.eye(matrices[0].shape[-1])
    for matrix in matrices:
        one = (
            matrix.astype(np.float64).mean(0)
            if heads == "mean"
            else matrix.astype(np.float64).max(0)
        )
        one = one + np.eye(len(one)) if identity else one
        product = (one / one.sum(1, keepdims=True)) @ product
    return product


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["plain", "class"])
def test_against_the_product_by_hand(name: str, options: dict[str, Any]) -> None:
    result, observed = ask(opened(name), "rollout", **options), look(opened(name))
    (maps,) = (array for key, array in result.arrays.items() if key.startswith("rollout/"))
    for image in range(2):
        matrices = []
        for number, unit in enumerate(attention_units(opened(name))):
            found = observed[unit].attention
            assert found is not None
            found = found.probabilities
            matrices.append(found.dense()[image].numpy())
            product = by_hand(matrices, **options)
            wanted = product[0, 1:] if name == "class" else product.mean(0)
            np.testing.assert_allclose(maps[image, number].ravel(), wanted, rtol=1e-5, atol=1e-7)
            row = result.table[(result.table["unit"] == unit) & (result.table["image"] == image)]
            assert row["elsewhere"].item() == pytest.approx(
                product[0, 0] if name == "class" else 0, abs=1e-6
            )


@pytest.mark.parametrize("options", OPTIONS)
def test_rollout_rows_sum_to_one(options: dict[str, Any]) -> None:
    """Dividing by sums along the wrong axis gives rows between 0.98 and 1.03; padding must not take
    its share along."""
    product = None
    for _ in range(5):
        found = random_map([[0, 1, 2, 3, -1]], [[0, 1, 2, 3, -1]], 1, ((1, 3), (1, 3)), heads=3)
        matrix = layer(found, **{"heads": "mean", "identity": True, **options})
        product = extend_rollout(matrix, product)
        for rows in (matrix, product):
            torch.testing.assert_close(rows.sum(-1), torch.ones(3, 4, dtype=torch.float64))


def test_uniform_attention_in_closed_form() -> None:
    """Half of every layer is the skip: after l layers a token is itself by 1/2^l, and the mean of
    all for the rest."""
    result = ask(opened("class").with_attention("attention", "uniform"), "rollout")
    (maps,) = (array for key, array in result.arrays.items() if key.startswith("rollout/"))
    for number in range(2):
        np.testing.assert_allclose(maps[:, number], (1 - 0.5 ** (number + 1)) / 17, rtol=1e-5)
    np.testing.assert_allclose(result.table["value"], 1, rtol=1e-5)


def test_attention_to_oneself_gives_the_identity_rollout() -> None:
    result = ask(
        opened("class").with_attention("attention", torch.eye(17) * 0.99 + 0.01 / 17), "rollout"
    )
    assert (result.table["elsewhere"] > 0.98).all()
    plain = ask(opened("plain").with_attention("attention", torch.eye(16)), "rollout")
    (maps,) = (array for key, array in plain.arrays.items() if key.startswith("rollout/"))
    np.testing.assert_allclose(maps, 1 / 16, rtol=1e-6)


def test_a_class_token_added_later_starts_with_a_row_of_the_identity() -> None:
    torch.manual_seed(0)
    model = vitreous.build(
        "convit_ti", image=16, patch=4, classes=3, depth=2, heads=4, head_dim=4, gpsa=1
    ).eval()
    specimen = vitreous.open(model)
    result, observed = ask(specimen, "rollout"), look(specimen)
    first, second = (seen(specimen, unit).dense()[1].numpy() for unit in attention_units(specimen))
    assert (len(observed), first.shape[-1], second.shape[-1]) == (2, 16, 17)
    joined = np.eye(17)
    joined[1:, 1:] = by_hand([first])
    wanted = (by_hand([second]) @ joined)[0]
    start = torch.from_numpy(by_hand([first]))[None]
    np.testing.assert_allclose(
        extend_rollout(torch.eye(17, dtype=torch.float64)[None], start)[0], joined, rtol=1e-12
    )
    (maps,) = (array for key, array in result.arrays.items() if key.startswith("rollout/"))
    np.testing.assert_allclose(maps[1, 1].ravel(), wanted[1:], rtol=1e-5)
    np.testing.assert_allclose(maps[1, 0].ravel(), by_hand([first]).mean(0), rtol=1e-5)


def test_tokens_that_are_not_queries_keep_their_row() -> None:
    """CaiT: patches among themselves, then only the class token looks."""
    specimen = opened("cait")
    result, observed = ask(specimen, "rollout"), look(specimen)
    units = attention_units(specimen)
    first = observed[units[0]].attention
    assert first is not None
    first = first.probabilities
    product = np.eye(5)
    product[1:, 1:] = by_hand([first.dense()[0].numpy()])
    for unit in units[1:]:
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        matrix = np.eye(5)
        matrix[0] = (found.values[0, 0].mean(0)[0].numpy() + matrix[0]) / 2
        product = matrix @ product
    (maps,) = (array for key, array in result.arrays.items() if key.startswith("rollout/"))
    np.testing.assert_allclose(maps[0, -1].ravel(), product[0, 1:], rtol=1e-5)


def test_windows_on_one_grid_can_be_multiplied() -> None:
    result, found = (
        ask(opened("neighbours"), "rollout"),
        seen(opened("neighbours"), "blocks.0.attn"),
    )
    (maps,) = (array for key, array in result.arrays.items() if key.startswith("rollout/"))
    np.testing.assert_allclose(
        maps[0, 0].ravel(), by_hand([found.dense()[0].numpy()]).mean(0), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [("swin", "grid changes from stage to stage"), ("pvt", "coarser grid than its queries")],
)
def test_models_without_a_meaningful_product_are_refused(name: str, why: str) -> None:
    with pytest.raises(VitreousError, match=why):
        ask(opened(name), "rollout")


def test_models_that_mix_positions_otherwise_are_refused() -> None:
    units = opened("class").units
    assert unrollable(units) == ""
    between = [*units[:3], *opened("maxvit").units[1:2], *units[3:]]
    assert "changes" in unrollable(between)
    mixing = replace(units[2], kind="conv", name="local")
    assert "local (conv) moves information" in unrollable([*units[:2], mixing, *units[3:]])
    assert "loses tokens" in unrollable([*units[:3], replace(units[3], prefix=()), *units[4:]])
    assert "Not all of its attention" in unrollable(
        [*units[:3], replace(units[3], reach="linear"), *units[4:]]
    )


def test_coverage_of_known_shares() -> None:
    assert coverage(np.full(8, 0.01)) == pytest.approx(1)
    assert coverage(np.array([0.0, 0.3, 0.0, 0.0])) == pytest.approx(1 / 4)
    assert coverage(np.array([0.5, 0.5, 0.0, 0.0])) == pytest.approx(1 / 2)


def test_brightness_is_proportional_to_the_shares() -> None:
    image = np.full((8, 8, 3), 200, np.uint8)
    both = highlight(image, np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert both.shape == (8, 16, 3)
    assert (both[:, :8] == 200).all()
    assert both[-1, -1, 0] == 200
    assert 24 <= both[0, 8, 0] <= 28


def test_options_are_checked() -> None:
    with pytest.raises(
        VitreousError, match=r"rollout\.heads='min' was set; it takes one of 'mean', 'max'"
    ):
        vitreous.inspect(opened("class"), noise(1), {"rollout": {"heads": "min"}})


@pytest.mark.parametrize(
    ("box", "grid"),
    [
        ((3, 5, 6, 8), (8, 8)),
        ((0, 0, 32, 16), (4, 8)),
        ((7, 1, 9, 30), (5, 3)),
        ((4, 4, 4, 9), (8, 8)),
    ],
)
def test_how_much_of_a_patch_lies_in_a_box(box: tuple[int, ...], grid: tuple[int, int]) -> None:
    """Against counting points that lie close together."""
    x, y = ((np.arange(960) + 0.5) * side / 960 for side in (32, 16))
    inside = np.outer((box[1] <= y) & (y < box[3]), (box[0] <= x) & (x < box[2]))
    counted = inside.reshape(grid[0], 960 // grid[0], grid[1], 960 // grid[1]).mean((1, 3))
    np.testing.assert_allclose(box_coverage(box, (16, 32), grid), counted, atol=0.01)


def test_the_share_within_the_box_of_the_object() -> None:
    """Under uniform attention as much as the box covers; and what the class token rests on outside
    is not inside."""
    data = vitreous.data.load("world:syn-b", split="test", size=6)
    options = {"rollout": {"images": tuple(range(6))}}
    model = vitreous.open("nano:vit").with_attention("attention", "uniform")
    table = vitreous.inspect({"vit": model}, data, options, device="cpu")["rollout"].table
    np.testing.assert_allclose(table["inside"], 9 / 1024, rtol=1e-5)
    np.testing.assert_allclose(table["box"], 9 / 1024)
    found = vitreous.inspect("nano:vit", data, options, device="cpu")["rollout"]
    pictures = data.images.permute(0, 2, 3, 1).numpy()
    for image, picture in enumerate(found.arrays["images"]):
        (own,) = np.flatnonzero((pictures == picture).all((1, 2, 3)))
        x0, y0, x1, y1 = data.truth["box"][own].tolist()
        light = (
            found.arrays["rollout/nano:vit"][image, -1].astype(np.float64).repeat(4, 0).repeat(4, 1)
        )
        wanted = light[y0:y1, x0:x1].sum() / light.sum()
        row = found.table[(found.table["image"] == image) & found.table["tile"]]
        assert row["inside"].item() == pytest.approx(wanted, rel=1e-5)


def test_without_boxes_the_share_is_nan() -> None:
    assert ask(opened("class"), "rollout").table[["inside", "box"]].isna().to_numpy().all()
