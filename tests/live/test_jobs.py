"""Measurements, reports and Python code from a view."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import vitreous
from live.browsing import SMALL
from live.running import Page, page
from vitreous.explorer.as_python import python_of
from vitreous.explorer.jobs import Job, Jobs
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.state import parse_state
from vitreous.explorer.worker import Worker
from vitreous.measure.registry import Registry
from vitreous.results.intervals import Interval

__all__ = ["page"]
OFF = {"model": 0, "unit": "blocks.1.attn", "what": "off"}


@pytest.fixture
def worker() -> Iterator[Worker]:
    working = Worker()
    yield working
    working.stop()


def finished(job: Job) -> dict[str, Any]:
    for _ in range(3000):
        if not job.running:
            return job.status()
        time.sleep(0.02)
    raise AssertionError("the job does not end")


def test_the_cost_of_an_edit_is_that_of_the_lesion_analysis(page: Page) -> None:
    body = {"image": "d0", "edits": [OFF]}  # over all images
    job = page.post("api/measure", body).json()["job"]
    while (status := page.get(f"api/jobs/{job}").json())["result"] is None:
        assert status["error"] == ""
        time.sleep(0.02)
    assert status["done"] == status["of"] == 2 * 70
    vit, resnet = status["result"]["models"]
    lesions = vitreous.analyse("nano:vit", page.explorer.data, "lesion", limit="all")["lesion"]
    rows = lesions.table.set_index("part")
    row = rows.loc["blocks.1.attn"]
    found = vit["accuracy"]
    assert found["before"] - found["after"] == pytest.approx(row["value"])
    assert found["difference"] == pytest.approx(-row["value"])
    assert (found["low"], found["high"]) == pytest.approx((-row["high"], -row["low"]))
    assert vit["nll"]["after"] == pytest.approx(row["nll"])
    assert vit["n"] == 70
    assert resnet["accuracy"]["difference"] == 0
    assert resnet["agreement"]["share"] == 1
    assert "which is no certain change" in resnet["words"]


def test_the_cost_of_changes(worker: Worker, tmp_path: Path) -> None:
    explorer = open_explorer("nano:vit", limit=40, device="cpu")
    jobs = Jobs(explorer, worker, tmp_path)
    noise = {"noise": {"frequency": 0.2, "width": 0.2, "strength": 0.5}}
    result = finished(jobs.measure(parse_state({"image": "d0", "changes": noise}), 40))["result"]
    subject = explorer.models[0].subject
    right = []
    for row in range(40):  # one at a time, as the page shows them
        found = explorer.view(parse_state({"image": f"d{row}", "changes": noise}))["models"][0]
        right.append(found["label"]["rank"] == 1)
    assert result["models"][0]["accuracy"]["after"] == pytest.approx(np.mean(right))
    scores = subject.specimen(subject.prepare(explorer.data.images)).argmax(1)
    before = (scores == explorer.data.labels).double().mean()
    assert result["models"][0]["accuracy"]["before"] == pytest.approx(float(before))


def test_images_without_labels_have_agreement(worker: Worker, tmp_path: Path) -> None:
    photos = torch.randint(0, 255, (6, 3, 32, 32), dtype=torch.uint8)
    jobs = Jobs(open_explorer("nano:vit", photos, device="cpu"), worker, tmp_path)
    [found] = finished(jobs.measure(parse_state({"image": "d0", "edits": [OFF]}), 9))["result"][
        "models"
    ]
    assert found["accuracy"] is None
    assert found["n"] == 6
    assert "have no labels" in found["why"]
    assert found["words"].startswith("The answer stays the same for ")


def test_a_model_of_fewer_classes_than_the_data_set_has_agreement(
    worker: Worker, tmp_path: Path
) -> None:
    model = timm.create_model(**SMALL["resnet"], num_classes=2)
    jobs = Jobs(open_explorer({"two": model}, limit=12, image=64, device="cpu"), worker, tmp_path)
    state = parse_state({"image": "d0", "edits": [{"unit": "layer2.0", "what": "skip"}]})
    [found] = finished(jobs.measure(state, 12))["result"]["models"]
    assert found["accuracy"] is None
    assert "has 10" in found["why"]
    assert found["words"].startswith("The answer stays the same for ")


def test_a_measurement_can_be_cancelled(page: Page) -> None:
    body = {"image": "d0", "edits": [OFF]}
    job = page.post("api/measure", body).json()["job"]
    page.client.delete(page.url(f"api/jobs/{job}"))
    status = page.get(f"api/jobs/{job}").json()
    assert status["cancelled"] or status["result"] is not None
    assert page.get("api/jobs/j999").status_code == 404
    assert page.post("api/measure", {"image": "d0"}).status_code == 422
    assert page.post("api/measure", {**body, "images": -1}).status_code == 422


def test_the_page_answers_while_it_measures(worker: Worker, tmp_path: Path) -> None:
    explorer = open_explorer("nano:vit", limit=96, device="cpu")
    jobs = Jobs(explorer, worker, tmp_path)
    state = parse_state({"image": "d0", "edits": [OFF]})
    job = jobs.measure(state, 96)
    while not job.done:
        time.sleep(0.001)
    worker.submit(lambda stop: explorer.view(state, stop)).future.result(30)
    assert job.running, "the request had to wait for the whole measurement"
    assert finished(job)["result"]["n"] == 96


def test_a_report_has_the_edits_in_its_provenance(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "own_names", lambda _: ["accuracy"])  # all take 10 s
    explorer = open_explorer("nano:vit", limit=16, device="cpu")
    jobs = Jobs(explorer, worker, tmp_path)
    edits = [OFF, {"model": 0, "unit": "blocks.3.attn", "what": "box"}]
    found = finished(jobs.report(parse_state({"image": "d0", "edits": edits})))
    assert found["error"] == ""
    path = Path(found["result"]["file"])
    assert path == tmp_path / "live-nano_vit.html"
    assert jobs.reports == {path.name: path}
    text = path.read_text()
    assert "nano:vit (edited)" in text
    assert "changed: without blocks.1.attn, with attention blocks.3.attn uniform 3x3" in text
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_cancelled_report_leaves_nothing(worker: Worker, tmp_path: Path) -> None:
    jobs = Jobs(open_explorer("nano:vit", limit=96, device="cpu"), worker, tmp_path)
    job = jobs.report(parse_state({"image": "d0"}))
    jobs.cancel(job.id)
    jobs.stop()
    assert job.status()["cancelled"]
    assert job.result is None
    assert list(tmp_path.iterdir()) == []


CHANGES = {
    "noise": {"frequency": 0.4, "width": 0.1, "strength": 0.2}, "low_pass": 0.8, "high_pass": 0.1,
    "boxes": [[0.1, 0.2, 0.5, 0.9]], "corruption": {"name": "fog", "severity": 3},
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, CHANGES])
def test_copied_python_computes_the_same(
    worker: Worker, tmp_path: Path, changes: dict[str, Any]
) -> None:
    explorer = open_explorer(["nano:vit", "nano:resnet"], limit=24, device="cpu")
    edits = [
        OFF,
        {**OFF, "unit": "blocks.2.attn", "what": "mean"},
        {**OFF, "model": 1, "unit": "stages.1.0.convs"},
    ]
    edits += [
        {**OFF, "unit": "blocks.3.mlp", "what": "skip"},
        {**OFF, "unit": "blocks.4.attn", "what": "box"},
    ]
    state = parse_state({"image": "d5", "changes": changes, "edits": edits})
    text = python_of(explorer, state)
    printed: list[Any] = []
    exec(compile(text, "copied", "exec"), {"print": printed.append})
    for model, top in zip(explorer.view(state)["models"], printed[::2], strict=True):
        assert [row["share"] for row in model["after"]] == pytest.approx(
            top.values[0].tolist(), abs=1e-6
        )
        assert [row["index"] for row in model["after"]] == top.indices[0].tolist()
    costs = finished(Jobs(explorer, worker, tmp_path).measure(state, 24))["result"]["models"]
    for cost, change in zip(costs, printed[1::2], strict=True):
        assert list(change) == pytest.approx(
            [cost["accuracy"][each] for each in ("difference", "low", "high")]
        )
    assert max(map(len, text.splitlines())) < 130


def test_copied_python_of_an_upload_and_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, (50, 40, 3), np.uint8)
    Image.fromarray(pixels).save("mine.png")
    model = vitreous.open("nano:vit")
    data = [pixels, pixels[::-1]]
    explorer = open_explorer(model, data, device="cpu")
    picture = explorer.upload(Path("mine.png").read_bytes(), "mine.png")
    for image in (picture.id, "d1"):
        state = parse_state({"image": image, "edits": [OFF], "changes": {"low_pass": 0.7}})
        printed: list[Any] = []
        given = {"print": printed.append, "model": model, "data": data}
        exec(compile(python_of(explorer, state), "copied", "exec"), given)
        [top] = printed
        after = explorer.view(state)["models"][0]["after"]
        assert [row["share"] for row in after] == pytest.approx(top.values[0].tolist(), abs=1e-6)


def test_copied_python_tells_two_modules_apart(tmp_path: Path) -> None:
    """Also a module from a name, and what each was opened with."""
    torch.manual_seed(0)
    one, two = (timm.create_model("resnet10t", num_classes=10) for _ in range(2))
    files = {}
    for name, model in (("x", one), ("y", two)):
        files[name] = str(tmp_path / f"{name}.pth")
        torch.save(model.state_dict(), files[name])
    named = {"x": "resnet10t", "y": "resnet10t"}
    cases: list[tuple[Any, dict[str, Any]]] = [
        ({'be"fore': one, "after": two}, {}), ([one, "resnet10t"], {}), (iter([two]), {}),
        (named, {"weights": files}), ("resnet10t", {"weights": list(files.values())}),
    ]  # fmt: skip
    for models, options in cases:
        several = [two] if isinstance(models, Iterator) else models
        explorer = open_explorer(models, limit=4, image=64, device="cpu", **options)
        state = parse_state({"image": "d1", "edits": [{"unit": "layer3.0", "what": "skip"}]})
        text = python_of(explorer, state)
        printed: list[Any] = []
        exec(compile(text, "copied", "exec"),
             {"print": printed.append, "models": several, "model": two})  # fmt: skip
        tops = [each for each in printed if not isinstance(each, Interval)]
        for model, top in zip(explorer.view(state)["models"], tops, strict=True):
            found = [row["share"] for row in model["after"]]
            assert found == pytest.approx(top.values[0].tolist(), abs=1e-6)
        assert text.startswith("# model") == (models is not named and models != "resnet10t")


def test_photos_are_turned_upright_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a folder are: uploaded ones, given ones, and the file that copied code reads."""
    monkeypatch.chdir(tmp_path)
    turned = Image.Exif()
    turned[0x112] = 6
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    Image.fromarray(pixels).save("photo.png", exif=turned)
    explorer = open_explorer("nano:vit", ["photo.png"], preprocessing={"upright": True})
    picture = explorer.upload(Path("photo.png").read_bytes(), "photo.png")
    upright = torch.from_numpy(np.rot90(pixels, -1).copy()).permute(2, 0, 1)
    assert torch.equal(picture.frames[0][0], upright)
    assert torch.equal(explorer.data.images[0], upright)
    state = parse_state({"image": picture.id})
    printed: list[Any] = []
    given = {"print": printed.append, "data": ["photo.png"]}
    exec(compile(python_of(explorer, state), "copied", "exec"), given)
    after = explorer.view(state)["models"][0]["after"]
    assert [row["share"] for row in after] == pytest.approx(printed[0].values[0].tolist(), abs=1e-6)
