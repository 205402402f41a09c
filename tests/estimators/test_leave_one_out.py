"""Training rows as predicted without themselves, `leave_one_out_`."""

import pickle

import numpy as np
import pytest
from helpers import ADAM, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPRegressor
from skswsgp._law import learn

KERNEL = ConstantKernel(1.3, "fixed") * Matern([0.8, 1.2], "fixed", nu=2.5)
FIXED = {
    "kernel": KERNEL,
    "learn_kernel": False,
    "learn_map": False,
    "initial_noise": 0.05,
    "predictive": "gaussian",
    "random_state": 0,
}


def make_rows(n=30, Q=0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    y = 5.0 + np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return X, np.stack([y, 10.0 - 3.0 * y**2], axis=1) if Q else y


def dense(model, X, y, weight=None):
    """Return mean and deviation of an exact process at each row, given all others."""
    weight = np.ones(len(X)) if weight is None else weight
    used = weight > 0.0
    relative = weight / weight[used].mean()
    mean, std = np.empty((2, len(X)))
    t = (y - model.y_mean_) / model.y_scale_
    for i in range(len(X)):
        rest = used & (np.arange(len(X)) != i)
        C = KERNEL(X[rest]) + np.diag(model.noise_variance_ / relative[rest])
        k = KERNEL(X[rest], X[[i]])[:, 0]
        a = np.linalg.solve(C, k)
        own = model.noise_variance_ / (relative[i] if used[i] else 1.0)
        mean[i], std[i] = a @ t[rest], np.sqrt(KERNEL.diag(X[[i]])[0] - a @ k + own)
    return model.y_mean_ + model.y_scale_ * mean, model.y_scale_ * std


def test_rows_are_predicted_as_by_fits_without_them():
    X, y = make_rows()
    y -= 5.0
    how = FIXED | {"normalize_y": False, "n_neighbors": 30}
    found = make(SWSGPRegressor, **how).fit(X, y).leave_one_out_
    for i in range(30):
        rest = np.arange(30) != i
        other = make(SWSGPRegressor, **how).fit(X[rest], y[rest])
        mean, std = other.predict(X[[i]], return_std=True)
        assert_allclose(found.mean[i], mean[0], rtol=1e-4, atol=1e-5)
        assert_allclose(found.std[i], std[0], rtol=1e-4)
    assert_allclose(found.residual, y - found.mean)


def test_weights_and_rows_of_weight_zero():
    X, y = make_rows()
    weight = np.random.default_rng(1).uniform(0.5, 4.0, 30)
    weight[[0, 7, 20]] = 0.0
    model = make(SWSGPRegressor, **FIXED, n_neighbors=30).fit(X, y, weight)
    found = model.leave_one_out_
    mean, std = dense(model, X, y, weight)
    assert_allclose(found.mean, mean, rtol=1e-5)
    assert_allclose(found.std, std, rtol=1e-4)
    assert_allclose(found.residual, y - mean, atol=1e-4)
    same = model.fit(X, y, 100.0 * weight).leave_one_out_
    assert_allclose(same.std, found.std)


def test_outputs_have_units_of_their_own():
    X, y = make_rows(Q=2)
    found = make(SWSGPRegressor, **FIXED).fit(X, y).leave_one_out_
    assert found._fields == ("mean", "std", "residual", "z_score", "rows")
    assert_array_equal(found.rows, np.arange(30))
    for q in range(2):
        one = make(SWSGPRegressor, **FIXED).fit(X, y[:, q]).leave_one_out_
        for both, alone in zip(found[:-1], one[:-1], strict=True):
            assert both.shape == (30, 2)
            assert_allclose(both[:, q], alone, rtol=1e-6)


def test_copies_count_as_one_row_of_more_weight():
    X, y = make_rows()
    weight = np.ones(30)
    weight[3] = 3.0
    one = make(SWSGPRegressor, **FIXED).fit(X, y, weight).leave_one_out_
    rows = np.r_[np.arange(30), 3, 3]
    copies = make(SWSGPRegressor, **FIXED).fit(X[rows], y[rows])
    found = copies.leave_one_out_
    # y is standardised by the same mean, but for rounding
    assert_allclose(found.mean, one.mean[rows], rtol=1e-6)
    noise, single = copies.noise_variance_ * copies.y_scale_**2, 30 / 32
    more = np.where(rows == 3, noise * (1.0 / single - 1.0 / (3.0 * single)), 0.0)
    assert_allclose(found.std**2, one.std[rows] ** 2 + more, rtol=1e-6)


def exact_model(X, y, **params):
    """Return a model with means from all rows and variances from all but one."""
    params = FIXED | {"n_neighbors": "all"} | params
    model = make(SWSGPRegressor, **params).fit(X, y)
    assert hasattr(model, "alpha_")
    return model


@pytest.mark.parametrize("predictive", ["gaussian", "auto"])
def test_means_from_all_rows_need_no_new_solution(
    in_order, predictive, tune, monkeypatch
):
    tune(
        most_neighbors=199, least_neighbors=199, variance_neighbors=199,
        mean_tolerance=1e-9, dense_rows=0,
    )  # fmt: skip
    scaled = learn.left_out.leave_one_out

    def unscaled(rows, points, trained, *how):  # the variances are exact here
        trained = trained | {"local_variance_scale_": 1.0}
        return scaled(rows, points, trained, *how)

    monkeypatch.setattr(learn.left_out, "leave_one_out", unscaled)
    X, y = make_rows(200)
    model = exact_model(X, y, predictive=predictive)
    found = model.leave_one_out_
    mean, std = dense(model, X, y)
    assert_allclose(found.std, std, rtol=1e-4)
    level = found.residual / (y - mean)  # one factor, from held-out points
    assert_allclose(level, np.median(level), rtol=1e-3)
    assert 0.7 < level[0] < 1.4


def test_a_row_leaves_the_posterior_of_few_points():
    X, y = make_rows(60)
    how = {"n_inducing": 12, "n_neighbors": 12, "covariance": "full"}
    model = make(SWSGPRegressor, **FIXED, **how).fit(X, y)
    found = model.leave_one_out_
    Z, noise = model.inducing_points_, model.noise_variance_
    K = KERNEL(Z) + model._jitter * 1.3 * np.eye(12)
    A = np.linalg.solve(K, KERNEL(Z, X)).T
    t = (y - model.y_mean_) / model.y_scale_
    for i in range(60):
        rest = np.arange(60) != i
        precision = np.linalg.inv(K) + A[rest].T @ A[rest] / noise
        S = np.linalg.inv(precision + np.outer(A[i], A[i]) / noise)
        mean = A[i] @ np.linalg.solve(precision, A[rest].T @ t[rest]) / noise
        variance = A[i] @ S @ A[i] + 1.3 - A[i] @ K @ A[i] + noise
        if A[i] @ S @ A[i] < 0.5 * noise:
            mean = model.y_mean_ + model.y_scale_ * mean
            assert_allclose(found.mean[i], mean, rtol=1e-3)
        assert_allclose(found.std[i], model.y_scale_ * np.sqrt(variance), rtol=1e-3)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_inducing": 100},
        {"n_neighbors": 10},
        {"n_inducing": 60, "n_neighbors": 10, "solver": "adam", "max_iter": 30},
        {"n_inducing": 30, "n_neighbors": 5, "optimize_inducing": True, "max_iter": 2},
        pytest.param({"dtype": "float32"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_standardised_residuals_have_unit_spread(params):
    X, y = make_rows(400)
    model = make(SWSGPRegressor, random_state=0, **params).fit(X, y)
    found = model.leave_one_out_
    least = 0.75 if params.get("solver") == "adam" else 0.8  # its deviations are wide
    assert least < np.std(found.residual / found.std) < 1.25
    # as large as errors of rows that the model does not know
    new, values = make_rows(400, seed=1)
    errors = values - model.predict(new)
    assert 0.8 < np.std(found.residual) / np.std(errors) < 1.25
    again = pickle.loads(pickle.dumps(model)).leave_one_out_
    for one, other in zip(found, again, strict=True):
        assert_array_equal(one, other)


def test_a_stream_has_none():
    X, y = make_rows(60)
    model = SWSGPRegressor(n_inducing=20, random_state=0).partial_fit(X, y)
    assert not hasattr(model, "leave_one_out_")
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert not hasattr(model.partial_fit(X, y), "leave_one_out_")


SAMPLED = [
    ({"n_neighbors": 10}, False),
    ({"n_neighbors": 10}, True),
    ({"n_neighbors": 10, "covariance": "diag"}, False),
    ({"n_inducing": 40, "n_neighbors": 10}, True),
    (ADAM | {"max_iter": 1}, False),
]


@pytest.mark.parametrize(("params", "copies"), SAMPLED, ids=str)
def test_a_sample_of_many_rows_is_left_out(params, copies, monkeypatch, tune):
    tune(full_work=0.0)
    X, y = make_rows(150)
    if copies:
        X, y = X[np.arange(150) // 2], y[np.arange(150) // 2]
    weight = np.ones(150)
    weight[:10] = 0.0  # no row of the sample
    how = FIXED | params
    all_rows = make(SWSGPRegressor, **how).fit(X, y, weight).leave_one_out_
    for name in ("MOST_LEFT_OUT", "SAMPLE_ROWS"):
        monkeypatch.setattr(learn, name, 100)
    found = make(SWSGPRegressor, **how).fit(X, y, weight).leave_one_out_
    assert len(found.rows) == 100
    assert_array_equal(found.rows, np.unique(found.rows))
    assert found.rows.min() >= 10
    # means that a solver has are those of predictions, but for rounding
    close = {"rtol": 1e-6, "atol": 1e-6}
    for values, of_all in zip(found[:-1], all_rows[:-1], strict=True):
        assert_allclose(values, of_all[found.rows], **close)


@pytest.mark.parametrize("n", [1, 2])
def test_a_lone_row_is_predicted_by_the_prior(n):
    X, y = np.zeros((n, 1)), np.array([1.0, 3.0])[:n]
    how = FIXED | {"kernel": ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")}
    model = make(SWSGPRegressor, **how, normalize_y=False).fit(X, y)
    found = model.leave_one_out_
    other = y[::-1] * 2.0 / 2.05 if n == 2 else [0.0]  # the other row, or none
    variance = 2.05 if n == 1 else 0.05 + 2.0 * 0.05 / 2.05
    assert_allclose(found.mean, other)
    assert_allclose(found.std, np.sqrt(variance))


def test_rows_held_out_to_stop_are_new_rows():
    X, y = make_rows(200)
    how = {"n_inducing": 20, "early_stopping": True, "max_iter": 3}
    model = make(SWSGPRegressor, **ADAM, **how, random_state=0).fit(X, y)
    rows = model.leave_one_out_
    new = np.isclose(rows.mean, model.predict(X), rtol=1e-9)
    assert new.sum() == 20  # the others are predicted without themselves


def test_tables_with_names_keep_them():
    pd = pytest.importorskip("pandas")
    X, y = make_rows()
    table, weight = pd.DataFrame(X, columns=["a", "b"]), np.r_[0.0, np.ones(29)]
    found = make(SWSGPRegressor, **FIXED).fit(table, pd.Series(y), weight)
    found = found.leave_one_out_
    plain = make(SWSGPRegressor, **FIXED).fit(X, y, weight).leave_one_out_
    assert_array_equal(found.std, plain.std)


def test_a_warm_start_keeps_the_scale_of_the_first_fit():
    X, y = make_rows()
    model = make(SWSGPRegressor, **FIXED, n_neighbors=30, warm_start=True).fit(X, y)
    scale, other = (model.y_mean_, model.y_scale_), 2.0 * y + 1.0
    found = model.fit(X, other).leave_one_out_
    assert (model.y_mean_, model.y_scale_) == scale
    mean, std = dense(model, X, other)
    assert_allclose(found.mean, mean, rtol=1e-9)
    assert_allclose(found.std, std, rtol=1e-9)
    assert_allclose(found.residual, other - mean, rtol=0, atol=1e-8)


# --- which rows are odd ---------------------------------------------------------------


def planted(kind, n=400):
    """Return X, y and ten rows that are six deviations of noise below the others."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, size=(n, 1)), axis=0)
    noise, odd = rng.normal(size=n), rng.permutation(n // 3)[:10]
    noise[odd] = -6.0
    if kind == "log":
        return X, np.exp(8.0 + np.sin(X[:, 0]) + 0.3 * noise), odd
    return X, np.sin(X[:, 0]) + (0.05 + 0.15 * X[:, 0]) * noise, odd


@pytest.mark.parametrize(
    ("kind", "options"), [("log", {"y_transform": "log"}), ("growing", {})]
)
def test_scores_find_odd_rows(kind, options):
    X, y, odd = planted(kind)
    model = make(SWSGPRegressor, random_state=0, **options).fit(X, y)
    rows = model.leave_one_out_
    found = np.argsort(rows.z_score)[:10]
    assert len(set(found) & set(odd)) >= 8
    by_std = np.argsort(-abs(rows.residual) / rows.std)[:10]
    assert len(set(by_std) & set(odd)) < 5
    rest = np.delete(rows.z_score, odd)
    assert 0.8 < rest.std() < 1.2


def test_scores_of_a_gaussian_law_are_standardised_residuals():
    X, y = make_rows(60)
    model = make(SWSGPRegressor, **FIXED).fit(X, y)
    rows = model.leave_one_out_
    assert_allclose(rows.z_score, rows.residual / rows.std)


def test_copies_have_the_noise_of_one_row():
    X, y = make_rows(40)
    X, y = np.r_[X, X[:10]], np.r_[y, y[:10]]
    model = make(SWSGPRegressor, **FIXED).fit(X, y)
    rows, once = model.leave_one_out_, slice(10, 40)
    assert_allclose(rows.std[:10], rows.std[40:])
    noise = model.noise_variance_ * model.y_scale_**2
    weight = 40 / 50  # of a row that is there once; copies share one row
    assert np.all(rows.std**2 > noise / weight)
    assert abs(rows.std[:10].mean() / rows.std[once].mean() - 1.0) < 0.1


def test_rows_that_were_held_out_have_no_nan():
    """A large error among quiet rows is not part of the sizes of errors around it."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0.0, 5.0, size=(500, 1))
    quiet = X[:, 0] < 3.0
    y = np.sin(X[:, 0]) + np.where(quiet, 0.01, 1.0) * rng.standard_normal(500)
    y[np.flatnonzero(quiet)[::90]] += 8.0
    model = make(SWSGPRegressor,
        solver="adam", learn_kernel=False, initial_noise=0.3, n_inducing=200,
        max_iter=80, learning_rate=0.05, early_stopping=True, validation_fraction=0.4,
        random_state=0,
    )  # fmt: skip
    rows = model.fit(X, y).leave_one_out_
    assert np.isfinite(rows.z_score).all()
