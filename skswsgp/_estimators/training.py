"""The rounds of a solver, and what a fit asks it for afterwards."""

import warnings
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skswsgp._compiled.threads import max_threads
from skswsgp._neighbors.lists import NeighborTracker
from skswsgp._posterior import prediction
from skswsgp._rows.data import memory_budget
from skswsgp._rows.inducing import point_of_each_row
from skswsgp._solvers.exact_mean import (
    ExactFit,
    exact_mean_attributes,
    means_of_few,
)
from skswsgp._solvers.model import model_attributes
from skswsgp._solvers.progress import History, callers_level


class TrainingMixin:
    """From a solver to fitted attributes; what goes wrong warns, and is left out."""

    _is_trial = False  # whether Ctrl-C ends a fit, where others keep their model

    def _train(self, solver, data, held_out, attributes, settings, task):
        """Run the rounds of the solver; return the fitted attributes."""
        engine = solver.engine
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
                        engine, held_out, lists, self._log_density, attributes
                    )
                improved = history.add(loss, bound, score)
                if improved and (score is not None or solver.keeps_best):
                    best = described()
                most = solver.n_rounds
                task.lines.after_round(history, solver.unit, most, data.n_rows)
                if task.end_epoch(fitted) or history.stalled or solver.converged:
                    break
        except KeyboardInterrupt:
            if self._is_trial or not solver.usable:
                raise
            when = "then" if best is None else "at its best"
            warnings.warn(
                f"training was interrupted in {solver.unit} "
                f"{len(history.losses) + 1}: the model is kept as it was {when}.",
                stacklevel=callers_level(),
            )
        except FloatingPointError:
            if best is None or not solver.keeps_best:
                raise
            warnings.warn(
                f"training produced NaN or infinity in {solver.unit} "
                f"{len(history.losses) + 1} and ended there: the model is kept as it "
                "was at its best.",
                stacklevel=callers_level(),
            )
        task.lines.after_rounds(history, solver.unit, solver.n_rounds)
        warn_of_jitter(engine.jitter_counts)
        if not solver.solved:
            warnings.warn(
                "conjugate gradients stopped before they converged: expected a kernel "
                "and noise that do not differ by many orders of magnitude; bound the "
                "kernel's variance, or give a regression a larger initial_noise.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )
        return fitted(best)

    def _draw(self, solver, settings, rng):
        """Return the fitted attribute of draws from q(u), or none and a warning."""
        u = solver.draw(settings.tuning.n_draws, rng)
        if u is not None:
            u = u.astype(self.dtype)
            return {"posterior_draws_": u if u.shape[2] > 1 else u[:, :, 0]}
        more = "" if self.dtype == "float64" else "dtype='float64' may help, and "
        warnings.warn(
            "the draws from q(u) did not converge: the model is kept with "
            "covariance='diag', whose standard deviations of the function are too "
            f"small; {more}covariance='diag' asks for no draws and does not warn.",
            stacklevel=callers_level(),
        )
        return {}

    def _solve_exact_mean(self, solver, data, trained, settings, rng):
        """Return the `ExactFit`; warn where exact means were not found."""
        n_threads, found = max_threads(self.n_jobs, data.n_rows), ExactFit()
        group = point_of_each_row(trained["inducing_points_"], data.inputs)
        if group is not None and trained["n_neighbors_"] == len(solver.engine.model.Z):
            return means_of_few(solver, trained["kernel_"], group)
        if group is not None:
            density = partial(self._log_density, attributes=trained)
            found = exact_mean_attributes(
                solver, trained, group, settings, density, n_threads, rng
            )
        elif settings.n_neighbors == "all":
            why = "need the rows of the first fit, in their order"
            found = ExactFit(problem=why)
        if found.problem:
            warnings.warn(
                f"the exact means {found.problem}: the model is kept with means from "
                f"n_neighbors={trained['n_neighbors_']}; a larger noise variance helps "
                "where they do not converge, and that number as n_neighbors asks for "
                "no exact means.",
                stacklevel=callers_level(),
            )
        return found


def warn_of_jitter(jitter_counts):
    """Warn where some factorisations needed more than the usual jitter."""
    extra = int(jitter_counts[:, 0].sum())
    if extra:
        warnings.warn(
            f"{extra} covariance matrices needed more than the usual jitter: "
            "inducing points lie close together for this kernel, or its "
            "length-scales have grown large; fewer inducing points or neighbours, "
            "dtype='float64' or tighter bounds help.",
            stacklevel=callers_level(),
        )
