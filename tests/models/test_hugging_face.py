"""Hugging Face models from folders made here, and a hub that is not there."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch

import vitreous
from vitreous import hub
from vitreous.errors import VitreousError
from vitreous.models import hugging_face, loading
from vitreous.models.checkpoint_files import read_checkpoint

transformers = pytest.importorskip("transformers")

TAGGED = "test_vit.r160_in1k"
TINY = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
IMAGES = {**TINY, "image_size": 32, "patch_size": 8}
TEXT = {**TINY, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
BOTH = {"vision_config": IMAGES, "text_config": TEXT}


@pytest.fixture
def unasked() -> Iterator[None]:
    """As if nobody had asked for the hub yet."""
    hub.reachable.cache_clear()
    yield
    hub.reachable.cache_clear()


def save(folder: Path, model: str, config: str, **settings: object) -> torch.nn.Module:
    made = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    made.save_pretrained(folder)
    module: torch.nn.Module = made
    return module


@pytest.mark.parametrize(
    ("model", "config", "settings", "expected"),
    [
        ("ViTForImageClassification", "ViTConfig", IMAGES, "ViTForImageClassification"),
        (
            "DeiTForImageClassificationWithTeacher",
            "DeiTConfig",
            IMAGES,
            "DeiTForImageClassificationWithTeacher",
        ),
        ("Dinov2Model", "Dinov2Config", IMAGES, "Dinov2Model"),
        ("CLIPForImageClassification", "CLIPConfig", BOTH, "CLIPForImageClassification"),
    ],
)
def test_the_architecture_decides_the_head(
    tmp_path: Path, model: str, config: str, settings: dict[str, object], expected: str
) -> None:
    saved = save(tmp_path, model, config, **settings)
    loaded = loading.load_model(f"hf:{tmp_path}", pretrained=True).eval()
    images = torch.randn(2, 3, 32, 32)
    assert type(loaded).__name__ == expected
    assert torch.equal(loaded(images)[0], saved(images)[0])
    random = loading.load_model(f"hf:{tmp_path}/config.json")
    assert type(random) is type(loaded)
    assert not torch.equal(random.eval()(images)[0], saved(images)[0])


@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_of_images_and_text_the_image_tower(tmp_path: Path, family: str) -> None:
    both = save(tmp_path, f"{family}Model", f"{family}Config", **BOTH)
    tower = loading.load_model(f"hf:{tmp_path}", pretrained=True).eval()
    images = torch.randn(2, 3, 32, 32)
    assert type(tower).__name__ == f"{family}VisionModel"
    assert torch.equal(
        tower(images).pooler_output, both.get_submodule("vision_model")(images).pooler_output
    )


def test_weights_are_float32_whatever_they_are_stored_in(tmp_path: Path) -> None:
    made = transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGES)).half()
    made.save_pretrained(tmp_path)
    for pretrained in (True, False):
        assert {
            p.dtype
            for p in loading.load_model(f"hf:{tmp_path}", pretrained=pretrained).parameters()
        } == {torch.float32}


def test_another_image_size(tmp_path: Path) -> None:
    save(tmp_path, "ViTForImageClassification", "ViTConfig", **IMAGES)
    assert loading.load_model(f"hf:{tmp_path}", image=64)(torch.randn(1, 3, 64, 64))[0].shape == (
        1,
        2,
    )
    assert loading.load_model(f"hf:{tmp_path}", image=(32, 64))(torch.randn(1, 3, 32, 64))[
        0
    ].shape == (
        1,
        2,
    )
    saved = read_checkpoint(tmp_path)["vit.embeddings.position_embeddings"]
    wide = loading.load_model(f"hf:{tmp_path}", image=(32, 64))
    expected = timm.layers.resample_abs_pos_embed(saved, [4, 8])
    assert torch.equal(wide.get_parameter("vit.embeddings.position_embeddings"), expected)


def test_missing_weights_would_stay_random_so_they_raise(tmp_path: Path) -> None:
    save(tmp_path, "ViTForMaskedImageModeling", "ViTConfig", **IMAGES)
    with pytest.raises(
        VitreousError, match=r"lack 2 weights of ViTModel \(pooler\.dense\.bias, …\)"
    ):
        loading.load_model(f"hf:{tmp_path}", pretrained=True)


def test_a_text_model_is_refused(tmp_path: Path) -> None:
    transformers.BertConfig(**TEXT).save_pretrained(tmp_path)
    with pytest.raises(
        VitreousError, match="is a BertModel, which takes 'input_ids' and not images"
    ):
        loading.load_model(f"hf:{tmp_path}")


def test_pickled_weights_are_read_as_weights_only(tmp_path: Path) -> None:
    made = transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGES))
    made.config.architectures = ["ViTForImageClassification"]
    made.config.save_pretrained(tmp_path)
    torch.save(made.state_dict(), tmp_path / "pytorch_model.bin")
    for pretrained in (True, False):
        loaded = loading.load_model(f"hf:{tmp_path}", pretrained=pretrained)
        for key, value in made.state_dict().items():
            assert torch.equal(loaded.state_dict()[key], value)


def test_code_from_the_hub_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}})
    )
    (tmp_path / "mine.py").write_text("raise SystemExit('this ran')")
    with pytest.raises(VitreousError):
        loading.load_model(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ('{"model_type": "vot"}', r"no Hugging Face model_type 'vot'\. Did you mean vit"),
        ("{}", "no Hugging Face model_type ''"),
        ("{", r"^Cannot load 'hf:.*': Expecting"),
    ],
)
def test_bad_configurations(tmp_path: Path, written: str, sentence: str) -> None:
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(VitreousError, match=sentence):
        loading.load_model(f"hf:{tmp_path}")


@pytest.mark.parametrize("where", ["", "./nowhere", "~/nowhere", "/nowhere/config.json"])
def test_paths_that_are_not_there(where: str) -> None:
    with pytest.raises(
        VitreousError, match=r"^'hf:' takes a model id, a folder with a config\.json"
    ):
        loading.load_model(f"hf:{where}")


def test_without_transformers_the_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(VitreousError, match=r"pip install 'vitreous\[hf\]'"):
        loading.load_model("hf:google/vit-base-patch16-224")


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("name", ["hf:nobody/nothing", "hf-hub:nobody/nothing", TAGGED])
def test_offline_is_quick_and_says_so_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    start = time.monotonic()
    for _ in range(2):
        with pytest.raises(
            VitreousError, match="not in the local cache and the model hub cannot be reached"
        ):
            loading.load_model(name, pretrained=name == TAGGED)
    assert time.monotonic() - start < 5
    assert [r.message for r in caplog.records if r.name == "vitreous"] == [
        "Offline, because HF_HUB_OFFLINE is set: only what is in the local cache can be loaded."
    ]


def test_whether_a_server_is_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert hub.is_listening(url)
    assert not hub.is_listening(url)


def test_a_name_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        time.sleep(1)
        raise OSError

    monkeypatch.setattr(hub, "PATIENCE", 0.1)
    monkeypatch.setattr(socket, "create_connection", hang)
    start = time.monotonic()
    assert not hub.is_listening("https://nowhere.invalid")
    assert time.monotonic() - start < 0.9


@pytest.mark.usefixtures("unasked")
def test_the_offline_switch_is_restored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hub that is down, on a machine that was not told to be offline."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "is_listening", lambda url: False)
    monkeypatch.setattr(hub, "getproxies", dict)
    with caplog.at_level(logging.WARNING), pytest.raises(VitreousError, match="cannot be reached"):
        loading.load_model("hf:nobody/nothing")
    assert "The hub cannot be reached" in caplog.text
    assert constants.HF_HUB_OFFLINE is False


def test_the_local_cache_serves_without_a_hub(tmp_path: Path) -> None:
    """In a process of its own, because the library reads where its cache is when it is imported."""
    save(tmp_path / "made", "ViTForImageClassification", "ViTConfig", **IMAGES)
    cached = tmp_path / "home" / "hub" / "models--me--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    shutil.copytree(tmp_path / "made", cached / "snapshots" / "abc")
    script = (
        "from vitreous.models.loading import load_model; "
        "print(type(load_model('hf:me/tiny', pretrained=True)).__name__)"
    )
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    environment["PYTHONPATH"] = str(Path(hugging_face.__file__).parents[2])
    del environment["HF_HUB_OFFLINE"]
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "ViTForImageClassification"
    assert (
        done.stderr.count(
            "The hub cannot be reached: only what is in the local cache can be loaded."
        )
        == 1
    )


def test_channels_are_normalised_as_the_image_processor_says(tmp_path: Path) -> None:
    """CLIP's and ViT's channels are not ImageNet's; images normalised in another way would make
    every result wrong."""
    save(tmp_path, "ViTForImageClassification", "ViTConfig", **IMAGES)
    said = vitreous.open(f"hf:{tmp_path}").trained
    assert said == {}
    transformers.ViTImageProcessor(image_mean=[0.5] * 3, image_std=[0.25] * 3).save_pretrained(
        tmp_path
    )
    specimen = vitreous.open(f"hf:{tmp_path}", pretrained=True)
    found = {key: value for key, value in specimen.trained.items() if key != "processor"}
    assert found == {
        "mean": (0.5,) * 3, "std": (0.25,) * 3, "interpolation": "bilinear", "crop_pct": 1.0,
        "crop_mode": "squash", "crop_size": (224, 224), "source": "Hugging Face",
    }  # fmt: skip
    assert specimen.without("mlp").trained == specimen.trained
