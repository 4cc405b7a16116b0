"""Write `nano.md`: the trained models that come with the package, from their cards.

    python docs/generate_nano.py

The page is kept in the repository, and a test compares it with what this file would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.storage.atomic_files import read_json

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "nano.md"
SHELF = ROOT / "src" / "vitreous" / "nano"

INTRODUCTION = """# Trained models in the package

Seven small trained models come with Vitreous, so that you can try things out. Nothing is
downloaded. The weights load in a fraction of a second. Opening a model also reads its graph, which
takes longer the first time in a process.

```python
import vitreous

specimen = vitreous.open("nano:vit")
specimen.anatomy.counts()  # → {'stem': 1, 'attention': 6, 'mlp': 6, 'head': 1}

test = vitreous.data.load("world:shapes", split="test", size=100)
guesses = specimen(test.normalise(test.images)).argmax(-1)
(guesses == test.labels).float().mean() > 0.95  # → tensor(True)

untrained = vitreous.open("nano:vit@initial")  # before the first step
warm = vitreous.open("nano:vit@warmup")  # at the end of the warm-up
```

```console
$ vitreous list models --filter 'nano:*'
nano:alternet
nano:vit_gap
$ vitreous anatomy nano:resnet
```
"""

ENDING = """
Accuracy and NLL are those of the weights in the package (half precision in the
file, single precision when loaded) on the {test_images:,} test images of `{data}`, ten shapes
on natural backgrounds; chance is 10 %. A name without `@` means `final`. Four of the seven make
no mistake on these images, so accuracy cannot rank those four. Labels were smoothed by 0.1: a
model that fits such labels exactly has an NLL of −ln 0.91 = 0.094, and a lower one is not
better.

## How they were trained

[Recipe](recipes.md) `{recipe}`, seed 0: {epochs} epochs of 60,000 images ({images_seen:,}
seen), no augmentation, single precision, on one {device} with torch {torch} ({date}). Other
programs used that GPU, so the times in the records are no benchmark. Each was trained once; one
image in {test_images:,} is 0.05 %.

Each is a complete [run](formats.md#run-folder): `recipe.json`, `metrics.jsonl` with a line per
epoch (with the gates of the ConViT, and the locality of attention of it and the ViTs),
versions, weights. `card.json` has the numbers of the table. To train them again and replace
these:

```
python benchmarks/bundle.py train --runs runs/nano
python benchmarks/bundle.py pack --runs runs/nano
python docs/generate_nano.py
```
"""


def cards() -> list[dict[str, Any]]:
    """What is known of each, with the size of its files."""
    found = []
    for path in sorted(SHELF.glob("*/card.json")):
        size = sum(file.stat().st_size for file in path.parent.glob("weights/*"))
        recipe = read_json(path.parent / "recipe.json")["recipe"]
        changes = {
            key: value for key, value in recipe["model"].items() if key != "drop_path"
        }  # all have that
        found.append({**read_json(path), "size": size, "changes": changes})
    return found


def row(card: dict[str, Any]) -> str:
    cells = [
        f"`nano:{card['name']}`",
        ", ".join(
            [f"`{card['model']}`", *(f"{key} {value}" for key, value in card["changes"].items())]
        ),
        f"{card['parameters'] / 1e3:.0f} k",
        f"{card['size'] / 1e6:.1f} MB",
        f"{card['test_accuracy'] * 100:.2f} %",
        f"{card['test_nll']:.4f}",
        ", ".join(f"`{name}`" for name in card["checkpoints"]),
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The whole page."""
    found = cards()
    environment = read_json(SHELF / found[0]["name"] / "environment.json")
    head = [
        "| name | built from | parameters | weights | accuracy | NLL | checkpoints |",
        "|---|---|---|---|---|---|---|",
    ]
    table = "\n".join([*head, *map(row, found)])
    return f"{INTRODUCTION}\n{table}\n{ENDING.format(**environment, **found[0])}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
