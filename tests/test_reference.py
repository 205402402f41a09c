"""Checks of `reference.py` by scikit-learn, closed forms and identities."""

import math

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import log_expit, log_softmax, ndtr
from scipy.stats import norm, qmc
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

pytestmark = pytest.mark.matrix
SCALES = [0.7, 1.3, 2.1]
SKLEARN_KERNELS = [
    ConstantKernel(1.7),
    WhiteKernel(0.3),
    RBF(0.8),
    RBF(SCALES),
    *[Matern(SCALES, nu=nu) for nu in (0.5, 1.5, 2.5, math.inf)],
    Matern(1.4, nu=2.5),
    RationalQuadratic(length_scale=1.2, alpha=0.6),
    ExpSineSquared(1.1, periodicity=0.7),
    DotProduct(0.9),
    DotProduct(0.9) ** 2,
    2.0 * RBF(SCALES) + WhiteKernel(0.3),
    WhiteKernel(0.3) + RBF(0.8) * DotProduct(0.4) + 0.5 * Matern(nu=1.5),
    (1.5 * RBF() + WhiteKernel(0.2)) ** 3 * (RationalQuadratic() + WhiteKernel(0.1)),
]
KERNEL = WhiteKernel(0.1) + 1.3 * Matern([0.8, 1.2], nu=2.5) + 0.2 * DotProduct(0.5)


class Polynomial:
    """Stand-in with the attributes of `skswsgp.kernels.Polynomial`."""

    def __init__(self, degree, length_scale, sigma_0):
        self.degree, self.length_scale, self.sigma_0 = degree, length_scale, sigma_0


class ArcCosine:
    """Stand-in with the attributes of `skswsgp.kernels.ArcCosine`."""

    def __init__(self, order, length_scale, sigma_0):
        self.order, self.length_scale, self.sigma_0 = order, length_scale, sigma_0


@pytest.fixture
def rng():
    """Return a generator with a fixed seed."""
    return np.random.default_rng(0)


def make_state(rng, likelihood, full, n=9, M=6, Q=2):
    """Return data and a random state of Q latent functions, as keyword arguments."""
    factor = 0.2 * np.tril(rng.normal(size=(Q, M, M)), -1) + 0.6 * np.eye(M)
    y = {
        "gaussian": rng.normal(size=(n, Q)),
        "bernoulli": rng.choice([-1, 1], size=(n, Q)),
        "softmax": rng.integers(Q, size=n),
    }
    return {
        "kernel": KERNEL,
        "X": rng.normal(size=(n, 2)),
        "y": y[likelihood],
        "Z": rng.normal(size=(M, 2)),
        "mean": rng.normal(size=(M, Q)),
        "covariance": np.moveaxis(factor, 0, -1) if full else rng.random((M, Q)) + 0.1,
        "likelihood": likelihood,
        "noise_variance": rng.random(Q) + 0.2,
        "jitter": 1e-6,
        "nodes": rng.normal(size=(7, Q)),
    }


@pytest.mark.parametrize("kernel", SKLEARN_KERNELS, ids=str)
def test_kernel_matrix_equals_scikit_learn(kernel, rng):
    """Square and rectangular kernel matrices equal those of scikit-learn."""
    A, B = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    assert_allclose(reference.kernel_matrix(kernel, A), kernel(A), rtol=1e-12)
    assert_allclose(reference.kernel_matrix(kernel, A, B), kernel(A, B), rtol=1e-12)
    assert_allclose(reference.kernel_matrix(kernel, A, A), kernel(A, A), rtol=1e-12)


def test_polynomial_is_power_of_dot_product(rng):
    """With scaled inputs the polynomial kernel is a power of DotProduct."""
    A, B = rng.normal(size=(2, 5, 3))
    value = reference.kernel_matrix(Polynomial(3, SCALES, 0.6), A, B)
    expected = (DotProduct(0.6) ** 3)(A / SCALES, B / SCALES)
    assert_allclose(value, expected, rtol=1e-11)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("x", "z"), [(0.3, -1.1), (2.0, 1.9), (-3.0, 2.5), (1.0, 1.0)])
def test_arc_cosine_is_integral_over_neurons(order, x, z):
    """2 E[h(w.x) h(w.z)], w ~ N(0, I), h(t) = [t > 0] t^order (Cho and Saul, 2009)."""
    kernel = ArcCosine(order, 0.8, 0.7)
    phi = (np.arange(200_000) + 0.5) / 200_000 * 2 * math.pi
    tx = 0.7 * np.cos(phi) + x / 0.8 * np.sin(phi)  # w = r (cos phi, sin phi)
    tz = 0.7 * np.cos(phi) + z / 0.8 * np.sin(phi)
    radial = 2.0**order  # integral of r^(2 order + 1) exp(-r^2 / 2) over r > 0
    expected = 2 * radial * np.mean((tx > 0) * (tz > 0) * (tx * tz) ** order)
    value = reference.kernel_value(kernel, np.array([x]), np.array([z]))
    assert value == pytest.approx(expected, abs=3e-5)


def test_unknown_names_are_refused():
    """A kernel or likelihood without a reference raises an error."""
    x = np.zeros(2)
    for kernel in (PairwiseKernel(), Matern(nu=3.5), ArcCosine(2, 1.0, 1.0)):
        with pytest.raises(ValueError, match="no reference"):
            reference.kernel_value(kernel, x, x)
    with pytest.raises(ValueError, match="no reference"):
        reference.expected_log_prob("cauchit", 1.0, x, x)


def test_neighbors_are_sorted_and_ties_go_to_lower_index():
    """Largest kernel value first; for DotProduct that is not the smallest distance."""
    Z = np.array([[2.0], [-1.0], [0.5], [1.0], [-1.0]])
    x = np.array([0.2])
    assert reference.neighbors(RBF(), x, Z, 4).tolist() == [2, 3, 1, 4]
    assert reference.neighbors(DotProduct(), x, Z, 4).tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "softmax"])
def test_all_neighbors_give_the_ordinary_bound(likelihood, full, rng):
    """For H = M eq. 11 is eq. 4, also with weights on the KL and on the rows."""
    state = make_state(rng, likelihood, full)
    weights = rng.random(9)
    for extra in ({}, {"kl_weight": 2.5, "sample_weight": weights, "n_nodes": 9}):
        value = reference.lower_bound(**state, n_neighbors=6, **extra)
        expected = reference.svgp_lower_bound(**state, **extra)
        assert value == pytest.approx(expected, rel=1e-9)


def test_separate_clusters_are_separate_models(rng):
    """With clusters far apart H = 3 equals H = M, but for the weight of the KL.

    Each row uses one of two clusters, whose KL is half of the whole.
    """
    state = make_state(rng, "gaussian", full=False)
    clusters = np.array([[0.0, 0.0], [100.0, 0.0]])
    state["kernel"] = 1.3 * RBF(0.8)
    state["Z"] = state["Z"] + np.repeat(clusters, 3, axis=0)
    state["X"] = rng.normal(size=(9, 2))[[0, 1, 2, 3] * 2] + np.tile(clusters, (4, 1))
    state["y"] = rng.normal(size=(8, 2))
    value = reference.lower_bound(**state, n_neighbors=3, kl_weight=2.0)
    assert value == pytest.approx(reference.svgp_lower_bound(**state), rel=1e-9)
    model = [state[name] for name in ("kernel", "X", "Z", "mean", "covariance")]
    few = reference.predict(*model, n_neighbors=3, jitter=1e-6)
    every = reference.predict(*model, n_neighbors=6, jitter=1e-6)
    assert_allclose(few, every, rtol=1e-9)


@pytest.mark.parametrize("full", [False, True])
def test_given_neighbors_replace_the_search(full, rng):
    """A bound with given neighbours is that of the SVGP on these inducing points."""
    state = make_state(rng, "gaussian", full)
    w = np.array([4, 0, 3])
    value = reference.lower_bound(**state, n_neighbors=3, neighbors=np.tile(w, (9, 1)))
    state["Z"], state["mean"] = state["Z"][w], state["mean"][w]
    if full:  # a square factor of L_w L_w'
        L_w = np.moveaxis(state["covariance"][w], -1, 0)  # (Q, H, M)
        S_w = np.linalg.cholesky(L_w @ np.swapaxes(L_w, 1, 2))
        state["covariance"] = np.moveaxis(S_w, 0, -1)
    else:
        state["covariance"] = state["covariance"][w]
    assert value == pytest.approx(reference.svgp_lower_bound(**state), rel=1e-9)


def test_sample_weight_is_repetition(rng):
    """An integer weight equals as many copies of the row, for H < M."""
    state = make_state(rng, "bernoulli", full=True)
    weights = np.array([1, 2, 0, 1, 3, 1, 1, 0, 2])
    value = reference.lower_bound(**state, n_neighbors=3, sample_weight=weights)
    state["X"], state["y"] = (np.repeat(state[name], weights, axis=0) for name in "Xy")
    assert value == pytest.approx(reference.lower_bound(**state, n_neighbors=3))


def test_kl_of_prior_is_zero(rng):
    """KL = 0 for q = p, where the prediction is the prior; elsewhere KL > 0."""
    Z, x = rng.normal(size=(5, 2)), rng.normal(size=2)
    K = KERNEL(Z)
    K += 1e-6 * np.mean(np.diag(K)) * np.eye(5)
    zero = np.zeros(5)
    assert reference.point_kl(KERNEL, Z, zero, K, 1e-6) == pytest.approx(0, abs=1e-9)
    mu, F, V = reference.point_posterior(KERNEL, x, Z, zero, K, 1e-6)
    assert mu == 0
    assert F + V == pytest.approx(KERNEL.diag(x[np.newaxis])[0])
    assert reference.point_kl(KERNEL, Z, zero + 0.1, K, 1e-6) > 0
    assert reference.point_kl(KERNEL, Z, zero, 0.9 * K, 1e-6) > 0


def test_variance_is_never_negative(rng):
    """Rounding never makes F negative at an inducing point, where it is zero."""
    Z, zero = rng.normal(size=(8, 2)), np.zeros(8)
    for z in Z:
        _, F, V = reference.point_posterior(RBF(3), z, Z, zero, np.diag(zero), 0)
        assert 0 <= F < 1e-9
        assert V == 0


def test_zero_variance_expectation_is_log_prob(rng):
    """E log p(y | f) is log p(y | mu) when f has no variance."""
    mu, v, noise = rng.normal(size=3), np.zeros(3), np.array([0.1, 0.5, 2.0])
    y = rng.normal(size=3)
    expectation = reference.expected_log_prob
    value = expectation("gaussian", y, mu, v, noise_variance=noise)
    assert value == pytest.approx(np.sum(norm.logpdf(y, mu, np.sqrt(noise))))
    value = expectation("bernoulli", np.sign(y), mu, v)
    assert value == pytest.approx(np.sum(norm.logcdf(np.sign(y) * mu)))
    value = expectation("bernoulli", 1, mu, v + 9, n_nodes=1)  # the node at zero
    assert value == pytest.approx(np.sum(norm.logcdf(mu)))
    value = expectation("softmax", 2, mu, v, nodes=rng.normal(size=(4, 3)))
    assert value == pytest.approx(log_softmax(mu)[2])


@pytest.mark.parametrize(("mu", "v"), [(0.4, 0.7), (-1.5, 2.0)])
def test_expectations_equal_integrals(mu, v):
    """Closed forms, Gauss-Hermite and nodes agree with adaptive quadrature."""

    def integral(function, v=v):
        scale = math.sqrt(v)
        return quad(lambda t: function(mu + scale * t) * norm.pdf(t), -9, 9)[0]

    value = reference.gaussian_expectation(1.2, mu, v, 0.3)
    expected = integral(lambda f: norm.logpdf(1.2, f, math.sqrt(0.3)))
    assert value == pytest.approx(expected, rel=1e-8)
    for y_sign in (-1, 1):
        log_prob = reference.LOG_PROB["bernoulli"]
        value = reference.hermite_expectation(log_prob, y_sign, mu, v)
        expected = integral(lambda f, y_sign=y_sign: norm.logcdf(y_sign * f))
        assert value == pytest.approx(expected, rel=1e-6)
    probability = reference.bernoulli_probability(mu, v)
    assert probability == pytest.approx(integral(ndtr), rel=1e-8)
    # Two classes: f_0 - f_1 ~ N(mu, v + 1) when f_1 ~ N(0, 1).
    nodes = norm.ppf(qmc.Sobol(2, seed=0).random(2**12))
    latent, variance = np.array([mu, 0.0]), np.array([v, 1.0])
    value = reference.softmax_expectation(0, latent, variance, nodes)
    assert value == pytest.approx(integral(log_expit, v=v + 1), rel=2e-3)


def test_softmax_probabilities_sum_to_one(rng):
    """Probabilities are positive, sum to one and follow the largest mean."""
    mu, v = np.array([0.2, 3.0, -1.0]), np.array([0.5, 0.1, 1.0])
    probability = reference.softmax_probability(mu, v, rng.normal(size=(50, 3)))
    assert probability.shape == (3,)
    assert np.all(probability > 0)
    assert np.sum(probability) == pytest.approx(1)
    assert np.argmax(probability) == 1


def test_exact_gaussian_posterior(rng):
    """With Z = X, H = M = N and the exact posterior q, all equals scikit-learn's GP."""
    X, X_new = rng.uniform(-3, 3, size=(12, 2)), rng.uniform(-3, 3, size=(5, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=12)
    kernel, r2 = 1.5 * Matern([0.6, 0.9], nu=1.5), 0.09
    gp = GaussianProcessRegressor(kernel, alpha=r2, optimizer=None).fit(X, y)
    evidence = gp.log_marginal_likelihood_value_

    posterior_mean, posterior_covariance = reference.gp_posterior(kernel, X, y, r2)
    gp_mean, gp_covariance = gp.predict(X, return_cov=True)
    assert_allclose(posterior_mean, gp_mean, rtol=1e-8)
    assert_allclose(posterior_covariance, gp_covariance, atol=1e-9)
    gp_mean, gp_covariance = gp.predict(X_new, return_cov=True)
    new_mean, new_covariance = reference.gp_predict(kernel, X, y, r2, X_new)
    assert_allclose(new_mean, gp_mean, rtol=1e-8)
    assert_allclose(new_covariance, gp_covariance, atol=1e-9)

    mean = posterior_mean[:, np.newaxis]
    factor = np.linalg.cholesky(posterior_covariance)[..., np.newaxis]
    likelihood = {"likelihood": "gaussian", "noise_variance": r2, "jitter": 1e-12}
    bound = reference.svgp_lower_bound(kernel, X, y, X, mean, factor, **likelihood)
    assert bound == pytest.approx(evidence, rel=1e-8)
    bound = reference.lower_bound(
        kernel, X, y, X, mean, factor, n_neighbors=12, **likelihood
    )
    assert bound == pytest.approx(evidence, rel=1e-8)
    mu, v = reference.predict(kernel, X_new, X, mean, factor, 12, jitter=1e-12)
    assert_allclose(mu[:, 0], gp_mean, rtol=1e-7)
    assert_allclose(v[:, 0], np.diag(gp_covariance), rtol=1e-7)

    def bound_of_mean(m):
        state = (kernel, X, y, X, m[:, np.newaxis], factor)
        return reference.svgp_lower_bound(*state, **likelihood)

    slope = reference.finite_difference(bound_of_mean, posterior_mean, step=1e-4)
    assert_allclose(slope, 0, atol=1e-7)  # rounding: 1e-14 * bound / step


def test_white_kernel_is_noise_of_the_exact_gp(rng):
    """A WhiteKernel gives the same mean as its noise_level given as noise."""
    X, X_new = rng.normal(size=(8, 2)), rng.normal(size=(3, 2))
    y = rng.normal(size=8)
    mean, covariance = reference.gp_predict(RBF(), X, y, 0.5, X_new)
    white = reference.gp_predict(RBF() + WhiteKernel(0.4), X, y, 0.1, X_new)
    assert_allclose(white[0], mean)
    assert_allclose(white[1], covariance + 0.4 * np.eye(3))


def test_adam_steps():
    """The first step is learning_rate long; two steps equal those found by hand."""
    theta, gradient = np.array([1.0, -2.0]), np.array([1e-3, -500.0])
    value = reference.adam(theta, [gradient], 0.01)
    assert_allclose(value, theta - 0.01 * np.sign(gradient))
    assert theta.tolist() == [1.0, -2.0]  # the argument is not modified
    # Gradients 1 and 3: m = 0.39 / 0.19, s = 0.009999 / 0.001999 at the second step.
    value = reference.adam([0.0], [[1.0], [3.0]], 0.01)
    second = 0.01 * (0.39 / 0.19) / math.sqrt(0.009999 / 0.001999)
    assert_allclose(value, [-0.01 - second], rtol=1e-9)


def test_finite_difference():
    """Central differences are exact for quadratics, up to rounding."""
    gradient = reference.finite_difference(lambda t: t[0] ** 2 * 3 + t[1], [2.0, 5.0])
    assert_allclose(gradient, [12, 1], rtol=1e-8)


@pytest.mark.parametrize("kernel", [KERNEL, 1.3 * RBF(0.8)])
def test_kriging_from_all_data_is_the_exact_gp(kernel, rng):
    X, X_new, m = rng.normal(size=(9, 2)), rng.normal(size=(3, 2)), rng.normal(size=9)
    weight = rng.uniform(0.5, 2.0, size=9)
    exact = GaussianProcessRegressor(kernel, alpha=0.2 / weight, optimizer=None)
    mean, std = exact.fit(X, m).predict(X_new, return_std=True)
    neighbors = np.tile(np.arange(9), (3, 1))
    mu, F = reference.krige_all(
        kernel, X_new, X, m[:, None], weight[:, None], [0.2], neighbors
    )
    assert_allclose(mu[:, 0], mean, atol=1e-9)
    assert_allclose(F[:, 0], std**2, atol=1e-9)
