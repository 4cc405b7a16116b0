"""The format of a checkpoint, read from its first bytes, because file endings mislead.

Nothing here needs torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from vitreous.errors import VitreousError

MAX_HEADER = 100 << 20
"""Largest header of a safetensors file, in bytes; the library's own reader has the same limit."""
PICTURE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")


def checkpoint_format(path: Path) -> Literal["safetensors", "torch"]:
    """The format of a checkpoint; raises for a file that holds no weights.

    Examples
    --------
    >>> checkpoint_format(Path("model.safetensors"))
    'safetensors'
    """
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise VitreousError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= MAX_HEADER:
        return "safetensors"
    if start.startswith((b"PK\x03\x04", b"\x80")):
        return "torch"
    if not start:
        problem, remedy = "is empty", "copy or download it again"
    elif start.startswith(b"version https://git-lfs"):
        problem, remedy = "is a pointer of Git LFS and not the weights", "run `git lfs pull`"
    elif start.startswith(PICTURE_STARTS) or start[8:12] == b"WEBP":
        problem, remedy = "is a picture and not a checkpoint", "give the file with the weights"
    else:
        problem, remedy = "is neither safetensors nor written by torch.save", "convert it"
    raise VitreousError(f"{str(path)!r} {problem}; {remedy}.")
