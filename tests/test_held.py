"""Rows held out: what they decide, and what may not tell of them."""

import numpy as np
import pytest

from skswsgp._held import beyond_chance, effective_number, merge_copies

# --- chance -----------------------------------------------------------------------


def test_beyond_chance(rng):
    gain = np.r_[np.full(50, 1.0), np.full(50, -0.9)]  # mean 0.05, error 0.095
    assert not beyond_chance(gain)
    assert beyond_chance(np.tile(gain, 10))
    assert beyond_chance(gain, np.r_[np.full(50, 1.0), np.full(50, 0.5)])
    assert not beyond_chance(-np.tile(gain, 10))
    assert not beyond_chance(np.full(10, 0.01), least=0.02)
    assert beyond_chance(np.full(10, 0.03), least=0.02)
    assert not beyond_chance(np.ones(1))
    assert not beyond_chance(np.ones(0))
    assert not beyond_chance(np.ones(3), np.array([0.0, 2.0, 0.0]))


def test_equal_rows_with_other_targets_are_no_copies(rng):
    X = np.repeat(np.arange(4.0), 40)[:, None]
    y = X + rng.choice([-1.0, 1.0], size=X.shape)
    X_left, y_left, weight = merge_copies(X, y, np.ones(160))
    assert len(X_left) == len(y_left) == len(weight) == 160


# --- how many -----------------------------------------------------------------------


def test_effective_number():
    assert effective_number(np.zeros(0)) == 0.0
    assert effective_number(np.zeros(3)) == 0.0
    assert effective_number(np.array([0.0, 2.0, 0.0])) == 1.0
    assert effective_number(np.full(7, 0.3)) == pytest.approx(7.0)
    assert effective_number(np.array([1.0, 3.0])) == pytest.approx(1.6)
    huge = np.array([1e200, 1e200, 1.0])
    assert effective_number(huge) == pytest.approx(2.0)
