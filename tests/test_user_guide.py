"""Pages of the user guide whose code runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import root_mean_squared_error

from skswsgp.metrics import interval_coverage

GUIDE = Path(__file__).parents[1] / "doc" / "user_guide"


def run_code(page):
    """Run the code of a page in its order, and return the names it leaves."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", (GUIDE / page).read_text())
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)
    return names


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_scikit_learn_says_what_happens():
    """It fits some thirty models of four kinds, for several seconds."""
    names = run_code("scikit_learn.md")
    assert names["quantiles"].shape == (len(names["y"]) - 300, 3)
    ends = np.transpose(names["ends"])
    np.testing.assert_allclose(ends, names["quantiles"][:, [0, 2]])
    scores = names["scores"]
    assert set(scores) == {"ours", "exact", "linear", "boosting"}
    for found in scores.values():
        for name in names["names"]:
            assert np.isfinite(found[f"test_{name}"]).all()
    assert np.mean(scores["ours"]["test_neg_crps"]) > np.mean(
        scores["boosting"]["test_neg_crps"]
    )
    shares, relevance = names["shares"], names["relevance"]
    assert list(shares) == ["city", "size", "remainder"]
    assert shares["city"] == relevance[:3].sum() > 0.1  # three words
    assert shares["size"] == relevance[3] > 0.5
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.full  # it fits seven models, to compare their errors
@pytest.mark.usefixtures("few_steps")
@pytest.mark.filterwarnings("ignore:split R-hat:")  # of a chain this short
def test_the_page_on_baselines_says_what_happens():
    scores = run_code("baselines.md")["scores"]
    assert len(scores) == 7
    for error, density in scores.values():
        assert error < 0.2 and density < -0.3  # noise has 0.1 and -0.88


@pytest.mark.slow  # it fits six models, with the usual search
def test_the_page_on_intervals_says_what_happens():
    pytest.importorskip("matplotlib", reason="the page has displays")
    names = run_code("uncertainty.md")
    y, shift = names["y_new"], names["shift"]
    lower, upper = names["lower"] - shift, names["upper"] + shift
    for ends in names["model"].predict_interval(names["X_new"], 0.9), (lower, upper):
        assert interval_coverage(y, *ends) == pytest.approx(0.9, abs=0.05)
    f = np.sin(names["X_new"][:, 0])
    assert interval_coverage(f, names["f_lower"], names["f_upper"]) > 0.8
    assert names["prices"].y_transform_.name == "log"
    assert np.mean(names["rain"] == 0.0) == pytest.approx(0.4, abs=0.05)
    held = interval_coverage(names["rain"][250:], names["least"], names["most"])
    assert names["least"].min() == 0.0 and held > 0.85
    assert np.std(names["rows"].z_score) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow  # CI has skrub only there
def test_the_page_on_tables_says_what_happens():
    """Both spellings know shops, kinds, seasons and weeks, and leave little noise."""
    pytest.importorskip("skrub", reason="needs the extra `tables`")
    names = run_code("tables.md")
    frame, sales, new = names["frame"], names["sales"], names["new"]
    assert frame.isna().any().to_dict() == {
        "shop": False, "kind": False, "day": False, "warmth": True
    }  # fmt: skip
    for model in (names["pipeline"], names["plain"]):
        assert model.score(frame[new], sales[new]) > 0.7
        lower, upper = model.predict(frame[new], quantiles=[0.05, 0.95]).T
        inside = (lower <= sales[new]) & (sales[new] <= upper)
        assert inside.mean() == pytest.approx(0.9, abs=0.07)  # four standard errors
    assert names["quantiles"].shape == (300, 3)
    unknown = frame[:1].assign(shop="shop 99", kind="tart")
    with pytest.warns(UserWarning, match="unknown categories"):
        assert np.isfinite(names["pipeline"].predict(unknown)).all()
    kinds_and_shop = names["plain"][0].transform(unknown)[0, :4]
    np.testing.assert_allclose(kinds_and_shop, [0, 0, 0, sales[:600].mean()])
    check_weekdays(names)


def check_weekdays(names):
    """Raise AssertionError if a weekday does not help dates with and without hours."""
    found = re.search(
        r"error is ([\d.]+) without the weekday and ([\d.]+) with it",
        (GUIDE / "tables.md").read_text(),
    )
    without, with_it = (names["errors"][key] for key in (False, True))
    assert [without, with_it] == pytest.approx(
        [float(one) for one in found.groups()], 0.05
    )
    assert with_it < 0.5 * without
    frame, sales, train, new = (
        names[key] for key in ("frame", "sales", "train", "new")
    )
    encoder = "tablevectorizer__datetime__add_weekday"
    plain = clone(names["pipeline"]).set_params(**{encoder: False})
    plain.fit(frame[train], sales[train])
    errors = [
        root_mean_squared_error(sales[new], model.predict(frame[new]))
        for model in (plain, names["pipeline"], names["plain"])
    ]
    assert max(errors[1:]) < 0.8 * errors[0]


@pytest.mark.slow  # it starts two processes
@pytest.mark.usefixtures("few_steps")
def test_the_page_on_many_machines_says_what_happens():
    dask = pytest.importorskip("dask", reason="needs the extra `dask`")
    with dask.config.set(scheduler="threads"):  # whatever clients of others have left
        check_many_machines(dask, run_code("many_machines.md"))


def check_many_machines(dask, names):
    """Raise AssertionError if the code of the page does not do what it says."""
    table, model, mean = (names[name] for name in ("table", "model", "mean"))
    for fitted in "large", "paper":
        assert names[fitted].score(names["X"], names["y"]) > 0.95  # y has noise
    assert "n_neighbors" in names["by_blocks"].best_params_
    rows = table[:20_000].compute()
    expected = model.predict(rows, return_std=True)
    found = dask.compute(mean[:20_000], names["std"][:20_000])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert names["quantiles"].shape == (100_000, 3)
    lower, upper = names["lower"], names["upper"]
    assert lower.chunks == table.chunks[:1]
    expected = names["pipeline"].predict(rows, quantiles=[0.025, 0.975]).T
    found = dask.compute(lower[:20_000], upper[:20_000])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert names["client"].status == "closed"


def test_the_code_of_the_first_page_runs():
    names = run_code("../index.md")
    lower, upper = names["lower"], names["upper"]
    y = names["y"][300:]
    assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(0.95, abs=0.06)


@pytest.mark.slow  # it fits six models, with the usual search
def test_the_tour_says_what_happens():
    names = run_code("tour.md")
    y, upper = names["y_new"], names["upper"]
    assert np.mean((names["lower"] <= y) & (y <= upper)) == pytest.approx(0.9, abs=0.05)
    assert names["lower"].min() > 0.0
    assert names["regressor"].y_transform_.name == "log"
    assert list(names["shares"].index[:3]) == ["city_Bonn", "city_Kiel", "city_Ulm"]
    assert names["shares"][["age", "size"]].sum() > 0.9
    assert names["classifier"].score(names["X_new"], y > names["y"].median()) > 0.9


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_the_gaussian_process_of_scikit_learn_says_what_happens():
    names = run_code("from_scikit_learn.md")
    X, y = names["X_new"], names["y_new"]
    ours, exact = (names[name].score(X, y) for name in ("model", "exact"))
    assert ours == pytest.approx(exact, abs=0.02)
    np.testing.assert_allclose(names["same_mean"], names["exact_mean"], rtol=1e-7)
    np.testing.assert_allclose(names["same_std"], names["exact_std"], rtol=1e-3)
    assert len(names["same"].inducing_points_) == names["same"].n_neighbors_ == 400


@pytest.mark.full  # it only has to run
@pytest.mark.usefixtures("few_steps")
def test_the_page_on_fitting_runs():
    pytest.importorskip("rich")
    pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9")
    names = run_code("fitting.md")
    assert names["model"].n_iter_ == 1


def test_the_page_on_other_packages_says_what_happens():
    names = run_code("from_others.md")
    y, lower, upper = names["y_new"], names["lower"], names["upper"]
    row = re.search(
        r"\| this package \| ([\d.]+) \| ([\d.]+) \|",
        (GUIDE / "from_others.md").read_text(),
    )
    error, held = (float(number) for number in row.groups())
    assert root_mean_squared_error(y, names["mean"]) == pytest.approx(error, abs=0.01)
    assert np.mean((lower < y) & (y < upper)) == pytest.approx(held, abs=0.01)


@pytest.mark.slow  # it compiles the Student-t likelihood
@pytest.mark.usefixtures("few_steps")
def test_the_page_on_parameters_says_what_happens():
    names = run_code("parameters.md")
    assert names["search"].best_params_ == {"likelihood": "student_t"}
    scores = names["sizes"].cv_results_["mean_test_score"]
    assert scores.argmax() >= 2 and scores.argmin() == 0  # more points are better
    assert names["learned"].kernel_ == names["sizes"].best_estimator_.kernel_


@pytest.mark.slow  # it fits six models, with the usual search
def test_the_page_on_boosting_says_what_happens():
    errors = run_code("boosting.md")["errors"]
    ours, boosting = "SWSGPRegressor", "HistGradientBoostingRegressor"
    assert errors["jumps", boosting] < errors["jumps", ours]
    assert errors["smooth", ours] < errors["smooth", boosting]


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_attributes_says_what_happens():
    names = run_code("attributes.md")
    np.testing.assert_allclose(names["mean"], names["model"].predict(names["X"]))


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_production_says_what_happens():
    names = run_code("production.md")
    largest = max(names["arrays"], key=lambda name: names["arrays"][name].nbytes)
    assert largest == "inducing_points_"
    assert names["model"].n_jobs == 1
    assert min(names["mean"], names["std"], names["fewer"]) > 0.0


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_saving_says_what_happens(capsys):
    names = run_code("saving.md")
    for other in "same", "other":
        mean = names[other].predict(names["X"])
        np.testing.assert_array_equal(mean, names["model"].predict(names["X"]))
    assert "False" not in capsys.readouterr().out
