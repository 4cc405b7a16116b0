"""A model by its name: one grammar for every place a model can come from.

| name | where it comes from |
|---|---|
| `vit_ti/4`, `convit_s`, `alternet_50`, … | our own, by the papers' names (`vitreous.build` takes options too) |
| `vit_small_patch16_224`, `vit_small_patch16_224.augreg_in1k`, `hf-hub:…`, `local-dir:…` | timm, as timm spells it |
| `hf:google/vit-base-patch16-224`, `hf:./folder`, `hf:./config.json` | Hugging Face's transformers |
| `tv:resnet50` | torchvision |
| `run:./folder`, `run:./folder@warmup`, or a path | a model trained with Vitreous, at the end or at a checkpoint |
| `nano:vit`, `nano:resnet@initial`, … | small trained models within the package, some at other checkpoints too |
| `mypackage.mymodule:make` | what your own function returns; see `vitreous.models.own` |

Weights are random unless `pretrained` is asked for, and nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous import model_names
from vitreous.errors import UnknownName, VitreousError
from vitreous.image_size import ImageSize, sides
from vitreous.models import hugging_face, own, registry, runs
from vitreous.models.hugging_face import Size
from vitreous.models.registry import is_registered
from vitreous.models.weights import Weights, mark

if TYPE_CHECKING:
    from torch import nn

TIMM_SOURCES = ("hf-hub", "hf_hub", "local-dir")


def load(
    name: str,
    *,
    pretrained: bool = False,
    image: ImageSize | None = None,
    classes: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model called `name`, for images of size `image` where it has to know it; channels do not matter here.

    `classes` and `options` are for models that are yet to be trained: another number of classes than the model's own,
    and what it is built with (`drop_path`); an option that the model does not have is left out.
    """
    image = sides(image)
    source, colon, rest = name.partition(":")
    weights: Weights = "pretrained" if pretrained else "random"
    if source == "hf":
        return mark(hugging_face.load(rest, pretrained=pretrained, image=image), weights)
    if source == "tv":
        return mark(_torchvision(rest, pretrained, image, classes), weights)
    if source == "run":
        return runs.load(rest)
    if source == "nano":
        return runs.nano(rest)
    if own.is_own(name):
        return own.load(
            name, pretrained=pretrained, image=image, classes=classes, **(options or {})
        )
    if is_registered(name):
        return _ours(name, pretrained, image, classes, options or {})
    if (colon and source in TIMM_SOURCES) or not _is_path(name):
        return mark(_timm(name, pretrained, image, classes, options or {}), weights)
    return runs.load(name)


def list_models(filter: str = "*", pretrained: bool = False) -> list[str]:
    """Names that `load` knows without asking the network: ours, then timm's, then torchvision's.

    `filter` is a glob; with `pretrained` only those for which weights are published, each with its tag.
    """
    import timm

    ours = [f"nano:{name}" for name in runs.nanos()] + ([] if pretrained else registry.names())
    theirs = [
        name
        for name in timm.list_models(pretrained=pretrained)
        if not name.startswith(registry.TIMM_PREFIX)
    ]
    return [name for name in [*ours, *theirs, *_torchvision_names()] if fnmatchcase(name, filter)]


def _ours(
    name: str, pretrained: bool, image: Size | None, classes: int | None, options: Mapping[str, Any]
) -> nn.Module:
    if pretrained:
        raise VitreousError(
            f"There are no published weights for {name!r}; leave pretrained out for random ones."
        )
    known = registry.options(name)
    given = {
        "image": image,
        "classes": classes,
        **{key: value for key, value in options.items() if key in known},
    }
    return registry.build(name, **{key: value for key, value in given.items() if value is not None})


def _timm(
    name: str, pretrained: bool, image: Size | None, classes: int | None, options: Mapping[str, Any]
) -> nn.Module:
    import timm

    source, _, rest = name.partition(":")
    remote = source in ("hf-hub", "hf_hub")
    if source == "local-dir" and not (Path(rest).expanduser() / "config.json").is_file():
        raise VitreousError(
            f"There is no config.json in {rest!r}; 'local-dir:' takes a folder that timm has saved."
        )
    if source not in TIMM_SOURCES:
        _check_timm_name(name)
    theirs = {word: options[ours] for word, ours in registry.TIMM_WORDS.items() if ours in options}
    if classes is not None:
        theirs["num_classes"] = classes
    with hugging_face.loading(name, hub=remote or pretrained):
        try:
            return timm.create_model(name, pretrained=pretrained, img_size=image, **theirs)
        except TypeError as error:  # a network that takes images of any size has no such argument
            if "img_size" not in str(error):
                raise
            return timm.create_model(name, pretrained=pretrained, **theirs)


def _check_timm_name(name: str) -> None:
    import timm

    if not timm.is_model(name):
        raise UnknownName("model", name, list_models(), model_names.hint(name))
    tags = timm.models.get_arch_pretrained_cfgs(name)
    if "." in name and name not in tags:
        raise UnknownName(
            "set of weights", name, tags, f"There are {len(tags)} for {name.split('.')[0]!r}."
        )


def _torchvision_names() -> list[str]:
    """Classifiers only: torchvision's detectors download a backbone even where no weights were asked for."""
    import torchvision

    return [f"tv:{name}" for name in torchvision.models.list_models(module=torchvision.models)]


def _torchvision(name: str, pretrained: bool, image: Size | None, classes: int | None) -> nn.Module:
    import torchvision

    if f"tv:{name}" not in _torchvision_names():
        raise UnknownName("torchvision model", f"tv:{name}", _torchvision_names())
    given = (
        {"image_size": _square(image, name)}
        if image is not None and name.startswith("vit_")
        else {}
    )
    if classes is not None and not pretrained:
        given["num_classes"] = classes
    with hugging_face.loading(f"tv:{name}", hub=False):
        weights = torchvision.models.get_model_weights(name).DEFAULT if pretrained else None
        model: nn.Module = torchvision.models.get_model(name, weights=weights, **given)
    if weights is not None:
        how = weights.transforms()
        model.trained_with = {"mean": tuple(how.mean), "std": tuple(how.std)}  # type: ignore[assignment]
    return model


def _square(image: Size, name: str) -> int:
    height, width = (image, image) if isinstance(image, int) else image
    if height != width:
        raise VitreousError(f"'tv:{name}' takes square images only, not {height}x{width}.")
    return height


def _is_path(name: str) -> bool:
    """Models win over files of the same name; a path says what it is by a leading dot, slash or tilde, or an ending."""
    if name.startswith((".", "/", "~")) or Path(name).suffix in (".safetensors", *runs.PICKLES):
        return True
    import timm

    return name != "" and not timm.is_model(name) and Path(name).exists()
