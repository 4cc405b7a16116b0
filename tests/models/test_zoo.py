"""Networks trained on real images: names, weights in parts, and what happens where they are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import vitreous
from vitreous import model_names
from vitreous.errors import UnknownName, VitreousError
from vitreous.models.loading import list_models, load_model
from vitreous.storage.atomic_files import Damaged
from vitreous.storage.run_folder import Run

ROOT = Path(__file__).parents[2]
NETWORKS = sorted(path.parent.name for path in (ROOT / "zoo").glob("*/recipe.json"))
pytestmark = pytest.mark.skipif(not NETWORKS, reason="not a clone of the repository")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_opens_by_name_and_was_trained(name: str) -> None:
    """Its folder is a run, its readme states the accuracy of the record, and no file is large."""
    specimen = vitreous.open(f"zoo:{name}")
    scores = specimen(torch.zeros(1, 3, 32, 32))
    assert scores.shape == (1, 10)
    assert bool(scores.isfinite().all())
    assert f"zoo:{name}" in list_models("zoo:*")
    last = Run(ROOT / "zoo" / name).records()[-1]
    row = next(
        line
        for line in (ROOT / "zoo" / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `zoo:{name}`")
    )
    assert f"{1 - last['test_error']:.2%}".replace("%", " %") in row
    files = [path for path in (ROOT / "zoo" / name).rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 16 << 20


def test_weights_in_parts_are_those_that_were_saved(tmp_path: Path) -> None:
    shutil.copytree(model_names.BUNDLED / "mixer", tmp_path / "run")
    run = Run(tmp_path / "run")
    tensors, notes = run.read_weights()
    run.weights()[0].unlink()
    run.save_weights(tensors, limit=200_000, step=notes["step"])
    parts = run.weights()
    assert len(parts) > 1
    assert all(path.stat().st_size < 250_000 for path in parts)
    assert "final" in run.checkpoints()
    assert not any("-of-" in name for name in run.checkpoints())
    again, later = run.read_weights()
    assert later["step"] == notes["step"]
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    image = torch.ones(1, 3, 32, 32)
    expected = load_model("nano:mixer")(image)
    assert torch.equal(load_model(f"run:{run.folder}")(image), expected)
    damaged = bytearray(parts[-1].read_bytes())
    damaged[-1] ^= 1
    parts[-1].write_bytes(damaged)
    with pytest.raises(Damaged):
        run.read_weights()
    parts[-1].unlink()
    with pytest.raises(VitreousError, match=f"have {len(parts)} parts, and {len(parts) - 1} of"):
        run.read_weights()


def test_a_name_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="zoo:resnet_18"):
        load_model("zoo:resnet_19")
    monkeypatch.setenv("VITREOUS_ZOO", str(tmp_path))
    assert list_models("zoo:*") == []
    with pytest.raises(VitreousError, match="not in the wheel: clone"):
        model_names.check_model("zoo:vit_ti_4")
