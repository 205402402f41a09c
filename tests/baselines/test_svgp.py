"""The SVGP is the SWSGP whose rows use all inducing points, and its formulas hold."""

import inspect

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import SVGPClassifier, SVGPRegressor
from skswsgp.solvers import Adam

SHORT = {"batch_size": 16, "learning_rate": 0.05, "max_iter": 3}
BOTH = pytest.mark.parametrize(
    ("ours", "general"),
    [(SVGPRegressor, SWSGPRegressor), (SVGPClassifier, SWSGPClassifier)],
)


@pytest.fixture
def table(rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0).astype(int)


def arrays(model):
    names = "inducing_points_", "inducing_mean_", "inducing_covariance_"
    return [*(getattr(model, name) for name in names), model.kernel_.theta]


@BOTH
def test_it_is_the_swsgp_whose_rows_use_all_points(ours, general, table):
    X, y = table
    plain = {"x_transform": None, "learn_map": False, "covariance": "full"}
    if general is SWSGPRegressor:
        plain |= {"y_transform": None, "predictive": "gaussian"}
    adam = Adam(optimize_inducing=True, kl_weight=1.0, early_stopping=False, **SHORT)
    how = {"n_inducing": 12, "random_state": 0}
    model = ours(**how, **SHORT).fit(X, y)
    same = general(
        n_neighbors="all", learn_kernel=False, solver=adam, **plain, **how
    ).fit(X, y)
    for one, other in zip(arrays(model), arrays(same), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (
        np.ptp(
            model.inducing_points_
            - ours(optimize_inducing=False, **how, **SHORT).fit(X, y).inducing_points_
        )
        > 1e-3
    )
    H = len(model.inducing_points_)
    np.testing.assert_array_equal(model.predict(X, n_neighbors=H), model.predict(X))


def test_the_best_bound_with_a_point_at_each_row_is_the_log_evidence(table):
    X, y = table
    kernel, noise = ConstantKernel(1.3, "fixed") * RBF(0.7, "fixed"), 0.2
    how = {"inducing_points": X, "normalize_y": False, "max_iter": 1}
    model = SVGPRegressor(kernel, initial_noise=noise, random_state=0, **how).fit(X, y)
    model.noise_variance_, model._jitter = noise, 1e-12
    model.inducing_points_ = X
    K = kernel(X)
    gain = np.linalg.solve(K + noise * np.eye(60), K).T
    model.inducing_mean_ = gain @ y
    model.inducing_covariance_ = np.linalg.cholesky(K - gain @ K + 1e-12 * np.eye(60))
    exact = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X, y)
    expected = exact.log_marginal_likelihood_value_
    assert model.lower_bound(X, y) == pytest.approx(expected, abs=1e-6)
    model.inducing_mean_ = 1.01 * model.inducing_mean_
    assert model.lower_bound(X, y) < expected - 1e-3


@BOTH
@pytest.mark.parametrize(("given", "M"), [(7, 7), (None, 256)])
def test_given_points_tell_their_number_and_it_is_256_without(
    ours, general, given, M, rng
):
    X = rng.normal(size=(300, 2))
    points = "random" if given is None else X[:given] + 0.1
    how = {"max_iter": 1, "batch_size": 300, "random_state": 0}
    model = ours(inducing_points=points, **how).fit(X, (X[:, 0] > 0.0).astype(int))
    assert model.inducing_points_.shape == (M, 2)


def test_known_noise_is_refused_by_what_an_svgp_has(table):
    X, y = table
    with pytest.raises(ValueError, match="one noise variance for all rows; use SWSGP"):
        SVGPRegressor(**SHORT).fit(X, y, noise_variance=np.full(60, 0.1))


@BOTH
def test_every_parameter_is_checked(ours, general, table):
    X, y = table
    assert len(inspect.signature(ours).parameters) == len(ours().get_params(deep=False))
    for name in set(ours().get_params(deep=False)) - {"kernel"}:
        with pytest.raises(ValueError, match=name):
            ours(**{name: object()}).fit(X, y)


def test_values_that_an_svgp_does_not_have(table):
    values = {"likelihood": "heteroscedastic", "covariance": "draws", "n_inducing": 0}
    for name, value in values.items():
        with pytest.raises(ValueError, match=f"The '{name}' parameter of SVGPRegr"):
            SVGPRegressor(**{name: value}).fit(*table)
