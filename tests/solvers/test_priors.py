"""The weight of the divergence, a full S, and the natural solver in little memory."""

import numpy as np
import pytest
import reference
import sklearn
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from small_models import natural_settings

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads
from skswsgp._engine.select import make_cpu_engine
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers import auto
from skswsgp._solvers.model import build_model
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.rows import RowsInMemory
from skswsgp._solvers.tuning import Tuning

MATERN = 1.5 * Matern([0.8, 1.5], nu=1.5)
FIXED = ConstantKernel(1.5, "fixed") * Matern(1.0, "fixed", nu=1.5)
M = 10
EXACT = {
    "round_tolerance": 1e-13,
    "final_tolerance": 1e-13,
}
LIKELIHOODS = [("gaussian", 2), ("bernoulli", 1), ("softmax", 3)]


@pytest.fixture(autouse=True)
def exact(monkeypatch, tune):
    """Let conjugate gradients run until rounding stops them; use small blocks."""
    tune(**EXACT)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 7)


@pytest.fixture
def table(rng):
    return rng.normal(size=(16, 2)), rng.normal(size=(M, 2)), rng.uniform(0.3, 2, 16)


def targets(rng, likelihood, n=16):
    name, Q = likelihood
    if name == "gaussian":
        return rng.normal(size=(n, Q))
    if name == "bernoulli":
        return rng.choice([-1.0, 1.0], (n, 1))
    return rng.integers(Q, size=(n, 1)).astype(float)


def make_solver(table, H, y, likelihood, *, beta=1.0, full=False, kernel=MATERN):
    X, Z, weight = table
    Q = likelihood[1]
    S = np.full((len(Z), Q), 0.3)
    if full:
        S = np.repeat(0.5 * np.eye(len(Z))[:, :, None], Q, axis=2)
    attributes = {
        "kernel_": kernel,
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((len(Z), Q)),
        "inducing_covariance_": S,
    }
    if likelihood[0] == "gaussian":
        attributes["noise_variance_"] = np.linspace(0.1, 0.4, Q)
    model, center = build_model(
        attributes, likelihood, "float64", beta, total_weight=weight.sum()
    )
    data = TrainingRows(X, y, weight, center=center)
    settings = natural_settings(*likelihood, tuning=Tuning(**EXACT))
    rng = np.random.RandomState(0)
    engine, rows = make_cpu_engine(model, H, 1), RowsInMemory(data)
    return NaturalSolver(engine, rows, kernel, settings, rng)


# --- the weight of the divergence -----------------------------------------------------


@pytest.mark.parametrize(("solver", "expected"), [("natural", 1.0), ("adam", 4.0)])
def test_default_weight_of_each_solver(rng, solver, expected):
    X = rng.normal(size=(40, 2))
    model = make(SWSGPRegressor,
        FIXED, learn_kernel=False, solver=solver, n_inducing=20, n_neighbors=5,
        max_iter=2, random_state=0,
    ).fit(X, X[:, 0])  # fmt: skip
    assert model._kl_weight == expected


# --- full covariance ------------------------------------------------------------------


@pytest.mark.parametrize(("H", "beta"), [(4, 1.0), (4, 2.5), (M, 1.0)])
def test_full_covariance_of_the_optimum_equals_the_reference(rng, table, H, beta):
    X, Z, weight = table
    y = targets(rng, ("gaussian", 2))
    solver = make_solver(table, H, y, ("gaussian", 2), beta=beta, full=True)
    loss, _ = solver.advance(0)
    model = solver.engine.model
    P = reference.vecchia_covariance(MATERN, Z, list(solver.order), H, model.jitter)
    A, F = reference.inducing_weights(MATERN, X, Z, H, model.jitter)
    bound = 0.0
    for q, noise in enumerate(model.noise):
        B = A.T @ np.diag(weight / noise) @ A + beta * np.linalg.inv(P)
        S, m = (
            beta * np.linalg.inv(B),
            np.linalg.solve(B, A.T @ (weight / noise * y[:, q])),
        )
        assert_allclose(model.L[q] @ model.L[q].T, S, atol=1e-8)
        assert_allclose(model.m[:, q], m, atol=1e-7)
        assert_array_equal(np.triu(model.L[q], 1), 0.0)
        v = F + np.einsum("ij,jk,ik->i", A, S, A)
        for i in range(len(X)):
            ell = reference.expected_log_prob(
                "gaussian", y[i, [q]], A[[i]] @ m, v[[i]], model.noise[[q]]
            )
            bound += weight[i] * ell
        bound -= beta * reference.gaussian_kl(m, S, P)
    assert loss == pytest.approx(-bound / weight.sum(), rel=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS[1:])
def test_full_covariance_has_a_higher_bound_than_its_diagonal(rng, table, likelihood):
    y = targets(rng, likelihood)
    losses = []
    for full in (False, True):
        solver = make_solver(table, 4, y, likelihood, full=full)
        losses.append([solver.advance(epoch)[0] for epoch in range(40)])
    assert losses[1][-1] < losses[0][-1] - 1e-4
    assert abs(losses[1][-1] - losses[1][-2]) < 1e-8


def test_full_covariance_gives_the_exact_gaussian_process(monkeypatch, rng):
    monkeypatch.setattr(auto, "natural_jitter", lambda *args: 1e-9)
    X, X_new = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    kernel = ConstantKernel(2.0, "fixed") * RBF(0.7, "fixed")
    model = SWSGPRegressor(
        kernel, inducing_points=X, n_neighbors=30, learn_kernel=False,
        covariance="full", initial_noise=1e-2, normalize_y=False,
        predictive="gaussian", random_state=0,
    ).fit(X, y)  # fmt: skip
    exact_model = GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)
    exact_mean, exact_std = exact_model.predict(X_new, return_std=True)
    assert_allclose(mean, exact_mean, atol=1e-4)
    assert_allclose(std, np.sqrt(exact_std**2 + 1e-2), atol=1e-4)


@pytest.mark.parametrize("first", ["diag", "full"])
def test_warm_start_with_the_other_covariance(rng, first):
    X = rng.normal(size=(40, 2))
    y = np.c_[X[:, 0], X[:, 1]]
    settings = {"n_neighbors": 5, "learn_kernel": False, "random_state": 0}
    model = make(SWSGPRegressor, FIXED, covariance=first, **settings).fit(X, y)
    other = "full" if first == "diag" else "diag"
    model.set_params(covariance=other, warm_start=True).fit(X, y)
    assert model.inducing_covariance_.shape == (
        (40, 40, 2) if other == "full" else (40, 2)
    )
    assert np.isfinite(model.predict(X, return_std=True)).all()


# --- memory ---------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize(("H", "full"), [(4, False), (M, False), (4, True)])
def test_streamed_rows_equal_stored_rows(rng, table, likelihood, H, full):
    y = targets(rng, likelihood)
    options = {"full": full}
    stored = make_solver(table, H, y, likelihood, **options)
    assert stored.sites.rows.stored is not None
    with sklearn.config_context(working_memory=1e-4):
        streamed = make_solver(table, H, y, likelihood, **options)
    assert streamed.sites.rows.stored is None
    for epoch in range(3):
        first, second = stored.advance(epoch), streamed.advance(epoch)
        assert first == pytest.approx(second, rel=1e-9)
    for name in ("m", "s", "L"):
        first, second = (
            getattr(solver.engine.model, name) for solver in (stored, streamed)
        )
        assert_allclose(first, second, atol=1e-9)


@pytest.mark.parametrize(
    ("entry", "dtype"), [(12, "float64"), (8, "float32"), (7, None)]
)
def test_rows_are_stored_in_float32_beyond_the_memory_budget(rng, table, entry, dtype):
    likelihood = "gaussian", 2
    y = targets(rng, likelihood)
    whole = make_solver(table, 4, y, likelihood)
    budget = entry * 4 * len(y) / 2**20
    with sklearn.config_context(working_memory=budget):
        solver = make_solver(table, 4, y, likelihood)
    stored = solver.sites.rows.stored
    assert (stored and stored.weights.dtype) == dtype
    whole.advance(0), solver.advance(0)
    assert_allclose(solver.engine.model.m, whole.engine.model.m, atol=1e-4)


@pytest.mark.parametrize("estimator", [SWSGPRegressor, SWSGPClassifier])
def test_fits_within_little_memory(rng, estimator):
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) > 0
    model = estimator(n_neighbors=5, random_state=0)
    stored = model.fit(X, y).inducing_mean_
    short = pytest.warns(UserWarning, match="of 60 rows, with n_neighbors=5")
    with sklearn.config_context(working_memory=1e-4), short:
        streamed = model.fit(X, y).inducing_mean_
    assert_allclose(stored, streamed, atol=1e-6)
