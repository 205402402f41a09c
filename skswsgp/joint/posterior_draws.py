"""Draws from q(u), by which functions at different rows go together."""

import numpy as np

from skswsgp._compiled.tiles import BLOCK
from skswsgp._linear.site_rows import row_noise
from skswsgp._rows.statistics import LARGEST_SEED
from skswsgp._solvers.progress import warn_caller


@np.errstate(all="ignore")  # results are checked
def draw(solver, n_draws, rng):
    """Return draws of u - m from the optimal q(u), (M, n_draws, Q), or None.

    `solver` is a `NaturalSolver`. With P = R' R and standard normal e they are the
    solutions u of

        B u = beta^1/2 A' W^1/2 e_1 + beta R' e_2,

    whose covariance is beta B^-1, all of it, of which the solver keeps the diagonal.
    None stands for draws that could not be solved for.
    """
    sites, seed = solver.sites, rng.randint(LARGEST_SEED)
    model, tolerance = solver.engine.model, solver.tuning.round_tolerance
    (M, Q), beta = model.m.shape, model.kl_weight
    u = np.zeros((M, n_draws, Q))
    for q in range(Q):
        for first in range(0, n_draws, BLOCK):
            k = min(BLOCK, n_draws - first)
            noise = sites.noise((seed, 0, q, first), k)
            right = np.sqrt(beta) * sites.noise_sums(q, noise)
            e_2 = np.ascontiguousarray(row_noise((seed, 1, q, first), 0, M, k))
            right += beta * solver.prior.rows.rmatvec(e_2)
            part, which = np.zeros((M, k)), np.full(k, q)
            left, _ = solver.solve_for(part, right, which, tolerance)
            if len(left) or not np.isfinite(part).all():
                return None
            u[:, first : first + k, q] = part
    return u


def draws_of_fit(solver, settings, rng):
    """Return the fitted attribute of draws from q(u), or none and a warning."""
    u = draw(solver, settings.tuning.n_draws, rng)
    if u is not None:
        u = u.astype(settings.dtype)
        return {"posterior_draws_": u if u.shape[2] > 1 else u[:, :, 0]}
    more = "" if settings.dtype == "float64" else "; dtype='float64' may help"
    warn_caller(
        "the draws from q(u) did not converge: the model is kept without them, and "
        f"sample_f and return_cov try again{more}.",
    )
    return {}
