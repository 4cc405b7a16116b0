"""How well models of different inductive bias learn, from much and from little, and whether they overfit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Look, Seen
from vitreous.claims.measure import DRAWS, Array, Measure, beside, correlation, spearman
from vitreous.claims.park_2022.book import claim
from vitreous.claims.readings import accuracy, calibration, error, train_nll

ORDER = ("resnet", "swin", "pit", "vit", "mixer")
"""From the strongest inductive bias to the weakest."""
SMALL_ORDER = ("resnet", "window", "vit", "mixer")
"""The same on two cores."""
SURE = 2.0
"""Standard errors beyond which two models differ."""


def bias_order(look: Look) -> list[Seen]:
    return [look(model) for model in (SMALL_ORDER if look.sanity else ORDER)]


def contradictions(errors: Measure, losses: Measure) -> Measure:
    """Number of pairs of models of which one surely has the lower training loss and surely the higher test error."""

    def above(rows: Array) -> Array:
        """(models, models): whether the one is above the other, beyond doubt."""
        gap = rows[:, :, None] - rows[:, None, :]
        return np.asarray(gap[0] > SURE * gap[1:].std(0), dtype=np.float64)

    shared = [seed for seed in errors.seeds if seed in losses.seeds]
    counts = {
        seed: (above(errors.seeds[seed]) * above(losses.seeds[seed]).T).sum() for seed in shared
    }
    return Measure({seed: np.full(1 + DRAWS, count) for seed, count in counts.items()})


@claim(
    "HDV-01",
    "The stronger the inductive bias of an architecture, the lower its test error on a small data set.",
    place="Fig. 5a",
    reported="error on CIFAR-100: ResNet 17.3, Swin 23.3, PiT 24.0, ViT 33.5, Mixer 35.4 %",
    study="zoo",
    task="SYN-B",
)
def bias_lowers_error(look: Look) -> Iterator[Part]:
    errors = beside([error(model) for model in bias_order(look)])
    gap = error(look("vit")) - error(look("resnet"))
    yield at_least(
        "error of ViT minus that of ResNet, in points", gap, look.at(5.0, ten=2.0), paper=16.2
    )
    ranks = range(len(bias_order(look)))
    yield at_least(
        "rank correlation of weakness of bias and error, over models",
        spearman(ranks, errors),
        0.9,
        1.0,
    )


@claim(
    "HDV-02",
    "Models with a lower test error also have a lower training loss, so a weak inductive bias is a problem of "
    "optimisation and not of overfitting.",
    place="Fig. 5a",
    reported="NLL on augmented training images: ResNet 2.09, Swin 2.23, PiT 2.30, ViT 2.52, Mixer 2.57; correlation "
    "with the test error 0.992 over seven models",
    study="zoo",
    task="SYN-B",
)
def error_follows_training_loss(look: Look) -> Iterator[Part]:
    errors, losses = _errors_and_losses(look)
    together = correlation(errors, losses)
    yield at_least(
        "correlation of test error and training loss over models", together, 0.9, paper=0.992
    )
    against = contradictions(errors, losses)
    yield at_most(
        "pairs of models of which one has less training loss and more error for sure",
        against,
        0,
        paper=0,
    )


def _errors_and_losses(look: Look) -> tuple[Measure, Measure]:
    models = bias_order(look)
    return beside([error(model) for model in models]), beside(
        [train_nll(model) for model in models]
    )


@claim(
    "HDV-03",
    "On other data, too, the test error follows the training loss; with much more data the lead of CNNs over ViTs "
    "goes away.",
    place="Fig. C.1",
    reported="the same picture on CIFAR-10; on ImageNet the error follows the training loss, but CNNs are not the best",
    study="zoo",
    sanity=True,
    large=True,
)
def same_on_other_data(look: Look) -> Iterator[Part]:
    """More data is SYN-E, of which there is as much as one likes; the first part is about real images only."""
    if not look.sanity:
        together = correlation(*_errors_and_losses(look))
        yield at_least("correlation of test error and training loss over models", together, 0.8)
    few = 0.05 if look.sanity else 0.1
    small, large = (
        error(look("vit", data="SYN-E", fraction=part))
        - error(look("resnet", data="SYN-E", fraction=part))
        for part in (few, None)
    )
    yield more("error of ViT minus that of ResNet with few images of SYN-E, in points", small)
    lost = small * 0.5 - large
    yield at_least(
        f"by how much that gap falls below its half with {1 / few:g} times the images", lost, 0.0
    )
    yield noted("the gap with all images, in points", large)


@claim(
    "HDV-04",
    "A ViT does not overfit a small data set: with fewer training images its test error rises, and its training loss "
    "rises too.",
    place="Fig. 5b",
    reported="both curves rise steadily from 100 % of CIFAR-100 down to 2 %, with full augmentation",
    study="data",
    task="SYN-E",
)
def small_data_is_not_overfitted(look: Look) -> Iterator[Part]:
    """As many epochs for every share, as in the paper. With as many images in all the training loss may fall, which
    would make it a matter of the schedule; that is noted."""
    shares = (None, 0.2, 0.04) if look.sanity else (None, 0.3, 0.1, 0.02)
    models = [look("vit", fraction=share) for share in shares]
    errors, losses = (
        beside([error(each) for each in models]),
        beside([train_nll(each) for each in models]),
    )
    yield more(
        "smallest rise of the error from one share of the images to the next, in points",
        _steps(errors).least(),
    )
    yield more(
        "smallest rise of the training loss from one share to the next", _steps(losses).least()
    )
    yield at_least(
        "training loss with the smallest share minus that with all images",
        losses[-1] - losses[0],
        0.1,
    )
    same_samples = train_nll(look("vit", fraction=shares[-1], schedule="samples"))
    yield noted("the same where both see as many images in all", same_samples - losses[0])


def _steps(row: Measure) -> Measure:
    return row[1:] - row[:-1]


@claim(
    "HDV-05",
    "On small data a ViT that is trained several times as long still does not catch up with a ResNet.",
    place="Fig. C.3",
    reported="with more epochs the ViT stays behind the ResNet",
    study="data",
    task="SYN-B",
)
def longer_training_does_not_help(look: Look) -> Iterator[Part]:
    """Small data: all images where there are many classes, a fifth where there are ten."""
    share = 0.2 if look.scale == "ten" else None
    resnet = error(look("resnet", fraction=share))
    longer = error(look("vit", fraction=share, epochs=4)) - resnet
    yield at_least(
        "error of ViT after four times the epochs minus that of ResNet, in points", longer, 1.0
    )
    yield noted("the same after as many epochs", error(look("vit", fraction=share)) - resnet)


@claim(
    "HDV-49",
    "Without strong augmentation models are over-confident, with it they are under-confident.",
    place="App. E",
    reported="reliability diagrams of ResNet and ViT on CIFAR-100",
    study="sweeps",
    task="SYN-B",
)
def augmentation_makes_underconfident(look: Look) -> Iterator[Part]:
    for model, name in (("resnet", "ResNet"), ("vit", "ViT")):
        plain, augmented = (
            calibration(look(model, augment=kind), "signed ECE") for kind in ("none", None)
        )
        yield more(f"confidence minus accuracy of {name} without augmentation", plain)
        yield less(f"confidence minus accuracy of {name} with augmentation", augmented)


@claim(
    "HDV-18",
    "What matters is that attention depends on the image, not how far it reaches: mixing over all tokens alike for all "
    "images does worse.",
    place="Fig. 5a, Sec. 2",
    reported="error of Mixer 35.4 against 33.5 % of ViT, training loss 2.57 against 2.52",
    study="zoo",
    task="SYN-B",
)
def dependence_on_the_image_matters(look: Look) -> Iterator[Part]:
    """Beside Mixer, the same network with two restrictions, each trained: attention that knows no image, and
    attention within 5 × 5 tokens. Both are pooled by the mean."""
    mixer, vit = look("mixer"), look("vit")
    yield more("error of Mixer minus that of ViT, in points", error(mixer) - error(vit), paper=1.9)
    whole = accuracy(look("vit", pool="gap"))
    agnostic = whole - accuracy(look("vit", pool="gap", mixer="mean"))
    near = whole - accuracy(look("vit", kernel=5))
    further = agnostic - near
    yield more(
        "points lost by attention that knows no image, less those lost by attention within 5 × 5",
        further,
    )
    yield noted("points lost by attention that knows no image", agnostic)
    yield noted(
        "training loss of Mixer minus that of ViT", train_nll(mixer) - train_nll(vit), paper=0.047
    )
