"""ConViT (d'Ascoli et al. 2021): a vision transformer whose first layers can start as convolutions.

A gated positional self-attention layer (GPSA) mixes two attentions, head by head:

    A = (1 - σ(λ)) softmax(Q Kᵀ / √d) + σ(λ) softmax(v · r),    r_δ = (δ_column, δ_row, ‖δ‖²)

The second does not depend on the image, and its logits are a function of the column offset plus a
function of the row offset. The softmax of such a sum over a grid is *exactly* a softmax over rows
times a softmax over columns, so positional attention is two small matrices per head, (H, H) and
(W, W), applied to the values of the full batch. The content part is torch's fused attention.
Nothing of size batch x heads x N x N is stored, the relative coordinates need no table, and
another resolution only means another range of offsets.

Parameter names and shapes are timm's, so that published ConViT checkpoints load unchanged.
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
    Classifier,
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
class ConViTSize:
    """A column of the paper's Table 1. `heads` is a square, so that the centres form a kernel."""

    heads: int
    head_dim: int
    depth: int = 12


SIZES = {
    "nano": ConViTSize(4, 24, 4),  # ours
    "ti": ConViTSize(4, 48),
    "s": ConViTSize(9, 48),
    "b": ConViTSize(16, 48),
    "ti+": ConViTSize(4, 64),
    "s+": ConViTSize(9, 64),
    "b+": ConViTSize(16, 64),
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
"""The options of each row of the paper's ablation, Table 3."""


def centres_of(heads: int, rule: Centres) -> Tensor:
    """Initial centres of attention: offsets (heads, 2) as (row, column) in patches, rows fastest.

    The released code centres the √heads x √heads kernel on the query, which for an even kernel
    falls between patches (±½, ±1½). The paper's example has full patches, ±1: "paper" rounds the
    halves away from zero.
    """
    side = isqrt(heads)
    steps = torch.arange(side) - (side - 1) / 2
    if rule == "paper":
        steps = steps.sign() * steps.abs().ceil()
    column, row = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([row.flatten(), column.flatten()], dim=1)


def outer(rows: Tensor, columns: Tensor) -> Tensor:
    """Attention (h, HW, HW) over a grid from its factors (h, H, H) and (h, W, W)."""
    return (rows[:, :, None, :, None] * columns[:, None, :, None, :]).flatten(3, 4).flatten(1, 2)


def one_product(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """`two_products` as one (N, N) product per head: more arithmetic, fewer passes over memory."""
    batch, heads, n, depth = values.shape
    both = outer(rows, columns)
    out = torch.bmm(both, values.permute(1, 2, 0, 3).reshape(heads, n, batch * depth))
    return out.view(heads, n, batch, depth).permute(2, 1, 0, 3)


def two_products(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Positional attention axis by axis: (h, H, H), (h, W, W) and (B, h, HW, d) to (B, HW, h, d).

    One copy brings the values into the order (h, H, W, B, d), in which both contractions are plain
    batched products.
    """
    batch, heads, n, depth = values.shape
    height, width = rows.shape[1], columns.shape[1]
    out = torch.bmm(rows, values.permute(1, 2, 0, 3).reshape(heads, height, width * batch * depth))
    columns = columns[:, None].expand(-1, height, -1, -1).reshape(heads * height, width, width)
    out = torch.bmm(columns, out.view(heads * height, width, batch * depth))
    return out.view(heads, n, batch, depth).permute(2, 1, 0, 3)


class PositionalAttention(nn.Module):
    """Base of PSA and GPSA: content, three position weights per head, convolutional start."""

    def __init__(
        self, dim: int, heads: int, *, qkv_bias: bool = False, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5 if scale is None else scale
        self.qk = nn.Linear(dim, 2 * dim, bias=qkv_bias)
        self.v = nn.Linear(dim, dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        # v_pos: weights of (δ_column, δ_row, ‖δ‖²), as in timm. The bias cancels in the softmax.
        self.pos_proj = nn.Linear(3, heads)

    @torch.no_grad()
    def start_as_convolution(self, locality: float = 1.0, centres: Centres = "code") -> None:
        """Set W_val = I and v · r = -α (‖δ‖² - 2 Δ·δ): heads copy values near their offset Δ."""
        nn.init.eye_(self.v.weight)
        row, column = centres_of(self.heads, centres).unbind(1)
        weights = torch.stack([2 * column, 2 * row, -torch.ones_like(row)], dim=1)
        self.pos_proj.weight.copy_(locality * weights)

    def span(self) -> Tensor:
        """Squared radius of the positional attention (heads,), 1/α at the start: -1 / v₃."""
        return -1 / self.pos_proj.weight.detach()[:, 2]

    def centre(self) -> Tensor:
        """Centre of each head's positional attention, offsets (heads, 2): v₁₂ · span / 2."""
        return self.pos_proj.weight.detach()[:, [1, 0]] * self.span()[:, None] / 2

    def position_logits(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The two summands of v · r: (heads, H, H) of row and (heads, W, W) of column offsets.

        In float32 at least: squared offsets are not exact in bfloat16.
        """
        exact = torch.promote_types(self.pos_proj.weight.dtype, torch.float32)
        weight, bias = self.pos_proj.weight.to(exact), self.pos_proj.bias[:, None, None]
        across, down, square = weight[:, :, None, None].unbind(1)
        row, column = (_offsets(n, weight) for n in grid)
        rows = down * row + square * row**2 + bias
        columns = across * column + square * column**2
        return rows, columns

    def position_factors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Row and column attention, whose outer product is the positional attention."""
        rows, columns = self.position_logits(grid)
        return rows.softmax(-1), columns.softmax(-1)

    def position_attention(self, grid: Grid) -> Tensor:
        """The positional attention (heads, N, N), for measurements."""
        return outer(*self.position_factors(grid))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, N, d).

        The values lie in memory as (heads, N, B, d), the order in which positional attention needs
        them: content and position then share one copy, and only that is kept for the backward pass.
        """
        q, k = self.qk(x).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        v = self.v(x).unflatten(-1, (self.heads, -1)).permute(2, 1, 0, 3).contiguous()
        return q, k, v.permute(2, 0, 1, 3)


class GPSA(PositionalAttention):
    """Gated positional self-attention. λ starts at 1, so position dominates: σ(1) = 0.731.

    The class token has no position. As a key it gets the position weight of the patch that is
    attended to most, and as a query it attends to all tokens equally.
    """

    explicit_attention = False
    """Whether `forward` computes A explicitly, which costs memory; True during graph export."""

    def __init__(
        self, dim: int, heads: int, *, qkv_bias: bool = False, scale: float | None = None
    ) -> None:
        super().__init__(dim, heads, qkv_bias=qkv_bias, scale=scale)
        self.gating_param = nn.Parameter(torch.ones(heads))

    def gate(self) -> Tensor:
        """σ(λ), the share of positional attention: (heads,)."""
        return self.gating_param.detach().sigmoid()

    @torch.no_grad()
    def set_gate(self, share: float) -> None:
        """Set σ(λ) of all heads; 0 is content only and 1 position only, exactly (λ = ∓∞)."""
        self.gating_param.copy_(torch.full_like(self.gating_param, share).logit())

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.project(x)
        if self.explicit_attention:
            return self.proj((self.mixture(q, k, grid).to(v.dtype) @ v).transpose(1, 2).flatten(2))
        content = F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)
        gate = self.gating_param.sigmoid()
        by_position = self.attend_by_position(v, gate, grid)
        mixed = torch.addcmul(by_position, content, (1 - gate).to(content.dtype)[:, None])
        return self.proj(mixed.flatten(2))

    def attend_by_position(self, v: Tensor, gate: Tensor, grid: Grid) -> Tensor:
        """σ(λ) softmax(v · r) V, (B, N, heads, d). The gate is multiplied into the small factor."""
        rows, columns = self.position_factors(grid)
        # One product is one pass over memory less but far more arithmetic: on a CPU it takes 4 to 7
        # times as long (benchmarks/convit.py).
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
        """A as (B, heads, N, N); rows are normalised although they sum to one, as in the code."""
        position = self.position_attention(grid)
        if (tokens := q.shape[2]) > position.shape[-1]:
            peak = position.amax(-1, keepdim=True)
            position = torch.cat([peak, position], dim=2) / (1 + peak)
            position = F.pad(position, (0, 0, 1, 0), value=1 / tokens)
        content = (q @ k.transpose(-2, -1) * self.scale).softmax(-1, dtype=position.dtype)
        gate = self.gating_param.sigmoid()[:, None, None]
        mixed = (1 - gate) * content + gate * position
        return mixed / mixed.sum(-1, keepdim=True)

    def attention(self, x: Tensor, grid: Grid) -> Tensor:
        """A as (B, heads, N, N), for measurements; `forward` does not compute it."""
        q, k, _ = self.project(x)
        return self.mixture(q, k, grid)


class PSA(PositionalAttention):
    """Positional self-attention: content and position are summed before one softmax.

    Position is a bias (heads, N, N) of fused attention, whose gradient costs batch times that.
    """

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.project(x)
        bias = self.position_bias(grid, q.shape[2]).to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def position_bias(self, grid: Grid, tokens: int) -> Tensor:
        """v · r as (heads, tokens, tokens), with a class token, if any, as in `GPSA`."""
        rows, columns = self.position_logits(grid)
        bias = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        bias = bias.flatten(3, 4).flatten(1, 2)
        if tokens == bias.shape[-1]:
            return bias
        return F.pad(torch.cat([bias.amax(-1, keepdim=True), bias], dim=2), (0, 0, 1, 0))

    def attention(self, x: Tensor, grid: Grid) -> Tensor:
        """A as (B, heads, N, N), for measurements."""
        q, k, _ = self.project(x)
        logits = q @ k.transpose(-2, -1) * self.scale + self.position_bias(grid, q.shape[2])
        return logits.softmax(-1)


class ContentAttention(nn.Module):
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
        """A as (B, heads, N, N), for measurements."""
        q, k, _ = self.project(x)
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return (q @ k.transpose(-2, -1) * scale).softmax(-1)


class ConViTBlock(nn.Module):
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


class ConViT(Classifier):
    """Patches, positional blocks, class token, plain blocks, head. `build_convit` makes one."""

    def __init__(
        self,
        attentions: Sequence[PositionalAttention | ContentAttention],
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
        super().__init__(dim, classes)
        self.grid, self.patch, self.heads = grid, patch, attentions[0].heads
        self.class_before = class_before
        self.patch_embed = PatchEmbed(channels, dim, patch)
        self.cls_token = None if class_before is None else nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, grid[0] * grid[1], dim)) if pos else None
        self.blocks = nn.ModuleList()
        for index, attention in enumerate(attentions):
            rate = drop_path * index / max(1, len(attentions) - 1)
            self.blocks.append(ConViTBlock(dim, attention, rate))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes) if classes else nn.Identity()
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Truncated normals of 0.02 and biases of zero, as in DeiT."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for table in (self.cls_token, self.pos_embed):
            if table is not None:
                trunc_normal_(table, std=0.02)

    def forward_features(self, images: Tensor) -> Tensor:
        """All tokens after the last norm, the class token first if there is one."""
        grid, x = self.grid_for(images), self.embed(images)
        for index, block in enumerate(self.blocks):
            x = block(self.enter(index, x), grid)
        return self.norm(x)

    def embed(self, images: Tensor) -> Tensor:
        """Patches with their absolute positions."""
        x: Tensor = self.patch_embed(images)
        return x if self.pos_embed is None else x + self.pos_embed

    def enter(self, index: int, x: Tensor) -> Tensor:
        """Tokens before block `index`: the class token is added in front before one of them."""
        if index != self.class_before or self.cls_token is None:
            return x
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits of the class token, or of the mean of all patches if there is none."""
        x = x.mean(1) if self.cls_token is None else x[:, 0]
        return x if pre_logits else self.head(x)

    def grid_for(self, images: Tensor) -> Grid:
        """Rows and columns of patches; with a position table, the image size must match it."""
        height, width = images.shape[-2:]
        rows, columns = height // self.patch, width // self.patch
        tiled = height % self.patch == width % self.patch == 0
        if not tiled or (self.pos_embed is not None and (rows, columns) != self.grid):
            built = f"{self.grid[0] * self.patch}x{self.grid[1] * self.patch}"
            raise BadImages(
                f"The model was built for images of {built} and got {height}x{width}: resize the "
                "images, or the model with vitreous.models.convit.resize_convit; built with "
                f"pos='none' it takes every multiple of its patch {self.patch}."
            )
        return rows, columns

    def positional_attentions(self) -> Iterator[PositionalAttention]:
        """The positional attention layers, from the first block up."""
        return (block.attn for block in self.blocks if isinstance(block.attn, PositionalAttention))

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Attach a classifier of zeros, none for 0 classes; the pooling cannot change."""
        pool = "gap" if self.cls_token is None else "class"
        wanted = pool if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        change = f"pool={pool!r} and cannot change to {wanted!r}"
        require((wanted == pool, f"this ConViT was built with {change}"))
        self.num_classes = num_classes
        self.head = zero_head(self.num_features, num_classes).to(self.norm.weight)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "cls_token"} & dict(self.named_parameters()).keys()


@family("convit", SIZES, patches=(4, 16), by_size={"nano": {"image": 32, "patch": 4, "gpsa": 3}})
def build_convit(
    size: ConViTSize,
    *,
    image: Image = 224,  # height and width in pixels, or one number for both
    classes: int = 1000,  # 0 returns the pooled features
    patch: int = 16,  # usually written in the name
    channels: int = 3,  # of the image
    depth: int | None = None,  # blocks; None: the size table's, as for heads and head_dim
    heads: int | None = None,  # a square number, unless conv_init=False
    head_dim: int | None = None,  # channels of a head
    gpsa: int = 10,  # how many of the first blocks know about position; 0 is a plain ViT
    kind: Literal["gpsa", "psa"] = "gpsa",  # of those: gated, or one softmax for both
    gate: Literal["trained", "frozen"] = "trained",  # "frozen" keeps λ = 0, both alike
    conv_init: bool = True,  # start as convolutions
    locality: float = 1.0,  # their strength α
    centres: Centres = "code",  # their offsets: ±½ for four heads, or full patches
    frozen_attention: bool = False,  # never train the positional layers, gates included
    content_scale: float | None = None,  # of Q Kᵀ; None is 1/√head_dim, equation 4 has 1
    qkv_bias: bool = False,  # bias of queries, keys and values
    pool: Literal["class", "gap"] = "class",  # what the head reads; "gap" has no class token
    class_at: Literal["after", "start"] = "after",  # class token after those, or first
    pos: Literal["1d", "none"] = "1d",  # absolute positions; with "none" images may have any size
    drop_path: float = 0.0,  # of the last block, growing linearly from 0
) -> ConViT:  # fmt: skip
    """A vision transformer with gated positional self-attention. `TABLE_3` has its ablations."""
    depth, heads, head_dim = depth or size.depth, heads or size.heads, head_dim or size.head_dim
    dim, square = heads * head_dim, isqrt(heads) ** 2 == heads
    class_block = gpsa if class_at == "after" else 0
    class_before = None if pool == "gap" else class_block
    require(
        (0 <= gpsa <= depth, f"gpsa={gpsa} is not between 0 and depth={depth}"),
        (class_before != depth,
         f"gpsa={gpsa} leaves no block after it in which the class token could look"),
        (not (gpsa and conv_init) or square, f"conv_init needs square heads, not {heads}"),
        (kind == "gpsa" or gate == "trained", "kind='psa' has no gate to freeze"),
    )  # fmt: skip
    layers = [GPSA if kind == "gpsa" else PSA] * gpsa + [ContentAttention] * (depth - gpsa)
    model = ConViT(
        [layer(dim, heads, qkv_bias=qkv_bias, scale=content_scale) for layer in layers],
        dim=dim, grid=patch_grid(image, patch), patch=patch, channels=channels, classes=classes,
        pos=pos == "1d", class_before=class_before, drop_path=drop_path,
    )  # fmt: skip
    for attention in model.positional_attentions():
        attention.requires_grad_(not frozen_attention)
        if conv_init:
            attention.start_as_convolution(locality, centres)
        if isinstance(attention, GPSA) and gate == "frozen":
            attention.set_gate(0.5)
            attention.gating_param.requires_grad_(False)
    return model


def resize_convit(
    model: ConViT, image: Image, mode: Literal["bilinear", "bicubic"] = "bicubic"
) -> ConViT:
    """A copy of the model for images of another size; absolute positions, if any, are interpolated.

    Examples
    --------
    >>> resize_convit(build("convit_ti/4", image=32), 48)
    """
    other = build(**{**model.config, "image": image})
    assert isinstance(other, ConViT)
    state = model.state_dict()
    if model.pos_embed is not None:
        table = state["pos_embed"].mT.reshape(1, -1, *model.grid).float()
        table = F.interpolate(table, size=other.grid, mode=mode, align_corners=False)
        state["pos_embed"] = table.flatten(2).mT.to(model.pos_embed.dtype)
    other.load_state_dict(state)
    return other.to(model.norm.weight).train(model.training)


def from_timm(source: Any) -> ConViT:
    """Our ConViT with the shape and weights of timm's.

    Examples
    --------
    >>> from_timm(timm.create_model("convit_small", pretrained=True))
    """
    first, dim, state = source.blocks[0].attn, source.embed_dim, source.state_dict()
    if source.global_pool != "token":
        raise BadModel(
            f"timm's ConViT has global_pool={source.global_pool!r}: only 'token' can be converted."
        )
    shapes = {(size.heads, size.heads * size.head_dim): name for name, size in SIZES.items()}
    model = build(
        f"convit_{shapes.get((first.num_heads, dim), 's')}",
        image=tuple(source.patch_embed.img_size), patch=source.patch_embed.patch_size[0],
        channels=source.in_chans, classes=source.num_classes, gpsa=source.local_up_to_layer,
        depth=len(source.blocks), heads=first.num_heads, head_dim=dim // first.num_heads,
        pos="1d" if source.use_pos_embed else "none",
        qkv_bias="blocks.0.attn.v.bias" in state or "blocks.0.attn.qkv.bias" in state,
    )  # fmt: skip
    assert isinstance(model, ConViT)
    model.load_state_dict(state)
    return model.to(source.norm.weight).train(source.training)


def to_timm(model: ConViT) -> nn.Module:
    """timm's ConViT with the shape and weights of ours; an error for what timm cannot express."""
    config, (rows, columns) = model.config, model.grid
    local = len(list(model.positional_attentions()))
    rules = (
        (config["kind"] == "gpsa", "it has no kind='psa'"),
        (model.class_before == local,
         "it adds a class token after the GPSA layers and nowhere else"),
        (rows == columns, f"its grid is square, not {rows}x{columns}"),
        (config["content_scale"] is None, "it scales content by 1/√head_dim only"),
    )  # fmt: skip
    wrong = [sentence for holds, sentence in rules if not holds]
    if wrong:
        raise BadModel(f"timm cannot express this ConViT: {'; '.join(wrong)}.")
    other: nn.Module = timm.create_model(
        "convit_small",
        img_size=rows * model.patch, patch_size=model.patch, in_chans=config["channels"],
        num_classes=model.num_classes, embed_dim=model.num_features // model.heads,
        num_heads=model.heads, depth=len(model.blocks), local_up_to_layer=local,
        use_pos_embed=model.pos_embed is not None, qkv_bias=config["qkv_bias"],
        drop_path_rate=config["drop_path"],
    )  # fmt: skip
    other.load_state_dict(model.state_dict())
    return other.to(model.norm.weight).train(model.training)


def _offsets(n: int, like: Tensor) -> Tensor:
    """Signed distances (n, n) from query i to key j."""
    at = torch.arange(n, dtype=like.dtype, device=like.device)
    return at[None, :] - at[:, None]
