"""Everything is asked of models of every family, on photographs of many sizes, with no option but
model and data."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from timm.models.maxxvit import MaxxVit, MaxxVitCfg
from torch import nn

import vitreous
from specimen import zoo
from vitreous.cli import main
from vitreous.measure import probes
from vitreous.results.charts import chart_spec

FAMILIES = ("vit", "swin", "convnext", "tv resnet", "hf dinov2", "hf clip")
NEEDS_NOTHING = {"cka", "cost", "equivariance", "filters", "fourier", "skip_ratio", "variance"}
"""Questions that every network with a stem, a grid and skips can be asked."""


@cache
def maxvit() -> nn.Module:
    """MBConv, attention in windows and attention on a grid, in two small stages."""
    sizes = MaxxVitCfg(embed_dim=(32, 64), depths=(1, 1), block_type=("M", "M"), stem_width=8)
    return MaxxVit(sizes, img_size=56, num_classes=10)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six in two classes; a folder of a class alone has no labels."""
    home = tmp_path_factory.mktemp("photographs")
    for number in range(8):
        path = home / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        size = (50 + 9 * number, 90 - 7 * number, 3)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, size, dtype=np.uint8)).save(
            path
        )
    return home


def family(name: str) -> vitreous.Specimen:
    return vitreous.open(maxvit(), image=56) if name == "maxvit" else zoo.opened(name)[1]


@pytest.mark.parametrize("name", [*FAMILIES, "maxvit"])
def test_every_probe_runs_on_every_family(
    name: str, photographs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    found = vitreous.inspect(
        {name: family(name)}, f"folder:{photographs}", split="all", device="cpu"
    )
    assert set(found) | set(found.left_out) == set(probes.names())
    assert set(found) >= NEEDS_NOTHING
    assert {result.about["data"]["images"] for result in found.values()} == {8}
    for result in found.values():
        assert (
            result.table["value"].notna().any() if "value" in result.table else len(result.arrays)
        )
        for view in result.views:
            assert chart_spec(result, view, "light")
    assert all(why[name].endswith(".") for why in found.left_out.values())


def test_side_by_side_on_pictures_without_labels(
    photographs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    models = {name: family(name) for name in ("vit", "convnext", "hf clip")}
    found = vitreous.inspect(models, f"folder:{photographs / 'cat'}", device="cpu")
    assert set(found) >= NEEDS_NOTHING
    assert set(found.left_out["accuracy"]) == set(models)
    assert found["variance"].about["data"]["images"] == 4


def test_a_model_made_by_a_user_function(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import timm\n\ndef make():\n"
        "    return timm.create_model('test_vit', img_size=64, num_classes=2)\n"
    )
    (tmp_path / "own_family_for_tests.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as end:
        main(
            [
                "inspect",
                "own_family_for_tests:make",
                "--data",
                f"folder:{photographs}",
                "--split",
                "all",
            ]
        )
    assert end.value.code == 0
    assert (tmp_path / "inspect-own_family_for_tests-make.html").is_file()
