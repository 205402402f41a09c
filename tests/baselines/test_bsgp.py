"""BSGP: what its samples are, what predictions make of them, and what it refuses."""

import warnings

import joblib
import numpy as np
import pytest
import reference
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp.baselines import BSGPClassifier, BSGPRegressor
from skswsgp.baselines.inducing_posterior import BLOCKS, InducingPosterior
from skswsgp.metrics import interval_coverage

SHORT = {
    "adam_steps": 50,
    "burn_in": 50,
    "n_samples": 6,
    "spacing": 2,
    "random_state": 0,
}
SHORT |= {"n_inducing": 8}
KNOWN = ConstantKernel(1.5, "fixed") * RBF(0.8, "fixed")
pytestmark = pytest.mark.filterwarnings("ignore:split R-hat:")


def waves(n, seed=0):
    """Return X (n, 2), and y (n,): waves along one column, with noise of 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.full
def test_samples_predict_better_than_their_point_estimate():
    X, y = waves(300)
    X_new, y_new = waves(400, seed=1)
    how = {"n_inducing": 30, "random_state": 0}
    target = 7.0 * y + 300.0, 7.0 * y_new + 300.0
    point = BSGPRegressor(sample=(), **how).fit(X, target[0])
    model = BSGPRegressor(**how).fit(X, target[0])
    assert model.score(X_new, target[1]) > 0.95
    gain = model.log_predictive_density(X_new, target[1])
    gain -= point.log_predictive_density(X_new, target[1])
    assert gain.mean() > 0.01
    mean, std = model.predict(X_new, return_std=True)
    ends = mean - 1.96 * std, mean + 1.96 * std
    assert 0.9 < interval_coverage(target[1], *ends) < 0.99


def test_the_point_estimate_is_one_sample():
    X, y = waves(60)
    model = BSGPRegressor(**SHORT | {"sample": (), "adam_steps": 300}).fit(X, y)
    assert model.inducing_points_.shape == (1, 8, 2)
    assert len(model.energy_curve_) == 300
    assert model.energy_curve_[-1] < model.energy_curve_[0] - 0.3
    assert model.score(X, y) > 0.5
    assert np.isnan(model.r_hat_).all()


def test_every_row_an_inducing_point_and_a_known_kernel_give_the_exact_process():
    X, y = waves(25)
    model = BSGPRegressor(
        KNOWN, n_inducing=25, sample=("inducing_values",), adam_steps=0, burn_in=500,
        n_samples=1000, spacing=4, step_size=0.1, friction=0.2, initial_noise=0.1,
        normalize_y=False, random_state=0,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(
        model.inducing_points_, np.repeat(X[None], 1000, axis=0), rtol=1e-12
    )
    mean, covariance = reference.gp_posterior(KNOWN, X, y, 0.1)
    std = np.sqrt(np.diag(covariance))
    found = np.stack([mu[:, 0] for mu, _ in model._sampled(X)])
    # errors of a thousand draws that are not independent
    assert np.abs((found.mean(axis=0) - mean) / std).max() < 0.25
    assert np.abs(np.log(found.std(axis=0) / std)).max() < 0.2
    _, predicted = model.predict(X, return_std=True)
    np.testing.assert_allclose(predicted, np.sqrt(std**2 + 0.1), rtol=0.05)


@pytest.mark.full
def test_the_kernel_has_the_posterior_of_the_evidence():
    """Values are integrated out on a grid, and sampled by the chain."""
    rng, noise = np.random.default_rng(0), 1.0
    X = np.linspace(-2.0, 2.0, 10)[:, None]
    y = 3.0 * np.sin(4.0 * X[:, 0]) + rng.normal(size=10)
    model = BSGPRegressor(
        ConstantKernel(1.0) * RBF(1.0), n_inducing=10, initial_noise=noise,
        sample=("inducing_values", "kernel"), adam_steps=0, burn_in=1000,
        n_samples=3000, spacing=4, step_size=0.15, friction=0.1, normalize_y=False,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    grid = np.linspace(-4.0, 4.0, 61)
    theta = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = norm.logpdf(theta).sum(axis=1)
    for k, (log_variance, log_length) in enumerate(theta):
        K = np.exp(log_variance - 0.5 * (X - X.T) ** 2 * np.exp(-2.0 * log_length))
        L = np.linalg.cholesky(K + noise * np.eye(10))
        half = np.linalg.solve(L, y)
        logs[k] -= 0.5 * half @ half + np.log(np.diag(L)).sum()
    p = np.exp(logs - logs.max())
    p /= p.sum()
    mean = p @ theta
    std = np.sqrt(p @ (theta - mean) ** 2)
    assert (np.abs(mean) > 0.5).all()  # the rows say something that the prior does not
    found = model.kernel_theta_
    assert (np.abs(found.mean(axis=0) - mean) < 0.2 * std).all()
    assert (np.abs(np.log(found.std(axis=0) / std)) < 0.2).all()
    assert (model.r_hat_ < 1.1).all() and model.r_hat_.shape == (2,)


@pytest.mark.full  # a claim of accuracy
def test_minibatches_end_where_all_rows_do():
    X, y = waves(120)
    how = {"burn_in": 500, "n_samples": 200, "spacing": 10, "n_inducing": 10}
    how |= {"sample": ("inducing_values",), "adam_steps": 0, "random_state": 0}
    how |= {"step_size": 0.05, "friction": 0.2}
    kernel = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed")
    (mean, std), (other, other_std) = (
        BSGPRegressor(kernel, batch_size=size, **how).fit(X, y).predict(X, True)
        for size in (40, 120)
    )
    assert np.sqrt(np.mean((mean - other) ** 2)) < 0.1 * std.mean()
    np.testing.assert_allclose(std, other_std, rtol=0.1)


def test_only_what_is_sampled_varies():
    X, y = waves(60)
    names = "inducing_values_", "inducing_points_", "kernel_theta_", "noise_variances_"
    for block, name in zip(BLOCKS, names, strict=True):
        model = BSGPRegressor(sample=(block,), **SHORT).fit(X, y)
        for each in names:
            spread = np.ptp(getattr(model, each), axis=0).max()
            assert (spread > 1e-6) == (each == name), (block, each)
    model = BSGPRegressor(ConstantKernel(1.0) * RBF(1.0, "fixed"), **SHORT).fit(X, y)
    assert model.kernel_theta_.shape == (6, 1) and model.kernel_.k2.length_scale == 1.0


def test_samples_are_numbers_of_the_units_of_X_and_y():
    X, y = waves(60)
    model = BSGPRegressor(**SHORT, n_chains=2).fit(X * [1.0, 1e4] + [0.0, 3e5], y)
    assert model.inducing_points_.shape == (12, 8, 2)
    assert model.inducing_values_.shape == (12, 8)
    assert model.noise_variances_.shape == (12,)
    assert len(model.energy_curve_) == 50 + 2 * (50 + 6 * 2)
    spread = model.inducing_points_.std(axis=(0, 1))
    np.testing.assert_allclose(spread, [1.0, 1e4], rtol=0.5)
    np.testing.assert_allclose(
        model.inducing_points_.mean(axis=(0, 1)), [0.0, 3e5], atol=1e4
    )
    other = BSGPRegressor(**SHORT).fit(X, np.stack([y, -3.0 * y], axis=1))
    assert other.inducing_values_.shape == (6, 8, 2)
    assert other.noise_variances_.shape == (6, 2)
    assert other.log_predictive_density(X, np.stack([y, y], axis=1)).shape == (60, 2)


def test_the_density_of_observations_has_the_moments_and_quantiles_of_predictions():
    X, y = waves(60)
    model = BSGPRegressor(**SHORT).fit(X, 20.0 * y + 5.0)
    grid = np.linspace(-200.0, 200.0, 20_001)
    for x in X[:3]:
        density = np.exp(model.log_predictive_density(np.tile(x, (len(grid), 1)), grid))
        step = grid[1] - grid[0]
        assert density.sum() * step == pytest.approx(1.0, rel=1e-6)
        mean = grid @ density * step
        std = np.sqrt((grid - mean) ** 2 @ density * step)
        found = np.ravel(model.predict(x[None], return_std=True))
        np.testing.assert_allclose(found, [mean, std], rtol=1e-5)
        below = np.cumsum(density) * step  # up to the middles between points
        for level in (0.02, 0.3, 0.9):
            (quantile,) = model.predict(x[None], quantiles=level)
            found = np.interp(quantile, grid + 0.5 * step, below)
            assert found == pytest.approx(level, abs=1e-5)


def test_weights_act_like_repetition():
    X, y = waves(30)
    weight = np.random.default_rng(0).integers(1, 3, size=30).astype(float)
    rows = np.repeat(np.arange(30), weight.astype(int))
    how = SHORT | {"n_inducing": 100}
    one = BSGPRegressor(**how).fit(X, y, sample_weight=weight)
    other = BSGPRegressor(**how).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-6)
    more = BSGPRegressor(**how).fit(X, y, sample_weight=8.0 * weight)
    np.testing.assert_allclose(more.predict(X), one.predict(X), rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(n_classes):
    X, y = waves(400)
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.0, 0.7][: n_classes - 1])]
    how = SHORT | {"n_inducing": 20, "adam_steps": 300, "batch_size": 100}
    model = BSGPClassifier(**how).fit(X[:300], labels[:300])
    proba = model.predict_proba(X[300:])
    assert proba.shape == (100, n_classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert model.score(X[300:], labels[300:]) > 0.8
    bound = BSGPClassifier(objective="vfe", **how).fit(X[:300], labels[:300])
    assert bound.score(X[300:], labels[300:]) > 0.8
    assert np.abs(bound.predict_proba(X[300:]) - proba).max() > 1e-3


@pytest.mark.filterwarnings("default:split R-hat:")
def test_chains_that_do_not_agree_warn():
    X, y = waves(60)
    with pytest.warns(ConvergenceWarning, match="raise burn_in or spacing"):
        model = BSGPRegressor(**SHORT | {"spacing": 1}).fit(X, y)
    assert model.r_hat_.shape == (4,) and model.r_hat_.max() > 1.2


def interrupt_at(monkeypatch, call):
    """Let Ctrl-C come at a call of `slope`."""
    slope, calls = InducingPosterior.slope, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return slope(self, *args)

    monkeypatch.setattr(InducingPosterior, "slope", interrupted)


def test_an_interruption_keeps_the_samples_so_far(monkeypatch):
    X, y = waves(60)
    interrupt_at(monkeypatch, 50 + 50 + 2 * 4 + 2)  # before the fifth sample
    with pytest.warns(UserWarning, match="interrupted: the 4 samples"):
        model = BSGPRegressor(**SHORT).fit(X, y)
    assert len(model.inducing_points_) == 4
    assert np.isfinite(model.predict(X)).all()


def test_an_interruption_without_samples_keeps_the_earlier_model(monkeypatch):
    X, y = waves(60)
    model = BSGPRegressor(**SHORT).fit(X, y)
    before = joblib.hash(vars(model))
    interrupt_at(monkeypatch, 101)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert joblib.hash(vars(model)) == before


def test_a_chain_that_diverges_says_so_and_keeps_the_earlier_model():
    X, y = waves(60)
    model = BSGPRegressor(**SHORT).fit(X, y)
    before = joblib.hash(vars(model))
    model.set_params(step_size=1e6)
    with pytest.raises(FloatingPointError, match="lower step_size"):
        model.fit(X, y)
    model.set_params(step_size=0.01)
    assert joblib.hash(vars(model)) == before


def test_unusable_parameters():
    cases = [
        (
            {"prior": "strauss"},
            "expected 'normal', 'dpp' or 'uniform'.*gradient of zero",
        ),
        ({"sample": "kernel"}, "sample='kernel': expected a tuple of names"),
        ({"sample": ("kernel", "weights")}, "'weights'.*inducing_values"),
        ({"sample": 3}, "sample=3: expected a tuple"),
        ({"friction": 1.0}, "'friction' parameter"),
        ({"burn_in": -1}, "'burn_in' parameter"),
    ]
    for params, match in cases:
        with pytest.raises(ValueError, match=match):
            BSGPRegressor(**params).fit(*waves(20))


def test_classes_have_no_noise_to_sample():
    X, y = waves(20)
    with pytest.raises(ValueError, match="expected a tuple of names"):
        BSGPClassifier(sample=("noise",)).fit(X, y > 0.0)


@pytest.mark.parametrize("prior", ["dpp", "uniform"])
def test_other_priors_of_points(prior):
    X, y = waves(60)
    model = BSGPRegressor(prior=prior, **SHORT).fit(X, y)
    usual = BSGPRegressor(**SHORT).fit(X, y)
    assert np.abs(model.inducing_points_ - usual.inducing_points_).max() > 1e-4
    assert np.isfinite(model.predict(X)).all()


def test_observations_of_another_shape_are_refused():
    X, y = waves(60)
    model = BSGPRegressor(**SHORT).fit(X, y)
    with pytest.raises(ValueError, match="y has shape"):
        model.log_predictive_density(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.log_predictive_density(X, y[:-1])


def test_short_chains_do_not_warn():
    X, y = waves(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BSGPRegressor(**SHORT | {"n_samples": 1}).fit(X, y)
