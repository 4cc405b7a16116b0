"""Random weights are flagged where a reader looks first, and no finding is judged on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
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


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file and a Hugging Face folder of weights as they are initialised, and a photo."""
    home = tmp_path_factory.mktemp("untrained")
    save_file(vitreous.build("vit_nano").state_dict(), home / "vit.safetensors")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8, num_labels=10,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(home / "vit")
    Image.new("RGB", (40, 40), "teal").save(home / "photo.png")
    return home


FILE = ("vit_nano", "--weights", "vit.safetensors")
LOOK = "was loaded, but its weights look untrained (its norms are as initialised)"


@pytest.mark.parametrize(
    ("given", "loaded", "cell"),
    [
        (FILE, "vit.safetensors", "vit.safetensors (untrained)"),
        (("hf:vit",), "hf:vit", "untrained"),
    ],
)
def test_a_file_of_untrained_weights_is_named_and_not_judged(
    given: tuple[str, ...], loaded: str, cell: str, untrained: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The advice to load weights, and the word random, are for those who loaded none."""
    monkeypatch.chdir(untrained)
    monkeypatch.setenv("COLUMNS", "200")
    few = ("--probes", "variance", "--limit", "16", "--out", "page.html")
    code, out, err = run(capsys, "inspect", *given, *few)
    assert code == 0, err
    assert f"{loaded} {LOOK}" in out
    assert "No finding is judged on it." in out
    assert f"{given[0]} {cell} " in out
    assert "andom weights" not in out
    assert "could be judged" not in out
    text = (untrained / "page.html").read_text()
    assert f"{loaded} {LOOK}" in text
    assert 'id="verdicts"' not in text
    code, out, err = run(capsys, "show", given[0], "photo.png", *given[1:], "--out", "shown.png")
    assert code == 0, err
    assert f"{loaded} {LOOK}: neither the map nor the prediction means anything." in out
    assert "add --pretrained" not in out
    assert "are random" not in out


def test_advice_to_load_weights_is_only_for_random_weights(
    untrained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(untrained)
    words = "The weights are random: neither the map nor the prediction means anything"
    for model, said in (
        ("vit_nano", f"{words}; add --pretrained or --weights FILE."),
        ("nano:vit@initial", f"{words}. "),
    ):
        code, out, err = run(capsys, "show", model, "photo.png", "--out", "shown.png")
        assert code == 0, err
        assert said in out
    code, out, _ = run(capsys, "show", "nano:vit", "photo.png", "--out", "shown.png")
    assert "anything" not in out


def test_a_trained_file_is_named_in_the_table(
    untrained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(untrained)
    model = vitreous.build("vit_nano")
    moved = {name: value + 0.01 for name, value in model.state_dict().items()}
    save_file(moved, "best.safetensors")
    few = ("--probes", "variance", "--limit", "16", "--out", "page.html")
    code, out, err = run(capsys, "inspect", "vit_nano", "--weights", "best.safetensors", *few)
    assert code == 0, err
    assert "vit_nano best.safetensors" in out
    assert LOOK not in out


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
