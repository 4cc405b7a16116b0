"""The Hugging Face hub: one quick check whether it is reachable, and working offline if not."""

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
"""Seconds in which the hub has to answer; its own client would wait for 23."""


@cache
def reachable() -> bool:
    """Whether the hub answers, checked once per process; if not, a warning says so."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        log.warning(
            "Offline, because HF_HUB_OFFLINE is set: only what is in the local cache can be loaded."
        )
        return False
    if "https" in getproxies() or is_listening(constants.ENDPOINT):
        return True
    log.warning("The hub cannot be reached: only what is in the local cache can be loaded.")
    return False


def is_listening(url: str) -> bool:
    """Whether a server listens at `url`. In a thread, because looking up a name has no timeout."""
    address, answer = urlsplit(url), SimpleQueue[bool]()

    def connect() -> None:
        try:
            port = address.port or (80 if address.scheme == "http" else 443)
            socket.create_connection((address.hostname or "", port), PATIENCE).close()
            answer.put(True)
        except OSError:
            answer.put(False)

    Thread(target=connect, daemon=True).start()
    try:
        return answer.get(timeout=PATIENCE)
    except Empty:
        return False


@contextmanager
def offline() -> Iterator[None]:
    """Make the hub's client work offline inside the block.

    The client reads the constant at every call, and the datasets package has a copy of it; setting
    both works through code that passes no option on.
    """
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
