"""Epochs: minibatches, learning rate, stopping, neighbour lists; and the threads."""

import threading

import numba
import numpy as np
import pytest
import sklearn

from skswsgp import SWSGPRegressor
from skswsgp._jit import launch, max_threads
from skswsgp._training import (
    FINAL_RATE,
    Data,
    History,
    center_rows,
    learning_rates,
    steps_per_epoch,
)


@pytest.fixture
def curve(rng):
    X = rng.uniform(-3, 3, (150, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(150)


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "steps"),
    [(1, 64, 1), (64, 64, 1), (65, 64, 2), (200, 64, 4)],
)
def test_minibatches_are_equal_parts(n_rows, batch_size, steps):
    assert steps_per_epoch(n_rows, batch_size) == steps


def test_learning_rate_falls_along_half_a_cosine():
    rates = learning_rates(0.1, 1000, decay=True)
    assert rates[0] == pytest.approx(0.1)
    assert rates[500] == pytest.approx(0.1 * (1 + FINAL_RATE) / 2)
    assert rates[-1] == pytest.approx(0.1 * FINAL_RATE, rel=1e-2)
    assert (np.diff(rates) < 0).all()
    assert (learning_rates(0.1, 7, decay=False) == 0.1).all()


def test_history_stalls_after_epochs_without_change():
    history = History(tol=0.1, n_iter_no_change=2)
    assert history.add(1.0, -1.0, None)
    assert history.add(0.95, -1.0, None)  # better, but not by tol
    assert not history.stalled
    assert not history.add(0.96, -1.0, None)
    assert history.stalled
    history.add(0.5, -1.0, None)
    assert not history.stalled


def test_history_follows_the_score_where_there_is_one():
    history = History(tol=0.0, n_iter_no_change=1)
    assert history.add(1.0, -1.0, score=-2.0)
    assert history.add(2.0, -1.0, score=-1.0)
    assert not history.add(0.5, -1.0, score=-3.0)
    assert history.stalled


def test_block_is_centred_before_it_loses_precision():
    X = 1e8 + np.arange(6.0).reshape(3, 2)
    data = Data(X, np.zeros((3, 1)), np.ones(3), X[0], np.dtype("float32"))
    block, _, _ = data.block(np.array([2, 0]))
    np.testing.assert_array_equal(block, [[4.0, 4.0], [0.0, 0.0]])
    assert block.dtype == np.float32
    assert center_rows(X.astype("f4"), X[0], np.dtype("f8")).flags.c_contiguous


def test_lists_beyond_the_budget_change_nothing(curve):
    X, y = curve
    model = SWSGPRegressor(n_inducing=40, n_neighbors=6, max_iter=5, random_state=0)
    kept = model.fit(X, y).inducing_mean_
    with sklearn.config_context(working_memory=0):
        looked_up = model.fit(X, y).inducing_mean_
    assert np.abs(kept - looked_up).max() < 0.05  # lists are refreshed at other times


def test_threads_are_clamped_and_restored():
    available = numba.config.NUMBA_NUM_THREADS
    assert max_threads(None) == available
    assert max_threads(1) == 1
    assert max_threads(-1) == available
    assert max_threads(10**6) == available
    assert max_threads(-(10**6)) == 1
    before = numba.get_num_threads()
    with pytest.raises(ZeroDivisionError), launch(1):
        assert numba.get_num_threads() == 1
        raise ZeroDivisionError
    assert numba.get_num_threads() == before


def test_fits_in_two_python_threads_do_not_meet(curve):
    X, y = curve
    settings = {"n_inducing": 20, "n_neighbors": 4, "max_iter": 5, "random_state": 0}
    expected = SWSGPRegressor(**settings).fit(X, y).predict(X)
    results = []

    def work():
        results.append(SWSGPRegressor(**settings).fit(X, y).predict(X))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_memory_does_not_grow_with_the_square_of_inducing_points(rng):
    X = rng.standard_normal((3000, 2))
    model = SWSGPRegressor(
        n_inducing=3000,
        inducing_points="random",
        covariance="diag",
        n_neighbors=4,
        max_iter=1,
        random_state=0,
    ).fit(X, X[:, 0])
    assert model.inducing_covariance_.shape == (3000,)
