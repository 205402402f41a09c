"""Fits of many rows whose function few points tell."""

import pickle
import re
import warnings

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn import config_context
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    WhiteKernel,
)
from small_models import natural_settings

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads
from skswsgp._compiled.threads import machine_memory
from skswsgp._kernel_search.kernel_learning import KernelFit
from skswsgp._kernel_search.point_choice import count_near_points, left_by_near
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers import auto
from skswsgp._solvers.tuning import Tuning

KERNEL = ConstantKernel(2.0, "fixed") * RBF([0.4, 0.6], "fixed")
FIXED = {"kernel": KERNEL, "learn_kernel": False, "learn_map": False}
FIXED |= {"normalize_y": False, "initial_noise": 0.09, "random_state": 0}


@pytest.fixture(autouse=True)
def long_table(tune):
    """Let 1,200 rows be too many for means from all of them."""
    tune(mean_work=0.0, full_work=0.0)


def make_rows(n=1200, seed=0, noise=0.3):
    """Return X, y and the smooth function of n rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    f = np.sin(5.0 * X[:, 0]) + X[:, 0] * X[:, 1]
    return X, f + noise * rng.normal(size=n), f


def test_predictions_are_those_of_an_exact_process():
    X, y, _ = make_rows()
    new, *_ = make_rows(200, seed=1)
    model = make(SWSGPRegressor, **FIXED).fit(X, y)
    M = len(model.inducing_points_)
    assert 10 < M < 100
    assert model.n_neighbors_ == M
    assert model.inducing_covariance_.shape == (M, M)
    exact = GaussianProcessRegressor(KERNEL, alpha=0.09, optimizer=None).fit(X, y)
    mean, std = exact.predict(new, return_std=True)
    found, variance = model.latent_mean_and_variance(new)
    # F of the points may be as large as the variance that rows leave
    assert np.sqrt(np.mean((found - mean) ** 2)) < 0.5 * np.sqrt(np.mean(std**2))
    assert_allclose(np.median(np.sqrt(variance) / std), 1.0, atol=0.4)
    draws = model.sample_f(new[:5], 4000)
    assert_allclose(draws.mean(axis=1), found[:5], atol=0.02)
    _, cov = model.predict(new[:5], return_cov=True)
    correlation = np.corrcoef(draws)
    noise = model.noise_variance_
    between = (cov - noise * np.eye(5)) / np.sqrt(np.outer(variance[:5], variance[:5]))
    assert_allclose(correlation, between, atol=0.15)


@pytest.mark.parametrize(
    "params",
    [
        {"n_inducing": 300, "inducing_points": "random"},
        {"n_neighbors": 20},
        {"n_neighbors": 20, "covariance": "diag"},
        {"n_inducing": 300, "inducing_points": "random", "covariance": "draws"},
    ],
    ids=str,
)
def test_what_is_asked_for_is_kept(params):
    X, y, _ = make_rows()
    model = make(SWSGPRegressor, **FIXED | params).fit(X, y)
    assert len(model.inducing_points_) == params.get("n_inducing", 1000)
    assert model.n_neighbors_ == params.get("n_neighbors", model.n_neighbors_)
    assert model.n_neighbors_ < len(model.inducing_points_)


def test_a_rough_function_keeps_a_point_at_each_row():
    X, y, _ = make_rows()
    kernel = ConstantKernel(2.0, "fixed") * RBF(0.02, "fixed")
    model = make(SWSGPRegressor, **FIXED | {"kernel": kernel}).fit(X, y)
    assert model.n_neighbors_ < len(model.inducing_points_) == 1200


@pytest.mark.parametrize("wave, fewer", [(4.0, True), (200.0, False)])
def test_near_points_are_as_many_as_labels_can_tell_apart(wave, fewer, tune):
    tune(dense_rows=50)
    X, _, _ = make_rows(1000)
    f = 3.0 * np.sin(wave * X[:, 0]) * np.cos(wave * X[:, 1])
    y = np.random.default_rng(1).uniform(size=1000) < ndtr(f)
    model = SWSGPClassifier(random_state=0).fit(X, y)
    M = len(model.inducing_points_)
    assert (50 <= M < 500) if fewer else M == 1000
    assert model.n_neighbors_ < 192
    new, _, _ = make_rows(1000, seed=1)
    f = 3.0 * np.sin(wave * new[:, 0]) * np.cos(wave * new[:, 1])
    if fewer:
        error = model.predict_proba(new)[:, 1] - ndtr(f)
        assert np.sqrt(np.mean(error**2)) < 0.06


def test_many_outputs_take_no_points_whose_covariance_does_not_fit(tune):
    X, y, _ = make_rows()
    many = np.column_stack([y, y + X[:, 0], y - X[:, 0]])
    tune(dense_rows=100, full_covariance_bytes=4 * 8 * 100**2 * 2)  # of two outputs
    fit = make(SWSGPRegressor, **FIXED).fit
    assert fit(X, many[:, :2]).inducing_covariance_.shape[-1] < 99
    near = fit(X, many)
    assert near.n_neighbors_ < 99 < len(near.inducing_points_)
    assert near.predict(X[:5], return_std=True)[1].shape == (5, 3)


def test_copies_of_rows_tell_no_more_than_one(tune):
    tune(dense_rows=50)
    X, y, _ = make_rows(3000)
    kernel = ConstantKernel(2.0, "fixed") * Matern(0.3, "fixed", nu=1.5)
    params = FIXED | {"kernel": kernel, "initial_noise": 1e-4}
    once, twice = (
        make(SWSGPRegressor, **params).fit(X[rows], y[rows])
        for rows in (np.arange(1500), np.tile(np.arange(1500), 2))
    )
    assert twice.n_neighbors_ >= 0.7 * once.n_neighbors_ > 20
    assert len(twice.inducing_points_) == len(once.inducing_points_) == 1500


def test_what_near_points_leave_unknown(rng):
    X, Z = rng.uniform(size=(30, 2)), rng.uniform(size=(200, 2))
    found = left_by_near(KERNEL, Z, X, [20, 12], natural_settings())[1]
    for i, x in enumerate(X):
        near = Z[np.argsort(-KERNEL(x[None], Z)[0])[:12]]
        k = KERNEL(x[None], near)[0]
        left = KERNEL.diag(x[None])[0] - k @ np.linalg.solve(KERNEL(near), k)
        assert_allclose(found[i], left, atol=1e-5)  # by the jitter
    own = left_by_near(KERNEL, Z, Z, [12], natural_settings(), np.arange(200))[0]
    assert own.min() > 0.0


def test_many_rows_teach_the_kernel():
    X, y, _ = make_rows(4000)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert len(model.inducing_points_) < 200
    exact = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(exact).fit(X[:500], y[:500])
    new, _, truth = make_rows(1000, seed=1)
    mean, variance = model.latent_mean_and_variance(new)
    error = np.abs(mean - truth)
    assert np.sqrt(np.mean(error**2)) < 0.5 * np.std(exact.predict(new) - truth)
    assert 0.85 < np.mean(error < 1.96 * np.sqrt(variance)) <= 1.0


def test_sizes_of_noise_are_those_of_rows_nearby():
    X, _, f = make_rows(2000)
    noise = np.where(X[:, 0] > 0.5, 1.0, 0.1)
    y = f + noise * np.random.default_rng(1).normal(size=2000)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert len(model.inducing_points_) < 200
    new, *_ = make_rows(1000, seed=1)
    _, std = model.predict(new, return_std=True)
    quiet, loud = new[:, 0] < 0.4, new[:, 0] > 0.6
    assert 0.07 < np.median(std[quiet]) < 0.2
    assert 0.7 < np.median(std[loud]) < 1.3
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(
        again.predict(new, quantiles=0.9), model.predict(new, quantiles=0.9)
    )


def test_a_known_noise_and_two_outputs():
    X, y, _ = make_rows()
    Y, known = np.column_stack([y, 3.0 - 2.0 * y]), np.full(1200, 0.09)
    both = make(SWSGPRegressor, **FIXED).fit(X, Y)
    one = make(SWSGPRegressor, **FIXED).fit(X, y)
    new, *_ = make_rows(50, seed=1)
    assert_allclose(both.predict(new)[:, 0], one.predict(new), atol=1e-6)
    given = make(SWSGPRegressor, **FIXED).fit(X, y, noise_variance=known)
    assert_allclose(given.predict(new), one.predict(new), atol=1e-6)


@pytest.mark.parametrize("n_jobs", [2])
def test_the_number_of_threads_changes_no_bit(n_jobs, eager_threads):
    X, y, _ = make_rows()
    one, more = (make(SWSGPRegressor, **FIXED, n_jobs=k).fit(X, y) for k in (1, n_jobs))
    assert_array_equal(one.inducing_mean_, more.inducing_mean_)
    assert_array_equal(one.inducing_covariance_, more.inducing_covariance_)


def test_a_warm_start_keeps_the_points():
    X, y, _ = make_rows()
    model = make(SWSGPRegressor, **FIXED, warm_start=True).fit(X, y)
    points = model.inducing_points_
    model.fit(X, y + 1.0)
    assert_array_equal(model.inducing_points_, points)
    assert_allclose(model.predict(X).mean(), y.mean() + 1.0, atol=0.1)


def test_few_distinct_inputs_of_a_short_table(tune):
    tune(mean_work=Tuning().mean_work)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (1500, 1)).astype(float)
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=1500)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    places = np.arange(20.0)[:, None]
    means = [y[X[:, 0] == place].mean() for place in range(20)]
    assert_allclose(model.predict(places), means, atol=0.1)


def test_streams_with_given_points_let_rows_go(tune):
    tune(mean_work=Tuning().mean_work, stream_rows=1100)
    X, y, _ = make_rows(1500)
    model = SWSGPRegressor(inducing_points=X[:20], random_state=0)
    model.partial_fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_copies_of_all_rows_change_little():
    X, y, _ = make_rows(1000)
    once, twice = (
        SWSGPRegressor(random_state=0).fit(np.tile(X, (k, 1)), np.tile(y, k))
        for k in (1, 2)
    )
    assert_allclose(twice.noise_variance_, once.noise_variance_, rtol=0.1)


def test_very_unequal_weights_keep_the_kernel():
    X, y, f = make_rows(1500)
    weight = np.exp(1.5 * np.random.default_rng(1).normal(size=1500))
    model = SWSGPRegressor(random_state=0).fit(X, y, weight)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.08


def test_places_of_whole_numbers_are_points_of_the_law_once():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 12, (2000, 2)).astype(float)
    noise = np.where(X[:, 1] > 5.0, 0.3, 0.03)
    y = np.sin(0.3 * X[:, 0]) + noise * rng.normal(size=2000)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    nearness = model.predictive_law_.nearness
    assert len(nearness.points) == 144
    assert nearness.spacing.min() > 1e-3  # a place is no neighbour of itself
    on, near = (
        model.predict(X[:500] + shift, return_std=True)[1] for shift in (0.0, 1e-6)
    )
    assert_allclose(near, on, rtol=0.1)


@pytest.mark.parametrize("n_inducing", [10_000_000, "auto"])
def test_points_that_no_memory_holds_are_refused_before_the_fit(
    n_inducing, monkeypatch, tune
):
    monkeypatch.setattr(auto, "machine_memory", lambda: 2**20)
    tune(inducing_numbers=10**8)
    X, y, _ = make_rows(20_000)
    numbers = {"n_inducing": n_inducing, "n_neighbors": 50, "learn_kernel": False}
    model = SWSGPRegressor(**numbers)
    with pytest.raises(ValueError, match=r"with n_neighbors=50, take .* GiB") as error:
        model.fit(X, y)
    fewer = int(re.search(r"use n_inducing=(\d+)", str(error.value))[1])
    assert len(model.set_params(n_inducing=fewer).fit(X, y).inducing_points_) == fewer


@pytest.mark.parametrize("n_neighbors", [300, "all"])
def test_neighbors_that_no_memory_holds_are_refused(n_neighbors, monkeypatch):
    X, y, _ = make_rows()
    numbers = {"n_inducing": 400, "n_neighbors": 8, "learn_kernel": False}
    model = SWSGPRegressor(**numbers, random_state=0).fit(X, y)
    monkeypatch.setattr(threads, "machine_memory", lambda: 2**20)
    with pytest.raises(ValueError, match=r"n_neighbors=\d+ takes 0.0 GiB: expected"):
        model.predict(X[:5], n_neighbors=n_neighbors)
    assert model.predict(X[:5]).shape == (5,)


@pytest.mark.parametrize("n_neighbors", [30, 100])
def test_lists_beyond_the_working_memory_warn(n_neighbors):
    X, y, _ = make_rows(300)
    numbers = {"n_inducing": 100, "n_neighbors": n_neighbors}
    model = make(SWSGPRegressor, **FIXED | numbers)
    match = r"300 rows.*working_memory=1\)"
    with config_context(working_memory=0.05), pytest.warns(UserWarning, match=match):
        slow = model.fit(X, y).predict(X[:50])
    with config_context(working_memory=1), warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = model.fit(X, y).predict(X[:50])
    assert_allclose(slow, fast, rtol=1e-4)


def test_the_memory_of_this_machine(monkeypatch, tmp_path):
    assert 2**28 < machine_memory() < 2**50
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(threads, "Path", lambda _: limit)
    unlimited = machine_memory()  # there is no such file
    for text, expected in {"max\n": unlimited, "1048576\n": 2**20}.items():
        limit.write_text(text)
        assert machine_memory() == expected
    monkeypatch.delattr(threads.os, "sysconf")
    assert machine_memory() == np.inf


def test_rows_at_few_places_take_all_of_them_without_a_warning():
    X = np.argwhere(np.ones((6, 6))).repeat(40, axis=0).astype(float)
    data = TrainingRows(X, np.zeros((1440, 1)), np.ones(1440))
    settings = natural_settings(tuning=Tuning(mean_work=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = count_near_points(KernelFit(KERNEL, np.array([0.1])), data, settings)
    assert found == (1440, auto.count_neighbors(settings, 1440, 1440, 2))
