"""Steps of Adam with an engine: moments, derivatives, and the loops that they run."""

from abc import ABC, abstractmethod
from functools import singledispatch

import numpy as np
from numba import typeof

from skswsgp._adam import loops
from skswsgp._adam.gradients import dense_gradient_chunks, gradient_chunks
from skswsgp._adam.loops import move_part
from skswsgp._adam.union import union_arrays
from skswsgp._compiled import threads
from skswsgp._compiled.pointers import address_of
from skswsgp._compiled.threads import CHUNKS, microseconds_per_point, threads_for
from skswsgp._engine.cpu import CpuEngine, DenseCpuEngine
from skswsgp._point.adam_step import make_optimizer
from skswsgp._point.bound import allocate_stack
from skswsgp._point.state import Batch, allocate_gradients, allocate_workspace

NOT_FINITE = (
    "training produced NaN or infinity: a covariance matrix could not be factorised or "
    "a parameter overflowed; lower learning_rate, bound the kernel's parameters, or "
    "scale X and y."
)


def require_finite_training(values):
    """Raise FloatingPointError if some of the values are NaN or infinite."""
    if not np.isfinite(values).all():
        raise FloatingPointError(NOT_FINITE)


@singledispatch
def make_steps(engine, n, free, log_bounds, feature_scale, n_active=None):
    """Return the `Steps` with which an engine trains its model, on n rows at once.

    `free` (P,), `log_bounds` (P, 2) and `feature_scale` (D,) are those of `Optimizer`,
    whose moments begin at zero. The rows of a minibatch share up to `n_active` inducing
    points, at least H, or each row uses its own H if it is None, as it is on a GPU.
    Steps of the CPU are registered in this file, and those of a GPU beside its engine.
    """
    raise TypeError(
        f"make_steps got a {type(engine).__name__}: expected an engine for which a "
        "subclass of Steps is registered."
    )


class Steps(ABC):
    """Steps of Adam, which change the model of `engine`.

    Attributes
    ----------
    optimizer : Optimizer
        Adam's moments on the host.
    """

    def __init__(self, engine):
        self.engine = engine

    @abstractmethod
    def make_loader(self, data, neighbors):
        """Return an object whose `batch(rows)` of `data` is what `take` takes."""

    @abstractmethod
    def take(self, batch, n, rates):
        """Take a step for each learning rate, each on the next n rows of the batch.

        Raises FloatingPointError on failure, or lets `finish_epoch` return NaN.
        """

    @abstractmethod
    def finish_epoch(self):
        """Return the sums of weighted E log p(y | f) and KL_w since the last call."""


class CpuSteps(Steps):
    """Steps on the threads of the CPU, where each row factorises its own K_w."""

    def __init__(self, engine, n, free, log_bounds, feature_scale, n_active=None):
        super().__init__(engine)
        engine.allow_vjp()
        self.optimizer = make_optimizer(engine.model, free, log_bounds, feature_scale)
        self.sums, self._known = np.zeros(2), {}
        if n_active is None:
            self._allocate(n, engine.n_neighbors, blocks=n, lists=n)
            self._shared = None
        else:
            self._allocate(n, n_active, blocks=CHUNKS, lists=1)
            self._shared = self._allocate_union(n, n_active)

    def _allocate(self, n, H, blocks, lists):
        """Choose the threads of a step of n rows, and allocate its derivatives.

        There are some blocks of derivatives and some lists of active points, H in each.
        """
        engine, model = self.engine, self.engine.model
        self.n_threads = threads_for(n * microseconds_per_point(H), engine.n_threads)
        grads = allocate_gradients(model, blocks, H)
        self.grads = grads._replace(jitter_counts=engine.jitter_counts)
        self.rows = loops.allocate_touched_rows(model, lists, H, self.n_threads)

    def _allocate_union(self, n, n_active):
        """Return the arrays of steps in which n rows share their active points."""
        engine, model = self.engine, self.engine.model
        scratch = union_arrays(n, engine.n_neighbors, len(model.Z)).values()
        return (
            *(np.zeros(*array) for array in scratch),
            np.zeros(n_active, np.int32),
            allocate_workspace(model, n_active, 1),
            allocate_workspace(model, n_active, engine.n_threads, dense=True),
            allocate_stack(model, n, n_active, engine.n_threads),
        )

    def make_loader(self, data, neighbors):
        return RowLoader(data, neighbors)

    def take(self, batch, n, rates):
        model, sums = self.engine.model, np.zeros(2)
        if self._shared is None:
            loop, works = loops.local_steps, self.engine.work
            if model.full:  # rows of L are read in order
                batch = batch._replace(active=np.sort(batch.active, axis=1))
        else:
            loop, works = loops.shared_steps, self._shared
        given = model, self.optimizer, self.rows, batch, n, rates, works
        addresses = self._addresses(batch)
        with threads.parallel_region(self.n_threads) as variant:
            finished = variant(loop)(addresses, *given, self.grads, sums)
        self.sums += sums
        require_finite_training(self.sums if finished else np.full(2, np.nan))

    def _addresses(self, batch):
        """Return the addresses that a loop of steps calls, for batches of this type."""
        kind = typeof(self.engine.model), typeof(batch)
        if kind not in self._known:
            model, grads = self.engine.model, self.grads
            ints = (0,) * 5  # only types matter: start, n, H if shared, begin, end
            if self._shared is None:
                rows = model, batch, *ints[1:], self.engine.work, 0, grads
                chunks = address_of(gradient_chunks, *rows)
            else:
                factors, works, stack = self._shared[-3:]
                rows = model, batch, *ints, factors, works, 0, stack, grads
                chunks = address_of(dense_gradient_chunks, *rows)
            moved = model, self.optimizer, self.rows, 0, 0
            of_part = address_of(move_part, *moved, batch.active, 0, 0, grads, 1.0, 0)
            self._known[kind] = np.array([chunks, of_part], dtype=np.uint64)
        return self._known[kind]

    def finish_epoch(self):
        sums, self.sums = self.sums, np.zeros(2)
        return sums


class DenseCpuSteps(CpuSteps):
    """Steps on the CPU where H = M: all rows share one K, factorised once a step."""

    def __init__(self, engine, n, free, log_bounds, feature_scale, n_active=None):
        M = len(engine.model.Z)  # the union of the rows' lists is always all points
        super().__init__(engine, n, free, log_bounds, feature_scale, M)

    def _allocate_union(self, n, n_active):
        """Return the arrays of steps in which n rows use all inducing points."""
        engine = self.engine
        scratch = (np.zeros(*array) for array in union_arrays(0, 0, 0).values())
        stack = allocate_stack(engine.model, n, n_active, engine.n_threads)
        return *scratch, engine.all_inducing[0], engine.factor, engine.work, stack


make_steps.register(CpuEngine, CpuSteps)
make_steps.register(DenseCpuEngine, DenseCpuSteps)


class RowLoader:
    """Rows of training data and their lists of neighbours, in the host's memory."""

    def __init__(self, data, neighbors):
        self.data, self.neighbors = data, neighbors

    def batch(self, rows):
        """Return the `Batch` of the rows with these indices."""
        X, y, weight = self.data.block(rows)
        return Batch(X, y, weight, self.neighbors.lookup(rows, X))
