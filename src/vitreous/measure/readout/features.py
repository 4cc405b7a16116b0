"""Features of linear probes: a unit's class token, mean over positions, or single tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.measure.bench import Bench
from vitreous.measure.probe import Batch
from vitreous.measure.subject import Subject
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Feature, Sites


class ProbedFeature(NamedTuple):
    """A feature vector that a probe is fitted to."""

    unit: Unit
    token: str
    width: int

    @property
    def key(self) -> str:
        return f"{self.unit.name}: {self.token}"


def pool_tokens(feature: Feature, tokens: Sequence[str]) -> dict[str, Tensor]:
    """Return the feature vectors (b, c) of those tokens that the unit has."""
    pooled: dict[str, Tensor] = {}
    values, prefix = feature.tokens, len(feature.prefix)
    if "class token" in tokens and "class" in feature.prefix:
        pooled["class token"] = values[:, feature.prefix.index("class")]
    if feature.grid is not None:
        if "mean over positions" in tokens:
            pooled["mean over positions"] = values[:, prefix:].mean(1)
        if "first position" in tokens:
            pooled["first position"] = values[:, prefix]
    elif "mean over positions" in tokens and prefix == 0:
        pooled["mean over positions"] = values.mean(1)
    for token in tokens:
        if (at := position_number(token)) is not None:
            pooled[token] = values[:, prefix + at]
    return pooled


def position_token(number: int) -> str:
    """Return the name of a single position as a token, by its number in raster order."""
    return f"position {number}"


def position_number(token: str) -> int | None:
    """Return the number of a token that is a single position, or None."""
    word, _, number = token.partition(" ")
    return int(number) if word == "position" and number.isdecimal() else None


@torch.no_grad()
def stream_features(
    subject: Subject,
    group: Sequence[ProbedFeature],
    data: Dataset,
    bench: Bench,
    each: Callable[[Batch, ProbedFeature, Tensor], None],
) -> None:
    """Run all images, and call `each` with every batch and feature as soon as it is computed."""
    features_of_unit: dict[str, list[ProbedFeature]] = {}
    for probed in group:
        features_of_unit.setdefault(probed.unit.name, []).append(probed)
    for batch in bench.batches(data):

        def receive(unit: Unit, sites: Sites, batch: Batch = batch) -> None:
            assert sites.out is not None
            features = pool_tokens(
                sites.out, [probed.token for probed in features_of_unit[unit.name]]
            )
            for probed in features_of_unit[unit.name]:
                each(batch, probed, features[probed.token])

        images = subject.prepare(batch.images)
        subject.specimen.observe(images, ("out",), list(features_of_unit), each=receive)
