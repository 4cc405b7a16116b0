"""Architectures taken from timm as they are, at the papers' sizes: for ImageNet, and for small images (section D1).

Below 96 pixels a network built for 224 would throw the image away in its stem, so the stem becomes that of the CIFAR
experiments: a 3x3 convolution with stride 1 and no pooling for the convolutional networks, patches of one or two pixels
for the transformers. `stem="imagenet"` or "small", `patch` and `window` choose otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

from timm.layers.norm import GroupNorm1
from timm.layers.std_conv import StdConv2d
from timm.models import metaformer, mlp_mixer, pit, resnet, resnetv2, swin_transformer, twins
from torch import nn

from vitreous.models.registry import ConfiguredModel, Image, family, patch_grid, require

StemChoice = Literal["auto", "imagenet", "small"]
Depths = tuple[int, ...] | None
SMALL = 96


class PiT(ConfiguredModel, pit.PoolingVisionTransformer):  # type: ignore[misc]
    """A1.04."""


class Swin(ConfiguredModel, swin_transformer.SwinTransformer):  # type: ignore[misc]
    """A1.05."""


class Twins(ConfiguredModel, twins.Twins):  # type: ignore[misc]
    """A1.06."""


class MlpMixer(ConfiguredModel, mlp_mixer.MlpMixer):  # type: ignore[misc]
    """A1.07."""


class ResNet(ConfiguredModel, resnet.ResNet):  # type: ignore[misc]
    """A1.08 and A1.10."""


class BiTResNet(ConfiguredModel, resnetv2.ResNetV2):  # type: ignore[misc]
    """A1.11."""


class PoolFormer(ConfiguredModel, metaformer.MetaFormer):  # type: ignore[misc]
    """A1.21."""


class Staged(NamedTuple):
    """Blocks, channels and heads of each stage."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    heads: tuple[int, ...] = ()


def is_small(image: Image, stem: StemChoice = "auto") -> bool:
    """Whether to use the layout for small images."""
    if stem != "auto":
        return stem == "small"
    return (image if isinstance(image, int) else min(image)) < SMALL


def chosen(depths: Depths, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The stage depths asked for, or the usual ones."""
    count = len(usual)
    require(
        (
            depths is None or len(depths) == count,
            f"depths {depths} is not one number for each of {count} stages",
        )
    )
    return usual if depths is None else depths


PIT = {
    "nano": Staged((1, 2, 1), (24, 24, 24), (1, 2, 4)),  # ours
    "ti": Staged((2, 6, 4), (32, 32, 32), (2, 4, 8)),
    "xs": Staged((2, 6, 4), (48, 48, 48), (2, 4, 8)),
    "s": Staged((2, 6, 4), (48, 48, 48), (3, 6, 12)),
    "b": Staged((3, 6, 4), (64, 64, 64), (4, 8, 16)),
}


@family("pit", PIT, by_size={"nano": {"image": 32, "patch": 4, "stride": 2}})
def pooling_vit(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None chooses by the size of the image
    stride: int | None = None,  # pixels from one patch to the next; None chooses likewise
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """Transformer in three stages with depth-wise convolutions between (A1.04); patches overlap, `stride` apart.

    Small images: patch 2, stride 1. Otherwise patch 16, stride 8, and 14 and 7 for B.
    """
    large = (14, 7) if size is PIT["b"] else (16, 8)
    usual_patch, usual_stride = (2, 1) if is_small(image) else large
    patch, stride = patch or usual_patch, stride or usual_stride
    smallest = image if isinstance(image, int) else min(image)
    require((patch <= smallest, f"image {image} is smaller than patch {patch}"))
    return PiT(
        image, patch, stride, base_dims=size.widths, depth=chosen(depths, size.depths), heads=size.heads,
        num_classes=classes, in_chans=channels, drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip


SWIN = {
    "nano": Staged((2, 2, 4, 2), (16,), (1, 2, 4, 8)),  # ours
    "ti": Staged((2, 2, 6, 2), (96,), (3, 6, 12, 24)),
    "s": Staged((2, 2, 18, 2), (96,), (3, 6, 12, 24)),
    "b": Staged((2, 2, 18, 2), (128,), (4, 8, 16, 32)),
    "l": Staged((2, 2, 18, 2), (192,), (6, 12, 24, 48)),
}


@family("swin", SWIN, by_size={"nano": {"image": 32, "patch": 2}})
def swin(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None chooses by the size of the image
    window: int | None = None,  # side of a window in tokens; None chooses likewise
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    qkv_bias: bool = True,  # bias of queries, keys and values
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """Shifted windows (A1.05). Small images: patch 1, window 4; otherwise patch 4, window 7."""
    usual_patch, usual_window = (1, 4) if is_small(image) else (4, 7)
    patch = patch or usual_patch
    rows, columns = patch_grid(image, patch)
    require(
        (
            rows % 8 == columns % 8 == 0,
            f"the grid {rows}x{columns} of patch {patch} cannot be halved three times",
        )
    )
    return Swin(
        image, patch, channels, classes, embed_dim=size.widths[0], depths=chosen(depths, size.depths),
        num_heads=size.heads, window_size=window or usual_window, qkv_bias=qkv_bias, drop_rate=dropout,
        drop_path_rate=drop_path,
    )  # fmt: skip


TWINS = {
    "s": Staged((2, 2, 10, 4), (64, 128, 256, 512), (2, 4, 8, 16)),
    "b": Staged((2, 2, 18, 2), (96, 192, 384, 768), (3, 6, 12, 24)),
    "l": Staged((2, 2, 18, 2), (128, 256, 512, 1024), (4, 8, 16, 32)),
}


@family("twins", TWINS)
def twins_svt(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None chooses by the size of the image
    window: int | None = None,  # side of a window in tokens; None chooses likewise
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """Windows alternating with attention to sub-sampled keys (A1.06).

    No paper states its CIFAR size; small images get Swin's, patch 1 and window 4. Otherwise patch 4, window 7.
    """
    usual_patch, usual_window = (1, 4) if is_small(image) else (4, 7)
    patch = patch or usual_patch
    rows, columns = patch_grid(image, patch)
    require(
        (
            rows % 8 == columns % 8 == 0,
            f"the grid {rows}x{columns} of patch {patch} cannot be halved three times",
        )
    )
    return Twins(
        image, patch, channels, classes, embed_dims=size.widths, num_heads=size.heads,
        depths=chosen(depths, size.depths), wss=(window or usual_window,) * 4, drop_rate=dropout,
        drop_path_rate=drop_path,
    )  # fmt: skip


MIXER = {"nano": (4, 96), "ti": (8, 256), "s": (8, 512), "b": (12, 768), "l": (24, 1024)}


@family("mixer", MIXER, patches=(2, 4, 8, 16, 32), by_size={"nano": {"image": 32, "patch": 4}})
def mixer(
    size: tuple[int, int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    patch: int = 16,  # side of a patch in pixels, usually written in the name
    channels: int = 3,  # of the image
    depth: int | None = None,  # blocks; None takes it from the size table
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """MLP-Mixer (A1.07): the token MLP is half as wide as a token, the channel MLP four times."""
    patch_grid(image, patch)
    usual, width = size
    return MlpMixer(
        classes, image, channels, patch, num_blocks=depth or usual, embed_dim=width, drop_rate=dropout,
        drop_path_rate=drop_path,
    )  # fmt: skip


RESNET = {
    "18": (resnet.BasicBlock, (2, 2, 2, 2)),
    "34": (resnet.BasicBlock, (3, 4, 6, 3)),
    "50": (resnet.Bottleneck, (3, 4, 6, 3)),
    "101": (resnet.Bottleneck, (3, 4, 23, 3)),
    "152": (resnet.Bottleneck, (3, 8, 36, 3)),
}


@family("resnet", RESNET)
def resnet_family(
    size: tuple[type[nn.Module], tuple[int, ...]],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    groups: int = 1,  # of the 3x3 convolutions
    group_width: int = 64,  # channels of a group in the first stage
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """Post-activation ResNet (A1.08). The small stem is one 3x3 convolution with stride 1 and no pooling."""
    block, usual = size
    model = ResNet(
        block, chosen(depths, usual), classes, channels, cardinality=groups, base_width=group_width,
        drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip
    if is_small(image, stem):
        model.conv1, model.maxpool = (
            nn.Conv2d(channels, 64, 3, padding=1, bias=False),
            nn.Identity(),
        )
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    return model


RESNEXT = {"50": ((3, 4, 6, 3), 4), "101": ((3, 4, 23, 3), 8)}


@family("resnext", RESNEXT)
def resnext(
    size: tuple[tuple[int, ...], int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """ResNeXt 32x4d and, for 101, 32x8d (A1.10)."""
    usual, group_width = size
    return resnet_family(
        (resnet.Bottleneck, usual), image=image, classes=classes, channels=channels, stem=stem, depths=depths,
        groups=32, group_width=group_width, dropout=dropout, drop_path=drop_path,
    )  # fmt: skip


BIT = {
    "50x1": ((3, 4, 6, 3), 1),
    "50x2": ((3, 4, 6, 3), 2),
    "101x1": ((3, 4, 23, 3), 1),
    "152x1": ((3, 8, 36, 3), 1),
    "152x2": ((3, 8, 36, 3), 2),
    "152x4": ((3, 8, 36, 3), 4),
}


@family("bit", BIT)
def bit(
    size: tuple[tuple[int, ...], int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    preact: bool = False,  # norm before the convolutions, as in the BiT paper
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """ResNet with GroupNorm and standardised weights, the "ResNet (BiT)" of the ViT paper (A1.11).

    As there, normalisation follows the convolutions, and the last one of each block starts with scale zero. The
    networks of the BiT paper itself, whose weights timm has as `resnetv2_*_bit`, have it before: `preact=True`.
    """
    usual, factor = size
    conv = partial(StdConv2d, eps=1e-5)
    model = BiTResNet(
        chosen(depths, usual), num_classes=classes, in_chans=channels, width_factor=factor, preact=preact,
        stem_type="fixed", conv_layer=conv, zero_init_last=True, drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip
    if is_small(image, stem):
        root: Any = model.stem
        root.conv = conv(channels, root.conv.out_channels, kernel_size=3, stride=1)
        root.pad, root.pool = nn.Identity(), nn.Identity()
        nn.init.kaiming_normal_(root.conv.weight, mode="fan_out", nonlinearity="relu")
    return model


POOLFORMER = {
    "s12": Staged((2, 2, 6, 2), (64, 128, 320, 512)),
    "s24": Staged((4, 4, 12, 4), (64, 128, 320, 512)),
    "s36": Staged((6, 6, 18, 6), (64, 128, 320, 512)),
    "m36": Staged((6, 6, 18, 6), (96, 192, 384, 768)),
    "m48": Staged((8, 8, 24, 8), (96, 192, 384, 768)),
}


@family("poolformer", POOLFORMER)
def poolformer(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None takes them from the size table
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConfiguredModel:
    """Transformer blocks whose mixer is average pooling (A1.21). A ViT with that mixer is `mixer="pool"`."""
    scale = 1e-5 if sum(size.depths) <= 24 else 1e-6
    model = PoolFormer(
        channels, classes, depths=chosen(depths, size.depths), dims=size.widths, downsample_norm=None,
        mlp_act=nn.GELU, mlp_bias=True, norm_layers=GroupNorm1, layer_scale_init_values=scale,
        res_scale_init_values=None, use_mlp_head=False, drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip
    if is_small(image, stem):
        root: Any = model.stem
        root.conv = nn.Conv2d(channels, size.widths[0], 3, padding=1)
        nn.init.trunc_normal_(root.conv.weight, std=0.02)
        nn.init.zeros_(root.conv.bias)
    return model
