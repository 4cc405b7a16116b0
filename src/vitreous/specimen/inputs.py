"""What a model takes: how many channels, which size, or something other than images.

A size that the user gives always holds. Otherwise what the model declares about itself (timm's and Hugging Face's
configurations) is believed, and what it does not declare is found out by trying: the model runs on fake tensors, which
have shapes and no values, so that a trial costs milliseconds and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitreous.errors import VitreousError
from vitreous.image_size import format_size, image_size
from vitreous.specimen.graph import EXAMPLE_BATCH
from vitreous.specimen.state import undisturbed

Shape = tuple[int, int, int]

SIDES = (
    224,
    32,
    64,
    28,
    96,
    128,
    192,
    256,
    299,
    384,
    448,
    512,
    48,
    160,
    240,
    288,
    320,
    518,
    640,
    768,
    1024,
)
"""Sizes in use, the most frequent first."""

NAMES = ("image_size", "img_size")
"""What the attribute with the size is called."""

USUAL = 224
"""Networks that take any size (ResNet, ConvNeXt) are trained on this one."""


def image_shape(model: nn.Module, image: Any = None) -> Shape:
    """Channels, height and width: as given, as the model declares them, or as it turns out to accept them."""
    given = () if image is None else image_size(image)
    if len(given) == 3:
        return given
    channels, declared = declared_channels(model), declared_sides(model)
    sides = given or declared
    if channels is not None and sides is not None:
        return (channels, sides[0], sides[1])
    if sides is not None:
        return _with_channels(model, sides)
    return _search(model, channels)


def example(model: nn.Module, shape: Shape) -> Tensor:
    """Images of the size, type and device the model takes."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.zeros(EXAMPLE_BATCH, *shape, dtype=weight.dtype, device=weight.device)


def declared_sides(model: nn.Module) -> tuple[int, int] | None:
    """Height and width by the model's own word: timm's configuration, Hugging Face's, or an attribute."""
    timm_config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if timm_config and "input_size" in timm_config:
        size = getattr(getattr(model, "patch_embed", None), "img_size", None)
        if (
            isinstance(size, tuple) and len(size) == 2
        ):  # the size it was built with beats the size of its weights
            return size
        return _two(timm_config["input_size"])
    config = getattr(model, "config", None)
    for part in (config, getattr(config, "vision_config", None), model):
        for name in NAMES:
            if (size := _two(getattr(part, name, None))) is not None:
                return size
    theirs = type(model).__module__.split(".")[0] in ("torchvision", "transformers")
    return (USUAL, USUAL) if theirs else None


def _two(size: Any) -> tuple[int, int] | None:
    try:
        return image_size(size)[-2:]  # type: ignore[return-value]
    except VitreousError:
        return None


def declared_channels(model: nn.Module) -> int | None:
    """Channels by the model's own word, where there is one."""
    config: Any = getattr(model, "pretrained_cfg", None)
    if config and "input_size" in config:
        name, usual = config.get("first_conv"), int(config["input_size"][0])
        first = dict(model.named_modules()).get(name if isinstance(name, str) else "")
        if not isinstance(first, nn.Conv2d) or first.in_channels in (
            usual * 4,
            usual * 16,
        ):  # pixels made channels
            return usual
        return first.in_channels
    config = getattr(model, "config", None)
    for part in (config, getattr(config, "vision_config", None)):
        count = getattr(part, "num_channels", None)
        if type(count) is int and count > 0:
            return count
    return None


def likely_channels(model: nn.Module) -> list[int]:
    """Channels worth trying, the most plausible first: colour, grey, then what convolutions and normalisations take."""
    first = [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)]
    norms = [
        m.num_features
        for m in model.modules()
        if isinstance(m, (nn.BatchNorm2d, nn.InstanceNorm2d))
    ]
    return list(
        dict.fromkeys([3, 1, *first[:3], 4, 2, *sorted({n for n in first + norms if n <= 16})])
    )


def likely_sides(model: nn.Module) -> Iterator[tuple[int, int]]:
    """Sizes worth trying: those that a part of the model names, then those in use."""
    for module in model.modules():
        for name in NAMES:
            if (size := _two(vars(module).get(name))) is not None:
                yield size
    for side in SIDES:
        yield (side, side)


def sides_by_positions(model: nn.Module) -> list[int]:
    """Sides of square images for whose patches a position embedding has rows, class tokens or not."""
    patches = {m.stride[0] for m in model.modules() if isinstance(m, nn.Conv2d)}
    for features in {m.in_features for m in model.modules() if isinstance(m, nn.Linear)}:
        patches |= {_root(features // channels) for channels in (3, 1) if features % channels == 0}
    tables = [*model.named_parameters(), *model.named_buffers()]
    rows = {t.shape[-2] for name, t in tables if "pos" in name.lower() and t.ndim >= 2}
    grids = {_root(count - prefix) for count in rows for prefix in (0, 1, 2)}
    return sorted({grid * patch for grid in grids for patch in patches if grid > 1 and patch > 1})


def _root(number: int) -> int:
    """The square root if it is whole, else 0."""
    root = isqrt(max(number, 0))
    return root if root * root == number else 0


def accepts(model: nn.Module, shape: Shape, *, far: bool = True) -> Exception | None:
    """None if the model runs on images of this shape, and otherwise what it raises.

    With `far=False` it runs only until weights have met the images, which is enough to know the channels.
    """
    with undisturbed(model) as saving, torch.no_grad():
        for mode in (FakeTensorMode(allow_non_fake_inputs=True), nullcontext()):
            try:
                with mode, saving:
                    images = example(model, shape)
                    with nullcontext() if far else _UntilWeights(images):
                        model(images)
            except _Enough:
                return None
            except Exception as error:
                if isinstance(mode, FakeTensorMode) and _for_want_of_values(error):
                    continue
                return error
            return None
    raise AssertionError("unreachable")


class _Enough(BaseException):
    """Thrown out of a model's forward when nothing further needs to be known."""


class _UntilWeights(TorchDispatchMode):
    """Ends a forward pass at the first product of weights and anything computed from the images."""

    PRODUCTS = ("convolution", "mm", "addmm", "bmm", "baddbmm", "linear", "_convolution")

    def __init__(self, images: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[int, Any] = {id(images): images}  # kept, so that no id is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(id(t) in self.seen for t in given):
            if func.overloadpacket.__name__ in self.PRODUCTS and any(
                id(t) not in self.seen for t in given
            ):
                raise _Enough
            self.seen |= {id(t): t for t in tree_leaves(result) if isinstance(t, Tensor)}
        return result


def _for_want_of_values(error: Exception) -> bool:
    """Whether it was the fake tensors that failed: the model asks for values, or for operations they do not have."""
    words = ("fake", "meta", "data-dependent", "numpy", "item()", "unbacked", "no kernel")
    theirs = type(error).__module__.startswith(("torch._subclasses", "torch.fx", "torch._dynamo"))
    return (
        theirs
        or isinstance(error, NotImplementedError)
        or any(word in str(error).lower() for word in words)
    )


def _with_channels(model: nn.Module, sides: tuple[int, ...]) -> Shape:
    """The number of channels with which the model accepts images of this size."""
    shapes = [(channels, sides[0], sides[1]) for channels in likely_channels(model)]
    for shape in shapes:
        if accepts(model, shape, far=False) is None:
            return shape
    return shapes[0]  # reading the model will fail, and `does_not_run` says what is wrong


def accepted(model: nn.Module, channels: int | None = None) -> Iterator[Shape]:
    """Shapes of images on which the model runs, the most plausible first."""
    known = channels
    for sides in dict.fromkeys(likely_sides(model)):
        for count in [known] if known is not None else likely_channels(model):
            shape = (count, *sides)
            if accepts(model, shape) is None:
                known = count
                yield shape
                break


def _filled(model: nn.Module, channels: int | None) -> list[Shape]:
    """Shapes that fill a position embedding: the model runs on them, and on nothing twice as large."""
    filled = []
    for side in sides_by_positions(model):
        for count in [channels] if channels is not None else likely_channels(model):
            if accepts(model, (count, side, side)) is None:
                if accepts(model, (count, 2 * side, 2 * side)) is not None:
                    filled.append((count, side, side))
                break
    return filled


def _search(model: nn.Module, channels: int | None) -> Shape:
    """The size, where the model names none: the only one it accepts. If it accepts several, the user has to say."""
    from vitreous.specimen.wrong_inputs import does_not_run, surely_takes

    shape = (channels or 3, USUAL, USUAL)
    if surely_takes(model):
        raise does_not_run(model, shape, None)
    found = _filled(model, channels)
    if len(found) != 1:
        found = list(islice(accepted(model, channels), 2))
    if len(found) == 1:
        return found[0]
    if not found:
        raise does_not_run(model, shape, accepts(model, shape))
    raise VitreousError(
        f"{type(model).__name__} runs on images of several sizes ({_listed(found)}) and names none; "
        f"say which, image={found[0][-1]} for one."
    )


def _listed(shapes: Iterable[Shape]) -> str:
    return ", ".join(map(format_size, shapes)) + ", …"
