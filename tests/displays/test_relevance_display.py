"""The relevance display shows by how much losses grow where columns are shuffled."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import labels_of
from sklearn.compose import make_column_transformer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from skswsgp.displays import RelevanceDisplay


def drawn(display):
    """Return names of the columns, their relevance and the ends of the intervals."""
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    ends = [path.vertices[:, 0] for path in display.line_[2][0].get_paths()]
    return names, display.line_[0].get_xdata(), np.array(ends)


@pytest.mark.parametrize("outputs", [None, 2])
def test_relevance_is_the_decrease_of_r2(outputs, pyplot, rng):
    X = rng.normal(size=(4000, 3))
    y = X[:, 1] + 0.5 * X[:, 2] + 0.3 * rng.normal(size=4000)
    if outputs == 2:
        y = np.stack([y, 3.0 * X[:, 2]], axis=1)
        model = LinearRegression().fit(X, y)
    else:
        model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    display = RelevanceDisplay.from_estimator(model, X, y)
    expected = permutation_importance(model, X, y, random_state=0).importances_mean
    np.testing.assert_allclose(display.relevance, expected, atol=0.03)
    order = np.argsort(display.relevance)
    names, values, ends = drawn(display)
    assert names == [f"x{d}" for d in order]
    np.testing.assert_array_equal(values, display.relevance[order])
    half = 1.959964 * display.error[order]
    np.testing.assert_allclose(ends, np.stack([values - half, values + half], 1), 1e-5)
    assert display.ax_.get_xlabel() == "Decrease of R2 where the column is shuffled"


@pytest.mark.parametrize("outputs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_the_standard_error_is_the_spread_over_draws_of_rows(outputs, monkeypatch, rng):
    """200 tables of 50 rows, so that the spread has an error of 5 %."""
    monkeypatch.setattr(RelevanceDisplay, "plot", lambda self, ax: self)
    coef, found = np.array([[1.0, 0.0], [0.2, 1.0]])[:, :outputs], []
    model = SimpleNamespace(predict=lambda X: X @ coef)
    for _ in range(200):
        X = rng.normal(size=(50, 2))
        y = X @ coef + 0.3 * rng.standard_t(5, size=(50, outputs))
        how = {"random_state": rng.integers(2**31), "n_repeats": 20}
        display = RelevanceDisplay.from_estimator(model, X, y, **how)
        found.append([display.relevance, display.error])
    relevance, errors = np.moveaxis(found, 1, 0)
    np.testing.assert_allclose(np.mean(errors, 0), np.std(relevance, 0), rtol=0.2)


def test_relevance_for_classes_is_that_of_columns_before_encoding(pyplot, rng):
    pandas = pytest.importorskip("pandas")
    kind = rng.choice(["a", "b", "c"], 400)
    X = pandas.DataFrame({"size": rng.normal(size=400), "kind": kind}, range(5, 405))
    y = np.where((kind == "a") ^ (rng.random(400) < 0.1), "yes", "no")
    encoder = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="drop")
    model = make_pipeline(encoder, LogisticRegression()).fit(X, y)
    display = RelevanceDisplay.from_estimator(model, X, y)
    names, values, _ = drawn(display)
    assert names == ["size", "kind"] and values[0] == display.error[0] == 0.0
    shuffled = X.assign(kind=rng.permutation(kind))
    expected = log_loss(y, model.predict_proba(shuffled))
    expected -= log_loss(y, model.predict_proba(X))
    assert values[1] == pytest.approx(expected, rel=0.2)
    assert display.ax_.get_xlabel().startswith("Increase of log loss (nats) where")
    assert labels_of(display) == ["LogisticRegression"]


def test_samples_without_weight_do_not_count(pyplot, line):
    X, y = line
    y = np.where(np.arange(300) < 150, y, 50.0)
    model = BayesianRidge().fit(X, y)
    weight = (np.arange(300) < 150) * 2.0
    how = {"sample_weight": weight, "n_repeats": 200}
    display = RelevanceDisplay.from_estimator(model, X, y, **how)
    alone = RelevanceDisplay.from_estimator(model, X[:150], y[:150], n_repeats=200)
    np.testing.assert_allclose(display.relevance, alone.relevance, rtol=0.1)


def test_the_most_relevant_columns_are_drawn(pyplot):
    display = RelevanceDisplay([0.1, 0.4, 0.3], np.zeros(3), list("abc"), "Loss")
    with pytest.raises(ValueError, match="n_columns=0: expected an integer"):
        display.plot(n_columns=0)
    display.relevance = np.array(display.relevance)
    assert drawn(display.plot(n_columns=2, c="red"))[0] == ["c", "b"]
    assert display.line_[0].get_color() == "red"
    assert display.ax_.get_legend() is None


def test_unusable_input_of_relevance(line):
    X, y = line
    draw = RelevanceDisplay.from_estimator
    with pytest.raises(TypeError, match=r"^LinearSVC has no predict_proba: expected"):
        draw(LinearSVC().fit(X, y > 0), X, y > 0)
    model = BayesianRidge().fit(X, y)
    with pytest.raises(ValueError, match="y is constant: expected observations that d"):
        draw(model, X, np.full(300, 0.1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        draw(model, X, y[:-1])
    with pytest.raises(ValueError, match="n_repeats=0: expected an integer of at leas"):
        draw(model, X, y, n_repeats=0)
    with pytest.raises(ValueError, match=r"the prediction has shape .300,.: expected"):
        draw(model, X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="X is a masked array with 300 masked entr"):
        draw(model, np.ma.masked_less(X, np.median(X)), y)
