"""The files of the live page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PageFile(NamedTuple):
    """What a server answers with."""

    media_type: str
    content: bytes


def page_files(models: Sequence[str]) -> dict[str, PageFile]:
    """Return the files of the page by their paths; "" is the page itself."""
    names = ", ".join(models).replace("&", "&amp;").replace("<", "&lt;")
    page = f"<!doctype html><title>Vitreous</title><p>The explorer of {names}"
    return {"": PageFile("text/html; charset=utf-8", page.encode())}
