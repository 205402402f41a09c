"""Statistics that decide between candidates."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skswsgp._rows.statistics import (
    climbed,
    effective_sample_size,
    first_of_each,
    is_gain,
    merge_duplicates,
    order_of_content,
)


def test_gains_are_two_standard_errors_and_what_parameters_cost(rng):
    gains = np.r_[np.full(50, 1.0), np.full(50, -0.9)]  # mean 0.05, error 0.095
    assert not is_gain(np.tile(gains, 4))
    assert is_gain(np.tile(gains, 20))
    assert is_gain(gains, weight=np.r_[np.full(50, 1.0), np.full(50, 0.5)])
    assert not is_gain(-np.tile(gains, 20))
    assert not is_gain(np.full(10, 0.1), cost=1.1)
    assert is_gain(np.full(10, 0.1), cost=0.9)
    assert not is_gain(np.ones(1))
    assert not is_gain(np.ones(0))
    assert not is_gain(np.ones(3), weight=np.array([0.0, 2.0, 0.0]))
    by_chance = [is_gain(rng.normal(size=100)) for _ in range(1_000)]
    assert 0.005 < np.mean(by_chance) < 0.05


def test_rows_with_different_targets_are_not_merged(rng):
    X = np.repeat(np.arange(4.0), 40)[:, None]
    y = X + rng.choice([-1.0, 1.0], size=X.shape)
    X_left, y_left, weight = merge_duplicates(X, y, np.ones(160))
    assert len(X_left) == len(y_left) == len(weight) == 160


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_numbers_of_any_type_find_their_copies(dtype):
    keys = np.array([[3, 0], [0, 2], [3, 0], [-1, 2], [0, 2]], dtype)
    if dtype != np.int64:
        keys[2, 1], keys[4, 0] = -0.0, -0.0
    first, group = first_of_each(keys)
    np.testing.assert_array_equal(first, [0, 1, 3])
    np.testing.assert_array_equal(group, [0, 1, 0, 2, 1])


def test_effective_sample_size():
    assert effective_sample_size(np.zeros(0)) == 0.0
    assert effective_sample_size(np.zeros(3)) == 0.0
    assert effective_sample_size(np.array([0.0, 2.0, 0.0])) == 1.0
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7.0)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(1.6)
    huge = np.array([1e200, 1e200, 1.0])
    assert effective_sample_size(huge) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("first", "best", "seen"),
    [(0, 2, {0, 1, 2, 3}), (2, 2, {1, 2, 3}), (4, 2, {1, 2, 3, 4})],
)
def test_climb_looks_at_the_neighbours_of_the_maximum_only(first, best, seen):
    values, asked = [1.0, 2.0, 3.0, 2.5, 0.0], []

    def value(place):
        asked.append(place)
        return values[place]

    place, found = climbed(value, len(values), first)
    assert place == best
    assert found == {each: values[each] for each in seen}
    assert sorted(asked) == sorted(seen)  # each once


def test_climb_leaves_places_without_a_value():
    values = [1.0, 0.0, -np.inf, -np.inf]
    for first in range(4):
        assert climbed(values.__getitem__, 4, first)[0] == 0
    assert climbed(lambda _: -np.inf, 4, 2)[1].keys() == set(range(4))


def test_climb_of_a_single_place_takes_it():
    assert climbed(lambda _: np.nan, 1, 0)[0] == 0


@pytest.mark.parametrize("levels", [None, 10, 3])
def test_the_order_of_content_does_not_depend_on_units_nor_places(levels, rng):
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    if levels is not None:  # a grid, where sums of columns are often the same
        X = rng.integers(levels, size=(200, 3)) / 7.0
    X[100:150] = X[:50]  # rows of the same X, other y
    every, places = np.arange(200), rng.permutation(200)
    order = order_of_content(X, every, [y])
    shuffled = order_of_content(X[places], every, [y[places]])
    assert_array_equal(places[shuffled], order)
    units = np.array([1e-3, 1.0, 1e5])
    assert_array_equal(order_of_content(units * X + 7.0, every, [y]), order)
    if levels is None:
        turned = order_of_content(X[:, [2, 0, 1]], every, [y])
        assert_array_equal(turned, order)
    some = np.sort(places[:90])
    part = order_of_content(X, some, [y[some]])
    assert_array_equal(part, order_of_content(X[some], np.arange(90), [y[some]]))
