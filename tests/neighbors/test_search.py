"""Tests of the search for the nearest inducing points, against sorting all of them."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import reference
from helpers import ADAM, make
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Matern,
    WhiteKernel,
)

from skswsgp import SWSGPRegressor
from skswsgp._compiled.tiles import GROUP
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.products import TILE
from skswsgp._neighbors import search as neighbors
from skswsgp._neighbors.distance_scan import FIRST_SEGMENT, make_panels
from skswsgp._neighbors.kd_order import ROWS_PER_BLOCK, tree_order
from skswsgp._neighbors.lists import NeighborTracker
from skswsgp._neighbors.search import Metric, NeighborSearch, choose_metric
from skswsgp._rows.data import memory_budget

pytestmark = pytest.mark.matrix
ARD = np.array([0.5, 1.0, 4.0])
ONE_DISTANCE = {
    "leaf": Matern(ARD),
    "sum": 2.0 * RBF(ARD) + 0.5 * Matern(ARD, nu=1.5),
    "product": RBF(ARD) * Matern(ARD, nu=0.5),
    "power": Exponentiation(Matern(ARD), 2.0) + ConstantKernel(3.0) + WhiteKernel(),
}
OTHERS = {
    "two length-scales": Matern([0.2, 1.0, 5.0]) + 0.3 * Matern([5.0, 1.0, 0.2]),
    "dot product": DotProduct(),
    "white": RBF(0.3) + DotProduct(0.5) + WhiteKernel(10.0),
}


def compiled(kernel, Z):
    """Return the struct of a kernel object for points Z."""
    return compile_kernel(kernel, Z.shape[1], Z.dtype).struct


def search(Z, kernel=None, *, n_neighbors=7, **options):
    """Return a search among Z for a kernel object."""
    struct = compiled(RBF() if kernel is None else kernel, Z)
    return NeighborSearch(Z, struct, n_neighbors=n_neighbors, **options)


def sorted_lists(X, Z, n_neighbors, scale=1.0):
    """Return the nearest points by sorting all scaled distances in float64."""
    difference = (X[:, None].astype(float) - Z[None].astype(float)) / scale
    distance = (difference**2).sum(axis=2)
    return np.argsort(distance, axis=1, kind="stable")[:, :n_neighbors]


@pytest.fixture
def Z(rng, dtype):
    """Return inducing points in more than one tile."""
    return rng.normal(size=(TILE + 41, 3)).astype(dtype)


@pytest.fixture
def X(rng, dtype):
    """Return rows in more than one block."""
    return rng.normal(size=(2 * ROWS_PER_BLOCK + 5, 3)).astype(dtype)


@pytest.mark.parametrize("n_features", [1, 4, 5, 9])
@pytest.mark.parametrize("n_neighbors", [1, 2, 70])
def test_scan_equals_sorting(rng, dtype, n_features, n_neighbors):
    Z = rng.normal(size=(700, n_features)).astype(dtype)
    X = rng.normal(size=(70, n_features)).astype(dtype)
    lists = search(Z, n_neighbors=n_neighbors, search="scan").query(X)
    expected = sorted_lists(X, Z, n_neighbors)
    assert lists.dtype == np.int32
    if dtype == np.float64:
        assert_array_equal(lists, expected)
    else:  # points at nearly the same distance may be swapped
        assert np.mean(lists == expected) > 0.99


@pytest.mark.parametrize("n_features", [1, 3, 12])
@pytest.mark.parametrize("n_neighbors", [5, 300])
def test_scan_with_leaves_left_out_equals_sorting(rng, n_features, n_neighbors):
    # Leaves far from a row, near it, and around it; lists longer than a leaf; rows far
    # from all points.
    centres = 5 * rng.normal(size=(20, n_features))
    Z = centres[rng.integers(20, size=6000)] + rng.normal(size=(6000, n_features))
    X = centres[rng.integers(20, size=150)] + rng.normal(size=(150, n_features))
    X[::10] += 30 * rng.normal(size=(15, n_features))
    lists = search(Z, n_neighbors=n_neighbors, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, n_neighbors))


@pytest.mark.parametrize("n_features", [1, 2])
def test_panels_hold_the_points_and_then_zeros(rng, n_features):
    points = 5.0 + rng.uniform(size=(300, n_features))
    panels = make_panels(points)
    values = panels.values.transpose(0, 2, 1).reshape(-1, n_features)
    order = panels.point.ravel()[:300]
    assert_array_equal(values[:300], points[order].astype(np.float32))
    assert_array_equal(values[300:], 0.0)
    assert panels.lower.min() > 4.9


def test_scan_on_a_grid_equals_sorting(rng):
    # Boxes touch and every distance is tied.
    axis = np.arange(16.0)
    Z = rng.permutation(np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3))
    X = rng.integers(16, size=(200, 3)) + rng.choice([0.0, 0.5], size=(200, 3))
    lists = search(Z, n_neighbors=12, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 12))


@pytest.mark.parametrize("n_points", [0, 1, 8, 9, 1000])
@pytest.mark.parametrize("copies", [False, True])
def test_tree_order_is_a_permutation_into_small_leaves(rng, n_points, copies):
    points = rng.normal(size=(n_points, 3))
    if copies:
        points = np.round(points)
    order = tree_order(points, 8)
    assert_array_equal(np.sort(order), np.arange(n_points))
    if n_points == 1000 and not copies:
        leaves = points[order].reshape(-1, 8, 3)
        volume = np.prod(np.ptp(leaves, axis=1), axis=1)
        drawn = np.prod(np.ptp(points.reshape(-1, 8, 3), axis=1), axis=1)
        assert np.median(volume) < 0.02 * np.median(drawn)


@pytest.mark.parametrize("n_features", [784, 1100])
def test_scan_with_many_features_equals_sorting(rng, dtype, n_features):
    Z = rng.integers(256, size=(600, n_features)).astype(dtype)
    X = rng.integers(256, size=(70, n_features)).astype(dtype)
    lists = search(Z, RBF(300.0), n_neighbors=9, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 9))


@pytest.mark.parametrize("n_neighbors", [7, 70])
@pytest.mark.parametrize("spread", [1e-1, 1e-3, 1e-5])
def test_scan_is_exact_where_float32_cannot_tell_points_apart(rng, n_neighbors, spread):
    # Squared distances within a cluster are 1e-4 to 1e-12 of the norms, so there are
    # more candidates than room for them.
    centres = 10 * rng.normal(size=(3, 4))
    Z = centres[rng.integers(3, size=1300)] + spread * rng.normal(size=(1300, 4))
    X = centres[rng.integers(3, size=70)] + spread * rng.normal(size=(70, 4))
    assert 1300 / 3 > 2 * 70 + 2 * GROUP
    lists = search(Z, n_neighbors=n_neighbors, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, n_neighbors))


@pytest.mark.parametrize("scale", [1e-25, 1e-18, 1e12, 1e25])
def test_scan_is_exact_for_coordinates_of_any_scale(rng, scale):
    Z, X = scale * rng.normal(size=(600, 3)), scale * rng.normal(size=(70, 3))
    Z[300], X[60] = 1.0, 1.0
    lists = search(Z, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 7))


def test_scan_is_exact_for_rows_beyond_the_range_of_float32(rng):
    Z, X = 1e13 * rng.normal(size=(600, 3)), 1e13 * rng.normal(size=(70, 3))
    X[5:9] *= 1e8
    lists = search(Z, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 7))


@pytest.mark.parametrize("kernel", [RBF(ARD), DotProduct()], ids=["distance", "value"])
def test_predecessors_equal_the_reference(rng, dtype, kernel):
    Z = rng.normal(size=(2 * FIRST_SEGMENT + 41, 3)).astype(dtype)
    lists = search(Z, kernel).predecessors()
    edges = [n + step for n in (256, 512, 1024, 2048) for step in (-1, 0, 1)]
    for i in [*range(7, 80), *edges, *range(300, len(Z), 97), len(Z) - 1]:
        expected = reference.neighbor_table(kernel, Z[i : i + 1], Z[:i], 7)[0]
        assert sorted(lists[i]) == sorted(expected)


def test_predecessors_in_tight_clusters_equal_sorting(rng):
    Z = np.repeat(rng.normal(size=(9, 3)), 100, axis=0)
    Z += 1e-5 * rng.normal(size=Z.shape)
    lists = search(Z).predecessors()
    for i in range(7, len(Z)):
        assert_array_equal(lists[i], sorted_lists(Z[i : i + 1], Z[:i], 7)[0])


@pytest.mark.parametrize("kernel", ONE_DISTANCE.values(), ids=ONE_DISTANCE)
def test_scan_divides_by_the_length_scales(rng, kernel):
    Z, X = rng.normal(size=(600, 3)), rng.normal(size=(50, 3))
    lists = search(Z, kernel, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 7, scale=ARD))


@pytest.mark.parametrize("offset", [0, 2**27])
def test_ties_go_to_the_lower_index_at_any_offset(rng, dtype, offset):
    # Whole multiples of 8 are exact in float32 around 1e8; the grid is full of ties
    # and of duplicates.
    Z = (8 * rng.integers(-6, 6, size=(700, 2)) + offset).astype(dtype)
    X = (8 * rng.integers(-6, 6, size=(70, 2)) + offset).astype(dtype)
    lists = search(Z, search="scan").query(X)
    assert_array_equal(lists, sorted_lists(X, Z, 7))


def test_scaling_far_from_the_origin_keeps_digits(rng, dtype):
    Z = (8 * rng.integers(-50, 50, size=(700, 2)) + 2**27).astype(dtype)
    X = (8 * rng.integers(-50, 50, size=(70, 2)) + 2**27).astype(dtype)
    lists = search(Z, RBF(3.0), search="scan").query(X)

    def distances(lists):
        return np.linalg.norm(X[:, None].astype(float) - Z[lists], axis=2)

    np.testing.assert_allclose(
        distances(lists), distances(sorted_lists(X, Z, 7)), rtol=1e-4
    )


def test_infinite_distances_give_distinct_points(dtype):
    far = np.sqrt(np.finfo(dtype).max) * 1e10
    Z = np.array([[far], [2.0], [-far], [3.0], [1.0]], dtype=dtype)
    with np.errstate(over="ignore"):
        lists = search(Z, n_neighbors=4, search="scan").query(Z)
    assert all(len(set(row)) == 4 for row in lists.tolist())


@pytest.mark.parametrize("kernel", OTHERS.values(), ids=OTHERS)
def test_kernel_metric_finds_the_largest_kernel_values(rng, kernel):
    Z, X = rng.normal(size=(530, 3)), rng.normal(size=(7, 3))
    found = search(Z, kernel)
    assert found.kind == "scan"
    assert found.metric == Metric("kernel", None)
    assert_array_equal(found.query(X), reference.neighbor_table(kernel, X, Z, 7))


@pytest.mark.full
def test_kernel_metric_in_float32_finds_the_same_points(rng):
    kernel = OTHERS["two length-scales"]
    Z, X = rng.normal(size=(2, 530, 3)).astype(np.float32)
    assert_array_equal(
        np.sort(search(Z, kernel).query(X[:7])),
        np.sort(reference.neighbor_table(kernel, X[:7], Z, 7)),
    )


def test_kernel_metric_keeps_the_parameters_it_was_built_with(Z, X):
    struct = compiled(OTHERS["two length-scales"], Z)
    found = NeighborSearch(Z, struct, n_neighbors=7)
    before = found.query(X)
    struct.inv_scale[:] = 0.01
    assert_array_equal(found.query(X), before)


@pytest.mark.parametrize("kernel", ONE_DISTANCE.values(), ids=ONE_DISTANCE)
def test_decreasing_kernel_of_one_distance_is_a_scaled_metric(Z, kernel):
    name, inv_scale = choose_metric(compiled(kernel, Z))
    assert name == "scaled"
    assert inv_scale.dtype == np.float64
    np.testing.assert_allclose(inv_scale, 1 / ARD, rtol=1e-6)


def test_graph_without_a_scaled_distance_is_refused(Z):
    with pytest.raises(ValueError, match=r"neighbor_search='approximate' .* expected"):
        search(Z, DotProduct(), search="approximate")


def test_a_search_of_all_points_is_a_scan():
    metric = Metric("scaled", np.ones(2))
    kinds = [neighbors._choose_search("approximate", metric, 99, H) for H in (98, 99)]
    assert kinds == ["graph", "scan"]
    assert neighbors._choose_search("exact", metric, 99, 16) == "scan"


@pytest.mark.parametrize(
    "options",
    [
        {"search": "scan"},
        {"kernel": OTHERS["two length-scales"]},
    ],
    ids=str,
)
def test_list_depends_on_its_row_alone(Z, X, options):
    batch = search(Z, **options).query(X)
    two = search(Z, n_threads=2, **options)
    assert_array_equal(two.query(X), batch)
    for i in (0, 40, len(X) - 1):
        assert_array_equal(two.query(X[i : i + 1]), batch[i : i + 1])


@pytest.mark.parametrize("spacing", [0.1, 1 / 3, 1.0])
def test_a_table_and_a_scan_agree_on_grids(spacing, rng):
    """Distances on a grid are equal but for rounding, which depends on the formula."""
    axis = spacing * np.arange(8.0)
    Z = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    X = np.r_[Z[:60], Z[60:100] + 0.5 * spacing, rng.uniform(0.0, axis[-1], (40, 3))]
    by_table = search(Z, search="exact").query(X)
    assert_array_equal(search(Z, search="scan").query(X), by_table)


def test_rows_need_not_be_contiguous_nor_writable(Z, X, monkeypatch):
    monkeypatch.setattr(neighbors, "NUMBERS_AT_ONCE", 16)
    found = search(Z, search="scan")
    other = np.asfortranarray(X)
    other.flags.writeable = False
    assert_array_equal(found.query(other), sorted_lists(X, Z, 7))
    assert found.query(X[:0]).shape == (0, 7)


@pytest.mark.parametrize("kind", ["exact", "scan", "approximate"])
def test_lists_of_all_points_are_in_order_of_index(Z, X, kind):
    found = search(Z, n_neighbors=len(Z), search=kind)
    assert_array_equal(found.query(X), np.tile(np.arange(len(Z)), (len(X), 1)))


class Graph:
    """A graph as that of PyNNDescent, which finds all neighbours, in no order."""

    def __init__(self, points, n_neighbors, random_state):
        assert points.dtype == np.float32
        self.points = points

    def prepare(self):
        """Do nothing: there is nothing to compile."""

    def query(self, points, k, epsilon):
        distance = cdist(points, self.points)
        index = np.argpartition(distance, k, axis=1)[:, :k]
        return index, np.take_along_axis(distance, index, axis=1)


class Broken(Graph):
    """A graph of which rows have a repeated or missing neighbour."""

    def query(self, points, k, epsilon):
        index, distance = super().query(points, k, epsilon)
        index[:1, 1] = index[:1, 0]
        index[1:2, 3] = -1
        distance[2:3, 5] = np.inf
        return index, distance


@pytest.fixture(params=[Graph, Broken])
def graph(request, monkeypatch):
    """Take the place of PyNNDescent, which compiles for up to two minutes."""
    module = SimpleNamespace(NNDescent=request.param)
    monkeypatch.setitem(sys.modules, "pynndescent", module)


@pytest.mark.usefixtures("graph")
def test_lists_of_a_graph_are_sorted_and_completed(rng):
    Z, X = rng.normal(size=(100, 6)), rng.normal(size=(30, 6))
    found = search(Z, search="approximate", n_neighbors=12)
    assert found.kind == "graph"
    assert_array_equal(found.query(X), sorted_lists(X, Z, 12))


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize("solver", [{}, ADAM], ids=["natural", "adam"])
def test_estimators_search_a_graph(solver, rng):
    X = rng.normal(size=(150, 12))
    y = np.sin(X[:, 0]) + X[:, 1]
    kernel = 1.0 * RBF(4.0, "fixed")
    sizes = {"n_neighbors": 8, "n_inducing": 100, "max_iter": 2}
    settings = {"learn_kernel": False, "random_state": 0} | solver | sizes
    model = make(SWSGPRegressor, kernel, **settings)
    exact = clone(model).fit(X, y)
    model.set_params(neighbor_search="approximate").fit(X, y)
    assert_allclose(model.predict(X), exact.predict(X), rtol=1e-6)


@pytest.mark.full  # PyNNDescent compiles for up to two minutes in each process
def test_pynndescent(rng):
    centres = 3 * rng.normal(size=(10, 6))
    Z = centres[rng.integers(10, size=1000)] + rng.normal(size=(1000, 6)) + 1e6
    X = centres[rng.integers(10, size=300)] + rng.normal(size=(300, 6)) + 1e6
    found = search(Z, search="approximate", n_neighbors=12)
    lists = found.query(X)
    exact = sorted_lists(X, Z, 12)
    hits = sum(
        len(set(a) & set(b))
        for a, b in zip(lists.tolist(), exact.tolist(), strict=True)
    )
    assert hits / exact.size > 0.9
    assert (np.sort(lists) == np.sort(exact)).all(axis=1).mean() > 0.8
    whole = (np.sort(lists) == np.sort(exact)).all(axis=1)
    assert_array_equal(lists[whole], exact[whole])  # nearest first


@pytest.mark.full  # the same, so that one process runs both solvers
def test_estimator_with_pynndescent(rng):
    X = rng.normal(size=(600, 12))
    y = np.sin(X[:, 0]) + X[:, 1]
    kernel = 1.0 * RBF(4.0, "fixed")
    sizes = {"n_neighbors": 8, "n_inducing": 500, "max_iter": 2}
    for solver in ({}, ADAM):
        settings = {"learn_kernel": False, "random_state": 0} | solver | sizes
        model = make(SWSGPRegressor, kernel, **settings)
        exact = clone(model).fit(X, y)
        model.set_params(neighbor_search="approximate").fit(X, y)
        found, expected = model.predict(X), exact.predict(X)
        assert 0 < np.abs(found - expected).mean() < 0.1 * y.std()


class CountingSearch:
    """A tracked search that records the rows it is asked for.

    The list of a row is ten times its only coordinate, twice.
    """

    def __init__(self):
        self.engine = SimpleNamespace(n_neighbors=2, all_inducing=None)
        self.version, self.asked = 0, []

    def refresh(self, n_rows):
        pass

    def query(self, X):
        self.asked += X[:, 0].astype(int).tolist()
        return np.repeat(10 * X.astype(np.int32), 2, axis=1)


def check_lookup(tracker, rows):
    """Look up rows whose only coordinate is their index, and check the lists."""
    rows = np.array(rows)
    found = tracker.lookup(rows, rows[:, None].astype(float))
    assert found.dtype == np.int32
    assert_array_equal(found, np.repeat(10 * rows[:, None], 2, axis=1))


def test_lists_are_stored_until_the_search_is_built_anew():
    counting = CountingSearch()
    tracker = NeighborTracker(counting, 9, memory_budget())
    check_lookup(tracker, [3, 1])
    check_lookup(tracker, [1, 8, 3])
    assert counting.asked == [3, 1, 8]
    counting.version = 1
    check_lookup(tracker, [1, 8])
    check_lookup(tracker, [8, 1])
    assert counting.asked == [3, 1, 8, 1, 8]


def test_sets_of_rows_share_a_search_and_store_their_own_lists():
    counting = CountingSearch()
    for n_rows in (9, 4):
        tracker = NeighborTracker(counting, n_rows, memory_budget())
        check_lookup(tracker, [2])
        check_lookup(tracker, [2])
    assert counting.asked == [2, 2]


@pytest.mark.parametrize(("budget", "asked"), [(72, 1), (71, 2), (0, 2)])
def test_lists_beyond_the_memory_budget_are_not_stored(budget, asked):
    counting = CountingSearch()
    tracker = NeighborTracker(counting, 9, budget)
    check_lookup(tracker, [5])
    check_lookup(tracker, [5])
    assert len(counting.asked) == asked


def test_rows_stay_stale_until_they_are_marked():
    tracker, rows = NeighborTracker(CountingSearch(), 9, 0), np.array([3, 5])
    assert tracker.stale(rows).all()
    tracker.mark_current(rows[:1])
    assert_array_equal(tracker.stale(rows), [False, True])


def test_memory_budget_is_the_working_memory_of_scikit_learn():
    from sklearn import config_context

    with config_context(working_memory=3):
        assert memory_budget() == 3 * 2**20
