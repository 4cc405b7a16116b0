"""Products of tensors in one description, whichever way they are written.

`matmul`, `bmm`, `einsum`, `tensordot` and a sum over `a * b` are all the same: every dimension of every operand has a
letter, and letters that the result does not have are summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

from torch import Tensor, fx

from vitreous.specimen.graph import args, op
from vitreous.specimen.trace import shape_of

MATRICES = {
    "matmul": 0,
    "bmm": 0,
    "mm": 0,
    "mv": 0,
    "dot": 0,
    "baddbmm": 1,
    "addmm": 1,
    "addbmm": 1,
}
"""Products of matrices, and where their first factor stands."""
PRODUCTS = {*MATRICES, "einsum", "tensordot"}


@dataclass(frozen=True, slots=True)
class Contraction:
    """Which dimensions a product sums over. Dimensions of size one stand for any size, as in broadcasting."""

    operands: tuple[fx.Node, ...]
    letters: tuple[str, ...]
    output: str

    @property
    def equation(self) -> str:
        return f"{','.join(self.letters)}->{self.output}"

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each letter."""
        found: dict[str, int] = {}
        for operand, letters in zip(self.operands, self.letters, strict=True):
            for letter, size in zip(letters, shape_of(operand), strict=True):
                found[letter] = max(size, found.get(letter, 1))
        return found

    def own(self, number: int, other: int) -> list[str]:
        """The letters of an operand along which another one is the same everywhere."""
        theirs = dict(zip(self.letters[other], shape_of(self.operands[other]), strict=True))
        mine = zip(self.letters[number], shape_of(self.operands[number]), strict=True)
        return [c for c, size in mine if c not in theirs or theirs[c] < size]

    def summed(self, number: int) -> list[int]:
        """The dimensions of an operand that are summed over."""
        return [dim for dim, letter in enumerate(self.letters[number]) if letter not in self.output]


def contraction(node: fx.Node) -> Contraction | None:
    """The product that a node computes; None if it computes none, or nothing else besides (an addition, say)."""
    name = op(node)
    if name in MATRICES:
        left, right = args(node)[MATRICES[name] : MATRICES[name] + 2]
        return _matrices(left, right)
    if name == "einsum":
        return _einsum(str(args(node)[0]), args(node)[1])
    if name == "tensordot":
        return _tensordot(*args(node)[:4])
    if name == "sum":
        return _multiplied_and_summed(node)
    return None


def _matrices(left: fx.Node, right: fx.Node) -> Contraction | None:
    sizes = len(shape_of(left)), len(shape_of(right))
    batch = ascii_letters[3 : max(sizes) + 1]  # a, b and c are those of the matrices
    first = f"{batch[len(batch) - max(sizes[0] - 2, 0) :]}{'a' * (sizes[0] > 1)}c"
    second = f"{batch[len(batch) - max(sizes[1] - 2, 0) :]}c{'b' * (sizes[1] > 1)}"
    return Contraction(
        (left, right), (first, second), f"{batch}{'a' * (sizes[0] > 1)}{'b' * (sizes[1] > 1)}"
    )


def _einsum(equation: str, operands: Sequence[fx.Node]) -> Contraction | None:
    inputs, _, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "->" not in equation:
        once = sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    named = [len(term.replace("...", "")) for term in terms]
    sizes = [len(shape_of(operand)) - count for operand, count in zip(operands, named, strict=True)]
    spare = [c for c in ascii_letters if c not in equation]
    dots = spare[
        : max((size for term, size in zip(terms, sizes, strict=True) if "..." in term), default=0)
    ]
    full = tuple(
        t.replace("...", "".join(dots[len(dots) - n :])) for t, n in zip(terms, sizes, strict=True)
    )
    if any(len(set(term)) < len(term) for term in full):
        return None  # a diagonal
    return Contraction(tuple(operands), full, output.replace("...", "".join(dots)))


def _tensordot(
    left: fx.Node, right: fx.Node, over: Sequence[int], against: Sequence[int]
) -> Contraction:
    sizes = len(shape_of(left)), len(shape_of(right))
    first, second = list(ascii_letters[: sizes[0]]), list(ascii_letters[sizes[0] : sum(sizes)])
    for i, j in zip(over, against, strict=True):
        second[j % sizes[1]] = first[i % sizes[0]]
    gone = {first[i % sizes[0]] for i in over}
    output = "".join(c for c in first + second if c not in gone)
    return Contraction((left, right), ("".join(first), "".join(second)), output)


def _multiplied_and_summed(node: fx.Node) -> Contraction | None:
    source = args(node)[0]
    over: Any = args(node)[1] if len(node.args) > 1 else None
    if (
        not isinstance(source, fx.Node)
        or op(source) != "mul"
        or not isinstance(over, (int, list, tuple))
    ):
        return None
    operands = [
        a for a in source.args if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), Tensor)
    ]
    if len(operands) != 2:
        return None
    letters = ascii_letters[: len(shape_of(source))]
    gone = {letters[dim] for dim in ([over] if isinstance(over, int) else over)}
    terms = tuple(letters[len(letters) - len(shape_of(operand)) :] for operand in operands)
    return Contraction(tuple(operands), terms, "".join(c for c in letters if c not in gone))
