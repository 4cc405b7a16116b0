"""Tensor names in files of Hugging Face, which transformers converts when it loads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def converted_names(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """The tensors of a file with the names that a model of transformers has for them.

    transformers converts names only while loading. So a second model loads the tensors, and the
    names are taken from it. Tensors whose shape does not fit keep their names.
    """
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # missing tensors are reported by `LoadedWeights`
    logging.disable_progress_bar()
    try:
        loaded, info = type(model).from_pretrained(
            None, config=model.config, state_dict=state, output_loading_info=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    shapes = {entry[0]: entry[1] for entry in info["mismatched_keys"]}
    lost = {*info["missing_keys"], *shapes}
    converted = {key: value for key, value in loaded.state_dict().items() if key not in lost}
    for key, shape in shapes.items():
        converted[key] = state[key] if key in state else torch.empty(shape, device="meta")
    return converted | {key: state[key] for key in info["unexpected_keys"] if key in state}
