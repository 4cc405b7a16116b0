"""Divide a graph into units: residual branches first, then what lies between them (the trunk)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

from torch import fx, nn

from vitreous.specimen.flow import Flow, common_path
from vitreous.specimen.graph import path
from vitreous.specimen.joins import BlockOutputs, Join, find_joins
from vitreous.unit_kinds import Kind

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

Run = list[fx.Node]
"""Consecutive nodes of the graph."""


@dataclass(slots=True)
class Piece:
    """A unit as nodes of the graph: its input, the nodes that compute it, its outputs."""

    kind: Kind
    before: fx.Node | None
    branches: tuple[fx.Node, ...]
    """The summands it adds to the skip; without a skip its one output."""
    body: Run
    after: fx.Node
    """The sum of skip and branches; without a skip its one output."""
    out: fx.Node
    """Its output: `after`, past the activation or norm that ends its block."""
    skip: fx.Node | None = None
    total: fx.Node | None = None
    name: str = ""
    projection: Run = field(default_factory=list)
    """The nodes that the skip computes; empty if the skip is the identity."""


def dissect(flow: Flow, model: nn.Module) -> list[Piece]:
    """All units of the graph, in the order in which they are computed."""
    joins = find_joins(flow)
    outputs = BlockOutputs(joins, flow)
    pieces = [piece for join in joins for piece in _residual(join, outputs.of(join), flow)]
    covered = {node for join in joins for node in join.body}
    trunk = _Trunk(flow, model, [p.name for p in pieces])
    for join in joins:
        rest = [n for n in flow.ancestors(join.fork) if n not in covered and n.op != "placeholder"]
        covered |= set(rest)
        end = outputs.before(join)  # a norm that begins the block is no part of the trunk
        rest = [n for n in rest if flow.leads_to(n, end)]
        pieces += trunk.cut(rest, end)
    computed = [n for n in flow.nodes if n in flow.data and n.op == "call_function"]
    rest = [n for n in computed if n not in covered]
    pieces += trunk.cut(rest, rest[-1] if rest else flow.nodes[-1], last=True)
    pieces.sort(key=lambda p: max(flow.order[b] for b in p.branches))
    _make_names_unique(pieces)
    return pieces


def _residual(join: Join, out: fx.Node, flow: Flow) -> list[Piece]:
    """The units of a join: one for each branch, or a single one if all branches are linear."""
    bodies = {branch: flow.between(join.fork, branch) for branch in join.branches}
    nonlinear = any(flow.role[n] == "activation" for body in bodies.values() for n in body)
    groups = [(branch,) for branch in join.branches] if nonlinear else [join.branches]
    pieces = []
    for group in groups:
        nodes = {n for branch in group for n in bodies[branch]}
        body = sorted(nodes, key=flow.order.__getitem__)
        kind = flow.kind(body)
        assert kind is not None
        piece = Piece(kind, join.fork, group, body, join.total, out, join.skip, join.total)
        piece.name = common_path(flow.main_nodes(body))
        pieces.append(piece)
    pieces[0].projection = flow.between(join.fork, join.skip)
    return pieces


class _Trunk:
    """Divides the parts of the graph that no residual branch covers into units."""

    def __init__(self, flow: Flow, model: nn.Module, residual_names: list[str]) -> None:
        self.flow = flow
        self.modules = dict(model.named_modules())
        self.learned = [n for n in flow.data if any(p.op == "get_attr" for p in n.all_input_nodes)]
        self.started = False
        self.blocks: dict[str, bool] = {}
        self.containers = {_container(name) for name in residual_names} - {""}

    def cut(self, nodes: Run, end: fx.Node, *, last: bool = False) -> list[Piece]:
        """The units of `nodes` up to `end`; the first call finds the stem, the last the head."""
        first = not self.started
        runs = self._runs(nodes, end)
        if not any(map(self._has_main_nodes, runs)) and not (first or last):
            return []
        stem: list[Run] = []
        head: list[Run] = []
        if first:
            self.started = True
            count = self._stem_length(runs)
            stem, runs = runs[:count], runs[count:]
        if last:
            count = self._headless_length(runs)
            runs, head = runs[:count], runs[count:]
        pieces = [self._piece(list(chain(*stem)), "stem")] if stem else []
        pieces += [self._piece(run) for run in self._blocks(runs) if self._has_main_nodes(run)]
        return pieces + ([self._piece(list(chain(*head)), "head")] if head else [])

    def _runs(self, nodes: Run, end: fx.Node) -> list[Run]:
        """Divide nodes at the points where only one tensor is live.

        Neighbouring runs are joined unless both have main nodes or the second removes the grid.
        """
        index = {node: i for i, node in enumerate(nodes)}
        last_use = {n: max((index.get(u, -1) for u in n.users), default=-1) for n in nodes}
        last_use[end] = len(nodes)
        runs: list[Run] = []
        current: Run = []
        live: set[fx.Node] = set()
        for i, node in enumerate(nodes):
            current.append(node)
            live = {n for n in live | {node} if last_use[n] > i}
            if live == {node}:
                runs.append(current)
                current = []
        if current:
            runs.append(current)
        merged: list[Run] = []
        for run in runs:
            previous = merged[-1] if merged else []
            both_compute = self._has_main_nodes(run) and self._has_main_nodes(previous)
            if not merged or both_compute or self._removes_grid(previous, run):
                merged.append(run)
            else:
                merged[-1] = previous + run
        return merged

    def _removes_grid(self, before: Run, run: Run) -> bool:
        """Whether this run pools away the grid, which is where a head begins."""
        return self._has_grid(before) and not self._has_grid(run)

    def _has_grid(self, run: Run) -> bool:
        return self.flow.grid(run[-1]) is not None

    def _has_main_nodes(self, run: Run) -> bool:
        return bool(self.flow.main_nodes(run))

    def _stem_length(self, runs: list[Run]) -> int:
        """Number of leading runs that form the stem.

        These come before the containers of the residual blocks; if there are none, they belong to
        the first child of the model's first container.
        """
        names = [common_path(self.flow.significant(run) or run) for run in runs]
        inside = [any(_within(name, container) for container in self.containers) for name in names]
        outside = len(runs) if self.containers else 0
        count = inside.index(True) if True in inside else outside
        if count or not runs:
            return count
        child = names[0].split(".")[0]
        if isinstance(self.modules.get(child), CONTAINERS):
            child = _container(names[0], keep_number=True)
        return next((i for i, name in enumerate(names) if not _within(name, child)), len(runs))

    def _headless_length(self, runs: list[Run]) -> int:
        """Number of runs before the head, which begins after pooling (also by attention)."""
        count = len(runs)
        while count and not self._has_grid(runs[count - 1]):
            if self.flow.kind(runs[count - 1]) == "attention":
                break
            count -= 1
        return count

    def _blocks(self, runs: list[Run]) -> list[Run]:
        """Join neighbouring runs of one block module, and cut blocks that repeat modules."""
        blocks: list[Run] = []
        for run in runs:
            while blocks and self._one_block(blocks[-1], run):
                run = blocks.pop() + run
            blocks.append(run)
        return [part for block in blocks for part in self._repeated(block)]

    def _one_block(self, left: Run, right: Run) -> bool:
        """Whether two runs belong to one block; a complete attention module stays a unit."""
        sides = self.flow.main_nodes(left), self.flow.main_nodes(right)
        owner = common_path(sides[0] + sides[1])
        if not owner or not self._is_block(owner):
            return False
        attention = [s for s in sides if len(s) > 1 and self.flow.kind(s) == "attention"]
        return all(common_path(side) == owner for side in attention)

    def _is_block(self, owner: str) -> bool:
        """Whether a module is one block and not a stage, that is, a container of several blocks.

        Up to three linear layers are an MLP, also in a `Sequential`.
        """
        if owner not in self.blocks:
            learned = self._inside(owner)
            small_mlp = len(learned) <= 3 and all(self.flow.role[n] == "linear" for n in learned)
            module = self.modules.get(owner)
            inner = module.named_modules() if module is not None else ()
            lists = [f"{owner}.{n}".rstrip(".") for n, m in inner if isinstance(m, CONTAINERS)]
            stage = owner in lists or any(self._busy_children(name) > 1 for name in lists)
            self.blocks[owner] = small_mlp or not stage
        return self.blocks[owner]

    def _busy_children(self, container: str) -> int:
        """The number of a container's children with several learned operations."""
        depth = container.count(".") + 2
        children = Counter(".".join(path(n).split(".")[:depth]) for n in self._inside(container))
        return sum(count > 1 for count in children.values())

    def _inside(self, module: str) -> Run:
        """The learned operations inside a module."""
        return self.flow.significant(n for n in self.flow.data if path(n).startswith(f"{module}."))

    def _repeated(self, block: Run) -> list[Run]:
        """Cut a block in which several tensors stay live (dense blocks, cells) at its children."""
        owner = common_path(self.flow.significant(block))
        if owner and not self._is_container(block):
            return [block]
        children = self._by_child(block, owner)
        busy = [c for c, nodes in children.items() if c and len(self.flow.significant(nodes)) > 1]
        types = [type(self.modules.get(c)) for c in busy]
        if len(busy) < 2 or len(set(types)) == len(types):
            return [block]
        groups: list[Run] = []
        for name, nodes in children.items():
            if name in busy or not groups:
                groups.append(list(nodes))
            else:
                groups[-1] += nodes
        parts: list[Run] = []
        for group in groups:
            parts += self._repeated(group) if self._is_container(group) else [group]
        return parts

    def _by_child(self, block: Run, owner: str) -> dict[str, Run]:
        """Nodes by child module of `owner`; nodes outside any child go with the child before."""
        depth = len(owner.split(".")) if owner else 0
        children: dict[str, Run] = {}
        for node in block:
            parts = path(node).split(".")
            inside = len(parts) > depth and (not owner or path(node).startswith(f"{owner}."))
            child = ".".join(parts[: depth + 1]) if inside else ""
            key = child or next(reversed(children), "")
            children.setdefault(key, []).append(node)
        return children

    def _is_container(self, nodes: Run) -> bool:
        owner = self.modules.get(common_path(self.flow.significant(nodes)))
        return isinstance(owner, CONTAINERS)

    def _piece(self, run: Run, role: Kind | None = None) -> Piece:
        run = sorted(run, key=self.flow.order.__getitem__)
        inside = set(run)
        leaving = [n for n in run if any(u not in inside for u in n.users)]
        end = leaving[-1] if leaving else run[-1]
        inputs = [p for n in run for p in self.flow.positions.data_inputs(n) if p not in inside]
        before = max(inputs, key=self.flow.order.__getitem__, default=None)
        kind = role or self._kind(run, before, end)
        learned = self.flow.main_nodes(run)
        name = self._largest_module(common_path(learned), inside)
        if not name and learned:
            name = path(learned[0]).split(".")[0]
        return Piece(kind, before, (end,), run, end, end, name=name or kind)

    def _largest_module(self, name: str, inside: set[fx.Node]) -> str:
        """The outermost module around `name` whose parameters are all used inside the piece."""
        while "." in name:
            parent = name.rpartition(".")[0]
            if any(n not in inside for n in self.learned if path(n).startswith(f"{parent}.")):
                break
            name = parent
        return name

    def _kind(self, run: Run, before: fx.Node | None, end: fx.Node) -> Kind:
        grid, grid_before = self.flow.grid(end), self.flow.grid(before)
        if grid and grid_before and grid[0] * grid[1] < grid_before[0] * grid_before[1]:
            return "downsample"
        return self.flow.kind(run) or "mlp"


def _within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


def _container(name: str, *, keep_number: bool = False) -> str:
    """The container of a path: `stages` for `stages.0.blocks.1.mlp`, else the path itself.

    With `keep_number` it is the child of the container, `stages.0`.
    """
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: i + 1] if keep_number else parts[:i])
    return name


def _make_names_unique(pieces: list[Piece]) -> None:
    """Add the kind, and then a number, to names that several units share."""
    named: dict[str, Piece] = {}
    for piece in pieces:
        name = plain = piece.name or piece.kind
        if name in named and named[name].kind != piece.kind:
            name = plain = f"{name}:{piece.kind}"
        count = 1
        while name in named:
            count += 1
            name = f"{plain}#{count}"
        piece.name = name
        named[name] = piece
