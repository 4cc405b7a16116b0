"""Where in the image does each element of each tensor come from?

Position numbers are sent through the same views, permutations, rolls, slices and concatenations that the model applies
to its features. What a model does with windows, shifts, class tokens, NHWC layouts or patch merging can then be read
off instead of being known: no table of architectures anywhere.

A number is `batch * SPAN + position`, where position counts the cells of a grid in raster order, or is `PREFIX + j` for
the j-th token that belongs to no cell (class, distillation, register). `NOWHERE` marks padding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.graph import args, attribute, depends_on_input, op

SPAN = 1 << 40
PREFIX = 1 << 32
NOWHERE = -1

MOVES = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "flatten", "unflatten", "slice", "select",
    "narrow", "expand", "expand_as", "split", "split_with_sizes", "chunk", "unbind", "squeeze", "unsqueeze",
    "movedim", "moveaxis", "swapaxes", "view_as", "reshape_as", "roll", "flip", "index", "index_select", "gather",
    "repeat", "tile", "repeat_interleave", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "unfold", "stack",
    "tensor_split", "take_along_dim", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes",
}  # fmt: skip
SPATIAL = re.compile(r"(conv\d?d?$|convolution|conv_transpose|pool|upsample|grid_sampler)")
REDUCTIONS = {
    "mean", "sum", "amax", "amin", "max", "min", "logsumexp", "var", "std", "norm", "linalg_vector_norm", "prod",
    "argmax", "argmin", "any", "all",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """Position numbers for every element of a tensor, and the grid they count."""

    ids: Tensor
    grid: Grid
    prefix: tuple[str, ...] = ()

    def like(self, ids: Tensor) -> Trace:
        return Trace(ids, self.grid, self.prefix)


Traced = Trace | list["Trace | None"] | None


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The node's shape for the example batch."""
    return tuple(node.meta["val"].shape)


def constant_along(ids: Tensor, dim: int) -> bool:
    """Whether all elements along `dim` come from the same position; free where `dim` is an expanded one."""
    if ids.shape[dim] == 1 or ids.stride(dim) == 0:
        return True
    return bool((ids == ids.narrow(dim, 0, 1)).all())


class Positions:
    """One walk over the graph; a rule per family of operations."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.data = depends_on_input(module.graph)
        self.traces: dict[fx.Node, Traced] = {}
        """For every node that depends on the images; None where positions are unknown or gone."""
        self.mixing: set[fx.Node] = set()
        """Nodes that mix positions by weights of their own: token-mixing layers."""
        self.constants: dict[fx.Node, Any] = {}
        for node in module.graph.nodes:
            if node in self.data and node.op != "output":
                self.traces[node] = self._visit(node)

    def _visit(self, node: fx.Node) -> Traced:
        name, value = op(node), node.meta.get("val")
        if node.op == "placeholder":
            return _image(shape_of(node))
        if name == "getitem":
            source, number = args(node)
            parts = self.traces.get(source)
            return parts[number] if isinstance(parts, list) else None
        if isinstance(value, (tuple, list)) and name not in MOVES:
            return self._several(node, value)
        if name not in MOVES and not isinstance(value, Tensor):
            return None
        rule: Callable[[fx.Node], Traced] = getattr(self, f"_{name}", self._elementwise)
        if name in MOVES:
            rule = self._move
        elif name in {"matmul", "bmm", "mm", "baddbmm", "addmm"}:
            rule = self._product
        elif SPATIAL.search(name):
            rule = self._spatial
        elif name in REDUCTIONS:
            rule = self._reduce
        return rule(node)

    def known(self, arg: Any) -> Trace | None:
        found = self.traces.get(arg) if isinstance(arg, fx.Node) else None
        return found if isinstance(found, Trace) else None

    def _several(self, node: fx.Node, values: Sequence[Any]) -> Traced:
        first = next((t for t in map(self.known, node.args) if t is not None), None)
        if first is None:
            return None
        return [first if isinstance(v, Tensor) and v.shape == first.ids.shape else None for v in values]

    def _move(self, node: fx.Node) -> Traced:
        first = next((t for t in map(self.known, node.all_input_nodes) if t is not None), None)
        if first is None:
            return None
        sources = args(node)[0] if isinstance(args(node)[0], (list, tuple)) else [args(node)[0]]
        if any(self.known(source) is None for source in sources):
            return None
        plain: Any = fx.node.map_arg((node.args, node.kwargs), self._plain)
        move: Any = torch.reshape if op(node) in {"view", "_unsafe_view"} else node.target
        moved = move(*plain[0], **plain[1])
        if isinstance(moved, (tuple, list)):
            return [first.like(part) for part in moved]
        strided = (op(node) == "slice" and len(node.args) > 4) or op(node) in {"index", "index_select"}
        return _thinned(first.like(moved)) if strided else first.like(moved)

    def _plain(self, node: fx.Node) -> Any:
        """What an argument is worth while moving ids: the ids, a size, or a constant of the model."""
        trace = self.known(node)
        if trace is not None:
            return trace.ids
        return self.constant(node)

    def constant(self, node: fx.Node) -> Any:
        """The value of a node that does not depend on the images, computed when first asked for."""
        if node not in self.constants:
            if node.op == "get_attr":
                value = attribute(self.module, str(node.target))
            elif isinstance(node.meta.get("val"), int):
                value = node.meta["val"]
            else:
                given: Any = fx.node.map_arg((node.args, node.kwargs), self.constant)
                make: Any = node.target
                with torch.no_grad():
                    value = make(*given[0], **given[1])
            self.constants[node] = value.cpu() if isinstance(value, Tensor) else value
        return self.constants[node]

    def _elementwise(self, node: fx.Node) -> Traced:
        """Same place in, same place out: activations, norms, softmax, arithmetic."""
        shape = shape_of(node)
        fitting = [t for t in map(self.known, node.all_input_nodes) if t is not None and _fits(t.ids.shape, shape)]
        if not fitting:
            return None
        fullest = max(fitting, key=lambda t: t.ids.numel())
        return fullest.like(fullest.ids.expand(shape))

    def _pad(self, node: fx.Node) -> Traced:
        """What is padded has no place, also where it repeats or reflects what has one."""
        trace = self.known(node.args[0])
        if trace is None:
            return None
        amounts: Any = fx.node.map_arg(args(node)[1], self._plain)
        return trace.like(F.pad(trace.ids, amounts, value=NOWHERE))

    _constant_pad_nd = _pad

    def _cat(self, node: fx.Node) -> Traced:
        parts: list[fx.Node] = [part for part in args(node)[0] if 0 not in shape_of(part)]
        dim: int = args(node)[1] if len(node.args) > 1 else 0
        traces = [self.known(part) for part in parts]
        there = [t for t in traces if t is not None]
        grids = {t.grid for t in there if bool((t.ids % SPAN < PREFIX).any())} or {t.grid for t in there}
        if not there or len(grids) > 1:
            return None
        prefix = max((t.prefix for t in there), key=len)
        lead = there[0].ids.narrow(dim, 0, 1)
        tokens = any(not constant_along(t.ids, dim) or bool((t.ids % SPAN >= PREFIX).any()) for t in there)
        pieces = []
        for part, trace in zip(parts, traces, strict=True):
            size = shape_of(part)[dim]
            if trace is not None:
                pieces.append(trace.ids)
            elif not tokens:  # constant channels appended to features: they belong to the same places
                pieces.append(lead.expand(*[size if d == dim % lead.ndim else n for d, n in enumerate(lead.shape)]))
            else:
                numbers = torch.arange(size) + PREFIX + len(prefix)
                numbers = numbers.reshape([-1 if d == dim % lead.ndim else 1 for d in range(lead.ndim)])
                pieces.append(lead // SPAN * SPAN + numbers)
                prefix += (_token_name(part),) * size
        first = pieces[0].narrow(dim, 0, 1)
        if not tokens and all(torch.equal(compact(piece.narrow(dim, 0, 1)), compact(first)) for piece in pieces):
            return Trace(first.expand(shape_of(node)), grids.pop(), prefix)  # channels of the same places
        return Trace(torch.cat(pieces, dim), grids.pop(), prefix)

    def _linear(self, node: fx.Node) -> Traced:
        trace = self.known(node.args[0])
        merged = self._merge(node, trace, -1) if trace is not None else None
        return merged.like(merged.ids.expand(shape_of(node))) if merged is not None else None

    def _merge(self, node: fx.Node, trace: Trace, dim: int) -> Trace | None:
        """Contract `dim`: channels of one place stay there; patches become the cells of a coarser grid; a contraction
        over positions proper is a token-mixing layer."""
        ids = trace.ids
        if constant_along(ids, dim):
            return trace.like(ids.narrow(dim, 0, 1))
        line = ids.movedim(dim, -1).reshape(-1, ids.shape[dim])[0]
        rows, columns = trace.grid
        if line.unique().numel() == line.numel() and line.numel() in (rows, columns, rows * columns):
            self.mixing.add(node)
            return None
        coarse = _coarser(trace, dim)
        return None if coarse is None or coarse.grid == (1, 1) else coarse  # one cell: all positions are gone

    def _product(self, node: fx.Node) -> Traced:
        left, right = node.args[-2:]
        a, b, shape = self.known(left), self.known(right), shape_of(node)
        if a is not None and constant_along(a.ids, -1):
            return a.like(a.ids[..., :1].expand(shape))
        if b is not None and b.ids.ndim > 1 and constant_along(b.ids, -2):
            return b.like(b.ids[..., :1, :].expand(shape))
        if (a is None) != (b is None) and not (left in self.data and right in self.data):
            self.mixing.add(node)
        return None

    def _einsum(self, node: fx.Node) -> Traced:
        inputs, output = (part.split(",") for part in str(node.args[0]).replace(" ", "").split("->"))
        operands: Sequence[fx.Node] = args(node)[1]
        for letters, operand in zip(inputs, operands, strict=True):
            trace = self.known(operand)
            if trace is None or "." in output[0]:
                continue
            ids = trace.ids
            gone = [i for i, letter in enumerate(letters) if letter not in output[0]]
            if all(constant_along(ids, i) for i in gone):
                kept = [letter for letter in letters if letter in output[0]]
                for i in reversed(gone):
                    ids = ids.select(i, 0)
                ids = ids.permute([kept.index(c) for c in output[0] if c in kept])
                shape = [ids.shape[[c for c in output[0] if c in kept].index(c)] if c in kept else 1 for c in output[0]]
                return trace.like(ids.reshape(shape).expand(shape_of(node)))
        return None

    def _scaled_dot_product_attention(self, node: fx.Node) -> Traced:
        query = self.known(node.args[0])
        if query is None:
            return None
        if constant_along(query.ids, -1):
            return query.like(query.ids[..., :1].expand(shape_of(node)))
        value = self.known(node.args[2])  # attention over channels: positions run along the last dimension
        return value.like(value.ids[..., :1, :].expand(shape_of(node))) if value is not None else None

    def _reduce(self, node: fx.Node) -> Traced:
        trace = self.known(node.args[0])
        which = 2 if "norm" in op(node) else 1  # norms name their order first
        over = args(node)[which] if len(node.args) > which else None
        if trace is None or not isinstance(over, (int, list, tuple)):
            return None
        dims: list[int] = [over] if isinstance(over, int) else list(over)
        for d in sorted((d % trace.ids.ndim for d in dims), reverse=True):
            if not constant_along(trace.ids, d):  # pooled over neighbours, or over everything
                coarse = _coarser(trace, d) if len(dims) == 1 else None
                if coarse is None or coarse.grid == (1, 1):
                    return None
                trace = coarse
            trace = trace.like(trace.ids.select(d, 0))
        return trace.like(trace.ids.reshape(shape_of(node)))

    def _im2col(self, node: fx.Node) -> Traced:
        """Patches taken out of a map, possibly overlapping: (b, c*k*k, patches)."""
        trace = self.known(args(node)[0])
        if trace is None:
            return None
        one = trace.ids[:, :1].double() + 1  # the operation pads with zeros and knows no integers
        columns = torch.ops.aten.im2col.default(one, *args(node)[1:]).long() - 1
        channels = shape_of(node)[1] // columns.shape[1]
        return trace.like(columns.repeat(1, channels, 1))

    def _spatial(self, node: fx.Node) -> Traced:
        """Convolution, pooling, resampling: a new grid where the size changes, the same places where it does not."""
        trace, shape = self.known(node.args[0]), shape_of(node)
        if trace is None or trace.ids.ndim != len(shape):
            return None
        flat = self._merge(node, trace, 1) if "pool" not in op(node) else trace
        if flat is None:
            return None
        if flat.ids.shape[2:] == shape[2:]:
            return flat.like(flat.ids.narrow(1, 0, 1).expand(shape))
        rows, columns = shape[-2:] if len(shape) == 4 else (0, 0)
        if rows * columns <= 1 or flat.ids.shape[0] != shape[0] or not _raster(flat.ids[0, 0]):
            return None
        batch = flat.ids.flatten(1).amax(1).reshape(-1, 1, 1, 1) // SPAN * SPAN  # the maximum is no padding
        ids = batch + torch.arange(rows * columns).reshape(1, 1, rows, columns)
        return Trace(ids.expand(shape), (rows, columns))


def _image(shape: tuple[int, ...]) -> Trace | None:
    if len(shape) != 4:
        return None
    batch, channels, rows, columns = shape
    ids = torch.arange(batch).reshape(-1, 1, 1, 1) * SPAN + torch.arange(rows * columns).reshape(1, 1, rows, columns)
    return Trace(ids.expand(batch, channels, rows, columns), (rows, columns))


def _fits(shape: torch.Size, into: tuple[int, ...]) -> bool:
    return len(shape) <= len(into) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(into), strict=False))


def _raster(ids: Tensor) -> bool:
    """Whether a plane of position numbers runs row by row (padding aside), as a convolution expects."""
    line = ids.flatten()
    line = line[line >= 0] % SPAN
    return bool((line[1:] > line[:-1]).all()) and bool((line < PREFIX).all())


def _thinned(trace: Trace) -> Trace:
    """Every second row and column (a strided slice) is a grid of its own; a crop is not."""
    ids = compact(trace.ids)
    position = ids % SPAN
    cells = position[(ids >= 0) & (position < PREFIX)]
    width = trace.grid[1]
    rows, columns = torch.unique(cells // width), torch.unique(cells % width)
    steps = [set((line[1:] - line[:-1]).tolist()) for line in (rows, columns)]
    if not cells.numel() or max(map(len, steps)) > 1 or max([max(s) for s in steps if s], default=1) == 1:
        return trace
    row = torch.searchsorted(rows, position // width)
    column = torch.searchsorted(columns, position % width)
    new = torch.where(position < PREFIX, row * len(columns) + column, position)
    new = torch.where(ids < 0, NOWHERE, ids // SPAN * SPAN + new)
    return Trace(new.expand_as(trace.ids), (len(rows), len(columns)), trace.prefix)


def compact(ids: Tensor) -> Tensor:
    """The same numbers without the dimensions along which they are merely expanded."""
    for dim in range(ids.ndim):
        ids = ids.narrow(dim, 0, 1) if ids.stride(dim) == 0 and ids.shape[dim] else ids
    return ids


def _coarser(trace: Trace, dim: int) -> Trace | None:
    """Cells merged along `dim` become one cell each, ordered by where their centres lie."""
    ids = trace.ids
    position, batch = ids % SPAN, ids.narrow(dim, 0, 1) // SPAN
    if bool((ids < 0).any()) or bool((position >= PREFIX).any()):
        return None
    width = trace.grid[1]
    row, rows = torch.unique((position // width).sum(dim, keepdim=True), return_inverse=True)
    column, columns = torch.unique((position % width).sum(dim, keepdim=True), return_inverse=True)
    grid = (row.numel(), column.numel())
    if grid[0] * grid[1] * batch.unique().numel() > rows.numel():
        return None
    return Trace(batch * SPAN + rows * grid[1] + columns, grid)


def _token_name(node: fx.Node) -> str:
    """What a learned token is called, from the parameter it comes from."""
    queue, seen = [node], ""
    while queue and len(seen) < 1000:
        current = queue.pop()
        seen += f" {current.target}" if current.op == "get_attr" else ""
        queue.extend(current.all_input_nodes)
    for word, name in (("dist", "distillation"), ("reg", "register"), ("cls", "class"), ("class", "class")):
        if word in seen:
            return name
    return "prefix"
