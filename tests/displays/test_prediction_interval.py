"""The display of intervals marks the observations outside of them."""

import numpy as np
import pytest
from helpers import labels_of
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPRegressor
from skswsgp.displays import PredictionIntervalDisplay
from skswsgp.metrics import interval_coverage


def segments(display):
    """Return the drawn intervals as rows (prediction, lower, upper)."""
    found = np.array(display.intervals_.get_segments())
    return np.column_stack([found[:, 0, 0], found[:, 0, 1], found[:, 1, 1]])


@pytest.mark.parametrize("coverage", [0.5, 0.95])
def test_intervals_of_a_gaussian_are_drawn_at_predictions(coverage, pyplot, line):
    X, y = line
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    weight = np.arange(300) + 1.0
    how = {"coverage": coverage, "sample_weight": weight, "target": "height (m)"}
    display = PredictionIntervalDisplay.from_estimator(model, X, y, **how)
    mean, std = model.predict(X, return_std=True)
    lower, upper = norm.interval(coverage, mean, std)
    order = np.argsort(mean)
    expected = np.column_stack([mean, lower, upper])[order]
    np.testing.assert_allclose(segments(display), expected)
    share = interval_coverage(y, lower, upper, weight)
    assert display.share == pytest.approx(share)
    assert labels_of(display) == [
        f"BayesianRidge, {100 * coverage:g} % interval",
        f"inside: {100 * share:.1f} %",
        f"outside: {100 * (1 - share):.1f} %",
    ]
    assert display.ax_.get_xlabel() == "Predicted height (m)"
    assert display.ax_.get_ylabel() == "Observed height (m)"


def test_points_outside_are_those_that_the_interval_does_not_hold(pyplot, line):
    X, y = line
    model = BayesianRidge().fit(X, y)
    display = PredictionIntervalDisplay.from_estimator(model, X, y, coverage=0.5)
    outside = (y < display.lower) | (y > display.upper)
    assert 0 < outside.sum() < 300
    for points, rows in ((display.outside_, outside), (display.inside_, ~outside)):
        assert sorted(points.get_ydata()) == sorted(y[rows])
        assert sorted(points.get_xdata()) == sorted(display.y_pred[rows])
    assert display.outside_.get_marker() != display.inside_.get_marker()
    assert display.outside_.get_color() != display.inside_.get_color()


@pytest.mark.usefixtures("few_steps")
def test_the_law_of_our_regressor_is_drawn(pyplot, line):
    X, y = line
    model = SWSGPRegressor(n_inducing=10, random_state=0).fit(X, y)
    display = PredictionIntervalDisplay.from_estimator(model, X, y, coverage=0.8)
    ends = model.predict_interval(X, coverage=0.8)
    np.testing.assert_allclose([display.lower, display.upper], ends)
    np.testing.assert_allclose(display.y_pred, model.predict(X))


class Forest(RandomForestRegressor):
    """Intervals in MAPIE's form."""

    def predict_interval(self, X):
        mean = self.predict(X)
        return mean, np.stack([mean - 1.0, mean + 1.0], axis=1)[:, :, None]


def test_intervals_in_the_form_of_mapie_are_taken(pyplot, line):
    X, y = line
    model = Forest(n_estimators=2, random_state=0).fit(X, y)
    display = PredictionIntervalDisplay.from_estimator(model, X, y, coverage=0.9)
    np.testing.assert_allclose(display.upper, model.predict(X) + 1.0)
    model.confidence_level = 0.95
    with pytest.raises(ValueError, match=r"use confidence_level=0\.9"):
        PredictionIntervalDisplay.from_estimator(model, X, y, coverage=0.9)


def test_few_of_many_samples_are_drawn_and_all_are_counted(pyplot, rng):
    y = rng.normal(size=5000)
    mean, ends = rng.normal(size=5000), (np.full(5000, -1.0), np.full(5000, 1.0))
    draw = PredictionIntervalDisplay.from_predictions
    display = draw(y, mean, *ends, coverage=0.68)
    assert display.share == np.mean(np.abs(y) <= 1.0)
    x = segments(display)[:, 0]
    assert len(x) == 1000 and x[[0, -1]].tolist() == [mean.min(), mean.max()]
    assert len(segments(draw(y, mean, *ends, subsample=None))) == 5000
    assert labels_of(display)[0] == "68 % interval"


def test_a_series_names_the_axes(pyplot):
    pandas = pytest.importorskip("pandas")
    y = pandas.Series([1.0, 2.0], name="price")
    display = PredictionIntervalDisplay.from_predictions(y, [1, 2], [0, 0], [3, 3])
    assert display.ax_.get_xlabel() == "Predicted price"


def test_an_array_of_dask_names_no_axes(pyplot):
    y = pytest.importorskip("dask.array").from_array(np.array([1.0, 2.0]))
    display = PredictionIntervalDisplay.from_predictions(y, [1, 2], [0, 0], [3, 3])
    assert display.ax_.get_xlabel() == "Predicted value"


@pytest.mark.parametrize("name", ["color", "colors"])
def test_intervals_have_the_color_that_was_asked_for(name, pyplot):
    draw = PredictionIntervalDisplay.from_predictions
    display = draw([1, 2], [1, 2], [0, 0], [3, 3], **{name: "red"})
    assert display.intervals_.get_color()[0, :3].tolist() == [1, 0, 0]


def test_unusable_input_of_intervals(line):
    X, y = line
    match = "^LinearRegression does not say how uncertain .* use from_predictions"
    with pytest.raises(TypeError, match=match):
        PredictionIntervalDisplay.from_estimator(LinearRegression().fit(X, y), X, y)
    model = BayesianRidge().fit(X, y)
    with pytest.raises(ValueError, match="coverage=95: expected a number above 0"):
        PredictionIntervalDisplay.from_estimator(model, X, y, coverage=95)
    with pytest.raises(ValueError, match="subsample=0: expected an integer of at leas"):
        PredictionIntervalDisplay.from_estimator(model, X, y, subsample=0)
    with pytest.raises(ValueError, match=r"lower has shape .300,.: expected .299,."):
        PredictionIntervalDisplay.from_estimator(model, X, y[:-1])
    with pytest.raises(ValueError, match=r"y_true has shape .300, 1.: expected one di"):
        PredictionIntervalDisplay.from_estimator(model, X, y[:, None])
