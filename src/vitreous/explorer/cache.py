"""A least-recently-used cache with a limit of bytes or of values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentlyUsed(Generic[Value]):
    """Keeps the values that were used most recently, up to a limit; the newest is always kept.

    Parameters
    ----------
    room
        Maximum sum of the sizes of the values.
    size
        Size of a value (default: 1, so that `room` is a number of values).

    Examples
    --------
    >>> cache = RecentlyUsed[str](room=2)
    >>> for letter in "abc":
    ...     cache.put(letter, letter.upper())
    >>> cache.get("a"), cache.get("c")
    (None, 'C')
    """

    def __init__(self, room: int, size: Callable[[Value], int] = lambda _: 1) -> None:
        self.room, self.used = room, 0
        self._size = size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value, which counts as used now; None if it is not kept."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value; returns it."""
        if key in self._values:
            self.used -= self._size(self._values.pop(key))
        self._values[key] = value
        self.used += self._size(value)
        while self.used > self.room and len(self._values) > 1:
            _, forgotten = self._values.popitem(last=False)
            self.used -= self._size(forgotten)
        return value
