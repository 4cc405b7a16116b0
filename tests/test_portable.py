"""The package can be imported where only what every system has is there: Linux, macOS and
Windows."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from warnings import catch_warnings

import vitreous

SOURCE = Path(vitreous.__file__).parent
THEIRS = [
    "altair", "cyclopts", "filelock", "hypothesis", "matplotlib.pyplot", "multiprocessing.util",
    "numpy", "pandas", "PIL.Image", "pyarrow.parquet", "rich", "safetensors.torch", "scipy",
    "scipy.linalg", "scipy.optimize", "scipy.stats", "sklearn", "sklearn.linear_model",
    "threadpoolctl", "timm", "torch", "torch.distributed", "torch.export", "torch.func",
    "torchvision", "torchvision.models", "vl_convert",
]  # fmt: skip
"""What others need is imported before anything is hidden; of torch, what it imports when used."""
MODULES = [
    "fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "pty", "posix", "crypt", "nis",
    "spwd",
]  # fmt: skip
NAMES = {
    os: [
        "fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "setsid", "sched_getaffinity",
        "uname", "posix_fallocate", "mkfifo", "chown", "fchmod", "getloadavg", "statvfs", "WNOHANG",
        "waitid",
    ],
    signal: [
        "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGQUIT", "alarm",
        "setitimer", "pause",
    ],
}  # fmt: skip


def modules() -> list[str]:
    paths = sorted(path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py"))
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.endswith("__main__")]


def import_all(names: list[str]) -> str:
    """Hide what only POSIX has and import ours anew; which of them fail, and how many there are."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "vitreous"]:
        del sys.modules[name]
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment] # importing it is an error from here on
    for module, hidden in NAMES.items():
        for name in hidden:
            if hasattr(module, name):
                delattr(module, name)
    said = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            said.append(f"{name}: {type(error).__name__}: {error}")
    return "\n".join([*said, f"{len(names)} modules"])


def test_every_module_can_be_imported_without_what_only_posix_has(tmp_path: Path) -> None:
    """In a fork of this process, which has imported the rest."""
    for name in THEIRS:
        importlib.import_module(name)
    found = modules()
    assert "vitreous.storage.run_folder" in found
    report = tmp_path / "report.txt"
    with catch_warnings(action="ignore"):  # a fork may not use threads; this one does not
        child = os.fork()
    if child == 0:
        try:
            with catch_warnings(action="ignore"):  # timm knows our models already
                report.write_text(import_all(found))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert report.read_text() == f"{len(found)} modules"
