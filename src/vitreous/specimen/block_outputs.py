"""Find what a residual block hands on: the sum of skip and branch, after the activation or norm that ends the block.

A post-activation ResNet ends its blocks with a ReLU and a post-norm transformer with a norm. In a pre-activation
network the same operations follow the sum too, but they begin the next block. The graph alone often cannot tell the two
apart, so three signs are read, in this order:

1. the modules: an operation inside another block's module, or nearer to it, belongs to that block;
2. the next skip: a tensor that a later block adds back unchanged is what the block before it has handed on;
3. the other blocks: what ends one block ends those built like it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from torch import fx

from vitreous.specimen.graph import op, path
from vitreous.specimen.joins import LAYOUT, SIGNIFICANT, Flow, Join, common_path, root
from vitreous.specimen.trace import shape_of

NORMS = {"layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "native_layer_norm"}
LONGEST = 40
"""Operations that are followed after a sum; a norm or an activation written out by hand takes about ten."""


class BlockOutputs:
    """What each join of one graph hands on."""

    def __init__(self, joins: Sequence[Join], flow: Flow) -> None:
        self.flow = flow
        self.joins = joins
        self.blocks = {join.total: _block(join, flow) for join in joins}
        self.skips = {root(join.skip) for join in joins}
        self.steps = {join.total: list(_steps(join.total, flow)) for join in joins}
        self.endings = {self._pattern(step) for join in joins for step in self._added_back(join)}

    def of(self, join: Join) -> fx.Node:
        """The tensor that `join`'s block hands on."""
        found = join.total
        certain = len(self._added_back(join))
        seen = set()
        for number, step in enumerate(self.steps[join.total]):
            if self._is_foreign(step, join):
                break
            pattern = self._pattern(step)
            if number < certain or (pattern not in seen and self._ends_block(step, join)):
                found = step[-1]
            elif not _is_layout(step):
                break
            seen.add(pattern)  # of two norms alike the second is not the block's own
        return found

    def before(self, join: Join) -> fx.Node:
        """The tensor that enters `join`'s block: its fork, or what a norm and activation at its start have read."""
        node, block = join.fork, self.blocks[join.total]
        while (
            block
            and _inside(path(node), block)
            and _is_light(node, self.flow, set(node.all_input_nodes))
        ):
            sources = [n for n in node.all_input_nodes if n in self.flow.data]
            if len(sources) != 1 or node in self.blocks:  # the block's own first sum
                break
            node = sources[0]
        return join.fork if _inside(path(node), block) else node

    def _added_back(self, join: Join) -> list[list[fx.Node]]:
        """The steps after the sum up to a tensor that a later block adds back as it is."""
        steps = self.steps[join.total]
        own = [step for step in steps if not self._is_foreign(step, join)]
        reaching = [
            i for i, step in enumerate(own) if step[-1] in self.skips and not _is_layout(step)
        ]
        return own[: reaching[-1] + 1] if reaching else []

    def _ends_block(self, step: list[fx.Node], join: Join) -> bool:
        if _is_layout(step):
            return False
        if self._pattern(step) in self.endings:
            return True
        block = self.blocks[join.total]
        alone = sum(other == block for other in self.blocks.values()) == 1
        if block and alone:  # a module of its own: what it does after the sum ends it
            return all(_inside(path(n), block) for n in step)
        if any(
            other.total in self.skips for other in self.joins if self.blocks[other.total] == block
        ):
            return False  # its sums are added back as they are, so nothing ends its blocks
        return any(self.flow.role[n] == "activation" for n in step) and not any(
            op(n) in NORMS for n in step
        )

    def _is_foreign(self, step: list[fx.Node], join: Join) -> bool:
        """Whether the step's modules are nearer to another block than to the join's own."""
        own = self.blocks[join.total]
        others = set(self.blocks.values()) - {own}
        return any(
            _shared(path(n), block) > _shared(path(n), own) for n in step for block in others
        )

    def _pattern(self, step: list[fx.Node]) -> tuple[tuple[str, str], ...]:
        """What a step computes and where, the numbers of layers left out."""
        return tuple((op(n), re.sub(r"\d+", "#", path(n))) for n in step if op(n) not in LAYOUT)


def _block(join: Join, flow: Flow) -> str:
    """The module of a block: the deepest that holds the sum and everything learned in its branches."""
    return common_path([join.total, *flow.essence(join.body)])


def _shared(one: str, other: str) -> int:
    """How many modules two paths have in common, from the top."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _inside(name: str, block: str) -> bool:
    return f"{name}.".startswith(f"{block}.") if block else True


def _is_layout(step: list[fx.Node]) -> bool:
    return all(op(n) in LAYOUT for n in step)


def _steps(total: fx.Node, flow: Flow) -> Iterator[list[fx.Node]]:
    """Stretches after the sum without anything learned that mixes, each up to a tensor that alone carries it all.

    A stretch is one operation, or several where an activation or norm is written out (`x * x.sigmoid()`).
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
    """Whether a node only works on what is in `region`, element by element or by its statistics."""
    if node.op != "call_function" or flow.role[node] in SIGNIFICANT | {"pool"}:
        return False
    alone = all(n in region for n in node.all_input_nodes if n in flow.data)
    return alone and hasattr(node.meta.get("val"), "shape")
