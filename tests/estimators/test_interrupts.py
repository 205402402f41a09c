"""Ctrl-C in each part of a fit, and at random moments on a busy machine."""

import os
import subprocess
import sys

import numpy as np
import pytest
from small_models import state_of

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._fit import solve
from skswsgp._kernel_search.evidence import BoundSearch
from skswsgp._kernel_search.holdout import CandidateComparison
from skswsgp._kernel_search.kernel_learning import evaluation_work
from skswsgp._kernel_search.site_refinement import SiteRefinement
from skswsgp._solvers.natural import NaturalSolver
from skswsgp.joint import posterior_draws
from skswsgp.solvers import Adam

SCRIPT = """
import faulthandler, os, signal, subprocess, sys, threading, time, warnings
import numpy as np
from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._compiled import threads
from skswsgp.solvers import Adam

threads.ROWS_PER_THREAD = 1  # two threads for few rows
# a process in the background of a shell ignores the signal
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
X = rng.normal(size=({n_rows}, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
y = y > 0 if {estimator} is SWSGPClassifier else y
{estimator}._tuning = {estimator}._tuning._replace(**{tuning})
model = {estimator}(**{params}, random_state=0, n_jobs=2)
expected = model.fit(X, y).predict(X)
start = time.perf_counter()
model.fit(X, y)
seconds = time.perf_counter() - start
code = "while True: pass"
busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
noticed = 0
try:
    # some moments come after the end of a fit, which the busy processes slow down
    for moment in rng.uniform(0.0, 2.0 * seconds, 12):
        # a watchdog: all stacks are printed and the process ends if a fit hangs
        faulthandler.dump_traceback_later(60, exit=True)
        press = lambda: (time.sleep(moment), os.kill(os.getpid(), signal.SIGINT))
        thread = threading.Thread(target=press)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                thread.start()
                model.fit(X, y)
            # rounds that are interrupted keep the model, and say so
            noticed += any("interrupted" in str(each.message) for each in caught)
            assert np.isfinite(model.predict(X).astype(float)).all()
            thread.join()  # the signal comes here if the fit was faster
            time.sleep(0.1)
        except KeyboardInterrupt:
            noticed += 1
        thread.join()
finally:
    for process in busy:
        process.kill()
        process.wait()
faulthandler.dump_traceback_later(60, exit=True)
assert np.array_equal(model.fit(X, y).predict(X), expected)
print("noticed", noticed)
"""


@pytest.mark.slow  # fifteen fits on a busy machine, in a process of their own
@pytest.mark.early
@pytest.mark.parametrize(
    ("estimator", "params", "n_rows", "tuning"),
    [
        ("SWSGPRegressor", {}, 100, {}),
        ("SWSGPRegressor", {"solver": Adam(max_iter=5)}, 80, {"learning_steps": 20}),
        # refined by held-out rows, then by the bound
        ("SWSGPClassifier", {}, 60, {"part_work": 1e5, "learning_steps": 20}),
        ("SWSGPClassifier", {}, 50, {}),
    ],
)
def test_twelve_interrupts_in_a_row_end_each_fit(estimator, params, n_rows, tuning):
    script = SCRIPT.format(
        estimator=estimator, params=params, n_rows=n_rows, tuning=tuning
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert int(done.stdout.split()[-1]) > 2  # the others came after the end of a fit


def fit_options(name):
    """Return an estimator and a number of rows whose fit goes through a part of it."""
    regressor = SWSGPRegressor(random_state=0)
    return {
        "bound": (SWSGPClassifier(random_state=0), 60),
        "refinement": (SWSGPClassifier(random_state=0), 200),
        "candidates": (SWSGPRegressor(n_inducing=20, random_state=0), 300),
        "draws": (SWSGPRegressor(covariance="draws", random_state=0), 100),
        "exact means": (SWSGPRegressor(n_neighbors="all", random_state=0), 100),
        "law": (regressor, 60),
        "noise": (SWSGPRegressor(likelihood="heteroscedastic", random_state=0), 60),
    }[name]


INTERRUPTED = {
    "bound": (BoundSearch, "solved"),
    "refinement": (SiteRefinement, "consider"),
    "candidates": (CandidateComparison, "solve"),
    "draws": (posterior_draws, "draw"),
    "exact means": (solve, "exact_mean_attributes"),
    "law": (solve, "leave_out_rows"),
    "noise": (NaturalSolver, "advance"),  # in the rounds of a trial
}


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("part", INTERRUPTED)
def test_ctrl_c_outside_the_rounds_leaves_the_estimator_as_it_was(
    part, monkeypatch, tune
):
    model, n_rows = fit_options(part)
    if part == "refinement":  # in place of the bound of all rows
        tune(part_work=evaluation_work(50, 2, 1))
    if part == "exact means":
        tune(dense_rows=0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n_rows)
    y = y > 0 if isinstance(model, SWSGPClassifier) else y
    before, calls = state_of(model), []

    def interrupted(*args, **options):
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(*INTERRUPTED[part], interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(calls) == 1
    assert state_of(model) == before
