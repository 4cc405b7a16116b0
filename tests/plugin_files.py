"""Plugins for tests: files as a user writes them, and packages as if they were installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from other_books import forgotten_books

FEW = ("--limit", "8", "--device", "cpu")
PROBE = '''"""Norms."""
from vitreous.measure.per_image import PerImage
from vitreous.measure.report_section import Section


class TokenNorm(PerImage):
    """Norm of the tokens after each unit."""

    name = "token_norm"
    sites = ("out",)
    section = Section("representation", "How long are tokens?")

    def refuses(self, subject, unit):
        return "It has no feature map." if unit.grid is None else None

    def values(self, subject, unit, sites):
        return sites.out.tokens.norm(dim=-1).mean(1)

    @classmethod
    def sentences(cls, result):
        yield "Tokens have a length."
'''
ANALYSIS = '''"""Counting."""
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from vitreous.measure.analysis import Analysis
from vitreous.results import Column, Result, View

COLUMNS = (Column("model", "category", "The model."), Column("value", "quantity", "Images."))


@dataclass
class Count(Analysis):
    """Number of images, several times."""

    times: int = 2
    """How often they are counted."""

    name = "count_images"
    marked = False

    def pieces(self, subject, bench):
        return [str(number) for number in range(self.times)]

    @contextmanager
    def work(self, subject, bench):
        def compute(piece):
            return {"images": torch.tensor(sum(len(batch) for batch in bench.batches()))}

        yield compute

    def answer(self, computed, subjects, bench):
        rows = []
        for subject in subjects:
            images = sum(int(piece["images"]) for piece in computed[subject.name].values())
            rows.append({"model": subject.name, "value": images})
        return Result(self.name, pd.DataFrame(rows), COLUMNS, (View("bar", x="model", y="value"),))
'''
RECIPE = '''"""Recipes."""
from vitreous.config import Recipe


def short():
    """One epoch."""
    return Recipe(name="short", epochs=1, warmup=0.0, batch=32)


fixed = Recipe(name="fixed", epochs=1, warmup=0.0, batch=32)
'''
MODEL = '''"""A small network."""
from torch import nn


def make(classes=10):
    """A convolution."""
    body = [nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8, classes))
'''


@contextmanager
def forgotten_plugins(folder: Path) -> Iterator[Path]:
    """The current folder, with four files of plugins; after it nothing of them is left."""
    files = {"my_probe": PROBE, "my_analysis": ANALYSIS, "my_recipe": RECIPE, "my_model": MODEL}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    with forgotten_books(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def install_package(
    folder: Path, name: str, files: dict[str, str], **groups: dict[str, str]
) -> None:
    """Put a package with entry points where Python finds it: what pip leaves behind."""
    for file, text in files.items():
        path = folder / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[vitreous.{group}]", *(f"{key} = {text}" for key, text in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def typed(capsys: pytest.CaptureFixture[Any], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    from vitreous.cli import main

    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err
