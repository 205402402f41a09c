"""Regressors whose process lives on a transformed target."""

import pickle
import warnings

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils import get_tags

from skswsgp import ExtrapolationWarning, SWSGPRegressor
from skswsgp._fit.targets import see_targets
from skswsgp._law.law import Observations, gaussian_law
from skswsgp._law.shape import GAUSSIAN, make_shape
from skswsgp._rows.target_scale import (
    Logarithm,
    SeenTargets,
    TargetScale,
)
from skswsgp.joint.predictions import transformed_covariance
from skswsgp.metrics import (
    get_scorer,
    interval_coverage,
    interval_score,
    pinball,
)
from skswsgp.noise import StudentNoise
from skswsgp.solvers import Adam

TRANSFORMS = ["log", "yeo-johnson"]


def make_prices(n=600, seed=0):
    """Return X (n, 3) in [0, 1] and positive targets with multiplicative noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    log_price = 2 * np.sin(5 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    return X, 1000 * np.exp(log_price)


X, Y = make_prices(300)
X_NEW, Y_NEW = make_prices(100, seed=1)


@pytest.fixture(scope="module")
def models():
    names = [None, *TRANSFORMS]
    return {
        name: SWSGPRegressor(y_transform=name, random_state=0).fit(X, Y)
        for name in names
    }


@pytest.mark.full
@pytest.mark.parametrize("name", TRANSFORMS)
def test_skewed_targets_are_predicted_better(name):
    rows, (X_new, y_new) = make_prices(600), make_prices(400, seed=1)
    plain, model = (
        SWSGPRegressor(y_transform=one, random_state=0).fit(*rows)
        for one in (None, name)
    )
    process = SWSGPRegressor(y_transform=None, predictive="gaussian", random_state=0)
    process.fit(*rows)  # whose errors have no shape of their own
    fits = process, model
    scores = [interval_score(y_new, *m.predict_interval(X_new)) for m in fits]
    assert scores[1] < 0.95 * scores[0]
    densities = [m.log_predictive_density(X_new, y_new).mean() for m in (plain, model)]
    assert densities[1] > densities[0] + 0.05
    assert model.score(X_new, y_new) > plain.score(X_new, y_new) - 0.02


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize("name", TRANSFORMS)
def test_skewed_targets_are_likelier_where_they_are_transformed(name, models):
    plain, model = (
        models[one].log_predictive_density(X_NEW, Y_NEW).mean() for one in (None, name)
    )
    assert model > plain


def test_intervals_of_a_logarithm_are_positive(models):
    lower, upper = models["log"].predict_interval(X_NEW)
    assert lower.min() > 0.0
    assert np.mean((lower <= Y_NEW) & (Y_NEW <= upper)) > 0.9


@pytest.mark.full
def test_intervals_of_a_logarithm_hold_their_share():
    model = SWSGPRegressor(y_transform="log", random_state=0).fit(*make_prices(600))
    X_new, y_new = make_prices(400, seed=1)
    lower, upper = model.predict_interval(X_new)
    assert 0.92 < np.mean((lower <= y_new) & (y_new <= upper)) < 0.98


@pytest.mark.parametrize("name", TRANSFORMS)
def test_densities_are_slopes_of_the_quantiles(name, models):
    p, step = 0.3, 1e-5
    ends = models[name].predict(X_NEW[:5], quantiles=[p - step, p, p + step])
    density = 2 * step / (ends[:, 2] - ends[:, 0])
    logs = models[name].log_predictive_density(X_NEW[:5], ends[:, 1])
    assert_allclose(np.exp(logs), density, rtol=1e-3)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_ranked_probability_scores_are_means_of_pinball_losses(name, models):
    probabilities = (np.arange(400) + 0.5) / 400
    quantiles = models[name].predict(X_NEW, quantiles=probabilities)
    loss = pinball(Y_NEW, quantiles, probabilities)
    crps = -get_scorer("neg_crps")(models[name], X_NEW, Y_NEW)
    assert_allclose(crps, 2 * loss, rtol=0.01)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_samples_agree_with_moments_and_quantiles(name, models):
    mean, std = models[name].predict(X_NEW, return_std=True)
    assert_array_equal(mean, models[name].predict(X_NEW))
    samples = models[name].sample_y(X_NEW, 500)
    assert_allclose(np.mean(samples.mean(axis=1) / mean), 1.0, atol=0.02)
    assert_allclose(np.mean(samples.std(axis=1) / std), 1.0, atol=0.05)
    tenth = models[name].predict(X_NEW, quantiles=0.1)
    assert_allclose(np.mean(samples < tenth[:, None]), 0.1, atol=0.01)


def test_the_logarithm_is_that_of_a_fit_to_logarithms(models):
    other = SWSGPRegressor(random_state=0).fit(X, np.log(Y))
    expected = np.exp(other.predict(X_NEW, quantiles=0.8))
    assert_allclose(models["log"].predict(X_NEW, quantiles=0.8), expected, rtol=1e-6)
    slope = other.log_predictive_density(X_NEW, np.log(Y_NEW)) - np.log(Y_NEW)
    logs = models["log"].log_predictive_density(X_NEW, Y_NEW)
    assert_allclose(logs, slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_units_of_y_do_not_matter(name, models):
    scaled = SWSGPRegressor(y_transform=name, random_state=0).fit(X, 1e-6 * Y)
    for one, other in zip(
        scaled.predict(X_NEW, return_std=True),
        models[name].predict(X_NEW, return_std=True),
        strict=True,
    ):
        assert_allclose(1e6 * one, other, rtol=1e-3)


@pytest.mark.full  # a claim of accuracy
def test_auto_is_the_default_and_transforms_only_where_rows_are_likelier(models):
    chosen = SWSGPRegressor(random_state=0).fit(X, Y)
    assert chosen.y_transform == "auto"
    assert chosen.y_transform_.name == "log"
    assert_array_equal(chosen.predict(X_NEW), models["log"].predict(X_NEW))
    rng = np.random.default_rng(0)
    signal = np.exp(2 * np.sin(5 * X[:, 0]) + X[:, 1])
    for y in (
        np.sin(5 * X[:, 0]) + 0.2 * rng.normal(size=len(X)),
        signal + 0.5 * rng.normal(size=len(X)),  # is skewed, but its noise is not
        np.sin(5 * X[:, 0]) + 0.3 * rng.exponential(size=len(X)),  # and the opposite
        1000.0 + np.log(Y),
    ):
        assert SWSGPRegressor(random_state=0).fit(X, y).y_transform_ is None
    with_zeros = np.maximum(Y - 1000.0, 0.0)
    found = SWSGPRegressor(random_state=0).fit(X, with_zeros).y_transform_
    assert found.name == "yeo-johnson"


def make_floor(floor, n=300):
    """Return X and targets half of which lie at a floor, or right above it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    f = np.sin(5 * X[:, 0]) + X[:, 1] - 0.3 + 0.2 * rng.normal(size=n)
    return X, np.maximum(f, 0.0) + floor(rng, n)


@pytest.mark.parametrize(
    "floor",
    [
        pytest.param(lambda rng, n: 1e-3, marks=pytest.mark.full),
        pytest.param(lambda rng, n: 1e-9, marks=pytest.mark.full),
        lambda rng, n: 1e-6 * rng.uniform(size=n),
    ],
)
def test_values_near_zero_make_no_logarithm(floor):
    """Their densities on that scale are huge, and predictions beyond all bounds."""
    X, y = make_floor(floor)
    X_new, y_new = make_floor(floor, 600)
    plain = SWSGPRegressor(y_transform=None, random_state=0).fit(X, y)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert getattr(model.y_transform_, "name", None) != "log"
    assert model.score(X_new, y_new) > plain.score(X_new, y_new) - 0.02


def test_few_levels_and_rounding_errors_are_on_no_other_scale():
    rng = np.random.default_rng(0)
    for y in (
        np.where(Y > np.median(Y), 100.0, 1.0) + (np.arange(len(Y)) == 0),
        1.0 + 2.2e-16 * rng.permutation(len(Y)),
        1e9 + 1e-7 * np.round(10 * X[:, 0]),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert SWSGPRegressor(random_state=0).fit(X, y).y_transform_ is None


def test_choice_does_not_depend_on_units_order_or_copies():
    order = np.random.default_rng(1).permutation(len(Y))
    for rows, unit in ((order, 1e-6), (np.repeat(order, 3), 1e6)):
        model = SWSGPRegressor(random_state=0).fit(X[rows], unit * Y[rows])
        assert model.y_transform_.name == "log"


def test_several_outputs_are_transformed_together():
    both = np.column_stack([Y, 3.0 * Y[::-1]])
    assert SWSGPRegressor(random_state=0).fit(X, both).y_transform_.name == "log"


@pytest.mark.parametrize(
    ("params", "fit_params"),
    [
        ({"kernel": RBF()}, {}),
        ({"learn_kernel": False}, {}),
        ({"normalize_y": False}, {}),
        ({"likelihood": "student_t"}, {}),
        ({"warm_start": True}, {}),
        ({}, {"noise_variance": np.full(150, 100.0)}),
        ({"solver": Adam(max_iter=1)}, {"X_val": X_NEW, "y_val": -Y_NEW}),
    ],
)
def test_auto_leaves_y_alone_where_its_scale_is_given(params, fit_params):
    model = SWSGPRegressor(random_state=0, **params).fit(X[:150], Y[:150], **fit_params)
    assert model.y_transform_ is None  # a logarithm otherwise


def test_the_first_chunk_of_a_stream_chooses_a_scale_that_takes_all_numbers():
    model = SWSGPRegressor(n_inducing=50, random_state=0).partial_fit(X, Y)
    assert model.y_transform_.name == "yeo-johnson"
    assert model.predict_interval(X_NEW)[0].min() >= 0.0
    model.partial_fit(X[:50], -Y[:50])  # which have no logarithms
    assert model.predict_interval(X_NEW)[0].min() < 0.0


@pytest.mark.usefixtures("few_steps")
def test_several_outputs_have_a_power_each():
    both = np.column_stack([Y, -Y])
    model = SWSGPRegressor(y_transform="yeo-johnson", random_state=0).fit(X, both)
    power = model.y_transform_.power
    assert_allclose(power[1], 2.0 - power[0], atol=1e-3)
    lower, upper = model.predict_interval(X_NEW)
    free = -upper[:, 1] > 0.0  # the first output is never negative
    assert_allclose(lower[free, 0], -upper[free, 1], rtol=0.02, atol=0.02 * Y.std())
    assert_array_equal(lower[~free, 0], 0.0)
    assert model.log_predictive_density(X_NEW, np.column_stack([Y_NEW, -Y_NEW])).shape


def test_a_stream_keeps_the_transformation_of_its_first_chunk():
    model = SWSGPRegressor(y_transform="yeo-johnson", n_inducing=50, random_state=0)
    first = model.partial_fit(X[:150], Y[:150]).y_transform_
    second = model.partial_fit(X[150:250], 2 * Y[150:250]).y_transform_
    assert_array_equal(first.power, second.power)
    assert_array_equal(first.unit, second.unit)


def test_fits_are_pickled_cloned_and_refitted(models):
    again = pickle.loads(pickle.dumps(models["yeo-johnson"]))
    assert_array_equal(again.predict(X_NEW), models["yeo-johnson"].predict(X_NEW))
    assert clone(again).y_transform == "yeo-johnson"
    plain = again.set_params(y_transform=None).fit(X, Y)
    assert plain.y_transform_ is None
    assert_array_equal(plain.predict(X_NEW), models[None].predict(X_NEW))


def test_means_far_from_all_rows_are_among_the_targets():
    """A kernel of large variance knows nothing there, and exp(s^2 / 2) overflows."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(40, 1)), axis=0)
    y = np.exp(1.5 * X[:, 0] + 0.3 * rng.normal(size=40))
    kernel = ConstantKernel(1000.0) * RBF(3.0)
    params = {"y_transform": "log", "random_state": 0}
    model = SWSGPRegressor(kernel, learn_kernel=False, **params).fit(X, y)
    far = [[100.0], [-100.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        mean, std = model.predict(far, return_std=True)
        _, cov = model.predict(far, return_cov=True)
        lower, upper = model.predict_interval(far)
    draws = model.sample_y(far, 4000)
    assert_allclose(mean, draws.mean(axis=1), rtol=0.1)
    assert (mean < y.max()).all()
    assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-6)
    assert np.mean((lower[0] <= y) & (y <= upper[0])) > 0.9
    assert np.isfinite(get_scorer("neg_crps")(model, far, [1.0, 1.0]))


def test_values_that_a_logarithm_does_not_have_are_impossible(models):
    y = np.array([-1.0, 0.0])
    logs = models["log"].log_predictive_density(X_NEW[:2], y)
    assert_array_equal(logs, -np.inf)
    near = -get_scorer("neg_crps")(models["log"], X_NEW[:2], y)
    far = -get_scorer("neg_crps")(models["log"], X_NEW[:2], y - 5000.0)
    assert_allclose(far - near, 5000.0)


def test_a_logarithm_of_what_is_not_positive_is_refused():
    message = r"y has 1 values that are not positive, such as -3.*'yeo-johnson'"
    with pytest.raises(ValueError, match=message):
        SWSGPRegressor(y_transform="log").fit(X[:50], np.append(Y[:49], -3.0))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_covariances_behind_a_transformation_are_those_of_draws(name, models):
    mean, cov = models[name].predict(X_NEW[:6], return_cov=True)
    usual, std = models[name].predict(X_NEW[:6], return_std=True)
    assert_allclose(mean, usual)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-10)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    scale = models[name]._scale
    rng = np.random.default_rng(0)
    R = 0.8 + 0.2 * np.eye(3)
    m = np.array([[0.5], [-0.2], [0.1]])
    draws = rng.multivariate_normal(np.zeros(3), R, 200_000)
    expected = np.cov(scale.restore(m[:, :, None] + 0.4 * draws.T[:, None])[:, 0])
    found = transformed_covariance(scale, lambda z: m + 0.4 * z, R[:, :, None])
    assert_allclose(found[:, :, 0], expected, rtol=0.03)


def test_held_out_rows_are_scored_in_the_units_of_y():
    params = {"solver": "adam", "n_inducing": 50, "max_iter": 3, "random_state": 0}
    params |= {"predictive": "gaussian", "n_neighbors": 50}  # lists do not change
    rows = {"X_val": X_NEW, "y_val": Y_NEW}
    model = make(SWSGPRegressor, y_transform="log", early_stopping=True, **params)
    scores = model.fit(X, Y, **rows).validation_scores_
    last = model.log_predictive_density(X_NEW, Y_NEW).mean()
    assert_allclose(max(scores), last, rtol=1e-6)


def test_left_out_rows_are_in_the_units_of_y(models):
    found = models["log"].leave_one_out_
    logs = SWSGPRegressor(random_state=0).fit(X, np.log(Y)).leave_one_out_
    inside = logs.mean + 3.0 * logs.std < np.log(Y.max())
    expected = np.exp(logs.mean + 0.5 * logs.std**2)
    assert_allclose(found.mean[inside], expected[inside], rtol=5e-3)
    assert (found.mean < 1.001 * expected).all()  # beyond, the logarithm is a line
    assert_allclose(found.residual, Y - found.mean)


def test_auto_knows_rows_of_no_weight():
    weight = np.where(np.arange(len(Y)) < 100, 0.0, 1.0)
    y = np.where(weight > 0.0, Y, -1.0)  # which has no logarithm
    model = SWSGPRegressor(random_state=0).fit(X, y, weight)
    assert model.y_transform_.name == "log"
    other = SWSGPRegressor(random_state=0).fit(X[100:], Y[100:])
    assert_array_equal(model.predict(X[:5]), other.predict(X[:5]))


# --- scores, weights and copies -------------------------------------------------------


@pytest.mark.parametrize("freedom", [np.inf, 3.0])
def test_scores_and_moments_to_an_end_are_those_of_draws(freedom):
    one = np.ones((1, 1))
    law = Observations(
        0.5 * one, one, 0.7 * one, one, (make_shape(freedom, np.zeros(8)),)
    )
    seen = SeenTargets(*np.array([[0.2], [6.0], [-np.inf]]))
    scale = TargetScale(0.0, 1.0, Logarithm(), seen)
    z = np.random.default_rng(0).standard_normal(1_000_000)
    y = scale.restore(law.from_normal(z))[:, 0]
    mean, deviation = law.moments(scale)
    assert_allclose(mean, y.mean(), rtol=0.01)
    assert_allclose(deviation, y.std(), rtol=0.03)
    score = np.abs(y - 2.0).mean() - 0.5 * np.abs(y - y[::-1]).mean()
    assert_allclose(law.crps(2.0 * one, scale), score, rtol=0.01)


@pytest.mark.parametrize("deviation", [0.1, 1.0, 2.0])
def test_score_behind_a_logarithm_is_that_of_a_lognormal_law(deviation):
    one = np.ones((1, 1))
    law = Observations(0.5 * one, one, deviation * one, one, (GAUSSIAN,))
    found = law.crps(2.0 * one, TargetScale(0.0, 1.0, Logarithm()))[0, 0]
    s, w = deviation, (np.log(2.0) - 0.5) / deviation  # Baran and Lerch, 2015
    spread = stats.norm.cdf(w - s) + stats.norm.cdf(s / np.sqrt(2.0)) - 1.0
    expected = 2.0 * (2.0 * stats.norm.cdf(w) - 1.0)
    expected -= 2.0 * np.exp(0.5 + 0.5 * s**2) * spread
    assert_allclose(found, expected, rtol=6e-3)


def test_a_warm_start_keeps_its_transformation():
    model = SWSGPRegressor(y_transform="log", learn_kernel=False).fit(X[:60], Y[:60])
    model.set_params(y_transform=None, warm_start=True)
    with pytest.raises(ValueError, match=r"y_transform=None for a model .* with 'log'"):
        model.fit(X[:60], Y[:60])
    model.set_params(y_transform="auto").fit(X[:60], Y[:60])
    assert model.y_transform_.name == "log"


def test_a_warm_start_knows_the_ends_of_its_transformation():
    model = SWSGPRegressor(y_transform="yeo-johnson", random_state=0).fit(X, Y)
    seen = model._seen_targets
    assert seen.least == 0.0
    model.set_params(warm_start=True).fit(X, 2.0 * Y)
    assert model._seen_targets == seen
    model.fit(X, Y - np.median(Y))
    assert model._seen_targets.least == -np.inf
    assert model._seen_targets.high == seen.high


@pytest.mark.parametrize(
    ("n_large", "least"), [(9, -np.inf), (10, 0.0)], ids=["by chance", "never"]
)
def test_targets_far_above_their_median_but_never_below_zero(n_large, least):
    y = np.concatenate([np.linspace(0.5, 1.5, 61), np.linspace(3.0, 4.0, n_large)])
    y = np.column_stack([y, y - 0.6])  # the second has negative ones
    assert_array_equal(see_targets(y, None).least, [least, -np.inf])


def test_ends_of_skewed_targets_that_keep_their_scale_are_not_below_zero():
    rng = np.random.default_rng(0)
    x, new = rng.uniform(size=(2, 80, 1))
    y = rng.gamma(1.5, 1.0 + x[:, 0])
    model = SWSGPRegressor(y_transform=None, random_state=0).fit(x, y)
    lower, _ = model.predict_interval(new, coverage=0.99)
    assert lower.min() == 0.0
    assert model.sample_y(new, 50, random_state=0).min() == 0.0


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_score_of_student_noise_behind_a_logarithm_is_that_of_its_middle(noise):
    """The deviation of noise of 2.1 degrees of freedom would be 4.6 times its scale."""
    one = np.ones((1, 1))
    law = StudentNoise(0.0 * one, 1e-6 * one, noise * np.ones(1), np.array([2.1]))
    scale = TargetScale(0.0, 1.0, Logarithm())
    deviation = np.sqrt(noise) * stats.t.ppf(stats.norm.cdf(1.0), 2.1)
    expected = gaussian_law(0.0 * one, deviation * one).crps(one, scale)
    assert_allclose(law.crps(one, scale), expected, rtol=1e-4)


def test_known_noise_of_a_warm_start_is_that_of_y():
    model = SWSGPRegressor(random_state=0).fit(X, Y).set_params(warm_start=True)
    with pytest.raises(ValueError, match="a warm start of y_transform_='log'"):
        model.fit(X, Y, noise_variance=np.full(len(Y), 100.0))


def test_tags_tell_which_targets_must_be_positive():
    for params, positive in (
        ({}, False),
        ({"y_transform": "log"}, True),
        ({"likelihood": "poisson"}, True),
        ({"likelihood": "nonsense"}, False),
    ):
        tags = get_tags(make(SWSGPRegressor, **params))
        assert tags.target_tags.positive_only is positive


def test_known_noise_of_a_transformed_target_is_refused():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 1))
    model = SWSGPRegressor(y_transform="log", random_state=0)
    model.fit(X, np.exp(X[:, 0] + 0.1 * rng.standard_normal(40)))
    known = {"noise_variance": np.ones(2)}
    for method in (model.predict, model.sample_y, model.predict_interval):
        with pytest.raises(
            ValueError, match="noise_variance came with y_transform_='log'"
        ):
            method(X[:2], **known)


def test_heavy_tails_do_not_rule_the_mean_behind_a_logarithm():
    """Means, which the law itself does not have, are on average those of targets."""
    seen, predicted = 0.0, 0.0
    for seed in 1, 2, 3:
        rng = np.random.default_rng(seed)
        X = rng.uniform(0.0, 5.0, size=(200, 1))
        y = np.exp(np.sin(X[:, 0]) + 0.2 * rng.standard_t(1.5, 200))
        how = {"likelihood": "student_t", "y_transform": "log", "random_state": 0}
        model = SWSGPRegressor(**how).fit(X, y)
        mean, draws = model.predict(X), model.sample_y(X[::10], 20_000)
        assert (mean < y.max()).all()
        assert_allclose(np.median(draws.mean(axis=1) / mean[::10]), 1.0, atol=0.02)
        seen, predicted = seen + y.mean(), predicted + mean.mean()
    assert_allclose(predicted, seen, rtol=0.15)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("y_transform", ["auto", "log"])
def test_a_function_is_followed_beyond_all_targets(seed, y_transform):
    rng = np.random.default_rng(1000 + seed)
    X = rng.uniform(-1.0, 1.0, (1300, 3))
    y = np.exp(6.0 * X[:, 0] + 2.0 * X[:, 1])
    model = SWSGPRegressor(y_transform=y_transform, random_state=0)
    model.fit(X[:300], y[:300])
    assert y[300:].max() > 1.2 * y[:300].max()
    beyond = y > y[:300].max()
    assert_allclose(model.predict(X[beyond]), y[beyond], rtol=1e-3)
    low, high = model.predict_interval(X[beyond], coverage=0.9)
    assert interval_coverage(y[beyond], low, high) >= 0.75
