"""A model at many points of parameter space: one after the other, or several copies in one pass.

A small model leaves most of a GPU idle. With `torch.func.vmap` over stacked weights, every product
with a weight becomes one product for all copies. On a CPU copies run one by one, and three things
save time: a linear layer, with the GELU after it, is a single oneDNN operation (without extra
passes over the activations for bias and GELU); the last block of a model that classifies by one
token computes only that token; and few images run at a time, so that activations stay in the cache.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from vitreous.measure.curvature.loss import PREFIX, Weights, class_scores
from vitreous.measure.readout.one_token import one_token
from vitreous.specimen.specimen import Specimen

Statistics = Literal["running", "batch"]
aten = torch.ops.aten


def scores_at(
    specimen: Specimen, moved: Weights, images: Tensor, copies: int = 0, at_a_time: int = 0
) -> Tensor:
    """Return logits with some parameters replaced.

    Parameters
    ----------
    moved
        The replaced parameters; stacked, (copies, …), if `copies` is given.
    at_a_time
        Images per pass (default: all).

    Returns
    -------
    (b, classes), or (copies, b, classes).
    """
    if copies:
        return vmap(lambda given: class_scores(specimen, given, images))(dict(moved))
    if not 0 < at_a_time < len(images):
        return class_scores(specimen, moved, images)
    inside = {f"specimen.{PREFIX}{name}": value for name, value in moved.items()}
    return cast("Tensor", functional_call(_InParts(specimen, at_a_time), inside, (images,)))


class _InParts(nn.Module):
    """Runs a few images at a time, so that `functional_call` replaces the weights only once."""

    def __init__(self, specimen: Specimen, at_a_time: int) -> None:
        super().__init__()
        self.specimen, self.at_a_time = specimen, at_a_time

    def forward(self, images: Tensor) -> Tensor:
        parts = images.split(self.at_a_time)
        return torch.cat([class_scores(self.specimen, {}, part) for part in parts])


def with_statistics(specimen: Specimen, statistics: Statistics) -> Specimen:
    """Return the model; with "batch", batch norm uses the statistics of each batch."""
    if statistics == "running" or not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        for node in module.graph.nodes:
            if node.target is aten.batch_norm.default:
                images, weight, bias, _, _, _, *rest = node.args
                node.args = (images, weight, bias, None, None, True, *rest)

    return specimen._edited(edit, "with statistics of the batch")


def with_stackable_attention(specimen: Specimen) -> Specimen:
    """Return the same model with an attention that takes stacked copies in one call."""
    if not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in module.graph.nodes:
            if node.target is aten.scaled_dot_product_attention.default:
                node.target = attend

    return specimen._edited(edit, "with copies side by side")


def attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, **more: Any,
) -> Tensor:  # fmt: skip
    """Compute fused attention, without dropout; stacked copies become a larger batch."""
    return cast("Tensor", _StackableAttention.apply(query, key, value, attn_mask, is_causal, more))


class _StackableAttention(torch.autograd.Function):
    """Fused attention with a vmap rule: torch's own runs the copies one by one."""

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
        """Save nothing: no gradients are computed here."""

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        copies = info.batch_size
        query, key, value, mask, *rest = given
        query, key, value = (
            _copies_first(each, dim, copies)
            for each, dim in zip((query, key, value), dims, strict=False)
        )
        if mask is not None:
            mask = _copies_first(mask, None if dims[3] is None else dims[3] % mask.ndim, copies)
            while mask.ndim < 5:  # copies, images, heads, queries, keys
                mask = mask.unsqueeze(1)
            mask = mask.expand(copies, query.shape[1], *mask.shape[2:]).flatten(0, 1)
        query, key, value = (each.flatten(0, 1) for each in (query, key, value))
        outputs = _StackableAttention.forward(query, key, value, mask, *rest)
        return outputs.unflatten(0, (copies, -1)), 0


def _copies_first(tensor: Tensor, dim: int | None, copies: int) -> Tensor:
    """Make the copies the first axis."""
    return tensor.expand(copies, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def with_fused_linear(specimen: Specimen) -> Specimen:
    """Return the same model for a CPU: each linear layer, and GELU after it, is one operation.

    `mkldnn::_linear_pointwise` is what torch's own compiler emits, and private to torch: where it
    is missing the model stays as it is. Tests compare it with the model, to float32 precision.
    """
    weight = next(specimen.parameters(), torch.empty(0))
    float32_on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    fused = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if not float32_on_cpu or not torch.backends.mkldnn.is_available() or fused is None:
        return specimen
    if not hasattr(specimen.module, "graph"):
        return specimen

    def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
        one_token(module.graph)
        for node in list(module.graph.nodes):
            if node.target is aten.linear.default:
                _fuse(node, fused.default)

    return specimen._edited(edit, "with fused linear layers")


def _fuse(node: fx.Node, fused: Any) -> None:
    """Replace a linear layer, and the GELU that is its only user, by one fused operation."""
    images, weight, bias = (*node.args, None)[:3]
    users = list(node.users)
    gelu = users[0] if len(users) == 1 and users[0].target is aten.gelu.default else None
    node.target, node.kwargs = fused, {}
    if gelu is None:
        node.args = (images, weight, bias, "none", [], "none")
        return
    algorithm = str(gelu.kwargs.get("approximate", (*gelu.args, "none")[1]))
    node.args = (images, weight, bias, "gelu", [], algorithm)
    gelu.replace_all_uses_with(node)
    node.graph.erase_node(gelu)
