"""What training rows have shown, and rows of levels that they never had."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from skswsgp import ExtrapolationWarning, SWSGPClassifier, SWSGPRegressor
from skswsgp._rows.column_scale import fit_columns
from skswsgp._rows.support import at_known_levels, find_support

K = 12  # levels of training rows


def one_hot(levels, k=K):
    return np.eye(10 * k)[levels][:, :k]  # zeros at a new level


def codes(levels, k=K):
    return np.where(levels < k, levels, -1.0)[:, None]


def make_rows(encode=one_hot, n=300, k=K, seed=0, new=False):
    """Return X, y and the levels of rows, whose levels have effects of spread 1."""
    rng = np.random.default_rng(seed)
    effect = np.random.default_rng(5).normal(size=10 * k)
    levels = rng.integers(k, 10 * k, n) if new else np.arange(n) % k
    x = rng.random(n)
    y = effect[levels] + np.sin(5 * x) + 0.3 * rng.normal(size=n)
    return np.column_stack([encode(levels, k), x]), y, levels


@pytest.fixture(scope="module")
def model():
    X, y, _ = make_rows()
    return SWSGPRegressor(random_state=0).fit(X, y)


@pytest.mark.parametrize("scale", [None, "yeo-johnson", "ranks", "levels"])
def test_blocks_of_columns_are_categories(rng, scale):
    first, second = np.eye(4)[np.arange(60) % 4], np.eye(5)[rng.integers(0, 3, 60)]
    flag, x = rng.integers(0, 2, (60, 1)), rng.normal(size=(60, 1))
    X = np.hstack(
        [flag, first, second, x, (np.arange(60) % 6)[:, None], flag, 1 - flag]
    )
    columns = None if scale is None else fit_columns(scale, X, np.ones(60))
    support = find_support(X, columns)
    places = [one.columns[one.columns < X.shape[1]] for one in support.categories]
    # two columns of the second block never were 1, and the last two are a block
    expected = np.arange(1, 5), np.arange(5, 10), [12, 13], [11]
    for found, place in zip(places, expected, strict=True):
        assert_array_equal(found, place)
    assert [len(one.levels) for one in support.categories] == [4, 3, 2, 6]
    scaled = X if columns is None else columns.forward(X)
    assert not any(one.is_new(scaled).any() for one in support.categories)
    unknown = X.copy()
    unknown[0, 1:5] = unknown[1, 5:10] = unknown[2, 12:] = 0.0
    unknown[3, 11], unknown[4, 5:10] = -1.0, [0.0, 0.0, 0.0, 1.0, 0.0]
    scaled = unknown if columns is None else columns.forward(unknown)
    new = np.stack([one.is_new(scaled) for one in support.categories])
    assert_array_equal(np.argwhere(new), [[0, 0], [1, 1], [1, 4], [2, 2], [3, 3]])


def test_columns_that_are_no_block_are_no_category(rng):
    X = np.hstack([np.eye(3)[np.arange(30) % 3], rng.normal(size=(30, 1))])
    X[7, :3] = 0.0  # a level that training had
    assert find_support(X, None).categories == ()
    X[7, :3] = [1.0, 1.0, 0.0]
    assert find_support(X, None).categories == ()
    X[:, 0] = np.arange(30) % 6 + 1  # no codes from 0
    assert find_support(X, None).categories == ()


def test_a_new_level_has_the_spread_of_known_ones(rng):
    X, *_ = make_rows()
    effect = rng.normal(size=K)
    (category,) = find_support(X, None).categories
    assert len(category.levels) == K

    def moments(X):  # a level and a slope, known with the variance 0.1
        return (X[:, :K] @ effect + 2.0 * X[:, K])[:, None], np.full((len(X), 1), 0.1)

    unknown, *_ = make_rows(n=5, new=True)
    rows = np.concatenate([X[:4], unknown])
    mean, variance = moments(rows)
    before = mean.copy()
    new = at_known_levels(rows, (category,))
    new.put(mean, variance, [moments(Z) for Z in new.versions])
    assert_array_equal(new.rows, np.arange(4, 9))
    assert_array_equal(mean[:4], before[:4])
    assert_array_equal(variance[:4], 0.1)
    assert_allclose(mean[4:, 0], effect.mean() + 2.0 * unknown[:, K])
    wider = (stats.t.ppf(0.95, K - 1) / stats.norm.ppf(0.95)) ** 2
    assert_allclose(variance[4:], 0.1 + effect.var(ddof=1) * (1 + 1 / K) * wider)
    assert at_known_levels(X, (category,)) is None


@pytest.mark.parametrize("k", [2, 3, 5, 12])
def test_intervals_of_the_formula_hold_for_any_number_of_levels(rng, k):
    held = []
    X = np.eye(k)[np.arange(4 * k) % k]
    (category,) = find_support(X, None).categories
    for _ in range(2000):
        effect = rng.normal(size=k)
        mean, variance = np.zeros((1, 1)), np.zeros((1, 1))
        new = at_known_levels(np.zeros((1, k)), (category,))
        found = [((Z @ effect)[:, None], np.zeros((1, 1))) for Z in new.versions]
        new.put(mean, variance, found)
        held.append(abs(rng.normal() - mean[0, 0]) < 1.645 * np.sqrt(variance[0, 0]))
    assert_allclose(np.mean(held), 0.9, atol=0.02)


def test_one_known_level_is_no_category():
    X = np.column_stack([np.ones(20), np.zeros(20), np.arange(20.0)])
    assert find_support(X, None).categories == ()


def test_levels_of_two_categories_are_drawn_apart(rng):
    """Effects of teams at home and away cancel where both are the same team."""
    k, n = 20, 400
    home, away = rng.integers(0, k, (2, n))
    strength = rng.normal(size=10 * k)
    X = np.hstack([np.eye(k)[home], np.eye(k)[away]])
    y = strength[home] - strength[away] + 0.3 * rng.normal(size=n)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    std = model.predict(np.zeros((1, 2 * k)), return_std=True)[1]
    assert 1.0 < std < 2.2  # 1.45 for teams of spread 1


def test_whole_numbers_go_on_at_minus_one(rng):
    x, z = rng.integers(0, 31, 300), rng.random(300)
    y = 0.5 * x + z + 0.2 * rng.normal(size=300)
    model = SWSGPRegressor(random_state=0).fit(np.column_stack([x, z]), y)
    mean, std = model.predict([[-1.0, 0.5]], return_std=True)
    assert abs(mean) < 0.6
    assert std < 0.6
    assert find_support(np.arange(300.0)[:, None], None).categories == ()


def test_scaled_columns_are_categories_too():
    X, y, _ = make_rows()
    model = make_pipeline(StandardScaler(), SWSGPRegressor(random_state=0)).fit(X, y)
    new, *_ = make_rows(n=5, new=True)
    assert (model.predict(new, return_std=True)[1] > 0.7).all()


@pytest.mark.parametrize("n_columns", [900])
def test_wide_tables_of_zeros_and_ones_take_no_time(rng, n_columns):
    for X in (
        np.eye(n_columns)[np.arange(5 * n_columns) % n_columns],
        (rng.random((5 * n_columns, n_columns)) < 0.002).astype(float),
    ):
        started = time.process_time()
        find_support(X, None)
        assert time.process_time() - started < 1.0


@pytest.mark.parametrize("encode", [one_hot, codes])
def test_intervals_of_new_levels_hold(encode):
    X, y, _ = make_rows(encode)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    new, truth, _ = make_rows(encode, n=1000, seed=1, new=True)
    lower, upper = model.predict_interval(new, coverage=0.9)
    assert 0.8 < np.mean((lower <= truth) & (truth <= upper)) < 0.97
    mean, std = model.predict(new, return_std=True)
    assert_allclose(mean, model.predict(new))
    assert 0.8 < np.median(std) < 1.4
    known, truth, _ = make_rows(encode, n=1000, seed=1)
    assert np.median(model.predict(known, return_std=True)[1]) < 0.45
    assert model.is_novel(new).all()
    assert not model.is_novel(known).any()


def test_known_levels_stay_as_they_are(model, monkeypatch):
    known, *_ = make_rows(n=50, seed=2)
    before = model.predict(known, return_std=True)
    monkeypatch.setattr(model, "_support", model._support._replace(categories=()))
    for one, other in zip(before, model.predict(known, return_std=True), strict=True):
        assert_array_equal(one, other)


def test_new_levels_have_their_spread_behind_a_logarithm_too():
    rng, k = np.random.default_rng(3), 5
    level = np.r_[np.repeat(np.arange(k), 12), np.full(30, k)]  # the last one is new
    x = rng.normal(size=len(level))
    t = 2.0 * rng.normal(size=k + 1)[level] + np.sin(2.0 * x)
    t += 0.3 * rng.normal(size=len(t))
    X = np.column_stack([level[:, None] == np.arange(k), x]).astype(float)
    n, widths = 12 * k, []
    for y, transform in ((t, None), (np.exp(t), "log")):
        model = SWSGPRegressor(y_transform=transform, random_state=0).fit(X[:n], y[:n])
        middle = model.predict(X, quantiles=[0.3, 0.7])[n:]
        middle = middle if transform is None else np.log(middle)
        widths.append(np.diff(middle).mean())
    assert_allclose(*widths, rtol=0.1)


def test_far_rows_of_new_levels_are_bounded_behind_a_logarithm(rng):
    k, n = 5, 100
    X = np.column_stack([np.eye(k)[np.arange(n) % k], rng.normal(size=n)])
    t = np.arange(n) % k + 0.3 * rng.normal(size=n)
    kernel = ConstantKernel(100.0) * RBF([1.0] * (k + 1))  # of far too large variance
    model = SWSGPRegressor(kernel, learn_kernel=False, y_transform="log")
    model.fit(X, np.exp(t))
    far = np.column_stack([[np.eye(k)[0], np.zeros(k)], [1e3, 1e3]])
    low = np.log(model.predict(np.concatenate([X, far]), quantiles=[0.05, 0.5])[n:])
    widths = (low[:, 1] - low[:, 0]) / t.std()
    wider = stats.t.ppf(0.95, k - 1) / stats.norm.ppf(0.95)
    most = np.sqrt([1.0, 1.0 + (k + 1.0) / (k - 1.0) * wider**2])
    usual = stats.t.ppf(0.95, n - 1) * np.sqrt(1.0 + 1.0 / n)
    assert_allclose(widths, usual * most, rtol=0.02)


def test_draws_and_slopes_at_new_levels(model):
    new = np.zeros((8, K + 1))
    new[:, K] = np.linspace(0.1, 0.9, 8)
    mean, variance = model.latent_mean_and_variance(new)
    draws = model.sample_f(new, 1000)
    assert_allclose(draws.std(axis=1), np.sqrt(variance), rtol=0.1)
    assert_allclose(draws.mean(axis=1), mean, atol=0.1)
    _, std = model.predict(new, return_std=True)
    _, cov = model.predict(new, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=0.05)
    # an effect of the level is the same along the other column
    noise = model.noise_variance_ * model.y_scale_**2
    root = np.sqrt(np.diag(cov) - noise)
    assert ((cov - noise * np.eye(8)) / (root[:, None] * root)).min() > 0.9
    assert np.corrcoef(draws).min() > 0.9
    slopes = model.predict_gradient(new)
    step = 1e-4 * np.eye(K + 1)[K]
    ends = (model.latent_mean_and_variance(new + s * step)[0] for s in (1, -1))
    assert_allclose(slopes[:, K], -np.subtract(*reversed(list(ends))) / 2e-4, atol=1e-2)


def test_slopes_at_new_levels_are_known_about_as_well_as_at_known_ones():
    new = np.zeros((8, K + 1))
    new[:, K] = np.linspace(0.1, 0.9, 8)
    ratios = []
    for seed in range(4):
        X, y, _ = make_rows(seed=seed)
        model = SWSGPRegressor(random_state=0).fit(X, y)
        deviations, usual = (
            model.predict_gradient(rows, return_std=True)[1][:, K]
            for rows in (new, new + np.eye(K + 1)[0])
        )
        ratios.append(deviations / usual)
    assert_allclose(np.mean(ratios), 1.0, rtol=0.5)


def test_labels_of_new_levels_are_uncertain():
    X, y, _ = make_rows()
    model = SWSGPClassifier(random_state=0).fit(X, y > np.median(y))
    new, *_ = make_rows(n=200, seed=1, new=True)
    known, *_ = make_rows(n=200, seed=1)
    sure = np.abs(model.predict_proba(known)[:, 1] - 0.5).mean()
    with pytest.warns(ExtrapolationWarning, match="of 200 rows of X lie where"):
        proba = model.predict_proba(new)[:, 1]
    assert np.abs(proba - 0.5).mean() < 0.6 * sure


def test_encoders_of_scikit_learn():
    levels = np.arange(400) % 10
    new = np.arange(10, 20)[:, None]
    ignore = {"handle_unknown": "ignore", "sparse_output": False}
    code = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    for encoder in (
        OneHotEncoder(**ignore),
        OneHotEncoder(**ignore, min_frequency=30),
        OrdinalEncoder(**code),
    ):
        rows = encoder.fit_transform(levels[:, None])
        found = find_support(rows, None).categories
        assert len(found) == 1
        assert found[0].is_new(encoder.transform(new)).all()


def test_rows_far_outside_the_training_range_are_novel(model):
    known, *_ = make_rows(n=20, seed=2)
    assert not model.is_novel(known).any()
    for shift, novel in ((0.9, False), (3.0, True), (-3.0, True)):
        assert (model.is_novel(known + shift * np.eye(K + 1)[K]) == novel).all()


def test_rows_of_a_hole_are_novel():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    X = X[np.max(np.abs(X - 0.5), axis=1) > 0.35]
    kernel = ConstantKernel(1.0) * RBF(0.05, "fixed")
    model = SWSGPRegressor(kernel, random_state=0).fit(X, np.sin(20 * X[:, 0]))
    assert model.is_novel(np.array([[0.5, 0.5], [0.45, 0.5]])).all()
    assert model.is_novel(X).mean() < 0.2
