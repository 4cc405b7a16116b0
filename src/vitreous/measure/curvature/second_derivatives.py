"""Fast second derivatives: operations that replace those of a specimen's graph.

Products of one Hessian with many vectors run through the same graph of gradients again and again;
only the vector changes. For GELU, LayerNorm and softmax torch makes ten to forty passes over an
activation, exponentials included, and most give the same numbers every time. Here these are kept:

    y = f(x)        g ↦ g f'(x)                  v ↦ v f'(x)    G ↦ G f'(x) + v · [g f''(x)]
    y = softmax(x)  g ↦ y (g - ⟨g, y⟩) =: S(g)   v ↦ S(v)       G ↦ S(G + (g - ⟨g, y⟩)(v - ⟨v, y⟩))
    y = (x - μ) r   g ↦ r (g - ḡ - y ⟨g, y⟩/c)   v ↦ s := D(v)  G ↦ D(G) - r/c · (y ⟨s, g⟩
                        =: D(g)                                     + s ⟨g, y⟩ + D(g) ⟨v, y⟩)
    y = x Wᵀ        g ↦ g W, gᵀ x        v, V ↦ v Wᵀ + x Vᵀ     G ↦ G W + g V, Gᵀ x + gᵀ v

The first arrow is the gradient, computed once. A product runs through the graph of the gradient
twice. In the forward half, the second arrow, each operation passes its part v of the vector on to
the next. In the backward half, the third arrow, G arrives from the loss. The terms without G are
known in the forward half already; autograd would compute them there and add them up later. Here
they are deferred (`pop_deferred`) until G arrives, and both are one product. That relies on two
habits of autograd: the backward half reaches every operation (it does, because the loss on top, a
cross-entropy, is curved), and after the forward half. `loss.check_second_derivatives` compares one
product per model with torch's own, so a torch that behaves differently is an error and not a wrong
number.

Batch norm in evaluation mode is an affine map and is written as one. Attention, which has no second
derivative where it is fused, is the second line between two of the fourth. Everything else stays
torch's. Where a model classifies by one token, the last block computes only that one (`one_token`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from vitreous.measure.curvature.second_attention import AttentionFunction, SoftmaxFunction
from vitreous.measure.curvature.second_operations import (
    LayerNormFunction,
    LinearFunction,
    PointwiseFunction,
)
from vitreous.measure.readout.one_token import one_token
from vitreous.specimen.specimen import Specimen

aten = torch.ops.aten
EDIT = "with fast second derivatives"


def with_fast_second_derivatives(specimen: Specimen) -> Specimen:
    """Return the same model over the same weights, with these operations.

    A specimen without a graph (units named by hand), or already rewritten, is returned as it is.
    """
    if not hasattr(specimen.module, "graph") or EDIT in specimen.edits:
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target in POINTWISE:
                node.args = (node.target, node.args, dict(node.kwargs))
                node.kwargs, node.target = {}, _pointwise
            else:
                node.target = REPLACEMENTS.get(node.target, node.target)

    return specimen._edited(edit, EDIT)


def _pointwise(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x, *rest = args
    y: Tensor = PointwiseFunction.apply(x, lambda value: operation(value, *rest, **kwargs))
    return y


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y: Tensor = LinearFunction.apply(x, weight, bias)
    return y


def _layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Tensor:  # fmt: skip
    if len(shape) > 1 or weight is None or bias is None:
        return torch.layer_norm(x, shape, weight, bias, eps)
    y: Tensor = LayerNormFunction.apply(x, weight, bias, eps)
    return y


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> Tensor:  # fmt: skip
    if training or mean is None or var is None:
        return torch.batch_norm(x, weight, bias, mean, var, training, momentum, eps, cudnn)
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    shift = -mean * scale if bias is None else bias - mean * scale
    channel = (-1, *[1] * (x.ndim - 2))
    return x * scale.view(channel) + shift.view(channel)


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    if dim not in (-1, x.ndim - 1):
        return x.softmax(dim)
    y: Tensor = SoftmaxFunction.apply(x)
    return y


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if is_causal or enable_gqa or dropout_p:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    scale = 1 / sqrt(query.shape[-1]) if scale is None else scale
    if attn_mask is None:
        outputs: Tensor = AttentionFunction.apply(query, key, value, scale)[0]
        return outputs
    scores = (query * scale) @ key.transpose(-2, -1)
    shut = attn_mask.dtype == torch.bool
    scores = scores.masked_fill(~attn_mask, -torch.inf) if shut else scores + attn_mask
    return _softmax(scores, -1) @ value


def _size(x: Tensor, dim: int) -> int:
    """Return a plain number: `torch.vmap` has no rule for `aten.sym_size`."""
    return x.shape[dim]


POINTWISE = {
    aten.gelu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default,
    aten.elu.default, aten.mish.default, aten.softplus.default, aten.hardswish.default,
}  # fmt: skip
REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    aten.sym_size.int: _size,
    aten.linear.default: _linear,
    aten.layer_norm.default: _layer_norm,
    aten.batch_norm.default: _batch_norm,
    aten.softmax.int: _softmax,
    aten.scaled_dot_product_attention.default: _attention,
}
