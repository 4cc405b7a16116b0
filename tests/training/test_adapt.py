"""Models for another task: what changes changes, and the rest is as it was."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from vitreous.errors import VitreousError
from vitreous.models import build, convit, vit
from vitreous.training.adapt import adapt

OURS: dict[str, dict[str, Any]] = {
    "vit_ti/4": {"depth": 2, "head": "tanh", "init": "timm"},
    "convit_ti/4": {"depth": 3, "gpsa": 2},
    "resnet_18": {"depths": (1, 1, 1, 1)},
    "alternet_18": {},
    "swin_ti": {"depths": (1, 1, 1, 1)},
    "cnn_s": {},
}


def images(side: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(side))


@pytest.mark.parametrize("name", OURS)
def test_a_head_of_zeros_at_another_resolution(name: str) -> None:
    model = build(name, image=32, classes=10, **OURS[name]).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    larger = 64 if name == "swin_ti" else 48
    other: Any = adapt(model, classes=7, image=larger, head="zero")
    assert other.training
    assert torch.equal(other.eval()(images(larger)), torch.zeros(2, 7))
    assert build(**other.config).load_state_dict(other.state_dict())
    assert build(**other.config)(images(larger)).shape == (2, 7)
    assert model.num_classes == 10
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.requires_grad for p in other.get_classifier().parameters())


@pytest.mark.parametrize(
    ("name", "resize"), [("vit_ti/4", vit.resize_vit), ("convit_ti/4", convit.resize_convit)]
)
def test_positions_are_interpolated(name: str, resize: Any) -> None:
    model = build(name, image=32, classes=10, **OURS[name]).eval()
    other = adapt(model, classes=10, image=48, head="keep")
    assert torch.equal(other(images(48)), resize(model, 48)(images(48)))


@pytest.mark.parametrize("name", ["resnet_18", "swin_ti"])
def test_the_same_size_and_head_are_the_same_model(name: str) -> None:
    model = build(name, image=32, classes=10, **OURS[name]).eval()
    other = adapt(model, classes=10, image=32, head="keep")
    assert other is not model
    assert torch.equal(other(images(32)), model(images(32)))


def test_a_small_stem_stays_small() -> None:
    """Built anew at 96 pixels a ResNet would get another stem, which has no weights here."""
    model = build("resnet_18", image=32, classes=10, depths=(1, 1, 1, 1)).eval()
    other = adapt(model, classes=10, image=96, head="keep")
    assert torch.equal(other(images(96, 1)), model(images(96, 1)))


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "deit_tiny_distilled_patch16_224"])
def test_timms_models(name: str) -> None:
    model = timm.create_model(name)
    other: Any = adapt(model, classes=5, image=96, head="zero")
    assert torch.equal(other.eval()(images(96)), torch.zeros(2, 5))
    assert model.num_classes == 1000


def test_what_cannot_be_adapted() -> None:
    with pytest.raises(
        VitreousError,
        match="The model answers with 10 classes and the data has 4: take head='zero'",
    ):
        adapt(build("cnn_s", image=32, classes=10), classes=4, image=32, head="keep")
    with pytest.raises(
        VitreousError, match=r"MlpMixer cannot take images of 48x64, its weights are tied"
    ):
        adapt(build("mixer_ti/4", image=32, classes=10), classes=10, image=(48, 64), head="keep")
    other = torchvision.models.squeezenet1_1(num_classes=6)
    with pytest.raises(VitreousError, match="SqueezeNet has no reset_classifier"):
        adapt(other, classes=4, image=64, head="zero")
    assert isinstance(adapt(other, classes=6, image=64, head="keep"), nn.Module)
    with pytest.raises(VitreousError, match="tied to its grid"):
        adapt(
            build("vit_ti/4", image=32, depth=1, pos="relative"), classes=10, image=48, head="zero"
        )


def test_a_new_last_layer_leaves_the_hidden_one() -> None:
    """Where "zero" takes away the whole head (A3.04)."""
    model = build("vit_nano", image=16, classes=3, depth=1, width=8, heads=2, head="tanh")
    torch.manual_seed(0)
    last, zero = (adapt(model, classes=5, image=16, head=head) for head in ("last", "zero"))
    hidden = model.state_dict()["pre_logits.0.weight"]
    assert torch.equal(last.state_dict()["pre_logits.0.weight"], hidden)
    assert "pre_logits.0.weight" not in zero.state_dict()
    drawn = last.state_dict()["head.weight"]
    assert drawn.shape == (5, 8)
    assert 0.01 < float(drawn.std()) < 0.04
    assert not zero.state_dict()["head.weight"].any()
    assert model.num_classes == 3
    assert isinstance(last, vit.ViT)
    again = build(**last.config)
    again.load_state_dict(last.state_dict())
    with pytest.raises(VitreousError, match="no linear layer"):
        adapt(
            build("vit_nano", image=16, classes=0, depth=1, width=8, heads=2),
            classes=5,
            image=16,
            head="last",
        )
