"""Labels of a dataset become numbers of a model's scores, in every way that folders are named;
what cannot be matched says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

import vitreous
from data.pictures import noise
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.measure.class_names import read_class_names
from vitreous.measure.labels import ClassMatch, match_classes
from vitreous.report.guard import Guard
from vitreous.report.terminal_summary import terminal_summary

INFO = timm.data.ImageNetInfo()
WNIDS = INFO.label_names()


class Scores(nn.Module):
    """As many scores as asked for, from a few random features."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        torch.manual_seed(classes)
        self.stem, self.head = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, classes)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.stem(images).tanh().mean((2, 3)))
        return out


def folder(top: Path, names: Sequence[str], count: int = 6) -> list[Path]:
    """Pictures in folders of these names; returns the files."""
    files = []
    for number, name in enumerate(names):
        (top / name).mkdir(parents=True)
        for place, pixels in enumerate(noise(count, 32, 32, number)):
            files.append(top / name / f"{place}.png")
            Image.fromarray(pixels).save(files[-1])
    return files


def accuracy_by_hand(model: nn.Module, files: Sequence[Path], numbers: dict[str, int]) -> float:
    """Share of the files whose highest score is the one of their folder."""
    pixels = [np.asarray(Image.open(file)).transpose(2, 0, 1) for file in files]
    images = torch.from_numpy(np.stack(pixels)).float() / 255
    with torch.no_grad():
        answers = model((images - 0.5) / 0.5).argmax(1)
    pairs = zip(answers, files, strict=True)
    right = [int(answer) == numbers[file.parent.name] for answer, file in pairs]
    return sum(right) / len(right)


def measured(model: nn.Module, top: Path, **how: Any) -> Any:
    choice = {"mean": 0.5, "std": 0.5}
    return vitreous.inspect(
        {"m": model}, f"folder:{top}", ["accuracy"], image=32, preprocessing=choice, **how
    )


def likely(model: nn.Module, count: int) -> list[int]:
    """Classes that the model often answers, so that accuracy is not zero."""
    images = torch.from_numpy(np.concatenate([noise(60, 32, 32, seed) for seed in range(9)]))
    with torch.no_grad():
        answers = model((images.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5).argmax(1)
    found, counts = answers.unique(return_counts=True)
    return [int(each) for each in found[counts.argsort(descending=True)][:count]]


@pytest.mark.parametrize("naming", ["wnids", "indices", "padded", "names"])
def test_a_subset_of_imagenet(naming: str, tmp_path: Path) -> None:
    """By every kind of folder name, and the accuracy is that of all 1000 scores."""
    model = Scores(1000)
    chosen = likely(model, 4)
    spell: Any = {
        "wnids": lambda number: WNIDS[number],
        "indices": str,
        "padded": lambda number: f"{number:04}",
        "names": lambda n: INFO.label_descriptions()[n].split(",")[-1].strip().replace(" ", "_"),
    }[naming]
    numbers = {spell(number): number for number in chosen}
    files = folder(tmp_path, sorted(numbers))
    found = measured(model, tmp_path)["accuracy"]
    expected = accuracy_by_hand(model, files, numbers)
    top = found.table[found.table["overall"] & (found.table["measure"] == "top-1")]
    assert top["value"].item() == pytest.approx(expected)
    assert expected > 0
    how = {"padded": "indices"}.get(naming, naming)
    assert found.about["data"]["labels"] == f"4 of 1000 classes, by {how}"


def test_names_in_another_order(tmp_path: Path) -> None:
    model = Scores(3)
    model.trained_with = {"label_names": ["Red Fox", "cat", "dog"]}  # type: ignore[assignment]
    files = folder(tmp_path, ["cat", "dog", "red_fox"])
    found = measured(model, tmp_path)["accuracy"]
    numbers = {"cat": 1, "dog": 2, "red_fox": 0}
    top = found.table[found.table["overall"]].iloc[0]
    assert top["value"] == pytest.approx(accuracy_by_hand(model, files, numbers))
    assert set(found.table["class"]) == {"all classes", "Red Fox", "cat", "dog"}


@pytest.mark.parametrize("form", ["names.txt", "names.json", "config.json", "list", "numbers"])
def test_a_list_of_class_names(form: str, tmp_path: Path) -> None:
    model, names = Scores(4), ["owl", "cat", "fox", "dog"]
    files = folder(tmp_path / "photos", ["cat", "dog"])
    given: Any = names
    if form == "numbers":
        given = {str(number): name for number, name in enumerate(names)}
    elif form != "list":
        given = tmp_path / form
        numbered = {"id2label": {str(number): name for number, name in enumerate(names)}}
        content = {"names.txt": "\n".join(names) + "\n", "names.json": json.dumps(names)}
        given.write_text(content.get(form, json.dumps(numbered)))
    found = measured(model, tmp_path / "photos", classes=given)["accuracy"]
    expected = accuracy_by_hand(model, files, {"cat": 1, "dog": 3})
    assert found.table[found.table["overall"]].iloc[0]["value"] == pytest.approx(expected)
    assert found.about["data"]["labels"] == "2 of 4 classes, by names"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cat", "dog", "fox"], "3 of 4 classes, by names"),
        (["ant", "cat", "dog", "fox"], "4 of 4 classes, by names"),
    ],
)
def test_the_terminal_counts_classes_of_the_images(
    tmp_path: Path, names: list[str], said: str
) -> None:
    """Not the scores of the model; and says how labels were matched, also if all have a name."""
    folder(tmp_path, names, 2)
    found = measured(Scores(4), tmp_path, classes=["fox", "dog", "cat", "ant"])
    printed = StringIO()
    Console(width=400, file=printed).print(terminal_summary(found, Guard()))
    text = printed.getvalue()
    assert text.splitlines()[0].rstrip().endswith(f", {len(names)} classes")
    assert f"Labels: {said}" in text


def test_equally_many_classes_without_names_are_matched_in_order(tmp_path: Path) -> None:
    model = Scores(3)
    files = folder(tmp_path, ["ant", "bee", "cow"])
    found = measured(model, tmp_path)["accuracy"]
    expected = accuracy_by_hand(model, files, {"ant": 0, "bee": 1, "cow": 2})
    assert found.table[found.table["overall"]].iloc[0]["value"] == pytest.approx(expected)
    assert found.about["data"]["labels"] == "3 of 3 classes, by order"


def test_numeric_class_names_are_indices() -> None:
    """Sorted as text, 10 comes before 2."""
    names = sorted(map(str, range(12)))
    found = match_classes(names, 12, (), "data")
    assert isinstance(found, ClassMatch)
    assert found.places == tuple(map(int, names))


def test_every_wnid_and_description_of_imagenet_is_matched() -> None:
    found = match_classes(WNIDS, 1000, (), "data")
    assert isinstance(found, ClassMatch)
    assert found.places == tuple(range(1000))
    assert len(set(found.names)) == 1000
    own = INFO.label_descriptions()
    named = match_classes(WNIDS[::-1], 1000, own, "data")  # a model with names of its own
    assert isinstance(named, ClassMatch)
    assert named.places == tuple(range(999, -1, -1))
    for size in (11221, 11821, 21841, 21843):
        info = timm.data.ImageNetInfo(timm.data.infer_imagenet_subset({"num_classes": size}))
        some = info.label_names()[::997]
        match = match_classes(some, size, (), "data")
        assert isinstance(match, ClassMatch)
        assert match.places == tuple(range(0, size, 997))


@pytest.mark.parametrize(
    ("classes", "outputs", "own", "sentence"),
    [
        (["cat", "dog"], 5, (), "It has 5 classes without names, and 'd' has 2; name the folders"),
        (["cat", "dgo"], 3, ("cat", "dog", "fox"), r"dgo of 'd' is not among them \(near 'dgo': d"),
        (["n99999999"], 1000, (), "It has 1000 classes, and n99999999 of 'd' is not among them"),
        (["tench", "Tinca tinca"], 1000, (), "Several classes of 'd' are one class of the model"),
        (["0", "5"], 5, ("a", "b", "c", "d", "e"), "It has 5 classes, and 0, 5 of 'd' are not"),
        (["crane", "tench"], 1000, (), "crane of 'd' is not among them"),  # a bird and a machine
    ],
)
def test_what_cannot_be_matched(
    classes: list[str], outputs: int, own: tuple[str, ...], sentence: str
) -> None:
    found = match_classes(classes, outputs, own, "d")
    assert isinstance(found, str)
    assert re.search(sentence, found)
    assert found.endswith("with --classes FILE (classes= in Python).")


def test_models_with_other_numbers_are_left_out(tmp_path: Path) -> None:
    one, other = Scores(2), Scores(2)
    one.trained_with = {"label_names": ["cat", "dog"]}  # type: ignore[assignment]
    other.trained_with = {"label_names": ["dog", "cat"]}  # type: ignore[assignment]
    folder(tmp_path, ["cat", "dog"])
    choice = {"mean": 0.5, "std": 0.5}
    found = vitreous.inspect(
        {"one": one, "other": other}, f"folder:{tmp_path}", ["accuracy"], image=32,
        preprocessing=choice,
    )["accuracy"]  # fmt: skip
    assert set(found.table["model"]) == {"one"}
    assert found.about["left_out"]["other"].startswith("Its classes have other numbers than those")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("cat\ndog\ncat\n", "has cat twice"),
        ("cat\n\ndog", "has a class without a name"),
        ("", "names no classes"),
    ],
)
def test_invalid_lists_of_class_names_are_refused(
    content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "names.txt").write_text(content)
    with pytest.raises(VitreousError, match=sentence):
        read_class_names(tmp_path / "names.txt")


def test_files_of_names_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=r"There is no file '.*nowhere\.txt' of class names"):
        read_class_names(tmp_path / "nowhere.txt")
    (tmp_path / "names.json").write_text("[")
    with pytest.raises(VitreousError, match=r"names\.json' is no JSON"):
        read_class_names(tmp_path / "names.json")
    (tmp_path / "names.json").write_text("3")
    with pytest.raises(VitreousError, match="holds neither a list of names nor"):
        read_class_names(tmp_path / "names.json")
    with pytest.raises(VitreousError, match="does not number its classes from 0"):
        read_class_names({"1": "cat", "2": "dog"})


def test_another_number_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("names.txt").write_text("cat\ndog\n")
    line = "inspect nano:vit --probes accuracy --limit 4 --classes"
    with pytest.raises(SystemExit):
        main([*line.split(), "names.txt"])
    error = capsys.readouterr().err
    assert "--classes names 2 classes, and nano:vit has 10; give one name for each class" in error
    with pytest.raises(SystemExit):
        main([*line.split(), "nowhere.txt"])
    assert "There is no file 'nowhere.txt' of class names." in capsys.readouterr().err
