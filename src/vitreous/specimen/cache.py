"""Models of one structure are read once: opening the second checkpoint of an architecture is instant.

The structure is everything that steers a forward pass: every module's class and its attributes, what containers,
configurations, functions and closures hold, and the names, shapes and types of all tensors. A model with anything else
(hooks, objects of unknown kinds) is read anew each time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping
from enum import Enum
from functools import partial
from hashlib import sha256
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from vitreous.specimen.anatomy import Anatomy
from vitreous.specimen.graph import Compiled, attribute
from vitreous.specimen.observe import Wiring, copy_nodes

CAPACITY = 64
PLAIN = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    type,
    Enum,
    slice,
)
ABOUT = {"pretrained_cfg", "default_cfg", "feature_info", *vars(nn.Module())}
"""Says where weights come from, not what runs; and torch's own attributes of a module, which are looked at by name."""


class Entry(NamedTuple):
    """A graph without the weights it was read from."""

    graph: fx.Graph
    constants: dict[str, Tensor]
    anatomy: Anatomy
    wiring: dict[str, Wiring]


_entries: OrderedDict[Hashable, Entry] = OrderedDict()


def recall(
    key: Hashable | None, model: nn.Module
) -> tuple[fx.GraphModule, Anatomy, dict[str, Wiring]] | None:
    """The graph of this structure over the weights of `model`, if the structure was met before."""
    entry = _entries.get(key) if key is not None else None
    if entry is None:
        return None
    _entries.move_to_end(key)
    targets = {str(n.target) for n in entry.graph.nodes if n.op == "get_attr"}
    tensors = {
        t: entry.constants[t] if t in entry.constants else attribute(model, t) for t in targets
    }
    graph, _ = copy_nodes(entry.graph)
    return Compiled(tensors, graph), entry.anatomy, entry.wiring


def remember(
    key: Hashable | None,
    model: nn.Module,
    module: fx.GraphModule,
    anatomy: Anatomy,
    wiring: dict[str, Wiring],
) -> None:
    if key is None:
        return
    own = {
        name
        for name, _ in [
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        ]
    }
    targets = {str(n.target) for n in module.graph.nodes if n.op == "get_attr"}
    constants = {t: attribute(module, t) for t in targets - own}
    _entries[key] = Entry(copy_nodes(module.graph)[0], constants, anatomy, wiring)
    while len(_entries) > CAPACITY:
        _entries.popitem(last=False)


def structure(model: nn.Module, example: Tensor) -> Hashable | None:
    """What the graph of `model` depends on, or None if that cannot be told."""
    try:
        parts = tuple(_parts(model))
    except _Unknown:
        return None
    return tuple(example.shape), example.dtype, example.device, parts


class _Unknown(Exception):
    pass


def _parts(model: nn.Module) -> Iterator[Hashable]:
    describe = _Description(model)
    for path, module in model.named_modules(remove_duplicate=False):
        if module._forward_hooks or module._forward_pre_hooks:
            raise _Unknown
        attributes = {name: v for name, v in vars(module).items() if name not in ABOUT}
        yield path, describe.kind(type(module)), describe.mapping(attributes)
    for name, tensor in [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]:
        counts = not tensor.is_floating_point() and not tensor.is_complex()
        yield (
            name,
            _form(tensor),
            tensor.requires_grad,
            _values(tensor) if counts else None,
        )  # a table of indices


class _Description:
    """Describes values by what they hold, so that two models built alike are described alike."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = {id(module): path for path, module in model.named_modules()}
        self.above: list[int] = []
        """What is being described, from the outside in: an object may lead back to itself."""
        self.kinds: dict[type, Hashable] = {}

    def mapping(self, values: Mapping[Any, Any]) -> Hashable:
        """Items in their order, which steers a loop over them."""
        return tuple((self(key), self(value)) for key, value in values.items())

    def kind(self, kind: type) -> Hashable:
        """A class, and those attributes of its own and its parents that can be changed afterwards."""
        if kind not in self.kinds:
            parents = [
                each
                for each in kind.__mro__
                if not each.__module__.startswith(("torch.", "builtins"))
            ]
            own = {
                f"{each.__qualname__}.{name}": v
                for each in parents
                for name, v in vars(each).items()
            }
            self.kinds[kind] = (
                kind,
                tuple((name, self._of_class(v)) for name, v in own.items() if "__" not in name),
            )
        return self.kinds[kind]

    def _of_class(self, value: Any) -> Hashable:
        return (
            self(value)
            if isinstance(value, (*PLAIN, dict, list, tuple, set, Tensor))
            else id(value)
        )

    def __call__(self, value: Any) -> Hashable:
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, Tensor):
            return _form(value), _values(value)
        if id(value) in self.above:
            return "above", len(self.above) - self.above.index(id(value))
        self.above.append(id(value))
        try:
            return type(value), self._content(value)
        finally:
            self.above.pop()

    def _module(self, module: nn.Module) -> Hashable:
        if id(module) not in self.modules:
            raise _Unknown  # not registered: nobody tells what is in it
        return "module", self.modules[id(module)]

    def _content(self, value: Any) -> Hashable:
        if isinstance(value, dict):
            return self.mapping(value)
        if isinstance(value, (list, tuple, deque)):
            return tuple(map(self, value))
        if isinstance(value, (set, frozenset)):
            return frozenset(map(self, value))
        if isinstance(value, FunctionType):
            cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
            return value.__code__, self(cells), self(value.__defaults__), self(value.__kwdefaults__)
        if isinstance(value, MethodType):
            return value.__func__, self(value.__self__)
        if isinstance(value, partial):
            return self(value.func), self(value.args), self(value.keywords)
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType):
            return value
        if type(value).__module__.startswith(("torch.", "builtins", "numpy")) or not hasattr(
            value, "__dict__"
        ):
            raise _Unknown
        return self.kind(type(value)), self.mapping(vars(value))


def _form(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.device


def _values(tensor: Tensor) -> Hashable:
    if tensor.is_meta or tensor.is_sparse or tensor.is_quantized:
        raise _Unknown
    flat = (
        tensor.detach().cpu().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor
    )
    return sha256(flat.numpy().tobytes()).digest()
