"""ConViT: a vision transformer whose first layers can start as convolutions and choose to stay so (A1.18-20).

A gated positional self-attention layer (GPSA, A2.18) mixes two attentions, head by head:

    A = (1 - σ(λ)) softmax(Q Kᵀ / √d) + σ(λ) softmax(v · r),    r_δ = (δ_column, δ_row, ‖δ‖²)

The second one never sees the image, and its logits are a function of the column offset plus a function of the row
offset. The softmax of such a sum over a grid is *exactly* a softmax over rows times a softmax over columns, so
positional attention is two tiny matrices per head, (H, H) and (W, W), applied to the values of the whole batch. The
content part runs through torch's fused attention. Nothing of size batch x heads x N x N is ever stored, the relative
coordinates need no table, and a new resolution (A2.21) only means another range of offsets.

Parameter names and shapes are timm's, so that published ConViT checkpoints load as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, Literal

import timm
import torch
import torch.nn.functional as F
from timm.layers.drop import DropPath
from timm.layers.mlp import Mlp
from timm.layers.weight_init import trunc_normal_
from torch import Tensor, nn

from vitreous.errors import BadImages
from vitreous.models.registry import (
    TIMM_POOLS,
    BadModel,
    ConfiguredModel,
    Image,
    build,
    family,
    patch_grid,
    require,
    zero_head,
)
from vitreous.models.stems import PatchEmbed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Grid = tuple[int, int]
Centres = Literal["code", "paper"]


@dataclass(frozen=True)
class Size:
    """One column of ConViT's table 1 (A1.19). `heads` is a square, so that the centres can form a kernel."""

    heads: int
    head_dim: int
    depth: int = 12


SIZES = {
    "nano": Size(4, 24, 4),  # ours
    "ti": Size(4, 48),
    "s": Size(9, 48),
    "b": Size(16, 48),
    "ti+": Size(4, 64),
    "s+": Size(9, 64),
    "b+": Size(16, 64),
}

TABLE_3: dict[str, dict[str, object]] = {
    "a": {},
    "b": {"gate": "frozen"},
    "c": {"conv_init": False},
    "d": {"gate": "frozen", "conv_init": False},
    "e": {"gpsa": 0},
    "f": {"gate": "frozen", "frozen_attention": True},
    "g": {"gate": "frozen", "frozen_attention": True, "conv_init": False},
}
"""The options that make each row of the paper's ablation (C3)."""


def centres_of(heads: int, rule: Centres) -> Tensor:
    """Where each head looks at the start, (heads, 2) offsets (row, column) in patches, rows running fastest (A2.15).

    The released code centres the √heads x √heads kernel on the query, which for an even kernel falls between patches
    (±½, ±1½). The paper's example has whole patches, ±1 (X-21): "paper" rounds the halves away from zero.
    """
    side = isqrt(heads)
    steps = torch.arange(side) - (side - 1) / 2
    if rule == "paper":
        steps = steps.sign() * steps.abs().ceil()
    column, row = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([row.flatten(), column.flatten()], dim=1)


def outer(rows: Tensor, columns: Tensor) -> Tensor:
    """The attention (h, HW, HW) over a grid whose factors are (h, H, H) and (h, W, W)."""
    return (rows[:, :, None, :, None] * columns[:, None, :, None, :]).flatten(3, 4).flatten(1, 2)


def one_product(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """`two_products` as one (N, N) product per head: more arithmetic, fewer passes over memory."""
    batch, heads, n, depth = values.shape
    both = outer(rows, columns)
    out = torch.bmm(both, values.permute(1, 2, 0, 3).reshape(heads, n, batch * depth))
    return out.view(heads, n, batch, depth).permute(2, 1, 0, 3)


def two_products(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Positional attention axis by axis: factors (h, H, H) and (h, W, W), values (B, h, HW, d) to (B, HW, h, d).

    One copy brings the values into the order (h, H, W, B, d), in which both contractions are plain batched products.
    """
    batch, heads, n, depth = values.shape
    height, width = rows.shape[1], columns.shape[1]
    out = torch.bmm(rows, values.permute(1, 2, 0, 3).reshape(heads, height, width * batch * depth))
    columns = columns[:, None].expand(-1, height, -1, -1).reshape(heads * height, width, width)
    out = torch.bmm(columns, out.view(heads * height, width, batch * depth))
    return out.view(heads, n, batch, depth).permute(2, 1, 0, 3)


class PositionalAttention(nn.Module):
    """What PSA and GPSA share: content, three position weights per head, and the convolutional start (A2.14-19)."""

    def __init__(
        self, dim: int, heads: int, *, qkv_bias: bool = False, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5 if scale is None else scale
        self.qk = nn.Linear(dim, 2 * dim, bias=qkv_bias)
        self.v = nn.Linear(dim, dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        # v_pos: weights of (δ_column, δ_row, ‖δ‖²), as timm has it. The bias cannot matter: softmax forgets it.
        self.pos_proj = nn.Linear(3, heads)

    @torch.no_grad()
    def start_as_convolution(self, locality: float = 1.0, centres: Centres = "code") -> None:
        """W_val = I and v · r = -α (‖δ‖² - 2 Δ·δ): every head copies what lies around its offset Δ (A2.14, A2.19)."""
        nn.init.eye_(self.v.weight)
        row, column = centres_of(self.heads, centres).unbind(1)
        self.pos_proj.weight.copy_(
            locality * torch.stack([2 * column, 2 * row, -torch.ones_like(row)], dim=1)
        )

    def span(self) -> Tensor:
        """(heads,) squared radius of the positional attention, 1/α at the start: -1 / v₃ (A2.17)."""
        return -1 / self.pos_proj.weight.detach()[:, 2]

    def centre(self) -> Tensor:
        """(heads, 2) offset (row, column) that each head's positional attention looks at: v₁₂ · span / 2 (A2.17)."""
        return self.pos_proj.weight.detach()[:, [1, 0]] * self.span()[:, None] / 2

    def position_logits(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The two summands of v · r: (heads, H, H) of the row offset and (heads, W, W) of the column offset.

        In float32 at least: squared offsets are not exact in bfloat16.
        """
        weight = self.pos_proj.weight.to(
            torch.promote_types(self.pos_proj.weight.dtype, torch.float32)
        )
        across, down, square = weight[:, :, None, None].unbind(1)
        row, column = (_offsets(n, weight) for n in grid)
        return down * row + square * row**2 + self.pos_proj.bias[
            :, None, None
        ], across * column + square * column**2

    def position_factors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Row and column attention whose outer product is the positional attention over the grid."""
        rows, columns = self.position_logits(grid)
        return rows.softmax(-1), columns.softmax(-1)

    def position_attention(self, grid: Grid) -> Tensor:
        """Read-out: the positional attention as (heads, N, N)."""
        return outer(*self.position_factors(grid))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, N, d).

        The values lie in memory as (heads, N, B, d), the order in which positional attention needs them: content and
        position then share one copy, and only that is kept for the backward pass.
        """
        q, k = self.qk(x).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        v = self.v(x).unflatten(-1, (self.heads, -1)).permute(2, 1, 0, 3).contiguous()
        return q, k, v.permute(2, 0, 1, 3)


class GPSA(PositionalAttention):
    """Gated positional self-attention (A2.18). λ is 1 at the start, so heads look mostly by position: σ(1) = 0.731.

    With a class token inside (A2.20), every head attends to it as much as to the patch it attends to most, and the
    class token itself, having no place, attends to all alike.
    """

    explicit_attention = False
    """Whether `forward` makes A, at the price of its memory. Reading a graph sets it, so that A is there to be seen."""

    def __init__(
        self, dim: int, heads: int, *, qkv_bias: bool = False, scale: float | None = None
    ) -> None:
        super().__init__(dim, heads, qkv_bias=qkv_bias, scale=scale)
        self.gating_param = nn.Parameter(torch.ones(heads))

    def gate(self) -> Tensor:
        """(heads,) σ(λ), the share of positional attention."""
        return self.gating_param.detach().sigmoid()

    @torch.no_grad()
    def set_gate(self, share: float) -> None:
        """Force σ(λ) in all heads; 0 leaves content only and 1 position only, exactly (λ = ∓∞)."""
        self.gating_param.copy_(torch.full_like(self.gating_param, share).logit())

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.project(x)
        if self.explicit_attention:
            return self.proj((self.mixture(q, k, grid).to(v.dtype) @ v).transpose(1, 2).flatten(2))
        content = F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)
        gate = self.gating_param.sigmoid()
        by_position = self.look_by_position(v, gate, grid)
        mixed = torch.addcmul(by_position, content, (1 - gate).to(content.dtype)[:, None])
        return self.proj(mixed.flatten(2))

    def look_by_position(self, v: Tensor, gate: Tensor, grid: Grid) -> Tensor:
        """σ(λ) softmax(v · r) V for the whole batch, (B, N, heads, d). The gate rides on the small factor."""
        rows, columns = self.position_factors(grid)
        # One product is one pass over memory less but far more arithmetic: on a CPU it takes 4 to 7 times as long
        # (benchmarks/convit.py races them).
        product = one_product if v.is_cuda and v.shape[2] <= 1024 else two_products
        first = v.shape[2] - grid[0] * grid[1]
        if not first:
            return product((rows * gate[:, None, None]).to(v.dtype), columns.to(v.dtype), v)
        peak = (rows.amax(-1).T[:, None] * columns.amax(-1).T[None, :]).flatten(0, 1)[..., None]
        patches = product(rows.to(v.dtype), columns.to(v.dtype), v[:, :, first:])
        patches = (patches + v[:, :, :first].transpose(1, 2) * peak) / (1 + peak)
        both = torch.cat([v.mean(2)[:, None].to(patches.dtype), patches], dim=1)
        return (both * gate[:, None]).to(v.dtype)

    def mixture(self, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """A as (B, heads, N, N). Its rows sum to one before they are divided by their sum (X-23); that only says so."""
        position = self.position_attention(grid)
        if (tokens := q.shape[2]) > position.shape[-1]:
            peak = position.amax(-1, keepdim=True)
            position = F.pad(
                torch.cat([peak, position], dim=2) / (1 + peak), (0, 0, 1, 0), value=1 / tokens
            )
        content = (q @ k.transpose(-2, -1) * self.scale).softmax(-1, dtype=position.dtype)
        gate = self.gating_param.sigmoid()[:, None, None]
        mixed = (1 - gate) * content + gate * position
        return mixed / mixed.sum(-1, keepdim=True)

    def attention(self, x: Tensor, grid: Grid) -> Tensor:
        """Read-out: A as (B, heads, N, N). For looking; the forward pass does not make it."""
        q, k, _ = self.project(x)
        return self.mixture(q, k, grid)


class PSA(PositionalAttention):
    """Positional self-attention as first proposed (A2.13): content and position summed before one softmax.

    Position then rides on fused attention as a bias of (heads, N, N) numbers, whose gradient costs batch times that.
    """

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.project(x)
        bias = self.position_bias(grid, q.shape[2]).to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def position_bias(self, grid: Grid, tokens: int) -> Tensor:
        """v · r as (heads, tokens, tokens), with a class token in front as in `GPSA` where there is one."""
        rows, columns = self.position_logits(grid)
        bias = (
            (rows[:, :, None, :, None] + columns[:, None, :, None, :]).flatten(3, 4).flatten(1, 2)
        )
        if tokens == bias.shape[-1]:
            return bias
        return F.pad(torch.cat([bias.amax(-1, keepdim=True), bias], dim=2), (0, 0, 1, 0))

    def attention(self, x: Tensor, grid: Grid) -> Tensor:
        """Read-out: A as (B, heads, N, N)."""
        q, k, _ = self.project(x)
        return (
            q @ k.transpose(-2, -1) * self.scale + self.position_bias(grid, q.shape[2])
        ).softmax(-1)


class Attention(nn.Module):
    """Plain multi-head self-attention, for the layers above the gated ones."""

    def __init__(
        self, dim: int, heads: int, *, qkv_bias: bool = False, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.scale = scale
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.project(x)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, N, d)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def attention(self, x: Tensor, grid: Grid) -> Tensor:
        """Read-out: A as (B, heads, N, N)."""
        q, k, _ = self.project(x)
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return (q @ k.transpose(-2, -1) * scale).softmax(-1)


class Block(nn.Module):
    """Pre-norm transformer block around any of the three attentions."""

    def __init__(self, dim: int, attention: nn.Module, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, 4 * dim)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ConViT(ConfiguredModel):
    """Patches, blocks of positional attention, class token, plain blocks, head. `convit` below builds one."""

    def __init__(
        self,
        attentions: Sequence[PositionalAttention | Attention],
        *,
        dim: int,
        grid: Grid,
        patch: int,
        channels: int = 3,
        classes: int = 1000,
        pos: bool = True,
        class_before: int | None = 0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.grid, self.patch, self.heads = grid, patch, attentions[0].heads
        self.num_classes, self.num_features = classes, dim
        self.class_before = class_before
        self.patch_embed = PatchEmbed(channels, dim, patch)
        self.cls_token = None if class_before is None else nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, grid[0] * grid[1], dim)) if pos else None
        rates = [drop_path * i / max(1, len(attentions) - 1) for i in range(len(attentions))]
        self.blocks = nn.ModuleList(
            Block(dim, a, rate) for a, rate in zip(attentions, rates, strict=True)
        )
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes) if classes else nn.Identity()
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Truncated normals of 0.02 and biases of zero (D2)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for table in (self.cls_token, self.pos_embed):
            if table is not None:
                trunc_normal_(table, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        """All tokens after the last norm, the class token first where there is one."""
        grid, x = self.grid_of(images), self.embed(images)
        for index, block in enumerate(self.blocks):
            x = block(self.enter(index, x), grid)
        return self.norm(x)

    def embed(self, images: Tensor) -> Tensor:
        """Patches with their absolute positions."""
        x: Tensor = self.patch_embed(images)
        return x if self.pos_embed is None else x + self.pos_embed

    def enter(self, index: int, x: Tensor) -> Tensor:
        """What happens on the way into block `index`: the class token joins where its time has come."""
        if index != self.class_before or self.cls_token is None:
            return x
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The class token, or the mean of all patches where there is none, through the classifier."""
        x = x.mean(1) if self.cls_token is None else x[:, 0]
        return x if pre_logits else self.head(x)

    def grid_of(self, images: Tensor) -> Grid:
        """Rows and columns of patches; without a position table, any image that patches tile will do (A2.21)."""
        height, width = images.shape[-2:]
        grid = (height // self.patch, width // self.patch)
        if (
            height % self.patch
            or width % self.patch
            or (self.pos_embed is not None and grid != self.grid)
        ):
            raise BadImages(
                f"The model was built for images of {self.grid[0] * self.patch}x{self.grid[1] * self.patch} and got "
                f"{height}x{width}: resize the images, or the model with vitreous.models.convit.resize; built with "
                f"pos='none' it takes every multiple of its patch {self.patch}."
            )
        return grid

    def local(self) -> Iterator[PositionalAttention]:
        """The attentions that know about position, from the first block up."""
        return (block.attn for block in self.blocks if isinstance(block.attn, PositionalAttention))

    def gates(self) -> Tensor:
        """(layers, heads) σ(λ) of the gated layers."""
        return torch.stack([layer.gate() for layer in self.local() if isinstance(layer, GPSA)])

    def spans(self) -> Tensor:
        """(layers, heads) positional spans (A2.17)."""
        return torch.stack([layer.span() for layer in self.local()])

    def centres(self) -> Tensor:
        """(layers, heads, 2) centres of positional attention as (row, column) offsets in patches (A2.17)."""
        return torch.stack([layer.centre() for layer in self.local()])

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Attach a classifier of zeros (A3.04), none for 0 classes. What it reads was chosen when building."""
        pool = "gap" if self.cls_token is None else "class"
        asked = pool if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        require(
            (
                asked == pool,
                f"this ConViT was built with pool={pool!r} and cannot change to {asked!r}",
            )
        )
        self.num_classes = num_classes
        self.head = zero_head(self.num_features, num_classes).to(self.norm.weight)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "cls_token"} & dict(self.named_parameters()).keys()


@family("convit", SIZES, patches=(4, 16), by_size={"nano": {"image": 32, "patch": 4, "gpsa": 3}})
def convit(
    size: Size,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 leaves the pooled features
    patch: int = 16,  # usually written in the name
    channels: int = 3,  # of the image
    depth: int
    | None = None,  # blocks; None takes it, like heads and head_dim, from the size table (A1.19)
    heads: int | None = None,  # a square number, unless conv_init=False
    head_dim: int | None = None,  # channels of a head
    gpsa: int = 10,  # how many of the first blocks know about position; 0 is a plain ViT (A1.18)
    kind: Literal[
        "gpsa", "psa"
    ] = "gpsa",  # of those: gated (A2.18), or content and position in one softmax (A1.20)
    gate: Literal[
        "trained", "frozen"
    ] = "trained",  # "frozen" keeps λ = 0, half content and half position (C3)
    conv_init: bool = True,  # start as convolutions (A2.19)
    locality: float = 1.0,  # their strength α (A2.16)
    centres: Centres = "code",  # their offsets: ±½ for four heads, or whole patches (A2.15, X-21)
    frozen_attention: bool = False,  # never train the positional layers, gates included (C3, rows f and g)
    content_scale: float
    | None = None,  # of Q Kᵀ; None is 1/√head_dim, the paper's equation 4 has 1 (A2.13)
    qkv_bias: bool = False,  # bias of queries, keys and values
    pool: Literal["class", "gap"] = "class",  # what the head reads; "gap" has no class token
    class_at: Literal[
        "after", "start"
    ] = "after",  # the class token joins after the positional layers or first (A2.20)
    pos: Literal[
        "1d", "none"
    ] = "1d",  # absolute position table; with "none" images may have any size (A2.21)
    drop_path: float = 0.0,  # of the last block, growing linearly from 0 (A2.23)
) -> ConViT:
    """A vision transformer with gated positional self-attention. `TABLE_3` has the options of its ablations."""
    depth, heads, head_dim = depth or size.depth, heads or size.heads, head_dim or size.head_dim
    dim, square = heads * head_dim, isqrt(heads) ** 2 == heads
    class_before = None if pool == "gap" else gpsa if class_at == "after" else 0
    require(
        (0 <= gpsa <= depth, f"gpsa={gpsa} is not between 0 and depth={depth}"),
        (
            class_before != depth,
            f"gpsa={gpsa} leaves no block after it in which the class token could look",
        ),
        (not (gpsa and conv_init) or square, f"conv_init needs square heads, not {heads}"),
        (kind == "gpsa" or gate == "trained", "kind='psa' has no gate to freeze"),
    )
    layers = [GPSA if kind == "gpsa" else PSA] * gpsa + [Attention] * (depth - gpsa)
    model = ConViT(
        [layer(dim, heads, qkv_bias=qkv_bias, scale=content_scale) for layer in layers],
        dim=dim, grid=patch_grid(image, patch), patch=patch, channels=channels, classes=classes, pos=pos == "1d",
        class_before=class_before, drop_path=drop_path,
    )  # fmt: skip
    for attention in model.local():
        attention.requires_grad_(not frozen_attention)
        if conv_init:
            attention.start_as_convolution(locality, centres)
        if isinstance(attention, GPSA) and gate == "frozen":
            attention.set_gate(0.5)
            attention.gating_param.requires_grad_(False)
    return model


def resize(model: ConViT, image: Image, zoom: Literal["bilinear", "bicubic"] = "bicubic") -> ConViT:
    """The same weights for another image size. Only the absolute position table, if any, is interpolated (A2.21)."""
    other = build(**{**model.config, "image": image})
    assert isinstance(other, ConViT)
    state = model.state_dict()
    if model.pos_embed is not None:
        table = state["pos_embed"].mT.reshape(1, -1, *model.grid).float()
        table = F.interpolate(table, size=other.grid, mode=zoom, align_corners=False)
        state["pos_embed"] = table.flatten(2).mT.to(model.pos_embed.dtype)
    other.load_state_dict(state)
    return other.to(model.norm.weight).train(model.training)


def from_timm(source: Any) -> ConViT:
    """Ours from timm's, for example `timm.create_model("convit_small", pretrained=True)`: same shape, same weights."""
    first, dim = source.blocks[0].attn, source.embed_dim
    if source.global_pool != "token":
        raise BadModel(
            f"timm's ConViT has global_pool={source.global_pool!r}: only 'token' can be converted."
        )
    shapes = {(size.heads, size.heads * size.head_dim): name for name, size in SIZES.items()}
    model = build(
        f"convit_{shapes.get((first.num_heads, dim), 's')}",
        image=tuple(source.patch_embed.img_size), patch=source.patch_embed.patch_size[0], channels=source.in_chans,
        classes=source.num_classes, gpsa=source.local_up_to_layer, depth=len(source.blocks), heads=first.num_heads,
        head_dim=dim // first.num_heads, pos="1d" if source.use_pos_embed else "none",
        qkv_bias="blocks.0.attn.v.bias" in source.state_dict() or "blocks.0.attn.qkv.bias" in source.state_dict(),
    )  # fmt: skip
    assert isinstance(model, ConViT)
    model.load_state_dict(source.state_dict())
    return model.to(source.norm.weight).train(source.training)


def to_timm(model: ConViT) -> nn.Module:
    """timm's model with the shape and the weights of ours; refuses what timm cannot express."""
    config, local, (rows, columns) = model.config, len(list(model.local())), model.grid
    rules = (
        (config["kind"] == "gpsa", "it has no kind='psa'"),
        (
            model.class_before == local,
            "it adds a class token after the GPSA layers and nowhere else",
        ),
        (rows == columns, f"its grid is square, not {rows}x{columns}"),
        (config["content_scale"] is None, "it scales content by 1/√head_dim only"),
    )
    if wrong := [sentence for holds, sentence in rules if not holds]:
        raise BadModel(f"timm cannot express this ConViT: {'; '.join(wrong)}.")
    other: nn.Module = timm.create_model(
        "convit_small",
        img_size=rows * model.patch, patch_size=model.patch, in_chans=config["channels"], num_classes=model.num_classes,
        embed_dim=model.num_features // model.heads, num_heads=model.heads, depth=len(model.blocks),
        local_up_to_layer=local, use_pos_embed=model.pos_embed is not None, qkv_bias=config["qkv_bias"],
        drop_path_rate=config["drop_path"],
    )  # fmt: skip
    other.load_state_dict(model.state_dict())
    return other.to(model.norm.weight).train(model.training)


def _offsets(n: int, like: Tensor) -> Tensor:
    """(n, n) signed distance from query i to key j."""
    at = torch.arange(n, dtype=like.dtype, device=like.device)
    return at[None, :] - at[:, None]
