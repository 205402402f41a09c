"""Records of likelihoods, expectations of log p(y | f) and their derivatives."""

import math
from itertools import product
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import reference
from helpers import assert_close, assert_derivatives, caller, entry
from numpy.testing import assert_allclose
from scipy import special, stats

from skswsgp._point import likelihoods, log_rates
from skswsgp._point.likelihood_records import make_likelihood, normal_nodes
from skswsgp._point.likelihoods import MOST_LOG_RATE, expected_log_prob
from skswsgp.noise.squared_errors import LIKELIHOODS

binomial_constant = entry(likelihoods.binomial_constant)
expected_poisson = entry(likelihoods.expected_poisson)
log_ndtr, log_prob = entry(likelihoods.special.log_ndtr), entry(likelihoods.log_prob)

pytestmark = pytest.mark.matrix
NOISE = np.array([0.3, 0.7])
SHAPES = np.array([3.5, 8.0])  # of likelihoods that have one


class Case(NamedTuple):
    """A likelihood with one row's targets and marginals N(mu, v)."""

    name: str
    y: list
    mu: list
    v: list
    log_prob: callable  # log p(y | f) for f (Q,), by SciPy
    error: float  # absolute error of the expectation, in nats

    @property
    def noise(self):
        has_noise = LIKELIHOODS[self.name].has_noise
        return NOISE[: len(self.mu)] if has_noise else np.zeros(0)

    @property
    def shape(self):
        return SHAPES[: len(self.mu)] if LIKELIHOODS[self.name].usual_shape else 0.0


def gaussian_log_prob(y):
    return lambda f: np.sum(stats.norm.logpdf(y, f, np.sqrt(NOISE[: len(y)])))


def squares_log_prob(k, total):
    """Return log p of k squares that sum to `total`, for log precisions (1,).

    The constant is that of the Poisson distribution which the squares are read as.
    """
    half = 0.5 * k
    constant = half * math.log(half * total / k) - special.gammaln(half + 1.0)
    return lambda f: np.sum(half * f - 0.5 * total * np.exp(f)) + constant


def student_log_prob(y):
    Q = len(y)
    return lambda f: np.sum(stats.t.logpdf(y, SHAPES[:Q], f, np.sqrt(NOISE[:Q])))


def poisson_log_prob(y, exposure=1.0):
    return lambda f: np.sum(stats.poisson.logpmf(y, exposure * np.exp(f)))


def binomial_log_prob(y, exposure=1.0):
    r = SHAPES[: len(y)]
    return lambda f: np.sum(stats.nbinom.logpmf(y, r, r / (r + exposure * np.exp(f))))


CASES = {
    "gaussian-1": Case(
        "gaussian", [0.4], [-0.3], [0.8], gaussian_log_prob([0.4]), 1e-12
    ),
    "gaussian-2": Case(
        "gaussian", [0.4, -1.0], [1.1, 0.2], [0.8, 0.1], gaussian_log_prob([0.4, -1.0]),
        1e-12,
    ),
    "bernoulli-plus": Case(
        "bernoulli", [1.0], [0.7], [0.9], lambda f: stats.norm.logcdf(f[0]), 1e-8
    ),
    "bernoulli-minus": Case(
        "bernoulli", [-1.0], [1.5], [0.3], lambda f: stats.norm.logcdf(-f[0]), 1e-8
    ),
    "logit": Case(
        "logit", [-1.0], [0.7], [0.9], lambda f: special.log_expit(-f[0]), 1e-8
    ),
    "poisson-1": Case("poisson", [3.0], [0.7], [0.9], poisson_log_prob([3.0]), 1e-11),
    "poisson-2": Case(
        "poisson", [0.0, 12.0], [-0.4, 2.0], [0.8, 0.1], poisson_log_prob([0.0, 12.0]),
        1e-11,
    ),
    "poisson-exposed": Case(
        "poisson", [5.0, math.log(2.5)], [0.7], [0.9], poisson_log_prob([5.0], 2.5),
        1e-11,
    ),
    "negative-binomial-1": Case(
        "negative_binomial", [3.0], [0.7], [0.9], binomial_log_prob([3.0]), 1e-6
    ),
    "negative-binomial-2": Case(
        "negative_binomial", [0.0, 12.0, math.log(0.4)], [-0.4, 3.0], [0.8, 0.1],
        binomial_log_prob([0.0, 12.0], 0.4), 1e-6,
    ),
    "squared-errors": Case(
        "squared_errors", [1.5, math.log(0.8)], [0.7], [0.9], squares_log_prob(3, 1.6),
        1e-11,
    ),
    "heteroscedastic": Case(
        "heteroscedastic", [0.4], [1.1], [0.8], gaussian_log_prob([0.4]), 1e-12
    ),
    "student-1": Case("student_t", [0.4], [-0.3], [0.1], student_log_prob([0.4]), 0.1),
    "student-2": Case(
        "student_t", [0.4, -9.0], [1.1, 0.2], [0.1, 0.1], student_log_prob([0.4, -9.0]),
        0.1,
    ),
    "softmax": Case(
        "softmax", [2.0], [0.5, -1.0, 0.3], [0.4, 1.2, 0.7],
        lambda f: special.log_softmax(f, axis=-1)[..., 2], 0.03,
    ),
    "softmax-2": Case(
        "softmax", [0.0], [-0.5, 1.0], [0.4, 0.2],
        lambda f: special.log_softmax(f, axis=-1)[..., 0], 0.03,
    ),
}  # fmt: skip


class Arguments(NamedTuple):
    """The fields of a model and of work arrays that `expected_log_prob` uses."""

    family: int
    joint: bool
    nodes: np.ndarray
    weights: np.ndarray
    prior_mean: np.ndarray
    shape: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    d_mean: np.ndarray
    d_variance: np.ndarray
    node_values: np.ndarray
    d_noise: np.ndarray


@pytest.fixture(scope="module")
def compiled():
    """Return a compiled caller of `expected_log_prob`, which is part of its callers."""

    @caller
    def expect(y, row, arguments):
        return expected_log_prob(arguments, y, row, arguments)

    return expect


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


LABELS = [name for name in LIKELIHOODS if hasattr(LIKELIHOODS[name], "encode")]


@pytest.fixture(params=LABELS)
def record(request):
    """Return the record of a likelihood of labels."""
    return LIKELIHOODS[request.param]


@pytest.fixture
def expect(compiled, case):
    """Return a function of (mu, v, noise): value, d_mu, d_v, d_log_noise."""

    def expect(mu, v, noise=case.noise, dtype="float64"):
        Q, dtype = len(mu), np.dtype(dtype)
        y = np.array([np.full(len(case.y), np.nan), case.y], dtype=dtype)
        conjugate = LIKELIHOODS[case.name].conjugate  # f has no prior mean then
        shift = np.zeros(Q) if conjugate else 0.25 * np.arange(1, Q + 1)
        likelihood = make_likelihood(case.name, Q, dtype, shift, case.shape)
        mu = mu - shift  # the prior mean is added again
        noise, mu, v = (np.asarray(values).astype(dtype) for values in (noise, mu, v))
        d_mean, d_variance = np.full((2, Q), np.nan, dtype)
        node_values = np.full((Q + 2, likelihood.nodes.shape[1]), np.nan, dtype)
        d_noise = np.zeros(len(noise), dtype)
        arguments = Arguments(
            *likelihood, noise, mu, v, d_mean, d_variance, node_values, d_noise
        )
        return compiled(y, 1, arguments), d_mean, d_variance, d_noise

    return expect


# ---------------------------------------------------------------- the table


def test_every_likelihood_has_a_case():
    assert {case.name for case in CASES.values()} == set(LIKELIHOODS)


def test_records_are_found_by_their_names():
    assert all(record.name == name for name, record in LIKELIHOODS.items())


# ---------------------------------------------------------------- expectations


def test_value_equals_reference(case, expect, dtype):
    nodes = normal_nodes(128, len(case.mu))
    mu, v = np.array(case.mu), np.array(case.v)
    numbers = {"noise_variance": case.noise, "shape": case.shape}
    expected = reference.expected_log_prob(
        case.name, case.y, mu, v, nodes=nodes, **numbers
    )
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


@pytest.mark.full
def test_derivatives_in_float32(case, expect):
    double, single = (expect(case.mu, case.v, dtype=t) for t in ("float64", "float32"))
    for first, second in zip(single[1:], double[1:], strict=True):
        assert_close(first, second, roundings=50, dtype="float32")


def test_zero_variance_gives_log_prob(case, expect):
    value = expect(case.mu, np.zeros(len(case.mu)))[0]
    assert_close(value, case.log_prob(np.array(case.mu)), roundings=50)


def test_value_equals_integral(case, expect, rng):
    """The integral has 100 Gauss-Hermite nodes or, for softmax, samples."""
    mu, v = np.array(case.mu), np.array(case.v)
    if LIKELIHOODS[case.name].joint:
        f = mu + np.sqrt(v) * rng.normal(size=(400_000, len(mu)))
        expected = np.mean(case.log_prob(f))  # the samples are good to 0.001
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(100)
        expected = 0.0
        for q in range(len(mu)):  # other latent functions stay at their means
            f = np.tile(mu, (len(nodes), 1))
            f[:, q] += math.sqrt(v[q]) * nodes
            log_p = np.array([case.log_prob(row) for row in f])
            expected += weights @ (log_p - case.log_prob(mu)) / math.sqrt(2 * math.pi)
        expected += case.log_prob(mu)
    assert_allclose(expect(mu, v)[0], expected, rtol=0, atol=case.error)


def test_log_ndtr():
    x = np.linspace(-40.0, 10.0, 1001)
    values = np.array([log_ndtr(value) for value in x])
    assert_allclose(values, special.log_ndtr(x), rtol=1e-10, atol=1e-15)


def test_log_ndtr_in_float32():
    x = np.linspace(-40.0, 10.0, 1001, dtype=np.float32)
    values = np.array([log_ndtr(value) for value in x])
    assert_allclose(values, special.log_ndtr(x.astype(float)), rtol=1e-6, atol=1e-7)


def test_log_prob_equals_reference(record):
    """Values equal the reference, derivatives equal its differences."""
    if record.joint:
        return
    log_p = reference.LOG_PROB[record.name]
    for y in record.encode(np.arange(2), 2)[:, 0]:
        for f in np.linspace(-35.0, 35.0, 141):
            value, d_f = log_prob(record.code, 0.0, y, f)
            assert_allclose(value, log_p(y, f), rtol=1e-10, atol=1e-15)
            slope = (log_p(y, f + 1e-5) - log_p(y, f - 1e-5)) / 2e-5
            assert_allclose(d_f, slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [0.05, 3.0, 1e4])
def test_log_prob_of_a_negative_binomial_equals_scipy(size):
    code = LIKELIHOODS["negative_binomial"].code
    for y in (0.0, 4.0, 1e4):
        constant = binomial_constant(size, y)
        for f in np.linspace(-10.0, 14.0, 101):
            value, d_f = log_prob(code, size, y, f)
            rate = math.exp(f)
            expected = stats.nbinom.logpmf(y, size, size / (size + rate))
            assert_allclose(value + constant, expected, rtol=1e-6, atol=1e-6)
            slope = y - (y + size) * rate / (size + rate)
            assert_allclose(d_f, slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["student-1", "student-2"], indirect=True)
def test_the_bound_of_a_student_t_lies_below_the_expectation(expect, case):
    mu, v = np.array(case.mu), np.array(case.v)
    f = mu + np.sqrt(v) * np.random.default_rng(0).normal(size=(4000, len(mu)))
    mean = np.mean([case.log_prob(row) for row in f])
    assert expect(mu, v)[0] < mean


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_slope_of_the_probit_is_the_hazard(y):
    for f in np.linspace(-35.0, 35.0, 141):
        _, d_f = log_prob(LIKELIHOODS["bernoulli"].code, 0.0, y, f)
        hazard = np.exp(stats.norm.logpdf(f) - special.log_ndtr(y * f))
        assert_allclose(d_f, y * hazard, rtol=3e-8, atol=1e-15)


def test_log_prob_of_an_unknown_code_is_nan():
    assert np.isnan(log_prob(-1, 0.0, 1.0, 0.3)).all()


# ---------------------------------------------------------------- densities and labels


def test_gaussian_log_density_sums_over_outputs(rng):
    mean, y = rng.normal(size=(2, 5, 2))
    variance = rng.uniform(0.1, 1.0, size=(5, 2))
    density = LIKELIHOODS["gaussian"].log_density(mean, variance, y, NOISE)
    expected = stats.norm.logpdf(y, mean, np.sqrt(variance + NOISE)).sum(axis=1)
    assert_allclose(density, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_expectation_of_counts_does_not_overflow(dtype):
    step, mu = 1e-3, np.array(MOST_LOG_RATE, dtype)
    low, high = (expected_poisson(4.0, mu + side, 0.0) for side in (-step, step))
    assert_allclose(high[0] - low[0], step * (low[1] + high[1]), rtol=0.01)
    assert np.isfinite(expected_poisson(4.0, np.array(1e6, dtype), 1.0)).all()


@pytest.mark.parametrize("variance", [1e-6, 0.5, 9.0])
@pytest.mark.parametrize("y", [0.0, 3.0, 1e6])
def test_probability_of_a_count_equals_the_integral(y, variance):
    means, std = np.log(y + 0.5) + np.linspace(-2.0, 2.0, 9), np.sqrt(variance)
    expected, steps = [], np.linspace(-12.0, 12.0, 20_001)
    for mean in means:  # f is dense both for its own law and for that of y
        f = [mean + std * steps, np.log(y + 1.0) + steps / np.sqrt(y + 1.0)]
        f = np.unique(np.concatenate(f))
        joint = stats.poisson.logpmf(y, np.exp(f)) + stats.norm.logpdf(f, mean, std)
        expected.append(np.trapezoid(np.exp(joint), f))
    expected = np.array(expected)
    moments = means, np.full(9, variance)
    found = log_rates.expected_log_probability(*moments, np.full(9, y), np.inf)
    assert_allclose(np.exp(found), expected, rtol=2e-4, atol=1e-200)
    record, two = LIKELIHOODS["poisson"], np.stack([means, means], axis=1)
    exposed = np.column_stack([np.full((9, 2), y), np.full(9, 0.7)])
    density = record.log_density(two - 0.7, np.full((9, 2), variance), exposed)
    assert_allclose(density, 2 * found)


def test_expected_counts_at_the_prior_mean_are_the_averages(rng):
    y, weight = rng.poisson(3.0, size=(50, 2)).astype(float), rng.random(50)
    record = LIKELIHOODS["poisson"]
    exposure = rng.uniform(0.5, 2.0, size=50)
    targets = np.column_stack([y, np.log(exposure)])
    averages = record.averages(targets, weight, 2)
    assert_allclose(averages, weight @ y / (weight @ exposure))
    mean = record.prior_mean(averages, 0.7)
    assert_allclose(np.exp(mean + 0.35), averages)
    nothing = np.zeros((50, 3))
    assert_allclose(record.averages(nothing, np.ones(50), 2), 0.01)


@pytest.mark.parametrize("k", [1, 3])
def test_squared_errors_are_those_of_normal_errors(k, rng):
    """Compares a density of squares, but for its constant, with SciPy's of errors."""
    errors, precisions = rng.normal(size=(1, k)), np.array([[-1.0], [0.3], [2.0]])
    targets = LIKELIHOODS["squared_errors"].targets(errors**2)
    found = LIKELIHOODS["squared_errors"].log_density(
        precisions, np.full((3, 1), 1e-12), np.repeat(targets, 3, axis=0)
    )
    std = np.exp(-0.5 * precisions)
    expected = stats.norm.logpdf(errors, scale=std).sum(axis=1)
    assert_allclose(found - found[0], expected - expected[0], rtol=1e-6)


def test_start_of_a_process_of_squared_errors(rng):
    """Sites have the moments of log p given the errors; the prior keeps the mean."""
    record, k, precision = LIKELIHOODS["squared_errors"], 4, 3.0
    errors = rng.normal(size=(200_000, k)) / np.sqrt(precision)
    targets = record.targets(errors**2)
    model = SimpleNamespace(prior_mean=np.array([0.5]), shape=np.zeros(1))
    weight, mean = record.first_sites(targets, model)
    assert_allclose(mean.mean() + 0.5, np.log(precision), atol=0.01)
    assert_allclose(mean.var(), 1.0 / weight[0, 0], rtol=0.02)
    learned = record.regression_targets(targets, 1)
    assert_allclose(learned - learned[0], mean - mean[0])
    averages = record.averages(targets, np.ones(len(targets)), 1)
    center = record.prior_mean(averages, 0.7)
    assert_allclose(np.exp(-center + 0.35), np.mean(errors**2))


def test_an_error_of_zero_is_a_square():
    targets = LIKELIHOODS["squared_errors"].targets(np.zeros((2, 1)))
    assert np.isfinite(targets).all()


def test_labels_survive_their_encoding(record):
    n_classes = 3 if record.joint else 2
    labels = np.array([1, 0, n_classes - 1, 1])
    y = record.encode(labels, n_classes)
    assert y.shape == (4, 1) and y.dtype == np.float64
    np.testing.assert_array_equal(record.decode(y), labels)
    targets = record.regression_targets(y, record.count_latent(n_classes))
    assert targets.shape == (4, record.count_latent(n_classes))


def test_softmax_is_learned_by_regression_of_centred_indicators():
    y = np.array([[0.0], [2.0], [2.0], [1.0]])
    targets = LIKELIHOODS["softmax"].regression_targets(y, 3)
    assert_allclose(targets.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_array_equal(targets.argmax(axis=1), y[:, 0])


def latent_of(record, rng, n=4):
    """Return means and variances (n, Q) of the latent functions, and n_classes."""
    n_classes = 3 if record.joint else 2
    shape = n, record.count_latent(n_classes)
    return rng.normal(size=shape), rng.uniform(0.1, 1.5, size=shape), n_classes


def test_probabilities_are_means_over_the_latent_functions(record, rng):
    mean, variance, n_classes = latent_of(record, rng)
    f = mean + np.sqrt(variance) * rng.normal(size=(100_000, *mean.shape))
    if record.joint:
        expected = special.softmax(f, axis=2).mean(axis=0)
    else:
        y = record.encode(np.arange(n_classes), n_classes)[:, 0]
        expected = np.exp(reference.LOG_PROB[record.name](y, f)).mean(axis=0)
    proba = record.probabilities(mean, variance)
    assert proba.shape == (len(mean), n_classes)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    assert_allclose(proba, expected, atol=0.01)  # the samples are good to 0.002


@pytest.mark.parametrize("variance", [0.1, 10.0, 100.0, 1000.0])
def test_probabilities_of_the_logit_equal_the_integral(variance):
    std = np.sqrt(variance)
    mean = np.linspace(-3.0, 3.0, 13)[:, None] * (1.0 + std)
    z = np.linspace(-9.0, 9.0, 20_001)
    expected = special.expit(mean + std * z) @ stats.norm.pdf(z) * (z[1] - z[0])
    proba = LIKELIHOODS["logit"].probabilities(mean, np.full_like(mean, variance))
    assert_allclose(proba[:, 1], expected, atol=2e-3 if variance > 10.0 else 3e-6)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)


def test_probabilities_at_the_prior_mean_are_the_shares(record):
    n_classes = 5 if record.joint else 2
    for skew, variance in product([0.0, 1.0, 3.0], [0.01, 1.0, 100.0]):
        shares = special.softmax(skew * np.arange(n_classes))
        mean = record.prior_mean(shares, variance)
        assert mean.shape == (record.count_latent(n_classes),)
        moments = mean[None], np.full((1, len(mean)), variance)
        assert_allclose(record.probabilities(*moments)[0], shares, atol=0.01)


def test_class_shares_are_weighted(record):
    y = record.encode(np.array([0, 1, 1, 0]), 2)
    shares = record.averages(y, np.array([1.0, 2.0, 2.0, 3.0]), 2)
    assert_allclose(shares, [0.5, 0.5])
    shares = record.averages(y[:1], np.array([4.0]), 2)
    assert_allclose(shares, [2 / 3, 1 / 3])  # an absent class has half a row


def test_log_density_is_the_log_probability_of_the_label(record, rng):
    mean, variance, n_classes = latent_of(record, rng)
    labels = rng.integers(n_classes, size=len(mean))
    density = record.log_density(mean, variance, record.encode(labels, n_classes))
    proba = record.probabilities(mean, variance)
    assert_allclose(density, np.log(proba[np.arange(len(mean)), labels]), rtol=1e-12)


def test_log_probabilities_are_logarithms_of_the_probabilities(record, rng):
    mean, variance, _ = latent_of(record, rng)
    for factor in (1.0, 5.0):
        moments = factor * mean, variance
        expected = np.log(record.probabilities(*moments))
        assert_allclose(record.log_probabilities(*moments), expected, rtol=1e-9)


def test_log_probabilities_go_on_where_probabilities_are_zero(record, dtype):
    n_classes = 3 if record.joint else 2
    mean = np.zeros((2, record.count_latent(n_classes)), dtype)
    mean[:, -1] = 1e4, 2e4
    logs = record.log_probabilities(mean, np.zeros_like(mean))
    assert logs.dtype == dtype
    expected = {
        "bernoulli": stats.norm.logcdf(-mean[:, 0].astype(float)),
        "softmax": -mean[:, -1],
        "logit": np.full(2, np.log(np.finfo(dtype).tiny)),  # no formula
    }
    assert_allclose(logs[:, 0], expected[record.name], rtol=1e-6)
    assert_allclose(logs[:, -1], 0.0, atol=1e-12)


def test_log_density_of_an_impossible_label_is_finite(record, dtype):
    n_classes = 3 if record.joint else 2
    Q = record.count_latent(n_classes)
    mean = np.zeros((1, Q), dtype)
    mean[0, -1] = 1e4  # the last class is certain
    y = record.encode(np.array([0]), n_classes)
    density = record.log_density(mean, np.zeros_like(mean), y)
    assert_allclose(density, np.log(np.finfo(dtype).tiny), rtol=1e-6)


def test_normal_nodes():
    nodes = normal_nodes(64, 3)
    assert nodes.shape == (64, 3)
    assert_allclose(nodes.mean(axis=0), 0.0, atol=1e-15)
    # 64 nodes leave an error of a few hundredths, so that this takes 1024
    assert_allclose(np.cov(normal_nodes(1024, 3).T), np.eye(3), atol=0.02)
