"""Find the residual joins of a graph: the places where a skip and a branch are added.

A join is a sum of tensors one of which, the skip, is an ancestor of all the others, or comes from one by a mere
projection (a strided 1x1 convolution, a pooling, a norm). What lies between fork and join is the branch. Sums that only
look like it are left out: rotary embeddings (nothing learned in between), attention logits plus a bias (constant),
fusions of separate paths (no simple path is the skip), hierarchical splits (the skip carries only a part).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import fx

from vitreous.specimen.contractions import PRODUCTS
from vitreous.specimen.graph import op, path
from vitreous.specimen.layout import Layout
from vitreous.specimen.positions import Positions
from vitreous.specimen.products import attention_product
from vitreous.specimen.trace import SPAN, Trace, only_prefix, shape_of
from vitreous.unit_kinds import Kind

ACTIVATIONS = {
    "relu", "gelu", "silu", "hardswish", "sigmoid", "tanh", "softmax", "_softmax", "erf", "hardtanh", "leaky_relu",
    "mish", "elu", "softplus", "hardsigmoid", "relu6", "prelu", "glu", "selu", "log_sigmoid", "clamp", "exp",
}  # fmt: skip
LAYOUT = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "flatten", "unflatten", "contiguous", "clone", "squeeze",
    "unsqueeze", "movedim", "mT", "swapaxes", "to", "_to_copy", "alias", "detach",
}  # fmt: skip
PARTS = {"getitem", "split", "split_with_sizes", "chunk", "unbind", "select", "index", "narrow"}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
SIGNIFICANT = {"attention", "mix", "mixer", "conv", "linear"}


KINDS: dict[str, Kind] = {
    "mixer": "mixer",
    "mix": "token-mlp",
    "conv": "conv",
    "pool": "pool",
    "linear": "mlp",
}
"""What a stretch without attention is called after, the first that is there."""


class Flow:
    """Who depends on whom, and what each node does, for the nodes of one graph."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.nodes: list[fx.Node] = list(positions.module.graph.nodes)
        self.order = {node: i for i, node in enumerate(self.nodes)}
        self.data = positions.data
        self._layouts: dict[fx.Node | None, Layout | None] = {}
        self._above = self._ancestors()
        self.role = {node: self._role(node) for node in self.nodes}

    def _ancestors(self) -> list[int]:
        """For every node a bit set of its ancestors, itself included."""
        above: list[int] = []
        for i, node in enumerate(self.nodes):
            bits = 1 << i
            for parent in node.all_input_nodes:
                bits |= above[self.order[parent]]
            above.append(bits)
        return above

    def trace(self, node: fx.Node) -> Trace | None:
        found = self.positions.traces.get(node)
        return found if isinstance(found, Trace) else None

    def layout(self, node: fx.Node | None) -> Layout | None:
        """How the tensor is laid out, if that is known."""
        trace = self.trace(node) if node is not None else None
        if trace is None:
            return None
        if node not in self._layouts:
            self._layouts[node] = Layout.of(trace)
        return self._layouts[node]

    def leads_to(self, early: fx.Node, late: fx.Node) -> bool:
        return bool(self._above[self.order[late]] >> self.order[early] & 1)

    def between(self, fork: fx.Node, end: fx.Node) -> list[fx.Node]:
        """Nodes after `fork` that `end` depends on, `end` included, in order."""
        first, last = self.order[fork], self.order[end]
        wanted = self._above[last]
        return [
            self.nodes[i]
            for i in range(first + 1, last + 1)
            if wanted >> i & 1 and self._above[i] >> first & 1
        ]

    def above(self, node: fx.Node) -> list[fx.Node]:
        """The ancestors of `node` that depend on the images, itself included, in order."""
        bits = self._above[self.order[node]]
        return [n for i, n in enumerate(self.nodes) if bits >> i & 1 and n in self.data]

    def last_common(self, ends: Iterable[fx.Node]) -> fx.Node | None:
        """The latest data node on which all of `ends` depend."""
        bits = -1
        for end in ends:
            bits &= self._above[self.order[end]]
        while bits:
            node = self.nodes[bits.bit_length() - 1]
            if node in self.data:
                return node
            bits &= ~(1 << self.order[node])
        return None

    def _role(self, node: fx.Node) -> str:
        name = op(node)
        if node not in self.data:
            return ""
        if node in self.positions.mixing:
            return "mix"
        if node in self.positions.spreading or name in RECURRENT:
            return "mixer"
        if name == "scaled_dot_product_attention":
            return "attention"
        if name.startswith("conv"):
            return "conv" if _kernel(node) > 1 else "linear"
        if name in PRODUCTS:
            operands = [n for n in node.all_input_nodes if n in self.data]
            return "attention" if len(operands) > 1 else "linear"
        if (
            name == "sum" and attention_product(self.positions, node) is not None
        ):  # weights times values, summed up
            return "attention"
        if name in ACTIVATIONS:
            return "activation"
        if "pool" in name and self.trace(node) is not None:  # not the global pooling of a gate
            return "pool"
        return "linear" if name == "linear" else ""

    def significant(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        return [n for n in nodes if self.role[n] in SIGNIFICANT]

    def essence(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """What a stretch is about: what it learns, or else what it pools."""
        return self.significant(nodes) or [n for n in nodes if self.role[n] == "pool"]

    def kind(self, nodes: Sequence[fx.Node]) -> Kind | None:
        """What a stretch of graph does, by what it computes."""
        roles = {self.role[n] for n in nodes}
        if any(self.role[n] == "attention" and not self._pools(n, nodes[-1]) for n in nodes):
            return "attention"
        for role, kind in KINDS.items():
            if role in roles:
                return kind
        return None

    def _pools(self, node: fx.Node, end: fx.Node) -> bool:
        """A single learned query whose result does not stay a token but is spread over the positions again: global
        context, not attention."""
        trace = self.trace(node)
        if trace is None:
            return 1 in shape_of(node)[-2:]
        single = node in self.positions.pooled and int((trace.ids % SPAN).unique().numel()) == 1
        return single and not only_prefix(self.trace(end))


def _kernel(node: fx.Node) -> int:
    """The widest extent of a convolution's kernel."""
    weight = node.args[1]
    assert isinstance(weight, fx.Node)
    return max(shape_of(weight)[2:], default=1)


def common_path(nodes: Sequence[fx.Node]) -> str:
    """The deepest module that contains all of `nodes`."""
    paths = [path(n).split(".") for n in nodes]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


@dataclass(slots=True)
class Join:
    """One sum of a skip and its branches. Parallel branches (attention beside MLP) share a join."""

    fork: fx.Node
    skip: fx.Node
    branches: tuple[fx.Node, ...]
    total: fx.Node
    body: list[fx.Node]
    """Everything between fork and total."""


def find_joins(flow: Flow) -> list[Join]:
    """All residual joins, outermost where they nest, in order."""
    sums = [n for n in flow.nodes if _is_sum(n, flow)]
    inner = {n for n in sums if len(n.users) == 1 and next(iter(n.users)) in sums}
    plain = {n for n in inner if not any(op(part) == "neg" for part in n.all_input_nodes)}
    joins = []
    for total in (n for n in sums if n not in inner):
        # a difference inside a branch, pool(x) - x, belongs to the branch
        join = _join(total, flow, inner) or _join(total, flow, plain)
        joins += [join] if join is not None else []
    return _outermost(joins, flow)


def _is_sum(node: fx.Node, flow: Flow) -> bool:
    if op(node) != "add" or node not in flow.data or node.kwargs.get("alpha", 1) != 1:
        return False
    parts = [a for a in node.args if isinstance(a, fx.Node)]
    return len(parts) == 2 and all(
        "val" in p.meta and hasattr(p.meta["val"], "shape") for p in parts
    )


def _summands(total: fx.Node, inner: set[fx.Node]) -> list[fx.Node]:
    found: list[fx.Node] = []
    for part in total.args[:2]:
        assert isinstance(part, fx.Node)
        found.extend(_summands(part, inner) if part in inner else [part])
    return found


def _join(total: fx.Node, flow: Flow, inner: set[fx.Node]) -> Join | None:
    summands = _summands(total, inner)
    if any(shape_of(s) != shape_of(total) for s in summands) or len(set(summands)) < len(summands):
        return None  # x + x + f(x) is 2x and a branch, not a skip and a branch
    for skip in summands:
        rest = tuple(s for s in summands if s is not skip)
        for fork in (skip, root(skip)):  # as the branch takes it, or in another layout
            if all(s in flow.data and flow.leads_to(fork, s) for s in rest):
                return _checked(Join(fork, skip, rest, total, flow.between(fork, total)), flow)
    if not all(s in flow.data for s in summands):
        return None
    start = flow.last_common(summands)
    if start is None or start.op == "placeholder":
        return None
    skip = min(summands, key=lambda s: _effort(flow.between(start, s), flow))
    rest = tuple(s for s in summands if s is not skip)
    return _checked(Join(start, skip, rest, total, flow.between(start, total)), flow)


def root(node: fx.Node) -> fx.Node:
    """The tensor behind views, permutations and casts."""
    while op(node) in LAYOUT and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _effort(nodes: list[fx.Node], flow: Flow) -> tuple[int, int]:
    return len(flow.significant(nodes)) + sum(flow.role[n] == "activation" for n in nodes), len(
        nodes
    )


def _checked(join: Join, flow: Flow) -> Join | None:
    """The join if it is a residual one: a simple skip that carries everything, around something learned."""
    if flow.trace(join.total) is None and 1 in shape_of(join.total)[1:-1]:
        return None  # one vector per image: a pooling head has residuals too, but is no block
    way = flow.between(join.fork, join.skip)
    learned = flow.significant(way)
    nonlinear = any(flow.role[n] in ("activation", "attention") for n in way)
    if nonlinear or len(learned) > 1 or any(op(n) in PARTS for n in way):
        return None
    bodies = [flow.between(join.fork, b) for b in join.branches]
    if not all(flow.kind(body) for body in bodies):
        return None
    bent = any(
        flow.role[n] in ("activation", "attention", "mix", "mixer") for body in bodies for n in body
    )
    if (
        learned and not bent
    ):  # two linear maps added up (re-parameterised convolutions): one convolution, no skip
        return None
    return join


def _outermost(joins: list[Join], flow: Flow) -> list[Join]:
    """Of nested joins the outer one is the block, unless it spans several blocks in a row (a long skip)."""
    kept: list[Join] = []
    for outer in joins:
        inside = set(outer.body)
        nested = [
            j
            for j in joins
            if j is not outer and j.total in inside and j.fork in inside | {outer.fork}
        ]
        blocks = [j for j in nested if any(flow.role[n] == "activation" for n in j.body)]
        chain = sum(
            any(flow.leads_to(a.total, b.fork) for a in blocks if a is not b) for b in blocks
        )
        if chain < 1 or len(blocks) < 2:
            kept.append(outer)
    covered = [set(j.body) - {j.total} for j in kept]
    return [j for j in kept if not any(j.total in body for body in covered)]
