"""The natural solver: its Vecchia prior, its optimum, its failures."""

import numpy as np
import pytest
import reference
from helpers import assert_close, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)
from small_models import natural_settings

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import linalg, threads
from skswsgp._covariance.compile import compile_kernel
from skswsgp._engine.select import make_cpu_engine
from skswsgp._linear.projection import Projection
from skswsgp._linear.row_matrix import SelectionMatrix
from skswsgp._neighbors.lists import NeighborTracker
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._solvers import auto, natural
from skswsgp._solvers.auto import natural_jitter
from skswsgp._solvers.model import JITTER, build_model, shape_covariance
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.priors import make_vecchia_prior
from skswsgp._solvers.rows import RowsInMemory
from skswsgp._solvers.tuning import Tuning

pytestmark = pytest.mark.matrix
MATERN = 1.5 * Matern([0.8, 1.5], nu=1.5)
SEVERAL = 1.5 * Matern([0.8, 1.5], nu=1.5) + RBF(2.0) + WhiteKernel(0.1)
KERNELS = [MATERN, SEVERAL]
M = 12


@pytest.fixture
def Z(rng):
    return rng.normal(size=(M, 2))


# Conjugate gradients run until rounding stops them.
EXACT = Tuning(round_tolerance=1e-13, final_tolerance=1e-13)


@pytest.fixture
def exact(tune):
    """Let conjugate gradients of estimators run until rounding stops them."""
    tune(round_tolerance=1e-13, final_tolerance=1e-13)


def make_solver(
    kernel, Z, H, X=None, y=None, likelihood=("gaussian", 1), *, noise=0.1, weight=None,
    beta=1.0, dtype="float64", n_threads=1,
    full=False, tuning=EXACT, at=None, jitter=JITTER,
):  # fmt: skip
    """Return the solver for inducing points Z; X is Z and y zero unless given.

    `at` are the points of the rows, if the solver may know that they lie there.
    """
    X = Z if X is None else X
    Q = likelihood[1]
    y = np.zeros((len(X), Q)) if y is None else y.reshape(len(X), -1)
    weight = np.ones(len(X)) if weight is None else weight
    attributes = {
        "kernel_": kernel,
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((len(Z), Q)),
        "inducing_covariance_": np.full((len(Z), Q), 0.3),
        "_jitter": jitter,
    }
    attributes = shape_covariance(attributes, full)
    if likelihood[0] == "gaussian":
        attributes["noise_variance_"] = np.broadcast_to(noise, Q)
    model, center = build_model(
        attributes, likelihood, dtype, beta, total_weight=weight.sum()
    )
    rows = X, y.astype(dtype), weight.astype(dtype)
    data = TrainingRows(*rows, center=center, at=at)
    engine = make_cpu_engine(model, H, n_threads)
    settings = natural_settings(*likelihood, tuning=tuning)
    rows, rng = RowsInMemory(data), np.random.RandomState(0)
    return NaturalSolver(engine, rows, kernel, settings, rng)


def project(solver, kernel):
    """Return the `Projection` of a solver's rows under another kernel."""
    lookup = NeighborTracker(solver.search, solver.data.n_rows, memory_budget()).lookup
    return Projection(solver.engine, kernel, solver.data, lookup, memory_budget())


def reference_of(solver, kernel, Z, X):
    """Return dense A, F and prior covariance P from the reference."""
    H, jitter = solver.engine.n_neighbors, solver.engine.model.jitter
    P = reference.vecchia_covariance(kernel, Z, list(solver.order), H, jitter)
    return *reference.inducing_weights(kernel, X, Z, H, jitter), P


def bound_of(solver, dense, y, m, s, likelihood="gaussian"):
    """Return the bound for dense (A, F, P) from the reference."""
    model = solver.engine.model
    if likelihood == "softmax":
        y = y.ravel()
    arguments = model.noise, solver.sites.weight, model.kl_weight, model.nodes.T
    return reference.natural_bound(
        *dense[:2], y, m, s, dense[2], likelihood, *arguments
    )


def slopes_of(solver, dense, y, likelihood="gaussian"):
    """Return central differences of the bound by m and by log s."""
    model = solver.engine.model
    m, s = model.m.copy(), model.s.copy()

    def by_m(values):
        return bound_of(solver, dense, y, values.reshape(m.shape), s, likelihood)

    def by_log_s(values):
        return bound_of(
            solver, dense, y, m, np.exp(values.reshape(m.shape)), likelihood
        )

    return np.concatenate(
        [
            reference.finite_difference(by_m, m.ravel(), 1e-4),
            reference.finite_difference(by_log_s, np.log(s.ravel()), 1e-4),
        ]
    )


# --- the Vecchia prior ----------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=["one", "several"])
@pytest.mark.parametrize("H", [1, 4, M - 1, M])
def test_vecchia_prior_equals_the_reference(Z, kernel, H):
    solver = make_solver(kernel, Z, H)
    _, _, P = reference_of(solver, kernel, Z, Z[:0])
    R = solver.prior.rows.matvec(np.eye(M))
    assert_allclose(R.T @ R @ P, np.eye(M), atol=1e-8)
    assert_allclose(solver.prior.dense_precision(), R.T @ R, rtol=1e-9)
    assert_allclose(solver.prior.precision, np.diag(R.T @ R), rtol=1e-12)
    assert solver.prior.log_det == pytest.approx(np.linalg.slogdet(P)[1], rel=1e-10)


@pytest.mark.parametrize("kernel", [*KERNELS, DotProduct(0.5)])
def test_vecchia_prior_with_all_predecessors_is_the_exact_prior(Z, kernel):
    R = make_solver(kernel, Z, M).prior.rows.matvec(np.eye(M))
    K = kernel(Z)
    K += JITTER * np.mean(np.diag(K)) * np.eye(M)
    assert_allclose(R.T @ R @ K, np.eye(M), atol=1e-7)


def test_vecchia_factor_is_triangular_in_the_random_order(Z):
    solver = make_solver(MATERN, Z, 4)
    R = solver.prior.rows.matvec(np.eye(M))[:, solver.order]
    assert_array_equal(np.triu(R, 1), 0.0)
    assert (np.diag(R) > 0).all()
    assert not np.array_equal(solver.order, np.arange(M))


@pytest.mark.parametrize("H", [4, M])
def test_divergence_equals_that_between_gaussians(rng, Z, H):
    solver = make_solver(MATERN, Z, H)
    _, _, P = reference_of(solver, MATERN, Z, Z[:0])
    m, s = rng.normal(size=(M, 2)), rng.uniform(0.1, 2.0, (M, 2))
    expected = sum(reference.gaussian_kl(m[:, q], np.diag(s[:, q]), P) for q in (0, 1))
    assert solver.prior.divergence(m, s) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("H", [4, M])
def test_scaled_vecchia_prior_equals_that_of_the_scaled_kernel(Z, H):
    actual = make_solver(MATERN, Z, H).prior.scaled(7.0)
    expected = make_solver(10.5 * MATERN.k2, Z, H).prior
    assert_allclose(
        actual.rows.matvec(np.eye(M)), expected.rows.matvec(np.eye(M)), atol=1e-9
    )
    assert_allclose(actual.precision, expected.precision, rtol=1e-9)
    assert actual.log_det == pytest.approx(expected.log_det, rel=1e-9)


@pytest.mark.slow  # compiles for float32
def test_vecchia_prior_in_float32(Z):
    actual = make_solver(MATERN, Z, 4, dtype="float32").prior.rows.matvec(np.eye(M))
    expected = make_solver(MATERN, Z, 4).prior.rows.matvec(np.eye(M))
    assert_allclose(actual, expected, atol=2e-3)


@pytest.mark.parametrize("n_columns", [2, 9])
@pytest.mark.parametrize("H", [1, 4, M])
def test_products_with_precision_and_covariance(rng, Z, H, n_columns):
    solver = make_solver(MATERN, Z, H)
    _, _, P = reference_of(solver, MATERN, Z, Z[:0])
    u = rng.normal(size=(M, n_columns))
    assert_allclose(solver.prior.rows.solve(u), P @ u, atol=1e-9)
    assert_allclose(solver.prior.rows.solve(solver.prior.matvec(u)), u, atol=1e-9)


@pytest.mark.parametrize("H", [5, 600])
@pytest.mark.parametrize(
    "kernel", [Matern([1.0, 3.0, 0.5]), RBF(0.7) + 0.3 * DotProduct(0.5)]
)
def test_predecessors_are_the_nearest_earlier_points(rng, kernel, H):
    Z = rng.normal(size=(1300, 3))
    struct = compile_kernel(kernel, 3, np.float64).struct
    search = NeighborSearch(Z, struct, n_neighbors=H, search="scan", n_threads=2)
    assert search.metric.name == ("scaled" if len(struct.code) == 1 else "kernel")
    K = kernel(Z)
    expected = [np.argsort(-K[j, :j], kind="stable")[:H] for j in range(H, len(Z))]
    assert_array_equal(search.predecessors()[H:], expected)


# --- rows and inducing points ---------------------------------------------------------


@pytest.mark.parametrize("likelihood", [("gaussian", 2), ("bernoulli", 1)])
@pytest.mark.parametrize("H", [4, M])
def test_rows_at_points_have_their_values(rng, Z, likelihood, H):
    at = rng.permutation(np.r_[np.arange(M), 3, 3, 0])
    y = rng.integers(2, size=(len(at), likelihood[1])).astype(float)
    how = {"likelihood": likelihood, "full": H == M, "jitter": 1e-9}
    how["weight"] = rng.uniform(1.0, 2.0, len(at))
    kernel = 2.0 * Matern([1.0, 2.0], nu=1.5)
    found, expected = (
        make_solver(kernel, Z, H, Z[at], y, at=places, **how) for places in (at, None)
    )
    assert isinstance(found.sites.rows.stored, SelectionMatrix)
    for solver in (found, expected):
        while not solver.converged:
            loss, bound = solver.advance(0)
        mean, variance = solver.sites.marginals(*solver._moments())
        solver.results = *solver._moments(), mean, variance, loss, bound
    for one, other in zip(found.results, expected.results, strict=True):
        assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert_array_equal(found.results[2], found.engine.model.m[at])


@pytest.mark.parametrize("kernel", [*KERNELS, DotProduct(0.5)])
@pytest.mark.parametrize("H", [1, 4, M])
def test_projection_equals_the_reference(monkeypatch, rng, Z, kernel, H):
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 4)
    X = rng.normal(size=(9, 2))
    solver = make_solver(kernel, Z, H, X)
    rows = project(solver, kernel)
    A, F = rows.stored.matvec(np.eye(M)), rows.F
    expected_A, expected_F, _ = reference_of(solver, kernel, Z, X)
    assert_allclose(A, expected_A, atol=1e-9)
    floor = 1e-10 * np.mean(kernel.diag(Z))
    assert_allclose(F, np.maximum(expected_F, floor), atol=1e-11)
    u, v, B = rng.normal(size=(M, 2)), rng.normal(size=(9, 2)), expected_A
    assert_allclose(rows.matvec(u), B @ u, atol=1e-8)
    assert_allclose(rows.matvec(u, squares=True), B**2 @ u, atol=1e-8)
    assert_allclose(rows.rmatvec(v), B.T @ v, atol=1e-8)
    assert_allclose(rows.rmatvec(v, squares=True), (B**2).T @ v, atol=1e-8)
    assert_allclose(rows.normal_matvec(v, u), B.T @ (v * (B @ u)), atol=1e-8)
    assert_allclose(rows.weighted_gram(v[:, 0]), B.T @ np.diag(v[:, 0]) @ B, atol=1e-8)
    L = np.tril(rng.normal(size=(M, M)))
    assert_allclose(rows.quadratic_forms(L), np.sum((B @ L) ** 2, axis=1), atol=1e-8)


@pytest.mark.parametrize("n", [60, 1100])  # dense and sparse
@pytest.mark.parametrize("labels", [False, True])
def test_fits_of_all_rows_compute_no_weights(n, labels, monkeypatch, rng):
    def fail(self, index):
        raise AssertionError("weights of rows at points")

    monkeypatch.setattr(Projection, "compute_rows", fail)
    X = rng.normal(size=(n, 2))
    cls, y = SWSGPRegressor, X[:, 0]
    if labels:
        cls, y = SWSGPClassifier, X[:, 0] > 0.0
    cls(learn_kernel=False, random_state=0).fit(X, y)


# --- the optimum ----------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("H", [1, 4, M])
def test_gaussian_optimum_equals_the_reference(exact, rng, Z, H, beta):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    weight, noise = rng.uniform(0.2, 3.0, 20), np.array([0.1, 0.4])
    solver = make_solver(
        MATERN, Z, H, X, y, ("gaussian", 2), noise=noise, weight=weight, beta=beta
    )
    dense = A, _, P = reference_of(solver, MATERN, Z, X)
    loss, bound = solver.advance(0)
    model = solver.engine.model
    for q in (0, 1):
        m, s = reference.natural_optimum(A, y[:, q], P, noise[q], weight, beta)
        assert_allclose(model.m[:, q], m, atol=1e-7)
        assert_allclose(model.s[:, q], s, rtol=1e-8)
    assert_allclose(slopes_of(solver, dense, y), 0.0, atol=1e-5)
    expected_bound = bound_of(solver, dense, y, model.m, model.s)
    assert loss == pytest.approx(-expected_bound / weight.sum(), rel=1e-9)
    kl = sum(
        reference.gaussian_kl(model.m[:, q], np.diag(model.s[:, q]), P) for q in (0, 1)
    )
    assert bound == pytest.approx(expected_bound + (beta - 1.0) * kl, rel=1e-9)
    assert solver.converged and solver.solved


@pytest.mark.parametrize("noise", [1e-6, 1.0])
def test_conjugate_gradients_converge_at_any_noise(rng, noise):
    Z = rng.normal(size=(500, 2))  # smooth: the prior is badly conditioned
    y = np.sin(Z[:, 0])
    tuning = Tuning(most_cg_steps=100)
    solver = make_solver(RBF(3.0), Z, 16, Z, y, noise=noise, tuning=tuning)
    solver.advance(0)
    assert solver.solved
    assert solver.prior_first == (noise == 1.0)


@pytest.mark.parametrize("noise", [1e-4, 1.0, 1e4])
def test_the_first_preconditioner_suits_the_data(monkeypatch, rng, noise):
    counts, solve_systems = [], natural.solve_systems

    def noted(*arguments):
        counts.append(1)
        return solve_systems(*arguments)

    monkeypatch.setattr(natural, "solve_systems", noted)
    Z = rng.normal(size=(500, 2))
    make_solver(RBF(3.0), Z, 16, Z, Z[:, 0], noise=noise).advance(0)
    assert len(counts) == 1  # the other preconditioner was not needed


def test_unfinished_conjugate_gradients_warn(tune, rng):
    tune(first_cg_steps=1, most_cg_steps=1)
    X = rng.normal(size=(50, 2))
    settings = {"learn_kernel": False, "covariance": "diag", "random_state": 0}
    model = make(SWSGPRegressor, RBF(1.0), n_neighbors=8, **settings)
    with pytest.warns(ConvergenceWarning, match="conjugate gradients"):
        model.fit(X, np.sin(X[:, 0]))


def test_all_neighbors_give_the_exact_gaussian_process(exact, monkeypatch, rng):
    monkeypatch.setattr(auto, "natural_jitter", lambda *args: 1e-9)
    X, X_new = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    kernel = ConstantKernel(2.0, "fixed") * RBF(0.7, "fixed")
    model = SWSGPRegressor(
        kernel, inducing_points=X, n_neighbors=30, learn_kernel=False,
        initial_noise=1e-2, normalize_y=False, random_state=0,
    ).fit(X, y)  # fmt: skip
    exact_model = GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None).fit(X, y)
    assert_allclose(model.predict(X_new), exact_model.predict(X_new), atol=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "H", "beta"),
    [(("bernoulli", 1), 4, 1.0), (("bernoulli", 1), M, 0.5), (("softmax", 3), 4, 0.5)],
)
def test_rounds_converge_to_a_stationary_point_of_the_bound(
    exact, rng, Z, likelihood, H, beta
):
    name = likelihood[0]
    X = rng.normal(size=(10, 2))
    labels = np.digitize(X[:, 0] + 0.5 * rng.normal(size=10), [-0.5, 0.5])
    y = labels.astype(float) if name == "softmax" else np.sign(labels - 0.5)
    weight = rng.uniform(0.5, 2.0, 10)
    solver = make_solver(MATERN, Z, H, X, y, likelihood, weight=weight, beta=beta)
    dense = reference_of(solver, MATERN, Z, X)
    model = solver.engine.model
    for epoch in range(60):
        loss, _ = solver.advance(epoch)
    expected = -bound_of(solver, dense, y, model.m, model.s, name) / weight.sum()
    assert loss == pytest.approx(expected, rel=1e-9)
    assert_allclose(slopes_of(solver, dense, y, name), 0.0, atol=1e-6)
    assert np.diff(solver.losses).max() < 1e-6


# --- estimators -----------------------------------------------------------------------

FIXED = ConstantKernel(1.5, "fixed") * Matern(1.0, "fixed", nu=1.5)


def fitted(task, X, weight=None, **settings):
    """Return a small regressor or classifier, fitted to a function of X[:, 0]."""
    y = np.sin(2 * X[:, 0]) + 0.3 * np.cos(40 * X[:, 1])
    settings = {"n_neighbors": 5, "random_state": 0} | settings
    if task == "regression":
        return make(SWSGPRegressor, **settings).fit(X, np.c_[y, X[:, 1]], weight)
    bins = [0.0] if task == "binary" else [-0.4, 0.4]
    return make(SWSGPClassifier, **settings).fit(X, np.digitize(y, bins), weight)


def output(model, X):
    """Return all predictions of a model for rows of X."""
    if isinstance(model, SWSGPClassifier):
        return model.predict_proba(X)
    return np.concatenate(model.predict(X, return_std=True))


TASKS = ["regression", "binary", "three classes"]


@pytest.mark.parametrize("task", TASKS)
def test_weights_act_like_repetition(exact, rng, task):
    X, Z = rng.normal(size=(40, 2)), rng.normal(size=(15, 2))
    counts = rng.integers(0, 4, 40)
    settings = {"kernel": FIXED, "learn_kernel": False, "inducing_points": Z}
    weighted = fitted(task, X, counts.astype(float), **settings)
    repeated = fitted(task, np.repeat(X, counts, axis=0), **settings)
    assert weighted.n_iter_ == repeated.n_iter_
    assert_allclose(output(weighted, X), output(repeated, X), atol=1e-9)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-9)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("task", TASKS)
def test_fits_are_bitwise_equal_for_any_number_of_threads(rng, task):
    X = rng.normal(size=(60, 2))
    first = fitted(task, X, kernel=MATERN, n_jobs=1)
    for n_jobs in (2, 1):
        other = fitted(task, X, kernel=MATERN, n_jobs=n_jobs)
        assert_array_equal(first.inducing_mean_, other.inducing_mean_)
        assert_array_equal(first.inducing_covariance_, other.inducing_covariance_)
        assert first.loss_curve_ == other.loss_curve_
        assert_array_equal(first.kernel_.theta, other.kernel_.theta)


def test_random_state_changes_the_order(rng):
    X = rng.normal(size=(60, 2))
    settings = {"kernel": FIXED, "learn_kernel": False}
    first, other = (
        fitted("regression", X, random_state=seed, **settings) for seed in (0, 1)
    )
    assert not np.array_equal(first.inducing_covariance_, other.inducing_covariance_)


@pytest.mark.slow  # compiles for float32
@pytest.mark.parametrize("task", TASKS)
def test_float32_fits_are_close_to_float64(rng, task):
    X = rng.normal(size=(40, 2))
    settings = {"kernel": FIXED, "learn_kernel": False}
    single = fitted(task, X, dtype="float32", **settings)
    assert single.inducing_mean_.dtype == np.float32
    double = fitted(task, X, **settings)
    assert_allclose(output(single, X), output(double, X), atol=5e-3)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("H", [5, 40])
def test_kernel_of_zero_variance(rng, task, H):
    X = rng.normal(size=(40, 2))
    kernel = ConstantKernel(0.0, "fixed") * RBF(1.0, "fixed")
    model = fitted(task, X, kernel=kernel, learn_kernel=False, n_neighbors=H)
    assert_allclose(model.inducing_mean_, 0.0)
    assert np.isfinite(output(model, X)).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("H", [5, 40])
def test_prior_variances_of_many_orders_of_magnitude(rng, task, H):
    X = rng.normal(size=(40, 2)) * np.exp(4 * rng.normal(size=(40, 1)))
    model = fitted(task, X, kernel=DotProduct(), learn_kernel=False, n_neighbors=H)
    assert np.isfinite(output(model, X)).all()


def test_jitter_may_exceed_diagonal_entries():
    K = np.diag([1e-3, 2.0])  # under a dot product, one point near the origin
    assert_allclose(linalg.numpy_cholesky(K, 50.0), np.diag(np.sqrt(np.diag(K) + 50.0)))


def test_warm_start_from_a_full_covariance(rng):
    X = rng.normal(size=(40, 2))
    model = fitted(
        "regression", X, solver="adam", covariance="full", max_iter=1, n_inducing=10
    )
    L = model.inducing_covariance_
    start = shape_covariance(vars(model), False)["inducing_covariance_"]
    assert_close(start, np.einsum("ijq,ijq->iq", L, L), roundings=10)
    model.set_params(solver="natural", covariance="diag", warm_start=True)
    model.fit(X, np.c_[X[:, 0], X[:, 1]])
    assert model.inducing_covariance_.shape == (10, 2)
    again = shape_covariance(vars(model), False)["inducing_covariance_"]
    assert again is model.inducing_covariance_


def test_scaled_solver_equals_that_of_the_scaled_kernel(exact, rng):
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=30) > 0, 1.0, -1.0)
    weight = rng.uniform(0.5, 2.0, 30)
    first = make_solver(MATERN, X, 6, X, y, ("bernoulli", 1), weight=weight)
    first.advance(0)
    m, variance = first.engine.model.m.copy(), first.engine.model.params[-1]
    scaled = first.scaled(-1, 7.0)
    kernel = 10.5 * MATERN.k2
    fresh = make_solver(kernel, X, 6, X, y, ("bernoulli", 1), weight=weight)
    assert scaled.engine.model.params[-1] == pytest.approx(10.5)
    assert_allclose(scaled.sites.rows.F, fresh.sites.rows.F, atol=1e-9)
    assert scaled.losses == []
    for epoch in range(60):
        losses = scaled.advance(epoch)[0], fresh.advance(epoch)[0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    assert_allclose(scaled.engine.model.m, fresh.engine.model.m, atol=1e-5)
    assert_allclose(scaled.engine.model.s, fresh.engine.model.s, rtol=1e-6)
    assert_array_equal(first.engine.model.m, m)
    assert first.engine.model.params[-1] == variance
    assert len(first.losses) == 1


# --- failures -------------------------------------------------------------------------


@pytest.mark.parametrize("H", [4, M])
def test_nan_in_the_kernel_raises(Z, H):
    solver = make_solver(MATERN, Z, H)
    broken = clone(MATERN)
    broken.k1.constant_value = np.nan
    with pytest.raises(FloatingPointError, match="could not be factorised"):
        make_vecchia_prior(solver.engine, broken, solver.order)
    with pytest.raises(FloatingPointError, match="could not be factorised"):
        project(solver, broken)


def test_failed_factorisation_raises(Z):
    solver = make_solver(MATERN, Z, 4)
    solver.engine.model.params[:] = np.nan
    with pytest.raises(FloatingPointError, match="could not be factorised"):
        make_vecchia_prior(solver.engine, MATERN, solver.order)
    with pytest.raises(FloatingPointError, match="could not be factorised"):
        project(solver, MATERN)


def test_nonfinite_loss_raises(Z):
    solver = make_solver(MATERN, Z, 4, Z, np.full(M, 1e200))
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        solver.advance(0)


# --- jitter and damping ---------------------------------------------------------------


def test_jitter_is_a_clipped_fraction_of_the_noise():
    Z = np.zeros((3, 1))
    for noise, dtype, expected in (
        ([0.5], "float64", 1e-4),
        ([4e-5, 1.0], "float64", 2e-6),
        ([1e-12], "float64", 1e-10),
        ([1e-12], "float32", 1e-4),
    ):
        kernel = ConstantKernel(2.0) * RBF()
        found = natural_jitter(kernel, Z, noise, dtype)
        assert found == pytest.approx(expected)
        most = 1e-4 if dtype == "float32" else 1e-8
        found = natural_jitter(kernel, Z, noise, dtype, full=True)
        assert found == pytest.approx(min(expected, most))


@pytest.mark.full  # a claim of accuracy
def test_targets_without_noise_are_interpolated():
    inside = []
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(-1, 1, size=(400, 2))
        y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
        model = SWSGPRegressor(random_state=0).fit(X[:300], y[:300])
        mean, std = model.predict(X[300:], return_std=True)
        assert model._jitter < 1e-6
        # The median error is 1.3e-4 with a jitter of 1e-4.
        assert np.median(np.abs(mean - y[300:])) < 2e-5
        inside.append(np.mean(np.abs(mean - y[300:]) < 1.96 * std))
    # Errors of a smooth function are alike nearby, so a single draw varies more.
    assert np.mean(inside) > 0.9


def solver_for_classes(rng, Z, full=False):
    """Return a solver for two classes after two rounds."""
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=40) > 0, 1.0, -1.0)
    solver = make_solver(10.0 * MATERN, Z, 4, X, y, ("bernoulli", 1), full=full)
    for epoch in range(2):
        solver.advance(epoch)
    return solver


@pytest.mark.parametrize("full", [False, True])
def test_state_is_restored_when_no_step_helps(rng, Z, full):
    solver = solver_for_classes(rng, Z, full)
    solver.losses[-1] -= 1.0
    solver.solved = False
    loss, bound, step = solver.losses[-1], solver.bound, solver.step
    model = solver.engine.model
    sites = solver.sites
    state = sites.precision, sites.precision_mean, model.m, model.s, model.L
    before = [array.copy() for array in state]
    assert solver.advance(2) == (loss, bound)
    for one, other in zip(state, before, strict=True):
        assert_array_equal(one, other)
    assert solver.sites is sites
    assert solver.step == step
    assert solver.converged and not solver.solved


@pytest.mark.parametrize("full", [False, True])
def test_nonfinite_step_is_halved(monkeypatch, rng, Z, full):
    solver = solver_for_classes(rng, Z, full)
    model, step = solver.engine.model, solver.step
    name = "_solve_full" if full else "_solve"
    solve, before = getattr(solver, name), solver.sites.precision.copy()
    d_v = solver.sites.expected.d_variance
    tried = []

    def solve_with_nan():
        solve()
        tried.append(solver.sites.precision.copy())
        if len(tried) == 1:
            model.m[:] = np.nan
        return True

    monkeypatch.setattr(solver, name, solve_with_nan)
    loss, _ = solver.advance(2)
    assert len(tried) == 2
    for fraction, precision in zip((step, 0.5 * step), tried, strict=True):
        expected = before + fraction * (-2.0 * d_v - before)
        assert_allclose(precision, expected, rtol=1e-12)
    assert np.isfinite(loss) and loss <= solver.losses[-2] + solver.tolerance
    assert np.isfinite(model.m).all()
    monkeypatch.setattr(solver, name, lambda: model.m.fill(np.nan))
    m = model.m.copy()
    assert solver.advance(3)[0] == loss
    assert_array_equal(model.m, m)

    def interrupted():
        model.m.fill(np.nan)
        raise KeyboardInterrupt

    monkeypatch.setattr(solver, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        solver.advance(4)
    assert_array_equal(model.m, m)


def test_interrupt_in_the_first_round_ends_the_fit(monkeypatch):
    X, y = load_digits(return_X_y=True)
    options = {"learn_kernel": False, "n_inducing": 50, "random_state": 0}
    model = make(SWSGPClassifier, **options).fit(X[:100], y[:100])
    before, advance = model.inducing_mean_.copy(), natural.NaturalSolver.advance

    def interrupted(solver, epoch):
        if epoch == last:
            raise KeyboardInterrupt
        return advance(solver, epoch)

    monkeypatch.setattr(natural.NaturalSolver, "advance", interrupted)
    last = 0
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:300], y[:300])
    assert_array_equal(model.inducing_mean_, before)
    last = 1
    with pytest.warns(UserWarning, match="interrupted in round 2"):
        model.fit(X[:300], y[:300])
    assert model.n_iter_ == 1 and model.score(X[:300], y[:300]) > 0.5


def test_steps_that_lower_the_bound_are_halved():
    # For ten steep functions of few rows, full steps ended 30 nats per row from here.
    X, y = load_digits(return_X_y=True)
    kernel = ConstantKernel(470.0, "fixed") * Matern(107.8, "fixed", nu=2.5)
    model = SWSGPClassifier(kernel, learn_kernel=False, n_neighbors=64, random_state=0)
    model.fit(X[:600], y[:600])
    assert max(np.diff(model.loss_curve_)) < 1e-3
    assert model.score(X[600:900], y[600:900]) > 0.9


@pytest.mark.parametrize("beta", [1.0, 0.4])
def test_leverage_is_the_mean_diagonal_of_the_map_from_targets_to_means(beta, rng):
    X = rng.normal(size=(200, 2))
    noise, weight = np.array([0.05, 3.0]), rng.uniform(0.5, 2.0, 200)
    how = {"likelihood": ("gaussian", 2), "noise": noise, "weight": weight}
    solver = make_solver(MATERN, X, 9, X, rng.normal(size=(200, 2)), beta=beta, **how)
    solver.advance(0)
    A, P = solver.sites.rows.matvec(np.eye(200)), solver.prior.dense_precision()
    moved = []
    for q in range(2):
        w = weight / noise[q]
        B = A.T @ (w[:, None] * A) + beta * P
        moved.append(np.mean(w * np.einsum("ij,ji->i", A, np.linalg.solve(B, A.T))))
    found = [solver.leverage(np.random.RandomState(seed)) for seed in range(20)]
    assert_allclose(np.mean(found, axis=0), moved, rtol=0.05)
    # the spread of one estimate is some 5 % or that of 8 draws
    assert np.all(np.std(found, axis=0) < 0.15 * np.array(moved))
