"""Positions of the queries and keys of attention on the image, and the distances between them.

Only this module turns token numbers into positions. Prefix tokens (class, registers) come first,
then the cells of the grid in raster order; -1 is padding. Prefix tokens and padding have no
position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.layout import BatchAxis

PORTION = {"cpu": 1 << 19, "cuda": 1 << 27}
"""Number of attention weights that are reduced at a time, so that they stay in the cache."""


@dataclass(frozen=True, slots=True)
class Places:
    """How the rows of the weights form groups, and the tokens of their queries and keys."""

    batch: BatchAxis
    order: Tensor
    """(groups, heads) index into the flattened leading dimensions of one image."""
    queries: Tensor
    """(groups, queries) token numbers."""
    keys: Tensor
    """(groups, keys) token numbers."""
    prefix: int
    """Number of prefix tokens among queries and keys together."""
    query_grid: Grid
    key_grid: Grid
    tokens: tuple[str, ...] = ()
    """Kinds of the prefix tokens: 'class', 'distillation', 'register', 'query' for a learned token
    that is only a query, or 'prefix' for others."""

    def gather(self, weights: Tensor) -> Tensor:
        """Turn weights in the model's own layout into (b, groups, heads, queries, keys)."""
        rows, order = self.batch.split(weights).flatten(1, -3), self.order.flatten()
        if not torch.equal(order, torch.arange(rows.shape[1], device=order.device)):
            rows = rows[:, order.to(rows.device)]  # copies, so only if the order differs
        return rows.unflatten(1, tuple(self.order.shape))

    def scatter(self, matrices: Tensor, like: tuple[int, ...], batch: int) -> Tensor:
        """Turn (groups, heads, queries, keys) of one image into the model's layout of a batch.

        `like` is the shape of the model's leading dimensions without the batch.
        """
        rows = matrices.flatten(0, 1)[self.order.flatten().argsort().to(matrices.device)]
        value = rows.reshape(1, *like, *rows.shape[-2:]).expand(batch, *like, *rows.shape[-2:])
        return self.batch.join(value)


def token_centres(
    tokens: Tensor, prefix: int, grid: Grid, extent: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Row and column of each token's centre, in float64, for a grid that covers `extent`.

    Tokens without a position get that of the first cell; `tokens < prefix` finds them.
    """
    cell = (tokens - prefix).clamp_min(0).double()
    rows = (cell.div(grid[1], rounding_mode="floor") + 0.5) * (extent[0] / grid[0])
    columns = (cell % grid[1] + 0.5) * (extent[1] / grid[1])
    return rows, columns


def pair_distances(places: Places, extent: tuple[float, float]) -> Tensor:
    """Distance from each query to each key, (groups, queries, keys) in float64.

    The distance to a key without a position is zero.

    Parameters
    ----------
    places
        Queries and keys, which may lie on different grids.
    extent
        Height and width that both grids cover: those of the image for pixels, `places.query_grid`
        for patches.
    """
    query_rows, query_columns = token_centres(
        places.queries, places.prefix, places.query_grid, extent
    )
    key_rows, key_columns = token_centres(places.keys, places.prefix, places.key_grid, extent)
    down = query_rows[:, :, None] - key_rows[:, None, :]
    right = query_columns[:, :, None] - key_columns[:, None, :]
    return torch.hypot(down, right) * (places.keys >= places.prefix)[:, None, :]


def grid_distances(grid: Grid) -> Tensor:
    """Distance in patches between any two cells of a grid, (cells, cells) in float64."""
    rows, columns = token_centres(torch.arange(grid[0] * grid[1]), 0, grid, grid)
    return torch.hypot(rows[:, None] - rows, columns[:, None] - columns)


def offsets(places: Places) -> tuple[Tensor, Tensor]:
    """Offset in rows and in columns from each key to each query, two (groups, queries, keys).

    Queries and keys lie on the same grid. Offsets of tokens without a position are meaningless.
    """
    width = places.query_grid[1]
    queries = (places.queries - places.prefix)[:, :, None]
    keys = (places.keys - places.prefix)[:, None, :]
    return queries // width - keys // width, queries % width - keys % width


def mean_patch_distance(attention: Tensor, grid: Grid) -> Tensor:
    """Mean distance in patches of attention (n, heads, tokens, tokens), as (heads,) in float32.

    (1/L) Σ_ij A_ij ‖δ_ij‖, mean over n. Tokens in front of the grid are left out, both as queries
    and as keys, and the remaining row is scaled to sum to one.
    """
    length = grid[0] * grid[1]
    among = attention[..., -length:, -length:].float()
    among = among / among.sum(-1, keepdim=True)
    distances = grid_distances(grid).to(among.device, among.dtype)
    return (among * distances).sum((-1, -2)).mean(0) / length


def portions(values: Tensor) -> Iterator[Tensor]:
    """Split (b, …) into portions of a few images that fit into a cache, in float32 or better."""
    wide = torch.promote_types(values.dtype, torch.float32)
    size = PORTION.get(values.device.type, 1 << 19) // max(1, values.shape[1:].numel())
    return (part.to(wide) for part in values.split(max(1, size)))


@dataclass(frozen=True)
class AttentionGeometry:
    """The distances of one unit's attention, on the device of its weights."""

    weights: Tensor
    """(groups, queries, 2, keys): distances, and 1 for keys that have a position."""
    placed_queries: Tensor
    """Queries that have a position, as an index into all of them."""
    extent: tuple[float, float]
    """Height and width of the grid, in the unit of `weights`."""
    scale: float
    """Factor from the unit of `weights` to that of the result. If patches are square, `weights` is
    in patches, so that distances in pixels and in patches share one set of sums."""

    @classmethod
    def of(cls, places: Places, extent: tuple[float, float], like: Tensor) -> AttentionGeometry:
        """The distances of `places`, on the device of `like`, in its dtype but at least float32."""
        patch_height, patch_width = (
            length / cells for length, cells in zip(extent, places.query_grid, strict=True)
        )
        scale = patch_height if patch_height == patch_width else 1.0
        extent = (extent[0] / scale, extent[1] / scale)
        distances = pair_distances(places, extent)
        placed = (places.keys >= places.prefix)[:, None, :].expand_as(distances).double()
        dtype = torch.promote_types(like.dtype, torch.float32)
        weights = torch.stack([distances, placed], 2).to(like.device, dtype)
        placed_queries = (places.queries >= places.prefix).flatten().nonzero()[:, 0].to(like.device)
        return cls(weights, placed_queries, extent, scale)

    def sums(self, values: Tensor) -> Tensor:
        """Σ_j A_ij d_ij and Σ_j A_ij over keys with a position, (b, groups, heads, queries, 2).

        `values` (b, groups, heads, queries, keys) is the largest tensor of a model, so both sums
        are computed in one read of it.
        """
        batch, groups, heads, queries, keys = values.shape
        if groups == 1:  # one small product per query: five times as fast as the loop below
            rows = values.to(self.weights.dtype).reshape(batch * heads, queries, keys)
            products = torch.bmm(self.weights[0], rows.permute(1, 2, 0))
            return products.permute(2, 0, 1).reshape(batch, 1, heads, queries, 2)
        weights = self.weights[:, None].unbind(3)
        return torch.cat(
            [torch.stack([(part * w).sum(-1) for w in weights], -1) for part in portions(values)]
        )

    def mean_distance(self, sums: Tensor, renormalise: bool = True) -> tuple[Tensor, Tensor]:
        """Reduce `sums` to the mean distance and the attention to keys without a position.

        Parameters
        ----------
        sums
            What `AttentionGeometry.sums` returned.
        renormalise
            Scale the attention to keys with a position to sum to one. Otherwise a key without a
            position counts as distance zero.

        Returns
        -------
        distance, elsewhere
            Both (b, heads) in float64, mean over the queries that have a position.
        """
        moment, mass = sums.unbind(-1)
        distance = self._mean(moment / mass if renormalise else moment)
        return self.scale * distance, 1 - self._mean(mass)

    def _mean(self, per_query: Tensor) -> Tensor:
        """Mean of (b, groups, heads, queries) over the queries that have a position."""
        flat = per_query.transpose(1, 2).flatten(2)
        return flat.index_select(2, self.placed_queries).double().nanmean(-1)
