"""How long a study takes is told from what was measured, and what is not known is said."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch

from vitreous import claims
from vitreous.claims.book import find_claim
from vitreous.cli import main
from vitreous.storage.run_folder import Run
from vitreous.studies import estimates, run_cells
from vitreous.studies.dry_run import format_seconds
from vitreous.studies.estimates import Speed, estimate_times, makespan, training_time
from vitreous.studies.plan import Cell, plan
from vitreous.studies.scales import Scale, scale_named
from vitreous.studies.training import Training

CLAIMS = [find_claim(claims.every_claim(), "SLC-31")]


def tiny(epochs: int = 3) -> Scale:
    scale = scale_named("sanity")
    short = scale.recipe.but(epochs=epochs, warmup=0.0, batch=32, test_every=2)
    return replace(
        scale,
        recipe=short,
        images=replace(scale.images, size=64, test_size=32),
        image_counts={"erf": 4},
    )


def cells(*seeds: int) -> list[Cell]:
    return plan(CLAIMS, tiny(), "world:shapes", seeds or [0])


def first(found: list[Cell]) -> tuple[Cell, Training]:
    cell = next(cell for cell in found if cell.training is not None)
    assert cell.training is not None
    return cell, cell.training


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one seed."""
    root = tmp_path_factory.mktemp("study")
    report = run_cells.run_cells(cells(), root, tiny(), "cpu")
    assert not report.failed
    return root


def test_a_training_lasts_as_long_as_its_images(done: Path) -> None:
    """Three epochs of 64 images, and as many tests of 32 as its record has."""
    _, training = first(cells())
    tests = sum("test_error" in each for each in Run(done / "trainings" / training.key).records())
    assert training_time(training, Speed(10.0, start=5.0)) == pytest.approx(
        5 + (3 * 64 + tests * 32 / 3) / 10
    )
    masked = replace(training, recipe=training.recipe.but(objective="masked"))
    assert training_time(masked, Speed(10.0)) == pytest.approx(3 * 64 / 10)
    few = replace(training, images=replace(training.images, fraction=0.5, held_out=0.5))
    assert training_time(few, Speed(10.0)) == pytest.approx((3 * 16 + tests * 32 / 3) / 10)


def test_finished_trainings_say_how_fast_a_network_is(done: Path, tmp_path: Path) -> None:
    """Whatever their seed, but not on another device; the first epoch is apart from the others."""
    cell, training = first(cells(1))
    run = Run(tmp_path / "trainings" / first(cells())[1].key)
    (run.folder / "weights").mkdir(parents=True)
    for name in ("recipe.json", "environment.json"):
        text = (done / "trainings" / run.folder.name / name).read_text(encoding="utf-8")
        (run.folder / name).write_text(text, encoding="utf-8")
    for seconds in (None, 4.0, 0.5, 0.5):
        run.append(
            {} if seconds is None else {"seconds": seconds, "images_per_second": 64 / seconds}
        )
    found = estimate_times([cell], tmp_path, "cpu")[cell.key]
    assert found.speed == Speed(128.0, 3.5, finished=True)
    assert found.training == training_time(training, found.speed)
    environment = json.loads((run.folder / "environment.json").read_text(encoding="utf-8"))
    run.write("environment.json", environment | {"device": "another"})
    speed = estimate_times([cell], tmp_path, "cpu")[cell.key].speed
    assert speed is not None
    assert not speed.finished


def test_networks_without_finished_trainings_are_timed_in_a_few_steps(done: Path) -> None:
    cell, training = first(cells(1))
    wider = replace(training, recipe=training.recipe.but(**{"model.depth": 2}))
    found = estimate_times([cell, Cell(wider.key, wider)], done, "cpu")
    assert [each.speed.finished for each in found.values() if each.speed] == [True, False]


def test_a_few_steps_estimate_the_speed_quickly() -> None:
    """Near: the machine may be busy. Little: also where one whole step would take half a minute."""
    _, training = first(cells())
    found = estimates.measure_speed(training, torch.device("cpu"))
    assert found.rate == pytest.approx(timed(training), rel=0.8)
    large = next(
        each.training
        for each in plan(CLAIMS, scale_named("small"), "tv:CIFAR10", [0])
        if each.training
    )
    large = replace(
        large, images=replace(large.images, name="world:shapes", size=4096, test_size=64)
    )
    began = time.process_time()
    assert estimates.measure_speed(large, torch.device("cpu")).rate > 0
    assert time.process_time() - began < 8


def timed(training: Training) -> float:
    """Images a second of forward and backward passes of the network alone."""
    from vitreous.models import build

    model = build(training.model, image=16, classes=10, **training.recipe.model)
    images = torch.randn(32, 3, 16, 16)
    taken = []
    for _ in range(6):
        began = time.perf_counter()
        model(images).sum().backward()
        taken.append(time.perf_counter() - began)
    return 32 / sorted(taken)[2]


def test_questions_take_what_they_took_before(done: Path) -> None:
    found = estimate_times(cells(1), done, "cpu")
    assert all(each.measuring > 0 for each in found.values())
    before = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in done.glob("exhibits/*/exhibit.json")
    ]
    taken: Counter[str] = Counter()  # at the end of training, and the untrained control
    for each in before:
        taken[each["facts"]["model"]] += each["seconds"]["erf"]
    asking = sorted(each.measuring for each in found.values())
    assert asking == pytest.approx(sorted(taken.values()))
    assert not any(each.unknown for each in found.values())


def test_a_dry_run_names_results_whose_time_is_unknown(tmp_path: Path) -> None:
    found = estimate_times(cells(), tmp_path, "cpu")
    assert {name for each in found.values() for name in each.unknown} == {
        name for cell in cells() for item in cell.items for name in item.results
    }
    assert not any(each.measuring for each in found.values())


def test_a_network_that_cannot_be_built_says_so(tmp_path: Path) -> None:
    _, training = first(cells())
    wrong = replace(training, recipe=training.recipe.but(**{"model.skipless": (9,)}))
    assert "skipless" in estimate_times([Cell(wrong.key, wrong)], tmp_path, "cpu")[wrong.key].why


def test_makespan_by_hand() -> None:
    """Of cells that wait for others: a two-step chain of 3 and 4 beside 2, 2 and 2."""
    kinds = {name: replace(first(cells())[1], seed=number) for number, name in enumerate("abcde")}
    b = replace(kinds["b"], start=kinds["a"])
    chain = [Cell(each.key, each) for each in (kinds["a"], b, kinds["c"], kinds["d"], kinds["e"])]
    seconds = dict(zip((cell.key for cell in chain), (3.0, 4.0, 2.0, 2.0, 2.0), strict=True))
    assert makespan(chain, seconds, 1) == 13
    assert makespan(chain, seconds, 2) == 7  # a c | c d | b e
    assert makespan(chain, seconds, 5) == 7
    assert (
        makespan(chain[1:], {key: seconds[key] for key in list(seconds)[1:]}, 4) == 4
    )  # a is done


def test_makespan_is_between_its_bounds() -> None:
    kinds = [replace(first(cells())[1], seed=number) for number in range(4)]
    for lasting in permutations((1.0, 2.0, 3.0, 5.0)):
        seconds = {each.key: value for each, value in zip(kinds, lasting, strict=True)}
        found = makespan([Cell(each.key, each) for each in kinds], seconds, 2)
        assert 5.5 <= found <= 11 - min(lasting)
        assert makespan([Cell(each.key, each) for each in kinds], seconds, 4) == 5


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (14.4, "14 s"), (200, "3 min"), (8000, "2 h 13 min"), (400_000, "4.6 days")],
)
def test_times_in_words(seconds: float, said: str) -> None:
    assert format_seconds(seconds) == said


def test_a_dry_run_prints_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(["study", "skips", "--dry-run", *words])
        assert stopped.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    said = typed("--out", str(tmp_path / "none"), "--workers", "2")
    assert "with 2 workers" in said
    assert "from a few steps, just now" in said
    assert "none has been measured in this folder yet: accuracy, cka" in said
    assert "cannot be done" in said  # SLC-18 has no small version
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "study",
                "skips",
                "--dry-run",
                "--data",
                "folder:nowhere",
                "--out",
                str(tmp_path / "none"),
            ]
        )
    assert stopped.value.code == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
