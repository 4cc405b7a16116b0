"""Questions that are answered while images stream by, one in a file. `vitreous.inspect` asks them, all in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.shelf import Shelf

if TYPE_CHECKING:
    from vitreous.probes.probe import Probe

MACHINERY = ("__init__", "alignment", "heads", "probe", "per_image", "pictures", "subject")
SHELF = Shelf(__name__, Path(__file__).parent, "probe", "probes", MACHINERY)
names, summary = SHELF.names, SHELF.summary


def named(name: str) -> type[Probe]:
    """The question of this name."""
    return SHELF.named(name)
