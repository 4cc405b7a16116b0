"""What lesions cost, against models in which the same thing was taken out by hand."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.analyses.lesion import Lesion, answers_per_image
from vitreous.measure.analysis import Bench
from vitreous.measure.probe import Setting
from vitreous.measure.robustness.edits import by_offset
from vitreous.measure.subject import subjects
from vitreous.models.convit import outer
from vitreous.models.loading import load_model
from vitreous.results import Result
from vitreous.specimen.specimen import Specimen

QUICK: dict[str, Any] = {}
IMAGES = 24


@cache
def data() -> Any:
    return vitreous.data.load("world:shapes", split="test", size=IMAGES)


@cache
def opened(name: str) -> Specimen:
    return vitreous.open(name)


@cache
def asked(what: str, *models: str) -> Result:
    return Lesion(what)({name: opened(name) for name in models}, data())


@torch.no_grad()
def by_hand(model: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """Right and NLL of each image, images in the order in which they were asked."""
    images, labels = subjects(opened(name))[0].prepare(chosen().images), chosen().labels
    scores = model.eval()(images).double()
    return (scores.argmax(1) == labels).double(), scores.logsumexp(1) - scores[
        torch.arange(IMAGES), labels
    ]


@cache
def chosen() -> Any:
    from vitreous.measure.selection import choose_images

    return choose_images(data(), "test", None, subjects(opened("nano:vit")), 0)


def compared(
    result: Result, part: str, changed: nn.Module, name: str, change: str | None = None
) -> None:
    rows = result.table[(result.table["model"] == name) & (result.table["part"] == part)]
    row = (rows if change is None else rows[rows["change"] == change]).iloc[0]
    whole, other = by_hand(load_model(name), name), by_hand(changed, name)
    assert row["value"] == pytest.approx(float((whole[0] - other[0]).mean()), abs=1e-12)
    assert row["rise"] == pytest.approx(float((other[1] - whole[1]).mean()), rel=1e-4, abs=1e-6)
    assert row["accuracy"] == pytest.approx(float(other[0].mean()))
    assert row["nll"] == pytest.approx(float(other[1].mean()), rel=1e-4)
    spread = float((other[1] - whole[1]).std()) / IMAGES**0.5
    assert row["rise_high"] - row["rise_low"] == pytest.approx(
        2 * 1.96 * spread, rel=0.35
    )  # of the difference


def test_a_removed_unit_equals_a_branch_of_zeros() -> None:
    result = asked("units", "nano:vit")
    model: Any = copy.deepcopy(load_model("nano:vit"))
    with torch.no_grad():
        for parameter in model.blocks[0].mlp.fc2.parameters():
            parameter.zero_()
    compared(result, "blocks.0.mlp", model, "nano:vit")
    assert len(result.table) == 12
    assert set(result.about["left_out"]["nano:vit"]) == {"patch_embed", "head"}


def test_a_removed_convolution_equals_the_identity() -> None:
    result = asked("convolutions", "nano:resnet")
    model: Any = copy.deepcopy(load_model("nano:resnet"))
    model.stages[0][1].convs[0] = nn.Identity()
    compared(result, "stages.0.1.convs.0", model, "nano:resnet")
    assert len(result.table) == 16
    assert set(result.about["left_out"]["nano:resnet"]) == {
        "stages.1.0.convs.0",
        "stages.2.0.convs.0",
    }


def test_skips_removed() -> None:
    class Net(nn.Module):
        def __init__(self, skip: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.stem, self.conv, self.skip = (
                nn.Conv2d(3, 8, 4, 4),
                nn.Conv2d(8, 8, 3, padding=1),
                skip,
            )
            self.head = nn.Linear(8, 10)

        def forward(self, images: Tensor) -> Tensor:
            x = self.stem(images)
            return self.head((x * self.skip + self.conv(x).relu()).mean((2, 3)))

    rows = Lesion("skips")({"net": Net(True)}, data(), image=32).table
    whole, other = (by_hand_of(Net(skip)) for skip in (True, False))
    assert rows["rise"].tolist() == pytest.approx([float((other - whole).mean())], rel=1e-4)


@torch.no_grad()
def by_hand_of(model: nn.Module) -> Tensor:
    subject = subjects({"net": model}, image=32)[0].for_dataset(chosen())
    scores = model(subject.prepare(chosen().images)).double()
    return scores.logsumexp(1) - scores[torch.arange(IMAGES), chosen().labels]


def test_positions_masked() -> None:
    result = asked("positions", "nano:vit")
    model: Any = copy.deepcopy(load_model("nano:vit"))
    with torch.no_grad():
        model.positions[0].table.zero_()
    compared(result, "positions.0.table", model, "nano:vit")


def test_forced_gates_leave_one_kind_of_attention() -> None:
    """Content masked in the first layer: its attention is the positional one, which the model
    itself can tell."""
    row = asked("gates", "nano:convit").table.iloc[0]
    model: Any = load_model("nano:convit")
    with torch.no_grad():
        fixed = outer(*model.blocks[0].attn.position_factors((8, 8))).float()
    specimen = opened("nano:convit").with_attention("blocks.0.attn", fixed)
    whole, other = (
        by_hand(load_model("nano:convit"), "nano:convit"),
        by_hand(specimen, "nano:convit"),
    )
    assert row["change"] == "content masked up to here"
    assert row["rise"] == pytest.approx(float((other[1] - whole[1]).mean()), rel=1e-2, abs=1e-7)
    assert len(asked("gates", "nano:convit").table) == 10


def test_attention_replaced_by_its_mean_and_by_neighbours() -> None:
    table = asked("attention", "nano:vit").table
    subject = subjects(opened("nano:vit"))[0]
    mean = subject.specimen.mean_attention([subject.prepare(chosen().images)])
    for change, given in (("mean over images", mean), ("uniform 3x3", "uniform 3x3")):
        specimen = subject.specimen.with_attention("blocks.4.attn", given)
        compared(asked("attention", "nano:vit"), "blocks.4.attn", specimen, "nano:vit", change)
    assert table.groupby("unit").size().tolist() == [3] * 6


def test_attention_by_offset_alone() -> None:
    """Every pair of queries and keys, one after the other; one window with a class token, and two
    without."""
    from vitreous.specimen.attention_geometry import Places
    from vitreous.specimen.layout import BatchAxis

    axis, order = BatchAxis(0, 1, True), torch.zeros(1, 2, dtype=torch.int64)
    whole = torch.arange(7)[None]
    windows = torch.tensor([[0, 1, 4, 5], [2, 3, 6, -1]])
    for queries, prefix, grid in ((whole, 1, (2, 3)), (windows, 0, (2, 4))):
        places = Places(axis, order, queries, queries, prefix, grid, grid)
        attention = torch.rand(
            len(queries), 2, queries.shape[1], queries.shape[1], dtype=torch.float64
        )
        assert torch.allclose(
            by_offset(attention, places), one_by_one(attention, queries, prefix, grid[1])
        )


def one_by_one(attention: Tensor, tokens: Tensor, prefix: int, width: int) -> Tensor:
    def offset(query: int, key: int) -> tuple[Any, ...]:
        if query < prefix:
            return ("own", query, key)
        if key < prefix:
            return ("prefix", key)
        q, k = query - prefix, key - prefix
        return (q // width - k // width, q % width - k % width)

    found = torch.zeros_like(attention)
    for head in range(attention.shape[1]):
        sums: dict[tuple[Any, ...], list[float]] = {}
        pairs = [
            (g, i, j, int(q), int(k))
            for g, row in enumerate(tokens)
            for i, q in enumerate(row)
            for j, k in enumerate(row)
            if q >= 0 and k >= 0
        ]
        for g, i, j, q, k in pairs:
            sums.setdefault(offset(q, k), []).append(float(attention[g, head, i, j]))
        for g, i, j, q, k in pairs:
            found[g, head, i, j] = float(np.mean(sums[offset(q, k)]))
    return found / found.sum(-1, keepdim=True).clamp(min=1e-300)


def test_scores_that_are_not_finite_are_never_right() -> None:
    subject = subjects(opened("nano:vit"))[0]
    bench = Bench(Setting((subject,), chosen()), 7)
    numbers = answers_per_image(
        lambda images: torch.full((len(images), 10), torch.nan), subject, bench
    )
    assert not numbers["right"].any()
    assert numbers["nll"].isnan().all()


def test_bad_input() -> None:
    with pytest.raises(VitreousError, match="kind of lesion"):
        Lesion("unit")
    model = {"vit": opened("nano:vit")}
    left_out = vitreous.analyse(
        opened("nano:resnet"), data(), {"lesion": {"what": "gates"}}
    ).left_out
    assert list(left_out["lesion"].values()) == ["It has no gated positional attention."]
    unlabelled = vitreous.data.Dataset(
        data().images, torch.full((IMAGES,), -1), (), "pictures", "test"
    )
    assert "no labels" in vitreous.analyse(model, unlabelled, ["lesion"]).left_out["lesion"]["vit"]
    few = data().take([0])
    single = Lesion()(model, few, batch=500).table
    assert single["low"].isna().all()
    assert single["value"].notna().all()
    alone = vitreous.data.Dataset(
        data().images, torch.zeros(IMAGES, dtype=torch.int64), ("one",), "one", "test"
    )
    assert "10 classes" in vitreous.analyse(model, alone, ["lesion"]).left_out["lesion"]["vit"]


def test_a_model_depends_on_what_costs_something_for_certain() -> None:
    """A change that may have cost nothing is not the one that matters most, however large it is."""
    result = asked("units", "nano:resnet")
    table = result.table.copy()
    table[["value", "low", "high"]] = 0.0
    table.loc[table.index[0], ["value", "low", "high"]] = 0.9, -0.1, 1.0
    table.loc[table.index[1], ["value", "low", "high"]] = 0.3, 0.25, 0.35
    (sentence,) = Lesion.sentences(replace(result, table=table, replicates={}))
    assert table["part"].iloc[1] in sentence
    assert table["part"].iloc[0] not in sentence
    assert "30.0\u00a0points" in sentence
    assert f"{len(table) - 1} of {len(table)} changes" in sentence
