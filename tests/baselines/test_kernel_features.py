"""Random features as a transformer."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import cho_factor, cho_solve
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    WhiteKernel,
)
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp.baselines import KernelFeatures
from skswsgp.kernels import ArcCosine, OnColumns


@parametrize_with_checks([KernelFeatures(n_components=8)])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.matrix
@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel(2.0) * Matern([0.7, 1.5, 3.0], nu=1.5) + ArcCosine(0),
        ArcCosine(1, sigma_0=0.5),
    ],
    ids=["sum", "arc-cosine"],
)
def test_products_are_the_kernel_on_average(kernel, orthogonal, rng):
    X = rng.normal(size=(5, 3))
    products = []
    for seed in range(400):
        features = KernelFeatures(
            kernel, n_components=50, orthogonal=orthogonal, random_state=seed
        ).fit_transform(X)
        products.append(features @ features.T)
    error = np.std(products, axis=0) / np.sqrt(400)
    np.testing.assert_array_less(
        abs(np.mean(products, axis=0) - kernel(X)), 4.5 * error
    )


def test_orthogonal_features_vary_less(rng):
    X = 0.5 * rng.normal(size=(4, 8))
    variance = {}
    for orthogonal in (False, True):
        how = {"n_components": 64, "orthogonal": orthogonal}
        features = [
            KernelFeatures(RBF(), random_state=seed, **how).fit_transform(X)
            for seed in range(400)
        ]
        products = [phi @ phi.T for phi in features]
        variance[orthogonal] = np.mean(np.var(products, axis=0))
    assert variance[True] < 0.97 * variance[False]


def test_a_ridge_on_features_is_the_process_of_their_kernel(rng):
    X, X_new = rng.normal(size=(40, 2)), rng.normal(size=(9, 2))
    y, noise = np.sin(X[:, 0]), 0.1
    # priors so sure that the precisions stay where they are
    sure = {"alpha_1": 1e16, "alpha_2": noise * 1e16, "lambda_1": 1e16}
    ridge = BayesianRidge(lambda_2=1e16, fit_intercept=False, **sure)
    features = KernelFeatures(n_components=30, random_state=0)
    mean, std = make_pipeline(features, ridge).fit(X, y).predict(X_new, return_std=True)

    phi, phi_new = features.transform(X), features.transform(X_new)
    factor, cross = cho_factor(phi @ phi.T + noise * np.eye(40)), phi_new @ phi.T
    np.testing.assert_allclose(mean, cross @ cho_solve(factor, y), rtol=0, atol=1e-8)
    known = np.sum(cross * cho_solve(factor, cross.T).T, axis=1)
    variance = np.sum(phi_new**2, axis=1) - known + noise
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=0, atol=1e-8)


def test_columns_are_found_by_name():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [5.0, 1.0, 3.0]})
    named = KernelFeatures(OnColumns(RBF(), ["b"]), random_state=0).fit(frame)
    expected = KernelFeatures(OnColumns(RBF(), [1]), random_state=0)
    np.testing.assert_array_equal(
        named.transform(frame), expected.fit_transform(frame.to_numpy())
    )
    assert list(named.get_feature_names_out()[:1]) == ["kernelfeatures0"]


def test_new_parameters_count_from_the_next_fit(rng):
    X = rng.normal(size=(5, 3))
    model = KernelFeatures(n_components=8, random_state=0).fit(X)
    before = model.transform(X)
    model.set_params(n_components=4, orthogonal=False)
    np.testing.assert_array_equal(model.transform(X), before)
    assert len(model.get_feature_names_out()) == 8
    assert model.fit_transform(X).shape == (5, 4)


def test_pickle_pipeline_and_search(rng):
    X = rng.normal(size=(120, 2))
    y = X[:, 0] ** 2 + X[:, 1] ** 2 > 1.0
    pipeline = make_pipeline(
        StandardScaler(), KernelFeatures(random_state=0), LogisticRegression()
    )
    grid = {"kernelfeatures__n_components": [1, 64]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_params_ == {"kernelfeatures__n_components": 64}
    assert search.score(X, y) > 0.9
    copy = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(copy.predict_proba(X), search.predict_proba(X))


def test_unusable_parameters(rng):
    cases = [
        ({"kernel": RBF() + WhiteKernel()}, ValueError, "WhiteKernel has no draws"),
        (
            {"kernel": RBF() ** 0.5},
            ValueError,
            "to the power 0.5 .*; use the power 1\\.$",
        ),
        ({"kernel": "rbf"}, TypeError, "'rbf'.*expected a kernel"),
        ({"n_components": 0}, ValueError, "'n_components' parameter"),
        ({"orthogonal": "yes"}, ValueError, "'orthogonal' parameter"),
    ]
    for params, error, match in cases:
        model = KernelFeatures(**params)
        with pytest.raises(error, match=match):
            model.fit(rng.normal(size=(5, 2)))
        assert not [name for name in vars(model) if name.endswith("_")]
