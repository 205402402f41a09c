"""The posterior of a sparse process: its density, its gradient, its mode."""

import numpy as np
import pytest
from helpers import KERNELS, assert_derivatives
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import log_expit, log_ndtr
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from skswsgp._covariance.compile import compile_kernel, updated_kernel
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._solvers.model import JITTER
from skswsgp.baselines.inducing_posterior import BLOCKS, InducingPosterior
from skswsgp.baselines.predictive_density import RowDensity
from skswsgp.baselines.sampler import climb

FIXED = ConstantKernel(1.3) * RBF(1.5, "fixed") + DotProduct(0.7)
LATENT = {"gaussian": 2, "bernoulli": 1, "softmax": 3}


def posterior_of(
    rng, kernel=KERNELS["matern"], likelihood="gaussian", n=12, M=4, *, exact=True,
    prior="normal", size=100, even=False,
):  # fmt: skip
    """Return an `InducingPosterior` of random rows, and a random x."""
    X, Q, record = rng.normal(size=(n, 2)), LATENT[likelihood], LIKELIHOODS[likelihood]
    if likelihood == "gaussian":
        y, noise = rng.normal(size=(n, Q)), np.array([0.3, 0.2])
    else:
        y, noise = record.encode(np.arange(n) % max(Q, 2), Q), np.zeros(0)
    rows = X, y, rng.uniform(1.0 if even else 0.5, 1.0 if even else 2.0, size=n)
    units, compiled = (
        np.array([[0.3, -0.2], [2.0, 0.5]]),
        compile_kernel(kernel, 2, float),
    )
    density = RowDensity(likelihood, Q, exact)
    Z = rng.normal(size=(M, 2))
    posterior = InducingPosterior(compiled, rows, units, Z, noise, density, prior, size)
    return posterior, posterior.start + 0.5 * rng.normal(size=len(posterior.start))


CASES = [({"kernel": kernel}, BLOCKS) for kernel in [*KERNELS.values(), FIXED]]
CASES += [
    (
        {"likelihood": likelihood, "exact": exact},
        BLOCKS[: 3 + (likelihood == "gaussian")],
    )
    for likelihood in LATENT
    for exact in (True, False)
]
CASES += [({"prior": prior}, BLOCKS) for prior in ("dpp", "uniform")]


@pytest.mark.parametrize(("how", "blocks"), CASES)
def test_the_gradient_is_that_of_the_density(how, blocks, rng):
    posterior, x = posterior_of(rng, **how)
    batch = posterior.minibatch(rng)
    slope = posterior.gradient(x, batch)[1]
    assert [BLOCKS[k] for k in np.unique(posterior.block)] == list(blocks)
    for k in np.unique(posterior.block):
        own = posterior.block == k
        assert np.abs(slope[own]).max() > 1e-4

        def value(entries, own=own):
            moved = x.copy()
            moved[own] = entries
            return posterior.gradient(moved, batch)[0]

        assert_derivatives(slope[own], value, x[own])


def test_the_density_is_that_of_fitc_and_of_the_priors(rng):
    posterior, x = posterior_of(rng)
    v, Z, params, noise = posterior.unpack(x)
    kernel = updated_kernel(KERNELS["matern"], params)
    X, y, weight = posterior.rows
    L = np.linalg.cholesky(kernel(Z) + JITTER * kernel.diag(Z).mean() * np.eye(4))
    P = np.linalg.solve(L, kernel(Z, X))
    F = kernel.diag(X) - np.sum(P**2, axis=0)
    total = F[:, None] + noise
    rows = norm.logpdf(y, P.T @ v, np.sqrt(total)).sum(axis=1)
    logs = np.log(np.r_[params, noise]) - np.log([*posterior.params, 0.3, 0.2])
    Z = (Z - posterior.units[0]) / posterior.units[1]
    prior = -0.5 * (np.sum(v**2) + np.sum(Z**2) + np.sum(logs**2))
    expected = (weight @ rows + prior) / weight.sum()
    found = posterior.gradient(x, posterior.minibatch(rng))[0]
    assert found == pytest.approx(expected, rel=1e-10)


def test_the_gradient_by_values_is_that_of_their_normal_posterior(rng):
    posterior, x = posterior_of(rng)
    batch = posterior.minibatch(rng)
    own, total = posterior.block == 0, posterior.total
    x[own] = 0.0
    at_zero = posterior.gradient(x, batch)[1][own]
    minus_B = np.empty((own.sum(), own.sum()))  # the Hessian: the log density is square
    for k in range(own.sum()):
        moved = x.copy()
        moved[k] = 1.0
        minus_B[k] = posterior.gradient(moved, batch)[1][own] - at_zero
    np.testing.assert_allclose(minus_B, minus_B.T, atol=1e-10)
    mean = np.linalg.solve(-minus_B, at_zero).reshape(-1, 2)
    # of the function that FITC has: covariance Q + diag(K - Q), noise over weights
    _, Z, params, noise = posterior.unpack(x)
    X, y, weight = posterior.rows
    kernel = updated_kernel(KERNELS["matern"], params)
    L = np.linalg.cholesky(kernel(Z) + JITTER * kernel.diag(Z).mean() * np.eye(4))
    P = np.linalg.solve(L, kernel(Z, X))
    F = kernel.diag(X) - np.sum(P**2, axis=0)
    for q in range(2):
        C = P.T @ P + np.diag((F + noise[q]) / weight)
        expected = P @ np.linalg.solve(C, y[:, q])
        np.testing.assert_allclose(mean[:, q], expected, rtol=1e-8)
    assert np.linalg.eigvalsh(-minus_B).min() > 0.99 / total


@pytest.mark.parametrize("likelihood", LATENT)
def test_weights_count_rows(likelihood, rng):
    posterior, x = posterior_of(rng, likelihood=likelihood)
    X, y, _ = posterior.rows
    counts = np.arange(12) % 3
    rows = np.repeat(np.arange(12), counts)
    found = []
    for data in ((X, y, counts.astype(float)), (X[rows], y[rows], np.ones(len(rows)))):
        compiled = compile_kernel(KERNELS["matern"], 2, float)
        other = InducingPosterior(
            compiled, data, posterior.units, np.zeros((4, 2)),
            np.exp(x[posterior.block == 3]), posterior.density, "normal", 100,
        )  # fmt: skip
        found.append(other.gradient(x, other.minibatch(rng)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-12)


def test_minibatches_estimate_the_gradient_of_all_rows(rng):
    # with weights that differ, the estimate is a ratio of sums
    few, all_rows = (
        posterior_of(np.random.default_rng(0), n=40, size=size, even=True)
        for size in (10, 100)
    )
    x = all_rows[1]
    exact = all_rows[0].gradient(x, all_rows[0].minibatch(rng))[1]
    slopes = np.array([few[0].slope(x, rng) for _ in range(1000)])
    error = slopes.std(axis=0) / np.sqrt(len(slopes))
    assert (np.abs(slopes.mean(axis=0) - exact) < 4.5 * error + 1e-12).all()


def test_steps_of_adam_end_at_the_mode(rng):
    posterior, x = posterior_of(rng)
    first, batch = x.copy(), posterior.minibatch(rng)

    def energy(x):
        value, slope = posterior.gradient(x, batch)
        return -value, -slope

    climb(posterior.slope, x, 1500, 0.02, rng)
    climb(posterior.slope, x, 500, 0.002, rng)
    mode = minimize(energy, x, jac=True)
    assert energy(first)[0] > mode.fun + 0.1
    assert energy(x)[0] == pytest.approx(mode.fun, abs=1e-3)
    assert posterior.energies[0] == energy(first)[0]


def expectation(function, mu, F):
    """Return E function(f) for f ~ N(mu, F)."""
    std = np.sqrt(F)
    low, high = mu - 12.0 * std, mu + 12.0 * std
    return quad(lambda f: function(f) * norm.pdf(f, mu, std), low, high, limit=200)[0]


LOG_P = {
    "gaussian": lambda y, f: norm.logpdf(y, f, np.sqrt(0.4)),
    "bernoulli": lambda y, f: log_ndtr(y * f),
}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", LOG_P)
def test_densities_of_rows_are_those_of_quadrature(name, exact):
    y = np.array([[1.0], [-1.0], [1.0]])
    mu, F = np.array([[0.3], [1.2], [-2.0]]), np.array([0.5, 1e-3, 2.0])
    noise = np.full(int(name == "gaussian"), 0.4)
    found = RowDensity(name, 1, exact)(y, mu, F, noise)[0]
    for value, (one,), (mean,), variance in zip(found, y, mu, F, strict=True):

        def log_p(f, one=one):
            return LOG_P[name](one, f)

        if exact:
            expected = np.log(expectation(lambda f: np.exp(log_p(f)), mean, variance))
        else:
            expected = expectation(log_p, mean, variance)
        assert value == pytest.approx(expected, rel=1e-6)


def test_the_density_of_two_softmax_classes_is_that_of_their_difference():
    y, mu, F = np.array([[0.0], [1.0]]), np.array([[0.4, -0.3], [1.0, 0.2]]), [0.5, 2.0]
    found = RowDensity("softmax", 2, True)(y, mu, np.array(F), np.zeros(0))[0]
    for k, ahead in enumerate((0.7, -0.8)):  # of the label's function
        expected = expectation(lambda f: np.exp(log_expit(f)), ahead, 2.0 * F[k])
        assert found[k] == pytest.approx(np.log(expected), abs=0.01)


def test_exact_densities_are_above_their_bounds():
    """Jensen's inequality, with equality where F vanishes."""
    y, mu = np.array([[0.0], [2.0]]), np.array([[0.4, -0.3, 1.0], [1.0, 0.2, 0.1]])
    for name, targets, means in [
        ("softmax", y, mu),
        ("bernoulli", y - 1.0, mu[:, :1]),
        ("gaussian", mu[:, :2], mu[:, 1:]),
    ]:
        noise = np.full(2 if name == "gaussian" else 0, 0.1)
        for F, gap in ((1.0, 0.01), (1e-12, 0.0)):
            above, below = (
                RowDensity(name, means.shape[1], exact)(
                    targets, means, np.full(2, F), noise
                )[0]
                for exact in (True, False)
            )
            assert (above - below >= gap - 1e-9).all()
            assert gap or np.allclose(above, below, atol=1e-6)
