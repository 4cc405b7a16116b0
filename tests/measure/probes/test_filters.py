"""Components against numpy, patterns whose frequency is known, and patches whose components are
known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import vitreous
from measure.probes.noise import noise
from specimen import zoo
from specimen.toys import Block, Convolutional, Residual, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.measure.probes import fourier
from vitreous.measure.probes.filters import (
    ACROSS,
    TILE,
    components,
    first_filters,
    patches,
    spatial_frequency,
)
from vitreous.results import Result


def ask(
    model: nn.Module, images: Dataset | None = None, batch: int | None = None, **options: int
) -> Result:
    return vitreous.inspect(model, images or noise(), {"filters": options}, batch=batch, image=16)[
        "filters"
    ]


def test_components_are_eigenvectors_of_the_filters_products() -> None:
    filters = np.random.default_rng(0).normal(size=(10, 3, 4, 4))
    shares, found = components(filters)
    flat = filters.reshape(10, -1)
    values, vectors = np.linalg.eigh(flat.T @ flat)
    np.testing.assert_allclose(shares, values[::-1][:10] / values.sum(), atol=1e-12)
    np.testing.assert_allclose(
        np.abs(found.reshape(10, -1) @ vectors[:, ::-1][:, :10]), np.eye(10), atol=1e-9
    )


def test_signs_do_not_depend_on_the_filters_signs() -> None:
    filters = np.random.default_rng(1).normal(size=(6, 3, 3, 3))
    one, other = components(filters)[1], components(-filters[::-1])[1]
    np.testing.assert_allclose(one, other, atol=1e-9)
    assert (np.abs(one).reshape(6, -1).argmax(1) == one.reshape(6, -1).argmax(1)).all()


def test_frequencies_of_known_patterns() -> None:
    at = np.arange(8)
    pictures = np.stack([
        np.ones((8, 8)), np.cos(2 * math.pi * at / 8)[:, None] * np.ones(8),
        np.ones((8, 1)) * (-1.0) ** at, (-1.0) ** (at[:, None] + at),
        np.cos(2 * math.pi * 3 * (at[:, None] + at) / 8),
    ])  # fmt: skip
    found = spatial_frequency(np.repeat(pictures[:, None], 3, axis=1))
    np.testing.assert_allclose(found, [0, 0.25, 1, 1, 0.75], atol=1e-12)


def test_frequencies_never_exceed_one_and_are_those_of_the_half_diagonal() -> None:
    """What a chessboard, checks of two colours and noise of any size and shape say, and `fourier`
    of the diagonal."""
    rng = np.random.default_rng(0)
    for shape in ((2, 2), (3, 5), (7, 7), (16, 4)):
        found = spatial_frequency(rng.normal(size=(20, 3, *shape)))
        assert (found > 0).all()
        assert (found <= 1).all()
    at = np.arange(14)
    for cycles in range(7):
        picture = np.cos(2 * math.pi * cycles * (at[:, None] + at) / 14)
        assert spatial_frequency(picture[None, None]) == pytest.approx(
            fourier.frequency((cycles, cycles), (14, 14))
        )
    board, red_and_green = (-1.0) ** np.add.outer(at[:6], at[:6]), np.zeros((1, 3, 6, 6))
    red_and_green[0, 0], red_and_green[0, 1] = board, -board
    assert spatial_frequency(red_and_green) == pytest.approx(1)


def test_patches_are_cut_where_they_should_be() -> None:
    images = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8)
    found = patches(images, (4, 4))
    assert found.shape == (8, 48)
    torch.testing.assert_close(found[1], images[0, :, :4, 4:].flatten())
    torch.testing.assert_close(found[6], images[1, :, 4:, :4].flatten())
    assert len(patches(torch.zeros(1, 3, 224, 224), (7, 7))) == ACROSS**2
    torch.testing.assert_close(patches(images, (8, 8)), images.flatten(1))


def test_a_model_whose_filters_are_the_images_own_components() -> None:
    """Images made of a few waves: filters that are these overlap wholly, filters that are others
    not at all."""
    generator = torch.Generator().manual_seed(0)
    at = torch.arange(4) * 2 * math.pi / 4
    waves = torch.stack([at.cos()[:, None] * at.cos(), at.sin()[:, None] * at.sin()]).repeat(
        1, 4, 4
    )
    weights = torch.rand(32, 2, 3, generator=generator) - 0.5
    pictures = 128 + 100 * torch.einsum("bkc,khw->bchw", weights, waves)
    images = Dataset(pictures.round().to(torch.uint8), torch.full((32,), -1), (), "waves", "test")
    model = settled(Transformer(Block()))
    projection = model.get_parameter("stem.proj.weight")
    with torch.no_grad():
        projection.zero_()
        for filter_, channel in enumerate((0, 1, 2)):
            projection[filter_, channel] = waves[0, :4, :4]
        projection[4] = 0.1 * (-1.0) ** torch.arange(4)
    table = ask(model, images, number=6).table
    np.testing.assert_allclose(table["overlap"][:3], 1, atol=0.01)
    assert table["overlap"][3] < 0.05
    assert table["value"].sum() == pytest.approx(1)
    assert (table["chance"] == 6 / 48).all()


@pytest.mark.parametrize("batch", [3, 8])
def test_patches_add_up_over_batches(batch: int) -> None:
    model = settled(Convolutional(Residual()))
    one, other = ask(model).table, ask(model, batch=batch).table
    np.testing.assert_allclose(
        one.select_dtypes("number"), other.select_dtypes("number"), atol=1e-4
    )


def test_pictures_show_the_components() -> None:
    model = settled(Transformer(Block()))
    result = ask(model, number=5)
    shown = components(model.get_parameter("stem.proj.weight").detach().double().numpy())[1][:5]
    assert result.arrays["components"].shape == (5, TILE, TILE, 3)
    step = TILE // 4
    pixels = result.arrays["components"][2][step // 2 :: step, step // 2 :: step].astype(float)
    expected = 127.5 + 127.5 * shown[2] / np.abs(shown[2]).max()
    np.testing.assert_allclose(pixels, expected.transpose(1, 2, 0), atol=0.51)


@pytest.mark.parametrize(("name", "path"), [
    ("vit", "patch_embed.proj"), ("resnet18", "conv1"), ("swin", "patch_embed.proj"),
    ("tv vit", "conv_proj"), ("hf dinov2", "embeddings.patch_embeddings.projection"),
    ("convnext", "stem.0"),
])  # fmt: skip
def test_the_first_filters_of_models_of_other_libraries(name: str, path: str) -> None:
    model, specimen = zoo.opened(name)
    found = first_filters(specimen.module, 3)
    assert found is not None
    torch.testing.assert_close(found, model.get_parameter(f"{path}.weight").detach())


def test_models_without_filters_have_a_reason() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(768, 8), nn.Linear(8, 5)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.first(images.flatten(1)).relu())
            return found

    found = vitreous.inspect(Flat().eval(), noise(), ["filters"], image=16)
    assert "no plain convolution" in found.left_out["filters"]["Flat"]
    pixels = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    found = vitreous.inspect(pixels.eval(), noise(), ["filters"], image=16)
    assert "1 x 1" in found.left_out["filters"]["Sequential"]
