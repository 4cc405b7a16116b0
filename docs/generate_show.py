"""Draw `docs/how-to/show.jpg`, the picture on the page of `vitreous.show`.

python docs/generate_show.py
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

import vitreous

PICTURE = Path(__file__).parent / "how-to" / "show.jpg"


def main() -> None:
    """Draw what the bundled ViT attends to in a flower, which is drawn sharper than it sees it."""
    photo = vitreous.data.load("world:shapes", split="test", size=8, image=256).images[0]
    content = BytesIO()
    vitreous.show("nano:vit", photo).figure.savefig(content, dpi=110)
    Image.open(content).convert("RGB").save(PICTURE, quality=90)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
