"""Whether this installation can work, in one table: versions, builds that fit each other, device, disk."""

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


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `problem` is a sentence saying what is wrong and what to do, or empty."""

    name: str
    found: str
    problem: str = ""


def examine() -> list[Check]:
    """Every check, in the order in which one would mend them."""
    ours = [Check("vitreous", __version__), Check("python", platform.python_version())]
    return [
        *ours,
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
    found = _version(name)
    return Check(
        name,
        found or "missing",
        "" if found else f"{name} is not installed; install vitreous anew.",
    )


def _transformers() -> Check:
    return Check(
        "transformers",
        _version("transformers") or "none ('hf:' names want pip install 'vitreous[hf]')",
    )


def _builds() -> Check:
    """torch and torchvision are separate downloads, and a pair that does not fit fails late and obscurely."""
    name = "torch and torchvision"
    try:
        import torch
        import torchvision

        box = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        torchvision.ops.nms(
            box, torch.ones(1), 0.5
        )  # compiled code, so it runs only where the two fit
    except Exception as error:
        pair = f"torch {_version('torch')} and torchvision {_version('torchvision')} do not work together"
        return Check(
            name, "do not fit", f"{pair} ({_brief(error)}); install both anew, from the same place."
        )
    ours, theirs = torch.version.cuda, getattr(torchvision.version, "cuda", None)
    if (ours is None) != (theirs is None):
        built = {True: "for the CPU only", False: "with CUDA"}
        return Check(
            name,
            "do not fit",
            f"torch is built {built[ours is None]} and torchvision {built[theirs is None]}; "
            "install both anew, from the same place.",
        )
    return Check(name, f"fit, built {'for the CPU' if ours is None else f'with CUDA {ours}'}")


def _machine() -> list[Check]:
    try:
        import torch
    except Exception as error:
        return [
            Check(
                "device", "unknown", f"torch cannot be imported ({_brief(error)}); install it anew."
            )
        ]
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
    return Check("chromium", found or "none (only tests of reports want one)")


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}".rstrip(
        "."
    )


def doctor() -> int:
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
