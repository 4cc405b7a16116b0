"""Names to models: `build("vit_ti/4", image=32, classes=10, pos="2d")`.

A name is `<family>_<size>`, and `/<patch>` is short for the option `patch`: `vit_ti/4`, `convit_s`, `resnet_18`. A
family is one function in its own file under the decorator `family`: its first argument is the row of the size table,
its keyword-only arguments (or, if there are many, the fields of a dataclass) are the options, and their annotations are
what `build` checks values against. Nothing else has to be told about a new family; importing `vitreous.models` imports
the folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar, get_type_hints

import timm.models
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn

from vitreous.errors import UnknownName, VitreousError, nearest
from vitreous.models.weights import mark
from vitreous.validation import annotation_in_words, as_tuples, fits_annotation

Image = int | tuple[int, int]
"""Height and width of the input, or one number for both."""

POSITIVE = {
    "image",
    "patch",
    "stride",
    "channels",
    "depth",
    "depths",
    "width",
    "heads",
    "head_dim",
    "kernel",
}
POSITIVE |= {"dilation", "window", "hidden"}
FRACTION = {"dropout", "drop_path"}
"""Options whose range follows from their name, in every family that has them."""

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
    """Options that cannot be built, all that is wrong with them in one sentence."""


class Remembers(nn.Module):
    """Base of every model of the registry: knows the call that builds it again, `build(**model.config)`."""

    num_classes: int
    num_features: int
    pretrained_cfg: dict[str, Any]
    default_cfg: dict[str, Any]
    _config: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """Name, image, classes and all options. Plain values, and live: it follows `reset_classifier`."""
        return {**self._config, "classes": self.num_classes}

    def no_weight_decay(self) -> set[str]:
        """Parameters that timm's optimisers leave without weight decay besides the one-dimensional ones."""
        return set(getattr(super(), "no_weight_decay", set)())


Builder = TypeVar("Builder", bound=Callable[..., Remembers])


@dataclass(frozen=True)
class Family:
    """One registered builder."""

    name: str
    sizes: Mapping[str, Any]
    patches: tuple[int, ...]
    make: Callable[..., Remembers]
    fields: type | None
    by_size: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its default."""
        parameters = inspect.signature(self.fields or self.make).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        return {**own, **self.defaults}

    def of(self, size: str) -> dict[str, Any]:
        """Every option with the default it has at this size."""
        return {**self.options, **self.by_size.get(size, {})}

    def listed(self, size: str) -> list[str]:
        """The names of a size: one for each patch, or one alone if the size has a patch of its own."""
        patches = () if "patch" in self.by_size.get(size, {}) else self.patches
        return [f"{self.name}_{size}{patch}" for patch in ([f"/{p}" for p in patches] or [""])]


FAMILIES: dict[str, Family] = {}


def family(
    name: str,
    sizes: Mapping[str, Any],
    patches: Iterable[int] = (),
    fields: type | None = None,
    by_size: Mapping[str, Mapping[str, Any]] | None = None,
    **defaults: Any,
) -> Callable[[Builder], Builder]:
    """Register `make(size, *, image, classes, ...)` under `name`, once per row of `sizes`.

    `patches` are the ones `names()` lists; any other number works too. With a keyword-only dataclass as `fields` the
    call is `make(size, fields(...))`. All options need a default; `defaults` replace it, so that a family that differs
    only in them (DeiT from ViT) needs no builder of its own; `by_size` replace it for one size.
    """

    def register(make: Builder) -> Builder:
        added = Family(name, sizes, tuple(patches), make, fields, by_size or {}, defaults)
        if (
            not {"image", "classes"} <= set(added.options)
            or inspect.Parameter.empty in added.options.values()
        ):
            raise TypeError(
                f"{make.__qualname__} needs keyword-only image and classes, and a default for every option"
            )
        if name in FAMILIES:
            raise TypeError(f"the model family {name!r} is registered twice")
        FAMILIES[name] = added
        return make

    return register


def names(pattern: str = "*") -> list[str]:
    """Every name `build` lists, optionally only those that match a wildcard pattern such as `vit_*`."""
    listed = [
        name for each in FAMILIES.values() for size in each.sizes for name in each.listed(size)
    ]
    return sorted(name for name in listed if fnmatchcase(name, pattern))


def options(name: str) -> dict[str, Any]:
    """The options of the family of `name` with their defaults; the family's file explains each where it is declared."""
    found, size, _ = _find(name)
    return found.of(size)


def build(name: str, **options: Any) -> Remembers:
    """The model called `name`, freshly initialised from torch's global random state.

    Every family takes `image` (a size or (height, width)) and `classes` (0 for none, leaving the features); the others
    are listed by `options(name)`. The result remembers them all as `model.config`.
    """
    found, size, patch = _find(name)
    given = {key: as_tuples(value) for key, value in options.items()}
    wrong = []
    if patch is not None and "patch" in found.options:
        if given.setdefault("patch", patch) != patch:
            wrong.append(f"the name says patch {patch} and the option patch={given['patch']}")
    elif patch is not None:
        wrong.append(f"{found.name} has no patches, so its name takes no '/{patch}'")
    wrong += _complaints(found, given)
    if wrong:
        raise BadModel(f"{name} cannot be built: {'; '.join(wrong)}.")
    resolved = {**found.of(size), **given}
    try:
        row = found.sizes[size]
        model = (
            found.make(row, found.fields(**resolved))
            if found.fields
            else found.make(row, **resolved)
        )
    except BadModel as error:
        raise BadModel(f"{name} cannot be built: {error}.") from None
    if patch is not None:
        del resolved["patch"]
    model._config = {"name": name, **resolved}
    model.pretrained_cfg = model.default_cfg = _timm_cfg(model)
    return mark(model, "random")


def check(*rules: tuple[bool, str]) -> None:
    """Raise one `BadModel` with the sentence of every rule that does not hold, so that a user mends all in one go."""
    broken = [sentence for holds, sentence in rules if not holds]
    if broken:
        raise BadModel("; ".join(broken))


def zero_head(width: int, classes: int) -> nn.Linear | nn.Identity:
    """A linear classifier of zeros (A3.04), or nothing for no classes."""
    if not classes:
        return nn.Identity()
    head = nn.Linear(width, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def grid_of(image: Image, patch: int) -> tuple[int, int]:
    """Rows and columns of patches; refuses an image that patches do not tile."""
    height, width = (image, image) if isinstance(image, int) else image
    check(
        (
            height % patch == width % patch == 0,
            f"image {height}x{width} is not divisible by patch {patch}",
        )
    )
    return height // patch, width // patch


def is_ours(name: str) -> bool:
    """Whether `build` knows the name."""
    try:
        _find(name)
    except UnknownName:
        return False
    return True


def _find(name: str) -> tuple[Family, str, int | None]:
    stem, slash, patch = name.partition("/")
    for each in FAMILIES.values():
        for size in each.sizes:
            if stem == f"{each.name}_{size}" and patch.isdigit() == bool(slash):
                return each, size, int(patch) if slash else None
    raise UnknownName(
        "model", name, [*names(), *(f"{f.name}_{s}" for f in FAMILIES.values() for s in f.sizes)]
    )


def _complaints(found: Family, given: Mapping[str, Any]) -> Iterable[str]:
    """What is wrong with each option on its own: a name that does not exist, a value outside the annotation."""
    hints = get_type_hints(found.fields or found.make)
    for key, value in given.items():
        if key not in found.options:
            near = nearest(key, found.options)
            meant = f" (did you mean {' or '.join(near)}?)" if near else ""
            yield f"there is no option {key!r}{meant}, only {', '.join(found.options)}"
        elif not fits_annotation(value, hints[key]):
            yield f"{key}={value!r} is not {annotation_in_words(hints[key])}"
        elif value is not None:
            yield from _out_of_range(key, value)


def _out_of_range(key: str, value: Any) -> Iterable[str]:
    smallest = min(value, default=1) if isinstance(value, tuple) else value
    if key in POSITIVE and smallest < 1:
        yield f"{key} {value} is not positive"
    if key in FRACTION and not 0 <= value < 1:
        yield f"{key} {value} is not in [0, 1)"
    if key == "classes" and value < 0:
        yield f"classes {value} is negative"


def _timm_cfg(model: Remembers) -> dict[str, Any]:
    """What timm keeps about a model: how to feed it, and where its first convolution and its classifier are."""
    image = model._config["image"]
    height, width = (image, image) if isinstance(image, int) else image
    classifier = getattr(model, "get_classifier")()  # noqa: B009
    heads = classifier if isinstance(classifier, tuple) else (classifier,)
    paths = tuple(
        path for head in heads for path, module in model.named_modules() if module is head
    )
    first = next(
        (path for path, module in model.named_modules() if isinstance(module, nn.Conv2d)), None
    )
    return {
        "architecture": timm_name(model._config["name"]),
        "input_size": (model._config.get("channels", 3), height, width),
        "num_classes": model.num_classes,
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "interpolation": "bicubic",
        "crop_pct": 0.875 if height >= 96 else 1.0,
        "pool_size": None,
        "first_conv": first,
        "classifier": paths[0] if len(paths) == 1 else paths,
    }


def timm_name(name: str) -> str:
    """`vit_ti/4` is `vitreous_vit_ti_4` in timm, where names are Python identifiers."""
    return TIMM_PREFIX + name.replace("/", "_").replace("+", "_plus")


def publish_to_timm() -> None:
    """Let `timm.create_model("vitreous_vit_ti_4", img_size=32, num_classes=10)` build our models.

    timm's words for the common options are translated, all others pass as they are. A name timm has is left to timm.
    """
    for name in names():
        if not timm.models.is_model(timm_name(name)):
            timm.models.register_model(_timm_entry(name))


def _timm_entry(name: str) -> Callable[..., Remembers]:
    def entry(pretrained: bool = False, **given: Any) -> Remembers:
        if pretrained:
            raise BadModel(
                f"{timm_name(name)} has no published weights: build it with pretrained=False and load yours."
            )
        for key in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
            given.pop(key, None)
        ours = {TIMM_WORDS.get(key, key): value for key, value in given.items()}
        if "pool" in ours:
            ours["pool"] = TIMM_POOLS.get(ours["pool"], ours["pool"])
        return build(name, **ours)

    entry.__name__ = entry.__qualname__ = timm_name(name)
    return entry
