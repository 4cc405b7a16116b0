"""What mixes positions: the rules of `positions.py` that contract a dimension."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from vitreous.specimen.contractions import PRODUCTS, Contraction, contraction
from vitreous.specimen.graph import (
    args,
    attribute,
    depends_on_input,
    numel,
    op,
    shape_of,
    walk_up,
)
from vitreous.specimen.trace import (
    NOWHERE,
    PREFIX,
    SPAN,
    Trace,
    constant_along,
    in_raster_order,
    merge_cells,
    only_prefix,
    paired,
    shrink_windows,
)

SPATIAL = re.compile(r"(conv\d?d?$|convolution|conv_transpose|pool|upsample|grid_sampler)")
SCANS = {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "associative_scan"}
STRONG_SIGNS = {"softmax", "_softmax", "_safe_softmax", "exp", "exp2", "log_softmax"}
WEAK_SIGNS = {
    "sigmoid", "relu", "clamp", "clamp_min", "square", "pow", "softplus", "elu", "tanh", "gelu",
    "silu", "abs",
}  # fmt: skip
"""Operations that turn scores into weights."""
FARTHEST = 32
"""Nodes that are visited in search of such a sign."""

Traced = Trace | list["Trace | None"] | None
"""The positions of a node: of one tensor, of several, or unknown."""


class Mixing:
    """The positions of a graph as far as they are known, and the rules that mix them."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.data = depends_on_input(module.graph)
        self.traces: dict[fx.Node, Traced] = {}
        """For every node that depends on the images; None where positions are unknown or gone."""
        self.mixing: set[fx.Node] = set()
        """Nodes that mix positions by learned weights: token-mixing layers."""
        self.spreading: set[fx.Node] = set()
        """Nodes that mix positions in another way: Fourier transforms, fixed matrices, scans."""
        self.pooled: set[fx.Node] = set()
        """Products whose queries are learned, not tokens of the image."""
        self.constants: dict[fx.Node, Any] = {}

    def known(self, arg: Any) -> Trace | None:
        """The positions of an argument; None if they are unknown or it is no tensor."""
        trace = self.traces.get(arg) if isinstance(arg, fx.Node) else None
        return trace if isinstance(trace, Trace) else None

    def data_inputs(self, node: fx.Node) -> list[fx.Node]:
        """The inputs of a node that depend on the images."""
        return [n for n in node.all_input_nodes if n in self.data]

    def _merge(self, node: fx.Node, trace: Trace, dim: int) -> Trace | None:
        """Contract `dim`.

        Channels of one place stay there and patches become the cells of a coarser grid. A
        contraction over positions proper is a token-mixing layer.
        """
        staying = [
            one.like(one.ids.narrow(dim, 0, 1))
            for one in trace.both
            if constant_along(one.ids, dim)
        ]
        if staying:
            return paired(staying)
        line = trace.ids.movedim(dim, -1).reshape(-1, trace.ids.shape[dim])[0]
        rows, columns = trace.grid
        all_differ = line.unique().numel() == line.numel()
        if all_differ and line.numel() in (rows, columns, rows * columns):
            self._note_mixing(node)
            return None
        return self._patches(trace, dim)

    def _patches(self, trace: Trace, dim: int) -> Trace | None:
        """Positions after cells along `dim` are merged; None where all of them become one cell."""
        coarse = merge_cells(trace, dim)
        return None if coarse is None or coarse.grid == (1, 1) else coarse

    def _note_mixing(self, node: fx.Node) -> None:
        """Note that positions are mixed, by learned weights or fixed ones (cosines)."""
        others = [n for n in node.all_input_nodes if n not in self.data and numel(n) is not None]
        learned = not others or any(self._learned(n) for n in others)
        (self.mixing if learned else self.spreading).add(node)

    def _learned(self, node: fx.Node) -> bool:
        """Whether a constant is computed from parameters."""
        if node.op == "get_attr":
            return isinstance(attribute(self.module, str(node.target)), nn.Parameter)
        return any(self._learned(n) for n in node.all_input_nodes)

    def _linear(self, node: fx.Node) -> Traced:
        trace = self.known(node.args[0])
        merged = self._merge(node, trace, -1) if trace is not None else None
        return merged.each(lambda ids: ids.expand(shape_of(node))) if merged is not None else None

    def _product(self, node: fx.Node) -> Traced:
        product = contraction(node)
        if product is None:
            return None
        staying: list[Trace] = []
        for number, operand in enumerate(product.operands):
            trace, dims = self.known(operand), product.summed(number)
            sides = trace.both if trace is not None else ()
            still = [one for one in sides if all(constant_along(one.ids, dim) for dim in dims)]
            staying += [_aligned(one, product, number, shape_of(node)) for one in still]
        if staying:
            return paired(staying)
        among = [number for number, operand in enumerate(product.operands) if operand in self.data]
        if len(among) > 1:
            return self._pooled(node, product)
        return self._mixed(node, product, among[0])

    def _mixed(self, node: fx.Node, product: Contraction, number: int) -> Trace | None:
        """Contract the one operand of the image over its positions, or over patches."""
        trace = self.known(product.operands[number])
        if trace is None:
            return None
        over = [dim for dim in product.summed(number) if not constant_along(trace.ids, dim)]
        merged = self._merge(node, trace, over[0]) if len(over) == 1 else None
        if merged is None:
            self._note_mixing(node)
            return None
        return _aligned(merged, product, number, shape_of(node))

    def _pooled(self, node: fx.Node, product: Contraction) -> Trace | None:
        """Weights over all keys for learned queries: the results are tokens without a place."""
        if not all(operand in self.data for operand in product.operands):
            return None
        number = self.weights_among(product)
        if number is None:
            return None
        values = self.known(product.operands[1 - number])
        if values is None or values.across is not None:
            return None
        if self.from_queries_and_keys(product.operands[number]):
            return None  # queries of the image whose positions were lost
        ids = values.ids
        for dim in product.summed(1 - number):
            ids = ids.narrow(dim, 0, 1)
        sizes = product.sizes
        shape = tuple(sizes[c] for c in product.output)
        first = _aligned(values.like(ids // SPAN * SPAN), product, 1 - number, shape)
        rows = [c for c in product.exclusive(number, 1 - number) if c in product.output]
        if not all(constant_along(first.ids, product.output.index(c)) for c in rows):
            return None
        self.pooled.add(node)
        size = sizes[rows[-1]] if rows else 1
        tokens = PREFIX + len(values.prefix) + torch.arange(size)
        tokens = tokens.reshape([-1 if rows and c == rows[-1] else 1 for c in product.output])
        return Trace(first.ids + tokens, values.grid, values.prefix + ("query",) * size)

    def from_queries_and_keys(self, weights: fx.Node) -> bool:
        """Whether weights come from a product of two tensors of the image."""

        def same_size(node: fx.Node) -> Iterable[fx.Node]:
            return [p for p in self.data_inputs(node) if numel(p) == numel(weights)]

        return any(
            op(node) in PRODUCTS and len(self.data_inputs(node)) > 1
            for node in walk_up(weights, same_size)
        )

    def weights_among(self, product: Contraction) -> int | None:
        """Which of two operands is the weights, which a softmax or the like has made."""
        if len(product.operands) != 2:
            return None
        for through in (False, True):  # heads may have been mixed since
            first, second = (self._sharpness(operand, through) for operand in product.operands)
            if first != second:
                return int(second > first)
        return None

    def _sharpness(self, node: fx.Node, through: bool) -> int:
        """How clearly a tensor holds weights: 2 after a softmax, 1 after the like, else 0.

        The search ends at a learned layer or product; `through` goes on behind layers that keep the
        size, up to the last norm.
        """

        def follow(current: fx.Node) -> Iterable[fx.Node]:
            name, inputs = op(current), self.data_inputs(current)
            layer = name in PRODUCTS or name in ("linear", "scaled_dot_product_attention")
            learned = layer or SPATIAL.search(name)
            if "norm" in name or (learned and (len(inputs) > 1 or not through)):
                return []
            size = numel(current)
            return [p for p in inputs if size is None or numel(p) in (None, size)]

        names = {op(n) for n in walk_up(node, follow, depth_first=True, most=FARTHEST)}
        return 2 if names & STRONG_SIGNS else int(bool(names & WEAK_SIGNS))

    def _fourier(self, node: fx.Node) -> Traced:
        """A Fourier transform over positions mixes them; its inverse puts them back."""
        trace, shape = self.known(args(node)[0]), shape_of(node)
        if trace is None:
            return None
        name = op(node).removeprefix("fft_")
        over: Any = args(node)[2] if len(node.args) > 2 else None
        if over is None and name.endswith("fft"):
            over = -1
        elif over is None:
            over = [-2, -1] if name.endswith("2") else list(range(len(shape)))
        dims = [over] if isinstance(over, int) else list(over)
        if any(not constant_along(trace.ids, dim) for dim in dims):
            self.spreading.add(node)
        if name.startswith("irfft"):
            trace = self._before_transform(node) or trace
        for dim in dims:
            trace = _resized(trace, dim % len(shape), shape)
        return trace

    def _before_transform(self, node: fx.Node) -> Trace | None:
        """The positions that the matching forward transform was given."""
        for current in walk_up(node, self.data_inputs):
            if op(current).startswith("fft_rfft") and current is not node:
                return self.known(args(current)[0])
        return None

    def _view_as_real(self, node: fx.Node) -> Traced:
        trace, shape = self.known(args(node)[0]), shape_of(node)
        return trace.each(lambda ids: ids[..., None].expand(shape)) if trace is not None else None

    def _view_as_complex(self, node: fx.Node) -> Traced:
        trace = self.known(args(node)[0])
        return trace.each(lambda ids: ids[..., 0]) if trace is not None else None

    def _im2col(self, node: fx.Node) -> Traced:
        """Patches cut out of a map, possibly overlapping: (b, c*k*k, patches)."""
        trace = self.known(args(node)[0])
        if trace is None:
            return None
        one = trace.ids[:, :1].double() + 1  # the operation pads with zeros and knows no integers
        columns = torch.ops.aten.im2col.default(one, *args(node)[1:]).long() - 1
        channels = shape_of(node)[1] // columns.shape[1]
        return trace.like(columns.repeat(1, channels, 1))

    def _spatial(self, node: fx.Node) -> Traced:
        """Convolution, pooling, resampling: a new grid where the size changes."""
        trace, shape = self.known(node.args[0]), shape_of(node)
        if trace is None or trace.ids.ndim != len(shape):
            return None
        flat = self._merge(node, trace, 1) if "pool" not in op(node) else trace
        if flat is None:
            return None
        if flat.ids.ndim == 3 and self._covers_all(node, flat):
            self.spreading.add(node)
        placeless = only_prefix(flat)  # tokens without a place that are laid out as a map
        if flat.ids.shape[2:] == shape[2:] and not (placeless and len(shape) == 4):
            return flat.each(lambda ids: ids.narrow(1, 0, 1).expand(shape))
        rows, columns = shape[-2:] if len(shape) == 4 else (0, 0)
        if rows * columns <= 1 or flat.ids.shape[0] != shape[0]:
            return None
        if not (placeless or in_raster_order(flat.ids[0, 0])):
            return None
        windows = shrink_windows(flat, (rows, columns))
        if windows is not None:
            return windows.each(lambda ids: ids.expand(shape))
        # the maximum is no padding
        image = flat.ids.flatten(1).amax(1).reshape(-1, 1, 1, 1) // SPAN * SPAN
        ids = image + torch.arange(rows * columns).reshape(1, 1, rows, columns)
        return Trace(ids.expand(shape), (rows, columns))

    def _covers_all(self, node: fx.Node, trace: Trace) -> bool:
        """Whether a kernel runs along all tokens of the grid in a row, and is as long."""
        kernel = shape_of(args(node)[1])[-1] if isinstance(args(node)[1], fx.Node) else 0
        cells = trace.grid[0] * trace.grid[1]
        return min(trace.grid) > 1 and min(kernel, trace.ids.shape[-1]) >= cells


def _aligned(trace: Trace, product: Contraction, number: int, shape: tuple[int, ...]) -> Trace:
    """The positions of operand `number` along the dimensions of the result."""
    letters, output = product.letters[number], product.output

    def align(ids: Tensor) -> Tensor:
        for dim in reversed(range(len(letters))):
            ids = ids.select(dim, 0) if letters[dim] not in output else ids
        kept = [c for c in letters if c in output]
        ids = ids.permute([kept.index(c) for c in output if c in kept])
        sizes = iter(ids.shape)
        return ids.reshape([next(sizes) if c in kept else 1 for c in output]).expand(shape)

    return trace.each(align)


def _resized(trace: Trace, dim: int, shape: tuple[int, ...]) -> Trace:
    """Positions cut to the size that `dim` has in `shape`, or padded to it."""
    size, wanted = trace.ids.shape[dim], shape[dim]
    if size > wanted:
        return trace.each(lambda ids: ids.narrow(dim, 0, wanted))
    if size == wanted:
        return trace
    if constant_along(trace.ids, dim):
        return trace.like(trace.ids.narrow(dim, 0, 1).expand(shape))
    amounts = [0, 0] * (len(shape) - 1 - dim) + [0, wanted - size]
    return trace.like(F.pad(trace.ids, amounts, value=NOWHERE))
