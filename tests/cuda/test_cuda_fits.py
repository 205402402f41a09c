"""Whole fits compared with those on the CPU, and what they leave on the device."""

import numpy as np
import pytest
from cuda_problems import NATURAL, ROUNDINGS
from helpers import ADAM, assert_close, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._engine import select
from skswsgp._kernel_search import kernel_choice, kernel_learning
from skswsgp.cuda import device as gpu
from skswsgp.cuda.engine import CudaEngine
from skswsgp.cuda.factors import Launches
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.row_matrix import DeviceRowMatrix
from skswsgp.cuda.scan import DeviceScan
from skswsgp.cuda.steps import CudaSteps

# slow: bodies are compiled for the host
pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.slow]


@pytest.mark.usefixtures("small_matrices_placed")
@pytest.mark.parametrize(
    "options",
    [ADAM, NATURAL, NATURAL | {"covariance": "diag"}],
    ids=["adam", "natural", "diag"],
)
def test_a_fit_equals_that_on_the_cpu(small_fit, options, rng, monkeypatch):
    products, method = [], DeviceRowMatrix.normal_matvec

    def noted(held, *vectors):
        products.append(held.host.lists.shape)
        return method(held, *vectors)

    monkeypatch.setattr(DeviceRowMatrix, "normal_matvec", noted)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    results = []
    for device in ("cpu", "cuda"):
        more = {"max_iter": 2, "batch_size": 10, "early_stopping": True}
        given = small_fit | options | more | {"device": device}
        # A rough kernel has covariance matrices of small condition numbers
        model = make(SWSGPRegressor, Matern(nu=0.5), **given).fit(X, y)
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


@pytest.mark.usefixtures("small_systems")
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
        wanted = {"multiply", "multiply_off_diagonal"} if device == "cuda" else set()
        assert set(calls) == wanted
    for expected, actual in zip(*results, strict=True):
        assert_allclose(actual, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@pytest.fixture
def short_start(monkeypatch, tune):
    """Shorten learning by kriging: fewer steps, rows and neighbours."""
    steps = 4  # each makes differences by rounding larger
    work = kernel_learning.evaluation_work(8, 2, 1)  # of the evidence of eight rows
    tune(
        learning_steps=steps, evidence_work=work, part_work=work, round_tolerance=1e-10
    )  # fmt: skip
    monkeypatch.setattr(kernel_choice, "LEAST_JUDGES", 1)
    monkeypatch.setattr(kernel_learning, "SITE_STEPS", steps)


@pytest.mark.usefixtures("short_start")
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
    # Steps of learning enlarge the differences by rounding of near points, whose
    # covariance matrices have condition numbers up to 1e8
    for first, second in zip(*results, strict=True):
        assert_allclose(second, first, rtol=1e-6, atol=1e-6)


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


@pytest.mark.usefixtures("small_matrices_placed")
@pytest.mark.parametrize(
    ("share", "solver"),
    [(0.5, ADAM), (0.0, ADAM), (0.5, NATURAL)],
    ids=["adam", "adam-streamed", "natural"],
)
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device(
    monkeypatch, small_fit, held, failure, share, solver, rng
):
    monkeypatch.setitem(gpu.MEMORY_FRACTIONS, "data", share)
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
    assert during[0] > 10
    assert held() == 0
    if failure is None:
        model.predict(X, return_std=True)
        assert held() == 0


@pytest.mark.usefixtures("small_systems")
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
    assert during[0] > 5
    assert held() == 0
    if failure is None:
        model.predict(X)
        assert held() == 0


@pytest.mark.usefixtures("short_start")
@pytest.mark.parametrize("name", ["kriging_gradients", "kriging_predictions", "find"])
@pytest.mark.parametrize("failure", [None, KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_the_device_by_the_start(
    monkeypatch, small_fit, held, failure, name, rng
):
    kind = DeviceScan if name == "find" else CudaEngine
    method, during, engines = getattr(kind, name), [], []

    def call(each, *args, **options):
        result = method(each, *args, **options)
        during.append(held())
        engines.append(each)  # it lives on, as in the frames of a traceback
        if failure is not None:
            raise failure
        return result

    monkeypatch.setattr(kind, name, call)
    X = rng.normal(size=(20, 2))
    model = make(SWSGPRegressor, RBF(), device="cuda", max_iter=1, **small_fit)
    if failure is None:
        model.fit(X, X[:, 0])
    else:
        with pytest.raises(failure):
            model.fit(X, X[:, 0])
        assert not hasattr(model, "kernel_")
    assert during[0] > 0
    assert held() == 0


class LibraryError(Exception):
    """An error of a library of a GPU."""


LibraryError.__module__ = "cupy_backends.cuda.api.runtime"


@pytest.mark.parametrize("error", [MemoryError("512 bytes"), LibraryError("ECC")])
@pytest.mark.parametrize("options", [ADAM, NATURAL], ids=["adam", "natural"])
@pytest.mark.parametrize("chosen", ["auto", "cuda"])
def test_a_gpu_that_fails_leaves_the_fit_to_the_cpu_or_says_so(
    small_fit, monkeypatch, chosen, options, error, rng
):
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    given = small_fit | options | {"max_iter": 2, "batch_size": 10}
    given["random_state"] = np.random.RandomState(0)
    here = make(SWSGPRegressor, RBF(), **given).fit(X, y)
    monkeypatch.setattr(select, "choose_device", lambda *_: "cuda")
    calls, run = [], Launches.run

    def fail_later(launches):
        calls.append(launches)
        if len(calls) > 3:
            raise error
        run(launches)

    monkeypatch.setattr(Launches, "run", fail_later)
    given["random_state"] = np.random.RandomState(0)
    model = make(SWSGPRegressor, RBF(), device=chosen, **given)
    words = "no room for .*512 bytes" if "512" in str(error) else r"failed \(ECC\)"
    if chosen == "cuda":
        with pytest.raises((MemoryError, RuntimeError), match=f"^the GPU has {words}"):
            model.fit(X, y)
        assert not hasattr(model, "kernel_")
    else:
        words = f"^device='auto': the fit goes on on the CPU, since the GPU has {words}"
        with pytest.warns(UserWarning, match=words) as seen:
            model.fit(X, y)
        assert len(seen) == 1
        monkeypatch.undo()
        assert_array_equal(model.predict(X), here.predict(X))
    assert len(calls) > 3
