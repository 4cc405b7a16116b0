"""AlterNet: a ResNet whose stages end in attention, and where attention belongs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_most, less, more
from vitreous.claims.evidence import Query, Trainings
from vitreous.claims.park_2022.book import check
from vitreous.claims.quantity import Array, side_by_side
from vitreous.claims.readings import accuracy, ape, nep, robustness
from vitreous.claims.statistics import beyond_chance

BUILD_UP = ("0,0,0,0", "0,0,0,1", "0,0,0,2", "0,0,1,2", None, "1,1,1,2")
"""Number of attention blocks in each stage, in the paper's order: each variant has one more. The
first is the pre-activation ResNet; None is AlterNet itself, 0,1,1,2."""
SMALL_BUILD_UP = ("0,0,0", "0,0,1", "0,0,2", None)
"""The same for three stages; None is AlterNet itself, 0,1,2."""
FEW_SHARE = 0.2
"""Share of the images in a training on few images."""


def _build_up(models: Query, fraction: float | None = None) -> list[Trainings]:
    """The variants from no attention to the most, trained on a share of the images."""
    variants = SMALL_BUILD_UP if models.sanity else BUILD_UP
    return [models("alternet", msas=msas, fraction=fraction) for msas in variants]


def lead_of_the_best(row: Array, axis: int) -> Array:
    """The largest number of a row minus its first; a statistic for `beyond_chance`."""
    return np.asarray(row[..., 1:].max(axis) - row[..., 0])


@check("HDV-43")
def attention_from_the_end_helps(models: Query) -> Iterator[Effect]:
    """A single attention block decides, because no choice among variants is involved. The best of
    five variants would be better than none by chance alone, so the bias due to noise is subtracted
    there."""
    accuracies = side_by_side([accuracy(network) for network in _build_up(models)])
    yield more(
        "accuracy with one attention block minus that with none, in points",
        accuracies[1] - accuracies[0],
        paper=models.paper,
    )
    yield more(
        "lead of the best number of attention blocks over none, beyond chance, in points",
        beyond_chance(accuracies, lead_of_the_best),
        paper=models.reported(1.54),
    )


@check("HDV-44")
def end_of_a_stage_not_of_the_model(models: Query) -> Iterator[Effect]:
    second, third = accuracy(models("alternet")), accuracy(models("alternet", msas="0,0,2,2"))
    yield more(
        "accuracy with the fourth attention block in stage 2 minus that with it in stage 3, in "
        "points",
        second - third,
        paper=models.paper,
    )


@check("HDV-45")
def alternet_beats_resnet(models: Query) -> Iterator[Effect]:
    alter, resnet = models("alternet"), _build_up(models)[0]
    yield more(
        "accuracy of AlterNet minus that of ResNet, in points",
        accuracy(alter) - accuracy(resnet),
        paper=models.paper,
    )
    yield more(
        "accuracy under corruption of AlterNet minus that of ResNet, in points",
        robustness(alter) - robustness(resnet),
        paper=models.reported(1.69),
    )


@check("HDV-46")
def alternet_is_flat_and_convex(models: Query) -> Iterator[Effect]:
    alter = models("alternet", checkpoint="warmup")
    resnet = models("alternet", msas=BUILD_UP[0], checkpoint="warmup")
    yield less(
        "mean positive eigenvalue of AlterNet over that of ResNet",
        ape(alter) / ape(resnet),
        1.0,
        paper=models.paper,
    )
    yield at_most("share of negative eigenvalues of AlterNet", nep(alter), 0.02, paper=0.005)


@check("HDV-47")
def more_data_more_attention(models: Query) -> Iterator[Effect]:
    """The gain of the variant with the most attention over none, with all images minus with a
    fifth. Which number of blocks is best is not compared: it is a choice among noisy accuracies."""
    every, few = (
        accuracy(networks[-1]) - accuracy(networks[0])
        for networks in (_build_up(models), _build_up(models, FEW_SHARE))
    )
    yield more(
        "what the most attention blocks gain, with all images minus with a fifth, in points",
        every - few,
    )


@check("HDV-48")
def swin_catches_up(models: Query) -> Iterator[Effect]:
    """With a fifth of the images, training takes five times the epochs, so the number of steps is
    the same."""
    few, every = (
        accuracy(models("alternet", **facts)) - accuracy(models("swin", **facts))
        for facts in ({"fraction": FEW_SHARE, "schedule": "samples"}, {})
    )
    yield more(
        "lead of AlterNet over Swin with a fifth of the images minus that with all, in points",
        few - every,
    )


@check("HDV-57")
def later_stages_need_more_heads(models: Query) -> Iterator[Effect]:
    """Compared with a constant number of heads, about the mean of the rising ones, and with the
    rising numbers in reverse order."""
    rising = accuracy(models("alternet"))
    for order in ("constant", "falling"):
        yield more(
            f"accuracy with rising numbers of heads minus that with {order} ones, in points",
            rising - accuracy(models("alternet", order=order)),
        )


@check("HDV-58")
def attention_belongs_at_the_end(models: Query) -> Iterator[Effect]:
    yield more(
        "accuracy with attention at the end of stages minus that at their beginning, in points",
        accuracy(models("alternet")) - accuracy(models("alternet", placement="start")),
    )
