"""IDSGP: what its network learns, keeps and says."""

import tracemalloc

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from skswsgp.baselines import IDSGPClassifier, IDSGPRegressor, SVGPRegressor, idsgp
from skswsgp.baselines.network import Network
from skswsgp.metrics import interval_coverage

SMALL = {"n_inducing": 4, "batch_size": 25, "max_iter": 30, "random_state": 0}


def waves(n, seed=0):
    """Return X (n, 2), and y (n,): waves along one column, with noise of 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    return X, np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def test_few_points_of_each_row_do_what_as_few_for_all_cannot():
    """It takes some seconds to train two models well enough to compare them."""
    X, y = waves(1000)
    X_new, y_new = waves(500, seed=1)
    how = {"n_inducing": 5, "random_state": 0}
    own = IDSGPRegressor(**how).fit(X, 7.0 * y + 300.0)
    assert own.score(X_new, 7.0 * y_new + 300.0) > 0.96
    assert SVGPRegressor(**how, max_iter=50).fit(X, y).score(X_new, y_new) < 0.5
    mean, std = own.predict(X_new, return_std=True)
    ends = mean - 1.96 * std, mean + 1.96 * std
    assert 0.9 < interval_coverage(7.0 * y_new + 300.0, *ends) < 0.99
    deviation = np.sqrt(own.noise_variance_) * own.y_scale_
    assert deviation == pytest.approx(0.7, rel=0.4)
    points = own.inducing_points(X_new)
    assert points.shape == (500, 5, 2)
    # points follow their rows
    near, others = (
        np.linalg.norm(each - X_new[:, None], axis=2).min(axis=1)
        for each in (points, np.roll(points, 250, axis=0))
    )
    assert np.median(near) < 0.6 * np.median(others)


def test_a_network_without_weights_in_its_last_layer_is_the_same_for_all_rows(rng):
    X, y = waves(60)
    model = IDSGPRegressor(**SMALL).fit(X, y)
    model.coefs_[-1][:] = 0.0
    points = model.inducing_points(X)
    np.testing.assert_array_equal(points, np.repeat(points[:1], 60, axis=0))


@pytest.mark.parametrize(
    "kernel", [None, ConstantKernel() * RBF(2.0) + DotProduct(1.0)]
)
def test_the_kernel_has_the_units_of_X(kernel, rng):
    X = rng.normal(size=(80, 2)) * [1.0, 1e4] + [0.0, 3e5]
    y = np.sin(X[:, 0])
    how = SMALL | {"max_iter": 1, "learning_rate": 1e-9}  # all stays at its start
    model = IDSGPRegressor(kernel, **how).fit(X, y)
    if kernel is None:
        lengths = model.kernel_.k2.length_scale
        np.testing.assert_allclose(lengths, X.std(axis=0), rtol=1e-6)
    else:
        np.testing.assert_allclose(model.kernel_.theta, kernel.theta, atol=1e-6)
    spread = model.inducing_points(X).reshape(-1, 2).std(axis=0)
    assert 0.2 < spread[0] < 5.0 and 0.2e4 < spread[1] < 5e4


def test_the_loss_falls_and_the_bound_belongs_to_it():
    X, y = waves(100)
    model = IDSGPRegressor(**SMALL).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) == 30
    assert model.loss_curve_[-1] < model.loss_curve_[0] - 0.1
    assert model.lower_bound_ == pytest.approx(-100.0 * model.loss_curve_[-1])
    assert model.validation_scores_ is None


def test_the_bound_is_that_of_eq_5():
    X, y = waves(100)
    how = SMALL | {"learning_rate": 1e-12, "max_iter": 1}  # the model stays
    model = IDSGPRegressor(normalize_y=False, **how).fit(X, y)
    points, center = model._points(100)
    network = Network(model.coefs_, model.intercepts_)
    outputs = network.layers((X - X.mean(axis=0)) / X.std(axis=0))[-1]
    points.gradients(X - center, y[:, None], np.ones(100), outputs)
    ell, kl = points.grads.sums[0]
    expected = ell - kl / 100.0
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "n_steps"), [(2, 1), (150, 15), (601, 51), (6000, 60)])
def test_few_rows_have_small_batches(n, n_steps):
    """Batches of 10 of 150 rows, 12 of 601 and 100 of 6,000."""
    seen = []

    class Counted(idsgp._Training):
        def epoch(self, *args):
            seen.append(self.schedule.n_steps)
            return super().epoch(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idsgp, "_Training", Counted)
        IDSGPRegressor(max_iter=1, n_inducing=2).fit(*waves(n))
    assert seen == [n_steps]


def test_held_out_rows_decide_which_epoch_is_kept():
    X, _ = waves(60)
    y = np.random.default_rng(0).normal(size=60)  # there is nothing to learn
    model = IDSGPRegressor(early_stopping=True, **SMALL)
    seen = []

    class Recorded(idsgp._Training):
        def epoch(self, *args):
            found = super().epoch(*args)
            seen.append([array.copy() for array in self.arrays])
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idsgp, "_Training", Recorded)
        model.fit(X, y)
    best = int(np.argmax(model.validation_scores_))
    assert best < len(seen) - 5
    first, second = model.coefs_
    np.testing.assert_array_equal(seen[best][0], first)
    np.testing.assert_array_equal(seen[best][1], second)
    assert model.noise_variance_ == seen[best][-1]
    bound = -54.0 * model.loss_curve_[best]  # of the nine tenths that train
    assert model.lower_bound_ == pytest.approx(bound)
    assert np.abs(seen[-1][0] - first).max() > 1e-3


def test_rows_far_away_have_the_points_of_the_edge_and_the_prior():
    X, y = waves(100)
    model = IDSGPRegressor(**SMALL).fit(X, y)
    far = np.array([[200.0, 300.0], [1e20, 0.0], [-1e200, 1e200]])
    edge = np.clip(far, X.min(axis=0), X.max(axis=0))
    points = model.inducing_points(edge)
    np.testing.assert_array_equal(model.inducing_points(far), points)
    mean, std = model.predict(far, return_std=True)
    np.testing.assert_allclose(mean, model.y_mean_)
    prior = model.kernel_.k1.constant_value + model.noise_variance_
    np.testing.assert_allclose(std, np.sqrt(prior) * model.y_scale_)


def test_rows_are_predicted_independently():
    X, y = waves(60)
    model = IDSGPRegressor(**SMALL).fit(X, y)
    together = model.predict(X, return_std=True)
    single = np.concatenate([model.predict(x[None], True) for x in X], axis=1)
    np.testing.assert_allclose(together, single, rtol=1e-9)


def test_many_rows_and_columns_are_predicted_in_little_memory(rng):
    X, y = rng.normal(size=(9000, 100)), rng.normal(size=9000)
    model = IDSGPRegressor(batch_size=50, max_iter=1).fit(X[:50], y[:50])
    expected = model.predict(X[-700:], return_std=True)
    tracemalloc.start()
    found = model.predict(X, return_std=True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    outputs = 15 * 100 + 15 + 15 * 8  # of the network for one row
    assert most < 8 * 9000 * outputs / 3
    np.testing.assert_allclose(np.stack(found)[:, -700:], expected, rtol=1e-9)


def test_weights_act_like_repetition_in_the_objective():
    X, y = waves(50)
    weight = np.random.default_rng(0).integers(1, 3, size=50).astype(float)
    rows = np.repeat(np.arange(50), weight.astype(int))
    how = SMALL | {"batch_size": 1000, "max_iter": 20, "normalize_y": False}
    # one batch an epoch, so that the order of rows does not matter
    one = IDSGPRegressor(**how).fit(X, y, sample_weight=weight * 50 / weight.sum())
    other = IDSGPRegressor(**how).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.loss_curve_, other.loss_curve_, rtol=1e-10)
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=0, atol=1e-10)


def test_a_failed_fit_keeps_the_earlier_model():
    X, y = waves(60)
    model = IDSGPRegressor(**SMALL).fit(X, y)
    before = joblib.hash(vars(model))
    model.set_params(learning_rate=1e300)
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        model.fit(X, y)
    model.set_params(learning_rate=0.01)
    assert joblib.hash(vars(model)) == before


def test_unusable_sizes_of_layers():
    for sizes in (0, (50, 0), (2.5,), [], "wide", [[2]]):
        with pytest.raises(ValueError, match="hidden_layer_sizes"):
            IDSGPRegressor(hidden_layer_sizes=sizes).fit(*waves(20))


def test_progress_is_printed(capsys):
    IDSGPRegressor(verbose=1, **SMALL | {"max_iter": 2}).fit(*waves(50))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(n_classes):
    X, y = waves(600)
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.0, 0.7][: n_classes - 1])]
    model = IDSGPClassifier(random_state=0)
    model.fit(X[:500], labels[:500])
    proba = model.predict_proba(X[500:])
    assert proba.shape == (100, n_classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert model.score(X[500:], labels[500:]) > 0.85
    assert clone(model).get_params() == model.get_params()
