"""How many inducing points tell all of f, for the kernel that was learned.

Given the values at M points, f keeps the variance F at a row. Rows with noise s^2 leave
f at most the variance s^2 M / n unknown on average (`few_points`). Points are enough
where F is small against that: for few points that all rows use, and for many of which
each row uses the nearest H.
"""

import numpy as np

from skswsgp._compiled.threads import max_threads, one_blas_thread
from skswsgp._engine.select import make_cpu_engine
from skswsgp._kernel_search.climb import FIRST_STEPS
from skswsgp._kernel_search.marginal_likelihood import LogPosteriorOfSums
from skswsgp._kernel_search.neighbor_likelihood import neighbor_model
from skswsgp._linear.dense_sites import DenseSites
from skswsgp._neighbors.lists import without_own
from skswsgp._rows import statistics
from skswsgp._rows.data import center_rows
from skswsgp._rows.few_points import HARDLY_LESS, few_points
from skswsgp._rows.inducing import distinct_rows
from skswsgp._solvers import auto


def find_few_points(fit, data, settings):
    """Return few points (M, D) and the `KernelFit` for them, or None and the fit.

    Kernel and noise were learned from some thousand rows. If few points tell all of f,
    the sums of the `standing_rows` of `TrainingRows` there teach them anew, unless they
    are known. At least a quarter of the most points that may be few do so, for these
    must tell of shorter length-scales as well. Where the kernel needs more points then,
    they teach it once more. Rows of very unequal weights teach nothing anew: a few
    heavy ones would make the noise their own.
    """
    most, found = settings.tuning.dense_rows, fit
    sample, before = data.take(statistics.standing_rows(data.n_rows)), 0
    equal = 2.0 * statistics.effective_sample_size(sample.weight) > sample.n_rows
    M = auto.count_inducing(settings, data.n_all, data.X.shape[1])
    sizes = data.n_all, M, data.X.shape[1]
    # means from all rows know more than near rows do
    exact = auto.tries_exact_means(settings, *sizes)
    n_near = np.inf if exact else auto.count_neighbors(settings, *sizes)
    for _ in range(2 if settings.learn_kernel and equal else 0):
        how = found.kernel, np.min(found.noise), sample, most
        points = few_points(*how, least=most // 4, n_near=n_near)
        if points is None:
            return None, fit
        if len(points) <= before:
            break
        found, before = likelier(found, points, sample, settings), len(points)
    how = found.kernel, np.min(found.noise), data, most
    points = few_points(*how, n_near=n_near)
    return (None, fit) if points is None else (points, found)


def likelier(fit, points, data, settings):
    """Return the `KernelFit` under which rows are likeliest, given few points."""
    zeros = np.zeros((len(points), data.y.shape[1]))
    given = fit.kernel, fit.noise, np.float64
    model, center = neighbor_model(points, zeros, 1.0 + zeros, *given)
    model = model._replace(jitter=auto.DENSE_JITTER)
    n_threads = max_threads(settings.n_jobs, data.n_rows)
    engine = make_cpu_engine(model, len(points), n_threads)
    sums = DenseSites.of(engine, data._replace(center=center))
    with one_blas_thread():
        posterior = LogPosteriorOfSums(fit.kernel, fit.noise, model.Z, sums)
        moves = posterior.moves(noise=settings.known_noise is None)
        point, density, _ = posterior.maximize(moves, FIRST_STEPS)
    if not np.isfinite(density):
        return fit
    _, noise = posterior.split(point)
    return fit._replace(kernel=posterior.kernel_at(point), noise=noise)


def count_near_points(fit, data, settings):
    """Return M and H, for points of which each row uses its nearest ones.

    M is `count_inducing` unless fewer random rows tell enough. The number doubles, from
    the most points that all rows would use, until F is no more than what rows leave
    unknown for half of the points. Then H falls by quarters while F hardly grows. H is
    None where both are as they were. Labels have the noise of their likelihood where it
    tells most of f.
    """
    D, n, tuning = data.X.shape[1], data.n_all, settings.tuning
    most = auto.count_inducing(settings, n, D)
    if most <= tuning.dense_rows or not auto.allows_fewer_points(settings, n, D):
        return most, None
    noise = settings.likelihood_record.least_noise or np.min(fit.noise)
    unknown = noise / (n * data.weight.mean(dtype=np.float64))
    rows = np.random.RandomState(0).permutation(data.n_rows)
    n_judges = 1 + int(statistics.HELD_OUT_FRACTION * data.n_rows)
    n_judges = min(statistics.MEAN_ROWS, n_judges)
    X, others = distinct_rows(data.take(rows[:n_judges]).inputs)[0], rows[n_judges:]

    def left(M):
        Z = data.take(np.sort(others[:M])).inputs
        Z = distinct_rows(np.concatenate([X, Z]))[0][len(X) :]  # no copies of X
        if len(Z) == 0:
            return np.full(len(numbers), np.inf)
        return left_by_near(fit.kernel, Z, X, numbers, settings).mean(axis=1)

    numbers = [H := auto.count_neighbors(settings, n, most, D)]
    while settings.n_neighbors == "auto" and 3 * H // 4 >= tuning.least_neighbors:
        numbers.append(H := 3 * H // 4)
    M = max(tuning.dense_rows, 2 * numbers[0])
    while not (F := left(M))[0] <= unknown * M / 2 and M < most:
        M = 2 * M if 4 * M <= most else most
    limit = F[0] + HARDLY_LESS * unknown * M  # infinite if the rows hold all places
    enough = [H for H, more in zip(numbers, F, strict=True) if more < limit]
    return min(M, most), min(enough, default=numbers[0])


def left_by_near(kernel, Z, X, numbers, settings, own=None):
    """Return F (k, n) of rows X (n, D) given the nearest H of points Z (M, D).

    H is each of k `numbers`, of which the first is the largest. `own` (n,) are points
    that rows do not use, if there are any.
    """
    zeros = np.zeros((len(Z), 1))
    model, center = neighbor_model(Z, zeros, zeros, kernel, 1.0, np.float64)
    model = model._replace(jitter=auto.DENSE_JITTER)
    numbers = np.minimum(numbers, len(Z))
    n_threads = max_threads(settings.n_jobs, len(X))
    engines = [make_cpu_engine(model, H, n_threads) for H in numbers]
    X, most = center_rows(X, center, np.float64), numbers[0] + (own is not None)
    search = engines[0].make_search(settings.search_options | {"n_neighbors": most})
    lists = search.query(X) if own is None else without_own(search.query(X), own)
    parts = (np.ascontiguousarray(lists[:, :H]) for H in numbers)
    pairs = zip(engines, parts, strict=True)
    found = [engine.predict(X, part, True) for engine, part in pairs]
    return np.stack([variance[:, 0] for _, variance in found])
