"""Figures, and small data, for tests of the displays."""

import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB


@pytest.fixture
def pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    yield pyplot
    pyplot.close("all")


@pytest.fixture
def iris():
    X, y = load_iris(return_X_y=True)
    return GaussianNB().fit(X[::3], y[::3]), X, y


@pytest.fixture
def line(rng):
    X = rng.normal(size=(300, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=300)
