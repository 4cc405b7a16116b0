"""Attention as spatial smoothing: blur, pooling and neighbourhoods in its place, and what it is said to be good for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, no_less
from vitreous.claims.evidence import Look, Rows, reads
from vitreous.claims.measure import Array
from vitreous.claims.park_2022.book import claim
from vitreous.claims.park_2022.units import POINTS
from vitreous.claims.readings import accuracy, ape, calibration, error, identity, robustness

MUCH = 5.0
"""Points that are much more, where a claim says no number."""


@claim(
    "HDV-52",
    "A 2 × 2 blur before each sub-sampling improves the accuracy, uncertainty and robustness of a CNN and flattens its "
    "loss; it is best at the end of stages.",
    place="App. B",
    reported="+1.0 points on ImageNet; two samples of MC dropout as good as 50 without blur",
    study="sweeps",
    task="SYN-A",
)
def blur_improves_cnns(look: Look) -> Iterator[Part]:
    """The CNN is the pre-activation ResNet that AlterNet is made from, with blur and without; nothing else differs."""
    without = "0,0,0" if look.sanity else "0,0,0,0"
    plain, end, start = (
        look("alternet", msas=without, blur=where) for where in (None, "end", "start")
    )
    gain = accuracy(end) - accuracy(plain)
    yield at_least("accuracy with blur minus that without, in points", gain, 0.3, paper=1.0)
    for measure in ("NLL", "ECE"):
        change = calibration(end, measure) - calibration(plain, measure)
        yield less(f"{measure} with blur minus that without", change)
    corrupted = robustness(end) - robustness(plain)
    yield more("accuracy under corruption with blur minus that without, in points", corrupted)
    yield less(
        "mean positive eigenvalue with blur over that without", ape(end) / ape(plain), than=1.0
    )
    place = accuracy(end) - accuracy(start)
    yield no_less(
        "accuracy with blur at the end of stages minus that with it at their beginning, in points",
        place,
    )


@claim(
    "HDV-53",
    "Average pooling, which has nothing to learn, can stand in for attention.",
    place="Sec. 1.1",
    reported="PoolFormer reaches 77 to 82 % on ImageNet",
    study="sweeps",
    task="SYN-B",
)
def pooling_can_replace_attention(look: Look) -> Iterator[Part]:
    """Much better than no mixing of tokens at all: by five points or more."""
    attention, pool, none = (
        accuracy(look("vit", pool="gap", mixer=kind)) for kind in (None, "pool", "identity")
    )
    yield at_least(
        "accuracy with pooling minus that with attention, in points", pool - attention, -3.0
    )
    yield at_least(
        "accuracy with pooling minus that without any mixing, in points", pool - none, MUCH
    )


@reads("occlusion")
def occluded(rows: Rows) -> Array:
    """Mean accuracy over grids and shares of masked patches, in percent."""
    return POINTS * rows.where(overall=True).one()


@reads("adversarial")
def attacked(rows: Rows, attack: str = "fgsm") -> Array:
    """Mean accuracy over the radii of an attack, in percent."""
    tried = rows.where(attack=attack, attacked=True)
    moved = tried.table[tried.table["epsilon"] > 0]
    return np.asarray(POINTS * Rows(tried.exhibit, tried.result, moved).draws().mean(1))


@claim(
    "HDV-54",
    "ViTs are well calibrated, and robust to corruption, occlusion and adversarial noise.",
    place="Sec. 1.1",
    reported="cited from the literature",
    study="zoo",
)
def vits_are_robust(look: Look) -> Iterator[Part]:
    """By sign alone, against ResNet. Accuracies without disturbance differ, so what is compared is the share of it
    that is left. That attention near the end helps most is HDV-43 and HDV-58."""
    vit, resnet = look("vit"), look("resnet")
    yield less(
        "ECE of ViT minus that of ResNet", calibration(vit, "ECE") - calibration(resnet, "ECE")
    )
    for reading, what in ((robustness, "corruption"), (occluded, "occlusion"), (attacked, "FGSM")):
        kept = reading(vit) / accuracy(vit) - reading(resnet) / accuracy(resnet)
        yield more(f"share of the accuracy that {what} leaves, ViT minus ResNet", kept)


@claim(
    "HDV-55",
    "Self-attention has the formula of an ensemble over neighbouring data points, and a 2 × 2 blur is attention with "
    "equal weights.",
    place="Eq. 1, 2",
    reported="an identity",
    study="identities",
    sanity=True,
)
def attention_is_an_ensemble(look: Look) -> Iterator[Part]:
    """In float64, seed 0.

    attention_as_ensemble_difference   scaled dot-product attention of the package's own ViT (one head, 64 tokens, 32
                                       channels, Q, K, V standard normal) against Σᵢ π(xᵢ|xⱼ) p(zⱼ|xᵢ), a loop over
                                       j and i with π(xᵢ|xⱼ) = exp(qⱼ·kᵢ/√32) / Σₘ exp(qⱼ·kₘ/√32) and p = V:
                                       largest absolute difference
    blur_as_attention_difference       2 × 2 average pooling, stride 1, no padding, of 4 maps of 8 × 8 with 16
                                       channels, against A V with V the 64 tokens of the map and A of 49 × 64 with
                                       1/4 at the four tokens of each window: largest absolute difference
    """
    exact = look("identities")
    ensemble = identity(exact, "attention_as_ensemble_difference")
    yield at_most(
        "largest difference between attention and the ensemble over data points", ensemble, 1e-6
    )
    blur = identity(exact, "blur_as_attention_difference")
    yield at_most(
        "largest difference between a 2 × 2 blur and attention with weights of 1/4", blur, 1e-6
    )


@claim(
    "HDV-56",
    "Local attention is better than global attention.",
    place="Sec. 1.1",
    reported="error on CIFAR-100: Swin 23.3, ViT 33.5 %",
    study="zoo",
    task="SYN-B",
)
def local_beats_global(look: Look) -> Iterator[Part]:
    """Swin has stages as well; the second part, as HDV-15, changes nothing but the reach."""
    local = look("window" if look.sanity else "swin")
    lower = error(look("vit")) - error(local)
    yield at_least(
        "error of ViT minus that of local attention in stages, in points", lower, 3.0, paper=10.2
    )
    alone = error(look("vit", pool="gap")) - error(look("vit", kernel=5))
    yield more(
        "error of global attention minus that of 5 × 5 neighbourhoods, in points", alone, paper=0.89
    )
