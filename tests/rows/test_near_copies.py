"""Near copies of rows, and fits to them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import connected_components

from skswsgp import SWSGPRegressor
from skswsgp._rows.near_copies import unite_near_copies

pytestmark = pytest.mark.matrix


def places_slowly(X, y):
    """Return the sets of near copies, row by row, in units of 1."""
    n = len(X)
    apart = np.linalg.norm(X[:, None] - X[None], axis=2)
    same = (y[:, None] == y[None]).all(axis=2)
    others = np.where(same, np.inf, apart).min(axis=1)
    linked = same & (apart < np.minimum(others[:, None], others[None]))
    _, place = connected_components(linked, directed=False)
    sets = [np.flatnonzero(place == k) for k in range(place.max() + 1)]
    sets = [rows for rows in sets if len(rows) > 1]
    sets = [r for r in sets if apart[np.ix_(r, r)].max() < others[r].min()]
    return sets if 2 * sum(map(len, sets)) >= n else []


@pytest.mark.parametrize("shift", [1e-9, 1e-3, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("Q", [1, 2])
def test_near_copies_are_those_of_their_definition(shift, Q, rng):
    places, values = rng.uniform(0.0, 4.0, size=(40, 2)), rng.normal(size=(40, Q))
    X = np.repeat(places, 3, axis=0) + shift * rng.normal(size=(120, 2))
    y, order = np.repeat(values, 3, axis=0), rng.permutation(120)
    X, y = X[order], y[order]
    united, sets = unite_near_copies(X, y, np.ones(2)), places_slowly(X, y)
    for rows in sets:
        assert (united[rows] == united[rows[0]]).all()
        assert (X[rows] == united[rows[0]]).all(axis=1).any()
    alone = np.setdiff1d(np.arange(len(X)), np.concatenate([[], *sets]))
    assert_array_equal(united[alone], X[alone])
    order = rng.permutation(len(X))
    again = unite_near_copies(X[order], y[order], np.ones(2))
    assert_array_equal(again, united[order])
    assert (shift < 0.01) == (len(np.unique(united, axis=0)) == 40)
    unit = np.array([1e3, 1e-2])
    assert_array_equal(unite_near_copies(X * unit, y, unit), united * unit)


def test_exact_copies_of_rows_change_nothing(rng):
    places = rng.uniform(size=(20, 2))
    X = np.repeat(places, 3, axis=0) + 1e-6 * rng.normal(size=(60, 2))
    y = np.repeat(rng.normal(size=20), 3)[:, None]
    rows = np.sort(rng.integers(0, 60, 60))
    rows = np.r_[np.arange(60), rows]
    united = unite_near_copies(X, y, np.ones(2))
    assert_array_equal(unite_near_copies(X[rows], y[rows], np.ones(2)), united[rows])


def test_levels_of_y_are_no_copies(rng):
    """Two clusters of one y each are no two places."""
    X = np.repeat([[0.0], [9.0]], 20, axis=0) + rng.uniform(size=(40, 1))
    y = np.repeat([[0.0], [1.0]], 20, axis=0)
    assert unite_near_copies(X, y, np.ones(1)) is X


def test_rows_that_are_no_near_copies_stay(rng):
    x = np.linspace(0.0, 1.0, 200)[:, None]
    levels = np.round(5.0 * np.sin(3.0 * x))  # runs of one y have no gap around them
    assert unite_near_copies(x, levels, np.ones(1)) is x
    X = np.r_[x, x[:60] + 1e-9]  # less than half of the rows
    y = rng.normal(size=(200, 1))
    y = np.r_[y, y[:60]]
    assert unite_near_copies(X, y, np.ones(1)) is X
    assert unite_near_copies(x, rng.normal(size=(200, 1)), np.ones(1)) is x


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("likelihood", "weight"),
    [("gaussian", None), ("gaussian", "some zero"), ("heteroscedastic", None)],
)
def test_a_fit_to_near_copies_is_that_to_copies(likelihood, weight, rng):
    places = rng.uniform(0.0, 10.0, size=(60, 2))
    y = np.repeat(np.sin(places[:, 0]) + 0.1 * rng.normal(size=60), 4)
    copies, new = np.repeat(places, 4, axis=0), rng.uniform(0.0, 10.0, size=(50, 2))
    near = copies + 1e-7 * rng.normal(size=copies.shape)
    if weight is not None:
        weight = np.where(np.arange(240) % 4 == 3, 0.0, 1.0)
    fits = [
        SWSGPRegressor(likelihood=likelihood, random_state=0).fit(X, y, weight)
        for X in (copies, near)
    ]
    moments = [model.predict(new, return_std=True) for model in fits]
    assert_allclose(*moments, rtol=1e-3, atol=1e-4)
    assert len(fits[1].inducing_points_) == 60


def test_plateaus_and_clusters_are_learned_from_all_rows(rng):
    x = np.repeat(np.arange(5.0), 20)[:, None] + 0.3 * rng.uniform(size=(100, 1))
    model = SWSGPRegressor(random_state=0).fit(x, np.round(x[:, 0] - 0.15))
    assert len(model.inducing_points_) == 100
    assert_allclose(model.predict(x), np.round(x[:, 0] - 0.15), atol=1e-3)
