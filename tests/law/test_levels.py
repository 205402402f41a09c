"""Errors between the levels of a grid."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._law.levels import (
    Levels,
    alike_squares,
    are_levels,
    find_levels,
    squares_between,
)

SCALES = np.array([0.3, 0.8])
KERNEL, NOISE = ConstantKernel(2.0) * RBF(SCALES), np.array([0.01])
METRIC = np.diag(1.0 / SCALES)
WORK = 1e9


def on_levels(*levels):
    """Return the rows (n, D) of a full factorial table of [0, 1]."""
    axes = np.meshgrid(*(np.linspace(0.0, 1.0, k) for k in levels), indexing="ij")
    return np.column_stack([axis.ravel() for axis in axes])


def posterior_of(X, y, noise=NOISE):
    return LogPosterior(KERNEL, noise, X, y, np.ones_like(y))


def mean_square(X, y, here, gone):
    """Return that of errors of rows `here`, without all that are `gone`."""
    return np.mean(errors_and_variances(X, y, here, gone)[0] ** 2)


def errors_and_variances(X, y, here, gone):
    rest = ~gone
    C = KERNEL(X[rest]) + NOISE * np.eye(rest.sum())
    k = KERNEL(X[here], X[rest])
    variance = KERNEL.diag(X[here]) + NOISE - np.sum(k.T * np.linalg.solve(C, k.T), 0)
    return y[here] - k @ np.linalg.solve(C, y[rest]), variance


def by_hand(X, y, level):
    """Return squares beside each of `level` (n,), and both sums, for one output."""
    numbers, y = np.unique(level, return_inverse=True)[1], y[:, 0]
    k, n = numbers.max() + 1, len(y)
    single = [mean_square(X, y, one, one) for one in np.eye(n, dtype=bool)]
    rows = np.array([np.mean(np.array(single)[numbers == g]) for g in range(k)])
    alone = np.full(k, np.nan)
    wide = np.full(k, np.nan)
    for g in range(1, k - 1):
        alone[g] = mean_square(X, y, numbers == g, numbers == g)
    variances = [
        errors_and_variances(X, y, numbers == g, numbers == g)[1].mean()
        for g in range(1, k - 1)
    ]
    for g in range(2, k - 2):
        wide[g] = mean_square(X, y, numbers == g, abs(numbers - g) <= 1)
    share = np.nansum((alone - rows)[1:-1]) / np.nansum(alone)
    inner = slice(2, k - 2)
    E2, T2 = np.sum((alone - rows)[inner]), np.sum((wide - rows)[inner])
    alone[0], alone[-1] = alone[1], alone[-2]
    padded = np.r_[alone[0], alone, alone[-1]]
    shared = [padded[g : g + 3].mean() for g in range(k)]
    ratio = max(share, 0.0) * (E2 / T2) ** 0.5
    return np.array(shared) * ratio, alone[1:-1].sum(), sum(variances)


def test_squares_are_those_of_levels_left_out_alone_and_with_both_neighbours(rng):
    X = rng.permutation(on_levels(7, 5))
    y = np.column_stack([np.tanh(9.0 * X[:, 0] - 4.0), np.abs(X[:, 0] - 0.3)])
    numbers = np.unique(X[:, 0], return_inverse=True)[1]
    found, sums = squares_between(posterior_of(X, y, np.tile(NOISE, 2)), numbers)
    for q in range(2):
        expected, errors, variances = by_hand(X, y[:, [q]], X[:, 0])
        assert expected.max() > 1e-4
        assert_allclose(found[:, q], expected, rtol=1e-6)
        assert_allclose(sums[:, q], [errors, variances], rtol=1e-6)


def test_few_levels_gain_nothing_from_smaller_gaps():
    X = on_levels(4, 5)
    y = np.tanh(9.0 * X[:, :1] - 4.0)
    numbers = np.unique(X[:, 0], return_inverse=True)[1]
    found = squares_between(posterior_of(X, y), numbers)[0][:, 0]
    y, single = y[:, 0], np.eye(20, dtype=bool)
    alone = [mean_square(X, y, numbers == g, numbers == g) for g in (1, 1, 2, 2)]
    inner = np.isin(numbers, (1, 2))
    rows = np.mean([mean_square(X, y, one, one) for one in single[inner]])
    alone = np.array([alone[0], *alone, alone[-1]])
    shared = np.convolve(alone, np.ones(3) / 3.0, "valid")
    assert_allclose(found, shared * (1.0 - 2.0 * rows / (alone[1] + alone[-1])))


def test_noise_is_no_error_between_levels(rng):
    X = on_levels(9, 9)
    y = np.sin(3.0 * X[:, :1]) + rng.normal(size=(81, 1))
    numbers = np.unique(X[:, 0], return_inverse=True)[1]
    kernel = ConstantKernel(0.5) * RBF([1.0, 3.0])
    best = LogPosterior(kernel, np.ones(1), X, y, np.ones((81, 1)))
    assert squares_between(best, numbers)[0].mean() < 0.1
    assert not squares_between(posterior_of(X, 0.0 * y), numbers)[0].any()


def test_levels_are_found_along_principal_directions(rng):
    X = rng.permutation(on_levels(8, 8))
    y = np.tanh(6.0 * (X.sum(axis=1, keepdims=True) - 1.0))
    turned = np.array([[1.0, 0.8], [0.8, 1.0]])  # towards the sum of columns
    found = find_levels(posterior_of(X, y), X, turned, WORK)
    assert_allclose(np.ptp(found.directions[:, 0]), 0.0, atol=1e-12)
    assert [len(values) for values in found.values] == [15, 15]
    straight = find_levels(posterior_of(X, y), X, METRIC, WORK)
    assert_allclose(np.abs(straight.directions), np.eye(2), atol=1e-12)
    assert [len(values) for values in straight.values] == [8, 8]


def test_units_of_columns_do_not_matter(rng):
    X = on_levels(6, 7)
    y, units = np.abs(X[:, :1] - 0.4) + X[:, 1:], np.array([1e-4, 1e5])
    turned = np.array([[1.0, 0.3], [0.3, 2.0]])
    one = find_levels(posterior_of(X, y), X, turned, WORK)
    other = find_levels(posterior_of(X, y), X * units, turned / units[:, None], WORK)
    assert (one is None) == (other is None)
    one = find_levels(posterior_of(X, y), X, METRIC, WORK)
    other = find_levels(posterior_of(X, y), X * units, METRIC / units[:, None], WORK)
    new = rng.uniform(size=(20, 2))
    assert_allclose(other.between(new * units), one.between(new))


def test_random_rows_have_no_levels(rng):
    X = rng.uniform(size=(200, 2))
    y = X[:, :1]
    assert find_levels(posterior_of(X, y), X, METRIC, WORK) is None
    X[:, 0] = rng.integers(0, 2, size=200)  # neither value lies between others
    assert find_levels(posterior_of(X, y), X, METRIC, WORK) is None
    X[:, 0] = rng.integers(0, 6, size=200)
    found = find_levels(posterior_of(X, y), X, METRIC, WORK)
    assert [len(values) for values in found.values] == [6]
    assert find_levels(posterior_of(X, y), X, METRIC, 1e3) is None  # too dear


def test_rows_that_f_hardly_tells_apart_are_no_levels(rng):
    """Length-scales of a straight line are thousands of times the range of columns."""
    X = rng.uniform(size=(300, 2))
    assert find_levels(posterior_of(X, X[:, :1]), X, 1e-5 * METRIC, WORK) is None


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([4, 4, 4], True),
        ([4, 4], False),
        ([9, 4, 4], False),  # most rows
        ([2, 2, 2, 1], True),
        ([2, 2, 2, 1, 1], False),  # rounded numbers
        ([1, 2, 3, 4, 5, 4, 3, 2, 1], True),
        ([2, 2, 1], False),
    ],
)
def test_what_levels_are(sizes, expected):
    assert are_levels(np.array(sizes)) == expected


def test_errors_are_largest_halfway_and_none_at_levels_and_beyond():
    squares = np.array([[1.0, 4.0], [3.0, 4.0], [3.0, 8.0]])
    values = (np.array([0.0, 1.0, 3.0]),)
    levels = Levels(np.ones((1, 1)), values, (squares,), np.ones(2))
    at = levels.between(np.array([[0.0], [1.0], [3.0], [-5.0], [9.0]]))
    assert_allclose(at, 0.0, atol=1e-12)
    halfway = levels.between(np.array([[0.5], [2.0]]))
    assert_allclose(halfway, [[2.0, 4.0], [3.0, 6.0]])
    assert_allclose(levels.between(np.array([[0.25]])), [[0.75, 2.0]])
    two = levels._replace(
        directions=np.eye(2), values=2 * levels.values, squares=2 * levels.squares
    )
    both = two.between(np.array([[0.5, 2.0], [0.5, 0.0]]))
    assert_allclose(both, [[5.0, 10.0], [2.0, 4.0]])


def with_idle_column(levels, rng):
    """Return rows whose second column hardly matters, and targets."""
    X = np.stack(np.meshgrid(np.linspace(0.0, 1.0, levels), np.arange(8.0)), -1)
    X = rng.permutation(X.reshape(-1, 2))
    return X, rng.standard_normal((len(X), 1))


IDLE = ConstantKernel(2.0) * RBF([0.15, 1e5])


def of_idle(X, y, kernel=IDLE):
    return alike_squares(LogPosterior(kernel, NOISE, X, y, np.ones_like(y)))


def test_all_rows_that_are_alike_are_left_out_together(rng):
    X, y = with_idle_column(5, rng)
    errors = []
    for level in set(X[:, 0]):
        gone = X[:, 0] == level
        C = IDLE(X[~gone]) + NOISE * np.eye(np.sum(~gone))
        k = IDLE(X[gone], X[~gone])
        variance = 2.0 + NOISE - np.sum(k.T * np.linalg.solve(C, k.T), axis=0)
        error = y[gone, 0] - k @ np.linalg.solve(C, y[~gone, 0])
        errors.append(error**2 / variance)
    assert_allclose(of_idle(X, y), np.mean(errors), rtol=1e-6)


def test_rows_that_differ_or_are_all_alike_or_a_chain_have_no_like(rng):
    X, y = with_idle_column(5, rng)
    assert of_idle(1e6 * X, y) is None
    assert of_idle(1e-4 * X, y) is None
    assert of_idle(*with_idle_column(2, rng)) is None
    x = np.exp(1.5 * rng.normal(size=(300, 1)))  # near each other by chance
    near = ConstantKernel(10.0) * RBF(20.0)
    assert np.mean((near(x) > 10.0 * (1.0 - 1e-6)).sum(axis=0) > 1) > 0.5
    assert of_idle(x, np.sqrt(x), near) is None


def test_half_of_the_rows_may_have_no_like(rng):
    X, y = with_idle_column(20, rng)
    one_each = X[:, 1] == 0.0
    for share, found in ((0.5, True), (0.96, False)):
        kept = one_each | (X[:, 0] > share)  # levels of less than that have one row
        assert (of_idle(X[kept], y[kept]) is not None) == found


@pytest.mark.parametrize(
    "function",
    [
        lambda X: np.abs(X[:, 0] - 0.37) + 0.5 * np.sin(4.0 * X[:, 1]),
        pytest.param(
            lambda X: np.tanh(12.0 * (X[:, 0] - 0.45)) + 0.3 * np.sin(5.0 * X[:, 1]),
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda X: np.tanh(12.0 * (X.sum(axis=1) - 1.0)) + 0.3 * np.sin(5 * X[:, 0]),
            marks=pytest.mark.full,
        ),
    ],
    ids=["kink", "step", "step along a sum"],
)
def test_a_grid_without_noise_is_not_sure_of_what_lies_between(function):
    """Intervals of 90 % held .04, .24 and .43 without levels that are left out."""
    X, new = on_levels(8, 8), np.random.default_rng(1).random((500, 2))
    model = SWSGPRegressor(random_state=0).fit(X, function(X))
    lower, upper = model.predict_interval(new, coverage=0.9)
    y = function(new)
    assert np.mean((lower <= y) & (y <= upper)) > 0.7
    lower, upper = model.predict_interval(X, coverage=0.9)
    assert np.max(upper - lower) < 0.02  # at the rows themselves nothing changes
