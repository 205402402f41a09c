"""NearestNeighborGPRegressor: formulas, weights, awkward and unusable data."""

from copy import copy

import joblib
import numpy as np
import pytest
import reference
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)

from skswsgp._compiled import threads
from skswsgp._kernel_search import neighbor_likelihood
from skswsgp._kernel_search.kernel_learning import evaluation_work
from skswsgp.baselines import NearestNeighborGPRegressor as Regressor
from skswsgp.baselines import nearest
from skswsgp.metrics import interval_coverage

pytestmark = pytest.mark.matrix
KERNELS = {
    "matern": ConstantKernel(1.7) * Matern([0.8, 1.5], nu=2.5),
    "white": ConstantKernel(0.6) * RBF(0.9) + WhiteKernel(0.2),
    "linear": DotProduct(0.5) + RBF([1.1, 0.7]),
}


def data(n=60, seed=0):
    """Return X (n, 2), y (n,): a smooth function with noise of variance 0.01."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def clone_with(model, name, value):
    """Return a copy of a fitted model with another value of a parameter."""
    return copy(model).set_params(**{name: value})


def state_of(model):
    return joblib.hash(vars(model))


def assert_finite(model, X, y):
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == np.shape(y)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.all(np.isfinite(model.loss_curve_))
    assert np.all(np.isfinite(model.kernel_.theta))


# --- formulas -------------------------------------------------------------------------


@pytest.mark.parametrize("H", [3, 12])
@pytest.mark.parametrize("Q", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_predictions_and_bound_equal_the_reference(kernel, Q, H, rng):
    model = Regressor(n_neighbors=H)
    noise = rng.uniform(0.1, 0.3, size=Q)
    model.kernel_, model.n_features_in_ = kernel, 2
    model.X_train_, m = rng.normal(size=(12, 2)) + 1.0, rng.normal(size=(12, Q))
    model.linear_map_ = np.array([[1.0, 0.3], [-0.2, 0.8]])
    model.sample_weight_ = rng.uniform(0.3, 3.0, size=12)
    model.y_train_ = m if Q > 1 else m[:, 0]
    model.noise_variance_ = noise if Q > 1 else noise[0]
    model.y_mean_ = np.array([3.0, -1.0]) if Q > 1 else 3.0
    model.y_scale_ = np.array([2.0, 0.5]) if Q > 1 else 2.0
    X = rng.normal(size=(6, 2)) + 1.0

    mean, std = model.predict(X, return_std=True)

    X, Z = X @ model.linear_map_, model.X_train_ @ model.linear_map_
    nearest = reference.neighbor_table(kernel, X, Z, H)
    weight = np.repeat(model.sample_weight_[:, None], Q, axis=1)
    mu, F = reference.krige_all(kernel, X, Z, m, weight, noise, nearest)
    expected = mu * model.y_scale_ + model.y_mean_
    expected_std = np.sqrt(F + noise) * model.y_scale_
    assert mean.shape == std.shape == ((6, 2) if Q > 1 else (6,))
    # The relative jitter is 1e-10, the noise variance 0.03 or more.
    np.testing.assert_allclose(mean, expected.reshape(mean.shape), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(std, expected_std.reshape(std.shape), rtol=1e-8)


def test_all_rows_as_neighbors_give_the_exact_gaussian_process(few_steps):
    X, y = data()
    model = Regressor(n_neighbors=1000, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(
        model.kernel_, alpha=model.noise_variance_, optimizer=None
    ).fit(X, model.y_train_)
    X_new, _ = data(seed=1)
    mean, std = model.predict(X_new, return_std=True)
    expected, expected_std = exact.predict(X_new, return_std=True)
    latent = np.sqrt((std / model.y_scale_) ** 2 - model.noise_variance_)
    actual = (mean - model.y_mean_) / model.y_scale_
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(latent, expected_std, rtol=0, atol=1e-6)


def test_function_and_noise_are_learned():
    X, y = data(1000)
    X_new, y_new = data(1000, seed=1)
    model = Regressor(random_state=0).fit(X, 50 * y + 300)
    mean, std = model.predict(X_new, return_std=True)
    assert model.score(X_new, 50 * y_new + 300) > 0.98
    assert model.noise_variance_ * model.y_scale_**2 == pytest.approx(25, rel=0.3)
    ends = mean - 1.96 * std, mean + 1.96 * std
    assert 0.93 < interval_coverage(50 * y_new + 300, *ends) < 0.97
    assert model.loss_curve_ == []  # the evidence of all rows needs no near rows


@pytest.mark.full  # a claim of accuracy
def test_losses_of_near_rows_fall(tune):
    work = evaluation_work(30, 2, 1)  # near rows know more than so few
    tune(evidence_work=work, part_work=work)
    X, y = data(1000)
    model = Regressor(random_state=0).fit(X, y + np.sin(16.0 * X[:, 1]))
    assert np.mean(model.loss_curve_[-20:]) < np.mean(model.loss_curve_[:20])


def test_outputs_share_the_kernel_but_not_the_noise():
    X, y = data(400)
    Y = np.stack([y, 10 * y + np.random.default_rng(2).normal(size=400) * 5], axis=1)
    model = Regressor(random_state=0).fit(X, Y)
    assert model.noise_variance_.shape == model.y_mean_.shape == (2,)
    assert model.noise_variance_[1] > 3 * model.noise_variance_[0]
    assert_finite(model, X, Y)
    assert model.score(X, Y) > 0.7


def test_normalize_y_false_leaves_y_unscaled(few_steps):
    X, y = data()
    model = Regressor(normalize_y=False, random_state=0).fit(X, y + 3)
    assert model.y_mean_ == 0.0
    assert model.y_scale_ == 1.0
    np.testing.assert_array_equal(model.y_train_, y + 3)


def test_given_kernel_is_copied_and_learned(few_steps):
    X, y = data()
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0)
    model = Regressor(kernel, random_state=0).fit(X, y)
    assert kernel == ConstantKernel(2.0, "fixed") * RBF(1.0)
    assert model.kernel_.k1.constant_value == 2.0
    assert model.kernel_.k2.length_scale != 1.0


# --- weights --------------------------------------------------------------------------


def test_rows_of_small_weight_are_trusted_less(few_steps):
    X, y = data()
    y[0] = 20.0
    light = Regressor(random_state=0).fit(X, y, np.r_[1e-6, np.ones(59)])
    heavy = Regressor(random_state=0).fit(X, y, np.r_[1e3, np.ones(59)])
    assert light.predict(X[:1])[0] < 3.0
    assert heavy.predict(X[:1])[0] > 15.0


def test_weights_act_like_repetition(rng):
    # The fits differ: while learning, a repeated row has its copies as neighbours.
    X, y = data(400)
    weight = rng.integers(1, 3, size=400)
    rows = np.repeat(np.arange(400), weight)
    weighted = Regressor(random_state=0).fit(X, y, sample_weight=weight)
    repeated = Regressor(random_state=0).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.y_mean_, repeated.y_mean_)
    np.testing.assert_allclose(weighted.y_scale_, repeated.y_scale_)
    X_new, _ = data(seed=1)
    first, second = weighted.predict(X_new), repeated.predict(X_new)
    assert (
        np.sqrt(np.mean((first - second) ** 2)) < 0.1
    )  # standard deviation of the noise


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_a_common_factor_of_the_weights_changes_nothing(few_steps, factor, rng):
    X, y = data()
    weight = rng.uniform(0.5, 2.0, size=60)
    one = Regressor(random_state=0).fit(X, y, weight)
    other = Regressor(random_state=0).fit(X, y, factor * weight)
    for first, second in zip(*(m.predict(X, True) for m in (one, other)), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)


# --- what stays the same --------------------------------------------------------------


def test_rows_are_predicted_independently_and_without_side_effects(few_steps):
    X, y = data()
    model = Regressor(random_state=0, n_neighbors=8).fit(X, y)
    before = state_of(model)
    together = model.predict(X, return_std=True)
    single = [model.predict(X[i : i + 1], return_std=True) for i in range(60)]
    np.testing.assert_array_equal(together, np.concatenate(single, axis=1))
    assert state_of(model) == before


def test_predictions_do_not_depend_on_the_block_size(few_steps, monkeypatch):
    X, y = data()
    model = Regressor(random_state=0).fit(X, y)
    expected = model.predict(X, return_std=True)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(model.predict(X, return_std=True), expected)


def test_training_data_are_copied(few_steps):
    X, y = data()
    model = Regressor(random_state=0).fit(X, y)
    expected = model.predict(X[:5])
    X_new = X[:5].copy()
    X[:], y[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.predict(X_new), expected)


@pytest.mark.slow  # compiles for float32
def test_float32_fits_are_close_to_float64(few_steps):
    X, y = data(200)
    double = Regressor(random_state=0).fit(X, y)
    single = Regressor(random_state=0, dtype="float32").fit(X, y)
    np.testing.assert_allclose(single.predict(X), double.predict(X), rtol=0, atol=0.02)


# --- awkward, but usable --------------------------------------------------------------


@pytest.mark.slow  # compiles for float32
def test_awkward_tables_in_float32(few_steps):
    """In float64 they are in `test_baselines`."""
    X, y = data()
    changes = {
        "constant column": np.c_[X, np.full(60, 3.3)],
        "only constant columns": np.full_like(X, 0.1),
        "zeros": np.zeros_like(X),
        "two different rows": X[np.arange(60) % 2],
        "around 1e8": X + 1e8,
        "columns of sizes 1e8 and 1e-8": X * [1e8, 1e-8],
        "one huge row": np.where(np.arange(60)[:, None] == 0, 1e10, X),
    }
    for changed in changes.values():
        model = Regressor(dtype="float32", random_state=0).fit(changed, y)
        assert_finite(model, changed, y)


AWKWARD_Y = {
    "zeros": np.zeros_like,
    "constant 1e8": lambda y: np.full_like(y, 1e8),
    "around 1e8": lambda y: y + 1e8,
    "without noise": lambda y: np.sin(np.arange(len(y))),
    "one outlier": lambda y: np.r_[1e6, y[1:]],
    "a constant beside it": lambda y: np.stack([y, np.ones_like(y)], axis=1),
}


@pytest.mark.parametrize("change", AWKWARD_Y.values(), ids=AWKWARD_Y)
def test_awkward_y(few_steps, change):
    X, y = data()
    y = change(y)
    model = Regressor(random_state=0).fit(X, y)
    assert_finite(model, X, y)
    if np.ptp(y) == 0:
        np.testing.assert_allclose(model.predict(X), y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(few_steps, n):
    X, y = data(n)
    for n_neighbors in (1, 64):
        model = Regressor(n_neighbors=n_neighbors, random_state=0).fit(X, y)
        assert_finite(model, X, y)
    if n == 1:
        assert model.loss_curve_ == []
        np.testing.assert_allclose(model.predict(X), y, atol=1e-6)


def test_weights_of_many_orders_of_magnitude(few_steps):
    X, y = data()
    weight = np.logspace(-6, 6, 60)
    assert_finite(Regressor(random_state=0).fit(X, y, weight), X, y)


@pytest.mark.parametrize("far", [1e20, 1e100, 1e200])
def test_predictions_far_from_the_data(few_steps, far):
    X, y = data()
    model = Regressor(random_state=0).fit(X, y)
    mean, std = model.predict([[far, -far], [far, 0.0]], return_std=True)
    np.testing.assert_allclose(mean, model.y_mean_)
    prior = model.kernel_.k1.constant_value + model.noise_variance_
    np.testing.assert_allclose(std, np.sqrt(prior) * model.y_scale_)


# --- unusable -------------------------------------------------------------------------


BAD_PARAMETERS = {
    "n_neighbors": [0, -1, 1.5, True, "a", None],
    "neighbor_search": ["unknown", "auto", None],
    "initial_noise": [0.0, -1.0, "a", np.nan, np.inf],
    "normalize_y": ["yes"],
    "n_jobs": [0, 1.5, "a"],
    "dtype": ["float16", int],
    "random_state": ["a", -1],
}


def test_unusable_parameters_are_refused_by_fit_and_predict(few_steps):
    X, y = data()
    fitted = Regressor(random_state=0).fit(X, y)
    for name, values in BAD_PARAMETERS.items():
        for value in values:
            model = Regressor(**{name: value})
            with pytest.raises(ValueError, match=name):
                model.fit(X, y)
            assert not [name for name in vars(model) if name.endswith("_")]
        with pytest.raises(ValueError, match=f"The '{name}' parameter of"):
            clone_with(fitted, name, values[-1]).predict(X)


@pytest.mark.parametrize("size", [1e155, 1e-160])
def test_units_of_X_beyond_floating_point(size):
    X, y = data()
    with pytest.raises(ValueError, match="feature 0 of X has a spread of"):
        Regressor().fit(size * X, y)


def test_failed_fit_keeps_the_earlier_model(few_steps, monkeypatch):
    X, y = data()
    model = Regressor(random_state=0).fit(X, y)
    before = state_of(model)

    def failing(*args, **options):
        raise FloatingPointError(neighbor_likelihood.NOT_FINITE)

    monkeypatch.setattr(nearest, "learn_kernel", failing)
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        model.fit(X + 1, 5 * y)
    assert state_of(model) == before


def test_prediction_with_nan_noise_raises(few_steps):
    X, y = data()
    model = Regressor(random_state=0).fit(X, y)
    model.noise_variance_ = np.nan
    with pytest.raises(FloatingPointError, match="check kernel_ and noise_variance_"):
        model.predict(X)
