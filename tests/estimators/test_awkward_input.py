"""Awkward but usable input gives finite results."""

import numpy as np
import pytest
from helpers import ADAM, DTYPES, make
from sklearn.gaussian_process.kernels import RBF, DotProduct
from small_models import TINY, both_estimators, each_solver, tiny_data

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.kernels import ArcCosine

pytestmark = [pytest.mark.usefixtures("few_steps"), pytest.mark.matrix]
ADAM_TRAINING_Z = ADAM | {"optimize_inducing": True}


def assert_finite(model, X, y):
    """Check that predictions, bounds and attributes are finite."""
    if isinstance(model, SWSGPClassifier):
        proba = model.predict_proba(X)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
        assert set(model.predict(X)) <= set(np.asarray(y).tolist())
    else:
        mean, std = model.predict(X, return_std=True)
        assert np.all(np.isfinite(mean))
        assert np.all(np.isfinite(std) & (std > 0))
    assert np.isfinite(model.lower_bound(X, y))
    assert np.all(np.isfinite(model.loss_curve_))
    assert np.all(np.isfinite(model.inducing_points_))


AWKWARD_X = {
    "constant column": lambda X: np.c_[X, np.full(len(X), 3.3)],
    "columns twice": lambda X: np.c_[X, X],
    "only constant columns": lambda X: np.full_like(X, 0.1),
    "zeros": np.zeros_like,
    "two different rows": lambda X: X[np.arange(len(X)) % 2],
    "around 1e8": lambda X: X + 1e8,
    "of size 1e8": lambda X: X * 1e8,
    "of size 1e-8": lambda X: X * 1e-8,
    "columns of sizes 1e8 and 1e-8": lambda X: X * [1e8, 1e-8],
    "one huge row": lambda X: np.where(np.arange(len(X))[:, None] == 0, 1e10, X),
    "one feature": lambda X: X[:, :1],
}
TYPES = {  # which have become arrays of floats before a solver sees them
    "integer": lambda X: np.rint(3 * X).astype(int),
    "boolean": lambda X: X > 0,
    "float16": lambda X: X.astype(np.float16),
    "float32": lambda X: X.astype(np.float32),
    "Fortran": np.asfortranarray,
    "negative strides": lambda X: X[::-1, ::-1],
    "lists": np.ndarray.tolist,
    "big-endian": lambda X: X.astype(">f8"),
    "objects": lambda X: X.astype(object),
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("settings", [{}, ADAM_TRAINING_Z], ids=["natural", "adam"])
@both_estimators
@pytest.mark.parametrize("change", AWKWARD_X.values(), ids=AWKWARD_X)
def test_awkward_X(estimator_class, change, settings, dtype):
    X, y = tiny_data(estimator_class)
    X = change(X)
    model = make(estimator_class, **TINY, **settings, dtype=dtype)
    assert_finite(model.fit(X, y), X, y)


@both_estimators
@pytest.mark.parametrize("change", TYPES.values(), ids=TYPES)
def test_types_of_X(estimator_class, change):
    X, y = tiny_data(estimator_class)
    X = change(X)
    assert_finite(make(estimator_class, **TINY).fit(X, y), X, y)


@pytest.mark.parametrize("size", [1e8, 1e-8])
@both_estimators
def test_units_of_X_do_not_change_predictions(estimator_class, size):
    X, y = tiny_data(estimator_class)
    params = TINY | ADAM | {"inducing_points": "random"}
    expected = make(estimator_class, **params).fit(X, y).predict(X)
    actual = make(estimator_class, **params).fit(X * size, y).predict(X * size)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("change", "spread"),
    [
        (lambda y: np.full_like(y, 5.0), 0.0),
        (np.zeros_like, 0.0),
        (lambda y: np.full_like(y, 0.1), 0.0),
        (lambda y: np.full_like(y, 1e8), 0.0),
        (lambda y: y + 1e8, 1.0),
        (lambda y: y * 1e8, 1e8),
        (lambda y: y * 1e-8, 1e-8),
        (lambda y: y * 1e300, 1e300),
        (lambda y: np.rint(3 * y).astype(int), 3.0),
        (lambda y: y > 0, 0.5),
        (lambda y: y.astype(np.float16), 1.0),
        (lambda y: y.tolist(), 1.0),
    ],
    ids=[
        "constant",
        "zeros",
        "constant 0.1",
        "constant 1e8",
        "around 1e8",
        "of size 1e8",
        "of size 1e-8",
        "of size 1e300",
        "integer",
        "boolean",
        "float16",
        "list",
    ],
)
@each_solver
def test_awkward_y(solver, change, spread, dtype):
    X, y = tiny_data(SWSGPRegressor)
    y = change(y)
    model = make(SWSGPRegressor, **TINY | solver | {"max_iter": 20}, dtype=dtype).fit(
        X, y
    )
    assert_finite(model, X, y)
    error = np.abs(model.predict(X) - np.asarray(y, dtype=float)).max()
    if spread == 0:
        assert error <= 1e-6 * max(1.0, np.abs(y).max())
    else:
        assert error < 4 * spread


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3])
@each_solver
def test_few_rows(solver, n, dtype):
    X, y = tiny_data(SWSGPRegressor, n)
    model = make(SWSGPRegressor, **solver, dtype=dtype, max_iter=5, random_state=0).fit(
        X, y
    )
    assert len(model.inducing_points_) == model.n_neighbors_ == n
    assert_finite(model, X, y)
    if n == 1:
        np.testing.assert_allclose(model.predict(X), y, atol=1e-6)


@each_solver
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_row_of_each_class(solver, n_classes):
    X, y = np.eye(n_classes, 2), np.arange(n_classes)
    model = make(SWSGPClassifier, **solver, max_iter=5, random_state=0)
    assert_finite(model.fit(X, y), X, y)


def test_partial_fit_of_one_row_of_two_classes():
    X, y = tiny_data(SWSGPClassifier, 1)
    model = SWSGPClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    assert_finite(model, X, [0])


@both_estimators
@each_solver
def test_sizes_above_the_number_of_rows_are_capped(estimator_class, solver):
    X, y = tiny_data(estimator_class)
    large = {"n_inducing": 1000, "n_neighbors": 500, "batch_size": 4096}
    model = make(estimator_class, **TINY | solver | large).fit(X, y)
    assert len(model.inducing_points_) == model.n_neighbors_ == 40
    assert_finite(model, X, y)


@both_estimators
@each_solver
@pytest.mark.parametrize("M", [1, 2])
def test_few_inducing_points(estimator_class, solver, M):
    X, y = tiny_data(estimator_class)
    few = {"n_inducing": M, "n_neighbors": 1}
    assert_finite(make(estimator_class, **TINY | solver | few).fit(X, y), X, y)


@both_estimators
@each_solver
@pytest.mark.parametrize(
    ("kernel", "H"),
    [
        (DotProduct(0.0, "fixed"), 1),
        (DotProduct(0.0, "fixed"), 10),
        (ArcCosine(1, sigma_0=0.0, sigma_0_bounds="fixed"), 4),
        (ArcCosine(1, sigma_0=0.0, sigma_0_bounds="fixed"), 10),
    ],
)
def test_rows_of_zeros_without_prior_variance(estimator_class, solver, kernel, H):
    X, y = tiny_data(estimator_class)
    X[::4] = 0.0
    Z = np.vstack(
        [X[:1], X[1:4], X[5:8], X[9:12]]
    )  # the zero row first, since ties go to the first
    settings = TINY | solver | {"n_neighbors": H, "inducing_points": Z}
    model = make(estimator_class, kernel, **settings).fit(X, y)
    assert_finite(model, X, y)


@both_estimators
@each_solver
@pytest.mark.parametrize("dtype", DTYPES)
def test_predictions_far_from_the_data(dtype, estimator_class, solver):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY | solver, dtype=dtype).fit(X, y)
    for far in (1e20, 1e100, 1e200):
        rows = np.vstack([X, [[far, -far], [far, 0.0]]])
        assert_finite(model, rows, np.r_[y, 0, 1])


@both_estimators
@each_solver
def test_weights_of_many_orders_of_magnitude(estimator_class, solver):
    X, y = tiny_data(estimator_class)
    weight = np.logspace(-6, 6, len(X))
    model = make(estimator_class, **TINY | solver).fit(X, y, sample_weight=weight)
    assert_finite(model, X, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "settings",
    [
        {"random_state": 0},
        {"random_state": 0, "n_neighbors": 4},
        TINY,
        TINY | {"optimize_inducing": True},
        TINY | ADAM_TRAINING_Z,
        TINY | {"solver": "adam"},
    ],
    ids=["all", "nearest", "few", "alternating", "adam", "learned adam"],
)
def test_a_common_factor_of_the_weights_changes_nothing(tune, settings, dtype):
    X, y = tiny_data(SWSGPRegressor)
    if settings.keys() != {"random_state"}:
        tune(evidence_work=0)
    model, other = (make(SWSGPRegressor, **settings, dtype=dtype) for _ in range(2))
    model.fit(X, y)
    for factor in (1e-12, 3.0, 1e12):
        other.fit(X, y, sample_weight=np.full(len(X), factor))
        np.testing.assert_array_equal(model.predict(X), other.predict(X))
        assert model.lower_bound_ == other.lower_bound_
        assert model.noise_variance_ == other.noise_variance_


def test_weights_of_classes_count_observations():
    X, y = tiny_data(SWSGPClassifier)
    spread = []
    for factor in (1e-12, 1e-3, 1.0, 1e3, 1e12):
        model = make(SWSGPClassifier, RBF(1.0, "fixed"), learn_kernel=False, **TINY)
        model.fit(X, y, sample_weight=np.full(len(X), factor))
        spread.append(np.ptp(model.predict_proba(X)[:, 1]))
        assert_finite(model, X, y)
    assert spread[0] < 0.01 and spread == sorted(spread)


@pytest.mark.usefixtures("eager_threads")
@both_estimators
@pytest.mark.parametrize("n_jobs", [-1, 1, 64])
def test_any_number_of_threads(estimator_class, n_jobs):
    X, y = tiny_data(estimator_class)
    assert_finite(make(estimator_class, **TINY, n_jobs=n_jobs).fit(X, y), X, y)
