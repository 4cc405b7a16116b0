"""The doctor says what is there, and a pair of builds that does not fit is one sentence and exit
code 1."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
import torchvision

import vitreous
from vitreous.cli import main
from vitreous.commands import doctor

Usage = namedtuple("Usage", "total used free")


def problems(full: bool = True) -> list[str]:
    return [check.problem for check in doctor.examine(full) if check.problem]


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    for full in (False, True):
        found = {check.name: check.found for check in doctor.examine(full)}
        assert problems(full) == []
        assert found["vitreous"] == vitreous.__version__
        assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
        built = "with CUDA" if torch.version.cuda else "for the CPU"
        assert f"fit, built {built}" in found["torch and torchvision"]
        with pytest.raises(SystemExit) as end:
            main(["doctor", "--full"] if full else ["doctor"])
        assert end.value.code == 0
        assert "torch and torchvision  fit" in capsys.readouterr().out
    assert found["threads"] == str(torch.get_num_threads())


def test_compiled_code_that_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(torchvision.ops, "nms", broken)
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--full"])
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert (
        "do not work together (RuntimeError: operator torchvision::nms does not exist); reinstall "
        "both" in said
    )
    assert "Traceback" not in said


def test_a_torch_that_torchvision_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {"torchvision": ["numpy", "torch==2.9.0"]}
    monkeypatch.setattr(doctor, "requires", needs.get)
    versions = {"torch": "2.15.0+cu132", "torchvision": "0.24.0", "timm": "1"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    assert problems(full=False) == [
        "torchvision 0.24.0 needs torch==2.9.0, and 2.15.0+cu132 is installed; reinstall both from "
        "the same index."
    ]
    versions["torch"] = "2.9.0+cu132"
    assert problems(full=False) == []


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n", "with CUDA"),
        ("__version__ = '2.15.0'\ncuda: Optional[str] = '13.2'\n", "with CUDA"),
        ("__version__ = '2.15.0'\ncuda: Optional[str] = None\nhip = None\n", "for the CPU only"),
        ("__version__ = '0.29.2+cpu'\n", "for the CPU only"),
        ("__version__ = '0.29.2+cu132'\n", "with CUDA"),
        ("__version__ = '0.29.2'\n", ""),
        ("", ""),
    ],
)
def test_what_a_package_is_built_for_without_importing_it(
    text: str, built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_torch").mkdir()
    (tmp_path / "odd_torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "odd_torch" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor._built_for("odd_torch") == built
    assert doctor._built_for("no_such_torch") == ""


def test_builds_that_differ_are_known_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"torch": "with CUDA", "torchvision": "for the CPU only"}
    monkeypatch.setattr(doctor, "_built_for", built.__getitem__)
    [problem] = problems(full=False)
    assert problem.startswith("torch is built with CUDA and torchvision for the CPU only;")


def test_a_gpu_and_whether_torch_can_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_nvidia_gpus", lambda: ["NVIDIA H200"])
    for built, device in {
        "with CUDA": "NVIDIA H200",
        "for the CPU only": "cpu (NVIDIA H200 is there, but torch is built for the CPU only)",
    }.items():
        monkeypatch.setattr(doctor, "_built_for", lambda package, built=built: built)
        found = {check.name: check.found for check in doctor.examine()}
        assert found["device"] == device


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
