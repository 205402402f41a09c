"""Kriging of a row from its nearest data, and its log density."""

import numpy as np
import pytest
import reference
from helpers import KERNELS, assert_close, assert_derivatives, make_problem

from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine import cpu_loops as loops
from skswsgp._engine.cpu import CpuEngine
from skswsgp._point.state import allocate_gradients, allocate_workspace

pytestmark = pytest.mark.matrix


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(params=[1, 2], ids=["Q=1", "Q=2"])
def problem(kernel, request, rng):
    return make_data(kernel, request.param, rng)


def make_data(kernel, Q, rng, dtype="float64"):
    """Return a random `Problem`, whose s are the relative noise variances of data."""
    # 20 rows are more than the chunks that the loops cut them into
    options = {"full": False, "rng": rng, "dtype": dtype, "M": 9, "H": 5, "n": 20}
    return make_problem(kernel, "gaussian", Q, **options)


def with_ratios(y):
    """Return targets followed by the ratios of their noise variances to `noise`."""
    ratios = np.linspace(0.5, 2.0, y.size).reshape(y.shape)
    return np.hstack([y, ratios.astype(y.dtype)])


def gradients(problem, n_threads=1):
    """Return the gradients of the weighted sum of log densities."""
    batch = problem.batch._replace(y=with_ratios(problem.batch.y))
    H, n = batch.active.shape[1], len(batch.X)
    grads = allocate_gradients(problem.model, 1, H)
    works = allocate_workspace(problem.model, H, n_threads)
    before = loops.allocate_map_gradient(None, batch.X, H, n_threads, 0)
    loops.kriging_gradients(problem.model, batch, 0, n, works, grads, before)
    return grads


def predictions(problem, n_threads=1):
    """Return mu and F, each (n, Q)."""
    model, batch = problem.model, problem.batch
    engine = CpuEngine(model, batch.active.shape[1], n_threads)
    return engine.kriging_predictions(batch.X, batch.active)


def slopes(problem, n_threads=1):
    """Return the derivatives (n, Q, D) of mu by the rows of X."""
    batch = problem.batch
    engine = CpuEngine(problem.model, batch.active.shape[1], n_threads)
    return engine.kriging_slopes(batch.X, batch.active)


def data_of(problem):
    """Return Z, m, weight, noise_variance and neighbors for the reference."""
    model = problem.model
    return model.Z, model.m, 1.0 / model.s, model.noise, problem.batch.active


def log_likelihood(problem):
    """Return the weighted sum of log densities, from the reference."""
    batch = problem.batch
    return reference.nearest_neighbor_log_likelihood(
        problem.kernel,
        batch.X,
        with_ratios(batch.y),
        *data_of(problem),
        batch.weight,
    )


def test_predictions_equal_reference(problem):
    mu, F = predictions(problem)
    expected = reference.krige_all(problem.kernel, problem.batch.X, *data_of(problem))
    assert_close(mu, expected[0], roundings=1e6)  # the jitter is 1e-12 of K
    assert_close(F, expected[1], roundings=1e6)


def test_log_density_equals_reference(problem):
    value = gradients(problem).sums[0, 0]
    np.testing.assert_allclose(value, log_likelihood(problem), rtol=1e-9)


def test_gradients_equal_differences(problem):
    grads, model = gradients(problem), problem.model

    def by_params(theta):
        inv_scale = model.inv_scale.copy()
        shifted = problem.replace(params=np.exp(theta), inv_scale=inv_scale)
        refresh_scales(shifted.model)
        return gradients(shifted).sums[0, 0]

    def by_noise(theta):
        return gradients(problem.replace(noise=np.exp(theta))).sums[0, 0]

    assert_derivatives(grads.d_log[0], by_params, np.log(model.params))
    assert_derivatives(grads.d_noise[0], by_noise, np.log(model.noise))


def test_slopes_of_the_mean_equal_differences(problem):
    Z, m, weight, noise, neighbors = data_of(problem)
    actual, X = slopes(problem), problem.batch.X
    for i, w in enumerate(neighbors):
        for q in range(m.shape[1]):

            def mean(x, w=w, q=q):
                noise_w = noise[q] / weight[w, q]
                return reference.krige(problem.kernel, x, Z[w], m[w, q], noise_w)[0]

            assert_derivatives(actual[i, q], mean, X[i])


@pytest.mark.slow  # compiles the gradients in float32
def test_float32(kernel):
    single, double = (
        make_data(kernel, 2, np.random.default_rng(0), dtype)
        for dtype in ("float32", "float64")
    )
    for actual, expected in zip(predictions(single), predictions(double), strict=True):
        assert actual.dtype == np.float32
        assert_close(actual, expected, roundings=1e2, dtype="float32")
    grads, expected = gradients(single), gradients(double)
    for name in ("sums", "d_log", "d_noise"):
        actual = getattr(grads, name)[0]
        assert_close(actual, getattr(expected, name)[0], roundings=1e3, dtype="float32")


def test_bits_do_not_depend_on_threads(problem):
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    for function in (predictions, slopes, gradients):
        one, two = (function(problem, n_threads) for n_threads in (1, 2))
        for first, second in zip(one, two, strict=True):
            np.testing.assert_array_equal(first, second)


def test_failed_factorisation_gives_nan(problem):
    broken = problem.replace(params=np.full_like(problem.model.params, np.nan))
    assert np.isnan(predictions(broken)).all()
    assert np.isnan(gradients(broken).sums[0, 0])
