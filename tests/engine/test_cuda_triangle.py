"""The packed triangle that holds the factor R in shared memory."""

import numpy as np
import pytest
from simulator import check_evaluation, needs_simulator, problem_of

from skswsgp._engine.cuda_triangle import Triangle, row_offset
from skswsgp._engine.cuda_workspace import bytes_in_shared


@pytest.mark.parametrize("side", [8, 16, 104])
def test_a_triangle_stores_the_lower_tiles_in_order(side):
    triangle = Triangle(np.zeros(row_offset(side)), side)
    for i in range(side):
        for j in range(i // 8 * 8 + 8):
            triangle[i, j] += 1.0 + i * side + j
    expected = [i * side + j for i in range(side) for j in range(i // 8 * 8 + 8)]
    np.testing.assert_array_equal(triangle.values, np.add(expected, 1.0))
    for i, j in [(7, 8), (side - 9, side - 8), (side, 0), (0, -1)]:
        with pytest.raises(IndexError, match="no entry of a triangle"):
            triangle[i, j]


@needs_simulator
@pytest.mark.usefixtures("switching")
def test_each_team_of_a_block_has_its_own_triangle(cuda_engine, monkeypatch):
    """A block of two teams of one thread."""
    problem = problem_of("rbf-white", "gaussian-2").replace(rows=[0, 1])
    H = problem.batch.active.shape[1]
    run, size = cuda_engine(problem.model, H, 1), bytes_in_shared(H, 8, 2)
    run._make_room(2)
    monkeypatch.setattr(run._pool, "launch", lambda n: (1, (1, 2), 0, size))
    check_evaluation(lambda *_: run, problem)
