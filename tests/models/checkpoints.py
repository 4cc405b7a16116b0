"""Models to save, and what was loaded, for the tests of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn

from vitreous.models.loading import load_model
from vitreous.models.matching import LoadedWeights, loaded_weights


def trained(name: str = "test_vit", seed: int = 1, **how: Any) -> nn.Module:
    """A model whose tensors are all random, also those of its normalisations."""
    torch.manual_seed(seed)
    model: nn.Module = timm.create_model(name, **how)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn_like(value) * 0.05)
    return model.eval()


def loaded(name: str, weights: Path | str, **how: Any) -> tuple[nn.Module, LoadedWeights]:
    model = load_model(name, weights=weights, **how).eval()
    found = loaded_weights(model)
    assert found is not None
    return model, found


def assert_same(one: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    for key, value in one.state_dict().items():
        assert torch.equal(value, theirs[key]), key
