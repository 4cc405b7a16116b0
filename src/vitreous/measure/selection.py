"""Turn what users choose into objects: names, options or instances of measurements; images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import torch

from vitreous.data.dataset import Dataset
from vitreous.data.given import given_images
from vitreous.data.loading import load
from vitreous.data.subsets import class_balanced_order
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.measure.registry import Registry
from vitreous.measure.report_section import Measurement, kept_section
from vitreous.measure.subject import Subject
from vitreous.validation import annotation_in_words, fits_annotation

if TYPE_CHECKING:
    from vitreous.measure.analysis import Analysis  # which starts the engine, and that chooses
    from vitreous.measure.probe import Probe

MOST = 10**7
"""The largest number that an option accepts; larger ones are typos and would fill the memory."""


T = TypeVar("T", bound="Probe | Analysis")
Chosen = str | Sequence[str | T] | Mapping[str, Mapping[str, Any]]
"""A name, several names or instances, or a dict of names and their options."""


def choose_probes(given: Chosen[Probe] | None) -> tuple[Probe, ...]:
    """Return the probes that were chosen (default: all); raise if there are none or duplicates."""
    return _choose(given, probes.REGISTRY)


def choose_analyses(given: Chosen[Analysis] | None) -> tuple[Analysis, ...]:
    """Return the analyses that were chosen (default: all); raise if none or duplicates."""
    return _choose(given, analyses.REGISTRY)


def _choose(given: Chosen[T] | None, registry: Registry) -> tuple[T, ...]:
    chosen: list[T] = []
    if given is None:
        given = registry.own_names()
    elif isinstance(given, str):
        given = [given]
    for choice in given:
        if isinstance(choice, Measurement) and choice.category == registry.what:
            chosen.append(choice)
        elif isinstance(choice, str):
            options = given[choice] if isinstance(given, Mapping) else {}
            chosen.append(_make(registry.named(choice), options))
        else:
            kind = registry.what.capitalize()
            raise VitreousError(
                f"{choice!r} is no {registry.what}: give a name or an instance of {kind}."
            )
    if not chosen:
        raise VitreousError(
            f"There is nothing to measure: name at least one {registry.what}, or none for all."
        )
    names = [choice.name for choice in chosen]
    if twice := [name for name in names if names.count(name) > 1]:
        raise VitreousError(f"The {registry.what} {twice[0]!r} was named twice; name each once.")
    return tuple(chosen)


def _make(kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Make a measurement with these options; a constructor of a plugin may reject them."""
    validate_options(kind.name, kind, options)
    try:
        return kind(**options)
    except TypeError as error:
        raise VitreousError(
            f"{kind.category.capitalize()} {kind.name!r} cannot be made with the options "
            f"{dict(options)}: {error}; give every option a default."
        ) from error


def options_of(measurement: Probe | Analysis) -> dict[str, Any]:
    """The options of a measurement (its dataclass fields) and their values."""
    return {name: getattr(measurement, name) for name in _options(type(measurement))}


def described(measurement: Probe | Analysis) -> dict[str, Any]:
    """The options of a measurement, and the origin and report section of a plugin."""
    registry = probes.REGISTRY if measurement.category == "probe" else analyses.REGISTRY
    plugin = registry.provenance(measurement.name)
    return {
        "options": options_of(measurement),
        **({"plugin": plugin} if plugin else {}),
        **kept_section(measurement),
    }


def validate_options(name: str, kind: type[Any], given: Mapping[str, Any]) -> None:
    """Raise if a measurement does not have these options, or does not accept their values."""
    known = _options(kind)
    hints = get_type_hints(kind) if known else {}
    for option, value in given.items():
        if option not in known:
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise UnknownName(f"option of {name}", option, known, has)
        if not fits_annotation(value, hints[option]):
            takes = annotation_in_words(hints[option])
            raise VitreousError(f"{name}.{option}={_short(value)} was set; it takes {takes}.")
        if isinstance(value, bool):
            continue  # in Python bools are ints
        least = 0 if not isinstance(value, int) or getattr(kind, option, None) in (0, None) else 1
        if isinstance(value, (int, float)) and not least <= value <= MOST:
            raise VitreousError(
                f"{name}.{option}={_short(value)} was set; it takes numbers from {least} to "
                f"{MOST:,}."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _options(kind: type[Any]) -> list[str]:
    """Names of the fields that are options; other fields are state."""
    return [each.name for each in fields(kind) if each.init] if is_dataclass(kind) else []


def choose_images(
    data: Dataset | Path | str, split: str | None, limit: int | None, opened: Sequence[Subject],
    seed: int, skip_corrupt: bool = False, usual: str = "test",
) -> Dataset:  # fmt: skip
    """Choose at most `limit` images, class-balanced.

    Without `split`, choose from the `usual` split, or from all images of a dataset without splits.
    """
    data = given_images(data)
    if isinstance(data, str):
        how = {"size": limit, "seed": seed, "skip_corrupt": skip_corrupt, "whole": split is None}
        data = _framed(data, split or usual, opened, {**how, "shuffled": True})
        return replace(data, total=data.total or len(data))
    if len(data) == 0:
        raise VitreousError(f"The dataset {data.name!r} is empty: there are no images to measure.")
    rows = class_balanced_order(data.labels.cpu().numpy(), seed)[: limit or len(data)]
    return replace(data.take(torch.from_numpy(rows)), total=data.total or len(data))


def _framed(name: str, split: str, opened: Sequence[Subject], how: Mapping[str, Any]) -> Dataset:
    """Load images resized and cropped for every model: once for each distinct framing."""
    if name.startswith("world:"):
        return load(name, split=split, **how)
    framings = list(dict.fromkeys(each.framing for each in opened))
    data = load(name, split=split, framing=framings[0], statistics=False, **how)
    views = {}
    for framing in framings[1:]:
        if framing is not None:
            views[framing] = load(
                name, split=split, framing=framing, statistics=False, **how
            ).images
    return replace(data, views=views)
