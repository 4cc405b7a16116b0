"""Vision Transformer: An Image is Worth 16x16 Words, with the variations of the four papers.

    image -> tokens (+ class token) + positions
          -> L blocks of  x + mixer(norm(x)),  x + mlp(norm(x))  -> norm -> head

Parameters have the names they have in timm, so that weights move both ways
(`vit_state_from_timm`). DeiT is the same network with another initialisation and, optionally, a
distillation token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers.drop import DropPath
from timm.layers.weight_init import lecun_normal_, trunc_normal_
from torch import Tensor, nn

from vitreous.errors import BadImages
from vitreous.models.mixers import (
    WITH_PREFIX,
    Attention,
    Border,
    Box,
    MeanAttention,
    Mixer,
    NeighbourhoodAttention,
    Pool,
    TokenMlp,
    WindowAttention,
)
from vitreous.models.positions import (
    ABSOLUTE,
    Grid,
    Learned1d,
    Learned2d,
    Offsets,
    Position,
    Relative,
    Resampling,
    Sinusoidal,
)
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
from vitreous.models.stems import HybridEmbed, PatchEmbed, Stem

Readout = Literal["class", "gap", "gap_with_class"]
Init = Literal["jax", "timm"]


class ViTSize(NamedTuple):
    """A row of the size table; the hidden layer of the MLP is 4 x width."""

    depth: int
    width: int
    heads: int


SIZES = {  # Table 1 of the paper, DeiT's small ones, and one of our own
    "nano": ViTSize(3, 96, 4),
    "ti": ViTSize(12, 192, 3),
    "s": ViTSize(12, 384, 6),
    "b": ViTSize(12, 768, 12),
    "l": ViTSize(24, 1024, 16),
    "h": ViTSize(32, 1280, 16),
}
DEIT_SIZES = {  # "+" has ConViT's number of heads, 64 wide each
    "ti": SIZES["ti"],
    "s": SIZES["s"],
    "b": SIZES["b"],
    "ti+": ViTSize(12, 256, 4),
    "s+": ViTSize(12, 576, 9),
    "b+": ViTSize(12, 1024, 16),
}


class Mlp(nn.Module):
    """Two dense layers with GELU, dropout after each."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))


class ViTBlock(nn.Module):
    """One mixer and one MLP, each normalised before and added after, unless `skip` is False."""

    def __init__(
        self,
        width: int,
        mixer: nn.Module,
        hidden: int,
        dropout: float,
        drop_path: float,
        skip: bool,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = mixer
        self.drop = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, hidden, dropout)
        self.drop_path = DropPath(drop_path) if drop_path and skip else nn.Identity()
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        if not self.skip:
            x = self.drop(self.attn(self.norm1(x)))
            return self.mlp(self.norm2(x))
        x = x + self.drop_path(self.drop(self.attn(self.norm1(x))))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(Classifier):
    """The assembled model. `build_vit` below builds one from options."""

    def __init__(
        self,
        patch_embed: nn.Module,
        blocks: list[ViTBlock],
        positions: list[nn.Module],
        *,
        shape: tuple[int, int, int],
        width: int,
        prefix: int,
        pool: Readout,
        every: bool,
        dropout: float,
        final_norm: Literal["tokens", "pooled"],
        head: Literal["linear", "tanh"],
        classes: int,
    ) -> None:
        super().__init__(width, classes)
        self.shape, self.pool, self.every = shape, pool, every
        self.num_prefix_tokens = prefix
        self.distilled_training = False
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.empty(1, 1, width)) if prefix else None
        self.dist_token = nn.Parameter(torch.empty(1, 1, width)) if prefix == 2 else None
        self.positions = nn.ModuleList(positions)
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=1e-6) if final_norm == "tokens" else nn.Identity()
        self.fc_norm = nn.LayerNorm(width, eps=1e-6) if final_norm == "pooled" else nn.Identity()
        self.pre_logits: nn.Module = nn.Identity()
        if head == "tanh":
            self.pre_logits = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.head = zero_head(width, classes)
        self.head_dist = zero_head(width, classes) if prefix == 2 else None

    def embed(self, images: Tensor) -> Tensor:
        """Tokens as they enter the first block."""
        if images.shape[1:] != self.shape:
            raise BadImages(
                f"The model was built for images of shape {self.shape} and got "
                f"{tuple(images.shape[1:])}: resize the images, or the model with "
                "vitreous.models.vit.resize_vit."
            )
        return self.place(self.patch_embed(images))

    def place(self, x: Tensor) -> Tensor:
        """Patch embeddings with class token in front and positions added."""
        tokens = [token for token in (self.cls_token, self.dist_token) if token is not None]
        x = torch.cat([*(token.expand(x.shape[0], -1, -1) for token in tokens), x], 1)
        if len(self.positions):
            x = x + self.positions[0]()
        return self.pos_drop(x)

    def enter(self, index: int, x: Tensor) -> Tensor:
        """Tokens before block `index`, with positions added again if `inject` says so."""
        if not self.every or index == 0:
            return x
        return x + self.positions[index % len(self.positions)]()

    def forward_features(self, images: Tensor) -> Tensor:
        """All tokens after the last norm, prefix first."""
        x = self.embed(images)
        for index, block in enumerate(self.blocks):
            x = block(self.enter(index, x))
        return self.norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Logits; a distilled model returns the mean of its heads, or both in training."""
        if self.head_dist is not None:
            if pre_logits:
                return (x[:, 0] + x[:, 1]) / 2
            first, second = self.head(x[:, 0]), self.head_dist(x[:, 1])
            if self.distilled_training and self.training:
                return first, second
            return (first + second) / 2
        if self.pool == "class":
            x = x[:, 0]
        elif self.pool == "gap_with_class":
            x = x.mean(1)
        else:
            x = x[:, self.num_prefix_tokens :].mean(1)
        x = self.pre_logits(self.fc_norm(x))
        return x if pre_logits else self.head(x)

    def set_distilled_training(self, enable: bool = True) -> None:
        self.distilled_training = enable

    def get_classifier(self) -> nn.Module | tuple[nn.Module, ...]:
        return self.head if self.head_dist is None else (self.head, self.head_dist)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Remove the whole head, tanh layer included, and attach one of zeros."""
        pool = self.pool if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        require(
            (pool in ("class", "gap", "gap_with_class"),
             f"pool {pool!r} is none of 'class', 'gap', 'gap_with_class'"),
            (pool == "gap" or self.cls_token is not None,
             f"pool {pool!r} needs a class token and the model has none"),
            (pool == "class" or self.dist_token is None,
             f"a distilled model reads its tokens, not pool {pool!r}"),
        )  # fmt: skip
        self.pool, self.num_classes = pool, num_classes  # type: ignore[assignment]
        self.pre_logits = nn.Identity()
        like = next(self.parameters())
        self.head = zero_head(self.num_features, num_classes).to(like)
        if self.head_dist is not None:
            self.head_dist = zero_head(self.num_features, num_classes).to(like)

    @property
    def config(self) -> dict[str, Any]:
        return {
            **super().config,
            "pool": self.pool,
            "class_token": self.num_prefix_tokens > 0,
            "head": "linear" if isinstance(self.pre_logits, nn.Identity) else "tanh",
        }

    def no_weight_decay(self) -> set[str]:
        tables = ("positions.", "cls_token", "dist_token")
        names = [name for name, _ in self.named_parameters()]
        return {name for name in names if name.startswith(tables) or ".relative." in name}


@dataclass(frozen=True, kw_only=True)
class ViTOptions:
    """What can be chosen about a ViT; the manual shows the comments."""

    image: Image = 224  # height and width in pixels, or one number for both
    classes: int = 1000  # 0 returns the pooled features
    patch: int = 16  # pixels from one token to the next, usually written in the name
    channels: int = 3  # of the image
    stem: Stem = "patch"  # patches, or the feature map of a ResNet (hybrids)
    stem_width: float = 1.0  # width factor of the hybrid's ResNet
    depth: int | None = None  # blocks; None: the size table's, as for width and heads
    width: int | None = None  # channels of a token
    heads: int | None = None  # attention heads
    head_dim: int | None = None  # channels of a head; None is width / heads
    mlp_ratio: float = 4.0  # hidden layer of the MLP over width
    qkv_bias: bool = True  # bias of queries, keys and values
    pool: Readout = "class"  # what the head reads: the class token, or the mean of the tokens
    class_token: bool | None = None  # None has one unless pool="gap"
    distilled: bool = False  # a second token and head that learn from a teacher (DeiT)
    pos: Position = "1d"  # position encoding
    inject: Literal["stem", "every", "shared"] = "stem"  # once, before every block, or there shared
    offsets: Offsets = "1d"  # of pos="relative": which pairs share a vector
    relative_shared: bool = False  # of pos="relative": one table for all heads
    mixer: Mixer = "attention"  # what mixes tokens
    kernel: int = 3  # of the mixers neighbourhood, pool and box
    dilation: int = 1  # of the mixer neighbourhood
    border: Border = "masked"  # of the mixer neighbourhood: zero padding masked, or attended
    window: int = 4  # of the mixer window
    learn_pattern: bool = False  # of the mixer mean: train the fixed matrix
    skipless: tuple[int, ...] = ()  # blocks, counted from 0, without skip connections
    final_norm: Literal["tokens", "pooled"] = "tokens"  # before or after the mean over tokens
    head: Literal["linear", "tanh"] = "linear"  # "tanh": the pre-training head with a hidden layer
    dropout: float = 0.0  # after every dense layer but qkv, and after the positions
    drop_path: float = 0.0  # of the last block, growing linearly from 0
    init: Init = "jax"  # as in the original code (zero head), or truncated normals as in DeiT


@family("deit", DEIT_SIZES, patches=(16,), fields=ViTOptions, init="timm")
@family(
    "vit",
    SIZES,
    patches=(2, 4, 8, 14, 16, 32),
    fields=ViTOptions,
    by_size={"nano": {"image": 32, "patch": 4}},
)
def build_vit(size: ViTSize, o: ViTOptions) -> ViT:
    """Assemble stem, blocks, positions and head."""
    depth, width = o.depth or size.depth, o.width or size.width
    size = ViTSize(depth, width, o.heads or size.heads)
    grid = patch_grid(o.image, o.patch)
    has_class_token = o.pool != "gap" if o.class_token is None else o.class_token
    prefix = has_class_token + o.distilled
    _check_options(size, grid, prefix, o)
    if o.stem == "patch":
        stem: nn.Module = PatchEmbed(o.channels, width, o.patch)
    else:
        stem = HybridEmbed(o.stem, o.channels, width, o.patch, o.stem_width)
    blocks = []
    for index in range(depth):
        mixer = _build_mixer(size, grid, prefix, o)
        rate = o.drop_path * index / max(1, depth - 1)
        hidden = round(o.mlp_ratio * width)
        blocks.append(ViTBlock(width, mixer, hidden, o.dropout, rate, index not in o.skipless))
    positions: list[nn.Module] = []
    if o.pos in ABSOLUTE:
        tables = depth if o.inject == "every" else 1
        positions = [ABSOLUTE[o.pos](grid, prefix, width) for _ in range(tables)]
    model = ViT(
        stem,
        blocks,
        positions,
        shape=(o.channels, grid[0] * o.patch, grid[1] * o.patch),
        width=width,
        prefix=prefix,
        pool=o.pool,
        every=o.inject != "stem",
        dropout=o.dropout,
        final_norm=o.final_norm,
        head=o.head,
        classes=o.classes,
    )
    _initialise(model, o.init)
    return model


def _check_options(size: ViTSize, grid: Grid, prefix: int, o: ViTOptions) -> None:
    """Raise `BadModel` for options that do not fit together."""
    depth, width, heads = size
    rows, columns = grid
    plain_head = o.pool == "class" and o.head == "linear" and o.final_norm == "tokens"
    require(
        (o.head_dim is not None or width % heads == 0,
         f"{heads} heads do not divide width {width}"),
        (o.pool == "gap" or prefix > o.distilled,
         f"pool {o.pool!r} needs a class token and class_token is False"),
        (not o.distilled or plain_head,
         "a distilled model reads its two tokens: it takes pool 'class', head 'linear', "
         "final_norm 'tokens'"),
        (not prefix or o.mixer in WITH_PREFIX,
         f"the mixer {o.mixer!r} knows only the grid and has no class token: use pool='gap'"),
        (o.inject == "stem" or o.pos in ("1d", "2d"),
         f"inject {o.inject!r} is for pos '1d' or '2d', not {o.pos!r}"),
        (o.pos != "relative" or o.mixer == "attention",
         f"pos 'relative' needs the mixer 'attention', not {o.mixer!r}"),
        (o.pos not in ("2d", "sinusoidal") or width % 2 == 0,
         f"pos {o.pos!r} needs an even width, not {width}"),
        (o.mixer != "neighbourhood" or o.kernel % 2 == 1 or (o.kernel, o.kernel) == grid,
         f"kernel {o.kernel} has no centre: it must be odd, or equal to the grid {rows}x{columns} "
         "(then global)"),
        (o.mixer != "window" or rows % o.window == columns % o.window == 0,
         f"window {o.window} does not tile the grid {rows}x{columns}"),
        (all(0 <= index < depth for index in o.skipless),
         f"skipless {o.skipless} goes beyond blocks 0 to {depth - 1}"),
    )  # fmt: skip


def _build_mixer(size: ViTSize, grid: Grid, prefix: int, o: ViTOptions) -> nn.Module:
    """The token mixer of one block."""
    width, heads = size.width, size.heads
    head_dim = o.head_dim or width // heads
    tokens = prefix + grid[0] * grid[1]
    if o.mixer == "neighbourhood" and o.kernel % 2:  # an even kernel is as large as the grid
        return NeighbourhoodAttention(
            width, heads, head_dim, o.qkv_bias, grid, o.kernel, o.dilation, o.border
        )
    if o.mixer == "window":
        return WindowAttention(width, heads, head_dim, o.qkv_bias, grid, o.window)
    if o.mixer == "mean":
        return MeanAttention(width, heads, head_dim, o.qkv_bias, tokens, o.learn_pattern)
    if o.mixer == "pool":
        return Pool(grid, o.kernel)
    if o.mixer == "box":
        return Box(width, o.qkv_bias, grid, o.kernel)
    if o.mixer == "identity":
        return nn.Identity()
    if o.mixer == "token_mlp":
        return TokenMlp(tokens, width // 2)
    relative = None
    if o.pos == "relative":
        relative = Relative(grid, heads, head_dim, o.offsets, o.relative_shared)
    return Attention(width, heads, head_dim, o.qkv_bias, relative)


def _initialise(model: ViT, init: Init) -> None:
    """Set every parameter but those of a hybrid's ResNet, which timm has initialised.

    "jax": class token zero, positions N(0, 0.02), dense layers Xavier-uniform (queries, keys and
    values each separately) with MLP biases N(0, 1e-6), patches LeCun-normal, head zero. "timm": all
    truncated N(0, 0.02), biases zero; the patch convolution stays as torch makes it, as in timm.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            _initialise_linear(name, module, init)
    if init == "jax":
        projection = model.patch_embed.get_submodule("proj")
        assert isinstance(projection, nn.Conv2d)
        assert projection.bias is not None
        lecun_normal_(projection.weight)
        nn.init.zeros_(projection.bias)
    tables = model.no_weight_decay()  # positions and tokens
    for name, parameter in model.named_parameters():
        if name in ("cls_token", "dist_token") and init == "jax":
            nn.init.zeros_(parameter)
        elif name in tables and init == "jax":
            nn.init.normal_(parameter, std=0.02)
        elif name in tables:
            trunc_normal_(parameter, std=0.02)


def _initialise_linear(name: str, linear: nn.Linear, init: Init) -> None:
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    if init == "timm":
        trunc_normal_(linear.weight, std=0.02)
    elif name.startswith("head"):
        nn.init.zeros_(linear.weight)
    else:
        for part in linear.weight.chunk(3) if name.endswith("qkv") else (linear.weight,):
            nn.init.xavier_uniform_(part)
        if ".mlp." in name:
            nn.init.normal_(linear.bias, std=1e-6)


def resize_vit(model: ViT, image: Image, mode: Resampling = "bilinear") -> ViT:
    """A copy of the model for images of another size, with the same patch size.

    Positions are interpolated; prefix rows and everything else are copied.

    Examples
    --------
    >>> resize_vit(build("vit_ti/4", image=32), 48, mode="bicubic")
    """
    old = model.config
    grid_bound = old["mixer"] in ("mean", "token_mlp")
    offset_bound = old["pos"] == "relative" and old["offsets"] != "2d"
    require(
        (not grid_bound and not offset_bound,
         f"{old['name']} with mixer {old['mixer']!r}, pos {old['pos']!r} and offsets "
         f"{old['offsets']!r} has weights tied to its grid and cannot be resized")
    )  # fmt: skip
    resized = build(**{**old, "image": image})
    assert isinstance(resized, ViT)
    kinds = (Learned1d, Learned2d, Sinusoidal, Relative)
    tables = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    state = model.state_dict()
    kept = {key: value for key, value in state.items() if key.rpartition(".")[0] not in tables}
    resized.load_state_dict({**resized.state_dict(), **kept})
    for path, module in tables.items():
        table: Any = resized.get_submodule(path)
        table.resample_from(module, mode)
    like = next(model.parameters())
    return resized.to(like.device, like.dtype).train(model.training)


@torch.no_grad()
def mean_attention(model: ViT, batches: Iterable[Tensor], learn_pattern: bool = False) -> ViT:
    """A copy of the model with every attention matrix replaced by its mean over batches of images.

    Everything else is copied: the loss in accuracy is what the data-dependence of attention was
    worth. With `learn_pattern` the mean is a starting point that further training moves.

    Examples
    --------
    >>> mean_attention(model.eval(), images.split(256))
    """
    old = model.config
    require(
        (old["mixer"] == "attention",
         f"mean attention is taken of the mixer 'attention', not {old['mixer']!r}"),
        (not model.training, "mean attention is measured without dropout: call model.eval() first"),
    )  # fmt: skip
    sums: list[Tensor] = [torch.zeros((), dtype=torch.float64)] * len(model.blocks)
    count = 0
    for images in batches:
        x, count = model.embed(images), count + len(images)
        for index, block in enumerate(model.blocks):
            x = model.enter(index, x)
            attention: Tensor = block.attn.weights(block.norm1(x))  # type: ignore
            sums[index] = sums[index] + attention.sum(0).double().cpu()
            x = block(x)
    require((count > 0, "mean attention needs at least one batch of images"))
    no_positions = {"pos": "none"} if old["pos"] == "relative" else {}
    fixed = build(**{**old, **no_positions, "mixer": "mean", "learn_pattern": learn_pattern})
    assert isinstance(fixed, ViT)
    state = dict(model.state_dict())
    for index, total in enumerate(sums):
        path = f"blocks.{index}.attn."
        for key in [key for key in state if key.startswith((f"{path}qkv", f"{path}relative"))]:
            value = state.pop(key)
            if ".qkv." in key:
                state[key.replace("qkv", "v")] = value.chunk(3)[2]
        state[f"{path}pattern"] = (total / count).log().float()
    fixed.load_state_dict(state)
    like = next(model.parameters())
    return fixed.to(like.device, like.dtype).train(model.training)


TIMM_TO_OURS = {  # positions are a module here and a bare parameter in timm
    "pos_embed": "positions.0.table",
    "pre_logits.fc.weight": "pre_logits.0.weight",
    "pre_logits.fc.bias": "pre_logits.0.bias",
}
OURS_ALONE = ("positions.", ".relative.", ".pattern", ".attn.v.", ".attn.fc")
"""Parts of names that exist only in models timm has no class for."""


def vit_state_from_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of timm's VisionTransformer (ViT, DeiT, hybrids) under our names."""
    return {TIMM_TO_OURS.get(name, name): value for name, value in state.items()}


def vit_state_to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under timm's names; an error for tensors that timm has no name for."""
    to_timm = {ours: theirs for theirs, ours in TIMM_TO_OURS.items()}
    moved = {to_timm.get(name, name): value for name, value in state.items()}
    foreign = [name for name in moved if any(part in name for part in OURS_ALONE)]
    if foreign:
        raise BadModel(
            f"timm's VisionTransformer has no place for {foreign[0]} ({len(foreign)} such "
            "tensors): only pos '1d' or 'none', inject 'stem' and attention as the mixer can be "
            "converted."
        )
    return moved
