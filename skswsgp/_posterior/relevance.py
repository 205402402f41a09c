"""Which columns of X the latent functions depend on."""

import numpy as np

from skswsgp._posterior.gradient import mean_slopes

MOST_ROWS = 2000  # inducing points with slopes, which take some tenths of a second


def squared_slopes(posterior, scale):
    """Return the squared slopes (n, D) of the latent means by the columns of X.

    They are those at n of the inducing points, in units of the columns' `scale` (D,),
    and summed over latent functions.
    """
    Z, M = posterior.model.Z, len(posterior.model.Z)
    places = np.unique(np.linspace(0, M - 1, min(M, MOST_ROWS)).astype(int))
    slopes, _ = mean_slopes(posterior, Z[places])
    return np.sum((slopes * scale) ** 2, axis=1)
