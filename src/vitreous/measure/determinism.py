"""Check that a model is deterministic, because otherwise two passes cannot be compared."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from vitreous.errors import VitreousError
from vitreous.measure.bench import Bench
from vitreous.measure.subject import Subject

RANDOM = ("dropout", "bernoulli", "rand", "normal", "multinomial", "exponential")
IMAGES = 4
SLACK = {"cpu": 0.0, "cuda": 1e-4}
"""Accepted difference of two passes, relative to the largest output. GPUs add in varying order."""


@torch.no_grad()
def check_steady(subject: Subject, bench: Bench) -> None:
    """Run the same images twice; raise if the outputs differ, and name the random operation."""
    images = subject.prepare(bench.data.images[:IMAGES])
    first, second = (_numbers(subject.specimen(images)) for _ in range(2))
    slack = SLACK.get(images.device.type, 0.0) * float(first.abs().max())
    difference = float((first - second).abs().max())
    if not difference > slack:  # also for NaN, about which the analysis raises a better error
        return
    raise VitreousError(
        f"{subject.name} gives different outputs for the same images, apart by up to "
        f"{difference:.2g}, so passes cannot be compared; {_reason(subject.specimen)}."
    )


def _numbers(output: object) -> Tensor:
    leaves = [leaf.double().flatten() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    return torch.cat(leaves) if leaves else torch.zeros(1)


def _reason(specimen: nn.Module) -> str:
    """Why outputs differ, for the error: the operations of the graph that draw random numbers."""
    graph = getattr(getattr(specimen, "module", None), "graph", None)
    nodes = [] if graph is None else [node for node in graph.nodes if node.op == "call_function"]
    drawing = [node.name for node in nodes if any(word in str(node.target) for word in RANDOM)]
    if drawing:
        draw = "draws" if len(drawing) == 1 else "draw"
        return f"its {', '.join(drawing[:3])} {draw} random numbers also in evaluation mode"
    return "it keeps state between passes, or draws random numbers that its graph does not show"
