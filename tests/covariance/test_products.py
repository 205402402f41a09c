"""Products with covariance matrices, against the matrices of the kernel objects."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._compiled.threads import CHUNKS
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.products import TILE, CovarianceProducts
from skswsgp.kernels import ArcCosine

pytestmark = pytest.mark.matrix
KERNELS = {
    "stationary": ConstantKernel(2.0) * Matern([0.7, 1.1, 2.0], nu=2.5),
    "sum": RBF(1.3) + ConstantKernel(0.3) * RationalQuadratic(alpha=0.8),
    "product": DotProduct(0.5) * Matern(1.0, nu=1.5),
    "neurons": ArcCosine(order=1) + WhiteKernel(0.2),
}
M = 2 * TILE + 37  # the last tile is not full


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


def products_of(kernel, Z, n_threads=1):
    struct = compile_kernel(kernel, Z.shape[1], np.float64).struct
    return CovarianceProducts(struct, Z, n_threads)


def test_products_are_those_of_the_matrix(kernel, rng):
    X, Z, u = rng.normal(size=(30, 3)), rng.normal(size=(M, 3)), rng.normal(size=(M, 2))
    products, K = products_of(kernel, Z), kernel(X, Z)
    assert_allclose(products.matrix(X), K, rtol=1e-12)
    assert_allclose(products.multiply(X, u), K @ u, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "m"),
    [(name, m) for name in KERNELS for m in (1, 2, TILE, TILE + 1)]
    + [("stationary", CHUNKS * TILE + 3)],
)
def test_the_symmetric_product_leaves_out_the_diagonal(name, m, rng):
    kernel = KERNELS[name]
    Z, u = rng.normal(size=(m, 3)), rng.normal(size=(m, 2))
    K = kernel(Z, Z.copy())
    np.fill_diagonal(K, 0.0)
    actual = products_of(kernel, Z).multiply_off_diagonal(u)
    assert_allclose(actual, K @ u, atol=1e-9)


@pytest.mark.parametrize("m", [1, 2, TILE + 1, CHUNKS * TILE + 3])
def test_kept_pairs_do_not_change_a_bit(m, rng):
    Z, u = rng.normal(size=(m, 3)), rng.normal(size=(m, 2))
    evaluated, kept = (products_of(KERNELS["sum"], Z) for _ in range(2))
    kept.keep_pairs(m * m)
    for _ in range(2):  # the first product sets them, and the second one reads them
        once = evaluated.multiply_off_diagonal(u)
        assert_array_equal(kept.multiply_off_diagonal(u), once)
    assert len(kept.pairs) == m * (m - 1) // 2
    kept.pairs[:] = 0.0
    assert not kept.multiply_off_diagonal(u).any()


def test_pairs_that_take_too_much_memory_are_not_kept(rng):
    products = products_of(KERNELS["sum"], rng.normal(size=(5, 3)))
    products.keep_pairs(9)
    assert len(products.pairs) == 0
    products.keep_pairs(10)
    assert len(products.pairs) == 10


def test_threads_do_not_change_a_bit(rng):
    kernel = KERNELS["stationary"]
    X, Z = rng.normal(size=(700, 3)), rng.normal(size=(40 * TILE, 3))
    u, results = rng.normal(size=(len(Z), 1)), []
    for n_threads in (1, 2, 3):
        products = products_of(kernel, Z, n_threads)
        results.append((products.multiply(X, u), products.multiply_off_diagonal(u)))
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert_array_equal(first, other)
