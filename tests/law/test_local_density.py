"""The shape of near targets is fitted by the gradient of its likelihood."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from skswsgp._law.local_density import STARTS, learn_shape, rows_loss
from skswsgp._rows.statistics import MEAN_ROWS


@pytest.fixture
def rows(rng):
    y, distances = rng.normal(size=60), np.sort(rng.gamma(2.0, size=(60, 12)), axis=1)
    targets = np.where(
        rng.random((60, 12)) < 0.3, y[:, None], rng.normal(size=(60, 12))
    )
    targets += 0.05 * rng.normal(size=targets.shape)
    return y, -0.5 * y**2 - 0.9, targets, distances, 0.8


@pytest.mark.parametrize("start", STARTS)
def test_the_gradient_is_that_of_differences(start, rows):
    def loss(parameters):
        return rows_loss(parameters, *rows)[0]

    def slope(parameters):
        return rows_loss(parameters, *rows)[1]

    assert check_grad(loss, slope, np.array(start)) < 1e-5


def test_far_values_have_finite_slopes(rows):
    y, *rest = rows
    loss, slope = rows_loss(STARTS[1], 1e6 * y, *rest)
    assert np.isfinite(loss)
    assert np.isfinite(slope).all()


def test_near_targets_take_the_share_of_rows_that_repeat_them(rows):
    y, density, targets, *rest = rows
    kinds = targets, np.zeros_like(targets)
    (share, bandwidth, _), is_residual = learn_shape(y, density, kinds, *rest)
    assert 0.2 < share < 1.0
    assert bandwidth < 0.2
    assert not is_residual
    (share, *_), is_residual = learn_shape(y, density, kinds[::-1], *rest)
    assert share > 0.2
    assert is_residual


def test_near_targets_that_say_nothing_get_no_share(rng):
    n = 2 * MEAN_ROWS
    y, distances = rng.normal(size=n), np.sort(rng.gamma(2.0, size=(n, 12)), axis=1)
    density, targets = -0.5 * y**2 - 0.919, rng.normal(size=(n, 12))
    (share, *_), _ = learn_shape(y, density, (targets, targets), distances, 1.0)
    assert share == 0.0
