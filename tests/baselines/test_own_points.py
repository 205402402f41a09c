"""Rows with points of their own: derivatives by all their numbers, and identities."""

import numpy as np
import pytest
import reference
from helpers import assert_derivatives
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.program import refresh_scales
from skswsgp._point.adam_step import make_optimizer, update_parameters
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._solvers.model import build_model
from skswsgp.baselines.own_points import OwnPoints
from skswsgp.kernels import ArcCosine

M, D, N, TOTAL = 3, 2, 7, 20.0
JITTER = 1e-8
KERNELS = {
    "matern": ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5),
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "arc-cosine": ArcCosine(1, 1.3, 0.7),
}
CASES = [  # each kernel and each kind of likelihood
    ("matern", "gaussian", 2),
    ("rbf-white", "bernoulli", 1),
    ("arc-cosine", "softmax", 3),
    ("matern", "student_t", 1),
    ("matern", "poisson", 1),
]


def make_points(kernel, likelihood, Q, n_threads=1):
    """Return `OwnPoints` of M points."""
    start = {
        "kernel_": KERNELS[kernel],
        "inducing_points_": np.zeros((M, D)),
        "inducing_mean_": np.zeros((M, Q)),
        "inducing_covariance_": np.zeros((M, M, Q)),
        "likelihood_shape_": np.full(Q, 5.0),
        "_jitter": JITTER,
    }
    if LIKELIHOODS[likelihood].has_noise:
        start["noise_variance_"] = np.linspace(0.1, 0.2, Q)
    how = {"total_weight": TOTAL, "train_inducing": True}
    model, _ = build_model(start, (likelihood, Q), "float64", **how)
    return OwnPoints(model, np.full(D, 0.1), np.array([1.5, 0.7]), n_threads)


def make_rows(likelihood, Q, points, rng):
    """Return X, y, weights and outputs of a network."""
    X, weight = rng.normal(size=(N, D)), rng.uniform(0.5, 2.0, N)
    record = LIKELIHOODS[likelihood]
    if record.has_noise:
        y = rng.normal(size=(N, Q))
    elif record.counts:
        y = np.hstack([rng.integers(0, 5, (N, Q)), rng.normal(size=(N, 1))])
    else:
        y = record.encode(rng.integers(0, max(Q, 2), N), max(Q, 2))
    return X, y, weight, 0.5 * rng.normal(size=(N, points.n_outputs))


def unpacked(points, outputs, Q):
    """Return Z (M, D), m (M, Q) and L (M, M, Q) for the outputs of one row."""
    Z = points.units[0] + points.units[1] * outputs[: M * D].reshape(M, D)
    m = outputs[M * D : M * (D + Q)].reshape(M, Q)
    L, rows = np.zeros((M, M, Q)), np.tril_indices(M)
    for q, part in enumerate(np.split(outputs[M * (D + Q) :], Q)):
        L[(*rows, q)] = part
        L[..., q][np.diag_indices(M)] = np.exp(np.diag(L[..., q]))
    return Z, m, L


def terms(points, X, y, outputs):
    """Return E log p(y | f) and KL, each (n,), of rows one at a time."""
    found = []
    for i in range(len(X)):
        points.gradients(X[[i]], y[[i]], np.ones(1), outputs[[i]])
        found.append(points.grads.sums[0].copy())
    return np.transpose(found)


@pytest.mark.parametrize(("kernel", "likelihood", "Q"), CASES)
def test_derivatives_by_all_numbers(kernel, likelihood, Q, rng):
    points = make_points(kernel, likelihood, Q)
    X, y, weight, outputs = make_rows(likelihood, Q, points, rng)
    model, start = points.model, points.model.params.copy()

    def objective(theta):
        theta = theta.copy()
        outs, logs = np.split(theta, [outputs.size])
        model.params[:] = np.exp(logs[: len(start)])
        model.noise[:] = np.exp(logs[len(start) :])
        refresh_scales(model)
        ell, kl = terms(points, X, y, outs.reshape(outputs.shape))
        return weight @ (ell - kl / TOTAL)

    theta = np.concatenate([outputs.ravel(), np.log(start), np.log(model.noise)])
    d_outputs = points.gradients(X, y, weight, outputs)
    grads = points.grads
    found = np.concatenate([d_outputs.ravel(), grads.d_log[0], grads.d_noise[0]])
    sums = grads.sums[0].copy()
    ell, kl = terms(points, X, y, outputs)
    np.testing.assert_allclose(sums, [weight @ ell, weight @ kl], rtol=1e-12)
    assert_derivatives(found, objective, theta)


@pytest.mark.parametrize(("kernel", "likelihood", "Q"), CASES[:2])
def test_the_same_numbers_for_all_rows_are_an_svgp(kernel, likelihood, Q, rng):
    points = make_points(kernel, likelihood, Q)
    X, y, _, outputs = make_rows(likelihood, Q, points, rng)
    outputs[:] = outputs[0]
    Z, m, L = unpacked(points, outputs[0], Q)
    noise = points.model.noise
    known = KERNELS[kernel], X, y, Z, m, L, likelihood
    expected = reference.svgp_lower_bound(
        *known, noise, JITTER, kl_weight=N / TOTAL, n_nodes=20
    )
    points.gradients(X, y, np.ones(N), outputs)
    ell, kl = points.grads.sums[0]
    assert ell - kl / TOTAL == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_row_is_predicted_from_its_own_points(kernel, rng):
    points = make_points(kernel, "gaussian", 2)
    X, _, _, outputs = make_rows("gaussian", 2, points, rng)
    mu, v = points.predict(X, outputs)
    for i in range(N):
        Z, m, L = unpacked(points, outputs[i], 2)
        np.testing.assert_allclose(points.points(outputs[[i]])[0], Z)
        own = KERNELS[kernel], X[[i]], Z, m, L, M, JITTER
        expected = reference.predict(*own, neighbors=np.arange(M)[None])
        np.testing.assert_allclose([mu[[i]], v[[i]]], expected, rtol=1e-9)


def test_q_equal_to_p_is_the_prior_for_any_points(rng):
    points = make_points("matern", "gaussian", 1)
    X, y, _, outputs = make_rows("gaussian", 1, points, rng)
    for row in outputs:
        Z, *_ = unpacked(points, row, 1)
        K = KERNELS["matern"](Z) + JITTER * 1.4 * np.eye(M)
        L = np.linalg.cholesky(K)
        L[np.diag_indices(M)] = np.log(np.diag(L))
        row[M * D :] = np.concatenate([np.zeros(M), L[np.tril_indices(M)]])
    mu, v = points.predict(X, outputs)
    np.testing.assert_allclose(mu, 0.0, atol=1e-12)
    np.testing.assert_allclose(v, 1.4, rtol=1e-9)
    _, kl = terms(points, X, y, outputs)
    np.testing.assert_allclose(kl, 0.0, atol=1e-8)


@pytest.mark.usefixtures("eager_threads")
def test_threads_do_not_change_bits(rng):
    found = []
    for n_threads in (1, 2, 8):
        points = make_points("matern", "gaussian", 2, n_threads)
        rows = make_rows("gaussian", 2, points, np.random.default_rng(0))
        d_outputs = points.gradients(*rows)
        grads = points.grads
        moments = points.predict(rows[0], rows[3])
        parts = d_outputs, grads.d_log[0], grads.d_noise[0], grads.sums[0], *moments
        found.append(np.concatenate([np.ravel(part) for part in parts]))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_matrix_that_has_no_factor_is_counted_and_gives_nan(rng):
    points = make_points("matern", "gaussian", 1)
    X, y, weight, outputs = make_rows("gaussian", 1, points, rng)
    outputs[2, 0] = np.nan
    points.gradients(X, y, weight, outputs)
    assert np.isnan(points.grads.sums[0]).all()
    assert points.grads.jitter_counts[:, 1].sum() == 1
    mu, v = points.predict(X, outputs)
    assert np.isnan([mu[2], v[2]]).all()
    rest = np.arange(N) != 2
    assert np.isfinite([mu[rest], v[rest]]).all()


def test_steps_of_the_parameters_reach_all_threads(rng):
    points = make_points("matern", "gaussian", 1, n_threads=2)
    X, y, weight, outputs = make_rows("gaussian", 1, points, rng)
    compiled = compile_kernel(KERNELS["matern"], D, "float64")
    optimizer = make_optimizer(
        points.model, compiled.free, compiled.log_bounds, np.ones(D)
    )
    before = [points.model.params.copy(), points.model.noise.copy()]
    points.gradients(X, y, weight, outputs)
    slopes = np.concatenate([points.grads.d_log[0], points.grads.d_noise[0]])
    update_parameters(points.model, optimizer, points.grads, 0.01)
    after = np.concatenate([points.model.params, points.model.noise])
    moved = np.log(after / np.concatenate(before))
    np.testing.assert_allclose(moved, 0.01 * np.sign(slopes), rtol=1e-6)
    for model in points._models:
        assert model.params is points.model.params
        assert model.inv_scale is points.model.inv_scale
