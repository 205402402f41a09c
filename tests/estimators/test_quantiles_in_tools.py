"""Quantiles through the tools of scikit-learn that stand around an estimator."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

from skswsgp import SWSGPRegressor

LEVELS = [0.05, 0.5, 0.95]


def model(**params):
    """Return an estimator that keeps its kernel, so that it fits in no time."""
    return SWSGPRegressor(learn_kernel=False, random_state=0, **params)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 6, size=(90, 2))
    return X, np.exp(np.sin(X[:, 0]) + 0.2 * rng.normal(size=90))


def in_thirds(quantiles, y):
    """Check that rows lie below quantiles about as often as these say."""
    assert quantiles.shape == (len(y), 3)
    assert (np.diff(quantiles) > 0.0).all()
    below = np.mean(y[:, None] < quantiles, axis=0)
    assert_allclose(below, LEVELS, atol=0.12)


def test_pipelines_pass_quantiles_on(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), model()).fit(X, y)
    alone = model().fit(StandardScaler().fit_transform(X), y)
    expected = alone.predict(StandardScaler().fit_transform(X), quantiles=LEVELS)
    assert_array_equal(pipeline.predict(X, quantiles=LEVELS), expected)
    in_thirds(expected, y)


def test_pipelines_route_quantiles_that_are_requested(data):
    X, y = data
    with sklearn.config_context(enable_metadata_routing=True):
        plain = make_pipeline(StandardScaler(), model()).fit(X, y)
        with pytest.raises(UnsetMetadataPassedError, match="quantiles"):
            plain.predict(X, quantiles=LEVELS)
        asked = model().set_predict_request(quantiles=True)
        pipeline = make_pipeline(StandardScaler(), asked).fit(X, y)
        in_thirds(pipeline.predict(X, quantiles=LEVELS), y)


def test_the_best_estimator_of_a_search_takes_quantiles(data):
    """`GridSearchCV.predict` takes X alone."""
    X, y = data
    search = GridSearchCV(model(), {"initial_noise": [0.01, 0.1]}, cv=2).fit(X, y)
    in_thirds(search.best_estimator_.predict(X, quantiles=LEVELS), y)
    with pytest.raises(TypeError, match="quantiles"):
        search.predict(X, quantiles=LEVELS)


def test_cross_validated_predictions_give_parameters_to_fit_only(data):
    """Should scikit-learn pass them to `predict` one day, the guide can say so."""
    X, y = data
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected .*'quantiles'"):
        cross_val_predict(model(), X, y, cv=3, params={"quantiles": LEVELS})


def test_transformed_targets_come_back_as_quantiles(data):
    X, y = data
    logs = TransformedTargetRegressor(model(), func=np.log, inverse_func=np.exp)
    quantiles = logs.fit(X, y).predict(X, quantiles=LEVELS)
    expected = model().fit(X, np.log(y)).predict(X, quantiles=LEVELS)
    assert_allclose(quantiles, np.exp(expected))
    in_thirds(quantiles, y)
    one = logs.predict(X, quantiles=0.5)
    assert_allclose(one, quantiles[:, 1])
    scaled = TransformedTargetRegressor(model(), transformer=StandardScaler())
    in_thirds(scaled.fit(X, y).predict(X, quantiles=LEVELS), y)


def test_transformers_that_count_columns_take_one_quantile_at_a_time(data):
    X, y = data
    powers = TransformedTargetRegressor(model(), transformer=PowerTransformer())
    powers.fit(X, y)
    with pytest.raises(ValueError, match="features"):
        powers.predict(X, quantiles=LEVELS)
    columns = [powers.predict(X, quantiles=level) for level in LEVELS]
    in_thirds(np.stack(columns, axis=1), y)
