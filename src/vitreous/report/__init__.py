"""The report: one inspection as one HTML file that opens anywhere, asks no network, and can be sent to a colleague."""

from __future__ import annotations

from vitreous.report.page import write

__all__ = ["write"]
