"""Softmax and attention with fast second derivatives; formulas: `second_derivatives`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vitreous.measure.curvature.second_operations import (
    Deferred,
    UnaryFunction,
    batch_first,
    pop_deferred,
)

aten = torch.ops.aten


class SoftmaxFunction(UnaryFunction):
    """Softmax over the last axis."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.softmax(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.deferred = []
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _SoftmaxGradient.apply(g, x, y.detach(), ctx.deferred)
        deferred = pop_deferred(ctx)
        return _softmax_backward(g if deferred is None else deferred[0].add_(g), y)


class _SoftmaxGradient(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, y: Tensor, deferred: Deferred) -> Tensor:
        ctx.deferred = deferred
        ctx.save_for_backward(y, _centred(g, y))
        return _softmax_backward(g, y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> Any:
        y, g = ctx.saved_tensors
        ctx.deferred[:] = [(_centred(v, y).mul_(g),)]
        return _softmax_backward(v, y), None, None, None


def _softmax_backward(g: Tensor, y: Tensor) -> Tensor:
    gradient: Tensor = aten._softmax_backward_data(g, y, -1, y.dtype)
    return gradient


def _centred(g: Tensor, y: Tensor) -> Tensor:
    """Return g - ⟨g, y⟩."""
    return g - torch.linalg.vecdot(g, y).unsqueeze(-1)


class AttentionFunction(Function):
    """softmax(scale · Q Kᵀ) V, and the softmax, of matrices in the last two axes."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        q, k, v = map(_matrices, (query, key, value))
        p = torch.bmm(q * scale, k.mT).softmax(-1)
        return torch.bmm(p, v).view(*query.shape[:-1], -1), p.view(*query.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *given, ctx.scale = inputs
        ctx.deferred = []
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*given, output[1])

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, tuple[int, int]]:
        return AttentionFunction.apply(
            *batch_first(info.batch_size, dims[:3], given[:3]), given[3]
        ), (0, 0)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> Any:
        query, key, value, p = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_AttentionGradient.apply(
                g, query, key, value, p.detach(), ctx.scale, ctx.deferred
            ), None
        return *_attention_backward(g, query, key, value, p, ctx.scale, pop_deferred(ctx)), None


class _AttentionGradient(Function):
    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        weights: Tensor,
        scale: float,
        deferred: Deferred,
    ) -> Any:
        # Q and K are kept scaled, so the scale is part of every product with them.
        q, k, v, p, g_rows = map(_matrices, (query, key, value, weights, g))
        q, k = q * scale, k * scale
        for_p = torch.bmm(g_rows, v.mT)
        for_scores = _softmax_backward(for_p, p)
        ctx.save_for_backward(g_rows, q, k, v, p, for_scores * scale, _centred(for_p, p))
        ctx.deferred = deferred
        return (
            torch.bmm(for_scores, k).view_as(query),
            torch.bmm(for_scores.mT, q).view_as(key),
            torch.bmm(p.mT, g_rows).view_as(value),
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *vectors: Tensor) -> Any:
        g, q, k, v, p, for_scores, for_p = ctx.saved_tensors
        vq, vk, vv = map(_matrices, vectors)
        t = torch.bmm(vq, k.mT).baddbmm_(q, vk.mT)
        u = _softmax_backward(t, p)
        for_g = torch.bmm(p, vv).baddbmm_(u, v)
        ctx.deferred[:] = [
            (_centred(t, p).mul_(for_p).baddbmm_(g, vv.mT), for_scores, vq, vk, u, g, q, k, v)
        ]
        return for_g.view(*vectors[0].shape[:-1], -1), *[None] * 6


def _attention_backward(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    scale: float,
    deferred: tuple[Any, ...] | None,
) -> tuple[Tensor, ...]:
    p, g_rows = _matrices(weights), _matrices(g)
    if deferred is None:
        q, k, v = map(_matrices, (query, key, value))
        z = _softmax_backward(torch.bmm(g_rows, v.mT), p).mul_(scale)
        for_q, for_k, for_v = torch.bmm(z, k), torch.bmm(z.mT, q), torch.bmm(p.mT, g_rows)
    else:
        for_p, for_scores, vq, vk, u, first_g, q, k, v = deferred
        z = _softmax_backward(for_p.baddbmm_(g_rows, v.mT), p)
        for_q = torch.bmm(z, k).baddbmm_(for_scores, vk)
        for_k = torch.bmm(z.mT, q).baddbmm_(for_scores.mT, vq)
        for_v = torch.bmm(p.mT, g_rows).baddbmm_(u.mT, first_g)
    return for_q.view_as(query), for_k.view_as(key), for_v.view_as(value)


def _matrices(x: Tensor) -> Tensor:
    """Return x as (m, rows, columns)."""
    return x.reshape(-1, *x.shape[-2:])
