"""Tolerances, and small problems for the compiled code below the estimators."""

import re
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
import reference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import skswsgp
from skswsgp._adam import gradients as engine
from skswsgp._compiled.jit import FASTMATH
from skswsgp._compiled.pointers import address_of
from skswsgp._compiled.threads import CHUNKS, parallel_region
from skswsgp._covariance.compile import compile_kernel
from skswsgp._point.bound import allocate_stack
from skswsgp._point.likelihood_records import LIKELIHOODS, make_likelihood
from skswsgp._point.state import (
    Batch,
    Gradients,
    Model,
    allocate_gradients,
    allocate_workspace,
)
from skswsgp.kernels import ArcCosine
from skswsgp.solvers import Adam, Natural

# Step of central differences in float64, and their error relative to the largest
# derivative: rounding 1e-16 |f| / step and the third derivative times step^2 / 6.
STEP, DIFFERENCE_TOLERANCE = 1e-5, 1e-6

# Compilation for the other precision takes as long as for the first one.
DTYPES = "float64", pytest.param("float32", marks=pytest.mark.slow)
ADAM = {"solver": "adam", "learn_kernel": False}  # the training of the paper
ROOT = Path(__file__).parents[1]
SITE = "https://example.org/skswsgp"


def make(estimator_class, *args, **params):
    """Return an estimator whose solver has those of `params` that it knows.

    Parameters of the other solver are left out.
    """
    adam, natural = Adam().get_params(), Natural().get_params()
    chosen = {n: params.pop(n) for n in adam | natural if n in params}
    if not isinstance(params.get("solver", ""), str):
        assert not chosen, f"an object of a solver with {chosen}"
        return estimator_class(*args, **params)
    given = params.pop("solver", "natural")
    solver = {"adam": Adam, "natural": Natural}.get(given)
    if solver is None:
        return estimator_class(*args, solver=given, **params)
    known = adam if solver is Adam else natural
    chosen = {n: value for n, value in chosen.items() if n in known}
    return estimator_class(*args, solver=solver(**chosen), **params)


KERNELS = {
    "matern": ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5),
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "arc-cosine": ArcCosine(1, 1.3, 0.7),
}

# Compiles a function that calls inline functions, which take the flags of their caller.
# There is no cache, because a cache does not notice that an inline function changed.
caller = numba.njit(fastmath=FASTMATH, error_model="numpy")


def entry(function):
    """Return a function for Python that calls one for compiled functions alone."""
    return caller(lambda *arguments: function(*arguments))


def assert_close(actual, expected, *, roundings, dtype="float64"):
    """Check that errors are at most `roundings` machine epsilons of the largest entry.

    The largest entry counts by magnitude, and as no less than 1.
    """
    expected = np.asarray(expected, dtype=float)
    scale = max(1.0, np.max(np.abs(expected), initial=0.0))
    tolerance = roundings * np.finfo(dtype).eps * scale
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def assert_derivatives(actual, function, theta, *, tolerance=DIFFERENCE_TOLERANCE):
    """Check derivatives of function(theta) against central differences."""
    expected = reference.finite_difference(function, theta, STEP)
    scale = max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def holed(*values):
    """Return a function that sets the rows of an array to values from the third on."""

    def put(array):
        array = np.array(array, dtype=float)
        for row, value in enumerate(values, start=2):
            array[row] = value
        return array

    return put


def typed(address):
    """Return an address as steps of Adam have it: of another type it compiles anew."""
    return np.uint64(address)


class Problem(NamedTuple):
    """A model with data, and the kernel object and likelihood it was made from."""

    kernel: object
    likelihood: str
    model: Model
    batch: Batch

    def replace(self, *, active=None, rows=None, **fields):
        """Return a copy with other fields of the model, neighbours or rows."""
        model, batch = self.model._replace(**fields), self.batch
        if active is not None:
            batch = batch._replace(active=active)
        if rows is not None:
            batch = Batch(*(np.ascontiguousarray(array[rows]) for array in batch))
        return self._replace(model=model, batch=batch)

    def local(self, *, start=0, n=None, n_threads=1):
        """Return the gradients of n rows from `start`, each with its own K."""
        n = len(self.batch.X) if n is None else n
        H = self.batch.active.shape[1]
        grads = allocate_gradients(self.model, n, H)
        works = allocate_workspace(self.model, H, n_threads)
        with parallel_region(n_threads):
            rows = self.model, self.batch, 0, 0, 0, 0, works, 0, grads
            address = typed(address_of(engine.gradient_chunks, *rows))
            given = self.model, self.batch, start, n, works, grads
            engine.local_gradients(address, *given)
        return grads

    def dense(self, *, n_threads=1, points=None, room=None):
        """Return the gradients of all rows with one K of `points`, or of all of them.

        The work arrays have room for `room` points.
        """
        n, M = len(self.batch.X), len(self.model.Z)
        points = np.arange(M) if points is None else points
        active = np.array(points, dtype=np.int32)[np.newaxis]
        H = len(points) if room is None else room
        grads = allocate_gradients(self.model, CHUNKS, H)
        factors = allocate_workspace(self.model, H, 1)
        works = allocate_workspace(self.model, H, n_threads, dense=True)
        stack = allocate_stack(self.model, n, H, n_threads)
        with parallel_region(n_threads):
            first = self.model, self.batch, 0, 0, 0, 0, 0
            rows = *first, factors, works, 0, stack, grads
            address = typed(address_of(engine.dense_gradient_chunks, *rows))
            arrays = factors, works, stack, grads
            given = self.model, self.batch, 0, n, active, *arrays
            engine.dense_gradients(address, *given)
        return grads

    def union_pieces(self, points):
        """Return the weighted sums of ELL and of KL for shared points (reference)."""
        kernel, X, y, Z, m, S, _, *rest = self._arguments()
        more = {"nodes": self.model.nodes.T, "shape": self.model.shape}
        ell, kl = reference.union_bound_terms(
            kernel, X, y, Z, m, S, points, *rest, **more
        )
        return self.batch.weight @ ell, self.batch.weight.sum() * kl

    def objective(self, grads):
        """Return sum_i weight_i (ELL_i - beta / W KL_i)."""
        model = self.model
        ell, kl = grads.sums[0]
        return ell - model.kl_weight / model.total_weight * kl

    def pieces(self):
        """Return the weighted sums of ELL and of KL, from the reference."""
        weight = self.batch.weight
        bounds = [
            reference.lower_bound(*self._arguments(), **self._options(), kl_weight=beta)
            for beta in (0.0, 1.0)
        ]
        return bounds[0], (bounds[0] - bounds[1]) * weight.sum()

    def svgp_bound(self):
        """Return eq. 4, the bound of the SVGP, from the reference."""
        kernel, X, y, Z, m, S, _, *rest = self._arguments()
        options = self._options()
        del options["neighbors"]
        return reference.svgp_lower_bound(
            kernel, X, y, Z, m, S, *rest, **options, kl_weight=self.model.kl_weight
        )

    def _arguments(self):
        model, batch = self.model, self.batch
        S = np.moveaxis(model.L, 0, -1) if model.full else model.s
        H, noise = batch.active.shape[1], model.noise
        common = self.kernel, batch.X, batch.y, model.Z, model.m, S, H
        return *common, self.likelihood, noise, model.jitter

    def _options(self):
        model, batch = self.model, self.batch
        return {
            "sample_weight": batch.weight,
            "neighbors": batch.active,
            "nodes": model.nodes.T,
            "shape": model.shape,
        }


def make_problem(
    kernel, likelihood, Q, *, full, rng, dtype="float64", D=2, M=6, H=4, n=5
):
    """Return a random `Problem`, all numbers of which are of order one."""
    record = LIKELIHOODS[likelihood]
    X, Z = rng.normal(size=(n, D)), rng.normal(size=(M, D))
    active = reference.neighbor_table(kernel, X, Z, H).astype(np.int32)
    if record.has_noise:
        y = rng.normal(size=(n, Q))
    elif record.counts:
        y = rng.poisson(2.0, size=(n, Q)).astype(float)
        y = np.column_stack([y, 0.3 * rng.normal(size=n)])  # log exposures
    else:
        n_classes = max(Q, 2)
        y = record.encode(rng.integers(n_classes, size=n), n_classes)
    L = np.tril(0.2 * rng.normal(size=(Q, M, M)), -1)
    L += np.eye(M) * rng.uniform(0.3, 0.9, size=(Q, M, 1))
    s = rng.uniform(0.1, 0.8, size=(M, Q))
    noise = rng.uniform(0.2, 0.5, size=Q if record.has_noise else 0)
    weight = rng.uniform(0.5, 2.0, size=n)
    m = rng.normal(size=(M, Q))
    shape = np.linspace(3.0, 4.0, Q) if record.usual_shape else 0.0

    def cast(array):
        return np.ascontiguousarray(array, dtype=dtype)

    model = Model(
        *compile_kernel(kernel, D, np.dtype(dtype)).struct,
        *make_likelihood(likelihood, Q, np.dtype(dtype), shape=shape),
        Z=cast(Z),
        m=cast(m),
        s=cast(s if not full else np.zeros((0, Q))),
        L=cast(L if full else np.zeros((0, M, M))),
        noise=cast(noise),
        jitter=1e-6,
        total_weight=float(weight.sum()),
        kl_weight=0.7,
        full=full,
        train_inducing=True,
    )
    batch = Batch(cast(X), cast(y), cast(weight), active)
    return Problem(kernel, likelihood, model, batch)


def dense_gradients(problem, grads, *, active=None):
    """Return the gradients of a batch by name, added up by the rows of Z, m and S.

    `active` (blocks, H) lists the rows of each block. Derivatives are by the logarithms
    of kernel parameters and noise, and by m, s or L, and Z. With S = L L' those by L_w
    are 2 (d/dS_w) L_w.
    """
    model = problem.model
    active = problem.batch.active if active is None else active
    d_m, d_Z = np.zeros_like(model.m), np.zeros_like(model.Z)
    d_s, d_L = np.zeros_like(model.s), np.zeros_like(model.L)
    for b, w in enumerate(active):
        d_m[w] += grads.d_m[b].T
        if model.train_inducing:
            d_Z[w] += grads.d_Z[b].T
        if model.full:
            for q in range(len(d_L)):
                d_S = grads.d_S[b, q, : len(w), : len(w)]
                d_L[q, w] += 2.0 * d_S @ model.L[q, w]
        else:
            d_s[w] += grads.d_s[b].T
    dense = {"log_params": grads.d_log[0], "log_noise": grads.d_noise[0]}
    return dense | {"m": d_m, "s": d_s, "L": np.tril(d_L), "Z": d_Z}


def add_gradients(first, second):
    """Return the sums of two results of `dense_gradients`."""
    return {name: first[name] + second[name] for name in first}


def first_block(grads):
    """Return the first block and chunk of `Gradients`, which holds those of one K."""
    return Gradients(*(array[:1] for array in grads))


def drawn(kernel, noise, N=600, seed=0):
    """Return X (N, 2) and y (N,), drawn from a Gaussian process with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(N, 2))
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(N))
    return X, L @ rng.normal(size=N)


def labels_of(display):
    """Return the names in the legend of a display."""
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def public_names():
    """Yield the public classes and functions, as in `skswsgp.solvers.Adam`."""
    for name in (*skswsgp.__all__, "dask"):
        if name == "__version__":
            continue
        one = getattr(skswsgp, name)
        inner = getattr(one, "__all__", None)
        yield from (
            [f"skswsgp.{name}"]
            if inner is None
            else (f"skswsgp.{name}.{each}" for each in inner)
        )


def copy_settings(folder, urls=""):
    """Copy pyproject.toml, with another table [project.urls] or none."""
    settings = (ROOT / "pyproject.toml").read_text()
    settings = re.sub(r"(?ms)^\[project\.urls\]\n.*?(?=^\[)", "", settings)
    table = f"\n[project.urls]\n{urls}\n" if urls else ""
    (folder / "pyproject.toml").write_text(settings + table)
