"""SWSGPRegressor: its formulas, its training, and what stays the same."""

import joblib
import numpy as np
import pytest
import reference
from helpers import ADAM
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads
from skswsgp._estimators import base
from skswsgp._initialization import auto, kernel_learning
from skswsgp._solvers import adam, natural
from skswsgp.kernels import ArcCosine

JITTER = 1e-4  # of float64, relative to the variance of the kernel
FEW = settings(max_examples=5, derandomize=True, deadline=None)

KERNELS = {
    "matern": ConstantKernel(1.7) * Matern([0.8, 1.5], nu=2.5),
    "white": ConstantKernel(0.6) * RBF(0.9) + WhiteKernel(0.2),
    "arc-cosine": ConstantKernel(0.8) * ArcCosine(order=1, sigma_0=0.7),
    "linear": DotProduct(0.5) + RBF([1.1, 0.7]),
}

CALLBACKS = "_callback", "_skl_callbacks"  # attributes of scikit-learn's mixin
FITTED_ARRAYS = ("inducing_points_", "inducing_mean_", "inducing_covariance_")


def small_data(n=150, seed=0):
    """Return X (n, 2), y (n,): a smooth function with noise of variance 0.01."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def small_model(**params):
    defaults = {"n_inducing": 20, "n_neighbors": 5, "max_iter": 5, "batch_size": 16}
    return SWSGPRegressor(**ADAM | defaults | {"random_state": 0} | params)


def natural_model(**params):
    return SWSGPRegressor(**{"n_neighbors": 8, "random_state": 0} | params)


def assembled(kernel, *, Q=1, full=False, H=4, M=7, D=2, seed=0):
    """Return a model put together from arrays, never fitted."""
    rng = np.random.default_rng(seed)
    model = SWSGPRegressor(kernel=None)
    covariance = rng.uniform(0.1, 0.5, size=(M, Q))
    if full:
        covariance = np.tril(0.2 * rng.normal(size=(Q, M, M)), -1)
        covariance += np.eye(M) * rng.uniform(0.3, 0.9, size=(Q, M, 1))
        covariance = np.moveaxis(covariance, 0, -1)
    mean, noise = rng.normal(size=(M, Q)), rng.uniform(0.1, 0.3, size=Q)
    model.kernel_ = kernel
    model.inducing_points_ = rng.normal(size=(M, D)) + 1.0
    model.n_inducing_, model.n_neighbors_, model.n_features_in_ = M, H, D
    model.inducing_mean_ = mean if Q > 1 else mean[:, 0]
    model.inducing_covariance_ = covariance if Q > 1 else covariance[..., 0]
    model.noise_variance_ = noise if Q > 1 else noise[0]
    model.y_mean_ = np.array([3.0, -1.0]) if Q > 1 else 3.0
    model.y_scale_ = np.array([2.0, 0.5]) if Q > 1 else 2.0
    return model


def as_reference(model):
    """Return the arguments Z, mean (M, Q), covariance of the reference."""
    M = len(model.inducing_points_)
    mean = np.reshape(model.inducing_mean_, (M, -1))
    covariance = model.inducing_covariance_
    full = covariance.ndim > np.ndim(model.inducing_mean_)
    shape = (M, M, -1) if full else (M, -1)
    return model.inducing_points_, mean, covariance.reshape(shape)


def state_of(model):
    """Return a hash of everything that a model holds, but for callbacks."""
    state = vars(model).items()
    return joblib.hash({n: v for n, v in state if not n.startswith(CALLBACKS)})


def assert_same_bits(first, second):
    for name in FITTED_ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.kernel_.theta, second.kernel_.theta)
    np.testing.assert_array_equal(first.noise_variance_, second.noise_variance_)
    assert first.loss_curve_ == second.loss_curve_


def interrupting(monkeypatch, error, epoch):
    """Let training raise `error` at the start of an epoch, counted from 1."""
    run_epoch, calls = adam.run_epoch, []

    def raising(*args):
        calls.append(1)
        if len(calls) == epoch:
            raise error
        return run_epoch(*args)

    monkeypatch.setattr(adam, "run_epoch", raising)


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize("H", [3, 7])
@pytest.mark.parametrize("Q", [1, 2])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_model_put_together_from_arrays_agrees_with_the_formulas(
    kernel, full, Q, H, rng
):
    model = assembled(kernel, Q=Q, full=full, H=H)
    X = rng.normal(size=(6, 2)) + 1.0
    y = rng.normal(size=(6, Q)) if Q > 1 else rng.normal(size=6)
    weight = rng.uniform(0.5, 2.0, size=6)
    Z, m, S = as_reference(model)
    noise, scale = model.noise_variance_, model.y_scale_
    targets = ((y - model.y_mean_) / scale).reshape(6, Q)

    mean, std = model.predict(X, return_std=True)
    bound = model.lower_bound(X, y)
    weighted = model.lower_bound(X, y, sample_weight=weight)

    mu, v = reference.predict(kernel, X, Z, m, S, H, JITTER)
    expected = mu * scale + model.y_mean_
    expected_std = np.sqrt(v + noise) * scale
    assert mean.shape == std.shape == y.shape
    # The condition number of K, up to 1e6, times rounding.
    np.testing.assert_allclose(mean, expected.reshape(y.shape), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(std, expected_std.reshape(y.shape), rtol=1e-8)
    common = kernel, X, targets, Z, m, S, H, "gaussian", noise, JITTER
    assert bound == pytest.approx(reference.lower_bound(*common), rel=1e-8)
    expected_bound = reference.lower_bound(*common, sample_weight=weight)
    assert weighted == pytest.approx(expected_bound, rel=1e-8)


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_exact_posterior_at_H_equal_to_M_equal_to_N_is_that_of_scikit_learn(rng, noise):
    kernel = ConstantKernel(1.5) * Matern([0.7, 1.2], nu=1.5)
    X, X_new = rng.uniform(-2, 2, size=(15, 2)), rng.uniform(-2, 2, size=(20, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    model = assembled(kernel, M=15, H=15)
    mean, covariance = reference.gp_posterior(kernel, X, y, noise)
    model.inducing_points_, model.inducing_mean_ = X, mean
    model.inducing_covariance_ = np.linalg.cholesky(covariance)
    model.noise_variance_, model.y_mean_, model.y_scale_ = noise, 0.0, 1.0
    model.jitter_ = 1e-7
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=noise).fit(X, y)
    expected, expected_std = exact.predict(X_new, return_std=True)

    actual, std = model.predict(X_new, return_std=True)

    # The jitter of 1.5e-7 on K, against a noise of 0.05 or more.
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_allclose(std**2 - noise, expected_std**2, atol=1e-5)


def test_a_trained_model_comes_near_the_exact_gaussian_process(rng):
    X = np.sort(rng.uniform(0, 6, size=(50, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=50)
    X_new = np.linspace(0.2, 5.8, 30)[:, None]
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)
    expected, expected_std = exact.predict(X_new, return_std=True)

    model = SWSGPRegressor(
        ConstantKernel(1.0) * RBF(1.0),
        n_inducing=8,
        n_neighbors=8,
        batch_size=10,
        learning_rate=0.1,
        max_iter=150,
        n_iter_no_change=150,
        random_state=0,
        **ADAM,
    ).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)

    assert np.abs(mean - expected).max() < 0.05  # half the noise
    np.testing.assert_allclose(std, expected_std, rtol=0.2)


@pytest.mark.parametrize("settings", [{}, ADAM], ids=["default", "adam"])
def test_defaults_learn_a_smooth_curve(rng, settings):
    X = np.sort(rng.uniform(0, 6, size=(50, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=50)
    model = SWSGPRegressor(random_state=0, **settings).fit(X, y)
    assert model.score(X, y) > 0.9


# ---------------------------------------------------------------- prediction


@pytest.mark.parametrize("H", [1, 6, 7])
def test_n_neighbors_in_predict_replaces_that_of_the_model(H, rng):
    X = rng.normal(size=(9, 2))
    model, other = assembled(KERNELS["matern"]), assembled(KERNELS["matern"], H=H)
    actual = model.predict(X, return_std=True, n_neighbors=H)
    np.testing.assert_array_equal(actual, other.predict(X, return_std=True))
    assert not np.allclose(actual[0], model.predict(X))


def test_n_neighbors_above_M_in_predict_is_cut(rng):
    X, model = rng.normal(size=(9, 2)), assembled(KERNELS["matern"])
    actual = model.predict(X, n_neighbors=100)
    np.testing.assert_array_equal(actual, model.predict(X, n_neighbors=7))


def test_std_includes_noise_in_the_units_of_y(rng):
    X, model = rng.normal(size=(9, 2)), assembled(KERNELS["matern"])
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X), rtol=1e-12)
    assert np.all(std > np.sqrt(model.noise_variance_) * model.y_scale_)
    far = model.predict([[1e3, 1e3]], return_std=True)
    prior = np.sqrt(1.7 + model.noise_variance_) * model.y_scale_
    np.testing.assert_allclose(far, [[model.y_mean_], [prior]], rtol=1e-9)


@pytest.mark.parametrize("H", [3, 7])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_one_by_one_equals_batch(kernel, H, rng):
    X, model = rng.normal(size=(9, 2)), assembled(kernel, H=H, full=True)
    batch = np.array(model.predict(X, return_std=True))
    single = [np.concatenate(model.predict(x[None], return_std=True)) for x in X]
    np.testing.assert_allclose(np.array(single).T, batch, rtol=0, atol=1e-7)


def test_prediction_changes_no_attribute():
    X, y = small_data()
    model = small_model().fit(X, y)
    before = state_of(model)
    model.predict(X, return_std=True, n_neighbors=3)
    model.lower_bound(X, y)
    model.score(X, y)
    assert state_of(model) == before


def test_predictions_in_blocks_equal_those_of_one_block(monkeypatch, rng):
    X, model = rng.normal(size=(25, 2)), assembled(KERNELS["matern"])
    y = rng.normal(size=25)
    whole, bound = model.predict(X), model.lower_bound(X, y)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(model.predict(X), whole, rtol=1e-10)
    assert model.lower_bound(X, y) == pytest.approx(bound, rel=1e-10)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_training_lowers_the_loss_and_learns(H, covariance):
    X, y = small_data()
    model = small_model(n_neighbors=H, covariance=covariance, max_iter=60).fit(X, y)
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.3
    assert model.score(*small_data(seed=1)) > 0.9


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("optimize_inducing", [False, True])
@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_a_refit_repeats_to_the_bit_for_any_number_of_threads(
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


def test_random_state_matters():
    X, y = small_data()
    first, second = (small_model(random_state=seed).fit(X, y) for seed in (0, 1))
    assert first.loss_curve_ != second.loss_curve_


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("H", [5, 20])
def test_float32_stays_and_is_near_float64(H, covariance):
    X, y = small_data()
    model = small_model(n_neighbors=H, covariance=covariance, max_iter=10).fit(X, y)
    narrow = clone(model).set_params(dtype="float32").fit(X, y)
    assert narrow.inducing_mean_.dtype == np.float32
    assert narrow.inducing_covariance_.dtype == np.float32
    mean, std = model.predict(X, return_std=True)
    narrow_mean, narrow_std = narrow.predict(X, return_std=True)
    assert narrow_mean.dtype == narrow_std.dtype == np.float64
    # Rounding of 1e-7, amplified by the condition of K up to its jitter of 1e-5; where
    # two inducing points are nearly as near, the two may choose differently.
    same = np.abs(narrow_mean - mean) < 0.02
    assert same.mean() > 0.95
    np.testing.assert_allclose(narrow_std[same], std[same], rtol=0.05)


def test_fixed_parameters_stay_and_bounds_are_respected():
    X, y = small_data()
    kernel = ConstantKernel(0.7, "fixed") * RBF([1.0, 1.0], (0.9, 1.05))
    kernel += ConstantKernel(0.123, (1e-3, 10.0))
    for dtype in ("float64", "float32"):
        model = small_model(kernel=kernel, max_iter=60, learning_rate=0.1, dtype=dtype)
        params = model.fit(X, y).kernel_.get_params()
        assert params["k1__k1__constant_value"] == 0.7
        lengths = params["k1__k2__length_scale"]
        # Rounding of exp(log(bound)).
        slack = 1 + 4 * np.finfo(dtype).eps
        assert np.all((lengths >= 0.9 / slack) & (lengths <= 1.05 * slack))
        assert params["k2__constant_value"] != 0.123
    assert kernel.get_params()["k2__constant_value"] == 0.123


def test_the_learned_kernel_serves_the_exact_gaussian_process():
    X, y = small_data()
    model = small_model(max_iter=60).fit(X, y)
    exact = GaussianProcessRegressor(
        model.kernel_, optimizer=None, alpha=model.noise_variance_, normalize_y=True
    ).fit(X, y)
    assert exact.score(*small_data(seed=1)) > 0.95


def test_only_optimize_inducing_moves_inducing_points():
    X, y = small_data()
    Z = X[:20] + 0.01
    fixed = small_model(inducing_points=Z).fit(X, y)
    moved = small_model(inducing_points=Z, optimize_inducing=True).fit(X, y)
    np.testing.assert_allclose(fixed.inducing_points_, Z, rtol=0, atol=1e-12)
    assert np.all(np.abs(moved.inducing_points_ - Z).max(axis=1) > 1e-4)


def test_given_inducing_points_decide_on_their_number():
    X, y = small_data()
    Z = np.repeat(X[:8], 2, axis=0)
    for n_inducing in ("auto", 16):
        model = small_model(inducing_points=Z.tolist(), n_inducing=n_inducing)
        assert model.fit(X, y).n_inducing_ == 8
        np.testing.assert_allclose(model.inducing_points_, X[:8], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kl_weight", "H", "expected"),
    [("auto", 5, 4.0), ("auto", 20, 1.0), (1.0, 5, 1.0), (2, 20, 2.0)],
)
def test_kl_weight(kl_weight, H, expected):
    X, y = small_data()
    model = small_model(kl_weight=kl_weight, n_neighbors=H).fit(X, y)
    assert model.kl_weight_ == expected


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


def test_auto_covariance_is_diagonal_past_a_size(monkeypatch):
    X, y = small_data()
    monkeypatch.setattr(auto, "AUTO_COVARIANCE_BYTES", 3 * 8 * 20 * 20 - 1)
    assert small_model().fit(X, y).inducing_covariance_.shape == (20,)


@pytest.mark.parametrize(
    ("params", "full"),
    [
        ({}, True),
        ({"covariance": "diag"}, False),
        ({"kl": "local"}, False),
        ({"optimize_inducing": True}, False),
        ({"inducing_points": np.arange(140.0).reshape(70, 2)}, False),
    ],
    ids=str,
)
def test_few_rows_get_all_of_the_covariance(params, full, few_steps, monkeypatch):
    monkeypatch.setattr(auto, "FULL_ROWS", 65)
    X, y = small_data(n=60)
    model = SWSGPRegressor(random_state=0, **params).fit(X, y)
    assert model.inducing_covariance_.ndim == 1 + full
    model.fit(X, np.stack([y, y], axis=1))
    assert model.inducing_covariance_.ndim == 2


def test_many_rows_get_its_diagonal(monkeypatch, few_steps):
    monkeypatch.setattr(auto, "FULL_ROWS", 59)
    X, y = small_data(n=60)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert model.inducing_covariance_.ndim == 1


@pytest.mark.parametrize("n", [300, 900])
def test_intervals_of_the_function_hold_on_few_rows(n):
    held = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, size=(n, 1))
        f = np.sin(3 * X[:, 0])
        y = f + 0.3 * rng.normal(size=n)
        model = SWSGPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X, return_std=True)
        latent = np.sqrt(std**2 - model.noise_variance_ * model.y_scale_**2)
        held.append(np.mean(np.abs(mean - f) < 1.96 * latent))
    assert np.mean(held) > 0.85


def test_too_large_a_full_covariance_names_the_diagonal(monkeypatch):
    X, y = small_data()
    monkeypatch.setattr(auto, "FULL_COVARIANCE_BYTES", 3 * 8 * 20 * 20 - 1)
    with pytest.raises(ValueError, match=r"covariance='full'.*covariance='diag'"):
        small_model(covariance="full").fit(X, y)
    small_model(covariance="diag").fit(X, y)


@pytest.mark.parametrize("metric", ["kernel", "euclidean", "random"])
@pytest.mark.parametrize("search", ["auto", "brute", "kd_tree"])
def test_neighbors_are_chosen_as_asked(metric, search):
    X, y = small_data()
    model = small_model(neighbor_metric=metric, neighbor_search=search, max_iter=30)
    model.fit(X, y)
    assert model.neighbor_recall_ == 1.0
    assert np.all(np.isfinite(model.predict(X)))
    assert metric == "random" or model.score(X, y) > 0.8


# ---------------------------------------------------------------- invariances


@pytest.fixture(scope="module")
def exact_solution():
    """Let conjugate gradients run until rounding stops them; learn in a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TOLERANCE", "LAST_TOLERANCE"):
            patch.setattr(natural, name, 1e-13)
        patch.setattr(kernel_learning, "STEPS", 10)
        yield


def each_solver(test):
    """Run a test with small models of both solvers."""
    makers = [small_model, natural_model]
    test = pytest.mark.parametrize("make", makers, ids=["adam", "natural"])(test)
    return pytest.mark.usefixtures("exact_solution")(test)


@each_solver
@FEW
@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-100, 100), sign=st.booleans())
def test_scale_and_shift_of_y(make, scale, shift, sign):
    X, y = small_data(60)
    scale = -scale if sign else scale
    model = make(max_iter=3).fit(X, y)
    other = clone(model).fit(X, scale * y + shift)
    (mean, std), (mean2, std2) = (m.predict(X, return_std=True) for m in (model, other))
    # y of size `shift` and spread `scale` carries a rounding of shift / scale 1e-16.
    tolerance = 1e-7 * abs(scale)
    np.testing.assert_allclose(mean2, scale * mean + shift, rtol=0, atol=tolerance)
    np.testing.assert_allclose(std2, abs(scale) * std, rtol=0, atol=tolerance)


@each_solver
@FEW
@given(shift=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)))
def test_translation_of_X_with_a_stationary_kernel(make, shift):
    X, y = small_data(60)
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X + shift, y)
    first, second = model.predict(X), other.predict(X + shift)
    # Coordinates of 1e3 carry a rounding of 1e-13, K a condition number up to 1e6.
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)


@each_solver
@FEW
@given(scale=st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)))
def test_units_of_X_with_the_default_kernel(make, scale):
    X, y = small_data(60)
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X * scale, y)
    first, second = model.predict(X), other.predict(X * scale)
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)


@each_solver
@FEW
@given(order=st.permutations(range(4)))
def test_order_of_the_columns_of_X(make, order):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] - np.cos(X[:, 2])
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X[:, order], y)
    first, second = model.predict(X), other.predict(X[:, order])
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-7)


@FEW
@given(order=st.permutations(range(12)))
def test_order_of_the_rows_in_lower_bound(order):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    model = assembled(KERNELS["matern"])
    bound = model.lower_bound(X[order], y[order])
    assert bound == pytest.approx(model.lower_bound(X, y), rel=1e-12)


@each_solver
@pytest.mark.parametrize("inducing_points", ["kmeans", "random"])
def test_duplicated_rows_work(make, inducing_points):
    X, y = small_data(30)
    X, y = np.repeat(X, 4, axis=0), np.repeat(y, 4)
    model = make(inducing_points=inducing_points, n_inducing=100, max_iter=60)
    model.fit(X, y)
    assert model.n_inducing_ <= 30
    assert model.score(X, y) > 0.8


@each_solver
@pytest.mark.parametrize(("H", "own"), [(5, False), (20, True)])
def test_a_constant_feature_changes_nothing(make, H, own):
    # With H < M and length-scales of its own, it may change when neighbours are
    # looked up anew.
    X, y = small_data(60)
    wide = np.insert(X, 1, 7.0, axis=1)
    predictions = []
    for inputs in (X, wide):
        scale = np.ones(inputs.shape[1]) if own else 1.0
        model = make(
            kernel=ConstantKernel(1.0) * RBF(scale),
            inducing_points="random",
            n_neighbors=H,
        )
        predictions.append(model.fit(inputs, y).predict(inputs))
    np.testing.assert_allclose(*predictions, atol=1e-8)


# ---------------------------------------------------------------- weights


def test_weights_in_lower_bound_count_rows(rng):
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    count = rng.integers(0, 4, size=12)
    assert (count == 0).any()
    model = assembled(KERNELS["matern"])
    expected = model.lower_bound(np.repeat(X, count, axis=0), np.repeat(y, count))
    actual = model.lower_bound(X, y, sample_weight=count)
    assert actual == pytest.approx(expected, rel=1e-12)


def test_weight_zero_leaves_a_row_out_of_fit():
    X, y = small_data(80)
    weight = np.r_[np.ones(60), np.zeros(20)]
    y[60:] = 1e6
    model = small_model().fit(X, y, sample_weight=weight)
    other = small_model().fit(X[:60], y[:60])
    assert_same_bits(model, other)
    assert model.n_samples_seen_ == 60.0


def test_weights_act_like_repetition():
    # Each input comes with y near 1 and with y near -1; weights decide between them.
    rng = np.random.default_rng(0)
    X = np.tile(rng.uniform(-2, 2, size=(60, 1)), (2, 1))
    y = np.r_[np.ones(60), -np.ones(60)] + 0.1 * rng.normal(size=120)
    count = np.where(y > 0, np.where(X[:, 0] > 0, 3, 1), np.where(X[:, 0] > 0, 1, 3))
    Z = np.linspace(-2, 2, 12)[:, None]
    model = small_model(
        n_inducing=12, inducing_points=Z, max_iter=150, n_iter_no_change=150
    )
    repeated = clone(model).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    plain = clone(model).fit(X, y)
    model.fit(X, y, sample_weight=count)

    mean, std = model.predict(Z, return_std=True)
    expected, expected_std = repeated.predict(Z, return_std=True)
    # Weighted means are -0.5 and 0.5, the plain one 0; noise about 0.9.
    assert np.abs(mean - expected).mean() < 0.1
    assert np.abs(plain.predict(Z) - expected).mean() > 0.3
    np.testing.assert_allclose(std, expected_std, rtol=0.1)
    assert model.n_samples_seen_ == count.sum()


# ---------------------------------------------------------------- shapes of y


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


def test_a_column_as_y_keeps_its_shape():
    X, y = small_data()
    flat, column = small_model().fit(X, y), small_model().fit(X, y[:, None])
    mean, std = column.predict(X, return_std=True)
    assert mean.shape == std.shape == (150, 1)
    np.testing.assert_array_equal(mean[:, 0], flat.predict(X))
    assert column.lower_bound(X, y[:, None]) == flat.lower_bound(X, y)
    assert isinstance(flat.noise_variance_, float)


def test_normalize_y_false_leaves_y_as_it_is():
    X, y = small_data()
    model = small_model(normalize_y=False, max_iter=60).fit(X, y)
    assert (model.y_mean_, model.y_scale_) == (0.0, 1.0)
    assert model.score(X, y) > 0.9


# ---------------------------------------------------------------- going on, stopping


def test_warm_start_goes_on_where_training_ended():
    X, y = small_data()
    model = small_model(max_iter=40, warm_start=True).fit(X, y)
    first = model.loss_curve_
    Z = model.inducing_points_
    model.set_params(max_iter=5).fit(X, y)
    assert model.n_iter_ == 5
    np.testing.assert_allclose(model.inducing_points_, Z, rtol=0, atol=1e-12)
    drop = first[0] - first[-1]
    assert max(model.loss_curve_) < first[-1] + 0.2 * drop
    cold = clone(model).set_params(warm_start=False).fit(X, y)
    assert cold.loss_curve_[0] > first[-1] + 0.5 * drop


def test_partial_fit_learns_from_chunks():
    X, y = small_data(300)
    model = small_model(learning_rate=0.05)
    for _ in range(12):
        for rows in np.array_split(np.arange(300), 4):
            model.partial_fit(X[rows], y[rows])
    assert model.n_samples_seen_ == 3600
    assert model.score(*small_data(seed=1)) > 0.85
    one = small_model(learning_rate=0.05).partial_fit(X[:75], y[:75])
    assert one.score(*small_data(seed=1)) < 0.7
    np.testing.assert_allclose(one.y_mean_, y[:75].mean())
    np.testing.assert_array_equal(one.y_mean_, model.y_mean_)


@pytest.mark.parametrize("estimator_class", [SWSGPRegressor, SWSGPClassifier])
def test_weights_in_partial_fit(estimator_class):
    X, y = small_data(80)
    y = y > 0 if estimator_class is SWSGPClassifier else y
    settings = ADAM | {"n_inducing": 20, "batch_size": 16, "random_state": 0}
    weight = np.r_[np.ones(30), np.full(30, 2.0), np.zeros(20)]
    model, other = estimator_class(**settings), estimator_class(**settings)
    for _ in range(3):
        model.partial_fit(X, y, sample_weight=weight)
        other.partial_fit(X[:60], y[:60], sample_weight=weight[:60])
    np.testing.assert_array_equal(model.inducing_mean_, other.inducing_mean_)
    assert model.n_samples_seen_ == 270.0
    plain = estimator_class(**settings)
    for _ in range(3):
        plain.partial_fit(X[:60], y[:60])
    assert np.abs(plain.inducing_mean_ - model.inducing_mean_).max() > 1e-3


def test_partial_fit_refuses_other_shapes():
    X, y = small_data(60)
    model = small_model().partial_fit(X, y)
    before = state_of(model)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1], y)
    with pytest.raises(ValueError, match="y has shape"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    assert state_of(model) == before


def test_fit_after_partial_fit_starts_anew():
    X, y = small_data()
    model = small_model().partial_fit(X[:50], 5 * y[:50])
    assert_same_bits(model.fit(X, y), small_model().fit(X, y))


def test_early_stopping_holds_rows_out():
    X, y = small_data(300)
    model = small_model(
        early_stopping=True, validation_fraction=0.2, max_iter=60, n_iter_no_change=3
    ).fit(X, y)
    assert model.n_samples_seen_ == 240
    assert len(model.validation_scores_) == model.n_iter_
    assert model.validation_scores_[-1] > model.validation_scores_[0]
    assert model.score(X, y) > 0.8


def test_held_out_rows_count_by_their_weights(monkeypatch, rng):
    split, parts = base.train_test_split, []

    def recorded(*args, **kwargs):
        parts[:] = split(*args, **kwargs)
        return parts

    monkeypatch.setattr(base, "train_test_split", recorded)
    X, y = small_data()
    weight = rng.uniform(0.1, 4.0, size=150)
    weight[::3] = 0.0
    model = small_model(kernel=RBF(1.0, "fixed"), early_stopping=True, max_iter=1)
    model.fit(X, y, sample_weight=weight)
    train, held = (np.flatnonzero(weight)[part] for part in parts)
    density = norm.logpdf(y[held], *model.predict(X[held], return_std=True))
    expected = np.average(density, weights=weight[held])
    assert model.validation_scores_[0] == pytest.approx(expected, rel=1e-9)
    assert expected != pytest.approx(density.mean(), rel=1e-2)
    assert model.n_samples_seen_ == pytest.approx(weight[train].sum(), rel=1e-12)


@pytest.mark.parametrize("Q", [1, 2])
def test_the_best_epoch_on_validation_data_is_kept(Q):
    X, y = small_data()
    X_val, y_val = small_data(50, seed=1)
    if Q == 2:
        y, y_val = np.stack([y, X[:, 0]], 1), np.stack([y_val, X_val[:, 0]], 1)
    y, y_val = 10 * y + 5, 10 * y_val + 5
    settings = {"learning_rate": 0.5, "neighbor_metric": "euclidean"}  # same lists
    model = small_model(max_iter=6, **settings).fit(X, y, X_val=X_val, y_val=y_val)
    scores = model.validation_scores_
    assert len(scores) == model.n_iter_ == len(model.loss_curve_) == 6
    assert np.argmax(scores) < 5, "choose a less steady learning rate"
    density = norm.logpdf(y_val, *model.predict(X_val, return_std=True))
    mean_density = density.reshape(50, -1).sum(axis=1).mean()
    assert mean_density == pytest.approx(max(scores), rel=1e-9)
    assert model.n_samples_seen_ == 150


@pytest.mark.parametrize("early_stopping", ["auto", True])
def test_rounds_of_the_natural_solver_are_scored(early_stopping):
    X, y = small_data(150)
    X_val, y_val = small_data(50, seed=1)
    model = natural_model(early_stopping=early_stopping).fit(
        X, 10 * y + 5, X_val=X_val, y_val=10 * y_val + 5
    )
    density = norm.logpdf(10 * y_val + 5, *model.predict(X_val, return_std=True))
    assert model.validation_scores_ == [pytest.approx(density.mean(), rel=1e-9)]
    assert model.n_samples_seen_ == 150
    held = natural_model(early_stopping=True, validation_fraction=0.2).fit(X, y)
    assert held.n_samples_seen_ == 120
    assert len(held.validation_scores_) == held.n_iter_ == 1


def test_no_change_ends_training():
    X, y = small_data()
    model = small_model(max_iter=50, tol=100.0, n_iter_no_change=4).fit(X, y)
    assert model.n_iter_ == 5
    model = small_model(max_iter=50, tol=100.0, n_iter_no_change=4)
    model.fit(X, y, X_val=X, y_val=y)
    assert model.n_iter_ == 5


@pytest.mark.parametrize(
    ("params", "change", "match"),
    [
        ({}, {"y_val": None}, "y_val is missing"),
        ({}, {"X_val": None}, "X_val is missing"),
        ({"early_stopping": False}, {}, "early_stopping=False"),
        ({}, {"X_val": np.zeros((5, 3))}, "features"),
        ({}, {"X_val": np.full((5, 2), np.nan)}, "NaN"),
        ({}, {"y_val": np.zeros(4)}, "inconsistent numbers of samples"),
        ({}, {"y_val": np.zeros((5, 2))}, "y has shape"),
    ],
)
def test_unusable_validation_data_is_refused(params, change, match):
    X, y = small_data(60)
    validation = {"X_val": X[:5], "y_val": y[:5]} | change
    model = small_model(**params)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, **validation)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_record_of_the_training():
    X, y = small_data()
    model = small_model(max_iter=60).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) == 60
    assert model.best_loss_ == min(model.loss_curve_)
    assert model.validation_scores_ is None
    assert model.neighbor_recall_ == 1.0
    assert model.n_features_in_ == 2
    # The average over an epoch, at the end of a decay of the learning rate.
    assert model.lower_bound_ == pytest.approx(model.lower_bound(X, y), abs=0.1 * 150)


def test_verbose_prints_an_epoch_a_line(capsys):
    X, y = small_data(60)
    small_model().fit(X, y)
    assert capsys.readouterr().out == ""
    model = small_model(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_ == 5
    assert "5/5" in lines[-1]
    assert f"{model.loss_curve_[-1]:.5f}" in lines[-1]
    small_model(verbose=1, early_stopping=True).fit(X, y)
    assert "held-out" in capsys.readouterr().out
    model = SWSGPClassifier(init="default", random_state=0, verbose=1).fit(X, y > 0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_ > 1
    assert all(line.startswith(f"round {i}/") for i, line in enumerate(lines, 1))


# ---------------------------------------------------------------- interruptions


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_keyboard_leaves_a_usable_model(monkeypatch, epoch, held_out):
    X, y = small_data()
    interrupting(monkeypatch, KeyboardInterrupt(), epoch)
    model = small_model(early_stopping=held_out)
    when = "at its best" if held_out and epoch > 1 else "then"
    message = f"interrupted in epoch {epoch}: the model is kept as it was {when}"
    with pytest.warns(UserWarning, match=message):
        assert model.fit(X, y) is model
    assert model.n_iter_ == len(model.loss_curve_) == epoch - 1
    assert np.all(np.isfinite(model.predict(X, return_std=True)))
    assert np.isfinite(model.lower_bound(X, y))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_warning_points_at_the_line_of_the_caller(monkeypatch, method):
    X, y = small_data(60)
    interrupting(monkeypatch, KeyboardInterrupt(), 1)
    with pytest.warns(UserWarning, match="interrupted") as record:
        getattr(small_model(), method)(X, y)
    assert record[0].filename == __file__


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("first", ["fit", "partial_fit"])
def test_a_failing_fit_leaves_an_earlier_model_untouched(monkeypatch, first, method):
    X, y = small_data(60)
    model = small_model()
    getattr(model, first)(X, y)
    before = state_of(model)
    interrupting(monkeypatch, RuntimeError("in training"), 2 - (method != "fit"))
    with pytest.raises(RuntimeError, match="in training"):
        getattr(model, method)(X + 1, 5 * y)
    assert state_of(model) == before


def test_a_failing_fit_leaves_a_new_estimator_new(monkeypatch):
    X, y = small_data(60)
    model = small_model()
    before = state_of(model)
    interrupting(monkeypatch, RuntimeError("in training"), 2)
    with pytest.raises(RuntimeError, match="in training"):
        model.fit(X, y)
    assert state_of(model) == before


def test_bad_data_leave_an_earlier_model_untouched():
    X, y = small_data(60)
    model = small_model(kernel=RBF([1.0, 1.0])).fit(X, y)
    before = state_of(model)
    with pytest.raises(ValueError, match="length-scales"):
        model.fit(np.c_[X, X[:, 0]], y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.where(y > 0, np.nan, y))
    assert state_of(model) == before


def test_an_exception_in_partial_fit_keeps_the_moments(monkeypatch):
    # A failed chunk in between leaves no trace in what follows.
    X, y = small_data(60)
    model, other = (small_model().partial_fit(X, y) for _ in range(2))
    with monkeypatch.context() as patch:
        run_epoch = adam.run_epoch

        def raising(*args):
            run_epoch(*args)
            raise RuntimeError("after the epoch")

        patch.setattr(adam, "run_epoch", raising)
        with pytest.raises(RuntimeError, match="after the epoch"):
            model.partial_fit(X + 1, y)
    assert_same_bits(model.partial_fit(X, y), other.partial_fit(X, y))


# ---------------------------------------------------------------- callbacks


class Recorder:
    """A callback that records what it is told, and stops after an epoch."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.calls = []
        self.predictions = []

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        assert len(X) == len(y)
        self.calls.append(("begin", context.task_name))

    def on_fit_task_end(
        self, estimator, context, *, X=None, metadata=None, fitted_estimator=None
    ):
        self.calls.append(("end", context.task_name))
        self.metadata = metadata
        if context.task_name == "epoch":
            self.predictions.append(fitted_estimator.predict(X))
            return len(self.predictions) == self.stop_after
        assert context.max_subtasks == estimator.max_iter
        return None


def test_callbacks_see_one_fit_and_its_epochs():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = small_model(max_iter=3).set_callbacks(recorder)
    model.fit(X, y, sample_weight=np.ones(60))
    epochs = [("begin", "epoch"), ("end", "epoch")] * 3
    task = [("begin", "fit"), *epochs, ("end", "fit")]
    assert recorder.calls == [("setup", "fit"), *task, ("teardown", "fit")]
    np.testing.assert_array_equal(recorder.predictions[-1], model.predict(X))
    assert not np.allclose(recorder.predictions[0], recorder.predictions[1])
    np.testing.assert_array_equal(recorder.metadata["sample_weight"], np.ones(60))
    plain = small_model(max_iter=3).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_a_callback_can_stop_training():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    model = small_model(max_iter=10).set_callbacks(Recorder(stop_after=2)).fit(X, y)
    assert model.n_iter_ == 2


def test_callbacks_see_the_rounds_of_the_natural_solver():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = SWSGPClassifier(init="default", random_state=0).set_callbacks(recorder)
    model.fit(X, y > 0)
    assert len(recorder.predictions) == model.n_iter_ > 2
    np.testing.assert_array_equal(recorder.predictions[-1], model.predict(X))
    model.set_callbacks(Recorder(stop_after=2)).fit(X, y > 0)
    assert model.n_iter_ == 2


def test_callbacks_are_torn_down_after_a_failure(monkeypatch):
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = small_model().set_callbacks(recorder)
    interrupting(monkeypatch, RuntimeError("in training"), 2)
    with pytest.raises(RuntimeError, match="in training"):
        model.fit(X, y)
    assert recorder.calls[-1] == ("teardown", "fit")
    left = [n for n in vars(model) if n.startswith(CALLBACKS)]
    assert left == ["_skl_callbacks"]


def test_callbacks_are_torn_down_after_partial_fit():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = small_model(max_iter=1).set_callbacks(recorder)
    model.partial_fit(X, y).partial_fit(X, y)
    names = [name for name, _ in recorder.calls]
    assert names.count("setup") == names.count("teardown")
    left = [n for n in vars(model) if n.startswith(CALLBACKS)]
    assert left == ["_skl_callbacks"]


def test_callbacks_of_scikit_learn_run(capsys):
    callback = pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    monitor = callback.ScoringMonitor(scoring="r2")
    model = small_model(max_iter=4).set_callbacks(monitor).fit(X, y)
    scores = [row["r2"] for row in monitor.get_logs().data if "r2" in row]
    assert len(scores) == 4
    assert scores[-1] == pytest.approx(model.score(X, y))
    pytest.importorskip("rich")
    small_model(max_iter=4).set_callbacks(callback.ProgressBar()).fit(X, y)
    assert "SWSGPRegressor" in capsys.readouterr().out
