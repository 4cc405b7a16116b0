"""A loss landscape of 7 x 7 points, 64 images, a ViT of 0.68 M parameters: ours against others, on
one CPU thread.

    python benchmarks/landscape.py
    python benchmarks/landscape.py --device cuda

The peer is loss-landscapes, installed into a folder that is removed afterwards; nothing of this
environment changes. (anatome, the other one people use, is in no package index; what it does, a
deep copy of the model for every point and a forward pass without gradients, stands beside it as
`copy`.) Each has the model and the images at hand. The peer gives the losses; ours is the analysis
piece by piece, with intervals, statistics and table. The time is CPU time. `centre` is how far the
value in the middle of the grid is from the trained model's loss: the peer's grid does not go
through it.

With `--device cuda` the same analysis is timed by the clock, on a grid as it is by default (21 x 21
points), with one point at a time and with copies in one pass, in groups of several sizes; what of a
pass is the host handing out work is said beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import peers

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path[0] = str(
    HERE.parent / "src"
)  # instead of this folder, whose files have the names of what they measure

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

PEERS = ("loss-landscapes", "copy")
TARGET = {"cpu": 1.3, "cuda": 5.0}
POINTS = 7
"""Along each direction; `--points` says otherwise."""

Run = Callable[[], np.ndarray]


def model() -> nn.Module:
    """A ViT on 32 x 32 images. No parameter is all zeros, because the peer divides by their
    norms."""
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    found = VisionTransformer(
        img_size=32, patch_size=4, embed_dim=96, depth=6, num_heads=3, num_classes=10
    )
    for parameter in found.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 1.0, 0.1)
    return found.eval()


def data(count: int) -> Any:
    from vitreous.data.loading import load

    return load("world:shapes", split="train", size=count)


def prepared(images: Tensor) -> Tensor:
    mean, std = (
        torch.tensor(x)[:, None, None] for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    return (images.float() / 255 - mean) / std


def ours(count: int, device: str = "cpu", copies: int = 0) -> Run:
    """The analysis as the engine calls it, on a model that is open."""
    from vitreous.measure.analyses.landscape import Landscape
    from vitreous.measure.analysis import Bench
    from vitreous.measure.probe import Setting
    from vitreous.measure.subject import subjects

    asked = subjects(model(), image=32, device=torch.device(device))
    bench = Bench(Setting(asked, data(count)), 128)
    analysis = Landscape(points=POINTS, copies=copies)

    def run() -> np.ndarray:
        (subject,) = asked
        with analysis.work(subject, bench) as work:
            found = {piece: work(piece) for piece in analysis.pieces(subject, bench)}
        found = {
            piece: {key: value.cpu() for key, value in numbers.items()}
            for piece, numbers in found.items()
        }
        table = analysis.answer({subject.name: found}, asked, bench).table
        return table[table["point"]]["value"].to_numpy().reshape(POINTS, POINTS)

    return run


def loss_landscapes(count: int) -> Run:
    import loss_landscapes as peer
    from loss_landscapes.metrics import Loss

    network, images, labels = model(), prepared(data(count).images), data(count).labels

    def run() -> np.ndarray:
        torch.manual_seed(0)
        loss = Loss(F.cross_entropy, images, labels)
        return np.asarray(
            peer.random_plane(network, loss, 1, POINTS, "filter", deepcopy_model=True)
        )

    return run


def copied(count: int) -> Run:
    network, images, labels = model(), prepared(data(count).images), data(count).labels

    @torch.no_grad()
    def run() -> np.ndarray:
        torch.manual_seed(0)
        names = [name for name, value in network.named_parameters() if value.ndim > 1]
        axes = [{name: _direction(network.get_parameter(name)) for name in names} for _ in range(2)]
        line = np.linspace(-1, 1, POINTS)
        found = np.empty((POINTS, POINTS))
        for i, y in enumerate(line):
            for j, x in enumerate(line):
                moved = copy.deepcopy(network)
                for name in names:
                    moved.get_parameter(name).add_(axes[0][name], alpha=x).add_(
                        axes[1][name], alpha=y
                    )
                found[i, j] = F.cross_entropy(moved(images), labels).item()
        return found

    return run


def _direction(weight: Tensor) -> Tensor:
    drawn = torch.randn_like(weight)
    length = [
        each.flatten(1).norm(dim=1).view(-1, *[1] * (weight.ndim - 1)) for each in (weight, drawn)
    ]
    return drawn * length[0] / length[1]


def measure(name: str, count: int, repeats: int) -> dict[str, Any]:
    """CPU times of some runs after one that does not count, and how far the middle is from the
    trained loss."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1]:
        run = {"ours": ours, "loss-landscapes": loss_landscapes, "copy": copied}[name](count)
        run()
        seconds = []
        for _ in range(repeats):
            began = time.process_time()
            found = run()
            seconds.append(time.process_time() - began)
        with torch.no_grad():
            trained = float(
                F.cross_entropy(model()(prepared(data(count).images)), data(count).labels)
            )
    centre = abs(float(found[POINTS // 2, POINTS // 2]) - trained)
    return {"contender": name, "cpu_s": min(seconds), "all_cpu_s": seconds, "centre": centre}


def race(count: int, repeats: int) -> dict[str, Any]:
    """Each contender in a process of its own, all of them once and then again, because other
    programs run beside."""
    options = ["--images", count, "--repeats", repeats, "--points", POINTS, "--only"]
    with peers.installed(PEERS[:1]) as folder:
        rows = [
            peers.contender(__file__, [*options, name], folder) for name in ("ours", *PEERS) * 2
        ]
    best = {
        name: min(row["cpu_s"] for row in rows if row["contender"] == name)
        for name in ("ours", *PEERS)
    }
    for name, seconds in best.items():
        centre = next(row["centre"] for row in rows if row["contender"] == name)
        print(
            f"  {name:16s} {seconds:6.2f} s  {seconds / best['ours']:5.2f} x ours  centre off by "
            f"{centre:.1e}"
        )
    ratio = min(best[name] for name in PEERS) / best["ours"]
    print(f"  the best of the others takes {ratio:.2f} times as long (target {TARGET['cpu']})")
    return {"rows": rows, "best_cpu_s": best, "ratio": ratio}


def batched(count: int, repeats: int, groups: list[int]) -> dict[str, Any]:
    """On a GPU, by the clock: points one at a time, and copies in one pass, in groups of several
    sizes."""
    seconds: dict[str, float] = {}
    grids: dict[str, np.ndarray] = {}
    for copies in (1, *groups, 0):
        name = {1: "one at a time", 0: "as it chooses"}.get(copies, f"{copies} at a time")
        run = ours(count, "cuda", copies)
        grids[name] = run()
        torch.cuda.reset_peak_memory_stats()
        seconds[name] = min(_clocked(run) for _ in range(repeats))
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(
            f"  {name:16s} {seconds[name]:7.3f} s  {1e3 * seconds[name] / POINTS**2:6.3f} ms a "
            f"point, {peak:.2f} GiB"
        )
        _passes(count, copies or 128)
    single, chosen = seconds["one at a time"], seconds["as it chooses"]
    fixed = _fixed(count)
    apart = max(float(np.abs(grid / grids["one at a time"] - 1).max()) for grid in grids.values())
    print(f"  directions, graph, table and intervals, whatever the group: {fixed:.3f} s")
    print(
        f"  copies are {single / chosen:.2f} times as fast (target {TARGET['cuda']}), "
        f"without what both do {(single - fixed) / (chosen - fixed):.2f} times; "
        f"losses agree to {apart:.1e}"
    )
    return {
        "seconds": seconds, "fixed_s": fixed, "ratio": single / chosen,
        "ratio_of_passes": (single - fixed) / (chosen - fixed), "apart": apart,
        "gpu": torch.cuda.get_device_name(),
    }  # fmt: skip


def _clocked(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


@torch.no_grad()
def _passes(count: int, copies: int) -> None:
    """One pass: how long the host takes to hand out its work, and how long until it is done."""
    from vitreous.measure.curvature.loss import weights
    from vitreous.measure.curvature.parameter_points import scores_at, with_stackable_attention
    from vitreous.measure.subject import subjects

    (subject,) = subjects(model(), image=32, device=torch.device("cuda"))
    images = prepared(data(count).images).cuda()
    specimen = with_stackable_attention(subject.specimen) if copies > 1 else subject.specimen
    moved = {name: value for name, value in weights(specimen).items() if value.ndim > 1}
    if copies > 1:
        moved = {
            name: value.expand(copies, *value.shape).contiguous() for name, value in moved.items()
        }
    handed, done = [], []
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        scores_at(specimen, moved, images, copies if copies > 1 else 0)
        handed.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - began)
    host, whole = 1e3 * min(handed), 1e3 * min(done)
    print(
        f"    a pass of {copies}: {whole:.2f} ms, {whole / copies:.3f} a point; "
        f"handing it out {host:.2f} ms, {host / whole:.0%}"
    )


def _fixed(count: int) -> float:
    """Seconds of an analysis whose passes take no time."""
    from vitreous.measure.analyses import landscape

    grid: Any = vars(landscape)["_Grid"]
    before = grid.losses
    try:
        grid.losses = lambda self, group: torch.rand(
            len(group), len(self.bench.data), 2, dtype=torch.float64
        )
        run = ours(count, "cuda")
        run()
        return min(_clocked(run) for _ in range(3))
    finally:
        grid.losses = before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--points", type=int, default=0, help="along each direction; 7 on a CPU, 21 on a GPU"
    )
    parser.add_argument(
        "--groups", type=int, nargs="*", default=[16, 64], help="copies in one pass to try on a GPU"
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    global POINTS
    POINTS = arguments.points or (21 if arguments.device == "cuda" else 7)
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.images, arguments.repeats)))
        return
    print(f"{POINTS} x {POINTS} points, {arguments.images} images, {arguments.device}")
    sizes = arguments.images, arguments.repeats
    found = batched(*sizes, arguments.groups) if arguments.device == "cuda" else race(*sizes)
    now = datetime.now(UTC)
    record = {
        "race": "landscape", "date": now.isoformat(timespec="seconds"), "device": arguments.device,
        "threads": 1, "machine": platform.machine(), "torch": torch.__version__,
        "python": platform.python_version(),
        "clock": "process_time" if arguments.device == "cpu" else "perf_counter", "points": POINTS,
        "images": arguments.images,
        "parameters": sum(each.numel() for each in model().parameters()),
        "target": TARGET[arguments.device], **found,
    }  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"landscape-{arguments.device}-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
