"""Products with sparse rows on the device compared with those on the host."""

from functools import partial

import numpy as np
import pytest
from helpers import assert_close

from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp.cuda import row_matrix

pytestmark = pytest.mark.slow  # bodies are compiled for the host


def sparse_matrix(rng, dtype="float64"):
    """Return a matrix with repeated columns in its rows and an empty last column."""
    lists = rng.integers(8, size=(23, 4), dtype=np.int32)
    return SparseRowMatrix(lists, rng.normal(size=(23, 4)).astype(dtype), 9, 1)


@pytest.mark.usefixtures("small_matrices_placed")
@pytest.mark.parametrize("Q", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_with_sparse_rows(device, rng, dtype, Q):
    rows, holders = sparse_matrix(rng, dtype), set()
    u, v = rng.normal(size=(9, Q)), rng.normal(size=(23, Q))
    held = row_matrix.place_matrix(device, rows, holders)
    close = partial(assert_close, roundings=100)
    square = partial(assert_close, roundings=100, dtype=dtype)
    for here, there in [(rows, held), (rows.scaled(0.3), held.scaled(0.3))]:
        assert isinstance(there, row_matrix.DeviceRowMatrix)
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
        assert holder._lists is holder._weights is holder._entries is None


@pytest.mark.usefixtures("small_matrices_placed")
def test_solves_and_quadratic_forms_are_left_to_the_cpu(device, rng):
    lists = np.array([[0, 1, 0], [0, 2, 1], [0, 1, 2]], np.int32)  # triangular
    weights = np.array([[0, 0, 2.0], [0.3, 0, 1.5], [0.4, -0.2, 0.7]])
    rows = SparseRowMatrix(lists, weights, 3, 1)
    held = row_matrix.place_matrix(device, rows, set())
    L, u = np.tril(rng.normal(size=(3, 3))), rng.normal(size=(3, 2))
    A = rows.matvec(np.eye(3))
    np.testing.assert_allclose(A.T @ A @ held.solve(u), u)
    np.testing.assert_allclose(held.quadratic_forms(L), np.sum((A @ L) ** 2, axis=1))


def test_small_matrices_and_those_without_room_stay_on_the_host(
    device, held, rng, monkeypatch
):
    rows, holders = sparse_matrix(rng), set()
    assert row_matrix.place_matrix(device, rows, holders) is rows
    monkeypatch.setattr(row_matrix, "LEAST_ENTRIES", rows.lists.size)
    need = 4 * 16 * rows.lists.size
    monkeypatch.setattr(device, "free_memory", lambda: need - 1)
    assert row_matrix.place_matrix(device, rows, holders) is rows and not holders
    monkeypatch.setattr(device, "free_memory", lambda: need)
    sent, send = [], device.send

    def run_out(array):
        if len(sent) == 3:
            raise MemoryError
        sent.append(array)
        return send(array)

    monkeypatch.setattr(device, "send", run_out)
    assert row_matrix.place_matrix(device, rows, holders) is rows
    assert len(sent) == 3 and held() == 0


@pytest.mark.usefixtures("small_matrices_placed")
@pytest.mark.parametrize("name", ["send", "fetch"])
def test_a_gpu_that_fails_with_a_vector_is_named(device, rng, monkeypatch, name):
    held = row_matrix.place_matrix(device, sparse_matrix(rng), set())

    def fail(_):
        raise type("Error", (Exception,), {"__module__": "cupy.cuda"})("ECC")

    monkeypatch.setattr(device, name, fail)
    with pytest.raises(RuntimeError, match=r"^the GPU has failed \(ECC\)"):
        held.matvec(rng.normal(size=(9, 2)))
