"""Raghu et al., Do Vision Transformers See Like Convolutional Neural Networks?"""

from __future__ import annotations

from vitreous.config import Recipe
from vitreous.training.recipes.dosovitskiy_2021 import vit_pretrain_jft


def vit_gap() -> Recipe:
    """`vit_pretrain_jft` for a ViT that reads the mean of its tokens, which needs lr 3e-4."""
    return vit_pretrain_jft(lr=3e-4).but(name="vit_gap", **{"model.pool": "gap"})
