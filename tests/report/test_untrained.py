"""Random weights are flagged where a reader looks first, and no finding is judged on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import vitreous
from vitreous.claims.loading import evidence_of, unjudged
from vitreous.cli import main
from vitreous.commands.judge import judge_inspection
from vitreous.report.page import page


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join(said.out.split()), said.err


def test_random_weights_are_flagged_and_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--probes", "accuracy", "variance", "fourier", "--limit", "64", "--results", "numbers")
    code, out, err = run(capsys, "inspect", "vit_nano", "resnet_18", *asked)
    assert (code, err) == (0, "")
    assert (
        "Random weights: vit_nano and resnet_18. What you see is the architecture before training."
        in out
    )
    assert "vit_nano random" in out
    assert "could be judged" not in out
    text = (tmp_path / "inspect-vit_nano-resnet_18.html").read_text()
    assert text.index("Random weights: vit_nano and resnet_18.") < text.index('id="summary"')
    assert text.count('<td class="number">random</td>') == 2
    assert 'id="verdicts"' not in text
    code, out, err = run(capsys, "claims", "judge", "numbers")
    assert code == 2
    assert "There is nothing to judge in 'numbers'" in err
    assert "Random weights: vit_nano and resnet_18." in out


def test_one_random_model_beside_trained_ones_is_left_out_of_the_evidence() -> None:
    found = vitreous.inspect(
        ["nano:vit", "nano:resnet", "vit_nano"], probes=["accuracy", "variance"], limit=64
    )
    assert list(unjudged(found)) == ["vit_nano"]
    assert {each.name for each in evidence_of(found).items} == {"nano:vit", "nano:resnet"}
    assert "nano:vit" in page(found)


class Guess(nn.Module):
    """Knows nothing, and has no norm that would tell."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 10)
        self.block = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        return self.head((x + self.block(x)).mean((2, 3)))


def test_a_model_at_chance_is_not_judged() -> None:
    found = vitreous.inspect(
        {"mine": Guess()}, probes=["accuracy", "variance"], limit=200, image=32
    )
    assert found["accuracy"].about["models"]["mine"]["weights"] == "unknown"
    assert unjudged(found)["mine"].startswith("at chance (")
    assert judge_inspection(found, {}) is None
    text = page(found)
    assert text.index("At chance (") < text.index('id="summary"')


def test_checkpoints_may_be_at_chance_or_random() -> None:
    """Claims ask for them as such: early in training, or as the untrained control."""
    table = vitreous.inspect("nano:vit", probes="accuracy", limit=16)["accuracy"]
    for name, weights in (("nano:vit@warmup", "trained"), ("nano:vit@initial", "random")):
        early = table.table.assign(model=name, value=0.1, low=0.05, high=0.2)
        about = {**table.about, "models": {name: {"weights": weights}}}
        assert unjudged({"accuracy": replace(table, table=early, about=about)}) == {}
