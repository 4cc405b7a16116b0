"""Where does the time of a training step on a GPU go? Milliseconds by kind of kernel.

    python benchmarks/step_kernels.py --model convit_ti/4 --recipe convit --batch 256 --seeds 3

Steps are compiled and replayed as a CUDA graph, as in training. The clock runs without the
profiler, which then says which kernels the time was spent in.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from stack import step
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "attention": r"flash|fmha|attention|cudnn.*sdpa",
    "matrix product": r"gemm|cutlass|cublas|nvjet|splitK|matmul|bmm|gemv",
    "convolution": r"conv|wgrad|dgrad|implicit|nchw|nhwc",
    "optimiser": r"multi_tensor|adam|foreach",
    "random numbers": r"bernoulli|distribution|philox|random",
    "fused reductions": r"triton_(red|per)",
    "fused element by element": r"triton_poi",
    "copies": r"memcpy|memset|copy|cat",
}
PROFILED = 5
"""Steps under the profiler."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="vit_ti/4")
    parser.add_argument("--options", type=json.loads, default={}, help='as JSON: {"heads": 4}')
    parser.add_argument("--recipe", default="hdv_cifar")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--top", type=int, default=15, help="kernels to list by name")
    parser.add_argument("--lock", type=Path, help="measure only while nobody else holds this file")
    given = parser.parse_args()
    run = step(
        given.model, given.batch, given.seeds, "cuda", recipe=given.recipe, options=given.options
    )
    began = time.perf_counter()
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    print(f"ready after {time.perf_counter() - began:.0f} s", flush=True)
    with given.lock.open("w") if given.lock else nullcontext() as held:
        if held:
            fcntl.flock(held, fcntl.LOCK_EX)
        report(run, given)


def report(run: Callable[[], None], given: argparse.Namespace) -> None:
    """Print images per second, then milliseconds of a step by kind and by kernel."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(given.steps):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / given.steps)
    count = given.batch * given.seeds
    print(
        f"{given.model} {given.seeds} x {given.batch}: {1e3 * min(times):.2f} ms, "
        f"{count / min(times):,.0f} images/s",
        flush=True,
    )
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(PROFILED):
            run()
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profiled.events() or ():
        spent[event.name] += event.device_time_total / (1e3 * PROFILED)
        calls[event.name] += 1
    kinds: Counter[str] = Counter()
    for name, ms in spent.items():
        kinds[kind_of(name)] += ms
    for kind, ms in kinds.most_common():
        print(f"  {ms:7.3f} ms  {kind}")
    print("  kernels:")
    for name, ms in spent.most_common(given.top):
        print(f"  {ms:7.3f} ms  {calls[name] / PROFILED:5.1f} times  {name[:110]}")


def kind_of(kernel: str) -> str:
    """The first kind whose pattern the kernel's name matches."""
    for kind, pattern in KINDS.items():
        if re.search(pattern, kernel, re.IGNORECASE):
            return kind
    return "others"


if __name__ == "__main__":
    main()
