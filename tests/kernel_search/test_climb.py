"""The climb of the evidence, from few rows to many."""

import math

import numpy as np
import pytest
from helpers import drawn
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._kernel_search import climb as module
from skswsgp._kernel_search.climb import SMOOTHNESS, Climb
from skswsgp._kernel_search.kernel_choice import clearly_best
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)
from skswsgp._kernel_search.waves import ROWS_PER_HALF_WAVE
from skswsgp._solvers.auto import default_kernel


def climb_of(X, y, smoothness=SMOOTHNESS, whole=True, **options):
    y = ((y - y.mean(axis=0)) / y.std(axis=0)).reshape(len(X), -1)
    ones, options = np.ones((len(X), 1)), LearningOptions(**options)
    learner = KernelLearner(X, y, ones, ones[:, 0], options)
    kernel, noise = default_kernel(X.std(axis=0)), np.full(y.shape[1], 0.1)
    start = KernelFit(kernel, noise)
    rng = np.random.RandomState(0)
    return Climb(learner, start, smoothness, rng, whole=whole), y


def evidence(kernel, noise, X, y):
    process = GaussianProcessRegressor(kernel + WhiteKernel(noise), optimizer=None)
    return process.fit(X, y).log_marginal_likelihood_value_


MORE, MANY = (pytest.param(n, marks=pytest.mark.full) for n in (700, 1200))
PLAIN_OR_MANY = (600, False), (1200, False), (1200, True)
MORE_WAVES = (500, 1), (500, 2), (1000, 0)


@pytest.mark.parametrize("n", [200, 300, MORE, MANY])  # as few rows, more, and many
def test_more_steps_hardly_find_more_evidence(n):
    X, y = make_friedman1(n, noise=1.0, n_features=5, random_state=0)
    climb, y = climb_of(X, y, smoothness=(2.5,))
    fit, _ = climb.run()
    posterior = module.LogPosterior(*climb.learner.all_rows(fit))
    posterior.variances[:] = module.LAST_WIDTHS[0] ** 2
    before = -posterior.loss(posterior.start)[0]
    with one_blas_thread():
        assert posterior.maximize(posterior.moves(), 100)[1] < before + 2.0


def test_evidence_is_that_of_scikit_learn():
    X, y = make_friedman1(150, noise=1.0, n_features=5, random_state=0)
    climb, y = climb_of(X, y, smoothness=(2.5,))
    fit, _ = climb.run()
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.ones(5), (1e-2, 1e4), nu=2.5)
    best = GaussianProcessRegressor(kernel + WhiteKernel(0.1)).fit(X, y)
    best = best.log_marginal_likelihood_value_
    assert evidence(fit.kernel, fit.noise[0], X, y) > best - 1.0


@pytest.mark.parametrize("nu", [0.5, 1.5, math.inf])
def test_smoothness_of_a_function_is_found(nu):
    X, y = drawn(ConstantKernel(1.0) * Matern([0.8, 1.6], nu=nu), noise=1e-3)
    fit, _ = climb_of(X, y)[0].run()
    assert fit.kernel.k2.nu == nu


def wavy(n, seed):
    """Return X (n, 8) and y, of which columns 5 and 6 move a wave only."""
    rng = np.random.RandomState(seed)
    X = rng.rand(n, 8)
    y = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    y += 10.0 * X[:, 3] + 5.0 * X[:, 4] + 3.0 * np.sin(12.0 * X[:, 5] + 4.0 * X[:, 6])
    return X, y + rng.randn(n)


@pytest.mark.parametrize(
    ("n", "seed"),
    [(500, 0), *(pytest.param(*case, marks=pytest.mark.full) for case in MORE_WAVES)],
)
def test_a_wave_of_a_column_is_not_taken_for_noise(n, seed):
    X, y = wavy(n, seed)
    X[:, 7] = np.exp(5.0 * X[:, 7])  # of another unit and distribution
    fit, _ = climb_of(X, y, smoothness=(2.5,))[0].run()
    lengths = fit.kernel.k2.length_scale
    assert lengths[5] < lengths[:3].min()
    assert fit.noise[0] * y.var() < 1.5  # 5.5 where the wave is noise


def test_no_wave_is_looked_for_where_there_is_none(monkeypatch):
    X, y = make_friedman1(400, noise=1.0, n_features=5, random_state=0)
    climb, y = climb_of(X, y, smoothness=(2.5,))
    with one_blas_thread():
        best = climb.few_rows()[0]
        assert climb.with_waves(climb.moved_on(best, climb.learner)) == []


def test_a_smoother_kernel_is_climbed_from_shorter_length_scales():
    X = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, k) for k in (10, 10, 2)]), -1)
    X = X.reshape(-1, 3)
    y = np.sin(5.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])  # and copies along an idle column
    climb, y = climb_of(X, y)
    fit, _ = climb.run()
    assert fit.kernel.k2.nu == np.inf
    assert fit.kernel.k2.length_scale[0] > 0.3


def test_an_output_of_other_columns_is_not_taken_for_noise():
    """250 rows prefer that by 50 nats of evidence, and all 600 the functions."""
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(-2.0, 2.0, size=(600, 4)), rng.normal(size=(600, 2))
    first = np.sin(2.0 * X[:, 0]) + X[:, 1]
    second = np.cos(3.0 * X[:, 2]) * X[:, 3]
    climb, _ = climb_of(X, np.c_[first, second] + noise * [0.1, 0.25])
    fit, _ = climb.run()
    assert fit.noise[0] < 0.02
    assert fit.noise[1] < 0.2


def test_outputs_alone_do_not_free_the_length_scales_of_common_ones():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 4))
    K = Matern(2.0, nu=2.5)(X) + 1e-8 * np.eye(600)
    functions = np.linalg.cholesky(K) @ rng.normal(size=(600, 2))
    y = functions + 1.5 * rng.normal(size=(600, 2))
    climb, _ = climb_of(X, y, smoothness=(2.5,))
    with one_blas_thread():
        assert len(climb.apart(climb.few_rows()[0])) == 1  # more than half is noise
    fit, _ = climb.run()
    assert fit.shared


def test_classes_that_share_a_factor_afford_the_columns_of_one(rng):
    X, y = rng.normal(size=(600, 64)), rng.normal(size=(600, 10))
    freed = [climb_of(X, y, common_noise=one)[0].frees_length_scales for one in (0, 1)]
    assert freed == [False, True]


@pytest.mark.parametrize("common_noise", [False, True])
def test_classes_that_share_their_noise_are_not_climbed_alone(common_noise, rng):
    X, y = rng.normal(size=(600, 2)), rng.normal(size=(600, 3))
    climb, _ = climb_of(X, y, smoothness=(2.5,), common_noise=common_noise)
    with one_blas_thread():
        assert len(climb.apart(climb.few_rows()[0])) == (not common_noise)


def test_a_wave_that_the_climb_leaves_again_is_the_last(monkeypatch):
    X, y = wavy(500, 0)
    climb, y = climb_of(X, y)
    with one_blas_thread():
        best = climb.moved_on(climb.few_rows()[0], climb.learner)
        ascend = Climb.ascend

        def climbs(leave):
            forms = []

            def record(self, posterior, form, *steps):
                forms.append(form)
                value, *rest = ascend(self, posterior, form, *steps)
                posterior.start = best.posterior.start if leave else posterior.start
                return value, *rest

            monkeypatch.setattr(Climb, "ascend", record)
            climb.with_waves(best)
            return len(forms)

        assert climbs(leave=False) == 4
        assert climbs(leave=True) == 1


@pytest.mark.parametrize(
    ("n", "n_before", "pairs"), [(500, 0, True), (600, 500, True), (1100, 500, False)]
)
def test_slow_waves_and_pairs_are_looked_for_on_few_rows_only(
    n, n_before, pairs, monkeypatch, rng
):
    X = rng.uniform(size=(n, 5))
    climb, _ = climb_of(X, X[:, 0] + rng.normal(size=n), smoothness=(2.5,))
    asked = []

    def none(posterior, n_before, pairs):
        asked.append((n_before, pairs))
        return np.full(5, np.inf)

    monkeypatch.setattr(module, "quarter_waves", none)
    with one_blas_thread():
        few = climb.climbed(module.Form(2.5), None, 5)
        assert climb.with_waves(climb.moved_on(few, climb.learner)) == []
    assert asked == [(n_before, pairs)]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wave_of_two_columns_is_not_taken_for_noise(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(1000, 8))
    f = np.sin(14.0 * X[:, 0]) * np.cos(10.0 * X[:, 1]) + 4.0 * np.abs(X[:, 2] - 0.5)
    y = f + 0.2 * rng.normal(size=1000)
    fit, _ = climb_of(X, y, smoothness=(2.5,))[0].run()
    assert (fit.kernel.k2.length_scale[:2] < 1.0).all()
    assert fit.noise[0] * y.var() < 0.08  # 0.04, and 0.3 where the wave is noise


def test_the_best_of_few_is_that_of_the_rows_that_are_asked_for(rng):
    X = rng.uniform(size=(400, 2))
    climb, _ = climb_of(X, X[:, 0])
    assert len(climb.few.X) == module.FIRST_ROWS
    climb = Climb(
        climb.learner, climb.start, (2.5,), np.random.RandomState(0), first=400
    )
    assert len(climb.best_of_few().posterior.X) == 400


def test_no_wave_is_looked_for_between_levels(monkeypatch, rng):
    X = np.c_[rng.integers(3, size=300), rng.uniform(size=300)] + 0.0
    y = X[:, 0] + np.sin(20.0 * X[:, 1]) + 0.1 * rng.normal(size=300)
    climb, y = climb_of(X, y, smoothness=(2.5,))
    most = module.FIRST_ROWS // ROWS_PER_HALF_WAVE
    highest = np.tile(np.arange(most) + 50.0, 2)  # gains of each wave

    def gains(_, features):  # none of pairs, nor of waves that are zero
        found = np.zeros(features.shape[1])
        found[: len(highest)] = highest
        return np.where(features.any(axis=0), found, 0.0)

    monkeypatch.setattr(module.LogPosterior, "feature_gains", gains)
    monkeypatch.setattr(module.LogPosterior, "maximize", lambda self, *_, **__: (
        self.start, 0.0, None
    ))  # fmt: skip
    (found,) = climb.with_waves(climb.few_rows()[0])
    lengths = np.exp(found.posterior.start[:2])
    width = np.ptp(found.posterior.X, axis=0)
    assert_allclose(lengths, width / [4.0, 2.0 * most], rtol=0.05)


@pytest.mark.parametrize(("n", "n_columns"), [(300, 1), (300, 3), (600, 3)])
def test_waves_are_found_while_rows_tell_them_apart(n, n_columns, rng):
    X = rng.uniform(size=(n, n_columns))
    half_waves = n // (8 * n_columns)
    y = np.sin(np.pi * half_waves * X[:, 0]) + X.sum(axis=1)
    climb, y = climb_of(X, y + 0.1 * rng.normal(size=n))
    fit, _ = climb.run()
    assert fit.kernel.k2.nu > 1.0
    assert np.ravel(fit.kernel.k2.length_scale)[0] < 2.0 / half_waves
    assert fit.noise[0] * y.var() < 0.03


@pytest.mark.parametrize("seed", [3, 5])
def test_a_wave_is_found_beside_idle_columns(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(500, 10))
    y = 0.3 * np.sin(30.0 * np.pi * X[:, 0]) + X[:, 1] + X[:, 2]
    fit, _ = climb_of(X, y + 0.25 * rng.normal(size=500))[0].run()
    assert fit.noise[0] * y.var() < 0.08  # 0.11 where the wave is noise


def test_no_smoothness_is_taken_that_is_not_offered():
    X, y = drawn(ConstantKernel(1.0) * Matern([0.8, 1.6], nu=math.inf), noise=1e-3)
    fit, _ = climb_of(X, y, smoothness=SMOOTHNESS[:3])[0].run()
    assert fit.kernel.k2.nu == 2.5


def test_length_scales_are_freed_where_columns_differ(rng):
    X = rng.normal(size=(400, 6))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=400)
    fit, _ = climb_of(X, y)[0].run()
    assert not fit.shared
    scales = fit.kernel.k2.length_scale
    assert scales[1:].min() > 30 * scales[0]  # a nearly flat prior lets them go


def test_length_scales_that_few_rows_share_are_freed_on_more(monkeypatch, rng):
    X = rng.uniform(size=(900, 8))
    f = np.sin(X @ np.array([3.0, 2.0, 1.5, 1.5, 1.0, 1.0, 0.7, 0.5]) * 2.0)
    climb, _ = climb_of(X, f + 0.7 * rng.normal(size=900), smoothness=(2.5,))
    with one_blas_thread():
        few = climb.climbed(module.Form(2.5), None, 50)
        assert climb.freed(few) == []
        shared = climb.moved_on(few, climb.learner)
        (freed,) = climb.freed(shared)
        assert freed.evidence > shared.evidence + 3.0
        assert not freed.form.shared and climb.freed(freed) == []
    monkeypatch.setattr(Climb, "few_rows", lambda self: [few])
    assert not climb.run()[0].shared
    monkeypatch.setattr(Climb, "freed", lambda self, candidate: [])
    assert climb.run()[0].shared


def test_length_scales_share_a_ratio_for_similar_columns(rng):
    X = rng.normal(size=(100, 30))
    y = X.sum(axis=1) / 5 + 0.5 * rng.normal(size=100)
    fit, _ = climb_of(X, y)[0].run()
    assert fit.shared
    assert_allclose(
        fit.kernel.k2.length_scale / X.std(axis=0),
        fit.kernel.k2.length_scale[0] / X[:, 0].std(),
    )


def test_columns_for_values_are_freed_from_common_length_scales_too():
    levels, rng = (12, 12, 7, 4, 4, 6), np.random.default_rng(1)
    codes = np.stack([rng.integers(n, size=500) for n in levels], axis=1)
    values = [np.eye(n)[column] for n, column in zip(levels, codes.T, strict=True)]
    effects = [each @ rng.normal(size=each.shape[1]) for each in values]
    y = np.sum(effects, axis=0) + effects[0] * effects[1] + 0.02 * rng.normal(size=500)
    X = np.hstack([codes / np.array(levels), *values])
    climb, _ = climb_of(X, y, smoothness=(module.ROUGH,))
    own = module.Form(climb.middle, shared=False)
    with one_blas_thread():
        caught = climb.climbed(own, None, module.FIRST_STEPS)
        best = climb.few_rows(waves=False)[0]
    assert best.evidence > caught.evidence + 20.0


def test_wide_tables_keep_a_common_length_scale(rng):
    X = rng.normal(size=(300, 400))
    climb, _ = climb_of(X, X[:, 0])
    assert not climb.frees_length_scales
    fit, turned = climb.run("auto")
    assert fit.shared and turned is fit


@pytest.mark.parametrize(
    ("n", "mixed"),
    [(120, False), (120, True), (600, True)]
    + [pytest.param(*case, marks=pytest.mark.full) for case in PLAIN_OR_MANY],
)
def test_a_map_is_taken_where_columns_are_mixed(n, mixed, rng):
    X = rng.normal(size=(n, 3))
    f = np.sin(2 * (X[:, 0] + X[:, 1])) if mixed else np.sin(2 * X[:, 0])
    climb, _ = climb_of(X, f + 0.1 * rng.normal(size=n))
    plain, turned = climb.run("auto")
    assert plain.linear_map is None
    assert (turned.linear_map is not None) == mixed
    assert (turned is plain) != mixed
    _, asked = climb.run(True)
    assert asked.linear_map is not None


def test_a_map_of_noise_is_refused(rng):
    for _ in range(3):
        X, y = rng.normal(size=(150, 6)), rng.normal(size=150)
        plain, turned = climb_of(X, y)[0].run("auto")
        assert turned is plain


def test_few_rows_of_many_columns_may_be_noise_alone(rng):
    X, y = rng.normal(size=(60, 25)), rng.normal(size=60)
    noise, mapped = climb_of(X, y)[0].run("auto")
    assert mapped is noise
    assert_allclose(noise.kernel.k1.constant_value, 1e-3)  # the lower bound
    assert_allclose(noise.noise, 1.0, rtol=0.05)
    line = climb_of(X, y + 2.0 * X[:, 0])[0].run()[0]
    assert line.kernel.k1.constant_value > 0.3


def test_noise_alone_is_for_all_rows_without_a_map_that_is_asked_for(rng):
    X, y = rng.normal(size=(60, 25)), rng.normal(size=60)
    part = climb_of(X, y, whole=False)[0].run("auto")[0]
    assert part.kernel.k1.constant_value > 0.01
    assert climb_of(X, y)[0].run(True)[1].linear_map is not None


@pytest.mark.parametrize("seed", range(4))
def test_few_rows_show_a_wave_that_looks_like_noise(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(90, 10))
    y = np.cos(6.0 * np.pi * X[:, 0]) + 0.3 * rng.normal(size=90)
    fit, _ = climb_of(X, y)[0].run("auto")
    assert fit.noise[0] < 0.5


def test_few_smooth_rows_tell_that_there_is_no_noise():
    x = np.linspace(0.0, 1.0, 6)[:, None]
    fit, _ = climb_of(x, np.exp(x[:, 0]))[0].run()
    assert fit.noise[0] < 1e-5
    rough = np.array([0.1, -0.2, 0.1, 0.2, -0.3, 0.1])
    assert climb_of(x, x[:, 0] + rough)[0].run()[0].noise[0] > 0.01


def test_known_noise_stays(rng):
    X = rng.normal(size=(300, 2))
    y = np.sin(X[:, 0]) + rng.normal(size=300)
    for fit in climb_of(X, y, noise_known=True)[0].run(True):
        assert_allclose(fit.noise, 0.1)


def test_laplace_counts_what_few_rows_know():
    X, y = make_friedman1(600, noise=1.0, n_features=5, random_state=0)
    climb, _ = climb_of(X, y, smoothness=(2.5,))
    with one_blas_thread():
        candidate = climb.climbed(module.Form(2.5, shared=False), None, 50)
    assert len(candidate.posterior.X) == module.FIRST_ROWS
    moves = candidate.posterior.moves()
    assert_allclose(
        candidate.log_volume(len(candidate.posterior.X)),
        candidate.posterior.log_volume(moves),
    )
    # with four times the rows each known parameter is known twice as well
    less = candidate.log_volume(4 * module.FIRST_ROWS)
    known = np.sum(candidate.curvatures > 1.0 + 1e-9)
    gap = candidate.log_volume(module.FIRST_ROWS) - less
    most = len(candidate.curvatures)
    assert known - 1e-9 <= gap / math.log(2.0) <= most + 1e-9
    assert 0.0 < candidate.gain_by_chance < 0.5 * len(candidate.curvatures)


def test_all_rows_are_evaluated_only_at_the_end(monkeypatch):
    X, y = make_friedman1(1100, noise=1.0, n_features=5, random_state=0)
    sizes, loss = [], module.LogPosterior.loss

    def counted(self, point):
        sizes.append(len(self.X))
        return loss(self, point)

    monkeypatch.setattr(module.LogPosterior, "loss", counted)
    climb_of(X, y)[0].run("auto")
    whole = np.array(sizes) == 1100
    first = whole.argmax()
    assert whole[first:].all()
    assert 0 < whole.sum() <= 2 * module.LAST_STEPS


@pytest.mark.parametrize(
    ("values", "n_outputs", "best"),
    [
        ([0.0, 18.0, 18.0], 1, 0),  # not clear enough
        ([0.0, 20.0, 22.0], 1, 1),  # which more rows may reverse
        ([0.0, 20.0, 24.0], 1, 2),
        ([0.0, 18.0, 20.5], 1, 2),
        ([0.0, 2.0, 500.0], 1, 2),  # though the one before gains nothing
        ([0.0, 30.0], 4, 0),
        ([0.0, 40.0], 4, 1),
        ([-np.inf, 5.0], 1, 0),  # nothing to compare with
        ([0.0, -np.inf, 90.0], 1, 2),  # though the one before must not be taken
        ([3.0], 1, 0),
    ],
)
def test_another_scale_must_be_clearly_likelier(values, n_outputs, best):
    places = list(range(len(values)))
    assert clearly_best(places, values.__getitem__, n_outputs) == best
