"""The base of both estimators: parameters, the course of a fit, attributes."""

import warnings
from abc import ABCMeta, abstractmethod
from numbers import Integral, Real

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from skswsgp._engine.select import require_device
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.fit_stages import FitStagesMixin
from skswsgp._estimators.given_kernel import kernel_for
from skswsgp._estimators.latent import LatentFunctionsMixin
from skswsgp._estimators.training import TrainingMixin
from skswsgp._estimators.training_rows import TrainingRowsMixin
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._solvers.registry import SOLVERS, choose_solver
from skswsgp._solvers.settings import Settings
from skswsgp._solvers.tuning import Tuning

# Fitted attributes that are found after the last round and that no fit starts from
FOUND_LAST = (
    "posterior_draws_", "alpha_", "local_variance_scale_", "held_out_points_",
    "held_out_errors_", "predictive_law_", "n_samples_fit_",
    "mean_noise_variance_",
)  # fmt: skip
# Fitted attributes that only some likelihoods have
OF_LIKELIHOOD = (
    "noise_variance_", "noise_model_", "prior_mean_", "variance_scale_",
    "likelihood_shape_",
)  # fmt: skip


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
        "metric": [StrOptions({"auto", "ard", "full"})],
        "n_inducing": [StrOptions({"auto"}), compat.Count()],
        "n_neighbors": [StrOptions({"auto", "all"}), compat.Count()],
        "init": [StrOptions({"default", "local"})],
        "inducing_points": [StrOptions({"kmeans", "random"}), "array-like"],
        "optimize_inducing": ["boolean"],
        "covariance": [StrOptions({"auto", "diag", "draws", "full"})],
        "neighbor_search": [StrOptions({"exact", "approximate"})],
        "neighborhood": [StrOptions({"points", "union"})],
        "n_active": [StrOptions({"auto"}), compat.Count()],
        "kl_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "solver": [StrOptions(set(SOLVERS))],
        "batch_size": [compat.Count()],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [compat.Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [compat.Count()],
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "warm_start": ["boolean"],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "n_jobs": [Integral, None],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _learn_targets(self, X, rows, y, weight):
        """Return the fitted attributes that the targets need, from training rows.

        `rows` are the numbers of the rows of X that y (n, ...) and weight (n,) belong
        to, or None for all of them.
        """

    def _learn_noise_model(self, X, rows, y, weight, attributes):
        """Return the process of the noise, or None where noise does not vary.

        The first arguments are those of `_learn_targets`, which returned the last one.
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

    @abstractmethod
    def _log_density(self, mu, v, targets, attributes):
        """Return the log predictive density of each row's targets, in nats."""

    _target_checks: dict  # arguments of `validate_data` that concern y
    _tuning = Tuning()

    @compat.with_callbacks
    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units. With `solver="adam"` and `init="default"`
            floats are not copied, and a memory map is read piece by piece.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row, a number of observations, in training and when it is
            held out.
        X_val : array-like of shape (n_val, n_features), default=None
            Inputs held out to decide when to stop, instead of `validation_fraction`.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets that go with `X_val`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data cannot be used; the estimator stays as it was.
        FloatingPointError
            If training produces NaN or infinity, with `solver="natural"` in the first
            round. A later round that does leaves the model at its best.
        """
        with compat.unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, X_val, y_val)

    @compat.with_callbacks
    def _partial_fit(self, X, y, sample_weight, exposure=None):
        """Learn from one more chunk: one epoch at a constant learning rate."""
        with compat.unchanged_on_failure(self):
            rows = {"streaming": True, "exposure": exposure}
            return self._fit(X, y, sample_weight, **rows)

    def _fit(
        self, X, y, sample_weight, X_val=None, y_val=None, streaming=False,
        exposure=None, noise_variance=None, noise_model=None,
    ):  # fmt: skip
        """Fit the model, or learn from one chunk of a stream; see `fit`.

        `noise_model` is a process of the noise that is known, or None.
        """
        self._validate_params()
        solver = choose_solver(self.solver, self.optimize_inducing, streaming)
        self._refuse_combinations(solver)
        require_device(self.device)
        fitted = self._fitted_attributes() if streaming or self.warm_start else {}
        given = {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        rows = {"exposure": exposure, "noise_variance": noise_variance}
        problem = self._problem(
            X, y, sample_weight, (X_val, y_val), solver, fitted, streaming, **rows,
            noise_model=noise_model,
        )  # fmt: skip
        start = self._start(problem, fitted)
        task = compat.FitTask(self, start.settings.max_iter, given)
        trained, optimizer = self._solve(start, task)
        for name in FOUND_LAST + OF_LIKELIHOOD:
            vars(self).pop(name, None)  # that of an earlier fit
        vars(self).update(trained)
        self._optimizer, self._pairing = optimizer, problem.pairing
        self._noise_known = problem.noise_is_known
        task.end()
        return self

    def _settings(self, attributes, data, solver, streaming=False):
        """Return the `Settings` of a fit by a subclass of `Solver`."""
        names = [name for name in Settings._fields if hasattr(self, name)]
        chosen = {name: getattr(self, name) for name in names}
        likelihood, n_latent = self._likelihood_of(attributes)
        chosen |= {"likelihood": likelihood, "n_latent": n_latent, "solver": solver}
        chosen["kernel"] = kernel_for(self, data.X.shape[1])
        averages = LIKELIHOODS[likelihood].averages
        chosen["averages"] = averages(data.y, data.weight, n_latent)
        if self.metric == "auto" and self.kernel is not None:
            chosen["metric"] = "ard"
        if streaming:
            chosen |= {"max_iter": 1, "decay": False}
        return Settings(**chosen, tuning=self._tuning)

    def _require_likelihood_of_fit(self, name, attributes):
        """Raise ValueError if attributes are those of a fit of another likelihood."""
        before = attributes.get("likelihood_", name)
        if before != name:
            raise ValueError(
                f"likelihood={self.likelihood!r} for a model that was fitted with "
                f"{before!r}: expected the likelihood of the fit; set it back, or fit "
                "again without warm_start."
            )

    def _refuse_combinations(self, solver):
        """Raise ValueError for parameters that do not go together."""
        if self.metric == "full" and self.init == "default":
            raise ValueError(
                "metric='full' with init='default', which learns nothing before the "
                "first epoch: expected init='local', or metric='auto' or 'ard'."
            )
        if self.neighborhood == "union" and not solver.shares_points:
            raise ValueError(
                f"neighborhood='union' with {solver.title}, which takes no minibatches "
                "by themselves: expected 'points'; use solver='adam' for unions."
            )
        if self.covariance == "draws" and not solver.draws:
            raise ValueError(
                f"covariance='draws' with {solver.title}: expected solver='natural' "
                "with fixed inducing points; use covariance='diag', 'full' or 'auto'."
            )

    def _learn_law(self, solver, data, trained, settings, rng):
        """Return the fitted attribute of the law of observations, or none."""
        return {}

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
        names = [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]
        return {n: getattr(self, n) for n in names if n not in FOUND_LAST}
