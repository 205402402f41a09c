"""Rows that choose between kernels."""

from contextlib import closing

import numpy as np
import pytest
from helpers import KERNELS, drawn
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._kernel_search.holdout import Judges
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)


class Said(Judges):
    """Judges whose opinion of numbered fits is given."""

    def __init__(self, *opinions):
        self.opinions, self.weight = opinions, np.ones(len(opinions[0][0]))

    def say(self, fit):
        return *self.opinions[fit], 0.0


@pytest.fixture
def scatter(rng):
    values = rng.normal(size=200)
    return (values - values.mean()) / values.std()


@pytest.mark.parametrize(
    ("gain", "error", "favoured", "taken"),
    [
        (0.2, 0.0, False, True),  # 2.8 standard errors
        (0.1, 0.0, False, False),  # 1.4 of them
        (0.2, 0.01, False, False),  # means are worse
        (0.1, 0.0, True, True),  # undecided, and favoured by others
        (-0.1, 0.0, True, True),
        (-0.2, 0.0, True, False),
        (0.1, 0.01, True, False),
    ],
)
def test_a_later_kernel_must_be_better(gain, error, favoured, taken, scatter):
    flat = np.zeros(200)
    judges = Said((flat, flat + 1.0), (gain + scatter, flat + 1.0 + error))
    assert judges.better(0, 1, favoured) == int(taken)


def test_a_kernel_that_cannot_be_judged_loses():
    flat, broken = np.zeros(9), np.full(9, np.nan)
    assert Said((flat, flat), (broken, flat)).better(0, 1) == 0
    assert Said((broken, flat), (flat, flat)).better(0, 1) == 1


def judges_of(N=300, kernel=KERNELS["matern"]):
    X, y = drawn(kernel, noise=0.1, N=N)
    ones = np.ones((N, 1))
    learner = KernelLearner(X, y[:, None], ones, ones[:, 0], LearningOptions())
    return Judges(learner, np.arange(200, N), 20)


def density_under(fit, judges):
    """Return log densities (n,) of the judging rows, but for a constant."""
    with closing(judges.learner.process(fit, judges.H)) as process:
        square, v = process.standardised(judges.rows, judges.weight)
    return -0.5 * (square + np.log(v)).sum(axis=1)


def test_a_common_factor_of_variances_does_not_matter():
    judges = judges_of()
    fit = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    larger = KernelFit(
        ConstantKernel(14.0) * Matern([0.8, 1.7], nu=1.5), np.array([1.0])
    )
    for one, other in zip(judges.say(fit), judges.say(larger), strict=True):
        assert_allclose(one, other, rtol=1e-8)


def test_density_is_that_of_the_likeliest_factor():
    judges = judges_of()
    factors, said = np.array([0.5, 1.0, 2.0]), []
    for factor in 3.0 * factors:
        kernel = ConstantKernel(1.4 * factor) * Matern([0.8, 1.7], nu=1.5)
        fit = KernelFit(kernel, np.array([0.1 * factor]))
        said.append(density_under(fit, judges).mean())
    with closing(judges.learner.process(fit, judges.H)) as process:
        square, _ = process.standardised(judges.rows, judges.weight)
    best = fit.kernel.k1.constant_value * square.mean()
    kernel = ConstantKernel(best) * Matern([0.8, 1.7], nu=1.5)
    best = KernelFit(kernel, fit.noise * square.mean())
    expected = density_under(best, judges)
    assert expected.mean() > max(said)
    assert_allclose(judges.say(fit)[0], expected, rtol=1e-8)


def test_rows_prefer_the_kernel_of_the_function():
    judges = judges_of()
    true = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    wrong = KernelFit(ConstantKernel(1.4) * Matern([9.0, 9.0], nu=1.5), np.array([0.1]))
    assert judges.better(wrong, true) is true
    assert judges.better(true, wrong) is true


def test_share_of_noise_is_that_of_the_predictive_variance():
    judges = judges_of()
    fit = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    with closing(judges.learner.process(fit, judges.H)) as process:
        _, v = process.standardised(judges.rows, judges.weight)
    assert_allclose(judges.say(fit)[2], np.mean(0.1 / v))
    assert 0.2 < judges.say(fit)[2] < 0.9
