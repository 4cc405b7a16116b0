"""The models that come with the package: small, quick, and as good as their cards say."""

from __future__ import annotations

import os
import re
import shutil
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous
from generators import generator
from vitreous import model_names
from vitreous.cli import main
from vitreous.data import Dataset, load
from vitreous.errors import UnknownName
from vitreous.models import loading
from vitreous.storage.atomic_files import Damaged, read_json
from vitreous.storage.run_folder import Run
from vitreous.training.evaluate import evaluate

SHELF = Path(vitreous.__file__).parent / "nano"
NAMES = ["alternet", "convit", "mixer", "resnet", "swin", "vit", "vit_gap"]
WHOLE = ["resnet", "vit"]


@cache
def images(size: int) -> Dataset:
    return load("world:shapes", split="test", size=size)


def card(name: str) -> dict[str, Any]:
    return read_json(SHELF / name / "card.json", strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_model_has_the_accuracy_of_its_card(name: str) -> None:
    """On the first 500 test images again; the whole split is compared with what the GPU found
    before rounding."""
    written, few = card(name), card(name)["few"]
    specimen = vitreous.open(f"nano:{name}")
    assert specimen.units
    model = specimen.module
    again = evaluate(model, images(few["test_images"]))
    assert again["test_error"] == few["test_error"]
    assert again["test_nll"] == pytest.approx(few["test_nll"], abs=1e-6)
    trained = Run(SHELF / name).records()[-1]
    assert written["test_error"] == pytest.approx(
        trained["test_error"], abs=2 / written["test_images"]
    )
    assert written["test_nll"] == pytest.approx(trained["test_nll"], abs=1e-3)
    assert written["test_accuracy"] == pytest.approx(1 - written["test_error"], abs=1e-9)
    assert written["parameters"] == sum(p.numel() for p in model.parameters())
    assert written["test_accuracy"] > 0.98


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_within_a_second(name: str) -> None:
    """Building it and reading its weights, the best of three; reading a graph, which is kept, is
    not measured here."""
    limit, spent = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), []
    for _ in range(3):
        began = time.perf_counter()
        model = loading.load_model(f"nano:{name}")
        spent.append(time.perf_counter() - began)
    assert min(spent) < limit
    assert not model.training


@pytest.mark.parametrize("name", WHOLE)
def test_checkpoints_before_after_warm_up_and_at_the_end(name: str) -> None:
    run, data = Run(SHELF / name), images(300)
    assert run.checkpoints() == card(name)["checkpoints"] == ["initial", "warmup", "final"]
    worth = [
        evaluate(loading.load_model(f"nano:{name}@{checkpoint}"), data)
        for checkpoint in run.checkpoints()
    ]
    assert worth[0]["test_error"] == pytest.approx(0.9, abs=0.06)  # three standard errors of chance
    assert worth[0]["test_nll"] > worth[1]["test_nll"] > worth[2]["test_nll"]
    last, named = (
        loading.load_model(f"nano:{name}{checkpoint}").state_dict() for checkpoint in ("", "@final")
    )
    assert all(torch.equal(last[key], named[key]) for key in last)


def test_it_carries_what_it_was_trained_with() -> None:
    known: Any = loading.load_model("nano:vit").pretrained_cfg
    assert known["label_names"] == images(300).classes
    assert known["mean"] == pytest.approx(images(300).mean)


def test_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "models", "--filter", "nano:*"])
    assert capsys.readouterr().out.split() == [f"nano:{name}" for name in NAMES]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nano:vitt", r"There is no bundled model 'nano:vitt'\. Did you mean nano:vit"),
        ("nano:", r"There is no bundled model 'nano:'"),
        ("nano:../nano/vit", r"There is no bundled model 'nano:\.\./nano/vit'"),
        (
            "nano:vit@start",
            r"There is no checkpoint 'start'.*The run has initial, warmup, final\.$",
        ),
        ("nano:swin@initial", r"There is no checkpoint 'initial'.*The run has final\.$"),
    ],
)
def test_unknown_names_and_checkpoints(name: str, sentence: str) -> None:
    with pytest.raises(UnknownName, match=sentence):
        vitreous.open(name)


@pytest.mark.parametrize("file", ["recipe.json", "weights/final.safetensors"])
def test_damage_is_noticed(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SHELF / "alternet", tmp_path / "alternet")
    monkeypatch.setattr(model_names, "BUNDLED", tmp_path)
    content = bytearray((tmp_path / "alternet" / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "alternet" / file).write_bytes(content)
    with pytest.raises(Damaged, match=r"is damaged \(.*\); install Vitreous again\."):
        loading.load_model("nano:alternet")


def test_the_bundle_is_small_and_has_no_local_paths() -> None:
    files = [path for path in SHELF.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors"}
    texts = {
        path: path.read_text(encoding="utf-8") for path in files if path.suffix != ".safetensors"
    }
    assert not [path for path, text in texts.items() if re.search(r"/(root|home|work|tmp)\b", text)]
    for name in NAMES:
        known = read_json(SHELF / name / "environment.json", strict=True)
        assert set(known) == {
            "vitreous",
            "torch",
            "torchvision",
            "timm",
            "numpy",
            "safetensors",
            "python",
            "device",
            "date",
        }


def test_the_page_is_up_to_date() -> None:
    script = generator("nano")
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page() == text, "run python docs/generate_nano.py"
    assert all(f"\n| `nano:{name}` |" in text for name in NAMES)
