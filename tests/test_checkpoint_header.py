"""A file that holds no weights is refused by its first bytes, without torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vitreous.checkpoint_header import checkpoint_format
from vitreous.errors import VitreousError


def test_files_of_weights(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(2)}
    save_file(tensors, tmp_path / "misleading.pth")
    assert checkpoint_format(tmp_path / "misleading.pth") == "safetensors"
    torch.save(tensors, tmp_path / "new.bin")
    torch.save(tensors, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    for name in ("new.bin", "old.bin"):
        assert checkpoint_format(tmp_path / name) == "torch"


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "tif", "webp"])
def test_pictures(ending: str, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / f"a.{ending}")
    with pytest.raises(VitreousError, match="is a picture and not a checkpoint"):
        checkpoint_format(tmp_path / f"a.{ending}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty; copy or download it again"),
        (b"version https://git-lfs.github.com/spec/v1", "run `git lfs pull`"),
        (b"import torch\n", "is neither safetensors nor written by torch.save"),
    ],
)
def test_other_files(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(VitreousError, match=why):
        checkpoint_format(tmp_path / "a.pth")
