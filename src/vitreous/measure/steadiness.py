"""Whether a model gives the same answer to the same images: nothing that compares passes means anything otherwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Bench
from vitreous.measure.subject import Subject

RANDOM = ("dropout", "bernoulli", "rand", "normal", "multinomial", "exponential")
IMAGES = 4
SLACK = {"cpu": 0.0, "cuda": 1e-4}
"""How far two passes may lie apart, relative to the largest output: GPUs add in no fixed order."""


@torch.no_grad()
def check_steady(subject: Subject, bench: Bench) -> None:
    """Pass the same images twice; an error that says where chance comes in if the outputs differ."""
    images = subject.prepare(bench.data.images[:IMAGES])
    one, other = (_numbers(subject.specimen(images)) for _ in range(2))
    slack = SLACK.get(images.device.type, 0.0) * float(one.abs().max())
    apart = float((one - other).abs().max())
    if (
        not apart > slack
    ):  # NaN compares as no difference: the analysis itself says what is not finite
        return
    raise VitreousError(
        f"{subject.name} gives different answers to the same images, apart by up to {apart:.2g}, so passes cannot be "
        f"compared; {_why(subject.specimen)}."
    )


def _numbers(output: object) -> Tensor:
    found = [leaf.double().flatten() for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    return torch.cat(found) if found else torch.zeros(1)


def _why(specimen: nn.Module) -> str:
    """The operations of its graph that draw numbers."""
    graph = getattr(getattr(specimen, "module", None), "graph", None)
    nodes = [] if graph is None else [node for node in graph.nodes if node.op == "call_function"]
    drawing = [node.name for node in nodes if any(word in str(node.target) for word in RANDOM)]
    if drawing:
        return f"its {', '.join(drawing[:3])} draw{'s' * (len(drawing) == 1)} random numbers also in evaluation mode"
    return "it keeps something from one pass to the next, or draws random numbers that its graph does not show"
