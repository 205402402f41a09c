"""The solver of a fit: words, objects and their parameters."""

import re

import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from small_models import both_estimators, small_data, tiny_data

from skswsgp import SWSGPRegressor
from skswsgp._adam.alternating import AlternatingSolver
from skswsgp._adam.solver import AdamSolver
from skswsgp._estimators.given import solver_for
from skswsgp._solvers.natural import NaturalSolver
from skswsgp.solvers import Adam, Natural


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        ("natural", NaturalSolver),
        (Natural(), NaturalSolver),
        (Natural(optimize_inducing=True), AlternatingSolver),
        ("adam", AdamSolver),
        (Adam(optimize_inducing=True), AdamSolver),
    ],
)
def test_the_solver_that_trains(solver, expected):
    method, parameters = solver_for(SWSGPRegressor(solver=solver))
    assert method is expected
    kind = Adam if expected is AdamSolver else Natural
    given = solver if isinstance(solver, kind) else kind()
    assert parameters == given.get_params()


@both_estimators
@pytest.mark.parametrize(("word", "solver"), [("adam", Adam), ("natural", Natural)])
def test_a_word_is_an_object_of_defaults(estimator_class, word, solver):
    X, y = tiny_data(estimator_class)
    how = {"n_inducing": 10, "n_neighbors": 4, "learn_kernel": False}
    fits = [
        estimator_class(solver=one, random_state=0, **how).fit(X, y)
        for one in (word, solver())
    ]
    assert_array_equal(*(model.inducing_mean_ for model in fits))


def test_a_search_reaches_the_parameters_of_a_solver():
    X, y = small_data(60)
    model = SWSGPRegressor(solver=Adam(), n_inducing=10, learn_kernel=False)
    search = GridSearchCV(model, {"solver__max_iter": [1, 30]}, cv=2).fit(X, y)
    assert search.best_params_ == {"solver__max_iter": 30}
    assert search.best_estimator_.n_iter_ <= 30
    assert model.solver.max_iter == 200
    assert clone(model).solver is not model.solver


@pytest.mark.parametrize(
    ("word", "given", "advice"),
    [
        ("natural", {"forgetting_factor": 0.9}, "Natural(forgetting_factor=0.9)"),
        ("adam", {"tol": 0.1, "max_iter": 3}, "Adam(max_iter=3, tol=0.1)"),
        ("natural", {"batch_size": 9}, "Adam(batch_size=9)"),
        ("adam", {"kl_weight": 2.0}, "Adam(kl_weight=2.0)"),
    ],
)
def test_a_word_has_no_parameters_but_is_told_the_object_that_has(word, given, advice):
    model = SWSGPRegressor(solver=word)
    first, nested = next(iter(given)), {f"solver__{k}": v for k, v in given.items()}
    match = f"solver__{first} with solver={word!r}, which is a word and has no"
    with pytest.raises(ValueError, match=f"^{match} .*use solver={re.escape(advice)}"):
        model.set_params(**nested)
    assert model.solver == word
    with pytest.raises(ValueError, match=re.escape(advice)):
        SWSGPRegressor(solver=Adam()).set_params(solver=word, **nested)


def test_names_that_no_solver_has_are_refused_by_scikit_learn():
    with pytest.raises(ValueError, match="Invalid parameter 'size' for estimator Nat"):
        SWSGPRegressor().set_params(solver__size=3)


def test_an_object_and_its_parameters_are_set_together():
    model = SWSGPRegressor(solver="adam")
    model.set_params(solver=Adam(), solver__max_iter=3)
    assert model.solver.max_iter == 3


def test_a_solver_without_a_forgetting_factor_learns_no_streams():
    class Slow(Adam):
        """Adam with other defaults."""

    assert not hasattr(SWSGPRegressor(solver=Slow()), "partial_fit")
    assert hasattr(SWSGPRegressor(solver=Natural()), "partial_fit")
