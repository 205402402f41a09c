"""Prediction and the bound on given rows, on the threads of the CPU; loops only."""

from skswsgp._covariance import TRIANGLE, row_start
from skswsgp._engine_cpu import count_jitter
from skswsgp._jit import njit, njit_part, share
from skswsgp._likelihoods import expected_log_prob
from skswsgp._linalg import invert_factor, log_determinant, square_upper
from skswsgp._point import (
    evaluate,
    posterior,
    posterior_mean,
    posterior_of_tile,
    prepare,
    regress,
)
from skswsgp._shared import CROSS, OWN, evaluate_shared, factorise_all, fill_point
from skswsgp._state import of_thread


@njit
def store(latent, with_variance, row, mu, v):
    """Copy mu, and v if wanted, from the work arrays to a row of the results."""
    for q in range(mu.shape[1]):
        mu[row, q] = latent[0, q]
        if with_variance:
            v[row, q] = latent[1, q]


@njit_part
def predict_rows(first, last, t, model, batch, works, with_variance, mu, v, events):
    """q(f) of rows first to last of the batch, each with its own K_w."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        jitter = prepare(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, events, t)
        if jitter >= 0.0:
            if with_variance:
                posterior_of_tile(model, work, H)
            else:
                regress(work, work, row_start(H, TRIANGLE), 0.0, H)
                posterior_mean(work, work, H)
            store(work.latent, with_variance, row, mu, v)


@njit_part
def predict_shared_rows(
    first, last, t, model, X, factors, works, stack, with_variance, mu, v
):
    """q(f) of rows first to last of X; K is factorised already."""
    factor, work = of_thread(factors, 0), of_thread(works, t)
    M = model.Z.shape[0]
    for row in range(first, last):
        fill_point(model, X, row, factor, work, stack.column[t])
        if with_variance:
            kxx = work.values[work.values.shape[0] - 1, OWN]
            posterior(model, factor, work, CROSS, kxx, M)
        else:
            regress(factor, work, CROSS, 0.0, M)
            posterior_mean(factor, work, M)
        store(work.latent, with_variance, row, mu, v)


@njit_part
def weight_rows(first, last, t, model, batch, works, weights, variance, events):
    """a and F of rows first to last of the batch."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    start = row_start(H, TRIANGLE)
    for row in range(first, last):
        jitter = prepare(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, events, t)
        if jitter >= 0.0:
            kxx = work.values[work.values.shape[0] - 1, start + H]
            variance[row] = regress(work, work, start, kxx, H)
            for h in range(H):
                weights[row, h] = work.a[0, h]


@njit_part
def inverse_rows(first, last, t, model, batch, works, inverse, log_det, events):
    """K_w^-1 and log |K_w| of rows first to last of the batch."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        jitter = prepare(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, events, t)
        if jitter >= 0.0:
            invert_factor(work.chol, work.blocks, work.upper)
            square_upper(work.upper, work.inverse)
            log_det[row] = log_determinant(work.chol, H)
            for g in range(H):
                for h in range(H):
                    inverse[row, g, h] = work.inverse[g, h]


@njit_part
def expectation_rows(first, last, t, model, y, works, mu, v, ell, d_mu, d_v):
    """E log p(y | f), f ~ N(mu, v), and its derivatives for rows first to last."""
    work = of_thread(works, t)
    latent = work.latent
    for row in range(first, last):
        for q in range(mu.shape[1]):
            latent[0, q] = mu[row, q]
            latent[1, q] = v[row, q]
        ell[row] = expected_log_prob(
            model, model.noise, y, row, latent, work.scratch, work.d_noise
        )
        for q in range(mu.shape[1]):
            d_mu[row, q] = latent[2, q]
            d_v[row, q] = latent[3, q]


@njit_part
def bound_rows(first, last, t, model, batch, works, ell, kl, events):
    """E log p(y | f) and KL_w of rows first to last of the batch."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        ell[row], kl[row], jitter = evaluate(
            model, batch.X, batch.y, batch.active, row, H, work
        )
        count_jitter(model.jitter, jitter, events, t)


@njit_part
def bound_shared_rows(first, last, t, model, batch, factors, works, stack, ell):
    """E log p(y | f) of rows first to last of the batch; K is factorised already."""
    factor, work = of_thread(factors, 0), of_thread(works, t)
    for row in range(first, last):
        ell[row] = evaluate_shared(
            model, batch.X, batch.y, row, factor, work, stack.column[t]
        )


@njit
def start_shared(model, everyone, factors, events):
    """Factorise K once; return KL and the relative jitter."""
    kl, jitter = factorise_all(model, everyone, of_thread(factors, 0))
    count_jitter(model.jitter, jitter, events, 0)
    return kl, jitter


# --- launches, on as many threads as there are work arrays ----------------------------


def predict_local(model, batch, works, with_variance, mu, v, events):
    """q(f) of all rows of the batch: mu (n, Q) and, if wanted, v (n, Q) are set."""
    arguments = model, batch, works, with_variance, mu, v, events
    share(predict_rows, len(works.a), len(mu), *arguments)


def predict_shared(
    model, X, everyone, factors, works, stack, with_variance, mu, v, events
):
    """The same where every inducing point is active."""
    _, jitter = start_shared(model, everyone, factors, events)
    if jitter >= 0.0:
        arguments = model, X, factors, works, stack, with_variance, mu, v
        share(predict_shared_rows, len(works.a), len(mu), *arguments)


def weigh_neighbors(model, batch, works, weights, variance, events):
    """a = K^-1 k (n, H) and F = k(x, x) - k' a (n,) of all rows of the batch."""
    arguments = model, batch, works, weights, variance, events
    share(weight_rows, len(works.a), len(weights), *arguments)


def invert_covariances(model, batch, works, inverse, log_det, events):
    """K_w^-1 (n, H, H) and log |K_w| (n,) of all rows of the batch."""
    arguments = model, batch, works, inverse, log_det, events
    share(inverse_rows, len(works.a), len(inverse), *arguments)


def expectations(model, y, works, mu, v, ell, d_mu, d_v):
    """E log p(y | f) (n,) and its derivatives by mu and v (n, Q)."""
    arguments = model, y, works, mu, v, ell, d_mu, d_v
    share(expectation_rows, len(works.a), len(mu), *arguments)


def bound_local(model, batch, works, ell, kl, events):
    """E log p(y | f) and KL_w (n,) of all rows of the batch."""
    arguments = model, batch, works, ell, kl, events
    share(bound_rows, len(works.a), len(ell), *arguments)


def bound_shared(model, batch, everyone, factors, works, stack, ell, events):
    """The same where every inducing point is active; returns the one KL."""
    kl, jitter = start_shared(model, everyone, factors, events)
    if jitter >= 0.0:
        arguments = model, batch, factors, works, stack, ell
        share(bound_shared_rows, len(works.a), len(ell), *arguments)
    return kl
