"""Curves, LayerNorm and linear layers whose second derivatives are quick; what they compute is in
`second_derivatives`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

aten = torch.ops.aten
Pointwise = Callable[[Tensor], Tensor]
Later = list[tuple[Any, ...]]
"""What the way up leaves for the way down: nothing or one thing."""


def taken(ctx: Any) -> tuple[Any, ...] | None:
    """What was put off, once."""
    return ctx.later.pop() if ctx.later else None


def in_front(
    size: int, dims: tuple[int | None, ...], given: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """What `torch.vmap` goes over as the first axis of all."""
    return [
        None if x is None else x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(given, dims, strict=True)
    ]


class Unary(Function):
    """Of one tensor, along its last axis or pointwise, so that a further axis in front changes nothing."""

    @classmethod
    def vmap(
        cls, info: Any, dims: tuple[int | None, ...], x: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        assert dims[0] is not None
        return cls.apply(x.movedim(dims[0], 0), *rest), 0


class Curved(Unary):
    """y = f(x) for every number."""

    @staticmethod
    def forward(x: Tensor, f: Pointwise) -> Tensor:
        return f(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.f = inputs
        ctx.later = []
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and hasattr(ctx, "first"):
            found, put = g * ctx.first, taken(ctx)
            return found if put is None else found.addcmul_(*put), None
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            (first,) = torch.autograd.grad(ctx.f(at).sum(), at, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), at)
        ctx.first = first.detach()
        return _CurvedGradient.apply(g, x, ctx.first, second, ctx.later), None


class _CurvedGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, first: Tensor, second: Tensor, later: Later
    ) -> Tensor:
        ctx.later = later
        ctx.save_for_backward(first, second.mul_(g))
        return g * first

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> Any:
        first, second = ctx.saved_tensors
        ctx.later[:] = [(v, second)]
        return v * first, None, None, None, None


class LayerNorm(Function):
    """Over the last axis, with weight and bias (c), or (m, c) for several at once, x having m in front."""

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
        ctx.later = []
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        return LayerNorm.apply(*in_front(info.batch_size, dims[:3], given[:3]), given[3]), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if not hasattr(ctx, "normal"):
            ctx.normal = torch.native_layer_norm(x.detach(), x.shape[-1:], None, None, ctx.eps)
        if torch.is_grad_enabled():
            return *_LayerNormGradient.apply(g, x, weight, *ctx.normal, ctx.later), None
        y, mean, r = ctx.normal
        along, product = g * _over(weight, x), g * y
        if (put := taken(ctx)) is None:
            return _normal_backward(along, x, mean, r), _sum(product, weight), _sum(g, weight), None
        v, vw, s, own, before, gy, d = put
        if vw is not None:
            along.addcmul_(own, _over(vw, x))
        found = _normal_backward(along, x, mean, r)
        if v is not None:
            product.addcmul_(s, own)
            share = r * (-1 / x.shape[-1])
            sg, vy = (
                torch.linalg.vecdot(*pair).unsqueeze(-1).mul_(share)
                for pair in ((s, before), (v, y))
            )
            found.addcmul_(y, sg).addcmul_(s, gy * share).addcmul_(d, vy)
        return found, _sum(product, weight), _sum(g, weight), None


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
        later: Later,
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.later = later
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
        ctx.later[:] = [(v, vw, s, g, along, gy, d)]
        return for_g, *[None] * 6


def _over(parameter: Tensor, x: Tensor) -> Tensor:
    """As it is spread over x."""
    return (
        parameter
        if parameter.ndim == 1
        else parameter.view(len(parameter), *[1] * (x.ndim - 2), -1)
    )


def _sum(x: Tensor, parameter: Tensor) -> Tensor:
    """Over whatever a parameter is spread over."""
    return x.flatten(parameter.ndim - 1, -2).sum(parameter.ndim - 1)


def _normal_backward(g: Tensor, x: Tensor, mean: Tensor, r: Tensor) -> Tensor:
    found: Tensor = aten.native_layer_norm_backward(
        g.contiguous(), x, x.shape[-1:], mean, r, None, None, [True, False, False]
    )[0]
    return found


class Linear(Function):
    """x Wᵀ + b; for several weights at once W is (m, out, in), b (m, out), and x has m in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, w = _rows(x, weight), _stacked(weight)
        found = (
            torch.bmm(rows, w.mT)
            if bias is None
            else torch.baddbmm(bias.view(len(w), 1, -1), rows, w.mT)
        )
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.later = []
        ctx.save_for_backward(x, weight)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Tensor | None) -> tuple[Tensor, int]:
        return Linear.apply(*in_front(info.batch_size, dims, given)), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _LinearGradient.apply(g, x, weight, ctx.needs_input_grad, ctx.later)
        return _linear_backward(g, x, weight, ctx.needs_input_grad, taken(ctx))


def _linear_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    wanted: tuple[bool, ...],
    put: tuple[Any, ...] | None = None,
) -> tuple[Tensor | None, ...]:
    w, own, rows = _stacked(weight), _rows(g, weight), _rows(x, weight)
    for_x = torch.bmm(own, w) if wanted[0] else None
    for_weight = torch.bmm(own.mT, rows) if wanted[1] else None
    if put is not None:
        before, vx, vw = put
        if for_x is not None and vw is not None:
            for_x.baddbmm_(before, vw)
        if for_weight is not None and vx is not None:
            for_weight.baddbmm_(before.mT, vx)
    return (
        None if for_x is None else for_x.view_as(x),
        None if for_weight is None else for_weight.view_as(weight),
        own.sum(1).view(weight.shape[:-1]) if wanted[2] else None,
    )


class _LinearGradient(Function):
    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, ...], later: Later
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.later = later
        ctx.save_for_backward(g, x, weight)
        return _linear_backward(g, x, weight, wanted)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vx: Tensor | None, vw: Tensor | None, vb: Tensor | None) -> Any:
        g, x, weight = ctx.saved_tensors
        w, own = _stacked(weight), _rows(g, weight)
        for_g = rows = along = None
        if vw is not None:
            along = _stacked(vw)
            for_g = torch.bmm(_rows(x, weight), along.mT)
        if vx is not None:
            rows = _rows(vx, weight)
            for_g = torch.bmm(rows, w.mT) if for_g is None else for_g.baddbmm_(rows, w.mT)
        if vb is not None:
            bias = vb.view(len(w), 1, -1)
            for_g = bias.expand_as(own) if for_g is None else for_g.add_(bias)
        ctx.later[:] = [(own, rows, along)]
        return None if for_g is None else for_g.view_as(g), None, None, None, None


def _stacked(weight: Tensor) -> Tensor:
    """(m, out, in)"""
    return weight if weight.ndim == 3 else weight[None]


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    """(m, n, channels)"""
    return x.reshape(len(weight) if weight.ndim == 3 else 1, -1, x.shape[-1])
