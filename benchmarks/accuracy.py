"""Train several models with one recipe on one dataset and tabulate what comes out.

    python benchmarks/accuracy.py --data npz:cifar10 --name cifar10 --out results
    python benchmarks/accuracy.py --warm --classes 10  # compile every model once

Every model is a run of its own in `--runs`, so that a second call goes on where the first was
stopped. Out come a table (.md), the same with the recipe (.json) and a line per epoch (.csv). The
first epoch's seconds include compiling.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import recipes
from vitreous.config import Recipe
from vitreous.data import Dataset, load
from vitreous.training.loop import train

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT-Ti/4": ("vit_ti/4", {}),
    "ViT-Ti/4, init timm": ("vit_ti/4", {"model.init": "timm"}),
    "ViT-Ti/4, mean of tokens": ("vit_ti/4", {"model.pool": "gap"}),
    "ViT-Ti/4, mean of tokens, lr 1e-3": ("vit_ti/4", {"model.pool": "gap", "lr": 1e-3}),
    "ViT-Ti/4, mean of tokens, lr 1e-3, no drop path": (
        "vit_ti/4",
        {"model.pool": "gap", "lr": 1e-3, "model.drop_path": 0.0},
    ),
    "ViT-Ti/4, mean of tokens, lr 1.5e-3, no drop path": (
        "vit_ti/4",
        {"model.pool": "gap", "lr": 1.5e-3, "model.drop_path": 0.0},
    ),
    "ViT-Ti/4, mean of tokens, batch 256": ("vit_ti/4", {"model.pool": "gap", "batch": 256}),
    "ConViT-Ti/4": ("convit_ti/4", {}),
    "ResNet-18": ("resnet_18", {}),
    "ResNet-18, lr 2e-3": ("resnet_18", {"lr": 2e-3}),
    "ResNet-18, lr 4e-3": ("resnet_18", {"lr": 4e-3}),
    "AlterNet-18": ("alternet_18", {}),
    "Swin-Ti, patch 2": ("swin_ti", {"model.patch": 2}),
}


def folder(title: str) -> str:
    """A title as the name of a folder: two runs of one architecture differ."""
    return re.sub(r"\W+", "_", title.lower())


def noise(classes: int, count: int, image: int) -> Dataset:
    """Stands for a dataset while compiling."""
    labels = torch.arange(count) % classes
    pixels = torch.randint(0, 256, (count, 3, image, image), dtype=torch.uint8)
    return Dataset(pixels, labels, tuple(map(str, range(classes))), "noise")


def warm(title: str, recipe: Recipe, classes: int, image: int) -> None:
    """A handful of steps on noise, for the compiler's cache."""
    name, changes = MODELS[title]
    data = noise(classes, 4 * recipe.batch, image)
    short = recipe.but(epochs=1, warmup=0.0, keep="none", **changes)
    out = Path("/tmp") / "vitreous-warm" / f"{folder(title)}-{classes}-{time.time_ns()}"
    began = time.perf_counter()
    train(name, data, short, test=data, out=out, show=False)
    print(f"{title}, {classes} classes: {time.perf_counter() - began:.0f} s", flush=True)


def row(title: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the table says of a run."""
    last = records[-1]
    speeds = sorted(each["images_per_second"] for each in records[2:] or records[1:])
    return {
        "model": title,
        "built": {"name": MODELS[title][0], **MODELS[title][1]},
        "epochs": last["epoch"],
        "test_accuracy": 1 - last["test_error"],
        "test_nll": last["test_nll"],
        "train_nll": last["train_nll"],
        "images_per_second": speeds[len(speeds) // 2],
        "seconds": sum(each.get("seconds", 0.0) for each in records),
    }


CURVE = ("epoch", "train_nll", "test_error", "test_nll")


def curve(title: str, records: list[dict[str, Any]]) -> list[list[Any]]:
    """A line per epoch, the first of them before training, when there is no training loss."""
    return [[title, *(_short(each.get(key)) for key in CURVE)] for each in records]


def _short(value: float | None) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | epochs | test accuracy | test NLL | NLL_train | images/s | training |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each['model']} | {each['epochs']} | {each['test_accuracy']:.2%} | "
        f"{each['test_nll']:.3f} | "
        f"{each['train_nll']:.3f} | {each['images_per_second']:,.0f} | {each['seconds']:.0f} s |"
        for each in rows
    ]
    return "\n".join(lines)


def write(
    path: Path, recipe: Recipe, data: Dataset, runs: dict[str, list[dict[str, Any]]], device: str
) -> None:
    rows = [row(title, records) for title, records in runs.items()]
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if device != "cpu" else "cpu",
        "torch": torch.__version__,
        "data": {
            "images": len(data),
            "image": data.image,
            "classes": len(data.classes),
            "print": data.fingerprint,
        },
        "recipe": recipe.to_json(),
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(rows) + "\n")
    with path.with_suffix(".csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["model", *CURVE])
        lines.writerows(line for title, records in runs.items() for line in curve(title, records))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--name", default="table")
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="start no model after so many seconds"
    )
    chosen = parser.parse_args()
    began = time.perf_counter()
    recipe = recipes.named(chosen.recipe)
    recipe = recipe.but(epochs=chosen.epochs) if chosen.epochs else recipe
    if chosen.warm and len(chosen.models) > 1:
        rest = [
            "--warm",
            "--classes",
            str(chosen.classes),
            "--image",
            str(chosen.image),
            "--recipe",
            chosen.recipe,
        ]
        jobs = [
            subprocess.Popen([sys.executable, __file__, *rest, "--models", each])
            for each in chosen.models
        ]
        sys.exit(max(job.wait() for job in jobs))
    if chosen.warm:
        warm(chosen.models[0], recipe, chosen.classes, chosen.image)
        return
    data, test = (
        load(chosen.data, split="train", image=chosen.image),
        load(chosen.data, split="test", image=chosen.image),
    )
    runs: dict[str, list[dict[str, Any]]] = {}
    for title in chosen.models:
        if time.perf_counter() - began > chosen.until:
            break
        name, changes = MODELS[title]
        out = chosen.runs / f"{chosen.name}-{folder(title)}"
        trained = train(name, data, recipe.but(**changes), test=test, out=out, device=chosen.device)
        runs[title] = trained.records
        date = datetime.now(UTC).date().isoformat()
        write(chosen.out / f"{chosen.name}-{recipe.name}-{date}", recipe, data, runs, chosen.device)
        print(f"{row(title, trained.records)}  ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
