"""Predictions and bounds of SWSGPRegressor."""

import numpy as np
import pytest
import reference
from helpers import ADAM, make
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    WhiteKernel,
)
from small_models import (
    JITTER,
    KERNELS,
    as_reference,
    small_data,
    small_model,
    state_of,
    unfitted,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(  # each pair of the three
    ("full", "Q", "H"), [(False, 1, 3), (False, 2, 7), (True, 1, 7), (True, 2, 3)]
)
def test_predictions_and_bound_equal_the_reference(full, Q, H, kernel, rng):
    model = unfitted(kernel, Q=Q, full=full, H=H)
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
    # Rounding times the condition number of K, which is at most 1e6.
    np.testing.assert_allclose(mean, expected.reshape(y.shape), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(std, expected_std.reshape(y.shape), rtol=1e-8)
    common = kernel, X, targets, Z, m, S, H, "gaussian", noise, JITTER
    assert bound == pytest.approx(reference.lower_bound(*common), rel=1e-8)
    expected_bound = reference.lower_bound(*common, sample_weight=weight)
    assert weighted == pytest.approx(expected_bound, rel=1e-8)


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_exact_posterior_gives_the_predictions_of_scikit_learn(rng, noise):
    kernel = ConstantKernel(1.5) * Matern([0.7, 1.2], nu=1.5)
    X, X_new = rng.uniform(-2, 2, size=(15, 2)), rng.uniform(-2, 2, size=(20, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    model = unfitted(kernel, M=15, H=15)
    mean, covariance = reference.gp_posterior(kernel, X, y, noise)
    model.inducing_points_, model.inducing_mean_ = X, mean
    model.inducing_covariance_ = np.linalg.cholesky(covariance)
    model.noise_variance_, model.y_mean_, model.y_scale_ = noise, 0.0, 1.0
    model._jitter = 1e-7
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=noise).fit(X, y)
    expected, expected_std = exact.predict(X_new, return_std=True)

    actual, std = model.predict(X_new, return_std=True)

    # The jitter on K is 1.5e-7, the noise variance 0.05 or more.
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_allclose(std**2 - noise, expected_std**2, atol=1e-5)


def test_training_approaches_the_exact_gaussian_process(rng):
    X = np.sort(rng.uniform(0, 6, size=(50, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=50)
    X_new = np.linspace(0.2, 5.8, 30)[:, None]
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)
    expected, expected_std = exact.predict(X_new, return_std=True)

    model = make(
        SWSGPRegressor,
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

    assert (
        np.abs(mean - expected).max() < 0.05
    )  # half the standard deviation of the noise
    np.testing.assert_allclose(std, expected_std, rtol=0.2)


@pytest.mark.parametrize("settings", [{}, ADAM], ids=["default", "adam"])
def test_defaults_learn_a_smooth_curve(rng, settings):
    X = np.sort(rng.uniform(0, 6, size=(50, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=50)
    model = make(SWSGPRegressor, random_state=0, **settings).fit(X, y)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("H", [1, 6, 7])
def test_n_neighbors_of_predict_overrides_the_fitted_value(H, rng):
    X = rng.normal(size=(9, 2))
    model, other = unfitted(KERNELS["matern"]), unfitted(KERNELS["matern"], H=H)
    actual = model.predict(X, return_std=True, n_neighbors=H)
    np.testing.assert_array_equal(actual, other.predict(X, return_std=True))
    assert not np.allclose(actual[0], model.predict(X))


def test_n_neighbors_of_predict_is_capped_at_M(rng):
    X, model = rng.normal(size=(9, 2)), unfitted(KERNELS["matern"])
    actual = model.predict(X, n_neighbors=100)
    np.testing.assert_array_equal(actual, model.predict(X, n_neighbors=7))


def test_std_includes_noise_in_the_units_of_y(rng):
    X, model = rng.normal(size=(9, 2)), unfitted(KERNELS["matern"])
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X), rtol=1e-12)
    assert np.all(std > np.sqrt(model.noise_variance_) * model.y_scale_)
    far = model.predict([[1e3, 1e3]], return_std=True)
    prior = np.sqrt(1.7 + model.noise_variance_) * model.y_scale_
    np.testing.assert_allclose(far, [[model.y_mean_], [prior]], rtol=1e-9)


@pytest.mark.parametrize("H", [3, 7])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_single_rows_and_batches_get_the_same_predictions(kernel, H, rng):
    X, model = rng.normal(size=(9, 2)), unfitted(kernel, H=H, full=True)
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


def test_predictions_do_not_depend_on_the_block_size(monkeypatch, rng):
    X, model = rng.normal(size=(25, 2)), unfitted(KERNELS["matern"])
    y = rng.normal(size=25)
    whole, bound = model.predict(X), model.lower_bound(X, y)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(model.predict(X), whole, rtol=1e-10)
    assert model.lower_bound(X, y) == pytest.approx(bound, rel=1e-10)


@pytest.mark.parametrize("n", [300, pytest.param(900, marks=pytest.mark.full)])
def test_intervals_of_the_function_cover_it_for_few_rows(n):
    covered = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, size=(n, 1))
        f = np.sin(3 * X[:, 0])
        y = f + 0.3 * rng.normal(size=n)
        model = SWSGPRegressor(random_state=0).fit(X, y)
        mean, variance = model.latent_mean_and_variance(X)
        covered.append(np.mean(np.abs(mean - f) < 1.96 * np.sqrt(variance)))
    assert np.mean(covered) > 0.85


def directions_of(description):
    """Return the lines on directions, from their title on."""
    lines = description.splitlines()
    return lines[next(i for i, line in enumerate(lines) if "per spread" in line) :]


def test_a_description_names_the_directions_of_a_kernel():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(500, 3)) * [1.0, 10.0, 1.0], columns=[*"abc"])
    kernel = RBF([0.5, 20.0, 4.0])
    model = SWSGPRegressor(kernel, learn_kernel=False).fit(X, X["a"])
    title, *lines = directions_of(model.describe())
    assert title.startswith("length-scales per spread (the more, the more it matters)")
    steps, columns = zip(*(line.split(maxsplit=1) for line in lines), strict=True)
    assert columns == ("+1.00 a", "+1.00 b", "+1.00 c")
    assert_allclose([float(step) for step in steps], [2.0, 0.5, 0.25], rtol=0.1)
    *_, last = model.describe(1).splitlines()
    assert last.startswith("and 2 more of at most 0.")
    assert float(last.split()[-1]) == pytest.approx(float(steps[1]), rel=1e-2)
    assert len(directions_of(model.describe(3))) == 4

    half = np.sqrt(0.5)
    turn = np.array([[half, half, 0.0], [half, -half, 0.0], [0.0, 0.0, 1.0]])
    model.linear_map_ = np.diag([1.0, 0.1, 1.0]) @ turn
    model.kernel_ = RBF([0.5, 20.0, 1e6])
    step, parts = directions_of(model.describe(1))[1].split(maxsplit=1)
    assert float(step) == pytest.approx(2.0, rel=0.1)
    parts = parts.split()
    assert sorted(parts[1::2]) == ["a", "b"]
    assert_allclose([float(part) for part in parts[::2]], half, atol=0.05)


def test_a_description_of_an_array_numbers_its_columns():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SWSGPClassifier(random_state=0).fit(X, X[:, 1] > 0.0)
    assert "+1.00 x1" in model.describe(1)
