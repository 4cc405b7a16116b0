"""Checks of the file names of reports and figures."""

from __future__ import annotations

from pathlib import Path

from vitreous.errors import VitreousError


def check_report_path(path: Path) -> None:
    """Raise if a file name does not end like an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise VitreousError(
            f"A report is written as HTML, and {path.name!r} ends otherwise; call it report.html."
        )


FIGURES = (".png", ".pdf", ".svg")
"""Endings of the files that a figure can be saved to."""


def check_figure_path(path: Path) -> None:
    """Raise if a file name does not end like a figure."""
    if path.suffix.lower() not in FIGURES:
        raise VitreousError(
            f"A picture cannot be saved as {path.name!r}; its name ends in {', '.join(FIGURES)}."
        )
