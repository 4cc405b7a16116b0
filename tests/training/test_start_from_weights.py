"""A training can start from a checkpoint, and its run opens without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
import transformers

import vitreous
from vitreous.cli import main
from vitreous.models.loading import load_model
from vitreous.training import recipes
from vitreous.training.prepare import prepare_model


def test_it_starts_where_the_checkpoint_ends(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_vit", num_classes=7, img_size=32)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "last.pth")
    data = vitreous.data.load("world:shapes", size=10)
    recipe = recipes.named("quick").but(head="zero")
    begun, described = prepare_model(
        "test_vit", data, recipe, seed=0, weights=tmp_path / "last.pth"
    )
    key = "blocks.0.attn.qkv.weight"
    assert torch.equal(begun.state_dict()[key], model.state_dict()[key])
    assert begun(torch.zeros(1, 3, 32, 32)).shape == (1, 10)  # with a new head
    assert described["from"] == "test_vit"
    other, elsewhere = prepare_model("test_vit", data, recipe, seed=0)
    assert not torch.equal(other.state_dict()[key], model.state_dict()[key])
    assert "from" not in elsewhere


def test_a_folder_of_hugging_face_is_fine_tuned(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        image_size=32, patch_size=8, num_labels=10,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config)
    model.save_pretrained(tmp_path)
    data = vitreous.data.load("world:shapes", size=10)
    recipe = recipes.named("quick").but(head="keep")
    begun, described = prepare_model(f"hf:{tmp_path}", data, recipe, seed=0)
    before = model.get_parameter("classifier.weight")
    assert torch.equal(begun.get_parameter("classifier.weight"), before)
    assert described["from"] == f"hf:{tmp_path}"
    again = load_model(**described["load"])  # as a run is opened: its own weights follow
    assert not torch.equal(again.get_parameter("classifier.weight"), before)


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(timm.create_model("test_vit", img_size=32).state_dict(), "last.pth")
    line = "train test_vit --data world:shapes --size 20 --test-size 10 --set epochs=1 --quiet"
    line += " --set batch=10 --set head=zero --out mine --weights"
    with pytest.raises(SystemExit) as end:
        main([*line.split(), "last.pth"])
    assert not end.value.code, capsys.readouterr().err
    Path("last.pth").unlink()
    assert vitreous.open("run:mine").weights == "trained"
    with pytest.raises(SystemExit):
        main([*line.split(), "last.pth"])
    assert "There is no file or folder 'last.pth' to load weights from." in capsys.readouterr().err
