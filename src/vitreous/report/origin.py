"""Where the numbers come from: data, models, versions, and what intervals mean."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from vitreous.measure.inspection import Inspection
from vitreous.results.words import escape, plural


def facts(inspection: Inspection) -> str:
    """One line under the title."""
    about = _about(inspection)
    data = about.get("data", {})
    shown = []
    if data:
        shown.append(escape(images_of(data)))
    shown.append(plural(len(inspection), "question"))
    if "date" in about:
        day = datetime.fromisoformat(about["date"])
        shown.append(f"{day.day} {day:%B %Y}")
    shown += [
        f"{name} {escape(version)}"
        for name, version in _versions(about)
        if name in ("vitreous", "torch")
    ]
    return " · ".join(shown)


def lines(inspection: Inspection) -> list[str]:
    """The last section of the page."""
    about = _about(inspection)
    data = about.get("data", {})
    rows = []
    if data:
        size = f"{data['images']:,} of {data.get('available', data['of']):,}"
        classes = f", {plural(data['classes'], 'class', 'classes')}" if data.get("classes") else ""
        rows.append(("images", f"{escape(data['name'])}, {escape(data['split'])}: {size}{classes}"))
        rows.append(("of the images", f"<code>{escape(data['fingerprint'])}</code>"))
    for model, known in _models(inspection).items():
        edits = (
            f"; changed: {escape(', '.join(map(str, known['edits'])))}"
            if known.get("edits")
            else ""
        )
        rows.append((escape(model), f"weights <code>{escape(known['fingerprint'])}</code>{edits}"))
    rows += [("seed", escape(about["seed"]))] if "seed" in about else []
    rows += (
        [("versions", ", ".join(f"{escape(n)} {escape(v)}" for n, v in _versions(about)))]
        if about
        else []
    )
    rows += (
        [("took", f"{about['seconds']:,.0f} s for all questions together")]
        if "seconds" in about
        else []
    )
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return [
        '<section id="origin" class="card"><h2>Where this comes from</h2>',
        "<p>All questions were answered in one pass over the same images. Ribbons, whiskers and numbers in brackets "
        "are 95 % intervals: what other images of the same kind could have given (bootstrap over images). Where the "
        "text speaks of a mean over units, its interval is the mean of theirs, which is never too narrow. "
        "Other weights, trained anew, are not part of any interval.</p>",
        f"<dl>{listed}</dl>",
        "<p class='quiet'>This file is complete. It loads nothing, and its security policy does not let it.</p>",
        "</section>",
    ]


def images_of(data: dict[str, Any]) -> str:
    """How many images of how many, of which data and which split."""
    seen, there = data["images"], data.get("available", data["images"])
    count = plural(seen, "image") if seen >= there else f"{seen:,} of {there:,} images"
    return f"{count} of {data['name']} ({data['split']})"


def _about(inspection: Inspection) -> dict[str, Any]:
    return dict(next(iter(inspection.values())).about) if len(inspection) else {}


def _models(inspection: Inspection) -> dict[str, Any]:
    return {
        model: known
        for each in inspection.values()
        for model, known in each.about.get("models", {}).items()
    }


def _versions(about: dict[str, Any]) -> list[tuple[str, str]]:
    return list(about.get("versions", {}).items())
