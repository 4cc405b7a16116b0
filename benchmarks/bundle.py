"""The small models of the package: train them, pack them into it, and look deeper than `make demo`
has time for.

    python benchmarks/bundle.py train --runs runs/nano  # a few minutes on one GPU
    python benchmarks/bundle.py pack --runs runs/nano   # into src/vitreous/nano, half precision
    python benchmarks/bundle.py deep --runs runs/deep   # into src/vitreous/report/nano; 15 minutes

The recorded accuracy is that of the packed weights, measured on a CPU in single precision.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import recipes
from vitreous.data import load
from vitreous.measure.engine import analyse
from vitreous.measure.inspection import Inspection
from vitreous.models import loading
from vitreous.storage.run_folder import Run
from vitreous.training.evaluate import evaluate
from vitreous.training.loop import train

DATA, SIZE = "world:shapes", 60_000
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("vit_nano", {"model.depth": 6}),
    "vit_gap": ("vit_nano", {"model.depth": 6, "model.pool": "gap"}),
    "convit": ("convit_nano", {"model.depth": 6, "model.gpsa": 5}),
    "resnet": ("preresnet_nano", {}),
    "alternet": ("alternet_nano", {}),
    "swin": ("swin_nano", {}),
    "mixer": ("mixer_nano", {}),
}
WHOLE = ("vit", "resnet")
"""Those that come with their initial and their warmed-up weights too."""

KEPT = ("initial", "warmup", "final")
ENVIRONMENT = (
    "vitreous",
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "safetensors",
    "python",
    "device",
)
FEW = 500
"""The first images of the test split, which the tests of the package look at; all of them take half
a minute."""

SHELF = Path(__file__).parents[1] / "src" / "vitreous" / "nano"
DEEP = SHELF.parent / "report" / "nano"
CHECKPOINTS = ("nano:vit", "nano:vit@warmup", "nano:resnet", "nano:resnet@warmup")
ASKED: dict[str, tuple[int, dict[str, Any]]] = {
    "hessian": (128, {"recipe": "nano"}),
    "landscape": (128, {"points": 15}),
    "lesion": (512, {}),
}
"""Question: how many images, and its options."""


def train_one(name: str, folder: Path, epochs: int | None, size: int, device: str) -> None:
    model, changes = MODELS[name]
    recipe = recipes.named("nano").but(**changes, **({"epochs": epochs} if epochs else {}))
    data, test = load(DATA, size=size), load(DATA, split="test")
    trained = train(
        model, data, recipe, test=test, out=folder / name, device=device, compile=False, show=False
    )
    last = trained.records[-1]
    print(f"{name}: {trained.accuracy:.2%}, {last['images_per_second']:,.0f} images/s", flush=True)


def pack_one(name: str, folder: Path) -> dict[str, Any]:
    """Copy the record, round the weights to half precision, and measure what they are worth."""
    run, shelf = Run(folder / name), Run(SHELF / name)
    shutil.rmtree(shelf.folder, ignore_errors=True)
    (shelf.folder / "weights").mkdir(parents=True)
    for file in ("recipe.json", "metrics.jsonl"):
        shutil.copy(run.folder / file, shelf.folder / file)
    shelf.write("environment.json", environment(run))
    for checkpoint in (
        [each for each in run.checkpoints() if each in KEPT] if name in WHOLE else ["final"]
    ):
        tensors, notes = run.read_weights(checkpoint)
        half = {
            key: value.half() if value.is_floating_point() else value
            for key, value in tensors.items()
        }
        shelf.save(f"weights/{checkpoint}.safetensors", half, step=notes["step"])
    written = card(name, shelf)
    shelf.write("card.json", written)
    return written


def environment(run: Run) -> dict[str, str]:
    """Versions, device and day; the command and the machine it ran on say nothing to a reader."""
    whole = json.loads((run.folder / "environment.json").read_text(encoding="utf-8"))
    return {key: whole[key] for key in ENVIRONMENT} | {"date": whole["started"][:10]}


def card(name: str, shelf: Run) -> dict[str, Any]:
    """What the packed model is, with its error and NLL on the whole test split and on the first few
    images of it."""
    identity, model = shelf.identity, loading.model_of_run(shelf)
    recipe, few = identity["recipe"], load(DATA, split="test", size=FEW)
    measured = evaluate(model, load(DATA, split="test"))
    return {
        "name": name,
        "model": MODELS[name][0],
        "parameters": sum(p.numel() for p in model.parameters()),
        "checkpoints": shelf.checkpoints(),
        "data": DATA,
        "recipe": recipe["name"],
        "epochs": recipe["epochs"],
        "images_seen": shelf.records()[-1]["step"] * recipe["batch"],
        "test_images": identity["test"]["images"],
        "test_accuracy": round(1 - measured["test_error"], 9),
        **measured,
        "few": {"test_images": FEW, **evaluate(model, few)},
    }


def deep(folder: Path) -> None:
    """Ask what needs many passes, on a CPU, whose numbers anybody gets again."""
    found = Inspection({})
    for name, (limit, options) in ASKED.items():
        found |= analyse(CHECKPOINTS, DATA, {name: options}, limit=limit, device="cpu", keep=folder)
    found.save(DEEP)
    print(f"{found}: {DEEP}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "pack", "deep"])
    parser.add_argument("--runs", type=Path, default=Path("runs/nano"))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--device", default="auto")
    chosen = parser.parse_args()
    if chosen.what == "deep":
        torch.set_num_threads(1)
        deep(chosen.runs)
    elif chosen.what == "pack":
        torch.set_num_threads(1)
        for name in chosen.models:
            print(json.dumps(pack_one(name, chosen.runs)))
    else:
        for name in (
            chosen.models
        ):  # one after the other: processes that share a GPU take turns, and each has to start
            train_one(name, chosen.runs, chosen.epochs, chosen.size, chosen.device)


if __name__ == "__main__":
    main()
