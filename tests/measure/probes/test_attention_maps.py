"""Maps against the attention itself, whatever it was spread over, quantised or put into blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor

import vitreous
from measure.probes.attending import ask, attention_units, look, opened, passing, random_map, seen
from measure.probes.noise import noise
from vitreous.errors import VitreousError
from vitreous.measure.pictures import block_grid, token_matrix, top_classes
from vitreous.measure.probes.attention_maps import MARK, TILE, quantise, stacked, tile
from vitreous.measure.subject import subjects
from vitreous.results import Result
from vitreous.specimen.specimen import Specimen


def restored(result: Result, specimen: Specimen, unit: str) -> np.ndarray:
    """Probabilities out of levels and scales, as a page does it."""
    index, (model,) = specimen.anatomy[unit].index, result.about["models"]
    levels, scale = (result.arrays[f"{what}/{model}/{index}"] for what in ("attention", "scale"))
    assert (str(levels.dtype), str(scale.dtype)) == ("uint8", "float32")
    return levels / 255 * scale[..., None]


@pytest.mark.parametrize("name", ["plain", "class", "wide", "swin", "maxvit", "pvt", "cait"])
def test_maps_are_the_attention_of_all_tokens(name: str) -> None:
    specimen, observed = opened(name), look(opened(name), 3)
    result = ask(specimen, "attention_maps", 3, images=(2, 0))
    (model,) = result.about["models"]
    for unit in attention_units(specimen):
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        wanted = found.dense()[[2, 0]].numpy()
        close = wanted.max(-1, keepdims=True) / 500
        assert (np.abs(restored(result, specimen, unit) - wanted) <= close).all()
        grids = result.about["maps"][model][str(specimen.anatomy[unit].index)]
        assert grids["queries"] == list(found.query_grid)
        assert grids["keys"] == list(found.key_grid)
        tokens = [
            grids["prefix"] + rows * columns for rows, columns in (grids["queries"], grids["keys"])
        ]
        assert tokens == list(wanted.shape[2:])


def blocks(matrix: Tensor, grid: tuple[int, int], step: int) -> Tensor:
    """Mean over queries and sum over keys of step x step cells of (b, h, n, n), by cutting."""
    rows, columns = grid
    cut = matrix.unflatten(3, (rows // step, step, columns // step, step)).sum((4, 6)).flatten(3)
    return cut.unflatten(2, (rows // step, step, columns // step, step)).mean((3, 5)).flatten(2, 3)


@pytest.mark.parametrize("unit", [0, 1])
def test_blocks_of_a_large_grid_keep_the_sums_of_rows(unit: int) -> None:
    found = seen(opened("swin"), attention_units(opened("swin"))[unit])
    coarse = token_matrix(found, found.values, most=4)
    torch.testing.assert_close(coarse, blocks(found.dense(), (8, 8), 2))
    torch.testing.assert_close(coarse.sum(-1), torch.ones(2, 2, 16))


def test_blocks_that_do_not_divide_the_grid() -> None:
    assert [block_grid((side, 5), 4)[0] for side in (3, 4, 5, 7, 8, 9, 37)] == [3, 4, 3, 4, 4, 3, 4]
    assert block_grid((37, 56), 16) == (13, 14)
    assert block_grid((37, 56), None) == (37, 56)
    tokens = [list(range(2 + 15))]
    found = random_map(tokens, tokens, 2, ((3, 5), (3, 5)))
    coarse = token_matrix(found, found.values, most=2)
    assert coarse.shape == (3, 2, 2 + 4, 2 + 4)
    torch.testing.assert_close(coarse.sum(-1), torch.ones(3, 2, 6, dtype=torch.float64))
    corner = (
        found.values[:, 0, :, 15:, [5, 6, 10, 11]].sum(-1).mean(-1)
    )  # from row 2 to rows 0 and 1, columns 3 and 4
    torch.testing.assert_close(coarse[:, :, 5, 3], corner)


def test_levels_are_linear_to_the_largest_of_each_row() -> None:
    levels, scale = quantise(np.array([[[[0.5, 0.25, 0.0], [0.0, 0.0, 0.0]]]]))
    assert levels.tolist() == [[[[255, 128, 0], [0, 0, 0]]]]
    assert scale.tolist() == [[[0.5, 0.0]]]


def test_a_small_budget_drops_images_first_and_heads_last() -> None:
    whole = 2 * 2 * 17**2  # layers, heads, pairs of tokens
    plenty, fewer, averaged = (
        ask(opened("class"), "attention_maps", 4, budget=budget)
        for budget in (4 * whole, 3 * whole - 1, whole - 1)
    )
    assert "fewer" not in plenty.about
    assert len(plenty.arrays["images"]) == 4
    assert fewer.about["fewer"].startswith("2 of 4 images: maps take")
    assert len(fewer.arrays["images"]) == 2
    assert averaged.about["fewer"].startswith("1 of 4 images; heads averaged in ")
    (first,) = attention_units(opened("class"))[:1]
    every, mean = (restored(result, opened("class"), first)[0] for result in (plenty, averaged))
    assert mean.shape == (1, 17, 17)
    np.testing.assert_allclose(mean[0], every.mean(0), atol=2 / 500)
    for name, array in averaged.arrays.items():
        assert not name.startswith("attention/") or len(array) == 1


def test_queries_are_averaged_in_blocks_before_heads_are() -> None:
    torch.manual_seed(0)
    model = vitreous.build("vit_ti/4", image=(36, 48), depth=1, heads=2, width=8, classes=3)
    specimen = vitreous.open(model.eval())
    (unit,) = attention_units(specimen)
    whole, coarse = (
        ask(specimen, "attention_maps", 1, budget=budget)
        for budget in (2 * 109 * 109, 2 * 109 * 109 - 1)
    )
    assert coarse.about["fewer"].startswith("Mean over blocks of neighbouring queries in ViT: maps")
    (grids,) = (each[str(specimen.anatomy[unit].index)] for each in coarse.about["maps"].values())
    assert (grids["queries"], grids["keys"], grids["heads"]) == ([5, 6], [9, 12], "all")
    full, blocked = (restored(result, specimen, unit)[0] for result in (whole, coarse))
    assert blocked.shape == (2, 1 + 5 * 6, 1 + 9 * 12)
    close = float(full.max()) / 250  # half a level of each
    np.testing.assert_allclose(blocked[:, 0], full[:, 0], atol=close)
    cells = full[:, 1:].reshape(2, 9, 12, -1)
    for row, column in ((0, 0), (2, 5), (4, 3)):  # the last row of blocks is one cell high
        mean = cells[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean((1, 2))
        np.testing.assert_allclose(blocked[:, 1 + row * 6 + column], mean, atol=close)
    (heads,) = ask(specimen, "attention_maps", 1, budget=3_000).about["maps"].values()
    assert {unit["heads"] for unit in heads.values()} == {"mean"}


def test_all_models_show_the_same_images() -> None:
    found = vitreous.inspect(
        {"one": opened("class"), "many": opened("swin")},
        noise(4),
        {"attention_maps": {"budget": 30_000}},
    )["attention_maps"]
    count = len(found.arrays["images"])
    assert count == 30_000 // (2 * 2 * 64**2 + 2 * 16**2)
    assert {
        len(array)
        for name, array in found.arrays.items()
        if name.startswith(("attention/", "scale/"))
    } == {count}


def test_summaries_are_those_of_the_single_image(tmp_path: Path) -> None:
    specimen = opened("class")
    result = ask(specimen, "attention_maps", 3, images=[1])
    one = passing(3).take([1])
    for column, probe in (("distance", "attention_distance"), ("entropy", "attention_entropy")):
        wanted = vitreous.inspect(specimen, one, [probe])[probe].table
        rows = result.table[result.table["head"] != "mean"]
        np.testing.assert_allclose(rows[column], wanted["value"], rtol=1e-5)
        if "elsewhere" in wanted:
            np.testing.assert_allclose(rows["elsewhere"], wanted["elsewhere"], rtol=1e-5)
    assert result.table["image"].unique().tolist() == [1]
    assert Result.load(result.save(tmp_path)) == result


@pytest.mark.parametrize("probe", ["attention_maps", "rollout"])
def test_results_do_not_depend_on_shards_and_batches(probe: str) -> None:
    def found(**how: Any) -> Result:
        return vitreous.inspect(opened("class"), noise(5), {probe: {"images": (4, 0, 1)}}, **how)[
            probe
        ]

    whole, single, shards = found(), found(batch=1), found(shard=2)
    for other in (single, shards):
        assert other.arrays.keys() == whole.arrays.keys()
        for name, array in whole.arrays.items():
            assert np.abs(array.astype(float) - other.arrays[name]).max() <= (
                1 if array.dtype == np.uint8 else 1e-6
            )
        for column in ("elsewhere", "image"):
            np.testing.assert_allclose(other.table[column], whole.table[column], atol=1e-6)


def test_images_are_shown_as_they_are_and_large_ones_smaller() -> None:
    result = ask(opened("class"), "attention_maps", 3, images=(2, 1))
    assert np.array_equal(
        result.arrays["images"], passing(3).images[[2, 1]].permute(0, 2, 3, 1).numpy()
    )
    assert (result.about["shown"], result.about["labels"]) == ([2, 1], ["image 2", "image 1"])
    large = vitreous.inspect(opened("class"), noise(1, 320), ["attention_maps"])["attention_maps"]
    assert large.arrays["images"].shape == (1, 224, 224, 3)


def test_images_that_are_not_inspected_are_refused() -> None:
    with pytest.raises(
        VitreousError, match=r"None of the images 7, 9 is among the 3 that are inspected"
    ):
        ask(opened("class"), "attention_maps", 3, images=(7, 9))


def test_a_tile_frames_its_query_and_brightness_is_attention() -> None:
    matrix = np.full((1 + 6, 1 + 6), 1e-6)
    matrix[1 + 1 * 3 + 1, 1 + 2] = 1.0  # from the middle of 2x3 patches to the upper right one
    drawn = tile(matrix, (2, 3, 2, 3, 1))
    high, cell = round(TILE * 2 / 3), TILE // 3
    assert drawn.shape == (high, TILE, 3), "nothing is drawn beside the grid"
    light = drawn.sum(-1)
    bright = light[: high // 2, 2 * cell + 2 :]
    dark = light[: high // 2, : 2 * cell - 2]
    assert bright.min() > 2 * dark.max()
    framed = (drawn == MARK).all(-1)
    assert framed[high - 1, TILE // 2]
    assert not framed[high * 3 // 4, TILE // 2]
    assert np.argwhere(framed).min(0)[0] >= high // 2


def test_tiles_of_several_shapes_are_padded_to_one() -> None:
    wide, tall = np.zeros((2, 4, 3), np.uint8), np.ones((4, 3, 3), np.uint8)
    both = stacked([wide, tall])
    assert both.shape == (2, 4, 4, 3)
    np.testing.assert_array_equal(both[0, :2], wide)
    np.testing.assert_array_equal(both[1, :, :3], tall)
    assert set(np.unique(both[0, 2:])) == {128}
    assert stacked([wide, wide]).shape == (2, *wide.shape)


def test_tiles_are_the_first_image_with_heads_averaged() -> None:
    result = ask(opened("swin"), "attention_maps", 2)
    shown = result.table[result.table["tile"]]
    assert shown["unit"].tolist() == attention_units(opened("swin"))
    assert set(shown["head"]) == {"mean"}
    assert set(shown["image"]) == {0}
    assert len(result.arrays["tiles"]) == 3


def test_predictions_are_the_softmax_of_the_model() -> None:
    found = vitreous.inspect(
        "nano:vit", "world:shapes", {"attention_maps": {"images": (5, 0)}}, limit=24, shard=8
    )["attention_maps"]
    (subject,) = subjects("nano:vit")
    images = torch.from_numpy(found.arrays["images"]).permute(0, 3, 1, 2)
    with torch.no_grad():
        wanted = subject.specimen(subject.prepare(images)).double().softmax(1)
    (told,) = found.about["predictions"].values()
    assert told["unmarked"] == ""
    for shares, shown, label in zip(wanted, told["images"], found.about["labels"], strict=True):
        order = sorted(range(len(shares)), key=lambda number: -shares[number])
        names = [subject.classes[number] for number in order]
        assert [name for name, _ in shown["top"]] == names[:3]
        assert [value for _, value in shown["top"]] == pytest.approx(
            [float(shares[number]) for number in order[:3]], abs=1e-5
        )
        rank = names.index(label)
        assert shown["label"][::2] == [label, rank + 1]
        assert shown["label"][1] == pytest.approx(float(shares[order[rank]]), abs=1e-5)


def test_of_equal_scores_the_first_class_wins_and_the_label_has_its_rank() -> None:
    scores = torch.tensor([[0.0, 1.0, 1.0, -1.0], [2.0, 2.0, 2.0, 2.0]])
    found = top_classes(scores, torch.tensor([3, 2]))
    exp = np.exp([0.0, 1.0, 1.0, -1.0])
    share = exp / exp.sum()
    wanted = [[share[1], share[2], share[0], 1, 2, 0, share[3], 4], [0.25] * 3 + [0, 1, 2, 0.25, 3]]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert top_classes(scores[:, :2], torch.tensor([-1, 1])).shape == (2, 6)


def test_a_model_without_classifier_has_no_predictions() -> None:
    torch.manual_seed(0)
    headless = vitreous.build("vit_ti/4", image=16, depth=1, heads=2, width=8, classes=0)
    assert vitreous.open(headless).units[-1].parameters == 0
    result = ask(vitreous.open(headless), "attention_maps", 2)
    assert result.about["predictions"] == {}
    unknown = ask(opened("class"), "attention_maps", 2).about["predictions"]["Transformer"]
    assert unknown["images"][0]["top"][0][0].startswith("class ")
    assert unknown["images"][0]["label"] is None
    assert "no labels" in unknown["unmarked"]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("plain", [[], []]), ("class", [["class"]] * 2), ("cait", [[], ["class"], ["class"]])],
)
def test_prefix_tokens_have_names(name: str, tokens: list[list[str]]) -> None:
    (units,) = ask(opened(name), "attention_maps", 2).about["maps"].values()
    assert [unit["tokens"] for unit in units.values()] == tokens


def test_registers_distillation_and_learned_queries_have_names() -> None:
    small = {"depth": 1, "embed_dim": 8, "num_heads": 2, "pretrained": False}
    tokens = {
        "deit_tiny_distilled_patch16_224": ["class", "distillation"],
        "vit_small_patch14_reg4_dinov2": ["class", *["register"] * 4],
        "vit_base_patch16_siglip_224": ["query"],
    }
    for name, wanted in tokens.items():
        model = timm.create_model(name, img_size=28 if "dinov2" in name else 32, **small)
        result = ask(vitreous.open(model.eval()), "attention_maps", 1)
        (units,) = result.about["maps"].values()
        assert list(units.values())[-1]["tokens"] == wanted, name
