"""Where a report may be written."""

from __future__ import annotations

from pathlib import Path

from vitreous.errors import VitreousError


def check_report_path(path: Path) -> None:
    """Raise if a file name does not end like an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise VitreousError(
            f"A report is written as HTML, and {path.name!r} ends otherwise; call it report.html."
        )
