"""Ours equals timm's with the same weights, in both directions, up to the rounding of float32."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous.models
from vitreous.models import BadModel
from vitreous.models.vit import vit_state_from_timm, vit_state_to_timm

build: Any = vitreous.models.build  # what a model is made of has no static type

PAIRS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "ti": ("vit_ti/16", "vit_tiny_patch16_224", {}, {}),
    "s": ("vit_s/32", "vit_small_patch32_224", {}, {}),
    "gap": ("vit_ti/16", "vit_tiny_patch16_224", {"pool": "gap", "final_norm": "pooled"},
            {"global_pool": "avg", "class_token": False}),
    "gap beside a class token": ("vit_ti/16", "vit_tiny_patch16_224", {"pool": "gap",
        "class_token": True},
                                 {"global_pool": "avg", "fc_norm": False}),
    "without qkv bias": ("vit_ti/16", "vit_tiny_patch16_224", {"qkv_bias": False},
        {"qkv_bias": False}),
    "deit": ("deit_ti/16", "deit_tiny_patch16_224", {}, {}),
    "deit distilled": ("deit_ti/16", "deit_tiny_distilled_patch16_224", {"distilled": True}, {}),
    "hybrid stem": ("vit_ti/32", "vit_tiny_r_s16_p8_224", {"stem": "r"}, {}),
    "hybrid r26": ("vit_s/32", "vit_small_r26_s32_224", {"stem": "r26"}, {}),
}  # fmt: skip


def shaken(model: Any) -> Any:
    """No parameter at zero or one, so that none can be forgotten without being noticed."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("case", PAIRS)
def test_equals_timm(case: str) -> None:
    name, theirs_name, options, theirs_options = PAIRS[case]
    torch.manual_seed(0)
    theirs = shaken(timm.create_model(theirs_name, img_size=64, num_classes=7, **theirs_options))
    ours = build(name, image=64, classes=7, **options).eval()
    images = torch.randn(2, 3, 64, 64)
    ours.load_state_dict(vit_state_from_timm(theirs.state_dict()))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            ours.forward_features(images), theirs.forward_features(images), rtol=1e-5, atol=1e-4
        )
        shaken(ours)
        theirs.load_state_dict(vit_state_to_timm(ours.state_dict()))
        torch.testing.assert_close(theirs(images), ours(images), rtol=0, atol=1e-5)


def test_hybrid_r50_is_the_papers_three_stage_network() -> None:
    """Stage 4's blocks in stage 3, (3, 4, 9). Narrow transformer, full ResNet: the transformer part
    is tested above."""
    torch.manual_seed(0)
    slim = {"depth": 1, "num_heads": 3, "embed_dim": 48}
    theirs = shaken(timm.create_model("vit_base_r50_s16_224", img_size=32, num_classes=7, **slim))
    ours = build("vit_b/16", stem="r50", image=32, classes=7, depth=1, heads=3, width=48).eval()
    ours.load_state_dict(vit_state_from_timm(theirs.state_dict()))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-5)
    assert [len(stage.blocks) for stage in ours.patch_embed.backbone.stages] == [3, 4, 9]


def test_distilled_training_gives_both_heads() -> None:
    model = build("deit_ti/16", image=32, classes=7, depth=1, distilled=True)
    model.set_distilled_training(True)
    own, taught = model(torch.randn(2, 3, 32, 32))
    assert own.shape == taught.shape == (2, 7)
    assert not torch.equal(own, taught)


@pytest.mark.parametrize(("init", "style"), [("timm", ""), ("jax", "jax")])
def test_initialisation_has_timms_spread(init: str, style: str) -> None:
    """Standard deviation of every matrix against timm's own initialisation of the same network."""
    torch.manual_seed(0)
    ours = build("vit_s/8", image=32, classes=100, init=init, depth=2).state_dict()
    theirs = VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=384,
        num_heads=6,
        depth=2,
        num_classes=100,
        weight_init=style,
    ).state_dict()
    for name, value in vit_state_from_timm(theirs).items():
        if (
            value.dim() >= 2
            and "cls" not in name
            and not (init == "jax" and name.endswith("qkv.weight"))
        ):
            torch.testing.assert_close(
                ours[name].std(), value.std(), rtol=0.05, atol=1e-6, msg=name
            )


def test_jax_initialises_queries_keys_and_values_apart() -> None:
    """Three 384 x 384 matrices with Xavier bound sqrt(6 / 768), not one of 1152 x 384 (bound sqrt(6
    / 1536))."""
    weight = build("vit_s/8", image=32, classes=10, depth=1).blocks[0].attn.qkv.weight
    assert weight.abs().max().item() == pytest.approx((6 / 768) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    "options", [{"pos": "2d"}, {"inject": "every"}, {"mixer": "mean"}, {"pos": "relative"}]
)
def test_what_timm_lacks_is_refused(options: dict[str, str]) -> None:
    model = build("vit_ti/16", image=32, classes=3, depth=2, **options)
    with pytest.raises(BadModel, match="no place for"):
        vit_state_to_timm(model.state_dict())
