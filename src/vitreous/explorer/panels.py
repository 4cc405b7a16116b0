"""The panels in the lower half of the page: attention, rollout, or the stream of a unit.

They are computed from a recording, without running the model.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.explorer.state import Place
from vitreous.measure.heads import why_hidden
from vitreous.measure.photo_map import choose_query, head_shares
from vitreous.measure.probes.fourier import frequency, half_diagonal, log_amplitude
from vitreous.measure.probes.rollout import extend_rollout, layer, unrollable
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.layout import Centred
from vitreous.specimen.observe import AttentionMap, Feature
from vitreous.specimen.rerun import Recording

MAX_HEADS = 32
"""Maximum number of heads that are shown separately; of more, only the mean is shown."""
RANGE = (0.02, 0.98)
"""Quantiles of a principal component that map to the darkest and the lightest colour."""


@dataclass(frozen=True)
class UnitMap:
    """The attention of one query to all keys, by head."""

    unit: str
    shares: NDArray[np.float32]
    """(heads, prefix + rows · columns)."""
    keys: Grid
    queries: Grid
    tokens: tuple[str, ...]
    """Kinds of the prefix tokens."""
    query: str | Grid
    """The query: row and column of a patch, or "class" or "mean"."""
    says: str
    """The query in words."""
    instead: bool = False
    """Whether the unit lacks the requested query, so that another one is shown."""
    averaged: bool = False
    """Whether this is the mean, because there are more than `MAX_HEADS` heads."""

    def header(self) -> dict[str, Any]:
        """The description of the map for the page, without the shares."""
        known: dict[str, Any] = {
            "unit": self.unit, "heads": len(self.shares), "keys": list(self.keys),
            "queries": list(self.queries), "prefix": len(self.tokens),
            "tokens": list(self.tokens), "from": self.says,
            "query": self.query if isinstance(self.query, str) else list(self.query),
            "scale": float(self.shares.max(initial=0.0)),
        }  # fmt: skip
        flags = {"instead": self.instead, "averaged": self.averaged}
        return known | {name: True for name, is_set in flags.items() if is_set}


def attention_maps(recording: Recording, query: Place | None) -> Iterator[UnitMap]:
    """One map for every unit whose attention can be shown and is finite, in order."""
    for unit, attention in _maps_to_show(recording):
        tokens, cell, says, instead = _choose_query(attention, unit, query)
        shares = head_shares(attention, tokens)
        if not np.isfinite(shares).all():
            continue
        averaged = len(shares) > MAX_HEADS
        if averaged:
            shares = shares.mean(0, keepdims=True)
        yield UnitMap(
            unit.name, shares.astype(np.float32), attention.key_grid, attention.query_grid,
            _prefix_names(attention), cell, says, instead, averaged,
        )  # fmt: skip


def rollout_maps(recording: Recording, query: Place | None) -> tuple[list[UnitMap], str]:
    """Rollout up to each attention unit, and a sentence why it ends before the last one, if so."""
    units = recording.runner.specimen.units
    attending = [unit for unit in units if unit.kind == "attention"]
    if not attending:
        return [], "It has no attention."
    maps: list[UnitMap] = []
    product: Tensor | None = None
    prefix = 0
    for unit in attending:
        if why := unrollable(units[: unit.index + 1]):
            return maps, why
        if unit.name not in recording.attention:
            return maps, f"Attention of {unit.name} is switched off, so nothing passes through it."
        attention = _probabilities(recording, unit)
        if attention is None:
            return maps, f"Weights of {unit.name} can be negative now, so they are no shares."
        product = extend_rollout(layer(attention, "mean", identity=unit.skip), product, prefix)
        prefix = attention.prefix
        tokens, cell, says, instead = _choose_query(attention, unit, query)
        shares = product[0, tokens].mean(0, keepdim=True).float().cpu().numpy()
        if not np.isfinite(shares).all():
            return maps, f"Attention of {unit.name} is not finite."
        grid = attention.query_grid
        names = _prefix_names(attention)
        maps.append(UnitMap(unit.name, shares, grid, grid, names, cell, says, instead))
    return maps, ""


def pack_maps(
    models: Sequence[Sequence[UnitMap]],
    before: Sequence[Sequence[UnitMap]] = (),
    **more: Any,
) -> bytes:
    """Encode maps: length of the header (uint32), the header (JSON), all shares (float32).

    Each row of a map begins with the prefix tokens. The maps of `models` come before those of
    `before`. Everything is little-endian.
    """
    header = {"models": [[each.header() for each in maps] for maps in models], **more}
    if before:
        header["before"] = [[each.header() for each in maps] for maps in before]
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)  # aligned, so that a browser can view the floats in place
    arrays = [each.shares for maps in (*models, *before) for each in maps]
    numbers = [np.ascontiguousarray(each, "<f4").tobytes() for each in arrays]
    return b"".join([struct.pack("<I", len(text)), text, *numbers])


def _maps_to_show(recording: Recording) -> Iterable[tuple[Unit, AttentionMap]]:
    for unit in recording.runner.specimen.units:
        attention = _probabilities(recording, unit)
        if attention is not None and why_hidden(unit) is None:
            yield unit, attention


def _probabilities(recording: Recording, unit: Unit) -> AttentionMap | None:
    """Attention of a unit, with rows that sum to one; None if the unit has none.

    After an edit, the mean of heads that are mixed after the softmax can have negative weights;
    then it has no probabilities either.
    """
    attention = recording.attention.get(unit.name)
    try:
        return None if attention is None else attention.probabilities
    except VitreousError:
        return None


def _prefix_names(attention: AttentionMap) -> tuple[str, ...]:
    known = attention.places.tokens
    return known if len(known) == attention.prefix else ("prefix",) * attention.prefix


def _choose_query(
    attention: AttentionMap, unit: Unit, query: Place | None
) -> tuple[list[int], str | Grid, str, bool]:
    """The query's tokens, its patch or name, its description, and whether it is a substitute.

    A substitute is used if the unit lacks the requested query.
    """
    if query is None:
        tokens, says = choose_query(attention, unit, None)
        named = "class" in unit.prefix or unit.reach == "class"
        return tokens, "class" if named else "mean", says, not named
    cell = place_on_grid(query, attention.query_grid)
    try:
        tokens, says = choose_query(attention, unit, cell)
        return tokens, cell, says, False
    except VitreousError:  # in class attention, patches are no queries
        tokens, says = choose_query(attention, unit, None)
        return tokens, "class", says, True


def place_on_grid(place: Place, grid: Grid) -> Grid:
    """Row and column of the cell that contains a point of the image."""
    row, column = (
        min(int(share * side), side - 1) for share, side in zip(place, grid, strict=True)
    )
    return row, column


@dataclass(frozen=True)
class Basis:
    """Three principal components of a feature map, with the range of values that colours show."""

    mean: Tensor
    """(channels,)"""
    components: Tensor
    """(channels, 3)"""
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, feature: Feature) -> Basis:
        """The components of one image; their signs make the largest weight of each positive."""
        tokens = _tokens(feature)
        mean = tokens.mean(0)
        centred = tokens - mean
        _, _, rows = torch.linalg.svd(centred, full_matrices=False)
        components = rows[:3].T
        largest = components.gather(0, components.abs().argmax(0, keepdim=True))
        components = components * torch.where(largest < 0, -1.0, 1.0)
        values = centred @ components
        edges = torch.tensor(RANGE, dtype=values.dtype)
        low, high = values.quantile(edges, dim=0)
        return cls(mean, components, low, high)

    def colours(self, feature: Feature) -> NDArray[np.uint8]:
        """(rows · columns, 3): red, green and blue of every position."""
        values = (_tokens(feature) - self.mean) @ self.components
        spread = (self.high - self.low).clamp_min(torch.finfo(values.dtype).tiny)
        levels = ((values - self.low) / spread).clamp(0, 1).nan_to_num()
        pixels: NDArray[np.uint8] = (levels * 255).round().to(torch.uint8).numpy()
        padded = np.zeros((len(pixels), 3), np.uint8)
        padded[:, : pixels.shape[1]] = pixels
        return padded


def stream_panel(feature: Feature, basis: Basis) -> dict[str, Any]:
    """Norm, spectrum and colours of a unit's output."""
    grid = feature.grid
    assert grid is not None
    norms = _tokens(feature).norm(dim=1)
    bins = half_diagonal(grid, nyquist=True)
    amplitude = log_amplitude(Centred.of(feature.map), bins)[0].double()
    return {
        "norm": {"grid": list(grid), "values": [_finite(each) for each in norms.tolist()]},
        "spectrum": {
            "frequency": [frequency(each, grid) for each in bins],
            "amplitude": [_finite(each) for each in (amplitude - amplitude[0]).tolist()],
        },
        "colours": {
            "grid": list(grid),
            "rgb": b64encode(basis.colours(feature).tobytes()).decode(),
        },
    }


def _tokens(feature: Feature) -> Tensor:
    """(rows · columns, channels) of the first image, in double precision."""
    return feature.map[0].flatten(1).T.double().cpu()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
