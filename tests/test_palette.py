"""Colours are checked by what eyes can tell apart, computed from the published models of colour vision."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from vitreous.specimen.palette import KIND_COLOURS, PAPERS, contrast, ink_on


def test_colours_differ_for_every_eye() -> None:
    """Machado et al. 2009, severity 1; distances in CIELAB."""
    eyes = {
        "normal": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    for eye, matrix in eyes.items():
        seen = {kind: lab(np.asarray(matrix) @ linear(colour)) for kind, colour in KIND_COLOURS.items()}
        for one, other in combinations(seen, 2):
            assert np.linalg.norm(seen[one] - seen[other]) >= 15, (eye, one, other)


def linear(colour: str) -> Any:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0.001, 1) / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_contrast_against_known_values() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)
    assert contrast("#FFFFFF", "#0000FF") == pytest.approx(8.59, abs=0.005)
    assert all(contrast(ink_on(kind), colour) >= 4.5 for kind, colour in KIND_COLOURS.items())
    assert all(contrast(paper, colour) >= 1.8 for _, paper in PAPERS.values() for colour in KIND_COLOURS.values())
