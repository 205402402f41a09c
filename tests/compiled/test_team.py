"""Lanes share loops so that each index is somebody's, and nobody else's."""

from collections import Counter

import pytest

from skswsgp._compiled import team
from skswsgp._compiled.team import BLOCK, PYTHON_VERSIONS

LANES = [1, 8, 16, 32, 64, 128, 256, 1024]


@pytest.fixture(params=LANES)
def lanes(request, monkeypatch):
    """Yield each lane of so many in turn, as the functions see it."""

    def each():
        for lane in range(request.param):
            monkeypatch.setattr(
                team, "team_rank", lambda lane=lane: (lane, request.param)
            )
            yield lane

    return each


@pytest.mark.parametrize("loop", ["team_range", "single"])
def test_each_index_is_of_one_lane(lanes, loop):
    seen = Counter(i for _ in lanes() for i in PYTHON_VERSIONS[loop](3, 103))
    assert seen == Counter(range(3, 103))


def test_the_first_lane_does_what_others_leave(lanes):
    for lane in lanes():
        assert len(PYTHON_VERSIONS["single"](0, 9)) == (9 if lane == 0 else 0)
        assert PYTHON_VERSIONS["once"](2.0) == (2.0 if lane == 0 else 0.0)


def test_each_column_of_a_row_of_tiles_is_of_one_lane(lanes):
    row = [
        j
        for _ in lanes()
        for at in PYTHON_VERSIONS["team_tiles"](8, 104)
        for j in columns(at)
    ]
    assert Counter(row) == Counter(range(8, 104))


def test_each_column_of_a_square_of_tiles_is_of_one_lane(lanes):
    square = Counter()
    for _ in lanes():
        for i in PYTHON_VERSIONS["team_outer_tiles"](0, 104):
            square.update(
                (i, j)
                for at in PYTHON_VERSIONS["team_inner_tiles"](0, i + 1)
                for j in columns(at)
            )
    below = range(0, 104, BLOCK)
    assert square == Counter((i, j) for i in below for j in range(i + BLOCK))


def columns(first):
    """Return the columns of this lane in a tile."""
    return PYTHON_VERSIONS["team_columns"](first)
