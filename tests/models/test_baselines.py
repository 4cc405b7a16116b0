"""The plain MLP and the small CNN show what inductive bias is worth."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vitreous.models
from vitreous.models import BadModel

build: Any = vitreous.models.build  # what a model is made of has no static type


def test_a_dense_layer_needs_far_more_parameters_than_a_convolution_for_the_same_map() -> None:
    """VIT-24: from 3 x 32 x 32 to 16 x 32 x 32, counted and by formula."""
    with torch.device("meta"):
        dense = build("mlp_ti", image=32, hidden=(16 * 32 * 32,)).features[1]
        conv = build("cnn_ti", image=32).features[0].conv
    many, few = (sum(p.numel() for p in layer.parameters()) for layer in (dense, conv))
    assert many == 3 * 32 * 32 * 16 * 32 * 32 + 16 * 32 * 32
    assert few == 3 * 3 * 3 * 16
    assert many / few > 100_000


def test_convolution_without_pooling_is_equivariant_and_the_mlp_is_not() -> None:
    """A1.26: shifting the image shifts the features, exactly on a torus; a rotation does not rotate
    them."""
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    moved = images.roll((3, 5), (2, 3))
    cnn = build("cnn_ti", image=16, shrink="none", border="circular").eval()
    mlp = build("mlp_ti", image=16).eval()
    with torch.no_grad():
        features = cnn.forward_features(images)
        torch.testing.assert_close(
            cnn.forward_features(moved), features.roll((3, 5), (2, 3)), rtol=0, atol=1e-6
        )
        torch.testing.assert_close(cnn(moved), cnn(images), rtol=0, atol=1e-6)
        assert (
            cnn.forward_features(images.rot90(1, (2, 3))) - features.rot90(1, (2, 3))
        ).abs().max() > 1e-2
        assert (mlp(moved) - mlp(images)).abs().max() > 1e-2


def test_pooling_makes_a_shift_matter_less() -> None:
    """Relative change of the features under a shift by one pixel; a dense layer changes like
    another image."""
    torch.manual_seed(0)
    images = torch.nn.functional.avg_pool2d(torch.randn(8, 3, 38, 38), 7, stride=1)
    moved = images.roll(1, 3)

    def change(name: str) -> float:
        model = build(name, image=32).eval()
        with torch.no_grad():
            before, after = (
                model.forward_head(model.forward_features(x), pre_logits=True)
                for x in (images, moved)
            )
        return ((before - after).norm() / (before - before.mean(0)).norm()).item()

    assert change("cnn_ti") < change("mlp_ti")


def test_refusals() -> None:
    with pytest.raises(BadModel, match="image 4 is smaller than the 8 pixels that 3 poolings need"):
        build("cnn_ti", image=4)
    with pytest.raises(BadModel, match="needs at least one layer"):
        build("mlp_ti", hidden=())
    with pytest.raises(BadModel, match="the only read-out"):
        build("cnn_ti").reset_classifier(3, "max")
