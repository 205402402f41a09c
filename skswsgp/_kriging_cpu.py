"""Loops of kriging on the threads of the CPU; no formula stands here."""

import math

import numpy as np

from skswsgp._engine_cpu import CHUNKS, add_chunks, chunk_bounds, clear
from skswsgp._evaluation_cpu import store
from skswsgp._jit import get_thread_id, njit, njit_parallel, prange
from skswsgp._kriging import differentiate_krige, gather_data, krige
from skswsgp._state import of_thread


@njit
def gradient_chunk(model, batch, start, n, c, works, t, grads):
    """Derivatives of the log density of chunk c of the n rows from `start`."""
    work = of_thread(works, t)
    clear(grads, c)
    H = batch.active.shape[1]
    d_log, d_noise = grads.d_log[c], grads.d_noise[c]
    first, last = chunk_bounds(c, n)
    for row in range(start + first, start + last):
        weight = batch.weight[row]
        grads.sums[c, 0] += weight * differentiate_krige(
            model, batch.X, batch.y, batch.active, row, H, weight, work, d_log, d_noise
        )


@njit
def predict_chunk(model, batch, c, works, t, mu, v):
    """mu and F of chunk c of the rows of the batch, NaN where C has no factor."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    first, last = chunk_bounds(c, batch.X.shape[0])
    for row in range(first, last):
        gather_data(model, batch.X, batch.active, row, H, work)
        for q in range(mu.shape[1]):
            if krige(model, work, H, q) < 0.0:
                work.latent[0, q] = math.nan
                work.latent[1, q] = math.nan
        store(work.latent, True, row, mu, v)


# --- launches; call them within `launch` ----------------------------------------------


@njit_parallel
def kriging_gradients(model, batch, start, n, works, grads):
    """Derivatives of sum_i weight_i log p(y_i | neighbours), n rows from `start`."""
    for chunk in prange(CHUNKS):
        c = np.int64(chunk)
        gradient_chunk(model, batch, start, n, c, works, get_thread_id(), grads)
    add_chunks(grads)


@njit_parallel
def kriging_predictions(model, batch, works, mu, v):
    """mu and F of all rows of the batch, (n, Q)."""
    for chunk in prange(CHUNKS):
        predict_chunk(model, batch, np.int64(chunk), works, get_thread_id(), mu, v)
