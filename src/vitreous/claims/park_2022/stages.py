"""Networks with several stages: blocks of similar layers, and lesions of units by their position in
a stage."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.effects import Effect, more
from vitreous.claims.evidence import Query
from vitreous.claims.park_2022.book import check
from vitreous.claims.park_2022.units import lesion_early_minus_late, lesion_trends
from vitreous.claims.quantity import side_by_side
from vitreous.claims.readings import cka_block_structure

CONVOLUTION = "identity"
"""The lesion of a ResNet: one 3 × 3 convolution becomes the identity. Strided convolutions cannot,
so the first lesion of a stage is that of its first convolution without stride."""


@check("HDV-39")
def stages_form_blocks(models: Query) -> Iterator[Effect]:
    """Mean CKA within a stage minus that across stages; of a ViT, within and across thirds of its
    depth.

    A tenth matters, because two trainings of one ViT differ by at most that. Units of one stage are
    also closer in depth; the thirds of a ViT control for that.
    """
    vit = cka_block_structure(models("vit"))
    staged = {name: cka_block_structure(models(name)) for name in ("resnet", "pit", "swin")}
    yield more(
        "block structure, mean of ResNet, PiT and Swin minus that of ViT",
        side_by_side(list(staged.values())).mean() - vit,
        matters=0.1,
    )
    for model, name in (("resnet", "ResNet"), ("pit", "PiT"), ("swin", "Swin")):
        yield more(f"block structure of {name} minus that of ViT", staged[model] - vit)


@check("HDV-40")
def resnet_needs_early_layers(models: Query) -> Iterator[Effect]:
    """The paper's ResNet-50 has bottlenecks; a ResNet-18 has two blocks of two convolutions a
    stage."""
    resnet = models("resnet")
    early = lesion_early_minus_late(resnet, "conv", CONVOLUTION)
    yield more(
        "points lost by a lesion in the first half of the stages minus those in the second", early
    )
    first = (lesion_trends(resnet, "conv", CONVOLUTION) < 0).mean()
    yield more("share of stages that need their first convolution more than their last", first, 0.5)


@check("HDV-41")
def attention_matters_at_stage_ends(models: Query) -> Iterator[Effect]:
    """Stages 2 to 4, as in the paper, by their mean: 1.02, 0.33 and 0.79 points for attention,
    0.38, 0.69 and 0.07 for MLPs."""
    attention, mlps = (
        lesion_trends(models("swin"), kind, first_stage=2) for kind in ("attention", "mlp")
    )
    yield more(
        "points lost without the last attention of a stage minus without the first, mean",
        attention.mean(),
        paper=models.paper,
    )
    yield more(
        "points lost without the first MLP of a stage minus without the last, mean",
        (-mlps).mean(),
        paper=0.38,
    )


@check("HDV-42")
def lesions_are_periodic(models: Query) -> Iterator[Effect]:
    """By chance, the trend of attention and the opposite trend of MLPs occur together in a quarter
    of the stages, and the trend of convolutions in half of them."""
    swin, resnet = models("swin"), models("resnet")
    both = (lesion_trends(swin, "attention") > 0) * (lesion_trends(swin, "mlp") < 0)
    yield more(
        "share of the stages of Swin in which attention matters more and MLPs less towards the end",
        (both > 0.5).mean(),
        0.25,
        paper=models.paper,
    )
    first = lesion_trends(resnet, "conv", CONVOLUTION) < 0
    yield more(
        "share of the stages of ResNet in which the first convolution matters more",
        first.mean(),
        0.5,
    )
