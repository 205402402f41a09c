"""The kernel of a classifier with few rows."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from scipy.special import ndtr, softmax
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
)
from small_models import natural_settings

from skswsgp import SWSGPClassifier
from skswsgp._kernel_search import evidence
from skswsgp._kernel_search.evidence import (
    BOUND_WORK,
    BoundSearch,
    Found,
    maximize_bound,
)
from skswsgp._kernel_search.holdout import train
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    LearningOptions,
    evaluation_work,
)
from skswsgp._rows.data import TrainingRows

BINARY = natural_settings("bernoulli")
KERNEL = ConstantKernel(0.5, (1e-3, 1e3)) * RBF([1.0, 1.0])


@pytest.fixture
def wave(rng):
    """Return X (120, 2), of which the first column matters, and signs."""
    X = rng.uniform(-3, 3, (120, 2))
    p = ndtr(4.0 * np.sin(2.0 * X[:, 0]))
    return X, np.where(rng.uniform(size=120) < p, 1.0, -1.0)


def search_of(X, y, weight=None, settings=BINARY, n_rows=1000):
    weight = np.ones(len(X)) if weight is None else weight
    data, rng = TrainingRows(X, y[:, None], weight), np.random.RandomState(0)
    return BoundSearch(n_rows, data, settings, LearningOptions(), rng)


def found(X, y, kernel=KERNEL, **options):
    search = search_of(X, y, **options)
    search.run([kernel], 0)
    return search


def start_of(search, kernel=KERNEL):
    """Return a kernel and its converged solver, whose inducing points are all rows."""
    search.Z = search.X
    return Found(kernel, search.solved(kernel))


def test_slope_of_the_bound_and_priors_is_zero_at_the_kernel(wave, monkeypatch):
    monkeypatch.setattr(evidence, "LEAST_TURN", 1e-6)
    search = search_of(*wave)
    search.settings = BINARY._replace(
        tuning=BINARY.tuning._replace(learning_neighbors=120)
    )
    best = search.climb(start_of(search), KERNEL, shared=False)[0].kernel

    def objective(theta):
        solver = search.solved(best.clone_with_theta(theta))
        solver.tolerance, solver.losses = 1e-12, []
        prior = -0.5 * np.sum((theta - KERNEL.theta)[1:] ** 2)  # the constant's is flat
        return train(solver).bound + prior

    slope = reference.finite_difference(objective, best.theta, step=1e-2)
    start = reference.finite_difference(objective, KERNEL.theta, step=1e-2)
    assert np.abs(slope).max() < 0.2
    assert np.abs(start).max() > 5.0


def test_length_scales_are_freed_where_a_column_does_not_matter(wave):
    search = found(*wave)
    scales = search.found.kernel.k2.length_scale
    assert not search.shared
    assert scales[1] > 2.0 * scales[0]
    assert search.found.kernel.k1.constant_value > 2.0


def test_length_scales_keep_their_ratios_where_labels_are_random(rng):
    X, y = rng.normal(size=(60, 12)), rng.choice([-1.0, 1.0], 60)
    kernel = ConstantKernel(0.5, (1e-3, 1e3)) * Matern(np.full(12, 3.0), nu=1.5)
    search = found(X, y, kernel)
    assert search.shared
    assert_allclose(np.diff(search.found.kernel.k2.length_scale), 0.0, atol=1e-12)
    probabilities = ndtr(search.found.solver.predict(X)[0])
    assert np.abs(probabilities - 0.5).max() < 0.1


def test_variance_is_the_geometric_mean_of_its_posterior(wave):
    search = search_of(*wave)
    search.found, *_ = search.climb(start_of(search), KERNEL, shared=True)
    kernel, start, _ = search.found
    search.average_variance()
    slot = int(np.flatnonzero(start.engine.model.params == kernel.k1.constant_value)[0])
    now = start.engine.model.params[slot]
    logs = np.log(now) + np.log(3.0) * np.arange(-10, 11)
    logs = logs[(logs >= np.log(1e-3)) & (logs <= np.log(1e3))]
    bounds = [train(start.scaled(slot, np.exp(log) / now)).bound for log in logs]
    expected = np.exp(softmax(bounds) @ logs)
    assert_allclose(search.found.kernel.k1.constant_value, expected, rtol=0.05)
    assert (
        search.found.solver.engine.model.params[slot]
        == search.found.kernel.k1.constant_value
    )


def test_fixed_and_bounded_parameters_are_respected(wave):
    kernel = ConstantKernel(0.5, "fixed") * RBF([1.0, 1.0], (0.9, 1.2))
    search = found(*wave, kernel)
    assert search.found.kernel.k1.constant_value == 0.5
    scales = search.found.kernel.k2.length_scale
    assert (scales > 0.9 - 1e-9).all()
    assert (scales < 1.2 + 1e-9).all()
    bounded = found(*wave, ConstantKernel(0.5, (0.1, 2.0)) * RBF([1.0, 1.0]))
    assert 0.1 <= bounded.found.kernel.k1.constant_value <= 2.0
    assert found(*wave, RBF(1.0, "fixed")).found.kernel == RBF(1.0, "fixed")


def test_copies_of_rows_are_weights(wave):
    X, y = wave
    twice = found(np.r_[X, X], np.r_[y, y])
    weighted = found(X, y, weight=np.full(len(X), 2.0))
    # the prior takes the points in another random order
    assert_allclose(twice.found.kernel.theta, weighted.found.kernel.theta, atol=0.15)
    once = found(X, y).found.kernel.theta
    assert np.abs(weighted.found.kernel.theta - once).max() > 0.3


def test_rows_that_share_X_and_classes_without_rows(rng):
    X = np.repeat(rng.uniform(-2, 2, (20, 2)), 3, axis=0)
    y = rng.integers(3, size=60).astype(float)
    settings = natural_settings("softmax", 4)  # no row has the last class
    search = found(X, y, settings=settings)
    assert np.isfinite(search.found.kernel.theta).all()
    assert len(search.Z) == 20


@pytest.mark.parametrize("X", [np.zeros((1, 2)), np.ones((30, 2))])
def test_rows_that_are_all_alike(X, rng):
    y = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    assert np.isfinite(found(X, y).found.kernel.theta).all()


def test_the_start_with_the_largest_bound_is_kept(wave):
    search, kernels = search_of(*wave), [RBF(scale) for scale in (30.0, 1.0, 0.01)]
    fixed = [
        ConstantKernel(4.0, "fixed") * RBF(k.length_scale, "fixed") for k in kernels
    ]
    search.run(fixed, 0)
    assert search.found.kernel == fixed[1]


def test_bound_and_sites_have_a_divergence_of_weight_one(wave):
    X, y = wave
    data = TrainingRows(X, y[:, None], np.ones(120))
    fits = [
        maximize_bound(
            [KernelFit(KERNEL, np.zeros(1))], 0, 1000, data,
            BINARY._replace(kl_weight=weight), LearningOptions(),
            np.random.RandomState(0),
        )
        for weight in (0.1, 1.0)
    ]  # fmt: skip
    assert fits[0].kernel == fits[1].kernel


def test_number_of_rows_is_limited(wave):
    search = search_of(*wave, n_rows=50)
    assert len(search.X) == 50
    assert search.fraction == 50 / 120


# --- fits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "shares"),
    [
        (64, 3, (63, 1)),
        (100, 30, (1, 1)),
        pytest.param(100, 3, (1, 1), marks=pytest.mark.full),
        pytest.param(100, 2, (5, 3, 1, 1), marks=pytest.mark.full),
    ],
)
def test_labels_by_chance_end_near_the_shares(n_rows, n_columns, shares):
    rng, excess = np.random.default_rng(1), []
    for _ in range(2):
        X, new = rng.normal(size=(2, n_rows, n_columns))
        K, p = len(shares), np.array(shares) / sum(shares)
        y, new_y = rng.choice(K, n_rows, p=p), rng.choice(K, n_rows, p=p)
        y[:K] = np.arange(K)
        model = SWSGPClassifier(random_state=0).fit(X, y)
        found = np.bincount(y) / n_rows
        ratio = model.predict_proba(new)[np.arange(n_rows), new_y] / found[new_y]
        excess.append(-np.log(ratio).mean())
    assert np.mean(excess) < 0.01  # 0.075 for 30 columns with held-out rows


def test_few_rows_with_a_pattern_are_predicted(rng):
    X = rng.normal(size=(900, 20))
    y = rng.uniform(size=900) < 1.0 / (1.0 + np.exp(2.0 - 1.5 * X[:, 0]))
    proba = SWSGPClassifier(random_state=0).fit(X[:200], y[:200]).predict_proba(X[200:])
    loss = -np.log(proba[np.arange(700), y[200:].astype(int)]).mean()
    share = y[:200].mean()
    shares = -np.log(np.where(y[200:], share, 1.0 - share)).mean()
    assert loss < shares - 0.05


@pytest.mark.parametrize("when", [1, "free"])
def test_a_search_that_fails_keeps_what_it_has(when, wave, monkeypatch):
    calls, solved = [], BoundSearch.solved

    def fails(self, *arguments):
        calls.append(arguments)
        if len(calls) == when or (freed and when == "free"):
            raise FloatingPointError
        return solved(self, *arguments)

    freed, enrich = [], BoundSearch.enrich

    def noted(self, *which, **more):
        freed.append(True)
        enrich(self, *which, **more)

    monkeypatch.setattr(BoundSearch, "solved", fails)
    monkeypatch.setattr(BoundSearch, "enrich", noted)
    X, y = wave
    data, rng = TrainingRows(X, y[:, None], np.ones(120)), np.random.RandomState(0)
    start = KernelFit(KERNEL, np.zeros(1))
    starts = [start, KernelFit(3.0 * RBF([0.5, 2.0]), np.zeros(1))]
    fit = maximize_bound(starts, 0, 1000, data, BINARY, LearningOptions(), rng)
    assert (fit is start) == (when == 1)
    assert (fit.posterior is None) == (when == 1)
    if when == "free":
        scales = fit.kernel.k2.length_scale
        ratio = scales[1] / scales[0]
        assert any(np.isclose(ratio, one, rtol=1e-6) for one in (1.0, 4.0))
        solver = fit.posterior.__self__
        assert_allclose(
            sorted(solver.engine.model.params), sorted(np.exp(fit.kernel.theta))
        )


KERNELS = [
    1.0 * RBF(1.0),
    RBF(1.0) * ConstantKernel(1.0),
    1.0 * DotProduct(1.0),
    1.0 * RBF([1.0, 1.0]) + 1.0 * DotProduct(1.0),
]


@pytest.mark.parametrize(  # 400 rows: the bound of a part, then held-out rows
    ("n_rows", "kernel"),
    [(200, kernel) for kernel in KERNELS]
    + [(400, KERNELS[0])]
    + [pytest.param(400, kernel, marks=pytest.mark.full) for kernel in KERNELS[1:]],
)
def test_kernels_of_the_user(n_rows, kernel, rng, tune):
    work = evaluation_work(250, 2, BOUND_WORK)
    tune(learning_steps=10, evidence_work=0, part_work=work, holdout_rows=400)
    X = rng.normal(size=(n_rows, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=n_rows) > 0
    assert SWSGPClassifier(kernel, random_state=0).fit(X, y).score(X, y) > 0.75


def test_a_failed_solve_leaves_the_shape(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    y = np.column_stack([rng.poisson(3.0, 20), np.zeros(20)]).astype(float)
    settings = natural_settings("negative_binomial")
    settings = settings._replace(averages=np.ones(1))
    data = TrainingRows(X, y, np.ones(20))
    found = BoundSearch(20, data, settings, LearningOptions(), np.random.RandomState(0))
    found.Z, shape = X, found.shape.copy()

    def fails(*arguments):
        raise FloatingPointError

    monkeypatch.setattr(BoundSearch, "solved", fails)
    with pytest.raises(FloatingPointError):
        found.choose_shape(Found(RBF(), None))
    assert found.shape == shape
