"""Attention as spatial smoothing: blur, pooling and neighbourhoods instead of attention, and the
benefits claimed for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Query, Rows, reads
from vitreous.claims.park_2022.book import check
from vitreous.claims.park_2022.units import POINTS
from vitreous.claims.quantity import Array
from vitreous.claims.readings import accuracy, ape, calibration, error, identity, robustness


@check("HDV-52")
def blur_improves_cnns(models: Query) -> Iterator[Effect]:
    """The CNN is the pre-activation ResNet of AlterNet, with and without blur; nothing else
    differs. The paper's one point is for ImageNet; here 0.3 points matter. Calibration is only
    noted, because strong augmentation dominates it."""
    without = "0,0,0" if models.sanity else "0,0,0,0"
    plain, end, start = (
        models("alternet", msas=without, blur=where) for where in (None, "end", "start")
    )
    yield more(
        "accuracy with blur minus that without, in points",
        accuracy(end) - accuracy(plain),
        matters=0.3,
    )
    yield more(
        "accuracy under corruption with blur minus that without, in points",
        robustness(end) - robustness(plain),
    )
    yield less(
        "NLL with blur minus that without", calibration(end, "NLL") - calibration(plain, "NLL")
    )
    yield less("mean positive eigenvalue with blur over that without", ape(end) / ape(plain), 1.0)
    yield more(
        "accuracy with blur at the end of stages minus that at their beginning, in points",
        accuracy(end) - accuracy(start),
    )
    yield noted(
        "ECE with blur minus that without", calibration(end, "ECE") - calibration(plain, "ECE")
    )


@check("HDV-53")
def pooling_can_replace_attention(models: Query) -> Iterator[Effect]:
    """At most three points worse than attention, and at least five points better than no mixing of
    tokens."""
    attention, pool, none = (
        accuracy(models("vit", pool="gap", mixer=kind)) for kind in (None, "pool", "identity")
    )
    yield at_least(
        "accuracy with pooling minus that with attention, in points", pool - attention, -3.0
    )
    yield more(
        "accuracy with pooling minus that without any mixing, in points", pool - none, matters=5.0
    )


@reads("occlusion")
def occluded(rows: Rows) -> Array:
    """Mean accuracy over grids and shares of masked patches, in percent."""
    return POINTS * rows.where(overall=True).one()


@reads("adversarial")
def attacked(rows: Rows, attack: str = "fgsm") -> Array:
    """Mean accuracy over the radii of an attack, in percent."""
    tried = rows.where(attack=attack, attacked=True)
    moved = tried.select(tried.numbers("epsilon") > 0)
    return np.asarray(POINTS * moved.draws().mean(1))


@check("HDV-54")
def vits_are_robust(models: Query) -> Iterator[Effect]:
    """Judged by direction alone, at matched accuracy. Other claims judge whether attention near the
    end helps most."""
    vit, resnet = models("vit"), models("resnet")
    for reading, what in ((robustness, "corruption"), (occluded, "occlusion"), (attacked, "FGSM")):
        kept = reading(vit) / accuracy(vit) - reading(resnet) / accuracy(resnet)
        yield more(f"share of the accuracy that {what} leaves, ViT minus ResNet", kept)
    yield less(
        "ECE of ViT minus that of ResNet", calibration(vit, "ECE") - calibration(resnet, "ECE")
    )


@check("HDV-55")
def attention_is_an_ensemble(models: Query) -> Iterator[Effect]:
    """In float64, seed 0.

    attention_as_ensemble_difference
        Scaled dot-product attention of the package's own ViT (one head, 64 tokens, 32 channels,
        Q, K, V standard normal) against Σᵢ π(xᵢ|xⱼ) p(zⱼ|xᵢ), a loop over j and i with
        π(xᵢ|xⱼ) = exp(qⱼ·kᵢ/√32) / Σₘ exp(qⱼ·kₘ/√32) and p = V: largest absolute difference.
    blur_as_attention_difference
        2 × 2 average pooling, stride 1, no padding, of 4 maps of 8 × 8 with 16 channels, against
        A V with V the 64 tokens of the map and A of 49 × 64 with 1/4 at the four tokens of each
        window:
        largest absolute difference.
    """
    exact = models("identities")
    ensemble = identity(exact, "attention_as_ensemble_difference")
    yield at_most(
        "largest difference between attention and the ensemble over data points", ensemble, 1e-6
    )
    blur = identity(exact, "blur_as_attention_difference")
    yield at_most(
        "largest difference between a 2 × 2 blur and attention with weights of 1/4", blur, 1e-6
    )


@check("HDV-56")
def local_beats_global(models: Query) -> Iterator[Effect]:
    """Swin differs from ViT in its stages, too. The second effect, as in HDV-15, changes only the
    reach of attention."""
    local = models("window" if models.sanity else "swin")
    lower = error(models("vit")) - error(local)
    yield more(
        "error of ViT minus that of local attention in stages, in points",
        lower,
        paper=models.paper,
        matters=3.0,
    )
    alone = error(models("vit", pool="gap")) - error(models("vit", kernel=5))
    yield more(
        "error of global attention minus that of 5 × 5 neighbourhoods, in points",
        alone,
        paper=models.reported(0.89),
    )
