"""The five largest eigenvalues of the Hessian of a ViT with 0.68 M parameters at batch 16: ours
against the packages people use, on one CPU thread; and how long a whole analysis takes on a GPU.

    python benchmarks/hessian.py
    python benchmarks/hessian.py --device cuda

The peers are installed into a folder that is removed afterwards; nothing of this environment
changes. All get the bundled ViT on the same images, and attention that has second derivatives,
which none of them sees to itself. Ours stops when all five residuals |Hx - λx| are at most 1e-3
|λ|; ARPACK has the same as its tolerance; hessian-eigenthings, which takes a number of steps and
says afterwards whether they sufficed, is given the smallest multiple of five that does, found
outside the clock. PyHessian cannot be told a residual: it runs with its own defaults, and the table
says where that led. The number of products depends on the images and on the random start, so every
contender does the same few batches from the same few seeds, and what is compared is the sum. The
time is CPU time; opening the model is not in it, building whatever products need is.

On a GPU: ViT-Ti/4 on images of 32 pixels, 100 batches of 16, five eigenvalues each, augmented, as
`vitreous.analyse` does it, from the opened model to the table.
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
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import peers

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent / "src")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

PEERS = {"PyHessian": 8.0, "curvlinops + ARPACK": 2.0, "hessian-eigenthings": 2.0}
"""How many times our CPU time they should take."""
PACKAGES = ("pyhessian", "curvlinops-for-pytorch", "hessian-eigenthings")
NEEDED = (
    "backpack-for-pytorch",
    "einconv",
    "einops",
    "unfoldNd",
    "linear_operator",
    "jaxtyping",
    "wadler_lindig",
)
TOP, TOLERANCE = 5, 1e-3
BATCHES, SEEDS = 2, 2
GPU_SECONDS = 60.0
Run = Callable[[int], tuple[np.ndarray, int]]
"""Eigenvalues from a seed, and how many products they took."""


def task(batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The bundled ViT on images whose labels are shuffled, so that eigenvalues of both signs are
    among the largest."""
    from vitreous.data import load as load_images
    from vitreous.measure.subject import subjects
    from vitreous.models.loading import load_model

    model, data = (
        load_model("nano:vit"),
        load_images("world:shapes", split="train", size=16 * (batch + 1)),
    )
    order = torch.randperm(16, generator=torch.Generator().manual_seed(batch))
    return model.eval(), subjects(model)[0].prepare(data.images[-16:]), data.labels[-16:][order]


def _ours(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    import vitreous
    from vitreous.measure.curvature.lanczos import extreme
    from vitreous.measure.curvature.loss import Hessian, weights

    specimen = vitreous.open(model)
    given = weights(specimen)

    def run(seed: int) -> tuple[np.ndarray, int]:
        torch.manual_seed(seed)
        hessian = Hessian(specimen, given, images[None], labels[None], len(images))
        found = extreme(hessian, torch.randn(1, sum(hessian.sizes)), TOP, tolerance=TOLERANCE)[0]
        return found.values, found.products

    return run


def _pyhessian(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    pyhessian: Any = import_module("pyhessian")
    inside: Any = sys.modules["pyhessian.hessian"]  # the package gives this name to a class
    product = inside.hessian_vector_product

    def run(seed: int) -> tuple[np.ndarray, int]:
        torch.manual_seed(seed)
        count = 0

        def counted(*given: Any) -> Any:
            nonlocal count
            count += 1
            return product(*given)

        inside.hessian_vector_product = counted
        values, _ = pyhessian.hessian(
            model, F.cross_entropy, data=(images, labels), cuda=False
        ).eigenvalues(top_n=TOP)
        for parameter in model.parameters():
            parameter.grad = None
        return np.array(values), count

    return run


def _curvlinops(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    from scipy.sparse.linalg import LinearOperator, eigsh

    curvlinops: Any = import_module("curvlinops")

    def run(seed: int) -> tuple[np.ndarray, int]:
        about: Any = model, nn.CrossEntropyLoss(), list(model.parameters()), [(images, labels)]
        hessian = curvlinops.HessianLinearOperator(*about, check_deterministic=False)
        inner, count = hessian.to_scipy(dtype=np.float32), 0

        def counted(vector: np.ndarray) -> np.ndarray:
            nonlocal count
            count += 1
            found: np.ndarray = inner @ vector
            return found

        operator = LinearOperator(inner.shape, matvec=counted, dtype=np.float32)
        start = np.random.default_rng(seed).standard_normal(inner.shape[0]).astype(np.float32)
        values = eigsh(
            operator, k=TOP, which="LM", tol=TOLERANCE, v0=start, return_eigenvectors=False
        )
        return values, count

    return run


def _eigenthings(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    things: Any = import_module("hessian_eigenthings")
    loss = things.supervised_loss(F.cross_entropy)

    def attempt(steps: int, seed: int) -> Any:
        operator = things.HessianOperator(model, [(images, labels)], loss, full_dataset=False)
        return things.lanczos(
            operator, k=TOP, max_iter=steps, tol=TOLERANCE, reorthogonalize=True, seed=seed
        )

    suffice = {
        seed: next(
            steps for steps in range(15, 200, 5) if bool(attempt(steps, seed).converged.all())
        )
        for seed in range(SEEDS)
    }

    def run(seed: int) -> tuple[np.ndarray, int]:
        return attempt(suffice[seed], seed).eigenvalues.numpy(), suffice[seed]

    return run


CONTENDERS: dict[str, Callable[[nn.Module, Tensor, Tensor], Run]] = {
    "ours": _ours,
    "PyHessian": _pyhessian,
    "curvlinops + ARPACK": _curvlinops,
    "hessian-eigenthings": _eigenthings,
}


def measure(name: str, batch: int) -> dict[str, Any]:
    """CPU times of one batch from every seed, after a run of ours that warms up torch."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    seconds, products, found = [], [], []
    with quiet[0], quiet[1], sdpa_kernel(SDPBackend.MATH):
        given = task(batch)
        CONTENDERS["ours"](*given)(0)
        run = CONTENDERS[name](*given)
        for seed in range(SEEDS):
            began = time.process_time()
            values, count = run(seed)
            seconds.append(time.process_time() - began)
            products.append(count)
            found.append(sorted(map(float, values), key=lambda value: -abs(value)))
    return {
        "contender": name,
        "batch": batch,
        "cpu_s": seconds,
        "products": products,
        "eigenvalues": found,
    }


def race() -> list[dict[str, Any]]:
    """Each contender in a process of its own, ours before and after, because machines change their
    pace."""
    with peers.installed([*PACKAGES, *NEEDED]) as folder:
        return [
            peers.contender(__file__, ["--batch", batch, "--only", name], folder * (name in PEERS))
            for batch in range(BATCHES)
            for name in ("ours", *PEERS, "ours")
        ]


def show(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A table, and what each peer's time is to ours."""
    truth = {
        row["batch"]: np.array(row["eigenvalues"][0]) for row in rows if row["contender"] == "ours"
    }
    mean: dict[str, float] = {}
    for name in ("ours", *PEERS):
        own = [row for row in rows if row["contender"] == name]
        mean[name] = float(np.mean([row["cpu_s"] for row in own]))
        count = float(np.mean([row["products"] for row in own]))
        apart = max(
            float(np.abs(np.array(row["eigenvalues"]) / truth[row["batch"]] - 1).max())
            for row in own
        )
        more = (
            f"{mean[name] / mean['ours']:6.2f} x ours (target {PEERS[name]:.0f})"
            if name in PEERS
            else ""
        )
        print(
            f"{name:20s} {mean[name]:7.2f} s {count:6.1f} products, eigenvalues apart {apart:.1e}  "
            f"{more}"
        )
    return {name: round(mean[name] / mean["ours"], 2) for name in PEERS}


def on_gpu(batches: int, at_once: int) -> dict[str, Any]:
    """The whole analysis, as a user asks for it; once before, on few batches, so that kernels are
    loaded."""
    import vitreous
    from vitreous.models.loading import load_model

    torch.manual_seed(0)
    data = vitreous.data.load("world:shapes", split="train", size=16 * batches)
    model = load_model("vit_ti/4", image=32, classes=len(data.classes)).to("cuda")
    _learn(model, data)
    seconds = []
    for limit in (16 * 8, 16 * batches):
        torch.cuda.synchronize()
        began = time.perf_counter()
        how: dict[str, Any] = {"limit": limit, "batch": at_once, "device": "cuda"}
        found = vitreous.analyse({"ViT-Ti/4": model}, data, "hessian", **how)["hessian"]
        seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / 2**30
    products = found.table["products"]
    print(
        f"{batches} batches x top {TOP}: {seconds[-1]:.1f} s (target {GPU_SECONDS:.0f}), at most "
        f"{peak:.1f} GiB"
    )
    print(
        f"{products.min():.0f} to {products.max():.0f} products a batch, "
        f"{found.about['unconverged']} open"
    )
    values = found.table.set_index("measure")["value"]
    summary = {name: float(values[name]) for name in ("NEP", "APE")}
    about = {"products": float(products.mean()), "at_once": at_once, **summary}
    return {"batches": batches, "seconds": seconds[-1], "gib": peak, **about}


def _learn(model: nn.Module, data: Any) -> None:
    """A hundred steps, as at the end of a warm-up; not timed."""
    optimiser = torch.optim.AdamW(model.parameters(), 5e-4)
    for step in range(100):
        rows = torch.arange(64 * step, 64 * step + 64) % len(data)
        images, labels = data.normalise(data.images[rows]).cuda(), data.labels[rows].cuda()
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    optimiser.zero_grad()
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batches", type=int, default=100, help="on a GPU")
    parser.add_argument("--at-once", type=int, default=128, help="images in memory on a GPU")
    parser.add_argument("--batch", type=int, default=0, help="which one, of --only")
    parser.add_argument("--only", default="", choices=("", "ours", *PEERS))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.batch)))
        return
    now = datetime.now(UTC)
    record: dict[str, Any] = {
        "race": "hessian", "date": now.isoformat(timespec="seconds"), "torch": torch.__version__,
        "python": platform.python_version(),
    }  # fmt: skip
    if arguments.device == "cuda":
        record |= {
            "device": torch.cuda.get_device_name(),
            "target_s": GPU_SECONDS,
            **on_gpu(arguments.batches, arguments.at_once),
        }
    else:
        rows = race()
        record |= {
            "device": platform.machine(),
            "threads": 1,
            "clock": "process_time",
            "targets": PEERS,
        }
        record |= {"batches": BATCHES, "seeds": SEEDS}
        record |= {"ratios": show(rows), "rows": rows}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"hessian-{arguments.device}-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
