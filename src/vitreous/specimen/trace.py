"""Position numbers: for every element of a tensor, the image position it belongs to.

A number is `image * SPAN + position`. The position counts the cells of a grid in raster order, or
is `PREFIX + j` for the j-th token that belongs to no cell (class, distillation, register, learned
query). `NOWHERE` marks padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitreous.specimen.anatomy import Grid

SPAN = 1 << 40
PREFIX = 1 << 32
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """Position numbers for every element of a tensor, and the grid they count.

    An element of an attention matrix belongs to two positions, those of its query and its key:
    `across` holds the second.
    """

    ids: Tensor
    grid: Grid
    prefix: tuple[str, ...] = ()
    """Names of the tokens without a cell."""
    across: Trace | None = None

    def like(self, ids: Tensor) -> Trace:
        """A trace with other numbers of the same grid, and without `across`."""
        return Trace(ids, self.grid, self.prefix)

    def each(self, change: Callable[[Tensor], Tensor]) -> Trace:
        """Apply a function to the numbers, and to those of `across`."""
        across = self.across.each(change) if self.across is not None else None
        return replace(self, ids=change(self.ids), across=across)

    @property
    def both(self) -> tuple[Trace, ...]:
        """The trace and its `across`, if any, as separate traces."""
        if self.across is None:
            return (self,)
        return replace(self, across=None), self.across


def paired(traces: list[Trace]) -> Trace | None:
    """The first trace, with the first other that varies along further dimensions as `across`."""
    if not traces:
        return None
    first = replace(traces[0], across=None)
    dims = varying(first.ids) if len(traces) > 1 else set()
    for other in traces[1:]:
        if varying(other.ids) - dims:
            return replace(first, across=replace(other, across=None))
    return first


def constant_along(ids: Tensor, dim: int) -> bool:
    """Whether positions do not vary along `dim`; takes no time if `dim` is expanded (stride 0)."""
    if ids.shape[dim] == 1 or ids.stride(dim) == 0:
        return True
    return bool((ids == ids.narrow(dim, 0, 1)).all())


def varying(ids: Tensor) -> set[int]:
    """The dimensions along which positions differ."""
    distinct = compact(ids)
    return {dim for dim in range(ids.ndim) if not constant_along(distinct, dim)}


def compact(ids: Tensor) -> Tensor:
    """The same numbers with size one along expanded dimensions (stride 0)."""
    for dim in range(ids.ndim):
        ids = ids.narrow(dim, 0, 1) if ids.stride(dim) == 0 and ids.shape[dim] else ids
    return ids


def on_grid(trace: Trace | None) -> bool:
    """Whether some elements belong to a cell of the grid."""
    return trace is not None and bool((compact(trace.ids) % SPAN < PREFIX).any())


def only_prefix(trace: Trace | None) -> bool:
    """Whether there are only prefix tokens."""
    return trace is not None and not on_grid(trace)


def image_trace(shape: tuple[int, ...]) -> Trace | None:
    """The positions of the pixels of a batch of images; None for inputs of another rank."""
    if len(shape) != 4:
        return None
    batch, _, rows, columns = shape
    cells = torch.arange(rows * columns).reshape(1, 1, rows, columns)
    ids = torch.arange(batch).reshape(-1, 1, 1, 1) * SPAN + cells
    return Trace(ids.expand(shape), (rows, columns))


def expandable(shape: torch.Size, into: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can be expanded into the other."""
    sizes = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(a in (1, b) for a, b in sizes)


def in_raster_order(ids: Tensor) -> bool:
    """Whether a plane of numbers is in raster order, ignoring padding."""
    line = ids.flatten()
    line = line[line >= 0] % SPAN
    return bool((line[1:] > line[:-1]).all()) and bool((line < PREFIX).all())


def strided(trace: Trace) -> Trace:
    """The numbers after indexing: regularly subsampled cells form a new grid, a crop does not."""
    ids = compact(trace.ids)
    position = ids % SPAN
    cells = position[(ids >= 0) & (position < PREFIX)]
    width = trace.grid[1]
    rows, columns = torch.unique(cells // width), torch.unique(cells % width)
    row_steps, column_steps = (set(line.diff().tolist()) for line in (rows, columns))
    even = len(row_steps) <= 1 and len(column_steps) <= 1
    if not cells.numel() or not even or max(row_steps | column_steps, default=1) == 1:
        return trace
    row = torch.searchsorted(rows, position // width)
    column = torch.searchsorted(columns, position % width)
    new = torch.where(position < PREFIX, row * len(columns) + column, position)
    new = torch.where(ids < 0, NOWHERE, ids // SPAN * SPAN + new)
    return Trace(new.expand_as(trace.ids), (len(rows), len(columns)), trace.prefix)


def merge_cells(trace: Trace, dim: int) -> Trace | None:
    """Merge the cells along `dim` into one; None if the merged cells do not form a grid.

    Padding is ignored.
    """
    ids = compact(trace.ids)
    inside = ids >= 0
    position, image = ids % SPAN * inside, ids.amax(dim, keepdim=True) // SPAN
    if bool((position >= PREFIX).any()) or bool((image < 0).any()):
        return None
    width, count = trace.grid[1], inside.sum(dim, keepdim=True)

    def mean(line: Tensor) -> Tensor:
        average = (line * inside).sum(dim, keepdim=True).double() / count
        return average.mul(720720).round()  # so that rounding does not make equal means differ

    def middle(line: Tensor) -> Tensor:  # for patches cropped at the border of the image
        low = torch.where(inside, line, PREFIX).amin(dim, keepdim=True)
        return low + torch.where(inside, line, 0).amax(dim, keepdim=True)

    for centre in (mean, middle):
        row, rows = torch.unique(centre(position // width), return_inverse=True)
        column, columns = torch.unique(centre(position % width), return_inverse=True)
        grid = (row.numel(), column.numel())
        if grid[0] * grid[1] * image.unique().numel() <= rows.numel():
            new = image * SPAN + rows * grid[1] + columns
            shape = list(trace.ids.shape)
            shape[dim] = 1
            return Trace(new.expand(shape), grid)
    return None


def shrink_windows(trace: Trace, size: Grid) -> Trace | None:
    """Downsample windows (b * windows, c, rows, columns) to `size` by an integer factor.

    None if the tensor does not hold windows, or the factor does not divide the grid.
    """
    ids = trace.ids[:, :1]
    rows, columns = ids.shape[2:]
    if rows % size[0] or columns % size[1] or (ids[:, 0, 0, 0] % SPAN).unique().numel() == 1:
        return None
    down, right = rows // size[0], columns // size[1]
    corner, (height, width) = ids[:, :, ::down, ::right], trace.grid
    position = corner % SPAN
    without_cell = bool((corner < 0).any()) or bool((position >= PREFIX).any())
    if height % down or width % right or without_cell:
        return None
    grid = (height // down, width // right)
    cell = position // width // down * grid[1] + position % width // right
    return Trace(corner // SPAN * SPAN + cell, grid)


def on_finest_grid(traces: list[Trace | None]) -> list[Trace | None]:
    """Prepare concatenated tokens of several grids: all get the finest grid.

    Cells of the other grids become prefix tokens (RegionViT's regions, frequencies beside patches).
    """
    placed = [t for t in traces if t is not None and on_grid(t)]
    finest = max(placed, key=lambda t: t.grid[0] * t.grid[1], default=None)
    if finest is None or len({t.grid for t in placed}) == 1:
        return traces
    names = max((t.prefix for t in traces if t is not None), key=len)
    moved: list[Trace | None] = []
    for trace in traces:
        if trace is not None and trace.grid != finest.grid:
            position = trace.ids % SPAN
            ids = trace.ids + torch.where(position < PREFIX, PREFIX + len(names), 0)
            names = names + ("region",) * (trace.grid[0] * trace.grid[1])
            trace = Trace(torch.where(trace.ids < 0, NOWHERE, ids), finest.grid, names)
        moved.append(trace)
    return [replace(t, prefix=names) if t is not None else None for t in moved]
