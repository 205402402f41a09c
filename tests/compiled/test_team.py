"""The threads of a team share loops: each index belongs to exactly one thread."""

from collections import Counter

import pytest

from skswsgp._compiled import team
from skswsgp._compiled.team import BLOCK, PYTHON_VERSIONS

pytestmark = pytest.mark.matrix
SIZES = [1, 8, 16, 32, 64, 128, 256, 1024]


@pytest.fixture(params=SIZES)
def ranks(request, monkeypatch):
    """Return a function that yields each rank, while `team_rank` returns this rank."""

    def each():
        for rank in range(request.param):
            monkeypatch.setattr(
                team, "team_rank", lambda rank=rank: (rank, request.param)
            )
            yield rank

    return each


@pytest.mark.parametrize("loop", ["team_range", "single"])
def test_each_index_belongs_to_one_thread(ranks, loop):
    count = Counter(i for _ in ranks() for i in PYTHON_VERSIONS[loop](3, 103))
    assert count == Counter(range(3, 103))


def test_single_and_once_select_the_first_thread(ranks):
    for rank in ranks():
        assert len(PYTHON_VERSIONS["single"](0, 9)) == (9 if rank == 0 else 0)
        assert PYTHON_VERSIONS["once"](2.0) == (2.0 if rank == 0 else 0.0)


def test_each_column_of_a_row_of_tiles_belongs_to_one_thread(ranks):
    row = [
        j
        for _ in ranks()
        for first in PYTHON_VERSIONS["team_tiles"](8, 104)
        for j in columns(first)
    ]
    assert Counter(row) == Counter(range(8, 104))


def test_each_column_of_a_square_of_tiles_belongs_to_one_thread(ranks):
    square = Counter()
    for _ in ranks():
        for i in PYTHON_VERSIONS["team_outer_tiles"](0, 104):
            square.update(
                (i, j)
                for first in PYTHON_VERSIONS["team_inner_tiles"](0, i + 1)
                for j in columns(first)
            )
    rows = range(0, 104, BLOCK)
    assert square == Counter((i, j) for i in rows for j in range(i + BLOCK))


def columns(first):
    """Return the columns of this thread in the tile that begins at `first`."""
    return PYTHON_VERSIONS["team_columns"](first)
