"""timm's architectures at the papers' sizes, for ImageNet and for small images.

Below 96 pixels the stem of a network for 224 would lose most of the image, so it is replaced by
that of Park & Kim's CIFAR experiments: a 3x3 convolution with stride 1 and no pooling for
convolutional networks, patches of one or two pixels for transformers. `stem`, `patch` and `window`
choose otherwise.
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
    """Pooling-based Vision Transformer (Heo et al. 2021)."""


class Swin(ConfiguredModel, swin_transformer.SwinTransformer):  # type: ignore[misc]
    """Swin Transformer (Liu et al. 2021)."""


class Twins(ConfiguredModel, twins.Twins):  # type: ignore[misc]
    """Twins-SVT (Chu et al. 2021)."""


class MlpMixer(ConfiguredModel, mlp_mixer.MlpMixer):  # type: ignore[misc]
    """MLP-Mixer (Tolstikhin et al. 2021)."""


class ResNet(ConfiguredModel, resnet.ResNet):  # type: ignore[misc]
    """ResNet (He et al. 2016) and ResNeXt (Xie et al. 2017)."""


class BiTResNet(ConfiguredModel, resnetv2.ResNetV2):  # type: ignore[misc]
    """ResNet with GroupNorm and standardised weights (Kolesnikov et al. 2020)."""


class PoolFormer(ConfiguredModel, metaformer.MetaFormer):  # type: ignore[misc]
    """PoolFormer (Yu et al. 2022)."""


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


def stage_depths(depths: Depths, usual: tuple[int, ...]) -> tuple[int, ...]:
    """`depths`, or the usual ones for None; an error if their number differs."""
    depths = usual if depths is None else depths
    count = len(usual)
    require((len(depths) == count, f"depths {depths} is not one number for each of {count} stages"))
    return depths


def check_halvings(image: Image, patch: int) -> None:
    """Raise `BadModel` unless patches tile the image and their grid can be halved three times."""
    rows, columns = patch_grid(image, patch)
    halves = rows % 8 == columns % 8 == 0
    require((halves, f"the grid {rows}x{columns} of patch {patch} cannot be halved three times"))


PIT = {
    "nano": Staged((1, 2, 1), (24, 24, 24), (1, 2, 4)),  # ours
    "ti": Staged((2, 6, 4), (32, 32, 32), (2, 4, 8)),
    "xs": Staged((2, 6, 4), (48, 48, 48), (2, 4, 8)),
    "s": Staged((2, 6, 4), (48, 48, 48), (3, 6, 12)),
    "b": Staged((3, 6, 4), (64, 64, 64), (4, 8, 16)),
}


@family("pit", PIT, by_size={"nano": {"image": 32, "patch": 4, "stride": 2}})
def build_pit(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None: by the size of the image
    stride: int | None = None,  # pixels from one patch to the next; None: likewise
    depths: Depths = None,  # blocks of each stage; None: the size table's
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """Transformer in three stages with depth-wise convolutions between; patches overlap.

    Small images: patch 2, stride 1. Otherwise patch 16, stride 8, and 14 and 7 for B.
    """
    large = (14, 7) if size is PIT["b"] else (16, 8)
    usual_patch, usual_stride = (2, 1) if is_small(image) else large
    patch, stride = patch or usual_patch, stride or usual_stride
    smallest = image if isinstance(image, int) else min(image)
    require((patch <= smallest, f"image {image} is smaller than patch {patch}"))
    return PiT(
        image, patch, stride, base_dims=size.widths, depth=stage_depths(depths, size.depths),
        heads=size.heads, num_classes=classes, in_chans=channels, drop_rate=dropout,
        drop_path_rate=drop_path,
    )  # fmt: skip


SWIN = {
    "nano": Staged((2, 2, 4, 2), (16,), (1, 2, 4, 8)),  # ours
    "ti": Staged((2, 2, 6, 2), (96,), (3, 6, 12, 24)),
    "s": Staged((2, 2, 18, 2), (96,), (3, 6, 12, 24)),
    "b": Staged((2, 2, 18, 2), (128,), (4, 8, 16, 32)),
    "l": Staged((2, 2, 18, 2), (192,), (6, 12, 24, 48)),
}


@family("swin", SWIN, by_size={"nano": {"image": 32, "patch": 2}})
def build_swin(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None: by the size of the image
    window: int | None = None,  # side of a window in tokens; None: likewise
    depths: Depths = None,  # blocks of each stage; None: the size table's
    qkv_bias: bool = True,  # bias of queries, keys and values
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """Shifted windows. Small images: patch 1, window 4; otherwise patch 4, window 7."""
    usual_patch, usual_window = (1, 4) if is_small(image) else (4, 7)
    patch = patch or usual_patch
    check_halvings(image, patch)
    return Swin(
        image, patch, channels, classes, embed_dim=size.widths[0], depths=stage_depths(depths,
        size.depths), num_heads=size.heads, window_size=window or usual_window, qkv_bias=qkv_bias,
        drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip


TWINS = {
    "s": Staged((2, 2, 10, 4), (64, 128, 256, 512), (2, 4, 8, 16)),
    "b": Staged((2, 2, 18, 2), (96, 192, 384, 768), (3, 6, 12, 24)),
    "l": Staged((2, 2, 18, 2), (128, 256, 512, 1024), (4, 8, 16, 32)),
}


@family("twins", TWINS)
def build_twins(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    patch: int | None = None,  # side of a patch; None: by the size of the image
    window: int | None = None,  # side of a window in tokens; None: likewise
    depths: Depths = None,  # blocks of each stage; None: the size table's
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """Windows alternating with attention to sub-sampled keys.

    No paper states its CIFAR size; small images get Swin's, patch 1 and window 4. Otherwise patch
    4, window 7.
    """
    usual_patch, usual_window = (1, 4) if is_small(image) else (4, 7)
    patch = patch or usual_patch
    check_halvings(image, patch)
    return Twins(
        image, patch, channels, classes, embed_dims=size.widths, num_heads=size.heads,
        depths=stage_depths(depths, size.depths), wss=(window or usual_window,) * 4,
        drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip


MIXER = {"nano": (4, 96), "ti": (8, 256), "s": (8, 512), "b": (12, 768), "l": (24, 1024)}


@family("mixer", MIXER, patches=(2, 4, 8, 16, 32), by_size={"nano": {"image": 32, "patch": 4}})
def build_mixer(
    size: tuple[int, int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    patch: int = 16,  # side of a patch in pixels, usually written in the name
    channels: int = 3,  # of the image
    depth: int | None = None,  # blocks; None: the size table's
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """MLP-Mixer: the token MLP is half as wide as a token, the channel MLP four times."""
    patch_grid(image, patch)
    usual, width = size
    return MlpMixer(
        classes, image, channels, patch, num_blocks=depth or usual, embed_dim=width,
        drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip


RESNET = {
    "18": (resnet.BasicBlock, (2, 2, 2, 2)),
    "34": (resnet.BasicBlock, (3, 4, 6, 3)),
    "50": (resnet.Bottleneck, (3, 4, 6, 3)),
    "101": (resnet.Bottleneck, (3, 4, 23, 3)),
    "152": (resnet.Bottleneck, (3, 8, 36, 3)),
}


@family("resnet", RESNET)
def build_resnet(
    size: tuple[type[nn.Module], tuple[int, ...]],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None: the size table's
    groups: int = 1,  # of the 3x3 convolutions
    group_width: int = 64,  # channels of a group in the first stage
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """Post-activation ResNet. The small stem is one 3x3 convolution with stride 1, no pooling."""
    block, usual = size
    model = ResNet(
        block, stage_depths(depths, usual), classes, channels, cardinality=groups,
        base_width=group_width, drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip
    if is_small(image, stem):
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    return model


RESNEXT = {"50": ((3, 4, 6, 3), 4), "101": ((3, 4, 23, 3), 8)}


@family("resnext", RESNEXT)
def build_resnext(
    size: tuple[tuple[int, ...], int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None: the size table's
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """ResNeXt 32x4d and, for 101, 32x8d."""
    usual, group_width = size
    return build_resnet(
        (resnet.Bottleneck, usual), image=image, classes=classes, channels=channels, stem=stem,
        depths=depths, groups=32, group_width=group_width, dropout=dropout, drop_path=drop_path,
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
def build_bit(
    size: tuple[tuple[int, ...], int],
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None: the size table's
    preact: bool = False,  # norm before the convolutions, as in the BiT paper
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """ResNet with GroupNorm and standardised weights, the "ResNet (BiT)" of the ViT paper.

    As there, normalisation follows the convolutions, and the last one of each block starts with
    scale zero. The networks of the BiT paper itself, whose weights timm has as `resnetv2_*_bit`,
    have it before: `preact=True`.
    """
    usual, factor = size
    conv = partial(StdConv2d, eps=1e-5)
    model = BiTResNet(
        stage_depths(depths, usual), num_classes=classes, in_chans=channels, width_factor=factor,
        preact=preact, stem_type="fixed", conv_layer=conv, zero_init_last=True, drop_rate=dropout,
        drop_path_rate=drop_path,
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
def build_poolformer(
    size: Staged,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    stem: StemChoice = "auto",  # "small" (3x3, no pooling) below 96 pixels, else "imagenet"
    depths: Depths = None,  # blocks of each stage; None: the size table's
    dropout: float = 0.0,  # before the classifier
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConfiguredModel:
    """Transformer blocks with average pooling as mixer, as in a ViT with `mixer="pool"`."""
    scale = 1e-5 if sum(size.depths) <= 24 else 1e-6
    model = PoolFormer(
        channels, classes, depths=stage_depths(depths, size.depths), dims=size.widths,
        downsample_norm=None, mlp_act=nn.GELU, mlp_bias=True, norm_layers=GroupNorm1,
        layer_scale_init_values=scale, res_scale_init_values=None, use_mlp_head=False,
        drop_rate=dropout, drop_path_rate=drop_path,
    )  # fmt: skip
    if is_small(image, stem):
        root: Any = model.stem
        root.conv = nn.Conv2d(channels, size.widths[0], 3, padding=1)
        nn.init.trunc_normal_(root.conv.weight, std=0.02)
        nn.init.zeros_(root.conv.bias)
    return model
