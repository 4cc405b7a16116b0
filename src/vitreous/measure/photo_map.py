"""The map of one unit for one image: attention, attention rollout, or feature norm.

For a unit with attention, the map is the share of attention that every patch gets from a query: the
class token, one patch, or all patches on average. Windows are put back in place; keys on a coarser
grid give a map on that grid. For other units, as in a ConvNet, the map is the norm of the features
at every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.heads import why_hidden
from vitreous.measure.pictures import main_queries
from vitreous.measure.probes.rollout import extend_rollout, layer, unrollable
from vitreous.measure.subject import Subject
from vitreous.results.words import join_words
from vitreous.specimen.anatomy import Anatomy, Grid, Unit
from vitreous.specimen.observe import AttentionMap, Sites

Head = int | Literal["mean"]
Query = str | Sequence[int] | None
"""The query: "class" or another prefix token, (row, column) of a patch, "mean" for the mean over
all patches, or None for the class token if there is one, else the mean."""


@dataclass(frozen=True)
class PhotoMap:
    """Values on the grid of a unit, and what they are.

    Examples
    --------
    >>> import vitreous
    >>> photo = vitreous.data.load("world:shapes", split="test", size=1).images[0]
    >>> shown = vitreous.show("nano:resnet", photo)
    >>> shown.map.measure, shown.map.values.shape
    ('feature norm', (8, 8))
    """

    values: NDArray[np.float64]
    """(rows, columns): the share of attention that each patch gets, or the norm of its features."""
    measure: Literal["attention", "rollout", "feature norm"]
    unit: str
    says: str
    """Description of the map: unit, heads and query."""
    elsewhere: float = 0.0
    """Share of attention on prefix tokens, such as the class token itself."""
    query_cell: Grid | None = None
    """Row and column of the query on `query_grid`, if it is one patch."""
    query_grid: Grid | None = None


@dataclass(frozen=True)
class MapChoice:
    """Options of `photo_map` as the user gave them."""

    unit: str | None = None
    head: Head = "mean"
    query: Query = None
    rollout: bool = False

    def resolve(self, anatomy: Anatomy) -> Unit | None:
        """The chosen unit, else the last one with attention, else the last one with a grid."""
        if isinstance(self.unit, str):
            return anatomy[self.unit]
        if self.unit is not None:
            raise VitreousError(
                f"unit={self.unit!r} was asked for; units go by their names, such as "
                f"{anatomy.units[-1].name!r}."
            )
        attending = [unit for unit in anatomy if why_hidden(unit) is None]
        if attending:
            return attending[-1]
        mapped = [unit for unit in anatomy if unit.grid is not None]
        return mapped[-1] if mapped else None

    @property
    def attention_options(self) -> list[str]:
        """The options set that apply only to attention, as Python arguments."""
        options = [f"head={self.head}"] if self.head != "mean" else []
        options += ["query=" + _in_words(self.query)] if self.query is not None else []
        return options + (["rollout=True"] if self.rollout else [])


def photo_map(subject: Subject, images: Tensor, choice: MapChoice) -> tuple[PhotoMap | None, Any]:
    """The map of one image (1, c, h, w) and the model's output, from one forward pass."""
    specimen = subject.specimen
    unit = choice.resolve(specimen.anatomy)
    hidden = "" if unit is None else why_hidden(unit)
    if hidden is not None and choice.attention_options:
        raise VitreousError(_without_attention(subject, unit, hidden, choice.attention_options))
    if unit is None:
        return None, specimen(images)
    if hidden is not None:
        return _feature_norm(subject, images, unit)
    if choice.rollout:
        return _rollout(subject, images, unit, choice)
    observed = specimen.observe(images, ("attention",), [unit.name])
    attention = observed[unit.name].attention
    assert attention is not None
    return _attention(attention.probabilities, unit, choice), observed.output


def _without_attention(
    subject: Subject, unit: Unit | None, why: str, options: Sequence[str]
) -> str:
    """The error message for options of attention when there is no attention to show."""
    units = subject.specimen.units
    attending = [u.name for u in units if why_hidden(u) is None]
    leave = f"leave out {' and '.join(options)}"
    if not attending or unit is None:
        hidden = [u for u in units if u.kind == "attention"]
        reason = f" {why_hidden(hidden[-1])}" if hidden else ""
        return f"{subject.name} has no attention to show.{reason} To see its features, {leave}."
    reason = f" {why}" if why else ""
    return (
        f"Unit {unit.name!r} of {subject.name} has no attention to show.{reason} To see it all the "
        f"same, {leave}; {attending[-1]!r} has attention."
    )


def _attention(attention: AttentionMap, unit: Unit, choice: MapChoice) -> PhotoMap:
    """The map of the attention of one head, or of the mean over heads."""
    heads = attention.values.shape[2]
    if choice.head != "mean":
        _check_head(choice.head, heads, unit)
    tokens, source = choose_query(attention, unit, choice.query)
    shares = key_shares(attention, None if choice.head == "mean" else choice.head, tokens)
    head = "the only head" if heads == 1 else f"head {choice.head} of {heads}"
    head = f"mean of {heads} heads" if choice.head == "mean" and heads > 1 else head
    on_grid = shares[attention.prefix :]
    cell, grid = _query_cell(choice.query, attention)
    return PhotoMap(
        on_grid.reshape(attention.key_grid),
        "attention",
        unit.name,
        f"{unit.name}, {head}, {source}",
        float(1 - on_grid.sum()),
        cell,
        grid,
    )


def key_shares(attention: AttentionMap, head: int | None, tokens: Sequence[int]) -> NDArray[Any]:
    """Attention of the first image to every key (keys,), prefix tokens first, mean over queries.

    Parameters
    ----------
    attention
        Probabilities of any reach; windows are combined.
    head
        Number of the head; None for the mean over heads.
    tokens
        Token numbers of the queries.
    """
    shares = head_shares(attention, tokens)
    of_head: NDArray[Any] = shares.mean(0) if head is None else shares[head]
    return of_head


def head_shares(attention: AttentionMap, tokens: Sequence[int]) -> NDArray[Any]:
    """As `key_shares`, but for every head, (heads, keys)."""
    chosen = torch.isin(attention.queries, torch.as_tensor(tokens))
    values = attention.values[0]  # (groups, heads, queries, keys)
    groups, queries = (index.to(values.device) for index in chosen.nonzero(as_tuple=True))
    rows = values[groups, :, queries].double()  # (rows, heads, keys), of all windows
    keys = attention.keys.to(values.device)[groups]
    count = attention.prefix + attention.key_grid[0] * attention.key_grid[1]
    total = rows.new_zeros(rows.shape[1], count + 1)  # the last entry is for padding, number -1
    places = keys.remainder(count + 1)[:, None].expand(rows.shape)
    total.scatter_add_(1, places.transpose(0, 1).flatten(1), rows.transpose(0, 1).flatten(1))
    shares: NDArray[Any] = (total[:, :-1] / max(len(rows), 1)).cpu().numpy()
    return shares


def _rollout(
    subject: Subject, images: Tensor, unit: Unit, choice: MapChoice
) -> tuple[PhotoMap, Any]:
    """The map of the attention rollout up to a unit, mean over heads."""
    if choice.head != "mean":
        raise VitreousError(
            f"A rollout averages over heads, and head={choice.head} was asked for; leave out one "
            "of the two."
        )
    units = subject.specimen.units[: unit.index + 1]
    if why := unrollable(units):
        raise VitreousError(
            f"Attention of {subject.name} cannot be extend_rollout out. {why} Leave out "
            "rollout=True to see the attention of one unit."
        )
    product: Tensor | None = None
    prefix, layers = 0, 0
    last: AttentionMap | None = None

    def multiply(_: Unit, sites: Sites) -> None:
        nonlocal product, prefix, layers, last
        if sites.attention is not None:
            last = sites.attention.probabilities
            product = extend_rollout(layer(last, "mean", identity=True), product, prefix)
            prefix, layers = last.prefix, layers + 1

    names = [u.name for u in units if u.kind == "attention"]
    output = subject.specimen.observe(images, ("attention",), names, each=multiply).output
    assert product is not None
    assert last is not None
    tokens, source = choose_query(last, unit, choice.query)
    shares = product[0, tokens].mean(0).double().cpu().numpy()
    on_grid = shares[last.prefix :]
    cell, grid = _query_cell(choice.query, last)
    through = "1 layer" if layers == 1 else f"{layers} layers"
    return PhotoMap(
        on_grid.reshape(last.query_grid),
        "rollout",
        unit.name,
        f"rollout of {through} up to {unit.name}, {source}",
        float(1 - on_grid.sum()),
        cell,
        grid,
    ), output


def _feature_norm(subject: Subject, images: Tensor, unit: Unit) -> tuple[PhotoMap, Any]:
    observed = subject.specimen.observe(images, ("out",), [unit.name])
    feature = observed[unit.name].out
    if feature is None or feature.grid is None:
        raise VitreousError(
            f"Unit {unit.name!r} of {subject.name} has neither attention nor a feature "
            "map; name another, `vitreous anatomy` lists them with their grids."
        )
    norms = feature.map[0].detach().double().norm(dim=0).cpu().numpy()
    description = f"norm of the features after {unit.name}"
    return PhotoMap(norms, "feature norm", unit.name, description), observed.output


def choose_query(attention: AttentionMap, unit: Unit, query: Query) -> tuple[list[int], str]:
    """The token numbers of the queries that `query` means, and their description."""
    queries = sorted(set(attention.queries[attention.queries >= 0].tolist()))
    if query is None:
        tokens = main_queries(unit, attention)
        chosen = [token for token in queries if token in range(*tokens.indices(queries[-1] + 1))]
        return chosen, _describe_queries(chosen, attention, unit)
    if isinstance(query, str) and query != "mean":
        chosen = [number for number, name in enumerate(unit.prefix) if name == query]
        chosen = [token for token in chosen if token in queries]
        if not chosen:
            raise VitreousError(_no_such_query(query, queries, attention, unit))
        return chosen, _describe_queries(chosen, attention, unit)
    if query == "mean":
        chosen = [token for token in queries if token >= attention.prefix] or queries
        return chosen, _describe_queries(chosen, attention, unit)
    row, column = _cell(query, attention.query_grid, unit)
    token = attention.prefix + row * attention.query_grid[1] + column
    if token not in queries:
        raise VitreousError(
            f"query={row},{column} is a patch, and patches do not look in {unit.name}: only tokens "
            "in front of the grid do; leave out query=."
        )
    return [token], f"from patch {row}, {column}"


def _no_such_query(query: str, queries: Sequence[int], attention: AttentionMap, unit: Unit) -> str:
    """The error message for a token that does not exist, with the possible queries."""
    prefix = dict.fromkeys(name for index, name in enumerate(unit.prefix) if index in queries)
    possible = [f"query={name}" for name in prefix]
    if any(token >= attention.prefix for token in queries):
        rows, columns = attention.query_grid
        possible += ["query=mean", f"query={rows // 2},{columns // 2} for one patch"]
    return (
        f"query={query} was asked for, and {unit.name} has no {query} token; it can be "
        f"{join_words(possible, 'or')}."
    )


def _describe_queries(tokens: Sequence[int], attention: AttentionMap, unit: Unit) -> str:
    """Describe queries: "from the class token", "mean over patches", …"""
    if tokens and min(tokens) >= attention.prefix:
        return "mean over patches" if len(tokens) > 1 else "from a patch"
    names = dict.fromkeys(unit.prefix[token] for token in tokens if token < len(unit.prefix))
    if not names:
        return "from its query" if len(tokens) == 1 else "from its queries"
    plural = "s" if len(tokens) > len(names) else ""
    return f"from the {' and '.join(names)} token{plural}"


def _cell(query: Any, grid: Grid, unit: Unit) -> Grid:
    """Return row and column of a patch; raise if there is no such patch."""
    integers = isinstance(query, Sequence) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in query
    )
    if not integers or len(query) != 2:
        raise VitreousError(
            f"query={query!r} was asked for; it is 'class', 'mean', or row and column of a patch, "
            "such as (3, 4)."
        )
    row, column = int(query[0]), int(query[1])
    if not (0 <= row < grid[0] and 0 <= column < grid[1]):
        raise VitreousError(
            f"query={row},{column} was asked for, and {unit.name} has {grid[0]} rows and {grid[1]} "
            "columns of patches, counted from 0."
        )
    return row, column


def _query_cell(query: Query, attention: AttentionMap) -> tuple[Grid | None, Grid | None]:
    """Row and column of the query, and its grid, if it is one patch."""
    if query is None or isinstance(query, str):
        return None, None
    return (int(query[0]), int(query[1])), attention.query_grid


def _check_head(head: Any, heads: int, unit: Unit) -> None:
    is_integer = isinstance(head, (int, np.integer)) and not isinstance(head, bool)
    if not is_integer or not 0 <= head < heads:
        raise VitreousError(
            f"head={head} was asked for, and {unit.name} has {heads} heads, counted from 0; "
            "'mean' averages them."
        )


def _in_words(query: Any) -> str:
    return query if isinstance(query, str) else ",".join(map(str, query))
