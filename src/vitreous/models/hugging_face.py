"""Models of the Hugging Face library, and peace with its hub: no unpickling, no minutes of retrying, one sentence when
something cannot be had.

Only configurations decide here: what a model is made of is read from its graph later, like that of any other model.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from vitreous.errors import UnknownName, VitreousError
from vitreous.hub import offline, reachable

if TYPE_CHECKING:
    from torch import nn

Size = int | tuple[int, int]
"""Of an image: the side of a square, or height and width."""


def load(where: str, *, pretrained: bool, image: Size | None) -> nn.Module:
    """The model `where` describes: an id on the hub, a folder, or a configuration file.

    The head for image classification is there if the configuration's `architectures` says so; of a model of images and
    text (CLIP, SigLIP) one gets the image tower. Weights are float32, whatever they are stored in, as timm does it.
    """
    _require_transformers()
    from transformers import AutoModel, AutoModelForImageClassification

    local = _local(where)
    with loading(f"hf:{where}", hub=local is None):
        config = _config(where, local)
        vision = getattr(config, "vision_config", config)
        if image is not None and hasattr(vision, "image_size"):
            vision.image_size = image if isinstance(image, int) else list(image)
        classifies = _classifies(config)
        kind, config = (
            (AutoModelForImageClassification, config) if classifies else (AutoModel, vision)
        )
        if pretrained:
            folder = where if local is None else str(local.parent if local.is_file() else local)
            model = _with_weights(kind, config, folder, where)
        else:
            model = kind.from_config(config, trust_remote_code=False)
        model.trained_with = _channels(where, local)
    if model.main_input_name != "pixel_values":
        raise VitreousError(
            f"'hf:{where}' is a {type(model).__name__}, which takes {model.main_input_name!r} and not images; "
            "Vitreous opens vision models."
        )
    return model.float()


def _channels(where: str, local: Path | None) -> dict[str, Any]:
    """Mean and deviation of the channels, as the image processor's file beside the weights says, if there is one."""
    from transformers import ImageProcessingMixin

    folder = where if local is None else str(local.parent if local.is_file() else local)
    try:
        says, _ = ImageProcessingMixin.get_image_processor_dict(folder)
    except (OSError, ValueError):
        return {}
    return {"mean": says.get("image_mean"), "std": says.get("image_std")}


def _with_weights(kind: Any, config: Any, folder: str, where: str) -> Any:
    """The model with its stored weights, all of them: one that stays random would make every result wrong."""
    from transformers.utils import logging as noise

    loud = noise.get_verbosity()
    noise.set_verbosity_error()  # a page about the text tower that is left out
    try:
        safely = {"use_safetensors": True, "trust_remote_code": False}
        model, info = kind.from_pretrained(
            folder, config=config, output_loading_info=True, **safely
        )
    except RuntimeError as error:
        raise VitreousError(
            f"The weights of 'hf:{where}' do not fit its configuration at image size {_size(config)}; "
            "leave the size as it was in training."
        ) from error
    finally:
        noise.set_verbosity(loud)
    if missing := sorted(info["missing_keys"]):
        raise VitreousError(
            f"The files of 'hf:{where}' lack {len(missing)} weights of {type(model).__name__} ({missing[0]}, …), "
            "which would stay random; load the model yourself and give vitreous.open the module."
        )
    return model


@contextmanager
def loading(name: str, *, hub: bool) -> Iterator[None]:
    """Whatever loads inside may not unpickle, does not wait for a hub that is not there, and fails in one sentence."""
    try:
        with _no_pickle():
            if hub and not reachable():
                with offline():
                    yield
            else:
                yield
    except VitreousError:
        raise
    except pickle.UnpicklingError as error:
        raise VitreousError(
            f"The weights of {name!r} are a pickle that holds more than tensors, and Vitreous never runs a pickle; "
            "convert them to safetensors."
        ) from error
    except URLError as error:
        raise VitreousError(
            f"The weights of {name!r} could not be downloaded ({error.reason})."
        ) from error
    except (
        Exception
    ) as error:  # a foreign configuration can break any part of a library that trusts it
        away = hub and isinstance(error, OSError) and not reachable()
        why = (
            "its files are not in the local cache and the model hub cannot be reached"
            if away
            else _first_line(error)
        )
        raise VitreousError(f"Cannot load {name!r}: {why}.") from error


@contextmanager
def _no_pickle() -> Iterator[None]:
    """torch told to load weights only, whatever a library in between asks of it."""
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(switch)
    os.environ[switch] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[switch]
        else:
            os.environ[switch] = before


def _require_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise VitreousError(
            "Hugging Face models need one more package: pip install 'vitreous[hf]'."
        ) from error


def _local(where: str) -> Path | None:
    """The file or folder meant, or None for an id on the hub. A path wins over an id of the same spelling."""
    path = Path(where).expanduser()
    return path if where.startswith((".", "/", "~")) or (where and path.exists()) else None


def _config(where: str, local: Path | None) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    if local is None and where:
        return AutoConfig.from_pretrained(where, trust_remote_code=False)
    file = local / "config.json" if local is not None and not local.is_file() else local
    if file is None or not file.is_file():
        raise VitreousError(
            f"'hf:' takes a model id, a folder with a config.json or such a file, and not {where!r}."
        )
    described = json.loads(file.read_text())
    if (kind := described.get("model_type", "")) not in CONFIG_MAPPING:
        raise UnknownName(
            "Hugging Face model_type", str(kind), CONFIG_MAPPING.keys(), f"It is in {str(file)!r}."
        )
    return AutoConfig.for_model(**described)


def _classifies(config: Any) -> bool:
    """Whether the configuration names a class that classifies images."""
    from transformers import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING as HEADS

    if type(config) not in HEADS:
        return False
    heads = HEADS[type(config)]
    known = {head.__name__ for head in (heads if isinstance(heads, tuple) else (heads,))}
    return bool(known & set(config.architectures or ()))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[0] if lines else type(error).__name__, 200, placeholder=" …").rstrip(".:!")


def _size(config: Any) -> Any:
    return getattr(getattr(config, "vision_config", config), "image_size", "unknown")
