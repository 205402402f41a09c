"""The rows of `bench_peers.py` as tables, sentences and a picture of its page."""

import csv

import numpy as np
from peer_mixed import SOURCES
from peer_tables import EVERY, KINDS
from peers import CLASSIFIERS, REGRESSORS
from report import put, save_figure, unique, write_rows

OURS = "SWSGP"
COLUMNS = {
    "data": "",
    "model": "",
    "package": "",
    "note": "",
    "seed": "d",
    "rows": "d",
    "columns": "d",
    "RMSE": ".4f",
    "error": ".4f",
    "NLL": ".3f",
    "CRPS": ".4f",
    "coverage": ".3f",
    "interval score": ".3f",
    "ECE": ".3f",
    "fit": ".2f",
    "predict": ".3f",
}
TEXT = "data", "model", "package", "note"
OF_NUMBERS = ("RMSE", "NLL", "CRPS", "interval score"), ("coverage",)
SCORES = {  # those where smaller is better, and what else there is a table of
    "regression": OF_NUMBERS,
    "mixed": OF_NUMBERS,
    "classes": (("error", "NLL"), ("ECE",)),
}
SECONDS = "fit", "predict"
FORMATS = {"RMSE": ".3g", "CRPS": ".3g", "interval score": ".3g"}


def keep(table, out):
    """Write the rows of a table to a file, beside those of earlier runs."""
    if out is None:
        return
    path = out / "benchmarks" / f"{table.name}.csv"
    rows = {_key(row): row for row in [*read(path), *table.rows]}
    models = [OURS, *(REGRESSORS | CLASSIFIERS)]
    ranked = sorted(
        rows.values(),
        key=lambda r: (EVERY.index(r["data"]), models.index(r["model"]), r["seed"]),
    )
    write_rows(
        path, table.columns, [{k: _brief(v) for k, v in r.items()} for r in ranked]
    )


def _key(row):
    return row["data"], row["model"], row["seed"]


def _brief(value):
    """Return a number with six digits, which is what a file needs."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read(path):
    """Return the rows of a file, none if it is missing."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    whole = "seed", "rows", "columns"

    def value(head, text):
        if not text:
            return None
        return text if head in TEXT else int(text) if head in whole else float(text)

    return [{head: value(head, text) for head, text in row.items()} for row in rows]


def write(table, out):
    """Write the blocks of the page, and the picture; nothing without a folder."""
    if out is None:
        return
    path = out / "benchmarks" / f"{table.name}.csv"
    rows = read(path)
    page = path.with_suffix(".md")
    if page.exists():
        text = page.read_text()
        for name, block in blocks(rows).items():
            text = put(text, name, block)
        page.write_text(text)
    save_figure(out / "figures" / "peers_ranks.png", draw_ranks, rows)


def blocks(rows):
    """Return the blocks of the page by the names of their marks.

    Kinds of tables without rows have none.
    """
    found = {"models": settings(rows), "empty": reasons(rows)}
    found["mixed tables"] = source_table(rows)
    for kind, part in results(rows).items():
        scores, others = SCORES[kind]
        for score in (*scores, *others, *SECONDS):
            name = f"{kind} {score}"
            found[name] = part.markdown(score)
        found[f"{kind} ranks"] = rank_table(part, scores)
        found[f"{kind} losses"] = loss_table(part, scores)
    return found


def results(rows):
    """Return the results of each kind of tables that has rows, by kind."""
    found = {kind: Results(rows, kind) for kind in SCORES}
    return {kind: part for kind, part in found.items() if part.rows}


class Results:
    """Means over splits of one kind of tables, by score, model and table."""

    def __init__(self, rows, kind):
        self.rows = [row for row in rows if row["data"] in KINDS[kind]]
        self.tables = unique(self.rows, "data")
        self.models = unique(self.rows, "model")

        seeds = unique(self.rows, "seed")
        self.shape = len(self.models), len(self.tables), len(seeds)
        self.places = [
            (self.models.index(r["model"]), self.tables.index(r["data"]),
             seeds.index(r["seed"])) for r in self.rows
        ]  # fmt: skip

    def by_split(self, score):
        """Return an array (models, tables, splits), NaN where there is none."""
        found = np.full(self.shape, np.nan)
        for place, row in zip(self.places, self.rows, strict=True):
            found[place] = np.nan if row[score] is None else row[score]
        return found

    def scores(self, score):
        """Return means over splits (models, tables), NaN where there is none.

        The second array says which of them are of fewer splits than those of others.
        """
        values = self.by_split(score)
        n = np.sum(np.isfinite(values), axis=2)
        means = np.nansum(values, axis=2) / np.where(n > 0, n, np.nan)
        return means, n < n.max(axis=0)

    def markdown(self, score):
        """Return a table with a row a model; the best of each column is bold.

        Means of fewer splits than others have are in brackets and not compared.
        """
        spec = FORMATS.get(score, COLUMNS[score])
        values, few = self.scores(score)
        texts = [
            ["" if np.isnan(v) else format(v, spec) for v in row] for row in values
        ]
        for i, j in np.argwhere(few & np.isfinite(values)):
            texts[i][j] = f"({texts[i][j]})"
        if score not in SECONDS:
            away = abs(values - 0.9) if score == "coverage" else values
            away = np.where(few, np.nan, away)
            for j in range(len(self.tables)):
                if not np.all(np.isnan(away[:, j])):
                    i = np.nanargmin(away[:, j])
                    texts[i][j] = f"**{texts[i][j]}**"
        lines = [
            [model, *row]
            for model, row, own in zip(self.models, texts, values, strict=True)
            if not np.all(np.isnan(own))
        ]
        return as_table(["", *self.tables], lines)

    def ranks(self, score):
        """Return mean ranks by model, the best first.

        A model that was run on all splits of all tables and has the score on half of
        the tables or more is ranked. It is last on a table where it lacks the score of
        a split, for whatever reason.
        """
        values, few = self.scores(score)
        values = np.where(few, np.nan, values)
        n_runs = np.bincount([i for i, *_ in self.places], minlength=len(self.models))
        n_splits = len({place[1:] for place in self.places})
        ranked = np.mean(np.isfinite(values), axis=1) >= 0.5
        ranked &= n_runs == n_splits
        part = np.where(np.isfinite(values), values, np.inf)[ranked]
        below = np.sum(part[None] < part[:, None], axis=1)
        equal = np.sum(part[None] == part[:, None], axis=1)
        means = np.mean(below + (equal + 1) / 2, axis=1)
        models = [m for m, known in zip(self.models, ranked, strict=True) if known]
        pairs = zip(models, means, strict=True)
        return dict(sorted(pairs, key=lambda pair: pair[1]))

    def losses(self, score):
        """Return a sentence on how often the default is first, and lines of losses.

        A line has score, table, figure of the default, the best one and its model, and
        the gap between both, on the splits that both have.
        """
        values, spec = self.by_split(score), FORMATS.get(score, COLUMNS[score])
        own = values[self.models.index(OURS)]  # (tables, splits)
        both = np.isfinite(own) & np.isfinite(values)
        n = np.maximum(both.sum(axis=2), 1)
        ours, theirs = (np.where(both, v, 0.0).sum(axis=2) / n for v in (own, values))
        tables = np.flatnonzero(np.isfinite(own).any(axis=1))
        lines = []
        for j in tables:
            i = np.argmax(ours[:, j] - theirs[:, j])
            mean, best = ours[i, j], theirs[i, j]
            if best < mean:
                gap = f"{mean - best:.3f} nats"
                if score != "NLL":
                    gap = f"{100 * (mean / best - 1):.0f} %" if best > 0 else "all"
                figures = format(mean, spec), format(best, spec)
                lines.append([score, self.tables[j], *figures, self.models[i], gap])
        n_tables = len(tables)
        n_first = n_tables - len(lines)
        return f"- {score}: first on {n_first} of {n_tables} tables.\n", lines


def loss_table(part, scores):
    """Return a sentence for each score, and a table of where the default is behind."""
    if OURS not in part.models:
        return ""
    sentences, losses = zip(*map(part.losses, scores), strict=True)
    heads = ["score", "table", "default", "best", "of", "behind by"]
    lines = [line for each in losses for line in each]
    return "".join(sentences) + "\n" + as_table(heads, lines)


def rank_table(part, scores):
    """Return mean ranks over tables, a row a model."""
    ranks = [part.ranks(score) for score in scores]
    models = sorted(
        {model for each in ranks for model in each},
        key=lambda model: np.mean([each[model] for each in ranks if model in each]),
    )
    lines = [
        [model, *(f"{each[model]:.1f}" if model in each else "" for each in ranks)]
        for model in models
    ]
    return as_table(["mean rank", *scores], lines)


def settings(rows):
    """Return the models, their packages and settings."""
    packages = {row["model"]: row["package"] for row in rows}
    lines = [[OURS, packages.get(OURS, ""), "default"]]
    for kind, peers in (("", REGRESSORS), (", classes", CLASSIFIERS)):
        for name, peer in peers.items():
            if name in packages:
                limits = f"; at most {peer.most_rows:,} rows" if peer.most_rows else ""
                if peer.most_columns:
                    limits += f"; at most {peer.most_columns} columns"
                if peer.positive:
                    limits += "; positive targets only"
                lines.append([name + kind, packages[name], peer.settings + limits])
    return as_table(["model", "package", "settings"], lines)


def reasons(rows):
    """Return models, the reason of empty cells, and their tables."""
    lines = []
    for model, note in dict.fromkeys((row["model"], row["note"]) for row in rows):
        if note:
            own = [r for r in rows if (r["model"], r["note"]) == (model, note)]
            lines.append([model, note, ", ".join(unique(own, "data"))])
    return as_table(["model", "why empty", "tables"], lines)


def source_table(rows):
    """Return the tables of mixed kinds, where they are from and what is predicted."""
    lines = []
    for name, source in SOURCES.items():
        columns = [row["columns"] for row in rows if row["data"] == name]
        if columns:
            item = f"`{source.package}`, `{source.item}`"
            lines.append([name, item, f"`{source.target}`", f"{max(columns)}"])
    return as_table(["table", "package of R, name", "y", "columns, encoded"], lines)


def as_table(heads, lines):
    """Return a table of a page."""
    lines = [heads, ["---"] * len(heads), *lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def draw_ranks(plt, rows):
    """Draw mean ranks, a panel a score, the default in another color."""
    panels = [
        (kind, score, part.ranks(score))
        for kind, part in results(rows).items()
        for score in SCORES[kind][0]
    ]
    panels = [panel for panel in panels if panel[2]]
    n_lines = -(-len(panels) // 3)
    figure, axes = plt.subplots(
        n_lines, 3, figsize=(9, 3.1 * n_lines), squeeze=False, layout="constrained"
    )
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (kind, score, ranks) in zip(axes.flat, panels, strict=False):
        colors = ["C1" if model == OURS else "C0" for model in ranks]
        ax.barh(list(ranks), list(ranks.values()), color=colors)
        ax.invert_yaxis()
        ax.set_title(f"{kind}: {score}")
        ax.set_xlabel("mean rank")
        ax.grid(axis="x", alpha=0.3)
    return figure
