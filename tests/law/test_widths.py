"""Averages of the sizes of residuals around rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skswsgp._law.fit_law import find_neighborhoods, left_out_points
from skswsgp._law.widths import (
    LEAST_NEAR_WEIGHT,
    NEAR,
    PRIOR_ROWS,
    measure_distances,
    measure_sizes,
    weights_within,
)
from skswsgp._rows.data import TrainingRows

SCALES = np.array([0.5, 0.5])  # of both columns, as nearest_to ignores them


def nearest_to(Z):
    def nearest(X, k):
        distance = np.linalg.norm(X[:, None] - Z[None], axis=2)
        return np.argsort(distance, axis=1, kind="stable")[:, :k].astype(np.int32)

    return nearest


class NearestRows:
    """Stands for `NearestPoints`, by all distances."""

    def __init__(self, X, Z):
        self.X, self.Z = X, Z

    def of(self, rows, k):
        return nearest_to(self.Z)(self.X[rows], k)

    def of_points(self, k):
        return nearest_to(self.Z)(self.Z, k)


def neighborhoods(X, Z, sample=None):
    every = np.arange(len(X))
    data = TrainingRows(X, X[:, :1], np.ones(len(X)))
    nearest, sample = NearestRows(X, Z), every if sample is None else sample
    return find_neighborhoods(data, every, nearest, SCALES, None, sample)


def average(rows, sizes, unit):
    """Return the average (Q,) of sizes (n, Q) of rows with weights (n,)."""
    total = rows @ sizes / unit + PRIOR_ROWS
    return total / (rows.sum() + PRIOR_ROWS)


def weight_of_points(x, Z, scales, counts):
    """Return the weights (M,) of all points at x, 0 but for the nearest.

    The edge, where they end, is found by halving.
    """
    distances = np.linalg.norm((Z - x) / scales, axis=1)
    used = nearest_to(Z)(x[None], NEAR + 1)[0]
    far, used = distances[used].max(), used[:-1]

    def mass(edge, rows):
        return np.sum(rows * np.maximum(1.0 - (distances[used] / edge) ** 2, 0.0))

    wanted, low, edge = mass(far, 1.0), 0.0, far
    if mass(far, counts[used]) > wanted:
        for _ in range(100):
            middle = 0.5 * (low + edge)
            enough = mass(middle, counts[used]) >= wanted
            low, edge = (low, middle) if enough else (middle, edge)
    edge = max(edge, min(far, 3.0 * distances[used].min()))
    weights = np.zeros(len(Z))
    for j in used:
        weights[j] = max(1.0 + LEAST_NEAR_WEIGHT - (distances[j] / edge) ** 2, 0.0)
    return weights / weights.max()


def logarithms(x, X, Z, sizes, scales):
    """Return the logarithms (Q,) at a point x, one row and one point at a time."""
    own = nearest_to(Z)(X, 1)[:, 0]
    weights = weight_of_points(x, Z, scales, np.bincount(own, minlength=len(Z)))
    return np.log(average(weights[own], sizes, sizes.mean(axis=0)))


@pytest.fixture(params=[300, 1000], ids=["rows are points", "three rows a point"])
def places(request):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    X = Z if request.param == 300 else rng.normal(size=(request.param, 2))
    return X, Z, rng.exponential(size=(len(X), 2)) * np.exp(X[:, :1])


def test_averages_at_new_rows_are_those_of_loops(places):
    X, Z, sizes = places
    around = neighborhoods(X, Z)
    measured = measure_sizes(sizes, around.own, len(Z))
    new = np.random.default_rng(1).normal(size=(5, 2))
    lists = nearest_to(Z)(new, NEAR + 1)
    found = measured.logarithms(measure_distances(new, Z, lists, SCALES))
    for x, logs in zip(new, found, strict=True):
        assert_allclose(logs, logarithms(x, X, Z, sizes, SCALES))


def test_averages_without_a_row_are_those_of_a_fit_without_it(places):
    X, Z, sizes = places
    around = neighborhoods(X, Z)
    measured = measure_sizes(sizes, around.own, len(Z))
    near = left_out_points(measured, around)
    found = measured.logarithms(near, around.own, sizes)
    # the unit is the average of all rows, this one included
    unit = sizes.mean(axis=0)
    for i in (0, 17, 123):
        rest = np.arange(len(X)) != i
        alone = np.sum(around.own == around.own[i]) == 1
        points = Z[np.arange(len(Z)) != around.own[i]] if alone else Z
        own = nearest_to(points)(X[rest], 1)[:, 0]
        counts = np.bincount(own, minlength=len(points))
        rows = weight_of_points(X[i], points, SCALES, counts)[own]
        assert_allclose(found[i], np.log(average(rows, sizes[rest], unit)))


def test_averages_change_smoothly_along_a_line(places):
    X, Z, sizes = places
    around = neighborhoods(X, Z)
    measured = measure_sizes(sizes, around.own, len(Z))
    steps = []
    for n in (1_000, 10_000):
        line = np.linspace([-1.0, -0.5], [1.0, 0.7], n)
        lists = nearest_to(Z)(line, NEAR + 1)
        logs = measured.logarithms(measure_distances(line, Z, lists, SCALES))
        steps.append(np.abs(np.diff(logs, axis=0)).max())
    assert steps[1] < 0.15 * steps[0]  # a jump would be as large in small steps


def test_points_that_are_all_as_far_have_equal_weights():
    assert_allclose(weights_within(np.full((2, 21), 3.0)), np.ones((2, 20)))
    assert_allclose(weights_within(np.zeros((2, 21))), np.ones((2, 20)))
    for distance in (0.0, 3.0):
        weights = weights_within(np.full((2, 21), distance), np.full((2, 20), 9.0))
        assert_allclose(weights, np.ones((2, 20)))


def test_points_with_a_row_each_have_the_weights_of_points(rng):
    distances = np.sort(rng.exponential(size=(50, 21)), axis=1)
    ones = np.ones((50, 20))
    assert_allclose(weights_within(distances, ones), weights_within(distances))
    fewer = np.where(rng.uniform(size=(50, 20)) < 0.3, 0.0, ones)
    assert_allclose(weights_within(distances, fewer), weights_within(distances))


def test_a_place_with_enough_rows_is_alone():
    distances = np.array([[0.0, 1.0, 1.0, 2.0, 2.0, 3.0]])
    counts = np.array([[9.0, 9.0, 9.0, 9.0, 9.0]])
    assert_allclose(weights_within(distances, counts), [[1.0, 0.0, 0.0, 0.0, 0.0]])
