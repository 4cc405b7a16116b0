"""The exact units of the families people use, written by hand: kind, module path, grid, prefix,
heads and reach."""

from __future__ import annotations

import pytest
import torch

from specimen.zoo import MODELS, first_tensor, images, opened
from vitreous.specimen.anatomy import Unit


def line(unit: Unit) -> str:
    """One unit in short: `attention blocks.0.attn 14x14+1 3 global`; a trailing `|` marks a unit
    without a skip."""
    grid = "x".join(map(str, unit.grid)) if unit.grid else "-"
    prefix = "+" + ",".join(unit.prefix) if unit.prefix else ""
    look = f" {unit.heads} {unit.reach}" if unit.kind == "attention" else ""
    return f"{unit.kind} {unit.name} {grid}{prefix}{look}{'' if unit.skip else ' |'}"


def transformer(
    path: str, count: int, tail: str, look: str, attn: str = "attn", mlp: str = "mlp"
) -> list[str]:
    """Blocks of attention and MLP; `path` has a {} for the block's number."""
    pairs = [
        (f"attention {path}.{attn} {tail} {look}", f"mlp {path}.{mlp} {tail}") for _ in range(count)
    ]
    return [text.format(i) for i, pair in enumerate(pairs) for text in pair]


EXPECTED = {
    "vit": [
        "stem patch_embed 4x4+class |",
        *transformer("blocks.{}", 2, "4x4+class", "3 global"),
        "head head - |",
    ],
    "deit": [
        "stem patch_embed 4x4+class,distillation |",
        *transformer("blocks.{}", 2, "4x4+class,distillation", "3 global"),
        "head head - |",
    ],
    "convit": [
        "stem patch_embed 4x4 |",
        *transformer("blocks.{}", 2, "4x4", "4 global"),
        "attention blocks.2.attn 4x4+class 4 global",
        "mlp blocks.2.mlp 4x4+class",
        "head head - |",
    ],
    "swin": [
        "stem patch_embed 14x14 |",
        *transformer("layers.0.blocks.{}", 2, "14x14", "2 windowed"),
        "downsample layers.1.downsample 7x7 |",
        *transformer("layers.1.blocks.{}", 2, "7x7", "4 global"),
        "head head - |",
    ],
    "pit": [
        "stem patch_embed 27x27+class |",
        *transformer("transformers.0.blocks.{}", 1, "27x27+class", "2 global"),
        "downsample transformers.1.pool 14x14+class |",
        *transformer("transformers.1.blocks.{}", 1, "14x14+class", "4 global"),
        "downsample transformers.2.pool 7x7+class |",
        *transformer("transformers.2.blocks.{}", 1, "7x7+class", "8 global"),
        "head head - |",
    ],
    "twins": [
        "stem patch_embeds.0 56x56 |",
        "attention blocks.0.0.attn 56x56 2 windowed",
        "mlp blocks.0.0.mlp 56x56",
        "conv pos_block.0.proj.0 56x56",
        "attention blocks.0.1.attn 56x56 2 reduced",
        "mlp blocks.0.1.mlp 56x56",
        "downsample patch_embeds.1 28x28 |",
        "attention blocks.1.0.attn 28x28 4 windowed",
        "mlp blocks.1.0.mlp 28x28",
        "conv pos_block.1.proj.0 28x28",
        "attention blocks.1.1.attn 28x28 4 reduced",
        "mlp blocks.1.1.mlp 28x28",
        "downsample patch_embeds.2 14x14 |",
        "attention blocks.2.0.attn 14x14 8 windowed",
        "mlp blocks.2.0.mlp 14x14",
        "conv pos_block.2.proj.0 14x14",
        "downsample patch_embeds.3 7x7 |",
        "attention blocks.3.0.attn 7x7 16 global",
        "mlp blocks.3.0.mlp 7x7",
        "conv pos_block.3.proj.0 7x7",
        "head head - |",
    ],
    "mixer": [
        "stem stem 4x4 |",
        "token-mlp blocks.0.mlp_tokens 4x4",
        "mlp blocks.0.mlp_channels 4x4",
        "token-mlp blocks.1.mlp_tokens 4x4",
        "mlp blocks.1.mlp_channels 4x4",
        "head head - |",
    ],
    "resnet18": [
        "stem conv1 16x16 |",
        *[
            f"conv layer{s}.{i} {side}x{side}"
            for s, side in ((1, 16), (2, 8), (3, 4), (4, 2))
            for i in (0, 1)
        ],
        "head fc - |",
    ],
    "resnet50": [
        "stem conv1 16x16 |",
        "conv layer1.0 16x16",
        "conv layer1.1 16x16",
        "conv layer2.0 8x8",
        "conv layer3.0 4x4",
        "conv layer4.0 2x2",
        "head fc - |",
    ],
    "hybrid": [
        "stem patch_embed.backbone.stem 16x16 |",
        *[
            f"conv patch_embed.backbone.stages.{s}.blocks.{i} {side}x{side}"
            for s, side in ((0, 16), (1, 8), (2, 4), (3, 2))
            for i in (0, 1)
        ],
        "mlp patch_embed.proj 2x2+class |",
        *transformer("blocks.{}", 1, "2x2+class", "6 global"),
        "head head - |",
    ],
    "poolformer": [
        "stem stem 16x16 |",
        "pool stages.0.blocks.0.token_mixer.pool 16x16",
        "mlp stages.0.blocks.0.mlp 16x16",
        "downsample stages.1.downsample 8x8 |",
        "pool stages.1.blocks.0.token_mixer.pool 8x8",
        "mlp stages.1.blocks.0.mlp 8x8",
        "head head - |",
    ],
    "convnext": [
        "stem stem 16x16 |",
        "conv stages.0.blocks.0 16x16",
        "downsample stages.1.downsample 8x8 |",
        "conv stages.1.blocks.0 8x8",
        "conv stages.1.blocks.1 8x8",
        "downsample stages.2.downsample 4x4 |",
        "conv stages.2.blocks.0 4x4",
        "downsample stages.3.downsample 2x2 |",
        "conv stages.3.blocks.0 2x2",
        "head head - |",
    ],
    "cait": [
        "stem patch_embed 4x4 |",
        *transformer("blocks.{}", 2, "4x4", "4 global"),
        *transformer("blocks_token_only.{}", 2, "-", "4 class"),
        "head head - |",
    ],
    "beit": [
        "stem patch_embed 4x4+class |",
        *transformer("blocks.{}", 2, "4x4+class", "3 global"),
        "head head - |",
    ],
    "tv vit": [
        "stem conv_proj 4x4+class |",
        *transformer(
            "encoder.layers.encoder_layer_{}", 2, "4x4+class", "2 global", attn="self_attention"
        ),
        "head heads - |",
    ],
    "tv swin": [
        "stem features.0 28x28 |",
        *transformer("features.1.{}", 2, "28x28", "2 windowed"),
        "downsample features.2 14x14 |",
        *transformer("features.3.{}", 2, "14x14", "4 windowed"),
        "head head - |",
    ],
    "tv convnext": [
        "stem features.0 56x56 |",
        "conv features.1.0.block 56x56",
        "downsample features.2 28x28 |",
        "conv features.3.0.block 28x28",
        "conv features.3.1.block 28x28",
        "head classifier - |",
    ],
    "hf vit": [
        "stem vit.embeddings 4x4+class |",
        *transformer("vit.layers.{}", 2, "4x4+class", "2 global", attn="attention"),
        "head classifier - |",
    ],
    "hf swin": [
        "stem swin.embeddings 14x14 |",
        *transformer("swin.encoder.layers.0.blocks.{}", 2, "14x14", "2 windowed", attn="attention"),
        "downsample swin.encoder.layers.0.downsample 7x7 |",
        *transformer("swin.encoder.layers.1.blocks.{}", 2, "7x7", "4 global", attn="attention"),
        "head classifier - |",
    ],
    "hf resnet": [
        "stem resnet.embedder 56x56 |",
        "conv resnet.encoder.stages.0.layers.0.layer 56x56",
        "conv resnet.encoder.stages.0.layers.1.layer 56x56",
        "conv resnet.encoder.stages.1.layers.0.layer 28x28",
        "head classifier - |",
    ],
    "hf convnext": [
        "stem convnext.embeddings 56x56 |",
        "conv convnext.encoder.stages.0.layers.0 56x56",
        "downsample convnext.encoder.stages.1.downsampling_layer 28x28 |",
        "conv convnext.encoder.stages.1.layers.0 28x28",
        "conv convnext.encoder.stages.1.layers.1 28x28",
        "head classifier - |",
    ],
    "hf dinov2": [
        "stem embeddings 4x4+class |",
        *transformer("encoder.layer.{}", 2, "4x4+class", "2 global", attn="attention"),
        "head head - |",
    ],
    "hf clip": [
        "stem embeddings 4x4+class |",
        *transformer("encoder.layers.{}", 2, "4x4+class", "2 global", attn="self_attn"),
        "head head - |",
    ],
}
EXPECTED["resnext"] = EXPECTED["resnet50"]
EXPECTED["tv resnet"] = [text.replace("16x16", "56x56") for text in EXPECTED["resnet18"]]
for short, long in (("8x8", "28x28"), ("4x4", "14x14"), ("2x2", "7x7")):
    EXPECTED["tv resnet"] = [
        text.replace(f" {short}", f" {long}") for text in EXPECTED["tv resnet"]
    ]


@pytest.mark.parametrize("name", MODELS)
def test_the_units_are_these(name: str) -> None:
    _, specimen = opened(name)
    assert [line(unit) for unit in specimen.units] == EXPECTED[name]


@pytest.mark.parametrize("name", MODELS)
def test_the_specimen_computes_what_the_model_does_for_any_batch(name: str) -> None:
    model, specimen = opened(name)
    batch = images(specimen, 3)
    with torch.no_grad():
        for count in (1, 2, 3):
            given, wanted = (
                first_tensor(specimen(batch[:count])),
                first_tensor(model(batch[:count])),
            )
            torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_the_units_add_up_to_those_of_the_model(name: str) -> None:
    """Every parameter that the graph uses belongs to a unit; tokens and position tables to the
    stem."""
    model, specimen = opened(name)
    total = sum(p.numel() for p in model.parameters())
    listed = sum(unit.parameters for unit in specimen.units)
    unused = 32 if name == "hf dinov2" else 0  # a mask token, for training only
    assert specimen.anatomy.parameters == total
    assert listed == pytest.approx(total - unused, rel=0.02)
