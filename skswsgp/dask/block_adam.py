"""Adam of rows that lie elsewhere: steps of each block by itself, then averages."""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._adam.schedule import steps_per_epoch
from skswsgp._adam.solver import AdamSolver
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine.select import make_cpu_engine
from skswsgp._point.state import Model
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.rows import RowsInMemory
from skswsgp._solvers.settings import Settings

# Steps of the largest block between two averages. In three epochs of 1.76 million
# flights in eight blocks 256 lost .0004 nats to memory, and 3,437 lost .0085. They take
# 0.3 s with 64 rows each and H = 8, and the messages of an average 0.04.
MOST_STEPS = 256


class EpochRows(NamedTuple):
    """Rows of one place, and what else an epoch of Adam on them takes."""

    data: TrainingRows
    n_threads: int
    n_neighbors: int
    kernel: object
    settings: Settings
    feature_scale: np.ndarray

    def total_weight(self):
        """Return the sum of the weights of rows."""
        return self.data.weight.sum(dtype=np.float64)

    def steps(self, seed, index, part, schedule, model, optimizer):
        """Return the sums of this place for `BlockAdam`, after steps on these rows.

        They are part k of n of an epoch, for `part` (k, n), at the rates of `schedule`.
        The sums are 1 for each inducing point that moved (M,), 1 for the place, the
        weight of the rows and the weighted loss and bound, and the `moving_arrays`,
        zero where nothing moved. The arguments are shared by tasks and stay as they
        are.
        """
        model = Model(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in model))
        engine = make_cpu_engine(model, self.n_neighbors, self.n_threads)
        rng = np.random.RandomState(seed)
        rows, kernel, settings, scale = RowsInMemory(self.data), *self[3:]
        solver = AdamSolver(engine, rows, kernel, settings, rng, scale)
        given = optimizer
        solver.steps.optimizer = optimizer = type(given)(*(a.copy() for a in given))
        (k, n), n_steps = part, solver.schedule.n_steps
        solver.schedule = schedule._replace(n_steps=n_steps)
        steps = range(n_steps * k // n, n_steps * (k + 1) // n)
        loss, bound = solver.advance(index, steps) if steps else (0.0, 0.0)
        place, weight = len(steps) > 0, self.total_weight() * len(steps) / n_steps
        moved = optimizer.row_steps > given.row_steps
        points, shared = moving_arrays(engine.model, optimizer)
        arrays = [array * _column(moved, array) for array in points]
        arrays += [array * place for array in shared]
        numbers = place, weight, weight * loss, weight * bound
        return np.concatenate([moved, numbers, *map(np.ravel, arrays)])


class BlockAdam(AdamSolver):
    """Epochs of Adam, for `RowsInBlocks`.

    All blocks begin a part of an epoch with the same model and the same moments, and
    end it with their own. The next begins with the averages: of an inducing point over
    the blocks whose rows have moved it, and of kernel parameters and noise over all.
    The averages are not weighted, because blocks of more rows have taken more steps.
    """

    def __init__(self, engine, rows, kernel, settings, rng, feature_scale):
        super().__init__(engine, rows, kernel, settings, rng, feature_scale)
        self.workers = rows.blocks.workers
        more = engine.n_neighbors, kernel, settings, feature_scale
        self.parts = rows.made(EpochRows, *more)
        total = float(self.workers.total(EpochRows.total_weight, self.parts))
        engine.model = engine.model._replace(total_weight=total)
        most = steps_per_epoch(rows.blocks.sizes.max(), settings.batch_size)
        self.n_parts = math.ceil(most / MOST_STEPS)

    def advance(self, index):
        seeds = self.rng.randint(2**31 - 1, size=len(self.parts)).tolist()
        parts = [(k, self.n_parts) for k in range(self.n_parts)]
        sums = [self._average(seeds, index, part) for part in parts]
        weight, loss, bound = np.sum(sums, axis=0)
        return float(loss / weight), float(bound / weight)

    def _average(self, seeds, index, part):
        """Take the steps of a part of an epoch; return weight, and loss and bound."""
        model, optimizer = self.engine.model, self.steps.optimizer
        given = index, part, self.schedule, model, optimizer
        sums = self.workers.total(EpochRows.steps, self.parts, *given, each=seeds)
        moved, (places, *results), sums = np.split(sums, np.cumsum([len(model.Z), 4]))
        points, shared = moving_arrays(model, optimizer)
        counts = [moved] * len(points) + [places] * len(shared)
        for array, count in zip(points + shared, counts, strict=True):
            total, sums = np.split(sums, [array.size])
            count, total = _column(count, array), total.reshape(array.shape)
            array[:] = np.where(count > 0.0, total / np.maximum(count, 1.0), array)
        refresh_scales(model)
        return results

    @classmethod
    def count_points(cls, n_rows, M, settings):
        return 0  # the engine of the caller takes no steps


def moving_arrays(model, optimizer):
    """Return what Adam moves, as a list of arrays (M, ...) and a list of others."""
    names = ["m", "L" if model.full else "s", *["Z"] * model.train_inducing]
    arrays = {name: (getattr(model, name), getattr(optimizer, name)) for name in names}
    if model.full:
        arrays["L"] = [array.swapaxes(0, 1) for array in arrays["L"]]
    points = [optimizer.row_steps, *(one for both in arrays.values() for one in both)]
    shared = [model.params, optimizer.params, model.noise, optimizer.noise]
    return points, [*shared, optimizer.steps]


def _column(values, array):
    """Return values (M,) or a number as an array that multiplies arrays (M, ...)."""
    return np.reshape(values, (-1,) + (1,) * (array.ndim - 1))
