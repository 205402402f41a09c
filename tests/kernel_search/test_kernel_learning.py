"""Kernels learned with the nearest-neighbour likelihood."""

import numpy as np
import pytest
from helpers import KERNELS, drawn, make
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1, make_s_curve
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._covariance.compile import compile_kernel, params_in_units
from skswsgp._kernel_search import climb, kernel_learning, marginal_likelihood
from skswsgp._kernel_search.climb import climb_given
from skswsgp._kernel_search.holdout import Judges
from skswsgp._kernel_search.kernel_choice import learn_kernel
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
    count_few_rows,
    count_learning_rows,
    evaluation_work,
)
from skswsgp._kernel_search.neighbor_likelihood import (
    neighbor_model,
)
from skswsgp._neighbors import search
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.auto import default_kernel
from skswsgp._solvers.tuning import Tuning
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.kernels import OnColumns

TUNING = Tuning()


def learned(X, y, kernel=None, weight=None, rows=None, tuning=TUNING, **options):
    """Return the `KernelFit`."""
    weight = np.ones(len(y)) if weight is None else weight
    data = TrainingRows(X, y.reshape(len(y), -1), weight, rows)
    noise, dtype = options.pop("noise_variance", 0.1), options.pop("dtype", "float64")
    resources = LearningOptions(tuning=tuning, dtype=dtype)
    rng = np.random.RandomState(0)
    return learn_kernel(data, kernel, noise, rng, resources, **options)


def learner_of(X, y, weight=None, **tuning):
    weight = np.ones(len(X)) if weight is None else weight
    y, options = y.reshape(len(X), -1), LearningOptions(tuning=Tuning(**tuning))
    return KernelLearner(X, y, 1.0 / weight[:, None], weight, options)


def scales(found):
    return found.kernel.k2.length_scale


@pytest.mark.full
def test_shared_length_scale_ratio_suits_many_noise_features(rng):
    X = np.hstack([rng.normal(size=(200, 2)), rng.normal(size=(200, 30))])
    y = (X[:, :2].sum(axis=1) > 0).astype(int)
    model = SWSGPClassifier(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("N", [2, 3, 6])
def test_few_rows(N, rng):
    X = rng.normal(size=(N, 3))
    model = SWSGPRegressor(random_state=0).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_weights_that_differ_do_not_change_the_noise_of_an_observation(rng):
    X = rng.uniform(size=(600, 2))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=600)
    weight = rng.choice([0.2, 1.0, 5.0], 600)
    found = learned(X, y, weight=weight / weight.mean())
    assert_allclose(found.noise, 0.09, rtol=0.2)  # half of the rows count effectively


def test_constant_columns_do_not_change_what_is_learned_of_the_others(rng):
    x, constant = rng.normal(size=(60, 1)), np.full((60, 3), 7.0)
    y = np.sin(2.0 * x[:, 0]) + 0.1 * rng.normal(size=60)  # noise makes a peak sharp
    alone, beside = learned(x, y), learned(np.hstack([x, constant]), y)
    assert_allclose(scales(beside)[0], scales(alone), rtol=0.05)
    variances = [found.kernel.k1.constant_value for found in (alone, beside)]
    assert_allclose(*variances, rtol=0.1)
    # Equal rows tell the variance of y, as noise.
    assert_allclose(learned(constant, y).noise, y.var(), rtol=0.1)


# --- the whole ------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.5, 2.5])
def test_smoothness_is_recovered(nu):
    X, y = drawn(ConstantKernel(1.0) * Matern([0.8, 1.6], nu=nu), noise=0.001)
    fit = learned(X, y)
    assert fit.kernel.k2.nu == nu
    assert fit.noise.shape == (1,)


def test_given_kernel_keeps_its_form(rng):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=100)
    given = ConstantKernel(1.0) * RBF([1.0, 1.0])
    kernel, noise, *_ = learned(X, np.stack([y, rng.normal(size=100)], 1), given)
    assert given == ConstantKernel(1.0) * RBF([1.0, 1.0])
    assert type(kernel.k2) is RBF
    assert kernel != given
    assert noise.shape == (2,)
    assert noise[1] > 2 * noise[0]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_given_kernel_is_learned_from_few_rows_in_any_units(rng, unit):
    X = rng.uniform(-2, 2, size=(60, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60)
    given = ConstantKernel() * RBF([1.0, 1.0, 1.0])
    model = SWSGPRegressor(given, random_state=0).fit(unit * X[:40], y[:40])
    assert model.score(unit * X[40:], y[40:]) > 0.85


def test_prior_of_length_scales_follows_the_spread_of_X():
    fixed = Matern(3.0, "fixed", nu=1.5)
    kernel = ConstantKernel(2.0) * RBF([1.0, 4.0]) + RationalQuadratic(8.0, 0.7) + fixed
    spread = np.array([10.0, 1000.0])
    varying = np.array([True, True])
    params = params_in_units(kernel, spread, varying)
    scale = 100.0 * np.sqrt(2.0) / 32.0 ** (1 / 3)
    expected = [2.0, scale, 4.0 * scale, 8.0 * scale, 0.7, 3.0]
    np.testing.assert_allclose(np.sort(params), np.sort(expected))
    again = params_in_units(default_kernel(spread), spread, varying)
    np.testing.assert_allclose(np.sort(again), [1.0, *np.sqrt(2.0) * spread])
    linear = DotProduct(3.0)
    np.testing.assert_array_equal(params_in_units(linear, spread, varying), [3.0])


def test_the_prior_of_a_period_is_in_the_units_of_the_user():
    kernel = RBF(3.0) * ExpSineSquared(0.7, periodicity=12.0)
    params = params_in_units(kernel, np.array([10.0]), np.array([True]))
    np.testing.assert_allclose(params, [10.0, 0.7, 12.0])


def test_the_prior_of_a_length_scale_follows_the_columns_that_it_divides():
    spread, varying = np.array([10.0, 1e3, 1e6]), np.ones(3, bool)
    kernel = OnColumns(RBF(3.0), [0])
    np.testing.assert_allclose(params_in_units(kernel, spread, varying), [10.0])
    kernel = OnColumns(RBF([1.0, 1.0]), [1, 0])
    expected = np.full(2, np.sqrt(2.0) * 100.0)
    np.testing.assert_allclose(params_in_units(kernel, spread, varying), expected)
    varying[1] = False
    np.testing.assert_allclose(params_in_units(kernel, spread, varying), [10.0, 10.0])


@pytest.mark.parametrize(  # all rows at once, and in minibatches
    "n_rows", [300, pytest.param(2000, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("start", [1.0, 1.003])
def test_a_period_is_not_lost_among_many(n_rows, start, rng):
    t = rng.uniform(0.0, 30.0, size=n_rows)
    y = np.sin(2 * np.pi * t) + 0.5 * np.cos(6 * np.pi * t)
    kernel = 1.0 * ExpSineSquared(1.0, start)
    y += 0.3 * rng.normal(size=n_rows)
    model = NearestNeighborGPRegressor(kernel, random_state=0).fit(t[:, None], y)
    assert model.kernel_.k2.periodicity == pytest.approx(1.0, abs=2e-3)


def test_prior_of_length_scales_ignores_constant_features():
    spread, varying = np.array([10.0, 1.0]), np.array([True, False])
    for kernel, expected in (
        (RBF(3.0), [10.0]),
        (RBF([3.0, 6.0]), [10.0, 20.0]),
    ):
        params = params_in_units(kernel, spread, varying)
        np.testing.assert_allclose(params, expected)
        same = params_in_units(kernel, spread, np.array([False, False]))
        np.testing.assert_array_equal(same, np.atleast_1d(kernel.length_scale))


@pytest.mark.parametrize("kernel", [None, RBF(2.0)], ids=["none", "given"])
def test_one_row_leaves_the_kernel_unchanged(kernel):
    learned_kernel, noise, _, curve, *_ = learned(np.ones((1, 2)), np.zeros(1), kernel)
    assert kernel is None or learned_kernel == kernel
    np.testing.assert_array_equal(noise, [0.1])
    assert len(curve) == 0


def test_learning_samples_many_rows(monkeypatch):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=200)
    sizes = []

    def counted(X, *args):
        sizes.append(len(np.unique(X, axis=0)))
        return neighbor_model(X, *args)

    monkeypatch.setattr(kernel_learning, "neighbor_model", counted)
    tuning = Tuning(learning_numbers=60 * 20, least_learning_rows=1, learning_steps=8)
    learned(X, y, tuning=tuning)
    assert set(sizes) == {60}


def test_rows_that_take_part_follow_from_the_features():
    counts = tuple(count_learning_rows(D, TUNING) for D in (1, 20, 40, 784))
    assert counts == (200_000, 200_000, 100_000, 5102)


@pytest.mark.parametrize("n_rows", [400, 1200])
def test_rows_of_the_evidence_and_of_near_rows_do_not_judge(n_rows, monkeypatch):
    # the evidence of up to 300 rows, and near rows beyond
    seen = {"evidence": [], "near": [], "judges": []}
    posterior, learn = climb.LogPosterior, KernelLearner.learn

    def noted(kernel, noise, X, y, *rest, **options):
        seen["evidence"].append(y[:, 0])
        return posterior(kernel, noise, X, y, *rest, **options)

    def noted_learn(self, start, rng, steps, rate, *, rows=None, **options):
        seen["near"].append(self.y[slice(None) if rows is None else rows, 0])
        return learn(self, start, rng, 2, rate, rows=rows, **options)

    say = Judges.say

    def noted_say(self, fit):
        seen["judges"].append(self.learner.y[self.rows, 0])
        return say(self, fit)

    monkeypatch.setattr(climb, "LogPosterior", noted)
    monkeypatch.setattr(KernelLearner, "learn", noted_learn)
    monkeypatch.setattr(Judges, "say", noted_say)
    X, y = drawn(KERNELS["matern"], noise=0.1, N=n_rows)
    work = evaluation_work(300, 2, 1)
    learned(X, y, tuning=Tuning(evidence_work=work, part_work=work), learn_map="auto")
    assert len(np.concatenate(seen["evidence"])) > 0
    judged = 0 if n_rows == 400 else int(0.2 * n_rows)
    assert bool(seen["near"]) == bool(seen["judges"]) == bool(judged)
    for judges in seen["judges"]:
        assert len(judges) == judged
        for others in seen["evidence"] + seen["near"]:
            assert not np.isin(judges, others).any()


def test_coded_labels_learn_nothing_from_near_rows(monkeypatch):
    def learn(*_, **__):
        raise AssertionError("near rows taught a kernel")

    monkeypatch.setattr(KernelLearner, "learn", learn)
    X, y = drawn(KERNELS["matern"], noise=0.1, N=1200)
    work = evaluation_work(300, 2, 1)
    tuning = Tuning(evidence_work=work, part_work=work)
    assert learned(X, y > 0, tuning=tuning, coded="common").shared
    with pytest.raises(AssertionError):
        learned(X, y > 0, tuning=tuning)


@pytest.mark.matrix
@pytest.mark.parametrize("kernel", [None, Matern([1.0, 1.0], nu=1.5)])
@pytest.mark.parametrize("n_rows", [100, 1200])
def test_near_rows_learn_where_no_work_is_left_for_the_evidence(kernel, n_rows, rng):
    X = rng.uniform(-2, 2, size=(n_rows, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=n_rows)
    fit = learned(X, y, kernel, tuning=Tuning(evidence_work=0, part_work=0))
    assert np.isfinite(fit.kernel.theta).all()
    judged = n_rows == 1200
    assert len(fit.curve) == judged * TUNING.learning_steps
    if judged:
        lengths = np.exp(fit.kernel.theta[-2:])
        assert lengths[1] > 3 * lengths[0]
        assert fit.noise[0] < 0.02


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize(("share", "nu"), [(0.6, np.inf), (0.4, 2.5)])
def test_noise_decides_on_infinitely_smooth_kernels_of_many_rows(
    share, nu, rng, monkeypatch
):
    say = Judges.say
    monkeypatch.setattr(Judges, "say", lambda *how: (*say(*how)[:2], share))
    X = rng.uniform(-2, 2, size=(800, 2))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.5 * rng.normal(size=800)
    work = evaluation_work(300, 2, 1)
    fit = learned(X, y, tuning=Tuning(evidence_work=work, part_work=work))
    assert fit.kernel.k2.nu == nu


def test_duplicates_count_as_weights(rng):
    X = rng.uniform(-2, 2, size=(80, 2))
    y = np.sin(2 * X[:, :1]) + 0.3 * rng.normal(size=(80, 1))
    count = np.ones(80)
    count[:30] = 2.0
    found = learned(X, y, weight=count), learned(np.r_[X, X[:30]], np.r_[y, y[:30]])
    np.testing.assert_array_equal(found[0].kernel.theta, found[1].kernel.theta)
    np.testing.assert_array_equal(found[0].noise, found[1].noise)
    assert found[0].noise[0] > 0.01  # duplicates do not show that noise is small


def test_kernel_without_a_single_metric_can_be_learned(rng):
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, :1])
    kernel = RBF([1.0, 2.0]) + Matern([2.0, 1.0])
    learned(X, y, kernel)


def test_kernel_of_the_function_is_recovered_from_sites(rng):
    truth = ConstantKernel(9.0) * Matern([0.5, 2.0], nu=1.5)
    X = rng.uniform(-2, 2, size=(600, 2))
    variance = rng.uniform(0.01, 1.0, (600, 1))
    f = np.linalg.cholesky(truth(X) + 1e-9 * np.eye(600)) @ rng.normal(size=(600, 1))
    targets = f + np.sqrt(variance) * rng.normal(size=(600, 1))
    sites = KernelLearner(X, targets, variance, np.ones(600), LearningOptions())
    kernel = ConstantKernel(3.0) * Matern([1.0, 1.0], nu=1.5)
    for _ in range(4):
        start = KernelFit(kernel, np.ones(1))
        kernel = sites.learn_from_sites(start, np.random.RandomState(0)).kernel
    np.testing.assert_allclose(kernel.k2.length_scale, [0.5, 2.0], rtol=0.35)
    assert 4.5 < kernel.k1.constant_value < 18.0


@pytest.mark.parametrize("pool", [1024, 70])
def test_selected_rows_equal_a_copy_of_them(rng, pool):
    X = rng.normal(size=(120, 2))
    rows = np.sort(rng.permutation(120)[:90])
    y, weight = np.sin(X[rows, :1]), rng.uniform(0.5, 2.0, 90)

    options = {"weight": weight}
    few = {"learning_numbers": 20 * pool, "least_learning_rows": 1}
    options["tuning"] = Tuning(**few, learning_neighbors=5)
    some, copied = learned(X, y, rows=rows, **options), learned(X[rows], y, **options)
    np.testing.assert_array_equal(some.kernel.theta, copied.kernel.theta)
    np.testing.assert_array_equal(some.noise, copied.noise)


@pytest.mark.parametrize("local", [False, True])
def test_learning_builds_no_graph_index(rng, monkeypatch, few_steps, local):
    made = []

    class Graph:
        def __init__(self, points, n_neighbors, *args):
            self.n_neighbors = n_neighbors
            made.append(self)

        def find(self, points):  # marks every list as wrong
            n = len(points)
            return np.zeros((n, self.n_neighbors)), np.zeros(n, dtype=bool)

    monkeypatch.setattr(search, "_Graph", Graph)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    settings = {"neighbor_search": "approximate", "random_state": 0}
    if local:
        NearestNeighborGPRegressor(**settings).fit(X, y)
        assert not made
        return
    for n_inducing in ("auto", 40):
        few = {"n_inducing": n_inducing, "n_neighbors": 8}
        make(SWSGPClassifier, **settings, **few, learn_kernel=False).fit(X, y)
        expected = len(made)
        make(SWSGPClassifier, **settings, **few).fit(X, y)
        assert len(made) == 2 * expected > 0
        made.clear()


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(SWSGPRegressor, marks=pytest.mark.full), NearestNeighborGPRegressor],
)
def test_nearby_folds_of_a_surface_are_separated(estimator):
    # The 32 nearest rows nearly lie on a plane: learned from them alone, length-scales
    # were four times as long, RMSE exceeded twice the noise, and 95 % intervals held
    # 64 % of the targets.
    X, y = make_s_curve(900, noise=0.05, random_state=0)
    model = estimator(random_state=0).fit(X[:650], y[:650])
    mean, std = model.predict(X[650:], return_std=True)
    error = y[650:] - mean
    assert np.sqrt(np.mean(error**2)) < 0.075
    assert np.mean(np.abs(error) < 1.96 * std) > 0.88


# --- few rows -------------------------------------------------------------------------


def test_marginal_likelihood_of_few_rows_is_maximal():
    X, y = drawn(KERNELS["matern"], noise=0.1, N=60)
    start = KernelFit(ConstantKernel(0.5) * Matern([1.0, 1.0], nu=1.5), np.array([0.2]))
    learner, before = learner_of(X, y, np.full(60, 2.0)), start.kernel.theta
    around = compile_kernel(start.kernel, 2, np.float64).struct.params
    found = climb_given(learner, start, around, np.random.RandomState(0))
    process = GaussianProcessRegressor(
        found.kernel + WhiteKernel(found.noise[0] / 2.0), optimizer=None
    ).fit(X, y)
    theta, before = process.kernel_.theta, np.r_[before, np.log(0.1)]
    _, slope = process.log_marginal_likelihood(theta, eval_gradient=True)
    assert_allclose(slope, theta - before, atol=0.1)
    assert np.abs(theta - before).max() > 0.2


def test_number_of_rows_of_the_evidence_follows_from_its_work():
    assert count_few_rows(2, 1, 40 * 40 * 48) == 40
    assert count_few_rows(2, 1, 40 * 40 * 48 - 1) == 39
    assert count_few_rows(2, 2, 2 * 40 * 40 * 48) == 40
    assert count_few_rows(5, 1, TUNING.evidence_work) > 2000


@pytest.mark.parametrize("light", [0.1, 1e-8])
def test_noise_of_few_rows_of_unequal_weight(light, rng):
    # Half of the rows tell little of the noise: counted as rows they take it to zero
    X = rng.uniform(-2, 2, size=(160, 2))
    f = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 0])], axis=1)
    weight = np.where(np.arange(160) % 2, light, 1.0)
    y = f + 0.2 * rng.normal(size=f.shape) / np.sqrt(weight[:, None])
    found = learned(X, y, default_kernel(np.ones(2)), weight)
    assert scales(found)[0] < 0.5 * scales(found)[1]
    assert ((found.noise > 0.02) & (found.noise < 0.08)).all()  # 0.04 of weight 1
    same = f + 0.2 * rng.normal(size=f.shape)
    found = learned(X, same, default_kernel(np.ones(2)), weight)
    assert (found.noise > 0.01).all()


def test_kernel_of_some_hundred_rows_maximises_the_marginal_likelihood():
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    process = GaussianProcessRegressor(
        model.kernel_ + WhiteKernel(model.noise_variance_), optimizer=None
    ).fit(X, (y - model.y_mean_) / model.y_scale_)
    theta = process.kernel_.theta
    _, slope = process.log_marginal_likelihood(theta, eval_gradient=True)
    # Only the prior of the logarithms pulls; 17 when learned from nearest rows
    assert np.abs(slope).max() < 4.0


@pytest.mark.full
def test_noise_is_not_underestimated_for_few_rows_with_many_columns():
    noise, held = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(400, 20))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] + 0.5 * rng.normal(size=400)
        model = SWSGPRegressor(random_state=0).fit(X[:100], y[:100])
        mean, std = model.predict(X[100:], return_std=True)
        held.append(np.mean(np.abs(mean - y[100:]) < 1.96 * std))
        noise.append(np.sqrt(model.noise_variance_) * model.y_scale_)
    assert np.mean(held) > 0.87  # 0.79 when learned from nearest rows
    assert np.mean(noise) > 0.2  # true value 0.5; 0.1 when learned from nearest rows


def test_bounds_are_respected_for_few_rows(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    kernel = ConstantKernel(1.0, "fixed") * Matern([1.0, 1.0], (0.9, 1.1), nu=2.5)
    model = SWSGPRegressor(kernel, random_state=0).fit(1e7 + X, y)
    assert model.kernel_.k1.constant_value == 1.0
    scale = model.kernel_.k2.length_scale
    assert (scale >= 0.9 - 1e-9).all() and (scale <= 1.1 + 1e-9).all()


@pytest.mark.parametrize("bounds", [(0.0, 1e5), (0.0, np.inf), (1e-5, np.inf)])
def test_open_bounds_act_like_wide_ones_for_few_rows(bounds, rng):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=40)
    wide, open_ = (learned(X, y, RBF(1.0, b)) for b in ((1e-5, 1e5), bounds))
    assert_allclose(open_.kernel.theta, wide.kernel.theta, rtol=1e-3)


@pytest.mark.parametrize("given", [None, ConstantKernel(0.5) * RBF([1.0, 1.0])])
def test_failed_factorisation_keeps_the_kernel_of_few_rows(given, monkeypatch):
    def fails(C):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(marginal_likelihood, "factorised", fails)
    X, y = drawn(KERNELS["matern"], noise=0.1, N=20)
    fit = learned(X, y, given, learn_map="auto")
    start = default_kernel(X.std(axis=0)) if given is None else given
    assert_allclose(fit.kernel.k1.constant_value, start.k1.constant_value)
    assert_allclose(fit.noise, 0.1)
