"""The loss as a function of the weights: which weights, which images, and its Hessian in full."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.curvature.lanczos import extreme
from vitreous.measure.curvature.loss import (
    Batches,
    Hessian,
    Loss,
    twice_differentiable,
    unit_parameters,
    weights,
)
from vitreous.measure.subject import subjects
from vitreous.specimen.specimen import Specimen

IMAGES, LABELS = 5, 3


@cache
def tiny() -> tuple[VisionTransformer, Specimen, Tensor, Tensor]:
    """A ViT with few hundred parameters in float64, fused attention and all, far from any
    minimum."""
    torch.manual_seed(3)
    model = VisionTransformer(
        8, 4, num_classes=LABELS, embed_dim=4, depth=1, num_heads=2, mlp_ratio=1.5
    )
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    images = torch.randn(IMAGES, 3, 8, 8, dtype=torch.float64)
    return model, vitreous.open(model, image=8), images, torch.tensor([0, 2, 1, 1, 0])


@cache
def dense() -> tuple[Tensor, dict[str, slice]]:
    """The whole Hessian, by torch, from the model itself, and where each parameter lies in it."""
    model, _, images, labels = tiny()
    named = {name: value.detach() for name, value in model.named_parameters()}
    sizes = [value.numel() for value in named.values()]
    ends = np.cumsum([0, *sizes])
    for block in model.blocks:
        block.attn.fused_attn = False

    def loss(flat: Tensor) -> Tensor:
        parts = zip(named.items(), flat.split(sizes), strict=True)
        given = {name: part.view_as(value) for (name, value), part in parts}
        return F.cross_entropy(functional_call(model, given, (images,)), labels)

    h = torch.autograd.functional.hessian(
        loss, torch.cat([value.flatten() for value in named.values()]), vectorize=True
    )
    for block in model.blocks:
        block.attn.fused_attn = True
    return h, {
        name: slice(int(a), int(b)) for name, a, b in zip(named, ends[:-1], ends[1:], strict=True)
    }


def block(names: Any) -> Tensor:
    h, where = dense()
    rows = torch.cat([torch.arange(where[name].start, where[name].stop) for name in names])
    return h[rows][:, rows]


def largest(h: Tensor, k: int) -> np.ndarray:
    values = torch.linalg.eigvalsh(h).numpy()
    return values[np.argsort(-np.abs(values))][:k]


@pytest.mark.parametrize(
    "where", ["", "stage 1", "attention", "blocks.0.mlp", "1.0", "*.qkv.weight", "head"]
)
def test_eigenvalues_are_those_of_the_dense_hessian(where: str) -> None:
    _, specimen, images, labels = tiny()
    given = weights(specimen, where)
    hessian = Hessian(specimen, given, images[None], labels[None], IMAGES)
    expected = largest(block(given), 5)
    for seed in (
        (0, 46, 193) if where == "head" else (0,)
    ):  # the latter two nearly start in an invariant space
        start = torch.randn(
            1, sum(hessian.sizes), generator=torch.Generator().manual_seed(seed)
        ).double()
        found = extreme(hessian, start, 5, tolerance=1e-8)[0]
        np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-12)
    if not where:
        assert expected.min() < 0 < expected.max()


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_batch_in_parts_is_the_batch(at_once: int) -> None:
    _, specimen, images, labels = tiny()
    given = weights(specimen)
    hessian = Hessian(specimen, given, images[None], labels[None], at_once)
    vector = torch.randn(1, sum(hessian.sizes)).double()
    torch.testing.assert_close(hessian(vector), vector @ block(given), rtol=1e-9, atol=1e-12)


def test_loss_is_the_models() -> None:
    model, specimen, images, labels = tiny()
    given = weights(specimen)
    torch.testing.assert_close(
        Loss(specimen, images, labels)(given), F.cross_entropy(model(images), labels)
    )
    soft = torch.tensor([[0.5, 0.5, 0.0]] * IMAGES).double()
    torch.testing.assert_close(
        Loss(specimen, images, soft)(given), F.cross_entropy(model(images), soft)
    )


def test_attention_is_fused_again_afterwards() -> None:
    before = [
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
    ]
    with torch.no_grad(), contextlib.suppress(KeyboardInterrupt), twice_differentiable():
        assert torch.is_grad_enabled()
        assert not torch.backends.cuda.flash_sdp_enabled()
        raise KeyboardInterrupt
    assert before == [
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
    ]


def test_convolutions_have_all_digits_inside_and_are_as_before_afterwards() -> None:
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    assert convolutions.fp32_precision == "tf32"  # torch's default
    with contextlib.suppress(KeyboardInterrupt), twice_differentiable():
        assert convolutions.fp32_precision == "ieee"
        raise KeyboardInterrupt
    assert convolutions.fp32_precision == "tf32"
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("name", ["nano:vit", "nano:resnet"])
def test_units_have_the_parameters_that_the_anatomy_counts(name: str) -> None:
    specimen = subjects(name)[0].specimen
    given = weights(specimen)
    for unit in specimen.units:
        assert (
            sum(given[key].numel() for key in unit_parameters(specimen, unit) if key in given)
            == unit.parameters
        ), unit.name
    assert sum(value.numel() for value in given.values()) == specimen.anatomy.parameters


def test_units_named_by_hand_have_those_of_their_module() -> None:
    model, *_ = tiny()
    specimen = vitreous.open(model, image=8, units=["blocks.0", "head"])
    assert set(weights(specimen, "head")) == {"head.weight", "head.bias"}
    assert len(weights(specimen)) == len(dict(model.named_parameters()))


def test_unknown_parts_are_refused() -> None:
    _, specimen, *_ = tiny()
    with pytest.raises(VitreousError, match="no part 'atention'"):
        weights(specimen, "atention")
    with pytest.raises(VitreousError, match="no part 'stage 7'"):
        weights(specimen, "stage 7")
    with pytest.raises(VitreousError, match="bfloat16, too coarse"):
        weights(vitreous.open(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).bfloat16(), image=8))
    with pytest.raises(VitreousError, match="has no parameters"):
        weights(vitreous.open(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), image=8))


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    _, specimen, images, labels = tiny()
    with pytest.raises(VitreousError, match="loss of VisionTransformer is not finite"):
        Hessian(specimen, weights(specimen), images[None] * torch.inf, labels[None], IMAGES)


def test_an_augmented_batch_depends_on_its_rows_and_the_seed_alone() -> None:
    subject = subjects("nano:vit")[0]
    data = vitreous.data.load("world:shapes", split="train", size=24)
    rows = torch.arange(8, 16)
    augmented = Batches(subject, data, "augmented", "hdv_cifar", 0)
    augmented(torch.arange(8))
    images, targets = augmented(rows)
    again, same = Batches(subject, data, "augmented", "hdv_cifar", 0)(rows)
    assert torch.equal(images, again)
    assert torch.equal(targets, same)
    assert not torch.equal(images, Batches(subject, data, "augmented", "hdv_cifar", 1)(rows)[0])
    torch.testing.assert_close(targets.sum(1), torch.ones(8))
    assert int((targets > 0.05).sum(1).max()) == 2  # mixed
    clean, labels = Batches(subject, data, "clean", "", 0)(rows)
    assert torch.equal(labels, data.labels[rows])
    torch.testing.assert_close(clean, subject.prepare(data.images[rows]))


def test_images_of_another_size_and_grey_models_are_augmented_too() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )
    subject = subjects(model, image=20)[0]
    data = vitreous.data.load("world:shapes", split="train", size=8)
    images, targets = Batches(subject, data, "augmented", "hdv_cifar", 0)(torch.arange(8))
    assert images.shape == (8, 1, 20, 20)
    assert targets.shape == (8, 10)
    plain = Batches(subject, data, "augmented", "quick", 0)(torch.arange(8))[0]
    assert (
        float((plain - subject.prepare(data.images)).abs().max()) < 0.02
    )  # resized to whole levels


def test_unknown_streams_and_recipes_are_refused() -> None:
    subject, data = (
        subjects("nano:vit")[0],
        vitreous.data.load("world:shapes", split="train", size=8),
    )
    wrong: Any = "augmentd"
    with pytest.raises(VitreousError, match=r"no stream 'augmentd'\. Did you mean augmented"):
        Batches(subject, data, wrong, "hdv_cifar", 0)
    with pytest.raises(VitreousError, match="no recipe"):
        Batches(subject, data, "augmented", "hdv_cifer", 0)
