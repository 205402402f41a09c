"""SOLVE-GP: the paper's equations, and its place between two SVGPs."""

import numpy as np
import pytest
import reference
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._point.likelihood_records import SOFTMAX_NODES, normal_nodes
from skswsgp.baselines import SOLVEGPClassifier, SOLVEGPRegressor

pytestmark = pytest.mark.usefixtures("few_steps")
KERNEL = ConstantKernel(1.3, "fixed") * Matern([0.9, 1.5], "fixed", nu=1.5)
HOW = {"n_inducing": 8, "n_orthogonal": 6, "random_state": 0}


@pytest.fixture
def table(rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=60)


def absolute_jitter(model):
    """Return the variance on the diagonal of covariances of points."""
    return model._jitter * 1.3  # the variance of the kernel


def collapsed_bound(model, X, y, points):
    """Return the best bound of an SVGP, and its mean at X (Titsias, 2009)."""
    K = KERNEL(points) + absolute_jitter(model) * np.eye(len(points))
    cross, noise = KERNEL(X, points), model.noise_variance_
    Q = cross @ np.linalg.solve(K, cross.T)
    evidence = multivariate_normal.logpdf(y, cov=Q + noise * np.eye(len(X)))
    mean = Q @ np.linalg.solve(Q + noise * np.eye(len(X)), y)
    return evidence - np.trace(KERNEL(X) - Q) / (2.0 * noise), mean


@pytest.mark.parametrize("Q", [1, 2])
def test_it_follows_the_equations_of_the_paper(Q, table, rng):
    X, y = table
    y = y if Q == 1 else np.stack([y, X[:, 0] ** 2 + rng.normal(size=60)], axis=1)
    model = SOLVEGPRegressor(KERNEL, **HOW).fit(X, y)
    Z, O = model.inducing_points_, model.orthogonal_points_  # noqa: E741
    assert (len(Z), len(O)) == (8, 6)
    X_new = rng.uniform(-3.0, 3.0, size=(9, 2))
    standard = ((y - model.y_mean_) / model.y_scale_).reshape(60, Q)
    mean, std = (part.reshape(9, Q) for part in model.predict(X_new, return_std=True))
    bound, noises = 0.0, np.atleast_1d(model.noise_variance_)
    scale, middle = np.atleast_1d(model.y_scale_), np.atleast_1d(model.y_mean_)
    for q, noise in enumerate(noises):
        twin = reference.solve_gp(
            KERNEL, X, standard[:, q], Z, O, noise, X_new, absolute_jitter(model)
        )
        bound += twin[0]
        expected = middle[q] + scale[q] * twin[1]
        np.testing.assert_allclose(mean[:, q], expected, rtol=0, atol=1e-9)
        deviation = scale[q] * np.sqrt(twin[2] + noise)
        np.testing.assert_allclose(std[:, q], deviation, rtol=0, atol=1e-9)
    assert model.lower_bound_ == pytest.approx(bound, abs=1e-8)


def test_means_are_those_of_an_svgp_with_all_points(table):
    X, y = table
    model = SOLVEGPRegressor(KERNEL, normalize_y=False, **HOW).fit(X, y)
    points = np.concatenate([model.inducing_points_, model.orthogonal_points_])
    _, mean = collapsed_bound(model, X, y, points)
    np.testing.assert_allclose(model.predict(X), mean, rtol=0, atol=1e-9)


def test_bounds_are_in_order_and_the_loss_has_its_formula(table):
    X, y = table
    model = SOLVEGPRegressor(KERNEL, normalize_y=False, **HOW).fit(X, y)
    Z, noise = model.inducing_points_, model.noise_variance_
    points = np.concatenate([Z, model.orthogonal_points_])
    first, _ = collapsed_bound(model, X, y, Z)
    both, _ = collapsed_bound(model, X, y, points)
    evidence = multivariate_normal.logpdf(y, cov=KERNEL(X) + noise * np.eye(60))
    assert first + 0.1 < model.lower_bound_ < both - 0.01 < both < evidence - 0.1
    factor = np.linalg.cholesky(KERNEL(points) + absolute_jitter(model) * np.eye(14))
    A = np.linalg.solve(factor, KERNEL(points, X))
    B = A @ A.T / noise + np.eye(14)
    parts = B[:8, :8], B[8:, 8:], B
    log_dets = [np.linalg.slogdet(part)[1] for part in parts]
    lost = 0.5 * (log_dets[0] + log_dets[1] - log_dets[2])
    assert model.lower_bound_ == pytest.approx(both - lost, abs=1e-9)


def test_without_a_second_group_it_is_an_svgp(table):
    X, y = table
    how = HOW | {"n_orthogonal": 0}
    model = SOLVEGPRegressor(KERNEL, normalize_y=False, **how).fit(X, y)
    assert model.orthogonal_points_.shape == (0, 2)
    bound, mean = collapsed_bound(model, X, y, model.inducing_points_)
    assert model.lower_bound_ == pytest.approx(bound, abs=1e-9)
    np.testing.assert_allclose(model.predict(X), mean, rtol=0, atol=1e-9)


def test_a_point_at_each_row_gives_the_exact_mean(table):
    X, y = table
    how = {"n_inducing": 25, "n_orthogonal": 70, "normalize_y": False}
    model = SOLVEGPRegressor(KERNEL, random_state=0, **how)
    X = np.concatenate([X, X[:10]])  # rows at one place are one point
    y = np.concatenate([y, y[:10] + 0.1])
    model.fit(X, y)
    mean, _ = reference.gp_predict(KERNEL, X, y, model.noise_variance_, X)
    np.testing.assert_allclose(model.predict(X), mean, rtol=0, atol=1e-5)


def test_rows_that_are_points_already_do_not_count(table):
    X, y = table
    how = {"n_inducing": 35, "n_orthogonal": 20, "random_state": 0}  # 35 random rows
    model = SOLVEGPRegressor(KERNEL, **how).fit(X, y)
    points = np.concatenate([model.inducing_points_, model.orthogonal_points_])
    assert (len(model.inducing_points_), len(points)) == (35, 55)
    assert len(np.unique(points, axis=0)) == 55
    copies = np.repeat(X[:10], 6, axis=0) + 1e-9 * np.arange(60)[:, None]
    for n_orthogonal in (0, 20):
        model.set_params(n_inducing=35, n_orthogonal=n_orthogonal).fit(copies, y)
        points = np.concatenate([model.inducing_points_, model.orthogonal_points_])
        assert len(points) == 10
        assert np.isfinite(model.predict(X)).all()


def test_weights_act_like_repetition(table, rng):
    X, y = table
    weight = rng.integers(1, 4, size=60)
    rows = np.repeat(np.arange(60), weight)
    how = {"n_inducing": 60, "n_orthogonal": 0, "random_state": 0}
    weighted = SOLVEGPRegressor(KERNEL, **how).fit(X, y, sample_weight=weight)
    repeated = SOLVEGPRegressor(KERNEL, **how).fit(X[rows], y[rows])
    mean = weighted.predict(X)
    # the noise of a row of mean weight; the same rows learn it
    relative = weighted.noise_variance_ / np.mean(weight)
    assert relative == pytest.approx(
        repeated.noise_variance_ / np.mean(weight), rel=0.1
    )
    np.testing.assert_allclose(mean, repeated.predict(X), rtol=0, atol=0.02)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_bound_of_classes_is_its_definition_and_largest(n_classes, table, rng):
    X, y = table
    labels = np.digitize(y, [0.0] if n_classes == 2 else [-0.5, 0.6])
    model = SOLVEGPClassifier(KERNEL, **HOW).fit(X, labels)
    points = np.concatenate([model.inducing_points_, model.orthogonal_points_])
    factor = np.linalg.cholesky(KERNEL(points) + absolute_jitter(model) * np.eye(14))
    A = np.linalg.solve(factor, KERNEL(points, X)).T
    Q = 1 if n_classes == 2 else 3
    m0 = model.inducing_mean_.reshape(14, Q)
    L = model.inducing_covariance_.reshape(14, 14, Q)
    assert np.count_nonzero(L[8:, :8]) == 0
    nodes = None
    if Q > 1:
        nodes = normal_nodes(SOFTMAX_NODES, Q)

    def bound(m):
        total = 0.0
        for q in range(Q):
            total -= reference.gaussian_kl(m[:, q], L[..., q] @ L[..., q].T, np.eye(14))
        mu = A @ m + model.prior_mean_
        v = (KERNEL.diag(X) - np.sum(A**2, axis=1))[:, None] + np.stack(
            [np.sum((A @ L[..., q]) ** 2, axis=1) for q in range(Q)], axis=1
        )
        for label, mean, variance in zip(labels, mu, v, strict=True):
            if Q == 1:
                total += reference.expected_log_prob(
                    "bernoulli", np.array([2.0 * label - 1.0]), mean, variance, None
                )
            else:
                total += reference.softmax_expectation(label, mean, variance, nodes)
        return total

    assert model.lower_bound_ == pytest.approx(bound(m0), abs=1e-6)
    for _ in range(5):
        step = rng.normal(size=m0.shape)
        assert bound(m0 + 0.2 * step) < bound(m0)
    # the shares of the classes hold where there are no rows
    far = model.predict_proba([[1e6, 1e6]])[0]
    np.testing.assert_allclose(far, np.bincount(labels) / 60, atol=0.01)
