"""Check that a model is deterministic: otherwise two passes cannot be compared."""

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
"""Largest difference of two passes, relative to the largest output: GPUs add in no fixed order."""


@torch.no_grad()
def check_steady(subject: Subject, bench: Bench) -> None:
    """Pass the same images twice; if outputs differ, raise an error that names the random
    operation."""
    images = subject.prepare(bench.data.images[:IMAGES])
    one, other = (_numbers(subject.specimen(images)) for _ in range(2))
    slack = SLACK.get(images.device.type, 0.0) * float(one.abs().max())
    difference = float((one - other).abs().max())
    if not difference > slack:  # also where it is NaN: the analysis says what is not finite
        return
    raise VitreousError(
        f"{subject.name} gives different outputs for the same images, apart by up to "
        f"{difference:.2g}, so passes cannot be compared; {_why(subject.specimen)}."
    )


def _numbers(output: object) -> Tensor:
    leaves = [leaf.double().flatten() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    return torch.cat(leaves) if leaves else torch.zeros(1)


def _why(specimen: nn.Module) -> str:
    """The reason: operations of the graph that draw random numbers, if there are any."""
    graph = getattr(getattr(specimen, "module", None), "graph", None)
    nodes = [] if graph is None else [node for node in graph.nodes if node.op == "call_function"]
    drawing = [node.name for node in nodes if any(word in str(node.target) for word in RANDOM)]
    if drawing:
        draw = "draws" if len(drawing) == 1 else "draw"
        return f"its {', '.join(drawing[:3])} {draw} random numbers also in evaluation mode"
    return "it keeps state between passes, or draws random numbers that its graph does not show"
