"""A dataset as a table for the terminal: size, classes, normalisation and fingerprint."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from vitreous.data.dataset import Dataset

SHOWN = 12
"""Maximum number of classes that are listed; the others are counted."""


def summary_table(data: Dataset) -> Table:
    """Images, size, classes, normalisation and fingerprint."""
    height, width = data.image
    size = f"{len(data):,} of {height}×{width}, {data.images.nbytes / 2**20:,.1f} MiB as uint8"
    rows = {
        "set": f"{data.name} · {data.split}",
        "images": size,
        "classes": _classes(data),
        "mean": "  ".join(f"{value:.4f}" for value in data.mean),
        "std": "  ".join(f"{value:.4f}" for value in data.std),
        "fingerprint": data.fingerprint,
    }
    if data.skipped:
        names = ", ".join(data.skipped[:3])
        rows["skipped"] = f"{len(data.skipped)} that cannot be decoded: {names} …"
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, Text(text))
    return table


def class_counts(data: Dataset) -> list[tuple[str, int]]:
    """Each class and its number of images; images without a label come last."""
    counts = [(name, int((data.labels == label).sum())) for label, name in enumerate(data.classes)]
    unknown = int((data.labels < 0).sum())
    if unknown:
        counts.append(("without a label", unknown))
    return counts


def _classes(data: Dataset) -> str:
    counts = class_counts(data)
    listed = ", ".join(f"{name} {count}" for name, count in counts[:SHOWN])
    rest = [count for _, count in counts[SHOWN:]]
    more = f" and {len(rest)} more of {min(rest)} to {max(rest)}" if rest else ""
    return f"{len(data.classes)}: {listed}{more}"
