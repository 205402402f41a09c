"""Markers, problems and comparisons of the CUDA tests, and simulated teams.

A test marked `needs_gpu` runs on a GPU or, if numba-cuda simulates one, in the
simulator. Without either it is skipped, and `test_simulator.py` runs it in another
process, in the simulator.
"""

import os
import threading

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

from skswsgp._compiled import cuda_arrays, cuda_compiler, cuda_runtime, team
from skswsgp._engine import cuda, cuda_workspace
from skswsgp._engine.cpu import CpuEngine
from skswsgp._engine.cuda import CudaEngine
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

MISSING = cuda_runtime.missing()
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
needs_gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU: {MISSING}")
needs_package = pytest.mark.skipif(
    cuda_runtime.cuda is None, reason="the package numba-cuda is not installed"
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
        run.prepare_training(n, free, bounds, np.ones(D))
        run.steps(batch, n, np.array([0.05, 0.04]))
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
    """Return the class of the CUDA engine with small teams and several blocks."""
    if SIMULATED:
        monkeypatch.setattr(cuda_runtime, "WARP", size)
        for module in (cuda, cuda_arrays):
            monkeypatch.setattr(module, "THREADS", 8)
        monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", 3)
        if size > 1:
            monkeypatch.setattr(team, "backend", Turns(backwards))
    monkeypatch.setattr(cuda_workspace, "team_size", lambda H: size)
    return CudaEngine


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
