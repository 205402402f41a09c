"""Rows held out: what they decide, and what may not tell of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from skswsgp._initialization.holdout import Holdout, PriorSettings
from skswsgp._initialization.statistics import (
    effective_sample_size,
    exceeds_standard_error,
    merge_duplicates,
)
from skswsgp._solvers.data import TrainingRows

# --- chance -----------------------------------------------------------------------


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


# --- how many -----------------------------------------------------------------------


def test_effective_sample_size():
    assert effective_sample_size(np.zeros(0)) == 0.0
    assert effective_sample_size(np.zeros(3)) == 0.0
    assert effective_sample_size(np.array([0.0, 2.0, 0.0])) == 1.0
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7.0)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(1.6)
    huge = np.array([1e200, 1e200, 1.0])
    assert effective_sample_size(huge) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("n", "held"), [(1, 1), (14, 7), (20, 10), (50, 20), (200, 40)]
)
def test_number_of_held_out_rows(rng, n, held):
    X, setting = (
        rng.normal(size=(n, 2)),
        (np.random.RandomState(0), {}, PriorSettings()),
    )
    rows = Holdout(
        n, TrainingRows(X, X[:, :1], np.ones(n)), ("gaussian", 1), None, *setting
    )
    assert rows.held.sum() == held
    assert rows.decisive == (held >= 8)


# --- the scale of variances ---------------------------------------------------------


@pytest.fixture
def scaled_by(rng):
    """Return the scale found for held-out rows whose variances are 1 / `factor`."""

    def find(factor, n=1000, most=1000):
        data = TrainingRows(
            rng.normal(size=(n, 1)), rng.normal(size=(n, 1)), np.ones(n)
        )

        def log_density(mu, v, y, attributes):
            v = attributes["variance_scale_"] * v
            return -0.5 * (np.log(v) + (y - mu) ** 2 / v)[:, 0]

        setting = ("gaussian", 1), log_density, np.random.RandomState(0)
        rows = Holdout(most, data, *setting, {}, PriorSettings())
        marginals = np.zeros((most, 1)), np.full((most, 1), 1.0 / factor)
        return rows.variance_scale(SimpleNamespace(marginals=lambda: marginals))

    return find


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_variance_scale_matches_held_out_rows(scaled_by, factor):
    assert scaled_by(factor, n=5000, most=5000) == pytest.approx(factor, rel=0.15)


def test_variance_scale_is_shrunk_for_few_rows(scaled_by):
    assert scaled_by(0.1, n=100, most=100) > 1.3 * scaled_by(0.1, n=5000, most=5000)
    assert scaled_by(1e-9, n=5000, most=5000) > 0.049  # e^-3


def test_variance_scale_within_standard_error_is_one(scaled_by):
    assert scaled_by(1.1, n=100, most=100) == 1.0


def test_variance_scale_from_a_part_of_the_rows_needs_more_evidence(scaled_by):
    assert scaled_by(0.7, n=10_000, most=10_000) != 1.0
    assert scaled_by(0.7, n=1_000_000, most=10_000) == 1.0


# --- which ------------------------------------------------------------------------


def test_held_out_rows_do_not_depend_on_units_and_order_of_columns(rng):
    X, y = rng.integers(-3, 4, size=(200, 3)).astype(float), rng.normal(size=(200, 1))

    def held(X):
        rng, options = np.random.RandomState(0), {"search": "auto"}
        setting = ("gaussian", 1), None, rng, options, PriorSettings()
        return Holdout(150, TrainingRows(X, y, np.ones(200)), *setting).held

    expected = held(X)
    assert expected.any()
    np.testing.assert_array_equal(held(X[:, ::-1]), expected)
    np.testing.assert_array_equal(held(-X), expected)
    np.testing.assert_array_equal(held(5.0 - 2.0 * X[:, [1, 2, 0]]), expected)
