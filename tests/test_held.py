"""Rows held out: what they decide, and what may not tell of them."""

import numpy as np
import pytest

from skswsgp._held import (
    HeldOut,
    Prior,
    beyond_chance,
    effective_number,
    merge_copies,
)
from skswsgp._training import Data

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


# --- which ------------------------------------------------------------------------


def test_the_same_rows_are_held_out_for_other_columns(rng):
    X, y = rng.integers(-3, 4, size=(200, 3)).astype(float), rng.normal(size=(200, 1))

    def held(X):
        rng, options = np.random.RandomState(0), {"search": "auto"}
        setting = ("gaussian", 1), None, rng, options, Prior()
        return HeldOut(150, Data(X, y, np.ones(200)), *setting).held

    expected = held(X)
    assert expected.any()
    np.testing.assert_array_equal(held(X[:, ::-1]), expected)
    np.testing.assert_array_equal(held(-X), expected)
    np.testing.assert_array_equal(held(5.0 - 2.0 * X[:, [1, 2, 0]]), expected)
