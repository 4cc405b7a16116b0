"""Small models of every kind the tests need, opened once each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import timm
import torch
import torchvision
from timm.models.metaformer import MetaFormer, Pooling
from timm.models.mlp_mixer import MlpMixer
from torch import Tensor, nn
from torchvision.models.convnext import CNBlockConfig

import vitreous
from vitreous.specimen.specimen import Specimen

MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": lambda: timm.create_model("vit_tiny_patch16_224", depth=2, img_size=64, num_classes=10),
    "deit": lambda: timm.create_model(
        "deit_tiny_distilled_patch16_224", depth=2, img_size=64, num_classes=10
    ),
    "convit": lambda: timm.create_model(
        "convit_tiny", depth=3, local_up_to_layer=2, img_size=64, num_classes=10
    ),
    "swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=56,
        depths=(2, 2),
        embed_dim=16,
        num_heads=(2, 4),
        num_classes=10,
    ),
    "pit": lambda: timm.create_model("pit_ti_224", depth=[1, 1, 1], num_classes=10),
    "twins": lambda: timm.create_model("twins_svt_small", depths=[2, 2, 1, 1], num_classes=10),
    "mixer": lambda: MlpMixer(
        img_size=64, patch_size=16, num_blocks=2, embed_dim=32, num_classes=10
    ),
    "resnet18": lambda: timm.create_model("resnet18", num_classes=10),
    "resnet50": lambda: timm.create_model("resnet50", layers=[2, 1, 1, 1], num_classes=10),
    "resnext": lambda: timm.create_model("resnext50_32x4d", layers=[2, 1, 1, 1], num_classes=10),
    "hybrid": lambda: timm.create_model(
        "vit_small_r26_s32_224", img_size=64, depth=1, num_classes=10
    ),
    "poolformer": lambda: MetaFormer(
        depths=(1, 1), dims=(16, 32), token_mixers=Pooling, num_classes=10
    ),
    "convnext": lambda: timm.create_model("convnext_atto", depths=(1, 2, 1, 1), num_classes=10),
    "cait": lambda: timm.create_model("cait_xxs24_224", img_size=64, depth=2, num_classes=10),
    "beit": lambda: timm.create_model(
        "beit_base_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3
    ),
    "tv vit": lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10),
    "tv swin": lambda: torchvision.models.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [7, 7], num_classes=10
    ),
    "tv resnet": lambda: torchvision.models.resnet18(num_classes=10),
    "tv convnext": lambda: torchvision.models.ConvNeXt(
        [CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 2)], num_classes=10
    ),
    "hf vit": lambda: hugging_face("ViTForImageClassification", image_size=32, patch_size=8),
    "hf swin": lambda: hugging_face(
        "SwinForImageClassification",
        image_size=56,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
    ),
    "hf resnet": lambda: hugging_face(
        "ResNetForImageClassification",
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[2, 1],
        layer_type="basic",
    ),
    "hf convnext": lambda: hugging_face(
        "ConvNextForImageClassification", hidden_sizes=[16, 32], depths=[1, 2], num_stages=2
    ),
    "hf dinov2": lambda: hugging_face("Dinov2Model", image_size=28, patch_size=7),
    "hf clip": lambda: hugging_face("CLIPVisionModel", image_size=32, patch_size=8),
}

WIDTH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
IMAGE = {
    "pit": 224,
    "mixer": 64,
    "resnet18": 64,
    "resnet50": 64,
    "resnext": 64,
    "poolformer": 64,
    "convnext": 64,
    "tv swin": 112,
}


def hugging_face(name: str, **settings: object) -> nn.Module:
    import transformers

    model = getattr(transformers, name)
    sized = "hidden_sizes" not in settings and "embed_dim" not in settings
    return model(model.config_class(**(WIDTH if sized else {}), **settings))


def build(name: str) -> nn.Module:
    """The model with random weights, none of them zero or one, so that nothing cancels by
    chance."""
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim < 2 else 0.02))
    return model


@cache
def opened(name: str) -> tuple[nn.Module, Specimen]:
    model = build(name)
    return model, vitreous.open(model, image=IMAGE.get(name))


def images(specimen: Specimen, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, *specimen.anatomy.image, generator=generator)


def first_tensor(output: object) -> Tensor:
    """The tensor of an output, whatever it is wrapped in."""
    if isinstance(output, Tensor):
        return output
    values = list(output.values()) if hasattr(output, "values") else list(output)  # type: ignore[call-overload]
    return next(v for v in values if isinstance(v, Tensor))
