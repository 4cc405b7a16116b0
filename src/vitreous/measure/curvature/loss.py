"""The loss as a function of the parameters, and products of its Hessian with vectors.

    NLL(w) = mean over a fixed batch of  -Σ_c target_c log softmax(f_w(image))_c

An L2 term ½ · decay · |w|² is known exactly: it shifts every eigenvalue by `decay`. The model's
weights are never written: the loss takes a dict of tensors in their place
(`torch.func.functional_call`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitreous.data.augment import Augmenter
from vitreous.data.dataset import Dataset, Triple
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.curvature.recording import Recorder
from vitreous.measure.curvature.second_derivatives import with_fast_second_derivatives
from vitreous.measure.subject import Subject, logits
from vitreous.random_numbers import torch_generator
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.specimen import Specimen
from vitreous.training import recipes

Stream = Literal["augmented", "clean"]
Weights = Mapping[str, Tensor]
"""Parameters by their path in the original model, such as `blocks.0.attn.qkv.weight`."""
PREFIX = "module."
"""Prefix of a specimen's parameters."""
CHECKED = 4
"""Images in the check of second derivatives."""
TOLERANCE = 30.0
"""Accepted gap between two products, in roots of the machine epsilon: 1 % in float32."""


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Enable gradients, math attention and convolutions in full float32.

    Fused attention has no second derivative. With TF32, cuDNN's default, convolutions round to ten
    bits: two ways to compute one product of a trained ResNet-18 differed by 1 to 3 %. Both choices
    hold for the whole process, also for other threads, until the end.
    """
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined] # made at import
    precision = convolutions.fp32_precision
    convolutions.fp32_precision = "ieee"
    try:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        convolutions.fp32_precision = precision


def weights(specimen: Specimen, where: str = "") -> dict[str, Tensor]:
    """Return the parameters that the output depends on, detached, frozen or not.

    Parameters
    ----------
    where
        All of them (default), or those of `stage 2`, a kind (`attention`), a unit by path, glob or
        label (`blocks.*.mlp`, `1.3`), or a pattern of parameters (`blocks.0.attn.qkv.*`).
    """
    used = _used(specimen)
    chosen = {
        name.removeprefix(PREFIX): value.detach()
        for name, value in specimen.named_parameters()
        if value.is_floating_point() and name.removeprefix(PREFIX) in used
    }
    if where:
        names = _matching(specimen, where, chosen)
        chosen = {name: value for name, value in chosen.items() if name in names}
    if not chosen:
        raise VitreousError(f"{specimen.anatomy.model} has no parameters, so its loss is constant.")
    half = next((value.dtype for value in chosen.values() if value.dtype.itemsize < 4), None)
    if half is not None:
        raise VitreousError(
            f"{specimen.anatomy.model} computes in {str(half).removeprefix('torch.')}, too coarse "
            "for second derivatives; give it as model.float()."
        )
    return chosen


def _matching(specimen: Specimen, where: str, known: Weights) -> set[str]:
    """Return the names of the parameters that `where` means."""
    units = _units(specimen, where)
    names = {name for unit in units for name in unit_parameters(specimen, unit)}
    names |= {name for name in known if fnmatchcase(name, where)}
    if units and not names & set(known):
        raise VitreousError(
            f"Of {specimen.anatomy.model}, {where!r} has no parameters; choose another part."
        )
    if not names:
        raise UnknownName(
            "part",
            where,
            [*known, *(unit.name for unit in specimen.units)],
            "Parts are 'stage 2', a kind, a unit's path or label, or a pattern of parameters.",
        )
    return names


def _units(specimen: Specimen, where: str) -> tuple[Unit, ...]:
    word, _, number = where.partition(" ")
    if word == "stage" and number.isdigit():
        return tuple(unit for unit in specimen.units if unit.stage == int(number))
    try:
        return specimen.anatomy.find(where)
    except UnknownName:
        return ()


def unit_parameters(specimen: Specimen, unit: Unit) -> set[str]:
    """Return the names of the parameters between a unit's input and output in the graph."""
    graph, wiring = _graph(specimen), getattr(specimen, "_wiring", {}).get(unit.name)
    if graph is None or wiring is None:
        names = (name.removeprefix(PREFIX) for name, _ in specimen.named_parameters())
        return {name for name in names if name.startswith(f"{unit.name}.")}
    nodes = {node.name: node for node in graph.nodes}
    before = [nodes[wiring.before]] if wiring.before in nodes else []
    outside = {node for node in _ancestors(before, set()) if node.op != "get_attr"}
    roots = [nodes[name] for name in (*wiring.branches, wiring.skip) if name in nodes]
    return {str(node.target) for node in _ancestors(roots, outside) if node.op == "get_attr"}


def _used(specimen: Specimen) -> set[str]:
    """Return the names of the parameters that the output depends on."""
    graph = _graph(specimen)
    if graph is None:
        return {name.removeprefix(PREFIX) for name, _ in specimen.named_parameters()}
    outputs = [node for node in graph.nodes if node.op == "output"]
    read = {
        str(node.target)
        for node in _ancestors(outputs, set())
        if node.op in ("get_attr", "call_module")
    }
    names = [name.removeprefix(PREFIX) for name, _ in specimen.named_parameters()]
    return {
        name for name in names if name in read or any(name.startswith(f"{part}.") for part in read)
    }


def _graph(specimen: Specimen) -> fx.Graph | None:
    """Return the graph; None if units were named by hand, and the model runs as it is."""
    return getattr(specimen.module, "graph", None)


def _ancestors(roots: list[fx.Node], outside: set[fx.Node]) -> set[fx.Node]:
    """Return the roots and all their ancestors, except nodes in `outside` and before them."""
    queue = [node for node in roots if node not in outside]
    reached = set(queue)
    while queue:
        new = set(queue.pop().all_input_nodes) - reached - outside
        reached |= new
        queue.extend(new)
    return reached


def forward_with(specimen: Specimen, given: Weights, images: Tensor) -> Any:
    """Run a model with these tensors in place of some of its parameters or buffers."""
    named = {PREFIX + name: value for name, value in given.items()}
    return functional_call(specimen, named, (images,)) if named else specimen(images)


def class_scores(specimen: Specimen, given: Weights, images: Tensor) -> Tensor:
    """Return logits (b, classes), with these tensors in place of some of the parameters."""
    scores = logits(forward_with(specimen, given, images))
    if scores is None:
        raise VitreousError(
            f"{specimen.anatomy.model} gives no score for each class, so it has no loss."
        )
    return scores


@dataclass(frozen=True, eq=False)
class Loss:
    """Mean cross-entropy of one batch as a function of some of the parameters."""

    specimen: Specimen
    images: Tensor
    """(b, c, h, w) prepared for the model."""
    targets: Tensor
    """(b,) classes, or (b, classes) shares."""

    def __call__(self, given: Weights) -> Tensor:
        return F.cross_entropy(class_scores(self.specimen, given, self.images), self.targets)


def require_finite(value: Tensor, model: str, what: str = "loss") -> Tensor:
    """Return the value; raise if it is not finite."""
    if not bool(value.isfinite().all()):
        raise VitreousError(
            f"The {what} of {model} is not finite on these images; train it with a lower learning "
            "rate, or load another checkpoint."
        )
    return value


class Batches:
    """Batches of the loss: images as they are (`clean`), or augmented as in training (`augmented`).

    An augmented batch is a function of its rows and the seed: crop, flip, RandAugment, mixing and
    smoothed labels are those of `recipe`, and the same whenever and wherever they are drawn.
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
        """Return prepared images and targets, on the model's device."""
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
        """Draw on the CPU, so that a GPU sees the same images."""
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
    """Return a number per colour; a grey model's one counts for all three."""
    red, green, blue = given[:channels] * (3 // channels)
    return red, green, blue


class Hessian:
    """Products of the loss's Hessian with vectors, for several batches at once.

    The graph of the gradients is built once and run for every product; on a GPU the second product
    is recorded, and later ones are replayed. If a batch does not fit into memory, the graph is
    built anew for every part of it in every product.

    Parameters
    ----------
    given
        The parameters that the Hessian is over.
    images, targets
        (batches, b, …) prepared images and their targets.
    at_once
        Maximum number of images in memory, of all batches together.
    """

    def __init__(
        self, specimen: Specimen, given: Weights, images: Tensor, targets: Tensor, at_once: int
    ) -> None:
        self.specimen = with_fast_second_derivatives(specimen)
        self.sizes = [value.numel() for value in given.values()]
        self.given = {
            name: value.expand(len(images), *value.shape).requires_grad_()
            for name, value in given.items()
        }
        share = max(1, min(at_once // len(images), images.shape[1]))
        self.parts = list(zip(images.split(share, 1), targets.split(share, 1), strict=True))
        self.count = images.shape[1]
        self.recorder = Recorder(images.device) if images.is_cuda else None
        self.graph: tuple[Tensor, ...] | None = None
        if len(self.parts) == 1:
            on_stream = self.recorder.on_stream() if self.recorder else nullcontext()
            with twice_differentiable(), on_stream:
                self.graph = self._gradients(*self.parts[0])

    def __call__(self, vectors: Tensor) -> Tensor:
        """Multiply one vector per batch, (batches, n) to (batches, n)."""
        with twice_differentiable():
            if self.graph is not None and self.recorder is not None:
                return self.recorder(partial(self._product, self.graph, keep=True), vectors)
            if self.graph is not None:
                return self._product(self.graph, vectors, keep=True)
            products = [self._product(self._gradients(*part), vectors) for part in self.parts]
            return torch.stack(products).sum(0)

    def _gradients(self, images: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        weight = images.shape[1] / self.count

        def loss(given: Weights, images: Tensor, targets: Tensor) -> Tensor:
            return Loss(self.specimen, images, targets)(given)

        if len(images) == 1:
            first = {name: value[0] for name, value in self.given.items()}
            total = loss(first, images[0], targets[0])
        else:
            total = torch.vmap(loss)(self.given, images, targets).sum()
        require_finite(total, self.specimen.anatomy.model)
        return torch.autograd.grad(
            total * weight, list(self.given.values()), create_graph=True, materialize_grads=True
        )

    def _product(
        self, gradients: tuple[Tensor, ...], vectors: Tensor, keep: bool = False
    ) -> Tensor:
        curved, tangents = [], []
        for part, gradient in zip(vectors.split(self.sizes, 1), gradients, strict=True):
            if gradient.requires_grad:  # False if the loss is linear in a parameter
                curved.append(gradient)
                tangents.append(part.view_as(gradient))
        parameters = list(self.given.values())
        products = torch.autograd.grad(
            curved, parameters, tangents, retain_graph=keep, materialize_grads=True
        )
        return torch.cat([product.flatten(1) for product in products], 1)


def check_second_derivatives(
    specimen: Specimen, given: Weights, images: Tensor, targets: Tensor
) -> None:
    """Compare one product of `Hessian` with torch's own; raise if they differ beyond rounding.

    Torch's own is double backward through the unmodified graph. A few images suffice: the
    operations are the same for any number. With several batches, two are used, so that
    `torch.vmap` is checked too. The vector is random, so that every parameter is checked.
    """
    images, targets = images[:2, :CHECKED], targets[:2, :CHECKED]
    hessian = Hessian(specimen, given, images, targets, images.shape[0] * images.shape[1])
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(len(images), sum(hessian.sizes), generator=generator).to(images)
    vectors /= vectors.norm(dim=1, keepdim=True)
    if vectors.is_cuda:  # two products of another vector, so that the next one is a replay
        hessian(vectors.roll(1, 1)), hessian(vectors.roll(1, 1))
    ours = hessian(vectors)[0]

    leaves = {name: value.detach().requires_grad_() for name, value in given.items()}
    values = list(leaves.values())
    with twice_differentiable():
        loss = Loss(specimen, images[0], targets[0])(leaves)
        gradients = torch.autograd.grad(loss, values, create_graph=True, materialize_grads=True)
        directional = torch.cat([g.flatten() for g in gradients]) @ vectors[0]
        products = torch.autograd.grad(directional, values, materialize_grads=True)
    theirs = torch.cat([product.flatten() for product in products])
    if not bool((ours.norm() + theirs.norm()).isfinite()):
        return  # Lanczos iteration raises a better error on its first product

    rounding = float(torch.finfo(images.dtype).eps) ** 0.5
    size = max(float(theirs.norm()), rounding)  # products of a flat loss are all rounding
    gap = float((ours - theirs).norm()) / size
    if not gap <= TOLERANCE * rounding:
        raise VitreousError(
            f"Second derivatives of {specimen.anatomy.model} differ from torch's own by {gap:.2g} "
            f"of their size, where rounding explains {TOLERANCE * rounding:.2g}: torch "
            f"{torch.__version__} runs autograd in an order that Vitreous does not expect. Use "
            "another version of torch, and report this."
        )
