"""Write `corruptions.md` and its picture `corruptions.jpg`: the nineteen corruptions, their
strengths and their look.

    python docs/generate_corruptions.py

The page is kept in the repository, and a test compares it with what this file would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vitreous.data.corruptions import EXTRA, GROUPS, KINDS, corrupt
from vitreous.data.corruptions.published import Corruption
from vitreous.data.frequency import keep_waves, ring
from vitreous.data.random_streams import RandomStreams

PAGE = Path(__file__).parent / "reference" / "corruptions.md"
SIDE = 96

HEAD = """# Corruptions and frequency noise

The fifteen corruptions of CIFAR-10-C and ImageNet-C, the four extra ones, and noise within a
band of frequencies. They are computed in batches, on the device of the images. Nothing is
downloaded.

```python
import torch

from vitreous.data.corruptions import CORRUPTIONS, corrupt

images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
foggy = corrupt(images, "fog", 3)
foggy.shape, foggy.dtype  # → (torch.Size([4, 3, 32, 32]), torch.uint8)
len(CORRUPTIONS)  # → 15
```

Random numbers depend on the seed, the kind, the severity and the number of the image in its
dataset; `first` is the number of the first image of the batch. So batches of any size give the
same images:

```python
torch.equal(corrupt(images[2:], "fog", 3, first=2), foggy[2:])  # → True
```

There are two published sets of strengths, one for 32 pixels (`size="cifar"`) and one for 224
(`size="imagenet"`). Without `size`, images with both sides below 96 pixels get the first.
Lengths are in pixels and are not scaled between the two; only those of `elastic_transform` are
shares of the side.

![Every corruption at severities 1 to 5, beside the clean image](corruptions.jpg)

The rows are those of the table, the first ten on the left; 96 pixels, ImageNet's strengths. The
last row on the right is not a corruption: it shows the bands of the image around 0.1π, 0.3π, … 0.9π
(see below), amplified.

"""

TAIL = """
## How they compare with the originals

Each follows the published definition (Hendrycks and Dietterich 2019). The tests compare it value by
value with an image-by-image version in numpy, scipy and Pillow that uses the same random numbers.
Values are rounded down, as in the originals. These details differ:

- **frost**: the originals are photographs. Ours are five generated panes with the photographs'
  mean, contrast and tint in every channel.
- **motion_blur, snow**: ImageMagick's kernel of motion, applied in floating point.
- **spatter**: exact distances, where the original has an approximation; a lens without a drop
  leaves the image as it is, where the original divides by zero.
- **elastic_transform**: exact interpolation in the first of its two steps, where OpenCV rounds to
  1/32 pixel.
- **glass_blur**: the original means to swap pixels, but copies them. So do we.
- **saturate**: grey has no hue; at severities 4 and 5 it turns red, as in the original.
- ImageNet-C's files were saved as JPEG of quality 85 after everything else. Ours are not.

Severity is a rank, not a distance: `glass_blur`, `elastic_transform`, `saturate` and `spatter` do
not move away from the clean image evenly.

## Noise of one frequency

`band_noise` returns noise to add to images, restricted to a square ring of frequencies (radians
per pixel, up to π):

```python
import math

from vitreous.data.frequency import band_noise, high_pass, low_pass, ring

noise = band_noise((4, 3, 32, 32), 0.5 * math.pi, 0.1)
noisy = images / 255 + noise
ring((32, 32), 0.5 * math.pi).sum()  # → tensor(64)
```

| definition | δ | ring | `strength` is |
|---|---|---|---|
| `"paper"` | normal | frequency ± width / 2, width 0.1π | the RMS of δ, before the ring |
| `"equal"` | normal | the same | the RMS of the noise, after the ring |
| `"released"` | ± strength | a square less a smaller one, ± 0.2 rad | the size of every δ |

In the first and the last a ring that holds more waves is stronger: the root mean square is
`strength` times the root of the ring's share of all waves, `ring(…).float().mean().sqrt()`. The
same square rings filter images:

```python
pictures = images / 255
low, high = low_pass(pictures, 0.3 * math.pi), high_pass(pictures, 0.3 * math.pi)
torch.allclose(low + high, pictures, atol=1e-6)  # → True
```
"""


def page() -> str:
    """The whole page."""
    lines = ["| kind | what it does | 32 pixels | 224 pixels |", "|---|---|---|---|"]
    groups = {name: [each.name for each in group] for name, group in GROUPS.items()} | {
        "extra": list(EXTRA)
    }
    for group, names in groups.items():
        lines.append(f"| *{group}* | | | |")
        lines += [row(KINDS[name]) for name in names]
    return HEAD + "\n".join(lines) + "\n" + TAIL


def row(kind: Corruption) -> str:
    return f"| `{kind.name}` | {kind.what} | {strengths(kind.cifar)} | {strengths(kind.imagenet)} |"


def strengths(five: tuple[tuple[Any, ...], ...]) -> str:
    """From the mildest to the strongest, the numbers of one severity joined by a slash."""
    return ", ".join(
        "/".join(f"{x:.3g}" if not isinstance(x, str) else x for x in each) for each in five
    )


def scene() -> Tensor:
    """A picture, uint8 (3, side, side): a sun and a hill before clouds that have the spectrum of
    photographs."""
    noise = RandomStreams("a scene", 0, 1, torch.device("cpu")).normal(3, SIDE, SIDE)
    fast = torch.fft.fftfreq(SIDE)
    rough = torch.fft.ifft2(
        torch.fft.fft2(noise) / (fast[:, None] ** 2 + fast**2).sqrt().clamp(min=1 / SIDE)
    ).real[0]
    rough = (rough - rough.mean()) / rough.std()
    y, x = torch.meshgrid(*[torch.linspace(0, 1, SIDE)] * 2, indexing="ij")

    def colour(*values: float) -> Tensor:
        return torch.tensor(values)[:, None, None]

    picture = colour(0.45, 0.66, 0.85) - 0.25 * y + 0.08 * rough[:1]
    sun = (x - 0.7) ** 2 + (y - 0.28) ** 2 < 0.02
    picture = torch.where(sun, colour(0.98, 0.78, 0.25), picture)
    hill = y > 0.62 - 0.22 * torch.exp(-((x - 0.3) ** 2) / 0.03) + 0.01 * rough[1]
    picture = torch.where(hill, colour(0.25, 0.45, 0.2) + 0.07 * rough[1:2], picture)
    house = ((x - 0.72).abs() < 0.12) & (y > 0.5) & (y < 0.78)
    picture = torch.where(house, colour(0.75, 0.3, 0.22) + 0.03 * rough[2:], picture)
    window = (
        ((x - 0.72).abs() % 0.12 < 0.075)
        & ((x - 0.72).abs() > 0.03)
        & (y > 0.57)
        & (y < 0.66)
        & house
    )
    picture = torch.where(window, colour(0.95, 0.93, 0.8), picture)
    return (picture.clamp(0, 1) * 255).byte()


def picture() -> Image.Image:
    """The scene and its corruptions: a row for each kind, in two columns."""
    clean = scene()
    rows = [
        torch.cat([clean, *(corrupt(clean[None], k, s)[0] for s in range(1, 6))], 2) for k in KINDS
    ]
    bands = [ring((SIDE, SIDE), f * torch.pi) for f in (0.1, 0.3, 0.5, 0.7, 0.9)]
    rows.append(
        torch.cat(
            [
                clean,
                *(
                    (keep_waves(clean / 255, b) * 3 + 0.5).clamp(0, 1).mul(255).byte()
                    for b in bands
                ),
            ],
            2,
        )
    )
    half = len(rows) // 2
    sheet = torch.cat([torch.cat(rows[:half], 1), torch.cat(rows[half:], 1)], 2)
    return Image.fromarray(sheet.permute(1, 2, 0).contiguous().numpy())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    picture().save(PAGE.with_suffix(".jpg"), quality=60, optimize=True)
