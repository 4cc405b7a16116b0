"""Position numbers, followed through operations whose result is known by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, stack
from torch.nn import functional as F

from vitreous.specimen.export import read_graph
from vitreous.specimen.inputs import EXAMPLE_BATCH
from vitreous.specimen.layout import Layout
from vitreous.specimen.positions import Positions
from vitreous.specimen.trace import NOWHERE, PREFIX, SPAN, Trace

SIDE = 8
RASTER = torch.arange(SIDE * SIDE).reshape(SIDE, SIDE)


class Applies(nn.Module):
    def __init__(self, fn: Callable[..., Tensor], *parameters: Tensor) -> None:
        super().__init__()
        self.fn = fn
        self.tokens = nn.ParameterList(parameters)

    def forward(self, images: Tensor) -> Tensor:
        return self.fn(images, *self.tokens)


def trace(fn: Callable[..., Tensor], *parameters: Tensor) -> Trace | None:
    """What is known of the result of `fn` on images of 3 x 8 x 8."""
    module = read_graph(Applies(fn, *parameters), torch.zeros(EXAMPLE_BATCH, 3, SIDE, SIDE))
    positions = Positions(module)
    result = next(n for n in module.graph.nodes if n.op == "output").all_input_nodes[0]
    found = positions.traces[result]
    assert not isinstance(found, list)
    return found


def cells(found: Trace | None, batch: int = 0) -> Tensor:
    """Positions of one image, one channel: the numbers without the batch."""
    assert found is not None
    ids = found.ids[batch]
    return torch.where(ids < 0, NOWHERE, ids % SPAN)


def windows(x: Tensor, side: int = 4) -> Tensor:
    b, c, h, w = x.shape
    return (
        x.view(b, c, h // side, side, w // side, side)
        .permute(0, 2, 4, 3, 5, 1)
        .reshape(-1, side * side, c)
    )


def test_the_image_is_numbered_row_by_row() -> None:
    assert torch.equal(cells(trace(lambda x: x * 2))[0], RASTER)


def test_a_roll_rolls_position_numbers() -> None:
    assert torch.equal(
        cells(trace(lambda x: x.roll((-2, -3), (2, 3))))[0], RASTER.roll((-2, -3), (0, 1))
    )


def test_shifted_windows_have_their_image_positions() -> None:
    found = trace(lambda x: windows(x.roll((-2, -2), (2, 3))))
    assert found is not None
    assert found.ids.shape == (EXAMPLE_BATCH * 4, 16, 3)
    assert found.ids[3, :, 0].tolist() == RASTER.roll((-2, -2), (0, 1))[4:, 4:].flatten().tolist()
    assert (
        found.ids[4:, :, 0] // SPAN == 1
    ).all()  # the second image's windows follow the first one's
    layout = Layout.of(found)
    assert layout is not None
    assert (layout.grid, layout.channels) == ((SIDE, SIDE), 3)
    images = torch.randn(5, 3, SIDE, SIDE)
    restored = layout.map(windows(images.roll((-2, -2), (2, 3))))
    assert torch.equal(restored, images)


def test_padding_has_no_position_and_cropping_removes_it() -> None:
    padded = cells(trace(lambda x: nn.functional.pad(x, (1, 1, 1, 1))))[0]
    assert (padded[0] == NOWHERE).all()
    assert torch.equal(padded[1:-1, 1:-1], RASTER)
    cropped = trace(lambda x: nn.functional.pad(x, (1, 1, 1, 1))[..., 1:-1, 1:-1])
    assert torch.equal(cells(cropped)[0], RASTER)


def test_a_learned_token_is_a_prefix_with_a_name() -> None:
    def with_token(x: Tensor, token: Tensor) -> Tensor:
        return torch.cat([token.expand(x.shape[0], -1, -1), x.flatten(2).transpose(1, 2)], 1)

    found = trace(with_token, torch.zeros(1, 2, 3))
    assert found is not None
    assert found.prefix == ("prefix", "prefix")
    assert cells(found)[:3, 0].tolist() == [PREFIX, PREFIX + 1, 0]
    layout = Layout.of(found)
    assert layout is not None
    assert (layout.prefix, layout.grid) == (("prefix", "prefix"), (SIDE, SIDE))


def test_a_strided_convolution_begins_a_new_grid() -> None:
    found = trace(
        lambda x, w: nn.functional.conv2d(x, w, stride=2, padding=1), torch.zeros(5, 3, 3, 3)
    )
    assert found is not None
    assert found.grid == (4, 4)
    assert torch.equal(cells(found)[0], torch.arange(16).reshape(4, 4))


def test_every_second_row_and_column_is_a_grid_of_its_own() -> None:
    found = trace(lambda x: x[:, :, ::2, ::2])
    assert found is not None
    assert found.grid == (4, 4)
    assert torch.equal(cells(found)[0], torch.arange(16).reshape(4, 4))


def patches(x: Tensor, side: int) -> Tensor:
    b, c, h, w = x.shape
    x = x.view(b, c, h // side, side, w // side, side).permute(0, 2, 4, 3, 5, 1)
    return x.reshape(b, (h // side) * (w // side), side * side * c)


def test_a_linear_map_of_patches_is_an_embedding() -> None:
    found = trace(lambda x, w: nn.functional.linear(patches(x, 2), w), torch.zeros(7, 12))
    assert found is not None
    assert found.grid == (4, 4)
    assert cells(found)[:, 0].tolist() == list(range(16))


def test_a_linear_map_over_positions_mixes_them() -> None:
    fn = lambda x, w: nn.functional.linear(x.flatten(2), w)  # noqa: E731
    module = read_graph(Applies(fn, torch.zeros(64, 64)), torch.zeros(EXAMPLE_BATCH, 3, SIDE, SIDE))
    assert len(Positions(module).mixing) == 1


def test_patch_merging_halves_the_grid() -> None:
    def merge(x: Tensor, w: Tensor) -> Tensor:
        parts = [x[:, :, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return nn.functional.linear(torch.cat(parts, 1).permute(0, 2, 3, 1), w)

    found = trace(merge, torch.zeros(5, 12))
    assert found is not None
    assert found.grid == (4, 4)


def test_overlapping_patches_keep_their_centres_and_their_padding() -> None:
    found = trace(lambda x: nn.functional.unfold(x, 3, padding=1))
    assert found is not None
    numbers = cells(found).unflatten(0, (3, 9))
    assert torch.equal(numbers[0, 4], RASTER.flatten())  # the middle of each patch
    assert (numbers[:, 0, :SIDE] == NOWHERE).all()  # above the first row there is nothing


def test_the_output_of_attention_has_the_positions_of_the_queries() -> None:
    def attend(x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return (tokens[:, 5:9] @ tokens.transpose(1, 2)).softmax(-1) @ tokens

    assert cells(trace(attend))[:, 0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    "gone", [lambda x: x.mean((2, 3)), lambda x: nn.functional.adaptive_avg_pool2d(x, 1)]
)
def test_pooling_everything_leaves_no_position(gone: Callable[[Tensor], Tensor]) -> None:
    assert trace(gone) is None


def test_einsum_follows_its_letters() -> None:
    found = trace(lambda x, w: torch.einsum("bchw,dc->bdhw", x, w), torch.zeros(5, 3))
    assert torch.equal(cells(found)[4], RASTER)


def test_positions_hold_for_any_batch_size() -> None:
    def twice(x: Tensor) -> Tensor:
        return stack([windows(x), windows(x)])

    module = read_graph(Applies(twice), torch.zeros(EXAMPLE_BATCH, 3, SIDE, SIDE))
    for count in (1, 2, 7, 211):
        images = torch.randn(count, 3, SIDE, SIDE)
        assert torch.equal(module(images), twice(images))


def test_sizes_equal_to_the_exported_batch_size_are_kept() -> None:
    """211 classes, and 211 images: neither is taken for the other."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 211), nn.Unflatten(1, (211, 1)))
    module = read_graph(model, torch.zeros(EXAMPLE_BATCH, 3, SIDE, SIDE))
    images = torch.randn(3, 3, SIDE, SIDE)
    torch.testing.assert_close(module(images), model(images))


@pytest.mark.parametrize("mode", ["constant", "circular", "reflect", "replicate"])
def test_padding_of_any_kind_leaves_a_grid_to_convolutions(mode: str) -> None:
    """What is repeated at the edges is not at two places."""
    found = trace(
        lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode), w, stride=2), torch.ones(4, 3, 3, 3)
    )
    assert found is not None
    assert found.grid == (4, 4)
    padded = trace(lambda x: F.pad(x, (1, 1, 1, 1), mode))
    assert padded is not None
    assert padded.ids[0, 0, 0].tolist() == [NOWHERE] * 10
