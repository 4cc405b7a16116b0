"""The doctor says what is there, and a pair of builds that does not fit is one sentence and exit
code 1."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple

import pytest
import torch
import torchvision

import vitreous
from vitreous.cli import main
from vitreous.commands import doctor

Usage = namedtuple("Usage", "total used free")


def problems() -> list[str]:
    return [check.problem for check in doctor.examine() if check.problem]


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    found = {check.name: check.found for check in doctor.examine()}
    assert problems() == []
    assert found["vitreous"] == vitreous.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["threads"] == str(torch.get_num_threads())
    with pytest.raises(SystemExit) as end:
        main(["doctor"])
    assert end.value.code == 0
    assert "torch and torchvision  fit" in capsys.readouterr().out


def test_compiled_code_that_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(torchvision.ops, "nms", broken)
    with pytest.raises(SystemExit) as end:
        main(["doctor"])
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert (
        "do not work together (RuntimeError: operator torchvision::nms does not exist); reinstall "
        "both" in said
    )
    assert "Traceback" not in said


def test_one_with_cuda_and_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torchvision.version, "cuda", None, raising=False)
    assert problems()[0].startswith("torch is built with CUDA and torchvision for the CPU only;")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torchvision.version, "cuda", 13020, raising=False)
    assert problems()[0].startswith("torch is built for the CPU only and torchvision with CUDA;")


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    found = {check.name: check for check in doctor.examine()}
    assert found["timm"].problem == "timm is not installed; reinstall vitreous."
    assert found["transformers"].problem == ""
    assert "vitreous[hf]" in found["transformers"].found


def test_a_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert len(problems()) == 2
    assert "torch cannot be imported" in problems()[1]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 0.5e9))
    assert problems() == [
        "Only 0.5 GB are free here; make room before training or downloading weights."
    ]


def test_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert doctor.examine()[-1].found.startswith("none")
    assert problems() == []
