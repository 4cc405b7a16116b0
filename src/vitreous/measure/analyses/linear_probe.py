"""How well classes can be read off every unit by a linear map, from few images or many (A3.15, A4.23).

    W = argmin Σ ‖y − b − Wᵀ x‖² + λ ‖W‖²,    y = +1 for the image's class and −1 for the others

of the features x of frozen units: the class token, the mean over positions, or the first position alone. The class
with the highest score is the answer, on images that were not fitted on. `5` and `10` fit that many images of every
class, `all` every fitting image. The penalty is the one with the least squared error on a fifth of the fitting images
that is held out (and joins in once it is chosen, for `all`).

`positions` names units where every token has a probe of its own (SLC-22): a map of accuracies, and their mean, which
is what the left of Raghu et al.'s Fig. 11 shows (X-13).

Features are never kept. One forward pass adds up the normal equations of all units (`readout/ridge.py`), a
second one over the images asked on counts right answers. Units are done in groups where the sums of all of them would
not fit.
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
from torch.nn import functional as F

from vitreous.data.dataset import Dataset
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, where
from vitreous.measure.readout.features import Probed, position, read, single, stream
from vitreous.measure.readout.logistic import Logistic
from vitreous.measure.readout.ridge import Moments, Ridge, choose, solve, together
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Interval,
    Reference,
    Result,
    View,
    clustered_share,
    estimate,
    wilson,
)  # fmt: skip
from vitreous.results.comparing import bold, code, records
from vitreous.results.words import escape, format_percent
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["LinearProbe"]

MEMORY = 1 << 30
"""Bytes of the sums of one group of units."""
HELD_OUT = 5
"""One of so many fitting images is held out to choose the penalty."""
ALL = "all"
TOKENS = ("class token", "mean over positions", "first position")
ALONE, ONE = "each position alone", "one position"
MAPS = 6
"""Units of a model whose maps are drawn, at most."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column(
        "token",
        "category",
        f"What of the unit is read; {ALONE!r} is the mean accuracy of probes of one position.",
    ),
    Column("row", "order", "Of a single position, its row on the grid of tokens."),
    Column("column", "order", "And its column."),
    Column("map", "category", "Of a single position, the model and the unit."),
    Column("mapped", "category", "Whether the row is a cell of a map that is drawn."),
    Column("shots", "order", f"Images of each class that were fitted on, or {ALL!r}."),
    Column(
        "whole",
        "category",
        "Whether all fitting images were fitted on, and not for one position of many.",
    ),
    Column("pooled", "category", "Whether the mean over positions was read."),
    Column("fitted", "quantity", "Number of images that were fitted on."),
    Column("penalty", "quantity", "λ, or 1/C of a logistic probe, as chosen on images held out."),
    *estimate("Share of the images that the probe has right.", label="accuracy"),
)


@dataclass(frozen=True)
class Sets:
    """Images to fit on, with the part of each, and images to ask on."""

    fitting: Dataset
    parts: Tensor
    """(n,) the shortest list of shots that an image belongs to, by number; then the rest, and last what is held out."""
    shots: tuple[int, ...]
    """Those that there are enough images for."""
    asked: Dataset
    missing: dict[str, str]

    @property
    def settings(self) -> list[str]:
        return [*map(str, self.shots), ALL]

    def fitted(self, setting: int) -> Tensor:
        """(n,) which images are fitted on, before the penalty is chosen."""
        return self.parts <= min(setting, len(self.shots))

    @property
    def held_out(self) -> Tensor:
        return self.parts == len(self.shots) + 1


@dataclass
class LinearProbe(Analysis):
    """How well classes can be read off every unit."""

    shots: tuple[int, ...] = (5, 10)
    """Images of each class; besides, all of them are fitted on."""
    tokens: tuple[str, ...] = TOKENS
    """What is read off a unit; those that it has."""
    positions: Sequence[str] = ()
    """Units, by name or kind, where every single position has a probe of its own as well; `*` is all of them, which
    costs as many probes as there are tokens."""
    method: str = "ridge"
    """Or 'logistic', by scikit-learn, which holds the pooled features of the fitting images in memory."""
    penalties: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-12, 5))
    """Of ridge, in units of the mean eigenvalue of the features' scatter, so that they mean the same for all units."""

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
        self.shots, self.tokens, self.penalties = (
            tuple(self.shots),
            tuple(self.tokens),
            tuple(self.penalties),
        )
        self.positions = (
            (self.positions,) if isinstance(self.positions, str) else tuple(self.positions)
        )
        if wrong := [token for token in self.tokens if token not in TOKENS]:
            raise UnknownName("token for a linear probe", wrong[0], TOKENS)
        if self.method not in ("ridge", "logistic"):
            raise UnknownName("method of a linear probe", self.method, ("ridge", "logistic"))
        for name, values in (
            ("shots", self.shots),
            ("penalties", self.penalties),
            ("tokens", self.tokens),
        ):
            if (not values and name != "shots") or (
                name != "tokens" and any(not float(v) > 0 for v in values)
            ):
                raise VitreousError(
                    f"linear_probe was asked with {name} {list(values)}; they are positive numbers."
                )
        if list(self.shots) != sorted(set(self.shots)):
            raise VitreousError(
                f"linear_probe was asked with shots {list(self.shots)}; name them in order, none twice."
            )

        self._known: WeakKeyDictionary[Dataset, Sets] = WeakKeyDictionary()

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not bench.setting.labelled:
            return f"A probe is fitted to labels, and the images of {bench.data.name!r} have none."
        for pattern in self.positions:
            if not any(matching(each, pattern) for each in bench.setting.subjects):
                subject.specimen.anatomy.find(pattern)  # which says what there is
        sets = self.sets(bench)
        if not bool((sets.fitting.labels >= 0).all()):
            return f"A probe is fitted to labels, and some images of {sets.fitting.name!r} to fit on have none."
        if sets.fitting.classes != sets.asked.classes:
            return "The images to fit on have other classes than those to ask on."
        if not len(sets.asked) or not bool(sets.held_out.any()):
            return (
                f"A probe needs at least {HELD_OUT} images to fit on and one to ask, "
                f"and there are {len(bench.data)}."
            )
        if len(sets.fitting.labels[~sets.held_out].unique()) < 2:
            return "All images to fit on are of one class, so there is nothing to tell apart."
        return ""

    def sets(self, bench: Bench) -> Sets:
        """Made once: dividing images copies them."""
        if bench.data not in self._known:
            self._known[bench.data] = self._sets(bench)
        return self._known[bench.data]

    def _sets(self, bench: Bench) -> Sets:
        """Where there is one set of images only, its first half is fitted on: classes take turns in it."""
        fitting, asked = bench.splits.get(self.fitted), bench.data
        if fitting is None or fitting.fingerprint == asked.fingerprint:
            half = len(asked) // 2
            fitting, asked = asked.take(range(half)), asked.take(range(half, len(asked)))
        held_out = len(fitting) // HELD_OUT
        labels = fitting.labels[: len(fitting) - held_out].cpu()
        member = F.one_hot(labels.clamp(min=0), max(len(fitting.classes), 1))
        place = (member.cumsum(0) * member).sum(1)  # 1 for the first image of a class
        counts = member.sum(0)
        least = int(counts[counts > 0].min()) if len(labels) else 0
        shots = tuple(each for each in self.shots if each <= least)
        parts = sum((place > each).long() for each in shots) + torch.zeros(
            len(labels), dtype=torch.int64
        )
        missing = {
            f"{each} shots": f"The rarest class has {least} images to fit on, and {each} were asked for."
            for each in self.shots
            if each > least
        }
        return Sets(
            fitting, F.pad(parts, (0, held_out), value=len(shots) + 1), shots, asked, missing
        )

    def probed(self, subject: Subject) -> tuple[list[Probed], dict[str, str]]:
        """What is read of a model, and what cannot be."""
        found: list[Probed] = []
        reasons: dict[str, str] = {}
        apart = {unit.name for pattern in self.positions for unit in matching(subject, pattern)}

        def look(unit: Unit, sites: Sites) -> None:
            if unit.kind == "head" or sites.out is None:
                reasons[unit.name] = "It gives scores, not features."
                return
            grid = sites.out.grid if unit.name in apart else None
            tokens = (*self.tokens, *map(single, range(grid[0] * grid[1] if grid else 0)))
            pooled = read(sites.out, tokens)
            found.extend(Probed(unit, token, value.shape[1]) for token, value in pooled.items())
            if not pooled:
                reasons[unit.name] = f"It has none of {', '.join(self.tokens)}."

        with torch.no_grad():
            image = subject.prepare(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
            subject.specimen.observe(image, ("out",), each=look)
        return found, reasons

    def groups(self, subject: Subject, bench: Bench) -> dict[str, list[Probed]]:
        """Units whose sums fit into memory together, by a name."""
        classes, parts = len(bench.data.classes), len(self.sets(bench).shots) + 2
        groups: list[list[Probed]] = []
        free = 0
        for each in self.probed(subject)[0]:
            size = 8 * parts * each.width * (each.width + classes)
            if not groups or size > free:
                groups.append([])
                free = MEMORY
            groups[-1].append(each)
            free -= size
        return {f"units from {group[0].key}": group for group in groups}

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self.groups(subject, bench))

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        sets, groups = self.sets(bench), self.groups(subject, bench)

        def one(piece: str) -> Numbers:
            fit = self._ridge if self.method == "ridge" else self._logistic
            probes = fit(subject, groups[piece], sets, bench)
            right: dict[str, list[Tensor]] = {each.key: [] for each in groups[piece]}

            def mark(batch: Batch, each: Probed, features: Tensor) -> None:
                labels = batch.labels.to(features.device)
                answers = [(probe(features).argmax(1) == labels) for probe in probes[each.key]]
                right[each.key].append(torch.stack(answers))

            stream(subject, groups[piece], sets.asked, bench, mark)
            return {
                "right": torch.stack(
                    [torch.cat(right[each.key], 1).cpu() for each in groups[piece]]
                ),
                "penalty": torch.tensor(
                    [[probe.penalty for probe in probes[each.key]] for each in groups[piece]]
                ),
            }

        yield one

    def _ridge(
        self, subject: Subject, group: list[Probed], sets: Sets, bench: Bench
    ) -> dict[str, list[Ridge]]:
        sums: dict[tuple[str, int], Moments] = {}
        classes = len(sets.fitting.classes)

        def add(batch: Batch, each: Probed, features: Tensor) -> None:
            parts = sets.parts[batch.rows]
            targets = 2.0 * F.one_hot(batch.labels, classes) - 1
            for part in parts.unique().tolist():
                rows = (parts == part).to(features.device)
                block = Moments.of(features[rows], targets[parts == part].to(features.device))
                known = sums.get((each.key, part))
                sums[each.key, part] = block if known is None else known + block

        stream(subject, group, sets.fitting, bench, add)
        found: dict[str, list[Ridge]] = {}
        last = len(sets.shots)
        for each in group:
            held_out, probes = sums.pop((each.key, last + 1)), []
            if not bool(held_out.products.isfinite().all()):
                raise VitreousError(
                    f"Features of {each.unit.name!r} in {subject.name} are not finite."
                )
            fit = [sums.pop((each.key, part), None) for part in range(last + 1)]
            for setting in range(last + 1):
                known = together([part for part in fit[: setting + 1] if part is not None])
                best = choose(known, held_out, self.penalties)
                probes.append(solve(known + held_out if setting == last else known, best))
            found[each.key] = probes
        return found

    def _logistic(
        self, subject: Subject, group: list[Probed], sets: Sets, bench: Bench
    ) -> dict[str, list[Logistic]]:
        kept: dict[str, list[Tensor]] = {each.key: [] for each in group}
        size = 4 * len(sets.fitting) * sum(each.width for each in group)
        if size > MEMORY:
            raise VitreousError(
                f"Logistic probes keep pooled features, {size / 2**30:.1f} GiB here; take fewer images or tokens, or "
                "method='ridge', which keeps none."
            )
        stream(
            subject,
            group,
            sets.fitting,
            bench,
            lambda batch, each, x: kept[each.key].append(x.float().cpu()),
        )
        return {
            each.key: [
                Logistic.fitted(
                    torch.cat(kept[each.key]), sets.fitting.labels.cpu(), sets.fitted(setting), sets.held_out,
                    setting == len(sets.shots),
                )
                for setting in range(len(sets.settings))
            ]
            for each in group
        }  # fmt: skip

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        sets = self.sets(bench)
        rows = [row for subject in asked for row in self._rows(subject, sets, found, bench)]
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        down = sorted(set(table["row"]), key=lambda row: int(row or -1), reverse=True)
        table["row"] = pd.Categorical(table["row"], down)  # a picture's first row is its uppermost
        left_out = {each.name: self.probed(each)[1] | sets.missing for each in asked}
        about = {"fitted_on": len(sets.fitting), "asked_on": len(sets.asked), "left_out": left_out}
        return Result(self.name, table, COLUMNS, views(len(sets.asked.classes), table), about=about)

    def _rows(
        self, subject: Subject, sets: Sets, found: Found, bench: Bench
    ) -> Iterator[dict[str, Any]]:
        alone: dict[Unit, list[Tensor]] = {}
        drawn = self._drawn(subject)
        for piece, group in self.groups(subject, bench).items():
            numbers = found[subject.name][piece]
            for (i, each), (j, shots) in product(enumerate(group), enumerate(sets.settings)):
                right, at = numbers["right"][i, j], position(each.token)
                row = self._row(subject, each.unit, sets, j) | {
                    "penalty": float(numbers["penalty"][i, j])
                }
                row |= marked(wilson(right.sum().numpy(), len(right)), len(right))
                if at is None:
                    yield row | {
                        "token": each.token,
                        "pooled": each.token == TOKENS[1],
                        "whole": shots == ALL,
                    }
                    continue
                assert each.unit.grid is not None
                place = dict(
                    zip(("row", "column"), map(str, divmod(at, each.unit.grid[1])), strict=True)
                )
                mapped = {
                    "map": f"{subject.name}, {each.unit.name}",
                    "mapped": shots == ALL and each.unit in drawn,
                }
                yield row | {"token": ONE, "whole": False, **place, **mapped}
            for i, each in enumerate(group):
                if position(each.token) is not None:
                    alone.setdefault(each.unit, []).append(numbers["right"][i])
        for unit, every in alone.items():
            for j, shots in enumerate(sets.settings):
                share = torch.stack(every)[:, j].double().mean(0).numpy()
                row = self._row(subject, unit, sets, j) | {"token": ALONE, "whole": shots == ALL}
                yield row | marked(clustered_share(share, len(every)), len(share))

    def _row(self, subject: Subject, unit: Unit, sets: Sets, setting: int) -> dict[str, Any]:
        """What all rows have."""
        shots = sets.settings[setting]
        fitted = len(sets.fitting) if shots == ALL else int(sets.fitted(setting).sum())
        blank = {"row": "", "column": "", "map": "", "mapped": False, "pooled": False}
        return {**where(subject, unit), **blank, "shots": shots, "fitted": fitted}

    def _drawn(self, subject: Subject) -> list[Unit]:
        """The units whose maps are drawn: evenly over the depth, the last one among them."""
        apart = list(
            dict.fromkeys(
                each.unit for each in self.probed(subject)[0] if position(each.token) is not None
            )
        )
        return [apart[round(i)] for i in np.linspace(len(apart) - 1, 0, min(MAPS, len(apart)))]

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


def marked(found: Interval, count: int) -> dict[str, float]:
    """The last columns of a row."""
    return {
        "value": float(found.mean),
        "low": float(found.low),
        "high": float(found.high),
        "n": count,
    }


def matching(subject: Subject, pattern: str) -> Sequence[Unit]:
    """The units of a model that a pattern means, if any."""
    try:
        return subject.specimen.anatomy.find(pattern)
    except UnknownName:
        return ()


def views(classes: int, table: pd.DataFrame) -> tuple[View, ...]:
    """By token with all images, and by the number of images."""
    how: dict[str, Any] = {
        "x": "depth", "y": "value", "facet": "model", "low": "low", "high": "high", "limits": (0, 1), "bands": True,
        "references": (Reference(1 / classes, "guessing"),),
    }  # fmt: skip
    main = View(
        "line",
        colour="token",
        where="whole",
        title="What a linear probe reads off every unit",
        how_to_read="Each point is the accuracy of a linear map from one unit's features to the classes. Where a line "
        "rises, units make classes easier to tell apart; where two lines part, one token knows more than the other.",
        **how,
    )
    few = View(
        "line",
        colour="shots",
        where="pooled",
        title="Probes of the mean over positions, by the number of images fitted on",
        how_to_read="Each line is fitted on so many images of every class. Where lines lie close together, a unit "
        "arranges the classes so well that few examples are enough.",
        **how,
    )
    maps = View(
        "heatmap",
        x="column",
        y="row",
        colour="value",
        facet="map",
        where="mapped",
        title="What a linear probe reads off every single position",
        how_to_read="Each cell is the accuracy of a probe that sees one token of a unit alone, at its place in the "
        "image. Where cells differ, the class is known in some places; where they are alike, in all of them or none.",
    )
    shown = {
        main: True,
        few: table["pooled"].any() and table["shots"].nunique() > 1,
        maps: table["mapped"].any(),
    }
    return tuple(view for view, there in shown.items() if there)
