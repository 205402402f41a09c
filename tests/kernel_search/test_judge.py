"""Rows that choose between kernels."""

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import KERNELS, drawn
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._kernel_search.holdout import NOISY, Judges
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)


class Said(Judges):
    """Judges whose opinion of numbered fits is given, from near rows and from afar."""

    def __init__(self, *opinions, far=(), share=0.0):
        self.opinions, self.weight = opinions, np.ones(len(opinions[0][0]))
        self.far, self.share = far, share
        self.far_rows = np.arange(len(far and far[0]))
        self.learner, self._said = SimpleNamespace(weight=self.weight), []

    def say(self, fit):
        return self.opinions[fit]

    def _from_afar(self, fit):
        return self.far[fit]

    def noise_share(self, fit):
        return self.share


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


@pytest.mark.parametrize(
    ("near", "far", "share", "taken"),
    [
        (0.3, -0.3, 0.4, True),  # little noise: near rows know best
        (0.3, -0.3, 0.6, False),
        (0.3, 0.0, 0.6, True),  # the mean gain is 4 standard errors
        (0.3, -0.2, 0.6, False),  # 1.4 of them
        (0.3, -np.inf, 0.6, True),  # from afar nothing can be said
    ],
)
def test_where_noise_hides_the_function_rows_from_afar_count_as_much(
    near, far, share, taken, scatter, rng
):
    flat, scale = np.zeros(200), np.sqrt(2.0)  # standard errors of 0.05
    other = (scatter[rng.permutation(200)] + far * scale) / scale
    judges = Said(
        (flat, flat), (near + scatter / scale, flat), far=(flat, other), share=share
    )
    assert judges.better(0, 1) == int(taken)


def test_a_kernel_that_cannot_be_judged_loses():
    flat, broken = np.zeros(9), np.full(9, np.nan)
    assert Said((flat, flat), (broken, flat)).better(0, 1) == 0
    assert Said((broken, flat), (flat, flat)).better(0, 1) == 1


def judges_of(N=300, kernel=KERNELS["matern"]):
    X, y = drawn(kernel, noise=0.1, N=N)
    ones = np.ones((N, 1))
    learner = KernelLearner(X, y[:, None], ones, ones[:, 0], LearningOptions())
    return Judges(learner, np.arange(200, N), 20, np.arange(60))


def test_a_common_factor_of_variances_does_not_matter():
    judges = judges_of()
    fit = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    larger = KernelFit(
        ConstantKernel(14.0) * Matern([0.8, 1.7], nu=1.5), np.array([1.0])
    )
    for one, other in zip(judges.say(fit), judges.say(larger), strict=True):
        assert_allclose(one, other, rtol=1e-8)


def test_density_is_that_of_the_calibrated_kernel():
    judges = judges_of()
    fit = KernelFit(ConstantKernel(5.0) * Matern([0.8, 1.7], nu=1.5), np.array([0.4]))
    scaled = judges.learner.rescale_variance(fit, judges.H, judges.rows)
    assert scaled is not fit
    density = judges.learner.log_density(scaled, judges.rows, judges.H)
    constant = 0.5 * np.log(2 * np.pi)
    assert_allclose(judges.say(fit)[0], density + constant, rtol=1e-8)


def test_rows_prefer_the_kernel_of_the_function():
    judges = judges_of()
    true = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    wrong = KernelFit(ConstantKernel(1.4) * Matern([9.0, 9.0], nu=1.5), np.array([0.1]))
    assert judges.better(wrong, true) is true
    assert judges.better(true, wrong) is true


def test_calibration_sets_noise_and_variance():
    judges = judges_of(N=600)
    start = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([1.0]))
    fit = judges.calibrated(start)
    assert 0.07 < fit.noise[0] < 0.14
    assert_allclose(fit.kernel.k2.length_scale, [0.8, 1.7])


def test_share_of_noise_is_that_of_the_predictive_variance():
    judges = judges_of()
    fit = KernelFit(ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), np.array([0.1]))
    with closing(judges.learner.process(fit, judges.H)) as process:
        _, v = process.standardised(judges.rows, judges.weight)
    assert_allclose(judges.noise_share(fit), np.mean(0.1 / v))
    assert 0.2 < judges.noise_share(fit) < 0.9


def test_rows_from_afar_are_predicted_from_all_others(rng):
    judges = judges_of()
    kernel, noise = ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5), 0.1
    rows, y = np.r_[200:260, :60], judges.learner.y[:, 0]
    C = kernel(judges.learner.X[rows]) + noise * np.eye(120)
    square, v = np.empty((2, 60))
    for i in range(60):
        others = np.delete(np.arange(120), i)
        weights = np.linalg.solve(C[np.ix_(others, others)], C[others, i])
        v[i] = C[i, i] - weights @ C[others, i]
        square[i] = (y[rows[i]] - weights @ y[rows[others]]) ** 2 / v[i]
    expected = -0.5 * (square / square.mean() + np.log(square.mean() * v))
    said = judges._from_afar(KernelFit(kernel, np.array([noise])))
    assert_allclose(said, expected, rtol=1e-6)


def test_noise_does_not_hide_the_kernel_of_a_smooth_function(rng):
    X = rng.uniform(size=(1500, 2))
    y = 3.0 * np.sin(3.0 * X[:, :1]) + rng.normal(size=(1500, 1))
    ones = np.ones((1500, 1))
    learner = KernelLearner(X, y, ones, ones[:, 0], LearningOptions())
    judges = Judges(learner, np.arange(1200, 1500), 48, np.arange(400))
    smooth = KernelFit(ConstantKernel(9.0) * Matern([0.5, 9.0]), np.array([1.0]))
    rough = KernelFit(ConstantKernel(9.0) * Matern([0.1, 0.1]), np.array([0.9]))
    assert judges.noise_share(smooth) > NOISY
    gain, square = judges.gain(rough, smooth)
    assert gain > 3.0 * np.sqrt(square)
    assert judges.better(smooth, rough) is smooth
