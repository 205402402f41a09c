"""The third call of a fit: q(u) of the start, means from all rows, and variances.

What goes wrong warns, and is left out. The fourth call, the law of observations, sees
the solution while its engine is open.
"""

from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skswsgp._compiled.threads import max_threads
from skswsgp._engine.select import make_engine
from skswsgp._kernel_search.marginal_likelihood import LEAST_NOISE_OF_SEVERAL
from skswsgp._law.learn import leave_out_rows
from skswsgp._linear.site_rows import SiteRows
from skswsgp._neighbors.lists import NeighborTracker
from skswsgp._posterior import prediction
from skswsgp._posterior.near_sites import learn_near_sites
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._rows.inducing import point_of_each_row
from skswsgp._solvers.auto import takes_few_points, tries_exact_means, warn_of_blocks
from skswsgp._solvers.exact_mean import ExactFit, exact_mean_attributes, means_of_few
from skswsgp._solvers.model import build_model, model_attributes
from skswsgp._solvers.progress import History, RowsRead, warn_caller
from skswsgp._solvers.rows import RowsInMemory
from skswsgp._solvers.settings import Settings


class Solution(NamedTuple):
    """A trained model, and the solver that has found it."""

    settings: Settings
    solver: object
    data: TrainingRows  # that say how large errors are
    group: np.ndarray | None  # (n,) the inducing points of these rows
    sites: object  # their `SiteRows`, or None where other rows have sites as well
    attributes: dict  # fitted attributes
    rng: np.random.RandomState


@contextmanager
def solve(start, task):
    """Yield the `Solution` of a `Start`, in a context in which its engine is open.

    `task` is the `FitTask`, which announces the stages. They begin anew on the CPU if a
    GPU fails that "auto" has taken.
    """
    state, settings, failed = start.rng.get_state(), start.settings, ""
    with ExitStack() as stack:
        try:
            solution = stack.enter_context(attempt(start, task))
        except (MemoryError, RuntimeError) as error:
            failed = str(error)
            if settings.device != "auto" or "the GPU" not in failed:
                raise
        if failed:  # outside of the handler, which holds the arrays of the attempt
            warn_caller(f"device='auto': the fit goes on on the CPU, since {failed}")
            start.rng.set_state(state)
            start = start._replace(settings=settings._replace(device="cpu"))
            solution = stack.enter_context(attempt(start, task))
        yield solution


@contextmanager
def attempt(start, task):
    """Yield what `solve` yields, or let the error of a GPU out."""
    settings, attributes = start.settings, start.attributes
    (M, D), H = attributes["inducing_points_"].shape, attributes["n_neighbors_"]
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(
        attributes, likelihood, settings.dtype, settings.divergence_weight(M, H),
        settings.optimize_inducing, start.rows.sample.weight.sum(dtype=np.float64),
    )  # fmt: skip
    held_out = start.held_out and start.held_out._replace(center=center)
    start = start._replace(rows=start.rows.centered(center), held_out=held_out)
    data, n_all = start.rows.sample, start.rows.n_all
    n_threads = max_threads(settings.n_jobs, data.n_rows)
    points = settings.solver.count_points(n_all, M, settings)
    with closing(make_engine(settings.device, model, H, n_threads, points)) as engine:
        with task.stage("inducing variables", settings.max_iter):
            task.lines.say(f" M={M:,}, H={H:,} ...")
            group = places_of(start)
            solver = make_solver(start, engine, task.lines, group)
            trained = train(solver, start, task)
        tries_exact = solver.usable and tries_exact_means(settings, n_all, M, D)
        exact, sites = ExactFit(), None
        if solver.usable and isinstance(solver.sites, SiteRows):
            sites = solver.sites
        if tries_exact:
            with task.stage("exact means"):
                exact = solve_exact_mean(solver, data, group, trained, start, task)
                source = "from all rows" if exact.attributes else "not found"
                task.lines.say(f" {source},")
        trained |= exact.attributes
        draws = settings.covariance == "draws" and not model.full
        if (start.knows_sites or draws) and solver.usable:
            with task.stage("variances"):
                if start.knows_sites:
                    all_here = group if sites is not None else None
                    known = all_here, exact.held_out, settings, trained["kernel_"]
                    trained |= learn_near_sites(solver, data, *known, start.rng)
                if draws:
                    from skswsgp.joint import draws_of_fit

                    trained |= draws_of_fit(solver, settings, start.rng)
        yield Solution(settings, solver, data, group, sites, trained, start.rng)


def places_of(start):
    """Return the inducing points (n,) at which the rows of a `Start` stay, or None."""
    rows, Z, settings = start.rows, start.attributes["inducing_points_"], start.settings
    if takes_few_points(settings, rows.n_all, len(Z)) or settings.solver.takes_steps:
        return None
    whole = rows.sample.n_rows == rows.n_all
    return point_of_each_row(Z, rows.sample.inputs) if whole else None


def make_solver(start, engine, lines, at):
    """Return the solver of a `Start`, whose rows are centred.

    `lines` say how fast rows in memory are read, and points after them. `at` (n,) are
    the inducing points at which rows lie, or None.
    """
    settings, kernel = start.settings, start.attributes["kernel_"]
    rows, M, H = start.rows, len(engine.model.Z), engine.n_neighbors
    steps = settings.solver.takes_steps
    if isinstance(rows, RowsInMemory):
        if settings.solver.finds_optimum and not settings.is_trial:
            warn_of_blocks(settings, rows.n_all, M, H)
        n_read = (rows.n_all if at is None else 0) + (0 if steps else M - H)
        watch = RowsRead(lines, n_read, settings.max_iter if steps else 1)
        rows = RowsInMemory(rows.sample._replace(watch=watch, at=at))
    scale = {"feature_scale": start.spread} if steps else {}
    return settings.solver(engine, rows, kernel, settings, start.rng, **scale)


def train(solver, start, task):
    """Run the rounds of the solver; return the fitted attributes."""
    engine, (settings, data) = solver.engine, (start.settings, start.rows.sample)
    attributes, held_out = start.attributes, start.held_out
    if held_out is not None:
        memory = memory_budget()
        lists = NeighborTracker(solver.search, held_out.n_rows, memory)
    history = History(settings.tol, settings.n_iter_no_change)
    best = None

    def described():
        bound = history.bounds[-1] if history.bounds else np.nan
        model, kernel = engine.model, attributes["kernel_"]
        said = {"_kl_weight": model.kl_weight, "lower_bound_": bound}
        return attributes | said | model_attributes(model, data.center, kernel)

    def fitted(model=None):
        return (model or described()) | history.attributes()

    try:
        for index in range(settings.max_iter):
            task.begin_epoch()
            loss, bound = solver.advance(index)
            score = None
            if held_out is not None:
                score = prediction.mean_log_density(
                    engine, held_out, lists, start.targets.log_density, attributes
                )
            improved = history.add(loss, bound, score)
            if improved and (score is not None or solver.keeps_best):
                best = described()
            most = solver.n_rounds
            task.lines.after_round(history, solver.unit, most)
            if task.end_epoch(fitted) or solver.ends(history):
                break
    except (KeyboardInterrupt, FloatingPointError) as error:
        by_hand = isinstance(error, KeyboardInterrupt)
        kept = solver.usable if by_hand else best is not None and solver.keeps_best
        if not kept or (by_hand and settings.is_trial):
            raise
        at, when = len(history.losses) + 1, "then" if best is None else "at its best"
        kept = f"in {solver.unit} {at}: the model is kept as it was {when}."
        if by_hand:
            warn_caller(f"training was interrupted {kept}")
        else:
            warn_caller(f"training produced NaN or infinity {kept}")
    task.lines.after_rounds(history, solver.unit)
    warn_of_training(solver, start)
    return fitted(best)


def warn_of_training(solver, start):
    """Warn of what went wrong in the rounds of a solver."""
    settings, data = start.settings, start.rows.sample
    warn_of_jitter(solver.engine.jitter_counts)
    if settings.learn_kernel and settings.known_noise is None and not settings.is_trial:
        warn_of_shared_kernel(start.attributes.get("noise_variance_"), data.y)
    if settings.likelihood_record.counts and not settings.is_trial:
        from skswsgp.noise import warn_of_large_counts

        warn_of_large_counts(solver)
    if not solver.solved:
        warn_caller(
            "conjugate gradients stopped before they converged: expected a kernel "
            "and noise that do not differ by many orders of magnitude; bound the "
            "kernel's variance, or give a regression a larger initial_noise.",
            ConvergenceWarning,
        )


def solve_exact_mean(solver, data, group, trained, start, task):
    """Return the `ExactFit`; warn where exact means were not found.

    `group` (n,) is the inducing point of each row of data, or None, and `trained` are
    the fitted attributes so far. The lines of the `task` say how fast it goes.
    """
    settings, found, M = start.settings, ExactFit(), len(solver.engine.model.Z)
    if group is not None and trained["n_neighbors_"] == M:
        return means_of_few(solver, trained["kernel_"], group)
    if group is not None:
        n_threads = max_threads(settings.n_jobs, data.n_rows)
        watch = RowsRead(task.lines, M, settings.tuning.mean_cg_steps)
        found = exact_mean_attributes(
            solver, trained, group, settings, n_threads, start.rng, watch
        )
    elif settings.n_neighbors == "all":
        why = "need the rows of the first fit"
        found = ExactFit(problem=why)
    if found.problem:
        warn_caller(
            f"the exact means {found.problem}: the model is kept with means from "
            f"n_neighbors={trained['n_neighbors_']}; a larger noise variance helps "
            "where they do not converge, and that number as n_neighbors asks for "
            "no exact means.",
        )
    return found


def learn_law(solution, task):
    """Return the fitted attributes of the law and of rows left out, or none."""
    settings, record = solution.settings, solution.settings.likelihood_record
    needless = settings.predictive == "gaussian" and settings.is_trial
    with task.stage("predictive law"):
        if not record.conjugate or needless:
            return {}
        law, rows = None, None
        try:
            known = solution.data, solution.group, solution.sites, solution.attributes
            law, rows = leave_out_rows(*known, settings, solution.rng)
        except FloatingPointError:
            warn_caller(
                "predictions of rows without themselves met NaN or infinity: the model "
                "is kept with a Gaussian law of observations and without "
                "leave_one_out_; bounds on the kernel may help, or dtype='float64'.",
            )
    found = {"predictive_law_": law, "leave_one_out_": rows}
    return {name: value for name, value in found.items() if value is not None}


def warn_of_jitter(jitter_counts):
    """Warn where some factorisations needed more than the usual jitter."""
    extra = int(jitter_counts[:, 0].sum())
    if extra:
        warn_caller(
            f"{extra} covariance matrices needed more than the usual jitter: "
            "inducing points lie close together for this kernel, or its "
            "length-scales have grown large; fewer inducing points or neighbours, "
            "dtype='float64' or tighter bounds help.",
        )


def warn_of_shared_kernel(noise, y):
    """Warn where none of several outputs y (n, Q) has noise: single fits are closer."""
    several = np.size(noise) > 1 and np.ptp(y, axis=0).all()
    if several and np.log(noise).max() <= LEAST_NOISE_OF_SEVERAL + 1e-6:
        warn_caller(
            "none of several outputs has noise, and they share a kernel and a least "
            "noise of 1e-6 of the variance: fits of single outputs are mostly closer."
        )
