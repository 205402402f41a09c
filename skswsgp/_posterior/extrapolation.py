"""Whether rows lie where a model knows next to nothing, though it knows its own.

A row is unknown if the variance of every latent function there is nearly the prior's.
That many rows are unknown says nothing where inducing points are unknown to each other:
then the data said little, as with a signal far below the noise, or the functions change
between any two rows.
"""

import numpy as np

from skswsgp._kernel_search.kernel_learning import MAX_WIDE_NEIGHBORS
from skswsgp._neighbors.lists import without_own
from skswsgp._rows.columns import mapped
from skswsgp._solvers.progress import warn_caller

# Share of the prior variance above which a function counts as unknown: the data have
# then explained less than a twentieth of it, and means are within some fifth of a prior
# deviation, sqrt(0.05), of that of the prior.
UNKNOWN_VARIANCE = 0.95
# Number of rows below which nothing is said: a few rows are often far away on purpose,
# and their variances are read one by one.
LEAST_ROWS = 10
# By how much the share of unknown rows must exceed that of inducing points of which
# others know nothing. Of ten rows like these points so many are unknown with a
# probability of 0.002 at most, whatever the share is.
MOST_UNKNOWN = 0.5
N_POINTS = 100  # inducing points that are looked at, which know a share within 0.05


class ExtrapolationWarning(UserWarning):
    """Most rows of a prediction lie where the model knows next to nothing.

    Predictions with variances warn, once a call, where more than half of at least 10
    rows have, in every latent function, more than 95 % of the prior variance. If a
    share of the inducing points knows as little of the others, that share and a half of
    the rows must.

    Examples
    --------
    Without this warning:

    >>> import warnings
    >>> from skswsgp import ExtrapolationWarning
    >>> warnings.simplefilter("ignore", ExtrapolationWarning)
    """


def share_of_unknown_rows(posterior, X, variance):
    """Return the share of rows that are unknown where it matters, else 0.0.

    `variance` (n, Q) is the local one of a `Posterior` at rows of X.
    """
    share = float(np.mean(are_unknown(posterior, X, variance)))
    if len(X) < LEAST_ROWS or share <= MOST_UNKNOWN:
        return 0.0
    return share if share - share_of_unknown_points(posterior) > MOST_UNKNOWN else 0.0


def are_unknown(posterior, X, variance):
    """Return which rows (n,) are unknown; see `share_of_unknown_rows`."""
    prior = posterior.kernel.diag(mapped(X, posterior.linear_map))
    return np.all(variance > UNKNOWN_VARIANCE * prior[:, None], axis=1)


def share_of_unknown_points(posterior):
    """Return the share of inducing points of which others know nothing, 1.0 of two."""
    M = len(posterior.model.Z)
    H = min(posterior.n_neighbors, MAX_WIDE_NEIGHBORS, M - 2)
    if H < 1:
        return 1.0
    sample = np.unique(np.linspace(0, M - 1, N_POINTS).astype(int))
    Z = posterior.model.Z[sample]
    with posterior.engine(len(Z), H) as engine:
        # another kind of search may not suit the kernel, and predictions need none
        # where they use all inducing points
        options = posterior.search_options | {"search": "exact", "n_neighbors": H + 1}
        lists = without_own(engine.make_search(options).query(Z), sample)
        _, variance = engine.predict(Z, lists, with_variance=True)
    known = posterior._replace(linear_map=None)
    return np.mean(are_unknown(known, Z, variance))


def warn_of_extrapolation(share, n_rows):
    """Warn that a share of so many rows is unknown."""
    warn_caller(
        f"{round(share * n_rows)} of {n_rows} rows of X lie where the model knows next "
        f"to nothing, with more than {UNKNOWN_VARIANCE:.0%} of the prior variance: "
        "expected rows like those of fit; check columns, their units and levels, or "
        "filter skswsgp.ExtrapolationWarning.",
        ExtrapolationWarning,
    )
