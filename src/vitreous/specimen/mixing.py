"""Position numbers behind operations that contract a dimension and may mix positions."""

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
"""Operations that turn scores into weights, certainly or possibly."""
SEARCH_LIMIT = 32
"""Maximum number of nodes visited in the search for such an operation."""

Traced = Trace | list["Trace | None"] | None
"""The positions of a node: of one tensor, of several, or unknown."""


class Mixing:
    """Positions of the nodes of a graph, as far as known, and rules for contractions."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.data = depends_on_input(module.graph)
        self.traces: dict[fx.Node, Traced] = {}
        """Positions of every node that depends on the images; None if unknown or pooled away."""
        self.mixing: set[fx.Node] = set()
        """Nodes that mix positions by learned weights: token-mixing layers."""
        self.spreading: set[fx.Node] = set()
        """Nodes that mix positions without learning: Fourier transforms, fixed matrices, scans."""
        self.pooled: set[fx.Node] = set()
        """Attention products with learned queries."""
        self.constants: dict[fx.Node, Any] = {}

    def known(self, arg: Any) -> Trace | None:
        """The positions of an argument; None if they are unknown or it is not a tensor."""
        trace = self.traces.get(arg) if isinstance(arg, fx.Node) else None
        return trace if isinstance(trace, Trace) else None

    def data_inputs(self, node: fx.Node) -> list[fx.Node]:
        """The inputs of a node that depend on the images."""
        return [n for n in node.all_input_nodes if n in self.data]

    def _merge(self, node: fx.Node, trace: Trace, dim: int) -> Trace | None:
        """Positions after a contraction of `dim` by weights.

        Contracted channels keep their position. Contracted patches become the cells of a coarser
        grid. A contraction of a row, column or all cells is noted as token mixing.
        """
        unchanged = [
            side.like(side.ids.narrow(dim, 0, 1))
            for side in trace.both
            if constant_along(side.ids, dim)
        ]
        if unchanged:
            return paired(unchanged)
        line = trace.ids.movedim(dim, -1).reshape(-1, trace.ids.shape[dim])[0]
        rows, columns = trace.grid
        all_differ = line.unique().numel() == line.numel()
        if all_differ and line.numel() in (rows, columns, rows * columns):
            self._note_mixing(node)
            return None
        return self._patches(trace, dim)

    def _patches(self, trace: Trace, dim: int) -> Trace | None:
        """Positions with the cells along `dim` merged; None if only one cell would be left."""
        coarse = merge_cells(trace, dim)
        return None if coarse is None or coarse.grid == (1, 1) else coarse

    def _note_mixing(self, node: fx.Node) -> None:
        """Record that a node mixes positions, by learned or by fixed weights (cosines)."""
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
        unchanged: list[Trace] = []
        for number, operand in enumerate(product.operands):
            trace, dims = self.known(operand), product.summed(number)
            sides = trace.both if trace is not None else ()
            constant = [side for side in sides if all(constant_along(side.ids, d) for d in dims)]
            unchanged += [_aligned(side, product, number, shape_of(node)) for side in constant]
        if unchanged:
            return paired(unchanged)
        data_operands = [i for i, operand in enumerate(product.operands) if operand in self.data]
        if len(data_operands) > 1:
            return self._pooled(node, product)
        return self._mixed(node, product, data_operands[0])

    def _mixed(self, node: fx.Node, product: Contraction, number: int) -> Trace | None:
        """Positions after a product that sums the one operand of the image over positions."""
        trace = self.known(product.operands[number])
        if trace is None:
            return None
        dims = [dim for dim in product.summed(number) if not constant_along(trace.ids, dim)]
        merged = self._merge(node, trace, dims[0]) if len(dims) == 1 else None
        if merged is None:
            self._note_mixing(node)
            return None
        return _aligned(merged, product, number, shape_of(node))

    def _pooled(self, node: fx.Node, product: Contraction) -> Trace | None:
        """Positions after weights times values for learned queries: tokens without a cell."""
        if not all(operand in self.data for operand in product.operands):
            return None
        number = self.weights_among(product)
        if number is None:
            return None
        values = self.known(product.operands[1 - number])
        if values is None or values.across is not None:
            return None
        if self.from_queries_and_keys(product.operands[number]):
            return None  # the queries come from the image, but their positions are unknown
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
        """The index of the operand that holds weights, judged by a softmax or similar before it."""
        if len(product.operands) != 2:
            return None
        for through in (False, True):  # a layer may mix heads after the softmax
            first, second = (
                self._weight_evidence(operand, through) for operand in product.operands
            )
            if first != second:
                return int(second > first)
        return None

    def _weight_evidence(self, node: fx.Node, through: bool) -> int:
        """Evidence that a tensor holds weights: 2 after a softmax, 1 after a weak sign, else 0.

        The search stops at a learned layer or product. With `through` it continues before layers
        that keep the size, up to the nearest norm.
        """

        def follow(current: fx.Node) -> Iterable[fx.Node]:
            name, inputs = op(current), self.data_inputs(current)
            layer = name in PRODUCTS or name in ("linear", "scaled_dot_product_attention")
            learned = layer or SPATIAL.search(name)
            if "norm" in name or (learned and (len(inputs) > 1 or not through)):
                return []
            size = numel(current)
            return [p for p in inputs if size is None or numel(p) in (None, size)]

        names = {op(n) for n in walk_up(node, follow, depth_first=True, most=SEARCH_LIMIT)}
        return 2 if names & STRONG_SIGNS else int(bool(names & WEAK_SIGNS))

    def _fourier(self, node: fx.Node) -> Traced:
        """Positions after a Fourier transform, which mixes them, or after its inverse."""
        trace, shape = self.known(args(node)[0]), shape_of(node)
        if trace is None:
            return None
        name = op(node).removeprefix("fft_")
        dim_argument: Any = args(node)[2] if len(node.args) > 2 else None
        if dim_argument is None and name.endswith("fft"):
            dim_argument = -1
        elif dim_argument is None:
            dim_argument = [-2, -1] if name.endswith("2") else list(range(len(shape)))
        dims = [dim_argument] if isinstance(dim_argument, int) else list(dim_argument)
        if any(not constant_along(trace.ids, dim) for dim in dims):
            self.spreading.add(node)
        if name.startswith("irfft"):
            trace = self._before_transform(node) or trace
        for dim in dims:
            trace = _resized(trace, dim % len(shape), shape)
        return trace

    def _before_transform(self, node: fx.Node) -> Trace | None:
        """The positions of the input of the matching forward transform."""
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
        """Positions after cutting a map into patches, which may overlap: (b, c*k*k, patches)."""
        trace = self.known(args(node)[0])
        if trace is None:
            return None
        numbers = trace.ids[:, :1].double() + 1  # im2col pads with 0 and does not take integers
        columns = torch.ops.aten.im2col.default(numbers, *args(node)[1:]).long() - 1
        channels = shape_of(node)[1] // columns.shape[1]
        return trace.like(columns.repeat(1, channels, 1))

    def _spatial(self, node: fx.Node) -> Traced:
        """Positions after convolution, pooling or resampling; a new size is a new grid."""
        trace, shape = self.known(node.args[0]), shape_of(node)
        if trace is None or trace.ids.ndim != len(shape):
            return None
        flat = self._merge(node, trace, 1) if "pool" not in op(node) else trace
        if flat is None:
            return None
        if flat.ids.ndim == 3 and self._covers_all(node, flat):
            self.spreading.add(node)
        placeless = only_prefix(flat)  # prefix tokens arranged as a map
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
        # padding is negative, so the maximum is an image number
        image = flat.ids.flatten(1).amax(1).reshape(-1, 1, 1, 1) // SPAN * SPAN
        ids = image + torch.arange(rows * columns).reshape(1, 1, rows, columns)
        return Trace(ids.expand(shape), (rows, columns))

    def _covers_all(self, node: fx.Node, trace: Trace) -> bool:
        """Whether a 1-d kernel over the sequence of all cells is at least as long as it."""
        kernel = shape_of(args(node)[1])[-1] if isinstance(args(node)[1], fx.Node) else 0
        cells = trace.grid[0] * trace.grid[1]
        return min(trace.grid) > 1 and min(kernel, trace.ids.shape[-1]) >= cells


def _aligned(trace: Trace, product: Contraction, number: int, shape: tuple[int, ...]) -> Trace:
    """Positions of the result of a product, from those of its operand `number`."""
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
    """Positions cropped or padded to the size of `dim` in `shape`."""
    size, wanted = trace.ids.shape[dim], shape[dim]
    if size > wanted:
        return trace.each(lambda ids: ids.narrow(dim, 0, wanted))
    if size == wanted:
        return trace
    if constant_along(trace.ids, dim):
        return trace.like(trace.ids.narrow(dim, 0, 1).expand(shape))
    amounts = [0, 0] * (len(shape) - 1 - dim) + [0, wanted - size]
    return trace.like(F.pad(trace.ids, amounts, value=NOWHERE))
