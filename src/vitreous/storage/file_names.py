"""Names of files that are valid on every operating system, Windows included."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

MAX_LENGTH = 100
"""Maximum length in bytes of a name without its ending; file systems allow 255 in total."""
PORTS = {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
RESERVED = {"con", "prn", "aux", "nul"} | PORTS
"""Names of devices, which no file may have on Windows, whatever its ending."""


def model_words(model: str) -> list[str]:
    """The words of a model's name, without folders and without characters that file systems refuse.

    >>> model_words("hf:google/vit-base")
    ['hf', 'vit', 'base']
    """
    source, colon, rest = model.rpartition(":")
    is_path = bool(colon) or model.startswith((".", "/", "~"))
    if is_path:  # `vit_ti/4` is a name, `run:runs/4` a path
        rest = rest.rstrip("/").rpartition("/")[2] or rest
    source = source.rpartition("/")[2].removesuffix(".py")
    words = re.findall(r"[\w.+]+", _composed(f"{source}-{rest}"))
    return [word for word in (each.strip(".") for each in words) if word] or ["model"]


def file_words(path: str | Path, longest: int = 60) -> str:
    """The name of a file without folders and ending, for use within another file's name.

    Letters of all scripts stay, and so does "=", which Lightning writes. Characters that some file
    system refuses become hyphens. At most `longest` bytes are kept.

    >>> file_words("runs/epoch=3-step=99.ckpt"), file_words("日本 spät.jpg")
    ('epoch=3-step=99', '日本-spät')
    """
    stem = Path(str(path).rstrip("/")).stem
    safe = re.sub(r"[^\w.+=-]+", "-", _composed(stem)).strip(".-")
    return shorten_name(safe, longest)


def checkpoint_words(weights: str) -> str:
    """The name of a checkpoint, and the key behind its @, for use within a file's name.

    >>> checkpoint_words("runs/last.pth@model_ema"), checkpoint_words("vit@home/a.pth")
    ('last-model_ema', 'a')
    """
    file, at, key = weights.rpartition("@")
    if not at or "/" in key:
        return file_words(weights)
    return f"{file_words(file)}-{file_words(key)}"


def shorten_name(name: str, longest: int) -> str:
    """The beginning of a name, at most `longest` bytes in UTF-8 and no broken character."""
    return name.encode()[:longest].decode(errors="ignore")


def _composed(name: str) -> str:
    """The same name in Unicode's composed form: macOS writes ä as two characters."""
    return unicodedata.normalize("NFC", name.encode(errors="replace").decode())


def name_models(models: Sequence[str]) -> str:
    """One or two models by their names, more as the first and how many others.

    >>> name_models(["nano:vit", "nano:resnet", "nano:mixer"])
    'nano_vit-and-2-more'
    """
    shown = ["_".join(model_words(model))[:40].strip("._") for model in models[:2]]
    if len(models) > 2:
        shown = [shown[0], f"and-{len(models) - 1}-more"]
    return "-".join(shown)


class UniqueNames:
    """Hands out names that differ, also on file systems that ignore case."""

    def __init__(self) -> None:
        self.given: set[str] = set()

    def __call__(self, *parts: str) -> str:
        """The parts, joined by hyphens; with a number if that name was given before."""
        safe = [re.sub(r"[^\w.+-]+", "_", _composed(part)).strip("._-") for part in parts]
        stem = shorten_name("-".join(filter(None, safe)), MAX_LENGTH).strip("._-") or "result"
        if stem.partition(".")[0].casefold() in RESERVED:
            stem = f"result-{stem}"
        name, count = stem, 1
        while name.casefold() in self.given:
            count += 1
            name = f"{stem}-{count}"
        self.given.add(name.casefold())
        return name
