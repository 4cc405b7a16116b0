"""What do stacked seeds gain? Images per second of whole training steps: one seed, and k seeds in
one step.

    python benchmarks/stack.py --device cuda --model vit_ti/4 --batch 96 --seeds 1 2 4 8

The speed of k seeds is that of all of them together, so the gain over training one after the other
is its ratio to one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from race import Race

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import recipes
from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes
from vitreous.models import build
from vitreous.training.objectives import Classify
from vitreous.training.optim import optimiser
from vitreous.training.stack import Stack, StackedStep
from vitreous.training.step import Step, order

COUNT = 10_000


def images(device: str) -> Dataset:
    """Noise has the cost of photographs."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (COUNT, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset(pixels, torch.arange(COUNT) % 10, tuple("0123456789"), "noise").to(device)


def step(
    name: str,
    batch: int,
    seeds: int,
    device: str,
    recipe: str = "hdv_cifar",
    options: Mapping[str, Any] | None = None,
) -> Callable[[], None]:
    """A training step for one seed, or for several at once."""
    chosen = recipes.named(recipe).but(batch=batch)
    data = images(device)
    precision, compile = ("bf16", True) if device == "cuda" else ("fp32", False)
    made = [
        Classify(build(name, image=32, classes=10, drop_path=0.1, **(options or {})))
        .to(device)
        .train()
        for _ in range(seeds)
    ]
    steps = COUNT // batch
    rows = (
        torch.stack([order(COUNT, steps, batch, 1, seed, 0) for seed in range(seeds)], 1)
        .flatten(1)
        .to(device)
    )
    if seeds == 1:
        working: Step = Step(
            made[0], optimiser(made[0], chosen), data, chosen,
            batch=batch, seed=0, precision=precision, processes=Processes(), compile=compile,
        )  # fmt: skip
    else:
        stack = Stack(made, chosen, torch.zeros(2, 3, 32, 32), torch.full((2, 10), 0.1)).to(device)
        working = StackedStep(
            stack, stack.optimiser(chosen), data, chosen,
            batch=batch, seeds=range(seeds), precision=precision, compile=compile,
        )  # fmt: skip
    count = iter(range(1 << 40))

    def run() -> None:
        number = next(count)
        working(number, rows[number % steps], 1e-4)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", nargs="+", default=["vit_ti/4"])
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    race = Race("stack", chosen.device, chosen.seconds, chosen.budget, chosen.out)
    mode = "compiled" if chosen.device == "cuda" else "eager"
    for name in chosen.model:
        for seeds in chosen.seeds:
            contender = "one seed" if seeds == 1 else f"{seeds} seeds"
            race.run(
                name, mode, contender, seeds * chosen.batch,
                lambda name=name, seeds=seeds: step(name, chosen.batch, seeds, chosen.device),
            )  # fmt: skip
    print(race.write())


if __name__ == "__main__":
    main()
