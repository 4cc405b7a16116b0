"""The report: one inspection as one HTML file that opens anywhere, asks no network, and can be sent to a colleague.

`write` loads on first use: whoever only judges does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.report.page import write as write

__all__ = ["write"]


def __getattr__(name: str) -> Any:
    if name != "write":
        raise AttributeError(f"module 'vitreous.report' has no attribute {name!r}")
    from vitreous.report.page import write

    return write
