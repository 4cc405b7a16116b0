"""Load models by name, with one syntax for all sources.

- `vit_ti/4`, `convit_s`, `alternet_50`: our architectures (`vitreous.build` takes options too)
- `vit_small_patch16_224.augreg_in1k`, `hf-hub:…`, `local-dir:…`: timm, as timm spells it
- `hf:google/vit-base-patch16-224`, `hf:./folder`, `hf:./config.json`: Hugging Face transformers
- `tv:resnet50`: torchvision
- `run:./folder`, `run:./folder@warmup`, or a path: a run of `vitreous train`, at a checkpoint
- `nano:vit`, `nano:resnet@initial`: small trained models within the package
- `zoo:vit_ti_4`: networks trained on CIFAR-10, in the repository but not in the wheel
- `mypackage.mymodule:make`, `my_model.py:make`: your own function; see
  `vitreous.models.user_functions`
- a name that an installed package declares for such a function (entry point `vitreous.models`)

Weights are random unless `pretrained` or `weights` is given, or the name is that of a run or of a
folder with weights. Pickled code is never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import timm
import torchvision
from torch import nn

from vitreous import model_names
from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.image_size import ImageSize, sides
from vitreous.models import registry
from vitreous.models.checkpoint_files import has_weights
from vitreous.models.declared import torchvision_training
from vitreous.models.hugging_face import load_hugging_face, safe_loading
from vitreous.models.matching import OtherClasses, load_weights
from vitreous.models.registry import Image
from vitreous.models.resizing import resize_model
from vitreous.models.user_functions import is_user_function, load_user_function
from vitreous.models.weights import Weights, mark, mark_loaded
from vitreous.storage.atomic_files import Damaged
from vitreous.storage.run_folder import Run

TIMM_SOURCES = ("hf-hub", "hf_hub", "local-dir")
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar")


def load_model(
    name: str,
    *,
    pretrained: bool = False,
    image: ImageSize | None = None,
    classes: int | None = None,
    options: Mapping[str, Any] | None = None,
    weights: Path | str | None = None,
) -> nn.Module:
    """Load the model called `name`.

    Parameters
    ----------
    name
        See the list at the top of this file.
    pretrained
        Load published weights; without it they are random, except for `run:`, `nano:`, `zoo:` and
        local folders that hold weights.
    image
        Input size, for models that depend on it; channels are ignored.
    classes
        Number of classes of a model to be trained, if not its default; then its weights are
        random.
    options
        Options of a model to be trained (`drop_path`, …); unknown options are ignored.
    weights
        A checkpoint to load into it: safetensors, or whatever `torch.save` wrote. The model gets as
        many classes as the checkpoint has, unless `classes` says otherwise.

    Examples
    --------
    >>> load_model("nano:vit@warmup")
    >>> load_model("vit_small_patch16_224", pretrained=True)
    >>> load_model("vit_small_patch16_224", weights="runs/last.pth")
    """
    size = sides(image)
    if weights is None:
        stored = classes is None and comes_with_weights(name)
        return _load_named(name, pretrained or stored, size, classes, options or {})
    model = _load_named(name, False, size, classes, options or {})
    try:
        held = load_weights(model, weights, name, image).classes
    except OtherClasses as error:
        if classes is not None:
            raise
        held = error.classes
    if held is not None and classes is None:
        model = _load_named(name, False, size, held, options or {})
        load_weights(model, weights, name, image)
    if name.startswith("tv:"):
        model.trained_with = _torchvision_declares(name, weights)  # type: ignore[assignment]
    return mark_loaded(model)


def comes_with_weights(name: str) -> bool:
    """Whether a name is that of a trained model, or of a local folder with weights."""
    source, _, rest = name.partition(":")
    if source in ("run", "nano", "zoo"):
        return True
    local = source in ("hf", "local-dir") and rest != ""
    return local and has_weights(Path(rest).expanduser())


def _torchvision_declares(name: str, weights: Path | str) -> dict[str, Any]:
    """The metadata of torchvision for a published file, or else for its newest weights."""
    published = torchvision.models.get_model_weights(name.removeprefix("tv:"))
    for each in published:
        if Path(each.url).name == Path(weights).name:
            return torchvision_training(each)
    declared = torchvision_training(published.DEFAULT)
    del declared["label_names"]
    return declared


def _load_named(
    name: str,
    pretrained: bool,
    size: Image | None,
    classes: int | None,
    options: Mapping[str, Any],
) -> nn.Module:
    """Load the model called `name` from its source."""
    source, colon, rest = name.partition(":")
    if source == "hf":
        model = load_hugging_face(rest, pretrained=pretrained, image=size, classes=classes)
        return _mark_named(model, pretrained)
    if source == "tv":
        return _mark_named(_torchvision(rest, pretrained, size, classes), pretrained)
    if source == "run":
        return _load_run(rest, size)
    if source == "nano":
        return _load_bundled(rest, size)
    if source == "zoo":
        model_names.check_model(name)
        return _load_run(str(model_names.zoo_folder() / rest), size)
    function = model_names.plugin_models().get(name, name)
    if is_user_function(function):
        return load_user_function(
            function, pretrained=pretrained, image=size, classes=classes, **options
        )
    if registry.is_registered(name):
        return _registered(name, pretrained, size, classes, options)
    if (colon and source in TIMM_SOURCES) or not _is_path(name):
        return _mark_named(_timm(name, pretrained, size, classes, options), pretrained)
    return _load_run(name, size)


def _mark_named(model: nn.Module, pretrained: bool) -> nn.Module:
    """Record whether the weights are published ones, or a folder's, which may be untrained."""
    return mark_loaded(model, "pretrained") if pretrained else mark(model, "random")


def list_models(filter: str = "*", pretrained: bool = False) -> list[str]:
    """Names that `load_model` knows offline and that match a glob: ours, timm's, torchvision's.

    With `pretrained`, only those with published weights, each with its tag.
    """
    ours = [f"nano:{name}" for name in model_names.bundled()]
    ours += [f"zoo:{name}" for name in model_names.zoo()]
    if not pretrained:
        ours += [*registry.names(), *sorted(model_names.plugin_models())]
    theirs = timm.list_models(pretrained=pretrained)
    theirs = [name for name in theirs if not name.startswith(registry.TIMM_PREFIX)]
    return [name for name in [*ours, *theirs, *_torchvision_names()] if fnmatchcase(name, filter)]


def _registered(
    name: str,
    pretrained: bool,
    image: Image | None,
    classes: int | None,
    options: Mapping[str, Any],
) -> nn.Module:
    if pretrained:
        raise VitreousError(
            f"There are no published weights for {name!r}; leave pretrained out for random ones."
        )
    known = registry.options(name)
    given = {"image": image, "classes": classes}
    given |= {key: value for key, value in options.items() if key in known}
    return registry.build(name, **{key: value for key, value in given.items() if value is not None})


def _timm(
    name: str,
    pretrained: bool,
    image: Image | None,
    classes: int | None,
    options: Mapping[str, Any],
) -> nn.Module:
    source, _, rest = name.partition(":")
    if source not in TIMM_SOURCES:
        _check_timm_name(name)
    theirs = {word: options[ours] for word, ours in registry.TIMM_WORDS.items() if ours in options}
    if classes is not None:
        theirs["num_classes"] = classes
    hub = source != "local-dir" and (pretrained or source in TIMM_SOURCES)
    with safe_loading(name, hub=hub):
        if source == "local-dir":
            _check_timm_folder(rest)
        try:
            return timm.create_model(name, pretrained=pretrained, img_size=image, **theirs)
        except TypeError as error:  # networks for any image size have no argument `img_size`
            if "img_size" not in str(error):
                raise
            return timm.create_model(name, pretrained=pretrained, **theirs)


def _check_timm_folder(folder: str) -> None:
    """Raise for a folder that timm has not saved; other libraries have a config.json too."""
    file = Path(folder).expanduser() / "config.json"
    takes = "'local-dir:' takes a folder that timm has saved"
    if not file.is_file():
        raise VitreousError(f"There is no config.json in {folder!r}; {takes}.")
    described = json.loads(file.read_text(encoding="utf-8"))
    if "architecture" not in described:
        raise VitreousError(
            f"The config.json in {folder!r} names no architecture; {takes}, and 'hf:' one of "
            "Hugging Face transformers."
        )


def _check_timm_name(name: str) -> None:
    if not timm.is_model(name):
        raise UnknownName("model", name, list_models(), model_names.hint(name))
    tags = timm.models.get_arch_pretrained_cfgs(name)
    if "." in name and name not in tags:
        hint = f"There are {len(tags)} for {name.split('.')[0]!r}."
        raise UnknownName("set of weights", name, tags, hint)


def _torchvision_names() -> list[str]:
    """Classifiers only: torchvision's detectors download a backbone even without `pretrained`."""
    return [f"tv:{name}" for name in torchvision.models.list_models(module=torchvision.models)]


def _torchvision(
    name: str, pretrained: bool, image: Image | None, classes: int | None
) -> nn.Module:
    if f"tv:{name}" not in _torchvision_names():
        raise UnknownName("torchvision model", f"tv:{name}", _torchvision_names())
    given: dict[str, int] = {}
    if image is not None and name.startswith("vit_"):
        height, width = (image, image) if isinstance(image, int) else image
        if height != width:
            raise VitreousError(f"'tv:{name}' takes square images only, not {height}x{width}.")
        given["image_size"] = height
    if classes is not None and not pretrained:
        given["num_classes"] = classes
    with safe_loading(f"tv:{name}", hub=False):
        weights = torchvision.models.get_model_weights(name).DEFAULT if pretrained else None
        model: nn.Module = torchvision.models.get_model(name, weights=weights, **given)
    if weights is not None:
        model.trained_with = torchvision_training(weights)  # type: ignore[assignment]
    return model


def _is_path(name: str) -> bool:
    """Whether a name is a path: it starts with dot, slash or tilde, has a suffix, or exists.

    A model of timm has priority over a file of the same name.
    """
    if name.startswith((".", "/", "~")) or Path(name).suffix in (".safetensors", *PICKLES):
        return True
    return name != "" and not timm.is_model(name) and Path(name).exists()


def describe_model(model: nn.Module, name: str | None, **given: Any) -> dict[str, Any]:
    """Plain values for `recipe.json` from which the model of a run is built again.

    That is the call of `build`, or `name` and what else was `given` to `load_model`. Of a module
    from elsewhere there is only the class, and its weights have to be loaded by hand.
    """
    if isinstance(model, registry.ConfiguredModel):
        return {"build": model.config}
    return {"load": {"name": name, **given}} if name else {"module": type(model).__qualname__}


def model_of_run(run: Run, checkpoint: str = "final", image: Image | None = None) -> nn.Module:
    """The model of a run at a checkpoint, with the normalisation and class names of its data.

    It is opened at its training size, even if it takes any size. For images of another size its
    positions are interpolated if possible; a model that cannot take them raises when it
    is opened.
    """
    tensors, notes = run.read_weights(checkpoint)
    described, data = run.identity["model"], run.identity["data"]
    if "build" in described:
        model: nn.Module = registry.build(**described["build"])
    elif "load" in described:
        name = _function_of_run(described["load"]["name"], run)
        model = load_model(**{**described["load"], "name": name})
    else:
        raise VitreousError(
            f"The run {str(run.folder)!r} trained a module of your own ({described['module']}): "
            "make that module, load a file of the run's folder 'weights' into it with "
            "safetensors.torch.load_model, and give vitreous.open the module."
        )
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise VitreousError(
            f"The weights {str(run.weights(checkpoint)[0])!r} do not fit the model that the run's "
            f"recipe.json describes: {str(error).splitlines()[-1].strip()}"
        ) from None
    size = trained_size = tuple(data["image"])
    if image is not None:
        sides = (image, image) if isinstance(image, int) else image
        with suppress(VitreousError):
            model, size = resize_model(model, sides), sides
    known = getattr(model, "pretrained_cfg", None) or {}
    of_data = {key: tuple(data[key]) for key in ("mean", "std")}
    trained = {**of_data, "label_names": tuple(data["classes"])}
    model.pretrained_cfg = {**known, **trained}  # type: ignore[assignment]
    model.trained_with = {  # type: ignore[assignment]
        **trained,
        "source": "run",
        "data": data["name"],
        "image": trained_size,
        "size": size,
    }
    weights: Weights = "trained"
    if notes.get("step") == 0 and "from" not in described:
        weights = "unknown" if "weights" in described else "random"
    return mark(model.eval(), weights)


def _function_of_run(name: str, run: Run) -> str:
    """The name of a run's model, with the file of a user function searched here and above the run.

    So a run can be opened from any folder, and its project can be moved.
    """
    where, _, function = name.rpartition(":")
    path = Path(where).expanduser()
    if not where.endswith(".py") or path.is_absolute() or path.is_file():
        return name
    for folder in run.folder.resolve().parents:
        if (folder / path).is_file():
            return f"{folder / path}:{function}"
    raise VitreousError(
        f"The run {str(run.folder)!r} was trained with {name!r}, and there is no such file here or "
        "above the run's folder; go to the folder of that file, or copy it here."
    )


def _load_run(where: str, image: Image | None = None) -> nn.Module:
    """The model of a run, given as `folder`, `folder@checkpoint` or one file of its weights."""
    folder, _, checkpoint = where.rpartition("@") if "@" in where else (where, "", "final")
    path = Path(folder).expanduser()
    if path.suffix == ".safetensors" and (path.parent.parent / "recipe.json").is_file():
        folder, path, checkpoint = str(path.parent.parent), path.parent.parent, path.stem
    if not (path / "recipe.json").is_file():
        raise _not_a_run(folder, path)
    try:
        return model_of_run(Run(path), checkpoint, image)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise VitreousError(
            f"The run {folder!r} cannot be read: its recipe.json does not describe a run "
            f"({type(error).__name__}: {' '.join(str(error).split())}); restore that file, "
            "or train again."
        ) from error


def _load_bundled(name: str, image: Image | None) -> nn.Module:
    """A model within the package: `vit` or `vit@warmup`."""
    known = model_names.bundled()
    if name.partition("@")[0] not in known:
        raise UnknownName("bundled model", f"nano:{name}", [f"nano:{each}" for each in known])
    try:
        return _load_run(str(model_names.BUNDLED / name), image)
    except Damaged as error:
        raise Damaged(error.path, error.why, "install Vitreous again") from None


def _not_a_run(where: str, path: Path) -> VitreousError:
    """The error for a path that is not a run; it says what the path is."""
    if not path.exists():
        return NoSuchPath("file or folder", where)
    if path.suffix == ".py":
        return VitreousError(
            f"{where!r} is a file of code; name the class or function in it as well: {where}:NAME."
        )
    if path.is_file():
        return VitreousError(
            f"{where!r} holds weights but not the model they belong to; name the model and give "
            f"the file as weights={where!r}."
        )
    hint = ""
    if (path / "config.json").is_file():
        hint = f" With its config.json it may be 'hf:{where}' or 'local-dir:{where}'."
    return VitreousError(f"There is no Vitreous run in the folder {where!r}.{hint}")
