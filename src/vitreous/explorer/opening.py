"""Open models and images for the explorer, for `vitreous live` and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.data.dataset import Dataset
from vitreous.data.photo import Photo, read_photo
from vitreous.devices import choose_device
from vitreous.errors import VitreousError
from vitreous.explorer.origin import Origin
from vitreous.explorer.views import Explorer
from vitreous.image_size import ImageSize
from vitreous.measure.class_names import ClassNames
from vitreous.measure.labels import match_labels
from vitreous.measure.preprocessing import PreprocessingChoice, choose_preprocessing
from vitreous.measure.selection import choose_images
from vitreous.measure.subject import CheckpointFiles, Model, Subject, default_name, subjects
from vitreous.validation import check_ranges, parse_limit
from vitreous.weight_pairs import pair_weights

MOST_MODELS = 2
"""Maximum number of models on the page."""
LIMIT = 512
Images = str | Path | Dataset | Photo | Sequence[Photo]
"""A dataset or its name, or pictures."""


def open_explorer(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Images = "world:shapes",
    *,
    limit: int | str | None = LIMIT,
    split: str | None = None,
    skip_corrupt: bool = False,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: CheckpointFiles | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> Explorer:
    """Open one model or two and some images.

    Parameters
    ----------
    models
        Names, modules or specimens.
    data
        A dataset or its name, a picture, or several (paths, Pillow's images, arrays, tensors).
    limit
        Maximum number of images, class-balanced, or "all".
    split, skip_corrupt, image, pretrained, weights, preprocessing, classes, device, seed
        As in `vitreous.inspect`.

    Examples
    --------
    >>> open_explorer("nano:vit", "world:shapes", limit=64).session()["of"]
    64
    """
    check_ranges(seed=seed)
    if not isinstance(models, (str, nn.Module, Mapping)):
        models = list(models)  # it is read twice
    most, choice = parse_limit(limit), choose_preprocessing(preprocessing)
    opened = subjects(
        models, image=image, pretrained=pretrained, weights=weights, preprocessing=choice,
        classes=classes, device=choose_device(device), seed=seed,
    )  # fmt: skip
    if len(opened) > MOST_MODELS:
        raise VitreousError(
            f"{len(opened)} models were given; the page has room for {MOST_MODELS}, and "
            "vitreous.inspect compares more."
        )
    named = str(data) if isinstance(data, (str, Path)) else ""
    source = data if isinstance(data, Dataset) else named or _photos(data, opened)
    images = choose_images(source, split, most, opened, seed, skip_corrupt)
    spelled, options = _spell_models(models, weights, image=image, pretrained=pretrained)
    origin = Origin(spelled, options, named, split, most, seed, skip_corrupt, choice, classes)
    return Explorer(opened, match_labels(images, opened), origin)


def _spell_models(
    models: Model | Sequence[Model] | Mapping[str, Model],
    weights: CheckpointFiles | None,
    **same: Any,
) -> tuple[tuple[str, ...], tuple[Mapping[str, Any], ...]]:
    """How Python spells each model, and what each was opened with."""
    several = [models] if isinstance(models, (str, nn.Module)) else models
    named = isinstance(several, Mapping)
    items = list(several.items() if isinstance(several, Mapping) else enumerate(several))
    names, spelled = [], []
    for key, model in items:
        name = model if isinstance(model, str) else default_name(model)
        names.append(str(key) if named else name)
        variable = f"models[{key!r}]" if len(items) > 1 else "model"
        spelled.append(repr(model) if isinstance(model, str) else variable)
    pairs = pair_weights(names, weights or ())
    shared = {name: value for name, value in same.items() if value}
    options = [{**shared, "weights": each.weights} if each.weights else shared for each in pairs]
    return tuple(spelled[each.index] for each in pairs), tuple(options)


def _photos(given: Any, opened: Sequence[Subject]) -> Dataset:
    """Pictures as a dataset without labels, framed for every model."""
    batch = isinstance(given, (np.ndarray, Tensor)) and given.ndim == 4
    several = list(given) if batch or isinstance(given, (list, tuple)) else [given]
    if not several:
        raise VitreousError("There are no images to explore; give at least one.")
    views = {}
    for framing in dict.fromkeys(each.framing for each in opened):
        assert framing is not None
        photos = [read_photo(each, framing.upright) for each in several]
        framed: list[NDArray[np.uint8]] = [framing(photo) for photo in photos]
        views[framing] = torch.from_numpy(np.stack(framed))
    first = next(iter(views))
    images = views.pop(first)
    labels = torch.full((len(images),), -1)
    return Dataset(images, labels, (), "your images", "all", framing=first, views=views)
