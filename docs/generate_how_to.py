"""Draw the pictures of the how-to pages that no other page has.

python docs/generate_how_to.py
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

from PIL import Image

import vitreous
from vitreous.data import subsets
from vitreous.data.contact_sheet import contact_sheet
from vitreous.specimen import drawing

FOLDER = Path(__file__).parent / "how-to"


def draw_photo(path: Path) -> None:
    """Draw what the bundled ViT attends to in a flower, which is drawn sharper than it sees it."""
    photo = vitreous.data.load("world:shapes", split="test", size=8, image=256).images[0]
    content = BytesIO()
    vitreous.show("nano:vit", photo).figure.savefig(content, dpi=110)
    Image.open(content).convert("RGB").save(path, quality=90)


def draw_sheet(path: Path) -> None:
    """Draw a contact sheet of three classes, as `vitreous data --out` does."""
    data = vitreous.data.load("world:shapes", split="test", size=120, image=64)
    sheet = contact_sheet(subsets.first_classes(data, 3))
    sheet.crop((0, 0, sheet.width // 2, sheet.height)).save(path, quality=85)


def draw_anatomy(path: Path) -> None:
    """Draw the bundled ViT and ResNet, as `vitreous anatomy --out` does."""
    names = ("nano:vit", "nano:resnet")
    drawing.save([replace(vitreous.open(name).anatomy, model=name) for name in names], path)


def draw_variance(path: Path) -> None:
    """Draw the figure of the example, with more images than the example has."""
    models = ["nano:vit", "nano:resnet"]
    found = vitreous.inspect(models, "world:shapes", ["variance"], limit=512, device="cpu")
    found["variance"].figure(path)


def main() -> None:
    draws = {
        "show.jpg": draw_photo,
        "images.webp": draw_sheet,
        "open.svg": draw_anatomy,
        "figures.svg": draw_variance,
    }
    for name, draw in draws.items():
        draw(FOLDER / name)
        print(f"{name}: {(FOLDER / name).stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
