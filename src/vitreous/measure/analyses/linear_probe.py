"""How well a linear probe classifies the features of every unit, fitted on few images or many.

    W = argmin Σ ‖y − b − Wᵀ x‖² + λ ‖W‖²,    y = +1 for the image's class and −1 for the others

for the features x of frozen units: the class token, the mean over positions, or the first position
alone. Predictions are the classes with the highest scores, on images that were not fitted on. `5`
and `10` fit on that many images per class, `all` on every fitting image. The penalty minimises the
squared error on a fifth of the fitting images, which is held out (and for `all` fitted on
afterwards).

`positions` names units where every token gets its own probe: a map of accuracies, and their mean,
as in the left of Raghu et al. 2021, Fig. 11.

Features are not stored. One forward pass sums up the normal equations of all units
(`readout/ridge.py`), a second one over the evaluation images counts correct predictions. Units are
processed in groups if the sums of all of them do not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, where
from vitreous.measure.readout import fitting
from vitreous.measure.readout.features import (
    ProbedFeature,
    pool_tokens,
    position_number,
    position_token,
    stream_features,
)
from vitreous.measure.readout.fitting import ALL, HELD_OUT, ProbeData, fit_logistic, fit_ridge
from vitreous.measure.readout.logistic import Logistic
from vitreous.measure.readout.ridge import Ridge
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import Array, resampled_means
from vitreous.measure.subject import Subject
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Estimate,
    Reference,
    Result,
    View,
    clustered_share,
    estimate,
    tabulate,
    wilson,
)
from vitreous.results.comparing import bold, code, records
from vitreous.results.words import escape, format_percent
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["LinearProbe"]

TOKENS = ("class token", "mean over positions", "first position")
ALONE, ONE = "each position alone", "one position"
MAPS = 6
"""Maximum number of units of a model whose maps are drawn."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column(
        "token",
        "category",
        f"What the probe reads; `{ALONE}` is the mean over probes of one position each.",
    ),
    Column("row", "order", "Row of a single position on the grid of tokens."),
    Column("column", "order", "Column of a single position."),
    Column("map", "category", "Model and unit of a single position."),
    Column("mapped", "category", "Whether the row is a cell of a map that is drawn."),
    Column("shots", "order", f"Fitting images per class, or {ALL!r}."),
    Column(
        "whole",
        "category",
        "Whether all fitting images were used, and the row is not about a single position.",
    ),
    Column("pooled", "category", "Whether the probe reads the mean over positions."),
    Column("fitted", "quantity", "Number of fitting images."),
    Column("penalty", "quantity", "λ, or 1/C of a logistic probe, chosen on held-out images."),
    *estimate("Share of images that the probe classifies correctly.", label="accuracy"),
)


@dataclass
class LinearProbe(Analysis):
    """Accuracy of linear probes of every unit."""

    shots: tuple[int, ...] = (5, 10)
    """Fitting images per class, in ascending order. All fitting images are used as well."""
    tokens: tuple[str, ...] = TOKENS
    """Features that probes read, where a unit has them."""
    positions: Sequence[str] = ()
    """Units, by name, pattern or kind, in which every position also gets its own probe; `*` for all
    units."""
    method: str = "ridge"
    """`ridge`, or `logistic` by scikit-learn, which keeps features in memory."""
    penalties: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-12, 5))
    """Candidates for λ, relative to the mean eigenvalue of the scatter of the features."""

    name = "linear_probe"
    ids = ("A3.15", "A4.23", "X-13", "SLC-22", "SLC-23", "SLC-24", "SLC-27", "SLC-28", "SLC-30")
    section = Section(
        "representation",
        "Where do classes become linearly separable?",
        "A linear classifier is fitted to the frozen features of each unit, and evaluated on "
        "other images.",
        "At the top of a ViT with a class token, probes of single tokens have 6 to 10 % of "
        "ImageNet right, 57 to 58 % if the model averages its tokens, and 44 to 52 % in a "
        "ResNet-50 (Raghu et al. 2021, Fig. 11).",
        order=5,
    )
    fitted = "train"
    marked = False

    def __post_init__(self) -> None:
        self.shots, self.tokens = tuple(self.shots), tuple(self.tokens)
        self.penalties = tuple(self.penalties)
        positions: Any = self.positions
        self.positions = (positions,) if isinstance(positions, str) else tuple(positions)
        if not self.tokens:
            raise VitreousError(f"The tokens of linear_probe are empty; use some of {TOKENS}.")
        if wrong := [token for token in self.tokens if token not in TOKENS]:
            raise UnknownName("token for a linear probe", wrong[0], TOKENS)
        if self.method not in ("ridge", "logistic"):
            raise UnknownName("method of a linear probe", self.method, ("ridge", "logistic"))
        for name, values in (("shots", self.shots), ("penalties", self.penalties)):
            if any(not float(value) > 0 for value in values):
                raise VitreousError(
                    f"The {name} of linear_probe are {list(values)}; they are positive numbers."
                )
        if not self.penalties:
            raise VitreousError("linear_probe has no penalties; give at least one positive number.")
        if list(self.shots) != sorted(set(self.shots)):
            raise VitreousError(
                f"The shots of linear_probe are {list(self.shots)}; give them in order, none twice."
            )
        self._data: WeakKeyDictionary[Dataset, ProbeData] = WeakKeyDictionary()

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not bench.setting.labelled:
            return f"A probe is fitted to labels, and the images of {bench.data.name!r} have none."
        for pattern in self.positions:
            if not any(_matching(s, pattern) for s in bench.setting.subjects):
                subject.specimen.anatomy.find(pattern)  # raises an error that lists the units
        data = self.probe_data(bench)
        labels = data.fitting.labels
        if not bool((labels >= 0).all()):
            return (
                f"A probe is fitted to labels, and some images of {data.fitting.name!r} to fit on "
                "have none."
            )
        if data.fitting.classes != data.evaluation.classes:
            return "The images to fit on have other classes than those to evaluate on."
        if not len(data.evaluation) or not bool(data.held_out.any()):
            return (
                f"A probe needs at least {HELD_OUT} images to fit on and one to evaluate on; there "
                f"are {len(bench.data)}."
            )
        if len(labels[~data.held_out].unique()) < 2:
            return "All images to fit on are of one class, so there is nothing to classify."
        return ""

    def probe_data(self, bench: Bench) -> ProbeData:
        """Divide the images into fitting and evaluation images; cached, because it copies them."""
        if bench.data not in self._data:
            fitting = bench.splits.get(self.fitted)
            self._data[bench.data] = ProbeData.split(fitting, bench.data, self.shots)
        return self._data[bench.data]

    def probed(self, subject: Subject) -> tuple[list[ProbedFeature], dict[str, str]]:
        """Return the features to fit probes to, and reasons for units without any."""
        probed: list[ProbedFeature] = []
        reasons: dict[str, str] = {}
        every_position = {
            unit.name for pattern in self.positions for unit in _matching(subject, pattern)
        }

        def receive(unit: Unit, sites: Sites) -> None:
            if unit.kind == "head" or sites.out is None:
                reasons[unit.name] = "It gives scores, not features."
                return
            tokens = list(self.tokens)
            if unit.name in every_position and sites.out.grid is not None:
                height, width = sites.out.grid
                tokens += map(position_token, range(height * width))
            pooled = pool_tokens(sites.out, tokens)
            probed.extend(ProbedFeature(unit, name, x.shape[1]) for name, x in pooled.items())
            if not pooled:
                reasons[unit.name] = f"It has none of {', '.join(self.tokens)}."

        with torch.no_grad():
            image = subject.prepare(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
            subject.specimen.observe(image, ("out",), each=receive)
        return probed, reasons

    def groups(self, subject: Subject, bench: Bench) -> dict[str, list[ProbedFeature]]:
        """Return groups of features whose sums fit into memory together, by the name of a piece."""
        classes, parts = len(bench.data.classes), len(self.probe_data(bench).shots) + 2
        groups: list[list[ProbedFeature]] = []
        free = 0
        for feature in self.probed(subject)[0]:
            size = 8 * parts * feature.width * (feature.width + classes)
            if not groups or size > free:
                groups.append([])
                free = fitting.MEMORY
            groups[-1].append(feature)
            free -= size
        return {f"units from {group[0].key}": group for group in groups}

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self.groups(subject, bench))

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        data, groups = self.probe_data(bench), self.groups(subject, bench)

        def compute(piece: str) -> Numbers:
            group = groups[piece]
            probes: dict[str, list[Ridge]] | dict[str, list[Logistic]]
            if self.method == "ridge":
                probes = fit_ridge(subject, group, data, bench, self.penalties)
            else:
                probes = fit_logistic(subject, group, data, bench)
            right: dict[str, list[Tensor]] = {each.key: [] for each in group}

            def evaluate(batch: Batch, each: ProbedFeature, features: Tensor) -> None:
                labels = batch.labels.to(features.device)
                answers = [probe(features).argmax(1) == labels for probe in probes[each.key]]
                right[each.key].append(torch.stack(answers))

            stream_features(subject, group, data.evaluation, bench, evaluate)
            penalties = [[probe.penalty for probe in probes[each.key]] for each in group]
            return {
                "right": torch.stack([torch.cat(right[each.key], 1).cpu() for each in group]),
                "penalty": torch.tensor(penalties),
            }

        yield compute

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        data = self.probe_data(bench)
        rows = [row for subject in subjects for row in self._rows(subject, data, computed, bench)]
        table, replicates = tabulate(rows, COLUMNS)
        down = sorted(set(table["row"]), key=lambda row: int(row or -1), reverse=True)
        table["row"] = pd.Categorical(table["row"], down)  # row 0 at the top of a map
        about = {
            "fitted_on": len(data.fitting),
            "asked_on": len(data.evaluation),
            "left_out": {s.name: self.probed(s)[1] | data.missing for s in subjects},
        }
        views = _views(len(data.evaluation.classes), table)
        return Result(self.name, table, COLUMNS, views, about=about, replicates=replicates)

    def _rows(
        self, subject: Subject, data: ProbeData, computed: PieceNumbers, bench: Bench
    ) -> Iterator[dict[str, Any]]:
        numbers = range(data.first, data.first + len(data.evaluation))
        with_map = self._units_with_map(subject)
        single: dict[Unit, list[tuple[Tensor, Array]]] = {}
        for piece, group in self.groups(subject, bench).items():
            outcome = computed[subject.name][piece]
            replicates = resampled_means(outcome["right"].movedim(2, 0), numbers, bench.seed)[1:]
            for (i, each), (j, shots) in product(enumerate(group), enumerate(data.settings)):
                right, at = outcome["right"][i, j], position_number(each.token)
                accuracy = Estimate(*wilson(right.sum().numpy(), len(right)), replicates[:, i, j])
                row = self._blank_row(subject, each.unit, data, j)
                row |= {"penalty": float(outcome["penalty"][i, j]), "value": accuracy}
                if at is None:
                    pooled = each.token == TOKENS[1]
                    yield row | {"token": each.token, "pooled": pooled, "whole": shots == ALL}
                    continue
                assert each.unit.grid is not None
                down, across = divmod(at, each.unit.grid[1])
                row |= {"token": ONE, "whole": False, "row": str(down), "column": str(across)}
                row["map"] = f"{subject.name}, {each.unit.name}"
                yield row | {"mapped": shots == ALL and each.unit in with_map}
            for i, each in enumerate(group):
                if position_number(each.token) is not None:
                    single.setdefault(each.unit, []).append((outcome["right"][i], replicates[:, i]))
        for unit, probes in single.items():
            shares = torch.stack([each for each, _ in probes]).double().mean(0).numpy()
            means = np.mean([each for _, each in probes], axis=0)
            for j, shots in enumerate(data.settings):
                accuracy = Estimate(*clustered_share(shares[j], len(probes)), means[:, j])
                row = self._blank_row(subject, unit, data, j)
                yield row | {"token": ALONE, "whole": shots == ALL, "value": accuracy}

    def _blank_row(
        self, subject: Subject, unit: Unit, data: ProbeData, setting: int
    ) -> dict[str, Any]:
        shots = data.settings[setting]
        fitted = len(data.fitting) if shots == ALL else int(data.fitted(setting).sum())
        blank = {"row": "", "column": "", "map": "", "mapped": False, "pooled": False}
        counts = {"fitted": fitted, "n": len(data.evaluation)}
        return {**where(subject, unit), **blank, "shots": shots, **counts}

    def _units_with_map(self, subject: Subject) -> list[Unit]:
        """Return the units whose maps are drawn: evenly over the depth, including the last one."""
        probed = [
            each for each in self.probed(subject)[0] if position_number(each.token) is not None
        ]
        units = list(dict.fromkeys(each.unit for each in probed))
        places = np.linspace(len(units) - 1, 0, min(MAPS, len(units)))
        return [units[round(place)] for place in places]

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["whole"]].dropna(subset="value")
        for model, units in rows.groupby("model", sort=False, observed=True):
            probed = records(units)
            best = max(probed, key=lambda row: row["value"])
            close = [row for row in probed if row["value"] >= 0.9 * best["value"]]
            first = min(close, key=lambda row: row["depth"])
            accuracy = format_percent(best["value"], best["low"], best["high"])
            yield (
                f"In {bold(model)} a linear classifier has {accuracy} of new images right at best "
                f"({code(best['unit'])}, {escape(best['token'])}), and nine tenths of that from "
                f"{code(first['unit'])} on, at depth {first['depth']:.2f}."
            )


def _matching(subject: Subject, pattern: str) -> Sequence[Unit]:
    """Return the units of a model that match a pattern, if any."""
    try:
        return subject.specimen.anatomy.find(pattern)
    except UnknownName:
        return ()


def _views(classes: int, table: pd.DataFrame) -> tuple[View, ...]:
    lines: dict[str, Any] = {
        "x": "depth", "y": "value", "facet": "model", "low": "low", "high": "high",
        "limits": (0, 1), "bands": True, "references": (Reference(1 / classes, "guessing"),),
    }  # fmt: skip
    views = [
        View(
            "line", colour="token", where="whole",
            title="Accuracy of a linear probe of every unit",
            how_to_read="Each point is the accuracy of a linear classifier of one unit's features. "
            "Where a line rises, units make classes easier to separate; where two lines diverge, "
            "one token holds more information about the class than the other.",
            **lines,
        )
    ]  # fmt: skip
    if table["pooled"].any() and table["shots"].nunique() > 1:
        few = View(
            "line", colour="shots", where="pooled",
            title="Probes of the mean over positions, by the number of fitting images",
            how_to_read="Each line is fitted on that many images per class. Where lines are close "
            "together, the features separate classes so well that few examples suffice.",
            **lines,
        )  # fmt: skip
        views.append(few)
    if table["mapped"].any():
        maps = View(
            "heatmap", x="column", y="row", colour="value", facet="map", where="mapped",
            title="Accuracy of a linear probe of every single position",
            how_to_read="Each cell is the accuracy of a probe of one token, at its place in the "
            "image. Where cells differ, only some positions know the class; where they are alike, "
            "all or none do.",
        )  # fmt: skip
        views.append(maps)
    return tuple(views)
