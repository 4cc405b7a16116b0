"""A training that ends with numbers that are none is an error, whichever step, test or tensor it
was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from training.toy import RECIPE, go
from vitreous.training import loop
from vitreous.training.loop import Diverged
from vitreous.training.step import Step


class Small(nn.Module):
    """A model whose last step can be ruined, or whose test alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 4, 4), nn.BatchNorm2d(4), nn.Linear(4, 10)
        self.ruined_when_tested = False

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.conv(x)).relu().mean((2, 3)))
        return out * torch.nan if self.ruined_when_tested and not self.training else out


def run(home: Path, model: nn.Module, epochs: int = 2) -> Any:
    data = vitreous.data.load("world:shapes", size=64)
    recipe = vitreous.recipes.named("quick").but(epochs=epochs, batch=32, warmup=0.0)
    return vitreous.train(
        model, data, recipe, test=data, out=home / "run", show=False, device="cpu"
    )


def ruin(what: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After step `at`, whose own loss was fine."""
    work = Step.compute

    def step(self: Step) -> None:
        work(self)
        if int(self.number) == at:
            tensors = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
            next(value for name, value in tensors.items() if name.endswith(what)).data.fill_(
                torch.inf
            )

    monkeypatch.setattr(Step, "compute", step)


@pytest.mark.parametrize("what", ["conv.weight", "head.bias", "norm.running_var"])
@pytest.mark.parametrize("at", [1, 3])
def test_weights_ruined_by_the_last_step_of_an_epoch(
    what: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruin(what, at, monkeypatch)
    with pytest.raises(Diverged, match=r"were not finite|was not finite") as caught:
        run(tmp_path, Small())
    assert "state.safetensors" in str(caught.value)
    assert not (tmp_path / "run" / "weights" / "final.safetensors").exists()


def test_a_test_that_fails_alone(tmp_path: Path) -> None:
    model = Small()
    model.ruined_when_tested = True
    with pytest.raises(Diverged, match="test_nll were not finite"):
        run(tmp_path, model)


def test_a_rate_that_blows_up_in_the_last_step(tmp_path: Path) -> None:
    """From the command's own options, nothing patched."""
    data = vitreous.data.load("world:shapes", size=32)
    recipe = vitreous.recipes.named("quick").but(
        epochs=1, batch=32, warmup=0.0, lr=1e38, optimiser="sgd", schedule="constant", clip=None
    )
    with pytest.raises(Diverged):
        vitreous.train(
            "vit_nano", data, recipe, test=data, out=tmp_path / "run", show=False, device="cpu"
        )


def test_a_finished_run_with_non_finite_weights_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "check_finite", lambda *_: None)
    model = Small()
    model.ruined_when_tested = True
    torch.manual_seed(0)
    run(tmp_path, model)
    monkeypatch.undo()
    torch.manual_seed(0)
    again = Small()
    with pytest.raises(Diverged):
        run(tmp_path, again)


class Watching(nn.Module):
    """A classifier that notes whether fused attention may use cuDNN in its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)
        self.cudnn: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.cudnn.append(torch.backends.cuda.cudnn_sdp_enabled())
        return self.head(x.mean((2, 3)))


def test_gradients_are_never_those_of_attention_by_cudnn(tmp_path: Path) -> None:
    """They may be NaN. Afterwards attention is computed as before."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    watching = Watching()
    recipe = RECIPE.but(epochs=1, model={})
    go(tmp_path, recipe, watching)
    assert watching.cudnn
    assert not any(watching.cudnn)
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
