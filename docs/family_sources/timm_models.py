"""One small model of every module of timm."""

from __future__ import annotations

import timm
from torch import nn

LIBRARY = f"timm {timm.__version__}"

VARIANTS = {
    "beit": "beit_base_patch16_224",
    "byoanet": "eca_botnext26ts_256",
    "byobnet": "mobileone_s1",
    "cait": "cait_xxs24_224",
    "coat": "coat_tiny",
    "convit": "convit_tiny",
    "convmixer": "convmixer_1024_20_ks9_p14",
    "convnext": "convnext_atto",
    "cpubone": "cpubone_nano",
    "crossvit": "crossvit_tiny_240",
    "csatv2": "csatv2",
    "cspnet": "cs3darknet_focus_s",
    "davit": "davit_tiny",
    "deepseek_vit": "deepseek_vit_412m",
    "deit": "deit_tiny_patch16_224",
    "densenet": "densenet121",
    "dla": "dla102x",
    "dpn": "dpn48b",
    "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1",
    "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "efficientnet_lite0",
    "efficientvim": "efficientvim_m1",
    "efficientvit_mit": "efficientvit_b0",
    "efficientvit_msra": "efficientvit_m0",
    "eva": "eva02_tiny_patch14_224",
    "fasternet": "fasternet_t0",
    "fastvit": "fastvit_s12",
    "focalnet": "focalnet_tiny_srf",
    "gcvit": "gcvit_xxtiny",
    "gemma4_vit": "gemma4_vit_167m",
    "ghostnet": "ghostnet_050",
    "hardcorenas": "hardcorenas_b",
    "hgnet": "hgnetv2_b0",
    "hiera": "hiera_tiny_224",
    "hieradet_sam2": "hieradet_small",
    "hrnet": "hrnet_w18_small",
    "iformer": "iformer_s",
    "inception_next": "inception_next_atto",
    "inception_resnet_v2": "inception_resnet_v2",
    "inception_v3": "inception_v3",
    "inception_v4": "inception_v4",
    "lcnetv2": "lcnetv2_small",
    "levit": "levit_384_s8",
    "lowformer": "lowformer_b0",
    "mambaout": "test_mambaout",
    "maxxvit": "maxvit_tiny_rw_224",
    "metaformer": "poolformer_s12",
    "mlp_mixer": "mixer_s32_224",
    "mobilenetv3": "mobilenetv3_small_050",
    "mobilenetv5": "mobilenetv5_base",
    "mobilevit": "mobilevit_xxs",
    "mvitv2": "mvitv2_tiny",
    "naflexvit": "naflexvit_base_patch16_siglip",
    "nasnet": "nasnetalarge",
    "nest": "nest_tiny",
    "nextvit": "nextvit_small",
    "nfnet": "test_nfnet",
    "pit": "pit_ti_224",
    "pnasnet": "pnasnet5large",
    "pvt_v2": "pvt_v2_b0",
    "qwen3_vit": "qwen3_vit_88m",
    "rdnet": "rdnet_tiny",
    "regnet": "regnetx_002",
    "repghost": "repghostnet_050",
    "repvit": "repvit_m0_9",
    "res2net": "res2next50",
    "resnest": "resnest14d",
    "resnet": "resnet18",
    "resnetv2": "resnetv2_18",
    "rexnet": "rexnet_100",
    "selecsls": "selecsls42",
    "senet": "legacy_seresnet18",
    "sequencer": "sequencer2d_s",
    "shvit": "shvit_s1",
    "sknet": "skresnet18",
    "starnet": "starnet_s050",
    "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224",
    "swin_transformer_v2": "swinv2_tiny_window8_256",
    "swin_transformer_v2_cr": "swinv2_cr_tiny_224",
    "tiny_vit": "tiny_vit_5m_224",
    "tnt": "tnt_s_legacy_patch16_224",
    "tresnet": "tresnet_m",
    "twins": "twins_svt_small",
    "vgg": "vgg11",
    "visformer": "visformer_tiny",
    "vision_transformer": "vit_tiny_patch16_224",
    "vision_transformer_hybrid": "vit_tiny_r_s16_p8_224",
    "vision_transformer_relpos": "vit_srelpos_small_patch16_224",
    "vision_transformer_sam": "samvit_base_patch16_224",
    "vitamin": "vitamin_small_224",
    "volo": "volo_d1_224",
    "vovnet": "ese_vovnet19b_slim_dw",
    "xception": "legacy_xception",
    "xception_aligned": "xception41p",
    "xcit": "xcit_nano_12_p8_224",
}
"""A small member of every module; timm has no smaller one of some."""

SMALLER = {
    "deepseek_vit": {"depth": 2, "img_size": 84},
    "gemma4_vit": {"depth": 2},
    "qwen3_vit": {"depth": 2},
}
"""Families that have only large members are cut to a few blocks."""

SIZES = {"gemma4_vit": (3, 96, 96)}
"""Families for large images that take small ones."""


def names() -> list[str]:
    return list(VARIANTS)


def label(name: str) -> str:
    """What the page calls the model."""
    return VARIANTS[name]


def build(name: str) -> tuple[nn.Module, tuple[int, int, int] | None]:
    """The model, and the image size to open it with; timm's models know theirs."""
    return timm.create_model(VARIANTS[name], **SMALLER.get(name, {})), SIZES.get(name)
