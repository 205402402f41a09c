"""Loops of kriging on the threads of the CPU; no formula stands here."""

import math

from skswsgp._engine_cpu import CHUNKS, add_chunks, chunk_bounds, clear
from skswsgp._evaluation_cpu import store
from skswsgp._jit import njit_part, share
from skswsgp._kriging import differentiate_krige, gather_data, krige
from skswsgp._state import of_thread


@njit_part
def differentiate_chunks(first, last, t, model, batch, start, n, works, grads):
    """Derivatives of the log density of some chunks of the n rows from `start`."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    for c in range(first, last):
        clear(grads, c)
        d_log, d_noise = grads.d_log[c], grads.d_noise[c]
        begin, end = chunk_bounds(c, n)
        for row in range(start + begin, start + end):
            weight = batch.weight[row]
            grads.sums[c, 0] += weight * differentiate_krige(
                model, batch.X, batch.y, batch.active, row, H, weight, work, d_log,
                d_noise,
            )  # fmt: skip


@njit_part
def predict_rows(first, last, t, model, batch, works, mu, v):
    """mu and F of rows first to last of the batch, NaN where C has no factor."""
    work = of_thread(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        gather_data(model, batch.X, batch.active, row, H, work)
        for q in range(mu.shape[1]):
            if krige(model, work, H, q) < 0.0:
                work.latent[0, q] = math.nan
                work.latent[1, q] = math.nan
        store(work.latent, True, row, mu, v)


# --- launches, on as many threads as there are work arrays ----------------------------


def kriging_gradients(model, batch, start, n, works, grads):
    """Derivatives of sum_i weight_i log p(y_i | neighbours), n rows from `start`."""
    arguments = model, batch, start, n, works, grads
    share(differentiate_chunks, len(works.a), CHUNKS, *arguments)
    add_chunks(grads)


def kriging_predictions(model, batch, works, mu, v):
    """mu and F of all rows of the batch, (n, Q)."""
    share(predict_rows, len(works.a), len(batch.X), model, batch, works, mu, v)
