"""Draw `reference/probes/NAME.svg` for every probe: its first picture, of models that come with the
package.

    python docs/generate_probes.py
    python docs/generate_probes.py variance cka

Bundled models on the embedded world, with a fixed seed, so that the pictures of the manual are what
anybody gets. A probe that says more about other models than the usual ones has them in MODELS.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import vitreous
from vitreous.measure import probes

FOLDER = Path(__file__).resolve().parent / "reference" / "probes"
USUAL = ("nano:vit", "nano:resnet", "nano:convit")
ATTENDING = ("nano:vit", "nano:convit", "nano:swin")
MODELS: dict[str, tuple[str, ...]] = {
    "attention_distance": ATTENDING,
    "attention_entropy": ATTENDING,
    "attention_maps": ATTENDING,
    "head_diversity": ATTENDING,
    "nonlocality": ATTENDING,
    "rollout": ("nano:vit", "nano:convit", "nano:vit_gap"),
    "accuracy": ("nano:vit", "nano:resnet", "nano:vit@warmup"),
    "calibration": ("nano:vit", "nano:resnet", "nano:vit@warmup"),
    "cka": ("nano:vit", "nano:resnet"),
    "local_heads": ("nano:vit", "nano:resnet", "nano:alternet"),
    "localisation": ("nano:vit", "nano:resnet"),
    "position_similarity": ("nano:vit", "nano:convit"),
}
IMAGES = 512
LARGEST = 150_000
"""Bytes of a picture."""


def draw(names: list[str]) -> None:
    """Ask together what is asked of the same models, and write the pictures."""
    for models in dict.fromkeys(MODELS.get(name, USUAL) for name in names):
        together = [name for name in names if MODELS.get(name, USUAL) == models]
        found = vitreous.inspect(
            list(models), "world:shapes", together, limit=IMAGES, device="cpu", seed=0
        )
        for name in together:
            path = found[name].figure(FOLDER / f"{name}.svg")
            if (
                path.stat().st_size > LARGEST
            ):  # a heat-map says every number twice; the page has words for it
                path.write_text(re.sub(r' aria-[a-z]+="[^"]*"', "", path.read_text()))
            size = path.stat().st_size
            print(f"{path.name}: {size / 1000:.0f} kB{', too large' if size > LARGEST else ''}")


if __name__ == "__main__":
    draw(sys.argv[1:] or probes.names())
