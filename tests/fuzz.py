"""Random fits: data, types, weights and parameters, and what every fit promises.

    python tests/fuzz.py --cases 1000
    python tests/fuzz.py --seed 123 --cases 1  # the case of seed 123 again

A case prints a line only if it fails. pytest runs some cases in `test_fuzz.py`.
"""

import argparse
import pickle
import sys
import traceback
import warnings
from unittest import mock

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial
from skswsgp.solvers import Adam, Natural

KERNELS = (
    None,
    OnColumns(1.0 * ExpSineSquared(0.8, 1.5) * RBF(3.0), [0]) + RBF(),
    2.0 * OnColumns(Matern(nu=1.5), 0) + WhiteKernel(0.1),
    ConstantKernel(0.5, "fixed") * RationalQuadratic(),
    DotProduct() + RBF(0.5, (0.0, np.inf)),
    1.0 * ArcCosine(1),
    Polynomial(2) * RBF(),
)

GROWING = "Polynomial", "ArcCosine", "DotProduct"  # kernels that X can make too large


def draw(rng, *values):
    """Return one of some values."""
    return values[rng.integers(len(values))]


def draw_data(rng, kind):
    """Return X, y and weights, of a random size, distribution, unit and type."""
    n, D = int(draw(rng, 1, 2, 5, 12, 20, 40, 60, 150)), int(rng.integers(1, 5))
    X = draw(rng, rng.normal, rng.standard_cauchy, rng.random)(size=(n, D))
    f = np.sin(2.0 * X[:, 0]) + X[:, -1]
    unit = 10.0 ** (draw(rng, -9, 9, -30, 30, 200) if rng.random() < 0.2 else 0)
    X = unit * (X + draw(rng, 0.0, 0.0, 0.0, 1e6))
    if rng.random() < 0.3:
        X = X[rng.integers(n, size=n)]  # duplicates
    if rng.random() < 0.2:
        X[:, 0] = 0.1
    if rng.random() < 0.1:
        X = np.rint(3.0 * X)
    if rng.random() < 0.2:
        X = draw(rng, np.asfortranarray, np.float16, np.ndarray.tolist)(X)
    if kind is SWSGPClassifier:
        y = (f > np.median(f)).astype(int) + (f > 1.5) * int(rng.integers(2))
        y = np.array(["no", "maybe", "yes"])[y] if rng.random() < 0.3 else y
    else:
        y = f + draw(rng, 0.0, 0.1, 1.0) * rng.normal(size=n)
        y = y * 10.0 ** draw(rng, 0, 0, -8, 8) if rng.random() < 0.8 else np.ones(n)
        y = np.stack([y, -(f**2)], axis=1) if rng.random() < 0.2 else y
    weight = None
    if rng.random() < 0.5:
        weight = rng.random(n) ** draw(rng, 0, 1, 8) * 10.0 ** draw(rng, 0, -12, 12)
        weight[rng.random(n) < draw(rng, 0.0, 0.3)] = 0.0
    return X, y, weight


def draw_model(rng, kind):
    """Return an estimator with random parameters."""
    params = {
        "kernel": draw(rng, *KERNELS),
        "learn_map": draw(rng, "auto", "auto", False, True),
        "n_neighbors": int(draw(rng, 1, 4, 16, 64)),
        "dtype": draw(rng, "float64", "float64", "float32"),
        "random_state": int(rng.integers(1000)),
    }
    if kind is not SWSGPClassifier:
        params["normalize_y"] = bool(rng.random() < 0.8)
        params["initial_noise"] = draw(rng, 0.1, 1e-6, 10.0)
    if kind is NearestNeighborGPRegressor:
        return kind(**params)
    moving = {
        "optimize_inducing": bool(rng.random() < 0.2),
        "kl_weight": draw(rng, 1.0, 0.1),
    }
    steps = {
        "batch_size": int(draw(rng, 1, 16, 64)),
        "learning_rate": draw(rng, 0.02, 0.2),
        "max_iter": int(rng.integers(1, 4)),
        "early_stopping": draw(rng, "auto", False, True),
        "validation_fraction": draw(rng, 0.1, 0.5, 0.9),
        "n_shared": draw(rng, None, 64),
    }
    solvers = Natural(**moving), Adam(**moving, **steps)
    params |= {
        "solver": solvers[int(rng.integers(2))],
        "n_inducing": draw(rng, "auto", "auto", 1, 5, 30),
        "n_neighbors": draw(rng, "auto", "all", params["n_neighbors"]),
        "inducing_points": draw(rng, "kmeans", "random"),
        "covariance": draw(rng, "auto", "auto", "diag", "full", "draws"),
        "learn_kernel": draw(rng, True, False),
        "warm_start": bool(rng.random() < 0.1),
    }
    if kind is SWSGPClassifier:
        params["likelihood"] = draw(rng, "auto", "auto", "softmax")
    return kind(**params)


def predictions(model, X):
    """Return the arrays that a model predicts."""
    if isinstance(model, SWSGPClassifier):
        return (model.predict_proba(X),)
    return model.predict(X, return_std=True)


def check(model, X, y, weight):
    """Fit and predict; raise AssertionError if a promise is broken."""
    before = joblib.hash((X, y, weight))
    try:
        fitted = clone(model).set_params(n_jobs=1).fit(X, y, sample_weight=weight)
    except ValueError as error:
        text = str(error)
        assert 20 < len(text) < 1000 and "\n" not in text, f"unclear: {text}"
        return
    values = predictions(fitted, X)
    assert all(np.isfinite(array).all() for array in values), "not finite"
    if isinstance(model, SWSGPClassifier):
        np.testing.assert_allclose(values[0].sum(axis=1), 1.0, rtol=1e-5)
        assert (values[0] >= 0.0).all(), "negative probability"
        assert set(fitted.predict(X)) <= set(np.asarray(y).tolist()), "unknown label"
    else:
        assert values[0].shape == values[1].shape == np.shape(y), "shape"
        assert (values[1] > 0.0).all(), "std is not positive"
    if not isinstance(model, NearestNeighborGPRegressor):
        check_joint(fitted, X, values)
    assert joblib.hash((X, y, weight)) == before, "an input changed"
    others = {
        "a pickle": pickle.loads(pickle.dumps(fitted)),
        "a second fit": clone(fitted).fit(X, y, sample_weight=weight),
        "two threads": clone(model).set_params(n_jobs=2).fit(X, y, weight),
    }
    for name, other in others.items():
        for first, second in zip(values, predictions(other, X), strict=True):
            assert np.array_equal(first, second), f"{name} predicts another value"


def check_joint(model, X, values):
    """Raise AssertionError if rows together are not as each of them is alone."""
    X = np.asarray(X)[:20]
    mean, variance = model.latent_mean_and_variance(X)
    assert (variance > 0.0).all(), "a variance is not positive"
    assert np.isfinite(model.predict_gradient(X)).all(), "gradient"
    if isinstance(model, SWSGPRegressor):
        _, cov = model.predict(X, return_cov=True)
        diagonal = np.sqrt(np.diagonal(cov)).T
        exact = model.dtype == "float64"
        std = values[1][:20]
        np.testing.assert_allclose(diagonal, std, rtol=1e-5 if exact else 5e-2)
        assert np.array_equal(cov, np.swapaxes(cov, 0, 1)), "not symmetric"
    if "WhiteKernel" not in str(model.kernel_):
        functions = model.sample_f(X, 3)
        assert functions.shape == (*mean.shape, 3), "shape of draws"
        # what a number of this size may lose to rounding, without which y is far off
        rounding = 4.0 * np.finfo(model.dtype).eps * np.abs(mean)[..., None]
        distance = np.abs(functions - mean[..., None]) - rounding
        distance /= np.sqrt(variance)[..., None]
        assert (distance < 7.0).all(), "a draw is far from the mean"


def too_large(error, model, X):
    """Return whether a fit says that X is too large for a kernel of inner products."""
    grows = any(name in str(model.kernel) for name in GROWING)
    said = isinstance(error, FloatingPointError) and "scale X" in str(error)
    return said and grows and np.abs(X).max() > 1e6


def draw_case(rng):
    """Return a class of estimators, data and an estimator."""
    kind = draw(rng, SWSGPRegressor, SWSGPClassifier, NearestNeighborGPRegressor)
    with np.errstate(over="ignore"):  # X in float16
        return kind, draw_data(rng, kind), draw_model(rng, kind)


def run(seed):
    """Run the case of a seed; return None, or what failed in one line."""
    rng = np.random.default_rng(seed)
    kind, data, model = draw_case(rng)
    # with a limit of two, three columns are then a wide table
    limits = {"most_columns": int(draw(rng, 64, 2))}
    if rng.random() < 0.5:  # few neighbours, so that exact means are worth a try
        limits |= {"least_neighbors": 5, "most_neighbors": 5}
        limits |= {"mean_cell_work": 0.2, "mean_global_points": 10}
    wide = kind._tuning._replace(**limits)
    eager = {"ROWS_PER_THREAD": 1, "MICROSECONDS_PER_THREAD": 1}  # even for few rows
    with (
        warnings.catch_warnings(),
        mock.patch.multiple(threads, **eager),
        mock.patch.object(kind, "_tuning", wide),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)  # convergence, more jitter
        try:
            check(model, *data)
        except Exception as error:
            if too_large(error, model, data[0]):
                return None
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())[:200]
            place = f"{where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
            return (
                f"python tests/fuzz.py --seed {seed} --cases 1  # {kind.__name__}, "
                f"{place}: {type(error).__name__}: {text}"
            )
    return None


def main():
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--cases", type=int, default=100, help="number of cases")
    options = parser.parse_args()
    failures = 0
    for seed in range(options.seed, options.seed + options.cases):
        line = run(seed)
        if line is not None:
            failures += 1
            print(line, flush=True)
    print(f"{options.cases} cases, {failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
