"""The warning of predictions where the model knows next to nothing."""

import warnings

import numpy as np
import pytest
from helpers import make
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_val_predict, cross_val_score

import skswsgp
from skswsgp import ExtrapolationWarning, SWSGPClassifier, SWSGPRegressor
from skswsgp._posterior import extrapolation
from skswsgp.metrics import get_scorer

FAR = np.column_stack([np.linspace(40, 60, 30), np.zeros(30)])
SUM = RBF([0.3, 0.9]) + RBF([0.9, 0.3])  # of two distances, which no graph finds
MODELS = [
    {},
    {"n_inducing": 60},
    {"n_neighbors": 12},
    {"n_inducing": 60, "n_neighbors": 60},
    {
        "n_inducing": 60,
        "n_neighbors": 60,
        "neighbor_search": "approximate",
        "kernel": SUM,
    },
    {"n_inducing": 60, "n_neighbors": 8, "solver": "adam", "max_iter": 20},
    pytest.param({"dtype": "float32"}, marks=pytest.mark.slow),
]


def make_rows(n=300, D=2, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(n, D))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


def fit(estimator, n=300, **params):
    X, y = make_rows(n)
    y = np.digitize(y, [0.5, 1.0]) if estimator is SWSGPClassifier else y
    return make(estimator, random_state=0, **params).fit(X, y)


@pytest.fixture(scope="module")
def regressor():
    return fit(SWSGPRegressor)


def caught(function, *arguments, **options):
    """Return the warnings of extrapolation of a call; others are errors."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ExtrapolationWarning)
        function(*arguments, **options)
    return found


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("params", MODELS, ids=str)
def test_models_warn_far_from_the_data_only(params):
    model = fit(SWSGPRegressor, **params)
    assert len(caught(model.predict, FAR, return_std=True)) == 1
    assert not caught(model.predict, make_rows(seed=1)[0], return_std=True)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("params", [{}, {"n_inducing": 40, "n_neighbors": 10}], ids=str)
def test_classifiers_warn_far_from_the_data_only(params):
    model = fit(SWSGPClassifier, n=120, **params)
    assert len(caught(model.predict_proba, FAR)) == 1
    assert not caught(model.predict_proba, make_rows(seed=1)[0])


def test_the_message_says_what_to_do_at_the_line_of_the_user(regressor):
    rows = np.concatenate([FAR[:16], make_rows(14, seed=1)[0]])
    (found,) = caught(regressor.predict, rows, return_std=True)
    assert issubclass(found.category, UserWarning)
    message = str(found.message)
    assert message.startswith("16 of 30 rows of X lie where the model knows next to ")
    assert "more than 95% of the prior variance: expected rows like those" in message
    assert "check columns, their units and levels, or filter" in message
    assert found.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", skswsgp.ExtrapolationWarning)
        regressor.predict(FAR, return_std=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda model, X: model.predict(X, return_std=True),
        lambda model, X: model.predict(X, return_cov=True),
        lambda model, X: model.predict_interval(X),
        lambda model, X: model.predict(X, quantiles=[0.1, 0.9], n_neighbors=5),
        lambda model, X: model.log_predictive_density(X, np.zeros(len(X))),
        lambda model, X: get_scorer("neg_crps")(model, X, np.zeros(len(X))),
        lambda model, X: model.latent_mean_and_variance(X),
        lambda model, X: model.sample_y(X, 2),
    ],
    ids="std cov interval quantiles density score latent sample".split(),
)
def test_each_prediction_with_variances_warns_once(call, regressor):
    assert len(caught(call, regressor, FAR)) == 1


def test_means_alone_do_not_warn(regressor):
    assert not caught(regressor.predict, FAR)
    assert not caught(regressor.predict_gradient, FAR)


def test_most_of_ten_rows_must_be_far(regressor):
    near = make_rows(30, seed=1)[0]

    def warned(n_far, n_near):
        X = np.concatenate([FAR[:n_far], near[:n_near]])
        return bool(caught(regressor.predict, X, return_std=True))

    assert not warned(9, 0)
    assert warned(10, 0)
    assert not warned(10, 10)
    assert warned(11, 10)


@pytest.mark.parametrize(("share", "warns"), [(0.45, True), (0.55, False)])
def test_rows_are_unknown_more_often_than_points(share, warns, regressor, monkeypatch):
    monkeypatch.setattr(extrapolation, "share_of_unknown_points", lambda _: share)
    assert bool(caught(regressor.predict, FAR, return_std=True)) == warns


def test_every_output_must_be_unknown():
    X, y = make_rows()
    both = SWSGPRegressor(random_state=0).fit(X, np.stack([y, -y], axis=1))
    assert len(caught(both.predict, FAR, return_std=True)) == 1
    posterior, prior = both._posterior(), both.kernel_.diag(X[:10])[:, None]
    one_known = prior * [0.99, 0.5]
    assert not extrapolation.are_unknown(posterior, X[:10], one_known).any()
    assert extrapolation.are_unknown(posterior, X[:10], one_known[:, :1]).all()


@pytest.mark.usefixtures("few_steps")
@pytest.mark.matrix
@pytest.mark.parametrize("predictive", ["auto", "gaussian"])
@pytest.mark.parametrize("seed", [0, 1])
def test_models_that_learned_nothing_stay_quiet(seed, predictive):
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(size=(200, 2)), rng.normal(size=200)
    model = SWSGPRegressor(random_state=0, predictive=predictive).fit(X, y)
    assert not caught(model.predict, make_rows(seed=1)[0], return_std=True)
    labels = SWSGPClassifier(random_state=0).fit(X, y > 0)
    assert not caught(labels.predict_proba, make_rows(seed=1)[0])


@pytest.mark.parametrize(
    ("variance", "length", "noise"),
    [(1e-6, 1.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1e-4, 1e-3)],
    ids=["tiny signal", "none", "no two rows alike"],
)
def test_kernels_of_which_rows_say_nothing_stay_quiet(variance, length, noise):
    kernel = ConstantKernel(variance, "fixed") * RBF(length, "fixed")
    how = {"learn_kernel": False, "initial_noise": noise, "predictive": "gaussian"}
    model = make(SWSGPRegressor, kernel, random_state=0, **how).fit(*make_rows())
    assert not caught(model.predict, make_rows(seed=1)[0], return_std=True)
    assert not caught(model.predict, FAR, return_std=True)


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_few_points_do_no_harm(n):
    X, y = make_rows(n)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert not caught(model.predict, X[np.arange(20) % n], return_std=True)
    if n < 3:  # no point has others of which one is left
        assert not caught(model.predict, FAR, return_std=True)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("D", [2, 20])
def test_cross_validation_and_fit_stay_quiet(D):
    X, y = make_rows(100, D)
    scoring = get_scorer("neg_log_density")
    model = SWSGPRegressor(random_state=0)
    assert not caught(cross_val_score, model, X, y, cv=3, scoring=scoring)
    labels = SWSGPClassifier(random_state=0)
    how = {"cv": 3, "method": "predict_proba"}
    assert not caught(cross_val_predict, labels, X, y > y.mean(), **how)
