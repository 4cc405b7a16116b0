"""Small things to look at, and a question whose answer is known: who was seen, how often, and how
bright it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from specimen.toys import Block, Convolutional, Residual, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.measure.per_image import PerImage
from vitreous.measure.probe import Batch, Probe, Sums, interval, sum_key
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View, estimate
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites


def images(count: int = 90, side: int = 16, classes: int = 5) -> Dataset:
    """Noise; without labels where there are no classes."""
    pixels = torch.randint(
        0, 256, (count, 3, side, side), generator=torch.Generator().manual_seed(7)
    )
    labels = torch.arange(count) % classes if classes else torch.full((count,), -1)
    return Dataset(
        pixels.to(torch.uint8), labels, tuple(f"class {c}" for c in range(classes)), "noise", "test"
    )


def vit() -> nn.Module:
    """In double precision, in which the size of a batch makes no difference that one could see."""
    torch.manual_seed(1)
    model = settled(Transformer(Block(), Block(), cls=True)).double()
    setattr(model, "image_size", 16)  # noqa: B010 - as models say it
    return model


def cnn() -> nn.Module:
    torch.manual_seed(2)
    model = settled(Convolutional(Residual(), Residual())).double()
    setattr(model, "image_size", 16)  # noqa: B010
    return model


@dataclass
class Roll(Probe):
    """Calls the roll: how often each image was seen, at every unit, at the output, and when a shard
    was closed."""

    name = "roll"
    sites = ("after",)
    note: str = ""
    events: list[str] = field(default_factory=list, init=False)

    def start_shard(self) -> None:
        self.events.append("start")

    def _seen(self, batch: Batch) -> Tensor:
        seen = torch.zeros(len(self.setting.data), dtype=torch.float64)
        seen[batch.rows] += 1
        return seen

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        return {sum_key(subject, unit): self._seen(batch)}

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        self.events.append(f"{subject.name} {len(batch)} {'whole' if batch.full_shard else 'part'}")
        brightness = batch.images.double().mean((1, 2, 3))
        return {
            sum_key(subject, what="end"): self._seen(batch),
            sum_key(subject, what="bright"): batch.total(brightness),
        }

    def end_shard(self, shard: Batch) -> Sums:
        return {"close": self._seen(shard), "count": batch_count(shard)}

    def answer(self, sums: Mapping[str, Tensor], asked: Sequence[Subject]) -> Result:
        rows = []
        counts = sums["count"]
        for subject in asked:
            every = [
                sums[sum_key(subject, unit)]
                for unit in subject.specimen.units
                if sum_key(subject, unit) in sums
            ]
            every += [sums[sum_key(subject, what="end")], sums["close"]]
            found = interval(sums[sum_key(subject, what="bright")] / counts, int(counts[0]))
            ends = dict(zip(("value", "low", "high"), map(float, found), strict=True))
            least, most = torch.stack(every).min(0).values, torch.stack(every).max(0).values
            for number in range(len(least)):
                seen = {"image": number, "least": float(least[number]), "most": float(most[number])}
                rows.append({"model": subject.name, **seen, **ends, "n": int(counts[0])})
        columns = (
            Column("model", "category", "The model."),
            Column("image", "order", "Number of the image."),
            Column("least", "quantity", "How often it was seen, at least."),
            Column("most", "quantity", "How often it was seen, at most."),
            *estimate("Brightness."),
        )
        return Result(self.name, pd.DataFrame(rows), columns)


@dataclass
class Spread(PerImage):
    """A mean over images: how far apart the numbers of a unit are."""

    name = "spread"
    ids = ("A0.00",)
    sites = ("after",)
    value = estimate("Standard deviation.")
    views = (
        View("line", x="depth", y="value", colour="model", low="low", high="high", bands=True),
    )

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.after is not None
        return sites.after.raw.double().flatten(1).std(1)


def batch_count(batch: Batch) -> Tensor:
    return batch.total(torch.ones(len(batch), dtype=torch.float64))


def seen_once(result: Result, images: int | None = None) -> bool:
    """Whether every one of the first so many images was seen exactly once everywhere, and no
    other."""
    table = result.table
    expected = (table["image"] < (images or len(table))).astype(float)
    return bool((table["least"] == expected).all() and (table["most"] == expected).all())
