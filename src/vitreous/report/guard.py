"""`Guard`: a part of a report that fails is replaced by a sentence, and the rest is written.

Everything that renders a part of a page, a file beside it or a line on the terminal is called
through one `Guard`, which notes what failed. At the end `guard.check()` raises one error with a
line for each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from vitreous.errors import VitreousError, reason
from vitreous.results.words import escape

T = TypeVar("T")


class Unrendered(VitreousError):
    """A report was written without some of its parts; one line for each that failed."""

    code = 1


class Guard:
    """Calls functions that render a part, and notes those that fail."""

    def __init__(self) -> None:
        self.failures: dict[str, str] = {}
        """The reason for each part that failed."""
        self.not_judged: dict[str, str] = {}
        """The reason for each claim whose check failed."""

    def lines(self, what: str, make: Callable[..., Iterable[str]], *given: Any) -> list[str]:
        """Return the lines of a part of the page, or one that says why it failed."""
        return self.run(what, lambda: list(make(*given)), lambda why: [_apology(what, why)])

    def text(self, what: str, make: Callable[..., str], *given: Any) -> str:
        """Return a part of the page that is one string, or a sentence that says why it failed."""
        return self.run(what, lambda: make(*given), lambda why: _apology(what, why))

    def run(
        self,
        what: str,
        make: Callable[[], T],
        instead: Callable[[str], T],
        let: type[Exception] | tuple[()] = (),
    ) -> T:
        """Return `make()`, or `instead(reason)` if it fails; exceptions of type `let` pass."""
        try:
            return make()
        except let:
            raise
        except Exception as error:  # of any kind: one bad part must not cost hours of measuring
            self.failures[what] = reason(error)
            return instead(self.failures[what])

    def apology(self, what: str) -> list[str]:
        """Return the line that says why a part failed before the page was made, if it did."""
        return [_apology(what, self.failures[what])] if what in self.failures else []

    def check(self) -> None:
        """Raise `Unrendered` if anything failed."""
        if self.failures or self.not_judged:
            raise Unrendered("\n".join(self.sentences()))

    def sentences(self) -> list[str]:
        """Return a line for each failure."""
        judging = [f"{id} could not be judged: {why}" for id, why in self.not_judged.items()]
        return judging + [
            f"{what} could not be rendered: {why}" for what, why in self.failures.items()
        ]


def _apology(what: str, why: str) -> str:
    reason_text = f"<b>{escape(what)} could not be rendered:</b> {escape(why)}"
    return f'<p class="failed" role="alert">{reason_text}</p>'
