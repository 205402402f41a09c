"""How good are the defaults, and what does each part of them contribute?

Standardised targets, random 80/20 splits, mean over seeds 0, 1 and 2. Run ``python
examples/benchmarks/bench_accuracy.py`` for all data, or name some: ``... protein eeg``.
``--ablation`` adds rows without one part each, ``--seeds 1`` takes fewer splits.
``--peers`` adds GPyTorch's SVGP and VNNGP of `peers` on regression data; each may train
for ``--seconds``, or else for as long as our own fit took. Seconds are processor time
with one thread, else time on the wall.

``--public`` takes other splits, the 90/10 splits of Hernandez-Lobato and Adams (2015)
and of Gal and Ghahramani (2016), of which there are twenty (five of protein), and units
of y. Published means of the same splits stand below ours.

``--long`` takes long tables of the UCI repository that you have as `<name>.npz` in the
folder SKSWSGP_DATA, and says which are missing. Below ours stand the means over five
random 80/20 splits, in units of y, of Jafrasteh, Villacampa-Calvo and Hernandez-Lobato
(Input Dependent Sparse Gaussian Processes, 2022, tables 1 and 4).
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
from datasets import OFFICIAL_TRAINING, load, parts, split, table_of
from report import Table, arguments, clock, dots
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss, root_mean_squared_error
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.metrics import (
    expected_calibration_error,
    get_scorer,
    interval_coverage,
)
from skswsgp.solvers import Adam

try:
    import faiss  # noqa: F401 (GPyTorch takes hours for neighbours without it)
    from peers.sparse_gp import SVGP, VNNGP

    PEERS = {"SVGP, M = 512": SVGP, "VNNGP, k = 32": VNNGP}
except ImportError:
    PEERS = {}

COLUMNS = {
    "data": "",
    "model": "",
    "RMSE/error": ".4f",
    "MNLL": ".4f",
    "coverage/ECE": ".4f",
    "seconds": ".1f",
}
REGRESSION = ("powerplant", "kin8nm", "protein", "kin40k", "naval")
CLASSIFICATION = ("eeg", "banana", "spam", "credit", "mnist", "airline")
DATA = REGRESSION + CLASSIFICATION

PUBLIC_COLUMNS = {
    "data": "",
    "model": "",
    "splits": "",
    "RMSE": ".4g",
    "MNLL": ".3f",
    "CRPS": ".4g",
    "coverage": ".3f",
    "seconds": ".1f",
}
# RMSE, MNLL and CRPS on the public splits as their authors give them, None where not
PUBLISHED = {
    "concrete": {
        "TabPFN v2": (3.86, 2.21, None),
        "XGBoost": (4.36, None, None),
        "CatBoost": (4.65, None, None),
        "thin and deep GP": (4.63, None, 2.43),
        "TabResFlow": (None, 2.89, 2.44),
        "MC dropout": (4.82, 2.93, None),
    },
    "energy": {
        "TabPFN v2": (0.423, 0.150, None),
        "XGBoost": (0.322, None, None),
        "CatBoost": (0.497, None, None),
        "thin and deep GP": (0.537, None, 0.364),
        "TabResFlow": (None, 0.644, 0.294),
        "MC dropout": (0.54, 1.21, None),
    },
    "wine": {},
    "yacht": {},
    "kin8nm": {
        "TabPFN v2": (0.0704, -1.272, None),
        "XGBoost": (0.123, None, None),
        "CatBoost": (0.104, None, None),
        "thin and deep GP": (0.0636, None, 0.0372),
        "TabResFlow": (None, -1.284, 0.0387),
        "MC dropout": (0.08, -1.14, None),
    },
    "naval": {
        "TabPFN v2": (1e-4, -7.33, None),
        "XGBoost": (0.0019, None, None),
        "CatBoost": (0.0020, None, None),
        "thin and deep GP": (0.0084, None, 0.0043),
        "TabResFlow": (None, -5.33, 0.0007),
        "MC dropout": (0.0, -4.45, None),
    },
    "powerplant": {
        "TabPFN v2": (3.00, 2.28, None),
        "XGBoost": (3.07, None, None),
        "CatBoost": (3.65, None, None),
        "thin and deep GP": (3.82, None, 2.19),
        "TabResFlow": (None, 2.58, 1.93),
        "MC dropout": (4.01, 2.80, None),
    },
    "protein": {
        "TabPFN v2": (3.53, 1.73, None),
        "XGBoost": (3.36, None, None),
        "CatBoost": (4.15, None, None),
        "thin and deep GP": (3.94, None, 2.47),
        "TabResFlow": (None, 1.93, 1.70),
        "MC dropout": (4.27, 2.87, None),
    },
}

SPARSE = "VSGP, M = 1024", "SOLVE, M = 1024", "SWSGP, 2021, H = 50", "IDSGP, M = 15"
# RMSE and MNLL of these models; ctslice is not among their tables
LONG = {
    "kin40k": ((0.198, -0.047), (0.157, -0.415), (0.215, -0.110), (0.050, -1.461)),
    "protein": ((4.161, 2.848), (4.062, 2.818), (4.133, 2.835), (3.756, 2.775)),
    "ctslice": (),
    "keggdirected": (
        (0.032, -1.955),
        (0.079, -1.756),
        (0.024, -2.256),
        (0.022, -2.410),
    ),
    "keggundirected": (
        (0.024, -2.344),
        (0.020, -2.531),
        (0.022, -2.396),
        (0.014, -2.908),
    ),
    "3droad": ((9.641, 3.691), (10.020, 3.726), (11.726, 3.879), (7.250, 3.399)),
    "song": ((8.966, 3.613), (8.925, 3.608), (9.013, 3.618), (9.068, 3.637)),
    "buzz": (
        (175.076, 6.272),
        (173.352, 6.297),
        (160.744, 6.137),
        (166.784, 6.317),
    ),
    "houseelectric": (
        (0.035, -1.737),
        (0.034, -1.743),
        (0.036, -1.711),
        (0.032, -1.774),
    ),
}

REGRESSORS = {
    "SWSGP": SWSGPRegressor,
    "local GP": NearestNeighborGPRegressor,
    "HistGradientBoosting": HistGradientBoostingRegressor,
}
CLASSIFIERS = {
    "SWSGP": SWSGPClassifier,
    "HistGradientBoosting": HistGradientBoostingClassifier,
}
ABLATION = {
    "start as given": {"learn_kernel": False},
    "Adam": {"solver": Adam(max_iter=50), "n_inducing": 1024, "n_neighbors": 32},
    "M = 1024": {"n_inducing": 1024},
    "M = 1024, full S": {"n_inducing": 1024, "covariance": "full"},
    "H = 16": {"n_neighbors": 16},
    "H = 32": {"n_neighbors": 32},
    "float32": {"dtype": "float32"},
}


def regression(make, X, y, train, test, now):
    """Return RMSE, MNLL (NaN without a density), coverage and seconds of `fit`."""
    y = (y - y[train].mean()) / y[train].std()
    started = now()
    model = make().fit(X[train], y[train])
    seconds = now() - started
    if not hasattr(model, "noise_variance_"):
        rmse = root_mean_squared_error(y[test], model.predict(X[test]))
        return rmse, np.nan, np.nan, seconds
    mean, std = model.predict(X[test], return_std=True)
    density = get_scorer("neg_log_density")(model, X[test], y[test])
    ends = mean - 1.96 * std, mean + 1.96 * std  # peers are Gaussian
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X[test])
    coverage = interval_coverage(y[test], *ends)
    return root_mean_squared_error(y[test], mean), -density, coverage, seconds


def classification(make, X, y, train, test, now):
    """Return error, MNLL, expected calibration error and seconds of `fit`."""
    started = now()
    model = make().fit(X[train], y[train])
    seconds = now() - started
    proba = model.predict_proba(X[test])
    error = np.mean(model.classes_[proba.argmax(axis=1)] != y[test])
    calibration = expected_calibration_error(y[test], proba)
    return error, log_loss(y[test], proba), calibration, seconds


def estimators(name, options):
    """Return constructors by the name of their row."""
    rows = dict(REGRESSORS if name in REGRESSION else CLASSIFIERS)
    for label in ("SWSGP", "local GP"):
        if label in rows:
            rows[label] = partial(rows[label], n_jobs=options.threads)
    if options.ablation:
        for label, part in ABLATION.items():
            rows[label] = partial(rows["SWSGP"], **part)
    if options.peers and name in REGRESSION:
        for label, peer in PEERS.items():
            rows[label] = partial(peer, n_threads=options.threads)
    return {k: v for k, v in rows.items() if k in (options.only or rows)}


def run(table, name, options):
    """Add the rows of one dataset."""
    X, y = table_of(name)
    score = regression if name in REGRESSION else classification
    seeds = range(1 if name in OFFICIAL_TRAINING else options.seeds)
    budgets = [options.seconds] * len(seeds)
    for label, make in estimators(name, options).items():
        figures = []
        for seed in seeds:
            settings = {"random_state": seed}
            if label in PEERS:
                settings["seconds"] = budgets[seed]
            data = X, y, *parts(name, len(X), seed)
            figures.append(
                score(partial(make, **settings), *data, clock(options.threads))
            )
        if label == "SWSGP" and options.seconds is None:
            budgets = [seconds for *_, seconds in figures]
        table.add(name, label, *np.mean(figures, axis=0).tolist())


def run_public(table, name, options):
    """Add our means on the public splits of a table, and the published ones."""
    own = Path(os.environ.get("SKSWSGP_DATA", ""), f"gal_{name}.npz").is_file()
    X, y = load(f"gal_{name}" if own else name)
    with np.load(Path(os.environ.get("SKSWSGP_DATA", ""), "gal_splits.npz")) as file:
        splits = file[name][: options.seeds]
    both = [(np.setdiff1d(np.arange(len(X)), test), test) for test in splits]
    add_means(table, name, X, y, both, options)
    for label, published in PUBLISHED[name].items():
        table.add(name, label, None, *published, None, None)


def run_long(table, name, options):
    """Add our means on random splits of a long table, and the published ones."""
    if not Path(os.environ.get("SKSWSGP_DATA", ""), f"{name}.npz").is_file():
        print(f"Without {name}: there is no {name}.npz in the folder SKSWSGP_DATA.")
        return
    X, y = load(name)
    both = [split(len(X), seed) for seed in range(options.seeds)]
    add_means(table, name, X, y, both, options)
    for label, published in zip(SPARSE, LONG[name], strict=False):
        table.add(name, label, None, *published, None, None, None)


def add_means(table, name, X, y, splits, options):
    """Add our means over splits, which are pairs of indices of rows."""
    figures, now = [], clock(options.threads)
    for seed, (train, test) in enumerate(splits):
        started = now()
        model = SWSGPRegressor(n_jobs=options.threads, random_state=seed)
        model.fit(X[train], y[train])
        seconds = now() - started
        rmse = root_mean_squared_error(y[test], model.predict(X[test]))
        scores = ("neg_log_density", "neg_crps")
        mnll, crps = (-get_scorer(score)(model, X[test], y[test]) for score in scores)
        coverage = interval_coverage(y[test], *model.predict_interval(X[test]))
        figures.append((rmse, mnll, crps, coverage, seconds))
    table.add(name, "SWSGP", len(splits), *np.mean(figures, axis=0).tolist())


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3, help="or the public splits")
    parser.add_argument("--public", action="store_true", help="the public splits")
    parser.add_argument("--long", action="store_true", help="long tables of your own")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seconds", type=float, help="of a peer's fit")
    parser.add_argument("--only", nargs="+", help="models; peers need --seconds then")
    options = parser.parse_args()
    if options.peers and not PEERS:
        print("Without SVGP and VNNGP: GPyTorch or faiss is missing (extra `bench`).")
    how = ("accuracy", DATA, run)
    if options.public or options.long:
        public = ("public_splits", PUBLISHED, run_public)
        how = public if options.public else ("long_tables", LONG, run_long)
    title, data, run_one = how
    columns = COLUMNS if run_one is run else PUBLIC_COLUMNS
    panels = [head for head in columns if head not in ("data", "model", "splits")]
    results = Table(title, columns)
    with threadpool_limits(options.threads):
        tiny = np.arange(200.0)[:, None]
        SWSGPRegressor().fit(tiny, np.sin(tiny[:, 0]))  # reads compiled code
        for name in options.names or data:
            run_one(results, name, options)
    results.save(options.out, dots, row="data", series="model", panels=panels)
