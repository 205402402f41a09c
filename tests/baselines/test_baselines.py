"""What all baselines do alike: scikit-learn's contract and a handful of claims."""

import joblib
import numpy as np
import pytest
from helpers import holed
from scipy.stats import norm
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.gaussian_process.kernels import RBF, PairwiseKernel
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
regressors = pytest.mark.parametrize(
    "model", [*filter(is_regressor, SMALL)], ids=lambda model: type(model).__name__
)
# Quantiles lie in the base of the baselines, in the mixture of a BSGP, and for an SVGP
# in the estimators.
KINDS = LocalGPRegressor, BSGPRegressor, SVGPRegressor
kinds = pytest.mark.parametrize(
    "model",
    [model for model in SMALL if isinstance(model, KINDS)],
    ids=lambda model: type(model).__name__,
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


@regressors
def test_noise_is_a_number_for_each_output_of_each_expert_or_sample(model, table):
    X, y = table
    if isinstance(model, BSGPRegressor):  # shapes need no long chain
        model = clone(model).set_params(adam_steps=5, burn_in=5, n_samples=3)
    one, two = clone(model).fit(X, y), clone(model).fit(X, np.c_[y, 3.0 * y])
    if isinstance(model, (LocalGPRegressor, BSGPRegressor)):
        n = model.n_experts if isinstance(model, LocalGPRegressor) else model.n_samples
        assert one.noise_variances_.shape == (n,)
        assert two.noise_variances_.shape == (n, 2)
    else:
        assert isinstance(one.noise_variance_, float)
        assert two.noise_variance_.shape == (2,)


@each
@pytest.mark.usefixtures("eager_threads")
def test_fits_are_bitwise_equal_for_any_number_of_threads(model, table):
    X, y = table
    fits = [
        clone(model).set_params(n_jobs=n_jobs).fit(X, targets_for(model, y))
        for n_jobs in (1, 2, 8)
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
def test_units_do_not_change_predictions(model, table, rng):
    X, y = table
    if is_classifier(model):  # labels without noise leave the variance of f open
        y = y + 0.5 * rng.normal(size=80)
    plain = results(clone(model).fit(X, targets_for(model, y)), X)
    for size in (2.0**27, 2.0**-27):  # without rounding, so ties of distances stay
        factor = 1.0 if is_classifier(model) else size
        scaled = clone(model).fit(X * size, targets_for(model, y * size))
        found = results(scaled, X * size) / factor
        np.testing.assert_allclose(found, plain, rtol=0, atol=1e-4)


@kinds
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


@kinds
def test_unusable_levels_are_refused_as_by_the_estimators(model, table):
    X, y = table
    model = clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"coverage=95: expected a number above 0 and"):
        model.predict_interval(X, coverage=95)
    with pytest.raises(ValueError, match=r"quantiles=\[0, 0.5\]: expected a number or"):
        model.predict(X, quantiles=[0, 0.5])
    with pytest.raises(ValueError, match="quantiles came with return_std=True: expec"):
        model.predict(X, return_std=True, quantiles=[0.5])


@kinds
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


# Other tables, such as sparse ones or those without rows, are scikit-learn's checks.
BAD_DATA = {
    "X holds text": ({"X": lambda X: np.full(X.shape, "a")}, "holds text"),
    "a column of NaN": ({"X": holed(np.nan)}, "X contains NaN in column"),
    "masked X": ({"X": lambda X: np.ma.array(X, mask=X > 1)}, "X is a masked array"),
    "masked y": ({"y": lambda y: np.ma.array(y, mask=y == y[0])}, "y is a masked"),
    "negative": (
        {"sample_weight": lambda X: -np.ones(80)},
        "holds -1.0: expected a positive",
    ),
    "no weight": ({"sample_weight": lambda X: np.zeros(80)}, "zero"),
    "of no rows": ({"sample_weight": lambda X: np.ones(79)}, "sample_weight"),
}
BAD_TARGETS = [(np.full(80, "a"), "string|cannot be read as numbers")]
BAD_LABELS = [
    (np.linspace(0.0, 1.0, 80), "no labels"),
    (np.zeros(80, dtype=int), "one class only"),
]
BAD_KERNELS = [
    (PairwiseKernel(), ValueError, "PairwiseKernel.*cannot be compiled"),
    (RBF([1.0, 1.0, 1.0]), ValueError, "3 length-scales.*n_features=2"),
    ("rbf", TypeError, "'rbf'.*expected a kernel"),
]


@each
def test_what_is_refused_keeps_the_earlier_model(model, table):
    """The messages are those of the estimators, whose checks the baselines call."""
    X, y = table
    y = targets_for(model, y)
    model = clone(model).fit(X, y)
    before = joblib.hash(vars(model))
    for changes, match in BAD_DATA.values():
        data = {"X": X, "y": y}
        data |= {name: of(data.get(name)) for name, of in changes.items()}
        with pytest.raises(ValueError, match=match):
            model.fit(**data)
        assert joblib.hash(vars(model)) == before, match
    for bad, match in BAD_LABELS if is_classifier(model) else BAD_TARGETS:
        with pytest.raises(ValueError, match=match):
            model.fit(X, bad)
        assert joblib.hash(vars(model)) == before, match
    for kernel, error, match in BAD_KERNELS:
        other = clone(model).set_params(kernel=kernel)
        with pytest.raises(error, match=match):
            other.fit(X, y)
        assert not [name for name in vars(other) if name.endswith("_")]


@each
def test_awkward_tables_give_finite_predictions(model, table):
    X, y = table
    changes = {
        "constant column": np.c_[X, np.full(80, 3.3)],
        "columns twice": np.c_[X, X],
        "columns of sizes 1e8 and 1e-8": X * [1e8, 1e-8],
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
