"""Our ConViT against timm's: forward and backward with the same weights.

    python benchmarks/convit.py --device cuda          # under four minutes on an H200
    python benchmarks/convit.py --device cpu --cases ti/4@32 --modes eager

Also races the two ways of applying positional attention, as one (N, N) product per head and as two
products by axis.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import nn

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from race import Race, Step, training_step  # noqa: E402

from vitreous.models.convit import GPSA, from_timm, one_product, two_products  # noqa: E402


class Case(NamedTuple):
    """What timm is asked for, and how many images at a time on each device."""

    name: str
    options: dict[str, Any]
    batch: dict[str, int]


CASES = {
    "s@224": Case("convit_small", {}, {"cuda": 128, "cpu": 8}),
    "s@448": Case("convit_small", {"img_size": 448}, {"cuda": 64, "cpu": 2}),
    "ti/4@32": Case(
        "convit_tiny",
        {"img_size": 32, "patch_size": 4, "num_classes": 100},
        {"cuda": 512, "cpu": 64},
    ),
    "b@224": Case("convit_base", {}, {"cuda": 128, "cpu": 4}),
}


def contender(
    ours: bool, case: Case, device: str, batch: int, compiled: bool
) -> Callable[[], Step]:
    """Builds the model anew, with the same weights for both, when its turn comes."""

    def make() -> Step:
        torch.manual_seed(0)
        theirs = timm.create_model(case.name, **case.options)
        model: nn.Module = (from_timm(theirs) if ours else theirs).to(device).train()
        side = case.options.get("img_size", 224)
        images = torch.randn(batch, 3, side, side, device=device)
        if compiled:
            with torch.no_grad():
                model(
                    images[:2]
                )  # timm fills its tables of coordinates in the first call, which would not compile
        return training_step(model, images, low_precision=device == "cuda", compiled=compiled)

    return make


def disagreement(case: Case, device: str) -> float:
    """Largest difference of the logits in float32, before any time is spent on a race between
    different functions."""
    theirs = timm.create_model(case.name, **case.options).to(device).eval()
    side = case.options.get("img_size", 224)
    images = torch.randn(2, 3, side, side, device=device)
    with torch.no_grad():
        return float((from_timm(theirs)(images) - theirs(images)).abs().max())


def position(products: Callable[..., torch.Tensor], side: int, batch: int, device: str) -> Step:
    """Forward and backward of positional attention alone, with the values of ConViT-S."""
    layer = GPSA(432, 9).to(device)
    layer.start_as_convolution()
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    values = torch.randn(batch, side * side, 9, 48, device=device, dtype=kind, requires_grad=True)

    def step() -> None:
        rows, columns = layer.position_factors((side, side))
        products(rows.to(kind), columns.to(kind), values.transpose(1, 2)).contiguous().backward(
            values.detach()
        )
        values.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--cases", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument(
        "--modes", nargs="+", choices=["compiled", "eager"], default=["compiled", "eager"]
    )
    parser.add_argument("--batch", type=int, help="images at a time, instead of each case's own")
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        help="time for each measurement, compiling not counted",
    )
    parser.add_argument(
        "--budget", type=float, default=200.0, help="start nothing after this many seconds"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()

    torch.set_float32_matmul_precision("highest")
    for name in asked.cases:
        if (difference := disagreement(CASES[name], asked.device)) > 1e-4:
            sys.exit(
                f"ours and timm's differ by {difference:.2g} on {name}, so there is nothing to race"
            )
    torch.set_float32_matmul_precision("high")
    race = Race("convit", asked.device, asked.seconds, asked.budget, asked.out)
    for side in (14, 28):
        batch = asked.batch or (128 if asked.device == "cuda" else 4)
        for products, name in ((two_products, "two"), (one_product, "one")):
            race.run(
                f"position {side}x{side}",
                "eager",
                name,
                batch,
                partial(position, products, side, batch, asked.device),
            )
    for name in asked.cases:
        batch = asked.batch or CASES[name].batch[asked.device]
        for mode in asked.modes:
            for ours in (True, False):
                make = contender(ours, CASES[name], asked.device, batch, mode == "compiled")
                race.run(name, mode, "ours" if ours else "timm", batch, make)
    print(f"\n{race.table('two', 'one')}\n\n{race.table('ours', 'timm')}")
    print(f"\nwritten to {race.write()}")


if __name__ == "__main__":
    main()
