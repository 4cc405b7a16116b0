"""The package can be imported where only what every system has is there: Linux, macOS and
Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import vitreous

SOURCE = Path(vitreous.__file__).parent
SCRIPT = """
import errno, importlib, os, pkgutil, signal, sys

# What others need is imported before anything is hidden; of torch, what it imports when it is used.
import altair, cyclopts, filelock, hypothesis, numpy, pandas, PIL.Image, pyarrow.parquet, rich
import safetensors.torch, scipy, scipy.linalg, sklearn, threadpoolctl, timm, torch, vl_convert
import torch.distributed, torch.export, torchvision, multiprocessing.util, scipy.stats
import scipy.optimize, sklearn.linear_model, torchvision.models, torch.func
import matplotlib.pyplot

POSIX = ["fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "pty", "posix", "crypt",
         "nis", "spwd"]
for name in POSIX:
    sys.modules[name] = None  # importing it is an error from here on
for name in ["fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "setsid",
             "sched_getaffinity", "uname", "posix_fallocate", "mkfifo", "chown", "fchmod",
             "getloadavg", "statvfs", "WNOHANG", "waitid"]:
    if hasattr(os, name):
        delattr(os, name)
for name in ["SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGQUIT",
             "alarm", "setitimer", "pause"]:
    if hasattr(signal, name):
        delattr(signal, name)

found = sys.argv[1:]
for name in found:
    importlib.import_module(name)
print(len(found), "modules")
"""


def modules() -> list[str]:
    paths = sorted(path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py"))
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.endswith("__main__")]


def test_every_module_can_be_imported_without_what_only_posix_has() -> None:
    found = modules()
    assert "vitreous.storage.run_folder" in found
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-c", SCRIPT, *found]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{len(found)} modules\n"
