"""Bad input, generated: whatever is wrong with it, a command answers with one sentence and exit
code 2, writes nothing and shows no traceback. More than three hundred inputs that nobody listed,
the same ones every time."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from vitreous.cli import main
from vitreous.config import AUGMENT, FIELDS, NOT_NEGATIVE, POSITIVE, SHARES, Recipe, assignment
from vitreous.data import load
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.measure.selection import choose_analyses, choose_probes
from vitreous.models.loading import load_model

ROUNDS = {
    "options": 130, "settings": 60, "measurements": 50, "pictures": 40, "folders": 30,
    "arrays": 30, "weights": 30,
}  # fmt: skip
"""Inputs of each kind."""


def many(what: str, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Run `check` on as many inputs as are promised, the same on every machine."""
    seen: list[Any] = []

    @settings(
        max_examples=ROUNDS[what],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(value: Any) -> None:
        seen.append(value)
        check(value)

    each()
    assert len(seen) >= 0.9 * ROUNDS[what]


def sentence(make: Callable[[], Any]) -> str:
    """What is said about bad input, in one line; nothing where it can be used after all. Any other
    error fails."""
    with suppress(VitreousError):
        make()
        return ""
    with pytest.raises(VitreousError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_there_are_more_than_three_hundred() -> None:
    assert sum(ROUNDS.values()) * 0.9 >= 300


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some things in it that paths can run into."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    home = tmp_path / "home"
    (home / "folder.html").mkdir(parents=True)
    (home / "empty").mkdir()
    (home / "file").write_text("text")
    (home / "file.npz").write_bytes(b"PK\x03\x04 and no more")
    monkeypatch.chdir(home)
    return home


def listed(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def words(least: int = 0) -> st.SearchStrategy[str]:
    """Any text that a shell can pass, other than an option."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    return st.text(letters, min_size=least, max_size=12).filter(
        lambda text: not text.startswith("-")
    )


NAMES = st.text(string.ascii_lowercase + string.digits + "_/.@", min_size=1, max_size=16).map(
    lambda name: f"zz{name}"
)
NUMBERS = st.one_of(
    st.integers(max_value=-1),
    st.integers(min_value=2**63),
    st.sampled_from(["nan", "inf", "1e400", "1.5.2", "0x", ""]),
    words().filter(lambda text: not text.strip().lstrip("+").isdecimal()),
).map(str)
COUNTS = st.one_of(st.integers(max_value=0), st.sampled_from(["nan", "", "ten", "1e99", "-0"])).map(
    str
)
MODELS = st.one_of(
    NAMES,
    *(
        NAMES.map(f"{prefix}{{}}".format)
        for prefix in ("nano:", "tv:", "run:", "./", "local-dir:", "hf:./")
    ),
    NAMES.map("{}:make".format),
    st.sampled_from(["", " ", ":", "nano:", "tv:", "run:", "hf:", "a:b:c", "/", "é" * 300]),
)  # fmt: skip
DATA = st.one_of(
    NAMES,
    words(),
    *(NAMES.map(f"{prefix}:{{}}".format) for prefix in ("folder", "npz", "world", "tv")),
    words().map("wrld:{}".format),
    st.sampled_from(["folder:", "folder:file", "npz:", "npz:empty", "world:", "tv:", "hf:", ":"]),
    st.sampled_from(["folder:~nobody-there/x", "world:SHAPES", "tv:cifar10", "file", "x" * 5000]),
    st.sampled_from(["folder:" + "y" * 5000, "npz:" + "y" * 300]),
)
BLOCKED = ["folder.html", "file/report.html", "file/deep/report.html", "empty"]
OUTS = st.sampled_from(["report.pdf", "report", "", "x" * 300 + ".html", *BLOCKED])
STRANGE_SETS = st.sampled_from(["=", "=1", "calibration.=1", ".bins=2", "a.b.c=1"])
SETS = st.one_of(words(), NAMES.map("{}=1".format), STRANGE_SETS)


def option(
    command: list[str], name: str, values: st.SearchStrategy[str]
) -> st.SearchStrategy[list[str]]:
    return values.map(lambda value: [*command, f"--{name}={value}"])


def commands() -> Iterator[st.SearchStrategy[list[str]]]:
    """Every command with one thing wrong."""
    looking = (["inspect", "nano:vit"], ["lesion", "nano:vit"], ["corruption", "nano:vit"])
    train = ["train", "vit_nano"]
    for command in (*looking, ["anatomy", "nano:vit"], ["data", "world:shapes"], train):
        yield option(command, "seed", NUMBERS)
        yield option(command, "image", COUNTS)
        yield option(command, "nosuch", words())
    for command in (*looking, train, ["study", "zoo"], ["study", "zoo", "--dry-run"]):
        yield option(command, "data", DATA)
    for command in looking:
        yield option(command, "limit", COUNTS)
        yield option(command, "batch", COUNTS)
        yield option(command, "out", OUTS)
        yield option(command, "set", SETS)
        yield option(command, "split", NAMES)
        yield option(command, "results", st.sampled_from(["file", "file/x"]))
    yield option(["inspect", "nano:vit"], "probes", st.one_of(NAMES, st.just("")))
    yield option(["inspect", "nano:vit"], "analyses", st.one_of(NAMES, st.just("")))
    for word in ("inspect", "lesion", "anatomy", "train"):
        yield MODELS.map(lambda model, word=word: [word, model])  # type: ignore[misc]
    for name, values in (("recipe", NAMES), ("size", COUNTS), ("fraction", COUNTS)):
        yield option(train, name, values)
    yield option(train, "out", st.just("file"))
    yield DATA.map(lambda data: ["data", data])
    yield option(["data", "world:shapes"], "out", st.sampled_from(["a.gif", "sheet", ""]))
    yield option(["study", "zoo"], "seeds", COUNTS)
    yield option(["study", "zoo", "--dry-run"], "workers", COUNTS)
    yield option(["study", "zoo", "--dry-run"], "out", st.sampled_from(["file", "file/x"]))
    yield NAMES.map(lambda name: ["study", name])
    yield NAMES.map(lambda name: ["claims", "show", name])
    yield NAMES.map(lambda name: ["claims", "judge", name])
    yield NAMES.map(lambda name: [name])


def test_options(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = listed(home)

    def check(line: list[str]) -> None:
        with pytest.raises(SystemExit) as end:
            main(line)
        said = capfd.readouterr()
        assert end.value.code == 2, (line, end.value.code, said.err)
        assert said.err.count("\n") == 1, (line, said.err)
        assert "Traceback" not in said.err
        assert said.out == "", line
        assert listed(home) == before, line

    many("options", st.one_of([*commands()]), check)


WRONG = ['"abc"', "NaN", "Infinity", "-1e400", "[]", "{}", "[1]", "true", '""']


def recipes() -> Iterator[st.SearchStrategy[str]]:
    """Fields of a recipe with values that none of them takes."""
    inner = {name.removeprefix("augment."): name for name in AUGMENT}
    numbers = sorted(POSITIVE | NOT_NEGATIVE | SHARES)
    named = [inner.get(name, name) for name in numbers]
    yield st.tuples(st.sampled_from(named), st.sampled_from([*WRONG, "-1", "-0.5"])).map("=".join)
    literal = (
        *("optimiser", "decay", "schedule", "paced", "objective", "head", "precision", "keep"),
        "augment.crop",
    )
    yield st.tuples(st.sampled_from(literal), NAMES).map("=".join)
    yield NAMES.filter(lambda name: name not in FIELDS).map("{}=1".format)
    yield words().filter(lambda text: "=" not in text)


def test_recipes(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = listed(home)

    def check(setting: str) -> None:
        with pytest.raises(SystemExit) as end:
            main(["train", "vit_nano", f"--set={setting}"])
        said = capfd.readouterr()
        assert (end.value.code, said.err.count("\n"), said.out) == (2, 1, ""), (setting, said.err)
        assert listed(home) == before
        with pytest.raises(VitreousError):
            Recipe().but(**dict([assignment(setting)]))

    many("settings", st.one_of([*recipes()]), check)


def test_options_of_measurements() -> None:
    from dataclasses import fields

    known = {
        (shelf, name): fields(shelf.named(name))
        for shelf in (probes, analyses)
        for name in shelf.names()
    }
    given = [
        (shelf, name, each.name)
        for (shelf, name), found in known.items()
        for each in found
        if each.init
    ]
    values = st.sampled_from(
        [float("nan"), float("inf"), -1, -5.5, {"a": 1}, {}, 10**30, [None], ["\0"], object()]
    )

    def check(asked: tuple[tuple[Any, str, str], Any]) -> None:
        (shelf, name, setting), value = asked
        choose = choose_probes if shelf is probes else choose_analyses
        wanted = {name: {setting: tuple(value) if isinstance(value, list) else value}}
        said = sentence(lambda: choose(wanted))
        # A list of words is checked later: only the model's units can tell it from names.
        assert said or value == ["\0"], wanted

    many("measurements", st.tuples(st.sampled_from(given), values), check)


def picture(kind: str) -> bytes:
    out = BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


ENDINGS = {".png": "PNG", ".jpg": "JPEG", ".gif": "GIF", ".webp": "WEBP"}
GOOD = {ending: picture(kind) for ending, kind in ENDINGS.items()}


def broken() -> st.SearchStrategy[tuple[str, bytes]]:
    """Pictures that end early, have bytes changed, or are something else."""

    def cut(ending: str) -> st.SearchStrategy[tuple[str, bytes]]:
        whole = GOOD[ending]
        ends = st.integers(0, len(whole) - 20).map(lambda end: whole[:end])
        changed = st.tuples(st.integers(0, 40), st.binary(min_size=4, max_size=40)).map(
            lambda where: whole[: where[0]] + where[1] + whole[where[0] + len(where[1]) :]
        )
        return st.tuples(st.just(ending), st.one_of(ends, changed, st.binary(max_size=64)))

    return st.sampled_from(sorted(GOOD)).flatmap(cut)


def test_pictures(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = home / "photos" / "train" / "cat"
    place.mkdir(parents=True)
    (place / "good.png").write_bytes(GOOD[".png"])

    def check(bad: tuple[str, bytes]) -> None:
        file = place / f"bad{bad[0]}"
        file.write_bytes(bad[1])
        with pytest.raises(SystemExit) as end:
            main(["data", "folder:photos"])
        said = capfd.readouterr()
        file.unlink()
        if end.value.code == 2:  # a decoder may still make sense of it
            assert said.err.count("\n") == 1
            assert file.name in said.err
        else:
            assert end.value.code == 0, said.err
        assert "Traceback" not in said.err

    many("pictures", broken(), check)


FOLDERS = ["", "train/", "test/", "val/", "train/a/", "test/a/", "test/b/", "a/", "b/", "A/"]
FOLDERS += [".hidden/"]
PICTURES = ["x.png", "y.jpg", "z.txt", ".h.png", "é.png", "x.PNG", "no_ending", "deep/er/x.png"]
CONTENTS = [b"", GOOD[".png"], GOOD[".jpg"], b"text"]
PLACES = st.lists(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(PICTURES), st.sampled_from(CONTENTS)),
    max_size=5,
)


def test_folders(home: Path) -> None:
    count = iter(range(10**6))

    def check(files: list[tuple[str, str, bytes]]) -> None:
        top = home / f"data{next(count)}"
        top.mkdir()
        for folder, name, content in files:
            file = top / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for split in ("train", "all"):
            sentence(lambda split=split: load(f"folder:{top}", split=split))  # type: ignore[misc]

    many("folders", PLACES, check)


ARRAYS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(
            [
                np.zeros((4, 8, 8, 3), np.uint8),
                np.zeros((4, 8, 8, 3)),
                np.zeros(4, np.int64),
                np.zeros(3, np.int64),
                np.array(["a", "b"]),
                np.zeros((0, 8, 8, 3), np.uint8),
                np.array(5),
                np.arange(4),
                np.full(4, -3),
                np.zeros((2, 2, 2, 2, 2), np.uint8),
                np.array([b"x"]),
                np.array([[1, 2], [3, 4]], np.uint8),
            ]
        )
        for name in ("images", "labels", "bytes", "offsets", "class_names", "x_train", "y_train")
    },
)


def test_arrays(home: Path) -> None:
    count = iter(range(10**6))

    def check(arrays: dict[str, Any]) -> None:
        file = home / f"some{next(count)}.npz"
        np.savez(file, **arrays)
        sentence(lambda: load(f"npz:{file}", whole=True))

    many("arrays", ARRAYS, check)


JUNK = st.one_of(
    st.binary(max_size=80),
    words().map(str.encode),
    st.sampled_from([b"{}", b"[]", b"null", b'{"a": 1}']),
)
FILES = ["recipe.json", "config.json", "model.safetensors", "weights/final.safetensors"]
FILES += ["model.pt", "pytorch_model.bin"]


def test_weights(home: Path) -> None:
    """Folders that might be a run, a timm model or a Hugging Face one, and hold anything."""
    count = iter(range(10**6))

    def check(made: tuple[dict[str, bytes], str]) -> None:
        files, prefix = made
        top = home / f"model{next(count)}"
        (top / "weights").mkdir(parents=True)
        for name, content in files.items():
            (top / name).write_bytes(content)
        with pytest.raises(VitreousError) as caught:
            load_model(f"{prefix}{top}", pretrained=prefix != "run:")
        assert "\n" not in str(caught.value)

    held = st.fixed_dictionaries({"recipe.json": JUNK}, optional=dict.fromkeys(FILES[1:], JUNK))
    many("weights", st.tuples(held, st.sampled_from(["run:", "local-dir:", "hf:", ""])), check)
