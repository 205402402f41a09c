"""Evaluation and kriging compared with the engine of the CPU."""

import numpy as np
import pytest
from cuda_problems import (
    KERNELS,
    LIKELIHOODS,
    check_evaluation,
    check_kriging,
    problem_of,
)

from skswsgp.cuda.engine import CudaEngine

# slow: bodies are compiled for the host
pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.slow]


@pytest.mark.matrix
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_evaluation(likelihood, full):
    check_evaluation(problem_of("matern52-ard", likelihood, full=full))


@pytest.mark.full
def test_evaluation_in_float32():
    check_evaluation(problem_of("rbf-white", "gaussian-2", dtype="float32"))


def test_evaluation_takes_parts_that_fit(device, monkeypatch):
    problem, sizes = problem_of("rbf-white", "gaussian-2", full=True), []
    send = device.send

    def noted(array):
        sizes.append(len(array))
        return send(array)

    monkeypatch.setattr(device, "free_memory", lambda: 1e6)
    engine = CudaEngine(problem.model, problem.batch.active.shape[1], 1)
    engine.send_model()
    monkeypatch.setattr(device, "send", noted)
    engine.predict(problem.batch.X, problem.batch.active, True)
    assert max(sizes) < len(problem.batch.X)
    check_evaluation(problem)


@pytest.mark.parametrize("n_draws", [3, 12])
def test_variances_from_draws(n_draws):
    problem = problem_of("matern52-ard", "gaussian-2", full=True)
    X, active = problem.batch.X, problem.batch.active
    draws = np.random.default_rng(1).normal(size=(2, len(problem.model.Z), n_draws))
    run = CudaEngine(problem.model._replace(L=draws), active.shape[1], 1)
    v = run.predict(X, active, with_variance=True)[1]
    a, F = run.conditional_weights(X, active)
    V = np.sum(np.einsum("nh,qnhs->nqs", a, draws[:, active]) ** 2, axis=2)
    np.testing.assert_allclose(v, F[:, None] + V, rtol=1e-9)


def test_extra_jitter_and_failures_are_counted():
    problem = problem_of("matern52-ard", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    Z = np.repeat(problem.model.Z[:1], len(problem.model.Z), axis=0)
    run = CudaEngine(problem.replace(Z=Z, jitter=1e-18).model, active.shape[1], 1)
    run.predict(X, active, with_variance=True)
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [len(X), 0])
    lost = np.full_like(problem.model.params, np.nan)
    run = CudaEngine(problem.replace(params=lost).model, active.shape[1], 1)
    mu, v = run.predict(X, active, with_variance=True)
    assert np.isnan(mu).all() and np.isnan(v).all()
    run.close()
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [0, len(X)])


@pytest.mark.parametrize("kernel", KERNELS)
def test_kriging_for_each_kernel(kernel):
    check_kriging(kernel)


@pytest.mark.full
def test_kriging_in_float32():
    check_kriging("rbf-white", Q=1, dtype="float32")


def test_kriging_in_parts_that_fit(device, monkeypatch):
    monkeypatch.setattr(device, "free_memory", lambda: 2e5)
    check_kriging("rbf-white")


def test_kriging_repeats_to_the_bit_and_returns_nan_after_a_failure():
    problem = problem_of("matern52-ard", "gaussian-2")
    batch = problem.batch._replace(y=np.hstack([problem.batch.y] * 2) ** 2)
    n, H = batch.active.shape
    results = []
    for _ in range(2):
        run = CudaEngine(problem.model, H, 1)
        run.load_kriging(batch, n)
        results.append(run.kriging_gradients(0))
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    problem.model.params[:] = np.nan
    assert np.isnan(run.kriging_gradients(0).sums[0, 0])
    assert np.isnan(run.kriging_predictions(batch.X, batch.active)).all()
    assert np.isnan(run.kriging_slopes(batch.X, batch.active)).all()


def test_kriging_sends_its_data_once():
    problem = problem_of("rbf-white", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    run = CudaEngine(problem.model, active.shape[1], 1)
    run.kriging_predictions(X, active)
    there = run._device_model
    problem.model.Z[:] = np.nan  # the device has its own copy
    mu, v = run.kriging_predictions(X, active)
    assert run._device_model is there
    assert np.isfinite(mu).all() and np.isfinite(v).all()
