"""The user's model is as it was after everything one can do with it, whether it succeeds, fails or
is interrupted."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from specimen.toys import Choosy, Convolutional, Residual, Transformer, part, pictures, settled
from specimen.zoo import build
from vitreous.errors import NotExportable, VitreousError
from vitreous.specimen import cache
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

HOOKS = [name for name in vars(nn.Module()) if "hooks" in name]


class State:
    """Everything about a model, and about the world, that opening it could change."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.modes = [module.training for module in model.modules()]
        self.attributes = [dict(vars(module)) for module in model.modules()]
        self.inner = [
            {
                name: copy.copy(value)
                for name, value in vars(module).items()
                if isinstance(value, (dict, list))
            }
            for module in model.modules()
        ]
        self.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.flags = [parameter.requires_grad for parameter in model.parameters()]
        self.random = torch.get_rng_state()
        self.world = self._world()

    def _world(self) -> tuple[Any, ...]:
        return (
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
        )

    def check(self) -> None:
        assert torch.equal(torch.get_rng_state(), self.random)
        assert self._world() == self.world
        modules = list(self.model.modules())
        assert [module.training for module in modules] == self.modes
        for module, attributes, inner in zip(modules, self.attributes, self.inner, strict=True):
            assert vars(module).keys() == attributes.keys()
            for name, value in vars(module).items():
                assert value is attributes[name], (type(module).__name__, name)
                if name in inner and not isinstance(value, (set, frozenset)):
                    assert list(value) == list(inner[name]), (type(module).__name__, name)
            assert not any(getattr(module, name) for name in HOOKS)
        assert all(parameter.grad is None for parameter in self.model.parameters())
        assert [parameter.requires_grad for parameter in self.model.parameters()] == self.flags
        state = self.model.state_dict()
        assert state.keys() == self.weights.keys()
        assert all(torch.equal(state[name], value) for name, value in self.weights.items())
        copy.deepcopy(self.model)
        torch.save(state, io.BytesIO())
        assert pickle.loads(pickle.dumps(state)).keys() == state.keys()


def half_training(model: nn.Module) -> nn.Module:
    """Some parts in training mode, some not, and one weight frozen: whatever was there is to be
    there again."""
    for i, module in enumerate(model.modules()):
        module.training = i % 3 == 0
    next(model.parameters()).requires_grad_(False)
    return model


MODELS: dict[str, Callable[[], tuple[nn.Module, int | None]]] = {
    "swin": lambda: (build("swin"), None),
    "convit": lambda: (build("convit"), None),  # keeps a table on itself as it runs
    "tv vit": lambda: (build("tv vit"), None),
    "resnet": lambda: (settled(Convolutional(Residual(), Residual(8, 16, 2))), 16),
}


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_entries", type(cache._entries)())


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_on_the_model_after_success(name: str) -> None:
    model, size = MODELS[name]()
    state = State(half_training(model))
    specimen = vitreous.open(model, image=size)
    state.check()
    batch = torch.randn(2, *specimen.anatomy.image, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        specimen(batch)
    state.check()
    specimen.observe(batch, ("before", "skip", "branch", "after", "attention"))
    specimen.observe(batch, grad=True, each=lambda unit, sites: None)
    state.check()
    unit = next(u for u in specimen.units if u.skip)
    edits = [
        specimen.without(unit.name),
        specimen.without_skip(unit.name),
        specimen.with_branch(unit.name, lambda before, branch: 2 * branch),
        copy.deepcopy(specimen),
    ]
    if unit.kind == "attention":
        edits += [specimen.with_attention(unit.name, "uniform")]
        edits += [specimen.with_attention("attention", specimen.mean_attention([batch]))]
    with torch.no_grad():
        for edited in edits:
            edited(batch)
            edited.observe(batch)
        edits[0].to(torch.float64)(batch.double())
    state.check()
    repr(specimen)
    vitreous.open(model, image=size)  # from the cache this time
    state.check()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_on_the_model_after_a_consumer_raised(error: type[BaseException]) -> None:
    model = settled(
        Transformer(nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)))
    )
    state = State(half_training(model))
    specimen = vitreous.open(model, image=16)

    def consume(unit: Unit, sites: Sites) -> None:
        raise error

    with pytest.raises(error):
        specimen.observe(pictures(), each=consume)
    state.check()
    assert not any(module for module in specimen.modules() if module._forward_hooks)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_on_the_model_after_an_export_failed(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = half_training(build("convit"))
    state = State(model)

    def export(module: nn.Module, args: tuple[Tensor, ...], **options: Any) -> None:
        torch.rand(3)  # half way through: the model has run, and left things behind
        module(*args)
        module.extra = 1  # type: ignore[assignment]
        raise error("stop")

    monkeypatch.setattr(torch.export, "export", export)
    with pytest.raises(NotExportable if error is RuntimeError else error):
        vitreous.open(model)
    state.check()


def test_nothing_is_left_on_a_model_that_cannot_be_read() -> None:
    model = half_training(Choosy())
    state = State(model)
    with pytest.raises(NotExportable):
        vitreous.open(model, image=16)
    state.check()
    specimen = vitreous.open(model, image=16, units=["stem", "body"])
    specimen.observe(pictures())
    specimen.without("body")(pictures()).sum()
    state.check()

    def consume(unit: Unit, sites: Sites) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        specimen.observe(pictures(), each=consume)
    state.check()
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in specimen.modules()
    )
    fails = half_training(settled(Transformer()))
    state = State(fails)
    part(fails, "head").in_features = 8
    with pytest.raises(VitreousError):
        vitreous.open(fails, image=3)
    state.check()


def test_hooks_of_the_user_stay_and_work() -> None:
    model = settled(Convolutional(Residual()))
    calls: list[int] = []
    handle = part(model, "stem").register_forward_hook(lambda module, args, output: calls.append(1))
    specimen = vitreous.open(model, image=16)
    opened = len(calls)
    with torch.no_grad():
        specimen(pictures())
        assert len(calls) == opened
        model(pictures())
    assert len(calls) == opened + 1
    handle.remove()


def test_the_state_of_the_test_notices_changes() -> None:
    """The check itself can fail: for every kind of thing it is there to notice."""

    def note(change: Callable[[nn.Module], Any]) -> None:
        model = settled(Convolutional(Residual()))
        state = State(model)
        state.check()
        change(model)
        with pytest.raises(AssertionError):
            state.check()

    note(lambda model: model.train())
    note(lambda model: part(model, "stem").register_forward_hook(lambda *args: None))
    note(lambda model: setattr(model, "note", 1))
    note(lambda model: setattr(part(model, "stem"), "stride", [1, 1]))
    note(lambda model: part(model, "stem").weight.data.add_(1))
    note(lambda model: model(pictures()).sum().backward())
    note(lambda model: torch.rand(1))
    note(lambda model: part(model, "stem").weight.requires_grad_(False))


@pytest.mark.parametrize("running", [True, False])
def test_the_garbage_collector_is_as_before(running: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if running else gc.disable)()
        vitreous.open(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), image=8)
        assert gc.isenabled() == running
        with pytest.raises(vitreous.VitreousError):
            vitreous.open(nn.Identity(), image=8)
        assert gc.isenabled() == running
    finally:
        (gc.enable if before else gc.disable)()
