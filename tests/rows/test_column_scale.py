"""Scales of columns, against scikit-learn, definitions and central differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import PowerTransformer

from skswsgp._rows.column_scale import (
    INCREASING,
    MOST_KNOTS,
    changes_columns,
    fit_columns,
)
from skswsgp.explain.columns import column_slopes


@pytest.fixture
def X(rng):
    """A skewed, a symmetric, a constant, a negative, a two-level and a tied column."""
    values = rng.normal(size=(300, 6))
    values[:, 0] = np.exp(2 * values[:, 0])
    values[:, 2] = 7.0
    values[:, 3] = -np.exp(values[:, 3])
    values[:, 4] = rng.integers(2, size=300)
    values[:, 5] = np.maximum(values[:, 5], 0.3)
    return values


@pytest.fixture(params=INCREASING)
def columns(request, X):
    return fit_columns(request.param, X, np.ones(len(X)))


def test_powers_are_those_of_scikit_learn(X, rng):
    X[:, 0] = rng.gamma(3.0, size=300)
    ours = fit_columns("yeo-johnson", X, np.ones(len(X)))
    Z = (X[:, :2] - ours.center[:2]) / ours.unit[:2]
    theirs = PowerTransformer(standardize=False).fit(Z)
    assert_allclose(ours.power[:2], theirs.lambdas_, atol=1e-3)
    expected = PowerTransformer(standardize=False).fit(Z)
    expected.lambdas_ = ours.power[:2]
    assert_allclose(ours.forward(X)[:, :2], expected.transform(Z), rtol=1e-9)


def test_ranks_are_shares_of_smaller_rows(X):
    shares = fit_columns("ranks", X, np.ones(len(X))).forward(X)
    smaller = np.mean(X[:, None] < X, axis=0) + 0.5 * np.mean(X[:, None] == X, axis=0)
    varies = [0, 1, 3, 4, 5]
    assert_allclose(shares[:, varies], smaller[:, varies], rtol=1e-12)


@pytest.mark.parametrize("change", [np.exp, np.cbrt, np.arctan])
def test_ranks_do_not_depend_on_the_scale_of_a_column(change, X):
    weight = np.ones(len(X))
    before = fit_columns("ranks", X, weight).forward(X)
    after = fit_columns("ranks", change(X / 9), weight).forward(change(X / 9))
    varies = np.ptp(X, axis=0) > 0.0
    assert_allclose(after[:, varies], before[:, varies], rtol=1e-9)


def test_many_values_have_few_knots(rng):
    x = rng.normal(size=(5000, 1))
    columns = fit_columns("ranks", x, np.ones(5000))
    assert len(columns.values[0]) <= MOST_KNOTS
    expected = np.argsort(np.argsort(x[:, 0])) / 5000
    assert_allclose(columns.forward(x)[:, 0], expected, atol=2 / MOST_KNOTS)


def test_slopes_are_positive_and_those_of_differences(columns, X, rng):
    inside = X.min(axis=0) + rng.random((50, 6)) * np.ptp(X, axis=0)
    points = np.vstack([inside, X.min(axis=0) - 3.0, X.max(axis=0) + 3.0])
    h = 1e-6 * np.maximum(np.ptp(X, axis=0), 1.0)
    ends = columns.forward(points + h), columns.forward(points - h)
    slopes = column_slopes(columns, points)
    assert (slopes >= 0.0).all()
    near_knot = column_slopes(columns, points + h) != column_slopes(columns, points - h)
    if columns.name == "yeo-johnson":
        near_knot[:] = False
    difference = (ends[0] - ends[1]) / (2 * h)
    assert_allclose(difference[~near_knot], slopes[~near_knot], rtol=1e-4, atol=1e-9)


def test_ranks_are_linear_beyond_training_rows(X):
    columns = fit_columns("ranks", X, np.ones(len(X)))
    for end in X.min(axis=0), X.max(axis=0):
        away = np.where(end == X.max(axis=0), 1.0, -1.0)
        first, second, third = columns.forward(end + away * np.array([[1], [2], [3e8]]))
        assert_allclose(third - first, (second - first) * (3e8 - 1), rtol=1e-6)
        assert np.isfinite(third).all()


def test_a_row_a_little_beyond_a_long_tail_has_a_rank_near_that_of_the_last():
    x = np.random.default_rng(0).standard_cauchy((2000, 1))
    columns = fit_columns("ranks", x, np.ones(2000))
    for end in x.min(), x.max():
        near, far = columns.forward(np.array([[2.0 * end], [1e4 * end]]))[:, 0] - 0.5
        assert 0.5 < abs(near) < 0.6
        assert abs(far) > 100.0
    even = fit_columns("ranks", np.linspace(0.0, 1.0, 2000)[:, None], np.ones(2000))
    assert even.forward(np.array([[2.0]]))[0, 0] == pytest.approx(2.0, abs=1e-3)


def test_a_tie_at_the_least_value_makes_no_steep_ranks_below_it():
    x = np.r_[np.zeros(50), np.linspace(1e-9, 1.0, 50)][:, None]
    columns = fit_columns("ranks", x, np.ones(100))
    assert columns.forward(np.array([[-0.1]]))[0, 0] > 0.1


def test_positive_columns_may_have_logarithms(rng):
    x = np.exp(2.0 * rng.normal(size=(500, 1)))
    columns = fit_columns("yeo-johnson", x, np.ones(500))
    assert columns.is_log.all()
    new = np.array([[x.min()], [1.0], [10.0], [1000.0]])
    steps = np.diff(columns.forward(new)[:, 0]) / np.diff(np.log(new[:, 0]))
    assert_allclose(steps, 1.0, rtol=0.01)
    columns = fit_columns("yeo-johnson", -x, np.ones(500))  # of which there are none
    assert not columns.is_log.any()
    assert columns.center[0] == pytest.approx(np.median(-x))


def test_logarithms_go_on_through_zero(rng):
    x = np.exp(2.0 * rng.normal(size=(500, 1)))
    columns = fit_columns("yeo-johnson", x, np.ones(500))
    new = x.min() * np.array([[1.0], [0.1], [0.0], [-0.1], [-1.0], [-1e3]])
    moved, slopes = columns.forward(new)[:, 0], column_slopes(columns, new)[:, 0]
    assert moved[2] == 0.0
    assert_allclose(moved[:2], -moved[[4, 3]])
    assert (np.abs(moved) < 10.0).all()
    h = 1e-4 * x.min()
    difference = columns.forward(new + h) - columns.forward(new - h)
    assert_allclose(slopes, difference[:, 0] / (2.0 * h), rtol=1e-5)


@pytest.mark.parametrize(
    "x",
    [
        np.full(60, 5.0),
        np.array([5.0]),
        1e16 + 2.0 * (np.arange(60) % 3),
        np.linspace(1e6, 1e6 + 1.0, 60),
        5e-324 * np.arange(1.0, 61.0),
    ],
    ids=["constant", "one row", "few last places", "far from zero", "denormal"],
)
def test_values_that_a_logarithm_hardly_moves_or_cannot_tell_stay(x):
    columns = fit_columns("yeo-johnson", x[:, None], np.ones(len(x)))
    moved = columns.forward(x[:, None])[:, 0]
    assert len(np.unique(moved)) == len(np.unique(x)) or x[0] < 1e-300
    assert np.isfinite(moved).all()
    assert x[0] < 1e-300 or not columns.is_log.any()


def test_weights_count_rows(columns, X, rng):
    weight = rng.integers(1, 4, len(X))
    weighted = fit_columns(columns.name, X, weight).forward(X)
    repeated = np.repeat(X, weight, axis=0)
    again = fit_columns(columns.name, repeated, np.ones(len(repeated))).forward(X)
    # medians of weights and of repeated rows lie between the same two values
    some = {"rtol": 1e-9} if columns.name == "ranks" else {"atol": 0.05}
    assert_allclose(weighted[:, :2], again[:, :2], **some)


def test_rows_beyond_a_long_tail_stay_far():
    x = np.r_[np.zeros(60), np.exp(np.linspace(-6, 6, 40))][:, None]
    columns = fit_columns("yeo-johnson", x, np.ones(100))
    assert columns.power[0] < 0.1
    ends = columns.forward(np.array([[0.0], [x.max()], [1000 * x.max()]]))[:, 0]
    assert ends[2] - ends[1] >= 2.0 * (ends[1] - ends[0])


def test_columns_that_span_hundreds_of_orders_of_magnitude_have_logarithms(rng):
    logs = rng.uniform(-300.0, 0.0, (400, 1))
    columns = fit_columns("yeo-johnson", 10.0**logs, np.ones(400))
    moved = columns.forward(10.0**logs)
    assert columns.is_log.all()
    assert np.corrcoef(moved[:, 0], logs[:, 0])[0, 1] > 0.999


@pytest.mark.parametrize("unit", [1e-170, 1e160])
def test_a_change_is_told_in_any_unit(unit, rng):
    X = unit * np.exp(3 * rng.normal(size=(200, 1)))
    for name in INCREASING:
        assert changes_columns(fit_columns(name, X, np.ones(200)), X)


def test_time_stamps_keep_their_order(columns, rng):
    x = 1.7e9 + np.sort(rng.random((100, 1)), axis=0)
    values = fit_columns(columns.name, x, np.ones(100)).forward(x)
    assert (np.diff(values[:, 0]) > 0.0).all()


def test_a_scale_that_changes_nothing_is_told(rng):
    X = np.column_stack([rng.random(500), np.ones(500), rng.integers(2, size=500)])
    ranks = fit_columns("ranks", X, np.ones(500))
    assert not changes_columns(ranks, X)
    X[:, 0] = np.exp(5 * X[:, 0])
    assert changes_columns(fit_columns("ranks", X, np.ones(500)), X)


def test_a_linear_power_leaves_columns_as_they_are(X):
    columns = fit_columns("yeo-johnson", X, np.ones(len(X)))
    linear = columns._replace(power=np.ones(6), is_log=np.zeros(6, dtype=bool))
    expected = (X - columns.center) / columns.unit
    assert_allclose(linear.forward(X), expected, rtol=1e-12, atol=1e-12)
    assert_array_equal(column_slopes(linear, X) > 0.0, True)
