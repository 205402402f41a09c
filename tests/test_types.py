"""Public signatures have types, which a type checker reads in programs of users."""

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from helpers import public_names

ROOT = Path(__file__).parents[1]
# Lines that mypy refuses end with what it says of them.
PROGRAM = """
from typing import assert_type

import numpy as np
import skswsgp
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF

from skswsgp import SWSGPClassifier, SWSGPRegressor, dask, kernels, metrics
from skswsgp import SWSGPRegresor  # attr-defined
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.displays import CoverageDisplay
from skswsgp.solvers import Adam

X, y = np.zeros((20, 2)), np.zeros(20)
kernel = kernels.OnColumns(RBF(), [0]) + kernels.Polynomial(length_scale=[1.0])
model = SWSGPRegressor(kernel, n_inducing=10, solver=Adam(max_iter=20))
assert_type(model.fit(X, y, noise_variance=0.1 * np.ones(20)), SWSGPRegressor)
assert_type(model.partial_fit([[1.0, 2.0]], [3.0]), SWSGPRegressor)
mean, std = model.set_params(verbose=1).predict(X, return_std=True)
lower, median, upper = model.predict(X, quantiles=[0.1, 0.5, 0.9]).T
ends = model.predict_interval(X, 0.9)
assert_type(ends, tuple[NDArray[np.float64], NDArray[np.float64]])
score: float = metrics.interval_score(y, *ends, coverage=0.9)
proba = SWSGPClassifier(class_weight={0: 2.0}).fit(X, y > 0).predict_proba(X)
assert_type(proba, NDArray[np.float64])
NearestNeighborGPRegressor().fit(X, y).predict_interval(X)
CoverageDisplay.from_estimator(model, X, y).ax_.set_title(model.describe())
dask.DaskSWSGPRegressor(model.kernel_).fit(X, y).predict(X).compute()

SWSGPRegressor(n_inducng=10)  # call-arg
SWSGPRegressor(n_inducing=0.5)  # arg-type
SWSGPRegressor(solver=3)  # arg-type
model.fit(X)  # call-arg
model.fit(X, y, sample_wieght=y)  # call-arg
model.predict(X, n_neighbors=[3])  # arg-type
model.partial_fit(X, y, classes=[0, 1])  # call-arg
model.predict(X).quantile(0.5)  # union-attr
Adam(20)  # call-arg
metrics.crps(y)  # call-arg
skswsgp.kernel  # attr-defined
"""
# What takes long to read, and whose types the program does not need
SETTINGS = """
[mypy]
ignore_missing_imports = true
follow_imports = silent
[mypy-dask.*,distributed.*,matplotlib.*,numba.*]
follow_imports = skip
follow_imports_for_stubs = true
"""


def public_signatures():
    """Yield the public functions and methods, and constructors, by their names."""
    for name in public_names():
        module, _, short = name.rpartition(".")
        one = getattr(import_module(module), short)
        if inspect.isfunction(one):
            yield name, one
            continue
        for method, value in inspect.getmembers(one, callable):
            ours = str(getattr(value, "__module__", "")).startswith("skswsgp")
            if ours and (method == "__init__" or not method.startswith("_")):
                yield f"{name}.{method}", value


def test_public_signatures_have_types():
    found = dict(public_signatures())
    assert len(found) > 100
    for name, function in found.items():
        signature = inspect.signature(function)
        if not name.endswith("__init__"):
            assert signature.return_annotation is not signature.empty, name
        for parameter in signature.parameters.values():
            typed = parameter.annotation is not parameter.empty
            assert typed or parameter.name in ("self", "cls"), (name, parameter)


@pytest.mark.slow  # a process that reads the package and NumPy, for some five seconds
def test_a_type_checker_tells_right_calls_from_wrong_ones(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", program.name]
    where = {"cwd": tmp_path, "env": os.environ | {"MYPYPATH": str(ROOT)}}
    done = subprocess.run(command, capture_output=True, text=True, **where)
    lines = enumerate(PROGRAM.splitlines(), 1)
    expected = [(n, line.rpartition("  # ")[2]) for n, line in lines if "  # " in line]
    found = re.findall(r"(?m)^program\.py:(\d+): error: .*\[(.*)\]$", done.stdout)
    assert [(int(n), code) for n, code in found] == expected, done.stdout + done.stderr
