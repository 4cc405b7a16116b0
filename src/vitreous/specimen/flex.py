"""FlexAttention spelled out, so that a graph can hold it and its probabilities can be seen.

`flex_attention` compiles itself, and its block masks are made under `vmap`; neither fits into an exported graph. While
a graph is read, the functions of the model's classes see an ordinary attention in its place, which calls the same
`score_mod` and `mask_mod` on all pairs at once. That both compute the same is proved like everything else.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def spelled_out(model: nn.Module) -> Iterator[None]:
    """`flex_attention` is an ordinary function inside, for every module of the model."""
    source = sys.modules.get("torch.nn.attention.flex_attention")
    if source is None:  # nobody has imported it
        yield
        return
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for names in _namespaces(model):
            for name, value in list(names.items()):
                if getattr(value, "_torchdynamo_orig_callable", value) is source.flex_attention:
                    changed.append((names, name, value))
                    names[name] = attention
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _namespaces(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Where the model's code looks names up: its own attributes, the modules that define its classes, and every other
    module that imported the function under its own name, since a class may call a helper from anywhere."""
    seen: set[int] = set()
    for name, found in list(sys.modules.items()):
        names = getattr(found, "__dict__", {})
        if "flex_attention" in names and not name.startswith("torch.") and id(names) not in seen:
            seen.add(id(names))
            yield names
    for module in model.modules():
        kinds = (
            inspect.getmodule(kind)
            for kind in type(module).__mro__
            if not kind.__module__.startswith("torch.")
        )
        for names in (vars(module), *(vars(kind) for kind in kinds if kind is not None)):
            if id(names) not in seen:
                seen.add(id(names))
                yield names


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    **options: Any,
) -> Any:
    """What `flex_attention` computes, with a matrix of scores."""
    if return_lse or options.get("return_aux") is not None:
        raise NotImplementedError("flex_attention with its log-sum-exp")
    if enable_gqa:
        key, value = (
            part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in (key, value)
        )
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    batch, heads, queries, keys = (
        torch.arange(size, device=query.device).reshape([-1 if i == axis else 1 for i in range(4)])
        for axis, size in enumerate(scores.shape)
    )
    if score_mod is not None:
        scores = score_mod(scores, batch, heads, queries, keys)
    if block_mask is not None:
        scores = scores.masked_fill(
            ~block_mask.mask_mod(batch, heads, queries, keys), float("-inf")
        )
    return scores.softmax(-1).to(query.dtype) @ value
