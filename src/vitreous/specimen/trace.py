"""Position numbers: for every element of a tensor, which place of the image it belongs to.

A number is `batch * SPAN + position`, where position counts the cells of a grid in raster order, or is `PREFIX + j` for
the j-th token that belongs to no cell (class, distillation, register, learned query). `NOWHERE` marks padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from vitreous.specimen.anatomy import Grid

SPAN = 1 << 40
PREFIX = 1 << 32
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """Position numbers for every element of a tensor, and the grid they count.

    An element of a matrix of attention belongs to two places, that of its query and that of its key: `across` holds
    the second.
    """

    ids: Tensor
    grid: Grid
    prefix: tuple[str, ...] = ()
    across: Trace | None = None

    def like(self, ids: Tensor) -> Trace:
        """Other numbers of the same grid, and no second ones."""
        return Trace(ids, self.grid, self.prefix)

    def each(self, change: Callable[[Tensor], Tensor]) -> Trace:
        """The same change made to both sets of numbers."""
        across = self.across.each(change) if self.across is not None else None
        return replace(self, ids=change(self.ids), across=across)

    @property
    def both(self) -> tuple[Trace, ...]:
        """One set of numbers at a time."""
        if self.across is None:
            return (self,)
        return replace(self, across=None), self.across


def paired(found: list[Trace]) -> Trace | None:
    """The first set of numbers, with the first other one that varies along a dimension along which it does not."""
    if not found:
        return None
    first = replace(found[0], across=None)
    fixed = varying(first.ids) if len(found) > 1 else set()
    for other in found[1:]:
        if varying(other.ids) - fixed:
            return replace(first, across=replace(other, across=None))
    return first


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The node's shape for the example batch."""
    return tuple(node.meta["val"].shape)


def constant_along(ids: Tensor, dim: int) -> bool:
    """Whether all elements along `dim` come from the same position; free where `dim` is an expanded one."""
    if ids.shape[dim] == 1 or ids.stride(dim) == 0:
        return True
    return bool((ids == ids.narrow(dim, 0, 1)).all())


def varying(ids: Tensor) -> set[int]:
    """The dimensions along which positions differ."""
    few = compact(ids)
    return {dim for dim in range(ids.ndim) if not constant_along(few, dim)}


def compact(ids: Tensor) -> Tensor:
    """The same numbers without the dimensions along which they are merely expanded."""
    for dim in range(ids.ndim):
        ids = ids.narrow(dim, 0, 1) if ids.stride(dim) == 0 and ids.shape[dim] else ids
    return ids


def on_grid(trace: Trace | None) -> bool:
    """Whether some elements belong to a cell of the grid."""
    return trace is not None and bool((compact(trace.ids) % SPAN < PREFIX).any())


def only_prefix(trace: Trace | None) -> bool:
    """Whether only tokens without a place are left."""
    return trace is not None and not on_grid(trace)


def of_image(shape: tuple[int, ...]) -> Trace | None:
    """The pixels of a batch of images."""
    if len(shape) != 4:
        return None
    batch, channels, rows, columns = shape
    ids = torch.arange(batch).reshape(-1, 1, 1, 1) * SPAN + torch.arange(rows * columns).reshape(
        1, 1, rows, columns
    )
    return Trace(ids.expand(batch, channels, rows, columns), (rows, columns))


def fits(shape: torch.Size, into: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can be expanded into the other."""
    return len(shape) <= len(into) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(into), strict=False)
    )


def raster(ids: Tensor) -> bool:
    """Whether a plane of position numbers runs row by row (padding aside), as a convolution expects."""
    line = ids.flatten()
    line = line[line >= 0] % SPAN
    return bool((line[1:] > line[:-1]).all()) and bool((line < PREFIX).all())


def thinned(trace: Trace) -> Trace:
    """Every second row and column (a strided slice) is a grid of its own; a crop is not."""
    ids = compact(trace.ids)
    position = ids % SPAN
    cells = position[(ids >= 0) & (position < PREFIX)]
    width = trace.grid[1]
    rows, columns = torch.unique(cells // width), torch.unique(cells % width)
    steps = [set((line[1:] - line[:-1]).tolist()) for line in (rows, columns)]
    if (
        not cells.numel()
        or max(map(len, steps)) > 1
        or max([max(s) for s in steps if s], default=1) == 1
    ):
        return trace
    row = torch.searchsorted(rows, position // width)
    column = torch.searchsorted(columns, position % width)
    new = torch.where(position < PREFIX, row * len(columns) + column, position)
    new = torch.where(ids < 0, NOWHERE, ids // SPAN * SPAN + new)
    return Trace(new.expand_as(trace.ids), (len(rows), len(columns)), trace.prefix)


def coarser(trace: Trace, dim: int) -> Trace | None:
    """Cells merged along `dim` become one cell each, ordered by where their centres lie; padding does not count."""
    ids = compact(trace.ids)
    inside = ids >= 0
    position, batch = ids % SPAN * inside, ids.amax(dim, keepdim=True) // SPAN
    if bool((position >= PREFIX).any()) or bool((batch < 0).any()):
        return None
    width, count = trace.grid[1], inside.sum(dim, keepdim=True)

    def mean(line: Tensor) -> Tensor:
        average = (line * inside).sum(dim, keepdim=True).double() / count
        return average.mul(720720).round()  # equal in spite of rounding

    def middle(
        line: Tensor,
    ) -> Tensor:  # of patches that the border of the image cuts off irregularly
        low = torch.where(inside, line, PREFIX).amin(dim, keepdim=True)
        return low + torch.where(inside, line, 0).amax(dim, keepdim=True)

    for centre in (mean, middle):
        row, rows = torch.unique(centre(position // width), return_inverse=True)
        column, columns = torch.unique(centre(position % width), return_inverse=True)
        grid = (row.numel(), column.numel())
        if grid[0] * grid[1] * batch.unique().numel() <= rows.numel():
            new = batch * SPAN + rows * grid[1] + columns
            return Trace(
                new.expand(
                    [1 if d == dim % ids.ndim else n for d, n in enumerate(trace.ids.shape)]
                ),
                grid,
            )
    return None


def within_windows(trace: Trace, size: Grid) -> Trace | None:
    """Windows (b * windows, c, rows, columns) made smaller by a whole factor: the grid shrinks as a whole."""
    ids = trace.ids[:, :1]
    rows, columns = ids.shape[2:]
    if rows % size[0] or columns % size[1] or (ids[:, 0, 0, 0] % SPAN).unique().numel() == 1:
        return None
    down, right = rows // size[0], columns // size[1]
    corner, width = ids[:, :, ::down, ::right], trace.grid[1]
    position = corner % SPAN
    if (
        trace.grid[0] % down
        or width % right
        or bool((corner < 0).any())
        or bool((position >= PREFIX).any())
    ):
        return None
    grid = (trace.grid[0] // down, width // right)
    cell = position // width // down * grid[1] + position % width // right
    return Trace(corner // SPAN * SPAN + cell, grid)


def one_grid(traces: list[Trace | None]) -> list[Trace | None]:
    """Tokens of several grids put in one row: the finest grid counts, cells of the others are tokens without a place
    (RegionViT's regions, frequencies beside patches)."""
    placed = [t for t in traces if t is not None and on_grid(t)]
    finest = max(placed, key=lambda t: t.grid[0] * t.grid[1], default=None)
    if finest is None or len({t.grid for t in placed}) == 1:
        return traces
    names = max((t.prefix for t in traces if t is not None), key=len)
    found: list[Trace | None] = []
    for trace in traces:
        if trace is not None and trace.grid != finest.grid:
            position = trace.ids % SPAN
            ids = trace.ids + torch.where(position < PREFIX, PREFIX + len(names), 0)
            names = names + ("region",) * (trace.grid[0] * trace.grid[1])
            trace = Trace(torch.where(trace.ids < 0, NOWHERE, ids), finest.grid, names)
        found.append(trace)
    return [replace(t, prefix=names) if t is not None else None for t in found]


def token_name(node: fx.Node) -> str:
    """What a learned token is called, from the parameter it comes from."""
    queue, seen = [node], ""
    while queue and len(seen) < 1000:
        current = queue.pop()
        seen += f" {current.target}" if current.op == "get_attr" else ""
        queue.extend(current.all_input_nodes)
    for word, name in (
        ("dist", "distillation"),
        ("reg", "register"),
        ("cls", "class"),
        ("class", "class"),
    ):
        if word in seen:
            return name
    return "prefix"
