"""What all baselines do alike: scikit-learn's contract, bits, input that is refused."""

import pickle

import joblib
import numpy as np
import pytest
from helpers import holed
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.gaussian_process.kernels import RBF, PairwiseKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp import baselines
from skswsgp.baselines import (
    BSGPClassifier,
    BSGPRegressor,
    IDSGPClassifier,
    IDSGPRegressor,
    LocalGPRegressor,
    NearestNeighborGPRegressor,
    SOLVEGPClassifier,
    SOLVEGPRegressor,
    SVGPClassifier,
    SVGPRegressor,
)
from skswsgp.metrics import (
    crps,
    get_scorer,
    interval_score,
    mean_negative_log_density,
)

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.usefixtures("few_steps"),
    pytest.mark.filterwarnings("ignore:split R-hat:"),  # of chains this short
]
CHAIN = {"n_inducing": 12, "burn_in": 50, "n_samples": 5, "spacing": 2}
SMALL = [
    NearestNeighborGPRegressor(random_state=0),
    LocalGPRegressor(n_experts=3, n_neighbors=60, random_state=0),
    IDSGPRegressor(n_inducing=4, batch_size=20, random_state=0),
    IDSGPClassifier(batch_size=20, random_state=0),
    BSGPRegressor(**CHAIN, adam_steps=300, random_state=0),
    BSGPClassifier(**CHAIN, adam_steps=300, random_state=0),
    SOLVEGPRegressor(n_inducing=12, n_orthogonal=12, random_state=0),
    SOLVEGPClassifier(n_inducing=12, n_orthogonal=12, random_state=0),
    SVGPRegressor(n_inducing=12, max_iter=40, batch_size=20, random_state=0),
    SVGPClassifier(n_inducing=12, max_iter=40, batch_size=20, random_state=0),
]
DRAWS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "minibatches and held-out rows are drawn by row number, so duplicates change "
        "the draw"
    )
}
each = pytest.mark.parametrize("model", SMALL, ids=lambda model: type(model).__name__)
# What these do lies in code that all share.
FEW = LocalGPRegressor, IDSGPClassifier
a_few = pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            model,
            id=type(model).__name__,
            marks=() if isinstance(model, FEW) else pytest.mark.full,
        )
        for model in SMALL
    ],
)
regressors = pytest.mark.parametrize(
    "model", [*filter(is_regressor, SMALL)], ids=lambda model: type(model).__name__
)


def expected_failures(estimator):
    drawn = SVGPRegressor, SVGPClassifier, SOLVEGPClassifier
    drawn += IDSGPRegressor, IDSGPClassifier, BSGPRegressor, BSGPClassifier
    return DRAWS if isinstance(estimator, drawn) else {}


# What it checks lies in `baselines.shared`, and for an SVGP in the estimators, so one
# classifier, which has more checks than a regressor, stands for the others.
OTHERS = [model for model in SMALL if not isinstance(model, IDSGPClassifier)]


@parametrize_with_checks(
    [model for model in SMALL if isinstance(model, IDSGPClassifier)],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.full  # a minute for nine models
@parametrize_with_checks(OTHERS, expected_failed_checks=expected_failures)
def test_estimator_checks_of_the_others(estimator, check):
    check(estimator)


@pytest.fixture
def table(rng):
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=80)


def targets_for(model, y):
    """Return y, or labels for a classifier."""
    return np.where(y > 0.0, "up", "down") if is_classifier(model) else y


def results(model, X):
    """Return means and deviations, or probabilities."""
    if is_classifier(model):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


def test_all_are_tested():
    features = {"KernelFeatures"}  # a transformer, with a file of tests of its own
    assert {type(model).__name__ for model in SMALL} | features == {*baselines.__all__}


@each
def test_noise_of_one_output_is_a_number(model, table):
    X, y = table
    fitted = clone(model).fit(X, targets_for(model, y))
    assert isinstance(getattr(fitted, "noise_variance_", 0.1), float)


@a_few
def test_they_learn_within_a_pipeline_and_a_search(model, table):
    X, y = table
    y = targets_for(model, y)
    pipeline = make_pipeline(StandardScaler(), model)
    grid = {f"{type(model).__name__.lower()}__random_state": [0, 1]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X * 1e4, y)
    assert search.score(X * 1e4, y) > 0.8
    assert search.cv_results_["mean_test_score"].max() > 0.7


@each
def test_pickle_and_clone(model, table):
    X, y = table
    model = clone(model).fit(X, targets_for(model, y))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(results(copy, X), results(model, X))
    assert not [name for name in vars(clone(model)) if name.endswith("_")]


@each
@pytest.mark.usefixtures("eager_threads")
def test_fits_are_bitwise_equal_for_any_number_of_threads(model, table):
    X, y = table
    fits = [
        clone(model).set_params(n_jobs=n_jobs).fit(X, targets_for(model, y))
        for n_jobs in (1, 2, 8, 1)
    ]
    first = results(fits[0], X)
    assert np.isfinite(first).all()
    for other in fits[1:]:
        np.testing.assert_array_equal(results(other, X), first)


@each
def test_rows_of_weight_zero_do_not_enter_the_fit(model, table):
    X, y = table
    weight = np.r_[np.ones(60), np.zeros(20)]
    some = clone(model).fit(X[:60], targets_for(model, y)[:60])
    y = np.r_[y[:60], [1e6] * 20]
    fitted = clone(model).fit(X, targets_for(model, y), weight)
    np.testing.assert_array_equal(results(fitted, X), results(some, X))


@each
@pytest.mark.parametrize("size", [1e8, 1e-8])
def test_units_do_not_change_predictions(model, size, table):
    X, y = table
    plain = results(clone(model).fit(X, targets_for(model, y)), X)
    factor = 1.0 if is_classifier(model) else size
    scaled = clone(model).fit(X * size, targets_for(model, y * size))
    found = results(scaled, X * size) / factor
    np.testing.assert_allclose(found, plain, rtol=0, atol=1e-4)


@regressors
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_quantiles_are_those_of_the_predicted_law(model, outputs, table):
    """That of a BSGP is a mixture, see `test_bsgp`; a sample of it is a Gaussian."""
    X, y = table
    y = np.multiply.outer(y, [5.0, -200.0][: len(outputs) + 1]).reshape(80, *outputs)
    model = clone(model)
    if isinstance(model, BSGPRegressor):
        model.set_params(sample=())
    model.fit(X, y)
    levels = [0.025, 0.5, 0.975]
    found = model.predict(X[:7], quantiles=levels)
    law = norm(*model.predict(X[:7], return_std=True))
    expected = np.stack([law.ppf(level) for level in levels], axis=1)
    assert found.shape == (7, 3, *outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X[:7], quantiles=0.975), found[:, 2])
    ends = np.stack(model.predict_interval(X[:7]), axis=1)
    np.testing.assert_allclose(ends, found[:, [0, 2]], rtol=1e-12)
    narrow = np.stack(model.predict_interval(X[:7], coverage=0.5), axis=1)
    np.testing.assert_allclose(narrow, np.stack(law.interval(0.5), 1), rtol=1e-9)


@regressors
def test_unusable_levels_are_refused_as_by_the_estimators(model, table):
    X, y = table
    model = clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"coverage=95: expected a number above 0 and"):
        model.predict_interval(X, coverage=95)
    with pytest.raises(ValueError, match=r"quantiles=\[0, 0.5\]: expected a number or"):
        model.predict(X, quantiles=[0, 0.5])
    with pytest.raises(ValueError, match="quantiles came with return_std=True: expec"):
        model.predict(X, return_std=True, quantiles=[0.5])


@regressors
def test_quantiles_come_out_of_pipelines_and_deviations_reach_scorers(model, table):
    X, y = table
    pipeline = make_pipeline(StandardScaler(), model).fit(X[:60], y[:60])
    lower, upper = pipeline.predict(X[60:], quantiles=[0.05, 0.95]).T
    assert (lower < upper).all()
    mean, std = pipeline.predict(X[60:], return_std=True)
    expected = {
        "neg_log_density": mean_negative_log_density(y[60:], mean, std),
        "neg_crps": crps(y[60:], mean, std),
        "neg_interval_score": interval_score(y[60:], *norm.interval(0.95, mean, std)),
    }
    for name, score in expected.items():
        assert get_scorer(name)(pipeline, X[60:], y[60:]) == pytest.approx(-score)


BAD_DATA = {
    "one-dimensional": (lambda X: X[:, 0], ValueError, "2D array"),
    "no rows": (lambda X: X[:0], ValueError, "0 sample"),
    "no columns": (lambda X: X[:, :0], ValueError, "0 feature"),
    "lengths differ": (lambda X: X[:-1], ValueError, "numbers of samples"),
    "NaN": (holed(np.nan), ValueError, "X contains NaN"),
    "infinities": (holed(np.inf, -np.inf), ValueError, "X contains infinity"),
    "complex": (lambda X: X + 1j, ValueError, "Complex"),
    "sparse": (csr_array, TypeError, "[Ss]parse"),
    "text": (lambda X: np.full(X.shape, "a"), ValueError, "holds text"),
    "masked": (lambda X: np.ma.array(X, mask=X > 1), ValueError, "masked entries"),
}


@each
@pytest.mark.parametrize(("change", "error", "match"), BAD_DATA.values(), ids=BAD_DATA)
def test_unusable_X_is_refused_as_by_the_estimators(model, change, error, match, table):
    X, y = table
    model = clone(model)
    with pytest.raises(error, match=match):
        model.fit(change(X), targets_for(model, y))
    assert not [name for name in vars(model) if name.endswith("_")]


@each
@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (-np.ones(80), "[Nn]egative"),
        (np.zeros(80), "zero"),
        (np.full(80, np.nan), "NaN"),
        (np.ones(79), "sample_weight"),
    ],
    ids=["negative", "zero", "nan", "short"],
)
def test_unusable_weights_are_refused(model, weight, match, table):
    X, y = table
    with pytest.raises(ValueError, match=match):
        clone(model).fit(X, targets_for(model, y), sample_weight=weight)


@each
@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        (PairwiseKernel(), ValueError, "PairwiseKernel.*cannot be compiled"),
        (RBF([1.0, 1.0, 1.0]), ValueError, "3 length-scales.*n_features=2"),
        ("rbf", TypeError, "'rbf'.*expected a kernel"),
    ],
)
def test_unusable_kernels_are_refused(model, kernel, error, match, table):
    X, y = table
    with pytest.raises(error, match=match):
        clone(model).set_params(kernel=kernel).fit(X, targets_for(model, y))


@each
def test_unusable_targets_are_refused(model, table):
    X, y = table
    bad = y if is_classifier(model) else np.full(80, "a")
    match = "no labels" if is_classifier(model) else "string|cannot be read as numbers"
    with pytest.raises(ValueError, match=match):
        clone(model).fit(X, bad)
    if is_classifier(model):
        with pytest.raises(ValueError, match="one class only"):
            clone(model).fit(X, np.zeros(80, dtype=int))


@each
def test_a_refused_fit_keeps_the_earlier_model(model, table):
    X, y = table
    model = clone(model).fit(X, targets_for(model, y))
    before = joblib.hash(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(holed(np.nan)(X), targets_for(model, y))
    assert joblib.hash(vars(model)) == before


@each
def test_awkward_tables_give_finite_predictions(model, table):
    X, y = table
    changes = {
        "constant column": np.c_[X, np.full(80, 3.3)],
        "only constant columns": np.full_like(X, 0.1),
        "two distinct rows": X[np.arange(80) % 2],
        "around 1e8": X + 1e8,
        "one huge row": np.where(np.arange(80)[:, None] == 0, 1e10, X),
    }
    for X in changes.values():
        fitted = clone(model).fit(X, targets_for(model, y))
        assert np.isfinite(results(fitted, X)).all()
    if not is_classifier(model):
        fitted = clone(model).fit(X, np.full(80, 5.0))
        # a network keeps some of its start, and samples scatter
        rtol = 1e-3 if isinstance(model, BSGPRegressor) else 1e-5
        np.testing.assert_allclose(fitted.predict(X), 5.0, rtol=rtol)
    few = clone(model).fit(X[:2], targets_for(model, np.array([1.0, -1.0])))
    assert np.isfinite(results(few, X)).all()
