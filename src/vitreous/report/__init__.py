"""Reports: an inspection as one HTML file that works offline and can be sent to a colleague.

`write` loads on first use, because the charts take a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.report.page import write as write

__all__ = ["write"]


def __getattr__(name: str) -> Any:
    if name != "write":
        raise AttributeError(f"module 'vitreous.report' has no attribute {name!r}")
    from vitreous.report.page import write  # pandas and Altair come with it

    return write
