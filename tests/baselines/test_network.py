"""A network's derivatives, and its steps."""

import numpy as np
import pytest
import reference
from helpers import assert_derivatives
from sklearn.neural_network import MLPRegressor

from skswsgp.baselines.network import Network, draw_weights


@pytest.mark.parametrize("sizes", [[3, 4], [3, 5, 4], [3, 5, 6, 4]])
def test_outputs_are_those_of_scikit_learn_and_slopes_are_derivatives(sizes, rng):
    coefs, intercepts = draw_weights(sizes, np.random.RandomState(0))
    intercepts = [rng.normal(size=size) for size in sizes[1:]]
    network = Network(coefs, intercepts)
    X, d_out = rng.normal(size=(9, 3)), rng.normal(size=(9, 4))
    layers = network.layers(X)
    if len(sizes) > 2:
        twin = MLPRegressor(hidden_layer_sizes=sizes[1:-1], max_iter=1)
        with pytest.warns(UserWarning, match="Maximum iterations"):
            twin.fit(X, d_out)
        twin.coefs_, twin.intercepts_ = coefs, intercepts
        np.testing.assert_allclose(layers[-1], twin.predict(X), rtol=1e-12)

    def objective(theta):
        parts = np.split(theta, np.cumsum([array.size for array in arrays])[:-1])
        for array, part in zip(network.arrays, parts, strict=True):
            array[:] = part.reshape(array.shape)
        return np.sum(d_out * network.layers(X)[-1])

    arrays = [array.copy() for array in network.arrays]
    slopes = network.slopes(layers, d_out)
    theta, found = (np.concatenate([a.ravel() for a in s]) for s in (arrays, slopes))
    assert_derivatives(found, objective, theta)


def test_weights_are_uniform_within_the_bounds_of_glorot():
    coefs, intercepts = draw_weights([100, 200, 50], np.random.RandomState(0))
    for coef, ends in zip(coefs, (300, 250), strict=True):
        bound = np.sqrt(6.0 / ends)
        assert np.abs(coef).max() == pytest.approx(bound, rel=1e-2)
        assert np.abs(coef).max() <= bound
        assert coef.std() == pytest.approx(bound / np.sqrt(3.0), rel=0.02)
    assert [len(row) for row in intercepts] == [200, 50]
    assert not np.concatenate(intercepts).any()


def test_steps_are_those_of_adam(rng):
    network = Network(*draw_weights([2, 3, 1], np.random.RandomState(0)))
    before = [array.copy() for array in network.arrays]
    gradients = [[rng.normal(size=a.shape) for a in before] for _ in range(4)]
    for slopes in gradients:
        network.step(slopes, 0.05)
    for k, (start, array) in enumerate(zip(before, network.arrays, strict=True)):
        downhill = [-slopes[k].ravel() for slopes in gradients]
        expected = reference.adam(start.ravel(), downhill, 0.05)
        np.testing.assert_allclose(array.ravel(), expected, rtol=1e-10)
