"""The law of observations that a regressor learns from its residuals."""

import functools
import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared
from sklearn.pipeline import make_pipeline

from skswsgp import SWSGPRegressor
from skswsgp._fit import solve
from skswsgp._law import student
from skswsgp.kernels import OnColumns
from skswsgp.metrics import get_scorer, interval_score

NOISES = {
    "even": lambda rng, x: 0.2 * rng.normal(size=len(x)),
    "growing": lambda rng, x: 0.4 * x * rng.normal(size=len(x)),
    "heavy": lambda rng, x: 0.1 * rng.standard_t(3, size=len(x)),
    "two levels": lambda rng, x: (
        np.where(rng.random(len(x)) < x, 2.0, 0.0) + 0.05 * rng.normal(size=len(x))
    ),
    "skewed": lambda rng, x: 0.5 * rng.exponential(size=len(x)),
    "short tails": lambda rng, x: rng.uniform(-1.0, 1.0, len(x)),
    "unlike rows": lambda rng, x: (
        np.where(rng.random(len(x)) < 0.5, 0.1, 0.5) * rng.normal(size=len(x))
    ),
}
SHAPES = ["skewed", "short tails", "unlike rows"]


def make_rows(noise, n, seed=0):
    """Return X (n, 2) in [0, 1], of which the first column decides on the noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + NOISES[noise](rng, X[:, 0])
    return X, 10 * y + 3


def fit(noise, n, **params):
    X, y = make_rows(noise, n)
    return make(SWSGPRegressor, y_transform=None, random_state=0, **params).fit(X, y)


MANY, FEW = 1500, 400  # rows of models for claims of accuracy, and for all others


@functools.cache
def model_of(noise, predictive="auto", n=FEW):
    """Return a model of n rows with or without a law, fitted once in a process."""
    return fit(noise, n, predictive=predictive, n_jobs=1)


@pytest.mark.parametrize("noise", NOISES)
def test_means_are_those_of_the_process(noise):
    X, _ = make_rows(noise, 50, seed=1)
    with_law, without = model_of(noise), model_of(noise, "gaussian")
    assert_array_equal(with_law.predict(X), without.predict(X))
    assert_array_equal(
        with_law.predict(X, return_std=True)[0], without.predict(X, return_std=True)[0]
    )
    assert not hasattr(without, "predictive_law_")


def test_even_noise_has_the_same_scale_everywhere():
    law = model_of("even").predictive_law_
    assert_array_equal(law.degrees_of_freedom, np.inf)
    assert_allclose(*law.scale_range)
    assert law.density is None


@pytest.mark.full
def test_even_noise_keeps_the_gaussian():
    model = model_of("even", n=MANY)
    law = model.predictive_law_
    assert_array_equal(law.degrees_of_freedom, np.inf)
    assert_allclose(law.scale_range, 1.0)
    assert law.density is None
    assert "degrees of freedom inf; scales 1 to 1" in repr(law)
    X, _ = make_rows("even", 50, seed=1)
    _, std = model.predict(X, return_std=True)
    gaussian = model_of("even", "gaussian", MANY)
    assert_array_equal(std, gaussian.predict(X, return_std=True)[1])


def test_widths_follow_noise_that_grows():
    X, _ = make_rows("growing", 1000, seed=1)
    model, low = model_of("growing"), X[:, 0] < 0.3
    lower, upper = model.predict_interval(X)
    assert (upper - lower)[~low].mean() > 2.5 * (upper - lower)[low].mean()
    low, high = model.predictive_law_.scale_range
    assert high > 3 * low


@pytest.mark.full
def test_intervals_follow_noise_that_grows():
    X, y = make_rows("growing", 4000, seed=1)
    low = X[:, 0] < 0.3
    for predictive, most in (("auto", 0.04), ("gaussian", 1.0)):
        lower, upper = model_of("growing", predictive, MANY).predict_interval(X)
        held = (lower <= y) & (y <= upper)
        off = max(abs(held[low].mean() - 0.95), abs(held[~low].mean() - 0.95))
        assert off < most
        if predictive == "auto":
            widths = (upper - lower)[low].mean(), (upper - lower)[~low].mean()
            score = interval_score(y, lower, upper)
    assert widths[1] > 2.5 * widths[0]
    assert score < 0.9 * interval_score(y, lower, upper)


def rows_of_ignored(n, seed):
    """Return X (n, 4) and y (n, 2), whose noise moves with a column that f ignores."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 4))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    widths = np.column_stack([np.exp(X[:, 3] - 1.0), 0.1 + 0.4 * np.abs(X[:, 2])])
    return X, f[:, None] + widths * rng.standard_normal((n, 2)), widths


@functools.cache
def model_of_ignored():
    """Return a model of two outputs, which streams of the same rows have as well."""
    X, y, _ = rows_of_ignored(400, 0)
    return make(SWSGPRegressor, random_state=0, n_jobs=1).fit(X, y)


def test_widths_follow_noise_along_columns_that_the_mean_ignores():
    model, (X, y, widths) = model_of_ignored(), rows_of_ignored(4000, 1)
    lower, upper = model.predict_interval(X, coverage=0.9)
    held = (lower <= y) & (y <= upper)
    for q, (places, column) in enumerate(zip(([3], [2]), X.T[[3, 2]], strict=True)):
        assert_array_equal(np.unique(model.predictive_law_.waves[q].places), places)
        assert (
            np.corrcoef(np.log(upper - lower)[:, q], np.log(widths[:, q]))[0, 1] > 0.9
        )
        for part in np.array_split(np.argsort(column), 4):
            assert 0.82 < held[part, q].mean() < 0.97


def test_noise_along_columns_is_that_of_columns_before_a_map():
    X, y, widths = rows_of_ignored(400, 0)
    model = make(SWSGPRegressor, random_state=0, learn_map=True, n_jobs=1)
    model.fit(X, y[:, 0])
    assert not np.array_equal(model.linear_map_, np.eye(4))
    lower, upper = model.predict_interval(X)
    assert np.corrcoef(np.log([upper - lower, widths[:, 0]]))[0, 1] > 0.9


@pytest.mark.full
def test_intervals_hold_where_the_noise_is_large_and_where_it_is_small():
    for seed in range(3):
        X, y, _ = rows_of_ignored(1000, seed)
        model = make(SWSGPRegressor, random_state=0).fit(X, y[:, 0])
        X, y, _ = rows_of_ignored(8000, seed + 10)
        lower, upper = model.predict_interval(X, coverage=0.9)
        held = (lower <= y[:, 0]) & (y[:, 0] <= upper)
        for part in np.array_split(np.argsort(X[:, 3]), 5):
            assert 0.84 < held[part].mean() < 0.95


@pytest.mark.full
def test_heavy_tails_are_found():
    model, gaussian = model_of("heavy", n=MANY), model_of("heavy", "gaussian", MANY)
    assert 3.0 <= model.predictive_law_.degrees_of_freedom[0] < 5.0
    X, y = make_rows("heavy", 4000, seed=1)
    density = [m.log_predictive_density(X, y).mean() for m in (model, gaussian)]
    assert density[0] > density[1] + 0.1
    lower, upper = model.predict_interval(X, 0.5)
    assert 0.46 < np.mean((lower <= y) & (y <= upper)) < 0.54


@pytest.mark.parametrize("noise", SHAPES)
def test_quantiles_hold_their_share_of_errors_of_any_shape(noise):
    X, y = make_rows(noise, 4000, seed=1)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    errors = []
    for predictive in ("auto", "gaussian"):
        quantiles = model_of(noise, predictive, MANY).predict(X, quantiles=levels)
        errors.append(np.mean(y[:, None] < quantiles, axis=0) - levels)
    assert np.abs(errors[0]).max() < 0.035
    assert np.abs(errors[0]).mean() < 0.6 * np.abs(errors[1]).mean()


@pytest.mark.filterwarnings("ignore::skswsgp.ExtrapolationWarning")
def test_a_shape_fades_where_no_row_tells_of_errors():
    """Errors far away are those of the function, which have one bump."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.3 * rng.choice([-1.0, 1.0], 400)
    y += 0.06 * rng.normal(size=400)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert model.predictive_law_.shapes[0].tilt.any()
    for x, fewest, most in ((0.0, 3, 3), (50.0, 1, 1)):
        grid = model.predict([[x]])[0] + np.linspace(-4.0, 4.0, 801)
        density = model.log_predictive_density(np.full((801, 1), x), grid)
        turns = np.count_nonzero(np.diff(np.sign(np.diff(density))))
        assert fewest <= turns <= most  # maxima and minima


def test_tails_and_near_targets_have_a_law():
    """The accuracy of both is a claim of the two tests beside."""
    assert model_of("heavy").predictive_law_.degrees_of_freedom[0] < 10.0
    assert model_of("two levels").predictive_law_.density.share[0] > 0.3


@pytest.mark.full
def test_targets_at_two_levels_get_a_density_with_two_modes():
    X, y = make_rows("two levels", 3000, seed=1)
    model = model_of("two levels", n=MANY)
    assert model.predictive_law_.density.share[0] > 0.3
    scores = {
        name: get_scorer(name)(model, X, y) - get_scorer(name)(other, X, y)
        for other in [model_of("two levels", "gaussian", MANY)]
        for name in ("neg_log_density", "neg_crps", "neg_interval_score")
    }
    assert scores["neg_log_density"] > 0.5
    assert scores["neg_crps"] > 0.0
    assert scores["neg_interval_score"] > -1.0  # of some 36: both intervals hold all


@pytest.mark.full
def test_repeated_values_alone_do_not_make_a_density_of_spikes():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 2))
    y = np.round(20 * (X[:, 0] + X[:, 1])) + 0.01 * rng.normal(size=1500)
    models = [
        SWSGPRegressor(random_state=0, predictive=name).fit(X[:1000], y[:1000])
        for name in ("auto", "gaussian")
    ]
    for name in ("neg_crps", "neg_interval_score"):
        scores = [get_scorer(name)(model, X[1000:], y[1000:]) for model in models]
        assert scores[0] > 1.02 * scores[1]  # both negative


@pytest.mark.parametrize(
    "params",
    [
        {"n_inducing": 8, "n_neighbors": 8},
        pytest.param({"n_inducing": 150}, marks=pytest.mark.full),
        pytest.param(
            {"n_inducing": 150, "solver": "adam", "max_iter": 20},
            marks=pytest.mark.full,
        ),
        pytest.param({"n_neighbors": 10}, marks=pytest.mark.full),
        pytest.param({"dtype": "float32"}, marks=pytest.mark.full),
    ],
)
def test_intervals_hold_for_other_models(params):
    model = fit("growing", n=800, **params)
    X, y = make_rows("growing", 3000, seed=1)
    lower, upper = model.predict_interval(X)
    assert 0.91 < np.mean((lower <= y) & (y <= upper)) < 0.985


def test_a_pickle_has_the_law():
    model, (X, _) = model_of("growing"), make_rows("growing", 9, seed=1)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X, quantiles=0.9), model.predict(X, quantiles=0.9))


def test_outputs_have_laws_of_their_own():
    X, even = make_rows("even", FEW)
    _, growing = make_rows("growing", FEW)
    model = SWSGPRegressor(random_state=0).fit(X, np.stack([even, growing], axis=1))
    law = model.predictive_law_
    low, high = law.scale_range
    assert high[1] / low[1] > 3.0
    assert high[0] / low[0] < 1.5
    X, _ = make_rows("even", 30, seed=1)
    assert model.predict(X, quantiles=[0.1, 0.9]).shape == (30, 2, 2)
    assert model.predict(X, return_std=True)[1].shape == (30, 2)
    assert model.predict(X, return_cov=True)[1].shape == (30, 30, 2)
    assert model.sample_y(X, 3).shape == (30, 2, 3)


@pytest.mark.full  # a claim of accuracy
def test_weights_tell_of_noise_that_the_law_need_not_find():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    scale = np.where(X[:, 0] > 0.5, 1.0, 0.1)
    y = np.sin(6 * X[:, 0]) + scale * rng.normal(size=500)
    model = SWSGPRegressor(random_state=0).fit(X, y, sample_weight=scale**-2.0)
    low, high = model.predictive_law_.scale_range
    assert high / low < 1.3


def test_copies_of_all_rows_change_nothing():
    X, y = make_rows("growing", 300)
    once = SWSGPRegressor(random_state=0, learn_kernel=False).fit(X, y)
    twice = SWSGPRegressor(random_state=0, learn_kernel=False)
    twice.fit(np.tile(X, (2, 1)), np.tile(y, 2))
    for found, expected in zip(
        twice.predict_interval(X), once.predict_interval(X), strict=True
    ):
        assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.usefixtures("few_steps")
def test_a_stream_adds_to_the_law():
    X, y = make_rows("growing", 1000)
    model = SWSGPRegressor(n_inducing=60, random_state=0)
    counts = []
    for part in np.split(np.arange(1000), 5):
        model.partial_fit(X[part], y[part])
        counts.append(model.predictive_law_.sizes.counts.sum())
    assert_array_equal(counts, [200, 400, 600, 800, 1000])
    lower, upper = model.predict_interval(X)
    assert 0.92 < np.mean((lower <= y) & (y <= upper)) < 0.98


def test_samples_and_covariances_are_those_of_the_law():
    X, _ = make_rows("growing", 20, seed=1)
    model = model_of("growing")
    mean, std = model.predict(X, return_std=True)
    joint_mean, cov = model.predict(X, return_cov=True)
    assert_allclose(joint_mean, mean)
    assert_allclose(np.sqrt(np.diag(cov)), std)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    samples = model.sample_y(X, 3000, random_state=0)
    quantiles = model.predict(X, quantiles=[0.1, 0.9])
    found = np.quantile(samples, [0.1, 0.9], axis=1).T
    assert np.abs(found - quantiles).max() < 0.15 * std.max()


@pytest.mark.parametrize("noise", ["growing", "two levels"])
@pytest.mark.usefixtures("eager_threads")
def test_results_do_not_depend_on_threads(noise):
    X, _ = make_rows(noise, 50, seed=1)
    two, one = fit(noise, FEW, n_jobs=2), model_of(noise)
    for found, expected in zip(
        two.predict_interval(X), one.predict_interval(X), strict=True
    ):
        assert_array_equal(found, expected)


def test_a_law_that_is_not_found_leaves_the_gaussian(monkeypatch):
    def fail(*args):
        raise FloatingPointError

    monkeypatch.setattr(solve, "leave_out_rows", fail)
    with pytest.warns(UserWarning, match="the model is kept with a Gaussian law"):
        model = fit("growing", n=60)
    assert not hasattr(model, "predictive_law_")
    X, _ = make_rows("growing", 60)
    monkeypatch.undo()
    gaussian = fit("growing", n=60, predictive="gaussian")
    assert_array_equal(model.predict_interval(X), gaussian.predict_interval(X))


def test_a_fit_forgets_the_law_of_an_earlier_one():
    X, y = make_rows("growing", 300)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert hasattr(model, "predictive_law_")
    model.set_params(predictive="gaussian").fit(X, y)
    assert not hasattr(model, "predictive_law_")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 13])
def test_few_rows_have_finite_laws(n):
    X, y = make_rows("growing", n)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X)
    assert np.isfinite(lower).all()
    assert (lower < upper).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize(
    ("kernel", "columns"),
    [
        (ExpSineSquared(1.0, 24.0, periodicity_bounds="fixed"), "hours"),
        (OnColumns(RBF(), [0]), "few values"),
    ],
    ids=["hours", "few values"],
)
def test_rows_of_equal_covariance_do_not_vouch_for_themselves(kernel, columns):
    rng = np.random.default_rng(0)
    X = rng.choice(800, size=(600, 1), replace=False).astype(float)
    if columns == "few values":
        X = np.column_stack([rng.integers(0, 40, 600) / 8.0, rng.normal(size=600)])
    y = np.sin(2 * np.pi * X[:, 0] / 24) + 0.3 * rng.normal(size=600)
    model = SWSGPRegressor(ConstantKernel() * kernel, random_state=0)
    lower, upper = model.fit(X[:500], y[:500]).predict_interval(X[500:])
    assert np.mean((lower <= y[500:]) & (y[500:] <= upper)) > 0.88


@pytest.mark.full
def test_rows_of_few_distinct_values_know_their_value():
    held = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 16, size=(900, 1)).astype(float)
        y = rng.normal(size=16)[X[:, 0].astype(int)] + 0.1 * rng.normal(size=900)
        model = SWSGPRegressor(random_state=0).fit(X[:700], y[:700])
        lower, upper = model.predict_interval(X[700:])
        held.append(np.mean((lower <= y[700:]) & (y[700:] <= upper)))
    assert 0.92 < np.mean(held) < 0.985


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("n", [2, 50, 900])
def test_constant_targets_have_a_positive_deviation(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    _, std = (
        SWSGPRegressor(random_state=0)
        .fit(X, np.full(n, 3.0))
        .predict(X, return_std=True)
    )
    assert (std > 1e-7).all()


def test_scorers_find_the_law_at_the_end_of_pipelines():
    X, y = make_rows("growing", 300, seed=1)
    model = model_of("growing")
    for name in ("neg_log_density", "neg_crps", "neg_interval_score"):
        expected = get_scorer(name)(model, X, y)
        for pipeline in (
            make_pipeline(model),
            make_pipeline("passthrough", make_pipeline("passthrough", model)),
        ):
            assert get_scorer(name)(pipeline, X, y) == expected
    expected = -model.log_predictive_density(X, y).mean()
    assert get_scorer("neg_log_density")(model, X, y) == pytest.approx(-expected)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::skswsgp.ExtrapolationWarning")  # as is meant here
def test_widths_change_smoothly_and_forget_near_errors_far_away():
    # few rows would widen the law by what they leave open of the kernel
    learned, gaussian = (model_of("growing", law, MANY) for law in ("auto", "gaussian"))
    law = learned.predictive_law_
    assert law.coefficients[1:].any()

    def ratio(X):
        std, usual = (m.predict(X, return_std=True)[1] for m in (learned, gaussian))
        return std / usual

    far = np.array([[500.0, 500.0], [-400.0, 300.0]])
    # no law makes rows more certain that the process knows less than training rows
    usual = max(law.far_scale[0], 1.0) * student.deviation(law.degrees_of_freedom[0])
    assert_allclose(ratio(far), usual, rtol=2e-3)
    huge = np.full((1, 2), 1e160)
    assert_allclose(ratio(huge), usual, rtol=2e-3)
    steps = []
    for n in (3000, 30_000):  # across the data and beyond
        line = np.linspace([-2.0, -1.0], [3.0, 3.0], n)
        steps.append(np.abs(np.diff(np.log(ratio(line)))).max())
    assert steps[1] < 0.2 * steps[0]  # a jump would be as large in small steps


def test_deviations_of_few_rows_do_not_jump_in_a_gap():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (400, 1))
    X = X[(X[:, 0] < 5.2) | (X[:, 0] > 6.8)]
    y = np.sin(1.7 * X[:, 0]) + 0.3 * rng.standard_normal(len(X))
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert model.n_neighbors_ == len(X)

    def jump(n_neighbors):
        line = np.linspace(5.0, 7.0, 20_000)[:, None]
        _, std = model.predict(line, return_std=True, n_neighbors=n_neighbors)
        return np.abs(np.diff(np.log(std))).max()

    assert jump(None) < 1e-3 < 0.1 * jump(8)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::skswsgp.ExtrapolationWarning")  # as is meant here
def test_intervals_far_away_hold_noise_that_varies():
    rng = np.random.default_rng(0)

    def draw(low, high, n):
        X = rng.uniform(low, high, (n, 1))
        noise = np.where(np.floor(2.0 * X[:, 0]) % 2 == 0.0, 0.02, 0.5)
        return X, noise * rng.standard_normal(n)

    model = SWSGPRegressor(random_state=0).fit(*draw(0.0, 8.0, 800))
    low, high = model.predictive_law_.scale_range[:, 0]
    assert high > 3.0 * low
    X, y = draw(1000.0, 1100.0, 2000)
    _, std = model.predict(X, return_std=True)
    assert_allclose(std, np.std(y), rtol=0.25)
    lower, upper = model.predict_interval(X)
    assert 0.87 < np.mean((lower <= y) & (y <= upper)) < 0.99


@pytest.mark.full
def test_intervals_hold_where_few_rows_lie():
    def draw(rng, low, n):
        X = rng.uniform(low, 15.0, (n, 1))
        many = rng.random(n) > 0.045
        X[many] = X[many] / 3.0 if low == 0.0 else X[many]
        noise = np.where(X[:, 0] > 5.0, 0.5, 0.05)
        return X, np.sin(X[:, 0] / 4.0) + noise * rng.standard_normal(n)

    held = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = SWSGPRegressor(random_state=0).fit(*draw(rng, 0.0, 900))
        X, y = draw(rng, 5.0, 2000)
        lower, upper = model.predict_interval(X)
        held.append(np.mean((lower <= y) & (y <= upper)))
    # The kernel is learned for noise of one size, and may follow larger noise.
    assert min(held) > 0.75
    assert 0.87 < np.mean(held) < 0.98


@pytest.mark.full  # a claim of accuracy
def test_columns_that_the_kernel_does_not_read_change_no_width():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(800, 2))
    y = np.sin(6.0 * X[:, 0]) + 0.4 * X[:, 0] * rng.standard_normal(800)
    kernel = OnColumns(ConstantKernel() * RBF(0.3), [0])
    model = SWSGPRegressor(kernel=kernel, random_state=0).fit(X, y)
    assert model.predictive_law_.coefficients[1:].any()
    line = np.column_stack([np.full(50, 0.4), np.linspace(-9.0, 9.0, 50)])
    _, std = model.predict(line, return_std=True)
    assert_allclose(std, std[0])


def test_near_targets_lose_their_share_far_from_the_data():
    far = np.array([[500.0, 500.0]])
    std = [
        model_of("two levels", law).predict(far, return_std=True)[1]
        for law in ("auto", "gaussian")
    ]
    low, high = model_of("two levels").predictive_law_.scale_range[:, 0]
    assert 0.9 * low < std[0] / std[1] < 1.1 * high


def on_levels(*levels):
    """Return the rows (n, D) of a full factorial table of [0, 1]."""
    axes = np.meshgrid(*(np.linspace(0.0, 1.0, k) for k in levels), indexing="ij")
    return np.column_stack([axis.ravel() for axis in axes])


@pytest.mark.parametrize(
    ("levels", "function"),
    [
        ((6, 10), lambda X: np.tanh(8.0 * (X[:, 0] - 0.45))),
        ((5, 12), lambda X: np.exp(-3.0 * X[:, 0])),
        ((8, 8), lambda X: np.tanh(20.0 * (X[:, 0] + X[:, 1] - 1.0))),
        ((12, 12), lambda X: np.tanh(20.0 * (X[:, 0] + X[:, 1] - 1.0))),
    ],
    ids=["column without effect", "steep column", "sum of columns", "more levels"],
)
def test_rows_with_copies_do_not_speak_for_places_without(levels, function):
    X, new = on_levels(*levels), np.random.default_rng(1).random((500, 2))
    y, held = function(new), {}
    for law in ("auto", "gaussian"):
        model = SWSGPRegressor(predictive=law, random_state=0).fit(X, function(X))
        lower, upper = model.predict_interval(new)
        held[law] = np.mean((lower <= y) & (y <= upper))
        mean = model.predict(new)
        assert np.mean((lower <= mean) & (mean <= upper)) > 0.95
    assert held["auto"] >= held["gaussian"] - 0.02
