"""Student-t densities of residuals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skswsgp._law import student

pytestmark = pytest.mark.matrix


def frozen(freedom):
    return stats.norm() if np.isinf(freedom) else stats.t(freedom)


@pytest.mark.parametrize("freedom", [3.0, 7.5, np.inf])
def test_formulas_are_those_of_scipy(freedom):
    z, law = np.linspace(-4, 4, 9), frozen(freedom)
    assert_allclose(student.log_density(z, 0.0, freedom), law.logpdf(z))
    scaled = student.log_density(z, np.log(2.0), freedom)
    assert_allclose(scaled, law.logpdf(z / 2) - np.log(2))
    scores = stats.norm.ppf(law.cdf(z))
    assert_allclose(student.normal_score(z, freedom), scores, atol=1e-12)
    assert_allclose(student.from_normal(scores, freedom), z, atol=1e-12)
    assert_allclose(student.deviation(freedom), law.std())


def test_fit_finds_scales_and_tails():
    rng = np.random.default_rng(0)
    feature = rng.normal(size=20_000)
    z = rng.standard_t(5.0, size=20_000) * np.exp(0.2 + 0.8 * feature)
    features = np.column_stack([np.ones_like(feature), feature])
    coefficients, freedom = student.fit(z, features)
    assert_allclose(coefficients, [0.2, 0.8], atol=0.03)
    assert 4.5 < freedom < 5.6


def test_fit_finds_a_gaussian():
    rng = np.random.default_rng(0)
    coefficients, freedom = student.fit(rng.normal(size=20_000), np.ones((20_000, 1)))
    assert_allclose(coefficients, 0.0, atol=0.02)
    assert freedom > 50.0


def test_tails_have_four_degrees_of_freedom_at_least():
    z = np.random.default_rng(0).standard_t(2, 5000)
    assert_allclose(student.fit(z, np.ones((5000, 1)))[1], 4.0)


def test_the_prior_holds_where_rows_are_few():
    z = np.array([0.01, -0.02, 0.015])
    coefficients, freedom = student.fit(z, np.ones((3, 1)))
    assert -0.7 < coefficients[0] < 0.0  # three errors of 1 % are no proof
    assert freedom >= student.LEAST_FREEDOM
