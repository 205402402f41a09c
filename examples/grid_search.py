"""How many inducing points and neighbours does POWERPLANT want?

M and H go through `GridSearchCV` like any other parameters, two fits at a time.
"""

from datasets import load, split
from sklearn.model_selection import GridSearchCV

from skswsgp import SWSGPRegressor


def main():
    """Search over M and H with threefold cross-validation and print the scores."""
    X, y = load("powerplant")
    train, test = split(len(X))
    search = GridSearchCV(
        SWSGPRegressor(random_state=0),
        {"n_inducing": [64, 256, 1024], "n_neighbors": [4, 8, 16]},
        scoring="neg_root_mean_squared_error",
        cv=3,
        n_jobs=2,
    )
    search.fit(X[train], y[train])
    results = search.cv_results_
    print(f"{'M':>6s}{'H':>6s}{'RMSE (MW)':>12s}{'fit (s)':>10s}")
    for params, score, seconds in zip(
        results["params"],
        results["mean_test_score"],
        results["mean_fit_time"],
        strict=True,
    ):
        print(
            f"{params['n_inducing']:6d}{params['n_neighbors']:6d}"
            f"{-score:12.3f}{seconds:10.1f}"
        )
    print(
        f"best: {search.best_params_}, test RMSE {-search.score(X[test], y[test]):.3f}"
    )


if __name__ == "__main__":
    main()
