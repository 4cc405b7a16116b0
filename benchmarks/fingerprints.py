"""Fingerprints of every number the package computes, to prove that a refactoring changes none of
them.

    python benchmarks/fingerprints.py --out before.json                # some minutes on one core
    python benchmarks/fingerprints.py --out after.json --only probes analyses
    python benchmarks/fingerprints.py --compare before.json after.json

A fingerprint is the SHA-256 of a column's values, floats by their bits: one for each column of
every probe and analysis, for weights and metrics of short trainings, for units and logits of
models, for datasets, exact identities and verdicts. Bits depend on the machine and its libraries
too, so run both commits on the same one. `PYTHONPATH=/path/to/checkout/src` runs the package of
another commit; only public names are used, so that old commits work as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).resolve().parents[1]
if "PYTHONPATH" not in os.environ:
    sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402

import vitreous  # noqa: E402
from vitreous.config import Augment, Recipe  # noqa: E402

Prints = Iterator[tuple[str, str]]
NANO = ["nano:vit", "nano:convit", "nano:resnet", "nano:alternet"]
TIMED = {"cost": {"value", "low", "high", "batch"}}
"""Columns of results that hold seconds."""
TIMED_METRICS = {"seconds", "images_per_second"}
ANALYSES: dict[str, dict[str, Any]] = {
    "adversarial": {"epsilons": (1, 8), "steps": 2},
    "band_noise": {"frequencies": (0.2, 0.8), "drop": 0.25},
    "corruption": {"severities": (3,)},
    "cue_conflict": {},
    "ensemble": {"others": ("nano:vit@warmup",)},
    "erf": {"positions": ("centre",)},
    "frequency_pass": {"cutoffs": (0.2, 0.6)},
    "hessian": {"size": 8, "top": 2, "tolerance": 0.03},
    "landscape": {"points": 3},
    "lesion": {},
    "linear_probe": {"shots": (1,)},
    "mc_dropout": {"passes": (1, 2), "rate": 0.1},
    "occlusion": {"grids": (4, 8), "shares": (0.25, 0.75)},
    "similarity_to": {"to": "nano:vit@warmup"},
    "trajectory": {},
}
"""All analyses, with options that make them quick."""
TASKS = ["shapes", "textures", "colours", "cues", "conflict", "syn-a:shape", "syn-b", "syn-e"]
FAMILIES = ["vit", "convit", "alternet", "preresnet", "mixer", "swin", "pit"]
TIMM = ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "convnext_atto", "resnet18"]
TIMM += ["efficientvit_b0", "mobilenetv3_small_050", "mixer_s32_224", "levit_128s"]
MIXED: dict[str, Any] = {
    "randaugment": "rand-m9-n2-mstd0.5",
    "erasing": 0.25,
    "mixup": 0.8,
    "cutmix": 1.0,
}
TRAININGS = {
    "vit_nano": Recipe(
        epochs=2, batch=64, warmup=0.5, clip=1.0, ema=0.9, model={"drop_path": 0.1},
        augment=Augment(crop="resized", jitter=0.3, smoothing=0.1, repeats=2, **MIXED),
    ),
    "convit_nano": Recipe(epochs=2, batch=48, warmup=0.5, augment=Augment(padding=2)),
    "preresnet_nano": Recipe(epochs=1, batch=64, optimiser="sgd", lr=0.1, warmup=0.0, sam=0.05),
}  # fmt: skip
JUDGED = [
    *("verdict", "effect", "value", "low", "high", "null", "threshold"),
    *("trainings", "outcome", "data", "scale"),
]
"""Columns of the table of verdicts that hold no words, which may change."""


def sha(values: Any) -> str:
    """Of an array's or column's values, with their type; floats by their bits, NaNs all alike."""
    array = np.asarray(values)
    if array.dtype.kind in "OUT":
        raw = json.dumps([str(value) for value in array.ravel()]).encode()
    elif array.dtype.kind == "f":
        raw = np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()
    else:
        raw = np.ascontiguousarray(array).tobytes()
    kind = "text" if array.dtype.kind in "OUT" else str(array.dtype)
    return hashlib.sha256(f"{kind}{array.shape}".encode() + raw).hexdigest()[:16]


def sha_weights(model: torch.nn.Module) -> str:
    state = model.state_dict()
    return sha([f"{name} {sha(value.numpy())}" for name, value in sorted(state.items())])


def sha_units(specimen: vitreous.Specimen) -> str:
    return sha([str(replace(unit, reason="")) for unit in specimen.anatomy])


def of_result(result: vitreous.Result, prefix: str) -> Prints:
    """Every column, picture and set of replicates of a result."""
    name = f"{prefix}/{result.name}"
    for column in result.table.columns:
        if column not in TIMED.get(result.name, ()):
            yield f"{name}.{column}", sha(result.table[column].to_numpy())
    for key, array in result.arrays.items():
        yield f"{name}[{key}]", sha(array)
    for column in getattr(result, "replicates", {}):  # commits before 4a8fe81 have none
        if column not in TIMED.get(result.name, ()):
            yield f"{name}~{column}", sha(result.draws(column))


def of_inspection(found: vitreous.Inspection, prefix: str) -> Prints:
    for name in sorted(found):
        yield from of_result(found[name], prefix)
    for name in sorted(found.left_out):
        yield f"{prefix}/{name} left out of", sha(sorted(found.left_out[name]))


def probes() -> Prints:
    """All probes in two shards, the second smaller than the first."""
    data = vitreous.data.load("world:shapes", split="test", size=96)
    found = vitreous.inspect(NANO, data, shard=64, batch=48, device="cpu")
    yield from of_inspection(found, "probes")


def analyses() -> Prints:
    splits = {
        split: vitreous.data.load("world:shapes", split=split, size=24)
        for split in ("train", "test")
    }
    found = vitreous.analyse(["nano:vit", "nano:resnet"], splits, ANALYSES, batch=16, device="cpu")
    yield from of_inspection(found, "analyses")


def trainings() -> Prints:
    """Weights at the end, and all metrics but the clock's."""
    data, test = (vitreous.data.load("world:shapes", split=s, size=256) for s in ("train", "test"))
    for name, recipe in TRAININGS.items():
        with tempfile.TemporaryDirectory() as folder:
            trained = vitreous.train(
                name, data, recipe, test=test, out=Path(folder) / "run", device="cpu", show=False
            )
        yield f"trainings/{name} weights", sha_weights(trained.model)
        records = pd.DataFrame(trained.records)
        for column in sorted(set(records.columns) - TIMED_METRICS):
            yield f"trainings/{name}.{column}", sha(records[column].to_numpy())


def models() -> Prints:
    """Initial weights and logits of our models, and the units of those and of timm's."""
    for name in FAMILIES:
        torch.manual_seed(0)
        model = vitreous.build(f"{name}_nano", image=32, classes=10).eval()
        yield f"models/{name} weights", sha_weights(model)
        with torch.no_grad():
            yield f"models/{name} logits", sha(model(torch.randn(2, 3, 32, 32)).numpy())
        yield f"models/{name} units", sha_units(vitreous.open(model, image=32))
    for name in TIMM:
        yield f"models/{name} units", sha_units(vitreous.open(name))


def data() -> Prints:
    for task in TASKS:
        found = vitreous.data.load(f"world:{task}", split="test", size=32)
        yield f"data/world:{task}", sha(found.images.numpy())
        yield f"data/world:{task} labels", sha(found.labels.numpy())


def identities() -> Prints:
    from vitreous.studies.identities import identities

    yield from of_result(identities(), "identities")


def verdicts() -> Prints:
    """What the claims make of the stored evidence of two studies."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for archive in sorted((ROOT / "results").glob("*.zip")):
        with tempfile.TemporaryDirectory() as folder:
            zipfile.ZipFile(archive).extractall(folder)
            table = Path(folder) / "verdicts.csv"
            command = [
                sys.executable,
                "-m",
                "vitreous",
                "claims",
                "judge",
                folder,
                "--out",
                str(table),
            ]
            subprocess.run(command, check=True, capture_output=True, env=environment)
            rows = pd.read_csv(table, dtype=str, keep_default_na=False)
        for claim, parts in rows.groupby("claim"):
            yield f"verdicts/{archive.stem} {claim}", sha(parts[JUDGED].to_numpy())


SECTIONS: dict[str, Callable[[], Prints]] = {
    each.__name__: each
    for each in (data, models, identities, probes, analyses, trainings, verdicts)
}


def compare(old: Path, new: Path) -> int:
    """Print what differs; the number of differences."""
    before, after = (json.loads(path.read_text())["prints"] for path in (old, new))
    changed = [n for n in sorted({*before, *after}) if before.get(n) != after.get(n)]
    for name in changed:
        kind = "new" if name not in before else "gone" if name not in after else "differs"
        print(f"{kind:8} {name}")
    print(f"{len({*before, *after}) - len(changed)} the same, {len(changed)} not")
    return len(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default="fingerprints.json")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    given = parser.parse_args()
    if given.compare:
        sys.exit(1 if compare(*given.compare) else 0)
    torch.set_num_threads(1)
    prints: dict[str, str] = {}
    for section in given.only:
        began = time.process_time()
        prints |= SECTIONS[section]()
        print(f"{section:12}{time.process_time() - began:6.1f} s", file=sys.stderr)
    source = str(Path(vitreous.__file__).parent)
    given.out.write_text(json.dumps({"source": source, "prints": prints}, indent=1))


if __name__ == "__main__":
    main()
