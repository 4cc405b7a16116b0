"""Write `models.md`: every system and mechanism, the call that builds it, and its parameters.

    python docs/generate_models.py

The page is kept in the repository, and a test compares it with what this file would write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from vitreous.models import build
from vitreous.models.registry import FAMILIES, Family

PAGE = Path(__file__).parent / "reference" / "models.md"

MODELS = """
A1.01 Vision Transformer
    vit_b/16
    vit_ti/4 small
A1.02 ViT sizes. The published 307 M of ViT-L are those of patch 32
    vit_ti/16
    vit_s/16
    vit_b/32
    vit_l/16
    vit_l/32
    vit_h/14
    vit_ti/2 image=32, classes=100, qkv_bias=False
    vit_ti/4 image=32, classes=100, qkv_bias=False
    vit_ti/8 image=32, classes=100, qkv_bias=False
    vit_s/2 image=32, classes=100, qkv_bias=False
A1.03 DeiT. Published counts, like ConViT's, leave the classifier out: `classes=0`
    deit_ti
    deit_s
    deit_b
    deit_ti+
    deit_s+
    deit_b+
    deit_s distilled=True
A1.04 PiT
    pit_ti
    pit_xs
    pit_s
    pit_b
    pit_ti small
A1.05 Swin
    swin_ti
    swin_s
    swin_b
    swin_ti small
    swin_ti/2 small
A1.06 Twins-SVT
    twins_s
    twins_s small
A1.07 MLP-Mixer
    mixer_ti/16
    mixer_s/16
    mixer_b/16
    mixer_ti/4 small
A1.08 ResNet
    resnet_18
    resnet_34
    resnet_50
    resnet_101
    resnet_152
    resnet_50 small
A1.09 Pre-activation ResNet
    preresnet_50
    preresnet_50 small
A1.10 ResNeXt
    resnext_50
    resnext_101
    resnext_50 small
A1.11 ResNet (BiT)
    bit_50x1
    bit_152x2
    bit_50x1 preact=True
A1.12 Hybrid ResNet and ViT
    vit_b/16 stem="r50"
    vit_b/32 stem="r50"
    vit_l/32 stem="r50"
    vit_s/32 stem="r26"
    vit_ti/32 stem="r"
    vit_ti/4 small, stem="r26", stem_width=0.25
A1.13 ViT with k × k attention. The released code attends to its zero padding: `border="zero"`
    vit_ti/4 small, mixer="neighbourhood", kernel=3, pool="gap", final_norm="pooled"
    vit_ti/4 small, mixer="neighbourhood", kernel=5, pool="gap", final_norm="pooled"
    vit_ti/4 small, mixer="neighbourhood", kernel=8, pool="gap", final_norm="pooled"
A1.14 AlterNet
    alternet_50
    alternet_50 small
    alternet_18 small
A1.15 AlterNet's attention block
    alternet_50 small, block="b"
    alternet_50 small, block="a"
A1.16 AlterNet's build-up rule: `vitreous.models.alternet.build_up` yields the candidates
A1.17 ViT-GAP
    vit_b/16 pool="gap"
    vit_b/16 pool="gap_with_class"
A1.18 ConViT
    convit_s
    convit_ti/4 small
A1.19 ConViT sizes
    convit_ti
    convit_s
    convit_b
    convit_ti+
    convit_s+
    convit_b+
A1.20 ConViT with plain positional attention
    convit_b kind="psa"
A1.21 PoolFormer, and a ViT that pools or does nothing in place of attention
    poolformer_s12
    poolformer_s12 small
    vit_ti/4 small, mixer="pool", pool="gap"
    vit_ti/4 small, mixer="identity", pool="gap"
A1.22 CNN with spatial smoothing
    preresnet_50 small, smooth="tanh"
A1.23 CNN with dropout for ensembles: `vitreous.models.alternet.mc_predict` averages the passes
    preresnet_50 small, dropout=0.1
A1.24 First layer of AlexNet: a reference picture only, 96 filters of 11 × 11 × 3 with stride 4
A1.25 Plain MLP on pixels
    mlp_s small
    mlp_b small
A1.26 Small CNN
    cnn_s small
    cnn_s small, shrink="none", border="circular"
A1.27 ViT pre-trained by masking (MAE): a reference only, published as `hf:facebook/vit-mae-base`
"""

MECHANISMS = """
A2.01 Patch embedding
    vit_ti/2 small
    vit_ti/8 small
A2.02 Class token. Zeros with `init="jax"`, a truncated normal with `init="timm"`
    vit_ti/4 small, class_token=True, pool="gap"
A2.03 No position encoding
    vit_ti/4 small, pos="none"
A2.04 Learned positions in one dimension
    vit_ti/4 small, pos="1d"
A2.05 Learned positions in two dimensions
    vit_ti/4 small, pos="2d"
A2.06 Relative positions
    vit_ti/4 small, pos="relative", offsets="1d"
    vit_ti/4 small, pos="relative", offsets="2d"
    vit_ti/4 small, pos="relative", offsets="full"
    vit_ti/4 small, pos="relative", relative_shared=True
A2.07 Where positions are added
    vit_ti/4 small, inject="stem"
    vit_ti/4 small, inject="every"
    vit_ti/4 small, inject="shared"
A2.08 Sinusoidal positions
    vit_ti/4 small, pos="sinusoidal"
A2.09 Another resolution: `vitreous.models.vit.resize_vit(model, 48)`; DeiT: `mode="bicubic"`
A2.10 Attention as smoothing
    vit_ti/4 small, mixer="attention"
A2.11 Window attention
    vit_ti/4 small, mixer="window", window=4, pool="gap"
    swin_ti small
A2.12 Convolutional attention
    vit_ti/4 small, mixer="neighbourhood", dilation=2, pool="gap"
A2.13 Positional attention (PSA)
    convit_ti/4 small, kind="psa"
A2.14 Attention that is a convolution
    convit_s locality=20.0
A2.15 Centres of attention
    convit_ti/4 small, centres="paper"
A2.16 Locality strength
    convit_ti/4 small, locality=0.01
A2.17 Adaptive attention span: read off the weights of a trained ConViT
A2.18 Gated attention (GPSA)
    convit_ti/4 small, gate="frozen"
A2.19 Convolutional initialisation
    convit_ti/4 small, conv_init=False
A2.20 Class token after the gated layers, or from the start
    convit_ti/4 small, class_at="start"
A2.21 ConViT at another resolution
    convit_ti/4 small, pos="none"
A2.22 Stages with sub-sampling
    pit_ti small
    swin_ti small
A2.23 Stochastic depth
    vit_ti/4 small, drop_path=0.1
    resnet_50 small, drop_path=0.1
A2.24 Blocks trained without their skip connections
    vit_ti/4 small, skipless=(6,)
A2.25 Box blur in place of attention. A kernel of 15 covers the whole 8 × 8 grid
    vit_ti/4 small, mixer="box", kernel=2, pool="gap"
    vit_ti/4 small, mixer="box", kernel=3, pool="gap"
    vit_ti/4 small, mixer="box", kernel=15, pool="gap"
A2.26 Data-independent attention, from a trained model: `vitreous.models.vit.mean_attention`
    vit_ti/4 small, mixer="mean"
"""

INTRODUCTION = """# Models

`build` makes any of the architectures below, and `names` lists them. `model.config` holds the
arguments that build the model again.

```python
import torch
from vitreous.models import build, names

model = build("vit_ti/4", image=32, classes=10, pos="2d", pool="gap")
model(torch.zeros(1, 3, 32, 32)).shape  # → torch.Size([1, 10])
build(**model.config).config == model.config  # → True
names("deit_*")[:2]  # → ['deit_b+/16', 'deit_b/16']
```

A name is the family, the size and, for models with patches, the side of a patch in pixels;
other patch sizes work too. Below 96 pixels convolutional networks and hierarchical transformers
have the stem of the papers' CIFAR experiments.

timm can make them too, under a prefix: after `import vitreous.models`,
`timm.create_model("vitreous_vit_ti_4", img_size=32, num_classes=10)`. Weights of timm's ViT,
DeiT and hybrids convert in both directions with `vitreous.models.vit` (`vit_state_from_timm`,
`vit_state_to_timm`), those of its ConViT with `vitreous.models.convit` (`from_timm`,
`to_timm`).

<!-- Written by docs/generate_models.py. -->
"""


def calls(rows: str) -> Iterator[tuple[str, str]]:
    """Each line as (title, "") for a system or ("", call) for a way to build it."""
    for line in rows.strip().splitlines():
        if line.startswith(" "):
            name, _, options = line.strip().partition(" ")
            options = re.sub(r"^small\b", "image=32, classes=10", options)
            yield "", f'build("{name}"{", " + options if options else ""})'
        else:
            yield line, ""


def parameters(expression: str) -> str:
    """How large a model is, counted without giving it memory."""
    with torch.device("meta"):
        model = eval(expression, {"build": build})
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M"


def table(rows: str, count: Callable[[str], str]) -> str:
    """Systems and, under each, the calls."""
    lines = ["| system | parameters |", "|---|---|"]
    for title, expression in calls(rows):
        if title:
            lines.append(f"| **{title.partition(' ')[2]}** | |")
        else:
            lines.append(f"| `{expression}` | {count(expression)} |")
    return "\n".join(lines) + "\n"


def options(family: Family) -> str:
    """The options of a family: default, choices, and the comment each has where it is declared."""
    declared = family.fields or family.make
    meaning = dict(
        re.findall(r"^ {4}(\w+): .*?  # (.+)$", inspect.getsource(declared), re.MULTILINE)
    )
    choices = {
        key: ", ".join(f"`{c!r}`" for c in choices_of(hint))
        for key, hint in get_type_hints(declared).items()
    }
    lines = [
        f"### {family.name}",
        "",
        f"Sizes: {', '.join(f'`{size}`' for size in family.sizes)}.",
        "",
    ]
    lines += ["| option | default | choices | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{key}` | `{value!r}` | {choices[key]} | {meaning[key]} |"
        for key, value in family.options.items()
    ]
    return "\n".join(lines) + "\n"


def choices_of(hint: Any) -> tuple[Any, ...]:
    """The values of a Literal, alone or in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(
        choice
        for part in get_args(hint)
        if get_origin(part) is Literal
        for choice in get_args(part)
    )


def page(count: Callable[[str], str] = parameters) -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        "## Architectures\n",
        table(MODELS, count),
        "## Mechanisms\n",
        table(MECHANISMS, count),
    ]
    parts += ["## Options\n", *(options(FAMILIES[name]) for name in sorted(FAMILIES))]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
