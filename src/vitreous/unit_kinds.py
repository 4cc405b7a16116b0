"""The kinds of units of a model, and of attention, shared by anatomies, colours and results."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal[
    "stem", "attention", "conv", "mlp", "token-mlp", "mixer", "pool", "downsample", "head"
]
Reach = Literal["global", "windowed", "reduced", "class", "channel", "linear", "unknown"]
Weights = Literal["probabilities", "mixed", "positive", "signed"]
"""What attention multiplies values with: rows that sum to one; such rows with heads mixed
afterwards; weights that do not sum to one; weights that can be negative."""

KINDS: tuple[Kind, ...] = get_args(Kind)
