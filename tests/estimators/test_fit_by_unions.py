"""Fits in which the rows of a minibatch share their active points."""

import pickle

import numpy as np
import pytest
from helpers import ADAM, DTYPES, make
from numpy.testing import assert_allclose, assert_array_equal
from small_models import (
    FITTED_ARRAYS,
    TINY,
    adam_settings,
    assert_same_bits,
    both_estimators,
    small_data,
    small_model,
    tiny_data,
)

from skswsgp._adam.solver import AdamSolver
from skswsgp._compiled.threads import max_threads

UNION = {"n_shared": "auto"}
each_covariance = pytest.mark.parametrize("covariance", ["diag", "full"])


def assert_close_fits(first, second):
    """Check that fits differ by rounding, which Adam makes larger."""
    for name in FITTED_ARRAYS:
        assert_allclose(getattr(first, name), getattr(second, name), atol=1e-5)
    assert_allclose(first.loss_curve_, second.loss_curve_, rtol=1e-7)


@each_covariance
def test_with_all_points_a_union_is_the_svgp(covariance):
    X, y = small_data()
    options = {"n_neighbors": 20, "covariance": covariance, "optimize_inducing": True}
    fits = [small_model(**options, **extra).fit(X, y) for extra in ({}, UNION)]
    assert fits[0]._kl_weight == fits[1]._kl_weight == 1.0
    assert_same_bits(*fits)


@each_covariance
def test_a_union_that_is_all_points_is_the_svgp(covariance):
    """Where S starts depends on the nearest others, at most 19, so both start alike."""
    X, y = small_data()
    options = {"batch_size": 150, "covariance": covariance, "kl_weight": 1.0}
    union = small_model(n_neighbors=19, n_shared=20, **options).fit(X, y)
    svgp = small_model(n_neighbors=20, **options).fit(X, y)
    assert_close_fits(union, svgp)


@each_covariance
def test_one_row_a_batch_is_swsgp(covariance):
    X, y = small_data(30)
    options = {"batch_size": 1, "max_iter": 2, "covariance": covariance}
    options |= {"optimize_inducing": True, "kl_weight": 2.0}
    fits = [small_model(**options, **extra).fit(X, y) for extra in ({}, UNION)]
    assert_close_fits(*fits)


@each_covariance
def test_a_fit_by_unions_learns_the_function(covariance):
    X, y = small_data(400)
    options = {"n_inducing": 60, "max_iter": 60, "covariance": covariance}
    model = small_model(n_shared=40, **options).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.9


def test_the_number_of_active_points_changes_the_fit():
    X, y = small_data()
    common = {"kl_weight": 1.0, "max_iter": 1}
    options = [{}, {"n_shared": 8}, {"n_shared": 16}]
    means = [small_model(**common, **o).fit(X, y).inducing_mean_ for o in options]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(means[first] - means[second]).max() > 1e-4


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_number_of_threads(dtype):
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    X, y = small_data()
    options = {"n_shared": 12, "covariance": "full", "dtype": dtype}
    fits = [small_model(n_jobs=n, **options).fit(X, y) for n in (1, 2)]
    assert_same_bits(*fits)


@both_estimators
def test_a_pickle_predicts_the_same(estimator_class):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY | ADAM | {"n_shared": 6}).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    assert repr(other) == repr(model)
    assert_array_equal(other.predict(X), model.predict(X))


@pytest.mark.slow  # compiles the steps of Adam in float32
def test_float32_is_near_float64():
    X, y = small_data()
    options = {"n_shared": 12, "max_iter": 3}
    double, single = (
        small_model(dtype=dtype, **options).fit(X, y)
        for dtype in ("float64", "float32")
    )
    assert single.inducing_mean_.dtype == np.float32
    assert_allclose(single.predict(X), double.predict(X), atol=0.02)


def test_fewer_active_points_than_neighbours_are_refused():
    X, y = small_data()
    match = r"^n_shared=4 with 5 neighbours of a row: expected at least"
    with pytest.raises(ValueError, match=match):
        small_model(n_shared=4).fit(X, y)


def test_unions_run_on_the_cpu():
    X, y = small_data()
    match = r"^device='cuda' with n_shared=8: expected 'cpu' or 'auto', because"
    with pytest.raises(ValueError, match=match):
        small_model(n_shared=8, device="cuda").fit(X, y)
    count = AdamSolver.count_points
    assert count(10**9, 9, adam_settings(n_shared=8)) == 0
    assert count(10**9, 9, adam_settings(max_iter=2)) == 2 * 10**9


@pytest.mark.parametrize(
    ("n_shared", "M", "H", "expected"),
    [
        ("auto", 512, 16, 128),
        ("auto", 512, 64, 256),
        ("auto", 100, 16, 100),
        ("auto", 100, 100, 100),
        (128, 512, 16, 128),
        (128, 100, 16, 100),
        (16, 512, 16, 16),
    ],
)
def test_the_number_of_active_points(n_shared, M, H, expected):
    settings = adam_settings(n_shared=n_shared)
    assert settings.count_shared(M, H) == expected
    assert settings._replace(n_shared=None).count_shared(M, H) is None
    assert settings.divergence_weight(M, H) == 1.0
    assert settings._replace(kl_weight=0.5).divergence_weight(M, H) == 0.5
