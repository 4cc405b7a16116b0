"""One description for all products of tensors, in the manner of `einsum`.

`matmul`, `bmm`, `einsum`, `tensordot` and a sum over `a * b` are described alike: every dimension
of every operand has a letter, and letters that the result lacks are summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

from torch import fx

from vitreous.specimen.graph import args, numel, op, shape_of

MATRICES = {
    "matmul": 0, "bmm": 0, "mm": 0, "mv": 0, "dot": 0, "baddbmm": 1, "addmm": 1, "addbmm": 1
}  # fmt: skip
"""Matrix products, and the index of the argument that is their first factor."""
PRODUCTS = {*MATRICES, "einsum", "tensordot"}


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product of tensors. A dimension of size one stands for any size, as in broadcasting."""

    operands: tuple[fx.Node, ...]
    letters: tuple[str, ...]
    """For each operand, a letter for each of its dimensions."""
    output: str
    """The letters of the result."""

    @property
    def equation(self) -> str:
        """The product in the notation of `einsum`."""
        return f"{','.join(self.letters)}->{self.output}"

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each letter."""
        sizes: dict[str, int] = {}
        for operand, letters in zip(self.operands, self.letters, strict=True):
            for letter, size in zip(letters, shape_of(operand), strict=True):
                sizes[letter] = max(size, sizes.get(letter, 1))
        return sizes

    def exclusive(self, number: int, other: int) -> list[str]:
        """The letters of operand `number` that operand `other` lacks or broadcasts over."""
        other_sizes = dict(zip(self.letters[other], shape_of(self.operands[other]), strict=True))
        own_sizes = zip(self.letters[number], shape_of(self.operands[number]), strict=True)
        return [c for c, size in own_sizes if c not in other_sizes or other_sizes[c] < size]

    def summed(self, number: int) -> list[int]:
        """The dimensions of operand `number` that are summed over."""
        return [dim for dim, letter in enumerate(self.letters[number]) if letter not in self.output]


def contraction(node: fx.Node) -> Contraction | None:
    """The product that a node computes; None if it computes none."""
    name = op(node)
    if name in MATRICES:
        return _matrices(*args(node)[MATRICES[name] : MATRICES[name] + 2])
    if name == "einsum":
        return _einsum(str(args(node)[0]), args(node)[1])
    if name == "tensordot":
        return _tensordot(*args(node)[:4])
    return _multiplied_and_summed(node) if name == "sum" else None


def _matrices(left: fx.Node, right: fx.Node) -> Contraction:
    """A matrix product: `a` rows, `b` columns, `c` summed over, batch dimensions from `d` on."""
    left_rank, right_rank = len(shape_of(left)), len(shape_of(right))
    batch = ascii_letters[3 : max(left_rank, right_rank) + 1]
    rows, columns = "a" * (left_rank > 1), "b" * (right_rank > 1)
    first = batch[len(batch) - max(left_rank - 2, 0) :] + rows + "c"
    second = batch[len(batch) - max(right_rank - 2, 0) :] + "c" + columns
    return Contraction((left, right), (first, second), batch + rows + columns)


def _einsum(equation: str, operands: Sequence[fx.Node]) -> Contraction | None:
    """An einsum with letters in place of `...`; None if an operand repeats a letter (diagonal)."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "->" not in equation:
        implicit = sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1)
        output = ("..." if "..." in inputs else "") + "".join(implicit)
    spare = "".join(c for c in ascii_letters if c not in equation)
    widths = []  # number of dimensions that the dots stand for, per term
    for operand, term in zip(operands, terms, strict=True):
        widths.append(len(shape_of(operand)) - len(term.replace("...", "")))
    most = max((n for term, n in zip(terms, widths, strict=True) if "..." in term), default=0)
    dots = spare[:most]
    letters = tuple(t.replace("...", dots[most - n :]) for t, n in zip(terms, widths, strict=True))
    if any(len(set(term)) < len(term) for term in letters):
        return None
    return Contraction(tuple(operands), letters, output.replace("...", dots))


def _tensordot(
    left: fx.Node, right: fx.Node, left_dims: Sequence[int], right_dims: Sequence[int]
) -> Contraction:
    left_rank, right_rank = len(shape_of(left)), len(shape_of(right))
    first = list(ascii_letters[:left_rank])
    second = list(ascii_letters[left_rank : left_rank + right_rank])
    for i, j in zip(left_dims, right_dims, strict=True):
        second[j % right_rank] = first[i % left_rank]
    summed = {first[i % left_rank] for i in left_dims}
    output = "".join(c for c in first + second if c not in summed)
    return Contraction((left, right), ("".join(first), "".join(second)), output)


def _multiplied_and_summed(node: fx.Node) -> Contraction | None:
    source = args(node)[0]
    dims: Any = args(node)[1] if len(node.args) > 1 else None
    if not isinstance(source, fx.Node) or op(source) != "mul":
        return None
    operands = [a for a in source.args if isinstance(a, fx.Node) and numel(a) is not None]
    if len(operands) != 2 or not isinstance(dims, (int, list, tuple)):
        return None
    letters = ascii_letters[: len(shape_of(source))]
    summed = {letters[dim] for dim in ([dims] if isinstance(dims, int) else dims)}
    terms = tuple(letters[len(letters) - len(shape_of(operand)) :] for operand in operands)
    return Contraction(tuple(operands), terms, "".join(c for c in letters if c not in summed))
