"""Dask collections are predicted by blocks, and searches run on workers of dask."""

import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from helpers import ADAM, make
from numba.core import event
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from skswsgp._compiled.threads import max_threads
from skswsgp._posterior import prediction
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.dask import DaskPredictor, DaskSWSGPClassifier, DaskSWSGPRegressor
from skswsgp.displays import CoverageDisplay, RelevanceDisplay
from skswsgp.metrics import get_scorer

reason = "needs dask: install the extra `dask`"
dask = pytest.importorskip("dask", reason=reason)
distributed = pytest.importorskip("distributed", reason=reason)
da = pytest.importorskip("dask.array", reason=reason)
dd = pytest.importorskip("dask.dataframe", reason=reason)

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (150, 2))
f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
Y = np.stack([f, X[:, 1] ** 2], axis=1) + 0.1 * rng.normal(size=(150, 2))
rows = rng.uniform(-2.0, 2.0, (100, 2))
LENGTHS = 60, 1, 0, 39  # uneven blocks, one row by itself, and an empty block
blocks = da.from_array(rows, chunks=(LENGTHS, (1, 1)))
each = rng.uniform(0.5, 2.0, 100)  # a number for each row
targets = rng.normal(size=(100, 2))

CLASSES = np.digitize(f, [-0.5, 0.5])
FITS = {
    "two outputs": lambda: DaskSWSGPRegressor(n_neighbors=8, random_state=0).fit(X, Y),
    "all points": lambda: DaskSWSGPRegressor(random_state=0).fit(X, Y[:, 0]),
    "counts": lambda: DaskSWSGPRegressor(
        likelihood="poisson", n_neighbors=8, random_state=0
    ).fit(X, CLASSES),
    "varying noise": lambda: DaskSWSGPRegressor(
        likelihood="heteroscedastic", n_neighbors=8, random_state=0
    ).fit(X, Y[:, 0]),
    "two classes": lambda: DaskSWSGPClassifier(n_neighbors=8, random_state=0).fit(
        X, np.where(f > 0, "yes", "no")
    ),
    "three classes": lambda: DaskSWSGPClassifier(n_neighbors=8, random_state=0).fit(
        X, CLASSES
    ),
    "float32": lambda: DaskSWSGPClassifier(
        n_neighbors=8, dtype="float32", random_state=0
    ).fit(X, CLASSES),
    "baseline": lambda: DaskPredictor(
        NearestNeighborGPRegressor(random_state=0).fit(X, Y)
    ),
}
# Fits whose rows use all inducing points, as those of a process of the noise do, and
# methods, in which BLAS multiplies the rows of a block together, so that last bits
# depend on their number.
TOGETHER = "all points", "varying noise", "sample_f", "predict_gradient"
OF_REGRESSION = [
    ("predict", {}),
    ("predict", {"return_std": True, "n_neighbors": 5}),
    ("predict", {"quantiles": [0.1, 0.5, 0.9]}),
    ("predict", {"quantiles": 0.1}),
    ("predict_interval", {"coverage": 0.5}),
    ("latent_mean_and_variance", {}),
    ("sample_f", {"n_samples": 3, "random_state": 1}),
    ("predict_gradient", {"return_std": True}),
    ("is_novel", {}),
]
OF_GAUSSIAN = [
    ("noise_std", {}),
    ("predict", {"return_std": True, "noise_variance": each}),
]
OF_CLASSES = [
    (name, {})
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function")
]
CALLS = {
    "two outputs": [
        *OF_REGRESSION, *OF_GAUSSIAN, ("log_predictive_density", {"y": targets})
    ],
    "all points": OF_REGRESSION + OF_GAUSSIAN,
    "counts": [*OF_REGRESSION, ("predict_interval", {"exposure": each})],
    "varying noise": OF_REGRESSION + OF_GAUSSIAN,
    "two classes": OF_CLASSES,
    "three classes": OF_CLASSES,
    "float32": OF_CLASSES,
    "baseline": [("predict", {}), ("predict", {"return_std": True})],
}  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    """Return a function that fits a model by its name in `FITS`, once."""
    models = {}

    def fit(name):
        if name not in models:
            models[name] = FITS[name]()
        return models[name]

    return fit


@pytest.fixture
def model(fitted):
    return fitted("two outputs")


@pytest.fixture(autouse=True)
def in_this_thread():
    """Compute in this thread, unless a test says otherwise."""
    with dask.config.set(scheduler="synchronous"):
        yield


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def by_hand(model, method, options):
    """Return the predictions of NumPy for each of the blocks, joined."""
    parts, ends = [], np.cumsum(LENGTHS)
    for first, last in zip(ends - LENGTHS, ends, strict=True):
        if last > first:
            own = {
                k: v[first:last] if np.shape(v)[:1] == (100,) else v
                for k, v in options.items()
            }
            parts.append(as_tuple(getattr(model, method)(rows[first:last], **own)))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n == "float32")) for n in FITS],
)
def test_blocks_are_predicted_as_numpy_predicts_them(name, fitted):
    model = fitted(name)
    for method, options in CALLS[name]:
        found = as_tuple(getattr(model, method)(blocks, **options))
        expected = by_hand(model, method, options)
        together = as_tuple(getattr(model, method)(rows, **options))
        assert len(found) == len(together)
        for one, own, whole in zip(found, expected, together, strict=True):
            assert isinstance(one, da.Array)
            assert one.shape == whole.shape
            assert one.chunks == (LENGTHS, *((n,) for n in whole.shape[1:]))
            computed = one.compute()
            assert one.dtype == computed.dtype == whole.dtype
            np.testing.assert_array_equal(computed, own)
            if name not in TOGETHER and method not in TOGETHER:
                np.testing.assert_array_equal(own, whole)


def test_blocks_may_have_unknown_lengths(model):
    positive = blocks[blocks[:, 0] > 0.0]
    mean, std = model.predict(positive, return_std=True)
    assert np.isnan(mean.chunks[0]).all()
    assert mean.shape[1:] == std.shape[1:] == (2,)
    expected = model.predict(rows[rows[:, 0] > 0.0], return_std=True)
    np.testing.assert_array_equal(dask.compute(mean, std), expected)
    y = da.from_array(targets, chunks=(LENGTHS, 1))[blocks[:, 0] > 0.0]
    density = model.log_predictive_density(positive, y)
    expected = model.log_predictive_density(rows, targets)[rows[:, 0] > 0.0]
    np.testing.assert_array_equal(density.compute(), expected)


@pytest.mark.parametrize("name", ["baseline", "three classes"])
def test_rows_of_unknown_number_are_scored(name, fitted):
    model, y = fitted(name), targets if name == "baseline" else np.arange(100) % 3
    kept = blocks[:, 0] > 0.0
    columns = [
        da.from_array(one, chunks=(LENGTHS, *one.shape[1:]))[kept] for one in (y, each)
    ]
    plain = [one[rows[:, 0] > 0.0] for one in (rows, y, each)]
    assert model.score(blocks[kept], *columns) == model.score(*plain)
    table = dd.from_pandas(pd.DataFrame(rows), npartitions=3)
    frame = dd.from_pandas(pd.DataFrame(y), npartitions=2)
    assert model.score(table, frame) == model.score(rows, y)


def test_laws_of_frames_are_scored(model):
    table, frame = (
        dd.from_pandas(pd.DataFrame(v), npartitions=3) for v in (rows, targets)
    )
    for name in ("neg_log_density", "neg_crps", "neg_interval_score"):
        score = get_scorer(name)
        assert score(model, table, frame) == score(model, rows, targets)


def test_values_of_rows_take_the_blocks_of_X(model):
    expected = model.log_predictive_density(rows, targets)
    for y in (targets, da.from_array(targets, chunks=(30, 1))):
        found = model.log_predictive_density(blocks, y)
        np.testing.assert_array_equal(found.compute(), expected)


def test_frames_keep_their_names_and_the_order_of_rows():
    frame = pd.DataFrame(rows, columns=["a", "b"])
    table = dd.from_pandas(frame, npartitions=3)
    model = DaskSWSGPRegressor(n_neighbors=8, learn_kernel=False, random_state=0)
    model.fit(pd.DataFrame(X, columns=["a", "b"]), Y[:, 0])
    found = model.predict(table, quantiles=[0.1, 0.9])
    assert found.shape[1:] == (2,)
    assert found.numblocks == (3, 1)
    assert np.isnan(found.shape[0])
    expected = model.predict(frame, quantiles=[0.1, 0.9])
    np.testing.assert_array_equal(found.compute(), expected)
    assert found.compute_chunk_sizes().shape == (100, 2)
    density = model.log_predictive_density(table, table.a + 1.0)
    expected = model.log_predictive_density(frame, frame.a + 1.0)
    np.testing.assert_array_equal(density.compute(), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match="column 'b' of X holds text or categories"):
        model.predict(table.assign(b="red"))


def test_nothing_is_computed_before_it_is_asked_for(model):
    def fail(block):
        raise ZeroDivisionError

    failing = blocks.rechunk({1: 2}).map_blocks(fail, meta=np.empty((0, 2)))
    mean = model.predict(failing)
    with pytest.raises(ZeroDivisionError):
        mean.compute()


def test_a_later_fit_does_not_change_a_prediction():
    model = DaskSWSGPRegressor(n_neighbors=8, learn_kernel=False, random_state=0)
    expected = model.fit(X, Y[:, 0]).predict(rows)
    found = model.predict(blocks)
    model.fit(X, -Y[:, 0])
    np.testing.assert_array_equal(found.compute(), expected)


def test_the_model_is_one_task_of_the_graph(model):
    """Tasks are sent to workers one by one: others know the name of that task only."""
    cloudpickle = pytest.importorskip("cloudpickle")  # which dask needs
    many = da.zeros((100, 2), chunks=(1, 2))
    mean, std = model.predict(many, return_std=True)
    for results in ((mean,), (mean, std)):
        graph = dict(dask.optimize(*results)[0].__dask_graph__())
        assert len(graph) <= 5 * 100 + 1
        *rest, largest = sorted(len(cloudpickle.dumps(one)) for one in graph.values())
        assert rest[-1] < 5000 < len(cloudpickle.dumps(model)) < largest
    assert mean.name == model.predict(many, return_std=True)[0].name


def test_a_block_is_predicted_by_one_thread(model, monkeypatch):
    seen = []

    def counted(n_jobs, n_rows):
        seen.append(max_threads(n_jobs))
        return seen[-1]

    monkeypatch.setattr(prediction, "max_threads", counted)
    model.predict(blocks).compute()
    assert set(seen[1:]) == {1}  # the first is that of the call
    seen.clear()
    model.predict(rows)
    assert set(seen) == {max_threads(None)}


def test_pipelines_and_searches_pass_collections_on():
    settings = {"n_neighbors": 8, "learn_kernel": False, "random_state": 0}
    model = DaskSWSGPRegressor(**settings)
    plain = make_pipeline(FunctionTransformer(), model).fit(X, Y[:, 0])
    found = plain.predict(blocks, quantiles=[0.1, 0.9])
    assert isinstance(found, da.Array)
    expected = plain.predict(rows, quantiles=[0.1, 0.9])
    np.testing.assert_array_equal(found.compute(), expected)
    search = GridSearchCV(model, {"n_neighbors": [4, 8]}, cv=2).fit(X, Y[:, 0])
    assert isinstance(search.predict(blocks), da.Array)
    np.testing.assert_array_equal(
        search.predict(blocks).compute(), search.predict(rows)
    )


REFUSED = {
    "covariance": (
        lambda model: model.predict(blocks, return_cov=True),
        "expected return_cov=False, for covariances join all rows",
    ),
    "draws with noise": (
        lambda model: model.sample_y(blocks),
        "expected rows in memory, for sample_y draws noise for all rows",
    ),
    "other functions in each block": (
        lambda model: model.sample_f(blocks, random_state=None),
        "expected an integer in place of random_state=None",
    ),
    "columns": (
        lambda model: model.predict(da.zeros((100, 3))),
        "X has 3 features, but DaskSWSGPRegressor is expecting 2",
    ),
    "unknown columns": (
        lambda model: model.predict(blocks[:, da.from_array([True, False]) > 0]),
        "expected an array with a known number of columns, or a data frame",
    ),
    "no table": (
        lambda model: model.predict(dask.delayed(rows)),
        "X is of dask's type Delayed.*: expected an array .* or a data frame",
    ),
    "an axis": (lambda model: model.predict(blocks[:, 0]), "expected a 2D array"),
    "quantiles": (
        lambda model: model.predict(blocks, quantiles=[2.0]),
        "quantiles=.* expected a number or a list of numbers above 0 and below 1",
    ),
    "number of values": (
        lambda model: model.predict(blocks, noise_variance=each[:3]),
        "noise_variance has 3 rows in 1 blocks: expected 100 rows in 4 blocks, as X",
    ),
    "values beside unknown blocks": (
        lambda model: model.predict(blocks[blocks[:, 0] > 0], noise_variance=each),
        "expected an unknown number of rows in 4 blocks, .* take X and noise_variance",
    ),
    "outputs": (
        lambda model: model.log_predictive_density(blocks, targets[:, 0]),
        "a value for each row of X and each output",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_blocks_cannot_do_is_refused_at_the_call(case, model):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call(model)


def test_blocks_that_are_not_what_they_say_are_refused(model):
    one = blocks.rechunk({1: 2}).map_blocks(lambda b: b[:, :1], meta=np.empty((0, 2)))
    with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
        model.predict(one).compute()
    missing = da.where(blocks > 1.9, np.nan, blocks)
    with pytest.raises(ValueError, match="X contains NaN in column"):
        model.predict(missing).compute()


# --- processes of their own -----------------------------------------------------------


@pytest.mark.slow
def test_intervals_of_blocks_name_the_coverage(model):
    with pytest.raises(TypeError, match=r"with alpha=0\.1: expected coverage"):
        DaskPredictor(model).predict_interval(blocks, alpha=0.1).compute()


def test_arrays_of_numpy_are_predicted_without_dask():
    script = """
import sys
import numpy as np
from skswsgp import SWSGPRegressor
X = np.linspace(0.0, 1.0, 30)[:, None]
SWSGPRegressor(learn_kernel=False).fit(X, X[:, 0]).predict(X)
print("dask" in sys.modules, "distributed" in sys.modules)
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == "False False\n", result.stderr


def started(n_workers, n_threads):
    """Return a cluster of processes."""
    how = {"threads_per_worker": n_threads, "dashboard_address": ":0"}
    return distributed.LocalCluster(n_workers=n_workers, **how)


@pytest.fixture(scope="module")
def two_workers():
    with started(2, 1) as cluster:
        yield cluster


class Compilations(event.Listener):
    """Numba's compilations in a process."""

    def __init__(self):
        self.found = []

    def on_start(self, event):
        self.found.append(str(event.data["dispatcher"]))

    def on_end(self, event):
        pass


def listen(dask_worker):
    dask_worker.compilations = Compilations()
    event.register("numba:compile", dask_worker.compilations)


def compilations(dask_worker):
    return dask_worker.compilations.found


@pytest.mark.slow
def test_a_search_on_two_workers_is_that_of_this_process(two_workers):
    """They read what this process has compiled, and compile nothing."""
    estimator = make(
        DaskSWSGPRegressor, max_iter=3, random_state=0, n_inducing=20, **ADAM
    )
    search = GridSearchCV(estimator, {"n_neighbors": [4, 8]}, cv=2)
    expected = search.fit(X, Y[:, 0])
    expected, best = expected.cv_results_["mean_test_score"], expected.predict(rows)
    with distributed.Client(two_workers) as client:
        client.run(listen)
        with joblib.parallel_config("dask"):
            found = search.fit(X, Y[:, 0])
        np.testing.assert_array_equal(found.cv_results_["mean_test_score"], expected)
        np.testing.assert_array_equal(found.predict(rows), best)
        assert list(client.run(compilations).values()) == [[], []]
        for n_jobs, count in ((None, 1), (-1, 1), (-2, 1), (2, max_threads(2))):
            assert client.submit(max_threads, n_jobs).result() == count
    assert max_threads(None) == max_threads(10**6)


@pytest.mark.slow
def test_workers_predict_what_this_process_predicts(two_workers):
    model = DaskSWSGPRegressor(n_neighbors=8, learn_kernel=False, random_state=0)
    expected = model.fit(X, Y).predict(rows)
    with distributed.Client(two_workers) as client:
        mean = model.predict(blocks)
        with dask.config.set(scheduler=client):
            np.testing.assert_array_equal(mean.compute(), expected)
    np.testing.assert_array_equal(mean.compute(), expected)


@pytest.mark.slow
def test_fits_in_two_threads_of_a_worker_take_turns(monkeypatch):
    """Numba's workqueue would end the process if both launched a loop at once."""
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "workqueue")
    settings = {"max_iter": 30, "n_inducing": 20, "random_state": 0, "n_jobs": 2}
    estimator = make(DaskSWSGPRegressor, **settings, **ADAM)
    expected = cross_val_predict(estimator, X, Y[:, 0], cv=4)
    with started(1, 2) as cluster, distributed.Client(cluster) as client:
        with joblib.parallel_config("dask"):
            found = cross_val_predict(estimator, X, Y[:, 0], cv=4, n_jobs=2)
        np.testing.assert_array_equal(found, expected)
        layer = client.submit(lambda: __import__("numba").threading_layer()).result()
    assert layer == "workqueue"


@pytest.mark.parametrize("name", ["partial_fit", "set_params"])
def test_a_predictor_does_not_change_its_model(name, fitted):
    predictor = DaskPredictor(fitted("two outputs"))
    with pytest.raises(AttributeError, match=f"DaskPredictor has no {name}: expected"):
        getattr(predictor, name)
    assert not hasattr(predictor, name) and hasattr(predictor, "predict")


def test_checks_take_a_predictor_for_an_estimator_that_does_not_fit(fitted):
    predictor = DaskPredictor(fitted("two outputs"))
    check_is_fitted(predictor)
    with pytest.raises(TypeError, match="DaskPredictor has no fit: expected"):
        predictor.fit(X, Y)


def test_displays_take_frames_of_dask():
    pytest.importorskip("matplotlib").use("agg")
    frame, y = pd.DataFrame(X, columns=["a", "b"]), pd.Series(Y[:, 0])
    lazy, lazy_y = (
        dd.from_pandas(frame, npartitions=3),
        dd.from_pandas(y, npartitions=3),
    )
    model = DaskSWSGPRegressor(learn_kernel=False, random_state=0).fit(frame, y)
    for display, name in (CoverageDisplay, "coverage"), (RelevanceDisplay, "relevance"):
        found = display.from_estimator(model, lazy, lazy_y)
        expected = display.from_estimator(model, frame, y)
        found, expected = (getattr(one, name) for one in (found, expected))
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    groups = CoverageDisplay.from_groups(model, lazy, lazy_y, lazy["a"] > 0.0)
    assert list(groups) == [False, True]


@pytest.mark.parametrize("model", [None, "model", DaskSWSGPRegressor])
def test_a_predictor_needs_an_estimator(model):
    with pytest.raises(TypeError, match=r"model is .*: expected a fitted estimator"):
        DaskPredictor(model)
