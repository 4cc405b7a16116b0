"""Put a network of the reproduction into the zoo: its record, and its final weights in bfloat16.

    python benchmarks/zoo.py evidence.zip resnet-seed-0.safetensors.1 resnet-seed-0.safetensors.2
        --as resnet_18

`campaign.py` wrote these files: evidence without weights, and weights in half precision. The result
is a folder of a run, `zoo/resnet_18`, as `vitreous train` writes it; no file is over 16 MB.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from safetensors import safe_open
from safetensors.torch import load

from vitreous.storage.run_folder import Run
from vitreous.studies.packing import RECORDS

ROOT = Path(__file__).parents[1]
LIMIT = 15_000_000
"""Bytes of one file of weights."""


def add(evidence: Path, weights: list[Path], home: Path) -> None:
    """Write the run of a training whose weights `campaign.py` packed."""
    content = b"".join(path.read_bytes() for path in weights)
    home.mkdir(parents=True, exist_ok=True)
    joined = home / "joined.safetensors"
    joined.write_bytes(content)
    with safe_open(joined, "pt") as opened:
        notes = opened.metadata()
    joined.unlink()
    with zipfile.ZipFile(evidence) as archive:
        for name in RECORDS:
            (home / name).write_bytes(archive.read(f"trainings/{notes['training']}/{name}"))
    run = Run(home)
    (home / "weights").mkdir(exist_ok=True)
    run.save_weights(load(content), limit=LIMIT, step=int(notes["step"]))
    last = run.records()[-1]
    print(
        json.dumps({"model": run.identity["model"], "test_accuracy": 1 - last["test_error"]}),
        [path.name for path in run.weights()],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evidence", type=Path)
    parser.add_argument("weights", type=Path, nargs="+", help="one file, or its parts in order")
    parser.add_argument("--as", dest="name", required=True)
    given = parser.parse_args()
    add(given.evidence, given.weights, ROOT / "zoo" / given.name)


if __name__ == "__main__":
    main()
