"""The scenes: independent factors, natural backgrounds, objects where the truth says they are;
not too easy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from vitreous.data import world
from vitreous.data.world import scene
from vitreous.data.world.fields import bank, falloff, filtered, windows

CLASSES = ("shape", "texture", "colour", "background")
NUMBERS = ("cx", "cy", "size", "angle")


@pytest.fixture(scope="module")
def truth() -> dict[str, Tensor]:
    return dict(world.load(size=8192).truth)


def test_classes_are_uniform_and_independent_of_each_other(truth: dict[str, Tensor]) -> None:
    for name in CLASSES:
        assert stats.chisquare(truth[name].bincount().numpy()).pvalue > 1e-4
    for one, other in combinations(CLASSES, 2):
        wide = int(truth[other].max()) + 1
        counts = (truth[one] * wide + truth[other]).bincount().view(-1, wide)
        assert stats.chi2_contingency(counts.numpy()).pvalue > 1e-4, (one, other)


def test_numbers_are_independent_of_each_other_and_of_the_classes(truth: dict[str, Tensor]) -> None:
    """By ranks, and by ranks of the distance from the middle: place must not depend on size in
    its spread either."""
    for one, other in combinations(NUMBERS, 2):
        for near in (False, True):
            a, b = (abs(x - x.mean()) if near else x for x in (truth[one], truth[other]))
            assert stats.spearmanr(a.numpy(), b.numpy()).pvalue > 1e-4, (one, other)
    for name in CLASSES:
        for number in NUMBERS:
            parts = [
                truth[number][truth[name] == k].numpy() for k in range(int(truth[name].max()) + 1)
            ]
            assert stats.kruskal(*parts).pvalue > 1e-4, (name, number)


def test_cues_agree_and_conflict() -> None:
    cues, conflict = (world.load(task, size=4096).truth for task in ("cues", "conflict"))
    assert torch.equal(cues["shape"], cues["texture"])
    counts = (conflict["shape"] * 10 + conflict["texture"]).bincount(minlength=100).view(10, 10)
    assert counts.diagonal().sum() == 0
    assert stats.chisquare(counts[~torch.eye(10, dtype=torch.bool)].numpy()).pvalue > 1e-4


def painted(image: int, change: dict[str, int], count: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels that change when factors do, as (n, h, w); the boxes; and the pictures."""
    dice = scene.roll(torch.Generator().manual_seed(3), count)
    before = scene.truth_of(dice, image)
    after = {key: value + change.get(key, 0) for key, value in before.items()}
    for name, known in (("colour", scene.COLOURS), ("background", scene.BACKGROUNDS)):
        after[name] %= len(known)
    (old, boxes), (new, _) = (scene.paint(dice, each, image) for each in (before, after))
    return (old != new).any(1), boxes, old


@pytest.mark.parametrize("image", [32, 64])
def test_colour_changes_the_object_only_and_the_object_fills_its_box(image: int) -> None:
    changed, boxes, _ = painted(image, {"colour": 3})
    for mask, (x0, y0, x1, y1) in zip(changed, boxes.tolist(), strict=True):
        rows, columns = mask.nonzero().unbind(1)
        extent = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
        soft = np.array(extent) - (
            x0,
            y0,
            x1,
            y1,
        )  # pixels that are covered by less than half are outside the box
        assert (soft[:2] <= 0).all()
        assert (soft[2:] >= 0).all()
        assert abs(soft).max() <= 3  # the tip of a star is long and thin


def test_background_changes_nothing_inside_the_object() -> None:
    by_colour, _, _ = painted(32, {"colour": 3})
    by_background, _, _ = painted(32, {"background": 2})
    both = (by_colour & by_background).float().mean()  # the soft outline
    neither = (~by_colour & ~by_background).float().mean()
    assert both < 0.1
    assert neither < 0.01


def test_a_scene_at_64_is_the_same_scene_drawn_finer() -> None:
    small, large = world.load(size=256), world.load(size=256, image=64)
    for name in CLASSES:
        assert torch.equal(small.truth[name], large.truth[name])
    assert (2 * small.truth["box"] - large.truth["box"]).abs().max() <= 3
    pairs = large.images.unfold(3, 2, 2).unfold(2, 2, 2).float()
    assert pairs.std((4, 5)).mean() > 4  # an enlarged image would have none


def radial_slope(planes: Tensor) -> float:
    """Of log power over log frequency, mean over images, by regression over rings; edges are
    softened first."""
    side = planes.shape[-1]
    window = torch.hann_window(side, periodic=False, dtype=torch.float64)
    centred = planes.double() - planes.double().mean((-2, -1), keepdim=True)
    power = torch.fft.fft2(centred * window * window[:, None]).abs().square().flatten(0, -3).mean(0)
    lines = torch.fft.fftfreq(side, 1 / side)
    ring = (lines**2 + lines[:, None] ** 2).sqrt().round().long()
    sums = torch.zeros(side, dtype=torch.float64).index_add_(0, ring.flatten(), power.flatten())
    means = (sums / ring.flatten().bincount(minlength=side))[2 : side // 2]
    return float(stats.linregress(np.log(np.arange(2, side // 2)), means.log().numpy()).slope)


@pytest.mark.parametrize("image", [32, 64])
def test_backgrounds_have_a_natural_spectrum(image: int) -> None:
    """Power falls as 1/f², amplitude as 1/f, in each colour; the object is put out of sight."""
    dice = scene.roll(torch.Generator().manual_seed(4), 512)
    facts = scene.truth_of(dice, image)
    facts["cx"] = facts["cx"] - 100 * image
    pixels, _ = scene.paint(dice, facts, image)
    for channel in pixels.unbind(1):
        assert radial_slope(channel) == pytest.approx(-2, abs=0.2)


def test_fields_have_the_exponent_they_were_asked_for() -> None:
    noise = torch.rand(64, 64, 64, dtype=torch.float64) - 0.5
    for beta in (0.0, 0.5, 1.5):
        power = (
            torch.fft.fft2(filtered(noise, falloff(64, beta))).abs().square()
            / torch.fft.fft2(noise).abs().square()
        )
        line = power[0, 0, 1:32].numpy()
        assert stats.linregress(np.log(np.arange(1, 32)), np.log(line)).slope == pytest.approx(
            -2 * beta, abs=1e-5
        )


def test_windows_are_cut_where_they_should_be() -> None:
    fields = bank(32, 1.0)
    cut = windows(
        32,
        1.0,
        torch.tensor([0.0, 0.99, 0.5]),
        torch.tensor([0.0, 0.999, 0.25]),
        torch.tensor([0.0, 0.999, 0.75]),
    )
    assert torch.equal(cut[0], fields[0, :32, :32])
    assert torch.equal(cut[1], fields[15, -32:, -32:])
    assert torch.equal(cut[2], fields[8, 72:104, 24:56])


def ridge_accuracy(features: Tensor, labels: Tensor, train: int, penalty: float) -> float:
    """Least squares on one-hot labels, closed form."""
    x = torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], 1)
    y = nn.functional.one_hot(labels).double()
    gram = x[:train].T @ x[:train] + penalty * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, x[:train].T @ y[:train])
    return float(((x[train:] @ weights).argmax(1) == labels[train:]).double().mean())


def test_shapes_cannot_be_read_off_linearly() -> None:
    data = world.load(size=6000)
    flat = nn.functional.avg_pool2d(data.normalise(data.images), 2).flatten(1)
    assert ridge_accuracy(flat, data.labels, 5000, 300.0) < 0.4


def test_shapes_can_be_learnt() -> None:
    """A small convolutional net after a few seconds: far above chance, and above any linear
    reading."""
    train, test = world.load(size=6400, image=16), world.load(size=1000, image=16, split="test")
    layers: list[nn.Module] = []
    for wide, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(wide, out, 3, 2 if wide > 3 else 1, 1), nn.BatchNorm2d(out), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for rows in torch.randperm(6400).view(-1, 64):
        loss = nn.functional.cross_entropy(
            model(train.normalise(train.images[rows])), train.labels[rows]
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        accuracy = (
            (model.eval()(test.normalise(test.images)).argmax(1) == test.labels).double().mean()
        )
    assert accuracy > 0.5
