"""Opening proves itself: outputs agree, the model is as it was, and what a graph cannot hold is
refused."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from specimen.toys import WIDTH, Block, Mlp, Patches, Transformer, pictures, settled
from vitreous.errors import NotExportable
from vitreous.specimen import cache, opening


class Slotted:
    __slots__ = ("calls", "names")

    def __init__(self) -> None:
        self.calls, self.names = 0, ["one"]

    def change(self) -> None:
        self.calls += 1
        self.names.append("two")


@dataclass
class Config:
    calls: int = 0
    names: list[str] = field(default_factory=lambda: ["one"])

    def change(self) -> None:
        self.calls += 1
        self.names.append("two")


Touch = Callable[[Any], Any]


class Keeper(nn.Module):
    """A model that changes something about itself whenever it runs."""

    mean: Tensor
    steps: Tensor
    touch: Any

    shared: ClassVar[list[int]] = []
    count = 0

    def __init__(self, touch: Touch) -> None:
        super().__init__()
        self.stem, self.mlp, self.head = Patches(), Mlp(), nn.Linear(WIDTH, 5)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))
        self.ordered, self.grouped = OrderedDict(a=1), defaultdict(list, a=[1])
        self.queue, self.names, self.nested = deque([1], maxlen=3), {"a"}, {"deep": [{"er": [1]}]}
        self.config, self.slotted, self.facts = SimpleNamespace(calls=0), Slotted(), Config()
        self.table, self.array = torch.ones(2), np.ones(2)
        self.extra = nn.ParameterList([nn.Parameter(torch.ones(2))])
        held: list[int] = []
        self.append_to_closure = lambda: held.append(1)
        self.held = held
        self.touch = touch

    def forward(self, images: Tensor) -> Tensor:
        self.touch(self)
        tokens = self.stem(images)
        return self.head((tokens + self.mlp(tokens)).mean(1))

    def contents(self) -> str:
        parts: list[Any] = [
            self.ordered,
            dict(self.grouped),
            list(self.queue),
            sorted(self.names),
            self.nested,
        ]
        parts += [self.config]
        parts += [
            self.slotted.calls,
            self.slotted.names,
            self.facts,
            self.table,
            self.array,
            self.mean,
            self.steps,
        ]
        parts += [
            list(self.extra),
            self.held,
            Keeper.shared,
            Keeper.count,
            self.get_parameter("mlp.0.weight").sum(),
        ]
        parts += [
            [module.training for module in self.modules()],
            sorted(vars(self)),
            dict(self._forward_hooks),
        ]
        parts += [torch.get_rng_state().sum(), random.getstate()[1][-1]]
        parts += list(np.random.get_state(legacy=False).items())  # noqa: NPY002
        return repr(parts)


TOUCHES: dict[str, Touch] = {
    "OrderedDict": lambda m: m.ordered.update(b=2),
    "OrderedDict, order": lambda m: [m.ordered.update(b=2), m.ordered.move_to_end("a")],
    "defaultdict": lambda m: m.grouped["b"].append(3),
    "deque": lambda m: m.queue.append(5),
    "set": lambda m: m.names.add("b"),
    "nested": lambda m: m.nested["deep"][0]["er"].append(2),
    "namespace": lambda m: setattr(m.config, "calls", m.config.calls + 1),
    "new attribute of an object": lambda m: setattr(m.config, "cached", 1),
    "slots": lambda m: m.slotted.change(),
    "dataclass": lambda m: m.facts.change(),
    "closure": lambda m: m.append_to_closure(),
    "class list": lambda m: Keeper.shared.append(1),
    "class attribute": lambda m: setattr(Keeper, "count", Keeper.count + 1),
    "numpy array": lambda m: m.array.__iadd__(1),
    "attribute": lambda m: setattr(m, "seen", True),
    "mode": lambda m: m.mlp.train(),
    "hook": lambda m: m.register_forward_hook(lambda *args: None),
    "new buffer": lambda m: m.register_buffer("positions", torch.zeros(2)),
    "python's numbers": lambda m: random.random(),
    "numpy's numbers": lambda m: np.random.rand(),  # noqa: NPY002
    "torch's numbers": lambda m: torch.rand(1),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_opening_restores_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = settled(Keeper(lambda m: None))
    model.touch = TOUCHES[name]  # type: ignore[assignment]
    before = model.contents()  # type: ignore[operator]
    vitreous.open(model, image=16)
    assert model.contents() == before  # type: ignore[operator]

    def interrupted(*args: Any) -> None:
        model(pictures())
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "find_mismatch", None)
    monkeypatch.setattr("vitreous.specimen.export._export", interrupted)
    monkeypatch.setattr(cache, "_entries", OrderedDict())
    with pytest.raises(KeyboardInterrupt):
        vitreous.open(model, image=16)
    assert model.contents() == before  # type: ignore[operator]


def in_place(model: Any) -> None:
    with torch.no_grad():
        model.mean.add_(1)
        model.steps.add_(1)
        model.table.mul_(2)
        model.mlp[0].weight.mul_(1.5)
        model.extra[0].add_(1)


def by_data(model: Any) -> None:
    model.mean.data += 1
    model.mlp[0].weight.data = model.mlp[0].weight.data * 1.5


@pytest.mark.parametrize("touch", [in_place, by_data])
def test_values_are_restored(touch: Touch) -> None:
    """By hand, where the model itself runs: weights and buffers that its forward pass changes are
    as before."""
    model = settled(Keeper(lambda m: None))
    model.touch = touch  # type: ignore[assignment]
    before = model.contents()  # type: ignore[operator]
    pointer = model.get_parameter("mlp.0.weight").data_ptr()
    vitreous.open(model, image=16, units=["stem", "mlp"])
    assert model.contents() == before  # type: ignore[operator]
    assert model.get_parameter("mlp.0.weight").data_ptr() == pointer


class Gain(nn.Module):
    """A residual block with a factor that the test hides somewhere."""

    def __init__(self, **hidden: Any) -> None:
        super().__init__()
        self.mlp = Mlp()
        vars(self).update(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.gain() * self.mlp(tokens)

    def gain(self) -> Any:
        return vars(self)["_k"]


class Boxed(Gain):
    def gain(self) -> Any:
        return vars(self)["box"]["k"][0]


class Configured(Gain):
    def gain(self) -> Any:
        return vars(self)["config"].k


class Called(Gain):
    def gain(self) -> Any:
        return vars(self)["call"]()


class Constant(Gain):
    def gain(self) -> Any:
        return vars(self)["table"]


class OfClass(Gain):
    k = 1.0

    def gain(self) -> Any:
        return self.k


def closure(k: float) -> Callable[[], float]:
    return lambda: k


HIDDEN: dict[str, Callable[[float], Gain]] = {
    "underscore": lambda k: Gain(_k=k),
    "container": lambda k: Boxed(box={"k": [k]}),
    "OrderedDict": lambda k: Boxed(box=OrderedDict(k=deque([k]))),
    "namespace": lambda k: Configured(config=SimpleNamespace(k=k)),
    "dataclass": lambda k: Configured(
        config=type("C", (), {"__init__": lambda self: setattr(self, "k", k)})()
    ),
    "closure": lambda k: Called(call=closure(k)),
    "tensor": lambda k: Constant(table=torch.tensor(k)),
    "partial": lambda k: Called(call=partial(float, k)),
    "a tensor's method": lambda k: Called(call=torch.tensor(k).item),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_two_models_that_differ_in_one_number(name: str) -> None:
    """The second is not taken for the first, wherever the number is."""
    for k in (1.0, 5.0):
        model = settled(Transformer(HIDDEN[name](k)))
        specimen = vitreous.open(model, image=16)
        assert torch.allclose(specimen(pictures()), model(pictures()), rtol=1e-5, atol=1e-5)


def test_a_class_that_changes_between_two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for k in (1.0, 5.0):
        monkeypatch.setattr(OfClass, "k", k)
        model = settled(Transformer(OfClass()))
        assert torch.allclose(
            vitreous.open(model, image=16)(pictures()), model(pictures()), rtol=1e-5, atol=1e-5
        )


def test_a_forward_pass_of_ones_own() -> None:
    for k in (1.0, 5.0):
        model = settled(Transformer(Block()))
        mlp = model.get_submodule("blocks.0.mlp")
        forward: Any = mlp.forward
        mlp.forward = lambda x, k=k, forward=forward: k * forward(x)
        assert torch.allclose(
            vitreous.open(model, image=16)(pictures()), model(pictures()), rtol=1e-5, atol=1e-5
        )


def test_a_wrong_cache_entry_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the key to miss something, the specimen would still be right."""
    monkeypatch.setattr(cache, "_entries", OrderedDict())
    monkeypatch.setattr(opening, "structure", lambda model, example: "one for all")
    for k in (1.0, 5.0):
        model = settled(Transformer(Gain(_k=k)))
        assert torch.allclose(
            vitreous.open(model, image=16)(pictures()), model(pictures()), rtol=1e-5, atol=1e-5
        )


class Coin(nn.Module):
    """What its forward pass depends on, a graph does not hold."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.stem, self.mlp, self.head, self.draw = Patches(), Mlp(), nn.Linear(WIDTH, 5), draw

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        return self.head((tokens + self.draw() * self.mlp(tokens)).mean(1))


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_random_numbers_from_outside_torch_are_refused(draw: Callable[[], float]) -> None:
    with pytest.raises(NotExportable, match=r"first in unit 'mlp'|does not compute"):
        vitreous.open(settled(Coin(draw)), image=16)


def test_a_model_with_changing_outputs_is_refused() -> None:
    counter = iter(range(1000))
    with pytest.raises(NotExportable, match="other outputs for the same images"):
        vitreous.open(settled(Coin(lambda: float(next(counter)))), image=16)


class Noisy(nn.Module):
    def __init__(self, noise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.mlp, self.head, self.noise = Patches(), Mlp(), nn.Linear(WIDTH, 5), noise

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        return self.head((tokens + self.noise(self.mlp(tokens))).mean(1))


def attend(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=0.5)[:, 0]


NOISES: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.5, training=True),
    "in place": lambda x: F.dropout(x, 0.5, training=True, inplace=True),
    "alpha": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "feature": lambda x: F.dropout1d(x, 0.5, training=True),
    "rand": lambda x: x * torch.rand(x.shape[0], 1, 1),
    "randn_like": lambda x: x + torch.randn_like(x),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full((x.shape[0], 1, 1), 0.5)),
    "bernoulli_": lambda x: x * x.new_empty(x.shape[0], 1, 1).bernoulli_(0.5) / 0.5,
    "attention": attend,
}


@pytest.mark.parametrize("name", NOISES)
def test_random_operations_are_kept_and_reported(name: str) -> None:
    model = settled(Noisy(NOISES[name]))
    with pytest.warns(UserWarning, match="random numbers in evaluation mode"):
        specimen = vitreous.open(model, image=16)
    assert specimen.random
    torch.manual_seed(5)
    ours = specimen(pictures(8))
    torch.manual_seed(5)
    assert torch.allclose(ours, model(pictures(8)), atol=1e-5)
    torch.manual_seed(6)
    assert not torch.allclose(ours, specimen(pictures(8)), atol=1e-4)


def test_dropout_that_is_off_is_not_reported() -> None:
    specimen = vitreous.open(settled(Noisy(lambda x: F.dropout(x, 0.5, training=False))), image=16)
    assert specimen.random == ()


def test_opening_costs_one_forward_pass_of_the_model() -> None:
    class Counting(Transformer):
        runs = 0

        def forward(self, images: Tensor) -> Any:
            if type(images) is Tensor and len(images) == 2:
                runs.append(1)
            return super().forward(images)

    model, runs = settled(Counting(Block())), global_runs
    runs.clear()
    model.get_submodule("stem").register_forward_hook(lambda *args: None)  # not cached
    vitreous.open(model, image=16)
    assert len(runs) <= 1


global_runs: list[int] = []
