"""What every analysis promises, asked of all files of the folder, so that a new one cannot escape.

The options that make an analysis quick stand in its own test file as `QUICK`.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import vitreous
from measurement_pages import check_page
from results.schema import check_charts
from vitreous.claims.no_replicates import INTERVAL_ONLY
from vitreous.errors import VitreousError
from vitreous.measure import analyses
from vitreous.measure.analysis import Analysis
from vitreous.measure.partial import Interrupted
from vitreous.models.loading import load_model
from vitreous.results import Result

ROOT = Path(__file__).absolute().parents[2]  # of a copy by links, the copy
MODELS = ("nano:vit", "nano:resnet")
OF_RUNS = {"trajectory"}
"""What reads the checkpoints of a run, which an opened model does not have."""
IMAGES = 8
MORE = {"hessian": 16, "linear_probe": 16}
"""Two batches of eight, and enough that no two penalties are equally good."""
every = pytest.mark.parametrize("name", analyses.names())


def quick(name: str) -> dict[str, Any]:
    """Options of the test file, which is read and not imported."""
    tree = ast.parse(
        (ROOT / "tests" / "measure" / "analyses" / f"test_{name}.py").read_text(encoding="utf-8")
    )
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and getattr(node.target, "id", "") == "QUICK"
            and node.value is not None
        ):
            return ast.literal_eval(node.value)
    raise AssertionError(
        f"tests/measure/analyses/test_{name}.py has no QUICK: dict[str, Any] = {{…}}."
    )


@cache
def data(images: int) -> dict[str, vitreous.data.Dataset]:
    return {
        split: vitreous.data.load("world:shapes", split=split, size=images)
        for split in ("train", "test")
    }


@cache
def opened() -> dict[str, vitreous.Specimen]:
    return {name: vitreous.open(name) for name in MODELS}


def asked(name: str, models: Any = None, **how: Any) -> Result:
    if models is None:
        models = MODELS if name in OF_RUNS else opened()
    images = data(MORE.get(name, IMAGES))
    return vitreous.analyse(models, images, {name: quick(name)}, **how)[name]


@cache
def counted(name: str) -> tuple[Result, int]:
    """The result, and how many pieces it took."""
    from vitreous.measure import engine

    pieces: list[str] = []
    one = engine._compute_piece

    def counting(work: Any, piece: str, bench: Any) -> Any:
        pieces.append(piece)
        return one(work, piece, bench)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_compute_piece", counting)
        return asked(name), len(pieces)


def result(name: str) -> Result:
    return counted(name)[0]


def close(one: Result, other: Result, exact: float) -> None:
    assert list(one.table.columns) == list(other.table.columns)
    assert len(one.table) == len(other.table)
    for column in one.table.columns.difference(list(analyses.named(one.name).fleeting)):
        ours, theirs = one.table[column], other.table[column]
        if pd.api.types.is_float_dtype(theirs):
            scale = float(np.nanmax(np.abs(theirs), initial=1e-12))
            np.testing.assert_allclose(ours, theirs, rtol=exact, atol=exact * scale, err_msg=column)
        else:
            assert ours.equals(theirs), column


@every
def test_one_word_all_the_way(name: str) -> None:
    analysis: Any = analyses.named(name)
    assert issubclass(analysis, Analysis)
    assert analysis.name == name == result(name).name
    assert all(re.fullmatch(r"[A-Z]+\d*[-.]\d+", each) for each in analysis.ids), analysis.ids
    assert analyses.summary(name).endswith((".", ")", "?")), analyses.summary(name)


@every
def test_options_are_plain_and_said_in_the_record(name: str) -> None:
    analysis: Any = analyses.named(name)
    given = [each for each in fields(analysis) if each.init]
    assert analysis(**{each.name: getattr(analysis(), each.name) for each in given}) == analysis()
    for option, value in quick(name).items():
        assert result(name).about["options"][option] in (
            value,
            list(value) if isinstance(value, tuple) else value,
        )


@every
def test_numbers_with_an_interval_have_replicates(name: str) -> None:
    """So that claims compare models on the same resamples; without them evidence counts as old."""
    result = counted(name)[0]
    lows = [each for each in result.table if str(each) == "low" or str(each).endswith("_low")]
    has_interval = bool(result.table[lows].notna().any(axis=None))
    assert has_interval <= bool(result.replicates) or name in INTERVAL_ONLY


@every
def test_what_was_interrupted_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vitreous.measure import engine

    done: list[str] = []
    (_, count), one = counted(name), engine._compute_piece

    def once(work: Any, piece: str, bench: Any) -> Any:
        if len(done) == 2:
            raise Interrupted(name, 2, 9, True)
        done.append(piece)
        return one(work, piece, bench)

    monkeypatch.setattr(engine, "_compute_piece", once)
    with pytest.raises(KeyboardInterrupt) if count > 2 else pytest.MonkeyPatch.context():
        asked(name, keep=tmp_path)
    monkeypatch.setattr(engine, "_compute_piece", one)
    again = asked(name, keep=tmp_path)
    assert len(list((tmp_path / name).glob("piece-*.safetensors"))) == count
    close(again, result(name), 1e-9)


@every
def test_batch_size_does_not_matter_and_memory_may_run_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every first piece of a model ends half-way, and is begun again with half as many images at a
    time; neither number divides the images."""
    from vitreous.measure import engine

    one, failed, batch = engine._compute_piece, [], MORE.get(name, IMAGES) - 2

    def short(work: Any, piece: str, bench: Any) -> Any:
        def greedy(piece: str) -> Any:
            numbers = work(piece)
            if bench.batch > batch // 2:
                failed.append(piece)
                raise torch.OutOfMemoryError("too little")
            return numbers

        return one(greedy, piece, bench)

    monkeypatch.setattr(engine, "_compute_piece", short)
    close(asked(name, batch=batch), result(name), 2e-3)
    assert failed


class Bare(nn.Module):
    """Ten scores without a single parameter."""

    image_size = 8

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :10] * 1.5


class Small(Bare):
    """The same with one layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(10, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(super().forward(images))


def hardly(count: int, labels: bool = True, classes: int = 10) -> vitreous.data.Dataset:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)
    given = torch.arange(count) % max(classes, 1) if labels else torch.full((count,), -1)
    names = tuple(f"class {i}" for i in range(classes)) if labels else ()
    return vitreous.data.Dataset(images, given, names, "hardly any", "test")


BAD: dict[str, tuple[type[nn.Module], vitreous.data.Dataset]] = {
    "no labels": (Small, hardly(6, labels=False)),
    "one class": (Small, hardly(6, classes=1)),
    "one image, and a batch larger than the data": (Small, hardly(1)),
    "no parameters": (Bare, hardly(6)),
}


@every
@pytest.mark.parametrize("case", BAD)
def test_hardly_anything_is_answered_or_refused_in_a_sentence(name: str, case: str) -> None:
    kind, given = BAD[case]
    model, before = kind(), state(kind())
    options = {key: value for key, value in quick(name).items() if key not in ("to", "others")}
    try:
        found = vitreous.analyse(
            {"model": model}, {"train": given, "test": given}, {name: options}, batch=1000
        )
        said = "." if name in found else found.left_out[name]["model"]
    except VitreousError as error:
        said = str(error)
    assert said.endswith("."), said
    untouched(model, before)


def state(model: nn.Module) -> dict[str, Any]:
    return {
        "weights": {key: value.clone() for key, value in model.state_dict().items()},
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "learns": [p.requires_grad for p in model.parameters()],
        "training": [module.training for module in model.modules()],
        "hooks": [
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
            for m in model.modules()
        ],
    }


def untouched(model: nn.Module, before: dict[str, Any]) -> None:
    after = state(model)
    for key, value in before["weights"].items():
        assert torch.equal(value, after["weights"][key]), key
    for one, other in zip(before["grads"], after["grads"], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert {key: before[key] for key in ("learns", "training", "hooks")} == {
        key: after[key] for key in ("learns", "training", "hooks")
    }
    copy.deepcopy(model)


@every
@pytest.mark.parametrize("stopped", [False, True], ids=["to the end", "interrupted"])
def test_the_model_is_untouched(name: str, stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitreous.measure import engine

    model = load_model("nano:vit").train()
    parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    parameters[1].grad = torch.ones_like(parameters[1])
    before, grads = state(model), torch.is_grad_enabled()
    if stopped:
        one = engine._compute_piece

        def during(work: Any, piece: str, bench: Any) -> Any:
            one(work, piece, bench)
            raise KeyboardInterrupt

        monkeypatch.setattr(engine, "_compute_piece", during)
        with pytest.raises(KeyboardInterrupt):
            asked(name, model)
    else:
        asked(name, model)
    untouched(model, before)
    assert torch.is_grad_enabled() == grads


@every
def test_disk_round_trip(name: str, tmp_path: Path) -> None:
    found = result(name)
    assert Result.load(found.save(tmp_path)) == found


@every
def test_every_view_can_be_drawn(name: str) -> None:
    found = result(name)
    assert found.views, "There is nothing to look at."
    check_charts(found)


@every
def test_its_page_is_in_the_manual(name: str) -> None:
    page = ROOT / "docs" / "reference" / "analyses" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    check_page(name, text, analyses.named(name), result(name).columns)
    assert "vitreous.analyse(" in text
    picture = page.with_suffix(".svg")
    assert picture.is_file(), f"python docs/generate_analyses.py {name}"
    assert picture.stat().st_size < 150_000
