"""Asking, interrupting, going on, and what is said when something is wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import vitreous
from vitreous.errors import VitreousError, VitreousWarning
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.selection import choose_analyses
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result


@dataclass
class Brightness(Analysis):
    """Mean output over the images, times a number; a piece for each factor."""

    factors: tuple[int, ...] = (1, 2, 3)

    name = "brightness"
    ids = ("A4.01",)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"times {factor}" for factor in self.factors]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        def one(piece: str) -> Numbers:
            total = torch.zeros((), dtype=torch.float64)
            for batch in bench.batches():
                total += subject.specimen(subject.prepare(batch.images)).double().sum()
            return {"sum": total * int(piece.rpartition(" ")[2])}

        yield one

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows = [
            {"model": subject.name, "factor": piece, "value": float(numbers["sum"])}
            for subject in subjects
            for piece, numbers in computed[subject.name].items()
        ]
        columns = (
            Column("model", "category", "…"),
            Column("factor", "category", "…"),
            Column("value", "quantity", "…"),
        )
        return Result(self.name, pd.DataFrame(rows), columns)


class Tiny(nn.Module):
    """Ten scores, and a number drawn if asked to."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.score, self.noise = nn.Linear(3, 10), noise

    def forward(self, images: Tensor) -> Tensor:
        pooled = images.mean((2, 3))
        return self.score(pooled + self.noise * torch.rand_like(pooled) if self.noise else pooled)


def data(count: int = 12) -> Any:
    return vitreous.data.load("world:shapes", split="test", size=count)


def test_calling_an_analysis_equals_running_it_by_name() -> None:
    torch.manual_seed(0)
    model = Tiny()
    found = Brightness()(model, data(), image=32)
    with torch.no_grad():
        total = float(model(data().normalise(data().images)).double().sum())
    assert list(found.table["factor"]) == ["times 1", "times 2", "times 3"]
    one, two, _ = found.table["value"]
    assert two == pytest.approx(2 * one)
    assert one == pytest.approx(total, rel=1e-5)
    assert found.about["options"] == {"factors": [1, 2, 3]}
    assert found.about["data"]["images"] == 12


def test_models_with_random_outputs_are_refused_with_the_reason() -> None:
    refused = pytest.raises(VitreousError, match=r"different outputs for the same images.*rand")
    with pytest.warns(VitreousWarning, match="draws random numbers"), refused:
        Brightness()(Tiny(noise=0.5), data(), image=32)


def test_out_of_memory_halves_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    class Hungry(Brightness):
        @contextmanager
        def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
            with super().work(subject, bench) as one:

                def greedy(piece: str) -> Numbers:
                    if bench.batch > 3:
                        raise torch.OutOfMemoryError("too little")
                    return one(piece)

                yield greedy

    torch.manual_seed(0)
    model = Tiny()
    with caplog.at_level(logging.WARNING, "vitreous"):
        hungry = Hungry()(model, data(), image=32)
    assert "3 at a time" in caplog.text
    assert hungry.table["value"].tolist() == pytest.approx(
        Brightness()(model, data(), image=32).table["value"].tolist()
    )


def test_pieces_of_other_options_are_not_reused(tmp_path: Path) -> None:
    model = Tiny()
    Brightness()(model, data(), image=32, keep=tmp_path)
    with pytest.raises(VitreousError, match=r"another run: .*factors"):
        Brightness(factors=(1, 2))(model, data(), image=32, keep=tmp_path)


def test_unsuited_models_have_a_reason() -> None:
    found = vitreous.analyse(
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)), data(), [Brightness()], image=32
    )
    assert "It has 4 classes" in found.left_out["brightness"]["Sequential"]
    with pytest.raises(VitreousError, match="could not be measured"):
        found["brightness"]


def test_bad_names_and_numbers() -> None:
    with pytest.raises(VitreousError, match="analysis"):
        choose_analyses("hesian")
    with pytest.raises(VitreousError, match="named twice"):
        choose_analyses([Brightness(), Brightness()])
    with pytest.raises(VitreousError, match="nothing to measure"):
        choose_analyses([])
    with pytest.raises(VitreousError, match="batch=0 was asked for"):
        vitreous.analyse(Tiny(), data(), [Brightness()], batch=0)
    with pytest.raises(VitreousError, match="split"):
        vitreous.analyse(Tiny(), {"train": data()}, [Brightness()], image=32)
