"""Kernels that the evidence of a part of the rows decides on."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from skswsgp import SWSGPRegressor
from skswsgp._initialization.kernel_choice import learn_kernel
from skswsgp._initialization.kernel_learning import (
    KernelFit,
    KernelLearner,
    LearningOptions,
)
from skswsgp._initialization.part_evidence import Judges, learn_from_part
from skswsgp._solvers.data import TrainingRows
from skswsgp._solvers.tuning import Tuning

NOISE = 0.5


def make_rows(n=1500, seed=2):
    """Return a sine in much noise, which near rows show nothing of."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    f = np.sin(3.0 * X[:, 0])
    return X, f, f + NOISE * rng.standard_normal(n)


def evidence(kernel, noise, X, y):
    K = kernel(X) + noise * np.eye(len(X))
    L = np.linalg.cholesky(K)
    z = np.linalg.solve(L, y)
    return -0.5 * z @ z - np.log(np.diag(L)).sum() - 0.5 * len(y) * np.log(2 * np.pi)


def learn(X, y, **arguments):
    y = (y - y.mean()) / y.std()
    data = TrainingRows(X, y[:, None], np.ones(len(y)))
    given = {"kernel": None, "noise_variance": 0.1, "n_neighbors": 192, "exact": True}
    given |= {"rng": np.random.RandomState(0), "options": LearningOptions()}
    fit, *_ = learn_kernel(data, **given | arguments)
    return fit, evidence(fit.kernel, fit.noise, X, y), y


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("given", [None, Matern(nu=2.5)], ids=["default", "given"])
def test_rows_in_noise_have_nearly_the_largest_evidence(given, seed):
    X, _, y = make_rows(seed=seed)
    start = None if given is None else ConstantKernel() * given
    fit, found, y = learn(X, y, kernel=start)
    best = GaussianProcessRegressor(
        ConstantKernel() * Matern(nu=fit.kernel.k2.nu) + WhiteKernel(0.3)
    ).fit(X, y)
    best = best.log_marginal_likelihood_value_
    assert best - 5.0 < found < best + 0.1


def test_means_are_near_those_of_the_exact_process():
    X, f, y = make_rows()
    model = SWSGPRegressor(random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(
        ConstantKernel() * Matern(nu=2.5) + WhiteKernel(0.3), normalize_y=True
    ).fit(X, y)
    errors = [np.sqrt(np.mean((each.predict(X) - f) ** 2)) for each in (model, exact)]
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.parametrize("rough", [False, True])
def test_near_rows_refuse_a_kernel_that_misses_what_they_show(rough):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 40.0, size=(4000, 1))
    y = np.sin(X[:, 0] / 3.0) + 0.1 * rng.standard_normal(4000)
    if rough:  # on a scale that a part of the rows cannot resolve
        y += 0.7 * np.sin(60.0 * X[:, 0])
    weight = np.ones(4000)
    options = LearningOptions()
    learner = KernelLearner(X, y[:, None], weight[:, None], weight, options)
    kernel = Matern(0.05, nu=2.5) if rough else ConstantKernel() * Matern(1.0, nu=2.5)
    fit = learner.fit_noise(KernelFit(kernel, np.array([0.01])), rng=np.random)
    found = learn_from_part(learner, fit, [fit], 0, 64, np.random.RandomState(0))
    assert (found is fit) == rough


@pytest.mark.parametrize("n", [1003, 1500])
def test_rows_outside_the_part_judge(n, monkeypatch):
    X, _, y = make_rows(n)
    weight, taken, judges = np.ones(n), [], []
    learner = KernelLearner(X, y[:, None], weight[:, None], weight, LearningOptions())
    fit = learner.fit_noise(KernelFit(Matern(1.0), np.array([0.3])), np.random)
    take, density = KernelLearner.take, KernelLearner.log_density

    def spy_on_take(learner, rows):
        taken.append(rows)
        return take(learner, rows)

    def spy_on_density(learner, fit, rows, *how):
        judges.append(rows)
        return density(learner, fit, rows, *how)

    monkeypatch.setattr(KernelLearner, "take", spy_on_take)
    monkeypatch.setattr(KernelLearner, "log_density", spy_on_density)
    found = learn_from_part(learner, fit, [fit], 0, 64, np.random.RandomState(0))
    assert found is not fit
    part = taken[-1]
    assert len(part) == len(np.unique(part)) < n
    assert bool(judges) == (n == 1500)  # a few rows more than the part say nothing
    for rows in judges:
        assert len(np.intersect1d(rows, part)) == 0 and len(rows) == n - len(part)


@pytest.mark.parametrize("fails", ["noise", "density"])
def test_a_kernel_that_cannot_be_judged_is_refused(fails, monkeypatch):
    X, _, y = make_rows()
    weight = np.ones(len(y))
    learner = KernelLearner(X, y[:, None], weight[:, None], weight, LearningOptions())
    fit = KernelFit(ConstantKernel() * Matern(1.0), np.array([0.3]))
    density = KernelLearner.log_density

    def no_noise(learner, fit, rng):
        raise FloatingPointError

    def no_density(learner, found, *how):
        return (1.0 if found is fit else np.nan) * density(learner, found, *how)

    name, value = {
        "noise": ("fit_noise", no_noise),
        "density": ("log_density", no_density),
    }[fails]
    monkeypatch.setattr(KernelLearner, name, value)
    assert learn_from_part(learner, fit, [fit], 0, 64, np.random.RandomState(0)) is fit


# --- infinitely smooth kernels --------------------------------------------------------


@pytest.mark.parametrize("n", [200, 1500], ids=["all rows", "a part"])
@pytest.mark.parametrize("rough", [False, True])
def test_evidence_finds_an_infinitely_smooth_function(n, rough):
    X, f, y = make_rows(n)
    if rough:
        f = np.abs(f) - np.abs(f).mean()
        y = f + 0.02 * np.random.default_rng(0).standard_normal(n)
    fit, *_ = learn(X, y)
    assert np.isinf(fit.kernel.k2.nu) == (not rough)


def test_the_kernel_of_a_part_is_not_learned_from_nearest_rows(monkeypatch):
    def relearn(*_):
        raise AssertionError("nearest rows moved an infinitely smooth kernel")

    monkeypatch.setattr(KernelLearner, "relearn_with_more_neighbors", relearn)
    X, _, y = make_rows()
    fit, *_ = learn(X, y)
    assert np.isinf(fit.kernel.k2.nu)


class Verdict:
    """A learner for whom noise has a share, and the smooth kernel a gain."""

    def __init__(self, share, gain):
        self.weight, self.share, self.gain = np.ones(100), share, gain

    def fit_noise(self, fit, rng):
        return fit

    def rescale_variance(self, fit, H, rng):
        return fit

    def noise_share(self, fit, rows, H):
        return np.full(len(rows), self.share)

    def log_density(self, fit, rows, H):
        scatter = np.random.default_rng(0).normal(size=len(rows))
        return self.gain + scatter if fit == "smooth" else np.zeros(len(rows))


@pytest.mark.parametrize(
    ("share", "gain", "choice"),
    [
        (0.9, -0.1, "smooth"),  # neighbours know all but the noise
        (0.1, 1.0, "smooth"),
        (0.1, 0.1, "rough"),  # within the standard error
    ],
)
def test_a_smooth_kernel_gains_or_noise_dominates(share, gain, choice):
    judges = Judges(Verdict(share, gain), np.arange(100), 64, None)
    assert judges.smoother_or("smooth", "rough") == choice


@pytest.mark.parametrize(
    ("loss", "refuses"),
    [
        (0.0, False),
        (20.0, False),  # 0.2 nats a row, of one row
        (1e4, True),
        (np.nan, True),
    ],
)
def test_a_kernel_under_which_a_few_rows_are_impossible_is_refused(loss, refuses):
    judges, after = Judges(Verdict(0.1, 0.0), np.arange(100), 64, None), np.zeros(100)
    after[7] -= loss
    judges.log_density = {"found": after, "before": np.zeros(100)}.get
    assert judges.refuse("found", "before") == refuses


def test_a_smooth_kernel_is_found_where_hardly_a_row_is_left():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (385, 4))
    y = np.sin(1.5 * X[:, 0]) * np.cos(1.5 * X[:, 1]) + np.sin(X[:, 2] * X[:, 3])
    y += 0.5 * X[:, 2] + 0.003 * rng.normal(size=385)
    # the part has 363 rows, so that 22 rows would decide
    options = LearningOptions(tuning=Tuning(exact_work=5e7))
    fit, *_ = learn(X, y, n_neighbors=64, options=options)
    assert np.isinf(fit.kernel.k2.nu)


def test_share_of_noise_is_that_of_the_predictive_variance():
    X, _, y = make_rows(40)
    weight = np.linspace(0.5, 2.0, 40)
    learner = KernelLearner(
        X, y[:, None] * [1, 1], 1.0 / weight[:, None], np.ones(40), LearningOptions()
    )
    kernel, noise, rows = Matern(1.0), 0.3, np.array([3, 20])
    # the least share is that of the first output
    share = learner.noise_share(KernelFit(kernel, np.array([noise, 0.5])), rows, 39)
    for row, found in zip(rows, share, strict=True):
        others = np.arange(40) != row
        C = kernel(X[others]) + np.diag(noise / weight[others])
        k = kernel(X[[row]], X[others])[0]
        own = noise / weight[row]
        variance = 1.0 - k @ np.linalg.solve(C, k) + own
        np.testing.assert_allclose(found, own / variance, rtol=1e-5)
