"""Exact properties of gated positional attention (d'Ascoli et al.)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.models import build
from vitreous.models.convit import GPSA, PSA, ConViT, centres_of
from vitreous.studies.identities.properties import exact_property, largest, normal_draws

STRENGTHS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def _distance_from_convolution(strength: float, seed: int) -> float:
    """Largest difference between a 3 × 3 convolution and a PSA initialised to imitate it, on an
    8 × 8 grid without its border."""
    tokens, kernel = normal_draws(4, 64, 27, seed=seed), normal_draws(27, 3, 3, 3, seed=seed + 1)
    layer = PSA(27, 9).double()
    layer.start_as_convolution(strength, "paper")
    layer.qk.weight.zero_()
    layer.proj.bias.zero_()
    for head, (row, column) in enumerate(centres_of(9, "paper").int().tolist()):
        own = slice(3 * head, 3 * head + 3)
        layer.v.weight[own] = torch.eye(3, 27)
        layer.proj.weight[:, own] = kernel[:, :, 1 + row, 1 + column]
    attended, image = (
        each.mT.unflatten(-1, (8, 8)) for each in (layer(tokens, (8, 8)), tokens[..., :3])
    )
    return largest(attended[..., 1:-1, 1:-1] - F.conv2d(image, kernel))


@exact_property
def psa_convolution_difference(seed: int) -> float:
    """Largest difference of a PSA of locality strength 20 and its convolution (CVT-01)."""
    return _distance_from_convolution(STRENGTHS[-1], seed)


@exact_property
def psa_convolution_rises(seed: int) -> float:
    """Number of steps of growing strength at which that difference does not fall (CVT-01)."""
    distances = [_distance_from_convolution(strength, seed) for strength in STRENGTHS]
    return float(sum(after >= before for before, after in pairwise(distances)))


def _parameters(**options: int) -> int:
    """The number of parameters of ConViT-S; no memory is allocated for them."""
    with torch.device("meta"):
        return sum(each.numel() for each in build("convit_s/16", **options).parameters())


@exact_property
def gpsa_parameters(seed: int) -> float:
    """Parameters of ConViT-S minus those without gated layers (CVT-25)."""
    return float(_parameters() - _parameters(gpsa=0))


@exact_property
def gpsa_parameter_share(seed: int) -> float:
    """`gpsa_parameters` as a share of all parameters of ConViT-S (CVT-25)."""
    return 1 - _parameters(gpsa=0) / _parameters()


def _gated_layers(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield attention by content and by position, the layer's mixture of them, and its gates, for
    every gated layer of an untrained ConViT."""
    model = build("convit_ti/4", image=32, classes=10).double()
    assert isinstance(model, ConViT)
    x, grid = normal_draws(4, 64, 192, seed=seed), (8, 8)
    for layer in model.positional_attentions():
        assert isinstance(layer, GPSA)
        q, k, _ = layer.project(x)
        content = (q @ k.mT * layer.scale).softmax(-1)
        yield (
            content,
            layer.position_attention(grid),
            layer.attention(x, grid),
            layer.gate()[:, None, None],
        )


@exact_property
def gpsa_row_sum_error(seed: int) -> float:
    """Largest |Σ_j A_ij − 1| of the mixture, before any division (CVT-26)."""
    return max(
        largest(((1 - g) * content + g * position).sum(-1) - 1)
        for content, position, _, g in _gated_layers(seed)
    )


@exact_property
def gpsa_mixture_difference(seed: int) -> float:
    """Largest difference of a layer's attention from the mixture (CVT-26)."""
    return max(
        largest(own - ((1 - g) * content + g * position))
        for content, position, own, g in _gated_layers(seed)
    )


@exact_property
def gpsa_position_share(seed: int) -> float:
    """Share of attention that is by position, by least squares, mean over heads (CVT-26)."""
    shares = []
    for content, position, mixture, _ in _gated_layers(seed):
        apart = position - content
        shares.append(((mixture - content) * apart).sum((0, 2, 3)) / apart.square().sum((0, 2, 3)))
    return float(torch.stack(shares).mean())


@exact_property
def offsets_on_a_new_grid(seed: int) -> float:
    """Largest difference of positional attention on a 16 × 16 grid from softmax(v · r) (CVT-27)."""
    layer = GPSA(192, 4).double()
    weights = normal_draws(4, 3, seed=seed)
    weights[:, 2] = -weights[:, 2].abs()
    layer.pos_proj.weight.copy_(weights)
    places = torch.cartesian_prod(torch.arange(16.0), torch.arange(16.0)).double()
    row, column = (places - places[:, None]).unbind(-1)
    coordinates = torch.stack([column, row, row**2 + column**2], -1)
    written = torch.einsum("hr,ijr->hij", weights, coordinates).softmax(-1)
    return largest(layer.position_attention((16, 16)) - written)
