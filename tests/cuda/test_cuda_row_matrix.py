"""Products with sparse rows on the device compared with those on the host."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from helpers import assert_close
from simulator import is_on_device, needs_gpu, needs_simulator

from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp.cuda import arrays, row_matrix, runtime


def sparse_matrix(rng, dtype="float64"):
    """Return a matrix with repeated columns in its rows and an empty last column."""
    lists = rng.integers(8, size=(23, 4), dtype=np.int32)
    return SparseRowMatrix(lists, rng.normal(size=(23, 4)).astype(dtype), 9, 1)


def check_products(module, rng, dtype, Q):
    """Compare products on the host and on the device."""
    rows, holders = sparse_matrix(rng, dtype), set()
    u, v = rng.normal(size=(9, Q)), rng.normal(size=(23, Q))
    held = module.place_matrix(rows, holders)
    close = partial(assert_close, roundings=100)
    square = partial(assert_close, roundings=100, dtype=dtype)
    for here, there in [(rows, held), (rows.scaled(0.3), held.scaled(0.3))]:
        assert isinstance(there, module.DeviceRowMatrix)
        close(there.matvec(u), here.matvec(u))
        close(there.rmatvec(v), here.rmatvec(v))
        assert not there.rmatvec(v)[-1].any()
        close(there.normal_matvec(v, u), here.normal_matvec(v, u))
        square(there.matvec(u, squares=True), here.matvec(u, squares=True))
        square(there.rmatvec(v, squares=True), here.rmatvec(v, squares=True))
        close(there.weighted_gram(v[:, 0]), here.weighted_gram(v[:, 0]))
    assert len(holders) == 2
    for holder in holders:
        holder.close()
        assert not any(is_on_device(value) for value in vars(holder).values())


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
@pytest.mark.parametrize("Q", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_with_sparse_rows(small_matrices_placed, rng, dtype, Q):
    check_products(small_matrices_placed, rng, dtype, Q)


@needs_simulator
@pytest.mark.usefixtures("cuda_engine_in_turns")
def test_barriers_separate_writes_and_reads_in_products(small_matrices_placed, rng):
    check_products(small_matrices_placed, rng, "float64", 2)


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
def test_solves_and_quadratic_forms_are_left_to_the_cpu(small_matrices_placed, rng):
    lists = np.array([[0, 1, 0], [0, 2, 1], [0, 1, 2]], np.int32)  # triangular
    weights = np.array([[0, 0, 2.0], [0.3, 0, 1.5], [0.4, -0.2, 0.7]])
    rows = SparseRowMatrix(lists, weights, 3, 1)
    held, L = (
        small_matrices_placed.place_matrix(rows, set()),
        np.tril(rng.normal(size=(3, 3))),
    )
    A, u = rows.matvec(np.eye(3)), rng.normal(size=(3, 2))
    np.testing.assert_allclose(A.T @ A @ held.solve(u), u)
    np.testing.assert_allclose(held.quadratic_forms(L), np.sum((A @ L) ** 2, axis=1))


@needs_gpu
@pytest.mark.usefixtures("cuda_engine")
def test_small_matrices_and_those_without_room_stay_on_the_host(rng, monkeypatch):
    rows, holders, send = sparse_matrix(rng), set(), arrays.send_array
    assert row_matrix.place_matrix(rows, holders) is rows
    monkeypatch.setattr(row_matrix, "LEAST_ENTRIES", rows.lists.size)
    monkeypatch.setattr(runtime, "free_memory", lambda: 4 * 16 * rows.lists.size - 1)
    assert row_matrix.place_matrix(rows, holders) is rows and not holders
    monkeypatch.setattr(runtime, "free_memory", lambda: 4 * 16 * rows.lists.size)
    sent = []

    def run_out(array, what):
        if len(sent) == 3:
            raise MemoryError(what)
        sent.append(weakref.ref(send(array, what)))
        return sent[-1]()

    monkeypatch.setattr(row_matrix, "send_array", run_out)
    assert row_matrix.place_matrix(rows, holders) is rows
    gc.collect()
    assert [each() for each in sent] == [None] * 3
