"""Covariances and draws of observations."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skswsgp._rows.target_scale import Logarithm, TargetScale, YeoJohnson
from skswsgp.joint.predictions import draw_roots, transformed_covariance


@pytest.mark.parametrize("freedom", [4.0, np.inf])
def test_roots_make_a_gaussian_a_student(freedom):
    rng = np.random.default_rng(0)
    roots = draw_roots(freedom, rng, 200_000)
    z = roots * rng.standard_normal(200_000)
    inside = np.quantile(z, [0.1, 0.9])
    law = stats.norm() if np.isinf(freedom) else stats.t(freedom)
    assert_allclose(inside, law.ppf([0.1, 0.9]), rtol=0.02)


def test_covariances_behind_a_logarithm_have_a_closed_form():
    rng = np.random.default_rng(0)
    A, m = rng.normal(size=(4, 4)), rng.normal(size=(4, 1))
    C = 0.1 * A @ A.T
    s = np.sqrt(np.diag(C))[:, None]
    how = (lambda z: m + s * z), (C / (s * s.T))[:, :, None]
    mean = np.exp(m[:, 0] + 0.5 * np.diag(C))
    logarithm = TargetScale(0.0, 1.0, Logarithm())
    found = transformed_covariance(logarithm, *how)
    assert_allclose(found[:, :, 0], np.outer(mean, mean) * np.expm1(C), rtol=1e-9)
    powers = YeoJohnson(np.array([1.0]), np.array([0.0]))  # log(1 + y) for positive y
    shifted = transformed_covariance(TargetScale(20.0, 1.0, powers), *how)[:, :, 0]
    assert_allclose(shifted, found[:, :, 0] * np.exp(40.0), rtol=1e-6)
