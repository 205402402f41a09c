"""Statistics that decide between candidates."""

import numpy as np
import pytest

from skswsgp._initialization.statistics import (
    effective_sample_size,
    exceeds_standard_error,
    merge_duplicates,
)


def test_exceeds_standard_error(rng):
    gain = np.r_[np.full(50, 1.0), np.full(50, -0.9)]  # mean 0.05, error 0.095
    assert not exceeds_standard_error(gain)
    assert exceeds_standard_error(np.tile(gain, 10))
    assert exceeds_standard_error(gain, np.r_[np.full(50, 1.0), np.full(50, 0.5)])
    assert not exceeds_standard_error(-np.tile(gain, 10))
    assert not exceeds_standard_error(np.full(10, 0.01), least=0.02)
    assert exceeds_standard_error(np.full(10, 0.03), least=0.02)
    assert not exceeds_standard_error(np.ones(1))
    assert not exceeds_standard_error(np.ones(0))
    assert not exceeds_standard_error(np.ones(3), np.array([0.0, 2.0, 0.0]))


def test_rows_with_different_targets_are_not_merged(rng):
    X = np.repeat(np.arange(4.0), 40)[:, None]
    y = X + rng.choice([-1.0, 1.0], size=X.shape)
    X_left, y_left, weight = merge_duplicates(X, y, np.ones(160))
    assert len(X_left) == len(y_left) == len(weight) == 160


def test_effective_sample_size():
    assert effective_sample_size(np.zeros(0)) == 0.0
    assert effective_sample_size(np.zeros(3)) == 0.0
    assert effective_sample_size(np.array([0.0, 2.0, 0.0])) == 1.0
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7.0)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(1.6)
    huge = np.array([1e200, 1e200, 1.0])
    assert effective_sample_size(huge) == pytest.approx(2.0)
