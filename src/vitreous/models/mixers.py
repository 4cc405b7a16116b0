"""Token mixers for transformer blocks.

Every mixer maps (batch, tokens, width) to the same shape. Mixers that attend over all tokens
include prefix tokens; the others work on the grid alone. All attention is one fused product, so
nothing of size batch x heads x N x N is stored (except with relative positions, whose logits depend
on the query).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.models.positions import Grid, Relative

Mixer = Literal[
    "attention", "neighbourhood", "window", "mean", "pool", "box", "identity", "token_mlp"
]
Border = Literal["masked", "zero"]

WITH_PREFIX: tuple[Mixer, ...] = ("attention", "mean")
"""Mixers in which a class token can attend to the others."""


class Attention(nn.Module):
    """Multi-head self-attention over all tokens, softmax(q k^T / sqrt(head_dim)) v."""

    def __init__(
        self, width: int, heads: int, head_dim: int, bias: bool, relative: Relative | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=bias)
        self.proj = nn.Linear(heads * head_dim, width)
        self.relative = relative

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=self.logits(q)))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, heads, tokens, head_dim)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def merge(self, heads: Tensor) -> Tensor:
        """Concatenate the heads and project them."""
        return self.proj(heads.transpose(1, 2).flatten(2))

    def logits(self, q: Tensor) -> Tensor | None:
        """Logits of relative positions, zero for prefix tokens; None without relative positions."""
        if self.relative is None:
            return None
        prefix = q.shape[2] - math.prod(self.relative.grid)
        logits = self.relative(q[:, :, prefix:] / math.sqrt(q.shape[-1]))
        return F.pad(logits, (prefix, 0, prefix, 0))

    def weights(self, x: Tensor) -> Tensor:
        """The attention matrix (batch, heads, tokens, tokens); `forward` does not compute it."""
        q, k, _ = self.split(x)
        added = self.logits(q)
        return (q @ k.mT / math.sqrt(q.shape[-1]) + (0 if added is None else added)).softmax(-1)


def neighbourhood(grid: Grid, kernel: int, dilation: int = 1) -> Tensor:
    """Which keys lie in the kernel x kernel window centred on each query: a boolean (N, N)."""
    raster = torch.arange(grid[0] * grid[1])
    offsets = [place[:, None] - place for place in (raster // grid[1], raster % grid[1])]
    reach = dilation * (kernel - 1) // 2
    return torch.stack([(o.abs() <= reach) & (o % dilation == 0) for o in offsets]).all(0)


class NeighbourhoodAttention(Attention):
    """Convolutional attention: each query attends to the kernel x kernel positions around it.

    The window is a mask on the fused product: N^2 arithmetic, but no unfolded copies of keys and
    values, which at the grids of these papers is both faster and smaller.

    At the border the released code of Park & Kim 2022 attends to the zero padding: each missing
    neighbour is a key with logit 0 and value 0. `border="zero"` does that with a single extra key
    whose logit is the log of their number.
    """

    mask: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        head_dim: int,
        bias: bool,
        grid: Grid,
        kernel: int,
        dilation: int,
        border: Border,
    ) -> None:
        super().__init__(width, heads, head_dim, bias)
        near = neighbourhood(grid, kernel, dilation)
        mask = torch.zeros(near.shape).masked_fill(~near, -torch.inf)
        if border == "zero":
            missing = kernel**2 - near.sum(-1, keepdim=True)
            mask = torch.cat([mask, missing.log()], -1)
        self.border = border
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        if self.border == "zero":
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask.to(q.dtype)))

    def weights(self, x: Tensor) -> Tensor:
        """Attention over the real keys; with `border="zero"` some rows sum to less than one."""
        q, k, _ = self.split(x)
        k = F.pad(k, (0, 0, 0, 1)) if self.border == "zero" else k
        logits = q @ k.mT / math.sqrt(q.shape[-1]) + self.mask.to(q.dtype)
        return logits.softmax(-1)[..., : q.shape[2]]


class WindowAttention(Attention):
    """Attention inside non-overlapping window x window squares, as in Swin without shifts."""

    def __init__(
        self, width: int, heads: int, head_dim: int, bias: bool, grid: Grid, window: int
    ) -> None:
        super().__init__(width, heads, head_dim, bias)
        self.tiles = (grid[0] // window, window, grid[1] // window, window)

    def forward(self, x: Tensor) -> Tensor:
        rows, window, columns, _ = self.tiles
        tiles = torch.unflatten(x, 1, self.tiles).transpose(2, 3)
        tiles = tiles.reshape(-1, window * window, x.shape[-1])
        mixed = super().forward(tiles).reshape(-1, rows, columns, window, window, x.shape[-1])
        return mixed.transpose(2, 3).reshape(x.shape)


class MeanAttention(nn.Module):
    """Data-agnostic attention: one fixed matrix per head in place of softmax(q k^T).

    Uniform until set, usually to the mean over a dataset of a trained model's attention
    (`vit.mean_attention`). It is kept as logits, so that rows always sum to one; `learned` trains
    them.
    """

    pattern: Tensor

    def __init__(
        self, width: int, heads: int, head_dim: int, bias: bool, tokens: int, learned: bool
    ) -> None:
        super().__init__()
        self.heads = heads
        self.v = nn.Linear(width, heads * head_dim, bias=bias)
        self.proj = nn.Linear(heads * head_dim, width)
        uniform = torch.zeros(heads, tokens, tokens)
        if learned:
            self.pattern = nn.Parameter(uniform)
        else:
            self.register_buffer("pattern", uniform)

    def forward(self, x: Tensor) -> Tensor:
        v = self.v(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.proj((self.pattern.softmax(-1) @ v).transpose(1, 2).flatten(2))


def box_mean(x: Tensor, grid: Grid, kernel: int) -> Tensor:
    """Mean over the kernel x kernel positions around each token that exist.

    An even kernel reaches one further down and right.
    """
    before, after = (kernel - 1) // 2, kernel // 2
    padding = (before, after, before, after)
    image = torch.unflatten(x.transpose(1, 2), -1, grid)
    covered = F.avg_pool2d(F.pad(torch.ones_like(image[:1, :1]), padding), kernel, stride=1)
    means = F.avg_pool2d(F.pad(image, padding), kernel, stride=1) / covered
    return means.flatten(2).transpose(1, 2)


class Pool(nn.Module):
    """Average pooling minus the token itself, without parameters (PoolFormer)."""

    def __init__(self, grid: Grid, kernel: int) -> None:
        super().__init__()
        self.grid, self.kernel = grid, kernel

    def forward(self, x: Tensor) -> Tensor:
        return box_mean(x, self.grid, self.kernel) - x


class Box(nn.Module):
    """Attention that is uniform over kernel x kernel positions, with values and projection."""

    def __init__(self, width: int, bias: bool, grid: Grid, kernel: int) -> None:
        super().__init__()
        self.grid, self.kernel = grid, kernel
        self.v = nn.Linear(width, width, bias=bias)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(box_mean(self.v(x), self.grid, self.kernel))


class TokenMlp(nn.Module):
    """Two dense layers along the tokens, the same for every channel (MLP-Mixer)."""

    def __init__(self, tokens: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(tokens, hidden)
        self.fc2 = nn.Linear(hidden, tokens)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x.transpose(1, 2)))).transpose(1, 2)
