"""What is a residual join and what only looks like one, on models of a few lines."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vitreous


def outline(model: nn.Module, image: int = 16) -> list[str]:
    """Kind and name of the units between stem and head; a trailing `|` marks one without a skip."""
    specimen = vitreous.open(model, image=image)
    inner = [u for u in specimen.units if u.kind not in ("stem", "head")]
    return [f"{u.kind} {u.name}{'' if u.skip else ' |'}" for u in inner]


class Tokens(nn.Module):
    """Patches, one block, mean, classifier; the block is what a test is about."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.parts = nn.ModuleDict(parts)
        self.classify = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2)
        return self.classify(self.block(tokens).mean(1))

    def block(self, x: Tensor) -> Tensor:
        raise NotImplementedError


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(
            torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        )


class PostNorm(Tokens):
    def block(self, x: Tensor) -> Tensor:
        x = self.parts["norm1"](x + self.parts["attention"](x))
        return self.parts["norm2"](x + self.parts["mlp"](x))


class Parallel(Tokens):
    def block(self, x: Tensor) -> Tensor:
        normed = self.parts["norm"](x)
        return x + self.parts["attention"](normed) + self.parts["mlp"](normed)


class Rotary(Tokens):
    """Queries turned by their position: an addition of two things made from the same tensor, with
    nothing learned."""

    def block(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1]).to(x.dtype)[:, None]
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        turned = x * angle.cos() + half * angle.sin()
        return x + self.parts["mlp"](turned)


class NoSkip(Tokens):
    def block(self, x: Tensor) -> Tensor:
        return self.parts["mlp"](self.parts["attention"](x))


class LayerScale(Tokens):
    def block(self, x: Tensor) -> Tensor:
        return x + 0.1 * self.parts["mlp"](self.parts["norm"](x))


class Fusion(Tokens):
    """Two long paths added up: neither is a skip of the other."""

    def block(self, x: Tensor) -> Tensor:
        return self.parts["left"](x) + self.parts["right"](x)


class Mean(Tokens):
    """Mixing by a fixed matrix over positions."""

    def block(self, x: Tensor) -> Tensor:
        return x + self.parts["over"](x.transpose(1, 2)).transpose(1, 2)


class Gated(Tokens):
    """Squeeze and excitation multiplies; what it adds up inside is not a join."""

    def block(self, x: Tensor) -> Tensor:
        gate = self.parts["gate"](x.mean(1, keepdim=True)).sigmoid()
        return x + self.parts["mlp"](x) * gate


@pytest.mark.parametrize(
    ("model", "units"),
    [
        (
            PostNorm(
                norm1=nn.LayerNorm(8), norm2=nn.LayerNorm(8), attention=SelfAttention(), mlp=mlp()
            ),
            ["attention parts.attention", "mlp parts.mlp"],
        ),
        (
            Parallel(norm=nn.LayerNorm(8), attention=SelfAttention(), mlp=mlp()),
            ["attention parts.attention", "mlp parts.mlp"],
        ),
        (Rotary(mlp=mlp()), ["mlp parts.mlp"]),
        (
            NoSkip(attention=SelfAttention(), mlp=mlp()),
            ["attention parts.attention |", "mlp parts.mlp |"],
        ),
        (LayerScale(norm=nn.LayerNorm(8), mlp=mlp()), ["mlp parts.mlp"]),
        (Mean(over=nn.Linear(16, 16)), ["token-mlp parts.over"]),
        (Gated(mlp=mlp(), gate=nn.Linear(8, 8)), ["mlp parts"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_units_of_a_token_block(model: nn.Module, units: list[str]) -> None:
    assert outline(model) == units


def test_two_long_paths_are_no_residual() -> None:
    specimen = vitreous.open(Fusion(left=mlp(), right=mlp()), image=16)
    assert not any(unit.skip for unit in specimen.units)


class Maps(nn.Module):
    """A stem, one block on feature maps, a head."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(block)
        self.classify = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.blocks(self.stem(images).relu()).mean((2, 3)))


def conv(stride: int = 1, kernel: int = 3, width: int = 8) -> nn.Module:
    return nn.Conv2d(width, width, kernel, stride, kernel // 2, bias=False)


class Projection(nn.Module):
    """A strided block whose skip is a 1x1 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.one, self.two = conv(2, 1), conv(2), conv()

    def forward(self, x: Tensor) -> Tensor:
        return (self.down(x) + self.two(self.one(x).relu())).relu()


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = conv(), conv()

    def forward(self, x: Tensor) -> Tensor:
        out = self.two(torch.relu_(self.one(x)))
        out += x
        return torch.relu_(out)


class Reparameterised(nn.Module):
    """Two convolutions side by side and nothing else: one convolution written as two."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = conv(), conv(kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        return (self.wide(x) + self.narrow(x)).relu()


class Split(nn.Module):
    """Res2Net's hierarchy: parts of a tensor are added to convolutions of other parts, inside one
    block."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.part, self.out = conv(kernel=1), conv(width=4), conv(kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.into(x).relu().chunk(2, 1)
        first = self.part(first).relu()
        return x + self.out(torch.cat([first, self.part(first + second).relu()], 1))


class LongSkip(nn.Module):
    """A skip around two whole blocks: the blocks are the units."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = InPlace(), InPlace()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


@pytest.mark.parametrize(
    ("block", "units"),
    [
        (Projection(), ["conv blocks.0"]),
        (InPlace(), ["conv blocks.0"]),
        (Reparameterised(), ["conv blocks |"]),
        (Split(), ["conv blocks.0"]),
        (LongSkip(), ["conv blocks.0.first", "conv blocks.0.second"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_units_of_a_convolutional_block(block: nn.Module, units: list[str]) -> None:
    model = Maps(block).eval()
    assert outline(model) == units
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(vitreous.open(model, image=16)(images), model(images))


class Dense(nn.Module):
    """Every layer sees all before it, and all are kept to the end: no single tensor carries
    everything."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8 + i, 1, 3, padding=1) for i in range(layers))
        self.out = nn.Conv2d(8 + layers, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)).relu())
        return self.out(torch.cat(seen, 1))


def test_a_convolution_after_a_dense_block_is_a_unit() -> None:
    model = Maps(Dense(70))
    model.blocks.append(conv())
    assert "conv blocks.1 |" in outline(model, 8)


def test_a_strided_projection_starts_a_stage() -> None:
    specimen = vitreous.open(Maps(Projection()), image=16)
    assert [(unit.grid, unit.stage) for unit in specimen.units] == [
        ((16, 16), 0),
        ((8, 8), 1),
        (None, 1),
    ]
