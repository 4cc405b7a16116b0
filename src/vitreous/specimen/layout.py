"""One way to read any feature tensor: as tokens (b, prefix + h*w, c) or as a map (b, c, h, w)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.graph import EXAMPLE_BATCH
from vitreous.specimen.trace import PREFIX, SPAN, Trace, compact, constant_along


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """The dimension that carries the batch, alone or multiplied with windows (`b*windows` or `windows*b`)."""

    dim: int
    inner: int
    major: bool

    def split(self, value: Tensor) -> Tensor:
        """`value` as (batch, inner, the other dimensions in their order)."""
        value = value.movedim(self.dim, 0)
        batch = value.shape[0] // self.inner
        return (
            value.unflatten(0, (batch, self.inner))
            if self.major
            else value.unflatten(0, (self.inner, batch)).transpose(0, 1)
        )

    def join(self, value: Tensor) -> Tensor:
        """The inverse of `split`."""
        return (value if self.major else value.transpose(0, 1)).flatten(0, 1).movedim(0, self.dim)

    @classmethod
    def of(cls, ids: Tensor) -> BatchAxis | None:
        for dim in range(ids.ndim):
            others = [d for d in range(ids.ndim) if d != dim]
            low = (
                torch.where(ids < 0, EXAMPLE_BATCH, ids // SPAN).amin(others)
                if others
                else ids // SPAN
            )
            high = torch.where(ids < 0, -1, ids // SPAN).amax(others) if others else ids // SPAN
            if bool((low == high).all()) and int(high.max()) > 0:
                return cls._arranged(dim, high)
        return None

    @classmethod
    def _arranged(cls, dim: int, along: Tensor) -> BatchAxis | None:
        """Whether the images come one after the other along the dimension, or interleaved."""
        inner = len(along) // EXAMPLE_BATCH
        for major in (True, False):
            blocks = along.unflatten(0, (EXAMPLE_BATCH, inner) if major else (inner, EXAMPLE_BATCH))
            blocks = blocks if major else blocks.T
            if torch.equal(blocks, torch.arange(EXAMPLE_BATCH)[:, None].expand(-1, inner)):
                return cls(dim, inner, major)
        return None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model lays out one of its tensors."""

    batch: BatchAxis
    places: tuple[int, ...]
    """Dimensions, after `batch.split`, that run over positions; the rest are channels."""
    order: tuple[int, ...] | None
    """Where each token lies among the positions, prefix first, then the grid in raster order; None: in that order."""
    prefix: tuple[str, ...]
    grid: Grid | None
    channels: int

    def tokens(self, value: Tensor) -> Tensor:
        """(b, prefix + h*w, c)."""
        value = self.batch.split(value)
        rest = [d for d in range(1, value.ndim) if d not in self.places]
        value = value.permute(0, *self.places, *rest).reshape(value.shape[0], -1, self.channels)
        return value if self.order is None else value[:, list(self.order)]

    def map(self, value: Tensor) -> Tensor:
        """(b, c, h, w), prefix tokens left out."""
        assert self.grid is not None
        return self.tokens(value)[:, len(self.prefix) :].transpose(1, 2).unflatten(2, self.grid)

    @classmethod
    def of(cls, trace: Trace) -> Layout | None:
        """The layout of a tensor with these position numbers; None where they fit none (overlapping windows, say), or
        where there are none (an empty slice)."""
        if not trace.ids.numel():
            return None
        few = compact(trace.ids)
        batch = BatchAxis.of(few)
        if batch is None:
            return None
        ids = batch.split(few)[0] % SPAN
        places = tuple(d for d in range(ids.ndim) if not constant_along(ids, d)) or (0,)
        for d in reversed(range(ids.ndim)):
            if d not in places:
                ids = ids.narrow(d, 0, 1)
        channels = trace.ids.numel() // (EXAMPLE_BATCH * ids.numel())
        positions = ids.flatten().tolist()
        prefix = sorted(p - PREFIX for p in positions if PREFIX <= p < SPAN - 1)
        cells = sorted(p for p in positions if p < PREFIX)
        names = tuple(trace.prefix[j] for j in prefix)
        if len(set(prefix)) < len(prefix) or (
            cells and cells != list(range(trace.grid[0] * trace.grid[1]))
        ):
            return None
        wanted = [PREFIX + j for j in prefix] + cells
        where = {p: i for i, p in enumerate(positions)}
        order = tuple(where[p] for p in wanted)
        natural = order == tuple(range(len(positions)))
        return cls(
            batch,
            tuple(d + 1 for d in places),
            None if natural else order,
            names,
            trace.grid if cells else None,
            channels,
        )
