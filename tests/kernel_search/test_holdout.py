"""Held-out rows: their choice, candidate kernels, the scale of variances."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct
from small_models import natural_settings

from skswsgp import SWSGPRegressor
from skswsgp._kernel_search import holdout, kernel_choice, start
from skswsgp._kernel_search.kernel_learning import KernelFit, LearningOptions
from skswsgp._rows import inducing
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.tuning import Tuning
from skswsgp.solvers import Adam, Natural

ROUGH, SMOOTH = (ConstantKernel(1.0) * RBF(size) for size in (0.02, 1.0))
NOISE = np.array([0.01])


def waves(rng, n):
    """Return a slow wave with ripples that twelve inducing points cannot represent."""
    X = rng.uniform(-3, 3, size=(n, 1))
    y = np.sin(X[:, 0]) + 0.2 * np.sin(60 * X[:, 0]) + 0.01 * rng.normal(size=n)
    return X, y


def comparison_of(X, y, M=12, seed=0):
    data = TrainingRows(X, y[:, None], np.ones(len(X)))
    rng = np.random.RandomState(seed)
    return holdout.CandidateComparison(
        M, M, np.ones(1), data, natural_settings(), LearningOptions(), rng
    )


def holdout_of(n_rows, data):
    rng = np.random.RandomState(0)
    return holdout.Holdout(n_rows, data, natural_settings(), LearningOptions(), rng)


def test_comparison_prefers_a_kernel_that_few_points_can_represent(rng):
    comparison = comparison_of(*waves(rng, 600))
    rough, smooth = KernelFit(ROUGH, NOISE), KernelFit(SMOOTH, 3 * NOISE)
    assert comparison.best_of([rough, smooth]) is smooth
    assert comparison.best_of([smooth, rough]) is smooth
    same = KernelFit(ROUGH.clone_with_theta(ROUGH.theta), NOISE)
    assert comparison.best_of([rough, same]) is rough


def test_candidates_that_fail_are_skipped(rng, monkeypatch):
    comparison = comparison_of(*waves(rng, 200))
    solve = comparison.solve

    def failing(found):
        if found.kernel is ROUGH:
            raise FloatingPointError("lost")
        return solve(found)

    monkeypatch.setattr(comparison, "solve", failing)
    smooth, rough = KernelFit(SMOOTH, NOISE), KernelFit(ROUGH, NOISE)
    assert comparison.best_of([smooth, rough]) is smooth
    assert comparison.best_of([rough, smooth]) is smooth
    assert comparison.best_of([rough, KernelFit(ROUGH, 2.0 * NOISE)]) is rough


def test_held_out_rows_do_not_enter_the_fit(rng):
    X, y = waves(rng, 200)
    comparison = comparison_of(X, y)
    assert comparison.held_out.sum() == 40
    before = comparison.solve(KernelFit(SMOOTH, NOISE))[1]
    held = comparison.held_out
    y = comparison.y[held][:, 0]
    comparison.y[held] += 1.0
    after = comparison.solve(KernelFit(SMOOTH, NOISE))[1]
    comparison.y[held] += 1.0
    again = comparison.solve(KernelFit(SMOOTH, NOISE))[1]
    # With equal mu and v, the log density is a parabola in y.
    curvature = again - 2.0 * after + before
    assert (curvature < 0.0).all()
    v = -1.0 / curvature
    mu = y + 0.5 - v * (before - after)
    assert_allclose(-0.5 * (np.log(2 * np.pi * v) + (y - mu) ** 2 / v), before)


def test_duplicates_are_not_split_between_training_and_holdout(rng):
    X = rng.uniform(-3, 3, size=(300, 1))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=300)
    memory = KernelFit(ConstantKernel(1.0) * RBF(1e-3), np.array([1e-3]))
    smooth = KernelFit(SMOOTH, np.array([0.25]))
    comparison = comparison_of(np.repeat(X, 5, axis=0), np.repeat(y, 5), M=240)
    assert comparison.best_of([smooth, memory]) is smooth
    assert comparison.best_of([memory, smooth]) is smooth


def test_too_few_rows_keep_the_first_candidate(rng):
    X, y = waves(rng, 14)
    rough, smooth = KernelFit(ROUGH, NOISE), KernelFit(SMOOTH, 3 * NOISE)
    comparison = comparison_of(X, y)
    assert not comparison.decisive
    assert comparison.best_of([rough, smooth]) is rough


def test_comparison_uses_the_weight_of_the_estimator(rng, monkeypatch):
    seen = []

    def recorded(self, attributes, H, solver=holdout.CandidateComparison.solver_for):
        seen.append(solver(self, attributes, H))
        return seen[-1]

    monkeypatch.setattr(holdout.CandidateComparison, "solver_for", recorded)
    X, y = waves(rng, 300)
    settings = {"n_inducing": 20, "n_neighbors": 5, "random_state": 0}
    make(SWSGPRegressor, **settings).fit(X, y)
    make(SWSGPRegressor, **settings, kl_weight=2.0).fit(X, y)
    assert seen[0].engine.model.kl_weight == 1.0
    assert seen[-1].engine.model.kl_weight == 2.0


@pytest.mark.parametrize("points", ["kmeans", "random"])
def test_comparison_chooses_inducing_points_like_the_fit(
    points, rng, monkeypatch, few_steps
):
    chosen, choose = [], inducing.initial_inducing_points

    def recorded(X, M, method, rng, scale, *args):
        chosen.append((method, scale))
        return choose(X, M, method, rng, scale, *args)

    monkeypatch.setattr(holdout, "initial_inducing_points", recorded)
    monkeypatch.setattr(start, "initial_inducing_points", recorded)
    X = rng.normal(size=(300, 2)) * [1.0, 1000.0]
    kernel = DotProduct(1.0) + ConstantKernel(1.0)
    settings = {"n_inducing": 20, "n_neighbors": 5, "random_state": 0}
    model = make(SWSGPRegressor, kernel, inducing_points=points, **settings)
    model.fit(X, X[:, 0])
    assert len(chosen) == 3
    for method, scale in chosen:
        assert method == points
        assert_array_equal(scale, chosen[-1][1])
    assert scale[1] > 100 * scale[0]


def test_kernel_is_learned_once_when_the_part_holds_all_rows(
    rng, monkeypatch, few_steps
):
    learned, learn = [], kernel_choice.learn_kernel

    def recorded(data, *args, **options):
        learned.append(data.n_rows)
        return learn(data, *args, **options)

    monkeypatch.setattr(start, "learn_kernel", recorded)
    X, y = waves(rng, 260)
    SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert learned == [260, 250]
    SWSGPRegressor(n_inducing=20, random_state=0).fit(X[:240], y[:240])
    assert learned == [260, 250, 240]


def test_has_few_points_and_learning_part():
    assert holdout.has_few_points(100, 401, 2, Tuning())
    assert not holdout.has_few_points(100, 400, 2, Tuning())
    # Four rows per point among the held-out rows, and among those for learning.
    assert not holdout.has_few_points(4000, 10**6, 2, Tuning())
    assert not holdout.has_few_points(2000, 60_000, 784, Tuning())
    data = TrainingRows(np.zeros((5000, 1)), np.zeros((5000, 1)), np.ones(5000))
    assert holdout.learning_part(100, data, np.random.RandomState(0)).n_rows == 400
    assert holdout.learning_part(2, data, np.random.RandomState(0)).n_rows == 250


@pytest.mark.parametrize(("M", "near"), [(270, True), (75, True), (67, False)])
def test_near_rows_teach_a_kernel_unless_points_are_few(
    M, near, rng, monkeypatch, few_steps, tune
):
    tune(holdout_rows=Tuning().holdout_rows)
    given, learn = [], kernel_choice.learn_kernel

    def recorded(data, *args, **options):
        given.append((options["by"], options["n_neighbors"]))
        return learn(data, *args, **options)

    monkeypatch.setattr(start, "learn_kernel", recorded)
    X, y = waves(rng, 270)
    SWSGPRegressor(n_inducing=M, n_neighbors=8, random_state=0).fit(X, y)
    assert given == ([("both", 8)] if near else [("evidence", 8)] * 2)


@pytest.mark.parametrize(
    ("solver", "by"),
    [
        ("natural", "both"),
        (Natural(optimize_inducing=True), "both"),
        (Adam(max_iter=1), "near"),
    ],
)
def test_the_evidence_teaches_unless_adam_looks_for_the_mean(
    solver, by, rng, monkeypatch, few_steps
):
    given, learn = [], start.learn_kernel

    def recorded(*args, **options):
        given.append(options["by"])
        return learn(*args, **options)

    monkeypatch.setattr(start, "learn_kernel", recorded)
    SWSGPRegressor(n_inducing=100, solver=solver, random_state=0).fit(*waves(rng, 100))
    assert given == [by]


@pytest.mark.full  # a claim of accuracy
def test_few_points_get_a_smoother_kernel(rng, monkeypatch):
    X, y = waves(rng, 600)
    model = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert model.kernel_.k2.length_scale > 0.3
    monkeypatch.setattr(holdout, "has_few_points", lambda *args: False)
    other = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert other.kernel_.k2.length_scale < 0.3
    X_new, y_new = waves(rng, 500)
    assert model.score(X_new, y_new) > other.score(X_new, y_new)


# --- which rows are held out ----------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "held"), [(1, 1), (14, 7), (20, 10), (50, 20), (200, 40)]
)
def test_number_of_held_out_rows(rng, n, held):
    X = rng.normal(size=(n, 2))
    data = TrainingRows(X, X[:, :1], np.ones(n))
    rows = holdout_of(n, data)
    assert rows.held_out.sum() == held
    assert rows.decisive == (held >= 8)


def test_held_out_rows_do_not_depend_on_units_and_order_of_columns(rng):
    X, y = rng.integers(-3, 4, size=(200, 3)).astype(float), rng.normal(size=(200, 1))

    def held(X):
        return holdout_of(150, TrainingRows(X, y, np.ones(200))).held_out

    expected = held(X)
    assert expected.any()
    np.testing.assert_array_equal(held(X[:, ::-1]), expected)
    np.testing.assert_array_equal(held(-X), expected)
    np.testing.assert_array_equal(held(5.0 - 2.0 * X[:, [1, 2, 0]]), expected)


# --- the scale of variances -----------------------------------------------------------


def log_density(mean, variance, y, shape):
    return -0.5 * (np.log(variance) + (y - mean) ** 2 / variance)[:, 0]


@pytest.fixture
def estimated_scale(rng):
    """Return a function that estimates the scale where variances are 1 / `factor`."""

    def find(factor, n=1000, most=1000):
        data = TrainingRows(
            rng.normal(size=(n, 1)), rng.normal(size=(n, 1)), np.ones(n)
        )

        rows = holdout_of(most, data)
        rows.record = SimpleNamespace(log_density=log_density)
        marginals = np.zeros((most, 1)), np.full((most, 1), 1.0 / factor)
        engine = SimpleNamespace(
            model=SimpleNamespace(prior_mean=np.zeros(1), shape=np.zeros(1))
        )
        solver = SimpleNamespace(engine=engine, linear_map=None)
        solver.predict = lambda X: [values[: len(X)] for values in marginals]
        solver.prior_variance = 1e6  # far above those of rows
        return rows.variance_scale(solver)

    return find


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_variance_scale_matches_held_out_rows(estimated_scale, factor):
    assert estimated_scale(factor, n=5000, most=5000) == pytest.approx(factor, rel=0.15)


def test_variance_scale_is_shrunk_for_few_rows(estimated_scale):
    assert estimated_scale(0.1, n=100, most=100) > 1.3 * estimated_scale(
        0.1, n=5000, most=5000
    )
    assert estimated_scale(1e-9, n=5000, most=5000) > 0.049  # the least scale is e^-3


def test_variance_scale_within_standard_error_is_one(estimated_scale):
    assert estimated_scale(1.1, n=100, most=100) == 1.0


def test_variance_scale_from_a_part_of_the_rows_needs_more_evidence(estimated_scale):
    assert estimated_scale(0.7, n=10_000, most=10_000) != 1.0
    assert estimated_scale(0.7, n=1_000_000, most=10_000) == 1.0
