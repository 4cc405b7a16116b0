"""Run an edited model from what an earlier run has left: only what lies behind the edit.

A `Recording` keeps what units handed on, all attention and the output. To run another edit of the
same model on the same images, the two graphs are compared: a node is the same if it calls the same
operation on the same inputs. What differs, and what depends on it, is computed; everything else is
taken from the recording. The operations and their inputs are those of the full run, so the result
is equal to the last bit.

Where that cannot be promised, everything is computed, and `Recording.complete` says why: a model
that draws random numbers, a function given to `with_branch`, a constant that changes between uses,
or units named by hand.
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
"""Asked between two operations; true stops the run."""
COMPUTING = ("call_function", "call_method", "call_module")


class Stopped(Exception):
    """A run was cancelled before its end."""


class _Name(str):
    """An input of a node by its name, which differs from any string among its arguments."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and str.__eq__(self, other)

    __hash__ = str.__hash__


class _Tap(NamedTuple):
    """Attention to compute as soon as its sources are there."""

    unit: str
    sites: tuple[AttentionSite, ...]
    sources: list[Any]

    @property
    def nodes(self) -> list[fx.Node]:
        return [each for each in self.sources if isinstance(each, fx.Node)]


class _Step(NamedTuple):
    """One node to compute, and what happens right after it."""

    node: fx.Node
    taps: tuple[_Tap, ...]
    done: tuple[fx.Node, ...]
    """Nodes whose values nothing needs any more."""


@dataclass(frozen=True)
class _Plan:
    """How to run a graph, given what a recording of another one has kept."""

    steps: tuple[_Step, ...]
    first: tuple[_Tap, ...]
    """Attention whose sources are all in the recording."""
    reused: tuple[str, ...]
    """Nodes whose values are those of the recording."""
    seen: tuple[str, ...]
    """Units whose attention is that of the recording."""

    @cached_property
    def computed(self) -> int:
        """Number of operations."""
        return sum(step.node.op in COMPUTING for step in self.steps)


@dataclass(frozen=True, eq=False)
class Recording:
    """What a model computed for some images, kept where its units meet.

    Examples
    --------
    >>> whole = Runner(specimen).record(images)
    >>> edited = Runner(specimen.without("blocks.9.attn")).rerun(whole)
    >>> torch.equal(edited.output, specimen.without("blocks.9.attn")(images))
    True
    """

    runner: Runner
    images: Tensor
    output: Any
    attention: Mapping[str, AttentionMap]
    """By unit, of all units whose attention can be observed."""
    computed: int
    """Operations that were computed, of `runner.operations`."""
    complete: str = ""
    """Why everything was computed although parts were known; empty if that was not so."""
    kept: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def feature(self, unit: str, site: Site = "out") -> Feature | None:
        """What a unit reads or hands on: 'before', 'skip', 'after' or 'out'; None if it is gone."""
        wiring = self.runner.specimen.wiring(unit)
        if wiring is None:
            return None
        value = self.kept.get(str(getattr(wiring, site)))
        return None if value is None else Feature(value, wiring.layouts.get(site))

    @cached_property
    def nbytes(self) -> int:
        """Bytes of memory; what is shared with another recording counts in both."""
        tensors = [value for value in self.kept.values() if isinstance(value, Tensor)]
        for each in self.attention.values():
            tensors += [each.values] if each.softmax is None else [each.values, each.softmax]
        storages = {each.untyped_storage().data_ptr(): each for each in [*tensors, self.images]}
        return sum(each.untyped_storage().nbytes() for each in storages.values())


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
        """Why this model always runs completely; empty if parts of it can run alone."""
        self._plans: WeakKeyDictionary[Runner, _Plan] = WeakKeyDictionary()
        if isinstance(getattr(specimen.module, "graph", None), fx.Graph):
            self._read()

    def _read(self) -> None:
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
        self.keeps = constants | self._borders()

    @cached_property
    def operations(self) -> int:
        """Number of operations of the whole model."""
        return sum(node.op in COMPUTING for node in getattr(self, "nodes", ()))

    @cached_property
    def signatures(self) -> dict[str, Any]:
        """What each node computes, by its name; equal ones compute the same from equal inputs."""
        return {node.name: _signature(node, self.tensors) for node in self.nodes}

    def _borders(self) -> set[str]:
        """Names of the nodes where units meet."""
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
            Asked between operations; if it returns true, `Stopped` is raised.
        """
        if not hasattr(self, "nodes"):
            return self._run_by_hand(images)
        if self not in self._plans:
            self._plans[self] = self._plan(set(), ())
        return self._execute(self._plans[self], images, None, cancelled)

    def rerun(self, recording: Recording, cancelled: Cancelled | None = None) -> Recording:
        """Run the model on the images of a recording, and compute what differs from it.

        Parameters
        ----------
        recording
            Of the same model, with other edits or none.
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
        theirs = other.signatures
        for node in self.nodes:
            alike = self.signatures[node.name] == theirs.get(node.name)
            if alike and all(each.name in same for each in node.all_input_nodes):
                same.add(node.name)
        return same

    def _plan(self, known: set[str], maps: Iterable[str]) -> _Plan:
        """What to compute if the values of `known` and the attention of `maps` are there."""
        seen = set(maps)
        missing = [tap for tap in self.taps if tap.unit not in seen]
        needed = self._needed(known, {node for tap in missing for node in tap.nodes})
        taps: dict[fx.Node | None, list[_Tap]] = {}  # by the node after which all sources are there
        for tap in missing:
            after = [node for node in tap.nodes if node in needed]
            taps.setdefault(max(after, key=needed.__getitem__, default=None), []).append(tap)
        last: dict[fx.Node, fx.Node] = {}  # the step after which a value is not needed any more
        for node in needed:
            sources = [each for tap in taps.get(node, ()) for each in tap.nodes]
            for each in (node, *node.all_input_nodes, *sources):
                last[each] = node
        done: dict[fx.Node, list[fx.Node]] = {}
        for value, step in last.items():
            done.setdefault(step, []).append(value)
        steps = [
            _Step(node, tuple(taps.get(node, ())), tuple(done.get(node, ()))) for node in needed
        ]
        reused = [node.name for node in self.nodes if node.name in known]
        return _Plan(tuple(steps), tuple(taps.get(None, ())), tuple(reused), tuple(seen))

    def _needed(self, known: set[str], sources: set[fx.Node]) -> dict[fx.Node, int]:
        """The nodes to compute for the output and the sources of taps, in order, with their places.

        Without any known value that is the whole graph, so that all constants are kept.
        """
        needed: set[fx.Node] = set()
        for node in reversed(self.nodes):
            wanted = node.op == "output" or node in sources or not needed.isdisjoint(node.users)
            if not known or (wanted and node.name not in known):
                needed.add(node)
        return {node: place for place, node in enumerate(self.nodes) if node in needed}

    @torch.no_grad()
    def _execute(
        self, plan: _Plan, images: Tensor, before: Recording | None, cancelled: Cancelled | None
    ) -> Recording:
        module, graph = self.specimen.module, self.specimen.module.graph
        given = iter(graph.process_inputs(images))
        known = {} if before is None else before.kept
        maps = {} if before is None else {unit: before.attention[unit] for unit in plan.seen}
        kept = {name: known[name] for name in plan.reused}
        values: dict[fx.Node, Any] = {}
        output: Any = None

        def load(node: fx.Node) -> Any:
            return values[node] if node in values else kept[node.name]

        def tap(some: Iterable[_Tap]) -> None:
            for each in some:
                maps[each.unit] = attention_map(each.sites, fx.node.map_arg(each.sources, load))

        tap(plan.first)
        for step in plan.steps:
            node = step.node
            if cancelled is not None and cancelled():
                raise Stopped
            if node.op == "placeholder":
                value: Any = next(given)
            elif node.op == "get_attr":
                value = self.tensors[node.name]
            else:
                inputs = fx.node.map_arg(node.args, load)
                options = fx.node.map_arg(node.kwargs, load) if node.kwargs else {}
                value = output = _call(module, node, inputs, options)
            values[node] = value
            if node.name in self.keeps:
                kept[node.name] = value
            tap(step.taps)
            for each in step.done:
                values.pop(each, None)
        ordered = {each.unit: maps[each.unit] for each in self.taps}
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
        return id(tensors[node.name])  # edits share the weights, and add tensors of their own
    # An edit of attention turns every `view` into `reshape`, which gives the same values.
    target = aten.reshape.default if node.target is aten.view.default else node.target
    inputs, options = (
        fx.node.map_arg(each, lambda n: _Name(n.name)) for each in (node.args, node.kwargs)
    )
    return node.op, target, inputs, options


def _same_tap(tap: _Tap, other: Runner, same: set[str]) -> bool:
    """Whether attention is that of the other model: the same sites and the same sources."""
    theirs = next((each for each in other.taps if each.unit == tap.unit), None)
    if theirs is None or theirs.sites is not tap.sites:
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

    A recording keeps the constants as they are in the end.
    """
    data = depends_on_input(graph)
    used: set[fx.Node] = set()
    for node in graph.nodes:
        if node in data:
            used |= {viewed(each) for each in node.all_input_nodes if each not in data}
        elif mutates(node):
            base = viewed(args(node)[0])
            if base in used or base.op == "get_attr":
                return True
    return False
