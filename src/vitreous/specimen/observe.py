"""Observe every unit in one forward pass, without hooks: taps are nodes of a copy of the graph.

A tap runs as soon as the tensors it needs are computed. They are freed when it returns, unless the
consumer keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx, nn

from vitreous.errors import UnknownName, VitreousError
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.attention import AttentionSite, combine_sites, fused_probabilities
from vitreous.specimen.attention_geometry import Places
from vitreous.specimen.graph import copy_graph
from vitreous.specimen.layout import Centred, Layout

Site = Literal["before", "skip", "norm", "hidden", "branch", "after", "out", "attention"]
"""A place in a unit that can be observed; `Sites` explains each."""
SITES: tuple[Site, ...] = get_args(Site)


def check_sites(want: Iterable[Site]) -> tuple[Site, ...]:
    """Return the sites as a tuple; raise for an unknown one."""
    wanted = tuple(want)
    if unknown := [site for site in wanted if site not in SITES]:
        raise UnknownName("site", unknown[0], SITES, f"Sites are {', '.join(SITES)}.")
    return wanted


@dataclass(frozen=True, slots=True)
class Wiring:
    """Names of the nodes at which a unit can be observed and edited, and their layouts."""

    before: str | None
    skip: str | None
    branches: tuple[str, ...]
    total: str | None
    after: str
    out: str
    layouts: dict[str, Layout | None]
    """The layout at each site."""
    attention: tuple[AttentionSite, ...] = ()
    norm: str | None = None
    hidden: str | None = None


@dataclass(frozen=True)
class Feature:
    """A tensor of the model, in the model's own layout (`raw`) or as tokens or a map.

    Examples
    --------
    >>> import torch, vitreous
    >>> images = torch.zeros(2, 3, 32, 32)
    >>> feature = vitreous.open("nano:vit").observe(images, ["out"])["blocks.0.mlp"].out
    >>> feature.tokens.shape, feature.map.shape, feature.prefix
    (torch.Size([2, 65, 96]), torch.Size([2, 96, 8, 8]), ('class',))
    """

    raw: Tensor
    layout: Layout | None

    @property
    def grid(self) -> Grid | None:
        """Rows and columns, if the tensor has a grid."""
        return self.layout.grid if self.layout is not None else None

    @property
    def prefix(self) -> tuple[str, ...]:
        """Names of the tokens in front of the grid."""
        return self.layout.prefix if self.layout is not None else ()

    @property
    def tokens(self) -> Tensor:
        """(b, prefix + h*w, c); a vector per image counts as one token."""
        if self.layout is not None:
            return self.layout.tokens(self.raw)
        if self.raw.ndim in (2, 3):
            return self.raw.reshape(self.raw.shape[0], -1, self.raw.shape[-1])
        raise VitreousError(
            f"A tensor of shape {tuple(self.raw.shape)} has no known token layout here; use .raw."
        )

    @property
    def map(self) -> Tensor:
        """(b, c, h, w), prefix tokens left out."""
        if self.layout is None or self.layout.grid is None:
            raise VitreousError(
                f"A tensor of shape {tuple(self.raw.shape)} has no grid here; use .tokens or .raw."
            )
        return self.layout.map(self.raw)

    def views(self, tensor: Tensor) -> bool:
        """Whether both share memory and number of elements; shapes may differ."""
        return self.raw.data_ptr() == tensor.data_ptr() and self.raw.numel() == tensor.numel()

    @cached_property
    def centred(self) -> Centred:
        """`map` minus its mean over positions, computed once for all probes of this feature."""
        return Centred.of(self.map)


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """The weights that attention applies, and the positions of their queries and keys.

    Examples
    --------
    >>> import torch, vitreous
    >>> images = torch.zeros(2, 3, 32, 32)
    >>> observed = vitreous.open("nano:vit").observe(images, ["attention"])
    >>> attention = observed["blocks.0.attn"].attention
    >>> attention.values.shape, attention.query_grid
    (torch.Size([2, 1, 4, 65, 65]), (8, 8))
    """

    values: Tensor
    """(b, groups, heads, queries, keys): one group, or one for each window."""
    places: Places
    normalised: bool = True
    """Whether the weights are probabilities: rows sum to one."""
    softmax: Tensor | None = None
    """The output of the model's softmax, if the model changes it before use."""

    @property
    def probabilities(self) -> AttentionMap:
        """Rows that sum to one: these weights, the model's softmax, or normalised weights.

        Raises for weights that can be negative.
        """
        if self.normalised:
            return self
        if self.softmax is not None:
            return AttentionMap(self.softmax, self.places)
        if bool((self.values < 0).any()):
            raise VitreousError(
                "These attention weights can be negative and give no probabilities; use .values."
            )
        sums = self.values.sum(-1, keepdim=True)
        return AttentionMap(self.values / sums.where(sums > 0, torch.ones_like(sums)), self.places)

    @property
    def queries(self) -> Tensor:
        """(groups, queries) token numbers: prefix tokens, then the grid; -1 is padding."""
        return self.places.queries

    @property
    def keys(self) -> Tensor:
        """(groups, keys) token numbers, on `key_grid`."""
        return self.places.keys

    @property
    def prefix(self) -> int:
        """Number of prefix tokens."""
        return self.places.prefix

    @property
    def query_grid(self) -> Grid:
        """Rows and columns of the grid of the queries."""
        return self.places.query_grid

    @property
    def key_grid(self) -> Grid:
        """Rows and columns of the grid of the keys."""
        return self.places.key_grid

    def dense(self) -> Tensor:
        """Weights between all tokens, (b, heads, query tokens, key tokens); 0 for other windows.

        Large for windowed attention.
        """
        batch, _, heads, _, _ = self.values.shape
        rows, columns = (self.prefix + h * w for h, w in (self.query_grid, self.key_grid))
        full = self.values.new_zeros(batch, heads, rows + 1, columns + 1)
        for group, (query, key) in enumerate(zip(self.queries, self.keys, strict=True)):
            # padding has number -1, and so goes to the extra last row and column
            row, column = (query % (rows + 1))[:, None], (key % (columns + 1))[None, :]
            full[:, :, row, column] += self.values[:, group]
        return full[:, :, :-1, :-1]


@dataclass(frozen=True, slots=True)
class Sites:
    """What was observed at one unit; None for sites that were not requested or do not exist.

    Examples
    --------
    >>> import torch, vitreous
    >>> observed = vitreous.open("nano:vit").observe(torch.zeros(2, 3, 32, 32), ["branch"])
    >>> sites = observed["blocks.0.mlp"]
    >>> sites.branch.raw.shape, sites.after
    (torch.Size([2, 65, 96]), None)
    """

    before: Feature | None = None
    """The input of the unit."""
    skip: Feature | None = None
    branch: Feature | None = None
    """What the unit adds to the skip."""
    after: Feature | None = None
    """The sum of skip and branch; without a skip the output of the unit."""
    out: Feature | None = None
    """The output of the unit: `after`, past the activation or norm that ends its block."""
    attention: AttentionMap | None = None
    norm: Feature | None = None
    """The output of the first normalisation within the unit."""
    hidden: Feature | None = None
    """The input of the unit's last layer: hidden activations of an MLP, or concatenated heads."""


class Observation(Mapping[str, Sites]):
    """Observed sites by unit name, and the model's output from the same pass.

    Examples
    --------
    >>> import torch, vitreous
    >>> observed = vitreous.open("nano:vit").observe(torch.zeros(2, 3, 32, 32), ["out"])
    >>> len(observed), observed.output.shape
    (14, torch.Size([2, 10]))
    """

    def __init__(self, sites: dict[str, Sites], output: Any) -> None:
        self._sites, self.output = sites, output

    def __getitem__(self, name: str) -> Sites:
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)


Consumer = Callable[[Unit, Sites], None]


class _ConsumerSlot:
    """Holds the consumer that all taps of a graph call during a pass."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None


class _Tap(nn.Module):
    """A node that passes its inputs to the consumer and returns nothing."""

    def __init__(
        self,
        unit: Unit,
        wiring: Wiring,
        slots: Sequence[tuple[Site, int]],
        consumer_slot: _ConsumerSlot,
    ) -> None:
        super().__init__()
        self.unit, self.wiring, self.slots, self.consumer_slot = (
            unit,
            wiring,
            tuple(slots),
            consumer_slot,
        )

    def forward(self, *tensors: Any) -> None:
        assert self.consumer_slot.consumer is not None
        observed: dict[str, Any] = {}
        features: dict[int, Feature] = {}  # two sites with one tensor share a feature and its cache
        remaining = list(tensors)
        for site, count in self.slots:
            values, remaining = remaining[:count], remaining[count:]
            if site == "attention":
                observed[site] = attention_map(self.wiring.attention, values)
            else:
                value = values[0] if count == 1 else torch.stack(values).sum(0)
                feature = Feature(value, self.wiring.layouts.get(site))
                observed[site] = features.setdefault(id(value), feature)
        self.consumer_slot.consumer(self.unit, Sites(**observed))


def attention_map(sites: Sequence[AttentionSite], tensors: Sequence[Any]) -> AttentionMap:
    """The attention of a unit, from the values of its `attention_sources`.

    Several products are concatenated along heads and groups.
    """
    maps, unmixed, remaining = [], [], list(tensors)
    for site in sites:
        assert site.places is not None
        if site.fused:
            (query, key, *options), remaining = remaining[:6], remaining[6:]
            maps.append(site.places.gather(fused_probabilities(query, key, *options)))
        else:
            assert site.arrangement is not None
            maps.append(site.places.gather(site.arrangement.matrix(remaining.pop(0))))
        if site.arrangement and site.kind == "mixed":
            unmixed.append(site.places.gather(site.arrangement.matrix(remaining.pop(0))))
        else:
            unmixed.append(maps[-1])
    clusters, places = combine_sites(sites)
    kinds = {sites[number].kind for numbers in clusters for number in numbers}
    softmax = None
    if "mixed" in kinds and kinds <= {"mixed", "probabilities"}:
        softmax = _combine(unmixed, clusters)
    return AttentionMap(_combine(maps, clusters), places, kinds == {"probabilities"}, softmax)


def _combine(maps: list[Tensor], clusters: list[list[int]]) -> Tensor:
    """Concatenate the maps of each cluster along heads, and the clusters along groups."""
    groups = [maps[n[0]] if len(n) == 1 else torch.cat([maps[i] for i in n], 2) for n in clusters]
    return groups[0] if len(groups) == 1 else torch.cat(groups, 1)


class Tapped:
    """A copy of a graph with taps at some units, ready to run any number of times."""

    def __init__(
        self, module: fx.GraphModule, units: Sequence[tuple[Unit, Wiring]], want: Sequence[Site]
    ) -> None:
        self.consumer_slot = _ConsumerSlot()
        self.module, nodes = copy_graph(module)
        self.order = {node: i for i, node in enumerate(self.module.graph.nodes)}
        self.taps: dict[fx.Node, fx.Node] = {}
        for unit, wiring in units:
            self._tap(unit, wiring, want, nodes)
        self.module.recompile()

    def _tap(
        self, unit: Unit, wiring: Wiring, want: Sequence[Site], nodes: dict[str, fx.Node]
    ) -> None:
        slots: list[tuple[Site, int]] = []
        args: list[Any] = []
        for site in want:
            sources = _sources(site, wiring, nodes)
            if sources:
                slots.append((site, len(sources)))
                args.extend(sources)
        if not slots:
            return
        graph, name = self.module.graph, f"tap_{unit.index}"
        needed = {a for a in args if isinstance(a, fx.Node)}
        last = max(needed, key=self.order.__getitem__)
        self.module.add_module(name, _Tap(unit, wiring, slots, self.consumer_slot))
        # several units may end at the same node; their taps run in order
        with graph.inserting_after(self.taps.get(last, last)):
            self.taps[last] = graph.call_module(name, tuple(args))

    def run(self, images: Tensor, consumer: Consumer) -> Any:
        """The model's output. Every tap calls `consumer`, which may itself call `run`."""
        previous, self.consumer_slot.consumer = self.consumer_slot.consumer, consumer
        try:
            return self.module(images)
        finally:
            self.consumer_slot.consumer = previous


def _sources(site: Site, wiring: Wiring, nodes: dict[str, fx.Node]) -> list[Any]:
    """The arguments that a tap needs for one site; empty if the unit has no such site."""
    if site != "attention":
        names = wiring.branches if site == "branch" else (getattr(wiring, site),)
        values = [nodes.get(name) for name in names]
        return [] if None in values else values
    return attention_sources(wiring.attention, nodes)


def attention_sources(sites: Sequence[AttentionSite], nodes: Mapping[str, fx.Node]) -> list[Any]:
    """The nodes and options that `attention_map` needs; empty if they cannot be observed."""
    args: list[Any] = []
    for product in sites:
        node = nodes.get(product.product if product.fused else str(product.weights))
        if node is None or product.places is None:
            return []
        args.extend(fused_options(node) if product.fused else [node])
        if product.kind == "mixed":
            args.append(nodes.get(str(product.softmax), node))
    return args


def fused_options(node: fx.Node) -> list[Any]:
    """The arguments of `fused_probabilities` for a fused attention node."""
    arguments = fused_arguments(node)
    defaults = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False}
    options = [arguments.get(name, default) for name, default in defaults.items()]
    return [arguments["query"], arguments["key"], *options]


def fused_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a fused attention node by name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
