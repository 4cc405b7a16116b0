"""Vision Transformer: An Image is Worth 16x16 Words (A1.01), and what the four papers vary in it.

    image -> tokens (+ class token) + positions -> L blocks of  x + mixer(norm(x)),  x + mlp(norm(x))  -> norm -> head

Parameters carry the names they have in timm, so that checkpoints move both ways (`convert.py`). DeiT (A1.03) is the
same network with another initialisation and, optionally, a distillation token.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    Sinusoidal,
    Zoom,
)
from vitreous.models.registry import (
    TIMM_POOLS,
    ConfiguredModel,
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


class Size(NamedTuple):
    """A row of the size table; the hidden layer of the MLP is 4 x width."""

    depth: int
    width: int
    heads: int


SIZES = {  # A1.02, and a small one of our own
    "nano": Size(3, 96, 4),
    "ti": Size(12, 192, 3),
    "s": Size(12, 384, 6),
    "b": Size(12, 768, 12),
    "l": Size(24, 1024, 16),
    "h": Size(32, 1280, 16),
}
DEIT_SIZES = {  # A1.03; "+" has ConViT's number of heads, 64 wide each
    "ti": SIZES["ti"],
    "s": SIZES["s"],
    "b": SIZES["b"],
    "ti+": Size(12, 256, 4),
    "s+": Size(12, 576, 9),
    "b+": Size(12, 1024, 16),
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


class Block(nn.Module):
    """One mixer and one MLP, each normalised before and added after; `skip=False` leaves both additions out (A2.24)."""

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


class ViT(ConfiguredModel):
    """The assembled model. `vit` below builds one from options."""

    def __init__(
        self,
        patch_embed: nn.Module,
        blocks: list[Block],
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
        super().__init__()
        self.shape, self.pool, self.every = shape, pool, every
        self.num_classes, self.num_features, self.num_prefix_tokens = classes, width, prefix
        self.distilled_training = False
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.empty(1, 1, width)) if prefix else None
        self.dist_token = nn.Parameter(torch.empty(1, 1, width)) if prefix == 2 else None
        self.positions = nn.ModuleList(positions)
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=1e-6) if final_norm == "tokens" else nn.Identity()
        self.fc_norm = nn.LayerNorm(width, eps=1e-6) if final_norm == "pooled" else nn.Identity()
        self.pre_logits = (
            nn.Sequential(nn.Linear(width, width), nn.Tanh()) if head == "tanh" else nn.Identity()
        )
        self.head = zero_head(width, classes)
        self.head_dist = zero_head(width, classes) if prefix == 2 else None

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.forward_head(self.forward_features(images))

    def embed(self, images: Tensor) -> Tensor:
        """Tokens as they enter the first block."""
        if images.shape[1:] != self.shape:
            raise BadImages(
                f"The model was built for images of shape {self.shape} and got {tuple(images.shape[1:])}: "
                "resize the images, or the model with vitreous.models.vit.resize."
            )
        return self.place(self.patch_embed(images))

    def place(self, x: Tensor) -> Tensor:
        """Patch embeddings behind the class token and with their positions."""
        prefix = [
            token.expand(x.shape[0], -1, -1)
            for token in (self.cls_token, self.dist_token)
            if token is not None
        ]
        x = torch.cat([*prefix, x], 1)
        if len(self.positions):
            x = x + self.positions[0]()
        return self.pos_drop(x)

    def enter(self, index: int, x: Tensor) -> Tensor:
        """What is added on the way into block `index`: the positions again, if they are injected everywhere (A2.07)."""
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
        """Logits from tokens. A distilled model averages its two heads, or gives both while learning from a teacher."""
        if self.head_dist is not None:
            if pre_logits:
                return (x[:, 0] + x[:, 1]) / 2
            own, taught = self.head(x[:, 0]), self.head_dist(x[:, 1])
            return (
                (own, taught) if self.distilled_training and self.training else (own + taught) / 2
            )
        if self.pool == "class":
            x = x[:, 0]
        else:
            x = x[:, 0 if self.pool == "gap_with_class" else self.num_prefix_tokens :].mean(1)
        x = self.pre_logits(self.fc_norm(x))
        return x if pre_logits else self.head(x)

    def set_distilled_training(self, enable: bool = True) -> None:
        self.distilled_training = enable

    def get_classifier(self) -> nn.Module | tuple[nn.Module, nn.Module]:
        return self.head if self.head_dist is None else (self.head, self.head_dist)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Remove the whole head, tanh layer included, and attach one of zeros (A3.04)."""
        pool = self.pool if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        require(
            (
                pool in ("class", "gap", "gap_with_class"),
                f"pool {pool!r} is none of 'class', 'gap', 'gap_with_class'",
            ),
            (
                pool == "gap" or self.cls_token is not None,
                f"pool {pool!r} needs a class token and the model has none",
            ),
            (
                pool == "class" or self.dist_token is None,
                f"a distilled model reads its tokens, not pool {pool!r}",
            ),
        )
        self.pool, self.num_classes, self.pre_logits = pool, num_classes, nn.Identity()  # type: ignore[assignment]
        like = next(self.parameters())
        for name in ("head",) if self.head_dist is None else ("head", "head_dist"):
            setattr(self, name, zero_head(self.num_features, num_classes).to(like))

    @property
    def config(self) -> dict[str, Any]:
        head = "linear" if isinstance(self.pre_logits, nn.Identity) else "tanh"
        return {
            **super().config,
            "pool": self.pool,
            "class_token": self.num_prefix_tokens > 0,
            "head": head,
        }

    def no_weight_decay(self) -> set[str]:
        tables = ("positions.", "cls_token", "dist_token")
        return {
            name
            for name, _ in self.named_parameters()
            if name.startswith(tables) or ".relative." in name
        }


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be chosen about a ViT."""

    image: Image = 224  # height and width in pixels, or one number for both
    classes: int = 1000  # 0 leaves the pooled features
    patch: int = 16  # pixels from one token to the next, usually written in the name (A2.01)
    channels: int = 3  # of the image
    stem: Stem = "patch"  # patches, or the feature map of a ResNet (A1.12)
    stem_width: float = 1.0  # width factor of the hybrid's ResNet
    depth: int | None = (
        None  # blocks; None takes it, like width and heads, from the size table (A1.02)
    )
    width: int | None = None  # channels of a token
    heads: int | None = None  # attention heads (A3.19)
    head_dim: int | None = None  # channels of a head; None is width / heads (A3.20)
    mlp_ratio: float = 4.0  # hidden layer of the MLP over width
    qkv_bias: bool = True  # bias of queries, keys and values
    pool: Readout = "class"  # what the head reads: class token (A3.01), or the mean of the tokens (A1.17, A3.02)
    class_token: bool | None = None  # None has one unless pool="gap" (A2.02)
    distilled: bool = False  # a second token and head that learn from a teacher (A1.03)
    pos: Position = "1d"  # position encoding (A2.03 to A2.08)
    inject: Literal["stem", "every", "shared"] = (
        "stem"  # added once, before every block, or there the same (A2.07)
    )
    offsets: Offsets = "1d"  # of pos="relative": which pairs share a vector (A2.06)
    relative_shared: bool = False  # of pos="relative": one table for all heads
    mixer: Mixer = "attention"  # what lets tokens see each other
    kernel: int = 3  # of the mixers neighbourhood (A1.13), pool (A1.21) and box (A2.25)
    dilation: int = 1  # of the mixer neighbourhood
    border: Border = "masked"  # of the mixer neighbourhood: zero padding masked, or attended as in the released code
    window: int = 4  # of the mixer window (A2.11)
    learn_pattern: bool = False  # of the mixer mean: train the fixed matrix (A2.26)
    skipless: tuple[int, ...] = ()  # blocks, counted from 0, without skip connections (A2.24)
    final_norm: Literal["tokens", "pooled"] = "tokens"  # before or after the mean over tokens
    head: Literal["linear", "tanh"] = (
        "linear"  # "tanh" is the pre-training head with a hidden layer (A3.03)
    )
    dropout: float = 0.0  # after every dense layer but qkv, and after the positions
    drop_path: float = 0.0  # of the last block, growing linearly from 0 (A2.23)
    init: Init = (
        "jax"  # as in the original code (zero head), or truncated normals as in timm and DeiT
    )


@family("deit", DEIT_SIZES, patches=(16,), fields=Options, init="timm")
@family(
    "vit",
    SIZES,
    patches=(2, 4, 8, 14, 16, 32),
    fields=Options,
    by_size={"nano": {"image": 32, "patch": 4}},
)
def vit(size: Size, o: Options) -> ViT:
    """Assemble stem, blocks, positions and head."""
    chosen = {"depth": o.depth, "width": o.width, "heads": o.heads}
    size = size._replace(**{key: value for key, value in chosen.items() if value is not None})
    grid = patch_grid(o.image, o.patch)
    prefix = (o.pool != "gap" if o.class_token is None else o.class_token) + o.distilled
    _check(size, grid, prefix, o)
    if o.stem == "patch":
        stem: nn.Module = PatchEmbed(o.channels, size.width, o.patch)
    else:
        stem = HybridEmbed(o.stem, o.channels, size.width, o.patch, o.stem_width)
    tables = 0 if o.pos not in ABSOLUTE else size.depth if o.inject == "every" else 1
    hidden, rates = (
        round(o.mlp_ratio * size.width),
        [o.drop_path * i / max(1, size.depth - 1) for i in range(size.depth)],
    )
    model = ViT(
        stem,
        [
            Block(
                size.width,
                _mixer(size, grid, prefix, o),
                hidden,
                o.dropout,
                rate,
                index not in o.skipless,
            )
            for index, rate in enumerate(rates)
        ],
        [ABSOLUTE[o.pos](grid, prefix, size.width) for _ in range(tables)],
        shape=(o.channels, grid[0] * o.patch, grid[1] * o.patch),
        width=size.width,
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


def _check(size: Size, grid: Grid, prefix: int, o: Options) -> None:
    """Refuse what does not fit together."""
    depth, width, heads = size
    even = o.kernel % 2 == 0
    require(
        (o.head_dim is not None or width % heads == 0, f"{heads} heads do not divide width {width}"),
        (o.pool == "gap" or prefix > o.distilled, f"pool {o.pool!r} needs a class token and class_token is False"),
        (not o.distilled or (o.pool == "class" and o.head == "linear" and o.final_norm == "tokens"),
         "a distilled model reads its two tokens: it takes pool 'class', head 'linear', final_norm 'tokens'"),
        (not prefix or o.mixer in WITH_PREFIX,
         f"the mixer {o.mixer!r} knows only the grid and has no class token: use pool='gap'"),
        (o.inject == "stem" or o.pos in ("1d", "2d"), f"inject {o.inject!r} is for pos '1d' or '2d', not {o.pos!r}"),
        (o.pos != "relative" or o.mixer == "attention", f"pos 'relative' needs the mixer 'attention', not {o.mixer!r}"),
        (o.pos not in ("2d", "sinusoidal") or width % 2 == 0, f"pos {o.pos!r} needs an even width, not {width}"),
        (o.mixer != "neighbourhood" or not even or (o.kernel, o.kernel) == grid,
         f"kernel {o.kernel} has no centre: it must be odd, or equal to the grid {grid[0]}x{grid[1]} (then global)"),
        (o.mixer != "window" or grid[0] % o.window == grid[1] % o.window == 0,
         f"window {o.window} does not tile the grid {grid[0]}x{grid[1]}"),
        (all(0 <= i < depth for i in o.skipless), f"skipless {o.skipless} goes beyond blocks 0 to {depth - 1}"),
    )  # fmt: skip


def _mixer(size: Size, grid: Grid, prefix: int, o: Options) -> nn.Module:
    """The token mixer of one block."""
    width, heads = size.width, size.heads
    head_dim = o.head_dim or width // heads
    tokens = prefix + grid[0] * grid[1]
    if o.mixer == "neighbourhood" and o.kernel % 2:
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
    relative = (
        Relative(grid, heads, head_dim, o.offsets, o.relative_shared)
        if o.pos == "relative"
        else None
    )
    return Attention(width, heads, head_dim, o.qkv_bias, relative)


def _initialise(model: ViT, init: Init) -> None:
    """Set every parameter but those of a hybrid's ResNet, which timm has initialised.

    "jax": class token zero, positions N(0, 0.02), dense layers Xavier-uniform (queries, keys and values each on their
    own) with MLP biases N(0, 1e-6), patches LeCun-normal, head zero. "timm": everything truncated N(0, 0.02), biases
    zero; the patch convolution stays as torch makes it, as it does there.
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
    for name, parameter in model.named_parameters():
        if name in ("cls_token", "dist_token") and init == "jax":
            nn.init.zeros_(parameter)
        elif name in model.no_weight_decay():
            nn.init.normal_(parameter, std=0.02) if init == "jax" else trunc_normal_(
                parameter, std=0.02
            )


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


def resize(model: ViT, image: Image, mode: Zoom = "bilinear") -> ViT:
    """The same model for images of another size, patch size kept: positions are interpolated, prefix rows and all else
    are copied (A2.09). A new model; the given one stays as it is.
    """
    old = model.config
    bound = old["mixer"] in ("mean", "token_mlp") or (
        old["pos"] == "relative" and old["offsets"] != "2d"
    )
    require(
        (
            not bound,
            f"{old['name']} with mixer {old['mixer']!r}, pos {old['pos']!r} and offsets {old['offsets']!r} has weights "
            "tied to its grid and cannot be resized",
        )
    )
    resized = build(**{**old, "image": image})
    assert isinstance(resized, ViT)
    kinds = (Learned1d, Learned2d, Sinusoidal, Relative)
    placed = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    kept = {
        key: value
        for key, value in model.state_dict().items()
        if key.rpartition(".")[0] not in placed
    }
    resized.load_state_dict({**resized.state_dict(), **kept})
    for path, module in placed.items():
        twin: Any = resized.get_submodule(path)
        twin.take(module, mode)
    like = next(model.parameters())
    return resized.to(like.device, like.dtype).train(model.training)


@torch.no_grad()
def mean_attention(model: ViT, batches: Iterable[Tensor], learn_pattern: bool = False) -> ViT:
    """The same model with every attention matrix replaced by its mean over `batches` of images (A2.26).

    Everything else is copied: what is lost in accuracy is what the data-dependence of attention was worth. With
    `learn_pattern` the mean is a starting point that further training moves.
    """
    old = model.config
    require(
        (
            old["mixer"] == "attention",
            f"mean attention is taken of the mixer 'attention', not {old['mixer']!r}",
        ),
        (not model.training, "mean attention is measured without dropout: call model.eval() first"),
    )
    sums: list[Tensor] = [torch.zeros((), dtype=torch.float64)] * len(model.blocks)
    seen = 0
    for images in batches:
        x, seen = model.embed(images), seen + len(images)
        for index, block in enumerate(model.blocks):
            x = model.enter(index, x)
            sums[index] = sums[index] + block.attn.weights(block.norm1(x)).sum(0).double().cpu()  # type: ignore
            x = block(x)
    require((seen > 0, "mean attention needs at least one batch of images"))
    no_positions = {"pos": "none"} if old["pos"] == "relative" else {}
    fixed = build(**{**old, **no_positions, "mixer": "mean", "learn_pattern": learn_pattern})
    state = dict(model.state_dict())
    for index, total in enumerate(sums):
        stem = f"blocks.{index}.attn."
        for key in [key for key in state if key.startswith((f"{stem}qkv", f"{stem}relative"))]:
            value = state.pop(key)
            if ".qkv." in key:
                state[key.replace("qkv", "v")] = value.chunk(3)[2]
        state[f"{stem}pattern"] = (total / seen).log().float()
    fixed.load_state_dict(state)
    assert isinstance(fixed, ViT)
    like = next(model.parameters())
    return fixed.to(like.device, like.dtype).train(model.training)
