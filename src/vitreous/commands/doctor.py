"""`vitreous doctor`: check the installation: versions, torch and torchvision, device, plugins.

It answers within a second, because it reads what packages say about themselves instead of importing
torch. `--full` imports it and runs compiled code of torchvision.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from vitreous import __version__, model_names
from vitreous.commands.terminal import complain, console
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.plugin_source import find_problem
from vitreous.plugins import (
    ANALYSIS,
    BOOK,
    KINDS,
    MODEL,
    PROBE,
    RECIPE,
    Installed,
    Kind,
    find_clashes,
    installed_objects,
    load_object,
)
from vitreous.training import recipes

REQUIRED = ("torch", "torchvision", "timm")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ENOUGH_DISK = 2.0
"""GB below which a run or a download of weights is likely to fail."""
REINSTALL = "reinstall both from the same index."
PATIENCE = 5.0
"""Seconds for NVIDIA's driver to answer."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check; `problem` says what is wrong and what to do, or is empty."""

    name: str
    found: str
    problem: str = ""


def examine(full: bool = False) -> list[Check]:
    """Run every check, in the order in which one would fix them; `full` imports torch."""
    return [
        Check("vitreous", __version__),
        Check("python", platform.python_version()),
        *map(_package, REQUIRED),
        _transformers(),
        _running_builds() if full else _declared_builds(),
        *(_torch_devices() if full else [_device()]),
        Check("cores", str(_cores())),
        _disk(),
        _chromium(),
        *_plugins(full),
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


def _declared_builds() -> Check:
    """Check torch and torchvision by their metadata: versions that fit, both for CPU or CUDA."""
    name = "torch and torchvision"
    torch, torchvision = _version("torch"), _version("torchvision")
    if torch is None or torchvision is None:
        return Check(name, "not both are there")  # another check reports the missing one
    for text in requires("torchvision") or ():
        needed = Requirement(text)
        if needed.name == "torch" and not needed.specifier.contains(torch, prereleases=True):
            problem = f"torchvision {torchvision} needs torch{needed.specifier}, and {torch} is"
            return Check(name, "do not fit", f"{problem} installed; {REINSTALL}")
    ours, theirs = _built_for("torch"), _built_for("torchvision")
    if ours and theirs and ours != theirs:
        problem = f"torch is built {ours} and torchvision {theirs}; {REINSTALL}"
        return Check(name, "do not fit", problem)
    return Check(name, f"fit{f', built {ours}' if ours else ''} (--full also runs them)")


def _built_for(package: str) -> str:
    """What a package was built for, according to its `version.py`; "" if that does not say."""
    spec = find_spec(package)
    if spec is None or not spec.origin:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    cuda = re.search(r"^cuda\b.*= (?:'([\d.]+)'|None)$", text, re.MULTILINE)
    label = re.search(r"^__version__ = '[^'+]*(?:\+(\w+))?", text, re.MULTILINE)
    if cuda:
        return "with CUDA" if cuda[1] else "for the CPU only"
    if label and label[1]:
        return "with CUDA" if label[1].startswith("cu") else "for the CPU only"
    return ""


def _running_builds() -> Check:
    """Check that compiled code of torchvision runs: a mismatched pair fails late and obscurely."""
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


def _device() -> Check:
    """Check which device the machine has, and whether torch can use it, without importing torch."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return Check("device", "mps")
    names = _nvidia_gpus()
    if not names:
        return Check("device", "cpu")
    gpus = ", ".join(names)
    if _built_for("torch") == "for the CPU only":
        return Check("device", f"cpu ({gpus} is there, but torch is built for the CPU only)")
    return Check("device", gpus)


def _nvidia_gpus() -> list[str]:
    """Names of GPUs, from the tool that comes with NVIDIA's driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def _torch_devices() -> list[Check]:
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


def _cores() -> int:
    """Cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 1e9
    low = f"Only {free:.1f} GB are free here; make room before training or downloading weights."
    return Check("free disk", f"{free:.0f} GB", low if free < ENOUGH_DISK else "")


def _chromium() -> Check:
    found = next((path for path in map(shutil.which, CHROMIUMS) if path), None)
    return Check("chromium", found or "none (only tests of reports need one)")


def _plugins(full: bool) -> list[Check]:
    """Check the plugins of installed packages; `full` also loads them, which runs their files."""
    checks = []
    clashes = {
        PROBE: find_clashes(PROBE, probes.own_names()),
        ANALYSIS: find_clashes(ANALYSIS, analyses.own_names()),
        MODEL: model_names.plugin_clashes(),
        RECIPE: find_clashes(RECIPE, recipes.own_names()),
    }
    for kind in KINDS:
        for each in installed_objects(kind.group):
            problem = clashes.get(kind, {}).get(each.key, "")
            why = find_problem(each.text) or (full and _load_failure(kind, each)) or ""
            if why and not problem:
                what = f"The {kind.what} {each.key!r} of the package {each.package}"
                problem = (
                    f"{what} cannot be used: {why.rstrip('.')}; mend or remove {each.package}."
                )
            checks.append(Check(f"plugin {each.origin}", f"{kind.what} {each.key}", problem))
    return checks


def _load_failure(kind: Kind, plugin: Installed) -> str:
    """Load a plugin, and return why that fails; "" if it succeeds."""
    from vitreous.claims.book import Book  # numpy comes with it

    try:
        if kind is PROBE:
            probes.named(plugin.key)
        elif kind is ANALYSIS:
            analyses.named(plugin.key)
        elif kind is RECIPE:
            recipes.named(plugin.key)
        elif kind is BOOK:
            load_object(plugin.text, BOOK, lambda found: isinstance(found, Book))
        else:
            load_object(plugin.text, MODEL, callable)
    except VitreousError as error:
        return str(error).splitlines()[-1]
    return ""


def _brief(error: BaseException) -> str:
    first_line = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {first_line}".rstrip(".")


def check_installation(*, full: bool = False) -> int:
    """Check the installation: versions, torch and torchvision, device, disk.

    Example: vitreous doctor --full

    Parameters
    ----------
    full
        Also import torch and torchvision and run them, and load plugins, which takes seconds.
    """
    from rich.table import Table

    checks = examine(full)
    table = Table(show_header=False, box=None)
    for check in checks:
        table.add_row("[red]✗[/]" if check.problem else "[green]✓[/]", check.name, check.found)
    console().print(table)
    for check in checks:
        if check.problem:
            complain(check.problem)
    return int(any(check.problem for check in checks))
