"""Tests of conjugate gradients for several systems, against a dense solver."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skswsgp._linear.conjugate_gradients import solve_systems

Q, M = 3, 40


@pytest.fixture
def systems(rng):
    """Return matrices of condition numbers 10, 1e3 and 1e5, and right-hand sides."""
    matrices = []
    for power in (1, 3, 5):
        basis, _ = np.linalg.qr(rng.normal(size=(M, M)))
        matrices.append(basis @ np.diag(np.logspace(0, power, M)) @ basis.T)
    return np.stack(matrices), rng.normal(size=(M, Q))


def products(matrices):
    """Return a function that multiplies columns by the matrices of their systems."""
    return lambda u, systems: np.einsum("kij,jk->ik", matrices[systems], u)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_solutions_equal_those_of_a_dense_solver(systems, preconditioned):
    matrices, right = systems
    x = np.ones((M, Q))
    inverses = np.linalg.inv(matrices) if preconditioned else np.stack([np.eye(M)] * Q)
    steps = 3 if preconditioned else 2000
    left = solve_systems(
        x, np.arange(Q), right, products(matrices), products(inverses), 1e-10, steps
    )
    assert len(left) == 0
    for q in range(Q):
        assert_allclose(x[:, q], np.linalg.solve(matrices[q], right[:, q]), rtol=1e-6)


def test_unsolved_systems_are_returned(systems):
    matrices, right = systems
    x, plain = np.zeros((M, Q)), products(np.stack([np.eye(M)] * Q))
    before = x.copy()
    left = solve_systems(
        x, np.array([0, 2]), right, products(matrices), plain, 1e-6, 30
    )
    assert_array_equal(left, [2])
    assert_array_equal(x[:, 1], before[:, 1])
    residual = right - products(matrices)(x, np.arange(Q))
    assert np.linalg.norm(residual[:, 0]) <= 1.1e-6 * np.linalg.norm(right[:, 0])
    left = solve_systems(x, left, right, products(matrices), plain, 1e-6, 2000)
    assert len(left) == 0


def test_systems_solved_together_equal_systems_solved_alone(systems):
    matrices, right = systems
    plain = products(np.stack([np.eye(M)] * Q))
    x, alone = np.zeros((2, M, Q))
    solve_systems(x, np.arange(Q), right, products(matrices), plain, 1e-8, 500)
    for q in range(Q):
        solve_systems(alone, np.array([q]), right, products(matrices), plain, 1e-8, 500)
    assert_allclose(x, alone, rtol=1e-9)


def test_zero_and_nan_right_hand_sides(systems):
    matrices, right = systems
    plain = products(np.stack([np.eye(M)] * Q))
    right[:, 0], right[3, 1] = 0.0, np.nan
    x = np.ones((M, Q))
    with np.errstate(invalid="ignore"):
        left = solve_systems(
            x, np.arange(Q), right, products(matrices), plain, 1e-6, 500
        )
    assert_array_equal(left, [1])
    assert_array_equal(x[:, 0], 0.0)
