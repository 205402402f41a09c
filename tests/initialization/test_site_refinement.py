"""The kernel of a classifier, refined on what held-out rows say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPClassifier
from skswsgp._covariance.compile import free_variance
from skswsgp._initialization import site_refinement
from skswsgp._initialization.holdout import PriorSettings
from skswsgp._initialization.kernel_learning import KernelFit
from skswsgp._initialization.site_refinement import SiteRefinement, refine_kernel
from skswsgp._point.likelihoods import LIKELIHOODS
from skswsgp._solvers.data import TrainingRows

OPTIONS = {"n_threads": 1, "dtype": "float64", "search": "auto"}
BINARY = "bernoulli", 1
CHAIN = PriorSettings()


@pytest.fixture
def steep(rng):
    """A function of large variance, and signs drawn from the probit model of it."""
    X = rng.uniform(-3, 3, (300, 1))
    f = 6.0 * np.sin(2 * X[:, 0])
    return X, np.where(rng.uniform(size=300) < ndtr(f), 1.0, -1.0)


def variance_kernel(variance, bounds=(1e-3, 1e3)):
    return ConstantKernel(variance, bounds) * RBF(0.7, "fixed")


def log_density(mu, v, y, attributes):
    v = attributes.get("variance_scale_", 1.0) * v
    record = LIKELIHOODS["bernoulli" if mu.shape[1] == 1 else "softmax"]
    return record.log_density(mu, v, y)


def data_of(X, y, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return TrainingRows(X, y[:, None], weight)


def start_of(kernel, tied=False):
    return KernelFit(kernel, np.zeros(1), tied)


def trials_of(X, y, kernel, weight=None, likelihood=BINARY, prior=CHAIN):
    data, rng = data_of(X, y, weight), np.random.RandomState(1)
    setting = likelihood, log_density, rng, OPTIONS, prior
    return SiteRefinement(start_of(kernel), data, *setting)


def refined(X, y, kernel, weight=None, likelihood=BINARY):
    data, rng = data_of(X, y, weight), np.random.RandomState(1)
    setting = likelihood, log_density, rng, OPTIONS, CHAIN
    return refine_kernel([start_of(kernel)], data, *setting).kernel


# --- the variance ---------------------------------------------------------------------


def test_variance_rises_on_steep_data(steep):
    assert 4.0 < refined(*steep, variance_kernel(0.5)).k1.constant_value < 400.0


def test_variance_falls_on_pure_chance(rng):
    X, y = rng.uniform(-3, 3, (1000, 2)), rng.choice([-1.0, 1.0], 1000)
    assert refined(X, y, variance_kernel(2.0)).k1.constant_value < 0.1


def test_few_rows_ask_for_no_huge_variance(monkeypatch, rng):
    X = np.r_[rng.uniform(-3, -1, (20, 1)), rng.uniform(1, 3, (20, 1))]
    y, kernel = np.sign(X[:, 0]), variance_kernel(5.0, (1e-3, 1e5))
    assert refined(X, y, kernel).k1.constant_value < 20.0
    monkeypatch.setattr(site_refinement, "VARIANCE_SPREAD", 1e9)
    assert refined(X, y, kernel).k1.constant_value > 25.0


def test_variance_keeps_its_bounds(steep):
    assert refined(*steep, variance_kernel(0.5, (0.1, 2.0))).k1.constant_value > 1.0
    estimator = SWSGPClassifier(variance_kernel(0.5, (0.1, 2.0)), random_state=0)
    assert 0.1 <= estimator.fit(*steep).kernel_.k1.constant_value <= 2.0


def test_a_fixed_variance_stays(steep):
    kernel = ConstantKernel(0.5, "fixed") * RBF(0.7)
    assert free_variance(kernel, 1) is None
    assert free_variance(RBF() + variance_kernel(1.0), 1) is None
    model = SWSGPClassifier(kernel, random_state=0).fit(*steep)
    assert model.kernel_.k1.constant_value == 0.5
    assert model.kernel_.k2.length_scale != 0.7


# --- learning from sites --------------------------------------------------------------


def test_the_next_kernel_learns_from_the_sites_of_kept_rows(monkeypatch, steep):
    seen = {}

    def learn(sites, X, weight, start, **options):
        seen.update(sites=sites, X=X, weight=weight)
        return start.kernel

    monkeypatch.setattr(site_refinement, "learn_kernel_from_sites", learn)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    trials = trials_of(*steep, variance_kernel(2.0), weight)
    trials.consider(trials.solver_for, trials.start.kernel)
    again = trials.relearned()
    kept = ~trials.held
    assert_array_equal(seen["X"], trials.X[kept])
    assert_array_equal(seen["weight"], weight[kept])
    t, v = seen["sites"]
    precision = weight[kept, None] / v
    assert_allclose(precision, trials.best.site_precision[kept], rtol=1e-9)
    assert_allclose(precision * t, trials.best.site_precision_mean[kept], rtol=1e-9)
    assert_array_equal(again.site_precision, trials.best.site_precision)
    assert_array_equal(again.engine.model.m, trials.best.engine.model.m)


# --- trials ---------------------------------------------------------------------------


def test_held_out_rows_do_not_teach(steep):
    X, y = steep
    trials = trials_of(X, y, variance_kernel(2.0))
    flipped = np.where(trials.held, -y, y)
    other = trials_of(X, flipped, variance_kernel(2.0))
    assert_array_equal(trials.held, other.held)
    for one in (trials, other):
        assert one.consider(one.solver_for, one.start.kernel)
    assert_array_equal(trials.best.engine.model.m, other.best.engine.model.m)
    assert trials.density.mean() > other.density.mean() + 0.5


def test_a_worse_kernel_is_not_kept(steep):
    trials = trials_of(*steep, variance_kernel(20.0))
    trials.consider(trials.solver_for, trials.start.kernel)
    best = trials.best
    assert not trials.consider(best.scaled, -1, 1e-3)
    assert trials.best is best
    assert trials.kernel == variance_kernel(20.0)


def test_trials_know_the_prior(steep):
    X, y = steep
    prior = PriorSettings("local", 3.0, "euclidean")
    trials = trials_of(X, y, variance_kernel(20.0), prior=prior)
    first = trials.solver_for(trials.start.kernel)
    assert trials.consider(lambda: first)
    other = trials.solver_for(variance_kernel(60.0))
    other.site_precision[:] = other.site_precision_mean[:] = 0.0
    density = trials.log_densities(other, {})
    scaled = first.scaled(-1, 3.0)
    assert_allclose(trials.log_densities(scaled, {}), density, atol=0.02)
    assert scaled.engine.model.kl_weight == 3.0
    matrices = (solver.prior.matrix.toarray() for solver in (scaled, other))
    assert_allclose(*matrices, rtol=1e-6, atol=1e-9)


def test_a_gain_within_chance_is_none(monkeypatch, steep):
    trials = trials_of(*steep, variance_kernel(20.0))
    trials.consider(trials.solver_for, trials.start.kernel)
    noise = np.random.default_rng(0).normal(size=trials.held.sum())
    noise += 0.5 * noise.std() / np.sqrt(len(noise)) - noise.mean()
    monkeypatch.setattr(trials, "log_density", lambda *_: trials.density + noise)
    assert not trials.consider(trials.best.scaled, -1, 1.0)
    sure = 3.0 * noise.mean() + 0.0 * noise
    monkeypatch.setattr(trials, "log_density", lambda *_: trials.density + sure)
    assert trials.consider(trials.best.scaled, -1, 1.0)


def test_a_part_of_many_rows_takes_part(monkeypatch, steep):
    monkeypatch.setattr(site_refinement, "MAX_HOLDOUT_ROWS", 100)
    trials = trials_of(*steep, variance_kernel(2.0))
    assert len(trials.X) == len(trials.y) == len(trials.held) == 100
    assert trials.held.sum() == 20


def test_too_few_rows_to_hold_out_choose_nothing():
    X, y = np.zeros((1, 2)), np.ones(1)
    kernel = variance_kernel(2.0)
    assert refined(X, y, kernel) is kernel


def test_equal_rows_choose_nothing(rng):
    X, y = np.ones((100, 2)), rng.choice([-1.0, 1.0], size=100)
    kernel = variance_kernel(2.0)
    assert refined(X, y, kernel) is kernel


def test_one_heavy_row_chooses_nothing(steep):
    X, y = steep
    kernel, weight = variance_kernel(0.5), np.ones(len(X))
    weight[np.flatnonzero(trials_of(X, y, kernel).held)[0]] = 1e6
    assert refined(X, y, kernel, weight) is kernel


def test_rows_that_share_X_are_held_out_together(steep):
    X, y = steep
    X, y = np.r_[X, X], np.r_[y, -y]
    held = trials_of(X, y, variance_kernel(0.5)).held
    assert 0 < held.sum() < len(X)
    assert_array_equal(*held.reshape(2, -1))


def test_trials_take_other_columns_in_the_same_order(steep):
    X, y = np.hstack([steep[0], np.roll(steep[0], 1)]), steep[1]
    kernel = ConstantKernel(2.0) * RBF(0.7)
    first = trials_of(X, y, kernel)
    for sign, columns in ((1.0, [1, 0]), (-1.0, [0, 1])):
        other = trials_of(sign * X[:, columns], y, kernel)
        assert_array_equal(other.Z, sign * first.Z[:, columns])
        assert_array_equal(other.held, first.held)


def test_copies_do_not_tell_of_each_other(rng):
    X, y = rng.normal(size=(200, 2)), rng.choice([-1.0, 1.0], size=200)
    thrice = [np.repeat(array, 3, axis=0) for array in (X, y)]
    trials = trials_of(*thrice, variance_kernel(0.5))
    assert_array_equal(trials.X, X)
    assert_array_equal(trials.weight, 3.0)
    assert refined(*thrice, variance_kernel(0.5)).k1.constant_value <= 0.5


def test_kept_rows_may_lack_a_class(rng):
    X, y = rng.normal(size=(150, 2)), np.zeros(150)
    kernel = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=1.5)
    held = trials_of(X, y, kernel, likelihood=("softmax", 2)).held
    y[np.flatnonzero(held)[:2]] = 1.0
    assert np.isfinite(refined(X, y, kernel, likelihood=("softmax", 2)).theta).all()


def test_three_classes(rng):
    X = rng.uniform(-2, 2, (300, 2))
    y = np.digitize(np.sin(2 * X[:, 0]), [-0.5, 0.5]).astype(float)
    start = ConstantKernel(0.3) * RBF([1.0, 1.0])
    kernel = refined(X, y, start, likelihood=("softmax", 3))
    assert kernel.k1.constant_value > 1.0
    assert kernel.k2.length_scale[1] > 1.5 * kernel.k2.length_scale[0]


def test_copies_of_rows(rng):
    X = np.repeat(rng.uniform(-2, 2, (60, 1)), 3, axis=0)
    y = np.where(ndtr(3 * np.sin(2 * X[:, 0])) > rng.uniform(size=180), 1.0, -1.0)
    assert np.isfinite(refined(X, y, variance_kernel(1.0)).theta).all()


@pytest.mark.parametrize("when", [1, 2, 4])
def test_an_interrupted_search_keeps_the_best_so_far(monkeypatch, steep, when):
    calls, consider = [], SiteRefinement.consider

    def interrupted(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) == when:
            raise KeyboardInterrupt
        return consider(self, *arguments, **options)

    monkeypatch.setattr(SiteRefinement, "consider", interrupted)
    X, y = steep
    model = SWSGPClassifier(variance_kernel(0.5), random_state=0)
    with pytest.warns(UserWarning, match="search for a kernel was interrupted") as seen:
        model.fit(X, y)
    assert seen[0].filename == __file__
    assert model.score(X, y) > 0.8


def test_a_trial_that_fails_is_worse_than_any(monkeypatch, steep):
    factors, scale = [], SiteRefinement.scale

    def fails(*args, **options):
        raise FloatingPointError

    def noted(self, factor, most):
        factors.append(factor)
        scale(self, factor, most)

    monkeypatch.setattr(site_refinement, "learn_kernel_from_sites", fails)
    monkeypatch.setattr(SiteRefinement, "scale", noted)
    kernel = refined(*steep, variance_kernel(0.5))
    assert kernel.k1.constant_value > 1.0
    assert factors == [
        site_refinement.VARIANCE_STEP,
        np.sqrt(site_refinement.VARIANCE_STEP),
    ]


@pytest.mark.parametrize("failing", [(0,), (1,), (0, 1)])
def test_a_start_that_fails_leaves_the_others(monkeypatch, steep, failing):
    starts = [start_of(variance_kernel(variance)) for variance in (0.5, 1.1)]
    solver_for = SiteRefinement.solver_for

    def fails(self, kernel):
        if kernel in [starts[i].kernel for i in failing]:
            raise FloatingPointError
        return solver_for(self, kernel)

    monkeypatch.setattr(SiteRefinement, "solver_for", fails)
    data, rng = data_of(*steep), np.random.RandomState(1)
    found = refine_kernel(starts, data, BINARY, log_density, rng, OPTIONS, CHAIN)
    if len(failing) == 2:
        assert found is starts[0]
    else:
        assert found.kernel.k1.constant_value > 2.0


def test_the_same_seed_gives_the_same_kernel(steep):
    first, other = (refined(*steep, variance_kernel(0.5)) for _ in range(2))
    assert_array_equal(first.theta, other.theta)


def test_the_paper_solver_learns_by_itself(monkeypatch, steep):
    monkeypatch.setattr(site_refinement.SiteRefinement, "consider", None)
    SWSGPClassifier(solver="adam", max_iter=1, random_state=0).fit(*steep)


def test_scales_are_freed_once_tied_ones_help_no_more(monkeypatch, steep):
    tied = []

    def learn(sites, X, weight, start, **options):
        tied.append(start.tied)
        return start.kernel

    monkeypatch.setattr(site_refinement, "learn_kernel_from_sites", learn)
    X = np.hstack([steep[0], np.zeros_like(steep[0])])
    kernel = ConstantKernel(2.0) * RBF([0.7, 0.7])
    data, rng = data_of(X, steep[1]), np.random.RandomState(1)
    starts = [start_of(kernel, tied=True)]
    refine_kernel(starts, data, BINARY, log_density, rng, OPTIONS, CHAIN)
    assert tied == [True, False]
