"""Every way of naming a model gives that model, and every wrong name a sentence. Nothing is
downloaded or unpickled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision

from vitreous.errors import UnknownName, VitreousError
from vitreous.models import hugging_face, loading

TAGGED = "test_vit.r160_in1k"


def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


class Bomb:
    """Unpickling it creates a file: how a test sees that code was run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_timm_names_are_timms_own() -> None:
    torch.manual_seed(1)
    ours = loading.load_model("test_vit")
    torch.manual_seed(1)
    theirs = timm.create_model("test_vit")
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )
    assert shapes(loading.load_model(TAGGED)) == shapes(theirs)


def test_image_reaches_the_models_that_have_to_know() -> None:
    assert shapes(loading.load_model("test_vit", image=64)) == shapes(
        timm.create_model("test_vit", img_size=64)
    )
    assert shapes(loading.load_model("test_resnet", image=64)) == shapes(
        timm.create_model("test_resnet")
    )
    sized = loading.load_model("tv:vit_b_32", image=64)
    assert sized.get_parameter("encoder.pos_embedding").shape[1] == 1 + 4
    wide = loading.load_model("test_vit", image=(32, 64)).eval()
    assert wide(torch.zeros(1, 3, 32, 64)).shape == (1, 1000)
    with pytest.raises(VitreousError, match="'tv:vit_b_32' takes square images only, not 32x64"):
        loading.load_model("tv:vit_b_32", image=(32, 64))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("test_vitt", r"There is no model 'test_vitt'\. Did you mean test_vit"),
        ("test_vit.nope", r"no set of weights 'test_vit\.nope'\. Did you mean test_vit\.r160_in1k"),
        ("google/vit-base", r"A Hugging Face model is written 'hf:google/vit-base'"),
        ("sp:test_vit", r"A prefix is one of hf:, tv:, run:"),
        ("tv:resnet17", r"no torchvision model 'tv:resnet17'\. Did you mean tv:resnet18"),
        ("", r"There is no model ''"),
    ],
)
def test_unknown_names_suggest(name: str, sentence: str) -> None:
    with pytest.raises(UnknownName, match=sentence):
        loading.load_model(name)


def test_torchvision() -> None:
    assert shapes(loading.load_model("tv:resnet18")) == shapes(torchvision.models.resnet18())


def test_list_filters_like_timm() -> None:
    assert loading.list_models("*convnext*")[:3] == timm.list_models("*convnext*")[:3]
    assert "tv:convnext_tiny" in loading.list_models("*convnext*")
    assert TAGGED in loading.list_models("test_vit*", pretrained=True)
    assert TAGGED not in loading.list_models("test_vit*")
    assert loading.list_models("no such thing") == []
    assert not [name for name in loading.list_models("tv:*") if "rcnn" in name]


def test_weights_saved_by_timm(tmp_path: Path) -> None:
    saved = timm.create_model("test_vit", num_classes=7)
    timm.models.save_for_hf(saved, tmp_path, safe_serialization=True)
    loaded = loading.load_model(f"local-dir:{tmp_path}", pretrained=True)
    assert all(
        torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True)
    )
    by_name = loading.load_model(f"local-dir:{tmp_path}")  # who names a folder wants its weights
    assert torch.equal(next(by_name.parameters()), next(saved.parameters()))
    (tmp_path / "model.safetensors").unlink()
    random = loading.load_model(f"local-dir:{tmp_path}")
    assert shapes(random) == shapes(saved)
    assert not torch.equal(next(random.parameters()), next(saved.parameters()))
    with pytest.raises(VitreousError, match=r"no config\.json in '/nowhere'"):
        loading.load_model("local-dir:/nowhere")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(VitreousError, match=r"names no architecture; 'local-dir:' takes a folder"):
        loading.load_model(f"local-dir:{tmp_path}")


def test_a_pickle_with_code_in_it_is_not_run_by_timm(tmp_path: Path) -> None:
    timm.models.save_for_hf(timm.create_model("test_vit"), tmp_path, safe_serialization=False)
    mark = tmp_path / "exploded"
    torch.save({"state_dict": Bomb(mark)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(VitreousError):
        loading.load_model(f"local-dir:{tmp_path}", pretrained=True)
    assert not mark.exists()


def test_a_pickle_with_code_in_it_is_not_run_by_torchvision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision asks torch to unpickle anything; here the cache of downloads has been tampered
    with."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = torchvision.models.get_model_weights("resnet18").DEFAULT.url
    file = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    mark = tmp_path / "exploded"
    torch.save(Bomb(mark), file)
    with pytest.raises(
        VitreousError, match=r"'tv:resnet18' are a pickle .* convert them to safetensors"
    ):
        loading.load_model("tv:resnet18", pretrained=True)
    assert not mark.exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    torch.load(file, weights_only=False)
    assert mark.exists(), "The bomb was a dud, so the test above proved nothing."


def test_torchvision_weights_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    saved = torchvision.models.resnet18()
    url = torchvision.models.get_model_weights("resnet18").DEFAULT.url
    file = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    torch.save(saved.state_dict(), file)
    loaded = loading.load_model("tv:resnet18", pretrained=True)
    assert all(
        torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True)
    )


def test_a_failed_download_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        from urllib.error import URLError

        raise URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.download_url_to_file", refuse)
    with pytest.raises(
        VitreousError,
        match=r"^The weights of 'tv:resnet18' could not be downloaded \(no route\)\.$",
    ):
        loading.load_model("tv:resnet18", pretrained=True)


def test_weights_that_do_not_exist() -> None:
    with pytest.raises(VitreousError, match=r"^Cannot load 'vit_tiny_patch16_384': .*$"):
        loading.load_model("vit_tiny_patch16_384", pretrained=True)


def test_paths_without_a_run_say_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "model.pth").touch()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "config.json").write_text(json.dumps({}))
    sentences = {
        "run:nowhere": r"no file or folder 'nowhere'",
        "./nowhere": r"no file or folder './nowhere'",
        "model.safetensors": r"holds weights but not the model they belong to",
        "model.pth": r"name the model and give the file as weights='model\.pth'\.$",
        "run:.": r"no Vitreous run in the folder '\.'\.$",
        "saved": r"no Vitreous run in the folder 'saved'\. .* 'hf:saved' or 'local-dir:saved'",
    }
    for name, sentence in sentences.items():
        with pytest.raises(VitreousError, match=sentence):
            loading.load_model(name)


def test_a_model_wins_over_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_vit").mkdir()
    assert isinstance(loading.load_model("test_vit"), timm.models.VisionTransformer)


def test_errors_of_ours_pass_through_unchanged() -> None:
    with (
        pytest.raises(UnknownName, match="no thing 'x'"),
        hugging_face.safe_loading("anything", hub=False),
    ):
        raise UnknownName("thing", "x", ())
