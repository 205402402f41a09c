"""Training steps and whole fits on the device compared with those on the CPU."""

import gc
import weakref

import numpy as np
import pytest
from helpers import ADAM, assert_close, make
from numpy.random import RandomState
from numpy.testing import assert_allclose
from simulator import (
    NATURAL,
    ROUNDINGS,
    SIMULATED,
    TAKEN_KERNELS,
    TAKEN_LIKELIHOODS,
    check_evaluation,
    check_steps,
    is_on_device,
    needs_gpu,
    problem_of,
)
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern
from small_models import adam_settings

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._adam import solver as adam
from skswsgp._adam.steps import make_steps
from skswsgp._kernel_search import kernel_choice, kernel_learning, neighbor_likelihood
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.rows import RowsInMemory
from skswsgp.cuda import engine as device_engine
from skswsgp.cuda import runtime
from skswsgp.cuda import scan as device_scan
from skswsgp.cuda.engine import CudaEngine
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.steps import CudaSteps


@needs_gpu
@pytest.mark.parametrize("kernel", TAKEN_KERNELS)
def test_steps_for_each_kernel(cuda_engine, kernel):
    check_steps(cuda_engine, kernel=kernel, likelihood="bernoulli")


@needs_gpu
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
@pytest.mark.parametrize("likelihood", TAKEN_LIKELIHOODS)
def test_steps_for_each_likelihood(cuda_engine, likelihood, full):
    check_steps(cuda_engine, kernel="matern52-ard", likelihood=likelihood, full=full)


@needs_gpu
@pytest.mark.parametrize("moving", [False, True])
def test_steps_in_float32(cuda_engine, moving):
    options = {"kernel": "rbf-white", "likelihood": "gaussian-2", "moving": moving}
    check_steps(cuda_engine, dtype="float32", **options)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
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


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_a_kernel_snapshot_leaves_the_model_on_the_device(monkeypatch):
    problem = problem_of("rbf-white", "bernoulli")
    n, H = problem.batch.active.shape
    before = problem.model.Z.copy(), problem.model.params.copy()
    run = CudaEngine(problem.model, H, 1)
    P, D = len(problem.model.params), problem.model.Z.shape[1]
    free, bounds = np.ones(P, bool), np.tile([-5.0, 5.0], (P, 1))
    steps = make_steps(run, n, free, bounds, np.ones(D))
    steps.take(problem.batch, n, np.array([0.1]))
    seen = run.kernel_snapshot()
    assert np.abs(seen.Z - before[0]).max() > 0.05
    assert np.abs(seen.params - before[1]).min() > 0.01
    there = run._device_model
    monkeypatch.setattr(device_engine, "send", lambda struct, what: struct)
    assert run.send_model() is there and run._newest == "device"


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_evaluation_takes_parts_that_fit(monkeypatch):
    problem = problem_of("rbf-white", "gaussian-2", full=True)
    sizes, blocks = [], device_engine.row_blocks

    def noted(n, size):
        sizes.append(size)
        return blocks(n, size)

    monkeypatch.setattr(device_engine, "row_blocks", noted)
    monkeypatch.setattr(runtime, "free_memory", lambda: 1200)
    check_evaluation(CudaEngine, problem)
    assert max(sizes) < len(problem.batch.X)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
def test_kriging_sends_its_data_once():
    problem = problem_of("rbf-white", "gaussian-2")
    X, active = problem.batch.X, problem.batch.active
    run = CudaEngine(problem.model, active.shape[1], 1)
    run.kriging_predictions(X, active)
    there = run._device_model
    problem.model.Z[:] = np.nan  # the device has its own copy
    mu, v = run.kriging_predictions(X, active)
    assert run._device_model is there
    assert np.isfinite(mu).all() and np.isfinite(v).all()


@needs_gpu
@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize(
    "options",
    [ADAM, NATURAL, NATURAL | {"covariance": "diag"}],
    ids=["adam", "natural", "diag"],
)
def test_a_fit_equals_that_on_the_cpu(
    small_fit, options, rng, small_matrices_placed, monkeypatch
):
    products, method = [], small_matrices_placed.DeviceRowMatrix.normal_matvec

    def noted(held, *vectors):
        products.append(held.host.lists.shape)
        return method(held, *vectors)

    monkeypatch.setattr(small_matrices_placed.DeviceRowMatrix, "normal_matvec", noted)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    results = []
    for device in ("cpu", "cuda"):
        more = {"max_iter": 2, "batch_size": 10, "early_stopping": True}
        model = make(SWSGPRegressor, device=device, **small_fit, **options, **more).fit(
            X, y
        )
        assert all(type(v).__module__ != "numba" for v in vars(model).values())
        other = "cpu" if device == "cuda" else "cuda"
        mu, std = model.set_params(device=other).predict(X, return_std=True)
        scores = model.validation_scores_ or [0.0]  # the natural solver has none
        results.append((mu, std, model.lower_bound(X, y), scores))
    for first, second in zip(*results, strict=True):
        assert_close(second, first, roundings=ROUNDINGS)
    # products with the training rows and with the factor of the Vecchia prior
    assert len(set(products)) == (2 if "covariance" in options else 0)


@pytest.fixture
def small_systems(tune):
    """Let "auto" be four neighbours, and solve for exact means in several cells."""
    tune(
        most_neighbors=4, least_neighbors=4, variance_neighbors=4, mean_tolerance=1e-10,
        mean_global_points=8, mean_cell_work=0.2, dense_rows=0, round_tolerance=1e-10,
    )  # fmt: skip


@needs_gpu
@pytest.mark.usefixtures("few_threads", "small_systems")
@pytest.mark.parametrize("kind", ["float64", "float32", "classifier"])
def test_means_from_all_rows_equal_those_of_the_cpu(kind, monkeypatch, rng):
    calls = []

    def noted(name):
        method = getattr(DeviceProducts, name)

        def call(*arguments):
            calls.append(name)
            return method(*arguments)

        monkeypatch.setattr(DeviceProducts, name, call)

    noted("multiply"), noted("multiply_off_diagonal")
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    how = {"learn_kernel": False, "n_neighbors": "all", "n_jobs": 1, "random_state": 0}
    how["kernel"] = DotProduct(0.5) + Matern([0.8, 1.5], nu=2.5)
    results = []
    for device in ("cpu", "cuda"):
        if kind == "classifier":
            model = make(SWSGPClassifier, device=device, **how).fit(X, y > 0)
            results.append((model.alpha_, model.predict_proba(X)))
        else:
            model = make(SWSGPRegressor, device=device, dtype=kind, **how).fit(X, y)
            results.append((model.alpha_, model.predict(X)))
        assert set(calls) == (
            {"multiply", "multiply_off_diagonal"} if device == "cuda" else set()
        )
    for expected, actual in zip(*results, strict=True):
        assert_allclose(actual, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.fixture
def short_start(monkeypatch, tune):
    """Shorten learning by kriging: fewer steps, rows and neighbours."""

    def process(model, H, *options, **keywords):
        process = neighbor_likelihood.NeighborProcess
        return process(model, min(H, 3), *options, **keywords)

    steps = 4  # each makes differences by rounding larger
    sizes = {
        (kernel_choice, "LEAST_JUDGES"): 1,
        (kernel_learning, "SITE_STEPS"): steps,
    }
    work = kernel_learning.evaluation_work(8, 2, 1)  # of the evidence of eight rows
    tune(
        learning_steps=steps, evidence_work=work, part_work=work, round_tolerance=1e-10
    )  # fmt: skip
    if SIMULATED:
        tune(least_learning_rows=5)
        sizes[kernel_learning, "NeighborProcess"] = process
        monkeypatch.setattr(neighbor_likelihood, "BATCH_SIZE", 4)
        monkeypatch.setattr(neighbor_likelihood, "REFRESH", 3)
    for (module, name), value in sizes.items():
        monkeypatch.setattr(module, name, value)


@needs_gpu
@pytest.mark.usefixtures("few_threads", "short_start")
@pytest.mark.parametrize("kind", ["regressor", "dot-product", "classifier"])
def test_a_fit_with_its_start_equals_that_on_the_cpu(monkeypatch, kind, rng):
    steps, method = [], CudaEngine.kriging_gradients

    def noted(*args):
        steps.append(1)
        return method(*args)

    monkeypatch.setattr(CudaEngine, "kriging_gradients", noted)
    X = rng.normal(size=(24, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)
    weight = rng.uniform(0.5, 2.0, size=24)
    kernel = DotProduct(0.5) + RBF(1.0) if kind == "dot-product" else None
    options = {"n_neighbors": 4, "random_state": 0, "n_jobs": 1, "kernel": kernel}
    results = []
    for device in ("cpu", "cuda"):
        if kind == "classifier":
            model = make(SWSGPClassifier, device=device, **options)
            model.fit(X, y > 0, weight)
            results.append([model.predict_proba(X)])
        else:
            model = make(SWSGPRegressor, device=device, **options).fit(X, y, weight)
            results.append(model.predict(X, return_std=True))
        results[-1] = *results[-1], model.kernel_.theta
        assert bool(steps) == (device == "cuda")
    for first, second in zip(*results, strict=True):
        assert_close(second, first, roundings=ROUNDINGS)


@needs_gpu
@pytest.mark.usefixtures("few_threads")
def test_a_classifier_learns_from_chunks(small_fit, rng):
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    results = []
    for device in ("cpu", "cuda"):
        model = SWSGPClassifier(device=device, learn_kernel=False, **small_fit)
        for part in (slice(0, 15), slice(15, 30)):
            model.partial_fit(X[part], y[part], classes=[0, 1])
        results.append(model.predict_proba(X))
    assert_close(results[1], results[0], roundings=ROUNDINGS)


@pytest.fixture
def held(monkeypatch):
    """Return a function that counts the arrays on the device."""
    arrays = []
    allocate = runtime.allocate

    def allocate_and_note(make, *args):
        array = allocate(make, *args)
        if is_on_device(array):
            arrays.append(weakref.ref(array))
        return array

    def count():
        gc.collect()
        return sum(array() is not None for array in arrays)

    monkeypatch.setattr(runtime, "allocate", allocate_and_note)
    return count


@needs_gpu
@pytest.mark.usefixtures("few_threads", "small_matrices_placed")
@pytest.mark.parametrize(
    ("share", "solver"),
    [(0.5, ADAM), (0.0, ADAM), (0.5, NATURAL)],
    ids=["adam", "adam-streamed", "natural"],
)
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device(
    monkeypatch, small_fit, held, failure, share, solver, rng
):
    monkeypatch.setitem(runtime.MEMORY_FRACTIONS, "training rows", share)
    adam = solver["solver"] == "adam"
    kind = CudaSteps if adam else CudaEngine
    name = "take" if adam else "variational_expectations"
    method, during, engines = getattr(kind, name), [], []

    def call(run, *args):
        result = method(run, *args)
        during.append(held())
        engine = run.engine if adam else run
        engines.append((engine, *engine.holders))  # as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(kind, name, call)
    X = rng.normal(size=(20, 2))
    options = small_fit | solver | {"device": "cuda", "max_iter": 1, "batch_size": 10}
    model = make(SWSGPRegressor, **options)
    if failure is KeyboardInterrupt and adam:
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit(X, X[:, 0])
    elif failure is not None:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
    else:
        model.fit(X, X[:, 0])
    assert during[0] > 30
    assert held() == 0
    if failure is None:
        model.predict(X, return_std=True)
        assert held() == 0


@needs_gpu
@pytest.mark.usefixtures("few_threads", "small_systems")
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, MemoryError])
def test_nothing_is_left_on_the_device_by_exact_means(monkeypatch, held, failure, rng):
    during, products, method = [], [], DeviceProducts.multiply_off_diagonal

    def call(each, u):
        result = method(each, u)
        during.append(held())
        products.append(each)  # it lives on, as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(DeviceProducts, "multiply_off_diagonal", call)
    X = rng.normal(size=(20, 2))
    how = {"learn_kernel": False, "random_state": 0, "device": "cuda", "n_jobs": 1}
    model = make(SWSGPRegressor, RBF(), n_neighbors="all", **how)
    if failure is not None:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
    else:
        model.fit(X, X[:, 0])
    assert during[0] > 10
    assert held() == 0
    if failure is None:
        model.predict(X)
        assert held() == 0


@needs_gpu
@pytest.mark.usefixtures("few_threads", "short_start")
@pytest.mark.parametrize("name", ["kriging_gradients", "kriging_predictions", "find"])
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device_by_the_start(
    monkeypatch, small_fit, held, failure, name, rng
):
    search = device_scan.DeviceScan
    engine, least = (search, 2) if name == "find" else (CudaEngine, 30)
    method, during, engines = getattr(engine, name), [], []

    def call(engine, *args, **options):
        result = method(engine, *args, **options)
        during.append(held())
        engines.append(engine)  # it lives on, as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(engine, name, call)
    X = rng.normal(size=(20, 2))
    model = make(SWSGPRegressor, RBF(), device="cuda", max_iter=1, **small_fit)
    if failure is None:
        model.fit(X, X[:, 0])
    else:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
        assert not hasattr(model, "kernel_")
    assert during[0] > least
    assert held() == 0
