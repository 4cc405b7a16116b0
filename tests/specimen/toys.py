"""Models of a few lines, opened at 16 px: 4 x 4 patches of 4 px, 8 channels, with or without a
class token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from vitreous.specimen.specimen import Specimen

WIDTH = 8
HEADS = 2


class Patches(nn.Module):
    """Images to tokens, with a class token in front if wanted."""

    def __init__(self, cls: bool = False) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, WIDTH, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH)) if cls else None

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.proj(images).flatten(2).transpose(1, 2)
        return (
            tokens
            if self.cls_token is None
            else torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], 1)
        )


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def unfused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1) @ value


class Attention(nn.Module):
    """Self-attention around any product of queries, keys and values; fewer key heads than query
    heads if wanted."""

    def __init__(
        self, attend: Attend = F.scaled_dot_product_attention, key_heads: int = HEADS
    ) -> None:
        super().__init__()
        self.attend, self.sizes = attend, (HEADS, key_heads, key_heads)
        self.qkv = nn.Linear(WIDTH, WIDTH // HEADS * sum(self.sizes))
        self.proj = nn.Linear(WIDTH, WIDTH)

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values as (b, heads, tokens, channels)."""
        parts = self.qkv(tokens).split([WIDTH // HEADS * heads for heads in self.sizes], -1)
        return tuple(part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in parts)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.split(tokens)
        return self.proj(self.attend(query, key, value).transpose(1, 2).flatten(2))


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))


class Block(nn.Module):
    """Attention and MLP one after the other."""

    def __init__(self, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), attention or Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))


class Parallel(nn.Module):
    """Attention and MLP side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = nn.LayerNorm(WIDTH), Attention(), Mlp()

    def forward(self, tokens: Tensor) -> Tensor:
        inner = self.norm(tokens)
        return tokens + self.attn(inner) + self.mlp(inner)


class Transformer(nn.Module):
    def __init__(self, *blocks: nn.Module, cls: bool = False) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = (
            Patches(cls),
            nn.Sequential(*blocks),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, images: Tensor) -> Any:
        return self.head(self.blocks(self.stem(images)).mean(1))


class Residual(nn.Module):
    """Two convolutions around which a skip runs; the activations work in place."""

    def __init__(self, width: int = WIDTH, out: int = WIDTH, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out)
        self.act = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Conv2d(width, out, 1, stride) if (width, stride) != (out, 1) else nn.Identity()
        )

    def forward(self, value: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(self.act(self.bn1(self.conv1(value)))))
        branch += self.downsample(value)
        return self.act(branch)


class Convolutional(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, WIDTH, 3, 1, 1), nn.Sequential(*blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.LazyLinear(5)

    def forward(self, images: Tensor) -> Any:
        return self.head(self.pool(self.blocks(self.stem(images))).flatten(1))


class Choosy(nn.Module):
    """Looks at its input to decide what to do, which no exported graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act = nn.Conv2d(3, WIDTH, 3, 2, 1), nn.ReLU(inplace=True)
        self.body, self.head = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1), nn.Linear(WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        value = self.act(self.stem(images))
        if value.sum() > 1e6:
            value = value * 2
        return self.head(self.body(value).mean((2, 3)))


def part(model: nn.Module, path: str) -> Any:
    """A submodule, whose attributes the type checker cannot know."""
    return model.get_submodule(path)


def settled(model: nn.Module, size: int = 16) -> nn.Module:
    """Random weights, running statistics that are not the identity, evaluation mode."""
    torch.manual_seed(3)
    with torch.no_grad():
        model.train()(torch.randn(8, 3, size, size))
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def open_toy(model: nn.Module, size: int = 16) -> Specimen:
    return vitreous.open(settled(model, size), image=size)


def pictures(count: int = 2, size: int = 16) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(4))
