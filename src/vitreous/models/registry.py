"""Build models by name: `build("vit_ti/4", image=32, classes=10, pos="2d")`.

A name is `<family>_<size>`, and `/<patch>` is short for the option `patch`: `vit_ti/4`, `convit_s`,
`resnet_18`. A family is one function under the decorator `family`: its first argument is a row of
the size table, its keyword-only arguments (or, if there are many, the fields of a dataclass) are
the options, and `build` checks values against their annotations. Importing the file registers the
family, and importing `vitreous.models` imports every file of the folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, TypeVar

import timm.models
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from vitreous.errors import UnknownName, VitreousError, nearest_names
from vitreous.models.weights import mark
from vitreous.validation import annotation_in_words, as_tuples, fits_annotation, type_hints

Image = int | tuple[int, int]
"""Height and width of the input, or one number for both."""

POSITIVE = {
    "image", "patch", "stride", "channels", "depth", "depths", "width", "heads", "head_dim",
    "kernel", "dilation", "window", "hidden",
}  # fmt: skip
FRACTION = {"dropout", "drop_path"}
"""Options of any family that take a number from 0 to 1."""

TIMM_PREFIX = "vitreous_"
TIMM_WORDS = {
    "img_size": "image",
    "num_classes": "classes",
    "in_chans": "channels",
    "global_pool": "pool",
    "drop_rate": "dropout",
    "drop_path_rate": "drop_path",
    "patch_size": "patch",
}
TIMM_POOLS = {"token": "class", "avg": "gap"}


class BadModel(VitreousError):
    """Options are invalid; the message lists everything that is wrong with them."""


class ConfiguredModel(nn.Module):
    """Base class of every registered model, which stores the arguments of its builder.

    `build(**model.config)` is the same model with fresh weights.
    """

    num_classes: int
    num_features: int
    pretrained_cfg: dict[str, Any]
    default_cfg: dict[str, Any]
    _config: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """Name, image, classes and all options as plain values; follows `reset_classifier`."""
        return {**self._config, "classes": self.num_classes}

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, besides one-dimensional ones, that get no weight decay."""
        return set(getattr(super(), "no_weight_decay", set)())


class Classifier(ConfiguredModel):
    """Base class of our own architectures: features, then pooling and one linear `head`.

    A subclass sets `head` and defines `forward_features` and `forward_head`, as in timm.
    """

    head: nn.Module

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.num_features, self.num_classes = features, classes

    def forward(self, images: Tensor) -> Any:
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Any:
        raise NotImplementedError

    def get_classifier(self) -> nn.Module | tuple[nn.Module, ...]:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Attach a linear classifier of zeros (none for 0 classes) to the mean over positions."""
        known = global_pool in (None, "", "avg", "gap")
        require((known, f"global_pool {global_pool!r} is not 'avg', the only read-out there is"))
        self.num_classes = num_classes
        self.head = zero_head(self.num_features, num_classes).to(next(self.parameters()))


Builder = TypeVar("Builder", bound=Callable[..., ConfiguredModel])


@cache
def _keyword_defaults(builder: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a builder, with their defaults."""
    parameters = inspect.signature(builder).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


@dataclass(frozen=True)
class Family:
    """A registered builder; the fields are the arguments of the decorator `family`."""

    name: str
    sizes: Mapping[str, Any]
    patches: tuple[int, ...]
    make: Callable[..., ConfiguredModel]
    fields: type | None
    by_size: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """All options with their defaults."""
        return {**_keyword_defaults(self.fields or self.make), **self.defaults}

    def options_at(self, size: str) -> dict[str, Any]:
        """All options with their defaults for this size."""
        return {**self.options, **self.by_size.get(size, {})}

    def make_size(self, size: str, options: Mapping[str, Any]) -> ConfiguredModel:
        """Call the builder with a row of the size table and the options."""
        if self.fields is None:
            return self.make(self.sizes[size], **options)
        return self.make(self.sizes[size], self.fields(**options))

    def names(self) -> list[str]:
        """`<family>_<size>` for every size, with each listed patch unless the size fixes one."""
        listed = []
        for size in self.sizes:
            fixed = "patch" in self.by_size.get(size, {})
            endings = [""] if fixed or not self.patches else [f"/{p}" for p in self.patches]
            listed += [f"{self.name}_{size}{ending}" for ending in endings]
        return listed


FAMILIES: dict[str, Family] = {}


def family(
    name: str,
    sizes: Mapping[str, Any],
    patches: Iterable[int] = (),
    fields: type | None = None,
    by_size: Mapping[str, Mapping[str, Any]] | None = None,
    **defaults: Any,
) -> Callable[[Builder], Builder]:
    """Register the decorated function as the builder of a family of models.

    Parameters
    ----------
    name
        Family name, the part of a model's name before the size.
    sizes
        The size table: the builder gets one row of it as its first argument. Write its keys as
        string literals, because `vitreous.model_names` reads them from the source without
        importing it.
    patches
        Patch sizes that `names` lists; any other number can be built too.
    fields
        A keyword-only dataclass of options; the builder is then called as `make(row, fields(...))`.
        Without it, the options are the builder's own keyword-only arguments.
    by_size
        Other defaults for single sizes.
    **defaults
        Other defaults for the whole family, so that DeiT needs no builder besides ViT's.

    Returns
    -------
    A decorator that returns the builder unchanged. Every option needs a default, and `image` and
    `classes` are required. timm learns the names too: `vit_ti/4` is its `vitreous_vit_ti_4`.

    Examples
    --------
    >>> @family("linear", {"s": 64})
    ... def linear(width: int, *, image: Image = 32, classes: int = 10) -> ConfiguredModel: ...
    """

    def register(make: Builder) -> Builder:
        added = Family(name, sizes, tuple(patches), make, fields, by_size or {}, defaults)
        complete = inspect.Parameter.empty not in added.options.values()
        if not complete or not {"image", "classes"} <= added.options.keys():
            raise TypeError(
                f"{make.__qualname__} needs keyword-only image and classes, "
                "and a default for every option"
            )
        if name in FAMILIES:
            raise TypeError(f"the model family {name!r} is registered twice")
        FAMILIES[name] = added
        for each in added.names():
            _publish_to_timm(each)
        return make

    return register


def names(pattern: str = "*") -> list[str]:
    """Sorted names that `build` lists and that match a wildcard pattern such as `vit_*`."""
    listed = [name for each in FAMILIES.values() for name in each.names()]
    return sorted(name for name in listed if fnmatchcase(name, pattern))


def options(name: str) -> dict[str, Any]:
    """The options of a model's family with their defaults at its size."""
    chosen, size, _ = _parse(name)
    return chosen.options_at(size)


def build(name: str, **options: Any) -> ConfiguredModel:
    """Build the model called `name` with weights drawn from torch's global random state.

    Parameters
    ----------
    name
        `<family>_<size>`, optionally with `/<patch>`; `names()` lists them.
    **options
        Every family takes `image` (a size or (height, width)) and `classes` (0 returns features);
        `options(name)` lists the others. The model keeps all of them as `model.config`.

    Examples
    --------
    >>> model = vitreous.build("vit_ti/4", image=32, classes=10, pos="2d")
    >>> sum(p.numel() for p in model.parameters())
    5352010
    """
    chosen, size, patch = _parse(name)
    given = {key: as_tuples(value) for key, value in options.items()}
    wrong = []
    if patch is not None and "patch" in chosen.options:
        if given.setdefault("patch", patch) != patch:
            wrong.append(f"the name says patch {patch} and the option patch={given['patch']}")
    elif patch is not None:
        wrong.append(f"{chosen.name} has no patches, so its name takes no '/{patch}'")
    wrong += _check_options(chosen, given)
    if wrong:
        raise BadModel(f"{name} cannot be built: {'; '.join(wrong)}.")
    resolved = {**chosen.options_at(size), **given}
    try:
        model = chosen.make_size(size, resolved)
    except BadModel as error:
        raise BadModel(f"{name} cannot be built: {error}.") from None
    if patch is not None:
        del resolved["patch"]
    model._config = {"name": name, **resolved}
    model.pretrained_cfg = model.default_cfg = _timm_cfg(model)
    return mark(model, "random")


def require(*rules: tuple[bool, str]) -> None:
    """Raise one `BadModel` with the sentence of every rule (condition, sentence) that fails."""
    broken = [sentence for holds, sentence in rules if not holds]
    if broken:
        raise BadModel("; ".join(broken))


def zero_head(width: int, classes: int) -> nn.Linear | nn.Identity:
    """A linear classifier whose weights are zero, or the identity for 0 classes."""
    if not classes:
        return nn.Identity()
    head = nn.Linear(width, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def patch_grid(image: Image, patch: int) -> tuple[int, int]:
    """Rows and columns of patches; an error if patches do not tile the image."""
    height, width = (image, image) if isinstance(image, int) else image
    fits_exactly = height % patch == width % patch == 0
    require((fits_exactly, f"image {height}x{width} is not divisible by patch {patch}"))
    return height // patch, width // patch


def is_registered(name: str) -> bool:
    """Whether `build` knows the name."""
    try:
        _parse(name)
    except UnknownName:
        return False
    return True


def timm_name(name: str) -> str:
    """timm's name for `vit_ti/4`, `vitreous_vit_ti_4`; there names are Python identifiers."""
    return TIMM_PREFIX + name.replace("/", "_").replace("+", "_plus")


def _parse(name: str) -> tuple[Family, str, int | None]:
    """Family, size and patch (None if the name has none)."""
    stem, slash, patch = name.partition("/")
    stems = {f"{f.name}_{size}": (f, size) for f in FAMILIES.values() for size in f.sizes}
    if stem not in stems or patch.isdigit() != bool(slash):
        raise UnknownName("model", name, [*names(), *stems])
    return *stems[stem], int(patch) if slash else None


def _check_options(chosen: Family, given: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is wrong with each single option: unknown, of the wrong type, or out of range."""
    hints = type_hints(chosen.fields or chosen.make)
    for key, value in given.items():
        if key not in chosen.options:
            near = nearest_names(key, chosen.options)
            meant = f" (did you mean {' or '.join(near)}?)" if near else ""
            yield f"there is no option {key!r}{meant}, only {', '.join(chosen.options)}"
        elif not fits_annotation(value, hints[key]):
            yield f"{key}={value!r} is not {annotation_in_words(hints[key])}"
        elif value is not None:
            smallest = min(value, default=1) if isinstance(value, tuple) else value
            if key in POSITIVE and smallest < 1:
                yield f"{key} {value} is not positive"
            if key in FRACTION and not 0 <= value < 1:
                yield f"{key} {value} is not in [0, 1)"
            if key == "classes" and value < 0:
                yield f"classes {value} is negative"


def _timm_cfg(model: Any) -> dict[str, Any]:
    """timm's `pretrained_cfg`: input size, normalisation, first convolution and classifier."""
    image = model._config["image"]
    height, width = (image, image) if isinstance(image, int) else image
    classifier = model.get_classifier()
    heads = classifier if isinstance(classifier, tuple) else (classifier,)
    modules = dict(model.named_modules())
    paths = tuple(path for head in heads for path, module in modules.items() if module is head)
    convolutions = (path for path, module in modules.items() if isinstance(module, nn.Conv2d))
    return {
        "architecture": timm_name(model._config["name"]),
        "input_size": (model._config.get("channels", 3), height, width),
        "num_classes": model.num_classes,
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "interpolation": "bicubic",
        "crop_pct": 0.875 if height >= 96 else 1.0,
        "pool_size": None,
        "first_conv": next(convolutions, None),
        "classifier": paths[0] if len(paths) == 1 else paths,
    }


def _publish_to_timm(name: str) -> None:
    """Register a model with timm: `timm.create_model("vitreous_vit_ti_4", img_size=32)` builds it.

    timm's names of common options are translated, all others are passed on unchanged.
    """

    def entry(pretrained: bool = False, **given: Any) -> ConfiguredModel:
        if pretrained:
            raise BadModel(
                f"{timm_name(name)} has no published weights: "
                "build it with pretrained=False and load yours."
            )
        for key in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
            given.pop(key, None)
        ours = {TIMM_WORDS.get(key, key): value for key, value in given.items()}
        if "pool" in ours:
            ours["pool"] = TIMM_POOLS.get(ours["pool"], ours["pool"])
        return build(name, **ours)

    entry.__name__ = entry.__qualname__ = timm_name(name)
    timm.models.register_model(entry)
