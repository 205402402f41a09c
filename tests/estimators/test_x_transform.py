"""Columns on another scale: which is chosen, and that all predictions know it."""

import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._rows.column_scale import (
    INCREASING,
    SCALES,
    LevelColumns,
    level_columns,
    near_levels,
    power_columns,
)
from skswsgp.explain.columns import (
    column_slopes,
    level_names,
    slopes_by_old_columns,
    slopes_near_levels,
    squared_level_slopes,
)
from skswsgp.joint import covariance_of_functions
from skswsgp.kernels import OnColumns, Polynomial

KERNEL = ConstantKernel(1.0) * RBF(0.3)
FIXED = {"kernel": KERNEL, "learn_kernel": False, "n_inducing": 40}
FIXED |= {"n_neighbors": 8, "random_state": 0}


def make_table(n):
    """Return rows of columns that span eight powers of e, and a function of logs."""
    rng = np.random.default_rng(0)
    logs = rng.uniform(-4, 4, (n, 2))
    y = np.sin(logs[:, 0]) + 0.3 * logs[:, 1] + 0.1 * rng.normal(size=n)
    return np.exp(logs), y


@pytest.fixture
def table():
    return make_table(240)


def table_for(name, table):
    """Return a table, with columns of few values for "levels"."""
    X, y = table
    return (np.floor(np.log(X)) if name == "levels" else X), y


def make_levels(n, rng):
    """Return rows of three columns of six values, each with an effect of its own."""
    X = rng.integers(6, size=(n, 3)).astype(float)
    effects, pairs = rng.normal(size=(3, 6)), rng.normal(size=(6, 6))
    codes = X.astype(int)
    f = pairs[codes[:, 0], codes[:, 1]]
    return X, f + sum(effects[d][codes[:, d]] for d in range(3))


def error(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_rows_at_the_ends_of_long_tails_have_no_wild_means(seed):
    rng = np.random.default_rng(1000 + seed)
    logs = 2.0 * rng.normal(size=(3500, 4))
    u = logs / 3.0
    f = np.sin(3.0 * u[:, 0]) + u[:, 1] ** 2 + 0.5 * u[:, 2] * u[:, 3]
    y = f + 0.2 * rng.normal(size=3500)
    errors = []
    for Z in np.exp(logs), logs:
        model = SWSGPRegressor(random_state=0).fit(Z[:500], y[:500])
        errors.append(error(model, Z[500:], f[500:]))
    assert errors[0] < 1.3 * errors[1] < 0.15


@pytest.mark.full
def test_hundreds_of_columns_change_scale():
    rng = np.random.default_rng(1000)
    U = rng.normal(size=(1400, 4))
    logs = U @ rng.normal(size=(4, 300)) + 0.3 * rng.normal(size=(1400, 300))
    y = np.sin(U[:, 0]) + U[:, 1] + 0.2 * rng.normal(size=1400)
    model = SWSGPRegressor(random_state=0).fit(np.exp(logs[:400]), y[:400])
    assert model.x_transform_.name == "yeo-johnson"
    assert error(model, np.exp(logs[400:]), y[400:]) < 0.3


@pytest.mark.full
def test_tails_behind_many_zeros_change_scale():
    rng = np.random.default_rng(1000)
    X = np.exp(1.5 * rng.normal(size=(2500, 5))) * (rng.random((2500, 5)) < 0.5)
    f = (
        2.0 * np.log1p(X[:, 0])
        + np.sqrt(X[:, 1])
        + np.log1p(X[:, 3]) * np.log1p(X[:, 4])
    )
    y = f + 0.3 * rng.normal(size=2500)
    model = SWSGPRegressor(random_state=0).fit(X[:500], y[:500])
    as_it_is = SWSGPRegressor(x_transform=None, random_state=0).fit(X[:500], y[:500])
    assert error(model, X[500:], f[500:]) < 0.7 * error(as_it_is, X[500:], f[500:])


@pytest.mark.full
def test_columns_that_span_orders_of_magnitude_change_little():
    X, y = make_table(800)
    errors = {}
    for name, Z in ("logs", np.log(X)), ("raw", X), ("squares", X**2):
        model = SWSGPRegressor(random_state=0).fit(Z[:400], y[:400])
        errors[name] = error(model, Z[400:], y[400:])
        assert (model.x_transform_ is None) == (name == "logs")
    as_it_is = SWSGPRegressor(x_transform=None, random_state=0).fit(X[:400], y[:400])
    assert error(as_it_is, X[400:], y[400:]) > 1.5 * errors["logs"]
    assert errors["raw"] < 1.05 * errors["logs"]
    assert errors["squares"] == pytest.approx(errors["raw"], rel=1e-3)


def test_classes_choose_too(table):
    X, y = table
    labels = y > 0.0
    model = SWSGPClassifier(random_state=0).fit(X[:160], labels[:160])
    assert model.x_transform_.name in INCREASING
    as_it_is = SWSGPClassifier(x_transform=None, random_state=0)
    as_it_is.fit(X[:160], labels[:160])
    scores = [each.score(X[160:], labels[160:]) for each in (model, as_it_is)]
    assert scores[0] > scores[1]


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_a_factor_of_all_weights_does_not_matter(table, factor):
    X, y = table
    model = SWSGPRegressor(n_inducing=30, n_neighbors=6, random_state=0)
    model.fit(X, y, np.full(len(y), factor))
    assert model.x_transform_.name == "yeo-johnson"


def test_known_noise_counts(table, rng):
    X, y = table
    noise = np.where(np.arange(len(y)) % 2, 0.05, 5.0) ** 2
    y = y + np.sqrt(noise) * rng.normal(size=len(y))
    model = SWSGPRegressor(random_state=0).fit(X, y, noise_variance=noise)
    assert model.x_transform_ is not None
    unknown = SWSGPRegressor(random_state=0).fit(X, y)
    assert unknown.x_transform_ is None


def test_a_choice_that_costs_too_much_is_not_made(table, tune):
    tune(evidence_work=0)
    assert SWSGPRegressor().fit(*table).x_transform_ is None


@pytest.mark.parametrize("change", [{"kernel": KERNEL}, {"learn_kernel": False}])
def test_a_given_or_fixed_kernel_keeps_the_columns(table, change, few_steps):
    X, y = table
    model = SWSGPRegressor(n_inducing=20, n_neighbors=5, **change).fit(X, y)
    assert model.x_transform_ is None


@pytest.mark.matrix
@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("solver", ["natural", "adam"])
def test_a_fit_is_that_of_the_columns_on_their_scale(in_order, table, name, solver):
    X, y = table_for(name, table)
    how = FIXED | {"solver": solver, "max_iter": 2}
    model = make(SWSGPRegressor, x_transform=name, **how).fit(X, y)
    Z = model.x_transform_.forward(X)
    plain = make(SWSGPRegressor, x_transform=None, **how).fit(Z, y)
    X, Z = X[:20], Z[:20]
    assert_array_equal(model.inducing_points_, plain.inducing_points_)
    for method in "predict_interval", "latent_mean_and_variance", "sample_f":
        ours, theirs = getattr(model, method)(X), getattr(plain, method)(Z)
        assert_array_equal(ours, theirs)
    ours, theirs = model.predict(X, return_cov=True), plain.predict(Z, return_cov=True)
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one, other)
    assert model.lower_bound(X, y[:20]) == plain.lower_bound(Z, y[:20])
    if name in INCREASING:
        assert_array_equal(model.feature_importances_, plain.feature_importances_)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("name", SCALES)
def test_slopes_are_those_by_the_columns_of_the_user(in_order, table, name):
    X, y = table_for(name, table)
    model = make(SWSGPRegressor, x_transform=name, **FIXED).fit(X, y)
    X = X[:15] if name == "levels" else X[:15] * 1.001  # between the knots of ranks
    slopes, deviations = model.predict_gradient(X, return_std=True)
    for d in range(2):
        h = np.zeros(X.shape)
        h[:, d] = 1e-6 * (1.0 if name == "levels" else X[:, d])
        change = model.predict(X + h) - model.predict(X - h)
        assert_allclose(slopes[:, d], change / (2 * h[:, d]), rtol=1e-3, atol=1e-5)
    assert_array_equal(slopes, model.predict_gradient(X))
    if name == "levels":
        return  # the deviations have a test of their own
    Z = model.x_transform_.forward(X)
    plain = make(SWSGPRegressor, x_transform=None, **FIXED)
    plain.fit(model.x_transform_.forward(table[0]), y)
    expected = plain.predict_gradient(Z, return_std=True)[1]
    assert_allclose(
        deviations, expected * column_slopes(model.x_transform_, X), rtol=1e-9
    )


def test_slopes_by_columns_of_few_values_have_the_deviations_of_differences(table):
    X, y = table_for("levels", table)
    how = FIXED | {"n_neighbors": 40, "covariance": "full"}
    model = make(SWSGPRegressor, x_transform="levels", **how).fit(X, y)
    X = X[:5] + np.array([0.0, 0.3])  # at a value, and between two
    _, deviations = model.predict_gradient(X, return_std=True)
    for d in range(2):
        h = 1e-3 * np.eye(2)[d]
        for x, deviation in zip(X, deviations[:, d], strict=True):
            C = covariance_of_functions(model, np.stack([x - h, x + h]))[:, :, 0]
            variance = C[0, 0] + C[1, 1] - 2.0 * C[0, 1]
            expected = model.y_scale_ * np.sqrt(variance) / 2e-3
            assert deviation == pytest.approx(expected, rel=1e-3)


def test_points_of_the_user_are_in_the_units_of_x(table):
    X, y = table
    how = FIXED | {"n_inducing": "auto", "inducing_points": X[:30]}
    model = make(SWSGPRegressor, x_transform="ranks", **how).fit(X, y)
    expected = model.x_transform_.forward(X[:30])
    assert_allclose(np.sort(model.inducing_points_, axis=0), np.sort(expected, axis=0))


def test_a_stream_keeps_the_scale_of_its_first_chunk(table, few_steps):
    X, y = table
    model = SWSGPRegressor(x_transform="ranks", n_inducing=10, n_neighbors=4)
    model.partial_fit(X[:100], y[:100])
    first = model.x_transform_
    model.partial_fit(X[100:150], y[100:150])
    assert model.x_transform_ is first
    assert np.isfinite(model.predict(X)).all()


def test_a_fit_that_goes_on_keeps_its_scale(table, few_steps):
    X, y = table
    model = make(SWSGPRegressor, x_transform="ranks", warm_start=True, **FIXED)
    first = model.fit(X, y).x_transform_
    assert model.fit(X, y).x_transform_ is first
    message = "x_transform=None for a model that was fitted with 'ranks': expected the"
    with pytest.raises(ValueError, match=message):
        model.set_params(x_transform=None).fit(X, y)
    assert model.x_transform_ is first


def test_noise_that_varies_is_learned_on_scaled_columns(table, few_steps):
    X, y = table
    model = SWSGPRegressor(likelihood="heteroscedastic", x_transform="ranks")
    model.fit(X, y)
    assert model.noise_model_.x_transform_.name == "ranks"
    assert np.isfinite(model.noise_std(X)).all()
    assert error(model, X, y) < 0.5 * y.std()


@pytest.mark.full  # a claim of accuracy
def test_columns_of_few_values_may_have_an_effect_at_each(rng):
    X, y = make_levels(400, rng)
    train, test = slice(250), slice(250, None)
    labels = y > np.median(y)
    model = SWSGPRegressor(random_state=0).fit(X[train], y[train])
    assert model.x_transform_.name == "levels"
    as_it_is = SWSGPRegressor(x_transform=None, random_state=0).fit(X[train], y[train])
    assert error(model, X[test], y[test]) < 0.3 * error(as_it_is, X[test], y[test])
    classifier = SWSGPClassifier(random_state=0).fit(X[train], labels[train])
    assert classifier.x_transform_.name == "levels"
    assert classifier.score(X[test], labels[test]) > 0.9
    assert model.feature_importances_.shape == (3,)
    assert "x0=3" in model.describe(21)


def test_columns_of_few_values_stay_where_their_order_says_enough(rng):
    X = rng.integers(6, size=(250, 3)).astype(float)
    y = np.sin(X[:, 0] / 2.0) + 0.1 * X[:, 1] + 0.1 * rng.normal(size=250)
    assert SWSGPRegressor(random_state=0).fit(X, y).x_transform_ is None


def test_between_values_columns_are_linear_and_beyond_them_constant():
    values = np.array([1.0, 2.0, 4.0])
    x = np.array([1.0, 2.0, 4.0, 3.0, 0.0, 9.0])
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.5, 0.5], [1, 0, 0], [0, 0, 1]]
    assert_array_equal(near_levels(x, values), expected)
    x, h = np.append(x, 1.2), 1e-6
    change = near_levels(x + h, values) - near_levels(x - h, values)
    assert_allclose(slopes_near_levels(x, values), change / (2.0 * h), atol=1e-9)


def test_columns_of_fewest_values_come_first(rng):
    sizes = 12, 2, 30, 3, 5
    X = np.column_stack([np.arange(144.0) % k for k in sizes])
    assert level_columns(X, 64).places == (3, 4, 0)  # 12 rows for each of 12 values
    assert level_columns(X[:143], 64).places == (3, 4)
    assert level_columns(X, 5 + 3 + 5 + 11).places == (3, 4)
    columns = level_columns(X, 5 + 3)
    assert columns.places == (3,) and columns.forward(X).shape == (144, 8)
    assert level_names(columns, list("abcde"))[5:] == ["d=0", "d=1", "d=2"]


def test_relevance_counts_what_columns_for_values_give_together(rng):
    X = np.column_stack([np.arange(99.0) % 3, rng.normal(size=99)])
    columns, scale = level_columns(X, 64), np.array([1.0, 2.0, 0.5, 0.5, 0.5])
    slopes = rng.normal(size=(4, 2, 5))
    found = squared_level_slopes(columns, slopes, scale)
    Z = columns.forward(X)
    for i in range(4):
        parts = [Z[:, [0, 2, 3, 4]] @ slopes[i, q, [0, 2, 3, 4]] for q in range(2)]
        assert found[i, 0] == pytest.approx(sum(np.var(f, ddof=1) for f in parts))
    assert_allclose(found[:, 1], np.sum((2.0 * slopes[:, :, 1]) ** 2, axis=1))
    slopes[..., 2:] += 7.0  # a constant, for the three columns have the sum one
    assert_allclose(squared_level_slopes(columns, slopes, scale), found)


def test_two_roundings_of_a_number_are_one_value(rng):
    codes = rng.integers(1, 6, size=80)
    x = np.where(rng.random(80) < 0.5, codes / 10, codes * 0.1)
    assert len(np.unique(x)) > 5
    columns = level_columns(x[:, None], 64)
    assert len(columns.values[0]) == 5
    large = 1e12 + codes[:, None]
    assert level_names(columns, ["x"])[1:3] == ["x=0.1", "x=0.2"]
    assert "x=1000000000003" in level_names(level_columns(large, 64), ["x"])


@pytest.mark.full  # a claim of accuracy
def test_length_scales_of_several_outputs_stay_separate(rng):
    X = rng.normal(size=(600, 50))
    f = np.column_stack([np.sin(2.0 * X[:, 0]) + X[:, 1], np.cos(X[:, 1]) * X[:, 0]])
    y = f + 0.1 * rng.normal(size=f.shape)
    model = SWSGPRegressor(x_transform=None, learn_map=False, random_state=0)
    model.fit(X[:400], y[:400])
    assert model.score(X[400:], f[400:]) > 0.9


def test_points_of_the_user_go_with_columns_for_values(table, few_steps):
    X, y = table_for("levels", table)
    how = {"inducing_points": X[:30], "n_neighbors": 8, "random_state": 0}
    model = SWSGPRegressor(x_transform="levels", **how).fit(X, y)
    assert model.inducing_points_.shape[1] == model.x_transform_.forward(X).shape[1]
    frame = pytest.importorskip("pandas").DataFrame(X)
    assert_array_equal(model.x_transform_.forward(frame), model.x_transform_.forward(X))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_smooth_function_of_few_values_needs_no_columns_for_them(noise, rng):
    X = np.stack(np.meshgrid(*2 * [np.linspace(0.0, 1.0, 16)]), -1).reshape(-1, 2)
    y = np.sin(4.0 * X[:, 0]) + np.exp(X[:, 1]) + noise * rng.normal(size=len(X))
    assert level_columns(X, 64).places == (0, 1)
    assert SWSGPRegressor(random_state=0).fit(X, y).x_transform_ is None


def test_columns_for_values_stand_beside_powers(rng):
    X = np.column_stack([np.exp(rng.normal(size=90)), rng.integers(3, size=90)])
    powers = power_columns(X, np.ones(90))
    columns = LevelColumns(powers, (1,), (np.arange(3.0),))
    assert_array_equal(columns.forward(X)[:, :2], powers.forward(X))
    slopes = rng.normal(size=(90, 2, 5))
    expected = slopes[..., :2] * column_slopes(powers, X)[:, None]
    ours = slopes_by_old_columns(columns, X, slopes)
    assert_array_equal(ours[..., 0], expected[..., 0])
    part = np.einsum(
        "nqk,nk->nq", slopes[..., 2:], slopes_near_levels(X[:, 1], np.arange(3.0))
    )
    assert_allclose(ours[..., 1], expected[..., 1] + part, rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel() + DotProduct(),
        DotProduct() ** 2,
        ConstantKernel() * Polynomial(degree=2),
        RBF() + OnColumns(DotProduct(), [1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("n_rows", [40, 150])
def test_the_origin_of_columns_does_not_matter(kernel, n_rows):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, (n_rows, 2)), rng.uniform(-1, 1, (50, 2))
    y = X @ [2.0, -1.0] + X[:, 0] ** 2 + 0.1 * rng.normal(size=n_rows)
    found = []
    for origin in (0.0, 2000.0, -1e6):
        model = SWSGPRegressor(kernel, random_state=0).fit(X + origin, y)
        assert model.x_transform_.name == "centered"
        found.append(model.predict(new + origin, return_std=True))
    for others in found[1:]:
        assert_allclose(others, found[0], atol=5e-3)


@pytest.mark.parametrize(
    "params", [{"x_transform": None}, {"learn_kernel": False}, {"kernel": RBF()}]
)
def test_columns_stay_where_their_origin_is_asked_for_or_does_not_matter(params):
    X, y = make_table(40)
    params = {"kernel": DotProduct(), "random_state": 0} | params
    assert SWSGPRegressor(**params).fit(X, y).x_transform_ is None
