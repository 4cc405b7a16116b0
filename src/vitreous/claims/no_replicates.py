"""Results of older versions, which have intervals but no bootstrap replicates.

Replicates made up from an interval are not paired between models, and a mean over layers seems more
certain than it is. So stored evidence without them is refused, unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from vitreous.claims.facts import Facts, describe_facts
from vitreous.errors import VitreousError
from vitreous.results import Result

Remedy = Callable[[str, str], str]
"""Says how a result is measured again, from its name and the command of a study."""

INTERVAL_ONLY = frozenset(("cost", "identities"))
"""Measurements that are not taken over images, so that they have intervals but no replicates."""


class NoReplicates(VitreousError):
    """A result has intervals but no replicates; names its file and what measures it again."""

    def __init__(
        self, facts: Facts, measurement: str, remedy: Remedy, command: str = "vitreous study"
    ) -> None:
        self.facts, self.measurement, self.remedy = facts, measurement, remedy
        super().__init__(
            f"{measurement} of {describe_facts(facts)} has no bootstrap replicates, as an older "
            f"version measured it: {remedy(measurement, command)}, or judge by intervals alone "
            "with --approximate."
        )

    def with_command(self, command: str) -> NoReplicates:
        """The same with the command of the study that measures it."""
        return NoReplicates(self.facts, self.measurement, self.remedy, command)


def check_replicates(result: Result, facts: Facts, remedy: Remedy) -> None:
    """Raise an error if a result lacks the replicates that its measurement keeps today."""
    if not result.replicates and result.name not in INTERVAL_ONLY:
        raise NoReplicates(facts, result.name, remedy)
