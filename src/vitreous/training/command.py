"""What `vitreous train` does with its options before it calls `train`."""

from __future__ import annotations

from typing import Any

from vitreous import recipes
from vitreous.data import load
from vitreous.data.subsets import fraction, iso_samples
from vitreous.models.loading import load as load_model
from vitreous.training.loop import Trained, train
from vitreous.training.options import Options
from vitreous.training.seeds import train_seeds


def run(model: str, options: Options) -> list[Trained]:
    """Recipe, images and teacher by their names, a fraction of the images if asked (A3.11, A3.12), then training."""
    recipe = recipes.named(options.recipe).but(**options.changes())
    how: dict[str, Any] = {"image": options.image, "skip_corrupt": options.skip_corrupt}
    data = load(options.data, size=options.size, **how)
    test = load(options.data, split="test", size=options.test_size, **how)
    if options.fraction != 1:
        data = fraction(data, options.fraction, seed=options.seed)
        if options.iso == "samples":
            recipe = recipe.but(epochs=iso_samples(recipe.epochs, options.fraction))
    shared: dict[str, Any] = {
        "test": test, "out": options.out, "device": options.device, "show": not options.quiet,
        "compile": False if options.no_compile else None,
    }  # fmt: skip
    if options.seeds > 1:
        return train_seeds(model, data, recipe, seeds=range(options.seed, options.seed + options.seeds), **shared)
    name = options.teacher
    teacher = load_model(name, pretrained=not name.startswith(("run:", "nano:"))) if name else None
    one: dict[str, Any] = {"seed": options.seed, "pretrained": options.pretrained, "teacher": teacher}
    return [train(model, data, recipe, **one, **shared)]
