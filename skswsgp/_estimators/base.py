"""The base of both estimators: parameters, the course of a fit, attributes."""

import warnings
from abc import ABCMeta, abstractmethod
from numbers import Integral
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skswsgp._engine.select import require_device
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for, solver_for
from skswsgp._estimators.hints import PerRow
from skswsgp._estimators.latent import LatentFunctionsMixin
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._fit.encode import CheckedRows, UserRows, encode, unite_copies
from skswsgp._fit.learn import learn
from skswsgp._fit.solve import learn_law, solve
from skswsgp._rows import column_scale, statistics, target_scale
from skswsgp._rows.checks import check_row_values, require_word_of_fit
from skswsgp._rows.data import OF_STREAM, KeptRows, TrainingRows
from skswsgp._solvers.constraints import Count
from skswsgp._solvers.settings import Settings
from skswsgp._solvers.tuning import Tuning
from skswsgp._version import __version__
from skswsgp.solvers import SOLVERS

# Fitted attributes that are found after the last round and that no fit starts from
FOUND_LAST = (
    "posterior_draws_", "alpha_", "site_precision_", "site_factor_",
    "local_variance_scale_",
    "_covariance_factor", "predictive_law_", "leave_one_out_", "_mean_noise_variance",
)  # fmt: skip
# Private ones from which a fit starts
STARTED_FROM = "_jitter", "_kl_weight", "_feature_scale", "_seen_targets"
# Fitted attributes that only some likelihoods have
OF_LIKELIHOOD = (
    "noise_variance_", "noise_model_", "prior_mean_", "variance_scale_",
    "likelihood_shape_",
)  # fmt: skip
# What `partial_fit` goes on from
OF_STREAMS = "_kept_rows", "_stream", "_rival", "_noise_known"


class GivenRows(NamedTuple):
    """What the user gives of each row, not validated yet."""

    X: object
    y: object
    sample_weight: object = None
    exposure: object = None
    noise_variance: object = None


@with_shared_text
class BaseSWSGP(
    LatentFunctionsMixin, compat.CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base of the SWSGP estimators."""

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "kernel": "no_validation",  # checked by compile_kernel, which says more
        "x_transform": [StrOptions({"auto", *column_scale.SCALES}), None],
        "learn_map": [StrOptions({"auto"}), "boolean"],
        "n_inducing": [StrOptions({"auto"}), Count()],
        "n_neighbors": [StrOptions({"auto", "all"}), Count()],
        "learn_kernel": ["boolean"],
        "inducing_points": [StrOptions({"kmeans", "random"}), "array-like"],
        "covariance": [StrOptions({"auto", "diag", "draws", "full"})],
        "neighbor_search": [StrOptions({"exact", "approximate"})],
        "solver": [StrOptions(set(SOLVERS)), *SOLVERS.values()],
        "warm_start": ["boolean"],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "n_jobs": [Integral, None],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _learn_targets(self, rows, settings, *, free, classes=None):
        """Return the targets of a first fit to `CheckedRows`, see `_fit.targets`.

        `free` are the scales of y that "auto" may choose, and `classes` are all labels
        that any row may have, or None for those of these rows.
        """

    @abstractmethod
    def _targets(self, attributes):
        """Return the targets of fitted attributes, see `_fit.targets`."""

    def _require_parameters_of_targets(self, attributes):
        """Raise ValueError for parameters that are not those of fitted attributes."""

    def _weigh_targets(self, y, weight, all_classes):
        """Return the weights (n,) of rows times those of their classes, if any.

        `all_classes` says whether y holds all classes.
        """
        return weight

    def _learn_noise(self, rows, targets):
        """Return the process of the noise, or None where noise does not vary."""
        return None

    _target_checks: dict  # arguments of `validate_data` that concern y
    _tuning = Tuning()

    @compat.with_callbacks
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None,
        X_val: ArrayLike | None = None, y_val: PerRow = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units. They may be a memory map; see "Streams and
            online learning". Blocks of dask are for the classes of `skswsgp.dask`; see
            "Distributed training with Dask".
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

    def _fit(self, given, validation=(None, None), noise=None, is_trial=False):
        """Fit the model to `GivenRows`; see `fit`.

        `validation` is (X_val, y_val), and `noise` a process of the noise that is
        known, or None. A fit that `is_trial` serves a choice.
        """
        self._validate_params()
        self._refuse_combinations()
        fitted = self._fitted_attributes() if self.warm_start else {}
        task = compat.FitTask(self, given)
        with task.stage("scales of columns and targets"):
            rows = self._check_rows(given, reset=not fitted).by_content()
            settings = self._settings(is_trial)
            free = rows.noise_variance is None and validation[1] is None
            free = target_scale.TRANSFORMS if free else ()
            targets = self._targets_of_fit(rows, settings, fitted, free=free)
            problem = self._problem(rows, targets, settings, fitted, validation, noise)
        with task.stage("kernel"):
            start = learn(problem, fitted)
        with solve(start, task) as solution:
            law = learn_law(solution, task) | {"_noise_known": problem.noise_is_known}
        self._set_fitted(solution.attributes | law, rows.user, problem.data.rows)
        most = settings.tuning.stream_rows
        against = (
            not settings.solver.finds_optimum and "steps of Adam",
            problem.noise_is_known and "given noise",
            validation[0] is not None and "X_val",
            problem.data.n_rows > most and f"more than {most:,} rows",
        )
        if not is_trial:
            why = " and ".join(filter(None, against))
            self._kept_rows = why or self._rows_to_keep(rows, start.factor)
        task.end()
        return self

    def _targets_of_fit(self, rows, settings, known, *, free, classes=None):
        """Return the targets of `known` fitted attributes, or learn them from rows.

        `free` and `classes` are those of `_learn_targets`.
        """
        if known:
            targets = self._targets(known)
        else:
            targets = self._learn_targets(rows, settings, free=free, classes=classes)
        self._require_parameters_of_targets(known or targets.attributes())
        return targets

    def _problem(
        self, rows, targets, settings, known, validation=(None, None), noise=None
    ):
        """Return the `Problem` of `CheckedRows`; other arguments are those of `_fit`.

        `known` are fitted attributes that stay, or none.
        """
        rng = check_random_state(self.random_state)
        rows = unite_copies(rows, targets, settings)
        process = noise or known.get("noise_model_") or self._learn_noise(rows, targets)
        held_out = self._validation_rows(*validation, targets, settings)
        scales = {"known": known, "held_out": held_out, "noise": process}
        return encode(rows, targets, settings, rng, **scales)

    def _set_fitted(self, attributes, user=None, trained=None):
        """Set the attributes of a fit in place of those of an earlier one.

        The `UserRows` as predicted without themselves are among them where all of them
        are given. `trained` are the numbers of those that trained.
        """
        for name in (*FOUND_LAST, *OF_LIKELIHOOD, *OF_STREAMS, "lower_bound_"):
            vars(self).pop(name, None)
        left_out = attributes.pop("leave_one_out_", None)
        vars(self).update(attributes)
        if left_out is not None and user is not None:
            self.leave_one_out_ = self._leave_one_out(user, trained, left_out)

    def _rows_to_keep(self, rows, factor):
        """Return the `KeptRows` of `CheckedRows` for streams."""
        seed = check_random_state(self.random_state).randint(statistics.LARGEST_SEED)
        order = np.argsort(rows.numbers)  # the oldest first
        columns = [column[rows.numbers[order]] for column in rows.user]
        exposure = None if rows.exposure is None else rows.exposure[order]
        begun = {k: v for k, v in vars(self).items() if k in OF_STREAM}
        return KeptRows(*columns, exposure, seed, factor, clone(begun, safe=False))

    def _check_rows(self, given, reset, all_classes=None):
        """Return the `CheckedRows` of `GivenRows`, validated once.

        `reset` says whether a fit begins with these rows, which hold all classes then
        unless `all_classes` says more.
        """
        X, y = compat.validate(self, *given[:2], reset=reset, **self._target_checks)
        weight = compat.check_weights(given.sample_weight, X, self.dtype)
        all_classes = reset if all_classes is None else all_classes
        rows = self._weighed(UserRows(X, y, weight), all_classes)
        more = {
            name: check_row_values(name, getattr(given, name), len(X), rows.numbers)
            for name in ("exposure", "noise_variance")
        }
        return rows._replace(**more)

    def _weighed(self, user, all_classes):
        """Return the `CheckedRows` of `UserRows`, those of positive weight."""
        X, y, weight = user
        weight = self._weigh_targets(y, weight, all_classes)
        return CheckedRows.of(X, y, weight, user)

    def _validation_rows(self, X_val, y_val, targets, settings):
        """Return the user's validation data as `TrainingRows`, or None."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"{missing} is missing: X_val and y_val go together.")
        if not settings.early_stopping:
            raise ValueError(
                "X_val and y_val came with early_stopping=False: expected 'auto' or "
                "True, for they only serve to decide when to stop."
            )
        checks = {"reset": False} | self._target_checks
        X_val, y_val = compat.validate(self, X_val, y_val, **checks)
        encoded = targets.encode(y_val).astype(self.dtype, copy=False)
        return TrainingRows(X_val, encoded, np.ones(len(X_val), dtype=self.dtype))

    def _training_rows(self, X, y, sample_weight, exposure=None):
        """Return validated `TrainingRows` for a fitted model, not mapped yet."""
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        rows = self._check_rows(GivenRows(X, y, sample_weight, exposure), reset=False)
        targets = self._targets(vars(self))
        self._require_parameters_of_targets(vars(self))
        encoded = targets.encode(rows.y, rows.exposure).astype(self.dtype, copy=False)
        weight = rows.weight.astype(self.dtype)
        return TrainingRows(rows.X, encoded, weight, rows.numbers).scaled(self._columns)

    def _settings(self, is_trial=False):
        """Return the `Settings` of a fit, which do not know its targets yet."""
        names = [name for name in Settings._fields if hasattr(self, name)]
        solver, parameters = solver_for(self)
        chosen = {name: getattr(self, name) for name in names} | parameters
        chosen |= {"likelihood": chosen.get("likelihood"), "n_latent": None}
        chosen |= {"solver": solver, "is_trial": is_trial, "tuning": self._tuning}
        chosen["kernel"] = kernel_for(self, self.n_features_in_)
        if self.learn_map != "auto" or self.kernel is not None:
            # a bool also where NumPy made it
            chosen["learn_map"] = self.learn_map != "auto" and bool(self.learn_map)
        return Settings(**chosen)

    def _require_likelihood_of_fit(self, name, attributes):
        """Raise ValueError if attributes are those of a fit of another likelihood.

        `name` is the likelihood of this estimator, for which "auto" may stand.
        """
        before = attributes.get("likelihood_", name)
        if before != name:
            require_word_of_fit("likelihood", self.likelihood, before, "likelihood")

    def _refuse_combinations(self):
        """Raise ValueError for parameters that do not go together or with a device."""
        solver, _ = solver_for(self)
        require_device(self.device)
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

    def set_params(self, **params: object) -> Self:
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
            kinds = [kind for name, kind in SOLVERS.items() if name == word]
            kinds += SOLVERS.values()
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
        return super().__getstate__() | {"_skswsgp_version": __version__}

    def __setstate__(self, state):
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
