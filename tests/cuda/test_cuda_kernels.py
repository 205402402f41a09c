"""Evaluation and kriging compared with the CPU, and the barriers of all kernels."""

import numpy as np
import pytest
from helpers import assert_close, make_problem
from simulator import (
    KERNELS,
    ROUNDINGS,
    SIZES,
    TAKEN_KERNELS,
    TAKEN_LIKELIHOODS,
    check_evaluation,
    check_steps,
    needs_gpu,
    needs_simulator,
    problem_of,
)

from skswsgp._adam.steps import make_steps
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine.cpu import CpuEngine
from skswsgp.cuda.engine import CudaEngine


@needs_gpu
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", TAKEN_LIKELIHOODS)
def test_evaluation(cuda_engine, likelihood, full):
    check_evaluation(cuda_engine, problem_of("matern52-ard", likelihood, full=full))


@needs_gpu
@pytest.mark.parametrize("n_draws", [3, 12])
def test_variances_from_draws(cuda_engine, n_draws):
    problem = problem_of("matern52-ard", "gaussian-2", full=True)
    X, active = problem.batch.X, problem.batch.active
    draws = np.random.default_rng(1).normal(size=(2, len(problem.model.Z), n_draws))
    model, expected = problem.model._replace(L=draws), []
    for kind in (CpuEngine, cuda_engine):
        run = kind(model, active.shape[1], 1)
        results = run.predict(X, active, with_variance=True)
        expected = expected or results
        for array, other in zip(results, expected, strict=True):
            assert_close(array, other, roundings=ROUNDINGS)
        run.close()
    a, F = CpuEngine(model, active.shape[1], 1).conditional_weights(X, active)
    V = np.sum(np.einsum("nh,qnhs->nqs", a, draws[:, active]) ** 2, axis=2)
    np.testing.assert_allclose(expected[1], F[:, None] + V, rtol=1e-9)


@needs_simulator
@pytest.mark.parametrize(
    ("kernel", "likelihood", "full"),
    [
        ("all", "bernoulli", False),
        ("rbf-white", "softmax", False),
        ("rbf-white", "gaussian-2", True),
    ],
)
def test_barriers_separate_writes_and_reads_in_steps(
    cuda_engine_in_turns, kernel, likelihood, full
):
    check_steps(cuda_engine_in_turns, kernel=kernel, likelihood=likelihood, full=full)


@needs_simulator
@pytest.mark.parametrize(
    ("likelihood", "full"), [("gaussian-2", True), ("bernoulli", False)]
)
def test_barriers_separate_writes_and_reads_in_evaluation(
    cuda_engine_in_turns, likelihood, full
):
    problem = problem_of("rbf-white", likelihood, full=full)
    check_evaluation(cuda_engine_in_turns, problem.replace(rows=[0, 1]))


@needs_gpu
def test_steps_repeat_to_the_bit(cuda_engine):
    models = []
    for _ in range(2):
        problem = problem_of("matern52-ard", "gaussian-2")
        n, H = problem.batch.active.shape
        run = cuda_engine(problem.model, H, 1)
        P, D = len(problem.model.params), problem.model.Z.shape[1]
        free, bounds = np.ones(P, bool), np.zeros((P, 2))
        steps = make_steps(run, n, free, bounds, np.ones(D))
        steps.take(problem.batch, n, np.array([0.1]))
        models.append(run.model)
        run.close()
    for first, second in zip(*models, strict=True):
        np.testing.assert_array_equal(first, second)


@needs_gpu
def test_extra_jitter_and_failures_are_counted(cuda_engine):
    problem = problem_of("matern52-ard", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    Z = np.repeat(problem.model.Z[:1], len(problem.model.Z), axis=0)
    run = cuda_engine(problem.replace(Z=Z, jitter=1e-18).model, active.shape[1], 1)
    run.predict(X, active, with_variance=True)
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [len(X), 0])
    lost = np.full_like(problem.model.params, np.nan)
    run = cuda_engine(problem.replace(params=lost).model, active.shape[1], 1)
    mu, v = run.predict(X, active, with_variance=True)
    assert np.isnan(mu).all() and np.isnan(v).all()
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [0, len(X)])


def check_kriging(kernel, Q=2, dtype="float64", **sizes):
    """Compare kriging on both engines, before and after the parameters change."""
    results = []
    for kind in (CpuEngine, CudaEngine):
        rng = np.random.default_rng(0)
        problem = make_problem(
            KERNELS[kernel], "gaussian", Q, full=False, rng=rng, dtype=dtype,
            **(SIZES | sizes),
        )  # fmt: skip
        model, batch = problem.replace(jitter=1e-3).model, problem.batch
        ratios = rng.uniform(0.5, 2.0, size=batch.y.shape).astype(dtype)
        batch = batch._replace(y=np.hstack([batch.y, ratios]))
        run, n = kind(model, batch.active.shape[1], 1), len(batch.X) // 2
        run.load_kriging(batch, n)
        for start in (0, n):
            grads = run.kriging_gradients(start)
            found = [grads.d_log[0], grads.d_noise[0], grads.sums[0, 0]]
            results += [np.array(found[0]), np.array(found[1]), found[2]]
            results += run.kriging_predictions(batch.X, batch.active)
            results.append(run.kriging_slopes(batch.X, batch.active))
            model.params[:] *= 1.1
            model.noise[:] *= 0.8
            refresh_scales(model)
        run.close()
    half = len(results) // 2
    for expected, actual in zip(results[:half], results[half:], strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
@pytest.mark.parametrize("kernel", TAKEN_KERNELS)
def test_kriging_for_each_kernel(kernel):
    check_kriging(kernel)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
def test_kriging_in_float32():
    check_kriging("rbf-white", Q=1, dtype="float32")


@needs_simulator
@pytest.mark.usefixtures("cuda_engine_in_turns")
def test_barriers_separate_writes_and_reads_in_kriging():
    # The steps above have each operation of a kernel between barriers.
    check_kriging("rbf-white", n=2)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
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
