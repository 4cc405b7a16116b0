"""What single tokens know: of their place, and of the class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, near, noted
from vitreous.claims.evidence import Look, Rows, Unreadable, reads
from vitreous.claims.measure import Array, Measure, beside, draw
from vitreous.claims.raghu_2021.book import claim
from vitreous.claims.raghu_2021.probes import probe
from vitreous.claims.readings import accuracy, of_model
from vitreous.results import mean_of_few

RATES = (None, 0.4)
"""Learning rates among which the better one counts, as multiples of the recipe's."""


def _index(rows: Rows, measure: str, model: str) -> Array:
    """Of the map of final tokens by patches: `hit_rate` of interior tokens, or `contrast`."""
    stored = rows.result.about.get("indices", {}).get(model, {}).get(measure, {})
    return draw(f"{model}/localisation/{measure}", *of_model(rows, measure, model, stored))


def _cells(rows: Rows, model: str) -> int | None:
    """Number of cells of the grid that a model was compared on."""
    table = rows.result.table
    if "chance" in table.columns:
        chances = table.loc[table["model"] == model, "chance"]
        return None if chances.empty else round(1 / chances.iloc[0])
    grid = rows.result.about.get("indices", {}).get(model, {}).get("grid")
    return None if grid is None else grid[0] * grid[1]  # a result of version 0.1


@reads("localisation")
def contrast(rows: Rows) -> Array:
    """Similarity of tokens to the patch at their place minus that to the others (A4.22)."""
    return _index(rows, "contrast", rows.exhibit.name)


@reads("localisation")
def localised(rows: Rows, measure: str, times: float = 1.0) -> Array:
    """An index of a model minus so many times that of the one beside it. Both are to be seen on the same grid, the
    coarser of the two (its option `grid`), because chance is another on another."""
    names = rows.exhibit.name, rows.exhibit.other
    cells = [_cells(rows, name) for name in names]
    if cells[0] != cells[1]:
        raise Unreadable(
            f"localisation of {names[0]!r} and {names[1]!r} is on grids of {cells[0]} and "
            f"{cells[1]} cells"
        )
    one, other = (_index(rows, measure, name) for name in names)
    return one - times * other


@reads("localisation")
def edge_to_edge(rows: Rows) -> Array:
    """Similarity of tokens at the edge to other patches at the edge minus that to inner ones; its interval is over
    tokens."""
    maps = rows.result.arrays.get(rows.exhibit.name)
    if maps is None or min(maps.shape) < 3:
        raise Unreadable(f"localisation of {rows.exhibit.name!r} has no map with an inside")
    height, width = maps.shape[:2]
    inside = np.zeros((height, width), dtype=bool)
    inside[1:-1, 1:-1] = True
    tokens = np.asarray(maps, dtype=np.float64).reshape(height * width, height * width)
    np.fill_diagonal(tokens, np.nan)
    edge = tokens[~inside.ravel()]
    each = np.nanmean(edge[:, ~inside.ravel()], 1) - np.nanmean(edge[:, inside.ravel()], 1)
    return draw(f"{rows.exhibit.name}/edge", *mean_of_few(each))


@claim(
    "SLC-19",
    "Tokens of the last layer of a ViT still resemble the part of the image at their place; those of a ResNet do not.",
    place="Fig. 9",
    reported="maps of token and patch similarity with a bright spot for ViT-B/32 and L/16, none for ResNet-50",
    study="zoo",
    task="SYN-B",
    large=True,
)
def tokens_keep_their_place(look: Look) -> Iterator[Part]:
    pair = look("vit", beside="resnet")
    hits, stand_out = localised(pair, "hit_rate", times=3), localised(pair, "contrast")
    yield more(
        "inner tokens most like their own patch, share of ViT minus three times that of ResNet",
        hits,
    )
    yield at_least(
        "similarity to the own patch minus the others, ViT minus ResNet", stand_out, 0.05
    )


@claim(
    "SLC-20",
    "Tokens at the edge of the image resemble other patches at the edge more than inner ones.",
    place="Fig. 9",
    reported="visible in the maps of ViT",
    study="zoo",
)
def edges_resemble_edges(look: Look) -> Iterator[Part]:
    yield more(
        "CKA of edge tokens with other edge patches minus with inner ones",
        edge_to_edge(look("vit")),
    )


@claim(
    "SLC-21",
    "Tokens of a ViT that pools all of them for its answer do not keep to their places.",
    place="Fig. 10",
    reported="maps of ViT with pooling have no bright spot",
    study="zoo",
    task="SYN-B",
)
def pooling_loses_places(look: Look) -> Iterator[Part]:
    pooled, with_class = contrast(look("vit", pool="gap")), contrast(look("vit"))
    yield less(
        "contrast of own patch and others, pooled minus 0.6 of class token's",
        pooled - 0.6 * with_class,
    )
    yield noted("contrast of own patch and others with a class token", with_class)


@claim(
    "SLC-22",
    "A single spatial token of the last layer tells the class well if the model pools tokens, and poorly if it has a "
    "class token.",
    place="Fig. 11, D.4",
    reported="accuracy of single tokens 6 to 10 % with a class token, 57 to 58 % pooled, 44 to 52 % of ResNet-50",
    study="zoo",
    task="SYN-C",
)
def single_tokens_know_if_pooled(look: Look) -> Iterator[Part]:
    models = look("vit", pool="gap"), look("vit"), look("resnet")
    pooled, with_class, resnet = (probe(each, "each position alone") for each in models)
    yield at_least(
        "accuracy of single tokens at the end, pooled over class token",
        pooled / with_class,
        2,
        paper=7,
    )
    yield noted("the same, ResNet over ViT with a class token", resnet / with_class, paper=6)


@claim(
    "SLC-23",
    "In the last layers of a ViT the class token alone tells the class best; pooling the other tokens stops to help.",
    place="Fig. 11",
    reported="accuracy of pooled tokens stops rising, that of the class token goes on",
    study="zoo",
    task="SYN-C",
)
def class_token_is_essential(look: Look) -> Iterator[Part]:
    """About zero in the middle is less than what is asked for at the end."""

    def ahead(at: str) -> Measure:
        return probe(look("vit"), "class token", at) - probe(look("vit"), "mean over positions", at)

    yield at_least(
        "accuracy of class token minus pooled tokens at the end, in points", ahead("last"), 3
    )
    yield from near("the same in the middle", ahead("middle"), 3)


@claim(
    "SLC-24",
    "In the last layer of a ViT that pools tokens one of them tells the class as well as all, in lower layers far "
    "less well.",
    place="Fig. 11",
    reported="the first token alone is as good as all tokens pooled at the top, and poor early",
    study="zoo",
    task="SYN-C",
)
def one_token_is_all(look: Look) -> Iterator[Part]:
    """Early is the second block, and in the embedded world, where there may be no more than two, the first."""

    def share(at: str | int) -> Measure:
        pooled = look("vit", pool="gap")
        return probe(pooled, "first position", at) / probe(pooled, "mean over positions", at)

    early = 1 if look.sanity else 2
    yield at_least(
        "accuracy of the first token over that of all pooled, at the end", share("last"), 0.9
    )
    yield at_most(f"the same after block {early}", share(early), 0.5, versus=1)


@claim(
    "SLC-25",
    "A ViT with a class token and one that pools tokens are equally accurate.",
    place="App. F",
    reported="similar accuracy once the learning rate is adapted",
    study="zoo",
)
def either_way_of_reading_out(look: Look) -> Iterator[Part]:
    """In conflict with HDV-13 and its gain of 2.7 points, see X-02."""
    with_class, pooled = (
        beside([accuracy(look("vit", pool=pool, rate=rate)) for rate in RATES]).most()
        for pool in (None, "gap")
    )
    yield from near(
        "accuracy of pooling minus class token, each at its better rate, in points",
        pooled - with_class,
        1.5,
    )
