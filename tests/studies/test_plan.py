"""A study is what its claims read: which cells there are, in which order, and whom they serve."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from vitreous import claims
from vitreous.claims.book import Study, find_claim
from vitreous.config import Recipe
from vitreous.errors import UnknownName
from vitreous.studies.plan import Cell, plan
from vitreous.studies.scales import Scale, scale_named
from vitreous.studies.training import Images, Training

SMALL, SANITY = scale_named("small"), scale_named("sanity")


def planned(*ids: str, seeds: int = 1) -> list[Cell]:
    return plan(
        [find_claim(claims.every_claim(), each) for each in ids], SMALL, "npz:images", range(seeds)
    )


def test_every_claim_is_in_one_study() -> None:
    found = [claim.id for study in get_args(Study) for claim in claims.claims_of_study(study)]
    assert sorted(found) == sorted(claim.id for claim in claims.every_claim())


def test_what_claims_read_and_nothing_else() -> None:
    (vit, resnet) = planned("HDV-06")
    assert {(s.name, s.results) for cell in (vit, resnet) for s in cell.items} == {
        ("vit checkpoint=warmup", ("hessian",)),
        ("resnet checkpoint=warmup", ("hessian",)),
    }
    assert vit.serves == ("HDV-06",)


def test_a_trained_network_has_an_untrained_control() -> None:
    """Results at the end are measured at the start, too, unless they need a trained network."""
    (cell,) = (
        each for each in planned("SLC-31") if each.training and each.training.model == "vit_ti"
    )
    results = {item.facts.get("checkpoint"): item.results for item in cell.items}
    assert "erf" in results[None]
    assert "erf" in results["start"]
    for cell in planned("HDV-09", "HDV-51", "VIT-07"):
        assert not [each for each in cell.items if each.facts.get("checkpoint") == "start"]


def test_trainings_end_after_the_warm_up_if_no_claim_reads_more() -> None:
    short = {
        cell.training.model: cell.training.recipe.epochs
        for cell in planned("HDV-06")
        if cell.training
    }
    whole = {
        cell.training.model: cell.training.recipe.epochs
        for cell in planned("HDV-06", "HDV-09")
        if cell.training
    }
    assert max(short.values()) <= SMALL.recipe.warmup
    assert set(whole.values()) == {SMALL.recipe.epochs}


def test_what_two_claims_need_is_trained_once() -> None:
    alone, together = planned("HDV-09"), planned("HDV-09", "HDV-10")
    assert [cell.key for cell in alone] == [cell.key for cell in together]
    assert together[0].serves == ("HDV-09", "HDV-10")


def test_every_epoch_is_kept_for_claims_about_the_trajectory() -> None:
    """On the study's images and on tasks of small versions, also in studies without that claim."""
    for ids in (("HDV-12",), ("HDV-11",)):
        kept = {c.training.model: c.training.recipe.keep for c in planned(*ids) if c.training}
        assert kept == {"vit_ti": "epochs", "resnet_18": "epochs"}
    small = plan([find_claim(claims.every_claim(), "HDV-12")], SANITY, "world:shapes", [0])
    assert {cell.training.recipe.keep for cell in small if cell.training} == {"epochs"}


def test_a_pair_waits_for_both() -> None:
    cells = planned("HDV-32")
    (pair,) = (cell for cell in cells if cell.training is None)
    assert len(pair.follows) == 2
    assert set(pair.follows) <= {cell.key for cell in cells[: cells.index(pair)]}
    assert pair.items[0].beside is not None


def test_the_seed_of_a_second_network_is_relative() -> None:
    cells = planned("SLC-26", seeds=2)
    for cell in cells:
        for item in cell.items:
            if item.beside is not None:
                assert item.beside.facts["seed"] == item.facts["seed"] + 1


def test_a_teacher_comes_before_the_taught() -> None:
    cells = planned("CVT-07")
    (taught,) = (cell for cell in cells if cell.training and cell.training.teacher)
    assert taught.follows[0] in {cell.key for cell in cells[: cells.index(taught)]}


def test_no_cell_waits_for_a_later_one() -> None:
    for scale, data in ((SMALL, "npz:images"), (SANITY, "world:shapes")):
        cells = plan(claims.claims_of_study("all"), scale, data, [0])
        place = {cell.key: number for number, cell in enumerate(cells)}
        assert len(place) == len(cells)
        for cell in cells:
            assert all(place[before] < place[cell.key] for before in cell.follows)


def test_small_versions_run_on_their_tasks() -> None:
    cells = plan([find_claim(claims.every_claim(), "HDV-06")], SANITY, "world:shapes", [0])
    assert {cell.training.images.name for cell in cells if cell.training} == {"world:syn-e"}


def test_every_scale_has_the_seeds_it_is_given() -> None:
    def seeds(name: str, scale: Scale, given: list[int]) -> set[int]:
        cells = plan([find_claim(claims.every_claim(), name)], scale, "world:shapes", given)
        return {cell.training.seed for cell in cells if cell.training}

    for scale in (SANITY, SMALL):
        assert seeds("CVT-02", scale, [0]) == {0}
        assert seeds("HDV-06", scale, [0, 1]) == {0, 1}


def test_untrained_controls_are_planned_on_existing_trainings() -> None:
    """SLC-31 is about representations, so its networks are also measured before training."""
    claim = find_claim(claims.every_claim(), "SLC-31")
    assert claim.has_control()
    controls = [need for need in claim.needs() if need.facts.get("checkpoint") == "start"]
    assert controls
    cells = planned("SLC-31")
    measured = [sitting.facts for cell in cells for sitting in cell.items]
    for need in controls:
        assert any(need.facts.items() <= facts.items() for facts in measured), need
    trainings = [cell.training.key for cell in cells if cell.training]
    assert len(set(trainings)) == len(trainings) == 2, "no training of its own for a control"


def test_another_seed_is_another_training() -> None:
    keys = [cell.key for cell in planned("HDV-06", seeds=3)]
    assert len(set(keys)) == len(keys) == 6


def test_a_key_depends_on_everything_that_weights_depend_on() -> None:
    training = planned("HDV-06")[0].training
    assert training is not None
    assert replace(training, seed=1).key != training.key
    assert replace(training, recipe=training.recipe.but(lr=1.0)).key != training.key
    assert replace(training).key == training.key


def test_a_wrong_name_says_what_is_near() -> None:
    with pytest.raises(UnknownName, match="Did you mean zoo"):
        claims.claims_of_study("zo")


def test_the_key_of_a_training_has_the_words_of_files() -> None:
    """Also in what it starts from: a study of an older version is found again."""
    before = Training("vit_nano", Recipe(), Images("world:shapes"))
    after = replace(before, recipe=Recipe(keep="epochs"), start=before, teacher=before)
    written = after.to_json()
    assert written["recipe"]["keep"] == "epochs"
    assert written["start"] == written["teacher"] == before.to_json()
    assert written["start"]["recipe"]["keep"] == "moments"
