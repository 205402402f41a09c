"""Whether a GPU can be used, and what the error says otherwise."""

import pytest

from skswsgp.cuda import device as gpu

needs_package = pytest.mark.skipif(
    gpu.cuda is None, reason="the package numba-cuda is not installed"
)


@pytest.fixture
def with_cupy(monkeypatch):
    """Let CuPy seem to be installed."""
    find = gpu.importlib.util.find_spec

    def seem(name):
        return True if name == "cupy" else find(name)

    monkeypatch.setattr(gpu.importlib.util, "find_spec", seem)
    monkeypatch.setattr(gpu, "use_libraries", lambda: None)


@needs_package
@pytest.mark.usefixtures("with_cupy")
def test_streams_that_do_not_wait_are_refused(monkeypatch):
    name = "CUDA_PER_THREAD_DEFAULT_STREAM"
    monkeypatch.setattr(gpu.cuda.config, name, 1, raising=False)
    monkeypatch.setattr(gpu.cuda, "current_context", lambda: None)
    assert f"NUMBA_{name}" in gpu.missing()


@needs_package
@pytest.mark.usefixtures("with_cupy")
def test_a_gpu_that_fails_is_missing(monkeypatch):
    def busy():
        raise OSError("CUDA_ERROR_DEVICE_UNAVAILABLE")

    monkeypatch.setattr(gpu.cuda, "current_context", busy)
    assert gpu.missing() == "the GPU cannot be used (CUDA_ERROR_DEVICE_UNAVAILABLE)"


def test_the_error_names_the_extras(monkeypatch):
    monkeypatch.setattr(gpu, "cuda", None)
    with pytest.raises(ValueError, match=r"numba-cuda .* skswsgp\[cuda12\] or .*13\]"):
        gpu.require()


@needs_package
def test_the_error_names_cupy(monkeypatch):
    find = gpu.importlib.util.find_spec

    def lack(name):
        return None if name == "cupy" else find(name)

    monkeypatch.setattr(gpu.importlib.util, "find_spec", lack)
    with pytest.raises(ValueError, match=r"package cupy is not .* skswsgp\[cuda12\]"):
        gpu.require()


@needs_package
@pytest.mark.usefixtures("with_cupy")
def test_the_error_names_a_missing_compiler(monkeypatch):
    def broken(*args):
        raise RuntimeError("first\n\nlibnvvm is missing.\n")

    gpu.compiler_problem.cache_clear()
    monkeypatch.setattr(gpu.cuda, "current_context", lambda: None)
    monkeypatch.setattr(gpu.cuda, "compile_ptx_for_current_device", broken)
    with pytest.raises(ValueError, match=r"no compiler .*\(libnvvm is missing\): inst"):
        gpu.require()
    gpu.compiler_problem.cache_clear()


@needs_package
@pytest.mark.usefixtures("with_cupy")
def test_libraries_of_cupy_that_fail_are_missing(monkeypatch):
    def fail():
        raise ImportError("libcublas.so.12: cannot open shared object file")

    monkeypatch.setattr(gpu.cuda, "current_context", lambda: None)
    monkeypatch.setattr(gpu, "use_libraries", fail)
    assert "cannot be used (libcublas.so.12: cannot open" in gpu.missing()
