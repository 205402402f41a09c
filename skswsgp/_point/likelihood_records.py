"""Likelihoods p(y | f_1..f_Q) for Python: what the package needs to know of each.

The records of `LIKELIHOODS` say how targets are coded, where training starts and which
law predictions have; doc/developer/add_likelihood.md says how to add one. The
expectations that training needs are in `likelihoods`.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, log_softmax, ndtr, ndtri, softmax
from scipy.stats import qmc

from skswsgp._compiled import special
from skswsgp._point import likelihoods, log_rates

HERMITE_NODES = 20  # Gauss-Hermite nodes for one latent function
LOGIT_SCALE = 1.702  # Phi(f / 1.702) is expit(f) to 0.01
SOFTMAX_NODES = 128  # quasi-Monte Carlo nodes for the latent functions of all classes
MEAN_STEPS, MEAN_TOLERANCE = 500, 1e-5  # steps, log probability: `Softmax.prior_mean`


def normal_nodes(n_nodes, n_dims):
    """Return normal Sobol points and their mirror images, (n_nodes, n_dims)."""
    sobol = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(sobol.random(n_nodes // 2))
    return np.concatenate([half, -half])


def gauss_hermite(n_nodes):
    """Return nodes and weights, each (n_nodes,), for means over N(0, 1)."""
    x, w = np.polynomial.hermite.hermgauss(n_nodes)
    return math.sqrt(2.0) * x, w / math.sqrt(math.pi)


class LikelihoodRecord:
    """The properties of a likelihood; the defaults suit one latent function.

    Each has a `name` for users and a `code` for compiled functions. If it is conjugate,
    q(u) has a closed form: the sites are then the data. If it is joint, one label
    depends on all latent functions at once.
    """

    conjugate = False
    joint = False
    has_noise = False  # whether there is a noise variance for each latent function
    varying_noise = False  # whether rows have noise by a process of its own
    counts = False  # whether targets are counts, which are not standardised
    usual_shape = 0.0  # where the search for `Likelihood.shape` starts, 0 for none
    shape_bounds = (0.0, 0.0)
    least_noise = None  # least inverse of what a target tells of f, where it has one
    usual_variance = 9.0  # median of the prior of the kernel's variance
    n_nodes = HERMITE_NODES  # of quadrature, 0 where expectations have closed forms

    def make_nodes(self, n_latent):
        """Return the quadrature: nodes (1 or n_latent, n) and weights (n,)."""
        n = self.n_nodes
        nodes, weights = gauss_hermite(n) if n else np.zeros((2, 0))
        return nodes[None], weights

    def regression_targets(self, y, n_latent):
        """Return numbers (n, n_latent) for the targets y, to learn a kernel from."""
        return y

    def averages(self, y, weight, n_latent):
        """Return the weighted averages that `prior_mean` takes, or None."""
        return None

    def first_sites(self, y, model):
        """Return precisions and means (n, Q) of the first sites of f, or None.

        `model` holds prior means, noise and shapes. None stands for the sites at the
        q(f) that training starts from.
        """
        return None


class Gaussian(LikelihoodRecord):
    """y_q = f_q + N(0, noise_q); the expectation has a closed form."""

    name, code, conjugate = "gaussian", likelihoods.GAUSSIAN, True
    has_noise, n_nodes = True, 0

    def log_density(self, mean, variance, y, noise, shape=None):
        """Return log p(y) (n,) in nats, summed over outputs, for f ~ N(mean, variance).

        mean, variance and y are (n, Q), noise is one variance or (Q,).
        """
        variance = variance + noise
        square = (y - mean) ** 2 / variance
        return special.gaussian_log_density(square, np.log(variance)).sum(axis=1)


class Heteroscedastic(Gaussian):
    """y_q = f_q + N(0, noise_q h), for a factor h of each row that is learned before.

    The precision 1 / h is in the weights of the rows.
    """

    name, varying_noise = "heteroscedastic", True


class StudentT(LikelihoodRecord):
    """y_q = f_q + sqrt(noise_q) times a Student-t variable of `shape` degrees.

    A lower bound stands for the expectation, see `expected_student`.
    """

    name, code, has_noise = "student_t", likelihoods.STUDENT_T, True
    usual_shape, shape_bounds = 4.0, (2.05, 200.0)  # deviations are infinite up to 2
    n_nodes = 0

    def log_density(self, mean, variance, y, noise, shape):
        """Return log p(y) (n,) in nats, summed over outputs, for f ~ N(mean, variance).

        Arrays are (n, Q); noise and shape are (Q,).
        """
        both = (np.broadcast_to(each, mean.shape[1]) for each in (noise, shape))
        columns = zip(mean.T, variance.T, y.T, *both, strict=True)
        return sum(special.noisy_student_log_density(*column) for column in columns)


class Poisson(LikelihoodRecord):
    """Counts y_q of rate exp(f_q); the expectation has a closed form.

    Targets (n, Q + 1) end with the logarithm of the exposure of each row, by which
    rates are multiplied.
    """

    name, code, counts = "poisson", likelihoods.POISSON, True
    usual_variance = 1.0  # counts seldom vary by more than a factor of exp(2)
    n_nodes = 0

    def sizes(self, shape):
        """Return the sizes of `log_rates` for the shapes of the likelihood (Q,)."""
        return np.full(np.shape(shape), np.inf)

    def regression_targets(self, y, n_latent):
        """Return centred logarithms (n, n_latent) of rates."""
        counts, exposure = y[:, :n_latent], np.exp(y[:, n_latent:])
        usual = np.maximum(counts.sum(axis=0), 0.5) / exposure.sum()
        # half a count that comes with its exposure pulls to the usual rate
        targets = np.log(counts + 0.5) - np.log(exposure + 0.5 / usual)
        return targets - targets.mean(axis=0)

    def unknown_part(self, y):
        """Return the variances (n_latent,) of f given one count of the mean size.

        They are 1 / count, and at most 1.
        """
        return 1.0 / np.maximum(y[:, :-1].mean(axis=0, dtype=np.float64), 1.0)

    def averages(self, y, weight, n_latent):
        """Return the weighted mean rate (n_latent,); half a count is the least sum."""
        weight, exposure = weight.astype(np.float64), np.exp(y[:, n_latent])
        sums = np.maximum(weight @ y[:, :n_latent], 0.5 * np.mean(weight))
        return sums / (weight @ exposure)

    def prior_mean(self, averages, variance):
        """Return the means (n_latent,) at which the expected rates are averages."""
        return np.log(averages) - 0.5 * variance

    def first_sites(self, y, model):
        """Return precisions and means (n, Q) of normal laws around log(y + 1 / 2).

        At the prior, a large count would ask for an f as large as itself.
        """
        y, size = y.astype(np.float64), self.sizes(model.shape)
        counts, exposure = y[:, : len(size)] + 0.5, y[:, len(size) :]
        precision = counts / (1.0 + counts / size)
        return precision, np.log(counts) - exposure - model.prior_mean

    def log_density(self, mean, variance, y, noise=None, shape=None):
        """Return log p(y) (n,) in nats, summed over outputs, for f ~ N(mean, variance).

        mean and variance are (n, Q), y (n, Q + 1) ends with logarithms of exposures.
        """
        Q = mean.shape[1]
        size = self.sizes(np.broadcast_to(shape, Q))
        return log_rates.expected_log_probability(
            mean + y[:, Q:], variance, y[:, :Q], size
        ).sum(axis=1)


class NegativeBinomial(Poisson):
    """Counts y_q of mean exp(f_q) and variance exp(f_q) + exp(f_q)^2 / shape_q."""

    name, code = "negative_binomial", likelihoods.NEGATIVE_BINOMIAL
    usual_shape, shape_bounds = 5.0, (1e-2, 1e10)
    n_nodes = HERMITE_NODES

    def sizes(self, shape):
        return np.asarray(shape, dtype=np.float64)


def bounded_log(proba):
    """Return logarithms, for zeros that of the smallest positive normal number."""
    return np.log(np.maximum(proba, np.finfo(proba.dtype).tiny))


class ClassLikelihood(LikelihoodRecord):
    """Base of the likelihoods of labels, which have two classes unless they are joint.

    A subclass adds the method `probabilities(mean, variance)`, which returns
    (n, n_classes) for mean and variance (n, n_latent), and its inverse for one row,
    `prior_mean(shares, variance)`: where no data are near, the probabilities are the
    shares of the classes.
    """

    def averages(self, y, weight, n_latent):
        """Return the weighted fraction of each class; an absent one has half a row."""
        counts = np.bincount(self.decode(y), weight, max(2, n_latent))
        counts = np.maximum(counts, 0.5 * np.mean(weight))
        return counts / counts.sum()

    def count_latent(self, n_classes):
        """Return the number of latent functions."""
        return n_classes if self.joint else 1

    def encode(self, labels, n_classes):
        """Return class indices (n,) as targets (n, 1)."""
        return labels[:, None].astype(np.float64)

    def decode(self, y):
        """Return targets (n, 1) as class indices (n,)."""
        return y[:, 0].astype(int)

    def log_density(self, mean, variance, y, noise=None, shape=None):
        """Return the log probability (n,) of the encoded labels y (n, 1), in nats.

        A probability counts as no less than the smallest positive number.
        """
        proba = self.probabilities(mean, variance)
        return bounded_log(proba[np.arange(len(y)), self.decode(y)])

    def log_probabilities(self, mean, variance):
        """Return the logarithms (n, n_classes) of `probabilities`, all finite.

        They go on where probabilities round to zero if there is a formula for it.
        """
        return bounded_log(self.probabilities(mean, variance))


class TwoClasses(ClassLikelihood):
    """Base of the likelihoods of two classes coded as -1 and 1."""

    def encode(self, labels, n_classes):
        return 2.0 * labels[:, None] - 1.0

    def decode(self, y):
        return (y[:, 0] > 0).astype(int)


class Bernoulli(TwoClasses):
    """Two classes with a probit link: p(y | f) = Phi(y f)."""

    name, code = "bernoulli", likelihoods.BERNOULLI
    least_noise = 0.5 * math.pi

    def probabilities(self, mean, variance):
        """Return (n, 2), with Phi(mu / sqrt(1 + v)) for the second class."""
        return ndtr(self._arguments(mean, variance))

    def log_probabilities(self, mean, variance):
        return log_ndtr(self._arguments(mean, variance))

    def _arguments(self, mean, variance):
        """Return the arguments (n, 2) of Phi for both classes."""
        argument = mean[:, 0] / np.sqrt(1.0 + variance[:, 0])
        return np.stack([-argument, argument], axis=1)

    def prior_mean(self, shares, variance):
        """Return the mean (1,) at which the second class has its share."""
        return np.sqrt(1.0 + variance) * ndtri(shares[1:])


class Logit(TwoClasses):
    """Two classes with a logit link: p(y | f) = expit(y f)."""

    name, code = "logit", likelihoods.LOGIT
    least_noise = 4.0

    def probabilities(self, mean, variance):
        """Return (n, 2), means of expit(-f) and expit(f) to 0.002.

        expit(f) is Phi(f / LOGIT_SCALE), whose mean is exact, and a small rest, whose
        mean is that over quadrature nodes. Nodes alone would be 0.03 off where
        the variance is 900.
        """
        std = np.sqrt(variance[:, 0])
        argument = mean[:, 0] / np.sqrt(LOGIT_SCALE**2 + variance[:, 0])
        no, yes = ndtr(-argument), ndtr(argument)
        for node, weight in zip(*gauss_hermite(log_rates.NODES), strict=True):
            f = mean[:, 0] + std * mean.dtype.type(node)
            weight = mean.dtype.type(weight)
            no += weight * (expit(-f) - ndtr(-f / LOGIT_SCALE))
            yes += weight * (expit(f) - ndtr(f / LOGIT_SCALE))
        return np.maximum(np.stack([no, yes], axis=1), 0.0)

    def prior_mean(self, shares, variance):
        """Return the mean (1,) at which the second class has its share."""

        def excess(mean):
            return (
                self.probabilities(np.array([[mean]]), np.array([[variance]]))[0, 1]
                - shares[1]
            )

        bound = 1e3 + 20.0 * np.sqrt(variance)  # where one class is certain
        return np.array([brentq(excess, -bound, bound)])


class Softmax(ClassLikelihood):
    """Two classes or more, with a latent function each: p(y | f) = softmax(f)_y."""

    name, code, joint = "softmax", likelihoods.SOFTMAX, True
    least_noise = 2.0  # along the difference of two classes

    def make_nodes(self, n_latent):
        nodes = np.ascontiguousarray(normal_nodes(SOFTMAX_NODES, n_latent).T)
        return nodes, np.full(SOFTMAX_NODES, 1.0 / SOFTMAX_NODES)

    def regression_targets(self, y, n_latent):
        """Return centred indicators (n, n_latent) of the classes."""
        targets = (y == np.arange(n_latent)).astype(y.dtype)
        return targets - targets.mean(axis=0)

    def probabilities(self, mean, variance):
        """Return (n, n_classes), the mean of softmax(f) over nodes of all rows."""
        total = np.zeros_like(mean)
        std = np.sqrt(variance)
        nodes = normal_nodes(SOFTMAX_NODES, mean.shape[1]).astype(mean.dtype)
        for node in nodes:
            total += softmax(mean + std * node, axis=1)
        return total / total.sum(axis=1, keepdims=True)

    def log_probabilities(self, mean, variance):
        total, std = np.full_like(mean, -np.inf), np.sqrt(variance)
        nodes = normal_nodes(SOFTMAX_NODES, mean.shape[1]).astype(mean.dtype)
        for node in nodes:
            total = np.logaddexp(total, log_softmax(mean + std * node, axis=1))
        return log_softmax(total, axis=1)

    def prior_mean(self, shares, variance):
        """Return the means (n_classes,) at which each class has its share."""
        # the contraction of Berry, Levinsohn and Pakes (Econometrica, 1995)
        noise = np.sqrt(variance) * normal_nodes(SOFTMAX_NODES, len(shares))
        mean = np.log(shares)
        for _ in range(MEAN_STEPS):
            step = np.log(shares / softmax(mean + noise, axis=1).mean(axis=0))
            mean += step
            if np.abs(step).max() < MEAN_TOLERANCE:
                break
        return mean - mean.mean()


RECORDS = (
    Gaussian(), Bernoulli(), Softmax(), Logit(), Poisson(), NegativeBinomial(),
    StudentT(), Heteroscedastic(),
)  # fmt: skip
LIKELIHOODS = {record.name: record for record in RECORDS}


def make_likelihood(name, n_latent, dtype, prior_mean=0.0, shape=0.0):
    """Return the `Likelihood` for a name of `LIKELIHOODS`."""
    record, zeros = LIKELIHOODS[name], np.zeros(n_latent, dtype)
    nodes, weights = record.make_nodes(n_latent)
    nodes, weights = nodes.astype(dtype), weights.astype(dtype)
    numbers = (zeros + np.asarray(each, dtype) for each in (prior_mean, shape))
    return likelihoods.Likelihood(record.code, record.joint, nodes, weights, *numbers)
