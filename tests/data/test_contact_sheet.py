"""The contact sheet and the table: what is shown is what is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from vitreous.cli import main
from vitreous.data import Dataset, load
from vitreous.data.contact_sheet import COLUMNS, LINES, MARGIN, choose_rows, contact_sheet
from vitreous.data.summary import SHOWN, class_counts, summary_table


def flat(labels: list[int], classes: int, side: int = 16) -> Dataset:
    """Every image one colour: its label in red."""
    images = torch.tensor(labels, dtype=torch.uint8)[:, None, None, None].repeat(1, 3, side, side)
    return Dataset(images, torch.tensor(labels), tuple(f"kind {i}" for i in range(classes)), "toy")


def shown(data: Dataset) -> str:
    console = Console(width=200)
    with console.capture() as caught:
        console.print(summary_table(data))
    return caught.get()


def test_few_classes_have_a_line_each() -> None:
    labels = np.array([2] * 30 + [0] * 3 + [1] * 12)
    lines = choose_rows(labels, seed=0)
    assert [labels[line].tolist() for line in lines] == [[0] * 3, [1] * COLUMNS, [2] * COLUMNS]
    assert len({row for line in lines for row in line}) == 3 + 2 * COLUMNS


def test_of_many_classes_one_image_each() -> None:
    few, many = np.arange(40).repeat(5), np.arange(1000).repeat(2)
    assert [label for line in choose_rows(few, 0) for label in few[line]] == list(range(40))
    lines = choose_rows(many, 0)
    found = [label for line in lines for label in many[line]]
    assert len(found) == len(set(found)) == COLUMNS * LINES
    assert found[0] == 0
    assert found[-1] == 999
    assert sorted(choose_rows(np.zeros(3, int), 0)[0]) == [0, 1, 2]
    assert len(choose_rows(np.full(500, -1), 0)) == LINES


@pytest.mark.parametrize("side", [8, 32, 50, 300])
def test_every_image_is_on_the_sheet_in_its_colour(side: int) -> None:
    """The colours of the first column, read back from the picture."""
    data = flat([10, 60, 110, 160] * 3, 161, side)
    picture = np.asarray(contact_sheet(data))
    column = [tuple(pixel) for pixel in picture[:, MARGIN + 5].tolist()]
    assert [value for value in (10, 60, 110, 160) if (value,) * 3 in column] == [10, 60, 110, 160]
    assert column.index((10,) * 3) < column.index((60,) * 3) < column.index((160,) * 3)


def test_small_images_keep_sharp_pixels() -> None:
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    images[..., ::2] = 255
    picture = np.asarray(
        contact_sheet(Dataset(images, torch.zeros(1, dtype=torch.int64), ("stripes",), "toy"))
    )
    line = picture[-60, MARGIN : MARGIN + 128, 0]
    assert line.tolist() == ([255] * 16 + [0] * 16) * 4


def test_images_without_labels_are_shown_too() -> None:
    data = flat([0, 0], 0)
    bare = Dataset(data.images, torch.tensor([-1, -1]), (), "toy", "all")
    assert contact_sheet(bare).height > 100
    assert class_counts(bare) == [("without a label", 2)]


def test_the_table_counts_and_abbreviates() -> None:
    data = flat([i for i in range(20) for _ in range(i + 1)], 20)
    text = " ".join(shown(data).split())
    assert "210 of 16×16" in text
    assert "20: kind 0 1, kind 1 2, " in text
    assert f"kind {SHOWN - 1} {SHOWN} and 8 more of 13 to 20" in text
    assert data.fingerprint in text
    assert "skipped" not in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "sheet.png"
    with pytest.raises(SystemExit) as end:
        main(["data", "world:shapes", "--size", "20", "--split", "test", "--out", str(out)])
    said = capsys.readouterr()
    assert end.value.code == 0, said.err
    assert load("world:shapes", size=20, split="test").fingerprint in said.out
    with Image.open(out) as picture:
        assert picture.width > 300


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "data world:shapes --out sheet.svg",
            "A contact sheet ends in .png, .jpg or .webp, and 'sheet.svg' does not.",
        ),
        ("data fodler:x", "There is no source of images 'fodler'. Did you mean folder?"),
        ("data world:shapes --size 3 --out /dev/null/x.png", "Cannot write '/dev/null/x.png'"),
    ],
)
def test_a_mistake_is_one_sentence(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
