"""The cases of a matrix that the fast group holds."""

from itertools import product
from types import SimpleNamespace

import pytest
from groups import left_out


class Case:
    """What `left_out` reads of an item of pytest."""

    def __init__(self, params, *marks, together=()):
        self.nodeid = f"test_file.py::test_name[{list(params.values())}]"
        self.callspec = SimpleNamespace(params=params)
        self.marks = [getattr(pytest.mark, mark).mark for mark in marks]
        if together:
            self.marks.append(pytest.mark.parametrize(together, []).mark)

    def iter_markers(self, name=None):
        return (mark for mark in self.marks if name in (None, mark.name))


def kept(cases):
    out = left_out(cases)
    return [tuple(case.callspec.params.values()) for case in cases if case not in out]


def test_each_value_occurs_and_values_take_turns():
    values = product("abcd", [False, True])
    cases = [Case({"kernel": k, "full": full}, "matrix") for k, full in values]
    found = kept(cases)
    assert [kernel for kernel, _ in found] == list("abcd")
    assert sorted(full for _, full in found) == [False, False, True, True]


@pytest.mark.parametrize("names", ["x, y", ("x", "y")])
def test_all_rows_of_a_table_are_kept(names):
    rows = [*product([0, 1], "ab")]
    assert (
        kept([Case({"x": x, "y": y}, "matrix", together=names) for x, y in rows])
        == rows
    )


def test_other_tests_and_groups_are_left_alone():
    values = [*product([0, 1], "ab")]
    plain = [Case({"x": x, "y": y}) for x, y in values]
    slow = [Case({"x": x, "y": y}, "matrix", "slow") for x, y in values]
    assert not left_out(plain) and not left_out(slow)
    fast = [Case({"x": x, "y": y}, "matrix") for x, y in values]
    assert len(left_out([*slow, *fast])) == 2 == len(left_out(fast))
