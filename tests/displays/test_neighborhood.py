"""The display of neighborhoods shows the inducing points that rows use."""

import numpy as np
import pytest
from helpers import labels_of
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPRegressor
from skswsgp.displays import NeighborhoodDisplay

FIXED = {"learn_kernel": False, "n_neighbors": 4, "random_state": 0}


def fitted(X, y, lengths, **how):
    """Return a model of given length-scales, whose inducing points are 30 rows."""
    how = FIXED | {"inducing_points": X[:30]} | how
    model = SWSGPRegressor(RBF(lengths), **how)
    return model.fit(X, y)


def test_rows_are_linked_to_their_nearest_points(pyplot, line):
    X, y = line
    display = NeighborhoodDisplay.from_estimator(fitted(X, y, [0.1, 3.0]), X[100:103])
    expected = np.argsort(cdist(X[100:103] / [0.1, 3.0], X[:30] / [0.1, 3.0]))[:, :4]
    np.testing.assert_array_equal(display.neighbors, expected)
    np.testing.assert_allclose(display.points_.get_xydata(), X[:30])
    np.testing.assert_allclose(display.rows_.get_offsets(), X[100:103])
    circled = X[:30][expected.ravel()]
    np.testing.assert_allclose(display.circles_.get_offsets(), circled)
    links = np.array(display.links_.get_segments())
    np.testing.assert_allclose(links[:, 0], np.repeat(X[100:103], 4, axis=0))
    np.testing.assert_allclose(links[:, 1], circled)
    each = display.links_.get_colors()
    assert len({tuple(color) for color in each}) == 3
    assert len({tuple(color) for color in each[:4]}) == 1
    names = ["30 inducing points", "the 4 that a row uses", "rows"]
    assert labels_of(display) == names
    more = NeighborhoodDisplay.from_estimator(
        fitted(X, y, [0.1, 3.0]), X[100:103], n_neighbors=7
    )
    assert more.neighbors.shape == (3, 7)


def test_a_plane_of_chosen_columns_in_a_pipeline(pyplot, rng):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rng.normal(size=(100, 3)), columns=["a", "b", "c"])
    scaler = StandardScaler().set_output(transform="pandas")
    model = SWSGPRegressor(RBF(), n_inducing=20, **FIXED)
    pipeline = make_pipeline(scaler, model).fit(X, X["a"])
    draw = NeighborhoodDisplay.from_estimator
    display = draw(pipeline, X[:2], columns=["c", 0])
    expected = pipeline[0].transform(X[:2])[["c", "a"]]
    np.testing.assert_allclose(display.rows, expected)
    np.testing.assert_allclose(display.points, model.inducing_points_[:, [2, 0]])
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("c", "a")
    for columns in (["c", "d"], [0, 3], ["a", 0], [0], [-1, 0], 1, [0, [1]]):
        with pytest.raises(ValueError, match=r"expected two different columns among"):
            draw(pipeline, X[:2], columns=columns)


def test_points_of_a_mapped_model_are_in_the_units_of_its_rows(pyplot, line):
    """With a map of its own, given as a fitted attribute."""
    X, y = line
    model, W = fitted(X, y, 1.0), np.array([[1.0, 0.5], [0.0, 0.2]])
    model.inducing_points_, model.linear_map_ = X[:30] @ W, W
    display = NeighborhoodDisplay.from_estimator(model, X[100:103])
    np.testing.assert_allclose(display.points, X[:30])
    expected = np.argsort(cdist(X[100:103] @ W, X[:30] @ W), axis=1)[:, :4]
    np.testing.assert_array_equal(display.neighbors, expected)
    model.linear_map_ = W[:, :1]
    with pytest.raises(ValueError, match="the model maps 2 columns to 1, so that"):
        NeighborhoodDisplay.from_estimator(model, X[:3])


def test_columns_on_another_scale_are_drawn_on_it(pyplot, line):
    X, y = line
    model = fitted(np.exp(X), y, 1.0, inducing_points="random", n_inducing=20,
                   x_transform="ranks")  # fmt: skip
    display = NeighborhoodDisplay.from_estimator(model, np.exp(X[:3]))
    expected = model.x_transform_.forward(np.exp(X[:3]))
    np.testing.assert_allclose(display.rows, expected)
    assert display.ax_.get_xlabel() == "x0 (ranks scale)"


def test_a_model_without_neighbors_is_refused(line):
    X, y = line
    match = "^BayesianRidge has no neighbors among inducing points: expected"
    with pytest.raises(TypeError, match=match):
        NeighborhoodDisplay.from_estimator(BayesianRidge().fit(X, y), X[:3])
