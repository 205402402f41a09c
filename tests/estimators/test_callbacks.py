"""Callbacks of scikit-learn, and printed progress."""

import re
import threading

import numba
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from small_models import (
    CALLBACKS,
    interrupting,
    natural_model,
    small_data,
    small_model,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._estimators.given import solver_for
from skswsgp._estimators.sklearn_compat import FitTask
from skswsgp._solvers import progress
from skswsgp._solvers.progress import STAGES, StageLines
from skswsgp.solvers import Adam


def test_verbose_prints_a_line_for_each_stage(capsys):
    X, y = small_data(60)
    small_model().fit(X, y)
    assert capsys.readouterr().out == ""
    model = small_model(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ...")[0] for line in lines] == list(stages_of(model))
    assert all(re.search(r"\d+\.\d s$", line) for line in lines)
    last = f"loss {model.loss_curve_[-1]:.5f} after 5 epochs"
    assert [last in line for line in lines] == [False, False, True, False]
    small_model(verbose=1, early_stopping=True).fit(X, y)
    assert "held-out" in capsys.readouterr().out


def test_verbose_above_one_prints_a_line_for_each_round(capsys):
    X, y = small_data(60)
    model = SWSGPClassifier(learn_kernel=False, random_state=0, verbose=2).fit(X, y > 0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "round" in line]
    assert len(lines) == model.n_iter_ > 1
    assert all(line.startswith(f"  round {i}/") for i, line in enumerate(lines, 1))


def compile_one():
    """Compile a function that no process has compiled."""

    def one():
        return 1

    numba.njit(one)()


def test_a_stage_names_what_it_compiles(capsys):
    with StageLines(1).stage("kernel"):
        compile_one()
        compile_one()
    line = r"kernel ... compiling, once on a machine ... compiled 1 in \d.\d s "
    line += r"\(longest: one \d.\d s\), \d.\d s"
    assert re.fullmatch(line, capsys.readouterr().out.strip())
    with StageLines(1).stage("kernel"):
        pass
    assert "compiling" not in capsys.readouterr().out


def test_a_stage_does_not_name_what_others_compile(capsys):
    with StageLines(1).stage("kernel"):
        thread = threading.Thread(target=compile_one)
        thread.start()
        thread.join()
    assert "compil" not in capsys.readouterr().out


def test_a_stage_that_fails_ends_its_line(capsys):
    with pytest.raises(RuntimeError), StageLines(1).stage("kernel"):
        raise RuntimeError
    assert capsys.readouterr().out == "kernel ...\n"


def test_lines_of_other_threads_are_printed_as_a_whole(capsys):
    def stage():
        lines = StageLines(1)
        with lines.stage("kernel"):
            lines.say(" from 20 rows,")
            said.append(capsys.readouterr().out)

    said = []
    stage()
    thread = threading.Thread(target=stage)
    thread.start()
    thread.join()
    assert said == ["kernel ... from 20 rows,", " 0.0 s\n"]  # and of the first, its end
    assert capsys.readouterr().out == "kernel ... from 20 rows, 0.0 s\n"


def test_time_that_is_left_is_said_each_time_that_the_seconds_have_doubled(
    capsys, monkeypatch
):
    clock = iter([0.0, 0.0, *np.arange(0.0, 21.0)])  # 300 rows a second
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    lines = StageLines(1)
    with lines.stage("inducing variables"):
        read = progress.RowsRead(lines, 6000)
        for _ in range(20):
            read(300)
    said = capsys.readouterr().out.split(" ...")
    assert said[1:-1] == [
        f" 300 rows a second, {left} s left of this pass" for left in (15, 10)
    ]


@pytest.mark.parametrize(
    ("model", "n_rows"),
    [
        (SWSGPRegressor(learn_kernel=False, n_neighbors=8), 9000),
        (SWSGPRegressor(solver=Adam(max_iter=3, early_stopping=False)), 900),
    ],
)
def test_a_stage_that_reads_rows_says_how_fast(model, n_rows, capsys, monkeypatch):
    monkeypatch.setattr(progress.RowsRead, "first", 0.0)
    X = np.random.default_rng(0).uniform(size=(n_rows, 2))
    model.set_params(verbose=1, random_state=0).fit(X, X[:, 0])
    line = next(s for s in capsys.readouterr().out.splitlines() if "inducing" in s)
    assert "rows a second" in line


def stages_of(model):
    """Return the stages of a fit by Adam."""
    return [name for name in STAGES if name not in ("exact means", "variances")]


class Recorder:
    """A callback that records its calls and can stop training after some epochs."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.calls = []
        self.predictions = []

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        assert len(X) == len(y)
        self.calls.append(("begin", context.task_name))

    def on_fit_task_end(
        self, estimator, context, *, X=None, metadata=None, fitted_estimator=None
    ):
        self.calls.append(("end", context.task_name))
        self.metadata = metadata
        if context.task_name == "epoch":
            self.predictions.append(fitted_estimator.predict(X))
            return len(self.predictions) == self.stop_after
        if context.task_name == "inducing variables":
            assert context.max_subtasks == solver_for(estimator)[1].get("max_iter", 200)
        return None


def test_callbacks_are_called_for_the_fit_and_each_epoch():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = small_model(max_iter=3).set_callbacks(recorder)
    model.fit(X, y, sample_weight=np.ones(60))
    named = [part for part in recorder.calls if part[1] != "epoch"]
    stages = [(when, name) for name in stages_of(model) for when in ("begin", "end")]
    task = [("begin", "fit"), *stages, ("end", "fit")]
    assert named == [("setup", "fit"), *task, ("teardown", "fit")]
    at = recorder.calls.index(("begin", "inducing variables")) + 1
    assert recorder.calls[at : at + 6] == [("begin", "epoch"), ("end", "epoch")] * 3
    assert recorder.calls[at + 6] == ("end", "inducing variables")
    np.testing.assert_array_equal(recorder.predictions[-1], model.predict(X))
    assert not np.allclose(recorder.predictions[0], recorder.predictions[1])
    np.testing.assert_array_equal(recorder.metadata["sample_weight"], np.ones(60))
    plain = small_model(max_iter=3).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_callback_can_stop_training():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    model = small_model(max_iter=10).set_callbacks(Recorder(stop_after=2)).fit(X, y)
    assert model.n_iter_ == 2


def test_callbacks_are_called_for_rounds_of_the_natural_solver():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = SWSGPClassifier(learn_kernel=False, random_state=0).set_callbacks(recorder)
    model.fit(X, y > 0)
    assert len(recorder.predictions) == model.n_iter_ > 2
    np.testing.assert_array_equal(recorder.predictions[-1], model.predict(X))
    model.set_callbacks(Recorder(stop_after=2)).fit(X, y > 0)
    assert model.n_iter_ == 2


def test_callbacks_are_torn_down_after_a_failure(monkeypatch):
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = small_model().set_callbacks(recorder)
    interrupting(monkeypatch, RuntimeError("in training"), 2)
    with pytest.raises(RuntimeError, match="in training"):
        model.fit(X, y)
    assert recorder.calls[-1] == ("teardown", "fit")
    left = [n for n in vars(model) if n.startswith(CALLBACKS)]
    assert left == ["_skl_callbacks"]


def test_callbacks_are_torn_down_after_partial_fit():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    recorder = Recorder()
    model = natural_model().set_callbacks(recorder)
    model.partial_fit(X, y).partial_fit(X, y)
    names = [name for name, _ in recorder.calls]
    assert names.count("setup") == names.count("teardown")
    left = [n for n in vars(model) if n.startswith(CALLBACKS)]
    assert left == ["_skl_callbacks"]


def test_the_end_of_partial_fit_sees_the_fitted_model():
    pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    seen = []

    class AtEnd(Recorder):
        def on_fit_task_end(self, estimator, context, **more):
            if context.task_name == "fit":
                seen.append(len(estimator.inducing_points_))

    model = natural_model().set_callbacks(AtEnd())
    model.partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    assert seen == [40, 60]


def test_callbacks_of_scikit_learn_work(capsys):
    callback = pytest.importorskip("sklearn.callback")
    X, y = small_data(60)
    monitor = callback.ScoringMonitor(scoring="r2")
    model = small_model(max_iter=4).set_callbacks(monitor).fit(X, y)
    scores = [row["r2"] for row in monitor.get_logs().data if "r2" in row]
    assert len(scores) == 4
    assert scores[-1] == pytest.approx(model.score(X, y))
    pytest.importorskip("rich")
    small_model(max_iter=4).set_callbacks(callback.ProgressBar()).fit(X, y)
    assert "SWSGPRegressor" in capsys.readouterr().out
    search = GridSearchCV(small_model(max_iter=1), {"n_neighbors": [2, 3]}, cv=2)
    search.set_callbacks(callback.ProgressBar()).fit(X, y)
    out = capsys.readouterr().out
    assert "GridSearchCV" in out and "SWSGPRegressor - inducing variables" in out


def test_a_fit_that_fails_at_its_end_changes_nothing(monkeypatch):
    X = np.linspace(0.0, 1.0, 30)[:, None]
    model = SWSGPRegressor(random_state=0).fit(X, X[:, 0])
    before = dict(vars(model))

    def fails(task):
        raise RuntimeError("a callback failed")

    monkeypatch.setattr(FitTask, "end", fails)
    with pytest.raises(RuntimeError, match="a callback failed"):
        model.fit(X, X[:, 0], noise_variance=np.full(30, 0.1))
    assert vars(model) == before
