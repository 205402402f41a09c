"""Which columns matter: slopes of the latent functions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.explain import gradient


@pytest.mark.matrix
@pytest.mark.parametrize("learn_map", [False, True])
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_importances_equal_differences_of_predictions(learn_map, covariance, rng):
    X = rng.normal(size=(120, 3)) * [1.0, 10.0, 0.1]
    y = np.sin(X[:, 0] + 0.1 * X[:, 1]) + 0.01 * rng.normal(size=120)
    model = SWSGPRegressor(
        learn_map=learn_map, covariance=covariance, inducing_points=X, random_state=0
    ).fit(X, y)
    squares = []
    for d in range(3):
        step = 1e-4 * model._feature_scale[d] * np.eye(3)[d]
        slope = (model.predict(X + step) - model.predict(X - step)) / 2e-4
        squares.append(slope**2)
    squares = np.stack(squares, axis=1)
    total = squares.mean(axis=0).sum()
    assert_allclose(model.feature_importances_.sum(), 1.0)
    assert_allclose(
        model.feature_importances_, squares.mean(axis=0) / total, rtol=1e-2, atol=1e-4
    )
    expected = squares.std(axis=0) / np.sqrt(120) / total
    assert_allclose(model.feature_importances_std_, expected, rtol=1e-2, atol=1e-4)


@pytest.mark.usefixtures("few_steps")
def test_classes_and_outputs(monkeypatch, rng):
    monkeypatch.setattr(gradient, "MEAN_ROWS", 60)
    X = rng.normal(size=(120, 4))
    labels = (X[:, 1] > 0) + 1 * (X[:, 1] > 1)
    for y in (labels > 0, labels):
        model = SWSGPClassifier(random_state=0).fit(X, y)
        assert model.feature_importances_.argmax() == 1
        assert model.feature_importances_[1] > 0.8
    Y = np.stack([X[:, 1], np.sin(X[:, 3])], axis=1)
    both = SWSGPRegressor(random_state=0).fit(X, Y)
    assert both.feature_importances_[[1, 3]].sum() > 0.95
    assert both.feature_importances_[[1, 3]].min() > 0.2


def test_importances_need_a_fit():
    with pytest.raises(NotFittedError):
        SWSGPRegressor().feature_importances_  # noqa: B018
    assert not hasattr(SWSGPClassifier(), "feature_importances_")


def test_a_constant_function_has_no_importances(rng):
    model = SWSGPRegressor(random_state=0).fit(rng.normal(size=(50, 2)), np.ones(50))
    assert np.isfinite(model.feature_importances_).all()


@pytest.mark.usefixtures("few_steps")
def test_a_column_that_varies_late_is_relevant(rng):
    X = np.column_stack([rng.normal(size=300), np.repeat([0.0, 1.0], 150)])
    y = 0.1 * X[:, 0] + np.sin(3 * X[:, 1] * X[:, 0])
    model = SWSGPRegressor(random_state=0, n_inducing=50).partial_fit(X[:100], y[:100])
    assert model._feature_scale[1] == 0.0
    model.partial_fit(X, y)
    assert model._feature_scale[1] > 0.0
    constant = SWSGPRegressor(random_state=0).fit(X * [1.0, 0.0], y)
    assert_allclose(constant.feature_importances_, [1.0, 0.0])
