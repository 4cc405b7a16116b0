"""Read a model's computation graph with `torch.export`, once, without touching the model.

Three things need help:

- The batch size. Export with a symbolic batch takes up to 2.3 times as long. So the batch is a
  prime number that divides no other size, and afterwards every multiple of it is rewritten as a
  multiple of the number of images.
- Values. Export runs a model on fake tensors, which have no values, so it fails at
  `if mask.all():` or `x[mask]`, even if the mask is a constant. Torch can propagate real values
  along with fake tensors, as draft exports do. Here constants keep theirs; images and random
  numbers do not.
- `flex_attention` compiles itself and cannot be part of an exported graph. During export the
  model's code gets an ordinary attention that calls the same `score_mod` and `mask_mod`.
"""

from __future__ import annotations

import operator
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._pytree import tree_leaves

from vitreous.errors import NotExportable
from vitreous.specimen.graph import Compiled, args, aten, forgetting_sources, op, tidy
from vitreous.specimen.inputs import EXAMPLE_BATCH, does_not_run, first_line
from vitreous.specimen.state import SavingParameters, undisturbed

PRIMES = (
    211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311, 313,
    317,
)  # fmt: skip
MOST_UNKNOWN_SIZES = 50
NUMBERS = (aten._local_scalar_dense.default, aten.item.default)
UNKNOWN_SIZE = (
    "the number of tokens or another size depends on the values in the images, or on chance"
)
UNKNOWN_BRANCH = "a branch or the end of a loop depends on the values in the images, or on chance"
ADVICE = (
    "observe its blocks with units='blocks', or modules of your choice with "
    "units=['path.of.module', …]"
)


def read_graph(model: nn.Module, example: Tensor, attempt: int = 0) -> fx.GraphModule:
    """The graph of `model` for any number of images like `example`, over the model's own weights.

    The model is left unchanged, also after an error. A higher `attempt` chooses another prime
    for the batch size.
    """
    tensors = [*model.parameters(), *model.buffers(), example[0]]
    sizes = {size for tensor in tensors for size in tensor.shape} - {0}
    primes = [prime for prime in PRIMES if all(size % prime for size in sizes)][attempt:]
    module = _exported_graph(model, example, primes[0])
    if _collides(module.graph, primes[0]):  # a feature map as wide as the batch: try another
        primes = primes[1:]
        module = _exported_graph(model, example, primes[0])
    _free_batch(module.graph, primes[0])
    return Compiled(module, module.graph)  # export's own class refuses train() and eval()


def _exported_graph(model: nn.Module, example: Tensor, batch: int) -> fx.GraphModule:
    with undisturbed(model) as saving, forgetting_sources(), _explicit_flex_attention(model):
        for layer in model.modules():  # our ConViT layers otherwise fuse their attention
            if hasattr(layer, "explicit_attention"):
                vars(layer)["explicit_attention"] = True
        program: Any = _export(model, example, batch, saving)
        module = _unlifted(program)
        if not tidy(module):
            module = _unlifted(program.run_decompositions({}))
            tidy(module)
    return module


def _unlifted(program: torch.export.ExportedProgram) -> fx.GraphModule:
    """The program over the model's own tensors, to be read and not to be run.

    torch would compile its graph three times on the way, a tenth of the time of an export.
    """
    compiling = fx.GraphModule.recompile

    def leave_uncompiled(self: fx.GraphModule) -> Any:
        return None

    try:
        fx.GraphModule.recompile = leave_uncompiled  # type: ignore[method-assign]
        return program.module(check_guards=False)
    finally:
        fx.GraphModule.recompile = compiling  # type: ignore[method-assign]


def _collides(graph: fx.Graph, batch: int) -> bool:
    """Whether `batch` divides several sizes of one tensor, so that the batch is ambiguous."""
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in graph.nodes)
    return any(sum(size > 0 and size % batch == 0 for size in shape) > 1 for shape in shapes)


def _free_batch(graph: fx.Graph, stand_in: int) -> None:
    """Replace the exported batch size `stand_in`, and multiples of it, by the number of images."""
    images = next(n for n in graph.nodes if n.op == "placeholder")
    with graph.inserting_after(images):
        count = graph.call_function(aten.sym_size.int, (images, 0))
    count.meta["val"] = EXAMPLE_BATCH
    multiples: dict[int, fx.Node] = {1: count}

    def symbolic(value: Any) -> Any:
        if type(value) is not int or value <= 0 or value % stand_in:
            return value
        factor = value // stand_in
        if factor not in multiples:
            with graph.inserting_after(count):
                multiples[factor] = graph.call_function(operator.mul, (count, factor))
            multiples[factor].meta["val"] = EXAMPLE_BATCH * factor
        return multiples[factor]

    for node in list(graph.nodes):
        if node.op == "call_function" and node is not count and node not in multiples.values():
            node.args = fx.node.map_aggregate(node.args, symbolic)
            node.kwargs = fx.node.map_aggregate(node.kwargs, symbolic)
        if "val" in node.meta and node.op != "get_attr":
            node.meta["val"] = _resized(node.meta["val"], stand_in)
    graph.lint()


def _resized(value: Any, stand_in: int) -> Any:
    """Meta tensors with the shapes for the example batch instead of the batch `stand_in`."""
    if isinstance(value, (list, tuple)):
        return [_resized(v, stand_in) for v in value]
    if not isinstance(value, Tensor):
        return value
    shape = [s if s % stand_in else s // stand_in * EXAMPLE_BATCH for s in value.shape]
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _export(
    model: nn.Module, example: Tensor, batch: int, saving: SavingParameters
) -> torch.export.ExportedProgram:
    """Export the model on `batch` images; errors say what the user can do."""
    images = example.new_empty(batch, *example.shape[1:])
    try:
        return _with_or_without_constants(model, images)
    except Exception as cause:
        try:
            with torch.no_grad():
                saving.run(model, example)
        except Exception as plain:  # the model itself fails: its own message is the useful one
            channels, height, width = example.shape[1:]
            raise does_not_run(model, (channels, height, width), plain) from plain
        needs_values = _needs_values_of_tensors(cause) and not isinstance(cause, NotExportable)
        why = (UNKNOWN_BRANCH if needs_values else first_line(cause)) + _failing_line(cause)
        raise NotExportable(
            f"The graph of {type(model).__name__} cannot be read: {why}; {ADVICE}."
        ) from cause


def _with_or_without_constants(model: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """Export; if the model needs values, export again with the values of constants."""
    try:
        return _plain_export(model, images)
    except Exception as error:
        if not _needs_values_of_tensors(error):
            raise
        first = error
    try:
        with _known_constants(model):
            program = _plain_export(model, images)
    except Exception as second:
        if isinstance(first, NotExportable) and "allocate" not in str(second):
            raise first from None  # the unknown size is the cause, this error only its effect
        raise
    for node in program.graph.nodes:  # later runs of the program must not propagate values
        for tensor in tree_leaves(node.meta.get("val")):
            if isinstance(tensor, FakeTensor):
                tensor.fake_mode.propagate_real_tensors = False
    return program


def _plain_export(model: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """`torch.export` of the model; raises if the graph would fit only one batch size."""
    with (
        torch.enable_grad(),
        redirect_stderr(StringIO()),  # a failing export prints the graph
        _few_unknown_sizes(),
        _without_stack_traces(),
        _use_lazy_graph_module(True),  # five passes of export would compile unused graphs
    ):
        program = torch.export.export(model, (images,), strict=False)
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in program.graph.nodes)
    if any(isinstance(size, torch.SymInt) for shape in shapes for size in shape):
        raise NotExportable(UNKNOWN_SIZE)
    if any(_selects_one_image(node, len(images)) for node in program.graph.nodes):
        raise NotExportable(
            "it takes the images of a batch one after the other, so its graph fits one number of "
            "images"
        )
    return program


def _selects_one_image(node: fx.Node, batch: int) -> bool:
    """Whether a node is part of a loop over the images of a batch."""
    if op(node) not in {"select", "unbind"}:
        return False
    source, dim, index = [*args(node), 0, 0][:3]
    shape: tuple[int, ...] = getattr(source.meta.get("val"), "shape", ())
    along_batch = bool(shape) and shape[0] == batch and dim in (0, -len(shape))
    return along_batch and (op(node) == "unbind" or index not in (0, -1))


def _failing_line(error: BaseException) -> str:
    """Where in the model's own code an export failed, for an error message; '' if nowhere."""
    internal = re.compile(r"[/\\]torch[/\\]|vitreous[/\\]specimen")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not internal.search(frame.filename):
            return f" (at {frame.filename}:{frame.lineno}, `{frame.line}`)"
    return ""


@contextmanager
def _known_constants(model: nn.Module) -> Iterator[None]:
    """Inside this context, export propagates the values of constants.

    Images and random numbers must not have values: the graph would then hold for these values only.
    This relies on private parts of torch, `FakeTensorMode.dispatch` and `FakeTensor.real_tensor`;
    `_forget_values` raises if they have changed.
    """
    original = FakeTensorMode.dispatch

    def dispatch(
        self: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = args[0] if args else None
        value = getattr(first, "real_tensor", None) if isinstance(first, FakeTensor) else None
        if value is not None and func in NUMBERS:
            return value.item()
        if value is not None and func is aten.nonzero.default:
            first.nonzero_memo = int(value.count_nonzero())  # type: ignore[union-attr]
        result = original(self, func, types, args, kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            _forget_values(result)
        return result

    hook = model.register_forward_pre_hook(lambda _, images: _forget_values(images))
    try:
        FakeTensorMode.dispatch = dispatch  # type: ignore[method-assign]
        with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=True):
            yield
    finally:
        FakeTensorMode.dispatch = original  # type: ignore[method-assign]
        hook.remove()


def _forget_values(tensors: Any) -> None:
    """Remove the values of images and random numbers."""
    for tensor in tree_leaves(tensors):
        if isinstance(tensor, FakeTensor):
            if not hasattr(tensor, "real_tensor"):
                raise NotExportable(f"torch {torch.__version__} keeps values in another place")
            tensor.real_tensor = None


def _needs_values_of_tensors(error: BaseException) -> bool:
    """Whether an export failed because the model needs the values of a tensor."""
    needs_values = isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException))
    unknown = isinstance(error, NotExportable) and str(error) == UNKNOWN_SIZE
    return (
        needs_values
        or unknown
        or (error.__cause__ is not None and _needs_values_of_tensors(error.__cause__))
    )


@contextmanager
def _few_unknown_sizes() -> Iterator[None]:
    """Inside this context, an export with many data-dependent sizes fails early.

    Such a graph cannot be read anyway. Every unknown size slows down all later steps, so with one
    per image the export would take minutes.
    """
    create, count = ShapeEnv.create_unbacked_symint, 0

    def counted(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count > MOST_UNKNOWN_SIZES:
            raise NotExportable(UNKNOWN_SIZE)
        return create(self, *args, **kwargs)

    try:
        ShapeEnv.create_unbacked_symint = counted  # type: ignore[method-assign]
        yield
    finally:
        ShapeEnv.create_unbacked_symint = create  # type: ignore[method-assign]


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Inside this context, nodes do not record the line of the model's code that made them.

    It is not used, and recording it takes a fifth of the time of an export.
    """
    before = getattr(fx.config, "do_not_emit_stack_traces", False)
    fx.config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        fx.config.do_not_emit_stack_traces = before


@contextmanager
def _explicit_flex_attention(model: nn.Module) -> Iterator[None]:
    """Inside this context, the model's code finds an ordinary function as `flex_attention`."""
    source = sys.modules.get("torch.nn.attention.flex_attention")
    if source is None:  # nobody has imported it
        yield
        return
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for names in _namespaces(model):
            for name, value in list(names.items()):
                if getattr(value, "_torchdynamo_orig_callable", value) is source.flex_attention:
                    changed.append((names, name, value))
                    names[name] = _flex_attention
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _namespaces(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Namespaces from which the model's code may call `flex_attention`, each once.

    These are all Python modules that imported it under its own name (a class may call a helper from
    anywhere), the Python modules that define the model's classes, and the attributes of its layers.
    """
    visited: set[int] = set()
    spaces = [
        vars(module)
        for name, module in list(sys.modules.items())
        if "flex_attention" in getattr(module, "__dict__", {}) and not name.startswith("torch.")
    ]
    kinds = {kind for layer in model.modules() for kind in type(layer).__mro__}
    homes = {kind.__module__ for kind in kinds if not kind.__module__.startswith("torch.")}
    spaces += [vars(sys.modules[home]) for home in sorted(homes) if home in sys.modules]
    spaces += [vars(layer) for layer in model.modules()]
    for names in spaces:
        if id(names) not in visited:
            visited.add(id(names))
            yield names


def _flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    **options: Any,
) -> Any:
    """`flex_attention` written with an explicit matrix of scores."""
    if return_lse or options.get("return_aux") is not None:
        raise NotImplementedError("flex_attention with its log-sum-exp")
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    indices = [
        torch.arange(size, device=query.device).reshape([-1 if i == axis else 1 for i in range(4)])
        for axis, size in enumerate(scores.shape)
    ]
    if score_mod is not None:
        scores = score_mod(scores, *indices)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*indices), float("-inf"))
    return scores.softmax(-1).to(query.dtype) @ value
