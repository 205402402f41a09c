"""The marginal likelihood of all rows."""

import numpy as np
import pytest
import reference
from helpers import KERNELS, drawn
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPRegressor
from skswsgp._initialization.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)
from skswsgp._initialization.marginal_likelihood import (
    LogPosterior,
    inverted,
    log_marginal_likelihood,
    turn_by_evidence,
)
from skswsgp._solvers.tuning import Tuning
from skswsgp.kernels import Polynomial

NOISE = np.array([0.3, 0.05])
START = ConstantKernel(0.5) * Matern([1.0, 1.5], nu=1.5)


@pytest.fixture
def rows(rng):
    """Return X (25, 2), y and ratios of two outputs."""
    X = drawn(KERNELS["matern"], noise=0.1, N=25)[0]
    return X, rng.normal(size=(25, 2)), rng.uniform(0.2, 3.0, size=(25, 2))


def expected_density(kernel, noise, X, y, ratios):
    return sum(
        multivariate_normal.logpdf(
            y[:, q], cov=kernel(X) + np.diag(noise[q] * ratios[:, q])
        )
        for q in range(y.shape[1])
    )


def test_density_is_that_of_a_normal_distribution(rows):
    X, y, ratios = rows
    value, _, _ = log_marginal_likelihood(START(X), y, NOISE, ratios)
    assert_allclose(value, expected_density(START, NOISE, *rows), rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_equals_finite_differences(name, rows):
    posterior = LogPosterior(KERNELS[name], NOISE, *rows)
    point = posterior.start + 0.1
    gradient = reference.finite_difference(lambda at: posterior.loss(at)[0], point)
    assert_allclose(posterior.loss(point)[1], gradient, rtol=1e-5, atol=1e-5)


def test_loss_is_density_and_prior(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    point = posterior.start + np.array([0.4, 0.0, 0.0, -0.3, 0.0])
    noise = NOISE * np.exp([-0.3, 0.0])
    density = expected_density(posterior.kernel_at(point), noise, *rows)
    prior = -0.5 * (0.4**2 + 0.3**2)
    weight = 1.0 / rows[2]
    missing = 25.0 - weight.sum(axis=0) ** 2 / np.sum(weight**2, axis=0)
    expected = -density - prior - 0.5 * missing @ np.log(noise)
    assert_allclose(posterior.loss(point)[0], expected, rtol=1e-12)
    assert_allclose(posterior.log_prior(point), prior)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_by_a_map_equals_finite_differences(name, rows, rng):
    posterior = LogPosterior(KERNELS[name], NOISE, *rows, turn=True)
    assert len(posterior.start) == len(
        LogPosterior(KERNELS[name], NOISE, *rows).start
    ) + (1 if name == "matern" else 3)
    point = posterior.start + 0.1 * rng.normal(size=len(posterior.start))
    gradient = reference.finite_difference(lambda at: posterior.loss(at)[0], point)
    assert_allclose(posterior.loss(point)[1], gradient, rtol=1e-5, atol=1e-5)


def test_loss_with_a_map_is_that_of_mapped_rows(rows):
    X, y, ratios = rows
    turned = LogPosterior(START, NOISE, *rows, turn=True)
    point = turned.start.copy()
    point[-1] = 0.3
    W = turned.metric_at(point)
    assert_allclose(W, [[1.0, 0.3 * 1.5], [0.3 / 1.5, 1.0]])
    plain = LogPosterior(START, NOISE, X @ W, y, ratios)
    prior = -0.5 * 0.3**2 / turned.columns.prior_variance
    assert_allclose(
        turned.loss(point)[0], plain.loss(plain.start)[0] - prior, rtol=1e-10
    )


def test_evidence_of_a_map_is_larger_only_where_columns_are_mixed(rng):
    X = rng.normal(size=(120, 2))
    ones = np.ones((120, 1))
    for mixed in (False, True):
        f = np.sin(2 * (X[:, 0] + X[:, 1])) if mixed else np.sin(2 * X[:, 0])
        y = (f + 0.1 * rng.normal(size=120))[:, None]
        data = START, np.array([0.1]), X, y, ones
        plain = LogPosterior(*data)
        found = plain.maximize(plain.moves())
        chosen, point = turn_by_evidence(plain, found, data, always=False)
        assert (chosen is not plain) == mixed
        if mixed:
            assert chosen.loss(point)[0] < plain.loss(found)[0] - 10.0
        always, _ = turn_by_evidence(plain, found, data, always=True)
        assert always is not plain


def test_evidence_that_cannot_be_computed_leaves_the_columns(monkeypatch, rows):
    def fails(*_):
        raise np.linalg.LinAlgError

    data = START, NOISE, *rows
    plain = LogPosterior(*data)
    monkeypatch.setattr(LogPosterior, "log_volume", fails)
    found = plain.maximize(plain.moves())
    chosen, _ = turn_by_evidence(plain, found, data, always=False)
    assert chosen is plain


def test_priors_around_another_kernel_leave_constants_free(rows):
    around = ConstantKernel(9.0) * Matern([2.0, 1.5], nu=1.5)
    posterior = LogPosterior(START, NOISE, *rows, around=around)
    assert_allclose(posterior.log_prior(posterior.start), -0.5 * np.log(2.0) ** 2)


def test_maximum_respects_moves_bounds_and_fixed_parameters(rows):
    kernel = ConstantKernel(0.5, "fixed") * Matern([1.0, 1.5], (0.9, 1.6), nu=1.5)
    posterior = LogPosterior(kernel, NOISE, *rows)
    tied = posterior.maximize(posterior.moves(shared=True, noise=False))
    found = posterior.kernel_at(tied)
    assert found.k1.constant_value == 0.5
    ratio = found.k2.length_scale / kernel.k2.length_scale
    assert_allclose(ratio[0], ratio[1])
    assert (found.k2.length_scale >= 0.9 - 1e-9).all()
    assert (found.k2.length_scale <= 1.6 + 1e-9).all()
    assert abs(ratio[0] - 1.0) > 1e-3
    assert_allclose(posterior.split(tied)[1], NOISE)
    free = posterior.maximize(posterior.moves())
    assert posterior.loss(free)[0] < posterior.loss(tied)[0]
    assert (np.abs(posterior.split(free)[1] / NOISE - 1.0) > 0.05).all()


def test_shared_moves_hold_each_kernel_together():
    kernel = Polynomial(2, [1.0, 2.0]) + ConstantKernel(2.0) * RBF([0.5, 0.7])
    X, y = np.zeros((3, 2)), np.zeros((3, 1))
    posterior = LogPosterior(kernel, np.ones(1), X, y, np.ones((3, 1)))
    moves = posterior.moves(shared=True)
    assert moves.shape == (7, 5)  # of a sigma, a constant, two kernels and the noise
    assert_allclose(moves.sum(axis=1), 1.0)
    assert sorted(moves.sum(axis=0)) == [1, 1, 1, 2, 2]


def test_no_moves_keep_the_start(rows):
    posterior = LogPosterior(RBF(1.0, "fixed"), NOISE, *rows)
    moves = posterior.moves(noise=False)
    assert moves.shape == (2, 0)
    assert_allclose(posterior.maximize(moves), posterior.start)
    assert posterior.log_volume(moves) == 0.0


def test_log_volume_is_that_of_laplace(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    best = posterior.kernel_at(posterior.maximize(posterior.moves(noise=False)))
    posterior = LogPosterior(best, NOISE, *rows, around=START)

    def slopes(point):
        return posterior.loss(point)[1]

    hessian = np.stack(
        [
            reference.finite_difference(lambda at, p=p: slopes(at)[p], posterior.start)
            for p in range(3)
        ]
    )
    normal = ~np.isnan(posterior.medians[:3])
    precision = np.linalg.eigvalsh(hessian[:, :3][normal][:, normal])
    expected = -0.5 * np.log(np.maximum(precision, 1.0)).sum()
    actual = posterior.log_volume(posterior.moves(noise=False))
    assert_allclose(actual, expected, rtol=1e-2)
    assert expected < -0.1


def test_covariances_that_are_not_finite_or_positive_raise():
    for C in (np.full((2, 2), np.nan), np.full((2, 2), np.inf), -np.eye(2)):
        with pytest.raises(np.linalg.LinAlgError):
            inverted(C)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_no_output_without_noise_is_taken_for_noise(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (600, 6))
    Y = np.stack([np.sin(3 * (X[:, 0] + X[:, 1])), X[:, 4]], axis=1)
    model = SWSGPRegressor(metric="ard", random_state=0).fit(X[:300], Y[:300])
    assert model.noise_variance_.max() < 1e-3
    assert model.score(X[300:], Y[300:]) > 0.99


# --- wider priors ---------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [2, 10])
def test_priors_widen_where_columns_do_not_matter(n_columns):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (120, n_columns))
    y = np.sin(3.0 * X[:, 0]) + np.cos(3.0 * X[:, 1]) + 0.1 * rng.normal(size=120)
    kernel = ConstantKernel(1.0) * RBF(np.full(n_columns, 0.5 * np.sqrt(n_columns)))
    data = kernel, np.array([0.1]), X, y[:, None], np.ones((120, 1))
    posterior, narrow = LogPosterior(*data), LogPosterior(*data)
    point = posterior.maximize_with_wider_priors()
    widened = posterior.variances / narrow.variances
    assert (widened == widened[0]).all()
    assert (widened[0] > 1.0) == (n_columns == 10)
    # the point is that of largest density under the prior it belongs to
    posterior.start = narrow.start
    best = posterior.maximize(posterior.moves())
    assert posterior.loss(point)[0] < posterior.loss(best)[0] + 1e-2
    found = narrow.maximize(narrow.moves())
    evidence = narrow.log_evidence(found)
    gain = posterior.log_evidence(point) - evidence
    assert gain > 0.0 if n_columns == 10 else abs(gain) < 1e-2


def test_random_rows_choose_wider_priors_where_all_are_dear():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 10))
    y = (
        np.sin(3.0 * X[:, :1])
        + np.cos(3.0 * X[:, 1:2])
        + 0.1 * rng.normal(size=(200, 1))
    )
    kernel = ConstantKernel(1.0) * RBF(np.full(10, 1.6))
    fit, ones = KernelFit(kernel, np.array([0.1])), np.ones((200, 1))

    def widened(evidence_work):
        options = LearningOptions(tuning=Tuning(evidence_work=evidence_work))
        learner = KernelLearner(X, y, ones, ones[:, 0], options)
        posterior = LogPosterior(*learner._all_rows(fit))
        before, point = posterior.variances, posterior.start
        learner.widen_priors(posterior, fit, np.random.RandomState(0))
        assert (posterior.medians == point).all()
        moved = (posterior.start != point).any()
        return posterior.variances[0] / before[0], moved

    for work in (1e10, 2e8):  # of all rows, and of 137
        factor, moved = widened(work)
        assert factor > 1.0
        assert moved
    assert widened(1e4) == (1.0, False)  # of no row


def test_wider_priors_end_where_no_point_is_found(monkeypatch):
    data = RBF(1.0), np.array([0.1]), np.zeros((3, 1)), np.ones((3, 1)), np.ones((3, 1))
    posterior = LogPosterior(*data)
    monkeypatch.setattr(posterior, "maximize", lambda moves: None)
    assert posterior.maximize_with_wider_priors() is None
