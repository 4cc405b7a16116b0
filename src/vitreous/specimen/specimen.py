"""A model opened up: run it, look inside it, change it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import BadImages, UnknownName, VitreousError
from vitreous.specimen import intervene
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.attention import AttentionSite
from vitreous.specimen.graph import is_random, op, path
from vitreous.specimen.observe import (
    Consumer,
    Observation,
    Site,
    Sites,
    Tapped,
    Wiring,
    copy_graph,
    known_sites,
)


class Specimen(nn.Module):
    """A model whose parts have names.

    Calling it gives the model's output. It shares the model's weights and never changes them; every intervention
    returns a new specimen. Moving a specimen to another device or precision leaves the model where it is.
    """

    trained: Mapping[str, Any] = MappingProxyType({})
    """`mean` and `std` of the images' channels and `label_names`, where the model says what it was trained with."""
    weights: str = "unknown"
    """Where its weights come from: pretrained, trained, random or unknown."""

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
        """The ordered sequence of units."""
        return self.anatomy.units

    @property
    def random(self) -> tuple[str, ...]:
        """Where the model draws random numbers in evaluation mode, as `path (operation)`; mostly nowhere."""
        graph = getattr(self.module, "graph", None)
        if not isinstance(graph, fx.Graph):  # named by hand
            return ()
        needed: set[fx.Node] = (
            set()
        )  # what the output depends on: a draw that nobody uses changes nothing
        for node in reversed(graph.nodes):
            if node.op == "output" or not needed.isdisjoint(node.users):
                needed.add(node)
        drawing = [node for node in graph.nodes if node in needed and is_random(node)]
        return tuple(dict.fromkeys(f"{path(node) or 'model'} ({op(node)})" for node in drawing))

    @property
    def attention_sites(self) -> tuple[AttentionSite, ...]:
        """Every attention product of the graph, in the order of the units."""
        return tuple(site for unit in self.units for site in self._wiring[unit.name].attention)

    def forward(self, images: Tensor) -> Any:
        self._check(images)
        return self.module(images)

    def _check(self, images: Any) -> None:
        wanted = self.anatomy.image
        if not isinstance(images, Tensor):
            sizes = ", ".join(map(str, wanted))
            raise BadImages(
                f"Images come as one tensor of shape (batch, {sizes}), not as {type(images).__name__}."
            )
        if images.ndim != 4 or tuple(images.shape[1:]) != wanted:
            shape, size = tuple(images.shape), "x".join(map(str, wanted))
            raise BadImages(
                f"{self.anatomy.model} was opened for images of {size} (batch first), not {shape}; "
                "resize them, or open the model again with image=(height, width)."
            )
        weight = next(self.parameters(), None)
        if weight is not None and (images.device != weight.device or images.dtype != weight.dtype):
            raise BadImages(
                f"The images are {images.dtype} on {images.device} but {self.anatomy.model} is {weight.dtype} on "
                f"{weight.device}; use images.to({str(weight.device)!r}, {weight.dtype})."
            )

    def observe(
        self,
        images: Tensor,
        want: Iterable[Site] = ("before", "branch", "after"),
        units: str | Sequence[str] = "*",
        each: Consumer | None = None,
        grad: bool = False,
    ) -> Observation:
        """What every unit sees and does, in one forward pass.

        With `each`, a function of a unit and its sites, every unit is handed over as soon as it exists and freed
        afterwards; without it everything is kept and returned. `want` is any of 'before', 'skip', 'norm',
        'hidden', 'branch', 'after', 'out' and 'attention'; `units` names units as in `Anatomy.find`.
        """
        self._check(images)
        wanted = known_sites(want)
        chosen = self._find(units)
        kept: dict[str, Sites] = {}
        key = (wanted, tuple(u.name for u in chosen))
        if key not in self._tapped:
            self._tapped[key] = Tapped(
                self.module, [(u, self._wiring[u.name]) for u in chosen], wanted
            )
        with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
            output = self._tapped[key].run(
                images, each or (lambda unit, sites: kept.__setitem__(unit.name, sites))
            )
        return Observation(kept, output)

    def mean_attention(
        self, batches: Iterable[Tensor], units: str | Sequence[str] = "attention"
    ) -> dict[str, Tensor]:
        """Attention averaged over images (A2.26), per unit as (groups, heads, queries, keys), for `with_attention`."""
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
        """Lesion: the same model without what these units add (A4.14).

        Also takes the path of one convolution inside a unit, which then becomes the identity.
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
        """The same model without the skip connections around these units."""

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                intervene.drop_skip(nodes, self._wiring[unit.name], unit)

        return self._edited(edit, f"without skip {', '.join(units)}")

    def with_branch(self, units: str, fn: Callable[..., Tensor]) -> Specimen:
        """The branch computes `fn(before)`, or `fn(before, branch)` if `fn` takes two arguments, on the model's own
        tensors. A module given as `fn` becomes a part of the specimen."""

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                intervene.replace_branch(module, nodes, self._wiring[unit.name], unit, fn)

        return self._edited(edit, f"with branch {units}")

    def with_attention(
        self, units: str, attention: str | Tensor | Mapping[str, Tensor]
    ) -> Specimen:
        """Attention with fixed probabilities instead of the model's own (A2.25, A2.26).

        'uniform'; 'uniform 3x3' over a neighbourhood on the grid; a matrix over tokens, (queries, keys) or (heads,
        queries, keys); or what `mean_attention` returns.
        """

        wiring = dict(self._wiring)

        def edit(module: fx.GraphModule, nodes: dict[str, fx.Node]) -> None:
            for unit in self._find(units):
                sites = wiring[unit.name].attention
                if not sites or not all(site.visible for site in sites):
                    what = f"({unit.kind}, {unit.reach})" if unit.reach else f"({unit.kind})"
                    why = f" {unit.reason}" if unit.reason else ""
                    raise VitreousError(
                        f"Unit {unit.name!r} {what} has no attention to replace.{why}"
                    )
                given = attention.get(unit.name) if isinstance(attention, Mapping) else attention
                if given is None:
                    raise UnknownName("attention given for", unit.name, attention)
                fixed = (
                    intervene.replace_attention(
                        module, nodes, site, _matrix(part, unit, site.places, site.heads or 1), unit
                    )
                    for site, part in (
                        (s, intervene.share(given, sites, i)) for i, s in enumerate(sites)
                    )
                )
                wiring[unit.name] = replace(wiring[unit.name], attention=tuple(fixed))

        described = attention if isinstance(attention, str) else "given"
        return self._edited(edit, f"with attention {units} {described}", wiring)

    def _find(self, patterns: str | Sequence[str]) -> list[Unit]:
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        found = {u.index for pattern in wanted for u in self.anatomy.find(pattern)}
        return [u for u in self.units if u.index in found]

    def _find_or_convolution(self, pattern: str) -> Sequence[Unit | fx.Node]:
        try:
            return self.anatomy.find(pattern)
        except UnknownName:
            convolutions = [n for n in self.module.graph.nodes if op(n).startswith("conv")]
            found = [n for n in convolutions if fnmatchcase(path(n), pattern)]
            if not found:
                names = [u.name for u in self.units] + [path(n) for n in convolutions]
                raise UnknownName("unit or convolution", pattern, names) from None
            return found

    def _edited(
        self,
        edit: Callable[[fx.GraphModule, dict[str, fx.Node]], None],
        description: str,
        wiring: Mapping[str, Wiring] | None = None,
    ) -> Specimen:
        module, nodes = copy_graph(self.module)
        edit(module, nodes)
        module.graph.eliminate_dead_code(
            lambda node: node.op in ("placeholder", "output")
        )  # fused attention too
        module.graph.lint()
        module.recompile()
        return self._trained_alike(
            Specimen(module, self.anatomy, wiring or self._wiring, (*self.edits, description))
        )

    def _trained_alike(self, other: Specimen) -> Specimen:
        other.trained, other.weights = self.trained, self.weights
        return other

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Specimen:
        """Move to another device or type: onto parameters of our own, so that the model stays where it is."""
        before = _home(self)
        for name in {str(n.target) for n in self.module.graph.nodes if n.op == "call_module"}:
            setattr(
                self.module, name, copy.deepcopy(getattr(self.module, name))
            )  # given to `with_branch`
        own_parameters(self.module)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before != _home(self):
            _move_constants(self.module, before, _home(self))
        self._tapped.clear()
        return self

    def train(self, mode: bool = True) -> Specimen:
        if mode:
            raise VitreousError(
                "A specimen always runs in evaluation mode; train the model itself and open it again."
            )
        return super().train(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Specimen:
        return self._trained_alike(
            Specimen(copy.deepcopy(self.module, memo), self.anatomy, self._wiring, self.edits)
        )

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.anatomy.counts().items())
        edits = "".join(f"\n  {edit}" for edit in self.edits)
        size = "x".join(map(str, self.anatomy.image))
        return f"Specimen of {self.anatomy.model} ({size}): {counts}{edits}"

    def _repr_html_(self) -> str:
        from vitreous.specimen.drawing import notebook

        return notebook(self.anatomy)


def own_parameters(module: nn.Module) -> None:
    """The same values in new parameters, tied ones still tied."""
    fresh: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = fresh.setdefault(
                    parameter, nn.Parameter(parameter.data, parameter.requires_grad)
                )


def _matrix(given: str | Tensor, unit: Unit, places: Any, heads: int) -> Tensor:
    if isinstance(given, Tensor):
        return intervene.grouped(given.detach().cpu(), places, heads, unit)
    found = re.fullmatch(r"uniform(?: (\d+)x(\d+))?", given)
    if found is None:
        raise VitreousError(
            f"Attention is 'uniform', 'uniform 3x3' (odd sides), a tensor or a mapping, not {given!r}."
        )
    box = (int(found[1]), int(found[2])) if found[1] else None
    if box is not None and not (box[0] % 2 and box[1] % 2):
        raise VitreousError(
            f"A neighbourhood has odd sides so that its query is in the middle, not {given!r}."
        )
    return intervene.uniform(places, heads, box)


Home = tuple[torch.device, torch.dtype]


def _home(module: nn.Module) -> Home | None:
    weight = next(module.parameters(), None)
    return None if weight is None else (weight.device, weight.dtype)


def _move_constants(module: fx.GraphModule, old: Home | None, new: Home | None) -> None:
    """Tensors that the graph makes or casts itself (ranges, masks, tables) follow the weights."""
    assert old is not None
    assert new is not None

    def moved(value: Any) -> Any:
        return new[0] if isinstance(value, torch.device) else new[1] if value is old[1] else value

    for node in module.graph.nodes:
        if node.op == "call_function":
            node.args = fx.node.map_aggregate(node.args, moved)
            node.kwargs = fx.node.map_aggregate(node.kwargs, moved)
    module.recompile()
