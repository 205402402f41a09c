"""Distributions of standardised errors that are no Student's t."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import approx_fprime

from skswsgp._law import student
from skswsgp._law.shape import (
    GAUSSIAN,
    LARGEST_SCORE,
    MIDDLES,
    fit_shape,
    make_shape,
    waves_of_scores,
)

NONE = np.zeros(8)
TILT = np.array([-0.8, 0.4, -0.2, 0.3, 0.0, -0.3, 0.2, 0.1])
T = 0.01 * np.sinh(np.linspace(-13.0, 13.0, 200_001))  # up to 2,200
freedoms = pytest.mark.parametrize("freedom", [4.0, 7.5, np.inf])


@freedoms
@pytest.mark.parametrize("tilt", [NONE, TILT])
def test_density_probabilities_and_deviation_belong_together(freedom, tilt):
    shape = make_shape(freedom, tilt)
    density = np.exp(shape.log_density(T, 1.0))
    assert_allclose(np.trapezoid(density, T), 1.0, rtol=5e-5)
    square = np.trapezoid(T**2 * density, T)
    assert_allclose(shape.square(1.0), square, rtol=2e-3)
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    below = np.cumsum(np.diff(T, prepend=T[0]) * np.append(0.0, np.diff(below)))
    assert_allclose(stats.norm.cdf(shape.normal_score(T, 1.0)), below, atol=2e-4)


@freedoms
@pytest.mark.parametrize("tilt", [NONE, TILT])
def test_normal_scores_and_errors_are_inverse(freedom, tilt):
    shape, scores = make_shape(freedom, tilt), np.linspace(-30.0, 30.0, 997)
    back = shape.normal_score(shape.from_normal(scores, 1.0), 1.0)
    assert_allclose(back, scores, atol=1e-8)
    assert (np.diff(shape.from_normal(scores, 1.0)) > 0.0).all()


@freedoms
@pytest.mark.parametrize("known", [0.0, 0.3, 0.8])
def test_a_part_of_a_shape_is_known(freedom, known):
    shape, scores = make_shape(freedom, TILT), np.linspace(-9.0, 9.0, 997)
    errors = shape.from_normal(scores, known)
    assert_allclose(shape.normal_score(errors, known), scores, atol=1e-10)
    density = np.exp(shape.log_density(T, known))
    assert_allclose(np.trapezoid(density, T), 1.0, rtol=5e-5)
    square = np.trapezoid(T**2 * density, T)
    assert_allclose(shape.square(known), square, rtol=0.02)
    below = stats.norm.cdf(shape.normal_score(T, known))
    middle = 0.5 * (density[1:] + density[:-1]) * np.diff(T)
    assert_allclose(np.cumsum(middle), below[1:] - below[0], atol=2e-4)
    if known == 0.0:
        assert_allclose(density, np.exp(student.log_density(T, 0.0, freedom)))


@freedoms
def test_a_shape_without_waves_is_a_student_law(freedom):
    shape = make_shape(freedom, NONE)
    assert_array_equal(shape.log_density(T, 1.0), student.log_density(T, 0.0, freedom))
    assert_array_equal(shape.normal_score(T, 1.0), student.normal_score(T, freedom))
    assert_allclose(shape.square(0.6), student.deviation(freedom) ** 2, rtol=1e-14)


def test_tails_keep_their_form():
    far = np.array([-40.0, -9.0, -LARGEST_SCORE, LARGEST_SCORE, 9.0, 40.0])
    ratio = make_shape(np.inf, TILT).log_density(far, 1.0) - GAUSSIAN.log_density(
        far, 1.0
    )
    assert_allclose(ratio[:3], ratio[0], atol=1e-10)
    assert_allclose(ratio[3:], ratio[5], atol=1e-10)


def noise(kind, n, rng):
    mixed = rng.random(n) < 0.5
    return {
        "uniform": rng.uniform(-1.7, 1.7, n),
        "skewed": rng.exponential(size=n) - 1.0,
        "two levels": rng.normal(size=n) * np.where(mixed, 0.3, 1.4),
        "two bumps": np.where(mixed, 1.0, -1.0) + 0.2 * rng.normal(size=n),
    }[kind]


@pytest.mark.parametrize("kind", ["uniform", "skewed", "two levels", "two bumps"])
def test_intervals_hold_their_share_of_errors_of_any_shape(kind, rng):
    known, new = noise(kind, 1000, rng), noise(kind, 20_000, rng)
    c, freedom = student.fit(known, np.ones((1000, 1)))
    known, new = (part * np.exp(-c[0]) for part in (known, new))
    shape, plain = fit_shape(freedom, known), make_shape(freedom, NONE)
    assert np.mean(shape.log_density(new, 1.0) - plain.log_density(new, 1.0)) > 0.03
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    found, before = (
        np.array(
            [np.mean(new < one.from_normal(stats.norm.ppf(p), 1.0)) for p in levels]
        )
        for one in (shape, plain)
    )
    assert np.abs(found - levels).max() < 0.04
    assert np.abs(found - levels).mean() < 0.6 * np.abs(before - levels).mean()


def test_the_waves_have_the_largest_posterior_density(rng):
    """Their prior is the one that the statistic of Neyman's test tells."""
    n, t = 300, rng.exponential(size=300) - 1.0
    shape, weights = fit_shape(np.inf, t), np.diff(stats.norm.cdf(MIDDLES))
    nodes = waves_of_scores(0.5 * (MIDDLES[1:] + MIDDLES[:-1]))
    mean = weights @ nodes
    covariance = (nodes - mean).T @ (weights[:, None] * (nodes - mean))
    excess = waves_of_scores(t).sum(axis=0) - n * mean
    statistic = excess @ np.linalg.solve(n * covariance, excess)
    variance = (statistic - 8.0 - 4.0) / (8.0 * n)

    def log_posterior(a):
        level = np.log(weights @ np.exp(nodes @ a))
        likelihood = (waves_of_scores(t) @ a - level).sum()
        return likelihood - 0.5 * a @ covariance @ a / variance

    slope = approx_fprime(shape.tilt, log_posterior)
    assert np.abs(slope).max() < 1e-3 * np.abs(excess).max()


def test_chance_hardly_moves_a_shape():
    """On average it costs less than a fortieth of a nat for each of the eight waves."""
    losses, moved = [], 0
    for seed in range(60):
        t = np.random.default_rng(seed).normal(size=200)
        shape = fit_shape(np.inf, t)
        moved += shape.tilt.any()
        density = stats.norm.pdf(T) * (
            GAUSSIAN.log_density(T, 1.0) - shape.log_density(T, 1.0)
        )
        losses.append(np.trapezoid(density, T))
    assert 200.0 * np.mean(losses) < 0.2
    assert 2 < moved < 25
