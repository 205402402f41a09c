"""Waves along columns and pairs of columns that a kernel takes for noise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._kernel_search.waves import gains_of_waves, least_gain, quarter_waves


def posterior_of(X, y, noise=1.0):
    """Return the `LogPosterior` of a kernel of long length-scales, and noise."""
    kernel = ConstantKernel(1.0) * RBF(10.0 * np.ones(X.shape[1]))
    y = ((y - y.mean()) / y.std())[:, None]
    return LogPosterior(kernel, np.array([noise]), X, y, np.ones_like(y))


def waves_of(rng, N, d, K):
    shares = rng.permuted(np.tile((np.arange(N) + 0.5) / N, (d, 1)), axis=1).T
    return np.cos(np.pi * shares[:, :, None] * (1 + np.arange(K)))


@pytest.mark.parametrize(("N", "d", "K"), [(60, 3, 8), (40, 5, 8), (50, 2, 3)])
def test_gains_of_pairs_are_those_of_all_products(N, d, K, rng):
    posterior = posterior_of(rng.normal(size=(N, d)), rng.normal(size=N))
    waves = waves_of(rng, N, d, K)
    gains = gains_of_waves(posterior, waves, K, pairs=True)
    expected, n_pairs = np.zeros((d, K)), 0
    k = min(K, int(np.sqrt(2 * N / (d * (d - 1)))))
    for i in range(d):
        for j in range(i):
            for a in range(k):
                for b in range(k):
                    product = (waves[:, i, a] * waves[:, j, b])[:, None]
                    (gain,) = posterior.feature_gains(product)
                    expected[i, a] = max(expected[i, a], gain)
                    expected[j, b] = max(expected[j, b], gain)
                    n_pairs += 1
    assert 0 < n_pairs <= N
    assert_allclose(gains, expected, rtol=1e-9)


def test_one_column_and_many_columns_have_no_pairs(rng):
    for d in (1, 20):
        posterior = posterior_of(rng.normal(size=(50, d)), rng.normal(size=50))
        gains = gains_of_waves(posterior, waves_of(rng, 50, d, 2), 2, pairs=True)
        assert_array_equal(gains, np.zeros((d, 2)))


def test_slow_waves_are_known_from_few_rows(rng):
    X = rng.uniform(size=(400, 3))
    X[:, 0] = np.linspace(0.0, 1.0, 400)
    posterior = posterior_of(X, np.cos(20.0 * np.pi * X[:, 0]))
    for n_before in (0, 59):  # of which three are needed for a half wave
        length = quarter_waves(posterior, n_before, pairs=False)[0]
        assert_allclose(length, 0.5 / 20.0, rtol=0.05)
    assert not np.isclose(quarter_waves(posterior, 60, False)[0], 0.025, rtol=0.05)


def test_quarters_of_waves_are_found(rng):
    X = rng.uniform(0.0, 2.0, (400, 4))
    X[:, 3] = 7.0  # is constant
    pair = np.sin(2.5 * np.pi * X[:, 0]) * np.cos(1.5 * np.pi * X[:, 1])
    posterior = posterior_of(X, pair + 0.3 * rng.normal(size=400))
    lengths = quarter_waves(posterior, 0, pairs=True)
    # 5 and 3 half waves over a range of 2; half a wave more or less may be as likely
    assert 0.16 < lengths[0] < 0.26
    assert 0.2 < lengths[1] < 0.51
    assert_array_equal(lengths[2:], np.inf)
    assert_array_equal(quarter_waves(posterior, 0, pairs=False), np.inf)
    posterior = posterior_of(X, np.cos(5.0 * np.pi * X[:, 0]) + X[:, 1])
    assert_allclose(quarter_waves(posterior, 0, pairs=False)[0], 0.1, rtol=0.02)


def test_noise_has_no_waves():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        posterior = posterior_of(rng.uniform(size=(300, 6)), rng.normal(size=300))
        assert_array_equal(quarter_waves(posterior, 0, pairs=True), np.inf)


@pytest.mark.parametrize("n_outputs", [1, 10])
def test_noise_of_many_outputs_gains_no_more_than_chance(n_outputs, rng):
    """Gains of outputs add up, and so does chance."""
    X, kernel = rng.uniform(size=(100, 2)), ConstantKernel(1e-3) * RBF(np.ones(2))
    gains = []
    for _ in range(50):
        y = rng.normal(size=(100, n_outputs))
        posterior = LogPosterior(kernel, np.ones(n_outputs), X, y, np.ones_like(y))
        gains.append(posterior.feature_gains(rng.normal(size=(100, 40))))
    by_chance = stats.chi2(n_outputs)
    assert_allclose(2.0 * np.mean(gains), by_chance.mean(), rtol=0.1)
    assert_allclose(by_chance.sf(2.0 * least_gain(n_outputs)), 1e-5)
    assert np.max(gains) < least_gain(n_outputs)


def test_few_rows_of_many_columns_have_no_waves(rng):
    posterior = posterior_of(rng.normal(size=(4, 9)), rng.normal(size=4))
    assert_array_equal(quarter_waves(posterior, 0, pairs=True), np.inf)
