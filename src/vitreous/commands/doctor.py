"""`vitreous doctor`: check the installation: versions, torch and torchvision, device, disk."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from vitreous import __version__
from vitreous.commands.terminal import complain, console

REQUIRED = ("torch", "torchvision", "timm")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ENOUGH_DISK = 2.0
"""GB below which a run or a download of weights is likely to fail."""
REINSTALL = "reinstall both from the same index."


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check; `problem` says what is wrong and what to do, or is empty."""

    name: str
    found: str
    problem: str = ""


def examine() -> list[Check]:
    """Run every check, in the order in which one would fix them."""
    return [
        Check("vitreous", __version__),
        Check("python", platform.python_version()),
        *map(_package, REQUIRED),
        _transformers(),
        _builds(),
        *_machine(),
        _disk(),
        _chromium(),
    ]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(name: str) -> Check:
    installed = _version(name)
    problem = "" if installed else f"{name} is not installed; reinstall vitreous."
    return Check(name, installed or "missing", problem)


def _transformers() -> Check:
    absent = "none ('hf:' names need pip install 'vitreous[hf]')"
    return Check("transformers", _version("transformers") or absent)


def _builds() -> Check:
    """Check that torch and torchvision fit: a pair that does not fails late and obscurely."""
    name = "torch and torchvision"
    try:
        import torch
        import torchvision

        # compiled code of torchvision, which runs only on the torch it was built for
        torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    except Exception as error:
        pair = f"torch {_version('torch')} and torchvision {_version('torchvision')}"
        problem = f"{pair} do not work together ({_brief(error)}); {REINSTALL}"
        return Check(name, "do not fit", problem)
    ours, theirs = torch.version.cuda, getattr(torchvision.version, "cuda", None)
    if (ours is None) != (theirs is None):
        built = {True: "for the CPU only", False: "with CUDA"}
        pair = f"torch is built {built[ours is None]} and torchvision {built[theirs is None]}"
        return Check(name, "do not fit", f"{pair}; {REINSTALL}")
    return Check(name, f"fit, built {'for the CPU' if ours is None else f'with CUDA {ours}'}")


def _machine() -> list[Check]:
    try:
        import torch
    except Exception as error:
        problem = f"torch cannot be imported ({_brief(error)}); reinstall it."
        return [Check("device", "unknown", problem)]
    if torch.cuda.is_available():
        device = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    else:
        device = "mps" if torch.backends.mps.is_available() else "cpu"
    return [Check("device", device), Check("threads", str(torch.get_num_threads()))]


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 1e9
    low = f"Only {free:.1f} GB are free here; make room before training or downloading weights."
    return Check("free disk", f"{free:.0f} GB", low if free < ENOUGH_DISK else "")


def _chromium() -> Check:
    found = next((path for path in map(shutil.which, CHROMIUMS) if path), None)
    return Check("chromium", found or "none (only tests of reports need one)")


def _brief(error: BaseException) -> str:
    first_line = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {first_line}".rstrip(".")


def check_installation() -> int:
    """Check the installation: versions, torch and torchvision, device, disk.

    Example: vitreous doctor
    """
    from rich.table import Table

    checks = examine()
    table = Table(show_header=False, box=None)
    for check in checks:
        table.add_row("[red]✗[/]" if check.problem else "[green]✓[/]", check.name, check.found)
    console().print(table)
    for check in checks:
        if check.problem:
            complain(check.problem)
    return int(any(check.problem for check in checks))
