"""Chains: the law they end in, and the number that says whether they agree."""

import numpy as np
import pytest

from skswsgp.baselines.sampler import SGHMC, split_r_hat


def test_a_chain_has_the_law_of_its_density():
    """A normal density whose deviations differ by a factor of ten, of 100 rows."""
    total, mean = 100.0, np.array([3.0, -1.0, 0.0])
    factor = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [0.02, 0.05, 0.1]])
    covariance = factor @ factor.T
    precision = np.linalg.inv(covariance)

    def slope(x, rng):
        return np.r_[precision @ (mean - x[:3]) / total, 1e9]

    draws, moving = [], np.array([True, True, True, False])
    x = np.array([0.0, 0.0, 0.0, 7.0])
    sampler = SGHMC(3, total, 0.05, 0.1, np.random.default_rng(0))
    sampler.run(slope, x, moving, 2000, 2000, 20, draws)
    draws = np.array(draws)
    assert draws.shape == (2000, 4)
    assert (draws[:, 3] == 7.0).all()  # an entry that does not move
    error = np.sqrt(np.diag(covariance))
    assert (np.abs(draws[:, :3].mean(axis=0) - mean) < 0.12 * error).all()
    found = np.cov(draws[:, :3].T)
    np.testing.assert_allclose(np.diag(found), np.diag(covariance), rtol=0.15)
    scales = np.outer(error, error)
    np.testing.assert_allclose(found / scales, covariance / scales, atol=0.15)
    assert (np.abs(split_r_hat(draws[:, :3], 1) - 1.0) < 0.02).all()


def test_steps_follow_gradients_in_burn_in_only():
    sampler = SGHMC(2, 10.0, 0.01, 0.05, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _ in range(3000):
        sampler.step(np.zeros(2), rng.normal(size=2) * [1.0, 30.0], adapts=True)
    small, large = np.sqrt(sampler.square)
    assert small == pytest.approx(1.0, rel=0.3)
    assert large == pytest.approx(30.0, rel=0.3)
    before = sampler.square.copy()
    sampler.step(np.zeros(2), np.full(2, 1e3), adapts=False)
    np.testing.assert_array_equal(sampler.square, before)


def test_split_r_hat_sees_a_trend_and_chains_apart():
    rng = np.random.default_rng(0)
    level = rng.normal(size=(2000, 1))
    assert split_r_hat(level, 1) == pytest.approx(1.0, abs=0.01)
    # halves around -1 and 1 with a variance of one within
    trend = level + np.repeat([-1.0, 1.0], 1000)[:, None]
    assert split_r_hat(trend, 1) == pytest.approx(np.sqrt(1.0 + 2.0), rel=0.03)
    # two chains of two halves each: variance 4 / 3 of the means
    assert split_r_hat(trend, 2) == pytest.approx(np.sqrt(1.0 + 4.0 / 3.0), rel=0.03)
    assert np.isnan(split_r_hat(level[:3], 1)).all()
    assert split_r_hat(level[:, :0], 1).shape == (0,)
