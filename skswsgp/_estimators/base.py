"""The base of both estimators: parameters, the course of a fit, attributes."""

import warnings
from abc import ABCMeta, abstractmethod
from contextlib import nullcontext
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from skswsgp._cluster.block_adam import BlockAdam
from skswsgp._cluster.block_solver import BlockSolver
from skswsgp._cluster.predictions import is_collection
from skswsgp._cluster.rows_elsewhere import RowsElsewhere
from skswsgp._cluster.workers import find_workers
from skswsgp._engine.select import require_device
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.fit_stages import FitStagesMixin, GivenRows, TrainingRowsMixin
from skswsgp._estimators.given import (
    SOLVERS,
    kernel_for,
    require_word_of_fit,
    solver_for,
    trial_of,
)
from skswsgp._estimators.latent import LatentFunctionsMixin
from skswsgp._estimators.observations import left_out_rows
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._estimators.training import TrainingMixin
from skswsgp._kernel_search.kernel_learning import count_learning_rows
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._posterior.joint import LARGEST_SEED
from skswsgp._rows.column_scale import SCALES
from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.exact_mean import scaled_variance
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.settings import Settings
from skswsgp._solvers.tuning import Tuning
from skswsgp._streams.exchange import exchange_points
from skswsgp._streams.stream import Stream
from skswsgp.solvers import Adam, Natural

# Fitted attributes that are found after the last round and that no fit starts from
FOUND_LAST = (
    "posterior_draws_", "alpha_", "local_variance_scale_", "predictive_law_",
    "leave_one_out_", "_mean_noise_variance",
)  # fmt: skip
# Private ones from which a fit starts
STARTED_FROM = "_jitter", "_kl_weight", "_feature_scale"
# Fitted attributes that only some likelihoods have
OF_LIKELIHOOD = (
    "noise_variance_", "noise_model_", "prior_mean_", "variance_scale_",
    "likelihood_shape_",
)  # fmt: skip

# Solvers, and what they are where rows lie elsewhere
BLOCK_SOLVERS = {NaturalSolver: BlockSolver, AdamSolver: BlockAdam}


@with_shared_text
class BaseSWSGP(
    LatentFunctionsMixin,
    FitStagesMixin,
    TrainingRowsMixin,
    TrainingMixin,
    compat.CallbackSupportMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Base of the SWSGP estimators."""

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "kernel": "no_validation",  # checked by compile_kernel, which says more
        "x_transform": [StrOptions({"auto", *SCALES}), None],
        "learn_map": [StrOptions({"auto"}), "boolean"],
        "n_inducing": [StrOptions({"auto"}), compat.Count()],
        "n_neighbors": [StrOptions({"auto", "all"}), compat.Count()],
        "learn_kernel": ["boolean"],
        "inducing_points": [StrOptions({"kmeans", "random"}), "array-like"],
        "covariance": [StrOptions({"auto", "diag", "draws", "full"})],
        "neighbor_search": [StrOptions({"exact", "approximate"})],
        "solver": [StrOptions(set(SOLVERS)), Natural, Adam],
        "warm_start": ["boolean"],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "n_jobs": [Integral, None],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _learn_targets(self, X, rows, y, weight, free):
        """Return the fitted attributes that the targets need, from training rows.

        `rows` are the numbers of the rows of X that y (n, ...) and weight (n,) belong
        to, or None for all of them. `free` says whether "auto" may choose a scale of y.
        """

    def _learn_noise_model(self, X, rows, y, weight, attributes):
        """Return the process of the noise, or None where noise does not vary.

        The first four arguments are those of `_learn_targets`, which returned the last.
        """
        return None

    @abstractmethod
    def _encode_targets(self, y, attributes, exposure=None):
        """Return targets for the attributes of `_learn_targets`, a row for each of y.

        They are as the record of the likelihood reads them. Only counts have an
        `exposure` (N,), or None.
        """

    @abstractmethod
    def _likelihood_of(self, attributes):
        """Return (name of the likelihood, number of latent functions)."""

    @abstractmethod
    def _latent_units(self, attributes):
        """Return (offset, factor), numbers or (Q,), to the units of reports of f."""

    @abstractmethod
    def _has_one_function(self):
        """Return whether the axis of latent functions is left out of results."""

    def _log_density(self, mu, v, targets, attributes):
        """Return the log predictive density of each row's targets, in nats."""
        record = LIKELIHOODS[self._likelihood_of(attributes)[0]]
        moments = self._in_units(mu, scaled_variance(v, attributes), attributes)
        numbers = map(attributes.get, ("noise_variance_", "likelihood_shape_"))
        return record.log_density(*moments, targets, *numbers)

    _target_checks: dict  # arguments of `validate_data` that concern y
    _tuning = Tuning()

    @compat.with_callbacks
    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units. They may be a memory map; see "What if data
            come in pieces?". X, y and `sample_weight` may be dask collections; see
            "What if one machine is not enough?".
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row, a number of observations, in training and when it is
            held out.
        X_val : array-like of shape (n_val, n_features), default=None
            Inputs held out to decide when to stop, in place of a fraction of X.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets that go with `X_val`.

        $outcome_of_fit
        """
        with compat.unchanged_on_failure(self):
            return self._fit(GivenRows(X, y, sample_weight), (X_val, y_val))

    @compat.with_callbacks
    def _partial_fit(self, X, y, sample_weight, exposure=None):
        """Learn from one more chunk of a stream; see `partial_fit`."""
        with compat.unchanged_on_failure(self):
            self._validate_params()
            solver = solver_for(self)
            if is_collection(X) or is_collection(y):
                raise ValueError(
                    "partial_fit of a dask collection: expected rows in memory; give "
                    "its blocks one after the other, or call fit."
                )
            stream = self._stream_with(solver, X, y, sample_weight, exposure)
            rows = GivenRows(*stream[:4], stream=stream)
            two = stream.learns and stream.known and self.learn_kernel
            rival = self._with_old_kernel(rows) if two else None
            self._fit(rows)
            self._rival = rival
            return self

    def _stream_with(self, solver, X, y, sample_weight, exposure):
        """Return the `Stream` of this model with one more chunk.

        A kernel that was learned at the chunk before stays if it predicts this one
        better than the kernel that it replaced.
        """
        earlier = getattr(self, "_stream", None)
        if earlier is None and hasattr(self, "inducing_points_"):
            raise ValueError(
                "partial_fit of a model that was fitted by Adam, to given noise, with "
                "X_val, to blocks of dask or to more than "
                f"{self._tuning.stream_rows} rows: expected a new model, because such "
                "a fit keeps no rows; give its rows to partial_fit too."
            )
        chunk = self._chunk(X, y, sample_weight, exposure, earlier is None)
        X, y, weight, exposure = chunk
        if earlier is None:
            return self._new_stream(solver, chunk)
        self._encode_targets(y, vars(self), exposure)  # raises what is wrong
        if self._rival is not None:
            rival = trial_of(self)
            vars(rival).update(self._rival)
            if rival._density_of_chunk(*chunk) > self._density_of_chunk(*chunk):
                vars(self).update(self._rival)
            self._rival = None
        now = {"forgetting_factor": solver[1]["forgetting_factor"]}
        if self._brings_news(self._stream, y):
            now["n_learned"] = 0
        stream = self._stream._replace(**now).joined(*chunk)
        most = self._most_points_of_stream()
        longer = len(stream.X) > max(most, self._tuning.stream_rows)
        if not isinstance(self.inducing_points, str) or not (
            stream.past or (longer and not stream.learns)
        ):
            return stream
        worth, usual = stream.worth, stream.usual
        if stream.past is None:  # from now on; free places only are taken
            worth = np.full(len(self.inducing_points_), np.inf)
            usual = stream.factor / np.mean(getattr(self, "noise_variance_", 1.0))
        X = X if self._columns is None else self._columns.forward(X)
        points, past = exchange_points(
            self._posterior(draws=False),
            stream.past,
            worth,
            X,
            weight * usual,
            most,
        )
        return stream._replace(points=points, past=past)

    def _brings_news(self, stream, y):
        """Return whether y holds a class of which the stream has kept no row."""
        return False

    def _with_old_kernel(self, rows):
        """Return the attributes of a fit to more rows that keeps the kernel."""
        trial, stream = trial_of(self), rows.stream
        vars(trial).update(self._found())
        rows = rows._replace(stream=stream._replace(n_learned=stream.n_seen))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trial._fit(rows)._found()

    def _found(self):
        """Return all attributes of a fit, the private ones too."""
        others = {*self.get_params(deep=False), "_announced_classes", "_is_trial"}
        own = vars(self).items()
        return {k: v for k, v in own if k not in others and "callback" not in k}

    def _chunk(self, X, y, sample_weight, exposure, first):
        """Return X, y, weights and exposures, validated, copies of rows that count."""
        X, y = compat.validate(self, X, y, reset=first, **self._target_checks)
        weight = compat.check_weights(sample_weight, X, self.dtype)
        exposure = compat.check_row_values("exposure", exposure, len(X))
        kept = np.flatnonzero(self._weigh_targets(X, y, weight, first))
        chunk = X, y, weight, exposure
        return [None if column is None else column[kept] for column in chunk]

    def _new_stream(self, solver, chunk):
        """Return the `Stream` of a first chunk."""
        seed = check_random_state(self.random_state).randint(LARGEST_SEED)
        return Stream.of(seed, solver[1]["forgetting_factor"], *chunk)

    def _density_of_chunk(self, X, y, weight, exposure):
        """Return the mean log density of validated rows, from neighbours' means."""
        targets = self._encode_targets(y, vars(self), exposure)
        X = X if self._columns is None else self._columns.forward(X)
        moments = self._posterior().local_moments(X)
        density = self._log_density(*moments, targets, vars(self))
        return np.average(density, weights=weight)

    def _fit(self, given, validation=(None, None), noise_model=None):
        """Fit the model to `GivenRows`; see `fit`.

        `validation` is (X_val, y_val), and `noise_model` a process of the noise that is
        known, or None.
        """
        self._validate_params()
        solver = solver_for(self)
        if is_collection(given.X) or is_collection(given.y):
            self._refuse_with_blocks(given, validation, solver)
            return self._fit_blocks(given)
        if given.elsewhere is not None:
            solver = BLOCK_SOLVERS[solver[0]], solver[1]
        if given.stream is not None and not given.stream.learns:
            solver = NaturalSolver, solver[1]  # inducing inputs stay
        self._refuse_combinations(solver[0])
        require_device(self.device)
        continues = self.warm_start and given.stream is None
        fitted = self._fitted_attributes() if continues else {}
        X, y, sample_weight = given.X, given.y, given.sample_weight
        known = {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        task = compat.FitTask(self, known)
        with task.stage("scales of columns and targets"):
            problem = self._problem(given, validation, solver, fitted, noise_model)
        with task.stage("kernel"):
            start = self._start(problem, fitted)
        trained = self._solve(start, task)
        for name in (*FOUND_LAST, *OF_LIKELIHOOD, "_stream", "_rival", "lower_bound_"):
            vars(self).pop(name, None)  # that of an earlier fit
        vars(self).update(trained)
        self._noise_known = problem.noise_is_known
        unusual = problem.noise_is_known or validation[0] is not None or noise_model
        if given.elsewhere is not None or given.stream is not None:
            vars(self).pop("leave_one_out_", None)  # not of all rows
        elif solver[0].finds_optimum and not (unusual or self._is_trial):
            if problem.data.n_rows <= self._tuning.stream_rows:  # `partial_fit` goes on
                chunk = self._chunk(X, y, sample_weight, given.exposure, False)
                stream = self._new_stream(solver, chunk)
                self._stream = stream.learned(start.factor, vars(self))
                self._rival = None
        if "leave_one_out_" in vars(self):
            rows, found = problem.data.rows, self.leave_one_out_
            weight = compat.check_weights(sample_weight, X, self.dtype)
            weight = weight / weight[weight > 0.0].mean()
            self.leave_one_out_ = left_out_rows(self, X, y, weight, rows, found)
        task.end()
        return self

    def _fit_blocks(self, given):
        """Fit the model to dask collections, whose rows stay where they are."""
        workers = find_workers()
        with workers.failures():
            columns = given.X, given.y, given.sample_weight
            return self._fit_elsewhere(RowsElsewhere(workers, *columns))

    def _fit_elsewhere(self, rows):
        """Fit the model to `RowsElsewhere`."""
        with self._announcing(rows):
            most = count_learning_rows(rows.n_features, self._tuning)
            sample = rows.sample(most, check_random_state(self.random_state))
            return self._fit(GivenRows(*sample, elsewhere=rows))

    def _announcing(self, elsewhere):
        """Return a context in which a sample need not show all that y holds."""
        return nullcontext()

    def _refuse_with_blocks(self, given, validation, solver):
        """Raise ValueError for what rows that lie elsewhere cannot have."""
        balanced = getattr(self, "class_weight", None) == "balanced"
        refused = {
            "X_val": any(one is not None for one in validation),
            "exposure": given.exposure is not None,
            "noise_variance": given.noise_variance is not None,
            "Natural(optimize_inducing=True)": solver[0] not in BLOCK_SOLVERS,
            "early_stopping=True": solver[1].get("early_stopping") is True,
            "warm_start": self.warm_start,
            "n_neighbors='all'": self.n_neighbors == "all",
            "class_weight='balanced'": balanced,
            "likelihood='heteroscedastic'": self.likelihood == "heteroscedastic",
            "device='cuda'": self.device == "cuda",
        }
        named = next((name for name, given in refused.items() if given), None)
        if named is not None:
            raise ValueError(
                f"X or y is a dask collection, and the fit has {named}: expected none "
                "of that, for rows stay with their workers; give rows in memory, or "
                "leave it out."
            )

    def _settings(self, attributes, data, solver, stream=None):
        """Return the `Settings` of a fit; `solver` is what `solver_for` returns."""
        names = [name for name in Settings._fields if hasattr(self, name)]
        method, parameters = solver
        chosen = {name: getattr(self, name) for name in names} | parameters
        likelihood, n_latent = self._likelihood_of(attributes)
        chosen |= {"likelihood": likelihood, "n_latent": n_latent, "solver": method}
        chosen["kernel"] = kernel_for(self, data.X.shape[1])
        averages = LIKELIHOODS[likelihood].averages
        chosen["averages"] = averages(data.y, data.weight, n_latent)
        if self.learn_map != "auto":
            chosen["learn_map"] = bool(self.learn_map)  # also where NumPy made it
        elif self.kernel is not None:
            chosen["learn_map"] = False
        tuning = self._tuning
        if stream is not None:
            tuning = tuning._replace(most_neighbors=tuning.variance_neighbors)
            if isinstance(self.inducing_points, str):
                chosen["n_inducing"] = self._most_points_of_stream()
            if stream.past is not None and isinstance(self.n_neighbors, str):
                # means from all rows need the rows
                M, H = self._most_points_of_stream(), tuning.variance_neighbors
                chosen["n_neighbors"] = H if self.n_neighbors == "auto" else M
        return Settings(**chosen, tuning=tuning)

    def _require_likelihood_of_fit(self, name, attributes):
        """Raise ValueError if attributes are those of a fit of another likelihood."""
        before = attributes.get("likelihood_", name)
        if before != name:  # the name that "auto" stands for
            require_word_of_fit("likelihood", self.likelihood, before, "likelihood")

    def _refuse_combinations(self, solver):
        """Raise ValueError for parameters that do not go together."""
        if self.learn_map not in ("auto", False) and not self.learn_kernel:
            raise ValueError(
                "learn_map=True with learn_kernel=False: expected learn_kernel=True, "
                "because a map is learned together with the kernel, or learn_map=False."
            )
        if self.covariance == "draws" and not solver.draws:
            raise ValueError(
                f"covariance='draws' with {solver.title}: expected solver='natural' "
                "with fixed inducing inputs; use covariance='diag', 'full' or 'auto'."
            )

    def _leave_out_rows(self, solver, data, trained, settings, rng):
        """Return the fitted attributes of the law and of rows left out, or none."""
        return {}

    def set_params(self, **params):
        """Set parameters of this estimator, and of its kernel and solver.

        Parameters
        ----------
        **params : dict
            Parameters by name, those of a solver object as in ``solver__max_iter``.

        Returns
        -------
        self : object
            The estimator.
        """
        word = params.get("solver", self.solver)
        nested = [name for name in params if name.startswith("solver__")]
        if nested and isinstance(word, str):
            given = {name.removeprefix("solver__"): params[name] for name in nested}
            kinds = [SOLVERS.get(word, Natural), Natural, Adam]
            known = [kind for kind in kinds if set(given) <= set(kind().get_params())]
            kind = [*known, *kinds][0]
            solver = kind().set_params(**given)  # which refuses unknown names
            raise ValueError(
                f"{nested[0]} with solver={word!r}, which is a word and has no "
                f"parameters: expected an object; use solver={solver!r}, of "
                "skswsgp.solvers."
            )
        return super().set_params(**params)

    def __getstate__(self):
        from skswsgp import __version__

        return super().__getstate__() | {"_skswsgp_version": __version__}

    def __setstate__(self, state):
        from skswsgp import __version__

        version = state.pop("_skswsgp_version", "unknown")
        if version != __version__:
            warnings.warn(
                f"this {type(self).__name__} was pickled by skswsgp {version} and is "
                f"read by {__version__}: it may not predict the same; fit it again.",
                stacklevel=2,
            )
        super().__setstate__(state)

    def _fitted_attributes(self):
        """Return the fitted attributes that another fit starts from, if any."""
        if not hasattr(self, "inducing_points_"):
            return {}
        public = [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]
        private = [n for n in STARTED_FROM if hasattr(self, n)]
        names = [n for n in public + private if n not in FOUND_LAST]
        return {n: getattr(self, n) for n in names}
