"""Reference implementation: plain NumPy in loops, without any code of the package.

Notation: X (n, d) inputs, Z (M, d) inducing inputs, w the H inducing points that one
row of X uses, Q latent functions that share Z and the kernel. Equation numbers are
those of Tran et al., "Sparse within Sparse Gaussian Processes using Neighbor
Information" (ICML 2021). Every kernel argument is a scikit-learn kernel object.
"""

import math

import numpy as np
from scipy.linalg import eigvalsh
from scipy.special import digamma, log_expit, log_ndtr, log_softmax, ndtr, softmax

# ---------------------------------------------------------------- kernels


def _squared_distance(x, z, length_scale):
    """Return sum_d ((x_d - z_d) / length_scale_d)^2 for x, z (d,)."""
    length_scale = np.broadcast_to(length_scale, len(x))
    return sum(((x[d] - z[d]) / length_scale[d]) ** 2 for d in range(len(x)))


def _scaled_dot(x, z, kernel):
    """Return s(x, z) = sigma_0^2 + sum_d x_d z_d / length_scale_d^2 for x, z (d,)."""
    length_scale = np.broadcast_to(kernel.length_scale, len(x))
    dot = sum(x[d] * z[d] / length_scale[d] ** 2 for d in range(len(x)))
    return kernel.sigma_0**2 + dot


def kernel_value(kernel, x, z, same=False):
    """Return k(x, z) for x, z (d,), chosen by the name of the kernel's class.

    `same` says that x and z are one point, not two points with equal coordinates.
    WhiteKernel is zero between two points.
    """
    name = type(kernel).__name__
    if name == "Sum":
        return kernel_value(kernel.k1, x, z, same) + kernel_value(kernel.k2, x, z, same)
    if name == "Product":
        return kernel_value(kernel.k1, x, z, same) * kernel_value(kernel.k2, x, z, same)
    if name == "Exponentiation":
        return kernel_value(kernel.kernel, x, z, same) ** kernel.exponent
    if name == "OnColumns":
        columns = list(kernel.columns)
        return kernel_value(kernel.kernel, x[columns], z[columns], same)
    if name == "ConstantKernel":
        return kernel.constant_value
    if name == "WhiteKernel":
        return kernel.noise_level if same else 0.0
    if name == "DotProduct":
        return kernel.sigma_0**2 + sum(x[d] * z[d] for d in range(len(x)))
    if name == "RBF":
        return math.exp(-_squared_distance(x, z, kernel.length_scale) / 2)
    if name == "RationalQuadratic":
        r2 = _squared_distance(x, z, kernel.length_scale)
        return (1 + r2 / (2 * kernel.alpha)) ** -kernel.alpha
    if name == "ExpSineSquared":
        r = math.sqrt(_squared_distance(x, z, kernel.periodicity))
        return math.exp(-2 * (math.sin(math.pi * r) / kernel.length_scale) ** 2)
    if name == "Matern":
        r = math.sqrt(_squared_distance(x, z, kernel.length_scale))
        if kernel.nu == 0.5:
            return math.exp(-r)
        if kernel.nu == 1.5:
            return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
        if kernel.nu == 2.5:
            polynomial = 1 + math.sqrt(5) * r + 5 * r**2 / 3
            return polynomial * math.exp(-math.sqrt(5) * r)
        if kernel.nu == math.inf:
            return math.exp(-(r**2) / 2)
        raise ValueError(f"Matern with nu={kernel.nu} has no reference")
    if name == "Polynomial":
        return _scaled_dot(x, z, kernel) ** kernel.degree
    if name == "ArcCosine":
        norms = math.sqrt(_scaled_dot(x, x, kernel) * _scaled_dot(z, z, kernel))
        cosine = min(max(_scaled_dot(x, z, kernel) / norms, -1.0), 1.0)
        theta = math.acos(cosine)
        if kernel.order == 0:
            return 1 - theta / math.pi
        if kernel.order == 1:
            angular = math.sin(theta) + (math.pi - theta) * math.cos(theta)
            return norms * angular / math.pi
        raise ValueError(f"ArcCosine with order={kernel.order} has no reference")
    raise ValueError(f"kernel {name} has no reference")


def kernel_matrix(kernel, A, B=None):
    """Return k(A, B), (n_A, n_B), for A (n_A, d), B (n_B, d).

    B=None means k(A, A), with `same` on the diagonal.
    """
    others = A if B is None else B
    K = np.empty((len(A), len(others)))
    for i in range(len(A)):
        for j in range(len(others)):
            K[i, j] = kernel_value(kernel, A[i], others[j], same=B is None and i == j)
    return K


def _prior_covariance(kernel, Z, jitter):
    """Return K = k(Z, Z) + jitter * mean(diag k(Z, Z)) * I, (M, M): eq. 1."""
    K = kernel_matrix(kernel, Z)
    return K + jitter * np.mean(np.diag(K)) * np.eye(len(Z))


# ---------------------------------------------------------------- neighbours


def neighbors(kernel, x, Z, n_neighbors):
    """Return w (H,): the H rows of Z with the largest k(x, z), largest first: eq. 12.

    Ties go to the lower index.
    """
    values = [kernel_value(kernel, x, z) for z in Z]
    order = sorted(range(len(Z)), key=lambda j: (-values[j], j))
    return np.array(order[:n_neighbors])


def neighbor_table(kernel, X, Z, n_neighbors):
    """Return the neighbours of every row of X, (n, H)."""
    return np.array([neighbors(kernel, x, Z, n_neighbors) for x in X])


# ---------------------------------------------------------------- one point


def select(mean, covariance, w, q):
    """Return m_w (H,) and S_w (H, H) of latent function q, as defined before eq. 13.

    `mean` is (M, Q). `covariance` is (M, Q), the variances s with S = diag(s), or
    (M, M, Q), lower factors L with S = L L', so that S_w = L_w L_w', L_w = rows w.
    """
    if covariance.ndim == 2:
        S_w = np.diag(covariance[w, q])
    else:
        L_w = covariance[w, :, q]  # (H, M)
        S_w = L_w @ L_w.T
    return mean[w, q], S_w


def point_posterior(kernel, x, Z_w, m_w, S_w, jitter):
    """Return mu, F, V with q(f) = N(mu, F + V): eq. 13.

    a = K^-1 k, mu = a' m_w, F = k(x, x) - k' a, at least zero, and V = a' S_w a, for
    x (d,), Z_w (H, d), m_w (H,), S_w (H, H).
    """
    K = _prior_covariance(kernel, Z_w, jitter)  # (H, H)
    k = kernel_matrix(kernel, Z_w, x[np.newaxis])[:, 0]  # (H,)
    a = np.linalg.solve(K, k)  # (H,)
    F = max(kernel_value(kernel, x, x, same=True) - k @ a, 0.0)
    return a @ m_w, F, a @ S_w @ a


def point_kl(kernel, Z_w, m_w, S_w, jitter):
    """Return KL(N(m_w, S_w) || N(0, K)), nats, for Z_w (H, d), m_w (H,), S_w (H, H).

    KL = 1/2 [tr(K^-1 S_w) + m_w' K^-1 m_w - H + log|K| - log|S_w|]
    """
    K = _prior_covariance(kernel, Z_w, jitter)
    K_inverse = np.linalg.inv(K)
    log_det_K = np.linalg.slogdet(K)[1]
    log_det_S = np.linalg.slogdet(S_w)[1]
    trace = np.trace(K_inverse @ S_w)
    return (trace + m_w @ K_inverse @ m_w - len(m_w) + log_det_K - log_det_S) / 2


# ---------------------------------------------------------------- likelihoods


# log p(y | f) of the likelihoods of one latent function that have no closed form
LOG_PROB = {
    "bernoulli": lambda y, f: log_ndtr(y * f),  # y = -1 or 1
    "logit": lambda y, f: log_expit(y * f),  # y = -1 or 1
}


def gaussian_expectation(y, mu, v, noise_variance):
    """Return E log N(y | f, noise_variance) for f ~ N(mu, v); all are scalars."""
    log_normalizer = math.log(2 * math.pi * noise_variance)
    return -(log_normalizer + ((y - mu) ** 2 + v) / noise_variance) / 2


def poisson_expectation(y, mu, v):
    """Return E log Poisson(y | exp(f)) for f ~ N(mu, v); all are scalars."""
    return y * mu - math.exp(mu + v / 2) - math.lgamma(y + 1)


def negative_binomial_log_prob(y, f, size):
    """Return log p(y) of a count of mean exp(f) and variance exp(f) + exp(f)^2 / size.

    Gamma(y + r) / (Gamma(r) y!) (exp(f) / (r + exp(f)))^y (r / (r + exp(f)))^r
    """
    chance = math.exp(f) / (size + math.exp(f))
    ways = math.lgamma(y + size) - math.lgamma(size) - math.lgamma(y + 1)
    return ways + y * math.log(chance) + size * math.log1p(-chance)


def student_bound(y, mu, v, noise_variance, freedom):
    """Return a bound of E log t(y | f) for f ~ N(mu, v); all are scalars.

    The density is that of y = f + sqrt(noise_variance) t for t with `freedom` degrees.
    It is the mean of N(y | f, noise_variance / g) over g ~ Gamma(freedom / 2, rate =
    freedom / 2), and log p(y | f) is at least E_q log N(y | f, noise_variance / g)
    - KL(q(g) || p(g)) for any q. The best q is a gamma law.
    """
    a = (freedom + 1) / 2
    square = (y - mu) ** 2 + v
    b = (freedom + square / noise_variance) / 2
    mean, mean_log = a / b, digamma(a) - math.log(b)
    fit = mean_log - math.log(2 * math.pi * noise_variance)
    fit -= mean * square / noise_variance
    half = freedom / 2
    divergence = (a - half) * digamma(a) - math.lgamma(a) + math.lgamma(half)
    divergence += half * math.log(b / half) + a * (half - b) / b
    return fit / 2 - divergence


def hermite_expectation(log_prob, y, mu, v, n_nodes=20):
    """Return E log p(y | f) for f ~ N(mu, v), by Gauss-Hermite quadrature.

    sum_i weight_i / sqrt(pi) * log_prob(y, mu + sqrt(2 v) node_i)
    """
    total = 0.0
    for node, weight in zip(*np.polynomial.hermite.hermgauss(n_nodes), strict=True):
        f = mu + math.sqrt(2 * v) * node
        total += weight / math.sqrt(math.pi) * log_prob(y, f)
    return total


def softmax_expectation(label, mu, v, nodes):
    """Return E log softmax(f)[label] for independent f_q ~ N(mu_q, v_q); mu, v (Q,).

    It is the mean over standard normal nodes (S, Q), with f = mu + sqrt(v) * node.
    """
    return np.mean([log_softmax(mu + np.sqrt(v) * node)[label] for node in nodes])


def expected_log_prob(
    likelihood, y, mu, v, noise_variance=None, nodes=None, n_nodes=20, shape=0.0
):
    """Return E log p(y | f) of one row for independent f_q ~ N(mu_q, v_q); mu, v (Q,).

    "softmax": y is one label 0..Q-1. Others: y is (Q,) or a scalar, and
    the expectations are summed; noise_variance and shape are (Q,) or scalars. Counts
    may end with the logarithm of the exposure, which adds to f.
    """
    Q = len(mu)
    shape = np.broadcast_to(shape, Q)
    if likelihood == "softmax":
        return softmax_expectation(int(np.ravel(y)[0]), mu, v, nodes)
    if np.size(y) == Q + 1:
        mu, y = mu + y[-1], y[:-1]
    y = np.broadcast_to(y, Q)
    if likelihood == "student_t":
        r2 = np.broadcast_to(noise_variance, Q)
        terms = (student_bound(y[q], mu[q], v[q], r2[q], shape[q]) for q in range(Q))
        return sum(terms)
    if likelihood == "negative_binomial":
        return sum(
            hermite_expectation(
                lambda y, f, q=q: negative_binomial_log_prob(y, f, shape[q]),
                y[q], mu[q], v[q], n_nodes,
            )
            for q in range(Q)
        )  # fmt: skip
    if likelihood in ("gaussian", "heteroscedastic"):
        r2 = np.broadcast_to(noise_variance, Q)
        return sum(gaussian_expectation(y[q], mu[q], v[q], r2[q]) for q in range(Q))
    if likelihood in ("poisson", "squared_errors"):
        return sum(map(poisson_expectation, y, mu, v))
    if likelihood not in LOG_PROB:
        raise ValueError(f"likelihood {likelihood!r} has no reference")
    log_prob = LOG_PROB[likelihood]
    pairs = zip(y, mu, v, strict=True)
    return sum(hermite_expectation(log_prob, *values, n_nodes) for values in pairs)


def bernoulli_probability(mu, v):
    """Return P(y = +1) = E Phi(f) = Phi(mu / sqrt(1 + v)) for f ~ N(mu, v)."""
    return ndtr(mu / np.sqrt(1 + v))


def softmax_probability(mu, v, nodes):
    """Return E softmax(f), (Q,), for f_q ~ N(mu_q, v_q), a mean over nodes (S, Q)."""
    return np.mean([softmax(mu + np.sqrt(v) * node) for node in nodes], axis=0)


# ---------------------------------------------------------------- all points


def predict(kernel, X, Z, mean, covariance, n_neighbors, jitter, neighbors=None):
    """Return mu (n, Q), v (n, Q) of q(f) = N(mu, v) at the rows of X: eq. 13.

    `mean` and `covariance` as in `select`; `neighbors` (n, H) replaces the search.
    """
    if neighbors is None:
        neighbors = neighbor_table(kernel, X, Z, n_neighbors)
    mu, v = np.empty((2, len(X), mean.shape[1]))
    for i, w in enumerate(neighbors):
        for q in range(mean.shape[1]):
            m_w, S_w = select(mean, covariance, w, q)
            mu[i, q], F, V = point_posterior(kernel, X[i], Z[w], m_w, S_w, jitter)
            v[i, q] = F + V
    return mu, v


def lower_bound(
    kernel,
    X,
    y,
    Z,
    mean,
    covariance,
    n_neighbors,
    likelihood,
    noise_variance,
    jitter,
    kl_weight=1.0,
    sample_weight=None,
    nodes=None,
    neighbors=None,
    n_nodes=20,
    shape=0.0,
):
    """Return sum_n w_n [ELL_n - kl_weight / N_w * sum_q KL_nq], nats: eq. 11.

    w_n is the sample weight (default 1), N_w the sum of the weights, ELL_n the
    `expected_log_prob` for y (n,) or (n, Q); other arguments as in `predict`.
    """
    if neighbors is None:
        neighbors = neighbor_table(kernel, X, Z, n_neighbors)
    weights = np.ones(len(X)) if sample_weight is None else sample_weight
    mu, v = predict(kernel, X, Z, mean, covariance, n_neighbors, jitter, neighbors)
    total = 0.0
    for n, w in enumerate(neighbors):
        ell = expected_log_prob(
            likelihood, y[n], mu[n], v[n], noise_variance, nodes, n_nodes, shape
        )
        kl = 0.0
        for q in range(mean.shape[1]):
            m_w, S_w = select(mean, covariance, w, q)
            kl += point_kl(kernel, Z[w], m_w, S_w, jitter)
        total += weights[n] * (ell - kl_weight / np.sum(weights) * kl)
    return total


def svgp_lower_bound(
    kernel,
    X,
    y,
    Z,
    mean,
    covariance,
    likelihood,
    noise_variance,
    jitter,
    kl_weight=1.0,
    sample_weight=None,
    nodes=None,
    n_nodes=20,
    shape=0.0,
):
    """Return sum_n w_n ELL_n - kl_weight * sum_q KL(q(u_q) || p(u)), nats: eq. 4.

    This function shares no code with `lower_bound`, which it equals for H = M:
    q(f) = N(A m, Kxx + A (S - K) A'), A = Kxz K^-1 (eq. 3), and with lambda the
    eigenvalues of K^-1 S, KL = 1/2 [sum(lambda - 1 - log lambda) + m' K^-1 m].
    """
    K = _prior_covariance(kernel, Z, jitter)  # (M, M)
    A = kernel_matrix(kernel, X, Z) @ np.linalg.inv(K)  # (n, M)
    k_diagonal = np.diag(kernel_matrix(kernel, X))  # (n,)
    mu, v = np.empty((2, len(X), mean.shape[1]))
    kl = 0.0
    for q in range(mean.shape[1]):
        m, S = mean[:, q], covariance[..., q]
        S = np.diag(S) if S.ndim == 1 else S @ S.T  # (M, M)
        mu[:, q] = A @ m
        v[:, q] = k_diagonal + np.diag(A @ (S - K) @ A.T)
        ratio = eigvalsh(S, K)
        kl += np.sum(ratio - 1 - np.log(ratio)) / 2 + m @ np.linalg.solve(K, m) / 2
    weights = np.ones(len(X)) if sample_weight is None else sample_weight
    total = -kl_weight * kl
    for n in range(len(X)):
        total += weights[n] * expected_log_prob(
            likelihood, y[n], mu[n], v[n], noise_variance, nodes, n_nodes, shape
        )
    return total


def union_of_lists(lists, n_active):
    """Return the active points of rows with these lists (n, H), increasing.

    Points are taken by their best place in a list, then by how many rows use them, most
    first, then by index, until there are `n_active`.
    """
    points = sorted({int(point) for row in lists for point in row})

    def order(point):
        places = [list(row).index(point) for row in lists if point in row]
        return min(places), -len(places), point

    return np.array(sorted(sorted(points, key=order)[:n_active]))


def union_bound_terms(
    kernel,
    X,
    y,
    Z,
    mean,
    covariance,
    active,
    likelihood,
    noise_variance,
    jitter,
    nodes=None,
    shape=0.0,
):
    """Return ELL (n,) of rows that share the points `active`, and their divergence.

    With A = K_xa K_aa^-1, q(f) = N(A m_a, K_xx + A (S_aa - K_aa) A') for all rows
    together: section 4.5. Other arguments are as in `lower_bound`.
    """
    K = _prior_covariance(kernel, Z[active], jitter)
    A = kernel_matrix(kernel, X, Z[active]) @ np.linalg.inv(K)
    prior = np.diag(kernel_matrix(kernel, X))
    mu, v = np.empty((2, len(X), mean.shape[1]))
    kl = 0.0
    for q in range(mean.shape[1]):
        m_a, S_aa = select(mean, covariance, active, q)
        mu[:, q] = A @ m_a
        v[:, q] = prior + np.diag(A @ (S_aa - K) @ A.T)
        kl += point_kl(kernel, Z[active], m_a, S_aa, jitter)
    rows = zip(y, mu, v, strict=True)
    common = {"noise_variance": noise_variance, "nodes": nodes, "shape": shape}
    ell = [expected_log_prob(likelihood, *row, **common) for row in rows]
    return np.array(ell), kl


# ---------------------------------------------------------------- optimisation


def adam(theta, gradients, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-12):
    """Return theta (p,) after one step of Adam per gradient (p,), minimising.

    m = beta1 m + (1 - beta1) g, s = beta2 s + (1 - beta2) g^2, and at step t
    theta -= learning_rate m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + epsilon).
    """
    theta = np.array(theta, dtype=float)
    first = np.zeros_like(theta)
    second = np.zeros_like(theta)
    for t, gradient in enumerate(gradients, start=1):
        gradient = np.asarray(gradient, dtype=float)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        corrected_first = first / (1 - beta1**t)
        corrected_second = second / (1 - beta2**t)
        theta -= learning_rate * corrected_first / (np.sqrt(corrected_second) + epsilon)
    return theta


def finite_difference(function, theta, step=1e-6):
    """Return d function / d theta, (p,), by central differences, theta (p,)."""
    theta = np.asarray(theta, dtype=float)
    gradient = np.empty(len(theta))
    for i in range(len(theta)):
        shift = np.zeros(len(theta))
        shift[i] = step
        gradient[i] = (function(theta + shift) - function(theta - shift)) / (2 * step)
    return gradient


# ---------------------------------------------------------------- the exact GP


def gp_posterior(kernel, X, y, noise_variance):
    """Return the mean (n,) and covariance (n, n) of f(X) given y = f(X) + noise.

    K C^-1 y and K - K C^-1 K with C = K + noise_variance I; a WhiteKernel inside the
    kernel is part of f.
    """
    K = kernel_matrix(kernel, X)
    C = K + noise_variance * np.eye(len(X))
    return K @ np.linalg.solve(C, y), K - K @ np.linalg.solve(C, K)


def gp_predict(kernel, X, y, noise_variance, X_new):
    """Return the mean (n_new,) and covariance (n_new, n_new) of f(X_new) given y (n,).

    k' C^-1 y and k(X_new, X_new) - k' C^-1 k with k = k(X, X_new) and C as in
    `gp_posterior`.
    """
    C = kernel_matrix(kernel, X) + noise_variance * np.eye(len(X))
    k = kernel_matrix(kernel, X, X_new)  # (n, n_new)
    mean = k.T @ np.linalg.solve(C, y)
    return mean, kernel_matrix(kernel, X_new) - k.T @ np.linalg.solve(C, k)


# ---------------------------------------------------------------- the local GP


def krige(kernel, x, Z_w, m_w, noise_w):
    """Return mu and F of f(x) given noisy data m_w = f(Z_w) + N(0, diag noise_w).

    a = C^-1 k with C = K + diag(noise_w), mu = a' m_w, F = k(x, x) - k' a, for x (d,),
    Z_w (H, d), m_w (H,), noise_w (H,); a WhiteKernel inside the kernel is part of f.
    """
    C = kernel_matrix(kernel, Z_w) + np.diag(noise_w)  # (H, H)
    k = kernel_matrix(kernel, Z_w, x[np.newaxis])[:, 0]  # (H,)
    a = np.linalg.solve(C, k)  # (H,)
    return a @ m_w, kernel_value(kernel, x, x, same=True) - k @ a


def krige_all(kernel, X, Z, m, weight, noise_variance, neighbors):
    """Return mu (n, Q), F (n, Q) at the rows of X from data Z (M, d), m (M, Q).

    m_jq has the noise variance noise_variance_q / weight_jq, with weight (M, Q).
    `neighbors` is (n, H).
    """
    mu, F = np.empty((2, len(X), m.shape[1]))
    for i, w in enumerate(neighbors):
        for q in range(m.shape[1]):
            noise_w = noise_variance[q] / weight[w, q]
            mu[i, q], F[i, q] = krige(kernel, X[i], Z[w], m[w, q], noise_w)
    return mu, F


def nearest_neighbor_log_likelihood(
    kernel, X, y, Z, m, weight, noise_variance, neighbors, sample_weight
):
    """Return sum_i sample_weight_i sum_q log N(y_iq; mu_iq, F_iq + noise_iq).

    Arguments as in `krige_all`, with sample_weight (n,) and y (n, 2 Q), which holds the
    targets and then noise_iq / noise_variance_q. The conditioning sets of Vecchia
    (1988) are given.
    """
    y, ratio = np.split(y, 2, axis=1)
    mu, F = krige_all(kernel, X, Z, m, weight, noise_variance, neighbors)
    total = 0.0
    for i in range(len(X)):
        for q in range(y.shape[1]):
            variance = F[i, q] + noise_variance[q] * ratio[i, q]
            square = (y[i, q] - mu[i, q]) ** 2 / variance
            log_density = -(math.log(2 * math.pi * variance) + square) / 2
            total += sample_weight[i] * log_density
    return total


# ---------------------------------------------------------------- the natural solver


def predecessors(kernel, Z, order, n_neighbors):
    """Return, for each point in order, its neighbours among the points before it.

    `order` (M,) lists rows of Z, and so does each result, nearest first.
    """
    return [
        [order[i] for i in neighbors(kernel, Z[j], Z[order[:place]], n_neighbors)]
        for place, j in enumerate(order)
    ]


def vecchia_covariance(kernel, Z, order, n_neighbors, jitter):
    """Return the covariance (M, M) of the prior u_j | u_w ~ N(b_j' u_w, D_j), in order.

    w are the `predecessors` of j; b_j = K_w^-1 k_j and D_j = k_jj - k_j' b_j.
    """
    K = _prior_covariance(kernel, Z, jitter)
    P = np.zeros_like(K)
    for place, w in enumerate(predecessors(kernel, Z, order, n_neighbors)):
        j, before = order[place], order[:place]
        b = np.linalg.solve(K[np.ix_(w, w)], K[w, j])
        P[j, before] = P[before, j] = b @ P[np.ix_(w, before)]
        P[j, j] = K[j, j] - K[j, w] @ b + b @ P[np.ix_(w, w)] @ b
    return P


def gaussian_kl(m, S, prior_covariance):
    """Return KL(N(m, S) || N(0, P)), nats: 1/2 [tr P^-1 S + m' P^-1 m - M - log|S/P|].

    m (M,), S (M, M) and P (M, M).
    """
    P_inverse = np.linalg.inv(prior_covariance)
    log_ratio = np.linalg.slogdet(S)[1] - np.linalg.slogdet(prior_covariance)[1]
    return (np.trace(P_inverse @ S) + m @ P_inverse @ m - len(m) - log_ratio) / 2


def inducing_weights(kernel, X, Z, n_neighbors, jitter):
    """Return A (n, M), zero but for a_i = K_w^-1 k of the neighbours w, and F (n,)."""
    A, F = np.zeros((len(X), len(Z))), np.zeros(len(X))
    for i, w in enumerate(neighbor_table(kernel, X, Z, n_neighbors)):
        for j in w:  # a_ij is mu for u = e_j
            unit = (w == j).astype(float)
            A[i, j], F[i], _ = point_posterior(
                kernel, X[i], Z[w], unit, np.zeros((len(w), len(w))), jitter
            )
    return A, F


def natural_bound(A, F, y, m, s, P, likelihood, noise, weight, kl_weight, nodes=None):
    """Return sum_i weight_i ELL_i - kl_weight sum_q KL(N(m_q, diag s_q) || N(0, P)).

    q(f_i) = N(a_i' m, F_i + a_i' diag(s) a_i); m and s (M, Q), y as in
    `expected_log_prob`.
    """
    total = 0.0
    for i in range(len(y)):
        v = F[i] + A[i] ** 2 @ s
        ell = expected_log_prob(likelihood, y[i], A[i] @ m, v, noise, nodes)
        total += weight[i] * ell
    for q in range(m.shape[1]):
        total -= kl_weight * gaussian_kl(m[:, q], np.diag(s[:, q]), P)
    return total


def natural_optimum(A, y, P, noise, weight, kl_weight):
    """Return m and s (M,) at the maximum of `natural_bound`, Gaussian, one output."""
    data = A.T @ np.diag(weight / noise) @ A
    prior = kl_weight * np.linalg.inv(P)
    m = np.linalg.solve(data + prior, A.T @ (weight / noise * y))
    return m, kl_weight / np.diag(data + prior)


def solve_gp(kernel, X, y, Z, O, noise, X_new, jitter):  # noqa: E741  as in the paper
    """Return the bound, and mean and variance of f at X_new (n,), of SOLVE-GP.

    Shi, Titsias and Mnih (2020), with the best q(u) q(v) for targets y (n,) of Gaussian
    noise: f = g + h, g given u at Z, and h given v at O, a process with the covariance
    of f given u.
    """
    K_Z = kernel_matrix(kernel, Z) + jitter * np.eye(len(Z))

    def rest(A, B=None):
        other = A if B is None else B
        projected = kernel_matrix(kernel, A, Z) @ np.linalg.solve(
            K_Z, kernel_matrix(kernel, Z, other)
        )
        return kernel_matrix(kernel, A, B) - projected

    C_O = rest(O) + jitter * np.eye(len(O))

    def weights(A):
        first = np.linalg.solve(K_Z, kernel_matrix(kernel, Z, A)).T
        second = np.linalg.solve(C_O, rest(O, A)).T
        return np.hstack([first, second])

    def left_open(A):
        W = weights(A)[:, len(Z) :]
        return np.diag(rest(A)) - np.sum((W @ C_O) * W, axis=1)

    M = len(Z)
    prior = np.zeros((M + len(O), M + len(O)))
    prior[:M, :M], prior[M:, M:] = K_Z, C_O
    W = weights(X)
    precision = W.T @ W / noise + np.linalg.inv(prior)
    m = np.linalg.solve(precision, W.T @ y / noise)
    S = np.zeros_like(prior)
    S[:M, :M] = np.linalg.inv(precision[:M, :M])
    S[M:, M:] = np.linalg.inv(precision[M:, M:])

    def moments(A):
        return weights(A) @ m, left_open(A) + np.sum((weights(A) @ S) * weights(A), 1)

    bound = -sum(
        gaussian_kl(m[part], S[part, part], prior[part, part])
        for part in (slice(M), slice(M, None))
    )
    for target, mu, v in zip(y, *moments(X), strict=True):
        bound += gaussian_expectation(target, mu, v, noise)
    return bound, *moments(X_new)
