"""Attention distance one pair at a time, in float64, for every way to attend; and the faults of
other programs."""

from __future__ import annotations

from itertools import product
from math import hypot
from typing import Any

import numpy as np
import pytest
import timm
import torch

import vitreous
from measure.probes.attending import (
    SIDE,
    Tokens,
    ask,
    attention_units,
    look,
    mean_distance,
    opened,
    random_map,
    seen,
    subject,
)
from measure.probes.noise import noise
from specimen.toys import Attention, Block, Transformer, part, settled, unfused
from vitreous.errors import VitreousError
from vitreous.specimen.attention_geometry import AttentionGeometry, pair_distances


def pair_distance(rows: int, columns: int) -> float:
    """Mean over all pairs of cells, each with itself included."""
    cells = list(product(range(rows), range(columns)))
    return float(np.mean([hypot(a - c, b - d) for (a, b), (c, d) in product(cells, cells)]))


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize(
    ("queries", "keys", "prefix", "grids"),
    [
        pytest.param(
            [[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4, 5]], 0, ((2, 3), (2, 3)), id="not square"
        ),
        pytest.param(
            [[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4, 5]], 2, ((2, 2), (2, 2)), id="two prefix tokens"
        ),
        pytest.param(
            [[0, 5], [4, 3]], [[1, 0], [2, 3]], 0, ((2, 3), (2, 2)), id="groups and a coarser grid"
        ),
        pytest.param(
            [[0, 1, -1], [2, -1, 3]], [[0, 1, -1], [2, -1, 3]], 1, ((1, 3), (1, 3)), id="padding"
        ),
    ],
)
def test_distances_equal_a_loop_over_pairs(
    queries: Tokens, keys: Tokens, prefix: int, grids: Any, renormalise: bool
) -> None:
    found = random_map(queries, keys, prefix, grids)
    geometry = AttentionGeometry.of(found.places, (12.0, 20.0), found.values)
    value, elsewhere = geometry.mean_distance(geometry.sums(found.values), renormalise)
    torch.testing.assert_close(
        value, mean_distance(found, (12.0, 20.0), renormalise), rtol=1e-12, atol=1e-12
    )
    assert bool((elsewhere.abs() < 1e-12).all()) == (
        prefix == 0 and all(k >= 0 for group in keys for k in group)
    )


@pytest.mark.parametrize("name", ["plain", "class", "wide", "swin", "maxvit", "pvt", "neighbours"])
def test_every_kind_of_attention(name: str) -> None:
    """Plain, with a class token, on 4x6 patches, in shifted windows, on MaxViT's grid, with PVT's
    reduced keys."""
    specimen = opened(name)
    table = ask(specimen, "attention_distance").table
    observed = look(specimen)
    _, height, width = specimen.anatomy.image
    for unit in attention_units(specimen):
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        wanted = mean_distance(found, (height, width)).mean(0)
        np.testing.assert_allclose(table.loc[table["unit"] == unit, "value"], wanted, rtol=1e-5)
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()


@pytest.mark.parametrize(("name", "grid"), [("plain", (4, 4)), ("class", (4, 4)), ("wide", (4, 6))])
def test_x_07_uniform_attention_gives_the_mean_pair_distance(
    name: str, grid: tuple[int, int]
) -> None:
    """Divided by the queries, not by the pairs: rows of attention sum to one already."""
    specimen = opened(name).with_attention("attention", "uniform")
    table = ask(specimen, "attention_distance").table
    np.testing.assert_allclose(table["value"], 4 * pair_distance(*grid), rtol=1e-5)
    np.testing.assert_allclose(table["uniform"], 4 * pair_distance(*grid), rtol=1e-6)
    np.testing.assert_allclose(table["relative"], 1, rtol=1e-5)


def test_class_token_both_ways() -> None:
    """A head that gives the class token nine tenths of its attention is not local for that."""
    matrix = torch.full((17, 17), 0.1 / 16)
    matrix[:, 0] = 0.9
    specimen = opened("class").with_attention("attention", matrix)
    both = {
        way: ask(specimen, "attention_distance", renormalise=way).table for way in (True, False)
    }
    np.testing.assert_allclose(both[True]["value"], 4 * pair_distance(4, 4), rtol=1e-5)
    np.testing.assert_allclose(both[False]["value"], 0.4 * pair_distance(4, 4), rtol=1e-5)
    for table in both.values():
        np.testing.assert_allclose(table["elsewhere"], 0.9, rtol=1e-5)


def test_a_head_that_attends_to_the_class_token_only_has_no_distance() -> None:
    matrix = torch.zeros(2, 17, 17)
    matrix[0, :, 0] = 1
    matrix[1] = 1 / 17
    table = ask(opened("class").with_attention("attention", matrix), "attention_distance").table
    assert table["value"].isna().tolist() == [True, False] * 2
    assert table["n"].tolist() == [0, 2] * 2


def test_the_uniform_reference_of_shifted_windows_respects_the_mask() -> None:
    """Swin rolls the map: its last window holds pieces of all four corners, which do not attend to
    each other."""
    table = (
        ask(opened("swin"), "attention_distance").table.drop_duplicates("unit").set_index("unit")
    )
    plain, shifted, whole = (table.loc[unit, "uniform"] for unit in attention_units(opened("swin")))
    assert plain == pytest.approx(4 * pair_distance(4, 4))
    assert whole == pytest.approx(8 * pair_distance(4, 4))
    cells = [divmod(i, 8) for i in range(64)]
    window = {
        (a, b): ((a + 2) // 4, (b + 2) // 4) for a, b in cells
    }  # cut by the border instead of rolled over it
    rows = [
        [hypot(a - c, b - d) for c, d in cells if window[c, d] == window[a, b]] for a, b in cells
    ]
    assert shifted == pytest.approx(4 * np.mean([np.mean(row) for row in rows]))


def test_grid_attention_reaches_across_the_image() -> None:
    """MaxViT: windows of 4x4 neighbours, then a grid of every second position."""
    table = (
        ask(opened("maxvit"), "attention_distance").table.drop_duplicates("unit").set_index("unit")
    )
    block, grid = (table.loc[unit, "uniform"] for unit in attention_units(opened("maxvit")))
    assert block == pytest.approx(4 * pair_distance(4, 4))
    assert grid == pytest.approx(8 * pair_distance(4, 4))


def test_reduced_keys_are_at_the_centre_of_their_patches() -> None:
    """PVT: 16x16 queries of 4 px, 2x2 keys of 32 px."""
    unit = attention_units(opened("pvt"))[0]
    found = seen(opened("pvt"), unit)
    assert (found.query_grid, found.key_grid) == ((16, 16), (2, 2))
    apart = pair_distances(found.places, (SIDE["pvt"], SIDE["pvt"]))[0]
    assert apart[0].tolist() == pytest.approx(
        [hypot(14, 14), hypot(14, 46), hypot(46, 14), hypot(46, 46)]
    )


def test_a_neighbourhood_is_compared_with_itself() -> None:
    table = ask(
        opened("neighbours").with_attention("attention", "uniform 3x3"), "attention_distance"
    ).table
    np.testing.assert_allclose(table["relative"], 1, rtol=1e-5)
    assert table["value"].max() < 4 * hypot(1, 1)


def test_fused_attention_equals_eager_attention() -> None:
    """Where attention is fused, others find no maps, or none at all without saying so."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, embed_dim=24).eval()
    fused = vitreous.inspect(
        model, noise(side=64), ["attention_distance", "attention_entropy", "head_diversity"]
    )
    for block in model.blocks:
        block.attn.fused_attn = False
    eager = vitreous.inspect(
        model, noise(side=64), ["attention_distance", "attention_entropy", "head_diversity"]
    )
    for name, result in fused.items():
        assert len(result.table) == (2 if name == "head_diversity" else 6)
        np.testing.assert_allclose(
            result.table["value"], eager[name].table["value"], rtol=1e-5, atol=1e-6
        )


def test_each_block_is_measured_on_its_own_input() -> None:
    """ConViT's logger gives the patch embedding to every block; here, what arrives there."""
    model = settled(Transformer(Block(Attention(unfused)), Block(Attention(unfused))))
    specimen = vitreous.open(model, image=16)
    images = subject(specimen).prepare(noise().images)
    geometry = AttentionGeometry.of(seen(specimen, "blocks.0.attn").places, (16, 16), images)

    def by_hand(tokens: torch.Tensor) -> np.ndarray:
        query, key, _ = part(model, "blocks.1.attn").split(part(model, "blocks.1.norm1")(tokens))
        matrix = (query @ key.mT / 2).softmax(-1)
        return geometry.mean_distance(geometry.sums(matrix[:, None]))[0].mean(0).numpy()

    with torch.no_grad():
        embedding = part(model, "stem")(images)
        own, others = by_hand(part(model, "blocks.0")(embedding)), by_hand(embedding)
    table = ask(specimen, "attention_distance", count=8).table
    found = table.loc[table["unit"] == "blocks.1.attn", "value"]
    np.testing.assert_allclose(found, own, rtol=1e-5)
    assert np.abs(others - own).max() > 1e-3


def test_heads_are_ranked_and_layers_averaged() -> None:
    table = ask(opened("class"), "attention_distance").table
    for _, rows in table.groupby("unit"):
        assert rows.sort_values("value")["rank"].tolist() == [1, 2]
        assert rows["mean"].tolist() == pytest.approx([rows["value"].mean()] * 2)
        assert (rows["mean_low"] <= rows["mean"]).all()
    assert (table["mean_low"] <= table["mean"]).all()


def test_models_and_units_that_do_not_suit_have_reasons() -> None:
    cait = ask(opened("cait"), "attention_distance")
    assert cait.table["unit"].unique().tolist() == ["blocks.0.attn"]
    (left,) = cait.about["left_out"].values()
    assert all("without a place" in why for why in left.values())
    found = vitreous.inspect("nano:resnet", noise(side=32), ["attention_distance"])
    with pytest.raises(VitreousError, match=r"nano:resnet: It has no attention\."):
        found["attention_distance"]


def test_the_uniform_reference_is_drawn_if_it_is_one_number() -> None:
    plain, swin = (
        ask(opened(name), "attention_distance").views[0].references for name in ("plain", "swin")
    )
    assert [line.label for line in plain] == ["uniform attention"]
    # not rounded: heads that attend alike would lie beyond it
    assert plain[0].value == pytest.approx(4 * pair_distance(4, 4), rel=1e-6)
    assert swin == ()
