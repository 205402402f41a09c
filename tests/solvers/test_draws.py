"""Draws from q(u), from which the covariance is known where S is large."""

import pickle

import numpy as np
import pytest
from helpers import DTYPES, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from test_natural import make_solver

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._solvers.draws import PosteriorSampler
from skswsgp._solvers.tuning import Tuning

MATERN = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=1.5)


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
        pytest.param(30, 0.4, 1, marks=pytest.mark.full),
        pytest.param(30, 1.0, 2, marks=pytest.mark.full),
    ],
)
def test_covariance_of_draws_is_that_of_q(H, beta, n_threads, rng):
    Z, X = rng.normal(size=(30, 2)), rng.normal(size=(80, 2))
    Y, weight = rng.normal(size=(80, 2)), rng.uniform(0.5, 2.0, 80)
    how = {"likelihood": ("gaussian", 2), "noise": [0.1, 0.5], "weight": weight}
    how |= {"beta": beta, "n_threads": n_threads}
    exact = make_solver(MATERN, Z, H, X, Y, full=True, **how)
    exact.advance(0)
    solver = make_solver(MATERN, Z, H, X, Y, **how)
    solver.advance(0)
    u = solver.draw(20_000, np.random.RandomState(0))
    for q, L in enumerate(exact.engine.model.L):
        S = L @ L.T
        unit = np.sqrt(np.outer(S.diagonal(), S.diagonal()))
        found = u[:, :, q] @ u[:, :, q].T / u.shape[1]
        assert_allclose(found / unit, S / unit, atol=0.06)  # 6 / sqrt(20,000), 0.01


def sampler_of(solver, **tuning):
    """Return the sampler of a solver that has advanced."""
    tuning = Tuning(round_tolerance=1e-12, draw_noise_tolerance=1e-12, **tuning)
    sites = solver.sites.divided(solver.engine.model.kl_weight)
    return PosteriorSampler(sites, solver.prior, solver.order, tuning)


@pytest.mark.matrix
@pytest.mark.parametrize("n_points", [0, 3, 30])
@pytest.mark.parametrize("M", [30, 12])
def test_both_systems_have_the_solution_of_the_dense_one(n_points, M, rng):
    X = rng.normal(size=(30, 2))
    solver = make_solver(MATERN, X[:M], 6, X, X[:, 0], beta=0.4)
    solver.advance(0)
    sampler = sampler_of(solver, global_points=n_points)
    w = sampler.sites.precision * rng.uniform(0.0, 2.0, (30, 1))  # as sites have it
    w[3] = 0.0
    sampler.sites = sampler.sites._replace(precision=w)
    A, R = (rows.matvec(np.eye(M)) for rows in (solver.sites.rows, solver.prior.rows))
    e_1, e_2 = rng.normal(size=(30, 8)), rng.normal(size=(M, 8))
    right = A.T @ (np.sqrt(w) * e_1) + R.T @ e_2
    expected = np.linalg.solve(A.T @ (w * A) + R.T @ R, right)
    for solve in (sampler._solve_inducing, sampler._solve_rows):
        u, left = solve(0, e_1, e_2, 200)
        assert len(left) == 0
        assert_allclose(u, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("weak_data", [0.0, 1.0])
def test_a_system_that_fails_leaves_the_draws_to_the_other(weak_data, monkeypatch, rng):
    X = rng.normal(size=(30, 2))
    solver = make_solver(MATERN, X, 6, X, X[:, 0])
    solver.advance(0)
    expected = sampler_of(solver, weak_data=weak_data).draw(8, np.random.RandomState(0))
    first = "_solve_rows" if weak_data == 0.0 else "_solve_inducing"
    called = []

    def fails(sampler, q, e_1, e_2, steps):
        called.append(first)
        return np.zeros((30, 8)), np.arange(8)

    monkeypatch.setattr(PosteriorSampler, first, fails)
    found = sampler_of(solver, weak_data=weak_data).draw(8, np.random.RandomState(0))
    assert called == [first]
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_draws_of_classes_use_their_sites(rng):
    Z, X = rng.normal(size=(20, 2)), rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(float)
    solvers = [
        make_solver(MATERN, Z, 8, X, y, ("bernoulli", 1), full=full)
        for full in (True, False)
    ]
    for solver in solvers:
        solver.advance(0)
    L = solvers[0].engine.model.L[0]
    solvers[1].sites.precision[:] = solvers[0].sites.precision
    u = solvers[1].draw(20_000, np.random.RandomState(0))[:, :, 0]
    unit = np.abs(L @ L.T).max()
    assert_allclose(u @ u.T / u.shape[1] / unit, L @ L.T / unit, atol=0.06)


@pytest.mark.full  # a claim of accuracy
def test_deviations_are_those_of_a_full_covariance(data, drawn):
    X, y, _ = data
    full = SWSGPRegressor(covariance="full", random_state=0).fit(X[:500], y[:500])
    assert_allclose(drawn.predict(X), full.predict(X), atol=1e-2)  # less jitter there
    ratio = np.sqrt(drawn._latent(X, True)[1] / full._latent(X, True)[1])
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


@pytest.mark.matrix
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("n_draws", [39, 40, 41])
@pytest.mark.parametrize("Q", [1, 2])
def test_as_many_draws_as_points_are_no_triangle(n_draws, Q, data, tune):
    # so that "auto" takes draws where a full S is small
    tune(full_work=0, n_draws=n_draws)
    X, y, f = data
    y = y if Q == 1 else np.stack([y, f], axis=1)
    model = SWSGPRegressor(n_inducing=40, n_neighbors=9, random_state=0)
    model.fit(X[:200], y[:200])
    assert model.posterior_draws_.shape[:2] == (40, n_draws)
    _, std = model.predict(X[200:230], return_std=True)
    _, cov = model.predict(X[200:230], return_cov=True)
    assert_allclose(np.sqrt(np.diagonal(cov)).T, std, rtol=1e-6)


def test_draws_in_blocks_are_those_drawn_together(rng):
    Z, X = rng.normal(size=(30, 2)), rng.normal(size=(80, 2))
    tuning = Tuning(round_tolerance=1e-12)
    solver = make_solver(MATERN, Z, 6, X, X[:, 0], tuning=tuning)
    solver.advance(0)
    together = solver.draw(20, np.random.RandomState(0))
    with config_context(working_memory=0.001):
        blocks = solver.draw(20, np.random.RandomState(0))
    assert_allclose(blocks, together, rtol=1e-9, atol=1e-9)


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


def test_draws_that_fail_leave_the_diagonal(monkeypatch, data, few_steps):
    def fails(sampler, q, e_1, e_2, steps):
        return np.full(e_2.shape, np.nan), []

    X, y, _ = data
    for way in ("_solve_inducing", "_solve_rows"):
        monkeypatch.setattr(PosteriorSampler, way, fails)
    with pytest.warns(UserWarning, match="did not converge"):
        model = SWSGPRegressor(covariance="draws", random_state=0).fit(X[:100], y[:100])
    assert not hasattr(model, "posterior_draws_")
    assert np.isfinite(model.predict(X, return_std=True)).all()


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


@pytest.mark.matrix
@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("way", ["_solve_rows", "_solve_inducing"])
def test_deviations_are_those_of_a_dense_solution_for_any_noise(noise, way):
    X = np.random.default_rng(0).uniform(0.0, 1.0, size=(500, 1))
    kernel = ConstantKernel(1.0) * RBF(0.3)
    solver = make_solver(kernel, X, 20, X, X[:, 0], noise=[noise])
    solver.advance(0)
    sites = solver.sites.divided(solver.engine.model.kl_weight)
    sampler, w = (
        PosteriorSampler(sites, solver.prior, solver.order, Tuning()),
        sites.precision,
    )
    A, R = (rows.matvec(np.eye(500)) for rows in (solver.sites.rows, solver.prior.rows))
    e_1, e_2 = np.random.default_rng(1).standard_normal((2, 500, 64))
    right = A.T @ (np.sqrt(w) * e_1) + R.T @ e_2
    expected = A @ np.linalg.solve(A.T @ (w * A) + R.T @ R, right)
    u, left = getattr(sampler, way)(0, e_1, e_2, 500)
    assert len(left) == 0
    ratio = np.sqrt(np.sum((A @ u) ** 2, axis=1) / np.sum(expected**2, axis=1))
    assert 0.95 < ratio.min() and ratio.max() < 1.05


def test_draws_of_a_function_that_rows_hardly_show_are_as_exact(rng):
    n = 8000
    X = rng.uniform(size=(n, 1))
    kernel = ConstantKernel(1.0) * RBF(0.3)
    rough = Tuning(final_tolerance=1.0)  # the mean does not matter
    solver = make_solver(kernel, X, 10, X, X[:, 0], noise=[30.0], tuning=rough)
    solver.advance(0)
    e_1, e_2 = np.random.default_rng(1).standard_normal((2, n, 16))
    sites = solver.sites.divided(solver.engine.model.kl_weight)
    w = sites.precision
    samplers = [
        PosteriorSampler(sites, solver.prior, solver.order, Tuning(**options))
        for options in ({}, {"draw_noise_tolerance": 1e-7})
    ]
    found, exact = (
        solver.sites.rows.matvec(each._solve_rows(0, e_1, e_2, 200)[0])
        for each in samplers
    )
    assert np.sum(w * exact**2) / 16 < 20.0  # degrees of freedom, of 8,000 rows
    error = np.linalg.norm(found - exact, axis=0) / np.linalg.norm(exact, axis=0)
    assert error.max() < 0.03


def test_a_system_that_converges_slowly_gets_more_steps(monkeypatch, rng):
    X = rng.normal(size=(30, 2))
    solver = make_solver(MATERN, X, 6, X, X[:, 0])
    solver.advance(0)
    expected = sampler_of(solver).draw(8, np.random.RandomState(0))
    hasty = {"first_cg_steps": 1, "weak_data": 0.0}
    found = sampler_of(solver, **hasty).draw(8, np.random.RandomState(0))
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert (
        sampler_of(solver, solver_work=0.0, **hasty).draw(8, np.random.RandomState(0))
        is None
    )

    def fails(*args):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(PosteriorSampler, "_solve_rows", fails)
    found = sampler_of(solver, **hasty).draw(8, np.random.RandomState(0))
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
