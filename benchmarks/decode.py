"""How fast a folder of photographs is loaded, and how much memory that takes.

    python benchmarks/decode.py
    python benchmarks/decode.py --images 5000

50,000 JPEGs of about 500 x 375 pixels and 110 kB become 224 pixels as timm prepares them for a ViT
(shorter side to 248, bicubic, middle). They are crops of two photographs that come with
scikit-learn; 2,000 are different, and the others are hard links to them. All of them are therefore
read from memory, which flatters nobody by much: two cores decode some 60 MB a second, which any
disk delivers.

Processor time of all threads is measured, and divided by two cores it is the time that the target
is about: 4 minutes at most. The time of the clock is given too, with the load of the machine.
Memory is what the process has allocated itself (anonymous pages), sampled while it loads; images
lie in a mapped file. The other contender is torchvision's ImageFolder under a DataLoader with two
processes and the same transform of timm's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import PIL  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from sklearn.datasets import load_sample_image  # noqa: E402
from timm.data.transforms_factory import create_transform  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402

from vitreous.data.framing import Framing  # noqa: E402
from vitreous.data.loading import load  # noqa: E402

CROP = 0.9
CORES = 2
TARGET_S = 240
DISTINCT = 2000
CLASSES = 100
SIZES = ((500, 375), (500, 333), (375, 500), (500, 400))


def make_photos(folder: Path, images: int) -> float:
    """Write the photographs; returns their mean size in bytes."""
    generator = np.random.default_rng(0)
    scenes = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    first: list[Path] = []
    for number in range(images):
        name = folder / f"class{number % CLASSES:03}" / f"{number:06}.jpg"
        name.parent.mkdir(parents=True, exist_ok=True)
        if number >= DISTINCT:
            os.link(first[number % DISTINCT], name)
            continue
        scene, size = scenes[number % 2], SIZES[number % len(SIZES)]
        share = generator.uniform(0.6, 0.95)
        width, height = (int(share * side) for side in scene.size)
        left = int(generator.integers(scene.width - width))
        top = int(generator.integers(scene.height - height))
        picture = scene.crop((left, top, left + width, top + height)).resize(size)
        noisy = np.asarray(picture) + generator.normal(0, 6, (size[1], size[0], 1))
        picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        picture.save(name, quality=95)
        first.append(name)
    return float(np.mean([name.stat().st_size for name in first]))


def load_ours(folder: Path) -> int:
    framing = Framing((224, 224), CROP, "center")
    return len(load(str(folder), framing=framing, statistics=False))


def load_theirs(folder: Path) -> int:
    transform = create_transform(224, interpolation="bicubic", crop_pct=CROP, use_prefetcher=True)
    data = ImageFolder(str(folder), transform)
    loader = DataLoader(data, 64, num_workers=CORES, collate_fn=_stack)
    return sum(len(images) for images in loader)


def _stack(samples: list[Any]) -> torch.Tensor:
    return torch.stack([torch.as_tensor(np.asarray(image)) for image, _ in samples])


CONTENDERS = {"ours": load_ours, "ImageFolder and DataLoader": load_theirs}


def measure(contender: str, folder: Path) -> dict[str, Any]:
    """Load the folder in this process; its children count as well."""
    done, peak = Event(), [0]

    def watch() -> None:
        while not done.wait(0.2):
            peak[0] = max(peak[0], _anonymous_bytes())

    before = _cpu_seconds()
    begun = time.perf_counter()
    watcher = Thread(target=watch)
    watcher.start()
    count = CONTENDERS[contender](folder)
    done.set()
    watcher.join()
    cpu = _cpu_seconds() - before
    return {
        "contender": contender,
        "images": count,
        "cpu_s": cpu,
        "clock_s": time.perf_counter() - begun,
        "ms_per_image": 1000 * cpu / count,
        "peak_mib": peak[0] / 2**20,
    }


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _anonymous_bytes() -> int:
    """Memory that this process has allocated itself, without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def measure_in_new_process(contender: str, folder: Path, cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", contender, "--folder", str(folder)]
    environment = {**os.environ, "VITREOUS_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measure(chosen.only, chosen.folder)))
        return
    load_before = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        photos = Path(place, "photos")
        size = make_photos(photos, chosen.images)
        few = Path(place, "few")
        make_photos(few, min(chosen.images, 4000))
        for contender, folder in (
            ("ours", photos),
            ("ours", few),
            ("ImageFolder and DataLoader", few),
        ):
            rows.append(measure_in_new_process(contender, folder, Path(place, f"cache{len(rows)}")))
            print(json.dumps(rows[-1]))
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": [load_before, os.getloadavg()[0]],
        "versions": {"torch": torch.__version__, "pillow": PIL.__version__},
        "images": chosen.images,
        "distinct": min(DISTINCT, chosen.images),
        "bytes": size,
        "cores": CORES,
        "estimate_s": rows[0]["cpu_s"] / CORES,
        "target_s": TARGET_S,
        "rows": rows,
    }
    file = HERE / "results" / f"decode-cpu-{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(json.dumps(about, indent=1) + "\n")
    print(f"Wrote {file}")


if __name__ == "__main__":
    main()
