"""The loss around the trained weights against losses evaluated by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure import engine
from vitreous.measure.analyses import landscape as module
from vitreous.measure.analyses.landscape import Landscape
from vitreous.measure.analysis import Bench
from vitreous.measure.curvature.parameter_points import scores_at
from vitreous.measure.curvature.relief import surface
from vitreous.measure.partial import Interrupted
from vitreous.measure.probe import Setting
from vitreous.measure.selection import choose_images
from vitreous.measure.subject import Subject, subjects
from vitreous.results import Result

QUICK: dict[str, Any] = {"points": 3}
COUNT = 10


class Small(nn.Module):
    """Convolution, batch normalisation, attention, linear: one of each."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.norm = nn.Conv2d(3, 8, 8, 8), nn.BatchNorm2d(8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.qkv, self.hidden, self.head = nn.Linear(8, 24), nn.Linear(8, 12), nn.Linear(12, 10)
        self.norm.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr]
        self.norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.conv(images)).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], 1)
        query, key, value = self.qkv(tokens).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        found: Tensor = self.head(F.gelu(self.hidden(mixed.mean(1))))
        return found


def data(count: int = COUNT) -> Dataset:
    return vitreous.data.load("world:shapes", split="train", size=count)


def opened(model: nn.Module) -> Subject:
    return subjects(model, image=32, device=torch.device("cpu"))[0].for_dataset(data())


def bench(subject: Subject) -> Bench:
    return Bench(Setting((subject,), data()), 128)


def asked(
    model: Any, how: dict[str, Any] | None = None, images: Dataset | None = None, **more: Any
) -> Result:
    return Landscape(**{"points": 5, **(how or {})})(
        model, images or data(), image=32, device="cpu", **more
    )


def points(found: Result) -> Any:
    return found.table[found.table["point"]]


def by_hand(model: nn.Module, moved: dict[str, Tensor]) -> float:
    """NLL in float64 of a copy whose weights were written."""
    double = copy.deepcopy(model).double()
    with torch.no_grad():
        for name, value in moved.items():
            double.get_parameter(name).copy_(value)
        images = opened(model).prepare(data().images).double()
        return float(F.cross_entropy(double(images), data().labels))


@pytest.mark.parametrize(
    "how", [{}, {"copies": 4}, {"directions": "official"}, {"vectors": True, "reach": 0.5}]
)
def test_every_point_is_the_loss_of_a_copy_with_those_weights(how: dict[str, Any]) -> None:
    model = Small()
    analysis, subject = Landscape(points=5, **how), opened(model)
    plane, table = analysis.plane(subject, bench(subject)), points(asked(model, how))
    assert len(table) == 25
    for i in (0, 3, 7, 11, 12, 24):
        row = table.iloc[i]
        moved = {
            name: plane.origin[name].double()
            + sum(
                row[axis] * plane.axes[j].get(name, torch.zeros(())).double()
                for j, axis in enumerate("xy")
            )
            for name in plane.moving
        }
        assert row["value"] == pytest.approx(by_hand(model, moved), rel=2e-6), (row["x"], row["y"])
        everything = {**plane.origin, **moved}
        squares = [float(value.double().square().sum()) for value in everything.values()]
        assert row["l2"] == pytest.approx(0.025 * sum(squares), rel=1e-6)
        assert row["norms"] == pytest.approx(sum(np.sqrt(squares)), rel=1e-6)


def test_the_grid_is_even_and_row_by_row() -> None:
    table = points(asked(Small()))
    assert list(table["x"][:6]) == [-1.0, -0.5, 0.0, 0.5, 1.0, -1.0]
    assert list(table["y"][::5]) == [-1.0, -0.5, 0.0, 0.5, 1.0]


@pytest.mark.parametrize("copies", [1, 8])
def test_the_centre_is_the_trained_loss_to_the_last_bit(copies: int) -> None:
    model = Small()
    shown = choose_images(
        data(), "test", None, [opened(model)], seed=0
    )  # added up in the order in which they pass
    with torch.no_grad():
        scores = opened(model).specimen(opened(model).prepare(shown.images)).double()
        nll = F.cross_entropy(scores, shown.labels, reduction="none")
        right = (scores.argmax(1) == shown.labels).double().mean()
    found = asked(model, {"copies": copies})
    centre = points(found).iloc[12]
    assert centre["value"] == float(nll.sum() / len(nll))
    assert centre["rise"] == centre["rise_low"] == 0
    assert centre["accuracy"] == float(right)


def test_a_quadratic_loss_has_a_parabola_for_a_section() -> None:
    """Scores that are linear in the weights, and small: cross-entropy is then its own Taylor series
    of second order."""
    linear = nn.Linear(3 * 32 * 32, 10, bias=False)
    nn.init.normal_(linear.weight, std=1e-4)
    model = nn.Sequential(nn.Flatten(), linear).double()
    images = opened(model).prepare(data().images).flatten(1)
    assert images.dtype == torch.float64
    analysis = Landscape(points=7, dimensions=1)
    (axis,) = analysis.plane(opened(model), bench(opened(model))).axes
    with torch.no_grad():
        step, z = images @ axis["1.weight"].T, images @ linear.weight.T
        p = z.softmax(1)
        slope = ((p - F.one_hot(data().labels, 10)) * step).sum(1).mean()
        curve = ((p * step.square()).sum(1) - (p * step).sum(1).square()).mean()
    table = points(analysis(model, data(), image=32))
    x, rise = table["x"].to_numpy(), table["rise"].to_numpy()
    np.testing.assert_allclose(rise - rise[::-1], 2 * float(slope) * x, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(rise + rise[::-1], float(curve) * x**2, rtol=1e-4, atol=1e-12)
    assert table["y"].isna().all()


class Pooled(nn.Module):
    """Forty parameters in float64, whose Hessian can be written down."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.score = nn.Linear(3, 10)
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.score(images.mean((2, 3)))
        return found


@pytest.mark.parametrize("batch", [128, 4])
def test_eigenvectors_are_those_of_the_dense_hessian(batch: int) -> None:
    model = Pooled()
    subject = opened(model)
    pooled = subject.prepare(data().images).mean((2, 3))

    def loss(flat: Tensor) -> Tensor:
        return F.cross_entropy(pooled @ flat[:30].view(10, 3).T + flat[30:], data().labels)

    flat = torch.cat([model.score.weight.flatten(), model.score.bias]).detach()
    values, vectors = torch.linalg.eigh(torch.autograd.functional.hessian(loss, flat))
    analysis = Landscape(points=3, reach=1e-3, directions="eigenvectors")
    plane = analysis.plane(subject, Bench(Setting((subject,), data()), batch))
    for i, axis in enumerate(plane.axes):
        ours = torch.cat([axis["score.weight"].flatten(), axis["score.bias"]])
        assert float(ours.norm()) == pytest.approx(1)
        assert abs(float(ours @ vectors[:, -1 - i])) == pytest.approx(1, abs=1e-4)
        assert ours.abs().max() == ours.max()
    table = points(analysis(model, data(), image=32)).set_index(["x", "y"])["rise"]
    for i, (one, other) in enumerate((((1e-3, 0), (-1e-3, 0)), ((0, 1e-3), (0, -1e-3)))):
        assert (table.loc[one] + table.loc[other]) / 1e-6 == pytest.approx(
            float(values[-1 - i]), rel=1e-3
        )


def test_rings_and_statistics_of_table_c5() -> None:
    found = asked(Small(), {"weight_decay": 0.1})
    grid = points(found).set_index(["x", "y"])
    ring: Any = found.table[found.table["part"] == "ring"].set_index("radius")
    eight = [(x, y) for x in (-0.5, 0, 0.5) for y in (-0.5, 0, 0.5) if (x, y) != (0, 0)]
    centre = grid.loc[(0, 0)]
    assert ring.loc[0.5, "value"] == pytest.approx(
        np.mean([grid.loc[at, "value"] for at in eight]) - centre["value"]
    )
    assert ring.loc[0.5, "rise_low"] < ring.loc[0.5, "value"] < ring.loc[0.5, "rise_high"]
    whole = found.about["statistics"]["Small"]
    assert whole["NLL of the centre"] == centre["value"]
    assert whole["largest rise of the NLL"] == grid["rise"].max()
    assert whole["share of points worse than guessing"] == (grid["value"] > np.log(10)).mean()
    assert whole["decay · Σ‖W‖ of the centre"] == pytest.approx(0.1 * centre["norms"])
    assert whole["rise of L2"] == pytest.approx(ring.loc[1.0, "l2"])
    assert whole["rise of norms"] == pytest.approx(0.1 * ring.loc[1.0, "norms"])
    sections = found.table[found.table["section"]]
    counts = sections.groupby("direction", observed=True)["along"].size()
    assert counts.to_dict() == {"first": 5, "second": 5}


def test_points_with_infinite_loss_are_nan_and_counted() -> None:
    class Overflowing(Small):
        def forward(self, images: Tensor) -> Tensor:
            length = self.head.weight.square().sum()
            return super().forward(images) * torch.exp(60 * (length / START - 1))

    model = Overflowing()
    START = float(model.head.weight.detach().square().sum())
    found = asked(model, {"points": 3})
    table = points(found)
    assert 0 < table["value"].isna().sum() < 8
    share = found.about["statistics"]["Overflowing"]["share of points not finite"]
    assert share == pytest.approx(table["value"].isna().mean())


def test_augmented_images_are_drawn_once_and_recorded() -> None:
    how = {"points": 3, "stream": "augmented"}
    one, again = asked(Small(), how), asked(Small(), how, batch=3)
    np.testing.assert_allclose(points(one)["value"], points(again)["value"], rtol=1e-6)
    assert abs(points(one)["value"] - points(asked(Small(), {"points": 3}))["value"]).min() > 1e-6
    assert one.about["options"]["stream"] == "augmented"
    assert not points(one)["value"].equals(points(asked(Small(), how, seed=1))["value"])


def test_statistics_of_the_batch_are_those_of_training_mode() -> None:
    model = Small()
    found = points(asked(model, {"points": 3, "statistics": "batch"}))
    model.norm.train()
    with torch.no_grad():
        expected = F.cross_entropy(model(opened(Small()).prepare(data().images)), data().labels)
    assert found.iloc[4]["value"] == pytest.approx(float(expected), rel=1e-5)


def test_interrupted_in_the_middle_of_a_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, one = Small(), engine._compute_piece
    done: list[str] = []

    def first(work: Any, piece: str, bench: Bench) -> Any:
        if done:
            raise Interrupted("landscape", 1, 2, True)
        done.append(piece)
        return one(work, piece, bench)

    monkeypatch.setattr(engine, "_compute_piece", first)
    with pytest.raises(KeyboardInterrupt):
        asked(model, keep=tmp_path)
    monkeypatch.setattr(engine, "_compute_piece", one)
    again = asked(model, keep=tmp_path)
    assert again.table.equals(asked(model).table)
    assert again == asked(model)


def test_out_of_memory_reduces_the_number_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def greedy(
        specimen: Any, moved: Any, images: Tensor, copies: int = 0, at_a_time: int = 0
    ) -> Tensor:
        seen.append(copies)
        if copies > 3:
            raise torch.OutOfMemoryError("too little")
        return scores_at(specimen, moved, images, copies)

    plain = asked(Small())
    monkeypatch.setattr(module, "scores_at", greedy)
    found = asked(Small(), {"copies": 12})
    assert [seen.count(copies) for copies in (12, 6)] == [1, 1]
    assert set(seen) == {0, 12, 6, 3}
    np.testing.assert_allclose(points(found)["value"], points(plain)["value"], rtol=1e-5)


def test_copies_of_several_pieces_pass_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(
        specimen: Any, moved: Any, images: Tensor, copies: int = 0, at_a_time: int = 0
    ) -> Tensor:
        seen.append(copies)
        return scores_at(specimen, moved, images, copies)

    plain = asked(Small(), {"points": 7})
    monkeypatch.setattr(module, "scores_at", counted)
    for copies, passes in ((100, [0, 48]), (20, [0, 20, 20, 8])):
        found = asked(Small(), {"points": 7, "copies": copies})
        assert seen == passes  # the centre, and then all others, whatever piece they are of
        seen.clear()
        np.testing.assert_allclose(points(found)["value"], points(plain)["value"], rtol=1e-5)
        np.testing.assert_allclose(points(found)["accuracy"], points(plain)["accuracy"])


def test_directions_are_stored_or_fingerprinted() -> None:
    model = Small()
    found = asked(model, {"points": 3})
    plane = Landscape(points=3).plane(opened(model), bench(opened(model)))
    stored = found.arrays["direction 2 of Small"]
    np.testing.assert_array_equal(
        stored, torch.cat([value.flatten() for value in plane.axes[1].values()]).numpy()
    )
    assert len(found.about["directions"]["fingerprints"]["Small"]) == 2
    other = asked(model, {"points": 3}, seed=1).about["directions"]["fingerprints"]
    assert other["Small"] != found.about["directions"]["fingerprints"]["Small"]


def test_a_surface_and_a_line() -> None:
    import matplotlib.pyplot as plt

    found = asked(Small(), {"points": 3})
    figure = surface(found)
    assert figure.axes[0].get_title() == "Small"
    plt.close(figure)
    with pytest.raises(VitreousError, match="no model of this landscape"):
        surface(found, "Smal")
    line = asked(Small(), {"points": 3, "dimensions": 1})
    assert [view.mark for view in line.views] == ["line", "line", "scatter"]
    with pytest.raises(VitreousError, match="dimensions=2"):
        surface(line)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"points": 4}, "no middle"),
        ({"points": 1}, "no middle"),
        ({"dimensions": 3}, "1 or 2 dimensions"),
        ({"reach": 0.0}, "positive reach"),
        ({"directions": "eigen"}, "no option"),
        ({"directions": "official", "vectors": True}, "random directions"),
        ({"stream": "mixed"}, "no option"),
    ],
)
def test_bad_options(how: dict[str, Any], said: str) -> None:
    with pytest.raises(VitreousError, match=said):
        Landscape(**how)


def test_bad_models_and_images() -> None:
    broken = Small()
    with torch.no_grad():
        broken.hidden.bias.fill_(1e10)
        broken.head.weight.fill_(3e38)
    with pytest.raises(VitreousError, match="Small is not finite"):
        asked(broken)
    unknown = data()
    unlabelled = Dataset(unknown.images, torch.full((COUNT,), -1), (), "pictures", "train")
    found = vitreous.analyse(Small(), unlabelled, [Landscape(points=3)], image=32)
    assert "no labels" in found.left_out["landscape"]["Small"]

    bare = vitreous.analyse(
        nn.Sequential(nn.Flatten(), nn.AvgPool1d(300)), data(), [Landscape()], image=32
    )
    assert "no parameters" in bare.left_out["landscape"]["Sequential"]

    class Biases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(10))

        def forward(self, images: Tensor) -> Tensor:
            return images.mean((1, 2, 3))[:, None] + self.bias

    with pytest.raises(VitreousError, match="vectors=True"):
        asked(Biases())
    still = asked(
        Biases(), {"vectors": True}
    )  # a vector of zeros is a filter of length zero, and stays
    assert points(still)["rise"].abs().max() == 0


def test_a_setting_knows_its_grid() -> None:
    subject = opened(Small())
    assert Landscape().pieces(subject, bench(subject))[-1] == "432 to 440"
    assert Landscape().where[220].tolist() == [0.0, 0.0]
