"""What a step asks of the host, which is more than what a GPU needs for small ones."""

from collections import namedtuple
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from counting_device import CountingDevice
from cuda_problems import problem_of, steps_of

from skswsgp.cuda import compiler
from skswsgp.cuda import device as gpu
from skswsgp.cuda.engine import CudaEngine

needs_package = pytest.mark.skipif(
    gpu.cuda is None, reason="the package numba-cuda is not installed"
)
Struct = namedtuple("Struct", "array flag number")


@pytest.fixture
def counting(monkeypatch):
    """Return a device that counts, in place of a GPU."""
    device = CountingDevice()
    monkeypatch.setattr(gpu, "get_device", lambda: device)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    return device


@pytest.mark.slow
@pytest.mark.parametrize(
    ("full", "calls", "launches"), [(False, 17, 11), (True, 28, 15)]
)
def test_a_step_of_adam_asks_for_few_calls(counting, full, calls, launches):
    problem = problem_of("matern52-ard", "gaussian-2", full=full)
    run = CudaEngine(problem.model, problem.batch.active.shape[1], 1)
    batch, steps = run.device.send_struct(problem.batch), steps_of(run, 10)

    def count(k):
        rates, first = np.full(k, 0.05), type(batch)(*(a[: 10 * k] for a in batch))
        return counting.count(lambda: steps.take(first, 10, rates))

    prepared = count(1)["arrays"]
    one, three = count(1), count(3)
    assert (three["calls"] - one["calls"]) / 2 == calls
    assert (three["launches"] - one["launches"]) / 2 == launches
    assert three["fetched"] - one["fetched"] == (4 if full else 2)
    assert prepared > 100 and "arrays" not in three


@pytest.mark.slow
def test_a_step_of_kriging_asks_for_few_calls(counting):
    problem = problem_of("rbf-white", "gaussian-2")
    batch = problem.batch._replace(y=np.hstack([problem.batch.y] * 2) ** 2)
    run = CudaEngine(problem.model, batch.active.shape[1], 1)
    run.load_kriging(batch, 10)
    run.kriging_gradients(0)
    counts = counting.count(lambda: run.kriging_gradients(10))
    assert counts == {"sent": 3, "calls": 15, "launches": 7, "fetched": 3}


class DeviceArray:
    """What an array of CuPy tells of itself, for one of NumPy."""

    def __init__(self, array):
        for name in "shape strides size itemsize dtype ndim flags".split():
            setattr(self, name, getattr(array, name))
        self.data = SimpleNamespace(ptr=array.ctypes.data)


ARRAYS = [
    np.zeros((3, 4)),
    np.zeros((3, 4), "f4").T,
    np.zeros((2, 3, 4), "i4")[:, 1:],
    np.zeros(5, bool),
    np.zeros((2, 0)),
]


@needs_package
def test_numbers_of_arguments_are_those_that_numba_cuda_passes(monkeypatch):
    from numba.cuda import dispatcher

    def as_numba_sees_it(value):
        def to_device(*_):
            layout = SimpleNamespace(strides_in_bytes=value.strides)
            return SimpleNamespace(
                size=value.size, dtype=value.dtype, ptr=value.data.ptr,
                shape=value.shape, _layout=layout,
            )  # fmt: skip

        return SimpleNamespace(to_device=to_device)

    monkeypatch.setattr(dispatcher, "wrap_arg", as_numba_sees_it)
    structs = [Struct(array, True, np.float64(2.5)) for array in ARRAYS]
    arrays = [Struct(DeviceArray(array), *rest) for array, *rest in structs]
    given = (*arrays, 7)
    kinds, numbers = compiler.flat(given)
    assert kinds == numba.typeof((*structs, 7))
    kernel, passed = SimpleNamespace(extensions=[]), []
    prepare = dispatcher._Kernel._prepare_args
    kernel._prepare_args = lambda *rest: prepare(kernel, *rest)
    kernel._prepare_args(kinds, given, 0, [], passed)
    assert [getattr(each, "value", each) for each in passed] == list(numbers)


@needs_package
def test_a_prepared_launch_has_enough_threads_and_holds_its_arrays(monkeypatch):
    core, launches = pytest.importorskip("cuda.core"), []
    monkeypatch.setattr(core, "launch", lambda *given: launches.append(given))
    function = SimpleNamespace(kernel="kernel")
    compiled = SimpleNamespace(
        _codelibrary=SimpleNamespace(get_cufunc=lambda: function)
    )
    kernel = SimpleNamespace(compile=lambda kinds: compiled)
    monkeypatch.setattr(compiler, "kernel_of", lambda body: kernel)
    array = DeviceArray(np.zeros(300))
    launch = compiler.prepare(len, 300, 0, (array, 2))
    launch(), launch()
    assert len(launches) == 2
    stream, config, kernel, *numbers = launches[1]
    assert int(stream.handle) == 0 and kernel == "kernel"
    blocks, threads = config.grid[0], config.block[0]
    assert (blocks - 1) * threads < 300 <= blocks * threads
    assert numbers == [300, 0, 0, 300, 8, array.data.ptr, 300, 8, 2]
    assert launch.arrays[0] is array
