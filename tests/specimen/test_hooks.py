"""Units named by hand, for models whose graph cannot be read."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import vitreous
from specimen.toys import WIDTH, Choosy, Residual, pictures, settled
from vitreous.errors import UnknownName, VitreousError
from vitreous.specimen.specimen import Specimen

UNITS = ["stem", "body", "head"]


@pytest.fixture
def model() -> Choosy:
    torch.manual_seed(5)
    return Choosy().eval()


@pytest.fixture
def specimen(model: Choosy) -> Specimen:
    return vitreous.open(model, image=16, units=UNITS)


def surgery(model: Choosy, **parts: nn.Module) -> Tensor:
    other = copy.deepcopy(model)
    for name, part in parts.items():
        setattr(other, name, part)
    with torch.no_grad():
        return other(pictures())


class Zeros(nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, value: Tensor) -> Tensor:
        return torch.zeros(len(value), *self.shape)


def test_the_named_modules_are_the_units(specimen: Specimen, model: Choosy) -> None:
    assert [(u.name, u.kind, u.grid, u.channels, u.skip) for u in specimen.units] == [
        ("stem", "conv", (8, 8), WIDTH, False),
        ("body", "conv", (8, 8), WIDTH, False),
        ("head", "mlp", None, None, False),
    ]
    with torch.no_grad():
        assert torch.equal(specimen(pictures()), model(pictures()))
    assert specimen.anatomy.parameters == sum(p.numel() for p in model.parameters())
    kinds = vitreous.open(model, image=16, units={"head": "head", "stem": "stem"})
    assert [(u.name, u.kind) for u in kinds.units] == [
        ("stem", "stem"),
        ("head", "head"),
    ]  # in the order they run


def test_observing_by_hooks(specimen: Specimen, model: Choosy) -> None:
    seen = specimen.observe(pictures())
    with torch.no_grad():
        stem = model.stem(pictures())
        body = model.body(stem.relu())
    torch.testing.assert_close(seen["stem"].after.raw, stem)  # type: ignore[union-attr]
    assert stem.min() < 0, "an activation in place must not have overwritten it"
    torch.testing.assert_close(seen["body"].before.raw, stem.relu())  # type: ignore[union-attr]
    torch.testing.assert_close(seen["body"].branch.map, body)  # type: ignore[union-attr]
    torch.testing.assert_close(seen["head"].before.tokens[:, 0], body.mean((2, 3)))  # type: ignore[union-attr]
    with torch.no_grad():
        assert torch.equal(seen.output, model(pictures()))
    order: list[str] = []
    specimen.observe(
        pictures(), ["after"], ["head", "stem"], each=lambda unit, sites: order.append(unit.name)
    )
    assert order == ["stem", "head"]
    assert specimen.observe(pictures(), ["skip"])["body"].skip is None
    with pytest.raises(UnknownName, match="no site 'befor'"):
        specimen.observe(pictures(), ["befor"])  # type: ignore[list-item]


def test_in_place_modules_do_not_overwrite_observed_tensors() -> None:
    class Sloppy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Conv2d(3, WIDTH, 3, 1, 1), Residual()

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            x += self.block(x)
            return x.relu_().mean((2, 3))

    model = settled(Sloppy())
    seen = vitreous.open(model, image=16, units=["stem", "block", "block.bn2"]).observe(pictures())
    with torch.no_grad():
        stem = model.get_submodule("stem")(pictures())
        branch = model.get_submodule("block")(stem)
    torch.testing.assert_close(seen["stem"].after.raw, stem)  # type: ignore[union-attr]
    torch.testing.assert_close(seen["block"].before.raw, stem)  # type: ignore[union-attr]
    torch.testing.assert_close(seen["block"].branch.raw, branch)  # type: ignore[union-attr]
    assert seen["block.bn2"].branch.raw.min() < 0  # type: ignore[union-attr]


def test_lesions_and_replaced_branches_by_hand(specimen: Specimen, model: Choosy) -> None:
    with torch.no_grad():
        torch.testing.assert_close(
            specimen.without("body")(pictures()), surgery(model, body=nn.Identity())
        )
        torch.testing.assert_close(
            specimen.without("stem")(pictures()), surgery(model, stem=Zeros(WIDTH, 8, 8))
        )
        torch.testing.assert_close(specimen.without("body", "head")(pictures()), torch.zeros(2, 5))
        both = specimen.without("body").without("stem").without("body")
        torch.testing.assert_close(
            both(pictures()), surgery(model, body=nn.Identity(), stem=Zeros(WIDTH, 8, 8))
        )
        replaced = specimen.with_branch("body", torch.tanh)
        torch.testing.assert_close(replaced(pictures()), surgery(model, body=nn.Tanh()))
        doubled = specimen.with_branch("body", lambda before, branch: branch - before)
        wanted = specimen.observe(pictures())["body"]
        seen = doubled.observe(pictures())["body"]
        torch.testing.assert_close(seen.after.raw, wanted.after.raw - wanted.before.raw)  # type: ignore[union-attr]
        mine = nn.Conv2d(WIDTH, WIDTH, 1)
        assert mine.weight in set(specimen.with_branch("body", mine).parameters())
        assert torch.equal(specimen(pictures()), model(pictures()))
    assert replaced.edits == ("with branch body",)


def test_a_module_that_returns_several_things() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return self.conv(x), 7

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def forward(self, x: Tensor) -> Tensor:
            value, factor = self.pair(x)
            return value * factor if value.sum() < 1e9 else value

    specimen = vitreous.open(Model(), image=16, units=["pair", "pair.conv"])
    torch.testing.assert_close(specimen.without("pair")(pictures()), 7 * pictures())


def test_gradients_precision_and_copies(specimen: Specimen, model: Choosy) -> None:
    specimen(pictures()).sum().backward()
    assert model.stem.weight.grad is not None
    twin = copy.deepcopy(specimen)
    with torch.no_grad():
        next(iter(twin.parameters())).zero_()
        assert torch.equal(specimen(pictures()), model(pictures()))
    mine = nn.Conv2d(WIDTH, WIDTH, 1)
    wide = specimen.with_branch("body", mine).to(torch.float64)
    assert wide(pictures().double()).dtype == torch.float64
    assert {p.dtype for p in [*model.parameters(), *mine.parameters()]} == {torch.float32}


def test_edits_that_need_a_graph_are_refused(specimen: Specimen) -> None:
    with pytest.raises(VitreousError, match="named by hand have no known skip"):
        specimen.without_skip("body")
    with pytest.raises(VitreousError, match="named by hand have no known attention"):
        specimen.with_attention("body", "uniform")


def test_wrong_module_names_are_refused(model: Choosy) -> None:
    with pytest.raises(UnknownName, match=r"no module 'boddy'.*body"):
        vitreous.open(model, image=16, units=["boddy"])
    with pytest.raises(UnknownName, match=r"no kind 'convolution'.*conv"):
        vitreous.open(model, image=16, units={"body": "convolution"})
    model.spare = nn.Linear(1, 1)
    with pytest.raises(VitreousError, match=r"'spare' did not run.*name modules that do"):
        vitreous.open(model, image=16, units=["body", "spare"])


def test_it_compiles(specimen: Specimen) -> None:
    edited = specimen.without("body")
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(
            torch.compile(edited, backend="eager")(pictures()), edited(pictures())
        )


class Packed(nn.Module):
    """Takes images one after the other, so that no graph fits all numbers of them."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, 4)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()) for _ in range(depth)
        )
        self.unused = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()) for _ in range(2))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 5))

    def forward(self, images: Tensor) -> Tensor:
        features = torch.cat([self.stem(image[None]) for image in images])
        for layer in self.layers:
            features = features + layer(features)
        return self.head(features.mean((2, 3)))


def test_blocks_are_found_where_the_graph_cannot_be_read() -> None:
    model = Packed().eval()
    with pytest.raises(VitreousError, match="units='blocks'"):
        vitreous.open(model, image=16)
    specimen = vitreous.open(model, image=16, units="blocks")
    assert [(u.name, u.kind) for u in specimen.units] == [(f"layers.{i}", "conv") for i in range(3)]
    images = torch.randn(5, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(specimen(images), model(images))
        assert not torch.allclose(specimen.without("layers.1")(images), model(images))


def test_lists_of_lists() -> None:
    class Nested(Packed):
        def __init__(self) -> None:
            super().__init__()
            pairs = [
                [nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1)), nn.Sequential(nn.ReLU())]
                for _ in range(2)
            ]
            self.layers = nn.ModuleList(nn.ModuleList(pair) for pair in pairs)

        def forward(self, images: Tensor) -> Tensor:
            features = torch.cat([self.stem(image[None]) for image in images])
            for pair in self.layers:
                for part in pair.children():
                    features = part(features)
            return self.head(features.mean((2, 3)))

    specimen = vitreous.open(Nested().eval(), image=16, units="blocks")
    assert [unit.name for unit in specimen.units] == [
        f"layers.{i}.{j}" for i in range(2) for j in range(2)
    ]


def test_missing_blocks_and_unknown_words_are_refused() -> None:
    with pytest.raises(
        VitreousError, match=r"Packed repeats no block that runs on images; name the modules"
    ):
        vitreous.open(Packed(depth=1).eval(), image=16, units="blocks")
    with pytest.raises(
        VitreousError, match=r"units takes paths of modules or 'blocks', not 'head'; .*\['head'\]"
    ):
        vitreous.open(Packed().eval(), image=16, units="head")
