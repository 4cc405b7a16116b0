"""A pickle that runs code is refused on every way into a model, and its code is not run.

Every payload would create a file; the last test shows that each of them does if it is loaded
without protection.
"""

from __future__ import annotations

import builtins
import json
import os
import pickle
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from PIL import Image

import vitreous
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.model_names import BUNDLED
from vitreous.models.loading import load_model


def touch(path: str) -> None:
    """A function of one's own, as a malicious package could have one."""
    Path(path).touch()


class Bomb:
    """Unpickling it calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


class Stateful:
    """Unpickling it calls its `__setstate__`, of a class that is imported for it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, str]) -> None:
        Path(state["path"]).touch()


PAYLOADS: dict[str, Callable[[str], Any]] = {
    "os.system": lambda path: Bomb(os.system, f"touch {shlex.quote(path)}"),
    "exec": lambda path: Bomb(exec, f"open({path!r}, 'w').close()"),
    "eval": lambda path: Bomb(eval, f"open({path!r}, 'w').close()"),
    "open": lambda path: Bomb(builtins.open, path, "w"),
    "subprocess": lambda path: Bomb(subprocess.check_call, ["touch", path]),
    "own function": lambda path: Bomb(touch, path),
    "Path.touch": lambda path: Bomb(Path.touch, Path(path)),
    "getattr": lambda path: Bomb(getattr(Path(path), "touch")),  # noqa: B009
    "numpy": lambda path: Bomb(
        __import__("numpy").testing.runstring, f"open({path!r}, 'w').close()", {}
    ),
}


def checkpoint(bomb: Any) -> dict[str, Any]:
    """A complete checkpoint, with a bomb among what frameworks store beside the weights."""
    state = timm.create_model("test_vit").state_dict()
    return {"state_dict": state, "hyper_parameters": {"config": bomb}}


def by_torch(content: Any, file: Path) -> None:
    torch.save(content, file)


def by_old_torch(content: Any, file: Path) -> None:
    torch.save(content, file, _use_new_zipfile_serialization=False)


def by_newer_pickle(content: Any, file: Path) -> None:
    torch.save(content, file, pickle_protocol=4)


def by_pickle(content: Any, file: Path) -> None:
    file.write_bytes(pickle.dumps(content))


WRITERS = (by_torch, by_old_torch, by_newer_pickle, by_pickle)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("write", WRITERS)
def test_weights(payload: str, write: Callable[[Any, Path], None], tmp_path: Path) -> None:
    mark, file = tmp_path / "exploded", tmp_path / "last.ckpt"
    write(checkpoint(PAYLOADS[payload](str(mark))), file)
    with pytest.raises(VitreousError, match=r"last\.ckpt'.*(pickle|cannot be read)") as caught:
        load_model("test_vit", weights=file)
    assert not mark.exists()
    assert "\n" not in str(caught.value)
    assert "save" in str(caught.value)  # what to do instead


def test_an_object_of_a_class_is_dropped_without_its_class(tmp_path: Path) -> None:
    """An object is data, and the weights beside it are read; its class is never asked."""
    mark, file = tmp_path / "exploded", tmp_path / "last.ckpt"
    torch.save(checkpoint(Stateful(str(mark))), file)
    load_model("test_vit", weights=file)
    assert not mark.exists()
    torch.load(file, weights_only=False)
    assert mark.exists()


def malicious_folder(folder: Path, mark: Path, kind: str) -> Path:
    """A folder of timm or Hugging Face whose weights are a bomb."""
    folder.mkdir()
    if kind == "timm":
        timm.models.save_for_hf(timm.create_model("test_vit"), folder, safe_serialization=False)
    else:
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            image_size=32, patch_size=8, architectures=["ViTForImageClassification"],
        )  # fmt: skip
        config.save_pretrained(folder)
    name = "pytorch_model.bin"
    if kind == "shards":
        name = "pytorch_model-00001-of-00001.bin"
        index = {"metadata": {}, "weight_map": {"classifier.weight": name}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    torch.save({"classifier.weight": Bomb(touch, str(mark))}, folder / name)
    return folder


def test_every_entry_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, file = tmp_path / "exploded", tmp_path / "last.pth"
    torch.save(checkpoint(Bomb(touch, str(mark))), file)
    timms = malicious_folder(tmp_path / "timm", mark, "timm")
    one = malicious_folder(tmp_path / "one", mark, "Hugging Face")
    shards = malicious_folder(tmp_path / "shards", mark, "shards")
    run = tmp_path / "run"
    shutil.copytree(BUNDLED / "vit", run)
    shutil.copy(file, run / "weights" / "final.safetensors")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.url
    download = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    download.parent.mkdir(parents=True)
    torch.save(Bomb(touch, str(mark)), download)
    module = timm.create_model("test_vit")
    how: dict[str, Any] = {"limit": 4}
    few = vitreous.data.load("world:shapes", split="test", size=10)
    ways: dict[str, Callable[[], object]] = {
        "open": lambda: vitreous.open("test_vit", weights=file),
        "open a module": lambda: vitreous.open(module, weights=file),
        "inspect": lambda: vitreous.inspect(
            "test_vit", "world:shapes", ["variance"], weights=file, **how
        ),
        "analyse": lambda: vitreous.analyse(
            "test_vit", "world:shapes", "lesion", weights=[file], **how
        ),
        "show": lambda: vitreous.show("test_vit", torch.zeros(3, 32, 32), weights=file),
        "live": lambda: vitreous.live("test_vit", "world:shapes", weights=file, **how),
        "train": lambda: vitreous.train(
            "test_vit", few, test=few, weights=file, out=tmp_path / "t"
        ),
        "a key of it": lambda: vitreous.open("test_vit", weights=f"{file}@state_dict"),
        "torchvision": lambda: vitreous.open("tv:squeezenet1_1", weights=file),
        "a download of torchvision": lambda: vitreous.open("tv:squeezenet1_1", pretrained=True),
        "a folder of timm": lambda: vitreous.open(f"local-dir:{timms}"),
        "a folder of timm as weights": lambda: vitreous.open("test_vit", weights=timms),
        "Hugging Face": lambda: vitreous.open(f"hf:{one}"),
        "Hugging Face, pretrained": lambda: vitreous.open(f"hf:{one}", pretrained=True),
        "Hugging Face at another size": lambda: vitreous.open(f"hf:{one}", image=64),
        "Hugging Face as weights": lambda: vitreous.open("test_vit", weights=one),
        "shards": lambda: vitreous.open(f"hf:{shards}"),
        "shards as weights": lambda: vitreous.open("test_vit", weights=shards),
        "a run": lambda: vitreous.open(f"run:{run}"),
        "a run as weights": lambda: vitreous.open("nano:vit", weights=run),
        "a path as a model": lambda: vitreous.open(str(file)),
    }
    for way, go in ways.items():
        with pytest.raises(VitreousError):
            go()
        assert not mark.exists(), way


@pytest.mark.parametrize(
    "command",
    [
        "anatomy test_vit",
        "inspect test_vit --limit 4 --out r.html",
        "lesion test_vit --limit 4",
        "live test_vit --limit 4",
        "show test_vit photo.png",
    ],
)
def test_every_command(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "exploded"
    torch.save(checkpoint(Bomb(touch, str(mark))), "last.pth")
    Image.new("RGB", (32, 32)).save("photo.png")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--weights", "last.pth"])
    assert end.value.code == 2
    assert "is a pickle that calls" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_malicious_files_work_with_pickle(payload: str, tmp_path: Path) -> None:
    mark, file = tmp_path / "exploded", tmp_path / "last.ckpt"
    torch.save(checkpoint(PAYLOADS[payload](str(mark))), file)
    assert not mark.exists()
    found = torch.load(file, weights_only=False)["hyper_parameters"]["config"]
    assert mark.exists()
    if hasattr(found, "close"):
        found.close()
