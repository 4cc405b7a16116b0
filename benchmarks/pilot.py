"""Which initialisation did the paper's ViT have? ViT-Ti/4 with two of them, trained with `hdv_cifar` as published.

    python benchmarks/pilot.py train jax --data npz:cifar10 --out pilot
    python benchmarks/pilot.py train timm --data npz:cifar10 --out pilot    # side by side on one GPU, or one by one
    python benchmarks/pilot.py measure --data npz:cifar10 --out pilot

`measure` reads the first and the last weights of both and writes the results that Park and Kim's findings on variance
and frequency are about (their Figures 2, 8 and 9), with the accuracies, to `pilot/measured`.
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
from vitreous.store import Run

INITS = ("jax", "timm")
PROBES = ("variance", "fourier", "cka", "skip_ratio", "attention_distance", "accuracy", "calibration")


def train(init: str, data: str, out: Path, epochs: int | None) -> None:
    """One network, 5 + 300 epochs unless told otherwise."""
    recipe = recipes.named("hdv_cifar").but(**{"model.init": init})
    recipe = recipe if epochs is None else recipe.but(epochs=epochs)
    began = time.perf_counter()
    trained = vitreous.train("vit_ti/4", data, recipe, out=out / init, seed=0, show=False)
    minutes = (time.perf_counter() - began) / 60
    print(f"{init}: {trained.accuracy:.2%} of the test images right, {minutes:.1f} minutes", flush=True)


def measure(data: str, out: Path, limit: int) -> None:
    """What one pass over test images shows, before and after training."""
    found = [init for init in INITS if (out / init / "weights" / "final.safetensors").exists()]
    models = [f"run:{out / init}@{moment}" for init in found for moment in ("initial", "final")]
    inspection = vitreous.inspect(models, data, PROBES, limit=limit)
    inspection.save(out / "measured")
    summary = {init: Run(out / init).records()[-1] for init in found}
    (out / "measured" / "accuracies.json").write_text(json.dumps(summary, indent=1) + "\n")
    frame = inspection["variance"].to_frame()
    print(frame.to_string(max_rows=200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "measure"))
    parser.add_argument("init", nargs="?", choices=INITS)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, default=Path("pilot"))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--limit", type=int, default=2000)
    chosen = parser.parse_args()
    if chosen.what == "measure":
        measure(chosen.data, chosen.out, chosen.limit)
    elif chosen.init:
        train(chosen.init, chosen.data, chosen.out, chosen.epochs)
    else:
        parser.error("train needs an initialisation: jax or timm")


if __name__ == "__main__":
    main()
