"""Markers, problems and comparisons of the CUDA tests, and simulated teams.

A test marked `needs_gpu` runs on a GPU or, if numba-cuda simulates one, in the
simulator. Without either it is skipped, and `test_simulator.py` runs it in another
process, in the simulator.
"""

import os
import threading
from queue import SimpleQueue

import numpy as np
import pytest
from helpers import assert_close, make_problem
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._adam.steps import make_steps
from skswsgp._compiled import team
from skswsgp._engine.cpu import CpuEngine
from skswsgp.cuda import arrays, batches, compiler, runtime, scan, steps, workspace
from skswsgp.cuda.engine import CudaEngine
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

MISSING = runtime.missing()
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
if SIMULATED:
    from numba.cuda.simulator.kernel import BlockManager, BlockThread
needs_gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU: {MISSING}")
needs_package = pytest.mark.skipif(
    runtime.cuda is None, reason="the package numba-cuda is not installed"
)
needs_simulator = pytest.mark.skipif(not SIMULATED, reason="no simulator to take turns")

KERNELS = {
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "matern12": Matern(1.3, nu=0.5),
    "matern32-power": Matern(0.9, nu=1.5) ** 1.5,
    "matern52-ard": ConstantKernel(1.4) * Matern([0.8, 1.7, 1.1, 2.0, 1.5], nu=2.5),
    "rational": RationalQuadratic(1.1, 0.8),
    "periodic": OnColumns(RBF(2.0) * ExpSineSquared(1.5, 3.0), [3]),
    "columns": OnColumns(Matern([0.8, 1.7], nu=1.5) + 0.2 * ArcCosine(1, 1.2), [4, 1]),
    "dot-product": DotProduct(0.5) + WhiteKernel(0.5),
    "polynomial": Polynomial(3, [1.5, 2.0, 3.0, 2.5, 3.5], 0.9),
    "arc-cosine-0": ArcCosine(0, 1.3, 0.7),
    "arc-cosine-1": ArcCosine(1, 1.3, 0.7),
}
KERNELS["all"] = sum(KERNELS.values(), start=ConstantKernel(0.1))
LIKELIHOODS = {
    "gaussian-2": ("gaussian", 2),
    "bernoulli": ("bernoulli", 1),
    "logit": ("logit", 1),
    "poisson": ("poisson", 2),
    "negative-binomial": ("negative_binomial", 2),
    "student-t": ("student_t", 2),
    "softmax": ("softmax", 3),
}
# The simulator is for loops, teams and copies, since the formulas are those of the CPU.
# One kernel with every operation and one with few, a likelihood in closed form and one
# by quadrature over several functions are enough for these. A GPU takes all.
ON_GPU = MISSING is None and not SIMULATED
TAKEN_KERNELS = list(KERNELS) if ON_GPU else ["all", "matern52-ard"]
TAKEN_LIKELIHOODS = list(LIKELIHOODS) if ON_GPU else ["gaussian-2", "softmax"]
# Fewer than 32 rows a step: `cuda.ffs` of the simulator is wrong for bits beyond.
SIZES = {"D": 5, "M": 14, "H": 9, "n": 4}
if not SIMULATED:
    SIZES = {"D": 5, "M": 300, "H": 40, "n": 200}
NATURAL = {"solver": "natural", "learn_kernel": False}
ROUNDINGS = 1e5  # K has condition numbers up to 1e4, and Adam divides by derivatives


def problem_of(kernel, likelihood, *, full=False, dtype="float64", moving=True):
    """Return a problem whose H is larger than a tile of a matrix."""
    rng = np.random.default_rng(0)
    name, Q = LIKELIHOODS[likelihood]
    problem = make_problem(
        KERNELS[kernel], name, Q, full=full, rng=rng, dtype=dtype, **SIZES
    )
    return problem.replace(jitter=1e-3, train_inducing=moving)


def check_steps(engine, **options):
    """Compare the engines after steps of Adam: models, moments and sums."""
    states = []
    for kind in (CpuEngine, engine):
        problem = problem_of(**options)
        model, batch = problem.model, problem.batch
        P, D, H = len(model.params), model.Z.shape[1], batch.active.shape[1]
        run = kind(model, H, 1)
        bounds = np.tile([-5.0, 5.0], (P, 1))
        n, free = len(batch.X) // 2, np.ones(P, bool)
        steps = make_steps(run, n, free, bounds, np.ones(D))
        steps.take(batch, n, np.array([0.05, 0.04]))
        sums = steps.finish_epoch()
        model, moments = run.model, steps.optimizer
        values = model.params, model.noise, model.m, model.s, model.L, model.Z
        states.append(
            (sums, *values, moments.m, moments.params, run.jitter_counts.sum(0))
        )
        run.close()
    dtype = options.get("dtype", "float64")
    for expected, actual in zip(*states, strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


def check_evaluation(engine, problem):
    """Compare the evaluation of rows on both engines."""
    X, active, H = problem.batch.X, problem.batch.active, problem.batch.active.shape[1]
    cpu, gpu = CpuEngine(problem.model, H, 1), engine(problem.model, H, 1)
    q = cpu.predict(X, active, with_variance=True)
    calls = [
        lambda run: run.predict(X, active, with_variance=True),
        lambda run: run.predict(X, active, with_variance=False)[:1],
        lambda run: run.conditional_weights(X, active),
        lambda run: run.bound(problem.batch),
        lambda run: run.variational_expectations(problem.batch.y, *q),
    ]
    for call in calls:
        for actual, expected in zip(call(gpu), call(cpu), strict=True):
            assert_close(actual, expected, roundings=ROUNDINGS)
    gpu.close()


def is_on_device(value):
    """Return whether a value is an array of the device."""
    return hasattr(value, "copy_to_host")


def engine_with(monkeypatch, size, backwards=False):
    """Return the class of the CUDA engine with small teams and several blocks.

    A simulated thread is a thread of Python, so there are few, and the host fills the
    work arrays of blocks.
    """

    def repeat(array, n, what):
        return arrays.send_array(np.repeat(array, n, axis=0), what)

    if SIMULATED:
        monkeypatch.setattr(runtime, "WARP", size)
        for module in (arrays, batches, scan, steps):
            monkeypatch.setattr(module, "THREADS", 8)
        monkeypatch.setattr(workspace, "MAX_SLOTS", 3)
        monkeypatch.setattr(workspace, "repeat", repeat)
        if size > 1:
            turns = Turns(backwards)
            monkeypatch.setattr(team, "backend", turns)
            monkeypatch.setattr(BlockManager, "run", lambda *args: turns.run(*args))
    monkeypatch.setattr(workspace, "team_size", lambda H: size)
    return CudaEngine


class Turns:
    """A simulated team whose threads run one after the other between two barriers.

    If a thread reads an entry that another thread writes between the same barriers, the
    result depends on their order, so it differs between forwards and backwards. Threads
    that have ended are left out, even if others wait for them at a barrier.
    """

    def __init__(self, backwards):
        self.backwards = backwards
        self.rank = compiler.SimulatedTeam().rank

    def barrier(self):
        if self.rank()[1] > 1:
            thread = threading.current_thread()
            thread._manager.stopped.put(thread)
            thread.turn.get()

    def sum(self, value):
        rank, size = self.rank()
        if size == 1:
            return value
        parts = vars(threading.current_thread()._manager).setdefault("parts", {})
        self.barrier()
        parts[rank] = value
        self.barrier()
        total = sum((parts[i] for i in range(1, size)), parts[0])
        self.barrier()
        return total

    def run(self, block, grid_point, *args):
        """Run the threads of a block, in place of `BlockManager.run`."""

        def work():
            threading.current_thread().turn.get()
            try:
                block._f(*args)
            finally:
                block.stopped.put(None)

        block.stopped, threads = SimpleQueue(), []
        for point in np.ndindex(*block._block_dim):
            threads.append(BlockThread(work, block, grid_point, point, False))
            threads[-1].turn = SimpleQueue()
            threads[-1].start()
        waiting = threads[::-1] if self.backwards else threads
        while waiting:
            for thread in waiting:
                thread.turn.put(None)
                thread.goes_on = block.stopped.get() is thread
            waiting = [thread for thread in waiting if thread.goes_on]
        for thread in threads:
            thread.join()
            if thread.exception:
                raise thread.exception[0].with_traceback(thread.exception[1])
