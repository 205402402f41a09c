"""Epochs: minibatches, learning rate, stopping, neighbour lists, threads."""

import threading
import time
import tracemalloc
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import reference
import sklearn
from helpers import ADAM, make, make_problem
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
)

from skswsgp import SWSGPRegressor
from skswsgp._adam.schedule import FINAL_RATE, Schedule, steps_per_epoch
from skswsgp._adam.solver import run_epoch
from skswsgp._adam.steps import make_steps
from skswsgp._compiled import threads
from skswsgp._compiled.threads import max_threads, parallel_region, threads_for
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine import base
from skswsgp._engine.cpu import CpuEngine
from skswsgp._law import learn
from skswsgp._neighbors import search
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._rows import statistics
from skswsgp._rows.data import TrainingRows, center_rows, memory_budget
from skswsgp._solvers.progress import History


@pytest.fixture
def curve(rng):
    X = rng.uniform(-3, 3, (150, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(150)


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "steps"),
    [(1, 64, 1), (64, 64, 1), (65, 64, 2), (200, 64, 4)],
)
def test_minibatches_are_equal_parts(n_rows, batch_size, steps):
    assert steps_per_epoch(n_rows, batch_size) == steps


def test_learning_rate_falls_along_half_a_cosine():
    schedule = Schedule(0.1, epochs=10, n_steps=100)
    rates = [schedule.rate_at(e, step) for e in range(10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[500] == pytest.approx(0.1 * (1 + FINAL_RATE) / 2)
    assert rates[-1] == pytest.approx(0.1 * FINAL_RATE, rel=1e-2)
    assert (np.diff(rates) < 0).all()


@pytest.mark.parametrize(("epoch", "end"), [(3, 6), (7, 10)])
def test_learning_rate_falls_faster_after_a_stall(epoch, end):
    schedule = Schedule(0.1, epochs=10, n_steps=100)
    falling = schedule.falling(epoch)
    assert falling.epochs == end
    places = [(e, step) for e in range(epoch, end) for step in range(100)]
    before, after = (
        np.array([one.rate_at(*place) for place in places])
        for one in (schedule, falling)
    )
    assert after[0] == pytest.approx(before[0])
    assert (after <= before * (1.0 + 1e-12)).all()
    assert after[-1] == pytest.approx(0.1 * FINAL_RATE, rel=0.1)
    assert falling.falling(epoch + 1) == falling


def test_history_stalls_without_improvement():
    history = History(tol=0.1, n_iter_no_change=2)
    assert history.add(1.0, -1.0, None)
    assert history.add(0.95, -1.0, None)  # better by less than tol
    assert not history.stalled
    assert not history.add(0.96, -1.0, None)
    assert history.stalled
    history.add(0.5, -1.0, None)
    assert not history.stalled


def test_history_follows_validation_scores():
    history = History(tol=0.0, n_iter_no_change=1)
    assert history.add(1.0, -1.0, score=-2.0)
    assert history.add(2.0, -1.0, score=-1.0)
    assert not history.add(0.5, -1.0, score=-3.0)
    assert history.stalled


def test_block_is_centred_before_it_loses_precision():
    X = 1e8 + np.arange(6.0).reshape(3, 2)
    data = TrainingRows(X, np.zeros((3, 1), "f4"), np.ones(3, "f4"), center=X[0])
    block, _, _ = data.block(np.array([2, 0]))
    np.testing.assert_array_equal(block, [[4.0, 4.0], [0.0, 0.0]])
    assert block.dtype == np.float32
    assert center_rows(X.astype("f4"), X[0], np.dtype("f8")).flags.c_contiguous


def test_taken_rows_refer_to_rows_of_X():
    X = np.arange(12.0).reshape(6, 2)
    data = TrainingRows(
        X, np.arange(6.0)[:, None], np.arange(1.0, 7.0), center=np.zeros(2)
    )
    part = data.take(np.array([1, 3, 4, 5])).take(np.array([0, 2, 3]))
    assert part.X is X
    assert part.n_rows == 3
    X_block, y, weight = part.block(np.array([2, 0]))
    assert_array_equal(X_block, X[[5, 1]])
    assert_array_equal(y, [[5.0], [1.0]])
    assert_array_equal(weight, [6.0, 2.0])


@pytest.mark.matrix
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("weight", [1, 0])
def test_X_is_not_copied(monkeypatch, rng, held_out, weight):
    monkeypatch.setattr(statistics, "SAMPLE_ROWS", 1000)
    monkeypatch.setattr(threads, "ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(learn, "SAMPLE_ROWS", 1000)
    X = rng.standard_normal((60_000, 30))
    weights = np.ones(len(X))
    weights[::5] = weight
    data = X, X[:, 0], weights
    model = make(
        SWSGPRegressor,
        n_inducing=8,
        inducing_points="random",
        n_neighbors=2,
        max_iter=1,
        early_stopping=held_out,
        random_state=0,
        **ADAM,
    )
    model.fit(*(array[:1000] for array in data)).lower_bound(*data)
    tracemalloc.start()
    try:
        model.fit(*data).lower_bound(*data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * X.nbytes


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_epochs_equal_algorithm_1(rng, likelihood):
    """Compare with Adam on differences of (N/n) ELL - (beta/n) KL of minibatches."""
    kernel = ConstantKernel(1.4) * RBF(0.8)
    problem = make_problem(kernel, likelihood, 1, full=False, rng=rng, M=7, H=3, n=6)
    X, y, _, active = problem.batch
    N, n, beta, rate = 6, 2, 3.5, 0.05
    batch = problem.batch._replace(weight=np.ones(N))
    model = problem.model._replace(
        train_inducing=False, kl_weight=beta, total_weight=float(N)
    )
    start = [np.log(model.params), np.log(model.noise), model.m, np.log(model.s)]
    sizes = np.cumsum([len(np.ravel(part)) for part in start])[:-1]
    theta = np.concatenate([np.ravel(part) for part in start])
    Z, jitter = model.Z.copy(), model.jitter

    def objective(theta, rows):
        log_params, log_noise, m, log_s = np.split(theta, sizes)
        length_scale, variance = np.exp(log_params)
        pieces = [
            reference.lower_bound(
                ConstantKernel(variance) * RBF(length_scale), X[rows], y[rows], Z,
                m[:, None], np.exp(log_s)[:, None], 3, likelihood, np.exp(log_noise),
                jitter, kl_weight=weight, neighbors=active[rows],
            )
            for weight in (0.0, 1.0)
        ]  # fmt: skip
        ell, kl = pieces[0], n * (pieces[0] - pieces[1])
        return N / n * ell - beta / n * kl

    first, history = theta.copy(), [[] for _ in theta]
    draw = np.random.RandomState(1)
    for _ in range(2):
        order = draw.permutation(N)
        for rows in order.reshape(3, n):
            gradient = reference.finite_difference(
                lambda values, rows=rows: objective(values, rows), theta, 1e-5
            )
            for i, value in enumerate(gradient):
                if i < sizes[1] or np.isin((i - sizes[1]) % 7, active[rows]):
                    history[i].append([-value])
                    theta[i : i + 1] = reference.adam(
                        first[i : i + 1], history[i], rate
                    )

    engine = CpuEngine(model, 3, 1)
    free = np.ones(2, dtype=bool)
    steps = make_steps(engine, n, free, np.log([[1e-3, 1e3]] * 2), np.ones(2))
    data = TrainingRows(X, batch.y, batch.weight, center=np.zeros(2))
    options = {"search": "exact"}
    neighbors = NeighborTracker(TrackedSearch(engine, N, options), N, memory_budget())
    schedule = SimpleNamespace(n_steps=3, rate_at=lambda *_: rate)  # does not fall
    draw = np.random.RandomState(1)
    rows = steps.make_loader(data, neighbors)
    for epoch in range(2):
        run_epoch(steps, data.weight, rows, draw, schedule, epoch)
    actual = [np.log(model.params), np.log(model.noise), model.m, np.log(model.s)]
    actual = np.concatenate([np.ravel(part) for part in actual])
    assert np.abs(actual - first).max() > 2 * rate
    np.testing.assert_allclose(actual, theta, rtol=0, atol=1e-6)


def test_cost_of_a_step_does_not_depend_on_M(rng):
    """Time a step with fixed Z and diagonal S: 3 million numbers would take 1 ms."""
    problem = make_problem(RBF(0.8), "gaussian", 1, full=False, rng=rng, n=64)
    seconds = []
    for M in (6, 3_000_000):
        model = problem.model._replace(train_inducing=False)
        large = {name: np.resize(getattr(model, name), (M, 2)) for name in ("Z",)}
        large |= {name: np.resize(getattr(model, name), (M, 1)) for name in "ms"}
        engine = CpuEngine(model._replace(**large), 4, 1)
        free = np.ones(1, dtype=bool)
        steps = make_steps(engine, 64, free, np.log([[1e-3, 1e3]]), np.ones(2))
        times = []
        for _ in range(200):
            started = time.perf_counter()
            steps.take(problem.batch, 64, np.array([1e-6]))
            times.append(time.perf_counter() - started)
        seconds.append(min(times))
    assert seconds[1] < 2 * seconds[0]


# --- neighbours -----------------------------------------------------------------------


SHARED_METRIC = ConstantKernel(1.0) * RBF([1.0, 1.0])  # parameters: scales, variance
SUM = ConstantKernel(1.0) * DotProduct(1.0) + RBF(1.0)  # bias, variance, length-scale


@pytest.mark.parametrize(
    ("kernel", "param", "rebuilt"),
    [
        (SHARED_METRIC, 2, None),
        (SHARED_METRIC, 1, 1.2),
        (SHARED_METRIC, slice(0, 2), None),  # a common factor keeps the order
        (SHARED_METRIC, "Z", 0.06),
        (SUM, 0, 1.06),
        (SUM, 1, 0.94),
        (SUM, 2, 1.06),
        (DotProduct(0.0, "fixed"), 0, None),
        (DotProduct(0.0, "fixed"), "Z", 0.06),
        (DotProduct(0.0, "fixed"), "all of Z", 0.03),  # 0.04 in each column
        (ExpSineSquared(1.0, 1.0), 1, 1.02),  # over some three periods
    ],
)
def test_lists_are_rebuilt_when_metric_or_points_have_moved(
    kernel, param, rebuilt, rng
):
    model, batch = make_problem(kernel, "gaussian", 1, full=False, rng=rng)[2:]
    options = {"search": "exact"}
    search = TrackedSearch(CpuEngine(model, 4, 1), len(batch.X), options)
    neighbors = NeighborTracker(search, len(batch.X), memory_budget())
    rows = np.arange(len(batch.X))

    def version_after(change):
        if param == "Z":
            model.Z[0, 0] += change
        elif param == "all of Z":
            model.Z[0] += change
        else:
            model.params[param] *= change
            refresh_scales(model)
        neighbors.lookup(rows, batch.X)
        return search.version

    assert version_after(0.01 if "Z" in str(param) else 1.01) == 0
    assert version_after(rebuilt or 5.0) == (0 if rebuilt is None else 1)


class Record(search.NeighborSearch):
    """A search that counts its instances and the rows of its queries."""

    built = queried = 0

    def __init__(self, *args, **kwargs):
        Record.built += 1
        super().__init__(*args, **kwargs)

    def query(self, X):
        Record.queried += len(X)
        return super().query(X)


@pytest.fixture
def record(monkeypatch):
    monkeypatch.setattr(base, "NeighborSearch", Record)
    Record.built = Record.queried = 0
    return Record


def test_validation_searches_once_while_the_kernel_is_fixed(curve, record):
    X, y = curve
    built, queried = [], []
    for max_iter in (1, 6):
        model = make(
            SWSGPRegressor,
            RBF(1.0, "fixed"),
            n_inducing=20,
            n_neighbors=4,
            batch_size=50,  # a divisor of 150, so that each epoch uses every row
            max_iter=max_iter,
            random_state=0,
            **ADAM,
        ).fit(X, y, X_val=X[:60] + 0.1, y_val=y[:60])
        assert len(model.validation_scores_) == max_iter
        built.append(record.built)
        queried.append(record.queried)
    assert built[1] == 2 * built[0]
    assert queried[1] == 2 * queried[0]


def test_lists_beyond_the_memory_budget_give_a_close_fit(curve):
    X, y = curve
    model = make(
        SWSGPRegressor, n_inducing=40, n_neighbors=6, max_iter=5, random_state=0, **ADAM
    )
    stored = model.fit(X, y).inducing_mean_
    with sklearn.config_context(working_memory=0):
        looked_up = model.fit(X, y).inducing_mean_
    assert (
        np.abs(stored - looked_up).max() < 0.05
    )  # lists are renewed at different times


def test_number_of_threads_is_clipped_and_restored():
    available = numba.config.NUMBA_NUM_THREADS
    assert max_threads(None) == available
    assert max_threads(1) == 1
    assert max_threads(-1) == available
    assert max_threads(10**6) == available
    assert max_threads(-(10**6)) == 1
    before = numba.get_num_threads()
    with pytest.raises(ZeroDivisionError), parallel_region(1):
        assert numba.get_num_threads() == 1
        raise ZeroDivisionError
    assert numba.get_num_threads() == before


def test_fits_in_python_threads_are_independent(curve):
    X, y = curve
    settings = ADAM | {"n_inducing": 20, "max_iter": 5, "random_state": 0}
    expected = make(SWSGPRegressor, **settings).fit(X, y).predict(X)
    results = []

    def work():
        results.append(make(SWSGPRegressor, **settings).fit(X, y).predict(X))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_diagonal_covariance_takes_memory_linear_in_M(rng):
    X = rng.standard_normal((3000, 2))
    model = make(
        SWSGPRegressor,
        n_inducing=3000,
        inducing_points="random",
        covariance="diag",
        n_neighbors=4,
        max_iter=1,
        random_state=0,
        **ADAM,
    ).fit(X, X[:, 0])
    assert model.inducing_covariance_.shape == (3000,)


def test_small_workloads_use_one_thread():
    assert threads_for(10.0, 2) == 1
    assert threads_for(1e4, 2) == 2
    assert threads_for(1e9, 1) == 1
