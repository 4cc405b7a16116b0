"""Write `recipes.md`: every recipe, the row of the catalogue that it follows, and its main numbers.

    python docs/generate_recipes.py

The page is kept in the repository, and a test compares it with what this file would write.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from vitreous import recipes
from vitreous.config import Recipe

PAGE = Path(__file__).parent / "reference" / "recipes.md"

INTRODUCTION = """# Recipes

A recipe says how a model is trained, as plain values. You can read it, change it, write it to
JSON and load it again.

```python
from vitreous import recipes

recipe = recipes.named("fast")
recipe.epochs, recipe.augment.mixup  # → (100, 1.0)
short = recipe.but(epochs=20, **{"augment.mixup": 0.8, "model.drop_path": 0.0})
recipe.from_json(recipe.to_json()) == recipe  # → True
```

```console
$ vitreous list recipes
fast  `hdv_cifar` for one GPU
```

Each name is a function in `vitreous.recipes`, with one file per paper. Its arguments are what
the paper varies: `dascoli_2021.deit(batch=256)` has the learning rate of that batch. Each file
begins with what we had to approximate.

<!-- Written by docs/generate_recipes.py. -->

A recipe of your own is [a plugin](../how-to/train.md#a-recipe-of-your-own):
`--recipe my_recipe.py:short`.
"""


def length(recipe: Recipe) -> str:
    """Steps, or epochs with those of an extra warm-up in front."""
    if recipe.steps is not None:
        return f"{recipe.steps:,} steps".replace(",", " ")
    return f"{recipe.warmup:g} + {recipe.epochs}" if recipe.warmup_extra else f"{recipe.epochs}"


def row(name: str) -> str:
    recipe = recipes.named(name)
    cells = [
        f"`{name}`",
        recipes.summary(name),
        length(recipe),
        f"{recipe.batch}",
        recipe.optimiser,
        f"{recipe.lr:.4g}",
    ]
    cells += [
        f"{recipe.weight_decay:g}"
        + (", all" if recipe.decay == "all" and recipe.weight_decay else "")
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The whole page, a section for each file."""
    parts = [INTRODUCTION]
    for found in iter_modules(recipes.__path__):
        module = import_module(f"{recipes.__name__}.{found.name}")
        title = (module.__doc__ or "").partition("\n")[0].removesuffix(".")
        names = [
            name
            for name in vars(module)
            if name in recipes.names() and vars(module)[name].__module__ == module.__name__
        ]
        table = [
            "| recipe | what it is | epochs | batch | optimiser | lr | weight decay |",
            "|---|---|---|---|---|---|---|",
        ]
        parts.append("\n".join([f"## {title}", "", *table, *map(row, names)]) + "\n")
    parts.append(
        "Weight decay applies to matrices only (not to one-dimensional parameters, positions and\n"
        "tokens) unless it says *all*.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
