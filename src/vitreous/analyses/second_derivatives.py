"""Operations whose second derivatives are quick, in place of those of a specimen's graph.

The products of one Hessian with many vectors are one graph of gradients, gone through again and again with nothing but
the vector changing. What torch does there for GELU, LayerNorm and softmax is ten to forty passes over an activation,
exponentials included, of which all but a few give the same numbers every time. Here those are kept:

    y = f(x)          g ↦ g f'(x)                     v ↦ v f'(x),  v · [g f''(x)]              f', g f'' kept
    y = softmax(x)    g ↦ y (g - ⟨g, y⟩) =: d         v ↦ y u,  d u - y ⟨d, u⟩                  u = v - ⟨v, y⟩
    y = (x - μ) r     g ↦ r (g - ḡ - y ⟨g, y⟩/c) =: d  v ↦ s,  -(y ⟨s, g⟩ + s ⟨g, y⟩ + d ⟨v, y⟩) r / c   s = d of v

The first arrow is the gradient, made once; the second is what a product does, its parts for g and for x. Batch
normalisation at rest is an affine map and is written as one; fused attention, which has no second derivative at all, is
written as two products and a softmax. Everything else stays torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vitreous.specimen.specimen import Specimen

aten = torch.ops.aten
Pointwise = Callable[[Tensor], Tensor]
EDIT = "with quick second derivatives"


def quick(specimen: Specimen) -> Specimen:
    """The same model over the same weights, with such operations; as it is where there is no graph to write them in."""
    if not hasattr(specimen.module, "graph") or EDIT in specimen.edits:
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target in POINTWISE:
                node.args, node.kwargs, node.target = (node.target, node.args, dict(node.kwargs)), {}, pointwise
            elif node.op == "call_function":
                node.target = QUICK.get(node.target, node.target)

    return specimen._edited(edit, EDIT)


class _Unary(Function):
    """Of one tensor, along its last axis or pointwise, so that a further axis in front changes nothing."""

    @classmethod
    def vmap(cls, info: Any, dims: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
        assert dims[0] is not None
        return cls.apply(x.movedim(dims[0], 0), *rest), 0


class _Curved(_Unary):
    """y = f(x) for every number."""

    @staticmethod
    def forward(x: Tensor, f: Pointwise) -> Tensor:
        return f(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.f = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and hasattr(ctx, "first"):
            return g * ctx.first, None
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            (first,) = torch.autograd.grad(ctx.f(at).sum(), at, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), at)
        ctx.first = first.detach()
        return _CurvedGradient.apply(g, x, ctx.first, second), None


class _CurvedGradient(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        ctx.save_for_backward(first, second.mul_(g))
        return g * first

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> Any:
        first, second = ctx.saved_tensors
        return v * first, v * second, None, None


class _Softmax(_Unary):
    """Over the last axis."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.softmax(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return _SoftmaxGradient.apply(g, x, y.detach())


class _SoftmaxGradient(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        d: Tensor = aten._softmax_backward_data(g, y, -1, y.dtype)
        ctx.save_for_backward(y, d)
        return d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> Any:
        y, d = ctx.saved_tensors
        for_g = aten._softmax_backward_data(v, y, -1, y.dtype)
        du = (v - torch.linalg.vecdot(v, y).unsqueeze(-1)).mul_(d)
        return for_g, du.addcmul_(y, du.sum(-1, keepdim=True), value=-1), None


class _LayerNorm(Function):
    """Over the last axis, with weight and bias (c), or (m, c) for several at once, x having m in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        if weight.ndim == 1:
            return torch.layer_norm(x, weight.shape, weight, bias, eps)
        return torch.addcmul(_over(bias, x), torch.layer_norm(x, weight.shape[1:], None, None, eps), _over(weight, x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        return _LayerNorm.apply(*_in_front(info.batch_size, dims[:3], given[:3]), given[3]), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if not hasattr(ctx, "normal"):
            ctx.normal = torch.native_layer_norm(x.detach(), x.shape[-1:], None, None, ctx.eps)
        return *_LayerNormGradient.apply(g, x, weight, *ctx.normal), None


class _LayerNormGradient(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, y: Tensor, mean: Tensor, r: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        along = g * _over(weight, x)
        d = _normal_backward(along, x, mean, r)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(g, x, weight, y, mean, r, d, along, torch.linalg.vecdot(along, y).unsqueeze(-1))
        return d, _sum(g * y, weight), _sum(g, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, vw: Tensor | None, vb: Tensor | None) -> Any:
        g, x, weight, y, mean, r, d, along, gy = ctx.saved_tensors
        for_g = torch.zeros_like(g) if vb is None else _over(vb, x).expand_as(g).contiguous()
        for_x = for_weight = None
        if vw is not None:
            for_g.addcmul_(_over(vw, x), y)
            for_x = _normal_backward(g * _over(vw, x), x, mean, r)
        if v is not None:
            s = _normal_backward(v, x, mean, r)
            for_g.addcmul_(s, _over(weight, x))
            for_weight = _sum(s * g, weight)
            sg, vy = (torch.linalg.vecdot(*pair).unsqueeze(-1) for pair in ((s, along), (v, y)))
            bent = (y * sg).addcmul_(s, gy).addcmul_(d, vy).mul_(r * (-1 / x.shape[-1]))
            for_x = bent if for_x is None else for_x.add_(bent)
        return for_g, for_x, for_weight, None, None, None


def _over(parameter: Tensor, x: Tensor) -> Tensor:
    """As it is spread over x."""
    return parameter if parameter.ndim == 1 else parameter.view(len(parameter), *[1] * (x.ndim - 2), -1)


def _sum(x: Tensor, parameter: Tensor) -> Tensor:
    """Over whatever a parameter is spread over."""
    return x.flatten(parameter.ndim - 1, -2).sum(parameter.ndim - 1)


class _Linear(Function):
    """x Wᵀ + b; for several weights at once W is (m, out, in), b (m, out), and x has m in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, w = _rows(x, weight), _stacked(weight)
        found = torch.bmm(rows, w.mT) if bias is None else torch.baddbmm(bias.view(len(w), 1, -1), rows, w.mT)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Tensor | None) -> tuple[Tensor, int]:
        return _Linear.apply(*_in_front(info.batch_size, dims, given)), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _LinearGradient.apply(g, *ctx.saved_tensors, ctx.needs_input_grad)


class _LinearGradient(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, ...]) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(g, x, weight)
        w, own = _stacked(weight), _rows(g, weight)
        return (
            torch.bmm(own, w).view_as(x) if wanted[0] else None,
            torch.bmm(own.mT, _rows(x, weight)).view_as(weight) if wanted[1] else None,
            own.sum(1).view(weight.shape[:-1]) if wanted[2] else None,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vx: Tensor | None, vw: Tensor | None, vb: Tensor | None) -> Any:
        g, x, weight = ctx.saved_tensors
        w, own = _stacked(weight), _rows(g, weight)
        for_g = for_x = for_weight = None
        if vw is not None:
            along = _stacked(vw)
            for_g = torch.bmm(_rows(x, weight), along.mT)
            for_x = torch.bmm(own, along).view_as(x) if ctx.needs_input_grad[1] else None
        if vx is not None:
            rows = _rows(vx, weight)
            for_g = torch.bmm(rows, w.mT) if for_g is None else for_g.baddbmm_(rows, w.mT)
            for_weight = torch.bmm(own.mT, rows).view_as(weight) if ctx.needs_input_grad[2] else None
        if vb is not None:
            bias = vb.view(len(w), 1, -1)
            for_g = bias.expand_as(own) if for_g is None else for_g.add_(bias)
        return None if for_g is None else for_g.view_as(g), for_x, for_weight, None


def _stacked(weight: Tensor) -> Tensor:
    """(m, out, in)"""
    return weight if weight.ndim == 3 else weight[None]


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    """(m, n, channels)"""
    return x.reshape(len(weight) if weight.ndim == 3 else 1, -1, x.shape[-1])


def _in_front(size: int, dims: tuple[int | None, ...], given: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """What `torch.vmap` goes over as the first axis of all."""
    return [
        None if x is None else x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(given, dims, strict=True)
    ]


def _normal_backward(g: Tensor, x: Tensor, mean: Tensor, r: Tensor) -> Tensor:
    found: Tensor = aten.native_layer_norm_backward(
        g.contiguous(), x, x.shape[-1:], mean, r, None, None, [True, False, False]
    )[0]
    return found


def pointwise(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """An operation of one tensor, number by number."""
    x, *rest = args
    found: Tensor = _Curved.apply(x, lambda value: operation(value, *rest, **kwargs))
    return found


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = _Linear.apply(x, weight, bias)
    return found


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:  # fmt: skip
    if len(shape) > 1 or weight is None or bias is None:
        return torch.layer_norm(x, shape, weight, bias, eps)
    found: Tensor = _LayerNorm.apply(x, weight, bias, eps)
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
    found: Tensor = _Softmax.apply(x) if dim in (-1, x.ndim - 1) else x.softmax(dim)
    return found


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if is_causal or enable_gqa or dropout_p:
        fused = torch.nn.functional.scaled_dot_product_attention
        return fused(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    scores = (query * (1 / sqrt(query.shape[-1]) if scale is None else scale)) @ key.transpose(-2, -1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores, -1) @ value


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
