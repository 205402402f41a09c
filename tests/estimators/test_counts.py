"""SWSGPRegressor for counts: their law, and its training."""

import pickle
import re

import numpy as np
import pytest
from helpers import ADAM, make
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skswsgp import SWSGPRegressor
from skswsgp.joint.predictions import draw_counts
from skswsgp.metrics import get_scorer
from skswsgp.noise import Counts

POISSON = np.full(1, np.inf)  # the size of Poisson counts
FEW = {"n_inducing": 20, "n_neighbors": 20}
SOLVERS = {"natural": {}, "adam": ADAM | FEW | {"learning_rate": 0.05, "max_iter": 80}}


def low_counts(n=600, n_outputs=0):
    """Return X, counts and their rates, of a mean near 1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    rate = np.exp(np.sin(2.0 * X[:, 0]) - 0.3)
    if n_outputs:
        rate = np.stack([rate, 3.0 * rate[::-1]], axis=1)
    return X, rng.poisson(rate).astype(float), rate


def make_model(**options):
    return make(
        SWSGPRegressor, **{"likelihood": "poisson", "random_state": 0} | options
    )


@pytest.fixture(scope="module", params=SOLVERS)
def fitted(request):
    """Return a model, and rows that it has not seen, with their rates."""
    X, y, rate = low_counts()
    model = make_model(**SOLVERS[request.param]).fit(X[:300], y[:300])
    return model, X[300:], y[300:], rate[300:]


# --- the law --------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("variance", [1e-8, 0.3, 4.0])
@pytest.mark.parametrize("mean", [-2.0, 1.5, 9.0])
def test_law_equals_numerical_integration(mean, variance):
    law = Counts(np.full((1, 1), mean), np.full((1, 1), variance), POISSON)
    z = np.linspace(-9.0, 9.0, 40_001)
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    rate = np.exp(mean + np.sqrt(variance) * z)
    assert_allclose(law.mean, weight @ rate, rtol=1e-6)
    square = weight @ (rate + (rate - weight @ rate) ** 2)
    assert_allclose(law.deviation() ** 2, square, rtol=1e-4)
    center = np.floor(np.exp(mean))
    for k in (0.0, center, center + 3.0, 2.0 * center + 1.0):
        expected = weight @ stats.poisson.cdf(k, rate)
        assert_allclose(law.cdf(np.full((1, 1), k)), expected, atol=2e-5)
        expected = weight @ stats.poisson.pmf(k, rate)
        found = np.exp(law.log_density(np.full((1, 1), k)))
        assert_allclose(found, expected, rtol=2e-3, atol=1e-12)
    assert law.cdf(np.full((1, 1), -1.0)) == 0.0


def test_quantiles_are_the_smallest_counts_of_their_probability():
    mean, variance = np.array([[-3.0], [0.5], [4.0], [11.0]]), np.full((4, 1), 0.4)
    law, levels = Counts(mean, variance, POISSON), [0.01, 0.5, 0.975]
    quantiles = law.quantiles(levels)
    assert quantiles.shape == (4, 1, 3)
    assert_array_equal(quantiles, np.round(quantiles))
    for i, level in enumerate(levels):
        k = quantiles[:, :, i]
        assert np.all(law.cdf(k) >= level)
        assert np.all((k == 0.0) | (law.cdf(k - 1.0) < level))
    exact = Counts(mean, np.zeros((4, 1)), POISSON).quantiles(levels)
    assert_array_equal(exact[:, 0], stats.poisson.ppf(levels, np.exp(mean)))


@pytest.mark.parametrize(("size", "most"), [(np.inf, 2.5), (3.0, 10.0)])
def test_quantiles_start_near_where_they_end(size, most, rng, monkeypatch):
    """A probability is an integral, so few counts are asked for theirs."""
    asked, cdf = [], Counts.cdf

    def counted(law, k):
        asked.append(k.size)
        return cdf(law, k)

    monkeypatch.setattr(Counts, "cdf", counted)
    law = Counts(
        rng.normal(3.0, 1.5, (100, 1)), np.full((100, 1), 0.3), np.full(1, size)
    )
    law.quantiles([0.05, 0.5, 0.95])
    assert sum(asked) < 300 * most


def test_outputs_may_differ_in_their_size(rng):
    mean, variance = rng.normal(2.0, 1.0, (2, 5, 2))
    variance, sizes = variance**2, np.array([np.inf, 2.0])
    quantiles = Counts(mean, variance, sizes).quantiles([0.1, 0.9])
    for q in range(2):
        alone = Counts(mean[:, [q]], variance[:, [q]], sizes[[q]]).quantiles([0.1, 0.9])
        assert_array_equal(quantiles[:, [q]], alone)


@pytest.mark.parametrize(
    ("mean", "error"), [(0.5, 1e-6), pytest.param(8.0, 0.02, marks=pytest.mark.full)]
)
def test_crps_agrees_with_draws(mean, error, rng):
    law = Counts(np.full((1, 1), mean), np.full((1, 1), 0.3), POISSON)
    f = mean + np.sqrt(0.3) * rng.normal(size=200_000)
    draws = np.sort(draw_counts(f[None, None], POISSON, rng)[0, 0])
    ranks = 2.0 * np.arange(len(draws)) - len(draws) + 1.0
    spread = np.sum(ranks * draws) / len(draws) ** 2  # E|Y - Y'| / 2
    for y in (0.0, np.round(np.exp(mean)), 3.0 * np.round(np.exp(mean))):
        expected = np.mean(np.abs(draws - y)) - spread
        found = law.crps(np.full((1, 1), y))[0, 0]
        assert_allclose(found, expected, rtol=error + 0.01)
    if mean < 1.0:
        k = np.arange(200.0)[:, None]
        cdf = Counts(np.full_like(k, mean), np.full_like(k, 0.3), POISSON).cdf(k)
        assert_allclose(law.crps(np.full((1, 1), 2.0)), np.sum((cdf - (k >= 2)) ** 2))


def test_huge_rates_stay_finite():
    law = Counts(np.array([[50.0, 1e4]]), np.array([[2.0, 1e4]]), np.full(2, np.inf))
    y = np.array([[1e20, 3.0]])
    values = law.mean, law.deviation(), law.log_density(y), law.quantiles([0.5])
    assert all(np.isfinite(value).all() for value in values)
    drawn = draw_counts(law.latent_mean[:, :, None], law.size, np.random.default_rng(0))
    assert np.isfinite(drawn).all()


# --- the estimator --------------------------------------------------------------------


def test_predictions_are_those_of_the_law(fitted):
    model, X, y, _ = fitted
    mean, variance = model.latent_mean_and_variance(X)
    law = Counts(mean[:, None], variance[:, None], POISSON)
    found, std = model.predict(X, return_std=True)
    assert_allclose(found, law.mean[:, 0])
    assert_allclose(model.predict(X), found)
    assert_allclose(std, law.deviation()[:, 0])
    quantiles = model.predict(X, quantiles=[0.1, 0.9])
    assert_array_equal(quantiles, law.quantiles([0.1, 0.9])[:, 0])
    density = model.log_predictive_density(X, y)
    assert_allclose(density, law.log_density(y[:, None])[:, 0])
    assert_allclose(get_scorer("neg_log_density")(model, X, y), density.mean())
    crps = law.crps(y[:, None]).mean()
    assert_allclose(get_scorer("neg_crps")(model, X, y), -crps)


def test_rates_are_recovered(fitted):
    model, X, y, rate = fitted
    assert np.sqrt(np.mean((model.predict(X) - rate) ** 2)) < 0.3
    best = stats.poisson.logpmf(y, rate).mean()
    assert model.log_predictive_density(X, y).mean() > best - 0.06
    assert model.score(X, y) > 0.15  # the rates themselves reach 0.28
    assert not hasattr(model, "noise_variance_")
    assert not hasattr(model, "predictive_law_")


def test_intervals_hold_what_they_promise(fitted):
    model, X, y, _ = fitted
    lower, upper = model.predict_interval(X, 0.9)
    assert 0.88 < np.mean((lower <= y) & (y <= upper)) < 0.99  # counts are few values


def test_low_counts_are_likelier_than_under_a_gaussian(fitted):
    model, X, y, _ = fitted
    rows, counts, _ = low_counts()
    other = SWSGPRegressor(predictive="gaussian", random_state=0)
    law = stats.norm(*other.fit(rows[:300], counts[:300]).predict(X, return_std=True))
    below = np.where(y == 0.0, 0.0, law.cdf(y - 0.5))  # no count is negative
    gaussian = np.log(law.cdf(y + 0.5) - below)  # of the number rounded to a count
    assert model.log_predictive_density(X, y).mean() > gaussian.mean() + 0.05


def test_draws_have_the_moments_of_the_law(fitted):
    model, X, _, _ = fitted
    draws = model.sample_y(X[:10], 2000, random_state=0)
    assert draws.shape == (10, 2000)
    assert_array_equal(draws, np.round(draws))
    mean, std = model.predict(X[:10], return_std=True)
    assert_allclose(draws.mean(axis=1), mean, atol=5.0 * std.max() / np.sqrt(2000))
    assert_allclose(draws.std(axis=1), std, rtol=0.15)


def test_pickles_predict_the_same(fitted):
    model, X, _, _ = fitted
    other = pickle.loads(pickle.dumps(model))
    assert_array_equal(other.predict(X), model.predict(X))


def test_outputs_are_independent_of_each_other():
    X, y, _ = low_counts(200, n_outputs=2)
    model = make_model(learn_kernel=False).fit(X, y)
    assert model.predict(X).shape == (200, 2)
    assert model.predict(X, quantiles=[0.1, 0.5, 0.9]).shape == (200, 3, 2)
    assert model.sample_y(X[:5], 3).shape == (5, 2, 3)
    assert_allclose(model.predict(X).mean(axis=0), y.mean(axis=0), rtol=0.1)
    assert model.log_predictive_density(X, y).shape == (200, 2)


@pytest.mark.parametrize("options", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("level", [0.0, 1.0, 1e5])
def test_any_level_of_counts_can_be_fitted(options, level, rng):
    X = rng.uniform(-3.0, 3.0, size=(80, 1))
    y = rng.poisson(level * np.exp(np.sin(X[:, 0]))).astype(float)
    y[:2] *= 50.0
    model = make_model(**options | {"learn_kernel": False}).fit(X, y)
    assert np.isfinite(model.predict(X, return_std=True)).all()
    far = model.predict([[1e4]])
    assert far > 0.0
    if not options:  # Adam changes the kernel's variance, but not the prior mean
        assert_allclose(far, max(y.mean(), 0.5 / 80), rtol=0.01)


@pytest.mark.parametrize("level", [100.0, 1e5])
def test_rounds_find_the_optimum_for_counts_of_all_sizes(level, rng):
    X = rng.uniform(-3.0, 3.0, size=(200, 1))
    rate = level * np.exp(3.0 * np.sin(2.0 * X[:, 0]))
    y = rng.poisson(rate).astype(float)
    model = make_model(learn_kernel=False, covariance="full").fit(X, y)
    bound = model.lower_bound(X, y)
    assert model.n_iter_ < 10  # from the prior it takes 14 to 18
    assert np.abs(np.log(model.predict(X) / rate)).mean() < 0.06
    again = model.set_params(warm_start=True).fit(X, y)
    assert_allclose(again.lower_bound(X, y), bound, atol=0.2)
    diagonal = make_model(learn_kernel=False).fit(X, y)
    assert np.abs(np.log(diagonal.predict(X) / rate)).mean() < 0.06


def test_expected_count_far_from_data_is_the_weighted_mean(rng):
    X, y, _ = low_counts(200)
    weight = rng.uniform(0.5, 2.0, size=200)
    model = make_model().fit(X, y, sample_weight=weight)
    expected = np.average(y, weights=weight)
    for scale in (model.variance_scale_, 0.3):
        model.variance_scale_ = scale
        assert_allclose(model.predict([[1e5]]), expected, rtol=1e-3)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("likelihood", "most"), [("poisson", 1.15), ("negative_binomial", 1.2)]
)
@pytest.mark.parametrize("n_columns", [1, 2])
@pytest.mark.parametrize("size", [1e3, 1e5, 1e7])
def test_large_counts_have_the_width_of_their_law(
    size, n_columns, likelihood, most, rng
):
    def rate(X):
        return size * np.exp(0.5 + 0.7 * X[:, 0])

    X, new = rng.normal(size=(150, n_columns)), rng.normal(size=(400, n_columns))
    model = make_model(likelihood=likelihood).fit(X, rng.poisson(rate(X)))
    width = np.subtract(*model.predict_interval(new, coverage=0.9)[::-1])
    expected = np.subtract(*stats.poisson.interval(0.9, rate(new))[::-1])
    assert 0.9 < np.median(width / expected) < most


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize("log_size", [10.0, 13.0, 16.0])
def test_large_counts_that_held_out_rows_judge_have_the_width_of_their_law(log_size):
    """q(f) of a small shape is uncertain, and hides how large the shape is."""
    rng = np.random.default_rng(700)
    X = rng.uniform(-2.0, 2.0, (1200, 3))
    rate = np.exp(log_size + np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1])
    model = make_model(likelihood="negative_binomial")
    model.fit(X[:700], rng.poisson(rate[:700]))
    width = np.subtract(*model.predict_interval(X[700:], coverage=0.9)[::-1])
    expected = np.subtract(*stats.poisson.interval(0.9, rate[700:])[::-1])
    assert 0.9 < np.median(width / expected) < 1.15


def test_counts_beyond_rounding_warn_and_name_the_way_out(rng):
    X = rng.normal(size=(60, 1))
    counts = rng.poisson(1e10 * np.exp(X[:, 0]))
    with pytest.warns(UserWarning, match=r"counts near .*y_transform='log'"):
        make_model().fit(X, counts)


def test_weights_count_observations(rng):
    X, y, _ = low_counts(100)
    weight = rng.integers(1, 3, size=100).astype(float)
    model = make_model(learn_kernel=False).fit(X, y)
    copies = np.repeat(np.arange(100), weight.astype(int))
    bound = model.lower_bound(X, y, sample_weight=weight)
    assert_allclose(bound, model.lower_bound(X[copies], y[copies]))


def test_streams_of_counts():
    X, y, rate = low_counts()
    model = make_model(**FEW)
    for part in np.split(np.arange(300), 3):
        model.partial_fit(X[part], y[part])
    assert np.corrcoef(model.predict(X[300:]), rate[300:])[0, 1] > 0.8


# --- counts of other laws, and exposures ----------------------------------------------


def overdispersed(n=600, size=2.0):
    """Return X, counts, their rates and exposures, for a size of their law."""
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-3.0, 3.0, size=(n, 1)), rng.uniform(0.2, 5.0, size=n)
    rate = np.exp(np.sin(2.0 * X[:, 0]))
    gamma = rng.gamma(size, 1.0 / size, n)
    return X, rng.poisson(exposure * rate * gamma).astype(float), rate, exposure


@pytest.mark.parametrize("size", [0.4, 6.0])
def test_law_of_negative_binomials_equals_numerical_integration(size):
    mean, variance = 1.5, 0.3
    law = Counts(np.full((1, 1), mean), np.full((1, 1), variance), np.full(1, size))
    z = np.linspace(-9.0, 9.0, 20_001)
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    rate = np.exp(mean + np.sqrt(variance) * z)
    given = stats.nbinom(size, size / (size + rate))
    assert_allclose(law.mean, weight @ rate, rtol=1e-6)
    square = weight @ (given.var() + (rate - weight @ rate) ** 2)
    assert_allclose(law.deviation() ** 2, square, rtol=1e-5)
    for k in (0.0, 4.0, 30.0):
        at = np.full((1, 1), k)
        assert_allclose(law.cdf(at), weight @ given.cdf(k), atol=2e-5)
        expected = weight @ given.pmf(k)
        assert_allclose(np.exp(law.log_density(at)), expected, rtol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SOLVERS["natural"], id="natural", marks=pytest.mark.full),
        pytest.param(SOLVERS["adam"], id="adam"),
    ],
)
def test_overdispersed_counts_need_a_negative_binomial(options):
    X, y, rate, exposure = overdispersed()
    train, test = slice(0, 400), slice(400, 600)
    densities = {}
    for likelihood in ("poisson", "negative_binomial"):
        model = make_model(**options | {"learn_kernel": True, "likelihood": likelihood})
        model.fit(X[train], y[train], exposure=exposure[train])
        rows = {"exposure": exposure[test]}
        density = model.log_predictive_density(X[test], y[test], **rows)
        densities[likelihood] = density.mean()
    assert densities["negative_binomial"] > densities["poisson"] + 0.1
    assert 1.0 < model.likelihood_shape_[0] < 5.0  # the truth is 2
    lower, upper = model.predict_interval(X[test], 0.9, **rows)
    assert 0.86 < np.mean((lower <= y[test]) & (y[test] <= upper)) < 0.99
    draws = model.sample_y(X[test], 400, **rows)
    mean, std = model.predict(X[test], return_std=True, **rows)
    assert_allclose(draws.mean(axis=1), mean, atol=6.0 * std.max() / 20.0)
    assert np.sqrt(np.mean((model.predict(X[test]) - rate[test]) ** 2)) < 0.4


def test_few_counts_learn_their_size_by_the_bound():
    X, y, _, exposure = overdispersed(120)
    model = make_model(likelihood="negative_binomial")
    assert 0.5 < model.fit(X, y, exposure=exposure).likelihood_shape_[0] < 10.0
    model.set_params(likelihood_shape=2.5).fit(X, y, exposure=exposure)
    assert_array_equal(model.likelihood_shape_, [2.5])


def test_exposures_multiply_rates():
    X, y, rate, exposure = overdispersed()
    y = np.random.default_rng(1).poisson(exposure * rate).astype(float)
    model = make_model(learn_kernel=False).fit(X, y, exposure=exposure)
    assert np.abs(np.log(model.predict(X) / rate)).mean() < 0.12
    assert_allclose(model.predict(X, exposure=exposure), exposure * model.predict(X))
    bounds = [model.lower_bound(X, y, exposure=e) for e in (exposure, None)]
    assert bounds[0] > bounds[1] + 100.0
    draws = model.sample_y(X[:3], 9, exposure=[1, 2, 3])
    assert draws.shape == (3, 9)
    X, y, exposure = X[:150], y[:150], exposure[:150]
    model = make_model(learn_kernel=False).fit(X, y, exposure=exposure)
    scaled = make_model(learn_kernel=False).fit(X, y, exposure=10.0 * exposure)
    assert_allclose(10.0 * scaled.predict(X), model.predict(X), rtol=1e-5)
    weight = np.where(np.arange(150) < 30, 0.0, 1.0)
    part = make_model(learn_kernel=False).fit(X, y, weight, exposure=exposure)
    same = make_model(learn_kernel=False).fit(X[30:], y[30:], exposure=exposure[30:])
    assert_allclose(part.predict(X), same.predict(X), rtol=1e-6)


def test_exposures_may_be_a_series():
    pandas = pytest.importorskip("pandas")
    X, y, _, exposure = overdispersed(60)
    rows = {"exposure": pandas.Series(exposure)}
    model = make_model(learn_kernel=False).fit(X, y, **rows)
    assert model.sample_y(X, 3, **rows).shape == (60, 3)
    assert_array_equal(model.predict(X, **rows), model.predict(X, exposure=exposure))


def test_exposures_of_chunks():
    X, y, _, exposure = overdispersed(300)
    model = make_model(**FEW)
    for part in np.split(np.arange(300), 3):
        model.partial_fit(X[part], y[part], exposure=exposure[part])
    expected = np.sum(y) / np.sum(exposure)
    assert_allclose(model.predict([[1e5]]), expected, rtol=0.5)


# --- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exposure", "message"),
    [
        ([1.0, 2.0], r"exposure has shape \(2,\): expected \(50,\), one number for"),
        (np.r_[0.0, np.ones(49)], "exposure holds 0.0: expected a positive number"),
        (["a"] * 50, "exposure cannot be read as numbers .*: expected 50 positive"),
    ],
)
def test_wrong_exposures_are_refused(exposure, message):
    X, y, _ = low_counts(50)
    with pytest.raises(ValueError, match=message):
        make_model(learn_kernel=False).fit(X, y, exposure=exposure)
    model = make_model(learn_kernel=False).fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict(X, exposure=exposure)


def test_other_targets_have_no_exposure():
    X, y, _ = low_counts(50)
    model = SWSGPRegressor(learn_kernel=False)
    with pytest.raises(ValueError, match="exposure came with likelihood='gaussian': e"):
        model.fit(X, y, exposure=np.ones(50))
    with pytest.raises(ValueError, match="exposure came with likelihood='gaussian': e"):
        model.fit(X, y).predict_interval(X, exposure=np.ones(50))


@pytest.mark.parametrize(
    ("likelihood", "shape", "expected"),
    [
        ("poisson", 2.0, "expected 'auto'"),
        ("negative_binomial", 1e11, "expected 0.01 to 1e+10, or 'auto'"),
        ("student_t", 1.5, "expected 2.05 to 200, or 'auto'"),
    ],
)
def test_wrong_shapes_are_refused(likelihood, shape, expected):
    X, y, _ = low_counts(50)
    model = SWSGPRegressor(likelihood=likelihood, likelihood_shape=shape)
    message = f"likelihood_shape={shape} with likelihood='{likelihood}': {expected}"
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(X, y)


@pytest.mark.parametrize("wrong", [-1.0, 0.5])
def test_numbers_that_are_no_counts_are_refused(wrong):
    X, y, _ = low_counts(50)
    model = make_model(learn_kernel=False).fit(X, y)
    y[3] = wrong
    for method in (model.fit, model.lower_bound, model.log_predictive_density):
        with pytest.raises(ValueError, match=f"y holds {wrong:g} with .* expected cou"):
            method(X, y)


def test_covariances_are_refused():
    X, y, _ = low_counts(50)
    model = make_model(learn_kernel=False).fit(X, y)
    with pytest.raises(ValueError, match="return_cov=True with likelihood='poisson'"):
        model.predict(X, return_cov=True)


@pytest.mark.parametrize(
    ("before", "after"), [("gaussian", "poisson"), ("poisson", "gaussian")]
)
def test_a_fitted_model_keeps_its_likelihood(before, after):
    X, y, _ = low_counts(50)
    model = SWSGPRegressor(learn_kernel=False, likelihood=before).fit(X, y)
    model.set_params(likelihood=after, warm_start=True)
    for method in (lambda X, y: model.predict(X), model.lower_bound, model.fit):
        with pytest.raises(ValueError, match=f"that was fitted with '{before}': expec"):
            method(X, y)
    model.set_params(warm_start=False).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_counts_have_neither_another_scale_nor_rows_left_out():
    X, y, _ = low_counts(60)
    with pytest.raises(ValueError, match="y_transform='log' with likelihood='poisson'"):
        make_model(y_transform="log").fit(X, y)
    fitted = make_model(warm_start=True).fit(X, y).set_params(y_transform="log")
    with pytest.raises(ValueError, match="y_transform='log' for a model that was fit"):
        fitted.fit(X, y)
    model = make_model().fit(X, y)
    assert not hasattr(model, "leave_one_out_")


def test_counts_predict_with_attributes_set_by_hand():
    """The prior mean may be missing, which stands for 0, and the shape may not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    fitted = SWSGPRegressor(likelihood="negative_binomial", random_state=0)
    fitted.fit(X, rng.poisson(3.0, 60))
    model = pickle.loads(pickle.dumps(fitted))
    del model.prior_mean_
    factor = np.exp(fitted.prior_mean_)
    assert_allclose(model.predict(X) * factor, fitted.predict(X))
    del model.likelihood_shape_
    with pytest.raises(AttributeError, match="likelihood_shape_"):
        model.predict(X, quantiles=0.9)
