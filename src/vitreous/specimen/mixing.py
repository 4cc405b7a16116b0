"""What mixes positions: products, Fourier transforms, scans. The rules of `positions.py` that contract a dimension."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from vitreous.specimen.contractions import PRODUCTS, Contraction, contraction
from vitreous.specimen.graph import args, attribute, depends_on_input, op
from vitreous.specimen.trace import (
    NOWHERE,
    PREFIX,
    SPAN,
    Trace,
    coarser,
    constant_along,
    paired,
    shape_of,
)

SPATIAL = re.compile(r"(conv\d?d?$|convolution|conv_transpose|pool|upsample|grid_sampler)")
SCANS = {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "associative_scan"}
SHARPENS = {
    "softmax": 2,
    "_softmax": 2,
    "_safe_softmax": 2,
    "exp": 2,
    "exp2": 2,
    "log_softmax": 2,
} | dict.fromkeys(
    (
        "sigmoid",
        "relu",
        "clamp",
        "clamp_min",
        "square",
        "pow",
        "softplus",
        "elu",
        "tanh",
        "gelu",
        "silu",
        "abs",
    ),
    1,
)
"""What turns scores into weights, and how clear a sign of weights it is."""

Traced = Trace | list["Trace | None"] | None


class Mixing:
    """What is known of the positions of a graph so far, and the rules for operations that mix them."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.data = depends_on_input(module.graph)
        self.traces: dict[fx.Node, Traced] = {}
        """For every node that depends on the images; None where positions are unknown or gone."""
        self.mixing: set[fx.Node] = set()
        """Nodes that mix positions by learned weights: token-mixing layers."""
        self.spreading: set[fx.Node] = set()
        """Nodes that mix positions in another way: Fourier transforms, fixed matrices, scans, long convolutions."""
        self.pooled: set[fx.Node] = set()
        """Products whose queries are learned, not tokens of the image."""
        self.constants: dict[fx.Node, Any] = {}

    def known(self, arg: Any) -> Trace | None:
        found = self.traces.get(arg) if isinstance(arg, fx.Node) else None
        return found if isinstance(found, Trace) else None

    def _merge(self, node: fx.Node, trace: Trace, dim: int) -> Trace | None:
        """Contract `dim`: channels of one place stay there; patches become the cells of a coarser grid; a contraction
        over positions proper is a token-mixing layer."""
        staying = [
            one.like(one.ids.narrow(dim, 0, 1))
            for one in trace.both
            if constant_along(one.ids, dim)
        ]
        if staying:
            return paired(staying)
        line = trace.ids.movedim(dim, -1).reshape(-1, trace.ids.shape[dim])[0]
        rows, columns = trace.grid
        if line.unique().numel() == line.numel() and line.numel() in (
            rows,
            columns,
            rows * columns,
        ):
            self._mixes(node)
            return None
        return self._patches(trace, dim)

    def _patches(self, trace: Trace, dim: int) -> Trace | None:
        coarse = coarser(trace, dim)
        return (
            None if coarse is None or coarse.grid == (1, 1) else coarse
        )  # one cell: all positions are gone

    def _mixes(self, node: fx.Node) -> None:
        """Positions are mixed by learned weights, or by fixed ones (a matrix of cosines)."""
        others = [
            n
            for n in node.all_input_nodes
            if n not in self.data and isinstance(n.meta.get("val"), Tensor)
        ]
        learned = not others or any(self._learned(n) for n in others)
        (self.mixing if learned else self.spreading).add(node)

    def _learned(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return isinstance(attribute(self.module, str(node.target)), nn.Parameter)
        return any(self._learned(n) for n in node.all_input_nodes)

    def _product(self, node: fx.Node) -> Traced:
        product = contraction(node)
        if product is None:
            return None
        staying = [
            _aligned(one, letters, product.output, shape_of(node))
            for number, (operand, letters) in enumerate(
                zip(product.operands, product.letters, strict=True)
            )
            if (trace := self.known(operand)) is not None
            for one in trace.both
            if all(constant_along(one.ids, dim) for dim in product.summed(number))
        ]
        if staying:
            return paired(staying)
        among = [number for number, operand in enumerate(product.operands) if operand in self.data]
        if len(among) > 1:
            return self._pooled(node, product)
        return self._mixed(node, product, among[0])

    def _mixed(self, node: fx.Node, product: Contraction, number: int) -> Trace | None:
        """The one operand that depends on the images is contracted over its positions, or over patches."""
        trace, letters = self.known(product.operands[number]), product.letters[number]
        over = [
            dim
            for dim in product.summed(number)
            if trace is not None and not constant_along(trace.ids, dim)
        ]
        if trace is None:
            return None
        merged = self._merge(node, trace, over[0]) if len(over) == 1 else None
        if merged is None:
            self._mixes(node)
            return None
        return _aligned(merged, letters, product.output, shape_of(node))

    def _pooled(self, node: fx.Node, product: Contraction) -> Trace | None:
        """Weights over all keys for queries that are learned: the results are tokens without a place."""
        number = (
            self.weights_among(product)
            if all(operand in self.data for operand in product.operands)
            else None
        )
        values = self.known(product.operands[1 - number]) if number is not None else None
        if number is None or values is None or values.across is not None:
            return None
        if self.asked(product.operands[number]):
            return None  # queries of the image whose positions were lost
        sizes, letters = product.sizes, product.letters[1 - number]
        rows = [c for c in product.own(number, 1 - number) if c in product.output]
        ids = values.ids
        for dim in product.summed(1 - number):
            ids = ids.narrow(dim, 0, 1)
        shape = tuple(sizes[c] for c in product.output)
        first = _aligned(values.like(ids // SPAN * SPAN), letters, product.output, shape)
        if not all(constant_along(first.ids, d) for d, c in enumerate(product.output) if c in rows):
            return None
        self.pooled.add(node)
        size = sizes[rows[-1]] if rows else 1
        tokens = PREFIX + len(values.prefix) + torch.arange(size)
        tokens = tokens.reshape([-1 if rows and c == rows[-1] else 1 for c in product.output])
        return Trace(first.ids + tokens, values.grid, values.prefix + ("query",) * size)

    def asked(self, weights: fx.Node) -> bool:
        """Whether weights come from a product of two tensors of the image, queries and keys."""
        queue, seen = [weights], {weights}
        while queue:
            current = queue.pop()
            parents = [p for p in current.all_input_nodes if p in self.data]
            if op(current) in PRODUCTS and len(parents) > 1:
                return True
            fresh = [p for p in parents if p not in seen and numel(p) == numel(weights)]
            seen.update(fresh)
            queue.extend(fresh)
        return False

    def weights_among(self, product: Contraction) -> int | None:
        """Which of two operands over the same positions are weights: the one that a softmax or the like has made."""
        if len(product.operands) != 2:
            return None
        for through in (False, True):  # heads may have been mixed since
            signs = [self._sharpened(operand, through) for operand in product.operands]
            if signs[0] != signs[1]:
                return int(signs[1] > signs[0])
        return None

    def _sharpened(self, node: fx.Node, through: bool) -> int:
        """How clear a sign of weights is found before the last learned layer or product, or `through` layers that
        keep the size up to the last norm."""
        queue, seen, best = [node], {node}, 0
        while queue and len(seen) < 32:
            current = queue.pop()
            name = op(current)
            best = max(best, SHARPENS.get(name, 0))
            learned = (
                name in PRODUCTS
                or name in ("linear", "scaled_dot_product_attention")
                or SPATIAL.search(name)
            )
            several = sum(p in self.data for p in current.all_input_nodes) > 1
            if "norm" in name or (learned and (several or not through)):
                continue
            size = numel(current)
            fresh = [p for p in current.all_input_nodes if p in self.data and p not in seen]
            fresh = [p for p in fresh if size is None or numel(p) in (None, size)]
            seen.update(fresh)
            queue.extend(fresh)
        return best

    def _fourier(self, node: fx.Node) -> Traced:
        """A Fourier transform over positions mixes all of them; what is transformed back is where it was."""
        trace, shape = self.known(args(node)[0]), shape_of(node)
        plain = op(node).removeprefix("fft_")
        over: Any = args(node)[2] if len(node.args) > 2 else None
        if over is None:
            over = (
                -1
                if plain.endswith("fft")
                else [-2, -1]
                if plain.endswith("2")
                else list(range(len(shape)))
            )
        dims = [over] if isinstance(over, int) else list(over)
        if trace is None:
            return None
        if any(not constant_along(trace.ids, dim) for dim in dims):
            self.spreading.add(node)
        if plain.startswith("irfft"):
            trace = self._before_transform(node) or trace
        for dim in dims:
            dim %= len(shape)
            size = trace.ids.shape[dim]
            if size > shape[dim]:
                trace = trace.each(lambda ids, d=dim: ids.narrow(d, 0, shape[d]))  # type: ignore[misc]
            elif size < shape[dim]:
                amounts = [0, 0] * (len(shape) - 1 - dim) + [0, shape[dim] - size]
                fixed = constant_along(trace.ids, dim)
                lead = (
                    trace.ids.narrow(dim, 0, 1).expand(shape)
                    if fixed
                    else F.pad(trace.ids, amounts, value=NOWHERE)
                )
                trace = trace.like(lead)
        return trace

    def _before_transform(self, node: fx.Node) -> Trace | None:
        """The positions that the matching transform was given."""
        queue, seen = [node], {node}
        while queue:
            current = queue.pop(0)
            if op(current).startswith("fft_rfft") and current is not node:
                return self.known(args(current)[0])
            fresh = [p for p in current.all_input_nodes if p in self.data and p not in seen]
            seen.update(fresh)
            queue.extend(fresh)
        return None

    def _view_as_real(self, node: fx.Node) -> Traced:
        trace = self.known(args(node)[0])
        return (
            trace.each(lambda ids: ids[..., None].expand(shape_of(node)))
            if trace is not None
            else None
        )

    def _view_as_complex(self, node: fx.Node) -> Traced:
        trace = self.known(args(node)[0])
        return trace.each(lambda ids: ids[..., 0]) if trace is not None else None


def _aligned(trace: Trace, letters: str, output: str, shape: tuple[int, ...]) -> Trace:
    """The positions of an operand, along the dimensions of the result."""

    def align(ids: Tensor) -> Tensor:
        for dim in reversed(range(len(letters))):
            ids = ids.select(dim, 0) if letters[dim] not in output else ids
        kept = [c for c in letters if c in output]
        ids = ids.permute([kept.index(c) for c in output if c in kept])
        where = iter(ids.shape)
        return ids.reshape([next(where) if c in kept else 1 for c in output]).expand(shape)

    return trace.each(align)


def numel(node: fx.Node) -> int | None:
    """How many elements a node's value has."""
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else None
