"""Test error and training loss of models with different inductive bias, on much and little data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_most, less, more, noted
from vitreous.claims.evidence import Query, Trainings
from vitreous.claims.park_2022.book import check
from vitreous.claims.quantity import REPLICATES, Array, Quantity, correlation, side_by_side
from vitreous.claims.readings import accuracy, calibration, error, train_nll

ORDER = ("resnet", "swin", "pit", "vit", "mixer")
"""From the strongest inductive bias to the weakest."""
SMALL_ORDER = ("resnet", "window", "vit", "mixer")
"""The same on two cores."""
STANDARD_ERRORS = 2.0
"""Distance beyond which two models differ."""


def bias_order(models: Query) -> list[Trainings]:
    return [models(model) for model in (SMALL_ORDER if models.sanity else ORDER)]


def _ordered_pairs(row: Quantity) -> Quantity:
    """For every pair of models 1 if the one of weaker bias has the larger number, else 0."""
    count = row.values.shape[-1] if row.known else 2
    first, second = np.triu_indices(count, 1)
    return row[second] > row[first]


def contradictions(errors: Quantity, losses: Quantity) -> Quantity:
    """Number of pairs of models of which one has the lower training loss and the higher test error.

    Both differences have to be larger than two standard errors.
    """

    def above(rows: Array) -> Array:
        """(models, models) whether the first is above the second."""
        gap = rows[:, :, None] - rows[:, None, :]
        return np.asarray(gap[0] > STANDARD_ERRORS * gap[1:].std(0), dtype=np.float64)

    counts = {
        seed: (above(errors.seeds[seed]) * above(losses.seeds[seed]).T).sum()
        for seed in errors.seeds
        if seed in losses.seeds
    }
    return Quantity({seed: np.full(1 + REPLICATES, count) for seed, count in counts.items()})


@check("HDV-01")
def bias_lowers_error(models: Query) -> Iterator[Effect]:
    """The gap between ViT and ResNet decides. Models in between have different patch sizes, so
    their order may vary.

    With ten classes errors are smaller, and a gap of two points matters.
    """
    gap = error(models("vit")) - error(models("resnet"))
    yield more(
        "error of ViT minus that of ResNet, in points",
        gap,
        paper=models.paper,
        matters=2.0,
    )
    errors = side_by_side([error(network) for network in bias_order(models)])
    yield more(
        "share of the pairs of models whose errors have the paper's order",
        _ordered_pairs(errors).mean(),
        0.5,
        paper=1.0,
    )


@check("HDV-02")
def error_follows_training_loss(models: Query) -> Iterator[Effect]:
    errors, losses = _errors_and_losses(models)
    yield more(
        "correlation of test error and training loss over models",
        correlation(errors, losses),
        paper=models.paper,
    )
    yield at_most(
        "pairs of models of which one has less training loss and more error, by two standard "
        "errors",
        contradictions(errors, losses),
        0,
        paper=0,
    )


def _errors_and_losses(models: Query) -> tuple[Quantity, Quantity]:
    networks = bias_order(models)
    errors = side_by_side([error(network) for network in networks])
    return errors, side_by_side([train_nll(network) for network in networks])


@check("HDV-03")
def same_on_other_data(models: Query) -> Iterator[Effect]:
    """On real images the first half of the sentence decides. The second half is about ImageNet.
    SYN-E, of which any number of images can be generated, is an analogue of it; that decides only
    on two cores."""
    few = 0.05 if models.sanity else 0.1
    small, large = (
        error(models("vit", data="SYN-E", fraction=part))
        - error(models("resnet", data="SYN-E", fraction=part))
        for part in (few, None)
    )
    lost = small - large
    label = f"points of ViT's lag behind ResNet that {1 / few:g} times the images of SYN-E remove"
    if models.sanity:
        yield more(label, lost)
    else:
        yield more(
            "correlation of test error and training loss over models",
            correlation(*_errors_and_losses(models)),
            matters=0.8,
        )
        yield noted(label, lost)
    yield noted("the lag with few images, in points", small)
    yield noted("the lag with all images, in points", large)


@check("HDV-04")
def small_data_is_not_overfitted(models: Query) -> Iterator[Effect]:
    """The comparison with the same number of samples in total decides. In the paper's comparison,
    with the same number of epochs, fewer images also mean fewer steps, which alone raises the
    training loss; it is a supporting effect."""
    shares = (None, 0.2, 0.04) if models.sanity else (None, 0.3, 0.1, 0.02)
    networks = [models("vit", fraction=share) for share in shares]
    errors = side_by_side([error(network) for network in networks])
    losses = side_by_side([train_nll(network) for network in networks])
    same_samples = train_nll(models("vit", fraction=shares[-1], schedule="samples"))
    yield more(
        "training loss with the smallest share of the images minus that with all, as many seen",
        same_samples - losses[0],
    )
    yield more(
        "the same after as many epochs",
        losses[-1] - losses[0],
        matters=0.1,
    )
    yield more(
        "test error with the smallest share minus that with all, as many epochs, in points",
        errors[-1] - errors[0],
    )


@check("HDV-05")
def longer_training_does_not_help(models: Query) -> Iterator[Effect]:
    """Small data are all images of a dataset with many classes, or a fifth of one with ten. One
    point matters."""
    share = 0.2 if models.scale == "ten" else None
    resnet = error(models("resnet", fraction=share))
    longer = error(models("vit", fraction=share, epochs=4)) - resnet
    yield more(
        "error of ViT after four times the epochs minus that of ResNet, in points",
        longer,
        matters=1.0,
    )
    yield noted("the same after as many epochs", error(models("vit", fraction=share)) - resnet)


@check("HDV-49")
def augmentation_makes_underconfident(models: Query) -> Iterator[Effect]:
    gaps = {
        (model, kind): calibration(models(model, augment=kind), "signed ECE")
        for model in ("vit", "resnet")
        for kind in ("none", None)
    }
    yield more(
        "confidence minus accuracy of ViT, without augmentation minus with",
        gaps["vit", "none"] - gaps["vit", None],
    )
    for model, name in (("vit", "ViT"), ("resnet", "ResNet")):
        yield more(f"confidence minus accuracy of {name} without augmentation", gaps[model, "none"])
        yield less(f"confidence minus accuracy of {name} with augmentation", gaps[model, None])


@check("HDV-18")
def dependence_on_the_image_matters(models: Query) -> Iterator[Effect]:
    """Compared with Mixer, and with the ViT under two restrictions: attention that is the same for
    all images, and attention within 5 × 5 tokens. Both are trained so, with mean pooling."""
    mixer, vit = models("mixer"), models("vit")
    yield more(
        "error of Mixer minus that of ViT, in points",
        error(mixer) - error(vit),
        paper=models.paper,
    )
    plain = accuracy(models("vit", pool="gap"))
    agnostic = plain - accuracy(models("vit", pool="gap", mixer="mean"))
    near = plain - accuracy(models("vit", kernel=5))
    yield more(
        "points lost by attention that is the same for all images, minus those lost within 5 × 5",
        agnostic - near,
    )
    yield noted("points lost by attention that is the same for all images", agnostic)
    yield noted(
        "training loss of Mixer minus that of ViT", train_nll(mixer) - train_nll(vit), paper=0.047
    )
