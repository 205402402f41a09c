"""The choice of an engine: the only place where a device is chosen."""

from skswsgp._compiled.threads import microseconds_per_point
from skswsgp._engine.cpu import CpuEngine, DenseCpuEngine

# Seconds of work on one core from which "auto" takes a GPU. They are ten times what the
# kernels of the first engine of a GPU took to compile in a new process.
LEAST_SECONDS = 600.0


def require_device(device):
    """Raise ValueError, with the reason, if the device cannot be used."""
    if device == "cuda":
        from skswsgp.cuda import device as gpu

        gpu.require()


def make_engine(device, model, n_neighbors, n_threads, points=0):
    """Return the `Engine` of "cpu", "cuda" or "auto", which is chosen by the rows."""
    if device == "auto":
        device = choose_device(points, n_neighbors, len(model.Z))
    if device == "cpu":
        return make_cpu_engine(model, n_neighbors, n_threads)
    return make_cuda_engine(model, n_neighbors, n_threads)


def make_cpu_engine(model, n_neighbors, n_threads):
    """Return the engine of the CPU: `DenseCpuEngine` where H = M."""
    dense = n_neighbors == len(model.Z)
    return (DenseCpuEngine if dense else CpuEngine)(model, n_neighbors, n_threads)


def make_cuda_engine(model, n_neighbors, n_threads):
    """Return the engine of the GPU; raise ValueError if no GPU can be used."""
    from skswsgp.cuda.engine import CudaEngine  # the import takes a second

    return CudaEngine(model, n_neighbors, n_threads)


def make_kriging_engine(device, model, n_neighbors, n_threads):
    """Return an engine for kriging, in which every row has a list of its own."""
    make = CpuEngine if device == "cpu" else make_cuda_engine
    return make(model, n_neighbors, n_threads)


def choose_device(points, H, M):
    """Return "cuda" if there is an idle GPU and enough work for it, else "cpu".

    Where H = M the CPU factorises one K for all rows, and a GPU one for each row. A GPU
    whose memory others use may be too full.
    """
    seconds = 1e-6 * points * microseconds_per_point(H)
    if H == M or seconds < LEAST_SECONDS:
        return "cpu"
    from skswsgp.cuda import device as gpu

    return "cpu" if gpu.missing() or gpu.is_busy() else "cuda"
