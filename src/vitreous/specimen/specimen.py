"""A model opened up: run it, observe it, change it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import BadImages, UnknownName, VitreousError
from vitreous.models.matching import LoadedWeights
from vitreous.specimen import intervene
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.attention import AttentionSite
from vitreous.specimen.drawing import notebook
from vitreous.specimen.graph import copy_graph, is_random, mutates, op, path
from vitreous.specimen.observe import (
    Consumer,
    Observation,
    Site,
    Sites,
    Tapped,
    Wiring,
    check_sites,
)

Edit = Callable[[fx.GraphModule, dict[str, fx.Node]], None]
"""Changes a copy of the graph, whose nodes it gets by name."""


class Specimen(nn.Module):
    """A model whose parts have names.

    Calling it gives the model's output. It shares the model's weights and never changes them; every
    intervention returns a new specimen. Moving a specimen to another device or precision leaves the
    model where it is.

    Examples
    --------
    >>> specimen = vitreous.open("nano:vit")
    >>> images = torch.zeros(8, 3, 32, 32)
    >>> specimen.observe(images, ["branch"])["blocks.0.attn"].branch.tokens.shape
    torch.Size([8, 65, 96])
    >>> specimen.without("blocks.5.mlp")(images).shape
    torch.Size([8, 10])
    """

    trained: Mapping[str, Any] = MappingProxyType({})
    """`mean`, `std` and `label_names` of the training images, as far as the model declares them."""
    weights: str = "unknown"
    """Where its weights come from: pretrained, trained, untrained, random or unknown."""
    checkpoint: LoadedWeights | None = None
    """Which tensors were loaded from the file given as `weights`, and which were not."""
    undecayed: frozenset[str] = frozenset()  # what the model lists in `no_weight_decay`
    build: Mapping[str, Any] | None = None
    """Options with which `vitreous.build` made the model; None for other models."""

    def __init__(
        self,
        module: fx.GraphModule,
        anatomy: Anatomy,
        wiring: Mapping[str, Wiring],
        edits: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.module = module
        self.anatomy = anatomy
        self.edits = edits
        self._wiring = dict(wiring)
        self._tapped: dict[Any, Tapped] = {}
        super().train(False)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, in order."""
        return self.anatomy.units

    @property
    def random(self) -> tuple[str, ...]:
        """The operations that draw random numbers in evaluation mode, as `path (operation)`."""
        graph = getattr(self.module, "graph", None)
        if not isinstance(graph, fx.Graph):  # units named by hand
            return ()
        needed: set[fx.Node] = set()  # nodes that the output depends on
        for node in reversed(graph.nodes):
            if node.op == "output" or not needed.isdisjoint(node.users):
                needed.add(node)
        drawing = [node for node in graph.nodes if node in needed and is_random(node)]
        return tuple(dict.fromkeys(f"{path(node) or 'model'} ({op(node)})" for node in drawing))

    @property
    def attention_sites(self) -> tuple[AttentionSite, ...]:
        """Every attention product of the graph, in the order of the units."""
        return tuple(site for unit in self.units for site in self._wiring[unit.name].attention)

    def wiring(self, unit: str) -> Wiring | None:
        """The nodes at which a unit can be observed and cut; None if it was named by hand."""
        return self._wiring.get(unit)

    def forward(self, images: Tensor) -> Any:
        self._check(images)
        return self.module(images)

    def _check(self, images: Any) -> None:
        """Raise `BadImages` for a batch of another shape, type or device than the model takes."""
        wanted, model = self.anatomy.image, self.anatomy.model
        if not isinstance(images, Tensor):
            sizes = ", ".join(map(str, wanted))
            raise BadImages(
                f"Images come as one tensor of shape (batch, {sizes}), not as "
                f"{type(images).__name__}."
            )
        if images.ndim != 4 or tuple(images.shape[1:]) != wanted:
            shape, size = tuple(images.shape), "x".join(map(str, wanted))
            raise BadImages(
                f"{model} was opened for images of {size} (batch first), not {shape}; resize them, "
                "or open the model again with image=(height, width)."
            )
        weight = next(self.parameters(), None)
        if weight is not None and (images.device != weight.device or images.dtype != weight.dtype):
            raise BadImages(
                f"The images are {images.dtype} on {images.device} but {model} is {weight.dtype} "
                f"on {weight.device}; use images.to({str(weight.device)!r}, {weight.dtype})."
            )

    def observe(
        self,
        images: Tensor,
        want: Iterable[Site] = ("before", "branch", "after"),
        units: str | Sequence[str] = "*",
        each: Consumer | None = None,
        grad: bool = False,
    ) -> Observation:
        """Observe the inputs and outputs of units in one forward pass.

        Parameters
        ----------
        images
            A batch of images, (b, c, h, w).
        want
            Any of 'before', 'skip', 'norm', 'hidden', 'branch', 'after', 'out' and 'attention'.
        units
            Names of units, as in `Anatomy.find`.
        each
            A function of a unit and its sites, called as soon as they are computed; they are freed
            afterwards. Without it everything is kept and returned.
        grad
            Whether gradients can flow through what is observed.

        Returns
        -------
        Observation
            The sites by unit name, and the model's `output`.

        Examples
        --------
        >>> specimen.observe(images, ["attention"], "attention")["blocks.0.attn"].attention.values
        """
        self._check(images)
        wanted = check_sites(want)
        chosen = self._find(units)
        kept: dict[str, Sites] = {}
        key = (wanted, tuple(u.name for u in chosen))
        if key not in self._tapped:
            wired = [(u, self._wiring[u.name]) for u in chosen]
            self._tapped[key] = Tapped(self.module, wired, wanted)
        consumer = each or (lambda unit, sites: kept.__setitem__(unit.name, sites))
        with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
            output = self._tapped[key].run(images, consumer)
        return Observation(kept, output)

    def mean_attention(
        self, batches: Iterable[Tensor], units: str | Sequence[str] = "attention"
    ) -> dict[str, Tensor]:
        """Attention averaged over images, by unit, each (groups, heads, queries, keys)."""
        sums: dict[str, Tensor] = {}
        count = 0

        def add(unit: Unit, sites: Sites) -> None:
            if sites.attention is not None:
                total = sites.attention.values.double().sum(0)
                sums[unit.name] = sums[unit.name] + total if unit.name in sums else total

        for images in batches:
            count += len(images)
            self.observe(images, ("attention",), units, each=add)
        if not count:
            raise VitreousError(
                "There are no images to average attention over; give at least one batch."
            )
        return {name: (total / count).float() for name, total in sums.items()}

    def without(self, *units: str) -> Specimen:
        """Lesion: the same model without the branches of these units.

        Also takes the path of a convolution inside a unit, which becomes the identity.

        Examples
        --------
        >>> specimen.without("blocks.*.attn", "blocks.11.mlp")(images)
        """

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for pattern in units:
                for part in self._find_or_convolution(pattern):
                    if isinstance(part, Unit):
                        intervene.drop_branch(module, nodes, self._wiring[part.name], part)
                    else:
                        intervene.drop_convolution(nodes[part.name])

        return self._edited(edit, f"without {', '.join(units)}")

    def without_skip(self, *units: str) -> Specimen:
        """The same model without the skip connections around these units.

        Examples
        --------
        >>> specimen.without_skip("blocks.5.mlp")(images)
        """

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                intervene.drop_skip(nodes, self._wiring[unit.name], unit)

        return self._edited(edit, f"without skip {', '.join(units)}")

    def with_branch(self, units: str, fn: Callable[..., Tensor]) -> Specimen:
        """The same model with `fn(before)` or `fn(before, branch)` instead of the branch.

        `fn` gets the model's own tensors. A module given as `fn` becomes a part of the specimen.

        Examples
        --------
        >>> specimen.with_branch("blocks.0.attn", lambda before, branch: branch / 2)(images)
        """

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                intervene.replace_branch(module, nodes, self._wiring[unit.name], unit, fn)

        return self._edited(edit, f"with branch {units}")

    def with_attention(
        self, units: str, attention: str | Tensor | Mapping[str, Tensor]
    ) -> Specimen:
        """The same model with fixed attention probabilities.

        `attention` is 'uniform'; 'uniform 3x3' over a neighbourhood on the grid; a matrix over
        tokens, (queries, keys) or (heads, queries, keys); or what `mean_attention` returns.

        Examples
        --------
        >>> specimen.with_attention("blocks.*.attn", "uniform 3x3")(images)
        """
        wiring = dict(self._wiring)

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                sites = wiring[unit.name].attention
                if not sites or not all(site.visible for site in sites):
                    kind = f"({unit.kind}, {unit.reach})" if unit.reach else f"({unit.kind})"
                    why = f" {unit.reason}" if unit.reason else ""
                    raise VitreousError(
                        f"Unit {unit.name!r} {kind} has no attention to replace.{why}"
                    )
                given = attention.get(unit.name) if isinstance(attention, Mapping) else attention
                if given is None:
                    raise UnknownName("attention given for", unit.name, attention)
                new_sites = []
                for number, site in enumerate(sites):
                    assert site.places is not None
                    part = intervene.part_for_site(given, sites, number)
                    matrix = intervene.fixed_attention(part, unit, site.places, site.heads or 1)
                    new_sites.append(intervene.replace_attention(module, nodes, site, matrix, unit))
                wiring[unit.name] = replace(wiring[unit.name], attention=tuple(new_sites))

        described = attention if isinstance(attention, str) else "given"
        return self._edited(edit, f"with attention {units} {described}", wiring)

    def _find(self, patterns: str | Sequence[str]) -> list[Unit]:
        """The units that match any of the patterns, in order."""
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        indices = {u.index for pattern in wanted for u in self.anatomy.find(pattern)}
        return [u for u in self.units if u.index in indices]

    def _find_or_convolution(self, pattern: str) -> Sequence[Unit | fx.Node]:
        try:
            return self.anatomy.find(pattern)
        except UnknownName:
            convolutions = [n for n in self.module.graph.nodes if op(n).startswith("conv")]
            matches = [n for n in convolutions if fnmatchcase(path(n), pattern)]
            if not matches:
                names = [u.name for u in self.units] + [path(n) for n in convolutions]
                raise UnknownName("unit or convolution", pattern, names) from None
            return matches

    def _edited(
        self, edit: Edit, description: str, wiring: Mapping[str, Wiring] | None = None
    ) -> Specimen:
        """A new specimen over an edited copy of the graph."""
        module, nodes = copy_graph(self.module)
        edit(module, nodes)
        module.graph.eliminate_dead_code(_has_effect)
        module.graph.lint()
        module.recompile()
        wiring, edits = wiring or self._wiring, (*self.edits, description)
        return self._with_origin(Specimen(module, self.anatomy, wiring, edits))

    def twin(self) -> Specimen:
        """Another specimen with the same graph and weights, for use in another thread."""
        return self._with_origin(Specimen(self.module, self.anatomy, self._wiring, self.edits))

    def _with_origin(self, other: Specimen) -> Specimen:
        """Copy what is known of this specimen's training to `other`, and return it."""
        for name in ("trained", "weights", "build", "checkpoint", "undecayed"):
            setattr(other, name, getattr(self, name))
        return other

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Specimen:
        """Move to another device or type; the model itself stays where it is."""
        before = _device_and_dtype(self)
        for name in {str(n.target) for n in self.module.graph.nodes if n.op == "call_module"}:
            module = copy.deepcopy(getattr(self.module, name))  # the user's, from `with_branch`
            setattr(self.module, name, module)
        renew_parameters(self.module)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        after = _device_and_dtype(self)
        if before is not None and after is not None and before != after:
            _move_constants(self.module, before, after)
        self._tapped.clear()
        return self

    def train(self, mode: bool = True) -> Specimen:
        """Refuse `train()`: a specimen always runs in evaluation mode."""
        if mode:
            raise VitreousError(
                "A specimen always runs in evaluation mode; train the model itself and open it "
                "again."
            )
        return super().train(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Specimen:
        module = copy.deepcopy(self.module, memo)
        return self._with_origin(Specimen(module, self.anatomy, self._wiring, self.edits))

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.anatomy.counts().items())
        edits = "".join(f"\n  {edit}" for edit in self.edits)
        size = "x".join(map(str, self.anatomy.image))
        return f"Specimen of {self.anatomy.model} ({size}): {counts}{edits}"

    def _repr_html_(self) -> str:
        return notebook(self.anatomy)


def _has_effect(node: fx.Node) -> bool:
    """Whether a node has to stay although no node uses it, such as filling a mask in place.

    Unused fused attention is removed. Fx would keep it, since it may draw random numbers.
    """
    return node.op in ("placeholder", "output") or mutates(node)


def renew_parameters(module: nn.Module) -> None:
    """Replace all parameters by new ones with the same values; tied ones stay tied."""
    renewed: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None:
                new = nn.Parameter(old.data, old.requires_grad)
                part._parameters[name] = renewed.setdefault(old, new)


DeviceAndDtype = tuple[torch.device, torch.dtype]


def _device_and_dtype(module: nn.Module) -> DeviceAndDtype | None:
    weight = next(module.parameters(), None)
    return None if weight is None else (weight.device, weight.dtype)


def _move_constants(module: fx.GraphModule, old: DeviceAndDtype, new: DeviceAndDtype) -> None:
    """Change device and dtype where nodes of the graph create or cast tensors (ranges, masks)."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return new[0]
        return new[1] if value is old[1] else value

    for node in module.graph.nodes:
        if node.op == "call_function":
            node.args = fx.node.map_aggregate(node.args, moved)
            node.kwargs = fx.node.map_aggregate(node.kwargs, moved)
    module.recompile()
