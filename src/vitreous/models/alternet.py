"""AlterNet (Park & Kim 2022): a pre-activation ResNet with attention, and that ResNet alone.

    stem -> ccc -> cccm -> cccccm -> cmcm -> BN, ReLU, mean, linear

c is a convolution block, m an attention block. A stage of n blocks with m attentions is n - 2m
convolutions followed by m pairs of convolution and attention. The best m is searched from the end
of the network to its beginning by `build_up`. Options add spatial smoothing, and dropout for
ensembles of one network.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers.drop import DropPath
from torch import Tensor, nn

from vitreous.errors import VitreousError
from vitreous.models.registry import Classifier, Image, family, patch_grid, require
from vitreous.models.timm_sizes import SMALL, StemChoice

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

Squash = Literal["tanh", "sigmoid", "softmax", "relu6", "scale"]


class ResNetSize(NamedTuple):
    """Blocks per stage, and output over inner width: 1 for basic blocks, 4 for bottlenecks."""

    lengths: tuple[int, ...]
    expansion: int


RESNETS = {
    "nano": ResNetSize((3, 3, 3), 1),  # 16, 32 and 64 channels: the first ResNets for CIFAR
    "18": ResNetSize((2, 2, 2, 2), 1),
    "34": ResNetSize((3, 4, 6, 3), 1),
    "50": ResNetSize((3, 4, 6, 3), 4),
    "101": ResNetSize((3, 4, 23, 3), 4),
    "152": ResNetSize((3, 8, 36, 3), 4),
}
ALTERNETS = {  # four blocks in the last stage, so that two of them can be attention
    "nano": ResNetSize((3, 3, 4), 1),
    "18": ResNetSize((2, 2, 2, 2), 1),
    "34": ResNetSize((3, 4, 6, 4), 1),
    "50": ResNetSize((3, 4, 6, 4), 4),
    "101": ResNetSize((3, 4, 23, 4), 4),
    "152": ResNetSize((3, 8, 36, 4), 4),
}
NANO = {"image": 32, "width": 16, "heads": (1, 2, 4), "head_dim": 16, "smooth_count": (1, 1, 1)}

MSA_SMALL, MSA_IMAGENET = (0, 1, 1, 2), (0, 1, 3, 2)
"""Attentions per stage: the paper's for CIFAR, and the released code's default, for ImageNet."""


class PreActBlock(nn.Module):
    """Pre-activation residual block: BN and ReLU before every convolution and the projection."""

    def __init__(
        self, dim: int, width: int, expansion: int, stride: int, dropout: float, drop_path: float
    ) -> None:
        super().__init__()
        out = width * expansion
        shapes = [(dim, width, 3, stride), (width, out, 3, 1)]
        if expansion > 1:
            shapes = [(dim, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(shape[0]) for shape in shapes)
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, k, s, padding=k // 2, bias=False) for i, o, k, s in shapes
        )
        self.shortcut = None
        if stride != 1 or dim != out:
            self.shortcut = nn.Conv2d(dim, out, 1, stride, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](x))
        skip = x if self.shortcut is None else self.shortcut(y)
        for conv, norm in zip(self.convs[:-1], self.norms[1:], strict=True):
            y = F.relu(norm(conv(y)))
        y = self.convs[-1](self.dropout(y))
        return skip + self.drop_path(y)


class BiasedWindowAttention(nn.Module):
    """Multi-head attention within windows, with a learned bias per offset.

    `kv_stride` k makes one key and value of each k x k cell by a strided convolution; its bias is
    the mean over the cell. A map that windows do not tile is padded, and the padding is masked.
    """

    def __init__(
        self,
        dim: int,
        out: int,
        *,
        heads: int,
        head_dim: int,
        window: int,
        bias_per_head: bool,
        kv_stride: int,
    ) -> None:
        super().__init__()
        inner = heads * head_dim
        self.heads, self.window, self.kv_stride = heads, window, kv_stride
        self.to_q = nn.Conv2d(dim, inner, 1, bias=False)
        self.to_kv = nn.Conv2d(dim, 2 * inner, kv_stride, kv_stride, bias=False)
        self.to_out = nn.Conv2d(inner, out, 1)
        tables, side = heads if bias_per_head else 1, 2 * window - 1
        self.bias_table = nn.Parameter(0.02 * torch.randn(tables, side, side))

    def forward(self, x: Tensor) -> Tensor:
        p, k, (batch, _, height, width) = self.window, self.kv_stride, x.shape
        x = F.pad(x, (0, -width % p, 0, -height % p))
        rows, columns = x.shape[-2] // p, x.shape[-1] // p
        q = self.windows(self.to_q(x), p)
        key, value = (self.windows(half, p // k) for half in self.to_kv(x).chunk(2, dim=1))
        bias = self.bias()
        if (rows * p, columns * p) != (height, width):
            bias = bias + self.mask(height, width, rows, columns, bias).repeat(batch, 1, 1, 1)
        y = F.scaled_dot_product_attention(q, key, value, bias.to(q.dtype))
        y = y.view(batch, rows, columns, self.heads, p, p, -1).permute(0, 3, 6, 1, 4, 2, 5)
        y = y.reshape(batch, -1, rows * p, columns * p)[..., :height, :width]
        return self.to_out(y)

    def windows(self, x: Tensor, p: int) -> Tensor:
        """Cut (B, heads d, rows p, columns p) into windows: (B rows columns, heads, p p, d)."""
        batch, _, height, width = x.shape
        x = x.view(batch, self.heads, -1, height // p, p, width // p, p)
        return x.permute(0, 3, 5, 1, 4, 6, 2).flatten(4, 5).flatten(0, 2)

    def bias(self) -> Tensor:
        """The table at the offset from query to key: (heads or 1, queries, keys)."""
        p, k = self.window, self.kv_stride
        at = torch.arange(p, device=self.bias_table.device)
        offset = at[None, :] - at[:, None] + p - 1
        bias = self.bias_table[:, offset[:, None, :, None], offset[None, :, None, :]]
        return bias.view(-1, p * p, p // k, k, p // k, k).mean((3, 5)).flatten(2)

    def mask(self, height: int, width: int, rows: int, columns: int, like: Tensor) -> Tensor:
        """-inf where a key lies entirely in the padding, else 0: (rows columns, 1, 1, keys)."""
        p, k = self.window, self.kv_stride
        down, across = (torch.arange(0, n * p, k, device=like.device) for n in (rows, columns))
        outside = (down >= height)[:, None] | (across >= width)[None, :]
        outside = outside.view(rows, p // k, columns, p // k).transpose(1, 2)
        outside = outside.reshape(-1, 1, 1, (p // k) ** 2)
        zeros = torch.zeros(outside.shape, dtype=like.dtype, device=like.device)
        return zeros.masked_fill(outside, -torch.inf)


class AttentionBlock(nn.Module):
    """Window attention as a residual block: "b" with pre-activation, "a" with BN after attention.

    It never changes width or resolution, because a convolution opens every stage.
    """

    def __init__(
        self,
        attention: BiasedWindowAttention,
        dim: int,
        width: int,
        kind: Literal["a", "b"],
        dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {
            "norm": nn.BatchNorm2d(dim),
            "act": nn.GELU(),
            "reduce": nn.Conv2d(dim, width, 1, bias=False),
            "reduced_norm": nn.BatchNorm2d(width),
            "attn": attention,
            "dropout": nn.Dropout(dropout),
        }
        order = ("norm", "act", "reduce", "reduced_norm", "attn", "dropout")
        if kind == "a":
            order = ("reduce", "reduced_norm", "act", "attn", "norm", "dropout")
        self.branch = nn.Sequential(OrderedDict((name, layers[name]) for name in order))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.branch(x))


class Smooth(nn.Module):
    """Spatial smoothing (Park & Kim 2022b): bound activations by t tanh(x / t), ReLU, then blur.

    Padding is half the filter on every side, so that the even filter (1, 1) grows the map by one
    row and one column.
    """

    kernel: Tensor

    def __init__(self, squash: Squash, temperature: float, blur: Sequence[float]) -> None:
        super().__init__()
        self.squash, self.temperature = squash, temperature
        line = torch.tensor(blur, dtype=torch.float32) / sum(blur)
        self.register_buffer("kernel", line[:, None] * line[None, :], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        t = self.temperature
        if self.squash == "tanh":
            x = F.relu(t * torch.tanh(x / t))
        elif self.squash == "sigmoid":
            x = t * torch.sigmoid(x / t)
        elif self.squash == "softmax":
            x = t * torch.softmax(x / t, dim=1)
        elif self.squash == "relu6":
            x = x.clamp(0, t)
        else:
            x = F.relu(x) / t
        kernel = self.kernel.to(x.dtype).expand(x.shape[1], 1, -1, -1)
        return F.conv2d(x, kernel, padding=len(self.kernel) // 2, groups=x.shape[1])


class AlterNet(Classifier):
    """Stem, stages and head. `build_alternet` below makes one."""

    def __init__(
        self, stem: nn.Module, stages: Sequence[nn.Module], features: int, classes: int
    ) -> None:
        super().__init__(features, classes)
        self.stem = stem
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(features)
        self.head = nn.Linear(features, classes) if classes else nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        """The last feature map, (B, features, rows, columns), after BN and ReLU."""
        return F.relu(self.norm(self.stages(self.stem(images))))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = x.mean((2, 3))
        return x if pre_logits else self.head(x)

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith("bias_table")}


@dataclass(frozen=True, kw_only=True)
class AlterNetOptions:
    """What can be chosen about an AlterNet; the manual shows the comments."""

    image: Image = 224  # height and width in pixels, or one number for both
    classes: int = 1000  # 0 returns the pooled features
    channels: int = 3  # of the image
    stem: StemChoice = "auto"  # "small" (3x3, no pooling) below 96 pixels, else "imagenet" (7x7)
    stages: tuple[int, ...] | None = None  # blocks of each stage; None: the size table's
    width: int = 64  # of the first stage; every stage doubles it
    msa: tuple[int, ...] | None = None  # attentions of each stage; None: the paper's
    place: Literal["end", "start"] = "end"  # of attention: end of a stage, or after its first block
    block: Literal["a", "b"] = "b"  # attention block with post- or pre-activation
    heads: tuple[int, ...] = (3, 6, 12, 24)  # of each stage
    head_dim: int = 64  # channels of a head
    window: int | None = None  # None is 4 with the small stem and 7 otherwise
    bias_per_head: bool = False  # a table of relative positions for each head, not one for all
    kv_stride: int = 1  # keys and values from cells of this side
    smooth: Squash | None = None  # spatial smoothing in every stage, "tanh" in the paper
    smooth_count: tuple[int, ...] = (1, 1, 1, 1)  # how often in each stage
    smooth_place: Literal["end", "start"] = "end"  # before the next sub-sampling, or after this one
    temperature: float = 10.0  # bound of the smoothed activations
    blur: tuple[float, ...] = (1, 1)  # filter along each axis
    dropout: float = 0.0  # before the last convolution of every block; see mc_predict
    drop_path: float = 0.0  # of the last block, growing linearly from 0


@family(
    "preresnet",
    RESNETS,
    fields=AlterNetOptions,
    msa=(0, 0, 0, 0),
    by_size={"nano": {**NANO, "msa": (0, 0, 0)}},
)
@family(
    "alternet",
    ALTERNETS,
    fields=AlterNetOptions,
    by_size={"nano": {**NANO, "msa": (0, 1, 2)}},
)
def build_alternet(size: ResNetSize, o: AlterNetOptions) -> AlterNet:
    """A pre-activation ResNet with window attention at the end of its stages."""
    small = o.stem == "small" or (o.stem == "auto" and max(patch_grid(o.image, 1)) < SMALL)
    lengths, window, msa = o.stages or size.lengths, o.window or (4 if small else 7), o.msa
    if msa is None:
        usual = MSA_SMALL if small else MSA_IMAGENET
        msa = tuple(min(m, n // 2) for m, n in zip(usual, lengths, strict=False))
    require(
        (len(lengths) == len(msa) == len(o.heads) == len(o.smooth_count),
         f"stages={lengths}, msa={msa}, heads={o.heads}, smooth_count={o.smooth_count} differ in "
         "length"),
        (min(lengths) > 0 and min(msa, default=0) >= 0,
         f"stages={lengths} must be positive and msa={msa} not negative"),
        (o.kv_stride > 0 and window % max(1, o.kv_stride) == 0,
         f"kv_stride={o.kv_stride} does not divide window={window}"),
    )  # fmt: skip
    patterns = [stage_pattern(n, m, o.place) for n, m in zip(lengths, msa, strict=True)]
    last = max(1, sum(lengths) - 1)
    stages, dim, before = [], o.width, 0
    for stage, pattern in enumerate(patterns):
        rates = [o.drop_path * (before + index) / last for index in range(len(pattern))]
        stages.append(_build_stage(stage, pattern, rates, dim, window, size.expansion, o))
        dim = o.width * 2**stage * size.expansion
        before += len(pattern)
    return AlterNet(_stem(o.channels, o.width, small), stages, dim, o.classes)


def _build_stage(
    stage: int,
    pattern: str,
    rates: Sequence[float],
    dim: int,
    window: int,
    expansion: int,
    o: AlterNetOptions,
) -> nn.Sequential:
    """The blocks of a stage on `dim` channels; its first one sub-samples, except in stage 0."""
    inner = o.width * 2**stage
    blocks: list[nn.Module] = []
    for letter, rate in zip(pattern, rates, strict=True):
        if letter == "c":
            stride = 2 if stage and not blocks else 1
            blocks.append(PreActBlock(dim, inner, expansion, stride, o.dropout, rate))
            dim = inner * expansion
        else:
            attention = BiasedWindowAttention(
                inner, dim, heads=o.heads[stage], head_dim=o.head_dim, window=window,
                bias_per_head=o.bias_per_head, kv_stride=o.kv_stride,
            )  # fmt: skip
            blocks.append(AttentionBlock(attention, dim, inner, o.block, o.dropout, rate))
    if o.smooth:
        at = len(blocks) if o.smooth_place == "end" else 1
        count = o.smooth_count[stage]
        blocks[at:at] = [Smooth(o.smooth, o.temperature, o.blur) for _ in range(count)]
    return nn.Sequential(*blocks)


def _stem(channels: int, width: int, small: bool) -> nn.Module:
    """The first convolution, without BN and ReLU, because the first block begins with them."""
    if small:
        return nn.Sequential(OrderedDict(conv=nn.Conv2d(channels, width, 3, padding=1, bias=False)))
    conv = nn.Conv2d(channels, width, 7, 2, padding=3, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, pool=nn.MaxPool2d(3, 2, padding=1)))


def stage_pattern(length: int, attentions: int, place: Literal["end", "start"] = "end") -> str:
    """The blocks of a stage, `c` for convolution and `m` for attention.

    Attention alternates with convolution, and a convolution opens the stage since attention cannot
    change its shape.

    Examples
    --------
    >>> stage_pattern(6, 2)
    'cccmcm'
    """
    convolutions = length - 2 * attentions
    first = 1 if attentions and place == "start" else 0
    where = f"attentions at its {place}"
    require(
        (convolutions >= first, f"a stage of {length} blocks has no room for {attentions} {where}")
    )
    if place == "end":
        return "c" * convolutions + "cm" * attentions
    return "c" * first + "mc" * attentions + "c" * (convolutions - first)


def build_up(
    lengths: Sequence[int] = ALTERNETS["50"].lengths,
) -> Generator[tuple[int, ...], float, tuple[int, ...]]:
    """The paper's search for the best placement of attention, as a generator.

    It yields an `msa`, is sent its score, and returns the best. Beginning with the last stage, it
    adds one attention while that improves the score and the stage has room, else goes to the stage
    before. The first candidate has no attention.

    Examples
    --------
    >>> search = build_up()
    >>> msa = next(search)
    >>> while True:  # until StopIteration, whose value is the best
    ...     msa = search.send(accuracy_of(msa))
    """
    best: tuple[int, ...] = (0,) * len(lengths)
    record = yield best
    for stage in reversed(range(len(lengths))):
        while best[stage] < lengths[stage] // 2:
            candidate = (*best[:stage], best[stage] + 1, *best[stage + 1 :])
            score = yield candidate
            if score <= record:
                break
            best, record = candidate, score
    return best


def mc_predict(model: nn.Module, images: Tensor, passes: int) -> Tensor:
    """Class probabilities averaged over passes with active dropout, all else in evaluation mode.

    Examples
    --------
    >>> mc_predict(build("preresnet_50", image=32, dropout=0.1), images, passes=10)
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    dropouts = [layer for layer in layers if layer.p > 0]
    if not dropouts or passes < 1:
        raise VitreousError(
            f"mc_predict was asked for {passes} passes of a model with {len(dropouts)} dropout "
            "layers: it needs at least one of each; build the model with dropout=0.1, say."
        )
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        for dropout in dropouts:
            dropout.train()
        with torch.no_grad():
            return torch.stack([model(images).softmax(-1) for _ in range(passes)]).mean(0)
    finally:
        for module, training in modes.items():
            module.training = training
