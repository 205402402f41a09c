"""Draws from q(u), from which the covariance is known where S is large."""

import pickle

import numpy as np
import pytest
from helpers import DTYPES, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from test_natural import make_solver

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.joint import posterior_draws
from skswsgp.joint.posterior_draws import draw

MATERN = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=1.5)
MATERN_OF_FIVE = ConstantKernel(1.5) * Matern(1.5, nu=1.5)


def smooth(n, rng, noise=0.3):
    """Return X, y and the function without noise of n rows of 5 columns."""
    X = rng.uniform(-1, 1, (n, 5))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(X[:, 3])
    return X, f + noise * rng.normal(size=n), f


def covered(model, X, f):
    """Return the fraction of rows whose interval of 95 % holds the function."""
    mean, variance = model.latent_mean_and_variance(X)
    return np.mean(np.abs(f - mean) < 1.96 * np.sqrt(variance))


@pytest.fixture(scope="module")
def data():
    return smooth(900, np.random.default_rng(0))


@pytest.fixture(scope="module")
def drawn(data):
    X, y, _ = data
    return SWSGPRegressor(covariance="draws", random_state=0).fit(X[:500], y[:500])


@pytest.mark.parametrize(
    ("H", "beta", "n_threads"),
    [
        (6, 0.4, 2),
        pytest.param(6, 1.0, 1, marks=pytest.mark.full),
        pytest.param(12, 0.4, 1, marks=pytest.mark.full),
        pytest.param(12, 1.0, 2, marks=pytest.mark.full),
    ],
)
def test_covariance_of_draws_is_that_of_q(H, beta, n_threads, rng):
    Z, X = rng.normal(size=(12, 2)), rng.normal(size=(40, 2))
    Y, weight = rng.normal(size=(40, 2)), rng.uniform(0.5, 2.0, 40)
    how = {"likelihood": ("gaussian", 2), "noise": [0.1, 0.5], "weight": weight}
    how |= {"beta": beta, "n_threads": n_threads}
    exact = make_solver(MATERN, Z, H, X, Y, full=True, **how)
    exact.advance(0)
    solver = make_solver(MATERN, Z, H, X, Y, **how)
    solver.advance(0)
    u = draw(solver, 20_000, np.random.RandomState(0))
    for q, L in enumerate(exact.engine.model.L):
        S = L @ L.T
        unit = np.sqrt(np.outer(S.diagonal(), S.diagonal()))
        found = u[:, :, q] @ u[:, :, q].T / u.shape[1]
        assert_allclose(found / unit, S / unit, atol=0.06)  # 6 / sqrt(20,000), 0.01


def test_draws_of_classes_use_their_sites(rng):
    Z, X = rng.normal(size=(12, 2)), rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(float)
    solvers = [
        make_solver(MATERN, Z, 8, X, y, ("bernoulli", 1), full=full)
        for full in (True, False)
    ]
    for solver in solvers:
        solver.advance(0)
    L = solvers[0].engine.model.L[0]
    solvers[1].sites.precision[:] = solvers[0].sites.precision
    u = draw(solvers[1], 20_000, np.random.RandomState(0))[:, :, 0]
    unit = np.abs(L @ L.T).max()
    assert_allclose(u @ u.T / u.shape[1] / unit, L @ L.T / unit, atol=0.06)


@pytest.mark.full  # a claim of accuracy
def test_deviations_are_those_of_a_full_covariance(data, drawn):
    X, y, _ = data
    full = SWSGPRegressor(covariance="full", random_state=0).fit(X[:500], y[:500])
    assert_allclose(drawn.predict(X), full.predict(X), atol=1e-2)  # less jitter there
    L = full.inducing_covariance_
    L = L[:, :, 0] if L.ndim == 3 else L
    draws = drawn.posterior_draws_
    jitter = drawn._jitter * drawn.kernel_.diag(X[:1])  # u has it, f does not
    ratio = np.sqrt((draws.var(axis=1) - jitter) / np.sum(L**2, axis=1))
    assert 0.85 < np.median(ratio) < 1.15
    assert np.quantile(ratio, 0.05) > 0.75
    assert np.quantile(ratio, 0.95) < 1.3
    assert drawn.posterior_draws_.shape == (500, 64)
    assert drawn.inducing_covariance_.shape == (500,)


@pytest.mark.full
def test_intervals_of_the_function_hold(tune):
    tune(full_work=0)
    rng = np.random.default_rng(0)
    X, y, _ = smooth(1000, rng)
    X_test, _, f = smooth(1000, rng)
    held = {}
    for covariance in ("diag", "draws"):
        model = SWSGPRegressor(covariance=covariance, random_state=0).fit(X, y)
        held[covariance] = covered(model, X_test, f)
    assert held["diag"] < 0.85
    assert 0.9 < held["draws"] <= 1.0


@pytest.mark.usefixtures("few_steps")
def test_as_few_points_as_draws_have_a_full_covariance(data, tune):
    tune(n_draws=50)
    X, y, _ = data
    model = SWSGPRegressor(covariance="draws", n_inducing=50, random_state=0).fit(X, y)
    assert model.inducing_covariance_.shape == (50, 50)
    assert not hasattr(model, "posterior_draws_")


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("full_work", [0, 1e10])
@pytest.mark.parametrize("Q", [1, 2])
def test_covariances_are_made_when_a_call_needs_them(full_work, Q, data, tune):
    tune(full_work=full_work, n_draws=40)
    X, y, f = data
    y = y if Q == 1 else np.stack([y, f], axis=1)
    model = SWSGPRegressor(n_neighbors=9, predictive="gaussian", random_state=0)
    _, std = model.fit(X[:200], y[:200]).predict(X[200:230], return_std=True)
    assert not hasattr(model, "_covariance_factor")
    mean, cov = model.predict(X[200:230], return_cov=True)
    k = 200 if full_work else 40
    assert model._covariance_factor.shape == (200, k, Q)
    assert_allclose(np.sqrt(np.diagonal(cov)).T, std, rtol=1e-6)
    draws = model.sample_f(X[200:230], 400)
    noise = np.reshape(model.noise_std(X[200:230]), std.shape)
    of_f = np.sqrt(std**2 - noise**2)
    assert_allclose(np.std(draws, axis=-1) / of_f, 1.0, atol=0.25)
    assert_allclose((np.mean(draws, axis=-1) - mean) / of_f, 0.0, atol=0.25)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.sample_f(X[:5], 3), model.sample_f(X[:5], 3))
    assert not hasattr(model.fit(X[:90], y[:90]), "_covariance_factor")


def test_bits_do_not_depend_on_threads(data, drawn):
    X, y, _ = data
    again = clone(drawn).set_params(n_jobs=2).fit(X[:500], y[:500])
    assert_array_equal(again.posterior_draws_, drawn.posterior_draws_)
    other = pickle.loads(pickle.dumps(drawn))
    assert_array_equal(other.predict(X, True), drawn.predict(X, True))


def test_another_fit_drops_the_draws(data, drawn):
    X, y, _ = data
    model = pickle.loads(pickle.dumps(drawn))
    model.set_params(covariance="auto").partial_fit(X[:100], y[:100])
    assert not hasattr(model, "posterior_draws_")
    model = pickle.loads(pickle.dumps(drawn)).set_params(warm_start=True)
    model.fit(X[:300], y[:300])
    assert model.posterior_draws_.shape == (500, 64)
    model.set_params(covariance="diag").fit(X[:300], y[:300])
    assert not hasattr(model, "posterior_draws_")


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_outputs_and_precision(dtype, rng, tune):
    tune(n_draws=40)
    X, y, f = smooth(300, rng)
    Y = np.stack([y, 10 * f + 5 + rng.normal(size=300)], axis=1)
    model = SWSGPRegressor(covariance="draws", dtype=dtype, random_state=0)
    mean, std = model.fit(X, Y).predict(X, return_std=True)
    assert model.posterior_draws_.shape == (300, 40, 2)
    assert model.posterior_draws_.dtype == dtype
    assert np.isfinite(std).all()
    assert mean.shape == std.shape == Y.shape
    assert np.isfinite(model.lower_bound(X, Y))
    assert np.isfinite(model.feature_importances_).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_with_draws_are_less_sure(n_classes, rng):
    X, _, f = smooth(400, rng)
    y = np.digitize(f, np.quantile(f, np.arange(1, n_classes) / n_classes))
    plain, drawn = (
        SWSGPClassifier(
            RBF(1.0), learn_kernel=False, covariance=covariance, random_state=0
        )
        for covariance in ("diag", "draws")
    )
    certain = plain.fit(X, y).predict_proba(X).max(axis=1).mean()
    assert drawn.fit(X, y).predict_proba(X).max(axis=1).mean() < certain


def test_draws_that_fail_are_tried_again_where_they_are_needed(monkeypatch, data):
    X, y, _ = data
    monkeypatch.setattr(posterior_draws, "draw", lambda *_: None)
    how = {"kernel": MATERN_OF_FIVE, "learn_kernel": False, "n_neighbors": 9}
    model = SWSGPRegressor(covariance="draws", random_state=0, **how)
    model._tuning = model._tuning._replace(full_work=0)
    with pytest.warns(UserWarning, match="draws from q.u. did not converge: the model"):
        model.fit(X[:100], y[:100])
    assert not hasattr(model, "posterior_draws_")
    assert np.isfinite(model.predict(X, return_std=True)).all()
    with pytest.warns(UserWarning, match="did not converge: functions at different"):
        assert np.isfinite(model.sample_f(X[:9])).all()
    monkeypatch.setattr(posterior_draws, "draw", draw)
    model.sample_f(X[:9])
    assert model._covariance_factor.shape == (100, 64, 1)


@pytest.mark.parametrize(
    "params",
    [{"solver": "adam"}, {"optimize_inducing": True}],
    ids=["adam", "moving"],
)
def test_draws_need_the_natural_solver(params, data):
    X, y, _ = data
    with pytest.raises(ValueError, match="covariance='draws' with"):
        make(SWSGPRegressor, covariance="draws", **params).fit(X, y)


def test_draws_that_do_not_fit_in_memory(tune, data, few_steps):
    X, y, _ = data
    model = SWSGPRegressor(covariance="draws", random_state=0)
    X, y = X[:300], y[:300]
    tune(full_covariance_bytes=8 * 300 * 64 - 1)
    with pytest.raises(ValueError, match="64 draws of 300 inducing points"):
        model.fit(X, y)
    tune(full_covariance_bytes=8 * 300 * 64)
    assert hasattr(model.fit(X, y), "posterior_draws_")


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_deviations_are_those_of_a_dense_solution_for_any_noise(noise):
    X = np.random.default_rng(0).uniform(0.0, 1.0, size=(250, 1))
    kernel = ConstantKernel(1.0) * RBF(0.3)
    solver = make_solver(kernel, X, 20, X, X[:, 0], noise=[noise])
    solver.advance(0)
    A, P = solver.sites.rows.matvec(np.eye(250)), solver.prior.dense_precision()
    S = np.linalg.inv(A.T @ A / noise + P)
    u = draw(solver, 400, np.random.RandomState(0))[:, :, 0]
    found = np.mean((A @ u) ** 2, axis=1)
    expected = np.einsum("ij,jk,ik->i", A, S, A)
    assert_allclose(np.sqrt(found / expected), 1.0, atol=0.2)  # 6 / sqrt(2 * 400)
    assert np.sqrt(np.mean(found) / np.mean(expected)) == pytest.approx(1.0, abs=0.1)


def test_a_system_that_was_not_solved_gives_no_draws(rng):
    X = rng.normal(size=(30, 2))
    solver = make_solver(MATERN, X, 6, X, X[:, 0])
    solver.advance(0)
    assert draw(solver, 8, np.random.RandomState(0)).shape == (30, 8, 1)
    few = {"first_cg_steps": 1, "most_cg_steps": 1, "round_tolerance": 1e-12}
    solver.tuning = solver.tuning._replace(**few)
    assert draw(solver, 8, np.random.RandomState(0)) is None
    assert solver.leverage(np.random.RandomState(0)) is None
