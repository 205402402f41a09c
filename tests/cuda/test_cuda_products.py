"""Products with covariance matrices on the device, against those of kernel objects."""

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

from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.products import CovarianceProducts
from skswsgp.cuda import products as device_products
from skswsgp.kernels import ArcCosine

pytestmark = pytest.mark.slow  # bodies are compiled for the host
KERNELS = {
    "one operation": Matern(0.9, nu=0.5),
    "stationary": ConstantKernel(2.0) * Matern([0.7, 1.1, 2.0], nu=2.5),
    "sum": RBF(1.3) + ConstantKernel(0.3) * RationalQuadratic(alpha=0.8),
    "product": DotProduct(0.5) * Matern(1.0, nu=1.5),
    "neurons": ArcCosine(order=1) + WhiteKernel(0.2),
}
n, M = 30, 100


@pytest.fixture
def make_products(device, monkeypatch):
    """Return a function that makes products, which take a few rows at once."""
    monkeypatch.setattr(device_products, "PAIRS_AT_ONCE", 7 * M)

    def make(kernel, Z):
        struct = compile_kernel(kernel, 3, np.float64).struct
        return device_products.DeviceProducts(device, struct, Z)

    return make


def check_products(make_products, kernel, Q, rng, n=n, M=M, dtype="float64"):
    """Compare products on the device with those of plain matrices."""
    X, Z, u = (rng.normal(size=size) for size in ((n, 3), (M, 3), (M, Q)))
    X, Z = X.astype(dtype), Z.astype(dtype)
    products = make_products(kernel, Z)
    X, Z = X.astype(float), Z.astype(float)
    actual = products.multiply(X, u)
    assert_allclose(actual, kernel(X, Z) @ u, atol=1e-11 * M)
    assert actual.dtype == np.float64 and actual.flags.c_contiguous
    K = kernel(Z, Z.copy())
    np.fill_diagonal(K, 0.0)
    assert_allclose(products.multiply_off_diagonal(u), K @ u, atol=1e-11 * M)
    products.close()
    assert products._kernel is products._points is None


@pytest.mark.parametrize("Q", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_products_are_those_of_the_matrix(make_products, name, Q, rng):
    check_products(make_products, KERNELS[name], Q, rng)


@pytest.mark.parametrize("M", [1, 2, 20, 21])
def test_one_row_and_few_points(make_products, M, rng):
    check_products(make_products, KERNELS["product"], 2, rng, 1, M)


def test_points_of_models_in_single_precision_are_multiplied_in_double(
    make_products, rng
):
    check_products(make_products, KERNELS["stationary"], 2, rng, dtype="float32")


def test_products_do_not_depend_on_the_room(make_products, device, monkeypatch, rng):
    Z, u = rng.normal(size=(M, 3)), rng.normal(size=(M, 2))
    products, results = make_products(KERNELS["sum"], Z), []
    for free in (2**40, 2**40, 1):
        monkeypatch.setattr(device, "free_memory", lambda free=free: free)
        results.append((products.multiply(Z, u), products.multiply_off_diagonal(u)))
    for first, second, few in zip(*results, strict=True):
        assert_array_equal(first, second)
        assert_allclose(few, first, rtol=0, atol=1e-13 * M)


def test_products_agree_with_those_of_the_cpu(make_products, rng):
    X, Z, u = (rng.normal(size=size) for size in ((n, 3), (M, 3), (M, 2)))
    there = make_products(KERNELS["neurons"], Z)
    here = CovarianceProducts(
        compile_kernel(KERNELS["neurons"], 3, np.float64).struct, Z, 1
    )
    assert_allclose(there.multiply(X, u), here.multiply(X, u), atol=1e-11 * M)
    off = here.multiply_off_diagonal(u)
    assert_allclose(there.multiply_off_diagonal(u), off, atol=1e-11 * M)


def test_a_device_without_room_says_so_in_one_sentence(
    make_products, device, monkeypatch, rng
):
    products = make_products(KERNELS["sum"], rng.normal(size=(9, 3)))

    def run_out(*arguments):
        raise MemoryError("Out of memory allocating 648 bytes.")

    monkeypatch.setattr(device, "prepare", run_out)
    message = "the GPU has no room for the products of exact means .*device='cpu' oth"
    with pytest.raises(MemoryError, match=message):
        products.multiply_off_diagonal(np.ones((9, 1)))


@pytest.mark.parametrize("error", ["CUBLAS_STATUS_ALLOC_FAILED", "NO_CONTEXT"])
def test_libraries_without_room_say_so_as_well(device, error):
    kind = MemoryError if "ALLOC" in error else RuntimeError
    with pytest.raises(kind, match=error), device.room_for("rows"):
        raise RuntimeError(error)
