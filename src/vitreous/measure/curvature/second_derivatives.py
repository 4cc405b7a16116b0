"""Operations whose second derivatives are quick, in place of those of a specimen's graph.

The products of one Hessian with many vectors are one graph of gradients, gone through again and again with nothing but
the vector changing. What torch does there for GELU, LayerNorm and softmax is ten to forty passes over an activation,
exponentials included, of which all but a few give the same numbers every time. Here those are kept:

    y = f(x)          g ↦ g f'(x)                  v ↦ v f'(x)      G ↦ G f'(x) + v · [g f''(x)]       f', g f'' kept
    y = softmax(x)    g ↦ y (g - ⟨g, y⟩) =: S(g)   v ↦ S(v)         G ↦ S(G + (g - ⟨g, y⟩)(v - ⟨v, y⟩))
    y = (x - μ) r     g ↦ r (g - ḡ - y ⟨g, y⟩/c)   v ↦ s := D(v)    G ↦ D(G) - (y ⟨s, g⟩ + s ⟨g, y⟩ + D(g) ⟨v, y⟩) r/c
                               =: D(g)
    y = x Wᵀ          g ↦ g W, gᵀ x                v, V ↦ v Wᵀ + x Vᵀ       G ↦ G W + g V, Gᵀ x + gᵀ v

The first arrow is the gradient, made once. A product goes up the model, the second arrow: what becomes of the vector's
part v of an operation is handed to the operation above. Then it comes down, the third: G arrives from above. What the
way up knows of the way down (the terms without G) autograd would compute there and add up later; here it is put off
(`later`) until G is there, and both are one product. Every operation is passed on the way down, because the loss on
top, a cross-entropy, is curved. Batch normalisation at rest is an affine map and is written as one; attention, which
has no second derivative at all where it is fused, is the second line between two of the fourth. Everything else stays
torch's. A model that reads off one token computes that one alone where it can (`one_token`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor, fx

from vitreous.measure.curvature.second_attention import Attention, Softmax
from vitreous.measure.curvature.second_operations import Curved, LayerNorm, Linear
from vitreous.measure.readout.one_token import one_token
from vitreous.specimen.specimen import Specimen

aten = torch.ops.aten
EDIT = "with quick second derivatives"


def quick(specimen: Specimen) -> Specimen:
    """The same model over the same weights, with such operations; as it is where there is no graph to write them in."""
    if not hasattr(specimen.module, "graph") or EDIT in specimen.edits:
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target in POINTWISE:
                node.args, node.kwargs, node.target = (
                    (node.target, node.args, dict(node.kwargs)),
                    {},
                    pointwise,
                )
            elif node.op == "call_function":
                node.target = QUICK.get(node.target, node.target)

    return specimen._edited(edit, EDIT)


def pointwise(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """An operation of one tensor, number by number."""
    x, *rest = args
    found: Tensor = Curved.apply(x, lambda value: operation(value, *rest, **kwargs))
    return found


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = Linear.apply(x, weight, bias)
    return found


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:  # fmt: skip
    if len(shape) > 1 or weight is None or bias is None:
        return torch.layer_norm(x, shape, weight, bias, eps)
    found: Tensor = LayerNorm.apply(x, weight, bias, eps)
    return found


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn: bool,
) -> Tensor:  # fmt: skip
    if training or mean is None or var is None:
        return torch.batch_norm(x, weight, bias, mean, var, training, momentum, eps, cudnn)
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    shift = -mean * scale if bias is None else bias - mean * scale
    channel = (-1, *[1] * (x.ndim - 2))
    return x * scale.view(channel) + shift.view(channel)


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    found: Tensor = Softmax.apply(x) if dim in (-1, x.ndim - 1) else x.softmax(dim)
    return found


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if is_causal or enable_gqa or dropout_p:
        fused = torch.nn.functional.scaled_dot_product_attention
        return fused(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    scale = 1 / sqrt(query.shape[-1]) if scale is None else scale
    if attn_mask is None:
        found: Tensor = Attention.apply(query, key, value, scale)[0]
        return found
    scores = (query * scale) @ key.transpose(-2, -1)
    shut = attn_mask.dtype == torch.bool
    return (
        softmax(scores.masked_fill(~attn_mask, -torch.inf) if shut else scores + attn_mask, -1)
        @ value
    )


def size(x: Tensor, dim: int) -> int:
    """As a number, for which `torch.vmap` has a rule."""
    return x.shape[dim]


POINTWISE = {
    aten.gelu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default, aten.elu.default, aten.mish.default,
    aten.softplus.default, aten.hardswish.default,
}  # fmt: skip
QUICK: dict[Any, Callable[..., Any]] = {
    aten.sym_size.int: size,
    aten.linear.default: linear,
    aten.layer_norm.default: layer_norm,
    aten.batch_norm.default: batch_norm,
    aten.softmax.int: softmax,
    aten.scaled_dot_product_attention.default: attention,
}
