"""Convert any feature tensor to tokens (b, prefix + h*w, c) or to a map (b, c, h, w)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.inputs import EXAMPLE_BATCH
from vitreous.specimen.trace import PREFIX, SPAN, Trace, compact, constant_along


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """The batch dimension of a tensor, which may also contain windows."""

    dim: int
    inner: int
    """Number of windows (or other groups) of each image along the dimension."""
    major: bool
    """True if all windows of an image are contiguous (`b*windows`), False for `windows*b`."""

    def split(self, value: Tensor) -> Tensor:
        """Reshape `value` to (batch, inner, …), with the other dimensions in their order."""
        value = value.movedim(self.dim, 0)
        batch = value.shape[0] // self.inner
        if self.major:
            return value.unflatten(0, (batch, self.inner))
        return value.unflatten(0, (self.inner, batch)).transpose(0, 1)

    def join(self, value: Tensor) -> Tensor:
        """The inverse of `split`."""
        return (value if self.major else value.transpose(0, 1)).flatten(0, 1).movedim(0, self.dim)

    @classmethod
    def of(cls, ids: Tensor) -> BatchAxis | None:
        """The batch axis of a tensor with these position numbers; None if no dimension is one."""
        image = ids // SPAN
        for dim in range(ids.ndim):
            low = high = image
            other_dims = [d for d in range(ids.ndim) if d != dim]
            if other_dims:  # padding belongs to any image
                low = torch.where(ids < 0, EXAMPLE_BATCH, image).amin(other_dims)
                high = torch.where(ids < 0, -1, image).amax(other_dims)
            if bool((low == high).all()) and int(high.max()) > 0:
                return cls._from_images(dim, high)
        return None

    @classmethod
    def _from_images(cls, dim: int, image: Tensor) -> BatchAxis | None:
        inner = len(image) // EXAMPLE_BATCH
        for major in (True, False):
            blocks = image.unflatten(0, (EXAMPLE_BATCH, inner) if major else (inner, EXAMPLE_BATCH))
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
    """Indices that sort the positions: prefix first, then the grid in raster order; None if they
    are sorted."""
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
        """The layout of a tensor with these position numbers.

        None if there is no layout for them (overlapping windows) or the tensor is empty.
        """
        if not trace.ids.numel():
            return None
        distinct = compact(trace.ids)
        batch = BatchAxis.of(distinct)
        if batch is None:
            return None
        ids = batch.split(distinct)[0] % SPAN
        places = tuple(d for d in range(ids.ndim) if not constant_along(ids, d)) or (0,)
        for d in range(ids.ndim):
            ids = ids if d in places else ids.narrow(d, 0, 1)
        channels = trace.ids.numel() // (EXAMPLE_BATCH * ids.numel())
        positions, order = ids.flatten().sort()
        positions, order = positions[positions < SPAN - 1], order[positions < SPAN - 1]
        is_prefix = positions >= PREFIX
        prefix, cells = (positions[is_prefix] - PREFIX).tolist(), positions[~is_prefix].tolist()
        complete = not cells or cells == list(range(trace.grid[0] * trace.grid[1]))
        if len(set(prefix)) < len(prefix) or not complete:
            return None
        index = (*order[is_prefix].tolist(), *order[~is_prefix].tolist())
        return cls(
            batch=batch,
            places=tuple(d + 1 for d in places),
            order=None if index == tuple(range(ids.numel())) else index,
            prefix=tuple(trace.prefix[j] for j in prefix),
            grid=trace.grid if cells else None,
            channels=channels,
        )


@dataclass(frozen=True)
class Centred:
    """Feature maps (b, c, h, w) minus their mean over positions, in float32 or better."""

    tokens: Tensor
    """(b, h*w, c) minus the mean."""
    means: Tensor
    """(b, 1, c)"""
    grid: Grid

    @classmethod
    def of(cls, maps: Tensor) -> Centred:
        """Centre maps (b, c, h, w)."""
        tokens = maps.flatten(2).transpose(1, 2).to(torch.promote_types(maps.dtype, torch.float32))
        means = tokens.mean(1, keepdim=True)
        return cls(tokens - means, means, (maps.shape[2], maps.shape[3]))

    @cached_property
    def variance(self) -> Tensor:
        """(b,) variance over positions, mean over channels; zero if it is only rounding."""
        _, count, channels = self.tokens.shape
        squares = torch.linalg.vector_norm(self.tokens, dim=(1, 2)).square()
        variance = squares / ((count - 1) * channels)
        rounding = (2 * torch.finfo(self.tokens.dtype).eps * self.means).square().mean((1, 2))
        return variance.where(variance > rounding, 0.0)
