"""How long the live explorer takes to answer, by action and model.

    python benchmarks/live.py
    python benchmarks/live.py --models nano:vit --repeats 20

A server runs as `vitreous live` starts it, and a client asks as the page does, over HTTP: each
time is that from the request to the last byte of the answer, by the clock; beside it the processor
time of server and client together, which other work on the machine does not change as much. Random
weights, except for the bundled models. Actions, each with a state that was never asked for before:

    edit     a unit of the unedited model is changed: off, without skip, other attention
    second   another unit is changed on top of that
    slide    noise of another strength, with one unit edited: the whole model runs twice
    image    another image
    click    the attention of all layers and heads for another patch
    stream   norm, spectrum and colours of another unit
    undo     back to the view before

Targets: an edit within 150 ms for ViT-S at 224 pixels on two cores, and within 30 ms for the
bundled models; both are those of the median. A click runs no model.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import os
import platform
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import timm
import torch

from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import Running, start

HERE = Path(__file__).parent
MODELS = (
    "nano:vit", "nano:resnet", "vit_small_patch16_224", "swin_tiny_patch4_window7_224",
    "convnext_tiny", "resnet50",
)  # fmt: skip
TARGETS_MS = {"nano:": 30, "vit_small_patch16_224": 150}
State = dict[str, Any]


class Client:
    """Asks a running server over one connection."""

    def __init__(self, running: Running) -> None:
        self.path = "/" + running.url.split("/", 3)[3]
        self.connection = http.client.HTTPConnection("127.0.0.1", running.port)

    def ask(self, route: str, state: State) -> tuple[float, float]:
        """Milliseconds until the answer is there, by the clock and of all processors."""
        body = json.dumps(state)
        begun, used = time.perf_counter(), time.process_time()
        self.connection.request(
            "POST", f"{self.path}api/{route}", body, {"Content-Type": "application/json"}
        )
        answer = self.connection.getresponse()
        content = answer.read()
        clock, processor = time.perf_counter() - begun, time.process_time() - used
        if answer.status != 200:
            raise RuntimeError(f"{route}: {answer.status} {content[:200]!r}")
        return 1000 * clock, 1000 * processor


def edits_of(running: Running) -> list[State]:
    """Every edit that the model can take, but for the mean, which needs the dataset first."""
    possible = running.explorer.models[0].possible
    return [
        {"model": 0, "unit": unit, "what": what}
        for unit, whys in possible.items()
        for what, why in whys.items()
        if not why and what != "mean"
    ]


def measure(model: str, repeats: int, draw: random.Random) -> list[dict[str, Any]]:
    """The times of all actions on one model."""
    running = start(open_explorer(model, limit=32, device="cpu"))
    client, edits = Client(running), edits_of(running)
    units = [unit.name for unit in running.explorer.models[0].subject.specimen.units if unit.grid]
    client.ask("view", {"image": "d0"})
    client.ask("attention", {"image": "d0"})
    gc.collect()
    gc.freeze()  # as the command does
    times: dict[str, list[tuple[float, float]]] = {}

    def ask(action: str, route: str, state: State) -> None:
        times.setdefault(action, []).append(client.ask(route, state))

    draw.shuffle(edits)
    pairs = [draw.sample(edits, 2) for _ in range(repeats)]
    for edit in edits[:repeats]:
        ask("edit", "view", {"image": "d0", "edits": [edit]})
    for number, pair in enumerate(pairs):
        client.ask("view", {"image": "d0", "edits": pair[:1]})
        ask("second", "view", {"image": "d0", "edits": pair})
        ask("undo", "view", {"image": "d0", "edits": pair[:1]})
        noise = {"frequency": 0.5, "width": 0.2, "strength": 0.1 + number / 1000}
        ask("slide", "view", {"image": "d0", "edits": pair[:1], "changes": {"noise": noise}})
        place = [draw.random(), draw.random()]
        ask("click", "attention", {"image": "d0", "edits": pair[:1], "query": place})
        unit = {"model": 0, "name": units[number % len(units)]}
        ask("stream", "stream", {"image": "d0", "unit": unit})
    for number in range(1, min(repeats, 31)):
        ask("image", "view", {"image": f"d{number}"})
    running.stop()
    gc.unfreeze()
    rows = []
    for action, found in times.items():
        clock, processor = zip(*found, strict=True)
        rows.append({
            "model": model, "action": action, "median_ms": median(clock),
            "p95_ms": quantiles(clock, n=20)[-1], "min_ms": min(clock),
            "cpu_median_ms": median(processor), "n": len(found),
        })  # fmt: skip
        print(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--repeats", type=int, default=40)
    chosen = parser.parse_args()
    load_before, draw = os.getloadavg()[0], random.Random(0)
    rows = [row for model in chosen.models for row in measure(model, chosen.repeats, draw)]
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": [load_before, os.getloadavg()[0]],
        "versions": {"torch": torch.__version__, "timm": timm.__version__},
        "targets_ms": TARGETS_MS,
        "rows": rows,
    }
    file = HERE / "results" / f"live-cpu-{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(json.dumps(about, indent=1) + "\n")
    print(f"Wrote {file}")


if __name__ == "__main__":
    main()
