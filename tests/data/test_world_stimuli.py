"""SYN-A to SYN-E: each label is found again from the pixels by means that know nothing of how
they were drawn."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from vitreous.data import world
from vitreous.data.world.stimuli import MOTIFS, SYMBOLS, bitmap


def chance(counts: Tensor) -> bool:
    """Whether a table of counts looks like one of independent rows and columns."""
    return bool(stats.chi2_contingency(counts.numpy()).pvalue > 1e-4)


def table(one: Tensor, other: Tensor) -> Tensor:
    wide = int(other.max()) + 1
    return (one * wide + other).bincount(minlength=wide * (int(one.max()) + 1)).view(-1, wide)


# SYN-A


def grating_angles(images: Tensor) -> Tensor:
    """Direction of the strongest high frequency, in degrees from 0 to 180, in a spectrum padded
    fourfold."""
    grey = images[:, 0].double()
    side = grey.shape[-1]
    power = torch.fft.fft2(grey - grey.mean((1, 2), keepdim=True), s=(4 * side, 4 * side)).abs()
    lines = torch.fft.fftfreq(4 * side)
    power[:, (lines**2 + lines[:, None] ** 2).sqrt() < 0.22] = 0
    best = power.flatten(1).argmax(1)
    return torch.rad2deg(torch.atan2(lines[best // (4 * side)], lines[best % (4 * side)])) % 180


@pytest.mark.parametrize("image", [16, 32])
def test_a_gratings_have_the_orientation_of_their_label(image: int) -> None:
    data = world.load("syn-a:texture", size=512, image=image)
    angles = grating_angles(data.images)
    found = (angles / 45).round().long() % 4
    assert (found == data.labels).double().mean() > 0.98


def test_a_blobs_have_the_lobes_of_their_label() -> None:
    """By moments of the silhouette: (x + iy)^k is strong for a figure of k lobes; a disc has
    none."""
    data = world.load("syn-a:shape", size=512)
    blurred = nn.functional.avg_pool2d(data.images[:, :1].double(), 3, 1, 1)[:, 0]
    mask = (blurred > 118).double()
    steps = torch.arange(32, dtype=torch.float64) + 0.5
    weight = mask.sum((1, 2))
    cx, cy = (mask * steps).sum((1, 2)) / weight, (mask * steps[:, None]).sum((1, 2)) / weight
    z = torch.complex(
        *torch.broadcast_tensors(steps - cx[:, None, None], steps[:, None] - cy[:, None, None])
    )
    moments = [
        ((mask * z**k).sum((1, 2)).abs() / (mask * z.abs() ** k).sum((1, 2))) for k in (2, 3, 4)
    ]
    strength, lobes = torch.stack(moments).max(0)
    found = torch.where(strength < 0.2, 0, lobes + 1)
    assert (found == data.labels).double().mean() > 0.95


def test_a_cues() -> None:
    free, agree, conflict = (
        world.load(f"syn-a:{name}", size=4096).truth for name in ("shape", "cues", "conflict")
    )
    assert chance(table(free["shape"], free["texture"]))
    assert torch.equal(agree["shape"], agree["texture"])
    counts = table(conflict["shape"], conflict["texture"])
    assert counts.diagonal().sum() == 0
    assert stats.chisquare(counts[~torch.eye(4, dtype=torch.bool)].numpy()).pvalue > 1e-4


# SYN-B


def matches(images: Tensor, stamp: Tensor) -> Tensor:
    """(n, h, w): where the stamp is found, pixel by pixel."""
    side = len(stamp)
    return (images[:, 0].unfold(1, side, 1).unfold(2, side, 1) == stamp).all(-1).all(-1)


@pytest.mark.parametrize(("task", "kinds", "swing"), [("syn-b", 8, 64), ("syn-b:four", 4, 32)])
def test_b_one_motif_once_where_the_box_says(task: str, kinds: int, swing: int) -> None:
    data = world.load(task, size=1024)
    found = torch.stack([matches(data.images, bitmap(text)) for _, text in MOTIFS], 1)
    assert data.labels.unique().tolist() == list(range(kinds)) == list(range(len(data.classes)))
    noise = data.images[(data.images != 16) & (data.images != 240)]
    assert (int(noise.min()), int(noise.max())) == (128 - swing, 127 + swing)
    image, motif, y, x = found.nonzero().unbind(1)
    assert torch.equal(image, torch.arange(1024))
    assert torch.equal(motif, data.labels)
    assert torch.equal(torch.stack([x, y, x + 3, y + 3], 1), data.truth["box"])


def test_b_motifs_differ_in_arrangement_only_and_survive_mirroring() -> None:
    motifs = [np.array(list(text)).reshape(3, 3) for _, text in MOTIFS]
    assert {int((motif == "#").sum()) for motif in motifs} == {5}
    for one, other in combinations(motifs, 2):
        assert min((one != other).sum(), (one != other[:, ::-1]).sum()) >= 4


def test_b_every_place_is_as_likely() -> None:
    truth = world.load("syn-b", size=8192, image=16).truth
    corner = truth["box"][:, 1] * 14 + truth["box"][:, 0]
    assert stats.chisquare(corner.bincount(minlength=196).numpy()).pvalue > 1e-4
    assert chance(table(truth["motif"], truth["box"][:, 0]))


# SYN-C


@pytest.mark.parametrize("image", [16, 32, 64])
def test_c_the_object_is_always_the_same_and_lies_in_its_cell(image: int) -> None:
    data = world.load("syn-c", size=512, image=image)
    x0, y0, x1, y1 = data.truth["box"].unbind(1)
    cuts = {data.images[i, :, y0[i] : y1[i], x0[i] : x1[i]].numpy().tobytes() for i in range(512)}
    assert len(cuts) == 1
    cell = image // 4
    for low, high, line in ((x0, x1, data.truth["column"]), (y0, y1, data.truth["row"])):
        assert torch.equal(low // cell, line)
        assert torch.equal((high - 1) // cell, line)
    assert torch.equal(data.labels, (y0 >= image // 2) * 2 + (x0 >= image // 2).long())


def pooled_patches(images: Tensor, patch: int) -> Tensor:
    """What a model without positions can know: random features of each patch, then mean and
    maximum over patches."""
    cut = (
        images.unfold(2, patch, patch)
        .unfold(3, patch, patch)
        .permute(0, 2, 3, 1, 4, 5)
        .flatten(3)
        .flatten(1, 2)
    )
    weights = (
        torch.randn(cut.shape[-1], 96, generator=torch.Generator().manual_seed(0))
        / cut.shape[-1] ** 0.5
    )
    seen = ((cut.float() / 64 - 2) @ weights).relu()
    return torch.cat([seen.mean(1), seen.amax(1), seen.square().mean(1)], 1)


def ridge_accuracy(features: Tensor, labels: Tensor) -> float:
    """Of least squares on one-hot labels: learnt on the first half, tested on the second."""
    x = torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], 1)
    half = len(x) // 2
    y = nn.functional.one_hot(labels[:half]).double()
    gram = x[:half].T @ x[:half] + 10 * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, x[:half].T @ y)
    return float(((x[half:] @ weights).argmax(1) == labels[half:]).double().mean())


def test_c_patches_without_their_places_tell_nothing() -> None:
    """VIT-01: at chance for every patch size that divides a cell; with places the same reader
    knows nearly all."""
    data = world.load("syn-c", size=4096)
    yellow = data.images[:, 0].float() - data.images[:, 2].float()
    cells = yellow.unfold(1, 8, 8).unfold(2, 8, 8).amax((3, 4)).flatten(1)
    bags = [pooled_patches(data.images, patch) for patch in (2, 4, 8)]
    margin = 4 * (0.25 * 0.75 / 2048) ** 0.5
    for label in ("quadrant", "row", "column"):
        for bag in bags:
            assert abs(ridge_accuracy(bag, data.truth[label]) - 0.25) < margin
        assert ridge_accuracy(cells, data.truth[label]) > 0.95


def test_c_offsets_within_patches_do_not_depend_on_the_place() -> None:
    truth = world.load("syn-c", size=8192).truth
    for patch in (2, 4, 8):
        for label in ("quadrant", "row", "column"):
            assert chance(table(truth[label], truth["box"][:, 0] % patch))
            assert chance(table(truth[label], truth["box"][:, 1] % patch))


# SYN-D


@pytest.mark.parametrize("image", [16, 32])
def test_d_symbols_are_where_the_boxes_say_and_the_label_is_their_equality(image: int) -> None:
    data = world.load("syn-d", size=512, image=image)
    found = torch.stack([matches(data.images, bitmap(text)) for _, text in SYMBOLS], 1)
    for which in range(2):
        x, y, *_ = data.truth["boxes"][:, which].unbind(1)
        assert found[torch.arange(512), data.truth["symbols"][:, which], y, x].all()
        assert ((x % 4 == 0) & (y % 4 == 0)).all()
    assert found.sum() == 1024
    first, second = data.truth["symbols"].unbind(1)
    assert torch.equal(data.labels, (first == second).long())
    gap = (data.truth["boxes"][:, 0] - data.truth["boxes"][:, 1]).abs().amax(1)
    assert gap.min() == image // 2


def test_d_neither_symbol_nor_any_place_gives_the_label_away() -> None:
    data = world.load("syn-d", size=8192)
    assert stats.binomtest(int(data.labels.sum()), 8192).pvalue > 1e-4
    for which in range(2):
        assert chance(table(data.labels, data.truth["symbols"][:, which]))
        for axis in (0, 1):
            assert chance(table(data.labels, data.truth["boxes"][:, which, axis] // 4))


# SYN-E


@pytest.mark.parametrize("image", [16, 32])
def test_e_spectra_have_the_exponent_of_their_label(image: int) -> None:
    """Regression of log power on log frequency; all classes have one mean and one contrast."""
    data = world.load("syn-e", size=2048, image=image)
    pixels = data.images.double()
    power = torch.fft.fft2(pixels.sum(1)).abs().square()
    lines = torch.fft.fftfreq(image, 1 / image)
    frequency = (lines**2 + lines[:, None] ** 2).sqrt()
    picked = (frequency >= 1) & (frequency < image / 2)
    for number, name in enumerate(data.classes):
        mine = data.labels == number
        level = power[mine].mean(0)[picked].log()
        slope = stats.linregress(frequency[picked].log().numpy(), level.numpy()).slope
        assert slope == pytest.approx(-2 * float(name), abs=0.12)
        assert (data.truth["exponent"][mine] == torch.tensor(float(name))).all()
    assert (pixels.mean((1, 2, 3)) - 128).abs().max() < 2
    assert (pixels.std((1, 2, 3)) - 42).abs().max() < 2
