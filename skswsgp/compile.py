"""Compile what fits and predictions call, before they are needed.

    python -m skswsgp.compile
    python -m skswsgp.compile regression adam

A build of an image, or of a machine without time to wait, calls this once. It fits and
predicts small tables of each kind and lets Numba write the compiled code to its cache.
"""

import argparse
import time

import numpy as np
from llvmlite.binding import get_host_cpu_name

from skswsgp._covariance.program import fill_program
from skswsgp._estimators.classifier import SWSGPClassifier
from skswsgp._estimators.regressor import SWSGPRegressor

KINDS = "regression", "classification", "adam"


def _make_rows(n):
    """Return X (n, 6) and noisy targets (n,) of a smooth function."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, 6))
    return X, np.sin(X[:, 0] + X[:, 1]) + 0.3 * X[:, 2] + 0.1 * rng.normal(size=n)


def _prepare(kind, dtype):
    """Fit and predict tables of a kind of model, which compiles what they call."""
    common = {"random_state": 0, "dtype": dtype}
    for n in (300, 2_000, 7_500):  # rows of tables that go through all stages
        X, y = _make_rows(n)
        if kind == "classification":
            SWSGPClassifier(**common).fit(X, y > 0.0).predict_proba(X)
        elif kind == "regression":
            SWSGPRegressor(**common).fit(X, y).predict_interval(X)
        else:
            few = {"solver": "adam", "n_inducing": 100, "n_neighbors": 8}
            model = SWSGPRegressor(learn_kernel=False, **few, **common).fit(X, y)
            model.predict(X, return_std=True)


def main(arguments=None):
    """Compile the kinds that the command line names, or those of default fits.

    Parameters
    ----------
    arguments : list of str, default=None
        Words of the command line, or None for those of this process.

    Raises
    ------
    SystemExit
        If a kind is not known, or there is no folder for compiled code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m skswsgp.compile",
        description="Compile what fits and predictions call, before they are needed.",
    )
    parser.add_argument(
        "kinds",
        nargs="*",
        metavar="kind",
        help=f"any of {', '.join(KINDS)}; default: regression and classification",
    )
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    options = parser.parse_args(arguments)
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"kind {kind!r}: expected {', '.join(KINDS)}")
    folder = fill_program.stats.cache_path
    if folder is None:
        parser.error(
            "Numba has no folder to keep compiled code: set NUMBA_CACHE_DIR to one "
            "that can be written, and SKSWSGP_CACHE, if it is set, not to 0"
        )
    for kind in options.kinds or KINDS[:2]:
        started = time.perf_counter()
        print(f"{kind} ...", end="", flush=True)
        _prepare(kind, options.dtype)
        print(f" {time.perf_counter() - started:.0f} s")
    kind = get_host_cpu_name()
    print(f"compiled for processors of this kind ({kind}), in folders such as {folder}")


if __name__ == "__main__":
    main()
