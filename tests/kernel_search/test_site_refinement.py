"""The kernel of a classifier, refined with held-out rows."""

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from small_models import natural_settings

from skswsgp import SWSGPClassifier
from skswsgp._covariance.compile import free_variance
from skswsgp._kernel_search import holdout, site_refinement
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)
from skswsgp._kernel_search.site_refinement import SiteRefinement, refine_kernel
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.tuning import Tuning

OPTIONS = LearningOptions()
BINARY = natural_settings("bernoulli", learn_map=False)


@pytest.fixture
def steep(rng):
    """Return X and signs, drawn from the probit model of a function of variance 18."""
    X = rng.uniform(-3, 3, (300, 1))
    f = 6.0 * np.sin(2 * X[:, 0])
    return X, np.where(rng.uniform(size=300) < ndtr(f), 1.0, -1.0)


def variance_kernel(variance, bounds=(1e-3, 1e3)):
    return ConstantKernel(variance, bounds) * RBF(0.7, "fixed")


def data_of(X, y, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return TrainingRows(X, y[:, None], weight)


def start_of(kernel, shared=False):
    return KernelFit(kernel, np.ones(1), shared)


def trials_of(X, y, kernel, weight=None, settings=BINARY):
    data, rng = data_of(X, y, weight), np.random.RandomState(1)
    return SiteRefinement(start_of(kernel), data, settings, OPTIONS, rng)


def refined(X, y, kernel, weight=None, settings=BINARY):
    return refine_of(start_of(kernel), data_of(X, y, weight), settings).kernel


def refine_of(start, data, settings=BINARY):
    settings = settings._replace(kernel=start.kernel)  # that of the user
    rng = np.random.RandomState(1)
    return refine_kernel(start, lambda: start, data, settings, OPTIONS, rng)


# --- the variance ---------------------------------------------------------------------


def test_variance_grows_on_steep_data(steep):
    assert 4.0 < refined(*steep, variance_kernel(0.5)).k1.constant_value < 400.0


def test_variance_falls_on_random_labels(rng):
    X, y = rng.uniform(-3, 3, (1000, 2)), rng.choice([-1.0, 1.0], 1000)
    assert refined(X, y, variance_kernel(2.0)).k1.constant_value < 0.1


def test_variance_stays_moderate_for_few_separable_rows(monkeypatch, rng):
    X = np.r_[rng.uniform(-3, -1, (20, 1)), rng.uniform(1, 3, (20, 1))]
    y, kernel = np.sign(X[:, 0]), variance_kernel(5.0, (1e-3, 1e5))
    assert refined(X, y, kernel).k1.constant_value < 20.0
    monkeypatch.setattr(holdout, "SPREAD", 1e9)
    assert refined(X, y, kernel).k1.constant_value > 25.0


def test_variance_respects_its_bounds(steep):
    assert refined(*steep, variance_kernel(0.5, (0.1, 2.0))).k1.constant_value > 1.0
    estimator = SWSGPClassifier(variance_kernel(0.5, (0.1, 2.0)), random_state=0)
    assert 0.1 <= estimator.fit(*steep).kernel_.k1.constant_value <= 2.0


def test_fixed_variance_is_not_changed(steep):
    kernel = ConstantKernel(0.5, "fixed") * RBF(0.7)
    assert free_variance(kernel, 1) is None
    assert free_variance(RBF() + variance_kernel(1.0), 1) is None
    model = SWSGPClassifier(kernel, random_state=0).fit(*steep)
    assert model.kernel_.k1.constant_value == 0.5
    assert model.kernel_.k2.length_scale != 0.7


# --- learning from sites --------------------------------------------------------------


def test_next_kernel_is_learned_from_sites_of_training_rows(monkeypatch, steep):
    seen = {}

    def learn(learner, start, rng):
        seen.update(vars(learner))
        return start

    monkeypatch.setattr(KernelLearner, "learn_from_sites", learn)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    trials = trials_of(*steep, variance_kernel(2.0), weight)
    trials.consider(trials.solver_of, trials.start)
    again = trials.relearned(None)
    kept = ~trials.held_out
    assert_array_equal(seen["X"], trials.X[kept])
    assert_array_equal(seen["weight"], weight[kept])
    t, precision = seen["y"], 1.0 / seen["ratios"]
    assert_allclose(precision, trials.best.sites.precision, rtol=1e-9)
    assert_allclose(precision * t, trials.best.sites.precision_mean, rtol=1e-9)
    assert_array_equal(again.engine.model.m, trials.best.engine.model.m)


# --- trials ---------------------------------------------------------------------------


def test_held_out_rows_do_not_change_q(steep):
    X, y = steep
    trials = trials_of(X, y, variance_kernel(2.0))
    flipped = np.where(trials.held_out, -y, y)
    other = trials_of(X, flipped, variance_kernel(2.0))
    assert_array_equal(trials.held_out, other.held_out)
    for one in (trials, other):
        assert one.consider(one.solver_of, one.start)
    assert_array_equal(trials.best.engine.model.m, other.best.engine.model.m)
    assert trials.density.mean() > other.density.mean() + 0.5


def test_worse_kernel_is_rejected(steep):
    trials = trials_of(*steep, variance_kernel(20.0))
    trials.consider(trials.solver_of, trials.start)
    best = trials.best
    assert not trials.consider(best.scaled, -1, 1e-3)
    assert trials.best is best
    assert trials.kernel == variance_kernel(20.0)


def test_trials_use_the_weight_of_the_estimator(steep):
    X, y = steep
    settings = BINARY._replace(kl_weight=3.0)
    trials = trials_of(X, y, variance_kernel(20.0), settings=settings)
    first = trials.solver_of(trials.start)
    assert trials.consider(lambda: first)
    other = trials.solver_of(start_of(variance_kernel(60.0)))
    other.sites.precision[:] = other.sites.precision_mean[:] = 0.0
    density = trials.log_density(other)
    scaled = first.scaled(-1, 3.0)
    assert_allclose(trials.log_density(scaled), density, atol=0.02)
    assert scaled.engine.model.kl_weight == 3.0
    precisions = (solver.prior.precision for solver in (scaled, other))
    assert_allclose(*precisions, rtol=1e-6, atol=1e-9)


def test_gain_within_standard_error_is_rejected(monkeypatch, steep):
    trials = trials_of(*steep, variance_kernel(20.0))
    trials.consider(trials.solver_of, trials.start)
    noise = np.random.default_rng(0).normal(size=trials.held_out.sum())
    noise += 0.5 * noise.std() / np.sqrt(len(noise)) - noise.mean()
    monkeypatch.setattr(trials, "log_density", lambda *_: trials.density + noise)
    assert not trials.consider(trials.best.scaled, -1, 1.0)
    certain = 3.0 * noise.mean() + 0.0 * noise
    monkeypatch.setattr(trials, "log_density", lambda *_: trials.density + certain)
    assert trials.consider(trials.best.scaled, -1, 1.0)


def test_number_of_rows_is_limited(steep):
    settings = BINARY._replace(tuning=Tuning(holdout_rows=200))
    trials = trials_of(*steep, variance_kernel(2.0), settings=settings)
    assert len(trials.X) == len(trials.y) == len(trials.held_out) == 100
    assert trials.held_out.sum() == 20


def test_one_row_keeps_the_kernel():
    X, y = np.zeros((1, 2)), np.ones(1)
    kernel = variance_kernel(2.0)
    assert refined(X, y, kernel) is kernel


def test_equal_rows_keep_the_kernel(rng):
    X, y = np.ones((100, 2)), rng.choice([-1.0, 1.0], size=100)
    kernel = variance_kernel(2.0)
    assert refined(X, y, kernel) is kernel


def test_one_dominant_weight_keeps_the_kernel(steep):
    X, y = steep
    kernel, weight = variance_kernel(0.5), np.ones(len(X))
    weight[np.flatnonzero(trials_of(X, y, kernel).held_out)[0]] = 1e6
    assert refined(X, y, kernel, weight) is kernel


def test_rows_that_share_X_are_held_out_together(steep):
    X, y = steep
    X, y = np.r_[X, X], np.r_[y, -y]
    held = trials_of(X, y, variance_kernel(0.5)).held_out
    assert 0 < held.sum() < len(X)
    assert_array_equal(*held.reshape(2, -1))


def test_trials_do_not_depend_on_the_order_of_columns(steep):
    X, y = np.hstack([steep[0], np.roll(steep[0], 1)]), steep[1]
    kernel = ConstantKernel(2.0) * RBF(0.7)
    first = trials_of(X, y, kernel)
    for sign, columns in ((1.0, [1, 0]), (-1.0, [0, 1])):
        other = trials_of(sign * X[:, columns], y, kernel)
        assert_array_equal(other.Z, sign * first.Z[:, columns])
        assert_array_equal(other.held_out, first.held_out)


def test_duplicates_are_not_split_between_training_and_holdout(rng):
    X, y = rng.normal(size=(200, 2)), rng.choice([-1.0, 1.0], size=200)
    thrice = [np.repeat(array, 3, axis=0) for array in (X, y)]
    trials = trials_of(*thrice, variance_kernel(0.5))
    assert_array_equal(trials.X, X)
    assert_array_equal(trials.weight, 3.0)
    assert refined(*thrice, variance_kernel(0.5)).k1.constant_value <= 0.5


def test_training_rows_may_lack_a_class(rng):
    X, y = rng.normal(size=(150, 2)), np.zeros(150)
    kernel = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=1.5)
    held = trials_of(X, y, kernel, settings=natural_settings("softmax", 2)).held_out
    y[np.flatnonzero(held)[:2]] = 1.0
    assert np.isfinite(
        refined(X, y, kernel, settings=natural_settings("softmax", 2)).theta
    ).all()


@pytest.mark.full
def test_three_classes_learn_variance_and_length_scales(rng):
    X = rng.uniform(-2, 2, (300, 2))
    y = np.digitize(np.sin(2 * X[:, 0]), [-0.5, 0.5]).astype(float)
    start = ConstantKernel(0.3) * RBF([1.0, 1.0])
    kernel = refined(X, y, start, settings=natural_settings("softmax", 3))
    assert kernel.k1.constant_value > 1.0
    assert kernel.k2.length_scale[1] > 1.5 * kernel.k2.length_scale[0]


def test_copies_of_rows_do_not_keep_the_variance_from_its_place(rng):
    """That of the function is 4.5, and labels of its copies differ."""
    X = np.repeat(rng.uniform(-2, 2, (60, 1)), 3, axis=0)
    y = np.where(ndtr(3 * np.sin(2 * X[:, 0])) > rng.uniform(size=180), 1.0, -1.0)
    for start in (0.05, 1.0):
        assert 2.0 < refined(X, y, variance_kernel(start)).k1.constant_value < 9.0
    Z = trials_of(X, y, variance_kernel(1.0)).Z
    assert len(np.unique(Z)) == len(Z)


def test_failed_trial_is_worse_than_any_other(monkeypatch, steep):
    factors, scale = [], SiteRefinement.scale

    def fails(*args, **options):
        raise FloatingPointError

    def recorded(self, factor):
        factors.append(factor)
        scale(self, factor)

    monkeypatch.setattr(KernelLearner, "learn_from_sites", fails)
    monkeypatch.setattr(SiteRefinement, "scale", recorded)
    kernel = refined(*steep, variance_kernel(0.5))
    assert kernel.k1.constant_value > 1.0
    assert factors == [
        site_refinement.VARIANCE_STEP,
        np.sqrt(site_refinement.VARIANCE_STEP),
    ]


def test_a_start_that_fails_is_kept(monkeypatch, steep):
    def fails(self, fit):
        raise FloatingPointError

    monkeypatch.setattr(SiteRefinement, "solver_of", fails)
    start = start_of(variance_kernel(0.5))
    assert refine_of(start, data_of(*steep)) is start


def test_refinement_repeats_for_the_same_seed(steep):
    first, other = (refined(*steep, variance_kernel(0.5)) for _ in range(2))
    assert_array_equal(first.theta, other.theta)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, np.inf])
def test_held_out_labels_choose_the_smoothness(nu, monkeypatch, steep):
    def density(self, solver):
        gain = -np.abs(np.arctan(solver.fit.kernel.k2.nu) - np.arctan(nu))
        return np.full(self.held_out.sum(), gain)

    monkeypatch.setattr(SiteRefinement, "log_density", density)
    monkeypatch.setattr(KernelLearner, "learn_from_sites", lambda _, start, rng: start)
    for first in (0.5, 2.5, np.inf):
        start = start_of(ConstantKernel(9.0) * Matern(0.7, nu=first), shared=True)
        how = data_of(*steep), BINARY, OPTIONS, np.random.RandomState(1)
        assert refine_kernel(start, lambda start=start: start, *how).kernel.k2.nu == nu
        kept = refine_of(start, data_of(*steep))  # a kernel of the user
        assert kept.kernel.k2.nu == first


def test_adam_skips_the_refinement(monkeypatch, steep):
    monkeypatch.setattr(site_refinement.SiteRefinement, "consider", None)
    make(SWSGPClassifier, solver="adam", max_iter=1, random_state=0).fit(*steep)


def test_labels_find_the_few_columns_that_matter(rng):
    X = rng.standard_normal((900, 10))
    f = 6.0 * np.sin(2.0 * X[:, 0]) * X[:, 1]
    y = rng.uniform(size=len(X)) < ndtr(f)
    model = SWSGPClassifier(learn_map=False, random_state=0).fit(X, y)
    lengths = model.kernel_.k2.length_scale
    assert lengths[2:].min() > 5.0 * lengths[:2].max()


@pytest.mark.parametrize("better", [True, False])
def test_separate_length_scales_must_be_likelier(steep, better):
    X, y = np.hstack([steep[0], steep[0][::-1]]), steep[1]  # one column matters
    trials = trials_of(X, y, ConstantKernel(9.0) * Matern([0.7, 0.7], nu=1.5))
    trials.consider(trials.solver_of, trials.start._replace(shared=True))
    lengths = [0.7, 70.0] if better else [70.0, 0.7]
    own = start_of(ConstantKernel(9.0) * Matern(lengths, nu=1.5))
    trials.try_separate(own)
    assert (list(trials.start.kernel.k2.length_scale) == lengths) == better


def test_length_scales_are_freed_when_a_shared_ratio_stops_helping(monkeypatch, steep):
    shared = []

    def learn(learner, start, rng):
        shared.append(start.shared)
        return start

    monkeypatch.setattr(KernelLearner, "learn_from_sites", learn)
    X = np.hstack([steep[0], np.zeros_like(steep[0])])
    kernel = ConstantKernel(2.0) * RBF([0.7, 0.7])
    refine_of(start_of(kernel, shared=True), data_of(X, steep[1]))
    assert shared == [True, False]


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.full) for seed in (3, 4))]
)
def test_a_fit_starts_from_the_posterior_of_the_refinement(seed):
    X = np.random.default_rng(seed).normal(size=(150, 2))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0) + 1 * (X[:, 1] > 1)
    options = {"n_neighbors": 16, "random_state": 0}
    model = make(SWSGPClassifier, **options).fit(X, y)
    cold = make(SWSGPClassifier, model.kernel_, learn_kernel=False, **options).fit(X, y)
    assert model.n_iter_ < cold.n_iter_
    gain = cold.loss_curve_[0] - cold.loss_curve_[-1]
    assert model.loss_curve_[0] - cold.loss_curve_[-1] < 0.1 * gain


def test_posterior_of_a_solver_equals_its_marginals(steep):
    trials = trials_of(*steep, variance_kernel(20.0))
    trials.at = None  # predictions at points differ from their values by jitter
    solver = trials.solver_of(trials.start)
    trials.log_density(solver)
    expected_moments = solver.sites.marginals(*solver._moments())
    found = solver.predict(trials.X[trials.kept])
    for actual, expected in zip(found, expected_moments, strict=True):
        assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)


# --- a map of the columns -------------------------------------------------------------


@pytest.fixture
def slanted(rng):
    """Return X (600, 3) and signs, whose function knows one direction of X only."""
    X = rng.normal(size=(600, 3))
    f = 6.0 * np.sin(1.5 * X @ [1.0, 1.0, -1.0])
    return X, np.where(rng.uniform(size=600) < ndtr(f), 1.0, -1.0)


@pytest.mark.full
def test_a_map_is_kept_where_held_out_labels_are_likelier(slanted):
    kernel = ConstantKernel(9.0) * RBF([1.0, 1.0, 1.0])
    found, plain = (
        refine_of(
            start_of(kernel), data_of(*slanted), BINARY._replace(learn_map=learn_map)
        )
        for learn_map in ("auto", False)
    )
    assert plain.linear_map is None
    scaled = found.linear_map / found.kernel.k2.length_scale
    directions, lengths, _ = np.linalg.svd(scaled)
    assert lengths[0] > 2.0 * lengths[1]
    across = np.abs(directions[:, 0] @ [1.0, 1.0, -1.0]) / np.sqrt(3.0)
    assert across > 0.95


@pytest.mark.parametrize(
    "learn_map", ["auto", pytest.param(True, marks=pytest.mark.full)]
)
def test_a_map_of_labels_without_a_pattern(learn_map, rng):
    X, y = rng.normal(size=(300, 3)), np.sign(rng.normal(size=300))
    settings = BINARY._replace(learn_map=learn_map)
    start = start_of(ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0]))
    found = refine_of(start, data_of(X, y), settings)
    assert (found.linear_map is None) == (learn_map == "auto")


@pytest.mark.full  # a claim of accuracy
def test_held_out_labels_do_not_change_a_map(slanted):
    X, y = slanted
    kernel = ConstantKernel(9.0) * RBF([1.0, 1.0, 1.0])
    trials = trials_of(X, y, kernel)
    other = trials_of(X, np.where(trials.held_out, -y, y), kernel)
    for one in (trials, other):
        assert one.consider(one.solver_of, one.start)
        one.rng = np.random.RandomState(0)
    by_sites = [one.turned().fit.linear_map for one in (trials, other)]
    assert_array_equal(*by_sites)
    by_labels = [
        one.turned_by_labels(one.start).fit.linear_map for one in (trials, other)
    ]
    assert_array_equal(*by_labels)


def test_failed_map_leaves_the_kernel(monkeypatch, slanted):
    def fails(*args, **options):
        raise FloatingPointError

    monkeypatch.setattr(SiteRefinement, "turned_by_labels", fails)
    monkeypatch.setattr(SiteRefinement, "turned", fails)
    start = start_of(ConstantKernel(9.0) * RBF([1.0, 1.0, 1.0]))
    found = refine_of(start, data_of(*slanted), BINARY._replace(learn_map=True))
    assert found.linear_map is None
