"""Rows that choose between kernels."""

from contextlib import closing

import numpy as np
import pytest
from helpers import KERNELS, drawn
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._kernel_search.holdout import Judges, log_density
from skswsgp._kernel_search.kernel_choice import learn_kernel
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.tuning import Tuning


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


def test_density_given_a_part_is_that_of_an_exact_process(rng):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=120)
    weight, part = rng.uniform(0.5, 2.0, size=120), np.arange(0, 80, 2)
    options = LearningOptions()
    ratios = 1.0 / weight[:, None]
    learner = KernelLearner(X, np.c_[y, y[::-1]], ratios, np.ones(120), options)
    judges = Judges(learner, np.arange(80, 120), 120, [part])
    kernel, noise = ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), [0.1, 0.3]
    fit = KernelFit(kernel, np.array(noise), linear_map=np.array([[1.0, 0.5], [0, 2]]))
    X, square, v = X @ fit.linear_map, np.empty((40, 2)), np.empty((40, 2))
    for q in range(2):
        own = noise[q] * ratios[:, 0]
        process = GaussianProcessRegressor(kernel, alpha=own[part], optimizer=None)
        process.fit(X[part], learner.y[part, q])
        mean, deviation = process.predict(X[80:], return_std=True)
        v[:, q] = deviation**2 + own[80:]
        square[:, q] = (learner.y[80:, q] - mean) ** 2 / v[:, q]
    assert_allclose(judges.given(fit, part), log_density(square, v, np.ones(40)))


class SaidOfParts(Judges):
    """Judges that prefer fit 1 to fit 0 by these nats given each part, or fail."""

    n_rows = 300

    def __init__(self, *gains):
        self.gains = dict(zip((10, 100), gains, strict=False))
        self.parts, self.weight = list(map(np.arange, self.gains)), np.ones(50)

    def given(self, fit, part):
        gain = self.gains[len(part)]
        if fit == 1 and np.isnan(gain):
            raise np.linalg.LinAlgError
        return fit * (np.linspace(-1.0, 1.0, 50) + gain)


@pytest.mark.parametrize(
    ("gains", "taken"),
    [
        ((), False),
        ((0.5, 0.5), True),
        ((0.8, 0.5), True),  # 0.36 with all rows
        ((1.2, 0.4), False),  # 0.02 with all rows
        ((0.5, 0.1), False),  # 1.2 standard errors
        ((0.5, -0.5), False),  # more rows say otherwise
        ((-0.5, 0.5), False),
        ((np.nan, 0.5), False),
    ],
)
def test_all_parts_must_prefer_the_other_kernel(gains, taken):
    assert SaidOfParts(*gains).better_given_parts(0, 1) == int(taken)
    assert SaidOfParts(*gains).better_given_parts(1, 1) == 1


@pytest.mark.parametrize(
    ("everything", "learn_map"), [(True, False), (True, True), (False, False)]
)
def test_kernels_of_smooth_functions_suit_means_from_all_rows(everything, learn_map):
    X, y = make_friedman1(1000, n_features=5, random_state=0)
    y, n = (y - y.mean()) / y.std(), 800
    data = TrainingRows(X[:n], y[:n, None], np.ones(n))
    tuning = Tuning(evidence_work=4e7, part_work=5e6)  # 335 rows, and 164
    options, rng = LearningOptions(tuning=tuning), np.random.RandomState(0)
    H = n if everything else 64
    how = {"n_neighbors": H, "learn_map": learn_map}
    fit = learn_kernel(data, None, 0.1, rng, options, **how)
    process = GaussianProcessRegressor(fit.kernel, alpha=fit.noise[0], optimizer=None)
    X = X @ (np.eye(5) if fit.linear_map is None else fit.linear_map)
    assert (fit.linear_map is None) != learn_map
    error = y[n:] - process.fit(X[:n], y[:n]).predict(X[n:])
    # near rows prefer a rough kernel, whose errors are four to ten times as large
    assert (np.sqrt(np.mean(error**2)) < 2e-4) == everything
