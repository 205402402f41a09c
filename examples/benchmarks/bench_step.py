"""How long does a training step take, compared with PyTorch and matrix products?

The table gives milliseconds of processor time for a step of Adam. One case has n = 64
rows, D = 8, M = 10,000, a diagonal S and fixed Z; the other has n = 100, M = 1024,
H = 50, a full S and trained Z. Both have a Matern 5/2 kernel with a trained
length-scale for each feature. `torch_step.py` runs the same model in PyTorch; loss and
derivatives are compared first. The column "64 products" is the time that numpy takes
for 64 products of two 100 x 100 matrices.
"""

import warnings
from typing import NamedTuple

import numpy as np
from report import Table, arguments, least_times, lines
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from threadpoolctl import threadpool_limits

from skswsgp._adam.schedule import STEPS_PER_BLOCK
from skswsgp._adam.steps import make_steps
from skswsgp._covariance.compile import compile_kernel
from skswsgp._engine.cpu import CpuEngine
from skswsgp._point.state import Batch
from skswsgp._solvers.model import JITTER, build_model

try:
    from torch_step import TorchStep
except ImportError:
    TorchStep = None

COLUMNS = {
    "case": "",
    "H": "d",
    "skswsgp": ".3f",
    "PyTorch": ".3f",
    "64 products": ".3f",
    "PyTorch / skswsgp": ".1f",
    "skswsgp / 64 products": ".2f",
}


class Case(NamedTuple):
    """A model and minibatches for it."""

    dtype: str
    n: int
    full: bool
    train_inducing: bool
    Z: np.ndarray  # (M, D)
    mean: np.ndarray  # (M, 1)
    covariance: np.ndarray  # (M, 1), or the lower factor (M, M)
    X: np.ndarray  # (STEPS_PER_BLOCK * n, D)
    y: np.ndarray  # (STEPS_PER_BLOCK * n, 1)
    active: np.ndarray  # (STEPS_PER_BLOCK * n, H)
    length_scale: np.ndarray  # (D,)
    noise_variance: float
    jitter: float
    total_weight: float


class Step:
    """Steps of this package on a case."""

    def __init__(self, case, n_threads=1):
        D, H = case.Z.shape[1], case.active.shape[1]
        kernel = ConstantKernel(1.0) * Matern(case.length_scale, nu=2.5)
        S = case.covariance[:, :, None] if case.full else case.covariance
        attributes = {
            "kernel_": kernel,
            "inducing_points_": case.Z,
            "inducing_mean_": case.mean,
            "inducing_covariance_": S,
            "noise_variance_": np.array([case.noise_variance]),
        }
        options = {
            "total_weight": case.total_weight,
            "train_inducing": case.train_inducing,
        }
        model, center = build_model(attributes, ("gaussian", 1), case.dtype, **options)
        compiled = compile_kernel(kernel, D, case.dtype)
        self.engine = CpuEngine(model, H, n_threads)
        scale = np.ones(D, case.dtype)
        moving = compiled.free, compiled.log_bounds, scale
        self.steps = make_steps(self.engine, case.n, *moving)
        X = np.ascontiguousarray(case.X - center, case.dtype)
        y, weight = case.y.astype(case.dtype), np.ones(len(X), case.dtype)
        self.batch = Batch(X, y, weight, case.active)
        self.case = case
        self.rates = np.full(STEPS_PER_BLOCK, 1e-9)

    def block(self):
        """Take STEPS_PER_BLOCK steps of Adam."""
        self.steps.take(self.batch, self.case.n, self.rates)

    def gradients(self):
        """Return loss and derivatives for the first minibatch, named as in PyTorch."""
        case, steps = self.case, self.steps
        steps.finish_epoch()
        steps.take(self.batch, case.n, np.zeros(1))
        ell, kl = steps.finish_epoch()
        rows, log = steps.rows, steps.grads.d_log[0]
        touched = rows.touched[0, : rows.count[0, 0]]  # of one thread
        grads = {
            "log_variance": log[-1],
            "log_scale": log[:-1],
            "log_noise": steps.grads.d_noise[0, 0],
            "m": spread(rows.d_m[0], touched, case.mean.shape),
        }
        if case.full:
            d_L = spread(rows.d_L[0, touched], touched, case.covariance.shape)
            grads["L"] = np.tril(d_L, -1)
            grads["log_diagonal"] = np.diag(d_L) * np.diag(case.covariance)
        else:
            d_s = spread(rows.d_s[0], touched, case.covariance.shape)
            grads["log_s"] = d_s * case.covariance
        if case.train_inducing:
            grads["Z"] = spread(rows.d_Z[0], touched, case.Z.shape)
        loss = kl / case.total_weight - ell
        return loss, {name: -np.asarray(values) for name, values in grads.items()}


def spread(values, touched, shape):
    """Return an array of zeros with these values in the touched rows."""
    out = np.zeros(shape)
    out[touched] = values[: len(touched)]
    return out


def make_case(H, dtype="float64", *, M=10_000, D=8, n=64, full=False):
    """Return a `Case`. The inducing points are trained if S is full."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((M, D))
    length_scale = np.full(D, np.sqrt(D))
    X = rng.standard_normal((STEPS_PER_BLOCK * n, D))
    y = rng.standard_normal((len(X), 1))
    S = np.full((M, 1), 0.1)
    if full:
        S = np.tril(rng.standard_normal((M, M)) * 0.1 / np.sqrt(M), -1)
        S += 0.3 * np.eye(M)
    attributes = {
        "kernel_": ConstantKernel(1.0) * Matern(length_scale, nu=2.5),
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((M, 1)),
        "inducing_covariance_": np.ones((M, 1)),
    }
    model, center = build_model(attributes, ("gaussian", 1), "float64")
    search = {"search": "scan"}
    active = CpuEngine(model, H, 1).make_search(search).query(X - center)
    mean = rng.standard_normal((M, 1))
    sizes = dtype, n, full, full
    numbers = 0.1, JITTER, 1e5
    return Case(*sizes, Z, mean, S, X, y, active, length_scale, *numbers)


def check(case):
    """Raise unless this package and PyTorch agree to 1e-8 in loss and derivatives."""
    loss, grads = Step(case).gradients()
    loss_torch, grads_torch = TorchStep(case).gradients()
    np.testing.assert_allclose(loss, loss_torch, rtol=1e-8)
    assert grads.keys() == grads_torch.keys()
    for name, values in grads.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(
            values, grads_torch[name], rtol=0, atol=1e-8 * scale, err_msg=name
        )


def compare(table, label, case, compiled):
    """Time both steps and the matrix products in turn, and add a row to the table."""
    A = np.random.default_rng(0).random((64, 100, 100)).astype(case.dtype)
    functions = [Step(case).block, lambda: [a @ a for a in A]]
    if TorchStep is not None:
        functions.append(TorchStep(case, compiled=compiled).step)
    with threadpool_limits(1):
        times = least_times(functions)
    ours, products = times[0] / STEPS_PER_BLOCK, times[1]
    peer = times[2] if TorchStep is not None else None
    ratio = None if peer is None else peer / ours
    H = case.active.shape[1]
    table.add(label, H, ours, peer, products, ratio, ours / products)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 16, 32, 100])
    options = parser.parse_args()
    if TorchStep is None:
        print("Without PyTorch: it is not installed (extra `bench`).")
    else:
        for case in [make_case(H) for H in options.sizes]:
            check(case)
        check(make_case(50, M=1024, n=100, full=True))
        print("Loss and derivatives agree with PyTorch's to 1e-8 in float64.")
    warnings.filterwarnings("ignore", module="torch")
    table = Table("step", COLUMNS)
    for dtype in ("float64", "float32"):
        for H in options.sizes:
            compare(table, dtype, make_case(H, dtype), options.compile)
        case = make_case(50, dtype, M=1024, n=100, full=True)
        compare(table, f"{dtype}, full S", case, options.compile)
    ys = ["skswsgp", "PyTorch", "64 products"]
    table.save(options.out, lines, panel="case", x="H", ys=ys)
