"""Waves along columns, by which scales of errors change."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime, minimize

from skswsgp._law import student
from skswsgp._law.scale_waves import (
    MOST_HALF_WAVES,
    choose_waves,
    shares_of,
    wave_gains,
    waves_of,
)
from skswsgp._rows.column_scale import rank_columns


def drawn(n, log_scale, freedom=np.inf, seed=0, n_columns=3):
    """Return errors z (n,), a column of ones, ranks and shares (n, D) of columns.

    `log_scale` is a function of the columns, which are uniform in [-1, 1].
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, n_columns))
    z = rng.standard_normal(n) if np.isinf(freedom) else rng.standard_t(freedom, n)
    ones = np.ones((n, 1))
    ranks = rank_columns(X, np.ones(n))
    return z * np.exp(log_scale(X)), ones, ranks, shares_of(X, ranks)


def pairs(waves):
    return list(zip(waves.places.tolist(), waves.halves.tolist(), strict=True))


def test_waves_are_cosines_of_ranks_and_constant_beyond_the_rows():
    X = np.array([[3.0, 0.0], [1.0, 5.0], [2.0, 0.0], [7.0, 5.0]])
    waves = waves_of([(0, 2), (1, 1)], rank_columns(X, np.ones(4)))
    waves = waves._replace(coefficients=np.array([0.5, -2.0]))
    shares = np.array([[0.625, 0.25], [0.125, 0.75], [0.375, 0.25], [0.875, 0.75]])
    expected = 0.5 * np.cos(2 * np.pi * shares[:, 0]) - 2.0 * (1.0 - 2.0 * shares[:, 1])
    assert_allclose(waves.logarithms(X), expected)
    far = waves.logarithms(np.array([[1e9, -50.0], [-1e9, 99.0]]))
    assert_allclose(far, waves.logarithms(np.array([[7.0, 0.0], [1.0, 5.0]])))


@pytest.mark.parametrize("freedom", [4.0, 20.0, np.inf])
def test_scores_are_derivatives_and_have_their_variance(freedom):
    z = np.array([-3.0, 0.2, 1.0, 40.0])
    slope, information = student.score(z, 0.3, freedom)
    numeric = [
        approx_fprime([0.3], lambda s, e=e: student.log_density(e, s[0], freedom))[0]
        for e in z
    ]
    assert_allclose(slope, numeric, rtol=1e-5)
    z, *_ = drawn(400_000, lambda X: 0.0, freedom)
    slope, _ = student.score(z, 0.0, freedom)
    assert_allclose(slope.mean(), 0.0, atol=0.01)
    assert_allclose(slope.var(), information, rtol=0.02)


@pytest.mark.parametrize("freedom", [5.0, np.inf])
def test_gains_are_those_of_the_largest_likelihood(freedom):
    z, ones, _, shares = drawn(4000, lambda X: 0.1 * X[:, 1], freedom)
    gains = wave_gains(z, ones, shares)
    assert gains.shape == (3, MOST_HALF_WAVES)
    wave = 1.0 - 2.0 * shares[:, 1]

    def loss(c):
        return -student.log_density(z, c[0] + c[1] * wave, freedom).sum()

    without = minimize(lambda c: loss([c[0], 0.0]), [0.0]).fun
    most = without - minimize(loss, np.zeros(2)).fun
    assert most > 3.0
    assert_allclose(gains[1, 0], most, rtol=0.1)


def test_a_feature_that_is_known_gains_nothing():
    z, ones, _, shares = drawn(2000, lambda X: X[:, 0])
    known = np.column_stack([ones, shares[:, 0]])
    assert wave_gains(z, ones, shares)[0, 0] > 100.0
    assert wave_gains(z, known, shares)[0, 0] < 0.1
    twice = np.column_stack([shares, shares[:, 0]])  # a copy of a column
    ranks = rank_columns(twice, np.ones(2000))
    found = choose_waves(z, ones, ranks, shares_of(twice, ranks))
    assert 1 in found.halves and set(found.places.tolist()) <= {0, 3}
    assert len(set(pairs(found))) == len(found.places) < 4


def test_the_waves_of_the_noise_are_found():
    z, *rest = drawn(1000, lambda X: X[:, 2], freedom=6.0)
    assert (2, 1) in pairs(choose_waves(z, *rest))
    z, *rest = drawn(1000, lambda X: np.abs(X[:, 1]) + 0.5 * (X[:, 0] > 0))
    found = set(pairs(choose_waves(z, *rest)))
    assert {(1, 2), (0, 1)} <= found
    assert not any(d == 2 for d, _ in found)


@pytest.mark.parametrize("freedom", [2.0, np.inf])
def test_even_noise_has_no_waves(freedom):
    for seed in range(25):
        z, *rest = drawn(200, lambda X: 0.0, freedom, seed, n_columns=8)
        found = choose_waves(z, *rest)
        assert_array_equal(found.places, [])
        assert_array_equal(found.logarithms(rest[-1]), np.zeros(200))


@pytest.mark.parametrize("share", [0.2, 0.3])
def test_outliers_that_lie_everywhere_are_no_wave(share):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z, *rest = drawn(500, lambda X: 0.0, seed=seed, n_columns=8)
        z *= np.where(rng.random(500) < share, 3.0, 0.05)
        assert_array_equal(choose_waves(z, *rest).places, [])


@pytest.mark.parametrize("distance", [1e-2, 1e-3, 1e-4])
def test_columns_that_are_nearly_copies_are_no_more_waves(distance):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (500, 1))
    X = np.hstack([x + distance * rng.normal(size=(500, 6)), rng.normal(size=(500, 1))])
    z, ranks = (
        rng.normal(size=500) * np.exp(2.0 * x[:, 0]),
        rank_columns(X, np.ones(500)),
    )
    found = choose_waves(z, np.ones((500, 1)), ranks, shares_of(X, ranks))
    assert len(found.places) == 1


def test_a_wave_that_is_as_large_as_it_may_be_is_taken_once():
    z, *rest = drawn(500, lambda X: 12.0 * X[:, 0])
    found = pairs(choose_waves(z, *rest))
    assert (0, 1) in found
    assert len(set(found)) == len(found)


def test_between_levels_there_is_no_wave():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (600, 2)).astype(float)
    z = rng.standard_normal(600) * np.array([0.2, 1.0, 0.2])[X[:, 0].astype(int)]
    ranks = rank_columns(X, np.ones(600))
    found = choose_waves(z, np.ones((600, 1)), ranks, shares_of(X, ranks))
    assert pairs(found)[0] == (0, 2)
    assert (found.halves < 3).all()
