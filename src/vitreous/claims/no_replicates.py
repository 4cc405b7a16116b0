"""Results of older versions, which have intervals but no bootstrap replicates.

Replicates simulated from an interval are not paired between models, and make a mean over layers
look more certain than it is. So stored evidence without replicates is refused by default.
"""

from __future__ import annotations

from collections.abc import Callable

from vitreous.claims.facts import Facts, describe_facts
from vitreous.errors import VitreousError
from vitreous.results import Result

Remedy = Callable[[str, str], str]
"""Returns how to measure a result again, from its name and the command of a study."""

INTERVAL_ONLY = frozenset(("cost", "identities"))
"""Measurements that are not means over images: they have intervals, but never replicates."""


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
        """A copy of the error that names the command of the study that measures the result."""
        return NoReplicates(self.facts, self.measurement, self.remedy, command)


def check_replicates(result: Result, facts: Facts, remedy: Remedy) -> None:
    """Raise an error if a result lacks the replicates that its measurement keeps today."""
    if not result.replicates and result.name not in INTERVAL_ONLY:
        raise NoReplicates(facts, result.name, remedy)
