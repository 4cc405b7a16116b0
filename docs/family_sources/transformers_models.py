"""Every model class of transformers that takes `pixel_values` and nothing else, from its default
configuration with fewer layers.

Plain transformers become narrow as well; others keep their widths, which depend on one another.
What runs on no batch of images (video, prompts, packed patches) is left out and listed with its
reason.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers
from family_sources.transformers_small import COMPLETED, GIVEN, SHAPES, WHY
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from vitreous import VitreousError

LIBRARY = f"transformers {transformers.__version__}"

LAYERS = {
    "num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "depth", "vision_layers",
    "layers", "num_decoder_layers", "num_encoder_layers", "num_global_layers",
}  # fmt: skip
STAGES = {
    "depths",
    "depth",
    "layers",
    "num_blocks",
    "blocks_per_stage",
    "encoder_blocks",
    "num_stage_layers",
}
transformers.logging.set_verbosity_error()  # pages of advice about default configurations

SIDES = (64, 224, 256)
LARGEST = 256


def names() -> list[str]:
    found = []
    for name in sorted(dir(transformers)):
        if name.startswith("Auto") or name.endswith("PreTrainedModel"):
            continue
        kind = getattr(transformers, name, None)
        if inspect.isclass(kind) and issubclass(kind, PreTrainedModel) and _takes_only_images(kind):
            found.append(name)
    return found


def _takes_only_images(kind: type[PreTrainedModel]) -> bool:
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    needed = {p.name for p in named if p.default is p.empty}
    return bool(named) and named[0].name == "pixel_values" and needed <= {"pixel_values"}


def label(name: str) -> str:
    return name


def build(name: str) -> tuple[nn.Module, tuple[int, int, int] | None]:
    """The model with few layers, or with all of them where that fails, and a size it runs on."""
    kind = getattr(transformers, name)
    given, known = _for(name, GIVEN), _for(name, WHY)
    changes = (_leave,) if given else (_tiny,) if known else (_tiny, _narrow, _shrink, _leave)
    why: Exception | None = None
    for change in changes:
        try:
            config = given() if given else _default(kind.config_class, COMPLETED.get(name, {}))
            change(config)
            model = kind(config).eval()
        except Exception as error:
            why = why or error
            continue
        for shape in [SHAPES[name]] if name in SHAPES else _shapes(config):
            try:
                with torch.no_grad():
                    model(torch.zeros(2, *shape))
            except Exception as error:
                why = why or error
            else:
                return model, shape
    raise VitreousError(known or f"{type(why).__name__}: {why}")


def _for(name: str, table: dict[str, Any]) -> Any:
    """The entry of the longest beginning of this name."""
    found = [start for start in table if name.startswith(start)]
    return table[max(found, key=len)] if found else None


def _default(kind: type[PretrainedConfig], words: dict[str, Any]) -> PretrainedConfig:
    config = kind(**words)
    for part in _parts(config):
        for word in ("use_pretrained_backbone", "use_timm_backbone"):
            if hasattr(part, word):
                setattr(part, word, False)
        if isinstance(
            getattr(part, "hidden_sizes", None), tuple
        ):  # ConvNextBackbone adds a list to it
            part.hidden_sizes = list(part.hidden_sizes)
    return config


def _parts(config: Any) -> list[Any]:
    """The configuration and those inside it (`backbone_config`, `vision_config`)."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    return [config, *(part for value in inner for part in _parts(value))]


def _shrink(config: Any) -> None:
    _fewer_pixels(config)
    for part in _parts(config):
        indices = [
            i
            for word in ("out_indices", "backbone_out_indices")
            for i in getattr(part, word, None) or ()
        ]
        for word, value in list(vars(part).items()):
            if word in LAYERS and type(value) is int:
                setattr(part, word, min(value, max([2, *(i + 1 for i in indices)])))
            elif (
                word in STAGES
                and isinstance(value, (list, tuple))
                and all(type(v) is int for v in value)
            ):
                setattr(part, word, type(value)(min(v, 2) for v in value))
        if (
            hasattr(part, "stage_names")
            and hasattr(part, "num_hidden_layers")
            and not hasattr(part, "depths")
        ):
            part.stage_names = ["stem", *(f"stage{i + 1}" for i in range(part.num_hidden_layers))]
            if len(indices) < 2:
                part._out_indices, part._out_features = (
                    [part.num_hidden_layers],
                    [part.stage_names[-1]],
                )


def _tiny(config: Any) -> None:
    """Fewer layers, and of plain transformers also narrow ones for small images."""
    _shrink(config)
    _narrow(config)


def _narrow(config: Any) -> None:
    """Plain transformers narrow and for small images, all layers."""
    for part in _parts(config):
        width, heads, patch = (
            getattr(part, word, None)
            for word in ("hidden_size", "num_attention_heads", "patch_size")
        )
        if type(width) is not int or type(heads) is not int or width % heads or width // heads < 16:
            continue
        wide = getattr(part, "intermediate_size", None)
        part.hidden_size = heads * 16
        if type(wide) is int:
            part.intermediate_size = part.hidden_size * 2
        if (
            type(patch) is int
            and type(getattr(part, "image_size", None)) is int
            and not hasattr(part, "window_size")
        ):
            part.image_size = 6 * patch


def _fewer_pixels(config: Any) -> None:
    for part in _parts(config):
        size = getattr(part, "image_size", None)
        if type(size) is int and size > LARGEST:
            patch = getattr(part, "patch_size", None)
            patch = patch if type(patch) is int else 16
            part.image_size = 224 // patch * patch


def _leave(config: Any) -> None:
    pass


def _shapes(config: Any) -> list[tuple[int, int, int]]:
    declared: Any = next(
        (s for part in _parts(config) if (s := getattr(part, "image_size", None))), None
    )
    channels = next(
        (n for part in _parts(config) if type(n := getattr(part, "num_channels", None)) is int), 3
    )
    shapes = [(channels, side, side) for side in SIDES]
    if type(declared) is int:
        return [(channels, declared, declared), *shapes]
    if isinstance(declared, (list, tuple)) and len(declared) >= 2:
        return [(channels, int(declared[-2]), int(declared[-1])), *shapes]
    return shapes
