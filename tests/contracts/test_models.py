"""What every model of the registry must do, collected by discovery: a new family cannot escape.

That it exports is tested where it is opened, in test_models_open.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

import vitreous.models
from vitreous.errors import VitreousError
from vitreous.models.registry import FAMILIES

build: Any = vitreous.models.build  # what a model is made of has no static type

SIDE, CLASSES = 32, 5
SHRINK: dict[str, dict[str, Any]] = {
    "convit": {"depth": 3, "gpsa": 2},
    "pit": {"depths": (1, 1, 1)},
}
"""Families that `tiny` cannot make small by the common options alone."""

VARIANTS: dict[str, dict[str, Any]] = {
    "neighbourhood": {"mixer": "neighbourhood", "pool": "gap"},
    "neighbourhood zero": {"mixer": "neighbourhood", "pool": "gap", "border": "zero"},
    "window": {"mixer": "window", "pool": "gap", "window": 2},
    "mean": {"mixer": "mean", "learn_pattern": True},
    "pool": {"mixer": "pool", "pool": "gap"},
    "box": {"mixer": "box", "pool": "gap", "kernel": 2},
    "identity": {"mixer": "identity", "pool": "gap"},
    "token_mlp": {"mixer": "token_mlp", "pool": "gap"},
    "2d every": {"pos": "2d", "inject": "every"},
    "1d shared": {"inject": "shared"},
    "relative": {"pos": "relative"},
    "relative 2d": {"pos": "relative", "offsets": "2d", "relative_shared": True},
    "sinusoidal": {"pos": "sinusoidal"},
    "skipless": {"skipless": (1,)},
    "tanh": {"head": "tanh", "dropout": 0.1, "drop_path": 0.1},
    "hybrid": {"stem": "r26", "stem_width": 0.25},
    "distilled": {"distilled": True},
}


def tiny(name: str, **options: Any) -> Any:
    """The first size of a family for 32 pixels, with as few blocks as its options allow."""
    found = FAMILIES[name]
    small: dict[str, Any] = {"image": SIDE, "classes": CLASSES}
    small |= {
        key: value
        for key, value in {"depth": 2, "depths": (1, 1, 1, 1)}.items()
        if key in found.options
    }
    small |= {"patch": 8} if found.patches else {}
    return build(
        f"{name}_{next(iter(found.sizes))}", **{**small, **SHRINK.get(name, {}), **options}
    )


def awake(model: Any) -> Any:
    """Away from zero heads and zero scales, through which nothing is seen."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def case(key: str) -> Any:
    torch.manual_seed(0)
    return awake(tiny("vit", **VARIANTS[key]) if key in VARIANTS else tiny(key))


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


everything = pytest.mark.parametrize("key", [*FAMILIES, *VARIANTS])
families = pytest.mark.parametrize("key", FAMILIES)


@everything
def test_trains_one_step_and_every_parameter_takes_part(key: str) -> None:
    model = case(key).train()
    labels = torch.arange(4) % CLASSES
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = F.cross_entropy(model(images(4)), labels)
    before.backward()
    silent = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not silent, f"parameters outside the graph: {silent}"
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser.step()
    assert any(not torch.equal(p, weights[name]) for name, p in model.named_parameters())


@families
def test_compiles(key: str) -> None:
    model = case(key).eval()
    compiled: Any = torch.compile(
        model, backend="aot_eager" if key == "vit" else "eager", fullgraph=True
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled(images()), model(images()), rtol=0, atol=1e-4)
    torch.compiler.reset()


@everything
def test_runs_in_bfloat16(key: str) -> None:
    model = case(key).eval()
    with torch.no_grad():
        exact = model(images())
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(images())
        half = model.to(torch.bfloat16)(images().to(torch.bfloat16))
    assert half.dtype == torch.bfloat16
    for rough in (mixed, half):
        assert (rough.float() - exact).norm() < 0.1 * exact.norm() + 0.1


@everything
def test_saves_and_loads(key: str, tmp_path: Path) -> None:
    model = case(key).eval()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    again = build(**model.config).eval()
    assert again.config == model.config
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    with torch.no_grad():
        assert torch.equal(again(images()), model(images()))


@everything
def test_same_seed_same_model(key: str) -> None:
    one, two = case(key).eval(), case(key).eval()
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    )
    with torch.no_grad():
        assert torch.equal(one(images()), two(images()))
        assert torch.isfinite(one(images())).all()


@everything
def test_images_do_not_influence_each_other(key: str) -> None:
    model = case(key).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(images(4))[1:2], model(images(4)[1:2]), rtol=0, atol=1e-5)


@families
@pytest.mark.parametrize(
    ("option", "value", "found"),
    [("image", 0, "image 0"), ("image", (32, -8), "image (32, -8)"), ("classes", -1, "classes -1"),
     ("channels", 0, "channels 0"), ("imgae", 32, "'imgae' (did you mean image")],
)  # fmt: skip
def test_refuses_with_one_sentence(key: str, option: str, value: object, found: str) -> None:
    with pytest.raises(VitreousError) as error:
        build(f"{key}_{next(iter(FAMILIES[key].sizes))}", **{option: value})
    said = str(error.value)
    assert found in said
    assert "\n" not in said
    assert said.endswith(".")


@everything
def test_has_what_timm_users_expect(key: str) -> None:
    model = case(key).eval()
    with torch.no_grad():
        features = model.forward_features(images())
        torch.testing.assert_close(model.forward_head(features), model(images()))
        assert model.forward_head(features, pre_logits=True).shape[0] == 2
        assert model.num_classes == CLASSES
        assert isinstance(model.no_weight_decay(), set)
        assert model.default_cfg["num_classes"] == CLASSES
        assert model.pretrained_cfg["input_size"] == (3, SIDE, SIDE)
        classifiers = model.default_cfg["classifier"]
        for path in (classifiers,) if isinstance(classifiers, str) else classifiers:
            assert model.get_submodule(path).weight.shape[0] == CLASSES
        assert model.get_classifier() is not None
        model.reset_classifier(3)
        assert model(images()).shape == (2, 3)
        assert model.config["classes"] == 3
        model.reset_classifier(0)
        assert model(images()).shape == (2, model.num_features)
