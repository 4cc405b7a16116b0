"""What several models know together that none of them knows alone (A1.23).

    p(y | x) = 1/M Σ_m p_m(y | x),    m over the models given, and over `others`
    disagreement(m, k) = share of the images to which m and k give different answers
    diversity = H(1/M Σ_m p_m) − 1/M Σ_m H(p_m),    mean over images; H entropy in nats

Accuracy, NLL, Brier and ECE of the mean, beside those of every member. The NLL of the mean is never above the mean of
the members' NLL; how far below says how much they differ where it matters. The mean over moments of one training, or
over seeds, is the ensemble that Park and Kim take attention and MC-dropout for a cheap likeness of (HDV-55).
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
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probes.calibration import per_image
from vitreous.measure.robustness.shifts import (
    CLEAN,
    ECE,
    KEPT,
    Marks,
    ended,
    guessing,
    measured,
    table,
    with_ends,
)
from vitreous.measure.subject import Subject, logits, subjects
from vitreous.results import Column, Interval, Result, View, estimate, wilson

__all__ = ["Ensemble"]

SHARD = 128
"""Images of a piece."""
ALL, MEAN = "ensemble", "mean of members"


@dataclass
class Ensemble(Analysis):
    """What several models know together that none of them knows alone."""

    others: Sequence[str] = ()
    """Names of further members, besides the models given, such as `nano:vit@warmup`."""
    _opened: list[Subject] = field(default_factory=list, init=False, repr=False, compare=False)

    name = "ensemble"
    ids = ("A1.23", "HDV-55")

    def __post_init__(self) -> None:
        self.others = (self.others,) if isinstance(self.others, str) else tuple(self.others)

    def further(self, bench: Bench) -> list[Subject]:
        """`others`, opened once; an error if one has other classes."""
        given = bench.setting.subjects
        if self.others and not self._opened:
            sides = set(given[0].specimen.anatomy.image[1:])
            image = sides.pop() if len(sides) == 1 else None
            opened = subjects(self.others, image=image, device=given[0].device, seed=bench.seed)
            self._opened += [each.shown(bench.data) for each in opened]
        for each in self._opened:
            if each.name in [subject.name for subject in given]:
                raise VitreousError(
                    f"{each.name} is one of the models and one of `others`; name each member once."
                )
            if bench.setting.labelled and (why := bench.setting.unmarkable(each)):
                raise VitreousError(f"{each.name} cannot join the ensemble. {why}")
        return self._opened

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        alone = len(_able(bench)) + len(self.further(bench)) < 2
        return (
            "There is no other model with these classes: give two, or name some as `others`."
            if alone
            else ""
        )

    def members(self, subject: Subject, bench: Bench) -> list[Subject]:
        """Whose answers are a model's pieces: its own, and with the first model those of `others`."""
        return [subject, *(self.further(bench) if subject is _able(bench)[0] else ())]

    def _pieces(self, subject: Subject, bench: Bench) -> dict[str, tuple[Subject, int]]:
        return {
            f"{member.name} ({member.fingerprint}) from {start}": (member, start)
            for member in self.members(subject, bench)
            for start in range(0, len(bench.data), SHARD)
        }

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return list(self._pieces(subject, bench))

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        pieces = self._pieces(subject, bench)

        @torch.no_grad()
        def one(piece: str) -> Numbers:
            member, start = pieces[piece]
            found: list[Tensor] = []
            for images in bench.data.images[start : start + SHARD].split(bench.batch):
                scores = logits(member.specimen(member.prepare(images)))
                assert scores is not None
                found.append(scores.double().log_softmax(1).float().cpu())
            return {"logs": torch.cat(found)}

        yield one

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        logs: dict[str, Tensor] = {}
        for subject in asked:
            for piece, (member, _) in self._pieces(subject, bench).items():
                part = found[subject.name][piece]["logs"].double()
                logs[member.name] = (
                    torch.cat([logs[member.name], part]) if member.name in logs else part
                )
        logs = {each.name: logs[each.name] for each in (*asked, *self.further(bench))}
        rows = [*_alone(logs, bench), *_pairs(logs, bench)]
        return Result(
            self.name, table(rows, COLUMNS), COLUMNS, views(bench), about={"members": list(logs)}
        )


def _able(bench: Bench) -> list[Subject]:
    """The models whose answers can be marked."""
    return [each for each in bench.setting.subjects if not bench.setting.unmarkable(each)]


def together(logs: Mapping[str, Tensor]) -> Tensor:
    """(n, classes) log of the mean of the members' probabilities."""
    return torch.stack(list(logs.values())).logsumexp(0) - log(len(logs))


def diversity(logs: Mapping[str, Tensor]) -> Tensor:
    """(n,) the entropy of the mean, less the mean entropy."""

    def entropy(each: Tensor) -> Tensor:
        return torch.special.entr(each.exp()).sum(1)

    return entropy(together(logs)) - torch.stack([entropy(each) for each in logs.values()]).mean(0)


def _alone(logs: Mapping[str, Tensor], bench: Bench) -> Iterator[dict[str, Any]]:
    """The ensemble, its members, and their mean."""
    labels, count = bench.data.labels.cpu(), len(bench.data)
    every = {ALL: together(logs), **logs}
    found: dict[str, Numbers] = {}
    for name, each in every.items():
        found[name] = {
            part: values for part, values in per_image(each, labels).items() if part in KEPT
        }
    of = Marks({**found, CLEAN: found[ALL]}, bench)
    whole = {"diversity": of.average(diversity(logs))}

    def change(*names: str) -> dict[str, float]:
        mean = np.mean([of.replicates(name)["nll"] for name in names], axis=0)
        return measured({"nll_change": mean - of.replicates(ALL)["nll"]}, count)

    base = {"other": "", "pair": False, "single": True}
    yield {
        **base,
        "model": ALL,
        "part": ALL,
        **measured(whole, count),
        **change(ALL),
        **of.row(ALL),
    }
    for name in logs:
        yield {**base, "model": name, "part": "member", **change(name), **of.row(name)}
    yield {**base, "model": MEAN, "part": MEAN, **change(*logs), **of.mean_row(list(logs))}


def _pairs(logs: Mapping[str, Tensor], bench: Bench) -> Iterator[dict[str, Any]]:
    """Both ways round and everybody with itself, for a map."""
    count = len(bench.data)
    answers = {name: each.argmax(1) for name, each in logs.items()}
    for one, other in product(logs, repeat=2):
        differ = wilson(int((answers[one] != answers[other]).sum()), count)
        values = ended({"disagreement": differ if one != other else Interval(0.0, 0.0, 0.0)})
        yield {
            "model": one,
            "other": other,
            "part": "pair",
            "pair": True,
            "single": False,
            **values,
            "n": count,
        }


COLUMNS = (
    Column(
        "model",
        "order",
        f"The member; {ALL!r} for the mean of their probabilities, {MEAN!r} for that of numbers.",
    ),
    Column("other", "order", "The member it is compared with, in rows about pairs."),
    Column("part", "category", f"What the row is about: {ALL}, member, {MEAN} or pair."),
    Column("single", "category", "Whether the row is about one prediction."),
    Column("pair", "category", "Whether the row is about two members."),
    *with_ends(
        "disagreement",
        "Share of the images to which the two give different answers.",
        "disagreement",
    ),
    *with_ends(
        "diversity",
        "Entropy of the mean of probabilities less the mean entropy, in nats.",
        "diversity",
    ),
    *with_ends("nll_change", "NLL less that of the ensemble; paired over images.", "change of NLL"),
    *with_ends(
        "change", "Accuracy less that of the ensemble; paired over images.", "change of accuracy"
    ),
    *ECE,
    *with_ends("brier", "Mean of Σ (probability − [is the label])² over classes.", "Brier score"),
    *with_ends("nll", "Mean of −log probability of the label.", "NLL"),
    *estimate("Share of the images that are right.", label="accuracy"),
)


def views(bench: Bench) -> tuple[View, ...]:
    """Four numbers side by side, and who disagrees with whom."""
    how: dict[str, Any] = {"x": "model", "where": "single"}
    return (
        View(
            "bar", y="nll", low="nll_low", high="nll_high",
            title="NLL of the ensemble and of its members",
            how_to_read="The ensemble averages the probabilities of its members. It cannot be worse than they are in "
            "the mean; where it is lower than the best of them, they make different mistakes.",
            **how,
        ),
        View(
            "bar", y="value", low="low", high="high", limits=(0, 1), references=guessing(bench),
            title="Accuracy of the ensemble and of its members",
            how_to_read="The share of right answers. A mean over models that err on different images is right more "
            "often than each of them.",
            **how,
        ),
        View(
            "bar", y="ece", low="ece_low", high="ece_high",
            title="Calibration of the ensemble and of its members",
            how_to_read="The mean gap between confidence and accuracy. An ensemble is less sure than its members: that "
            "helps where they are too sure, and harms where they are not sure enough.",
            **how,
        ),
        View(
            "bar", y="brier", low="brier_low", high="brier_high",
            title="Brier score of the ensemble and of its members",
            how_to_read="The squared distance of the probabilities from the truth, lower is better; unlike NLL it does "
            "not grow without bound for a single sure mistake.",
            **how,
        ),
        View(
            "heatmap", x="model", y="other", colour="disagreement", where="pair",
            title="Who disagrees with whom",
            how_to_read="Each cell is the share of images to which two members give different answers. Members that "
            "agree everywhere add nothing to each other.",
        ),
    )  # fmt: skip
