"""The marginal likelihood of all rows."""

import numpy as np
import pytest
import reference
from helpers import KERNELS, drawn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPRegressor
from skswsgp._engine.select import make_cpu_engine
from skswsgp._kernel_search.marginal_likelihood import (
    LogPosterior,
    LogPosteriorOfSums,
    factorised,
    log_marginal_likelihood,
)
from skswsgp._kernel_search.neighbor_likelihood import neighbor_model
from skswsgp._linear.dense_sites import DenseSites
from skswsgp._rows.data import TrainingRows
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
@pytest.mark.parametrize("alike", [False, True])
def test_gradient_equals_finite_differences(name, rows, alike):
    X, y, ratios = rows
    if alike:  # outputs that share a covariance matrix, beside one that does not
        y, ratios = np.c_[y, y[:, ::-1] ** 2], np.c_[ratios[:, [0, 0]], ratios]
    noise = np.resize(NOISE[:1] if alike else NOISE, y.shape[1])
    posterior = LogPosterior(KERNELS[name], noise, X, y, ratios)
    density = expected_density(KERNELS[name], noise, X, y, ratios)
    value, _, _ = log_marginal_likelihood(KERNELS[name](X), y, noise, ratios)
    assert_allclose(value, density, rtol=1e-9)
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
    assert_allclose(posterior.prior_loss(point)[0], -prior)


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
    W = turned.map_at(point)
    assert_allclose(W, [[1.0, 0.3 * 1.5], [0.3 / 1.5, 1.0]])
    plain = LogPosterior(START, NOISE, X @ W, y, ratios)
    prior = -0.5 * 0.3**2 / turned.columns.prior_variance
    assert_allclose(
        turned.loss(point)[0], plain.loss(plain.start)[0] - prior, rtol=1e-10
    )


def test_priors_of_noise_have_a_heavy_tail(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    posterior.variances[:], posterior.heavy = [0.5, 1.0, 2.0, 0.7, 1.5], True
    far = posterior.start - 6.0
    value, slope, curvature = posterior.prior_loss(far)
    normal = -0.5 * 36.0 / posterior.variances[:3]
    cauchy = stats.cauchy(scale=np.sqrt(2.0 * posterior.variances[3:]))
    student = cauchy.logpdf(6.0) - cauchy.logpdf(0.0)
    assert_allclose(value, -normal.sum() - student.sum())
    for k, (first, second) in enumerate(zip(slope, curvature, strict=True)):
        step = 1e-4 * np.eye(5)[k]
        ahead, behind = (posterior.prior_loss(far + s * step) for s in (1.0, -1.0))
        assert_allclose(first, (ahead[0] - behind[0]) / 2e-4, rtol=1e-6)
        assert_allclose(second, (ahead[1] - behind[1])[k] / 2e-4, rtol=1e-6)


def test_priors_around_another_kernel_leave_constants_free(rows):
    around = ConstantKernel(9.0) * Matern([2.0, 1.5], nu=1.5)
    posterior = LogPosterior(START, NOISE, *rows, around=around)
    assert_allclose(posterior.prior_loss(posterior.start)[0], 0.5 * np.log(2.0) ** 2)


def test_maximum_respects_moves_bounds_and_fixed_parameters(rows):
    kernel = ConstantKernel(0.5, "fixed") * Matern([1.0, 1.5], (0.9, 1.6), nu=1.5)
    posterior = LogPosterior(kernel, NOISE, *rows)
    tied, value, _ = posterior.maximize(posterior.moves(shared=True, noise=False), 100)
    assert_allclose(-value, posterior.loss(tied)[0])
    found = posterior.kernel_at(tied)
    assert found.k1.constant_value == 0.5
    ratio = found.k2.length_scale / kernel.k2.length_scale
    assert_allclose(ratio[0], ratio[1])
    assert (found.k2.length_scale >= 0.9 - 1e-9).all()
    assert (found.k2.length_scale <= 1.6 + 1e-9).all()
    assert abs(ratio[0] - 1.0) > 1e-3
    assert_allclose(posterior.split(tied)[1], NOISE)
    free, *_ = posterior.maximize(posterior.moves(), 100)
    assert posterior.loss(free)[0] < posterior.loss(tied)[0]
    assert (np.abs(posterior.split(free)[1] / NOISE - 1.0) > 0.05).all()


def test_second_derivatives_lead_to_the_maximum_within_bounds(rows, monkeypatch):
    posterior, calls = LogPosterior(START, NOISE, *rows), []
    moves, loss = posterior.moves(), posterior.loss
    _, most, _ = posterior.maximize(moves, 100)
    hessian = posterior.hessian(moves)
    monkeypatch.setattr(posterior, "loss", lambda at: calls.append(1) or loss(at))
    point, value, _ = posterior.maximize(moves, 20, hessian, enough=0.1)
    assert most - 0.3 < value < most + 1e-9
    assert len(calls) <= 12
    assert_allclose(value, -loss(point)[0])
    bounds, up = posterior.bounds.copy(), point > posterior.start
    for k, upwards in enumerate(up):  # the start is at a bound, and the best beyond it
        posterior.bounds = bounds.copy()
        posterior.bounds[k, int(upwards)] = posterior.start[k]
        _, most, _ = posterior.maximize(moves, 100)
        calls.clear()
        point, value, _ = posterior.maximize(moves, 20, hessian, enough=0.1)
        assert len(calls) <= 20
        assert most - 0.3 < value < most + 1e-9
        assert (np.clip(point, *posterior.bounds.T) == point).all()
        assert_allclose(value, -loss(point)[0])


def test_a_climb_learns_second_derivatives(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    moves, N = posterior.moves(), len(rows[0])
    few = posterior.given(*(part[: N // 2] for part in rows))
    of_few = few.hessian(moves) * N / (N // 2)
    posterior.start, _, known = posterior.maximize(moves, 20, of_few)
    right = posterior.hessian(moves)
    error, before = (np.abs(one - right).max() for one in (known, of_few))
    assert error < 0.7 * before
    assert posterior.maximize(moves, 20)[2] is None  # of L-BFGS


def test_a_climb_keeps_the_second_derivatives_of_entries_at_a_bound(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    moves = posterior.moves()
    hessian, slope = posterior.hessian(moves), posterior.loss(posterior.start)[1]
    posterior.bounds[0, int(slope[0] < 0.0)] = posterior.start[0]
    _, _, known = posterior.maximize(moves, 20, hessian)
    assert_array_equal(known[0], hessian[0])
    assert_array_equal(known[:, 0], hessian[:, 0])
    assert known[-1, -1] != hessian[-1, -1]


@pytest.mark.parametrize("seed", range(4))
def test_an_entry_at_its_bound_does_not_stop_the_others(seed, monkeypatch):
    """Second derivatives tie the length-scales to a variance that cannot grow."""
    rng = np.random.default_rng(seed)
    X, ratios = rng.uniform(size=(120, 2)), np.ones((120, 1))
    y = 10.0 * X[:, :1] + 5.0 * np.sin(3.0 * X[:, 1:]) + 0.1 * rng.normal(size=(120, 1))
    kernel = ConstantKernel(30.0, (1e-3, 30.0)) * Matern([2.0, 2.0], nu=2.5)
    all_rows = LogPosterior(kernel, np.array([0.01]), X, y, ratios)
    moves = all_rows.moves()
    all_rows.start, *_ = all_rows.maximize(moves, 100)
    hessian, some = all_rows.hessian(moves), rng.permutation(120)[:100]
    posterior, calls = all_rows.given(X[some], y[some], ratios[some]), []
    loss, before = posterior.loss, -posterior.loss(posterior.start)[0]
    monkeypatch.setattr(posterior, "loss", lambda at: calls.append(1) or loss(at))
    point, value, _ = posterior.maximize(moves, 6, 100 / 120 * hessian, enough=0.1)
    assert posterior.split(point)[0].max() == pytest.approx(30.0)
    assert value > before + 1e-3
    assert len(calls) <= 5


def test_targets_left_out_are_those_of_fits_without_them(rows):
    X, y, ratios = rows
    mean, variance = LogPosterior(START, NOISE, *rows).leave_one_out()
    for i in (0, 7):
        rest = np.arange(len(X)) != i
        for q, noise in enumerate(NOISE):
            C = START(X[rest]) + np.diag(noise * ratios[rest, q])
            k = START(X[rest], X[[i]])[:, 0]
            weights = np.linalg.solve(C, k)
            assert_allclose(mean[i, q], weights @ y[rest, q])
            own = START.diag(X[[i]])[0] + noise * ratios[i, q]
            assert_allclose(variance[i, q], own - weights @ k)


def test_gain_of_a_feature_is_that_of_its_best_multiple(rows, rng):
    X, y, ratios = rows
    posterior = LogPosterior(KERNELS["matern"], np.array([0.1, 0.4]), X, y, ratios)
    features, expected = rng.normal(size=(len(X), 3)), np.zeros(3)
    for q, C in enumerate(posterior.covariances(posterior.start)):
        normal = multivariate_normal(cov=C)
        for k, phi in enumerate(features.T):

            def loss(b):
                return -normal.logpdf(y[:, q] - b * phi)  # noqa: B023

            best = minimize_scalar(loss, bracket=(-1.0, 1.0), tol=1e-10).fun
            expected[k] += loss(0.0) - best
    assert_allclose(posterior.feature_gains(features), expected, rtol=1e-6, atol=1e-8)


def test_shared_moves_hold_each_kernel_together():
    kernel = Polynomial(2, [1.0, 2.0]) + ConstantKernel(2.0) * RBF([0.5, 0.7])
    X, y = np.zeros((3, 2)), np.zeros((3, 1))
    posterior = LogPosterior(kernel, np.ones(1), X, y, np.ones((3, 1)))
    moves = posterior.moves(shared=True)
    assert moves.shape == (7, 5)  # of a sigma, a constant, two kernels and the noise
    assert_allclose(moves.sum(axis=1), 1.0)
    assert sorted(moves.sum(axis=0)) == [1, 1, 1, 2, 2]


def test_common_noise_moves_as_one(rows):
    posterior = LogPosterior(START, NOISE, *rows, turn=True)
    assert posterior.moves().shape == (6, 6)  # of three, two of noise, one of the map
    posterior.common_noise = True
    moves = posterior.moves()
    assert moves.shape == (6, 5)
    assert_allclose(moves.sum(axis=1), 1.0)
    point, *_ = posterior.maximize(moves, 5)
    assert_allclose(np.diff(point[3:5]), np.diff(np.log(NOISE)))
    assert point[3] != posterior.start[3]
    assert posterior.moves(noise=False).shape == (6, 4)


def test_no_moves_keep_the_start(rows):
    posterior = LogPosterior(RBF(1.0, "fixed"), NOISE, *rows)
    moves = posterior.moves(noise=False)
    assert moves.shape == (2, 0)
    assert_allclose(posterior.maximize(moves, 100)[0], posterior.start)
    assert posterior.log_volume(moves) == 0.0


def test_log_volume_is_that_of_laplace(rows):
    posterior = LogPosterior(START, NOISE, *rows)
    best = posterior.kernel_at(posterior.maximize(posterior.moves(noise=False), 100)[0])
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
            factorised(C)


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.full) for seed in (0, 1))]
)
def test_no_output_without_noise_is_taken_for_noise(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (600, 6))
    Y = np.stack([np.sin(3 * (X[:, 0] + X[:, 1])), X[:, 4]], axis=1)
    model = SWSGPRegressor(learn_map=False, random_state=0)
    if seed != 2:  # no output has noise
        with pytest.warns(UserWarning, match="share a kernel"):
            model.fit(X[:300], Y[:300])
    else:
        model.fit(X[:300], Y[:300])
    assert model.noise_variance_.max() < 1e-3
    assert model.score(X[300:], Y[300:]) > 0.99


def test_derivatives_by_the_covariance_are_those_of_the_density(rows, rng):
    _, y, ratios = rows
    K, step = START(rows[0]), 1e-6
    d_K = log_marginal_likelihood(K, y, NOISE, ratios)[1]
    for i, j in rng.integers(25, size=(5, 2)):
        i, j = max(i, j), min(i, j)
        values = []
        for sign in (1.0, -1.0):
            moved = K.copy()
            moved[i, j] += sign * step
            moved[j, i] = moved[i, j]
            values.append(log_marginal_likelihood(moved, y, NOISE, ratios)[0])
        slope = (values[0] - values[1]) / (2.0 * step)
        expected = d_K[i, j] * (1.0 if i == j else 2.0)
        assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


def test_a_point_without_a_factor_turns_the_search_back(rows, monkeypatch):
    posterior = LogPosterior(START, NOISE, *rows)
    _, most, _ = posterior.maximize(posterior.moves(), 100)
    loss, calls = LogPosterior.loss, []

    def fails_once(self, point):
        calls.append(point)
        if len(calls) == 2:
            raise np.linalg.LinAlgError
        return loss(self, point)

    monkeypatch.setattr(LogPosterior, "loss", fails_once)
    found, value, _ = posterior.maximize(posterior.moves(), 100)
    assert value > most - 1.0
    assert_allclose(loss(posterior, found)[0], -value)


def test_a_start_without_a_factor_is_kept(rows, monkeypatch):
    def fails(*_):
        raise np.linalg.LinAlgError

    posterior = LogPosterior(START, NOISE, *rows)
    monkeypatch.setattr(LogPosterior, "loss", fails)
    for moves in (posterior.moves(), np.zeros((5, 0))):
        found, value, _ = posterior.maximize(moves, 100)
        assert value == -np.inf
        assert_allclose(found, posterior.start)


@pytest.mark.parametrize("turn", [False, True])
def test_a_posterior_of_other_rows_keeps_point_and_priors(rows, rng, turn):
    X, y, ratios = rows
    posterior = LogPosterior(START, NOISE, *rows, turn=turn)
    posterior.medians = posterior.medians + 0.1
    posterior.start = posterior.start + 0.2
    few = slice(0, 12)
    other = posterior.given(X[few], y[few], ratios[few])
    expected = LogPosterior(START, NOISE, X[few], y[few], ratios[few], turn=turn)
    expected.medians, expected.variances = posterior.medians, posterior.variances
    for actual, wanted in zip(
        other.loss(other.start), expected.loss(posterior.start), strict=True
    ):
        assert_allclose(actual, wanted, rtol=1e-9)


@pytest.fixture
def sums(rng):
    """Return Z, the `DenseSites` of rows there, and their dense A, W and y."""
    X, y, weight = (
        rng.normal(size=(40, 2)),
        rng.normal(size=(40, 2)),
        rng.uniform(size=40),
    )
    Z, nothing = X[:9], np.zeros((9, 2))
    model, center = neighbor_model(Z, nothing, 1.0 + nothing, START, NOISE, np.float64)
    model = model._replace(jitter=1e-10)
    data = TrainingRows(X, y, weight, center=center)
    found = DenseSites.of(make_cpu_engine(model, 9, 1), data)
    return model.Z, found, np.linalg.solve(START(Z), START(Z, X)).T, weight, y


def test_density_given_sums_is_that_of_their_rows(sums):
    Z, found, A, weight, y = sums
    other = ConstantKernel(0.9) * Matern([0.7, 2.0], nu=1.5)
    posterior = LogPosteriorOfSums(START, NOISE, Z, found)
    expected = -np.sum(np.log(weight))  # of noise over weights, for two outputs
    expected += 0.5 * (40.0 - weight.sum()) * np.log(2.0 * np.pi * NOISE).sum()
    for q in range(2):
        C = A @ other(Z) @ A.T + np.diag(NOISE[q] / weight)
        expected += multivariate_normal.logpdf(y[:, q], cov=C)
    value, _, _ = posterior.log_likelihood(other(Z), NOISE)
    assert_allclose(value, expected, rtol=1e-8)


def test_gradient_given_sums_equals_finite_differences(sums):
    Z, found, *_ = sums
    posterior = LogPosteriorOfSums(START, NOISE, Z, found)
    point = posterior.start + 0.1
    gradient = reference.finite_difference(lambda at: posterior.loss(at)[0], point)
    assert_allclose(posterior.loss(point)[1], gradient, rtol=1e-5, atol=1e-5)
