"""A model at many places in the space of its weights: one after the other, or several copies in one pass.

On a GPU a small model leaves most of it idle, and `torch.func.vmap` over stacked weights fills it: every product with a
weight becomes one product for all copies. On a CPU the products themselves are what takes the time, and copies pass one
by one; there a graph is used in which a linear layer, with the GELU behind it, is a single oneDNN operation, which
saves a pass over the activations for the bias and one for the GELU, and in which the last block of a model that reads
its answer off one token computes that token alone; and few images pass at a time, so that what one layer hands to the
next stays in the processor's cache.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from vitreous.measure.curvature import loss
from vitreous.measure.curvature.loss import Weights
from vitreous.measure.readout.one_token import one_token
from vitreous.specimen.specimen import Specimen

Statistics = Literal["running", "batch"]
aten = torch.ops.aten


def scores(
    specimen: Specimen, moved: Weights, images: Tensor, copies: int = 0, at_a_time: int = 0
) -> Tensor:
    """(b, classes) with some parameters elsewhere; (copies, b, classes) if those are stacked. All images pass together
    unless it is said how many at a time."""
    if copies:
        return vmap(lambda given: loss.scores(specimen, given, images))(dict(moved))
    if not 0 < at_a_time < len(images):
        return loss.scores(specimen, moved, images)
    inside = {f"specimen.{loss.PREFIX}{name}": value for name, value in moved.items()}
    return cast("Tensor", functional_call(_InParts(specimen, at_a_time), inside, (images,)))


class _InParts(nn.Module):
    """Some images after the other, with the same weights, which are put in place once."""

    def __init__(self, specimen: Specimen, at_a_time: int) -> None:
        super().__init__()
        self.specimen, self.at_a_time = specimen, at_a_time

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat(
            [loss.scores(self.specimen, {}, part) for part in images.split(self.at_a_time)]
        )


def with_statistics(specimen: Specimen, statistics: Statistics) -> Specimen:
    """Batch normalisation with the mean and variance of what passes instead of those of the training, if asked for."""
    if statistics == "running" or not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        for node in module.graph.nodes:
            if node.target is aten.batch_norm.default:
                images, weight, bias, _, _, _, *rest = node.args
                node.args = (images, weight, bias, None, None, True, *rest)

    return specimen._edited(edit, "with statistics of the batch")


def stackable(specimen: Specimen) -> Specimen:
    """The same model with an attention that takes stacked copies in one call."""
    if not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in module.graph.nodes:
            if node.target is aten.scaled_dot_product_attention.default:
                node.target = attend

    return specimen._edited(edit, "with copies side by side")


def attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, **more: Any,
) -> Tensor:  # fmt: skip
    """Fused attention; dropout is at rest."""
    return cast("Tensor", _Attend.apply(query, key, value, attn_mask, is_causal, more))


class _Attend(torch.autograd.Function):
    """torch goes through stacked copies one by one; for us they are a larger batch."""

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        more: dict[str, Any],
    ) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, **more)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """There are no gradients here."""

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        count, (*tensors, mask), rest = info.batch_size, given[:4], given[4:]
        if mask is not None:
            axis = None if dims[3] is None else dims[3] % mask.ndim
            batch = (
                tensors[0].shape[0 if dims[0] else 1]
                if dims[0] is not None
                else tensors[0].shape[0]
            )
            mask = _front(mask, axis, count)
            while mask.ndim < 5:  # copies, images, heads, queries, keys
                mask = mask.unsqueeze(1)
            mask = mask.expand(count, batch, *mask.shape[2:]).flatten(0, 1)
        flat = [
            _front(each, dim, count).flatten(0, 1) for each, dim in zip(tensors, dims, strict=False)
        ]
        query, key, value = flat
        return _Attend.forward(query, key, value, mask, *rest).unflatten(0, (count, -1)), 0


def _front(given: Tensor, dim: int | None, count: int) -> Tensor:
    """With the copies as first axis."""
    return given.expand(count, *given.shape) if dim is None else given.movedim(dim, 0)


def lean(specimen: Specimen) -> Specimen:
    """The same model for a CPU: linear layers, and GELUs behind them, as one oneDNN operation each, and only of the
    token that is read off."""
    weight = next(specimen.parameters(), torch.empty(0))
    fits = (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    )
    fused = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if not fits or fused is None or not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in list(module.graph.nodes):
            if node.target is aten.linear.default:
                _fuse(node, fused.default)

    return specimen._edited(edit, "with lean linear layers")


def _fuse(node: fx.Node, fused: Any) -> None:
    images, weight, bias = (*node.args, None)[:3]
    users = list(node.users)
    curved = users[0] if len(users) == 1 and users[0].target is aten.gelu.default else None
    algorithm = (
        "none"
        if curved is None
        else str(curved.kwargs.get("approximate", (*curved.args, "none")[1]))
    )
    node.target, node.kwargs = fused, {}
    node.args = (images, weight, bias, "none" if curved is None else "gelu", [], algorithm)
    if curved is not None:
        curved.replace_all_uses_with(node)
        node.graph.erase_node(curved)
