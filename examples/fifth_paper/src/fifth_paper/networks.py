"""A ViT with register tokens: the same network with a few more tokens in front."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vitreous


class WithRegisters(nn.Module):
    """A ViT of Vitreous whose blocks also see register tokens, which are dropped at the end."""

    def __init__(self, vit: Any, registers: int) -> None:
        super().__init__()
        self.vit = vit
        self.prefix = int(vit.num_prefix_tokens)
        self.reg_token = nn.Parameter(0.02 * torch.randn(1, registers, vit.num_features))

    def forward(self, images: Tensor) -> Any:
        x = self.vit.embed(images)
        registers = self.reg_token.expand(x.shape[0], -1, -1)
        x = torch.cat([x[:, : self.prefix], registers, x[:, self.prefix :]], 1)
        for block in self.vit.blocks:
            x = block(x)
        x = self.vit.norm(x)
        x = torch.cat([x[:, : self.prefix], x[:, self.prefix + registers.shape[1] :]], 1)
        return self.vit.forward_head(x)


def with_registers(
    base: str,
    registers: int,
    image: Any = 224,
    classes: int = 1000,
    patch: int | None = None,
    depth: int | None = None,
    width: int | None = None,
    heads: int | None = None,
) -> WithRegisters:
    """Build the ViT `base` of Vitreous, with these options and register tokens."""
    given = {"patch": patch, "depth": depth, "width": width, "heads": heads}
    options = {name: value for name, value in given.items() if value is not None}
    return WithRegisters(vitreous.build(base, image=image, classes=classes, **options), registers)
