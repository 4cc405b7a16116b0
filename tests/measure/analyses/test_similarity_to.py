"""The diagonal of CKA across two states of a model, against the formula written out."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitreous
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.measure.analyses import similarity_to
from vitreous.measure.analyses.similarity_to import SimilarityTo
from vitreous.measure.selection import choose_images
from vitreous.measure.subject import subjects
from vitreous.specimen.specimen import Specimen

QUICK: dict[str, Any] = {"to": "nano:vit@warmup"}


@cache
def opened(name: str) -> Specimen:
    return vitreous.open(name)


@cache
def data(count: int) -> Any:
    return vitreous.data.load("world:shapes", split="test", size=count)


def pair() -> dict[str, Specimen]:
    return {"early": opened("nano:vit@warmup"), "late": opened("nano:vit")}


class Small(nn.Module):
    """A convolution and a head, with dropout that is always on."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.stem, self.body = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        x = x + F.dropout(self.body(x), self.dropout, training=True)
        return self.head(x.mean((2, 3)))


def hsic(one: Tensor, other: Tensor) -> Tensor:
    """Song et al.'s unbiased estimator, term by term, in float64."""
    k, m = ((x @ x.T).fill_diagonal_(0) for x in (one, other))
    n, ones = len(k), torch.ones(len(k), dtype=torch.float64)
    trace = (k @ m).trace()
    middle = (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return (trace + middle - 2 / (n - 2) * (ones @ k @ m @ ones)) / (n * (n - 3))


def test_every_unit_is_compared_with_its_namesake() -> None:
    count = 24
    table = SimilarityTo()(pair(), data(count)).table
    images = choose_images(data(count), "test", None, (), 0).images
    seen = []
    for subject in subjects(pair()):
        with torch.no_grad():
            seen.append(subject.specimen.observe(subject.prepare(images), ("after",)))
    assert list(table["unit"]) == [unit.name for unit in opened("nano:vit").units]
    assert set(table["model"]) == {"early"}
    assert set(table["reference"]) == {"late"}
    for unit, value in zip(table["unit"], table["value"], strict=True):
        x, y = (each[unit].after.raw.double().flatten(1) for each in seen)  # type: ignore[union-attr]
        x, y = x - x.mean(0), y - y.mean(0)
        assert value == pytest.approx(
            float(hsic(x, y) / (hsic(x, x) * hsic(y, y)).sqrt()), abs=1e-5
        )
    assert (table["low"] <= table["value"]).all()


def test_it_is_the_diagonal_of_the_probe_also_over_several_minibatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(similarity_to, "SHARD", 16)
    models = {
        "early": opened("nano:vit@warmup"),
        "first": opened("nano:vit@initial"),
        "late": opened("nano:vit"),
    }
    ours = SimilarityTo(sites=("out", "branch"))(models, data(40), batch=10)
    whole = vitreous.inspect(
        models, data(40), {"cka": {"sites": ("out", "branch"), "minibatch": 16}}
    )["cka"].table
    same = whole[
        (whole["layer"] == whole["other_layer"])
        & (whole["other_model"] == "late")
        & whole["across"]
    ]
    for model in ("early", "first"):
        found, wanted = (each[each["model"] == model] for each in (ours.table, same))
        assert list(found["unit"]) == list(wanted["unit"])
        for column in ("value", "low", "high"):
            assert found[column].tolist() == pytest.approx(
                wanted[column].tolist(), abs=1e-6, nan_ok=True
            )
    assert ours.views[0].facet == "site"
    assert list(ours.about["models"]) == ["early", "first"]
    assert list(ours.about["others"]) == ["late"]
    assert ours.about["left_out"] == {}


def test_the_other_model_may_be_named() -> None:
    table = SimilarityTo(to="nano:vit")({"same": opened("nano:vit")}, data(24)).table
    assert table["value"].tolist() == pytest.approx([1.0] * len(table), abs=1e-6)
    assert set(table["reference"]) == {"nano:vit"}
    among = SimilarityTo(to="early")(pair(), data(24)).table
    assert set(among["model"]) == {"late"}
    assert among["value"].tolist() == pytest.approx(
        SimilarityTo()(pair(), data(24)).table["value"].tolist()
    )


class Noisy(nn.Module):
    """Draws random numbers in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(images), 0.5, training=True).mean((2, 3)))


@pytest.mark.filterwarnings("ignore:Small draws random numbers")
def test_a_reference_that_draws_random_numbers_is_refused() -> None:
    torch.manual_seed(0)
    models = {"steady": Small(), "noisy": Small(dropout=0.5)}
    with pytest.raises(VitreousError, match="noisy gives different outputs for the same images"):
        vitreous.analyse(models, data(8), ["similarity_to"], image=32)


def test_it_is_not_resumed_with_other_weights_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_here.py").write_text(
        "import os, torch, vitreous\n\n"
        "def network():\n"
        "    torch.manual_seed(int(os.environ['SEED']))\n"
        "    return vitreous.build('vit_nano')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    analysis = SimilarityTo(to="made_here:network")
    late = vitreous.build("vit_nano")
    monkeypatch.setenv("SEED", "1")
    found = analysis({"late": late}, data(8), keep=tmp_path / "kept")
    assert list(found.about["models"]) == ["late"]
    assert list(found.about["others"]) == ["made_here:network"]
    monkeypatch.setenv("SEED", "2")
    with pytest.raises(VitreousError, match=r"models\.made_here:network\.fingerprint is "):
        SimilarityTo(to="made_here:network")({"late": late}, data(8), keep=tmp_path / "kept")


def test_two_checkpoints_of_one_model_are_both_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        torch.save(vitreous.build("vit_nano").state_dict(), f"{name}.pth")
    files = ("--weights", "a.pth", "b.pth", "--limit", "8", "--out", "page.html")
    with pytest.raises(SystemExit) as end:
        main(["similarity_to", "vit_nano", *files])
    assert end.value.code == 0
    out = capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    for name in "ab":
        assert re.search(rf"vit_nano \({name}\) +{name}.pth \(untrained\)", out)
        assert f"Weights of vit_nano ({name}): " in out
        assert f'<td class="number">{name}.pth (untrained)</td>' in page
        assert f"<dt>vit_nano ({name})</dt>" in page
    assert "Left out" not in out
    [title] = re.findall("<h1>.*</h1>", page)
    assert "vit_nano (a)" in title
    assert "vit_nano (b)" in title
    assert ".pth" not in title  # that of one of them would be wrong for the other


def test_units_that_are_equally_similar_are_not_ranked() -> None:
    same = SimilarityTo(to="nano:vit")({"same": opened("nano:vit")}, data(24))
    [sentence] = SimilarityTo.sentences(same)
    assert sentence.startswith("<b>same</b> is equally similar to <b>nano:vit</b> in all 14 places")
    [sentence] = SimilarityTo.sentences(SimilarityTo()(pair(), data(24)))
    assert sentence.startswith("<b>early</b> is most similar to <b>late</b> in <code>")
    assert "; least in <code>" in sentence


def test_bad_input() -> None:
    def why(models: Any, count: int = 24, **options: Any) -> dict[str, str]:
        found = vitreous.analyse(models, data(24).take(range(count)), {"similarity_to": options})
        return dict(found.left_out["similarity_to"])

    assert "no other model" in why({"late": opened("nano:vit")})["late"]
    other = {"resnet": opened("nano:resnet"), "late": opened("nano:vit")}
    assert "Its units are not those of late: it has 11, the other 14." in why(other)["resnet"]
    assert "at least 4 images" in why(pair(), 3)["early"]
    with pytest.raises(VitreousError, match="estimator"):
        SimilarityTo(estimator="exact")  # type: ignore[arg-type]
    with pytest.raises(VitreousError, match="site"):
        SimilarityTo(sites=("attention",))
    with pytest.raises(VitreousError, match="nano:vitt"):
        SimilarityTo(to="nano:vitt")({"late": opened("nano:vit")}, data(24))
