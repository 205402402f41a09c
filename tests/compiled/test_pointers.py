"""Calls of compiled functions by their addresses."""

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from skswsgp._compiled.jit import OPTIONS
from skswsgp._compiled.pointers import address_of, by_address


@numba.njit(**OPTIONS)
def add(a, factor, out):
    """Set out to factor a."""
    for i in range(a.shape[0]):
        out[i] = factor * a[i]


@numba.njit(**OPTIONS)
def total(a):
    """Return the sum of a."""
    value = 0.0
    for i in range(a.shape[0]):
        value += a[i]
    return value


call_add = by_address(add)
call_total = by_address(total, result=numba.float64)


def caller_of(call):
    """Return a compiled function that calls by an address."""
    return numba.njit(lambda address, *arguments: call(address, arguments))


def test_a_call_by_address_does_what_the_function_does():
    a, out = np.arange(4.0), np.zeros(4)
    a.flags.writeable = False  # as arrays that processes share
    address = address_of(add, a, 2.0, out)
    caller_of(call_add)(address, a, 2.0, out)
    assert (out == 2.0 * a).all()
    assert address == address_of(add, np.arange(4.0), 2.0, out)


def test_a_call_by_address_returns_the_result():
    address = address_of(total, np.arange(4.0), result=numba.float64)
    assert caller_of(call_total)(address, np.arange(5.0)) == 10.0


@pytest.mark.parametrize("out", [np.zeros(4, np.float32), np.zeros((4, 1))])
def test_types_that_are_not_compiled_are_refused(out):
    address = address_of(add, np.zeros(4), 2.0, np.zeros(4))
    with pytest.raises(TypingError, match="no function of these arguments"):
        caller_of(call_add)(address, np.zeros(4), 2.0, out)
