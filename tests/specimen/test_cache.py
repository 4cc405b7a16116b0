"""Models of one structure are read once, and only those."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from specimen.toys import (
    Attention,
    Block,
    Convolutional,
    Residual,
    Transformer,
    part,
    pictures,
    settled,
)
from vitreous.measure.subject import specimen_fingerprint
from vitreous.specimen import cache, export, opening
from vitreous.specimen.specimen import Specimen


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[nn.Module]]:
    """The models whose graph was read, on an empty cache."""
    seen: list[nn.Module] = []
    read = export.read_graph

    def counted(model: nn.Module, example: Tensor, attempt: int = 0) -> Any:
        seen.append(model)
        return read(model, example, attempt)

    monkeypatch.setattr(opening, "read_graph", counted)
    monkeypatch.setattr(cache, "_entries", type(cache._entries)())
    yield seen
    seen.clear()


def vit(depth: int = 1) -> nn.Module:
    return settled(Transformer(*(Block() for _ in range(depth)), cls=True))


def outputs(specimen: Specimen, model: nn.Module, size: int = 16) -> None:
    with torch.no_grad():
        torch.testing.assert_close(
            specimen(pictures(size=size)), model(pictures(size=size)), rtol=1e-5, atol=1e-6
        )


def test_a_second_model_of_a_structure_uses_the_cache_and_its_own_weights(
    reads: list[nn.Module],
) -> None:
    first, second = vit(), vit()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.5)
    one, two = vitreous.open(first, image=16), vitreous.open(second, image=16)
    assert len(reads) == 1
    outputs(one, first)
    outputs(two, second)
    assert one.anatomy == two.anatomy
    assert set(two.parameters()) <= set(second.parameters())
    with torch.no_grad():
        first_weight, second_weight = part(first, "head").weight, part(second, "head").weight
        second_weight.add_(1)
        outputs(two, second)
        outputs(one, first)
    assert not torch.equal(first_weight, second_weight)
    two.without("blocks.0.mlp")
    third = vit()
    outputs(vitreous.open(third, image=16), third)  # an edit of one does not reach the others
    assert len(reads) == 1


def test_parameters_of_a_second_model_are_in_the_order_of_the_first(
    reads: list[nn.Module],
) -> None:
    """Random directions, such as Lanczos begins with, must not depend on what was opened before."""

    def order(model: nn.Module) -> list[str]:
        return [name for name, _ in vitreous.open(model, image=16).named_parameters()]

    tied = settled(Transformer(Block(), Block(), cls=True))
    part(tied, "blocks.1.norm1").weight = part(tied, "blocks.0.norm2").weight
    spare = vit(2)
    part(spare, "blocks.1").extra = nn.Parameter(torch.zeros(3))  # nothing reads it
    for model in (vit(2), tied, spare, settled(Convolutional(Residual(), Residual()))):
        reads.clear()
        cache._entries.clear()
        first, second = order(model), order(copy.deepcopy(model))
        assert len(reads) == 1
        assert first == second


def test_a_second_model_has_the_fingerprint_of_the_first(reads: list[nn.Module]) -> None:
    """Also with buffers outside the state dict: inspections resume by the fingerprint."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = settled(vit(1))
            self.register_buffer("index", torch.arange(3).flip(0), persistent=False)
            self.register_buffer("level", torch.full((3, 1, 1), 0.5))

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.inner(
                images[:, self.get_buffer("index")] + self.get_buffer("level")
            )
            return scores

    model = Shifted()
    first, second = (vitreous.open(each, image=16) for each in (model, copy.deepcopy(model)))
    assert len(reads) == 1
    assert list(first.state_dict()) == list(second.state_dict())
    assert specimen_fingerprint(first) == specimen_fingerprint(second)


def test_running_statistics_are_those_of_the_model(reads: list[nn.Module]) -> None:
    first, second = settled(Convolutional(Residual())), settled(Convolutional(Residual()))
    part(second, "blocks.0.bn1").running_mean.add_(1)
    outputs(vitreous.open(first, image=16), first)
    outputs(vitreous.open(second, image=16), second)
    assert len(reads) == 1


def scaled(model: nn.Module) -> None:
    part(model, "blocks.0.norm1").eps = 0.3


def hooked(model: nn.Module) -> None:
    part(model, "blocks.0.mlp").register_forward_hook(lambda module, args, output: output * 2)


def entered(model: nn.Module) -> None:
    part(model, "blocks.0.mlp").register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def replaced(model: nn.Module) -> None:
    part(model, "blocks.0").mlp[1] = nn.GELU()


def overridden(model: nn.Module) -> None:
    part(model, "blocks.0.mlp").forward = lambda value: value * 3


def frozen(model: nn.Module) -> None:
    part(model, "blocks.0").norm2 = nn.LayerNorm(8, elementwise_affine=False)


def widened(model: nn.Module) -> None:
    part(model, "blocks.0").mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))


@pytest.mark.parametrize("change", [scaled, hooked, entered, replaced, overridden, frozen, widened])
def test_a_model_that_computes_something_else_is_not_from_the_cache(
    reads: list[nn.Module], change: Callable[[nn.Module], None]
) -> None:
    plain, other = vit(), vit()
    change(other)
    vitreous.open(plain, image=16)
    specimen = vitreous.open(other, image=16)
    assert len(reads) == 2
    outputs(specimen, other)
    with torch.no_grad():
        assert (other(pictures()) - plain(pictures())).abs().max() > 1e-4


def test_depth_size_and_type_are_structure(reads: list[nn.Module]) -> None:
    vitreous.open(vit(), image=16)
    vitreous.open(vit(2), image=16)
    conv = settled(Convolutional(Residual()))
    vitreous.open(conv, image=16)
    larger = vitreous.open(conv, image=(24, 32))
    assert len(reads) == 4
    assert larger.units[1].grid == (24, 32)
    assert vitreous.open(conv, image=16).units[1].grid == (16, 16)
    assert len(reads) == 4
    assert vitreous.open(vit().double(), image=16)(pictures().double()).dtype == torch.float64
    assert len(reads) == 5


def test_a_constant_of_the_model_is_its_own(reads: list[nn.Module]) -> None:
    """A table that is no parameter and no buffer, so that nobody can tell when it changes: read
    anew."""

    class Table(Attention):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.table = torch.full((8,), factor)

        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens * self.table)

    for factor in (1.0, 2.0):
        model = settled(Transformer(Block(Table(factor))))
        outputs(vitreous.open(model, image=16), model)
    assert len(reads) == 2


def test_the_cache_keeps_no_weights_alive(reads: list[nn.Module]) -> None:
    model = vit()
    specimen = vitreous.open(model, image=16)
    refs = [weakref.ref(parameter) for parameter in model.parameters()] + [weakref.ref(model)]
    assert len(cache._entries) == 1
    del model, specimen
    reads.clear()
    gc.collect()
    assert [ref for ref in refs if ref() is not None] == []
    other = vit()
    outputs(vitreous.open(other, image=16), other)
    assert reads == []


def test_the_oldest_structure_is_dropped_first(
    reads: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "CAPACITY", 2)
    monkeypatch.setattr(
        logging.getLogger("torch.__trace"), "disabled", True
    )  # pytest would keep every record
    one, two, three = vit(1), vit(2), settled(Transformer(Block()))
    for model in (one, two, one, three):  # the second is now the oldest
        vitreous.open(model, image=16)
    assert len(reads) == 3
    vitreous.open(copy.deepcopy(one), image=16)
    assert len(reads) == 3
    vitreous.open(two, image=16)
    assert len(reads) == 4


def test_index_buffers_are_part_of_the_structure(reads: list[nn.Module]) -> None:
    """Windows and offsets live in integer tables: with another table positions move."""

    class Shuffled(Attention):
        order: Tensor

        def __init__(self, order: Tensor) -> None:
            super().__init__()
            self.register_buffer("order", order)

        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens[:, self.order])

    orders = torch.arange(16), torch.arange(16).flip(0)
    for order in orders:
        model = settled(Transformer(Block(Shuffled(order))))
        specimen = vitreous.open(model, image=16)
        outputs(specimen, model)
        found = specimen.observe(pictures(), ["attention"])["blocks.0.attn"].attention
        assert found is not None
        assert torch.equal(found.keys[0], order)


def test_opening_leaves_no_objects_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was 39 objects and 51 KiB an open, for ever; torch itself keeps half an object."""
    monkeypatch.setattr(cache, "CAPACITY", 2)
    monkeypatch.setattr(
        logging.getLogger("torch.__trace"), "disabled", True
    )  # pytest would keep every record
    monkeypatch.setattr(cache, "_entries", type(cache._entries)())

    def open_another(number: int) -> None:
        model = vit()
        model.number = number  # type: ignore[assignment]
        vitreous.open(model, image=16).observe(pictures())

    def left() -> int:
        gc.collect()
        return len(gc.get_objects())

    for number in range(10):
        open_another(number)
    before = left()
    for number in range(10, 20):
        open_another(number)
    assert left() - before < 50
