"""Directions: lengths, what stays, and the official variant written down once more."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vitreous.measure.curvature.directions import (
    Plane,
    parameters_without_filters,
    random_direction,
)
from vitreous.measure.curvature.loss import weights
from vitreous.measure.subject import subjects
from vitreous.models.loading import load_model
from vitreous.storage.fingerprints import fingerprint, labelled


def given() -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = {
        "conv.weight": (6, 3, 4, 4), "head.weight": (10, 6), "head.bias": (10,),
        "pos_embed": (1, 5, 6), "relative_position_bias_table": (9, 2), "cls_token": (1, 1, 6),
    }  # fmt: skip
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


LEFT = {"head.bias", "pos_embed", "relative_position_bias_table", "cls_token"}


def test_every_filter_has_the_norm_of_the_same_filter_of_the_weights() -> None:
    found = random_direction("random", given(), LEFT, 0, 0)
    assert set(found) == {"conv.weight", "head.weight"}
    for name, moved in found.items():
        ratio = moved.flatten(1).norm(dim=1) / given()[name].flatten(1).norm(dim=1)
        torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=1e-14, atol=0)


def test_vectors_are_one_filter_and_zeros_stay_zeros() -> None:
    bias = given() | {
        "zero": torch.zeros(4),
        "dead.weight": torch.zeros(3, 4),
        "alone": torch.ones(()),
    }
    found = random_direction("random", bias, (), 0, 0)
    assert found["head.bias"].norm() == pytest.approx(float(bias["head.bias"].norm()))
    assert found["alone"].abs() == pytest.approx(1.0)
    assert not found["zero"].any()
    assert not found["dead.weight"].any()


def test_the_official_variant() -> None:
    """Everything of two or more axes that is not called a position, every column at the length of
    the weight's."""
    found = random_direction("official", given(), (), 3, 1)
    assert set(found) == {"conv.weight", "head.weight", "cls_token"}
    for name, weight in given().items():
        if name in found:
            ours, theirs = (value.norm(dim=0) for value in (found[name], weight))
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0)


def test_the_official_variant_number_by_number() -> None:
    from vitreous.random_numbers import torch_generator

    found = random_direction("official", given(), (), 3, 1)["head.weight"]
    generator = torch_generator(3, "direction", 1, "head.weight")
    b, w = (
        torch.randn(10, 6, generator=generator, dtype=torch.float64).tolist(),
        given()["head.weight"].tolist(),
    )
    for i in range(10):
        for j in range(6):
            of_w, of_b = (sum(row[j] ** 2 for row in rows) ** 0.5 for rows in (w, b))
            assert float(found[i, j]) == pytest.approx(of_w / (of_b + 1e-7) * b[i][j], rel=1e-12)
    ratio = found.norm(dim=1) / given()["head.weight"].norm(dim=1)
    assert (ratio - 1).abs().max() > 0.05  # which is the fault that it is named for


def test_directions_depend_on_seed_axis_and_name_alone() -> None:
    one = random_direction("random", given(), LEFT, 0, 0)
    alone = random_direction("random", {"head.weight": given()["head.weight"]}, (), 0, 0)
    assert torch.equal(one["head.weight"], alone["head.weight"])
    others = [random_direction("random", given(), LEFT, *which) for which in ((1, 0), (0, 1))]
    assert len({fingerprint(*labelled(each)) for each in (one, *others)}) == 3
    again = random_direction("random", given(), LEFT, 0, 0)
    assert fingerprint(*labelled(one)) == fingerprint(*labelled(again))
    flat, other = (
        torch.cat([value.flatten() for value in each.values()]) for each in (one, others[1])
    )
    assert abs(float(flat @ other / flat.norm() / other.norm())) < 0.2


def test_what_stays_in_a_model() -> None:
    model = load_model("nano:alternet")
    (subject,) = subjects(model)
    origin = weights(subject.specimen)
    moved = set(random_direction("random", origin, parameters_without_filters(model), 0, 0))
    assert moved
    assert all(name.endswith("weight") and origin[name].ndim > 1 for name in moved)
    assert moved == set(
        random_direction("random", origin, parameters_without_filters(subject.specimen), 0, 0)
    )


def test_a_plane_at_several_places_at_once() -> None:
    origin = given()
    plane = Plane(
        origin, tuple(random_direction("random", origin, LEFT, 0, axis) for axis in (0, 1))
    )
    where = torch.tensor([[0.0, 0.0], [0.5, -0.25]], dtype=torch.float64)
    stacked = plane.at(where)
    for name in plane.moving:
        assert torch.equal(stacked[name][0], origin[name])
        assert torch.equal(stacked[name][1], plane.at(where[1])[name])
        expected = origin[name] + 0.5 * plane.axes[0][name] - 0.25 * plane.axes[1][name]
        torch.testing.assert_close(stacked[name][1], expected, rtol=1e-13, atol=1e-13)
    whole = {name: stacked[name][1] if name in stacked else value for name, value in origin.items()}
    expected = torch.stack([value.square().sum() for value in whole.values()])
    torch.testing.assert_close(plane.squares(where)[1], expected, rtol=1e-12, atol=0)


def test_a_module_without_names_of_ours() -> None:
    assert parameters_without_filters(nn.Sequential(nn.Conv1d(2, 1, 3), nn.Linear(4, 1))) == {
        "0.bias",
        "1.bias",
        "0.weight",
    }
