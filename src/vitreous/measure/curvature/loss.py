"""The loss as a function of the parameters, its Hessian times vectors, and the ends of the Hessian's spectrum.

    NLL(w) = mean over a fixed batch of  -Σ_c target_c log softmax(f_w(image))_c        L2(w) = ½ · decay · |w|²

are kept apart: the second is known exactly and shifts every eigenvalue by `decay`. The model's own weights are never
written; the loss is called with a dict of tensors instead of them (`torch.func.functional_call`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitreous.data.augment import Augmenter
from vitreous.data.dataset import Dataset, Triple
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.curvature.second_derivatives import quick
from vitreous.measure.subject import Subject, logits
from vitreous.random_numbers import torch_generator
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.specimen import Specimen
from vitreous.training import recipes

Stream = Literal["augmented", "clean"]
Weights = Mapping[str, Tensor]
"""Parameters by the path under which the user knows them, `blocks.0.attn.qkv.weight`."""
PREFIX = "module."
"""What a specimen puts before a path."""


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Gradients are on, and fused attention, which has no second derivative, is computed step by step; then as before.

    Fused kernels stay switched off for whoever else computes in this process meanwhile."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def weights(specimen: Specimen, where: str = "") -> dict[str, Tensor]:
    """Parameters that the output depends on, detached; all, or those of `where`.

    `where` is `stage 2`, a kind (`attention`), a unit by path, glob or label (`blocks.*.mlp`, `1.3`), or a pattern of
    parameters (`blocks.0.attn.qkv.*`). Buffers are none, and nor are parameters that nothing uses; whether a parameter
    was frozen in training does not matter.
    """
    used = _used(specimen)
    found = {
        name.removeprefix(PREFIX): value.detach()
        for name, value in specimen.named_parameters()
        if value.is_floating_point() and name.removeprefix(PREFIX) in used
    }
    chosen = {
        name: found[name] for name in found if not where or name in _chosen(specimen, where, found)
    }
    if not chosen:
        raise VitreousError(
            f"{specimen.anatomy.model} has no parameters, so its loss has no shape to look at."
        )
    half = next((value.dtype for value in chosen.values() if value.dtype.itemsize < 4), None)
    if half is not None:
        raise VitreousError(
            f"{specimen.anatomy.model} computes in {str(half).removeprefix('torch.')}, too coarse for second "
            "derivatives; give it as model.float()."
        )
    return chosen


def _chosen(specimen: Specimen, where: str, known: Weights) -> set[str]:
    units = _units(specimen, where)
    found = {name for unit in units for name in of_unit(specimen, unit)}
    found |= {name for name in known if fnmatchcase(name, where)}
    if units and not found & set(known):
        raise VitreousError(
            f"Of {specimen.anatomy.model}, {where!r} has no parameters; choose another part."
        )
    if not found:
        names = [*known, *(unit.name for unit in specimen.units)]
        raise UnknownName(
            "part",
            where,
            names,
            "Parts are 'stage 2', a kind, a unit's path or label, or a pattern of parameters.",
        )
    return found


def _units(specimen: Specimen, where: str) -> tuple[Unit, ...]:
    word, _, number = where.partition(" ")
    if word == "stage" and number.isdigit():
        return tuple(unit for unit in specimen.units if unit.stage == int(number))
    try:
        return specimen.anatomy.find(where)
    except UnknownName:
        return ()


def of_unit(specimen: Specimen, unit: Unit) -> set[str]:
    """Names of the parameters that a unit computes with, read off the graph between its input and its output."""
    graph, wiring = _graph(specimen), getattr(specimen, "_wiring", {}).get(unit.name)
    if graph is None or wiring is None:
        names = (name.removeprefix(PREFIX) for name, _ in specimen.named_parameters())
        return {name for name in names if name.startswith(f"{unit.name}.")}
    nodes = {node.name: node for node in graph.nodes}
    before = [nodes[wiring.before]] if wiring.before in nodes else []
    outside = {node for node in _behind(before, set()) if node.op != "get_attr"}
    roots = [nodes[name] for name in (*wiring.branches, wiring.skip) if name in nodes]
    return {str(node.target) for node in _behind(roots, outside) if node.op == "get_attr"}


def _used(specimen: Specimen) -> set[str]:
    """Names of the parameters that reach the output."""
    graph = _graph(specimen)
    if graph is None:
        return {name.removeprefix(PREFIX) for name, _ in specimen.named_parameters()}
    outputs = [node for node in graph.nodes if node.op == "output"]
    read = {
        str(node.target)
        for node in _behind(outputs, set())
        if node.op in ("get_attr", "call_module")
    }
    names = [name.removeprefix(PREFIX) for name, _ in specimen.named_parameters()]
    return {
        name for name in names if name in read or any(name.startswith(f"{part}.") for part in read)
    }


def _graph(specimen: Specimen) -> fx.Graph | None:
    """None for units named by hand, whose model is run as it is."""
    return getattr(specimen.module, "graph", None)


def _behind(roots: list[fx.Node], outside: set[fx.Node]) -> set[fx.Node]:
    """The roots and all they are computed from, up to what lies outside."""
    queue = [node for node in roots if node not in outside]
    seen = set(queue)
    while queue:
        fresh = set(queue.pop().all_input_nodes) - seen - outside
        seen |= fresh
        queue.extend(fresh)
    return seen


def called(specimen: Specimen, given: Weights, images: Tensor) -> Any:
    """What a model gives with these instead of some of its weights, or buffers."""
    named = {PREFIX + name: value for name, value in given.items()}
    return functional_call(specimen, named, (images,)) if named else specimen(images)


def scores(specimen: Specimen, given: Weights, images: Tensor) -> Tensor:
    """(b, classes) with these instead of some of the weights."""
    found = logits(called(specimen, given, images))
    if found is None:
        raise VitreousError(
            f"{specimen.anatomy.model} gives no score for each class, so it has no loss."
        )
    return found


@dataclass(frozen=True, eq=False)
class Loss:
    """Mean cross-entropy of one batch as a function of some of the parameters; the others stay as they are."""

    specimen: Specimen
    images: Tensor
    """As the model wants them."""
    targets: Tensor
    """(b,) classes, or (b, classes) shares."""

    def __call__(self, given: Weights) -> Tensor:
        return F.cross_entropy(scores(self.specimen, given, self.images), self.targets)


def l2(given: Weights, decay: float) -> Tensor:
    """½ · decay · |w|², whose Hessian is decay times the identity."""
    return 0.5 * decay * torch.stack([value.square().sum() for value in given.values()]).sum()


def require_finite(value: Tensor, model: str, what: str = "loss") -> Tensor:
    """The value, or an error that says that it is none."""
    if not bool(value.isfinite().all()):
        raise VitreousError(
            f"The {what} of {model} is not finite on these images; train it with a lower rate, or load another "
            "checkpoint."
        )
    return value


class Batches:
    """Batches as the loss sees them: the images alone (`clean`), or as training shows them (`augmented`).

    An augmented batch is a function of its rows and the seed: crop, flip, RandAugment, mixing and smoothed labels are
    those of `recipe`, drawn for these rows whenever and wherever they are asked for.
    """

    def __init__(
        self, subject: Subject, data: Dataset, stream: Stream, recipe: str, seed: int
    ) -> None:
        if stream not in get_args(Stream):
            raise UnknownName(
                "stream", stream, get_args(Stream), "The stream of images is augmented or clean."
            )
        self.subject, self.data, self.stream, self.seed = subject, data, stream, seed
        self.size: tuple[int, int] = subject.specimen.anatomy.image[1:]
        self.augmenter: Augmenter | None = None
        if stream == "augmented":
            augment, channels = recipes.named(recipe).augment, subject.specimen.anatomy.image[0]
            mean, std = (_triple(each, channels) for each in (subject.mean, subject.std))
            self.augmenter = Augmenter(
                augment, image=self.size, classes=len(data.classes), mean=mean, std=std
            )

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Images as the model wants them and targets, on its device."""
        images, labels = self.data.images[rows], self.data.labels[rows].to(self.subject.device)
        clean = self.subject.prepare(images)
        if self.augmenter is None:
            return clean, labels
        draw = self.augmenter.draw(len(rows), self._generator(rows))
        moved = type(draw)(*(numbers.to(self.subject.device) for numbers in draw))
        shown, targets = self.augmenter(self._resized(images), labels, moved)
        if clean.shape[1] == 1:
            shown = shown.mean(1, keepdim=True)
        return shown.to(clean.dtype), targets.to(clean.dtype)

    def _generator(self, rows: Tensor) -> torch.Generator:
        """On the CPU, so that a GPU sees the same images."""
        return torch_generator(self.seed, "augmented", *rows.tolist())

    def _resized(self, images: Tensor) -> Tensor:
        images = images.to(self.subject.device)
        if tuple(images.shape[2:]) == tuple(self.size):
            return images
        levels = F.interpolate(
            images.float(), size=self.size, mode="bicubic", antialias=True, align_corners=False
        )
        return levels.round_().clamp_(0, 255).byte()


def _triple(given: tuple[float, ...], channels: int) -> Triple:
    """Of colours; a grey model's counts for all three."""
    red, green, blue = given[:channels] * (3 // channels)
    return red, green, blue


class Hessian:
    """Second derivatives of the loss of several batches, each for itself, times one vector for each.

    The graph of the gradients is made once and gone through for every product. Where the images of a batch are more
    than fit into memory, it is made anew for every part of them at every product instead.
    """

    def __init__(
        self, specimen: Specimen, given: Weights, images: Tensor, targets: Tensor, at_once: int
    ) -> None:
        """`images` (batches, b, …) and `targets` (batches, b, …), of which `at_once` in all may be in memory."""
        self.specimen = quick(specimen)
        self.sizes = [value.numel() for value in given.values()]
        self.given = {
            name: value.expand(len(images), *value.shape).requires_grad_()
            for name, value in given.items()
        }
        share = max(1, min(at_once // len(images), images.shape[1]))
        self.parts = list(zip(images.split(share, 1), targets.split(share, 1), strict=True))
        self.count = images.shape[1]
        with twice_differentiable():
            self.graph = self._gradients(*self.parts[0]) if len(self.parts) == 1 else None

    def __call__(self, vectors: Tensor) -> Tensor:
        """(batches, n) to (batches, n)."""
        with twice_differentiable():
            if self.graph is not None:
                return self._product(self.graph, vectors, keep=True)
            return torch.stack(
                [self._product(self._gradients(*part), vectors) for part in self.parts]
            ).sum(0)

    def _gradients(self, images: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        share = images.shape[1] / self.count

        def loss(given: Weights, images: Tensor, targets: Tensor) -> Tensor:
            return Loss(self.specimen, images, targets)(given)

        if len(images) == 1:
            total = loss(
                {name: value[0] for name, value in self.given.items()}, images[0], targets[0]
            )
        else:
            total = torch.vmap(loss)(self.given, images, targets).sum()
        require_finite(total, self.specimen.anatomy.model)
        return torch.autograd.grad(
            total * share, list(self.given.values()), create_graph=True, materialize_grads=True
        )

    def _product(
        self, gradients: tuple[Tensor, ...], vectors: Tensor, keep: bool = False
    ) -> Tensor:
        parts = zip(vectors.split(self.sizes, 1), gradients, strict=True)
        curved = [
            (gradient, part.view_as(gradient)) for part, gradient in parts if gradient.requires_grad
        ]
        outputs, along = zip(*curved, strict=True)
        given = list(self.given.values())
        found = torch.autograd.grad(
            outputs, given, along, retain_graph=keep, materialize_grads=True
        )
        return torch.cat([each.flatten(1) for each in found], 1)
