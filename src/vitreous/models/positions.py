"""Position encodings of the Vision Transformer.

Absolute encodings return the table to add, (1, prefix + N, width). The relative one returns logits
for attention to add. Prefix tokens (class, distillation) come first and have their own rows; they
have no place on the grid, so relative offsets to and from them add nothing.

`resample_from` interpolates the values of the same encoding on another grid; prefix rows are
copied.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Grid = tuple[int, int]
Position = Literal["none", "1d", "2d", "sinusoidal", "relative"]
Offsets = Literal["1d", "2d", "full"]
Resampling = Literal["bilinear", "bicubic"]


def resample(field: Tensor, grid: Grid, mode: Resampling) -> Tensor:
    """Interpolate a field (height, width, channels) to another grid.

    Bilinear keeps the corners in place, as the original ViT code does (scipy's zoom of order 1), so
    constant and linear fields stay exact. Bicubic is DeiT's, which keeps the norm of the vectors.
    """
    planes = field.permute(2, 0, 1)[None]
    planes = F.interpolate(planes, size=grid, mode=mode, align_corners=mode == "bilinear")
    return planes[0].permute(1, 2, 0)


class Learned1d(nn.Module):
    """One vector per raster position."""

    def __init__(self, grid: Grid, prefix: int, width: int) -> None:
        super().__init__()
        self.grid, self.prefix = grid, prefix
        self.table = nn.Parameter(torch.empty(1, prefix + grid[0] * grid[1], width))

    def forward(self) -> Tensor:
        return self.table

    @torch.no_grad()
    def resample_from(self, other: Self, mode: Resampling) -> None:
        prefix, field = other.table[0, : other.prefix], other.table[0, other.prefix :]
        moved = resample(field.reshape(*other.grid, -1), self.grid, mode)
        self.table.copy_(torch.cat([prefix, moved.flatten(0, 1)])[None])


class Learned2d(nn.Module):
    """A table for the column and one for the row, half the width each, concatenated."""

    def __init__(self, grid: Grid, prefix: int, width: int) -> None:
        super().__init__()
        self.grid = grid
        self.prefix = nn.Parameter(torch.empty(prefix, width))
        self.rows = nn.Parameter(torch.empty(grid[0], width // 2))
        self.columns = nn.Parameter(torch.empty(grid[1], width // 2))

    def forward(self) -> Tensor:
        height, width = self.grid
        columns = self.columns[None].expand(height, -1, -1)
        rows = self.rows[:, None].expand(-1, width, -1)
        return torch.cat([self.prefix, torch.cat([columns, rows], -1).flatten(0, 1)])[None]

    @torch.no_grad()
    def resample_from(self, other: Self, mode: Resampling) -> None:
        self.prefix.copy_(other.prefix)
        self.rows.copy_(resample(other.rows[:, None], (self.grid[0], 1), mode)[:, 0])
        self.columns.copy_(resample(other.columns[None], (1, self.grid[1]), mode)[0])


class Sinusoidal(nn.Module):
    """Fixed sines and cosines of the position (Vaswani et al. 2017); prefix rows are zero."""

    table: Tensor

    def __init__(self, grid: Grid, prefix: int, width: int) -> None:
        super().__init__()
        positions = torch.arange(grid[0] * grid[1], dtype=torch.float64)
        exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
        angles = positions[:, None] * 10000.0**-exponents
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()
        table = torch.cat([torch.zeros(prefix, width), waves])[None]
        self.register_buffer("table", table, persistent=False)

    def forward(self) -> Tensor:
        return self.table

    def resample_from(self, other: Self, mode: Resampling) -> None:
        """Nothing to interpolate: the table is a formula."""


class Relative(nn.Module):
    """Learned vectors per offset between query and key; their product with the query is a logit.

    `offsets` says which pairs share a vector: "1d" the distance along the raster (2N-1), "2d"
    the offset in rows and columns ((2h-1)(2w-1)), "full" none (N^2). The vectors are looked up for
    every pair before the product, which costs heads x N^2 x head_dim numbers per layer, independent
    of the batch.
    """

    index: Tensor

    def __init__(
        self, grid: Grid, heads: int, head_dim: int, offsets: Offsets, shared: bool
    ) -> None:
        super().__init__()
        self.grid, self.offsets = grid, offsets
        height, width = grid
        counts = {
            "1d": 2 * height * width - 1,
            "2d": (2 * height - 1) * (2 * width - 1),
            "full": (height * width) ** 2,
        }
        self.table = nn.Parameter(torch.empty(1 if shared else heads, counts[offsets], head_dim))
        self.register_buffer("index", relative_index(grid, offsets), persistent=False)

    def forward(self, queries: Tensor) -> Tensor:
        """Logits (batch, heads, N, N) for scaled queries (batch, heads, N, head_dim)."""
        vectors = self.table[:, self.index].expand(queries.shape[1], -1, -1, -1)
        return torch.einsum("bhid,hijd->bhij", queries, vectors)

    @torch.no_grad()
    def resample_from(self, other: Self, mode: Resampling) -> None:
        (height, width), (rows, columns) = self.grid, other.grid
        fields = torch.unflatten(other.table, 1, (2 * rows - 1, 2 * columns - 1))
        grid = (2 * height - 1, 2 * width - 1)
        moved = [resample(field, grid, mode).flatten(0, 1) for field in fields]
        self.table.copy_(torch.stack(moved))


def relative_index(grid: Grid, offsets: Offsets) -> Tensor:
    """The number of the vector that each pair (query, key) uses: (N, N)."""
    count = grid[0] * grid[1]
    raster = torch.arange(count)
    if offsets == "full":
        return raster[:, None] * count + raster
    if offsets == "1d":
        return raster[:, None] - raster + count - 1
    row, column = raster // grid[1], raster % grid[1]
    down, right = row[:, None] - row + grid[0] - 1, column[:, None] - column + grid[1] - 1
    return down * (2 * grid[1] - 1) + right


ABSOLUTE: dict[str, type[Learned1d | Learned2d | Sinusoidal]] = {
    "1d": Learned1d,
    "2d": Learned2d,
    "sinusoidal": Sinusoidal,
}
