"""Numbers with their replicates, against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from vitreous.claims.quantity import (
    NORMAL_95,
    REPLICATES,
    FewUnits,
    Quantity,
    correlation,
    geometric_mean,
    largest_difference,
    least_of,
    replicates_from_interval,
    side_by_side,
    spearman,
)
from vitreous.claims.statistics import estimate_effect

generator = np.random.default_rng(0)


def normal(name: str, mean: float, deviation: float, seed: int = 0) -> Quantity:
    reach = NORMAL_95 * deviation
    return Quantity({seed: replicates_from_interval(name, mean, mean - reach, mean + reach)})


def seeds(*values: float) -> Quantity:
    """One training each, without uncertainty."""
    return Quantity({seed: Quantity.exactly(value).seeds[0] for seed, value in enumerate(values)})


def half_width(quantity: Quantity) -> float:
    found = estimate_effect(quantity)
    return (found.high - found.low) / 2


def test_a_difference_of_two_normals_has_the_root_of_both_variances() -> None:
    found = [(normal(f"a{i}", 3.0, 0.3) - normal(f"b{i}", 1.0, 0.4)) for i in range(40)]
    assert {each.values[0] for each in found} == {2.0}
    assert np.mean([half_width(each) for each in found]) == pytest.approx(NORMAL_95 * 0.5, rel=0.05)


def test_replicates_from_an_interval_can_be_asymmetric() -> None:
    rows = replicates_from_interval("a", np.full(40, 5.0), np.full(40, 4.0), np.full(40, 9.0))
    ends = np.quantile(rows[1:], [0.025, 0.975])
    assert ends == pytest.approx([4.0, 9.0], abs=0.2)


def test_what_is_paired_is_narrower_than_what_is_not() -> None:
    """Two models are right on the same 700 of 1000 images, and one of them on 20 more."""
    right = np.arange(1000) < np.array([[700], [720]])
    times = np.concatenate([np.ones((1, 1000)), generator.poisson(1.0, (REPLICATES, 1000))])
    one, other = ((times @ each) / times.sum(1) for each in right)
    paired = Quantity({0: other}) - Quantity({0: one})
    means = right.mean(1)
    errors = np.sqrt(means * (1 - means) / 1000)
    one_alone, other_alone = map(normal, "ab", means.tolist(), errors.tolist())
    unpaired = other_alone - one_alone
    assert paired.values[0] == pytest.approx(unpaired.values[0]) == pytest.approx(0.02)
    assert half_width(paired) == pytest.approx(NORMAL_95 * np.sqrt(0.02 * 0.98 / 1000), rel=0.2)
    assert half_width(unpaired) == pytest.approx(NORMAL_95 * np.hypot(*errors), rel=0.2)


def test_replicates_are_the_same_for_the_same_name_and_the_first_is_as_measured() -> None:
    once, again, other = (
        replicates_from_interval(name, [1.0, 2.0], 0.0, 3.0) for name in ("a", "a", "b")
    )
    assert once.shape == (1 + REPLICATES, 2)
    assert once[0].tolist() == [1.0, 2.0]
    assert (once == again).all()
    assert (once[1:] != other[1:]).all()


def test_an_unknown_end_of_an_interval_adds_no_uncertainty() -> None:
    assert (replicates_from_interval("a", 1.0, np.nan, np.nan) == 1.0).all()


def test_a_number_minus_a_quantity_keeps_every_training() -> None:
    accuracy = seeds(70.0, 71.0, 72.0)
    assert (100 - accuracy).values.tolist() == [30.0, 29.0, 28.0]
    assert (100 - accuracy).seeds.keys() == accuracy.seeds.keys()
    assert (100 - Quantity({})).known is False


def test_arithmetic_is_done_replicate_by_replicate() -> None:
    one, other = normal("a", 4.0, 1.0), normal("b", 2.0, 1.0)
    a, b = one.seeds[0], other.seeds[0]
    for found, wanted in (
        (one + other, a + b),
        (one - other, a - b),
        (one * other, a * b),
        (one / other, a / b),
        (-one, -a),
        (one + 1, a + 1),
        (1 + one, a + 1),
        (2 * one, 2 * a),
        (one / 2, a / 2),
        (one < other, a < b),
        (one >= 4, a >= 4),
        (one <= other, a <= b),
        (one > 4, a > 4),
    ):
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
    assert [each.values[0] for each in found] == [1.0, 8.0, 4.0, 1.0, 2 / 3, 5.0]
    assert (row[1:] - row[:-1]).values.tolist() == [[-2.0, 7.0]]
    assert row.map(lambda each: each.sum()).values.tolist() == [12.0]
    assert geometric_mean(row).values[0] == pytest.approx(24 ** (1 / 3))
    with pytest.raises(ValueError, match="of one number"):
        estimate_effect(row)


def test_only_what_is_made_of_saturated_ones_is_saturated() -> None:
    full = Quantity({0: np.full(1 + REPLICATES, 100.0)}, saturated=True)
    other = Quantity.exactly(50.0)
    assert (full - full).saturated
    assert (100 - full).saturated
    assert (side_by_side([full, full]).mean() / 2).saturated
    assert spearman([1, 2], side_by_side([full, full])).saturated
    assert not (full - other).saturated
    assert not side_by_side([full, other]).minimum().saturated


def test_a_share_has_the_sampling_variance_of_few_units_and_bounds() -> None:
    """Twelve of twelve, with one of each added: 13 of 14."""
    units = Quantity.exactly(np.arange(12.0))
    share = (units >= 0).mean()
    assert (share.values.tolist(), share.few) == ([1.0], FewUnits("share", 12))
    assert share.sampling[0] == pytest.approx(13 / 14 * 1 / 14 / 12)
    assert estimate_effect(share).high == 1.0
    assert estimate_effect(share).low < 0.95
    assert units.mean().sampling == {}
    assert (units > 3)[2:6].mean().sampling == {}  # a part of it is a row of numbers again


def test_sampling_variance_follows_the_arithmetic() -> None:
    share = (Quantity.exactly(np.arange(12.0)) >= 6).mean()
    variance = share.sampling[0]
    assert (100 * share).sampling[0] == pytest.approx(1e4 * variance)
    assert (share / 2).sampling[0] == pytest.approx(variance / 4)
    assert (share - 0.5).sampling[0] == (1 - share).sampling[0] == variance
    assert (share - share).sampling[0] == (share + share).sampling[0] == 2 * variance
    assert (share - seeds(0.5)).sampling[0] == variance


def test_a_rank_correlation_has_the_sampling_variance_of_few_settings() -> None:
    found = spearman(range(5), Quantity.exactly(np.arange(5.0)))
    assert (found.values.tolist(), found.few) == ([pytest.approx(1.0)], FewUnits("correlation", 5))
    assert found.sampling[0] == pytest.approx((1 - 0.98**2) ** 2 / 4)


def test_the_variance_of_a_rank_correlation_is_that_of_shuffled_ranks() -> None:
    """1 / (n - 1) where there is no order; nearly (1 - ρ²)² / (n - 1) where there is some."""
    rng = np.random.default_rng(0)
    for noise, off in ((1e9, 0.05), (3.0, 0.1), (1.5, 0.1)):
        drawn = np.arange(8) + noise * rng.standard_normal((4000, 8))
        found = spearman(range(8), Quantity(dict(enumerate(drawn[:, None])))).values
        assert found.var() == pytest.approx(FewUnits("correlation", 8).variance(found.mean()), off)


def test_the_least_and_the_largest_are_chosen_by_the_mean_over_trainings() -> None:
    one, other = seeds(1.0, 5.0), seeds(2.0, 3.0)
    assert least_of([one, other]).seeds is other.seeds
    row = side_by_side([one, other, seeds(0.0, 9.0)])
    assert largest_difference(row).values.tolist() == [-2.0, 6.0]
    assert not least_of([one, Quantity({})]).known
    assert not largest_difference(Quantity({})).known


def test_a_rank_correlation_of_rows_without_a_seed_in_common() -> None:
    one, other = (Quantity.exactly(np.arange(5.0), seed=seed) for seed in (0, 7))
    assert spearman(one, other).values.tolist() == [pytest.approx(1.0)]


def test_the_mean_of_an_empty_row_is_nan() -> None:
    empty = Quantity.exactly(np.arange(3.0))[3:]
    for found in (empty.mean(), empty.minimum(), empty.maximum()):
        assert np.isnan(found.values).all()


def test_quantities_without_values_stay_unknown() -> None:
    nothing, something = Quantity({}), seeds(1.0, 2.0)
    for found in (
        nothing - something,
        something / nothing,
        -nothing,
        1 - nothing,
        nothing.mean(),
        nothing[0],
        side_by_side([]),
        side_by_side([something, nothing]),
        spearman([1, 2], nothing),
        correlation(nothing, something),
    ):
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
    assert np.isnan(spearman([1, 2, 3], Quantity.exactly([4.0, 4.0, 4.0])).values[0])


def test_a_ratio_to_nothing_warns_of_nothing() -> None:
    infinite = seeds(1.0) / seeds(0.0)
    assert infinite.values.tolist() == [np.inf]
    assert np.isnan(estimate_effect(infinite).value)
    divisor = Quantity({0: np.r_[2.0, 0.0, np.full(REPLICATES - 1, 2.0)]})
    found = estimate_effect(normal("a", 1.0, 0.1) / divisor)
    assert found.value == 0.5
    assert 0.3 < found.low < found.high < 0.7
