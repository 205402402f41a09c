"""Kernels on chosen columns in all that an estimator does."""

import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._neighbors import search
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.kernels import OnColumns

pandas = pytest.importorskip("pandas")

N = 200
NAMES = ["size", "noise", "hour", "kind"]
SEASON = OnColumns(ExpSineSquared(1.2, 24.0), ["hour"])
SMOOTH = OnColumns(RBF([2.0, 1.5]), ["kind", "size"])
KERNEL = 1.0 * SEASON + 0.8 * SMOOTH
POSITIONS = 1.0 * OnColumns(SEASON.kernel, [2]) + 0.8 * OnColumns(SMOOTH.kernel, [3, 0])
FIXED = {"learn_kernel": False, "initial_noise": 0.05, "random_state": 0}
ESTIMATORS = [
    SWSGPRegressor(random_state=0),
    pytest.param(
        SWSGPRegressor(random_state=0, dtype="float32"), marks=pytest.mark.slow
    ),
    SWSGPRegressor(random_state=0, solver="adam"),
    NearestNeighborGPRegressor(random_state=0),
]


@pytest.fixture(scope="module")
def data():
    """Return a table of mixed columns, and a function of three of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * N, 4)) * [2.0, 1e6, 1.0, 1.0]
    X[:, 2] = rng.uniform(0.0, 200.0, size=2 * N)
    X[:, 3] = rng.integers(3, size=2 * N)
    y = np.sin(2.0 * np.pi * X[:, 2] / 24.0) + np.sin(X[:, 0]) * (X[:, 3] - 1.0)
    y += 0.1 * rng.normal(size=2 * N)
    frame = pandas.DataFrame(X, columns=NAMES).astype({"kind": int})
    return frame[:N], y[:N], frame[N:], y[N:]


@pytest.mark.matrix
@pytest.mark.parametrize("kernel", [KERNEL, POSITIONS], ids=["names", "positions"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_columns_by_name_and_by_position(estimator, kernel, data):
    X, y, X_new, y_new = data
    model = clone(estimator).set_params(kernel=kernel).fit(X, y)
    assert model.kernel == kernel
    assert model.score(X_new, y_new) > 0.95
    mean, std = model.predict(X_new, return_std=True)
    assert np.mean(np.abs(y_new - mean) < 1.96 * std) > 0.9
    found = model.kernel_
    assert found.k1.k2.columns == [2] and found.k2.k2.columns == [3, 0]
    assert found.k1.k2.kernel.periodicity == pytest.approx(24.0, rel=0.01)
    assert model.kernel_.k2.k2.kernel.length_scale.shape == (2,)
    K = found(X.to_numpy())  # by itself, on an array
    assert K.shape == (N, N)


def test_all_neighbors_give_the_gaussian_process_of_scikit_learn(data):
    X, y, X_new, _ = data
    how = FIXED | {"predictive": "gaussian"}
    model = make(SWSGPRegressor, KERNEL, n_neighbors=N, **how).fit(X, y)
    noise = model.noise_variance_
    exact = GaussianProcessRegressor(model.kernel_, alpha=noise, optimizer=None)
    exact.fit(X.to_numpy(), (y - model.y_mean_) / model.y_scale_)
    mean, std = model.predict(X_new, return_std=True)
    expected, expected_std = exact.predict(X_new.to_numpy(), return_std=True)
    assert_allclose(mean, model.y_mean_ + model.y_scale_ * expected, atol=1e-5)
    total = np.sqrt(expected_std**2 + noise)
    assert_allclose(std, model.y_scale_ * total, atol=1e-5)


def test_other_columns_do_not_matter(data):
    X, y, X_new, _ = data
    model = make(SWSGPRegressor, KERNEL, **FIXED, n_neighbors=20).fit(X, y)
    changed = X_new.assign(noise=-X_new["noise"])
    assert_allclose(model.predict(changed), model.predict(X_new), rtol=1e-9)
    gradient, std = model.predict_gradient(X_new[:5], return_std=True)
    assert not gradient[:, 1].any() and not std[:, 1].any()
    assert gradient[:, [0, 2, 3]].all() and std[:, [0, 2, 3]].all()
    importances = model.feature_importances_
    assert importances[1] == 0.0 and importances[[0, 2, 3]].all()


def test_slopes_are_quotients(data):
    X, y, X_new, _ = data
    how = FIXED | {"predictive": "gaussian"}
    model = make(SWSGPRegressor, KERNEL, n_neighbors=N, **how).fit(X, y)
    x, step = X_new.to_numpy(dtype=float)[0], 1e-4
    gradient, std = model.predict_gradient(X_new[:1], return_std=True)
    for d in (0, 2, 3):
        shift = step * np.eye(4)[d]
        rows = pandas.DataFrame([x + shift, x - shift], columns=NAMES)
        mean, cov = model.predict(rows, return_cov=True)
        slope = (mean[0] - mean[1]) / (2 * step)
        assert gradient[0, d] == pytest.approx(slope, rel=1e-4)
        cov -= model.noise_variance_ * model.y_scale_**2 * np.eye(2)
        variance = (cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]) / (2 * step) ** 2
        assert std[0, d] == pytest.approx(np.sqrt(variance), rel=0.02)


@pytest.mark.full
def test_draws_of_functions(data):
    X, y, X_new, _ = data
    model = make(SWSGPRegressor, KERNEL, n_neighbors=N, **FIXED).fit(X, y)
    rows = X_new[:6]
    mean, variance = model.latent_mean_and_variance(rows)
    draws = model.sample_f(rows, 2000)
    std = np.sqrt(variance)
    assert_allclose(draws.mean(axis=1), mean, atol=5 * std.max() / np.sqrt(2000))
    assert_allclose(draws.std(axis=1), std, rtol=0.06)


def test_means_from_all_rows(data, tune):
    tune(
        most_neighbors=16, least_neighbors=16, mean_tolerance=1e-9,
        mean_global_points=30, mean_cell_work=0.5, dense_rows=0,
    )  # fmt: skip
    X, y, X_new, _ = data
    model = make(SWSGPRegressor, KERNEL, n_neighbors="all", **FIXED).fit(X, y)
    assert model.alpha_.shape == (N,)
    noise = model.noise_variance_
    exact = GaussianProcessRegressor(model.kernel_, alpha=noise, optimizer=None)
    exact.fit(X.to_numpy(), (y - model.y_mean_) / model.y_scale_)
    expected = model.y_mean_ + model.y_scale_ * exact.predict(X_new.to_numpy())
    assert_allclose(model.predict(X_new), expected, atol=1e-5)


def test_a_kernel_on_one_column_finds_neighbors_in_that_column(data, monkeypatch):
    X, y, X_new, _ = data
    kernel = OnColumns(Matern(20.0, nu=1.5), ["hour"])
    how = {"n_inducing": 60, "n_neighbors": 9, "covariance": "diag"}
    by_table = make(SWSGPRegressor, kernel, **how, **FIXED).fit(X, y)
    expected = by_table.predict(X_new)
    monkeypatch.setattr(search, "NUMBERS_AT_ONCE", 1)
    by_scan = make(SWSGPRegressor, kernel, **how, **FIXED).fit(X, y)
    assert_allclose(by_scan.predict(X_new), expected, rtol=1e-6)
    assert_array_equal(by_scan.inducing_points_, by_table.inducing_points_)


def test_few_distinct_values_of_the_chosen_columns(data):
    X, _, X_new, _ = data
    y = 2.0 * (X["kind"] == 1) - (X["kind"] == 2)
    kernel = 1.0 * OnColumns(Matern(nu=1.5), ["kind"])
    for learn_kernel in (True, False):
        model = SWSGPRegressor(kernel, learn_kernel=learn_kernel, random_state=0).fit(
            X, y
        )
        expected = 2.0 * (X_new["kind"] == 1) - (X_new["kind"] == 2)
        assert_allclose(model.predict(X_new), expected, atol=0.02)


def test_classes_pickles_and_outputs(data):
    X, y, X_new, y_new = data
    model = SWSGPClassifier(1.0 * KERNEL, random_state=0).fit(X, y > 0.0)
    assert model.score(X_new, y_new > 0.0) > 0.85
    restored = pickle.loads(pickle.dumps(model))
    assert_array_equal(restored.predict_proba(X_new), model.predict_proba(X_new))
    assert restored.kernel_ == model.kernel_
    Y = np.stack([y, -2.0 * y], axis=1)
    both = SWSGPRegressor(KERNEL, random_state=0).fit(X, Y)
    assert both.score(X_new, np.stack([y_new, -2.0 * y_new], axis=1)) > 0.95


def test_a_stream_and_a_warm_start(data):
    X, y, X_new, y_new = data
    sizes = {"n_inducing": 60, "n_neighbors": 20}
    model = SWSGPRegressor(KERNEL, **sizes, random_state=0)
    for rows in (slice(0, 70), slice(70, 140), slice(140, None)):
        model.partial_fit(X[rows], y[rows])
    assert model.score(X_new, y_new) > 0.8
    model.set_params(warm_start=True).fit(X, y)
    assert model.score(X_new, y_new) > 0.9
    assert model.kernel_.k1.k2.columns == [2]


def test_inducing_points_may_move(data):
    X, y, X_new, y_new = data
    how = {"n_inducing": 80, "optimize_inducing": True, "max_iter": 2}
    model = make(SWSGPRegressor, KERNEL, **how, random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.9


def test_a_pipeline_that_keeps_names(data):
    X, y, X_new, y_new = data
    kernel = OnColumns(RBF(), ["hour"]) * OnColumns(RBF([1.0, 1.0]), ["size", "kind"])
    scaler = StandardScaler().set_output(transform="pandas")
    model = make_pipeline(scaler, SWSGPRegressor(kernel, random_state=0)).fit(X, y)
    assert model.score(X_new, y_new) > 0.5


@pytest.mark.parametrize("kind", [SWSGPRegressor, NearestNeighborGPRegressor])
def test_what_is_refused(kind, data):
    X, y, *_ = data
    model = kind(KERNEL)
    with pytest.raises(ValueError, match=r"without names: expected a data frame; pass"):
        model.fit(X.to_numpy(), y)
    with pytest.raises(ValueError, match=r"which has no 'hour' but 'size', 'noise'"):
        model.fit(X[["size", "noise"]], y)
    with pytest.raises(
        ValueError, match=r"learn_map=True .* holds OnColumns: expected"
    ):
        clone(model).set_params(learn_map=True).fit(X, y)
    with pytest.raises(ValueError, match=r"\[4\] .*: expected positions from 0 to 3"):
        kind(2.0 * OnColumns(RBF(), [4])).fit(X, y)
    with pytest.raises(ValueError, match=r"has 2 length-scales: expected 1 or n_f.*=1"):
        kind(OnColumns(RBF([1.0, 1.0]), [0])).fit(X, y)


@pytest.mark.parametrize("kind", [SWSGPRegressor, NearestNeighborGPRegressor])
def test_a_warning_of_periods_in_several_columns(kind, data):
    X, y, *_ = data
    kernel = RBF([0.1, 0.1, 0.1, 0.1]) * ExpSineSquared(3.0, 1e9)
    with pytest.warns(UserWarning, match="ExpSineSquared reads 4 columns at once: ex"):
        kind(kernel, random_state=0).fit(X, y)
