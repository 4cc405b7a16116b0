"""Probes, one per file. `vitreous.inspect` runs them, all in one pass over the images."""

from __future__ import annotations

from pathlib import Path

from vitreous.measure.registry import Registry
from vitreous.plugins import BOOK_PROBES, PROBE

REGISTRY = Registry(__name__, Path(__file__).parent, PROBE, "probes", BOOK_PROBES)
names, summary, named = REGISTRY.names, REGISTRY.summary, REGISTRY.named
own_names = REGISTRY.own_names
