"""Saved models: what a file holds, who can read it, files of releases."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from helpers import ADAM, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import is_classifier
from small_models import both_estimators, small_data

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.solvers import Adam

PAGE = Path(__file__).parents[2] / "doc" / "user_guide" / "saving.md"
FILES = sorted((Path(__file__).parent / "saved").glob("*.pkl"))


def saved(model):
    """Return a model that was pickled and read."""
    return pickle.loads(pickle.dumps(model))


def data_for(estimator_class, n=300):
    X, y = small_data(n)
    return X, y > 0 if estimator_class is SWSGPClassifier else y


def assert_same_predictions(one, other, X):
    names = ["predict", "predict_proba"] if is_classifier(one) else ["predict_interval"]
    for name in names:
        assert_array_equal(getattr(one, name)(X), getattr(other, name)(X))


@pytest.mark.usefixtures("few_steps")
@both_estimators
@pytest.mark.parametrize("solver", ["natural", "adam"])
def test_a_file_is_little_more_than_its_arrays(estimator_class, solver):
    X, y = data_for(estimator_class)
    params = {"random_state": 0}
    if solver == "adam":
        params |= ADAM | {"max_iter": 2, "n_inducing": 150}
    elif estimator_class is SWSGPClassifier:
        params |= {"covariance": "diag"}  # as that of more rows
    model = make(estimator_class, **params).fit(X, y)
    table = re.findall(r"(?m)^\| (`.*?) \|", PAGE.read_text())
    read = set(re.findall(r"`(\w+_)`", " ".join(table))) & set(vars(model))
    assert read >= {"kernel_", "inducing_points_", "inducing_covariance_"}
    arrays = [getattr(model, name) for name in sorted(read)]
    if solver == "natural":
        arrays += [X, y]  # what partial_fit goes on from
    arrays = pickle.dumps(arrays)
    assert len(arrays) < len(pickle.dumps(model)) < 1.5 * len(arrays)


def test_a_model_of_fit_learns_on_from_a_file_and_as_a_copy():
    X, y = small_data(80)
    model = SWSGPRegressor(n_inducing=20, learn_kernel=False, random_state=0)
    model.fit(X[:60], y[:60])
    others = saved(model), copy.copy(model), copy.deepcopy(model)
    for one in others:
        assert_same_predictions(model, one, X)
    for one in (model, *others):
        one.partial_fit(X[60:], y[60:])
    for one in others:
        assert_same_predictions(model, one, X)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:this SWSGP.* was pickled by")
def test_models_of_a_release_predict_as_they_did(path):
    X, y, calls, expected = pickle.loads(path.read_bytes())
    for (model, name, given), values in zip(calls, expected, strict=True):
        assert_allclose(getattr(model, name)(*given), values, rtol=1e-6, atol=1e-9)
    stream = calls[-1][0]
    assert stream.partial_fit(X[20:], y[20:]).score(X, y) > 0.9


def test_there_is_a_file_of_a_release():
    assert FILES and all(path.stat().st_size < 30_000 for path in FILES)


def trusted_types(skops, file):
    """Return the names of the types in a file that the page on saving says to trust."""
    own = "skswsgp.", "sklearn.gaussian_process.kernels."
    return [
        name for name in skops.get_untrusted_types(file=file) if name.startswith(own)
    ]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "model",
    [
        SWSGPRegressor(random_state=0),
        SWSGPClassifier(random_state=0),
        SWSGPRegressor(solver=Adam(max_iter=2), random_state=0),
        SWSGPRegressor(x_transform="ranks", y_transform="yeo-johnson", random_state=0),
        "stream",
    ],
    ids=["regressor", "classifier", "adam", "scales", "stream"],
)
def test_skops_reads_what_it_has_written(model, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs skops, of the extra `test`")
    X, y = data_for(type(model), 100)
    if model == "stream":
        model = SWSGPRegressor(random_state=0).partial_fit(X, y)
    else:
        model.fit(X, y)
    skops.dump(model, tmp_path / "model.skops")
    trusted = trusted_types(skops, tmp_path / "model.skops")
    read = skops.load(tmp_path / "model.skops", trusted=trusted)
    assert_same_predictions(model, read, X)
    assert type(read.get_params()["solver"]) is type(model.solver)
    if hasattr(model, "leave_one_out_"):
        assert_array_equal(read.leave_one_out_.z_score, model.leave_one_out_.z_score)


READER = """
import sys, joblib, numpy as np
folder, kind = sys.argv[1:]
X, trusted = joblib.load(f"{folder}/rows")
if kind == "skops":
    import skops.io
    model = skops.io.load(f"{folder}/skops", trusted=trusted)
else:
    model = joblib.load(f"{folder}/{kind}")  # which also reads what pickle wrote
np.save(f"{folder}/found.npy", model.predict_interval(X))
model.fit(X, X[:, 0])
"""


@pytest.mark.slow  # it starts a process
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("kind", ["pickle", "joblib", "skops"])
def test_another_process_predicts_the_same(kind, tmp_path):
    X, y = small_data(100)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    trusted = None
    if kind == "pickle":
        (tmp_path / kind).write_bytes(pickle.dumps(model))
    elif kind == "joblib":
        joblib.dump(model, tmp_path / kind)
    else:
        skops = pytest.importorskip("skops.io", reason="needs skops, of `test`")
        skops.dump(model, tmp_path / kind)
        trusted = trusted_types(skops, tmp_path / kind)
    joblib.dump((X, trusted), tmp_path / "rows")
    command = [sys.executable, "-c", READER, str(tmp_path), kind]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npy")
    assert_array_equal(found, model.predict_interval(X))
