"""Our two estimators as a model of TabArena, which fits the models of AutoGluon.

Categories and gaps become numbers as the page "Categories, dates and missing values" of
the user guide says; AutoGluon itself makes numbers of dates and words.
The model has the defaults of its estimator and no search space: M, H, kernel and scales
follow from the table. A fit has no limit of time, so AutoGluon gives up a bag once it
expects all of its fits to take longer than allowed.

Processes find the class of a saved model by the name of its file, so this is not in
`bench_tabarena.py`.
"""

from functools import cache
from typing import ClassVar

import numpy as np
from autogluon.common.features.types import R_BOOL, R_CATEGORY, R_FLOAT, R_INT
from autogluon.core.models import AbstractModel
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder
from tabarena.utils.config_utils import ConfigGenerator

from skswsgp import SWSGPClassifier, SWSGPRegressor

FEW_LEVELS = 10  # levels of a category up to which each gets a column of its own
ROWS_TO_COMPILE = 200, 1500, 3000  # tables of these sizes need different functions


class SWSGPModel(AbstractModel):
    """`SWSGPRegressor` or `SWSGPClassifier`, behind encoders."""

    ag_key = "SWSGP"
    ag_name = "SWSGP"
    seed_name = "random_state"
    _supported_problem_types: ClassVar = ["binary", "multiclass", "regression"]
    _default_auxiliary_params_extra: ClassVar = {
        "valid_raw_types": [R_BOOL, R_INT, R_FLOAT, R_CATEGORY]
    }

    @classmethod
    def warmup(cls, *, problem_type=None, num_cpus=None, **_):
        """Compile what fits need; TabArena calls this before its clock starts."""
        compile_for(problem_type, num_cpus)

    def _fit(self, X, y, sample_weight=None, num_cpus=None, num_gpus=0, **_):
        X = self.preprocess(X, y=y, is_train=True)
        kind = estimator_for(self.problem_type)
        options = {"n_jobs": num_cpus, "device": "cuda" if num_gpus else "cpu"}
        model = kind(**options | self._get_model_params())
        encode = encoder(kind is SWSGPRegressor, model.random_state)
        self.model = Pipeline([("encode", encode), ("model", model)])
        self.model.fit(X, y, model__sample_weight=sample_weight)

    def _more_tags(self):
        return {"can_refit_full": True}  # fits do not see the held-out rows of a bag


def estimator_for(problem_type):
    """Return the estimator for a kind of target, by AutoGluon's name of it."""
    return SWSGPRegressor if problem_type == "regression" else SWSGPClassifier


def encoder(is_regression, seed):
    """Return a transformer that makes numbers of a frame."""
    folds = KFold if is_regression else StratifiedKFold
    means = TargetEncoder(
        target_type="continuous" if is_regression else "auto",
        cv=folds(5, shuffle=True, random_state=seed),
    )
    flags = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    filled = SimpleImputer(add_indicator=True)
    return make_column_transformer(
        (flags, few_levels), (means, many_levels), (filled, numbers)
    )


def few_levels(X):
    """Return the names of the columns of few categories."""
    categories = X.select_dtypes("category")
    return [name for name in categories if X[name].nunique() <= FEW_LEVELS]


def many_levels(X):
    """Return the names of the columns of many categories."""
    return X.select_dtypes("category").columns.difference(few_levels(X)).tolist()


def numbers(X):
    """Return the names of the other columns."""
    return X.select_dtypes(exclude="category").columns.tolist()


@cache
def compile_for(problem_type, n_jobs):
    """Fit random tables of several lengths, once a process."""
    for n in ROWS_TO_COMPILE:
        rng = np.random.RandomState(0)
        X = rng.normal(size=(n, 2))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
        if problem_type != "regression":
            limits = [-0.3, 0.3] if problem_type == "multiclass" else [0.0]
            y = np.digitize(y, limits)
        model = estimator_for(problem_type)(random_state=0, n_jobs=n_jobs)
        model.fit(X, y).predict(X)


def configurations():
    """Return TabArena's generator of configurations, which has the defaults only."""
    return ConfigGenerator({}, SWSGPModel, manual_configs=[{}])
