"""Colours are checked by what eyes can tell apart, computed from the published models of colour
vision."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from vitreous.palette import (
    DASHES,
    FIRST_COLOURS,
    KIND_COLOURS,
    LINE_RAMPS,
    MEASURE_COLOURS,
    MODEL_COLOURS,
    OPPOSITES,
    OUTCOME_COLOURS,
    PAPERS,
    RAMPS,
    Theme,
    contrast_ratio,
    ink_on,
    model_colours,
    model_styles,
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
    palettes: list[tuple[Any, int]] = [(list(KIND_COLOURS.values()), 15)]
    palettes += [(list(colours.values()), 20) for colours in OUTCOME_COLOURS.values()]
    palettes += [(colours[:FIRST_COLOURS], 25) for colours in MODEL_COLOURS.values()]
    palettes += [(colours, 18) for colours in MODEL_COLOURS.values()]
    palettes += [(colours, 25) for colours in MEASURE_COLOURS.values()]
    for colours, least in palettes:
        seen = {colour: lab(np.asarray(EYES[eye]) @ linear(colour)) for colour in colours}
        for one, other in combinations(seen, 2):
            assert np.linalg.norm(seen[one] - seen[other]) >= least, (one, other)


@pytest.mark.parametrize("eye", EYES)
def test_ramps_run_from_the_paper_to_the_ink(eye: str) -> None:
    """Lightness (L* of CIELAB) never turns back on a ramp, and turns once, in the middle, on a
    diverging one."""
    signs: dict[Theme, int] = {"light": -1, "dark": 1}
    for theme, sign in signs.items():
        ramp, lines, opposites = (
            sign * np.diff([lab(np.asarray(EYES[eye]) @ linear(colour))[0] for colour in colours])
            for colours in (RAMPS[theme], LINE_RAMPS[theme], OPPOSITES[theme])
        )
        assert (ramp > 4).all()
        assert (lines > 4).all()
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
    for theme, (_, paper) in PAPERS.items():
        assert all(
            contrast_ratio(paper, colour) >= 4.5 for colour in OUTCOME_COLOURS[theme].values()
        ), "they are text"


@pytest.mark.parametrize("theme", PAPERS)
def test_every_mark_stands_out_from_the_paper(theme: Theme) -> None:
    colours = [*KIND_COLOURS.values(), *MODEL_COLOURS[theme], *MEASURE_COLOURS[theme]]
    colours += LINE_RAMPS[theme]
    low = {colour: contrast_ratio(PAPERS[theme][1], colour) for colour in colours}
    assert min(low.values()) >= 3, min(low, key=lambda colour: low[colour])


def test_measures_are_not_taken_for_models() -> None:
    for theme in MODEL_COLOURS:
        models, measures = (
            [lab(linear(colour)) for colour in palette[theme]]
            for palette in (MODEL_COLOURS, MEASURE_COLOURS)
        )
        assert min(np.linalg.norm(one - other) for one in models for other in measures) >= 13


def test_a_model_keeps_its_colour_in_every_report() -> None:
    trained = ["alternet", "convit", "mixer", "resnet", "swin", "vit", "vit_gap"]
    names = [f"nano:{name}" for name in trained]
    alone = {name: model_colours([name])[name] for name in names}
    assert model_colours(names) == model_colours(names[::-1]) == alone, "no two ask for the same"
    places = {name: MODEL_COLOURS["light"].index(colour) for name, colour in alone.items()}
    dark = model_colours(names, "dark")
    assert dark == {name: MODEL_COLOURS["dark"][place] for name, place in places.items()}


def test_the_earlier_of_two_models_has_its_colour() -> None:
    names = [f"model {i}" for i in range(200)]
    own = {name: model_colours([name])[name] for name in names}
    assert len(set(own.values())) == 8
    counts = [list(own.values()).count(colour) for colour in MODEL_COLOURS["light"][:FIRST_COLOURS]]
    assert min(counts) >= 10, "each is the colour of about 25 of 200 names"
    first = names[0]
    rivals = [name for name in names[1:] if own[name] == own[first]]
    two = model_colours([first, rivals[0]])
    assert two[first] == own[first] != two[rivals[0]]
    assert model_colours([rivals[0], first])[rivals[0]] == own[first]
    assert model_colours([first, first, rivals[0]]) == two


@pytest.mark.parametrize("count", [9, 12])
@pytest.mark.parametrize("theme", PAPERS)
def test_up_to_twelve_models_have_different_colours(count: int, theme: Theme) -> None:
    """Whatever their names are, and without a change to those of the first eight."""
    for start in range(60):
        names = [f"model {start + i}" for i in range(count)]
        colours = model_colours(names, theme)
        assert len(set(colours.values())) == count
        first = names[:FIRST_COLOURS]
        assert {name: colours[name] for name in first} == model_colours(first, theme)
        assert set(model_colours(first, theme).values()) == set(
            MODEL_COLOURS[theme][:FIRST_COLOURS]
        )


def test_the_ninth_model_has_its_own_colour_among_the_others() -> None:
    eight = [f"model {i}" for i in range(8)]
    names = [f"ninth {i}" for i in range(80)]
    ninth = {name: model_colours([*eight, name])[name] for name in names}
    assert ninth == {name: model_colours([*eight[::-1], name])[name] for name in names}
    assert set(ninth.values()) == set(MODEL_COLOURS["light"][FIRST_COLOURS:])


def test_models_beyond_eight_differ_in_dashes_and_shapes() -> None:
    styles = model_styles(f"model {i}" for i in range(48))
    assert len(set(styles.values())) == 48
    forms = [DASHES.index(style.dash) for style in styles.values()]
    assert forms[:8] == [0] * 8
    assert forms[8:20] == [1] * 12
    assert len({(style.dash, style.shape) for style in styles.values()}) == 4
    assert len(model_styles(f"model {i}" for i in range(60))) == 60
    assert model_colours([]) == {}
