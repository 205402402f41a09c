"""Problems and comparisons of both engines."""

import numpy as np
from helpers import assert_close, make_problem
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._adam.steps import make_steps
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine.cpu import CpuEngine
from skswsgp.cuda.engine import CudaEngine
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

KERNELS = {
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "matern12": Matern(1.3, nu=0.5),
    "matern32-power": Matern(0.9, nu=1.5) ** 1.5,
    "matern52-ard": ConstantKernel(1.4) * Matern([0.8, 1.7, 1.1, 2.0, 1.5], nu=2.5),
    "rational": RationalQuadratic(1.1, 0.8),
    "periodic": OnColumns(RBF(2.0) * ExpSineSquared(1.5, 3.0), [3]),
    "columns": OnColumns(Matern([0.8, 1.7], nu=1.5) + 0.2 * ArcCosine(1, 1.2), [4, 1]),
    "dot-product": DotProduct(0.5) + WhiteKernel(0.5),
    "polynomial": Polynomial(3, [1.5, 2.0, 3.0, 2.5, 3.5], 0.9),
    "arc-cosine-0": ArcCosine(0, 1.3, 0.7),
    "arc-cosine-1": ArcCosine(1, 1.3, 0.7),
}
KERNELS["all"] = sum(KERNELS.values(), start=ConstantKernel(0.1))
LIKELIHOODS = {
    "gaussian-2": ("gaussian", 2),
    "bernoulli": ("bernoulli", 1),
    "logit": ("logit", 1),
    "poisson": ("poisson", 2),
    "negative-binomial": ("negative_binomial", 2),
    "student-t": ("student_t", 2),
    "softmax": ("softmax", 3),
}
SIZES = {"D": 5, "M": 60, "H": 12, "n": 30}
NATURAL = {"solver": "natural", "learn_kernel": False}
ROUNDINGS = 1e5  # K has condition numbers up to 1e4, and Adam divides by derivatives


def problem_of(kernel, likelihood, *, full=False, dtype="float64", moving=True):
    """Return a problem of both engines."""
    rng = np.random.default_rng(0)
    name, Q = LIKELIHOODS[likelihood]
    problem = make_problem(
        KERNELS[kernel], name, Q, full=full, rng=rng, dtype=dtype, **SIZES
    )
    return problem.replace(jitter=1e-3, train_inducing=moving)


def steps_of(engine, n):
    """Return steps of n rows for a model all of whose parameters are free."""
    P, D = len(engine.model.params), engine.model.Z.shape[1]
    bounds = np.tile([-5.0, 5.0], (P, 1))
    return make_steps(engine, n, np.ones(P, bool), bounds, np.ones(D))


def check_steps(**options):
    """Compare the engines after steps of Adam: models, moments and sums."""
    states = []
    for kind in (CpuEngine, CudaEngine):
        problem = problem_of(**options)
        batch = problem.batch
        run = kind(problem.model, batch.active.shape[1], 1)
        n = len(batch.X) // 2
        steps = steps_of(run, n)
        steps.take(batch, n, np.array([0.05, 0.04]))
        sums = steps.finish_epoch()
        model, moments = run.model, steps.optimizer
        values = model.params, model.noise, model.m, model.s, model.L, model.Z
        of_rows = moments.m, moments.s, moments.L, moments.params, moments.row_steps
        states.append((sums, *values, *of_rows, run.jitter_counts.sum(0)))
        run.close()
    dtype = options.get("dtype", "float64")
    for expected, actual in zip(*states, strict=True):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


def check_evaluation(problem):
    """Compare the evaluation of rows on both engines."""
    X, active, H = problem.batch.X, problem.batch.active, problem.batch.active.shape[1]
    cpu, gpu = CpuEngine(problem.model, H, 1), CudaEngine(problem.model, H, 1)
    q = cpu.predict(X, active, with_variance=True)
    calls = [
        lambda run: run.predict(X, active, with_variance=True),
        lambda run: run.predict(X, active, with_variance=False)[:1],
        lambda run: run.predict(X[:0], active[:0], with_variance=True),
        lambda run: run.conditional_weights(X, active),
        lambda run: [run.prior_part(X, active)],
        lambda run: run.bound(problem.batch),
        lambda run: run.variational_expectations(problem.batch.y, *q),
    ]
    for call in calls:
        for actual, expected in zip(call(gpu), call(cpu), strict=True):
            assert actual.dtype == expected.dtype
            assert_close(actual, expected, roundings=ROUNDINGS, dtype=X.dtype)
    gpu.close()


def check_kriging(kernel, Q=2, dtype="float64"):
    """Compare kriging on both engines, before and after the parameters change."""
    results = []
    for kind in (CpuEngine, CudaEngine):
        rng = np.random.default_rng(0)
        problem = make_problem(
            KERNELS[kernel], "gaussian", Q, full=False, rng=rng, dtype=dtype, **SIZES
        )
        model, batch = problem.replace(jitter=1e-3).model, problem.batch
        ratios = rng.uniform(0.5, 2.0, size=batch.y.shape).astype(dtype)
        batch = batch._replace(y=np.hstack([batch.y, ratios]))
        run, n = kind(model, batch.active.shape[1], 1), len(batch.X) // 2
        run.load_kriging(batch, n)
        for start in (0, n):
            grads = run.kriging_gradients(start)
            found = [grads.d_log[0], grads.d_noise[0], grads.sums[0, 0]]
            results += [np.array(found[0]), np.array(found[1]), found[2]]
            results += run.kriging_predictions(batch.X, batch.active)
            alone = run.kriging_predictions(batch.X, batch.active, with_mean=False)
            assert alone[0] is None
            results += [alone[1], run.kriging_slopes(batch.X, batch.active)]
            model.params[:] *= 1.1
            model.noise[:] *= 0.8
            refresh_scales(model)
        run.close()
    half = len(results) // 2
    for expected, actual in zip(results[:half], results[half:], strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)
