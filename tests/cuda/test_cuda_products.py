"""Products with covariance matrices on the device, against those of kernel objects."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from simulator import SIMULATED, is_on_device, needs_gpu, needs_simulator
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
from skswsgp.cuda import runtime
from skswsgp.kernels import ArcCosine

KERNELS = {
    "one operation": Matern(0.9, nu=0.5),
    "stationary": ConstantKernel(2.0) * Matern([0.7, 1.1, 2.0], nu=2.5),
    "sum": RBF(1.3) + ConstantKernel(0.3) * RationalQuadratic(alpha=0.8),
    "product": DotProduct(0.5) * Matern(1.0, nu=1.5),
    "neurons": ArcCosine(order=1) + WhiteKernel(0.2),
}
n, M = (23, 43) if SIMULATED else (300, 1000)  # the last tiles are not full


@pytest.fixture
def small_tiles(monkeypatch):
    """Use small tiles in the simulator, and few blocks and rows for each launch."""
    if SIMULATED:
        monkeypatch.setattr(device_products, "TILE", 20)
    monkeypatch.setattr(device_products, "MAX_BLOCKS", 3)
    monkeypatch.setattr(device_products, "PAIRS_AT_ONCE", 5 * M)


def products_of(kernel, Z):
    struct = compile_kernel(kernel, 3, np.float64).struct
    return device_products.DeviceProducts(struct, Z)


def check_products(kernel, Q, rng, n=n, M=M, dtype="float64"):
    """Compare products on the device with those of plain matrices."""
    X, Z, u = (rng.normal(size=size) for size in ((n, 3), (M, 3), (M, Q)))
    X, Z = X.astype(dtype), Z.astype(dtype)
    products = products_of(kernel, Z)
    X, Z = X.astype(float), Z.astype(float)
    actual = products.multiply(X, u)
    assert_allclose(actual, kernel(X, Z) @ u, atol=1e-11 * M)
    assert actual.dtype == np.float64 and actual.flags.c_contiguous
    K = kernel(Z, Z.copy())
    np.fill_diagonal(K, 0.0)
    assert_allclose(products.multiply_off_diagonal(u), K @ u, atol=1e-11 * M)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine", "small_tiles")
@pytest.mark.parametrize("Q", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_products_are_those_of_the_matrix(name, Q, rng):
    check_products(KERNELS[name], Q, rng)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine", "small_tiles")
@pytest.mark.parametrize("M", [1, 2, 20, 21])
def test_one_row_and_few_points(M, rng):
    check_products(KERNELS["product"], 2, rng, 1, M)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine", "small_tiles")
def test_points_of_models_in_single_precision_are_multiplied_in_double(rng):
    check_products(KERNELS["stationary"], 2, rng, dtype="float32")


@needs_simulator
@pytest.mark.usefixtures("cuda_engine_in_turns", "small_tiles")
@pytest.mark.parametrize("name", ["one operation", "neurons"])
def test_barriers_separate_writes_and_reads(name, rng):
    check_products(KERNELS[name], 2, rng, M=21)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine", "small_tiles")
def test_products_repeat_to_the_bit_whatever_the_room(monkeypatch, rng):
    Z, u = rng.normal(size=(M, 3)), rng.normal(size=(M, 2))
    products, launches = products_of(KERNELS["sum"], Z), []
    allocate = products._allocate_work

    def noted(*sizes):
        launches.append(allocate(*sizes))
        return launches[-1]

    monkeypatch.setattr(products, "_allocate_work", noted)
    results = []
    for free in (2.0**40, 2.0**40, 1.0):
        monkeypatch.setattr(runtime, "free_memory", lambda free=free: free)
        results.append((products.multiply(Z, u), products.multiply_off_diagonal(u)))
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert_array_equal(first, other)
    assert [len(work.sums) for work in launches] == [3, 3, 3, 3, 1, 1]


@needs_gpu
@pytest.mark.usefixtures("cuda_engine", "small_tiles")
def test_products_agree_with_those_of_the_cpu(rng):
    X, Z, u = (rng.normal(size=size) for size in ((n, 3), (M, 3), (M, 2)))
    struct = compile_kernel(KERNELS["neurons"], 3, np.float64).struct
    here = CovarianceProducts(struct, Z, 1)
    there = device_products.DeviceProducts(struct, Z)
    assert_allclose(there.multiply(X, u), here.multiply(X, u), atol=1e-11 * M)
    off = here.multiply_off_diagonal(u)
    assert_allclose(there.multiply_off_diagonal(u), off, atol=1e-11 * M)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
def test_a_device_without_room_says_so_in_one_sentence(monkeypatch, rng):
    products = products_of(KERNELS["sum"], rng.normal(size=(9, 3)))

    def run_out(*arguments, **options):
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(runtime.cuda, "device_array", run_out)
    message = "the GPU has no room for the products of exact means .*device='cpu' oth"
    with pytest.raises(MemoryError, match=message):
        products.multiply_off_diagonal(np.ones((9, 1)))
    products.close()
    assert not any(is_on_device(value) for value in vars(products).values())
