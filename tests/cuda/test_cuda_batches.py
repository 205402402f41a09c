"""Minibatches of rows that are stored on the device or streamed to it."""

import numpy as np
import pytest
from helpers import assert_close, make_problem
from numpy.random import RandomState
from simulator import ROUNDINGS, SIMULATED, needs_gpu, needs_package
from sklearn.gaussian_process.kernels import RBF
from small_models import adam_settings

from skswsgp._adam import solver as adam
from skswsgp._compiled import threads
from skswsgp._engine.cpu import CpuEngine
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.rows import RowsInMemory
from skswsgp.cuda import arrays, runtime
from skswsgp.cuda import batches as device_batches
from skswsgp.cuda.engine import CudaEngine


@pytest.fixture(params=["resident", "streamed"])
def batches(request, monkeypatch):
    """Keep training rows on the device, or stream them."""
    if request.param == "streamed":
        monkeypatch.setitem(runtime.MEMORY_FRACTIONS, "training rows", 0.0)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 4)
    if SIMULATED:
        monkeypatch.setattr(device_batches, "THREADS", 5)
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
    for kind in (CpuEngine, CudaEngine):
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
        solver = adam.AdamSolver(run, RowsInMemory(data), kernel, settings, rng, scale)
        values = [solver.advance(epoch) for epoch in range(3)]
        model = run.model
        state = model.params, model.noise, model.m, model.s, model.Z
        results.append((*state, values, solver.search.version))
        run.close()
    for expected, actual in zip(*results, strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS)
    assert results[0][-1] > 1
    assert CountedRows.largest == 8  # two steps of four rows


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
    for module in (device_batches, arrays):
        monkeypatch.setattr(module, "cuda", gpu)
    work, seen = gpu.stream(), []
    buffer = device_batches.DoubleBuffer(work)
    for k in range(7):
        (there,) = buffer.send(np.full(3 if k < 5 else 4, float(k)))
        work.tasks.append(lambda there=there: seen.append(there.values[:3].copy()))
        assert len(seen) < 3 or k > 3  # the host is ahead of the work
    work.run(len(work.tasks))
    np.testing.assert_array_equal(seen, np.repeat(np.arange(7.0), 3).reshape(7, 3))
