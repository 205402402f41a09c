"""Every body compiled to PTX, for the arguments that the engine gives it."""

import ast
from pathlib import Path

import numba
import numpy as np
import pytest
from cuda_problems import check_evaluation, check_kriging, check_steps, problem_of
from numba import types
from sklearn.gaussian_process.kernels import RBF

import skswsgp.cuda
from skswsgp._covariance.compile import compile_kernel
from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp.cuda import device as gpu
from skswsgp.cuda.compiler import flat, kernel_of
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.row_matrix import place_matrix
from skswsgp.cuda.scan import DeviceScan

pytestmark = pytest.mark.skipif(
    gpu.cuda is None, reason="the package numba-cuda is not installed"
)
# Types of the entries that a body stores, where it is not the dtype of the model
DOUBLE = "scan_segment", "multiply_row", "multiply_column", "fill_cross_pair"
STORES = {"merge_heaps": ".u32", **dict.fromkeys(DOUBLE, ".f64")}


def names_of_bodies():
    """Return the names of all bodies of the package."""
    found = set()
    for path in Path(skswsgp.cuda.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(one) for one in node.decorator_list]
                found |= {node.name} if marks == ["body"] else set()
    return found


@pytest.fixture
def launches(device, monkeypatch):
    """Return a dictionary that takes the types of the arguments of each launch."""
    found, prepare = {}, device.prepare

    def noted(body, n, *arguments):
        found[body] = type_of(arguments)
        return prepare(body, n, *arguments)

    monkeypatch.setattr(device, "prepare", noted)
    return found


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("float64", marks=pytest.mark.slow),  # half a minute each
        pytest.param("float32", marks=pytest.mark.full),
    ],
)
@pytest.mark.usefixtures("small_matrices_placed")
def test_each_body_compiles_to_ptx(launches, device, monkeypatch, dtype, rng):
    from numba.cuda import dispatcher

    class Device:
        compute_capability = (7, 5)

    monkeypatch.setattr(dispatcher, "get_current_device", Device)
    try:
        gpu.cuda.compile_ptx(nothing, (numba.float64[::1],), cc=(7, 5))
    except Exception as error:
        pytest.skip(f"not even an empty kernel compiles: {gpu.last_line(error)}")
    launch_all(device, dtype, rng)
    assert {body.__name__ for body in launches} == names_of_bodies()
    real = ".f32" if dtype == "float32" else ".f64"
    for body, kinds in launches.items():
        given = types.int64, kinds
        function = kernel_of(body).py_func
        ptx, _ = gpu.cuda.compile_ptx(function, given, cc=(7, 5), opt=False)
        assert ".entry" in ptx
        assert f"st{STORES.get(body.__name__, real)}" in ptx
        assert ".shared" not in ptx


def type_of(arguments):
    """Return the type of arguments of a launch, arrays of either device."""
    if isinstance(arguments, tuple):
        kinds = tuple(map(type_of, arguments))
        return types.BaseTuple.from_types(kinds, type(arguments))
    if hasattr(arguments, "__cuda_array_interface__"):
        return flat(arguments)[0]
    return numba.typeof(arguments)


def launch_all(device, dtype, rng):
    """Launch each body of the package."""
    check_evaluation(problem_of("rbf-white", "gaussian-2", dtype=dtype))
    for full in (False, True):
        check_steps(kernel="rbf-white", likelihood="softmax", full=full, dtype=dtype)
    check_kriging("rbf-white", dtype=dtype)
    Z, u = rng.normal(size=(50, 2)).astype(dtype), rng.normal(size=(50, 1))
    struct = compile_kernel(RBF(), 2, np.dtype(dtype)).struct
    for kernel in (None, struct):
        DeviceScan(device, Z, 3, kernel).predecessors()
    double = compile_kernel(RBF(), 2, np.float64).struct
    DeviceProducts(device, double, Z).multiply(Z, u)
    lists = rng.integers(50, size=(50, 3), dtype=np.int32)
    rows = SparseRowMatrix(lists, rng.normal(size=(50, 3)).astype(dtype), 50, 1)
    place_matrix(device, rows, set()).normal_matvec(u, u)


def nothing(values):
    values[0] = 1.0
