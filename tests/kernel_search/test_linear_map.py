"""A linear map of the columns that is learned with the kernel."""

import copy

import numpy as np
import pytest
import reference
from helpers import KERNELS, assert_derivatives, make, make_problem
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    WhiteKernel,
)
from sklearn.metrics import log_loss

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._engine.cpu import CpuEngine
from skswsgp._kernel_search import kernel_choice
from skswsgp._kernel_search.kernel_learning import (
    ROWS_PER_COLUMN_OF_MAP,
    KernelLearner,
    evaluation_work,
)
from skswsgp._kernel_search.linear_map import (
    PRIOR_VARIANCE_OF_MAP,
    MovingMap,
    leading_map,
    moving_map,
)
from skswsgp._rows.columns import mapped
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.solvers import Adam


def rotation(D, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0]


def friedman(n, rotated, seed=0, n_test=1000):
    """Return train X, y and test X, f of friedman1 with 10 columns, perhaps rotated."""
    X, y = make_friedman1(n, 10, noise=1.0, random_state=seed)
    X_test, f = make_friedman1(n_test, 10, noise=0.0, random_state=seed + 100)
    turn = rotation(10) if rotated else np.eye(10)
    return (X - 0.5) @ turn, y, (X_test - 0.5) @ turn, f


def error(model, X, f):
    return np.sqrt(np.mean((model.predict(X) - f) ** 2))


@pytest.fixture(scope="module")
def many_rotated():
    return friedman(1200, rotated=True)


@pytest.fixture(scope="module")
def rotated():
    return friedman(400, rotated=True)


@pytest.fixture(scope="module")
def turned(rotated):
    X, y, *_ = rotated
    return SWSGPRegressor(n_jobs=1, random_state=0).fit(X, y)


def is_identity(model):
    return np.array_equal(model.linear_map_, np.eye(model.n_features_in_))


# ------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("Q", [1, 2])
def test_derivatives_by_a_map_equal_differences(kernel, Q, rng):
    sizes = {"M": 9, "H": 5, "n": 20}
    problem = make_problem(KERNELS[kernel], "gaussian", Q, full=False, rng=rng, **sizes)
    model, batch = problem.model, problem.batch
    ratios = rng.uniform(0.5, 2.0, size=batch.y.shape)
    batch = batch._replace(y=np.hstack([batch.y, ratios]))
    Z, X, D = model.Z.copy(), batch.X.copy(), batch.X.shape[1]
    n, start = len(X), np.eye(D) + 0.1 * rng.normal(size=(D, D))
    engine = CpuEngine(model, batch.active.shape[1], 2)
    engine.load_mapped_kriging(batch, n, (Z, X))

    def likelihood(entries):
        W = entries.reshape(D, D)
        model.Z[:], batch.X[:] = Z @ W, X @ W
        return engine.kriging_gradients(0).sums[0, 0]

    likelihood(start.ravel())
    by_map = engine.map_gradient.copy()
    assert_derivatives(by_map.ravel(), likelihood, start.ravel())
    expected = reference.nearest_neighbor_log_likelihood(
        problem.kernel, X @ start, batch.y, Z @ start, model.m, 1.0 / model.s,
        model.noise, batch.active, batch.weight,
    )  # fmt: skip
    assert_allclose(likelihood(start.ravel()), expected, rtol=1e-9)


@pytest.mark.parametrize("scaling", [False, True])
def test_slope_of_a_moving_map_equals_differences(scaling, rng):
    points, lengths = rng.normal(size=(30, 4)), np.array([0.1, 1.0, 3.0, 20.0])
    target, fraction = rng.normal(size=(30, 4)), 0.3

    def objective(columns):
        mapped_points = points @ columns.matrix
        density = -0.5 * np.sum((mapped_points - target) ** 2)
        prior = -0.5 * np.sum(np.triu(columns.S) ** 2) / columns.prior_variance
        return fraction * (density + prior), fraction * (target - mapped_points)

    columns = MovingMap(points, lengths, scaling)
    S = 0.1 * rng.normal(size=(4, 4))
    columns.S[:] = columns.moves * (S + S.T)
    slope = columns.slope(points.T @ objective(columns)[1], fraction)
    for i in range(4):
        for j in range(i + 1):
            move = np.zeros((4, 4))
            move[i, j] = move[j, i] = 1e-6
            values = []
            for sign in (-1, 1):
                other = MovingMap(points, lengths, scaling)
                other.S[:] = columns.S + sign * columns.moves * move
                values.append(objective(other)[0])
            difference = (values[1] - values[0]) / 2e-6
            assert_allclose(
                np.sum(slope * move) / 1e-6, difference, rtol=1e-5, atol=1e-6
            )


def test_new_columns_keep_units(rng):
    points, units = rng.normal(size=(50, 3)), np.array([1e-6, 1.0, 1e6])
    plain = MovingMap(points, np.ones(3))
    scaled = MovingMap(points * units, units)
    for columns in (plain, scaled):
        columns.S[:] = [[0.0, 0.3, -0.2], [0.3, 0.0, 0.1], [-0.2, 0.1, 0.0]]
    assert_allclose(points * units @ scaled.matrix, (points @ plain.matrix) * units)


def test_prior_is_narrow_where_rows_are_few(rng):
    few, many = (MovingMap(rng.normal(size=(n, 4)), np.ones(4)) for n in (30, 60))
    assert_allclose(
        many.prior_variance, PRIOR_VARIANCE_OF_MAP
    )  # ten rows for each of 6 entries
    assert_allclose(few.prior_variance, PRIOR_VARIANCE_OF_MAP / 4)


def test_columns_are_scaled_only_without_their_own_length_scales(rng):
    points = rng.normal(size=(20, 3))
    assert not moving_map(RBF([1.0, 2.0, 3.0]), points).moves.diagonal().any()
    for kernel in (RBF(), RBF([1.0] * 3, "fixed"), DotProduct()):
        assert moving_map(kernel, points).moves.all()
    constant = moving_map(DotProduct(), np.ones((20, 3)))
    assert np.isfinite(constant.matrix).all()


# ------------------------------------------------------------------ products


def test_rows_are_mapped_one_by_one(rng):
    X, W = rng.normal(size=(100, 7)), rng.normal(size=(7, 3))
    assert_allclose(mapped(X, W), X @ W, rtol=1e-12, atol=1e-12)
    single = [mapped(X[i : i + 1], W)[0] for i in range(len(X))]
    assert_array_equal(mapped(X, W), single)
    assert_array_equal(mapped(X[::2], W), mapped(X, W)[::2])


def test_the_identity_returns_the_rows_themselves(rng):
    X = rng.normal(size=(5, 3)).astype(np.float32)
    assert mapped(X, None) is X
    assert mapped(X, np.eye(3)) is X
    assert mapped(X, 2 * np.eye(3)).dtype == np.float64


# ------------------------------------------------------------------ what it finds


@pytest.mark.full
@pytest.mark.parametrize("kind", [SWSGPRegressor, NearestNeighborGPRegressor])
def test_a_rotation_hardly_changes_the_error(kind):
    errors = {}
    for learn_map in (False, "auto"):
        for turn in (False, True):
            X, y, X_test, f = friedman(2000, turn)
            model = kind(learn_map=learn_map, random_state=0).fit(X, y)
            errors[learn_map, turn] = error(model, X_test, f)
    # in units of y, whose noise has a standard deviation of 1
    assert errors["auto", False] < 1.05 * errors[False, False]  # 100 entries for 10
    assert kind is not SWSGPRegressor or errors["auto", True] < 0.24
    assert errors[False, True] > 2.0 * errors[False, False]
    assert errors["auto", True] < 1.45 * errors["auto", False]


@pytest.mark.parametrize("n_rows", [300, pytest.param(1500, marks=pytest.mark.full)])
def test_pure_noise_shows_no_direction(n_rows):
    rng = np.random.default_rng(0)  # where held-out neighbours gave an error of 0.29
    X, y = rng.normal(size=(n_rows, 6)), rng.normal(size=n_rows)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    f = model.predict(rng.normal(size=(1000, 6)))  # the true f is 0
    assert np.sqrt(np.mean(f**2)) < 0.25
    assert is_identity(model)


@pytest.mark.full
def test_evidence_of_a_part_finds_a_gain_that_hides_in_the_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (3500, 6))
    f = np.sin(3 * (X[:, 0] + X[:, 1]))
    y = f + 0.1 * rng.normal(size=3500)
    auto, ard = (
        SWSGPRegressor(learn_map=learn_map, random_state=0).fit(X[:1500], y[:1500])
        for learn_map in ("auto", False)
    )
    assert error(auto, X[1500:], f[1500:]) < 0.8 * error(ard, X[1500:], f[1500:])
    assert auto.feature_importances_[:2].sum() > 0.99


@pytest.mark.full
@pytest.mark.parametrize(("n_rows", "n_columns"), [(300, 6), (1200, 12)])
def test_classes_find_a_direction(n_rows, n_columns, rng):
    X = rng.normal(size=(n_rows + 800, n_columns))
    across = rotation(n_columns)[0]
    y = np.sin(2.0 * X @ across) + 0.3 * rng.normal(size=len(X)) > 0
    losses = {}
    for learn_map in (False, "auto"):
        model = SWSGPClassifier(learn_map=learn_map, random_state=0).fit(
            X[:n_rows], y[:n_rows]
        )
        losses[learn_map] = log_loss(y[n_rows:], model.predict_proba(X[n_rows:]))
        assert is_identity(model) == (learn_map is False)
    assert losses["auto"] < losses[False] - 0.05


def test_few_labels_without_a_pattern_show_no_direction(rng):
    X, y = rng.normal(size=(200, 6)), rng.normal(size=200) > 0
    assert is_identity(SWSGPClassifier(random_state=0).fit(X, y))


# ------------------------------------------------------------------ wide tables


def wide(n, rng, n_columns=12):
    """Return X, y and f of n rows, where f depends on two directions of X."""
    X = rng.normal(size=(n, n_columns))
    T = X @ rotation(n_columns)[:, :2]
    f = np.sin(2 * T[:, 0]) + 0.5 * T[:, 1] ** 2
    return X, f + 0.1 * rng.normal(size=n), f


def test_leading_map_finds_the_directions_of_slopes(rng):
    lengths, directions = np.array([0.1, 1.0, 10.0, 100.0]), rotation(4)[:, :2]
    sizes = rng.normal(size=(500, 3, 2)) * [2.0, 1.0]
    slopes = sizes @ directions.T / lengths  # by X, of functions of X / l
    W = leading_map(slopes, lengths, 2) * lengths[:, None]
    assert_allclose(
        np.abs(directions.T @ W / np.linalg.norm(W, axis=0)), np.eye(2), atol=0.1
    )
    G = np.einsum("nqd,nqe->de", slopes * lengths, slopes * lengths)
    largest = np.linalg.eigvalsh(G)[::-1][:2]
    assert_allclose(np.linalg.norm(W, axis=0) ** 4, largest / largest.mean())


def test_leading_map_of_constant_functions_is_finite():
    W = leading_map(np.zeros((5, 1, 3)), np.ones(3), 2)
    assert_allclose(W.T @ W, np.eye(2), atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("kind", [SWSGPRegressor, NearestNeighborGPRegressor])
def test_wide_tables_are_mapped_to_few_columns(kind, tune, rng):
    X, y, f = wide(2500, rng)
    errors = {}
    for learn_map, most in ((False, 64), ("auto", 6)):
        tune(most_columns=most)
        model = kind(learn_map=learn_map, random_state=0).fit(X[:1500], y[:1500])
        errors[learn_map] = error(model, X[1500:], f[1500:])
    assert model.linear_map_.shape == (12, 6)
    assert errors["auto"] < 0.6 * errors[False]


@pytest.mark.full
def test_wide_tables_of_noise_keep_their_columns(tune, rng):
    tune(most_columns=6)
    X, y = rng.normal(size=(1500, 12)), rng.normal(size=1500)
    assert is_identity(SWSGPRegressor(random_state=0).fit(X, y))


@pytest.mark.full
def test_wide_tables_of_classes(tune, rng):
    X, _, f = wide(2500, rng)
    y = f + 0.3 * rng.normal(size=2500) > 0.5
    losses = {}
    for learn_map, most in ((False, 64), ("auto", 6), (True, 6)):
        tune(most_columns=most)
        model = SWSGPClassifier(learn_map=learn_map, random_state=0).fit(
            X[:1500], y[:1500]
        )
        losses[learn_map] = log_loss(y[1500:], model.predict_proba(X[1500:]))
        assert model.linear_map_.shape == ((12, 12) if learn_map is False else (12, 6))
    assert losses["auto"] < losses[False] - 0.05


@pytest.mark.full  # a claim of accuracy
def test_fewer_columns_after_the_map_in_all_that_follows(tune, rng):
    tune(most_columns=3, evidence_work=0, learning_steps=50)
    X, y, _ = wide(250, rng, n_columns=6)
    model = SWSGPRegressor(
        learn_map=True, n_inducing=100, warm_start=True, random_state=0
    ).fit(X, y)
    assert model.inducing_points_.shape[1] == 3
    assert model.feature_importances_.shape == (6,)
    again = clone(model).set_params(inducing_points=X[:50], n_inducing="auto").fit(X, y)
    assert_allclose(again.inducing_points_, mapped(X[:50], again.linear_map_))
    learn_map = model.linear_map_.copy()
    model.partial_fit(X[:100], y[:100])
    assert_array_equal(model.fit(X, y).linear_map_, learn_map)
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_a_kernel_of_the_user_keeps_the_number_of_columns(tune, rng):
    tune(most_columns=3, learning_steps=10)
    X, y, _ = wide(200, rng, n_columns=6)
    kernel = RBF(np.ones(6))
    model = SWSGPRegressor(kernel, learn_map=True, random_state=0).fit(X, y)
    assert model.linear_map_.shape == (6, 6)
    model = SWSGPClassifier(kernel, learn_map=True, random_state=0).fit(X, y > 0)
    assert model.linear_map_.shape == (6, 6)


@pytest.mark.full
def test_variances_are_judged_by_rows_that_the_map_has_not_seen():
    residuals = []
    for seed in range(2):
        X, y = friedman(2500, rotated=True, seed=seed)[:2]
        model = SWSGPRegressor(learn_map=True, random_state=0).fit(X, y)
        X, y = friedman(600, rotated=True, seed=seed + 50)[:2]
        mean, std = model.predict(X, return_std=True)
        residuals.append((y - mean) / std)
    assert abs(np.mean(np.square(residuals)) - 1.0) < 0.12


# ------------------------------------------------------------------ what a user meets


def test_attributes_move_to_scikit_learn(rotated):
    X, y, X_test, _ = rotated
    X, y = X[:250], y[:250]
    ours = NearestNeighborGPRegressor(
        learn_map=True, n_neighbors=len(X), normalize_y=False, random_state=0
    ).fit(X, y)
    kernel = ours.kernel_ + WhiteKernel(ours.noise_variance_)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(
        X @ ours.linear_map_, y
    )
    mean, std = theirs.predict(X_test @ ours.linear_map_, return_std=True)
    assert_allclose(ours.predict(X_test, return_std=True), (mean, std), rtol=1e-6)


@pytest.mark.full  # a claim of accuracy
def test_ard_is_the_identity_and_full_is_not(rotated):
    X, y, *_ = rotated
    X, y = X[:200], y[:200]
    assert is_identity(SWSGPRegressor(learn_map=False, random_state=0).fit(X, y))
    X, y, *_ = friedman(200, rotated=False)
    assert not is_identity(SWSGPRegressor(learn_map=True, random_state=0).fit(X, y))
    assert not is_identity(
        SWSGPClassifier(learn_map=True, random_state=0).fit(X, y > np.median(y))
    )


@pytest.mark.full
def test_a_given_kernel_keeps_the_columns_unless_full_is_asked_for(many_rotated):
    X, y, X_test, f = many_rotated
    kernel = ConstantKernel(1.0) * RBF(1.0)
    given = SWSGPRegressor(kernel, random_state=0).fit(X, y)
    full = SWSGPRegressor(kernel, learn_map=True, random_state=0).fit(X, y)
    assert is_identity(given)
    assert np.isscalar(full.kernel_.k2.length_scale)
    assert error(full, X_test, f) < 0.8 * error(given, X_test, f)


def test_one_column_has_no_map(rng):
    X = rng.normal(size=(200, 1))
    model = SWSGPRegressor(learn_map=True, random_state=0).fit(X, np.sin(X[:, 0]))
    assert_array_equal(model.linear_map_, np.eye(1))


def test_full_needs_learning(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    model = SWSGPRegressor(learn_map=True, learn_kernel=False, solver="adam")
    with pytest.raises(ValueError, match="learn_map=True with learn_kernel=False"):
        model.fit(X, y)


def test_inducing_points_of_the_user_are_mapped(rotated):
    X, y, *_ = rotated
    model = SWSGPRegressor(inducing_points=X[:200], random_state=0).fit(X, y)
    assert not is_identity(model)
    assert_allclose(model.inducing_points_, X[:200] @ model.linear_map_, atol=1e-12)


@pytest.mark.usefixtures("eager_threads")
def test_bits_do_not_depend_on_threads(rotated, turned):
    X, y, X_test, _ = rotated
    other = clone(turned).set_params(n_jobs=2).fit(X, y)
    assert_array_equal(other.linear_map_, turned.linear_map_)
    assert_array_equal(other.predict(X_test), turned.predict(X_test))


def test_predictions_of_a_row_do_not_depend_on_the_others(rotated, turned):
    X_test = rotated[2]
    alone = [turned.predict(X_test[i : i + 1])[0] for i in range(5)]
    assert_array_equal(turned.predict(X_test)[:5], alone)


def test_warm_start_and_stream_keep_the_map(rotated, turned):
    X, y, X_test, f = rotated
    again = clone(turned).set_params(warm_start=True).fit(X, y)
    before = again.linear_map_
    again.fit(X, y)
    assert_array_equal(again.linear_map_, before)
    assert error(again, X_test, f) < 1.02 * error(turned, X_test, f)
    sizes = {"n_inducing": 100, "n_neighbors": 16}
    stream = SWSGPRegressor(learn_map=True, random_state=0, **sizes)
    stream.partial_fit(X[:300], y[:300])
    before = stream.linear_map_
    assert not is_identity(stream)
    for rows in np.split(np.arange(300, 400), 2):
        stream.partial_fit(X[rows], y[rows])
    assert_array_equal(stream.linear_map_, before)
    assert error(stream, X_test, f) < 0.8 * f.std()


@pytest.mark.full
def test_adam_and_held_out_rows_use_the_map(many_rotated):
    X, y, X_test, f = many_rotated
    options = {"solver": "adam", "max_iter": 20, "early_stopping": True}
    options["predictive"] = "gaussian"  # as held-out rows are judged
    model = make(SWSGPRegressor, n_inducing=300, random_state=0, **options).fit(X, y)
    assert not is_identity(model)
    assert error(model, X_test, f) < 0.5 * f.std()
    given = clone(model).fit(X[:900], y[:900], X_val=X[900:], y_val=y[900:])
    density = given.validation_scores_
    mean, std = given.predict(X[900:], return_std=True)
    z = (y[900:] - mean) / std
    expected = np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))
    assert_allclose(max(density), expected, rtol=1e-2)  # neighbours are looked up late


def test_lower_bound_uses_the_map(rotated, turned):
    X, y, *_ = rotated
    plain = copy.deepcopy(turned)
    plain.linear_map_ = np.eye(10)
    expected = plain.lower_bound(X @ turned.linear_map_, y)
    assert_allclose(turned.lower_bound(X, y), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("table", "learn_map"),
    [
        ("duplicated", True),
        ("one-hot", "auto"),
        pytest.param("constant", "auto", marks=pytest.mark.full),
        pytest.param("collinear", True, marks=pytest.mark.full),
        pytest.param("constant", True, marks=pytest.mark.full),
        pytest.param("duplicated", "auto", marks=pytest.mark.full),
        pytest.param("one-hot", True, marks=pytest.mark.full),
        pytest.param("collinear", "auto", marks=pytest.mark.full),
    ],
)
def test_degenerate_columns(table, learn_map, rng):
    X = rng.normal(size=(400, 4))
    extra = {
        "constant": np.full((400, 2), 3.0),
        "duplicated": X[:, :2],
        "one-hot": np.eye(3)[rng.integers(3, size=400)],
        "collinear": X @ rng.normal(size=(4, 2)),
    }[table]
    y = np.sin(X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=400)
    X = np.hstack([X, extra])
    model = SWSGPRegressor(learn_map=learn_map, random_state=0).fit(X[:300], y[:300])
    mean, std = model.predict(X[300:], return_std=True)
    assert np.isfinite(model.linear_map_).all()
    assert np.sqrt(np.mean((mean - y[300:]) ** 2)) < 0.3 * y.std()
    assert 0.8 < np.mean(np.abs(mean - y[300:]) < 1.96 * std) <= 1.0


@pytest.mark.parametrize(
    ("n_rows", "n_columns"),
    [(3, 80), (10, 400), pytest.param(40, 60, marks=pytest.mark.full)],
)
def test_more_columns_than_rows(n_rows, n_columns, rng):
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, 0] + 0.1 * rng.normal(size=n_rows)
    for learn_map in ("auto", True):
        model = SWSGPRegressor(learn_map=learn_map, random_state=0).fit(X, y)
        assert np.isfinite(model.predict(X)).all()
    few = max(2, int(0.8 * n_rows + 1) // ROWS_PER_COLUMN_OF_MAP)
    assert model.linear_map_.shape == (n_columns, few if n_columns > 64 else n_columns)


@pytest.mark.parametrize("n_rows", [2, 4])
def test_so_few_rows_that_none_is_held_out(n_rows, rng):
    X, y = rng.normal(size=(n_rows, 3)), rng.normal(size=n_rows)
    model = NearestNeighborGPRegressor(learn_map=True, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_a_map_that_fails_leaves_the_columns(tune, monkeypatch, rng):
    def fails(*arguments):
        raise FloatingPointError("slopes are not finite")

    work = evaluation_work(50, 4, 1)
    tune(evidence_work=work, part_work=work, learning_steps=10)
    monkeypatch.setattr(kernel_choice, "LEAST_JUDGES", 1)
    X, y = rng.normal(size=(100, 4)), rng.normal(size=100)
    monkeypatch.setattr(KernelLearner, "turned", fails)
    assert is_identity(SWSGPRegressor(random_state=0).fit(X, y))
    asked = SWSGPRegressor(learn_map=True, random_state=0)
    assert not is_identity(asked.fit(X, y))  # the map of the evidence
    tune(most_columns=3)
    monkeypatch.setattr(KernelLearner, "mapped_to_few", fails)
    assert is_identity(SWSGPRegressor(random_state=0).fit(X, y))
    with pytest.raises(FloatingPointError, match="not finite"):
        asked.fit(X, y)


@pytest.mark.full
def test_weights_act_like_repetition(rng):
    X, y, X_test, _ = friedman(1100, rotated=True)
    weight = rng.integers(1, 3, size=1100)
    once = SWSGPRegressor(random_state=0).fit(X, y, weight.astype(float))
    twice = SWSGPRegressor(random_state=0).fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    assert not is_identity(once)
    assert not is_identity(twice)
    gap = np.sqrt(np.mean((once.predict(X_test) - twice.predict(X_test)) ** 2))
    assert gap < 0.1 * y.std()


@pytest.mark.slow  # compiles for float32
def test_float32(rotated, turned):
    X, y, X_test, f = rotated
    single = clone(turned).set_params(dtype="float32").fit(X.astype("f"), y)
    assert single.linear_map_.dtype == np.float64
    assert error(single, X_test, f) < 1.1 * error(turned, X_test, f)


@pytest.mark.parametrize("n", [300, 600])
@pytest.mark.parametrize("kernel", [None, ConstantKernel(1.0) * RBF([1.0, 1.0])])
def test_adam_learns_a_map_that_is_asked_for(n, kernel, rng, few_steps):
    X = rng.normal(size=(n, 2)) @ [[1.0, 0.9], [0.9, 1.0]]
    y = np.sin(2.0 * (X[:, 0] - X[:, 1]))
    solver = Adam(max_iter=1)
    model = SWSGPRegressor(kernel, solver=solver, learn_map=True, random_state=0)
    W = model.fit(X, y).linear_map_
    assert max(W[0, 1], W[1, 0]) < -0.2
