"""Fits of dask collections are those of the same rows in memory."""

import os
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV

from skswsgp import SWSGPRegressor
from skswsgp._adam.solver import AdamSolver
from skswsgp._linear.dense_sites import DenseSites
from skswsgp.dask import DaskSWSGPClassifier, DaskSWSGPRegressor, block_adam, fit
from skswsgp.dask.block_adam import BlockAdam
from skswsgp.dask.rows import BlockSolver, RowsInBlocks
from skswsgp.dask.workers import ThisProcess
from skswsgp.solvers import Adam, Natural

dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")

KERNEL = ConstantKernel(2.0) * RBF([0.7, 1.1])
BLOCKS = (90, 0, 150, 60)  # uneven, one of them empty
NEW = np.random.default_rng(1).normal(size=(40, 2))


def table(outputs="numbers"):
    """Return X (300, 2) and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = f + 0.2 * rng.normal(size=300)
    return X, {
        "numbers": y,
        "two": np.c_[y, f**2],
        "classes": np.where(y > 0.0, "yes", "no"),
        "three": np.digitize(y, [-0.5, 0.5]),
        "counts": rng.poisson(np.exp(f)),
    }[outputs]


def blocks(*arrays, sizes=BLOCKS):
    """Return dask arrays with the same blocks of rows."""
    return [
        da.from_array(a, chunks=(sizes, *a.shape[1:])) if a is not None else None
        for a in arrays
    ]


def fitted(cls, *rows, **params):
    """Return an estimator whose kernel is given."""
    usual = {"n_inducing": 50, "n_neighbors": 12, "random_state": 0}
    params = usual | {"learn_kernel": False, "kernel": KERNEL} | params
    return cls(**params).fit(*rows)


def predictions(model):
    """Return probabilities, or means and deviations, of new rows."""
    if isinstance(model, DaskSWSGPClassifier):
        return model.predict_proba(NEW)
    return np.stack(model.predict(NEW, return_std=True))


CASES = [
    (DaskSWSGPRegressor, "numbers", {"covariance": "full"}),
    (DaskSWSGPRegressor, "numbers", {"covariance": "draws", "n_inducing": 120}),
    (DaskSWSGPRegressor, "two", {"covariance": "diag", "dtype": "float64"}),
    (DaskSWSGPRegressor, "two", {"covariance": "full", "n_inducing": 300}),  # all rows
    (DaskSWSGPRegressor, "numbers", {"likelihood": "student_t"}),
    (DaskSWSGPRegressor, "counts", {"likelihood": "poisson"}),
    (DaskSWSGPClassifier, "classes", {"covariance": "draws", "n_inducing": 120}),
    (DaskSWSGPClassifier, "three", {}),
]


@pytest.mark.parametrize(("cls", "outputs", "params"), CASES)
def test_blocks_are_fitted_as_rows_in_memory(in_order, cls, outputs, params):
    X, y = table(outputs)
    expected = fitted(cls, X, y, **params)
    found = fitted(cls, *blocks(X, y), **params)
    # Factors leave rounding, and conjugate gradients 1e-6 of a residual, or 3e-3 where
    # rounds follow: rounding may end them a step earlier. The bound is flat at its
    # optimum, so that it has the square of an error of q(u).
    rounds = params.get("likelihood", cls) is not DaskSWSGPRegressor
    bound = 3e-3**2 if rounds else 1e-6
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=bound)
    if params.get("n_inducing") == 120:  # fewer points than draws have a full S
        assert found.posterior_draws_.shape[1] == 64
    close = 2e-3 if rounds else 1e-9 if params["covariance"] == "full" else 1e-5
    assert_allclose(predictions(found), predictions(expected), atol=close)


def test_a_kernel_is_learned_from_rows_of_blocks():
    X, y = table()
    params = {"learn_kernel": True, "kernel": None}
    expected = fitted(DaskSWSGPRegressor, X, y, **params)
    found = fitted(DaskSWSGPRegressor, *blocks(X, y), **params)
    assert found.kernel_ == expected.kernel_
    assert_allclose(predictions(found), predictions(expected), atol=1e-7)


def test_weights_count_in_every_block(in_order, rng):
    X, y = table()
    weight = rng.uniform(0.2, 3.0, 300)
    weight[::7] = weight[:90] = 0.0  # of the whole first block
    drawn = {"covariance": "draws", "n_inducing": 120}
    expected = fitted(DaskSWSGPRegressor, X, y, weight, **drawn)
    found = fitted(DaskSWSGPRegressor, *blocks(X, y, weight), **drawn)
    plain = fitted(DaskSWSGPRegressor, X, y, **drawn)
    assert_allclose(predictions(found), predictions(expected), atol=1e-5)
    assert np.abs(predictions(found) - predictions(plain)).max() > 1e-3


def test_all_rows_teach_where_a_sample_teaches_the_rest(tune):
    # Twenty features at least count for a row, so the sample has 60 of 300 rows.
    tune(learning_numbers=1200, least_learning_rows=1)
    X, y = table()
    given = {"normalize_y": False, "inducing_points": X[:50], "initial_noise": 0.04}
    expected = fitted(DaskSWSGPRegressor, X, y, predictive="gaussian", **given)
    found = fitted(DaskSWSGPRegressor, *blocks(X, y), predictive="gaussian", **given)
    assert_allclose(predictions(found), predictions(expected), atol=1e-8)
    assert found.inducing_points_.shape == (50, 2)
    drawn = fitted(DaskSWSGPRegressor, *blocks(X, y), n_inducing=40)
    distance = np.abs(drawn.inducing_points_[:, None] - X).max(axis=2).min(axis=1)
    assert len(distance) == 40
    errors = drawn.predict(X) - fitted(DaskSWSGPRegressor, X, y).predict(X)
    assert np.sqrt(np.mean(errors**2)) < 0.3 * y.std()


def test_a_class_that_the_sample_lacks_is_known(tune):
    tune(learning_numbers=1200, least_learning_rows=1)
    X, y = table("three")
    y[y == 2], y[-1] = 1, 2  # one row of the last class
    model = fitted(DaskSWSGPClassifier, *blocks(X, y), inducing_points="random")
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(NEW).shape == (40, 3)


def by_label(outputs, dtypes=None):
    """Return rows in memory and in blocks of one label each, of the given dtypes."""
    X, y = table(outputs)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    dX, dy = blocks(X, y, sizes=tuple(np.unique(y, return_counts=True)[1].tolist()))
    return X, y, dX, dy if dtypes is None else with_types(dy, dtypes)


def with_types(y, dtypes):
    """Return y with blocks of other dtypes than it says."""

    def cast(block, block_info=None):
        at = block_info[0]["chunk-location"][0] if block_info else 0
        return block.astype(dtypes[at])

    return y.map_blocks(cast, meta=y._meta)


@pytest.mark.parametrize("dtypes", [None, (int, float, np.int8)])
def test_blocks_of_one_class_are_fitted(dtypes):
    X, y, dX, dy = by_label("three", dtypes)
    expected, found = (
        fitted(DaskSWSGPClassifier, *each) for each in ((X, y), (dX, dy))
    )
    assert found.classes_.tolist() == [0, 1, 2]
    assert_allclose(predictions(found), predictions(expected), atol=2e-3)


def test_a_class_of_weight_zero_leaves_as_its_rows_do_in_memory():
    X, y, dX, dy = by_label("three")
    weights = {"class_weight": {0: 0.0, 1: 2.0}, "covariance": "draws"}
    expected = fitted(DaskSWSGPClassifier, X, y, **weights)
    found = fitted(DaskSWSGPClassifier, dX, dy, **weights)
    assert found.classes_.tolist() == expected.classes_.tolist() == [1, 2]
    assert_allclose(predictions(found), predictions(expected), atol=2e-3)
    with pytest.raises(ValueError, match="class_weight has a weight for 7: expected"):
        fitted(DaskSWSGPClassifier, dX, dy, class_weight={7: 0.0})
    with pytest.raises(ValueError, match="no rows in any block"):
        fitted(DaskSWSGPClassifier, dX, dy, class_weight={0: 0.0, 1: 0.0, 2: 0.0})


def test_labels_of_other_types_are_refused():
    _, _, dX, dy = by_label("three", (int, str, int))
    with pytest.raises(ValueError, match="labels of the types int, str: expected"):
        fitted(DaskSWSGPClassifier, dX, dy)
    with pytest.raises(ValueError, match="use SWSGPRegressor for numbers"):
        fitted(DaskSWSGPClassifier, *blocks(*table()))


def test_targets_may_be_whole_numbers_in_some_blocks():
    X, y = table()
    y = np.round(3.0 * y)
    expected = fitted(DaskSWSGPRegressor, X, y)
    dX, dy = blocks(X, y)
    found = fitted(DaskSWSGPRegressor, dX, with_types(dy, (int, float, float, int)))
    assert_allclose(predictions(found), predictions(expected), atol=1e-8)


def test_the_number_of_rows_may_be_unknown():
    X, y = table()
    dX, dy = blocks(X, y)
    some = dX[:, 0] > 0.0
    assert np.isnan(dX[some].shape[0])
    found = fitted(DaskSWSGPRegressor, dX[some], dy[some])
    expected = fitted(DaskSWSGPRegressor, X[X[:, 0] > 0.0], y[X[:, 0] > 0.0])
    assert_allclose(predictions(found), predictions(expected), atol=1e-8)


def test_blocks_of_other_columns_are_refused():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = table()
    dX, dy = blocks(X, y)

    def narrow(block, block_info=None):
        last = block_info and block_info[0]["chunk-location"][0] == 3
        return block[:, :1] if last else block

    with pytest.raises(ValueError, match=r"has the columns 2, and another 1: expected"):
        fitted(DaskSWSGPRegressor, dX.map_blocks(narrow, meta=dX._meta), dy)
    with pytest.raises(ValueError, match="a known number of columns"):
        fitted(DaskSWSGPRegressor, dX[:, da.from_array([True, False]) > 0], dy)
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b"]), npartitions=2)

    def turned(part, partition_info=None):
        return part[["b", "a"]] if (partition_info or {}).get("number") else part

    how = {"meta": frame._meta, "enforce_metadata": False}
    with pytest.raises(ValueError, match=r"\['a', 'b'\], and another \['b', 'a'\]"):
        fitted(DaskSWSGPRegressor, frame.map_partitions(turned, **how), frame["a"])


def test_a_scale_that_other_rows_may_not_suit_is_not_taken(tune):
    tune(learning_numbers=1200, least_learning_rows=1)
    X, y = table()
    y = np.exp(2.0 * y)
    y[[7, 200]] = -1.0
    free = {"learn_kernel": True, "kernel": None, "y_transform": "auto"}
    model = fitted(DaskSWSGPRegressor, *blocks(X, y), **free)
    assert np.isfinite(predictions(model)).all()


def test_sparse_blocks_are_refused():
    X, y = table()
    dX, dy = blocks(X, y)
    sparse = dX.map_blocks(csr_array, meta=csr_array((0, 2)))
    with pytest.raises(TypeError, match=r"X is sparse \(csr_array\): expected a dense"):
        fitted(DaskSWSGPRegressor, sparse, dy)
    found = fitted(DaskSWSGPRegressor, X, y).predict(sparse)
    with pytest.raises(TypeError, match=r"X is sparse \(csr_array\): expected a dense"):
        found.compute()


def test_a_source_of_several_blocks_is_read_once():
    X, y = table()
    read = []

    def source(block):
        read.append(len(block))
        return block

    whole = da.from_array(X, chunks=(300, 2)).map_blocks(source, meta=X[:0])
    fitted(DaskSWSGPRegressor, whole.rechunk({0: 100}), da.from_array(y, chunks=100))
    assert read == [300]


def test_frames_keep_their_names():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = table()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    lazy = dd.from_pandas(frame, npartitions=3)
    model = fitted(DaskSWSGPRegressor, lazy[["a", "b"]], lazy["y"])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    expected = fitted(DaskSWSGPRegressor, X, y).predict(NEW)
    found = model.predict(pd.DataFrame(NEW, columns=["a", "b"]))
    assert_allclose(found, expected, atol=1e-8)


def fail_to_compute(block):
    raise ZeroDivisionError


def test_blocks_that_cannot_be_fitted_leave_the_model_as_it_was():
    X, y = table()
    model = fitted(DaskSWSGPRegressor, X, y)
    before, (dX, dy) = predictions(model), blocks(X, y)
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(ValueError, match=r"^in a sample of .* rows, X contains NaN "):
        model.fit(blocks(bad, y)[0], dy)
    with pytest.raises(ValueError, match="numbers of blocks are 4 of X, 3 of y: expec"):
        model.fit(dX, da.from_array(y, chunks=100))
    other = da.from_array(y, chunks=((90, 0, 140, 70),))
    with pytest.raises(ValueError, match="rows of block 2 are 150 of X, 140 of y: exp"):
        model.fit(dX.map_blocks(fail_to_compute, meta=dX._meta), other)
    unknown = other[other == other]
    with pytest.raises(ValueError, match=r"rows of a block are (150|60) of X"):
        model.fit(dX, unknown)
    with pytest.raises(ValueError, match="y is a ndarray: expected a dask array"):
        model.fit(dX, y)
    with pytest.raises(ValueError, match="of 1 axes: expected a dask array of shape"):
        model.fit(dy, dy)
    with pytest.raises(ValueError, match="no rows in any block"):
        model.fit(dX[:0], dy[:0])
    assert_allclose(predictions(model), before, atol=0.0)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"device": "cuda"}, "device='cuda'"),
        ({"solver": Natural(optimize_inducing=True)}, r"Natural\(optimize_inducing"),
        ({"solver": Adam(early_stopping=True)}, "early_stopping=True"),
        ({"warm_start": True}, "warm_start"),
        ({"n_neighbors": "all"}, "n_neighbors='all'"),
        ({"likelihood": "heteroscedastic"}, "likelihood='heteroscedastic'"),
    ],
)
def test_what_needs_rows_in_memory_is_refused(params, named):
    with pytest.raises(ValueError, match=f"dask collection, and the fit has {named}"):
        fitted(DaskSWSGPRegressor, *blocks(*table()), **params)


@pytest.mark.parametrize(
    ("cls", "outputs"),
    [(DaskSWSGPRegressor, "numbers"), (DaskSWSGPClassifier, "three")],
)
def test_a_search_of_arrays_is_that_of_rows_in_memory(cls, outputs):
    X, y = table(outputs)
    expected, found = (searched(cls, *rows) for rows in ((X, y), blocks(X, y)))
    scores = [one.cv_results_["mean_test_score"] for one in (found, expected)]
    assert scores[0][0] != scores[0][1]
    assert_allclose(*scores, atol=1e-7)
    assert_allclose(
        predictions(found.best_estimator_),
        predictions(expected.best_estimator_),
        atol=2e-3,
    )


def test_a_search_of_frames_takes_arrays_of_them():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = table()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    lazy = dd.from_pandas(frame, npartitions=3)
    columns = lazy[["a", "b"]], lazy["y"]
    with pytest.raises(AttributeError, match="no attribute 'take'"):  # of scikit-learn
        searched(DaskSWSGPRegressor, *columns)
    arrays = [one.to_dask_array(lengths=True) for one in columns]
    found, expected = (
        searched(DaskSWSGPRegressor, *arrays),
        searched(DaskSWSGPRegressor, X, y),
    )
    scores = [one.cv_results_["mean_test_score"] for one in (found, expected)]
    assert_allclose(*scores, atol=1e-8)


def searched(cls, *rows):
    """Return a search for the number of neighbours."""
    estimator = cls(n_inducing=50, learn_kernel=False, kernel=KERNEL, random_state=0)
    return GridSearchCV(estimator, {"n_neighbors": [4, 12]}, cv=2).fit(*rows)


@pytest.mark.parametrize(
    ("solver", "first"),
    [(Natural(), "round 1/20: loss"), (Adam(max_iter=2), "epoch 1/2: loss")],
)
def test_progress_is_printed_where_fit_is_called(solver, first, capsys):
    fitted(DaskSWSGPClassifier, *blocks(*table("classes")), solver=solver, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("scales of columns and targets ...")
    assert sum(line.startswith(f"  {first}") for line in lines) == 1


def test_other_rows_are_refused_beside_blocks():
    (X, y), rows = table(), blocks(*table())
    with pytest.raises(TypeError, match=r"X is a dask collection .*: expected rows in"):
        DaskSWSGPRegressor().partial_fit(*rows)
    for name, given in {
        "X_val": {"X_val": X, "y_val": y},
        "exposure": {"exposure": np.ones(300)},
        "noise_variance": {"noise_variance": np.ones(300)},
    }.items():
        with pytest.raises(ValueError, match=f"the fit has {name}: expected none"):
            DaskSWSGPRegressor().fit(*rows, **given)
    labels = blocks(*table("classes"))
    with pytest.raises(ValueError, match="the fit has class_weight='balanced'"):
        DaskSWSGPClassifier(class_weight="balanced").fit(*labels)


def test_rows_in_memory_refuse_blocks_beside_them():
    X, y = table()
    _, lazy = blocks(X, y)
    model = SWSGPRegressor(kernel=KERNEL)
    for name in ("noise_variance", "exposure"):
        with pytest.raises(TypeError, match=f"{name} is a dask collection"):
            model.fit(X, y, **{name: lazy})
    model.fit(X, y)
    for method in (model.score, model.log_predictive_density):
        with pytest.raises(TypeError, match="y is a dask collection"):
            method(X, lazy)


@pytest.mark.parametrize(
    ("cls", "outputs", "params"),
    [
        (DaskSWSGPRegressor, "numbers", {"covariance": "full"}),
        (DaskSWSGPRegressor, "two", {"covariance": "diag"}),
        (DaskSWSGPClassifier, "three", {"n_neighbors": 50}),
    ],
)
@pytest.mark.parametrize("n_shared", [None, "auto"])
def test_adam_of_one_block_is_adam_in_memory(cls, outputs, params, n_shared):
    """Minibatches of all rows are the same in any order.

    So are lists of neighbours, which a block makes anew for each epoch, where all
    columns share a length-scale and inducing inputs stay, or all points are neighbours.
    """
    X, y = table(outputs)
    weight = np.random.default_rng(2).uniform(0.2, 3.0, 300)
    more = {"learning_rate": 0.1, "optimize_inducing": "n_neighbors" in params}
    solver = Adam(max_iter=30, batch_size=300, n_shared=n_shared, **more)
    params = params | {"solver": solver, "kernel": ConstantKernel(2.0) * RBF(0.7)}
    expected = fitted(cls, X, y, weight, **params)
    found = fitted(cls, *blocks(X, y, weight, sizes=(300,)), **params)
    assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-6)
    assert_allclose(found.inducing_points_, expected.inducing_points_, rtol=1e-6)
    assert_allclose(predictions(found), predictions(expected), atol=1e-6)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_adam_averages_what_steps_of_each_block_leave(covariance, monkeypatch, tune):
    tune(learning_numbers=1200, least_learning_rows=1)  # a sample of 60 rows
    X, y = table("two")
    order = np.argsort(X[:, 0])  # blocks move other inducing points
    ends, advance = [], AdamSolver.advance

    def advance_and_keep(solver, *given):
        out = advance(solver, *given)
        ends.append((solver.engine.model, solver.steps.optimizer.row_steps > 0))
        return out

    monkeypatch.setattr(AdamSolver, "advance", advance_and_keep)
    solver = Adam(max_iter=1, optimize_inducing=True, learning_rate=0.1)
    rows = blocks(X[order], y[order])
    model = fitted(DaskSWSGPRegressor, *rows, solver=solver, covariance=covariance)
    models, moved = zip(*ends, strict=True)
    assert len(models) == 3  # one block is empty
    assert models[0].total_weight == pytest.approx(300.0)
    assert 0 < sum(one.sum() for one in moved) < 3 * 50
    factors = [m.L.transpose(1, 2, 0) if m.full else m.s for m in models]
    means = [m.m for m in models]
    for j in range(50):
        those = [k for k in range(3) if moved[k][j]]
        if not those:
            assert (model.inducing_mean_[j] == 0.0).all()
        for found, ended in (
            (model.inducing_mean_, means),
            (model.inducing_covariance_, factors),
        ):
            expected = np.mean([ended[k][j] for k in those or range(3)], axis=0)
            assert_allclose(found[j], expected, rtol=1e-12)
    noise = np.mean([m.noise for m in models], axis=0)
    assert_allclose(model.noise_variance_, noise, rtol=1e-12)


def test_adam_of_blocks_fits_as_well_as_adam_in_memory(in_order):
    X, y = table()
    order = np.argsort(X[:, 0])
    truth = np.sin(2.0 * NEW[:, 0]) + NEW[:, 1]
    settings = {"max_iter": 150, "learning_rate": 0.05}

    def error(*rows, batch_size):
        solver = Adam(batch_size=batch_size, **settings)
        model = fitted(DaskSWSGPRegressor, *rows, solver=solver)
        return np.sqrt(np.mean((model.predict(NEW) - truth) ** 2))

    in_memory = error(X, y, batch_size=60)
    assert error(*blocks(X[order], y[order]), batch_size=20) < 1.2 * in_memory
    assert in_memory < 0.2


@pytest.mark.parametrize("most_steps", [block_adam.MOST_STEPS, 3])
def test_adam_counts_rows_alike_in_blocks_of_other_sizes(most_steps, monkeypatch):
    """Averages weighted by rows would count those of the larger block twice.

    With so few steps between two averages the smaller block skips some.
    """
    monkeypatch.setattr(block_adam, "MOST_STEPS", most_steps)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 2))
    y = 0.3 * rng.normal(size=600)
    y[500:] += 1.0  # at the same places
    solver = Adam(max_iter=20, batch_size=10, learning_rate=0.05)
    model = fitted(DaskSWSGPRegressor, *blocks(X, y, sizes=(500, 100)), solver=solver)
    assert model.predict(NEW).mean() == pytest.approx(y.mean(), abs=0.03)


def test_parts_of_an_epoch_are_the_epoch(monkeypatch):
    """Of one block, whose averages are what it had."""
    X, y = table("classes")
    params = {"kernel": ConstantKernel(2.0) * RBF(0.7), "covariance": "diag"}
    params["solver"] = Adam(max_iter=3, batch_size=8)  # 38 steps
    rows = blocks(X, y, sizes=(300,))
    expected = fitted(DaskSWSGPClassifier, *rows, **params)
    count, steps = [], block_adam.EpochRows.steps

    def steps_and_count(self, *given):
        count.append(given)
        return steps(self, *given)

    monkeypatch.setattr(block_adam, "MOST_STEPS", 10)
    monkeypatch.setattr(block_adam.EpochRows, "steps", steps_and_count)
    found = fitted(DaskSWSGPClassifier, *rows, **params)
    assert len(count) == 3 * 4
    assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-9)
    assert_allclose(predictions(found), predictions(expected), atol=1e-9)


def test_adam_of_blocks_holds_no_rows_out_by_itself(tune):
    """They would be rows of the sample, on which blocks train."""
    tune(holdout_above=100)
    X, y = table()
    solver = Adam(max_iter=2)
    assert fitted(DaskSWSGPRegressor, X, y, solver=solver).validation_scores_
    model = fitted(DaskSWSGPRegressor, *blocks(X, y), solver=solver)
    assert model.validation_scores_ is None


def test_adam_that_diverges_in_a_block_says_so():
    solver = Adam(learning_rate=1e300, max_iter=5)
    with pytest.raises(FloatingPointError, match="training produced NaN or infinity"):
        fitted(DaskSWSGPRegressor, *blocks(*table()), solver=solver)


@pytest.fixture(autouse=True)
def same_scheduler():
    """Leave dask the scheduler it had, also where a client is closed within another."""
    with dask.config.set(scheduler=dask.config.get("scheduler", None)):
        yield


# --- a cluster of processes -----------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    how = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=2, **how) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


SLOW, FULL = pytest.mark.slow, pytest.mark.full


@pytest.mark.parametrize(
    "n_workers", [pytest.param(2, marks=SLOW), pytest.param(4, marks=FULL)]
)
def test_workers_fit_as_one_machine(cluster, n_workers):
    cluster.cluster.scale(n_workers)
    cluster.wait_for_workers(n_workers)
    for outputs, cls in (("two", DaskSWSGPRegressor), ("three", DaskSWSGPClassifier)):
        X, y = table(outputs)
        expected = fitted(cls, X, y)
        found = fitted(cls, *blocks(X, y))
        close = 1e-9 if cls is DaskSWSGPRegressor else 2e-3
        assert_allclose(predictions(found), predictions(expected), atol=close)


@pytest.mark.slow
def test_a_search_on_workers_asks_for_rows_in_memory(cluster):
    message = "expected a call in the process of the client, or rows in memory"
    with joblib.parallel_config("dask"), pytest.raises(ValueError, match=message):
        searched(DaskSWSGPRegressor, *blocks(*table()))


EACH_SOLVER = pytest.mark.parametrize(
    ("solver", "in_blocks"),
    [(Natural(), BlockSolver), (Adam(max_iter=4, batch_size=20), BlockAdam)],
    ids=["natural", "adam"],
)


@pytest.mark.slow
@EACH_SOLVER
def test_a_fit_outlives_a_worker(solver, in_blocks, cluster, monkeypatch):
    X, y = table("classes")
    with monkeypatch.context() as here:
        here.setattr(fit, "find_workers", ThisProcess)
        expected = fitted(DaskSWSGPClassifier, *blocks(X, y), solver=solver)
    pids, advance, killed = cluster.run(os.getpid), in_blocks.advance, []

    def kill_in_round_two(solver, index):
        if index == 1 and not killed:
            killed.append(min(pids.values()))
            os.kill(killed[0], signal.SIGKILL)
        return advance(solver, index)

    monkeypatch.setattr(in_blocks, "advance", kill_in_round_two)
    found = fitted(DaskSWSGPClassifier, *blocks(X, y), solver=solver)
    assert killed
    close = 2e-3 if in_blocks is BlockSolver else 1e-12
    assert_allclose(predictions(found), predictions(expected), atol=close)


@pytest.mark.slow
def test_blocks_wait_for_their_worker(monkeypatch):
    """But for those that an idle worker steals, which is switched off here."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    how = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    places, advance = [], BlockSolver.advance
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        distributed.Client(**how, dashboard_address=":0") as client,
    ):

        def keep_one_busy(solver, index):
            at = client.who_has(solver.sites.parts)
            places.append([at[part.key] for part in solver.sites.parts])
            task = client.submit(time.sleep, 0.5, workers=places[0][0], pure=False)
            out = advance(solver, index)
            assert task.done()
            return out

        monkeypatch.setattr(BlockSolver, "advance", keep_one_busy)
        rows = blocks(*table("classes"), sizes=(100, 100, 50, 50))
        fitted(DaskSWSGPClassifier, *rows)
    assert len(places) > 2
    assert all(each == places[0] for each in places)
    assert len({each for block in places[0] for each in block}) == 2


@pytest.mark.slow
def test_a_block_that_ends_its_workers_ends_the_fit_with_a_sentence(cluster):
    X, y = blocks(*table())

    def end_last(block, block_info=None):
        return os._exit(1) if block_info[0]["chunk-location"][0] == 3 else block

    deadly = X.map_blocks(end_last, meta=X._meta)
    with pytest.raises(RuntimeError, match="lost a part of this fit: expected workers"):
        fitted(DaskSWSGPRegressor, deadly, y)


@pytest.mark.slow
@EACH_SOLVER
def test_the_scheduler_keeps_what_a_lost_worker_repeats(solver, in_blocks, monkeypatch):
    """m and S of each natural round: vectors of products and epochs leave nothing."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    from distributed.protocol import dumps

    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with distributed.Client(**how, dashboard_address=":0") as client:
        tasks, kept, advance = client.cluster.scheduler.tasks, [], in_blocks.advance

        def count_bytes():
            client.submit(int, pure=False).result()  # after what was released
            given = [t.run_spec for t in tasks.values() if t.prefix.name == "itself"]
            return sum(len(frame) for one in given for frame in dumps(one))

        def advance_and_count(solver, index):
            kept.append(count_bytes())
            return advance(solver, index)

        monkeypatch.setattr(in_blocks, "advance", advance_and_count)
        given = {"n_inducing": 300, "inducing_points": "random", "covariance": "diag"}
        fitted(DaskSWSGPClassifier, *blocks(*table("classes")), solver=solver, **given)
        assert len(kept) > 2
        moments = 300 * 2 * 8 if in_blocks is BlockSolver else 0
        grown = np.diff(kept)
        assert moments <= grown.min() <= grown.max() <= 1.5 * moments
        assert not count_bytes()


@pytest.mark.slow
def test_a_fit_within_a_task_is_refused():
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with distributed.Client(**how, dashboard_address=":0") as client:
        task = client.submit(lambda: fitted(DaskSWSGPRegressor, *blocks(*table())))
        with pytest.raises(RuntimeError, match="within a task of dask: expected a ca"):
            task.result(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stage"), [(RowsInBlocks, "sites"), (BlockSolver, "advance")]
)
def test_a_scheduler_that_is_gone_ends_the_fit_with_a_sentence(
    kind, stage, monkeypatch, tmp_path
):
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    place = str(tmp_path / "scheduler.json")
    command = [sys.executable, "-m", "dask"]
    command = {
        "scheduler": [*command, "scheduler", "--port=0", "--no-dashboard"],
        "worker": [*command, "worker", "--nthreads=1", "--no-nanny", "--no-dashboard"],
    }
    started = {
        name: subprocess.Popen([*words, f"--scheduler-file={place}"])
        for name, words in command.items()
    }
    method = getattr(kind, stage)

    def kill_first(solver, *arguments):
        if arguments != (0,):  # the first round
            started["scheduler"].kill()
        return method(solver, *arguments)

    monkeypatch.setattr(kind, stage, kill_first)
    try:
        with distributed.Client(scheduler_file=place, timeout="5s") as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(RuntimeError, match="or lost its scheduler, before"):
                fitted(DaskSWSGPClassifier, *blocks(*table("classes")))
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("gives_up", ["comm.timeouts.connect", "scheduler.no-workers"])
def test_a_cluster_without_workers_ends_the_fit_with_a_sentence(gives_up, monkeypatch):
    """By the patience of the client, or of a scheduler that has less."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    message = "cluster has had no worker for 1s: expected at least one"
    if gives_up == "scheduler.no-workers":
        gives_up, message = (
            f"{gives_up}-timeout",
            "lost a part of this fit: expected workers",
        )
    how = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    advance = BlockSolver.advance
    with (
        dask.config.set({f"distributed.{gives_up}": "1s"}),
        distributed.Client(**how) as client,
    ):

        def lose_in_round_two(solver, index):
            if index == 1:
                client.cluster.scale(0)
            return advance(solver, index)

        monkeypatch.setattr(BlockSolver, "advance", lose_in_round_two)
        with pytest.raises(RuntimeError, match=message) as kept:
            fitted(DaskSWSGPClassifier, *blocks(*table("classes")))
        monkeypatch.undo()
        client.cluster.scale(1)
        client.wait_for_workers(1, timeout=60)
        fitted(DaskSWSGPClassifier, *blocks(*table("classes")))
        assert kept.value  # a session that has it fits again


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stage"), [(RowsInBlocks, "sites"), (BlockSolver, "advance")]
)
def test_a_client_that_closes_ends_the_fit_with_a_sentence(kind, stage, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    how = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.Client(**how) as client:
        method = getattr(kind, stage)

        def close_first(solver, *arguments):
            if arguments != (0,):  # the first round
                client.close()
            return method(solver, *arguments)

        monkeypatch.setattr(kind, stage, close_first)
        with pytest.raises(RuntimeError, match="the client of dask closed, or lost"):
            fitted(DaskSWSGPClassifier, *blocks(*table("classes")))


def test_blocks_need_targets():
    X, _ = blocks(*table())
    with pytest.raises(ValueError, match="y is None: expected a target for each row"):
        DaskSWSGPRegressor().fit(X, None)


def test_few_points_of_blocks_are_those_of_rows_in_memory(tune, monkeypatch):
    tune(mean_work=0.0, full_work=0.0, dense_rows=58)  # of which a block has more
    made = []
    of = DenseSites.of.__func__
    monkeypatch.setattr(
        DenseSites, "of", classmethod(lambda *how: made.append(how) or of(*how))
    )
    X, y = table()
    X = 0.5 * X  # which fewer points tell
    how = {"n_inducing": "auto", "n_neighbors": "auto"}
    model = fitted(DaskSWSGPRegressor, *blocks(X, y), **how)
    assert len(made) == 3
    whole = fitted(SWSGPRegressor, X, y, **how)
    assert len(model.inducing_points_) == model.n_neighbors_ < 58
    assert_allclose(predictions(model), predictions(whole), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("far", [1.0, 1e7])
def test_rows_beside_points_are_no_points(in_order, far):
    rng = np.random.default_rng(0)
    X = np.r_[rng.random((299, 1)), [[far]]]
    y = np.sin(60.0 * X[:, 0]) + 0.01 * rng.normal(size=300)
    params = {"kernel": RBF(0.05), "n_inducing": 160, "inducing_points": "random"}
    params |= {"initial_noise": 1e-4, "x_transform": None, "predictive": "gaussian"}
    expected = fitted(DaskSWSGPRegressor, X, y, **params)
    found = fitted(DaskSWSGPRegressor, *blocks(X, y), **params)
    new = rng.random((50, 1))
    assert_allclose(found.predict(new), expected.predict(new), atol=1e-3)
    assert np.abs(expected.predict(new) - np.sin(60.0 * new[:, 0])).max() < 0.5
