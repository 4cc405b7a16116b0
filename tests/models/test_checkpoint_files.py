"""Files of weights of every kind are read, by what they hold and not by their ending; what is no
checkpoint is refused in one sentence."""

from __future__ import annotations

import argparse
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from safetensors.torch import save_file
from torch import nn

import vitreous
from models.checkpoints import assert_same, loaded, trained
from vitreous.errors import VitreousError
from vitreous.models.checkpoint_files import read_checkpoint
from vitreous.models.loading import load_model
from vitreous.models.matching import load_weights


@pytest.mark.parametrize("ending", ["safetensors", "pth", "pt", "bin", "ckpt", "old.pth"])
def test_formats(ending: str, tmp_path: Path) -> None:
    model, file = trained("test_resnet"), tmp_path / f"weights.{ending}"
    if ending == "safetensors":
        save_file(model.state_dict(), file)
    else:
        new = not ending.startswith("old")
        torch.save({"model": model.state_dict()}, file, _use_new_zipfile_serialization=new)
    other, found = loaded("test_resnet", file)
    assert_same(other, model)
    assert found.missing == ()


def test_the_format_is_detected_by_content(tmp_path: Path) -> None:
    model = trained()
    save_file(model.state_dict(), tmp_path / "weights.bin")
    torch.save(model.state_dict(), tmp_path / "weights.safetensors")
    for name in ("weights.bin", "weights.safetensors"):
        assert_same(loaded("test_vit", tmp_path / name)[0], model)


def test_a_whole_model_is_read_without_its_classes(tmp_path: Path) -> None:
    for name in ("test_vit", "test_resnet"):
        model = trained(name)
        torch.save({"model": model, "epoch": 1}, tmp_path / "whole.pth")
        assert_same(loaded(name, tmp_path / "whole.pth")[0], model)


def test_half_precision_becomes_the_models(tmp_path: Path) -> None:
    model = trained()
    torch.save(model.half().state_dict(), tmp_path / "half.pth")
    other, _ = loaded("test_vit", tmp_path / "half.pth")
    assert other.get_parameter("head.weight").dtype == torch.float32
    assert_same(other, model.float())


def test_torchvision(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3)
    torch.save({"model": model.state_dict(), "args": argparse.Namespace()}, tmp_path / "model.pth")
    other, found = loaded("tv:resnet18", tmp_path / "model.pth")
    assert_same(other, model)
    assert found.missing == ()
    subject_declares = vitreous.open(
        "tv:resnet18", weights=tmp_path / "model.pth", image=64
    ).trained
    assert subject_declares["source"] == "torchvision"


def test_torchvisions_positions_are_resized(tmp_path: Path) -> None:
    torch.manual_seed(0)
    small = torchvision.models.VisionTransformer(64, 32, 1, 2, 16, 32, num_classes=5)
    with torch.no_grad():
        small.encoder.pos_embedding.normal_()
    large = torchvision.models.VisionTransformer(128, 32, 1, 2, 16, 32, num_classes=5)
    torch.save(small.state_dict(), tmp_path / "small.pth")
    assert load_weights(large, tmp_path / "small.pth").resized == ("encoder.pos_embedding",)
    expected = timm.layers.resample_abs_pos_embed(small.encoder.pos_embedding, [4, 4])
    assert torch.equal(large.encoder.pos_embedding, expected)


TINY = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def hugging_face_folder(folder: Path, **how: Any) -> nn.Module:
    torch.manual_seed(0)
    names = {0: "cat", 1: "dog", 2: "fox"}
    config = transformers.ViTConfig(**TINY, num_labels=3, id2label=names)
    model = transformers.ViTForImageClassification(config)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.1)
    model.save_pretrained(folder, **how)
    return model.eval()


def test_hugging_face_folders(tmp_path: Path) -> None:
    """Their weights are loaded by the name alone, or into another model as `weights`."""
    model = hugging_face_folder(tmp_path / "one")
    assert_same(load_model(f"hf:{tmp_path}/one"), model)
    specimen = vitreous.open(f"hf:{tmp_path}/one")
    assert specimen.trained["label_names"] == ("cat", "dog", "fox")
    assert specimen.weights == "pretrained"
    transformers.ViTConfig(
        **TINY, num_labels=9, architectures=["ViTForImageClassification"]
    ).save_pretrained(tmp_path / "config")
    other, found = loaded(f"hf:{tmp_path}/config", tmp_path / "one")
    assert_same(other, model)  # with as many classes as the checkpoint has
    assert found.missing == ()


def test_shards_and_pickles_of_hugging_face(tmp_path: Path) -> None:
    model = hugging_face_folder(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert len(read_checkpoint(tmp_path / "shards")) == len(model.state_dict())
    assert_same(loaded(f"hf:{tmp_path}/shards", tmp_path / "shards")[0], model)
    bins = tmp_path / "bins"
    hugging_face_folder(bins)
    (bins / "model.safetensors").unlink()
    state = list(model.state_dict().items())
    torch.save(dict(state[:5]), bins / "pytorch_model-00001-of-00002.bin")
    torch.save(dict(state[5:]), bins / "pytorch_model-00002-of-00002.bin")
    files = [f"pytorch_model-0000{1 + (i >= 5)}-of-00002.bin" for i in range(len(state))]
    index = {"metadata": {}, "weight_map": dict(zip(dict(state), files, strict=True))}
    (bins / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same(loaded(f"hf:{tmp_path}/shards", bins)[0], model)
    assert_same(load_model(f"hf:{bins}"), model)
    (bins / files[0]).unlink()
    with pytest.raises(VitreousError, match=r"1 of the 2 files that .* names are not beside it"):
        read_checkpoint(bins)


def test_a_folder_that_timm_saved(tmp_path: Path) -> None:
    model = trained()
    timm.models.save_for_hf(model, tmp_path)
    assert_same(load_model(f"local-dir:{tmp_path}"), model)


def a_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("weight.npy", b"numbers")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "is neither safetensors nor written by torch.save"),
        (b"PK\x03\x04" + bytes(100), r"cannot be read as weights \(its end is missing\)"),
        (a_zip(), "it is a zip that torch.save has not written"),
        (b"\x10" + bytes(7) + b'{"a": nonsense}}', "is damaged"),
        (b"\x80\x02}q\x00.", "cannot be read as weights|holds more than tensors"),
    ],
)
def test_files_that_are_no_checkpoints(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file.pth").write_bytes(content)
    with pytest.raises(VitreousError, match=sentence) as caught:
        load_model("test_vit", weights=tmp_path / "file.pth")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_contains_itself_is_read_once(tmp_path: Path) -> None:
    state: dict[str, Any] = dict(timm.create_model("test_vit").state_dict())
    state["trainer"] = {"model": state, "history": []}
    deep = state["trainer"]["history"]
    for _ in range(400):
        deep.append([])
        deep = deep[0]
    torch.save({"state_dict": state}, tmp_path / "loop.pth")
    assert load_weights(timm.create_model("test_vit"), tmp_path / "loop.pth").missing == ()


def test_paths_without_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=r"no file or folder '.*nowhere.pth' to load weights"):
        load_model("test_vit", weights=tmp_path / "nowhere.pth")
    with pytest.raises(VitreousError, match=r"Vitreous reads files: download it and give the pa"):
        load_model("test_vit", weights="https://example.org/last.pth")
    with pytest.raises(VitreousError, match="holds no weights; Vitreous looks for files that end"):
        load_model("test_vit", weights=tmp_path)
    for name in ("a.pth", "b.pth"):
        torch.save({}, tmp_path / name)
    with pytest.raises(VitreousError, match=r"holds 2 files of weights \(a.pth, b.pth, …\); name"):
        load_model("test_vit", weights=tmp_path)
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "script.pt")
    with pytest.raises(VitreousError, match=r"script\.pt' is TorchScript"):
        load_model("test_vit", weights=tmp_path / "script.pt")


def test_a_run_of_ours_is_a_checkpoint_too() -> None:
    from vitreous.model_names import BUNDLED

    recipe = json.loads((BUNDLED / "vit" / "recipe.json").read_text())
    model = vitreous.build(**recipe["model"]["build"])
    assert load_weights(model, BUNDLED / "vit").missing == ()
    assert_same(model, load_model("nano:vit"))


def test_prefixes_around_the_names_of_hugging_face(tmp_path: Path) -> None:
    """Its files have older names than its models; both may be nested, or lack the outer part."""
    model = hugging_face_folder(tmp_path)
    config, stored = f"hf:{tmp_path}/config.json", read_checkpoint(tmp_path)
    for number, state in enumerate((stored, model.state_dict())):
        file = tmp_path / f"{number}.ckpt"
        torch.save({"state_dict": {f"net.{key}": value for key, value in state.items()}}, file)
        other, found = loaded(config, file)
        assert_same(other, model)
        assert found.prefix == "state_dict.net."
    bare = {key.removeprefix("vit."): value for key, value in stored.items() if "vit." in key}
    torch.save(bare, tmp_path / "bare.pth")
    found = loaded(config, tmp_path / "bare.pth")[1]
    assert found.missing == ("classifier.weight", "classifier.bias")
    assert found.random_head


def test_models_in_wrappers(tmp_path: Path) -> None:
    model = trained()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for number, wrapped in enumerate((torch.compile(model), nn.DataParallel(model), averaged)):
        file = tmp_path / f"{number}.pth"
        torch.save(wrapped.state_dict(), file)  # type: ignore[attr-defined]
        assert_same(loaded("test_vit", file)[0], model)
    into = vitreous.open(torch.compile(trained(seed=5)), weights=tmp_path / "0.pth")  # type: ignore[arg-type]
    assert into.checkpoint is not None
    assert into.checkpoint.missing == ()
