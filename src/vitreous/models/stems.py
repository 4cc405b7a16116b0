"""Stems that turn an image into a grid of tokens: patches, or a ResNet's feature map (hybrids)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from timm.layers.norm_act import GroupNormAct
from timm.layers.std_conv import StdConv2dSame
from timm.models.resnetv2 import ResNetV2, create_resnetv2_stem
from torch import Tensor, nn

from vitreous.models.registry import require

Stem = Literal["patch", "r", "r26", "r50"]

LAYERS = {"r26": (2, 2, 2, 2), "r50": (3, 4, 6, 3)}


class PatchEmbed(nn.Module):
    """Map every patch linearly to a token, which is a convolution with stride."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, image: Tensor) -> Tensor:
        return self.proj(image).flatten(2).transpose(1, 2)


class HybridEmbed(nn.Module):
    """Tokens are positions (or, after a bare stem, patches) of a BiT ResNet's feature map.

    `patch` is the stride from image to token grid, as in the papers' names. For "r26" and "r50" it
    chooses the network: /32 has all four stages; /16 removes stage 4 and puts its blocks into
    stage 3, r50 becoming (3, 4, 9); /8 and /4 are those two for small images, with one 3x3
    convolution of stride 1 for a stem. "r" is the stem alone (stride 4), cut into patches; the
    published R+Ti/16 is `vit_ti/32, stem="r"`, its 8x8 patches lie on a map of stride 4.
    """

    def __init__(
        self, kind: Stem, channels: int, width: int, patch: int, stem_width: float
    ) -> None:
        super().__init__()
        norm = partial(GroupNormAct, num_groups=max(1, round(32 * min(1.0, stem_width))))
        conv = partial(StdConv2dSame, eps=1e-8)
        side, features = 1, round(64 * stem_width)
        require(
            (kind != "r" or patch % 4 == 0,
             f"the stem 'r' has stride 4 and cannot give patch {patch}"),
            (kind == "r" or patch in (4, 8, 16, 32),
             f"the stem {kind!r} gives patch 4, 8, 16 or 32, not {patch}"),
        )  # fmt: skip
        if kind == "r":
            side = patch // 4
            self.backbone = create_resnetv2_stem(
                channels, features, stem_type="same", preact=False, conv_layer=conv, norm_layer=norm
            )
        else:
            first, second, third, fourth = LAYERS[kind]
            layers: tuple[int, ...] = (first, second, third, fourth)
            if patch in (4, 16):
                layers = (first, second, third + fourth)
            self.backbone = ResNetV2(
                layers, num_classes=0, global_pool="", in_chans=channels, preact=False,
                stem_type="same", width_factor=stem_width, conv_layer=conv, norm_layer=norm,
            )  # fmt: skip
            features = self.backbone.num_features
            if patch in (4, 8):
                stem = self.backbone.stem
                stem.conv = conv(channels, stem.conv.out_channels, kernel_size=3, stride=1)
                stem.pool = nn.Identity()
        self.proj = nn.Conv2d(features, width, side, stride=side)

    def forward(self, image: Tensor) -> Tensor:
        return self.proj(self.backbone(image)).flatten(2).transpose(1, 2)
