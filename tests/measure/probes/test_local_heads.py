"""Groups of heads against early convolutions, by the book on outputs of heads computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from measure.probes.test_alignment import cka_by_the_book
from specimen.toys import (
    WIDTH,
    Attention,
    Block,
    Convolutional,
    Residual,
    Transformer,
    part,
    settled,
)
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.measure.probes import local_heads
from vitreous.measure.probes.local_heads import LocalHeads, early_units, window_cka
from vitreous.measure.subject import subjects


class Two(nn.Module):
    """Attention of two heads: the first looks everywhere alike, the second at its own place
    only."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.near = nn.Parameter(
            torch.stack([torch.zeros(16, 16), 20 * torch.eye(16)])
        )  # the second head is local

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.value(tokens).unflatten(-1, (2, -1)).transpose(1, 2)
        query = value[..., :1] * 0
        mixed = F.scaled_dot_product_attention(query, query, value, attn_mask=self.near)
        found: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return found


def vit() -> nn.Module:
    torch.manual_seed(5)
    return settled(Transformer(Block(Two()), Block()))


def resnet() -> nn.Module:
    torch.manual_seed(6)
    wide = 2 * WIDTH
    blocks = [
        *(Residual() for _ in range(4)),
        Residual(WIDTH, wide, 2),
        *(Residual(wide, wide) for _ in range(2)),
    ]
    return settled(Convolutional(*blocks))


def inspect(models: dict[str, nn.Module], count: int = 24, **options: Any) -> Inspection:
    how = {name: options.pop(name) for name in ("shard", "batch") if name in options}
    return vitreous.inspect(models, noise(count), {"local_heads": options}, image=16, **how)


def test_equals_the_definition_with_the_local_head_first() -> None:
    models, data = {"vit": vit(), "resnet": resnet()}, noise(24)
    table = inspect(models)["local_heads"].table
    assert list(table["heads"].unique()) == ["1", "0"]
    assert table["distance"].is_monotonic_increasing
    near, far = table["distance"].unique()
    assert near < 0.3 * far
    assert list(table["other_unit"].unique()) == [
        "blocks.0",
        "blocks.1",
        "blocks.2",
        "blocks.4",
        "blocks.5",
    ]
    model, other = models["vit"], models["resnet"]
    with torch.no_grad():
        block: Any = part(model, "blocks.0")
        images = subjects(model, image=16)[0].prepare(data.images)
        tokens = block.norm1(part(model, "stem")(images))
        value = block.attn.value(tokens).unflatten(-1, (2, -1))
        weights = block.attn.near.softmax(-1)
        outputs = torch.einsum("hqk,bkhd->hbqd", weights, value)
        early = part(other, "blocks.0")(part(other, "stem")(images))
    for head in (0, 1):
        row = table[(table["heads"] == str(head)) & (table["other_unit"] == "blocks.0")]
        assert row["value"].item() == pytest.approx(
            cka_by_the_book(outputs[head].flatten(1), early.flatten(1)), abs=1e-5
        )
        assert row["low"].item() < row["value"].item() < row["high"].item()


def test_a_window_is_the_concatenation_of_its_heads() -> None:
    generator = np.random.default_rng(0)
    heads, other = (generator.standard_normal((12, count, 5)) for count in (3, 2))

    def gram(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(0)
        found: np.ndarray = (centred @ centred.T).ravel()
        return found

    one, two = (np.stack([gram(x[:, i]) for i in range(x.shape[1])]) for x in (heads, other))
    found = window_cka(
        (one @ two.T)[None], (one @ one.T)[None], (two**2).sum(1)[None], [np.array([0, 2])]
    )[0, 0, 1]
    both, unit = gram(np.concatenate([heads[:, 0], heads[:, 2]], 1)), gram(other[:, 1])
    assert found == pytest.approx(both @ unit / np.sqrt((both @ both) * (unit @ unit)))


def test_windows_by_size() -> None:
    """As many windows as fit, and at least two."""
    models = {"vit": settled(Transformer(Block(Attention()))), "resnet": resnet()}
    assert inspect(models, window=1)["local_heads"].table["window"].nunique() == 2
    with pytest.raises(VitreousError, match=r"has 2 heads; it takes 3"):
        inspect(models, window=2)["local_heads"]


def test_parts_of_a_shard_and_several_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"vit": vit(), "resnet": resnet()}
    whole, parts = (inspect(models, batch=batch)["local_heads"].table for batch in (24, 7))
    for column in ("value", "distance", "low", "high"):
        np.testing.assert_allclose(whole[column], parts[column], atol=1e-5)
    monkeypatch.setattr(local_heads, "MINIBATCH", 12)
    once, *others = (
        inspect(models, 27, shard=shard)["local_heads"].table for shard in (12, 5, 24, 900)
    )
    assert (once["n"] == 24).all()
    for table in others:
        np.testing.assert_allclose(
            table[["value", "low", "high"]], once[["value", "low", "high"]], atol=1e-5
        )
    assert np.abs(once["value"] - whole["value"]).max() > 1e-4
    inspect(models)["local_heads"].chart()


def test_early_units_are_of_the_first_two_stages() -> None:
    (net,) = subjects(resnet(), image=16)
    assert [unit.name for unit in early_units(net)] == [
        "blocks.0",
        "blocks.1",
        "blocks.2",
        "blocks.4",
        "blocks.5",
    ]
    (transformer,) = subjects(vit(), image=16)
    assert early_units(transformer) == ()


def test_missing_kinds_of_models_are_reported() -> None:
    alone = inspect({"vit": vit()}).left_out["local_heads"]
    assert alone == {
        "vit": "It takes a convolutional model without attention too, and none is inspected."
    }
    nets = inspect({"resnet": resnet()}).left_out["local_heads"]
    assert nets == {
        "resnet": "It takes a model with several heads of attention too, and none is inspected."
    }
    flat = settled(nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU(), nn.Linear(8, 5)))
    three = inspect({"vit": vit(), "resnet": resnet(), "flat": flat})["local_heads"].about[
        "left_out"
    ]
    assert three == {"flat": "It has neither attention nor convolutions to compare."}
    few = inspect({"vit": vit(), "resnet": resnet()}, 3).left_out["local_heads"]
    assert "needs at least 4 images" in few["vit"]
    with pytest.raises(VitreousError, match="at least one"):
        LocalHeads(window=0)
