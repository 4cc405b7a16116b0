"""Find the residual joins of a graph, and what each residual block hands on.

A join is a sum of tensors one of which, the skip, is an ancestor of all the others, or comes from
one by a mere projection (a strided 1x1 convolution, a pooling, a norm). What lies between fork and
join is the branch. Sums that only look like it are left out: rotary embeddings (nothing learned in
between), attention logits plus a bias (constant), fusions of separate paths (no simple path is the
skip), hierarchical splits (the skip carries only a part).

A block hands on the sum after the activation or norm that ends it: a post-activation ResNet ends
its blocks with a ReLU and a post-norm transformer with a norm. In a pre-activation network the same
operations follow the sum too, but they begin the next block. The graph alone often cannot tell the
two apart, so three signs are read, in this order:

1. the modules: an operation inside another block's module, or nearer to it, belongs to that block;
2. the next skip: a tensor that a later block adds back unchanged is what the block before it has
   handed on;
3. the other blocks: what ends one block ends those built like it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from torch import fx

from vitreous.specimen.flow import SIGNIFICANT, Flow, common_path
from vitreous.specimen.graph import op, path, shape_of

LAYOUT = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "flatten", "unflatten", "contiguous",
    "clone", "squeeze", "unsqueeze", "movedim", "mT", "swapaxes", "to", "_to_copy", "alias",
    "detach",
}  # fmt: skip
PARTS = {"getitem", "split", "split_with_sizes", "chunk", "unbind", "select", "index", "narrow"}
NORMS = {"layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "native_layer_norm"}
LONGEST = 40
"""Operations that are followed after a sum; a norm written out by hand has about ten."""


@dataclass(slots=True)
class Join:
    """One sum of a skip and its branches. Parallel branches (attention beside MLP) share a join."""

    fork: fx.Node
    skip: fx.Node
    branches: tuple[fx.Node, ...]
    total: fx.Node
    body: list[fx.Node]
    """Everything between fork and total."""


def find_joins(flow: Flow) -> list[Join]:
    """All residual joins, outermost where they nest, in order."""
    sums = [n for n in flow.nodes if _is_sum(n, flow)]
    inner = {n for n in sums if len(n.users) == 1 and next(iter(n.users)) in sums}
    plain = {n for n in inner if not any(op(part) == "neg" for part in n.all_input_nodes)}
    joins = []
    for total in sums:
        if total in inner:
            continue
        # a difference inside a branch, pool(x) - x, belongs to the branch
        join = _join(total, flow, inner) or _join(total, flow, plain)
        if join is not None:
            joins.append(join)
    return _outermost(joins, flow)


def _is_sum(node: fx.Node, flow: Flow) -> bool:
    """Whether a node adds two tensors."""
    if op(node) != "add" or node not in flow.data or node.kwargs.get("alpha", 1) != 1:
        return False
    parts = [a for a in node.args if isinstance(a, fx.Node)]
    return len(parts) == 2 and all(hasattr(p.meta.get("val"), "shape") for p in parts)


def _summands(total: fx.Node, inner: set[fx.Node]) -> list[fx.Node]:
    """The tensors of a sum, also those of the sums inside it."""
    summands: list[fx.Node] = []
    for part in total.args[:2]:
        assert isinstance(part, fx.Node)
        summands.extend(_summands(part, inner) if part in inner else [part])
    return summands


def _join(total: fx.Node, flow: Flow, inner: set[fx.Node]) -> Join | None:
    """The residual join that a sum is, if it is one."""
    summands = _summands(total, inner)
    if any(shape_of(s) != shape_of(total) for s in summands) or len(set(summands)) < len(summands):
        return None  # x + x + f(x) is 2x and a branch, not a skip and a branch
    for skip in summands:
        branches = tuple(s for s in summands if s is not skip)
        for fork in (skip, root(skip)):  # as the branch takes it, or in another layout
            if all(s in flow.data and flow.leads_to(fork, s) for s in branches):
                join = Join(fork, skip, branches, total, flow.between(fork, total))
                return join if _is_residual(join, flow) else None
    if not all(s in flow.data for s in summands):
        return None
    start = flow.last_common(summands)
    if start is None or start.op == "placeholder":
        return None
    skip = min(summands, key=lambda s: _effort(flow.between(start, s), flow))
    branches = tuple(s for s in summands if s is not skip)
    join = Join(start, skip, branches, total, flow.between(start, total))
    return join if _is_residual(join, flow) else None


def root(node: fx.Node) -> fx.Node:
    """The tensor behind views, permutations and casts."""
    while op(node) in LAYOUT and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _effort(nodes: list[fx.Node], flow: Flow) -> tuple[int, int]:
    """How much a path computes: learned operations and activations first, then operations."""
    activations = sum(flow.role[n] == "activation" for n in nodes)
    return len(flow.significant(nodes)) + activations, len(nodes)


def _is_residual(join: Join, flow: Flow) -> bool:
    """Whether a join has a simple skip that carries everything, around something learned."""
    if flow.trace(join.total) is None and 1 in shape_of(join.total)[1:-1]:
        return False  # one vector per image: a pooling head has residuals too, but is no block
    skip = flow.between(join.fork, join.skip)
    learned = flow.significant(skip)
    bent = any(flow.role[n] in ("activation", "attention") for n in skip)
    if bent or len(learned) > 1 or any(op(n) in PARTS for n in skip):
        return False
    bodies = [flow.between(join.fork, b) for b in join.branches]
    if not all(flow.kind(body) for body in bodies):
        return False
    roles = {flow.role[n] for body in bodies for n in body}
    # two linear maps added up (re-parameterised convolutions) are one convolution, without a skip
    return not learned or not roles.isdisjoint({"activation", "attention", "mix", "mixer"})


def _outermost(joins: list[Join], flow: Flow) -> list[Join]:
    """Of nested joins the outer one, unless it spans several blocks in a row (a long skip)."""
    kept: list[Join] = []
    for outer in joins:
        inside = set(outer.body)
        forks = inside | {outer.fork}
        nested = [j for j in joins if j is not outer and j.total in inside and j.fork in forks]
        blocks = [j for j in nested if any(flow.role[n] == "activation" for n in j.body)]
        in_a_row = any(flow.leads_to(a.total, b.fork) for a in blocks for b in blocks if a is not b)
        if not in_a_row:
            kept.append(outer)
    covered = [set(j.body) - {j.total} for j in kept]
    return [j for j in kept if not any(j.total in body for body in covered)]


class BlockOutputs:
    """What the block of each join of a graph reads and hands on."""

    def __init__(self, joins: Sequence[Join], flow: Flow) -> None:
        self.flow = flow
        self.joins = joins
        self.blocks = {
            join.total: common_path([join.total, *flow.essence(join.body)]) for join in joins
        }
        """By its sum, the module of each block: the deepest with all that it learns."""
        self.skips = {root(join.skip) for join in joins}
        self.steps = {join.total: list(_steps(join.total, flow)) for join in joins}
        self.endings = {_pattern(step) for join in joins for step in self._added_back(join)}

    def of(self, join: Join) -> fx.Node:
        """The tensor that the block of `join` hands on."""
        end = join.total
        certain = len(self._added_back(join))
        patterns = set()
        for number, step in enumerate(self.steps[join.total]):
            if self._is_foreign(step, join):
                break
            pattern = _pattern(step)
            # of two norms alike the second belongs to the next block
            if number < certain or (pattern not in patterns and self._ends_block(step, join)):
                end = step[-1]
            elif not _is_layout(step):
                break
            patterns.add(pattern)
        return end

    def before(self, join: Join) -> fx.Node:
        """The tensor that enters the block of `join`: its fork, or what a first norm reads."""
        node, block = join.fork, self.blocks[join.total]
        while (
            block
            and _inside(path(node), block)
            and _is_light(node, self.flow, set(node.all_input_nodes))
        ):
            sources = self.flow.positions.data_inputs(node)
            if len(sources) != 1 or node in self.blocks:  # the block's own first sum
                break
            node = sources[0]
        return join.fork if _inside(path(node), block) else node

    def _added_back(self, join: Join) -> list[list[fx.Node]]:
        """The steps after the sum up to a tensor that a later block adds back as it is."""
        steps = [s for s in self.steps[join.total] if not self._is_foreign(s, join)]
        added = [i for i, s in enumerate(steps) if s[-1] in self.skips and not _is_layout(s)]
        return steps[: added[-1] + 1] if added else []

    def _ends_block(self, step: list[fx.Node], join: Join) -> bool:
        """Whether a step after the sum is the last of the join's block."""
        if _is_layout(step):
            return False
        if _pattern(step) in self.endings:
            return True
        block = self.blocks[join.total]
        of_block = [other for other in self.joins if self.blocks[other.total] == block]
        if block and len(of_block) == 1:  # a module of its own: what it does after the sum ends it
            return all(_inside(path(n), block) for n in step)
        if any(other.total in self.skips for other in of_block):
            return False  # its sums are added back as they are, so nothing ends its blocks
        bends = any(self.flow.role[n] == "activation" for n in step)
        return bends and not any(op(n) in NORMS for n in step)

    def _is_foreign(self, step: list[fx.Node], join: Join) -> bool:
        """Whether the step's modules are nearer to another block than to that of the join."""
        block = self.blocks[join.total]
        others = set(self.blocks.values()) - {block}
        return any(_shared(path(n), o) > _shared(path(n), block) for n in step for o in others)


def _pattern(step: list[fx.Node]) -> tuple[tuple[str, str], ...]:
    """What a step computes and in which modules, the numbers of layers left out."""
    return tuple((op(n), re.sub(r"\d+", "#", path(n))) for n in step if op(n) not in LAYOUT)


def _shared(one: str, other: str) -> int:
    """How many modules two paths have in common, from the top."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _inside(name: str, block: str) -> bool:
    return f"{name}.".startswith(f"{block}.") if block else True


def _is_layout(step: list[fx.Node]) -> bool:
    return all(op(n) in LAYOUT for n in step)


def _steps(total: fx.Node, flow: Flow) -> Iterator[list[fx.Node]]:
    """Stretches after the sum that learn nothing, each up to a tensor that carries all.

    A stretch is one operation, or several where an activation or norm is written out
    (`x * x.sigmoid()`).
    """
    size = math.prod(shape_of(total))
    region, step = {total}, []
    waiting = set(total.users)
    for node in flow.nodes[flow.order[total] + 1 :]:
        if node not in waiting:
            continue
        if not _is_light(node, flow, region) or len(region) > LONGEST:
            return
        waiting = (waiting - {node}) | set(node.users)
        region.add(node)
        step.append(node)
        if waiting == set(node.users) and math.prod(shape_of(node)) == size:
            yield step
            step = []


def _is_light(node: fx.Node, flow: Flow, region: set[fx.Node]) -> bool:
    """Whether a node works on nothing but `region`, element by element or by its statistics."""
    if node.op != "call_function" or flow.role[node] in SIGNIFICANT | {"pool"}:
        return False
    alone = all(n in region for n in flow.positions.data_inputs(node))
    return alone and hasattr(node.meta.get("val"), "shape")
