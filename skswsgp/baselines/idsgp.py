"""IDSGP: a network gives each row inducing points and q(u) of its own."""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel
from sklearn.model_selection import train_test_split
from sklearn.utils._param_validation import Interval, StrOptions

from skswsgp._adam.schedule import Schedule, steps_per_epoch
from skswsgp._adam.steps import require_finite_training
from skswsgp._compiled.threads import max_threads, row_blocks
from skswsgp._covariance.compile import compile_kernel, updated_kernel
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._estimators.hints import Floats, Seed
from skswsgp._fit.solve import warn_of_jitter
from skswsgp._point.adam_step import make_optimizer, update_parameters
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.data import center_rows
from skswsgp._rows.statistics import mean_and_scale, relative_weights
from skswsgp._solvers.auto import default_kernel
from skswsgp._solvers.constraints import Count
from skswsgp._solvers.model import build_model
from skswsgp._solvers.progress import History
from skswsgp.baselines.network import Network, draw_weights
from skswsgp.baselines.own_points import OwnPoints
from skswsgp.baselines.shared import BaselineClassifier, BaselineRegressor
from skswsgp.baselines.shared_docs import with_shared_text
from skswsgp.solvers import Adam

__all__ = ["IDSGPClassifier", "IDSGPRegressor"]


def _layer_sizes(given):
    """Return the numbers of units in the hidden layers, a list."""
    sizes = np.atleast_1d(given)
    if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or not (sizes > 0).all():
        raise ValueError(
            f"hidden_layer_sizes={given!r}: expected positive integers, one for each "
            "hidden layer; use (50,) for one of 50 units."
        )
    return sizes.tolist()


def _moments(points, network, X, inputs):
    """Return mean and variance (n, Q) of q(f) at rows of X, centred.

    A row has thousands of outputs of the network, so few are in memory at a time.
    """
    parts = [
        points.predict(X[rows], network.layers(inputs[rows])[-1])
        for rows in row_blocks(len(X), 512)
    ]
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


class _Training:
    """Epochs of minibatches for the weights of a network, the kernel and the noise."""

    def __init__(self, points, network, kernel, schedule):
        self.points, self.network, self.schedule = points, network, schedule
        model = points.model
        compiled = compile_kernel(kernel, model.Z.shape[1], "float64")
        free, unit = (compiled.free, compiled.log_bounds), np.ones(model.Z.shape[1])
        self.optimizer = make_optimizer(model, *free, unit)
        self.arrays = [*network.arrays, model.params, model.noise]  # which steps modify

    @np.errstate(all="ignore")  # results are checked
    def epoch(self, rows, order, index):
        """Visit rows in an order (n,); return (loss per row, bound in nats).

        `rows` are X centred, inputs of the network, targets and weights.
        """
        sums, points, network = np.zeros(2), self.points, self.network
        for step, chosen in enumerate(np.array_split(order, self.schedule.n_steps)):
            X, inputs, y, weight = (array[chosen] for array in rows)
            layers = network.layers(inputs)
            d_outputs = points.gradients(X, y, weight, layers[-1])
            sums += points.grads.sums[0]
            require_finite_training(sums)
            rate = self.schedule.rate_at(index, step)
            network.step(network.slopes(layers, d_outputs), rate)
            update_parameters(points.model, self.optimizer, points.grads, rate)
        total = points.model.total_weight
        bound = sums[0] - sums[1] / total
        return -bound / total, bound


class _OwnPointsMixin:
    """Training and latent functions of both estimators."""

    _of_network = {  # noqa: RUF012
        "n_inducing": [Count()],
        "hidden_layer_sizes": "no_validation",  # checked by `_layer_sizes`
        "batch_size": [Count(), StrOptions({"auto"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Count()],
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "verbose": ["verbose"],
    }

    def inducing_points(self, X: ArrayLike) -> Floats:
        """Return the inducing points that the network gives to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        points : ndarray of shape (n_samples, n_inducing, n_features)
            Inducing points of each row, in the units of X.
        """
        X = self._checked(X)
        points, center = self._points(len(X))
        outputs = Network(self.coefs_, self.intercepts_).layers(self._inputs(X))[-1]
        return points.points(outputs) + center

    def _inputs(self, X):
        """Return rows as the network sees them, within the range of training rows."""
        return (np.clip(X, *self.X_range_) - self.X_mean_) / self.X_scale_

    def _points(self, n_rows, total_weight=1.0):
        """Return the `OwnPoints` of the fitted attributes, and the center of X."""
        M, Q = self._shape
        start = {
            "kernel_": self.kernel_,
            "inducing_points_": np.repeat(self.X_mean_[None], M, axis=0),
            "inducing_mean_": np.zeros((M, Q)),
            "inducing_covariance_": np.zeros((M, M, Q)),
        }
        if hasattr(self, "noise_variance_"):
            start["noise_variance_"] = self.noise_variance_
        how = {"train_inducing": True, "total_weight": total_weight}
        model, center = build_model(start, self._likelihood, "float64", **how)
        n_threads = max_threads(self.n_jobs, n_rows)
        return OwnPoints(model, self.X_mean_ - center, self.X_scale_, n_threads), center

    def _learn(self, data, rng):
        data = self._begun(data)
        rows, held_out = self._split(data.n_rows, rng)
        points, center = self._points(data.n_rows, data.weight[rows].sum())
        D = data.X.shape[1]
        sizes = [D, *_layer_sizes(self.hidden_layer_sizes), points.n_outputs]
        network = Network(*draw_weights(sizes, rng))
        # a hundred steps do not train a network, and four rows do not guide one
        usual = min(100, max(10, len(rows) // 50))
        batch_size = usual if self.batch_size == "auto" else self.batch_size
        n_steps = steps_per_epoch(len(rows), batch_size)
        schedule = Schedule(self.learning_rate, self.max_iter, n_steps)
        training = _Training(points, network, self.kernel_, schedule)
        X, inputs = center_rows(data.X, center, "float64"), self._inputs(data.X)
        known = X, inputs, data.y, data.weight
        vars(self).update(self._train(training, known, rows, held_out, rng))
        warn_of_jitter(points.grads.jitter_counts)
        self.coefs_ = network.coefs
        self.intercepts_ = [intercept[0] for intercept in network.intercepts]
        self.kernel_ = updated_kernel(self.kernel_, points.model.params)
        if len(points.model.noise):
            self.noise_variance_ = self._of_outputs(points.model.noise)

    def _begun(self, data):
        """Set scales, kernel and noise to their start; return the rows that train."""
        (name, Q), D = self._likelihood, data.X.shape[1]
        if name == "gaussian":
            data = relative_weights(data, data.n_rows)
            noise = np.full(Q, float(self.initial_noise))
            self.noise_variance_ = self._of_outputs(noise)
        data = data._replace(X=data.X.astype(np.float64))
        self.X_mean_, self.X_scale_ = mean_and_scale(data.X, data.weight)
        self.X_range_ = np.stack([data.X.min(axis=0), data.X.max(axis=0)])
        self._shape, self.kernel_ = (self.n_inducing, Q), kernel_for(self, D)
        if self.kernel_ is None:  # length-scales of one deviation
            kernel = default_kernel(self.X_scale_ / np.sqrt(D))
            self.kernel_ = kernel.set_params(k2__nu=1.5)
        return data

    def _split(self, n_rows, rng):
        """Return the numbers of the rows that train, and of those held out."""
        rows, early = np.arange(n_rows), self.early_stopping
        if early == "auto":
            early = n_rows > self._tuning.holdout_above
        if not early or n_rows == 1:
            return rows, rows[:0]
        share = Adam().validation_fraction
        return train_test_split(rows, test_size=share, random_state=rng)

    def _train(self, training, known, rows, held_out, rng):
        """Run all epochs, and keep the best if rows are held out.

        Returns the fitted attributes that describe them. `known` are the arrays of
        `_Training.epoch`, for all rows.
        """
        history, best = History(tol=0.0, n_iter_no_change=self.max_iter), None
        for epoch in range(self.max_iter):
            found, score = training.epoch(known, rng.permutation(rows), epoch), None
            if len(held_out):
                X, inputs, y, weight = (array[held_out] for array in known)
                moments = _moments(training.points, training.network, X, inputs)
                record = LIKELIHOODS[self._likelihood[0]]
                density = record.log_density(*moments, y, training.points.model.noise)
                score = float(np.average(density, weights=weight))
            if history.add(*found, score) and score is not None:
                best = [array.copy() for array in training.arrays], history.bounds[-1]
            if self.verbose:
                print(f"epoch {epoch + 1}/{self.max_iter}: loss {found[0]:.5f}")
        arrays, bound = best or (training.arrays, history.bounds[-1])
        for array, kept in zip(training.arrays, arrays, strict=True):
            array[:] = kept
        return history.attributes() | {"lower_bound_": bound}

    def _latent(self, X):
        points, center = self._points(len(X))
        network = Network(self.coefs_, self.intercepts_)
        centred = center_rows(X, center, "float64")
        return _moments(points, network, centred, self._inputs(X))


@with_shared_text
class IDSGPRegressor(_OwnPointsMixin, BaselineRegressor):
    """Gaussian process regression with inducing points of each row's own.

    A network reads a row and puts out the row's inducing points, and the mean and the
    covariance of q(u) there [1]_. So few points are enough: a prediction takes a
    network and a matrix of `n_inducing` points, and no training rows.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X; training starts at its
        parameters, those with ``"fixed"`` bounds stay. See "Kernels and seasonality".
        None is a variance times a Matern 3/2 kernel with one length-scale for each
        feature.
    n_inducing : int, default=15
        Number of inducing points of a row.
    hidden_layer_sizes : int or array-like of int, default=(50,)
        Numbers of rectified linear units in the hidden layers.
    initial_noise : float, default=0.1
        Noise variance at the start, on the scale of standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    $network_training

    Attributes
    ----------
    $network_layers
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance, on the scale of standardised y.
    X_mean_, X_scale_ : ndarrays of shape (n_features,)
        The network reads (X - X_mean_) / X_scale_.
    X_range_ : ndarray of shape (2, n_features)
        Least and largest values of training rows. The network takes values beyond them
        for these; the kernel does not.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    lower_bound_ : float
        Bound on the log likelihood of the rows that train, in nats, over the epoch
        that is kept, for standardised y.
    loss_curve_ : list of float
        Negative objective of each epoch, a mean over rows.
    validation_scores_ : list of float or None
        Mean log density of held-out rows after each epoch, for standardised y.
    n_iter_ : int
        Number of epochs.
    $features

    See Also
    --------
    skswsgp.SWSGPRegressor : Each row uses its nearest inducing points.

    $network_notes

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import IDSGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = IDSGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.05)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineRegressor._parameter_constraints,
        **_OwnPointsMixin._of_network,
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 15,
        hidden_layer_sizes: ArrayLike = (50,), initial_noise: float = 0.1,
        normalize_y: bool = True, batch_size: int | str = "auto",
        learning_rate: float = 0.01, max_iter: int = 100,
        early_stopping: bool | str = "auto", n_jobs: int | None = None,
        random_state: Seed = None, verbose: int = 0,
    ):  # fmt: skip
        compat.set_arguments(self, locals())


@with_shared_text
class IDSGPClassifier(_OwnPointsMixin, BaselineClassifier):
    """Gaussian process classification with inducing points of each row's own.

    A network reads a row and puts out the row's inducing points, and the mean and the
    covariance of q(u) there [1]_. So few points are enough: a prediction takes a
    network and a matrix of `n_inducing` points, and no training rows.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent functions, in the units of X; training starts at its
        parameters, those with ``"fixed"`` bounds stay. See "Kernels and seasonality".
        None is a variance times a Matern 3/2 kernel with one length-scale for each
        feature.
    n_inducing : int, default=3
        Number of inducing points of a row.
    hidden_layer_sizes : int or array-like of int, default=(50,)
        Numbers of rectified linear units in the hidden layers.
    $network_training

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    $network_layers
    X_mean_, X_scale_ : ndarrays of shape (n_features,)
        The network reads (X - X_mean_) / X_scale_.
    X_range_ : ndarray of shape (2, n_features)
        Least and largest values of training rows. The network takes values beyond them
        for these; the kernel does not.
    lower_bound_ : float
        Bound on the log likelihood of the rows that train, in nats, over the epoch
        that is kept.
    loss_curve_ : list of float
        Negative objective of each epoch, a mean over rows.
    validation_scores_ : list of float or None
        Mean log density of held-out rows after each epoch.
    n_iter_ : int
        Number of epochs.
    $features

    See Also
    --------
    skswsgp.SWSGPClassifier : Each row uses its nearest inducing points.

    $network_notes

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skswsgp.baselines import IDSGPClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = IDSGPClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineClassifier._parameter_constraints,
        **_OwnPointsMixin._of_network,
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 3,
        hidden_layer_sizes: ArrayLike = (50,), batch_size: int | str = "auto",
        learning_rate: float = 0.01, max_iter: int = 100,
        early_stopping: bool | str = "auto", n_jobs: int | None = None,
        random_state: Seed = None, verbose: int = 0,
    ):  # fmt: skip
        compat.set_arguments(self, locals())
