"""Statistics of rows: spread, effective sample size, significance, duplicates."""

import math

import numpy as np
from scipy.special import ndtri, stdtrit

from skswsgp._compiled.threads import row_blocks

SAMPLE_ROWS = 20_000  # rows that stand for all: an average is then known to .7 %
LEAST_NOISE = 1e-8  # least known variance of noise over that of y
LEAST_EFFECTIVE = 8.0  # least effective sample size of rows that decide
ROUNDING = 1e-12  # spread of values over their size, below which they are constant
ERRORS = 2.0  # standard errors by which the mean gain of a richer model exceeds zero
HELD_OUT_FRACTION = 0.2  # fraction of rows held out to choose between kernels
LARGEST_SEED = np.iinfo(np.int32).max  # of what a random state is made from
MEAN_ROWS = 2000  # rows whose mean says enough: a score is then known to some 0.02


def standing_rows(n):
    """Return the numbers of rows that stand for all n, in a random order.

    What a fit draws afterwards is what it would draw without them.
    """
    return np.random.RandomState(0).permutation(n)[:SAMPLE_ROWS]


def order_of_content(X, rows, columns):
    """Return the places (n,) of some rows in an order of what they hold.

    `rows` (n,) are their numbers in X (N, D), and `columns` (n,) are compared where
    rows of X are equal. Neither the units of X nor the order of its columns matter,
    but between rows of which one has the numbers of the other in other columns.
    """
    parts, scale = list(row_blocks(len(rows))), 2.0**24  # beyond rounding of units
    ends = [(X[rows[part]].min(axis=0), X[rows[part]].max(axis=0)) for part in parts]
    low, high = np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]
    sums = np.empty((2, len(rows)))
    numbers, exact = np.zeros((2, len(rows)), dtype=np.uint64)
    with np.errstate(all="ignore"):  # units are judged later
        span = np.where(high > low, np.subtract(high, low, dtype=np.float64), 1.0)
        for part in parts:
            found = X[rows[part]].astype(np.float64)
            add_to_numbers(exact[part], found)
            shares = (found - low) / span
            squares = np.rint(scale * shares**2)
            shares = np.rint(scale * shares)
            sums[:, part] = shares.sum(axis=1), squares.sum(axis=1)
            add_to_numbers(numbers[part], shares)
    return np.lexsort([exact, *columns[::-1], numbers, *sums])


def add_to_numbers(numbers, keys):
    """Mix rows of keys (n, k), in float64, into a number of 64 bits for each."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    for bits in (keys + 0.0).view(np.uint64).T:  # without -0.0
        numbers[:] = (numbers ^ bits) * odd
        numbers ^= numbers >> np.uint64(32)


def feature_spread(X, rng, dtype="float64"):
    """Return the `feature_scale` of each feature (D,), or 1 where it is constant."""
    scale = feature_scale(X, rng, dtype=dtype)
    return np.where(scale > 0.0, scale, 1.0)


def feature_scale(X, rng, rows=None, dtype="float64"):
    """Return a robust standard deviation of each feature (D,), 0 where it is constant.

    It is the smaller of the standard deviation and the scaled interquartile range, if
    that is not zero, so that a few outliers do not set the scale. `rows` are the
    numbers of the rows that count, None for all. Raises ValueError if distances leave
    the numbers of `dtype`.
    """
    rows = np.arange(len(X)) if rows is None else rows
    if len(rows) > SAMPLE_ROWS:
        rows = rows[np.sort(rng.choice(len(rows), SAMPLE_ROWS, replace=False))]
    sample, exponent = fractions(np.asarray(X[rows], dtype=np.float64))
    spread = sample.std(axis=0)
    low, high = np.percentile(sample, [25, 75], axis=0)
    quartiles = (high - low) / 1.349
    spread = np.where(quartiles > 0, np.minimum(spread, quartiles), spread)
    largest = np.abs(sample).max(axis=0)
    rounding = 8 * np.finfo(X.dtype).eps * largest
    scale = np.where(spread > rounding, np.ldexp(spread, exponent), 0.0)
    usual = np.where(scale > 0.0, scale, 1.0)
    _require_usable_units(usual, np.ldexp(largest, exponent), dtype)
    return scale


def _require_usable_units(spread, largest, dtype):
    """Raise ValueError unless squared distances can be computed in a dtype.

    The gradients multiply those between usual rows by squares of inverse noise
    variances, which reach 1 / eps^2.
    """
    limits = np.finfo(dtype)
    root = float(np.sqrt(limits.max))
    low, high = 1.0 / (root * limits.eps), root * limits.eps
    outside = (spread < low) | (spread > high) | (largest > root)
    if outside.any():
        d = outside.argmax()
        raise ValueError(
            f"feature {d} of X has a spread of {spread[d]:.0e} and values up to "
            f"{largest[d]:.0e}: expected a spread of {low:.0e} to {high:.0e} and "
            f"values up to {root:.0e} with dtype={str(dtype)!r}; change the units of "
            "X, for example with MaxAbsScaler of scikit-learn."
        )


def mean_and_scale(y, sample_weight):
    """Return weighted mean and standard deviation, 1 if constant, of each output."""
    y, exponent = fractions(y)
    weight = sample_weight / sample_weight.max()  # equal weights become 1 exactly
    mean = np.average(y, axis=0, weights=weight)
    scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
    rounding = ROUNDING * np.abs(y).max(axis=0)
    scale = np.where(scale > rounding, np.ldexp(scale, exponent), 1.0)[()]
    return np.ldexp(mean, exponent), scale


def robust_mean_and_scale(y, sample_weight):
    """Return the median and a robust deviation, 1 if constant, of each output.

    The deviation is that of `mean_and_scale`, or that of a Gaussian of the same
    quartiles if it is smaller, but not zero.
    """
    _, scale = mean_and_scale(y, sample_weight)
    low, middle, high = weighted_quantiles(y, sample_weight, [0.25, 0.5, 0.75])
    quartiles = (high - low) / 1.349
    known = quartiles > ROUNDING * np.abs(middle)
    return middle, np.where(known, np.minimum(scale, quartiles), scale)[()]


def weighted_quantiles(y, weight, probabilities):
    """Return quantiles of each output, for rows that count by their weights (n,)."""
    columns = y.reshape(len(y), -1)
    out = np.empty((len(probabilities), columns.shape[1]))
    for q, column in enumerate(columns.T):
        order = np.argsort(column)
        w = weight[order].astype(np.float64)
        places = (np.cumsum(w) - 0.5 * w) / w.sum()
        out[:, q] = np.interp(probabilities, places, column[order])
    return out.reshape(len(probabilities), *y.shape[1:])


def bounded_noise(noise_variance, y, weight):
    """Return noise variances (n,) within bounds relative to the variance of y.

    Beyond them rows are as good as exact, or say nothing. Raises ValueError for noise
    beyond the bounds if outputs differ so much that no bounds suit all of them.
    """
    _, scale = mean_and_scale(y.astype(np.float64), weight)
    least, most = np.min(scale) ** 2, np.max(scale) ** 2
    low, high = LEAST_NOISE * most, least / LEAST_NOISE
    outside = (noise_variance < low) | (noise_variance > high)
    # the least noise is to be a deviation of a percent of each output at most
    if outside.any() and low > np.sqrt(LEAST_NOISE) * least:
        raise ValueError(
            f"noise_variance holds {noise_variance[outside][0]:.2g} for outputs whose "
            f"variances are {least:.2g} to {most:.2g}: expected {LEAST_NOISE:g} to "
            f"{1.0 / LEAST_NOISE:g} times the variance of each; fit a model for each "
            "output."
        )
    return np.clip(noise_variance, low, high)


def fractions(values):
    """Return columns divided by powers of two, into (-1, 1), and the exponents.

    The division changes no bit, and squares of large numbers do not overflow then.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=0))
    return np.ldexp(values, -exponent), exponent


def is_gain(gains, cost=0.0, weight=None, errors=ERRORS):
    """Return whether the gains (n,) of single rows by another model are not chance.

    Their mean must exceed so many standard `errors` and `cost` over the effective
    number of rows. Parameters that were fitted to the rows gain half a nat each, of all
    rows together, where there is nothing to learn.
    """
    weight = np.ones(len(gains)) if weight is None else weight.astype(np.float64)
    n = effective_sample_size(weight)
    if n <= 1.0:
        return False
    mean = np.average(gains, weights=weight)
    square = np.average((gains - mean) ** 2, weights=weight) / (n - 1.0)
    return bool(mean > cost / n + errors * math.sqrt(square))


def spans(X):
    """Return the ranges (D,) of columns (N, D), without far values.

    They are twice those of the middle half, unless half of the values are one.
    """
    low, high = np.quantile(X, (0.25, 0.75), axis=0)
    whole = np.ptp(X, axis=0)
    return np.where(high > low, np.minimum(2.0 * (high - low), whole), whole)


def student_width(freedom):
    """Return the 95 % quantile of Student's t over that of a Gaussian.

    With the deviation of n draws, and n - 1 degrees of freedom, intervals of 90 % are
    those of a normal law whose variance is not known.
    """
    return stdtrit(freedom, 0.95) / ndtri(0.95)


def width_of_next(n):
    """Return by what the deviation of n draws grows for one more draw.

    Neither the mean nor the variance of the n >= 2 draws is known: intervals of 90 %
    are those of Student's t.
    """
    return student_width(n - 1) * math.sqrt(1.0 + 1.0 / n)


def effective_sample_size(weight):
    """Return (sum w)^2 / sum w^2, the effective sample size (Kish, 1965)."""
    if not weight.any():
        return 0.0
    weight = weight.astype(np.float64) / weight.max()
    return weight.sum() ** 2 / np.sum(weight**2)


def relative_weights(data, most):
    """Return `TrainingRows` with weights divided by their mean over distinct rows.

    A common factor of all weights changes nothing then, nor do copies of all rows. More
    than `most` rows count as distinct.
    """
    weight = data.weight / data.weight.max()  # equal weights become 1 exactly
    n_distinct = len(weight)
    if n_distinct <= most:
        n_distinct = len(merge_duplicates(data.inputs, data.y, weight)[0])
    weight *= n_distinct / weight.sum()
    return data._replace(weight=weight.astype(data.y.dtype))


def merge_duplicates(X, y, weight):
    """Return the rows with duplicates merged, their weights added up.

    A duplicate would predict its original without error, as if there were no noise.
    Rows are duplicates if they share X and y, and no other y goes with that X. Where
    another y does, as in tables of few values, equal rows are separate observations.
    """
    rows, place = copies_of_rows(X, y)
    if len(rows) == len(X):
        return X, y, weight
    total = np.bincount(place, weight)
    return X[rows], y[rows], total.astype(weight.dtype)


def distinct_observations(data):
    """Return X, y, weight and count of `TrainingRows` without duplicates.

    A weight divides the noise variance of its row. A row counts as often as its weight
    times its `ratio` says.
    """
    if data.ratio is None:
        X, y, weight = merge_duplicates(data.inputs, data.y, data.weight)
        return X, y, weight, weight
    keys = np.column_stack([data.y, data.ratio])
    X, keys, weight = merge_duplicates(data.inputs, keys, data.weight)
    return X, np.ascontiguousarray(keys[:, :-1]), weight, weight * keys[:, -1]


def copies_of_rows(X, y):
    """Return the first row of each set of duplicates, and the set of each row (n,)."""
    _, group = first_of_each(X)
    first, same = first_of_each(np.column_stack([X, y]))
    single = np.bincount(group[first])[group] == 1
    return first_of_each(np.where(single, same, len(X) + np.arange(len(X))))


def first_of_each(keys):
    """Return the first place of each distinct row of keys (n, ...), and which each is.

    Both are in the order in which the distinct rows appear. Rows are sorted by a number
    of 64 bits each, which takes a seventh of the time of a sort of all columns.
    """
    n = len(keys)
    keys = keys.reshape(n, math.prod(keys.shape[1:]))
    numbers = np.zeros(n, dtype=np.uint64)
    for rows in row_blocks(n):  # a copy of all would take most of the time
        add_to_numbers(numbers[rows], keys[rows].astype(np.float64))
    _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[group] != np.arange(n))
    parts = (copies[rows] for rows in row_blocks(len(copies)))
    if not all(np.array_equal(keys[first[group[c]]], keys[c]) for c in parts):
        # two rows share a number
        _, *found = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        first, group = (array.ravel() for array in found)
    order = np.argsort(first)
    return first[order], np.argsort(order)[group]


def climbed(value, n, first):
    """Return the place of a maximum of value(0), ..., value(n - 1), and what was seen.

    The values are climbed from the `first` place, so not all of them are computed: the
    second result is a dict of values by place. The climb goes on from minus infinity.
    """
    seen = {first: value(first)}
    for step in (1, -1):
        while 0 <= first + step < n:
            if first + step not in seen:
                seen[first + step] = value(first + step)
            fails = seen[first] == -np.inf
            if not (fails or seen[first + step] > seen[first]):
                break
            first += step
    return first, seen
