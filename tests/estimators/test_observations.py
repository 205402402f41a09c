"""Intervals, quantiles and densities of new observations."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from skswsgp import SWSGPRegressor
from skswsgp.metrics import pinball


@pytest.fixture(scope="module", params=[0, 2], ids=["one output", "two outputs"])
def fitted(request):
    """Return a model, and rows that it has not seen."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(200, 1))
    y = 50 + 10 * np.sin(X[:, 0]) + rng.normal(size=200)
    if request.param:
        y = np.stack([y, -2 * y], axis=1)
    model = SWSGPRegressor(learn_kernel=False, random_state=0).fit(X[:120], y[:120])
    return model, X[120:], y[120:]


def test_quantiles_are_those_of_a_gaussian(fitted):
    model, X, _ = fitted
    mean, std = model.predict(X, return_std=True)
    quantiles = model.predict(X, quantiles=[0.1, 0.5, 0.99])
    assert quantiles.shape == (len(X), 3, *mean.shape[1:])  # outputs last
    for k, q in enumerate([0.1, 0.5, 0.99]):
        assert_allclose(quantiles[:, k], norm.ppf(q, mean, std))
        assert_array_equal(model.predict(X, quantiles=q), quantiles[:, k])


def test_intervals_hold_what_they_promise(fitted):
    model, X, y = fitted
    lower, upper = model.predict_interval(X, coverage=0.8)
    assert_allclose(lower, model.predict(X, quantiles=0.1))
    assert_allclose(upper, model.predict(X, quantiles=0.9))
    wide = model.predict_interval(X)
    held = np.mean((wide[0] <= y) & (y <= wide[1]))
    assert 0.88 < held <= 1.0


def test_densities_are_those_of_a_gaussian(fitted):
    model, X, y = fitted
    density = model.log_predictive_density(X, y)
    assert_allclose(density, norm.logpdf(y, *model.predict(X, return_std=True)))


def test_the_number_of_neighbors_can_be_given(fitted):
    model, X, y = fitted
    few = {"n_neighbors": 5}
    mean, std = model.predict(X, return_std=True, **few)
    assert_allclose(model.predict(X, quantiles=0.5, **few), mean)
    assert_allclose(
        model.log_predictive_density(X, y, **few), norm.logpdf(y, mean, std)
    )
    assert_allclose(
        np.subtract(*model.predict_interval(X, **few)[::-1]), 3.919928 * std
    )


def test_intervals_refuse_what_is_no_probability(fitted):
    model, X, _ = fitted
    message = r"coverage=.*: expected a number above 0 and b"
    for coverage in (0, 1, 95, -0.5, [0.9, 0.95], "wide", None, np.nan):
        with pytest.raises(ValueError, match=message):
            model.predict_interval(X, coverage)


@pytest.mark.parametrize("name", ["alpha", "confidence_level"])
def test_intervals_by_other_names_name_the_coverage(fitted, name):
    model, X, _ = fitted
    with pytest.raises(TypeError, match=rf"{name}=0.1: expected coverage, the prob"):
        model.predict_interval(X, **{name: 0.1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_neighbours'"):
        model.predict_interval(X, n_neighbours=5)


def test_quantiles_refuse_what_is_no_probability(fitted):
    model, X, _ = fitted
    message = r"quantiles=.*: expected a number or a list of numbers above 0 and below"
    for levels in (0.0, 1.0, 95, [0.1, 2.0], [[0.5]], [], [0.5, np.nan], "median"):
        with pytest.raises(ValueError, match=message):
            model.predict(X, quantiles=levels)


@pytest.mark.parametrize("name", ["return_std", "return_cov"])
def test_quantiles_come_alone(fitted, name):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=f"quantiles came with {name}=True: expected"):
        model.predict(X, quantiles=[0.5], **{name: True})


@pytest.mark.parametrize("levels", [[0.1, 0.9], np.array([0.5])])
def test_quantiles_are_given_by_their_name(fitted, levels):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"return_std=.*; give levels as quantiles="):
        model.predict(X, levels)


def test_pinball_losses_take_quantiles_as_they_come(fitted):
    """The loss of a level is least for the quantile of that level, for each output."""
    model, X, y = fitted
    levels = [0.1, 0.5, 0.9]
    quantiles = model.predict(X, quantiles=levels)
    each = [pinball(y, quantiles[:, k], level) for k, level in enumerate(levels)]
    assert_allclose(pinball(y, quantiles, levels), np.mean(each))
    assert pinball(y, quantiles, levels) < pinball(y, quantiles[:, ::-1], levels)
    if y.ndim == 2:
        with pytest.raises(ValueError, match=r"expected \(80, 3, 2\), .*outputs last"):
            pinball(y, np.swapaxes(quantiles, 1, 2), levels)


def test_densities_need_a_value_for_each_prediction(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match=r"y has shape .*: expected"):
        model.log_predictive_density(X, y[:-1])
