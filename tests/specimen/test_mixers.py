"""Global token mixers are a kind of their own, and positions outlive them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from specimen.toys import WIDTH, Block, Mlp, Transformer, open_toy, pictures, settled


class Mixed(Block):
    """A mixer in the place of attention."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.attn = mixer


class Fourier(nn.Module):
    """FNet: a transform over channels, then over tokens; the real part is kept."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.fft.fft(torch.fft.fft(tokens, dim=-1), dim=-2).real


class GlobalFilter(nn.Module):
    """GFNet: a learned filter in the frequency domain."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, WIDTH, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(tokens.unflatten(1, (4, 4)), dim=(1, 2), norm="ortho")
        filtered = spectrum * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(filtered, s=(4, 4), dim=(1, 2), norm="ortho").flatten(1, 2)


class Cosines(nn.Module):
    """A fixed matrix over positions."""

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        n = torch.arange(16.0)
        self.register_buffer("matrix", torch.cos(torch.pi / 16 * (n[None] + 0.5) * n[:, None]))
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.proj(self.matrix @ tokens)


class LongConvolution(nn.Module):
    """A filter as long as the sequence, by Fourier transforms of twice the length."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(WIDTH, 16))

    def forward(self, tokens: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(tokens.mT, n=32) * torch.fft.rfft(self.kernel, n=32)
        return torch.fft.irfft(spectrum, n=32)[..., :16].mT


class Long(nn.Conv1d):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH, 31, padding=15, groups=WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens.mT).mT


class Scan(nn.Module):
    """A running mean over all tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.proj(tokens.cumsum(1) / torch.arange(1, 17)[:, None])


class Recurrent(nn.GRU):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(tokens)[0]


@pytest.mark.parametrize(
    "mixer", [Fourier, GlobalFilter, Cosines, LongConvolution, Long, Scan, Recurrent]
)
def test_a_global_mixer_is_a_mixer(mixer: Callable[[], nn.Module]) -> None:
    specimen = open_toy(Transformer(Mixed(mixer()), Block()))
    kinds = [(unit.kind, unit.grid) for unit in specimen.units]
    wanted = ["stem", "mixer", "mlp", "attention", "mlp"]
    assert kinds == [(kind, (4, 4)) for kind in wanted] + [("head", None)]
    found = specimen.observe(pictures(), ["branch"])[specimen.units[1].name].branch
    assert found is not None
    assert found.map.shape == (2, WIDTH, 4, 4)


def test_learned_weights_over_positions_stay_a_token_mlp() -> None:
    class TokenMlp(nn.Module):
        def __init__(self, einsum: bool) -> None:
            super().__init__()
            self.weight, self.einsum = nn.Parameter(torch.randn(16, 16)), einsum

        def forward(self, tokens: Tensor) -> Tensor:
            if self.einsum:
                return torch.einsum("nm,bmd->bnd", self.weight, tokens)
            return self.weight @ tokens

    for einsum in (False, True):
        units = open_toy(Transformer(Mixed(TokenMlp(einsum)), Block())).units
        assert units[1].kind == "token-mlp"


def test_a_fourier_transform_over_channels_mixes_no_positions() -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(WIDTH, WIDTH)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.proj(torch.fft.fft(tokens, dim=-1).real.relu())

    assert open_toy(Transformer(Mixed(Channels()), Block())).units[1].kind == "mlp"


def test_overlapping_patches_keep_a_grid() -> None:
    """T2T: patches are cut out with overlap and padding, and become tokens at the first norm."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.proj = nn.LayerNorm(27), nn.Linear(27, WIDTH)
            self.blocks, self.mlp, self.head = nn.Sequential(Block()), Mlp(), nn.Linear(WIDTH, 5)

        def forward(self, pixels: Tensor) -> Tensor:
            patches = F.unfold(pixels, 3, stride=4, padding=1).mT
            return self.head(self.blocks(self.proj(self.norm(patches))).mean(1))

    specimen = vitreous.open(settled(Tokens()), image=(3, 16, 16))
    assert [unit.grid for unit in specimen.units if unit.kind == "attention"] == [(4, 4)]
