"""Find the residual joins of a graph, and the output of each residual block.

A join is a sum in which one summand, the skip, is an ancestor of all others (the fork), or is
computed from such an ancestor by a mere projection (a strided 1x1 convolution, a pooling, a norm).
The nodes between fork and join are the branch. Sums that only look alike are left out: rotary
embeddings (nothing learned in between), attention logits plus a bias (constant), fusions of
separate paths (no simple path is the skip), hierarchical splits (the skip carries only a part).

The output of a block is the sum after the activation or norm that ends the block: a post-activation
ResNet ends its blocks with a ReLU and a post-norm transformer with a norm. In a pre-activation
network the same operations follow the sum, but they begin the next block. The graph alone often
cannot tell the two apart, so three criteria decide, in this order:

1. the modules: an operation inside another block's module, or nearer to it, belongs to that block;
2. the next skip: a tensor that a later block adds back unchanged is the output of the block before;
3. the other blocks: an operation that ends one block ends all blocks built alike.
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
MAX_OPERATIONS = 40
"""Maximum number of operations followed after a sum; a norm written by hand has about ten."""


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
    """All residual joins in order; of nested joins the outermost."""
    sums = [n for n in flow.nodes if _is_sum(n, flow)]
    inner = {n for n in sums if len(n.users) == 1 and next(iter(n.users)) in sums}
    without_differences = {n for n in inner if "neg" not in map(op, n.all_input_nodes)}
    joins = []
    for total in sums:
        if total in inner:
            continue
        # a difference inside a branch, pool(x) - x, belongs to the branch
        join = _join(total, flow, inner) or _join(total, flow, without_differences)
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
    """The summands of a sum, with nested sums in `inner` expanded."""
    summands: list[fx.Node] = []
    for part in total.args[:2]:
        assert isinstance(part, fx.Node)
        summands.extend(_summands(part, inner) if part in inner else [part])
    return summands


def _join(total: fx.Node, flow: Flow, inner: set[fx.Node]) -> Join | None:
    """The residual join at a sum, or None."""
    summands = _summands(total, inner)
    if any(shape_of(s) != shape_of(total) for s in summands) or len(set(summands)) < len(summands):
        return None  # x + x + f(x) is 2x and a branch, not a skip and a branch
    for skip in summands:
        branches = tuple(s for s in summands if s is not skip)
        for fork in (skip, root(skip)):  # the branch may begin before a change of layout
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
    """The tensor that `node` is a view, permutation or cast of; the node itself if it is none."""
    while op(node) in LAYOUT and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _effort(nodes: list[fx.Node], flow: Flow) -> tuple[int, int]:
    """How much a path computes: (learned operations and activations, all operations)."""
    activations = sum(flow.role[n] == "activation" for n in nodes)
    return len(flow.significant(nodes)) + activations, len(nodes)


def _is_residual(join: Join, flow: Flow) -> bool:
    """Whether the skip of a join is simple and carries all channels, and its branches learn."""
    if flow.trace(join.total) is None and 1 in shape_of(join.total)[1:-1]:
        return False  # one vector per image: a pooling head has residuals too, but is no block
    skip = flow.between(join.fork, join.skip)
    learned = flow.significant(skip)
    nonlinear = any(flow.role[n] in ("activation", "attention") for n in skip)
    if nonlinear or len(learned) > 1 or any(op(n) in PARTS for n in skip):
        return False
    bodies = [flow.between(join.fork, b) for b in join.branches]
    if not all(flow.kind(body) for body in bodies):
        return False
    roles = {flow.role[n] for body in bodies for n in body}
    # two linear maps added up (re-parameterised convolutions) are one convolution, without a skip
    return not learned or not roles.isdisjoint({"activation", "attention", "mix", "mixer"})


def _outermost(joins: list[Join], flow: Flow) -> list[Join]:
    """Keep the outer of nested joins, unless it spans several consecutive blocks (a long skip)."""
    kept: list[Join] = []
    for outer in joins:
        inside = set(outer.body)
        forks = inside | {outer.fork}
        nested = [j for j in joins if j is not outer and j.total in inside and j.fork in forks]
        blocks = [j for j in nested if any(flow.role[n] == "activation" for n in j.body)]
        consecutive = any(
            flow.leads_to(a.total, b.fork) for a in blocks for b in blocks if a is not b
        )
        if not consecutive:
            kept.append(outer)
    covered = [set(j.body) - {j.total} for j in kept]
    return [j for j in kept if not any(j.total in body for body in covered)]


class BlockOutputs:
    """The input and output of the block of each join of a graph."""

    def __init__(self, joins: Sequence[Join], flow: Flow) -> None:
        self.flow = flow
        self.joins = joins
        self.blocks = {
            join.total: common_path([join.total, *flow.main_nodes(join.body)]) for join in joins
        }
        """The module path of each block, by its sum: the deepest module with all its weights."""
        self.skips = {root(join.skip) for join in joins}
        self.steps = {join.total: list(_steps(join.total, flow)) for join in joins}
        self.endings = {_pattern(step) for join in joins for step in self._added_back(join)}

    def of(self, join: Join) -> fx.Node:
        """The output of the block of `join`."""
        end = join.total
        certain = len(self._added_back(join))
        patterns = set()
        for number, step in enumerate(self.steps[join.total]):
            if self._is_foreign(step, join):
                break
            pattern = _pattern(step)
            # a norm like an earlier one belongs to the next block
            if number < certain or (pattern not in patterns and self._ends_block(step, join)):
                end = step[-1]
            elif not _is_layout(step):
                break
            patterns.add(pattern)
        return end

    def before(self, join: Join) -> fx.Node:
        """The input of the block of `join`: its fork, or the input of a norm before the fork."""
        node, block = join.fork, self.blocks[join.total]
        while (
            block
            and _inside(path(node), block)
            and _is_light(node, self.flow, set(node.all_input_nodes))
        ):
            sources = self.flow.positions.data_inputs(node)
            if len(sources) != 1 or node in self.blocks:  # an earlier sum of the same block
                break
            node = sources[0]
        return join.fork if _inside(path(node), block) else node

    def _added_back(self, join: Join) -> list[list[fx.Node]]:
        """The steps from the sum to the last tensor that a later block uses as its skip."""
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
        joins_of_block = [other for other in self.joins if self.blocks[other.total] == block]
        if (
            block and len(joins_of_block) == 1
        ):  # the block is a module: all it does after the sum is its end
            return all(_inside(path(n), block) for n in step)
        if any(other.total in self.skips for other in joins_of_block):
            return False  # later blocks add the plain sums, so no operation ends a block
        nonlinear = any(self.flow.role[n] == "activation" for n in step)
        return nonlinear and not any(op(n) in NORMS for n in step)

    def _is_foreign(self, step: list[fx.Node], join: Join) -> bool:
        """Whether the step's modules are nearer to another block than to that of the join."""
        block = self.blocks[join.total]
        others = set(self.blocks.values()) - {block}
        return any(_shared(path(n), o) > _shared(path(n), block) for n in step for o in others)


def _pattern(step: list[fx.Node]) -> tuple[tuple[str, str], ...]:
    """Operations and module paths of a step, without layer numbers, to compare blocks."""
    return tuple((op(n), re.sub(r"\d+", "#", path(n))) for n in step if op(n) not in LAYOUT)


def _shared(one: str, other: str) -> int:
    """Number of leading components that two module paths share."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _inside(name: str, block: str) -> bool:
    return f"{name}.".startswith(f"{block}.") if block else True


def _is_layout(step: list[fx.Node]) -> bool:
    return all(op(n) in LAYOUT for n in step)


def _steps(total: fx.Node, flow: Flow) -> Iterator[list[fx.Node]]:
    """Steps without weights after the sum, each ending in a single live tensor.

    A step is one operation, or several if an activation or norm is written out
    (`x * x.sigmoid()`).
    """
    size = math.prod(shape_of(total))
    region, step = {total}, []
    waiting = set(total.users)
    for node in flow.nodes[flow.order[total] + 1 :]:
        if node not in waiting:
            continue
        if not _is_light(node, flow, region) or len(region) > MAX_OPERATIONS:
            return
        waiting = (waiting - {node}) | set(node.users)
        region.add(node)
        step.append(node)
        if waiting == set(node.users) and math.prod(shape_of(node)) == size:
            yield step
            step = []


def _is_light(node: fx.Node, flow: Flow, region: set[fx.Node]) -> bool:
    """Whether a node has no learned weights, does not pool, and reads only tensors of `region`."""
    if node.op != "call_function" or flow.role[node] in SIGNIFICANT | {"pool"}:
        return False
    alone = all(n in region for n in flow.positions.data_inputs(node))
    return alone and hasattr(node.meta.get("val"), "shape")
