"""Load models of Hugging Face transformers, without pickles and without long retries of its hub.

The model class is chosen by the configuration alone.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.error import URLError

from torch import nn

from vitreous.errors import UnknownName, VitreousError
from vitreous.hub import offline, reachable
from vitreous.models.declared import processor_training
from vitreous.models.matching import load_weights
from vitreous.models.registry import Image


def load_hugging_face(
    where: str, *, pretrained: bool, image: Image | None, classes: int | None = None
) -> nn.Module:
    """Load a vision model of transformers in float32.

    Parameters
    ----------
    where
        An id on the hub, a folder, or a configuration file.
    pretrained
        Load the stored weights, all of them, from safetensors.
    image
        Input size, if not the configuration's.
    classes
        Number of classes of a model with random weights, if not the configuration's.

    Returns
    -------
    The model with its classifier if the configuration's `architectures` names one. Of a model of
    images and text (CLIP, SigLIP) it is the image tower.
    """
    try:
        from transformers import AutoModel, AutoModelForImageClassification  # an optional extra
    except ModuleNotFoundError as error:
        raise VitreousError(
            "Hugging Face models need one more package: pip install 'vitreous[hf]'."
        ) from error
    path = Path(where).expanduser()
    # A local path has priority over an id of the hub.
    is_local = where.startswith((".", "/", "~")) or (where != "" and path.exists())
    local = path if is_local else None
    folder = where if local is None else str(local.parent if local.is_file() else local)
    with safe_loading(f"hf:{where}", hub=local is None, no_folder=where):
        config = _read_config(where, local)
        vision = getattr(config, "vision_config", config)
        if image is not None and hasattr(vision, "image_size"):
            vision.image_size = image if isinstance(image, int) else list(image)
        if classes is not None and not pretrained:
            config.num_labels = classes
        kind: Any = AutoModel
        if _classifies(config):
            kind = AutoModelForImageClassification
        else:
            config = vision
        if not pretrained:
            model = kind.from_config(config, trust_remote_code=False)
        elif image is not None and local is not None:  # of another size than the weights, perhaps
            model = kind.from_config(config, trust_remote_code=False)
            load_weights(model, folder, f"hf:{where}", image)
        else:
            model = _load_weights(kind, config, folder, where)
        model.trained_with = _declared(folder, config)
    if model.main_input_name != "pixel_values":
        raise VitreousError(
            f"'hf:{where}' is a {type(model).__name__}, which takes {model.main_input_name!r} and "
            "not images; Vitreous opens vision models."
        )
    return model.float()


def _read_config(where: str, local: Path | None) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    if local is None and where:
        return AutoConfig.from_pretrained(where, trust_remote_code=False)
    file = local / "config.json" if local is not None and not local.is_file() else local
    if file is None or not file.is_file():
        raise VitreousError(
            "'hf:' takes a model id, a folder with a config.json or such a file, and not "
            f"{where!r}."
        )
    described = json.loads(file.read_text())
    kind = described.get("model_type", "")
    if kind not in CONFIG_MAPPING:
        hint = f"It is in {str(file)!r}."
        raise UnknownName("Hugging Face model_type", str(kind), CONFIG_MAPPING.keys(), hint)
    return AutoConfig.for_model(**described)


def _classifies(config: Any) -> bool:
    """Whether the configuration names a class that classifies images."""
    from transformers import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING

    if type(config) not in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        return False
    heads = MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)]
    known = {head.__name__ for head in (heads if isinstance(heads, tuple) else (heads,))}
    return bool(known & set(config.architectures or ()))


def _declared(folder: str, config: Any) -> dict[str, Any]:
    """The metadata of the image processor, if there is one, and the class names."""
    from transformers import AutoImageProcessor

    names = tuple((getattr(config, "id2label", None) or {}).values())
    numbered = all(str(name).startswith("LABEL_") for name in names)  # the default of transformers
    declared: dict[str, Any] = {} if numbered else {"label_names": tuple(map(str, names))}
    try:
        processor = AutoImageProcessor.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError):  # no such file, or of an unknown class
        return declared
    return declared | processor_training(processor)


def _load_weights(kind: Any, config: Any, folder: str, where: str) -> Any:
    """Load the model with its stored weights; raise if some would stay random."""
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it would list all tensors of the text tower
    transformers_logging.disable_progress_bar()
    try:
        model, info = kind.from_pretrained(
            folder, config=config, output_loading_info=True, trust_remote_code=False,
            use_safetensors=not _only_pickles(folder),
        )  # fmt: skip
    except RuntimeError as error:
        size = getattr(getattr(config, "vision_config", config), "image_size", "unknown")
        raise VitreousError(
            f"The weights of 'hf:{where}' do not fit its configuration at image size {size}; "
            "leave the size as it was in training."
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.enable_progress_bar()
    missing = sorted(info["missing_keys"])
    if missing:
        raise VitreousError(
            f"The files of 'hf:{where}' lack {len(missing)} weights of {type(model).__name__} "
            f"({missing[0]}, …), which would stay random; load the model yourself and give "
            "vitreous.open the module."
        )
    return model


def _only_pickles(folder: str) -> bool:
    """Whether the only weights in a local folder are pickles."""
    path = Path(folder)
    return path.is_dir() and any(path.glob("*.bin")) and not any(path.glob("*.safetensors"))


def _pickled(name: str) -> VitreousError:
    return VitreousError(
        f"The weights of {name!r} are a pickle that holds more than tensors, and Vitreous "
        "never runs a pickle; convert them to safetensors."
    )


@contextmanager
def safe_loading(name: str, *, hub: bool, no_folder: str = "") -> Iterator[None]:
    """Inside this context nothing is unpickled, the hub is not retried, and errors are short.

    `hub` says whether files of the model `name` may have to be downloaded. `no_folder` is a folder
    of this name that was looked for and does not exist, for the error message.
    """
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
        raise _pickled(name) from error
    except URLError as error:
        raise VitreousError(
            f"The weights of {name!r} could not be downloaded ({error.reason})."
        ) from error
    except Exception as error:  # a foreign configuration can break any part of a library
        if "weights_only" in str(error):  # timm's own message is about its own options
            raise _pickled(name) from error
        if hub and isinstance(error, OSError) and not reachable():
            why = "its files are not in the local cache and the model hub cannot be reached"
        else:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = lines[0] if lines else type(error).__name__
            why = shorten(why, 200, placeholder=" …").rstrip(".:!")
        begin = f"There is no folder {no_folder!r}, and from the hub it cannot be loaded"
        begin = begin if hub and no_folder else f"Cannot load {name!r}"
        raise VitreousError(f"{begin}: {why}.") from error


@contextmanager
def _no_pickle() -> Iterator[None]:
    """Inside this context `torch.load` uses `weights_only=True`, even if a caller disables it."""
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
