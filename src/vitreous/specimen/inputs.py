"""Find the input shape of a model, or what it takes if not images.

A size given by the user has priority, then the size that the model declares (in timm's or Hugging
Face's configuration). If it declares none, sizes are tried: the model runs on fake tensors, which
have shapes but no values, so a trial takes milliseconds and no memory.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitreous.errors import NotExportable, VitreousError
from vitreous.image_size import format_size, image_size
from vitreous.specimen.state import undisturbed

Shape = tuple[int, int, int]
"""Channels, height and width."""

EXAMPLE_BATCH = 2
"""Batch size for which the nodes of a graph store shapes."""
SIDES = (
    224, 32, 64, 28, 96, 128, 192, 256, 299, 384, 448, 512, 48, 160, 240, 288, 320, 518, 640, 768,
    1024,
)  # fmt: skip
"""Image sizes in use, the most frequent first."""
SIZE_ATTRIBUTES = ("image_size", "img_size")
DEFAULT_SIDE = 224
"""The usual training size of networks that take any size (ResNet, ConvNeXt)."""

ARGUMENT_NAMES = {
    "tokens": "input_ids ids tokens token_ids text texts input_tokens captions sentences",
    "video": "video videos clips frames pixel_values_videos volume volumes",
    "audio": "audio waveform waveforms wav speech input_values input_features",
    "a series": "series sequences time_series past_values",
    "points": "points point_cloud coordinates",
}
"""Names of arguments of `forward` that are not images, by what they contain."""
SYMPTOMS = {
    "'indices'": "integer tokens",
    "conv3d": "video or volumes (5 dimensions)",
    "expected 5, got 4": "video or volumes (5 dimensions)",
    "conv1d": "a series (3 dimensions)",
    "expected 3, got 4": "a series (3 dimensions)",
    "expected 2, got 4": "a table (2 dimensions)",
    "must be sequence": "a list",
    "list indices": "a dict or a list",
    "only integers, slices": "a dict",
    "too many indices for tensor of dimension 4": "a dict, or more than 4 dimensions,",
    "to be 2d or 3d, got 4d": "a series (2 or 3 dimensions)",
    "too many values to unpack": "fewer dimensions, or several inputs",
}
"""What a model takes, by a part of the error message that it raises for images."""
TOWERS = (
    "vision_model", "vision_tower", "vision_encoder", "visual", "visual_encoder", "image_encoder",
    "image_model", "image_tower", "img_encoder", "vision", "vision_backbone", "image_backbone",
    "backbone",
)  # fmt: skip
"""Usual names of the part of a multimodal model that takes images, the likeliest first."""


def image_shape(model: nn.Module, image: Any = None) -> Shape:
    """Channels, height and width of the model's images.

    `image` is a size as the user gave it, with or without channels. Missing numbers are those that
    the model declares, else the first that it accepts.
    """
    given = () if image is None else image_size(image)
    if len(given) == 3:
        return given
    channels, sides = _declared_channels(model), given or _declared_sides(model)
    if sides is None:
        return _search(model, channels)
    if channels is not None:
        return (channels, sides[0], sides[1])
    shapes = [(channels, sides[0], sides[1]) for channels in _likely_channels(model)]
    for shape in shapes:
        if accepts(model, shape, far=False) is None:
            return shape
    return shapes[0]  # reading the graph will fail with the message of `does_not_run`


def example(model: nn.Module, shape: Shape) -> Tensor:
    """`EXAMPLE_BATCH` black images of this shape, with the model's dtype and device."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.zeros(EXAMPLE_BATCH, *shape, dtype=weight.dtype, device=weight.device)


def _declared_sides(model: nn.Module) -> tuple[int, int] | None:
    """Height and width as declared by a run of ours, timm, Hugging Face, or an attribute."""
    trained: Any = getattr(model, "trained_with", None)
    if isinstance(trained, Mapping) and "size" in trained:
        # the training size: a network that takes any size is less accurate at other sizes
        return _height_and_width(trained["size"])
    if isinstance(trained, Mapping) and (size := _size_of_preprocessing(model, trained)):
        return size
    timm_config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if timm_config and "input_size" in timm_config:
        # the size the model was built with beats the size of its published weights
        size = getattr(getattr(model, "patch_embed", None), "img_size", None)
        if isinstance(size, tuple) and len(size) == 2:
            return size
        return _height_and_width(timm_config["input_size"])
    config = getattr(model, "config", None)
    for part in (config, getattr(config, "vision_config", None), model):
        for name in SIZE_ATTRIBUTES:
            if (size := _height_and_width(getattr(part, name, None))) is not None:
                return size
    library = type(model).__module__.split(".")[0]
    return (DEFAULT_SIDE, DEFAULT_SIDE) if library in ("torchvision", "transformers") else None


def _size_of_preprocessing(model: nn.Module, trained: Mapping[str, Any]) -> tuple[int, int] | None:
    """What torchvision's transforms or Hugging Face's processor cut out, if the model takes it.

    It comes before the configuration: DINOv2 has one for 518 pixels and a processor for 224.
    """
    size = _height_and_width(trained.get("crop_size"))
    if size is None or trained.get("processor") == "":  # images of many shapes, of this side
        return None
    shape = (_declared_channels(model) or 3, *size)
    return size if accepts(model, shape) is None else None


def _height_and_width(size: Any) -> tuple[int, int] | None:
    """Height and width of a value that may be an image size; None if it is not one."""
    try:
        return image_size(size)[-2:]  # type: ignore[return-value]
    except VitreousError:
        return None


def _declared_channels(model: nn.Module) -> int | None:
    """Channels from timm's or Hugging Face's configuration."""
    config: Any = getattr(model, "pretrained_cfg", None)
    if config and "input_size" in config:
        name, default = config.get("first_conv"), int(config["input_size"][0])
        first = dict(model.named_modules()).get(name if isinstance(name, str) else "")
        if not isinstance(first, nn.Conv2d):
            return default
        pixels_as_channels = first.in_channels in (default * 4, default * 16)
        return default if pixels_as_channels else first.in_channels
    config = getattr(model, "config", None)
    for part in (config, getattr(config, "vision_config", None)):
        count = getattr(part, "num_channels", None)
        if type(count) is int and count > 0:
            return count
    return None


def _likely_channels(model: nn.Module) -> list[int]:
    """Numbers of channels to try: colour, grey, then those of convolutions and normalisations."""
    modules = list(model.modules())
    convolutions = [m.in_channels for m in modules if isinstance(m, nn.Conv2d)]
    norms = [m.num_features for m in modules if isinstance(m, (nn.BatchNorm2d, nn.InstanceNorm2d))]
    few = sorted({n for n in convolutions + norms if n <= 16})
    return list(dict.fromkeys([3, 1, *convolutions[:3], 4, 2, *few]))


def _likely_sides(model: nn.Module) -> Iterator[tuple[int, int]]:
    """Sizes to try: those in attributes of the model's parts, then the usual ones."""
    for module in model.modules():
        for name in SIZE_ATTRIBUTES:
            if (size := _height_and_width(vars(module).get(name))) is not None:
                yield size
    for side in SIDES:
        yield (side, side)


def _sides_by_positions(model: nn.Module) -> list[int]:
    """Sides of square images whose patches fill a position embedding, with 0 to 2 class tokens."""
    patches = {m.stride[0] for m in model.modules() if isinstance(m, nn.Conv2d)}
    for features in {m.in_features for m in model.modules() if isinstance(m, nn.Linear)}:
        patches |= {_root(features // channels) for channels in (3, 1) if features % channels == 0}
    tables = [*model.named_parameters(), *model.named_buffers()]
    rows = {t.shape[-2] for name, t in tables if "pos" in name.lower() and t.ndim >= 2}
    grids = {_root(count - prefix) for count in rows for prefix in (0, 1, 2)}
    return sorted({grid * patch for grid in grids for patch in patches if grid > 1 and patch > 1})


def _root(number: int) -> int:
    """The square root if it is an integer, else 0."""
    root = isqrt(max(number, 0))
    return root if root * root == number else 0


def accepts(
    model: nn.Module, shape: Shape, *, far: bool = True, fake: bool = True
) -> Exception | None:
    """None if the model runs on images of this shape, otherwise the exception it raises.

    With `far=False` it stops after the first product of weights and images, which is enough to
    check the channels. With `fake=False` it runs on real tensors: fake tensors accept more, such
    as an embedding of floats before torch 2.15.
    """
    modes: list[AbstractContextManager[Any]] = [nullcontext()]
    if fake:
        modes.insert(0, FakeTensorMode(allow_non_fake_inputs=True))
    with undisturbed(model) as saving, torch.no_grad():
        for mode in modes:
            try:
                with mode, saving:
                    images = example(model, shape)
                    with nullcontext() if far else _UntilWeights(images):
                        model(images)
            except _Enough:
                return None
            except Exception as error:
                if isinstance(mode, FakeTensorMode) and _needs_values(error):
                    continue  # try again on real tensors
                return error
            return None
    raise AssertionError("unreachable")


class _Enough(BaseException):
    """Stops a forward pass whose rest does not matter."""


class _UntilWeights(TorchDispatchMode):
    """Stops a forward pass at the first product of weights with the images or their features."""

    PRODUCTS = ("convolution", "mm", "addmm", "bmm", "baddbmm", "linear", "_convolution")

    def __init__(self, images: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.computed: dict[int, Any] = {
            id(images): images
        }  # holds the tensors, so that ids are not reused

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        of_images = [id(t) in self.computed for t in tensors]
        if any(of_images):
            if func.overloadpacket.__name__ in self.PRODUCTS and not all(of_images):
                raise _Enough
            self.computed |= {id(t): t for t in tree_leaves(result) if isinstance(t, Tensor)}
        return result


def _needs_values(error: Exception) -> bool:
    """Whether an error comes from fake tensors: missing values or unsupported operations."""
    words = ("fake", "meta", "data-dependent", "numpy", "item()", "unbacked", "no kernel")
    packages = ("torch._subclasses", "torch.fx", "torch._dynamo")
    return (
        type(error).__module__.startswith(packages)
        or isinstance(error, NotImplementedError)
        or any(word in str(error).lower() for word in words)
    )


def _accepted_shapes(model: nn.Module, channels: int | None = None) -> Iterator[Shape]:
    """Shapes of images on which the model runs, the most plausible first."""
    for sides in dict.fromkeys(_likely_sides(model)):
        for count in [channels] if channels is not None else _likely_channels(model):
            if accepts(model, (count, *sides)) is None:
                channels = count
                yield (count, *sides)
                break


def _shapes_by_positions(model: nn.Module, channels: int | None) -> list[Shape]:
    """Square shapes that fill a position embedding: the model rejects twice the size."""
    shapes = []
    for side in _sides_by_positions(model):
        for count in [channels] if channels is not None else _likely_channels(model):
            if accepts(model, (count, side, side)) is None:
                if accepts(model, (count, 2 * side, 2 * side)) is not None:
                    shapes.append((count, side, side))
                break
    return shapes


def _search(model: nn.Module, channels: int | None) -> Shape:
    """The shape of a model that declares no size: the only one it accepts; raises if several."""
    default = (channels or 3, DEFAULT_SIDE, DEFAULT_SIDE)
    if _cannot_take_images(model):
        raise does_not_run(model, default, None)
    shapes = _shapes_by_positions(model, channels)
    if len(shapes) != 1:
        shapes = list(islice(_accepted_shapes(model, channels), 2))
    if len(shapes) == 1:
        return shapes[0]
    errors = [accepts(model, shape, fake=False) for shape in shapes or [default]]
    if all(errors):
        raise does_not_run(model, default, errors[0])
    sizes = ", ".join(map(format_size, shapes))
    raise VitreousError(
        f"{type(model).__name__} runs on images of several sizes ({sizes}, …) and names none; "
        f"say which, for example image={shapes[0][-1]}."
    )


def does_not_run(model: nn.Module, shape: Shape, error: BaseException | None) -> NotExportable:
    """The exception for a model that failed with `error` on images of `shape`.

    Its message says what the model takes instead, judged by its signature, its layers and a search
    over image sizes, and what to do.
    """
    name, size, message = type(model).__name__, format_size(shape), first_line(error)
    if getattr(model.forward, "__func__", model.forward) is nn.Module.forward:
        return NotExportable(
            f"{name} has no forward; put it into a module whose forward takes a batch of images."
        )
    tower = vision_tower(model)
    advice = "wrap it in a module whose forward takes a batch of images alone"
    advice = f"open its vision tower, model.{tower}, or {advice}" if tower else advice
    if (takes := _cannot_take_images(model)) is not None:
        return NotExportable(f"{name} {takes} and not one batch of images; {advice}.")
    possible = (each for each in _accepted_shapes(model) if not accepts(model, each, fake=False))
    if (accepted := next(possible, None)) is not None:
        return NotExportable(
            f"{name} does not run on images of {size} ({message}), but it runs on "
            f"{format_size(accepted)}: say image={accepted}."
        )
    if (takes := _likely_takes(model, error)) is not None:
        return NotExportable(
            f"{name} takes {takes} and not a batch of images ({message}); {advice}."
        )
    return NotExportable(
        f"{name} does not run on images of {size}, nor of any usual size ({message}); if it takes "
        f"images, say image=(channels, height, width); if not, {advice}."
    )


def _cannot_take_images(model: nn.Module) -> str | None:
    """What `forward` takes, if it cannot be called with one argument; None if it can."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p.name for p in positional if p.default is p.empty]
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    by_name = [f"{p.name}=" for p in keyword_only if p.default is p.empty]
    if len(required) + len(by_name) > 1:
        names = [*required, *by_name]
        return f"takes {len(names)} inputs ({', '.join(names)})"
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or (positional and not by_name):
        return None
    words = by_name or [f"**{p.name}" for p in parameters if p.kind is p.VAR_KEYWORD]
    return f"takes its input by name ({words[0]})" if words else "takes no input"


def _likely_takes(model: nn.Module, error: BaseException | None) -> str | None:
    """What a model that fails on all images probably takes, from names, annotations and error."""
    parameters = inspect.signature(model.forward).parameters
    first = next(iter(parameters.values()), None)
    name = str(getattr(model, "main_input_name", None) or (first.name if first is not None else ""))
    image_names = ("pixel_values", "image", "images", "img")
    others = [word for word in image_names if word in parameters and word != name]
    for content, names in ARGUMENT_NAMES.items():
        if name.lower() in names.split():
            return (
                f"{content} and images ({name}, {others[0]})" if others else f"{content} ({name})"
            )
    annotation = str(first.annotation if first is not None else "").lower().removeprefix("typing.")
    for word in ("list", "sequence", "dict", "mapping", "str"):
        if annotation.startswith((word, f"<class '{word}")):
            return f"a {word} ({name})"
    for symptom, content in SYMPTOMS.items():
        if symptom in str(error).lower():
            return content
    layers = {type(module) for module in model.modules()}
    if nn.Conv2d not in layers and layers & {nn.Conv3d, nn.Conv1d}:
        return SYMPTOMS["conv3d" if nn.Conv3d in layers else "conv1d"]
    return None


def vision_tower(model: nn.Module) -> str | None:
    """The path of the part that takes images, found by name in at most three levels, or None."""
    queue: deque[tuple[str, nn.Module]] = deque([("", model)])
    while queue:
        path, module = queue.popleft()
        children = dict(module.named_children())
        for name in TOWERS:
            if name in children:
                return f"{path}{name}"
        if path.count(".") < 2:
            queue.extend((f"{path}{name}.", child) for name, child in children.items())
    return None


def first_line(error: BaseException | None) -> str:
    """The first line of an exception's message, shortened; its type if it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).split(" (unhinted")[0].rstrip(".")[:200]
