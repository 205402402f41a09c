"""Training rows as predicted without themselves, `leave_one_out`."""

import pickle

import numpy as np
import pytest
from helpers import ADAM
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPRegressor

KERNEL = ConstantKernel(1.3, "fixed") * Matern([0.8, 1.2], "fixed", nu=2.5)
FIXED = {
    "kernel": KERNEL,
    "init": "default",
    "metric": "ard",
    "noise_variance": 0.05,
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
    found = SWSGPRegressor(**how).fit(X, y).leave_one_out(X, y)
    for i in range(30):
        rest = np.arange(30) != i
        other = SWSGPRegressor(**how).fit(X[rest], y[rest])
        mean, std = other.predict(X[[i]], return_std=True)
        assert_allclose(found.mean[i], mean[0], rtol=1e-4, atol=1e-5)
        assert_allclose(found.std[i], std[0], rtol=1e-4)
    assert_allclose(found.residual, y - found.mean)


@pytest.mark.parametrize("order", ["as in fit", "another"])
def test_weights_and_rows_of_weight_zero(order):
    X, y = make_rows()
    weight = np.random.default_rng(1).uniform(0.5, 4.0, 30)
    weight[[0, 7, 20]] = 0.0
    model = SWSGPRegressor(**FIXED, n_neighbors=30).fit(X, y, weight)
    if order == "another":
        places = np.random.default_rng(2).permutation(30)
        X, y, weight = X[places], y[places], weight[places]
    found = model.leave_one_out(X, y, weight)
    mean, std = dense(model, X, y, weight)
    assert_allclose(found.mean, mean, rtol=1e-5)
    assert_allclose(found.std, std, rtol=1e-4)
    assert_allclose(found.residual, y - mean, atol=1e-4)
    same = model.leave_one_out(X, y, 100.0 * weight)
    assert_allclose(same.std, found.std)


def test_outputs_have_units_of_their_own():
    X, y = make_rows(Q=2)
    found = SWSGPRegressor(**FIXED).fit(X, y).leave_one_out(X, y)
    assert found._fields == ("mean", "std", "residual", "z_score")
    for q in range(2):
        one = SWSGPRegressor(**FIXED).fit(X, y[:, q]).leave_one_out(X, y[:, q])
        for both, alone in zip(found, one, strict=True):
            assert both.shape == (30, 2)
            assert_allclose(both[:, q], alone, rtol=1e-6)


def test_copies_count_as_one_row_of_more_weight():
    X, y = make_rows()
    weight = np.ones(30)
    weight[3] = 3.0
    one = SWSGPRegressor(**FIXED).fit(X, y, weight).leave_one_out(X, y, weight)
    rows = np.r_[np.arange(30), 3, 3]
    copies = SWSGPRegressor(**FIXED).fit(X[rows], y[rows])
    found = copies.leave_one_out(X[rows], y[rows])
    # y is standardised by the same mean, but for rounding
    assert_allclose(found.mean, one.mean[rows], rtol=1e-6)
    noise, single = copies.noise_variance_ * copies.y_scale_**2, 30 / 32
    more = np.where(rows == 3, noise * (1.0 / single - 1.0 / (3.0 * single)), 0.0)
    assert_allclose(found.std**2, one.std[rows] ** 2 + more, rtol=1e-6)


def exact_model(X, y, **params):
    """Return a model with means from all rows and variances from all but one."""
    params = FIXED | {"n_neighbors": "all"} | params
    model = SWSGPRegressor(**params).fit(X, y)
    assert hasattr(model, "alpha_")
    return model


@pytest.mark.parametrize("predictive", ["gaussian", "auto"])
def test_means_from_all_rows_need_no_new_solution(predictive, tune):
    tune(
        most_neighbors=199, least_neighbors=199, variance_neighbors=199,
        mean_tolerance=1e-9, dense_rows=0,
    )  # fmt: skip
    X, y = make_rows(200)
    model = exact_model(X, y, predictive=predictive)
    model.local_variance_scale_ = 1.0  # the variances are exact here
    found = model.leave_one_out(X, y)
    mean, std = dense(model, X, y)
    assert_allclose(found.std, std, rtol=1e-4)
    level = found.residual / (y - mean)  # one factor, from held-out points
    assert_allclose(level, np.median(level), rtol=1e-3)
    assert 0.7 < level[0] < 1.4
    model.held_out_errors_ = 0.6 * model.held_out_errors_
    smaller = model.leave_one_out(X, y)
    assert_allclose(smaller.residual, 0.6 * found.residual)
    assert_allclose(smaller.std, found.std)


def test_a_row_leaves_the_posterior_of_few_points():
    X, y = make_rows(60)
    how = {"n_inducing": 12, "n_neighbors": 12, "covariance": "full"}
    model = SWSGPRegressor(**FIXED, **how).fit(X, y)
    found = model.leave_one_out(X, y)
    Z, noise = model.inducing_points_, model.noise_variance_
    K = KERNEL(Z) + model.jitter_ * 1.3 * np.eye(12)
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
        {"dtype": "float32"},
    ],
    ids=str,
)
def test_standardised_residuals_have_unit_spread(params):
    X, y = make_rows(400)
    model = SWSGPRegressor(random_state=0, **params).fit(X, y)
    order = np.random.default_rng(3).permutation(400)
    found = model.leave_one_out(X[order], y[order])
    least = 0.75 if params.get("solver") == "adam" else 0.8  # its deviations are wide
    assert least < np.std(found.residual / found.std) < 1.25
    # as large as errors of rows that the model does not know
    new, values = make_rows(400, seed=1)
    errors = values - model.predict(new)
    assert 0.8 < np.std(found.residual) / np.std(errors) < 1.25
    again = pickle.loads(pickle.dumps(model)).leave_one_out(X[order], y[order])
    for one, other in zip(found, again, strict=True):
        assert_array_equal(one, other)


def test_a_stream_takes_any_of_its_rows():
    X, y = make_rows(400)
    model = SWSGPRegressor(n_inducing=40, random_state=0)
    for part in np.split(np.arange(400), 4):
        model.partial_fit(X[part], y[part])
    assert not hasattr(model, "n_samples_fit_")
    all_rows, few = model.leave_one_out(X, y), model.leave_one_out(X[:50], y[:50])
    for one, other in zip(all_rows, few, strict=True):
        assert_allclose(one[:50], other)


@pytest.mark.parametrize("n", [1, 2])
def test_a_lone_row_is_predicted_by_the_prior(n):
    X, y = np.zeros((n, 1)), np.array([1.0, 3.0])[:n]
    how = FIXED | {"kernel": ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")}
    model = SWSGPRegressor(**how, normalize_y=False).fit(X, y)
    found = model.leave_one_out(X, y)
    other = y[::-1] * 2.0 / 2.05 if n == 2 else [0.0]  # the other row, or none
    variance = 2.05 if n == 1 else 0.05 + 2.0 * 0.05 / 2.05
    assert_allclose(found.mean, other)
    assert_allclose(found.std, np.sqrt(variance))


def test_rows_held_out_to_stop_count_as_others():
    X, y = make_rows(200)
    how = {"n_inducing": 20, "early_stopping": True, "max_iter": 3}
    model = SWSGPRegressor(**ADAM, **how, random_state=0).fit(X, y)
    assert model.n_samples_fit_ == 200
    assert np.isfinite(model.leave_one_out(X, y).std).all()


def test_tables_with_names_keep_them():
    pd = pytest.importorskip("pandas")
    X, y = make_rows()
    table, weight = pd.DataFrame(X, columns=["a", "b"]), np.r_[0.0, np.ones(29)]
    found = SWSGPRegressor(**FIXED).fit(table, y, weight)
    found = found.leave_one_out(table, pd.Series(y), weight)
    plain = SWSGPRegressor(**FIXED).fit(X, y, weight).leave_one_out(X, y, weight)
    assert_array_equal(found.std, plain.std)


def test_a_warm_start_keeps_the_scale_of_the_first_fit():
    X, y = make_rows()
    model = SWSGPRegressor(**FIXED, n_inducing=10, warm_start=True).fit(X, y)
    more, higher = make_rows(40, seed=1)
    found = model.fit(more, higher + 1.0).leave_one_out(more, higher + 1.0)
    assert np.isfinite(found.residual).all()


@pytest.mark.parametrize("n_neighbors", [8, "all"])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X, y: (X[1:], y[1:]), "X has 29 rows of .*: expected the 30 of fit"),
        (lambda X, y: (X + 1e-3, y), "X has rows that are not among the inducing"),
        (lambda X, y: (X[[0, *range(29)]], y), "X has rows that are not among the ind"),
        (lambda X, y: (X, 2 * y), "y has another mean or deviation than in fit: exp"),
        (lambda X, y: (X[:, :1], y), "X has 1 features"),
        (lambda X, y: (X, np.stack([y, y], axis=1)), "y has shape .*: expected .*as"),
        (lambda X, y: (X, np.where(y > y.mean(), np.nan, y)), "NaN"),
    ],
    ids=["fewer", "moved", "repeated", "targets", "columns", "outputs", "nan"],
)
def test_other_rows_are_refused(change, match, n_neighbors):
    X, y = make_rows()
    model = SWSGPRegressor(**FIXED, n_neighbors=n_neighbors).fit(X, y)
    with pytest.raises(ValueError, match=match):
        model.leave_one_out(*change(X, y))


def test_weights_that_did_not_train_are_refused():
    X, y = make_rows()
    model = SWSGPRegressor(**FIXED).fit(X, y)
    with pytest.raises(ValueError, match="y has another mean"):
        model.leave_one_out(X, y, np.arange(1.0, 31.0))
    with pytest.raises(ValueError, match="zero"):
        model.leave_one_out(X, y, np.zeros(30))


def test_an_estimator_without_a_fit_says_so():
    with pytest.raises(NotFittedError):
        SWSGPRegressor().leave_one_out(*make_rows())


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
    model = SWSGPRegressor(random_state=0, **options).fit(X, y)
    rows = model.leave_one_out(X, y)
    found = np.argsort(rows.z_score)[:10]
    assert len(set(found) & set(odd)) >= 8
    by_std = np.argsort(-abs(rows.residual) / rows.std)[:10]
    assert len(set(by_std) & set(odd)) < 5
    rest = np.delete(rows.z_score, odd)
    assert 0.8 < rest.std() < 1.2


def test_scores_of_a_gaussian_law_are_standardised_residuals():
    X, y = make_rows(60)
    model = SWSGPRegressor(**FIXED).fit(X, y)
    rows = model.leave_one_out(X, y)
    assert_allclose(rows.z_score, rows.residual / rows.std)


def test_rows_and_targets_that_do_not_go_together_are_refused():
    X, y = make_rows(60)
    model = SWSGPRegressor(**FIXED).fit(X, y)
    for order in (np.r_[1, 0, 2:60], np.arange(60)[::-1]):
        with pytest.raises(ValueError, match="X and y do not go together as in fit"):
            model.leave_one_out(X, y[order])
    order = np.random.default_rng(0).permutation(60)
    again = model.leave_one_out(X[order], y[order])
    assert_allclose(again.mean, model.leave_one_out(X, y).mean[order])


def test_copies_have_the_noise_of_one_row():
    X, y = make_rows(40)
    X, y = np.r_[X, X[:10]], np.r_[y, y[:10]]
    model = SWSGPRegressor(**FIXED).fit(X, y)
    rows, once = model.leave_one_out(X, y), slice(10, 40)
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
    model = SWSGPRegressor(
        solver="adam", init="default", noise_variance=0.3, n_inducing=200, max_iter=80,
        learning_rate=0.05, early_stopping=True, validation_fraction=0.4,
        random_state=0,
    )  # fmt: skip
    rows = model.fit(X, y).leave_one_out(X, y)
    assert np.isfinite(rows.z_score).all()


def test_rows_held_out_by_the_natural_solver_are_named(tune):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, size=(100, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(100)
    model = SWSGPRegressor(early_stopping=True, random_state=0).fit(X, y)
    assert np.isfinite(model.leave_one_out(X, y).std).all()
    X = rng.uniform(0.0, 5.0, size=(700, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(700)
    tune(dense_rows=0)
    model.fit(X, y)
    assert hasattr(model, "alpha_")
    with pytest.raises(ValueError, match="which held rows out"):
        model.leave_one_out(X, y)


def test_an_unknown_likelihood_is_named():
    X = np.linspace(0.0, 1.0, 20)[:, None]
    model = SWSGPRegressor(random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="'likelihood' parameter"):
        model.set_params(likelihood="bogus").leave_one_out(X, X[:, 0])
