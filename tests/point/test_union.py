"""The active points of a minibatch, and the bound of rows that share them."""

import numpy as np
import pytest
import reference
from helpers import (
    assert_close,
    assert_derivatives,
    dense_gradients,
    first_block,
    make_problem,
)
from numpy.testing import assert_allclose, assert_array_equal
from test_bound import (
    COVERING,
    KERNELS,
    LIKELIHOODS,
    check_gradients,
    check_same,
    moved,
)

from skswsgp._adam.steps import make_steps
from skswsgp._adam.union import choose_active, union_arrays
from skswsgp._compiled.threads import max_threads
from skswsgp._engine.cpu import CpuEngine

pytestmark = pytest.mark.matrix
M, ROOM = 11, 9  # inducing points, and the most that may be active


@pytest.fixture(params=[False, True], ids=["diag", "full"])
def full(request):
    return request.param


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture
def small(full, rng):
    return make_problem(KERNELS["matern"], "gaussian", 2, full=full, rng=rng, M=M)


def union(lists, n_active, *, start=0, n=None, n_points=50):
    """Return the points that `choose_active` finds in n lists from `start`."""
    n = len(lists) if n is None else n
    arrays = union_arrays(n, lists.shape[1], n_points).values()
    uses, place, keys = (np.zeros(*array) for array in arrays)
    out = np.full(n_active, 77, dtype=np.int32)
    count = choose_active(lists.astype(np.int32), start, n, uses, place, keys, out)
    assert not uses.any()
    assert (out[count:] == -1).all()
    return out[:count]


def random_lists(rng, n=20, H=6, n_points=50):
    lists = [rng.choice(n_points, H, replace=False) for _ in range(n)]
    return np.array(lists)


@pytest.mark.parametrize("n_active", [6, 7, 19, 20, 21, 30, 49, 50, 80])
def test_the_union_equals_the_reference(n_active, rng):
    for _ in range(20):
        lists = random_lists(rng)
        expected = reference.union_of_lists(lists, n_active)
        assert_array_equal(union(lists, n_active), expected)
        part = union(lists, n_active, start=3, n=5)
        assert_array_equal(part, reference.union_of_lists(lists[3:8], n_active))


def test_the_order_of_rows_does_not_change_the_union(rng):
    lists = random_lists(rng)
    for _ in range(10):
        shuffled = lists[rng.permutation(len(lists))]
        assert_array_equal(union(shuffled, 25), union(lists, 25))


def test_each_row_keeps_its_nearest_points(rng):
    lists = random_lists(rng)
    nearest = np.unique(lists[:, :2])
    assert np.isin(nearest, union(lists, len(nearest))).all()


def test_one_row_has_its_own_list(rng):
    lists = random_lists(rng, n=1)
    assert_array_equal(union(lists, 6), np.sort(lists[0]))


@pytest.mark.parametrize(("kernel", "likelihood", "full", "moving"), COVERING)
def test_the_bound_of_a_union_equals_the_reference(
    kernel, likelihood, full, moving, rng
):
    kernel, likelihood = KERNELS[kernel], LIKELIHOODS[likelihood]
    problem = make_problem(kernel, *likelihood, full=full, rng=rng, M=M)
    problem = problem.replace(train_inducing=moving)
    points = reference.union_of_lists(problem.batch.active, ROOM - 2)
    grads = problem.dense(points=points, room=ROOM)
    assert_allclose(grads.sums[0], problem.union_pieces(points), rtol=1e-7)
    assert not grads.jitter_counts.any()


def test_gradients_of_a_union_equal_differences(kernel, full, rng):
    problem = make_problem(kernel, "gaussian", 2, full=full, rng=rng, M=M)
    points = reference.union_of_lists(problem.batch.active, ROOM - 2)

    def evaluate(problem):
        return problem.dense(points=points, room=ROOM)

    gradients = union_gradients(problem, points, room=ROOM)
    check_gradients(problem, gradients, evaluate)


def test_gradients_of_a_union_equal_differences_of_the_reference(small):
    points = reference.union_of_lists(small.batch.active, ROOM - 2)
    gradients, model = union_gradients(small, points, room=ROOM), small.model
    for name in ("m", "Z"):
        start = getattr(model, name)

        def objective(theta, name=name, start=start):
            shifted = moved(small, name, theta.reshape(start.shape))
            ell, kl = shifted.union_pieces(points)
            return ell - model.kl_weight / model.total_weight * kl

        assert_derivatives(gradients[name].ravel(), objective, start.ravel())


def union_gradients(problem, points, **options):
    """Return the gradients by name of rows that share these points."""
    grads = first_block(problem.dense(points=points, **options))
    active = np.array(points)[np.newaxis]
    grads = grads._replace(
        d_m=grads.d_m[..., : len(points)],
        d_s=grads.d_s[..., : len(points)],
        d_Z=grads.d_Z[..., : len(points)],
    )
    return dense_gradients(problem, grads, active=active)


def test_room_for_more_points_changes_no_bit(small):
    points = reference.union_of_lists(small.batch.active, 7)
    expected = union_gradients(small, points)
    for name, values in union_gradients(small, points, room=8).items():
        assert_array_equal(values, expected[name])


def test_a_smaller_union_is_not_disturbed_by_a_larger_one_before(small):
    lists = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [7, 8, 9, 10], [7, 8, 9, 10]])
    problem = small.replace(rows=[0, 1, 2, 3]).replace(active=lists.astype(np.int32))
    results = []
    for first in 0, 2:
        run = CpuEngine(copied(problem.model), 4, 1)
        steps = free_steps(run, 2, n_active=8)
        if first == 0:
            steps.take(problem.replace(rows=[0, 1]).batch, 2, np.zeros(1))
            steps.finish_epoch()
        steps.take(problem.replace(rows=[2, 3]).batch, 2, np.zeros(1))
        grads = steps.grads
        results.append([steps.finish_epoch(), grads.d_log[0], grads.d_m[0, :, :4]])
    for second, alone in zip(*results, strict=True):
        assert_allclose(second, alone, rtol=1e-9)


def test_a_failed_factorisation_ends_the_steps(small):
    model = small.replace(params=np.full_like(small.model.params, np.nan)).model
    run, before = CpuEngine(copied(model), 4, 1), small.model.m.copy()
    steps = free_steps(run, 5, n_active=ROOM)
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        steps.take(small.batch, 5, np.array([0.1]))
    assert_array_equal(run.model.m, before)
    assert run.jitter_counts[:, 1].sum() == 1


def copied(model):
    return type(model)(*(np.copy(f) if np.ndim(f) else f for f in model))


def free_steps(run, n, **options):
    """Return the steps of an engine with all parameters free."""
    P, D = len(run.model.params), run.model.Z.shape[1]
    bounds = np.tile([-5.0, 5.0], (P, 1))
    return make_steps(run, n, np.ones(P, bool), bounds, np.ones(D), **options)


def test_all_points_are_the_svgp(small):
    grads = small.dense(points=np.arange(M))
    assert_allclose(small.objective(grads), small.svgp_bound(), rtol=1e-7)


def test_one_row_is_swsgp(small):
    one = small.replace(rows=[2])
    points = np.sort(one.batch.active[0])
    local = one.local()
    assert_close(one.dense(points=points).sums[0], local.sums[0], roundings=1e4)
    expected = dense_gradients(one, local)
    check_same(union_gradients(one, points, room=ROOM), expected, roundings=1e6)


def test_the_order_of_rows_changes_rounding_only(small):
    points = reference.union_of_lists(small.batch.active, ROOM)
    shuffled = small.replace(rows=[3, 1, 4, 0, 2])
    expected = union_gradients(small, points)
    check_same(union_gradients(shuffled, points), expected, roundings=1e5)


def test_bits_do_not_depend_on_threads(small):
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    points = reference.union_of_lists(small.batch.active, ROOM - 2)
    one, two = (union_gradients(small, points, n_threads=n) for n in (1, 2))
    for name, values in one.items():
        assert_array_equal(values, two[name])


@pytest.mark.slow  # compiles the gradients in float32
def test_float32(full):
    def gradients(dtype):
        rng = np.random.default_rng(0)
        problem = make_problem(
            KERNELS["matern"], "softmax", 3, full=full, rng=rng, dtype=dtype, M=M
        )
        problem = problem.replace(jitter=1e-3)
        points = reference.union_of_lists(problem.batch.active, ROOM - 2)
        return union_gradients(problem, points, room=ROOM)

    single, double = gradients("float32"), gradients("float64")
    check_same(single, double, roundings=1e4, dtype="float32")
