"""Where in the image does each element of each tensor come from?

Position numbers are sent through the same views, permutations, rolls, slices and concatenations that the model applies
to its features. What a model does with windows, shifts, class tokens, NHWC layouts or patch merging can then be read
off instead of being known: no table of architectures anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from vitreous.specimen.contractions import PRODUCTS, contraction
from vitreous.specimen.graph import args, attribute, op
from vitreous.specimen.mixing import SCANS, SPATIAL, Mixing, Traced, numel
from vitreous.specimen.trace import (
    NOWHERE,
    PREFIX,
    SPAN,
    Trace,
    compact,
    constant_along,
    fits,
    of_image,
    one_grid,
    only_prefix,
    paired,
    raster,
    shape_of,
    thinned,
    token_name,
    varying,
    within_windows,
)

MOVES = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "flatten", "unflatten", "slice", "select",
    "narrow", "expand", "expand_as", "split", "split_with_sizes", "chunk", "unbind", "squeeze", "unsqueeze",
    "movedim", "moveaxis", "swapaxes", "view_as", "reshape_as", "roll", "flip", "index", "index_select", "gather",
    "repeat", "tile", "repeat_interleave", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "unfold", "stack",
    "swapdims", "mT", "mH", "adjoint", "numpy_T", "rot90", "ravel",
    "tensor_split", "take_along_dim", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes",
}  # fmt: skip
REDUCTIONS = {
    "mean", "sum", "amax", "amin", "max", "min", "median", "aminmax", "var_mean", "std_mean",
    "logsumexp", "var", "std", "norm", "linalg_vector_norm", "prod",
    "argmax", "argmin", "any", "all",
}  # fmt: skip
REORDERS = {"sort", "argsort", "topk", "msort", "nonzero", "unique", "multinomial", "randperm"}


log = logging.getLogger("vitreous")


class Positions(Mixing):
    """One walk over the graph; a rule per family of operations."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        for node in module.graph.nodes:
            if node in self.data and node.op != "output":
                self.traces[node] = self._followed(node)

    def _followed(self, node: fx.Node) -> Traced:
        """The positions behind a node. A rule that cannot follow it loses the positions, never the model: whatever is
        concluded from them (streams, attention) is checked against the model's own numbers."""
        try:
            trace = self._visit(node)
        except (RuntimeError, IndexError, ValueError, TypeError, KeyError) as error:
            log.debug("positions are lost at %s (%s): %s", node.name, node.target, error)
            return None
        return (
            trace
            if not isinstance(trace, Trace) or tuple(trace.ids.shape) == shape_of(node)
            else None
        )

    def _visit(self, node: fx.Node) -> Traced:
        name, value = op(node), node.meta.get("val")
        if node.op == "placeholder":
            return of_image(shape_of(node))
        if name == "getitem":
            source, number = args(node)
            parts = self.traces.get(source)
            known = isinstance(parts, list) and number < len(
                parts
            )  # the example has fewer images than were exported
            return parts[number] if known else None  # type: ignore[index]
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
            return self._reduce
        if name in SCANS:
            return self._scan
        rule: Callable[[fx.Node], Traced] = getattr(self, f"_{name}", self._elementwise)
        return rule

    def _several(self, node: fx.Node, values: Sequence[Any]) -> Traced:
        first = next((t for t in map(self.known, node.args) if t is not None), None)
        if first is None:
            return None
        if op(node) in REDUCTIONS and isinstance(values[0], Tensor):  # the largest, and where it is
            return [self._reduced(node, tuple(values[0].shape))] * len(values)
        return [
            first if isinstance(v, Tensor) and v.shape == first.ids.shape else None for v in values
        ]

    def _move(self, node: fx.Node) -> Traced:
        given = args(node)[0] if isinstance(args(node)[0], (list, tuple)) else [args(node)[0]]
        sources = [self.known(source) for source in given]
        others = [
            n
            for n in node.all_input_nodes
            if n in self.data and n not in given and numel(n) is not None
        ]
        if any(source is None for source in sources) or (others and not op(node).endswith("_as")):
            return None  # moved to where the data says
        first, *rest = (source for source in sources if source is not None)
        moved = self._moved(node, lambda trace: trace.ids)
        strided = (op(node) == "slice" and len(node.args) > 4) or op(node) in {
            "index",
            "index_select",
        }
        if first.across is None or any(other.across is None for other in rest):
            found = [thinned(first.like(ids)) if strided else first.like(ids) for ids in moved]
        else:
            second = first.across
            across = self._moved(
                node, lambda trace: trace.across.ids if trace.across is not None else trace.ids
            )
            found = [
                replace(first, ids=a, across=second.like(b))
                for a, b in zip(moved, across, strict=True)
            ]
        return list(found) if isinstance(node.meta.get("val"), (list, tuple)) else found[0]

    def _moved(self, node: fx.Node, ids: Callable[[Trace], Tensor]) -> list[Tensor]:
        def plain(each: fx.Node) -> Any:
            trace = self.known(each)
            if trace is None and each in self.data and numel(each) is not None:
                return torch.empty(shape_of(each))  # only its shape is asked for
            return ids(trace) if trace is not None else self.constant(each)

        given: Any = fx.node.map_arg((node.args, node.kwargs), plain)
        move: Any = torch.reshape if op(node) in {"view", "_unsafe_view"} else node.target
        moved = move(*given[0], **given[1])
        return list(moved) if isinstance(moved, (tuple, list)) else [moved]

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
        """Same place in, same place out: activations, norms, softmax, arithmetic.

        Where neither operand has the full shape (queries as rows, keys as columns) both places count.
        """
        shape = shape_of(node)
        fitting = [
            t
            for t in map(self.known, node.all_input_nodes)
            if t is not None and fits(t.ids.shape, shape)
        ]
        if not fitting:
            return None
        wide = [t.each(lambda ids: ids.expand(shape)) for t in fitting]
        if len(wide) == 1:
            return wide[0]
        if any(t.across is not None for t in wide):
            return max(wide, key=lambda t: len(set().union(*(varying(one.ids) for one in t.both))))
        most = max(t.ids.numel() for t in fitting)
        fullest = [w for w, t in zip(wide, fitting, strict=True) if t.ids.numel() == most]
        if most == torch.Size(shape).numel():
            return self._whole_tokens(fullest)
        return paired(fullest[:1] + [w for w in wide if w is not fullest[0]])

    def _whole_tokens(self, traces: list[Trace]) -> Trace:
        """The first; but if its tokens are patches of several cells which became one in another, the other."""
        first, last = traces[0], traces[0].ids.ndim - 1
        if len({t.grid for t in traces}) == 1 or last not in varying(first.ids):
            return first
        wanted = varying(first.ids) - {last}
        return next((t for t in traces if t.grid != first.grid and varying(t.ids) == wanted), first)

    def _layer_norm(self, node: fx.Node) -> Traced:
        """What is normalised together is one token from here on, also if it is a patch of several cells."""
        trace = self.known(args(node)[0])
        if (
            trace is not None
            and trace.across is None
            and len(args(node)[1]) == 1
            and not constant_along(trace.ids, -1)
        ):
            patches = self._patches(trace, -1)
            return (
                patches.like(patches.ids.expand(shape_of(node))) if patches is not None else trace
            )
        return self._elementwise(node)

    _rms_norm = _layer_norm

    def _pad(self, node: fx.Node) -> Traced:
        """What is padded has no place, also where it repeats or reflects what has one."""
        trace = self.known(node.args[0])
        if trace is None:
            return None
        amounts: Any = fx.node.map_arg(args(node)[1], self._plain)
        return trace.each(lambda ids: F.pad(ids, amounts, value=NOWHERE))

    _constant_pad_nd = _pad

    def _cat(self, node: fx.Node) -> Traced:
        parts: list[fx.Node] = [part for part in args(node)[0] if 0 not in shape_of(part)]
        dim: int = args(node)[1] if len(node.args) > 1 else 0
        traces = [self.known(part) for part in parts]
        there = [t for t in traces if t is not None]
        if any(t.across is not None for t in there):
            return self._joined(parts, traces, dim)
        tokens = any(
            not constant_along(t.ids, dim) or bool((t.ids % SPAN >= PREFIX).any()) for t in there
        )
        traces = one_grid(traces) if tokens else traces
        there = [t for t in traces if t is not None]
        grids = {t.grid for t in there if bool((t.ids % SPAN < PREFIX).any())} or {
            t.grid for t in there
        }
        if not there or len(grids) > 1:
            return None
        prefix = max((t.prefix for t in there), key=len)
        lead = there[0].ids.narrow(dim, 0, 1)
        pieces = []
        for part, trace in zip(parts, traces, strict=True):
            size = shape_of(part)[dim]
            if trace is not None:
                pieces.append(trace.ids)
            elif (
                not tokens
            ):  # constant channels appended to features: they belong to the same places
                pieces.append(
                    lead.expand(
                        *[size if d == dim % lead.ndim else n for d, n in enumerate(lead.shape)]
                    )
                )
            else:
                numbers = torch.arange(size) + PREFIX + len(prefix)
                numbers = numbers.reshape(
                    [-1 if d == dim % lead.ndim else 1 for d in range(lead.ndim)]
                )
                windows, window = torch.unique(
                    lead % SPAN, return_inverse=True
                )  # a token of its own in each of them
                pieces.append(lead // SPAN * SPAN + numbers + size * window)
                prefix += (token_name(part),) * size * len(windows)
        first = pieces[0].narrow(dim, 0, 1)
        if not tokens and all(
            torch.equal(compact(piece.narrow(dim, 0, 1)), compact(first)) for piece in pieces
        ):
            return Trace(
                first.expand(shape_of(node)), grids.pop(), prefix
            )  # channels of the same places
        return Trace(torch.cat(pieces, dim), grids.pop(), prefix)

    _concat = _concatenate = _cat

    def _joined(self, parts: list[fx.Node], traces: list[Trace | None], dim: int) -> Trace | None:
        """Matrices of queries and keys side by side; what is put beside them (a sink, a null key) has no key."""
        first = next(t for t in traces if t is not None and t.across is not None)
        assert first.across is not None
        ids, across = [], []
        for part, trace in zip(parts, traces, strict=True):
            shape = shape_of(part)
            lead = (
                first.ids.narrow(dim, 0, 1)
                if constant_along(first.ids, dim)
                else torch.tensor(NOWHERE)
            )
            ids.append(trace.ids if trace is not None else lead.expand(shape))
            second = trace.across if trace is not None else None
            across.append(second.ids if second is not None else torch.full(shape, NOWHERE))
        return replace(
            first, ids=torch.cat(ids, dim), across=first.across.like(torch.cat(across, dim))
        )

    def _linear(self, node: fx.Node) -> Traced:
        trace = self.known(node.args[0])
        merged = self._merge(node, trace, -1) if trace is not None else None
        return merged.each(lambda ids: ids.expand(shape_of(node))) if merged is not None else None

    def _scaled_dot_product_attention(self, node: fx.Node) -> Traced:
        query, value, shape = self.known(node.args[0]), self.known(node.args[2]), shape_of(node)
        if query is not None and constant_along(query.ids, -1):
            return query.like(query.ids[..., :1].expand(shape))
        if value is None:
            return None
        if query is None and node.args[0] in self.data:
            return None  # lost on the way
        if query is None and constant_along(value.ids, -1):  # learned queries
            self.pooled.add(node)
            tokens = PREFIX + len(value.prefix) + torch.arange(shape[-2])[:, None]
            ids = (value.ids[..., :1, :1] // SPAN * SPAN + tokens).expand(shape)
            return Trace(ids, value.grid, value.prefix + ("query",) * shape[-2])
        return value.like(value.ids[..., :1, :].expand(shape))  # attention over channels

    def _reduce(self, node: fx.Node) -> Traced:
        return self._reduced(node, shape_of(node))

    def _reduced(self, node: fx.Node, shape: tuple[int, ...]) -> Trace | None:
        trace = self.known(node.args[0])
        which = 2 if "norm" in op(node) else 1  # norms name their order first
        over = args(node)[which] if len(node.args) > which else None
        if trace is None or not isinstance(over, (int, list, tuple)):
            return None
        dims = sorted(
            ({over} if isinstance(over, int) else {*over}),
            key=lambda d: d % trace.ids.ndim,
            reverse=True,
        )
        staying = [one for one in trace.both if all(constant_along(one.ids, d) for d in dims)]
        found = (
            paired(staying)
            if staying
            else self._patches(trace, dims[0])
            if len(dims) == 1
            else None
        )
        if found is None:
            product = contraction(node)
            pooled = self._pooled(node, product) if product is not None else None
            return pooled.each(lambda ids: ids.reshape(shape)) if pooled is not None else None
        for d in dims:
            found = found.each(lambda ids, dim=d % trace.ids.ndim: ids.select(dim, 0))  # type: ignore[misc]
        return found.each(lambda ids: ids.reshape(shape))

    def _scan(self, node: fx.Node) -> Traced:
        trace = self.known(args(node)[0])
        dim: Any = args(node)[1] if len(node.args) > 1 else None
        if trace is not None and isinstance(dim, int) and not constant_along(trace.ids, dim):
            self.spreading.add(node)
        return self._elementwise(node)

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
        if flat.ids.ndim == 3 and self._covers_all(node, flat):
            self.spreading.add(node)
        apart = only_prefix(flat)  # tokens without a place that are laid out as a map
        if flat.ids.shape[2:] == shape[2:] and not (apart and len(shape) == 4):
            return flat.each(lambda ids: ids.narrow(1, 0, 1).expand(shape))
        rows, columns = shape[-2:] if len(shape) == 4 else (0, 0)
        if (
            rows * columns <= 1
            or flat.ids.shape[0] != shape[0]
            or not (apart or raster(flat.ids[0, 0]))
        ):
            return None
        if (inside := within_windows(flat, (rows, columns))) is not None:
            return inside.each(lambda ids: ids.expand(shape))
        batch = (
            flat.ids.flatten(1).amax(1).reshape(-1, 1, 1, 1) // SPAN * SPAN
        )  # the maximum is no padding
        ids = batch + torch.arange(rows * columns).reshape(1, 1, rows, columns)
        return Trace(ids.expand(shape), (rows, columns))

    def _covers_all(self, node: fx.Node, trace: Trace) -> bool:
        """Whether a kernel runs along all tokens of the grid in a row, and is as long."""
        kernel = shape_of(args(node)[1])[-1] if isinstance(args(node)[1], fx.Node) else 0
        cells = trace.grid[0] * trace.grid[1]
        return min(trace.grid) > 1 and min(kernel, trace.ids.shape[-1]) >= cells
