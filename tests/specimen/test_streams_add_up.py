"""Skip and branches add up to `after`, and `out` is what the block hands on."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from specimen import zoo
from specimen.toys import WIDTH, Mlp, Patches, pictures, settled
from vitreous.specimen.observe import Observation
from vitreous.specimen.specimen import Specimen

NANO = [f"nano:{name}" for name in ("vit", "convit", "alternet", "resnet", "swin")]


def at(seen: Observation, unit: str, site: str) -> Tensor:
    """The tensor that was seen at a site of a unit."""
    feature = getattr(seen[unit], site)
    assert feature is not None
    return cast(Tensor, feature.raw)


def gap(specimen: Specimen, images: Tensor) -> tuple[int, float]:
    """Number of residual units and the largest relative difference between their sums and `after`.

    Units that run in parallel share `skip` and `after`; their branches add up together.
    """
    seen = specimen.observe(images, ("skip", "branch", "after"))
    together = defaultdict(list)
    for unit in specimen.units:
        sites = seen[unit.name]
        assert (sites.skip is not None) == unit.skip
        if unit.skip:
            together[at(seen, unit.name, "after").data_ptr()].append(unit.name)
    worst = 0.0
    for group in together.values():
        branches = sum(at(seen, name, "branch").double() for name in group)
        after = at(seen, group[0], "after").double()
        error = (
            at(seen, group[0], "skip").double() + branches - after
        ).abs().max() / after.abs().max()
        worst = max(worst, float(error.detach()))
    return sum(unit.skip for unit in specimen.units), worst


@pytest.mark.parametrize("name", [*zoo.MODELS, *NANO])
def test_skip_and_branch_add_up(name: str) -> None:
    specimen = vitreous.open(name) if name in NANO else zoo.opened(name)[1]
    count, worst = gap(specimen, zoo.images(specimen))
    assert count > 0
    assert worst < 1e-6  # one rounding of a float32 sum is 6e-8; sums of three have two


def modules_output(model: nn.Module, name: str, images: Tensor) -> Tensor:
    """What the model's own module returns."""
    kept: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(
        lambda _, __, output: kept.append(output)
    )
    with torch.no_grad():
        model(images)
    handle.remove()
    return kept[-1]


PREACTIVATION = {
    "resnetv2": lambda: timm.create_model("resnetv2_50", layers=(2, 1, 1, 1), num_classes=10),
    "xception": lambda: timm.create_model("legacy_xception", num_classes=10),
    "nfnet": lambda: timm.create_model("test_nfnet", num_classes=10),
}


@pytest.mark.parametrize("name", PREACTIVATION)
def test_the_next_blocks_activation_does_not_count(name: str) -> None:
    """What each block's module returns is what the unit hands on, at the ends of stages too."""
    model = settled(PREACTIVATION[name](), 64)
    specimen = vitreous.open(model, image=64)
    images = pictures(2, 64)
    seen = specimen.observe(images, ("after", "out"))
    for unit in specimen.units:
        if unit.skip:
            block = _block(model, unit.name)
            assert torch.allclose(
                at(seen, unit.name, "out"), modules_output(model, block, images), atol=1e-5
            )
            assert seen[unit.name].out is seen[unit.name].after


def _block(model: nn.Module, name: str) -> str:
    """The block of a unit: the unit's module, or the one around it where that holds the sum."""
    kind = type(model.get_submodule(name)).__name__
    return name if "Block" in kind or "Bottle" in kind else name.rpartition(".")[0]


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "tv resnet", "hf resnet"])
def test_the_blocks_own_activation_counts(name: str) -> None:
    model, specimen = zoo.opened(name)
    images = zoo.images(specimen)
    seen = specimen.observe(images, ("after", "out"))
    for unit in specimen.units:
        if unit.skip:
            after, out = at(seen, unit.name, "after"), at(seen, unit.name, "out")
            assert torch.equal(out, after.relu())
            assert float(after.min()) < 0
            block = unit.name.removesuffix(".layer")
            assert torch.allclose(out, modules_output(model, block, images), atol=1e-5)


class Chain(nn.Module):
    """A model whose forward pass is one function: three blocks, `step` says how each of them
    ends."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.stem, self.mlps = Patches(), nn.ModuleList(Mlp() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        for number, mlp in enumerate(self.mlps):
            tokens = self.step(tokens, mlp, self.norms[number])
        return self.head(self.norm(tokens).mean(1))

    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        raise NotImplementedError


class PreNorm(Chain):
    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        return tokens + mlp(norm(tokens))


class PostNorm(Chain):
    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        return norm(tokens + mlp(tokens))


class PostActivation(Chain):
    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        return F.relu(tokens + mlp(tokens))


class WrittenOut(Chain):
    """SiLU and RMS norm by hand."""

    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        total = tokens + mlp(tokens)
        total = total * total.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        return total * total.sigmoid()


class Scaled(Chain):
    def step(self, tokens: Tensor, mlp: nn.Module, norm: nn.Module) -> Tensor:
        return (tokens + mlp(tokens)) / 2**0.5


@pytest.mark.parametrize("kind", [PreNorm, PostNorm, PostActivation, WrittenOut, Scaled])
def test_a_model_that_is_one_function(kind: type[Chain]) -> None:
    """The final norm is nobody's; what ends the blocks counts for the last one as well."""
    model: Any = settled(kind())
    images = pictures()
    seen = vitreous.open(model, image=16).observe(images, ("before", "branch", "after", "out"))
    with torch.no_grad():
        tokens = model.stem(images)
        for number, mlp in enumerate(model.mlps):
            name = f"mlps.{number}"
            assert torch.allclose(
                at(seen, name, "after"),
                at(seen, name, "before") + at(seen, name, "branch"),
                atol=1e-6,
            )
            tokens = model.step(tokens, mlp, model.norms[number])
            assert torch.allclose(at(seen, name, "out"), tokens, atol=1e-5)


class PreActivation(nn.Module):
    """Pre-activation ResNet v2 in one function, or with its blocks as modules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, 1, 1)
        widths = [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, 2 * WIDTH)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(a) for a, _ in widths)
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, b // a, 1), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1))
            for a, b in widths
        )
        self.shortcut = nn.Conv2d(WIDTH, 2 * WIDTH, 1, 2)
        self.norm, self.head = nn.BatchNorm2d(2 * WIDTH), nn.Linear(2 * WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.sums(images)[-1])).mean((2, 3)))

    def sums(self, images: Tensor) -> list[Tensor]:
        value, found = self.stem(images), []
        for number, (norm, conv) in enumerate(zip(self.norms, self.convs, strict=True)):
            inner = F.relu(norm(value))
            value = (self.shortcut(inner) if number == 2 else value) + conv(inner)
            found.append(value)
        return found


def test_preactivation_in_one_function() -> None:
    model: Any = settled(PreActivation())
    images = pictures()
    specimen = vitreous.open(model, image=16)
    seen = specimen.observe(images, ("after", "out"))
    with torch.no_grad():
        for number, expected in enumerate(model.sums(images)):
            assert torch.allclose(at(seen, f"convs.{number}", "out"), expected, atol=1e-5)
    assert gap(specimen, images)[1] < 1e-6


class Wrapped(nn.Module):
    """A residual wrapper, and the norm after it as the next module of a sequence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.inner(tokens)


def test_a_norm_beside_a_residual_wrapper() -> None:
    blocks = [nn.Sequential(Wrapped(Mlp()), nn.LayerNorm(WIDTH)) for _ in range(3)]
    model = nn.Sequential(Patches(), *blocks, nn.Flatten(), nn.Linear(16 * WIDTH, 5))
    settled(model)
    images = pictures()
    seen = vitreous.open(model, image=16).observe(images, ("out",))
    for number in (1, 2, 3):
        found = at(seen, f"{number}.0.inner", "out")
        assert torch.allclose(found, modules_output(model, f"{number}", images), atol=1e-5)


class Add(nn.Module):
    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class AddModule(nn.Module):
    """The sum is a module of its own, as quantisation wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.add, self.act = Mlp(), Add(), nn.ReLU()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.act(self.add(tokens, self.mlp(tokens)))


def test_a_sum_that_is_a_module() -> None:
    model = settled(nn.Sequential(Patches(), AddModule(), nn.Flatten(), nn.Linear(16 * WIDTH, 5)))
    images = pictures()
    seen = vitreous.open(model, image=16).observe(images, ("after", "out"))
    assert torch.allclose(at(seen, "1.mlp", "out"), modules_output(model, "1", images), atol=1e-5)
    assert torch.equal(at(seen, "1.mlp", "out"), at(seen, "1.mlp", "after").relu())


class Sum(nn.Module):
    """One block, its sum written as the test says."""

    def __init__(self, add: Any) -> None:
        super().__init__()
        self.stem, self.norm, self.mlp, self.other = Patches(), nn.LayerNorm(WIDTH), Mlp(), Mlp()
        self.add, self.head = add, nn.Linear(WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        normed = self.norm(tokens)
        return self.head(self.add(tokens, self.mlp(normed), self.other(normed)).mean(1))


def in_place(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x += y
    return x


SUMS = {
    "alpha": (lambda x, y, z: torch.add(x, y, alpha=0.5), 1),
    "alpha 2": (lambda x, y, z: torch.add(x, y, alpha=2), 1),
    "alpha on the skip": (lambda x, y, z: torch.add(y, x, alpha=0.5), 1),
    "minus": (lambda x, y, z: x - y, 1),
    "minus alpha": (lambda x, y, z: torch.sub(x, y, alpha=3), 1),
    "from the branch": (lambda x, y, z: y - x, 1),
    "rsub": (lambda x, y, z: torch.rsub(x, y), 1),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, torch.ones(WIDTH), value=0.3), 1),
    "add_": (lambda x, y, z: x.add_(y), 1),
    "sub_": (lambda x, y, z: x.sub_(y, alpha=0.1), 1),
    "+=": (in_place, 1),
    "three": (lambda x, y, z: x + y + z, 2),
    "three, minus": (lambda x, y, z: x - y - z, 2),
    "branches first": (lambda x, y, z: (y + z) + x, 2),
    "python's sum": (lambda x, y, z: sum([x, y, z]), 2),
    "doubled skip": (lambda x, y, z: x + x + y, 0),
    "stack": (lambda x, y, z: torch.stack([x, y, z]).sum(0), 0),
    "lerp": (lambda x, y, z: torch.lerp(x, y, 0.3), 0),
    "broadcast": (lambda x, y, z: x + y.mean(1, keepdim=True), 0),
    "mean of both": (lambda x, y, z: (x + y) / 2, 1),
    "drop path": (lambda x, y, z: x + F.dropout(y, 0.5, training=False), 1),
}


@pytest.mark.parametrize("name", SUMS)
def test_every_way_to_write_a_sum(name: str) -> None:
    """A unit either adds up or is not called residual."""
    add, expected = SUMS[name]
    model = settled(Sum(add))
    specimen = vitreous.open(model, image=16)
    count, worst = gap(specimen, pictures())
    assert count == expected
    assert worst < 1e-6
    assert torch.allclose(specimen(pictures()), model(pictures()), atol=1e-6)
    for unit in specimen.units:
        if unit.skip:  # the lesion takes out what the branch adds, in whatever way it is added
            assert not torch.allclose(
                specimen.without(unit.name)(pictures()), model(pictures()), atol=1e-4
            )


def test_a_lesion_of_a_difference() -> None:
    model: Any = settled(Sum(SUMS["minus alpha"][0]))
    tokens = model.stem(pictures())
    found = vitreous.open(model, image=16).without("mlp")(pictures())
    assert torch.allclose(found, model.head(tokens.mean(1)), atol=1e-6)


def test_stem_of_a_preactivation_network() -> None:
    """The first block's norm and activation are not the stem's, also where its skip is a projection
    of them."""
    model = settled(PREACTIVATION["resnetv2"](), 64)
    images = pictures(2, 64)
    specimen = vitreous.open(model, image=64)
    name = specimen.units[0].name
    sites = specimen.observe(images, ("branch", "after", "out"), units=name)[name]
    for feature in (sites.branch, sites.after, sites.out):
        assert feature is not None
        assert torch.allclose(feature.raw, modules_output(model, name, images), atol=1e-5)
