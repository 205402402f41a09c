"""Arguments of kernels, prepared once for many launches."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from simulator import SIMULATED, needs_gpu, needs_package, problem_of

from skswsgp._point.state import allocate_workspace
from skswsgp.cuda import arrays, runtime


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
    work = allocate_workspace(problem.model, 9, 1)
    structs = map(seem, (problem.model, problem.batch, work))
    given = *structs, seem(problem.batch).active, 5
    ready = arrays.ready(*given)
    kinds = [typeof(value, Purpose.argument) for value in given]
    assert [typeof(value, Purpose.argument) for value in ready] == kinds
    expected = parameters(given)
    assert len(expected) > 300
    assert parameters(ready) == expected
    monkeypatch.setattr(runtime.cuda.InOut, "to_device", None, raising=False)
    assert parameters(ready) == expected  # as of the first launch


@needs_gpu
@pytest.mark.parametrize("shape", [(1, 3, 4), (1, 5), (1, 0)])
def test_copies_are_those_of_numpy(shape, monkeypatch, rng):
    if SIMULATED:
        monkeypatch.setattr(arrays, "THREADS", 4)
    array = rng.normal(size=shape)
    found = arrays.repeat(array, 3, "copies").copy_to_host()
    np.testing.assert_array_equal(found, np.repeat(array, 3, axis=0))
