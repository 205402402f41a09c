"""One step of Adam (Kingma and Ba, 2015), uphill, and its moments."""

import math
from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_small
from skswsgp._compiled.special import exponential
from skswsgp._covariance.compile import log_units
from skswsgp._covariance.program import kernel_of, only_kernel, refresh_scales

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-12  # decay of both moments; added to the root
_LOG_BETA1, _LOG_BETA2 = math.log(BETA1), math.log(BETA2)
LOG_NOISE_BOUNDS = (math.log(1e-8), math.log(1e4))

# Bounds and units of steps, first and second moments, counts of steps
Optimizer = namedtuple(
    "Optimizer",
    "free log_bounds units feature_scale Z m s L params noise row_steps steps",
)


def make_optimizer(model, free, log_bounds, feature_scale):
    """Return an `Optimizer` for a model, with moments and counts of zero."""
    M, Q = model.m.shape

    def zeros(*shape):
        return np.zeros(shape, dtype=model.Z.dtype)

    return Optimizer(
        free=free,  # (P,) bool, whether a kernel parameter is trained
        log_bounds=log_bounds,  # (P, 2)
        units=log_units(kernel_of(model), model.Z),  # (P,) of steps in logarithms
        feature_scale=feature_scale.astype(model.Z.dtype),  # (D,) unit of a step of Z
        Z=zeros(M if model.train_inducing else 1, 2, model.Z.shape[1]),
        m=zeros(M, 2, Q),
        s=zeros(len(model.s), 2, Q),
        L=zeros(len(model.L), M, 2, M),
        params=zeros(1, 2, len(model.params)),
        noise=zeros(1, 2, len(model.noise)),
        row_steps=np.zeros(M, dtype=np.int64),  # steps that moved an inducing point
        steps=np.zeros(1, dtype=np.int64),  # all steps
    )


@njit_small
def bias_corrections(steps, rate):
    """Return rate / (1 - beta1^t) and 1 / (1 - beta2^t) after t steps."""
    first = rate / (1.0 - exponential(steps * _LOG_BETA1))
    second = 1.0 / (1.0 - exponential(steps * _LOG_BETA2))
    return first, second


@njit_small
def adam_step(gradient, moments, row, j, first_scale, second_scale):
    """Return the step for a derivative; update moments[row, :, j] of (rows, 2, n)."""
    first = BETA1 * moments[row, 0, j] + (1.0 - BETA1) * gradient
    second = BETA2 * moments[row, 1, j] + (1.0 - BETA2) * gradient * gradient
    moments[row, 0, j], moments[row, 1, j] = first, second
    return first * first_scale / (math.sqrt(second * second_scale) + EPSILON)


@njit_small
def step_linear(values, row, j, derivative, unit, moments, first, second):
    """Add a step to values[row, j], measured in `unit`."""
    step = adam_step(derivative * unit, moments, row, j, first, second)
    values[row, j] += step * unit


@njit
def update_matrix(values, derivatives, moments, steps, rate):
    """Add step number `steps` to values (n, k), with moments (n, 2, k)."""
    first, second = bias_corrections(steps, rate)
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            step_linear(values, i, j, derivatives[i, j], 1.0, moments, first, second)


@njit_small
def clamp(value, low, high):
    """Return a value moved to its limits. NaN stays, unlike with `min` of a GPU."""
    return low if value < low else high if value > high else value


@njit
def update_parameters(model, optimizer, grads, rate):
    """Add a step to the logarithms of the kernel parameters and noise variances."""
    optimizer.steps[0] += 1
    first, second = bias_corrections(optimizer.steps[0], rate)
    params, noise, bounds = model.params, model.noise, optimizer.log_bounds
    for p in range(params.shape[0]):
        step = adam_step(grads.d_log[0, p], optimizer.params, 0, p, first, second)
        step *= optimizer.units[p]
        if optimizer.free[p]:
            moved = clamp(math.log(params[p]) + step, bounds[p, 0], bounds[p, 1])
            params[p] = math.exp(moved)
    for q in range(noise.shape[0]):
        step = adam_step(grads.d_noise[0, q], optimizer.noise, 0, q, first, second)
        moved = clamp(math.log(noise[q]) + step, *LOG_NOISE_BOUNDS)
        noise[q] = math.exp(moved)
    refresh_scales(only_kernel(model))
