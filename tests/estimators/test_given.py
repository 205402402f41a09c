"""The solver of a fit: words, objects and their parameters."""

import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from small_models import both_estimators, small_data, tiny_data

from skswsgp import SWSGPRegressor
from skswsgp._estimators.given import solver_for
from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.alternating import AlternatingSolver
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


def test_a_word_has_no_parameters():
    model = SWSGPRegressor(solver="adam")
    match = r"^solver__max_iter with solver='adam', which is a word .*Adam\(\)\.$"
    with pytest.raises(ValueError, match=match):
        model.set_params(solver__max_iter=3)
    assert model.solver == "adam"
    model.set_params(solver=Adam(), solver__max_iter=3)
    assert model.solver.max_iter == 3
