"""Numbers with their doubt, against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from vitreous.claims.quantity import (
    NORMAL_95,
    REPLICATES,
    Quantity,
    correlation,
    replicates_from_interval,
    side_by_side,
    spearman,
)

generator = np.random.default_rng(0)


def normal(name: str, mean: float, deviation: float, seed: int = 0) -> Quantity:
    return Quantity.drawn(
        seed, name, mean, mean - NORMAL_95 * deviation, mean + NORMAL_95 * deviation
    )


def seeds(*values: float) -> Quantity:
    """One training each, without doubt."""
    return Quantity({seed: Quantity.exactly(value).seeds[0] for seed, value in enumerate(values)})


def half_width(measure: Quantity) -> float:
    _, low, high = measure.interval()
    return (high - low) / 2


def test_a_difference_of_two_normals_has_the_root_of_both_variances() -> None:
    found = [(normal(f"a{i}", 3.0, 0.3) - normal(f"b{i}", 1.0, 0.4)) for i in range(40)]
    assert {each.interval()[0] for each in found} == {2.0}
    assert np.mean([half_width(each) for each in found]) == pytest.approx(NORMAL_95 * 0.5, rel=0.05)


def test_an_interval_has_a_side_of_its_own_below_and_above() -> None:
    ends = np.mean([Quantity.drawn(0, str(i), 5.0, 4.0, 9.0).interval()[1:] for i in range(40)], 0)
    assert ends == pytest.approx([4.0, 9.0], abs=0.2)


def test_what_is_paired_is_narrower_than_what_is_not() -> None:
    """Two models that are right on the same 700 of 1000 images, but for 20 more that only one of them has right."""
    right = np.arange(1000) < np.array([[700], [720]])
    times = np.concatenate([np.ones((1, 1000)), generator.poisson(1.0, (REPLICATES, 1000))])
    one, other = ((times @ each) / times.sum(1) for each in right)
    paired = Quantity({0: other}) - Quantity({0: one})
    means = right.mean(1)
    doubts = np.sqrt(means * (1 - means) / 1000)
    drawn = [
        normal(str(i), mean, doubt)
        for i, (mean, doubt) in enumerate(zip(means, doubts, strict=True))
    ]
    unpaired = drawn[1] - drawn[0]
    assert paired.interval()[0] == pytest.approx(unpaired.interval()[0]) == pytest.approx(0.02)
    assert half_width(paired) == pytest.approx(NORMAL_95 * np.sqrt(0.02 * 0.98 / 1000), rel=0.2)
    assert half_width(unpaired) == pytest.approx(NORMAL_95 * np.hypot(*doubts), rel=0.2)


def test_readings_are_the_same_for_the_same_name_and_the_first_is_as_measured() -> None:
    once, again, other = (
        replicates_from_interval(name, [1.0, 2.0], 0.0, 3.0) for name in ("a", "a", "b")
    )
    assert once.shape == (1 + REPLICATES, 2)
    assert once[0].tolist() == [1.0, 2.0]
    assert (once == again).all()
    assert (once[1:] != other[1:]).all()


def test_an_end_that_is_not_known_adds_no_doubt() -> None:
    assert (replicates_from_interval("a", 1.0, np.nan, np.nan) == 1.0).all()


def test_seeds_are_drawn_anew() -> None:
    """The mean of three draws from 0, 3 and 6 is 0 with probability 1/27, which is more than 2.5 %."""
    assert seeds(0.0, 3.0, 6.0).interval() == (3.0, 0.0, 6.0)
    assert seeds(3.0).interval() == (3.0, 3.0, 3.0)
    assert seeds(0.0, 3.0, 6.0).values.tolist() == [0.0, 3.0, 6.0]


def test_doubt_about_images_is_shared_by_trainings_and_shrinks_with_their_number() -> None:
    """Three trainings with deviation 1 each and no difference between them have 1/√3, and what drawing them anew adds:
    a training is drawn twice or thrice now and then, so the mean square of its share is 5/9 and not 1/3."""
    found = [
        Quantity({s: normal(f"{i}/{s}", 0.0, 1.0).seeds[0] for s in range(3)}) for i in range(40)
    ]
    assert np.mean([half_width(each) for each in found]) == pytest.approx(
        NORMAL_95 * np.sqrt(5 / 9), rel=0.06
    )


def test_a_number_less_a_measure_keeps_every_training() -> None:
    accuracy = seeds(70.0, 71.0, 72.0)
    assert (100 - accuracy).values.tolist() == [30.0, 29.0, 28.0]
    assert (100 - accuracy).seeds.keys() == accuracy.seeds.keys()
    assert (100 - Quantity({})).known is False


def test_arithmetic_is_done_reading_by_reading() -> None:
    one, other = normal("a", 4.0, 1.0), normal("b", 2.0, 1.0)
    a, b = one.seeds[0], other.seeds[0]
    for found, wanted in (
        (one + other, a + b), (one - other, a - b), (one * other, a * b), (one / other, a / b), (-one, -a),
        (one + 1, a + 1), (1 + one, a + 1), (2 * one, 2 * a), (one / 2, a / 2), (one < other, a < b),
        (one >= 4, a >= 4), (one <= other, a <= b), (one > 4, a > 4),
    ):  # fmt: skip
        np.testing.assert_array_equal(found.seeds[0], wanted)


def test_trainings_are_paired_by_seed_and_in_order_where_none_is_shared() -> None:
    one, other = seeds(1.0, 2.0, 3.0), Quantity({2: Quantity.exactly(10.0).seeds[0]})
    assert (one - other).values.tolist() == [-7.0]
    elsewhere = Quantity({seed + 7: rows for seed, rows in seeds(10.0, 20.0).seeds.items()})
    assert (one - elsewhere).values.tolist() == [-9.0, -18.0]
    assert side_by_side([one, other]).values.tolist() == [[3.0, 10.0]]
    assert side_by_side([one, elsewhere]).values.tolist() == [[1.0, 10.0], [2.0, 20.0]]


def test_numbers_side_by_side() -> None:
    row = side_by_side([seeds(3.0), seeds(1.0), seeds(8.0)])
    found = (
        row.minimum(),
        row.maximum(),
        row.mean(),
        row[1],
        (row > 2).mean(),
        (row - row[0]).maximum(),
    )
    assert [each.interval()[0] for each in found] == [1.0, 8.0, 4.0, 1.0, 2 / 3, 5.0]
    assert (row[1:] - row[:-1]).values.tolist() == [[-2.0, 7.0]]
    assert row.map(lambda each: each.sum()).values.tolist() == [12.0]
    with pytest.raises(ValueError, match=r"\(3,\)"):
        row.interval()


def test_only_what_is_made_of_full_ones_is_full() -> None:
    full, other = Quantity({0: np.full(1 + REPLICATES, 100.0)}, full=True), Quantity.exactly(50.0)
    assert (full - full).full
    assert (100 - full).full
    assert (side_by_side([full, full]).mean() / 2).full
    assert spearman([1, 2], side_by_side([full, full])).full
    assert not (full - other).full
    assert not side_by_side([full, other]).minimum().full


def test_what_is_not_known_stays_unknown() -> None:
    nothing, something = Quantity({}), seeds(1.0, 2.0)
    for found in (
        nothing - something, something / nothing, -nothing, 1 - nothing, nothing.mean(), nothing[0], side_by_side([]),
        side_by_side([something, nothing]), spearman([1, 2], nothing), correlation(nothing, something),
    ):  # fmt: skip
        assert not found.known


def test_rank_correlation_is_that_of_scipy() -> None:
    one, other = generator.integers(0, 4, (2, 1 + REPLICATES, 6)).astype(
        float
    )  # so that there are ties
    one[:, 0], other[:, 0] = 9.0, 8.0  # and no constant row
    one[:, 1], other[:, 1] = -1.0, -2.0
    found = spearman(Quantity({0: one}), Quantity({0: other})).seeds[0]
    np.testing.assert_allclose(
        found, [spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    )
    found = spearman([5, 1, 2, 3, 4, 6], Quantity({3: other})).seeds[3]
    np.testing.assert_allclose(found, [spearmanr([5, 1, 2, 3, 4, 6], b).statistic for b in other])


def test_correlation_is_that_of_numpy_and_not_a_number_of_a_constant() -> None:
    one, other = generator.standard_normal((2, 1 + REPLICATES, 5))
    found = correlation(Quantity({0: one}), Quantity({0: other})).seeds[0]
    np.testing.assert_allclose(
        found, [np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)]
    )
    assert np.isnan(spearman([1, 2, 3], Quantity.exactly([4.0, 4.0, 4.0])).interval()[0])


def test_a_ratio_to_nothing_warns_of_nothing() -> None:
    value, low, high = (seeds(1.0) / seeds(0.0)).interval()
    assert value == np.inf
    assert np.isnan([low, high]).all()
    value, low, high = (
        normal("a", 1.0, 0.1) / Quantity({0: np.r_[2.0, 0.0, np.full(REPLICATES - 1, 2.0)]})
    ).interval()
    assert (value, low > 0.3, high < 0.7) == (0.5, True, True)
