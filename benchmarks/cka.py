"""All-pairs CKA of 50 × 50 layers at 256 images: ours against the packages people use, on one CPU
thread.

    python benchmarks/cka.py
    python benchmarks/cka.py --channels 8 --repeats 1

The peers are installed into a folder that is removed afterwards; nothing of this environment
changes. They are torch_cka (the usual one), cka-pytorch (numpee's CKA.pytorch as a package) and
pytorch-cka, which forms every Gram matrix once, as we do, and keeps all features until then. Each
is asked for the map of one model with itself and for that of two models. Features have been
computed before: the peers' hooks sit on modules that return what they hold, and ours is the probe
as an inspection calls it, intervals and table included. The peers run inside `no_grad`. The time is
CPU time, the error the largest distance from CKA in float64.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import peers

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path[0] = str(
    HERE.parent / "src"
)  # instead of this folder, because a peer has the name of this file

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

PEERS = {"torch_cka": "torch_cka", "cka-pytorch": "cka_pytorch", "pytorch-cka": "cka"}
NEEDED = ("torchmetrics", "lightning", "lightning-utilities", "seaborn")
TARGETS = {"torch_cka": 50.0, "cka-pytorch": 5.0}
CASES = ("one model with itself", "two models")
LAYERS, SIDE = 50, 16


class Block(nn.Module):
    """A residual unit that costs little and whose features have no large mean, which float32
    formulas do not stand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.mix(F.hardtanh(value))


class Tower(nn.Module):
    """A stem, 48 blocks and a head: 50 layers."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Conv2d(3, width, 1, bias=False)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(LAYERS - 2)))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return found


NAMES = ["stem", *(f"blocks.{i}" for i in range(LAYERS - 2)), "head"]


class Given(nn.Module):
    """A layer that returns what it holds."""

    def __init__(self, feature: Tensor) -> None:
        super().__init__()
        self.feature = feature

    def forward(self, images: Tensor) -> Tensor:
        return self.feature


class Replay(nn.Module):
    """The layers of a model that has been computed, by the same names."""

    def __init__(self, features: dict[str, Tensor]) -> None:
        super().__init__()
        self.stem, self.head = Given(features["stem"]), Given(features["head"])
        self.blocks = nn.Sequential(*(Given(features[name]) for name in NAMES[1:-1]))
        self.one = nn.Parameter(torch.ones(()))  # a model has parameters

    def forward(self, images: Tensor) -> Tensor:
        for name in NAMES:
            self.get_submodule(name)(images)
        return images


def models(case: str, channels: int) -> tuple[nn.Module, nn.Module]:
    first = Tower(channels, 0).eval()
    return first, first if case == CASES[0] else Tower(channels, 1).eval()


def features(model: nn.Module, count: int) -> dict[str, Tensor]:
    caught: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        return model.get_submodule(name).register_forward_hook(
            lambda m, i, o: caught.__setitem__(name, o.clone())
        )

    hooks = [hook(name) for name in NAMES]
    model(prepared(pictures(count)))
    for each in hooks:
        each.remove()
    return caught


def pictures(count: int) -> Tensor:
    """Uint8."""
    return torch.randint(
        0,
        256,
        (count, 3, SIDE, SIDE),
        generator=torch.Generator().manual_seed(2),
        dtype=torch.uint8,
    )


def prepared(images: Tensor) -> Tensor:
    mean, std = (
        torch.tensor(x)[:, None, None] for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    return (images.float() / 255 - mean) / std


class Loader:
    """One batch; no list, which a peer takes for several loaders."""

    dataset = "noise"

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield self.images, torch.zeros(len(self.images))


Run = Callable[[], np.ndarray]


def contender(name: str, case: str, channels: int, count: int) -> Run:
    """A function that computes the 50 × 50 matrix."""
    first, second = models(case, channels)
    images = pictures(count)
    if name == "ours":
        return _ours(first, second, images)
    replays = {id(m): Replay(features(m, count)) for m in (first, second)}
    peer = {"torch_cka": _torch_cka, "cka-pytorch": _cka_pytorch, "pytorch-cka": _pytorch_cka}[name]
    return peer(replays[id(first)], replays[id(second)], Loader(prepared(images)))


def _ours(first: nn.Module, second: nn.Module, images: Tensor) -> Run:
    """The probe as an inspection calls it, with features at hand."""
    from vitreous.data.dataset import Dataset
    from vitreous.measure.probe import Batch, Setting
    from vitreous.measure.probes.cka import CKA
    from vitreous.measure.subject import subjects
    from vitreous.specimen.observe import Feature, Sites

    found = _different(first, second)
    given = {name: features(model, len(images)) for name, model in found.items()}
    asked = subjects(
        {name: Tower(1, 0).eval() for name in found}, image=SIDE
    )  # for the names of their units
    labels = torch.full((len(images),), -1)
    data = Dataset(images, labels, (), "noise", "test")

    def run() -> np.ndarray:
        probe, batch = CKA(minibatch=None), Batch(torch.arange(len(images)), images, labels)
        probe.begin(Setting(asked, data))
        probe.start_shard()
        for subject in asked:
            for unit, feature in zip(
                subject.specimen.units, given[subject.name].values(), strict=True
            ):
                probe.update(subject, unit, Sites(out=Feature(feature, None)), batch)
        return _cross(probe.answer(probe.end_shard(batch), asked).table)

    return run


def _different(first: nn.Module, second: nn.Module) -> dict[str, nn.Module]:
    return {"a": first} if second is first else {"a": first, "b": second}


def _cross(table: Any) -> np.ndarray:
    rows = table[(table["model"] == "a") & (table["other_model"] == table["other_model"].iloc[-1])]
    found: np.ndarray = rows["value"].to_numpy().reshape(LAYERS, LAYERS)
    return found


def _torch_cka(first: nn.Module, second: nn.Module, loader: Any) -> Run:
    from torch_cka import CKA

    def run() -> np.ndarray:
        cka = CKA(first, second, "a", "b", NAMES, NAMES, device="cpu")
        with contextlib.suppress(AssertionError):  # that there are NaNs, once all is done
            cka.compare(loader)
        return cka.export()["CKA"].numpy()

    return run


def _cka_pytorch(first: nn.Module, second: nn.Module, loader: Any) -> Run:
    from cka_pytorch.cka import CKACalculator

    def run() -> np.ndarray:
        calculator = CKACalculator(first, second, NAMES, NAMES, hook_recursive=True, verbose=False)
        found = calculator.calculate_cka_matrix(loader, num_epochs=1, epsilon=0.0)
        calculator.reset()
        return found.numpy()

    return run


def _pytorch_cka(first: nn.Module, second: nn.Module, loader: Any) -> Run:
    from cka import compute_cka

    def run() -> np.ndarray:
        return compute_cka(first, second, loader, layers=NAMES, device="cpu", progress=False)[
            0
        ].numpy()

    return run


def truth(case: str, channels: int, count: int) -> np.ndarray:
    """HSIC₁ in float64, from the features that float32 models compute, centred first."""
    grams = []
    for model in models(case, channels):
        for feature in features(model, count).values():
            x = feature.double().flatten(1)
            x = x - x.mean(0)
            k = (x @ x.T).fill_diagonal_(0)
            row = k.sum(0) / (count - 2)
            grams.append(
                (k - row - row[:, None] + row.sum() / (count - 1)).fill_diagonal_(0).flatten()
            )
    left, right = torch.stack(grams[:LAYERS]), torch.stack(grams[LAYERS:])
    return ((left @ right.T) / left.norm(dim=1)[:, None] / right.norm(dim=1)).numpy()


@torch.no_grad()
def measure(name: str, case: str, channels: int, count: int, repeats: int) -> dict[str, Any]:
    """Best CPU time of some runs after one that does not count (torch_cka: of one), and the
    error."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1]:
        run = contender(name, case, channels, count)
        slow = name == "torch_cka"
        found = np.empty(0) if slow else run()
        seconds = []
        for _ in range(1 if slow else repeats):
            began = time.process_time()
            found = run()
            seconds.append(time.process_time() - began)
        error = float(np.nanmax(np.abs(found - truth(case, channels, count))))
    return {
        "contender": name,
        "case": case,
        "cpu_s": min(seconds),
        "all_cpu_s": seconds,
        "error": error,
        "nans": int(np.isnan(found).sum()),
    }


def race(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each contender in a process of its own."""
    sizes = [
        "--channels",
        arguments.channels,
        "--images",
        arguments.images,
        "--repeats",
        arguments.repeats,
    ]
    with peers.installed([*PEERS, *NEEDED]) as folder:
        return [
            peers.contender(
                __file__, [*sizes, "--only", name, "--case", case], folder * (name in PEERS)
            )
            for case, name in product(CASES, ("ours", *PEERS))
        ]


def show(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A table, and what our time is to each peer's."""
    ratios: dict[str, Any] = {}
    for case in CASES:
        each = {row["contender"]: row for row in rows if row["case"] == case}
        ratios[case] = {
            name: round(each[name]["cpu_s"] / each["ours"]["cpu_s"], 2) for name in PEERS
        }
        print(f"\n{LAYERS} x {LAYERS} layers, {case}")
        for name, row in each.items():
            more = f"{ratios[case][name]:7.2f} x ours" if name in PEERS else ""
            goal = f" (target {TARGETS[name]:.0f})" if name in TARGETS else ""
            print(
                f"  {name:12s} {row['cpu_s']:8.2f} s  error {row['error']:.1e}  {row['nans']:4d} "
                f"NaN {more}{goal}"
            )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument(
        "--channels", type=int, default=32, help="features of a layer: 256 times as many"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", default=CASES[0], choices=CASES)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.only:
        sizes = arguments.channels, arguments.images, arguments.repeats
        row = measure(arguments.only, arguments.case, *sizes)
        print(json.dumps(row))
        return
    rows = race(arguments)
    ratios = show(rows)
    now = datetime.now(UTC)
    record = {
        "race": "cka", "date": now.isoformat(timespec="seconds"), "device": platform.machine(),
        "threads": 1, "torch": torch.__version__, "python": platform.python_version(),
        "clock": "process_time", "layers": LAYERS, "images": arguments.images,
        "features": arguments.channels * SIDE**2, "targets": TARGETS, "ratios": ratios,
        "rows": rows,
    }  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"cka-cpu-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
