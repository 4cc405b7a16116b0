"""Findings of d'Ascoli et al., ConViT: Vision Transformers with Soft Convolutional Inductive Biases
(2021)."""

from __future__ import annotations

from vitreous.claims.dascoli_2021 import ablations, efficiency, exact, gates, locality, positions
from vitreous.claims.dascoli_2021.book import BOOK

__all__ = ["BOOK", "ablations", "efficiency", "exact", "gates", "locality", "positions"]
