"""A report is never lost to one of its parts: what fails is replaced by a sentence, and the rest goes on.

Everything that makes a part of a page, a file beside it or a line on the terminal is called through one `Guard`, which
remembers what failed. Whoever wrote the report asks it at the end: `guard.check()` raises one error with a line for
each failure, after everything else has been written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from vitreous.errors import VitreousError, reason
from vitreous.results.words import escape

T = TypeVar("T")


class Unrendered(VitreousError):
    """A report that was written and lacks something; one line for each part that failed."""

    code = 1


class Guard:
    """Runs what renders a part, and keeps what went wrong: part, reason."""

    def __init__(self) -> None:
        self.failures: dict[str, str] = {}

    def lines(self, what: str, make: Callable[..., Iterable[str]], *given: Any) -> list[str]:
        """The lines of a part of the page; one that says what failed if it cannot be made."""
        return self.run(what, lambda: list(make(*given)), lambda why: [_apology(what, why)])

    def text(self, what: str, make: Callable[..., str], *given: Any) -> str:
        """The same for a part that is one string."""
        return self.run(what, lambda: make(*given), lambda why: _apology(what, why))

    def run(
        self,
        what: str,
        make: Callable[[], T],
        instead: Callable[[str], T],
        let: type[Exception] | tuple[()] = (),
    ) -> T:
        """What `make` gives, or what `instead` makes of the reason why it does not; errors to `let` through pass."""
        try:
            return make()
        except let:
            raise
        except (
            Exception
        ) as error:  # whatever it is: hours of measuring are not lost to a sentence about them
            self.failures[what] = reason(error)
            return instead(self.failures[what])

    def check(self) -> None:
        """Raise if anything failed."""
        if self.failures:
            raise Unrendered("\n".join(self.sentences()))

    def sentences(self) -> list[str]:
        """A line for each failure."""
        return [f"{what} could not be rendered: {why}" for what, why in self.failures.items()]


def _apology(what: str, why: str) -> str:
    return f'<p class="failed" role="alert"><b>{escape(what)} could not be rendered:</b> {escape(why)}</p>'
