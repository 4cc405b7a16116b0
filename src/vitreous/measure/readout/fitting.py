"""Fit linear probes: the division of images, and one pass over them for all probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure.bench import Bench
from vitreous.measure.probe import Batch
from vitreous.measure.readout.features import ProbedFeature, stream_features
from vitreous.measure.readout.logistic import Logistic
from vitreous.measure.readout.ridge import Moments, Ridge, choose_penalty, join_moments, solve
from vitreous.measure.subject import Subject

MEMORY = 1 << 30
"""Maximum number of bytes of the sums, or features, of one group of units."""
HELD_OUT = 5
"""One in so many fitting images is held out to choose the penalty."""
ALL = "all"


@dataclass(frozen=True)
class ProbeData:
    """Images to fit on, and images to evaluate on."""

    fitting: Dataset
    parts: Tensor
    """(n,) the part of each fitting image: the index of the smallest of `shots` that includes it,
    `len(shots)` for other images, `len(shots) + 1` for held-out ones."""
    shots: tuple[int, ...]
    """Shots for which every class has enough images."""
    evaluation: Dataset
    first: int
    """Number of the first evaluation image in its dataset."""
    missing: dict[str, str]
    """Reasons why other shots are left out."""

    @property
    def settings(self) -> list[str]:
        """`shots`, and all images."""
        return [*map(str, self.shots), ALL]

    def fitted(self, setting: int) -> Tensor:
        """Return which images are fitted on before the penalty is chosen, (n,)."""
        return self.parts <= min(setting, len(self.shots))

    @property
    def held_out(self) -> Tensor:
        return self.parts == len(self.shots) + 1

    @classmethod
    def split(cls, fitting: Dataset | None, data: Dataset, shots: Sequence[int]) -> ProbeData:
        """Divide images; without a fitting set, the first, class-balanced half is fitted on."""
        first = 0
        evaluation = data
        if fitting is None or fitting.fingerprint == data.fingerprint:
            first = len(data) // 2
            fitting, evaluation = data.take(range(first)), data.take(range(first, len(data)))
        held_out = len(fitting) // HELD_OUT
        labels = fitting.labels[: len(fitting) - held_out].cpu()
        member = F.one_hot(labels.clamp(min=0), max(len(fitting.classes), 1))
        number = (member.cumsum(0) * member).sum(1)  # 1 for the first image of a class
        counts = member.sum(0)
        least = int(counts[counts > 0].min()) if len(labels) else 0
        possible = tuple(each for each in shots if each <= least)
        parts = torch.zeros(len(labels), dtype=torch.int64)
        for each in possible:
            parts += number > each
        missing = {
            f"{each} shots": f"The rarest class has {least} images to fit on, fewer than {each}."
            for each in shots
            if each > least
        }
        parts = F.pad(parts, (0, held_out), value=len(possible) + 1)
        return cls(fitting, parts, possible, evaluation, first, missing)


def fit_ridge(
    subject: Subject,
    group: list[ProbedFeature],
    data: ProbeData,
    bench: Bench,
    penalties: Sequence[float],
) -> dict[str, list[Ridge]]:
    """Fit ridge regressions in one pass; by feature, one for each of `data.settings`."""
    sums: dict[tuple[str, int], Moments] = {}
    classes = len(data.fitting.classes)

    def add(batch: Batch, each: ProbedFeature, features: Tensor) -> None:
        parts = data.parts[batch.rows]
        targets = 2.0 * F.one_hot(batch.labels, classes) - 1
        for part in parts.unique().tolist():
            rows = (parts == part).to(features.device)
            block = Moments.of(features[rows], targets[parts == part].to(features.device))
            known = sums.get((each.key, part))
            sums[each.key, part] = block if known is None else known + block

    stream_features(subject, group, data.fitting, bench, add)
    fitted: dict[str, list[Ridge]] = {}
    last = len(data.shots)
    for each in group:
        held_out = sums.pop((each.key, last + 1))
        if not bool(held_out.products.isfinite().all()):
            raise VitreousError(f"Features of {each.unit.name!r} in {subject.name} are not finite.")
        parts = [sums.pop((each.key, part), None) for part in range(last + 1)]
        probes = []
        for setting in range(last + 1):
            known = join_moments([part for part in parts[: setting + 1] if part is not None])
            penalty = choose_penalty(known, held_out, penalties)
            probes.append(solve(known + held_out if setting == last else known, penalty))
        fitted[each.key] = probes
    return fitted


def fit_logistic(
    subject: Subject, group: list[ProbedFeature], data: ProbeData, bench: Bench
) -> dict[str, list[Logistic]]:
    """Fit logistic regressions on features kept in memory; by feature, one for each setting."""
    kept: dict[str, list[Tensor]] = {each.key: [] for each in group}
    size = 4 * len(data.fitting) * sum(each.width for each in group)
    if size > MEMORY:
        raise VitreousError(
            f"Logistic probes keep pooled features, {size / 2**30:.1f} GiB here; use fewer images "
            "or tokens, or method='ridge', which keeps none."
        )

    def keep(batch: Batch, each: ProbedFeature, features: Tensor) -> None:
        kept[each.key].append(features.float().cpu())

    stream_features(subject, group, data.fitting, bench, keep)
    labels, last = data.fitting.labels.cpu(), len(data.shots)
    fitted: dict[str, list[Logistic]] = {}
    for each in group:
        features = torch.cat(kept[each.key])
        fitted[each.key] = [
            Logistic.fit(features, labels, data.fitted(setting), data.held_out, setting == last)
            for setting in range(last + 1)
        ]
    return fitted
