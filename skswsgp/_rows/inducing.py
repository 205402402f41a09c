"""Initial inducing points: centres of k-means, rows of the data, or the user's own."""

import warnings

import numpy as np
from sklearn.utils.random import sample_without_replacement

from skswsgp._compiled.threads import index_blocks, scikit_learn_threads
from skswsgp._rows.statistics import first_of_each

# Epochs of k-means. A criterion for stopping would be a sum, whose bits depend on the
# number of threads.
KMEANS_EPOCHS = 5
# Rows per centre, below which centres hardly differ from random rows
LEAST_ROWS_PER_CENTER = 5
MOST_ROWS_PER_CENTER = 20  # rows per centre, beyond which centres hardly move


def initial_inducing_points(
    X, n_inducing, method, rng, feature_scale, tuning, sample_weight=None, rows=None
):
    """Return inducing points (M, D), float64, in the units of X (N, D).

    They are the distinct ones of `n_inducing` points: of the given array `method`, of
    centres of k-means on X / feature_scale, where a scale of zero counts as one, or of
    random rows. Random rows also replace centres that would take more than
    `tuning.kmeans_pairs`. `rows` are the numbers (n,) of those that may be used, None
    for all, and `sample_weight` (n,) their weights. X may be a memory map, which is
    read at the rows that are used.
    """
    if not isinstance(method, str):
        return distinct_rows(method)[0]
    rows = np.arange(len(X)) if rows is None else rows
    affordable = tuning.kmeans_pairs // n_inducing  # rows in an epoch
    dear = affordable < LEAST_ROWS_PER_CENTER * n_inducing
    if method == "random" or 2 * n_inducing > len(rows) or dear:
        drawn = rows[_draw(len(rows), n_inducing, rng)]
        return distinct_rows(np.asarray(X[drawn], dtype=np.float64))[0]
    size = min(max(10_000, MOST_ROWS_PER_CENTER * n_inducing), affordable)
    drawn = _draw(len(rows), size, rng)
    sample = np.asarray(X[rows[drawn]], dtype=np.float64)
    distinct, _ = distinct_rows(sample)
    if n_inducing >= len(distinct):
        return distinct
    weight = None if sample_weight is None else np.asarray(sample_weight)[drawn]
    centres = _centres(sample, n_inducing, rng, feature_scale, weight, tuning)
    return distinct_rows(centres)[0]


def _draw(n_rows, n_drawn, rng):
    """Return the sorted indices of rows, drawn without replacement."""
    if n_drawn >= n_rows:
        return np.arange(n_rows)
    return np.sort(sample_without_replacement(n_rows, n_drawn, random_state=rng))


def distinct_rows(Z):
    """Return the distinct rows of Z, and the index of each row among them.

    The distinct rows stay in the order of Z, so that neither the order nor the sign of
    columns matters.
    """
    first, group = first_of_each(Z)
    return Z[first], group


def point_of_each_row(Z, X):
    """Return the index of the point of Z (M, D) at each row of X (n, D).

    Returns None unless the points are the distinct rows. They are those of
    `initial_inducing_points`, but for rounding.
    """
    most = largest_rounding(Z)
    if np.any(np.abs(X[0] - Z[0]) > most):  # nearly always, if points are others
        return None
    distinct, group = distinct_rows(np.asarray(X, dtype=np.float64))
    if len(distinct) != len(Z):
        return None
    return group if np.all(np.abs(distinct - Z) <= most) else None


def rows_at_points(Z, data, nearest):
    """Return the rows of `TrainingRows` that lie at their `nearest` points of Z."""
    most, places = largest_rounding(Z), []
    for rows in index_blocks(data.n_rows):
        steps = np.abs(data.take(rows).inputs - Z[nearest[rows]])
        places.append(rows[np.all(steps <= most, axis=1)])
    return np.concatenate(places)


def largest_rounding(Z):
    """Return how far float32 may have moved coordinates (D,) of points Z (M, D)."""
    return 4.0 * np.finfo(np.float32).eps * np.abs(Z - Z.mean(axis=0)).max(axis=0)


def _centres(sample, n_centres, rng, feature_scale, weight, tuning):
    """Return centres of k-means on the centred, scaled sample, in its units.

    k-means++ draws from three batches; each centre is the best of 2 + log M rows.
    Where that is a large part of the cost, it did not help on all data.
    """
    from sklearn.cluster import MiniBatchKMeans  # a tenth of a second, for few fits

    batch_size = max(1024, 2 * n_centres)
    pairs = 3 * batch_size * n_centres * (2.0 + np.log(n_centres))
    scale = np.where(np.asarray(feature_scale) > 0, feature_scale, 1.0)
    middle = sample.mean(axis=0)
    kmeans = MiniBatchKMeans(
        n_centres,
        init="k-means++" if 10 * pairs <= tuning.kmeans_pairs else "random",
        n_init=1,
        batch_size=batch_size,
        max_iter=KMEANS_EPOCHS,
        max_no_improvement=None,
        random_state=rng,
    )
    with scikit_learn_threads(), warnings.catch_warnings():
        # scikit-learn warns of a memory leak of MKL on Windows.
        warnings.filterwarnings("ignore", "MiniBatchKMeans is known", UserWarning)
        # Rows and centres are rounded to nine decimals. The last digits of rows depend
        # on the units of the columns, and those of centres may part two on one row.
        kmeans.fit(np.round((sample - middle) / scale, 9), sample_weight=weight)
    return np.round(kmeans.cluster_centers_, 9) * scale + middle


def given_points(points, n_features, n_inducing):
    """Return the user's inducing points as float64; raise ValueError for bad ones.

    `n_inducing` is the user's number of them, or "auto".
    """
    try:
        if np.iscomplexobj(points):
            raise TypeError("complex numbers")
        Z = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "inducing_points is no table of real numbers: expected shape (n_inducing, "
            f"n_features) with n_features={n_features}, or 'kmeans' or 'random'; got "
            f"{error}."
        ) from None
    if Z.ndim != 2 or Z.shape[1] != n_features or len(Z) == 0:
        raise ValueError(
            f"inducing_points has shape {Z.shape}: expected (n_inducing, n_features) "
            f"with n_features={n_features}; pass one row for each inducing point."
        )
    if not np.isfinite(Z).all():
        raise ValueError(
            f"inducing_points has {np.sum(~np.isfinite(Z))} entries that are NaN or "
            "infinite: expected finite numbers; remove those rows."
        )
    if n_inducing not in ("auto", len(Z)):
        raise ValueError(
            f"n_inducing={n_inducing} with inducing_points of {len(Z)} rows: expected "
            "as many rows; leave n_inducing='auto' to take all that are given."
        )
    return Z
