"""Corruptions in batches against the package that makes them one image at a time, on one CPU
thread.

    python benchmarks/corruptions.py
    python benchmarks/corruptions.py --device cuda --sides 224 --kinds fog glass_blur

The peer is imagecorruptions 1.1.2 where it is installed. It is given what current numpy, scipy and
scikit-image took away from it; without that it does not run. It knows ImageNet's strengths only, so
these are raced at both sizes. Its elastic transform and its frost differ from the published ones in
detail, not in effort.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import types
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from race import Race, Step, clock_for, wait  # noqa: E402

from vitreous.data.corruptions import KINDS, corrupt  # noqa: E402


def natural(images: int, side: int) -> Tensor:
    """Uint8 images with the 1/f spectrum of photographs."""
    frequency = torch.fft.fftfreq(side)
    fall = (frequency[:, None] ** 2 + frequency**2).sqrt().clamp(min=1 / side)
    maps = torch.fft.ifft2(torch.fft.fft2(torch.randn(images, 3, side, side)) / fall).real
    low, high = maps.amin((1, 2, 3), keepdim=True), maps.amax((1, 2, 3), keepdim=True)
    return ((maps - low) / (high - low) * 255.999).byte()


def peer() -> Any:
    """The other package's functions, or None where it is not installed."""
    try:
        import scipy.ndimage
        import skimage.filters

        moved: Any = types.ModuleType("scipy.ndimage.interpolation")
        moved.map_coordinates = scipy.ndimage.map_coordinates
        sys.modules["scipy.ndimage.interpolation"] = moved
        vars(np)["float_"] = np.float64
        warnings.simplefilter("ignore")
        functions: Any = importlib.import_module("imagecorruptions.corruptions")
    except ImportError:
        return None

    def gaussian(x: Any, sigma: float = 1, multichannel: bool = False, **rest: Any) -> Any:
        return skimage.filters.gaussian(x, sigma, channel_axis=-1 if multichannel else None, **rest)

    functions.gaussian = gaussian
    return functions


def ours(kind: str, severity: int, images: Tensor) -> Step:
    def step() -> None:
        corrupt(images, kind, severity, size="imagenet")

    return step


def theirs(functions: Any, kind: str, severity: int, images: Tensor) -> Step:
    pictures = [
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()) for image in images.cpu()
    ]
    apply = getattr(functions, kind)

    def step() -> None:
        for picture in pictures:
            np.uint8(apply(picture, severity))

    return step


def least(step: Step, device: str) -> float:
    """Milliseconds of a step at its quickest of 200, in CPU time: what other work on a shared
    machine changes least."""
    clock, times = clock_for(device), []
    for _ in range(200):
        start = clock()
        step()
        wait(device)
        times.append(clock() - start)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--sides", nargs="+", type=int, default=[32, 224])
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each measurement")
    parser.add_argument(
        "--budget", type=float, default=600.0, help="start nothing after this many seconds"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    functions = peer()
    race = Race("corruptions", asked.device, asked.seconds, asked.budget, asked.out)
    for side in asked.sides:
        many, few = (256, 8) if side < 96 else (16, 1)
        images = natural(many, side).to(asked.device)
        for kind in asked.kinds:
            case, mode = f"{kind} {side} px", f"severity {asked.severity}"
            race.run(case, mode, "ours", many, partial(ours, kind, asked.severity, images))
            race.rows[-1].pop("MiB", None)  # what autograd keeps: nothing
            race.rows[-1]["ms_one"] = least(ours(kind, asked.severity, images[:1]), asked.device)
            if functions is not None:
                make = partial(theirs, functions, kind, asked.severity, images[:few])
                race.run(case, mode, "imagecorruptions", few, make)
                race.rows[-1].pop("MiB", None)
    print(f"\n{race.table('ours', 'imagecorruptions')}\n")
    for side in asked.sides:
        rows = [
            row
            for row in race.rows
            if row["case"].endswith(f" {side} px") and row["contender"] == "ours"
        ]
        print(
            f"{side} px: {sum(row['ms_one'] for row in rows):.1f} ms for one image of every kind, "
            f"one by one, at best"
        )
        if functions is not None:
            print(f"{side} px: {means(race, side)}")
    print(f"\nwritten to {race.write()}")


def means(race: Race, side: int) -> str:
    """How much faster, on average over the kinds, and for one image of every kind."""
    speeds: dict[str, list[float]] = {"ours": [], "imagecorruptions": []}
    for row in race.rows:
        if row["case"].endswith(f" {side} px"):
            speeds[row["contender"]].append(row["per_second"])
    ratios = [a / b for a, b in zip(*speeds.values(), strict=True)]
    total = sum(1 / b for b in speeds["imagecorruptions"]) / sum(1 / a for a in speeds["ours"])
    geometric = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{geometric:.1f}x in the geometric mean, {total:.1f}x for one image of every kind"


if __name__ == "__main__":
    main()
