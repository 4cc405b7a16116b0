"""A contact sheet: some images of a dataset in one picture, with the class under each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from vitreous.data.dataset import Dataset
from vitreous.data.subsets import class_balanced_order
from vitreous.storage.atomic_files import explain_write_errors

TILE = 128  # pixels; small images are enlarged by a whole number, so that a pixel stays a square
GAP, MARGIN, CAPTION, HEADING = 10, 28, 20, 52
PAPER, INK, FADED, FRAME = "#fcfcfa", "#22242a", "#7a7d85", "#e4e4de"
COLUMNS, LINES = 10, 6


def contact_sheet(data: Dataset, *, seed: int = 0) -> Image.Image:
    """Draw the sheet: one line per class if there are few classes, else one image each of some."""
    lines = choose_rows(data.labels.cpu().numpy(), seed)
    width, height = _tile(data.image)
    across = max(map(len, lines)) * (width + GAP) - GAP
    down = len(lines) * (height + CAPTION + GAP) - GAP
    paper = Image.new("RGB", (max(across, 360) + 2 * MARGIN, down + HEADING + 2 * MARGIN), PAPER)
    draw = ImageDraw.Draw(paper)
    large, small = ImageFont.load_default(20), ImageFont.load_default(13)
    title = _shortened(f"{data.name} · {data.split}", large, paper.width - 2 * MARGIN)
    draw.text((MARGIN, MARGIN - 6), title, INK, large)
    facts = f"{len(data):,} images · {data.image[0]}x{data.image[1]} · {len(data.classes)} classes"
    draw.text((MARGIN, MARGIN + 20), facts, FADED, small)
    for i, line in enumerate(lines):
        top = MARGIN + HEADING + i * (height + CAPTION + GAP)
        for j, row in enumerate(line):
            left = MARGIN + j * (width + GAP)
            paper.paste(_enlarged(data, row, (width, height)), (left, top))
            draw.rectangle((left - 1, top - 1, left + width, top + height), outline=FRAME)
            label = int(data.labels[row])
            name = _shortened(data.classes[label] if label >= 0 else "–", small, width)
            draw.text((left + width / 2, top + height + 4), name, INK, small, anchor="ma")
    return paper


def save_contact_sheet(picture: Image.Image, path: Path) -> None:
    """Write the picture in the format of the suffix."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)


def choose_rows(labels: NDArray[np.int64], seed: int) -> list[list[int]]:
    """Rows of the dataset to show, by lines: one line per class, or one image each if many."""
    order = class_balanced_order(labels, seed)
    classes = np.unique(labels)
    by_class = {
        label: order[labels[order] == label][: COLUMNS * LINES].tolist()
        for label in classes.tolist()
    }
    if 1 < len(classes) <= 2 * LINES:
        return [rows[:COLUMNS] for rows in by_class.values()]
    if len(classes) == 1:
        shown = by_class[int(classes[0])]
    else:
        evenly = np.linspace(0, len(classes) - 1, COLUMNS * LINES).astype(np.int64)
        shown = [by_class[label][0] for label in classes[np.unique(evenly)].tolist()]
    return [shown[start : start + COLUMNS] for start in range(0, len(shown), COLUMNS)]


def _enlarged(data: Dataset, row: int, size: tuple[int, int]) -> Image.Image:
    image = Image.fromarray(data.images[row].permute(1, 2, 0).contiguous().cpu().numpy())
    shrinks = size[0] < image.width
    return image.resize(size, Image.Resampling.LANCZOS if shrinks else Image.Resampling.NEAREST)


def _tile(image: tuple[int, int]) -> tuple[int, int]:
    """Width and height of an image on the sheet."""
    height, width = image
    scale = max(TILE // max(image), 1) if max(image) <= TILE else TILE / max(image)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
