"""Scorers of estimators that say in different ways how uncertain they are."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.metrics import (
    crps,
    crps_of_quantiles,
    get_scorer,
    interval_score,
    mean_negative_log_density,
)

pytestmark = pytest.mark.matrix
NAMES = ["neg_log_density", "neg_crps", "neg_interval_score"]
WEIGHT = np.resize([1.0, 5.0, 0.0], 60)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=60)


class Normal(RegressorMixin, BaseEstimator):
    """The normal law of the training targets, of which subclasses tell something."""

    def fit(self, X, y):
        self.law_ = norm(np.mean(y), np.std(y))
        return self

    def predict(self, X):
        return np.full(len(X), self.law_.mean())

    def ends(self, X, level=0.95):
        ends = self.law_.ppf([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        return [np.full(len(X), end) for end in ends]


class NormalQuantiles(Normal):
    def predict(self, X, quantiles=None):
        if quantiles is None:
            return super().predict(X)
        return np.tile(self.law_.ppf(quantiles), (len(X), 1))


class NormalIntervals(Normal):
    """Intervals as `SWSGPRegressor` has them."""

    def predict_interval(self, X, coverage=0.5):
        return tuple(self.ends(X, coverage))


class Conformal(Normal):
    """Intervals as MAPIE has them: their level is chosen before the fit."""

    def __init__(self, confidence_level=0.9):
        self.confidence_level = confidence_level

    def predict_interval(self, X, minimize_interval_width=False):
        levels = np.ravel(self.confidence_level)
        ends = np.stack([self.ends(X, level) for level in levels], axis=-1)
        return self.predict(X), np.swapaxes(ends, 0, 1)


def expected_scores(y, mean, std, weight=None):
    """Return the scores of Gaussian predictions by name."""
    ends = norm.interval(0.95, mean, std)
    return {
        "neg_log_density": -mean_negative_log_density(y, mean, std, weight),
        "neg_crps": -crps(y, mean, std, weight),
        "neg_interval_score": -interval_score(y, *ends, 0.95, weight),
    }


def gaussian_process():
    return GaussianProcessRegressor(RBF() + WhiteKernel(0.1), optimizer=None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [BayesianRidge, gaussian_process])
def test_deviations_stand_for_a_gaussian(make, name, data):
    X, y = data
    model = make().fit(X, y)
    expected = expected_scores(y, *model.predict(X, return_std=True), WEIGHT)[name]
    scorer = get_scorer(name)
    assert scorer(model, X, y, sample_weight=WEIGHT) == pytest.approx(expected)
    assert scorer(model, X, y) != pytest.approx(expected)
    found = scorer(FrozenEstimator(model), X, y, sample_weight=WEIGHT)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
def test_pipelines_and_searches_are_asked_for_the_estimator_inside(name, data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), make_pipeline(BayesianRidge()))
    search = GridSearchCV(pipeline, {"standardscaler__with_mean": [True, False]}, cv=2)
    outer = make_pipeline(StandardScaler(), search).fit(X, y)
    rows = outer[0].transform(X)
    model = outer[-1].best_estimator_
    inner = model[-1][-1].predict(model[0].transform(rows), return_std=True)
    expected = expected_scores(y, *inner)[name]
    assert get_scorer(name)(outer, X, y) == pytest.approx(expected)
    scores = cross_validate(search, X, y, scoring=get_scorer(name), cv=2)["test_score"]
    assert np.isfinite(scores).all()


def test_quantiles_have_exact_scores_of_intervals(data):
    X, y = data
    model = NormalQuantiles().fit(X, y)
    expected = expected_scores(
        y, *np.full((2, 60), [[np.mean(y)], [np.std(y)]]), WEIGHT
    )
    found = get_scorer("neg_interval_score")(model, X, y, sample_weight=WEIGHT)
    assert found == pytest.approx(expected["neg_interval_score"], rel=1e-12)
    found = get_scorer("neg_crps")(model, X, y, sample_weight=WEIGHT)
    assert found == pytest.approx(expected["neg_crps"], rel=1e-3)


def quantiles_of(model, X, levels):
    """Return quantiles of a law, by those of a Gaussian where a model has none."""
    if isinstance(model, BayesianRidge):
        return norm.ppf(levels, *np.stack(model.predict(X, return_std=True))[..., None])
    return model.predict(X, quantiles=levels)


@pytest.mark.parametrize(
    "model",
    [
        BayesianRidge(),
        NormalQuantiles(),
        SWSGPRegressor(learn_kernel=False, random_state=0),
        SWSGPRegressor(RBF(), likelihood="student_t", y_transform="yeo-johnson"),
        SWSGPRegressor(RBF(), likelihood="poisson", learn_kernel=False),
    ],
    ids=["ridge", "quantiles", "ours", "tails on a scale", "counts"],
)
def test_the_ranked_probability_score_has_one_definition(model, data):
    X, y = data
    y = np.round(np.exp(y))
    model.fit(X, y)
    levels = (np.arange(200) + 0.5) / 200
    expected = crps_of_quantiles(y, quantiles_of(model, X, levels), levels, WEIGHT)
    found = get_scorer("neg_crps")(model, X, y, sample_weight=WEIGHT)
    assert found == pytest.approx(-expected, rel=5e-3)


def test_outputs_of_quantiles_are_told_apart(data):
    X, y = data

    class Both(NormalQuantiles):
        def predict(self, X, quantiles=None):
            one = super().predict(X, quantiles)
            return np.stack([one, 10.0 * one], axis=-1)

    model = Both().fit(X, y)
    one = NormalQuantiles().fit(X, y)
    for name in NAMES[1:]:
        found = get_scorer(name)(model, X, np.stack([y, 10.0 * y], axis=1))
        assert found == pytest.approx(5.5 * get_scorer(name)(one, X, y))


@pytest.mark.parametrize("model", [NormalIntervals(), Conformal(0.95)])
def test_intervals_have_the_score_of_intervals(model, data):
    X, y = data
    model.fit(X, y)
    expected = -interval_score(y, *model.ends(X), 0.95, WEIGHT)
    found = get_scorer("neg_interval_score")(model, X, y, sample_weight=WEIGHT)
    assert found == pytest.approx(expected)
    message = r"has intervals, which are no whole law: expected predict\(X, return_std"
    for name in NAMES[:2]:
        with pytest.raises(TypeError, match=message):
            get_scorer(name)(model, X, y)


@pytest.mark.parametrize("level", [0.9, [0.9, 0.95]])
def test_intervals_of_another_level_are_refused(level, data):
    X, y = data
    model = Conformal(level).fit(X, y)
    with pytest.raises(ValueError, match=r"intervals of 95 %; use confidence_level=0"):
        get_scorer("neg_interval_score")(model, X, y)


def test_transformed_targets_are_scored_by_their_quantiles(data):
    X, y = data
    inner = SWSGPRegressor(learn_kernel=False, random_state=0)
    options = {"func": np.sinh, "inverse_func": np.arcsinh}
    model = TransformedTargetRegressor(inner, **options).fit(X, y)
    ends = model.predict(X, quantiles=[0.025, 0.975]).T
    found = get_scorer("neg_interval_score")(model, X, y)
    assert found == pytest.approx(-interval_score(y, *ends))
    assert np.isfinite(get_scorer("neg_crps")(model, X, y))
    with pytest.raises(
        TypeError, match="has quantiles, which have no density: expecte"
    ):
        get_scorer("neg_log_density")(model, X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(
            TypeError, match=r"quantiles\] are passed but are not explic"
        ):
            get_scorer("neg_crps")(model, X, y)
        asked = clone(inner).set_predict_request(quantiles=True)
        model = TransformedTargetRegressor(asked, **options).fit(X, y)
        assert get_scorer("neg_interval_score")(model, X, y) == pytest.approx(found)


def one_line(model, name="neg_crps"):
    """Return a pattern for the message of a model that says nothing."""
    kind = type(model).__name__
    return rf"^{kind} does not say how uncertain it is.*: expected .*{name}[^\n]*$"


@pytest.mark.parametrize(
    "model",
    [LinearRegression(), BaggingRegressor(BayesianRidge(), 2), Normal()],
    ids=lambda model: type(model).__name__,
)
def test_estimators_that_say_nothing_are_refused_in_one_line(model, data):
    X, y = data
    for name in NAMES:
        with pytest.raises(TypeError, match=one_line(model, name)):
            get_scorer(name)(model.fit(X, y), X, y)
    pipeline = make_pipeline(StandardScaler(), model)
    strict = {"scoring": get_scorer("neg_crps"), "cv": 2, "error_score": "raise"}
    with pytest.raises(TypeError, match=one_line(model)):
        cross_validate(pipeline, X, y, **strict)


def test_scikit_learn_ends_its_warning_with_that_line(data):
    """It turns all errors of scorers into NaN unless `error_score` is "raise"."""
    X, y = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scorer = get_scorer("neg_crps")
        found = cross_validate(LinearRegression(), X, y, scoring=scorer, cv=2)
    assert np.isnan(found["test_score"]).all()
    last = str(caught[0].message).strip().splitlines()[-1]
    assert last.startswith("TypeError: LinearRegression does not say how uncertain")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [SWSGPClassifier, LogisticRegression, LinearSVC])
def test_scorers_say_that_classifiers_have_other_ones(make, name):
    X, y = np.arange(12.0)[:, None], np.arange(12) % 2
    model = make_pipeline(StandardScaler(), make()).fit(X, y)
    match = (
        rf"^{make.__name__} is a classifier: expected a regressor for "
        rf"get_scorer\('{name}'\); use scoring='neg_log_loss' for prob[^\n]*\.$"
    )
    with pytest.raises(TypeError, match=match):
        get_scorer(name)(model, X, y)


@pytest.mark.parametrize("name", ["neg_log_loss", "r2", "crps"])
def test_names_of_other_scores_are_told_where_they_go(name):
    match = f"^name='{name}': expected one of 'neg_log_density', .*as in scoring='r2'"
    with pytest.raises(ValueError, match=match):
        get_scorer(name)


def test_errors_of_predictions_are_not_hidden(data):
    X, y = data
    model = BayesianRidge().fit(X, y)
    with pytest.raises(ValueError, match="1 features"):
        get_scorer("neg_crps")(model, X[:, :1], y)

    class Broken(NormalQuantiles):
        def predict(self, X, quantiles=None):
            raise TypeError("of its own")

    with pytest.raises(TypeError, match=r"^of its own"):
        get_scorer("neg_crps")(Broken().fit(X, y), X, y)


# --- weights --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "model",
    [BayesianRidge(), SWSGPRegressor(learn_kernel=False, random_state=0)],
    ids=["ridge", "ours"],
)
def test_weights_are_routed_to_scorers(model, name, data):
    X, y = data
    options = {"cv": 2, "return_estimator": True, "params": {"sample_weight": WEIGHT}}
    with sklearn.config_context(enable_metadata_routing=True):
        model = clone(model).set_fit_request(sample_weight=False)
        scorer = get_scorer(name).set_score_request(sample_weight=True)
        found = cross_validate(model, X, y, scoring=scorer, **options)
        peer = sklearn.metrics.get_scorer("r2").set_score_request(sample_weight=True)
        scoring = {"ours": clone(scorer, safe=False), "peer": peer}
        several = cross_validate(model, X, y, scoring=scoring, **options)
    assert_allclose(several["test_ours"], found["test_score"])
    for k, rows in enumerate([np.arange(30), np.arange(30, 60)]):
        fold = found["estimator"][k], X[rows], y[rows]
        weighted = get_scorer(name)(*fold, WEIGHT[rows])
        assert found["test_score"][k] == pytest.approx(weighted)
        assert get_scorer(name)(*fold) != pytest.approx(weighted)


def test_weights_that_nobody_has_asked_for_are_refused(data):
    X, y = data
    with sklearn.config_context(enable_metadata_routing=True):
        model = BayesianRidge().set_fit_request(sample_weight=False)
        options = {
            "scoring": get_scorer("neg_crps"),
            "params": {"sample_weight": WEIGHT},
        }
        message = r"get_scorer\('neg_crps'\)\.set_score_request|to cross validation"
        # the second one before scikit-learn 1.9
        with pytest.raises(UnsetMetadataPassedError, match=message):
            cross_validate(model, X, y, **options)


def test_searches_pass_weights_of_fit_to_scorers(data):
    """Without routing, as they do for scikit-learn's own scorers since its 1.9."""
    X, y = data
    grid, ours = {"fit_intercept": [True]}, get_scorer("neg_crps")
    scoring = {"ours": ours, "peer": "r2"}
    both = GridSearchCV(BayesianRidge(), grid, scoring=scoring, refit="ours", cv=2)
    one = GridSearchCV(BayesianRidge(), grid, scoring=ours, cv=2)
    both.fit(X, y, sample_weight=WEIGHT), one.fit(X, y, sample_weight=WEIGHT)
    assert both.best_score_ == pytest.approx(one.best_score_)


@pytest.mark.parametrize("name", NAMES)
def test_scorers_can_be_pickled_and_cloned(name, data):
    X, y = data
    model = BayesianRidge().fit(X, y)
    expected = get_scorer(name)(model, X, y)
    for copy in (
        pickle.loads(pickle.dumps(get_scorer(name))),
        clone(get_scorer(name), safe=False),
    ):
        assert copy(model, X, y) == expected
        assert repr(copy) == f"get_scorer({name!r})"


def test_quantiles_that_fall_with_their_level_are_refused():
    """They are those of a decreasing function of y."""
    X = np.linspace(0.0, 3.0, 40)[:, None]
    y = np.exp(-np.sin(X[:, 0]))
    falling = {"func": lambda y: -y, "inverse_func": lambda t: -t}
    model = TransformedTargetRegressor(SWSGPRegressor(random_state=0), **falling)
    with pytest.raises(TypeError, match="has quantiles that fall with the level"):
        get_scorer("neg_crps")(model.fit(X, y), X, y)
