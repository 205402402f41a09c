"""The law of observations at rows, with and without near targets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skswsgp._law.fit_law import is_likelier
from skswsgp._law.law import Observations, PredictiveLaw, gaussian_law
from skswsgp._law.levels import Levels
from skswsgp._law.local_density import LocalDensity, NearTargets, near_targets
from skswsgp._law.shape import GAUSSIAN, fit_shape, make_shape
from skswsgp._law.widths import Nearness, measure_distances
from skswsgp._rows.target_scale import STANDARD
from skswsgp.joint.predictions import draw_around, observed_covariance

pytestmark = pytest.mark.matrix
MEAN = np.array([[0.2, -1.0], [1.5, 0.0], [-0.4, 2.0]])
PROCESS = np.array([[0.5, 1.0], [0.3, 0.2], [1.2, 0.7]])
FACTOR = np.array([[1.0, 2.0], [0.5, 1.0], [1.5, 0.8]])
KNOWN = np.array([[1.0, 1.0], [1.0, 0.3], [0.5, 0.7]])
TAILS = make_shape(4.0, np.zeros(8))
SKEWED = make_shape(7.0, np.array([-0.8, 0.4, -0.2, 0.3, 0.0, -0.3, 0.2, 0.1]))


@pytest.fixture(
    params=[(None, GAUSSIAN), (4, GAUSSIAN), (None, SKEWED), (4, SKEWED)],
    ids=["around the mean", "near targets", "skewed", "skewed, near targets"],
)
def observations(request):
    rng = np.random.default_rng(0)
    n_near, shape_of_second = request.param
    near = None
    if n_near:
        shape = np.array([0.4, 0.0]), np.array([0.1, 1.0]), np.array([0.8, 1.0])
        Z, targets = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
        density = LocalDensity(targets, np.array([True, False]), *shape)
        lists = np.array([[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]])
        near = measure_distances(rng.normal(size=(3, 3)), Z, lists, np.ones(3))
        fade = Nearness(np.ones(3), np.full(6, 0.8)).fade(near)
        near = near_targets(density, near, np.tile(fade[:, None], 2), MEAN)
    return Observations(MEAN, PROCESS, FACTOR, KNOWN, (TAILS, shape_of_second), near)


def density_at(observations, row, q, y):
    """Return the density of values y of an output at a row."""
    values = np.zeros((len(y), MEAN.shape[1]))
    values[:, q] = y
    return np.exp(observations.at(np.full(len(y), row)).log_density(values)[:, q])


STEPS = 0.01 * np.sinh(np.linspace(-13.0, 13.0, 20_001))  # up to 2,200 from a mean


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("q", [0, 1])
def test_densities_sum_to_one_and_give_the_deviation(observations, row, q):
    y = MEAN[row, q] + STEPS
    density = density_at(observations, row, q, y)
    assert_allclose(np.trapezoid(density, y), 1.0, rtol=1e-4)
    square = np.trapezoid(STEPS**2 * density, y)
    assert_allclose(observations.deviation()[row, q], np.sqrt(square), rtol=1e-3)


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("q", [0, 1])
def test_quantiles_cut_off_their_share_of_the_density(observations, row, q):
    probabilities = np.array([0.025, 0.4, 0.9])
    for k, probability in enumerate(probabilities):
        quantile = observations.quantiles(probabilities)[row, q, k]
        y = quantile + STEPS[STEPS <= 0.0]
        below = np.trapezoid(density_at(observations, row, q, y), y)
        assert_allclose(below, probability, atol=1e-4)


def test_quantiles_of_extreme_probabilities_are_numbers_in_order(observations):
    probabilities = np.array([5e-324, 1e-300, 1e-17, 0.5, 1.0 - 1e-15, 1.0 - 2.0**-53])
    tails = make_shape(4.78, np.zeros(8))
    law = observations._replace(shapes=(tails, observations.shapes[1]))
    quantiles = law.quantiles(probabilities)
    assert not np.isnan(quantiles).any()
    assert np.all(quantiles[..., 1:] >= quantiles[..., :-1])


@pytest.mark.parametrize("y", [-1.0, 0.3])
def test_crps_is_the_integral_of_its_definition(observations, y):
    scores = observations.crps(np.full(MEAN.shape, y))
    for q in range(2):
        for row in range(3):
            one = observations.at(np.full(len(STEPS), row))
            x = MEAN[row, q] + STEPS
            expected = np.trapezoid((one.cdf(q, x) - (x >= y)) ** 2, x)
            assert_allclose(scores[row, q], expected, rtol=1e-2)


def test_crps_of_a_shape_with_a_gap_is_its_integral():
    rng = np.random.default_rng(3)
    shape = fit_shape(
        np.inf, rng.choice([-1.0, 1.0], 3000) + 0.2 * rng.normal(size=3000)
    )
    y = np.array([-40.0, -1.0, 0.0, 0.4, 1.0, 2.5, 300.0])
    ones = np.ones((len(y), 1))
    for known in (1.0, 0.4):
        law = Observations(0.5 * ones, 2.0 * ones, ones, known * ones, (shape,))
        x = 0.5 + np.linspace(-400.0, 400.0, 800_001)
        below = Observations(
            *(np.full((1, 1), a) for a in (0.5, 2.0, 1.0, known)), (shape,)
        )
        below = below.cdf(0, x)
        expected = [np.trapezoid((below - (x >= value)) ** 2, x) for value in y]
        assert_allclose(law.crps(y[:, None])[:, 0], expected, rtol=1e-3)


@pytest.mark.parametrize(("place", "h"), [(12.0, 0.5), (8.0, 1.0), (0.3, 0.02)])
def test_crps_of_near_targets_beside_the_others_is_its_integral(place, h):
    y = place + h * np.array([-30.0, -4.0, 0.0, 1.0, 2.0, 4.0, 30.0])
    ones = np.ones((len(y), 1))
    shape = np.array([[0.9], [h], [1.0]])
    near = NearTargets(np.full((len(y), 1, 1), place), ones, ones, *shape)
    law = gaussian_law(0.0 * ones, ones)._replace(near=near)
    x = np.linspace(-60.0, 60.0, 400_001)
    below = 0.1 * stats.norm.cdf(x) + 0.9 * stats.norm.cdf((x - place) / h)
    expected = [np.trapezoid((below - (x >= value)) ** 2, x) for value in y]
    assert_allclose(law.crps(y[:, None])[:, 0], expected, atol=1.2e-3)


def test_draws_have_the_quantiles_and_deviations_of_the_law(observations):
    rng = np.random.default_rng(1)
    errors = PROCESS[:, :, None] * rng.standard_normal((3, 2, 40_000))
    values = draw_around(observations, errors, rng)
    probabilities = np.array([0.1, 0.5, 0.9])
    expected = np.moveaxis(observations.quantiles(probabilities), -1, 0)
    found = np.quantile(values, probabilities, axis=2)
    assert np.abs(found - expected).max() < 0.05
    square = np.mean((values[:, 1] - MEAN[:, 1, None]) ** 2, axis=1)
    assert_allclose(np.sqrt(square), observations.deviation()[:, 1], rtol=0.02)


def test_joint_covariance_is_that_of_draws(observations):
    rng = np.random.default_rng(2)
    A = rng.normal(size=(3, 3))
    noise = 0.01
    K = A @ A.T
    process = np.sqrt(np.diag(K) + noise)[:, None] * np.ones(2)
    observations = observations._replace(process=process)
    covariance = np.repeat(K[:, :, None], 2, axis=2)
    deviation = observations.deviation()
    covariance = observed_covariance(observations, covariance, deviation, STANDARD)
    f = np.linalg.cholesky(K) @ rng.standard_normal((3, 400_000))
    errors = f + np.sqrt(noise) * rng.standard_normal(f.shape)
    errors = np.repeat(errors[:, None], 2, axis=1)
    values = draw_around(observations, errors, rng)
    # tails of four degrees of freedom need many draws, so the second output only
    found = np.cov(values[:, 1])
    squares = np.mean((values[:, 1] - MEAN[:, 1, None]) ** 2, axis=1)
    found[np.diag_indices(3)] = squares  # around the mean of the process
    assert_allclose(covariance[:, :, 1], found, atol=0.03 * np.abs(found).max())
    for q in range(2):
        assert np.linalg.eigvalsh(covariance[:, :, q]).min() > 0.0
        root = np.sqrt(np.diag(covariance[:, :, q]))
        assert_allclose(root, observations.deviation()[:, q])


def test_a_student_law_has_heavier_tails_than_a_gaussian():
    laws = [
        Observations(MEAN, PROCESS, FACTOR, KNOWN, (shape, shape))
        for shape in (TAILS, GAUSSIAN)
    ]
    wide, narrow = (law.quantiles(np.array([0.995]))[..., 0] - MEAN for law in laws)
    assert_allclose(wide / narrow, stats.t(4).ppf(0.995) / stats.norm.ppf(0.995))


def law_of(low, high, factor, spread=1.0):
    """Return the `PredictiveLaw` of two outputs with one factor s and near targets."""
    Q, some = 2, np.full(2, 0.9)
    targets = spread * np.random.default_rng(0).normal(size=(6, Q))
    coefficients = np.zeros((3, Q))
    coefficients[0] = np.log(factor)
    nearness = Nearness(np.ones(3), np.full(6, 10.0))
    density = LocalDensity(
        targets, np.zeros(Q, dtype=bool), some, 0.1 * spread * some, some
    )
    seen = np.array([[low] * Q, [high] * Q])
    return PredictiveLaw(
        shapes=(GAUSSIAN,) * Q,
        coefficients=coefficients,
        nearness=nearness,
        far_scale=np.full(Q, factor),
        scale_range=np.full((2, Q), factor),
        process_range=seen,
        sizes=None,
        density=density,
    )


def observations_at(law, deviation):
    """Return the law at one row where the process has a deviation."""
    X, Z = np.zeros((1, 3)), np.random.default_rng(1).normal(size=(6, 3))
    near = measure_distances(X, Z, np.arange(6)[None], np.ones(3))
    return law.at(np.zeros((1, 2)), np.full((1, 2), deviation), X, near)


def test_a_law_holds_where_the_process_knows_as_much_as_of_rows_left_out():
    law = law_of(0.1, 0.4, 0.5)
    for deviation in (0.1, 0.2, 0.4):
        rows = observations_at(law, deviation)
        assert_allclose(rows.factor, 0.5)
        assert_allclose(rows.share(0), 0.9)


def test_a_law_fades_where_the_process_knows_less_than_of_rows_left_out():
    law = law_of(0.1, 0.4, 0.5)
    slightly, far = observations_at(law, 0.4001), observations_at(law, 40.0)
    assert_allclose(slightly.factor, 0.5, rtol=1e-3)
    assert_allclose(slightly.share(0), 0.9, rtol=1e-3)
    assert_allclose(observations_at(law, 0.8).factor, 0.5**0.25)
    assert_allclose(far.factor, 1.0, rtol=1e-3)
    assert far.share(0) < 1e-3
    wide = observations_at(law_of(0.1, 0.4, 3.0), 40.0)
    assert_allclose(wide.factor, 3.0)  # no deviation becomes smaller


def test_between_levels_the_law_has_the_errors_between_them():
    squares = np.array([[0.3, 0.01], [0.3, 0.01]])
    values = (np.array([-1.0, 1.0]),)
    levels = Levels(np.ones((3, 1)), values, (squares,), np.array([0.2, 7.0]))
    plain = law_of(0.1, 0.4, 0.5, spread=1e-6)
    law = plain._replace(levels=levels)
    one, other = (observations_at(each, 0.4) for each in (law, plain))
    assert_allclose(one.scale[:, 0] ** 2, 0.3)
    assert_allclose(one.scale[:, 1], other.scale[:, 1])  # wider than these errors
    share = (other.scale / one.scale) ** 2  # of what rows left out tell
    assert_allclose(one.known, other.known * share)
    assert_allclose(one.share(0), other.share(0) * share[:, 0])
    far = observations_at(
        law._replace(levels=levels._replace(squares=(0 * squares,))), 40.0
    )
    assert_allclose(far.factor, [[0.2, 7.0]], rtol=1e-3)  # where no row left out was


def test_near_targets_fade_where_the_process_knows_more_than_of_rows_left_out():
    rows = observations_at(law_of(0.1, 0.4, 0.5, spread=1e-6), 0.01)
    assert_allclose(rows.share(0), 0.9 * 0.01, rtol=1e-5)
    assert_allclose(rows.factor, 0.5)


def test_near_targets_that_are_wider_than_the_law_keep_their_share():
    law = law_of(0.1, 0.4, 0.5, spread=10.0)
    for deviation in (0.01, 0.8):
        assert_allclose(observations_at(law, deviation).share(0), 0.9)
    # between wide and narrow the share falls gradually
    rows = observations_at(law_of(0.1, 0.4, 1.0, spread=0.1), 0.8)
    middle = rows.near.weights(0) @ rows.near.targets[0, :, 0]
    expected = 0.9 * 0.25 ** (1.0 - rows.near.square(0, middle) / 0.64)
    assert_allclose(rows.share(0), expected)


def test_an_outlier_does_not_hide_what_all_other_rows_gain(rng):
    gains = 0.1 + 0.5 * rng.normal(size=4000)
    assert is_likelier(gains, 3)
    assert not is_likelier(gains - gains.mean(), 3)
    gains[0] = 1e5  # of a row that one of both laws finds impossible
    assert is_likelier(gains, 3)
    gains[1:] -= 0.11
    assert not is_likelier(gains, 3)
