"""What a model asks about tensors that no image has a part in, answered while it is exported.

Export runs a model on tensors without values, so `if mask.all():` or `x[mask]` stops it, even where the mask is made of
ones and a size. Torch can carry real values along with those tensors (it does so for draft exports). Here it does for
all but the images and what is drawn at random: a question about the pixels stays a question without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._pytree import tree_leaves

from vitreous.errors import NotExportable

aten = torch.ops.aten
MOST_UNKNOWN_SIZES = 50
NUMBERS = (aten._local_scalar_dense.default, aten.item.default)


@contextmanager
def known_constants(model: nn.Module) -> Iterator[None]:
    """Export within this to have such questions answered; torch's own fake tensors are changed for the time being."""
    ordinary = FakeTensorMode.dispatch

    def dispatch(
        self: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = args[0] if args else None
        value = getattr(first, "real_tensor", None) if isinstance(first, FakeTensor) else None
        if value is not None and func in NUMBERS:
            return value.item()
        if value is not None and func is aten.nonzero.default:
            first.nonzero_memo = int(value.count_nonzero())  # type: ignore[union-attr]
        result = ordinary(self, func, types, args, kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            _forget(result)
        return result

    hook = model.register_forward_pre_hook(lambda _, images: _forget(images))
    try:
        FakeTensorMode.dispatch = dispatch  # type: ignore[method-assign]
        with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=True):
            yield
    finally:
        FakeTensorMode.dispatch = ordinary  # type: ignore[method-assign]
        hook.remove()


def without_values(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program made so; whatever runs it again carries no values along."""
    for node in program.graph.nodes:
        for tensor in tree_leaves(node.meta.get("val")):
            if isinstance(tensor, FakeTensor):
                tensor.fake_mode.propagate_real_tensors = False
    return program


def _forget(tensors: Any) -> None:
    """Values that are the images', or chance."""
    for tensor in tree_leaves(tensors):
        if isinstance(tensor, FakeTensor):
            tensor.real_tensor = None


UNKNOWN_SIZE = (
    "the number of tokens or another size depends on the values in the images, or on chance"
)
UNKNOWN_WAY = "a branch or the end of a loop depends on the values in the images, or on chance"


def asks_for_values(error: BaseException) -> bool:
    """Whether an export failed because the model asks for the values of a tensor."""
    asks = isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException))
    unknown = isinstance(error, NotExportable) and str(error) == UNKNOWN_SIZE
    return asks or unknown or (error.__cause__ is not None and asks_for_values(error.__cause__))


@contextmanager
def few_unknown_sizes() -> Iterator[None]:
    """Stop an export in which sizes depend on the images, one for each image of the batch.

    Such a graph could not be read in the end, and each unknown size makes all later steps slower: minutes in all.
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
