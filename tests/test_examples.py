"""The gallery draws its pictures, and benchmarks time what they say they time."""

import csv
import importlib
import os
import re
import subprocess
import sys
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


def test_functions_that_are_timed_take_turns(example):
    calls = []
    example("report").least_times(
        [lambda: calls.append("a"), lambda: calls.append("b")], repeats=2, least=0.0
    )
    assert "".join(calls) == "aabb" + "abab"  # to warm up and to count, then twice


def run_example(path, folder):
    """Run a script of the gallery, check its picture, and return its printed text."""
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, path, "--out", folder],
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("*.png"))
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("plot_*.py")), ids=lambda path: path.stem
)
def test_the_gallery_runs(path, tmp_path):
    text = run_example(path, tmp_path)
    if path.stem == "plot_stream":
        assert float(re.search(r"after 30 chunks (.*)", text)[1]) < 0.3  # noise: 0.2
