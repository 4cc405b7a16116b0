"""Checkpoints of every kind are loaded, whatever they nest and prefix; what does not fit is
refused in one sentence."""

from __future__ import annotations

import argparse
import collections
import logging
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

import vitreous
from models.checkpoints import assert_same, loaded, trained
from vitreous.errors import VitreousError
from vitreous.models.loading import load_model
from vitreous.models.matching import load_weights
from vitreous.weight_pairs import pair_weights

State = dict[str, Tensor]


def prefixed(prefix: str) -> Callable[[State], Any]:
    return lambda state: {prefix + key: value for key, value in state.items()}


class Hyperparameters:
    """What a user's training script may store; no such class exists where it is loaded."""

    def __init__(self) -> None:
        self.rate, self.steps = 0.1, [1, 2]


EXTRAS = {
    "epoch": 3, "args": argparse.Namespace(lr=0.1, out=PurePosixPath("runs")),
    "hyper_parameters": {"config": Hyperparameters(), "when": datetime(2026, 1, 1)},
    "best": np.float64(0.5), "history": np.arange(3),
    "counts": collections.defaultdict(list, a=[1]),
    "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]},
}  # fmt: skip

NESTINGS: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state},
    "model": lambda state: {"model": state, "epoch": 3},
    "model_ema": lambda state: {"model_ema": state},
    "deep": lambda state: {"checkpoint": {"networks": [{"generator": state}]}},
    "module.": prefixed("module."),
    "model.": prefixed("model."),
    "backbone.": prefixed("backbone."),
    "_orig_mod.": prefixed("_orig_mod."),
    "net.": prefixed("net."),
    "my_own_word.": prefixed("my_own_word."),
    "several": lambda state: {"state_dict": prefixed("model.module._orig_mod.encoder.")(state)},
    "timm": lambda state: {"arch": "test_vit", "state_dict": state, **EXTRAS},
    "lightning": lambda state: {
        "pytorch-lightning_version": "2.5.0", "global_step": 5, "loops": {}, "callbacks": {},
        "state_dict": {**prefixed("net.")(state), "loss.weight": torch.ones(3)}, **EXTRAS,
    },
    "in the middle": lambda state: {
        key.replace("blocks.", "blocks._orig_mod.").replace("attn.", "attn.module."): value
        for key, value in state.items()
    },
    "a head beside the backbone": lambda state: {
        "state_dict": {
            (key if key.startswith("head") else f"backbone.{key}"): value
            for key, value in state.items()
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("nesting", NESTINGS)
def test_nesting_and_prefixes(nesting: str, tmp_path: Path) -> None:
    model = trained()
    torch.save(NESTINGS[nesting](model.state_dict()), tmp_path / "last.pth")
    other, found = loaded("test_vit", tmp_path / "last.pth")
    assert_same(other, model)
    assert found.matched == found.total == len(model.state_dict())
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert not found.missing
    assert not found.random_head


def test_averaged_weights_come_first_and_the_key_can_be_chosen(tmp_path: Path) -> None:
    plain, averaged = trained(seed=1), trained(seed=2)
    both = {"state_dict": plain.state_dict(), "state_dict_ema": averaged.state_dict()}
    torch.save(both, tmp_path / "last.pth")
    model, found = loaded("test_vit", tmp_path / "last.pth")
    assert_same(model, averaged)
    assert (found.prefix, found.others) == ("state_dict_ema.", ("state_dict",))
    assert "under 'state_dict_ema' (it also holds state_dict)" in found.describe()
    assert_same(loaded("test_vit", f"{tmp_path}/last.pth@state_dict")[0], plain)
    with pytest.raises(VitreousError, match="nothing under 'ema'; it has state_dict, state_dict_e"):
        load_model("test_vit", weights=f"{tmp_path}/last.pth@ema")
    dino = {**prefixed("student.backbone.")(plain.state_dict())}
    dino |= prefixed("teacher.backbone.")(averaged.state_dict())
    torch.save(dino, tmp_path / "dino.pth")
    assert_same(loaded("test_vit", tmp_path / "dino.pth")[0], averaged)
    assert_same(loaded("test_vit", f"{tmp_path}/dino.pth@student")[0], plain)


def test_a_backbone_inside_your_own_module(tmp_path: Path) -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = trained(seed=3, num_classes=0)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            out: Tensor = self.backbone(images) * self.scale
            return out

    backbone = trained(seed=4, num_classes=0)
    torch.save(backbone.state_dict(), tmp_path / "backbone.pth")
    model = Mine()
    found = load_weights(model, tmp_path / "backbone.pth")
    assert_same(model.backbone, backbone)
    assert found.missing == ("scale",)


def test_position_embeddings_are_timms_own(tmp_path: Path) -> None:
    """At another image size, the answer is that of timm's loading of the same file."""
    model = trained("vit_tiny_patch16_224", img_size=64, depth=2)
    torch.save(model.state_dict(), tmp_path / "small.pth")
    name = "vit_tiny_patch16_224"
    theirs = timm.create_model(name, img_size=(96, 128), depth=2)
    filtered = timm.models.vision_transformer.checkpoint_filter_fn(model.state_dict(), theirs)
    theirs.load_state_dict(filtered)
    ours = timm.create_model(name, img_size=(96, 128), depth=2)
    found = load_weights(ours, tmp_path / "small.pth")
    assert_same(ours, theirs)
    assert found.resized == ("pos_embed",)


def test_relative_positions_are_resized_by_timm(tmp_path: Path) -> None:
    name = "swin_tiny_patch4_window7_224"
    how: dict[str, Any] = {"depths": (1, 1), "num_heads": (2, 4), "embed_dim": 16}
    model = trained(name, img_size=64, window_size=4, **how)
    torch.save(model.state_dict(), tmp_path / "swin.pth")
    theirs, ours = (timm.create_model(name, img_size=128, window_size=8, **how) for _ in range(2))
    with warnings.catch_warnings(action="ignore"):
        filtered = timm.models.swin_transformer.checkpoint_filter_fn(model.state_dict(), theirs)
    theirs.load_state_dict(filtered, strict=False)
    assert load_weights(ours, tmp_path / "swin.pth").missing == ()
    assert_same(ours, theirs)


def test_as_many_classes_as_the_checkpoint_has(tmp_path: Path) -> None:
    for name, other in (("test_vit", "test_vit"), ("tv:resnet18", "resnet18")):
        model = trained(other, num_classes=7) if other == "test_vit" else None
        model = model or torchvision.models.resnet18(num_classes=7)
        torch.save(model.state_dict(), tmp_path / "seven.pth")
        assert loaded(name, tmp_path / "seven.pth")[0](torch.zeros(1, 3, 160, 160)).shape == (1, 7)
    ours = vitreous.build("vit_nano", classes=4)
    torch.save(ours.state_dict(), tmp_path / "ours.pth")
    assert_same(loaded("vit_nano", tmp_path / "ours.pth")[0], ours)


def test_a_classifier_on_a_model_that_has_none_by_default(tmp_path: Path) -> None:
    """133 of timm's models are built without one, and fine-tuned with one."""
    name = "eva02_tiny_patch14_224"
    assert timm.create_model(name).num_classes == 0
    tuned = timm.create_model(name, num_classes=5)
    torch.save({"state_dict": prefixed("model.")(tuned.state_dict())}, tmp_path / "five.ckpt")
    assert_same(load_model(name, weights=tmp_path / "five.ckpt"), tuned)
    torch.save(timm.create_model(name).state_dict(), tmp_path / "none.pth")
    assert load_model(name, weights=tmp_path / "none.pth").num_classes == 0
    backbone = timm.create_model(name)  # a module that is given is not built again
    assert load_weights(backbone, tmp_path / "five.ckpt").unused == ("head.weight", "head.bias")


def test_a_file_of_your_own_and_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "beside_my_model.py").write_text("WIDTH = 8")
    (tmp_path / "my_model.py").write_text(
        "from torch import nn\nfrom beside_my_model import WIDTH\n\n"
        "def make(num_classes=5):\n"
        "    return nn.Sequential(nn.Conv2d(3, WIDTH, 4, 4), nn.Flatten(), "
        "nn.Linear(WIDTH * 64, num_classes))\n\n"
        "def fixed():\n    return make()\n"
    )
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Flatten(), nn.Linear(512, 9))
    torch.save(mine.state_dict(), tmp_path / "nine.pth")
    specimen = vitreous.open(
        f"{tmp_path}/my_model.py:make", weights=tmp_path / "nine.pth", image=32
    )
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(specimen(images), mine(images))
    with pytest.raises(
        VitreousError, match=r"are for 9 classes, and .*:fixed has 5 \('2.weight'\); make the model"
    ):
        vitreous.open(f"{tmp_path}/my_model.py:fixed", weights=tmp_path / "nine.pth", image=32)


def test_a_module_is_copied(tmp_path: Path) -> None:
    mine, other = trained(seed=1), trained(seed=2)
    torch.save(other.state_dict(), tmp_path / "other.pth")
    before = {key: value.clone() for key, value in mine.state_dict().items()}
    specimen = vitreous.open(mine, weights=tmp_path / "other.pth")
    assert all(torch.equal(before[key], value) for key, value in mine.state_dict().items())
    images = torch.randn(1, 3, 160, 160)
    torch.testing.assert_close(specimen(images), other(images))
    assert specimen.checkpoint is not None
    assert specimen.weights == "trained"
    edited = specimen.without("blocks.0.attn")
    assert edited.checkpoint == specimen.checkpoint


def test_missing_tensors_are_reported_and_predictions_not_compared_with_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = trained().state_dict()
    backbone = {key: value for key, value in state.items() if not key.startswith("head")}
    torch.save({**backbone, "decoder.weight": torch.ones(2)}, tmp_path / "backbone.pth")
    with caplog.at_level(logging.WARNING, "vitreous"):
        _, found = loaded("test_vit", tmp_path / "backbone.pth")
    assert found.missing == ("head.weight", "head.bias")
    assert found.unused == ("decoder.weight",)
    total = len(state)
    assert f"{total - 2} of {total} tensors" in caplog.text
    assert "not in the file, so random: head.weight, head.bias; not used: decoder" in caplog.text
    how: dict[str, Any] = {"weights": tmp_path / "backbone.pth", "limit": 4}
    result = vitreous.inspect("test_vit", "world:shapes", ["accuracy", "variance"], **how)
    assert "stays random" in result.left_out["accuracy"]["test_vit"]
    about = result["variance"].about["models"]["test_vit"]["checkpoint"]
    assert about["missing"] == ["head.weight", "head.bias"]


def without(state: State, share: float) -> State:
    return dict(list(state.items())[: int(len(state) * (1 - share))])


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "wrong width": (
        lambda: timm.create_model("vit_tiny_patch16_224", embed_dim=48, depth=2).state_dict(),
        r"of another architecture than test_vit: '\S+' is \(.*\) in the file and \(.*\) in the",
    ),
    "another family": (
        lambda: timm.create_model("test_resnet").state_dict(),
        r"None of the \d+ tensors of test_vit are in '.*', which is less than 90%: it lacks "
        r"cls_token, pos_embed and \d+ more",
    ),
    "half the keys": (
        lambda: without(trained().state_dict(), 0.5),
        r"(Only \d+|None) of the \d+ tensors of test_vit .* less than 90%: it lacks",
    ),
    "renamed": (
        lambda: {key.replace("blocks", "block_"): v for key, v in trained().state_dict().items()},
        r"it lacks blocks\.\S+, blocks.* the nearest to it in the file are block_\.",
    ),
    "deeper": (
        lambda: trained(depth=9).state_dict(),
        r"of a deeper model than test_vit, which has no blocks\.\d+\.",
    ),
    "no tensors": (lambda: {"epoch": 3}, r"holds no tensors"),
    "other channels": (
        lambda: trained(in_chans=1).state_dict(),
        r"another architecture than test_vit: 'patch_embed\.proj\.weight' is",
    ),
    "other patches": (
        lambda: trained(patch_size=8).state_dict(),
        r"another architecture than test_vit: 'patch_embed\.proj\.weight' is \(64, 3, 8, 8\) in "
        r"the file and \(64, 3, 16, 16\) in the model",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_checkpoints_that_do_not_fit_are_an_error_of_one_sentence(
    case: str, tmp_path: Path
) -> None:
    make, sentence = WRONG[case]
    torch.save(make(), tmp_path / "wrong.pth")
    with pytest.raises(VitreousError, match=sentence) as caught:
        load_model("test_vit", weights=tmp_path / "wrong.pth")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("names", "weights", "expected"),
    [
        (["vit"], (), [("vit", None)]),
        (["vit"], "a.pth", [("vit", "a.pth")]),
        (["vit", "cnn"], ["a.pth", "b.pth"], [("vit", "a.pth"), ("cnn", "b.pth")]),
        (["vit"], ["a.pth", "b.pth"], [("vit (a)", "a.pth"), ("vit (b)", "b.pth")]),
        (["vit"], ["a/x.pth", "b/x.pth"], [("vit (a/x)", "a/x.pth"), ("vit (b/x)", "b/x.pth")]),
        (["vit", "vit"], ["a.pth", "b.pth"], [("vit (a)", "a.pth"), ("vit (b)", "b.pth")]),
        (["vit", "cnn"], ["cnn=b.pth"], [("vit", None), ("cnn", "b.pth")]),
        (["vit", "cnn"], {"vit": "b.pth"}, [("vit", "b.pth"), ("cnn", None)]),
        (["vit"], ["vit=a.pth", "vit=b.pth"], [("vit (a)", "a.pth"), ("vit (b)", "b.pth")]),
        (["vit"], ["a=1.pth"], [("vit", "a=1.pth")]),
        (["vit"], ["a.pth", "a.pth"], [("vit (a.pth)", "a.pth")] * 2),
    ],
)
def test_which_checkpoint_belongs_to_which_model(
    names: list[str], weights: Any, expected: list[tuple[str, str | None]]
) -> None:
    assert [(each.label, each.weights) for each in pair_weights(names, weights)] == expected


def test_checkpoints_that_belong_to_no_model() -> None:
    with pytest.raises(VitreousError, match="There is 1 checkpoint for 2 models; give one for"):
        pair_weights(["vit", "cnn"], "a.pth")
    with pytest.raises(VitreousError, match=r"no model to load weights into 'vat'\. Did you"):
        pair_weights(["vit", "cnn"], {"vat": "a.pth"})


def test_two_checkpoints_side_by_side(tmp_path: Path) -> None:
    for seed in (1, 2):
        torch.save(trained(seed=seed, num_classes=10).state_dict(), tmp_path / f"{seed}.pth")
    files = [tmp_path / "1.pth", tmp_path / "2.pth"]
    found = vitreous.inspect("test_vit", "world:shapes", ["variance"], limit=4, weights=files)
    models = found["variance"].about["models"]
    assert list(models) == ["test_vit (1)", "test_vit (2)"]
    assert models["test_vit (1)"]["fingerprint"] != models["test_vit (2)"]["fingerprint"]
