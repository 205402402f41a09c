"""Which solver trains, and what it refuses."""

import numpy as np
import pytest

from skswsgp import SWSGPRegressor
from skswsgp._estimators import base
from skswsgp._solvers import registry
from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.alternating import AlternatingSolver
from skswsgp._solvers.natural import NaturalSolver


class LocalSolver(NaturalSolver):
    """A solver of a third party, whose draws are not known."""

    title = "the local solver"
    local_divergences = True
    draws = False


@pytest.fixture
def local_solver(monkeypatch):
    monkeypatch.setitem(registry.SOLVERS, "local", LocalSolver)
    constraints = base.BaseSWSGP._parameter_constraints | {"solver": "no_validation"}
    monkeypatch.setattr(SWSGPRegressor, "_parameter_constraints", constraints)
    return {"solver": "local", "init": "default", "n_neighbors": 4, "random_state": 0}


@pytest.mark.parametrize(
    ("solver", "optimize_inducing", "streaming", "expected"),
    [
        ("natural", False, False, NaturalSolver),
        ("natural", True, False, AlternatingSolver),
        ("adam", False, False, AdamSolver),
        ("adam", True, False, AdamSolver),
        ("natural", True, True, AdamSolver),
    ],
)
def test_solver_is_chosen_by_name(solver, optimize_inducing, streaming, expected):
    chosen = registry.choose_solver(solver, optimize_inducing, streaming)
    assert chosen is expected


def test_registered_solver_trains(local_solver, rng):
    X = rng.normal(size=(30, 2))
    model = SWSGPRegressor(**local_solver).fit(X, X[:, 0])
    assert model.kl_weight_ == pytest.approx(30 / 4)
    assert np.abs(model.predict(X) - X[:, 0]).max() < 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance": "draws"}, "covariance='draws' with the local solver"),
        ({"optimize_inducing": True}, "solver='local': expected solver='adam' or"),
    ],
)
def test_unsupported_settings_of_a_registered_solver_raise(
    local_solver, rng, settings, message
):
    X = rng.normal(size=(30, 2))
    with pytest.raises(ValueError, match=message):
        SWSGPRegressor(**local_solver, **settings).fit(X, X[:, 0])
