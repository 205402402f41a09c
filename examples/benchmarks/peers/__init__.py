"""Models of other packages, as scikit-learn estimators with one interface.

`REGRESSORS` and `CLASSIFIERS` have a `Peer` by each name. A regressor has `fit(X, y)`
and says how uncertain it is by `predict(X, return_std=True)`, which stands for a
Gaussian, or by `predict(X, quantiles=[...])`, as scorers of `skswsgp.metrics` take
them; some predict means only, and one has the ends of intervals of 90 % only. All take
y and X as they are. A file of this folder imports its package, so that a package that
is missing stops nobody but its own peers.

python -c "from peers import REGRESSORS; print(REGRESSORS['NGBoost'].make())"
"""

from importlib import import_module
from typing import NamedTuple


class Peer(NamedTuple):
    """Where a model is, with which settings, and what it is limited to."""

    path: str  # module of this folder and function, which takes threads and a seed
    settings: str  # a phrase for the page
    package: str = "scikit-learn"  # name on the registry
    most_rows: int | None = None  # for training; more are left out
    most_columns: int | None = None  # tables with more are left out
    positive: bool = False  # training rows with a target of 0 or less are refused

    def refusal(self, X, y):
        """Return why X (n_samples, n_features), y (n_samples,) is refused, or None."""
        if self.most_columns and X.shape[1] > self.most_columns:
            return f"more than {self.most_columns} columns"
        if self.positive and min(y) <= 0:
            return "targets of 0 or less"
        return None

    def make(self, n_threads=1, random_state=0, **options):
        """Return a new estimator, or raise ImportError with a sentence."""
        module, _, name = self.path.partition(".")
        try:
            found = getattr(import_module(f"peers.{module}"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"{error.name} is missing: expected the extra `bench`; use python -m "
                'pip install -e ".[bench]".'
            ) from None
        return found(n_threads=n_threads, random_state=random_state, **options)


REGRESSORS = {
    "SVGP": Peer(
        "sparse_gp.SVGP",
        "M = 512, Matern 5/2 with a length-scale a column, natural gradients",
        "gpytorch",
    ),
    "VNNGP": Peer(
        "sparse_gp.VNNGP",
        "k = 32, an inducing point a row, Matern 5/2 with a length-scale a column",
        "gpytorch",
    ),
    "KISS-GP": Peer(
        "grid_gp.GridGP",
        "tutorial: RBF, a grid of as many points as rows, 30 steps of Adam",
        "gpytorch",
        most_columns=4,
    ),
    "deep GP": Peer(
        "deep_gp.DeepGP",
        "tutorial: two layers, 10 hidden functions, 128 inducing points a layer, RBF, "
        "10 draws; minibatches of 128 rows, a rate of 0.02",
        "gpytorch",
    ),
    "GPBoost Vecchia": Peer(
        "vecchia.vecchia",
        "Matern 5/2 with a length-scale a column, the package's other settings",
        "gpboost",
    ),
    "GPBoost full-scale": Peer(
        "vecchia.full_scale",
        "the same with the package's inducing points as well",
        "gpboost",
    ),
    "exact GP": Peer(
        "scikit.exact_gp",
        "`GaussianProcessRegressor`, Matern 5/2 with a length-scale a column and noise",
        most_rows=2000,
    ),
    "BayesianRidge": Peer("scikit.bayesian_ridge", "defaults, standardised columns"),
    "RandomForest": Peer(
        "forest.QuantileForest",
        "`RandomForestRegressor`, defaults; quantiles of training rows by their share "
        "of leaves",
    ),
    "HistGradientBoosting": Peer(
        "scikit.histogram_regressor",
        "defaults: a model of means and five of quantiles",
    ),
    "LightGBM": Peer(
        "light_boosting.regressor",
        "defaults: a model of means and five of quantiles",
        "lightgbm",
    ),
    "CatBoost": Peer("cat_boosting.regressor", "defaults, means only", "catboost"),
    "CatBoost uncertain": Peer(
        "cat_boosting.UncertainCatBoost",
        '`loss_function="RMSEWithUncertainty"`, else defaults',
        "catboost",
    ),
    "CatBoost stopped": Peer(
        "cat_boosting.StoppedCatBoost",
        "defaults, stopped after 40 trees without a gain on a fifth of the rows, means "
        "only",
        "catboost",
    ),
    "MAPIE": Peer(
        "conformal.boosting",
        "`ConformalizedQuantileRegressor` on scikit-learn's histogram boosting, "
        "defaults, a fifth of the rows to conformalize: medians and intervals of 90 %",
        "mapie",
    ),
    "NGBoost": Peer("natural_boosting.NGBoost", "defaults, a Gaussian", "ngboost"),
    "NGBoost log-normal": Peer(
        "natural_boosting.LogNormalNGBoost",
        "defaults, `Dist=LogNormal`",
        "ngboost",
        positive=True,
    ),
    "xRFM": Peer(
        "feature_machine.xrfm",
        "defaults, a fifth of the rows to tune on, means only",
        "xrfm",
    ),
}
CLASSIFIERS = {
    "HistGradientBoosting": Peer("scikit.histogram_classifier", "defaults"),
    "CatBoost": Peer("cat_boosting.classifier", "defaults", "catboost"),
    "LightGBM": Peer("light_boosting.classifier", "defaults", "lightgbm"),
    "LogisticRegression": Peer(
        "scikit.logistic_regression", "defaults, standardised columns"
    ),
    "RandomForest": Peer("scikit.forest_classifier", "defaults"),
    "Laplace GP": Peer(
        "scikit.laplace_gp",
        "`GaussianProcessClassifier`, RBF with one length-scale, standardised columns",
        most_rows=1000,
    ),
}
