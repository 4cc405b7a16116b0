"""Do Vision Transformers See Like Convolutional Neural Networks? (D4): recipes of the ViT paper, but for one."""

from __future__ import annotations

from vitreous.config import Recipe
from vitreous.training.recipes.dosovitskiy_2021 import vit_pretrain_jft


def vit_gap() -> Recipe:
    """`vit_pretrain_jft` for a ViT that reads the mean of its tokens, which needs lr 3e-4 (D4, A3.02, X-02)."""
    return vit_pretrain_jft(lr=3e-4).but(name="vit_gap", **{"model.pool": "gap"})
