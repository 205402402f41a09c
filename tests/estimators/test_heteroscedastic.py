"""likelihood="heteroscedastic": noise that a process of its own describes."""

import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp._estimators.base import GivenRows
from skswsgp.noise.process import NoiseModel, relative_squares


def wave(n=500, seed=0):
    """Return X (n, 2), y, the function and the deviations, of 1 to 11, of the noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * np.cos(X.sum(axis=1))
    std = np.exp(-1.5 + 1.2 * np.sin(2.0 * X[:, 1]))
    return X, f + std * rng.standard_normal(n), f, std


def regressor(**options):
    options = {"likelihood": "heteroscedastic", "random_state": 0} | options
    return make(SWSGPRegressor, **options)


@pytest.fixture(scope="module")
def fitted():
    X, y, _, _ = wave(130)
    return regressor().fit(X, y)


def test_means_of_the_noise_come_from_all_rows_beyond_dense_matrices(tune):
    tune(dense_rows=20, variance_neighbors=8)
    X, y, _, std = wave(60)
    model = regressor().fit(X, y)
    assert hasattr(model.noise_model_, "alpha_")
    assert np.corrcoef(np.log(model.noise_std(X)), np.log(std))[0, 1] > 0.3


class GivenNoise:
    """Stands in for a `NoiseModel`, with a factor exp(2 x_0) and no uncertainty."""

    unit_ = 1.0

    def relative_variance(self, X):
        return self.training_ratio(X) / self.unit_

    def training_ratio(self, X):
        return np.exp(2.0 * X[:, 0])


# ---------------------------------------------------------------- the model


def test_predictions_equal_those_of_scikit_learn_for_given_noise():
    X, y, _, _ = wave(150)
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.8, "fixed")
    model = regressor(
        kernel=kernel, normalize_y=False, covariance="full", n_neighbors=150,
        predictive="gaussian",
    )  # fmt: skip
    model._fit(GivenRows(X, y), noise=GivenNoise())
    new = wave(40, seed=1)[0]
    factor, usual = np.exp(2.0 * X[:, 0]), model.noise_model_.unit_
    assert_allclose(usual, 1.0 / np.mean(1.0 / factor))
    alpha = model.noise_variance_ * factor / usual
    exact = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(X, y)
    mean, std = exact.predict(new, return_std=True)
    found, deviation = model.predict(new, return_std=True)
    assert_allclose(found, mean, atol=1e-3)
    noise = model.noise_variance_ * np.exp(2.0 * new[:, 0]) / usual
    assert_allclose(deviation, np.sqrt(std**2 + noise), rtol=1e-3)
    rows = model.leave_one_out_
    inverse = np.linalg.inv(kernel(X) + np.diag(alpha))
    expected = (inverse @ y) / np.diag(inverse)
    assert_allclose(rows.residual, expected, atol=1e-2)
    assert_allclose(rows.std, np.diag(inverse) ** -0.5, rtol=1e-2)


def test_process_of_the_noise_is_the_optimum_of_its_bound():
    """Takes natural-gradient steps for a dense q(log p) until they stay."""
    X, rng = np.linspace(0.0, 3.0, 40)[:, None], np.random.default_rng(0)
    squares = np.exp(X) * rng.standard_normal((40, 2)) ** 2
    kernel = ConstantKernel(1.5, "fixed") * RBF(1.0, "fixed")
    shared = regressor(kernel=kernel, n_neighbors=40, covariance="full")
    model = NoiseModel(shared.get_params(deep=False)).fit(X, squares)
    log_p = np.log(model.relative_variance(X)), np.log(model.training_ratio(X))
    K = kernel(X) + 1e-8 * np.eye(40)
    prior, total = model.prior_mean_, squares.sum(axis=1)
    mean, variance = np.full(40, prior), np.full(40, 1.5)
    weight, shifted = np.ones(40), np.zeros(40)
    for _ in range(500):
        rate = 0.5 * total * np.exp(mean + 0.5 * variance)
        weight += 0.3 * (rate - weight)
        shifted += 0.3 * (1.0 - rate + rate * (mean - prior) - shifted)
        B = np.linalg.inv(np.linalg.inv(K) + np.diag(weight))
        mean, variance = prior + B @ shifted, np.diag(B)
    assert_allclose(log_p[0], 0.5 * variance - mean, atol=0.02)
    assert_allclose(log_p[1], -0.5 * variance - mean, atol=0.02)


def test_squares_are_those_of_q_and_relative_to_noise_and_weights():
    X, y, _, _ = wave(200)
    weight = np.where(X[:, 0] > 0.0, 3.0, 1.0)
    targets = np.column_stack([y, 10.0 * y + 3.0])
    model = SWSGPRegressor(random_state=0, predictive="gaussian")
    model.fit(X, targets, weight)
    squares = relative_squares(model, X, targets, weight)
    mean, variance = model.latent_mean_and_variance(X)
    noise = model.noise_variance_ * model.y_scale_**2
    expected = ((targets - mean) ** 2 + variance) / noise
    assert_allclose(squares, expected * weight[:, None] / weight.mean(), rtol=1e-6)
    assert 0.8 < squares.mean() < 1.2  # E (y - f)^2 under q(f) is the noise


# ---------------------------------------------------------------- what it gains


@pytest.mark.full
def test_noise_is_found_and_the_function_profits():
    X, y, _, _ = wave()
    new, y_new, f, std = wave(1000, seed=1)
    fitted = regressor().fit(X, y)
    usual = SWSGPRegressor(random_state=0).fit(X, y)
    errors = [np.sqrt(np.mean((m.predict(new) - f) ** 2)) for m in (usual, fitted)]
    assert errors[1] < 0.85 * errors[0]
    densities = [m.log_predictive_density(new, y_new).mean() for m in (usual, fitted)]
    # widths of the other follow columns as well: 0.04, and 0.16 where they did not
    assert densities[1] > densities[0] + 0.03
    found = np.log(fitted.noise_std(new) / std)
    assert np.sqrt(np.mean(found**2)) < 0.25
    lower, upper = fitted.predict_interval(new)
    held = (lower < y_new) & (y_new < upper)
    for part in (std < np.median(std), std >= np.median(std)):
        assert 0.9 < held[part].mean() < 0.98


@pytest.mark.full
def test_constant_noise_costs_little():
    X, _, f, _ = wave()
    rng = np.random.default_rng(2)
    y = f + 0.3 * rng.standard_normal(len(f))
    new, _, f_new, _ = wave(1000, seed=1)
    y_new = f_new + 0.3 * rng.standard_normal(1000)
    models = SWSGPRegressor(random_state=0).fit(X, y), regressor().fit(X, y)
    densities = [m.log_predictive_density(new, y_new).mean() for m in models]
    assert densities[1] > densities[0] - 0.01
    found = [model.noise_std(new) for model in models]
    assert_allclose(found[1], found[0], rtol=0.12)


# ---------------------------------------------------------------- how it is used


def test_draws_have_the_noise_of_their_rows(fitted):
    new = np.array([[0.0, -0.8], [0.0, 0.8]])
    std = fitted.predict(new, return_std=True)[1]
    draws = fitted.sample_y(new, 1000)
    assert_allclose(draws.std(axis=1), std, rtol=0.08)
    assert std[1] > 3.0 * std[0]
    cov = fitted.predict(new, return_cov=True)[1]
    assert_allclose(np.sqrt(np.diag(cov)), std)


def test_known_noise_of_new_rows_replaces_the_learned_one(fitted):
    new, known = wave(5, seed=3)[0], np.full(5, 4.0)
    std = fitted.predict(new, return_std=True, noise_variance=known)[1]
    _, variance = fitted.latent_mean_and_variance(new)
    assert_allclose(std, np.sqrt(variance + 4.0), rtol=0.3)  # but for the law's factor


@pytest.mark.full  # a claim of accuracy
@pytest.mark.usefixtures("few_steps")
def test_outputs_share_the_factor_of_their_noise():
    X, y, _, std = wave(150)
    rng = np.random.default_rng(5)
    other = 100.0 * (X[:, 1] + std * rng.standard_normal(150))
    model = regressor().fit(X, np.column_stack([y, other]))
    new = np.array([[0.0, -0.8], [0.0, 0.8]])
    low, high = model.predict(new, return_std=True)[1]
    assert_array_equal(high > 3.0 * low, True)
    assert_allclose(high[1] / high[0], 100.0, rtol=0.5)


def test_weights_divide_the_noise():
    """Rows of four times the noise and a quarter of the weight: none varies then."""
    X, _, f, _ = wave(250)
    rng, left = np.random.default_rng(1), X[:, 0] < 0.0
    y = f + np.where(left, 0.8, 0.2) * rng.standard_normal(250)
    model = regressor().fit(X, y, sample_weight=np.where(left, 1.0, 16.0))
    found = model.noise_std(X)
    assert found.max() < 1.5 * found.min()


@pytest.mark.usefixtures("few_steps")
def test_rows_without_weight_do_not_count():
    X, y, _, _ = wave(120)
    extra = np.vstack([X, X[:20] + 0.01]), np.append(y, np.full(20, 1e3))
    weight = np.append(np.ones(120), np.zeros(20))
    full, part = regressor().fit(*extra, sample_weight=weight), regressor().fit(X, y)
    assert_allclose(full.predict(X), part.predict(X), rtol=1e-6, atol=1e-8)
    rows = full.leave_one_out_
    assert np.isfinite(rows.std).all()


@pytest.mark.full  # a claim of accuracy
def test_transformed_targets_have_noise_that_varies():
    X, y, _, _ = wave(80)
    model = regressor(y_transform="log").fit(X, np.exp(y))
    plain = regressor().fit(X, y)
    new = wave(50, seed=1)[0]
    quantiles = model.predict(new, quantiles=[0.1, 0.9])
    expected = plain.predict(new, quantiles=[0.1, 0.9])
    assert_allclose(np.log(quantiles), expected, atol=1e-6)


@pytest.mark.full  # a claim of accuracy
@pytest.mark.usefixtures("few_steps")
def test_adam_learns_the_noise():
    X, y, _, _ = wave(300)
    steps = {"solver": "adam", "learning_rate": 0.05, "max_iter": 60}
    model = regressor(n_inducing=40, n_neighbors=8, **steps).fit(X, y)
    new = np.array([[0.0, -0.8], [0.0, 0.8]])
    low, high = model.predict(new, return_std=True)[1]
    assert high > 3.0 * low


@pytest.mark.slow  # compiles for float32
def test_float32():
    X, y, _, _ = wave(150)
    new = wave(50, seed=1)[0]
    single, double = (regressor(dtype=t).fit(X, y) for t in ("float32", "float64"))
    found, expected = (m.predict(new, return_std=True)[1] for m in (single, double))
    assert_allclose(found, expected, rtol=0.2)


def test_pickles_and_named_columns_predict_alike():
    pandas = pytest.importorskip("pandas")
    X, y, _, _ = wave(80)
    table = pandas.DataFrame(X, columns=["a", "b"])
    model = pickle.loads(pickle.dumps(regressor().fit(table, y)))
    new = wave(20, seed=1)[0]
    named = pandas.DataFrame(new, columns=["a", "b"])
    plain = regressor().fit(X, y)
    assert_array_equal(model.predict_interval(named), plain.predict_interval(new))


def test_another_fit_forgets_the_noise(fitted):
    X, y, _, _ = wave(100)
    model = pickle.loads(pickle.dumps(fitted)).set_params(likelihood="gaussian")
    with pytest.raises(ValueError, match="fitted with 'heteroscedastic'"):
        model.predict_interval(X)
    assert not hasattr(model.fit(X, y), "noise_model_")


def test_one_row_and_constant_targets():
    new = np.array([[0.5, 0.5]])
    one = regressor().fit([[0.0, 1.0]], [2.0])
    assert np.isfinite(one.predict(new, return_std=True)).all()
    X = wave(30)[0]
    flat = regressor().fit(X, np.ones(30))
    assert_allclose(flat.predict(X), 1.0)
    assert np.isfinite(flat.predict(X, return_std=True)[1]).all()


def test_a_warm_start_keeps_the_process_of_the_noise():
    X, y, f, std = wave(80)
    model = regressor(warm_start=True).fit(X, y)
    before = model.noise_std(X[:5])
    kept = model.noise_model_
    other = f + std[::-1] * np.random.default_rng(9).standard_normal(80)
    unit = kept.unit_
    model.fit(X[:40], other[:40])
    assert kept.unit_ == unit != model.noise_model_.unit_
    ratio = model.noise_std(X[:5]) / before
    assert_allclose(ratio, ratio[0])
    assert np.isfinite(model.leave_one_out_.std).all()


@pytest.mark.usefixtures("few_steps")
def test_held_out_rows_are_scored_with_their_noise():
    X, y, _, _ = wave(200)
    new, y_new, _, _ = wave(100, seed=1)
    steps = {"solver": "adam", "n_inducing": 40, "n_neighbors": 8, "max_iter": 3}
    model = regressor(predictive="gaussian", tol=0.0, **steps)
    model.fit(X, y, X_val=new, y_val=y_new)
    expected = model.log_predictive_density(new, y_new).mean()
    assert max(model.validation_scores_) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m, X, y: m.partial_fit(X, y), "partial_fit with likelihood="),
        (lambda m, X, y: m.lower_bound(X, y), "noise differs from row to row"),
        (
            lambda m, X, y: m.fit(X, y, noise_variance=y**2 + 1.0),
            "expected likelihood=",
        ),
        (lambda m, X, y: m.fit(X, y, exposure=y**2 + 1.0), "exposure came with"),
    ],
)
def test_what_does_not_go_together(fitted, use, message):
    X, y, _, _ = wave()
    with pytest.raises(ValueError, match=message):
        use(pickle.loads(pickle.dumps(fitted)), X, y)


def test_noise_std_is_in_the_units_of_y():
    X, y, _, _ = wave(100)
    model = SWSGPRegressor(random_state=0).fit(X, np.column_stack([y, 100.0 * y]))
    found = model.noise_std(X[:3])
    expected = np.sqrt(model.noise_variance_) * model.y_scale_
    assert_allclose(found, np.tile(expected, (3, 1)))
    counts = SWSGPRegressor(likelihood="poisson", random_state=0)
    counts.fit(X[:30], np.arange(30.0))
    with pytest.raises(ValueError, match="noise_std with likelihood='poisson'"):
        counts.noise_std(X)


def test_parameters_of_the_process_are_its_own():
    X, y, _, _ = wave(40)
    rng = np.random.RandomState(0)
    model = regressor(random_state=rng, n_inducing=20).fit(X, y)
    inner = model.noise_model_
    assert inner.n_inducing == 20 and "predictive" not in inner.parameters
    assert isinstance(inner.random_state, int)
