"""Means over dropped passes, against all masks written out; and which parts of which models draw
numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

import vitreous
from measure.analyses.shifted import Linear, answered, chosen, levels, noise, shapes
from specimen import zoo
from vitreous.errors import VitreousError
from vitreous.measure import engine
from vitreous.measure.analyses.mc_dropout import MEAN, USUAL, McDropout
from vitreous.measure.robustness.dropout import dropout_sites
from vitreous.measure.subject import subjects

QUICK: dict[str, Any] = {"passes": (1, 2), "rate": 0.1}
LITTLE = 1e-12
"""A rate at which nothing is ever dropped, and the passes are all there."""


class Dropping(Linear):
    """Drops the three channels' means of an image, which makes eight masks."""

    def __init__(self, rate: float) -> None:
        super().__init__(4, 1)
        self.norm = nn.BatchNorm1d(3).double()
        self.norm.running_mean = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
        self.drop = nn.Dropout(rate)
        self.image_size = 8

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.drop(self.norm(images.mean((2, 3)))))
        return scores


def exact(model: Dropping, images: Tensor, rate: float) -> Tensor:
    """The mean over all masks, each as probable as it is."""
    seen = model.norm.eval()(levels(images).mean((2, 3)))
    total = torch.zeros(len(images), 4, dtype=torch.float64)
    for mask in product((0.0, 1.0), repeat=3):
        chance = np.prod([1 - rate if kept else rate for kept in mask])
        total += chance * model.head(
            seen * torch.tensor(mask, dtype=torch.float64) / (1 - rate)
        ).softmax(1)
    return total


@torch.no_grad()
def test_many_passes_converge_to_the_mean_over_all_masks() -> None:
    model = Dropping(0.4).eval()
    data = chosen(answered(model))
    table = McDropout((1, 800))(model, data).table
    one, _, mean, usual = table.to_dict("records")
    wanted = exact(model, data.images, 0.4)
    nll = -wanted.gather(1, data.labels[:, None]).log().mean()
    right = (wanted.argmax(1) == data.labels).double().mean()
    assert (mean["prediction"], usual["prediction"]) == (MEAN, USUAL)
    assert mean["nll"] == pytest.approx(float(nll), rel=0.02)
    assert mean["value"] == pytest.approx(float(right), abs=0.03)
    logs = model(levels(data.images)).log_softmax(1)
    assert usual["nll"] == pytest.approx(
        -float(logs.gather(1, data.labels[:, None]).mean()), rel=1e-6
    )
    assert mean["nll_change"] == pytest.approx(mean["nll"] - usual["nll"])
    assert one["nll"] > mean["nll"]
    assert list(table["overall"]) == [False, False, True, False]


def test_the_first_passes_of_many_are_those_of_few_and_belong_to_images() -> None:
    model = Dropping(0.4)
    data = chosen(answered(model))
    few, many = (McDropout(passes)(model, data).table for passes in ((1, 16), (1, 3, 16, 40)))
    both = many[many["passes"].isin((1, 16))]
    assert few["nll"].tolist() == pytest.approx(both["nll"].tolist(), rel=1e-9)
    other = McDropout((1, 16))(model, data, seed=1, batch=16).table
    assert other["nll"][2] != pytest.approx(few["nll"][2], rel=1e-6)


FAMILIES: dict[str, tuple[Callable[[float], nn.Module], int, set[str]]] = {
    "timm vit": (
        lambda p: timm.create_model(
            "vit_tiny_patch16_224", depth=2, img_size=64, num_classes=10, attn_drop_rate=p,
            drop_path_rate=p
        ), 64, {"blocks.0.attn", "blocks.1.attn", "blocks.1.drop_path1", "blocks.1.drop_path2"},
    ),
    "timm swin": (
        lambda p: timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=56, depths=(1, 1), embed_dim=16,
            num_heads=(2, 4), num_classes=10, drop_path_rate=p,
        ), 56, {"layers.1.blocks.0.drop_path1", "layers.1.blocks.0.drop_path2"},
    ),
    "timm convnext": (
        lambda p: timm.create_model(
            "convnext_atto", depths=(1, 1, 1, 1), num_classes=10, drop_rate=p
        ), 64, {"head.drop"},
    ),
    "timm resnet": (lambda p: timm.create_model("resnet18", num_classes=10, drop_rate=p), 32, {""}),
    "torchvision vit": (
        lambda p: torchvision.models.VisionTransformer(
            32, 8, 1, 2, 32, 64, attention_dropout=p, num_classes=10
        ), 32, {"encoder.layers.encoder_layer_0.self_attention"},
    ),
    "torchvision densenet": (
        lambda p: torchvision.models.DenseNet(8, (1, 1), 16, drop_rate=p, num_classes=10), 32,
        {"features.denseblock1.denselayer1", "features.denseblock2.denselayer1"},
    ),
    "hugging face vit": (
        lambda p: zoo.hugging_face(
            "ViTForImageClassification", image_size=32, patch_size=8, num_labels=10,
            attention_probs_dropout_prob=p
        ), 32, {"vit.layers.0.attention", "vit.layers.1.attention"},
    ),
    "alternet": (
        lambda p: vitreous.build("alternet_nano", image=32, classes=10, dropout=p), 32, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_sites_are_found_and_all_else_stays_in_evaluation_mode(family: str) -> None:
    make, image, wanted = FAMILIES[family]
    torch.manual_seed(0)
    model = make(0.5).train()
    for weight in model.parameters():  # heads of zeros would hide what happens before them
        nn.init.normal_(weight, weight.mean().item(), 0.05) if not weight.any() else None
    wanted = wanted or {
        path for path, module in model.named_modules() if isinstance(module, nn.Dropout)
    }
    assert set(dropout_sites(subjects({"model": model}, image=image)[0])) == wanted
    data = shapes(3)
    table = McDropout((2,))({"model": model}, data, image=image).table
    assert table["nll_change"][0] != 0
    for drops in model.modules():
        for rate in ("p", "drop_prob", "drop_rate", "dropout", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(drops, rate, None), float) and getattr(drops, rate) > 0:
                setattr(drops, rate, LITTLE)
    little = McDropout((2,))({"model": model}, data, image=image)
    assert set(little.about["dropout"]["model"]) == wanted
    assert little.table["nll_change"][0] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("stopped", [False, True], ids=["to the end", "interrupted"])
def test_the_model_and_the_random_numbers_of_others_are_untouched(
    stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contracts.test_analyses import state, untouched

    model = Dropping(0.4).train()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    model.drop.eval()
    before, one = state(model), engine._compute_piece
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    if stopped:

        def during(work: Any, piece: str, bench: Any) -> Any:
            one(work, piece, bench)
            raise KeyboardInterrupt

        monkeypatch.setattr(engine, "_compute_piece", during)
        with pytest.raises(KeyboardInterrupt):
            McDropout((2,))(model, noise(6))
    else:
        McDropout((2,))(model, noise(6))
    assert torch.equal(torch.rand(3), wanted)
    untouched(model, before)


def test_pieces_of_another_rate_are_not_reused(tmp_path: Path) -> None:
    low, high = Dropping(0.1), Dropping(0.5)
    high.load_state_dict(low.state_dict())
    first = McDropout((4,))(low, noise(), keep=tmp_path).table
    again = McDropout((4,))(high, noise(), keep=tmp_path).table
    assert again["nll"].tolist() == McDropout((4,))(high, noise()).table["nll"].tolist()
    assert again["nll"][0] != first["nll"][0]


def test_dropout_on_every_branch_of_a_model_that_has_none() -> None:
    """One pass with a rate so low that nothing is dropped changes nothing; a high one does."""
    specimen, data = vitreous.open("nano:resnet"), shapes(12)
    little, much = (
        McDropout((2,), rate)({"resnet": specimen}, data).table for rate in (LITTLE, 0.5)
    )
    assert little["nll_change"][0] == pytest.approx(0, abs=1e-6)
    assert much["nll_change"][0] > 0.01


def test_bad_input() -> None:
    class Elsewhere(Linear):
        def forward(self, images: Tensor) -> Tensor:
            if self.training:
                raise ValueError("labels are missing")
            return super().forward(images)

    class FromOutside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image_size, self.part = 8, Part()

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.part(images, self.training)
            return scores

    class Part(Linear):
        def forward(self, images: Tensor, drop: bool = False) -> Tensor:
            return super().forward(nn.functional.dropout(images, 0.5, drop))

    def why(model: Any, **options: Any) -> str:
        found = vitreous.analyse({"model": model}, noise(6), {"mc_dropout": options}, image=8)
        return str(found.left_out["mc_dropout"]["model"])

    assert "has no dropout" in why(Linear())
    assert "has no dropout" in why(Dropping(0.0))
    assert "give the model, or set" in why(vitreous.open(Dropping(0.5)))
    assert "no residual branch" in why(Dropping(0.5), rate=0.1)
    assert "does not run in training mode: labels are missing" in why(Elsewhere())
    assert "dropout of its 'part' depends on the mode of another module" in why(
        FromOutside().double()
    )
    found = vitreous.analyse({"model": Dropping(0.5)}, noise(6, classes=0), ["mc_dropout"])
    assert "no labels" in found.left_out["mc_dropout"]["model"]
    for passes in ((), (0, 1), (2, 1), (3, 3)):
        with pytest.raises(VitreousError, match="ascending order"):
            McDropout(passes)
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(VitreousError, match="between 0 and 1"):
            McDropout(rate=rate)
