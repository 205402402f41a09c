"""Whether a GPU can be used, and what the error says otherwise."""

import pytest
from helpers import ADAM, make
from simulator import SIMULATED, needs_gpu, needs_package

from skswsgp import SWSGPRegressor
from skswsgp.cuda import runtime
from skswsgp.cuda.arrays import repeat_row


@needs_package
def test_streams_that_do_not_wait_are_refused(monkeypatch):
    name = "CUDA_PER_THREAD_DEFAULT_STREAM"
    monkeypatch.setattr(runtime.cuda.config, name, 1, raising=False)
    monkeypatch.setattr(runtime.cuda, "current_context", lambda: None)
    assert f"NUMBA_{name}" in runtime.missing()


@needs_package
def test_a_gpu_that_fails_is_missing(monkeypatch):
    def busy():
        raise OSError("CUDA_ERROR_DEVICE_UNAVAILABLE")

    monkeypatch.setattr(runtime.cuda, "current_context", busy)
    assert runtime.missing() == "the GPU cannot be used (CUDA_ERROR_DEVICE_UNAVAILABLE)"


def test_the_error_names_the_extras(monkeypatch):
    monkeypatch.setattr(runtime, "cuda", None)
    with pytest.raises(ValueError, match=r"numba-cuda .* skswsgp\[cuda12\] or .*13\]"):
        runtime.require()


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator needs no compiler")
def test_the_error_names_a_missing_compiler(monkeypatch):
    def broken(*args):
        raise RuntimeError("first\n\nlibnvvm is missing.\n")

    runtime.compiler_problem.cache_clear()
    monkeypatch.setattr(runtime.cuda, "current_context", lambda: None)
    monkeypatch.setattr(runtime.cuda, "compile_ptx_for_current_device", broken)
    with pytest.raises(ValueError, match=r"no compiler .*\(libnvvm is missing\): inst"):
        runtime.require()
    runtime.compiler_problem.cache_clear()


@needs_package
@pytest.mark.skipif(SIMULATED, reason="the simulator takes any number of blocks")
def test_launches_of_few_blocks_do_not_warn(monkeypatch):
    from numba.cuda import dispatcher

    monkeypatch.setattr(dispatcher.driver, "_to_core_stream", lambda stream: stream)
    repeat_row[1, 32]


@needs_gpu
def test_an_allocation_that_fails_raises_one_sentence(monkeypatch, small_fit, rng):
    def full(array):
        raise RuntimeError("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(runtime.cuda, "to_device", full)
    X = rng.normal(size=(30, 2))
    model = make(SWSGPRegressor, device="cuda", **small_fit, **ADAM)
    with pytest.raises(MemoryError, match=r"no room for .* smaller batch_size"):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "kernel_")
