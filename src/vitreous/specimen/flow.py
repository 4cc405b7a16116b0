"""Dependencies between the nodes of a graph, and the role of each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import fx

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.attention_products import attention_product
from vitreous.specimen.contractions import PRODUCTS
from vitreous.specimen.graph import op, path, shape_of
from vitreous.specimen.layout import Layout
from vitreous.specimen.positions import Positions
from vitreous.specimen.trace import SPAN, Trace, only_prefix
from vitreous.unit_kinds import Kind

ACTIVATIONS = {
    "relu", "gelu", "silu", "hardswish", "sigmoid", "tanh", "softmax", "_softmax", "erf",
    "hardtanh", "leaky_relu", "mish", "elu", "softplus", "hardsigmoid", "relu6", "prelu", "glu",
    "selu", "log_sigmoid", "clamp", "exp",
}  # fmt: skip
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
SIGNIFICANT = {"attention", "mix", "mixer", "conv", "linear"}
"""Roles of operations that learn, attend or mix positions."""
KIND_OF_ROLE: dict[str, Kind] = {
    "mixer": "mixer", "mix": "token-mlp", "conv": "conv", "pool": "pool", "linear": "mlp"
}  # fmt: skip
"""The kind of nodes without attention: that of the first of these roles which occurs."""


class Flow:
    """Dependencies, roles and layouts of the nodes of one graph."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.nodes: list[fx.Node] = list(positions.module.graph.nodes)
        self.order = {node: i for i, node in enumerate(self.nodes)}
        self.data = positions.data
        self._layouts: dict[fx.Node | None, Layout | None] = {}
        self._ancestors: list[int] = []  # per node a bit set of its ancestors and itself
        for i, node in enumerate(self.nodes):
            bits = 1 << i
            for parent in node.all_input_nodes:
                bits |= self._ancestors[self.order[parent]]
            self._ancestors.append(bits)
        self.role = {node: self._role(node) for node in self.nodes}

    def trace(self, node: fx.Node) -> Trace | None:
        """The positions of a node's tensor, if they are known."""
        return self.positions.known(node)

    def layout(self, node: fx.Node | None) -> Layout | None:
        """How a node's tensor is laid out, if that is known."""
        trace = self.positions.known(node)
        if trace is None:
            return None
        if node not in self._layouts:
            self._layouts[node] = Layout.of(trace)
        return self._layouts[node]

    def grid(self, node: fx.Node | None) -> Grid | None:
        """The grid of a node's tensor, if it still has one."""
        layout = self.layout(node)
        return layout.grid if layout is not None else None

    def leads_to(self, early: fx.Node, late: fx.Node) -> bool:
        """Whether `late` depends on `early`."""
        return bool(self._ancestors[self.order[late]] >> self.order[early] & 1)

    def between(self, fork: fx.Node, end: fx.Node) -> list[fx.Node]:
        """Nodes that depend on `fork` and that `end` depends on, `end` included, in order."""
        first, last = self.order[fork], self.order[end]
        ancestors = self._ancestors[last]
        return [
            self.nodes[i]
            for i in range(first + 1, last + 1)
            if ancestors >> i & 1 and self._ancestors[i] >> first & 1
        ]

    def ancestors(self, node: fx.Node) -> list[fx.Node]:
        """The ancestors of `node` that depend on the images, itself included, in order."""
        bits = self._ancestors[self.order[node]]
        return [n for i, n in enumerate(self.nodes) if bits >> i & 1 and n in self.data]

    def last_common(self, ends: Iterable[fx.Node]) -> fx.Node | None:
        """The latest node that depends on the images and on which all of `ends` depend."""
        bits = -1
        for end in ends:
            bits &= self._ancestors[self.order[end]]
        while bits:
            node = self.nodes[bits.bit_length() - 1]
            if node in self.data:
                return node
            bits &= ~(1 << self.order[node])
        return None

    def _role(self, node: fx.Node) -> str:
        """The role of a node; '' if it has no weights, is no activation and does not pool."""
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
            kernel = max(shape_of(node.args[1])[2:], default=1)  # type: ignore[arg-type]
            return "conv" if kernel > 1 else "linear"
        if name in PRODUCTS:
            return "attention" if len(self.positions.data_inputs(node)) > 1 else "linear"
        if name == "sum" and attention_product(self.positions, node) is not None:
            return "attention"  # sum(weights * values)
        if name in ACTIVATIONS:
            return "activation"
        if "pool" in name and self.trace(node) is not None:  # a gate pools away all positions
            return "pool"
        return "linear" if name == "linear" else ""

    def significant(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """The nodes whose role is in `SIGNIFICANT`."""
        return [n for n in nodes if self.role[n] in SIGNIFICANT]

    def main_nodes(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The significant nodes, or else the pooling nodes."""
        return self.significant(nodes) or [n for n in nodes if self.role[n] == "pool"]

    def kind(self, nodes: Sequence[fx.Node]) -> Kind | None:
        """The kind of a unit made of these nodes; None if none of them has a role."""
        roles = {self.role[n] for n in nodes}
        if any(
            self.role[n] == "attention" and not self._is_global_context(n, nodes[-1]) for n in nodes
        ):
            return "attention"
        return next((kind for role, kind in KIND_OF_ROLE.items() if role in roles), None)

    def _is_global_context(self, node: fx.Node, end: fx.Node) -> bool:
        """Whether attention only computes a global context, as in GCNet.

        Then it has a single learned query, whose result is not kept as a token but broadcast over
        the positions.
        """
        trace = self.trace(node)
        if trace is None:
            return 1 in shape_of(node)[-2:]
        single = node in self.positions.pooled and int((trace.ids % SPAN).unique().numel()) == 1
        return single and not only_prefix(self.trace(end))


def common_path(nodes: Sequence[fx.Node]) -> str:
    """The deepest module that contains all of `nodes`."""
    shared = []
    for parts in zip(*(path(n).split(".") for n in nodes), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
