"""How honest are intervals of rows whose category training never had?

Levels have normal effects of spread 1, to which a sine of another column and noise of
deviation 0.3 are added. The one or two categories are one-hot encoded, with
`handle_unknown="ignore"`, or codes, which are -1 at a new level. Of two categories the
first is new. Each draw has other levels; intervals of few known ones hold or miss
together, for these levels tell the spread of all.

python examples/benchmarks/bench_new_levels.py --seeds 12
"""

import numpy as np
from report import Table, arguments, dots
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from skswsgp import SWSGPRegressor

COLUMNS = {
    "encoded as": "",
    "levels": "d",
    "rows each": "d",
    "known 90 %": ".3f",
    "new 90 %": ".3f",
    "known std": ".2f",
    "new std": ".2f",
}
ENCODERS = {
    "one-hot": lambda: OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
    "rare ones together": lambda: OneHotEncoder(
        sparse_output=False, handle_unknown="ignore", min_frequency=8
    ),
    "codes": lambda: OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1
    ),
}
# Encoder, number of categories, whether levels have unequal numbers of rows, levels,
# and rows of each level, or on average
KINDS = [
    *(("one-hot", 1, False, k, n) for k, n in ((5, 40), (12, 20), (40, 10), (80, 25))),
    *(("one-hot", 2, False, k, n) for k, n in ((5, 40), (12, 20), (40, 10))),
    ("one-hot", 1, True, 40, 10),
    ("rare ones together", 1, True, 40, 10),
    ("codes", 1, False, 12, 20),
    ("codes", 1, False, 40, 10),
]
N_NEW = 500


def fit_and_measure(name, n_categories, unequal, k, n_each, seed):
    """Return coverage at known and new levels, then medians of deviations there."""
    rng = np.random.default_rng(seed)
    effects, n = rng.normal(size=(n_categories, 10 * k)), k * n_each
    levels = np.tile(np.arange(n) % k, (n_categories, 1))
    if unequal:
        levels[:, k:] = rng.choice(k, n - k, p=rng.dirichlet(np.ones(k)))
    levels = rng.permuted(levels, axis=1)

    def rows(levels):
        x, n = rng.random(levels.shape[1]), levels.shape[1]
        f = np.sin(5 * x) + np.take_along_axis(effects, levels, axis=1).sum(axis=0)
        return np.column_stack([encoder.transform(levels.T), x]), f + 0.3 * rng.normal(
            size=n
        )

    encoder = ENCODERS[name]().fit(levels.T)
    model = SWSGPRegressor(random_state=seed).fit(*rows(levels))
    known = levels[:, rng.integers(0, n, N_NEW)]
    new = known.copy()
    new[0] = rng.integers(k, 10 * k, N_NEW)
    held, std = [], []
    for X, y in map(rows, (known, new)):
        lower, upper = model.predict_interval(X, coverage=0.9)
        held.append(np.mean((lower <= y) & (y <= upper)))
        std.append(np.median(model.predict(X, return_std=True)[1]))
    return *held, *std


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    results = Table("new_levels", COLUMNS)
    for kind in KINDS:
        name, n_categories, unequal, k, n_each = kind
        runs = [fit_and_measure(*kind, seed) for seed in range(options.seeds)]
        more = ", two" if n_categories == 2 else ", unequal" if unequal else ""
        results.add(name + more, k, n_each, *np.mean(runs, axis=0))
    results.save(options.out, dots, row="encoded as", panels=["new 90 %"])
