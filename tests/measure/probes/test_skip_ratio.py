"""Norms and angles by hand, on models whose branches are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from specimen import zoo
from specimen.toys import WIDTH, Block, Convolutional, Patches, Residual, Transformer, part, settled
from vitreous.measure.probes.skip_ratio import ratio_and_cosine
from vitreous.measure.subject import subjects
from vitreous.results import Result


class Times(nn.Module):
    """Adds a multiple of what is there: one of the first token, another of the others."""

    def __init__(self, first: float, others: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([first, *[others] * 16])[:, None])
        self.same = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.eye_(self.same.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.same(tokens) * self.scale


class Plain(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = (
            Patches(cls=True),
            nn.Sequential(*blocks),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.head(self.blocks(self.stem(images))[:, 0])
        return found


def ask(model: nn.Module, batch: int | None = None) -> Result:
    return vitreous.inspect(model, noise(), ["skip_ratio"], batch=batch, image=16)["skip_ratio"]


def test_by_hand() -> None:
    skip = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])
    branch = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0]]])
    ratio, cosine = ratio_and_cosine(skip, branch)
    np.testing.assert_allclose(ratio, [[5.0, 0.5, np.nan, 0.0]])
    np.testing.assert_allclose(cosine, [[0.6, 0.0, np.nan, np.nan]])


def test_against_numpy_in_float64() -> None:
    skip, branch = torch.randn(2, 3, 17, 64) + 100
    ratio, cosine = ratio_and_cosine(skip, branch)
    one, other = skip.double().numpy(), branch.double().numpy()
    norms = np.linalg.norm(one, axis=-1), np.linalg.norm(other, axis=-1)
    np.testing.assert_allclose(ratio, norms[0] / norms[1], rtol=1e-5)
    np.testing.assert_allclose(cosine, (one * other).sum(-1) / (norms[0] * norms[1]), rtol=1e-5)


def test_class_and_spatial_tokens_apart() -> None:
    table = ask(Plain(Times(0.25, -4.0), Times(2.0, 2.0)).eval()).table
    assert table["token"].tolist() == ["class", "spatial"] * 2
    np.testing.assert_allclose(table["value"], [4, 0.25, 0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(table["cosine"], [1, -1, 1, 1], rtol=1e-5)
    assert (table["n"] == 8).all()


def test_a_branch_that_adds_nothing_has_no_ratio() -> None:
    """Infinity would swallow the mean of the tokens; a zero would be a lie."""
    table = ask(Plain(Times(0.0, 0.5)).eval()).table
    assert table["n"].tolist() == [0, 8]
    np.testing.assert_allclose(table["value"], [np.nan, 2.0], rtol=1e-5)


@pytest.mark.parametrize("cls", [False, True])
def test_each_unit_with_its_own_input(cls: bool) -> None:
    model = settled(Transformer(Block(), Block(), cls=cls))
    specimen = vitreous.open(model, image=16)
    (subject,) = subjects(specimen)
    seen = specimen.observe(subject.prepare(noise().images), ("before", "after"))
    table = ask(model).table.query("token == 'spatial'").set_index("unit")
    for unit in specimen.units[1:-1]:
        sites = seen[unit.name]
        assert sites.before is not None
        assert sites.after is not None
        skip, total = (at.raw[:, int(cls) :].double() for at in (sites.before, sites.after))
        expected = skip.norm(dim=-1) / (total - skip).norm(dim=-1)
        assert table.loc[unit.name, "value"] == pytest.approx(expected.mean().item(), rel=1e-4)


def test_positions_of_a_residual_network() -> None:
    """Before the activation that follows the sum, and with the skip as it arrives there."""
    model = settled(Convolutional(Residual(), Residual(WIDTH, 16, 2)))
    (subject,) = subjects(vitreous.open(model, image=16))
    images = subject.prepare(noise().images)
    with torch.no_grad():
        value = model.get_submodule("stem")(images)
        expected = []
        for block in (part(model, "blocks.0"), part(model, "blocks.1")):
            branch = block.bn2(block.conv2(block.act(block.bn1(block.conv1(value)))))
            skip = block.downsample(value)
            expected.append((skip.norm(dim=1) / branch.norm(dim=1)).mean().item())
            value = block(value)
    table = ask(model).table
    assert table["token"].unique().tolist() == ["spatial"]
    np.testing.assert_allclose(table["value"], expected, rtol=1e-4)


def test_size_of_batches_does_not_matter() -> None:
    model = settled(Transformer(Block(), cls=True))
    one, other = (ask(model, batch).table.select_dtypes("number") for batch in (None, 3))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_models_without_skips_have_a_reason() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, 4),
        nn.Conv2d(8, 8, 3, 1, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    found = vitreous.inspect(model.eval(), noise(), ["skip_ratio"], image=16)
    assert list(found.left_out["skip_ratio"].values()) == ["No skip connection runs around it."]


def test_units_of_the_class_token_alone() -> None:
    """CaiT's last blocks carry the class token only: it is no spatial token, and the blocks are not
    left out."""
    result = vitreous.inspect(zoo.opened("cait")[1], noise(2, 64), ["skip_ratio"])["skip_ratio"]
    late = result.table[result.table["unit"].str.startswith("blocks_token_only")]
    assert len(late) == 4
    assert set(late["token"]) == {"class"}
    assert set(result.table["token"]) == {"class", "spatial"}


def test_removed_units_have_no_row() -> None:
    specimen = vitreous.open(settled(Transformer(Block())), image=16)
    found = vitreous.inspect(specimen.without("attention"), noise(2), ["skip_ratio"])
    assert found["skip_ratio"].table["kind"].tolist() == ["mlp"]
    nothing = vitreous.inspect(specimen.without("attention", "mlp"), noise(2), ["skip_ratio"])
    assert list(nothing) == []
    assert list(nothing.left_out) == ["skip_ratio"]
