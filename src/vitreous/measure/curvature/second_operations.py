"""Pointwise functions, LayerNorm and linear layers with fast second derivatives.

The formulas are in `second_derivatives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

aten = torch.ops.aten
Deferred = list[tuple[Any, ...]]
"""Terms that the forward half of a product leaves for its backward half: none, or one tuple."""


def pop_deferred(ctx: Any) -> tuple[Any, ...] | None:
    """Return what the forward half deferred, if anything, and forget it."""
    return ctx.deferred.pop() if ctx.deferred else None


def batch_first(
    size: int, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """Move the axis that `torch.vmap` maps over to the front of every tensor."""
    moved: list[Tensor | None] = []
    for tensor, dim in zip(tensors, dims, strict=True):
        if tensor is None:
            moved.append(None)
        elif dim is None:
            moved.append(tensor.expand(size, *tensor.shape))
        else:
            moved.append(tensor.movedim(dim, 0))
    return moved


class UnaryFunction(Function):
    """A function of one tensor, pointwise or along its last axis; vmap adds an axis in front."""

    @classmethod
    def vmap(
        cls, info: Any, dims: tuple[int | None, ...], x: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        assert dims[0] is not None
        return cls.apply(x.movedim(dims[0], 0), *rest), 0


class PointwiseFunction(UnaryFunction):
    """y = f(x), number by number."""

    @staticmethod
    def forward(x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return f(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.f = inputs
        ctx.deferred = []
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        # Autograd disables gradients in every pass but the one that builds the graph
        # (create_graph=True), so this tells a product from the first gradient.
        if not torch.is_grad_enabled() and hasattr(ctx, "first"):
            gradient, deferred = g * ctx.first, pop_deferred(ctx)
            return gradient if deferred is None else gradient.addcmul_(*deferred), None
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            (first,) = torch.autograd.grad(ctx.f(at).sum(), at, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), at)
        ctx.first = first.detach()
        return _PointwiseGradient.apply(g, x, ctx.first, second, ctx.deferred), None


class _PointwiseGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, first: Tensor, second: Tensor, deferred: Deferred
    ) -> Tensor:
        ctx.deferred = deferred
        ctx.save_for_backward(first, second.mul_(g))
        return g * first

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> Any:
        first, second = ctx.saved_tensors
        ctx.deferred[:] = [(v, second)]
        return v * first, None, None, None, None


class LayerNormFunction(Function):
    """LayerNorm over the last axis; weight and bias (c,), or (m, c) for m models."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        if weight.ndim == 1:
            return torch.layer_norm(x, weight.shape, weight, bias, eps)
        return torch.addcmul(
            _over(bias, x), torch.layer_norm(x, weight.shape[1:], None, None, eps), _over(weight, x)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, ctx.eps = inputs
        ctx.deferred = []
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        return LayerNormFunction.apply(
            *batch_first(info.batch_size, dims[:3], given[:3]), given[3]
        ), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if not hasattr(ctx, "normal"):
            ctx.normal = torch.native_layer_norm(x.detach(), x.shape[-1:], None, None, ctx.eps)
        if torch.is_grad_enabled():
            return *_LayerNormGradient.apply(g, x, weight, *ctx.normal, ctx.deferred), None
        y, mean, r = ctx.normal
        along, product = g * _over(weight, x), g * y
        deferred = pop_deferred(ctx)
        if deferred is None:
            for_x = _normal_backward(along, x, mean, r)
            return for_x, _sum(product, weight), _sum(g, weight), None
        v, vw, s, first_g, first_along, gy, d = deferred
        if vw is not None:
            along.addcmul_(first_g, _over(vw, x))
        for_x = _normal_backward(along, x, mean, r)
        if v is not None:
            product.addcmul_(s, first_g)
            share = r * (-1 / x.shape[-1])
            sg = torch.linalg.vecdot(s, first_along).unsqueeze(-1).mul_(share)
            vy = torch.linalg.vecdot(v, y).unsqueeze(-1).mul_(share)
            for_x.addcmul_(y, sg).addcmul_(s, gy * share).addcmul_(d, vy)
        return for_x, _sum(product, weight), _sum(g, weight), None


class _LayerNormGradient(Function):
    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        x: Tensor,
        weight: Tensor,
        y: Tensor,
        mean: Tensor,
        r: Tensor,
        deferred: Deferred,
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.deferred = deferred
        along = g * _over(weight, x)
        d = _normal_backward(along, x, mean, r)
        ctx.save_for_backward(
            g, x, weight, y, mean, r, d, along, torch.linalg.vecdot(along, y).unsqueeze(-1)
        )
        return d, _sum(g * y, weight), _sum(g, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor | None, vw: Tensor | None, vb: Tensor | None) -> Any:
        g, x, weight, y, mean, r, d, along, gy = ctx.saved_tensors
        bias = _over(weight.new_zeros(weight.shape) if vb is None else vb, x)
        for_g = (
            bias.expand_as(g).contiguous() if vw is None else torch.addcmul(bias, y, _over(vw, x))
        )
        s = None
        if v is not None:
            s = _normal_backward(v, x, mean, r)
            for_g.addcmul_(s, _over(weight, x))
        ctx.deferred[:] = [(v, vw, s, g, along, gy, d)]
        return for_g, *[None] * 6


def _over(parameter: Tensor, x: Tensor) -> Tensor:
    """Return a parameter in a shape that broadcasts over x."""
    if parameter.ndim == 1:
        return parameter
    return parameter.view(len(parameter), *[1] * (x.ndim - 2), -1)


def _sum(x: Tensor, parameter: Tensor) -> Tensor:
    """Sum over the axes that a parameter is broadcast over."""
    return x.flatten(parameter.ndim - 1, -2).sum(parameter.ndim - 1)


def _normal_backward(g: Tensor, x: Tensor, mean: Tensor, r: Tensor) -> Tensor:
    gradient: Tensor = aten.native_layer_norm_backward(
        g.contiguous(), x, x.shape[-1:], mean, r, None, None, [True, False, False]
    )[0]
    return gradient


class LinearFunction(Function):
    """x Wᵀ + b; for m models W is (m, out, in), b (m, out) and x (m, …, in)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, w = _rows(x, weight), _stacked(weight)
        shape = (*x.shape[:-1], -1)
        if bias is None:
            return torch.bmm(rows, w.mT).view(shape)
        return torch.baddbmm(bias.view(len(w), 1, -1), rows, w.mT).view(shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.deferred = []
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Tensor | None) -> tuple[Tensor, int]:
        return LinearFunction.apply(*batch_first(info.batch_size, dims, given)), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _LinearGradient.apply(g, x, weight, ctx.needs_input_grad, ctx.deferred)
        return _linear_backward(g, x, weight, ctx.needs_input_grad, pop_deferred(ctx))


def _linear_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    wanted: tuple[bool, ...],
    deferred: tuple[Any, ...] | None = None,
) -> tuple[Tensor | None, ...]:
    w, g_rows, x_rows = _stacked(weight), _rows(g, weight), _rows(x, weight)
    for_x = torch.bmm(g_rows, w) if wanted[0] else None
    for_weight = torch.bmm(g_rows.mT, x_rows) if wanted[1] else None
    if deferred is not None:
        first_g, vx, vw = deferred
        if for_x is not None and vw is not None:
            for_x.baddbmm_(first_g, vw)
        if for_weight is not None and vx is not None:
            for_weight.baddbmm_(first_g.mT, vx)
    return (
        None if for_x is None else for_x.view_as(x),
        None if for_weight is None else for_weight.view_as(weight),
        g_rows.sum(1).view(weight.shape[:-1]) if wanted[2] else None,
    )


class _LinearGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, ...], deferred: Deferred
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.deferred = deferred
        ctx.save_for_backward(g, x, weight)
        return _linear_backward(g, x, weight, wanted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vx: Tensor | None, vw: Tensor | None, vb: Tensor | None) -> Any:
        g, x, weight = ctx.saved_tensors
        w, g_rows = _stacked(weight), _rows(g, weight)
        for_g = vx_rows = vw_stacked = None
        if vw is not None:
            vw_stacked = _stacked(vw)
            for_g = torch.bmm(_rows(x, weight), vw_stacked.mT)
        if vx is not None:
            vx_rows = _rows(vx, weight)
            for_g = torch.bmm(vx_rows, w.mT) if for_g is None else for_g.baddbmm_(vx_rows, w.mT)
        if vb is not None:
            bias = vb.view(len(w), 1, -1)
            for_g = bias.expand_as(g_rows) if for_g is None else for_g.add_(bias)
        ctx.deferred[:] = [(g_rows, vx_rows, vw_stacked)]
        return None if for_g is None else for_g.view_as(g), None, None, None, None


def _stacked(weight: Tensor) -> Tensor:
    """Return the weight as (m, out, in)."""
    return weight if weight.ndim == 3 else weight[None]


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    """Return x as (m, rows, channels)."""
    return x.reshape(len(weight) if weight.ndim == 3 else 1, -1, x.shape[-1])
