"""Models from timm have the papers' sizes, and another stem for small images."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import nn

import vitreous.models
from vitreous.models import BadModel

build: Any = vitreous.models.build  # what a model is made of has no static type

SAME = {
    "pit_ti": "pit_ti_224",
    "pit_s": "pit_s_224",
    "pit_b": "pit_b_224",
    "swin_ti": "swin_tiny_patch4_window7_224",
    "swin_b": "swin_base_patch4_window7_224",
    "twins_s": "twins_svt_small",
    "twins_b": "twins_svt_base",
    "mixer_s/16": "mixer_s16_224",
    "mixer_b/16": "mixer_b16_224",
    "resnet_18": "resnet18",
    "resnet_50": "resnet50",
    "resnet_152": "resnet152",
    "resnext_50": "resnext50_32x4d",
    "resnext_101": "resnext101_32x8d",
    "poolformer_s12": "poolformer_s12",
    "poolformer_m36": "poolformer_m36",
}


def shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", SAME)
def test_has_the_state_of_timms_model(name: str) -> None:
    """Same names and shapes, so that published weights load."""
    with torch.device("meta"):
        assert shapes(build(name)) == shapes(timm.create_model(SAME[name]))


def test_bit_before_and_after_activation() -> None:
    """A1.11: the weights of the BiT paper fit `preact=True`; the ViT paper's ResNet is the one
    inside its hybrids."""
    with torch.device("meta"):
        assert shapes(build("bit_50x1", preact=True)) == shapes(
            timm.create_model("resnetv2_50x1_bit")
        )
        ours = shapes(build("bit_50x1"))
        hybrid = shapes(timm.create_model("vit_large_r50_s32_224").patch_embed.backbone)
    assert {k: v for k, v in ours.items() if not k.startswith("head")} == hybrid
    small = build("bit_50x1", image=32, classes=10, depths=(1, 1, 1, 1))
    assert not any(block.norm3.weight.any() for stage in small.stages for block in stage.blocks)


@pytest.mark.parametrize(
    ("name", "theirs", "options"),
    [
        ("swin_ti", "swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1)}),
        ("pit_ti", "pit_ti_224", {}),
        ("resnet_18", "resnet18", {}),
    ],
)
def test_equals_timm(name: str, theirs: str, options: dict[str, object]) -> None:
    torch.manual_seed(0)
    sized = {} if name.startswith("resnet") else {"img_size": 96 if name == "pit_ti" else 224}
    reference = timm.create_model(theirs, num_classes=5, **sized, **options).eval()
    image = sized.get("img_size", 96)
    ours = build(name, image=image, classes=5, **options).eval()
    ours.load_state_dict(reference.state_dict())
    images = torch.randn(1, 3, image, image)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), reference(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("resnet_18", (4, 4)),
        ("resnext_50", (4, 4)),
        ("bit_50x1", (4, 4)),
        ("poolformer_s12", (4, 4)),
    ],
)
def test_small_images_keep_their_resolution(name: str, grid: tuple[int, int]) -> None:
    """A1.08: three halvings of 32 pixels, no more; the ImageNet stem would leave one position."""
    model = build(name, image=32, classes=10, depths=(1, 1, 1, 1)).eval()
    large = build(name, image=32, classes=10, depths=(1, 1, 1, 1), stem="imagenet").eval()
    with torch.no_grad():
        assert model.forward_features(torch.randn(1, 3, 32, 32)).shape[-2:] == grid
        assert large.forward_features(torch.randn(1, 3, 32, 32)).shape[-2:] == (1, 1)


def test_small_transformers_have_the_sizes_of_the_cifar_experiments() -> None:
    """D1: PiT patch 2 stride 1, hence 31 x 31 tokens; Swin patch 1 window 4, or patch 2 by name;
    Mixer by name."""
    pit = build("pit_ti", image=32, classes=10, depths=(1, 1, 1))
    assert pit.patch_embed.conv.kernel_size == (2, 2)
    assert pit.patch_embed.conv.stride == (1, 1)
    assert pit.pos_embed.shape[-2:] == (31, 31)
    swin = build("swin_ti", image=32, classes=10, depths=(1, 1, 1, 1))
    assert swin.patch_embed.grid_size == (32, 32)
    assert swin.layers[0].blocks[0].window_size == (4, 4)
    assert build("swin_ti/2", image=32, classes=10, depths=(1, 1, 1, 1)).patch_embed.grid_size == (
        16,
        16,
    )
    mixer = build("mixer_ti/4", image=32, classes=10)
    assert len(mixer.blocks) == 8
    assert mixer.num_features == 256
    assert mixer.blocks[0].mlp_tokens.fc1.out_features == 128
    assert mixer.blocks[0].mlp_channels.fc1.out_features == 1024


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "swin_ti",
            {"image": 36, "patch": 1},
            "the grid 36x36 of patch 1 cannot be halved three times",
        ),
        ("twins_s", {"image": 225}, "image 225x225 is not divisible by patch 4"),
        (
            "resnet_18",
            {"depths": (1, 1)},
            r"depths \(1, 1\) is not one number for each of 4 stages",
        ),
        ("resnet_18", {"depths": (1, 0, 1, 1)}, r"depths \(1, 0, 1, 1\) is not positive"),
        ("pit_ti", {"image": 8, "patch": 16}, "image 8 is smaller than patch 16"),
        ("mixer_ti/4", {"image": 30}, "image 30x30 is not divisible by patch 4"),
    ],
)
def test_refusals(name: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadModel, match=sentence):
        build(name, **options)
