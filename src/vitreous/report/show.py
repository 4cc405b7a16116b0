"""`vitreous.show`: one picture, what a model attends to in it, and what the model calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import Dataset
from vitreous.data.framing import Framing
from vitreous.data.photo import Photo, read_photo
from vitreous.devices import choose_device
from vitreous.errors import VitreousError
from vitreous.image_size import ImageSize
from vitreous.measure.class_names import ClassNames
from vitreous.measure.labels import has_class_names, score_names
from vitreous.measure.photo_map import Head, MapChoice, PhotoMap, Query, photo_map
from vitreous.measure.preprocessing import PreprocessingChoice, choose_preprocessing
from vitreous.measure.subject import Model, Subject, logits, subjects
from vitreous.palette import Theme
from vitreous.report.report_path import check_figure_path
from vitreous.results.weight_origin import untrained_words
from vitreous.storage.atomic_files import explain_write_errors, write_bytes
from vitreous.validation import check_ranges

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from vitreous.models.matching import LoadedWeights

MAX_PICTURE = 640
"""Maximum length of the longer side of the drawn picture, in pixels."""
MAX_ENLARGEMENT = 8
"""Factor of enlargement above which a note says that the picture was enlarged."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture, the map over it, and the prediction: what `vitreous.show` returns.

    In a notebook it is the picture.

    Examples
    --------
    >>> photo = vitreous.data.load("world:shapes", split="test", size=1).images[0]
    >>> shown = vitreous.show("nano:vit", photo)
    >>> shown.map.values.shape, len(shown.predictions)
    ((8, 8), 5)
    >>> shown.save("photo.pdf").name
    'photo.pdf'
    """

    model: str
    map: PhotoMap | None
    """The numbers over the picture; None if the model has no feature map."""
    predictions: pd.DataFrame
    """Columns `class`, `index` and `probability`, the most probable first; empty if the model's
    output is not a score for each class."""
    pixels: NDArray[np.uint8]
    """(h, w, 3): the picture as the model gets it, before its levels are normalised."""
    picture: NDArray[np.uint8]
    """(h, w, 3): the same part of the picture in more pixels, if there are more."""
    preprocessing: str
    """How the picture was prepared, in words."""
    weights: str
    """Where the weights come from: pretrained, trained, untrained, random or unknown."""
    warning: str = ""
    """Why neither the map nor the prediction means anything; empty if they may."""
    photo: str = ""
    """The name of the picture's file, if it has one."""
    checkpoint: LoadedWeights | None = None
    """What was loaded into the model, if weights were given."""
    enlarged: str = ""
    """A sentence about a picture that is much smaller than the model's images; else empty."""
    named: bool = True
    """Whether the classes have names, and not only numbers."""

    @property
    def title(self) -> str:
        """The model, and the file of its weights."""
        file = "" if self.checkpoint is None else f" ({Path(self.checkpoint.file).name})"
        return f"{self.model}{file}"

    def __repr__(self) -> str:
        best = self.predictions.head(1).to_dict("records")
        prediction = f", {best[0]['class']} ({best[0]['probability']:.1%})" if best else ""
        map_title = f": {self.map.says}" if self.map is not None else ""
        return f"Shown({self.model}{map_title}{prediction})"

    @cached_property
    def figure(self) -> Figure:
        """The picture as a matplotlib figure."""
        return self.plot()[0]

    def plot(self, theme: Theme = "light") -> tuple[Figure, NDArray[Any]]:
        """Draw the picture, the map over it and the prediction with matplotlib.

        Returns
        -------
        The figure and its axes.
        """
        from vitreous.report.photo_figure import draw_photo  # matplotlib comes with it

        return draw_photo(self, theme)

    def save(self, path: Path | str, theme: Theme = "light", *, mark: str = "") -> Path:
        """Save the figure as `.png`, `.pdf` or `.svg`; returns the path.

        `mark` is a text in the metadata of a `.png`, by which the command that wrote it is
        recognised.
        """
        out = Path(path).expanduser()
        check_figure_path(out)
        figure = self.figure if theme == "light" else self.plot(theme)[0]
        notes = {"Comment": mark} if mark and out.suffix.lower() == ".png" else None
        with explain_write_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        content = BytesIO()
        with _ignore_missing_glyphs():
            figure.savefig(content, format=out.suffix[1:].lower(), dpi=200, metadata=notes)
        write_bytes(out, content.getbuffer())  # atomically
        return out

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with _ignore_missing_glyphs():
            self.figure.savefig(content, format="png", dpi=110)
        return content.getvalue()


@contextmanager
def _ignore_missing_glyphs() -> Iterator[None]:
    """Draw a character that no installed font has as a box, without matplotlib's warning."""
    with catch_warnings():
        filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def show(
    model: Model,
    photo: Photo,
    *,
    unit: str | None = None,
    head: Head = "mean",
    query: Query = None,
    rollout: bool = False,
    top: int = 5,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: str | Path | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> Shown:
    """Show what a model attends to in a picture, and what it predicts.

    A model without attention, or a unit without it, is shown by the norm of its features.

    Parameters
    ----------
    model
        A name, a module or a specimen.
    photo
        A path, Pillow's image, or an array or tensor of bytes or of levels in [0, 1].
    unit
        The unit to show (default: the last with attention, else the last with a feature map).
    head
        The number of a head, or "mean".
    query
        Who looks: "class", row and column of a patch, or "mean" over all patches (default: the
        class token where there is one, else "mean").
    rollout
        Multiply attention through all layers up to the unit, skips included.
    top
        How many classes to list.
    image, pretrained, weights, preprocessing, classes
        As in `vitreous.inspect`.

    Returns
    -------
    Shown
        The picture in a notebook; `.save("photo.pdf")`, `.figure`, `.map` and `.predictions`.

    Examples
    --------
    The photo can be a file, a Pillow image, an array or a tensor.

    >>> photo = vitreous.data.load("world:shapes", split="test", size=1).images[0]
    >>> shown = vitreous.show("nano:vit", photo, unit="blocks.1.attn", query=(3, 4))
    >>> shown.map.says
    'blocks.1.attn, mean of 4 heads, from patch 3, 4'
    """
    check_ranges(top=top, seed=seed)
    choice = choose_preprocessing(preprocessing)
    full_photo = read_photo(photo, choice.upright)
    subject = _one_subject(
        model, image=image, pretrained=pretrained, weights=weights, preprocessing=choice,
        classes=classes, device=choose_device(device), seed=seed,
    )  # fmt: skip
    framing = subject.framing
    assert framing is not None
    pixels = framing(full_photo)
    data = _one_image(pixels, framing)
    subject = subject.for_dataset(data)
    with torch.no_grad():
        found, output = photo_map(
            subject, subject.prepare(data.images), MapChoice(unit, head, query, rollout)
        )
    return Shown(
        subject.name,
        found,
        _predictions(subject, output, top),
        pixels.transpose(1, 2, 0),
        _sharper(framing, full_photo).transpose(1, 2, 0),
        subject.describe_preprocessing(data),
        subject.specimen.weights,
        untrained_warning(subject),
        photo=Path(photo).name if isinstance(photo, (str, Path)) else "",
        checkpoint=subject.specimen.checkpoint,
        enlarged=_enlargement_note(framing, full_photo),
        named=has_class_names(subject),
    )


def _one_image(pixels: NDArray[np.uint8], framing: Framing) -> Dataset:
    """A dataset of one image (3, h, w) without a label."""
    images = torch.from_numpy(np.ascontiguousarray(pixels))[None]
    return Dataset(images, torch.tensor([-1]), (), "the picture", framing=framing)


def untrained_warning(subject: Subject) -> str:
    """A sentence about weights that have learned nothing."""
    specimen = subject.specimen
    if specimen.weights not in ("random", "untrained"):
        return ""
    begin = "The weights are random"
    if specimen.weights == "untrained":
        loaded = specimen.checkpoint
        record = {} if loaded is None else {"checkpoint": {"file": loaded.file}}
        begin = untrained_words(subject.name, record)
    return f"{begin}: neither the map nor the prediction means anything."


def _one_subject(model: Model, **how: Any) -> Subject:
    opened = subjects({model: model} if isinstance(model, str) else model, **how)
    if len(opened) != 1:
        raise VitreousError(
            f"{len(opened)} models were given; show takes one, vitreous.inspect compares several."
        )
    return opened[0]


def _enlargement_note(framing: Framing, photo: Image.Image) -> str:
    """A sentence if the picture has far fewer pixels than the model takes, else ""."""
    resized = framing.resize or min(framing.size) / framing.crop
    times = resized / min(photo.size)
    if times <= MAX_ENLARGEMENT:
        return ""
    width, height = photo.size
    return f"The photo has {width}×{height} pixels and is enlarged {times:.0f} times for the model."


def _sharper(framing: Framing, photo: Image.Image) -> NDArray[np.uint8]:
    """The part of a picture that a model gets, at the highest resolution that the picture has.

    The resolution is an integer multiple of the model's, limited by `MAX_PICTURE`.
    """
    height, width = framing.size
    resized = framing.resize or min(height, width) / framing.crop
    times = max(1, min(MAX_PICTURE // max(height, width), int(min(photo.size) // resized)))
    if times == 1:
        return framing(photo)
    larger = None if framing.resize is None else framing.resize * times
    size = height * times, width * times
    return replace(framing, size=size, resize=larger, processor="")(photo)


def _predictions(subject: Subject, output: Any, top: int) -> pd.DataFrame:
    """The most probable classes and their softmax."""
    import pandas as pd  # which takes half a second

    scores = None
    if getattr(subject.model, "num_classes", None) != 0:  # timm's backbones return features
        scores = logits(output)
    if scores is None:
        return pd.DataFrame({"class": [], "index": [], "probability": []})
    shares, places = scores[0].double().softmax(0).topk(min(top, scores.shape[1]))
    names = score_names(subject)
    return pd.DataFrame({
        "class": [names[place] for place in places.tolist()],
        "index": places.tolist(),
        "probability": shares.tolist(),
    })  # fmt: skip
