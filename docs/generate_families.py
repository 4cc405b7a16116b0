"""Open one small model of every module of timm and write what it is made of to docs/families.md.

    python docs/generate_families.py            # all of them, some minutes on one core
    python docs/generate_families.py convit pit # only look at these, and write nothing

For each: does it open, does the specimen compute what the model computes, do attention rows sum to one, does the lesion
of a unit in the middle change the output? The page says so row by row.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import timm
import torch
from torch import Tensor, nn

import vitreous
from vitreous.specimen.observe import Sites
from vitreous.specimen.specimen import Specimen

PAGE = Path(__file__).parent / "families.md"
TOLERANCE = 1e-4

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

SMALLER = {"deepseek_vit": {"depth": 2, "img_size": 84}, "qwen3_vit": {"depth": 2}}
"""Families that have only large members are cut to a few blocks."""

CANNOT = {"gemma4_vit": "asks whether any position is padding (`if padding_positions.any()`), a branch on data"}
"""Families whose graph cannot be read, and why. Their modules can still be named with `units=`."""


class Row(NamedTuple):
    family: str
    model: str
    specimen: Specimen
    difference: float
    lesion: str
    change: float
    rows: float | None
    seconds: float


def build(family: str) -> nn.Module:
    """The family's model with random weights, all of them away from zero so that nothing cancels by chance."""
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(VARIANTS[family], **SMALLER.get(family, {})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2 or float(parameter.abs().max()) < 1e-3:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def examine(family: str) -> Row:
    """Open the family's model and put it through everything the page reports."""
    model = build(family)
    started = time.thread_time()
    specimen = vitreous.open(model)
    seconds = time.thread_time() - started
    images = torch.randn(2, *specimen.anatomy.image)
    wanted = model(images)
    scale = float(wanted.abs().max())

    def apart(other: Tensor) -> float:
        return float((other - wanted).abs().max()) / scale

    errors: list[float] = []

    def note(unit: vitreous.Unit, sites: Sites) -> None:
        if sites.attention is not None:
            errors.append(float((sites.attention.values.sum(-1) - 1).abs().max()))

    specimen.observe(images, ("attention",), each=note)
    middle = [unit for unit in specimen.units if unit.kind not in ("stem", "head")]
    lesion = middle[len(middle) // 2].name
    return Row(
        family=family,
        model=VARIANTS[family],
        specimen=specimen,
        difference=apart(specimen(images)),
        lesion=lesion,
        change=apart(specimen.without(lesion)(images)),
        rows=max(errors) if errors else None,
        seconds=seconds,
    )


def sound(row: Row) -> bool:
    """Everything as it should be."""
    return row.difference <= TOLERANCE and row.change > 1e-7 and (row.rows is None or row.rows <= TOLERANCE)


def table(rows: list[Row]) -> str:
    kinds = ("attention", "conv", "mlp", "token-mlp", "mixer", "pool", "downsample")
    lines = [f"| module | model | {' | '.join(kinds)} | attends | stages |", "|---" * (len(kinds) + 4) + "|"]
    for row in rows:
        anatomy = row.specimen.anatomy
        counts = anatomy.counts()
        reach = sorted({str(unit.reach) for unit in anatomy if unit.reach})
        cells = [str(counts.get(kind, "")) for kind in kinds]
        lines.append(f"| {row.family} | `{row.model}` | {' | '.join(cells)} | {', '.join(reach)} | {anatomy.stages} |")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    cannot = "\n".join(f"- `{family}`: {reason}." for family, reason in CANNOT.items())
    largest = max(row.difference for row in rows)
    every = len(rows) + len(CANNOT)
    return f"""# Every family of timm

One model of each of the {every} modules of timm {timm.__version__}, opened with random weights; none has a line of
code of its own here. Each opens, computes what the model computes (largest relative difference {largest:.0e}), has
attention rows that sum to one, and answers otherwise when a unit in its middle is taken out. Units per kind, next to
one stem and one head each; "attends" says over what.

{table(rows)}

Cannot be read, {len(CANNOT)} of {every}:

{cannot}

*channel*: channels attend to each other, there is no distance; *linear*: no softmax over pairs of positions; *unknown*:
queries or keys on no grid. This page is written by `docs/generate_families.py`.
"""


def main() -> None:
    torch.set_num_threads(1)
    asked = sys.argv[1:] or [family for family in VARIANTS if family not in CANNOT]
    rows = []
    for family in asked:
        row = examine(family)
        rows.append(row)
        rest = "" if row.rows is None else f", rows {row.rows:.0e}"
        print(
            f"{family}: {row.seconds:.1f} s, difference {row.difference:.0e}, without {row.lesion} {row.change:.0e}"
            f"{rest}{'' if sound(row) else '  <-- WRONG'}",
            flush=True,
        )
    if not all(map(sound, rows)):
        sys.exit("not all of them are as they should be, so the page is left as it was")
    if not sys.argv[1:]:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
