"""Exact properties of gated positional attention, computed without training."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.effects import Effect, at_least, at_most, more, noted
from vitreous.claims.evidence import Query
from vitreous.claims.readings import accuracy, identity

TWICE = 64
"""Side in pixels of images at twice the resolution; the models are trained at 32 pixels."""


@check("CVT-01")
def attention_can_be_a_convolution(models: Query) -> Iterator[Effect]:
    """A `PSA` of 9 heads and 27 channels in float64, on a grid of 8 x 8, no class token. Queries
    and keys are zero. `start_as_convolution(α, "paper")` gives every head its place Δ_h of a 3 x 3
    kernel. Of the input, standard normal with seed 0, 4 images, values take the first 3 channels,
    the same for every head, and the projection has the kernel at Δ_h for head h: a standard normal
    (27, 3, 3, 3) of seed 1, no bias.

    `psa_convolution_difference`: largest |PSA(x) - conv2d(x)| of the 6 x 6 tokens that are not on
    the border, α = 20. `psa_convolution_rises`: in how many of the steps α = 0.5, 1, 2, 5, 10, 20
    that difference does not fall."""
    exact = models("identities")
    difference = identity(exact, "psa_convolution_difference")
    yield at_most("largest difference from the convolution, locality strength 20", difference, 1e-3)
    rises = identity(exact, "psa_convolution_rises")
    yield at_most(
        "steps of growing locality strength at which the difference does not fall", rises, 0.0
    )


@check("CVT-25")
def positions_add_no_parameters(models: Query) -> Iterator[Effect]:
    """`gpsa_parameters`: number of parameters of `convit_s/16` (1000 classes) minus that with
    `gpsa=0`. `gpsa_parameter_share`: that number over all parameters of `convit_s/16`."""
    exact = models("identities")
    share = identity(exact, "gpsa_parameter_share")
    yield at_most(
        "share of the parameters that positional attention adds", share, 1e-4, paper=models.paper
    )
    yield noted(
        "number of parameters that it adds to ConViT-S",
        identity(exact, "gpsa_parameters"),
        paper=450,
    )


@check("CVT-26")
def heads_begin_by_position(models: Query) -> Iterator[Effect]:
    """Of all gated layers of `convit_ti/4` for 32-pixel images as it is built with seed 0, in
    float64, on standard normal inputs (4, 64, 192) of seed 0; content = softmax(q kᵀ · scale),
    position = `position_attention`.

    `gpsa_row_sum_error`: largest |Σ_j A_ij - 1|, A = (1 - σ(λ)) content + σ(λ) position before any
    division. `gpsa_mixture_difference`: largest |`attention(x)` - A|. `gpsa_position_share`: mean
    over heads of σ(λ), as the least squares coefficient of (attention(x) - content) on (position -
    content)."""
    exact = models("identities")
    yield at_most(
        "largest deviation of a row's sum from one", identity(exact, "gpsa_row_sum_error"), 1e-6
    )
    difference = identity(exact, "gpsa_mixture_difference")
    yield at_most(
        "largest difference of attention from the mixture of both kinds", difference, 1e-6
    )
    share = identity(exact, "gpsa_position_share")
    yield at_least("share of attention that is by position", share, 0.5, paper=0.731)


@check("CVT-27")
def a_new_grid_needs_new_offsets_only(models: Query) -> Iterator[Effect]:
    """`offsets_on_a_new_grid`: of a `GPSA` (192 channels, 4 heads, float64) whose position weights
    are standard normal of seed 0, the third made -|w|: largest |`position_attention((16, 16))` -
    softmax(v · r)|, with r = (δ_column, δ_row, ‖δ‖²) written out for all pairs of the 16 x 16
    grid."""
    if not models.sanity:
        yield from _twice_as_fine(models)
    offsets = identity(models("identities"), "offsets_on_a_new_grid")
    yield at_most("largest difference from attention written out for the new grid", offsets, 1e-6)


def _twice_as_fine(models: Query) -> Iterator[Effect]:
    before = accuracy(models("convit", positions="none"))
    convit = accuracy(models("convit", positions="none", resolution=TWICE))
    deit = accuracy(models("deit", resolution=TWICE, embedding="truncated"))
    yield at_least(
        "accuracy at twice the resolution over that before, ConViT without position embedding",
        convit / before,
        0.8,
    )
    yield more(
        "accuracy at twice the resolution, ConViT minus DeiT with truncated positions, in points",
        convit - deit,
    )
