"""What is seen equals what plain hooks see; it comes in order, as soon as it exists, and is not
kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specimen.toys import (
    WIDTH,
    Block,
    Convolutional,
    Parallel,
    Residual,
    Transformer,
    open_toy,
    part,
    pictures,
)
from specimen.zoo import first_tensor, images, opened
from vitreous.errors import UnknownName, VitreousError
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Feature, Observation, Sites


def hooked(model: nn.Module, batch: Tensor, *paths: str) -> dict[str, tuple[Tensor, Tensor]]:
    """What goes into the modules at `paths` and what comes out of them."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def note(path: str) -> Any:
        return lambda module, args, output: seen.__setitem__(
            path, (args[0].clone(), output.clone())
        )

    handles = [part(model, path).register_forward_hook(note(path)) for path in paths]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    return seen


def feature(seen: Observation, unit: str, site: str) -> Feature:
    found = getattr(seen[unit], site)
    assert found is not None, (unit, site)
    return found


def same(given: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


TIMM = {
    "vit": {
        "before": {"blocks.0.attn": "blocks.0", "blocks.1.attn": "blocks.1"},
        "out": {"blocks.1.mlp": "blocks.1"},
    },
    "swin": {
        "before": {
            "layers.0.blocks.1.attn": "layers.0.blocks.1",
            "layers.1.downsample": "layers.1.downsample",
        },
        "out": {
            "layers.0.blocks.1.mlp": "layers.0.blocks.1",
            "layers.1.downsample": "layers.1.downsample",
        },
    },
    "resnet18": {
        "before": {"layer1.0": "layer1.0", "layer3.1": "layer3.1"},
        "out": {"layer1.0": "layer1.0", "layer4.1": "layer4.1"},
        "branch": {"layer2.0": "layer2.0.bn2"},
        "skip": {"layer2.0": "layer2.0.downsample"},
    },
    "convnext": {
        "before": {"stages.1.blocks.1": "stages.1.blocks.1"},
        "out": {
            "stages.1.blocks.1": "stages.1.blocks.1",
            "stages.1.downsample": "stages.1.downsample",
        },
    },
    "pit": {"out": {"transformers.0.blocks.0.mlp": "transformers.0.blocks.0"}},
    "deit": {"branch": {"blocks.0.attn": "blocks.0.attn", "blocks.1.mlp": "blocks.1.mlp"}},
}


@pytest.mark.parametrize("name", TIMM)
def test_observed_tensors_equal_those_of_plain_hooks(name: str) -> None:
    model, specimen = opened(name)
    batch = images(specimen)
    wanted = hooked(
        model, batch, *{path for pairs in TIMM[name].values() for path in pairs.values()}
    )
    seen = specimen.observe(batch, ("before", "skip", "branch", "out"))
    for site, pairs in TIMM[name].items():
        for unit, path in pairs.items():
            given = feature(seen, unit, site)
            same(given.raw, wanted[path][site != "before"].reshape(given.raw.shape))
    with torch.no_grad():
        same(first_tensor(seen.output), first_tensor(model(batch)))


@pytest.mark.parametrize(
    "name", ["vit", "swin", "resnet50", "convnext", "cait", "poolformer", "hf vit", "tv vit"]
)
def test_skip_and_branch_sum_to_the_stream(name: str) -> None:
    """`after` is their sum in whatever layout; a ResNet hands it on after its activation."""
    _, specimen = opened(name)
    seen = specimen.observe(images(specimen), ("skip", "branch", "after", "out"))
    units = [unit for unit in specimen.units if unit.skip]
    assert len(units) >= 4
    for unit in units:
        total = feature(seen, unit.name, "skip").tokens + feature(seen, unit.name, "branch").tokens
        same(feature(seen, unit.name, "after").tokens, total)
        same(feature(seen, unit.name, "out").tokens, total.relu() if name == "resnet50" else total)
    assert seen["head" if "head" in seen else next(reversed(list(seen)))].skip is None


def test_maps_and_tokens_of_every_layout() -> None:
    model, specimen = opened("swin")
    raw = hooked(model, images(specimen), "layers.0.blocks.0")["layers.0.blocks.0"][1]  # b, h, w, c
    given = feature(specimen.observe(images(specimen)), "layers.0.blocks.0.mlp", "after")
    same(given.map, raw.permute(0, 3, 1, 2))
    same(given.tokens, raw.flatten(1, 2))
    assert (given.grid, given.prefix) == ((14, 14), ())

    model, specimen = opened("convnext")
    raw = hooked(model, images(specimen), "stages.1.blocks.0")["stages.1.blocks.0"][1]  # b, c, h, w
    given = feature(specimen.observe(images(specimen)), "stages.1.blocks.0", "after")
    same(given.map, raw)
    stem = hooked(model, images(specimen), "stem")["stem"][1]
    same(feature(specimen.observe(images(specimen)), "stem", "after").map, stem)
    same(given.tokens, raw.flatten(2).transpose(1, 2))

    model, specimen = opened("deit")
    raw = hooked(model, images(specimen), "blocks.0")["blocks.0"][1]  # b, 2 + h*w, c
    given = feature(specimen.observe(images(specimen)), "blocks.0.mlp", "after")
    same(given.tokens, raw)
    same(given.map, raw[:, 2:].transpose(1, 2).unflatten(2, (4, 4)))
    assert given.prefix == ("class", "distillation")

    logits = feature(specimen.observe(images(specimen)), "head", "after")
    assert logits.tokens.shape == (2, 1, 10)
    with pytest.raises(VitreousError, match=r"\(2, 10\) has no grid.*\.tokens or \.raw"):
        _ = logits.map


def test_tokens_come_in_one_order_whatever_the_order_inside() -> None:
    """Class token at the end, grid column by column: outside it is the class token, then row by
    row."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj, self.cls_token = (
                nn.Conv2d(3, WIDTH, 4, 4),
                nn.Parameter(torch.randn(1, 1, WIDTH)),
            )

        def forward(self, x: Tensor) -> Tensor:
            grid = self.proj(x).transpose(2, 3).flatten(2).transpose(1, 2)
            return torch.cat([grid, self.cls_token.expand(len(x), -1, -1)], 1)

    model = Transformer(Block())
    model.stem = Odd()  # type: ignore[assignment]
    specimen = open_toy(model)
    seen = specimen.observe(pictures(), ("before", "attention"))["blocks.0.attn"]
    with torch.no_grad():
        grid = part(model, "stem.proj")(pictures())
    assert seen.before is not None
    assert (seen.before.grid, seen.before.prefix) == ((4, 4), ("class",))
    same(seen.before.map, grid)
    same(seen.before.tokens[:, 1:], grid.flatten(2).transpose(1, 2))
    same(seen.before.tokens[:, 0], part(model, "stem").cls_token[:, 0].detach().expand(2, -1))
    assert seen.attention is not None
    assert seen.attention.keys.tolist() == [
        [1 + row * 4 + column for column in range(4) for row in range(4)] + [0]
    ]


def test_units_come_in_order_of_depth() -> None:
    for specimen in (
        opened("swin")[1],
        opened("resnet18")[1],
        open_toy(Transformer(Parallel(), Parallel())),
    ):
        order: list[int] = []
        batch = images(specimen)
        specimen.observe(batch, each=lambda unit, sites, seen=order: seen.append(unit.index))  # type: ignore[misc]
        assert order == list(range(len(specimen.units)))


def test_only_requested_sites_of_requested_units_are_observed() -> None:
    _, specimen = opened("vit")
    seen = specimen.observe(images(specimen), ("branch", "attention"), ["blocks.1.*", "head"])
    assert list(seen) == ["blocks.1.attn", "blocks.1.mlp", "head"]
    assert seen["blocks.1.attn"].before is None
    assert seen["blocks.1.attn"].attention is not None
    assert seen["blocks.1.mlp"].attention is None
    assert seen["blocks.1.mlp"].branch is not None


def test_observed_tensors_are_freed_after_the_consumer() -> None:
    """Of 24 units at most a handful of tensors is alive at any moment, and none afterwards."""
    specimen = open_toy(Transformer(*(Block() for _ in range(12))))
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def consume(unit: Unit, sites: Sites) -> None:
        nonlocal most
        for found in (sites.before, sites.branch, sites.after):
            if found is not None and not any(ref() is found.raw for ref in alive):
                alive.append(weakref.ref(found.raw))
        if sites.attention is not None:
            alive.append(weakref.ref(sites.attention.values))
        most = max(most, sum(ref() is not None for ref in alive))

    gc.disable()  # reference counts alone must do
    try:
        result = specimen.observe(
            pictures(), ("before", "branch", "after", "attention"), each=consume
        )
        left = sum(ref() is not None and ref() is not result.output for ref in alive)
    finally:
        gc.enable()
    assert len(alive) > 50
    assert most <= 5
    assert left <= 1  # the output of the head is the result
    assert len(result) == 0


def test_in_place_operations_do_not_change_observed_tensors() -> None:
    """`out += skip` and an in-place ReLU follow the branch; the branch keeps its negative
    values."""
    model = Convolutional(Residual(), Residual(WIDTH, 2 * WIDTH, 2))
    specimen = open_toy(model)
    seen = specimen.observe(pictures(), ("before", "skip", "branch", "after", "out"))
    inside = hooked(model, pictures(), "blocks.0.bn2", "blocks.0", "blocks.1.bn2")
    same(feature(seen, "blocks.0", "branch").raw, inside["blocks.0.bn2"][1])
    same(feature(seen, "blocks.0", "before").raw, inside["blocks.0"][0])
    same(feature(seen, "blocks.1", "branch").raw, inside["blocks.1.bn2"][1])
    for unit in ("blocks.0", "blocks.1"):
        assert feature(seen, unit, "branch").raw.min() < 0
        assert feature(seen, unit, "after").raw.min() < 0
        assert feature(seen, unit, "out").raw.min() == 0


def test_an_activation_in_place_at_the_start_of_a_branch() -> None:
    class Early(nn.Module):
        """The activation overwrites the block's own input, so the skip carries the activated
        stream."""

        def __init__(self) -> None:
            super().__init__()
            self.act, self.conv, self.end = (
                nn.ReLU(inplace=True),
                nn.Conv2d(WIDTH, WIDTH, 3, 1, 1),
                nn.Tanh(),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.end(self.conv(self.act(x)))

    model = Convolutional(Early(), Early())
    specimen = open_toy(model)
    with torch.no_grad():
        same(specimen(pictures()), model(pictures()))
        stem = part(model, "stem")(pictures())
    seen = specimen.observe(pictures(), ("skip", "after"))
    same(feature(seen, "blocks.0.conv", "skip").raw, stem.relu())
    same(
        feature(seen, "blocks.0.conv", "after").raw.relu(),
        feature(seen, "blocks.1.conv", "skip").raw,
    )


def test_gradients_on_request_only() -> None:
    _, specimen = opened("vit")
    batch = images(specimen).requires_grad_()
    plain = specimen.observe(batch)
    assert not plain.output.requires_grad
    assert not feature(plain, "blocks.0.attn", "after").raw.requires_grad
    seen = specimen.observe(batch, ("after", "attention"), grad=True)
    stream = feature(seen, "blocks.0.attn", "after").raw
    weights = seen["blocks.1.attn"].attention
    assert weights is not None
    wanted = torch.autograd.grad(seen.output.sum(), (stream, batch), retain_graph=True)
    assert all(g.abs().max() > 0 for g in wanted)
    assert torch.autograd.grad(weights.values[..., 0].sum(), batch)[0].abs().max() > 0


def test_observing_twice_gives_the_same_and_changes_nothing() -> None:
    _, specimen = opened("swin")
    batch = images(specimen)
    with torch.no_grad():
        alone = specimen(batch)
    first = specimen.observe(batch, ("before", "branch", "after", "attention"))
    second = specimen.observe(batch, ("before", "branch", "after", "attention"))
    assert torch.equal(first.output, alone)
    assert torch.equal(second.output, alone)
    for unit in first:
        for site in ("before", "branch", "after"):
            assert torch.equal(feature(first, unit, site).raw, feature(second, unit, site).raw)
    for batch_size in (1, 3):
        features = specimen.observe(images(specimen, batch_size))
        after = feature(features, "layers.0.blocks.1.attn", "after")
        assert after.map.shape == (batch_size, 16, 14, 14)


def test_observing_works_again_after_a_consumer_raised() -> None:
    _, specimen = opened("vit")

    def refuse(unit: Unit, sites: Sites) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        specimen.observe(images(specimen), each=refuse)
    assert len(specimen.observe(images(specimen))) == len(specimen.units)


def test_a_consumer_may_observe_the_same_specimen() -> None:
    """A second pass from within the first, at the same sites, as a nested analysis would make."""
    _, specimen = opened("vit")
    batch = images(specimen)
    order: list[str] = []

    def outer(unit: Unit, sites: Sites) -> None:
        order.append(unit.name)
        if unit.index == 1:
            specimen.observe(batch, each=lambda unit, sites: None)

    specimen.observe(batch, each=outer)
    assert order == [unit.name for unit in specimen.units]


def test_unknown_sites_and_units() -> None:
    _, specimen = opened("vit")
    with pytest.raises(UnknownName, match=r"no site 'atention'.*attention"):
        specimen.observe(images(specimen), ["atention"])  # type: ignore[list-item]
    with pytest.raises(UnknownName, match=r"no unit 'blocks\.0\.atn'.*blocks\.0\.attn"):
        specimen.observe(images(specimen), units="blocks.0.atn")
    with pytest.raises(KeyError, match="nowhere"):
        _ = specimen.observe(images(specimen), units="head")["nowhere"]


def test_a_module_used_twice_gives_two_units_with_their_own_streams() -> None:
    """A module used twice gives two units, each with its own stream."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = part(Transformer(), "stem"), Block()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(self.block(self.stem(x))).mean(1)

    model = Twice()
    specimen = open_toy(model)
    attention = [unit.name for unit in specimen.units if unit.kind == "attention"]
    assert attention == ["block.attn", "block.attn#2"]
    seen = specimen.observe(pictures())
    with torch.no_grad():
        first = part(model, "stem")(pictures())
        same(feature(seen, "block.attn", "before").tokens, first)
        same(feature(seen, "block.attn#2", "before").tokens, model.block(first))
        once = first + model.block.mlp(model.block.norm2(first))
        same(specimen.without("block.attn")(pictures()), model.block(once).mean(1))
