"""The reliability display shows the curve of the metrics."""

import builtins

import numpy as np
import pytest
from helpers import labels_of
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from skswsgp.displays import ReliabilityDisplay
from skswsgp.metrics import reliability_curve


def test_reliability_is_drawn_as_the_curve_is(pyplot, iris):
    model, X, y = iris
    how = {"n_bins": 8, "confidence": "middle", "sample_weight": np.arange(150) + 1.0}
    display = ReliabilityDisplay.from_estimator(model, X, y, **how)
    curve = reliability_curve(y, model.predict_proba(X), **how)
    x, accuracy = display.line_[0].get_data()
    np.testing.assert_array_equal(x, curve.confidence)
    np.testing.assert_array_equal(accuracy, curve.accuracy)
    heights = [bar.get_height() for bar in display.bars_]
    np.testing.assert_array_equal(heights, curve.weight)
    lefts = [bar.get_x() for bar in display.bars_]
    np.testing.assert_allclose(lefts, np.arange(8) / 8)
    ends = np.array([path.vertices for path in display.line_[2][0].get_paths()])
    np.testing.assert_allclose(ends[:, :, 1].T, [curve.lower, curve.upper])
    assert display.figure_ is display.ax_.figure
    assert labels_of(display) == ["Calibrated", "GaussianNB"]


def test_reliability_of_labels_in_another_order(pyplot, iris):
    model, X, y = iris
    proba = model.predict_proba(X)
    one = ReliabilityDisplay.from_predictions(y, proba)
    other = ReliabilityDisplay.from_predictions(y, proba[:, ::-1], labels=[2, 1, 0])
    np.testing.assert_allclose(other.curve, one.curve)
    assert labels_of(one) == ["Calibrated"]


def test_displays_share_axes_and_take_styles(pyplot, iris):
    model, X, y = iris
    _, ax = pyplot.subplots()
    for name in ("one", "two"):
        how = {"name": name, "ax": ax, "histogram": False, "color": "green"}
        display = ReliabilityDisplay.from_estimator(model, X, y, **how)
        assert display.ax_ is ax and display.bars_ is None
        assert display.line_[0].get_color() == "green"
    assert labels_of(display) == ["Calibrated", "one", "two"]


@pytest.mark.parametrize("how", [{"fmt": "s--"}, {"marker": "s", "linestyle": "--"}])
def test_a_format_takes_the_place_of_the_style(how, pyplot, iris):
    model, X, y = iris
    line = ReliabilityDisplay.from_estimator(model, X, y, **how).line_[0]
    assert (line.get_marker(), line.get_linestyle()) == ("s", "--")


def test_a_classifier_in_a_pipeline_and_a_search_gives_its_name(pyplot, iris):
    _, X, y = iris
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    search = GridSearchCV(pipeline, {"gaussiannb__var_smoothing": [1e-9]}, cv=3)
    display = ReliabilityDisplay.from_estimator(search.fit(X, y), X, y)
    assert labels_of(display) == ["Calibrated", "GaussianNB"]
    expected = reliability_curve(y, search.predict_proba(X))
    np.testing.assert_array_equal(display.curve, expected)


def test_a_bin_of_one_sample_looks_uncertain_and_one_of_a_thousand_does_not(pyplot):
    proba = np.r_[0.65, np.full(1000, 0.95)]  # all of them are hits
    display = ReliabilityDisplay.from_predictions([1] * 1001, proba, labels=[0, 1])
    ends = [path.vertices[:, 1] for path in display.line_[2][0].get_paths()]
    heights = np.array([np.ptp(each) for each in ends])
    one, thousand = heights[np.isfinite(heights)]
    assert one > 0.5 and 0.0 < thousand < 0.01


@pytest.mark.parametrize("model", [BayesianRidge(), LinearSVC()])
def test_an_estimator_without_probabilities_is_told_the_display_for_it(model, line):
    X, y = line
    pipeline = make_pipeline(StandardScaler(), model)
    name = type(model).__name__
    match = f"^{name} has no predict_proba: expected .*; use CoverageDisplay for a reg"
    with pytest.raises(TypeError, match=match):
        ReliabilityDisplay.from_estimator(pipeline.fit(X, y > 0.0), X, y > 0.0)


@pytest.mark.parametrize("n_bins", [0, -3, 2.5, "20"])
def test_unusable_numbers_of_bins(n_bins, iris):
    classifier, *flowers = iris
    with pytest.raises(ValueError, match=f"n_bins={n_bins!r}: expected an integer.* 1"):
        ReliabilityDisplay.from_estimator(classifier, *flowers, n_bins=n_bins)


def test_a_missing_matplotlib_is_named(iris, monkeypatch):
    def without(name, *args):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    model, X, y = iris
    with pytest.raises(ImportError, match="ReliabilityDisplay needs matplotlib"):
        ReliabilityDisplay.from_estimator(model, X, y)
