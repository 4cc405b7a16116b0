"""Cache of computation graphs by model structure, so that opening another checkpoint is instant.

The structure is everything that a forward pass depends on except the weights: the class and
attributes of every module, the contents of containers, configurations, functions and closures, and
the names, shapes and types of all tensors. A model with anything else (hooks, objects of unknown
types) is not cached.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from hashlib import sha256
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from vitreous.specimen.anatomy import Anatomy
from vitreous.specimen.graph import Compiled, attribute, copy_nodes
from vitreous.specimen.observe import Wiring

Parts = tuple[fx.GraphModule, Anatomy, dict[str, Wiring]]
"""Graph, anatomy, and the wiring of each unit."""

CAPACITY = 64
PLAIN = (
    int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size, type,
    Enum, slice,
)  # fmt: skip
IGNORED = {"pretrained_cfg", "default_cfg", "feature_info", *vars(nn.Module())}
"""Attributes that do not affect a forward pass, and those of `nn.Module`, which are read apart."""


class Entry(NamedTuple):
    """A cached graph without the weights of the model it was read from."""

    graph: fx.Graph
    parameters: tuple[str, ...]
    """In the order of the graph module, which random directions depend on."""
    unsaved: tuple[str, ...]
    """Buffers that are not in the state dict, which fingerprints depend on."""
    constants: dict[str, Tensor]
    anatomy: Anatomy
    wiring: dict[str, Wiring]


_entries: OrderedDict[Hashable, Entry] = OrderedDict()


def recall(key: Hashable | None, model: nn.Module) -> Parts | None:
    """The graph of this structure over the weights of `model`; None if the structure is new."""
    entry = _entries.get(key) if key is not None else None
    if entry is None:
        return None
    _entries.move_to_end(key)
    tensors = {
        target: entry.constants[target] if target in entry.constants else attribute(model, target)
        for target in _targets(entry.graph)
    }
    graph, _ = copy_nodes(entry.graph)
    module = Compiled(tensors, graph)
    _put_in_order(module, entry.parameters)
    for name in entry.unsaved:
        path, _, leaf = name.rpartition(".")
        module.get_submodule(path)._non_persistent_buffers_set.add(leaf)
    return module, entry.anatomy, entry.wiring


def remember(key: Hashable | None, model: nn.Module, parts: Parts) -> None:
    """Cache a graph for the next model of this structure; drops the least recently used one."""
    if key is None:
        return
    module, anatomy, wiring = parts
    weights = {name for name, _ in _tensors(model)}
    targets = _targets(module.graph)
    constants = {t: attribute(module, t) for t in targets - weights}
    parameters = tuple(name for name, _ in module.named_parameters() if name in targets)
    saved = module.state_dict()
    unsaved = tuple(n for n, _ in module.named_buffers() if n in targets and n not in saved)
    graph, _ = copy_nodes(module.graph)
    _entries[key] = Entry(graph, parameters, unsaved, constants, anatomy, wiring)
    while len(_entries) > CAPACITY:
        _entries.popitem(last=False)


def _put_in_order(module: nn.Module, parameters: Iterable[str]) -> None:
    """Make `named_parameters` list these parameters in this order; fx sorts them by depth."""
    for name in parameters:
        *path, leaf = name.split(".")
        owner = module
        for part in path:
            owner._modules[part] = child = cast(nn.Module, owner._modules.pop(part))
            owner = child
        owner._parameters[leaf] = owner._parameters.pop(leaf)


def _targets(graph: fx.Graph) -> set[str]:
    """The names of all tensors that a graph reads."""
    return {str(n.target) for n in graph.nodes if n.op == "get_attr"}


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers under all their names."""
    parameters = model.named_parameters(remove_duplicate=False)
    return chain(parameters, model.named_buffers(remove_duplicate=False))


def structure(model: nn.Module, example: Tensor) -> Hashable | None:
    """The cache key of `model`: all that its graph depends on; None if it cannot be described."""
    try:
        parts = tuple(_parts(model))
    except _Unknown:
        return None
    return tuple(example.shape), example.dtype, example.device, parts


class _Unknown(Exception):
    """The model depends on something that cannot be compared."""


def _parts(model: nn.Module) -> Iterator[Hashable]:
    describe = _Description(model)
    for path, module in model.named_modules(remove_duplicate=False):
        if module._forward_hooks or module._forward_pre_hooks:
            raise _Unknown
        attributes = {name: v for name, v in vars(module).items() if name not in IGNORED}
        yield path, describe.kind(type(module)), describe.mapping(attributes)
    for name, tensor in _tensors(model):
        table = not tensor.is_floating_point() and not tensor.is_complex()  # such as indices
        yield (
            name,
            _shape_and_type(tensor),
            tensor.requires_grad,
            _values(tensor) if table else None,
        )


class _Description:
    """Describes values by their content, so that equal models have equal descriptions."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = {id(module): path for path, module in model.named_modules()}
        self.enclosing: list[int] = []
        """Ids of the objects being described, outermost first, to detect reference cycles."""
        self.kinds: dict[type, Hashable] = {}

    def mapping(self, values: Mapping[Any, Any]) -> Hashable:
        """Items in their order, since the model may loop over them."""
        return tuple((self(key), self(value)) for key, value in values.items())

    def kind(self, kind: type) -> Hashable:
        """A class with the attributes of it and its parents, which may be changed at run time."""
        if kind not in self.kinds:
            attributes: dict[str, Any] = {}
            for base in kind.__mro__:
                if not base.__module__.startswith(("torch.", "builtins")):
                    attributes |= {f"{base.__qualname__}.{n}": v for n, v in vars(base).items()}
            plain = {name: v for name, v in attributes.items() if "__" not in name}
            items = tuple((name, self._class_attribute(v)) for name, v in plain.items())
            self.kinds[kind] = (kind, items)
        return self.kinds[kind]

    def _class_attribute(self, value: Any) -> Hashable:
        data = isinstance(value, (*PLAIN, dict, list, tuple, set, Tensor))
        return self(value) if data else id(value)

    def __call__(self, value: Any) -> Hashable:
        """A description that is equal for equal values; `_Unknown` if there is none."""
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, nn.Module):
            if id(value) not in self.modules:
                raise _Unknown  # not a registered submodule, so `_parts` does not describe it
            return "module", self.modules[id(value)]
        if isinstance(value, Tensor):
            return _shape_and_type(value), _values(value)
        if id(value) in self.enclosing:
            return "above", len(self.enclosing) - self.enclosing.index(id(value))
        self.enclosing.append(id(value))
        try:
            return type(value), self._content(value)
        finally:
            self.enclosing.pop()

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
        foreign = type(value).__module__.startswith(("torch.", "builtins", "numpy"))
        if foreign or not hasattr(value, "__dict__"):
            raise _Unknown
        return self.kind(type(value)), self.mapping(vars(value))


def _shape_and_type(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.device


def _values(tensor: Tensor) -> Hashable:
    """A hash of a tensor's values."""
    if tensor.is_meta or tensor.is_sparse or tensor.is_quantized:
        raise _Unknown
    values = tensor.detach().cpu().contiguous().flatten()
    values = values.view(torch.uint8) if tensor.numel() else values
    return sha256(values.numpy().tobytes()).digest()
