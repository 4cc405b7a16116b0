"""What a set of images is made of, as a table for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from vitreous.data.dataset import Dataset

SHOWN = 12
"""Classes that are listed before the rest is summed up."""


def counts(data: Dataset) -> list[tuple[str, int]]:
    """Each class and how many images it has; those without a label come last."""
    found = [(name, int((data.labels == label).sum())) for label, name in enumerate(data.classes)]
    unknown = int((data.labels < 0).sum())
    return found + [("without a label", unknown)] * bool(unknown)


def table(data: Dataset) -> Table:
    """Images, size, classes, normalisation and fingerprint."""
    height, width = data.image
    shown = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    shown.add_column(style="dim")
    shown.add_column(overflow="fold")
    shown.add_row("set", Text(f"{data.name} · {data.split}"))
    shown.add_row(
        "images",
        Text(f"{len(data):,} of {height}×{width}, {data.images.nbytes / 2**20:,.1f} MiB as uint8"),
    )
    shown.add_row("classes", Text(_classes(data)))
    shown.add_row("mean", Text("  ".join(f"{value:.4f}" for value in data.mean)))
    shown.add_row("std", Text("  ".join(f"{value:.4f}" for value in data.std)))
    shown.add_row("fingerprint", Text(data.fingerprint))
    if data.skipped:
        shown.add_row(
            "skipped",
            Text(f"{len(data.skipped)} that cannot be decoded: {', '.join(data.skipped[:3])} …"),
        )
    return shown


def _classes(data: Dataset) -> str:
    found = counts(data)
    listed = ", ".join(f"{name} {count}" for name, count in found[:SHOWN])
    rest = [count for _, count in found[SHOWN:]]
    more = f" and {len(rest)} more of {min(rest)} to {max(rest)}" if rest else ""
    return f"{len(data.classes)}: {listed}{more}"
