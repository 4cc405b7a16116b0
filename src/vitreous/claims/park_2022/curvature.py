"""Curvature and convexity of the loss, its landscape, and the trajectory of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from vitreous.claims.effects import Effect, at_most, less, more, noted
from vitreous.claims.evidence import Query, Rows, Unreadable, reads
from vitreous.claims.park_2022.book import check
from vitreous.claims.quantity import REPLICATES, Array
from vitreous.claims.readings import ape, nep

DECAY = 0.05
"""Factor of the sum of all norms in the landscapes that Park and Kim plot (A4.05)."""
FAR, NEAR = 0.8, 0.1
"""Radii at which landscapes are compared; at radius 1 every filter has moved by its own norm."""


@reads("landscape")
def rise(rows: Rows, radius: float, term: str = "") -> Array:
    """Mean rise of the NLL on a ring around the trained weights; infinite if a loss is not finite.

    `term` adds the rise of a penalty: "l2" that of ½ · decay · |w|², "norms" that of decay · Σ‖W‖,
    as in the paper (X-32).
    """
    rings = rows.where(part="ring")
    ring = rings.select(np.isclose(rings.numbers("radius"), radius))
    if not len(ring):
        raise Unreadable(
            f"landscape of {rows.item.name} has no ring of radius {radius:g}; 21 points have one"
        )
    total = ring.one()
    if term:
        total = total + {"l2": 1.0, "norms": DECAY}[term] * float(ring.numbers(term)[0])
    return np.where(np.isnan(total), np.inf, total)


@reads("landscape")
def highest(rows: Rows) -> Array:
    """Largest rise of the NLL on the grid; infinite if a loss is not finite."""
    points = rows.where(part="point").draws("rise")
    points = np.where(np.isnan(points), np.inf, points)
    return np.asarray(points[:, int(np.argmax(points[0]))])


@reads("landscape")
def worse_than_guessing(rows: Rows) -> Array:
    """Share of the grid's points whose loss is not finite, or not better than guessing."""
    return rows.where(measure="share of points worse than guessing").one()


@reads("trajectory")
def farthest(rows: Rows) -> Array:
    """Largest distance from the final weights, relative to that of the first checkpoint (A4.06)."""
    return _without_interval(np.nanmax(_checkpoint_numbers(rows, "distance")))


@reads("trajectory")
def turning(rows: Rows) -> Array:
    """Sum of the changes of direction of the weights, as seen from the end, in degrees."""
    angles = _checkpoint_numbers(rows, "angle")
    return _without_interval(np.abs(np.diff(angles[np.isfinite(angles)])).sum())


def _checkpoint_numbers(rows: Rows, column: str) -> Array:
    """A column of the checkpoints on the trajectory; raises if there are fewer than two."""
    numbers = rows.where(drawn=True).numbers(column)
    if np.isfinite(numbers).sum() < 2:
        raise Unreadable(
            f"trajectory of {rows.item.name} has fewer than two checkpoints before the end"
        )
    return numbers


def _without_interval(value: float) -> Array:
    return np.full(1 + REPLICATES, value)


@check("HDV-06")
def loss_is_not_convex_early(models: Query) -> Iterator[Effect]:
    """The claim is about early training in general. It is measured at the end of the warm-up, as in
    the paper."""
    vit, resnet = (nep(models(model, checkpoint="warmup")) for model in ("vit", "resnet"))
    yield more("share of negative eigenvalues, ViT minus ResNet", vit - resnet, paper=models.paper)


@check("HDV-07")
def less_data_is_less_convex(models: Query) -> Iterator[Effect]:
    """After as many epochs of warm-up, which are 156 steps of the paper's recipe: one of fewer than
    100 has hardly begun. A difference, because a ratio has no meaning where no eigenvalue is
    negative. As many steps instead of epochs are noted."""
    few, every = (nep(models("vit", fraction=share, checkpoint="warmup")) for share in (0.06, None))
    yield more(
        "share of negative eigenvalues with 6 % of the images minus that with all",
        few - every,
        paper=models.paper,
    )
    yield noted("ratio of the two shares", few / every, paper=3.6)
    steps = nep(models("vit", fraction=0.06, schedule="samples", checkpoint="warmup"))
    yield noted("share with 6 % after as many steps, minus that with all", steps - every)


@check("HDV-08")
def resnet_is_convex_on_little_data(models: Query) -> Iterator[Effect]:
    (resnet_few, resnet), (vit_few, vit) = (
        [nep(models(model, fraction=share, checkpoint="warmup")) for share in (0.06, None)]
        for model in ("resnet", "vit")
    )
    yield at_most(
        "share of negative eigenvalues of ResNet with 6 % of the images",
        resnet_few,
        0.02,
        paper=models.paper,
    )
    yield more(
        "rise of that share with less data, in ViT minus in ResNet",
        (vit_few - vit) - (resnet_few - resnet),
    )


@check("HDV-09")
def attention_flattens(models: Query) -> Iterator[Effect]:
    """The end of the warm-up decides, because the paper reports the same quantity there."""
    ratio = {
        at: ape(models("vit", checkpoint=at)) / ape(models("resnet", checkpoint=at))
        for at in ("warmup", "33", "66", None)
    }
    label = "mean positive eigenvalue of ViT over that of ResNet"
    yield less(f"{label}, at the end of warm-up", ratio["warmup"], 1.0, paper=models.paper)
    yield less(f"{label}, after a third of the training", ratio["33"], 1.0)
    yield less(f"{label}, after two thirds", ratio["66"], 1.0)
    yield less(f"{label}, at the end", ratio[None], 1.0, paper=0.5)


@check("HDV-10")
def training_sharpens(models: Query) -> Iterator[Effect]:
    """The direction decides: the paper reports modes of the spectra instead of means, so there is
    no number to compare with."""
    vit, resnet = models("vit"), models("resnet")
    early, early_resnet = models("vit", checkpoint="warmup"), models("resnet", checkpoint="warmup")
    label = "mean positive eigenvalue at the end over that after warm-up"
    yield more(f"{label}, of ViT", ape(vit) / ape(early), 1.0)
    yield more(f"{label}, of ResNet", ape(resnet) / ape(early_resnet), 1.0)
    yield less(
        "share of negative eigenvalues of ViT, at the end minus after warm-up",
        nep(vit) - nep(early),
        paper=-0.07,
    )


@check("HDV-11")
def landscape_is_flatter(models: Query) -> Iterator[Effect]:
    """The NLL decides, at the radius of the number in the published grid. The loss that the paper
    plots adds decay · Σ‖W‖, which may reverse the comparison, so it is a supporting effect. The
    usual L2 term is noted, and so is the rise close to the centre, where ViT is steeper in the
    paper."""
    vit, resnet = models("vit"), models("resnet")
    yield less(
        "rise of the NLL at radius 0.8, ViT over ResNet",
        rise(vit, FAR) / rise(resnet, FAR),
        1.0,
        paper=models.paper,
    )
    yield less(
        "share of the points worse than guessing or not finite, ViT minus ResNet",
        worse_than_guessing(vit) - worse_than_guessing(resnet),
        paper=-0.07,
    )
    plotted = rise(vit, FAR, "norms") / rise(resnet, FAR, "norms")
    yield less("rise of NLL and decay · Σ‖W‖ at radius 0.8, ViT over ResNet", plotted, 1.0)
    yield noted(
        "largest rise of the NLL on the grid, ViT over ResNet", highest(vit) / highest(resnet)
    )
    near = rise(vit, NEAR) / rise(resnet, NEAR)
    yield noted("rise of the NLL at radius 0.1, ViT over ResNet", near, paper=1.43)
    usual = rise(vit, FAR, "l2") / rise(resnet, FAR, "l2")
    yield noted("rise of NLL and ½ · decay · |w|² at radius 0.8, ViT over ResNet", usual)


@check("HDV-12")
def resnet_moves_away_first(models: Query) -> Iterator[Effect]:
    vit, resnet = models("vit"), models("resnet")
    label = "largest distance from the final weights over that of the first"
    yield more(f"{label}, of ResNet", farthest(resnet), 1.0, paper=models.paper)
    yield at_most(f"{label}, of ViT", farthest(vit), 1.05, paper=1.0)
    yield more(
        "total turning of ResNet minus that of ViT, in degrees", turning(resnet) - turning(vit)
    )
    yield noted(f"{label}, of a ResNet trained by SGD", farthest(models("resnet", optimiser="sgd")))


@check("HDV-21")
def stages_help_optimisation(models: Query) -> Iterator[Effect]:
    early = nep(models("pit", checkpoint="warmup")) - nep(models("vit", checkpoint="warmup"))
    yield less("share of negative eigenvalues after warm-up, PiT minus ViT", early)
    near = rise(models("pit"), NEAR) / rise(models("vit"), NEAR)
    yield less("rise of the NLL at radius 0.1, PiT over ViT", near, 1.0)


@check("HDV-22")
def windows_flatten(models: Query) -> Iterator[Effect]:
    """Size and sign are measured after the warm-up; "late" is the last third of the training. The
    direction decides, because the paper shows spectra without numbers. At scale `reproduction`
    windows have 2 x 2 patches; with the 4 x 4 of `small`, 8 of 12 blocks have global attention."""
    local = "window" if models.sanity else "swin"
    swin, vit = models(local, checkpoint="warmup"), models("vit", checkpoint="warmup")
    yield less("mean positive eigenvalue of Swin over that of ViT", ape(swin) / ape(vit), 1.0)
    yield more("share of negative eigenvalues of Swin", nep(swin))
    grown, grown_vit = (
        ape(models(model)) / ape(models(model, checkpoint="66")) for model in (local, "vit")
    )
    yield less(
        "growth of the mean positive eigenvalue in the last third, Swin over ViT",
        grown / grown_vit,
        1.0,
    )


@check("HDV-50")
def augmentation_flattens(models: Query) -> Iterator[Effect]:
    """After the warm-up, on the loss that each model is trained with. ViT decides."""
    augmented, plain = (models("vit", augment=kind, checkpoint="warmup") for kind in (None, "none"))
    label = "mean positive eigenvalue with augmentation over that without"
    yield less(f"{label}, of ViT", ape(augmented) / ape(plain), 1.0)
    yield more(
        "share of negative eigenvalues of ViT, with minus without", nep(augmented) - nep(plain)
    )
    resnet, resnet_plain = (
        models("resnet", augment=kind, checkpoint="warmup") for kind in (None, "none")
    )
    yield noted(f"{label}, of ResNet", ape(resnet) / ape(resnet_plain))


@check("HDV-51")
def clean_curvature_misleads(models: Query) -> Iterator[Effect]:
    """The factor by which ViT looks sharper, relative to ResNet, on clean images. A factor of two
    matters: it separates "flatter" from "sharper" in the literature that the paper disputes. The
    other half of the warning, leaving out L2, shifts every eigenvalue by the weight decay and is
    not measured."""
    augmented, clean = (
        ape(models("vit", measured=how)) / ape(models("resnet", measured=how))
        for how in (None, "clean")
    )
    yield more(
        "mean positive eigenvalue of ViT over that of ResNet, clean over augmented images",
        clean / augmented,
        1.0,
        matters=log(2.0),
    )
    yield noted("mean positive eigenvalue of ViT over that of ResNet, augmented images", augmented)
    yield noted("the same on clean images", clean)
