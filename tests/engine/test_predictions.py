"""Predictions of q(f) and of kriging in both precisions, for many functions."""

import numpy as np
import pytest
from helpers import KERNELS, make_problem
from numpy.testing import assert_allclose

from skswsgp._engine.cpu import CpuEngine


def predictions(problem):
    """Return means and variances (n, Q) of q(f), and of kriging for a diagonal S."""
    X, active = problem.batch.X, problem.batch.active
    engine = CpuEngine(problem.model, active.shape[1], 2)
    found = engine.predict(X, active, True)
    if problem.model.full:
        return found
    return *found, *engine.kriging_predictions(X, active)


@pytest.mark.slow  # it compiles predictions in float32
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("Q", [1, 7, 8, 9, 16])
def test_single_precision_differs_by_rounding_only(Q, full):
    double, single = (
        make_problem(
            KERNELS["matern"], "gaussian", Q, full=full, dtype=dtype,
            rng=np.random.default_rng(Q), M=9, H=5, n=20,
        )
        for dtype in ("float64", "float32")
    )  # fmt: skip
    parts = zip(predictions(single), predictions(double), strict=True)
    for found, expected in parts:
        assert found.dtype == np.float32
        assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_variances_of_kriging_need_no_means(rng):
    problem = make_problem(KERNELS["matern"], "gaussian", 2, full=False, rng=rng)
    X, active = problem.batch.X, problem.batch.active
    engine = CpuEngine(problem.model, active.shape[1], 1)
    _, variance = engine.kriging_predictions(X, active)
    mean, alone = engine.kriging_predictions(X, active, with_mean=False)
    assert mean is None
    assert (alone == variance).all()
