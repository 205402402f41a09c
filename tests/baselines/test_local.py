"""Experts are Gaussian processes on the rows around their places."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp._compiled import threads
from skswsgp.baselines import LocalGPRegressor, NearestNeighborGPRegressor
from skswsgp.metrics import mean_negative_log_density

pytestmark = pytest.mark.usefixtures("few_steps")
KERNEL = ConstantKernel(1.3, "fixed") * RBF([0.7, 1.5], "fixed")
MODES = pytest.mark.parametrize("mode", ["inductive", "transductive"])


@pytest.fixture
def table(rng):
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=80)


@MODES
@pytest.mark.parametrize("Q", [1, 2])
def test_an_expert_of_all_rows_is_the_exact_process(mode, Q, table, rng):
    X, y = table
    y = y if Q == 1 else np.stack([y, 7.0 * X[:, 0] ** 2 + rng.normal(size=80)], axis=1)
    how = {"n_experts": 1, "n_neighbors": 1000, "mode": mode, "random_state": 0}
    model = LocalGPRegressor(KERNEL, **how).fit(X, y)
    assert model.expert_rows_.shape == (1, 80)
    X_new = rng.uniform(-3.0, 3.0, size=(9, 2))
    mean, std = model.predict(X_new, return_std=True)
    noises, targets = model.noise_variances_.reshape(-1), model.y_train_.reshape(80, -1)
    for q, noise in enumerate(noises):
        exact = GaussianProcessRegressor(KERNEL, alpha=noise, optimizer=None)
        exact.fit(X, targets[:, q])
        mu, deviation = exact.predict(X_new, return_std=True)
        scale, middle = np.ravel(model.y_scale_)[q], np.ravel(model.y_mean_)[q]
        ours = mean.reshape(9, -1)[:, q], std.reshape(9, -1)[:, q]
        np.testing.assert_allclose(ours[0], middle + scale * mu, rtol=0, atol=1e-6)
        expected = scale * np.sqrt(deviation**2 + noise)
        np.testing.assert_allclose(ours[1], expected, rtol=0, atol=1e-6)


def test_one_transductive_expert_is_the_process_on_near_rows(table):
    X, y = table
    how = {"n_neighbors": 12, "random_state": 0}
    local = LocalGPRegressor(KERNEL, n_experts=1, mode="transductive", **how).fit(X, y)
    near = NearestNeighborGPRegressor(KERNEL, **how).fit(X, y)
    near.noise_variance_ = local.noise_variances_[0]
    for one, other in zip(local.predict(X, True), near.predict(X, True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_inductive_experts_know_their_nearest_rows_only(table):
    X, y = table
    how = {"n_experts": 5, "n_neighbors": 10, "random_state": 0}
    model = LocalGPRegressor(KERNEL, **how).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for x, mu, s in zip(X, mean, std, strict=True):
        place = np.linalg.norm((model.centers_ - x) / model.X_scale_, axis=1).argmin()
        gap = np.linalg.norm((X - model.centers_[place]) / model.X_scale_, axis=1)
        rows, noise = np.argsort(gap)[:10], model.noise_variances_[place]
        assert set(rows) == set(model.expert_rows_[place])
        exact = GaussianProcessRegressor(KERNEL, alpha=noise, optimizer=None)
        exact.fit(X[rows], model.y_train_[rows])
        found = exact.predict(x[None], return_std=True)
        assert mu == pytest.approx(
            model.y_mean_ + model.y_scale_ * found[0][0], abs=1e-6
        )
        expected = model.y_scale_ * np.sqrt(found[1][0] ** 2 + noise)
        assert s == pytest.approx(expected, abs=1e-6)


@MODES
def test_rows_are_predicted_independently(mode, table, monkeypatch):
    X, y = table
    how = {"n_experts": 6, "n_neighbors": 8, "mode": mode, "random_state": 0}
    model = LocalGPRegressor(**how).fit(X, y)
    together = model.predict(X, return_std=True)
    single = [model.predict(x[None], return_std=True) for x in X]
    np.testing.assert_array_equal(together, np.concatenate(single, axis=1))
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(model.predict(X, return_std=True), together)


def test_each_expert_learns_its_own_noise():
    rng = np.random.default_rng(0)
    X = np.r_[rng.uniform(0, 1, size=(300, 1)), rng.uniform(9, 10, size=(300, 1))]
    spread = np.where(X[:, 0] < 5, 0.05, 0.8)
    y = np.sin(3 * X[:, 0]) + spread * rng.normal(size=600)
    how = {"n_experts": 2, "n_neighbors": 300, "random_state": 0}
    model = LocalGPRegressor(**how).fit(X, y)
    order = model.centers_[:, 0].argsort()
    deviation = np.sqrt(model.noise_variances_[order]) * model.y_scale_
    np.testing.assert_allclose(deviation, [0.05, 0.8], rtol=0.2)
    assert model.score(X[:300], y[:300]) > 0.95


@MODES
def test_an_expert_of_equal_targets_takes_the_median_noise_of_others(mode):
    how = {"n_experts": 12, "n_neighbors": 30, "mode": mode, "random_state": 0}
    densities = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, size=(1200, 2))
        y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=1200)
        y = np.stack([np.minimum(y, 0.5), y], axis=1)
        model = LocalGPRegressor(**how).fit(X[:600], y[:600])
        noise = model.noise_variances_
        same = np.ptp(model.y_train_[model.expert_rows_, 0], axis=1) == 0.0
        assert 0 < same.sum() < 12
        np.testing.assert_array_equal(noise[same, 0], np.median(noise[~same, 0]))
        assert len(np.unique(noise[:, 1])) == 12
        mean, std = model.predict(X[600:], return_std=True)
        density = mean_negative_log_density(y[600:, 0], mean[:, 0], std[:, 0])
        densities.append(density)
    assert np.mean(densities) < -0.5
    constant = LocalGPRegressor(**how).fit(X[:100], np.ones(100))
    assert np.isfinite(constant.predict(X, return_std=True)).all()


def test_numbers_are_cut_to_what_there_is(rng):
    X = np.repeat(rng.normal(size=(3, 2)), 4, axis=0)
    model = LocalGPRegressor(random_state=0).fit(X, rng.normal(size=12))
    assert model.centers_.shape == (3, 2)
    assert model.expert_rows_.shape == (3, 12)


@pytest.mark.parametrize("far", [1e20, 1e200])
def test_predictions_far_from_the_data_are_the_prior(far, table):
    model = LocalGPRegressor(KERNEL, n_experts=3, random_state=0).fit(*table)
    mean, std = model.predict([[far, -far]], return_std=True)
    assert mean[0] == pytest.approx(model.y_mean_)
    prior = 1.3 + model.noise_variances_
    assert np.isclose(std[0], np.sqrt(prior) * model.y_scale_).any()


@pytest.mark.slow  # compiles for float32
def test_float32_predictions_are_close_to_those_of_float64(table):
    X, y = table
    how = {"n_experts": 4, "n_neighbors": 30, "random_state": 0}
    double = LocalGPRegressor(**how).fit(X, y)
    single = LocalGPRegressor(dtype="float32", **how).fit(X, y)
    np.testing.assert_allclose(single.predict(X), double.predict(X), rtol=0, atol=0.02)
    assert np.abs(single.predict(X) - double.predict(X)).max() > 0.0
