"""The last section of a page: data, models, versions, and what the intervals mean."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vitreous.measure import analyses
from vitreous.measure.inspection import Inspection
from vitreous.results.weight_origin import model_records
from vitreous.results.words import escape, join_words, plural


def provenance_line(inspection: Inspection) -> str:
    """Return the line under the title: images, number of measurements, date, versions."""
    about = _first_about(inspection)
    parts = []
    if "data" in about:
        parts.append(escape(images_of(about["data"])))
    parts.append(plural(len(inspection), "measurement"))
    if "date" in about:
        day = datetime.fromisoformat(about["date"])
        parts.append(f"{day.day} {day:%B %Y}")
    for name, version in about.get("versions", {}).items():
        if name in ("vitreous", "torch"):
            parts.append(f"{name} {escape(version)}")
    return " · ".join(parts)


def class_count(data: Mapping[str, Any]) -> int:
    """Number of classes of the images, which may be fewer than the model's scores.

    >>> class_count({"classes": 1000, "labels": "3 of 1000 classes, by wnids"})
    3
    """
    matched, of, _ = str(data.get("labels") or "").partition(" of ")
    return int(matched) if of and matched.isdecimal() else int(data.get("classes") or 0)


def origin_section(inspection: Inspection) -> list[str]:
    """Return the last section of the page."""
    about = _first_about(inspection)
    rows = []
    if data := about.get("data", {}):
        size = f"{data['images']:,} of {data.get('available', data['of']):,}"
        count = class_count(data)
        classes = f", {plural(count, 'class', 'classes')}" if count else ""
        rows.append(("images", f"{escape(data['name'])}, {escape(data['split'])}: {size}{classes}"))
        if data.get("labels"):
            rows.append(("labels", escape(data["labels"])))
        rows.append(("fingerprint of the images", f"<code>{escape(data['fingerprint'])}</code>"))
    rows += _model_rows(inspection)
    if "seed" in about:
        rows.append(("seed", escape(about["seed"])))
    if about:
        versions = about.get("versions", {}).items()
        rows.append(("versions", ", ".join(f"{escape(n)} {escape(v)}" for n, v in versions)))
    if times := _times(inspection):
        rows.append(("time", escape(join_words(times))))
    entries = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return [
        '<section id="origin" class="card"><h2>Provenance</h2>',
        "<p>Probes are computed in one pass over the same images. Ribbons, whiskers and "
        "numbers in brackets are 95 % intervals: what other images of the same kind could have "
        "given. Where they are something else, such as the slowest and the fastest pass, the chart "
        "says so. The interval of a mean over units is the mean of their "
        "intervals, which is never too narrow. Intervals do not include the variation between "
        "trainings.</p>",
        f"<dl>{entries}</dl>",
        "<p class='quiet'>This file is complete. It loads nothing, and its security policy does "
        "not let it.</p>",
        "</section>",
    ]


def _times(inspection: Inspection) -> list[str]:
    """Return how long the probes took together, and how long each analysis took."""
    times = {
        name if name in analyses.names() else "all probes together": result.about["seconds"]
        for name, result in inspection.items()
        if "seconds" in result.about
    }
    return [
        f"{f'{seconds:,.0f}' if seconds >= 1 else 'less than 1'} s for {what.replace('_', ' ')}"
        for what, seconds in times.items()
    ]


def _model_rows(inspection: Inspection) -> list[tuple[str, str]]:
    """Return the weights of each model, and the preprocessing, once for models that share it."""
    models: dict[str, dict[str, Any]] = {}
    for model, known in model_records(inspection):
        models[model] = {**known, **models.get(model, {})}  # older results know less
    rows, plain = [], []
    for model, known in models.items():
        weights = f"<code>{escape(known['fingerprint'])}</code>"
        if not known.get("edits") and not known.get("checkpoint"):
            plain.append(f"{escape(model)} {weights}")
            continue
        if known.get("edits"):
            weights += f"; changed: {escape(', '.join(map(str, known['edits'])))}"
        if known.get("checkpoint"):
            weights += f": {escape(known['checkpoint']['sentence'])}"
        rows.append((escape(model), f"weights {weights}"))
    if plain:
        rows.insert(0, (f"fingerprint{'s' * (len(plain) > 1)} of the weights", ", ".join(plain)))
    alike: dict[str, list[str]] = {}
    for model, known in models.items():
        if known.get("preprocessing"):
            alike.setdefault(known["preprocessing"], []).append(escape(model))
    for words, names in alike.items():
        whose = "" if len(names) == len(models) > 1 else f" of {join_words(names)}"
        rows.append((f"preprocessing{whose}", escape(words)))
    return rows


def images_of(data: dict[str, Any]) -> str:
    """Return the number of images used and available, with the dataset and split, as text."""
    used, available = data["images"], data.get("available", data["images"])
    count = plural(used, "image") if used >= available else f"{used:,} of {available:,} images"
    return f"{count} of {data['name']} ({data['split']})"


def _first_about(inspection: Inspection) -> dict[str, Any]:
    return dict(next(iter(inspection.values())).about) if len(inspection) else {}
