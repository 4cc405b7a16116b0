"""Preconditions of testing a claim: `requires = [{classes = 50}, {accuracy = 80, of = "vit"}]`.

If a precondition is not met, the claim is "not testable here", and the verdict says what would meet
it. If a precondition cannot be evaluated because a measurement is missing, the claim is judged
anyway, and the missing measurement is reported. A training of version 0.1, whose record does not
contain its length, meets no precondition about the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vitreous.claims.evidence import Query, Trainings
from vitreous.claims.facts import check_facts, parse_facts
from vitreous.claims.readings import accuracy, recorded, warmup_steps
from vitreous.errors import UnknownName, VitreousError

KINDS = (
    "accuracy",
    "matched",
    "classes",
    "image",
    "real",
    "transfer",
    "steps",
    "warmup_steps",
    "rate_sum",
    "decay",
    "note",
)
OF_MODELS = ("accuracy", "matched", "steps", "warmup_steps", "rate_sum", "decay")
"""Kinds that are about certain models, which `of` names."""
TEXTS = ("decay", "note")
SWITCHES = ("real", "transfer")
"""Kinds whose value is true. The value of `TEXTS` is text, that of all others a number."""

Condition = Callable[[Query, Any], str]
"""A book's own precondition: returns why a claim cannot be tested on these models, or ""."""


@dataclass(frozen=True)
class Precondition:
    """One of `KINDS` with its value, and the models that it is about.

    ============  ===================================================================
    accuracy      every model in `of` has at least so many percent right
    matched       the accuracies of the models in `of` differ by at most this many points
    classes       the images have at least so many classes
    image         the images have at least so many pixels a side
    real          real images, not generated ones
    transfer      the network was pre-trained on images of other classes than it is tuned on
    steps         every model in `of` was trained for at least so many steps
    warmup_steps  the warm-up of every model in `of` had at least so many steps
    rate_sum      the learning rates of every model in `of` add up to at least so much
    decay         weight decay of every model in `of` acts on these parameters only ("matrices")
    note          never met on images this small; the text says why
    ============  ===================================================================
    """

    kind: str
    value: Any
    of: tuple[str, ...] = ()
    condition: Condition | None = None
    """The function that evaluates a kind of the book's own, which is not one of `KINDS`."""
    says: str = ""
    """The requirement of a kind of the book's own in words, with `{value}`."""

    def __str__(self) -> str:
        if self.condition is not None:
            return self.says.replace("{value}", str(self.value))
        models = " and ".join(self.of)
        return {
            "accuracy": f"{models}: at least {self.value} % of the images right",
            "matched": f"{models}: at most {self.value} points of accuracy apart",
            "classes": f"images of at least {self.value} classes",
            "image": f"images of at least {self.value} pixels a side",
            "real": "real images",
            "transfer": "a network pre-trained on images of other classes",
            "steps": f"{models}: at least {self.value} training steps",
            "warmup_steps": f"{models}: at least {self.value} steps of warm-up",
            "rate_sum": f"{models}: learning rates that add up to at least {self.value}",
            "decay": f"{models}: weight decay on {self.value} only",
            "note": f"never here. {self.value}",
        }[self.kind]

    def unmet(self, models: Query) -> str:
        """A sentence why the claim cannot be tested; empty if it can, or if it is not known."""
        if self.condition is not None:
            return self.condition(models, self.value) or ""
        if self.kind == "note":
            return str(self.value)
        if self.kind == "real":
            return "It needs real images." if models.sanity else ""
        if self.kind == "transfer":
            transferred = any("source" in item.facts for item in models.items)
            needed = (
                "It needs a ViT that was pre-trained on the labels of other classes (the fact "
                "source): `vitreous study masked` trains one, given a dataset called tiny100 "
                "beside the study's own."
            )
            return "" if transferred or not models.items else needed
        if self.kind in ("classes", "image"):
            return self._images(models)
        asked = [_asked(models, each) for each in self.of]
        if self.kind == "matched":
            return self._matched(asked)
        if self.kind == "decay":
            return next(filter(None, (self._decay(each) for each in asked)), "")
        return next(filter(None, (self._at_least(each) for each in asked)), "")

    def _decay(self, trainings: Trainings) -> str:
        recorded_decay = [
            item.results["training"].about.get("recipe", {}).get("decay", "all")
            for item in trainings.items
            if "training" in item.results
        ]
        if not recorded_decay or all(each == self.value for each in recorded_decay):
            return ""
        name = trainings.facts["model"]
        return (
            f"It needs a {name} whose weight decay acts on {self.value} only; this one's acts on "
            f"{recorded_decay[0]} parameters, and decay alone moves what is measured."
        )

    def _images(self, models: Query) -> str:
        described = [
            item.results[name].about.get("data", {})
            for item in models.items
            if "resolution" not in item.facts
            for name in list(item.results)[:1]
        ]
        if self.kind == "classes":
            actual = max((int(data.get("classes", 0)) for data in described), default=0)
            wanted, unit = f"images of at least {self.value} classes", ""
        else:
            actual = max((min(data.get("image", (0,))) for data in described), default=0)
            wanted, unit = f"images of at least {self.value} pixels a side", " pixels"
        if not actual or actual >= self.value:
            return ""
        return f"It needs {wanted}; these have {actual}{unit}."

    def _matched(self, models: list[Trainings]) -> str:
        values = [accuracy(each).values for each in models]
        if any(not len(each) for each in values):
            return ""
        means = [float(each.mean()) for each in values]
        apart = max(means) - min(means)
        if apart <= self.value:
            return ""
        return (
            f"It needs models that are at most {self.value:g} points of accuracy apart; "
            f"{' and '.join(self.of)} are {apart:.1f} points apart."
        )

    def _at_least(self, trainings: Trainings) -> str:
        name = trainings.facts["model"]
        if self.kind == "accuracy":
            values = accuracy(trainings).values
            wanted, has = f"with at least {self.value:g} % of the images right", "one has {:.1f} %"
        else:
            warmup = self.kind == "warmup_steps"
            found = warmup_steps(trainings) if warmup else recorded(trainings, self.kind)
            values = found.values
            steps = "steps of warm-up" if warmup else "training steps"
            wanted, has = f"with at least {self.value:,.0f} {steps}", "one has {:,.0f}"
            if self.kind == "rate_sum":
                wanted = f"whose learning rates add up to at least {self.value:g}"
                has = "one's add up to {:.3g}"
            if not len(values) and any("training" in item.results for item in trainings.items):
                return f"It needs a {name} {wanted}; the record of this one does not say."
        if not len(values) or values.mean() >= self.value:
            return ""
        return f"It needs a {name} {wanted}; this {has.format(float(values.mean()))}."


def _asked(models: Query, text: str) -> Trainings:
    """The trainings of a model; in the embedded world there is one size only."""
    facts = parse_facts(text)
    if models.sanity:
        facts.pop("size", None)
    return models(**facts)


def read_preconditions(
    id: str,
    entries: Iterable[Any],
    own: Mapping[str, tuple[str, Condition]] | None = None,
) -> tuple[Precondition, ...]:
    """Preconditions of a claim from its table in a book.

    `own` has the kinds that the book adds: the requirement in words, and the function.
    """
    return tuple(_read_precondition(id, entry, own or {}) for entry in entries)


def _read_precondition(
    id: str, entry: Any, own: Mapping[str, tuple[str, Condition]]
) -> Precondition:
    kinds = (*KINDS, *own)
    named = [name for name in entry if name != "of"] if isinstance(entry, dict) else []
    if len(named) != 1:
        raise VitreousError(
            f"A precondition of {id} names one of {', '.join(kinds)}, and the models it is about "
            f"as `of`; it is {entry!r}."
        )
    [kind] = named
    if kind not in kinds:
        raise UnknownName(f"precondition of {id}", kind, kinds, f"There are {', '.join(kinds)}.")
    of = entry.get("of", [])
    models = tuple(map(str, of if isinstance(of, list) else [of]))
    if not models and kind in OF_MODELS:
        raise VitreousError(
            f"The precondition {kind!r} of {id} has to name its models: "
            f'{{{kind} = {entry[kind]!r}, of = "vit"}}.'
        )
    for each in models:
        _check_model(id, kind, each)
    if kind in KINDS:
        _check_value(id, kind, entry[kind])
    says, condition = own.get(kind, ("", None))
    return Precondition(kind, entry[kind], models, condition, says)


def _check_value(id: str, kind: str, value: Any) -> None:
    """Raise an error if a precondition of this package has a value of another type."""
    if kind in TEXTS:
        is_valid, wanted = isinstance(value, str), "text in quotes"
    elif kind in SWITCHES:
        is_valid, wanted = value is True, "true"
    else:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_valid, wanted = is_number and isfinite(value), "a number"
    if not is_valid:
        raise VitreousError(f"The precondition {kind!r} of {id} takes {wanted}, not {value!r}.")


def _check_model(id: str, kind: str, text: str) -> None:
    """Raise an error if the model that a precondition names is not in the vocabulary."""
    try:
        facts = parse_facts(text)
        check_facts(facts.pop("model"), facts)
    except ValueError:
        raise VitreousError(f"The precondition {kind!r} of {id} names no model.") from None
    except UnknownName as error:
        raise VitreousError(f"The precondition {kind!r} of {id}: {error}") from None
