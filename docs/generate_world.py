"""Draw docs/reference/world.png, the picture of the embedded world: five rows of scenes and one of
each of SYN-A to SYN-E.

python docs/generate_world.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from vitreous.data import world

PICTURE = Path(__file__).parent / "reference" / "world.png"
COLUMNS, SCALE = 11, 2
STEP = 8  # of the shades that are kept: half of the file's size, and not seen
ROWS = (*["shapes"] * 4, "conflict", "syn-a:shape", "syn-b", "syn-c", "syn-d", "syn-e")


def row(task: str, start: int) -> Tensor:
    """Images side by side with a gap of one pixel, (3, height, width)."""
    images = world.load(task, size=start + COLUMNS, split="test").images[start:]
    return torch.cat(list(nn.functional.pad(images, (0, 1, 0, 1), value=255)), 2)


def main() -> None:
    pixels = torch.cat(
        [row(task, COLUMNS * ROWS[:place].count(task)) for place, task in enumerate(ROWS)], 1
    )
    coarse = pixels // STEP * STEP + STEP // 2
    picture = Image.fromarray(coarse[:, :-1, :-1].permute(1, 2, 0).contiguous().numpy())
    picture.resize((SCALE * picture.width, SCALE * picture.height), Image.Resampling.NEAREST).save(
        PICTURE, optimize=True
    )
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
