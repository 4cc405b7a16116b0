"""Data without splits of their own: an inspection takes all of them, and whatever is held out is
said."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitreous
from vitreous.cli import main
from vitreous.data import load
from vitreous.data.loading import _warn_once


def folder(home: Path, count: int = 60) -> str:
    """Two classes of equal squares."""
    for number in range(count):
        path = home / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return f"folder:{home}"


def arrays(home: Path, count: int = 60) -> str:
    generator = np.random.default_rng(0)
    home.mkdir(parents=True, exist_ok=True)
    images = generator.integers(0, 255, (count, 16, 16, 3), dtype=np.uint8)
    np.savez(home / "some.npz", images=images, labels=np.arange(count) % 2)
    return f"npz:{home / 'some.npz'}"


@pytest.fixture(autouse=True)
def _anew() -> None:
    _warn_once.cache_clear()


@pytest.mark.parametrize("make", [folder, arrays])
def test_an_inspection_takes_all(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = make(tmp_path / "data")
    with caplog.at_level(logging.WARNING, "vitreous"):
        found = vitreous.inspect("nano:vit", name, "variance")
        lesion = vitreous.analyse(
            "nano:vit", name, {"occlusion": {"shares": (0.5,), "grids": (4,)}}
        )
    about = found["variance"].about["data"]
    assert (about["images"], about["available"], about["split"]) == (60, 60, "all")
    assert caplog.text == ""
    assert lesion.left_out or lesion["occlusion"].about["data"]["images"] == 60
    held = vitreous.inspect("nano:vit", name, "variance", split="test")["variance"].about["data"]
    assert (held["images"], held["available"], held["split"]) == (6, 6, "test")


@pytest.mark.parametrize("make", [folder, arrays])
def test_held_out_images_are_reported_once(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = make(tmp_path / "data")
    with caplog.at_level(logging.WARNING, "vitreous"):
        assert (len(load(name, split="train")), len(load(name, split="test"))) == (54, 6)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"{name!r} has no splits of its own: 54 of its 60 images are for training, and 6, a tenth "
        "of each class, for testing."
    ]
    assert len(load(name, whole=True)) == 60


def test_splits_that_are_there_are_kept(tmp_path: Path) -> None:
    folder(tmp_path / "data" / "train", 20)
    folder(tmp_path / "data" / "test", 10)
    inspection = vitreous.inspect("nano:vit", f"folder:{tmp_path / 'data'}", "variance")
    about = inspection["variance"].about["data"]
    assert (about["images"], about["split"]) == (10, "test")


def test_a_limit_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = folder(tmp_path / "data")
    for limit, words in (("12", "12 of 60 images"), ("all", "60 images")):
        with pytest.raises(SystemExit) as end:
            main(["inspect", "nano:vit", "--data", name, "--probes", "variance", "--limit", limit])
        assert end.value.code == 0
        assert f"1 measurement on {words} of" in " ".join(capsys.readouterr().out.split())
        assert f"{words} of" in (tmp_path / "inspect-nano-vit.html").read_text()
    with pytest.raises(SystemExit):
        main(["data", name])
    assert "60" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "images"), [({"limit": "all"}, 520), ({"limit": None}, 520), ({}, 512)]
)
def test_all_works_in_python_as_on_the_command_line(limit: Any, images: int) -> None:
    data = load("world:shapes", split="test", size=520)
    inspection = vitreous.inspect("nano:vit", data, "cost", **limit)
    assert inspection["cost"].about["data"]["images"] == images


def test_names_that_are_no_utf8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A class and a file whose names are bytes of Latin-1."""
    import os

    home = os.fsencode(tmp_path / "data")
    for kind in (b"caf\xe9", b"tea"):
        os.makedirs(home + b"/" + kind)
        for number in range(6):
            picture = Image.fromarray(np.full((16, 16, 3), 40 * number, np.uint8))
            picture.save(tmp_path / "one.png")
            os.rename(tmp_path / "one.png", home + b"/" + kind + b"/\xff%d.png" % number)
    data = f"folder:{tmp_path / 'data'}"
    assert load(data, whole=True).classes == ("caf\\xe9", "tea")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(f"inspect nano:vit --data {data} --probes variance --results numbers".split())
    assert end.value.code == 0
    assert list(vitreous.Inspection.load("numbers"))
