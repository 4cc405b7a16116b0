"""Cut a graph into units: residual branches first, then whatever of the trunk lies between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch import fx, nn

from vitreous.specimen.anatomy import Grid
from vitreous.specimen.block_outputs import BlockOutputs
from vitreous.specimen.graph import path
from vitreous.specimen.joins import Flow, Join, common_path, find_joins
from vitreous.unit_kinds import Kind

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(slots=True)
class Piece:
    """A unit before it has a name: where it starts, what it computes, where it ends."""

    kind: Kind
    before: fx.Node | None
    branches: tuple[fx.Node, ...]
    """The summands it adds to the skip; without a skip the one tensor it hands on."""
    body: list[fx.Node]
    after: fx.Node
    """The sum of skip and branches; without a skip the one tensor it hands on."""
    out: fx.Node
    """What it hands on: `after`, past the activation or norm that ends its block."""
    skip: fx.Node | None = None
    total: fx.Node | None = None
    name: str = ""
    projection: list[fx.Node] = field(default_factory=list)
    """What the skip computes on its way, if it is more than the identity."""


def dissect(flow: Flow, model: nn.Module) -> list[Piece]:
    """All units of the graph, in the order in which their results exist."""
    joins = find_joins(flow)
    outputs = BlockOutputs(joins, flow)
    pieces = [piece for join in joins for piece in _residual(join, outputs.of(join), flow)]
    taken = {node for join in joins for node in join.body}
    trunk = _Trunk(flow, model, [p.name for p in pieces])
    for join in joins:
        rest = [n for n in flow.above(join.fork) if n not in taken and n.op != "placeholder"]
        taken |= set(rest)
        end = outputs.before(join)  # a norm that begins the block is no part of the trunk
        rest = [n for n in rest if flow.leads_to(n, end)]
        pieces += trunk.cut(rest, end, first=not trunk.started)
    output = flow.nodes[-1]
    rest = [n for n in flow.nodes if n in flow.data and n not in taken and n.op == "call_function"]
    pieces += trunk.cut(rest, rest[-1] if rest else output, first=not trunk.started, last=True)
    pieces.sort(key=lambda p: max(flow.order[b] for b in p.branches))
    _unique_names(pieces)
    return pieces


def _residual(join: Join, out: fx.Node, flow: Flow) -> list[Piece]:
    bodies = [flow.between(join.fork, b) for b in join.branches]
    bent = any(flow.role[n] == "activation" for body in bodies for n in body)
    groups = [(b,) for b in join.branches] if bent else [join.branches]
    pieces = []
    for group in groups:
        body = sorted(
            {n for b in group for n in flow.between(join.fork, b)}, key=flow.order.__getitem__
        )
        kind = flow.kind(body)
        assert kind is not None
        piece = Piece(kind, join.fork, group, body, join.total, out, join.skip, join.total)
        piece.name = common_path(flow.essence(body))
        pieces.append(piece)
    pieces[0].projection = flow.between(join.fork, join.skip)
    return pieces


class _Trunk:
    """Cuts the stretches that no residual branch covers."""

    def __init__(self, flow: Flow, model: nn.Module, residual_names: list[str]) -> None:
        self.flow = flow
        self.modules = dict(model.named_modules())
        self.learned = [n for n in flow.data if any(p.op == "get_attr" for p in n.all_input_nodes)]
        self.started = False
        self.blocks: dict[str, bool] = {}
        self.containers = {_container(name) for name in residual_names} - {""}

    def cut(
        self, nodes: list[fx.Node], end: fx.Node, *, first: bool = False, last: bool = False
    ) -> list[Piece]:
        runs = self._runs(nodes, end)
        if not any(map(self._matters, runs)) and not (first or last):
            return []
        stem: list[list[fx.Node]] = []
        head: list[list[fx.Node]] = []
        if first:
            self.started = True
            stem, runs = self._stem(runs)
        if last:
            runs, head = self._head(runs)
        pieces = [self._piece(_flat(stem), "stem")] if stem else []
        pieces += [self._piece(run) for run in self._blocks(runs) if self._matters(run)]
        return pieces + ([self._piece(_flat(head), "head")] if head else [])

    def _runs(self, nodes: list[fx.Node], end: fx.Node) -> list[list[fx.Node]]:
        """Stretches between the points where a single tensor carries everything; each begins with something learned
        or a change of grid."""
        place = {node: i for i, node in enumerate(nodes)}
        last_use = {
            n: len(nodes) if n is end else max((place.get(u, -1) for u in n.users), default=-1)
            for n in nodes
        }
        runs: list[list[fx.Node]] = []
        current: list[fx.Node] = []
        live: set[fx.Node] = set()
        for i, node in enumerate(nodes):
            current.append(node)
            live = {n for n in live | {node} if last_use[n] > i}
            if live == {node}:
                runs.append(current)
                current = []
        runs += [current] if current else []
        merged: list[list[fx.Node]] = []
        for run in runs:
            if (
                merged
                and not (self._matters(run) and self._matters(merged[-1]))
                and not self._pools(merged[-1], run)
            ):
                merged[-1] = merged[-1] + run
            else:
                merged.append(run)
        return merged

    def _pools(self, before: list[fx.Node], run: list[fx.Node]) -> bool:
        """Whether positions end in this run: that is where a head begins."""
        return self._has_places(before[-1]) and not self._has_places(run[-1])

    def _matters(self, run: list[fx.Node]) -> bool:
        return bool(self.flow.essence(run))

    def _stem(self, runs: list[list[fx.Node]]) -> tuple[list[list[fx.Node]], list[list[fx.Node]]]:
        """Everything before the containers of the residual blocks; failing that, the first child of the container."""
        names = [common_path(self.flow.significant(run) or run) for run in runs]
        inside = [any(f"{name}.".startswith(f"{c}.") for c in self.containers) for name in names]
        count = inside.index(True) if True in inside else len(runs) * bool(self.containers)
        if count == 0:
            top = names[0].split(".")[0]
            child = (
                _container(names[0], keep_number=True)
                if isinstance(self.modules.get(top), CONTAINERS)
                else top
            )
            count = next(
                (i for i, name in enumerate(names) if not f"{name}.".startswith(f"{child}.")),
                len(runs),
            )
        return runs[:count], runs[count:]

    def _head(self, runs: list[list[fx.Node]]) -> tuple[list[list[fx.Node]], list[list[fx.Node]]]:
        """The head begins where positions end, or after the attention that pools them."""
        count = len(runs)
        while (
            count
            and not self._has_places(runs[count - 1][-1])
            and self.flow.kind(runs[count - 1]) != "attention"
        ):
            count -= 1
        return runs[:count], runs[count:]

    def _has_places(self, node: fx.Node) -> bool:
        return grid_of(node, self.flow) is not None

    def _blocks(self, runs: list[list[fx.Node]]) -> list[list[fx.Node]]:
        """Neighbouring runs of one module that is a block, not a container, form one unit."""
        blocks: list[list[fx.Node]] = []
        for run in runs:
            while blocks and self._one_block(blocks[-1], run):
                run = blocks.pop() + run
            blocks.append(run)
        return [part for block in blocks for part in self._repeated(block)]

    def _one_block(self, left: list[fx.Node], right: list[fx.Node]) -> bool:
        a, b = self.flow.essence(left), self.flow.essence(right)
        owner = common_path(a + b)
        if not owner or not self._is_block(owner):
            return False
        whole = [
            common_path(side)
            for side in (a, b)
            if len(side) > 1 and self.flow.kind(side) == "attention"
        ]
        return all(where == owner for where in whole)  # attention that is complete stays by itself

    def _is_block(self, owner: str) -> bool:
        """A module that is no container and has none inside that holds several blocks (then it is a whole stage).

        Two or three linear maps in a row are an MLP, also where they stand in a `Sequential`.
        """
        if owner not in self.blocks:
            module = self.modules.get(owner)
            learned = self._inside(owner)
            small_mlp = len(learned) <= 3 and all(self.flow.role[n] == "linear" for n in learned)
            inner = module.named_modules() if module is not None else ()
            lists = [
                f"{owner}.{name}".rstrip(".") for name, m in inner if isinstance(m, CONTAINERS)
            ]
            stage = owner in lists or any(self._busy_children(name) > 1 for name in lists)
            self.blocks[owner] = small_mlp or not stage
        return self.blocks[owner]

    def _busy_children(self, container: str) -> int:
        """Children of a container that compute several things."""
        depth = container.count(".") + 2
        children = Counter(".".join(path(n).split(".")[:depth]) for n in self._inside(container))
        return sum(count > 1 for count in children.values())

    def _inside(self, module: str) -> list[fx.Node]:
        """What a module's parts learn."""
        return self.flow.significant(n for n in self.flow.data if path(n).startswith(f"{module}."))

    def _repeated(self, block: list[fx.Node]) -> list[list[fx.Node]]:
        """A stretch without a narrow point (dense blocks, cells) is cut at its repeated child modules."""
        owner = common_path(self.flow.significant(block))
        if owner and not self._is_container(block):
            return [block]
        depth = len(owner.split(".")) if owner else 0
        children: dict[str, list[fx.Node]] = {}
        for node in block:
            parts = path(node).split(".")
            inside = len(parts) > depth and (not owner or path(node).startswith(f"{owner}."))
            child = ".".join(parts[: depth + 1]) if inside else ""
            key = child or next(reversed(children), "")
            children.setdefault(key, []).append(node)
        busy = [c for c, nodes in children.items() if c and len(self.flow.significant(nodes)) > 1]
        types = [type(self.modules.get(c)) for c in busy]
        if len(busy) < 2 or len(set(types)) == len(types):
            return [block]
        groups: list[list[fx.Node]] = []
        for name, nodes in children.items():
            if name in busy or not groups:
                groups.append(list(nodes))
            else:
                groups[-1] += nodes
        return [
            part for g in groups for part in (self._repeated(g) if self._is_container(g) else [g])
        ]

    def _is_container(self, nodes: list[fx.Node]) -> bool:
        owner = self.modules.get(common_path(self.flow.significant(nodes)))
        return isinstance(owner, CONTAINERS)

    def _piece(self, run: list[fx.Node], role: Kind | None = None) -> Piece:
        run = sorted(run, key=self.flow.order.__getitem__)
        end, inside = run[-1], set(run)
        leaving = [n for n in run if any(u not in inside for u in n.users)]
        end = leaving[-1] if leaving else end
        feeds = [
            p for n in run for p in n.all_input_nodes if p not in inside and p in self.flow.data
        ]
        before = max(feeds, key=self.flow.order.__getitem__, default=None)
        kind = role or self._kind(run, before, end)
        learned = self.flow.essence(run)
        name = (
            self._whole(common_path(learned), inside)
            or (path(learned[0]).split(".")[0] if learned else "")
            or kind
        )
        return Piece(kind, before, (end,), run, end, end, name=name)

    def _whole(self, name: str, inside: set[fx.Node]) -> str:
        """The largest module around `name` of which nothing lies outside the piece."""
        while "." in name:
            parent = name.rpartition(".")[0]
            if any(n not in inside for n in self.learned if path(n).startswith(f"{parent}.")):
                break
            name = parent
        return name

    def _kind(self, run: list[fx.Node], before: fx.Node | None, end: fx.Node) -> Kind:
        here, there = grid_of(end, self.flow), grid_of(before, self.flow)
        if here and there and here[0] * here[1] < there[0] * there[1]:
            return "downsample"
        return self.flow.kind(run) or "mlp"


def grid_of(node: fx.Node | None, flow: Flow) -> Grid | None:
    """The grid of a tensor, if it still has one."""
    layout = flow.layout(node)
    return layout.grid if layout is not None else None


def _flat(runs: list[list[fx.Node]]) -> list[fx.Node]:
    return [node for run in runs for node in run]


def _container(name: str, *, keep_number: bool = False) -> str:
    """`stages.0.blocks.1.mlp` lives in the container `stages` (its child there is `stages.0`)."""
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: i + 1] if keep_number else parts[:i])
    return name


def _unique_names(pieces: list[Piece]) -> None:
    """A module used twice, or two units of one module, are told apart by kind, then by number."""
    seen: dict[str, Piece] = {}
    for piece in pieces:
        name = plain = piece.name or piece.kind
        if name in seen and seen[name].kind != piece.kind:
            name = plain = f"{name}:{piece.kind}"
        count = 1
        while name in seen:
            count += 1
            name = f"{plain}#{count}"
        piece.name = name
        seen[name] = piece
