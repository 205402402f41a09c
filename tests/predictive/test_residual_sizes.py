"""Averages of the sizes of residuals around rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skswsgp._predictive.fit_law import around_each, find_neighborhoods
from skswsgp._predictive.residual_sizes import (
    NEAR,
    PRIOR_ROWS,
    WIDE,
    measure_sizes,
)


def nearest_to(Z):
    def nearest(X, k):
        distance = np.linalg.norm(X[:, None] - Z[None], axis=2)
        return np.argsort(distance, axis=1, kind="stable")[:, :k].astype(np.int32)

    return nearest


def logarithms(x, X, Z, sizes):
    """Return the logarithms (2, Q) at a point x, one row and one point at a time."""
    nearest = nearest_to(Z)
    own = nearest(X, 1)[:, 0]
    used = nearest(x[None], NEAR)[0]
    mean = sizes.mean(axis=0)

    def average(points):
        rows = np.isin(own, points)
        total = sizes[rows].sum(axis=0) / mean + PRIOR_ROWS
        return total / (rows.sum() + PRIOR_ROWS)

    wide = [average(nearest(Z[[j]], WIDE)[0]) for j in used]
    return np.log([average(used), np.mean(wide, axis=0)])


@pytest.fixture(params=[300, 1000], ids=["rows are points", "three rows a point"])
def places(request):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    X = Z if request.param == 300 else rng.normal(size=(request.param, 2))
    return X, Z, rng.exponential(size=(len(X), 2)) * np.exp(X[:, :1])


def test_averages_at_new_rows_are_those_of_loops(places):
    X, Z, sizes = places
    around = find_neighborhoods(X, Z, nearest_to(Z))
    measured = measure_sizes(sizes, around.own, around.wide)
    new = np.random.default_rng(1).normal(size=(5, 2))
    found = measured.logarithms(nearest_to(Z)(new, NEAR))
    for x, logs in zip(new, found, strict=True):
        assert_allclose(logs, logarithms(x, X, Z, sizes))


def test_averages_without_a_row_are_those_of_a_fit_without_it(places):
    X, Z, sizes = places
    around = find_neighborhoods(X, Z, nearest_to(Z))
    measured = measure_sizes(sizes, around.own, around.wide)
    near = around_each(around, measured.counts[around.own] == 1)
    found = measured.without_own(near, around.own, sizes, around.wide)
    # the unit is the average of all rows, this one included
    unit = sizes.mean(axis=0)
    for i in (0, 17, 123):
        rest = np.arange(len(X)) != i
        alone = np.sum(around.own == around.own[i]) == 1
        points = Z[np.arange(len(Z)) != around.own[i]] if alone else Z
        used = nearest_to(points)(X[[i]], NEAR)[0]
        rows = np.isin(nearest_to(points)(X[rest], 1)[:, 0], used)
        total = sizes[rest][rows].sum(axis=0) / unit + PRIOR_ROWS
        expected = total / (rows.sum() + PRIOR_ROWS)
        assert_allclose(found[i, 0], np.log(expected))


def test_earlier_rows_count_as_well(places):
    X, Z, sizes = places
    around = find_neighborhoods(X, Z, nearest_to(Z))
    first = around.own < 150
    parts = [(sizes[rows], around.own[rows], around.wide) for rows in (first, ~first)]
    earlier = measure_sizes(*parts[0])
    both = measure_sizes(*parts[1], earlier)
    whole = measure_sizes(sizes, around.own, around.wide)
    for array, expected in zip(both, whole, strict=True):
        assert_allclose(array, expected)
