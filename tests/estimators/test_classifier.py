"""SWSGPClassifier: its probabilities, its labels, and its training."""

import joblib
import numpy as np
import pytest
import reference
from helpers import ADAM, make
from scipy.special import expit
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.metrics import log_loss

from skswsgp import SWSGPClassifier
from skswsgp._estimators import base
from skswsgp._fit import encode
from skswsgp._kernel_search.holdout import CandidateComparison, Holdout
from skswsgp._point.likelihood_records import (
    LIKELIHOODS,
    SOFTMAX_NODES,
    normal_nodes,
)
from skswsgp._solvers.exact_mean import exact_variance
from skswsgp.kernels import ArcCosine

JITTER = 1e-4  # default jitter in float64, relative to the kernel variance
KERNELS = {
    "matern": ConstantKernel(2.5) * Matern([0.8, 1.5], nu=2.5),
    "arc-cosine": ConstantKernel(2.0) * ArcCosine(order=0, sigma_0=0.7),
}

FEW = ADAM | {"n_inducing": 20, "n_neighbors": 20, "learning_rate": 0.05}
each_solver = pytest.mark.parametrize("solver", [{}, FEW], ids=["natural", "adam"])


def small_model(**params):
    defaults = {"n_inducing": 20, "n_neighbors": 5, "max_iter": 5, "batch_size": 16}
    return make(SWSGPClassifier, **ADAM | defaults | {"random_state": 0} | params)


def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


def unfitted(kernel, classes, Q, *, full=False, H=4, M=7, likelihood="auto"):
    """Return an unfitted model with given fitted attributes, and their arrays."""
    rng = np.random.default_rng(0)
    model = SWSGPClassifier(likelihood=likelihood)
    mean, covariance = rng.normal(size=(M, Q)), rng.uniform(0.1, 0.5, size=(M, Q))
    if full:
        covariance = np.tril(0.2 * rng.normal(size=(Q, M, M)), -1)
        covariance += np.eye(M) * rng.uniform(0.3, 0.9, size=(Q, M, 1))
        covariance = np.moveaxis(covariance, 0, -1)
    model.kernel_, model.classes_ = kernel, np.array(classes)
    model.inducing_points_ = rng.normal(size=(M, 2))
    model.linear_map_ = np.eye(2)
    model.n_neighbors_, model.n_features_in_ = H, 2
    model.inducing_mean_ = mean if Q > 1 else mean[:, 0]
    model.inducing_covariance_ = covariance if Q > 1 else covariance[..., 0]
    return model, (model.inducing_points_, mean, covariance)


# --- formulas -------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("H", [3, 7])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_bernoulli_probabilities_and_bound_equal_the_reference(kernel, full, H, rng):
    model, arrays = unfitted(kernel, ["no", "yes"], 1, full=full, H=H)
    X, sign = rng.normal(size=(8, 2)), np.array([-1, 1] * 4)
    weight = rng.uniform(0.5, 2.0, size=8)
    labels = np.where(sign > 0, "yes", "no")

    proba = model.predict_proba(X)
    bound = model.lower_bound(X, labels, sample_weight=weight)

    mu, v = reference.predict(kernel, X, *arrays, H, JITTER)
    yes = reference.bernoulli_probability(mu, v)[:, 0]
    np.testing.assert_allclose(proba, np.stack([1 - yes, yes], axis=1), rtol=1e-8)
    np.testing.assert_array_equal(model.predict(X) == "yes", yes > 0.5)
    expected = reference.lower_bound(
        kernel, X, sign, *arrays, H, "bernoulli", None, JITTER, sample_weight=weight
    )
    assert bound == pytest.approx(expected, rel=1e-8)


@pytest.mark.matrix
@pytest.mark.parametrize(("H", "full"), [(3, False), (3, True), (7, True)])
@pytest.mark.parametrize("Q", [2, 3])
def test_softmax_probabilities_and_bound_equal_the_reference(Q, H, full, rng):
    kernel, classes = KERNELS["matern"], [10, 20, 30][:Q]
    model, arrays = unfitted(kernel, classes, Q, full=full, H=H, likelihood="softmax")
    X, labels = rng.normal(size=(8, 2)), rng.integers(Q, size=8)

    proba = model.predict_proba(X)
    bound = model.lower_bound(X, model.classes_[labels])

    mu, v = reference.predict(kernel, X, *arrays, H, JITTER)
    nodes = normal_nodes(SOFTMAX_NODES, Q)
    expected = [reference.softmax_probability(mu[n], v[n], nodes) for n in range(8)]
    np.testing.assert_allclose(proba, expected, rtol=1e-8)
    best = np.argmax(expected, axis=1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[best])
    expected_bound = reference.lower_bound(
        kernel,
        X,
        labels,
        *arrays,
        H,
        "softmax",
        None,
        JITTER,
        nodes=nodes,
    )
    assert bound == pytest.approx(expected_bound, rel=1e-8)


def test_softmax_probabilities_agree_with_monte_carlo(rng):
    model, arrays = unfitted(KERNELS["matern"], [0, 1, 2], 3)
    X = rng.normal(size=(5, 2))
    mu, v = reference.predict(KERNELS["matern"], X, *arrays, 4, JITTER)
    sample = rng.normal(size=(20_000, 3))
    for n, proba in enumerate(model.predict_proba(X)):
        expected = reference.softmax_probability(mu[n], v[n], sample)
        np.testing.assert_allclose(
            proba, expected, atol=0.01
        )  # standard error 0.5 / sqrt(20,000)


def test_n_neighbors_of_predict_overrides_the_fitted_value(rng):
    X = rng.normal(size=(9, 2))
    model, _ = unfitted(KERNELS["matern"], [0, 1], 1)
    other, _ = unfitted(KERNELS["matern"], [0, 1], 1, H=6)
    actual = model.predict_proba(X, n_neighbors=6)
    np.testing.assert_array_equal(actual, other.predict_proba(X))
    assert not np.allclose(actual, model.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X, n_neighbors=6), other.predict(X))


@pytest.mark.parametrize("Q", [1, 3])
def test_single_rows_and_batches_get_the_same_predictions(Q, rng):
    model, _ = unfitted(KERNELS["matern"], [0, 1, 2][: max(Q, 2)], Q, full=True)
    X = rng.normal(size=(9, 2))
    single = np.concatenate([model.predict_proba(x[None]) for x in X])
    np.testing.assert_allclose(single, model.predict_proba(X), rtol=0, atol=1e-7)


# --- training -------------------------------------------------------------------------


def test_two_moons_are_separated():
    X, y = make_moons(400, noise=0.15, random_state=0)
    model = small_model(n_inducing=40, n_neighbors=8, max_iter=40, learning_rate=0.05)
    model.fit(X[:200], y[:200])
    assert model.inducing_mean_.shape == (40,)
    assert model.score(X[200:], y[200:]) > 0.95
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.1


def test_three_classes_of_iris_are_separated():
    X, y = iris()
    model = small_model(max_iter=40, learning_rate=0.05).fit(X[::2], y[::2])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.inducing_mean_.shape == (20, 3)
    assert model.score(X[1::2], y[1::2]) > 0.9
    proba = model.predict_proba(X)
    assert proba.shape == (150, 3)
    assert np.all((proba >= 0) & (proba <= 1))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    labels = model.classes_[proba.argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X), labels)


@pytest.mark.slow  # compiles for float32
@pytest.mark.parametrize("solver", ["natural", "adam"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_float32_probabilities_sum_to_one(n_classes, solver):
    X, y = iris()
    y = (np.unique(y, return_inverse=True)[1]) % n_classes
    how = {"learn_kernel": False, "solver": solver}
    model = small_model(**how, dtype="float32").fit(X, y)
    assert model.inducing_mean_.dtype == np.float32
    proba = model.predict_proba(X)
    assert proba.dtype == np.float32
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    wide = small_model(**how).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(proba, wide, atol=0.02)


@pytest.mark.parametrize(
    "names",
    [
        [-1, 1],
        [False, True],
        ["b", "a"],
        [5.0, 2.0],
        np.array(["x", "é"], dtype=object),
    ],
)
def test_labels_of_any_type_are_returned(names):
    X, y = make_moons(60, noise=0.1, random_state=0)
    labels = np.asarray(names)[y]
    model = small_model(max_iter=30).fit(X, labels)
    assert model.classes_.dtype == labels.dtype
    assert set(model.predict(X)) <= set(labels)
    assert model.score(X, labels) > 0.8
    order = np.argsort(names)
    plain = small_model(max_iter=30).fit(X, np.argsort(order)[y])
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


def test_swapping_two_classes_swaps_probabilities():
    X, y = make_moons(60, noise=0.1, random_state=0)
    first = small_model().fit(X, y).predict_proba(X)
    mirrored = small_model().fit(X, 1 - y).predict_proba(X)
    np.testing.assert_allclose(mirrored[:, ::-1], first, rtol=0, atol=1e-9)


def test_softmax_of_two_classes():
    X, y = make_moons(200, noise=0.1, random_state=0)
    model = small_model(likelihood="softmax", max_iter=60, learning_rate=0.05)
    model.fit(X, y)
    assert model.inducing_mean_.shape == (20, 2)
    assert model.predict_proba(X).shape == (200, 2)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("likelihood", ["bernoulli", "logit"])
def test_likelihoods_of_two_classes_take_no_more(likelihood):
    X, y = iris()
    model = small_model(likelihood=likelihood)
    with pytest.raises(ValueError, match=f"likelihood='{likelihood}' with 3 classes"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param({}, id="natural", marks=pytest.mark.full),
        pytest.param(FEW, id="adam"),
    ],
)
def test_logit_recovers_log_odds(solver, rng):
    X = rng.uniform(-3.0, 3.0, size=(800, 1))
    log_odds = 2.0 * np.sin(X[:, 0])
    y = rng.random(800) < expit(log_odds)
    model = make(SWSGPClassifier, likelihood="logit", random_state=0, **solver).fit(
        X, y
    )
    mean, variance = model.latent_mean_and_variance(X)
    assert np.sqrt(np.mean((mean - log_odds) ** 2)) < 0.4
    proba = model.predict_proba(X)[:, 1]
    assert np.abs(proba - expit(log_odds)).mean() < 0.06
    np.testing.assert_allclose(
        proba,
        LIKELIHOODS["logit"].probabilities(*np.stack([mean, variance])[..., None])[
            :, 1
        ],
    )


def test_bernoulli_is_the_default_of_two_classes():
    X, y = iris()
    model = small_model(likelihood="bernoulli")
    two = np.where(y == "setosa", "setosa", "other")
    proba = model.fit(X, two).predict_proba(X)
    auto = small_model().fit(X, two).predict_proba(X)
    np.testing.assert_array_equal(proba, auto)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_refits_are_bitwise_equal_for_any_number_of_threads(n_classes):
    X, y = iris()
    y = np.unique(y, return_inverse=True)[1] % n_classes
    proba = [small_model(n_jobs=n).fit(X, y).predict_proba(X) for n in (1, 1, 2)]
    np.testing.assert_array_equal(proba[0], proba[1])
    np.testing.assert_array_equal(proba[0], proba[2])


def test_rows_of_weight_zero_do_not_enter_the_fit():
    X, y = iris()
    weight = (y != "virginica").astype(float)
    model = small_model().fit(X, y, sample_weight=weight)
    other = small_model().fit(X[:100], y[:100])
    np.testing.assert_array_equal(
        model.predict_proba(X)[:, :2], other.predict_proba(X)[:, :2]
    )


def test_weights_in_lower_bound_act_like_repetition():
    X, y = iris()
    model, count = small_model().fit(X, y), np.arange(150) % 3
    expected = model.lower_bound(np.repeat(X, count, axis=0), np.repeat(y, count))
    actual = model.lower_bound(X, y, sample_weight=count)
    assert actual == pytest.approx(expected, rel=1e-12)


# --- streams of chunks ----------------------------------------------------------------


def test_partial_fit_learns_classes_announced_in_the_first_call():
    X, y = iris()
    model = SWSGPClassifier(learn_kernel=False, random_state=0)
    model.partial_fit(X[:100], y[:100], classes=["virginica", "setosa", "versicolor"])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.predict_proba(X).shape == (150, 3)
    for rows in (slice(100, 120), slice(120, 150)):
        model.partial_fit(X[rows], y[rows])
    assert model.score(X, y) > 0.85


@pytest.mark.filterwarnings("ignore::skswsgp.ExtrapolationWarning")
def test_partial_fit_accepts_one_class_when_others_are_announced():
    X, y = iris()
    names = np.unique(y)
    model = SWSGPClassifier(n_inducing=30, random_state=0)
    model.partial_fit(X[:50], y[:50], classes=names)
    model.partial_fit(X[50:], y[50:], classes=names)
    assert model.predict_proba(X).shape == (150, 3)


def test_partial_fit_refuses_labels_that_were_not_announced():
    X, y = iris()
    model = SWSGPClassifier(random_state=0).partial_fit(X[:100], y[:100])
    before = joblib.hash(model.predict_proba(X))
    with pytest.raises(ValueError, match="virginica"):
        model.partial_fit(X, y)
    assert joblib.hash(model.predict_proba(X)) == before
    with pytest.raises(ValueError, match="virginica"):
        SWSGPClassifier().partial_fit(X, y, classes=["setosa", "versicolor"])


def test_partial_fit_refuses_other_classes_in_a_later_call():
    X, y = iris()
    model = SWSGPClassifier(random_state=0).partial_fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X[:100], y[:100], classes=np.unique(y))


@pytest.mark.usefixtures("few_steps")
def test_fit_forgets_the_classes_of_partial_fit():
    X, y = iris()
    model = SWSGPClassifier(random_state=0)
    model.partial_fit(X[:100], y[:100], classes=np.unique(y))
    assert model.fit(X[:100], y[:100]).classes_.tolist() == ["setosa", "versicolor"]


def test_lower_bound_refuses_labels_that_were_not_in_fit():
    X, y = iris()
    model = small_model().fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="virginica"):
        model.lower_bound(X, y)


def test_warm_start_keeps_the_classes():
    X, y = iris()
    model = small_model(warm_start=True, max_iter=30).fit(X, y)
    loss = model.loss_curve_
    model.set_params(solver__max_iter=2).fit(X[:100], y[:100])
    assert len(model.classes_) == 3
    assert model.loss_curve_[0] < loss[0] - 0.5 * (loss[0] - loss[-1])
    with pytest.raises(ValueError, match="other"):
        model.fit(X, np.where(y == "setosa", "other", y))


# --- early stopping -------------------------------------------------------------------


def test_early_stopping_is_stratified(monkeypatch):
    X, y = iris()
    rows = np.r_[0:50, 50:100, 100:110]
    held = []
    hold_out = encode.hold_out

    def recorded(*arguments):
        parts = hold_out(*arguments)
        held.append(parts[1].y.ravel())
        return parts

    monkeypatch.setattr(encode, "hold_out", recorded)
    for seed in range(3):
        model = small_model(
            early_stopping=True, validation_fraction=0.2, max_iter=1, random_state=seed
        )
        model.fit(X[rows], y[rows])
        assert np.bincount(held[-1].astype(int)).tolist() == [10, 10, 2]
        assert len(model.validation_scores_) == 1


def test_a_class_of_a_single_row_survives_early_stopping():
    X, y = iris()
    rows = np.r_[0:50, 50:100, 149]
    for seed in range(6):
        model = small_model(
            early_stopping=True, validation_fraction=0.4, max_iter=1, random_state=seed
        )
        model.fit(X[rows], y[rows])
        assert len(model.classes_) == 3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_best_epoch_on_validation_data_is_restored(n_classes):
    X, y = iris()
    y = np.unique(y, return_inverse=True)[1] % n_classes
    settings = {"learning_rate": 2.0, "n_neighbors": "all"}  # lists stay
    model = small_model(max_iter=30, n_iter_no_change=30, **settings)
    model.fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])
    scores = model.validation_scores_
    assert np.argmax(scores) < 29, "choose a less steady learning rate"
    proba = model.predict_proba(X[1::2])[np.arange(75), y[1::2]]
    assert np.log(proba).mean() == pytest.approx(max(scores), rel=1e-9)


def test_unknown_labels_in_validation_data_raise():
    X, y = iris()
    with pytest.raises(ValueError, match="virginica"):
        small_model().fit(X[:100], y[:100], X_val=X, y_val=y)


# --- the shares of the classes --------------------------------------------------------


@pytest.mark.parametrize(
    "solver", [{}, ADAM | {"max_iter": 5}], ids=["natural", "adam"]
)
@pytest.mark.parametrize(
    ("shares", "likelihood"),
    [([0.9, 0.1], "auto"), ([0.9, 0.1], "logit"), ([0.5, 0.3, 0.2], "auto")],
)
def test_probabilities_far_from_data_are_the_shares(rng, shares, likelihood, solver):
    counts = (60 * np.array(shares)).astype(int)
    y = np.repeat(np.arange(len(shares)), counts)
    X = rng.normal(size=(60, 2)) + y[:, None]
    kernel = ConstantKernel(4.0, "fixed") * RBF(1.0, "fixed")
    settings = {"learn_kernel": False, "random_state": 0} | solver
    model = make(SWSGPClassifier, kernel, likelihood=likelihood, **settings)
    far = 1e3 * np.ones((1, 2))
    np.testing.assert_allclose(model.fit(X, y).predict_proba(far)[0], shares, atol=0.02)
    weight = 1.0 / np.array(shares)[y]
    equal = model.fit(X, y, sample_weight=weight).predict_proba(far)[0]
    np.testing.assert_allclose(equal, 1.0 / len(shares), atol=0.02)


def test_later_fits_keep_the_prior_means(rng):
    X = rng.normal(size=(60, 2))
    y = X[:, 0] > 1.0
    model = SWSGPClassifier(n_inducing=10, warm_start=True, random_state=0).fit(X, y)
    before = model.prior_mean_.copy()
    assert before < -0.5
    np.testing.assert_array_equal(model.fit(X, ~y).prior_mean_, before)


# --- the scale of variances -----------------------------------------------------------


@pytest.mark.parametrize("Q", [1, 3])
def test_probabilities_use_variance_scale(Q, rng):
    model, _ = unfitted(KERNELS["matern"], np.arange(max(Q, 2)), Q)
    X = rng.normal(size=(6, 2))
    mu, v = model._latent(X, True)
    plain = model.predict_proba(X)
    model.variance_scale_ = 0.2
    record = LIKELIHOODS["bernoulli" if Q == 1 else "softmax"]
    prior = model.kernel_.diag(X)[:, None]
    expected = record.probabilities(mu, exact_variance(v, prior, 0.2))
    np.testing.assert_allclose(model.predict_proba(X), expected)
    assert np.abs(model.predict_proba(X) - plain).max() > 0.01


def test_probabilities_are_sharp_after_few_rows():
    X, y = load_iris(return_X_y=True)
    train = np.random.RandomState(0).permutation(150)[:45]
    test = np.setdiff1d(np.arange(150), train)
    model = SWSGPClassifier(random_state=0).fit(X[train], y[train])
    assert log_loss(y[test], model.predict_proba(X[test])) < 0.3


@pytest.mark.usefixtures("few_steps")
def test_variance_scale_is_estimated_with_the_inducing_points_of_the_fit(
    monkeypatch, rng, tune
):
    tune(part_work=1e6)  # the bound of few rows needs no scale
    X = rng.normal(size=(200, 2))
    y = X[:, 0] > 0

    def scale(holdout, solver):
        points = len(solver.engine.model.Z)
        compared = isinstance(holdout, CandidateComparison)
        assert points == 20 if compared else points > 150
        return 0.7 if compared else 0.4

    monkeypatch.setattr(Holdout, "variance_scale", scale)
    for expected, params in (
        (0.4, {}),
        (0.7, {"n_inducing": 20}),
        (1.0, {"inducing_points": X[:50]}),
        (1.0, ADAM | {"learn_kernel": True, "max_iter": 1}),
    ):
        model = make(SWSGPClassifier, random_state=0, **params).fit(X, y)
        assert model.variance_scale_ == expected


def test_warm_start_keeps_variance_scale(rng):
    X = rng.normal(size=(100, 2))
    model = SWSGPClassifier(warm_start=True, random_state=0).fit(X, X[:, 0] > 0)
    model.variance_scale_ = 0.3
    before = model.predict_proba(X)
    np.testing.assert_allclose(
        model.fit(X, X[:, 0] > 0).predict_proba(X), before, atol=0.02
    )
    assert model.variance_scale_ == 0.3


# --- decisions and weights of classes -------------------------------------------------


def noisy_classes(n_classes, n=120):
    """Return rows and labels that overlap, of which the last class is rare."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    edges = [1.0] if n_classes == 2 else [-0.5, 1.0]
    labels = np.array(["few", "many", "none"])
    return X, labels[np.digitize(X[:, 0] + 0.7 * rng.normal(size=n), edges)]


DECISIONS = [("auto", 2), ("logit", 2), ("softmax", 2), ("auto", 3)]


@pytest.mark.parametrize(("likelihood", "n_classes"), DECISIONS)
def test_decisions_are_those_of_predict(likelihood, n_classes):
    X, y = noisy_classes(n_classes)
    model = SWSGPClassifier(likelihood=likelihood, random_state=0).fit(X[:60], y[:60])
    rows = 2.0 * X
    proba, logs = model.predict_proba(rows), model.predict_log_proba(rows)
    np.testing.assert_allclose(logs, np.log(proba), rtol=1e-7, atol=1e-12)
    decision = model.decision_function(rows)
    if n_classes == 2:
        assert decision.shape == (120,)
        np.testing.assert_array_equal(
            model.classes_[(decision > 0).astype(int)], model.predict(rows)
        )
        np.testing.assert_array_equal(np.argsort(decision), np.argsort(proba[:, 1]))
        np.testing.assert_allclose(expit(decision), proba[:, 1], atol=1e-9)
        return
    assert decision.shape == (120, n_classes)
    np.testing.assert_array_equal(
        model.classes_[decision.argmax(axis=1)], model.predict(rows)
    )


def test_decisions_of_few_neighbors():
    X, y = noisy_classes(2)
    model = SWSGPClassifier(random_state=0).fit(X, y)
    few = model.predict_proba(X, n_neighbors=3)
    assert np.abs(few - model.predict_proba(X)).max() > 1e-3
    logs = model.predict_log_proba(X, n_neighbors=3)
    np.testing.assert_allclose(np.exp(logs), few)
    odds = model.decision_function(X, n_neighbors=3)
    np.testing.assert_allclose(odds, logs[:, 1] - logs[:, 0])


WEIGHTS = {
    "dict": ({"few": 1.0, "many": 5.0, "none": 0.2}, [1.0, 5.0, 0.2]),
    "part of a dict": ({"many": 5.0}, [1.0, 5.0, 1.0]),
    "a class of no weight": ({"few": 0.0}, [0.0, 1.0, 1.0]),
    "balanced": ("balanced", None),
}


@pytest.mark.parametrize("class_weight", WEIGHTS)
def test_weights_of_classes_multiply_those_of_rows(class_weight, rng):
    X, y = noisy_classes(3)
    given, factors = WEIGHTS[class_weight]
    weight = rng.integers(0, 4, size=len(y)).astype(float)
    classes, codes = np.unique(y, return_inverse=True)
    if factors is None:
        sums = np.array([weight[y == label].sum() for label in classes])
        factors = sums.sum() / (3 * sums)
    expected = small_model().fit(X, y, weight * np.array(factors)[codes])
    model = small_model(class_weight=given).fit(X, y, weight)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    assert model.lower_bound(X, y, weight) == pytest.approx(
        expected.lower_bound(X, y, weight * np.array(factors)[codes])
    )
    plain = small_model().fit(X, y, weight)
    assert not np.array_equal(plain.predict_proba(X), model.predict_proba(X))


def test_balanced_weights_leave_out_rows_of_no_weight():
    X, y = noisy_classes(2)
    weight = np.ones(len(y))
    weight[::2] = 0.0
    options = {"class_weight": "balanced"}
    model, part = (small_model(**options) for _ in range(2))
    model.fit(X, y, weight), part.fit(X[1::2], y[1::2])
    np.testing.assert_array_equal(model.predict_proba(X), part.predict_proba(X))


def test_balanced_classes_have_equal_shares_far_from_data():
    X, y = noisy_classes(2)
    assert np.mean(y == "many") < 0.25
    model = SWSGPClassifier(class_weight="balanced", random_state=0).fit(X, y)
    far = model.predict_proba([[1e3, 1e3]])
    np.testing.assert_allclose(far, 0.5, atol=0.02)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        (
            {"more": 2.0},
            r"a weight for 'more': expected .*, such as 'few'; leave",
        ),
        ({"few": -1.0}, "gives 'few' -1.0: expected a finite number of at least 0"),
        ({"few": "2"}, "gives 'few' '2': expected a finite number"),
        ({"few": np.nan}, "gives 'few' nan: expected a finite number"),
        ("even", "'class_weight' parameter of SWSGPClassifier must be"),
        ([1.0, 2.0], "'class_weight' parameter of SWSGPClassifier must be"),
    ],
)
def test_weights_of_classes_that_are_refused(class_weight, message):
    X, y = noisy_classes(2)
    with pytest.raises(ValueError, match=message):
        small_model(class_weight=class_weight).fit(X, y)


def test_streams_cannot_balance_classes():
    X, y = noisy_classes(2)
    message = "partial_fit with class_weight='balanced': expected None or a dict"
    with pytest.raises(ValueError, match=message):
        SWSGPClassifier(class_weight="balanced").partial_fit(X, y)
    weight = np.where(y == "many", 3.0, 1.0)
    how = {"learn_kernel": False, "random_state": 0}
    model = SWSGPClassifier(class_weight={"many": 3.0}, **how).partial_fit(X, y)
    expected = SWSGPClassifier(**how).partial_fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    message = "class_weight has a weight for 'lots': expected labels of y, such as"
    for classes in (None, np.unique(y)):
        with pytest.raises(ValueError, match=message):
            SWSGPClassifier(class_weight={"lots": 0.0}).partial_fit(X, y, classes)
    few = y != "many"  # a chunk without a class that has a weight
    model.partial_fit(X[few], y[few])
    assert np.isfinite(model.lower_bound(X[few], y[few]))


def test_numbers_are_no_labels(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a fit has begun")

    monkeypatch.setattr(base, "encode", refuse)
    X, _ = noisy_classes(2)
    for y in (X[:, 0], X[:, 0].astype(np.float16), 1e6 * X[:, 0]):
        for class_weight in (None, "balanced"):
            model = SWSGPClassifier(class_weight=class_weight)
            with pytest.raises(ValueError, match="use SWSGPRegressor") as caught:
                model.fit(X, y)
            assert str(caught.value).startswith("Unknown label type: continuous")
            assert not [name for name in vars(model) if name.endswith("_")]
