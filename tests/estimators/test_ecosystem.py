"""The estimators in tools of scikit-learn, joblib, pickle and pandas."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import ADAM, make
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.ensemble import BaggingRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import both_estimators

import skswsgp
from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.solvers import Natural

pytestmark = pytest.mark.usefixtures("few_steps")
SMALL = {
    "n_inducing": 15,
    "n_neighbors": 4,
    "max_iter": 20,
    "batch_size": 16,
    "learning_rate": 0.05,
    "random_state": 0,
    **ADAM,
}


@pytest.fixture
def regression():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(120, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=120)


@pytest.fixture
def moons():
    return make_moons(120, noise=0.1, random_state=0)


def fitted(estimator_class, **params):
    """Return a small fitted model and its X."""
    X, y = make_moons(120, noise=0.1, random_state=0)
    return make(estimator_class, **SMALL | params).fit(X, y), X


def outputs(model, X):
    """Return probabilities, or means and standard deviations."""
    if isinstance(model, SWSGPClassifier):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


# --- scikit-learn ---------------------------------------------------------------------


def test_pipeline(regression):
    X, y = regression
    model = make_pipeline(StandardScaler(), make(SWSGPRegressor, **SMALL)).fit(
        X * 1e4, y
    )
    mean, std = model.predict(X * 1e4, return_std=True)
    assert model.score(X * 1e4, y) > 0.8
    assert mean.shape == std.shape == (120,)


def test_grid_search_over_inducing_points_neighbors_and_kernels(regression):
    X, y = regression
    kernel = ConstantKernel(1.0) * RBF(1.0)
    grid = [
        {"n_inducing": [3, 15], "n_neighbors": [2, 4]},
        {"kernel__k1__constant_value": [0.1, 1.0]},
        {"kernel": [Matern(1.0, nu=0.5), None]},
    ]
    model = make(SWSGPRegressor, kernel, **SMALL | {"max_iter": 5})
    search = GridSearchCV(model, grid, cv=2, n_jobs=2).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(np.isfinite(scores))
    assert len(set(scores)) > 5
    serial = GridSearchCV(model, grid[:1], cv=2).fit(X, y)
    np.testing.assert_array_equal(serial.cv_results_["mean_test_score"], scores[:4])
    assert kernel == ConstantKernel(1.0) * RBF(1.0)


def test_cross_val_score(moons):
    assert cross_val_score(make(SWSGPClassifier, **SMALL), *moons, cv=3).mean() > 0.85


@both_estimators
def test_clone_keeps_parameters_and_forgets_the_fit(estimator_class):
    kernel = ConstantKernel(2.0) * RBF([1.0, 2.0])
    model, _ = fitted(estimator_class, kernel=kernel, warm_start=True)
    copy = clone(model)
    assert copy.get_params() == model.get_params() | copy.get_params(deep=False)
    assert copy.kernel == kernel
    assert copy.kernel is not model.kernel
    assert not [name for name in vars(copy) if name.endswith("_")]


def test_calibrated_classifier(moons):
    X, y = moons
    model = CalibratedClassifierCV(make(SWSGPClassifier, **SMALL), cv=2).fit(X, y)
    assert model.score(X, y) > 0.85
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_multi_output_regressor(regression):
    X, y = regression
    Y = np.stack([y, -10 * y], axis=1)
    model = MultiOutputRegressor(make(SWSGPRegressor, **SMALL), n_jobs=2).fit(X, Y)
    assert model.score(X, Y) > 0.8
    single = make(SWSGPRegressor, **SMALL).fit(X, y)
    np.testing.assert_array_equal(model.predict(X)[:, 0], single.predict(X))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bagging_regressor(regression, n_jobs):
    X, y = regression
    model = BaggingRegressor(
        make(SWSGPRegressor, **SMALL), 3, n_jobs=n_jobs, random_state=0
    )
    assert model.fit(X, y).score(X, y) > 0.8


def test_concurrent_fits_in_python_threads(regression):
    X, y = regression
    jobs = [joblib.delayed(make(SWSGPRegressor, **SMALL).fit)(X, y) for _ in range(4)]
    models = joblib.Parallel(n_jobs=2, backend="threading")(jobs)
    expected = make(SWSGPRegressor, **SMALL).fit(X, y).predict(X)
    for model in models:
        np.testing.assert_array_equal(model.predict(X), expected)


def test_metadata_routing_passes_weights_to_fit(regression):
    X, y = regression
    weight = np.where(y > 0, 5.0, 0.0)
    options = {"cv": 2, "params": {"sample_weight": weight}, "return_estimator": True}
    with sklearn.config_context(enable_metadata_routing=True):
        model = make(SWSGPRegressor, **SMALL).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=False)
        results = cross_validate(model, X, y, **options)
    for trained in results["estimator"]:
        assert trained.predict(X).mean() > y.mean() + 0.2


@both_estimators
def test_metadata_can_be_requested_by_every_method(estimator_class):
    with sklearn.config_context(enable_metadata_routing=True):
        model = estimator_class()
        model.set_fit_request(sample_weight=True, X_val=True, y_val=False)
        model.set_partial_fit_request(sample_weight=True)
        model.set_predict_request(n_neighbors=True)
        model.set_score_request(sample_weight=True)
        routing = model.get_metadata_routing()
    expected = {"sample_weight": True, "X_val": True, "y_val": False}
    if estimator_class is SWSGPRegressor:
        expected |= {"exposure": None, "noise_variance": None}
    assert routing.fit.requests == expected
    assert routing.partial_fit.requests["sample_weight"] is True
    assert routing.predict.requests["n_neighbors"] is True
    assert routing.score.requests == {"sample_weight": True}


@both_estimators
def test_representations(estimator_class):
    model, _ = fitted(estimator_class)
    assert estimator_class.__name__ in model._repr_html_()
    assert "n_inducing=15" in repr(model)


# --- pickle, pandas -------------------------------------------------------------------


def walk(value, path="model"):
    """Yield (path, leaf) for everything inside a pickled state."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from walk(item, f"{path}[{i}]")
    else:
        yield path, value


@pytest.mark.matrix
@both_estimators
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_pickle(estimator_class, method, moons):
    X, y = moons
    model = getattr(make(estimator_class, random_state=0), method)(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(copy, X), outputs(model, X))
    assert copy.lower_bound(X, y) == model.lower_bound(X, y)
    plain = np.ndarray | np.generic | int | float | str | None
    kernels = type(model.kernel_)
    for path, value in walk(vars(model)):
        assert isinstance(value, plain | kernels | Natural), path
        assert not isinstance(value, np.ndarray) or value.dtype != object, path
    again = getattr(copy, method)(X[:50], y[:50])
    np.testing.assert_array_equal(
        outputs(again, X), outputs(getattr(model, method)(X[:50], y[:50]), X)
    )


@both_estimators
def test_unpickling_in_another_version_warns(estimator_class):
    model, _ = fitted(estimator_class)
    dumped = pickle.dumps(model)
    current = skswsgp.__version__.encode()
    assert current in dumped, "the version of skswsgp is not in the pickle"
    other = dumped.replace(current, b"9" + current[1:])
    with pytest.warns(UserWarning, match="was pickled by skswsgp"):
        pickle.loads(other)


@both_estimators
@pytest.mark.parametrize("order", ["C", "F"])
def test_read_only_memory_map(estimator_class, order, moons, tmp_path):
    X, y = moons
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    np.save(tmp_path / "y.npy", y)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    mapped_y = np.load(tmp_path / "y.npy", mmap_mode="r")
    model = make(estimator_class, **SMALL).fit(mapped, mapped_y)
    expected = make(estimator_class, **SMALL).fit(X, y)
    np.testing.assert_array_equal(outputs(model, mapped), outputs(expected, X))
    for value in vars(model).values():
        assert not isinstance(value, np.memmap)


@both_estimators
def test_pandas_and_names_of_features(estimator_class, moons):
    X, y = moons
    frame, target = (
        pd.DataFrame(X, columns=["a", "b"]),
        pd.Series(y, index=range(9, 129)),
    )
    model = make(estimator_class, **SMALL).fit(frame, target)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    expected = make(estimator_class, **SMALL).fit(X, y)
    np.testing.assert_array_equal(outputs(model, frame), outputs(expected, X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a"]])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X)
    with pytest.warns(UserWarning, match="feature names"):
        expected.predict(frame)


@both_estimators
def test_validation_data_as_pandas(estimator_class, moons):
    X, y = moons
    frame, target = pd.DataFrame(X, columns=["a", "b"]), pd.Series(y)
    model = make(estimator_class, **SMALL).fit(
        frame[:80], target[:80], X_val=frame[80:], y_val=target[80:]
    )
    expected = make(estimator_class, **SMALL).fit(
        X[:80], y[:80], X_val=X[80:], y_val=y[80:]
    )
    np.testing.assert_array_equal(outputs(model, frame), outputs(expected, X))


@both_estimators
def test_weights_as_pandas(estimator_class, moons):
    X, y = moons
    weight = pd.Series(np.arange(120.0), index=range(7, 127))
    model = make(estimator_class, **SMALL).fit(X, y, sample_weight=weight)
    plain = make(estimator_class, **SMALL).fit(X, y, sample_weight=np.arange(120.0))
    np.testing.assert_array_equal(outputs(model, X), outputs(plain, X))
