"""Which initialisation did the paper's ViT have? ViT-Ti/4 with two of them, trained with
`hdv_cifar` as published.

    python benchmarks/pilot.py train jax --seeds 0 1 2 --data npz:cifar10 --out pilot
    python benchmarks/pilot.py train timm --seeds 0 1 2 --data npz:cifar10 --out pilot
    python benchmarks/pilot.py measure --data npz:cifar10 --out pilot

`measure` reads the first and the last weights of all and writes the results that Park and Kim's
findings on variance and frequency are about (their Figures 2, 8 and 9), with the accuracies, to
`pilot/measured`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import vitreous
from vitreous import recipes
from vitreous.storage.run_folder import Run
from vitreous.training.seeds import train_seeds

INITS = ("jax", "timm")
PROBES = (
    "variance",
    "fourier",
    "cka",
    "skip_ratio",
    "attention_distance",
    "accuracy",
    "calibration",
)


def train(init: str, seeds: list[int], data: str, out: Path, epochs: int | None) -> None:
    """Networks of one initialisation in one step, 5 + 300 epochs unless told otherwise."""
    recipe = recipes.named("hdv_cifar").but(**{"model.init": init})
    recipe = recipe if epochs is None else recipe.but(epochs=epochs)
    began = time.perf_counter()
    trained = train_seeds("vit_ti/4", data, recipe, seeds=seeds, out=out / init, show=False)
    minutes = (time.perf_counter() - began) / 60
    accuracies = ", ".join(f"{each.accuracy:.2%}" for each in trained)
    print(
        f"{init}, seeds {seeds}: {accuracies} of the test images right, {minutes:.1f} minutes",
        flush=True,
    )


def measure(data: str, out: Path, limit: int) -> None:
    """What one pass over test images shows, before and after training."""
    found = sorted(path.parents[1] for path in out.glob("*/seed-*/weights/final.safetensors"))
    models = [f"run:{run}@{checkpoint}" for run in found for checkpoint in ("initial", "final")]
    inspection = vitreous.inspect(models, data, PROBES, limit=limit)
    inspection.save(out / "measured")
    summary = {f"{run.parent.name} {run.name}": Run(run).records()[-1] for run in found}
    (out / "measured" / "accuracies.json").write_text(json.dumps(summary, indent=1) + "\n")
    frame = inspection["variance"].to_frame()
    print(frame.to_string(max_rows=200))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("train", "measure"))
    parser.add_argument("init", nargs="?", choices=INITS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("pilot"))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--limit", type=int, default=2000)
    chosen = parser.parse_args()
    if chosen.what == "measure":
        measure(chosen.data, chosen.out, chosen.limit)
    elif chosen.init:
        train(chosen.init, chosen.seeds, chosen.data, chosen.out, chosen.epochs)
    else:
        parser.error("train needs an initialisation: jax or timm")


if __name__ == "__main__":
    main()
