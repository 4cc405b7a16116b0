"""Locks between processes: one file that the operating system frees when its holder ends."""

from __future__ import annotations

import contextlib
import errno
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import explain_write_errors

log = logging.getLogger("vitreous")

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems that have no locks."""


class Busy(VitreousError):
    """Another process holds the lock."""


@contextlib.contextmanager
def hold_lock(path: Path, activity: str) -> Iterator[None]:
    """Hold a lock file inside the block, or raise `Busy` at once.

    Parameters
    ----------
    path : Path
        The lock file. Its folder is created if needed.
    activity : str
        What the holder does ("training"), for the error that other processes get.
    """
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, activity)
    try:
        yield
    finally:
        lock.release()


def _acquire(path: Path, activity: str) -> BaseFileLock:
    busy = f"Another process is {activity} in {str(path.parent)!r}; wait for it, or stop it."
    lock: BaseFileLock = FileLock(path, timeout=0)
    try:
        with warnings.catch_warnings():
            # filelock warns about file systems without locks; the log says so below.
            warnings.simplefilter("ignore")
            lock.acquire()
    except Timeout:
        raise Busy(busy) from None
    except (OSError, NotImplementedError) as error:
        if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
            raise
        lock = SoftFileLock(path.with_suffix(".held"), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise Busy(f"{busy} If there is none, delete {lock.lock_file!r}.") from None
    if isinstance(lock, SoftFileLock):
        log.warning(
            "%s is on a file system without locks; the file %s stands for one.",
            path.parent,
            lock.lock_file,
        )
    return lock
