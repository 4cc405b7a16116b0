"""Restore a model's attributes, hooks, buffers, gradients, modes, and random state after using it.

Some models store tensors or counters on themselves when they run, and `torch.export` replaces
containers and installs hooks. So everything that can be reached from the modules is recorded before
and restored in place afterwards: objects keep their identity, in case other code refers to them.
"""

from __future__ import annotations

import functools
import gc
import logging
import random
import types
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

FOREIGN = ("torch.", "numpy.", "logging", "threading", "builtins")
"""Packages whose objects are not inspected, except for modules and containers."""
LEAVES = (
    str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, torch.dtype,
    torch.device, types.BuiltinFunctionType, types.CodeType, torch.Generator, torch.Size,
)  # fmt: skip
"""Types of values that cannot change."""
MOST_OBJECTS = 100_000
MOST_BYTES = 1 << 28
"""Limit for saving tensors other than weights: a model may refer to a whole dataset."""


class SavingParameters(TorchDispatchMode):
    """Runs a model and saves a copy of each parameter just before an operation writes to it.

    Copying all parameters beforehand would double the memory of the model.
    """

    supports_higher_order_operators = True

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watched = {p.untyped_storage()._cdata: p.detach() for p in parameters}
        self.saved: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            values = dict(zip((a.name for a in schema.arguments), args, strict=False))
            values |= kwargs or {}
            for argument in schema.arguments:
                written = argument.alias_info is not None and argument.alias_info.is_write
                value = values.get(argument.name)
                if written and isinstance(value, Tensor):
                    self._save(value.untyped_storage()._cdata)
        return func(*args, **(kwargs or {}))

    def run(self, model: nn.Module, images: Tensor) -> Any:
        """The model's output; runs unwatched if a compiled function rejects dispatch modes."""
        try:
            with self:
                return model(images)
        except Exception:
            return model(images)

    def _save(self, storage: int) -> None:
        parameter = self.watched.pop(storage, None)
        if parameter is not None:
            with _disable_current_modes():  # under fake tensors a copy would be fake
                self.saved.append((parameter, parameter.clone()))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: traversing all objects of torch would take 0.25 s."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def no_logging() -> Iterator[None]:
    """Disable all logging.

    Each switch clears the caches of all loggers, thousands with Hugging Face's, so nested blocks
    do not switch.
    """
    before = logging.root.manager.disable
    if before < logging.CRITICAL:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        if before < logging.CRITICAL:
            logging.disable(before)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[SavingParameters]:
    """Put a model into evaluation mode; afterwards restore it and the random state.

    Run the model with `with undisturbed(model) as saving: saving.run(model, images)`, so that
    parameters that it writes to are restored too.
    """
    snapshot = _Snapshot(model)
    random_states = random.getstate(), np.random.get_state()  # noqa: NPY002
    fastpath = torch.backends.mha.get_fastpath_enabled()
    with torch.random.fork_rng(), warnings.catch_warnings(), no_logging():
        warnings.simplefilter("ignore")
        try:
            torch.backends.mha.set_fastpath_enabled(False)  # its kernel would hide the attention
            for module in snapshot.modules:
                module.training = False
            yield snapshot.saving
        finally:
            torch.backends.mha.set_fastpath_enabled(fastpath)
            random.setstate(random_states[0])
            np.random.set_state(random_states[1])  # noqa: NPY002
            try:
                snapshot.restore()
            except KeyboardInterrupt:  # Ctrl-C interrupted restoring: start again
                snapshot.restore()
                raise


class _Snapshot:
    """All objects that can be reached from a model, with their present contents."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.parameters = {id(p) for p in model.parameters()}
        self.saving = SavingParameters(p for p in model.parameters() if not p.is_meta)
        self.buffers = {id(b) for b in model.buffers()}
        self.visited: set[int] = set()
        self.room = MOST_BYTES
        self.contents: list[tuple[Any, Any]] = []
        self.tensors: list[_SavedTensor] = []
        self.classes: list[tuple[type, dict[str, Any]]] = []
        self.queue: list[Any] = list(reversed(self.modules))
        while self.queue:
            self._note(self.queue.pop())
        self._note_classes()
        while self.queue:
            self._note(self.queue.pop())

    def _note(self, value: Any) -> None:
        """Record one value, and queue the values it contains."""
        if isinstance(value, LEAVES) or id(value) in self.visited:
            return
        if len(self.visited) > MOST_OBJECTS:
            return
        self.visited.add(id(value))
        if isinstance(value, Tensor):
            self._note_tensor(value)
        elif isinstance(value, (tuple, frozenset)):
            self.queue.extend(value)
        elif isinstance(value, dict):
            self._record(value, dict(value), value.values())
        elif isinstance(value, (list, set, deque)):
            self._record(value, list(value), value)
        elif isinstance(value, np.ndarray):
            self._record(value, value.copy(), ())
        elif isinstance(value, types.FunctionType):
            self.queue.extend(value.__closure__ or ())
        elif isinstance(value, types.CellType):
            self._note_cell(value)
        elif isinstance(value, types.MethodType):
            self.queue += [value.__self__, value.__func__]
        elif isinstance(value, functools.partial):
            self.queue += [value.func, value.args, value.keywords]
        elif isinstance(value, nn.Module) or not type(value).__module__.startswith(FOREIGN):
            self._note_object(value)

    def _record(self, value: Any, content: Any, parts: Any) -> None:
        """Record the content of a value, and queue its parts."""
        self.contents.append((value, content))
        self.queue.extend(parts)

    def _note_cell(self, cell: types.CellType) -> None:
        try:
            self._record(cell, cell.cell_contents, [cell.cell_contents])
        except ValueError:  # an empty cell: a name that has no value yet
            return

    def _note_object(self, value: Any) -> None:
        slots = {name for kind in type(value).__mro__ for name in _slots(kind)}
        attributes = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        if slots:
            self._record(value, attributes, attributes.values())
        if isinstance(getattr(value, "__dict__", None), dict):
            self.queue.append(vars(value))

    def _note_tensor(self, tensor: Tensor) -> None:
        """Record gradient, `requires_grad` and, unless `SavingParameters` does, the values."""
        data = tensor.detach()
        is_parameter, is_buffer = id(tensor) in self.parameters, id(tensor) in self.buffers
        if not is_parameter and not is_buffer:
            self.room -= data.nbytes
        too_large = self.room < 0 and not is_buffer
        copied = None if is_parameter or tensor.is_meta or too_large else data.clone()
        grad = tensor.grad if tensor.is_leaf else None
        self.tensors.append(_SavedTensor(tensor, data, copied, grad, tensor.requires_grad))

    def _note_classes(self) -> None:
        """Record the data attributes of the modules' classes, such as counters and tables."""
        kinds = {kind for module in self.modules for kind in type(module).__mro__}
        for kind in kinds - set(nn.Module.__mro__):
            if not kind.__module__.startswith("torch."):
                values = {name: v for name, v in vars(kind).items() if _is_data(name, v)}
                self.classes.append((kind, values))
                self.queue.extend(values.values())

    def restore(self) -> None:
        """Restore everything."""
        for value, content in self.contents:
            _restore_content(value, content)
        for kind, values in self.classes:
            current = {name for name, v in vars(kind).items() if _is_data(name, v)}
            for name in current - set(values):
                delattr(kind, name)
            for name, value in values.items():
                if vars(kind).get(name) is not value:
                    setattr(kind, name, value)
        for parameter, saved in self.saving.saved:
            parameter.copy_(saved)
        for tensor in self.tensors:
            tensor.restore()


class _SavedTensor(NamedTuple):
    """A tensor, its memory, and its values, gradient and `requires_grad`."""

    tensor: Tensor
    data: Tensor
    copied: Tensor | None
    grad: Tensor | None
    requires_grad: bool

    def restore(self) -> None:
        """Restore memory, values, gradient and `requires_grad`."""
        tensor = self.tensor
        if tensor.data_ptr() != self.data.data_ptr() or tensor.shape != self.data.shape:
            tensor.data = self.data  # the model assigned to `.data`
        if self.copied is not None and not _same_bits(self.data, self.copied):
            self.data.copy_(self.copied)
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad


def _slots(kind: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots."""
    names = vars(kind).get("__slots__", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(name for name in names if not name.startswith("__"))


def _is_data(name: str, value: Any) -> bool:
    """Whether an attribute of a class holds data, not code."""
    code = (types.FunctionType, classmethod, staticmethod, property, functools.cached_property)
    is_code = isinstance(value, (*code, types.MemberDescriptorType))
    return not name.startswith(("__", "_abc_")) and not is_code


def _restore_content(value: Any, content: Any) -> None:
    """Restore the content of a container, array, cell or object."""
    if isinstance(value, dict):
        if list(value) != list(content) or any(value[key] is not content[key] for key in content):
            value.clear()
            value.update(content)
    elif isinstance(value, (list, set, deque)):
        same_length = len(value) == len(content)
        if same_length and all(a is b for a, b in zip(value, content, strict=True)):
            return
        value.clear()
        value.update(content) if isinstance(value, set) else value.extend(content)
    elif isinstance(value, np.ndarray):
        if value.tobytes() != content.tobytes():
            value[...] = content
    elif isinstance(value, types.CellType):
        value.cell_contents = content
    else:
        _restore_content_slots(value, content)


def _restore_content_slots(value: Any, content: dict[str, Any]) -> None:
    """Restore the attributes that an object keeps in slots."""
    for name in {name for kind in type(value).__mro__ for name in _slots(kind)}:
        if name in content and getattr(value, name, None) is not content[name]:
            object.__setattr__(value, name, content[name])
        elif name not in content and hasattr(value, name):
            object.__delattr__(value, name)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    same = (a == b) | ((a != a) & (b != b))  # NaN equals NaN here
    return bool(same.all())
