"""What linear probes read: pooled features of units, or single tokens of them, while images pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.measure.analysis import Bench
from vitreous.measure.probe import Batch
from vitreous.measure.subject import Subject
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Feature, Sites


class Probed(NamedTuple):
    """One thing a probe reads."""

    unit: Unit
    token: str
    width: int

    @property
    def key(self) -> str:
        return f"{self.unit.name}: {self.token}"


def read(feature: Feature, tokens: Sequence[str]) -> dict[str, Tensor]:
    """(b, c) for each token that there is."""
    found: dict[str, Tensor] = {}
    values, front = feature.tokens, len(feature.prefix)
    if "class token" in tokens and "class" in feature.prefix:
        found["class token"] = values[:, feature.prefix.index("class")]
    if feature.grid is not None:
        if "mean over positions" in tokens:
            found["mean over positions"] = values[:, front:].mean(1)
        if "first position" in tokens:
            found["first position"] = values[:, front]
    elif "mean over positions" in tokens and front == 0:
        found["mean over positions"] = values.mean(1)
    for token in tokens:
        if (at := position(token)) is not None:
            found[token] = values[:, front + at]
    return found


def single(at: int) -> str:
    """The name of one position, by its number in raster order, as a token."""
    return f"position {at}"


def position(token: str) -> int | None:
    """Its number, if it is one."""
    word, _, number = token.partition(" ")
    return int(number) if word == "position" and number.isdecimal() else None


@torch.no_grad()
def stream(
    subject: Subject,
    group: Sequence[Probed],
    data: Dataset,
    bench: Bench,
    each: Callable[[Batch, Probed, Tensor], None],
) -> None:
    """Every batch, and of every unit what is read of it, as soon as it is there."""
    units = list(dict.fromkeys(probed.unit.name for probed in group))
    wanted = {probed.unit.name: [p for p in group if p.unit is probed.unit] for probed in group}
    for batch in bench.batches(data):

        def look(unit: Unit, sites: Sites, batch: Batch = batch) -> None:
            assert sites.out is not None
            values = read(sites.out, [probed.token for probed in wanted[unit.name]])
            for probed in wanted[unit.name]:
                each(batch, probed, values[probed.token])

        subject.specimen.observe(subject.prepare(batch.images), ("out",), units, each=look)
