"""Loss landscapes as surfaces in three dimensions: SVG in the page, in the colours of its theme.

The view is from above one corner, without perspective. Quadrilaterals are painted from the back to
the front, each with one of `SHADES` classes `height-0`, `height-1`, …, which the style sheet
colours by the ramp of the theme.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from vitreous.palette import RAMPS, Theme
from vitreous.results import Result
from vitreous.results.words import escape, format_number

SHADES = 24
WIDTH, HEIGHT = 360, 290
ACROSS, DOWN, UP = 150.0, 62.0, 130.0
"""Pixels from the centre of the plane to its side corners, its near corner, and the top."""
READ = (
    "The height of the surface is the loss, over the plane of the map above it, cut off at the "
    "height where the map's colours end. A wide bowl is a flat minimum along these two directions, "
    "a narrow one is sharp."
)


def surface_figure(result: Result) -> str:
    """Return the surfaces of all models side by side as HTML; "" for landscapes that are lines."""
    top = (result.views[0].limits or (0.0, 0.0))[1] if result.views else 0.0
    grids = loss_grids(result) if top > 0 else {}
    drawn = [
        f"<div><h5>{escape(model)}</h5>{surface_svg(grid, top, model)}</div>"
        for model, grid in grids.items()
    ]
    if not drawn:
        return ""
    return "\n".join([
        '<figure data-wide><figcaption><h4>The same as a surface</h4></figcaption>'
        '<div class="surfaces">',
        *drawn,
        f'</div><p class="read"><b>How to read it.</b> {READ}</p></figure>',
    ])  # fmt: skip


def loss_grids(result: Result) -> dict[str, pd.DataFrame]:
    """Return the losses of each model, with y as rows and x as columns."""
    points = result.table[result.table["point"] & result.table["y"].notna()]
    return {
        str(model): rows.pivot(index="y", columns="x", values="value")
        for model, rows in points.groupby("model", sort=False, observed=True)
    }


def surface_svg(grid: pd.DataFrame, top: float, model: str) -> str:
    """Return one surface as SVG, of heights between 0 and `top`."""
    heights = np.minimum(grid.to_numpy(dtype=np.float64), top)
    y, x = np.linspace(-1, 1, len(grid)), np.linspace(-1, 1, len(grid.columns))
    across = WIDTH / 2 + ACROSS * (x[None, :] - y[:, None]) / 2
    down = HEIGHT - 90 + DOWN * (x[None, :] + y[:, None]) / 2
    parts = [
        *_frame(grid, top),
        *_patches(across, down - UP * np.maximum(heights, 0) / top, heights / top),
    ]
    lowest = format_number(np.nanmin(heights))
    words = f"Surface of the loss of {escape(model)}, lowest {lowest} in the plane."
    return (
        f'<svg class="surface" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" fill="currentColor" '
        'font-size="11">'
        f"<title>{words}</title>{''.join(parts)}</svg>"
    )


def _patches(across: np.ndarray, down: np.ndarray, share: np.ndarray) -> Iterator[str]:
    """Yield quadrilaterals from the back to the front; none where a corner is not finite."""
    rows, columns = share.shape
    for i, j in sorted(np.ndindex(rows - 1, columns - 1), key=sum):
        corners = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
        mean = np.mean([share[corner] for corner in corners])
        if np.isfinite(mean):
            shade = int(np.clip(mean * SHADES, 0, SHADES - 1))
            points = " ".join(f"{across[corner]:.1f},{down[corner]:.1f}" for corner in corners)
            yield f'<polygon class="height-{shade}" points="{points}"/>'


def _frame(grid: pd.DataFrame, top: float) -> Iterator[str]:
    """Yield the plane, the axis of the loss at its left corner, and the labels."""
    middle, floor = WIDTH / 2, HEIGHT - 90
    left, right = middle - ACROSS, middle + ACROSS
    plane = f"{left},{floor} {middle},{floor - DOWN} {right},{floor} {middle},{floor + DOWN}"
    line = 'fill="none" stroke="currentColor" stroke-opacity="0.35"'
    yield f'<polygon {line} points="{plane}"/><path {line} d="M{left} {floor}V{floor - UP}"/>'
    for share in (0.0, 0.5, 1.0):
        at = floor - UP * share
        yield f'<path {line} d="M{left - 4} {at}h4"/>'
        label = format_number(share * top, 2)
        yield f'<text x="{left - 6}" y="{at + 4}" text-anchor="end">{label}</text>'
    yield f'<text x="{left}" y="{floor - UP - 10}" text-anchor="middle">NLL</text>'
    for side, name, ends in ((-1, "second", grid.index), (1, "first", grid.columns)):
        anchor = "end" if side < 0 else "start"
        x, y = middle + side * (ACROSS / 2 + 6), floor + DOWN / 2 + 16
        reach = f"{format_number(float(ends[0]), 2)} to {format_number(float(ends[-1]), 2)}"
        yield f'<text x="{x}" y="{y}" text-anchor="{anchor}">{name} direction</text>'
        below = f'x="{x}" y="{y + 14}" text-anchor="{anchor}"'
        yield f'<text {below} fill-opacity="0.68">{reach}</text>'


def height_colours(theme: Theme) -> dict[str, str]:
    """Return the colours of the classes in a theme, as variables of the style sheet."""
    known = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in RAMPS[theme]])
    at = np.linspace(0, len(known) - 1, SHADES)
    mixed = (
        np.stack([np.interp(at, range(len(known)), channel) for channel in known.T], 1)
        .round()
        .astype(int)
    )
    return {f"--height-{i}": f"#{r:02X}{g:02X}{b:02X}" for i, (r, g, b) in enumerate(mixed)}


def height_rules() -> str:
    """Return the CSS of the classes; edges in the text colour separate patches of equal height."""
    rules = "".join(
        f".height-{i}{{fill:var(--height-{i});stroke:var(--ink);stroke-opacity:.16;stroke-width:.5}}"
        for i in range(SHADES)
    )
    return f"{rules}\n"
