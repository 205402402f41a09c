"""Special functions against NumPy and SciPy."""

import math

import numpy as np
import pytest
from helpers import entry
from scipy.stats import norm

from skswsgp._compiled import special
from skswsgp._compiled.special import gaussian_log_density

compiled_log_density = entry(special.compiled_log_density)
exponential = entry(special.exponential)


def test_exponential():
    small = np.logspace(-20, 0, 500)
    x = np.concatenate([np.linspace(-700.0, 699.0, 9000), -small, small, [-0.0]])
    values = np.array([exponential(value) for value in x])
    # fastmath merges the two parts of log 2, which moves x by 4e-17 |x|
    np.testing.assert_allclose(values, np.exp(x), rtol=4e-14)
    near = np.abs(x) < 300.0
    np.testing.assert_allclose(values[near], np.exp(x[near]), rtol=2e-14)
    assert exponential(-1e6) == exponential(-700.0) < 1e-300
    assert np.isnan(exponential(np.nan))


def test_gaussian_log_density():
    residual, variance = np.array([0.0, 1.3, -2.0]), np.array([0.5, 2.0, 1e-3])
    square, log_variance = residual**2 / variance, np.log(variance)
    actual = gaussian_log_density(square, log_variance)
    np.testing.assert_allclose(actual, norm.logpdf(residual, scale=np.sqrt(variance)))
    for one, s, v in zip(actual, square, variance, strict=True):
        assert compiled_log_density(s, math.log(v)) == pytest.approx(one, rel=1e-15)
