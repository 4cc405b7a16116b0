"""The five largest eigenvalues of the Hessian of a ViT with 0.68 M parameters at batch 16: ours against the packages
people use, on one CPU thread; and how long a whole analysis takes on a GPU.

    python benchmarks/hessian.py
    python benchmarks/hessian.py --device cuda

The peers are installed into a folder that is removed afterwards; nothing of this environment changes. All get the
bundled ViT on the same images, and attention that has second derivatives, which none of them sees to itself. Ours stops
when all five residuals |Hx - λx| are at most 1e-3 |λ|; ARPACK has the same as its tolerance; hessian-eigenthings, which
takes a number of steps and says afterwards whether they sufficed, is given the smallest multiple of five that does,
found outside the clock. PyHessian cannot be told a residual: it runs with its own defaults, and the table says where
that led. The time is CPU time, the best of some runs; opening the model is not in it, building whatever products need
is.

On a GPU: ViT-Ti/4 on images of 32 pixels, 100 batches of 16, five eigenvalues each, augmented, as `vitreous.analyse`
does it, from the opened model to the table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

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
GPU_SECONDS = 60.0
Run = Callable[[], tuple[np.ndarray, int]]
"""Eigenvalues, and how many products they took."""


def task() -> tuple[nn.Module, Tensor, Tensor]:
    """The bundled ViT on images whose labels are shuffled, so that eigenvalues of both signs are among the largest."""
    from vitreous.data import load as load_images
    from vitreous.models.loading import load
    from vitreous.probes.subject import subjects

    model, data = load("nano:vit"), load_images("world:shapes", split="train", size=16)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    return model.eval(), subjects(model)[0].prepare(data.images), data.labels[order]


def contender(name: str, model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    makers = {
        "ours": _ours,
        "PyHessian": _pyhessian,
        "curvlinops + ARPACK": _curvlinops,
        "hessian-eigenthings": _eigenthings,
    }
    return makers[name](model, images, labels)


def _ours(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    import vitreous
    from vitreous.analyses.curvature import Hessian, weights
    from vitreous.analyses.lanczos import extreme

    specimen = vitreous.open(model)
    given = weights(specimen)

    def run() -> tuple[np.ndarray, int]:
        hessian = Hessian(specimen, given, images[None], labels[None], len(images))
        found = extreme(hessian, torch.randn(1, sum(hessian.sizes)), TOP, tolerance=TOLERANCE)[0]
        return found.values, found.products

    return run


def _pyhessian(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    pyhessian: Any = import_module("pyhessian")
    inside: Any = sys.modules["pyhessian.hessian"]  # the package gives this name to a class
    product = inside.hessian_vector_product

    def run() -> tuple[np.ndarray, int]:
        count = 0

        def counted(*given: Any) -> Any:
            nonlocal count
            count += 1
            return product(*given)

        inside.hessian_vector_product = counted
        values, _ = pyhessian.hessian(model, F.cross_entropy, data=(images, labels), cuda=False).eigenvalues(top_n=TOP)
        for parameter in model.parameters():
            parameter.grad = None
        return np.array(values), count

    return run


def _curvlinops(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    from scipy.sparse.linalg import LinearOperator, eigsh

    curvlinops: Any = import_module("curvlinops")

    def run() -> tuple[np.ndarray, int]:
        about: Any = model, nn.CrossEntropyLoss(), list(model.parameters()), [(images, labels)]
        hessian = curvlinops.HessianLinearOperator(*about, check_deterministic=False)
        inner, count = hessian.to_scipy(dtype=np.float32), 0

        def counted(vector: np.ndarray) -> np.ndarray:
            nonlocal count
            count += 1
            found: np.ndarray = inner @ vector
            return found

        operator = LinearOperator(inner.shape, matvec=counted, dtype=np.float32)
        values = eigsh(operator, k=TOP, which="LM", tol=TOLERANCE, return_eigenvectors=False)
        return values, count

    return run


def _eigenthings(model: nn.Module, images: Tensor, labels: Tensor) -> Run:
    things: Any = import_module("hessian_eigenthings")
    loss = things.supervised_loss(F.cross_entropy)

    def attempt(steps: int) -> Any:
        operator = things.HessianOperator(model, [(images, labels)], loss, full_dataset=False)
        return things.lanczos(operator, k=TOP, max_iter=steps, tol=TOLERANCE, reorthogonalize=True, seed=0)

    steps = next(steps for steps in range(15, 200, 5) if bool(attempt(steps).converged.all()))

    def run() -> tuple[np.ndarray, int]:
        return attempt(steps).eigenvalues.numpy(), steps

    return run


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Best CPU time of some runs, PyHessian's of one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1], sdpa_kernel(SDPBackend.MATH):
        run = contender(name, *task())
        torch.manual_seed(0)
        seconds: list[float] = []
        products: list[int] = []
        for _ in range(1 if name == "PyHessian" else repeats):
            began = time.process_time()
            values, count = run()
            seconds.append(time.process_time() - began)
            products.append(count)
    ordered = sorted(map(float, values), key=lambda value: -abs(value))
    return {
        "contender": name,
        "cpu_s": min(seconds),
        "all_cpu_s": seconds,
        "products": products[seconds.index(min(seconds))],
        "all_products": products,
        "eigenvalues": ordered,
    }


def install(folder: Path) -> None:
    """The peers alone, with what of theirs is not here, into a folder."""
    wanted = [*PACKAGES, *NEEDED]
    commands = (
        ["uv", "pip", "install", "-q", "--python", sys.executable],
        [sys.executable, "-m", "pip", "install", "-q"],
    )
    for command in commands:
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*command, "--no-deps", "--target", str(folder), *wanted]).returncode == 0:
                return
    raise SystemExit(f"{', '.join(wanted)} could not be installed.")


def race(repeats: int) -> list[dict[str, Any]]:
    """Each contender in a process of its own, ours before and after, because machines change their pace."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        for name in ("ours", *PEERS, "ours"):
            paths = [folder] * (name in PEERS) + [os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
            command = [sys.executable, __file__, "--repeats", str(repeats), "--only", name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def show(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A table, and what each peer's time is to ours, the mean of before and after."""
    ours = [row for row in rows if row["contender"] == "ours"]
    mean = sum(row["cpu_s"] for row in ours) / len(ours)
    truth = np.array(ours[0]["eigenvalues"])
    ratios = {row["contender"]: round(row["cpu_s"] / mean, 2) for row in rows if row["contender"] in PEERS}
    for row in rows:
        name = row["contender"]
        apart = float(np.max(np.abs(np.array(row["eigenvalues"]) / truth - 1)))
        more = f"{ratios[name]:6.2f} x ours (target {PEERS[name]:.0f})" if name in PEERS else ""
        values = ", ".join(f"{value:.3f}" for value in row["eigenvalues"])
        print(f"{name:20s} {row['cpu_s']:7.2f} s {row['products']:4d} products  {values}  apart {apart:.1e}  {more}")
    return ratios


def on_gpu(batches: int, at_once: int) -> dict[str, Any]:
    """The whole analysis, as a user asks for it; once before, on few batches, so that kernels are loaded."""
    import vitreous
    from vitreous.models.loading import load

    torch.manual_seed(0)
    data = vitreous.data.load("world:shapes", split="train", size=16 * batches)
    model = load("vit_ti/4", image=32, classes=len(data.classes)).to("cuda")
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
    print(f"{batches} batches x top {TOP}: {seconds[-1]:.1f} s (target {GPU_SECONDS:.0f}), at most {peak:.1f} GiB")
    print(f"{products.min():.0f} to {products.max():.0f} products a batch, {found.about['unconverged']} open")
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batches", type=int, default=100, help="on a GPU")
    parser.add_argument("--at-once", type=int, default=128, help="images in memory on a GPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", choices=("", "ours", *PEERS))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.repeats)))
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
        rows = race(arguments.repeats)
        record |= {"device": platform.machine(), "threads": 1, "clock": "process_time", "targets": PEERS}
        record |= {"ratios": show(rows), "rows": rows}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"hessian-{arguments.device}-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"\n{path}")


if __name__ == "__main__":
    main()
