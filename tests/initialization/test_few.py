"""Few inducing points: a kernel that suits them, and inducing inputs that move."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._initialization import holdout, inducing, kernel_learning, start
from skswsgp._initialization.holdout import (
    CandidateComparison,
    PriorSettings,
    has_few_points,
    learning_part,
)
from skswsgp._initialization.kernel_learning import KernelFit
from skswsgp._solvers import adam, alternating, natural
from skswsgp._solvers.data import TrainingRows
from skswsgp._solvers.priors import LocalPrior, VecchiaPrior

OPTIONS = {"n_threads": 1, "dtype": "float64", "search": "auto"}
ROUGH, SMOOTH = (ConstantKernel(1.0) * RBF(size) for size in (0.02, 1.0))
NOISE = np.array([0.01])


def waves(rng, n):
    """A slow wave with ripples that no dozen of points can follow."""
    X = rng.uniform(-3, 3, size=(n, 1))
    y = np.sin(X[:, 0]) + 0.2 * np.sin(60 * X[:, 0]) + 0.01 * rng.normal(size=n)
    return X, y


def log_density(mu, v, y, attributes):
    v = v + attributes["noise_variance_"]
    return -0.5 * (np.log(2 * np.pi * v) + (y - mu) ** 2 / v)[:, 0]


def judge_of(X, y, M=12, seed=0):
    data = TrainingRows(X, y[:, None], np.ones(len(X)))
    rng = np.random.RandomState(seed)
    setting = ("gaussian", 1), log_density, rng, OPTIONS, PriorSettings()
    return CandidateComparison(M, M, "kmeans", np.ones(1), data, *setting)


# --- a kernel for few points ------------------------------------------------------


def test_comparison_prefers_a_kernel_that_few_points_can_represent(rng):
    judge = judge_of(*waves(rng, 600))
    rough, smooth = KernelFit(ROUGH, NOISE), KernelFit(SMOOTH, 3 * NOISE)
    assert judge.best_of([rough, smooth]) is smooth
    assert judge.best_of([smooth, rough]) is smooth
    same = KernelFit(ROUGH.clone_with_theta(ROUGH.theta), NOISE)
    assert judge.best_of([rough, same]) is rough


def test_candidates_that_fail_are_skipped(rng, monkeypatch):
    judge = judge_of(*waves(rng, 200))
    solve = judge.solve

    def failing(found):
        if found.kernel is ROUGH:
            raise FloatingPointError("lost")
        return solve(found)

    monkeypatch.setattr(judge, "solve", failing)
    smooth, rough = KernelFit(SMOOTH, NOISE), KernelFit(ROUGH, NOISE)
    assert judge.best_of([smooth, rough]) is smooth
    assert judge.best_of([rough, smooth]) is smooth
    assert judge.best_of([rough, KernelFit(ROUGH, 2.0 * NOISE)]) is rough


def test_interrupt_keeps_the_best_candidate_so_far(rng, monkeypatch):
    judge = judge_of(*waves(rng, 200))
    solve, smooth, rough = (
        judge.solve,
        KernelFit(SMOOTH, NOISE),
        KernelFit(ROUGH, NOISE),
    )

    def interrupted(found):
        if found is smooth:
            raise KeyboardInterrupt
        return solve(found)

    monkeypatch.setattr(judge, "solve", interrupted)
    with pytest.warns(UserWarning, match="search for a kernel was interrupted"):
        assert judge.best_of([rough, smooth]) is rough


def test_held_out_rows_do_not_enter_the_fit(rng):
    X, y = waves(rng, 200)
    judge = judge_of(X, y)
    assert judge.held.sum() == 40
    before = judge.solve(KernelFit(SMOOTH, NOISE))[1]
    held, y = judge.held, judge.y[judge.held][:, 0]
    judge.y[held] += 1.0
    after = judge.solve(KernelFit(SMOOTH, NOISE))[1]
    judge.y[held] += 1.0
    again = judge.solve(KernelFit(SMOOTH, NOISE))[1]
    # Under the same mu and v the densities are a parabola of y.
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
    judge = judge_of(np.repeat(X, 5, axis=0), np.repeat(y, 5), M=240)
    assert judge.best_of([smooth, memory]) is smooth
    assert judge.best_of([memory, smooth]) is smooth


def test_too_few_rows_keep_the_first_candidate(rng):
    X, y = waves(rng, 14)
    rough, smooth = KernelFit(ROUGH, NOISE), KernelFit(SMOOTH, 3 * NOISE)
    judge = judge_of(X, y)
    assert not judge.decisive
    assert judge.best_of([rough, smooth]) is rough


def test_comparison_uses_the_prior_of_the_estimator(rng, monkeypatch):
    seen = []

    def noted(self, attributes, H, solver=CandidateComparison.solver):
        seen.append(solver(self, attributes, H))
        return seen[-1]

    monkeypatch.setattr(CandidateComparison, "solver", noted)
    X, y = waves(rng, 300)
    settings = {"n_inducing": 20, "n_neighbors": 5, "random_state": 0}
    prior = {"kl": "local", "neighbor_metric": "euclidean"}
    SWSGPRegressor(**settings, **prior).fit(X, y)
    SWSGPRegressor(**settings, kl_weight=2.0).fit(X, y)
    local, chain = seen[0], seen[-1]
    assert isinstance(local.prior, LocalPrior)
    assert isinstance(chain.prior, VecchiaPrior)
    assert local.engine.model.kl_weight == 4.0
    assert chain.engine.model.kl_weight == 2.0
    assert local.search.options["metric"] == "euclidean"
    assert chain.search.options["metric"] == "kernel"


@pytest.mark.parametrize("points", ["kmeans", "random"])
def test_comparison_chooses_inducing_points_like_the_fit(
    points, rng, monkeypatch, few_steps
):
    chosen, choose = [], inducing.initial_inducing_points

    def noted(X, M, method, rng, scale, *args):
        chosen.append((method, scale))
        return choose(X, M, method, rng, scale, *args)

    monkeypatch.setattr(holdout, "initial_inducing_points", noted)
    monkeypatch.setattr(start, "initial_inducing_points", noted)
    X = rng.normal(size=(300, 2)) * [1.0, 1000.0]
    kernel = DotProduct(1.0) + ConstantKernel(1.0)
    settings = {"n_inducing": 20, "n_neighbors": 5, "random_state": 0}
    model = SWSGPRegressor(kernel, inducing_points=points, **settings)
    model.fit(X, X[:, 0])
    assert len(chosen) == 3
    for method, scale in chosen:
        assert method == points
        assert_array_equal(scale, chosen[-1][1])
    assert scale[1] > 100 * scale[0]


def test_kernel_is_learned_once_when_the_part_holds_all_rows(rng, monkeypatch, few_steps):
    taught, learn = [], kernel_learning.learn_kernel

    def noted(X, y, *args, **options):
        taught.append(len(y))
        return learn(X, y, *args, **options)

    monkeypatch.setattr(start, "learn_kernel", noted)
    X, y = waves(rng, 210)
    SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert taught == [210, 200]
    SWSGPRegressor(n_inducing=20, random_state=0).fit(X[:190], y[:190])
    assert taught == [210, 200, 190]


def test_has_few_points_and_learning_part():
    assert has_few_points(100, 401, 2)
    assert not has_few_points(100, 400, 2)
    assert not has_few_points(
        4000, 10**6, 2
    )  # few for these rows, not for those that judge
    assert not has_few_points(2000, 60_000, 784)  # nor for those that teach
    data = TrainingRows(np.zeros((5000, 1)), np.zeros((5000, 1)), np.ones(5000))
    assert learning_part(100, data, np.random.RandomState(0)).n_rows == 400
    assert learning_part(2, data, np.random.RandomState(0)).n_rows == 200


def test_few_points_get_a_smoother_kernel(rng, monkeypatch):
    X, y = waves(rng, 1500)
    model = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert model.kernel_.k2.length_scale > 0.3
    monkeypatch.setattr(start, "has_few_points", lambda *args: False)
    other = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    assert other.kernel_.k2.length_scale < 0.3
    X_new, y_new = waves(rng, 500)
    assert model.score(X_new, y_new) > other.score(X_new, y_new)


# --- inducing inputs that move ----------------------------------------------------


def moving(estimator, **options):
    return estimator(
        n_inducing=12, n_neighbors=6, optimize_inducing=True, init="default",
        random_state=0, **options,
    )  # fmt: skip


def targets(task, X, rng):
    steep = np.sin(3 * X[:, 0]) + X[:, 1]
    if task == "outputs":
        return np.stack([steep, X[:, 0]], axis=1) + 0.1 * rng.normal(size=(len(X), 2))
    if task == "one":
        return steep + 0.1 * rng.normal(size=len(X))
    return np.digitize(steep, [0.0] if task == "binary" else [-0.5, 0.5])


@pytest.mark.parametrize("task", ["one", "outputs", "binary", "classes"])
def test_inducing_points_move_and_q_is_optimal(task, rng):
    X = rng.uniform(-2, 2, size=(200, 2))
    y, weight = targets(task, X, rng), rng.uniform(0.5, 2.0, 200)
    estimator = SWSGPRegressor if task in ("one", "outputs") else SWSGPClassifier
    model = moving(estimator).fit(X, y, sample_weight=weight)
    start = moving(estimator).set_params(optimize_inducing=False)
    start.fit(X, y, sample_weight=weight)
    assert np.abs(model.inducing_points_ - start.inducing_points_).max() > 0.1
    assert model.n_iter_ == alternating.ROUNDS
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.01
    # q(u) is the optimum of the natural solver there.
    given = {"kernel": model.kernel_, "inducing_points": model.inducing_points_}
    if estimator is SWSGPRegressor:
        given["noise_variance"] = float(np.mean(model.noise_variance_))
    if task == "outputs":  # each has a noise of its own
        return
    again = start.set_params(n_inducing="auto", **given)
    again.fit(X, y, sample_weight=weight)
    first, second = (one.lower_bound(X, y, weight) for one in (model, again))
    assert first == pytest.approx(second, rel=0.02)
    if task == "one":
        m = again.inducing_mean_
        assert_allclose(model.inducing_mean_, m, rtol=0.05, atol=0.05)


def test_best_round_on_held_out_rows_is_restored(rng):
    X = rng.uniform(-2, 2, size=(300, 2))
    y = targets("one", X, rng)
    model = moving(SWSGPRegressor, early_stopping=True).fit(X, y)
    assert len(model.validation_scores_) == alternating.ROUNDS
    best = model.validation_scores_[np.argmax(model.validation_scores_)]
    assert best >= model.validation_scores_[-1]
    assert moving(SWSGPRegressor).fit(X, y).validation_scores_ is None


def test_round_of_least_loss_is_restored_without_held_out_rows(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    advance, orders = adam.AdamSolver.advance, []

    def spoilt(self, epoch):
        advance(self, epoch)
        if epoch >= 2 * alternating.EPOCHS:
            engine = self.arguments[0]
            engine.model.Z[:] += 3.0

    class Noted(natural.NaturalSolver):
        def advance(self, epoch):
            orders.append(self.order)
            return super().advance(epoch)

    monkeypatch.setattr(adam.AdamSolver, "advance", spoilt)
    monkeypatch.setattr(alternating, "NaturalSolver", Noted)
    model = moving(SWSGPRegressor).fit(X, y)
    assert model.validation_scores_ is None
    assert len(model.loss_curve_) == len(orders) == alternating.ROUNDS
    assert np.argmin(model.loss_curve_) == 2
    assert model.loss_curve_[-1] > model.loss_curve_[2] + 0.5
    assert model.best_loss_ == model.loss_curve_[2]
    assert model.lower_bound_ == pytest.approx(-100 * model.best_loss_)
    assert np.abs(model.inducing_points_).max() < 3.0
    assert model.score(X, y) > 0.8
    assert_array_equal(orders, np.broadcast_to(orders[0], (alternating.ROUNDS, 12)))


def test_failed_round_keeps_the_best_earlier_round(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    advance, solver = adam.AdamSolver.advance, natural.NaturalSolver
    made = []

    def spoilt(self, epoch):
        advance(self, epoch)
        self.arguments[0].model.Z[:] += 3.0 * epoch

    def failing(*args):
        made.append(args)
        if len(made) > last:
            raise FloatingPointError("lost")
        return solver(*args)

    monkeypatch.setattr(adam.AdamSolver, "advance", spoilt)
    monkeypatch.setattr(alternating, "NaturalSolver", failing)
    last = 2
    with pytest.warns(UserWarning, match="left the finite numbers in round 3") as seen:
        model = moving(SWSGPRegressor).fit(X, y)
    assert seen[0].filename == __file__
    assert model.n_iter_ == len(model.loss_curve_) == 2
    assert model.loss_curve_[1] > model.loss_curve_[0]
    assert model.lower_bound_ == pytest.approx(-100 * model.loss_curve_[0])
    assert np.abs(model.inducing_points_).max() < 3.0
    assert model.score(X, y) > 0.5
    last = len(made)
    with pytest.raises(FloatingPointError):
        moving(SWSGPRegressor).fit(X, y)


def test_keyboard_interrupt_leaves_a_usable_model(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(adam.AdamSolver, "advance", interrupt)
    with pytest.warns(UserWarning, match="interrupted in round 2"):
        model = moving(SWSGPRegressor).fit(X, y)
    assert model.kl_weight_ == 1.0
    assert np.isfinite(model.predict(X)).all()
    monkeypatch.setattr(natural.NaturalSolver, "__init__", interrupt)
    with pytest.raises(KeyboardInterrupt):  # there is no model yet
        moving(SWSGPRegressor).fit(X, y)


def test_alternation_repeats(rng):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    first, second = (moving(SWSGPRegressor).fit(X, y) for _ in range(2))
    assert_array_equal(first.inducing_points_, second.inducing_points_)
    assert_array_equal(first.inducing_mean_, second.inducing_mean_)
