"""How much a ConViT gains over a DeiT, with how few images, and at what price."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least, at_most, less, more, no_less, noted
from vitreous.claims.dascoli_2021.book import claim
from vitreous.claims.dascoli_2021.readings import rise_of_test_loss, throughput
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure, beside, spearman
from vitreous.claims.readings import accuracy

FRACTIONS = (0.05, 0.1, 0.3, 1.0)


def pair(look: Look, fraction: float, size: str | None = None) -> tuple[Measure, Measure]:
    """Accuracy of ConViT and DeiT on a share of the images, with as many images seen in all (A3.12)."""
    share = None if fraction == 1 else fraction
    convit, deit = (
        accuracy(look(model, size=size, fraction=share, schedule="samples"))
        for model in ("convit", "deit")
    )
    return convit, deit


def gain(look: Look, fraction: float, size: str | None = None) -> Measure:
    """In percent of the accuracy of DeiT."""
    convit, deit = pair(look, fraction, size)
    return 100 * (convit - deit) / deit


@claim(
    "CVT-02",
    "With as many heads and the same width a ConViT is more accurate than a DeiT.",
    place="Table 1",
    reported="top-1 of ConViT and DeiT: Ti 73.1 and 72.2 %, S 81.3 and 79.8, S+ 82.2 and 79.0, B+ 82.5 and 77.5",
    study="convit",
    task="SYN-B",
    seeds=3,
    large=True,
)
def convit_is_more_accurate(look: Look) -> Iterator[Part]:
    difference = accuracy(look("convit")) - accuracy(look("deit"))
    threshold = look.at(hundred=1.0, ten=0.5, sanity=5.0)
    yield at_least(
        "accuracy of ConViT minus that of DeiT, in points", difference, threshold, paper=0.9
    )


@claim(
    "CVT-03",
    "Gated positional attention makes a model slower.",
    place="Table 1",
    reported="images a second of ConViT and DeiT: Ti 734 and 1442, S 305 and 587, B+ 96 and 114",
    study="convit",
    task="SYN-B",
)
def gating_costs_time(look: Look) -> Iterator[Part]:
    ratio = throughput(look("convit")) / throughput(look("deit"))
    yield less("images a second of ConViT over those of DeiT", ratio, than=1.0, paper=0.51)


@claim(
    "CVT-04",
    "On a tenth of the images a ConViT is far more accurate than a DeiT that has seen as many in all.",
    place="Table 2",
    reported="S models on 10 % of ImageNet: ConViT 59.6 %, DeiT 48.0 %; on 5 %: 47.8 and 34.8 %",
    study="convit",
    task="SYN-B",
    large=True,
)
def a_tenth_of_the_images_is_enough(look: Look) -> Iterator[Part]:
    convit, deit = pair(look, 0.1)
    yield at_least(
        "accuracy on 10 % of the images, ConViT minus DeiT, in points",
        convit - deit,
        3.0,
        paper=11.6,
    )


@claim(
    "CVT-05",
    "The fewer images there are, the larger is the gain of a ConViT relative to the accuracy of a DeiT.",
    place="Table 2, Fig. 2",
    reported="gain of 37, 24, 12, 5 and 2 % on 5, 10, 30, 50 and 100 % of ImageNet",
    study="convit",
    task="SYN-B",
    large=True,
)
def gain_grows_as_images_get_fewer(look: Look) -> Iterator[Part]:
    """The ratio of gains is judged as a difference: it has a sign also where there is no gain on all images."""
    gains = beside([gain(look, fraction) for fraction in FRACTIONS])
    few, all_ = gains[0], gains[-1]
    yield at_most(
        "rank correlation of gain and share of the images",
        spearman(FRACTIONS, gains),
        -0.9,
        paper=-1.0,
    )
    yield more("gain on 5 % of the images, in percent of the accuracy of DeiT", few, paper=37.4)
    yield no_less(
        "gain on 5 % minus three times that on all images, in percent", few - 3 * all_, paper=31.7
    )
    yield noted("gain on 5 % over that on all images", few / all_, paper=19.9)


@claim(
    "CVT-06",
    "The larger the models, the larger is the gain of a ConViT relative to the accuracy of a DeiT.",
    place="Fig. 11",
    reported="on CIFAR-100 and ImageNet the gain grows from Ti+ over S+ to B+ (read from bars)",
    study="convit",
    large=True,
)
def gain_grows_with_size(look: Look) -> Iterator[Part]:
    growth = gain(look, 0.1, size="s") - gain(look, 0.1)
    yield more(
        "gain of the larger size minus that of the smaller, 10 % of the images, in percent", growth
    )


@claim(
    "CVT-07",
    "A ConViT without distillation is on a par with a DeiT that was distilled from a CNN.",
    place="Table 4",
    reported="ConViT-S+ 82.2 %; distilled DeiT-S 80.9 % and DeiT-B 83.0 %",
    study="convit",
    large=True,
)
def on_a_par_with_distillation(look: Look) -> Iterator[Part]:
    difference = accuracy(look("convit")) - accuracy(look("deit", distilled=True))
    yield at_least("accuracy of ConViT minus that of distilled DeiT, in points", difference, -1.0)


@claim(
    "CVT-32",
    "On CIFAR-100 a small ConViT reaches 82.1 %, and trained for long it begins to overfit: its loss on test images "
    "rises again.",
    place="Appendix C",
    reported="82.1 % top-1 of Ti+ with 10 million parameters, images enlarged to 224 pixels, 1000 epochs",
    study="convit",
)
def overfits_small_data(look: Look) -> Iterator[Part]:
    """The accuracy is that of a training which is not repeated here, so it is noted; overfitting could fail to show,
    and so it is judged: a rise of a hundredth of a nat."""
    convit = look("convit")
    yield at_least(
        "NLL of the test images at the end minus its least, in nats",
        rise_of_test_loss(convit),
        0.01,
    )
    yield noted("accuracy, in percent", accuracy(convit), paper=82.1)


@claim(
    "CVT-33",
    "The accuracy of a ConViT depends less on the learning rate than that of a DeiT.",
    place="Section 3",
    reported="with the same change of learning rate and batch DeiT-B+ falls to 77.5 %, below DeiT-S+ with 79.0 %; "
    "ConViT-B+ has 82.5 %",
    study="convit",
    large=True,
)
def less_sensitive_to_the_rate(look: Look) -> Iterator[Part]:
    def spread(model: str) -> Measure:
        rates = beside([accuracy(look(model, rate=rate)) for rate in (0.5, None, 2.0)])
        return rates.most() - rates.least()

    convit, deit = spread("convit"), spread("deit")
    yield more(
        "range of accuracies over ½, 1 and 2 times the rate, DeiT minus ConViT, in points",
        deit - convit,
    )
    yield noted("range of ConViT, in points", convit)
    yield noted("range of DeiT, in points", deit)
