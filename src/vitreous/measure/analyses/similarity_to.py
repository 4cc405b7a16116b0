"""How alike each unit of a model is to the same unit of another: of an earlier state, or with fewer images (A4.24).

    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L)),    K of a unit, L of that unit in the other model

This is the diagonal of what the probe `cka` finds across two models (`measure/alignment.py` has the formulas). The
other model is the last one given, or the one that `to` names, such as `nano:vit@warmup`.

Raghu et al. compare models trained on a part of the data with one trained on all of it: lower units are alike from a
few per cent on, upper ones take more (SLC-26); and fine-tuning changes upper units while the first stay (SLC-32).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import torch

from vitreous.measure.alignment import Estimator
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Setting
from vitreous.measure.probes.cka import CKA, too_few
from vitreous.measure.section import Section
from vitreous.measure.streaming import Pass
from vitreous.measure.subject import Subject, subjects
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, estimate
from vitreous.results.comparing import bold, code, records
from vitreous.results.words import format_estimate
from vitreous.specimen.observe import Site

__all__ = ["SimilarityTo"]

SHARD = 128
"""Images of a minibatch, which is also a piece."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("reference", "category", "The model it is compared with."),
    Column(
        "site",
        "category",
        "What of the unit is compared: the stream after it, what its branch adds, …",
    ),
    *estimate(
        "Centred kernel alignment: 1 alike up to rotation and scale, 0 nothing in common.",
        label="CKA",
    ),
)
VIEW = View(
    "line",
    x="depth",
    y="value",
    colour="model",
    low="low",
    high="high",
    bands=True,
    references=(Reference(1.0, "the same"),),
    title="Similarity to the same unit of another model (CKA)",
    how_to_read="Each point compares a unit with the one of its name in the other model, on the same images. Where a "
    "line is high, both have learned the same there, up to rotation and scale; where it falls, they have parted.",
)


@dataclass
class SimilarityTo(Analysis):
    """How alike each unit is to the same unit of another model."""

    to: str = ""
    """Name of the other model, one of those given or not; the last one given, if empty."""
    estimator: Estimator = "unbiased"
    """Of CKA: `unbiased` or `biased`."""
    sites: tuple[Site, ...] = ("out",)
    """What of a unit is compared, as in `cka`."""
    _opened: list[Subject] = field(default_factory=list, init=False, repr=False, compare=False)

    name = "similarity_to"
    ids = ("A4.24", "SLC-26", "SLC-32")
    section = Section(
        "representation",
        "Which units learned the same in another training?",
        "Each unit is compared with the unit of the same name in another model, an earlier "
        "checkpoint for example, by centred kernel alignment on the same images.",
        "Lower units are similar from 3 % of the data on, upper ones need more; fine-tuning "
        "leaves the first four or five blocks as they were (Raghu et al. 2021, Fig. 12 and "
        "appendix G).",
        order=7,
    )
    marked = False

    def __post_init__(self) -> None:
        self.sites = CKA(self.estimator, self.sites).sites  # which says what is wrong with them

    def reference(self, bench: Bench) -> Subject:
        """The other model: one of those given, or opened once."""
        given = bench.setting.subjects
        named = [each for each in given if each.name == self.to]
        if named or not self.to:
            return (named or given)[-1]
        if not self._opened:
            sides = set(given[0].specimen.anatomy.image[1:])
            image = sides.pop() if len(sides) == 1 else None
            self._opened += subjects(self.to, image=image, device=given[0].device, seed=bench.seed)
        return self._opened[0]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        other = self.reference(bench)
        if subject is other:
            alone = len(bench.setting.subjects) == 1
            return (
                "There is no other model: give two, or name one as `to`."
                if alone
                else "Others are compared with it."
            )
        ours, theirs = ([unit.name for unit in each.specimen.units] for each in (subject, other))
        if ours != theirs:
            return f"Its units are not those of {other.name}: it has {len(ours)}, the other {len(theirs)}."
        return too_few(len(bench.data), self.estimator)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"images from {start}" for start in range(0, len(bench.data), SHARD)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        passing = Pass((self.probe(),), self.setting(subject, bench), SHARD, bench.batch)

        def one(piece: str) -> Numbers:
            passing.batch = bench.batch
            return passing.shard(self.pieces(subject, bench).index(piece))

        yield one

    def probe(self) -> CKA:
        return CKA(self.estimator, self.sites, SHARD)

    def setting(self, subject: Subject, bench: Bench) -> Setting:
        return replace(bench.setting, subjects=(subject, self.reference(bench)))

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        tables: list[pd.DataFrame] = []
        without: dict[str, Any] = {}
        for subject in asked:
            probe, setting = self.probe(), self.setting(subject, bench)
            probe.begin(setting)
            pieces = list(found[subject.name].values())
            names = dict.fromkeys(name for piece in pieces for name in piece)
            sums = {
                name.partition(":")[2]: torch.stack(
                    [piece[name].double() for piece in pieces if name in piece]
                ).sum(0)
                for name in names
            }
            whole = probe.answer(sums, setting.subjects)
            table = whole.table[
                whole.table["across"] & (whole.table["layer"] == whole.table["other_layer"])
            ]
            tables.append(
                table.rename(columns={"other_model": "reference"})[
                    [column.name for column in COLUMNS]
                ]
            )
            without |= whole.about.get("without_value", {})
        table = pd.concat(tables, ignore_index=True)
        view = replace(VIEW, facet="site") if table["site"].nunique() > 1 else VIEW
        about = {"reference": self.reference(bench).name, "without_value": without}
        return Result(self.name, table, COLUMNS, (view,), about=about)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["value"].notna()]
        for model, units in rows.groupby("model", sort=False, observed=True):
            compared = records(units)
            most = max(compared, key=lambda row: row["value"])
            least = min(compared, key=lambda row: row["value"])
            texts = []
            for row in (most, least):
                cka = format_estimate(row["value"], row["low"], row["high"])
                texts.append(f"{code(row['unit'])} (CKA {cka})")
            first, second = texts
            yield (
                f"{bold(model)} is most similar to {bold(most['reference'])} in {first} and least "
                f"in {second}."
            )
