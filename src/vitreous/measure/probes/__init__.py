"""Questions that are answered while images stream by, one in a file. `vitreous.inspect` asks them, all in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.measure.registry import Registry

if TYPE_CHECKING:
    from vitreous.measure.probe import Probe

REGISTRY = Registry(__name__, Path(__file__).parent, "probe", "probes")
names, summary = REGISTRY.names, REGISTRY.summary


def named(name: str) -> type[Probe]:
    """The question of this name."""
    return REGISTRY.named(name)
