"""The objective and its gradients, with a K for each row and with one dense K."""

import numpy as np
import pytest
import reference
from helpers import (
    Problem,
    add_gradients,
    assert_close,
    assert_derivatives,
    dense_gradients,
    first_block,
    make_problem,
)
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.program import refresh_scales
from skswsgp.kernels import ArcCosine, Polynomial

pytestmark = pytest.mark.matrix
KERNELS = {
    "matern": ConstantKernel(1.4) * Matern([0.8, 1.7], nu=2.5),
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "arc-cosine": ArcCosine(1, 1.3, 0.7),
    "polynomial": Polynomial(3, [1.5, 2.0], 0.9),
}
LIKELIHOODS = {  # the order decides on the pairs of `COVERING`
    "gaussian-1": ("gaussian", 1),
    "gaussian-2": ("gaussian", 2),
    "bernoulli": ("bernoulli", 1),
    "logit": ("logit", 1),
    "poisson": ("poisson", 2),
    "negative-binomial": ("negative_binomial", 2),
    "student-t": ("student_t", 2),
    "softmax": ("softmax", 3),
}
# Every kernel with every likelihood, and each of both with both covariances and with
# points that move and that do not. One dense K and a K for each row take the same
# formulas of kernels and likelihoods. The tests of one K for each row check these in
# all combinations, most of them in the full group.
COVERING = [
    pytest.param(kernel, likelihood, full, moving, id=f"{kernel}-{likelihood}")
    for i, kernel in enumerate(KERNELS)
    for j, likelihood in enumerate(LIKELIHOODS)
    for full, moving in [((i + j) % 2 == 1, (i + j // 2) % 2 == 1)]
]


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(params=LIKELIHOODS)
def likelihood(request):
    return LIKELIHOODS[request.param]


@pytest.fixture(params=[False, True], ids=["diag", "full"])
def full(request):
    return request.param


@pytest.fixture
def problem(kernel, likelihood, full, rng):
    return make_problem(kernel, *likelihood, full=full, rng=rng)


@pytest.fixture
def small(full, rng):
    """Return a problem for tests that do not depend on kernel or likelihood."""
    return make_problem(KERNELS["matern"], "gaussian", 2, full=full, rng=rng)


def all_inducing(problem):
    """Return lists of all inducing points for every point."""
    n, M = len(problem.batch.X), len(problem.model.Z)
    return np.tile(np.arange(M, dtype=np.int32), (n, 1))


def dense_problem(kernel, likelihood, full, moving, rng):
    """Return the problem of a case of `COVERING` where all rows have all points."""
    kernel, likelihood = KERNELS[kernel], LIKELIHOODS[likelihood]
    problem = make_problem(kernel, *likelihood, full=full, rng=rng)
    return problem.replace(active=all_inducing(problem), train_inducing=moving)


def moved(problem, name, values):
    """Return the problem with `values` for the parameter `name` of a gradient."""
    if name == "log_noise":
        return problem.replace(noise=np.exp(values))
    if name != "log_params":
        return problem.replace(**{name: values})
    inv_scale = problem.model.inv_scale.copy()
    problem = problem.replace(params=np.exp(values), inv_scale=inv_scale)
    refresh_scales(problem.model)
    return problem


def check_gradients(problem, gradients, evaluate):
    """Check gradients against differences of the objective of evaluate(problem)."""
    model = problem.model
    origin = {
        "log_params": np.log(model.params),
        "log_noise": np.log(model.noise),
        "m": model.m,
        "s": model.s,
        "L": model.L,
        "Z": model.Z,
    }
    for name, start in origin.items():
        index = np.nonzero(np.tril(np.ones_like(start)) if name == "L" else start + 1j)

        def objective(theta, name=name, start=start, index=index):
            values = start.copy()
            values[index] = theta
            shifted = moved(problem, name, values)
            return shifted.objective(evaluate(shifted))

        if start.size:
            assert_derivatives(gradients[name][index], objective, start[index])


def check_same(first, second, *, roundings, dtype="float64"):
    """Check that two results of `dense_gradients` are the same up to rounding."""
    for name, values in second.items():
        assert_close(first[name], values, roundings=roundings, dtype=dtype)


def test_value_equals_reference(problem):
    grads = problem.local()
    # A full S takes a millionth of the jitter before its determinant is found
    np.testing.assert_allclose(grads.sums[0], problem.pieces(), rtol=1e-7)
    assert not grads.jitter_counts.any()


def test_gradients_equal_differences(problem):
    gradients = dense_gradients(problem, problem.local())
    check_gradients(problem, gradients, Problem.local)


def test_fixed_inducing_points_have_no_gradient(small):
    fixed = small.replace(train_inducing=False)
    expected = dense_gradients(small, small.local())
    expected["Z"] = np.zeros_like(expected["Z"])
    check_same(dense_gradients(fixed, fixed.local()), expected, roundings=10)


@pytest.mark.parametrize(("kernel", "likelihood", "full", "moving"), COVERING)
def test_dense_value_equals_svgp(kernel, likelihood, full, moving, rng):
    problem = dense_problem(kernel, likelihood, full, moving, rng)
    grads = problem.dense()
    np.testing.assert_allclose(grads.sums[0], problem.pieces(), rtol=1e-7)
    expected = problem.svgp_bound()
    np.testing.assert_allclose(problem.objective(grads), expected, rtol=1e-7)


@pytest.mark.parametrize(("kernel", "likelihood", "full", "moving"), COVERING)
def test_dense_gradients_equal_local(kernel, likelihood, full, moving, rng):
    problem = dense_problem(kernel, likelihood, full, moving, rng)
    local, dense = problem.local(), problem.dense()
    assert_close(dense.sums[0], local.sums[0], roundings=1e4)
    # Rounding grows with the condition number of K, which is up to 1e5
    check_same(
        dense_gradients(problem, first_block(dense), active=problem.batch.active[:1]),
        dense_gradients(problem, local),
        roundings=1e6,
    )


@pytest.mark.parametrize("path", ["local", "dense"])
def test_bits_do_not_depend_on_threads(full, path, rng):
    """Threads share rows and points, whatever the kernel or the likelihood."""
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    problem = make_problem(KERNELS["matern"], "softmax", 3, full=full, rng=rng)
    one, two = (getattr(problem, path)(n_threads=n) for n in (1, 2))
    # with one K, only the first block and chunk are results
    stop = 1 if path == "dense" else None
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first[:stop], second[:stop])


def test_minibatches_add_up(small):
    parts = [
        dense_gradients(
            small,
            small.local(start=start, n=n),
            active=small.batch.active[start : start + n],
        )
        for start, n in ((0, 2), (2, 3))
    ]
    whole = dense_gradients(small, small.local())
    check_same(add_gradients(*parts), whole, roundings=100)


@pytest.mark.parametrize("path", ["local", "dense"])
def test_weight_equals_repetition(small, path):
    small = small.replace(active=all_inducing(small))
    weight = np.array([1.0, 2.0, 1.0, 3.0, 0.0])
    weighted = small._replace(batch=small.batch._replace(weight=weight))
    repeated = weighted.replace(rows=[0, 1, 1, 2, 3, 3, 3])
    repeated.batch.weight[:] = 1.0
    first, second = (p.objective(getattr(p, path)()) for p in (weighted, repeated))
    assert_close(first, second, roundings=100)


@pytest.mark.slow  # compiles the gradients of both paths in float32
@pytest.mark.parametrize("path", ["local", "dense"])
def test_float32(kernel, full, path):
    def gradients(dtype):
        rng = np.random.default_rng(0)
        problem = make_problem(kernel, "softmax", 3, full=full, rng=rng, dtype=dtype)
        # In float32 a jitter of 1e-6 would be lost in rounding
        problem = problem.replace(
            active=all_inducing(problem)[:, ::-1].copy(), jitter=1e-3
        )
        grads = getattr(problem, path)()
        active = problem.batch.active
        if path == "dense":
            grads, active = first_block(grads), all_inducing(problem)[:1]
        return grads.sums[0], dense_gradients(problem, grads, active=active)

    (sums, single), (expected, double) = gradients("float32"), gradients("float64")
    # The condition number of K is up to 1e3
    assert_close(sums, expected, roundings=1e3, dtype="float32")
    check_same(single, double, roundings=1e4, dtype="float32")


def test_duplicate_inducing_points_need_jitter(small):
    Z = small.model.Z.copy()
    Z[:] = Z[0]
    grads = small.replace(Z=Z, jitter=1e-18).local()
    assert grads.jitter_counts[:, 0].sum() == len(small.batch.X)
    assert not grads.jitter_counts[:, 1].any()
    assert np.isfinite(grads.sums).all() and np.isfinite(grads.d_log).all()


def test_dense_K_is_factorised_once(small):
    Z = np.zeros_like(small.model.Z)
    problem = small.replace(active=all_inducing(small), Z=Z, jitter=1e-18)
    assert problem.dense().jitter_counts[:, 0].sum() == 1
    assert problem.local().jitter_counts[:, 0].sum() == len(small.batch.X)


def test_failed_factorisation_is_counted(small):
    grads = small.replace(params=np.full_like(small.model.params, np.nan)).local()
    assert grads.jitter_counts[:, 1].sum() == len(small.batch.X)
    assert np.isnan(grads.sums[0]).all()


def test_kl_vanishes_where_q_equals_p(rng):
    problem = make_problem(KERNELS["matern"], "gaussian", 1, full=True, rng=rng)
    problem = problem.replace(active=all_inducing(problem))
    K = reference.kernel_matrix(problem.kernel, problem.model.Z)
    K += problem.model.jitter * np.diag(np.diag(K))
    L = np.linalg.cholesky(K)[np.newaxis].copy()
    grads = problem.replace(L=L, m=np.zeros_like(problem.model.m)).local()
    # S takes a millionth of the jitter; the condition number of K is 1e2
    np.testing.assert_allclose(grads.sums[0, 1], 0.0, atol=1e-6)
