"""The contract of the engines, and how the device and the engine are chosen."""

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import ADAM, assert_close, make, make_problem
from sklearn.gaussian_process.kernels import Matern

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._engine import select
from skswsgp._engine.base import Engine
from skswsgp._engine.cpu import CpuEngine, DenseCpuEngine
from skswsgp._engine.select import make_cpu_engine, make_engine, make_kriging_engine
from skswsgp.cuda import device as gpu

M = 9
NATURAL = {"solver": "natural", "learn_kernel": False}


@pytest.fixture(params=[False, True], ids=["diag", "full"])
def problem(request, rng):
    """A problem whose rows use every inducing point, in any order."""
    options = {"full": request.param, "rng": rng, "D": 2, "M": M, "H": M, "n": 6}
    return make_problem(Matern(1.2, nu=2.5), "gaussian", 2, **options)


ENGINES = [CpuEngine, DenseCpuEngine]
if gpu.cuda is not None:
    from skswsgp.cuda.engine import CudaEngine

    ENGINES.append(CudaEngine)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_have_the_methods_of_the_contract(engine):
    for name in Engine.__abstractmethods__:
        promised = inspect.signature(getattr(Engine, name)).parameters
        given = inspect.signature(getattr(engine, name)).parameters
        variable = {p.kind for p in given.values()} >= {inspect.Parameter.VAR_KEYWORD}
        skipped = not variable and "self" not in given  # a static method
        expected = list(promised)[1:] if skipped else list(promised)
        assert variable or list(given) == expected, name
    assert not inspect.isabstract(engine)


def test_an_engine_without_all_methods_cannot_be_made(problem):
    with pytest.raises(TypeError, match="abstract"):
        Engine(problem.model, M, 1)


@pytest.mark.parametrize("H", [M - 1, M])
def test_the_cpu_shares_k_where_every_inducing_point_is_used(problem, H):
    kind = DenseCpuEngine if H == M else CpuEngine
    for engine in (
        make_cpu_engine(problem.model, H, 1),
        make_engine("cpu", problem.model, H, 1),
        make_engine("auto", problem.model, H, 1),
    ):
        assert type(engine) is kind
        assert (engine.all_inducing is None) == (H < M)


def test_kriging_from_all_data_factorises_a_matrix_for_each_row(problem):
    assert type(make_kriging_engine("cpu", problem.model, M, 1)) is CpuEngine


def test_shared_k_gives_the_results_of_a_k_for_each_row(problem):
    model, batch = problem.model, problem.batch
    dense, local = (kind(model, M, 2) for kind in (DenseCpuEngine, CpuEngine))
    X, active, no_lists = batch.X, batch.active, np.empty((len(batch.X), 0), np.int32)
    pairs = [
        (engine.predict(X, lists, True), engine.bound(batch._replace(active=lists)))
        for engine, lists in ((dense, no_lists), (local, active))
    ]
    for first, second in zip(*pairs, strict=True):
        for actual, expected in zip(first, second, strict=True):
            assert_close(actual, expected, roundings=1e5)
    parts = dense.prior_part(X, no_lists), local.prior_part(X, active)
    assert_close(*parts, roundings=1e5)
    # K^-1 k of a list of all inducing points, on the dense engine as well
    actual, expected = (e.conditional_weights(X, active) for e in (dense, local))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(gpu.missing() is None, reason="there is a GPU")
@pytest.mark.parametrize("estimator", [SWSGPRegressor, SWSGPClassifier])
def test_without_a_gpu_one_sentence_says_what_is_missing(estimator, rng):
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int)
    model = make(estimator, device="cuda", max_iter=1, **ADAM)
    with pytest.raises(ValueError, match=r"^device='cuda': .*; use device='cpu'"):
        model.fit(X, y)
    assert not hasattr(model, "kernel_")
    fitted = model.set_params(device="auto", n_inducing=5).fit(X, y)
    with pytest.raises(ValueError, match=r"^device='cuda': "):
        fitted.set_params(device="cuda").predict(X)


@pytest.mark.parametrize(
    ("points", "H", "M", "reason", "free", "device"),
    [
        (40_000_000, 32, 1000, None, 0.9, "cuda"),  # 18 us each
        (40_000_000, 32, 1000, "no GPU", 0.9, "cpu"),
        (40_000_000, 32, 1000, None, 0.7, "cpu"),
        (30_000_000, 32, 1000, None, 0.9, "cpu"),
        (40_000_000, 16, 1000, None, 0.9, "cpu"),
        (40_000_000, 32, 32, None, 0.9, "cpu"),
    ],
)
def test_auto_takes_an_idle_gpu_for_ten_minutes_of_work(
    monkeypatch, points, H, M, reason, free, device
):
    memory = SimpleNamespace(free=80e9 * free, total=80e9)
    context = SimpleNamespace(get_memory_info=lambda: memory)
    driver = SimpleNamespace(current_context=lambda: context)
    monkeypatch.setattr(gpu, "cuda", driver)
    monkeypatch.setattr(gpu, "missing", lambda: reason)
    assert select.choose_device(points, H, M) == device


def test_auto_does_not_import_numba_cuda_for_little_work(monkeypatch):
    monkeypatch.delitem(sys.modules, "skswsgp.cuda.device")
    monkeypatch.delattr("skswsgp.cuda.device")
    assert select.choose_device(10_000_000, 32, 1000) == "cpu"
    assert "skswsgp.cuda.device" not in sys.modules


@pytest.mark.parametrize(
    ("options", "points"),
    [
        (ADAM | {"max_iter": 7}, lambda M: 7 * 40),
        (ADAM | {"max_iter": 7, "early_stopping": True}, lambda M: 7 * 36),
        (NATURAL, lambda M: 40 + M),
        (
            {"solver": "natural", "learn_kernel": False, "optimize_inducing": True},
            lambda M: 6 * (40 + M) + 10 * 40,
        ),
    ],
)
def test_auto_knows_how_much_there_is_to_do(
    monkeypatch, small_fit, options, points, rng
):
    asked = []

    def choose(*args):
        asked.append(args)
        return "cpu"

    monkeypatch.setattr(select, "choose_device", choose)
    X = rng.normal(size=(40, 2))
    model = make(SWSGPRegressor, predictive="gaussian", **small_fit, **options).fit(
        X, X[:, 0]
    )
    M = len(model.inducing_points_)  # 12, or fewer where centres share a row
    assert asked.pop(0) == (points(M), 4, M)
    asked.clear()  # of rows left out
    model.predict(X[:30])
    model.lower_bound(X[:20], X[:20, 0])
    assert asked == [(count, 4, M) for count in (30, 20)]
