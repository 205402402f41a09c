"""The choice of initial inducing points."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import cluster
from small_models import adam_settings, natural_settings

from skswsgp._rows.inducing import (
    distinct_rows,
    given_points,
    initial_inducing_points,
)
from skswsgp._solvers.auto import count_inducing, count_neighbors
from skswsgp._solvers.tuning import Tuning

pytestmark = pytest.mark.matrix
METHODS = ["kmeans", "random"]


def choose(
    X, n_inducing, method, *, seed=0, feature_scale=None, pairs=10**9, **options
):
    """Return inducing points for a seed and feature scales of one."""
    scale = np.ones(X.shape[1]) if feature_scale is None else feature_scale
    rng = np.random.RandomState(seed)
    tuning = Tuning(kmeans_pairs=pairs)
    return initial_inducing_points(X, n_inducing, method, rng, scale, tuning, **options)


def rows_of(X):
    """Return the rows of X as a set of tuples."""
    return {tuple(row) for row in X.tolist()}


@pytest.fixture
def X(rng, dtype):
    """Return random rows."""
    return rng.normal(size=(500, 3)).astype(dtype)


@pytest.mark.parametrize("method", METHODS)
def test_shape_and_seed(X, method):
    Z = choose(X, 20, method)
    assert Z.shape == (20, 3)
    assert Z.dtype == np.float64
    assert_array_equal(choose(X, 20, method), Z)
    assert not np.array_equal(choose(X, 20, method, seed=1), Z)


def test_random_inducing_points_are_distinct_rows(X):
    Z = choose(X, 200, "random")
    assert len(rows_of(Z)) == 200
    assert rows_of(Z) <= rows_of(X)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_kmeans_finds_clusters_in_the_units_of_X(rng, offset):
    # In raw units the second feature would hide the clusters of the first.
    scale = np.array([1e-3, 1e3])
    clusters = np.repeat(np.arange(5.0), 200)[:, None]
    X = np.hstack([100 * clusters, np.zeros((1000, 1))]) + rng.normal(size=(1000, 2))
    Z = choose(X * scale + offset, 5, "kmeans", feature_scale=scale)
    found = np.sort((Z[:, 0] - offset) / scale[0])
    assert_allclose(found, 100 * np.arange(5.0), atol=0.5)


def test_kmeans_scales_features(rng):
    X = np.hstack([rng.normal(size=(1000, 1)), 1e3 * rng.normal(size=(1000, 1))])
    spread = choose(X, 16, "kmeans", feature_scale=np.array([1.0, 1e3])).std(axis=0)
    hidden = choose(X, 16, "kmeans", feature_scale=np.ones(2)).std(axis=0)
    assert spread[0] > 0.5
    assert hidden[0] < 0.5


def test_kmeans_ignores_a_scale_of_zero(X):
    constant = np.hstack([X, np.full((len(X), 1), 7.0, dtype=X.dtype)])
    Z = choose(constant, 10, "kmeans", feature_scale=np.array([1, 1, 1, 0.0]))
    assert_allclose(Z[:, 3], 7.0)


def test_kmeans_returns_rows_when_asked_for_most_of_them(X):
    Z = choose(X, 300, "kmeans")
    assert len(Z) == 300
    assert rows_of(Z) <= rows_of(X)


@pytest.mark.parametrize("method", METHODS)
def test_more_points_than_rows_returns_all_rows_in_order(X, method):
    assert_array_equal(choose(X, 1000, method), X)


def test_cost_decides_on_kmeans_its_rows_and_its_start(monkeypatch, rng):
    runs, kmeans = [], cluster.MiniBatchKMeans

    def noted(*args, init, **options):
        run = kmeans(*args, init=init, **options)
        fit = run.fit
        run.fit = lambda X, **weights: runs.append((init, len(X))) or fit(X, **weights)
        return run

    monkeypatch.setattr(cluster, "MiniBatchKMeans", noted)
    X = rng.normal(size=(12_000, 2))
    plus_plus = int(10 * 3 * 1024 * 100 * (2 + np.log(100))) + 1
    for pairs in (10**9, plus_plus, plus_plus - 1, 900_000, 50_000):
        Z = choose(X, 100, "kmeans", pairs=pairs)
        assert not rows_of(Z) <= rows_of(X)
    starts, sizes = zip(*runs, strict=True)
    assert starts == ("k-means++", "k-means++", "random", "random", "random")
    assert sizes == (10_000, 10_000, 10_000, 9000, 500)
    Z = choose(X, 100, "kmeans", pairs=49_999)
    assert rows_of(Z) <= rows_of(X)


@pytest.mark.parametrize("n_inducing", [8, 9, 100])
def test_kmeans_returns_all_distinct_rows_when_there_are_few(rng, n_inducing):
    X = rng.integers(2, size=(500, 3)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = choose(X, n_inducing, "kmeans")
    assert rows_of(Z) == rows_of(X)
    assert len(Z) == 8


def test_kmeans_is_silent_with_almost_as_many_clusters_as_rows(rng):
    X = rng.integers(2, size=(500, 3)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = choose(X, 7, "kmeans")
    assert len(rows_of(Z)) == len(Z) <= 7


def test_random_removes_duplicates(rng):
    X = rng.integers(2, size=(500, 3)).astype(float)
    Z = choose(X, 100, "random")
    assert len(Z) == len(rows_of(Z)) == 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_inducing", [20, 400])
def test_other_rows_are_not_used(X, method, n_inducing):
    X[::2] += 1000
    rows = np.arange(1, len(X), 2)
    Z = choose(X, n_inducing, method, sample_weight=np.ones(250), rows=rows)
    assert len(Z) == min(n_inducing, 250)
    assert Z.max() < 100


def test_kmeans_respects_weights(rng):
    X = np.hstack([rng.normal(size=500), 100 + rng.normal(size=500)])[:, None]
    heavy = np.where(X[:, 0] < 50, 1.0, 9.0)
    assert_allclose(choose(X, 1, "kmeans", sample_weight=heavy), 90, atol=1.5)


@pytest.mark.parametrize("method", METHODS)
def test_a_read_only_memory_map_is_not_copied(tmp_path, rng, method):
    data = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=(30_000, 4))
    data[:] = rng.normal(size=data.shape)
    data.flush()
    X = np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=(30_000, 4))

    class Watched(np.memmap):
        def __getitem__(self, rows):
            assert len(rows) <= 10_000
            return super().__getitem__(rows)

        def __array_ufunc__(self, *args, **kwargs):
            raise AssertionError("arithmetic on all of X")

    Z = choose(X.view(Watched), 15, method)
    assert Z.shape == (15, 4)
    assert type(Z) is np.ndarray


def test_given_points_are_copied_without_duplicates():
    points = given_points([[3, 1], [0, 2], [3, 1], [0, 1]], 2, "auto")
    Z = choose(np.zeros((9, 2)), 4, points)
    assert_array_equal(Z, [[3, 1], [0, 2], [0, 1]])
    given = np.array([[1.0, 2.0]])
    choose(np.zeros((9, 2)), 1, given_points(given, 2, 1))[:] = 9
    assert_array_equal(given, [[1.0, 2.0]])


@pytest.mark.parametrize("shape", [(4, 3), (4,), (0, 2), (2, 2, 2)])
def test_given_points_of_another_shape_raise(shape):
    message = r"inducing_points has shape .*: expected .* n_features=2; pass"
    with pytest.raises(ValueError, match=message):
        given_points(np.zeros(shape), 2, "auto")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_given_points_that_are_not_finite_raise(value):
    with pytest.raises(ValueError, match="inducing_points has 1 entries"):
        given_points([[0.0, value]], 2, "auto")


@pytest.mark.parametrize("n_inducing", [1, 3, 5])
def test_given_points_of_another_number_raise(n_inducing):
    message = rf"n_inducing={n_inducing} with inducing_points of 4 rows: expected"
    with pytest.raises(ValueError, match=message):
        given_points(np.zeros((4, 2)), 2, n_inducing)  # duplicates count
    assert len(given_points(np.zeros((4, 2)), 2, 4)) == 4


@pytest.mark.parametrize(
    ("n_rows", "n_features", "M", "H"),
    [
        (150, 3, 150, 150),
        (1_000, 3, 1_000, 1_000),
        (1_001, 3, 1_001, 64),  # beside exact means
        (40_000, 3, 40_000, 64),
        (45_000, 3, 45_000, 110),
        (60_000, 784, 60_000, 100),
        (300_000, 784, 100_000, 58),
        (900_000, 16, 531_250, 40),
        (5_000_000, 2, 944_444, 22),
        (10**8, 2, 944_444, 16),
    ],
)
def test_auto_sizes_grow_with_the_table(n_rows, n_features, M, H):
    assert count_inducing(natural_settings(), n_rows, n_features) == M
    assert count_neighbors(natural_settings(), n_rows, M, n_features) == H
    assert count_inducing(adam_settings(), n_rows, n_features) == 256
    assert count_neighbors(adam_settings(), n_rows, 256, n_features) == 16


def test_distinct_rows_keep_their_order(rng):
    Z = rng.integers(-1, 2, size=(30, 2)).astype(float)
    rows, group = distinct_rows(Z)
    assert_array_equal(rows[group], Z)
    seen = []
    for row in Z.tolist():
        if row not in seen:
            seen.append(row)
    assert_array_equal(rows, seen)


@pytest.mark.parametrize("seed", [3, 10])
def test_centres_of_the_same_row_count_once(seed):
    """k-means of few rows may have two of them, a last digit apart."""
    X = np.random.default_rng(seed).normal(size=(40, 2))
    rng = np.random.RandomState(0)
    Z = initial_inducing_points(X, 12, "kmeans", rng, X.std(axis=0), Tuning())
    distances = np.linalg.norm(Z[:, None] - Z, axis=2) + 10.0 * np.eye(len(Z))
    assert 10 <= len(Z) <= 12
    assert distances.min() > 1e-6
