"""Effects: the numbers that a claim compares, each with a null value, a direction and a size.

A check yields effects. The first one with a direction is the **main effect**, which tests the
claim's sentence; the others support it, or are only noted. The outcome of an effect is

    reproduced   its direction is certain, and it is at least half of the paper's effect, or at
                 least the size that matters
    weaker       its direction is certain, and it is smaller than that
    no effect    its interval contains the null and excludes half of the paper's effect
    opposite     the other direction is certain
    undecided    none of these: too few images or trainings to tell

"Certain" means that the 95 % interval excludes the null. An effect with neither a value in the
paper nor a size that matters is judged by its direction alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, isfinite, log
from typing import Literal

from vitreous.claims.quantity import Quantity
from vitreous.claims.statistics import UNKNOWN, Interval95, estimate_effect

Outcome = Literal["reproduced", "weaker", "no effect", "opposite", "undecided"]
Direction = Literal["more", "less", "within"]
HALF = 0.5
"""Share of the paper's effect that is needed to count as reproduced."""


@dataclass(frozen=True)
class Effect:
    """One number of a claim, and how it is judged.

    Parameters
    ----------
    label
        What the number is: "error of ViT minus error of ResNet, in points".
    measured
        The number with its interval.
    direction
        "more" or "less" than `null`, or "within" `bound` of it. None if it is only noted.
    null
        The value of no effect.
    paper
        The same number in the paper.
    matters
        Without a number in the paper: the smallest distance from the null that would matter.
    bound
        For "within": the largest distance from the null. For "more" and "less": a bound on the
        whole interval, if the sentence names one ("at most 2 %") instead of an effect.
    control
        The same number of untrained networks.
    learned
        What training adds: the paired difference (or ratio) to untrained networks.
    saturated
        Whether it compares accuracies that are too close to 100 % to differ.
    """

    label: str
    measured: Interval95
    direction: Direction | None = None
    null: float = 0.0
    paper: float | None = None
    matters: float | None = None
    bound: float | None = None
    control: Interval95 | None = None
    learned: Interval95 | None = None
    saturated: bool = False
    quantity: Quantity | None = None

    @property
    def ratio(self) -> bool:
        """Whether it is a ratio with null one; distances are then differences of logarithms."""
        return self.null == 1.0 and self.measured.ratio

    @property
    def seeds(self) -> int:
        return self.measured.seeds

    @property
    def sign(self) -> int:
        return -1 if self.direction == "less" else 1

    def distance(self, value: float) -> float:
        """Signed distance of a value from the null, positive in the claimed direction."""
        away = log(value / self.null) if self.ratio else value - self.null
        return self.sign * away

    @property
    def required_distance(self) -> float:
        """The smallest distance from the null that is reproduced; 0 if any distance will do."""
        if self.paper is not None:
            return max(HALF * self.distance(self.paper), 0.0)
        return self.matters or 0.0

    @property
    def threshold(self) -> float:
        """The value that is at `required_distance` from the null, or the bound if there is one."""
        if self.bound is not None and self.direction != "within":
            return self.bound
        if self.ratio:
            return self.null * exp(self.sign * self.required_distance)
        return self.null + self.sign * self.required_distance

    @property
    def criterion(self) -> str:
        """The condition for "reproduced", in words."""
        if self.direction is None:
            return "noted"
        if self.direction == "within":
            return f"within {self.bound:g} of {self.null:g}"
        if self.bound is not None:
            return f"at {'least' if self.sign > 0 else 'most'} {self.bound:g}"
        side, limit = ("more", "at least") if self.sign > 0 else ("less", "at most")
        direction = f"{side} than {self.null:g} for certain"
        if not self.required_distance:
            return direction
        half = " (half of the paper's effect)" if self.paper is not None else ""
        return f"{direction}, {limit} {self.threshold:.3g}{half}"

    @property
    def share_of_paper(self) -> float | None:
        """The effect as a share of the paper's; None where the paper has no effect to compare with,
        or the sentence names a bound, which is no null."""
        if self.paper is None or self.bound is not None or not self.distance(self.paper) > 0:
            return None
        if not isfinite(self.measured.value):
            return None
        return self.distance(self.measured.value) / self.distance(self.paper)

    @property
    def p_value(self) -> float:
        """Two-sided p-value against the null; for "within", against the nearer bound.

        It is below 5 % exactly if the effect is certain, in either direction.
        """
        return self.measured.p_value(self.nearest_null)

    @property
    def nearest_null(self) -> float:
        """The value that `p_value` tests against: the null, or for "within" the nearer bound."""
        if self.direction != "within" or self.bound is None:
            return self.null
        above = self.measured.value > self.null
        return self.null + self.bound if above else self.null - self.bound

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, as defined at the head of this file; None if it is only noted."""
        if self.direction is None:
            return None
        if not isfinite(self.measured.value) or self.saturated:
            return "undecided"
        if self.direction == "within":
            return self._equivalence()
        if self.bound is not None:
            return self._bounded()
        return self.judge(self.measured)

    def judge(self, measured: Interval95) -> Outcome:
        """The outcome if this were the measured interval, without a bound."""
        ends = sorted(self.distance(end) for end in (measured.low, measured.high))
        if ends[0] > 0:
            is_large = self.distance(measured.value) >= self.required_distance
            return "reproduced" if is_large else "weaker"
        if ends[1] < 0:
            return "opposite"
        if self.required_distance > 0 and ends[1] < self.required_distance:
            return "no effect"
        return "undecided"

    def _equivalence(self) -> Outcome:
        """The outcome of an equivalence: two one-sided tests of 2.5 % each."""
        assert self.bound is not None
        low, high = self.measured.low - self.null, self.measured.high - self.null
        if -self.bound <= low and high <= self.bound:
            return "reproduced"
        return "opposite" if low > self.bound or high < -self.bound else "undecided"

    def _bounded(self) -> Outcome:
        """The outcome of a bound, which the whole interval has to keep."""
        assert self.bound is not None
        ends = [self.sign * (end - self.bound) for end in (self.measured.low, self.measured.high)]
        if min(ends) >= 0:
            return "reproduced"
        return "opposite" if max(ends) < 0 else "undecided"

    def with_control(self, control: Effect) -> Effect:
        """A copy with the control, the same effect of untrained networks, and what is learned."""
        if self.quantity is None or control.quantity is None or not control.quantity.known:
            return self
        if self.ratio:
            learned = estimate_effect(self.quantity / control.quantity, ratio=True)
        else:
            learned = estimate_effect(self.quantity - control.quantity)
        return replace(self, control=control.measured, learned=learned)

    @property
    def controlled(self) -> bool:
        """Whether there is a finite number of untrained networks to compare with."""
        return self.control is not None and isfinite(self.control.value)

    @property
    def holds_untrained(self) -> bool:
        """Whether untrained networks show the effect, and training does not certainly add to it.

        If a size is required, training must also add less than that size.
        """
        if not self.shown_untrained or (self.bound is None and self.is_learned):
            return False
        rule = self._learned_effect
        if rule is None or rule.required_distance == 0:
            return True
        return rule.distance(rule.measured.value) < rule.required_distance

    @property
    def shown_untrained(self) -> bool:
        """Whether untrained networks certainly show the effect."""
        if self.control is None or not self.controlled:
            return False
        if self.bound is not None:
            return replace(self, measured=self.control).outcome == "reproduced"
        if self.ratio and not self.control.low > 0:
            return False  # the logarithm is not defined
        return min(self.distance(end) for end in (self.control.low, self.control.high)) > 0

    @property
    def is_learned(self) -> bool:
        """Whether trained networks certainly have more of the effect than untrained ones, or keep a
        bound that untrained ones certainly do not.

        The paired difference decides. It is not enough that the effect is certain in trained
        networks and not in untrained ones: if the two do not differ, that happens in up to a
        quarter of the studies.
        """
        if self.bound is not None and self.control is not None:
            without = replace(self, measured=self.control).outcome
            return without == "opposite" or self.judge_learned() == "reproduced"
        return self.judge_learned() in ("reproduced", "weaker")

    def judge_learned(self) -> Outcome | None:
        """The outcome of what training adds; None without an untrained control."""
        rule = self._learned_effect
        return rule.judge(rule.measured) if rule is not None else None

    @property
    def _learned_effect(self) -> Effect | None:
        """What training adds, as an effect with null 0 (or ratio 1) and the same required size."""
        if self.learned is None or not isfinite(self.learned.value) or self.direction == "within":
            return None
        size = 0.0 if self.bound is not None else self.required_distance
        null = 1.0 if self.ratio else 0.0
        return replace(self, measured=self.learned, null=null, paper=None, matters=size, bound=None)


def _effect(
    label: str,
    quantity: Quantity,
    direction: Direction | None,
    null: float,
    *,
    paper: float | None = None,
    matters: float | None = None,
    bound: float | None = None,
) -> Effect:
    _check_numbers(quantity, direction, null, paper=paper, matters=matters, bound=bound)
    ratio = null == 1.0 and bound is None and bool((quantity.values > 0).all())
    unknown = replace(UNKNOWN, ratio=ratio)
    measured = estimate_effect(quantity, ratio=ratio) if quantity.known else unknown
    return Effect(
        label,
        measured,
        direction,
        null,
        paper,
        matters,
        bound,
        saturated=quantity.saturated,
        quantity=quantity,
    )


def _check_numbers(
    quantity: Quantity, direction: Direction | None, null: float, **sizes: float | None
) -> None:
    """Raise an error if an effect cannot be judged; the claim's verdict then shows the error."""
    if not isinstance(quantity, Quantity):
        raise TypeError(f"an effect takes a Quantity, not {quantity!r}")
    for name, value in {"null": null, **sizes}.items():
        if value is None and name != "null":
            continue
        if not isinstance(value, (int, float)) or not isfinite(value):
            raise ValueError(f"an effect takes a finite number as {name}, not {value!r}")
    paper, matters = sizes["paper"], sizes["matters"]
    if matters is not None and matters <= 0:
        raise ValueError(f"what matters is a distance above zero, not {matters:g}")
    if paper is not None and null == 1.0 and direction is not None and paper <= 0:
        raise ValueError(f"the paper has {paper:g}, and a ratio is above zero")


def more(
    label: str,
    quantity: Quantity,
    than: float = 0.0,
    paper: float | None = None,
    *,
    matters: float | None = None,
) -> Effect:
    """An effect of which the claim says that it lies above `than`, the value of no effect.

    Parameters
    ----------
    label
        What the number is.
    quantity
        The number, one per training. Where `than` is 1, it is a ratio.
    than
        The value of no effect.
    paper
        The same number in the paper; half of that effect counts as reproduced.
    matters
        Without a number in the paper: the smallest distance from `than` that matters. For a ratio,
        the logarithm of the smallest ratio.

    Examples
    --------
    >>> yield more("error of ViT minus that of ResNet, in points", gap, paper=16.2)
    """
    return _effect(label, quantity, "more", than, paper=paper, matters=matters)


def less(
    label: str,
    quantity: Quantity,
    than: float = 0.0,
    paper: float | None = None,
    *,
    matters: float | None = None,
) -> Effect:
    """An effect of which the claim says that it lies below `than`; otherwise as `more`."""
    return _effect(label, quantity, "less", than, paper=paper, matters=matters)


def at_least(label: str, quantity: Quantity, bound: float, paper: float | None = None) -> Effect:
    """A claim that names a bound instead of an effect: the whole interval is `bound` or more."""
    return _effect(label, quantity, "more", bound, paper=paper, bound=bound)


def at_most(label: str, quantity: Quantity, bound: float, paper: float | None = None) -> Effect:
    """A claim that names a bound instead of an effect: the whole interval is `bound` or less."""
    return _effect(label, quantity, "less", bound, paper=paper, bound=bound)


def within(label: str, quantity: Quantity, bound: float, paper: float | None = None) -> Effect:
    """An equivalence: the effect lies between `-bound` and `bound`."""
    return _effect(label, quantity, "within", 0.0, paper=paper, bound=bound)


def noted(label: str, quantity: Quantity, paper: float | None = None) -> Effect:
    """A number that is reported beside the verdict and does not influence it."""
    return _effect(label, quantity, None, 0.0, paper=paper)
