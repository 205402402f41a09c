"""Work arrays in shared and in global memory, and batch sizes that fit."""

import re

import numpy as np
import pytest
from helpers import ADAM, make
from simulator import (
    ON_GPU,
    check_evaluation,
    check_steps,
    needs_gpu,
    needs_simulator,
    problem_of,
)

from skswsgp import SWSGPRegressor
from skswsgp._compiled import cuda_runtime
from skswsgp._engine import cuda_workspace
from skswsgp._engine.cuda import CudaEngine
from skswsgp._engine.cuda_workspace import bytes_in_shared


@pytest.fixture
def no_shared_memory(monkeypatch):
    """Keep the factors R in global memory, as is done where H is large."""
    monkeypatch.setattr(cuda_runtime, "SHARED_BYTES", 0)


@needs_gpu
@pytest.mark.usefixtures("no_shared_memory")
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_steps_in_global_memory(cuda_engine, full):
    kernel = "all" if ON_GPU else "matern52-ard"
    check_steps(cuda_engine, kernel=kernel, likelihood="gaussian-2", full=full)


@needs_gpu
@pytest.mark.usefixtures("no_shared_memory")
def test_evaluation_in_global_memory(cuda_engine):
    check_evaluation(cuda_engine, problem_of("matern52-ard", "gaussian-2"))


@needs_simulator
@pytest.mark.usefixtures("no_shared_memory")
def test_barriers_separate_writes_and_reads_in_global_memory(cuda_engine_in_turns):
    problem = problem_of("rbf-white", "bernoulli")
    check_steps(cuda_engine_in_turns, kernel="rbf-white", likelihood="bernoulli")
    check_evaluation(cuda_engine_in_turns, problem.replace(rows=[0, 1]))


@needs_gpu
@pytest.mark.parametrize("room", [True, False])
def test_the_factor_is_shared_if_it_fits(cuda_engine, monkeypatch, room, dtype):
    problem = problem_of("rbf-white", "gaussian-2", dtype=dtype.name)
    X, active = problem.batch.X, problem.batch.active
    size = bytes_in_shared(active.shape[1], dtype.itemsize, 1)
    monkeypatch.setattr(cuda_runtime, "SHARED_BYTES", size if room else size - 1)
    run = cuda_engine(problem.model, active.shape[1], 1)
    run.conditional_weights(X, active)
    chol = run._pool.work.chol
    assert chol.size == 0 if room else chol.copy_to_host().any()
    run.close()


@pytest.mark.parametrize(
    ("H", "itemsize", "slots", "size"),
    [
        (1, 8, 1, 512),
        (100, 8, 1, 46_592),
        (104, 8, 1, 46_592),
        (105, 8, 1, 0),
        (128, 4, 1, 34_816),
        (152, 4, 1, 48_640),
        (153, 4, 1, 0),
        (72, 8, 2, 46_080),
        (73, 8, 2, 0),
        (8, 8, 95, 48_640),
        (8, 8, 96, 0),  # without the parts of sums it would have room
    ],
)
def test_bytes_in_shared_memory(H, itemsize, slots, size):
    assert bytes_in_shared(H, itemsize, slots) == size
    assert size + cuda_runtime.PARTIAL_SUMS_BYTES <= 48 * 1024


@needs_simulator
@pytest.mark.usefixtures("cuda_engine")
def test_kriging_gradients_use_work_arrays_that_a_prediction_replaced(monkeypatch):
    problem = problem_of("matern52-ard", "gaussian-2")
    batch = problem.batch._replace(y=np.hstack([problem.batch.y] * 2) ** 2)
    n, H = batch.active.shape
    run = CudaEngine(problem.model, H, 1)
    monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", 1)
    run.load_kriging(batch, n)
    first = run.kriging_gradients(0).d_log.copy()
    monkeypatch.setattr(cuda_workspace, "MAX_SLOTS", n)
    run.kriging_predictions(batch.X, batch.active)  # in n slots
    np.testing.assert_array_equal(run.kriging_gradients(0).d_log, first)
    assert len(run._pool) == n


@needs_gpu
@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_without_room_the_error_names_a_batch_size_that_fits(
    monkeypatch, small_fit, covariance, rng
):
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 50_000)
    X = rng.normal(size=(40, 2))
    settings = small_fit | ADAM | {"device": "cuda", "max_iter": 1, "verbose": False}
    model = make(SWSGPRegressor, covariance=covariance, batch_size=40, **settings)
    with pytest.raises(MemoryError, match=r"^minibatches of 40 rows with 4 ") as error:
        model.fit(X, X[:, 0])
    size = int(re.search(r"expected batch_size=(\d+) or less", str(error.value))[1])
    assert size == 10
    assert model.set_params(solver__batch_size=size).fit(X, X[:, 0]).n_iter_ == 1
    monkeypatch.setattr(cuda_runtime, "free_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"^n_inducing=12 and n_neighbors=4: .* one "):
        model.fit(X, X[:, 0])
