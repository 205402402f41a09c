"""The scripts of the papers' tables run, and pages hold what they have written."""

import importlib
import math
import runpy
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples" / "paper").glob("[a-z]*.py"))
RESULTS = sorted((ROOT / "doc" / "paper").glob("*.csv"))
COLUMNS = {  # of the tables that scripts read
    "airline": 8,
    "banana": 2,
    "credit": 23,
    "eeg": 14,
    "kin40k": 8,
    "kin8nm": 8,
    "mnist": 784,
    "powerplant": 4,
    "protein": 9,
    "spam": 57,
}
CLASSES = "airline", "banana", "credit", "eeg", "mnist", "spam"


@pytest.fixture
def tables(monkeypatch, tmp_path):
    """Write small tables of the shapes of the real ones where scripts look for them."""
    rng = np.random.default_rng(0)
    for name, n_columns in COLUMNS.items():
        X = rng.normal(size=(900, n_columns))
        y = X[:, 0] + 0.3 * rng.normal(size=len(X))
        y = (y > 0).astype(np.int8) if name in CLASSES else 3.0 * y
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    monkeypatch.setenv("SKSWSGP_DATA", str(tmp_path))


@pytest.fixture
def runs(monkeypatch, tables):
    for folder in ("benchmarks", "paper"):
        monkeypatch.syspath_prepend(ROOT / "examples" / folder)
    module = importlib.import_module("_runs")
    module.prepared.cache_clear()
    module.FITS.clear()
    monkeypatch.setitem(sys.modules["datasets"].OFFICIAL_TRAINING, "mnist", 700)
    return module


@pytest.fixture
def run_cells(runs, monkeypatch, tmp_path):
    """Return a function that runs cells as a script does; it returns rows by model."""

    def run(cells, *arguments, scores=("RMSE", "MNLL"), **options):
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["script", "--out", str(out), *arguments])
        (out / "paper").mkdir(parents=True, exist_ok=True)
        page = out / "paper" / "test.md"
        page.write_text("# Page\n<!-- test_table -->\nearlier\n<!-- end -->\nText.\n")
        runs.run("test_table.py", "", cells, scores, **options)
        rows = runs.read(out / "paper" / "test_table.csv")
        drawn = bool(list(out.glob("figures/test_table.png")))
        assert drawn == (find_spec("matplotlib") is not None)
        text = page.read_text()
        assert text.endswith("<!-- end -->\nText.\n") and "earlier" not in text
        assert runs.markdown(rows) in text
        return {row["model"]: row for row in rows}

    monkeypatch.setenv("MPLBACKEND", "Agg")
    return run


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_writes_a_row_for_each_cell(
    path, runs, monkeypatch, tmp_path, capsys
):
    pytest.importorskip("matplotlib")
    if "import torch" in path.read_text():
        pytest.importorskip("torch", reason="needs the extra `bench`")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    arguments = [str(path), "--quick", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ConvergenceWarning)  # of short chains
        script = runpy.run_path(str(path), run_name="__main__")
    assert "left out" not in capsys.readouterr().out
    assert (tmp_path / "figures" / f"{path.stem}.png").exists()
    if "CELLS" in script:
        rows = runs.read(tmp_path / "paper" / f"{path.stem}.csv")
        names = [(row["data"], row["model"]) for row in rows]
        assert names == [(cell.data, cell.model) for cell in script["CELLS"]]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_page_has_the_table_of_the_results(path, runs):
    page = path.with_name(f"{path.stem.split('_')[0]}.md").read_text()
    _, mark, rest = page.partition(f"<!-- {path.stem} -->")
    if not mark:  # a long one
        assert f"]({path.name})" in page
        return
    table = runs.markdown(runs.read(path))
    assert rest.split("<!-- end -->")[0].strip() == table.strip()


class Mean(RegressorMixin, BaseEstimator):
    """Predict the mean of y plus `shift`, and the deviation of y."""

    fits = 0

    def __init__(self, shift=0.0, refuse=False, n_jobs=None, random_state=None):
        self.shift = shift
        self.refuse = refuse
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X, y):
        if self.refuse:
            raise ValueError("y is refused")
        Mean.fits += 1
        Mean.n_rows = len(X)
        self.mean_, self.std_ = y.mean(), y.std()
        return self

    def predict(self, X, return_std=False, add=0.0):
        mean = np.full(len(X), self.mean_ + self.shift + add)
        return (mean, np.full(len(X), self.std_)) if return_std else mean


def test_scores_are_means_and_deviations_over_folds(runs, run_cells):
    paper = {"RMSE": (4.0, 0.5), "MNLL": 2.0}
    cells = [
        runs.Cell("powerplant", "raw", Mean(), paper),
        runs.Cell("powerplant", "unit", Mean(), in_deviations=True),
    ]
    rows = run_cells(cells, "--folds", "3", lacks=True)
    X, y = runs.table_of("powerplant")
    errors, densities, units = [], [], []
    for fold in range(3):
        train, test = runs.parts("powerplant", len(X), fold)
        deviation, residual = y[train].std(), y[test] - y[train].mean()
        errors.append(np.sqrt(np.mean(residual**2)))
        densities.append(
            np.mean(residual**2) / deviation**2 / 2
            + math.log(deviation)
            + math.log(2 * math.pi) / 2
        )
        units.append((errors[-1] / deviation, densities[-1] - math.log(deviation)))
    raw, unit = rows["raw"], rows["unit"]
    assert raw["folds"] == 3
    assert raw["RMSE"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert raw["RMSE ±"] == pytest.approx(np.std(errors, ddof=1), rel=1e-5)
    assert raw["MNLL"] == pytest.approx(np.mean(densities), rel=1e-5)
    assert (raw["RMSE paper"], raw["RMSE paper ±"]) == (4.0, 0.5)
    corrected = 2.0 + math.log(2 * math.pi) / 4
    assert raw["MNLL corrected"] == pytest.approx(corrected, rel=1e-5)
    expected = np.mean(units, axis=0)
    assert [unit["RMSE"], unit["MNLL"]] == pytest.approx(expected, rel=1e-5)


def test_printed_densities_of_classes_lack_nothing(runs, run_cells):
    cell = runs.Cell("airline", "theirs", None, {"error": 0.2, "MNLL": 0.5})
    rows = run_cells([cell], scores=("error", "MNLL"), lacks=True)
    assert rows["theirs"]["MNLL corrected"] == 0.5
    assert rows["theirs"]["MNLL"] is None


def test_cells_with_one_estimator_share_its_fits(runs, run_cells):
    model = Mean()
    cells = [
        runs.Cell("powerplant", "as it is", model),
        runs.Cell("powerplant", "shifted", model, predict={"add": 100.0}),
    ]
    Mean.fits = 0
    rows = run_cells(cells, "--folds", "2")
    assert Mean.fits == 2
    assert rows["shifted"]["RMSE"] > 90.0 > rows["as it is"]["RMSE"]


def test_rows_of_earlier_runs_stay_in_the_order_of_the_cells(runs, run_cells):
    cells = [
        runs.Cell("powerplant", "first", Mean(0.0)),
        runs.Cell("powerplant", "second", Mean(9.0)),
    ]
    alone = run_cells(cells, "second", "--folds", "1")
    assert list(alone) == ["second"]
    both = run_cells(cells, "first", "--folds", "1")
    assert list(both) == ["first", "second"] and both["second"] == alone["second"]


def test_a_quick_run_takes_few_rows_and_its_parameters(runs, run_cells):
    cell = runs.Cell("powerplant", "model", Mean(), quick={"shift": 100.0})
    row = run_cells([cell], "--quick", "--folds", "5")["model"]
    assert row["folds"] == 1 and row["RMSE"] > 90.0
    assert Mean.n_rows == runs.QUICK_ROWS[0] < 720


def test_a_missing_table_is_left_out_with_a_sentence(runs, run_cells, capsys):
    cells = [
        runs.Cell("wave", "model", Mean()),
        runs.Cell("powerplant", "model", Mean()),
    ]
    assert len(run_cells(cells)) == 1
    sentence = "wave, model: left out, for the table is not here."
    assert sentence in capsys.readouterr().out


def test_errors_of_fits_are_raised(runs, run_cells):
    with pytest.raises(ValueError, match="y is refused"):
        run_cells([runs.Cell("powerplant", "model", Mean(refuse=True))])
