"""Run an edited model again, computing only the operations that depend on the edit.

A `Recording` keeps the inputs and outputs of units, all attention and the output of a run. To run
another edit of the same model on the same images, the two graphs are compared: a node is the same
if it calls the same operation on the same inputs. Nodes that differ, and those that depend on them,
are computed; all others are taken from the recording. Operations and inputs are those of a full
run, so the result is equal to the last bit.

If that cannot be guaranteed, everything is computed, and `Recording.complete` says why: the model
draws random numbers, `with_branch` was given a function, a constant changes between uses, or units
are named by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx

from vitreous.specimen.attention import AttentionSite
from vitreous.specimen.graph import args, aten, attribute, depends_on_input, mutates, viewed
from vitreous.specimen.observe import (
    AttentionMap,
    Feature,
    Site,
    attention_map,
    attention_sources,
)
from vitreous.specimen.specimen import Specimen

Cancelled = Callable[[], bool]
"""Called between two operations; the run stops if it returns true."""
COMPUTING = ("call_function", "call_method", "call_module")


class Stopped(Exception):
    """A run was cancelled before its end."""


class _Name(str):
    """The name of an input node, which is unequal to any plain string among the arguments."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and str.__eq__(self, other)

    __hash__ = str.__hash__


class _Tap(NamedTuple):
    """Attention to compute as soon as its source nodes are computed."""

    unit: str
    sites: tuple[AttentionSite, ...]
    sources: list[Any]

    @property
    def nodes(self) -> list[fx.Node]:
        return [source for source in self.sources if isinstance(source, fx.Node)]


class _Step(NamedTuple):
    """One node to compute, and the taps to run and values to free after it."""

    node: fx.Node
    taps: tuple[_Tap, ...]
    last_uses: tuple[fx.Node, ...]
    """Nodes whose values are not needed after this step."""


@dataclass(frozen=True)
class _Plan:
    """How to run a graph, given the recording of another one."""

    steps: tuple[_Step, ...]
    ready_taps: tuple[_Tap, ...]
    """Attention whose sources are all in the recording."""
    reused: tuple[str, ...]
    """Nodes whose values are taken from the recording."""
    reused_attention: tuple[str, ...]
    """Units whose attention is taken from the recording."""

    @cached_property
    def computed(self) -> int:
        """Number of operations."""
        return sum(step.node.op in COMPUTING for step in self.steps)


@dataclass(frozen=True, eq=False)
class Recording:
    """What a model computed for some images: inputs and outputs of units, attention, output.

    Examples
    --------
    >>> original = Runner(specimen).record(images)
    >>> edited = Runner(specimen.without("blocks.9.attn")).rerun(original)
    >>> torch.equal(edited.output, specimen.without("blocks.9.attn")(images))
    True
    """

    runner: Runner
    images: Tensor
    output: Any
    attention: Mapping[str, AttentionMap]
    """Attention by unit, for all units whose attention can be observed."""
    computed: int
    """Number of operations that were computed, out of `runner.operations`."""
    complete: str = ""
    """Why the model ran completely instead of reusing a recording; empty if it can reuse one."""
    kept: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def feature(self, unit: str, site: Site = "out") -> Feature | None:
        """The tensor at 'before', 'skip', 'after' or 'out' of a unit; None if it does not exist."""
        wiring = self.runner.specimen.wiring(unit)
        if wiring is None:
            return None
        value = self.kept.get(str(getattr(wiring, site)))
        return None if value is None else Feature(value, wiring.layouts.get(site))

    @cached_property
    def nbytes(self) -> int:
        """Bytes of memory; memory shared with another recording counts in both."""
        tensors = [value for value in self.kept.values() if isinstance(value, Tensor)]
        for attention in self.attention.values():
            tensors.append(attention.values)
            if attention.softmax is not None:
                tensors.append(attention.softmax)
        storages = {t.untyped_storage().data_ptr(): t for t in [*tensors, self.images]}
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


class Runner:
    """A specimen prepared to run operation by operation.

    Parameters
    ----------
    specimen
        A model, edited or not. Make a new runner if you move it to another device.

    Examples
    --------
    >>> recording = Runner(specimen).record(images)
    >>> recording.attention["blocks.0.attn"].values.shape
    torch.Size([1, 1, 3, 197, 197])
    """

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self.complete = _why_complete(specimen)
        """Why this model always runs completely; empty if it can reuse recordings."""
        self._plans: WeakKeyDictionary[Runner, _Plan] = WeakKeyDictionary()
        if isinstance(getattr(specimen.module, "graph", None), fx.Graph):
            self._read_graph()

    def _read_graph(self) -> None:
        module = self.specimen.module
        self.nodes: list[fx.Node] = list(module.graph.nodes)
        self.tensors = {
            node.name: attribute(module, str(node.target))
            for node in self.nodes
            if node.op == "get_attr"
        }
        self.taps = self._find_taps()
        data = depends_on_input(module.graph)
        constants = {node.name for node in self.nodes if node not in data and node.op != "get_attr"}
        self.keeps = constants | self._unit_boundaries()

    @cached_property
    def operations(self) -> int:
        """Number of operations of the whole model."""
        return sum(node.op in COMPUTING for node in getattr(self, "nodes", ()))

    @cached_property
    def signatures(self) -> dict[str, Any]:
        """Signature of each node by name; equal ones compute the same from equal inputs."""
        return {node.name: _signature(node, self.tensors) for node in self.nodes}

    def _unit_boundaries(self) -> set[str]:
        """Names of the nodes that are inputs, skips or outputs of units."""
        names: set[str] = set()
        for unit in self.specimen.units:
            wiring = self.specimen.wiring(unit.name)
            assert wiring is not None
            ends = (wiring.before, wiring.skip, wiring.after, wiring.out)
            names |= {name for name in ends if name is not None}
        return names

    def _find_taps(self) -> list[_Tap]:
        by_name = {node.name: node for node in self.nodes}
        taps = []
        for unit in self.specimen.units:
            wiring = self.specimen.wiring(unit.name)
            sources = [] if wiring is None else attention_sources(wiring.attention, by_name)
            if wiring is not None and sources:
                taps.append(_Tap(unit.name, wiring.attention, sources))
        return taps

    def record(self, images: Tensor, cancelled: Cancelled | None = None) -> Recording:
        """Run the whole model.

        Parameters
        ----------
        images
            A batch, as the specimen takes it.
        cancelled
            Called between operations; if it returns true, `Stopped` is raised.
        """
        if not hasattr(self, "nodes"):
            return self._run_by_hand(images)
        if self not in self._plans:
            self._plans[self] = self._plan(set(), ())
        return self._execute(self._plans[self], images, None, cancelled)

    def rerun(self, recording: Recording, cancelled: Cancelled | None = None) -> Recording:
        """Run the model on the images of a recording, computing only what differs from it.

        Parameters
        ----------
        recording
            A recording of the same model, with other edits or none.
        cancelled
            As in `record`.
        """
        other = recording.runner
        if self.complete or other.complete:
            return self.record(recording.images, cancelled)
        if other not in self._plans:
            same = self._same_nodes(other)
            maps = [tap.unit for tap in self.taps if _same_tap(tap, other, same)]
            self._plans[other] = self._plan(same & other.keeps, maps)
        return self._execute(self._plans[other], recording.images, recording, cancelled)

    def _same_nodes(self, other: Runner) -> set[str]:
        """Names of the nodes that have the same value in the other model."""
        same: set[str] = set()
        for node in self.nodes:
            equal = self.signatures[node.name] == other.signatures.get(node.name)
            if equal and all(source.name in same for source in node.all_input_nodes):
                same.add(node.name)
        return same

    def _plan(self, known: set[str], maps: Iterable[str]) -> _Plan:
        """What to compute, given the values of `known` and the attention of the units `maps`."""
        reused_attention = set(maps)
        missing = [tap for tap in self.taps if tap.unit not in reused_attention]
        needed = self._needed(known, {node for tap in missing for node in tap.nodes})
        taps: dict[fx.Node | None, list[_Tap]] = {}  # by their last source that is computed
        for tap in missing:
            computed = [node for node in tap.nodes if node in needed]
            taps.setdefault(max(computed, key=needed.__getitem__, default=None), []).append(tap)
        last_use: dict[fx.Node, fx.Node] = {}
        for node in needed:
            sources = [source for tap in taps.get(node, ()) for source in tap.nodes]
            for value in (node, *node.all_input_nodes, *sources):
                last_use[value] = node
        last_uses: dict[fx.Node, list[fx.Node]] = {}
        for value, node in last_use.items():
            last_uses.setdefault(node, []).append(value)
        steps = [
            _Step(node, tuple(taps.get(node, ())), tuple(last_uses.get(node, ())))
            for node in needed
        ]
        reused = [node.name for node in self.nodes if node.name in known]
        ready = tuple(taps.get(None, ()))
        return _Plan(tuple(steps), ready, tuple(reused), tuple(reused_attention))

    def _needed(self, known: set[str], sources: set[fx.Node]) -> dict[fx.Node, int]:
        """The nodes to compute for the output and the sources of taps, in order, with their index.

        Without known values this is the whole graph, so that all constants are kept.
        """
        needed: set[fx.Node] = set()
        for node in reversed(self.nodes):
            used = node.op == "output" or node in sources or not needed.isdisjoint(node.users)
            if not known or (used and node.name not in known):
                needed.add(node)
        return {node: index for index, node in enumerate(self.nodes) if node in needed}

    @torch.no_grad()
    def _execute(
        self, plan: _Plan, images: Tensor, before: Recording | None, cancelled: Cancelled | None
    ) -> Recording:
        module, graph = self.specimen.module, self.specimen.module.graph
        inputs = iter(graph.process_inputs(images))
        known = {} if before is None else before.kept
        maps: dict[str, AttentionMap] = {}
        if before is not None:
            maps = {unit: before.attention[unit] for unit in plan.reused_attention}
        kept = {name: known[name] for name in plan.reused}
        values: dict[fx.Node, Any] = {}
        output: Any = None

        def load(node: fx.Node) -> Any:
            return values[node] if node in values else kept[node.name]

        def run_taps(taps: Iterable[_Tap]) -> None:
            for tap in taps:
                maps[tap.unit] = attention_map(tap.sites, fx.node.map_arg(tap.sources, load))

        run_taps(plan.ready_taps)
        for step in plan.steps:
            node = step.node
            if cancelled is not None and cancelled():
                raise Stopped
            if node.op == "placeholder":
                value: Any = next(inputs)
            elif node.op == "get_attr":
                value = self.tensors[node.name]
            else:
                arguments = fx.node.map_arg(node.args, load)
                options = fx.node.map_arg(node.kwargs, load) if node.kwargs else {}
                value = output = _call(module, node, arguments, options)
            values[node] = value
            if node.name in self.keeps:
                kept[node.name] = value
            run_taps(step.taps)
            for unused in step.last_uses:
                values.pop(unused, None)
        ordered = {tap.unit: maps[tap.unit] for tap in self.taps}
        result = graph.process_outputs(output)
        return Recording(self, images, result, ordered, plan.computed, self.complete, kept)

    @torch.no_grad()
    def _run_by_hand(self, images: Tensor) -> Recording:
        return Recording(self, images, self.specimen(images), {}, 0, self.complete)


def _call(module: Any, node: fx.Node, inputs: Any, options: Any) -> Any:
    if node.op == "output":
        return inputs[0]
    if node.op == "call_module":
        return module.get_submodule(str(node.target))(*inputs, **options)
    if node.op == "call_method":
        return getattr(inputs[0], str(node.target))(*inputs[1:], **options)
    assert callable(node.target)
    return node.target(*inputs, **options)


def _signature(node: fx.Node, tensors: Mapping[str, Any]) -> Any:
    if node.op == "get_attr":
        return id(tensors[node.name])  # edits share the weights, so equal ids mean equal values
    # An edit of attention turns every `view` into `reshape`, which gives the same values.
    target = aten.reshape.default if node.target is aten.view.default else node.target
    arguments, options = (
        fx.node.map_arg(part, lambda n: _Name(n.name)) for part in (node.args, node.kwargs)
    )
    return node.op, target, arguments, options


def _same_tap(tap: _Tap, other: Runner, same: set[str]) -> bool:
    """Whether attention is the same as in the other model: equal sites, equal sources."""
    other_tap = next((t for t in other.taps if t.unit == tap.unit), None)
    if other_tap is None or other_tap.sites is not tap.sites:
        return False
    return all(node.name in same for node in tap.nodes)


def _why_complete(specimen: Specimen) -> str:
    """Why a model cannot run in parts; empty if it can."""
    graph = getattr(specimen.module, "graph", None)
    if not isinstance(graph, fx.Graph):
        return "Its units are named by hand, so it has no graph to run in parts."
    if specimen.random:
        return f"It draws random numbers at {specimen.random[0]}, so every run differs."
    if any(node.op == "call_module" for node in graph.nodes):
        return "It calls a function of yours, which may change what it is given."
    if _changes_between_uses(graph):
        return "It changes a constant between two uses."
    return ""


def _changes_between_uses(graph: fx.Graph) -> bool:
    """Whether a constant is used before something changes it in place.

    A recording keeps only the final values of constants.
    """
    data = depends_on_input(graph)
    used: set[fx.Node] = set()
    for node in graph.nodes:
        if node in data:
            used |= {viewed(source) for source in node.all_input_nodes if source not in data}
        elif mutates(node):
            base = viewed(args(node)[0])
            if base in used or base.op == "get_attr":
                return True
    return False
