"""The words for the parts of a model, shared by anatomies, colours and results."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["stem", "attention", "conv", "mlp", "token-mlp", "pool", "downsample", "head"]
Reach = Literal["global", "windowed", "reduced", "class", "channel", "linear", "unknown"]

KINDS: tuple[Kind, ...] = get_args(Kind)
