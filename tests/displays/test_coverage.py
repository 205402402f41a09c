"""The coverage display shows shares of observations inside intervals."""

import numpy as np
import pytest
from helpers import labels_of
from scipy.stats import binomtest, norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPRegressor
from skswsgp.displays import CoverageDisplay
from skswsgp.metrics import interval_coverage

LEVELS = np.arange(1, 10) / 10


def test_coverage_of_gaussians_is_that_of_their_intervals(pyplot, line):
    X, y = line
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    weight = np.arange(300) + 1.0
    display = CoverageDisplay.from_estimator(
        model, X, y, n_bins=10, sample_weight=weight
    )
    mean, std = model.predict(X, return_std=True)
    nominal, coverage = display.line_.get_data()
    np.testing.assert_allclose(nominal, [0.2, 0.4, 0.6, 0.8, 0.95])
    for level, found in zip(nominal, coverage, strict=True):
        lower, upper = norm.interval(level, mean, std)
        assert found == pytest.approx(interval_coverage(y, lower, upper, weight))
    pit = norm.cdf(y, mean, std)
    edges = np.r_[0.0, 0.025, LEVELS, 0.975, 1.0]
    expected = np.histogram(pit, edges, weights=weight)[0] / weight.sum()
    np.testing.assert_allclose(display.shares, expected)
    assert labels_of(display) == ["Calibrated", "BayesianRidge"]
    display.plot(kind="pit")
    assert labels_of(display) == ["Calibrated", "BayesianRidge"]
    (flat,) = display.ax_.lines
    np.testing.assert_array_equal(flat.get_data(), [[0.0, 1.0], [1.0, 1.0]])
    heights = expected / np.diff(edges)
    np.testing.assert_allclose(display.line_.get_data().values, heights)
    np.testing.assert_allclose(display.line_.get_data().edges, edges)


def test_coverage_of_several_outputs_is_their_mean(pyplot, rng):
    y = rng.normal(size=(50, 2))
    quantiles = norm.ppf(LEVELS)[None, :, None] * rng.uniform(0.5, 2, size=(50, 1, 2))
    both = CoverageDisplay.from_predictions(y, quantiles, LEVELS)
    single = [
        CoverageDisplay.from_predictions(y[:, q], quantiles[..., q], LEVELS)
        for q in range(2)
    ]
    for name in ("coverage", "shares"):
        expected = np.mean([getattr(one, name) for one in single], axis=0)
        np.testing.assert_allclose(getattr(both, name), expected)


@pytest.mark.usefixtures("few_steps")
def test_the_law_of_our_regressor_is_asked_for_quantiles(pyplot, line):
    X, y = line
    y = y + 0.3 * np.random.default_rng(1).standard_t(2, size=300)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    display = CoverageDisplay.from_estimator(model, X, y, n_bins=20)
    lower, upper = model.predict_interval(X, coverage=0.9)
    assert display.coverage[-2] == interval_coverage(y, lower, upper)


def test_narrow_intervals_lie_below_the_diagonal(pyplot, rng):
    y, quantiles = rng.normal(size=5000), np.tile(0.5 * norm.ppf(LEVELS), (5000, 1))
    display = CoverageDisplay.from_predictions(y, quantiles, LEVELS)
    expected = 2.0 * norm.cdf(0.5 * norm.ppf(0.5 + 0.5 * display.nominal)) - 1.0
    np.testing.assert_allclose(display.coverage, expected, atol=0.03)
    assert display.shares[[0, -1]].min() > 2.0 * display.shares[1:-1].max()


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_band_of_a_coverage_is_that_of_its_observations(outputs, pyplot, rng):
    y = rng.normal(size=(8, outputs))
    quantiles = np.tile(norm.ppf(LEVELS)[:, None], (8, 1, outputs))
    display = CoverageDisplay.from_predictions(y, quantiles, LEVELS, color="green")
    n = y.size
    expected = [
        binomtest(round(n * share), n).proportion_ci(0.95, method="wilson")
        for share in display.coverage
    ]
    np.testing.assert_allclose(np.stack([display.lower, display.upper], 1), expected)
    (path,) = display.band_.get_paths()
    drawn = {tuple(point) for point in path.vertices}
    assert drawn >= set(zip(display.nominal, display.lower, strict=True))
    assert drawn >= set(zip(display.nominal, display.upper, strict=True))
    np.testing.assert_array_equal(
        display.band_.get_facecolor(), [[0, 128 / 255, 0, 0.2]]
    )
    display.plot(kind="pit")
    assert display.band_ is None


def test_weights_widen_the_band_of_a_coverage(pyplot, rng):
    y, quantiles = rng.normal(size=8), np.tile(norm.ppf(LEVELS), (8, 1))
    weight = np.r_[7.0, np.ones(7)]
    display = CoverageDisplay.from_predictions(
        y, quantiles, LEVELS, sample_weight=weight
    )
    for end in (display.lower, display.upper):
        squares = norm.ppf(0.975) ** 2 * end * (1.0 - end) * 56 / 14**2
        np.testing.assert_allclose((display.coverage - end) ** 2, squares, atol=1e-12)


@pytest.mark.parametrize(
    ("n_bins", "nominal"),
    [(2, [0.95]), (3, [1 / 3, 0.95]), (40, np.arange(1, 20) / 20)],
)
def test_intervals_of_95_percent_are_among_those_of_any_bins(
    n_bins, nominal, pyplot, line
):
    X, y = line
    model = BayesianRidge().fit(X, y)
    display = CoverageDisplay.from_estimator(model, X, y, n_bins=n_bins)
    np.testing.assert_allclose(display.nominal, nominal)
    lower, upper = norm.interval(0.95, *model.predict(X, return_std=True))
    assert display.coverage[-1] == interval_coverage(y, lower, upper)


@pytest.mark.parametrize("model", [LinearRegression(), GaussianNB()])
def test_an_estimator_without_uncertainty_is_told_the_displays_for_it(model, line):
    X, y = line[0], line[1] > 0.0
    match = (
        f"{type(model).__name__} does not say how uncertain it is.* use Reliability"
        "Display for a classifier, and sklearn.metrics.PredictionErrorDisplay for mea"
    )
    with pytest.raises(TypeError, match=match):
        CoverageDisplay.from_estimator(model.fit(X, y), X, y)


@pytest.mark.parametrize("n_bins", [0, -3, 2.5, "20", 1])
def test_unusable_numbers_of_bins(n_bins, line):
    model = BayesianRidge().fit(*line)
    match = f"n_bins={n_bins!r}: expected an integer of at least 2"
    with pytest.raises(ValueError, match=match):
        CoverageDisplay.from_estimator(model, *line, n_bins=n_bins)


@pytest.mark.parametrize("change", [lambda y: y[:-1], lambda y: np.stack([y, y], 1)])
def test_y_that_does_not_go_with_X_is_named(change, line):
    X, y = line
    model = BayesianRidge().fit(X, y)
    with pytest.raises(ValueError, match=r"^y has shape .*: expected \(300,\)"):
        CoverageDisplay.from_estimator(model, X, change(y))


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ([0.1, 0.5, 0.8], "expected rising levels"),
        ([0.9, 0.5, 0.1], "expected rising levels"),
        ([0.0, 0.5, 1.0], "above 0 and below 1"),
        ([0.1, 0.9], "expected .3, 2."),
    ],
)
def test_unusable_levels(levels, match):
    with pytest.raises(ValueError, match=match):
        CoverageDisplay.from_predictions(np.zeros(3), np.zeros((3, 3)), levels)


def test_an_unknown_kind_is_refused():
    display = CoverageDisplay(LEVELS, *[LEVELS[5:]] * 4, np.full(10, 0.1))
    with pytest.raises(ValueError, match="kind='other': expected 'coverage' or 'pit'"):
        display.plot(kind="other")


def test_each_group_has_a_curve_of_its_own_rows(pyplot):
    rng = np.random.default_rng(0)
    X = np.repeat([0.0, 1.0], 100)[:, None]
    y = rng.standard_normal(200) * np.where(X[:, 0] > 0, 3.0, 1.0)
    model, groups = Known(), np.where(X[:, 0] > 0, "wild", "calm")
    displays = CoverageDisplay.from_groups(model, X, y, groups)
    assert list(displays) == ["calm", "wild"]
    assert displays["calm"].ax_ is displays["wild"].ax_
    for group, display in displays.items():
        own = groups == group
        alone = CoverageDisplay.from_estimator(model, X[own], y[own])
        np.testing.assert_array_equal(display.coverage, alone.coverage)
        np.testing.assert_array_equal(display.lower, alone.lower)
        assert display.name == f"{group} (100)"
    at = np.argmin(abs(displays["calm"].nominal - 0.9))
    assert displays["wild"].coverage[at] < 0.6 < 0.8 < displays["calm"].coverage[at]


def test_a_column_of_a_frame_names_the_groups(pyplot):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": np.arange(60.0), "month": np.arange(60) % 3})
    y = np.random.default_rng(0).standard_normal(60)
    weight = np.arange(60.0)
    given = Known(), frame, y, "month"
    displays = CoverageDisplay.from_groups(*given, sample_weight=weight)
    assert list(displays) == [0, 1, 2]
    with pytest.raises(
        ValueError, match=r"groups have the shape \(2,\): expected \(60"
    ):
        CoverageDisplay.from_groups(Known(), frame, y, ["a", "b"])
    frame["month"] = frame["month"].where(frame["month"] > 0)
    with pytest.raises(ValueError, match="some rows of X have no group"):
        CoverageDisplay.from_groups(*given)


class Known(RegressorMixin, BaseEstimator):
    """A model that expects standard normal observations everywhere."""

    def fit(self, X, y):
        return self

    def predict(self, X, return_std=False):
        mean = np.zeros(len(X))
        return (mean, np.ones(len(X))) if return_std else mean
