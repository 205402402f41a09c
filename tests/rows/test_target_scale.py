"""Transformations of targets, against their definitions and numerical integrals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skswsgp._rows.target_scale import (
    Logarithm,
    SeenTargets,
    TargetScale,
    YeoJohnson,
    fit_transform,
)

POWERS = [0.0, 0.3, 1.0, 1.7, 2.0]
SCALES = {
    "none": TargetScale(np.array([3.0, -1.0]), np.array([2.0, 5.0]), None),
    "log": TargetScale(np.array([1.0, -1.0]), np.array([0.5, 0.2]), Logarithm()),
    "powers": TargetScale(
        np.array([0.4, -0.1]),
        np.array([0.5, 0.2]),
        YeoJohnson(np.array([3.0, 1e4]), np.array([0.0, 1.6])),
    ),
}
NEVER = np.full(2, -np.inf)
SEEN = SeenTargets(np.array([0.05, -2e3]), np.array([3.0, 50.0]), NEVER)
SCALES["powers to an end"] = SCALES["powers"]._replace(seen=SEEN)
POSITIVE = SEEN._replace(low=np.array([0.05, 1e-4]))
SCALES["log to an end"] = SCALES["log"]._replace(seen=POSITIVE)


@pytest.fixture(params=SCALES)
def scale(request):
    return SCALES[request.param]


@pytest.mark.parametrize("power", POWERS)
def test_powers_are_those_of_scipy(power):
    y = np.array([-40.0, -0.3, 0.0, 1e-9, 0.5, 700.0])
    ours = YeoJohnson(np.ones(1), np.array([power])).forward(y[:, None])[:, 0]
    assert_allclose(ours, stats.yeojohnson(y, power), rtol=1e-12)


def test_standardised_targets_are_restored(scale):
    y = np.array([[0.1, 30.0], [2.0, 1e-3], [90.0, 4e5]])
    assert_allclose(scale.restore(scale.standardise(y)), y, rtol=1e-9)


def test_a_deviation_beyond_its_range_y_grows_as_over_both():
    scale = SCALES["log"]._replace(
        seen=SeenTargets(*np.ones((2, 2)) * [[0.1], [20]], 0)
    )
    top = scale.standardise(np.full((1, 2), 20.0))
    place = 20.0 * np.exp(scale.factor)  # a deviation of t: T goes on till there
    assert_allclose(scale.restore(top + 1.0)[0], place)
    assert_allclose(scale.restore(top + 0.4)[0], 20.0 * np.exp(0.4 * scale.factor))
    assert (scale.restore(top + 2.0)[0] < 20.0 * np.exp(2.0 * scale.factor)).all()
    far = scale.restore(top + 1000.0 / scale.factor)
    growth = (place - 0.1) / np.log(place / 0.1)  # a unit of the logarithm, on average
    assert_allclose(far[0] / 1000.0, growth, rtol=0.05)
    twice = SCALES["powers"]._replace(seen=SEEN)
    bottom = twice.standardise(np.full((1, 2), -2e3))
    low = twice.restore(bottom - 1.0)[0]
    rise = twice.transform.forward(SEEN.high) - twice.transform.forward(low)
    far = twice.restore(bottom - 1e6 / twice.factor)[:, 1]
    assert_allclose(far, -1e6 * (50.0 - low[1]) / rise[1], rtol=0.05)
    inside = np.array([[1.0, -1e3], [3.0, 10.0]])  # where it is as without an end
    plain = SCALES["powers"].standardise(inside)
    assert_array_equal(twice.standardise(inside), plain)


def test_targets_that_cannot_be_negative_are_not():
    seen = SEEN._replace(least=np.array([0.0, -np.inf]))
    for name in ("none", "powers"):
        y = SCALES[name]._replace(seen=seen).restore(np.full((3, 2), -9.0))
        assert_array_equal(y[:, 0], 0.0)
        assert (y[:, 1] < 0.0).all()


def test_many_values_a_row_and_single_outputs_are_restored_alike(scale):
    t = np.random.default_rng(0).normal(size=(3, 2, 4))
    restored = scale.restore(t)
    for k in range(4):
        assert_array_equal(restored[:, :, k], scale.restore(t[:, :, k]))
    for q in range(2):
        assert_array_equal(restored[:, q], scale.of_output(q).restore(t[:, q]))


def test_slopes_are_those_of_finite_differences(scale):
    y, step = np.array([[0.7, 20.0], [5.0, 9e4]]), 1e-6
    rise = scale.standardise(y * (1 + step)) - scale.standardise(y * (1 - step))
    slopes = np.broadcast_to(scale.log_slope(y), y.shape)
    assert_allclose(np.exp(slopes), rise / (2 * step * y), rtol=1e-6)


def test_moments_are_those_of_an_integral_over_a_gaussian(scale):
    mean, deviation = np.array([[0.3, -1.0]]), np.array([[0.9, 0.4]])
    z = np.linspace(-12.0, 12.0, 40_001)
    y = scale.restore((mean.T + deviation.T * z)[None])[0]  # (2, n)
    density = stats.norm.pdf(z)
    expected = np.trapezoid(y * density, z)
    square = np.trapezoid((y - expected[:, None]) ** 2 * density, z)
    y_mean, y_deviation = scale.moments(lambda z: mean + deviation * z)
    assert_allclose(y_mean[0], expected, rtol=1e-3)
    assert_allclose(y_deviation[0], np.sqrt(square), rtol=1e-3)


def test_moments_behind_a_logarithm_are_those_of_a_lognormal():
    scale = TargetScale(0.0, 1.0, Logarithm())
    mean, deviation = np.array([[11.0]]), np.array([[0.5]])
    law = stats.lognorm(0.5, scale=np.exp(11.0))
    found = scale.moments(lambda z: mean + deviation * z)
    assert_allclose(np.ravel(found), [law.mean(), law.std()])


@pytest.mark.parametrize("power", [0.2, 0.8, 1.0, 1.5])
def test_the_power_behind_gaussian_targets_is_found(power):
    t = np.random.default_rng(0).normal(0.5, 1.0, size=(4000, 1))
    y = 1e5 * YeoJohnson(np.ones(1), np.array([power])).inverse(t)
    found = fit_transform("yeo-johnson", y, np.ones(4000))
    again = found._replace(unit=np.array([1e5]))  # the unit changes the power
    unit = np.sqrt(np.mean(y**2))
    assert_allclose(found.unit, unit)
    loss, lossy = (
        stats.yeojohnson_llf(p, y[:, 0] / unit) for p in (found.power[0], power)
    )
    assert loss >= lossy - 1e-6
    assert abs(again.power[0] - power) < 0.4


def test_powers_depend_on_weights_and_not_on_units():
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(size=(500, 1)))
    weight = np.where(rng.random(500) < 0.3, 0.0, 1.0)
    weighted = fit_transform("yeo-johnson", y, weight)
    kept = fit_transform("yeo-johnson", y[weight > 0], np.ones(int(weight.sum())))
    assert_allclose(weighted.power, kept.power, atol=1e-4)
    scaled = fit_transform("yeo-johnson", 1e-200 * y, weight)
    assert_allclose(scaled.power, weighted.power, atol=1e-4)


def test_constant_targets_are_left_alone():
    transform = fit_transform("yeo-johnson", np.zeros((5, 1)), np.ones(5))
    assert_array_equal(transform.forward(np.zeros((5, 1))), 0.0)


@pytest.mark.parametrize("size", [1.0, 1e160, 1e-160])
def test_moments_of_huge_targets_are_those_of_the_lognormal_law(size):
    scale = TargetScale(np.log(size), 0.7, Logarithm())
    mean, deviation = np.array([[0.3]]), np.array([[0.8]])
    found = scale.moments(lambda z: mean + deviation * z)
    law = stats.lognorm(0.56, scale=np.exp(0.21))
    assert_allclose(found[0] / size, law.mean(), rtol=1e-9)
    assert_allclose(found[1] / size, law.std(), rtol=1e-6)


def test_transformations_are_true_and_named():
    for name in ("log", "yeo-johnson"):
        transform = fit_transform(name, np.ones((3, 1)), np.ones(3))
        assert transform and transform.name == name


@pytest.mark.parametrize("powers", [(-300.0, 300.0), (0.0, 307.0), (-307.0, -10.0)])
def test_targets_of_any_size_have_densities(powers):
    y = 10.0 ** np.linspace(*powers, 50)[:, None]
    logs = np.log(y)
    seen = SeenTargets(y.min(axis=0), y.max(axis=0), np.zeros(1))
    scale = TargetScale(logs.mean(axis=0), logs.std(axis=0), Logarithm(), seen)
    assert_allclose(scale.standardise(y), (logs - logs.mean()) / logs.std())
    assert_allclose(scale.log_slope(y), -logs - np.log(logs.std()))
    assert_allclose(scale.restore(scale.standardise(y)), y, rtol=1e-9)
