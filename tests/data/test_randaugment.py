"""RandAugment is timm's: the same pixels for the same arguments, the same arguments for the same
level and sign, the same operations and levels in distribution."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from timm.data import auto_augment
from torch import Tensor

from data.augment_pictures import as_pil, from_pil, pictures
from vitreous.data.augment.randaugment import (
    INCREASING,
    NONE,
    PLAIN,
    Op,
    RandAugment,
    RandAugmentOptions,
    parse_randaugment,
)
from vitreous.errors import VitreousError

FILL = (124.0, 116.0, 104.0)
SIZES = [(32, 32), (40, 24)]
TIMM = {False: auto_augment._RAND_TRANSFORMS, True: auto_augment._RAND_INCREASING_TRANSFORMS}
ROUND = [2.5, 5.0, 9.0, 10.0]
ODD = [0.0, *np.random.default_rng(0).uniform(0, 10, 7).tolist()]


def numbers(code: int, level: float, sign: float = 0.25, smooth: bool = True) -> Tensor:
    """Uniform numbers that make a stage "rand-m10-n1-p1-mstd101" do one operation at one level."""
    return torch.tensor([[(code + 0.5) / 15, 0.5, level / 10, sign, 0.25 if smooth else 0.75]])


def stage(image: tuple[int, int] = (32, 32), *, increasing: bool = False) -> RandAugment:
    return RandAugment(f"rand-m10-n1-p1-mstd101-inc{int(increasing)}", image, FILL)


def theirs(name: str, picture: Tensor, argument: float, *, smooth: bool) -> Tensor:
    """timm's operation on a Pillow image. Newer Pillow refuses to keep no bits, for which older
    ones gave black."""
    whole = name.startswith(("Posterize", "Solarize"))
    if name.startswith("Posterize") and argument == 0:
        return torch.zeros_like(picture)
    resample = Image.Resampling.BICUBIC if smooth else Image.Resampling.BILINEAR
    given = (
        []
        if name in ("AutoContrast", "Equalize", "Invert")
        else [int(argument) if whole else argument]
    )
    colour = tuple(int(each) for each in FILL)
    return from_pil(
        auto_augment.NAME_TO_OP[name](as_pil(picture), *given, resample=resample, fillcolor=colour)
    )


def compare(
    code: int, size: tuple[int, int], levels: list[float], *, increasing: bool, smooth: bool = True
) -> Tensor:
    """Absolute differences from timm (level and sign and picture, …)."""
    here, found = stage(size, increasing=increasing), pictures(*size)
    signs = (0.25, 0.75) if here.ops[code].signed else (0.25,)
    settings = here.settle(
        torch.cat([numbers(code, level, sign, smooth) for level in levels for sign in signs])
    )
    ours = here(
        found.repeat(len(settings[0]), 1, 1, 1),
        *(each.repeat_interleave(len(found), 0) for each in settings),
    )
    name, arguments = TIMM[increasing][code], settings[1].flatten().tolist()
    timms = [theirs(name, picture, each, smooth=smooth) for each in arguments for picture in found]
    return (ours.int() - torch.stack(timms).int()).abs()


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("code", [code for code, op in enumerate(PLAIN) if op.change is not None])
def test_colours_are_exactly_those_of_pillow(code: int, increasing: bool) -> None:
    for size in SIZES:
        assert compare(code, size, [*ODD, *ROUND], increasing=increasing).max() == 0


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("code", [code for code, op in enumerate(PLAIN) if op.change is None])
def test_maps_are_those_of_pillow_within_a_level(code: int, smooth: bool) -> None:
    """Pillow computes in float64 and cuts off: what is whole within 1e-5 may fall to either
    side, and a pixel whose source is the very edge (at round levels) may be filled or not."""
    for size in SIZES:
        difference = compare(code, size, ODD, increasing=False, smooth=smooth)
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < 1e-3


@pytest.mark.parametrize("smooth", [False, True])
def test_the_identity_is_exact(smooth: bool) -> None:
    code = TIMM[False].index("ShearX")
    assert compare(code, (40, 24), [0.0], increasing=False, smooth=smooth).max() == 0


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("sign", [0.25, 0.75])
def test_arguments_of_levels_are_timms(
    monkeypatch: pytest.MonkeyPatch, increasing: bool, sign: float
) -> None:
    monkeypatch.setattr(random, "random", lambda: sign)
    here = stage(increasing=increasing)
    for code, (name, op) in enumerate(zip(TIMM[increasing], here.ops, strict=True)):
        assert name in (op.name, op.name + "Increasing")
        argument = auto_augment.LEVEL_TO_ARG[name]
        for level in [*map(float, range(11)), *ODD] if argument else []:
            ours = here.settle(numbers(code, level, sign))[1]
            (timms,) = argument(float(np.float32(level / 10) * np.float32(10)), {})
            assert float(ours) == pytest.approx(timms, abs=1e-6)


def recorded(
    monkeypatch: pytest.MonkeyPatch, spelling: str, images: int
) -> list[list[tuple[str, float, bool]]]:
    """What timm's RandAugment does to each of many images: names, arguments and whether it is
    bicubic, in order."""
    done: list[tuple[str, float, bool]] = []

    def record(name: str) -> Any:
        def change(image: Any, argument: float = 0.0, *, resample: Any, **_: Any) -> Any:
            done.append(
                (
                    name,
                    argument,
                    auto_augment._interpolation({"resample": resample}) == Image.Resampling.BICUBIC,
                )
            )
            return image

        return change

    for name in auto_augment.NAME_TO_OP:
        monkeypatch.setitem(auto_augment.NAME_TO_OP, name, record(name))
    np.random.seed(0)  # noqa: NPY002 timm draws from it
    random.seed(0)
    transform = auto_augment.rand_augment_transform(spelling, {"img_mean": (0, 0, 0)})
    found = []
    for _ in range(images):
        done.clear()
        transform(None)
        found.append(list(done))
    return found


@pytest.mark.parametrize(
    "spelling", ["rand-m9-n2-mstd1.0", "rand-m9-mstd0.5-inc1", "rand-m5-n3-mstd101-p0.8", "rand-m7"]
)
def test_operations_and_arguments_are_distributed_as_timms(
    monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    images = 8000
    theirs = recorded(monkeypatch, spelling, images)
    here = RandAugment(spelling, (32, 32), FILL)
    code, argument, _, cubic = here.settle(torch.rand(images, here.numbers))
    layers = code.shape[1]
    lengths = np.bincount([len(done) for done in theirs], minlength=layers + 1)
    ours = np.bincount((code != NONE).sum(1).numpy(), minlength=layers + 1)
    assert stats.chi2_contingency([lengths + 1, ours + 1]).pvalue > 1e-3
    names = [op[0] for done in theirs for op in done]
    counts = [names.count(name) for name in TIMM[here.options.increasing]]
    assert (
        stats.chi2_contingency(
            [counts, torch.bincount(code.flatten(), minlength=16)[:15].tolist()]
        ).pvalue
        > 1e-3
    )
    for at, name in enumerate(TIMM[here.options.increasing]):
        timms = [done for each in theirs for done in each if done[0] == name]
        mine = argument[code == at].double().numpy().round(5)
        assert stats.ks_2samp(np.round([done[1] for done in timms], 5), mine).pvalue > 1e-4, name
        if here.ops[at].change is None:
            moved = (cubic != torch.eye(2, 3).flatten()).any(-1)[code == at].float().mean()
            assert float(moved) == pytest.approx(np.mean([done[2] for done in timms]), abs=0.12)


def test_layers_come_one_after_the_other_and_each_image_has_its_own() -> None:
    """Against timm's functions, applied to each image in the order of its layers."""
    found = pictures(32, 32).repeat(4, 1, 1, 1)
    here = RandAugment("rand-m9-n3-p1.0-mstd1.0", (32, 32), FILL)
    settings = here.settle(torch.rand(len(found), here.numbers))
    ours = here(found, *settings)
    moved = (settings[3] != torch.eye(2, 3).flatten()).any(-1)
    far = 0
    for picture, result, code, argument, smooth in zip(
        found, ours, settings[0], settings[1], moved, strict=True
    ):
        for layer in range(3):
            name = TIMM[False][int(code[layer])]
            picture = theirs(name, picture, float(argument[layer]), smooth=bool(smooth[layer]))
        far += int(((picture.int() - result.int()).abs() > 1).sum())
    assert far < 1e-3 * ours.numel(), (
        "a level lost by a map may be spread by what follows, but rarely"
    )


def test_spellings() -> None:
    assert parse_randaugment("rand-m9-n2-mstd1.0") == RandAugmentOptions(
        level=9, layers=2, noise=1.0
    )
    assert parse_randaugment("rand-m9-mstd0.5-inc1") == RandAugmentOptions(
        level=9, noise=0.5, increasing=True
    )
    assert parse_randaugment("rand-n3-p0.9") == RandAugmentOptions(layers=3, probability=0.9)
    for wrong in (
        "rand-m9-mmax20",
        "rand-m9-w0",
        "rand-m9-tweights",
        "augmix-m3",
        "m9",
        "rand-m9-",
    ):
        with pytest.raises(VitreousError, match=r"write it as 'rand-m9-n2-mstd1\.0'"):
            parse_randaugment(wrong)


def test_increasing_differs_where_timm_says() -> None:
    differing: list[Op] = [op for op, plain in zip(INCREASING, PLAIN, strict=True) if op != plain]
    assert [op.name + "Increasing" for op in differing] == [
        name for name in TIMM[True] if name.endswith("Increasing")
    ]
