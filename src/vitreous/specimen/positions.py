"""Trace which image position each element of each tensor comes from.

Position numbers pass through the same views, permutations, rolls, slices and concatenations that
the model applies to its features. So windows, shifts, class tokens, NHWC layouts and patch merging
are recognised in any model, without a table of architectures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.contractions import PRODUCTS, contraction
from vitreous.specimen.graph import args, attribute, numel, op, shape_of, walk_up
from vitreous.specimen.mixing import SCANS, SPATIAL, Mixing, Traced
from vitreous.specimen.trace import (
    NOWHERE,
    PREFIX,
    SPAN,
    Trace,
    compact,
    constant_along,
    expandable,
    image_trace,
    on_finest_grid,
    on_grid,
    paired,
    strided,
    varying,
)

MOVES = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "flatten", "unflatten", "slice",
    "select", "narrow", "expand", "expand_as", "split", "split_with_sizes", "chunk", "unbind",
    "squeeze", "unsqueeze", "movedim", "moveaxis", "swapaxes", "view_as", "reshape_as", "roll",
    "flip", "index", "index_select", "gather", "repeat", "tile", "repeat_interleave",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "unfold", "stack", "swapdims", "mT",
    "mH", "adjoint", "numpy_T", "rot90", "ravel", "tensor_split", "take_along_dim", "unsafe_split",
    "unsafe_chunk", "unsafe_split_with_sizes",
}  # fmt: skip
REDUCTIONS = {
    "mean", "sum", "amax", "amin", "max", "min", "median", "aminmax", "var_mean", "std_mean",
    "logsumexp", "var", "std", "norm", "linalg_vector_norm", "prod", "argmax", "argmin", "any",
    "all",
}  # fmt: skip
REORDERS = {"sort", "argsort", "topk", "msort", "nonzero", "unique", "multinomial", "randperm"}
TOKEN_NAMES = {"dist": "distillation", "reg": "register", "cls": "class", "class": "class"}
"""Names of learned tokens, by a part of their parameter's name."""

log = logging.getLogger("vitreous")


class Positions(Mixing):
    """Positions of all nodes of a graph, computed by one rule per family of operations.

    The rule of an operation that belongs to no family is the method `_<operation>` if there is one,
    else `_elementwise`.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        for node in module.graph.nodes:
            if node in self.data and node.op != "output":
                self.traces[node] = self._follow(node)

    def _follow(self, node: fx.Node) -> Traced:
        """The positions of a node, or None if no rule applies.

        A failing rule only makes positions unknown. Whatever is derived from positions, such as
        attention, is checked against the model's own numbers.
        """
        try:
            trace = self._visit(node)
        except (RuntimeError, IndexError, ValueError, TypeError, KeyError) as error:
            log.debug("positions are lost at %s (%s): %s", node.name, node.target, error)
            return None
        if isinstance(trace, Trace) and tuple(trace.ids.shape) != shape_of(node):
            return None
        return trace

    def _visit(self, node: fx.Node) -> Traced:
        name, value = op(node), node.meta.get("val")
        if node.op == "placeholder":
            return image_trace(shape_of(node))
        if name == "getitem":
            source, number = args(node)
            parts = self.traces.get(source)
            # the example batch is smaller than the exported one, so a part may be missing
            return parts[number] if isinstance(parts, list) and number < len(parts) else None
        if name in REORDERS:
            return None
        if isinstance(value, (tuple, list)) and name not in MOVES:
            return self._several(node, value)
        if name not in MOVES and not isinstance(value, Tensor):
            return None
        return self._rule(name)(node)

    def _rule(self, name: str) -> Callable[[fx.Node], Traced]:
        if name in MOVES:
            return self._move
        if name in PRODUCTS:
            return self._product
        if name.startswith("fft_") and name[4:] not in ("fftshift", "ifftshift"):
            return self._fourier
        if SPATIAL.search(name):
            return self._spatial
        if name in REDUCTIONS:
            return lambda node: self._reduced(node, shape_of(node))
        if name in SCANS:
            return self._scan
        rule: Callable[[fx.Node], Traced] = getattr(self, f"_{name}", self._elementwise)
        return rule

    def _several(self, node: fx.Node, values: Sequence[Any]) -> Traced:
        """Positions of an operation with several outputs: each as the input, or all reduced."""
        first = next((t for t in map(self.known, node.args) if t is not None), None)
        if first is None:
            return None
        if op(node) in REDUCTIONS and isinstance(values[0], Tensor):
            return [self._reduced(node, tuple(values[0].shape))] * len(values)
        shape = first.ids.shape
        return [first if isinstance(v, Tensor) and v.shape == shape else None for v in values]

    def _move(self, node: fx.Node) -> Traced:
        """Positions after an operation that only rearranges elements: rearranged alike."""
        inputs = args(node)[0] if isinstance(args(node)[0], (list, tuple)) else [args(node)[0]]
        traces = [trace for trace in map(self.known, inputs) if trace is not None]
        if len(traces) < len(inputs) or self._moved_by_data(node, inputs):
            return None
        first, *others = traces
        ids = self._moved(node, lambda trace: trace.ids)
        if first.across is not None and all(other.across is not None for other in others):
            across = self._moved(node, lambda trace: trace.both[-1].ids)
            pairs = zip(ids, across, strict=True)
            moved = [replace(first, ids=a, across=first.across.like(b)) for a, b in pairs]
        else:
            moved = [first.like(numbers) for numbers in ids]
            with_step = op(node) == "slice" and len(node.args) > 4
            if with_step or op(node) in {"index", "index_select"}:
                moved = [strided(trace) for trace in moved]
        return list(moved) if isinstance(node.meta.get("val"), (list, tuple)) else moved[0]

    def _moved_by_data(self, node: fx.Node, inputs: Sequence[Any]) -> bool:
        """Whether the rearrangement depends on the images; `expand_as` uses only a shape."""
        extra_inputs = [n for n in self.data_inputs(node) if n not in inputs]
        return any(numel(n) is not None for n in extra_inputs) and not op(node).endswith("_as")

    def _moved(self, node: fx.Node, ids: Callable[[Trace], Tensor]) -> list[Tensor]:
        """Apply the node's operation to the position numbers of its inputs."""

        def value(source: fx.Node) -> Any:
            trace = self.known(source)
            if trace is not None:
                return ids(trace)
            if source in self.data and numel(source) is not None:
                return torch.empty(shape_of(source))  # `expand_as` and the like use only its shape
            return self.constant(source)

        arguments: Any = fx.node.map_arg((node.args, node.kwargs), value)
        move: Any = torch.reshape if op(node) in {"view", "_unsafe_view"} else node.target
        moved = move(*arguments[0], **arguments[1])
        return list(moved) if isinstance(moved, (tuple, list)) else [moved]

    def constant(self, node: fx.Node) -> Any:
        """The value of a node that does not depend on the images, computed once, on the CPU."""
        if node not in self.constants:
            if node.op == "get_attr":
                value = attribute(self.module, str(node.target))
            elif isinstance(node.meta.get("val"), int):
                value = node.meta["val"]
            else:
                arguments: Any = fx.node.map_arg((node.args, node.kwargs), self.constant)
                make: Any = node.target
                with torch.no_grad():
                    value = make(*arguments[0], **arguments[1])
            self.constants[node] = value.cpu() if isinstance(value, Tensor) else value
        return self.constants[node]

    def _elementwise(self, node: fx.Node) -> Traced:
        """Positions after elementwise operations, norms and softmax: those of the operands.

        If no operand has the full shape (queries as rows, keys as columns), both positions are
        kept.
        """
        shape = shape_of(node)
        known = [t for t in map(self.known, node.all_input_nodes) if t is not None]
        fitting = [t for t in known if expandable(t.ids.shape, shape)]
        if not fitting:
            return None
        expanded = [t.each(lambda ids: ids.expand(shape)) for t in fitting]
        if len(expanded) == 1:
            return expanded[0]
        if any(t.across is not None for t in expanded):
            return max(
                expanded, key=lambda t: len(set().union(*(varying(one.ids) for one in t.both)))
            )
        largest_size = max(t.ids.numel() for t in fitting)
        largest = [
            w for w, t in zip(expanded, fitting, strict=True) if t.ids.numel() == largest_size
        ]
        if largest_size == torch.Size(shape).numel():
            return self._complete_tokens(largest)
        return paired(largest[:1] + [w for w in expanded if w is not largest[0]])

    def _complete_tokens(self, traces: list[Trace]) -> Trace:
        """The first trace, or another in which its tokens of several cells are single cells."""
        first, last = traces[0], traces[0].ids.ndim - 1
        if len({t.grid for t in traces}) == 1 or last not in varying(first.ids):
            return first
        wanted = varying(first.ids) - {last}
        return next((t for t in traces if t.grid != first.grid and varying(t.ids) == wanted), first)

    def _layer_norm(self, node: fx.Node) -> Traced:
        """Positions after a layer norm: what is normalised together, even a patch, is one token."""
        trace, shape = self.known(args(node)[0]), args(node)[1]
        if trace is None or trace.across is not None or len(shape) != 1:
            return self._elementwise(node)
        if constant_along(trace.ids, -1):
            return self._elementwise(node)
        patches = self._patches(trace, -1)
        return patches.like(patches.ids.expand(shape_of(node))) if patches is not None else trace

    _rms_norm = _layer_norm

    def _pad(self, node: fx.Node) -> Traced:
        """Positions after padding, which has none, also if it repeats or reflects elements."""
        trace = self.known(node.args[0])
        if trace is None:
            return None
        amounts: Any = fx.node.map_arg(args(node)[1], self.constant)
        return trace.each(lambda ids: F.pad(ids, amounts, value=NOWHERE))

    _constant_pad_nd = _pad

    def _cat(self, node: fx.Node) -> Traced:
        """Positions after a concatenation of attention matrices, tokens or channels."""
        parts: list[fx.Node] = [part for part in args(node)[0] if 0 not in shape_of(part)]
        dim: int = args(node)[1] if len(node.args) > 1 else 0
        traces = [self.known(part) for part in parts]
        known = [t for t in traces if t is not None]
        if any(t.across is not None for t in known):
            return self._cat_matrices(parts, traces, dim)
        if any(not constant_along(t.ids, dim) or (t.ids % SPAN >= PREFIX).any() for t in known):
            return self._cat_tokens(parts, traces, dim)
        return self._cat_channels(parts, traces, dim, shape_of(node))

    _concat = _concatenate = _cat

    def _cat_matrices(
        self, parts: list[fx.Node], traces: list[Trace | None], dim: int
    ) -> Trace | None:
        """Concatenate attention matrices; a constant part (a sink, a null key) has no key."""
        first = next(t for t in traces if t is not None and t.across is not None)
        assert first.across is not None
        query = torch.tensor(NOWHERE)
        if constant_along(first.ids, dim):
            query = first.ids.narrow(dim, 0, 1)
        ids, across = [], []
        for part, trace in zip(parts, traces, strict=True):
            shape = shape_of(part)
            ids.append(trace.ids if trace is not None else query.expand(shape))
            second = trace.across if trace is not None else None
            across.append(second.ids if second is not None else torch.full(shape, NOWHERE))
        keys = first.across.like(torch.cat(across, dim))
        return replace(first, ids=torch.cat(ids, dim), across=keys)

    def _cat_channels(
        self, parts: list[fx.Node], traces: list[Trace | None], dim: int, shape: tuple[int, ...]
    ) -> Trace | None:
        """Concatenate channels; constant ones get the positions of the other parts."""
        known = [t for t in traces if t is not None]
        grid = _common_grid(known)
        if grid is None:
            return None
        prefix = max((t.prefix for t in known), key=len)
        lead = known[0].ids.narrow(dim, 0, 1)
        pieces = []
        for part, trace in zip(parts, traces, strict=True):
            sizes = list(lead.shape)
            sizes[dim] = shape_of(part)[dim]
            pieces.append(trace.ids if trace is not None else lead.expand(sizes))
        first, *others = (piece.narrow(dim, 0, 1) for piece in pieces)
        if all(torch.equal(compact(other), compact(first)) for other in others):
            return Trace(first.expand(shape), grid, prefix)
        return Trace(torch.cat(pieces, dim), grid, prefix)

    def _cat_tokens(
        self, parts: list[fx.Node], traces: list[Trace | None], dim: int
    ) -> Trace | None:
        """Concatenate tokens; constant ones (a class token) are prefix tokens, one per window."""
        traces = on_finest_grid(traces)
        known = [t for t in traces if t is not None]
        grid = _common_grid(known)
        if grid is None:
            return None
        prefix = max((t.prefix for t in known), key=len)
        lead = known[0].ids.narrow(dim, 0, 1)
        windows, window = torch.unique(lead % SPAN, return_inverse=True)
        pieces = []
        for part, trace in zip(parts, traces, strict=True):
            if trace is not None:
                pieces.append(trace.ids)
                continue
            size = shape_of(part)[dim]
            shape = [1] * lead.ndim
            shape[dim] = size
            numbers = (torch.arange(size) + PREFIX + len(prefix)).reshape(shape)
            pieces.append(lead // SPAN * SPAN + numbers + size * window)
            prefix += (_token_name(part),) * size * len(windows)
        return Trace(torch.cat(pieces, dim), grid, prefix)

    def _scaled_dot_product_attention(self, node: fx.Node) -> Traced:
        query, value, shape = self.known(node.args[0]), self.known(node.args[2]), shape_of(node)
        if query is not None and constant_along(query.ids, -1):
            return query.like(query.ids[..., :1].expand(shape))
        if value is None or (query is None and node.args[0] in self.data):
            return None  # the positions of the operands are unknown
        if query is None and constant_along(value.ids, -1):  # learned queries
            self.pooled.add(node)
            tokens = PREFIX + len(value.prefix) + torch.arange(shape[-2])[:, None]
            ids = (value.ids[..., :1, :1] // SPAN * SPAN + tokens).expand(shape)
            return Trace(ids, value.grid, value.prefix + ("query",) * shape[-2])
        return value.like(value.ids[..., :1, :].expand(shape))  # attention over channels

    def _reduced(self, node: fx.Node, shape: tuple[int, ...]) -> Trace | None:
        """Positions after a reduction of channels, patches, or keys (of weights times values)."""
        trace = self.known(node.args[0])
        index = 2 if "norm" in op(node) else 1  # the first option of a norm is its order
        option = args(node)[index] if len(node.args) > index else None
        if trace is None or not isinstance(option, (int, list, tuple)):
            return None
        ndim = trace.ids.ndim
        unsorted = {option} if isinstance(option, int) else {*option}
        dims = sorted((d % ndim for d in unsorted), reverse=True)
        unchanged = [side for side in trace.both if all(constant_along(side.ids, d) for d in dims)]
        kept = paired(unchanged)
        if kept is None and len(dims) == 1:
            kept = self._patches(trace, dims[0])
        if kept is None:
            product = contraction(node)
            pooled = self._pooled(node, product) if product is not None else None
            return pooled.each(lambda ids: ids.reshape(shape)) if pooled is not None else None

        def reduce(ids: Tensor) -> Tensor:
            for dim in dims:
                ids = ids.select(dim, 0)
            return ids.reshape(shape)

        return kept.each(reduce)

    def _scan(self, node: fx.Node) -> Traced:
        """Positions after a cumulative operation, which mixes them if it runs along positions."""
        trace = self.known(args(node)[0])
        dim: Any = args(node)[1] if len(node.args) > 1 else None
        if trace is not None and isinstance(dim, int) and not constant_along(trace.ids, dim):
            self.spreading.add(node)
        return self._elementwise(node)


def _common_grid(traces: list[Trace]) -> Grid | None:
    """The grid that all traces with cells share; None if they have several."""
    grids = {t.grid for t in traces if on_grid(t)} or {t.grid for t in traces}
    return grids.pop() if len(grids) == 1 else None


def _token_name(node: fx.Node) -> str:
    """The name of a learned token, from the names of the parameters it is computed from."""
    names = ""
    for source in walk_up(node, lambda current: current.all_input_nodes, depth_first=True):
        names += f" {source.target}" if source.op == "get_attr" else ""
        if len(names) >= 1000:
            break
    return next((name for word, name in TOKEN_NAMES.items() if word in names), "prefix")
