"""What was asked for, by name or by value: questions with their options, and the images they are asked on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

import torch

from vitreous.annotations import fits, words
from vitreous.data.dataset import Dataset
from vitreous.data.loading import load
from vitreous.data.sources.listing import NoSplit
from vitreous.data.subsets import spread
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import probes as questions
from vitreous.measure.probe import Probe
from vitreous.measure.subject import Subject

MOST = 10**7
"""The largest number an option takes; more is a slip, and would fill the memory."""


def choose_probes(given: str | Sequence[str | Probe] | Mapping[str, Mapping[str, Any]] | None) -> tuple[Probe, ...]:
    """All, or those named, with options where a dict has them; at least one, and none twice."""
    if given is None:
        given = questions.names()
    chosen: list[Probe] = []
    for each in [given] if isinstance(given, str) else given:
        if isinstance(each, Probe):
            chosen.append(each)
        else:
            chosen.append(_probe(each, given[each] if isinstance(given, Mapping) else {}))
    if not chosen:
        raise VitreousError("There is no question to ask: name at least one probe, or leave them out for all.")
    names = [probe.name for probe in chosen]
    if twice := [name for name in names if names.count(name) > 1]:
        raise VitreousError(f"The probe {twice[0]!r} was named twice; ask each question once.")
    return tuple(chosen)


def _probe(name: str, options: Mapping[str, Any]) -> Probe:
    if not isinstance(name, str):
        raise VitreousError(f"A probe is a name or a Probe, and not {name!r}.")
    kind = questions.named(name)
    check_options(name, kind, options)
    return kind(**options)


def options_of(question: Any) -> dict[str, Any]:
    """What the question was asked with; the fields of a probe or an analysis are its options."""
    return {name: getattr(question, name) for name in _options(type(question))}


def check_options(name: str, kind: type[Any], given: Mapping[str, Any]) -> None:
    """Whether a question has these options and takes these values; an error with the nearest name or the choices."""
    known = _options(kind)
    hints = get_type_hints(kind) if known else {}
    for option, value in given.items():
        if option not in known:
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise UnknownName(f"option of {name}", option, known, has)
        if not fits(value, hints[option]):
            raise VitreousError(f"{name}.{option}={_short(value)} was set; it takes {words(hints[option])}.")
        if isinstance(value, bool):
            continue  # which Python counts among the numbers
        least = 0 if not isinstance(value, int) or getattr(kind, option, None) in (0, None) else 1
        if isinstance(value, (int, float)) and not least <= value <= MOST:
            raise VitreousError(f"{name}.{option}={_short(value)} was set; it takes numbers from {least} to {MOST:,}.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _options(kind: type[Any]) -> list[str]:
    """Fields that one can give; others are what a question remembers on the way."""
    return [each.name for each in fields(kind) if each.init] if is_dataclass(kind) else []


def choose_images(
    data: Dataset | str, split: str | None, limit: int | None, opened: Sequence[Subject], seed: int,
    skip_corrupt: bool = False, usual: str = "test",
) -> Dataset:  # fmt: skip
    """At most `limit` images, class-balanced. Without a split those of the `usual` one, or all images of a set that has
    no splits of its own."""
    if isinstance(data, str):
        side = max(max(each.specimen.anatomy.image[1:]) for each in opened)
        how = {"size": limit, "seed": seed, "skip_corrupt": skip_corrupt, "whole": split is None}
        data = _load(data, split or usual, image=side if data.startswith("folder:") else None, **how)
    if len(data) == 0:
        raise VitreousError(f"The set {data.name!r} is empty: there is no image to inspect models on.")
    rows = spread(data.labels.cpu().numpy(), seed)[: limit or len(data)]
    return replace(data.take(torch.from_numpy(rows)), total=data.total or len(data))


def _load(name: str, split: str, **how: Any) -> Dataset:
    """Of pictures without labels there are no splits: then all of them."""
    try:
        return load(name, split=split, **how)
    except NoSplit:
        return load(name, split="all", **how)
