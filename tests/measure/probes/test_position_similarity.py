"""Cosines by hand, indices of tables whose topology is known, and tables found in everybody's
models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import vitreous
from measure.probes.noise import noise
from specimen import zoo
from vitreous.measure.probes.position_similarity import (
    SHEET,
    indices,
    similarity,
    tables,
    tile_sheet,
)
from vitreous.measure.subject import Subject, subjects
from vitreous.specimen.anatomy import Grid


def subject(name: str) -> Subject:
    (found,) = subjects(zoo.opened(name)[1])
    return found


def test_cosines_by_hand() -> None:
    table = np.array([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 3.0], [0.0, 0.0]]])
    found = similarity(table)
    assert found.shape == (2, 2, 2, 2)
    np.testing.assert_allclose(found[0, 0], [[1, 0], [np.sqrt(0.5), np.nan]])
    np.testing.assert_allclose(
        similarity(np.random.default_rng(0).normal(size=(3, 5, 8)))[1, 4, 1, 4], 1
    )


def places(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    down, across = np.mgrid[:height, :width]
    return down, across


def bumps(distance: np.ndarray) -> np.ndarray:
    """Embeddings whose similarity falls with the given distances (n, n): rows of a square root of
    the kernel."""
    values, vectors = np.linalg.eigh(np.exp(-(distance**2) / 20))
    found: np.ndarray = vectors * np.sqrt(values.clip(0))
    return found


def test_embeddings_that_depend_on_distance_only() -> None:
    down, across = (axis.flatten() for axis in places(6, 7))
    apart = np.hypot(down[:, None] - down, across[:, None] - across)
    found = indices(similarity(bumps(apart).reshape(6, 7, -1)))
    assert found["distance"] == pytest.approx(-1, abs=0.01)
    assert abs(found["row"]) < 0.05
    assert abs(found["column"]) < 0.05


def test_embeddings_that_depend_on_the_row_only() -> None:
    down, across = (axis.flatten() for axis in places(5, 5))
    found = indices(similarity(np.eye(5)[down].reshape(5, 5, -1)))
    assert found["row"] == pytest.approx(1)
    assert found["column"] == pytest.approx(0)
    turned = indices(similarity(np.eye(5)[across].reshape(5, 5, -1)))
    assert (turned["row"], turned["column"]) == pytest.approx((0, 1))
    distance = np.hypot(down[:, None] - down, across[:, None] - across)
    over = np.triu_indices(25, 1)
    expected = spearmanr(distance[over], (down[:, None] == down)[over].astype(float)).statistic
    assert found["distance"] == pytest.approx(expected)


def test_random_embeddings_have_indices_near_zero_and_constant_ones_nan() -> None:
    found = indices(similarity(np.random.default_rng(0).normal(size=(8, 8, 512))))
    assert all(abs(value) < 0.1 for value in found.values())
    assert np.isnan(indices(similarity(np.ones((4, 4, 3))))["distance"])


@pytest.mark.parametrize("grid", [(2, 2), (8, 8), (14, 14), (5, 20), (40, 40)])
def test_sheets_have_one_size_and_fit(grid: Grid) -> None:
    picture = tile_sheet(similarity(np.random.default_rng(0).normal(size=(*grid, 4))))
    assert picture.shape == (SHEET, SHEET, 3)
    assert picture.min() < 100


def test_a_tile_shows_the_similarities_of_its_position() -> None:
    table = np.array([[[1.0], [-1.0]], [[1.0], [1.0]]])
    picture = tile_sheet(similarity(table))
    larger = SHEET // 5
    pixels = picture[larger // 2 :: larger, larger // 2 :: larger][:5, :5]
    same, opposite, gap = [143, 58, 10], [27, 63, 148], [255, 255, 255]
    assert pixels[:2].tolist() == [
        [same, opposite, gap, opposite, same],
        [same, same, gap, opposite, opposite],
    ]


@pytest.mark.parametrize(
    ("model", "weights", "shape"),
    [
        ("vit", "pos_embed", (4, 4, 192)), ("deit", "pos_embed", (4, 4, 192)),
        ("convit", "pos_embed", (4, 4, 192)), ("pit", "pos_embed", (27, 27, 64)),
        ("hybrid", "pos_embed", (2, 2, 384)), ("tv vit", "encoder.pos_embedding", (4, 4, 32)),
        ("hf vit", "vit.embeddings.position_embeddings", (4, 4, 32)),
        ("hf dinov2", "embeddings.position_embeddings", (4, 4, 32)),
        ("hf clip", "embeddings.position_embedding.weight", (4, 4, 32)),
    ],
)  # fmt: skip
def test_tables_are_found_in_models_of_other_libraries(
    model: str, weights: str, shape: tuple[int, ...]
) -> None:
    found = tables(subject(model))
    assert list(found) == [weights]
    assert found[weights].shape == shape


def test_prefix_tokens_are_not_positions() -> None:
    whole = zoo.opened("deit")[0].get_parameter("pos_embed").detach().double()
    np.testing.assert_array_equal(
        tables(subject("deit"))["pos_embed"].reshape(16, -1), whole[0, 2:]
    )


def test_our_own_kinds_of_positions() -> None:
    model = vitreous.build("vit_nano", pos="2d")
    (crossed,) = subjects(model)
    table = tables(crossed)["positions.0"]
    np.testing.assert_allclose(
        table.reshape(64, -1), model.get_submodule("positions.0")()[0, 1:].detach()
    )
    (fixed,) = subjects(vitreous.build("vit_nano", pos="sinusoidal"))
    assert list(tables(fixed)) == ["positions.0.table"]
    (every,) = subjects(vitreous.build("vit_nano", inject="every", depth=3))
    assert list(tables(every)) == [f"positions.{i}.table" for i in range(3)]


@pytest.mark.parametrize(
    ("model", "why"),
    [("swin", "encodes offsets"), ("beit", "encodes offsets"), ("mixer", "has no table")],
)
def test_models_without_a_table_have_a_reason(model: str, why: str) -> None:
    found = vitreous.inspect(subject(model).specimen, noise(2, 64), ["position_similarity"])
    (reason,) = found.left_out["position_similarity"].values()
    assert why in reason


def test_through_an_inspection() -> None:
    torch.manual_seed(0)
    models = {
        "one": vitreous.build("vit_nano"),
        "many": vitreous.build("vit_nano", inject="every", depth=2),
    }
    result = vitreous.inspect(models, noise(2, 32), ["position_similarity"])["position_similarity"]
    assert result.table.query("pictured")["model"].tolist() == ["one", "many", "many"]
    assert result.arrays["sheets"].shape == (3, SHEET, SHEET, 3)
    assert result.views[0].facet == "model"
    assert set(result.table["positions"]) == {64}
    (alone,) = subjects({"one": models["one"]})
    table = next(iter(tables(alone).values()))
    expected = indices(similarity(table))
    assert result.table.set_index("index").query("model == 'one'")[
        "value"
    ].to_dict() == pytest.approx(expected)
