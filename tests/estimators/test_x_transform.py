"""Columns on another scale: which is chosen, and that all predictions know it."""

import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._rows.column_scale import SCALES

KERNEL = ConstantKernel(1.0) * RBF([0.3, 0.3])
FIXED = {"kernel": KERNEL, "learn_kernel": False, "n_inducing": 40}
FIXED |= {"n_neighbors": 8, "random_state": 0}


def make_table(n):
    """Return rows of columns that span eight powers of e, and a function of logs."""
    rng = np.random.default_rng(0)
    logs = rng.uniform(-4, 4, (n, 2))
    y = np.sin(logs[:, 0]) + 0.3 * logs[:, 1] + 0.1 * rng.normal(size=n)
    return np.exp(logs), y


@pytest.fixture
def table():
    return make_table(240)


def error(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@pytest.mark.full
def test_columns_that_span_orders_of_magnitude_change_little():
    X, y = make_table(800)
    errors = {}
    for name, Z in ("logs", np.log(X)), ("raw", X), ("squares", X**2):
        model = SWSGPRegressor(random_state=0).fit(Z[:400], y[:400])
        errors[name] = error(model, Z[400:], y[400:])
        assert (model.x_transform_ is None) == (name == "logs")
    as_it_is = SWSGPRegressor(x_transform=None, random_state=0).fit(X[:400], y[:400])
    assert error(as_it_is, X[400:], y[400:]) > 1.5 * errors["logs"]
    assert errors["raw"] < 1.05 * errors["logs"]
    assert errors["squares"] == pytest.approx(errors["raw"], rel=1e-3)


def test_classes_choose_too(table):
    X, y = table
    labels = y > 0.0
    model = SWSGPClassifier(random_state=0).fit(X[:160], labels[:160])
    assert model.x_transform_.name in SCALES
    as_it_is = SWSGPClassifier(x_transform=None, random_state=0)
    as_it_is.fit(X[:160], labels[:160])
    scores = [each.score(X[160:], labels[160:]) for each in (model, as_it_is)]
    assert scores[0] > scores[1]


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_a_factor_of_all_weights_does_not_matter(table, factor):
    X, y = table
    model = SWSGPRegressor(n_inducing=30, n_neighbors=6, random_state=0)
    model.fit(X, y, np.full(len(y), factor))
    assert model.x_transform_.name == "ranks"


def test_known_noise_counts(table, rng):
    X, y = table
    noise = np.where(np.arange(len(y)) % 2, 0.05, 5.0) ** 2
    y = y + np.sqrt(noise) * rng.normal(size=len(y))
    model = SWSGPRegressor(random_state=0).fit(X, y, noise_variance=noise)
    assert model.x_transform_ is not None
    unknown = SWSGPRegressor(random_state=0).fit(X, y)
    assert unknown.x_transform_ is None


def test_a_choice_that_costs_too_much_is_not_made(table, tune):
    tune(evidence_work=0)
    assert SWSGPRegressor().fit(*table).x_transform_ is None


@pytest.mark.parametrize("change", [{"kernel": KERNEL}, {"learn_kernel": False}])
def test_a_given_or_fixed_kernel_keeps_the_columns(table, change, few_steps):
    X, y = table
    model = SWSGPRegressor(n_inducing=20, n_neighbors=5, **change).fit(X, y)
    assert model.x_transform_ is None


@pytest.mark.matrix
@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("solver", ["natural", "adam"])
def test_a_fit_is_that_of_the_columns_on_their_scale(table, name, solver):
    X, y = table
    how = FIXED | {"solver": solver, "max_iter": 2}
    model = make(SWSGPRegressor, x_transform=name, **how).fit(X, y)
    Z = model.x_transform_.forward(X)
    plain = make(SWSGPRegressor, x_transform=None, **how).fit(Z, y)
    X, Z = X[:20], Z[:20]
    assert_array_equal(model.inducing_points_, plain.inducing_points_)
    for method in "predict_interval", "latent_mean_and_variance", "sample_f":
        ours, theirs = getattr(model, method)(X), getattr(plain, method)(Z)
        assert_array_equal(ours, theirs)
    ours, theirs = model.predict(X, return_cov=True), plain.predict(Z, return_cov=True)
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one, other)
    assert model.lower_bound(X, y[:20]) == plain.lower_bound(Z, y[:20])
    assert_array_equal(model.feature_importances_, plain.feature_importances_)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("name", SCALES)
def test_slopes_are_those_by_the_columns_of_the_user(table, name):
    X, y = table
    model = make(SWSGPRegressor, x_transform=name, **FIXED).fit(X, y)
    X = X[:15] * 1.001  # between the knots of ranks
    slopes, deviations = model.predict_gradient(X, return_std=True)
    for d in range(2):
        h = np.zeros(X.shape)
        h[:, d] = 1e-6 * X[:, d]
        change = model.predict(X + h) - model.predict(X - h)
        assert_allclose(slopes[:, d], change / (2 * h[:, d]), rtol=1e-3, atol=1e-5)
    assert_array_equal(slopes, model.predict_gradient(X))
    Z = model.x_transform_.forward(X)
    plain = make(SWSGPRegressor, x_transform=None, **FIXED)
    plain.fit(model.x_transform_.forward(table[0]), y)
    expected = plain.predict_gradient(Z, return_std=True)[1]
    assert_allclose(deviations, expected * model.x_transform_.slope(X), rtol=1e-9)


def test_points_of_the_user_are_in_the_units_of_x(table):
    X, y = table
    how = FIXED | {"n_inducing": "auto", "inducing_points": X[:30]}
    model = make(SWSGPRegressor, x_transform="ranks", **how).fit(X, y)
    expected = model.x_transform_.forward(X[:30])
    assert_allclose(np.sort(model.inducing_points_, axis=0), np.sort(expected, axis=0))


def test_a_stream_keeps_the_scale_of_its_first_chunk(table, few_steps):
    X, y = table
    model = SWSGPRegressor(x_transform="ranks", n_inducing=10, n_neighbors=4)
    model.partial_fit(X[:100], y[:100])
    first = model.x_transform_
    model.partial_fit(X[100:150], y[100:150])
    assert model.x_transform_ is first
    assert np.isfinite(model.predict(X)).all()


def test_a_fit_that_goes_on_keeps_its_scale(table, few_steps):
    X, y = table
    model = make(SWSGPRegressor, x_transform="ranks", warm_start=True, **FIXED)
    first = model.fit(X, y).x_transform_
    assert model.fit(X, y).x_transform_ is first
    message = "x_transform=None for a model that was fitted with 'ranks': expected the"
    with pytest.raises(ValueError, match=message):
        model.set_params(x_transform=None).fit(X, y)
    assert model.x_transform_ is first


def test_noise_that_varies_is_learned_on_scaled_columns(table, few_steps):
    X, y = table
    model = SWSGPRegressor(likelihood="heteroscedastic", x_transform="ranks")
    model.fit(X, y)
    assert model.noise_model_.x_transform_.name == "ranks"
    assert np.isfinite(model.noise_std(X)).all()
    assert error(model, X, y) < 0.5 * y.std()
