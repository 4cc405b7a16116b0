"""The checks of the five findings. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vitreous.claims.book import Book
from vitreous.claims.effects import Effect, at_most, more
from vitreous.claims.evidence import Query, Rows, Unreadable, reads
from vitreous.claims.quantity import Array, Quantity, share_replicates

BOOK = Book.read(Path(__file__).with_name("registers.toml"))

SHARE = 0.0237
"""Patch tokens of DINOv2 ViT-g whose norm is above 150 (Section 2.1)."""
RATIO = 10.0
"""Norm of an outlier over that of other tokens (Section 2.2)."""
ONSET = 15 / 40
"""Relative depth at which outliers arise in DINOv2 ViT-g (Fig. 4a)."""
QUARTER = 0.25
OTHER = 67
"""The turn of what is subtracted."""


def _blocks(rows: Rows) -> Rows:
    """The last unit of every block, which is its MLP."""
    return rows.where(kind="mlp")


def _quarter(blocks: Array, start: float, end: float) -> Array:
    """The mean over the blocks between two relative depths."""
    count = blocks.shape[1]
    first = int(start * count)
    return np.asarray(blocks[:, first : max(first + 1, round(end * count))].mean(1))


def _share(rows: Rows, start: float, end: float, turn: int = 0) -> Array:
    """Share of outliers between two relative depths, with a spread also where there are none.

    No outlier in any image has replicates without spread, although more images might have one.
    Two such shares are independent if each has its own `turn`.
    """
    chosen = _blocks(rows).where(measure="outliers")
    share = _quarter(chosen.draws(), start, end)
    if np.ptp(share[1:]) > 0:
        return share
    drawn = share_replicates(share[0], share[1:], int(chosen.numbers("n").min()))
    return np.concatenate([share[:1], np.roll(drawn, turn)])


@reads("token_norm")
def outliers(rows: Rows, turn: int = 0) -> Array:
    """Share of outliers among the patch tokens, mean over the last quarter of the blocks."""
    return _share(rows, 1 - QUARTER, 1.0, turn)


@reads("token_norm")
def outliers_in_the_middle(rows: Rows) -> Array:
    """Share of outliers in the middle half of the network minus that in its first quarter."""
    return _share(rows, QUARTER, 1 - QUARTER) - _share(rows, 0.0, QUARTER, turn=OTHER)


@reads("token_norm")
def onset(rows: Rows) -> Array:
    """Relative depth of the first block with half of the outliers of the block that has most."""
    blocks = _blocks(rows).where(measure="outliers").draws()
    if not blocks[0].any():
        raise Unreadable(f"{rows.item.name} has no outliers, which then begin nowhere")
    reached = blocks >= blocks.max(1, keepdims=True) / 2
    return np.asarray((reached.argmax(1) + 1) / blocks.shape[1])


@reads("token_norm")
def norm_ratio(rows: Rows) -> Array:
    """Largest norm of an image's patch tokens over the median, last quarter of the blocks."""
    return _quarter(_blocks(rows).where(measure="ratio").draws(), 1 - QUARTER, 1.0)


@reads("token_norm")
def neighbours(rows: Rows) -> Array:
    """Cosine of outliers' input patches to their neighbours minus that of others, last block."""
    chosen = _blocks(rows).where(measure="neighbours")
    known = chosen.select(chosen.numbers("n") > 0)
    if not len(known):
        raise Unreadable(f"{rows.item.name} has no outliers whose patches could be compared")
    return known.select([len(known) - 1]).one()


@reads("token_norm")
def block_count(rows: Rows) -> Array:
    """Number of blocks."""
    return np.full(2, float(len(set(_blocks(rows).entries("unit")))))


def _largest(quantity: Quantity) -> float | None:
    """The largest value over trainings; None if nothing was measured."""
    return float(quantity.values.max()) if quantity.known else None


@BOOK.precondition("blocks", "a ViT of at least {value} blocks")
def has_blocks(models: Query, value: int) -> str:
    found = _largest(block_count(models("large_vit")))
    if found is None or found >= value:
        return ""
    return f"It needs a ViT of at least {value} blocks; this one has {found:g}."


@BOOK.precondition(
    "outliers", "a ViT with outliers: a share of at least {value} of its patch tokens"
)
def has_outliers(models: Query, value: float) -> str:
    found = _largest(outliers(models("large_vit")))
    if found is None or found >= value:
        return ""
    return f"It needs a ViT with outliers, at least {value:.1%} of tokens; it has {found:.2%}."


@BOOK.check("REG-01")
def some_tokens_have_a_large_norm(models: Query) -> Iterator[Effect]:
    """An outlier has more than four times the median norm of its image's patch tokens. The paper
    has an absolute cut, 150, which holds for one model only."""
    vit = models("large_vit")
    yield more("share of outliers, last quarter of the blocks", outliers(vit), 0.0, SHARE)
    yield more("largest norm over the median, last quarter", norm_ratio(vit), 1.0, RATIO)


@BOOK.check("REG-02")
def outliers_arise_in_the_middle(models: Query) -> Iterator[Effect]:
    """Quarters of the blocks are compared; where outliers begin supports it."""
    vit = models("large_vit")
    label = "share of outliers, middle half of the blocks minus first quarter"
    yield more(label, outliers_in_the_middle(vit), 0.0, SHARE)
    yield more("relative depth at which half of the outliers are there", onset(vit), 0.2, ONSET)


@BOOK.check("REG-03")
def outliers_lie_on_redundant_patches(models: Query) -> Iterator[Effect]:
    """The paper has densities only; a difference of 0.1 would be visible in its figure."""
    label = "cosine to the neighbours at the input, outliers minus other patches"
    yield more(label, neighbours(models("large_vit")), 0.0, matters=0.1)


@BOOK.check("REG-04")
def registers_remove_outliers(models: Query) -> Iterator[Effect]:
    """Four registers, as in the paper's Fig. 7; in the last quarter of the blocks."""
    without = outliers(models("large_vit"))
    registers = outliers(models("large_vit", registers=4), OTHER)
    yield more("share of outliers without registers minus with", without - registers, 0.0, SHARE)
    yield at_most("share of outliers with registers", registers, 0.001)


@BOOK.check("REG-05")
def only_large_models_have_outliers(models: Query) -> Iterator[Effect]:
    """The large ViT against the smallest of its family, in the last quarter of the blocks."""
    large = outliers(models("large_vit"))
    small = outliers(models("small_vit"), OTHER)
    yield more("share of outliers, large minus small", large - small, 0.0, SHARE)
    yield at_most("share of outliers of the small one", small, 0.001)
