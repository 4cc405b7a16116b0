"""Colours are checked by what eyes can tell apart, computed from the published models of colour
vision."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from vitreous.palette import (
    KIND_COLOURS,
    MODEL_COLOURS,
    OPPOSITES,
    OUTCOME_COLOURS,
    PAPERS,
    RAMPS,
    Theme,
    contrast_ratio,
    ink_on,
)

EYES: dict[str, Any] = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Machado et al. 2009, severity 1."""


@pytest.mark.parametrize("eye", EYES)
def test_colours_differ_for_every_eye(eye: str) -> None:
    """Distances in CIELAB."""
    outcomes = [(list(colours.values()), 20) for colours in OUTCOME_COLOURS.values()]
    for colours, least in ((list(KIND_COLOURS.values()), 15), (MODEL_COLOURS, 25), *outcomes):
        seen = {colour: lab(np.asarray(EYES[eye]) @ linear(colour)) for colour in colours}
        for one, other in combinations(seen, 2):
            assert np.linalg.norm(seen[one] - seen[other]) >= least, (one, other)


@pytest.mark.parametrize("eye", EYES)
def test_ramps_run_from_the_paper_to_the_ink(eye: str) -> None:
    """Lightness (L* of CIELAB) never turns back on a ramp, and turns once, in the middle, on a
    diverging one."""
    signs: dict[Theme, int] = {"light": -1, "dark": 1}
    for theme, sign in signs.items():
        ramp, opposites = (
            sign * np.diff([lab(np.asarray(EYES[eye]) @ linear(colour))[0] for colour in colours])
            for colours in (RAMPS[theme], OPPOSITES[theme])
        )
        assert (ramp > 4).all()
        assert (opposites[:3] < -4).all()
        assert (opposites[3:] > 4).all()


def linear(colour: str) -> Any:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.072175],
            [0.0193339, 0.119192, 0.9503041],
        ]
    )
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0.001, 1) / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_contrast_against_known_values() -> None:
    assert contrast_ratio("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast_ratio("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)
    assert contrast_ratio("#FFFFFF", "#0000FF") == pytest.approx(8.59, abs=0.005)
    assert all(contrast_ratio(ink_on(kind), colour) >= 4.5 for kind, colour in KIND_COLOURS.items())
    assert all(
        contrast_ratio(paper, colour) >= 1.8
        for _, paper in PAPERS.values()
        for colour in KIND_COLOURS.values()
    )
    assert all(
        contrast_ratio(paper, colour) >= 2.5
        for _, paper in PAPERS.values()
        for colour in MODEL_COLOURS
    )
    for theme, (_, paper) in PAPERS.items():
        assert all(
            contrast_ratio(paper, colour) >= 4.5 for colour in OUTCOME_COLOURS[theme].values()
        ), "they are text"
