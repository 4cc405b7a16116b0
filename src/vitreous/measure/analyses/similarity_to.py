"""How similar each unit is to the same unit of another model, such as an earlier checkpoint.

    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L))

for the kernels K of a unit and L of the same unit in the other model.

This is the diagonal of what the probe `cka` computes across two models (formulas:
`measure/alignment.py`). The other model is the last one given, or the one that `to` names, such as
`nano:vit@warmup`.

Raghu et al. 2021 compare models trained on a part of the data with one trained on all of it: lower
units are already similar with a few per cent of the data, upper ones need more (Fig. 12).
Fine-tuning changes upper units, but not the first ones (appendix G).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from vitreous.measure.alignment import Estimator
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Setting
from vitreous.measure.probes.cka import CKA, too_few
from vitreous.measure.report_section import Section
from vitreous.measure.streaming import Pass
from vitreous.measure.subject import Subject, subjects
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Reference,
    Replicates,
    Result,
    depth_view,
    estimate,
)
from vitreous.results.comparing import bold, code, pair_rows, rank_models
from vitreous.results.intervals import Interval
from vitreous.specimen.observe import Site

__all__ = ["SimilarityTo"]

SHARD = 128
"""Number of images per minibatch, which is also a piece."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("reference", "category", "The model it is compared with."),
    Column(
        "site",
        "category",
        "What is compared: `out`, `branch` or another of the sites.",
    ),
    *estimate(
        "Centred kernel alignment: 1 if equal up to rotation and scale, 0 if unrelated.",
        label="CKA",
    ),
)
VIEW = depth_view(
    references=(Reference(1.0, "the same"),),
    title="Similarity to the same unit of another model (CKA)",
    how_to_read="Each point compares a unit with the one of its name in the other model, on the "
    "same images. Where a line is high, both have learned the same, up to rotation and scale; "
    "where it is low, they have diverged.",
)  # fmt: skip


@dataclass
class SimilarityTo(Analysis):
    """CKA of each unit with the same unit of another model."""

    to: str = ""
    """Name of the reference model, which need not be one of those given (default: the last one
    given)."""
    estimator: Estimator = "unbiased"
    """`unbiased` (HSIC₁) or `biased` (HSIC₀)."""
    sites: tuple[Site, ...] = ("out",)
    """What to compare, as in `cka`."""
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
        self.sites = CKA(self.estimator, self.sites).sites  # the constructor checks them

    def reference(self, bench: Bench) -> Subject:
        """Return the other model: one of those given, or opened once."""
        models = bench.setting.subjects
        named = [each for each in models if each.name == self.to]
        if named or not self.to:
            return (named or models)[-1]
        if not self._opened:
            sides = set(models[0].specimen.anatomy.image[1:])
            image = sides.pop() if len(sides) == 1 else None
            self._opened += subjects(self.to, image=image, device=models[0].device, seed=bench.seed)
        return self._opened[0]

    def further_models(self, bench: Bench) -> Sequence[Subject]:
        reference = self.reference(bench)
        return () if bench.setting.subjects == (reference,) else (reference,)

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        other = self.reference(bench)
        if subject is other:
            return "There is no other model: give two, or name one as `to`."
        names = [unit.name for unit in subject.specimen.units]
        other_names = [unit.name for unit in other.specimen.units]
        if names != other_names:
            return (
                f"Its units are not those of {other.name}: it has {len(names)}, the other "
                f"{len(other_names)}."
            )
        return too_few(len(bench.data), self.estimator)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"images from {start}" for start in range(0, len(bench.data), SHARD)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        passing = Pass((self.probe(),), self.setting(subject, bench), SHARD, bench.batch)

        def compute(piece: str) -> Numbers:
            passing.batch = bench.batch
            return passing.shard(self.pieces(subject, bench).index(piece))

        yield compute

    def probe(self) -> CKA:
        return CKA(self.estimator, self.sites, SHARD)

    def setting(self, subject: Subject, bench: Bench) -> Setting:
        return replace(bench.setting, subjects=(subject, self.reference(bench)))

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        names = [column.name for column in COLUMNS]
        tables: list[pd.DataFrame] = []
        replicates: list[Replicates] = []
        without_value: dict[str, Any] = {}
        for subject in subjects:
            probe, setting = self.probe(), self.setting(subject, bench)
            probe.begin(setting)
            cka = probe.answer(_sums(computed[subject.name]), setting.subjects)
            same_unit = cka.table["layer"] == cka.table["other_layer"]
            diagonal = cka.select((cka.table["across"] & same_unit).to_numpy())
            tables.append(diagonal.table.rename(columns={"other_model": "reference"})[names])
            if "value" in diagonal.replicates:  # not if every minibatch was too small
                replicates.append(diagonal.replicates["value"])
            without_value |= cka.about.get("without_value", {})
        table = pd.concat(tables, ignore_index=True)
        view = replace(VIEW, facet="site") if table["site"].nunique() > 1 else VIEW
        about = {"reference": self.reference(bench).name, "without_value": without_value}
        joined = {"value": Replicates.joined(replicates)} if replicates else {}
        return Result(self.name, table, COLUMNS, (view,), about=about, replicates=joined)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["value"].notna()]
        for (model, other), units in rows.groupby(
            ["model", "reference"], sort=False, observed=True
        ):
            names = list(units["unit"])
            if units["site"].nunique() > 1:
                names = [f"{unit} ({site})" for unit, site in units[["unit", "site"]].values]
            intervals = starmap(Interval, units[["value", "low", "high"]].to_numpy())
            compared = f"{bold(model)} is {{}}similar to {bold(other)} in"
            yield rank_models(
                dict(zip(names, intervals, strict=True)),
                f"{compared.format('most ')} {{model}} (CKA {{}})",
                "least in {model} (CKA {})",
                f"{compared.format('equally ')} all {len(names)} places (CKA {{}} to {{}})",
                alone=f"{compared.format('')} {{model}} by a CKA of {{}}",
                paired=pair_rows(result, units, names),
                name=code,
            )


def _sums(pieces: Mapping[str, Numbers]) -> dict[str, Tensor]:
    """Add up the sums of the probe over pieces; a sum may be missing in some of them."""
    sums: dict[str, list[Tensor]] = {}
    for piece in pieces.values():
        for key, value in piece.items():
            sums.setdefault(key.partition(":")[2], []).append(value.double())
    return {key: torch.stack(values).sum(0) for key, values in sums.items()}
