"""The gain of ConViT over DeiT by the number of images, and its cost."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.dascoli_2021.readings import rise_of_test_loss, throughput
from vitreous.claims.effects import Effect, at_least, less, more, noted
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity, largest_difference, side_by_side, spearman
from vitreous.claims.readings import accuracy

FRACTIONS = (0.05, 0.1, 0.3, 1.0)


def pair(models: Query, fraction: float, size: str | None = None) -> tuple[Quantity, Quantity]:
    """Accuracy of ConViT and DeiT trained on a share of the images, with the same number of samples
    in total (A3.12)."""
    share = None if fraction == 1 else fraction
    convit, deit = (
        accuracy(models(model, size=size, fraction=share, schedule="samples"))
        for model in ("convit", "deit")
    )
    return convit, deit


def gain(models: Query, fraction: float, size: str | None = None) -> Quantity:
    """Gain of ConViT over DeiT, in percent of the accuracy of DeiT."""
    convit, deit = pair(models, fraction, size)
    return 100 * (convit - deit) / deit


@check("CVT-02")
def convit_is_more_accurate(models: Query) -> Iterator[Effect]:
    """The paper's 0.9 points are for ImageNet; the gain that matters depends on the number of
    classes."""
    difference = accuracy(models("convit")) - accuracy(models("deit"))
    yield more(
        "accuracy of ConViT minus that of DeiT, in points",
        difference,
        matters=models.at(hundred=1.0, ten=0.5, sanity=5.0),
    )


@check("CVT-03")
def gating_costs_time(models: Query) -> Iterator[Effect]:
    ratio = throughput(models("convit")) / throughput(models("deit"))
    yield less("images a second of ConViT over those of DeiT", ratio, than=1.0, paper=models.paper)


@check("CVT-04")
def a_tenth_of_the_images_is_enough(models: Query) -> Iterator[Effect]:
    convit, deit = pair(models, 0.1)
    yield more(
        "accuracy on 10 % of the images, ConViT minus DeiT, in points", convit - deit, matters=3.0
    )


@check("CVT-05")
def gain_grows_as_images_get_fewer(models: Query) -> Iterator[Effect]:
    """The difference of gains decides, because their ratio is undefined if there is no gain on all
    images. A rank correlation over four shares of the images supports it."""
    gains = side_by_side([gain(models, fraction) for fraction in FRACTIONS])
    few, every = gains[0], gains[-1]
    yield more(
        "gain on 5 % of the images minus that on all, in percent of the accuracy of DeiT",
        few - every,
    )
    yield less(
        "rank correlation of gain and share of the images", spearman(FRACTIONS, gains), paper=-1.0
    )
    yield noted("gain on 5 % over that on all images", few / every, paper=19.9)


@check("CVT-06")
def gain_grows_with_size(models: Query) -> Iterator[Effect]:
    growth = gain(models, 0.1, size="s") - gain(models, 0.1)
    yield more(
        "gain of the larger size minus that of the smaller, 10 % of the images, in percent", growth
    )


@check("CVT-07")
def on_a_par_with_distillation(models: Query) -> Iterator[Effect]:
    difference = accuracy(models("convit")) - accuracy(models("deit", distilled=True))
    yield at_least("accuracy of ConViT minus that of distilled DeiT, in points", difference, -1.0)


@check("CVT-32")
def overfits_small_data(models: Query) -> Iterator[Effect]:
    """The paper's number is from one training of 1000 epochs at 224 pixels, which is not repeated
    here."""
    convit = models("convit")
    yield more(
        "NLL of the test images at the end minus its least, in nats", rise_of_test_loss(convit)
    )
    yield noted("accuracy, in percent", accuracy(convit), paper=82.1)


@check("CVT-33")
def less_sensitive_to_the_rate(models: Query) -> Iterator[Effect]:
    """The range is between the learning rates with the best and the worst mean over trainings."""

    def spread(model: str) -> Quantity:
        rates = side_by_side([accuracy(models(model, rate=rate)) for rate in (0.5, None, 2.0)])
        return largest_difference(rates)

    convit, deit = spread("convit"), spread("deit")
    yield more(
        "range of accuracies over ½, 1 and 2 times the rate, DeiT minus ConViT, in points",
        deit - convit,
    )
    yield noted("range of ConViT, in points", convit)
    yield noted("range of DeiT, in points", deit)
