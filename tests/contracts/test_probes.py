"""What every probe promises, asked of all files of the folder, so that a new one cannot escape.

Most of it is read off one inspection of three bundled models on 24 images, made once.
"""

from __future__ import annotations

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

import vitreous
from measurement_pages import check_page
from results.schema import check_charts
from vitreous.claims.no_replicates import INTERVAL_ONLY
from vitreous.data.dataset import Dataset
from vitreous.measure import probes
from vitreous.measure.probe import Probe, Setting, Sums
from vitreous.measure.streaming import Pass
from vitreous.measure.subject import Subject, subjects
from vitreous.models.loading import load_model
from vitreous.results import Result
from vitreous.specimen.observe import SITES

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("nano:vit", "nano:convit", "nano:resnet")
IMAGES = 24
PARTS = 8
EXACT = 1e-9
"""In double precision the order of additions is all that differs; relative to the largest number of
a column."""
ROUGH = {"filters": 1e-4}
"""Where products of pixels are taken in single precision, for speed."""
every = pytest.mark.parametrize("name", probes.names())
ASKED: set[str] = set()
"""The probes of this run: with `-k` a few, which need not wait for the others."""


@pytest.fixture(scope="module", autouse=True)
def _asked(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        if item.path == request.path and (given := getattr(item, "callspec", None)):
            ASKED.add(given.params["name"])


@cache
def data(count: int = IMAGES) -> Dataset:
    return vitreous.data.load("world:shapes", split="test", size=count)


@cache
def opened() -> tuple[Subject, ...]:
    """In double precision, in which batches of other sizes give the same numbers."""
    return subjects({name: load_model(name).double() for name in MODELS})


@cache
def alone() -> vitreous.Specimen:
    return vitreous.open(MODELS[0])


def of_one_shard(multiple: int) -> list[Probe]:
    """The probes whose shards are multiples of so many images; others would change their shards."""
    instances: list[Probe] = [probes.named(name)() for name in sorted(ASKED)]
    return [each for each in instances if each.shard_multiple == multiple]


@cache
def passed(multiple: int, shard: int, batch: int) -> tuple[Pass, list[Sums]]:
    """One pass for all these probes, as an inspection makes it, and the sums of each shard."""
    passing = Pass(tuple(of_one_shard(multiple)), Setting(opened(), data()), shard, batch)
    return passing, [passing.shard(number) for number in range(passing.shards)]


@cache
def passed_again(multiple: int) -> tuple[Sums, Sums]:
    """The sums of the same instances after a new start of the shard, and after a new beginning."""
    passing, _ = passed(multiple, IMAGES, IMAGES)
    for probe in passing.probes:
        probe.start_shard()
    again = passing.shard(0)
    for probe in passing.probes:
        probe.begin(passing.setting)
    return again, passing.shard(0)


def only(name: str, found: Sums) -> Sums:
    """The sums of one probe, without its name."""
    return {
        key.removeprefix(f"{name}:"): value
        for key, value in found.items()
        if key.startswith(f"{name}:")
    }


def sums(name: str, shard: int, batch: int) -> tuple[Pass, list[Sums]]:
    """The pass that the probe took part in, and its sums of each shard."""
    passing, parts = passed(probes.named(name)().shard_multiple, shard, batch)
    return passing, [only(name, part) for part in parts]


def added(parts: list[Sums]) -> Sums:
    total: Sums = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total[key] + value if key in total else value
    return total


def instance(name: str, passing: Pass) -> Probe:
    return next(probe for probe in passing.probes if probe.name == name)


def answered(name: str, passing: Pass, found: Sums) -> Result | None:
    """The result; None where no model can be asked."""
    probe = instance(name, passing)
    asked = passing.suited(probe)
    return probe.answer(found, asked) if asked else None


@cache
def whole(name: str) -> tuple[Pass, Result]:
    passing, parts = sums(name, IMAGES, IMAGES)
    result = answered(name, passing, added(parts))
    assert result is not None, (
        f"{name} can be asked of none of {MODELS}; add a bundled model that it suits."
    )
    return passing, result


def same(one: Result | None, other: Result, but: tuple[str, ...] = ()) -> None:
    assert one is not None
    assert list(one.table.columns) == list(other.table.columns)
    assert len(one.table) == len(other.table)
    exact = ROUGH.get(other.name, EXACT)
    for column in one.table.columns.difference(list(but)):
        ours, theirs = one.table[column], other.table[column]
        if pd.api.types.is_float_dtype(theirs):
            scale = float(np.nanmax(np.abs(theirs), initial=1e-12))
            np.testing.assert_allclose(ours, theirs, rtol=exact, atol=exact * scale, err_msg=column)
        else:
            assert ours.equals(theirs), column
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in other.arrays.items():
        most = float(np.abs(array).max(initial=1e-12))
        drawn, again = one.arrays[name].astype(float), array.astype(float)
        np.testing.assert_allclose(
            drawn, again, rtol=0, atol=1e-5 * most, err_msg=name
        )  # pictures may be float32


@every
def test_one_word_all_the_way(name: str) -> None:
    probe: Any = probes.named(name)
    assert probe.name == name
    assert hasattr(probe, "__dataclass_fields__"), "The fields of a probe are its options."
    assert all(re.fullmatch(r"[A-Z]+\d*[-.]\d+", each) for each in probe.ids), probe.ids
    assert set(probe.sites) <= set(SITES)
    assert (probe.__doc__ or "").strip().splitlines()[0].endswith("."), (
        "The first line is what `list probes` says."
    )
    assert whole(name)[1].name == name


@every
def test_options_are_plain_and_said_in_the_record(name: str) -> None:
    probe: Any = probes.named(name)
    given = [each for each in fields(probe) if each.init]
    assert not [each.name for each in given if each.name.startswith("_")]
    again = probe(**{each.name: getattr(probe(), each.name) for each in given})
    assert again == probe()


@every
def test_shards_add_up_to_one_pass(name: str) -> None:
    passing, parts = sums(name, PARTS, PARTS)
    assert len(parts) == (
        3 if instance(name, passing).shard_multiple == 1 else 1
    )  # images that are compared are in one shard
    assert {value.dtype for part in parts for value in part.values()} <= {torch.float64}
    same(answered(name, passing, added(parts)), whole(name)[1], but=probes.named(name).fleeting)


@every
def test_the_order_of_shards_does_not_matter(name: str) -> None:
    passing, parts = sums(name, PARTS, PARTS)
    forwards, backwards = (answered(name, passing, added(order)) for order in (parts, parts[::-1]))
    assert forwards is not None
    same(backwards, forwards)


@every
def test_batch_size_does_not_matter(name: str) -> None:
    passing, parts = sums(name, IMAGES, 7)
    same(answered(name, passing, added(parts)), whole(name)[1], but=probes.named(name).fleeting)


@every
def test_a_process_without_images_changes_nothing(name: str) -> None:
    passing, parts = sums(name, IMAGES, IMAGES)
    same(answered(name, passing, added([{}, *parts, {}])), whole(name)[1])


@every
def test_a_probe_begins_afresh(name: str) -> None:
    """Begun again after a shortage of memory, or used for a second inspection, an instance
    remembers nothing."""
    _, (first,) = sums(name, IMAGES, IMAGES)
    for found in passed_again(probes.named(name)().shard_multiple):
        other = only(name, found)
        assert other.keys() == first.keys()
        assert all(
            torch.equal(other[key], first[key]) for key in first if not key.endswith("seconds")
        )


@every
def test_one_image(name: str) -> None:
    """What can be said of one image is said, without an interval; what cannot is refused or NaN,
    and nothing breaks."""
    found = vitreous.inspect(alone(), data(1), [name], device="cpu")
    assert set(found) | set(found.left_out) == {name}


@every
def test_disk_and_back(name: str, tmp_path: Path) -> None:
    _, result = whole(name)
    assert Result.load(result.save(tmp_path)) == result


@every
def test_models_are_untouched(name: str) -> None:
    model = load_model("nano:vit").train()
    before, where = copy.deepcopy(model.state_dict()), {id(p) for p in model.parameters()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    vitreous.inspect(model, data(4), [name], device="cpu")
    assert torch.equal(torch.rand(3), expected), "It drew from the global generator."
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert {id(p) for p in model.parameters()} == where
    assert model.training
    assert all(part.training for part in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert not any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        for part in model.modules()
    )
    copy.deepcopy(model)


@every
def test_every_model_is_answered_or_refused_with_a_sentence(name: str) -> None:
    passing, result = whole(name)
    shown = {
        str(each)
        for column in result.table.filter(like="model")
        for each in result.table[column].unique()
    }
    asked = {subject.name for subject in passing.suited(instance(name, passing))}
    assert asked <= shown <= {*MODELS, "", "nan"}
    refused = passing.left_out[name]
    assert asked | {model for model, why in refused.items() if isinstance(why, str)} == set(MODELS)
    for why in refused.values():
        for reason in [why] if isinstance(why, str) else why.values():
            assert re.fullmatch(r"[A-Z].*[.!]", reason, re.DOTALL), reason


@every
def test_numbers_with_an_interval_have_replicates(name: str) -> None:
    """So that claims compare models on the same resamples; without them evidence counts as old."""
    _, result = whole(name)
    lows = [each for each in result.table if str(each) == "low" or str(each).endswith("_low")]
    has_interval = bool(result.table[lows].notna().any(axis=None))
    assert has_interval <= bool(result.replicates) or name in INTERVAL_ONLY


@every
def test_what_it_says_is_finite_where_it_says_something(name: str) -> None:
    _, result = whole(name)
    assert len(result.table)
    assert "value" not in result.table or result.table["value"].notna().any()
    assert not np.isinf(result.table.select_dtypes("number")).any(axis=None)
    if {"low", "high"} <= set(result.table.columns):
        known = result.table.dropna(subset=["value", "low", "high"])
        assert (known["low"] <= known["high"]).all()


@every
def test_it_can_be_looked_at(name: str) -> None:
    import matplotlib.pyplot as plt

    _, result = whole(name)
    assert result.views
    check_charts(result)
    for number, view in enumerate(result.views):
        assert view.title
        assert view.how_to_read.count(". ") + view.how_to_read.endswith(".") >= 2, "Two sentences."
        figure, _ = result.plot(view=number)
        plt.close(figure)


@every
def test_its_page_is_in_the_manual(name: str) -> None:
    page = ROOT / "docs" / "reference" / "probes" / f"{name}.md"
    assert page.is_file(), f"{page} is missing."
    text = page.read_text(encoding="utf-8")
    check_page(name, text, probes.named(name), whole(name)[1].columns)
    assert "vitreous.inspect(" in text
    picture = page.with_suffix(".svg")
    assert picture.is_file(), f"python docs/generate_probes.py {name}"
    assert picture.stat().st_size < 150_000


def test_nothing_else_is_in_the_folder() -> None:
    """Files that are no questions are named as such, and files that are have their class first."""
    for name in probes.names():
        assert issubclass(probes.named(name), Probe)
