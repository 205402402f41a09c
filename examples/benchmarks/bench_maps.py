"""Does a map of the columns that is chosen by default ever hurt on few rows?

Twenty kinds of tables of seven columns and 40 to 200 rows, each drawn anew for each
seed, with 1,000 test rows: columns on few levels, of heavy tails, log-normal, rows that
repeat X, and columns that come from two factors. RMSE and negative log density (MNLL)
are means over draws, with `learn_map="auto"` and `learn_map=False`. Then come the
difference of the MNLL, its standard error, and the share of draws with a map.

python examples/benchmarks/bench_maps.py --seeds 6
"""

import numpy as np
from report import Table, arguments
from sklearn.metrics import root_mean_squared_error
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPRegressor
from skswsgp.metrics import get_scorer

COLUMNS = {
    "columns": "",
    "rows": "d",
    "RMSE": ".3f",
    "without": ".3f",
    "MNLL": ".3f",
    "without map": ".3f",
    "difference": "+.3f",
    "error": ".3f",
    "maps": ".2f",
}
KINDS = "few levels", "heavy tails", "log-normal", "copies", "factors"
SIZES = 40, 80, 120, 200
N_COLUMNS, N_TEST, NOISE = 7, 1000, 0.2


def draw(kind, n, seed):
    """Return X and y of a table, the training rows first."""
    rng = np.random.default_rng([seed, n, KINDS.index(kind)])
    shape = n + N_TEST, N_COLUMNS
    X = rng.normal(size=shape)
    if kind == "few levels":
        X = np.round(1.2 * X)
    elif kind == "heavy tails":
        X = rng.standard_t(1.5, size=shape)
    elif kind == "log-normal":
        X = np.exp(1.5 * rng.normal(size=shape))
    elif kind == "copies":
        X[:n] = X[:n][rng.integers(0, n // 3, size=n)]
    elif kind == "factors":
        factors = rng.normal(size=(len(X), 2)) @ rng.normal(size=(2, N_COLUMNS))
        X = factors + 0.3 * rng.normal(size=shape)
    seen = X  # of columns with tails the function sees ranks
    if kind in ("heavy tails", "log-normal"):
        seen = 3.0 * X.argsort(axis=0).argsort(axis=0) / len(X)
    slope = rng.normal(size=N_COLUMNS) * (1.0, 1.0, 1.0, 0.3, 0.0, 0.0, 0.0)
    f = np.sin(seen @ slope) + 0.5 * seen[:, 0] * seen[:, 1]
    return X, f / f.std() + NOISE * rng.normal(size=len(X))


def scores(learn_map, X, y, n, seed):
    """Return RMSE and MNLL of test rows, and whether columns are mapped."""
    model = SWSGPRegressor(learn_map=learn_map, n_jobs=1, random_state=seed)
    model.fit(X[:n], y[:n])
    rmse = root_mean_squared_error(y[n:], model.predict(X[n:]))
    density = get_scorer("neg_log_density")(model, X[n:], y[n:])
    return rmse, -density, not np.array_equal(model.linear_map_, np.eye(N_COLUMNS))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    table = Table("maps", COLUMNS)
    with threadpool_limits(options.threads):
        for kind in KINDS:
            for n in SIZES:
                pairs = []
                for seed in range(options.seeds):
                    X, y = draw(kind, n, seed)
                    pairs.append([scores(m, X, y, n, seed) for m in ("auto", False)])
                rmse, mnll, mapped = np.array(pairs, dtype=float).T  # (2, seeds) each
                gain = mnll[0] - mnll[1]
                table.add(
                    kind, n, *rmse.mean(axis=1).tolist(), *mnll.mean(axis=1).tolist(),
                    float(gain.mean()), float(gain.std() / len(gain) ** 0.5),
                    float(mapped[0].mean()),
                )  # fmt: skip
