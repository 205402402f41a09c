"""Sums over rows that all depend on all inducing values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp._engine.select import make_cpu_engine
from skswsgp._linear.dense_sites import DenseSites
from skswsgp._linear.site_rows import SiteRows
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._solvers.model import build_model, shape_covariance

KERNEL = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=1.5) + RBF(2.0)
NOISE = np.array([0.1, 0.4])


def make_sites(rng, n=90, M=11, n_threads=1, dtype="float64"):
    """Return `SiteRows` and `DenseSites` of the same rows."""
    Z, X = rng.normal(size=(M, 2)), rng.normal(size=(n, 2))
    y, weight = rng.normal(size=(n, 2)), rng.uniform(0.5, 2.0, size=n)
    attributes = {
        "kernel_": KERNEL, "inducing_points_": Z, "inducing_mean_": np.zeros((M, 2)),
        "inducing_covariance_": np.ones((M, 2)), "noise_variance_": NOISE,
        "_jitter": 1e-8,
    }  # fmt: skip
    attributes = shape_covariance(attributes, full=True)
    model, center = build_model(attributes, ("gaussian", 2), dtype)
    rows = y.astype(dtype), weight.astype(dtype)
    data = TrainingRows(X, *rows, center=center)
    engine = make_cpu_engine(model, M, n_threads)
    how = engine, KERNEL, data, LIKELIHOODS["gaussian"], None, memory_budget()
    return SiteRows.of(*how), DenseSites.of(engine, data)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_are_those_of_rows(rng, dtype):
    rows, sums = make_sites(rng, dtype=dtype)
    m, L = rng.normal(size=(11, 2)), np.tril(rng.normal(size=(2, 11, 11)))
    rows, close = rows.first(m, L), {"rtol": 1e-6 if dtype == "float64" else 1e-3}
    assert_allclose(sums.total_weight(), rows.total_weight(), rtol=1e-6)
    assert_allclose(sums.right(), rows.right(), atol=1e-4, **close)
    for q in range(2):
        scale = np.abs(rows.gram(q)).max()
        assert_allclose(sums.gram(q) / scale, rows.gram(q) / scale, atol=1e-6)
    assert sums.first(m, L) is sums
    found, expected = (sites.expecting(m, L).log_likelihood() for sites in (sums, rows))
    assert_allclose(found, expected, **close)


def test_sums_do_not_depend_on_threads(eager_threads):
    one, two = (
        make_sites(np.random.default_rng(0), n=5000, n_threads=k)[1] for k in (1, 2)
    )
    assert_array_equal(one.products, two.products)
    assert_array_equal(one.cross, two.cross)
    assert one.rest == two.rest
