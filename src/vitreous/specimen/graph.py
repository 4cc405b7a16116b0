"""Read a model's computation graph, once, without touching the model.

`torch.export` traces the model in evaluation mode; a few rewrites then make the graph easy to reason about: guards and
inactive dropout go, sub-graphs are inlined, and in-place operations become ordinary ones, so that a tensor seen at one
place cannot change behind our back at another (an in-place ReLU would otherwise overwrite what was captured before it).
"""

from __future__ import annotations

import linecache
import operator
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import NotExportable
from vitreous.specimen.constants import (
    UNKNOWN_SIZE,
    UNKNOWN_WAY,
    asks_for_values,
    few_unknown_sizes,
    known_constants,
    without_values,
)
from vitreous.specimen.flex import spelled_out
from vitreous.specimen.state import SavingParameters, undisturbed

aten = torch.ops.aten

EXAMPLE_BATCH = 2
"""The batch size for which the nodes of a graph carry shapes (`node.meta["val"]`)."""
PRIMES = (
    211,
    223,
    227,
    229,
    233,
    239,
    241,
    251,
    257,
    263,
    269,
    271,
    277,
    281,
    283,
    293,
    307,
    311,
    313,
    317,
)


def read(model: nn.Module, example: Tensor, attempt: int = 0) -> fx.GraphModule:
    """The graph of `model` on images like `example`, for any batch size, over the model's own parameters and buffers.

    The model is as before afterwards, whatever happens. `attempt` chooses another stand-in for the batch size.
    """
    primes = _stand_ins(model, example)[attempt:]
    module = _read(model, example, primes[0])
    if _collides(module.graph, primes[0]):  # a feature map as wide as the batch: try another
        module, primes = _read(model, example, primes[1]), primes[1:]
    _free_batch(module.graph, primes[0])
    return Compiled(module, module.graph)  # export's own kind refuses train() and eval()


def _read(model: nn.Module, example: Tensor, batch: int) -> fx.GraphModule:
    with undisturbed(model) as saving, forgetting_sources(), spelled_out(model):
        _make_attention_explicit(model)
        program: Any = _export(model, example, batch, saving)
        module = program.module(check_guards=False)
        if not _tidy(module):
            module = program.run_decompositions({}).module(check_guards=False)
            _tidy(module)
    found: fx.GraphModule = module
    return found


class Compiled(fx.GraphModule):
    """A graph to run, of which nothing stays behind once it is gone."""

    def recompile(self) -> Any:
        with forgetting_sources():
            return super().recompile()


@contextmanager
def forgetting_sources() -> Iterator[None]:
    """Drop the sources of graphs compiled inside, which fx keeps for tracebacks, for ever."""
    kept: dict[str, Any] = getattr(getattr(fx.graph_module, "_loader", None), "eval_cache", {})
    before = set(kept)
    try:
        yield
    finally:
        for name in set(kept) - before:
            kept.pop(name, None)
            linecache.cache.pop(name, None)


def _collides(graph: fx.Graph, batch: int) -> bool:
    """Whether a tensor has several sizes that the stand-in divides, of which one at most is the batch."""
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in graph.nodes)
    return any(sum(size > 0 and size % batch == 0 for size in shape) > 1 for shape in shapes)


def _make_attention_explicit(model: nn.Module) -> None:
    """Attention that is never made cannot be seen; layers that can make it (ConViT's) say so by this attribute."""
    for module in model.modules():
        if hasattr(module, "explicit_attention"):
            vars(module)["explicit_attention"] = True


def _stand_ins(model: nn.Module, example: Tensor) -> list[int]:
    """Batch sizes by which no size of the model's tensors can be divided.

    Export with a symbolic batch takes up to 2.3 times as long. Instead the batch is a prime that divides nothing else:
    afterwards every multiple of it in the graph is the batch's doing, and is written as such.
    """
    sizes = {
        size
        for tensor in [*model.parameters(), *model.buffers(), example[0]]
        for size in tensor.shape
    } - {0}
    return [prime for prime in PRIMES if all(size % prime for size in sizes)]


def _free_batch(graph: fx.Graph, stand_in: int) -> None:
    """Replace multiples of the stand-in by multiples of the images' own number, and shapes by those of the example."""
    images = next(n for n in graph.nodes if n.op == "placeholder")
    with graph.inserting_after(images):
        count = graph.call_function(aten.sym_size.int, (images, 0))
    count.meta["val"] = EXAMPLE_BATCH
    multiples: dict[int, fx.Node] = {1: count}

    def size(value: Any) -> Any:
        if type(value) is not int or value <= 0 or value % stand_in:
            return value
        factor = value // stand_in
        if factor not in multiples:
            with graph.inserting_after(count):
                multiples[factor] = graph.call_function(operator.mul, (count, factor))
            multiples[factor].meta["val"] = EXAMPLE_BATCH * factor
        return multiples[factor]

    def shape(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [shape(v) for v in value]
        if not isinstance(value, Tensor):
            return value
        sizes = [
            s // stand_in * EXAMPLE_BATCH if s and s % stand_in == 0 else s for s in value.shape
        ]
        return torch.empty(sizes, dtype=value.dtype, device="meta")

    for node in list(graph.nodes):
        if node.op == "call_function" and node is not count and node not in multiples.values():
            node.args = fx.node.map_aggregate(node.args, size)
            node.kwargs = fx.node.map_aggregate(node.kwargs, size)
        if "val" in node.meta and node.op != "get_attr":
            node.meta["val"] = shape(node.meta["val"])
    graph.lint()


def _export(
    model: nn.Module, example: Tensor, batch: int, saving: SavingParameters
) -> torch.export.ExportedProgram:
    images = example.new_empty(batch, *example.shape[1:])
    try:
        return _with_or_without_constants(model, images)
    except Exception as cause:
        try:
            with torch.no_grad():
                saving.run(model, example)
        except Exception as plain:  # the model itself fails: its own message is the useful one
            from vitreous.specimen.wrong_inputs import does_not_run

            channels, height, width = example.shape[1:]
            raise does_not_run(model, (channels, height, width), plain) from plain
        raise NotExportable(
            f"The graph of {type(model).__name__} cannot be read: {_why(cause)}{_culprit(cause)}; "
            "look at its blocks with units='blocks', or at modules of your choice with units=['path.of.module', …]."
        ) from cause


def _with_or_without_constants(model: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """The exported model; if it asks for values, a second time with those that no image has a part in."""
    try:
        return _exported(model, images)
    except Exception as error:
        if not asks_for_values(error):
            raise
        first = error
    try:
        with known_constants(model):
            return without_values(_exported(model, images))
    except Exception as second:
        if isinstance(first, NotExportable) and "allocate" not in str(second):
            raise first from None  # a size that depends on the images says more than what it leads to
        raise


def _exported(model: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    # a failed export prints the whole graph
    with torch.enable_grad(), redirect_stderr(StringIO()), few_unknown_sizes():
        program = torch.export.export(model, (images,), strict=False)
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in program.graph.nodes)
    if any(isinstance(size, torch.SymInt) for shape in shapes for size in shape):
        raise NotExportable(UNKNOWN_SIZE)
    if any(_takes_one_image(node, len(images)) for node in program.graph.nodes):
        raise NotExportable(
            "it takes the images of a batch one after the other, so its graph fits one number of images"
        )
    return program


def _takes_one_image(node: fx.Node, batch: int) -> bool:
    """Whether a node is part of a loop over the images of a batch."""
    if op(node) not in {"select", "unbind"}:
        return False
    taken, dim, index = [*args(node), 0, 0][:3]
    shape: tuple[int, ...] = getattr(taken.meta.get("val"), "shape", ())
    along_batch = bool(shape) and shape[0] == batch and dim in (0, -len(shape))
    return along_batch and (op(node) == "unbind" or index not in (0, -1))


def _why(error: BaseException) -> str:
    asks = asks_for_values(error) and not isinstance(error, NotExportable)
    return UNKNOWN_WAY if asks else first_line(error)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).split(" (unhinted")[0].rstrip(".")[:200]


def _culprit(error: BaseException) -> str:
    """The deepest line of the traceback that is the model's, which stopped the export; '' where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        f for f in frames if not re.search(r"[/\\]torch[/\\]|vitreous[/\\]specimen", f.filename)
    ]
    return f" (at {theirs[-1].filename}:{theirs[-1].lineno}, `{theirs[-1].line}`)" if theirs else ""


def op(node: fx.Node) -> str:
    """The operation's plain name: 'linear', 'scaled_dot_product_attention', 'getitem', …; '' for anything else."""
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", ""))


def args(node: fx.Node) -> tuple[Any, ...]:
    """The node's arguments; fx types them too widely to be of use."""
    return node.args


def path(node: fx.Node) -> str:
    """The path of the innermost module the node was traced in; '' is the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    return str(entries[-1][0]) if entries else ""


DROPOUTS = {
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "native_dropout",
}


def is_random(node: fx.Node) -> bool:
    """Whether a node draws random numbers; dropout does unless it is off or of probability zero."""
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in getattr(
        node.target, "tags", ()
    ):
        return False
    schema = node.target._schema  # type: ignore[union-attr]
    given = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    given |= dict(zip((a.name for a in schema.arguments), args(node), strict=False)) | dict(
        node.kwargs
    )
    off = given.get("train") is False or given.get("training") is False
    return not off and given.get("p", 1) != 0 and given.get("dropout_p", 1) != 0


def _tidy(module: fx.GraphModule) -> bool:
    """Rewrite the graph in place; False if its mutations need torch's own functionalisation."""
    graph = module.graph
    for node in list(graph.nodes):
        name = op(node)
        if (node.op == "call_module" and str(node.target).startswith("_guards")) or name.startswith(
            "_assert_"
        ):
            graph.erase_node(node)
        elif name in {"wrap_with_autocast", "wrap_with_set_grad_enabled"}:
            _inline(module, node, skip=4 if name == "wrap_with_autocast" else 1)
    for node in list(graph.nodes):
        if op(node).rstrip("_") in DROPOUTS and not is_random(node):
            node.replace_all_uses_with(args(node)[0])
            graph.erase_node(node)
    done = _functionalise(graph)
    _spell_out_sums(graph)
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()
    return done


def _spell_out_sums(graph: fx.Graph) -> None:
    """Write `x - y`, `x + a * y` (`alpha`) and `addcmul` as plain sums, so that every residual join is one."""
    data = depends_on_input(graph)
    for node in list(graph.nodes):
        if op(node) not in {"add", "sub", "rsub", "addcmul"} or not _adds_tensors(node, data):
            continue
        first, *factors = args(node)
        alpha = node.kwargs.get("alpha", 1)
        factor = {
            "add": alpha,
            "sub": -alpha,
            "rsub": -alpha,
            "addcmul": node.kwargs.get("value", 1),
        }[op(node)]
        if op(node) == "rsub":
            (first, factors) = (factors[0], [first])
        if op(node) == "add" and factor == 1:
            continue
        with graph.inserting_before(node):
            term = (
                factors[0]
                if len(factors) == 1
                else graph.call_function(aten.mul.Tensor, tuple(factors))
            )
            if factor == -1:
                term = graph.call_function(aten.neg.default, (term,))
            elif factor != 1:
                term = graph.call_function(aten.mul.Tensor, (term, factor))
        term.meta = dict(node.meta) if term not in factors else term.meta
        node.target, node.args, node.kwargs = aten.add.Tensor, (first, term), {}


def _adds_tensors(node: fx.Node, data: set[fx.Node]) -> bool:
    """Whether the operands are tensors of the result's own shape that depend on the images."""
    first, *rest = args(node)
    nodes = [n for n in (first, *rest) if isinstance(n, fx.Node)]
    summands = nodes if len(nodes) == 2 else [first]
    shapes = {getattr(n.meta.get("val"), "shape", None) for n in (node, *summands)}
    return (
        len(nodes) == len(args(node)) > 1 and len(shapes) == 1 and all(n in data for n in summands)
    )


def _inline(module: fx.GraphModule, node: fx.Node, skip: int) -> None:
    """Put the body of a higher-order node where the node stands (regions without gradient or autocast)."""
    body_ref, *inputs = args(node)[skip:]
    body = getattr(module, str(body_ref.target))
    placeholders = [n for n in body.graph.nodes if n.op == "placeholder"]
    mapping: dict[fx.Node, Any] = dict(zip(placeholders, inputs, strict=True))
    with module.graph.inserting_before(node):
        result: Any = module.graph.graph_copy(body.graph, mapping)
    for user in list(node.users):  # the body returns a tuple, taken apart by getitem
        user.replace_all_uses_with(result[args(user)[1]])
        module.graph.erase_node(user)
    module.graph.erase_node(node)


VIEWS = {
    "view", "reshape", "permute", "transpose", "t", "flatten", "unflatten", "slice", "select", "narrow", "expand",
    "split", "split_with_sizes", "chunk", "unbind", "squeeze", "unsqueeze", "alias", "detach", "contiguous", "to",
    "getitem", "movedim", "as_strided", "diagonal", "unfold", "expand_as", "view_as", "reshape_as", "swapaxes",
}  # fmt: skip


def _functionalise(graph: fx.Graph) -> bool:
    """Replace `relu_` and friends by their plain versions.

    Only where nobody else can see the mutation: the mutated tensor is no view whose base, and has no view that, is used
    later. Otherwise says False, and torch's own, slower functionalisation has to do it.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    data = depends_on_input(graph)
    for node in list(graph.nodes):
        if not _mutates(node) or node not in data:
            continue
        target: fx.Node = args(node)[0]
        plain = _plain_version(node)
        if plain is None or _seen_through_views(target, node, order):
            return False
        node.target = plain
        for user in list(target.users):
            if user is not node and order[user] > order[node]:
                user.replace_input_with(target, node)
    return True


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(node.op == "call_function" and schema is not None and schema.is_mutable)


def _plain_version(node: fx.Node) -> Callable[..., Any] | None:
    name, overload = op(node), node.target._overloadname  # type: ignore[union-attr]
    packet = getattr(aten, name.removesuffix("_"), None)
    return getattr(packet, overload, None) if packet is not None and name.endswith("_") else None


def _seen_through_views(target: fx.Node, mutation: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Whether an older alias of the mutated tensor is still in use after the mutation."""
    base = target
    while op(base) in VIEWS:
        base = args(base)[0]
    aliases, queue = {base}, [base]
    while queue:
        views = {user for user in queue.pop().users if op(user) in VIEWS} - aliases
        aliases |= views
        queue.extend(views)
    now = order[mutation]
    older = (alias for alias in aliases - {target} if order[alias] < now)
    return any(order[user] > now for alias in older for user in alias.users)


def depends_on_input(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose value changes with the images; sizes read off them do not."""
    data: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or (
            op(node) != "sym_size" and any(p in data for p in node.all_input_nodes)
        ):
            data.add(node)
    return data


def attribute(module: nn.Module, target: str) -> Any:
    """The parameter, buffer or constant a `get_attr` node names."""
    return operator.attrgetter(target)(module)
