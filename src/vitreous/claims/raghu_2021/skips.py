"""What skips carry past the branches, and what becomes of a ViT without them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Look, Rows, Unreadable, reads
from vitreous.claims.measure import Array, Measure
from vitreous.claims.raghu_2021.book import claim
from vitreous.claims.raghu_2021.pairs import across_the_cut
from vitreous.claims.readings import error

SKIPLESS = (2, 6, 9)
"""Blocks that are trained without skips, of twelve."""
SKIPLESS_SMALL = (2, 4)
"""Of six."""


@reads("skip_ratio")
def class_over_spatial(rows: Rows, low: float, high: float) -> Array:
    """log of: skip over branch of the class token, divided by that of spatial tokens; of units from depth `low` up to,
    not including, `high`."""
    part = Rows(
        rows.exhibit,
        rows.result,
        rows.table[rows.table["depth"].ge(low) & rows.table["depth"].lt(high)],
    )
    one, other = (part.where(token=token) for token in ("class", "spatial"))
    if list(one.table["unit"]) != list(other.table["unit"]):
        raise Unreadable(
            f"skip_ratio of {rows.exhibit.name} has units without a class token or without spatial ones"
        )
    return _log(one.draws()) - _log(other.draws())


def _log(ratios: Array) -> Array:
    return np.asarray(np.log(np.maximum(ratios, np.finfo(np.float64).tiny)))


@reads("skip_ratio")
def spatial_ratio(rows: Rows) -> Array:
    """Skip over branch of spatial tokens, mean over units; without the first unit of a later stage, where the map
    gets smaller."""
    table = rows.where(token="spatial").table
    shrinks = ~table["stage"].duplicated() & (table["stage"] > table["stage"].min())
    return Rows(rows.exhibit, rows.result, table[~shrinks]).draws().mean(-1)


def _geometric(logs: Measure) -> Measure:
    return logs.mean().map(np.exp)


@claim(
    "SLC-14",
    "In the first half of a ViT the class token travels along the skips, while spatial tokens are rewritten by the "
    "branches.",
    place="Fig. 7",
    reported="skip over branch of the class token is high early, up to 12",
    study="zoo",
    task="SYN-B",
)
def class_token_waits(look: Look) -> Iterator[Part]:
    """Ratios of units are averaged as ratios are, by their logarithms."""
    ratio = _geometric(class_over_spatial(look("vit"), 0.0, 0.5))
    yield more("skip over branch, class token over spatial tokens, first half", ratio, than=1)


@claim(
    "SLC-15",
    "In the last layers of a ViT it is the other way round: the class token is rewritten and spatial tokens travel "
    "along the skips.",
    place="Fig. 7, E.1, E.2",
    reported="the ratios change over in the middle of the network",
    study="zoo",
    task="SYN-B",
)
def then_it_is_worked_on(look: Look) -> Iterator[Part]:
    """There is a change if the ratio, of two neighbouring units together, has been above one before."""
    vit = look("vit")
    late = _geometric(class_over_spatial(vit, 0.75, 1.0))
    before = class_over_spatial(vit, 0.0, 0.75).map(
        lambda logs: np.exp(np.max(logs[:-1] + logs[1:]) / 2)
    )
    yield less("skip over branch, class token over spatial tokens, last quarter", late, than=1)
    yield more("the largest of it over two neighbouring units before", before, than=1)


@claim(
    "SLC-16",
    "Skips carry more of the signal in a ViT than in a ResNet.",
    place="Fig. 7",
    reported="skip over branch of ViT lies above that of ResNet-50 throughout",
    study="zoo",
    task="SYN-B",
)
def skips_carry_more(look: Look) -> Iterator[Part]:
    """Models before training are the control, which in the embedded world must not show it."""

    def ratio(**moment: str) -> Measure:
        return spatial_ratio(look("vit", **moment)) / spatial_ratio(look("resnet", **moment))

    yield at_least("mean of skip over branch, ViT over ResNet", ratio(), 1.5, versus=1)
    before = "the same before training", ratio(moment="start")
    yield at_most(*before, 1.5) if look.sanity else noted(*before)


@claim(
    "SLC-17",
    "Layers of a ViT before and after a block that is trained without skips are not alike.",
    place="Fig. 8",
    reported="two blocks in the heat-map of CKA for models without the skips of block 1, 7 or 10",
    study="skips",
    task="SYN-B",
)
def without_skips_it_falls_apart(look: Look) -> Iterator[Part]:
    """Layers far from each other are less alike in any model, so that of an intact one is not quite zero either; half
    of what is asked for has to come of the missing skips."""
    for block in SKIPLESS_SMALL if look.sanity else SKIPLESS:
        cut, intact = (across_the_cut(look("vit", skipless=each), block) for each in (block, None))
        yield at_most(
            f"CKA across the cut minus on its sides, no skips in block {block}", cut, -0.2
        )
        yield at_most(f"the same minus that of an intact ViT, at block {block}", cut - intact, -0.1)
        yield noted(f"the same of an intact ViT, at block {block}", intact, paper=0)


@claim(
    "SLC-18",
    "A ViT trained without the skips of one block in the middle is a few per cent less accurate.",
    place="Fig. 8",
    reported="4 % lower accuracy for blocks in the middle",
    study="skips",
)
def middle_skips_are_worth_a_few_percent(look: Look) -> Iterator[Part]:
    for block in SKIPLESS[1:]:
        drop = error(look("vit", skipless=block)) - error(look("vit"))
        yield at_least(f"accuracy lost without skips in block {block}, in points", drop, 1, paper=4)
        yield at_most(f"the same loss of block {block}, which is not larger", drop, 10, paper=4)
