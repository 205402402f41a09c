"""Neighbours found on the device compared with those of the CPU."""

import numpy as np
import pytest
from cuda_problems import KERNELS, problem_of
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

from skswsgp._covariance.compile import compile_kernel
from skswsgp._neighbors.distance_scan import DistanceScan
from skswsgp._neighbors.kernel_scan import KernelScan
from skswsgp._neighbors.search import NeighborSearch
from skswsgp.cuda import scan as device_scan
from skswsgp.cuda.engine import CudaEngine
from skswsgp.kernels import ArcCosine

pytestmark = pytest.mark.slow  # bodies are compiled for the host
SCANNED_KERNELS = {"arc-cosine-1": KERNELS["arc-cosine-1"]}
SCANNED_KERNELS["all"] = DotProduct(0.5) + Matern([0.8, 1.7, 1.1], nu=1.5) * RBF(1.5)


@pytest.fixture(params=[(1, 2**40), (1000, 2**40), (1000, 9000)])
def heaps(request, device, monkeypatch):
    """Search with one heap, with many, and with memory for few."""
    most, free = request.param
    monkeypatch.setattr(device_scan, "HEAPS", most)
    monkeypatch.setattr(device, "free_memory", lambda: free)


def points_of(kind, dtype, rng):
    """Return inducing points and rows, some of them far away."""
    if kind == "grid":  # ties, of distances without rounding
        points = rng.integers(0, 3, size=(80, 3)) - 1.0
    else:
        points = rng.normal(size=(80, 3))
        points[-1] *= 1e12  # beyond what float32 can tell apart
    return points[:61].astype(dtype), points[50:].astype(dtype)


@pytest.mark.usefixtures("heaps")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("H", [1, 3, 60])
@pytest.mark.parametrize("kind", ["grid", "normal"])
def test_the_distance_scan_finds_the_lists_of_the_cpu(device, kind, H, dtype, rng):
    Z, X = points_of(kind, dtype, rng)
    expected = DistanceScan(Z, H, 1)
    scan = device_scan.DeviceScan(device, Z, H)
    for rows in (X[:7], X, X[:0]):
        np.testing.assert_array_equal(scan.find(rows), expected.find(rows))
    lists = scan.predecessors()
    assert lists.dtype == np.int32
    np.testing.assert_array_equal(lists[H:], expected.predecessors()[H:])


def assert_same_lists(actual, expected, kernel, X, Z):
    """Compare lists of neighbours by kernel value, those of copies to the entry.

    A GPU rounds a product and a sum at once, so that it may see a difference where the
    CPU sees a tie. The lists then have points of equal values to rounding.
    """
    if not len(X):
        assert actual.shape == expected.shape
        return
    keys = -kernel(X, Z)
    found = [np.take_along_axis(keys, lists, axis=1) for lists in (actual, expected)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-13 * np.abs(keys).max())
    for row in actual:
        place = np.full(len(Z), len(row))
        place[row] = np.arange(len(row))
        assert np.sum(place < len(row)) == len(row)
        assert (place[:10] <= place[40:50]).all()  # of copies, the first one


@pytest.mark.usefixtures("heaps")
@pytest.mark.parametrize("kernel", SCANNED_KERNELS)
@pytest.mark.parametrize("H", [1, 3, 60])
@pytest.mark.parametrize("kind", ["grid", "normal"])
def test_the_kernel_scan_finds_the_lists_of_the_cpu(
    device, monkeypatch, kind, H, kernel, rng
):
    monkeypatch.setattr(device_scan, "LEAST_POINTS", 1)
    Z, X = points_of(kind, "float64", rng)
    Z, X = np.clip(Z, -9.0, 9.0), np.clip(X[:7], -9.0, 9.0)
    Z[40:50] = Z[:10]  # ties, whatever the rounding
    struct = compile_kernel(SCANNED_KERNELS[kernel], 3, np.dtype("float64")).struct
    expected = KernelScan(struct, Z, H, 1)
    scan = device_scan.DeviceScan(device, Z, H, struct)
    covariance = SCANNED_KERNELS[kernel]
    for rows in (X[:2], X, X[:0]):
        assert_same_lists(scan.find(rows), expected.find(rows), covariance, rows, Z)
    lists, wanted = scan.predecessors()[H:], expected.predecessors()[H:]
    assert_same_lists(lists, wanted, covariance, Z[H:], Z)
    scan.close()
    assert scan._inducing is scan._kernel is scan._work is None


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("kernel", [RBF(2.0), ArcCosine(1)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_engine_searches_on_its_device_and_releases_the_memory(kernel, dtype, rng):
    Z, X = points_of("normal", dtype, rng)
    Z, X = Z[:-1], X[:5]
    run = CudaEngine(problem_of("rbf-white", "gaussian-2").model, 4, 1)
    struct = compile_kernel(kernel, 3, np.dtype(dtype)).struct
    expected = NeighborSearch(Z, struct, n_neighbors=4).query(X)
    search = NeighborSearch(Z, struct, n_neighbors=4, make_scan=run.make_scan)
    np.testing.assert_array_equal(search.query(X), expected)
    (scan,) = run.holders
    assert isinstance(scan, device_scan.DeviceScan)
    assert len(scan._work) == (2 if isinstance(kernel, RBF) else 4)
    run.close()
    assert scan._inducing is scan._kernel is scan._work is None
