"""The CUDA engine compared with the CPU, in the simulator or on a GPU, and as PTX.

Without a GPU the tests of kernels are skipped in the ordinary run. They run in a
process of their own, in which numba-cuda simulates a GPU.
"""

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from helpers import ADAM, assert_close, make_problem
from numpy.random import RandomState
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from small_models import adam_settings

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import cuda_arrays, cuda_compiler, cuda_runtime, team
from skswsgp._compiled.cuda_arrays import repeat_row
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.program import kernel_of, refresh_scales
from skswsgp._engine import cuda, cuda_batches, cuda_workspace, select
from skswsgp._engine import cuda_kernels as kernels
from skswsgp._engine.cpu import CpuEngine
from skswsgp._engine.cuda import CudaEngine
from skswsgp._engine.cuda_triangle import SharedWorkspace, Triangle, row_offset
from skswsgp._engine.cuda_workspace import allocate_slot, bytes_in_shared
from skswsgp._initialization import kernel_learning, neighbor_likelihood
from skswsgp._linear import cuda_row_matrix
from skswsgp._linear import cuda_row_matrix as products
from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp._neighbors import cuda_scan
from skswsgp._neighbors import cuda_scan as searches
from skswsgp._neighbors.distance_scan import DistanceScan
from skswsgp._neighbors.kernel_scan import KernelScan
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.adam_step import make_optimizer
from skswsgp._point.state import Workspace, allocate_gradients, allocate_workspace
from skswsgp._solvers import adam
from skswsgp._solvers.data import TrainingRows
from skswsgp.kernels import ArcCosine, Polynomial

MISSING = cuda_runtime.missing()
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
needs_gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU: {MISSING}")
needs_package = pytest.mark.skipif(
    cuda_runtime.cuda is None, reason="the package numba-cuda is not installed"
)

KERNELS = {
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "matern12": Matern(1.3, nu=0.5),
    "matern32-power": Matern(0.9, nu=1.5) ** 1.5,
    "matern52-ard": ConstantKernel(1.4) * Matern([0.8, 1.7, 1.1, 2.0, 1.5], nu=2.5),
    "rational": RationalQuadratic(1.1, 0.8),
    "dot-product": DotProduct(0.5) + WhiteKernel(0.5),
    "polynomial": Polynomial(3, [1.5, 2.0, 3.0, 2.5, 3.5], 0.9),
    "arc-cosine-0": ArcCosine(0, 1.3, 0.7),
    "arc-cosine-1": ArcCosine(1, 1.3, 0.7),
}
KERNELS["all"] = sum(KERNELS.values(), start=ConstantKernel(0.1))
LIKELIHOODS = {
    "gaussian-2": ("gaussian", 2),
    "bernoulli": ("bernoulli", 1),
    "softmax": ("softmax", 3),
}


class Turns:
    """A simulated team whose threads run one after the other between two barriers.

    If a thread reads an entry that another thread writes between the same barriers, the
    result depends on their order, so it differs between forwards and backwards. Threads
    that have ended are left out, even if others wait for them at a barrier.
    """

    def __init__(self, backwards):
        self.backwards = backwards
        self.team = cuda_compiler.SimulatedTeam()

    def rank(self):
        rank, size = self.team.rank()
        if size > 1:
            self._wait(*self._block(rank, size))
        return rank, size

    def barrier(self):
        rank, size = self.rank()
        if size > 1:
            block, order, size = self._block(rank, size)
            with block["lock"]:
                threading.current_thread().stretch += 1
                self._pass_on(block, size)
            self._wait(block, order, size)

    def sum(self, value):
        rank, size = self.rank()
        if size == 1:
            return value
        block, _, _ = self._block(rank, size)
        self.barrier()
        block["parts"][rank] = value
        self.barrier()
        parts = [block["parts"][i] for i in range(size)]
        self.barrier()
        return sum(parts[1:], parts[0])

    def _block(self, rank, size):
        """Return the state of the block, the thread's place in the order, the size."""
        thread = threading.current_thread()
        block = vars(thread._manager).get("block")
        if block is None:
            block = {"turn": 0, "lock": threading.Lock(), "parts": {}, "threads": {}}
            wake = [threading.Condition(block["lock"]) for _ in range(size)]
            block = vars(thread._manager).setdefault("block", block | {"wake": wake})
        order = size - 1 - rank if self.backwards else rank
        if order not in block["threads"]:
            thread.stretch = 0
            block["threads"][order] = thread
        return block, order, size

    def _wait(self, block, order, size):
        thread = threading.current_thread()
        if block["turn"] == thread.stretch * size + order:
            return
        with block["lock"]:
            while block["turn"] != thread.stretch * size + order:
                current = block["threads"].get(block["turn"] % size)
                if current is not None and not current.is_alive():
                    self._pass_on(block, size)
                else:
                    block["wake"][order].wait(0.001)

    def _pass_on(self, block, size):
        block["turn"] += 1
        block["wake"][block["turn"] % size].notify()  # the next thread only


def engine_with(monkeypatch, size, backwards=False):
    """Return the class of the CUDA engine with small teams and several blocks."""

    if SIMULATED:
        monkeypatch.setattr(cuda_runtime, "WARP", size)
        for module in (cuda, cuda_arrays):
            monkeypatch.setattr(module, "THREADS", 8)
        monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", 3)
        if size > 1:
            monkeypatch.setattr(team, "backend", Turns(backwards))
    monkeypatch.setattr(cuda_workspace, "team_size", lambda H: size)
    return cuda.CudaEngine


@pytest.fixture
def switching():
    """Let the simulator's threads, which wait for each other, switch quickly."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=[1] if SIMULATED else [1, 32, 64])
def engine(request, monkeypatch):
    """Return the class of the CUDA engine with teams of one thread, a warp or more."""
    return engine_with(monkeypatch, request.param)


@pytest.fixture(params=["forwards", "backwards"])
def engine_in_turns(request, monkeypatch, switching):
    """Return the class of the CUDA engine with simulated teams that run in `Turns`."""
    return engine_with(monkeypatch, 16, request.param == "backwards")


def problem_of(kernel, likelihood, *, full=False, dtype="float64", moving=True):
    """Return a problem whose H is larger than a tile of a matrix."""
    rng = np.random.default_rng(0)
    name, Q = LIKELIHOODS[likelihood]
    problem = make_problem(
        KERNELS[kernel], name, Q, full=full, rng=rng, dtype=dtype, **SIZES
    )
    return problem.replace(jitter=1e-3, train_inducing=moving)


SIZES = {"D": 5, "M": 14, "H": 9, "n": 4}
if not SIMULATED:
    SIZES = {"D": 5, "M": 300, "H": 40, "n": 200}
NATURAL = {"solver": "natural", "init": "default"}
ROUNDINGS = 1e5  # K has condition numbers up to 1e4, and Adam divides by derivatives


def check_steps(engine, **options):
    """Compare the engines after steps of Adam: models, moments and sums."""
    states = []
    for kind in (CpuEngine, engine):
        problem = problem_of(**options)
        model, batch = problem.model, problem.batch
        P, D, H = len(model.params), model.Z.shape[1], batch.active.shape[1]
        run = kind(model, H, 1)
        bounds = np.tile([-5.0, 5.0], (P, 1))
        run.prepare_training(len(batch.X) // 2, np.ones(P, bool), bounds, np.ones(D))
        run.steps(batch, len(batch.X) // 2, np.array([0.05, 0.04]))
        sums = run.finish_epoch()
        model, moments = run.model, run.optimizer
        values = model.params, model.noise, model.m, model.s, model.L, model.Z
        states.append(
            (sums, *values, moments.m, moments.params, run.jitter_counts.sum(0))
        )
        run.close()
    dtype = options.get("dtype", "float64")
    for expected, actual in zip(*states, strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


@needs_gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_for_each_kernel(engine, kernel):
    check_steps(engine, kernel=kernel, likelihood="bernoulli")


@needs_gpu
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_steps_for_each_likelihood(engine, likelihood, full):
    check_steps(engine, kernel="matern52-ard", likelihood=likelihood, full=full)


@needs_gpu
@pytest.mark.parametrize("moving", [False, True])
def test_steps_in_float32(engine, moving):
    options = {"kernel": "rbf-white", "likelihood": "gaussian-2", "moving": moving}
    check_steps(engine, dtype="float32", **options)


@needs_gpu
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_evaluation(engine, likelihood, full):
    check_evaluation(engine, problem_of("matern52-ard", likelihood, full=full))


needs_simulator = pytest.mark.skipif(not SIMULATED, reason="no simulator to take turns")


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
    engine_in_turns, kernel, likelihood, full
):
    check_steps(engine_in_turns, kernel=kernel, likelihood=likelihood, full=full)


@needs_simulator
def test_barriers_separate_writes_and_reads_in_evaluation(engine_in_turns):
    problem = problem_of("rbf-white", "gaussian-2", full=True)
    check_evaluation(engine_in_turns, problem.replace(rows=[0, 1]))


def check_evaluation(engine, problem):
    """Compare the evaluation of rows on both engines."""
    X, active, H = problem.batch.X, problem.batch.active, problem.batch.active.shape[1]
    cpu, gpu = CpuEngine(problem.model, H, 1), engine(problem.model, H, 1)
    q = cpu.predict(X, active, with_variance=True)
    calls = [
        lambda run: run.predict(X, active, with_variance=True),
        lambda run: run.predict(X, active, with_variance=False)[:1],
        lambda run: run.conditional_weights(X, active),
        lambda run: run.inverse_covariances(X, active),
        lambda run: run.bound(problem.batch),
        lambda run: run.variational_expectations(problem.batch.y, *q),
    ]
    for call in calls:
        for actual, expected in zip(call(gpu), call(cpu), strict=True):
            assert_close(actual, expected, roundings=ROUNDINGS)
    gpu.close()


# --- systems of the natural solver ----------------------------------------------------


@pytest.fixture
def small_matrices_placed(monkeypatch):
    """Place small matrices on the device, with several rows for each block."""

    monkeypatch.setattr(cuda_row_matrix, "LEAST_ENTRIES", 0)
    monkeypatch.setattr(cuda_row_matrix, "MAX_BLOCKS", 3)
    return cuda_row_matrix


def sparse_matrix(rng, dtype="float64"):
    """Return a matrix with repeated columns in its rows and an empty last column."""
    lists = rng.integers(8, size=(23, 4), dtype=np.int32)
    return SparseRowMatrix(lists, rng.normal(size=(23, 4)).astype(dtype), 9, 1)


def check_products(module, rng, dtype, Q):
    """Compare products on the host and on the device."""
    rows, holders = sparse_matrix(rng, dtype), set()
    u, v = rng.normal(size=(9, Q)), rng.normal(size=(23, Q))
    held = module.place_matrix(rows, holders)
    close = partial(assert_close, roundings=100)
    square = partial(assert_close, roundings=100, dtype=dtype)
    for here, there in [(rows, held), (rows.scaled(0.3), held.scaled(0.3))]:
        assert isinstance(there, module.DeviceRowMatrix)
        close(there.matvec(u), here.matvec(u))
        close(there.rmatvec(v), here.rmatvec(v))
        assert not there.rmatvec(v)[-1].any()
        close(there.normal_matvec(v, u), here.normal_matvec(v, u))
        square(there.matvec(u, squares=True), here.matvec(u, squares=True))
        square(there.rmatvec(v, squares=True), here.rmatvec(v, squares=True))
        close(there.weighted_gram(v[:, 0]), here.weighted_gram(v[:, 0]))
    assert len(holders) == 2
    for holder in holders:
        holder.close()
        assert not any(is_on_device(value) for value in vars(holder).values())


@needs_gpu
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("Q", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_with_sparse_rows(small_matrices_placed, rng, dtype, Q):
    check_products(small_matrices_placed, rng, dtype, Q)


@needs_simulator
@pytest.mark.usefixtures("engine_in_turns")
def test_barriers_separate_writes_and_reads_in_products(small_matrices_placed, rng):
    check_products(small_matrices_placed, rng, "float64", 2)


@needs_gpu
@pytest.mark.usefixtures("engine")
def test_solves_and_quadratic_forms_are_left_to_the_cpu(small_matrices_placed, rng):
    lists = np.array([[0, 1, 0], [0, 2, 1], [0, 1, 2]], np.int32)  # triangular
    weights = np.array([[0, 0, 2.0], [0.3, 0, 1.5], [0.4, -0.2, 0.7]])
    rows = SparseRowMatrix(lists, weights, 3, 1)
    held, L = (
        small_matrices_placed.place_matrix(rows, set()),
        np.tril(rng.normal(size=(3, 3))),
    )
    A, u = rows.matvec(np.eye(3)), rng.normal(size=(3, 2))
    np.testing.assert_allclose(A.T @ A @ held.solve(u), u)
    np.testing.assert_allclose(held.quadratic_forms(L), np.sum((A @ L) ** 2, axis=1))


@needs_gpu
@pytest.mark.usefixtures("engine")
def test_small_matrices_and_those_without_room_stay_on_the_host(rng, monkeypatch):

    rows, holders, send = sparse_matrix(rng), set(), cuda_arrays.send_array
    assert cuda_row_matrix.place_matrix(rows, holders) is rows
    monkeypatch.setattr(cuda_row_matrix, "LEAST_ENTRIES", rows.lists.size)
    monkeypatch.setattr(
        cuda_runtime, "free_memory", lambda: 4 * 16 * rows.lists.size - 1
    )
    assert cuda_row_matrix.place_matrix(rows, holders) is rows and not holders
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 4 * 16 * rows.lists.size)
    sent = []

    def run_out(array, what):
        if len(sent) == 3:
            raise MemoryError(what)
        sent.append(weakref.ref(send(array, what)))
        return sent[-1]()

    monkeypatch.setattr(cuda_row_matrix, "send_array", run_out)
    assert cuda_row_matrix.place_matrix(rows, holders) is rows
    gc.collect()
    assert [each() for each in sent] == [None] * 3


# --- the factor R in shared memory ----------------------------------------------------


@pytest.fixture
def no_shared(monkeypatch):
    """Keep the factors R in global memory, as is done where H is large."""
    monkeypatch.setattr(cuda_runtime, "SHARED_BYTES", 0)


@needs_gpu
@pytest.mark.usefixtures("no_shared")
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_steps_in_global_memory(engine, full):
    check_steps(engine, kernel="all", likelihood="gaussian-2", full=full)


@needs_gpu
@pytest.mark.usefixtures("no_shared")
def test_evaluation_in_global_memory(engine):
    check_evaluation(engine, problem_of("matern52-ard", "gaussian-2"))


@needs_simulator
@pytest.mark.usefixtures("no_shared")
def test_barriers_separate_writes_and_reads_in_global_memory(engine_in_turns):
    problem = problem_of("rbf-white", "bernoulli")
    check_steps(engine_in_turns, kernel="rbf-white", likelihood="bernoulli")
    check_evaluation(engine_in_turns, problem.replace(rows=[0, 1]))


@needs_gpu
@pytest.mark.parametrize("room", [True, False])
def test_the_factor_is_shared_if_it_fits(engine, monkeypatch, room, dtype):
    problem = problem_of("rbf-white", "gaussian-2", dtype=dtype.name)
    X, active = problem.batch.X, problem.batch.active
    size = bytes_in_shared(active.shape[1], dtype.itemsize, 1)
    monkeypatch.setattr(cuda_runtime, "SHARED_BYTES", size if room else size - 1)
    run = engine(problem.model, active.shape[1], 1)
    run.inverse_covariances(X, active)
    chol = run._pool.work.chol
    assert chol.size == 0 if room else chol.copy_to_host().any()
    run.close()


@needs_simulator
@pytest.mark.usefixtures("switching")
def test_each_team_of_a_block_has_its_own_triangle(engine, monkeypatch):
    """A block of two teams of one thread."""
    problem = problem_of("rbf-white", "gaussian-2").replace(rows=[0, 1])
    H = problem.batch.active.shape[1]
    run, size = engine(problem.model, H, 1), bytes_in_shared(H, 8, 2)
    run._make_room(2)
    monkeypatch.setattr(run._pool, "launch", lambda n: (1, (1, 2), 0, size))
    check_evaluation(lambda *_: run, problem)


@pytest.mark.parametrize(
    ("H", "itemsize", "slots", "size"),
    [
        (1, 8, 1, 512),
        (100, 8, 1, 46_592),
        (104, 8, 1, 46_592),
        (105, 8, 1, 0),
        (128, 4, 1, 34_816),
        (152, 4, 1, 48_640),
        (153, 4, 1, 0),
        (72, 8, 2, 46_080),
        (73, 8, 2, 0),
        (8, 8, 95, 48_640),
        (8, 8, 96, 0),  # without the parts of sums it would have room
    ],
)
def test_bytes_in_shared_memory(H, itemsize, slots, size):
    assert bytes_in_shared(H, itemsize, slots) == size
    assert size + cuda_runtime.PARTIAL_SUMS_BYTES <= 48 * 1024


@pytest.mark.parametrize("side", [8, 16, 104])
def test_a_triangle_stores_the_lower_tiles_in_order(side):
    triangle = Triangle(np.zeros(row_offset(side)), side)
    for i in range(side):
        for j in range(i // 8 * 8 + 8):
            triangle[i, j] += 1.0 + i * side + j
    expected = [i * side + j for i in range(side) for j in range(i // 8 * 8 + 8)]
    np.testing.assert_array_equal(triangle.values, np.add(expected, 1.0))
    for i, j in [(7, 8), (side - 9, side - 8), (side, 0), (0, -1)]:
        with pytest.raises(IndexError, match="no entry of a triangle"):
            triangle[i, j]


@needs_gpu
def test_steps_repeat_to_the_bit(engine):
    models = []
    for _ in range(2):
        problem = problem_of("matern52-ard", "gaussian-2")
        n, H = problem.batch.active.shape
        run = engine(problem.model, H, 1)
        P, D = len(problem.model.params), problem.model.Z.shape[1]
        run.prepare_training(n, np.ones(P, bool), np.zeros((P, 2)), np.ones(D))
        run.steps(problem.batch, n, np.array([0.1]))
        models.append(run.model)
        run.close()
    for first, second in zip(*models, strict=True):
        np.testing.assert_array_equal(first, second)


@needs_gpu
def test_extra_jitter_and_failures_are_counted(engine):
    problem = problem_of("matern52-ard", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    Z = np.repeat(problem.model.Z[:1], len(problem.model.Z), axis=0)
    run = engine(problem.replace(Z=Z, jitter=1e-18).model, active.shape[1], 1)
    run.predict(X, active, with_variance=True)
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [len(X), 0])
    lost = np.full_like(problem.model.params, np.nan)
    run = engine(problem.replace(params=lost).model, active.shape[1], 1)
    mu, v = run.predict(X, active, with_variance=True)
    assert np.isnan(mu).all() and np.isnan(v).all()
    np.testing.assert_array_equal(run.jitter_counts.sum(axis=0), [0, len(X)])


# --- kriging --------------------------------------------------------------------------


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
            model.params[:] *= 1.1
            model.noise[:] *= 0.8
            refresh_scales(model)
        run.close()
    half = len(results) // 2
    for expected, actual in zip(results[:half], results[half:], strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


@needs_gpu
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("kernel", KERNELS)
def test_kriging_for_each_kernel(kernel):
    check_kriging(kernel)


@needs_gpu
@pytest.mark.usefixtures("engine")
def test_kriging_in_float32():
    check_kriging("rbf-white", Q=1, dtype="float32")


@needs_simulator
@pytest.mark.usefixtures("engine_in_turns")
def test_barriers_separate_writes_and_reads_in_kriging():
    check_kriging("all", n=2)


@needs_gpu
@pytest.mark.usefixtures("engine")
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


@needs_simulator
@pytest.mark.usefixtures("engine")
def test_kriging_gradients_use_work_arrays_that_a_prediction_replaced(monkeypatch):

    problem = problem_of("matern52-ard", "gaussian-2")
    batch = problem.batch._replace(y=np.hstack([problem.batch.y] * 2) ** 2)
    n, H = batch.active.shape
    run = CudaEngine(problem.model, H, 1)
    monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", 1)
    run.load_kriging(batch, n)
    first = run.kriging_gradients(0).d_log.copy()
    monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", n)
    run.kriging_predictions(batch.X, batch.active)  # in n slots
    np.testing.assert_array_equal(run.kriging_gradients(0).d_log, first)
    assert len(run._pool) == n


@needs_gpu
@pytest.mark.usefixtures("engine")
def test_kriging_sends_its_data_once():

    problem = problem_of("rbf-white", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    run = CudaEngine(problem.model, active.shape[1], 1)
    run.kriging_predictions(X, active)
    there = run._device_model
    problem.model.Z[:] = np.nan  # the device has its own copy
    mu, v = run.kriging_predictions(X, active)
    assert run._device_model is there
    assert np.isfinite(mu).all() and np.isfinite(v).all()


# --- rows of training data ------------------------------------------------------------


@pytest.fixture(params=["resident", "streamed"])
def batches(request, monkeypatch):
    """Keep training rows on the device, or stream them."""

    if request.param == "streamed":
        monkeypatch.setitem(cuda_runtime.MEMORY_FRACTIONS, "training rows", 0.0)
    monkeypatch.setattr(cuda_batches, "ROWS_AT_ONCE", 4)
    if SIMULATED:
        monkeypatch.setattr(cuda_batches, "THREADS", 5)
    return request.param


class CountedRows(np.ndarray):
    """Inputs that store how many rows were copied at once, at most."""

    largest = 0

    def __getitem__(self, index):
        out = super().__getitem__(index)
        CountedRows.largest = max(CountedRows.largest, len(np.atleast_2d(out)))
        return np.asarray(out)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_epochs_equal_those_on_the_cpu(batches, monkeypatch):
    """An epoch has blocks of 2, 2 and 1 steps; lists change as Z moves."""

    monkeypatch.setattr(adam, "STEPS_PER_BLOCK", 2)
    monkeypatch.setattr(CountedRows, "largest", 0)
    results = []
    for kind in (CpuEngine, cuda.CudaEngine):
        rng = np.random.default_rng(0)
        problem = make_problem(
            RBF(1.2), "gaussian", 2, full=False, rng=rng, D=3, M=14, H=4, n=21
        )
        model, (X, y, weight, _) = problem.replace(jitter=1e-3).model, problem.batch
        data = TrainingRows(X.view(CountedRows), y, weight, center=np.full(3, 0.1))
        data = data.take(np.arange(1, 21)[::-1])
        run = kind(model, 4, 1)
        kernel = RBF(1.2, (np.exp(-5.0), np.exp(5.0)))
        settings = adam_settings(2, batch_size=4, learning_rate=0.2, max_iter=3)
        scale, rng = np.ones(3), RandomState(0)
        solver = adam.AdamSolver(run, data, kernel, settings, rng, scale)
        values = [solver.advance(epoch) for epoch in range(3)]
        model = run.model
        state = model.params, model.noise, model.m, model.s, model.Z
        results.append((*state, values, solver.search.version))
        run.close()
    for expected, actual in zip(*results, strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS)
    assert results[0][-1] > 1
    assert CountedRows.largest == 8  # two steps of four rows


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_failures_are_noticed_when_the_epoch_ends():

    problem = problem_of("rbf-white", "gaussian-2", moving=False)
    lost = problem.replace(noise=np.full(2, np.nan))
    n, H = problem.batch.active.shape
    run = cuda.CudaEngine(lost.model, H, 1)
    P, D = len(lost.model.params), lost.model.Z.shape[1]
    run.prepare_training(n, np.zeros(P, bool), np.zeros((P, 2)), np.ones(D))
    run.steps(problem.batch, n, np.array([0.1]))
    assert np.isnan(run.finish_epoch()[0])
    assert (run.finish_epoch() == 0.0).all()
    data = TrainingRows(*problem.batch[:3], center=np.zeros(D))
    settings = adam_settings(2, batch_size=n // 2 + 1, neighbor_metric="euclidean")
    rng, scale = RandomState(0), np.ones(D)
    solver = adam.AdamSolver(run, data, lost.kernel, settings, rng, scale)
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        solver.advance(0)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_a_kernel_snapshot_leaves_the_model_on_the_device(monkeypatch):

    problem = problem_of("rbf-white", "bernoulli")
    n, H = problem.batch.active.shape
    before = problem.model.Z.copy(), problem.model.params.copy()
    run = cuda.CudaEngine(problem.model, H, 1)
    P, D = len(problem.model.params), problem.model.Z.shape[1]
    run.prepare_training(n, np.ones(P, bool), np.tile([-5.0, 5.0], (P, 1)), np.ones(D))
    run.steps(problem.batch, n, np.array([0.1]))
    seen = run.kernel_snapshot()
    assert np.abs(seen.Z - before[0]).max() > 0.05
    assert np.abs(seen.params - before[1]).min() > 0.01
    there = run._device_model
    monkeypatch.setattr(cuda, "send", lambda struct, what: struct)
    assert run._send_model() is there and run._newest == "device"


class LateGpu:
    """A GPU whose streams do nothing until somebody waits for them.

    With `eager`, copies are made as soon as the stream allows them.
    """

    def __init__(self, eager):
        self.eager = eager

    def stream(self):
        return LateStream()

    def event(self):
        return LateEvent(self)

    def pinned_array(self, shape, dtype):
        return np.zeros(shape, dtype)

    def device_array(self, shape, dtype, order="C"):
        return LateArray(np.zeros(shape, dtype), self)


class LateStream:
    def __init__(self):
        self.tasks, self.done = [], 0

    def run(self, last):
        while self.done < last:
            self.done += 1
            self.tasks[self.done - 1]()


class LateEvent:
    def __init__(self, gpu):
        self.gpu, self.stream, self.mark = gpu, None, 0

    def record(self, stream):
        self.stream, self.mark = stream, len(stream.tasks)

    def synchronize(self):
        if self.stream is not None:
            self.stream.run(self.mark)

    def wait(self, stream):
        known = self.stream, self.mark
        stream.tasks.append(lambda: known[0] and known[0].run(known[1]))


class LateArray:
    def __init__(self, values, gpu):
        self.values, self.gpu = values, gpu

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return LateArray(self.values[part], self.gpu)

    def copy_to_device(self, array, stream):
        def copy():
            self.values[:] = array

        stream.tasks.append(copy)
        if self.gpu.eager:
            stream.run(len(stream.tasks))


@needs_package
@pytest.mark.parametrize("eager", [False, True])
def test_no_array_of_the_double_buffer_is_overwritten_too_early(monkeypatch, eager):
    """The work sees the arrays sent for it, whenever copies and work are done."""

    gpu = LateGpu(eager)
    for module in (cuda_batches, cuda_arrays):
        monkeypatch.setattr(module, "cuda", gpu)
    work, seen = gpu.stream(), []
    buffer = cuda_batches.DoubleBuffer(work)
    for k in range(7):
        (there,) = buffer.send(np.full(3 if k < 5 else 4, float(k)))
        work.tasks.append(lambda there=there: seen.append(there.values[:3].copy()))
        assert len(seen) < 3 or k > 3  # the host is ahead of the work
    work.run(len(work.tasks))
    np.testing.assert_array_equal(seen, np.repeat(np.arange(7.0), 3).reshape(7, 3))


# --- neighbours -----------------------------------------------------------------------


@pytest.fixture(params=[(1, 2**40), (1000, 2**40), (1000, 9000)])
def device_search(request, monkeypatch):
    """Return the module with one heap, with many, and with memory for few."""

    heaps, free = request.param
    monkeypatch.setattr(cuda_scan, "HEAPS", heaps)
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: free)
    if SIMULATED:
        monkeypatch.setattr(cuda_scan, "THREADS", 5)
    return cuda_scan


def points_of(kind, dtype, rng):
    """Return inducing points and rows, some of them far away."""
    if kind == "grid":  # ties, of distances without rounding
        points = rng.integers(0, 3, size=(80, 3)) - 1.0
    else:
        points = rng.normal(size=(80, 3))
        points[-1] *= 1e12  # beyond what float32 can tell apart
    return points[:61].astype(dtype), points[50:].astype(dtype)


@needs_gpu
@pytest.mark.parametrize("kind", ["grid", "normal"])
@pytest.mark.parametrize("H", [1, 3, 60])
def test_the_distance_scan_finds_the_lists_of_the_cpu(
    device_search, kind, H, dtype, rng
):
    Z, X = points_of(kind, dtype, rng)
    expected = DistanceScan(Z, H, 1)
    scan = device_search.DeviceDistanceScan(Z, H)
    for rows in (X[:7], X, X[:0]):
        np.testing.assert_array_equal(scan.find(rows), expected.find(rows))
    lists = scan.predecessors()
    assert lists.dtype == np.int32
    np.testing.assert_array_equal(lists[H:], expected.predecessors()[H:])


@needs_gpu
def test_an_engine_searches_on_its_device_and_releases_the_memory(
    engine, monkeypatch, rng
):

    Z, X = points_of("normal", "float64", rng)
    scans = []

    class Counted(cuda_scan.DeviceDistanceScan):
        def __init__(self, *args):
            scans.append(self)
            super().__init__(*args)

    monkeypatch.setattr(cuda_scan, "DeviceDistanceScan", Counted)
    run = engine(problem_of("rbf-white", "gaussian-2").model, 4, 1)
    struct = compile_kernel(RBF(2.0), 3, np.dtype("float64")).struct
    expected = NeighborSearch(Z, struct, n_neighbors=4).query(X)
    search = NeighborSearch(Z, struct, n_neighbors=4, make_scan=run.make_scan)
    np.testing.assert_array_equal(search.query(X), expected)
    (scan,) = scans
    held = [name for name, value in vars(scan).items() if is_on_device(value)]
    assert held == ["_inducing", "_keys", "_indices"]
    run.close()
    assert not any(is_on_device(value) for value in vars(scan).values())


@needs_gpu
@pytest.mark.parametrize("kind", ["grid", "normal"])
@pytest.mark.parametrize("kernel", ["all", "arc-cosine-1"])
@pytest.mark.parametrize("H", [1, 3, 60])
def test_the_kernel_scan_finds_the_lists_of_the_cpu(
    device_search, monkeypatch, kind, kernel, H, rng
):
    monkeypatch.setattr(device_search, "LEAST_POINTS", 1)
    Z, X = points_of(kind, "float64", rng)
    Z, X = np.clip(Z, -9.0, 9.0), np.clip(X[:7], -9.0, 9.0)
    Z[40:50] = Z[:10]  # ties, whatever the rounding
    struct = compile_kernel(VALUES[kernel], 3, np.dtype("float64")).struct
    expected = KernelScan(struct, Z, H, 1)
    scan = device_search.make_scan(Z, H, 1, struct)
    for rows in (X[:2], X, X[:0]):
        np.testing.assert_array_equal(scan.find(rows), expected.find(rows))
    lists = scan.predecessors()
    np.testing.assert_array_equal(lists[H:], expected.predecessors()[H:])
    scan.close()
    assert not any(is_on_device(value) for value in vars(scan).values())


VALUES = {"arc-cosine-1": KERNELS["arc-cosine-1"]}
VALUES["all"] = DotProduct(0.5) + Matern([0.8, 1.7, 1.1], nu=1.5) * RBF(1.5)


@needs_gpu
def test_an_engine_scans_by_kernel_value_on_its_device(engine, rng):
    Z, X = points_of("normal", "float32", rng)
    run = engine(problem_of("rbf-white", "gaussian-2").model, 4, 1)
    struct = compile_kernel(ArcCosine(1), 3, np.dtype("float32")).struct
    expected = NeighborSearch(Z[:-1], struct, n_neighbors=4).query(X[:5])
    search = NeighborSearch(Z[:-1], struct, n_neighbors=4, make_scan=run.make_scan)
    np.testing.assert_array_equal(search.query(X[:5]), expected)
    scan = search._scan
    held = [name for name, value in vars(scan).items() if is_on_device(value)]
    assert held == ["_inducing", "_keys", "_indices", "_values", "_slopes"]
    run.close()
    assert scan._kernel is None
    assert not any(is_on_device(value) for value in vars(scan).values())


def is_on_device(value):
    """Return whether a value is an array of the device."""
    return hasattr(value, "copy_to_host")


# --- estimators -----------------------------------------------------------------------


@pytest.fixture
def small():
    """Return settings of a fit that takes seconds in the simulator."""
    return {"n_inducing": 12, "n_neighbors": 4, "random_state": 0, "n_jobs": 1}


@pytest.fixture
def few_threads(monkeypatch):
    """Use teams of one thread and few blocks in the simulator."""

    def repeat(array, n, what):
        return cuda_arrays.send_array(np.repeat(array, n, axis=0), what)

    if SIMULATED:
        monkeypatch.setattr(cuda_runtime, "WARP", 1)
        monkeypatch.setattr(cuda_workspace, "team_size", lambda H: 1)
        monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", 3)
        monkeypatch.setattr(cuda_scan, "THREADS", 16)
        monkeypatch.setattr(cuda_workspace, "repeat", repeat)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("options", [ADAM, NATURAL, NATURAL | {"covariance": "diag"}])
def test_a_fit_equals_that_on_the_cpu(
    small, options, rng, small_matrices_placed, monkeypatch
):
    products, method = [], small_matrices_placed.DeviceRowMatrix.normal_matvec

    def noted(held, *vectors):
        products.append(held.host.lists.shape)
        return method(held, *vectors)

    monkeypatch.setattr(small_matrices_placed.DeviceRowMatrix, "normal_matvec", noted)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    results = []
    for device in ("cpu", "cuda"):
        more = {"max_iter": 2, "batch_size": 10, "early_stopping": True}
        model = SWSGPRegressor(device=device, **small, **options, **more).fit(X, y)
        assert all(type(v).__module__ != "numba" for v in vars(model).values())
        other = "cpu" if device == "cuda" else "cuda"
        mu, std = model.set_params(device=other).predict(X, return_std=True)
        results.append((mu, std, model.lower_bound(X, y), model.validation_scores_))
    for first, second in zip(*results, strict=True):
        assert_close(second, first, roundings=ROUNDINGS)
    # products with the training rows and with the factor of the Vecchia prior
    assert len(set(products)) == (2 if "covariance" in options else 0)


@pytest.fixture
def short_start(monkeypatch, tune):
    """Shorten learning by kriging: fewer steps, rows and neighbours."""

    def process(model, H, *options):
        return neighbor_likelihood.NeighborProcess(model, min(H, 3), *options)

    steps = 4 if SIMULATED else 50
    sizes = dict.fromkeys(("COARSE_STEPS", "SITE_STEPS", "WIDE_STEPS"), steps)
    tune(learning_steps=steps, exact_rows=0)
    if SIMULATED:
        sizes |= {"MAX_HELD_OUT": 5, "SMOOTHNESS": (1.5, 0.5)}
        sizes["NeighborProcess"] = process
        monkeypatch.setattr(neighbor_likelihood, "BATCH_SIZE", 4)
        monkeypatch.setattr(neighbor_likelihood, "REFRESH", 3)
    for name, value in sizes.items():
        monkeypatch.setattr(kernel_learning, name, value)


@needs_gpu
@pytest.mark.usefixtures("few_threads", "short_start")
@pytest.mark.parametrize("kind", ["regressor", "dot-product", "classifier"])
def test_a_fit_with_its_start_equals_that_on_the_cpu(monkeypatch, kind, rng):

    steps, method = [], CudaEngine.kriging_gradients

    def noted(*args):
        steps.append(1)
        return method(*args)

    monkeypatch.setattr(CudaEngine, "kriging_gradients", noted)
    X = rng.normal(size=(24, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)
    weight = rng.uniform(0.5, 2.0, size=24)
    kernel = DotProduct(0.5) + RBF(1.0) if kind == "dot-product" else None
    options = {"n_neighbors": 4, "random_state": 0, "n_jobs": 1, "kernel": kernel}
    results = []
    for device in ("cpu", "cuda"):
        if kind == "classifier":
            model = SWSGPClassifier(device=device, **options)
            model.fit(X, y > 0, weight)
            results.append([model.predict_proba(X)])
        else:
            model = SWSGPRegressor(device=device, **options).fit(X, y, weight)
            results.append(model.predict(X, return_std=True))
        results[-1] = *results[-1], model.kernel_.theta
        assert bool(steps) == (device == "cuda")
    for first, second in zip(*results, strict=True):
        assert_close(second, first, roundings=ROUNDINGS)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_a_classifier_learns_from_chunks(small, rng):
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    results = []
    for device in ("cpu", "cuda"):
        model = SWSGPClassifier(device=device, **small, **ADAM)
        for part in (slice(0, 15), slice(15, 30)):
            model.partial_fit(X[part], y[part], classes=[0, 1])
        results.append(model.predict_proba(X))
    assert_close(results[1], results[0], roundings=ROUNDINGS)


@needs_gpu
def test_an_allocation_that_fails_raises_one_sentence(monkeypatch, small, rng):
    def full(array):
        raise RuntimeError("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(cuda_runtime.cuda, "to_device", full)
    X = rng.normal(size=(30, 2))
    model = SWSGPRegressor(device="cuda", **small, **ADAM)
    with pytest.raises(MemoryError, match=r"no room for .* smaller batch_size"):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "kernel_")


@needs_gpu
@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_without_room_the_error_names_a_batch_size_that_fits(
    monkeypatch, small, covariance, rng
):
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 50_000)
    X = rng.normal(size=(40, 2))
    settings = small | ADAM | {"device": "cuda", "max_iter": 1, "verbose": False}
    model = SWSGPRegressor(covariance=covariance, batch_size=40, **settings)
    with pytest.raises(MemoryError, match=r"^minibatches of 40 rows with 4 ") as error:
        model.fit(X, X[:, 0])
    size = int(re.search(r"expected batch_size=(\d+) or less", str(error.value))[1])
    assert size == 10
    assert model.set_params(batch_size=size).fit(X, X[:, 0]).n_iter_ == 1
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"^n_inducing=12 and n_neighbors=4: .* one "):
        model.fit(X, X[:, 0])


@pytest.fixture
def held(monkeypatch):
    """Return a function that counts the arrays on the device."""
    arrays = []
    allocate = cuda_runtime.allocate

    def allocate_and_note(make, *args):
        array = allocate(make, *args)
        if is_on_device(array):
            arrays.append(weakref.ref(array))
        return array

    def count():
        gc.collect()
        return sum(array() is not None for array in arrays)

    monkeypatch.setattr(cuda_runtime, "allocate", allocate_and_note)
    return count


@needs_gpu
@pytest.mark.usefixtures("few_threads", "small_matrices_placed")
@pytest.mark.parametrize(
    ("share", "solver"),
    [(0.5, ADAM), (0.0, ADAM), (0.5, NATURAL)],
    ids=["adam", "adam-streamed", "natural"],
)
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device(
    monkeypatch, small, held, failure, share, solver, rng
):

    monkeypatch.setitem(cuda_runtime.MEMORY_FRACTIONS, "training rows", share)
    name = "steps" if solver is ADAM else "variational_expectations"
    method, during, engines = getattr(cuda.CudaEngine, name), [], []

    def call(engine, *args):
        result = method(engine, *args)
        during.append(held())
        engines.append((engine, *engine._holders))  # as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(cuda.CudaEngine, name, call)
    X = rng.normal(size=(20, 2))
    options = small | solver | {"device": "cuda", "max_iter": 1, "batch_size": 10}
    model = SWSGPRegressor(**options)
    if failure is KeyboardInterrupt and solver is ADAM:
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit(X, X[:, 0])
    elif failure is not None:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
    else:
        model.fit(X, X[:, 0])
    assert during[0] > 30
    assert held() == 0
    if failure is None:
        model.predict(X, return_std=True)
        assert held() == 0


@needs_gpu
@pytest.mark.usefixtures("few_threads", "short_start")
@pytest.mark.parametrize("name", ["kriging_gradients", "kriging_predictions", "find"])
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device_by_the_start(
    monkeypatch, small, held, failure, name, rng
):

    search = cuda_scan.DeviceDistanceScan
    engine, least = (search, 2) if name == "find" else (CudaEngine, 30)
    method, during, engines = getattr(engine, name), [], []

    def call(engine, *args, **options):
        result = method(engine, *args, **options)
        during.append(held())
        engines.append(engine)  # it lives on, as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(engine, name, call)
    X = rng.normal(size=(20, 2))
    model = SWSGPRegressor(RBF(), device="cuda", max_iter=1, **small)
    if failure is None:
        model.fit(X, X[:, 0])
    else:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
        assert not hasattr(model, "kernel_")
    assert during[0] > least
    assert held() == 0


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_evaluation_takes_parts_that_fit(monkeypatch):

    problem = problem_of("rbf-white", "gaussian-2", full=True)
    sizes, blocks = [], cuda.row_blocks

    def noted(n, size):
        sizes.append(size)
        return blocks(n, size)

    monkeypatch.setattr(cuda, "row_blocks", noted)
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 1200)
    check_evaluation(cuda.CudaEngine, problem)
    assert max(sizes) < len(problem.batch.X)


# --- without a GPU --------------------------------------------------------------------


@pytest.mark.skipif(MISSING is None, reason="there is a GPU")
@pytest.mark.parametrize("estimator", [SWSGPRegressor, SWSGPClassifier])
def test_without_a_gpu_one_sentence_says_what_is_missing(estimator, rng):
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    model = estimator(device="cuda", max_iter=1, **ADAM)
    with pytest.raises(ValueError, match=r"^device='cuda': .*; use device='cpu'"):
        model.fit(X, y)
    assert not hasattr(model, "kernel_")
    fitted = model.set_params(device="auto", n_inducing=5).fit(X, y)
    with pytest.raises(ValueError, match=r"^device='cuda': "):
        fitted.set_params(device="cuda").predict(X)


@pytest.mark.parametrize(
    ("points", "H", "M", "reason", "free", "device"),
    [
        (40_000_000, 32, 1000, None, 0.9, "cuda"),  # 18 us each
        (40_000_000, 32, 1000, "no GPU", 0.9, "cpu"),
        (40_000_000, 32, 1000, None, 0.7, "cpu"),
        (30_000_000, 32, 1000, None, 0.9, "cpu"),
        (40_000_000, 16, 1000, None, 0.9, "cpu"),
        (40_000_000, 32, 32, None, 0.9, "cpu"),
    ],
)
def test_auto_takes_an_idle_gpu_for_ten_minutes_of_work(
    monkeypatch, points, H, M, reason, free, device
):
    memory = SimpleNamespace(free=80e9 * free, total=80e9)
    context = SimpleNamespace(get_memory_info=lambda: memory)
    driver = SimpleNamespace(current_context=lambda: context)
    monkeypatch.setattr(cuda_runtime, "cuda", driver)
    monkeypatch.setattr(cuda_runtime, "missing", lambda: reason)
    assert select.choose_device(points, H, M) == device


@needs_package
def test_streams_that_do_not_wait_are_refused(monkeypatch):
    name = "CUDA_PER_THREAD_DEFAULT_STREAM"
    monkeypatch.setattr(cuda_runtime.cuda.config, name, 1, raising=False)
    monkeypatch.setattr(cuda_runtime.cuda, "current_context", lambda: None)
    assert f"NUMBA_{name}" in cuda_runtime.missing()


def test_auto_does_not_import_numba_cuda_for_little_work(monkeypatch):
    monkeypatch.delitem(sys.modules, "skswsgp._compiled.cuda_runtime")
    monkeypatch.delattr("skswsgp._compiled.cuda_runtime")
    assert select.choose_device(10_000_000, 32, 1000) == "cpu"
    assert "skswsgp._compiled.cuda_runtime" not in sys.modules


@pytest.mark.parametrize(
    ("options", "points"),
    [
        (ADAM | {"max_iter": 7}, 7 * 40),
        (ADAM | {"max_iter": 7, "early_stopping": True}, 7 * 36),
        (NATURAL, 40 + 12),
        (
            {"solver": "natural", "init": "default", "optimize_inducing": True},
            6 * (40 + 12) + 10 * 40,
        ),
    ],
)
@pytest.mark.skipif(SIMULATED, reason="it tests nothing on a device")
def test_auto_knows_how_much_there_is_to_do(monkeypatch, small, options, points, rng):
    asked = []

    def choose(*args):
        asked.append(args)
        return "cpu"

    monkeypatch.setattr(select, "choose_device", choose)
    X = rng.normal(size=(40, 2))
    model = SWSGPRegressor(**small, **options).fit(X, X[:, 0])
    model.predict(X[:30])
    model.lower_bound(X[:20], X[:20, 0])
    counts = [points, 30, 20]
    assert asked == [(count, 4, 12) for count in counts]


@needs_package
def test_a_gpu_that_fails_is_missing(monkeypatch):
    def busy():
        raise OSError("CUDA_ERROR_DEVICE_UNAVAILABLE")

    monkeypatch.setattr(cuda_runtime.cuda, "current_context", busy)
    assert (
        cuda_runtime.missing()
        == "the GPU cannot be used (CUDA_ERROR_DEVICE_UNAVAILABLE)"
    )


def test_the_error_names_the_extras(monkeypatch):
    monkeypatch.setattr(cuda_runtime, "cuda", None)
    with pytest.raises(ValueError, match=r"numba-cuda .* skswsgp\[cuda12\] or .*13\]"):
        cuda_runtime.require()


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator needs no compiler")
def test_the_error_names_a_missing_compiler(monkeypatch):
    def broken(*args):
        raise RuntimeError("first\n\nlibnvvm is missing.\n")

    cuda_runtime.compiler_problem.cache_clear()
    monkeypatch.setattr(cuda_runtime.cuda, "current_context", lambda: None)
    monkeypatch.setattr(cuda_runtime.cuda, "compile_ptx_for_current_device", broken)
    with pytest.raises(ValueError, match=r"no compiler .*\(libnvvm is missing\): inst"):
        cuda_runtime.require()
    cuda_runtime.compiler_problem.cache_clear()


@needs_package
@pytest.mark.skipif(MISSING is None, reason="the tests above ran")
@pytest.mark.early
def test_kernels_in_the_simulator():
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, str(folder / "test_cuda.py")],
        env=env,
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]


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
    uses, mu = (batch.active, 0, n, 0), zeros(n, 2)
    points, own = (model, work, n, batch.X), (zeros(n), mu, mu)
    keys, lists = np.asfortranarray(zeros(3, 4, dtype="f8")), zeros(3, 4, dtype="i4")
    heaps = 3, 0, 1, keys, np.asfortranarray(lists)
    values = np.asfortranarray(zeros(3, 2, 4))
    vectors = [zeros(n, dtype="f8")] * 3
    return {
        "matvec_kernel": (lists, mu, False, *vectors),
        "rmatvec_kernel": (index, lists[:, 0].copy(), mu, False, *vectors[:2]),
        "kriging_gradients": (model, batch, 0, n, work, zeros(n, 4, dtype="f8")),
        "add_results": (zeros(n, 4, dtype="f8"), n),
        "kriging_rows": (*points, batch.active, mu, mu),
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
        "posterior_rows": (*points, batch.active, mu, mu, jitter_counts),
        "weights_rows": (*points, batch.active, mu, zeros(n), jitter_counts),
        "inverse_rows": (
            *points,
            batch.active,
            zeros(n, H, H),
            zeros(n),
            jitter_counts,
        ),
        "expectation_rows": (model, work, n, mu, mu, mu, *own),
        "bound_rows": (*points, batch.y, batch.active, sums, sums, jitter_counts),
    }


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_each_kernel_compiles_to_ptx(monkeypatch, dtype):
    from numba.cuda import dispatcher

    class Device:
        compute_capability = (7, 5)

    monkeypatch.setattr(dispatcher, "get_current_device", Device)
    try:
        cuda_runtime.cuda.compile_ptx(nothing, (numba.float64[::1],), cc=(7, 5))
    except Exception as error:
        pytest.skip(
            f"not even an empty kernel compiles: {cuda_runtime.last_line(error)}"
        )
    calls = arguments(dtype.name)
    launched = {
        name: value
        for module in (kernels, searches, products, cuda_arrays)
        for name, value in vars(module).items()
        if is_kernel(value)
    }
    assert launched.keys() == calls.keys()
    kind = ".f32" if dtype == "float32" else ".f64"
    for name, values in calls.items():
        ptx = ptx_of(launched[name], values)
        assert ".entry" in ptx
        assert f"st{STORES.get(name, kind)}" in ptx
        assert (
            shared_arrays(ptx).items()
            <= {"skswsgp_parts": cuda_runtime.PARTIAL_SUMS_BYTES}.items()
        )
        if name in FACTORS:
            ptx = ptx_of(launched[name], [in_shared(value) for value in values])
            arrays = {
                "skswsgp_parts": cuda_runtime.PARTIAL_SUMS_BYTES,
                "skswsgp_triangles": None,
            }
            assert shared_arrays(ptx) == arrays
            assert f"ld.shared{kind}" in ptx and f"st.shared{kind}" in ptx


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator takes any number of blocks")
def test_launches_of_few_blocks_do_not_warn(monkeypatch):
    from numba.cuda import dispatcher

    monkeypatch.setattr(dispatcher.driver, "_to_core_stream", lambda stream: stream)
    repeat_row[1, 32]


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator hands over arrays themselves")
def test_ready_arguments_are_what_launches_take(monkeypatch):
    """The arrays only seem to be on a device; numba-cuda prepares them for a launch."""
    from numba.cuda.cudadrv import devicearray
    from numba.cuda.dispatcher import _Kernel
    from numba.cuda.typing.typeof import Purpose, typeof

    def point(context=None, pointer=0, size=0):
        return SimpleNamespace(device_ctypes_pointer=ctypes.c_size_t(int(pointer)))

    def seem(struct):
        return struct._make(
            devicearray.DeviceNDArray(f.shape, f.strides, f.dtype, 0, point(0, id(f)))
            if isinstance(f, np.ndarray)
            else f
            for f in struct
        )

    def parameters(arguments):
        kernel, back, found = _Kernel.__new__(_Kernel), [], []
        kernel.extensions = []
        for kind, value in zip(kinds, arguments, strict=True):
            kernel._prepare_args(kind, value, 0, back, found)
        assert back == []  # nothing to copy after the launch
        return [getattr(value, "value", value) for value in found]

    monkeypatch.setattr(devicearray.devices, "get_context", lambda *_: None)
    monkeypatch.setattr(devicearray._driver, "MemoryPointer", point)
    problem = problem_of("matern52-ard", "gaussian-2")
    work = allocate_slot(problem.model, 9)
    assert isinstance(work, SharedWorkspace) and work.chol.size == 0
    structs = map(seem, (problem.model, problem.batch, work))
    given = *structs, seem(problem.batch).active, 5
    ready = cuda_arrays.ready(*given)
    kinds = [typeof(value, Purpose.argument) for value in given]
    assert [typeof(value, Purpose.argument) for value in ready] == kinds
    expected = parameters(given)
    assert len(expected) > 300
    assert parameters(ready) == expected
    monkeypatch.setattr(cuda_runtime.cuda.InOut, "to_device", None, raising=False)
    assert parameters(ready) == expected  # as of the first launch


def ptx_of(kernel, values):
    """Return the PTX of a kernel for the types of these values."""
    ptx, _ = cuda_runtime.cuda.compile_ptx(
        kernel.py_func,
        tuple(numba.typeof(value) for value in values),
        cc=(7, 5),
        opt=False,  # the compiler takes minutes over the rest
    )
    return ptx


def in_shared(value):
    """Return an argument, a `Workspace` as a `SharedWorkspace`."""
    return SharedWorkspace(*value) if isinstance(value, Workspace) else value


def shared_arrays(ptx):
    """Return the bytes of each array in shared memory, None if a launch sets them."""
    found = re.findall(r"\.shared \.align 8 \.b8 (\w+)\[(\d*)\]", ptx)
    assert len(found) == len(re.findall(r"\.shared \.align", ptx))
    return {name: int(size) if size else None for name, size in found}


# Types of the entries that a kernel stores, where it is not the dtype of the model
STORES = {"claim_rows": ".u64", "merge_heaps": ".u32", "put_lists": ".u32"}
DOUBLE = "scan_segments", "matvec_kernel", "rmatvec_kernel", "add_results"
STORES |= dict.fromkeys(DOUBLE, ".f64")
# Kernels that keep the factor R in shared memory where it fits
FACTORS = ["gradients", "posterior_rows", "weights_rows", "inverse_rows", "bound_rows"]
FACTORS += ["kriging_gradients", "kriging_rows"]


def nothing(values):
    values[0] = 1.0


def is_kernel(value):
    """Return whether a value is a kernel of numba-cuda."""
    if not type(value).__module__.startswith("numba.cuda"):
        return False
    return hasattr(value, "py_func") and not value.targetoptions.get("device")
