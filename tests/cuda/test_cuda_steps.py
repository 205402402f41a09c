"""Steps of Adam on the device compared with those on the CPU."""

import re

import numpy as np
import pytest
from cuda_problems import (
    KERNELS,
    LIKELIHOODS,
    ROUNDINGS,
    check_steps,
    problem_of,
    steps_of,
)
from helpers import ADAM, assert_close, make, make_problem
from numpy.random import RandomState
from sklearn.gaussian_process.kernels import RBF
from small_models import adam_settings

from skswsgp import SWSGPRegressor
from skswsgp._adam import solver as adam
from skswsgp._adam.steps import make_steps
from skswsgp._compiled import threads
from skswsgp._engine.cpu import CpuEngine
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.rows import RowsInMemory
from skswsgp.cuda import device as gpu
from skswsgp.cuda.engine import CudaEngine
from skswsgp.cuda.steps import sorted_uses

# slow: bodies are compiled for the host
pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.slow]


@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_for_each_kernel(kernel):
    check_steps(kernel=kernel, likelihood="bernoulli")


@pytest.mark.matrix
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_steps_for_each_likelihood(likelihood, full):
    check_steps(kernel="matern52-ard", likelihood=likelihood, full=full)


@pytest.mark.full
@pytest.mark.parametrize("moving", [False, True])
def test_steps_in_float32(moving):
    options = {"kernel": "rbf-white", "likelihood": "gaussian-2", "moving": moving}
    check_steps(dtype="float32", **options)


def test_fixed_inducing_points_stay():
    check_steps(kernel="rbf-white", likelihood="gaussian-2", moving=False)


def test_uses_are_in_the_order_of_points_and_of_rows(device, rng):
    active = rng.integers(7, size=(20, 4)).astype(np.int32)
    keys = device.fetch(sorted_uses(device.xp, device.send(active), 10, 7))
    for step, uses in enumerate(np.split(keys, 2)):
        lists = active[10 * step : 10 * (step + 1)].ravel()
        expected = np.argsort(lists, kind="stable")
        np.testing.assert_array_equal(uses % 40, expected)
        np.testing.assert_array_equal(uses // 40 - 7 * step, lists[expected])


def test_steps_repeat_to_the_bit():
    models = []
    for _ in range(2):
        problem = problem_of("matern52-ard", "gaussian-2")
        n, H = problem.batch.active.shape
        run = CudaEngine(problem.model, H, 1)
        steps_of(run, n).take(problem.batch, n, np.array([0.1]))
        models.append(run.model)
        run.close()
    for first, second in zip(*models, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["noise", "params"])
def test_failures_are_noticed_when_the_epoch_ends(name):
    problem = problem_of("rbf-white", "gaussian-2", moving=False)
    lost = np.full_like(getattr(problem.model, name), np.nan)
    lost = problem.replace(**{name: lost})
    n, H = problem.batch.active.shape
    run = CudaEngine(lost.model, H, 1)
    P, D = len(lost.model.params), lost.model.Z.shape[1]
    free, bounds = np.zeros(P, bool), np.zeros((P, 2))
    steps = make_steps(run, n, free, bounds, np.ones(D))
    steps.take(problem.batch, n, np.array([0.1]))
    assert np.isnan(steps.finish_epoch()[0])
    assert (steps.finish_epoch() == 0.0).all()
    data = TrainingRows(*problem.batch[:3], center=np.zeros(D))
    settings = adam_settings(2, batch_size=n // 2 + 1)
    rng, scale = RandomState(0), np.ones(D)
    solver = adam.AdamSolver(run, RowsInMemory(data), lost.kernel, settings, rng, scale)
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        solver.advance(0)


def test_a_kernel_snapshot_leaves_the_model_on_the_device():
    problem = problem_of("rbf-white", "bernoulli")
    n, H = problem.batch.active.shape
    before = problem.model.Z.copy(), problem.model.params.copy()
    run = CudaEngine(problem.model, H, 1)
    steps_of(run, n).take(problem.batch, n, np.array([0.1]))
    there = run._device_model
    m = run.device.fetch(there.m)
    seen = run.kernel_snapshot()
    assert np.abs(seen.Z - before[0]).max() > 0.05
    assert np.abs(seen.params - before[1]).min() > 0.01
    seen.m[:] = np.nan  # of the host, which is older
    assert run.send_model() is there and run._newest == "device"
    np.testing.assert_array_equal(run.model.m, m)


@pytest.fixture(params=["resident", "streamed"])
def loader(request, monkeypatch):
    """Keep training rows on the device, or send those of each minibatch."""
    if request.param == "streamed":
        monkeypatch.setitem(gpu.MEMORY_FRACTIONS, "data", 0.0)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 4)
    return request.param


class CountedRows(np.ndarray):
    """Inputs that store how many rows were copied at once, at most."""

    largest = 0

    def __getitem__(self, index):
        out = super().__getitem__(index)
        CountedRows.largest = max(CountedRows.largest, len(np.atleast_2d(out)))
        return np.asarray(out)


@pytest.mark.usefixtures("loader")
def test_epochs_equal_those_on_the_cpu(monkeypatch):
    """An epoch has blocks of 2, 2 and 1 steps; lists change as Z moves."""
    monkeypatch.setattr(adam, "STEPS_PER_BLOCK", 2)
    monkeypatch.setattr(CountedRows, "largest", 0)
    results = []
    for kind in (CpuEngine, CudaEngine):
        rng = np.random.default_rng(0)
        problem = make_problem(
            RBF(1.2), "gaussian", 2, full=False, rng=rng, D=3, M=14, H=4, n=21
        )
        model, (X, y, weight, _) = problem.replace(jitter=1e-3).model, problem.batch
        data = TrainingRows(X.view(CountedRows), y, weight, center=np.full(3, 0.1))
        data = data.take(np.arange(1, 21)[::-1])
        run = kind(model, 4, 1)
        kernel = RBF(1.2, (np.exp(-5.0), np.exp(5.0)))
        settings = adam_settings(2, batch_size=4, learning_rate=0.2, max_iter=3)
        scale, rng = np.ones(3), RandomState(0)
        solver = adam.AdamSolver(run, RowsInMemory(data), kernel, settings, rng, scale)
        values = [solver.advance(epoch) for epoch in range(3)]
        model = run.model
        state = model.params, model.noise, model.m, model.s, model.Z
        results.append((*state, values, solver.search.version))
        run.close()
    for expected, actual in zip(*results, strict=True):
        assert_close(actual, expected, roundings=ROUNDINGS)
    assert results[0][-1] > 1
    assert CountedRows.largest == 8  # two steps of four rows


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_without_room_the_error_names_a_batch_size_that_fits(
    device, monkeypatch, small_fit, covariance, rng
):
    monkeypatch.setattr(device, "free_memory", lambda: 50_000)
    X = rng.normal(size=(40, 2))
    settings = small_fit | ADAM | {"device": "cuda", "max_iter": 1, "verbose": False}
    model = make(SWSGPRegressor, covariance=covariance, batch_size=40, **settings)
    with pytest.raises(MemoryError, match=r"^minibatches of 40 rows with 4 ") as error:
        model.fit(X, X[:, 0])
    size = int(re.search(r"expected batch_size=(\d+) or less", str(error.value))[1])
    assert 1 <= size < 40
    assert model.set_params(solver__batch_size=size).fit(X, X[:, 0]).n_iter_ == 1
    monkeypatch.setattr(device, "free_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"^minibatches .*expected fewer points or "):
        model.fit(X, X[:, 0])


def test_an_allocation_that_fails_raises_one_sentence(
    device, monkeypatch, small_fit, rng
):
    def full(array):
        raise MemoryError("Out of memory allocating 512 bytes (allocated so far: 0).")

    monkeypatch.setattr(device, "send", full)
    X = rng.normal(size=(30, 2))
    model = make(SWSGPRegressor, device="cuda", **small_fit, **ADAM)
    with pytest.raises(MemoryError, match=r"no room for .*512 bytes.* smaller batch_s"):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "kernel_")
