"""What several models achieve together: the mean of their probabilities beside each model alone.

    p(y | x) = 1/M Σ_m p_m(y | x),    m over the models given, and over `others`
    disagreement(m, k) = share of the images to which m and k give different answers
    diversity = H(1/M Σ_m p_m) − 1/M Σ_m H(p_m),    mean over images; H entropy in nats

Accuracy, NLL, Brier and ECE of the mean, beside those of every member. The NLL of the mean is never
above the mean of the members' NLL; how far below shows how much they differ where it matters. Park
& Kim 2022 (Eq. 1 and 2) read attention and MC dropout as cheap approximations of such an ensemble,
over checkpoints or seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probes.calibration import score_images
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import resampled_means
from vitreous.measure.robustness.shifts import (
    CLEAN,
    ECE_COLUMNS,
    PER_IMAGE,
    ShiftScores,
    bootstrap_estimates,
    chance_level,
    interval_columns,
)
from vitreous.measure.subject import Subject, logits, subjects
from vitreous.results import (
    Column,
    Estimate,
    Interval,
    Result,
    View,
    estimate,
    tabulate,
    wilson,
)
from vitreous.results.comparing import (
    bold,
    clause,
    mean_by_model,
    pair_models,
    rank_models,
    records,
    tied_with,
)
from vitreous.results.words import format_estimate, format_percent

__all__ = ["Ensemble"]

SHARD = 128
"""Number of images per piece."""
ALL, MEAN = "ensemble", "mean of members"
NLL = ("nll", "nll_low", "nll_high")
DISAGREEMENT = ("disagreement", "disagreement_low", "disagreement_high")


@dataclass
class Ensemble(Analysis):
    """Accuracy and calibration of the mean of several models' probabilities."""

    others: Sequence[str] = ()
    """Names of further members, besides the models given, such as `nano:vit@warmup`."""
    _opened: list[Subject] = field(default_factory=list, init=False, repr=False, compare=False)

    name = "ensemble"
    ids = ("A1.23", "HDV-55")
    section = Section(
        "output",
        "How good are they together?",
        "The probabilities of all models are averaged: how good is that mean, compared with each "
        "model alone, and how often do two of them disagree?",
        "Park & Kim (2022) interpret attention as such a mean, over positions instead of models.",
        order=2,
    )

    def __post_init__(self) -> None:
        self.others = (self.others,) if isinstance(self.others, str) else tuple(self.others)

    def further_models(self, bench: Bench) -> Sequence[Subject]:
        """Open `others` once; raise if one has other classes."""
        models = bench.setting.subjects
        if self.others and not self._opened:
            sides = set(models[0].specimen.anatomy.image[1:])
            image = sides.pop() if len(sides) == 1 else None
            opened = subjects(self.others, image=image, device=models[0].device, seed=bench.seed)
            self._opened += [member.for_dataset(bench.data) for member in opened]
        for member in self._opened:
            if member.name in [model.name for model in models]:
                raise VitreousError(
                    f"{member.name} is one of the models and one of `others`; name each member "
                    "once."
                )
            if bench.setting.labelled and (why := bench.setting.unmarkable(member)):
                raise VitreousError(f"{member.name} cannot join the ensemble. {why}")
        return self._opened

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        if len(_classifiers(bench)) + len(self.further_models(bench)) < 2:
            return "There is no other model with these classes: give two, or name some as `others`."
        return ""

    def _pieces(self, subject: Subject, bench: Bench) -> dict[str, tuple[Subject, int]]:
        """Return member and first image of each piece; the first model also runs `others`."""
        members = [subject]
        if subject is _classifiers(bench)[0]:
            members += self.further_models(bench)
        return {
            f"{member.name} ({member.fingerprint}) from {start}": (member, start)
            for member in members
            for start in range(0, len(bench.data), SHARD)
        }

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self._pieces(subject, bench))

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        pieces = self._pieces(subject, bench)

        @torch.no_grad()
        def compute(piece: str) -> Numbers:
            member, start = pieces[piece]
            logs: list[Tensor] = []
            data = bench.data if member.framing is None else bench.data.framed(member.framing)
            for images in data.images[start : start + SHARD].split(bench.batch):
                scores = logits(member.specimen(member.prepare(images)))
                assert scores is not None
                logs.append(scores.double().log_softmax(1).float().cpu())
            return {"logs": torch.cat(logs)}

        yield compute

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        parts: dict[str, list[Tensor]] = {}
        for subject in subjects:
            for piece, (member, _) in self._pieces(subject, bench).items():
                parts.setdefault(member.name, []).append(computed[subject.name][piece]["logs"])
        members = [member.name for member in (*subjects, *self.further_models(bench))]
        logs = {name: torch.cat(parts[name]).double() for name in members}
        rows = [*_single_rows(logs, bench), *_pair_rows(logs, bench)]
        table, replicates = tabulate(rows, COLUMNS)
        about = {"members": members}
        return Result(self.name, table, COLUMNS, _views(bench), about=about, replicates=replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = records(result.table[result.table["single"]])
        together = next(row for row in rows if row["part"] == "ensemble")
        members = [row for row in rows if row["part"] == "member"]
        best = min(members, key=lambda row: row["nll"])
        if best["nll_change_low"] > 0:
            comparison = "less than"
        elif best["nll_change_high"] < 0:
            comparison = "more than"
        else:
            comparison = "tied with"
        accuracy = format_percent(together["value"], together["low"], together["high"])
        nll = format_estimate(together["nll"], together["nll_low"], together["nll_high"])
        losses = {row["model"]: Interval(*(row[each] for each in NLL)) for row in members}
        paired = pair_models(result, result.table[result.table["part"] == "member"], "nll")
        equal = tied_with(best["model"], losses, paired)
        alone = clause(
            "{model}, with {}", [*map(bold, equal)], [format_estimate(*losses[m]) for m in equal]
        )
        yield (
            f"The mean of {len(members)} models has {accuracy} right and an NLL of {nll}, "
            f"{comparison} the best of them alone, {alone}."
        )
        pairs = result.table[
            result.table["pair"] & (result.table["model"] != result.table["other"])
        ]
        if pairs.empty:
            return
        order = [row["model"] for row in members]
        once = [order.index(a) < order.index(b) for a, b in pairs[["model", "other"]].values]
        pairs = pairs[once]  # the table has each pair in both orders
        names = pairs["model"].astype(str) + " × " + pairs["other"].astype(str)
        shares = mean_by_model(pairs.assign(model=names), DISAGREEMENT)
        if not any(share.mean for share in shares.values()):
            yield "All members give the same answers."
            return
        one, other = pairs[["model", "other"]].iloc[0]
        yield rank_models(
            shares,
            "Of all pairs of members, {model} [disagrees|disagree] most, on {} of the images",
            "{model} least, on {}",
            "{models} pairs of members are tied on how often they disagree, on {} to {} of the "
            "images",
            format_percent,
            alone=f"{bold(one)} and {bold(other)} disagree on {{}} of the images",
        )


def _classifiers(bench: Bench) -> list[Subject]:
    """Return the models whose predictions can be compared with labels."""
    return [s for s in bench.setting.subjects if not bench.setting.unmarkable(s)]


def mean_log_probabilities(logs: Mapping[str, Tensor]) -> Tensor:
    """Return the log of the members' mean probabilities, (n, classes)."""
    return torch.stack(list(logs.values())).logsumexp(0) - log(len(logs))


def ensemble_diversity(logs: Mapping[str, Tensor]) -> Tensor:
    """Return the entropy of the mean minus the mean entropy, (n,)."""

    def entropy(log_probabilities: Tensor) -> Tensor:
        return torch.special.entr(log_probabilities.exp()).sum(1)

    members = torch.stack(list(map(entropy, logs.values())))
    return entropy(mean_log_probabilities(logs)) - members.mean(0)


def _single_rows(logs: Mapping[str, Tensor], bench: Bench) -> Iterator[dict[str, Any]]:
    """Yield rows of the ensemble, its members, and the mean of their numbers."""
    labels, count = bench.data.labels.cpu(), len(bench.data)
    numbers: dict[str, Numbers] = {}
    for name, log_probabilities in {ALL: mean_log_probabilities(logs), **logs}.items():
        terms = score_images(log_probabilities, labels)
        numbers[name] = {part: terms[part] for part in PER_IMAGE}
    measures = ("value", "change", "ece", "plain_ece", "brier", "nll")
    scores = ShiftScores({**numbers, CLEAN: numbers[ALL]}, bench, measures)

    def nll_change(*names: str) -> dict[str, Estimate]:
        mean = np.mean([scores.replicates(name)["nll"] for name in names], axis=0)
        change = mean - scores.replicates(ALL)["nll"]
        return bootstrap_estimates({"nll_change": change}, count)

    blank = {"other": "", "pair": False, "single": True}
    diversity = {"diversity": scores.mean(ensemble_diversity(logs))}
    ensemble = {**blank, "model": ALL, "part": ALL, **bootstrap_estimates(diversity, count)}
    yield {**ensemble, **nll_change(ALL), **scores.row(ALL)}
    for name in logs:
        yield {**blank, "model": name, "part": "member", **nll_change(name), **scores.row(name)}
    mean = {**blank, "model": MEAN, "part": MEAN}
    yield {**mean, **nll_change(*logs), **scores.mean_row(list(logs))}


def _pair_rows(logs: Mapping[str, Tensor], bench: Bench) -> Iterator[dict[str, Any]]:
    """Yield a row for each ordered pair of members, also of a member with itself, for a map."""
    count = len(bench.data)
    answers = torch.stack([member.argmax(1) for member in logs.values()], 1)
    differ = (answers[:, :, None] != answers[:, None, :]).numpy()
    replicates = resampled_means(differ, range(count), bench.seed)[1:]
    for (i, member), (j, other) in product(enumerate(logs), repeat=2):
        share = wilson(differ[:, i, j].sum(), count) if i != j else Interval(0.0, 0.0, 0.0)
        row = {"model": member, "other": other, "part": "pair", "pair": True, "single": False}
        yield {**row, "disagreement": Estimate(*share, replicates[:, i, j]), "n": count}


COLUMNS = (
    Column(
        "model",
        "order",
        f"The member; `{ALL}` for the mean of probabilities, `{MEAN}` for the mean of numbers.",
    ),
    Column("other", "order", "In rows about pairs: the member that it is compared with."),
    Column("part", "category", f"What the row is about: `{ALL}`, `member`, `{MEAN}` or `pair`."),
    Column("single", "category", "Whether the row is about one prediction."),
    Column("pair", "category", "Whether the row is about two members."),
    *interval_columns(
        "disagreement", "Share of images that the two classify differently.", "disagreement"
    ),
    *interval_columns("diversity", "Entropy of the mean minus mean entropy, in nats.", "diversity"),
    *interval_columns("nll_change", "NLL minus that of the ensemble, paired.", "change of NLL"),
    *interval_columns(
        "change", "Accuracy minus that of the ensemble, paired.", "change of accuracy"
    ),
    *ECE_COLUMNS,
    *interval_columns("brier", "Mean squared distance from the one-hot label.", "Brier score"),
    *interval_columns("nll", "Mean negative log-likelihood of the label.", "NLL"),
    *estimate("Share of images classified correctly.", label="accuracy"),
)


def _views(bench: Bench) -> tuple[View, ...]:
    bars: dict[str, Any] = {"x": "model", "where": "single"}
    return (
        View(
            "bar", y="nll", low="nll_low", high="nll_high",
            title="NLL of the ensemble and of its members",
            how_to_read="The ensemble averages the probabilities of its members. It cannot be "
            "worse than their mean; if it is better than the best of them, they make different "
            "errors.",
            **bars,
        ),
        View(
            "bar", y="value", low="low", high="high", limits=(0, 1),
            references=chance_level(bench),
            title="Accuracy of the ensemble and of its members",
            how_to_read="Share of images classified correctly. Averaging models that err on "
            "different images is usually better than each of them.",
            **bars,
        ),
        View(
            "bar", y="ece", low="ece_low", high="ece_high",
            title="Calibration of the ensemble and of its members",
            how_to_read="Mean gap between confidence and accuracy. An ensemble is less confident "
            "than its members: that helps over-confident ones and harms under-confident ones.",
            **bars,
        ),
        View(
            "bar", y="brier", low="brier_low", high="brier_high",
            title="Brier score of the ensemble and of its members",
            how_to_read="Squared distance of the probabilities from the truth; lower is better. "
            "Unlike NLL, a single confident error cannot dominate it.",
            **bars,
        ),
        View(
            "heatmap", x="model", y="other", colour="disagreement",
            matrix=True, where="pair",
            title="How often members disagree",
            how_to_read="Each cell is the share of images that two members classify differently. "
            "Members that always agree add nothing to each other.",
        ),
    )  # fmt: skip
