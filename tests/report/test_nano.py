"""The stored results that `make demo` shows: they are there, and a piece of each comes out the same
again."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from vitreous.commands.inspect_run import load_inspection
from vitreous.measure import analyses
from vitreous.measure.analyses import hessian, lesion
from vitreous.measure.curvature import relief
from vitreous.measure.engine import _bench
from vitreous.measure.partial import Numbers
from vitreous.measure.subject import subjects

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "bundle.py"))
ASKED, DATA, CHECKPOINTS = SCRIPT["ASKED"], SCRIPT["DATA"], SCRIPT["CHECKPOINTS"]

found = load_inspection("nano")


def piece(name: str, model: str, which: int) -> tuple[str, Numbers]:
    """One piece of a question, done anew as the script that stored the results does it."""
    limit, options = ASKED[name]
    kind: Any = analyses.named(name)
    analysis, (subject,) = kind(**options), subjects(model)
    bench = _bench(analysis, (subject,), DATA, None, limit, 0, False, 128)
    chosen = analysis.pieces(subject, bench)[which]
    with analysis.work(subject, bench) as work:
        return chosen, work(chosen)


def test_the_page_has_every_element_that_scripts_use() -> None:
    assert list(found) == list(ASKED)
    for name, (limit, options) in ASKED.items():
        result = found[name]
        assert tuple(result.about["models"]) == CHECKPOINTS
        assert result.about["data"]["images"] == limit
        assert {key: result.about["options"][key] for key in options} == options


def test_charts_and_columns_are_those_of_the_measurements_today() -> None:
    """What is stored with numbers would otherwise show what an older version drew."""
    views = {
        "hessian": hessian._views(analyses.named("hessian")(**ASKED["hessian"][1])),
        "landscape": relief.landscape_views(2, 10),
        "lesion": analyses.named("lesion")(**ASKED["lesion"][1])._views(found["lesion"].table),
    }
    columns = {"hessian": hessian, "landscape": relief, "lesion": lesion}
    for name, result in found.items():
        assert result.views == views[name], name
        assert result.columns == columns[name].COLUMNS, name


def test_eigenvalues_again() -> None:
    _, numbers = piece("hessian", "nano:resnet@warmup", 0)
    table = found["hessian"].table
    rows = table[
        (table["model"] == "nano:resnet@warmup")
        & (table["measure"] == "eigenvalue")
        & (table["batch"] == 0)
    ]
    assert sorted(numbers["values"].flatten().tolist()) == pytest.approx(
        sorted(rows["value"]), rel=2e-3
    )
    assert (rows["residual"] <= 1e-3 * rows["value"].abs()).all()


def test_a_lesion_again() -> None:
    change, numbers = piece("lesion", "nano:vit", 1)
    table = found["lesion"].table
    row = table[(table["model"] == "nano:vit") & (table["part"] == change.partition(":")[0])].iloc[
        0
    ]
    assert float(numbers["right"].double().mean()) == pytest.approx(row["accuracy"], abs=1e-9)
    assert float(numbers["nll"].mean()) == pytest.approx(row["nll"], rel=1e-4)


def test_points_of_the_landscape_again() -> None:
    """The middle one, which is the trained model, and those to its right."""
    _, numbers = piece("landscape", "nano:resnet", 7)
    table = found["landscape"].table
    rows = table[(table["model"] == "nano:resnet") & table["point"]]
    stored = rows.iloc[112:128]
    assert tuple(stored.iloc[0][["x", "y"]]) == (0, 0)
    assert (numbers["nll"][:, 0] / numbers["count"][0]).tolist() == pytest.approx(
        stored["value"].tolist(), rel=1e-3
    )
