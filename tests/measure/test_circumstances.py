"""Numbers depend on model, images, options and seed alone, not on what a session did or chose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import vitreous
from vitreous.measure.analyses.landscape import Landscape
from vitreous.measure.analyses.mc_dropout import McDropout
from vitreous.measure.inspection import Inspection

Wrap = Callable[[nn.Module], nn.Module]


class Tokens(nn.Module):
    """Patches, an MLP with dropout and a table that decays no weights, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 8, 8), nn.LayerNorm(8)
        self.wide, self.drop, self.narrow = nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 8)
        self.biases, self.head = nn.Parameter(torch.randn(16, 8)), nn.Linear(8, 10)

    def no_weight_decay(self) -> set[str]:
        return {"biases"}

    def __len__(self) -> int:
        """As of an empty container."""
        return 0

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).mT + self.biases
        tokens = tokens + self.narrow(self.drop(self.wide(self.norm(tokens)).relu()))
        scores: Tensor = self.head(tokens.mean(1))
        return scores


class Inside(nn.Module):
    """A model in an attribute that is called as the prefix of a specimen's parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Any:
        return self.module(images)


def tokens() -> nn.Module:
    torch.manual_seed(4)
    return Tokens().eval()


def measured(model: Any) -> Inspection:
    analyses = [Landscape(points=3), McDropout(passes=(1, 2))]
    how: dict[str, Any] = {"image": 32, "limit": 6}
    probes = vitreous.inspect({"m": model}, probes=["accuracy", "variance", "cost"], **how)
    return probes | vitreous.analyse({"m": model}, analyses=analyses, **how)


def assert_same(one: Inspection, two: Inspection) -> None:
    assert list(one) == list(two)
    assert [name for name in one if name != "cost" and one[name] != two[name]] == []


@pytest.mark.parametrize("wrap", [nn.DataParallel, AveragedModel, torch.compile])
def test_a_wrapped_model_is_the_model(wrap: Wrap) -> None:
    assert_same(measured(tokens()), measured(wrap(tokens())))


@pytest.mark.parametrize("put", [lambda m: m, Inside, lambda m: vitreous.open(m, image=32)])
def test_only_filters_move_however_a_model_is_given(put: Wrap) -> None:
    """What `no_weight_decay` lists stays in a specimen, too, and in what is called `module`."""
    model = tokens()
    line = Landscape(points=3, dimensions=1)({"m": put(model)}, image=32, limit=6)
    filters = [p for name, p in model.named_parameters() if p.ndim > 1 and name != "biases"]
    (direction,) = line.arrays.values()
    assert len(direction) == sum(each.numel() for each in filters)


@contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "chosen", [torch.inference_mode, torch.no_grad, double, lambda: torch.autocast("cpu")]
)
def test_what_a_session_chose_for_its_own_code_changes_nothing(
    chosen: Callable[[], AbstractContextManager[Any]],
) -> None:
    model = tokens()
    usual = measured(model)
    with chosen():
        dtype = torch.get_default_dtype()
        state = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        inside = measured(model)
        assert torch.get_default_dtype() == dtype
        assert (torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")) == state
    assert_same(usual, inside)
    assert_same(usual, measured(model))


def test_gradients_after_a_first_call_in_inference_mode() -> None:
    """What is cached in inference mode could not be used in a graph of gradients."""
    script = (
        "import torch, vitreous\n"
        "with torch.inference_mode():\n"
        "    vitreous.inspect('vit_nano', probes=['accuracy', 'cost'], limit=2)\n"
        "how = {'adversarial': {'epsilons': [1], 'steps': 1}}\n"
        "vitreous.analyse('vit_nano', analyses=how, limit=2)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_importing_and_inspecting_draws_nothing_from_the_session() -> None:
    script = (
        "import random, numpy, torch, vitreous\n"
        "before = random.getstate(), str(numpy.random.get_state()), torch.get_rng_state()\n"
        "vitreous.inspect('vit_nano', probes=['accuracy'], limit=2), vitreous.train\n"
        "assert random.getstate() == before[0]\n"
        "assert str(numpy.random.get_state()) == before[1]\n"
        "assert torch.equal(torch.get_rng_state(), before[2])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
