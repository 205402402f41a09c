"""The choice of a transformation of y by held-out rows."""

import warnings

import numpy as np
from sklearn.utils import check_random_state

from skswsgp._estimators.given import kernel_for
from skswsgp._initialization.inducing import distinct_rows
from skswsgp._initialization.statistics import exceeds_standard_error
from skswsgp._predictive.fit_law import ERRORS

MOST_ROWS = 2000  # rows of a trial fit, which takes seconds, and rows held out
HELD_OUT = 1 / 3  # of few rows
LEAST_ROWS = 30  # distinct rows held out: fewer do not tell it from chance


def choose_transform(estimator, X, rows, y, weight):
    """Return "log", "yeo-johnson" or None for an estimator with `y_transform="auto"`.

    `rows` are the rows of X that y and weight belong to, or None for all of them.
    Copies of the estimator are fitted to some rows, one without and one with each
    transformation. A transformation is taken if its mean gain in log density on other
    rows, in the units of y, exceeds `ERRORS` standard errors. Rows that share X are
    held out together, and each has the noise of its weight. With an integer
    `random_state` the fit that follows draws as it would without the choice.
    """
    rng = check_random_state(estimator.random_state)
    places = np.arange(len(y)) if rows is None else rows
    chosen = np.sort(rng.permutation(len(y))[: 2 * MOST_ROWS])
    points, point_of = distinct_rows(np.asarray(X[places[chosen]]))
    held_out = min(int(HELD_OUT * len(points)), MOST_ROWS)
    if held_out < LEAST_ROWS:
        return None
    is_test = (rng.permutation(len(points)) < held_out)[point_of]
    test, train = chosen[is_test], chosen[~is_test][:MOST_ROWS]
    names = ["yeo-johnson", "log"] if (y > 0.0).all() else ["yeo-johnson"]
    densities, relative = {}, weight / weight[train].mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows repeats them
        kernel = kernel_for(estimator, X.shape[1])  # X has lost the names of columns
        for name in [None, *names]:
            params = estimator.get_params(deep=False) | {"kernel": kernel}
            params |= {"y_transform": name, "warm_start": False, "verbose": 0}
            if estimator._record.varying_noise:
                params["likelihood"] = "gaussian"  # whose law follows errors, too
            trial = type(estimator)(**params)
            trial._is_trial = True
            trial.fit(X[places[train]], y[train], weight[train])
            density = trial._weighted_log_density(
                X[places[test]], y[test], relative[test]
            )
            densities[name] = density.sum(axis=1)
    gains = {name: densities[name] - densities[None] for name in names}
    best = max(names, key=lambda name: np.average(gains[name], weights=weight[test]))
    better = exceeds_standard_error(gains[best], weight[test], errors=ERRORS)
    return best if better else None
