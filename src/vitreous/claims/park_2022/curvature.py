"""How sharp the loss is, where it is not convex, and how the weights move through it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, no_less, noted
from vitreous.claims.evidence import Look, Rows, Unreadable, reads
from vitreous.claims.measure import DRAWS, Array, beside
from vitreous.claims.park_2022.book import claim
from vitreous.claims.readings import ape, nep

DECAY = 0.05
"""By which Park and Kim multiply the sum of all norms in the landscapes that they plot (A4.05)."""
FAR, NEAR = 0.8, 0.1
"""Radii at which landscapes are compared; at 1 every filter has moved by its own length."""


@reads("landscape")
def rise(rows: Rows, radius: float, term: str = "") -> Array:
    """Mean rise of the NLL on a ring around the trained weights, in which a loss that is not finite is infinite. With
    `l2` that of ½ · decay · |w|² is added, with `norms` that of decay · Σ‖W‖, as the paper has it (X-32)."""
    rings = rows.where(part="ring")
    ring = Rows(
        rings.exhibit,
        rings.result,
        rings.table[np.isclose(rings.table["radius"].astype(float), radius)],
    )
    if ring.table.empty:
        raise Unreadable(
            f"landscape of {rows.exhibit.name} has no ring of radius {radius:g}; 21 points have one"
        )
    found = ring.one()
    if term:
        found = found + {"l2": 1.0, "norms": DECAY}[term] * float(ring.table[term].iloc[0])
    return np.where(np.isnan(found), np.inf, found)


@reads("landscape")
def highest(rows: Rows) -> Array:
    """Rise of the NLL at the point of the grid where it is largest; infinite if it is not finite somewhere."""
    points = rows.where(part="point").draws("rise")
    points = np.where(np.isnan(points), np.inf, points)
    return np.asarray(points[:, int(np.argmax(points[0]))])


@reads("landscape")
def worse_than_guessing(rows: Rows) -> Array:
    """Share of the points of the grid whose loss is that of guessing or worse, or not finite."""
    return rows.where(measure="share of points worse than guessing").one()


@reads("trajectory")
def farthest(rows: Rows) -> Array:
    """Largest distance from the final weights, relative to that of the first moment (A4.06)."""
    return _exact(np.nanmax(_way(rows, "distance")))


@reads("trajectory")
def turning(rows: Rows) -> Array:
    """How much the weights turn, seen from the end, in degrees added up from moment to moment."""
    angles = _way(rows, "angle")
    return _exact(np.abs(np.diff(angles[np.isfinite(angles)])).sum())


def _way(rows: Rows, column: str) -> Array:
    moments = rows.where(part="moment").table
    if np.isfinite(moments[column].to_numpy(dtype=np.float64)).sum() < 2:
        raise Unreadable(
            f"trajectory of {rows.exhibit.name} has fewer than two moments before the end"
        )
    return moments[column].to_numpy(dtype=np.float64)


def _exact(value: float) -> Array:
    return np.full(1 + DRAWS, value)


@claim(
    "HDV-06",
    "Early in training the loss of a ViT is not convex: many of its largest Hessian eigenvalues are negative; almost "
    "none of a ResNet's are.",
    place="Fig. 1c, 4",
    reported="at the end of warm-up 7 % of the eigenvalues of ViT are negative, 0 % of ResNet's",
    study="zoo",
    task="SYN-E",
)
def loss_is_not_convex_early(look: Look) -> Iterator[Part]:
    vit, resnet = (nep(look(model, moment="warmup")) for model in ("vit", "resnet"))
    yield at_least(
        "share of negative eigenvalues, ViT minus ResNet", vit - resnet, 0.02, paper=0.07
    )


@claim(
    "HDV-07",
    "With fewer training images more of the largest Hessian eigenvalues of a ViT are negative early in training.",
    place="Fig. 4",
    reported="26 % negative eigenvalues with 6 % of the images, 7 % with all",
    study="data",
    task="SYN-E",
)
def less_data_is_less_convex(look: Look) -> Iterator[Part]:
    """After as many epochs of warm-up. A ratio has no meaning where no eigenvalue is negative, so what is judged is
    by how much the one exceeds one and a half times the other."""
    few, every = (nep(look("vit", fraction=share, moment="warmup")) for share in (0.06, None))
    exceeds = few - every * 1.5
    yield more(
        "share of negative eigenvalues with 6 % of the images minus 1.5 times that with all",
        exceeds,
        0,
        0.155,
    )
    yield noted("ratio of the two shares", few / every, paper=3.6)
    steps = nep(look("vit", fraction=0.06, schedule="samples", moment="warmup"))
    yield noted("share with 6 % after as many steps, minus that with all", steps - every)


@claim(
    "HDV-08",
    "A ResNet's loss is convex early in training even on little data; more data changes less for it than for a ViT.",
    place="Fig. 4, text",
    reported="almost no negative eigenvalues of ResNet whatever the size of the data",
    study="data",
    task="SYN-E",
)
def resnet_is_convex_on_little_data(look: Look) -> Iterator[Part]:
    (resnet_few, resnet), (vit_few, vit) = (
        [nep(look(model, fraction=share, moment="warmup")) for share in (0.06, None)]
        for model in ("resnet", "vit")
    )
    yield at_most(
        "share of negative eigenvalues of ResNet with 6 % of the images", resnet_few, 0.02, paper=0
    )
    change = (resnet_few - resnet).map(np.abs)
    yield more(
        "rise of that share with less data in ViT minus its change in ResNet",
        vit_few - vit - change,
    )


@claim(
    "HDV-09",
    "Attention flattens the loss: the largest Hessian eigenvalues of a ViT are smaller than those of a ResNet, all "
    "through training.",
    place="Fig. 1c",
    reported="mean positive eigenvalue 83 against 485 at the end of warm-up; about half of ResNet's at the end",
    study="zoo",
    task="SYN-E",
)
def attention_flattens(look: Look) -> Iterator[Part]:
    ratio = {
        moment: ape(look("vit", moment=moment)) / ape(look("resnet", moment=moment))
        for moment in ("warmup", "33", "66", None)
    }
    says = "mean positive eigenvalue of ViT relative to that of ResNet"
    yield at_most(f"{says}, at the end of warm-up", ratio["warmup"], 0.7, paper=0.17, versus=1.0)
    yield less(f"{says}, after a third of the training", ratio["33"], 1.0)
    yield less(f"{says}, after two thirds", ratio["66"], 1.0)
    yield less(f"{says}, at the end", ratio[None], 1.0, paper=0.5)


@claim(
    "HDV-10",
    "In training the loss sharpens, of ViT as of ResNet, and the negative eigenvalues of ViT fade.",
    place="Fig. 1c",
    reported="typical positive eigenvalue from 36 to 430 (ViT) and from 290 to 850 (ResNet); in the end ViT has hardly "
    "any negative ones",
    study="zoo",
    task="SYN-E",
)
def training_sharpens(look: Look) -> Iterator[Part]:
    vit, resnet = look("vit"), look("resnet")
    early, early_resnet = look("vit", moment="warmup"), look("resnet", moment="warmup")
    says = "mean positive eigenvalue at the end relative to that after warm-up"
    yield at_least(f"{says}, of ViT", ape(vit) / ape(early), 2.0, paper=11.9, versus=1.0)
    yield at_least(
        f"{says}, of ResNet", ape(resnet) / ape(early_resnet), 2.0, paper=2.9, versus=1.0
    )
    yield less(
        "share of negative eigenvalues of ViT, at the end minus after warm-up",
        nep(vit) - nep(early),
        0,
        -0.07,
    )


@claim(
    "HDV-11",
    "The loss landscape of a ViT is flatter than that of a ResNet, most visibly far from the trained weights.",
    place="Fig. 1a",
    reported="rise of the NLL at radius 0.2, 0.5 and 0.8: ResNet 0.95, 3.38, 5.47, ViT 0.75, 2.18, 2.56; 31 of 441 "
    "points of ResNet are not finite, none of ViT; but at radius 0.1 ViT rises by 0.30 and ResNet by 0.21",
    study="zoo",
    task="SYN-E",
)
def landscape_is_flatter(look: Look) -> Iterator[Part]:
    """The NLL decides. Both ways of adding L2 are noted, and so is what happens close to the centre (X-04, X-32)."""
    vit, resnet = look("vit"), look("resnet")
    far = rise(vit, FAR) / rise(resnet, FAR)
    yield less(
        "largest rise of the NLL on the grid, ViT relative to ResNet",
        highest(vit) / highest(resnet),
        1.0,
    )
    yield at_most(
        "rise of the NLL at radius 0.8, ViT relative to ResNet", far, 0.6, paper=0.47, versus=1.0
    )
    guessing = worse_than_guessing(vit) - worse_than_guessing(resnet)
    yield less("share of the points worse than guessing or not finite, ViT minus ResNet", guessing)
    yield noted(
        "rise at radius 0.1, ViT relative to ResNet",
        rise(vit, NEAR) / rise(resnet, NEAR),
        paper=1.43,
    )
    for term, called in (("l2", "½ · decay · |w|²"), ("norms", "decay · Σ‖W‖")):
        both = rise(vit, FAR, term) / rise(resnet, FAR, term)
        yield noted(f"rise of NLL and {called} at radius 0.8, ViT relative to ResNet", both)


@claim(
    "HDV-12",
    "The weights of a ViT move smoothly towards where they end; those of a ResNet move away first and turn more.",
    place="Fig. 1b of the first version",
    reported="largest relative distance from the final weights 1.5 for ResNet and 1.0 for ViT",
    study="zoo",
    task="SYN-E",
    withdrawn="by the authors themselves, because they could not reproduce it (issue 13 of their code, X-05); it is "
    "not in the final paper",
)
def resnet_moves_away_first(look: Look) -> Iterator[Part]:
    vit, resnet = look("vit"), look("resnet")
    says = "largest distance from the final weights relative to that of the first"
    yield at_least(f"{says}, of ResNet", farthest(resnet), 1.2, paper=1.5, versus=1.0)
    yield at_most(f"{says}, of ViT", farthest(vit), 1.05, paper=1.0)
    yield more(
        "total turning of ResNet minus that of ViT, in degrees", turning(resnet) - turning(vit)
    )
    yield noted(f"{says}, of a ResNet trained by SGD", farthest(look("resnet", optimiser="sgd")))


@claim(
    "HDV-21",
    "Several stages, as PiT has them, suppress negative eigenvalues early and make the loss flatter near the trained "
    "weights than a ViT's.",
    place="Fig. C.4",
    reported="spectra and landscapes of PiT and ViT",
    study="zoo",
    task="SYN-E",
)
def stages_help_optimisation(look: Look) -> Iterator[Part]:
    early = nep(look("pit", moment="warmup")) - nep(look("vit", moment="warmup"))
    yield less("share of negative eigenvalues after warm-up, PiT minus ViT", early)
    near = rise(look("pit"), NEAR) - rise(look("vit"), NEAR)
    yield less("rise of the NLL at radius 0.1, PiT minus ViT", near)


@claim(
    "HDV-22",
    "Attention within windows, as in Swin, causes negative eigenvalues but makes all of them much smaller, and they "
    "hardly grow late in training.",
    place="Fig. C.4b",
    reported="spectra of Swin and ViT",
    study="zoo",
    task="SYN-E",
)
def windows_flatten(look: Look) -> Iterator[Part]:
    """Size and sign are those after warm-up; late is the last third of the training."""
    local = "window" if look.sanity else "swin"
    swin, vit = look(local, moment="warmup"), look("vit", moment="warmup")
    yield at_most(
        "mean positive eigenvalue of Swin relative to that of ViT",
        ape(swin) / ape(vit),
        0.7,
        versus=1.0,
    )
    yield more("share of negative eigenvalues of Swin", nep(swin))
    grown, grown_vit = (
        ape(look(model)) / ape(look(model, moment="66")) for model in (local, "vit")
    )
    yield less(
        "growth of the mean positive eigenvalue in the last third, Swin minus ViT",
        grown - grown_vit,
    )


@claim(
    "HDV-50",
    "Augmentation makes the largest Hessian eigenvalues smaller and more of them negative.",
    place="App. E",
    reported="spectra with and without augmentation, each on the loss of its own training",
    study="sweeps",
    task="SYN-E",
)
def augmentation_flattens(look: Look) -> Iterator[Part]:
    """After warm-up, on the loss that each is trained on. ViT decides."""
    augmented, plain = (look("vit", augment=kind, moment="warmup") for kind in (None, "none"))
    says = "mean positive eigenvalue with augmentation relative to that without"
    yield at_most(f"{says}, of ViT", ape(augmented) / ape(plain), 0.8, versus=1.0)
    yield no_less(
        "share of negative eigenvalues of ViT, with minus without", nep(augmented) - nep(plain)
    )
    resnet, resnet_plain = (
        look("resnet", augment=kind, moment="warmup") for kind in (None, "none")
    )
    yield noted(f"{says}, of ResNet", ape(resnet) / ape(resnet_plain))


@claim(
    "HDV-51",
    "Curvature that is measured on clean images misleads about the loss that was trained on: it compares a ViT with a "
    "ResNet differently.",
    place="App. A",
    reported="a warning without numbers; Chen et al. (2022), on clean images, find ViT sharper than ResNet",
    study="zoo",
    task="SYN-E",
)
def clean_curvature_misleads(look: Look) -> Iterator[Part]:
    """The order of the two changes, or their ratio changes to its double or its half."""
    augmented, clean = (
        ape(look("vit", measured=how)) / ape(look("resnet", measured=how))
        for how in (None, "clean")
    )
    changed = beside([augmented, clean]).map(_judged_differently)
    yield at_least(
        "whether clean images change the order of ViT and ResNet, or their ratio twofold",
        changed,
        1.0,
    )
    yield noted(
        "mean positive eigenvalue of ViT relative to that of ResNet, augmented images", augmented
    )
    yield noted("the same on clean images", clean)


def _judged_differently(ratios: Array) -> float:
    one, other = ratios
    return float((one < 1) != (other < 1) or max(one / other, other / one) >= 2)
