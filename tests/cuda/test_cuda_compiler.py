"""Every kernel compiled to PTX, in both precisions and without a GPU."""

import re

import numba
import numpy as np
import pytest
from helpers import make_problem
from simulator import SIMULATED, needs_gpu, needs_package
from sklearn.gaussian_process.kernels import RBF

from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.products import tiled
from skswsgp._covariance.program import kernel_of
from skswsgp._point.adam_step import make_optimizer
from skswsgp._point.state import allocate_gradients, allocate_workspace
from skswsgp.cuda import arrays, kernels, products, row_matrix, runtime, scan
from skswsgp.cuda.compiler import cached_kernel, specialized

MODULES = kernels, scan, row_matrix, products, arrays
DOUBLE = "scan_segments", "matvec_kernel", "rmatvec_kernel", "add_results"
DOUBLE += ("set_products",)
# Types of the entries that a kernel stores, where it is not the dtype of the model
STORES = {
    "claim_rows": ".u64",
    "merge_heaps": ".u32",
    "put_lists": ".u32",
}
STORES |= dict.fromkeys(DOUBLE, ".f64")
# Kernels whose threads have a task each, so that no team adds up in shared memory
ALONE = ["scan_values", "scan_segments", "merge_heaps", "repeat_row"]
ALONE += ["take_rows", "put_lists", "claim_rows", "update_rows"]


def arguments(dtype):
    """Return arguments of each kernel; only their types matter."""
    rng = np.random.default_rng(0)
    problem = make_problem(RBF(), "gaussian", 2, full=False, rng=rng, dtype=dtype)
    model, batch = problem.model, problem.batch
    H, n = batch.active.shape[1], len(batch.X)
    work, grads = allocate_workspace(model, H, 3), allocate_gradients(model, n, H)
    optimizer = make_optimizer(model, np.ones(1, bool), np.zeros((1, 2)), np.ones(2))

    def zeros(*shape, dtype=dtype):
        return np.zeros(shape, dtype)

    index, jitter_counts, sums = (
        zeros(3, dtype="i8"),
        zeros(3, 2, dtype="i8"),
        np.zeros(2),
    )
    rows = kernels.DeviceTouchedRows(
        slot=index,
        touched=index,
        count=index,
        uses=zeros(3, 2, dtype="u8"),
        d_m=zeros(3, 2),
        d_s=zeros(3, 2),
        d_Z=zeros(3, 2),
        d_L=zeros(3, 2, 2),
    )
    uses, mu, slopes = (batch.active, 0, n, 0), zeros(n, 2), zeros(n, 2, 2)
    points, own = (model, work, n, batch.X), (zeros(n), mu, mu)
    keys, lists = np.asfortranarray(zeros(3, 4, dtype="f8")), zeros(3, 4, dtype="i4")
    heaps = 3, 0, 1, keys, np.asfortranarray(lists)
    values = np.asfortranarray(zeros(3, 2, 4))
    vectors = [zeros(n, dtype="f8")] * 3
    tile, u = tiled(np.zeros((3, 2))), zeros(2, 4, dtype="f8")
    blocks = products.BlockWork(*[zeros(3, 2, 4, dtype="f8")] * 3)
    return {
        "matvec_kernel": (lists, mu, False, *vectors),
        "rmatvec_kernel": (index, lists[:, 0].copy(), mu, False, *vectors[:2]),
        "set_products": (
            compile_kernel(RBF(), 2, np.float64).struct,
            blocks,
            tile,
            0,
            n,
            tile,
            u,
            False,
            u,
        ),
        "kriging_gradients": (model, batch, 0, n, work, zeros(n, 4, dtype="f8")),
        "add_results": (zeros(n, 4, dtype="f8"), n),
        "kriging_slopes_rows": (*points, batch.active, slopes, mu, jitter_counts),
        "scan_values": (
            kernel_of(model),
            np.asfortranarray(mu),
            mu,
            *heaps[:3],
            values,
            values,
            *heaps[3:],
        ),
        "scan_segments": (np.asfortranarray(mu), mu, *heaps),
        "merge_heaps": (3, *heaps, lists),
        "repeat_row": (mu[0].copy(), mu),
        "take_rows": (batch, index, n, batch),
        "put_lists": (lists, index, lists),
        "claim_rows": (*uses, rows),
        "gradients": (model, batch, 0, n, work, grads, rows),
        "add_up": (model, optimizer, *uses, sums, grads, rows, sums),
        "update_rows": (model, optimizer, 0, sums, rows),
        "weights_rows": (*points, batch.active, True, slopes, mu, jitter_counts),
        "expectation_rows": (model, work, n, mu, mu, mu, *own, jitter_counts),
        "bound_rows": (*points, batch.y, batch.active, sums, sums, jitter_counts),
    }


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("float64", marks=pytest.mark.slow),  # half a minute each
        pytest.param("float32", marks=pytest.mark.full),
    ],
)
def test_each_kernel_compiles_to_ptx(monkeypatch, dtype):
    from numba.cuda import dispatcher

    class Device:
        compute_capability = (7, 5)

    monkeypatch.setattr(dispatcher, "get_current_device", Device)
    try:
        runtime.cuda.compile_ptx(nothing, (numba.float64[::1],), cc=(7, 5))
    except Exception as error:
        pytest.skip(f"not even an empty kernel compiles: {runtime.last_line(error)}")
    calls = arguments(dtype)
    launched = {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if is_kernel(value)
    }
    assert launched.keys() == calls.keys()
    kind = ".f32" if dtype == "float32" else ".f64"
    for name, values in calls.items():
        ptx = ptx_of(launched[name], values)
        assert ".entry" in ptx
        assert f"st{STORES.get(name, kind)}" in ptx
        sums = {} if name in ALONE else {"skswsgp_parts": 8 * runtime.WARP}
        assert shared_arrays(ptx) == sums


@needs_gpu
@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_kernels_are_read_from_the_cache():
    function = arrays.repeat_row.py_func
    types = tuple(map(numba.typeof, (np.zeros(3), np.zeros((2, 3)))))
    cached_kernel(function).compile(types)
    again = cached_kernel(function)
    again.compile(types)
    assert sum(again.stats.cache_hits.values()) == 1
    launched = specialized(again, (np.zeros(3), np.zeros((2, 3))))
    assert launched is specialized(again, (np.ones(3), np.ones((5, 2))))


def ptx_of(kernel, values):
    """Return the PTX of a kernel for the types of these values."""
    ptx, _ = runtime.cuda.compile_ptx(
        kernel.py_func,
        tuple(numba.typeof(value) for value in values),
        cc=(7, 5),
        opt=False,  # the compiler takes minutes over the rest
    )
    return ptx


def shared_arrays(ptx):
    """Return the bytes of each array in shared memory."""
    found = re.findall(r"\.shared \.align 8 \.b8 (\w+)\[(\d+)\]", ptx)
    assert len(found) == len(re.findall(r"\.shared \.align", ptx))
    return {name: int(size) for name, size in found}


def nothing(values):
    values[0] = 1.0


def is_kernel(value):
    """Return whether a value is a kernel of numba-cuda."""
    if not type(value).__module__.startswith("numba.cuda"):
        return False
    return hasattr(value, "py_func") and not value.targetoptions.get("device")
