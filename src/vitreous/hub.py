"""Peace with the Hugging Face hub: whether it answers is found out once and quickly, and then
nobody waits for it."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

log = logging.getLogger("vitreous")

PATIENCE = 3.0
"""Seconds in which the hub has to answer before we go on without it; its own client takes 23 to
find out."""


@cache
def reachable() -> bool:
    """Whether the hub answers. Asked once a process; a 'no' is announced once and means the
    local cache only."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        log.warning(
            "Offline, as HF_HUB_OFFLINE asks: what is not in the local cache cannot be had."
        )
        return False
    if "https" in getproxies() or is_listening(constants.ENDPOINT):
        return True
    log.warning("The hub cannot be reached: what is not in the local cache cannot be had.")
    return False


def is_listening(url: str) -> bool:
    """Whether somebody listens at `url`. In a thread, because looking up a name obeys no
    timeout."""
    place, heard = urlsplit(url), SimpleQueue[bool]()

    def knock() -> None:
        try:
            port = place.port or (80 if place.scheme == "http" else 443)
            socket.create_connection((place.hostname or "", port), PATIENCE).close()
            heard.put(True)
        except OSError:
            heard.put(False)

    Thread(target=knock, daemon=True).start()
    try:
        return heard.get(timeout=PATIENCE)
    except Empty:
        return False


@contextmanager
def offline() -> Iterator[None]:
    """The hub's client told not to try; as it reads its constant at every call, no option has to
    reach it. The datasets package has a copy of the constant."""
    from huggingface_hub import constants

    switches = [constants, *filter(None, [sys.modules.get("datasets.config")])]
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    try:
        for switch in switches:
            switch.HF_HUB_OFFLINE = True
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value
