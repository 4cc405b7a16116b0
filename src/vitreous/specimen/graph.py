"""Computation graphs as Vitreous uses them: helpers to read, copy and simplify them.

`tidy` simplifies an exported graph: it removes guards and inactive dropout, inlines sub-graphs, and
replaces in-place operations by ordinary ones, so that an observed tensor cannot change later (an
in-place ReLU would overwrite what was captured before it).
"""

from __future__ import annotations

import linecache
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

aten = torch.ops.aten

DROPOUTS = {
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "native_dropout",
}
VIEWS = {
    "view", "reshape", "permute", "transpose", "t", "flatten", "unflatten", "slice", "select",
    "narrow", "expand", "split", "split_with_sizes", "chunk", "unbind", "squeeze", "unsqueeze",
    "alias", "detach", "contiguous", "to", "getitem", "movedim", "as_strided", "diagonal", "unfold",
    "expand_as", "view_as", "reshape_as", "swapaxes",
}  # fmt: skip


class Compiled(fx.GraphModule):
    """A graph module whose generated code is freed with it; see `forgetting_sources`.

    A draft is not compiled before its first `recompile()`; fx would compile it once more before
    the edits.
    """

    def __init__(self, root: Any, graph: fx.Graph, *, draft: bool = False) -> None:
        vars(self)["_draft"] = draft  # nn.Module takes no attributes yet
        super().__init__(root, graph)
        vars(self)["_draft"] = False

    def recompile(self) -> Any:
        if vars(self).get("_draft"):
            return None
        with forgetting_sources():
            return super().recompile()


@contextmanager
def forgetting_sources() -> Iterator[None]:
    """Drop the source code of graphs compiled inside, which fx would keep for tracebacks."""
    loader = getattr(fx.graph_module, "_loader", None)
    sources: dict[str, Any] = getattr(loader, "eval_cache", {})
    before = set(sources)
    try:
        yield
    finally:
        for name in set(sources) - before:
            sources.pop(name, None)
            linecache.cache.pop(name, None)


def copy_graph(module: fx.GraphModule) -> tuple[fx.GraphModule, dict[str, fx.Node]]:
    """A new graph module over the same tensors, and its nodes by name.

    Edit it, then call `recompile()`: it is not compiled before.
    """
    graph, nodes = copy_nodes(module.graph)
    return Compiled(module, graph, draft=True), nodes


def copy_nodes(graph: fx.Graph) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """A copy of a graph with the same node names, and its nodes by name."""
    copy = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        mapping[node] = copy.node_copy(node, mapping.__getitem__)
        mapping[node].name = node.name
    copy.set_codegen(graph._codegen)
    return copy, {old.name: new for old, new in mapping.items()}


def op(node: fx.Node) -> str:
    """The plain name of a node's function ('linear', 'getitem', …); '' if it calls none."""
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", ""))


def args(node: fx.Node) -> tuple[Any, ...]:
    """The node's arguments as `Any`, because fx types them too widely."""
    return node.args


def path(node: fx.Node) -> str:
    """The path of the innermost module that the node was traced in; '' for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    return str(entries[-1][0]) if entries else ""


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of the node's value for the example batch."""
    return tuple(node.meta["val"].shape)


def numel(node: fx.Node) -> int | None:
    """The number of elements of the node's value; None if it is not a tensor."""
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else None


def attribute(module: nn.Module, target: str) -> Any:
    """The parameter, buffer or constant that a `get_attr` node names."""
    return operator.attrgetter(target)(module)


def walk_up(
    start: fx.Node,
    follow: Callable[[fx.Node], Iterable[fx.Node]],
    *,
    depth_first: bool = False,
    most: int | None = None,
) -> Iterator[fx.Node]:
    """Search the inputs of `start`, its inputs' inputs and so on, each node once, `start` first.

    Parameters
    ----------
    follow
        Returns the inputs of a node at which the search continues.
    depth_first
        Search depth first instead of breadth first.
    most
        Approximate maximum number of nodes (default: all).
    """
    queue, visited = deque([start]), {start}
    while queue and (most is None or len(visited) < most):
        node = queue.pop() if depth_first else queue.popleft()
        yield node
        unvisited = [n for n in follow(node) if n not in visited]
        visited.update(unvisited)
        queue.extend(unvisited)


def depends_on_input(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose values depend on the images. Sizes of tensors (`sym_size`) do not count."""
    data: set[fx.Node] = set()
    for node in graph.nodes:
        computed = op(node) != "sym_size" and any(p in data for p in node.all_input_nodes)
        if node.op == "placeholder" or computed:
            data.add(node)
    return data


def is_random(node: fx.Node) -> bool:
    """Whether a node draws random numbers; inactive dropout and p = 0 do not."""
    tags = getattr(node.target, "tags", ())
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in tags:
        return False
    schema = node.target._schema  # type: ignore[union-attr]
    values = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    values |= dict(zip((a.name for a in schema.arguments), args(node), strict=False))
    values |= dict(node.kwargs)
    off = values.get("train") is False or values.get("training") is False
    return not off and values.get("p", 1) != 0 and values.get("dropout_p", 1) != 0


def mutates(node: fx.Node) -> bool:
    """Whether a node changes one of its inputs in place."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def tidy(module: fx.GraphModule) -> bool:
    """Rewrite an exported graph in place, without compiling it; False if torch has to
    functionalise it first."""
    graph = module.graph
    for node in list(graph.nodes):
        name = op(node)
        guards = node.op == "call_module" and str(node.target).startswith("_guards")
        if guards or name.startswith("_assert_"):
            graph.erase_node(node)
        elif name in {"wrap_with_autocast", "wrap_with_set_grad_enabled"}:
            _inline(module, node, skip=4 if name == "wrap_with_autocast" else 1)
    for node in list(graph.nodes):
        if op(node).rstrip("_") in DROPOUTS and not is_random(node):
            node.replace_all_uses_with(args(node)[0])
            graph.erase_node(node)
    functionalised = _functionalise(graph)
    _spell_out_sums(graph)
    graph.eliminate_dead_code()
    graph.lint()
    return functionalised


def _inline(module: fx.GraphModule, node: fx.Node, skip: int) -> None:
    """Replace a higher-order node (`no_grad` or autocast region) by the nodes of its body."""
    body_ref, *inputs = args(node)[skip:]
    body = getattr(module, str(body_ref.target))
    placeholders = [n for n in body.graph.nodes if n.op == "placeholder"]
    mapping: dict[fx.Node, Any] = dict(zip(placeholders, inputs, strict=True))
    with module.graph.inserting_before(node):
        result: Any = module.graph.graph_copy(body.graph, mapping)
    for user in list(node.users):  # all getitem, since the body returns a tuple
        user.replace_all_uses_with(result[args(user)[1]])
        module.graph.erase_node(user)
    module.graph.erase_node(node)


def _functionalise(graph: fx.Graph) -> bool:
    """Replace in-place operations such as `relu_` by their out-of-place versions.

    False if a mutation is visible through a view. Torch's own functionalisation handles that, but
    is slower.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    data = depends_on_input(graph)
    for node in list(graph.nodes):
        if not mutates(node) or node not in data:
            continue
        target: fx.Node = args(node)[0]
        replacement = _out_of_place(node)
        if replacement is None or _used_through_views(target, node, order):
            return False
        node.target = replacement
        for user in list(target.users):
            if user is not node and order[user] > order[node]:
                user.replace_input_with(target, node)
    return True


def _out_of_place(node: fx.Node) -> Callable[..., Any] | None:
    """The out-of-place version of an operation, `relu` for `relu_`, or None."""
    name, overload = op(node), node.target._overloadname  # type: ignore[union-attr]
    packet = getattr(aten, name.removesuffix("_"), None)
    return getattr(packet, overload, None) if packet is not None and name.endswith("_") else None


def viewed(node: fx.Node) -> fx.Node:
    """The node whose memory a view shares; the node itself if it is not a view."""
    while op(node) in VIEWS:
        node = args(node)[0]
    return node


def _used_through_views(target: fx.Node, mutation: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether an older alias of the mutated tensor is used after the mutation."""
    base = viewed(target)
    aliases, queue = {base}, [base]
    while queue:
        views = {user for user in queue.pop().users if op(user) in VIEWS} - aliases
        aliases |= views
        queue.extend(views)
    now = order[mutation]
    older = (alias for alias in aliases - {target} if order[alias] < now)
    return any(order[user] > now for alias in older for user in alias.users)


def _spell_out_sums(graph: fx.Graph) -> None:
    """Rewrite `x - y`, `x + alpha * y` and `addcmul` as plain sums, so that joins are found."""
    data = depends_on_input(graph)
    for node in list(graph.nodes):
        name = op(node)
        if name not in {"add", "sub", "rsub", "addcmul"} or not _adds_tensors(node, data):
            continue
        first, *factors = args(node)
        if name == "rsub":
            first, factors = factors[0], [first]
        scale = node.kwargs.get("value" if name == "addcmul" else "alpha", 1)
        scale = -scale if name in ("sub", "rsub") else scale
        if name == "add" and scale == 1:
            continue
        with graph.inserting_before(node):
            term = factors[0]
            if len(factors) > 1:
                term = graph.call_function(aten.mul.Tensor, tuple(factors))
            if scale == -1:
                term = graph.call_function(aten.neg.default, (term,))
            elif scale != 1:
                term = graph.call_function(aten.mul.Tensor, (term, scale))
        if term not in factors:
            term.meta = dict(node.meta)
        node.target, node.args, node.kwargs = aten.add.Tensor, (first, term), {}


def _adds_tensors(node: fx.Node, data: set[fx.Node]) -> bool:
    """Whether the operands are tensors of the result's own shape that depend on the images."""
    operands = args(node)
    if len(operands) < 2 or not all(isinstance(n, fx.Node) for n in operands):
        return False
    summands = operands if len(operands) == 2 else operands[:1]
    shapes = {getattr(n.meta.get("val"), "shape", None) for n in (node, *summands)}
    return len(shapes) == 1 and all(n in data for n in summands)
