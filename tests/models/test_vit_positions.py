"""Where tokens sit: what position encodings do to a ViT, and what becomes of them at another
resolution."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.ndimage import zoom as scipy_zoom
from torch import Tensor, nn

import vitreous.models
from vitreous.errors import BadImages
from vitreous.models import BadModel
from vitreous.models.positions import Learned1d, Learned2d, Relative, Sinusoidal
from vitreous.models.vit import resize_vit

build: Any = vitreous.models.build  # what a model is made of has no static type

TINY = {"image": 32, "classes": 5, "depth": 2, "width": 24, "heads": 3}


def tiny(shake: float = 0.1, **options: Any) -> Any:
    """A small model with nothing at its initial value."""
    model = build("vit_ti/8", **{**TINY, "init": "timm", **options}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(shake * torch.randn_like(parameter))
    return model


def shuffled(images: Tensor, patch: int) -> Tensor:
    """The patches of each image in another order."""
    tiles = images.unfold(2, patch, patch).unfold(3, patch, patch)
    flat = tiles.reshape(*images.shape[:2], -1, patch, patch)[
        :, :, torch.randperm(tiles.shape[2] * tiles.shape[3])
    ]
    return flat.reshape(tiles.shape).permute(0, 1, 2, 4, 3, 5).reshape(images.shape)


# Symmetry (VIT-05) and position


@pytest.mark.parametrize("pool", ["class", "gap", "gap_with_class"])
def test_without_positions_the_order_of_patches_does_not_matter(pool: str) -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 32, 32)
    bag, placed = tiny(pos="none", pool=pool), tiny(pos="1d", pool=pool)
    with torch.no_grad():
        other = shuffled(images, 8)
        assert (bag(images) - bag(other)).abs().max() < 1e-5
        assert (placed(images) - placed(other)).abs().max() > 1e-3


@pytest.mark.parametrize(
    "options",
    [{"pos": "2d"}, {"pos": "sinusoidal"}, {"pos": "relative"}, {"pos": "relative",
        "offsets": "2d"},
     {"pos": "relative", "offsets": "full"}, {"mixer": "neighbourhood", "pool": "gap",
     "pos": "none"}],
)  # fmt: skip
def test_with_positions_of_any_kind_the_order_of_patches_matters(options: dict[str, str]) -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 32, 32)
    model = tiny(shake=0.3, **options)
    with torch.no_grad():
        assert (model(images) - model(shuffled(images, 8))).abs().max() > 1e-3


def test_patch_embedding_is_a_linear_map_of_flattened_patches() -> None:
    """A2.01: the convolution agrees with cutting, flattening and multiplying."""
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    embed = tiny().double().patch_embed
    cut = nn.functional.unfold(images, 8, stride=8).mT
    torch.testing.assert_close(
        embed(images), cut @ embed.proj.weight.flatten(1).mT + embed.proj.bias
    )


def test_injection_adds_the_tables_it_says() -> None:
    """A2.07, read off identity blocks: with nothing else in the way, the tables add up."""
    images = torch.randn(2, 3, 32, 32)
    for inject, times in {"stem": 1, "shared": 3, "every": 3}.items():
        model = tiny(inject=inject, depth=3)
        for block in model.blocks:
            block.attn, block.mlp = nn.Identity(), nn.Identity()
            block.norm1, block.norm2 = Nothing(), Nothing()
        model.norm = nn.Identity()
        assert len(model.positions) == (3 if inject == "every" else 1)
        added = sum(model.positions[i % len(model.positions)]() for i in range(times))
        with torch.no_grad():
            tokens = torch.cat([model.cls_token.expand(2, -1, -1), model.patch_embed(images)], 1)
            torch.testing.assert_close(model.forward_features(images), tokens + added)


class Nothing(nn.Module):
    """A branch that adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def test_two_dimensional_table_is_column_then_row() -> None:
    table = Learned2d((2, 3), 1, 4)
    nn.init.normal_(table.rows), nn.init.normal_(table.columns), nn.init.normal_(table.prefix)
    full = table()[0]
    for row in range(2):
        for column in range(3):
            assert torch.equal(
                full[1 + 3 * row + column], torch.cat([table.columns[column], table.rows[row]])
            )
    assert torch.equal(full[0], table.prefix[0])


def test_sinusoidal_by_formula() -> None:
    table = Sinusoidal((2, 3), 1, 8)()[0]
    assert torch.equal(table[0], torch.zeros(8))
    for position in range(6):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[1 + position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[1 + position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


# Another resolution (VIT-06, A2.09)


def table_of(field: Tensor, prefix: int = 1) -> Learned1d:
    """A learned table that holds a field (rows, columns, width) and 7 in its prefix rows."""
    rows, columns, width = field.shape
    table = Learned1d((rows, columns), prefix, width)
    with torch.no_grad():
        table.table.copy_(torch.cat([torch.full((prefix, width), 7.0), field.flatten(0, 1)])[None])
    return table


@pytest.mark.parametrize("grid", [(4, 6), (7, 5), (2, 2)])
def test_constant_and_linear_fields_stay_what_they_are(grid: tuple[int, int]) -> None:
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 4), torch.linspace(0, 1, 4), indexing="ij")
    old = table_of(torch.stack([torch.full_like(rows, 3.0), 2 * rows - columns], -1), prefix=2)
    new = Learned1d(grid, 2, 2)
    new.resample_from(old, "bilinear")
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, grid[0]), torch.linspace(0, 1, grid[1]), indexing="ij"
    )
    expected = torch.stack([torch.full_like(rows, 3.0), 2 * rows - columns], -1)
    torch.testing.assert_close(new.table[0, 2:].reshape(*grid, 2).detach(), expected)
    assert torch.equal(new.table[0, :2], torch.full((2, 2), 7.0)), "prefix rows are untouched"
    new.resample_from(old, "bicubic")
    torch.testing.assert_close(new.table[0, 2:, 0].detach(), torch.full((grid[0] * grid[1],), 3.0))


def test_bilinear_is_the_original_codes_zoom() -> None:
    field = torch.randn(4, 4, 5)
    new = Learned1d((6, 6), 1, 5)
    new.resample_from(table_of(field), "bilinear")
    expected = scipy_zoom(field.numpy(), (1.5, 1.5, 1), order=1)
    torch.testing.assert_close(
        new.table[0, 1:].reshape(6, 6, 5).detach(), torch.from_numpy(expected)
    )


def test_two_dimensional_and_relative_tables_keep_linear_fields() -> None:
    old, new = Learned2d((4, 3), 1, 2), Learned2d((7, 5), 1, 2)
    with torch.no_grad():
        old.rows.copy_(torch.linspace(0, 1, 4)[:, None])
        old.columns.copy_(torch.linspace(2, 5, 3)[:, None])
        old.prefix.fill_(7.0)
    new.resample_from(old, "bilinear")
    torch.testing.assert_close(new.rows[:, 0].detach(), torch.linspace(0, 1, 7))
    torch.testing.assert_close(new.columns[:, 0].detach(), torch.linspace(2, 5, 5))
    assert torch.equal(new.prefix, old.prefix)
    coarse, fine = Relative((2, 3), 2, 1, "2d", False), Relative((4, 5), 2, 1, "2d", False)
    with torch.no_grad():
        coarse.table.copy_(
            torch.linspace(-1, 1, 3)[None, :, None].expand(2, 3, 5).reshape(2, 15, 1)
        )
    fine.resample_from(coarse, "bilinear")
    expected = torch.linspace(-1, 1, 7)[None, :, None].expand(2, 7, 9).reshape(2, 63, 1)
    torch.testing.assert_close(fine.table.detach(), expected)


@pytest.mark.parametrize(
    "options",
    [{}, {"pos": "2d", "inject": "every"}, {"pos": "relative", "offsets": "2d"},
        {"pos": "sinusoidal"},
     {"pos": "none", "mixer": "neighbourhood", "pool": "gap"}, {"stem": "r26", "stem_width": 0.25}],
)  # fmt: skip
def test_resize(options: dict[str, Any]) -> None:
    """To the same size nothing changes; to another it runs, everything but the positions is copied,
    none is shared."""
    torch.manual_seed(0)
    model = tiny(**options)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(resize_vit(model, 32)(images), model(images), rtol=0, atol=1e-6)
        larger: Any = resize_vit(model, (48, 64))
        assert larger(torch.randn(2, 3, 48, 64)).shape == (2, 5)
    assert larger.config == {**model.config, "image": (48, 64)}
    assert not {p.data_ptr() for p in larger.parameters()} & {
        p.data_ptr() for p in model.parameters()
    }
    assert torch.equal(larger.blocks[1].mlp.fc1.weight, model.blocks[1].mlp.fc1.weight)


@pytest.mark.parametrize(
    "options", [{"mixer": "mean"}, {"pos": "relative"}, {"mixer": "token_mlp", "pool": "gap"}]
)
def test_weights_tied_to_the_grid_cannot_be_resized(options: dict[str, Any]) -> None:
    with pytest.raises(BadModel, match="tied to its grid"):
        resize_vit(tiny(**options), 64)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(BadImages, match=r"\(3, 32, 32\) and got \(3, 40, 40\)"):
        tiny()(torch.randn(1, 3, 40, 40))
