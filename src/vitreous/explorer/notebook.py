"""`vitreous.live`: the live page in the cell of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitreous.errors import VitreousError
from vitreous.explorer.opening import LIMIT, Images, open_explorer
from vitreous.image_size import ImageSize
from vitreous.measure.class_names import ClassNames
from vitreous.measure.preprocessing import PreprocessingChoice
from vitreous.measure.subject import CheckpointFiles, Model
from vitreous.validation import check_ranges

if TYPE_CHECKING:
    from vitreous.explorer.server import Running

HEIGHT = 900
"""Height in pixels at which a wide cell needs no scrolling."""


class LivePage:
    """A page that is being served: what `vitreous.live` returns.

    In a notebook it is the page.

    Examples
    --------
    >>> page = vitreous.live("nano:vit")
    >>> page.url
    'http://127.0.0.1:.../'
    >>> page.stop()
    """

    def __init__(self, running: Running, names: str, height: int) -> None:
        self._running, self._names, self.height = running, names, height

    @property
    def url(self) -> str:
        """The address, for a browser on this machine. Anyone who knows it can use the page."""
        return self._running.url

    @property
    def alive(self) -> bool:
        """Whether the page is still served."""
        return self._running.alive

    def stop(self) -> None:
        """Stop serving and free the memory; calling it again is fine."""
        self._running.stop()

    def __repr__(self) -> str:
        return f"LivePage({self._names}: {self.url if self.alive else 'stopped'})"

    def _repr_html_(self) -> str:
        if not self.alive:
            return "<p>This page is no longer served; call <code>vitreous.live</code> again.</p>"
        return (
            f'<iframe src="{escape(self.url)}" title="{escape(self._names)} live" width="100%" '
            f'height="{self.height}" allow="clipboard-write" style="border: 0"></iframe>'
        )


_PAGES: dict[tuple[Any, ...], LivePage] = {}
"""Running pages by their arguments, so that running a cell again starts no second server."""


def live(
    model: Model | Iterable[Model] | Mapping[str, Model],
    images: Images = "world:shapes",
    *,
    height: int = HEIGHT,
    out: str | Path = ".",
    limit: int | str | None = LIMIT,
    split: str | None = None,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: CheckpointFiles | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> LivePage:
    """Explore one model or two: click a patch, switch off a block, watch the prediction change.

    The page of `vitreous live` in the cell of a notebook. It is served by this process, on this
    machine alone: the browser has to run here, too, or reach the port through a tunnel.

    Parameters
    ----------
    model
        A name, a module or a specimen, or two of them.
    images
        A dataset or its name, a picture, or several (paths, Pillow's images, arrays, tensors).
    height
        Of the cell's output, in pixels.
    out
        Folder for the reports that you save from the page.
    limit, split, image, pretrained, weights, preprocessing, classes, device, seed
        As in `vitreous.inspect`.

    Returns
    -------
    LivePage
        The page in a notebook; `.url` opens it elsewhere, `.stop()` ends it.

    Examples
    --------
    >>> models = {"before": "nano:vit@warmup", "after": "nano:vit"}
    >>> page = vitreous.live(models, "world:shapes", limit=16, height=700)
    >>> page.alive
    True
    >>> page.stop()
    """
    check_ranges(height=height)
    try:
        from vitreous.explorer.server import start  # Starlette and uvicorn are optional
    except ModuleNotFoundError as error:
        raise VitreousError(
            f"vitreous.live needs {error.name}, which is not installed; "
            "pip install 'vitreous[live]'."
        ) from None
    options: dict[str, Any] = {
        "limit": limit, "split": split, "image": image, "pretrained": pretrained,
        "weights": weights, "preprocessing": preprocessing, "classes": classes, "device": device,
        "seed": seed,
    }  # fmt: skip
    key = (*_identity(model), *_identity(images), repr(options), str(out))
    known = _PAGES.get(key)
    if known is not None and known.alive:
        if not any(isinstance(part, int) for part in key):
            known.height = height
            return known
        known.stop()  # a module or an array may have changed since
    explorer = open_explorer(model, images, **options)
    running = start(explorer, embed=True, folder=Path(out).expanduser())
    names = " and ".join(each.subject.name for each in explorer.models)
    _PAGES[key] = LivePage(running, names, height)
    return _PAGES[key]


def _identity(given: Any) -> tuple[str | int, ...]:
    """A key that identifies an argument: names as they are, other objects by their `id`."""
    if isinstance(given, (str, Path)):
        return (str(given),)
    if isinstance(given, Mapping):
        given = [part for item in given.items() for part in item]
    if isinstance(given, (list, tuple)):
        return tuple(part for each in given for part in _identity(each))
    return (id(given),)
