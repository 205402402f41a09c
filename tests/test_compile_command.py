"""The command that compiles before fits need it."""

import os
import subprocess
import sys
import textwrap

import pytest

from skswsgp.compile import main

COUNT = textwrap.dedent(
    """
    import numpy as np
    from numba.core import event
    from skswsgp import SWSGPRegressor

    class Compilations(event.Listener):
        begun = 0

        def on_start(self, event):
            self.begun += 1

        def on_end(self, event):
            pass

    listener = Compilations()
    event.register("numba:compile", listener)
    X = np.random.default_rng(1).normal(size=(250, 3))
    SWSGPRegressor().fit(X, X[:, 0] ** 2).predict(X, return_std=True)
    print(listener.begun)
    """
)


def run(folder, *arguments):
    """Return the output of a new process that keeps its compiled code in `folder`."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    how = {"env": env, "capture_output": True, "text": True, "check": True}
    return subprocess.run([sys.executable, *arguments], **how).stdout


@pytest.mark.slow  # compiles all that default regressions call
def test_fits_after_the_command_compile_nothing(tmp_path):
    assert int(run(tmp_path / "another", "-c", COUNT)) > 10
    said = run(tmp_path, "-m", "skswsgp.compile", "regression")
    assert said.startswith("regression ... ") and str(tmp_path) in said
    assert int(run(tmp_path, "-c", COUNT)) == 0


def test_an_unknown_kind_is_refused_with_those_that_are_known(capsys):
    with pytest.raises(SystemExit):
        main(["regression", "trees"])
    message = "kind 'trees': expected regression, classification, adam"
    assert message in capsys.readouterr().err
