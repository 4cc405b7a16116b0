"""Models of one structure are read once: opening the second checkpoint of an architecture is instant.

The structure is every module's class and plain attributes, and the names, shapes and types of all tensors. A model with
anything else that could steer its forward pass (hooks, attributes of unknown types) is read anew each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from vitreous.specimen.anatomy import Anatomy
from vitreous.specimen.graph import attribute
from vitreous.specimen.observe import Wiring, copy_nodes

CAPACITY = 64
PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.Size, type, FunctionType)
ABOUT = {"pretrained_cfg", "default_cfg", "feature_info", "training"}  # says where weights come from, not what runs


class Entry(NamedTuple):
    """A graph without the weights it was read from."""

    graph: fx.Graph
    constants: dict[str, Tensor]
    anatomy: Anatomy
    wiring: dict[str, Wiring]


_entries: OrderedDict[Hashable, Entry] = OrderedDict()


def recall(key: Hashable | None, model: nn.Module) -> tuple[fx.GraphModule, Anatomy, dict[str, Wiring]] | None:
    """The graph of this structure over the weights of `model`, if the structure was met before."""
    entry = _entries.get(key) if key is not None else None
    if entry is None:
        return None
    _entries.move_to_end(key)
    targets = {str(n.target) for n in entry.graph.nodes if n.op == "get_attr"}
    tensors = {t: entry.constants[t] if t in entry.constants else attribute(model, t) for t in targets}
    graph, _ = copy_nodes(entry.graph)
    return fx.GraphModule(tensors, graph), entry.anatomy, entry.wiring


def remember(
    key: Hashable | None, model: nn.Module, module: fx.GraphModule, anatomy: Anatomy, wiring: dict[str, Wiring]
) -> None:
    if key is None:
        return
    own = {
        name
        for name, _ in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
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
    for path, module in model.named_modules(remove_duplicate=False):
        if module._forward_hooks or module._forward_pre_hooks:
            raise _Unknown
        yield path, type(module), tuple(_plain(vars(module)))
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        counts = not tensor.is_floating_point() and not tensor.is_complex() and not tensor.is_meta
        index = tensor.cpu().numpy().tobytes() if counts else None  # an index table says where things go
        yield name, tensor.shape, tensor.dtype, tensor.device, index


def _plain(attributes: dict[str, Any]) -> Iterator[Hashable]:
    for name, value in sorted(attributes.items()):
        if name.startswith("_") or name in ABOUT:
            continue
        if isinstance(value, (Tensor, nn.Module)):
            raise _Unknown  # a tensor or module that is not registered: nobody tells what it is
        if isinstance(value, PLAIN):
            yield name, value
        elif " at 0x" in (text := repr(value)):
            raise _Unknown
        else:
            yield name, text
