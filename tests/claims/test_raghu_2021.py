"""Numbers that claims of Raghu et al. read, beside ones found by hand."""

from __future__ import annotations

import numpy as np
import pytest

from claims.cases.raghu_2021_attention import heads, named
from claims.cases.raghu_2021_similarity import cka, layers, pair
from claims.cases.raghu_2021_tokens import SIDE, edges, places
from claims.synthetic import item
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity
from vitreous.claims.raghu_2021.attention import window_similarities
from vitreous.claims.raghu_2021.pairs import closest, early_and_late, similarities
from vitreous.claims.raghu_2021.tokens import edge_to_edge, localised

INNER = [unit["depth"] for unit in layers()[1:-1]]


def value(quantity: Quantity) -> float:
    (found,) = quantity.values
    return float(found)


def product(one: float, other: float) -> float:
    return one * other


def test_every_two_layers_are_read_once() -> None:
    found = similarities(Query([item("vit", cka(product))])("vit"))
    wanted = [one * other for i, one in enumerate(INNER) for other in INNER[i + 1 :]]
    np.testing.assert_allclose(found.values[0], wanted)


def test_early_and_late_layers_are_those_of_both_ends() -> None:
    found = early_and_late(Query([item("vit", cka(product))])("vit"), 0.25)
    wanted = [one * other for one in INNER if one <= 0.25 for other in INNER if other >= 0.75]
    np.testing.assert_allclose(found.values[0], wanted)


@pytest.mark.parametrize("turned", [False, True])
def test_the_closest_layer_of_the_other_model_counts(turned: bool) -> None:
    found = Query([pair("vit", "resnet", product, turned=turned)])("vit", beside="resnet")
    wanted = np.mean([depth * max(INNER) for depth in INNER if 1 / 3 < depth <= 2 / 3])
    assert value(closest(found, 1 / 3, 2 / 3)) == pytest.approx(wanted)


def test_heads_are_compared_with_the_first_stage_alone() -> None:
    items = [named(heads([8, 10], [0.6, 0.2]), "vit size=s")]
    found = window_similarities(Query(items)("vit", size="s", beside="resnet"))
    np.testing.assert_allclose(found.values[0], [0.6, 0.2])


def test_an_edge_token_is_compared_with_other_patches() -> None:
    """Its own patch, which is 1 here, would draw the edge up."""
    assert value(edge_to_edge(Query(edges(0.3, 0.1))("vit"))) == pytest.approx(0.2)


def test_localisation_on_two_grids_is_not_compared() -> None:
    given = places((0.9, 0.2), (0.1, 0.05))
    given[0].results["localisation"].about["indices"]["resnet"]["grid"] = [2 * SIDE, 2 * SIDE]
    models = Query(given)
    assert not localised(models("vit", beside="resnet"), "contrast").known
    assert "grids of 16 and 64 cells" in models.notes[0]
