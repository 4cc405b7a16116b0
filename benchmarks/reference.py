"""Does our training learn what an independent loop learns? One model, one recipe, two loops, the
same test images.

ours    `vitreous.train` timm    torchvision's crop and flip, timm's RandAugment and Mixup, torch's
AdamW, a cosine by hand; no line of ours
        but the model and the data

    python benchmarks/reference.py --data npz:cifar10 --model resnet_18 --epochs 30
    python benchmarks/reference.py --data npz:cifar10 --model preresnet_nano --size 10000 \\
        --batch 128 --epochs 8

Prints test accuracy and NLL_train of every epoch, and writes both to a dated file. Seeds differ in
what they draw, so agreement is within the spread over `--seeds`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image
from timm.data import Mixup
from timm.data.auto_augment import rand_augment_transform
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import recipes
from vitreous.config import Recipe
from vitreous.data import Dataset, load
from vitreous.models import build
from vitreous.training.evaluate import evaluate
from vitreous.training.loop import train

Curve = list[dict[str, float]]


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images through torchvision's and timm's transforms, one at a time."""

    def __init__(self, data: Dataset, recipe: Recipe) -> None:
        self.pixels, self.labels = (
            data.images.permute(0, 2, 3, 1).contiguous().numpy(),
            data.labels.tolist(),
        )
        side = data.image[0]
        fill = tuple(round(255 * level) for level in data.mean)
        steps: list[Any] = [
            T.RandomCrop(side, recipe.augment.padding),
            T.RandomHorizontalFlip(recipe.augment.flip),
        ]
        if recipe.augment.randaugment:
            hints = {"translate_const": int(side * 0.45), "img_mean": fill}
            steps.append(rand_augment_transform(recipe.augment.randaugment, hints))
        self.transform = T.Compose([*steps, T.ToTensor(), T.Normalize(data.mean, data.std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def seeded(worker: int) -> None:
    """timm's RandAugment draws from `random` and numpy, which every worker would otherwise begin
    alike."""
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what timm draws from


def batches(data: Dataset, recipe: Recipe, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Epoch after epoch, mixed as the recipe says."""
    a = recipe.augment
    mix = Mixup(
        a.mixup, a.cutmix, prob=a.mix_prob, switch_prob=a.switch_prob, label_smoothing=a.smoothing,
        num_classes=len(data.classes),
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(
        Pictures(data, recipe), recipe.batch, shuffle=True, drop_last=True, num_workers=workers,
        persistent_workers=workers > 0, worker_init_fn=seeded, pin_memory=torch.cuda.is_available(),
    )  # fmt: skip
    while True:
        for images, labels in loader:
            if torch.cuda.is_available():
                images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            yield mix(images, labels)


def lr_at(step: int, per_epoch: int, recipe: Recipe) -> float:
    """Linear warm-up before the epochs, then a cosine that moves once an epoch (D1)."""
    warm = round(recipe.warmup * per_epoch)
    if step < warm:
        return recipe.lr * step / warm
    return recipe.lr * (1 + math.cos(math.pi * ((step - warm) // per_epoch) / recipe.epochs)) / 2


def theirs(
    name: str, data: Dataset, test: Dataset, recipe: Recipe, seed: int, workers: int, device: str
) -> Curve:
    """The loop without us."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    model: nn.Module = (
        build(name, image=data.image, classes=len(data.classes), **recipe.model).to(device).train()
    )
    run = torch.compile(model) if device == "cuda" else model
    optimiser = torch.optim.AdamW(model.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    source, per_epoch, curve = batches(data, recipe, workers), len(data) // recipe.batch, []
    for epoch in range(round(recipe.warmup) + recipe.epochs):
        total = torch.zeros((), device=device)
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            images, targets = next(source)
            for group in optimiser.param_groups:
                group["lr"] = lr_at(step, per_epoch, recipe)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = nn.functional.cross_entropy(run(images), targets)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip or math.inf)
            optimiser.step()
            total += loss.detach()
        found = evaluate(model, test)
        curve.append(
            {
                "epoch": epoch + 1,
                "train_nll": total.item() / per_epoch,
                "accuracy": 1 - found["test_error"],
            }
        )
        print(f"  timm  {curve[-1]}", flush=True)
    return curve


def ours(name: str, data: Dataset, test: Dataset, recipe: Recipe, seed: int, device: str) -> Curve:
    """`vitreous.train`, which needs a folder."""
    with tempfile.TemporaryDirectory() as folder:
        trained = train(
            name, data, recipe, test=test, out=folder, seed=seed, device=device, show=False
        )
    return [
        {"epoch": each["epoch"], "train_nll": each["train_nll"], "accuracy": 1 - each["test_error"]}
        for each in trained.records[1:]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet_18")
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--warmup", type=float, default=2)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = recipes.named(chosen.recipe).but(
        epochs=chosen.epochs, warmup=chosen.warmup, keep="none"
    )
    recipe = recipe.but(batch=chosen.batch) if chosen.batch else recipe
    data, test = load(chosen.data, size=chosen.size), load(chosen.data, split="test")
    runs: dict[str, list[Curve]] = {"ours": [], "timm": []}
    for seed in range(chosen.seeds):
        runs["ours"].append(ours(chosen.model, data, test, recipe, seed, device))
        print(f"  ours  {runs['ours'][-1][-1]}", flush=True)
        runs["timm"].append(theirs(chosen.model, data, test, recipe, seed, chosen.workers, device))
    for name, curves in runs.items():
        print(name, [round(curve[-1]["accuracy"], 4) for curve in curves])
    date = datetime.now(UTC).date().isoformat()
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"reference-{device}-{chosen.model.replace('/', '_')}-{date}.json"
    about = {
        "model": chosen.model,
        "recipe": recipe.to_json(),
        "images": len(data),
        "torch": torch.__version__,
    }
    path.write_text(json.dumps({**about, **runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
