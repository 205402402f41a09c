"""The devices on which the engine of a GPU is tested."""

import gc
import weakref

import pytest
from numpy_device import NumpyDevice

from skswsgp.cuda import device as gpu
from skswsgp.cuda import row_matrix

DEVICES = ["numpy"] + ["gpu"] * (gpu.missing() is None)


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """Return arrays of NumPy in place of a GPU and, where there is one, the GPU."""
    if request.param == "gpu":
        return gpu.get_device()
    device = NumpyDevice()
    monkeypatch.setattr(gpu, "get_device", lambda: device)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    return device


@pytest.fixture
def held(device, monkeypatch):
    """Return a function that counts the arrays that were sent and are still there."""
    arrays, send = [], device.send

    def send_and_note(array):
        arrays.append(weakref.ref(sent := send(array)))
        return sent

    def count():
        gc.collect()
        return sum(array() is not None for array in arrays)

    monkeypatch.setattr(device, "send", send_and_note)
    return count


@pytest.fixture
def small_matrices_placed(monkeypatch):
    """Place small matrices on the device."""
    monkeypatch.setattr(row_matrix, "LEAST_ENTRIES", 0)
