"""Work arrays that are replaced, and batch sizes that fit."""

import re

import numpy as np
import pytest
from helpers import ADAM, make
from simulator import needs_gpu, needs_simulator, problem_of

from skswsgp import SWSGPRegressor
from skswsgp.cuda import runtime, workspace
from skswsgp.cuda.engine import CudaEngine


@needs_simulator
@pytest.mark.usefixtures("cuda_engine")
def test_kriging_gradients_use_work_arrays_that_a_prediction_replaced(monkeypatch):
    problem = problem_of("matern52-ard", "gaussian-2")
    batch = problem.batch._replace(y=np.hstack([problem.batch.y] * 2) ** 2)
    n, H = batch.active.shape
    run = CudaEngine(problem.model, H, 1)
    monkeypatch.setattr(workspace, "MAX_SLOTS", 1)
    run.load_kriging(batch, n)
    first = run.kriging_gradients(0).d_log.copy()
    monkeypatch.setattr(workspace, "MAX_SLOTS", n)
    run.kriging_predictions(batch.X, batch.active)  # in n slots
    np.testing.assert_array_equal(run.kriging_gradients(0).d_log, first)
    assert len(run.pool) == n


@needs_gpu
@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_without_room_the_error_names_a_batch_size_that_fits(
    monkeypatch, small_fit, covariance, rng
):
    monkeypatch.setattr(runtime, "free_memory", lambda: 50_000)
    X = rng.normal(size=(40, 2))
    settings = small_fit | ADAM | {"device": "cuda", "max_iter": 1, "verbose": False}
    model = make(SWSGPRegressor, covariance=covariance, batch_size=40, **settings)
    with pytest.raises(MemoryError, match=r"^minibatches of 40 rows with 4 ") as error:
        model.fit(X, X[:, 0])
    size = int(re.search(r"expected batch_size=(\d+) or less", str(error.value))[1])
    assert size == 10
    assert model.set_params(solver__batch_size=size).fit(X, X[:, 0]).n_iter_ == 1
    monkeypatch.setattr(runtime, "free_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"^n_inducing=12 and n_neighbors=4: .* one "):
        model.fit(X, X[:, 0])
