"""Training of SWSGPRegressor: parameters, precision, threads, shapes of y."""

import numpy as np
import pytest
from helpers import DTYPES, make
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
)
from small_models import (
    assert_same_bits,
    small_data,
    small_model,
)

from skswsgp import SWSGPRegressor


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_training_lowers_the_loss_and_fits_the_data(H, covariance):
    X, y = small_data()
    model = small_model(n_neighbors=H, covariance=covariance, max_iter=60).fit(X, y)
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.3
    assert model.score(*small_data(seed=1)) > 0.9


@pytest.mark.matrix
@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("optimize_inducing", [False, True])
@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_refits_are_bitwise_equal_for_any_number_of_threads(
    H, covariance, optimize_inducing
):
    X, y = small_data()
    model = small_model(
        n_neighbors=H,
        covariance=covariance,
        optimize_inducing=optimize_inducing,
        n_jobs=1,
    ).fit(X, y)
    assert_same_bits(clone(model).fit(X, y), model)
    threaded = clone(model).set_params(n_jobs=2).fit(X, y)
    assert_same_bits(threaded, model)
    np.testing.assert_array_equal(threaded.predict(X), model.predict(X))


def test_random_state_changes_the_fit():
    X, y = small_data()
    first, second = (small_model(random_state=seed).fit(X, y) for seed in (0, 1))
    assert first.loss_curve_ != second.loss_curve_


@pytest.mark.slow  # compiles the steps of Adam in float32
@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_float32_fits_stay_float32_and_close_to_float64(H, covariance):
    X, y = small_data()
    model = small_model(n_neighbors=H, covariance=covariance, max_iter=10).fit(X, y)
    narrow = clone(model).set_params(dtype="float32").fit(X, y)
    assert narrow.inducing_mean_.dtype == np.float32
    assert narrow.inducing_covariance_.dtype == np.float32
    mean, std = model.predict(X, return_std=True)
    narrow_mean, narrow_std = narrow.predict(X, return_std=True)
    assert narrow_mean.dtype == narrow_std.dtype == np.float64
    # Rounding of 1e-7 is amplified by the condition number of K, at most the inverse of
    # the jitter 1e-5. Of points at nearly equal distance the fits may choose others.
    same = np.abs(narrow_mean - mean) < 0.02
    assert same.mean() > 0.95
    np.testing.assert_allclose(narrow_std[same], std[same], rtol=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fixed_parameters_and_bounds_are_respected(dtype):
    X, y = small_data()
    kernel = ConstantKernel(0.7, "fixed") * RBF([1.0, 1.0], (0.9, 1.05))
    kernel += ConstantKernel(0.123, (1e-3, 10.0))
    model = small_model(kernel=kernel, max_iter=60, learning_rate=0.1, dtype=dtype)
    params = model.fit(X, y).kernel_.get_params()
    assert params["k1__k1__constant_value"] == 0.7
    lengths = params["k1__k2__length_scale"]
    # The bounds are rounded by exp(log(bound)).
    slack = 1 + 4 * np.finfo(dtype).eps
    assert np.all((lengths >= 0.9 / slack) & (lengths <= 1.05 * slack))
    assert params["k2__constant_value"] != 0.123
    assert kernel.get_params()["k2__constant_value"] == 0.123


def test_learned_kernel_suits_the_exact_gaussian_process():
    X, y = small_data()
    model = small_model(max_iter=60).fit(X, y)
    exact = GaussianProcessRegressor(
        model.kernel_, optimizer=None, alpha=model.noise_variance_, normalize_y=True
    ).fit(X, y)
    assert exact.score(*small_data(seed=1)) > 0.95


def test_inducing_points_move_only_with_optimize_inducing():
    X, y = small_data()
    Z = X[:20] + 0.01
    fixed = small_model(inducing_points=Z).fit(X, y)
    moved = small_model(inducing_points=Z, optimize_inducing=True).fit(X, y)
    np.testing.assert_allclose(fixed.inducing_points_, Z, rtol=0, atol=1e-12)
    assert np.all(np.abs(moved.inducing_points_ - Z).max(axis=1) > 1e-4)


def test_given_inducing_points_set_n_inducing():
    X, y = small_data()
    Z = np.repeat(X[:8], 2, axis=0)
    for n_inducing in ("auto", 16):
        model = small_model(inducing_points=Z.tolist(), n_inducing=n_inducing)
        assert len(model.fit(X, y).inducing_points_) == 8
        np.testing.assert_allclose(model.inducing_points_, X[:8], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kl_weight", "H", "expected"),
    [("auto", 5, 4.0), ("auto", 20, 1.0), (1.0, 5, 1.0), (2, 20, 2.0)],
)
def test_kl_weight(kl_weight, H, expected):
    X, y = small_data()
    model = small_model(kl_weight=kl_weight, n_neighbors=H).fit(X, y)
    assert model._kl_weight == expected


@pytest.mark.parametrize(
    ("covariance", "full"), [("auto", 1), ("full", 1), ("diag", 0)]
)
@pytest.mark.parametrize("Q", [1, 2])
def test_shape_of_the_covariance(covariance, full, Q):
    X, y = small_data()
    y = y if Q == 1 else np.stack([y, X[:, 0]], axis=1)
    S = small_model(covariance=covariance).fit(X, y).inducing_covariance_
    assert S.shape == (20,) + (20,) * full + (2,) * (Q - 1)
    if full:
        factors = np.moveaxis(S.reshape(20, 20, Q), -1, 0)
        np.testing.assert_array_equal(factors, np.tril(factors))
        assert np.all(np.einsum("qii->qi", factors) > 0)
    else:
        assert np.all(S > 0)


def test_auto_covariance_is_diagonal_beyond_the_memory_limit(tune):
    X, y = small_data()
    tune(auto_covariance_bytes=3 * 8 * 20 * 20 - 1)
    assert small_model().fit(X, y).inducing_covariance_.shape == (20,)


@pytest.mark.parametrize(
    ("params", "full"),
    [
        ({}, True),
        ({"covariance": "diag"}, False),
        ({"optimize_inducing": True}, False),
        ({"inducing_points": np.arange(140.0).reshape(70, 2)}, False),
        ({"n_inducing": 40}, True),
    ],
    ids=str,
)
def test_auto_covariance_is_full_while_its_cost_is_small(params, full, few_steps, tune):
    tune(full_work=2 * 60**3)
    X, y = small_data(n=60)
    model = make(SWSGPRegressor, random_state=0, **params).fit(X, y)
    assert model.inducing_covariance_.ndim == 1 + full
    model.fit(X, np.stack([y, y], axis=1))
    assert model.inducing_covariance_.ndim == 2 + (len(model.inducing_points_) == 40)


def test_auto_covariance_counts_the_rows(few_steps, tune):
    tune(full_work=40**3 + 60 * 40 * 8)
    X, y = small_data(n=61)
    for n, ndim in ((60, 2), (61, 1)):
        model = SWSGPRegressor(n_inducing=40, n_neighbors=8, random_state=0)
        assert model.fit(X[:n], y[:n]).inducing_covariance_.ndim == ndim


def test_auto_covariance_is_that_of_near_sites_beyond_its_limits(tune, few_steps):
    X, y = small_data(n=60)
    tune(full_work=2 * 60**3 - 1)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert model.inducing_covariance_.ndim == 1
    assert model.site_precision_.shape == (60,)
    other = SWSGPRegressor(covariance="diag", random_state=0).fit(X, y)
    assert not hasattr(other, "site_precision_")


def test_joint_predictions_say_where_draws_do_not_fit(tune, few_steps):
    X, y = small_data(n=60)
    tune(full_covariance_bytes=8 * 60 * 60, full_work=2 * 60**3 - 1)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X, return_std=True)).all()
    with pytest.raises(ValueError, match="64 draws of 60 inducing points and 1 latent"):
        model.sample_f(X)


@pytest.mark.full
def test_intervals_of_a_function_hold_for_few_inducing_points_of_many_rows():
    rng = np.random.RandomState(0)
    X = rng.uniform(0, 10, (2100, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2100)
    model = SWSGPRegressor(n_inducing=200, random_state=0).fit(X, y)
    mean, variance = model._latent(X, with_variance=True)
    f = (np.sin(2 * X) - model.y_mean_) / model.y_scale_
    assert np.mean(np.abs(mean - f) < 1.96 * np.sqrt(variance)) > 0.8


def test_error_for_too_large_a_covariance_suggests_the_diagonal(tune):
    X, y = small_data()
    tune(full_covariance_bytes=3 * 8 * 20 * 20 - 1)
    with pytest.raises(ValueError, match=r"covariance='full'.*covariance='diag'"):
        small_model(covariance="full").fit(X, y)
    small_model(covariance="diag").fit(X, y)


def test_several_outputs():
    X, y = small_data()
    Y = np.stack([y, 100 + 10 * X[:, 0], np.cos(X[:, 1])], axis=1)
    model = small_model(max_iter=60).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    assert model.inducing_mean_.shape == (20, 3)
    assert model.noise_variance_.shape == model.y_mean_.shape == (3,)
    np.testing.assert_allclose(model.y_mean_, Y.mean(axis=0))
    np.testing.assert_allclose(model.y_scale_, Y.std(axis=0))
    assert np.all(1 - np.mean((Y - mean) ** 2, axis=0) / Y.var(axis=0) > 0.8)
    assert np.isfinite(model.lower_bound(X, Y))
    with pytest.raises(ValueError, match="y has shape"):
        model.lower_bound(X, y)


def test_y_of_one_column_keeps_its_shape():
    X, y = small_data()
    flat, column = small_model().fit(X, y), small_model().fit(X, y[:, None])
    mean, std = column.predict(X, return_std=True)
    assert mean.shape == std.shape == (150, 1)
    np.testing.assert_array_equal(mean[:, 0], flat.predict(X))
    assert column.lower_bound(X, y[:, None]) == flat.lower_bound(X, y)
    assert isinstance(flat.noise_variance_, float)


def test_normalize_y_false_leaves_y_unscaled():
    X, y = small_data()
    model = small_model(normalize_y=False, max_iter=60).fit(X, y)
    assert (model.y_mean_, model.y_scale_) == (0.0, 1.0)
    assert model.score(X, y) > 0.9
