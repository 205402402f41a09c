"""Small data and small models for tests of the estimators."""

import joblib
import numpy as np
import pytest
from helpers import ADAM, make
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._adam import solver as adam
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.settings import Settings
from skswsgp.kernels import ArcCosine

JITTER = 1e-4  # default jitter in float64, relative to the kernel variance

KERNELS = {
    "matern": ConstantKernel(1.7) * Matern([0.8, 1.5], nu=2.5),
    "white": ConstantKernel(0.6) * RBF(0.9) + WhiteKernel(0.2),
    "arc-cosine": ConstantKernel(0.8) * ArcCosine(order=1, sigma_0=0.7),
    "linear": DotProduct(0.5) + RBF([1.1, 0.7]),
}

TINY = {
    "n_inducing": 10,
    "n_neighbors": 4,
    "max_iter": 3,
    "batch_size": 16,
    "random_state": 0,
}

both_estimators = pytest.mark.parametrize(
    "estimator_class", [SWSGPRegressor, SWSGPClassifier]
)
each_solver = pytest.mark.parametrize("solver", [{}, ADAM], ids=["natural", "adam"])

CALLBACKS = "_callback", "_skl_callbacks"  # attributes of scikit-learn's mixin
FITTED_ARRAYS = ("inducing_points_", "inducing_mean_", "inducing_covariance_")


def tiny_data(estimator_class, n=40):
    """Return X (n, 2), y (n,): a noiseless function, or its sign for a classifier."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = X[:, 0] + np.sin(2 * X[:, 1])
    return X, (y > 0).astype(int) if estimator_class is SWSGPClassifier else y


def small_data(n=150, seed=0):
    """Return X (n, 2), y (n,): a smooth function with noise of variance 0.01."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def small_model(**params):
    defaults = {"n_inducing": 20, "n_neighbors": 5, "max_iter": 5, "batch_size": 16}
    return make(SWSGPRegressor, **ADAM | defaults | {"random_state": 0} | params)


def natural_model(**params):
    return make(SWSGPRegressor, **{"n_neighbors": 8, "random_state": 0} | params)


def unfitted(kernel, *, Q=1, full=False, H=4, M=7, D=2, seed=0):
    """Return an unfitted model with given fitted attributes."""
    rng = np.random.default_rng(seed)
    model = SWSGPRegressor(kernel=None)
    covariance = rng.uniform(0.1, 0.5, size=(M, Q))
    if full:
        covariance = np.tril(0.2 * rng.normal(size=(Q, M, M)), -1)
        covariance += np.eye(M) * rng.uniform(0.3, 0.9, size=(Q, M, 1))
        covariance = np.moveaxis(covariance, 0, -1)
    mean, noise = rng.normal(size=(M, Q)), rng.uniform(0.1, 0.3, size=Q)
    model.kernel_ = kernel
    model.inducing_points_ = rng.normal(size=(M, D)) + 1.0
    model.n_neighbors_, model.n_features_in_ = H, D
    model.linear_map_ = np.eye(D)
    model.inducing_mean_ = mean if Q > 1 else mean[:, 0]
    model.inducing_covariance_ = covariance if Q > 1 else covariance[..., 0]
    model.noise_variance_ = noise if Q > 1 else noise[0]
    model.y_mean_ = np.array([3.0, -1.0]) if Q > 1 else 3.0
    model.y_scale_ = np.array([2.0, 0.5]) if Q > 1 else 2.0
    model.y_transform_ = None
    return model


def as_reference(model):
    """Return the arguments Z, mean (M, Q), covariance of the reference."""
    M = len(model.inducing_points_)
    mean = np.reshape(model.inducing_mean_, (M, -1))
    covariance = model.inducing_covariance_
    full = covariance.ndim > np.ndim(model.inducing_mean_)
    shape = (M, M, -1) if full else (M, -1)
    return model.inducing_points_, mean, covariance.reshape(shape)


def state_of(model):
    """Return a hash of all attributes of a model, callbacks excepted."""
    state = vars(model).items()
    return joblib.hash({n: v for n, v in state if not n.startswith(CALLBACKS)})


def assert_same_bits(first, second):
    for name in FITTED_ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.kernel_.theta, second.kernel_.theta)
    np.testing.assert_array_equal(first.noise_variance_, second.noise_variance_)
    assert first.loss_curve_ == second.loss_curve_


def interrupting(monkeypatch, error, epoch):
    """Make training raise `error` at the start of an epoch, counted from 1."""
    run_epoch, calls = adam.run_epoch, []

    def raising(*args):
        calls.append(1)
        if len(calls) == epoch:
            raise error
        return run_epoch(*args)

    monkeypatch.setattr(adam, "run_epoch", raising)


def natural_settings(likelihood="gaussian", n_latent=1, **parameters):
    """Return the `Settings` of a fit by the natural solver."""
    return Settings(likelihood, n_latent, NaturalSolver, **parameters)


def adam_settings(n_latent=1, **parameters):
    """Return the `Settings` of a regression by Adam."""
    return Settings("gaussian", n_latent, adam.AdamSolver, **parameters)
