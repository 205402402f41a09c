import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import binomtest, norm
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, mean_pinball_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPRegressor
from skswsgp.metrics import (
    crps,
    crps_of_quantiles,
    expected_calibration_error,
    get_scorer,
    interval_coverage,
    interval_score,
    mean_negative_log_density,
    pinball,
    reliability_curve,
)

pytestmark = pytest.mark.matrix

MASKED = np.ma.masked_array([1.0, 2.0], [False, True])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=[(50,), (50, 3)], ids=["1d", "2d"])
def gaussian(request, rng):
    """Return y_true, y_mean, y_std with targets drawn from the predictions."""
    y_mean = rng.normal(size=request.param)
    y_std = rng.uniform(0.1, 3.0, size=request.param)
    return y_mean + y_std * rng.normal(size=request.param), y_mean, y_std


def weighted_and_repeated(rng, *arrays):
    """Return random integer weights, and the arrays with samples repeated as often."""
    counts = rng.integers(0, 4, size=len(arrays[0]))
    return counts, [np.repeat(array, counts, axis=0) for array in arrays]


# mean_negative_log_density


def test_log_density_of_one_value_equals_its_formula():
    score = mean_negative_log_density([3.0], [1.0], [2.0])
    assert score == pytest.approx(0.5 * np.log(2 * np.pi) + np.log(2.0) + 0.5)
    assert type(score) is float


def test_log_density_equals_scipy(gaussian):
    y_true, y_mean, y_std = gaussian
    expected = -norm.logpdf(y_true, y_mean, y_std).mean()
    assert mean_negative_log_density(*gaussian) == pytest.approx(expected, rel=1e-12)


def test_log_density_is_lowest_for_the_true_standard_deviation(rng):
    y_mean = rng.normal(size=2000)
    y_std = rng.uniform(0.5, 2.0, size=2000)
    y_true = rng.normal(y_mean, y_std)
    scores = [
        mean_negative_log_density(y_true, y_mean, c * y_std) for c in (0.8, 1.0, 1.25)
    ]
    assert scores[1] == min(scores)


def test_log_density_of_rescaled_targets_adds_the_log_of_the_scale(gaussian):
    moved = mean_negative_log_density(*(10.0 * array for array in gaussian))
    expected = mean_negative_log_density(*gaussian) + np.log(10.0)
    assert moved == pytest.approx(expected, rel=1e-12)


# interval_coverage


def test_coverage_counts_targets_inside_the_interval():
    lower, upper = [0.0, 0.0, -1.0, 2.0], [1.0, 1.0, 1.0, 2.0]
    coverage = interval_coverage([0.0, 1.1, -2.0, 2.0], lower, upper)
    assert coverage == 0.5
    assert type(coverage) is float


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_coverage_of_calibrated_predictions_is_what_they_promise(rng, level):
    y_std = rng.uniform(0.1, 3.0, size=10_000)
    y_true, half = rng.normal(2.0, y_std), norm.ppf(0.5 + level / 2) * y_std
    coverage = interval_coverage(y_true, 2.0 - half, 2.0 + half)
    assert coverage == pytest.approx(level, abs=0.015)  # 3 standard errors


def test_coverage_averages_over_outputs():
    y_true = [[0.0, 9.0], [0.0, 0.0]]
    assert interval_coverage(y_true, -np.ones((2, 2)), np.ones((2, 2))) == 0.75


def test_means_and_deviations_are_no_intervals():
    with pytest.raises(ValueError, match="lower is above upper in row 0: expected"):
        interval_coverage([5.0, 5.0], [5.0, 5.0], [1.0, 1.0])


# Scores of Gaussian predictions


@pytest.fixture(params=[mean_negative_log_density, crps])
def score(request):
    return request.param


def test_weights_equal_repeated_samples(score, gaussian, rng):
    counts, repeated = weighted_and_repeated(rng, *gaussian)
    expected = score(*repeated)
    assert score(*gaussian, sample_weight=counts) == pytest.approx(expected, rel=1e-12)
    assert score(*gaussian) != pytest.approx(expected, rel=1e-12)


def test_lists_series_and_float32_are_accepted(score, rng):
    y_true, y_mean = rng.normal(size=(2, 20)).astype(np.float32)
    y_std = rng.uniform(0.5, 1.0, size=20).astype(np.float32)
    expected = score(
        y_true.astype(np.float64), y_mean.astype(np.float64), y_std.astype(np.float64)
    )
    assert score(y_true, y_mean, y_std) == expected
    assert score(pd.Series(y_true), y_mean.tolist(), y_std) == expected


def test_error_names_the_index_of_a_non_positive_std(score):
    with pytest.raises(ValueError, match=r"non-positive value -1\.0 at index 3: exp"):
        score(np.zeros(5), np.zeros(5), [1, 1, 1, -1, 1])
    y_std = np.ones((2, 3))
    y_std[1, 2] = 0.0
    with pytest.raises(ValueError, match=r"non-positive value 0\.0 at index \(1, 2\)"):
        score(np.zeros((2, 3)), np.zeros((2, 3)), y_std)


@pytest.mark.parametrize("name", ["y_mean", "y_std"])
def test_shapes_must_agree(score, name):
    arrays = {"y_true": np.ones(5), "y_mean": np.ones(5), "y_std": np.ones(5)}
    arrays[name] = np.ones((5, 1))
    with pytest.raises(ValueError, match=rf"{name} has shape \(5, 1\): expected \(5,"):
        score(**arrays)


@pytest.mark.parametrize("name", ["y_true", "y_mean", "y_std"])
def test_nan_is_refused(score, name):
    arrays = {"y_true": np.ones(5), "y_mean": np.ones(5), "y_std": np.ones(5)}
    arrays[name][2] = np.nan
    with pytest.raises(ValueError, match=f"Input {name} contains NaN"):
        score(**arrays)


@pytest.mark.parametrize(
    ("sample_weight", "message"),
    [
        ([1.0, -1.0], r"sample_weight has values from -1\.0 to 1\.0"),
        ([0.0, 0.0], r"sample_weight has values from 0\.0 to 0\.0"),
        ([1.0], r"sample_weight has shape \(1,\): expected \(2,\)"),
        ([1.0, np.nan], "Input sample_weight contains NaN"),
    ],
)
def test_bad_weights_are_refused(score, sample_weight, message):
    with pytest.raises(ValueError, match=message):
        score([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], sample_weight=sample_weight)
    with pytest.raises(ValueError, match=message):
        expected_calibration_error([0, 1], [0.5, 0.5], sample_weight=sample_weight)


# expected_calibration_error


def naive_calibration_error(y_true, y_proba, n_bins):
    """Return the calibration error by loops over bins and samples."""
    error = 0.0
    for b in range(n_bins):
        hits, confidences = [], []
        for label, row in zip(y_true, y_proba, strict=True):
            if b / n_bins < max(row) <= (b + 1) / n_bins:
                hits.append(float(np.argmax(row) == label))
                confidences.append(max(row))
        if hits:
            gap = abs(np.mean(hits) - np.mean(confidences))
            error += len(hits) / len(y_true) * gap
    return error


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_calibration_error_equals_its_definition(rng, n_classes, n_bins):
    y_proba = rng.dirichlet(np.ones(n_classes), size=300)
    y_true = rng.integers(0, n_classes, size=300)
    error = expected_calibration_error(y_true, y_proba, n_bins)
    expected = naive_calibration_error(y_true, y_proba, n_bins)
    assert error == pytest.approx(expected, rel=1e-10)
    assert type(error) is float


def test_calibration_error_of_certain_predictions_is_the_error_rate():
    y_proba = np.eye(3)[[0, 1, 2, 0]]
    assert expected_calibration_error([0, 1, 2, 2], y_proba) == 0.25


def test_confidence_on_an_edge_belongs_to_the_lower_bin():
    # The bins are (0, 0.5] and (0.5, 1].
    y_proba = [[0.5, 0.5], [0.25, 0.75]]
    error = expected_calibration_error([0, 0], y_proba, 2, labels=[0, 1])
    assert error == pytest.approx((0.5 + 0.75) / 2)


def test_calibration_error_of_calibrated_probabilities_is_small(rng):
    y_proba = rng.dirichlet([1.0, 1.0, 1.0], size=20_000)
    y_true = (rng.random((20_000, 1)) > y_proba.cumsum(axis=1)).sum(axis=1)
    assert expected_calibration_error(y_true, y_proba) < 0.015
    sharp = y_proba**2 / (y_proba**2).sum(axis=1, keepdims=True)
    assert expected_calibration_error(y_true, sharp) > 0.1


def test_calibration_error_weights_equal_repeated_samples(rng):
    y_proba = rng.dirichlet([1.0, 1.0], size=60)
    y_true = rng.integers(0, 2, size=60)
    counts, repeated = weighted_and_repeated(rng, y_true, y_proba)
    error = expected_calibration_error(y_true, y_proba, sample_weight=counts)
    expected = expected_calibration_error(*repeated)
    assert error == pytest.approx(expected, rel=1e-10)
    assert expected_calibration_error(y_true, y_proba) != pytest.approx(expected)


def test_labels_may_be_in_any_order(rng):
    y_proba = rng.dirichlet(np.ones(3), size=100)
    y_true = rng.integers(0, 3, size=100)
    expected = expected_calibration_error(y_true, y_proba)
    names = np.array(["pear", "fig", "apple"])  # not sorted
    assert expected_calibration_error(names[y_true], y_proba, labels=names) == expected
    for order in ([1, 2, 0], [2, 0, 1]):
        shuffled = y_proba[:, order]
        error = expected_calibration_error(y_true, shuffled, labels=order)
        assert error == expected


def test_one_dimension_is_the_probability_of_the_second_class(rng):
    proba = rng.random(100)
    y_true = rng.integers(0, 2, size=100)
    both = np.column_stack([1 - proba, proba])
    error = expected_calibration_error(y_true, proba)
    assert error == expected_calibration_error(y_true, both)


def test_calibration_error_works_as_a_scorer(rng):
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] + rng.normal(size=200) > 0, "yes", "no")
    scorer = make_scorer(
        expected_calibration_error,
        response_method="predict_proba",
        greater_is_better=False,
    )
    scores = cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=2)
    assert (scores < 0).all() and (scores > -0.3).all()


@pytest.mark.parametrize(
    ("y_true", "y_proba", "labels", "message"),
    [
        ([0, 1], [[1.2, -0.2], [0, 1]], None, r"y_proba has values from -0\.2 to 1\.2"),
        ([0], [[-0.25, 0.75, 0.5]], [0, 1, 2], r"y_proba has values from -0\.25 to"),
        ([0, 1], [0.5, 1.5], None, r"y_proba has values from 0\.5 to 1\.5"),
        ([0, 1], [[0.5, 0.5], [0.25, 0.5]], None, r"a row, 1, with the sum 0\.75: exp"),
        ([0, 0], [[0.5, 0.5], [0, 1]], None, "classes in y_true is 1: expected 2"),
        ([0, 1], [[0.5, 0.5], [0, 1]], [0, 1, 2], "classes in labels is 3: expected 2"),
        ([0, 1], [[0.5, 0.5], [0, 1]], [0, 0, 1], "one for each column of y_p"),
        ([0, 2], [[0.5, 0.5], [0, 1]], [0, 1], "y_true has classes that are not in"),
        (["a", "b"], [[0.5, 0.5], [0, 1]], [0, 1], "y_true has classes that are not"),
        ([0, 1], [[0.5, 0.5], [0, 1]], ["a", "b"], "y_true has classes that are not"),
        ([0, 1], [[0.5, np.nan], [0, 1]], None, "Input y_proba contains NaN"),
        ([0, 1, 1], [[0.5, 0.5], [0, 1]], None, "inconsistent numbers of samples"),
        (MASKED, [[0.5, 0.5], [0, 1]], None, "y_true is a masked array with 1 masked"),
    ],
)
def test_calibration_error_refuses_bad_input(y_true, y_proba, labels, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(y_true, y_proba, labels=labels)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, "auto"])
def test_calibration_error_refuses_a_bad_number_of_bins(n_bins):
    with pytest.raises(ValueError, match=r"n_bins=.*: expected an integer of"):
        expected_calibration_error([0, 1], [0.5, 0.5], n_bins=n_bins)


@pytest.mark.parametrize("confidence", ["Mean", None, 0.5])
def test_calibration_error_refuses_a_bad_confidence(confidence):
    with pytest.raises(ValueError, match=r"confidence=.*: expected 'mean' or 'm"):
        expected_calibration_error([0, 1], [0.5, 0.5], confidence=confidence)


def test_calibration_error_with_middles_of_bins_by_hand():
    # two samples in (0.5, 1], one right; the middle is 0.75, the mean 0.8
    y_proba = [[0.9, 0.1], [0.7, 0.3]]
    how = {"n_bins": 2, "labels": [0, 1]}
    error = expected_calibration_error([0, 1], y_proba, confidence="middle", **how)
    assert error == pytest.approx(0.25)
    assert expected_calibration_error([0, 1], y_proba, **how) == pytest.approx(0.3)


@pytest.mark.parametrize("n_bins", [3, 15])
def test_middles_and_means_of_bins_differ_by_half_a_bin(rng, n_bins):
    y_proba = rng.dirichlet(np.ones(3), size=200)
    y_true = rng.integers(0, 3, size=200)
    mean, middle = (
        expected_calibration_error(y_true, y_proba, n_bins, confidence=confidence)
        for confidence in ("mean", "middle")
    )
    assert 0.0 < abs(mean - middle) <= 0.5 / n_bins


def test_calibration_error_of_calibrated_samples_falls_as_a_root(rng):
    errors = []
    for n in (400, 40_000):
        p = rng.random(size=(20, n))
        hits = rng.random(size=p.shape) < p
        each = [expected_calibration_error(*pair) for pair in zip(hits, p, strict=True)]
        errors.append(np.mean(each))
    assert errors[0] / errors[1] == pytest.approx(10.0, rel=0.2)


def test_reliability_curve_by_hand():
    y_proba = [[0.9, 0.1], [0.7, 0.3], [0.1, 0.9], [0.45, 0.55]]
    curve = reliability_curve(
        [0, 1, 1, 1], y_proba, n_bins=4, sample_weight=[1.0, 1.0, 2.0, 4.0]
    )
    nan, close = np.nan, np.testing.assert_allclose
    close(curve.weight, [0.0, 0.0, 5 / 8, 3 / 8])
    close(curve.accuracy, [nan, nan, 4 / 5, 1.0])
    close(curve.confidence, [nan, nan, (0.7 + 4 * 0.55) / 5, 0.9])
    ends, z = np.stack([curve.lower, curve.upper])[:, 2:], norm.ppf(0.975)
    squares = ends * (1.0 - ends) * np.array([17 / 25, 5 / 9])  # of standard errors
    close((curve.accuracy[2:] - ends) ** 2, z**2 * squares, atol=1e-12)
    assert (ends[0] < curve.accuracy[2:]).all()
    assert ends[1, 0] > 0.8 and ends[1, 1] == 1.0
    assert np.isnan([curve.lower, curve.upper]).sum() == 4
    middles = reliability_curve([0, 1, 1, 1], y_proba, n_bins=4, confidence="middle")
    close(middles.confidence, [0.125, 0.375, 0.625, 0.875])


def test_reliability_curve_weights_equal_repeated_samples(rng):
    y_proba = rng.dirichlet([1.0, 1.0], size=60)
    y_true = rng.integers(0, 2, size=60)
    counts, repeated = weighted_and_repeated(rng, y_true, y_proba)
    weighted = reliability_curve(y_true, y_proba, sample_weight=counts)
    expected = reliability_curve(*repeated)
    for one, other in zip(weighted[:3], expected[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize(("hits", "n"), [(1, 1), (0, 1), (5, 5), (3, 7), (700, 1000)])
def test_intervals_of_an_accuracy_are_those_of_scipy(hits, n):
    y_true = (np.arange(n) < hits).astype(int)
    curve = reliability_curve(y_true, np.full(n, 0.7), labels=[0, 1])
    found = curve.lower[13], curve.upper[13]
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_intervals_hold_the_accuracy_itself(rng):
    y_true, proba = rng.integers(0, 2, size=400), rng.dirichlet([1.0, 1.0], size=400)
    curve = reliability_curve(y_true, proba, n_bins=200, sample_weight=rng.random(400))
    known = np.isfinite(curve.accuracy)
    lower, accuracy, upper = (
        curve.lower[known],
        curve.accuracy[known],
        curve.upper[known],
    )
    assert (lower <= accuracy).all() and (accuracy <= upper).all()
    assert (upper - lower > 0.2).all()  # of few samples each, of which some have none


# crps, interval_score, pinball


@pytest.mark.parametrize("y, mean, std", [(0.3, 0.1, 0.5), (-4.0, 1.0, 2.0)])
def test_crps_is_its_integral(y, mean, std):
    parts = (
        quad(lambda x: norm.cdf(x, mean, std) ** 2, -np.inf, y)[0],
        quad(lambda x: norm.sf(x, mean, std) ** 2, y, np.inf)[0],
    )
    assert crps([y], [mean], [std]) == pytest.approx(sum(parts), rel=1e-7)


def test_crps_is_the_absolute_error_of_a_sure_prediction():
    assert crps([1.0, 5.0], [1.5, 3.0], [1e-12, 1e-12]) == pytest.approx(1.25)


def test_crps_is_twice_the_mean_pinball_loss(gaussian):
    y_true, y_mean, y_std = gaussian
    q = (np.arange(4000) + 0.5) / 4000
    quantiles = y_mean[:, None] + np.multiply.outer(y_std, norm.ppf(q)).swapaxes(1, -1)
    twice = 2 * pinball(y_true, quantiles, q)
    assert twice == pytest.approx(crps(*gaussian), rel=1e-3)


@pytest.fixture
def uneven(gaussian):
    """Return targets, quantiles at levels that are dense in one tail, and levels."""
    y_true, y_mean, y_std = gaussian
    q = ((np.arange(400) + 0.5) / 400) ** 2
    quantiles = np.moveaxis(norm.ppf(np.multiply.outer(q, np.ones(y_mean.shape))), 0, 1)
    return y_true, y_mean[:, None] + y_std[:, None] * quantiles, q


def test_crps_of_quantiles_is_that_of_their_law_for_uneven_levels(gaussian, uneven):
    found, expected = crps_of_quantiles(*uneven), crps(*gaussian)
    assert found == pytest.approx(expected, rel=3e-3)
    assert 2 * pinball(*uneven) < 0.9 * expected


def test_crps_of_quantiles_is_twice_the_pinball_loss_of_even_levels(uneven, rng):
    y_true, quantiles, _ = uneven
    q, weight = (np.arange(400) + 0.5) / 400, rng.uniform(size=len(y_true))
    expected = 2 * pinball(y_true, quantiles, q, weight)
    assert crps_of_quantiles(y_true, quantiles, q, weight) == pytest.approx(expected)
    one = crps_of_quantiles(y_true, quantiles[:, 7], 0.3)
    assert one == pytest.approx(2 * pinball(y_true, quantiles[:, 7], 0.3))


def test_crps_of_quantiles_takes_levels_in_any_order(uneven, rng):
    y_true, quantiles, q = uneven
    order = rng.permutation(len(q))
    shuffled = crps_of_quantiles(y_true, quantiles[:, order], q[order])
    assert shuffled == pytest.approx(crps_of_quantiles(*uneven))


def test_pinball_of_one_level_is_that_of_scikit_learn(gaussian, rng):
    y_true, quantiles, _ = gaussian
    weight = rng.uniform(size=len(y_true))
    ours = pinball(y_true, quantiles[:, None], [0.3], weight)
    assert pinball(y_true, quantiles, 0.3, weight) == ours
    theirs = mean_pinball_loss(y_true, quantiles, alpha=0.3, sample_weight=weight)
    assert ours == pytest.approx(theirs)


def test_interval_score_is_the_sum_of_two_pinball_losses(gaussian):
    y_true, y_mean, y_std = gaussian
    ends = y_mean - y_std, y_mean + y_std
    losses = pinball(y_true, np.stack(ends, axis=1), [0.1, 0.9])
    expected = 2 * losses / 0.1  # alpha / 2 = 0.1, and the mean is over two levels
    assert interval_score(y_true, *ends, coverage=0.8) == pytest.approx(expected)


def test_scores_are_least_for_the_truth(rng):
    y_std = rng.uniform(0.5, 2.0, size=4000)
    y = y_std * rng.normal(size=4000)
    zero = np.zeros(4000)
    for score in (
        lambda c: crps(y, zero, c * y_std),
        lambda c: interval_score(y, -1.96 * c * y_std, 1.96 * c * y_std),
    ):
        assert score(1.0) == min(map(score, (0.7, 1.0, 1.4)))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: crps([1.0], [1.0], [0.0]), "y_std has a non-positive value"),
        (lambda: interval_score([1.0], [2.0], [1.0]), "lower is above upper in row 0"),
        (lambda: interval_score([1.0], [[0.0]], [1.0]), "lower has shape"),
        (
            lambda: interval_score([1.0], [0.0], [1.0], 95),
            "coverage=95: expected a number above 0 and below 1; use 0.95 in pl",
        ),
        (lambda: pinball([1.0], [[1.0, 2.0]], [0.5]), "y_quantiles has shape"),
        (lambda: crps_of_quantiles([1.0], [[1.0, 2.0]], [0.5]), "y_quantiles has sha"),
        (
            lambda: pinball([1.0], [[1.0]], [1.5]),
            "above 0 and below 1; use those",
        ),
        (
            lambda: pinball([1.0], [1.0], 90),
            "quantiles=90: expected .*; use 0.9 ",
        ),
        (lambda: crps(MASKED, [1.0, 2.0], [1.0, 1.0]), "y_true is a masked array with"),
        (lambda: pinball([1.0, 2.0], MASKED, 0.5), "y_quantiles is a masked array"),
        (lambda: get_scorer("crps"), "expected one of 'neg_log_density', 'neg_crps'"),
    ],
)
def test_scores_refuse_what_they_cannot_use(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["neg_log_density", "neg_crps", "neg_interval_score"])
def test_searches_and_pipelines_take_the_scorers(name, rng):
    X = rng.normal(size=(80, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=80)
    model = SWSGPRegressor(learn_kernel=False, random_state=0)
    pipeline, scorer = make_pipeline(StandardScaler(), model), get_scorer(name)
    noises = {"swsgpregressor__initial_noise": [0.01, 10.0]}
    search = GridSearchCV(pipeline, noises, scoring=scorer, cv=2).fit(X, y)
    assert search.best_params_["swsgpregressor__initial_noise"] == 0.01
    mean, std = search.predict(X), search.best_estimator_.predict(X, return_std=True)[1]
    score = {
        "neg_log_density": mean_negative_log_density(y, mean, std),
        "neg_crps": crps(y, mean, std),
        "neg_interval_score": interval_score(
            y, mean - 1.959964 * std, mean + 1.959964 * std
        ),
    }[name]
    assert scorer(search.best_estimator_, X, y) == pytest.approx(-score, rel=1e-5)
    assert clone(search).scoring.name == name
