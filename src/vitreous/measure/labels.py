"""Match classes of a dataset with a model's scores: by names, ImageNet wnids, indices or order.

A dataset may have only some of the model's classes, in another order. Its labels are renumbered
here, once, so that all other code can compare predictions with labels directly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from vitreous.data.dataset import Dataset
from vitreous.data.sources.listing import enumerate_few
from vitreous.errors import nearest_names
from vitreous.measure.subject import Subject

LIBRARIES = ("timm", "torchvision", "Hugging Face")
"""Libraries whose classifiers of 1000 or 21k classes are for ImageNet."""


@dataclass(frozen=True)
class ClassMatch:
    """How the classes of a dataset correspond to the scores of a model."""

    places: tuple[int, ...]
    """Index of the score of each class of the dataset."""
    names: tuple[str, ...]
    """Names of all scores."""
    how: str
    """How they were matched: by names, wnids, indices or order."""


def match_labels(data: Dataset, subjects: Sequence[Subject]) -> Dataset:
    """Renumber the labels of a dataset to indices of the models' scores.

    The first model whose classes can be matched decides. `matched` of the result says for every
    model why its predictions cannot be compared with the labels; the text is empty if they can.
    """
    if not data.classes or not bool((data.labels >= 0).all()):
        return data
    chosen: ClassMatch | None = None
    leader = ""
    reasons: dict[str, str] = {}
    for subject in subjects:
        if subject.outputs is None:
            continue
        match = match_classes(data.classes, subject.outputs, subject.classes, data.name)
        if isinstance(match, str):
            reasons[subject.name] = match
            continue
        if chosen is None:
            chosen, leader = match, subject.name
        same = (match.places, len(match.names)) == (chosen.places, len(chosen.names))
        reasons[subject.name] = "" if same else _other_scores(leader)
    if chosen is None:
        return replace(data, matched=reasons)
    places = torch.tensor(chosen.places, device=data.labels.device)
    note = f"{len(data.classes)} of {len(chosen.names)} classes, by {chosen.how}"
    if chosen.places == tuple(range(len(chosen.names))):
        return replace(data, matched=reasons, matched_by=note)
    labels = places[data.labels]
    return replace(data, labels=labels, classes=chosen.names, matched=reasons, matched_by=note)


def _other_scores(leader: str) -> str:
    return (
        f"Its classes have other numbers than those of {leader}, so their predictions cannot be "
        "compared with the same labels; inspect it by itself."
    )


def match_classes(
    classes: Sequence[str], outputs: int, own: Sequence[str], data: str
) -> ClassMatch | str:
    """Match the classes of a dataset with a model's scores; if impossible, return a sentence why.

    Parameters
    ----------
    classes
        Names of the dataset's classes.
    outputs
        Number of the model's scores.
    own
        Names of the model's classes, or empty.
    data
        Name of the dataset in the sentence.
    """
    own = tuple(own) if len(own) == outputs else ()
    wnids, descriptions = _imagenet(outputs)
    if own and descriptions and not _same_classes(own, descriptions):
        wnids, descriptions = (), ()
    attempts = (
        ("names", _table([name] for name in own), str),
        ("names", _table(map(_synonyms, own)), _simplified),
        ("wnids", _table([wnid] for wnid in wnids), str),
        ("indices", _table([str(number)] for number in range(outputs)), _without_zeros),
        ("names", _table(map(_synonyms, descriptions)), _simplified),
    )
    names = own or _distinct_names(descriptions, wnids) or _numbered(outputs)
    for how, table, spelled in attempts:
        places = [table.get(spelled(name), -1) for name in classes]
        if -1 not in places and len(set(places)) == len(places):
            return ClassMatch(tuple(places), names, how)
    if not own and len(classes) == outputs:
        return ClassMatch(tuple(range(outputs)), tuple(classes), "order")
    return _cannot_match(classes, outputs, own or descriptions, data)


def _table(spellings: Iterable[Iterable[str]]) -> dict[str, int]:
    """Map each spelling to the number of its class; spellings shared by classes are left out."""
    numbers: dict[str, int] = {}
    shared: set[str] = set()
    for number, spellings_of_class in enumerate(spellings):
        for spelling in spellings_of_class:
            if numbers.setdefault(spelling, number) != number:
                shared.add(spelling)
    return {spelling: number for spelling, number in numbers.items() if spelling not in shared}


def _simplified(name: str) -> str:
    """A name in lower case, with underscores, hyphens and spaces as single spaces."""
    return " ".join(re.split(r"[\s_-]+", name.casefold().strip()))


def _synonyms(name: str) -> list[str]:
    """The whole name and its parts, for names such as "tench, Tinca tinca"."""
    return [_simplified(name), *map(_simplified, name.split(","))]


def _without_zeros(name: str) -> str:
    """A number without the leading zeros of folder names: "007" becomes "7"."""
    return name.lstrip("0") or "0" if name.isdecimal() else name


@cache
def _imagenet(outputs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """timm's wnids and descriptions of the ImageNet with this number of classes, or empty."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset({"num_classes": outputs})
    if subset is None:
        return (), ()
    info = ImageNetInfo(subset)
    return tuple(info.label_names()), tuple(info.label_descriptions())


def _same_classes(own: Sequence[str], descriptions: Sequence[str]) -> bool:
    """Whether a model's class names are ImageNet's, judged by the first and the last."""
    return all(
        set(_synonyms(own[place])) & set(_synonyms(descriptions[place])) for place in (0, -1)
    )


def _distinct_names(descriptions: Sequence[str], wnids: Sequence[str]) -> tuple[str, ...]:
    """The first name of each description, with the wnid if several classes have this name."""
    short = [description.partition(",")[0] for description in descriptions]
    counts = Counter(short)
    pairs = zip(short, wnids, strict=True)
    return tuple(f"{name} ({wnid})" if counts[name] > 1 else name for name, wnid in pairs)


def _numbered(outputs: int) -> tuple[str, ...]:
    return tuple(f"class {number}" for number in range(outputs))


def has_class_names(subject: Subject) -> bool:
    """Whether the scores of a model have names: its own, or ImageNet's."""
    outputs = subject.outputs or 0
    return score_names(subject) != _numbered(outputs)


def score_names(subject: Subject) -> tuple[str, ...]:
    """Class names of a model's scores: its own, ImageNet's for known libraries, or "class 0", …"""
    outputs = subject.outputs or 0
    if len(subject.classes) == outputs:
        return subject.classes
    if subject.declared_by in LIBRARIES:
        return _distinct_names(*reversed(_imagenet(outputs))) or _numbered(outputs)
    return _numbered(outputs)


def _cannot_match(classes: Sequence[str], outputs: int, known: Sequence[str], data: str) -> str:
    """The sentence that says why classes cannot be matched, and what to do."""
    table = _table(map(_synonyms, known))
    strange = [name for name in classes if _simplified(name) not in table]
    remedy = f"name the folders after its classes or their numbers (0 to {outputs - 1}), or list "
    remedy += "its class names, one a line, with --classes FILE (classes= in Python)"
    if not known:
        return f"It has {outputs} classes without names, and {data!r} has {len(classes)}; {remedy}."
    if not strange:
        return f"Several classes of {data!r} are one class of the model; {remedy}."
    near = nearest_names(_simplified(strange[0]), table)
    like = f" (near {strange[0]!r}: {', '.join(near)})" if near else ""
    verb = "is" if len(strange) == 1 else "are"
    return (
        f"It has {outputs} classes, and {enumerate_few(strange, 3)} of {data!r} {verb} not among "
        f"them{like}; {remedy}."
    )
