"""What pooling, SAM, reach of attention, size of patches, heads and size of the model do to learning and curvature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vitreous.claims.claim import Part, at_least, at_most, less, more, no_less, noted
from vitreous.claims.evidence import Look, Seen
from vitreous.claims.measure import Measure, beside, spearman
from vitreous.claims.park_2022.book import claim
from vitreous.claims.park_2022.curvature import FAR, rise
from vitreous.claims.readings import accuracy, ape, error, nep, robustness, train_nll

GLOBAL = 8
"""Tokens a side of the whole map, so that attention within as many reaches everywhere."""


@claim(
    "HDV-13",
    "Pooling by the mean instead of a class token smooths the loss of a ViT: fewer negative eigenvalues, and a better "
    "accuracy.",
    place="Fig. 6, text",
    reported="fewer negative eigenvalues; 2.7 points more on CIFAR-100",
    study="sweeps",
    task="SYN-B",
)
def mean_pooling_smooths(look: Look) -> Iterator[Part]:
    """Accuracies at the better of two learning rates each, because the two may need different ones (VIT-07)."""
    early = nep(look("vit", pool="gap", moment="warmup")) - nep(look("vit", moment="warmup"))
    yield less("share of negative eigenvalues after warm-up, mean pooling minus class token", early)
    rates = (None, 0.4)
    mean, token = (
        beside([accuracy(look("vit", pool=pool, rate=rate)) for rate in rates])
        for pool in ("gap", None)
    )
    gain = mean.most() - token.most()
    yield at_least(
        "accuracy of mean pooling minus that of a class token",
        gain,
        look.at(1.0, ten=0.5, sanity=0.5),
        2.7,
    )
    yield noted("the same at the recipe's own learning rate", mean[0] - token[0])


@claim(
    "HDV-14",
    "Sharpness-aware minimisation makes a ViT better, more so than a ResNet, and finds flatter minima.",
    place="Sec. 2, text",
    reported="cited from Chen et al. (2022): 5.3 points more for ViT-B/16 and 11.0 for Mixer-B/16 on ImageNet",
    study="sweeps",
    task="SYN-B",
)
def sam_helps(look: Look) -> Iterator[Part]:
    """All without strong augmentation. Both models at the usual radius, 0.05; a larger one is noted for ViT."""
    vit, resnet = (look(model, augment="none") for model in ("vit", "resnet"))
    vit_sam, resnet_sam = (look(model, augment="none", sam=0.05) for model in ("vit", "resnet"))
    gain, gain_resnet = accuracy(vit_sam) - accuracy(vit), accuracy(resnet_sam) - accuracy(resnet)
    yield more("accuracy of ViT with SAM minus that without, in points", gain, paper=5.3)
    yield more("what ViT gains minus what ResNet gains, in points", gain - gain_resnet)
    says = "mean positive eigenvalue of ViT with SAM relative to that without"
    yield at_most(says, ape(vit_sam) / ape(vit), 0.8, versus=1.0)
    wider = look("vit", augment="none", sam=0.2)
    yield noted(
        "accuracy of ViT with SAM at radius 0.2 minus that without", accuracy(wider) - accuracy(vit)
    )
    yield noted(f"{says}, at radius 0.2", ape(wider) / ape(vit))


@claim(
    "HDV-15",
    "Locality helps: attention within 5 × 5 tokens has a lower test error and a lower training loss than attention "
    "over all tokens.",
    place="Fig. 7a",
    reported="error 28.05 against 28.94 %, training loss 2.406 against 2.473; with 3 × 3 27.89 % and 2.451",
    study="sweeps",
    task="SYN-B",
    seeds=3,
)
def near_attention_learns_better(look: Look) -> Iterator[Part]:
    near, middle, far = (look("vit", kernel=kernel) for kernel in (3, 5, GLOBAL))
    yield less(
        "error with 5 × 5 minus that with all tokens, in points",
        error(middle) - error(far),
        paper=-0.89,
    )
    yield less(
        "training loss with 5 × 5 minus that with all tokens",
        train_nll(middle) - train_nll(far),
        paper=-0.067,
    )
    yield noted(
        "error with 3 × 3 minus that with 5 × 5, in points",
        error(near) - error(middle),
        paper=-0.16,
    )
    yield noted(
        "training loss with 3 × 3 minus that with 5 × 5",
        train_nll(near) - train_nll(middle),
        paper=0.045,
    )


@claim(
    "HDV-16",
    "Attention of middle reach is best for optimisation: within 5 × 5 tokens it has the fewest negative eigenvalues.",
    place="Fig. 7b",
    reported="negative eigenvalues: 3 × 3 31 %, 5 × 5 18.5 %, all 32 %; mean positive ones 49.8, 57.1 and 53.5",
    study="hessian-sweeps",
    task="SYN-E",
)
def middle_reach_is_most_convex(look: Look) -> Iterator[Part]:
    near, middle, far = (look("vit", kernel=kernel, moment="warmup") for kernel in (3, 5, GLOBAL))
    fewer = beside([nep(near), nep(far)]).least() - nep(middle)
    yield at_least(
        "share of negative eigenvalues, the smaller of 3 × 3 and all minus 5 × 5",
        fewer,
        0.03,
        paper=0.12,
    )
    yield noted(
        "mean positive eigenvalue of 5 × 5 relative to that of all",
        ape(middle) / ape(far),
        paper=1.07,
    )


@claim(
    "HDV-17",
    "Attention within 3 × 3 and within 5 × 5 tokens does equally well on clean images, but that within 5 × 5 is more "
    "robust to corruption.",
    place="Sec. 2, text",
    reported="said without a number",
    study="sweeps",
    task="SYN-B",
)
def middle_reach_is_more_robust(look: Look) -> Iterator[Part]:
    near, middle = (look("vit", kernel=kernel) for kernel in (3, 5))
    gain = robustness(middle) - robustness(near)
    yield at_least("accuracy on corrupted images, 5 × 5 minus 3 × 3, in points", gain, 0.5)
    yield noted(
        "accuracy on clean images, 5 × 5 minus 3 × 3",
        accuracy(middle) - accuracy(near),
        paper=-0.16,
    )


@claim(
    "HDV-19",
    "Smaller patches are not always better: on small images those of 4 pixels beat those of 2 as well as those of 8.",
    place="Fig. C.2a",
    reported="of patches of 2, 4 and 8 pixels on CIFAR-100 those of 4 are best",
    study="sweeps",
    task="SYN-B",
)
def middle_patches_are_best(look: Look) -> Iterator[Part]:
    """The study's own patches are those of 4 pixels."""
    small, own, large = (error(look("vit", patch=side)) for side in (2, None, 8))
    yield more("error with patches of 2 minus that with 4, in points", small - own, paper=4.55)
    yield more("error with patches of 8 minus that with 4, in points", large - own)


@claim(
    "HDV-20",
    "The smaller the patches, the smaller the largest eigenvalues of the loss, but the more of them are negative.",
    place="Fig. C.2b",
    reported="spectra for patches of 2, 4 and 8 pixels",
    study="hessian-sweeps",
    task="SYN-E",
)
def small_patches_are_flat_and_not_convex(look: Look) -> Iterator[Part]:
    models = [look("vit", patch=side, moment="warmup") for side in (2, None, 8)]
    sizes, shares = beside([ape(each) for each in models]), beside([nep(each) for each in models])
    yield more(
        "smallest rise of the mean positive eigenvalue from 2 to 4 to 8 pixels",
        (sizes[1:] - sizes[:-1]).least(),
    )
    yield more(
        "share of negative eigenvalues with 2 pixels minus that with 4", shares[0] - shares[1]
    )
    yield no_less(
        "share of negative eigenvalues with 4 pixels minus that with 8", shares[1] - shares[2]
    )


def falling(
    settings: Sequence[int], model: Callable[[int], Seen], what: str
) -> Iterator[tuple[str, Measure]]:
    """Rank correlation of a setting with both measures of curvature after warm-up."""
    models = [model(each) for each in settings]
    for says, reading in (
        ("share of negative eigenvalues", nep),
        ("mean positive eigenvalue", ape),
    ):
        yield (
            f"rank correlation of {what} and {says}",
            spearman(settings, beside([reading(each) for each in models])),
        )


@claim(
    "HDV-23",
    "The more heads a ViT has, the fewer negative eigenvalues and the smaller positive ones its loss has early on.",
    place="Fig. C.5",
    reported="both curves fall with the number of heads, for a ViT of half the depth",
    study="hessian-sweeps",
    task="SYN-E",
)
def more_heads_are_smoother(look: Look) -> Iterator[Part]:
    """Models of half the depth (A3.19). The width of a head stays the same, so the model grows; with a fixed width of
    the model the sign may be another, which is noted."""
    heads, wide = ((1, 2, 4, 8), 8) if look.sanity else ((1, 2, 4, 8, 16), 64)
    for says, found in falling(
        heads, lambda h: look("vit", heads=h, head_dim=wide, moment="warmup"), "heads"
    ):
        yield at_most(says, found, -0.8)
    if not look.sanity:
        for says, found in falling(
            heads, lambda h: look("vit", heads=h, width="fixed", moment="warmup"), "heads"
        ):
            yield noted(f"{says}, the width of the model fixed", found)


@claim(
    "HDV-24",
    "The wider the heads of a ViT, the fewer negative eigenvalues and the smaller positive ones its loss has early on.",
    place="Fig. C.6",
    reported="both curves fall with the width of a head, for a ViT of half the depth",
    study="hessian-sweeps",
    task="SYN-E",
)
def wider_heads_are_smoother(look: Look) -> Iterator[Part]:
    """Models of half the depth (A3.20)."""
    widths, heads = ((4, 8, 16, 32), 2) if look.sanity else ((16, 32, 64, 128), 3)
    for says, found in falling(
        widths, lambda w: look("vit", heads=heads, head_dim=w, moment="warmup"), "head width"
    ):
        yield at_most(says, found, -0.8)


@claim(
    "HDV-25",
    "A larger ViT reaches a lower training loss; early on its loss is flatter close by, although sharper far out.",
    place="Fig. C.7",
    reported="spectra and landscapes of ViT-S and ResNet-101 beside those of the smaller models",
    study="hessian-sweeps",
    task="SYN-E",
)
def larger_models_are_locally_flatter(look: Look) -> Iterator[Part]:
    """Far out the loss is the NLL and decay · Σ‖W‖, as the paper plots it; without that it is noted."""
    size = "wide" if look.sanity else "s"
    early = ape(look("vit", size=size, moment="warmup")) / ape(look("vit", moment="warmup"))
    yield less("mean positive eigenvalue after warm-up, larger ViT relative to smaller", early, 1.0)
    large, small = look("vit", size=size), look("vit")
    far = rise(large, FAR, "norms") - rise(small, FAR, "norms")
    yield more("rise of NLL and decay · Σ‖W‖ at radius 0.8, larger minus smaller", far)
    yield less("training loss, larger minus smaller", train_nll(large) - train_nll(small))
    yield noted("rise of the NLL alone, larger minus smaller", rise(large, FAR) - rise(small, FAR))
    if not look.sanity:
        resnet = ape(look("resnet", size=size, moment="warmup")) / ape(
            look("resnet", moment="warmup")
        )
        yield noted(
            "mean positive eigenvalue after warm-up, larger ResNet relative to smaller", resnet
        )
