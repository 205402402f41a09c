"""TODO docstring."""

from skswsgp._compiled.threads import microseconds_per_point
from skswsgp._engine.cpu import CpuEngine, CpuKrigingEngine

COMPILATION_SECONDS = 60.0  # seconds for the kernels of a GPU in each process, about
LEAST_GAIN = (
    10.0  # times as long on a core makes a GPU worth it; none has shown its speed
)


def require_device(device):
    """Raise one sentence if a fit or a prediction cannot use the device."""
    if device == "cuda":
        from skswsgp._compiled import cuda_runtime

        cuda_runtime.require()


def make_engine(device, model, n_neighbors, n_threads, points=0):
    """Return the engine for a device, "auto" included, that will do so many points."""
    if device == "auto":
        device = choose_device(points, n_neighbors, len(model.Z))
    if device == "cpu":
        return CpuEngine(model, n_neighbors, n_threads)
    require_device(device)
    from skswsgp._engine.cuda import CudaEngine  # it takes a second to import

    return CudaEngine(model, n_neighbors, n_threads)


def choose_device(points, H, M):
    """Return "cuda" if there is an idle GPU and work enough for it, else "cpu".

    Enough is what keeps a core busy for GAIN times as long as the kernels of a GPU
    compile, in each process. Where H = M a GPU lacks the K that all points share. One
    whose memory others use may have no room left.
    """
    seconds = 1e-6 * points * microseconds_per_point(H)
    if H == M or seconds < LEAST_GAIN * COMPILATION_SECONDS:
        return "cpu"
    from skswsgp._compiled import cuda_runtime

    return "cpu" if cuda_runtime.missing() or cuda_runtime.is_busy() else "cuda"


def make_kriging_engine(device, model, n_neighbors, n_threads):
    """Return what does the kriging on a device, "cpu" or "cuda"."""
    if device == "cpu":
        return CpuKrigingEngine(model, n_neighbors, n_threads)
    require_device(device)
    from skswsgp._engine.cuda import CudaKrigingEngine  # it takes a second to import

    return CudaKrigingEngine(model, n_neighbors, n_threads)
