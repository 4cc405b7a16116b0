"""Every architecture of the registry opens, computes the same, and shows the anatomy its paper
describes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vitreous
from contracts.test_models import awake
from vitreous.models.registry import FAMILIES

Case = tuple[str, dict[str, Any], dict[str, int], set[str]]

CASES: list[Case] = [
    ("vit_ti/4", {"depth": 2}, {"attention": 2, "mlp": 2}, {"global"}),
    ("vit_ti/4", {"depth": 2, "pool": "gap"}, {"attention": 2, "mlp": 2}, {"global"}),
    (
        "vit_ti/4",
        {"depth": 2, "pos": "2d", "inject": "every"},
        {"attention": 2, "mlp": 2},
        {"global"},
    ),
    ("vit_ti/4", {"depth": 2, "pos": "relative"}, {"attention": 2, "mlp": 2}, {"global"}),
    (
        "vit_ti/4",
        {"depth": 2, "pos": "relative", "offsets": "2d", "relative_shared": True},
        {"attention": 2, "mlp": 2},
        {"global"},
    ),
    ("vit_ti/4", {"depth": 2, "pos": "sinusoidal"}, {"attention": 2, "mlp": 2}, {"global"}),
    ("vit_ti/4", {"depth": 2, "inject": "shared"}, {"attention": 2, "mlp": 2}, {"global"}),
    ("vit_ti/4", {"depth": 2, "head": "tanh"}, {"attention": 2, "mlp": 2}, {"global"}),
    ("vit_ti/4", {"depth": 2, "distilled": True}, {"attention": 2, "mlp": 2}, {"global"}),
    (
        "vit_ti/4",
        {"depth": 2, "mixer": "neighbourhood", "pool": "gap", "border": "zero"},
        {"attention": 2, "mlp": 2},
        {"windowed"},
    ),
    (
        "vit_ti/4",
        {"depth": 2, "mixer": "neighbourhood", "pool": "gap"},
        {"attention": 2, "mlp": 2},
        {"windowed"},
    ),
    (
        "vit_ti/4",
        {"depth": 2, "mixer": "window", "pool": "gap"},
        {"attention": 2, "mlp": 2},
        {"windowed"},
    ),
    ("vit_ti/4", {"depth": 2, "mixer": "pool", "pool": "gap"}, {"mlp": 2, "pool": 2}, set()),
    ("vit_ti/4", {"depth": 2, "mixer": "box", "pool": "gap"}, {"mlp": 2, "pool": 2}, set()),
    ("vit_ti/4", {"depth": 2, "mixer": "identity", "pool": "gap"}, {"mlp": 2}, set()),
    (
        "vit_ti/4",
        {"depth": 2, "mixer": "token_mlp", "pool": "gap"},
        {"mlp": 2, "token-mlp": 2},
        set(),
    ),
    ("vit_ti/4", {"depth": 2, "mixer": "mean"}, {"mlp": 2, "mixer": 2}, set()),
    (
        "vit_ti/4",
        {"depth": 2, "mixer": "mean", "learn_pattern": True},
        {"mlp": 2, "token-mlp": 2},  # weights over positions that are learned
        set(),
    ),
    ("vit_ti/4", {"depth": 2, "skipless": (1,)}, {"attention": 2, "mlp": 2}, {"global"}),
    ("vit_ti/8", {"depth": 1, "stem": "r26"}, {"attention": 1, "conv": 8, "mlp": 2}, {"global"}),
    ("deit_ti/4", {"depth": 2}, {"attention": 2, "mlp": 2}, {"global"}),
    ("convit_ti", {"patch": 4, "depth": 3, "gpsa": 2}, {"attention": 3, "mlp": 3}, {"global"}),
    ("preresnet_18", {}, {"conv": 8}, set()),
    ("alternet_18", {}, {"attention": 3, "conv": 5}, {"global", "windowed"}),
    ("pit_ti", {"depths": (1, 1, 1)}, {"attention": 3, "mlp": 3, "downsample": 2}, {"global"}),
    (
        "swin_ti",
        {"depths": (2, 2, 2, 2)},
        {"attention": 8, "mlp": 8, "downsample": 3},
        {"global", "windowed"},
    ),
    (
        "twins_s",
        {"depths": (2, 2, 2, 2)},
        {"attention": 8, "conv": 4, "mlp": 8, "downsample": 3},
        {"global", "reduced", "windowed"},
    ),
    ("mixer_ti", {"depth": 2}, {"mlp": 2, "token-mlp": 2}, set()),
    ("resnet_18", {}, {"conv": 8}, set()),
    ("resnext_50", {"depths": (1, 1, 1, 1)}, {"conv": 4}, set()),
    ("bit_50x1", {"depths": (1, 2, 1, 1)}, {"conv": 5}, set()),
    ("poolformer_s12", {"depths": (1, 1, 1, 1)}, {"mlp": 4, "pool": 4, "downsample": 3}, set()),
    ("cnn_s", {}, {"conv": 5, "downsample": 3}, set()),
    ("mlp_s", {}, {}, set()),
]


TRIED = {name.partition("/")[0].rpartition("_")[0] for name, *_ in CASES}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - TRIED) or ["vit"])
def test_a_family_without_a_case_opens(family: str) -> None:
    model = awake(vitreous.build(FAMILIES[family].names()[0], image=32, classes=10)).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(
            vitreous.open(model)(images), model(images), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join([case[0], *map(str, case[1].values())])
)
def test_opens_with_the_right_anatomy(case: Case) -> None:
    name, options, expected, reach = case
    model = awake(vitreous.build(name, image=32, classes=10, **options)).eval()
    specimen = vitreous.open(model)
    images = torch.randn(3, *specimen.anatomy.image)
    with torch.no_grad():
        torch.testing.assert_close(specimen(images), model(images), rtol=1e-4, atol=1e-5)
    counts = {
        kind: n for kind, n in specimen.anatomy.counts().items() if kind not in ("stem", "head")
    }
    assert (counts, {unit.reach for unit in specimen.units if unit.reach}) == (expected, reach)
    lost = [unit.name for unit in specimen.units if unit.grid is None and unit.kind != "head"]
    assert lost == ([] if name != "mlp_s" else ["features.1"])


def test_a_block_without_skips_says_so() -> None:
    specimen = vitreous.open(
        vitreous.build("vit_ti/4", image=32, classes=10, depth=2, skipless=(1,))
    )
    assert [unit.skip for unit in specimen.units] == [False, True, True, False, False, False]
