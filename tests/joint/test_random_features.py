"""Random features: their mean product is the kernel."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._covariance.compile import compile_kernel
from skswsgp.joint.random_features import (
    orthogonal_directions,
    random_features,
    require_features,
)
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

N = 40_000
KERNELS = [
    ConstantKernel(2.0),
    RBF([0.5, 2.0]),
    Matern([0.5, 2.0], nu=0.5),
    Matern([0.5, 2.0], nu=1.5),
    Matern(0.7, nu=2.5),
    RationalQuadratic(0.8, alpha=0.7),
    DotProduct(0.5),
    Polynomial(degree=2, length_scale=[1.0, 2.0], sigma_0=0.5),
    ArcCosine(order=0, length_scale=[1.0, 2.0], sigma_0=0.5),
    ArcCosine(order=1, sigma_0=0.5),
    3.0 * RBF(0.5) + DotProduct(0.3),
    RBF(0.5) * DotProduct(0.3),
    Matern(1.0, nu=1.5) ** 2,
    OnColumns(ExpSineSquared(0.8, 1.7), [1]) * OnColumns(RBF(0.9), [0]),
    OnColumns(DotProduct(0.5) + Matern(0.7, nu=1.5), [1]) + OnColumns(RBF(), [0]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_mean_product_is_the_kernel(kernel, rng):
    X = rng.normal(size=(6, 2))
    struct = compile_kernel(kernel, 2, np.float64).struct
    phi = random_features(struct, X, N, np.random.RandomState(0))
    assert phi.shape == (6, N)
    products = phi[:, None] * phi[None]
    error = products.std(axis=2) / np.sqrt(N)
    assert_allclose(products.mean(axis=2), kernel(X), atol=5 * error.max() + 1e-9)


@pytest.mark.parametrize("length_scale", [0.1, 0.7, 2.0])
def test_harmonics_of_a_periodic_kernel(length_scale, rng):
    X = np.concatenate([rng.uniform(0.0, 5.0, size=(6, 1)), [[1e9]]])
    kernel = ExpSineSquared(length_scale, periodicity=1.7)
    struct = compile_kernel(kernel, 1, np.float64).struct
    phi = random_features(struct, X, N, np.random.RandomState(0))
    products = phi[:, None] * phi[None]
    error = products.std(axis=2).max() / np.sqrt(N)
    assert_allclose(products.mean(axis=2), kernel(X), atol=5 * error)


def test_a_wave_of_a_tiny_length_scale_is_drawn(rng):
    kernel = ExpSineSquared(1e-12, length_scale_bounds="fixed")
    struct = compile_kernel(kernel, 1, np.float64).struct
    phi = random_features(struct, rng.normal(size=(6, 1)), 5, np.random.RandomState(0))
    assert np.isfinite(phi).all()


def test_a_periodic_kernel_of_two_columns_has_no_draws():
    struct = compile_kernel(RBF() + ExpSineSquared(), 2, np.float64).struct
    with pytest.raises(ValueError, match=r"ExpSineSquared of 2 columns has no draws"):
        require_features(struct)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_features_are_functions(kernel, rng):
    X = rng.normal(size=(6, 2))
    struct = compile_kernel(kernel, 2, np.float64).struct
    together = random_features(struct, X, 5, np.random.RandomState(0))
    part = random_features(struct, X[4:], 5, np.random.RandomState(0))
    assert_allclose(part, together[4:], rtol=1e-12)
    assert np.isfinite(together).all()


@pytest.mark.parametrize("kernel", [RBF() + WhiteKernel(), RBF() ** 1.5], ids=str)
def test_kernels_without_features_are_refused(kernel):
    struct = compile_kernel(kernel, 2, np.float64).struct
    with pytest.raises(ValueError, match="has no draws of functions: expected"):
        require_features(struct)


def test_kernels_with_features_are_not_refused():
    for kernel in KERNELS:
        require_features(compile_kernel(kernel, 2, np.float64).struct)


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize("n", [3, 5, 8])  # whole blocks, and a part of one
def test_orthogonal_directions(n):
    rng = np.random.RandomState(0)
    W = np.array([orthogonal_directions(n, 4, rng) for _ in range(20_000)])
    products = np.swapaxes(W[:, :, :4], 1, 2) @ W[:, :, :4]
    off = products * (1.0 - np.eye(min(n, 4)))
    assert_allclose(off, 0.0, atol=1e-12)
    # each column is standard normal: moments of one and two entries
    for column in W[:, :, -1], W[:, :, 1]:
        assert_allclose(column.mean(axis=0), 0.0, atol=0.04)
        assert_allclose(column.T @ column / len(W), np.eye(4), atol=0.06)
        assert_allclose(np.mean(column**4, axis=0), 3.0, atol=0.4)


def test_few_directions_of_many_columns_take_no_square_matrix():
    tracemalloc.start()
    orthogonal_directions(4, 1000, np.random.RandomState(0))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * 1000 * 1000 / 10


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_mean_product_of_orthogonal_features_is_the_kernel(kernel, rng):
    X = rng.normal(size=(6, 2))
    struct = compile_kernel(kernel, 2, np.float64).struct
    phi = random_features(struct, X, N, np.random.RandomState(0), orthogonal=True)
    products = phi[:, None] * phi[None]
    error = products.std(axis=2) / np.sqrt(N)
    assert_allclose(products.mean(axis=2), kernel(X), atol=5 * error.max() + 1e-9)
