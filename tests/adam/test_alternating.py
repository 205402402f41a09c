"""Inducing points trained by Adam in turns with the natural solver."""

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._adam import alternating
from skswsgp._adam import solver as adam
from skswsgp._solvers import natural


def alternating_model(estimator, **options):
    return make(estimator,
        n_inducing=12, n_neighbors=6, optimize_inducing=True, learn_kernel=False,
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
    model = alternating_model(estimator).fit(X, y, sample_weight=weight)
    start = alternating_model(estimator).set_params(solver__optimize_inducing=False)
    start.fit(X, y, sample_weight=weight)
    assert np.abs(model.inducing_points_ - start.inducing_points_).max() > 0.1
    assert model.n_iter_ == alternating.SOLVES
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.01
    # The natural solver finds this q(u) for the same kernel and inducing points.
    given = {"kernel": model.kernel_, "inducing_points": model.inducing_points_}
    if estimator is SWSGPRegressor:
        given["initial_noise"] = float(np.mean(model.noise_variance_))
    if task == "outputs":  # the noise of each output is not a setting
        return
    again = start.set_params(n_inducing="auto", **given)
    again.fit(X, y, sample_weight=weight)
    first, second = (one.lower_bound(X, y, weight) for one in (model, again))
    assert first == pytest.approx(second, rel=0.02)
    if task == "one":
        m = again.inducing_mean_
        assert_allclose(model.inducing_mean_, m, rtol=0.05, atol=0.05)


def test_best_round_on_held_out_rows_is_restored(rng, tune):
    tune(holdout_above=200)
    X = rng.uniform(-2, 2, size=(300, 2))
    y = targets("one", X, rng)
    model = alternating_model(SWSGPRegressor).fit(X, y)
    assert len(model.validation_scores_) == alternating.SOLVES
    best = model.validation_scores_[np.argmax(model.validation_scores_)]
    assert best >= model.validation_scores_[-1]
    tune(holdout_above=300)
    assert alternating_model(SWSGPRegressor).fit(X, y).validation_scores_ is None


def test_round_of_least_loss_is_restored_without_held_out_rows(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    advance, orders = adam.AdamSolver.advance, []

    def advance_and_move(self, epoch):
        advance(self, epoch)
        if epoch >= 2 * alternating.EPOCHS:
            self.engine.model.Z[:] += 3.0

    class Recorded(natural.NaturalSolver):
        def advance(self, epoch):
            orders.append(self.order)
            return super().advance(epoch)

    monkeypatch.setattr(adam.AdamSolver, "advance", advance_and_move)
    monkeypatch.setattr(alternating, "NaturalSolver", Recorded)
    model = alternating_model(SWSGPRegressor).fit(X, y)
    assert model.validation_scores_ is None
    assert len(model.loss_curve_) == len(orders) == alternating.SOLVES
    assert np.argmin(model.loss_curve_) == 2
    assert model.loss_curve_[-1] > model.loss_curve_[2] + 0.5
    assert min(model.loss_curve_) == model.loss_curve_[2]
    assert model.lower_bound_ == pytest.approx(-100 * model.loss_curve_[2])
    assert np.abs(model.inducing_points_).max() < 3.0
    assert model.score(X, y) > 0.8
    assert_array_equal(orders, np.broadcast_to(orders[0], (alternating.SOLVES, 12)))


def test_failed_round_keeps_the_best_earlier_round(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    advance, solver = adam.AdamSolver.advance, natural.NaturalSolver
    made = []

    def advance_and_move(self, epoch):
        advance(self, epoch)
        self.engine.model.Z[:] += 3.0 * epoch

    def failing(*args):
        made.append(args)
        if len(made) > last:
            raise FloatingPointError("lost")
        return solver(*args)

    monkeypatch.setattr(adam.AdamSolver, "advance", advance_and_move)
    monkeypatch.setattr(alternating, "NaturalSolver", failing)
    last = 2
    with pytest.warns(UserWarning, match="NaN or infinity in round 3") as seen:
        model = alternating_model(SWSGPRegressor).fit(X, y)
    assert seen[0].filename == __file__
    assert model.n_iter_ == len(model.loss_curve_) == 2
    assert model.loss_curve_[1] > model.loss_curve_[0]
    assert model.lower_bound_ == pytest.approx(-100 * model.loss_curve_[0])
    assert np.abs(model.inducing_points_).max() < 3.0
    assert model.score(X, y) > 0.5
    last = len(made)
    with pytest.raises(FloatingPointError):
        alternating_model(SWSGPRegressor).fit(X, y)


def test_keyboard_interrupt_leaves_a_usable_model(rng, monkeypatch):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(adam.AdamSolver, "advance", interrupt)
    with pytest.warns(UserWarning, match="interrupted in round 2"):
        model = alternating_model(SWSGPRegressor).fit(X, y)
    assert model._kl_weight == 1.0
    assert np.isfinite(model.predict(X)).all()
    monkeypatch.setattr(natural.NaturalSolver, "__init__", interrupt)
    with pytest.raises(KeyboardInterrupt):  # before the first solution
        alternating_model(SWSGPRegressor).fit(X, y)


def test_alternation_repeats(rng):
    X = rng.uniform(-2, 2, size=(100, 2))
    y = targets("one", X, rng)
    first, second = (alternating_model(SWSGPRegressor).fit(X, y) for _ in range(2))
    assert_array_equal(first.inducing_points_, second.inducing_points_)
    assert_array_equal(first.inducing_mean_, second.inducing_mean_)
