"""How good is the default beside models of other packages?

All models of `peers` on 29 tables, each with its package's defaults or those of its
tutorial, on one thread. A table gives at most ``--rows`` rows for training and for
tests, since some models take no more. Tables with public splits take the first of
those, others random splits of 80 and 20 %. Tables of mixed kinds, with dates and
categories, are encoded before. Scores are those of standardised y. Seconds are those of
the processor, without those of encoding; those of a prediction are for means and
intervals of the test rows. A fit that takes more than ``--limit`` seconds has an empty
cell, and those of GPyTorch that train for a budget have ``--seconds``. Our own fits
have been compiled before. Words choose tables and models, and rows of earlier runs
stay:

python examples/benchmarks/bench_peers.py --out doc
python examples/benchmarks/bench_peers.py --out doc diabetes SWSGP CatBoost

``--out doc`` writes the rows to doc/benchmarks/peers.csv, the tables of the page beside
it, and a picture to doc/figures. A word that is no name only writes the page anew.
``--quick`` takes two small tables that scikit-learn has.
"""

import logging
import warnings
from functools import partial
from importlib.metadata import version

import peer_page
import peer_scores
from limits import TooLongError, allow, call
from peer_tables import CLASSES, EVERY, QUICK, rows_of
from peers import CLASSIFIERS, REGRESSORS
from report import Table, arguments, clock, unique
from threadpoolctl import threadpool_limits

import skswsgp
from skswsgp import SWSGPClassifier, SWSGPRegressor

OURS = peer_page.OURS
BUDGETS = {"SVGP": 1, "VNNGP": 1, "deep GP": 2}  # multiples of --seconds
QUICK_ROWS = 150


def peers_of(data):
    """Return the models of other packages for a table, by name."""
    return CLASSIFIERS if data in CLASSES else REGRESSORS


def maker_of(data, name, seed, options):
    """Return a function that makes a model, its package, and its most training rows.

    Raises ImportError if the package is missing.
    """
    if name == OURS:
        kind = SWSGPClassifier if data in CLASSES else SWSGPRegressor
        make = partial(kind, n_jobs=options.threads, random_state=seed)
        return make, f"skswsgp {skswsgp.__version__}", options.rows
    peer = peers_of(data)[name]
    extra = {"seconds": BUDGETS[name] * options.seconds} if name in BUDGETS else {}
    make = partial(peer.make, options.threads, seed, **extra)
    make()  # imports the package
    most_rows = min(options.rows, peer.most_rows or options.rows)
    return make, f"{peer.package} {version(peer.package)}", most_rows


def fit_and_score(make, twice, rows, is_regression, options):
    """Return scores and seconds by name; for a process of its own."""
    X, y, X_test, y_test = rows
    now = clock(options.threads)
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)  # MAPIE's of quantiles that cross
    model = make()
    if twice:
        model.fit(X, y).predict(X_test)  # reads compiled code
        if is_regression:
            peer_scores.interval(model, X_test)
    allow(options.limit)
    started = now()
    model.fit(X, y)
    found = {"fit": now() - started}
    allow(10 * options.limit)
    started = now()
    if is_regression:
        model.predict(X_test)
        peer_scores.interval(model, X_test)
    else:
        model.predict_proba(X_test)
    found["predict"] = now() - started
    if is_regression:
        return found | peer_scores.of_regression(model, X_test, y_test, y.std())
    return found | peer_scores.of_classes(model, X_test, y_test)


def cell(data, name, seed, options):
    """Return the row of a model on a split; `note` says why it has no scores."""
    rows = rows_of(data, seed, options.rows)
    make, package, most_rows = maker_of(data, name, seed, options)
    row = {"data": data, "model": name, "seed": seed, "package": package}
    rows = rows[0][:most_rows], rows[1][:most_rows], *rows[2:]
    row |= {"rows": len(rows[0]), "columns": rows[0].shape[1]}
    refusal = None if name == OURS else peers_of(data)[name].refusal(*rows[:2])
    if refusal:
        return row | {"note": refusal}
    try:
        job = make, name == OURS, rows, data not in CLASSES, options
        return row | call(fit_and_score, *job)
    except TooLongError:
        return row | {"note": f"more than {options.limit:g} s"}
    except RuntimeError as error:
        return row | {"note": f"stopped: {error}"}


def run(table, data, options):
    """Add the rows of a table, and say in a line what is left out."""
    models_named = [word for word in options.words if word not in EVERY]
    for name in [OURS, *peers_of(data)]:
        if models_named and name not in models_named:
            continue
        for seed in range(options.seeds):
            try:
                row = cell(data, name, seed, options)
            except ImportError as error:
                print(f"{data}, {name}: left out, for {error}")
                break
            except (OSError, ValueError, KeyError) as error:
                if "SKSWSGP_DATA" not in str(error) and not isinstance(error, OSError):
                    raise
                print(f"{data}: left out, for the table is not here ({error}).")
                return
            table.add(*(row.get(head) for head in table.columns))
            peer_page.keep(table, options.out)


def main():
    parser = arguments(__doc__)
    parser.add_argument("words", nargs="*", help="tables and models; default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a fit")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a budget")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.seconds = QUICK_ROWS, 0.5
    named = [data for data in EVERY if data in options.words]
    wrong = set(options.words) - {*EVERY, OURS, *REGRESSORS, *CLASSIFIERS}
    table = Table("peers", peer_page.COLUMNS)
    with threadpool_limits(options.threads):
        for data in [] if wrong else named or (QUICK if options.quick else EVERY):
            run(table, data, options)
    peer_page.write(table, options.out)
    print(f"{len(unique(table.rows, 'data'))} tables")


if __name__ == "__main__":
    main()
