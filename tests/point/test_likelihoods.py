"""Expectations of log-likelihoods and their derivatives."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import reference
from helpers import assert_close, assert_derivatives, caller
from numpy.testing import assert_allclose
from scipy import special, stats

from skswsgp._compiled.special import log_ndtr
from skswsgp._point.likelihoods import (
    CODES,
    expected_log_prob,
    log_prob_bernoulli,
    make_likelihood,
    normal_nodes,
)

NOISE = np.array([0.3, 0.7])


class Case(NamedTuple):
    """A likelihood with a datum and marginals N(mu, v)."""

    name: str
    y: list
    mu: list
    v: list
    log_prob: callable  # of f (Q,), by scipy

    @property
    def noise(self):
        return NOISE[: len(self.mu)] if self.name == "gaussian" else np.zeros(0)


def gaussian_log_prob(y):
    return lambda f: np.sum(stats.norm.logpdf(y, f, np.sqrt(NOISE[: len(y)])))


CASES = {
    "gaussian-1": Case("gaussian", [0.4], [-0.3], [0.8], gaussian_log_prob([0.4])),
    "gaussian-2": Case(
        "gaussian", [0.4, -1.0], [1.1, 0.2], [0.8, 0.1], gaussian_log_prob([0.4, -1.0])
    ),
    "bernoulli-plus": Case(
        "bernoulli", [1.0], [0.7], [0.9], lambda f: stats.norm.logcdf(f[0])
    ),
    "bernoulli-minus": Case(
        "bernoulli", [-1.0], [1.5], [0.3], lambda f: stats.norm.logcdf(-f[0])
    ),
    "softmax": Case(
        "softmax",
        [2.0],
        [0.5, -1.0, 0.3],
        [0.4, 1.2, 0.7],
        lambda f: special.log_softmax(f)[2],
    ),
    "softmax-2": Case(
        "softmax", [0.0], [-0.5, 1.0], [0.4, 0.2], lambda f: special.log_softmax(f)[0]
    ),
}


@pytest.fixture(scope="module")
def compiled():
    """Return `expected_log_prob`, which is part of its callers."""

    @caller
    def expect(likelihood, noise, y, row, latent, scratch, d_noise):
        return expected_log_prob(likelihood, noise, y, row, latent, scratch, d_noise)

    return expect


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def expect(compiled, case):
    """Return a function of (mu, v, noise): value, d_mu, d_v, d_log_noise."""

    def expect(mu, v, noise=case.noise, dtype="float64"):
        Q, dtype = len(mu), np.dtype(dtype)
        latent, d_noise = np.full((4, Q), np.nan, dtype), np.zeros(len(noise), dtype)
        latent[:2] = mu, v
        y = np.array([np.full(len(case.y), np.nan), case.y], dtype=dtype)
        likelihood = make_likelihood(case.name, Q, dtype)
        noise = np.asarray(noise).astype(dtype)
        scratch = np.full((Q + 2, likelihood.nodes.shape[1]), np.nan, dtype)
        value = compiled(likelihood, noise, y, 1, latent, scratch, d_noise)
        return value, latent[2], latent[3], d_noise

    return expect


def test_every_likelihood_is_covered():
    assert {case.name for case in CASES.values()} == set(CODES)
    assert len(set(CODES.values())) == len(CODES)


def test_value_equals_reference(case, expect, dtype):
    y = case.y[0] if case.name == "softmax" else case.y
    nodes = normal_nodes(128, len(case.mu))
    mu, v = np.array(case.mu), np.array(case.v)
    expected = reference.expected_log_prob(case.name, y, mu, v, case.noise, nodes)
    value = expect(mu, v, dtype=dtype)[0]
    assert_close(value, expected, roundings=50, dtype=dtype)


def test_derivatives_equal_differences(case, expect):
    _, d_mu, d_v, d_log_noise = expect(case.mu, case.v)
    assert_derivatives(d_mu, lambda mu: expect(mu, case.v)[0], case.mu)
    assert_derivatives(d_v, lambda v: expect(case.mu, v)[0], case.v)
    if case.noise.size:
        assert_derivatives(
            d_log_noise,
            lambda log_noise: expect(case.mu, case.v, np.exp(log_noise))[0],
            np.log(case.noise),
        )


def test_derivatives_in_float32(case, expect):
    double, single = (expect(case.mu, case.v, dtype=t) for t in ("float64", "float32"))
    for first, second in zip(single[1:], double[1:], strict=True):
        assert_close(first, second, roundings=50, dtype="float32")


def test_zero_variance_gives_log_prob(case, expect):
    value = expect(case.mu, np.zeros(len(case.mu)))[0]
    assert_close(value, case.log_prob(np.array(case.mu)), roundings=50)


def test_value_equals_integral(case, expect, rng):
    """By 100 Gauss-Hermite nodes of scipy's log-density, or by samples."""
    mu, v = np.array(case.mu), np.array(case.v)
    if case.name == "softmax":
        f = mu + np.sqrt(v) * rng.normal(size=(400_000, len(mu)))
        expected = np.mean(special.log_softmax(f, axis=1)[:, int(case.y[0])])
        # the error of 128 nodes; that of the samples is 0.001
        tolerance = 0.03
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(100)
        expected = 0.0
        for q in range(len(mu)):  # one latent function at a time, the others at mean
            f = np.tile(mu, (len(nodes), 1))
            f[:, q] += math.sqrt(v[q]) * nodes
            log_p = np.array([case.log_prob(row) for row in f])
            expected += weights @ (log_p - case.log_prob(mu)) / math.sqrt(2 * math.pi)
        expected += case.log_prob(mu)
        # Gaussian: exact; Bernoulli: the error of 20 nodes
        tolerance = 1e-12 if case.name == "gaussian" else 1e-8
    assert_allclose(expect(mu, v)[0], expected, rtol=0, atol=tolerance)


def test_log_ndtr():
    x = np.linspace(-40.0, 10.0, 1001)
    values = np.array([log_ndtr(value) for value in x])
    assert_allclose(values, special.log_ndtr(x), rtol=1e-10, atol=1e-15)


def test_log_ndtr_in_float32():
    x = np.linspace(-40.0, 10.0, 1001, dtype=np.float32)
    values = np.array([log_ndtr(value) for value in x])
    assert_allclose(values, special.log_ndtr(x.astype(float)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_log_prob_bernoulli(y):
    for f in np.linspace(-35.0, 35.0, 141):
        log_p, d_f = log_prob_bernoulli(y, f)
        assert_allclose(log_p, special.log_ndtr(y * f), rtol=1e-10, atol=1e-15)
        hazard = np.exp(stats.norm.logpdf(f) - special.log_ndtr(y * f))
        assert_allclose(d_f, y * hazard, rtol=3e-8, atol=1e-15)


def test_normal_nodes():
    nodes = normal_nodes(64, 3)
    assert nodes.shape == (64, 3)
    assert_allclose(nodes.mean(axis=0), 0.0, atol=1e-15)
    # of a thousand nodes, since 64 leave a few hundredths
    assert_allclose(np.cov(normal_nodes(1024, 3).T), np.eye(3), atol=0.02)
