"""A view as Python code that computes the same prediction, and the same cost of its edits."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from vitreous.explorer.edits import edit_as_python
from vitreous.explorer.models import MEAN_BATCH, MEAN_IMAGES, LiveModel
from vitreous.explorer.origin import Origin
from vitreous.explorer.pictures import Picture
from vitreous.explorer.predictions import TOP
from vitreous.explorer.state import Changes, State
from vitreous.explorer.views import Explorer

WIDTH = 90
"""Maximum length of a line."""
BATCH = 64
"""Images that go through a model at a time."""
Lines = list[str]


def python_of(explorer: Explorer, state: State) -> str:
    """Code that opens the models, changes the image, edits units and prints the top classes, and
    the change of accuracy over all images.

    It runs as it is if models and images have names. Others are expected as `model` (of two models
    `models`) and `data`, which a comment says, and an uploaded picture as a file of the same name.
    """
    picture, origin = explorer.find_picture(state.image), explorer.origin
    imports = {"from vitreous.measure.subject import logits, subjects"}
    lines: Lines = []
    for model in explorer.models:
        edits = model.edited(explorer.intended(model, state).edits).edits
        lines += ["", f"# {model.subject.name}"] if len(explorer.models) > 1 else [""]
        lines += _opening(model, origin, imports)
        lines += _image(picture, state.changes, model.upright, imports)
        if any(edit.what == "mean" for edit in edits):
            batches = f"images.images[:{MEAN_IMAGES}].split({MEAN_BATCH})"
            lines.append(f"batches = map(subject.prepare, {batches})")
            lines.append("means = subject.specimen.mean_attention(batches)")
        lines += _chain("edited = ", "subject.specimen", list(map(edit_as_python, edits)))
        lines.append("shares = logits(edited(subject.prepare(pixels))).double().softmax(-1)")
        lines.append(f"print(shares.topk({min(TOP, len(model.class_names) or TOP)}))")
        if (edits or state.changes) and model.scored and not model.unmarkable:
            lines += _cost(state.changes, imports)
    return "\n".join([*_expected(origin), *sorted(imports), *lines, ""])


def _cost(changes: Changes, imports: set[str]) -> Lines:
    """The change of accuracy over all images with its interval, as the page measures it."""
    imports |= {"import torch", "from vitreous.results import paired_change"}
    after = "batch"
    if changes:
        size = "subject.specimen.anatomy.image[1:]"
        after = f"change_images(batch, changes, {size}, subject.mean, row)"
    return [
        "differences = []",
        f"for row in range(0, len(images), {BATCH}):",
        f"    batch, labels = (each[row:row + {BATCH}] for each in (images.images, images.labels))",
        f"    changed = {after}",
        "    with torch.no_grad():",
        "        before = logits(subject.specimen(subject.prepare(batch))).argmax(1).cpu()",
        "        after = logits(edited(subject.prepare(changed))).argmax(1).cpu()",
        "    differences.append((after == labels).double() - (before == labels).double())",
        "print(paired_change(torch.cat(differences)))  # of accuracy",
    ]


def _expected(origin: Origin) -> Lines:
    """What has to be there already."""
    variables = {each.partition("[")[0] for each in origin.models or ("model",)}
    given = sorted(each for each in variables if each.isidentifier())
    if not origin.data:
        given.insert(0, "data")
    is_are = "is" if len(given) == 1 else "are"
    return [f"# {' and '.join(given)} {is_are} what you gave to vitreous.live"] if given else []


def _opening(model: LiveModel, origin: Origin, imports: set[str]) -> Lines:
    """Open a model and the images that it is shown."""
    options = dict(origin.shared_options())
    name = "model"
    if origin.models:
        name = origin.models[model.number]
        options |= origin.options[model.number]
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    if not origin.data:
        imports.discard("from vitreous.measure.subject import logits, subjects")
        imports |= {
            "from vitreous.explorer.opening import open_explorer",
            "from vitreous.measure.subject import logits",
        }
        return [
            f"[opened] = open_explorer({name}, data, limit={origin.limit}{given}).models",
            "subject, images = opened.subject, opened.data",
        ]
    imports.add("from vitreous.measure.selection import choose_images")
    chosen = f"{origin.data!r}, {origin.split!r}, {origin.limit}, [subject], {origin.seed}"
    if origin.skip_corrupt:
        chosen += ", skip_corrupt=True"
    return [
        f"[subject] = subjects({name}{given})",
        f"images = choose_images({chosen})",
        "subject = subject.for_dataset(images)",
    ]


def _image(picture: Picture, changes: Changes, upright: bool, imports: set[str]) -> Lines:
    """The pixels that the model gets."""
    if picture.row is None:
        imports |= {"import numpy as np", "import torch"}
        imports.add("from vitreous.data.photo import read_photo")
        turned = ", upright=True" if upright else ""
        framed = f"subject.framing(read_photo({picture.label!r}{turned}))"
        lines = [f"pixels = torch.from_numpy(np.ascontiguousarray({framed}))[None]"]
    else:
        lines = [f"pixels = images.images[{picture.row}:{picture.row + 1}]"]
    if changes:
        imports.add("from vitreous.explorer.changes import change_images")
        imports.add("from vitreous.explorer.state import Changes, Noise, Rectangle")
        lines.append(f"changes = {_changes(changes)}")
        lines.append(
            "pixels = change_images(pixels, changes, subject.specimen.anatomy.image[1:], "
            f"subject.mean, {picture.row or 0})"
        )
    return lines


def _changes(changes: Changes) -> str:
    """The expression that creates the changes, without defaults."""
    none = Changes()
    parts = []
    for each in fields(Changes):
        value: Any = getattr(changes, each.name)
        if value != getattr(none, each.name):
            parts.append(f"{each.name}={value!r}")
    short = f"Changes({', '.join(parts)})"
    return short if len(short) < WIDTH else "Changes(\n    " + ",\n    ".join(parts) + ",\n)"


def _chain(begin: str, first: str, calls: Lines) -> Lines:
    """Method calls in one line if they fit, else one below the other."""
    line = f"{begin}{first}{''.join(calls)}"
    if len(line) < WIDTH:
        return [line]
    return [f"{begin}(", f"    {first}", *(f"    {call}" for call in calls), ")"]
